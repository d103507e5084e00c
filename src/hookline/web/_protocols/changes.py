"""Acts: changes of an answer, in terms that every protocol has. An encoder writes each act.

The outline makes the acts, and keeps the rules of their order.
"""

from __future__ import annotations

from typing import Literal, TypeAlias

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
)
from hookline.events import ChatStarted, ErrorInfo, Status, ToolCallFinished

PartKind: TypeAlias = Literal["text", "reasoning"]


class Act(msgspec.Struct, frozen=True):
    """A change that an encoder writes. `message` is the id of the message that it belongs to."""


class Begin(Act, frozen=True):
    event: ChatStarted


class StepOpen(Act, frozen=True):
    number: int
    message: str


class StepClose(Act, frozen=True):
    number: int


class PartOpen(Act, frozen=True):
    kind: PartKind
    id: str
    message: str


class PartMore(Act, frozen=True):
    """A delta of the open part."""

    kind: PartKind
    id: str
    text: str


class PartClose(Act, frozen=True):
    kind: PartKind
    id: str
    message: str


class Brought(Act, frozen=True):
    """A complete source or file."""

    id: str
    part: Source | Image | File
    message: str


class CallOpen(Act, frozen=True):
    id: str
    name: str
    message: str


class CallMore(Act, frozen=True):
    id: str
    text: str


class CallClose(Act, frozen=True):
    """The arguments are complete, as written by the model."""

    id: str


class CallReady(Act, frozen=True):
    """Hooks have decided on the call; the arguments include their changes."""

    call: ToolCall


class CallDone(Act, frozen=True):
    event: ToolCallFinished


class CallLost(Act, frozen=True):
    """The call gets no result: the answer was broken off. `ready`: a CallReady was sent before."""

    id: str
    name: str
    ready: bool


class Withdrawn(Act, frozen=True):
    """Remove these parts and calls of a message; others follow under the same id."""

    message: str
    parts: tuple[tuple[str, str], ...]
    calls: tuple[tuple[str, str], ...]


class Said(Act, frozen=True):
    message: AssistantMessage


class Answered(Act, frozen=True):
    message: ToolMessage


class Note(Act, frozen=True):
    event: Status


class Asked(Act, frozen=True):
    request: ApprovalRequest


class Done(Act, frozen=True):
    response: Response


class Aborted(Act, frozen=True):
    """The answer was aborted. `step`: the open step, which the encoder must close."""

    reason: str | None
    step: int | None


class Failed(Act, frozen=True):
    error: ErrorInfo
    step: int | None


AnyAct: TypeAlias = (
    Begin
    | StepOpen
    | StepClose
    | PartOpen
    | PartMore
    | PartClose
    | Brought
    | CallOpen
    | CallMore
    | CallClose
    | CallReady
    | CallDone
    | CallLost
    | Withdrawn
    | Said
    | Answered
    | Note
    | Asked
    | Done
    | Aborted
    | Failed
)
