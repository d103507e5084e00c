"""The way of a chat's events out: a bounded channel to its one reader, and the subscribers.

Theory of operation. A root chat and its sub-agents share one channel; each has an outlet into it,
which knows the chat's id, its path and who has subscribed. A writer waits for room before it makes
an event, and the event gets its number as it is put, with nothing awaited in between: numbers are
in order, nothing is dropped or piled up, and a slow reader slows the model down. While a writer
waits, no time limit of its chat runs.

Readers and writers that must wait stand in a queue of futures each. Who puts an event wakes the
first reader, who takes one wakes the first writer, and who is woken looks again; who is woken and
cancelled at once passes the turn on. So a writer and a reader change places once in `SIZE` events,
not at each.

The channel of a chat that nobody reads is closed from the start: it gives numbers, and drops what
is put. It is closed when a reader leaves, too, so that no writer waits for somebody who is gone.
"""

from __future__ import annotations

from asyncio import Future, get_running_loop
from collections.abc import Callable
from typing import Any, Final

from hookline._base.cancel import Deadlines
from hookline._base.events import ChatEvent
from hookline._hooks.bus import View

SIZE: Final = 64
"""How many events may wait for their reader."""


class Channel:
    """At most `SIZE` events, between the writers of a run and its reader."""

    __slots__ = ("closed", "ended", "items", "readers", "seq", "writers")

    def __init__(self, *, closed: bool = False) -> None:
        self.items: list[ChatEvent] = []  # so short that taking the first costs nothing
        self.seq = 0
        """The number of the last event of the root chat and all its sub-agents."""
        self.readers: list[Future[None]] = []
        self.writers: list[Future[None]] = []
        self.closed = closed
        """Nobody reads: what is put is dropped."""
        self.ended = False
        """Nothing more will be put."""

    @property
    def open(self) -> bool:
        """Whether a reader may come to what is put."""
        return not (self.closed or self.ended)

    async def room(self) -> None:
        """Wait until there is room."""
        while len(self.items) >= SIZE:
            await _turn(self.writers)

    def put(self, event: ChatEvent) -> None:
        """Put an event, where room was waited for."""
        if not self.closed:
            self.items.append(event)
            if self.readers:
                _wake(self.readers)

    async def get(self) -> ChatEvent | None:
        """Take the next event, waiting for it; None after the last."""
        while not self.items:
            if self.ended or self.closed:
                return None
            await _turn(self.readers)
        event = self.items.pop(0)
        _wake(self.writers)
        return event

    def end(self) -> None:
        """Nothing more will be put."""
        self.ended = True
        _wake_all(self.readers)

    def close(self) -> None:
        """The reader is gone: free the writers, keep nothing."""
        self.closed = True
        self.items.clear()
        _wake_all(self.writers)
        _wake_all(self.readers)


async def _turn(queue: list[Future[None]]) -> None:
    """Wait in this queue."""
    waiter: Future[None] = get_running_loop().create_future()
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

    __slots__ = ("channel", "chat_id", "deadlines", "path", "view")

    def __init__(
        self,
        chat_id: str,
        view: View,
        deadlines: Deadlines,
        channel: Channel,
        path: tuple[str, ...] = (),
    ) -> None:
        self.chat_id = chat_id
        self.view = view  # knows the subscribers: the agent's, global ones, those of parents
        self.deadlines = deadlines
        self.path = path
        self.channel = channel

    def mute(self) -> None:
        """Let nothing out any more; what was put stays."""
        self.channel = Channel(closed=True)
        self.view = View()

    @property
    def has_listeners(self) -> bool:
        """Whether anybody would get an event."""
        return self.channel.open or bool(self.view.subscribed)

    @property
    def full(self) -> bool:
        """Whether a writer must wait for room."""
        return len(self.channel.items) >= SIZE

    @property
    def count(self) -> int:
        """How many numbers have been given."""
        return self.channel.seq

    def skip(self, seq: int) -> None:
        """Skip the numbers of events that were published in an earlier life of this chat."""
        self.channel.seq = max(self.channel.seq, seq)

    def number(self, kind: Callable[..., Any], **fields: Any) -> Any:
        """Make an event, with the next number."""
        channel = self.channel
        channel.seq += 1
        return kind(chat_id=self.chat_id, path=self.path, seq=channel.seq, **fields)

    async def room(self) -> None:
        """Wait for room; no time limit of the chat runs meanwhile."""
        self.deadlines.pause()
        try:
            await self.channel.room()
        finally:
            self.deadlines.resume()

    def put(self, kind: Callable[..., Any], **fields: Any) -> None:
        """Put an event, where room was waited for."""
        event = self.number(kind, **fields)
        self.channel.put(event)
        if self.view.subscribed:
            self.view.publish(event)
