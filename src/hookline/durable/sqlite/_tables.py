"""The tables of `hookline.durable.sqlite`, and all statements on them.

A job belongs to the life whose token is in `owner`; the same transaction refuses late writes of
other lives. The worker increments `beat` while it is alive. A resting job waits until `wake`, or
for an answer or an abort, and no worker holds it. `user_version` is the version of the tables.
"""

from __future__ import annotations

import asyncio
import os
import sqlite3
import threading
import time
from collections.abc import Callable, Set
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Any, NamedTuple, TypeVar

from hookline.durable._job import agent_of
from hookline.durable._polled.deaths import deaths_after, delay, outcome_of
from hookline.durable._polled.queue import Taken
from hookline.durable._status import HEAD, ChatStatus, Query, state_of
from hookline.errors import StoreError, UsageError

T = TypeVar("T")
_BUSY = 5.0  # seconds that a statement waits for another process
_DEAD = 2.0  # seconds without a beat after which a client counts a worker as dead
_OVER = "outcome = ?, ended = ?, quarantined = 0"
_VERSION = 1  # of the tables
_TABLES = """
CREATE TABLE IF NOT EXISTS hookline_job (
    id TEXT PRIMARY KEY,
    input TEXT NOT NULL,
    owner TEXT,
    beat INTEGER NOT NULL DEFAULT 0,
    resting INTEGER NOT NULL DEFAULT 0,
    wake DOUBLE,
    abort TEXT,
    outcome TEXT,
    created DOUBLE NOT NULL
);
CREATE TABLE IF NOT EXISTS hookline_job_log (
    id TEXT NOT NULL, n INTEGER NOT NULL, data BLOB NOT NULL, PRIMARY KEY (id, n)
);
CREATE TABLE IF NOT EXISTS hookline_job_question (
    id TEXT NOT NULL, request TEXT NOT NULL, body TEXT NOT NULL, answer TEXT,
    PRIMARY KEY (id, request)
);
"""
_SINCE_0 = """
ALTER TABLE hookline_job ADD COLUMN agent TEXT;
ALTER TABLE hookline_job ADD COLUMN ended DOUBLE;
ALTER TABLE hookline_job ADD COLUMN deaths INTEGER NOT NULL DEFAULT 0;
ALTER TABLE hookline_job ADD COLUMN begun TEXT;
ALTER TABLE hookline_job ADD COLUMN batches INTEGER NOT NULL DEFAULT 0;
ALTER TABLE hookline_job ADD COLUMN lapsed TEXT;
ALTER TABLE hookline_job ADD COLUMN quarantined INTEGER NOT NULL DEFAULT 0;
DROP INDEX IF EXISTS hookline_job_open;
CREATE INDEX hookline_job_ready ON hookline_job (resting, wake) WHERE outcome IS NULL;
CREATE INDEX hookline_job_over ON hookline_job (ended) WHERE outcome IS NOT NULL;
"""


def _to_wal(connection: sqlite3.Connection) -> None:
    """Switch the file to a write-ahead log.

    SQLite refuses the switch at once, without its usual wait, while another process uses the file.
    """
    until = time.monotonic() + _BUSY
    while connection.execute("PRAGMA journal_mode").fetchone() != ("wal",):
        try:
            connection.execute("PRAGMA journal_mode=WAL")
        except sqlite3.OperationalError as exc:
            if time.monotonic() > until or "locked" not in str(exc):
                raise
            time.sleep(0.02)


def _forget(it: sqlite3.Connection, id: str) -> None:
    """Delete the log of a job that is over."""
    it.execute("DELETE FROM hookline_job_log WHERE id = ?", (id,))
    it.execute("DELETE FROM hookline_job_question WHERE id = ?", (id,))


class Claim(NamedTuple):
    """An open job, with its owner."""

    id: str
    owner: str | None
    beat: int
    created: float


class Jobs:
    """The jobs in one file. Calls run in a thread of their own, one at a time."""

    def __init__(
        self, file: str, poll: float, lease: float = 1.0, synchronous: str = "FULL"
    ) -> None:
        if file in ("", ":memory:"):
            raise UsageError(
                f"{file!r} is not a file that workers and clients can share; use the path of a "
                "file, as in sqlite:///jobs.db"
            )
        if synchronous not in ("FULL", "NORMAL"):
            raise UsageError(f"synchronous={synchronous!r} must be 'FULL' or 'NORMAL'")
        self.file = file
        self._synchronous = synchronous
        self._poll = poll
        self._lease = lease
        self._seen: dict[str, tuple[Claim, float]] = {}  # taken jobs, time of their last beat
        self._taken = 0
        self._connection: sqlite3.Connection | None = None
        self._lock = threading.Lock()
        self._thread = ThreadPoolExecutor(1)  # a program may keep all of asyncio's threads busy
        self._worker: str | None = None

    async def _do(self, work: Callable[[sqlite3.Connection], T], *, reads: bool = False) -> T:
        """Run `work` in one transaction, which waits for no writer if it only reads.

        Raises StoreError.
        """
        begin = "BEGIN" if reads else "BEGIN IMMEDIATE"
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._thread, self._locked, work, begin)

    def _locked(self, work: Callable[[sqlite3.Connection], T], begin: str) -> T:
        with self._lock:
            try:
                connection = self._connection or self._open()
                connection.execute(begin)
                try:
                    value = work(connection)
                except BaseException:
                    if connection.in_transaction:  # SQLite itself ends it when a disk is full
                        connection.execute("ROLLBACK")
                    raise
                connection.execute("COMMIT")
                return value
            except sqlite3.Error as exc:
                raise StoreError(
                    f"{self.file}: the jobs cannot be read or written ({exc}); check the file, "
                    "its directory and the free space on the disk"
                ) from exc

    def _open(self) -> sqlite3.Connection:
        made = sqlite3.connect(
            self.file, timeout=_BUSY, isolation_level=None, check_same_thread=False
        )
        try:
            _to_wal(made)
            made.execute(f"PRAGMA synchronous={self._synchronous}")
            made.create_function("hookline_state", 1, state_of, deterministic=True)
            self._migrate(made)
        except BaseException:
            made.close()
            raise
        self._connection = made
        return made

    def _migrate(self, made: sqlite3.Connection) -> None:
        """Create the tables, or bring those of an older version up to date."""
        version = made.execute("PRAGMA user_version").fetchone()[0]
        if version == _VERSION:
            return
        made.execute("BEGIN IMMEDIATE")
        version = made.execute("PRAGMA user_version").fetchone()[0]
        if version > _VERSION:
            raise StoreError(
                f"{self.file}: its tables have version {version}, but this version of hookline "
                f"reads only versions up to {_VERSION}; install a newer hookline"
            )
        if version < _VERSION:
            for statement in (_TABLES + _SINCE_0).split(";"):
                made.execute(statement)
            for id, text in made.execute("SELECT id, input FROM hookline_job").fetchall():
                made.execute("UPDATE hookline_job SET agent = ? WHERE id = ?", (agent_of(text), id))
            made.execute("UPDATE hookline_job SET ended = created WHERE outcome IS NOT NULL")
            made.execute(f"PRAGMA user_version={_VERSION}")
        made.execute("COMMIT")

    def close(self) -> None:
        """Close the file. The next call opens it again."""
        with self._lock:
            connection, self._connection = self._connection, None
            if connection is not None:
                connection.close()
        thread, self._thread = self._thread, ThreadPoolExecutor(1)
        thread.shutdown(wait=False)

    async def aclose(self) -> None:
        """Close the file. The next call opens it again."""
        if self._worker is not None:  # claimed, but not started
            prefix = f"{self._worker}."
            statement = "UPDATE hookline_job SET owner = NULL WHERE substr(owner, 1, ?) = ?"
            with suppress(StoreError):  # these jobs count as free after a lease
                await self._do(lambda it: it.execute(statement, (len(prefix), prefix)))
        self.close()

    # ── of clients ──────────────────────────────────────────────────────────────────────────

    async def add(self, id: str, input: str) -> bool:
        """Add a job; False if a job with this id exists."""
        values = (id, input, agent_of(input), time.time())
        statement = (
            "INSERT INTO hookline_job (id, input, agent, created) VALUES (?, ?, ?, ?) "
            "ON CONFLICT (id) DO NOTHING"
        )
        return await self._do(lambda it: it.execute(statement, values).rowcount == 1)

    async def _exists(self) -> bool:
        """Return whether there is a file: opening it would create it."""
        if self._connection is not None:
            return True
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._thread, os.path.exists, self.file)

    async def _at(
        self, id: str, work: Callable[[sqlite3.Connection], T], *, reads: bool = False
    ) -> T:
        """Run `work` on a job; raises UsageError if there is no job with this id."""
        unknown = UsageError(f"there is no durable chat {id!r} in {self.file}; start it first")
        if not await self._exists():
            raise unknown

        def at(it: sqlite3.Connection) -> T:
            query = "SELECT 1 FROM hookline_job WHERE id = ?"
            if it.execute(query, (id,)).fetchone() is None:
                raise unknown
            return work(it)

        return await self._do(at, reads=reads)

    async def result(self, id: str) -> str:
        """Wait for the outcome of a job; raises UsageError if there is no job with this id."""
        query = "SELECT outcome FROM hookline_job WHERE id = ?"
        while True:
            [outcome] = await self._at(
                id, lambda it: it.execute(query, (id,)).fetchone(), reads=True
            )
            if outcome is not None:
                return str(outcome)
            await asyncio.sleep(self._poll)

    async def questions(self, id: str) -> list[str]:
        """Return the questions that wait for an answer; raises UsageError for an unknown job."""
        statement = (
            "SELECT body FROM hookline_job_question WHERE id = ? AND answer IS NULL ORDER BY rowid"
        )
        return await self._at(
            id, lambda it: [row[0] for row in it.execute(statement, (id,))], reads=True
        )

    async def answer(self, id: str, answers: dict[str, str]) -> str | None:
        """Answer all questions or none; returns the first id that is not pending.

        Raises UsageError if there is no job with this id.
        """

        def work(it: sqlite3.Connection) -> str | None:
            for request in answers:
                row = it.execute(
                    "SELECT 1 FROM hookline_job_question WHERE id = ? AND request = ? "
                    "AND answer IS NULL",
                    (id, request),
                ).fetchone()
                if row is None:
                    return request
            for request, decision in answers.items():
                it.execute(
                    "UPDATE hookline_job_question SET answer = ? WHERE id = ? AND request = ?",
                    (decision, id, request),
                )
            it.execute("UPDATE hookline_job SET resting = 0 WHERE id = ?", (id,))
            return None

        return await self._at(id, work)

    async def abort(self, id: str, reason: str) -> bool:
        """Request an abort, with the reason as JSON; False if the job is done.

        Raises UsageError if there is no job with this id.
        """
        statement = (
            "UPDATE hookline_job SET abort = coalesce(abort, ?), resting = 0 "
            "WHERE id = ? AND outcome IS NULL"
        )
        return await self._at(id, lambda it: it.execute(statement, (reason, id)).rowcount == 1)

    async def discard(self, id: str, outcome: str) -> bool:
        """Store the outcome of a job that no life holds; False if one does, or if it is over.

        Raises UsageError if there is no job with this id.
        """
        query = "SELECT owner, beat FROM hookline_job WHERE id = ?"
        seen = await self._at(id, lambda it: it.execute(query, (id,)).fetchone(), reads=True)
        if seen[0] is not None:  # its worker may be dead
            await asyncio.sleep(_DEAD)
        statement = (
            f"UPDATE hookline_job SET owner = NULL, {_OVER} "
            "WHERE id = ? AND owner IS ? AND beat = ? AND (outcome IS NULL OR quarantined)"
        )

        def work(it: sqlite3.Connection) -> bool:
            done = it.execute(statement, (outcome, time.time(), id, *seen)).rowcount == 1
            if done:
                _forget(it, id)
            return done

        return await self._at(id, work)

    async def chats(self, query: Query) -> list[ChatStatus]:
        """Return the chats that match, the oldest first."""
        if not await self._exists():
            return []
        state = (
            "CASE WHEN quarantined THEN 'quarantined' "
            f"WHEN outcome IS NOT NULL THEN hookline_state(substr(outcome, 1, {HEAD})) "
            "WHEN owner IS NOT NULL THEN 'running' WHEN EXISTS (SELECT 1 FROM "
            "hookline_job_question q WHERE q.id = j.id AND answer IS NULL) THEN 'waiting' "
            "ELSE 'queued' END"
        )
        statement = (
            f"SELECT id, {state} AS state, agent, created, deaths FROM hookline_job j "
            "WHERE (?1 IS NULL OR id = ?1) AND (?2 IS NULL OR state = ?2) "
            "AND (?3 IS NULL OR agent = ?3) AND (?4 IS NULL OR created < ?4) "
            "ORDER BY created LIMIT ?5"
        )
        values = (query.id, query.state, query.agent, query.before, query.limit)

        def work(it: sqlite3.Connection) -> list[ChatStatus]:
            return [
                ChatStatus(id=row[0], state=row[1], agent=row[2], created=row[3], deaths=row[4])
                for row in it.execute(statement, values)
            ]

        return await self._do(work, reads=True)

    async def retry(self, id: str) -> bool:
        """Queue a quarantined job again; raises UsageError if there is no job with this id."""
        statement = (
            "UPDATE hookline_job SET outcome = NULL, ended = NULL, quarantined = 0, deaths = 0, "
            "resting = 0 WHERE id = ? AND quarantined"
        )
        return await self._at(id, lambda it: it.execute(statement, (id,)).rowcount == 1)

    async def delete(self, id: str) -> bool:
        """Delete a job that is over; raises UsageError if there is no job with this id."""
        statement = "DELETE FROM hookline_job WHERE id = ? AND outcome IS NOT NULL"

        def work(it: sqlite3.Connection) -> bool:
            done = it.execute(statement, (id,)).rowcount == 1
            if done:
                _forget(it, id)
            return done

        return await self._at(id, work)

    async def cleanup(self, before: float) -> int:
        """Delete all jobs that ended before this time; returns their number."""
        if not await self._exists():
            return 0
        statement = (
            "DELETE FROM hookline_job WHERE outcome IS NOT NULL AND ended < ? AND NOT quarantined"
        )
        return await self._do(lambda it: it.execute(statement, (before,)).rowcount)

    # ── of workers ──────────────────────────────────────────────────────────────────────────

    async def take(
        self,
        worker: str,
        limit: int,
        refused: Set[str],
        agent: str | None = None,
        max_deaths: int = 5,
    ) -> list[Taken]:
        """Take this agent's jobs without an owner, or whose beat has not changed for a lease."""
        self._worker = worker
        found: list[Taken] = []
        jobs = await self._open_jobs(agent)
        self._seen = {job.id: self._seen[job.id] for job in jobs if job.id in self._seen}
        for job in jobs:
            if len(found) == limit or job.id in refused or not self._is_free(job):
                continue
            self._taken += 1
            taken = await self._claim(job, f"{worker}.{self._taken}", max_deaths)
            if taken is not None:
                self._seen.pop(job.id, None)
                found.append(taken)
        return found

    def _is_free(self, job: Claim) -> bool:
        """Return whether a job has no owner, or its beat has not changed for a whole lease."""
        if job.owner is None:
            return True
        now = time.monotonic()
        seen, since = self._seen.get(job.id, (None, now))
        if seen == job:
            return now - since >= self._lease
        self._seen[job.id] = (job, now)
        return False

    async def _open_jobs(self, agent: str | None) -> list[Claim]:
        """Return the jobs of this agent that run or could run, the oldest first."""
        select = (
            "SELECT id, owner, beat, created FROM hookline_job "
            "WHERE outcome IS NULL AND (agent IS NULL OR ?1 IS NULL OR agent = ?1) AND "
        )
        statement = f"{select} resting = 0 UNION ALL {select} resting = 1 AND wake <= ?2"
        values = (agent, time.time())
        jobs = await self._do(
            lambda it: [Claim(*row) for row in it.execute(statement, values)], reads=True
        )
        return sorted(jobs, key=lambda job: job.created)

    async def _claim(self, seen: Claim, owner: str, max_deaths: int) -> Taken | None:
        """Take a job if it has not changed since it was seen, and has not too many deaths."""

        def work(it: sqlite3.Connection) -> Taken | None:
            row = it.execute(
                "SELECT input, abort, deaths, begun FROM hookline_job "
                "WHERE id = ? AND owner IS ? AND beat = ? AND outcome IS NULL",
                seen[:3],
            ).fetchone()
            if row is None:
                return None
            text, abort, deaths, begun = row
            if seen.owner is not None and begun == seen.owner:
                deaths = self._deaths_after(it, seen.id, deaths)
                if deaths >= max_deaths:
                    it.execute(
                        "UPDATE hookline_job SET owner = NULL, outcome = ?, ended = ?, "
                        "quarantined = 1, deaths = ? WHERE id = ?",
                        (outcome_of(seen.id, deaths), time.time(), deaths, seen.id),
                    )
                    return None
                if delay(deaths):
                    it.execute(
                        "UPDATE hookline_job SET owner = NULL, resting = 1, wake = ? WHERE id = ?",
                        (time.time() + delay(deaths), seen.id),
                    )
                    return None
            count = "(SELECT count(*) FROM hookline_job_log WHERE id = ?1)"
            it.execute(
                "UPDATE hookline_job SET owner = ?2, beat = beat + 1, resting = 0, "
                f"begun = ?3, batches = {count} WHERE id = ?1",
                (seen.id, owner, None if deaths else owner),
            )
            return Taken(seen.id, owner, text, abort, deaths)

        return await self._do(work)

    def _deaths_after(self, it: sqlite3.Connection, id: str, deaths: int) -> int:
        """Count the death of the life that held this job."""
        rows = it.execute(
            "SELECT data FROM hookline_job_log WHERE id = ?1 AND n >= "
            "(SELECT batches FROM hookline_job WHERE id = ?1) ORDER BY n",
            (id,),
        )
        deaths = deaths_after(deaths, (row[0] for row in rows))
        statement = "UPDATE hookline_job SET deaths = ?, lapsed = owner WHERE id = ?"
        it.execute(statement, (deaths, id))
        return deaths

    async def others(self, agent: str) -> set[str]:
        """Return the other agents that open jobs are for."""
        statement = (
            "SELECT DISTINCT agent FROM hookline_job "
            "WHERE outcome IS NULL AND resting = 0 AND agent <> ?"
        )

        def work(it: sqlite3.Connection) -> set[str]:
            return {row[0] for row in it.execute(statement, (agent,))}

        return await self._do(work, reads=True)

    async def begin(self, id: str, owner: str) -> None:
        """Note that the life of a job with deaths begins."""
        statement = "UPDATE hookline_job SET begun = owner WHERE id = ? AND owner = ?"
        await self._do(lambda it: it.execute(statement, (id, owner)))

    async def clear(self, id: str, owner: str) -> None:
        """Forget the deaths of a job: this life has made progress."""
        statement = "UPDATE hookline_job SET deaths = 0 WHERE id = ? AND owner = ?"
        await self._do(lambda it: it.execute(statement, (id, owner)))

    async def lost(self, id: str, owner: str) -> None:
        """Take back the death of a life that has lost its job, but did not die."""
        statement = (
            "UPDATE hookline_job SET deaths = max(0, deaths - 1), lapsed = NULL "
            "WHERE id = ? AND lapsed = ? AND outcome IS NULL"
        )
        await self._do(lambda it: it.execute(statement, (id, owner)))

    async def beat(self, owners: list[str]) -> dict[str, str | None]:
        """Renew lives; returns those that still own their job, each with its requested abort."""
        marks = ", ".join("?" * len(owners))

        def work(it: sqlite3.Connection) -> dict[str, str | None]:
            it.execute(f"UPDATE hookline_job SET beat = beat + 1 WHERE owner IN ({marks})", owners)
            query = f"SELECT owner, abort FROM hookline_job WHERE owner IN ({marks})"
            return {row[0]: row[1] for row in it.execute(query, owners)}

        return await self._do(work)

    async def leave(self, id: str, owner: str, delay: float = 0.0) -> None:
        """Release a job for any other life, at once: a worker that refused it remembers that."""
        statement = "UPDATE hookline_job SET owner = NULL WHERE id = ? AND owner = ?"
        await self._do(lambda it: it.execute(statement, (id, owner)))

    async def rest(self, id: str, owner: str, requests: list[str], wake: float | None) -> bool:
        """Put a job aside that waits for these answers; False if an answer is already there."""
        marks = ", ".join("?" * len(requests))

        def work(it: sqlite3.Connection) -> bool:
            query = (
                "SELECT count(*) FROM hookline_job_question "
                f"WHERE id = ? AND request IN ({marks}) AND answer IS NULL"
            )
            if it.execute(query, (id, *requests)).fetchone()[0] != len(requests):
                return False
            done = it.execute(
                "UPDATE hookline_job SET owner = NULL, resting = 1, wake = ? "
                "WHERE id = ? AND owner = ? AND abort IS NULL",
                (wake, id, owner),
            )
            return done.rowcount == 1

        return await self._do(work)

    async def aborted(self, id: str, owner: str) -> None:
        """Note that the requested abort is in the log."""
        statement = "UPDATE hookline_job SET abort = NULL WHERE id = ? AND owner = ?"
        await self._do(lambda it: it.execute(statement, (id, owner)))

    async def finish(self, id: str, owner: str, outcome: str) -> None:
        """Store the outcome of a job, and delete its log."""

        def work(it: sqlite3.Connection) -> None:
            done = it.execute(
                f"UPDATE hookline_job SET owner = NULL, {_OVER} WHERE id = ? AND owner = ?",
                (outcome, time.time(), id, owner),
            )
            if done.rowcount == 1:
                _forget(it, id)

        await self._do(work)

    async def read(self, id: str, owner: str) -> list[bytes]:
        """Read the log of a job."""
        statement = "SELECT data FROM hookline_job_log WHERE id = ? ORDER BY n"
        return await self._do(
            lambda it: [row[0] for row in it.execute(statement, (id,))], reads=True
        )

    async def append(self, id: str, owner: str, data: bytes) -> bool:
        """Append to the log of a job; False if another life owns the job now."""
        statement = (
            "INSERT INTO hookline_job_log (id, n, data) "
            "SELECT id, (SELECT coalesce(max(n) + 1, 0) FROM hookline_job_log WHERE id = ?1), ?3 "
            "FROM hookline_job WHERE id = ?1 AND owner = ?2 AND outcome IS NULL"
        )
        return await self._do(lambda it: it.execute(statement, (id, owner, data)).rowcount == 1)

    async def ask(
        self, id: str, owner: str, request: str, body: str, default: str | None
    ) -> str | None:
        """Store a question, unless it exists; returns its answer, if there is one.

        Has no effect if another life owns the job now. `default` answers the question if there is
        no answer: its time has expired.
        """

        def work(it: sqlite3.Connection) -> str | None:
            query = "SELECT 1 FROM hookline_job WHERE id = ? AND owner = ?"
            if it.execute(query, (id, owner)).fetchone() is None:
                return None
            it.execute(
                "INSERT INTO hookline_job_question (id, request, body) VALUES (?, ?, ?) "
                "ON CONFLICT DO NOTHING",
                (id, request, body),
            )
            if default is not None:
                it.execute(
                    "UPDATE hookline_job_question SET answer = coalesce(answer, ?) "
                    "WHERE id = ? AND request = ?",
                    (default, id, request),
                )
            found: Any = it.execute(
                "SELECT answer FROM hookline_job_question WHERE id = ? AND request = ?",
                (id, request),
            ).fetchone()[0]
            return None if found is None else str(found)

        return await self._do(work)
