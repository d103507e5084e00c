"""OpenAI's chat completions: `[{"role": ..., "content": ...}, ...]`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

import msgspec

from hookline import (
    AssistantMessage,
    File,
    Image,
    Message,
    Text,
    ToolMessage,
    UserMessage,
)
from hookline.formats._read import (
    Imported,
    blocks,
    call_of,
    check_fields,
    field,
    from_url,
    items,
    list_at,
    object_at,
    placed,
    reading,
    refuse,
    refuse_media,
    text_at,
    to_url,
    unknown_part,
)

_SYSTEM: Final = ("system", "developer")
_FIELDS: Final = {
    "system": ("role", "content"),
    "developer": ("role", "content"),
    "user": ("role", "content"),
    "assistant": ("role", "content", "refusal", "tool_calls"),
    "tool": ("role", "content", "tool_call_id", "name"),
}


def from_openai(messages: Iterable[Mapping[str, Any]]) -> Imported:
    """Read a history. Raises UsageError if the history is invalid; the text says where and why."""
    history: list[Message] = []
    system: list[str] = []
    names: dict[str, str] = {}  # the tool name of each call id
    for index, message in enumerate(items(messages)):
        where = f"message {index}"
        with reading(where):
            role = field(message, "role", str, where)
            check_fields(message, _FIELDS.get(role, tuple(message)), where)
            if role in _SYSTEM:
                if history:
                    raise refuse(where, f"a {role} message must come before all other messages")
                system.append(_text(message.get("content"), where))
            elif role == "user":
                parts = [_user_part(part, at) for at, part in blocks(message.get("content"), where)]
                history.append(UserMessage(parts=tuple(parts)))
            elif role == "assistant":
                answer = _assistant(message, where)
                answer.to_json()  # raises for what is not JSON
                names.update({call.id: call.name for call in answer.tool_calls})
                if answer.parts:
                    history.append(answer)
            elif role == "tool":
                call_id = field(message, "tool_call_id", str, where)
                text = _text(message.get("content"), where)
                name = names.get(call_id, str(message.get("name") or "unknown"))
                history.append(ToolMessage(call_id=call_id, name=name, text=text))
            else:
                raise refuse(
                    where, f"there is no role {role!r}; use system, user, assistant or tool"
                )
    return Imported(messages=tuple(history), system="\n\n".join(system) or None)


def _text(content: Any, where: str) -> str:
    texts: list[str] = []
    for at, part in blocks(content, where):
        if part["type"] not in ("text", "refusal"):
            raise refuse(at, f"this part must be of type 'text', not {part['type']!r}")
        texts.append(field(part, part["type"], str, at))
    return "".join(texts)


def _user_part(part: dict[str, Any], where: str) -> Text | Image | File:
    kind = part["type"]
    if kind == "text":
        return Text(field(part, "text", str, where))
    if kind == "image_url":
        source = object_at(part, "image_url", where)
        media_type, data, url = from_url(field(source, "url", str, where), where)
        return Image(media_type=media_type or "image/png", data=data, url=url)
    if kind == "file" and "file_data" in object_at(part, "file", where):
        source = part["file"]
        media_type, data, url = from_url(field(source, "file_data", str, where), where)
        name = text_at(source, "filename", where)
        return File(media_type=media_type or "application/pdf", name=name, data=data, url=url)
    raise unknown_part(kind, where)


def _assistant(message: Mapping[str, Any], where: str) -> AssistantMessage:
    texts = [_text(message.get(name), where) for name in ("content", "refusal")]
    parts: list[Any] = [Text(text) for text in texts if text.strip()]
    calls = list_at(message, "tool_calls", where) if message.get("tool_calls") else []
    for index, call in enumerate(calls):
        at = f"{where}, call {index}"
        function = object_at(call, "function", at)
        name = field(function, "name", str, at)
        parts.append(call_of(field(call, "id", str, at), name, function.get("arguments"), at))
    return AssistantMessage(parts=tuple(parts))


def to_openai(messages: Iterable[Message], *, system: str | None = None) -> list[dict[str, Any]]:
    """Write a history. Reasoning and sources are left out, since this format cannot express them.

    Raises UsageError for a picture or file that this format cannot express.
    """
    out: list[dict[str, Any]] = [{"role": "system", "content": system}] if system else []
    for where, message in placed(messages):
        if isinstance(message, UserMessage):
            out.append({"role": "user", "content": _content(message.parts, where)})
        elif isinstance(message, ToolMessage):
            if message.media:
                raise refuse(
                    where,
                    f"the result of {message.call_id!r} must not have images or files "
                    "in this format",
                )
            out.append({"role": "tool", "tool_call_id": message.call_id, "content": message.text})
        else:
            refuse_media(message.parts, where)
            out.append(_write_answer(message))
    return out


def _content(parts: Iterable[Text | Image | File], where: str) -> Any:
    out: list[dict[str, Any]] = []
    for part in parts:
        if isinstance(part, Text):
            out.append({"type": "text", "text": part.text})
        elif isinstance(part, Image):
            out.append({"type": "image_url", "image_url": {"url": to_url(part, where)}})
        else:
            file = {"file_data": to_url(part, where)}
            out.append({"type": "file", "file": {**file, "filename": part.name or "file"}})
    if len(out) == 1 and out[0]["type"] == "text":
        return out[0]["text"]
    return out


def _write_answer(message: AssistantMessage) -> dict[str, Any]:
    out: dict[str, Any] = {"role": "assistant", "content": message.text or None}
    calls = [
        {
            "id": call.id,
            "type": "function",
            "function": {
                "name": call.name,
                "arguments": msgspec.json.encode(call.arguments).decode(),
            },
        }
        for call in message.tool_calls
    ]
    if calls:
        out["tool_calls"] = calls
    elif not message.text:
        out["content"] = ""  # only reasoning, which this format cannot express
    return out
