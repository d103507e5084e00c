"""Anthropic's messages: `{"system": ..., "messages": [{"role": ..., "content": ...}, ...]}`.

There, results of calls are part of a user message, before the user's own text.
"""

from __future__ import annotations

import copy
from collections.abc import Iterable, Mapping
from typing import Any, Final

from hookline import (
    AssistantMessage,
    File,
    Image,
    Message,
    Reasoning,
    Text,
    ToolCall,
    ToolMessage,
    UserMessage,
)
from hookline.formats._read import (
    Imported,
    blocks,
    call_of,
    check_fields,
    decoded,
    encoded,
    field,
    list_at,
    object_at,
    placed,
    reading,
    refuse,
    refuse_media,
    text_at,
    unknown_part,
)

_META: Final = "anthropic"  # the key of signatures in the meta of a Reasoning part
_MEDIA: Final = ("type", "source", "title", "cache_control", "citations")
_WENT_WELL: Final = ("ok", "answered")


def from_anthropic(body: Mapping[str, Any]) -> Imported:
    """Read a history: a dict with `messages` and optionally `system`, as in a request.

    Raises UsageError if the history is invalid; the text says where and why.
    """
    messages: list[Message] = []
    names: dict[str, str] = {}  # the tool name of each call id
    for index, message in enumerate(list_at(body, "messages", "the history")):
        where = f"message {index}"
        with reading(where):
            role = field(message, "role", str, where)
            parts = blocks(message.get("content"), where)
            if role == "assistant":
                answer = AssistantMessage(
                    parts=tuple([_model_part(part, at) for at, part in parts])
                )
                answer.to_json()  # raises for what is not JSON
                names.update({call.id: call.name for call in answer.tool_calls})
                if answer.parts:
                    messages.append(answer)
            elif role == "user":
                messages += _from_user(parts, names)
            else:
                raise refuse(where, f"there is no role {role!r}; use 'user' or 'assistant'")
    system = [field(part, "text", str, at) for at, part in blocks(body.get("system"), "system")]
    return Imported(messages=tuple(messages), system="\n\n".join(system) or None)


def _from_user(parts: list[tuple[str, dict[str, Any]]], names: dict[str, str]) -> list[Message]:
    results: list[Message] = []
    content: list[Text | Image | File] = []
    for at, part in parts:
        if part["type"] != "tool_result":
            content.append(_user_part(part, at))
            continue
        call_id = field(part, "tool_use_id", str, at)
        inside = [_user_part(inner, place) for place, inner in blocks(part.get("content"), at)]
        results.append(
            ToolMessage(
                call_id=call_id,
                name=names.get(call_id, "unknown"),
                text="".join([inner.text for inner in inside if isinstance(inner, Text)]),
                outcome="error" if part.get("is_error") else "ok",
                media=tuple([inner for inner in inside if not isinstance(inner, Text)]),
            )
        )
    return [*results, UserMessage(parts=tuple(content))] if content else results


def _user_part(part: dict[str, Any], where: str) -> Text | Image | File:
    kind = part["type"]
    if kind == "text":
        return Text(field(part, "text", str, where))
    if kind not in ("image", "document"):
        raise unknown_part(kind, where)
    check_fields(part, _MEDIA, where)
    source = object_at(part, "source", where)
    media_type = text_at(source, "media_type", where)
    data: bytes | None = None
    url: str | None = None
    if source.get("type") == "base64":
        data = decoded(field(source, "data", str, where), where)
    elif source.get("type") == "url":
        url = field(source, "url", str, where)
    else:
        raise refuse(
            where, f"sources of type {source.get('type')!r} are not supported; use base64 or url"
        )
    if kind == "image":
        return Image(media_type=media_type or "image/png", data=data, url=url)
    name = text_at(part, "title", where)
    return File(media_type=media_type or "application/pdf", name=name, data=data, url=url)


def _model_part(part: dict[str, Any], where: str) -> Any:
    kind = part["type"]
    if kind == "text":
        cited: Any = list_at(part, "citations", where) if part.get("citations") else None
        meta = {_META: {"citations": cited}} if cited else None
        return Text(field(part, "text", str, where), meta)
    if kind == "thinking":
        signature = text_at(part, "signature", where)
        meta = {_META: {"signature": signature}} if signature else None
        return Reasoning(field(part, "thinking", str, where), meta)
    if kind == "redacted_thinking":
        return Reasoning("", {_META: {"data": field(part, "data", str, where)}})
    if kind == "tool_use":
        id, name = field(part, "id", str, where), field(part, "name", str, where)
        return call_of(id, name, object_at(part, "input", where), where)
    raise unknown_part(kind, where)


def to_anthropic(messages: Iterable[Message], *, system: str | None = None) -> dict[str, Any]:
    """Write a history as `{"messages": [...]}`, with `system` if there is a system text.

    Reasoning without Anthropic's signature is left out, because Anthropic would reject it. Sources
    are left out, except the citations of a text. Raises UsageError for a picture or file that this
    format cannot express.
    """
    out: list[dict[str, Any]] = []
    for where, message in placed(messages):
        role = "assistant" if isinstance(message, AssistantMessage) else "user"
        if isinstance(message, UserMessage):
            content = [_block(part, where) for part in message.parts]
        elif isinstance(message, ToolMessage):
            content = [_result(message, where)]
        else:
            refuse_media(message.parts, where)
            content = _answer(message)
        if out and out[-1]["role"] == role:  # results, and user text after them
            out[-1]["content"] += content
        elif content:
            out.append({"role": role, "content": content})
    return {"system": system, "messages": out} if system else {"messages": out}


def _result(message: ToolMessage, where: str) -> dict[str, Any]:
    content = [Text(message.text), *message.media] if message.text else message.media
    result: dict[str, Any] = {
        "type": "tool_result",
        "tool_use_id": message.call_id,
        "content": [_block(part, where) for part in content],
    }
    if message.outcome not in _WENT_WELL:
        result["is_error"] = True
    return result


def _block(part: Text | Image | File, where: str) -> dict[str, Any]:
    if isinstance(part, Text):
        return {"type": "text", "text": part.text}
    if part.data is not None:
        source = {"type": "base64", "media_type": part.media_type, "data": encoded(part.data)}
    elif part.url is not None:
        source = {"type": "url", "url": part.url}
    else:
        raise refuse(
            where, f"this {type(part).__name__} has neither data nor url; set one of the two"
        )
    if isinstance(part, Image):
        return {"type": "image", "source": source}
    out: dict[str, Any] = {"type": "document", "source": source}
    return {**out, "title": part.name} if part.name else out


def _answer(message: AssistantMessage) -> list[dict[str, Any]]:
    out: list[dict[str, Any]] = []
    for part in message.parts:
        own: dict[str, Any] = (part.meta or {}).get(_META) or {}
        if isinstance(part, Text):
            text: dict[str, Any] = {"type": "text", "text": part.text}
            cited: Any = own.get("citations")
            out.append({**text, "citations": copy.deepcopy(cited)} if cited else text)
        elif isinstance(part, Reasoning):
            if own.get("data"):
                out.append({"type": "redacted_thinking", "data": own["data"]})
            elif own.get("signature"):
                signed = {"thinking": part.text, "signature": own["signature"]}
                out.append({"type": "thinking", **signed})
        elif isinstance(part, ToolCall):
            call = {"id": part.id, "name": part.name, "input": dict(part.arguments)}
            out.append({"type": "tool_use", **call})
    return out
