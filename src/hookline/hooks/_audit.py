"""`audit`: who did what, as one JSON line each, appended to a file and never changed.

A line is written by one call of the operating system, before what it tells of goes on: no tool has
run that has no line, also after a kill; with `fsync` also after a power cut. What was cut off in
that very call stays a line by itself, and every other line is whole, also where several programs
write to one file. A line that cannot be written ends the chat.
"""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Callable
from pathlib import Path
from time import time
from typing import Any

import msgspec

from hookline import HookDef, Proceed, Run, ToolCall, ToolError, ToolResult, define_hook
from hookline.hooks._common import LAST, Hooks
from hookline.points import AroundToolCall, OnApproval, OnChatEnd, OnChatStart, OnMessage

if sys.platform != "win32":
    import fcntl

    def _lock(file: int) -> None:
        """Nobody else writes until the file is closed."""
        fcntl.flock(file, fcntl.LOCK_EX)

else:

    def _lock(file: int) -> None:
        """Windows keeps appended lines apart by itself."""


class _Lines:
    """The file. It is opened for each line, so that it may be moved away at any time."""

    def __init__(self, path: Path, fsync: bool, clock: Callable[[], float]) -> None:
        self._path = path
        self._fsync = fsync
        self._clock = clock

    async def add(self, run: Run[Any], what: str, **more: Any) -> None:
        line: dict[str, Any] = {
            "at": self._clock(),
            "what": what,
            "agent": run.agent,
            "chat": run.chat_id,
            "conversation": run.conversation_id,
            "parent": run.parent_chat_id,
            **more,
        }
        data = msgspec.json.encode({key: each for key, each in line.items() if each is not None})
        await asyncio.to_thread(self._write, data + b"\n")

    def _write(self, data: bytes) -> None:
        flags = os.O_RDWR | os.O_APPEND | os.O_CREAT | getattr(os, "O_BINARY", 0)
        file = os.open(self._path, flags, 0o600)
        try:
            _lock(file)
            if os.lseek(file, 0, os.SEEK_END):
                os.lseek(file, -1, os.SEEK_END)
                data = data if os.read(file, 1) == b"\n" else b"\n" + data
            written = os.write(file, data)
            if written != len(data):
                raise OSError(f"only {written} of {len(data)} bytes went into {self._path}")
            if self._fsync:
                os.fsync(file)
        finally:
            os.close(file)


def audit(
    path: str | os.PathLike[str],
    *,
    fsync: bool = False,
    content: bool = False,
    clock: Callable[[], float] = time,
    inherit: bool = True,
) -> Hooks:
    """Write down chats, messages, tool calls and approvals, as JSON lines in that file.

    `fsync`: wait until each line is on the disk. `content`: also texts, arguments and results,
    which are left out otherwise. `clock` gives the time of a line, in seconds since the epoch.
    """
    lines = _Lines(Path(path), fsync, clock)

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
        ctx: AroundToolCall[Any], proceed: Proceed[ToolCall, ToolResult | ToolError]
    ) -> ToolResult | ToolError:
        call = ctx.call
        shown = told(call.arguments)
        await lines.add(ctx.run, "tool started", call=call.id, tool=call.name, arguments=shown)
        result = await proceed()
        failed = result.type if isinstance(result, ToolError) else None
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

    add: Callable[..., HookDef] = define_hook
    return (
        add("onChatStart", start, name="audit", priority=LAST, inherit=inherit),
        add("onMessage", message, name="audit", priority=LAST, inherit=inherit),
        add("aroundToolCall", tool_call, name="audit", priority=LAST + 1, inherit=inherit),
        add("onApproval", approval, name="audit", priority=LAST, inherit=inherit),
        add("onChatEnd", end, name="audit", priority=LAST, inherit=inherit),
    )
