"""`Conversation`: messages kept across chats, as programs see them.

The state of a conversation, and what a chat does with it, is in `state.py`.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import msgspec

from hookline._base.errors import ConversationConflictError, UsageError
from hookline._base.json import Reader
from hookline._base.messages import Data, History, Message, ToolCall, UserMessage
from hookline._base.returns import ApprovalRequest
from hookline._conversations.ledger import Ledger
from hookline._conversations.state import ConversationState
from hookline._conversations.store import PendingStep, Store, check_id, left_behind
from hookline._record.runtime import LOCAL

FORMAT = 1  # the version of the JSON format


class Exported(Data, frozen=True, kw_only=True):
    """A conversation as JSON."""

    hookline: int
    id: str
    messages: tuple[Message, ...]
    meta: dict[str, Any] = msgspec.field(default_factory=lambda: dict[str, Any]())
    pending: PendingStep | None = None


_exported: Reader[Exported] = Reader(Exported)


class Conversation:
    """Messages kept across chats.

    Raises HistoryError if the given messages are not a valid history.
    """

    __slots__ = ("__weakref__", "_state")

    def __init__(
        self,
        messages: Iterable[Message] = (),
        *,
        id: str | None = None,
        meta: dict[str, Any] | None = None,
        pending: PendingStep | None = None,
    ) -> None:
        self._state = ConversationState(messages, id=id, meta=meta, pending=pending)

    @property
    def id(self) -> str:
        """The conversation's id, in its store and in `chat(conversation=…)`."""
        return self._state.id

    @property
    def meta(self) -> dict[str, Any]:
        """Your own JSON data. It is saved with the next message, or by `save`."""
        return self._state.meta

    @meta.setter
    def meta(self, meta: dict[str, Any]) -> None:
        self._state.meta = meta

    @property
    def store(self) -> Store | None:
        """The store that the conversation is in, or None."""
        ledger = self._state.ledger
        return None if ledger is None else ledger.store

    @property
    def messages(self) -> tuple[Message, ...]:
        """All messages, as a tuple that stays the same until the next commit."""
        return self._state.messages

    @property
    def history(self) -> History:
        """A read-only view of the messages; its cost does not depend on their number."""
        return self._state.history

    @property
    def pending(self) -> tuple[ApprovalRequest, ...]:
        """The calls that wait for `agent.resume(conversation, answers)`."""
        return self._state.pending

    @property
    def client_calls(self) -> tuple[ToolCall, ...]:
        """The calls for a client: `agent.resume(conversation, {call.id: ToolResult(…)})`."""
        return self._state.client_calls

    @property
    def pending_step(self) -> PendingStep | None:
        """The step that waits for answers, with everything that a resumed chat needs."""
        return self._state.pending_step

    @property
    def busy(self) -> bool:
        """Whether a chat in this process is running on this conversation."""
        return self._state.busy

    def reset(self) -> None:
        """Delete all messages. Raises ConversationBusyError while a chat runs."""
        self._state.restore(())

    def restore(self, messages: Iterable[Message], pending: PendingStep | None = None) -> None:
        """Replace all messages with these. Raises HistoryError or ConversationBusyError.

        In a store, the change is written with the next message, or by `save`.
        """
        self._state.restore(messages, pending)

    def replace_answer(self, message_id: str | None = None) -> UserMessage:
        """Let the next chat replace an answer; returns the question, to pass to this chat.

        `message_id` is the id of the question or of a message of its answer; without it, the last
        answer is replaced. The question and all later messages are replaced in one write, with the
        first message of the new answer. If the chat ends before that, everything stays as it was.
        Raises UsageError if there is no such message or no question before it. Raises
        ConversationBusyError while a chat runs.
        """
        return self._state.replace_answer(message_id)

    def to_json(self) -> bytes:
        """Encode the whole conversation as JSON text, for `from_json`."""
        return Exported(
            hookline=FORMAT,
            id=self.id,
            messages=self.messages,
            meta=self.meta,
            pending=self._state.standing,
        ).to_json()

    @classmethod
    def from_json(cls, data: bytes | str, *, id: str | None = None) -> Conversation:
        """Make a conversation from JSON text. Raises UsageError or HistoryError.

        If a step was running when the text was made, that step is closed, because its calls may
        have run.
        """
        try:
            read = _exported.decode(data)
        except msgspec.DecodeError as exc:
            raise UsageError(f"this must be JSON from Conversation.to_json(): {exc}") from exc
        if read.hookline != FORMAT:
            raise UsageError(
                f"this conversation is in format {read.hookline}, but this version of hookline "
                f"reads only format {FORMAT}; install a newer version"
            )
        pending, more = left_behind(read.messages, read.pending)
        return cls((*read.messages, *more), id=id or read.id, meta=read.meta, pending=pending)

    @classmethod
    def at(cls, store: Store, id: str) -> Conversation:
        """Return the conversation with this id in a store; the next chat loads its messages."""
        check_id(id)
        conversation = cls(id=id)
        conversation._state.ledger = Ledger(store, id)
        return conversation

    @classmethod
    async def open(cls, store: Store, id: str) -> Conversation:
        """Load the conversation with this id from a store, or create it if the store has none.

        Chats of this conversation write their messages to the store. Raises StoreError. Raises
        HistoryError if the stored messages are not a valid history.
        """
        conversation = cls.at(store, id)
        row = await store.load(id)
        if row is not None:
            await conversation._state.load(row, None)
        return conversation

    async def save(self, store: Store | None = None) -> None:
        """Save pending changes: changes to `meta`, and changes by `reset` and `restore`.

        With `store`, the whole conversation and all later changes are written to that store. The
        store must not have a conversation with this id. Raises UsageError if the conversation is in
        no store. Also raises ConversationConflictError, ConversationBusyError or StoreError.
        """
        if store is not None:
            check_id(self.id)
            exists = await store.load(self.id)
            if exists is not None:
                raise ConversationConflictError(self.id, 0, exists.version)
        state = self._state
        ledger = state.ledger if store is None else Ledger(store, self.id)
        if ledger is None:
            raise UsageError(f"conversation {self.id!r} is in no store; pass a store: save(store)")
        owner = f"save.{LOCAL.new_id()}"
        state.acquire(owner)
        before, state.ledger = state.ledger, ledger
        try:
            await state.take(owner, lambda exc: None)  # if the lease is lost, the write is refused
            try:  # not `state.leave`, which would only log a failed write
                await state.flush()
            finally:
                await ledger.leave()
        except BaseException:
            state.ledger = before
            raise
        finally:
            state.release(owner)

    def __repr__(self) -> str:
        return f"<Conversation {self.id!r}: {len(self.history)} messages>"


def state_of(conversation: Conversation) -> ConversationState:
    """The state of a conversation, for the chat that runs on it."""
    return conversation._state  # pyright: ignore[reportPrivateUsage]
