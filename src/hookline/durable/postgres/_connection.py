"""The database of `hookline.durable.postgres`: its connections, and how statements run there.

A single statement is a transaction of its own, without `BEGIN` and `COMMIT`. Items of bulk
statements that come while an earlier one runs share the next one.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager, suppress
from contextvars import Context
from functools import lru_cache
from typing import Any, Final, TypeVar
from urllib.parse import unquote, urlsplit

from hookline.durable._polled.database import Bulk, Row, Work
from hookline.durable._polled.schema import LATEST, migrations
from hookline.durable._shared.extra import needed
from hookline.errors import StoreError, UsageError
from hookline.storage import shown_url

T = TypeVar("T")
_LOCK: Final = 0x686F6F6B  # the lock for the preparation
_SILENCE: Final = 30.0  # seconds after which a server that does not answer counts as lost
_LONGEST: Final = 300  # characters of the server's words in an error
_BULK: Final = 1000  # items of one bulk statement
_EPOCH: Final = "extract(epoch FROM clock_timestamp())::float8"


@lru_cache(maxsize=256)
def translated(sql: str) -> str:
    """Return a statement of `database` as PostgreSQL has it."""
    sql = sql.replace("HELD()", "(owner IS NOT NULL AND lease >= CLOCK())")
    return sql.replace("CLOCK()", _EPOCH).replace("TIME()", _EPOCH)


@lru_cache(maxsize=16)
def many(bulk: Bulk) -> str:
    """Return a bulk statement for many items, each column of which is an array."""
    arrays = ", ".join(f"${n}::{kind}[]" for n, (_, kind) in enumerate(bulk.names_and_types, 1))
    names = ", ".join(name for name, _ in bulk.names_and_types)
    return f"WITH item AS (SELECT * FROM unnest({arrays}) _ ({names})) {bulk.sql}"


async def _as_it_is(connection: Any) -> None:
    """Leave a connection as it is: we change nothing that the next user would see."""


class Connections:
    """The connections to one database."""

    boot = ""
    lock = "SELECT pg_advisory_xact_lock(hashtextextended($1, 0))"

    def __init__(self, url: str) -> None:
        scheme, _, rest = url.partition(":")
        if scheme.partition("+")[0] not in ("postgres", "postgresql"):
            raise UsageError(
                f"{shown_url(url)!r} is not the URL of a database; use postgresql://user@host/name"
            )
        self._asyncpg = needed("asyncpg")
        self._errors = (
            self._asyncpg.PostgresError,
            self._asyncpg.InterfaceError,
            self._asyncpg.InternalClientError,  # a connection broke during a statement
        )
        self._url = f"postgresql:{rest}"
        self.place = shown_url(self._url)
        self.absence = f"{self.place} has no tables of durable chats"
        self._ready = False
        self._pool: Any = None
        self._opening = asyncio.Lock()
        self._items: dict[Bulk, list[tuple[tuple[Any, ...], asyncio.Future[bool]]]] = {}
        self._tasks: set[asyncio.Task[None]] = set()  # which run bulk statements

    # ── connections ─────────────────────────────────────────────────────────────────────────

    @asynccontextmanager
    async def _connection(self) -> AsyncGenerator[Any]:
        """Take a connection, and drop it if the server falls silent. Raises StoreError."""
        try:
            pool = self._pool or await self._open()
            connection = await pool.acquire(timeout=_SILENCE)
            # A limit of asyncpg itself would wait for the server, to cancel the statement there.
            loop = asyncio.get_running_loop()
            timer = loop.call_later(_SILENCE, connection.terminate, context=Context())
            try:
                yield connection
            finally:
                timer.cancel()
                with suppress(TimeoutError):  # the pool has then dropped the connection
                    await pool.release(connection, timeout=_SILENCE)
        except (OSError, *self._errors) as exc:
            raise self._explained(exc) from exc

    def _explained(self, exc: Exception) -> StoreError:
        """Return the error with the server's words, and without the password."""
        name, words = self.place, " ".join(str(exc).split()) or type(exc).__name__
        if password := unquote(urlsplit(self._url).password or ""):
            words = words.replace(password, "…")
        words = words[:_LONGEST]
        connection = self._asyncpg.PostgresConnectionError
        stopping = self._asyncpg.OperatorInterventionError
        broken = (ConnectionResetError, BrokenPipeError, connection, stopping, *self._errors[1:])
        if isinstance(exc, broken):
            return StoreError(f"{name}: the connection was cut ({words}); try again")
        if isinstance(exc, OSError):
            return StoreError(
                f"{name}: the server cannot be reached ({words}); check that it runs, and that the "
                "host and port are right"
            )
        return StoreError(
            f"{name}: the database refused the operation ({words}); check that the database "
            "exists, and that its user may write"
        )

    async def _open(self) -> Any:
        async with self._opening:
            if self._pool is None:
                # The timer of an idle connection would keep the context of its last chat alive.
                self._pool = await self._asyncpg.create_pool(
                    self._url,
                    min_size=0,
                    max_size=8,
                    max_inactive_connection_lifetime=0,
                    reset=_as_it_is,
                )
            return self._pool

    async def aclose(self) -> None:
        if self._tasks:
            await asyncio.wait(self._tasks)
        self._ready = False
        pool, self._pool = self._pool, None
        if pool is not None:
            with suppress(TimeoutError):  # the pool has then dropped its connections
                async with asyncio.timeout(_SILENCE):
                    await pool.close()

    # ── the tables ──────────────────────────────────────────────────────────────────────────

    async def exists(self) -> bool:
        if not self._ready:
            [[exists]] = await self.fetch("SELECT to_regclass('hookline_job_schema') IS NOT NULL")
            if not exists:
                return False
            await self.prepare()
        return True

    async def prepare(self) -> None:
        if self._ready:
            return
        async with self._connection() as connection:
            if await _version(connection) != LATEST:
                await connection.execute("SELECT pg_advisory_lock($1)", _LOCK)
                try:
                    async with connection.transaction():  # it sees what the last one has created
                        for statement in migrations(self.place, await _version(connection)):
                            await connection.execute(statement)
                finally:
                    await connection.execute("SELECT pg_advisory_unlock($1)", _LOCK)
        self._ready = True

    # ── statements ──────────────────────────────────────────────────────────────────────────

    async def erase(self) -> None:
        """Do nothing: the server vacuums its tables."""

    async def fetch(self, sql: str, *values: Any, reads: bool = False) -> list[Row]:
        async with self._connection() as connection:
            return list(await connection.fetch(translated(sql), *values))

    async def run(self, work: Callable[[], Work[T]]) -> T:
        async with self._connection() as connection, connection.transaction():
            steps = work()
            try:
                statement = next(steps)
                while True:
                    rows = await connection.fetch(translated(statement.sql), *statement.values)
                    statement = steps.send(list(rows))
            except StopIteration as stop:
                value: T = stop.value
        return value

    async def apply(self, bulk: Bulk, item: tuple[Any, ...]) -> bool:
        done: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        if bulk in self._items:
            self._items[bulk].append((item, done))
        else:
            self._items[bulk] = [(item, done)]
            task = asyncio.create_task(self._apply(bulk), context=Context())
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
        return await done

    async def _apply(self, bulk: Bulk) -> None:
        """Run a bulk statement until no items wait."""
        while self._items[bulk]:
            items = self._items[bulk][:_BULK]
            del self._items[bulk][:_BULK]
            arrays = [list(column) for column in zip(*[item for item, _ in items], strict=True)]
            try:
                rows = await self.fetch(many(bulk), *arrays)
            except Exception as exc:
                for _, done in items:
                    if not done.done():
                        done.set_exception(exc)
            else:
                keys = {tuple(row) for row in rows}
                for item, done in items:
                    if not done.done():
                        done.set_result(tuple(item[n] for n in bulk.key) in keys)
        del self._items[bulk]


async def _version(connection: Any) -> int:
    if not await connection.fetchval("SELECT to_regclass('hookline_job_schema') IS NOT NULL"):
        return 0
    return int(await connection.fetchval("SELECT version FROM hookline_job_schema"))
