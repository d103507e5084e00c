"""What is compared of a request: everything that the model reads, as JSON data.

Left out are the ids of messages, and what is never sent: usage, times, and who decided about a
call. Calls are numbered, because a call may get its id from the chat's.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import msgspec

from hookline import Message, ModelRequest, ToolCall, ToolMessage
from hookline.models import model_name

FIELDS: Final = ("model", "system", "tools", "settings", "output", "messages")
"""The fields of a request's shape, in the order in which differences are shown."""


def data_of(value: Any) -> Any:
    """The value as JSON data."""
    return msgspec.json.decode(msgspec.json.encode(value))


def fields_of(value: Any) -> dict[str, Any]:
    """The fields of an object as JSON data, without those that are None."""
    return {name: item for name, item in data_of(value).items() if item is not None}


def shape_of(request: ModelRequest) -> dict[str, Any]:
    """The whole request as JSON data."""
    output, settings = request.output, data_of(request.settings)
    return {
        "model": model_name(request.model),
        "system": request.system,
        "tools": [
            {
                "name": tool.name,
                "description": tool.description,
                "parameters": data_of(tool.parameters),
            }
            for tool in request.tools
        ],
        "settings": {name: value for name, value in settings.items() if value not in (None, [])},
        "output": None if output is None else data_of(output),
        "messages": _messages(request.messages),
    }


def _messages(messages: Sequence[Message]) -> list[dict[str, Any]]:
    numbers: dict[str, str] = {}
    shapes: list[dict[str, Any]] = []
    for message in messages:
        if isinstance(message, ToolMessage):
            call = numbers.get(message.call_id, message.call_id)
            shape = {"call": call, "tool": message.name, "outcome": message.outcome}
            media = {"media": data_of(message.media)} if message.media else {}
            shapes.append({"role": "tool", **shape, "text": message.text, **media})
            continue
        parts = [_part(part, numbers) for part in message.parts]
        shapes.append({"role": message.role, "parts": parts})
    return shapes


def _part(part: Any, numbers: dict[str, str]) -> dict[str, Any]:
    shape = fields_of(part)
    if isinstance(part, ToolCall):
        shape["id"] = numbers.setdefault(part.id, f"#{len(numbers)}")
    return shape


# ── a track keeps of each request what differs from the one before ──────────────────────────


def fold(before: dict[str, Any] | None, shape: dict[str, Any]) -> dict[str, Any]:
    """Return the fields that differ from the request before; of messages, those that follow."""
    if before is None:
        return shape
    old, new = before["messages"], shape["messages"]
    same = next(
        (i for i, (a, b) in enumerate(zip(old, new, strict=False)) if a != b),
        min(len(old), len(new)),
    )
    changes = {name: value for name, value in shape.items() if before[name] != value}
    return {**changes, "messages": {"same": same, "then": new[same:]}}


def unfold(before: dict[str, Any] | None, folded: dict[str, Any]) -> dict[str, Any]:
    """Return the whole request."""
    if before is None:
        return folded
    messages = folded["messages"]
    whole = [*before["messages"][: messages["same"]], *messages["then"]]
    return {**before, **folded, "messages": whole}
