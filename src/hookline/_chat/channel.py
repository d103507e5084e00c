"""The way of a chat's events out: a bounded buffer to its stream, and the agent's subscribers.

An event is numbered when it is put, and room is waited for before it is put, so that numbers are
in order and a slow consumer slows the model down. A sub-agent's events go the way of its parent,
under the parent's numbers. Writing an event is three steps, with nothing awaited between the last
three: `if len(outlet.items) >= SIZE: await outlet.room()`, then a number for the event,
`seq = buffer.seq = buffer.seq + 1`, then `outlet.put(event)`.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Generator
from types import coroutine
from typing import Final, cast

from msgspec.structs import force_setattr

from hookline._base.cancel import Deadlines
from hookline._base.events import ChatEvent
from hookline._hooks.bus import View

SIZE: Final = 16
NOTHING: Final[list[ChatEvent]] = []
_TAKES_NOTHING: Final = cast("list[ChatEvent]", deque[ChatEvent](maxlen=0))


@coroutine
def give_way() -> Generator[None, None, None]:
    """Let the others of this event loop have their turn: `asyncio.sleep(0)` in one step less."""
    yield


class Buffer:
    """Between the writers of a run and its one reader: at most `SIZE` events.

    A chat that nobody reads has one too, which takes nothing: it holds the number of the last
    event of a root chat and all its sub-agents.
    """

    __slots__ = (
        "_queue",
        "ended",
        "items",
        "left",
        "open",
        "reader",
        "reading",
        "ready",
        "seq",
        "soon",
        "writer",
    )

    def __init__(self, *, read: bool = True) -> None:
        # So short that taking the first costs nothing.
        self.items: list[ChatEvent] = [] if read else _TAKES_NOTHING
        self.ready = self.items  # the same, or nothing while somebody waits: for it, or for room
        self.seq = 0
        self.reader: asyncio.Future[None] | None = None  # waits for an event
        self.reading = False  # the one reader waits, or was woken and has not read yet
        self.writer: asyncio.Future[None] | None = None  # waits for room
        self.soon = False  # a writer has only given way: there is more in this turn of the loop
        self._queue: list[asyncio.Future[None]] | None = None  # wait behind it
        self.left = False  # the consumer is gone: what is put is dropped
        self.ended = False  # nothing more will be put
        self.open = read  # there is a reader, and neither of them

    def wake(self) -> None:
        """There is something for the reader to see."""
        reader, self.reader = self.reader, None
        if reader is not None and not reader.done():
            reader.set_result(None)

    async def room(self) -> None:
        """Wait until there is room. Several writers may wait; they are served in order.

        A reader that reads is woken already and has its turn before ours: to give way once is
        enough, and costs half of what a future does.
        """
        self.soon = True
        try:
            await give_way()
        finally:
            self.soon = False
        while len(self.items) >= SIZE:
            writer = asyncio.get_running_loop().create_future()
            if self.writer is None:
                self.writer = writer
                self.ready = NOTHING
            else:
                self._queue = [*(self._queue or ()), writer]
            try:
                await writer
            except BaseException:
                if writer.done() and not writer.cancelled():
                    self.admit()  # our turn goes to the next
                raise

    def admit(self) -> None:
        """The reader has taken an event: the next writer may go on."""
        while True:
            writer, self.writer = self.writer, None
            if self._queue:
                self.writer, *self._queue = self._queue
            self.release()
            if writer is None:
                return
            if not writer.done():
                writer.set_result(None)
                return

    def release(self) -> None:
        """Let events be taken at once again, if nobody waits any more."""
        if self.writer is None and not self.reading:
            self.ready = self.items

    def end(self) -> None:
        """Nothing more comes."""
        self.ended = True
        self.open = False
        self.wake()

    def leave(self) -> None:
        """The consumer is gone: free the writers, keep nothing."""
        self.left = True
        self.open = False
        self.items.clear()
        self.items = self.ready = _TAKES_NOTHING
        while self.writer is not None:
            self.admit()
        self.wake()


class Outlet:
    """Where one chat puts its events."""

    __slots__ = ("buffer", "deadlines", "items", "path", "view")

    def __init__(
        self, view: View, deadlines: Deadlines, buffer: Buffer, path: tuple[str, ...] = ()
    ) -> None:
        self.view = view  # knows the subscribers: the agent's, global ones, those of parents
        self.deadlines = deadlines
        self.path = path
        self.buffer = buffer
        self.items = buffer.items

    def mute(self) -> None:
        """Let nothing out any more; what was put stays."""
        self.buffer = Buffer(read=False)
        self.items = self.buffer.items
        self.view = View()

    @property
    def heard(self) -> bool:
        """Whether anybody would get an event."""
        return self.buffer.open or bool(self.view.subscribed)

    @property
    def count(self) -> int:
        """How many numbers have been given."""
        return self.buffer.seq

    def skip(self, seq: int) -> None:
        """Give away the numbers of events that were published in an earlier life of this chat."""
        self.buffer.seq = max(self.buffer.seq, seq)

    def number(self, event: ChatEvent) -> None:
        """Give the event its number."""
        buffer = self.buffer
        seq = buffer.seq = buffer.seq + 1
        force_setattr(event, "seq", seq)  # frozen it is for everybody else

    def room(self) -> Awaitable[None]:
        """Wait for room in the buffer; no time limit of the chat runs meanwhile."""
        return self._pause() if self.deadlines.running else self.buffer.room()

    async def _pause(self) -> None:
        self.deadlines.pause()
        try:
            await self.buffer.room()
        finally:
            self.deadlines.resume()

    def put(self, event: ChatEvent) -> None:
        """Hand an event on that has its number."""
        buffer = self.buffer
        buffer.items.append(event)
        if buffer.reader is not None:
            buffer.wake()
        if self.view.subscribed:
            self.view.publish(event)
