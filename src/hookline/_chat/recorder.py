"""The seam of a chat to a durable runtime, and the end of one life of the chat by `Halted`.

The loop calls a runtime as `_record/runtime.py` declares it. With a durable runtime, a `Recorder`
is in between. Each hook, store call and model call of the chat goes through it. Once the runtime
has raised `Halted`, the recorder refuses every further call. The results of some steps are recorded
in a form that depends on the chat, or have effects that a replay must repeat: see `ChatReturns`.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Generator, Sequence
from contextlib import AbstractAsyncContextManager, contextmanager
from typing import Any, Generic, Protocol, TypeVar, TypeVarTuple, cast

import msgspec

from hookline._base.messages import UserMessage
from hookline._base.returns import ApprovalRequest, Decision, When
from hookline._record.runtime import Halted, Json, Key, Returns, Runtime

T = TypeVar("T")
Args = TypeVarTuple("Args")


class Recorded(Protocol):
    """A chat with a durable runtime."""

    def halt(self, exc: Halted) -> None:
        """End this life: cancel the running work, and raise `exc` in the caller."""
        ...


class ChatReturns(msgspec.Struct, Generic[T], frozen=True, kw_only=True):
    """The `Returns` of a step whose record depends on the chat, or that a replay must follow up.

    `pack` converts the result of the step to the data that `form` encodes, and `unpack` converts
    it back. `on_replay` is called with a result from the record and the arguments of the step.
    """

    form: Json[Any]
    pack: Callable[[Any, T], Any] | None = None
    unpack: Callable[[Any, Any], T] | None = None
    on_replay: Callable[..., Awaitable[None]] | None = None
    chat: Any = None  # set by the chat's recorder

    def encode(self, value: T, /) -> bytes:
        return self.form.encode(value if self.pack is None else self.pack(self.chat, value))

    def decode(self, data: bytes, /) -> T:
        value: Any = self.form.decode(data)
        return cast("T", value) if self.unpack is None else self.unpack(self.chat, value)


class Recorder:
    """Calls a durable runtime for one chat."""

    __slots__ = ("_chat", "_halted", "_runtime")

    def __init__(self, chat: Recorded, runtime: Runtime) -> None:
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
        ran = False

        async def run(*args: *Args) -> T:
            nonlocal ran
            ran = True
            return await fn(*args)

        form, on_replay = returns, None
        if isinstance(returns, ChatReturns):
            form = msgspec.structs.replace(returns, chat=self._chat)
            on_replay = returns.on_replay
        with self._until_halted():
            value = await self._runtime.step(key, run, form, *args)
        if on_replay is not None and not ran:
            await on_replay(value, *args)
        return value

    async def wait(
        self, key: Key, request: ApprovalRequest, ask: Callable[[], Awaitable[Decision | None]], /
    ) -> Decision:
        with self._until_halted():
            return await self._runtime.wait(key, request, ask)

    async def gather(self, jobs: Sequence[Callable[[], Awaitable[None]]], /) -> None:
        with self._until_halted():
            await self._runtime.gather(jobs)

    def lock(self) -> AbstractAsyncContextManager[None]:
        return self._runtime.lock()

    def has_begun(self, key: Key) -> bool:
        return self._runtime.has_begun(key)

    def has_passed(self, key: Key) -> bool:
        return self._runtime.has_passed(key)

    async def messages(self) -> Sequence[tuple[UserMessage, When]]:
        with self._until_halted():
            return await self._runtime.messages()

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
