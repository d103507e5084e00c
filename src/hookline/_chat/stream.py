"""`ChatStream`: the handle on a running chat, whose events you iterate over.

`ChatStream` is an object, not a generator. Leaving it early must end the run in the run's own task
and must never cancel unrelated code in the reader's task. The handle refers to the run, but the run
does not refer to the handle. A handle that is dropped can therefore end its run.
`PartialOutputs` reads the stream as data instead of events.
"""

from __future__ import annotations

import warnings
from asyncio import AbstractEventLoop, Event, get_running_loop
from collections.abc import AsyncIterator
from contextvars import Context, copy_context
from typing import Any, Generic, NoReturn, Self

from hookline._base.errors import (
    ChatAbortedError,
    StreamInterruptedError,
    StreamStateError,
    UsageError,
)
from hookline._base.events import ChatDone, ChatEvent, ResponseReset, StepStarted, TextDelta
from hookline._base.input import Input
from hookline._base.json import to_json_data
from hookline._base.log import log_throw
from hookline._base.returns import OutT, Response, When
from hookline._chat.channel import Channel
from hookline._chat.config import ChatInput, Config
from hookline._chat.inbox import Interrupt, SentMessage
from hookline._chat.state import new_chat
from hookline._chat.steering import send
from hookline._chat.supervisor import Supervisor
from hookline._model.output import Form
from hookline._model.partial import NOTHING


class ChatStream(Generic[OutT]):
    """The events of one chat, as they happen.

    Use it as `async with agent.chat_stream(...) as stream: async for event in stream: ...`. The
    chat starts when the stream is entered or first read. Leaving the stream early stops the chat.
    If the chat fails, the last event is ChatFailed, and then the error is raised. After
    `stream.abort()`, the last event is ChatAborted. Raises StreamStateError for a second reader, or
    in a different event loop.
    """

    __slots__ = (
        "__weakref__",
        "_channel",
        "_closed",
        "_config",
        "_context",
        "_input",
        "_reading",
        "_supervisor",
        "chat_id",
    )

    def __init__(self, config: Config, input: ChatInput) -> None:
        self.chat_id = input.chat_id
        """Known before the chat has begun."""
        self._config = config
        self._input = input
        self._context: Context | None = copy_context()
        self._supervisor: Supervisor | None = None
        self._channel = Channel()
        self._reading = False  # a reader waits, or was woken and has not taken its event yet
        self._closed = False

    # ── reading ─────────────────────────────────────────────────────────────────────────────

    def __aiter__(self) -> Self:
        if self._supervisor is not None:
            _check_loop(self._supervisor)
        return self

    async def __anext__(self) -> ChatEvent:
        channel = self._channel
        # `take` without its call. A waiting writer must be woken, and a second reader refused.
        if channel.items and not (channel.writers or self._reading):
            return channel.items.popleft()
        loop = self._may_read()
        while not channel.items:
            if channel.closed:
                self._end()
            self._reading = True
            try:
                await channel.wait(loop)
            except BaseException:
                await self._leave("cancelled")
                raise
            finally:
                self._reading = False
        return channel.take()

    def _may_read(self) -> AbstractEventLoop:
        """Begin the chat, or refuse the reader; return the running event loop."""
        if self._closed:
            raise StopAsyncIteration
        if self._reading:
            raise StreamStateError(
                "a stream has one reader, and another task is reading it; "
                "use agent.subscribe() for more readers"
            )
        if self._supervisor is None:
            return self._start().loop
        return _check_loop(self._supervisor)

    def _start(self) -> Supervisor:
        context, self._context = self._context, None
        supervisor = self._supervisor = Supervisor(
            new_chat(self._config, self._input, self._channel), self._channel
        )
        supervisor.start(context)
        return supervisor

    def _end(self) -> NoReturn:
        """All events are read: raise the chat's error, or StopAsyncIteration."""
        if self._closed:
            raise StopAsyncIteration
        supervisor = self._supervisor
        assert supervisor is not None
        self._closed = True
        error, supervisor.error = supervisor.error, None
        if error is None:
            raise StopAsyncIteration
        try:
            if isinstance(error, StopAsyncIteration):  # would look like a normal end
                raise RuntimeError(
                    "a hook or the model raised StopAsyncIteration; raise another exception instead"
                ) from error
            raise error
        finally:
            del error

    @property
    def response(self) -> Response[OutT]:
        """The response of the chat; raises StreamStateError while the chat still runs."""
        supervisor = self._supervisor
        if supervisor is None or supervisor.response is None:
            raise StreamStateError(
                "the stream has no response yet; read the stream to its end, and only then use "
                "the response"
            )
        return supervisor.response

    def partial_outputs(self) -> AsyncIterator[Any]:
        """Return an iterator over the output as JSON data, while the model writes it.

        Use this iterator instead of the events. If the model starts a new answer, the data start
        again from the beginning. The last item is the output. Raises the exceptions of the stream,
        and UsageError if the chat has no `output=`.
        """
        form = self._config.output
        if form is None:
            raise UsageError(
                f"chat {self.chat_id!r} has no output type; pass output= to chat_stream or to the "
                "agent"
            )
        return PartialOutputs(self, form)

    # ── leaving ─────────────────────────────────────────────────────────────────────────────

    def abort(self, reason: str | None = None) -> bool:
        """Abort the chat; the stream ends with ChatAborted.

        Returns False if it is too late to abort.
        """
        if self._supervisor is None:
            timely, self._closed = not self._closed, True
            return timely
        return self._supervisor.chat.abort(reason, by_reader=True)

    def send(self, message: Input | Interrupt, when: When = "next") -> SentMessage:
        """Send a message into the running chat; it never waits.

        `when="next"`: the message is added to the history before the next request to the model.
        `when="idle"`: it is added when the chat would end, and the chat goes on. The hooks at
        `preSteer` may change, hold or refuse it. `Interrupt(message)` first cancels the running
        tools that are `idempotent`; the model sees that their calls may have run. If the chat
        ends before the message is added, it is returned: `await sent.delivered()` is False, and
        the message is in no history. Raises StreamStateError before the chat has begun, and
        UsageError for an empty message.
        """
        if self._supervisor is None:
            raise StreamStateError(
                f"chat {self.chat_id!r} has not begun, so it takes no message; enter the stream or "
                "read it first"
            )
        return send(self._supervisor.chat, message, when)

    async def answers_used(self) -> None:
        """Wait until the calls that `resume_stream` has approved have begun, or the chat has ended.

        An abort before that gives the answers back: their requests wait again.
        """
        supervisor = self._supervisor
        if supervisor is None or supervisor.is_over:
            return
        progress = supervisor.chat.progress
        if supervisor.chat.input.answers is None or progress.accepted == set():
            return
        event, others = Event(), progress.waiter

        def wake() -> None:
            event.set()
            if others is not None:
                others()

        progress.waiter = wake
        await event.wait()

    async def aclose(self) -> None:
        """Stop the chat if it still runs, and wait for its end.

        You can call this method more than once.
        """
        supervisor = self._supervisor
        if supervisor is None or (self._closed and supervisor.is_over):
            self._closed = True
            return
        if get_running_loop() is not supervisor.loop:
            raise StreamStateError("a stream must be closed in the event loop that began it")
        await self._leave("consumer left")

    async def _leave(self, reason: str) -> None:
        supervisor = self._supervisor
        assert supervisor is not None
        self._closed = True
        self._channel.drop()
        if not supervisor.is_over:
            supervisor.leave(reason)
            if not supervisor.holds_caller():
                await supervisor.join()
        expected = (ChatAbortedError, StreamInterruptedError)
        if supervisor.error is not None and not isinstance(supervisor.error, expected):
            log_throw("the chat failed after its stream was closed", supervisor.error)
        supervisor.error = None

    async def __aenter__(self) -> Self:
        if self._supervisor is None and not self._closed:
            self._start()
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self.aclose()

    def __del__(self, _warn: Any = warnings.warn) -> None:
        supervisor = getattr(self, "_supervisor", None)
        if supervisor is None or supervisor.is_over or supervisor.loop.is_closed():
            return
        channel, chat = self._channel, supervisor.chat  # the closure must not refer to the handle

        def on_collect() -> None:
            channel.drop()
            chat.abort("collected")

        try:
            supervisor.loop.call_soon_threadsafe(on_collect)
        except RuntimeError:
            return  # the loop was closed meanwhile
        _warn(
            f"{self!r} was dropped before it ended and its chat was stopped; "
            "use `async with agent.chat_stream(...) as stream`",
            ResourceWarning,
            source=self,
            stacklevel=2,
        )

    def __repr__(self) -> str:
        supervisor = self._supervisor
        state = "not begun" if supervisor is None else "ended" if supervisor.is_over else "running"
        return f"<ChatStream of chat {self.chat_id!r}, {state}>"


def _check_loop(supervisor: Supervisor) -> AbstractEventLoop:
    """Refuse an event loop that is not the chat's. It makes a system call, so once a wait."""
    try:
        loop = get_running_loop()
    except RuntimeError:  # outside of any
        loop = None
    if loop is None or loop is not supervisor.loop:
        raise StreamStateError("a stream must be read in the event loop that began it")
    return loop


class PartialOutputs:
    """The answer so far as JSON data, after each change; the last item is the output.

    The data start over with each new answer: at another step, and after ResponseReset. Raises the
    exceptions of the stream.
    """

    __slots__ = ("_events", "_form", "_last", "_text")

    def __init__(self, events: AsyncIterator[ChatEvent], form: Form) -> None:
        self._events = events
        self._form = form
        self._text = ""
        self._last: Any = NOTHING

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Any:
        while True:
            event = await anext(self._events)
            if event.path:
                continue  # a sub-agent's
            value: Any = NOTHING
            if isinstance(event, (StepStarted, ResponseReset)):
                self._text = ""
                self._last = NOTHING
            elif isinstance(event, TextDelta):
                self._text += event.text
                value = self._form.partial(self._text)
            elif isinstance(event, ChatDone) and event.response.stop_reason is None:
                value = to_json_data(event.response.output)
            if value is not NOTHING and (self._last is NOTHING or value != self._last):
                self._last = value
                return value
