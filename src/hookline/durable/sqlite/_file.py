"""The file of `hookline.durable.sqlite`: its connection, and how statements run there.

One thread has the connection. Transactions that wait while it is busy are committed together, so
that they wait for the disk only once.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import sqlite3
import threading
import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, suppress
from functools import lru_cache
from pathlib import Path
from typing import Any, Final, NamedTuple, TypeVar

from hookline.durable._polled.database import Bulk, Row, Statement, Work
from hookline.durable._polled.schema import migrations
from hookline.durable._shared.same_machine import boot
from hookline.errors import StoreError, UsageError

T = TypeVar("T")
_BUSY: Final = 5.0  # seconds that a statement waits for another process
_VALID: Final = (  # the clock begins anew when the machine does
    "(owner IS NOT NULL AND lease BETWEEN CLOCK() AND CLOCK() + 3600 "
    "AND substr(owner, 1, length(hookline_boot())) = hookline_boot())"
)
_ARRAY: Final = re.compile(r"(= ANY|<> ALL)\((\$\d+)\)")


@lru_cache(maxsize=256)
def translated(sql: str) -> str:
    """Return a statement of `database` as SQLite has it."""
    sql = _ARRAY.sub(
        lambda match: (
            f"{'IN' if match[1] == '= ANY' else 'NOT IN'} (SELECT value FROM json_each({match[2]}))"
        ),
        sql,
    )
    sql = sql.replace("FOR UPDATE SKIP LOCKED", "").replace("HELD()", _VALID)
    return sql.replace("CLOCK()", "hookline_clock()").replace("TIME()", "hookline_time()")


@lru_cache(maxsize=256)
def one(bulk: Bulk) -> str:
    """Return a bulk statement for one item."""
    names = [name for name, _ in bulk.names_and_types]
    columns = ", ".join(f"${n} AS {name}" for n, name in enumerate(names, 1))
    return f"WITH item AS (SELECT {columns}) {bulk.sql}"


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


class _Request(NamedTuple):
    """A transaction that waits for its turn."""

    work: Callable[[], Work[Any]]
    done: asyncio.Future[Any]


class File:
    """The database in one file."""

    def __init__(self, file: str, synchronous: str = "FULL") -> None:
        if file in ("", ":memory:"):
            raise UsageError(
                f"{file!r} is not a file that workers and clients can share; use the path of a "
                "file, as in sqlite:///jobs.db"
            )
        if synchronous not in ("FULL", "NORMAL"):
            raise UsageError(f"synchronous={synchronous!r} must be 'FULL' or 'NORMAL'")
        self.place = file
        self.boot = boot()
        self.lock = None
        self._synchronous = synchronous
        self._connection: sqlite3.Connection | None = None
        self._lock = threading.Lock()
        self._thread = ThreadPoolExecutor(1)  # a program may keep all of asyncio's threads busy
        self._requests: deque[_Request] = deque()

    @property
    def absence(self) -> str:
        folder = os.path.dirname(self.place) or "."
        if not os.path.isdir(folder):
            return f"the folder {folder!r} does not exist"
        verb = "has no tables of durable chats" if os.path.exists(self.place) else "does not exist"
        return f"the file {self.place!r} {verb}"

    # ── the file ────────────────────────────────────────────────────────────────────────────

    def _open(self) -> sqlite3.Connection:
        connection = sqlite3.connect(
            self.place, timeout=_BUSY, isolation_level=None, check_same_thread=False
        )
        try:
            _to_wal(connection)
            connection.execute(f"PRAGMA synchronous={self._synchronous}")
            connection.execute("PRAGMA secure_delete=ON")
            # All processes of a machine share this clock; it neither jumps nor counts its sleep.
            connection.create_function("hookline_clock", 0, time.monotonic)
            connection.create_function("hookline_time", 0, time.time)
            connection.create_function("hookline_boot", 0, lambda: self.boot)
            self._migrate(connection)
        except BaseException:
            connection.close()
            raise
        self._connection = connection
        return connection

    def _migrate(self, connection: sqlite3.Connection) -> None:
        if not migrations(self.place, _version(connection)):
            return
        connection.execute("BEGIN IMMEDIATE")
        for statement in migrations(self.place, _version(connection)):
            connection.execute(statement)
        connection.execute("COMMIT")

    async def exists(self) -> bool:
        if self._connection is not None:
            return True
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._thread, self._look)

    def _look(self) -> bool:
        """Return whether there are tables; creates neither the file nor tables."""
        if not os.path.exists(self.place):
            return False
        try:
            uri = f"{Path(self.place).absolute().as_uri()}?mode=rw"
            with closing(sqlite3.connect(uri, timeout=_BUSY, uri=True)) as connection:
                return _version(connection) > 0
        except sqlite3.Error as exc:
            raise self._explained(exc) from exc

    async def prepare(self) -> None:
        """Do nothing: the first statement opens the file."""

    async def aclose(self) -> None:
        with self._lock:
            connection, self._connection = self._connection, None
            if connection is not None:
                connection.close()
        thread, self._thread = self._thread, ThreadPoolExecutor(1)
        thread.shutdown(wait=False)

    # ── statements ──────────────────────────────────────────────────────────────────────────

    async def fetch(self, sql: str, *values: Any, reads: bool = False) -> list[Row]:
        if not reads:
            return await self.run(lambda: _only(Statement(sql, values)))
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._thread, self._read, Statement(sql, values))

    def _read(self, statement: Statement) -> list[Row]:
        with self._lock:
            try:
                return _execute(self._connection or self._open(), statement)
            except sqlite3.Error as exc:
                raise self._explained(exc) from exc

    async def apply(self, bulk: Bulk, item: tuple[Any, ...]) -> bool:
        return bool(await self.fetch(one(bulk), *item))

    async def run(self, work: Callable[[], Work[T]]) -> T:
        done: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        self._requests.append(_Request(work, done))
        self._thread.submit(self._commit)  # it takes all that wait by then
        return await done

    def _commit(self) -> None:
        """Run all transactions that wait, and commit them together."""
        with self._lock:
            requests: list[_Request] = []
            while self._requests:  # others may come meanwhile: they have submitted a commit, too
                request = self._requests.popleft()
                if not request.done.cancelled():
                    requests.append(request)
            if not requests:
                return
            try:
                results = self._all(requests)
            except sqlite3.Error as exc:
                error = self._explained(exc)
                error.__cause__ = exc
                results = [error] * len(requests)
            except Exception as exc:
                results = [exc] * len(requests)
        for request, value in zip(requests, results, strict=True):
            with suppress(RuntimeError):  # its loop is closed
                request.done.get_loop().call_soon_threadsafe(_deliver, request.done, value)

    def _all(self, requests: list[_Request]) -> list[Any]:
        connection = self._connection or self._open()
        connection.execute("BEGIN IMMEDIATE")
        try:
            results = [_drive(connection, request.work) for request in requests]
            connection.execute("COMMIT")
        except BaseException:
            if connection.in_transaction:  # SQLite itself ends it when a disk is full
                connection.execute("ROLLBACK")
            raise
        return results

    async def erase(self) -> None:
        await self.fetch("PRAGMA wal_checkpoint(TRUNCATE)", reads=True)  # the log has older pages

    def _explained(self, exc: Exception) -> StoreError:
        return StoreError(
            f"{self.place}: the jobs cannot be read or written ({exc}); check the file, its "
            "directory and the free space on the disk"
        )


def _deliver(done: asyncio.Future[Any], value: Any) -> None:
    if done.done():
        return
    if isinstance(value, Exception):
        done.set_exception(value)
    else:
        done.set_result(value)


def _version(connection: sqlite3.Connection) -> int:
    query = "SELECT 1 FROM sqlite_master WHERE type = 'table' AND name = 'hookline_job_schema'"
    if connection.execute(query).fetchone() is None:
        return 0
    return int(connection.execute("SELECT version FROM hookline_job_schema").fetchone()[0])


def _execute(connection: sqlite3.Connection, statement: Statement) -> list[Row]:
    values = {
        str(n): json.dumps(value) if isinstance(value, list) else value
        for n, value in enumerate(statement.values, 1)
    }
    return connection.execute(translated(statement.sql), values).fetchall()


def _only(statement: Statement) -> Work[list[Row]]:
    return (yield statement)


def _drive(connection: sqlite3.Connection, begin: Callable[[], Work[Any]]) -> Any:
    """Run one transaction among others; returns its value, or the exception that undid it."""
    work = begin()
    connection.execute("SAVEPOINT work")
    try:
        statement = next(work)
        while True:
            statement = work.send(_execute(connection, statement))
    except StopIteration as stop:
        connection.execute("RELEASE work")
        return stop.value
    except sqlite3.Error:  # of the file: it undoes them all
        raise
    except Exception as exc:
        connection.execute("ROLLBACK TO work")
        connection.execute("RELEASE work")
        return exc
