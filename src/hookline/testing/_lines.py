"""One readable line for a message, a hook's context, an event. Nothing here raises."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, assert_never

from hookline import (
    Approve,
    AssistantMessage,
    Message,
    ModelResponse,
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
    MessageAdded,
    PartEnd,
    ReasoningDelta,
    ResponseReset,
    Status,
    StepFinished,
    StepStarted,
    TextDelta,
    ToolCallDelta,
    ToolCallFinished,
    ToolCallStarted,
)
from hookline.models import Delta, PartEndChunk, ReasoningChunk, TextChunk

WIDTH: Final = 80


# ── words ───────────────────────────────────────────────────────────────────────────────────


def words(*each: object) -> str:
    """The words that there are, with a space between them."""
    return " ".join([str(word) for word in each if word is not None and word != ""])


def cut(text: str) -> str:
    """The text, cut where it is too long for a line."""
    return text if len(text) <= WIDTH else f"{text[: WIDTH - 1]}…"


def show(value: object) -> str:
    """The value's repr, cut; what cannot be shown is named by its type."""
    if isinstance(value, str):
        return repr(cut(value))
    try:
        return cut(repr(value))
    except Exception as exc:
        return f"<{type(value).__name__}, whose repr raises {type(exc).__name__}>"


def plain(text: str) -> str:
    """The text in one line, without quotes."""
    return show(text)[1:-1]


def error_line(exc: BaseException) -> str:
    """`ValueError: why`."""
    try:
        text = str(exc)
    except Exception:
        text = ""
    return f"{type(exc).__name__}: {plain(text)}" if text else type(exc).__name__


def call_line(call: ToolCall) -> str:
    """`weather {'city': 'Paris'}`, or the raw text where it is no JSON object."""
    return f"{call.name} {show(call.arguments if call.raw is None else call.raw)}"


def result_line(result: ToolResult | ToolFailure) -> str:
    """`'sunny'`, or `ValueError: why`."""
    if isinstance(result, ToolResult):
        return show(result.value)
    return f"{result.type}: {plain(result.message)}"


def message_line(message: Message) -> str:
    """`user 'hi'`, `assistant 'Let me see.' weather {'city': 'Paris'}`, `tool weather 'sunny'`."""
    if isinstance(message, ToolMessage):
        outcome = None if message.outcome == "ok" else message.outcome
        return words("tool", message.name, outcome, show(message.text))
    if isinstance(message, AssistantMessage):
        text = show(message.text) if message.text else None
        partial = "(partial)" if message.partial else None
        return words("assistant", partial, text, *map(call_line, message.tool_calls))
    return words("user", show(message.text))


def _said(message: UserMessage | None) -> str | None:
    return None if message is None else plain(message.text)


def _response(response: ModelResponse) -> str:
    text = f"text={show(response.text)}" if response.text else None
    thought = f"reasoning={show(response.reasoning)}" if response.reasoning else None
    return words(thought, text, *map(call_line, response.tool_calls))


def _delta(delta: Delta) -> str:
    if isinstance(delta, TextChunk):
        return f"text {show(delta.text)}"
    if isinstance(delta, ReasoningChunk):
        return f"reasoning {show(delta.text)}"
    if isinstance(delta, PartEndChunk):
        return f"end of {delta.part}"
    return words("call", delta.index, delta.name, show(delta.arguments))


def _decision(decision: object) -> str:
    if decision is None:
        return "asked"
    return "approved" if isinstance(decision, Approve) else "denied"


# ── hook contexts ───────────────────────────────────────────────────────────────────────────

_CONTEXTS: Final[dict[str, Callable[[Any], str | None]]] = {
    "onChatStart": lambda ctx: _said(ctx.message),
    "preChat": lambda ctx: _said(ctx.request.message),
    "preRequest": lambda ctx: str(ctx.iteration),
    "aroundRequest": lambda ctx: str(ctx.iteration),
    "onDelta": lambda ctx: f"{ctx.iteration} {_delta(ctx.delta)}",
    "onResponse": lambda ctx: words(ctx.iteration, _response(ctx.response)),
    "preMessage": lambda ctx: message_line(ctx.message),
    "onMessage": lambda ctx: message_line(ctx.message),
    "preToolCall": lambda ctx: call_line(ctx.call),
    "aroundToolCall": lambda ctx: ctx.call.name,
    "onToolCallResult": lambda ctx: f"{ctx.call.name} {result_line(ctx.result)}",
    "onToolCallError": lambda ctx: f"{ctx.call.name} {result_line(ctx.error)}",
    "onStep": lambda ctx: str(ctx.iteration),
    "preStop": lambda ctx: ctx.reason,
    "onChatDone": lambda ctx: words(show(ctx.response.text), ctx.response.stop_reason),
    "onChatAbort": lambda ctx: ctx.reason,
    "onChatError": lambda ctx: error_line(ctx.error),
    "onChatEnd": lambda ctx: ctx.outcome,
    "onStatus": lambda ctx: f"{ctx.type} {show(ctx.data)}",
    "onApproval": lambda ctx: f"{ctx.request.call.name} {_decision(ctx.decision)}",
    "preMessageUpdate": lambda ctx: message_line(ctx.message),
    "onMessageUpdate": lambda ctx: message_line(ctx.message),
    "onScopeRegister": lambda ctx: ctx.scope.label,
    "onScopeUnregister": lambda ctx: ctx.scope.label,
    "onHook": lambda ctx: f"{ctx.point} {ctx.hook} {ctx.outcome}",
}


def context_line(point: str, ctx: Any) -> str:
    """The point's name and what matters of its context; a point unknown here is only named."""
    tell = _CONTEXTS.get(point)
    return point if tell is None else words(point, tell(ctx))


# ── events ──────────────────────────────────────────────────────────────────────────────────


def event_line(event: ChatEvent) -> str:
    """The event's name and what matters of it: `ToolCallFinished weather ok 'sunny'`."""
    return words(type(event).__name__, _event(event))


def _event(event: ChatEvent) -> str | None:
    match event:
        case ChatStarted():
            return _said(event.message)
        case StepStarted() | StepFinished() | ResponseReset():
            return str(event.iteration)
        case TextDelta() | ReasoningDelta():
            return f"{event.iteration} {show(event.text)}"
        case PartEnd():
            return f"{event.iteration} {event.part}"
        case ToolCallDelta():
            return f"{event.iteration} {event.name} {show(event.arguments)}"
        case ToolCallStarted():
            return call_line(event.call)
        case ToolCallFinished():
            return f"{event.name} {event.outcome} {result_line(event.result)}"
        case Status():
            return f"{event.type} {show(event.data)}"
        case ApprovalRequested():
            return call_line(event.request.call)
        case MessageAdded():
            return message_line(event.message)
        case ChatDone():
            return words(show(event.response.text), event.response.stop_reason)
        case ChatAborted():
            return event.reason
        case ChatFailed():
            return f"{event.error.type}: {plain(event.error.message)}"
        case _:
            assert_never(event)
