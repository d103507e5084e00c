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
    try:
        task = asyncio.current_task()
    except RuntimeError:
        return False  # no event loop is running
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
    task.add_done_callback(_retrieve_exit, context=context)
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
        seconds = None if until is None else until - clock()
        if seconds is not None and seconds <= 0:
            return None, cut
        try:
            # Unlike `await task`, this neither passes a cancellation on to the task nor raises.
            await asyncio.wait([task], timeout=seconds)
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


class _Write(asyncio.Task[T]):
    """A task that its event loop does not cancel when it closes, but waits for."""

    def cancel(self, msg: Any | None = None) -> bool:
        # A loop that closes cancels all tasks while it does not run; time limits do while it runs.
        return self.get_loop().is_running() and super().cancel(msg)


async def finish_write(write: Coroutine[Any, Any, T]) -> T:
    """Finish a write to a store, as `finished` does, even if the event loop closes."""
    return await finished(_Write(write, loop=asyncio.get_running_loop()))


# ── time limits ─────────────────────────────────────────────────────────────────────────────


class Limit(msgspec.Struct, eq=False):
    """One running time limit."""

    task: asyncio.Task[object]
    when: float  # by the chat's clock; a pause puts it off
    owner: object  # the tool, or the name of a hook
    seconds: float | None  # None: it never expires
    has_fired: bool = False
    late: asyncio.TimerHandle | None = None  # reports work that ignores its cancellation


class Expired(Exception):
    """The limit ran out."""


class Deadlines:
    """The limits of one chat. A sub-agent's wait also pauses the limits of its `parent`."""

    __slots__ = (
        "_due",
        "_limits",
        "_loop",
        "_paused_at",
        "_pauses",
        "_time",
        "_timer",
        "clock",
        "grace",
        "parent",
    )

    def __init__(self, parent: Deadlines | None = None, grace: float = 5.0) -> None:
        self.parent = parent
        self.grace = grace
        self._loop: asyncio.AbstractEventLoop | None = None
        self._time = monotonic  # the clock of the event loop, once the loop is known
        self.clock = monotonic
        """Measures durations. uvloop's clock does not advance within one iteration of the loop."""
        self._limits: dict[Limit, None] = {}
        self._timer: asyncio.TimerHandle | None = None
        self._due = inf  # when the timer fires
        self._pauses = 0  # how many writers wait for room
        self._paused_at = 0.0

    def enter(self) -> asyncio.AbstractEventLoop:
        """Use the clock of the running event loop, including one that a test controls."""
        loop = self._loop = asyncio.get_running_loop()
        # BaseEventLoop.time only calls monotonic, so such a loop needs no other clock.
        if getattr(loop.time, "__func__", None) is not asyncio.BaseEventLoop.time:
            self._time = loop.time
            if isinstance(loop, asyncio.BaseEventLoop):
                self.clock = loop.time
        return loop

    async def run(self, work: Awaitable[T], seconds: float | None, owner: object) -> T:
        """Await `work`; raises Expired if it was cancelled because the time ran out.

        `seconds`: None for no limit. `owner` has a name, or is a name.
        """
        task = asyncio.current_task(self._loop or self.enter())
        assert task is not None  # hooks and tools run in tasks
        began = self._paused_at if self._pauses else self._time()
        limit = Limit(task, inf if seconds is None else began + seconds, owner, seconds)
        earlier = task.cancelling()  # by other code, before this work
        self._limits[limit] = None
        if limit.when < self._due:
            self._set_timer()
        try:
            return await work
        except CancelledError:
            # If other code has cancelled the task too, its cancellation takes precedence.
            if limit.has_fired and task.cancelling() <= earlier + 1:
                raise Expired from None
            raise
        finally:
            del self._limits[limit]
            if limit.has_fired:
                if limit.late is not None:
                    limit.late.cancel()
                # Take back the limit's cancellation, and only that one: the supervisor counts those
                # of other code. Work that swallowed the cancellation may have taken it back itself.
                if task.cancelling() > earlier:
                    task.uncancel()

    def _set_timer(self) -> None:
        """Set the timer for the limit that expires next.

        The timer is not moved when a limit ends: it then fires early, which costs less.
        """
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        waiting = [limit.when for limit in self._limits if not limit.has_fired]
        self._due = min(waiting, default=inf)
        if self._due < inf and self._loop is not None:
            self._timer = self._loop.call_at(self._due, self._fire)

    def _fire(self) -> None:
        self._timer = None
        self._due = inf
        if self._pauses or self._loop is None:  # `resume` sets the timer again
            return
        now = self._time()
        for limit in self._limits:
            if limit.when <= now and not limit.has_fired:
                limit.has_fired = True
                limit.task.cancel()
                limit.late = self._loop.call_later(self.grace, self._report, limit)
        self._set_timer()

    def interrupt(self, owner: object) -> None:
        """End the work of this owner now, as if its time had run out."""
        for limit in self._limits:
            if limit.owner is owner and not limit.has_fired:
                limit.has_fired = True
                limit.task.cancel()

    def _report(self, limit: Limit) -> None:
        logger.warning(
            "%r is still running %g s after its time limit of %g s; waiting for it",
            *(getattr(limit.owner, "name", limit.owner), self.grace, limit.seconds),
        )

    def pause(self) -> None:
        """Pause the clock while a writer waits for room."""
        if self.parent is not None:
            self.parent.pause()
        if not self._pauses:  # several calls that run in parallel may wait
            self._paused_at = self._time()
        self._pauses += 1

    def resume(self) -> None:
        """Continue the clock when the writer has room."""
        if self.parent is not None:
            self.parent.resume()
        self._pauses -= 1
        if not self._pauses and self._limits:
            paused = self._time() - self._paused_at
            for limit in self._limits:
                limit.when += paused
            self._set_timer()

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
