"""Order and time without sleeps: a sequencer for tasks, a runtime whose clock stands still."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from itertools import count

from hookline import LocalRuntime
from hookline.errors import UsageError


class Sequencer:
    """Makes tasks that run at once take their turns in a given order.

    `async with seq(0): …` in one task, `async with seq(1): …` in another: each block runs when
    the one before it has ended. Raises UsageError for a position that was taken before, and in
    all other tasks when one was cancelled while it waited, since its turn will never come.
    """

    def __init__(self) -> None:
        self._taken: set[int] = set()
        self._turns: defaultdict[int, asyncio.Event] = defaultdict(asyncio.Event)
        self._broken = False

    @asynccontextmanager
    async def __call__(self, position: int) -> AsyncGenerator[None, None]:
        """Wait for this position's turn; the next one's comes when the block is left."""
        if position in self._taken:
            raise UsageError(f"position {position} of the sequence was taken before; use each once")
        self._check()
        self._taken.add(position)
        if position > 0:
            try:
                await self._turns[position].wait()
            except asyncio.CancelledError:
                self._break()
                raise
            self._check()
        try:
            yield
        finally:
            self._turns[position + 1].set()

    def _break(self) -> None:
        self._broken = True
        for turn in self._turns.values():
            turn.set()

    def _check(self) -> None:
        if self._broken:
            raise UsageError(
                "the sequence is broken: a task was cancelled while it waited in it; make a new one"
            )


class TestRuntime(LocalRuntime):
    """The local runtime with a clock that is set by hand and ids that can be foreseen.

    `time` is what `now()` says, in seconds; `advance(seconds)` moves it. Chats are "chat-1",
    "chat-2", … It is the clock of durations and expiries; time limits go by the event loop's.
    """

    __test__ = False  # no test class, whatever pytest thinks of its name

    def __init__(self, time: float = 0.0) -> None:
        self.time = time
        self._ids = count(1)

    def advance(self, seconds: float) -> None:
        """Move the clock; raises ValueError for a step back."""
        if seconds < 0:
            raise ValueError(f"advance({seconds!r}): time goes forward; set `time` to go back")
        self.time += seconds

    def now(self) -> float:
        """The time that was set."""
        return self.time

    def new_id(self) -> str:
        """The next id."""
        return f"chat-{next(self._ids)}"
