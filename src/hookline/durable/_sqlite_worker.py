"""A worker of `hookline.durable.sqlite`: it takes jobs, tells that it lives, and lives their lives.

Each job is held by an owner, one for each life. What another life took over meanwhile halts ours.
A worker that is stopped halts its lives and gives the jobs back; one that is killed leaves them to
whoever finds that nothing has counted up `beat` for a lease, by a clock of its own.
"""

from __future__ import annotations

import asyncio
import logging
import os
import time
from typing import Any, Final

import msgspec

from hookline import Agent, ApprovalRequest, Approve, Deny, Response
from hookline.durable._job import MakeDeps, encode_outcome, run_job
from hookline.durable._sqlite import Claim, Jobs
from hookline.errors import JournalError, StoreError, UsageError
from hookline.runtimes import Durable, Halted, Journal

logger = logging.getLogger("hookline.durable")
Decision = Approve | Deny
_decision: Final[msgspec.json.Decoder[Decision]] = msgspec.json.Decoder(Approve | Deny)
_LATE: Final = Deny("the question expired before it was answered")


class _Log:
    """The log of one chat, as this life of it has it."""

    def __init__(self, jobs: Jobs, id: str, owner: str, poll: float) -> None:
        self.jobs = jobs
        self.id = id
        self.owner = owner
        self.poll = poll
        self.waiting: dict[str, float | None] = {}  # questions, and when they expire

    async def read(self) -> list[bytes]:
        return await self.jobs.read(self.id)

    async def append(self, data: bytes) -> None:
        if not await self.jobs.append(self.id, self.owner, data):
            raise Halted

    async def answer(self, request: ApprovalRequest) -> Decision:
        body = msgspec.json.encode(request).decode()
        self.waiting[request.id] = request.expires
        try:
            while True:
                late = request.expires is not None and time.time() >= request.expires
                default = msgspec.json.encode(_LATE).decode() if late else None
                found = await self.jobs.ask(self.id, request.id, body, default)
                if found is not None:
                    return _decision.decode(found)
                await asyncio.sleep(self.poll)
        finally:
            del self.waiting[request.id]

    def poke(self) -> None:
        """The worker looks by itself, at each of its turns."""


class _Life:
    """One life of one chat in this worker."""

    def __init__(self, log: _Log, journal: Journal) -> None:
        self.log = log
        self.journal = journal
        self.rests_since: float | None = None
        self.aborting: asyncio.Task[None] | None = None
        self.task: asyncio.Task[None]


class Worker:
    """Runs the durable chats of a file: `async with chats(agent, file): …`, or `await run()`.

    Raises UsageError for an agent without `runtime=Durable()`, or a lease that is too short.
    """

    def __init__(
        self,
        agent: Agent[Any],
        file: str | os.PathLike[str],
        *,
        deps: MakeDeps | None = None,
        concurrency: int = 100,
        lease: float = 1.0,
        idle: float = 1.0,
        poll: float = 0.1,
    ) -> None:
        if not isinstance(agent.runtime, Durable):
            raise UsageError(
                f"{agent!r} runs no durable chats: make it with Agent(..., runtime=Durable())"
            )
        if lease < 3 * poll:
            raise UsageError(f"lease={lease!r} must be at least three times poll={poll!r}")
        self._agent = agent
        self._jobs = Jobs(os.fspath(file))
        self._deps = deps
        self._concurrency = concurrency
        self._lease = lease
        self._idle = idle
        self._poll = poll
        self._name = f"{os.getpid()}-{os.urandom(5).hex()}"
        self._count = 0
        self._lives: dict[str, _Life] = {}  # by owner
        self._seen: dict[str, tuple[Claim, float]] = {}  # jobs of others, since when
        self._refused: set[str] = set()  # what this code cannot go on with
        self._running: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Worker:
        self._running = asyncio.create_task(self.run())
        return self

    async def __aexit__(self, *exc: object) -> None:
        running, self._running = self._running, None
        if running is not None:
            running.cancel()
            await asyncio.wait([running])

    async def run(self) -> None:
        """Work until it is cancelled; then give back what runs, for another worker to go on."""
        try:
            while True:
                try:
                    await self._look_after()
                    await self._take_jobs()
                except StoreError as exc:
                    logger.warning("the jobs cannot be looked at: %s", type(exc).__name__)
                await asyncio.sleep(self._poll)
        finally:
            await self._stop()

    async def _look_after(self) -> None:
        """Tell that our lives live; abort, put aside, or end those that are another's now."""
        if not self._lives:
            return
        ours = await self._jobs.beat(list(self._lives))
        for owner, life in list(self._lives.items()):
            if owner not in ours:
                life.journal.halt()
            elif ours[owner] is not None and life.aborting is None:
                life.aborting = asyncio.create_task(self._abort(life, str(ours[owner])))
            else:
                await self._put_aside(life)

    async def _abort(self, life: _Life, reason: str) -> None:
        try:
            await life.journal.abort(msgspec.json.decode(reason))
            await self._jobs.aborted(life.log.id, life.log.owner)
        except (Halted, StoreError):
            pass  # it is asked for in the next life again

    async def _put_aside(self, life: _Life) -> None:
        """A chat of which nothing goes on but waiting needs no worker."""
        log, now = life.log, time.monotonic()
        if not life.journal.resting or not log.waiting:
            life.rests_since = None
            return
        if life.rests_since is None:
            life.rests_since = now
        if now - life.rests_since >= self._idle:
            wakes = [each for each in log.waiting.values() if each is not None]
            wake = min(wakes) if wakes else None
            if await self._jobs.rest(log.id, log.owner, list(log.waiting), wake):
                life.journal.halt()

    async def _take_jobs(self) -> None:
        for job in await self._jobs.open_jobs():
            if len(self._lives) >= self._concurrency:
                return
            if job.id in self._refused or job.owner in self._lives or not self._is_free(job):
                continue
            self._count += 1
            owner = f"{self._name}.{self._count}"
            text = await self._jobs.claim(job, owner)
            if text is not None:
                self._seen.pop(job.id, None)
                await self._begin(job.id, owner, text)

    def _is_free(self, job: Claim) -> bool:
        """Nobody has it, or who has it gave no sign for the length of a lease: no clock tells."""
        if job.owner is None:
            return True
        now = time.monotonic()
        seen, since = self._seen.get(job.id, (None, now))
        if seen == job:
            return now - since >= self._lease
        self._seen[job.id] = (job, now)
        return False

    async def _begin(self, id: str, owner: str, text: str) -> None:
        log = _Log(self._jobs, id, owner, self._poll)
        try:
            journal = await Journal.open(id, log)
        except JournalError as exc:
            await self._refuse(log, exc)
            return
        life = self._lives[owner] = _Life(log, journal)
        life.task = asyncio.create_task(self._live(life, text))

    async def _live(self, life: _Life, text: str) -> None:
        log, journal = life.log, life.journal
        came_to: Response | Exception
        try:
            came_to = await journal.carry(
                lambda: run_job(self._agent, log.id, text, self._deps),
            )
        except Halted:
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
        """This life cannot go on with it: the chat is left as it is, for other code or later."""
        logger.error("durable chat %s cannot go on here: %s", log.id, type(exc).__name__)
        logger.debug("durable chat %s", log.id, exc_info=exc)
        if isinstance(exc, JournalError):
            self._refused.add(log.id)
        await self._jobs.leave(log.id, log.owner)

    async def _stop(self) -> None:
        tasks = [life.task for life in self._lives.values()]
        for life in list(self._lives.values()):
            life.journal.halt()
        if tasks:
            await asyncio.wait(tasks)
        self._jobs.close()


def chats(
    agent: Agent[Any],
    file: str | os.PathLike[str],
    *,
    deps: MakeDeps | None = None,
    concurrency: int = 100,
    lease: float = 1.0,
    idle: float = 1.0,
    poll: float = 0.1,
) -> Worker:
    """A worker for the durable chats in a file.

    `deps` makes of a chat's JSON what its hooks and tools get. `concurrency` chats run at once;
    `lease` seconds without a sign make a worker a dead one; a chat that only waits is put aside
    after `idle` seconds; `poll` seconds lie between two looks into the file.
    """
    return Worker(
        agent, file, deps=deps, concurrency=concurrency, lease=lease, idle=idle, poll=poll
    )
