"""Paths of a probe on which a durable chat makes the call."""

from __future__ import annotations

from typing import Any, Final

from hookline import ModelRequest, ToolMessage
from hookline.runtimes import Durable, Halted, Journal
from hookline.testing._guards.call_path import CallPath, withdrawing
from hookline.testing._memory_log import MemoryLog

_MOST_BATCHES: Final = 100  # of the record of a durable chat; about ten are written


async def _live(path: CallPath, log: MemoryLog, *hooks: Any) -> bool:
    """One life of a durable chat; returns whether the chat has ended."""

    def answer(request: ModelRequest) -> Any:  # which goes on where the history is
        return "done" if isinstance(request.messages[-1], ToolMessage) else path.turn()

    agent = path.guarded(answer, runtime=Durable(), later=True)
    journal = await Journal.open("probe", log)
    options: dict[str, Any] = {"approver": None, "chat_id": "probe"}
    try:
        await journal.carry(lambda: path.chat(agent, *hooks, **options))
    except Halted:
        return False
    return True


async def durable(path: CallPath) -> None:
    await _live(path, MemoryLog(path.deny))


async def withdrawn_while_a_durable_chat_waits(path: CallPath) -> None:
    path.is_approved, path.withdrawn = True, False
    await _live(path, MemoryLog(withdrawing(path)), path.question())


async def withdrawn_before_a_replay(path: CallPath) -> None:
    """The worker dies at each place of the record in turn, and another one goes on."""
    path.is_approved = True
    for crash in range(_MOST_BATCHES):
        path.withdrawn = False
        log = MemoryLog(path.deny, crash)
        if await _live(path, log):
            break
        path.ran, path.withdrawn = False, True
        await _live(path, log)
        if path.ran:
            return
    path.ran = False  # of the life that did not end early, before access was withdrawn
