"""The lives in a worker of an engine that is polled: the log of one life, and the suspects' turns.

A suspect is a chat whose last life has died. It waits until its worker runs nothing else, but not
for ever, and nothing else begins before it has recorded a call.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Mapping
from contextlib import suppress

import msgspec

from hookline import ApprovalRequest
from hookline.durable._job import LATE, Decision, encode_decision, read_decision
from hookline.durable._polled.deaths import PATIENCE, TRIAL, Progress
from hookline.durable._polled.queue import Jobs, Taken
from hookline.errors import StoreError
from hookline.runtimes import Halted, Journal


class Log:
    """The log of one chat, as one life sees it."""

    def __init__(self, jobs: Jobs, job: Taken, poll: float) -> None:
        self.jobs = jobs
        self.id = job.id
        self.owner = job.owner
        self.poll = poll
        self.progress = Progress() if job.deaths else None  # as long as it is a suspect
        self.waiting: dict[str, float | None] = {}  # questions, with their expiry times
        self.unstored: set[str] = set()  # those among them that nobody can answer yet

    async def read(self) -> list[bytes]:
        return await self.jobs.read(self.id, self.owner)

    async def append(self, data: bytes) -> None:
        if not await self.jobs.append(self.id, self.owner, data):
            raise Halted
        if self.progress is not None and self.progress.look(data):
            with suppress(StoreError):  # the next append tries it again
                await self.jobs.clear(self.id, self.owner)
                self.progress = None

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


class Life:
    """One life of one chat in this worker."""

    def __init__(self, log: Log, journal: Journal) -> None:
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


class Suspects:
    """The suspects that a worker has claimed; one at a time may begin."""

    def __init__(self) -> None:
        self.waiting: dict[str, tuple[Taken, float]] = {}  # by owner, each with its time
        self._alone: tuple[str, float] | None = None  # the one that runs alone, and until when

    def add(self, job: Taken) -> None:
        """Let a suspect wait for its turn."""
        self.waiting[job.owner] = job, time.monotonic()

    def is_alone(self, lives: Mapping[str, Life]) -> bool:
        """Return whether a suspect runs beside which nothing may begin yet."""
        if self._alone is None:
            return False
        owner, until = self._alone
        life = lives.get(owner)
        if life is None:
            self._alone = None
        elif life.log.progress is None or time.monotonic() >= until:
            self._alone = None
            if self.waiting:  # it makes room for them between two steps
                life.journal.drain()
        return self._alone is not None

    def next(self, lives: Mapping[str, Life]) -> Taken | None:
        """Return the suspect whose turn it is: it begins, or has waited for too long."""
        if not self.waiting or self.is_alone(lives):
            return None
        owner, (job, since) = next(iter(self.waiting.items()))
        now = time.monotonic()
        if lives and now - since < (TRIAL if job.deaths == 1 else PATIENCE):
            return None
        del self.waiting[owner]
        self._alone = owner, now + TRIAL if job.deaths == 1 else math.inf
        return job
