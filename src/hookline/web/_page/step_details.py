"""The request of a step and the changes of a hook, shortened for a person to read. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import msgspec

from hookline import ModelRequest, ModelResponse
from hookline.models import model_name
from hookline.points import OnHook
from hookline.web._http.sse import json_text, plain
from hookline.web._runs.backlog import FieldChange

CUT: Final = 2000  # most characters of a text
MESSAGES: Final = 30  # most messages of a request: the last ones
TOOLS: Final = 100  # most tools of a request


class StepDetail(msgspec.Struct, frozen=True, kw_only=True):
    """A model call: its request, its response, and its duration."""

    iteration: int
    """The number of the step, from 0."""
    chat: str = ""
    """The chat of a sub-agent; empty for the chat of the run itself."""
    model: str
    """The model that answered, or the requested model if there is no answer."""
    system: str | None
    """The system text."""
    messages: list[tuple[str, str]]
    """Role and text of the last messages."""
    left_out: int
    """The number of earlier messages."""
    tools: list[tuple[str, str]]
    """Name and description of each tool."""
    settings: dict[str, Any]
    """The settings that are set."""
    answer: str = ""
    """The text of the response, with its calls."""
    finish_reason: str = ""
    """The finish reason of the model."""
    usage: dict[str, Any] | None = None
    """The tokens used."""
    first: float | None = None
    """The time to the first token, in milliseconds."""
    took: float | None = None
    """The time to the complete response, in milliseconds."""
    cost: float | None = None
    """The cost according to `Page(price=…)`."""
    tries: int = 1
    """The number of model requests in this step."""


def cut(text: str, most: int = CUT) -> str:
    """Return the text, or its beginning with the number of missing characters."""
    return text if len(text) <= most else f"{text[:most]}… ({len(text) - most} characters more)"


def as_text(value: Any) -> str:
    """Convert a value to text."""
    if value is None:
        return ""
    if isinstance(value, str):
        return cut(value)
    if isinstance(value, (tuple, list)):
        return cut("\n".join(_as_line(item) for item in value[:TOOLS]))  # pyright: ignore[reportUnknownVariableType]
    return cut(_as_line(value))


def _as_line(value: Any) -> str:
    if isinstance(value, str):
        return value
    for name in ("name", "text"):  # a tool, a message
        text = getattr(value, name, None)
        if isinstance(text, str) and text and not isinstance(value, type):
            role = getattr(value, "role", "")
            return f"{role}: {text}" if isinstance(role, str) and role else text
    try:
        return json_text(plain(value))
    except (TypeError, ValueError):
        return type(value).__name__


def describe_request(
    iteration: int, request: ModelRequest, *, chat: str = "", tries: int = 1
) -> StepDetail:
    """Describe the request of a step."""
    last = list(request.messages[-MESSAGES:])
    return StepDetail(
        iteration=iteration,
        chat=chat,
        model=model_name(request.model),
        system=None if request.system is None else cut(request.system),
        messages=[(message.role, cut(_message_text(message))) for message in last],
        left_out=len(request.messages) - len(last),
        tools=[(tool.name, cut(tool.description or "")) for tool in request.tools[:TOOLS]],
        settings=_settings_of(request.settings),
        tries=tries,
    )


def add_answer(step: StepDetail, response: ModelResponse, cost: float | None) -> StepDetail:
    """Add the response to a step."""
    timing = response.timing
    return msgspec.structs.replace(
        step,
        model=response.model or step.model,
        answer=cut(_message_text(response)),
        finish_reason=response.finish_reason,
        usage=None if response.usage is None else plain(response.usage),
        first=None if timing is None else round(timing.first_chunk * 1000, 1),
        took=None if timing is None else round(timing.duration * 1000, 1),
        cost=cost,
    )


def _message_text(message: Any) -> str:
    """Return the text of a message, with its calls and files."""
    parts: Sequence[Any] | None = getattr(message, "parts", None)
    if parts is None:
        return str(getattr(message, "text", ""))
    texts: list[str] = []
    for part in parts:
        if isinstance(getattr(part, "text", None), str):
            texts.append(part.text)
        elif hasattr(part, "arguments"):
            texts.append(f"→ {part.name}({json_text(plain(part.arguments))})")
        else:
            texts.append(f"[{getattr(part, 'media_type', type(part).__name__)}]")
    return "\n".join(texts)


def _settings_of(settings: Any) -> dict[str, Any]:
    """Return the settings that are set."""
    fields = {name: getattr(settings, name) for name in settings.__struct_fields__}
    return {
        name: as_text(setting)
        for name, setting in fields.items()
        if setting is not None and setting != ()
    }


def changes(ctx: OnHook[Any]) -> list[FieldChange]:
    """Return the fields of the payload that a hook changed."""
    context, returned = ctx.context, ctx.returned
    if ctx.passed is not None:
        return _between(_like(context, ctx.passed), ctx.passed)
    if returned is None or ctx.outcome == "ok":
        return []
    if ctx.outcome == "changed":
        if isinstance(returned, (tuple, list)):  # deltas
            before = getattr(context, "delta", None)
            return [FieldChange(name="delta", before=as_text(before), after=as_text(returned))]
        return _between(_like(context, returned), returned)
    return [FieldChange(name=type(returned).__name__, before="", after=as_text(returned))]


def _like(context: Any, value: Any) -> Any:
    """Return the field of a context that has the type of a value."""
    names = getattr(context, "__struct_fields__", ())
    fields = (getattr(context, name) for name in names)
    return next((field for field in fields if type(field) is type(value)), None)


def _between(before: Any, after: Any) -> list[FieldChange]:
    if before is None or not isinstance(after, msgspec.Struct):
        name = type(after).__name__
        return [FieldChange(name=name, before=as_text(before), after=as_text(after))]
    result: list[FieldChange] = []
    for name in after.__struct_fields__:
        was, now = getattr(before, name), getattr(after, name)
        if was is now or was == now:
            continue
        if isinstance(was, msgspec.Struct) and type(was) is type(now):
            result += [
                msgspec.structs.replace(change, name=f"{name}.{change.name}")
                for change in _between(was, now)
            ]
        else:
            result.append(FieldChange(name=name, before=as_text(was), after=as_text(now)))
    return result
