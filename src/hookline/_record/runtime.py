"""The interface to the environment: model, tools, hooks, commits, clock and ids run through it.

The local runtime simply calls each function. A durable engine records the result of each `step`
under its key, and returns the record instead of running the step when the chat is run again. In
addition to the result it records the step's `Effects`: changes to `run.state` and `run.meta`, a
requested abort, and the number of the last event. Keys are stored data: KEYS is the complete list.
Keys may be added, but never changed.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Any, Final, Protocol, TypeAlias, TypeVar, TypeVarTuple, cast, runtime_checkable

from hookline._base.cancel import finished
from hookline._base.json import Reader
from hookline._base.log import log_throw
from hookline._base.messages import Data, Usage, UserMessage, encoded
from hookline._base.returns import ApprovalRequest, Decision, When

T = TypeVar("T")
Args = TypeVarTuple("Args")
Key: TypeAlias = tuple[Any, ...]
"""One of KEYS, followed by the values for its placeholders."""

# What runs inside each step. Call ids are unique within a chat before they are used here.
ID: Final = "id/{}"  # whether the conversation has a message of the id of the input, or preChat's
START: Final = "start"  # onChatStart
PRE_CHAT: Final = "preChat"  # preChat
MESSAGE: Final = "message/{}"  # preMessage, the commit, onMessage; by index within the chat
FINAL_MESSAGE: Final = "{}/message/{}"  # like MESSAGE, in the end of an outcome; by call or role
INPUT: Final = "step/{}/input"  # preSteer, before the request
REQUEST: Final = "step/{}/request"  # the request is built; preRequest
MODEL: Final = "step/{}/model"  # aroundRequest, the model, onDelta
RESPONSE: Final = "step/{}/response"  # onResponse
CALL: Final = "step/{}/call/{}"  # preToolCall
ON_REQUEST: Final = "step/{}/call/{}/asked"  # onApproval, asked
ANSWER: Final = "step/{}/call/{}/answer"  # waiting for an approval
ON_ANSWER: Final = "step/{}/call/{}/answered"  # onApproval, answered
RUN: Final = "step/{}/call/{}/run"  # aroundToolCall, the handler
CHILD_ANSWER: Final = "step/{}/call/{}/child/{}/{}"  # waiting for an approval of a sub-agent
CHILD_RUN: Final = "step/{}/call/{}/run/{}"  # like RUN, after the answers for a sub-agent
RESULT: Final = "step/{}/call/{}/result"  # onToolCallResult, onToolCallError
PENDING: Final = "step/{}/pending"  # storing the calls that wait
STEP: Final = "step/{}/end"  # onStep
OUTPUT: Final = "step/{}/output"  # the output validators
SAY: Final = "step/{}/say"  # the text of a Stop; onDelta
PRE_STOP: Final = "stop/{}"  # preStop
IDLE_INPUT: Final = "stop/{}/input"  # preSteer, when the chat would end before this step
OUTCOME: Final = "{}/outcome/{}"  # onChatDone, onChatAbort, onChatError, one each
END_CHAT: Final = "{}/end/{}"  # onChatEnd, one each
RETURNED: Final = "{}/returned/messages"  # the messages that came too late

KEYS: Final = (
    ID, START, PRE_CHAT, MESSAGE, FINAL_MESSAGE, INPUT, REQUEST, MODEL, RESPONSE,
    CALL, ON_REQUEST, ANSWER, ON_ANSWER, RUN, CHILD_ANSWER, CHILD_RUN, RESULT,
    PENDING, STEP, OUTPUT, SAY, PRE_STOP, IDLE_INPUT, OUTCOME, END_CHAT,
    RETURNED,
)  # fmt: skip
"""The templates of all keys, in the order of a chat. They are stored data, so none may change."""
HOOK_KEYS: Final = frozenset({
    ID, START, PRE_CHAT, RESPONSE, CALL, ON_REQUEST, ON_ANSWER, RESULT, STEP, OUTPUT, PRE_STOP,
    OUTCOME, END_CHAT,
})  # fmt: skip
"""The steps that run only hooks: a chat without hooks does not ask for them."""


def key_name(key: Key) -> str:
    """Return the key in its stored form, such as `step/3/model`."""
    from urllib.parse import quote  # only here: it costs a millisecond of an import

    return str(key[0]).format(
        *[quote(part, safe="") if type(part) is str else part for part in key[1:]]
    )


class Halted(BaseException):
    """Raised when a life of a durable chat has ended; the chat continues in another life.

    Running work is cancelled. After the cancellation, no hooks run, nothing is published or stored,
    and the lease is not released. Callers that wait for the chat get this exception. Halted derives
    from BaseException, so `except Exception` does not catch Halted.
    """


class Returns(Protocol[T]):
    """Converts the result of a step to bytes and back."""

    def encode(self, value: T, /) -> bytes:
        """Encode the value as the bytes to record."""
        ...

    def decode(self, data: bytes, /) -> T:
        """Decode a value from its recorded bytes."""
        ...


class Json(Reader[T]):
    """A `Returns` for any type that msgspec supports."""

    __slots__ = ()

    def encode(self, value: T, /) -> bytes:
        """Encode the value as the bytes to record."""
        return encoded(value)


NOTHING: Final[Json[None]] = Json(None)


_STORED_NAMES = {  # in the logs of durable chats
    "state_removed": "gone",
    "meta_removed": "meta_gone",
    "text_visible": "shown",
    "hidden_calls": "hidden",
}


class Effects(Data, frozen=True, kw_only=True, rename=_STORED_NAMES):
    """The effects of a step, apart from its result."""

    state: dict[str, Any] | None = None
    """The JSON values that the step set in `run.state`."""
    state_removed: tuple[str, ...] = ()
    """The keys that the step removed from `run.state`."""
    meta: dict[str, Any] | None = None
    """The JSON values that the step set in `run.meta`."""
    meta_removed: tuple[str, ...] = ()
    """The keys that the step removed from `run.meta`."""
    aborted: bool = False
    """Whether the step requested an abort."""
    reason: str | None = None
    """The reason for that abort."""
    seq: int = 0
    """The number of the last event when the step ended."""
    usage: Usage | None = None
    """The chat's token usage when the step ended, if the step changed it."""
    text_visible: bool = False
    """Whether a part of an answer was shown but is not yet in the history."""
    hidden_calls: tuple[str, ...] = ()
    """The calls whose deltas a hook has hidden."""
    sent_tools: tuple[str, ...] | None = None
    """The tools that were offered to the model; None if no hook wrapped the model call."""


class Journaled(Protocol):
    """A chat, as a durable runtime sees it."""

    chat_id: str
    """The chat's id, which is the same in all its lives."""

    @property
    def attempt(self) -> int:
        """The number of attempts of the current step so far.

        The runtime sets this number in the context of `fn`, before the runtime calls `fn`.
        """
        ...

    @attempt.setter
    def attempt(self, number: int, /) -> None: ...
    def mark(self) -> Any:
        """Mark the state before a step."""
        ...

    def effects(self, mark: Any) -> Effects:
        """The effects since the mark."""
        ...

    def apply(self, effects: Effects) -> None:
        """Apply recorded effects, without running anything."""
        ...

    def abort(self, reason: str | None = None) -> bool:
        """Abort the chat; returns False if it is too late to abort.

        Record the abort before you carry it out. On replay, first return all step results that were
        recorded before the abort, and then abort again.
        """
        ...

    def interrupt_tools(self, message_id: str) -> None:
        """Cancel the running tools that an Interrupt may cancel, unless its message is known."""
        ...

    def halt(self) -> None:
        """End this life at once: cancel running work, and publish nothing more."""
        ...


@runtime_checkable
class Runtime(Protocol):
    """What the loop needs from its environment: steps, waiting, time and ids."""

    @property
    def life(self) -> str | None:
        """The name of this life, such as `"3"`; None if a chat has only one life.

        The name must not contain "/". A name that begins with a higher number belongs to a later
        life. A later life takes over the conversation's lease from an earlier life at once. The
        lease of a chat with only one life is not taken over.
        """
        ...

    @property
    def answers(self) -> bool:
        """Whether `wait` can get an answer without an approver."""
        ...

    def for_chat(self, chat: Journaled) -> Runtime:
        """Return the runtime of one chat; called once, before the chat's first step."""
        ...

    def step(
        self,
        key: Key,
        fn: Callable[[*Args], Awaitable[T]],
        returns: Returns[T],
        /,
        *args: *Args,
    ) -> Awaitable[T]:
        """Run `fn(*args)`, or return the result that was recorded under this key.

        Raises `Halted` if this life of the chat has ended. Before a new step begins, a durable
        runtime returns all recorded values, in their recorded order. Before a model call or a tool
        runs, the runtime records that the step has begun. This record keeps `Journaled.attempt`
        correct in a later life.
        """
        ...

    def wait(
        self, key: Key, request: ApprovalRequest, ask: Callable[[], Awaitable[Decision | None]], /
    ) -> Awaitable[Decision]:
        """Wait for the answer to a question.

        `ask` returns the approver's answer. Without an approver, `ask` marks the chat as waiting
        and returns None. In that case, the runtime must get the answer itself. When the request
        expires (`request.expires`), the runtime must deny the request.
        """
        ...

    def gather(self, jobs: Sequence[Callable[[], Awaitable[None]]], /) -> Awaitable[None]:
        """Run the jobs in parallel; the first exception cancels the other jobs and is raised."""
        ...

    def lock(self) -> AbstractAsyncContextManager[None]:
        """Return a lock that the jobs of one `gather` share."""
        ...

    def has_begun(self, key: Key) -> bool:
        """Whether an earlier life of the chat has begun this step.

        The chat then asks for the step even if it no longer has hooks for it, because what a hook
        has decided counts.
        """
        ...

    def has_passed(self, key: Key) -> bool:
        """Whether an earlier life went on past the place of this step.

        A new hook is then not asked, because it could only contradict what has happened.
        """
        ...

    async def messages(self) -> Sequence[tuple[UserMessage, When]]:
        """Return the messages that other processes have sent into the chat since the last call."""
        ...

    def now(self) -> float:
        """Return seconds since the epoch.

        Outside of steps, the order of calls is always the same.
        """
        ...

    def new_id(self) -> str:
        """Return a new id that cannot be guessed."""
        ...


class LocalRuntime:
    """The default runtime: runs each step in this process and event loop, and records nothing."""

    life: str | None = None
    """None: a local chat has only one life."""
    answers: bool = False
    """False: without an approver, a question cannot be answered."""

    def for_chat(self, chat: Journaled) -> Runtime:
        """Return this runtime itself, which all chats share."""
        return self

    def step(
        self,
        key: Key,
        fn: Callable[[*Args], Awaitable[T]],
        returns: Returns[T],
        /,
        *args: *Args,
    ) -> Awaitable[T]:
        """Call `fn(*args)`; nothing is recorded."""
        return fn(*args)

    def wait(
        self, key: Key, request: ApprovalRequest, ask: Callable[[], Awaitable[Decision | None]], /
    ) -> Awaitable[Decision]:
        """Return the approver's answer."""
        return cast("Awaitable[Decision]", ask())

    async def gather(self, jobs: Sequence[Callable[[], Awaitable[None]]], /) -> None:
        """Run each job in a task; the first exception cancels the other jobs and is raised."""
        tasks = [asyncio.ensure_future(job()) for job in jobs]
        try:
            try:
                await asyncio.wait(tasks, return_when=asyncio.FIRST_EXCEPTION)
            finally:
                await _reap(tasks)
        except asyncio.CancelledError:  # from outside: it takes precedence over failures
            _log_failures(_failures(tasks))
            tasks.clear()
            raise
        failed = _failures(tasks)
        _log_failures(failed[1:])
        cut = any(task.cancelled() for task in tasks)
        # The traceback of a raised exception refers to this frame. So that there is no cycle, the
        # frame must not refer to the exception, neither through its task nor through a name.
        tasks.clear()
        if failed:
            raise failed.pop(0)
        if cut:
            raise asyncio.CancelledError("a job was cancelled, but not by its runtime")

    def lock(self) -> AbstractAsyncContextManager[None]:
        """Return a lock of asyncio."""
        return asyncio.Lock()

    def has_begun(self, key: Key) -> bool:
        """Return False, because a local chat has no earlier life."""
        return False

    def has_passed(self, key: Key) -> bool:
        """Return False, because a local chat has no earlier life."""
        return False

    async def messages(self) -> Sequence[tuple[UserMessage, When]]:
        """Return nothing, because only this process knows a local chat."""
        return ()

    def now(self) -> float:
        """Return the system time, in seconds since the epoch."""
        return time.time()

    def new_id(self) -> str:
        """Return 80 random bits in hexadecimal."""
        return os.urandom(10).hex()


def _failures(tasks: Sequence[asyncio.Future[None]]) -> list[BaseException]:
    """The exceptions of tasks that have ended; Halted comes first, since it ends the whole life."""
    failed = [exc for task in tasks if not task.cancelled() and (exc := task.exception())]
    return sorted(failed, key=lambda exc: not isinstance(exc, Halted))


def _log_failures(failed: Sequence[BaseException]) -> None:
    """Log the exceptions that are not raised, because another exception is."""
    for exc in failed:
        if not isinstance(exc, Halted):
            log_throw("another call that ran in parallel raised an exception too", exc)


async def _reap(tasks: Sequence[asyncio.Future[None]]) -> None:
    """Cancel the running tasks and wait until they end."""
    running = [task for task in tasks if not task.done()]
    for task in running:
        task.cancel()
    if running:
        await finished(asyncio.wait(running))


LOCAL: Final = LocalRuntime()
