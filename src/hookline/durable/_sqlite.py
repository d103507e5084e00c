"""The tables of `hookline.durable.sqlite`, and every statement on them.

A job belongs to the life whose token stands in `owner`; what another life still writes is refused
in the same transaction. `beat` counts up while its worker lives. A job that rests waits for an
answer, an abort or its time, and no worker holds it.
"""

from __future__ import annotations

import asyncio
import sqlite3
import threading
import time
from collections.abc import Callable
from typing import Any, NamedTuple, TypeVar

from hookline.errors import StoreError, UsageError

T = TypeVar("T")
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
CREATE INDEX IF NOT EXISTS hookline_job_open ON hookline_job (created) WHERE outcome IS NULL;
"""


class Claim(NamedTuple):
    """An open job, and who has it."""

    id: str
    owner: str | None
    beat: int


class Jobs:
    """The jobs in one file. Its calls run in threads, one at a time."""

    def __init__(self, file: str) -> None:
        self.file = file
        self._connection: sqlite3.Connection | None = None
        self._lock = threading.Lock()

    async def _do(self, work: Callable[[sqlite3.Connection], T]) -> T:
        """Carry this out in one transaction. Raises StoreError."""
        return await asyncio.to_thread(self._locked, work)

    def _locked(self, work: Callable[[sqlite3.Connection], T]) -> T:
        with self._lock:
            try:
                connection = self._connection or self._open()
                connection.execute("BEGIN IMMEDIATE")
                try:
                    value = work(connection)
                except BaseException:
                    connection.execute("ROLLBACK")
                    raise
                connection.execute("COMMIT")
                return value
            except sqlite3.Error as exc:
                raise StoreError(
                    f"{self.file}: the jobs cannot be read or written ({exc}); look at the file, "
                    "its directory and the space on its disk"
                ) from exc

    def _open(self) -> sqlite3.Connection:
        made = sqlite3.connect(
            self.file, timeout=5.0, isolation_level=None, check_same_thread=False
        )
        made.execute("PRAGMA journal_mode=WAL")
        made.execute("PRAGMA synchronous=NORMAL")
        made.executescript(_TABLES)
        self._connection = made
        return made

    def close(self) -> None:
        """Close the file; it may be used again."""
        with self._lock:
            connection, self._connection = self._connection, None
            if connection is not None:
                connection.close()

    # ── of clients ──────────────────────────────────────────────────────────────────────────

    async def add(self, id: str, input: str) -> bool:
        """Add a job; False where there is one of this id."""
        values = (id, input, time.time())
        statement = (
            "INSERT INTO hookline_job (id, input, created) VALUES (?, ?, ?) "
            "ON CONFLICT (id) DO NOTHING"
        )
        return await self._do(lambda it: it.execute(statement, values).rowcount == 1)

    async def outcome(self, id: str) -> str | None:
        """What a job came to; raises UsageError where there is none of this id."""
        found = await self._do(
            lambda it: it.execute("SELECT outcome FROM hookline_job WHERE id = ?", (id,)).fetchone()
        )
        if found is None:
            raise UsageError(f"there is no durable chat {id!r} in {self.file}: start it first")
        text: str | None = found[0]
        return text

    async def questions(self, id: str) -> list[str]:
        """What waits for an answer."""
        statement = (
            "SELECT body FROM hookline_job_question WHERE id = ? AND answer IS NULL ORDER BY rowid"
        )
        return await self._do(lambda it: [row[0] for row in it.execute(statement, (id,))])

    async def answer(self, id: str, answers: dict[str, str]) -> str | None:
        """Answer questions, all or none: the first that nothing waits for is given."""

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

        return await self._do(work)

    async def abort(self, id: str, reason: str) -> bool:
        """Ask for an abort, with its reason as JSON; False where the job is done."""
        statement = (
            "UPDATE hookline_job SET abort = coalesce(abort, ?), resting = 0 "
            "WHERE id = ? AND outcome IS NULL"
        )
        return await self._do(lambda it: it.execute(statement, (reason, id)).rowcount == 1)

    # ── of workers ──────────────────────────────────────────────────────────────────────────

    async def open_jobs(self) -> list[Claim]:
        """The jobs that run, or could, the oldest first."""
        statement = (
            "SELECT id, owner, beat FROM hookline_job "
            "WHERE outcome IS NULL AND (resting = 0 OR wake <= ?) ORDER BY created"
        )
        now = time.time()
        return await self._do(lambda it: [Claim(*row) for row in it.execute(statement, (now,))])

    async def claim(self, seen: Claim, owner: str) -> str | None:
        """Take a job that is as it was seen; gives its input."""

        def work(it: sqlite3.Connection) -> str | None:
            done = it.execute(
                "UPDATE hookline_job SET owner = ?, beat = beat + 1, resting = 0 "
                "WHERE id = ? AND owner IS ? AND beat = ? AND outcome IS NULL",
                (owner, seen.id, seen.owner, seen.beat),
            )
            if done.rowcount != 1:
                return None
            query = "SELECT input FROM hookline_job WHERE id = ?"
            text: str = it.execute(query, (seen.id,)).fetchone()[0]
            return text

        return await self._do(work)

    async def beat(self, owners: list[str]) -> dict[str, str | None]:
        """The lives that still have their job, and the abort that was asked for in each."""
        marks = ", ".join("?" * len(owners))

        def work(it: sqlite3.Connection) -> dict[str, str | None]:
            it.execute(f"UPDATE hookline_job SET beat = beat + 1 WHERE owner IN ({marks})", owners)
            query = f"SELECT owner, abort FROM hookline_job WHERE owner IN ({marks})"
            return {row[0]: row[1] for row in it.execute(query, owners)}

        return await self._do(work)

    async def leave(self, id: str, owner: str) -> None:
        """Give a job back, for any other life."""
        statement = "UPDATE hookline_job SET owner = NULL WHERE id = ? AND owner = ?"
        await self._do(lambda it: it.execute(statement, (id, owner)))

    async def rest(self, id: str, owner: str, requests: list[str], wake: float | None) -> bool:
        """Put a job aside that waits for these answers; False where something is there already."""
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
        """The abort that was asked for is in the log."""
        statement = "UPDATE hookline_job SET abort = NULL WHERE id = ? AND owner = ?"
        await self._do(lambda it: it.execute(statement, (id, owner)))

    async def finish(self, id: str, owner: str, outcome: str) -> None:
        """Write down what it came to; its log is not needed any more."""

        def work(it: sqlite3.Connection) -> None:
            done = it.execute(
                "UPDATE hookline_job SET outcome = ?, owner = NULL WHERE id = ? AND owner = ?",
                (outcome, id, owner),
            )
            if done.rowcount == 1:
                it.execute("DELETE FROM hookline_job_log WHERE id = ?", (id,))
                it.execute("DELETE FROM hookline_job_question WHERE id = ?", (id,))

        await self._do(work)

    async def read(self, id: str) -> list[bytes]:
        """The log of a job."""
        statement = "SELECT data FROM hookline_job_log WHERE id = ? ORDER BY n"
        return await self._do(lambda it: [row[0] for row in it.execute(statement, (id,))])

    async def append(self, id: str, owner: str, data: bytes) -> bool:
        """Add to its log; False where it is another's now."""
        statement = (
            "INSERT INTO hookline_job_log (id, n, data) "
            "SELECT id, (SELECT coalesce(max(n) + 1, 0) FROM hookline_job_log WHERE id = ?1), ?3 "
            "FROM hookline_job WHERE id = ?1 AND owner = ?2 AND outcome IS NULL"
        )
        return await self._do(lambda it: it.execute(statement, (id, owner, data)).rowcount == 1)

    async def ask(self, id: str, request: str, body: str, default: str | None) -> str | None:
        """Put a question, where it is not put yet; gives its answer, if there is one.

        `default` answers it, where nobody has: its time is over.
        """

        def work(it: sqlite3.Connection) -> str | None:
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
