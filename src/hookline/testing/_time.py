"""Order and time without sleeps: a sequencer for tasks, and a runtime with a manual clock."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from itertools import count

from hookline import LocalRuntime
from hookline.errors import UsageError


class Sequencer:
    """Makes concurrent tasks run in a given order.

    Use `async with seq(0): …` in one task and `async with seq(1): …` in another task. Each block
    runs after the previous block has ended. Raises UsageError for a position that was already used.
    If a waiting task is cancelled, all other tasks raise UsageError, because the block of the
    cancelled task never runs.
    """

    def __init__(self) -> None:
        self._used_positions: set[int] = set()
        self._turns: defaultdict[int, asyncio.Event] = defaultdict(asyncio.Event)
        self._broken = False

    @asynccontextmanager
    async def __call__(self, position: int) -> AsyncGenerator[None, None]:
        """Wait for this position's turn; the next position follows when the block ends."""
        if position in self._used_positions:
            raise UsageError(
                f"position {position} of the sequence was already used; use each position once"
            )
        self._check()
        self._used_positions.add(position)
        if position > 0:
            try:
                await self._turns[position].wait()
            except asyncio.CancelledError:
                self._broken = True
                for turn in self._turns.values():
                    turn.set()
                raise
            self._check()
        try:
            yield
        finally:
            self._turns[position + 1].set()

    def _check(self) -> None:
        if self._broken:
            raise UsageError(
                "the sequence is broken: a task was cancelled while it waited; make a new sequence"
            )


class TestRuntime(LocalRuntime):
    """The local runtime with a manual clock and predictable ids.

    `now()` returns `time`, in seconds; `advance(seconds)` moves the clock forward. Chats have the
    ids "chat-1", "chat-2" and so on. Durations and expiries use this clock, but time limits use the
    event loop's clock.
    """

    __test__ = False  # not a test class, although its name begins with "Test"

    def __init__(self, time: float = 0.0) -> None:
        self.time = time
        self._ids = count(1)

    def advance(self, seconds: float) -> None:
        """Move the clock forward; raises ValueError for negative seconds."""
        if seconds < 0:
            raise ValueError(f"advance({seconds!r}): time only goes forward; set `time` to go back")
        self.time += seconds

    def now(self) -> float:
        """Return the time that was set."""
        return self.time

    def new_id(self) -> str:
        """Return the next id."""
        return f"chat-{next(self._ids)}"
