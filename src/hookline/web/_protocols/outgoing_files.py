"""Encode sources and files for a browser, with only addresses that a browser may follow. Pure."""

from __future__ import annotations

from base64 import b64encode
from operator import is_
from typing import Any, TypeVar, cast

from hookline import File, Image, Message, Source, Text, ToolMessage, UserMessage

Part = TypeVar("Part", bound=Source | Image | File)


def attachment_part(id: str, part: Source | Image | File) -> dict[str, Any]:
    """Encode a source or a file; the same form is a chunk and a part of a message."""
    url = address_of(part)
    if isinstance(part, Source) and url:
        titled = {"title": part.title} if part.title else {}
        return {"type": "source-url", "sourceId": id, "url": url, **titled}
    if not isinstance(part, Source) and url:
        return {"type": "file", "mediaType": part.media_type, "url": url}
    # a document, or a file stored at the provider
    name = None if isinstance(part, Image) else part.name
    title = part.title if isinstance(part, Source) else None
    return {
        "type": "source-document",
        "sourceId": id,
        "mediaType": part.media_type or "application/octet-stream",
        "title": title or name or "file",
        **({"filename": name} if name else {}),
    }


def ui_message(message: UserMessage) -> dict[str, Any]:
    """Encode a user's message as a UI message."""
    parts = [_user_part(part) for part in message.parts]
    return {"id": message.id, "role": "user", "parts": parts}


def _user_part(part: Text | Image | File) -> dict[str, Any]:
    if isinstance(part, Text):
        return {"type": "text", "text": part.text}
    url = part.url
    if part.data is not None:
        url = f"data:{part.media_type};base64,{b64encode(part.data).decode()}"
    out = {"type": "file", "mediaType": part.media_type, "url": url or ""}
    if isinstance(part, File) and part.name:
        out["filename"] = part.name
    return out


def address_of(part: Source | Image | File) -> str | None:
    """Return an address for a browser: a web address, or a data: address with the bytes."""
    if not isinstance(part, Source) and part.data is not None:
        return f"data:{part.media_type};base64,{b64encode(part.data).decode()}"
    return safe_part(part).url


def safe_part(part: Part) -> Part:
    """Return the part without an address that a page must not follow, such as `javascript:`."""
    schemes = ("https://", "http://") if isinstance(part, Source) else ("https://", "data:")
    if part.url is None or part.url.startswith(schemes):
        return part
    return cast("Part", part.replace(url=None))


def safe_message(message: Message) -> Message:
    """Return the message without addresses that a page must not follow."""
    if isinstance(message, ToolMessage):
        media = _safe_parts(message.media)
        return message if media is message.media else message.replace(media=media)
    parts: Any = _safe_parts(message.parts)
    return message if parts is message.parts else message.replace(parts=parts)


def _safe_parts(parts: tuple[Any, ...]) -> tuple[Any, ...]:
    """Return the same tuple if nothing changes, which is the rule."""
    safe = [safe_part(part) if isinstance(part, (Source, Image, File)) else part for part in parts]
    return parts if all(map(is_, safe, parts)) else tuple(safe)
