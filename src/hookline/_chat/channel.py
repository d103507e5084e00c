"""How a chat's events reach its reader: a bounded channel.

Theory of operation. A root chat and its sub-agents share one channel. `Chat.put` gives an event its
number and puts it, with nothing awaited in between. So numbers are in order, and no event is
dropped. Putting never waits. A chat waits for room before it takes a chunk, begins a step, starts a
call or announces a message: `Chat.room` waits until at most `HIGH_WATER` events are left. So a slow
reader slows the model down. While a chat waits, none of its time limits runs.

Some events follow another event without a wait of their own. `MARGIN` holds them: an event that
ends the open part, the event that was waited for, and one that ends the answer or the step. Each
call that runs beside others may have one such event, too: the end of the call, or of a step of its
sub-agent. So at most `SIZE` events are buffered, one for each call that runs, and the last event of
the root chat.

The one reader waits for a future, writers in a queue of futures. Putting an event wakes the reader;
taking an event wakes the first writer if it has room. Waking a task does not run it: a writer goes
on until the channel is full, and the reader until it is empty. So they change places about once in
`SIZE` events. A woken task checks again. A writer that is woken and cancelled at once wakes the
next writer.

The channel of a chat without a reader fills, too. When it is full, the writer empties it and gives
way to other tasks. A channel is closed when the chat ends or its reader leaves, so that no writer
waits for a reader that is gone. A closed channel numbers events and drops them.
"""

from __future__ import annotations

from asyncio import AbstractEventLoop, Future, get_running_loop
from collections import deque
from typing import Final

from hookline._base.cancel import give_way
from hookline._base.events import ChatEvent

SIZE: Final = 64
"""How many events may wait for their reader."""
MARGIN: Final = 3
"""How many events a writer may put after one wait: the end of a part, the event, another end."""
HIGH_WATER: Final = SIZE - MARGIN
"""With more events than this, a writer waits."""
NOTHING: Final[deque[ChatEvent]] = deque(maxlen=0)
"""The intake of every closed channel, which drops what is put into it."""


class Channel:
    """The events between the writers of a run and its reader."""

    __slots__ = ("intake", "items", "reader", "seq", "unread", "writers")

    def __init__(self, *, unread: bool = False) -> None:
        self.items: deque[ChatEvent] = deque()
        """The events that wait for the reader."""
        self.intake = self.items
        """Where writers put events: `items`, or `NOTHING` once the channel is closed."""
        self.seq = 0
        """The number of the last event of the root chat and all its sub-agents."""
        self.reader: Future[None] | None = None
        """The reader that waits for an event."""
        self.writers: tuple[Future[None], ...] = ()
        self.unread = unread
        """The chat has no reader."""

    async def room(self) -> None:
        """Wait until there is room."""
        while len(self.intake) > HIGH_WATER:
            if self.unread:
                self.items.clear()
                await give_way()
            else:
                await self._turn()

    @property
    def closed(self) -> bool:
        """Whether no further event comes."""
        return self.intake is NOTHING

    def wait(self, loop: AbstractEventLoop) -> Future[None]:
        """The future for which the reader waits if there is no event."""
        self.reader = loop.create_future()
        return self.reader

    def take(self) -> ChatEvent:
        """Take the next event."""
        event = self.items.popleft()
        if self.writers and len(self.items) <= HIGH_WATER:
            self._wake_writer()
        return event

    def wake_reader(self) -> None:
        """Wake the reader if it waits."""
        reader, self.reader = self.reader, None
        if reader is not None and not reader.done():
            reader.set_result(None)

    def end(self) -> None:
        """Close the channel after the last event; the reader takes the remaining events."""
        self.intake = NOTHING
        self.wake_reader()
        while self.writers:
            self._wake_writer()

    def drop(self) -> None:
        """Close the channel because its reader has left, and drop the remaining events."""
        self.items.clear()
        self.end()

    async def _turn(self) -> None:
        """Wait until this writer is woken."""
        waiter: Future[None] = get_running_loop().create_future()
        self.writers += (waiter,)
        try:
            await waiter
        except BaseException:
            if waiter in self.writers:
                self.writers = tuple([other for other in self.writers if other is not waiter])
            elif not waiter.cancelled():
                self._wake_writer()  # it was woken and cancelled at once
            raise

    def _wake_writer(self) -> None:
        """Wake the first writer that waits."""
        while self.writers:
            waiter, *others = self.writers
            self.writers = tuple(others)
            if not waiter.done():
                waiter.set_result(None)
                return


CLOSED: Final = Channel()
"""The channel of every chat that is over."""
CLOSED.end()
