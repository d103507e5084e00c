"""The closed union of a chat's events. A reader can `match` on it exhaustively.

Events are numbered in order (`seq`) within a root chat. `path` has the ids of the tool calls under
which a sub-agent's chat runs, and is empty for the root chat. The last event is ChatDone,
ChatAborted or ChatFailed; it closes everything that is still open.

Events that hold only texts and numbers are part of no cycle: the garbage collector skips them.
"""

from __future__ import annotations

from typing import Any, Literal, TypeAlias

from hookline._base.frozen import own
from hookline._base.json import Reader
from hookline._base.messages import (
    CallOutcome,
    Data,
    FinishReason,
    MediaPart,
    Message,
    Source,
    ToolCall,
    Usage,
    UserMessage,
)
from hookline._base.returns import ApprovalRequest, CallResult, ErrorInfo, Response, When


class Event(Data, frozen=True, kw_only=True, tag_field="event"):
    """The fields that every event has."""

    chat_id: str
    """The id of the chat. An event of a sub-agent has the id of the sub-agent's chat."""
    seq: int = 0
    """The sequence number of the event. A root chat and its sub-agents share one sequence, which
    starts at 1."""
    path: tuple[str, ...] = ()
    """For a sub-agent, the ids of the tool calls that lead to it; empty for the root chat."""


class ChatStarted(Event, frozen=True, kw_only=True, tag="chat_started"):
    """The chat began."""

    agent: str
    """The agent's name."""
    message: UserMessage | None = None
    """The user's message; None for a chat that is resumed or continues from its history."""
    conversation_id: str | None = None
    """The conversation's id; None if the chat has no conversation."""
    parent_chat_id: str | None = None
    """The id of the parent chat; None if this is not the chat of a sub-agent."""
    resumes: str | None = None
    """The id of the chat that this chat resumes; None if it resumes no chat."""


class StepStarted(Event, frozen=True, kw_only=True, gc=False, tag="step_started"):
    """A step began. A model call follows, unless a hook answers instead of the model."""

    iteration: int
    """The step, counted from 0."""


class TextDelta(Event, frozen=True, kw_only=True, gc=False, tag="text_delta"):
    """More text of the answer."""

    iteration: int
    """The step, counted from 0."""
    text: str
    """The text to append."""


class ReasoningDelta(Event, frozen=True, kw_only=True, gc=False, tag="reasoning_delta"):
    """More of the model's reasoning."""

    iteration: int
    """The step, counted from 0."""
    text: str
    """The reasoning to append."""


class PartEnd(Event, frozen=True, kw_only=True, gc=False, tag="part_end"):
    """The streamed text or reasoning is complete."""

    iteration: int
    """The step, counted from 0."""
    part: Literal["text", "reasoning"]
    """Whether the part is text or reasoning."""


class ToolCallDelta(Event, frozen=True, kw_only=True, gc=False, tag="tool_call_delta"):
    """A piece of a call's arguments, while the model writes them. Use it only for display."""

    iteration: int
    """The step, counted from 0."""
    index: int
    """The position of the call in the answer."""
    call_id: str
    """The call's id."""
    name: str
    """The tool's name."""
    arguments: str
    """A fragment of JSON text, which cannot be parsed by itself."""


class ToolCallStarted(Event, frozen=True, kw_only=True, tag="tool_call_started"):
    """The hooks of a call have accepted or refused it; `call` includes their changes."""

    iteration: int
    """The step, counted from 0."""
    call: ToolCall
    """The call that runs, including the changes that hooks made."""


class ToolCallFinished(Event, frozen=True, kw_only=True, tag="tool_call_finished"):
    """A call ended with a result or a failure."""

    iteration: int
    """The step, counted from 0."""
    call_id: str
    """The call's id."""
    name: str
    """The tool's name."""
    outcome: CallOutcome
    """How the call ended."""
    result: CallResult
    """A ToolResult or a ToolFailure."""


class Status(Event, frozen=True, kw_only=True, tag="status"):
    """A hook or a tool reported progress."""

    iteration: int
    """The step, counted from 0."""
    type: str
    """The kind of progress: a name that the hook or tool chose."""
    data: Any = None
    """JSON data."""
    call_id: str | None = None
    """The id of the tool call that reports the progress; None if a hook reports it."""

    def __post_init__(self) -> None:
        own(self, "data")


class ApprovalRequested(Event, frozen=True, kw_only=True, tag="approval_requested"):
    """A call waits for an answer."""

    request: ApprovalRequest
    """The question; an answer refers to its `id`."""


class MessageQueued(Event, frozen=True, kw_only=True, tag="message_queued"):
    """A message was sent into the running chat. A MessageAdded with its id follows if it is
    committed, or a MessageReturned if it is not."""

    message: UserMessage
    """The message as it was sent."""
    when: When
    """"next": committed before the next request; "idle": committed when the chat would end."""


class MessageReturned(Event, frozen=True, kw_only=True, tag="message_returned"):
    """A message that was sent into the running chat was not delivered; it is in no history."""

    message: UserMessage
    """The message as it was sent."""
    reason: str
    """Why it was not delivered: a hook has refused it, or the chat has ended."""


class MessageAdded(Event, frozen=True, kw_only=True, tag="message_added"):
    """A message was committed to history."""

    message: Message
    """The committed message."""


class SourceAdded(Event, frozen=True, kw_only=True, tag="source_added"):
    """A provider's own tool found a page or document that the answer is based on."""

    iteration: int
    """The step, counted from 0."""
    source: Source
    """The source, which becomes a part of the answer."""


class FileAdded(Event, frozen=True, kw_only=True, tag="file_added"):
    """The model, or its provider's own tool, made a picture or a file."""

    iteration: int
    """The step, counted from 0."""
    file: MediaPart
    """The complete picture or file, which becomes a part of the answer."""


class ResponseReset(Event, frozen=True, kw_only=True, tag="response_reset"):
    """Discard the part of this step's answer that was shown since the last MessageAdded."""

    iteration: int
    """The step, counted from 0."""


class StepFinished(Event, frozen=True, kw_only=True, gc=False, tag="step_finished"):
    """All calls of the step have results."""

    iteration: int
    """The step, counted from 0."""
    finish_reason: FinishReason | None = None
    """Why the model ended its answer."""
    usage: Usage | None = None
    """The tokens of the step's model call. If the step waited for an answer and was resumed, an
    earlier chat made the model call."""


class ChatDone(Event, frozen=True, kw_only=True, tag="chat_done"):
    """The chat is done."""

    response: Response
    """The response that `chat()` would have returned."""


class ChatAborted(Event, frozen=True, kw_only=True, tag="chat_aborted"):
    """The chat was aborted; `partial` holds the messages that were kept."""

    reason: str | None = None
    """The reason that was given to `abort()`."""
    partial: tuple[Message, ...] = ()
    """The messages of the chat up to the abort."""


class ChatFailed(Event, frozen=True, kw_only=True, tag="chat_failed"):
    """The chat failed; the exception itself is raised after this event."""

    error: ErrorInfo
    """The type and text of the exception."""


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
    | MessageQueued
    | MessageReturned
    | MessageAdded
    | SourceAdded
    | FileAdded
    | ResponseReset
    | StepFinished
    | ChatDone
    | ChatAborted
    | ChatFailed
)
"""Any event of a chat; a type checker can verify that a `match` is exhaustive."""

_event: Reader[ChatEvent] = Reader(ChatEvent)


def read_event(data: bytes | str) -> ChatEvent:
    """Read an event from JSON text; raises msgspec.ValidationError if the text is not an event."""
    return _event.decode(data)
