"""A worker for engines that are polled: it takes jobs, signals that it is alive, runs their lives.

Each job has an owner, one for each life. If another life takes over the job, our life is halted.
When a worker is stopped, its lives end between two steps; when it is cancelled, it halts them at
once. In both cases it releases their jobs. When a worker is killed, another worker takes over its
jobs after they gave no sign of life for a lease.
"""

from __future__ import annotations

import asyncio
import logging
import os
import time
from collections.abc import Coroutine
from contextlib import suppress
from functools import partial
from typing import Any, Final

import msgspec

from hookline import Agent, ApprovalRequest, Response
from hookline.durable._job import (
    LATE,
    Decision,
    MakeDeps,
    Relay,
    check_agent,
    encode_decision,
    encode_outcome,
    read_decision,
    run_job,
)
from hookline.durable._jobs import Jobs
from hookline.errors import JournalError, StoreError, UsageError
from hookline.runtimes import Halted, Journal

logger = logging.getLogger("hookline.durable")
_AGAIN: Final = 1.0  # seconds before a chat that could not be recorded is retried
_REFUSED: Final = 30.0  # seconds before another worker, or newer code, tries a refused chat


class _Log:
    """The log of one chat, as one life sees it."""

    def __init__(self, jobs: Jobs, id: str, owner: str, poll: float) -> None:
        self.jobs = jobs
        self.id = id
        self.owner = owner
        self.poll = poll
        self.waiting: dict[str, float | None] = {}  # questions, with their expiry times
        self.unstored: set[str] = set()  # those among them that nobody can answer yet

    async def read(self) -> list[bytes]:
        return await self.jobs.read(self.id, self.owner)

    async def append(self, data: bytes) -> None:
        if not await self.jobs.append(self.id, self.owner, data):
            raise Halted

    async def answer(self, request: ApprovalRequest) -> Decision:
        body = msgspec.json.encode(request).decode()
        self.waiting[request.id] = request.expires
        self.unstored.add(request.id)
        try:
            while True:
                late = request.expires is not None and time.time() >= request.expires
                default = encode_decision(LATE) if late else None
                try:
                    found = await self.jobs.ask(self.id, self.owner, request.id, body, default)
                    self.unstored.discard(request.id)
                except StoreError:  # the engine is not reachable; a question can wait for it
                    found = None
                if found is not None:
                    return read_decision(found)
                await asyncio.sleep(self.poll)
        finally:
            del self.waiting[request.id]
            self.unstored.discard(request.id)

    def poke(self) -> None:
        """Do nothing: the worker looks at each of its turns."""


class _Life:
    """One life of one chat in this worker."""

    def __init__(self, log: _Log, journal: Journal) -> None:
        self.log = log
        self.journal = journal
        self.task: asyncio.Task[None] | None = None
        self.rests_since: float | None = None
        self.aborting: asyncio.Task[None] | None = None

    def end(self) -> None:
        """End this life, also while it makes the deps of its chat."""
        self.journal.halt()
        if self.task is not None and self.journal.chat is None:
            self.task.cancel()


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
    ) -> None:
        check_agent(agent, relay)
        if concurrency < 1:
            raise UsageError(
                f"concurrency={concurrency!r} must be at least 1; the worker would run no chat"
            )
        self._agent = agent
        self._jobs = jobs
        self._deps = deps
        self._relay = relay
        self._concurrency = concurrency
        self._idle = idle
        self._poll = poll
        self._name = f"{os.getpid()}-{os.urandom(5).hex()}"
        self._lives: dict[str, _Life] = {}  # the current lives, by owner
        self._tasks: set[asyncio.Task[None]] = set()  # which use the engine
        self._refused: set[str] = set()  # chats that this code cannot continue
        self._others: set[str] = set()  # agents whose chats we have seen
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
        try:
            while not self._is_over():
                try:
                    await self._look_after()
                    await self._take_jobs()
                except StoreError as exc:
                    logger.warning("the jobs cannot be read: %s", type(exc).__name__)
                except Exception as exc:  # of the engine: the worker must not end unnoticed
                    name = type(exc).__name__
                    logger.error("the worker could not look after its chats: %s", name)
                    logger.debug("the worker could not look after its chats", exc_info=exc)
                await asyncio.sleep(self._poll)
        finally:
            stopping = asyncio.ensure_future(self._stop())
            while not stopping.done():
                with suppress(asyncio.CancelledError):  # anyio, for one, cancels a task repeatedly
                    await asyncio.wait([stopping])
            stopping.result()

    async def _open(self) -> None:
        if self._relay is not None:
            await self._relay.open()

    async def _look_after(self) -> None:
        """Renew our lives; abort them, put them aside, or end those that others have taken over."""
        if not self._lives:
            return
        ours = await self._jobs.beat(list(self._lives))
        for owner, life in list(self._lives.items()):
            if owner not in ours:
                life.end()
            elif ours[owner] is not None and life.aborting is None:
                life.aborting = self._start(self._abort(life, str(ours[owner])))
            else:
                await self._put_aside(life)

    async def _abort(self, life: _Life, reason: str) -> None:
        try:
            await life.journal.abort(msgspec.json.decode(reason))
            await self._jobs.aborted(life.log.id, life.log.owner)
        except (Halted, StoreError):
            pass  # the next life requests it again

    async def _put_aside(self, life: _Life) -> None:
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
        free = self._concurrency - len(self._lives)
        if free > 0 and self._until is None:
            taken = await self._jobs.take(self._name, free, self._refused, self._is_ours)
            for id, owner, job in taken:
                await self._begin(id, owner, job)

    def _is_ours(self, agent: str | None) -> bool:
        """Return whether a chat of this agent may run here; log once if it may not."""
        if agent is None or agent == self._agent.name:
            return True
        if agent not in self._others:
            self._others.add(agent)
            logger.warning(
                "chats of agent %r wait for a worker of that agent: this worker runs agent %r",
                agent,
                self._agent.name,
            )
        return False

    async def _begin(self, id: str, owner: str, text: str) -> None:
        log = _Log(self._jobs, id, owner, self._poll)
        try:
            journal = await Journal.open(id, log)
        except JournalError as exc:
            await self._refuse(log, exc)
            return
        life = self._lives[owner] = _Life(log, journal)
        if self._until is not None:
            journal.drain()
        life.task = self._start(self._live_on(life, text))

    def _start(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """Start a task that is over before the engine is closed."""
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    async def _live_on(self, life: _Life, text: str) -> None:
        try:
            await self._live(life, text)
        except StoreError as exc:  # the chat continues after its lease has expired
            name = type(exc).__name__
            logger.warning("durable chat %s cannot be recorded: %s", life.log.id, name)

    async def _live(self, life: _Life, text: str) -> None:
        log, journal = life.log, life.journal
        chat = partial(run_job, self._agent, journal, text, self._deps, self._relay)
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

    async def _refuse(self, log: _Log, exc: Exception) -> None:
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
