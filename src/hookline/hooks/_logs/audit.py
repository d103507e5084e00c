"""`audit`: record who did what, one JSON line each, appended to a file and never changed.

A line is written with a single system call, before the recorded action continues: no tool runs
without its line, even if the process is killed; with `fsync`, even after a power failure. A line
that was cut off during that call stays on its own, and every other line is complete, even if
several programs write to the same file. If a line cannot be written, the chat ends.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from time import time
from typing import Any

from hookline import (
    AssistantMessage,
    Deny,
    Run,
    ToolCall,
    ToolFailure,
    ToolMessage,
)
from hookline.hooks._common import LAST, Hooks, Outcome, RunTool, definer
from hookline.hooks._logs.jsonl_file import Lines
from hookline.points import AroundToolCall, OnApproval, OnChatEnd, OnChatStart, OnMessage


def audit(
    path: str | os.PathLike[str],
    *,
    fsync: bool = False,
    content: bool = False,
    who: Callable[[Run[Any]], object] | None = None,
    clock: Callable[[], float] = time,
    inherit: bool = True,
    required: bool = True,
) -> Hooks:
    """Record chats, messages, tool calls and approvals as JSON lines in the file `path`.

    With `fsync`, wait until each line is on disk. With `content`, also record texts, arguments and
    results. `who` returns JSON data, such as the user's id from `run.deps`; each line has this data
    in the field `who`. `clock` returns the time of a line, in seconds since the epoch.
    """
    lines = Lines(Path(path), fsync, clock)

    def content_of(value: object) -> Any:
        return value if content else None

    async def add_line(run: Run[Any], what: str, **more: Any) -> None:
        await lines.add(run, what, who=None if who is None else who(run), **more)

    async def start(ctx: OnChatStart[Any]) -> None:
        await add_line(ctx.run, "chat started")

    async def message(ctx: OnMessage[Any]) -> None:
        message = ctx.message
        more: dict[str, Any] = {}
        if isinstance(message, AssistantMessage):
            more["calls"] = [_call(call, content) for call in message.tool_calls] or None
        elif isinstance(message, ToolMessage):
            more |= {"call": message.call_id, "tool": message.name, "outcome": message.outcome}
            if message.ran is not None:
                more["hooks"] = message.ran.hooks or None
                more["hook_ids"] = message.ran.hook_ids or None
            if message.outcome != "ok":  # a refused call has no other line
                more["arguments"] = content_of(_arguments(ctx.run, message.call_id))
        await add_line(
            ctx.run, f"{message.role} message", id=message.id, **more, text=content_of(message.text)
        )

    async def tool_call(ctx: AroundToolCall[Any], proceed: RunTool) -> Outcome:
        call = ctx.call
        arguments = content_of(call.arguments)
        await add_line(ctx.run, "tool started", call=call.id, tool=call.name, arguments=arguments)
        result = await proceed()
        failed = result.type if isinstance(result, ToolFailure) else None
        await add_line(ctx.run, "tool finished", call=call.id, tool=call.name, error=failed)
        return result

    async def approval(ctx: OnApproval[Any]) -> None:
        decision = ctx.decision
        how = "asked" if decision is None else type(decision).__name__.lower()
        call = ctx.request.call
        more: dict[str, Any] = {}
        if isinstance(decision, Deny):
            more["reason"] = content_of(decision.reason)
        elif decision is not None:
            more["note"] = None if decision.note is None else content_of(decision.note)
            if decision.arguments is not None:
                more |= {"edited": True, "arguments": content_of(decision.arguments)}
        by = None if decision is None else decision.by
        await add_line(ctx.run, f"approval: {how}", call=call.id, tool=call.name, by=by, **more)

    async def end(ctx: OnChatEnd[Any]) -> None:
        error = None if ctx.error is None else type(ctx.error).__name__
        tokens, seconds = ctx.usage.total_tokens, round(ctx.duration, 6)
        what = f"chat {ctx.outcome}"
        await add_line(ctx.run, what, error=error, tokens=tokens, seconds=seconds)

    add = definer(name="audit", inherit=inherit, required=required)
    return (
        add("onChatStart", start, priority=LAST),
        add("onMessage", message, priority=LAST),
        add("aroundToolCall", tool_call, priority=LAST + 1, observes=True),
        add("onApproval", approval, priority=LAST),
        add("onChatEnd", end, priority=LAST),
    )


def _call(call: ToolCall, content: bool) -> dict[str, Any]:
    """A call by the model, as one entry of a line."""
    return {"id": call.id, "tool": call.name, **({"arguments": call.arguments} if content else {})}


def _arguments(run: Run[Any], call_id: str) -> Any:
    """The arguments of a call in the model's last answer."""
    for message in reversed(run.history):
        if isinstance(message, AssistantMessage):
            return next((c.arguments for c in message.tool_calls if c.id == call_id), None)
    return None
