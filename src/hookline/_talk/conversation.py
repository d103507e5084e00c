"""Conversations: messages kept across chats, at most one of which runs at a time.

Messages are only appended; `reset`, `restore` and a changed message begin a new list, so that
views and tuples handed out before stay what they were. One that is kept in a store has a ledger,
and its chat writes each message there first. One that is not pays nothing for stores.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterable
from typing import Any

import msgspec

from hookline._base.cancel import Cut
from hookline._base.errors import ConversationBusyError, ConversationConflictError, UsageError
from hookline._base.json import Reader
from hookline._base.log import log_throw
from hookline._base.messages import Data, History, Message
from hookline._base.returns import ApprovalRequest
from hookline._base.runtime import LOCAL
from hookline._talk.history import Survey, in_call_order, surveyed
from hookline._talk.ledger import Ledger, Lost
from hookline._talk.store import (
    PendingStep,
    Store,
    Stored,
    chat_of,
    check_id,
    held_by,
    is_of,
    left_behind,
    made_by,
)

_lock = threading.Lock()  # held for a moment each time, so that one does for all
FORMAT = 1  # of the JSON of a conversation


class Exported(Data, frozen=True, kw_only=True):
    """A conversation as JSON."""

    hookline: int
    id: str
    messages: tuple[Message, ...]
    meta: dict[str, Any] = msgspec.field(default_factory=lambda: dict[str, Any]())
    pending: PendingStep | None = None


class Conversation:
    """Messages kept across chats.

    Raises HistoryError when the given messages are not a valid history.
    """

    def __init__(
        self,
        messages: Iterable[Message] = (),
        *,
        id: str | None = None,
        meta: dict[str, Any] | None = None,
        pending: PendingStep | None = None,
    ) -> None:
        self.id = id or LOCAL.new_id()
        """What it is kept under, and what a chat may name it by."""
        self.meta: dict[str, Any] = meta if meta is not None else {}
        """JSON data of yours, saved with the next message or by `save`."""
        self.ledger: Ledger | None = None
        """What of it stands in its store, if it has one."""
        self._chat_id: str | None = None
        self.ahead: list[Message] = []
        """What an earlier life of the running chat has written."""
        self._fresh = False  # begun anew since it was last written
        self._claim: PendingStep | None = None  # the last step whose answers a chat has taken
        self._set(messages, pending)

    def _set(
        self,
        messages: Iterable[Message],
        pending: PendingStep | None,
        found: Survey | None = None,
        *,
        open_end: bool = False,
    ) -> None:
        """Have these messages, of which a survey was made already if they are many."""
        items = list(messages)
        if found is None:
            found = Survey()
            found.see(items)
        found.check(open_end=open_end or pending is not None)
        self.items = items
        """For the chat that runs on it: the list itself."""
        self.call_ids = found.call_ids
        self._disordered = found.disordered
        self._snapshot: tuple[Message, ...] | None = None
        self._in_order: tuple[Message, ...] | None = None
        self._pending = pending

    @property
    def messages(self) -> tuple[Message, ...]:
        """All messages: the same tuple until the next commit."""
        if self._snapshot is None or len(self._snapshot) != len(self.items):
            self._snapshot = tuple(self.items)
        return self._snapshot

    @property
    def history(self) -> History:
        """A view of the messages that costs nothing however many there are."""
        return History(self.items, len(self.items))

    @property
    def pending(self) -> tuple[ApprovalRequest, ...]:
        """The calls that wait for `agent.resume(conversation, answers)`."""
        return self._pending.requests if self._pending is not None else ()

    @property
    def pending_step(self) -> PendingStep | None:
        """What the waiting step is resumed from."""
        return self._pending

    @property
    def _standing(self) -> PendingStep | None:
        """What a store keeps of it: the step that waits, or the one that was answered last."""
        return self._pending if self._pending is not None else self._claim

    @property
    def busy(self) -> bool:
        """Whether a chat of this process is running on it."""
        return self._chat_id is not None

    def reset(self) -> None:
        """Forget all messages. Raises ConversationBusyError while a chat runs."""
        self.restore(())

    def restore(self, messages: Iterable[Message], pending: PendingStep | None = None) -> None:
        """Begin again with these messages. Raises HistoryError, or ConversationBusyError.

        In a store this is written with the next message, or by `save`.
        """
        items = list(messages)  # what gives them may use other conversations
        with _lock:
            if self._chat_id is not None:
                raise ConversationBusyError(self.id, self._chat_id)
            self._set(items, pending)
            self._claim = None
            self._fresh = self.ledger is not None

    # ── as JSON, and in a store ─────────────────────────────────────────────────────────────

    def to_json(self) -> bytes:
        """All of it as JSON text, which `from_json` reads."""
        return Exported(
            hookline=FORMAT,
            id=self.id,
            messages=self.messages,
            meta=self.meta,
            pending=self._standing,
        ).to_json()

    @classmethod
    def from_json(cls, data: bytes | str, *, id: str | None = None) -> Conversation:
        """A conversation from its JSON text. Raises UsageError, or HistoryError.

        A step that was running when the text was made is closed: its calls may have run.
        """
        try:
            read = _exported.decode(data)
        except msgspec.DecodeError as exc:
            raise UsageError(f"this must be JSON that Conversation.to_json() gave: {exc}") from exc
        if read.hookline != FORMAT:
            raise UsageError(
                f"this conversation is in format {read.hookline}, and this hookline knows "
                f"{FORMAT}: a newer one wrote it; install that one"
            )
        pending, more = left_behind(read.messages, read.pending)
        return cls((*read.messages, *more), id=id or read.id, meta=read.meta, pending=pending)

    @classmethod
    def at(cls, store: Store, id: str) -> Conversation:
        """The conversation of that id in a store, not read yet: its next chat does that."""
        check_id(id)
        found = cls(id=id)
        found.ledger = Ledger(store, id)
        return found

    @classmethod
    async def open(cls, store: Store, id: str) -> Conversation:
        """The conversation of that id in a store, a new one if there is none.

        A chat on it writes to the store. Raises StoreError, or HistoryError where somebody has
        written what no provider would take.
        """
        found = cls.at(store, id)
        stored = await store.load(id)
        if stored is not None:
            await found._adopt(stored, None)
        return found

    async def save(self, store: Store | None = None) -> None:
        """Write what is not written yet: what `meta`, `reset` and `restore` have changed.

        With `store`, all of it is put into that store, where there must be none of its id, and is
        kept there from now on. Raises ConversationConflictError, ConversationBusyError, StoreError.
        Raises UsageError where it is in no store.
        """
        if store is not None:
            check_id(self.id)
            there = await store.load(self.id)
            if there is not None:
                raise ConversationConflictError(self.id, 0, there.version)
        elif self.ledger is None:
            raise UsageError(f"conversation {self.id!r} is in no store; pass one: save(store)")
        owner = f"save.{LOCAL.new_id()}"
        self.acquire(owner)
        before = self.ledger
        try:
            if store is not None:
                self.ledger = Ledger(store, self.id)
            await self._save(owner)
        except BaseException:
            self.ledger = before
            raise
        finally:
            self.release(owner)

    async def _save(self, owner: str) -> None:
        await self.take(owner, _ignore)
        try:
            cut = await self.flush()
        finally:
            assert self.ledger is not None
            await self.ledger.leave()
        if cut is not None:
            raise cut

    async def _adopt(self, stored: Stored, chat_id: str | None) -> None:
        """Become what stands in the store: for this chat, or, without one, to be read."""
        ledger, step = self.ledger, stored.pending
        assert ledger is not None
        messages, runs = stored.messages, chat_id is None and stored.owner is not None
        mine = chat_id is not None and is_of(chat_id, messages, step)
        if not runs and not mine:
            step, more = left_behind(messages, step)
            messages = (*messages, *more)
        found = await surveyed(messages)
        ledger.note(stored)
        ledger.unsettled = runs
        self.meta = stored.meta
        self._fresh = False
        self._claim = step if mine and step is not None and step.claimed else None
        if step is not None and step.claimed:  # its answers have been taken
            step = None
        self._set(messages, step, found, open_end=runs or mine)
        if mine:
            assert chat_id is not None
            self._rewind(chat_id)

    # ── for the chat that runs on it ────────────────────────────────────────────────────────

    def acquire(self, chat_id: str) -> None:
        """Take it for one chat; raises ConversationBusyError when another has it."""
        with _lock:
            if self._chat_id is not None:
                raise ConversationBusyError(self.id, self._chat_id)
            self._chat_id = chat_id
        if self.items:
            if is_of(chat_id, self.items, self._claim):
                self._rewind(chat_id)
            else:
                self._claim = None

    def release(self, chat_id: str) -> None:
        """Free it, if that chat has it."""
        if self._chat_id == chat_id:
            self._catch_up()
            self._chat_id = None

    def _catch_up(self) -> None:
        """What an earlier life of the chat has written and this one did not come to stays."""
        if self.ahead:
            self.items += self.ahead
            self.ahead = []
            self._snapshot = None

    def _rewind(self, chat_id: str) -> None:
        """An earlier life of this chat has written here: it goes on as if it had not.

        What was written is kept aside, and is not written again when the chat comes to it.
        """
        items = self.items
        begin = next((i for i, m in enumerate(items) if made_by(chat_id, m)), len(items))
        step = self._pending
        if self._claim is not None and self._claim.claimed == chat_id:
            step = self._claim.replace(claimed=None, answered=())
        elif step is not None and step.chat_id == chat_id:
            step = None
        self._set(items[:begin], step, open_end=True)
        self.ahead = items[begin:]

    def commit(self, message: Message) -> None:
        """Append a message, which an earlier life may have written: then it is here again."""
        if self.ledger is not None and self.ledger.turn.locked():
            return  # nobody knows yet what stands before it: `leave` writes what is lacking then
        if self.ahead:
            self.ahead.pop(0)
        self.items.append(message)

    def wait(self, pending: PendingStep | None) -> None:
        """Write down what waits for approval, or that nothing does."""
        self._pending = pending

    def hold(self, chat_id: str, iteration: int, requests: Iterable[ApprovalRequest]) -> None:
        """Note that its chat waits for these answers by itself, or for none any more."""
        asked = tuple(requests)
        self._pending = None
        if asked:
            self._pending = PendingStep(
                chat_id=chat_id, iteration=iteration, requests=asked, held=True
            )

    async def claim(self, chat_id: str, answered: Iterable[str]) -> Cut:
        """This chat has the answers to these requests: from now on they count no second time."""
        step = self._pending
        assert step is not None
        self._claim = step.replace(claimed=chat_id, answered=tuple(answered))
        self._pending = None
        if self.ledger is None:
            return None
        try:
            return await self.flush()
        except BaseException:
            self._pending, self._claim = step, None
            raise

    def disorder(self) -> None:
        """A result was committed after one of a later call: requests need another order."""
        self._disordered = True

    def for_request(self) -> History | tuple[Message, ...]:
        """The messages as a provider wants them: results in the order of their calls."""
        if not self._disordered:
            return History(self.items, len(self.items))
        if self._in_order is None or len(self._in_order) != len(self.items):
            self._in_order = in_call_order(self.items)
        return self._in_order

    # ── the same, for one that is kept in a store ───────────────────────────────────────────

    async def take(self, chat_id: str, lost: Lost, life: str | None = None) -> None:
        """Take the lease for this life of a chat, and become what others have written meanwhile.

        Raises ConversationBusyError, or ConversationConflictError where both have changed.
        """
        assert self.ledger is not None
        known, meta = self.ledger.version, self.meta
        changed = self._fresh or self._unwritten or self.ledger.differs(meta, self._standing)
        self.ledger.turn = asyncio.Lock()  # of the loop in which this chat runs
        async with self.ledger.turn:
            try:
                stored = await self.ledger.take(chat_id, life, lost)
                step = self._pending if stored is None else stored.pending
                holder = held_by(step, LOCAL.now())
                if holder not in (None, chat_id):
                    raise ConversationBusyError(self.id, holder, waits=True)
                if stored is None:
                    return
                if stored.version != known and changed:
                    raise ConversationConflictError(self.id, known, stored.version)
                await self._adopt(stored, chat_id)
            except BaseException:
                await self.ledger.leave()  # and nothing is written
                raise
        if stored.version == known:
            self.meta = meta

    @property
    def _unwritten(self) -> tuple[Message, ...]:
        assert self.ledger is not None
        return tuple(self.items if self._fresh else self.items[self.ledger.count :])

    async def write(self, message: Message) -> Cut:
        """Write a message to the store, if there is one, then append it."""
        if self.ledger is not None and not self.ahead:
            return await self.flush(message)
        self.commit(message)
        return None

    async def flush(self, *more: Message) -> Cut:
        """Write what the store does not have, and these messages, which are then appended."""
        assert self.ledger is not None
        async with self.ledger.turn:
            return await self._flush(*more)

    async def _flush(self, *more: Message) -> Cut:
        assert self.ledger is not None
        messages = (*self._unwritten, *more)
        cut = await self.ledger.write(messages, self.meta, self._standing, self._fresh)
        self._fresh = False
        self.items += more
        self._snapshot = None
        return cut

    async def change(self, message: Message) -> Cut:
        """Put this message in the place of the one with its id."""
        place = next(i for i, each in enumerate(self.items) if each.id == message.id)
        cut: Cut = None
        if self.ledger is not None:
            async with self.ledger.turn:
                cut = await self._flush()
                cut = await self.ledger.update(message) or cut
        self.items = [*self.items]  # views of the old list stay what they were
        self.items[place] = message
        self._snapshot = self._in_order = None
        return cut

    async def leave(self, chat_id: str) -> None:
        """That chat is over: write what is left to write, and give its lease back.

        It may have been left behind while the store was asked for something. That is waited for,
        and a step that could not be closed in time is closed now: nobody finds it open.
        """
        ledger = self.ledger
        assert ledger is not None
        async with ledger.turn:
            if (
                ledger.owner is None or chat_of(ledger.owner) != chat_id
            ):  # it was refused, or the next chat has the lease
                return
            self._catch_up()
            self._close_step()
            try:
                await self._flush()
            except Exception as exc:
                log_throw(f"conversation {self.id!r}: its last changes were not written", exc)
            await ledger.leave()

    def _close_step(self) -> None:
        """Write results for the calls that have none and wait for nobody."""
        if self._pending is not None:
            return
        self._pending, lost = left_behind(self.items, self._claim)
        self.items += lost
        if self._pending is not None:
            self._claim = None
        elif self._claim is not None:  # no question of it is left
            asked = tuple([each.id for each in self._claim.requests])
            self._claim = self._claim.replace(answered=asked)

    def __repr__(self) -> str:
        return f"<Conversation {self.id!r}: {len(self.items)} messages>"


_exported: Reader[Exported] = Reader(Exported)


def _ignore(exc: BaseException) -> None:
    """Nobody runs who would have to be told."""
