"""Time limits, and work that is finished whoever cancels.

All time limits of one chat share one timer, which is paused while a slow consumer is waited for.
A limit belongs to the task that runs inside it; when it runs out, that task is cancelled once and
the limit turns the cancellation into `Expired`. Work that ignores the cancellation is waited for,
and named in the log. One timer that is moved costs a fifth of a scope per call. Limits measure
time that the chat could use: while events wait for room, none counts.
"""

from __future__ import annotations

import asyncio
from asyncio import CancelledError
from collections.abc import Awaitable, Coroutine
from contextvars import Context
from math import inf
from time import monotonic
from typing import Any, TypeAlias, TypeVar, overload

import msgspec

from hookline._base.log import logger

T = TypeVar("T")
Cut: TypeAlias = CancelledError | None
"""The cancellation that arrived while something was finished."""


def being_cancelled() -> bool:
    """Whether somebody has cancelled the task that runs here: a CancelledError is theirs then."""
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0


# ── tasks ───────────────────────────────────────────────────────────────────────────────────


def spawn(work: Coroutine[Any, Any, T], context: Context | None = None) -> asyncio.Task[T]:
    """Start a task of ours.

    SystemExit and KeyboardInterrupt leave the event loop at the moment a task raises them. Nobody
    may be left to await that task, so the exception counts as retrieved.
    """
    task = asyncio.get_running_loop().create_task(work, context=context)
    task.add_done_callback(_retrieve_exit)
    return task


def _retrieve_exit(task: asyncio.Future[Any]) -> None:
    if not task.cancelled():
        task.exception()


@overload
async def shielded(work: Awaitable[T]) -> tuple[T, Cut]: ...
@overload
async def shielded(work: Awaitable[T], until: float | None) -> tuple[T | None, Cut]: ...
async def shielded(work: Awaitable[T], until: float | None = None) -> tuple[T | None, Cut]:
    """Finish `work`, however often we are cancelled meanwhile.

    Gives its value and the last cancellation. At `until`, a time of the event loop, the wait ends
    with None for a value: the work goes on alone.
    """
    task = asyncio.ensure_future(work)
    task.add_done_callback(_retrieve_exit)
    clock = task.get_loop().time
    cut: Cut = None
    while not task.done():
        left = None if until is None else until - clock()
        if left is not None and left <= 0:
            return None, cut
        try:
            await asyncio.wait([task], timeout=left)
        except CancelledError as exc:
            cut = exc
    if task.cancelled():
        raise cut or CancelledError("the work was cancelled, and not by us")
    return task.result(), cut


# ── time limits ─────────────────────────────────────────────────────────────────────────────


class Limit(msgspec.Struct, eq=False):
    """One running time limit."""

    task: asyncio.Task[object]
    when: float
    cancelling: int  # how often the task was cancelled before
    name: str  # of the tool or hook
    seconds: float
    fired: bool = False
    late: asyncio.TimerHandle | None = None  # reports work that ignores its cancellation

    def ran_out(self) -> bool:
        """Whether a CancelledError is this limit's, and no one else's beside it."""
        return self.fired and self.task.uncancel() <= self.cancelling


class Expired(Exception):
    """The limit ran out."""


class Deadlines:
    """The limits of one chat. `parent` is paused along: a sub-agent's wait is its parent's too."""

    __slots__ = (
        "_due",
        "_limits",
        "_loop",
        "_paused_at",
        "_paused_total",
        "_pauses",
        "_timer",
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
        """The clock of the event loop, once it is known: limits are counted by it."""
        self.clock = monotonic
        """Tells how long something took. uvloop's own stands still within a turn of the loop."""
        self._limits: dict[Limit, None] = {}
        self._timer: asyncio.TimerHandle | None = None
        self._due = inf  # when the timer fires
        self._paused_total = 0.0  # time spent waiting for room, so far
        self._paused_at = 0.0
        self._pauses = 0

    async def run(self, work: Awaitable[T], seconds: float, name: str) -> T:
        """Await `work`; raises Expired when it was cancelled because the time ran out."""
        limit = self.start(seconds, name)
        try:
            return await work
        except CancelledError:
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

    def start(self, seconds: float, name: str) -> Limit:
        """Begin a limit for the current task; the caller stops it, whatever happens."""
        loop = self._loop or self.enter()
        task = asyncio.current_task(loop)
        assert task is not None  # hooks and tools run in tasks
        due = self.time() + seconds
        limit = Limit(task, due - self._paused_total, task.cancelling(), name, seconds)
        self._limits[limit] = None
        if due < self._due:
            self._arm(limit.when)
        return limit

    @property
    def running(self) -> bool:
        """Whether there is a limit to pause, here or in a parent."""
        return bool(self._limits) or (self.parent is not None and self.parent.running)

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
        self._due = when + self._paused_total
        self._timer = self._loop.call_at(self._due, self._fire)

    def _fire(self) -> None:
        self._timer = None
        self._due = inf
        if self._pauses or not self._limits or self._loop is None:
            return
        now = self._loop.time() - self._paused_total
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
                self._paused_total += self._loop.time() - self._paused_at
            self._arm(min(limit.when for limit in self._limits))
        self._paused_at = 0.0

    def close(self) -> None:
        """The chat is over."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
            self._due = inf
        for limit in self._limits:  # of what was left behind
            if limit.late is not None:
                limit.late.cancel()


async def give_way() -> None:
    """Let the others of this event loop have their turn."""
    await asyncio.sleep(0)
