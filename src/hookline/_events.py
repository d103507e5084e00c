"""The closed union of what a chat publishes. A reader can `match` over it exhaustively.

Events are numbered in order (`seq`) per root chat; `path` holds the ids of the tool calls under
which a sub-agent's chat runs (empty for the chat itself). One of ChatDone, ChatAborted and
ChatFailed comes last and closes whatever is open.
"""

from __future__ import annotations

from typing import Any, Literal, TypeAlias

import msgspec

from hookline._messages import (
    CallOutcome,
    Data,
    FinishReason,
    Message,
    ToolCall,
    Usage,
    UserMessage,
)
from hookline._outcomes import ApprovalRequest, CallResult, ErrorInfo, Response


class Event(Data, frozen=True, kw_only=True, tag_field="event"):
    """What every event has."""

    chat_id: str
    seq: int = 0
    path: tuple[str, ...] = ()


class ChatStarted(Event, frozen=True, kw_only=True, tag="chat_started"):
    """The chat began. `message` is None where it goes on with an answered approval."""

    agent: str
    message: UserMessage | None = None
    conversation_id: str | None = None
    parent_chat_id: str | None = None
    resumes: str | None = None


class StepStarted(Event, frozen=True, kw_only=True, tag="step_started"):
    """A model call is about to be made, or was answered by a hook."""

    iteration: int


class TextDelta(Event, frozen=True, kw_only=True, tag="text_delta"):
    """More text."""

    iteration: int
    text: str


class ReasoningDelta(Event, frozen=True, kw_only=True, tag="reasoning_delta"):
    """More reasoning."""

    iteration: int
    text: str


class PartEnd(Event, frozen=True, kw_only=True, tag="part_end"):
    """The text or reasoning that was being streamed is complete."""

    iteration: int
    part: Literal["text", "reasoning"]


class ToolCallDelta(Event, frozen=True, kw_only=True, tag="tool_call_delta"):
    """More of a call's arguments, as the model writes them; for display only."""

    iteration: int
    index: int
    call_id: str
    name: str
    arguments: str


class ToolCallStarted(Event, frozen=True, kw_only=True, tag="tool_call_started"):
    """A call's fate is decided: `call` is as the hooks left it."""

    iteration: int
    call: ToolCall


class ToolCallFinished(Event, frozen=True, kw_only=True, tag="tool_call_finished"):
    """A call has its result, or will never have one."""

    iteration: int
    call_id: str
    name: str
    outcome: CallOutcome
    result: CallResult


class Status(Event, frozen=True, kw_only=True, tag="status"):
    """What a hook or tool reports of its progress."""

    iteration: int
    type: str
    data: Any = None
    call_id: str | None = None


class ApprovalRequested(Event, frozen=True, kw_only=True, tag="approval_requested"):
    """A call waits for an answer."""

    request: ApprovalRequest


class MessageAdded(Event, frozen=True, kw_only=True, tag="message_added"):
    """A message was committed to history."""

    message: Message


class ResponseReset(Event, frozen=True, kw_only=True, tag="response_reset"):
    """Forget what was shown of this step's answer since the last MessageAdded: more follows."""

    iteration: int


class StepFinished(Event, frozen=True, kw_only=True, tag="step_finished"):
    """The step's calls have their results."""

    iteration: int
    finish_reason: FinishReason | None = None
    usage: Usage | None = None


class ChatDone(Event, frozen=True, kw_only=True, tag="chat_done"):
    """The chat is done."""

    response: Response


class ChatAborted(Event, frozen=True, kw_only=True, tag="chat_aborted"):
    """The chat was aborted; `partial` holds the messages that were kept."""

    reason: str | None = None
    partial: tuple[Message, ...] = ()


class ChatFailed(Event, frozen=True, kw_only=True, tag="chat_failed"):
    """The chat failed; the exception itself is raised after this event."""

    error: ErrorInfo


ChatEvent: TypeAlias = (
    ChatStarted
    | StepStarted
    | TextDelta
    | ReasoningDelta
    | PartEnd
    | ToolCallDelta
    | ToolCallStarted
    | ToolCallFinished
    | Status
    | ApprovalRequested
    | MessageAdded
    | ResponseReset
    | StepFinished
    | ChatDone
    | ChatAborted
    | ChatFailed
)

_event_decoder: msgspec.json.Decoder[ChatEvent] = msgspec.json.Decoder(ChatEvent)


def read_event(data: bytes | str) -> ChatEvent:
    """An event from its JSON text; raises msgspec.ValidationError when it is none."""
    return _event_decoder.decode(data)
