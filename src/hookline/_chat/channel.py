"""How a chat's events get out: a bounded channel to its one reader, and the subscribers.

Theory of operation. A root chat and its sub-agents share one channel; each has an outlet into it,
which knows its path and its subscribers. A writer waits for room. Then the event gets its number
and is put, with nothing awaited in between. So numbers are in order, no event is dropped, and a
slow reader slows the model down. While a writer waits, no time limit of its chat runs. Only the
last event of a root chat does not wait.

Readers and writers wait in a queue of futures each. Putting an event wakes the first reader in its
queue; taking an event wakes the first writer. Waking a task does not run it: a writer goes on until
the channel is full, and the reader until it is empty. So they change places about once in `SIZE`
events. A woken task checks again. A task that is woken and cancelled at once wakes the next task.

A closed channel numbers events and keeps none of them; subscribers still get them. The channel of a
chat without a reader is closed from the start. Other channels are closed when the chat ends or the
reader leaves, so that no writer waits for a reader that is gone.
"""

from __future__ import annotations

from asyncio import AbstractEventLoop, Future, get_running_loop
from collections import deque
from typing import Final

from msgspec.structs import force_setattr

from hookline._base.cancel import Deadlines, give_way
from hookline._base.events import ChatEvent
from hookline._hooks.bus import View

SIZE: Final = 64
"""How many events may wait for their reader."""


class Channel:
    """At most `SIZE` events and the last, between the writers of a run and its reader."""

    __slots__ = ("closed", "items", "readers", "seq", "writers")

    def __init__(self, *, closed: bool = False) -> None:
        self.items: deque[ChatEvent] = deque()
        self.seq = 0
        """The number of the last event of the root chat and all its sub-agents."""
        self.readers: list[Future[None]] = []
        self.writers: list[Future[None]] = []
        self.closed = closed
        """Further events are numbered and dropped."""

    async def room(self) -> None:
        """Wait until there is room."""
        while len(self.items) >= SIZE and not self.closed:
            await _turn(self.writers, get_running_loop())

    async def get(self, loop: AbstractEventLoop) -> ChatEvent | None:
        """Take the next event, waiting for it in this event loop; None after the last."""
        while not self.items:
            if self.closed:
                return None
            await _turn(self.readers, loop)
        event = self.items.popleft()
        if self.writers:
            _wake(self.writers)
        return event

    def end(self) -> None:
        """Close the channel after the last event; the reader takes the remaining events."""
        self.closed = True
        _wake_all(self.readers)
        _wake_all(self.writers)

    def drop(self) -> None:
        """Close the channel because its reader has left, and drop the remaining events."""
        self.items.clear()
        self.end()


async def _turn(queue: list[Future[None]], loop: AbstractEventLoop) -> None:
    """Wait until `_wake` wakes this task's place in the queue."""
    waiter: Future[None] = loop.create_future()
    queue.append(waiter)
    try:
        await waiter
    except BaseException:
        if waiter in queue:
            queue.remove(waiter)
        elif not waiter.cancelled():
            _wake(queue)  # it was woken and cancelled at once
        raise


def _wake(queue: list[Future[None]]) -> None:
    """Wake the first that waits."""
    while queue:
        waiter = queue.pop(0)
        if not waiter.done():
            waiter.set_result(None)
            return


def _wake_all(queue: list[Future[None]]) -> None:
    while queue:
        _wake(queue)


class Outlet:
    """Where one chat puts its events."""

    __slots__ = ("channel", "deadlines", "path", "view", "waited")

    def __init__(
        self,
        view: View,
        deadlines: Deadlines,
        channel: Channel,
        path: tuple[str, ...] = (),
    ) -> None:
        self.view = view  # knows the subscribers: the agent's, global ones, those of parents
        self.deadlines = deadlines
        self.path = path
        self.channel = channel
        self.waited = 0.0  # seconds that writers have waited for the reader

    def mute(self) -> None:
        """Publish nothing more; the reader still gets the events in the channel."""
        self.channel = Channel(closed=True)
        self.view = View()

    @property
    def has_listeners(self) -> bool:
        """Whether a reader or a subscriber would get an event."""
        return not self.channel.closed or bool(self.view.subscribed)

    @property
    def full(self) -> bool:
        """Whether a writer must wait for room."""
        return len(self.channel.items) >= SIZE

    @property
    def count(self) -> int:
        """The number of the last event, of the root chat and all its sub-agents."""
        return self.channel.seq

    def skip(self, seq: int) -> None:
        """Skip the numbers of events that an earlier life of this chat has published."""
        self.channel.seq = max(self.channel.seq, seq)

    async def room(self) -> None:
        """Wait for room; no time limit of the chat runs meanwhile."""
        clock = self.deadlines.clock
        began = clock()
        self.deadlines.pause()
        try:
            await self.channel.room()
        finally:
            self.deadlines.resume()
            self.waited += clock() - began

    async def publish(self, event: ChatEvent) -> None:
        """Put an event after waiting for room. Once in `SIZE` events, give way to other tasks."""
        channel = self.channel
        if channel.seq % SIZE == SIZE - 1:
            await give_way()
        if len(channel.items) >= SIZE:
            await self.room()
        self.put(event)

    def put(self, event: ChatEvent) -> None:
        """Give an event the next number and put it, without waiting for room.

        The event is frozen, but nobody else has it yet.
        """
        channel = self.channel
        channel.seq = seq = channel.seq + 1
        force_setattr(event, "seq", seq)
        if self.path:
            force_setattr(event, "path", self.path)
        if not channel.closed:
            channel.items.append(event)
            if channel.readers:
                _wake(channel.readers)
        if self.view.subscribed:
            self.view.publish(event)
