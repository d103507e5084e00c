"""Requests whose runs have not begun: they are prepared, or wait for the answers before them.

Preparation: `deps=` and `hooks=` of the application may still run. A stop reaches these requests,
too: the preparation is cancelled, the request is refused, and no run begins.

Queues: a message joins the queue of its conversation when it arrives. It leaves when its answer has
begun, or when it no longer needs an answer. The first message gets its turn when the conversation
has no run.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

from hookline.errors import UsageError
from hookline.web._http.request_reply import Refused

T = TypeVar("T")


class StoppedEarly(Refused):
    """The request was stopped before its run began."""

    def __init__(self, reason: str) -> None:
        self.reason = reason
        super().__init__(409, "This answer was stopped before it began; send the request again.")


class _Start:
    """One request, with the id of its run."""

    __slots__ = ("run", "scope", "why")

    def __init__(self, run: str) -> None:
        self.run = run
        self.scope = asyncio.timeout(None)
        self.why: str | None = None
        """The reason of the stop; None if there was none."""


class Starts:
    """The requests of a process whose runs have not begun, by the key of the conversation."""

    def __init__(self) -> None:
        self._starts: dict[str, list[_Start]] = {}

    def __contains__(self, key: str) -> bool:
        return key in self._starts

    async def prepare(self, key: str, run: str, preparing: Coroutine[Any, Any, T]) -> T:
        """Await the preparation of a run; the run must begin before the next await.

        Raises StoppedEarly if a stop came meanwhile, also if the preparation ignored its
        cancellation.
        """
        start = _Start(run)
        task = asyncio.current_task()
        assert task is not None
        before = task.cancelling()
        self._starts.setdefault(key, []).append(start)
        try:
            async with start.scope:
                value = await preparing
        except Exception:
            if start.why is None:
                raise
            raise StoppedEarly(start.why) from None
        except asyncio.CancelledError as exc:
            if task.cancelling() > before:
                raise
            raise UsageError(
                f"deps= or hooks= raised {exc!r}, but nobody cancelled the request; catch it "
                "there, and raise another exception"
            ) from exc
        finally:
            self._starts[key].remove(start)
            if not self._starts[key]:
                del self._starts[key]
        if start.why is not None:
            raise StoppedEarly(start.why)
        return value

    def stop(self, key: str, reason: str, *, run: str | None = None) -> bool:
        """Stop the requests of a conversation, or only the one of this run; returns False if there
        is none.
        """
        starts = [start for start in self._starts.get(key, ()) if run in (None, start.run)]
        for start in starts:
            if start.why is None:
                start.why = reason
                start.scope.reschedule(asyncio.get_running_loop().time())  # cancels the preparation
        return bool(starts)


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
        self._waiting -= Counter([place.principal])
        place.turn.set_result(why)
        return True
