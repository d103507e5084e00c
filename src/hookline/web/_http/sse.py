"""Encode server-sent events and JSON, for all protocols. Pure: it only returns bytes.

A frame is a number of lines that end with one LF, and an empty line. `data:` contains JSON in
ASCII, so no character of a user or a model can end a line, whatever a client accepts as a line end.
"""

from __future__ import annotations

import codecs
import json
from base64 import b64encode
from typing import Any, Final

import msgspec

OPEN: Final = b": open\n\n"  # sent at once, so that proxies forward the headers
KEEP_ALIVE: Final = b": keep-alive\n\n"
FRAME_END: Final = b"}\n\n"
DONE: Final = b"data: [DONE]\n\n"
RELOAD: Final = "A part of this answer was lost on the way; reload the conversation."

_NOT_ASCII = "hookline-json"
_encode = msgspec.json.Encoder().encode


def _escape(error: UnicodeError) -> tuple[str, int]:
    """Escape non-ASCII characters as JSON does; they occur only in strings."""
    assert isinstance(error, UnicodeEncodeError)
    characters = error.object[error.start : error.end]
    units = characters.encode("utf-16-be")
    pairs = (units[at : at + 2].hex() for at in range(0, len(units), 2))
    return "".join(f"\\u{pair}" for pair in pairs), error.end


codecs.register_error(_NOT_ASCII, _escape)


def json_text(value: Any) -> str:
    """Encode a value as JSON text. A lone surrogate, which UTF-8 cannot encode, becomes U+FFFD."""
    return _encoded(value).decode()


def _encoded(value: Any) -> bytes:
    try:
        return _encode(value)
    except UnicodeEncodeError:
        text = json.dumps(msgspec.to_builtins(value), ensure_ascii=False)
        whole = text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
        return _encode(json.loads(whole))


def dumps(value: Any) -> bytes:
    """Encode a value as JSON in ASCII."""
    data = _encoded(value)
    return data if data.isascii() else data.decode().encode("ascii", _NOT_ASCII)


def frame(data: bytes, *, id: str = "") -> bytes:
    """Encode a server-sent event. `data` and `id` are trusted: they have no line end."""
    head = f"id: {id}\n" if id else ""
    return b"%bdata: %b\n\n" % (head.encode(), data)


def frame_until(field: str, **fields: Any) -> bytes:
    """Encode a frame up to the value of its last field; `FRAME_END` follows that value.

    Most frames of an answer differ only in this value.
    """
    return b'data: %b,"%b":' % (dumps(fields)[:-1], field.encode())


def plain(value: Any) -> Any:
    """Convert a struct to JSON data without its empty optional fields.

    User data inside it (arguments, results) stays unchanged: a null there has a meaning.
    """
    if isinstance(value, bytes):
        return b64encode(value).decode()
    if isinstance(value, msgspec.Struct):
        out: dict[str, Any] = {}
        config = value.__struct_config__
        if config.tag_field is not None:
            out[config.tag_field] = config.tag
        for name in value.__struct_fields__:
            field = getattr(value, name)
            if field is not None:
                out[name] = plain(field)
        return out
    if isinstance(value, tuple):
        return [plain(item) for item in value]  # pyright: ignore[reportUnknownVariableType]
    return value
