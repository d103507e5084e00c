"""Conversations: messages kept across chats, at most one of which runs at a time.

Messages are only appended; `reset` and `restore` begin a new list, so that views and tuples handed
out before stay what they were. Loading one from a store is the store's business.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable
from secrets import token_hex
from typing import Any, Protocol

from hookline._errors import ConversationBusyError, UsageError
from hookline._history import check_history, in_call_order
from hookline._messages import AssistantMessage, Data, History, Message
from hookline._model import Settings
from hookline._outcomes import ApprovalRequest, Stop


class PendingStep(Data, frozen=True, kw_only=True):
    """A step that waits for approvals: what a resumed chat needs to go on with it.

    A call of it that has neither a result nor a request has not been looked at: it must not
    overtake a waiting one. `system`, `tools` and `settings` are what preChat made of them.
    """

    chat_id: str
    iteration: int
    requests: tuple[ApprovalRequest, ...]
    offered: tuple[str, ...] = ()
    stop: Stop | None = None
    continuations: int = 0
    system: str | None = None
    tools: tuple[str, ...] | None = None
    foreign: tuple[str, ...] = ()
    settings: Settings | None = None


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
        self.id = id or token_hex(10)
        self.meta: dict[str, Any] = meta if meta is not None else {}
        self._lock = threading.Lock()
        self._chat_id: str | None = None
        self._snapshot: tuple[Message, ...] | None = None
        self._set(messages, pending)

    def _set(self, messages: Iterable[Message], pending: PendingStep | None) -> None:
        items = list(messages)
        if items:
            check_history(items, open_end=pending is not None)
        self._items = items
        self.call_ids: set[str] = set()
        self._disordered = False
        self._snapshot = None
        self._in_order: tuple[Message, ...] | None = None
        self._pending = pending
        if items:
            made = [message for message in items if isinstance(message, AssistantMessage)]
            self.call_ids.update(call.id for message in made for call in message.calls)
            self._disordered = in_call_order(items) != tuple(items)

    @property
    def messages(self) -> tuple[Message, ...]:
        """All messages: the same tuple until the next commit."""
        if self._snapshot is None:
            self._snapshot = tuple(self._items)
        return self._snapshot

    @property
    def history(self) -> History:
        """A view of the messages that costs nothing however many there are."""
        return History(self._items, len(self._items))

    @property
    def pending(self) -> tuple[ApprovalRequest, ...]:
        """The calls that wait for `agent.resume(conversation, answers)`."""
        return self._pending.requests if self._pending is not None else ()

    @property
    def pending_step(self) -> PendingStep | None:
        """What the waiting step is resumed from."""
        return self._pending

    @property
    def busy(self) -> bool:
        """Whether a chat is running on it."""
        return self._chat_id is not None

    def reset(self) -> None:
        """Forget all messages. Raises ConversationBusyError while a chat runs."""
        self.restore(())

    def restore(self, messages: Iterable[Message], pending: PendingStep | None = None) -> None:
        """Begin again with these messages. Raises HistoryError, or ConversationBusyError."""
        with self._lock:
            if self._chat_id is not None:
                raise ConversationBusyError(self.id, self._chat_id)
            self._set(messages, pending)

    # ── for the chat that runs on it ────────────────────────────────────────────────────────

    def acquire(self, chat_id: str) -> None:
        """Take it for one chat; raises ConversationBusyError when another has it."""
        with self._lock:
            if self._chat_id is not None:
                raise ConversationBusyError(self.id, self._chat_id)
            self._chat_id = chat_id

    def release(self, chat_id: str) -> None:
        """Free it, if that chat has it."""
        if self._chat_id == chat_id:
            self._chat_id = None

    def commit(self, message: Message) -> None:
        """Append a whole message."""
        self._items.append(message)
        self._snapshot = None

    def wait(self, pending: PendingStep | None) -> None:
        """Write down what waits for approval, or that nothing does."""
        self._pending = pending

    def disorder(self) -> None:
        """A result was committed after one of a later call: requests need another order."""
        self._disordered = True

    def for_request(self) -> History | tuple[Message, ...]:
        """The messages as a provider wants them: results in the order of their calls."""
        if not self._disordered:
            return History(self._items, len(self._items))
        if self._in_order is None or len(self._in_order) != len(self._items):
            self._in_order = in_call_order(self._items)
        return self._in_order

    def __repr__(self) -> str:
        return f"<Conversation {self.id!r}: {len(self._items)} messages>"


class Store(Protocol):
    """Where conversations named by an id are kept."""

    async def open(self, conversation_id: str) -> Conversation:
        """The conversation of that id, a new one if there is none."""
        ...


class MemoryStore:
    """Conversations in this process, for as long as the store lives."""

    def __init__(self) -> None:
        self._conversations: dict[str, Conversation] = {}

    async def open(self, conversation_id: str) -> Conversation:
        """The conversation of that id, a new one if there is none."""
        if not conversation_id:
            raise UsageError("a conversation id must not be empty")
        found = self._conversations.get(conversation_id)
        if found is None:
            found = self._conversations[conversation_id] = Conversation(id=conversation_id)
        return found

    def list(self) -> tuple[str, ...]:
        """The ids of all conversations."""
        return tuple(self._conversations)

    def delete(self, conversation_id: str) -> bool:
        """Forget a conversation; False when there is none of that id."""
        return self._conversations.pop(conversation_id, None) is not None
