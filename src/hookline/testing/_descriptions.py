"""Describe a message, a hook's context or an event in one readable line. Nothing here raises."""

from __future__ import annotations

from typing import Any, Final, assert_never

from hookline import (
    ApprovalRequest,
    Approve,
    AssistantMessage,
    Deny,
    File,
    Image,
    Message,
    ModelResponse,
    Source,
    ToolCall,
    ToolFailure,
    ToolMessage,
    ToolResult,
    UserMessage,
)
from hookline.events import (
    ApprovalRequested,
    ChatAborted,
    ChatDone,
    ChatEvent,
    ChatFailed,
    ChatStarted,
    FileAdded,
    MessageAdded,
    MessageQueued,
    MessageReturned,
    PartEnd,
    ReasoningDelta,
    ResponseReset,
    SourceAdded,
    Status,
    StepFinished,
    StepStarted,
    TextDelta,
    ToolCallDelta,
    ToolCallFinished,
    ToolCallStarted,
)
from hookline.models import (
    Delta,
    FileChunk,
    PartEndChunk,
    ReasoningChunk,
    SourceChunk,
    TextChunk,
)
from hookline.points import TABLE

WIDTH: Final = 80


# ── words ───────────────────────────────────────────────────────────────────────────────────


def words(*parts: object) -> str:
    """Join the words that are not empty, with a space between them."""
    return " ".join([str(word) for word in parts if word is not None and word != ""])


def cut(text: str) -> str:
    """Shorten a text that is too long for a line."""
    return text if len(text) <= WIDTH else f"{text[: WIDTH - 1]}…"


def show(value: object) -> str:
    """Return the value's repr, shortened; a value whose repr raises is described by its type."""
    if isinstance(value, str):
        return repr(cut(value))
    try:
        return cut(repr(value))
    except Exception as exc:
        return f"<{type(value).__name__}, whose repr raises {type(exc).__name__}>"


def plain(text: str) -> str:
    """Return the text in one line, without quotes."""
    return show(text)[1:-1]


def error_line(exc: BaseException) -> str:
    """`ValueError: why`."""
    try:
        text = str(exc)
    except Exception:
        text = ""
    return f"{type(exc).__name__}: {plain(text)}" if text else type(exc).__name__


def call_line(call: ToolCall) -> str:
    """`weather {'city': 'Paris'}`, or the raw text if it is not a JSON object."""
    return f"{call.name} {show(call.arguments if call.raw is None else call.raw)}"


def result_line(result: ToolResult | ToolFailure) -> str:
    """`'sunny'`, or `ValueError: why`."""
    if isinstance(result, ToolResult):
        return show(result.value)
    return f"{result.type}: {plain(result.message)}"


def source_line(source: Source) -> str:
    """`source https://example.org 'Example'`."""
    where = source.url or source.name
    return words("source", where and plain(where), source.title and show(source.title))


def file_line(file: Image | File) -> str:
    """`file image/png, 42 bytes`."""
    name = file.name if isinstance(file, File) else None
    size = None if file.data is None else f"{len(file.data)} bytes"
    where = None if file.url is None else plain(file.url)
    about = [detail for detail in (name, size, where) if detail]
    return ", ".join([f"file {plain(file.media_type)}", *about])


def message_line(message: Message) -> str:
    """`user 'hi'`, `assistant 'Let me see.' weather {'city': 'Paris'}`, `tool weather 'sunny'`."""
    if isinstance(message, ToolMessage):
        outcome = None if message.outcome == "ok" else message.outcome
        return words("tool", message.name, outcome, show(message.text))
    if isinstance(message, AssistantMessage):
        text = show(message.text) if message.text else None
        partial = "(partial)" if message.partial else None
        attachments = (*map(source_line, message.sources), *map(file_line, message.files))
        return words("assistant", partial, text, *map(call_line, message.tool_calls), *attachments)
    return words("user", show(message.text))


def _user_text(message: UserMessage | None) -> str | None:
    return None if message is None else plain(message.text)


def _response(response: ModelResponse) -> str:
    text = f"text={show(response.text)}" if response.text else None
    thought = f"reasoning={show(response.reasoning)}" if response.reasoning else None
    attachments = (*map(source_line, response.sources), *map(file_line, response.files))
    return words(thought, text, *map(call_line, response.tool_calls), *attachments)


def _delta(delta: Delta) -> str:
    if isinstance(delta, TextChunk):
        return f"text {show(delta.text)}"
    if isinstance(delta, ReasoningChunk):
        return f"reasoning {show(delta.text)}"
    if isinstance(delta, PartEndChunk):
        return f"end of {delta.part}"
    if isinstance(delta, SourceChunk):
        return source_line(delta.source)
    if isinstance(delta, FileChunk):
        return file_line(delta.file)
    return words("call", delta.index, delta.name, show(delta.arguments))


# ── hook contexts ───────────────────────────────────────────────────────────────────────────


def context_line(point: str, ctx: Any) -> str:
    """Describe a context by the point's name and the fields that its row in the table lists."""
    spec = TABLE.get(point)
    return (
        point if spec is None else words(point, *[_field(ctx, path) for path in spec.line.split()])
    )


def _field(ctx: Any, path: str) -> str | None:
    """The value at a path such as `message.text`, as text; with quotes if the path ends in !r."""
    names, quoted, _ = path.partition("!r")
    value = ctx
    for name in names.split("."):
        value = getattr(value, name, None)
    return show(value) if quoted else _describe(value, path)


def _describe(value: Any, path: str) -> str | None:
    match value:
        case None:
            return "asked" if path == "decision" else None
        case Approve():
            return "approved"
        case Deny():
            return "denied"
        case UserMessage() | AssistantMessage() | ToolMessage():
            return message_line(value)
        case ModelResponse():
            return _response(value)
        case ToolCall():
            return call_line(value)
        case ToolResult() | ToolFailure():
            return result_line(value)
        case BaseException():
            return error_line(value)
        case str():
            return plain(value)
        case int():
            return str(value)
        case _:
            return _delta(value)


# ── events ──────────────────────────────────────────────────────────────────────────────────


def event_line(event: ChatEvent) -> str:
    """Describe an event by its name and important fields: `ToolCallFinished weather ok 'sunny'`."""
    return words(type(event).__name__, _event(event))


def _attachment_line(event: SourceAdded | FileAdded) -> str:
    line = source_line(event.source) if isinstance(event, SourceAdded) else file_line(event.file)
    return f"{event.iteration} {line}"


def _message_event_line(event: MessageAdded | MessageQueued | MessageReturned) -> str:
    reason = event.reason if isinstance(event, MessageReturned) else None
    return words(message_line(event.message), reason)


def _event(event: ChatEvent) -> str | None:
    match event:
        case ChatStarted():
            return _user_text(event.message)
        case StepStarted() | StepFinished() | ResponseReset():
            return str(event.iteration)
        case TextDelta() | ReasoningDelta():
            return f"{event.iteration} {show(event.text)}"
        case PartEnd():
            return f"{event.iteration} {event.part}"
        case ToolCallDelta():
            return f"{event.iteration} {event.name} {show(event.arguments)}"
        case ToolCallStarted(call=call) | ApprovalRequested(request=ApprovalRequest(call=call)):
            return call_line(call)
        case ToolCallFinished():
            return f"{event.name} {event.outcome} {result_line(event.result)}"
        case Status():
            return f"{event.type} {show(event.data)}"
        case MessageAdded() | MessageQueued() | MessageReturned():
            return _message_event_line(event)
        case SourceAdded() | FileAdded():
            return _attachment_line(event)
        case ChatDone():
            return words(show(event.response.text), event.response.stop_reason)
        case ChatAborted():
            return event.reason
        case ChatFailed():
            return f"{event.error.type}: {plain(event.error.message)}"
        case _:
            assert_never(event)
