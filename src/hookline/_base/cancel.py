"""All time limits of one chat on one timer, paused while a slow consumer is waited for.

A limit belongs to the task that runs inside it; when it runs out, that task is cancelled once and
the limit turns the cancellation into an expiry; what ignores it is waited for, and named in the
log. One timer that is moved costs a fifth of a scope per call. Limits measure time that the chat
could use: while events wait for room, none counts.

Some work never waits: a tool that adds two numbers, or knows the answer already. So work is run by
hand (`work.send(None)`) up to where it first waits for something, and has a limit from there on.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Generator
from math import inf
from time import monotonic
from types import CoroutineType, coroutine
from typing import Any, TypeVar, cast

import msgspec

from hookline._base.log import logger

T = TypeVar("T")


class Limit(msgspec.Struct, eq=False):
    """One running time limit."""

    task: asyncio.Task[object]
    when: float
    cancelling: int  # how often the task was cancelled before
    name: str  # of the tool or hook
    seconds: float
    fired: bool = False
    late: asyncio.TimerHandle | None = None  # tells that it has not ended all the same

    def ran_out(self) -> bool:
        """Whether a CancelledError is this limit's, and no one else's beside it."""
        return self.fired and self.task.uncancel() <= self.cancelling


def being_cancelled() -> bool:
    """Whether somebody has cancelled the task that runs here: a CancelledError is theirs then."""
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0


async def _as_coroutine(work: Awaitable[T]) -> T:
    """Whatever can be awaited, as something that can be sent to."""
    return await work


@coroutine
def _go_on(work: CoroutineType[Any, Any, Any], waits: Any) -> Generator[Any, Any, Any]:
    """Await the rest of `work`, which `waits` for something now."""
    rest: Generator[Any, Any, Any] = cast("Any", work)
    try:
        while True:
            try:
                yield waits
            except BaseException as exc:
                waits = work.throw(exc)
            else:
                return (yield from rest)
    except StopIteration as end:  # what was thrown into it has ended it
        return end.value


class Expired(Exception):
    """The limit ran out."""


class Deadlines:
    """The limits of one chat. `parent` is paused along: a sub-agent's wait is its parent's too."""

    __slots__ = (
        "_limits",
        "_loop",
        "_paused_at",
        "_pauses",
        "_rings",
        "_stalled",
        "_timer",
        "begins",
        "clock",
        "grace",
        "parent",
        "time",
    )

    def __init__(self, parent: Deadlines | None = None, grace: float = 5.0) -> None:
        self.parent = parent
        self.grace = grace
        self._loop: asyncio.AbstractEventLoop | None = None
        self.time = monotonic
        """The clock of the event loop, once it is known: what limits are counted by."""
        self.clock = monotonic
        """Tells how long something took. uvloop's own stands still within a turn of the loop."""
        self.begins = False  # work runs that gets its limit when it waits for something
        self._limits: dict[Limit, None] = {}
        self._timer: asyncio.TimerHandle | None = None
        self._rings = inf  # when it does
        self._stalled = 0.0  # time spent waiting for room, so far
        self._paused_at = 0.0
        self._pauses = 0

    async def run(self, work: Awaitable[T], seconds: float, name: str) -> T:
        """Await `work`; raises Expired when it was cancelled because the time ran out."""
        if self._loop is None:
            self.enter()
        began = self.time()
        rest: Any = work if work.__class__ is CoroutineType else _as_coroutine(work)
        self.begins = True
        try:
            waits = rest.send(None)
        except StopIteration as end:
            return cast("T", end.value)
        finally:
            self.begins = False
        return cast("T", await self.rest(rest, waits, seconds, began, name))

    async def rest(
        self,
        work: CoroutineType[Any, Any, Any],
        waits: Any,
        seconds: float,
        began: float,
        name: str,
    ) -> Any:
        """Await the rest of what began at that time and `waits` for something now.

        Only this needs a limit: work that never waits could not be ended by anybody.
        """
        self.begins = False
        limit = self.start(seconds, began, name)
        try:
            return await _go_on(work, waits)
        except asyncio.CancelledError:
            if limit.ran_out():
                raise Expired from None
            raise
        finally:
            self.stop(limit)

    def enter(self) -> asyncio.AbstractEventLoop:
        """Use the clock of the event loop that runs here, and of a test that turns it by hand."""
        loop = self._loop = asyncio.get_running_loop()
        if getattr(loop.time, "__func__", None) is not asyncio.BaseEventLoop.time:
            self.time = loop.time  # a clock of its own
            if isinstance(loop, asyncio.BaseEventLoop):
                self.clock = loop.time
        return loop

    def start(self, seconds: float, began: float, name: str) -> Limit:
        """Begin a limit for the current task; the caller stops it, whatever happens."""
        loop = self._loop or self.enter()
        task = asyncio.current_task(loop)
        assert task is not None  # hooks and tools run in tasks
        rings = began + seconds
        limit = Limit(task, rings - self._stalled, task.cancelling(), name, seconds)
        self._limits[limit] = None
        if rings < self._rings:
            self._arm(limit.when)
        return limit

    @property
    def running(self) -> bool:
        """Whether there is a limit to pause, here or in a parent, or will be one at once."""
        if self.begins or self._limits:
            return True
        return self.parent is not None and self.parent.running

    def stop(self, limit: Limit) -> None:
        """The work is over."""
        del self._limits[limit]
        if limit.late is not None:
            limit.late.cancel()
        if limit.fired and limit.task.cancelling() > limit.cancelling:
            # The work swallowed the cancellation or failed in it: it is not the caller's.
            limit.task.uncancel()

    def _arm(self, when: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        assert self._loop is not None
        self._rings = when + self._stalled
        self._timer = self._loop.call_at(self._rings, self._ring)

    def _ring(self) -> None:
        self._timer = None
        self._rings = inf
        if self._pauses or not self._limits or self._loop is None:
            return
        now = self._loop.time() - self._stalled
        for limit in list(self._limits):
            if limit.when <= now and not limit.fired:
                limit.fired = True
                limit.task.cancel()
                limit.late = self._loop.call_later(self.grace, self._report, limit)
        waiting = [limit.when for limit in self._limits if not limit.fired]
        if waiting:
            self._arm(min(waiting))

    def _report(self, limit: Limit) -> None:
        logger.warning(
            "%r has ignored for %g s that its time limit of %g s was over, and is still waited for",
            *(limit.name, self.grace, limit.seconds),
        )

    def pause(self) -> None:
        """A writer waits for room: the clock stands still."""
        if self.parent is not None:
            self.parent.pause()
        self._pauses += 1
        if self._pauses == 1 and self._loop is not None:
            self._paused_at = self._loop.time()

    def resume(self) -> None:
        """The writer has room."""
        if self.parent is not None:
            self.parent.resume()
        self._pauses -= 1
        if self._pauses == 0 and self._loop is not None and self._limits:
            if self._paused_at:
                self._stalled += self._loop.time() - self._paused_at
            self._arm(min(limit.when for limit in self._limits))
        self._paused_at = 0.0

    def close(self) -> None:
        """The chat is over."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
            self._rings = inf
        for limit in self._limits:  # of what was left behind
            if limit.late is not None:
                limit.late.cancel()
