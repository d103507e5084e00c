"""Messages that wait for the answers before them: one queue for each conversation.

A message joins the queue when it arrives. It leaves when its answer has begun, or when it no longer
needs an answer. The first message gets its turn when the conversation has no run.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable


class Place:
    """A message's place in the queue of its conversation."""

    __slots__ = ("key", "principal", "turn")

    def __init__(self, key: str, principal: str) -> None:
        self.key = key
        self.principal = principal
        self.turn: asyncio.Future[str | None] = asyncio.get_running_loop().create_future()
        """Resolves to None when the message has its turn, or to the reason why it was withdrawn."""


class Lines:
    """The queues of all conversations. `free` returns whether a conversation has no run."""

    def __init__(self, free: Callable[[str], bool]) -> None:
        self._free = free
        self._lines: dict[str, list[Place]] = {}
        self._waiting: Counter[str] = Counter()  # by principal

    def length(self, key: str) -> int:
        """Return the number of messages in a conversation's queue."""
        return len(self._lines.get(key, ()))

    def waiting(self, principal: str | None = None) -> int:
        """Return the number of waiting messages, of one principal or in total."""
        return self._waiting.total() if principal is None else self._waiting[principal]

    def join(self, key: str, principal: str) -> Place:
        """Join the end of the queue; an empty queue gives the message its turn at once."""
        place = Place(key, principal)
        self._lines.setdefault(key, []).append(place)
        self._waiting[principal] += 1
        self.look(key)
        return place

    def leave(self, place: Place) -> None:
        """Leave the queue; the next message may get its turn."""
        self._decide(place, "client left")
        line = self._lines[place.key]
        line.remove(place)
        if not line:
            del self._lines[place.key]
        self.look(place.key)

    def look(self, key: str) -> None:
        """Give the first message its turn, if the conversation has no run."""
        line = self._lines.get(key)
        if line and self._free(key):
            self._decide(line[0], None)

    def stop(self, key: str, reason: str) -> bool:
        """Withdraw all waiting messages of a conversation; False if there are none."""
        withdrawals = [self._decide(place, reason) for place in self._lines.get(key, ())]
        return any(withdrawals)

    def stop_all(self, reason: str) -> None:
        """Withdraw all waiting messages."""
        for key in self._lines:
            self.stop(key, reason)

    def _decide(self, place: Place, why: str | None) -> bool:
        if place.turn.done():
            return False
        self._waiting[place.principal] -= 1
        if not self._waiting[place.principal]:
            del self._waiting[place.principal]
        place.turn.set_result(why)
        return True
