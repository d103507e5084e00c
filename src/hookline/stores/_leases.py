"""Leases: the life of a chat that holds a conversation, and the expiry of dead leases."""

from __future__ import annotations

import time
from typing import Any, Final

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from hookline.errors import ConversationBusyError, StoreError
from hookline.storage import chat_of, inherits
from hookline.stores._connections import Database
from hookline.stores._rows import COUNT, NEXT
from hookline.stores._schema import CONVERSATION

C = CONVERSATION.c
_MAX_WATCHES: Final = 1000  # the number of other owners' leases to remember


class Leases:
    """Takes and releases the leases of one store."""

    def __init__(self, seconds: float, now: Any, insert: Any) -> None:
        self.seconds = seconds
        self._now = now  # the current time as an SQL expression
        self._insert = insert  # the insert construct of the dialect
        # Built once: a thousand chats renew theirs a hundred times a second.
        self._renewal = (
            CONVERSATION.update()
            .where(C.id == sa.bindparam("id_"), C.owner == sa.bindparam("owner_"))
            .values(beat=C.beat + 1, expires=now + seconds)
        )
        self._watches: dict[str, tuple[str, int, float]] = {}
        self._ended_owners: set[str] = set()  # owners whose leases could not be released

    def owner(self, row: Any) -> str | None:
        """The owner of a conversation's lease; None if the lease is free or known to have ended."""
        owner: str | None = row.owner
        return owner if row.alive and owner not in self._ended_owners else None

    async def acquire(
        self, database: Database, conversation_id: str, owner: str, heir: bool
    ) -> int:
        """Give the lease to this owner, and return the version."""
        now = self._now
        values = {
            "id": conversation_id,
            "revision": 0,
            "messages": 0,
            "meta": "{}",
            "waits": 0,
            "beat": 0,
            "created": now,
            "updated": now,
            **self._owned(owner),
        }
        mine = {**self._owned(owner), "beat": C.beat + 1, "updated": now}
        insert = self._insert(CONVERSATION).values(values)

        def take(*owners: str) -> Any:
            """Take it where nobody has it, or one of these."""
            return insert.on_conflict_do_update(
                index_elements=[C.id],
                set_=mine,
                where=sa.or_(C.owner.is_(None), C.owner.in_(owners), C.expires <= now),
            ).returning(C.revision, C.messages)

        holder = sa.select(C.owner, C.beat, C.lease).where(C.id == conversation_id)

        async def work(connection: AsyncConnection, again: bool) -> int:
            earlier = owner
            while True:
                row = (await connection.execute(take(owner, earlier))).one_or_none()
                if row is not None:
                    self._watches.pop(conversation_id, None)
                    self._ended_owners.discard(owner)  # a release may have failed before
                    highest = await connection.execute(sa.select(NEXT), {"id_": conversation_id})
                    count = max(highest.scalar_one(), row.messages)  # missing messages are damage
                    return int(row.revision + count)
                current = (await connection.execute(holder)).one_or_none()
                if current is None or current.owner is None:
                    continue  # the conversation was deleted or released in between
                if heir and inherits(owner, current.owner):
                    earlier = current.owner  # in one statement: no other chat comes between
                    continue
                if current.owner in self._ended_owners:
                    self._ended_owners.discard(current.owner)
                elif not self._is_dead(conversation_id, current):
                    raise ConversationBusyError(conversation_id, chat_of(current.owner))
                dead = CONVERSATION.update().where(
                    C.id == conversation_id, C.owner == current.owner, C.beat == current.beat
                )
                await connection.execute(dead.values(owner=None))

        return await database.run("write", work)

    def _owned(self, owner: str) -> dict[str, Any]:
        return {"owner": owner, "lease": self.seconds, "expires": self._now + self.seconds}

    def _is_dead(self, conversation_id: str, lease: Any) -> bool:
        """Return whether a lease was watched for its whole duration without being renewed.

        Otherwise a clock that was set back could lock a dead chat's conversation for a long time.
        """
        now = time.monotonic()
        owner, beat, start = self._watches.get(conversation_id, ("", 0, 0.0))
        if (owner, beat) == (lease.owner, lease.beat):
            return bool(now - start > lease.lease)
        while len(self._watches) >= _MAX_WATCHES:
            self._watches.pop(next(iter(self._watches)))
        self._watches[conversation_id] = (lease.owner, lease.beat, now)
        return False

    async def renew(self, database: Database, conversation_id: str, owner: str) -> bool:
        """Renew the lease; returns False if another owner holds it now."""
        names = {"id_": conversation_id, "owner_": owner}

        async def work(connection: AsyncConnection, again: bool) -> bool:
            done = await connection.execute(self._renewal, names)
            return int(done.rowcount) == 1

        return await database.run("write", work)

    async def release(self, database: Database, conversation_id: str, owner: str) -> None:
        """Release the lease, if this owner holds it."""
        statement = (
            CONVERSATION.update()
            .where(C.id == conversation_id, C.owner == owner)
            .values(
                owner=None,
                expires=None,
                updated=self._now,
                messages=sa.case((C.messages < COUNT, COUNT), else_=C.messages),
            )
        )

        async def work(connection: AsyncConnection, again: bool) -> None:
            await connection.execute(statement)

        try:
            await database.run("write", work)
        except StoreError:
            # In this process, no chat has to wait until the lease expires.
            self._ended_owners.add(owner)
            raise
