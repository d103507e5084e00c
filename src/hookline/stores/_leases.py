"""Leases: which life of a chat has a conversation at the moment, and when a dead one's is free."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, Final

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from hookline.errors import ConversationBusyError, StoreError
from hookline.storage import chat_of
from hookline.stores._database import Database
from hookline.stores._rows import COUNT, NEXT
from hookline.stores._schema import CONVERSATION

C = CONVERSATION.c
_SEEN: Final = 1000  # leases of others that are remembered


class Leases:
    """The leases of one store, taken and given back by it."""

    def __init__(self, seconds: float, now: Callable[[], Any], insert: Any) -> None:
        self.seconds = seconds
        self._now = now  # the time as SQL
        self._insert = insert  # of the dialect
        self._seen: dict[str, tuple[str, int, float]] = {}
        self._ended: set[str] = set()  # owners whose leases could not be released

    def owner(self, row: Any) -> str | None:
        """Who has a conversation, where it is alive as far as one knows."""
        owner: str | None = row.owner
        return owner if row.alive and owner not in self._ended else None

    async def acquire(
        self, database: Database, conversation_id: str, owner: str, heir: bool
    ) -> int:
        """Give the lease to this owner, and tell the version."""
        now = self._now()
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
        free = [C.owner.is_(None), C.owner == owner, C.expires <= now]
        if heir:
            free.append(C.owner.startswith(f"{chat_of(owner)}/", autoescape=True))
        take = insert.on_conflict_do_update(
            index_elements=[C.id],
            set_=mine,
            where=sa.or_(*free),
        ).returning(C.revision, C.messages)
        holder = sa.select(C.owner, C.beat, C.lease).where(C.id == conversation_id)

        async def work(connection: AsyncConnection, again: bool) -> int:
            while True:
                taken = (await connection.execute(take)).one_or_none()
                if taken is not None:
                    self._seen.pop(conversation_id, None)
                    found = await connection.execute(sa.select(NEXT), {"id_": conversation_id})
                    count = max(found.scalar_one(), taken.messages)  # fewer are damage, not news
                    return int(taken.revision + count)
                held = (await connection.execute(holder)).one_or_none()
                if held is None or held.owner is None:
                    continue  # it was deleted or freed in between
                if held.owner in self._ended:
                    self._ended.discard(held.owner)
                elif not self._is_dead(conversation_id, held):
                    raise ConversationBusyError(conversation_id, chat_of(held.owner))
                dead = CONVERSATION.update().where(
                    C.id == conversation_id, C.owner == held.owner, C.beat == held.beat
                )
                await connection.execute(dead.values(owner=None))

        return await database.run("write", work)

    def _owned(self, owner: str) -> dict[str, Any]:
        return {"owner": owner, "lease": self.seconds, "expires": self._now() + self.seconds}

    def _is_dead(self, conversation_id: str, held: Any) -> bool:
        """Whether a lease that has not expired was watched for its whole length without a sign.

        So that a clock which was set back does not lock a dead chat's conversation for long.
        """
        now = time.monotonic()
        owner, beat, since = self._seen.get(conversation_id, ("", 0, 0.0))
        if (owner, beat) == (held.owner, held.beat):
            return bool(now - since > held.lease)
        while len(self._seen) >= _SEEN:
            self._seen.pop(next(iter(self._seen)))
        self._seen[conversation_id] = (held.owner, held.beat, now)
        return False

    async def renew(self, database: Database, conversation_id: str, owner: str) -> bool:
        """The owner lives; False when the lease is another's now."""
        renewal = (
            CONVERSATION.update()
            .where(C.id == conversation_id, C.owner == owner)
            .values(beat=C.beat + 1, expires=self._now() + self.seconds)
        )

        async def work(connection: AsyncConnection, again: bool) -> bool:
            done = await connection.execute(renewal)
            return int(done.rowcount) == 1

        return await database.run("write", work)

    async def release(self, database: Database, conversation_id: str, owner: str) -> None:
        """Free it, if that chat has it."""
        freed = (
            CONVERSATION.update()
            .where(C.id == conversation_id, C.owner == owner)
            .values(
                owner=None,
                expires=None,
                updated=self._now(),
                messages=sa.case((C.messages < COUNT, COUNT), else_=C.messages),
            )
        )

        async def work(connection: AsyncConnection, again: bool) -> None:
            await connection.execute(freed)

        try:
            await database.run("write", work)
        except StoreError:
            self._ended.add(owner)  # here, at least, nobody has to wait for the lease to run out
            raise
