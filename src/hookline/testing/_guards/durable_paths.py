"""Paths of a probe on which a durable chat makes the call."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any, Final

from hookline import Approve, ModelRequest, ToolMessage
from hookline.models import Chunk
from hookline.runtimes import Durable, Halted, Journal
from hookline.testing._guards.call_path import OURS, CallPath
from hookline.testing._script import ScriptedModel

_MOST_BATCHES: Final = 100  # of the record of a durable chat; about ten are written


class _Model:
    """A model that goes on where the history is, in any life of a durable chat."""

    name = provider = OURS

    def __init__(self, turn: Any) -> None:
        self._turn = turn

    async def stream(self, request: ModelRequest, /) -> AsyncIterator[Chunk]:
        turn = "done" if isinstance(request.messages[-1], ToolMessage) else self._turn
        async for chunk in ScriptedModel(turn).stream(request):
            yield chunk


class _Log:
    """The record of a durable chat in memory. The worker dies at the batch with this number."""

    def __init__(self, path: CallPath, crash: int | None = None) -> None:
        self._path = path
        self._crash = crash
        self._batches: list[bytes] = []
        self.answer_of: Any = path.deny

    async def read(self) -> list[bytes]:
        return list(self._batches)

    async def append(self, data: bytes) -> None:
        if len(self._batches) == self._crash:
            self._crash = None
            raise Halted
        self._batches.append(data)

    async def answer(self, request: Any) -> Any:
        return await self.answer_of(request, None)

    def poke(self) -> None:
        """Nothing is suspended here."""


async def _live(path: CallPath, log: _Log, *hooks: Any) -> bool:
    """One life of a durable chat; returns whether the chat has ended."""
    agent = path.guarded(model=_Model(path.turn()), runtime=Durable(), later=True)
    journal = await Journal.open("probe", log)
    options: dict[str, Any] = {"approver": None, "chat_id": "probe"}
    try:
        await journal.carry(lambda: path.chat(agent, *hooks, **options))
    except Halted:
        return False
    return True


async def durable(path: CallPath) -> None:
    await _live(path, _Log(path))


async def withdrawn_while_a_durable_chat_waits(path: CallPath) -> None:
    path.is_approved = True
    path.withdrawn = False

    async def approve(request: Any, run: Any) -> Approve:
        path.withdrawn = True
        return Approve()

    log = _Log(path)
    log.answer_of = approve
    await _live(path, log, path.question())


async def withdrawn_before_a_replay(path: CallPath) -> None:
    """The worker dies at each place of the record in turn, and another one goes on."""
    path.is_approved = True
    for crash in range(_MOST_BATCHES):
        path.withdrawn = False
        log = _Log(path, crash)
        if await _live(path, log):
            break
        path.ran, path.withdrawn = False, True
        await _live(path, log)
        if path.ran:
            return
    path.ran = False  # of the life that did not end early, before access was withdrawn
