"""The store protocol, and the data that a store keeps of a conversation.

In a store, conversations outlive their process. Each write is one short transaction. It is made
only while its chat holds the lease of the conversation, and names the version that it expects, so
changes of other writers are never overwritten. This module contains only data and one Protocol.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any, Protocol, runtime_checkable

from msgspec import UNSET, UnsetType, field

from hookline._base.errors import UsageError
from hookline._base.messages import Data, Message, RanCall, ToolCall, ToolMessage
from hookline._base.numbers import check_number
from hookline._base.returns import ApprovalRequest, Stop
from hookline._conversations.history import interrupted_result, open_calls
from hookline._model.model import Settings

_STORED_NAMES = {  # in the rows of stores
    "offered_tools": "offered",
    "locked": "held",
    "claimed_by": "claimed",
    "answer_ids": "answered",
    "begun_ids": "begun",
}


class WaitingChild(Data, frozen=True, kw_only=True):
    """The chat of a sub-agent that waits for answers, and the call that runs it."""

    call: ToolCall
    """The call of the sub-agent, as hooks have left it."""
    approved: bool = False
    """Whether the call itself was approved as it stands."""
    agent: str
    """The name of the sub-agent."""
    messages: tuple[Message, ...]
    """All messages of the sub-agent's chat."""
    meta: dict[str, Any] = field(default_factory=lambda: dict[str, Any]())
    """The `run.meta` of the sub-agent's chat."""
    step: PendingStep
    """The step of the sub-agent's chat that waits."""


class PendingStep(Data, frozen=True, kw_only=True, rename=_STORED_NAMES):
    """A step that waits for approvals or clients, with everything that a resumed chat needs.

    A call that has no result may still be missing from these lists. Such a call has not been
    processed, because a call must not overtake a waiting call. A chat claims the answers that it
    uses, and notes each call right before its tool begins. A claimed answer whose tool has not
    begun is given back if the chat ends: its request waits again.
    """

    chat_id: str
    """The id of the chat that asked."""
    iteration: int
    """The step, counted from 0."""
    requests: tuple[ApprovalRequest, ...]
    """All requests for approval, answered or not, also those of sub-agents."""
    client_calls: tuple[ToolCall, ...] = ()
    """All calls that a client must run, answered or not."""
    path: tuple[str, ...] = ()
    """The ids of the calls that lead from the root chat to the chat of this step."""
    children: tuple[WaitingChild, ...] = ()
    """The chats of sub-agents that wait in calls of this step."""
    records: dict[str, RanCall] = field(default_factory=lambda: dict[str, RanCall]())
    """What hooks decided about calls that wait, by the ids of the calls."""
    offered_tools: tuple[str, ...] = ()
    """The tools that were offered to the model."""
    stop: Stop | None = None
    """A Stop that takes effect after the step."""
    continuations: int = 0
    """The number of times that `preStop` hooks have continued the chat."""
    system: str | None = None
    """The system text, with the changes of `preChat`."""
    tools: tuple[str, ...] | None = None
    """The names of the tools that preChat chose."""
    foreign: tuple[str, ...] = ()
    """The tools that a hook added to the request and that do not belong to a scope."""
    settings: Settings | None = None
    """The settings, with the changes of `preChat`."""
    state: dict[str, Any] | None = None
    """The JSON values of `run.state` for the resumed chat."""
    locked: bool = False
    """True if the chat that asked is still running, so no other chat can take the answers."""
    guards: tuple[str, ...] = ()
    """The ids or names of the chat's required hooks. A resumed chat must have the same hooks."""
    claimed_by: str | None = None
    """The id of the chat that has claimed the answers."""
    answer_ids: tuple[str, ...] = ()
    """The ids of the requests and client calls whose answers were claimed."""
    begun_ids: tuple[str, ...] | None = None
    """The ids among `answer_ids` whose calls may have run. None stands for all
    of them."""

    @property
    def waiting(self) -> tuple[ApprovalRequest, ...]:
        """The requests that have not been answered."""
        return tuple([request for request in self.requests if request.id not in self.answer_ids])

    @property
    def unbegun(self) -> tuple[ApprovalRequest, ...]:
        """The requests that wait once no chat runs: the calls of their answers have not begun."""
        call_ids = self.begun_calls
        return tuple([item for item in self.requests if self.call_id_of(item) not in call_ids])

    @property
    def begun_calls(self) -> frozenset[str]:
        """The ids of the calls whose answers are used up. A sub-agent uses up all of its answers
        with the first of its tools that begins."""
        ids = self.answer_ids if self.begun_ids is None else self.begun_ids
        return frozenset(
            [
                *[self.call_id_of(item) for item in self.requests if item.id in ids],
                *[call.id for call in self.client_calls if call.id in ids],
            ]
        )

    def call_id_of(self, request: ApprovalRequest) -> str:
        """Return the id of the call of this step in which a request waits."""
        depth = len(self.path)
        return request.path[depth] if len(request.path) > depth else request.call.id

    def reopened(self, call_ids: Collection[str]) -> PendingStep | None:
        """Return the step with only these calls, all of them unanswered; None if it has none."""
        step = self.replace(
            requests=tuple([item for item in self.requests if self.call_id_of(item) in call_ids]),
            client_calls=tuple([item for item in self.client_calls if item.id in call_ids]),
            children=tuple([child for child in self.children if child.call.id in call_ids]),
            claimed_by=None,
            answer_ids=(),
            begun_ids=None,
        )
        return step if step.calls else None

    @property
    def calls(self) -> tuple[ToolCall, ...]:
        """All calls of the step that wait for an answer, or have waited for one."""
        own = [item.call for item in self.requests if len(item.path) == len(self.path)]
        return (*own, *[child.call for child in self.children], *self.client_calls)

    @property
    def ids(self) -> tuple[str, ...]:
        """The ids of all requests and client calls; an answer must have one of these ids."""
        request_ids = [item.id for item in self.requests]
        return (*request_ids, *[item.id for item in self.client_calls])


class Stored(Data, frozen=True, kw_only=True):
    """A stored conversation."""

    id: str
    """The conversation's id."""
    version: int
    """The version; each write increments it."""
    messages: tuple[Message, ...]
    """All messages, in order."""
    meta: dict[str, Any]
    """The conversation's JSON data."""
    pending: PendingStep | None = None
    """The step that waits for answers, if any."""
    owner: str | None = None
    """The owner of the lease: one life of a chat. None if the lease is free."""


class ConversationInfo(Data, frozen=True, kw_only=True):
    """An entry in a store's list of conversations. Times are seconds since the epoch."""

    id: str
    """The conversation's id."""
    messages: int
    """The number of messages."""
    meta: dict[str, Any]
    """The conversation's JSON data."""
    created: float
    """The time of the first write."""
    updated: float
    """The time of the last write."""
    waits: bool = False
    """Whether the conversation has a step that waits for an approval."""


class Change(Data, frozen=True, kw_only=True):
    """One write to a conversation."""

    owner: str
    """The owner of the lease: one life of a chat."""
    expected: int
    """The version before the write."""
    place: int
    """How many messages come before the new messages."""
    messages: tuple[Message, ...] = ()
    """The messages to append."""
    meta: dict[str, Any] | UnsetType = UNSET
    """The new JSON data of the conversation; UNSET keeps the stored data."""
    pending: PendingStep | UnsetType | None = UNSET
    """The new pending step, or None for no step; UNSET keeps the stored step."""
    fresh: bool = False
    """Whether to delete all stored messages first."""


@runtime_checkable
class Store(Protocol):
    """Stores the conversations that are named by an id.

    All methods may be called from several tasks at once. All methods raise StoreError if the store
    cannot be read or written. Each write increments the version. Only the owner of a lease may
    write. An owner is one life of a chat, `"{chat_id}/{life}"`. All methods except `acquire`
    compare owners as whole strings, so two lives of the same chat are different owners.
    """

    @property
    def lease(self) -> float | None:
        """The seconds after which a lease expires if it is not renewed; None for never."""
        ...

    async def load(self, conversation_id: str) -> Stored | None:
        """Return the stored conversation; None if it was never written."""
        ...

    async def acquire(self, conversation_id: str, owner: str, *, heir: bool = False) -> int:
        """Give the lease to this owner, and return the conversation's version. Create the
        conversation if necessary.

        If the owner already holds the lease, the owner keeps it. With `heir`, the owner takes the
        lease from another life of the same chat at once, unless the other life is later (see
        `inherits`). Raises ConversationBusyError if another owner holds the lease.
        """
        ...

    async def renew(self, conversation_id: str, owner: str) -> bool:
        """Renew the owner's lease; returns False if another owner holds the lease now."""
        ...

    async def release(self, conversation_id: str, owner: str) -> None:
        """Release the lease if this owner holds it."""
        ...

    async def append(self, conversation_id: str, change: Change) -> int:
        """Write the whole change, or write nothing. Return the new version.

        Raises ConversationConflictError if the version or the owner differs. If a store does not
        know whether an earlier attempt was written, it must check before it tries again.
        """
        ...

    async def update(
        self, conversation_id: str, message: Message, *, owner: str, expected: int
    ) -> int:
        """Replace the stored message that has the same id, and return the new version.

        Raises UsageError if there is no such message.
        """
        ...

    async def delete(self, conversation_id: str) -> bool:
        """Delete a conversation; returns False if it does not exist.

        Raises ConversationBusyError.
        """
        ...

    async def list(
        self, *, prefix: str = "", limit: int = 100, offset: int = 0
    ) -> tuple[ConversationInfo, ...]:
        """List the conversations whose ids begin with `prefix`, the most recently changed first.

        A store must not read the other conversations for this: their number may be much larger.
        Raises UsageError unless `limit` and `offset` are whole numbers of at least 0.
        """
        ...

    async def pending(
        self, conversation_id: str | None = None, *, prefix: str = ""
    ) -> tuple[ApprovalRequest, ...]:
        """Return the unanswered approval requests of one conversation, or of all conversations
        whose ids begin with `prefix`.
        """
        ...


def owner_of(chat_id: str, life: str) -> str:
    """Return the owner of a lease: one life of a chat."""
    return f"{chat_id}/{life}"


def chat_of(owner: str) -> str:
    """Return the id of this owner's chat."""
    return owner.rpartition("/")[0] or owner


def inherits(owner: str, holder: str) -> bool:
    """Return whether `owner` may take over the lease from `held`.

    `owner` and `held` must be lives of the same chat, and `held` must not be a later life. The
    number at the beginning of a life's name decides which life is later; a life without a number
    has number 0.
    """
    return chat_of(owner) == chat_of(holder) and _number_of(holder) <= _number_of(owner)


def _number_of(owner: str) -> int:
    number = owner.rpartition("/")[2].partition(".")[0]
    return int(number) if number.isdecimal() else 0


def check_id(conversation_id: str) -> None:
    """Check that every store can keep this id.

    Raises UsageError for an id that is empty, longer than 255 characters, or not printable.
    """
    if not conversation_id:
        raise UsageError(f"a conversation id must not be empty, but it is {conversation_id!r}")
    if len(conversation_id) > 255:
        raise UsageError(
            f"a conversation id must not be longer than 255 characters: {conversation_id!r:.80}…"
        )
    if not conversation_id.isprintable():
        raise UsageError(f"a conversation id must be printable, but it is {conversation_id!r}")


def check_page(limit: int, offset: int) -> None:
    """Check a page of a list. Raises UsageError unless both are whole numbers of at least 0."""
    check_number("limit", limit, whole=True)
    check_number("offset", offset, whole=True)


def after_prefix(prefix: str) -> str | None:
    """Return the least text above all texts with this prefix, by code points; None if none is."""
    for place in range(len(prefix) - 1, -1, -1):
        point = ord(prefix[place]) + 1
        if point == 0xD800:
            point = 0xE000  # the points between are surrogates, which no database stores
        if point <= 0x10FFFF:
            return prefix[:place] + chr(point)
    return None


# ── the state of a conversation when it is opened ───────────────────────────────────────────


def held_by(step: PendingStep | None, now: float) -> str | None:
    """The durable chat that waits for an answer in this conversation, and so holds it."""
    if step is None or not step.locked:
        return None
    waits = any(request.expires is None or request.expires > now for request in step.waiting)
    return step.chat_id if waits else None


def made_by(chat_id: str, message: Message) -> bool:
    """Return whether this chat has written the message."""
    return message.id.startswith(f"{chat_id}.")


def is_of(chat_id: str, messages: Sequence[Message], step: PendingStep | None) -> bool:
    """Return whether an earlier life of this chat wrote the end of the conversation."""
    if step is not None and step.claimed_by == chat_id:
        return True
    return bool(messages) and made_by(chat_id, messages[-1])


def left_behind(
    messages: Sequence[Message], step: PendingStep | None
) -> tuple[PendingStep | None, tuple[ToolMessage, ...]]:
    """Close the step of a chat that died: the open questions, and results for the lost calls.

    A call that had begun may have run, so it does not run again. An approval that was claimed for
    a call that had not begun waits again.
    """
    if step is not None and step.claimed_by is None:
        return step, ()
    calls = open_calls(messages)
    rest = None if step is None else step.reopened(_not_begun(step, calls))
    open = [] if rest is None else [call.id for call in rest.calls]
    lost_calls = [call for call in calls if call.id not in open]
    more = tuple(  # the ids do not depend on the process that writes them
        [
            interrupted_result(
                call, f"interrupted.{len(messages) + n}", chat_id=messages[-1].chat_id
            )
            for n, call in enumerate(lost_calls)
        ]
    )
    return rest, more


def _not_begun(step: PendingStep, calls: Sequence[ToolCall]) -> set[str]:
    """The ids of those of these calls that wait, or waited, and cannot have run."""
    waiting = {call.id for call in step.calls} - step.begun_calls
    return waiting & {call.id for call in calls}
