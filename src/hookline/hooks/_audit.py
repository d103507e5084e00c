"""`audit`: who did what, as one JSON line each, appended to a file and never changed.

A line is written by one call of the operating system, before what it tells of goes on: no tool has
run that has no line, also after a kill; with `fsync` also after a power cut. What was cut off in
that very call stays a line by itself, and every other line is whole, also where several programs
write to one file. A line that cannot be written ends the chat.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import partial
from pathlib import Path
from time import time
from typing import Any

from hookline import HookDef, Proceed, ToolCall, ToolFailure, ToolResult, define_hook
from hookline.hooks._common import LAST, Hooks
from hookline.hooks._lines import Lines
from hookline.points import AroundToolCall, OnApproval, OnChatEnd, OnChatStart, OnMessage


def audit(
    path: str | os.PathLike[str],
    *,
    fsync: bool = False,
    content: bool = False,
    clock: Callable[[], float] = time,
    inherit: bool = True,
    required: bool = True,
) -> Hooks:
    """Write down chats, messages, tool calls and approvals, as JSON lines in that file.

    `fsync`: wait until each line is on the disk. `content`: also texts, arguments and results,
    which are left out otherwise. `clock` gives the time of a line, in seconds since the epoch.
    """
    lines = Lines(Path(path), fsync, clock)

    def told(value: object) -> Any:
        return value if content else None

    async def start(ctx: OnChatStart[Any]) -> None:
        await lines.add(ctx.run, "chat started")

    async def message(ctx: OnMessage[Any]) -> None:
        said = ctx.message
        outcome = getattr(said, "outcome", None)
        call = getattr(said, "call_id", None)
        await lines.add(
            ctx.run, f"{said.role} message", id=said.id, call=call, outcome=outcome,
            text=told(said.text),
        )  # fmt: skip

    async def tool_call(
        ctx: AroundToolCall[Any], proceed: Proceed[ToolCall, ToolResult | ToolFailure]
    ) -> ToolResult | ToolFailure:
        call = ctx.call
        shown = told(call.arguments)
        await lines.add(ctx.run, "tool started", call=call.id, tool=call.name, arguments=shown)
        result = await proceed()
        failed = result.type if isinstance(result, ToolFailure) else None
        await lines.add(ctx.run, "tool finished", call=call.id, tool=call.name, error=failed)
        return result

    async def approval(ctx: OnApproval[Any]) -> None:
        decision = ctx.decision
        how = "asked" if decision is None else type(decision).__name__.lower()
        call = ctx.request.call
        await lines.add(ctx.run, f"approval: {how}", call=call.id, tool=call.name)

    async def end(ctx: OnChatEnd[Any]) -> None:
        error = None if ctx.error is None else type(ctx.error).__name__
        tokens, seconds = ctx.usage.total_tokens, round(ctx.duration, 6)
        what = f"chat {ctx.outcome}"
        await lines.add(ctx.run, what, error=error, tokens=tokens, seconds=seconds)

    add: Callable[..., HookDef] = partial(
        define_hook, name="audit", inherit=inherit, required=required
    )
    return (
        add("onChatStart", start, priority=LAST),
        add("onMessage", message, priority=LAST),
        add("aroundToolCall", tool_call, priority=LAST + 1),
        add("onApproval", approval, priority=LAST),
        add("onChatEnd", end, priority=LAST),
    )
