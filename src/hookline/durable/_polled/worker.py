"""A worker for engines that are polled: it takes jobs, signals that it is alive, runs their lives.

Each job has an owner, one for each life. If another life takes over the job, our life is halted.
When a worker is stopped, its lives end between two steps; when it is cancelled, it halts them at
once. In both cases it releases their jobs. When a worker is killed, another worker takes over its
jobs after they gave no sign of life for a lease. A task of its own gives the signs of life, so that
they never wait for a claim or for the begin of a life.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import suppress
from typing import Any, Final

import msgspec

from hookline import Agent
from hookline.durable._job import MakeDeps, Relay, aborted_outcome, check_agent, check_limits
from hookline.durable._polled.chat_life import Life, Log, refuse
from hookline.durable._polled.claims import ANY, Claim, Selection
from hookline.durable._polled.metrics import Metrics
from hookline.durable._polled.suspects import Suspects
from hookline.durable._polled.worker_operations import Jobs
from hookline.durable._shared.deaths import PATIENCE
from hookline.durable._shared.same_machine import LastCall
from hookline.errors import JournalError, StoreError, UsageError
from hookline.runtimes import Journal

logger = logging.getLogger("hookline.durable")
MONTH: Final = 30 * 86_400.0
_OTHERS_INTERVAL: Final = 10.0  # seconds between two looks for the chats of other agents
_CLEANUP_INTERVAL: Final = 60.0  # seconds between two looks for chats to delete


class Worker:
    """Runs durable chats: `async with chats(agent, …): …`, or `await worker.run()`.

    Raises UsageError if the agent cannot run durable chats, or if an option is wrong.
    """

    def __init__(
        self,
        agent: Agent[Any],
        jobs: Jobs,
        *,
        deps: MakeDeps | None,
        relay: Relay | None,
        concurrency: int,
        idle: float,
        poll: float,
        selection: Selection = ANY,
        retention: float | None = MONTH,
    ) -> None:
        check_agent(agent, relay)
        check_limits(concurrency, selection.max_deaths)
        if retention is not None and retention <= 0:
            raise UsageError(f"retention={retention!r} must be a number of seconds, or None")
        self._agent = agent
        self._jobs = jobs
        self._deps = deps
        self._relay = relay
        self._concurrency = concurrency
        self._idle = idle
        self._poll = poll
        self._selection = selection._replace(agent=agent.name)
        self._retention = retention
        self._metrics = Metrics(jobs.queue)
        self._lives: dict[str, Life] = {}  # the current lives, by owner
        self._tasks: set[asyncio.Task[None]] = set()  # which use the engine
        self._refusals: set[str] = set()  # chats that this code cannot continue
        self._others: set[tuple[str, str]] = set()  # for whom we have seen chats
        self._next_look = self._next_cleanup = 0.0  # when to look for them, and for old chats
        self._claims: dict[str, Claim] = {}  # jobs that are about to begin, by owner
        self._suspects = Suspects()
        self._last_call = LastCall(f"{jobs.database.place} {jobs.queue}")
        self._drained = False  # whether an operator has drained the queue, when we last looked
        self._excused: set[str] = set()  # owners whose death does not count
        self._unreleased: dict[str, str] = {}  # ids of chats that we could not release, by owner
        self._running: asyncio.Task[None] | None = None
        self._until: float | None = None  # when a worker that was told to stop ends its lives

    async def __aenter__(self) -> Worker:
        await self._open()
        self._running = asyncio.create_task(self.run())
        return self

    async def __aexit__(self, *exc: object) -> None:
        running, self._running = self._running, None
        if running is not None:
            if self._until is None:
                running.cancel()
            await asyncio.wait([running])

    def stop(self, drain: float = 10.0) -> None:
        """Take no more chats, and end `run()`, or the block, once no step of a chat runs.

        Running model calls and tool calls have `drain` seconds to end; the rest is cut off, as if
        the worker was cancelled. Other workers continue the chats. Call this in the event loop of
        the worker.
        """
        self._until = time.monotonic() + drain
        for life in list(self._lives.values()):
            life.journal.drain()

    async def run(self) -> None:
        """Work until stopped or cancelled, then release the running chats for other workers."""
        await self._open()
        self._last_call.open()
        whose = self._agent.name, self._jobs.queue, self._jobs.database.place
        logger.info("a worker of agent %r begins: it takes chats of the queue %r at %s", *whose)
        beating = self._start(self._repeat(self._look_after))
        try:
            while self._until is None or (self._lives and time.monotonic() < self._until):
                await self._guarded(self._take_jobs)
                await asyncio.sleep(self._poll)
        finally:
            beating.cancel()
            stopping = asyncio.ensure_future(self._stop())
            while not stopping.done():
                with suppress(asyncio.CancelledError):  # anyio, for one, cancels a task repeatedly
                    await asyncio.wait([stopping])
            stopping.result()

    async def _repeat(self, work: Callable[[], Awaitable[None]]) -> None:
        while True:
            await self._guarded(work)
            await asyncio.sleep(self._poll)

    async def _guarded(self, work: Callable[[], Awaitable[None]]) -> None:
        """Do a turn of the work; log its failure, because the worker must not end unnoticed."""
        try:
            await work()
        except StoreError as exc:
            logger.warning("the jobs cannot be read: %s", type(exc).__name__)
            logger.debug("the jobs cannot be read", exc_info=exc)
        except Exception as exc:  # of the engine
            logger.error("the worker could not look after its chats: %s", type(exc).__name__)
            logger.debug("the worker could not look after its chats", exc_info=exc)

    async def _open(self) -> None:
        if self._relay is not None:
            await self._relay.open()

    # ── lives ───────────────────────────────────────────────────────────────────────────────

    async def _look_after(self) -> None:
        """Renew our lives; abort them, put them aside, or end those that others have taken over."""
        for owner, id in list(self._unreleased.items()):
            await self._jobs.leave(id, owner)
            await self._lose(id, owner)
            del self._unreleased[owner]
        lives = dict(self._lives)
        owners = [*lives, *self._claims, *self._suspects.waiting]
        if not owners:
            return
        if self._until is not None and not self._excused.issuperset(owners):
            await self._jobs.excuse(owners)
            self._excused.update(owners)
        signs = await self._jobs.beat(owners)
        for owner in set(owners) - signs.keys():
            self._suspects.waiting.pop(owner, None)
            self._claims.pop(owner, None)
        if any(sign.drained for sign in signs.values()):
            await self._hand_over(lives)
        for owner, life in lives.items():
            if self._lives.get(owner) is not life:
                continue
            if owner not in signs:
                life.end()
                await self._lose(life.log.id, owner)
                continue
            await life.hear(signs[owner])
            abort = signs[owner].abort
            if abort is not None and life.aborting is None:
                life.aborting = self._start(life.abort(abort))
            else:
                await life.put_aside(self._idle)

    async def _hand_over(self, lives: dict[str, Life]) -> None:
        """Let running calls end, and release all chats: an operator drains the queue."""
        if not self._excused.issuperset(lives):
            await self._jobs.excuse([*lives])
            self._excused.update(lives)
        for life in lives.values():
            life.journal.drain()
        for owner in list(self._suspects.waiting):
            claim, _ = self._suspects.waiting.pop(owner)
            await self._jobs.leave(claim.id, owner)

    async def _lose(self, id: str, owner: str) -> None:
        """Tell the engine and the log that a life which lost its chat has not died."""
        if await self._jobs.undo_death(id, owner):
            self._metrics.add("leases_lost")
            logger.warning(
                "durable chat %s was lost: another worker took it over, because this one gave no "
                "sign of life for its lease; what still runs here may run there too",
                id,
            )

    async def _begin(self, claim: Claim) -> None:
        log = Log(self._jobs, claim, self._poll)
        try:
            if claim.abort is not None and not claim.batches:  # it ends without a life
                reason = msgspec.json.decode(claim.abort)
                await self._jobs.finish(claim.id, claim.owner, aborted_outcome(claim.id, reason))
                logger.info("durable chat %s was aborted before it began", claim.id)
                return
            journal = await Journal.open(claim.id, log)
        except JournalError as exc:
            await self._refuse(log, exc)
            return
        except StoreError:
            self._unreleased[claim.owner] = claim.id
            raise
        verb = "began" if journal.number == 1 else "continues"
        if claim.ending in ("died", "lapsed", "lost"):
            verb = "was taken over from a worker that gave no sign of life"
        logger.info("durable chat %s %s: life %d", claim.id, verb, journal.number)
        self._metrics.add("lives", previous=claim.ending or "none")
        journal.on_call = lambda: self._last_call.note(claim.id)
        life = self._lives[claim.owner] = Life(claim, log, journal)
        if self._until is not None:
            journal.drain()
        life.task = self._start(self._live_on(life))

    def _start(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """Start a task that is over before the engine is closed."""
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    async def _live_on(self, life: Life) -> None:
        log = life.log
        try:
            try:
                result = await life.run(self._agent, self._deps, self._relay)
            except Exception as exc:
                await self._refuse(log, exc)
                return
            finally:
                del self._lives[log.owner]
            await life.finish(result)
            if log.is_lost:
                await self._lose(log.id, log.owner)
        except StoreError as exc:  # the chat continues once it is released, or its lease expires
            self._unreleased[log.owner] = log.id
            logger.warning("durable chat %s cannot be recorded: %s", log.id, type(exc).__name__)

    async def _refuse(self, log: Log, exc: Exception) -> None:
        if await refuse(log, exc):
            self._refusals.add(log.id)
            self._metrics.add("refused")

    # ── jobs ────────────────────────────────────────────────────────────────────────────────

    async def _take_jobs(self) -> None:
        if self._until is not None:
            return
        if self._suspects.waiting or self._suspects.is_alone(self._lives):
            await self._begin_suspect()
            return
        free = self._concurrency - len(self._lives)
        if free > 0:
            name = self._last_call.worker
            for claim in await self._jobs.take(name, free, self._refusals, self._selection):
                logger.info("durable chat %s was claimed", claim.id)
                if claim.last is None:
                    self._claims[claim.owner] = claim
                else:
                    self._suspects.add(claim)
            if self._suspects.waiting:
                self._suspects.prime |= await asyncio.to_thread(self._last_call.take_dead)
                await self._begin_suspect()
            while self._claims:
                owner, claim = next(iter(self._claims.items()))
                try:
                    await self._begin(claim)
                finally:
                    self._claims.pop(owner, None)
        await self._look_around()

    async def _begin_suspect(self) -> None:
        claim = self._suspects.next(self._lives)
        if claim is None:
            return
        if self._lives and claim.strikes > 1:  # they take long: another worker may be free
            await self._jobs.leave(claim.id, claim.owner, PATIENCE)
            return
        await self._jobs.begin(claim.id, claim.owner)
        await self._begin(claim)

    async def _look_around(self) -> None:
        """Now and then, look for chats of other agents, measure the queue, delete old chats."""
        now = time.monotonic()
        if now >= self._next_look:
            self._next_look = now + _OTHERS_INTERVAL
            for other in await self._jobs.others(self._selection) - self._others:
                self._others.add(other)
                words = "chats of %s %r wait for a worker of that %s: this worker runs %s %r"
                kind, mine = other[0], getattr(self._selection, other[0])
                logger.warning(words, *other, kind, kind, mine)
            counts = await self._jobs.counts()
            if counts.drained and not self._drained:
                logger.warning(
                    "the queue %r is drained: this worker takes no chats before an operator "
                    "resumes it",
                    self._jobs.queue,
                )
            self._drained = counts.drained
            self._metrics.show(counts)
        if now >= self._next_cleanup and self._retention is not None:
            self._next_cleanup = now + _CLEANUP_INTERVAL
            await self._jobs.cleanup(time.time() - self._retention)

    async def _stop(self) -> None:
        for life in list(self._lives.values()):
            life.end()
        if self._tasks:  # some may be writing the outcome of their chat
            await asyncio.wait(self._tasks)
        self._last_call.close()
        try:
            if self._relay is not None:
                await self._relay.aclose()
        finally:
            await self._jobs.aclose()
