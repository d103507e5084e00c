"""The seam to the outside world: the loop gets model, tools, hooks, commits, clock and ids here.

The local runtime just calls. A durable engine records what each `step` gave under its key and,
when the chat is run again, gives it back instead of running it. What it must keep of a step is in
`Effects`: beside the value, the changes to `run.state`, an abort that was asked for, and the number
of the last event. Keys are stored data: the whole list stands in KEYS and is frozen.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Final, Protocol, TypeAlias, TypeVar, TypeVarTuple, cast

from hookline._base.cancel import shielded
from hookline._base.json import Reader
from hookline._base.log import log_throw
from hookline._base.messages import Data, Usage, encoded
from hookline._base.returns import ApprovalRequest, Decision

T = TypeVar("T")
Args = TypeVarTuple("Args")
Key: TypeAlias = tuple[Any, ...]
"""One of KEYS, and what fills its gaps."""

# What runs inside each step. Call ids are unique within a chat before they are used here.
START: Final = "start"  # onChatStart
PRE_CHAT: Final = "preChat"  # preChat
MESSAGE: Final = "message/{}"  # preMessage, the commit, onMessage; by index within the chat
KEPT: Final = "{}/message/{}"  # the same in the ending of another outcome; by call or role
REQUEST: Final = "step/{}/request"  # the request is built; preRequest
MODEL: Final = "step/{}/model"  # aroundRequest, the model, onDelta
RESPONSE: Final = "step/{}/response"  # onResponse
CALL: Final = "step/{}/call/{}"  # preToolCall
ASKED: Final = "step/{}/call/{}/asked"  # onApproval, asked
ANSWER: Final = "step/{}/call/{}/answer"  # the wait for an approval
ANSWERED: Final = "step/{}/call/{}/answered"  # onApproval, answered
RUN: Final = "step/{}/call/{}/run"  # aroundToolCall, the handler
RESULT: Final = "step/{}/call/{}/result"  # onToolCallResult, onToolCallError
PENDING: Final = "step/{}/pending"  # the calls that wait are written down
OUTPUT: Final = "step/{}/output"  # the output validators
STEP: Final = "step/{}/end"  # onStep
SAY: Final = "step/{}/say"  # the text of a Stop; onDelta
PRE_STOP: Final = "stop/{}"  # preStop
OUTCOME: Final = "{}/outcome/{}"  # onChatDone, onChatAbort, onChatError, one each
END_CHAT: Final = "{}/end/{}"  # onChatEnd, one each

KEYS: Final = (
    START, PRE_CHAT, MESSAGE, KEPT, REQUEST, MODEL, RESPONSE, CALL, ASKED, ANSWER, ANSWERED, RUN,
    RESULT, PENDING, OUTPUT, STEP, SAY, PRE_STOP, OUTCOME, END_CHAT,
)  # fmt: skip
"""The templates of all keys: stored data, and frozen."""


def key_name(key: Key) -> str:
    """The key as it is stored, such as `step/3/model`."""
    from urllib.parse import quote  # only here: it costs a millisecond of an import

    return str(key[0]).format(
        *[quote(part, safe="") if type(part) is str else part for part in key[1:]]
    )


class Halted(BaseException):
    """Raised by a durable runtime: this life of a chat is over, and the chat goes on elsewhere.

    What runs is cancelled. No hook, event, store call or release of the lease comes after it, and
    whoever waits for the chat gets it. It is a BaseException, so that nobody handles it by chance.
    """


class Returns(Protocol[T]):
    """How what a step gives becomes bytes and comes back."""

    def encode(self, value: T, /) -> bytes:
        """The bytes to be recorded."""
        ...

    def decode(self, data: bytes, /) -> T:
        """The value that was recorded as these bytes."""
        ...


class Json(Reader[T]):
    """Returns of a type that msgspec knows."""

    __slots__ = ()

    def encode(self, value: T, /) -> bytes:
        """The bytes to be recorded."""
        return encoded(value)


NOTHING: Final[Json[None]] = Json(None)


class Effects(Data, frozen=True, kw_only=True):
    """What a step did beside giving its value."""

    state: dict[str, Any] | None = None
    """The JSON values that it has put into `run.state`."""
    gone: tuple[str, ...] = ()
    """The keys that it has removed from there."""
    aborted: bool = False
    """Whether it has asked for an abort."""
    reason: str | None = None
    """What it gave as the abort's reason."""
    seq: int = 0
    """The number of the last event when it ended."""
    usage: Usage | None = None
    """What the chat had used when it ended, where that changed."""
    shown: bool = False
    """Whether text of an answer was shown that is not yet in history."""
    hidden: tuple[str, ...] = ()
    """Calls whose deltas a hook has hidden."""
    sent_tools: tuple[str, ...] | None = None
    """What the model was offered, where wrappers stood."""


class Journaled(Protocol):
    """A chat, as a durable runtime sees it."""

    chat_id: str
    """The chat's id, the same in each of its lives."""

    @property
    def attempt(self) -> int:
        """How often the step that runs has begun; set before `fn` is called, in its context."""
        ...

    @attempt.setter
    def attempt(self, number: int, /) -> None: ...
    def mark(self) -> Any:
        """The state before a step."""
        ...

    def effects(self, mark: Any) -> Effects:
        """What was done since the mark."""
        ...

    def apply(self, effects: Effects) -> None:
        """Do it again from the record, without running anything."""
        ...

    def abort(self, reason: str | None = None) -> bool:
        """Abort the chat: False where that comes too late.

        An abort has a place in the record. Write it down before it is carried out, and give it
        again when the ends of all steps that were recorded before it have been given.
        """
        ...

    def halt(self) -> None:
        """End this life at once: what runs is cancelled, and nothing more is published."""
        ...


class Runtime(Protocol):
    """What the loop needs of the world."""

    @property
    def life(self) -> str | None:
        """Names this life of a chat that may have several, such as `"3"`: no "/" in it.

        A later life takes the lease of its conversation from an earlier one at once. None where a
        chat has one life: nobody takes its lease.
        """
        ...

    @property
    def answers(self) -> bool:
        """Whether `wait` brings an answer by itself, where no approver is there to be asked."""
        ...

    def for_chat(self, chat: Journaled) -> Runtime:
        """The runtime of one chat; asked once, before its first step."""
        ...

    def step(
        self,
        key: Key,
        fn: Callable[[*Args], Awaitable[T]],
        returns: Returns[T],
        /,
        *args: *Args,
    ) -> Awaitable[T]:
        """Run `fn(*args)`, or give what it gave before under this key.

        Raises `Halted` where this life of the chat is over.
        A runtime that replays gives recorded values in the order in which they were recorded, and
        all of them before anything new begins. It records the begin of a model's or tool's step
        before it runs it, so that `Journaled.attempt` is right in a later life.
        """
        ...

    def wait(
        self, key: Key, request: ApprovalRequest, ask: Callable[[], Awaitable[Decision | None]], /
    ) -> Awaitable[Decision]:
        """Wait for the answer to a question.

        `ask` gives the approver's. Where there is none it notes that the chat waits, and gives
        None: then this runtime asks, and counts the time from `request.expires` on as a denial.
        """
        ...

    def gather(self, jobs: Sequence[Callable[[], Awaitable[None]]], /) -> Awaitable[None]:
        """Run them side by side; the first exception cancels the rest and is raised alone."""
        ...

    def now(self) -> float:
        """Seconds since the epoch; asked outside of steps, too, always in the same order."""
        ...

    def new_id(self) -> str:
        """An id that nobody can guess."""
        ...


class LocalRuntime:
    """This process, this event loop: it just calls."""

    life: str | None = None
    """None: a chat has one life here."""
    answers: bool = False
    """Without an approver nobody is asked."""

    def for_chat(self, chat: Journaled) -> Runtime:
        """Itself: no chat needs one of its own."""
        return self

    def step(
        self,
        key: Key,
        fn: Callable[[*Args], Awaitable[T]],
        returns: Returns[T],
        /,
        *args: *Args,
    ) -> Awaitable[T]:
        """What `fn(*args)` gives; nothing is recorded."""
        return fn(*args)

    def wait(
        self, key: Key, request: ApprovalRequest, ask: Callable[[], Awaitable[Decision | None]], /
    ) -> Awaitable[Decision]:
        """The approver's answer."""
        return cast("Awaitable[Decision]", ask())

    async def gather(self, jobs: Sequence[Callable[[], Awaitable[None]]], /) -> None:
        """Run them in a task each; the first exception cancels the rest and is raised alone."""
        tasks = [asyncio.ensure_future(job()) for job in jobs]
        ours = False  # what is raised from here is the first failure, and no cancellation of us
        try:
            try:
                await asyncio.wait(tasks, return_when=asyncio.FIRST_EXCEPTION)
            finally:
                await _reap(tasks)
            ours = True
        finally:
            failed = [
                exc
                for task in tasks
                if task.done() and not task.cancelled() and (exc := task.exception())
            ]
            failed.sort(key=lambda exc: not isinstance(exc, Halted))  # it comes before any error
            for exc in failed[1 if ours else 0 :]:
                if not isinstance(exc, Halted):
                    log_throw("a call beside the one that failed raised too", exc)
            cut = any(task.cancelled() for task in tasks)
            tasks.clear()  # or the traceback of what is raised here would hold what it came from
            if not ours:
                failed.clear()
        if failed:
            try:
                raise failed[0]
            finally:
                failed.clear()
        if cut:
            raise asyncio.CancelledError("a job was cancelled, and nobody had cancelled it")

    def now(self) -> float:
        """The machine's clock, in seconds since the epoch."""
        return time.time()

    def new_id(self) -> str:
        """80 random bits, in hexadecimal."""
        return os.urandom(10).hex()


async def _reap(tasks: Sequence[asyncio.Future[None]]) -> None:
    """Cancel what still runs and wait for its end."""
    running = [task for task in tasks if not task.done()]
    for task in running:
        task.cancel()
    if running:
        _, cut = await shielded(asyncio.wait(running))
        if cut is not None:
            raise cut


LOCAL: Final = LocalRuntime()
