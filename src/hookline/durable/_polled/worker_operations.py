"""The operations of workers on the tables: claim jobs, give signs of life, record, ask, release."""

from __future__ import annotations

import time
from collections.abc import Collection
from contextlib import suppress
from typing import NamedTuple

from hookline.durable._polled.claims import (
    ANY,
    DRAINED,
    FIRST,
    FIT,
    LAPSED,
    MINE,
    ONE_DEATH_LESS,
    READY,
    Claim,
    Claims,
    Selection,
    ending_of,
    forgiven,
)
from hookline.durable._polled.client_operations import ClientOperations
from hookline.durable._polled.database import APPEND, FINISH, Database, Row, Statement, Work
from hookline.durable._shared.deaths import log_quarantine
from hookline.durable._status import state_of
from hookline.errors import StoreError


class Signs(NamedTuple):
    """What a life hears with its sign of life."""

    abort: str | None
    answers: dict[str, str]
    news: bool = False  # an answer, or a message that interrupts
    drained: bool = False  # by an operator


class Jobs(ClientOperations):
    """The jobs of one queue, as workers see them."""

    def __init__(self, database: Database, queue: str, poll: float, lease: float = 3.0) -> None:
        super().__init__(database, queue, poll)
        self._claims = Claims(queue, database, lease)
        self._lease = lease
        self._worker: str | None = None
        self._turns = 0
        self._last_beat = 0.0
        self._answers: dict[str, int] = {}  # messages with answers that a life has heard, by owner

    # ── claims ──────────────────────────────────────────────────────────────────────────────

    async def take(
        self,
        worker: str,
        limit: int,
        refusals: Collection[str] = (),
        selection: Selection = ANY,
    ) -> list[Claim]:
        """Claim jobs without an owner, after those whose worker gave no sign of life were freed."""
        await self.database.prepare()
        if self._worker is None:  # this worker may take the place of one that was killed
            await self._claims.end_those_of_the_gone()
        self._worker = worker
        fit = (selection.agent, selection.pinned, list(refusals))
        sql = (
            f"SELECT EXISTS (SELECT 1 FROM hookline_job WHERE {FIT} {FIRST} LIMIT 1), "
            f"EXISTS (SELECT 1 FROM hookline_job WHERE {LAPSED}) "
            "OR EXISTS (SELECT 1 FROM hookline_job WHERE queue = $1 AND resting AND wake <= TIME())"
        )
        [(are_ready, are_due)] = await self.database.fetch(sql, self.queue, *fit, reads=True)
        if are_due:
            await self.database.run(self._claims.wake)
            for id, deaths in await self.database.run(lambda: self._claims.sweep(selection)):
                log_quarantine(id, deaths)
        elif not are_ready:
            return []
        self._turns += 1
        prefix = f"{self.database.boot}{worker}.{self._turns}."
        claims = await self.database.run(lambda: self._claims.claim(prefix, limit, fit, selection))
        self._answers.update({claim.owner: answers for claim, answers in claims})
        return [claim for claim, _ in claims]

    async def others(self, selection: Selection) -> set[tuple[str, str]]:
        """Return the other agents and versions that ready jobs are for."""
        sql = (
            "SELECT 'agent', agent FROM (SELECT agent FROM hookline_job "
            f"WHERE {READY} AND agent <> $2 {FIRST} LIMIT 100) a UNION "
            "SELECT 'version', version FROM (SELECT version FROM hookline_job "
            f"WHERE {READY} AND {MINE} AND version <> CAST($3 AS text) {FIRST} LIMIT 100) b"
        )
        values = self.queue, selection.agent, selection.pinned
        rows = await self.database.fetch(sql, *values, reads=True)
        return {(row[0], row[1]) for row in rows}

    # ── lives ───────────────────────────────────────────────────────────────────────────────

    async def begin(self, id: str, owner: str) -> None:
        """Note that the life of a suspect begins: its death counts from now on."""
        sql = (
            "UPDATE hookline_job_life SET counts = TRUE WHERE queue = $1 AND id = $2 AND owner = $3"
        )
        await self.database.fetch(sql, self.queue, id, owner)

    async def excuse(self, owners: list[str]) -> None:
        """Note that the worker of these lives was told to stop: their death does not count."""
        sql = (
            "UPDATE hookline_job_life SET counts = FALSE WHERE queue = $1 AND owner = ANY($2) "
            "AND ended IS NULL"
        )
        await self.database.fetch(sql, self.queue, owners)

    async def undo_death(self, id: str, owner: str) -> bool:
        """Take back the death of a life that has lost its job, but did not die.

        Returns False if its job has not been taken from it.
        """

        def work() -> Work[bool]:
            sql = (
                "UPDATE hookline_job_life SET ending = 'lost' WHERE queue = $1 AND id = $2 "
                "AND owner = $3 AND ending IN ('died', 'lapsed') RETURNING counts"
            )
            rows = yield Statement(sql, (self.queue, id, owner))
            if not rows or not rows[0][0]:  # its death did not count
                return bool(rows)
            sql = (
                "UPDATE hookline_job SET suspect = CASE WHEN deaths > 1 THEN suspect END, "
                f"{ONE_DEATH_LESS} WHERE queue = $1 AND id = $2 AND outcome IS NULL"
            )
            yield Statement(sql, (self.queue, id))
            return True

        self._answers.pop(owner, None)
        return await self.database.run(work)

    async def beat(self, owners: list[str]) -> dict[str, Signs]:
        """Renew lives; returns those that still own their job, with what they hear."""
        now = time.monotonic()
        if now - self._last_beat >= self._lease / 4:
            # A row that somebody else has locked is renewed in the next turn.
            sql = (
                "UPDATE hookline_job SET lease = CLOCK() + $3 WHERE queue = $1 AND id IN ("
                "SELECT id FROM hookline_job WHERE queue = $1 AND owner = ANY($2) "
                "FOR UPDATE SKIP LOCKED)"
            )
            await self.database.fetch(sql, self.queue, owners, self._lease)
            self._last_beat = now
        sql = (
            f"SELECT id, owner, abort, answers, {DRAINED} FROM hookline_job "
            "WHERE queue = $1 AND owner = ANY($2)"
        )
        rows = await self.database.fetch(sql, self.queue, owners, reads=True)
        news = [row[0] for row in rows if self._answers.get(row[1]) != row[3]]
        answers: dict[str, dict[str, str]] = {}
        if news:
            sql = (
                "SELECT id, request, answer FROM hookline_job_question "
                "WHERE queue = $1 AND id = ANY($2) AND answer IS NOT NULL"
            )
            for id, request, answer in await self.database.fetch(sql, self.queue, news, reads=True):
                answers.setdefault(id, {})[request] = answer
        self._answers.update({owner: count for _, owner, _, count, _ in rows})
        return {
            owner: Signs(abort, answers.get(id, {}), id in news, bool(drained))
            for id, owner, abort, _, drained in rows
        }

    async def append(self, id: str, owner: str, n: int, data: bytes) -> bool:
        """Append a batch at this place of the record; False if another life owns the job now."""
        return await self.database.apply(APPEND, (self.queue, id, owner, n, data))

    async def ask(
        self, id: str, owner: str, request: str, body: str, default: str | None
    ) -> str | None:
        """Store a question, unless it exists; returns its answer, if there is one.

        Has no effect if another life owns the job now. `default` answers the question if there is
        no answer: its time has expired.
        """

        def work() -> Work[str | None]:
            if default is None:
                mine = "SELECT id FROM hookline_job WHERE queue = $1 AND id = $2 AND owner = $3"
            else:
                mine = (
                    "UPDATE hookline_job SET answers = answers + 1 "
                    "WHERE queue = $1 AND id = $2 AND owner = $3 RETURNING id"
                )
            if not (yield Statement(mine, (self.queue, id, owner))):
                return None
            at = (self.queue, id, request)
            sql = (
                "INSERT INTO hookline_job_question (queue, id, request, body, asked) "
                "VALUES ($1, $2, $3, $4, TIME()) ON CONFLICT DO NOTHING"
            )
            yield Statement(sql, (*at, body))
            if default is not None:
                sql = (
                    "UPDATE hookline_job_question SET answer = $4, answered = TIME() "
                    "WHERE queue = $1 AND id = $2 AND request = $3 AND answer IS NULL"
                )
                yield Statement(sql, (*at, default))
            sql = (
                "SELECT answer FROM hookline_job_question "
                "WHERE queue = $1 AND id = $2 AND request = $3"
            )
            [[answer]] = yield Statement(sql, at)
            return None if answer is None else str(answer)

        return await self.database.run(work)

    async def messages(self, id: str, after: int) -> list[Row]:
        """Return the numbers and bodies of the messages to a job after this number."""
        sql = (
            "SELECT n, body FROM hookline_job_message "
            "WHERE queue = $1 AND id = $2 AND n > $3 ORDER BY n"
        )
        return await self.database.fetch(sql, self.queue, id, after, reads=True)

    async def rest(self, id: str, owner: str, wake: float | None, *, forgive: bool) -> bool:
        """Put a job aside that waits for answers; False if there is something new to hear.

        With `forgive`, its deaths are forgotten: this life has made progress, and ended well.
        """

        def work() -> Work[bool]:
            sql = (
                "UPDATE hookline_job SET owner = NULL, lease = NULL, resting = TRUE, wake = $4, "
                f"{forgiven('$5')} WHERE queue = $1 AND id = $2 AND owner = $3 "
                "AND abort IS NULL AND answers = $6 RETURNING id"
            )
            values = (self.queue, id, owner, wake, forgive, self._answers.get(owner, -1))
            if not (yield Statement(sql, values)):
                return False
            yield ending_of(self.queue, id, owner, "waits")
            return True

        done = await self.database.run(work)
        if done:
            self._answers.pop(owner, None)
        return done

    async def leave(
        self, id: str, owner: str, delay: float = 0.0, *, forgive: bool = False
    ) -> None:
        """Release a job for any other life, after `delay` seconds."""
        await self.database.run(lambda: self._leave(id, owner, delay, forgive=forgive))
        self._answers.pop(owner, None)

    def _leave(self, id: str, owner: str, delay: float, *, forgive: bool) -> Work[None]:
        sql = (
            "UPDATE hookline_job SET owner = NULL, lease = NULL, "
            "resting = CAST($4 AS double precision) > 0, "
            "wake = CASE WHEN CAST($4 AS double precision) > 0 THEN TIME() + $4 END, "
            f"{forgiven('$5')} WHERE queue = $1 AND id = $2 AND owner = $3 RETURNING id"
        )
        if (yield Statement(sql, (self.queue, id, owner, delay, forgive))):
            yield ending_of(self.queue, id, owner, "released")

    async def finish(self, id: str, owner: str, outcome: str) -> bool:
        """Store the outcome of a job; False if another life owns the job now."""
        item = (self.queue, id, owner, outcome, state_of(outcome))
        done = await self.database.apply(FINISH, item)
        self._answers.pop(owner, None)
        return done

    async def release(self) -> None:
        """Release all jobs that this worker has claimed, and has not begun."""
        if self._worker is None:
            return
        prefix = f"{self.database.boot}{self._worker}."

        def work() -> Work[None]:
            sql = (
                "SELECT id, owner FROM hookline_job WHERE queue = $1 AND owner IS NOT NULL "
                "AND substr(owner, 1, length(CAST($2 AS text))) = $2"
            )
            for id, owner in (yield Statement(sql, (self.queue, prefix))):
                yield from self._leave(id, owner, 0.0, forgive=False)

        await self.database.run(work)

    async def aclose(self) -> None:
        """Release what was claimed and has not begun, and close the connections."""
        with suppress(StoreError):  # these jobs count as free after a lease
            await self.release()
        self._worker = None
        await super().aclose()
