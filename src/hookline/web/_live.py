"""One run behind a web answer: a task that reads the chat's events, and what its readers have left.

The run has a task of its own, so that it ends well whatever becomes of the connection. What was
read is kept until its one reader has it (then a slow reader slows the model down), or, for a run
that outlives its connection, in a bounded buffer from which any number of readers read at their
own pace.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from secrets import token_hex
from typing import Final, TypeAlias

import msgspec

from hookline import ChatStream, Message
from hookline.errors import StreamInterruptedError
from hookline.events import (
    ChatAborted,
    ChatDone,
    ChatEvent,
    ChatFailed,
    MessageAdded,
    ReasoningDelta,
    TextDelta,
    ToolCallDelta,
    ToolCallFinished,
)
from hookline.web._incoming import Incoming
from hookline.web._native import HookFired

logger = logging.getLogger("hookline.web")

BACKLOG: Final = 16  # entries that wait for the one reader of a run that is not kept
LAST: Final = (ChatDone, ChatAborted, ChatFailed)
BATCH: Final = 256  # entries that a reader takes at a time

Item: TypeAlias = ChatEvent | HookFired
Entry: TypeAlias = tuple[int, float, Item]  # its number, when it came, what it is


class Caps(msgspec.Struct, frozen=True, kw_only=True):
    """Bounds with finite defaults: streams, bytes, and times in seconds.

    `idle`: how long a run may give no event. `total`: how long it may take. `send`: how long a
    client may take nothing, or need for its request. `replay_bytes`, `replay_ttl`: what is kept of
    a detached run, and for how long after its end. `drain`: how long a shutdown waits before it
    aborts.
    """

    streams: int = 1000
    """Answers at a time; a further one is 429."""
    streams_per_principal: int = 20
    """Answers at a time of one caller."""
    body_bytes: int = 4 * 1024 * 1024
    """A larger request is 413."""
    idle: float = 300.0
    total: float = 1800.0
    send: float = 60.0
    keep_alive: float = 15.0
    """Seconds of silence before a comment is sent."""
    replay_bytes: int = 8 * 1024 * 1024
    replay_ttl: float = 60.0
    drain: float = 10.0


DEFAULT_CAPS = Caps()


class Lagged(Exception):
    """What the reader would have read next is not kept any more."""


class Reader:
    """One reader's place in a run."""

    __slots__ = ("_live", "_waiter", "gone", "next")

    def __init__(self, live: Live, start: int) -> None:
        self.next = start
        self.gone = False  # the client has left
        self._live = live
        self._waiter: asyncio.Future[None] | None = None

    def take(self) -> list[Entry]:
        """What has come since; raises Lagged when it was dropped before it was read."""
        entries = self._live.entries(self.next)
        if entries:
            self.next = entries[-1][0] + 1
            self._live.taken(self.next)
        return entries

    async def wait(self, seconds: float) -> bool:
        """Wait for more, the end, or the client's leaving; False when the time is over."""
        loop = asyncio.get_running_loop()
        waiter = self._waiter = loop.create_future()
        timer = loop.call_later(seconds, self.wake)
        try:
            await waiter
        finally:
            self._waiter = None
            timer.cancel()
        return self.gone or self._live.ended or self._live.number > self.next

    def wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    def leave(self) -> None:
        """The client has left."""
        self.gone = True
        self.wake()

    def close(self) -> None:
        """No more reading; the last reader of a run that is not kept takes the run along."""
        self._live.readers.discard(self)
        if not self._live.kept and not self._live.readers:
            self._live.abort("client left")


class Live:
    """A run. `before`: the conversation's messages when it began; `incoming`: what asked for it."""

    def __init__(
        self,
        stream: ChatStream,
        *,
        caps: Caps = DEFAULT_CAPS,
        kept: bool = False,
        before: tuple[Message, ...] = (),
        incoming: Incoming | None = None,
    ) -> None:
        self.id = token_hex(6)
        self.chat_id = stream.chat_id
        self.kept = kept
        self.before = before
        self.incoming = incoming
        self.ended = False
        self.over = False  # the last event has come
        self.error: BaseException | None = None
        self.readers: set[Reader] = set()
        self._stream = stream
        self._caps = caps
        self._entries: list[Entry] = []
        self._frames: dict[tuple[int, object], bytes] = {}
        self._first = 0  # the number of the first entry that is kept
        self._bytes = 0
        self._room: asyncio.Future[None] | None = None
        self._left = False  # nobody reads any more: what comes is dropped
        self._task: asyncio.Task[None] | None = None
        self._timers: list[asyncio.TimerHandle] = []
        self._start = self._last = 0.0

    # ── the run ─────────────────────────────────────────────────────────────────────────────

    def start(self, ended: Callable[[Live], None]) -> None:
        """Begin the run; `ended` is called when it is over."""
        loop = asyncio.get_running_loop()
        self._start = self._last = loop.time()
        self._task = loop.create_task(self._run(), name=f"hookline.web run {self.id}")
        self._task.add_done_callback(lambda _: ended(self))
        self._timers = [
            loop.call_later(self._caps.total, self.abort, "the answer took too long"),
            loop.call_later(self._caps.idle, self._look),
        ]

    async def _run(self) -> None:
        try:
            async with self._stream as stream:
                async for event in stream:
                    self.put(event)
                    if isinstance(event, LAST) and event.chat_id == self.chat_id:
                        self.over = True
                    if not self.kept and len(self._entries) >= BACKLOG:
                        await self._wait_for_room()
        except asyncio.CancelledError:
            self.error = StreamInterruptedError()
            raise
        except Exception as exc:
            self.error = exc
            logger.debug("chat %s failed", self.chat_id, exc_info=exc)
        finally:
            self.ended = self.over = True
            for timer in self._timers:
                timer.cancel()
            self._wake()

    async def _wait_for_room(self) -> None:
        while len(self._entries) >= BACKLOG and not self._left:
            self._room = asyncio.get_running_loop().create_future()
            await self._room
        self._last = asyncio.get_running_loop().time()  # waiting for a reader is not idling

    def _look(self) -> None:
        """Abort a run that gives nothing, though there is room for it."""
        loop = asyncio.get_running_loop()
        waits = self._room is not None and not self._room.done()
        left = self._caps.idle if waits else self._last + self._caps.idle - loop.time()
        if left <= 0:
            self.abort("nothing has happened for too long")
        else:
            self._timers[1] = loop.call_later(left, self._look)

    def abort(self, reason: str) -> bool:
        """Abort the run, which then ends within the agent's grace period."""
        timely = not self.ended and self._stream.abort(reason)
        if not self.readers:
            self._left = True
        self._free()
        return timely

    async def join(self) -> None:
        """Wait until the run is over."""
        if self._task is not None:
            await asyncio.wait([self._task])

    @property
    def resumed(self) -> bool:
        """Whether it goes on with an answer that waited."""
        return self.incoming is not None and bool(self.incoming.answers)

    # ── what came, and who reads it ─────────────────────────────────────────────────────────

    @property
    def number(self) -> int:
        """The number of the entry that comes next."""
        return self._first + len(self._entries)

    @property
    def first(self) -> int:
        """The number of the first entry that is still there."""
        return self._first

    def put(self, item: Item) -> None:
        """Keep what came for its readers."""
        if self._left:
            return
        now = self._last = asyncio.get_running_loop().time()
        self._entries.append((self.number, now - self._start, item))
        if self.kept:
            self._bytes += _cost(item)
            if self._bytes > self._caps.replay_bytes:
                self._drop()
        self._wake()

    def _drop(self) -> None:
        """Too much: forget the older half; who has not read it can read no further."""
        half = max(1, len(self._entries) // 2)
        self._bytes -= sum(_cost(item) for _, _, item in self._entries[:half])
        del self._entries[:half]
        self._first += half

    def entries(self, start: int) -> list[Entry]:
        """What stands from this number on, a batch at a time."""
        if start < self._first:
            raise Lagged
        at = start - self._first
        return self._entries[at : at + BATCH]

    def taken(self, upto: int) -> None:
        """The one reader has it: a run that is not kept forgets it."""
        if not self.kept:
            del self._entries[: upto - self._first]
            self._first = upto
            self._free()

    def shared(self, number: int, shown_as: object) -> bytes | None:
        """What another reader was sent of this entry, where several read."""
        if len(self.readers) < 2:
            self._frames.clear()
            return None
        return self._frames.get((number, shown_as))

    def share(self, number: int, shown_as: object, data: bytes) -> None:
        """This is what a reader is sent: the others that are about as far get the same."""
        if len(self.readers) > 1:
            if len(self._frames) >= 2 * BATCH:
                for key in list(self._frames)[:BATCH]:
                    del self._frames[key]
            self._frames[number, shown_as] = data

    def read(self, start: int = 0) -> Reader:
        """A new reader."""
        reader = Reader(self, start)
        self.readers.add(reader)
        return reader

    def _free(self) -> None:
        if self._room is not None and not self._room.done():
            self._room.set_result(None)

    def _wake(self) -> None:
        for reader in self.readers:
            reader.wake()


def _cost(item: Item) -> int:
    """About how many bytes an entry takes."""
    match item:
        case TextDelta() | ReasoningDelta():
            return 400 + len(item.text)
        case ToolCallDelta():
            return 500 + len(item.arguments)
        case MessageAdded() | ToolCallFinished():
            return 800 + len(item.to_json())
        case _:
            return 500
