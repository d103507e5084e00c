"""A store in this process: for tests, for programs that need no other, and as an example.

It stores the same data as a database, by the same rules, for as long as the store object exists.
"""

from __future__ import annotations

import time
from bisect import bisect_left, insort
from collections.abc import Sequence
from typing import Final

import msgspec

from hookline._base.errors import ConversationBusyError, ConversationConflictError, UsageError
from hookline._base.forks import lock_for_forks
from hookline._base.messages import Message
from hookline._base.numbers import check_number
from hookline._base.returns import ApprovalRequest
from hookline._conversations.conversation import Conversation
from hookline._conversations.store import (
    Change,
    ConversationInfo,
    PendingStep,
    Stored,
    after_prefix,
    chat_of,
    check_id,
    check_page,
    inherits,
)

_lock: Final = lock_for_forks()  # held only briefly, so one lock is enough for all stores


class _Entry:
    __slots__ = ("created", "messages", "meta", "owner", "pending", "updated", "version")

    def __init__(self) -> None:
        self.version = 0
        self.messages: list[Message] = []
        self.meta = b"{}"  # encoded, so that no caller can change it
        self.pending: PendingStep | None = None
        self.owner: str | None = None
        self.created = self.updated = time.time()


class MemoryStore:
    """A store that keeps conversations in memory, for as long as the store object exists."""

    lease: float | None = None
    """None: leases never expire, because they end with the process."""

    def __init__(self) -> None:
        self._entries: dict[str, _Entry] = {}
        self._ids: list[str] = []  # sorted, so that a prefix is a range
        self._accounts: dict[str, float] = {}

    async def open(self, conversation_id: str) -> Conversation:
        """Load the conversation with this id, or create it."""
        return await Conversation.open(self, conversation_id)

    async def load(self, conversation_id: str) -> Stored | None:
        """Return the stored conversation; None if it was never written."""
        check_id(conversation_id)
        with _lock:
            entry = self._entries.get(conversation_id)
            if entry is None:
                return None
            return Stored(
                id=conversation_id,
                version=entry.version,
                messages=tuple(entry.messages),
                meta=msgspec.json.decode(entry.meta),
                pending=entry.pending,
                owner=entry.owner,
            )

    async def acquire(self, conversation_id: str, owner: str, *, heir: bool = False) -> int:
        """Give the lease to this owner, and return the conversation's version.

        With `heir`, take the lease from an earlier life of the same chat (see `Store.acquire`).
        Raises ConversationBusyError if another owner holds the lease.
        """
        check_id(conversation_id)
        with _lock:
            entry = self._entries.get(conversation_id)
            if entry is None:
                entry = self._entries[conversation_id] = _Entry()
                insort(self._ids, conversation_id)
            holder = entry.owner
            inherits_lease = heir and holder is not None and inherits(owner, holder)
            if holder is not None and holder != owner and not inherits_lease:
                raise ConversationBusyError(conversation_id, chat_of(holder))
            entry.owner = owner
            entry.updated = time.time()
            return entry.version

    async def renew(self, conversation_id: str, owner: str) -> bool:
        """Renew the lease; returns False if another owner holds it now."""
        entry = self._entries.get(conversation_id)
        return entry is not None and entry.owner == owner

    async def release(self, conversation_id: str, owner: str) -> None:
        """Release the lease if this owner holds it."""
        with _lock:
            entry = self._entries.get(conversation_id)
            if entry is not None and entry.owner == owner:
                entry.owner = None
                entry.updated = time.time()

    async def append(self, conversation_id: str, change: Change) -> int:
        """Write the whole change, or write nothing. Return the new version."""
        with _lock:
            entry = self._mine(conversation_id, change.owner, change.expected)
            if change.meta is not msgspec.UNSET:
                entry.meta = msgspec.json.encode(change.meta)
            if change.pending is not msgspec.UNSET:
                entry.pending = change.pending
            if change.fresh:
                entry.messages = []
            entry.messages.extend(change.messages)
            entry.version += 1
            return entry.version

    async def update(
        self, conversation_id: str, message: Message, *, owner: str, expected: int
    ) -> int:
        """Replace the stored message that has the same id, and return the new version.

        Raises UsageError if there is no such message.
        """
        with _lock:
            entry = self._mine(conversation_id, owner, expected)
            ids = [message.id for message in entry.messages]
            if not message.id or message.id not in ids:
                raise UsageError(
                    f"conversation {conversation_id!r} has no message {message.id!r} to update; "
                    "pass the id of one of its messages"
                )
            entry.messages[ids.index(message.id)] = message
            entry.version += 1
            return entry.version

    def _mine(self, conversation_id: str, owner: str, expected: int) -> _Entry:
        entry = self._entries.get(conversation_id)
        if entry is None or entry.version != expected or entry.owner != owner:
            version = None if entry is None else entry.version
            raise ConversationConflictError(conversation_id, expected, version)
        return entry

    async def delete(self, conversation_id: str) -> bool:
        """Delete a conversation; returns False if it does not exist.

        Raises ConversationBusyError.
        """
        check_id(conversation_id)
        with _lock:
            entry = self._entries.get(conversation_id)
            if entry is None:
                return False
            if entry.owner is not None:
                raise ConversationBusyError(conversation_id, chat_of(entry.owner))
            del self._entries[conversation_id]
            del self._ids[bisect_left(self._ids, conversation_id)]
            return True

    async def list(
        self, *, prefix: str = "", limit: int = 100, offset: int = 0
    ) -> tuple[ConversationInfo, ...]:
        """List the conversations whose ids begin with `prefix`, the most recently changed first.

        Raises UsageError unless `limit` and `offset` are whole numbers of at least 0.
        """
        check_page(limit, offset)
        with _lock:
            entries = [
                (id, self._entries[id])
                for id in self._ids_with(prefix)
                if self._entries[id].version
            ]
            entries.sort(key=lambda pair: (-pair[1].updated, pair[0]))
            return tuple(
                [
                    ConversationInfo(
                        id=id,
                        messages=len(entry.messages),
                        meta=msgspec.json.decode(entry.meta),
                        created=entry.created,
                        updated=entry.updated,
                        waits=entry.pending is not None and bool(entry.pending.waiting),
                    )
                    for id, entry in entries[offset : offset + limit]
                ]
            )

    def _ids_with(self, prefix: str) -> Sequence[str]:
        """Return the ids that begin with the prefix, in order."""
        above = after_prefix(prefix)
        end = len(self._ids) if above is None else bisect_left(self._ids, above)
        return self._ids[bisect_left(self._ids, prefix) : end]

    async def pending(
        self, conversation_id: str | None = None, *, prefix: str = ""
    ) -> tuple[ApprovalRequest, ...]:
        """Return the unanswered approval requests of one conversation, or of all conversations
        whose ids begin with `prefix`.
        """
        if conversation_id is not None:
            check_id(conversation_id)
        with _lock:
            ids = self._ids_with(prefix) if conversation_id is None else [conversation_id]
            entries = [self._entries[id] for id in ids if id in self._entries]
            steps = [entry.pending for entry in entries if entry.pending is not None]
        return tuple([request for step in steps for request in step.waiting])

    async def spend(
        self, account: str, amount: float, *, limit: float | None = None
    ) -> float | None:
        """Add the amount to the account; return the new total, or None if it is at its limit."""
        if limit is not None:
            check_number("limit", limit)
        with _lock:
            total = self._accounts.get(account, 0.0)
            if limit is not None and total >= limit:
                return None
            self._accounts[account] = total + amount
            return total + amount
