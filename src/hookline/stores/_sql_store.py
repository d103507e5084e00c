"""`SQLStore`: conversations in SQLite or PostgreSQL, by URL.

Each message is written by one INSERT, which checks the lease and the revision. The position of the
message is part of its primary key. This way each message is written at most once, in order, and
only by the chat that holds the lease. No connection or transaction stays open during a model call.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from functools import partial
from typing import Any, Literal
from weakref import WeakKeyDictionary

import msgspec

try:
    import sqlalchemy as sa
    from sqlalchemy.exc import IntegrityError
    from sqlalchemy.ext.asyncio import AsyncConnection
except ModuleNotFoundError as exc:
    raise ModuleNotFoundError(
        f"hookline.stores needs {exc.name}: pip install 'hookline[sqlite]' or 'hookline[postgres]'",
        name=exc.name,
    ) from exc

from hookline import ApprovalRequest, Conversation, Message
from hookline.errors import ConversationBusyError, UsageError
from hookline.points import check_number
from hookline.storage import Change, ConversationInfo, Stored, chat_of, check_id, check_page
from hookline.stores._connections import Database
from hookline.stores._leases import Leases
from hookline.stores._rows import (
    APPEND,
    COUNT,
    in_range,
    lock,
    messages_of,
    meta_of,
    pending_of,
    row_of,
    spend,
    version_after,
    write,
)
from hookline.stores._schema import CONVERSATION, MESSAGE
from hookline.stores._url import read_url

C, M = CONVERSATION.c, MESSAGE.c


class SQLStore:
    """Conversations in a database: `sqlite:///chats.db` or `postgresql://user@host/name`.

    `lease` is the number of seconds after which another process may take over the conversation of a
    dead process. `busy_timeout` is the number of seconds that SQLite waits for another program's
    lock. `synchronous` is SQLite's setting. With "NORMAL", messages survive the end of the process,
    but a power loss may lose the last messages. With "FULL", each write waits for the disk.
    `reconnect` is the number of seconds that a PostgreSQL server may be unreachable. Other options,
    such as `pool_size=20`, go to SQLAlchemy's `create_async_engine`. Raises UsageError if the URL
    or an option cannot work, or if the extra is not installed.
    """

    def __init__(
        self,
        url: str,
        *,
        lease: float = 30.0,
        busy_timeout: float = 5.0,
        synchronous: Literal["FULL", "NORMAL"] = "NORMAL",
        reconnect: float = 10.0,
        clock: Callable[[], float] = time.time,
        **engine: Any,
    ) -> None:
        check_number("lease", lease, above=0)
        check_number("busy_timeout", busy_timeout)
        check_number("reconnect", reconnect)
        if not callable(clock):
            raise UsageError(f"clock={clock!r} must be a function that returns the time in seconds")
        if synchronous not in ("FULL", "NORMAL"):
            raise UsageError(f"synchronous={synchronous!r} must be 'FULL' or 'NORMAL'")
        self._address = read_url(url)
        self._connect = partial(
            Database,
            self._address,
            engine,
            busy_timeout=busy_timeout,
            synchronous=synchronous,
            reconnect=reconnect,
        )
        self._clock = clock
        self._databases: WeakKeyDictionary[asyncio.AbstractEventLoop, Database]
        self._databases = WeakKeyDictionary()
        # The time as SQL: of PostgreSQL's one clock, or of this machine when the statement runs.
        self._now: Any
        insert: Any
        if self._address.url.get_backend_name() == "sqlite":
            from sqlalchemy.dialects.sqlite import insert

            self._now = sa.bindparam("now", callable_=clock, type_=C.expires.type, unique=True)
        else:
            from sqlalchemy.dialects.postgresql import insert

            self._now = sa.cast(sa.extract("epoch", sa.func.clock_timestamp()), C.expires.type)
        self._leases = Leases(lease, self._now, insert)
        try:
            self._connect()
        except (TypeError, ValueError) as exc:
            options = ", ".join(f"{name}=" for name in engine)  # the values may be secret
            raise UsageError(
                f"store={self._address.name!r} cannot be opened ({exc}); change "
                + (
                    f"{options}, which must be options of SQLAlchemy's engine"
                    if options
                    else "its URL"
                )
            ) from exc

    @property
    def lease(self) -> float | None:
        """Seconds until another owner may take over a lease that is not renewed."""
        return self._leases.seconds

    async def __aenter__(self) -> SQLStore:
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        """Close the connections of this event loop; the store may be used again."""
        loop = asyncio.get_running_loop()
        database = self._databases.pop(loop, None)
        if database is None:
            return
        try:
            await database.close()
        except BaseException:
            self._databases.setdefault(loop, database)  # the next aclose() closes the rest
            raise

    @property
    def _database(self) -> Database:
        loop = asyncio.get_running_loop()
        database = self._databases.get(loop)
        if database is None:
            database = self._databases[loop] = self._connect()
        return database

    # ── reading ─────────────────────────────────────────────────────────────────────────────

    async def open(self, conversation_id: str) -> Conversation:
        """Load the conversation with this id, or create it if there is none."""
        return await Conversation.open(self, conversation_id)

    async def load(self, conversation_id: str) -> Stored | None:
        """Return the stored conversation; None if nothing was ever written."""
        check_id(conversation_id)
        alive = sa.and_(C.owner.is_not(None), C.expires > self._now).label("alive")
        head = sa.select(CONVERSATION, alive, COUNT.label("at")).where(C.id == conversation_id)

        async def work(connection: AsyncConnection, again: bool) -> Any:
            while True:
                row = (await connection.execute(head)).one_or_none()
                if row is None:
                    return None
                messages = await messages_of(connection, conversation_id, row.revision)
                if messages is not None:
                    return row, messages[: row.at]  # later ones may come with another meta

        read = await self._database.run("read", work)
        if read is None:
            return None
        row, messages = read
        return Stored(
            id=conversation_id,
            version=row.revision + len(messages),
            messages=messages,
            meta=meta_of(conversation_id, row.meta),
            pending=pending_of(conversation_id, row.pending),
            owner=self._leases.owner(row),
        )

    async def list(
        self, *, prefix: str = "", limit: int = 100, offset: int = 0
    ) -> tuple[ConversationInfo, ...]:
        """List the conversations whose ids begin with `prefix`, the most recently changed first.

        Raises UsageError unless `limit` and `offset` are whole numbers of at least 0.
        """
        check_page(limit, offset)
        count = (
            sa.select(sa.func.count())
            .select_from(MESSAGE)
            .where(M.conversation_id == C.id)
            .scalar_subquery()
        )
        query = (
            sa.select(C.id, count.label("count"), C.meta, C.created, C.updated, C.waits)
            .where(sa.or_(C.revision != 0, count > 0))  # skip rows of chats that wrote nothing
            .order_by(C.updated.desc(), C.id)
            .limit(limit)
            .offset(offset)
        )
        return tuple(
            [
                ConversationInfo(
                    id=row[0],
                    messages=row[1],
                    meta=meta_of(row[0], row[2]),
                    created=row[3],
                    updated=row[4],
                    waits=bool(row[5]),
                )
                for row in await self._select(query, prefix)
            ]
        )

    async def pending(
        self, conversation_id: str | None = None, *, prefix: str = ""
    ) -> tuple[ApprovalRequest, ...]:
        """The requests that wait for an approval, in one conversation or in all conversations
        whose ids begin with `prefix`.
        """
        alive = sa.and_(C.owner.is_not(None), C.expires > self._now).label("alive")
        query = sa.select(C.id, C.pending, alive).where(C.waits == 1).order_by(C.id)
        if conversation_id is not None:
            check_id(conversation_id)
            query = query.where(C.id == conversation_id)
        rows = await self._select(query, prefix)
        steps = [(pending_of(id, pending), runs) for id, pending, runs in rows]
        return tuple(
            [
                request
                for step, runs in steps
                if step is not None
                for request in (step.waiting if runs else step.unbegun)
            ]
        )

    async def _select(self, query: Any, prefix: str) -> Any:
        """Return the rows of the conversations whose ids begin with `prefix`."""

        async def work(connection: AsyncConnection, again: bool) -> Any:
            dialect = connection.dialect.name
            return (await connection.execute(query.where(*in_range(prefix, dialect)))).all()

        return await self._database.run("read", work)

    # ── the lease ───────────────────────────────────────────────────────────────────────────

    async def acquire(self, conversation_id: str, owner: str, *, heir: bool = False) -> int:
        """Assign the lease to this owner, and return the version."""
        check_id(conversation_id)
        return await self._leases.acquire(self._database, conversation_id, owner, heir)

    async def renew(self, conversation_id: str, owner: str) -> bool:
        """Renew the owner's lease; returns False if another owner holds it now."""
        return await self._leases.renew(self._database, conversation_id, owner)

    async def release(self, conversation_id: str, owner: str) -> None:
        """Release the lease, if this owner holds it."""
        await self._leases.release(self._database, conversation_id, owner)

    # ── writing ─────────────────────────────────────────────────────────────────────────────

    async def append(self, conversation_id: str, change: Change) -> int:
        """Write the whole change or nothing, and return the new version."""
        plain = change.meta is msgspec.UNSET and change.pending is msgspec.UNSET
        if plain and not change.fresh and len(change.messages) == 1:
            return await self._append_one(conversation_id, change)
        owner, expected = change.owner, change.expected

        async def work(connection: AsyncConnection, again: bool) -> int:
            count = await lock(connection, conversation_id, owner, expected)
            if count is None:
                return await version_after(connection, conversation_id, owner, expected, again)
            await write(connection, conversation_id, change, count, self._clock())
            return expected + 1

        return await self._database.run("transaction", work)

    async def _append_one(self, conversation_id: str, change: Change) -> int:
        """Append one message in one statement, which almost every write is."""
        owner, expected = change.owner, change.expected
        values = {
            **row_of(conversation_id, change.place, change.messages[0], self._clock()),
            "owner_": owner,
            "revision_": expected - change.place,
        }

        async def work(connection: AsyncConnection, again: bool) -> int:
            try:
                is_written = (await connection.execute(APPEND, values)).rowcount == 1
            except IntegrityError:  # another message has its place or its id
                is_written = False
            if not is_written:
                return await version_after(connection, conversation_id, owner, expected, again)
            return expected + 1

        return await self._database.run("write", work)

    async def update(
        self, conversation_id: str, message: Message, *, owner: str, expected: int
    ) -> int:
        """Replace the message that has this id, and return the new version.

        Raises UsageError if there is none.
        """
        put = (
            MESSAGE.update()
            .where(M.conversation_id == conversation_id, M.id == message.id)
            .values(body=message.to_json().decode())
        )
        count_up = CONVERSATION.update().where(C.id == conversation_id)

        async def work(connection: AsyncConnection, again: bool) -> int:
            if await lock(connection, conversation_id, owner, expected) is None:
                return await version_after(connection, conversation_id, owner, expected, again)
            if (await connection.execute(put)).rowcount != 1:
                raise UsageError(
                    f"conversation {conversation_id!r} has no message {message.id!r} to update; "
                    "pass the id of one of its messages"
                )
            await connection.execute(count_up.values(revision=C.revision + 1))
            return expected + 1

        return await self._database.run("transaction", work)

    async def delete(self, conversation_id: str) -> bool:
        """Delete a conversation; returns False if there is none. Raises ConversationBusyError."""
        check_id(conversation_id)
        now = self._now

        async def work(connection: AsyncConnection, again: bool) -> bool:
            holder = sa.select(C.owner, (C.expires > now).label("alive"))
            query = holder.where(C.id == conversation_id).with_for_update()
            row = (await connection.execute(query)).one_or_none()
            if row is None:
                return again  # deleted by the earlier attempt
            if row.owner is not None and row.alive:
                raise ConversationBusyError(conversation_id, chat_of(row.owner))
            await connection.execute(MESSAGE.delete().where(M.conversation_id == conversation_id))
            await connection.execute(CONVERSATION.delete().where(C.id == conversation_id))
            return True

        deleted = await self._database.run("transaction", work)
        await self._database.erase()
        return deleted

    async def spend(
        self, account: str, amount: float, *, limit: float | None = None
    ) -> float | None:
        """Add the amount to the account; return the new total, or None if it is at its limit."""
        if limit is not None:
            check_number("limit", limit)
        return await self._database.run("write", partial(spend, account, amount, limit))
