"""What a call comes to: JSON data, bounded in size, and the text that the model reads. Pure."""

from __future__ import annotations

from hookline._base.json import NotJson, clean_text, json_text, to_json_data
from hookline._base.messages import MediaPart, ToolMessage
from hookline._base.returns import CallResult, ToolFailure, ToolResult
from hookline._chat.call import Call

_SMALL = frozenset([type(None), bool, int, float])
_PLAIN = frozenset([str, dict, list, tuple]) | _SMALL


def outcome_of(value: object) -> CallResult:
    """What a tool's function returned, as a result."""
    if value.__class__ not in _PLAIN:  # such a value is asked what it is, which is dear
        if isinstance(value, ToolFailure):
            return worded(value)
        if isinstance(value, ToolResult):
            return as_data(value)
    try:
        return ToolResult(to_json_data(value))
    except NotJson as exc:
        return _no_json(exc)


def as_data(result: ToolResult) -> CallResult:
    """The result with its value as JSON data; what cannot be is a tool error."""
    value = result.value
    try:
        data = to_json_data(value)
    except NotJson as exc:
        return _no_json(exc)
    return result if data is value else result.replace(value=data)


def _no_json(exc: NotJson) -> ToolFailure:
    return ToolFailure(f"the tool's result is not JSON: {exc}", type="NotJson")


def worded(error: ToolFailure) -> ToolFailure:
    """The error with a text, where somebody gave it something else, such as an exception."""
    message, kind = error.message, error.type
    if isinstance(message, str) and isinstance(kind, str):  # pyright: ignore
        return error
    if isinstance(message, BaseException):
        return ToolFailure.of(message)
    return ToolFailure(f"a {type(message).__name__}", type=str(kind))


def bounded(result: CallResult | None, limit: int) -> CallResult:
    """The result, cut to so many bytes of text and marked where it is longer."""
    assert result is not None
    if not isinstance(result, ToolResult):
        cut = _cut(result.message, limit)
        return result if cut is result.message else result.replace(message=cut)
    value = result.value
    if value.__class__ in _SMALL:
        return result
    text = value if isinstance(value, str) else json_text(value)
    cut = _cut(text, limit)
    return result if cut is text else result.replace(value=cut, truncated=True)


def _cut(text: str, limit: int) -> str:
    if len(text) * 4 <= limit:
        return text
    data = text.encode("utf-8", "replace")
    if len(data) <= limit:
        return text
    shown = data[:limit].decode("utf-8", "ignore")
    return f"{shown}\n[truncated: the first {limit} of {len(data)} bytes are shown]"


def message_for(call: Call, id: str) -> ToolMessage:
    """The message that tells the model what the call came to."""
    result = call.result
    assert result is not None
    media: tuple[MediaPart, ...] = ()
    if isinstance(result, ToolResult):
        value, media = result.value, result.media
        text = value if isinstance(value, str) else json_text(value)
    else:
        error = {"type": clean_text(result.type), "message": clean_text(result.message)}
        text = json_text({"error": error})
    return ToolMessage(
        id=id, call_id=call.id, name=call.call.name, text=text, outcome=call.outcome, media=media
    )
