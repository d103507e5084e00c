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
import os
import time
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import suppress
from typing import Any, Final

import msgspec

from hookline import Agent, Response
from hookline.durable._job import (
    MakeDeps,
    Relay,
    aborted_outcome,
    check_agent,
    encode_outcome,
    run_job,
)
from hookline.durable._polled.deaths import MAX_DEATHS, PATIENCE
from hookline.durable._polled.life import Life, Log, Suspects
from hookline.durable._polled.queue import Jobs, Taken
from hookline.errors import JournalError, StoreError, UsageError
from hookline.runtimes import Halted, Journal

logger = logging.getLogger("hookline.durable")
_AGAIN: Final = 1.0  # seconds before a chat that could not be recorded is retried
_REFUSED: Final = 30.0  # seconds before another worker, or newer code, tries a refused chat
_OTHERS: Final = 10.0  # seconds between two looks for the chats of other agents


class Worker:
    """Runs durable chats: `async with chats(agent, …): …`, or `await worker.run()`.

    Raises UsageError if the agent cannot run durable chats, or if `concurrency` is below 1.
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
        max_deaths: int = MAX_DEATHS,
    ) -> None:
        check_agent(agent, relay)
        if concurrency < 1:
            raise UsageError(
                f"concurrency={concurrency!r} must be at least 1; the worker would run no chat"
            )
        if max_deaths < 1:
            raise UsageError(f"max_deaths={max_deaths!r} must be at least 1")
        self._agent = agent
        self._jobs = jobs
        self._deps = deps
        self._relay = relay
        self._concurrency = concurrency
        self._idle = idle
        self._poll = poll
        self._name = f"{os.getpid()}-{os.urandom(5).hex()}"
        self._lives: dict[str, Life] = {}  # the current lives, by owner
        self._tasks: set[asyncio.Task[None]] = set()  # which use the engine
        self._refused: set[str] = set()  # chats that this code cannot continue
        self._others: set[str] = set()  # agents whose chats we have seen
        self._looked = 0.0  # when we looked for them
        self._max_deaths = max_deaths
        self._claimed: dict[str, Taken] = {}  # jobs that are about to begin, by owner
        self._suspects = Suspects()
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

    def _is_over(self) -> bool:
        late = self._until is not None and time.monotonic() >= self._until
        return late or (self._until is not None and not self._lives)

    async def run(self) -> None:
        """Work until stopped or cancelled, then release the running chats for other workers."""
        await self._open()
        beating = self._start(self._repeat(self._look_after))
        try:
            while not self._is_over():
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
        except Exception as exc:  # of the engine
            name = type(exc).__name__
            logger.error("the worker could not look after its chats: %s", name)
            logger.debug("the worker could not look after its chats", exc_info=exc)

    async def _open(self) -> None:
        if self._relay is not None:
            await self._relay.open()

    async def _look_after(self) -> None:
        """Renew our lives; abort them, put them aside, or end those that others have taken over."""
        for owner, id in list(self._unreleased.items()):
            await self._jobs.leave(id, owner)
            await self._lose(id, owner)
            del self._unreleased[owner]
        lives = dict(self._lives)
        owners = [*lives, *self._claimed, *self._suspects.waiting]
        if not owners:
            return
        ours = await self._jobs.beat(owners)
        for owner in owners:
            if owner not in ours:
                self._suspects.waiting.pop(owner, None)
                self._claimed.pop(owner, None)
        for owner, life in lives.items():
            if self._lives.get(owner) is not life:
                continue
            if owner not in ours:
                life.end()
                await self._lose(life.log.id, owner)
            elif ours[owner] is not None and life.aborting is None:
                life.aborting = self._start(self._abort(life, str(ours[owner])))
            else:
                await self._put_aside(life)

    async def _lose(self, id: str, owner: str) -> None:
        """Tell the engine that a life which lost its chat has not died."""
        with suppress(UsageError):  # the chat was deleted meanwhile
            await self._jobs.lost(id, owner)

    async def _abort(self, life: Life, reason: str) -> None:
        try:
            await life.journal.abort(msgspec.json.decode(reason))
            await self._jobs.aborted(life.log.id, life.log.owner)
        except (Halted, StoreError):
            pass  # the next life requests it again

    async def _put_aside(self, life: Life) -> None:
        """Put aside a chat that only waits: it needs no worker."""
        log, now = life.log, time.monotonic()
        if not life.journal.resting or not log.waiting or log.unstored:
            life.rests_since = None
            return
        if life.rests_since is None:
            life.rests_since = now
        if now - life.rests_since >= self._idle:
            wake = min((each for each in log.waiting.values() if each is not None), default=None)
            if await self._jobs.rest(log.id, log.owner, list(log.waiting), wake):
                life.journal.halt()

    async def _take_jobs(self) -> None:
        if self._until is not None:
            return
        if self._suspects.waiting or self._suspects.is_alone(self._lives):
            await self._begin_suspect()
            return
        free = self._concurrency - len(self._lives)
        if free > 0:
            jobs = await self._jobs.take(
                self._name, free, self._refused, self._agent.name, self._max_deaths
            )
            for job in jobs:
                if job.deaths:
                    self._suspects.add(job)
                else:
                    self._claimed[job.owner] = job
            while self._claimed:
                owner, job = next(iter(self._claimed.items()))
                try:
                    await self._begin(job)
                finally:
                    self._claimed.pop(owner, None)
        if time.monotonic() - self._looked >= _OTHERS or not self._looked:
            self._looked = time.monotonic()
            for agent in await self._jobs.others(self._agent.name) - self._others:
                self._others.add(agent)
                logger.warning(
                    "chats of agent %r wait for a worker of that agent: this worker runs agent %r",
                    agent,
                    self._agent.name,
                )

    async def _begin_suspect(self) -> None:
        job = self._suspects.next(self._lives)
        if job is None:
            return
        if self._lives and job.deaths > 1:  # they take long: another worker may be free
            await self._jobs.leave(job.id, job.owner, PATIENCE)
            return
        await self._jobs.begin(job.id, job.owner)
        await self._begin(job)

    async def _begin(self, job: Taken) -> None:
        log = Log(self._jobs, job, self._poll)
        try:
            if job.abort is not None and not await log.read():  # it ends without a life
                reason = msgspec.json.decode(job.abort)
                await self._jobs.finish(job.id, job.owner, aborted_outcome(job.id, reason))
                logger.info("durable chat %s was aborted before it began", job.id)
                return
            journal = await Journal.open(job.id, log)
        except JournalError as exc:
            await self._refuse(log, exc)
            return
        except StoreError:
            self._unreleased[job.owner] = job.id
            raise
        verb = "began" if journal.number == 1 else "continues"
        logger.info("durable chat %s %s: life %d", job.id, verb, journal.number)
        life = self._lives[job.owner] = Life(log, journal)
        if self._until is not None:
            journal.drain()
        life.task = self._start(self._live_on(life, job))
        if job.abort is not None:
            life.aborting = life.task

    def _start(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """Start a task that is over before the engine is closed."""
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    async def _live_on(self, life: Life, job: Taken) -> None:
        try:
            await self._live(life, job)
        except StoreError as exc:  # the chat continues once it is released, or its lease expires
            self._unreleased[life.log.owner] = life.log.id
            name = type(exc).__name__
            logger.warning("durable chat %s cannot be recorded: %s", life.log.id, name)

    async def _live(self, life: Life, job: Taken) -> None:
        log, journal = life.log, life.journal

        async def chat() -> Response[Any]:
            if job.abort is not None:  # recorded before anything runs
                await journal.abort(msgspec.json.decode(job.abort))
                await self._jobs.aborted(log.id, log.owner)
            return await run_job(self._agent, journal, job.job, self._deps, self._relay)

        try:
            came_to: Response | Exception = await journal.carry(chat)
        except (Halted, asyncio.CancelledError):
            if not journal.halted:
                raise
            await self._jobs.leave(log.id, log.owner)
            return
        except Exception as exc:
            if journal.halted:
                await self._refuse(log, exc)
                return
            came_to = exc
        finally:
            del self._lives[log.owner]
        await self._jobs.finish(log.id, log.owner, encode_outcome(log.id, came_to))
        name = "done" if isinstance(came_to, Response) else type(came_to).__name__
        logger.info("durable chat %s ended: %s", log.id, name)

    async def _refuse(self, log: Log, exc: Exception) -> None:
        """Leave a chat unchanged, for other code or a later attempt: this life cannot run it."""
        why = exc.why if isinstance(exc, JournalError) else type(exc).__name__
        logger.error("durable chat %s cannot continue here: %s", log.id, why)
        logger.debug("durable chat %s", log.id, exc_info=exc)
        if isinstance(exc, JournalError):
            self._refused.add(log.id)
            await self._jobs.leave(log.id, log.owner, _REFUSED)
        else:
            await self._jobs.leave(log.id, log.owner, _AGAIN)

    async def _stop(self) -> None:
        for life in list(self._lives.values()):
            life.end()
        if self._tasks:  # some may be writing the outcome of their chat
            await asyncio.wait(self._tasks)
        try:
            if self._relay is not None:
                await self._relay.aclose()
        finally:
            await self._jobs.aclose()
