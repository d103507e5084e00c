"""Time limits, and work that finishes even if the caller is cancelled.

All time limits of one chat share one timer, which is paused while the chat waits for a slow
consumer. A limit belongs to the task that runs inside it. When the limit expires, the task is
cancelled once and the limit turns the cancellation into `Expired`. Work that ignores the
cancellation is awaited and logged. Moving one timer costs a fifth of one cancel scope per call.
Limits count only the time that the chat could use, so no limit runs while events wait for room.
"""

from __future__ import annotations

import asyncio
from asyncio import CancelledError
from collections.abc import Awaitable, Coroutine, Generator
from contextlib import contextmanager
from contextvars import Context
from math import inf
from time import monotonic
from typing import Any, TypeAlias, TypeVar, overload

import msgspec

from hookline._base.log import logger

T = TypeVar("T")
Cut: TypeAlias = CancelledError | None
"""The cancellation that arrived while work was being finished."""


def being_cancelled() -> bool:
    """Whether other code has cancelled the current task, and so caused a CancelledError."""
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0


@contextmanager
def no_cancellation_of_its_own(error: type[Exception], name: str, instead: str) -> Generator[None]:
    """Turn a CancelledError of a user's function into `error` if nobody cancelled the task."""
    try:
        yield
    except CancelledError as exc:
        if being_cancelled():
            raise
        raise error(f"{name} raised CancelledError by itself; {instead} instead") from exc


# ── tasks ───────────────────────────────────────────────────────────────────────────────────


def spawn(work: Coroutine[Any, Any, T], context: Context | None = None) -> asyncio.Task[T]:
    """Start a task for hookline's own work.

    SystemExit and KeyboardInterrupt leave the event loop as soon as a task raises them. By then
    nothing may be left to await the task, so the exception is marked as retrieved.
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
    """Finish `work`, even if the current task is cancelled meanwhile.

    Returns the value of `work` and the last cancellation. At `until`, a time of the event loop,
    the wait ends with None as the value, and the work continues in the background.
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
        raise cut or CancelledError("the work was cancelled by other code")
    return task.result(), cut


async def finished(work: Awaitable[T]) -> T:
    """Finish `work` even if the current task is cancelled, then raise the cancellation."""
    value, cut = await shielded(work)
    if cut is not None:
        raise cut
    return value


# ── time limits ─────────────────────────────────────────────────────────────────────────────


class Limit(msgspec.Struct, eq=False):
    """One running time limit."""

    task: asyncio.Task[object]
    when: float
    cancelling: int  # the number of earlier cancellations of the task
    name: str  # of the tool or hook
    seconds: float
    fired: bool = False
    late: asyncio.TimerHandle | None = None  # reports work that ignores its cancellation

    def ran_out(self) -> bool:
        """Whether a CancelledError was caused by this limit and by nothing else."""
        return self.fired and self.task.uncancel() <= self.cancelling


class Expired(Exception):
    """The limit ran out."""


class Deadlines:
    """The limits of one chat. A sub-agent's wait also pauses the limits of its `parent`."""

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
        """The clock of the event loop, once the loop is known; limits are measured with it."""
        self.clock = monotonic
        """Measures durations. uvloop's clock does not advance within one iteration of the loop."""
        self._limits: dict[Limit, None] = {}
        self._timer: asyncio.TimerHandle | None = None
        self._due = inf  # when the timer fires
        self._paused_total = 0.0  # time spent waiting for room, so far
        self._paused_at = 0.0
        self._pauses = 0

    async def run(self, work: Awaitable[T], seconds: float, name: str) -> T:
        """Await `work`; raises Expired if it was cancelled because the time ran out."""
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
        """Use the clock of the running event loop, including one that a test controls."""
        loop = self._loop = asyncio.get_running_loop()
        if getattr(loop.time, "__func__", None) is not asyncio.BaseEventLoop.time:
            self.time = loop.time  # a clock of its own
            if isinstance(loop, asyncio.BaseEventLoop):
                self.clock = loop.time
        return loop

    def start(self, seconds: float, name: str) -> Limit:
        """Start a limit for the current task; the caller must always stop it."""
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
        """End a limit, because its work has ended."""
        del self._limits[limit]
        if limit.late is not None:
            limit.late.cancel()
        if limit.fired and limit.task.cancelling() > limit.cancelling:
            # The work swallowed the cancellation or failed in it, so the caller must not see it.
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
            "%r is still running %g s after its time limit of %g s; waiting for it",
            *(limit.name, self.grace, limit.seconds),
        )

    def pause(self) -> None:
        """Pause the clock while a writer waits for room."""
        if self.parent is not None:
            self.parent.pause()
        self._pauses += 1
        if self._pauses == 1 and self._loop is not None:
            self._paused_at = self._loop.time()

    def resume(self) -> None:
        """Continue the clock when the writer has room."""
        if self.parent is not None:
            self.parent.resume()
        self._pauses -= 1
        if self._pauses == 0 and self._loop is not None and self._limits:
            if self._paused_at:
                self._paused_total += self._loop.time() - self._paused_at
            self._arm(min(limit.when for limit in self._limits))
        self._paused_at = 0.0

    def close(self) -> None:
        """Stop the timers at the end of the chat."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
            self._due = inf
        for limit in self._limits:  # of work that was left running
            if limit.late is not None:
                limit.late.cancel()


async def give_way() -> None:
    """Let other tasks of this event loop run."""
    await asyncio.sleep(0)
