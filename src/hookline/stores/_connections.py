"""A database for one event loop: its connections, and the explanation of its errors.

SQLite uses WAL, a busy timeout, and one writer at a time. PostgreSQL uses a connection pool. If a
connection is lost, it is retried for a while, because a server may be restarting.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from importlib import import_module
from os import path
from typing import Any, Final, Literal, TypeAlias, TypeVar

import sqlalchemy as sa
from sqlalchemy import event
from sqlalchemy.exc import DBAPIError, SQLAlchemyError
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine, create_async_engine

from hookline.errors import StoreError
from hookline.stores._schema import BYTEWISE, LATEST, LOCK, MIGRATIONS, SCHEMA
from hookline.stores._url import Address

T = TypeVar("T")
How: TypeAlias = Literal["read", "write", "transaction"]
Work: TypeAlias = Callable[[AsyncConnection, bool], Awaitable[T]]

# The errors of a PostgreSQL server that stops, starts, or has dropped a connection (SQLSTATE).
_UNREACHABLE: Final = ("08", "57P")
_HINTS: Final = (
    (
        "queuepool limit",
        "all connections were in use for too long: give SQLStore a larger pool_size= or "
        "pool_timeout=",
    ),
    (
        "too many clients",
        "the server has no free connections: give the SQLStore of each process a smaller "
        "pool_size=, or raise max_connections on the server",
    ),
    ("readonly", "the file is read-only: give this process write permission"),
    (
        "database is locked",
        "another program has locked the file: end that program, or raise busy_timeout=",
    ),
    ("disk is full", "the disk is full: make room, then write again"),
    ("disk i/o", "the disk cannot be read or written: check the disk and its free space"),
    ("unable to open", "the file cannot be opened: check its directory and its permissions"),
    ("malformed", "the file is damaged: restore it from a backup"),
    ("not a database", "the file is not a SQLite database: check the path in the URL"),
)


class Database:
    """The connections of one event loop to one database."""

    def __init__(
        self,
        address: Address,
        options: dict[str, Any],
        *,
        busy_timeout: float,
        synchronous: str,
        reconnect: float,
    ) -> None:
        url = address.url
        self.sqlite = url.get_backend_name() == "sqlite"
        file = (url.database or "") if self.sqlite else ""
        self._directory = "" if file.startswith("file:") else path.dirname(file)
        self._name, self._secret = address.name, address.secret
        self._reconnect = 0.0 if self.sqlite else reconnect
        self._outage_start = 0.0  # the time at which the server became unreachable
        self._failed = 0.0  # the time of the last attempt that did not reach it
        self._busy_timeout = busy_timeout
        self._ready = False
        self._lock = asyncio.Lock()  # held while writing to SQLite, and during the setup
        connect = {**address.connect, **options.get("connect_args", {})}
        options = {**options, "connect_args": connect}
        self.engine: AsyncEngine = create_async_engine(
            url, isolation_level="AUTOCOMMIT", pool_reset_on_return=None, **options
        )
        self._transacted = self.engine.execution_options(isolation_level="READ COMMITTED")
        self._lost: tuple[type[Exception], ...] = (OSError, EOFError)
        self._errors: tuple[type[Exception], ...] = (SQLAlchemyError,)
        if self.sqlite:
            timeout = int(busy_timeout * 1000)

            @event.listens_for(self.engine.sync_engine, "connect")
            def prepare(connection: Any, record: Any) -> None:
                try:
                    cursor = connection.cursor()
                    cursor.execute(f"PRAGMA busy_timeout={timeout}")
                    cursor.execute(f"PRAGMA synchronous={synchronous}")
                    cursor.execute("PRAGMA foreign_keys=ON")
                    cursor.execute("PRAGMA secure_delete=ON")
                    cursor.close()
                except BaseException:
                    connection.close()  # nothing else would close it
                    raise
        else:
            # SQLAlchemy 2.0 does not wrap what asyncpg raises while it connects, nor its error for
            # a connection that broke just before a statement.
            asyncpg = import_module("asyncpg")
            self._lost += (asyncpg.InternalClientError,)
            self._errors += (asyncpg.InterfaceError, asyncpg.PostgresError)

    async def close(self) -> None:
        """Close all connections."""
        async with self._lock:
            await self.engine.dispose()
            self._ready = False

    async def run(self, how: How, work: Work[T]) -> T:
        """Run `work` with a connection; it is told whether an earlier attempt may have succeeded.

        Raises StoreError, which says what to do.
        """
        again = uncertain = False
        pause = 0.02
        loop = asyncio.get_running_loop()
        until: float | None = None
        if loop.time() > self._failed + self._reconnect:
            self._outage_start = 0.0  # that was an earlier outage
        while True:
            try:
                if not self._ready:
                    await self._make_ready()
                value = await self._once(how, work, again)
                self._outage_start = 0.0
                return value
            except (*self._errors, *self._lost) as exc:
                if not self._is_away(exc):
                    raise self._explained(exc, uncertain) from exc
                uncertain |= how != "read" and not isinstance(exc, ConnectionError)
                now = self._failed = loop.time()
                self._outage_start = self._outage_start or now  # parallel calls share one deadline
                until = until or self._outage_start + self._reconnect
                if now >= until:
                    raise self._explained(exc, uncertain) from exc
            again = True
            await asyncio.sleep(pause)
            pause = min(pause * 2, 0.5)

    async def _once(self, how: How, work: Work[T], again: bool) -> T:
        if how == "read" or (not self.sqlite and how == "write"):
            async with self.engine.connect() as connection:
                return await work(connection, again)
        if not self.sqlite:
            async with self._transacted.begin() as connection:
                return await work(connection, again)
        async with self._lock, self.engine.connect() as connection:
            try:
                if how == "write":
                    return await work(connection, again)
                return await _in_transaction(connection, work, again)
            except BaseException:
                await connection.invalidate()  # rolls back an unfinished transaction
                raise

    async def erase(self) -> None:
        """Remove from SQLite's files what was deleted; a server does so when it vacuums."""

        async def work(connection: AsyncConnection, again: bool) -> None:
            await connection.exec_driver_sql("PRAGMA wal_checkpoint(TRUNCATE)")

        if self.sqlite:
            await self.run("write", work)

    # ── the schema ──────────────────────────────────────────────────────────────────────────

    async def _make_ready(self) -> None:
        async with self._lock:
            if self._ready:
                return
            if self._directory and not await asyncio.to_thread(path.isdir, self._directory):
                raise StoreError(
                    f"{self._name}: there is no directory {self._directory!r}; create it"
                )
            async with self.engine.connect() as connection:
                if self.sqlite:
                    await self._to_wal(connection)
                version = await _version(connection)
            if version < LATEST:
                if self.sqlite:
                    async with self.engine.connect() as connection:
                        await _in_transaction(connection, _migrate, False)
                else:
                    async with self._transacted.begin() as connection:
                        await connection.execute(sa.select(sa.func.pg_advisory_xact_lock(LOCK)))
                        await _migrate(connection, False)
            elif version > LATEST:
                raise StoreError(
                    f"{self._name} has schema {version}, but this version of hookline supports "
                    f"only schema {LATEST}. Install a newer version; nothing was read or written"
                )
            self._ready = True

    async def _to_wal(self, connection: AsyncConnection) -> None:
        """Switch to WAL; retries, because SQLite refuses at once while the file is in use."""
        until = asyncio.get_running_loop().time() + self._busy_timeout
        while (await connection.exec_driver_sql("PRAGMA journal_mode")).scalar() != "wal":
            try:
                await connection.exec_driver_sql("PRAGMA journal_mode=WAL")
            except DBAPIError as exc:
                late = asyncio.get_running_loop().time() > until
                if late or "locked" not in str(exc):
                    raise
                await asyncio.sleep(0.02)

    def _is_away(self, exc: Exception) -> bool:
        """Return whether the server could not be reached, or has dropped the connection."""
        if isinstance(exc, self._lost):
            return True
        if isinstance(exc, DBAPIError) and exc.connection_invalidated:
            return True
        return str(getattr(_cause(exc), "sqlstate", None) or "").startswith(_UNREACHABLE)

    def _explained(self, exc: Exception, uncertain: bool) -> StoreError:
        cause = _cause(exc)
        text = " ".join(str(cause).split()) or type(cause).__name__
        if self._secret:
            text = text.replace(self._secret, "…")
        text = text[:300]
        lowered = text.lower()
        hint = next((hint for sign, hint in _HINTS if sign in lowered), None)
        if hint is None and self._is_away(exc):
            hint = f"the server was unreachable for {self._reconnect:g} s: check that it runs" + (
                ". The last change may or may not have been written" * uncertain
            )
        if hint is None:
            hint = (
                "the database refused the operation; see the message, and the log of the database"
            )
        return StoreError(f"{self._name}: {hint} ({text})")


async def _in_transaction(connection: AsyncConnection, work: Work[T], again: bool) -> T:
    """Begin as a writer in SQLite, because two readers that become writers could deadlock."""
    await connection.exec_driver_sql("BEGIN IMMEDIATE")
    value = await work(connection, again)
    await connection.exec_driver_sql("COMMIT")
    return value


async def _version(connection: AsyncConnection) -> int:
    def has_table(sync: sa.Connection) -> bool:
        return sa.inspect(sync).has_table(SCHEMA.name)

    if not await connection.run_sync(has_table):
        return 0
    version = (await connection.execute(sa.select(SCHEMA.c.version))).scalar()
    return int(version or 0)


async def _migrate(connection: AsyncConnection, again: bool) -> None:
    """Run the missing migrations; another process may have run them first."""
    version = await _version(connection)
    if version == 0:
        await connection.exec_driver_sql("CREATE TABLE hookline_schema (version BIGINT NOT NULL)")
        await connection.execute(SCHEMA.insert().values(version=0))
    bytewise = f'"{BYTEWISE[connection.dialect.name]}"'
    for number, statements in enumerate(MIGRATIONS, start=1):
        if number > version:
            for statement in statements:
                await connection.exec_driver_sql(statement.format(bytewise=bytewise))
            await connection.execute(SCHEMA.update().values(version=number))


def _cause(exc: Exception) -> BaseException:
    """Return the driver's error that SQLAlchemy has wrapped, or the error itself."""
    return exc.orig if isinstance(exc, DBAPIError) and exc.orig is not None else exc
