"""The seam of a chat to a durable runtime, and the end of one life of the chat by `Halted`.

The loop calls a runtime as `_base/runtime.py` declares it. A `Recorder` stands between the two
where the runtime is not the local one: from the moment at which the runtime raises `Halted`, it
refuses every further call, since each hook, store call and model call of a chat goes through it.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Generator, Sequence
from contextlib import contextmanager
from typing import Protocol, TypeVar, TypeVarTuple

from hookline._base.returns import ApprovalRequest, Decision
from hookline._base.runtime import Halted, Key, Returns, Runtime

T = TypeVar("T")
Args = TypeVarTuple("Args")


class Haltable(Protocol):
    """A chat whose life may be over while the chat goes on elsewhere."""

    def halt(self, exc: Halted) -> None:
        """End this life: cancel what runs, and tell nobody but the caller."""
        ...


class Recorder:
    """A durable runtime as its chat calls it."""

    __slots__ = ("_chat", "_halted", "_runtime")

    def __init__(self, chat: Haltable, runtime: Runtime) -> None:
        self._chat = chat
        self._runtime = runtime
        self._halted = False

    @property
    def life(self) -> str | None:
        return self._runtime.life

    @property
    def answers(self) -> bool:
        return self._runtime.answers

    async def step(
        self, key: Key, fn: Callable[[*Args], Awaitable[T]], returns: Returns[T], /, *args: *Args
    ) -> T:
        with self._until_halted():
            return await self._runtime.step(key, fn, returns, *args)

    async def wait(
        self, key: Key, request: ApprovalRequest, ask: Callable[[], Awaitable[Decision | None]], /
    ) -> Decision:
        with self._until_halted():
            return await self._runtime.wait(key, request, ask)

    async def gather(self, jobs: Sequence[Callable[[], Awaitable[None]]], /) -> None:
        with self._until_halted():
            await self._runtime.gather(jobs)

    def now(self) -> float:
        with self._until_halted():
            return self._runtime.now()

    def new_id(self) -> str:
        with self._until_halted():
            return self._runtime.new_id()

    def for_chat(self, chat: object) -> Runtime:
        return self

    @contextmanager
    def _until_halted(self) -> Generator[None, None, None]:
        if self._halted:
            raise Halted("this life of the chat is over")
        try:
            yield
        except Halted as exc:
            self._halted = True
            self._chat.halt(exc)
            raise
