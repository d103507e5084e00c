"""The closed union of what a chat publishes. A reader can `match` over it exhaustively.

Events are numbered in order (`seq`) per root chat; `path` holds the ids of the tool calls under
which a sub-agent's chat runs (empty for the chat itself). One of ChatDone, ChatAborted and
ChatFailed comes last and closes whatever is open.
"""

from __future__ import annotations

from typing import Any, Literal, TypeAlias

from hookline._base.frozen import own
from hookline._base.json import Reader
from hookline._base.messages import (
    CallOutcome,
    Data,
    FinishReason,
    Message,
    ToolCall,
    Usage,
    UserMessage,
)
from hookline._base.returns import ApprovalRequest, CallResult, ErrorInfo, Response


class Event(Data, frozen=True, kw_only=True, tag_field="event"):
    """What every event has."""

    chat_id: str
    """The chat that it belongs to, a sub-agent's own."""
    seq: int = 0
    """Counts from 1 within a root chat and its sub-agents."""
    path: tuple[str, ...] = ()
    """The calls under which a sub-agent runs; empty for the chat itself."""


class ChatStarted(Event, frozen=True, kw_only=True, tag="chat_started"):
    """The chat began. `message` is None where it goes on with an answered approval."""

    agent: str
    """The agent's name."""
    message: UserMessage | None = None
    """What the user said; None for a chat that is resumed or goes on from its history."""
    conversation_id: str | None = None
    """None where nothing is kept."""
    parent_chat_id: str | None = None
    """The chat that asked, for a sub-agent."""
    resumes: str | None = None
    """The chat whose waiting calls this one goes on with."""


class StepStarted(Event, frozen=True, kw_only=True, tag="step_started"):
    """A model call is about to be made, or was answered by a hook."""

    iteration: int
    """The step, counted from 0."""


class TextDelta(Event, frozen=True, kw_only=True, tag="text_delta"):
    """More text."""

    iteration: int
    """The step, counted from 0."""
    text: str
    """What is to be added to the text shown."""


class ReasoningDelta(Event, frozen=True, kw_only=True, tag="reasoning_delta"):
    """More reasoning."""

    iteration: int
    """The step, counted from 0."""
    text: str
    """What is to be added to the reasoning shown."""


class PartEnd(Event, frozen=True, kw_only=True, tag="part_end"):
    """The text or reasoning that was being streamed is complete."""

    iteration: int
    """The step, counted from 0."""
    part: Literal["text", "reasoning"]
    """Which of the two it was."""


class ToolCallDelta(Event, frozen=True, kw_only=True, tag="tool_call_delta"):
    """More of a call's arguments, as the model writes them; for display only."""

    iteration: int
    """The step, counted from 0."""
    index: int
    """The call's place in the answer."""
    call_id: str
    """The call's id."""
    name: str
    """The tool's name."""
    arguments: str
    """A piece of JSON text, not JSON by itself."""


class ToolCallStarted(Event, frozen=True, kw_only=True, tag="tool_call_started"):
    """A call's fate is decided: `call` is as the hooks left it."""

    iteration: int
    """The step, counted from 0."""
    call: ToolCall
    """The call as it runs, after its hooks."""


class ToolCallFinished(Event, frozen=True, kw_only=True, tag="tool_call_finished"):
    """A call has its result, or will never have one."""

    iteration: int
    """The step, counted from 0."""
    call_id: str
    """The call's id."""
    name: str
    """The tool's name."""
    outcome: CallOutcome
    """How the call went."""
    result: CallResult
    """A ToolResult or a ToolFailure."""


class Status(Event, frozen=True, kw_only=True, tag="status"):
    """What a hook or tool reports of its progress."""

    iteration: int
    """The step, counted from 0."""
    type: str
    """What is reported, in the reporter's words."""
    data: Any = None
    """JSON data."""
    call_id: str | None = None
    """The call whose tool reports, None for a hook."""

    def __post_init__(self) -> None:
        own(self, "data")


class ApprovalRequested(Event, frozen=True, kw_only=True, tag="approval_requested"):
    """A call waits for an answer."""

    request: ApprovalRequest
    """What is asked; its `id` is what an answer names."""


class MessageAdded(Event, frozen=True, kw_only=True, tag="message_added"):
    """A message was committed to history."""

    message: Message
    """As it stands in history."""


class ResponseReset(Event, frozen=True, kw_only=True, tag="response_reset"):
    """Forget what was shown of this step's answer since the last MessageAdded: more follows."""

    iteration: int
    """The step, counted from 0."""


class StepFinished(Event, frozen=True, kw_only=True, tag="step_finished"):
    """The step's calls have their results."""

    iteration: int
    """The step, counted from 0."""
    finish_reason: FinishReason | None = None
    """Why the model ended."""
    usage: Usage | None = None
    """What this step cost."""


class ChatDone(Event, frozen=True, kw_only=True, tag="chat_done"):
    """The chat is done."""

    response: Response
    """What `chat()` would have returned."""


class ChatAborted(Event, frozen=True, kw_only=True, tag="chat_aborted"):
    """The chat was aborted; `partial` holds the messages that were kept."""

    reason: str | None = None
    """What was given to `abort()`."""
    partial: tuple[Message, ...] = ()
    """The messages of the chat, as far as it came."""


class ChatFailed(Event, frozen=True, kw_only=True, tag="chat_failed"):
    """The chat failed; the exception itself is raised after this event."""

    error: ErrorInfo
    """Its type and text."""


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
"""Any event of a chat: a `match` over it can be checked to be exhaustive."""

_event: Reader[ChatEvent] = Reader(ChatEvent)


def read_event(data: bytes | str) -> ChatEvent:
    """An event from its JSON text; raises msgspec.ValidationError when it is none."""
    return _event.decode(data)
