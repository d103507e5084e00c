"""The state of a conversation: its messages, and the chat that runs on it; at most one at a time.

Messages are only appended. `reset`, `restore` and an updated message start a new list, so that
existing views and tuples do not change. A conversation in a store has a ledger, and its chat writes
each message to the store first. A conversation without a store has no such overhead.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Iterable, Sequence
from typing import Any, Final

from hookline._base.cancel import finish_write
from hookline._base.errors import ConversationBusyError, ConversationConflictError, UsageError
from hookline._base.forks import lock_for_forks
from hookline._base.lists import as_tuple
from hookline._base.log import log_throw
from hookline._base.messages import (
    AssistantMessage,
    Data,
    History,
    Message,
    ToolCall,
    UserMessage,
)
from hookline._base.returns import ApprovalRequest
from hookline._conversations.history import Survey, in_call_order, open_calls, surveyed
from hookline._conversations.ledger import Ledger, OnLoss
from hookline._conversations.store import (
    PendingStep,
    Stored,
    held_by,
    is_of,
    left_behind,
    made_by,
)
from hookline._record.runtime import LOCAL

_lock: Final = lock_for_forks()  # held only briefly, so one lock is enough for all conversations


class _Replacement(Data, frozen=True, kw_only=True):
    """What a chat is about to replace: the state before it, and the place of the question."""

    place: int
    items: list[Message]
    pending: PendingStep | None
    claim: PendingStep | None
    ledger: tuple[int, bool, bool] | None
    """What the ledger had noted."""


class ConversationState:
    """What a conversation holds, and what the chat that runs on it does with it.

    Raises HistoryError if the messages are not a valid history.
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
        """The conversation's id, in its store and in `chat(conversation=…)`."""
        self.meta: dict[str, Any] = meta if meta is not None else {}
        """The program's own JSON data."""
        self.ledger: Ledger | None = None
        """The record of what its store has, if it is in a store."""
        self._chat_id: str | None = None
        self.earlier_messages: Sequence[Message] = ()
        """The messages that an earlier life of the running chat has written."""
        self._claim: PendingStep | None = None  # the last step whose answers a chat has claimed
        self._place: int | None = None  # the question that the next chat answers again
        self._replacing: _Replacement | None = None  # what the running chat is about to replace
        items = list(as_tuple("messages", messages))
        self._set(items, Survey(items), pending)

    def _set(
        self,
        items: list[Message],
        survey: Survey,
        pending: PendingStep | None,
        *,
        open_end: bool = False,
    ) -> None:
        """Set the messages, if their survey shows a valid history."""
        survey.check(open_end=open_end or pending is not None)
        self.items = items
        """The list itself, for the chat that runs on this conversation."""
        self.call_ids = survey.call_ids
        self._disordered = survey.disordered
        self._snapshot: tuple[Message, ...] | None = None
        self._in_order: tuple[Message, ...] | None = None
        self._pending = pending

    @property
    def messages(self) -> tuple[Message, ...]:
        """All messages, as a tuple that stays the same until the next commit."""
        if self._snapshot is None or len(self._snapshot) != len(self.items):
            self._snapshot = tuple(self.items)
        return self._snapshot

    @property
    def history(self) -> History:
        """A read-only view of the messages; its cost does not depend on their number."""
        return History(self.items, len(self.items))

    @property
    def replaces(self) -> bool:
        """Whether the running chat replaces an answer, and the new answer has not begun."""
        return self._waits_for_answer(self.items)

    @property
    def question(self) -> Message | None:
        """The question whose answer the running chat is about to replace."""
        replacement = self._replacing
        if replacement is None or not self.replaces:
            return None
        return replacement.items[replacement.place]

    @property
    def pending(self) -> tuple[ApprovalRequest, ...]:
        """The calls that wait for `agent.resume(conversation, answers)`."""
        return self._pending.requests if self._pending is not None else ()

    @property
    def client_calls(self) -> tuple[ToolCall, ...]:
        """The calls for a client: `agent.resume(conversation, {call.id: ToolResult(…)})`."""
        return self._pending.client_calls if self._pending is not None else ()

    @property
    def pending_step(self) -> PendingStep | None:
        """The step that waits for answers, with everything that a resumed chat needs."""
        return self._pending

    @property
    def standing(self) -> PendingStep | None:
        """The step that a store keeps: the waiting step, or the last one that was answered."""
        return self._pending if self._pending is not None else self._claim

    @property
    def busy(self) -> bool:
        """Whether a chat in this process is running on this conversation."""
        return self._chat_id is not None

    def restore(self, messages: Iterable[Message], pending: PendingStep | None = None) -> None:
        """Replace all messages with these. Raises HistoryError or ConversationBusyError.

        In a store, the change is written with the next message, or by `save`.
        """
        # Outside the lock, because the iterable may use other conversations.
        items = list(as_tuple("messages", messages))
        survey = Survey(items)
        with _lock:
            if self._chat_id is not None:
                raise ConversationBusyError(self.id, self._chat_id)
            self._set(items, survey, pending)
            self._claim = None
            self._place = None
            if self.ledger is not None:
                self.ledger.start_over()

    def replace_answer(self, message_id: str | None = None) -> UserMessage:
        """Let the next chat replace an answer, and return its question.

        `Conversation.replace_answer` has the rules.
        """
        with _lock:
            if self._chat_id is not None:
                raise ConversationBusyError(self.id, self._chat_id)
            end = len(self.items)
            if message_id is not None:
                places = (n for n, message in enumerate(self.items) if message.id == message_id)
                end = 1 + next(places, -1)
            for place in reversed(range(end)):
                question = self.items[place]
                if isinstance(question, UserMessage):
                    self._place = place
                    return question
        raise UsageError(
            f"conversation {self.id!r} has no answer with the message {message_id!r} to replace; "
            "pass the id of one of its messages, or send a message first"
        )

    async def load(self, row: Stored, chat_id: str | None) -> None:
        """Load the stored state for this chat; without a chat, load it only for reading."""
        assert self.ledger is not None
        messages, step = row.messages, row.pending
        runs = chat_id is None and row.owner is not None
        mine = chat_id is not None and is_of(chat_id, messages, step)
        if not runs and not mine:  # no chat will close the step any more
            step, more = left_behind(messages, step)
            messages = (*messages, *more)
        survey = await surveyed(messages)  # the last await, so nobody sees a state half loaded
        self.ledger.note(row, unsettled=runs)
        self.meta = row.meta
        claim = step if step is not None and step.claimed_by else None
        self._claim = claim if mine else None
        self._set(list(messages), survey, None if claim else step, open_end=runs or mine)
        if chat_id is not None and mine:
            self._rewind(chat_id)

    # ── for the chat that runs on it ────────────────────────────────────────────────────────

    def acquire(self, chat_id: str) -> None:
        """Reserve the conversation for one chat, or raise ConversationBusyError."""
        with _lock:
            if self._chat_id is not None:
                raise ConversationBusyError(self.id, self._chat_id)
            self._chat_id = chat_id
        if is_of(chat_id, self.items, self._claim):
            self._rewind(chat_id)
        else:
            self._claim = None
            self._set_aside()

    def release(self, chat_id: str) -> None:
        """Free the conversation, if this chat has reserved it."""
        if self._chat_id == chat_id:  # a chat that was left behind may end during the next chat
            self._catch_up()
            self._put_back()
            self._chat_id = None

    # ── a chat that replaces an answer ──────────────────────────────────────────────────────

    def _set_aside(self) -> None:
        """If this chat replaces an answer, go back to the place of its question."""
        place, self._place = self._place, None
        if place is None:
            return
        ledger = self.ledger
        self._replacing = _Replacement(
            place=place,
            items=self.items,
            pending=self._pending,
            claim=self._claim,
            ledger=None if ledger is None else ledger.snapshot,
        )
        items = self.items[:place]
        self._set(items, Survey(items), None)
        self._claim = None
        if ledger is not None:
            ledger.start_over()

    def _put_back(self) -> None:
        """If no message of the new answer was written, go back to the old one."""
        replaces, replaced_by, self._replacing = self.replaces, self._replacing, None
        if replaced_by is None or not replaces:
            return
        self._set(replaced_by.items, Survey(replaced_by.items), replaced_by.pending, open_end=True)
        self._claim = replaced_by.claim
        if self.ledger is not None and replaced_by.ledger is not None:
            self.ledger.snapshot = replaced_by.ledger

    def _catch_up(self) -> None:
        """Keep the messages of an earlier life of the chat that this life has not reached."""
        self.items += self.earlier_messages
        self.earlier_messages = ()

    def _rewind(self, chat_id: str) -> None:
        """If an earlier life of this chat has written messages, rewind to the start of the chat.

        The messages of the earlier life are set aside. They are not written again when the chat
        reaches them.
        """
        items = self.items
        begin = next((i for i, m in enumerate(items) if made_by(chat_id, m)), len(items))
        step = self._pending
        if self._claim is not None and self._claim.claimed_by == chat_id:
            step = self._claim.replace(claimed_by=None, answer_ids=(), begun_ids=None)
        elif step is not None and step.chat_id == chat_id:  # this life asks its questions again
            step = None
        earlier = items[:begin]
        self._set(earlier, Survey(earlier), step, open_end=True)
        self.earlier_messages = items[begin:]

    def take_back(self, id: str) -> None:
        """If the last message has this id, set it aside, because an earlier life wrote it."""
        if self.items and self.items[-1].id == id:
            self.earlier_messages = [self.items[-1], *self.earlier_messages]
            self.items = self.items[:-1]  # views of the old list stay what they were
            self._snapshot = self._in_order = None

    def commit(self, message: Message) -> None:
        """Append a message at once; the next write stores it.

        While a write is in progress, do nothing: `leave` adds the missing results later.
        """
        if self.ledger is not None and self.ledger.turn.locked():
            return
        if self.earlier_messages:  # an earlier life has written this message
            self.earlier_messages = self.earlier_messages[1:]
        self.items.append(message)

    async def wait_idle(self) -> None:
        """Wait until no write to the store is in progress, so that `commit` appends."""
        if self.ledger is not None and self.ledger.turn.locked():
            async with self.ledger.turn:
                pass

    def wait(self, pending: PendingStep | None) -> None:
        """Set the step that waits for an answer, or None."""
        self._pending = pending

    async def claim(self, chat_id: str, answer_ids: Iterable[str]) -> None:
        """Claim the answers to these requests for this chat, so that no answer is used twice."""
        step = self._pending
        assert step is not None
        ids = tuple(answer_ids)
        # Clients have run these.
        client_ids = tuple([call.id for call in step.client_calls if call.id in ids])
        claim = step.replace(claimed_by=chat_id, answer_ids=ids, begun_ids=client_ids)
        if self.ledger is None:
            self._pending, self._claim = None, claim
        else:
            async with self.ledger.turn:
                await finish_write(self._put_claim(claim))

    async def _put_claim(self, claim: PendingStep) -> None:
        before = self._pending, self._claim
        self._pending, self._claim = None, claim
        try:
            await self._put()
        except BaseException:  # the questions stay open
            self._pending, self._claim = before
            raise

    async def begin(self, request_id: str) -> None:
        """Note that the tool of a claimed request begins now; from here on, the answer is used.

        Does nothing for a request that was not claimed. Raises StoreError; then the tool must not
        begin.
        """
        claim = self._claim
        if claim is None or request_id not in claim.answer_ids:
            return
        begun_ids = claim.begun_ids or ()
        if request_id not in begun_ids:
            self._claim = claim.replace(begun_ids=(*begun_ids, request_id))
            await self.flush()

    def give_back(self, chat_id: str, call_ids: Collection[str]) -> None:
        """Let these claimed calls of this chat wait again: the chat ends before they have begun."""
        claim = self._claim
        if self._pending is not None or claim is None or claim.claimed_by != chat_id:
            return
        open = {call.id for call in open_calls(self.items)}
        step = claim.reopened(open.intersection(call_ids))
        if step is not None:
            self._pending, self._claim = step, None

    def claimed_by(self, chat_id: str) -> frozenset[str]:
        """The ids of the calls that waited when this chat claimed their step."""
        claim = self._claim
        if claim is None or claim.claimed_by != chat_id:
            return frozenset()
        return frozenset([call.id for call in claim.calls])

    def disorder(self) -> None:
        """Mark the results as committed out of order, so that requests sort the results."""
        self._disordered = True

    def for_request(self) -> History | tuple[Message, ...]:
        """The messages in the form that providers expect: results in the order of their calls."""
        if not self._disordered:
            return History(self.items, len(self.items))
        if self._in_order is None or len(self._in_order) != len(self.items):
            self._in_order = in_call_order(self.items)
        return self._in_order

    # ── for the chat, if the conversation is in a store ─────────────────────────────────────────

    async def take(self, chat_id: str, on_loss: OnLoss, life: str | None = None) -> None:
        """Take the lease for this life of a chat, and load the changes of other writers.

        Does nothing if the conversation is in no store; so do `flush` and `leave`. Raises
        ConversationBusyError. Raises ConversationConflictError if the conversation has unsaved
        changes and another writer has changed the stored conversation.
        """
        ledger = self.ledger
        if ledger is None:
            return
        version, meta = ledger.version, self.meta
        is_dirty = self.items[ledger.count :] or ledger.differs(meta, self.standing)
        ledger.turn = asyncio.Lock()  # belongs to the event loop of this chat
        async with ledger.turn:
            try:
                row = await ledger.take(chat_id, life, on_loss)
                mine = self._pending if self._replacing is None else self._replacing.pending
                step = mine if row is None else row.pending
                holder = held_by(step, LOCAL.now())
                if holder not in (None, chat_id):
                    raise ConversationBusyError(self.id, holder, waits=True)
                if row is None:
                    return
                if row.version != version and is_dirty:
                    raise ConversationConflictError(self.id, version, row.version)
                await self.load(row, chat_id)
            except BaseException:
                await ledger.leave()  # without writing anything
                raise
        if row.version == version:  # read again only to close a step: unsaved `meta` stays
            self.meta = meta

    async def write(self, message: Message, on_written: Callable[[], None]) -> None:
        """Write a message to the store, append the message, and announce it.

        If the store refuses the message, nothing happens. If the store accepts the message, all
        three actions happen, even if the task is cancelled meanwhile.
        """
        assert self.ledger is not None
        async with self.ledger.turn:
            if self.earlier_messages:  # the store has the message of the earlier life
                self.earlier_messages = self.earlier_messages[1:]
                self.items.append(message)
                on_written()
            else:
                await finish_write(self._write(message, on_written))

    async def _write(self, message: Message, on_written: Callable[[], None]) -> None:
        await self._put(message)
        on_written()

    async def flush(self) -> None:
        """Write pending changes to the store, even if the task is cancelled during the write."""
        if self.ledger is not None:
            async with self.ledger.turn:
                await finish_write(self._put())

    async def _put(self, *more: Message) -> None:
        """Write pending changes and these messages to the store, then append the messages."""
        assert self.ledger is not None
        unwritten = (*self.items[self.ledger.count :], *more)
        if not self._waits_for_answer(unwritten):
            await self.ledger.write(unwritten, self.meta, self.standing)
            self._replacing = None
        self.items += more

    def _waits_for_answer(self, items: Sequence[Message]) -> bool:
        """Return whether these messages lack the new answer that replaces an old one."""
        if self._replacing is None:
            return False
        new = items[self._replacing.place :]
        return not any(isinstance(message, AssistantMessage) for message in new)

    async def change(self, message: Message) -> None:
        """Replace the message that has this id, even if the task is cancelled during the write."""
        if self.ledger is None or self._is_unwritten(message.id):
            self._replace(message)
        else:
            async with self.ledger.turn:
                await finish_write(self._update(self.ledger, message))

    def _is_unwritten(self, id: str) -> bool:
        """Return whether a message waits for the first message of the answer that replaces one."""
        new = () if self._replacing is None else self.items[self._replacing.place :]
        return any(message.id == id for message in new)

    async def _update(self, ledger: Ledger, message: Message) -> None:
        await self._put()
        await ledger.update(message)
        self._replace(message)

    def _replace(self, message: Message) -> None:
        place = next(i for i, item in enumerate(self.items) if item.id == message.id)
        self.items = [*self.items]  # a new list, so that existing views do not change
        self.items[place] = message
        self._snapshot = self._in_order = None
        replacement = self._replacing
        if replacement is not None and place < replacement.place:
            items = [*replacement.items[:place], message, *replacement.items[place + 1 :]]
            self._replacing = replacement.replace(items=items)

    async def leave(self, chat_id: str) -> None:
        """End this chat's reservation: write pending changes, and release its lease.

        If the chat was abandoned during a store operation, wait for that operation. If a step could
        not be closed in time, close it now, so that no reader finds the step open.
        """
        ledger = self.ledger
        if ledger is None:
            return
        async with ledger.turn:
            if not ledger.is_held_by(chat_id):  # the lease was refused, or the next chat has it
                return
            self._catch_up()
            self._put_back()
            self._close_step()
            try:
                await self._put()
            except Exception as exc:
                log_throw(f"conversation {self.id!r}: its last changes were not written", exc)
            await ledger.leave()

    def _close_step(self) -> None:
        """Add results for the calls that have none and wait for no answer."""
        if self._pending is not None:
            return
        self._pending, lost_calls = left_behind(self.items, self._claim)
        self.items += lost_calls
        if self._pending is not None:
            self._claim = None
        elif self._claim is not None:  # it has no open questions left
            ids = self._claim.ids
            self._claim = self._claim.replace(answer_ids=ids, begun_ids=ids)
