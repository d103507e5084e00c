"""What a client may say in a message: text, calls, results, files and sources, and nothing else.

The readers of all protocols end here, so a message of a client is the same in each of them. It has
no `meta`: providers get their own data back unchanged, so a client could write an item of the
provider's API there. A file is part of the message, or at an `https:` address.
"""

from __future__ import annotations

import re
from base64 import b64decode
from binascii import Error as Base64Error
from typing import Any, Final, TypeAlias

from hookline import (
    AssistantMessage,
    File,
    Image,
    Message,
    Reasoning,
    Source,
    Text,
    ToolCall,
    ToolMessage,
    UserMessage,
)
from hookline.web._http.request_reply import Refused
from hookline.web._protocols.incoming import text_of

Part: TypeAlias = Text | Reasoning | ToolCall | Source | Image | File

_MEDIA_TYPE: Final = re.compile(r"[\w!#$&^.+-]{1,64}/[\w!#$&^.+-]{1,64}", re.ASCII)
_BEGINNINGS: Final[dict[str, tuple[bytes, ...]]] = {
    "image/png": (b"\x89PNG",),
    "image/jpeg": (b"\xff\xd8\xff",),
    "image/gif": (b"GIF8",),
    "image/webp": (b"RIFF",),
}
"""The first bytes of the pictures that every provider takes."""


def narrow(message: Message) -> Message:
    """Return the parts of a client's message that a client may set; raises Refused for a file that
    is neither part of the message nor at an `https:` address, and for other invalid addresses.
    """
    match message:
        case UserMessage():
            parts: Any = tuple([_part(part) for part in message.parts])
            return UserMessage(id=message.id, parts=parts)
        case AssistantMessage():
            parts = tuple([_part(part) for part in message.parts])
            return AssistantMessage(id=message.id, parts=parts, partial=message.partial)
        case ToolMessage():
            return ToolMessage(
                id=message.id,
                call_id=message.call_id,
                name=message.name,
                text=message.text,
                outcome=message.outcome,
                media=tuple([_media(part) for part in message.media]),
            )


def media(media_type: Any, url: Any, name: Any = None, data: Any = None) -> Image | File:
    """Read an image or a document: base64 data, or an address."""
    kind = text_of(media_type or _type_in(url) or "application/octet-stream", "A media type")
    kind = kind.split(";")[0].strip().lower()
    content = None if data is None else _decoded(text_of(data, "File data"))
    address = None if data is not None else text_of(url, "The address of a file")
    if kind.startswith("image/"):
        return _media(Image(media_type=kind, data=content, url=address))
    label = name if isinstance(name, str) else None
    return _media(File(media_type=kind, name=label, data=content, url=address))


def _part(part: Part) -> Part:
    match part:
        case Text():
            return Text(part.text)
        case Reasoning():
            return Reasoning(part.text)
        case ToolCall():
            return ToolCall(id=part.id, name=part.name, arguments=part.arguments)
        case Source():
            if part.url is not None and not part.url.startswith(("https://", "http://")):
                raise Refused(400, "The address of a source must be an https: or http: address.")
            return part.replace(meta=None)
        case Image() | File():
            return _media(part)


def _media(part: Image | File) -> Image | File:
    """Check a picture or file, and read the bytes out of a data: address."""
    if not _MEDIA_TYPE.fullmatch(part.media_type):
        raise Refused(400, "A media type must have the form 'image/png'.")
    data, url = part.data, part.url
    if data is not None and url is not None:
        raise Refused(400, "A file must have data or an address, not both.")
    if data is None:
        address = text_of(url, "The address of a file")
        if address.startswith("data:"):
            data, url = _data_in(address, part.media_type), None
        elif not address.startswith("https://") or not address.isprintable() or " " in address:
            raise Refused(400, "A file must be a data: or an https: address.")
    if isinstance(part, Image) and not part.media_type.startswith("image/"):
        raise Refused(400, "An image must have a media type that begins with 'image/'.")
    beginnings = _BEGINNINGS.get(part.media_type)
    if data is not None and beginnings is not None and not data.startswith(beginnings):
        raise Refused(400, f"The data must be of the media type {part.media_type}.")
    return part.replace(data=data, url=url, meta=None)


def _type_in(url: Any) -> str | None:
    """Return the media type in a data: address."""
    if not isinstance(url, str) or not url.startswith("data:"):
        return None
    return url[5:].partition(",")[0].partition(";")[0].strip().lower() or None


def _data_in(url: str, media_type: str) -> bytes:
    """Return the bytes in a data: address, which must have this media type."""
    head, _, data = url.partition(",")
    if not head.endswith(";base64"):
        raise Refused(400, "A data: address must be base64.")
    if _type_in(url) not in (None, media_type):
        raise Refused(400, "A file must have the media type of its data: address.")
    return _decoded(data)


def _decoded(data: str) -> bytes:
    try:
        return b64decode(data, validate=True)
    except (Base64Error, ValueError):
        raise Refused(400, "The data of a file must be base64.") from None
