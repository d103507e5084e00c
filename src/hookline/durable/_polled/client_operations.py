"""The operations of clients and operators on the tables: start, answer, abort, list, delete …"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import wraps
from types import CoroutineType
from typing import Any, Concatenate, Final, ParamSpec, TypeVar

import msgspec

from hookline.durable._job import fields_of
from hookline.durable._polled.claims import DRAINED, FIRST, READY
from hookline.durable._polled.database import ADD, Database, Statement, Work
from hookline.durable._shared.outcome_waits import Waiters
from hookline.durable._status import ChatStatus, Counts, Query, Record, Sending, State
from hookline.errors import QueueFullError, UsageError

P = ParamSpec("P")
T = TypeVar("T")
_DELETED: Final = 1000  # chats to delete in one transaction
_TABLES: Final = (
    "hookline_job_log",
    "hookline_job_question",
    "hookline_job_message",
    "hookline_job_life",
    "hookline_job",
)
_STATE: Final = (
    "CASE WHEN outcome IS NOT NULL THEN state "
    "WHEN owner IS NOT NULL AND (suspect IS NULL OR EXISTS (SELECT 1 FROM hookline_job_life l "
    "WHERE l.queue = j.queue AND l.id = j.id AND l.owner = j.owner AND l.counts)) THEN 'running' "
    "WHEN EXISTS (SELECT 1 FROM hookline_job_question q WHERE q.queue = j.queue AND q.id = j.id "
    "AND q.answer IS NULL) THEN 'waiting' ELSE 'queued' END"
)
# Its parameters are the queue and the fields of a Query.
_LIST: Final = f"""
    SELECT id, state, agent, key, conversation, version, created, ended, deaths FROM (
        SELECT id, {_STATE} AS state, agent, key, conversation, version, created, ended, deaths
        FROM hookline_job j WHERE queue = $1
        AND (CAST($2 AS text) IS NULL OR id = $2) AND (CAST($4 AS text) IS NULL OR agent = $4)
        AND (CAST($5 AS text) IS NULL OR key = $5)
        AND (CAST($6 AS text) IS NULL OR substr(conversation, 1, length($6)) = $6)
        AND (CAST($7 AS double precision) IS NULL OR created < $7)
    ) chat WHERE CAST($3 AS text) IS NULL OR state = $3 ORDER BY created, id LIMIT $8
"""


class _NotPending(Exception):
    """An approval that cannot be answered: the transaction is undone."""


def _transaction(
    work: Callable[Concatenate[ClientOperations, str, P], Work[T]],
) -> Callable[Concatenate[ClientOperations, str, P], CoroutineType[Any, Any, T]]:
    """Run the work on a job as one transaction, which raises UsageError for an unknown job."""

    @wraps(work)
    async def run(self: ClientOperations, id: str, /, *args: P.args, **kwargs: P.kwargs) -> T:
        def on_job() -> Work[T]:
            sql = "SELECT id FROM hookline_job WHERE queue = $1 AND id = $2"
            if not (yield Statement(sql, (self.queue, id))):
                raise self.unknown(id)
            return (yield from work(self, id, *args, **kwargs))

        await self.check_exists(f"there is no durable chat {id!r}")
        return await self.database.run(on_job)

    return run  # type: ignore[return-value]  # for mypy, it returns any kind of coroutine


class ClientOperations:
    """The jobs of one queue, as clients see them; `Operations` describes the methods."""

    def __init__(
        self, database: Database, queue: str, poll: float, max_queued: int | None = None
    ) -> None:
        if not queue.isidentifier():
            raise UsageError(f"queue={queue!r} must consist of letters, digits and '_'")
        if max_queued is not None and max_queued < 1:
            raise UsageError(f"max_queued={max_queued!r} must be at least 1")
        self.database = database
        self.queue = queue
        self._max_queued = max_queued
        self._waiters = Waiters(self._outcomes, poll)

    def unknown(self, id: str) -> UsageError:
        """Return the error for an id without a job."""
        return UsageError(
            f"there is no durable chat {id!r} in {self.database.place}, queue={self.queue!r}; "
            "start it first"
        )

    async def check_exists(self, words: str) -> None:
        """Raise UsageError if there are no tables."""
        if not await self.database.exists():
            raise UsageError(
                f"{words}: {self.database.absence}; check the address, or start a chat"
            )

    # ── of clients ──────────────────────────────────────────────────────────────────────────

    async def add(self, id: str, job: str) -> bool:
        """Add a job; False if a job with this id exists. Raises QueueFullError."""
        await self.database.prepare()
        if self._max_queued is not None:
            await self._check_room(id, self._max_queued)
        fields = msgspec.structs.astuple(fields_of(job))  # in the order of the columns of ADD
        return await self.database.apply(ADD, (self.queue, id, job, *fields))

    async def _check_room(self, id: str, limit: int) -> None:
        sql = f"SELECT count(*) FROM (SELECT 1 FROM hookline_job WHERE {READY} {FIRST} LIMIT $2) _"
        [[count]] = await self.database.fetch(sql, self.queue, limit, reads=True)
        if count >= limit:
            raise QueueFullError(id, limit)

    async def result(self, id: str) -> str:
        await self.check_exists(f"there is no durable chat {id!r}")
        outcome = await self._waiters.wait(id)
        if outcome is None:
            raise self.unknown(id)
        return outcome

    async def _outcomes(self, ids: list[str]) -> dict[str, str | None]:
        """Return the known jobs among these, each with its outcome."""
        sql = "SELECT id, outcome FROM hookline_job WHERE queue = $1 AND id = ANY($2)"
        rows = await self.database.fetch(sql, self.queue, ids, reads=True)
        return {row[0]: row[1] for row in rows}

    @_transaction
    def questions(self, id: str) -> Work[list[str]]:
        sql = (
            "SELECT body FROM hookline_job_question WHERE queue = $1 AND id = $2 "
            "AND answer IS NULL AND EXISTS (SELECT 1 FROM hookline_job "
            "WHERE queue = $1 AND id = $2 AND outcome IS NULL) ORDER BY asked, request"
        )
        return [row[0] for row in (yield Statement(sql, (self.queue, id)))]

    async def answer(
        self, id: str, answers: dict[str, str], trace: str | None = None
    ) -> str | None:
        try:
            await self._answer(id, answers, trace)
        except _NotPending as exc:
            request: str | None = exc.args[0]
            return request
        return None

    @_transaction
    def _answer(self, id: str, answers: dict[str, str], trace: str | None) -> Work[None]:
        # The job first: a worker that puts it aside must see that there is an answer.
        sql = (
            "UPDATE hookline_job SET answers = answers + 1, resting = FALSE, wake = NULL, "
            "trace = coalesce($3, trace) WHERE queue = $1 AND id = $2 AND outcome IS NULL "
            "RETURNING id"
        )
        if not (yield Statement(sql, (self.queue, id, trace))):
            raise _NotPending(next(iter(answers), None))
        for request, text in answers.items():
            sql = (
                "UPDATE hookline_job_question SET answer = $4, answered = TIME() "
                "WHERE queue = $1 AND id = $2 AND request = $3 AND answer IS NULL RETURNING request"
            )
            if not (yield Statement(sql, (self.queue, id, request, text))):
                raise _NotPending(request)

    @_transaction
    def abort(self, id: str, reason: str) -> Work[bool]:
        sql = (
            "UPDATE hookline_job SET abort = coalesce(abort, $3), "
            "aborted = coalesce(aborted, TIME()), resting = FALSE, wake = NULL "
            "WHERE queue = $1 AND id = $2 AND outcome IS NULL RETURNING id"
        )
        return bool((yield Statement(sql, (self.queue, id, reason))))

    @_transaction
    def send(self, id: str, message: str, body: str, most: int, interrupts: bool) -> Work[Sending]:
        # The job first: nobody else gets the same number, and the job does not end meanwhile.
        sql = (
            "UPDATE hookline_job SET answers = answers + $3 WHERE queue = $1 AND id = $2 "
            "AND (outcome IS NULL OR state = 'quarantined') RETURNING id"
        )
        takes_more = yield Statement(sql, (self.queue, id, int(interrupts)))
        sql = (
            "SELECT count(*), count(CASE WHEN message = $3 THEN 1 END) "
            "FROM hookline_job_message WHERE queue = $1 AND id = $2"
        )
        [[count, repeats]] = yield Statement(sql, (self.queue, id, message))
        if repeats:
            return "repeated"
        if not takes_more or count >= most:
            return "full" if takes_more else "over"
        sql = (
            "INSERT INTO hookline_job_message (queue, id, n, message, body, sent) "
            "VALUES ($1, $2, $3, $4, $5, TIME())"
        )
        yield Statement(sql, (self.queue, id, count + 1, message, body))
        return "queued"

    # ── of operators ────────────────────────────────────────────────────────────────────────

    @_transaction
    def discard(self, id: str, outcome: str, state: State) -> Work[bool]:
        sql = (
            "UPDATE hookline_job SET owner = NULL, lease = NULL, resting = FALSE, wake = NULL, "
            "outcome = $3, state = $4, ended = TIME() WHERE queue = $1 AND id = $2 "
            "AND NOT HELD() AND (outcome IS NULL OR state = 'quarantined') RETURNING id"
        )
        return bool((yield Statement(sql, (self.queue, id, outcome, state))))

    async def chats(self, query: Query) -> list[ChatStatus]:
        if not await self.database.exists():
            return []
        values = msgspec.structs.astuple(query)
        rows = await self.database.fetch(_LIST, self.queue, *values, reads=True)
        names = ChatStatus.__struct_fields__
        return [ChatStatus(**dict(zip(names, row, strict=True))) for row in rows]

    @_transaction
    def retry(self, id: str) -> Work[bool]:
        sql = (
            "UPDATE hookline_job SET outcome = NULL, state = NULL, ended = NULL, deaths = 0, "
            "stalls = 0, suspect = NULL, resting = FALSE, wake = NULL "
            "WHERE queue = $1 AND id = $2 AND state = 'quarantined' RETURNING id"
        )
        return bool((yield Statement(sql, (self.queue, id))))

    @_transaction
    def delete(self, id: str) -> Work[bool]:
        sql = "SELECT id FROM hookline_job WHERE queue = $1 AND id = $2 AND outcome IS NOT NULL"
        rows = yield Statement(sql, (self.queue, id))
        yield from self._delete([row[0] for row in rows])
        return bool(rows)

    def _delete(self, ids: list[str]) -> Work[None]:
        for table in _TABLES if ids else ():
            sql = f"DELETE FROM {table} WHERE queue = $1 AND id = ANY($2)"
            yield Statement(sql, (self.queue, ids))

    async def cleanup(self, before: float) -> int:
        sql = (
            "SELECT id FROM hookline_job WHERE queue = $1 AND ended < $2 "
            "AND state <> 'quarantined' ORDER BY ended LIMIT $3 FOR UPDATE SKIP LOCKED"
        )
        return await self._delete_all(Statement(sql, (self.queue, before, _DELETED)))

    async def forget(self, conversation: str) -> int:
        sql = (
            "SELECT id FROM hookline_job WHERE queue = $1 AND conversation = $2 "
            "AND NOT HELD() LIMIT $3 FOR UPDATE SKIP LOCKED"
        )
        total = await self._delete_all(Statement(sql, (self.queue, conversation, _DELETED)))
        if total:
            await self.database.erase()
        return total

    async def _delete_all(self, select: Statement) -> int:
        """Delete the jobs that a statement selects, in batches."""
        if not await self.database.exists():
            return 0

        def work() -> Work[int]:
            ids = [row[0] for row in (yield select)]
            yield from self._delete(ids)
            return len(ids)

        total = 0
        while True:
            count = await self.database.run(work)
            total += count
            if count < _DELETED:
                return total
            await asyncio.sleep(0.01)  # others have their turn

    async def drain(self) -> None:
        await self.database.prepare()
        sql = (
            "INSERT INTO hookline_job_drain (queue, since) VALUES ($1, TIME()) "
            "ON CONFLICT DO NOTHING"
        )
        await self.database.fetch(sql, self.queue)

    async def resume(self) -> None:
        if await self.database.exists():
            await self.database.fetch("DELETE FROM hookline_job_drain WHERE queue = $1", self.queue)

    async def queues(self) -> list[str]:
        await self.check_exists("there are no durable chats")
        sql = (  # one look at the index for each queue
            "WITH RECURSIVE one (name) AS (SELECT min(queue) FROM hookline_job UNION ALL "
            "SELECT (SELECT min(queue) FROM hookline_job WHERE queue > name) FROM one "
            "WHERE name IS NOT NULL) SELECT name FROM one WHERE name IS NOT NULL"
        )
        return [row[0] for row in await self.database.fetch(sql, reads=True)]

    async def counts(self) -> Counts:
        if not await self.database.exists():
            return Counts()
        ready = f"SELECT created FROM hookline_job WHERE {READY} {FIRST}"
        sql = (
            f"SELECT (SELECT count(*) FROM ({ready}) _), "
            f"(SELECT TIME() - min(created) FROM ({ready}) _), "
            "(SELECT count(*) FROM hookline_job WHERE queue = $1 AND owner IS NOT NULL), "
            "(SELECT count(*) FROM hookline_job WHERE queue = $1 AND resting), "
            "(SELECT count(*) FROM (SELECT ended FROM hookline_job WHERE queue = $1 "
            f"AND state = 'quarantined' ORDER BY ended) _), {DRAINED}"
        )
        [row] = await self.database.fetch(sql, self.queue, reads=True)
        return Counts(
            queued=row[0],
            oldest=float(row[1] or 0.0),
            running=row[2],
            resting=row[3],
            quarantined=row[4],
            drained=bool(row[5]),
        )

    @_transaction
    def record(self, id: str) -> Work[Record]:
        at = (self.queue, id)
        where = "WHERE queue = $1 AND id = $2"
        columns = ("id", "created", "aborted", "abort", "ended", "state", "outcome", "input")
        [job] = yield Statement(f"SELECT {', '.join(columns)} FROM hookline_job {where}", at)
        lives = yield Statement(
            "SELECT owner, version, began, ended, ending "
            f"FROM hookline_job_life {where} ORDER BY began",
            at,
        )
        batches = yield Statement(f"SELECT at, data FROM hookline_job_log {where} ORDER BY n", at)
        questions = yield Statement(
            "SELECT request, body, asked, answer, answered "
            f"FROM hookline_job_question {where} ORDER BY asked, request",
            at,
        )
        messages = yield Statement(
            f"SELECT body, sent FROM hookline_job_message {where} ORDER BY n", at
        )
        return Record(
            **dict(zip(columns, job, strict=True)),
            lives=[tuple(row) for row in lives],
            batches=[(row[0], bytes(row[1])) for row in batches],
            questions=[tuple(row) for row in questions],
            messages=[tuple(row) for row in messages],
        )

    async def aclose(self) -> None:
        await self._waiters.aclose()
        await self.database.aclose()
