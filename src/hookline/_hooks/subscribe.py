"""Subscriptions: iterators over published events for other tasks, which never slow down a chat.

Each subscription has its own bound. On overflow it is either closed (the default, so that a gap is
never missed), or drops its oldest events and counts them.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from types import UnionType
from typing import Any, Generic, Literal, Self, TypeVar

from hookline._base.errors import StreamStateError, SubscriptionOverflowError, UsageError

E = TypeVar("E")
Overflow = Literal["close", "drop_oldest"]
"""What happens when a subscriber's buffer is full."""


class Subscription(Generic[E]):
    """An iterator over the requested events, in order.

    Close the iterator after use, or use it as a context manager. `dropped` counts the events that
    `overflow="drop_oldest"` has dropped. With `overflow="close"`, the iterator returns the events
    that it still holds, and then raises SubscriptionOverflowError. Raises UsageError for an invalid
    size or type, and StreamStateError for a second reader.
    """

    def __init__(
        self,
        types: tuple[type, ...],
        size: int,
        overflow: Overflow,
        leave: Callable[[Subscription[Any]], None],
    ) -> None:
        if not isinstance(size, int) or size < 1:  # pyright: ignore[reportUnnecessaryIsInstance]
            raise UsageError(f"size={size!r} must be an integer of at least 1")
        if overflow not in ("close", "drop_oldest"):
            raise UsageError(f"overflow={overflow!r} must be 'close' or 'drop_oldest'")
        for event_type in types:
            if not isinstance(event_type, (type, UnionType)):  # pyright: ignore[reportUnnecessaryIsInstance]
                raise UsageError(
                    f"{event_type!r} is not an event type; pass classes such as TextDelta"
                )
        self.types = types
        """The types of events to deliver; empty for all events."""
        self.size = size
        """The maximum number of events that the subscription holds."""
        self.overflow: Overflow = overflow
        self.dropped = 0
        self.closed = False
        """Whether the subscription receives no more events."""
        self._leave = leave
        self._items: deque[E] = deque()
        self._overflowed = False
        self._waiter: asyncio.Future[None] | None = None

    def offer(self, event: E) -> None:
        """Add an event if its type was requested; this method never waits."""
        if self.closed or (self.types and not isinstance(event, self.types)):
            return  # an event of another type never counts as overflow
        if len(self._items) >= self.size:
            if self.overflow == "close":
                self._overflowed = True
                self.close()
                return
            try:
                self._items.popleft()
                self.dropped += 1
            except IndexError:
                pass  # the reader, in another thread, has taken it
        self._items.append(event)
        self._wake()

    def _wake(self) -> None:
        # Called in any thread, since a bus may publish the events of chats in several threads.
        waiter, self._waiter = self._waiter, None
        if waiter is None or waiter.done():
            return
        loop = waiter.get_loop()
        try:
            current: asyncio.AbstractEventLoop | None = asyncio.get_running_loop()
        except RuntimeError:
            current = None
        if current is loop:
            waiter.set_result(None)
        elif not loop.is_closed():  # closed, with a reader that nobody has cancelled
            loop.call_soon_threadsafe(_release, waiter)

    def close(self) -> None:
        """Stop receiving events. Events that were already received can still be read."""
        if not self.closed:
            self.closed = True
            self._leave(self)
            self._wake()

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> E:
        while True:
            try:
                return self._items.popleft()
            except IndexError:
                pass  # nothing is there, or a writer in another thread has dropped it
            if self.closed:
                if self._overflowed:
                    self._overflowed = False  # raised once; then the iterator is at its end
                    raise SubscriptionOverflowError(self.size)
                raise StopAsyncIteration
            if self._waiter is not None and not self._waiter.done():
                raise StreamStateError(
                    "a subscription has one reader; subscribe again for another reader"
                )
            waiter = self._waiter = asyncio.get_running_loop().create_future()
            # Look again: another thread may have published before it could see the waiter.
            if self._items or self.closed:
                self._waiter = None
                continue
            await waiter

    async def aclose(self) -> None:
        """Close the subscription, for use with `aclosing`."""
        self.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exc: object) -> None:
        self.close()

    def __repr__(self) -> str:
        state = "closed" if self.closed else "open"
        return (
            f"<Subscription {state}, {len(self._items)}/{self.size} held, {self.dropped} dropped>"
        )


def _release(waiter: asyncio.Future[None]) -> None:
    if not waiter.done():  # the reader may have been cancelled meanwhile
        waiter.set_result(None)
