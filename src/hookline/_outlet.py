"""The way of a chat's events out: a bounded buffer to its stream, and the agent's subscribers.

An event is numbered when it is put, and room is waited for before it is put, so that numbers are
in order and a slow consumer slows the model down. A sub-agent's events go the way of its parent,
under the parent's numbers. Writing an event is three steps, with nothing awaited between the last
two: `if len(outlet.items) >= SIZE: await outlet.room()`, then `outlet.put(event)`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from typing import Any, Final

from msgspec.structs import force_setattr

from hookline._bus import HookBus
from hookline._deadline import Deadlines
from hookline._events import ChatEvent

SIZE: Final = 16


class Buffer:
    """Between the writers of a run and its one reader: at most `SIZE` events."""

    __slots__ = ("_queue", "ended", "items", "left", "open", "reader", "reading", "soon", "writer")

    def __init__(self) -> None:
        self.items: list[ChatEvent] = []  # so short that taking the first costs nothing
        self.reader: asyncio.Future[None] | None = None  # waits for an event
        self.reading = False  # the one reader waits, or was woken and has not read yet
        self.writer: asyncio.Future[None] | None = None  # waits for room
        self.soon = False  # a writer has only given way: there is more in this turn of the loop
        self._queue: list[asyncio.Future[None]] | None = None  # wait behind it
        self.left = False  # the consumer is gone: what is put is dropped
        self.ended = False  # nothing more will be put
        self.open = True  # neither of them

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
            await asyncio.sleep(0)
        finally:
            self.soon = False
        while len(self.items) >= SIZE and not self.left:
            writer = asyncio.get_running_loop().create_future()
            if self.writer is None:
                self.writer = writer
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
            if writer is None:
                return
            if not writer.done():
                writer.set_result(None)
                return

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
        while self.writer is not None:
            self.admit()
        self.wake()


NOBODY: Final = Buffer()  # of chats that are not streamed: it takes nothing
NOBODY.open = False


class Numbers:
    """The number of the last event of a root chat and all its sub-agents."""

    __slots__ = ("seq",)

    def __init__(self) -> None:
        self.seq = 0


class Outlet:
    """Where one chat puts its events."""

    __slots__ = ("buffer", "bus", "buses", "deadlines", "items", "nested", "path", "root")

    def __init__(
        self,
        bus: HookBus[Any],
        deadlines: Deadlines,
        buffer: Buffer,
        parent: Outlet | None = None,
        path: tuple[str, ...] = (),
    ) -> None:
        self.deadlines = deadlines
        self.path = path
        self.bus = bus
        self.buses: tuple[HookBus[Any], ...] = (bus,)
        self.root = Numbers()
        self.buffer = buffer
        if parent is not None:
            self.root = parent.root
            known = parent.buses
            self.buses = known if any(each is bus for each in known) else (*known, bus)
            self.bus = self.buses[0]
        self.nested = len(self.buses) > 1
        self.items = buffer.items

    @property
    def heard(self) -> bool:
        """Whether anybody would get an event."""
        return self.buffer.open or any(bus.subscribers for bus in self.buses)

    @property
    def count(self) -> int:
        """How many numbers have been given."""
        return self.root.seq

    def skip(self, seq: int) -> None:
        """Give away the numbers of events that were published in an earlier life of this chat."""
        self.root.seq = max(self.root.seq, seq)

    def number(self, event: ChatEvent) -> None:
        """Give the event its number."""
        root = self.root
        seq = root.seq = root.seq + 1
        force_setattr(event, "seq", seq)

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
        """Number the event and hand it on."""
        root = self.root
        seq = root.seq = root.seq + 1
        force_setattr(event, "seq", seq)  # frozen it is for everybody else
        buffer = self.buffer
        if buffer.open:
            buffer.items.append(event)
            if buffer.reader is not None:
                buffer.wake()
        if self.bus.subscribers or self.nested:
            self.publish(event)

    def publish(self, event: ChatEvent) -> None:
        """Hand an event to the subscribers of the agents that this chat runs under."""
        for bus in self.buses:
            if bus.subscribers:
                bus.publish(event)
