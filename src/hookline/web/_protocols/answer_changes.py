"""Changes of an answer, in terms that every protocol has. An encoder writes each change.

The structure of the answer makes the changes, and keeps the rules of their order. What needs no
further fields is its own change: an event, a committed message, the response or error of the end.
"""

from __future__ import annotations

from typing import Any, Literal, TypeAlias

import msgspec

from hookline import (
    ApprovalRequest,
    AssistantMessage,
    File,
    Image,
    Response,
    Source,
    ToolCall,
    ToolMessage,
    UserMessage,
)
from hookline.events import ChatStarted, ErrorInfo, Status, ToolCallFinished

PartKind: TypeAlias = Literal["text", "reasoning"]


class Change(msgspec.Struct, frozen=True):
    """A change that an encoder writes. `message` is the id of the message that it belongs to."""


class StepOpen(Change, frozen=True):
    number: int
    message: str


class StepClose(Change, frozen=True):
    """The open step ends."""


class PartOpen(Change, frozen=True):
    kind: PartKind
    id: str
    message: str


class PartMore(Change, frozen=True):
    """A delta of the open part."""

    kind: PartKind
    id: str
    text: str


class PartClose(Change, frozen=True):
    kind: PartKind
    id: str


class AttachmentAdded(Change, frozen=True):
    """A complete source or file."""

    id: str
    part: Source | Image | File
    message: str


class CallOpen(Change, frozen=True):
    id: str
    name: str
    message: str


class CallMore(Change, frozen=True):
    id: str
    text: str


class CallClose(Change, frozen=True):
    """The arguments are complete, as written by the model."""

    id: str


class CallLost(Change, frozen=True):
    """The call gets no result: the answer was broken off. `ready`: a ToolCall was sent before."""

    id: str
    name: str
    ready: bool


class Withdrawn(Change, frozen=True):
    """Remove these parts and calls of a message; others follow under the same id."""

    message: str
    parts: tuple[tuple[str, str], ...]
    calls: tuple[tuple[str, str], ...]


class SentChanged(Change, frozen=True):
    """A message that was sent into the running chat, as it was sent or as it was delivered."""

    status: Literal["queued", "delivered", "returned"]
    message: UserMessage
    reason: str | None = None

    def data(self, message: dict[str, Any]) -> dict[str, Any]:
        """Return the fields for a client, with the message in the form of its protocol."""
        reason = {} if self.reason is None else {"reason": self.reason}
        return {"status": self.status, "message": message, **reason}


def decision_on(message: ToolMessage) -> dict[str, str]:
    """Return who decided on a call, and the remark of the decision."""
    ran = message.ran
    fields = {} if ran is None else {"by": ran.by, "note": ran.note}
    return {name: value for name, value in fields.items() if value is not None}


class SubAgentChanged(Change, frozen=True, kw_only=True):
    """A sub-agent has begun or ended. `waits`: it has a call that waits for an approval."""

    id: str
    name: str
    path: tuple[str, ...]
    """The calls that lead to it; the last one has started it."""
    parent: str | None
    """The sub-agent that has started it, if it was not the agent itself."""
    status: Literal["running", "done", "waits", "aborted", "failed"]
    text: str | None = None
    """The text of the error, for a sub-agent that failed."""


class Aborted(Change, frozen=True):
    """The answer was aborted. The encoder closes its open step, also after an error."""

    reason: str | None


AnyChange: TypeAlias = (
    Change
    | ChatStarted
    | Status
    | ToolCall  # hooks have decided on it; its arguments include their changes
    | ToolCallFinished
    | AssistantMessage
    | ToolMessage
    | ApprovalRequest  # still open at the end
    | Response
    | ErrorInfo
)
