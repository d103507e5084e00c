"""What of a conversation stands in its store, and how the rest gets there.

A conversation that is kept in a store has a ledger. It holds the lease while a chat runs and
renews it; it writes each thing once; and what it has begun to write it finishes, whoever is
cancelled meanwhile, so that the store and the conversation never disagree about what is written.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, TypeAlias

import msgspec

from hookline._base.cancel import Cut, shielded, spawn
from hookline._base.errors import ConversationConflictError, UsageError
from hookline._base.log import log_throw
from hookline._base.messages import Message
from hookline._base.runtime import LOCAL
from hookline._talk.store import Change, PendingStep, Store, Stored, owner_of

Lost: TypeAlias = Callable[[BaseException], None]


def _encoded(meta: dict[str, Any]) -> bytes:
    try:
        return msgspec.json.encode(meta)
    except (TypeError, ValueError) as exc:
        raise UsageError(f"the meta of a conversation must be JSON: {exc}") from exc


class Ledger:
    """The books of one conversation: what is written, at which version, and whose lease it is."""

    __slots__ = (
        "_heart",
        "_meta",
        "_pending",
        "count",
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
        self.version = 0  # nothing stands there
        self.unsettled = False  # a chat ran on it when it was read
        self.count = 0  # how many messages of the conversation are written
        self.owner: str | None = None  # the life of a chat that has the lease through us
        self._meta = b"{}"
        self._pending: PendingStep | None = None
        self._heart: asyncio.Task[None] | None = None
        self.turn = asyncio.Lock()  # of those that ask the store for something

    def note(self, stored: Stored) -> None:
        """This is what stands there."""
        self.version = stored.version
        self.unsettled = False
        self.count = len(stored.messages)
        self._meta = _encoded(stored.meta)
        self._pending = stored.pending

    def differs(self, meta: dict[str, Any], pending: PendingStep | None) -> bool:
        """Whether these are not what is written."""
        return pending != self._pending or _encoded(meta) != self._meta

    # ── the lease ───────────────────────────────────────────────────────────────────────────

    async def take(self, chat_id: str, life: str | None, lost: Lost) -> Stored | None:
        """Take the lease; gives what stands there where that is not what is known.

        A chat of several lives is the heir of the one before. `lost` is called when the lease is
        another's before it was released.
        """
        owner = owner_of(chat_id, life or LOCAL.new_id())
        taking = self.store.acquire(self.id, owner, heir=life is not None)
        version, cut = await shielded(taking)
        self.owner = owner
        if cut is not None:
            raise cut
        if self.store.lease is not None:
            self._heart = spawn(self._live(self.store.lease, lost))
        if version == self.version and not self.unsettled:
            return None
        stored, cut = await shielded(self.store.load(self.id))
        if cut is not None:
            raise cut
        if stored is None:
            raise ConversationConflictError(self.id, version, None)
        return stored

    async def leave(self) -> Cut:
        """Give the lease back."""
        owner, self.owner = self.owner, None
        heart, self._heart = self._heart, None
        if heart is not None:
            heart.cancel()
        if owner is None:
            return None
        try:
            _, cut = await shielded(self._release(owner, heart))
        except Exception as exc:
            log_throw(f"conversation {self.id!r}: its lease was not released", exc)
            return None
        return cut

    def abandon(self) -> None:
        """Forget the lease without giving it back: another life of the chat takes it."""
        self.owner = None
        heart, self._heart = self._heart, None
        if heart is not None:
            heart.cancel()

    async def _release(self, owner: str, heart: asyncio.Task[None] | None) -> None:
        if heart is not None:
            await asyncio.wait([heart])
        await self.store.release(self.id, owner)

    async def _live(self, lease: float, lost: Lost) -> None:
        """Renew the lease until it is given back. Nobody else may have it while this goes well."""
        owner = self.owner
        loop = asyncio.get_running_loop()
        until = loop.time() + lease
        assert owner is not None
        while True:
            await asyncio.sleep(lease / 3)
            asked = loop.time()
            renewal: Coroutine[Any, Any, bool] = self.store.renew(self.id, owner)
            try:
                kept, cut = await shielded(renewal)
            except Exception as exc:
                log_throw(f"conversation {self.id!r}: its lease was not renewed", exc)
                if loop.time() < until:
                    continue
                lost(exc)
                return
            if cut is not None:
                return
            if not kept:
                lost(ConversationConflictError(self.id, self.version, self.version))
                return
            until = asked + lease

    # ── writing ─────────────────────────────────────────────────────────────────────────────

    async def write(
        self,
        messages: tuple[Message, ...],
        meta: dict[str, Any],
        pending: PendingStep | None,
        fresh: bool,
    ) -> Cut:
        """Write these messages, and what else has changed; nothing where nothing has.

        Whoever writes holds the turn.
        """
        encoded = _encoded(meta)
        changed = encoded != self._meta
        waits = pending != self._pending
        if not (messages or fresh or changed or waits):
            return None
        change = Change(
            owner=self.owner or "",
            expected=self.version,
            place=0 if fresh else self.count,
            messages=messages,
            meta=meta if changed else msgspec.UNSET,
            pending=pending if waits else msgspec.UNSET,
            fresh=fresh,
        )
        version, cut = await shielded(self.store.append(self.id, change))
        self.version = version
        self.count = change.place + len(messages)
        self._meta = encoded
        self._pending = pending
        return cut

    async def update(self, message: Message) -> Cut:
        """Put this message in the place of the one with its id."""
        work = self.store.update(self.id, message, owner=self.owner or "", expected=self.version)
        self.version, cut = await shielded(work)
        return cut
