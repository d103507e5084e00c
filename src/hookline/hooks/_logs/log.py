"""`log`: log the course of chats: names, numbers and times, and content only on request."""

from __future__ import annotations

import logging
from time import perf_counter
from typing import Any

from hookline import ToolFailure
from hookline.hooks._common import INFRASTRUCTURE, Hooks, Outcome, RunTool, definer
from hookline.points import (
    AroundToolCall,
    OnChatEnd,
    OnChatStart,
    OnMessage,
    OnStatus,
    OnStep,
)


def log(
    logger: logging.Logger | str = "hookline.chats",
    *,
    level: int = logging.INFO,
    content: bool = False,
    length: int = 100,
    inherit: bool = True,
    required: bool = False,
) -> Hooks:
    """Log chats, steps, tool calls and statuses at this level, and failed chats as warnings.

    With `content`, also log the texts of messages, arguments and results; each text is cut to
    `length` characters.
    """
    out = logging.getLogger(logger) if isinstance(logger, str) else logger

    def tell(ctx: Any, text: str, *values: object, at: int = level) -> None:
        out.log(at, f"[%s] {text}", ctx.run.agent, *values)

    def cut(value: object) -> str:
        text = str(value)
        return text if len(text) <= length else f"{text[:length]}…"

    def start(ctx: OnChatStart[Any]) -> None:
        tell(ctx, "chat %s started", ctx.run.chat_id)

    def message(ctx: OnMessage[Any]) -> None:
        tell(ctx, "%s: %s", ctx.message.role, cut(ctx.message.text))

    def step(ctx: OnStep[Any]) -> None:
        calls = len(ctx.results)
        tell(ctx, "step %d: %s, %d calls", ctx.iteration, ctx.response.finish_reason, calls)

    async def tool_call(ctx: AroundToolCall[Any], proceed: RunTool) -> Outcome:
        label = cut(ctx.call.arguments) if content else ctx.call.id
        tell(ctx, "tool %s(%s) started", ctx.call.name, label)
        start = perf_counter()
        result = await proceed()
        outcome = result.type if isinstance(result, ToolFailure) else "ok"
        seconds = perf_counter() - start
        tell(ctx, "tool %s(%s): %s in %.3f s", ctx.call.name, label, outcome, seconds)
        return result

    def status(ctx: OnStatus[Any]) -> None:
        tell(ctx, "status %s", ctx.type)

    def end(ctx: OnChatEnd[Any]) -> None:
        error = "" if ctx.error is None else f" ({type(ctx.error).__name__})"
        at = level if ctx.outcome == "done" else max(level, logging.WARNING)
        text = "chat %s: %s%s, %d tokens in %.3f s"
        chat, tokens = ctx.run.chat_id, ctx.usage.total_tokens
        tell(ctx, text, chat, ctx.outcome, error, tokens, ctx.duration, at=at)

    options: Any = {"priority": INFRASTRUCTURE, "on_error": "log"}
    add = definer(name="log", inherit=inherit, required=required, **options)
    return (
        add("onChatStart", start),
        *((add("onMessage", message),) if content else ()),
        add("onStep", step),
        add("aroundToolCall", tool_call, observes=True),
        add("onStatus", status),
        add("onChatEnd", end),
    )
