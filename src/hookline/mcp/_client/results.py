"""Convert the results, prompts and resources of a server to hookline's own values. Pure.

Structured data is preferred to text. Images, audio and files are added for the model. Data that is
too large, or is not valid base64, is replaced by a note.
"""

from __future__ import annotations

from base64 import b64decode
from typing import Any, Final, TypeAlias

from hookline import File, Image, Text, ToolFailure, ToolResult
from hookline.mcp._errors import short

Part: TypeAlias = Text | Image | File
MAX_MEDIA: Final = 8 * 1024 * 1024  # most bytes of images and files in one result


def result_of(answer: Any) -> ToolResult | ToolFailure:
    """Convert the result of a call; a server's error is a failure of type MCPToolError."""
    texts: list[str] = []
    media: list[Image | File] = []
    room = MAX_MEDIA
    for block in answer.content:
        part = part_of(block, room)
        if isinstance(part, Text):
            texts.append(part.text)
        else:
            room -= len(part.data or b"")
            media.append(part)
    text = "\n".join(texts)
    if answer.is_error:
        return ToolFailure(short(text) or "the server did not give a reason", type="MCPToolError")
    value = answer.structured_content
    return ToolResult(text if value is None else value, media=tuple(media))


def part_of(block: Any, room: int = MAX_MEDIA) -> Part:
    """Convert one block of content: text, an image, a file, or a link as text."""
    match block.type:
        case "text":
            return Text(block.text)
        case "image" | "audio":
            return _media(block.data, block.mime_type, None, room)
        case "resource_link":
            about = f": {block.description}" if block.description else ""
            return Text(f"[{block.title or block.name}]({block.uri}){about}")
        case "resource":
            return contents_of(block.resource, room)
        case other:
            return Text(f"[content of an unknown type {str(other)[:40]!r}]")


def contents_of(resource: Any, room: int = MAX_MEDIA) -> Part:
    """Convert the contents of a resource, which are text or bytes."""
    text = getattr(resource, "text", None)
    if text is not None:
        return Text(text)
    return _media(resource.blob, resource.mime_type, str(resource.uri), room)


def _media(data: str, media_type: str | None, name: str | None, room: int) -> Part:
    kind = media_type or "application/octet-stream"
    if len(data) * 3 // 4 > room:
        return Text(f"[{kind} of {len(data) * 3 // 4} bytes was left out: it is too large]")
    try:
        raw = b64decode(data, validate=True)
    except ValueError:
        return Text(f"[{kind} was left out: it is not base64]")
    if kind.startswith("image/"):
        return Image(media_type=kind, data=raw)
    return File(media_type=kind, name=name, data=raw)
