"""Encode the sources and files of an answer for a browser. Pure."""

from __future__ import annotations

from base64 import b64encode
from typing import Any

from hookline import File, Image, Source


def brought(id: str, part: Source | Image | File) -> dict[str, Any]:
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


def address_of(part: Source | Image | File) -> str | None:
    """Return an address for a browser: a web address, or a data: address with the bytes."""
    if not isinstance(part, Source) and part.data is not None:
        return f"data:{part.media_type};base64,{b64encode(part.data).decode()}"
    return part.url if part.url and part.url.startswith(("https://", "http://")) else None
