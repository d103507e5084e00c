"""What a store keeps of a conversation, and what it is asked for.

A store is where conversations outlive their process. Each write is one short transaction, is made
only while its chat holds the lease of the conversation, and names the version that it expects:
what another has written meanwhile is never overwritten. Everything here is data and one Protocol.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol, runtime_checkable

from msgspec import UNSET, UnsetType

from hookline._base.errors import UsageError
from hookline._base.messages import Data, Message, ToolMessage
from hookline._base.returns import ApprovalRequest, Stop
from hookline._model.model import Settings
from hookline._talk.history import interrupted, open_calls


class PendingStep(Data, frozen=True, kw_only=True):
    """A step that waits for approvals: what a resumed chat needs to go on with it.

    A call of it that has neither a result nor a request has not been looked at: it must not
    overtake a waiting one. `system`, `tools` and `settings` are what preChat made of them.
    `claimed` names the chat that has taken the answers to the requests `answered`: they count
    once, also when that chat dies.
    """

    chat_id: str
    """The chat that asked."""
    iteration: int
    """The step, counted from 0."""
    requests: tuple[ApprovalRequest, ...]
    """What was asked, answered or not."""
    offered: tuple[str, ...] = ()
    """The tools that the model was offered."""
    stop: Stop | None = None
    """A Stop that takes effect after the step."""
    continuations: int = 0
    """How often `preStop` had prolonged the chat."""
    system: str | None = None
    """What preChat made of the system text."""
    tools: tuple[str, ...] | None = None
    """The names of the tools that preChat chose."""
    foreign: tuple[str, ...] = ()
    """Tools that a hook had put into the request, which no scope has."""
    settings: Settings | None = None
    """What preChat made of the settings."""
    state: dict[str, Any] | None = None
    """The JSON values of `run.state`, which the resumed chat begins with."""
    held: bool = False
    """Its chat has not ended: it waits by itself, and no other chat takes the answers."""
    claimed: str | None = None
    """The chat that has taken the answers."""
    answered: tuple[str, ...] = ()
    """The requests that it has answered."""

    @property
    def waiting(self) -> tuple[ApprovalRequest, ...]:
        """The requests that nobody has answered."""
        return tuple([each for each in self.requests if each.id not in self.answered])


class Stored(Data, frozen=True, kw_only=True):
    """A conversation as it stands in a store. `owner` holds its lease, if anybody does."""

    id: str
    """The conversation's id."""
    version: int
    """Counts one up with each write."""
    messages: tuple[Message, ...]
    """All of them, in order."""
    meta: dict[str, Any]
    """JSON data of the user's."""
    pending: PendingStep | None = None
    """The step that waits for approvals, if one does."""
    owner: str | None = None
    """The chat that runs on it, if one does."""


class ConversationInfo(Data, frozen=True, kw_only=True):
    """A line in the list of a store. Times are seconds since the epoch."""

    id: str
    """The conversation's id."""
    messages: int
    """How many there are."""
    meta: dict[str, Any]
    """JSON data of the user's."""
    created: float
    """When it was first written."""
    updated: float
    """When it was last written."""
    waits: bool = False
    """Whether it waits for an approval."""


class Change(Data, frozen=True, kw_only=True):
    """What is written to a conversation at once.

    `owner` holds the lease, `expected` is the version that it knows, and `place` the number of
    messages that stand before these. `fresh`: all that stood there is forgotten first.
    """

    owner: str
    """The chat that holds the lease."""
    expected: int
    """The version that it knows."""
    place: int
    """How many messages come before these."""
    messages: tuple[Message, ...] = ()
    """What is appended."""
    meta: dict[str, Any] | UnsetType = UNSET
    """What stands in its place; UNSET leaves it."""
    pending: PendingStep | UnsetType | None = UNSET
    """What stands in its place; UNSET leaves it."""
    fresh: bool = False
    """True to forget first all that is stored."""


@runtime_checkable
class Store(Protocol):
    """Where conversations named by an id are kept.

    All of it may be called from several tasks at once. What cannot be read or written is a
    StoreError. A version counts one up with each write. Only the owner of a lease writes. An owner
    is one life of a chat, `"{chat_id}/{life}"`: all but `acquire` compare the whole of it.
    """

    @property
    def lease(self) -> float | None:
        """Seconds after which a lease that was not renewed may be taken over; None: never."""
        ...

    async def load(self, conversation_id: str) -> Stored | None:
        """What stands there; None where nothing was ever written."""
        ...

    async def acquire(self, conversation_id: str, owner: str, *, heir: bool = False) -> int:
        """Give the lease to this owner, and tell the version; makes what is not there.

        The same owner gets it again. An heir takes it over from another life of its chat at once.
        Raises ConversationBusyError while somebody else has it.
        """
        ...

    async def renew(self, conversation_id: str, owner: str) -> bool:
        """The owner lives; False when the lease is another's now."""
        ...

    async def release(self, conversation_id: str, owner: str) -> None:
        """Free it, if that owner has it."""
        ...

    async def append(self, conversation_id: str, change: Change) -> int:
        """Write this, all or nothing, and tell the new version.

        Raises ConversationConflictError when the version or the owner is another. When the store
        cannot know whether an earlier try was written, it finds out before it tries again.
        """
        ...

    async def update(
        self, conversation_id: str, message: Message, *, owner: str, expected: int
    ) -> int:
        """Put this message in the place of the one with its id, and tell the new version."""
        ...

    async def delete(self, conversation_id: str) -> bool:
        """Forget a conversation; False when there is none. Raises ConversationBusyError."""
        ...

    async def list(self, *, limit: int = 100, offset: int = 0) -> tuple[ConversationInfo, ...]:
        """The conversations, the last changed first."""
        ...

    async def pending(self, conversation_id: str | None = None) -> tuple[ApprovalRequest, ...]:
        """What waits for an approval, in one conversation or in all."""
        ...


def owner_of(chat_id: str, life: str) -> str:
    """What a lease is taken by: one life of a chat."""
    return f"{chat_id}/{life}"


def chat_of(owner: str) -> str:
    """The chat that an owner is a life of."""
    return owner.rpartition("/")[0] or owner


def check_id(conversation_id: str) -> None:
    """Refuse an id that not every store could keep.

    Raises UsageError for one that is empty, longer than 255 characters, or not printable.
    """
    if not conversation_id:
        raise UsageError(f"a conversation id must not be empty: {conversation_id!r} is")
    if len(conversation_id) > 255:
        raise UsageError(
            f"a conversation id must not be longer than 255 characters: {conversation_id!r:.80}…"
        )
    if not conversation_id.isprintable():
        raise UsageError(f"a conversation id must be printable: {conversation_id!r} is not")


# ── what is found when a conversation is opened ─────────────────────────────────────────────


def held_by(step: PendingStep | None, now: float) -> str | None:
    """The durable chat that holds a conversation while it waits for an answer there."""
    if step is None or not step.held:
        return None
    waits = any(each.expires is None or each.expires > now for each in step.waiting)
    return step.chat_id if waits else None


def made_by(chat_id: str, message: Message) -> bool:
    """Whether this chat has written the message."""
    return message.id.startswith(chat_id) and message.id[len(chat_id) : len(chat_id) + 1] == "."


def is_of(chat_id: str, messages: Sequence[Message], step: PendingStep | None) -> bool:
    """Whether an earlier life of this chat has written what stands last."""
    if step is not None and step.claimed == chat_id:
        return True
    return bool(messages) and made_by(chat_id, messages[-1])


def left_behind(
    messages: Sequence[Message], step: PendingStep | None
) -> tuple[PendingStep | None, tuple[ToolMessage, ...]]:
    """What a chat that died has left: the questions still open, and results that were lost.

    A call that was begun, or whose approval was taken, may have run: it does not run again.
    """
    if step is not None and step.claimed is None:
        return step, ()
    calls = open_calls(messages)
    waiting = [] if step is None else [each for each in step.waiting if each.call in calls]
    asked = [each.call.id for each in waiting]
    lost = [call for call in calls if call.id not in asked]
    more = tuple(  # with the same ids whoever writes them
        [interrupted(call, f"interrupted.{len(messages) + n}") for n, call in enumerate(lost)]
    )
    if step is None or not waiting:
        return None, more
    return step.replace(requests=tuple(waiting), claimed=None, answered=()), more
