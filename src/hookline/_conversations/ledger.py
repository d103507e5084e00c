"""Tracks which part of a conversation is in its store, and writes the rest.

A conversation in a store has a ledger. The ledger holds and renews the lease while a chat runs. It
writes each change once. A write that has begun is always completed, even if the caller is
cancelled, so that store and conversation never disagree about what has been written.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, TypeAlias

import msgspec

from hookline._base.cancel import being_cancelled, finish_write, finished, shielded, spawn
from hookline._base.errors import ConversationConflictError, UsageError
from hookline._base.log import log_throw
from hookline._base.messages import Message
from hookline._conversations.store import Change, PendingStep, Store, Stored, chat_of, owner_of
from hookline._record.runtime import LOCAL

OnLoss: TypeAlias = Callable[[BaseException], None]


def _encoded(meta: dict[str, Any]) -> bytes:
    try:
        return msgspec.json.encode(meta)
    except (TypeError, ValueError) as exc:
        raise UsageError(f"the meta of a conversation must be JSON: {exc}") from exc


class Ledger:
    """The record of one conversation: what is written, at which version, and under whose lease."""

    __slots__ = (
        "_heart",
        "_meta",
        "_pending",
        "count",
        "fresh",
        "id",
        "owner",
        "store",
        "turn",
        "unsettled",
        "version",
    )

    def __init__(self, store: Store, id: str) -> None:
        self.store = store
        self.id = id
        self.version = 0  # 0 if nothing is stored
        self.unsettled = False  # whether a chat was running on it when it was read
        self.count = 0  # the number of messages that are written
        self.fresh = False  # whether the next write deletes the stored messages
        self.owner: str | None = None  # the life of a chat that holds the lease through this ledger
        self._meta = b"{}"  # encoded, because users change the dict in place
        self._pending: PendingStep | None = None
        self._heart: asyncio.Task[None] | None = None
        self.turn = asyncio.Lock()  # held during store operations, which follow one another

    def note(self, row: Stored, *, unsettled: bool) -> None:
        """Note the stored state."""
        self.version = row.version
        self.unsettled = unsettled
        self.count = len(row.messages)
        self.fresh = False
        self._meta = _encoded(row.meta)
        self._pending = row.pending

    def start_over(self) -> None:
        """Delete the stored messages with the next write."""
        self.count = 0
        self.fresh = True
        self.unsettled = False  # nothing of the stored state counts any more

    @property
    def snapshot(self) -> tuple[int, bool, bool]:
        """What is known of the stored messages, to go back to after `start_over`."""
        return self.count, self.fresh, self.unsettled

    @snapshot.setter
    def snapshot(self, values: tuple[int, bool, bool]) -> None:
        self.count, self.fresh, self.unsettled = values

    def differs(self, meta: dict[str, Any], pending: PendingStep | None) -> bool:
        """Return whether the stored messages are to be deleted, or another value differs."""
        return self.fresh or pending != self._pending or _encoded(meta) != self._meta

    # ── the lease ───────────────────────────────────────────────────────────────────────────

    async def take(self, chat_id: str, life: str | None, on_loss: OnLoss) -> Stored | None:
        """Take the lease; returns the stored state if it differs from the known one.

        A chat with several lives inherits the lease of its earlier life. `on_loss` is called if
        another owner takes the lease before it is released.
        """
        owner = owner_of(chat_id, life or LOCAL.new_id())
        version, cut = await shielded(self.store.acquire(self.id, owner, heir=life is not None))
        self.owner = owner  # also if cancelled: the lease is taken, so `leave` must release it
        if cut is not None:
            raise cut
        if self.store.lease is not None:
            self._heart = spawn(self._live(owner, self.store.lease, on_loss))
        if version == self.version and not self.unsettled:
            return None
        row = await finished(self.store.load(self.id))
        if row is None:
            raise ConversationConflictError(self.id, version, None)
        return row

    async def leave(self) -> None:
        """Release the lease, even if the caller is cancelled meanwhile."""
        owner, heart = self._let_go()
        if owner is None:
            return
        try:
            await finish_write(self._release(owner, heart))
        except Exception as exc:
            log_throw(f"conversation {self.id!r}: its lease was not released", exc)

    def is_held_by(self, chat_id: str) -> bool:
        """Return whether a life of this chat holds the lease through this ledger."""
        return self.owner is not None and chat_of(self.owner) == chat_id

    def abandon(self, chat_id: str) -> None:
        """Give up the lease of this chat without releasing it, so that its next life inherits it.

        Nothing is written after this.
        """
        if self.is_held_by(chat_id):
            self._let_go()

    def _let_go(self) -> tuple[str | None, asyncio.Task[None] | None]:
        """Stop renewing; returns the owner, and the task that may still end a renewal."""
        owner, self.owner = self.owner, None
        heart, self._heart = self._heart, None
        if heart is not None:
            heart.cancel()
        return owner, heart

    async def _release(self, owner: str, heart: asyncio.Task[None] | None) -> None:
        if heart is not None:  # the store gets one request after the other
            await asyncio.wait([heart])
        await self.store.release(self.id, owner)

    async def _live(self, owner: str, lease: float, on_loss: OnLoss) -> None:
        """Renew the lease until it is released; while this works, no other owner can take it."""
        loop = asyncio.get_running_loop()
        until = loop.time() + lease
        while True:
            await asyncio.sleep(lease / 3)
            start = loop.time()  # the store counts the new lease from a later time
            try:
                renewed, cut = await shielded(self.store.renew(self.id, owner))
            except Exception as exc:
                log_throw(f"conversation {self.id!r}: its lease was not renewed", exc)
                if being_cancelled():  # then `shielded` raises only the failure
                    return
                if loop.time() < until:
                    continue
                on_loss(exc)
                return
            if cut is not None:
                return
            if not renewed:
                on_loss(ConversationConflictError(self.id, self.version, self.version))
                return
            until = start + lease

    # ── writing ─────────────────────────────────────────────────────────────────────────────

    async def write(
        self,
        messages: tuple[Message, ...],
        meta: dict[str, Any],
        pending: PendingStep | None,
    ) -> None:
        """Write these messages and any other changes; does nothing if there are no changes.

        The caller must hold `turn`.
        """
        encoded = _encoded(meta)
        is_new = encoded != self._meta
        waits = pending != self._pending
        if not (messages or self.fresh or is_new or waits):
            return
        change = Change(
            owner=self._owner(),
            expected=self.version,
            place=self.count,
            messages=messages,
            meta=meta if is_new else msgspec.UNSET,
            pending=pending if waits else msgspec.UNSET,
            fresh=self.fresh,
        )
        self.version = await self.store.append(self.id, change)
        self.count += len(messages)
        self.fresh = False
        self._meta = encoded
        self._pending = pending

    async def update(self, message: Message) -> None:
        """Replace the message that has this id."""
        owner, expected = self._owner(), self.version
        self.version = await self.store.update(self.id, message, owner=owner, expected=expected)

    def _owner(self) -> str:
        """Return the owner of the lease; raises CancelledError if this life has ended."""
        if self.owner is None:
            raise asyncio.CancelledError("this life of the chat has ended and writes nothing more")
        return self.owner
