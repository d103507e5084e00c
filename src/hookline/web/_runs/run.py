"""One run of a chat: a task that reads the chat's events into a backlog.

The run has a task of its own, so it ends cleanly even if the connection breaks. A run that is not
kept waits for its only reader (a slow reader slows the model down), and ends when the reader
leaves. A run that outlives its connection waits for no reader.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from pathlib import Path
from traceback import extract_tb
from typing import Final, Literal, Protocol, TypeAlias

import msgspec

from hookline import ChatStream, Message, UserMessage
from hookline.errors import ModelError, StreamInterruptedError, StreamStateError
from hookline.events import ChatAborted, ChatDone, ChatEvent, ChatFailed, Interrupt, strict
from hookline.runtimes import find_sent
from hookline.web._runs.backlog import Backlog, Item, RunView
from hookline.web._runs.run_header import Header, id_of_chat

logger = logging.getLogger("hookline.web")

BACKLOG: Final = 16  # most entries that wait for the only reader of a run that is not kept
BY_HOOK: Final = "raised by hook "
LAST: Final = (ChatDone, ChatAborted, ChatFailed)
FRAMES: Final = 4  # frames of a traceback in one line of the log
CODE: Final = 100  # characters of a word that a service chose
When: TypeAlias = Literal["next", "idle", "interrupt"]
"""When a message that was sent into a run is added to the history; "interrupt" is an Interrupt."""


class Caps(msgspec.Struct, frozen=True, kw_only=True):
    """Limits of an application; all of them are finite by default. Times are in seconds.

    `idle`: how long a run may go without an event. `total`: how long a run may take. `send`: how
    long a client may take to send its request, or to accept data. `replay_bytes`: how much of a
    detached run is kept. `replay_ttl`: how long a detached run is kept after its end. `drain`: how
    long a shutdown waits before it aborts the remaining runs.
    """

    streams: int = 1000
    """Maximum number of concurrent answers; a further request gets status 429."""
    streams_per_principal: int = 20
    """Maximum number of concurrent answers of one principal."""
    conversations_per_principal: int = 10_000
    """Maximum number of stored conversations of one principal, copies included; a request for one
    more gets status 429."""
    body_bytes: int = 4 * 1024 * 1024
    """Maximum size of a request body in bytes; a larger request gets status 413."""
    idle: float = 300.0
    total: float = 1800.0
    send: float = 60.0
    keep_alive: float = 15.0
    """The number of seconds without data before a comment is sent."""
    replay_bytes: int = 8 * 1024 * 1024
    replay_ttl: float = 60.0
    replay_bytes_per_principal: int = 16 * 1024 * 1024
    """Maximum number of bytes kept for one principal; the oldest ended runs are dropped first."""
    replay_bytes_total: int = 256 * 1024 * 1024
    """Maximum number of bytes to keep for all runs of the process."""
    drain: float = 10.0
    queue: int = 8
    """With `on_busy="queue"`: maximum number of messages that wait in one conversation."""


DEFAULT_CAPS = Caps()


class Receipt(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The reply to a message that was sent into a run."""

    id: str
    """The id that the message has in the stream and in the history."""
    refused: str | None = None
    """Why the message was not queued, and will not be delivered; None if it was queued."""


class Sink(Protocol):
    """A further receiver of a run's events, such as the relay to other processes."""

    def put(self, number: int, at: float, item: Item) -> None:
        """Receive an item."""
        ...

    def end(self, error: BaseException | None) -> None:
        """Receive the end of the run."""
        ...


class Remote(Sink, Protocol):
    """The receiver that shows a run to other processes."""

    async def until_free(self) -> None:
        """Wait until another process may begin the conversation's next run."""
        ...


def origin_of(exc: BaseException) -> str:
    """Describe where an exception comes from: a service's answer, and lines of code. No values."""
    origin: list[str] = []
    if isinstance(exc, ModelError):
        for name in ("provider", "status", "code", "request_id"):
            value = getattr(exc, name)
            if value is not None:
                origin.append(f"{name}={strict(str(value))[:CODE]}")
    frames = [
        f"{Path(frame.filename).name}:{frame.lineno} in {frame.name}"
        for frame in extract_tb(exc.__traceback__)[-FRAMES:]
    ]
    return "; ".join([*origin, "raised at " + " < ".join(reversed(frames))])


class Live(RunView):
    """A run of this process."""

    def __init__(
        self,
        stream: ChatStream,
        header: Header,
        *,
        caps: Caps = DEFAULT_CAPS,
        detached: bool = False,
        before: tuple[Message, ...] = (),
        scope_of: Callable[[str], str | None] | None = None,
        grew: Callable[[int], None] = lambda more: None,
    ) -> None:
        super().__init__(header, before, scope_of)
        self.log = Backlog(
            detached=detached,
            limit=caps.replay_bytes,
            request=header.size,
            on_unread=self._nobody_reads,
            grew=grew,
        )
        self.over = False  # the last event has arrived
        self.sink: Remote | None = None
        self.recorder: Callable[[Live], Sink] | None = None
        """Begins the record of the run for the page's timeline, once the chat has begun."""
        self.record: Sink | None = None
        self._stream = stream
        self._caps = caps
        self._unread = False  # there is no reader any more: further events are dropped
        self._retired = False  # the run can no longer be found
        self._task: asyncio.Task[None] | None = None
        self._timers: list[asyncio.TimerHandle] = []
        self._loop = asyncio.get_running_loop()
        # None once the chat has begun; the exception if it could not begin.
        self._beginning: asyncio.Future[BaseException | None] = self._loop.create_future()
        self._start = self._last = 0.0

    def start(self, on_end: Callable[[Live], None]) -> None:
        """Start the run; `on_end` is called when the run is over."""
        loop = self._loop
        self._start = self._last = loop.time()
        self._task = loop.create_task(self._run(), name=f"hookline.web run {self.header.run}")
        self._task.add_done_callback(lambda _: on_end(self))
        self._timers = [
            loop.call_later(self._caps.total, self.abort, "the answer took too long"),
            loop.call_later(self._caps.idle, self._look),
        ]

    async def _run(self) -> None:
        error: BaseException | None = None
        log = self.log
        try:
            async with self._stream as stream:
                async for event in stream:
                    self._take(event)
                    if not log.detached and len(log) >= BACKLOG and not self._unread:
                        await log.room(BACKLOG)
                        self._last = self._loop.time()  # waiting for the reader is not idling
        except asyncio.CancelledError:
            error = StreamInterruptedError()
            raise
        except Exception as exc:
            error = exc
            self._log_failure(exc)
        finally:
            await self._end(error)

    def _log_failure(self, exc: Exception) -> None:
        chat_id = self.header.chat_id
        for note in getattr(exc, "__notes__", ()):
            if note.startswith(BY_HOOK):  # a hook and a point, no text of the chat
                logger.error("error %s: %s", id_of_chat(chat_id), note)
        if self._beginning.done():  # else the request is refused, and the error is logged there
            origin = origin_of(exc)
            logger.error("error %s: %s", id_of_chat(chat_id), origin)
        logger.debug("chat %s failed", chat_id, exc_info=exc)

    async def _end(self, error: BaseException | None) -> None:
        self.over = True
        for timer in self._timers:
            timer.cancel()
        try:
            for sink in (self.sink, self.record):
                if sink is not None:
                    sink.end(error)
            # A client may send its next message to any process once its response has ended.
            if self.sink is not None:
                await self.sink.until_free()
        finally:
            self.log.end(error)
            if not self._beginning.done():
                self._beginning.set_result(error)

    def _take(self, event: ChatEvent) -> None:
        """Add an event of the chat; the first event shows that the chat has begun."""
        if not self._beginning.done():
            self._beginning.set_result(None)
            if self.recorder is not None:
                self.record = self.recorder(self)
        self.put(event)
        if isinstance(event, LAST) and event.chat_id == self.header.chat_id:
            self.over = True

    async def until_begun(self, max_wait: float | None = None) -> None:
        """Wait until the chat has begun, or for `max_wait` seconds; raises what prevents the chat.

        If the wait is cancelled, the run has lost its reader.
        """
        try:
            await asyncio.wait([self._beginning], timeout=max_wait)
        except asyncio.CancelledError:
            self.log.unread()
            raise
        error = self._beginning.result() if self._beginning.done() else None
        if error is not None:
            raise error

    def put(self, item: Item) -> None:
        """Add an item to the backlog and its receivers."""
        now = self._last = self._loop.time()
        at = now - self._start
        if self.record is not None:
            self.record.put(self.log.number, at, item)
        if self._unread:
            return
        if self.sink is not None:
            self.sink.put(self.log.number, at, item)
        self.log.put(item, at)

    def _look(self) -> None:
        """Abort a run that produces no events, although the backlog has room."""
        loop = self._loop
        waits = self.log.waits
        remaining = self._caps.idle if waits else self._last + self._caps.idle - loop.time()
        if remaining <= 0:
            self.abort("the answer was idle for too long")
        else:
            self._timers[1] = loop.call_later(remaining, self._look)

    def abort(self, reason: str) -> bool:
        """Abort the run; it then ends within the agent's grace period."""
        timely = not self.log.complete and self._stream.abort(reason)
        if not self.log.detached and not self.log.readers:
            self._unread = True
            self.log.forget()
        return timely

    def send(self, message: UserMessage, when: When = "next") -> Receipt | None:
        """Send a message into the running chat; None if the chat has not begun.

        The message is queued once, even if the client sends it again under the same id.
        """
        earlier = find_sent(self.before, message.id)
        if earlier is not None:  # delivered by an earlier answer
            return Receipt(id=earlier)
        try:
            if when == "interrupt":
                sent = self._stream.send(Interrupt(message))
            else:
                sent = self._stream.send(message, when)
        except StreamStateError:
            return None
        refused = sent.reason if sent.status == "returned" else None
        return Receipt(id=sent.message.id, refused=refused)

    async def answers_used(self) -> None:
        """Wait until the calls that the run's approvals let run have begun."""
        await self._stream.answers_used()

    def _nobody_reads(self) -> None:
        """Abort a run that is not kept after its reader has left."""
        if not self.log.detached:
            self.abort("client left")
        elif self._retired:
            self.log.forget()

    def retire(self) -> None:
        """Remove the run, and drop its backlog once it has no readers."""
        self._retired = True
        if self.log.detached and not self.log.readers:
            self.log.forget()

    async def join(self) -> None:
        """Wait until the run is over."""
        if self._task is not None:
            await asyncio.wait([self._task])
