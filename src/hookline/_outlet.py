"""The way of a chat's events out: a bounded buffer to its stream, and the agent's subscribers.

An event is numbered when it is put, and room is waited for before it is put, so that numbers are
in order and a slow consumer slows the model down. A sub-agent's events go the way of its parent,
under the parent's numbers.
"""

from __future__ import annotations

import asyncio
from collections import deque
from typing import Any

from hookline._bus import HookBus
from hookline._deadline import Deadlines
from hookline._errors import StreamStateError
from hookline._events import ChatEvent

SIZE = 16


class Buffer:
    """Between one writer side and one reader: at most `SIZE` events."""

    __slots__ = ("_items", "_reader", "_writers", "ended", "full", "left")

    def __init__(self) -> None:
        self._items: deque[ChatEvent] = deque()
        self._reader: asyncio.Future[None] | None = None
        self._writers: deque[asyncio.Future[None]] = deque()
        self.full = False
        self.left = False  # the consumer is gone: what is put is dropped
        self.ended = False  # nothing more will be put

    def put(self, event: ChatEvent) -> None:
        """Add an event; the writer has made sure of room."""
        if self.left:
            return
        items = self._items
        items.append(event)
        self.full = len(items) >= SIZE
        reader = self._reader
        if reader is not None:
            self._reader = None
            if not reader.done():
                reader.set_result(None)

    async def room(self) -> None:
        """Wait until there is room. Several writers may wait; they are served in order."""
        while self.full:
            writer = asyncio.get_running_loop().create_future()
            self._writers.append(writer)
            try:
                await writer
            except BaseException:
                if writer.done() and not writer.cancelled():
                    self._admit()  # our turn goes to the next
                raise

    def _admit(self) -> None:
        while self._writers:
            writer = self._writers.popleft()
            if not writer.done():
                writer.set_result(None)
                return

    def take(self) -> ChatEvent | None:
        """The next event, or None when there is none at the moment."""
        items = self._items
        if not items:
            return None
        event = items.popleft()
        if self.full:
            self.full = False
        if self._writers:
            self._admit()
        return event

    async def wait(self) -> None:
        """Wait until there may be an event, or the end."""
        if self._reader is not None:
            raise StreamStateError(
                "a stream has one reader, and another task is reading it; "
                "use agent.subscribe() for further ones"
            )
        reader = self._reader = asyncio.get_running_loop().create_future()
        try:
            await reader
        finally:
            self._reader = None

    def end(self) -> None:
        """Nothing more comes."""
        self.ended = True
        reader = self._reader
        if reader is not None and not reader.done():
            reader.set_result(None)

    def leave(self) -> None:
        """The consumer is gone: free the writers, keep nothing."""
        self.left = True
        self.full = False
        self._items.clear()
        for writer in self._writers:
            if not writer.done():
                writer.set_result(None)
        self._writers.clear()

    def __len__(self) -> int:
        return len(self._items)


class Outlet:
    """Where one chat puts its events."""

    __slots__ = ("_root", "buffer", "buses", "deadlines", "path", "seq")

    def __init__(
        self,
        bus: HookBus[Any],
        deadlines: Deadlines,
        buffer: Buffer | None = None,
        parent: Outlet | None = None,
        path: tuple[str, ...] = (),
    ) -> None:
        self.deadlines = deadlines
        self.path = path
        self.seq = 0
        if parent is None:
            self._root: Outlet = self
            self.buffer = buffer
            self.buses: tuple[HookBus[Any], ...] = (bus,)
        else:
            self._root = parent._root
            self.buffer = parent.buffer
            known = parent.buses
            self.buses = known if any(each is bus for each in known) else (*known, bus)

    @property
    def heard(self) -> bool:
        """Whether anybody would get an event."""
        if self.buffer is not None:
            return True
        return any(bus.subscribers for bus in self.buses)

    @property
    def count(self) -> int:
        """How many numbers have been given."""
        return self._root.seq

    def skip(self, events: int) -> None:
        """Give away numbers of events that were published in an earlier life of this chat."""
        self._root.seq += events

    def number(self) -> int:
        """The number of the event that is put next."""
        root = self._root
        root.seq += 1
        return root.seq

    async def room(self) -> None:
        """Wait for room in the buffer; no time limit of the chat runs meanwhile."""
        buffer = self.buffer
        if buffer is not None and buffer.full:
            self.deadlines.pause()
            try:
                await buffer.room()
            finally:
                self.deadlines.resume()

    def put(self, event: ChatEvent) -> None:
        """Hand the event on. Room was waited for, and nothing awaited since."""
        if self.buffer is not None:
            self.buffer.put(event)
        for bus in self.buses:
            if bus.subscribers:
                bus.publish(event)

    def end(self) -> None:
        """The root chat is over."""
        if self.buffer is not None and self._root is self:
            self.buffer.end()
