"""Acts: what happens to an answer, in words that every protocol has. An encoder writes each down.

The outline makes them, and keeps the rules of their order.
"""

from __future__ import annotations

from typing import Literal, TypeAlias

import msgspec

from hookline import ApprovalRequest, AssistantMessage, Response, ToolCall, ToolMessage
from hookline.events import ChatStarted, ErrorInfo, Status, ToolCallFinished

PartKind: TypeAlias = Literal["text", "reasoning"]


class Act(msgspec.Struct, frozen=True):
    """What an encoder writes down. `message` is the id of the message that it belongs to."""


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
    kind: PartKind
    id: str
    text: str
    message: str


class PartClose(Act, frozen=True):
    kind: PartKind
    id: str
    message: str


class CallOpen(Act, frozen=True):
    id: str
    name: str
    message: str


class CallMore(Act, frozen=True):
    id: str
    text: str


class CallClose(Act, frozen=True):
    """The arguments are complete, as the model wrote them."""

    id: str


class CallReady(Act, frozen=True):
    """The call's fate is decided; its arguments are as hooks have left them."""

    call: ToolCall


class CallDone(Act, frozen=True):
    event: ToolCallFinished


class CallLost(Act, frozen=True):
    """The call will have no result: the answer was broken off. `ready`: CallReady was told."""

    id: str
    name: str
    ready: bool


class Withdrawn(Act, frozen=True):
    """Forget these parts and calls of this message: other ones follow under the same id."""

    message: str
    parts: tuple[tuple[PartKind, str], ...]
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
    """`step`: the one that is broken off and left to the encoder to close."""

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
