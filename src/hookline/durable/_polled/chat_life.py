"""One life of one chat in a worker of an engine that is polled, and its log."""

from __future__ import annotations

import asyncio
import logging
import time
from contextlib import suppress
from typing import Any, Final, NamedTuple

import msgspec

from hookline import Agent, ApprovalRequest, Response, UserMessage
from hookline.durable._job import (
    LATE,
    Decision,
    MakeDeps,
    Relay,
    Sent,
    When,
    encode_decision,
    encode_outcome,
    log_end,
    read_decision,
    read_sent,
    run_job,
)
from hookline.durable._polled.claims import Claim
from hookline.durable._polled.worker_operations import Jobs, Signs
from hookline.durable._shared.deaths import Progress
from hookline.durable._trace import in_trace
from hookline.errors import JournalError, StoreError
from hookline.runtimes import Halted, Journal

logger = logging.getLogger("hookline.durable")
RETRY_DELAY: Final = 1.0  # seconds before a chat that could not be recorded is retried
REFUSAL_DELAY: Final = 30.0  # seconds before another worker, or newer code, tries a refused chat


class _Question(NamedTuple):
    """A question that waits in this life."""

    expires: float | None
    answer: asyncio.Future[str]


class Log:
    """The log of one chat, as one life sees it."""

    def __init__(self, jobs: Jobs, claim: Claim, poll: float) -> None:
        self.jobs = jobs
        self.id = claim.id
        self.owner = claim.owner
        self._batches = claim.batches
        self._count = len(claim.batches)
        self._poll = poll
        self._progress = Progress() if claim.strikes else None
        self._received = 0  # the number of the last message that this life has read
        self._messages: list[Sent] = []  # for the chat
        self.waiting: dict[str, _Question] = {}
        self.unstored: set[str] = set()  # those among them that nobody can answer yet
        self.is_lost = False  # whether another life has the chat now

    @property
    def is_cleared(self) -> bool:
        """Whether this life is not a suspect, or has recorded a call."""
        return self._progress is None or self._progress.exists

    @property
    def forgives(self) -> bool:
        """Whether the deaths of earlier lives are forgotten if this life ends well."""
        return self._progress is not None and self._progress.exists

    @property
    def only_waits(self) -> bool:
        """Whether there are questions, all of them are stored, and none was answered just now."""
        has_news = any(question.answer.done() for question in self.waiting.values())
        return bool(self.waiting) and not self.unstored and not has_news

    async def read(self) -> list[bytes]:
        return self._batches

    async def append(self, data: bytes) -> None:
        if not await self.jobs.append(self.id, self.owner, self._count, data):
            self.is_lost = True
            raise Halted
        self._count += 1
        if self._progress is not None:
            self._progress.look(data)

    async def receive(self) -> list[tuple[UserMessage, When]]:
        """Return the messages that were sent into the chat since the last call.

        They wait for the next call while the engine is unreachable.
        """
        await self.read_messages()
        messages, self._messages = self._messages, []
        return [(sent.message, sent.when) for sent in messages]

    async def read_messages(self) -> list[Sent]:
        """Read the new messages, for the next call of `receive`."""
        try:
            rows = await self.jobs.messages(self.id, self._received)
        except StoreError:
            return []
        if rows:
            self._received = rows[-1][0]
        sent = [read_sent(row[1]) for row in rows]
        self._messages += sent
        return sent

    async def answer(self, request: ApprovalRequest) -> Decision:
        body = msgspec.json.encode(request).decode()
        answer: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        self.waiting[request.id] = _Question(request.expires, answer)
        self.unstored.add(request.id)
        try:
            text = await self._ask(request.id, body, None)
            self.unstored.discard(request.id)
            if text is None:
                limit = None if request.expires is None else request.expires - time.time()
                await asyncio.wait([answer], timeout=limit)
                late = encode_decision(LATE)
                text = answer.result() if answer.done() else await self._ask(request.id, body, late)
            return read_decision(text or encode_decision(LATE))
        finally:
            del self.waiting[request.id]
            self.unstored.discard(request.id)

    async def _ask(self, id: str, body: str, default: str | None) -> str | None:
        """Store a question; returns its answer. A question can wait for an unreachable engine."""
        while True:
            question = self.waiting[id]
            late = question.expires is not None and time.time() >= question.expires
            default = encode_decision(LATE) if late else default
            try:
                return await self.jobs.ask(self.id, self.owner, id, body, default)
            except StoreError:
                await asyncio.sleep(self._poll)

    def hear(self, answers: dict[str, str]) -> None:
        """Pass answers to the questions that wait for them."""
        for id, text in answers.items():
            question = self.waiting.get(id)
            if question is not None and not question.answer.done():
                question.answer.set_result(text)

    def poke(self) -> None:
        """Do nothing: the worker looks at each of its turns."""


class Life:
    """One life of one chat in this worker."""

    def __init__(self, claim: Claim, log: Log, journal: Journal) -> None:
        self.claim = claim
        self.log = log
        self.journal = journal
        journal.receive = log.receive
        self.task: asyncio.Task[None] | None = None
        self.rests_since: float | None = None
        self.aborting: object = claim.abort  # the task that aborts, if there is one

    def end(self) -> None:
        """End this life, also while it makes the deps of its chat."""
        self.journal.halt()
        if self.task is not None and self.journal.chat is None:
            self.task.cancel()

    async def run(
        self, agent: Agent[Any], deps: MakeDeps | None, relay: Relay | None
    ) -> Response[Any] | Exception | None:
        """Run the chat; returns what it came to, or None if this life ended before.

        Raises the exception that halted this life.
        """
        claim, journal = self.claim, self.journal

        async def chat() -> Response[Any]:
            if claim.abort is not None:  # recorded before anything runs
                await journal.abort(msgspec.json.decode(claim.abort))
            return await run_job(agent, journal, claim.job, deps, relay)

        try:
            with in_trace(claim.trace):
                return await journal.carry(chat)
        except (Halted, asyncio.CancelledError):
            if not journal.halted:
                raise
            return None
        except Exception as exc:
            if journal.halted:
                raise
            return exc

    async def finish(self, result: Response[Any] | Exception | None) -> None:
        """Store what the chat came to, or release it, unless another life has it now."""
        log = self.log
        if result is None:
            await log.jobs.leave(log.id, log.owner, forgive=log.forgives)
        elif await log.jobs.finish(log.id, log.owner, encode_outcome(log.id, result)):
            log_end(log.id, result)
        else:
            log.is_lost = True

    async def abort(self, reason: str) -> None:
        """Abort the chat; the next life does it if this one ends meanwhile."""
        with suppress(Halted):
            await self.journal.abort(msgspec.json.decode(reason))

    async def hear(self, signs: Signs) -> None:
        """Pass on the answers that came, and the messages that interrupt."""
        self.log.hear(signs.answers)
        for sent in await self.log.read_messages() if signs.news else ():
            if sent.interrupts:
                self.journal.interrupt(sent.message.id)

    async def put_aside(self, idle: float) -> None:
        """Put aside a chat that has only waited for `idle` seconds: it needs no worker."""
        log, now = self.log, time.monotonic()
        if not self.journal.resting or not log.only_waits:
            self.rests_since = None
            return
        if self.rests_since is None:
            self.rests_since = now
        if now - self.rests_since < idle:
            return
        expiries = [q.expires for q in log.waiting.values() if q.expires is not None]
        wake = min(expiries, default=None)
        if await log.jobs.rest(log.id, log.owner, wake, forgive=log.forgives):
            self.journal.halt()
            logger.info("durable chat %s waits for an answer", log.id)


async def refuse(log: Log, exc: Exception) -> bool:
    """Leave a chat unchanged, which this life cannot run; returns whether other code must run it.

    Otherwise it is tried again soon.
    """
    is_code = isinstance(exc, JournalError)
    why = exc.why if isinstance(exc, JournalError) else type(exc).__name__
    logger.error("durable chat %s cannot continue here: %s", log.id, why)
    logger.debug("durable chat %s", log.id, exc_info=exc)
    await log.jobs.leave(log.id, log.owner, REFUSAL_DELAY if is_code else RETRY_DELAY)
    return is_code
