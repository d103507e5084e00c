"""Server-sent events and JSON as every protocol here writes them. Pure: bytes out, nothing in.

A frame is lines that end in one LF and an empty line. What is inside `data:` is JSON in ASCII, so
that no character of a user's or a model's can end a line, whatever a reader takes for a line end.
"""

from __future__ import annotations

import codecs
import re
from typing import Any, Final

import msgspec

OPENED: Final = b": open\n\n"  # sent at once, so that proxies let the headers go
KEEP_ALIVE: Final = b": keep-alive\n\n"
DONE: Final = b"data: [DONE]\n\n"

_NOT_ASCII = "hookline-json"
_UNSAFE = re.compile(r"[^\x20-\x21\x23-\x5b\x5d-\x7e]")  # what a JSON string cannot hold as it is


def _escape(error: UnicodeError) -> tuple[str, int]:
    """Non-ASCII as JSON writes it in ASCII; it stands in strings only."""
    assert isinstance(error, UnicodeEncodeError)
    found = error.object[error.start : error.end]
    units = found.encode("utf-16-be")
    pairs = (units[at : at + 2].hex() for at in range(0, len(units), 2))
    return "".join(f"\\u{pair}" for pair in pairs), error.end


codecs.register_error(_NOT_ASCII, _escape)


def json_text(value: Any) -> str:
    """JSON. A lone surrogate, which UTF-8 does not have, becomes U+FFFD."""
    return _encoded(value).decode()


def _encoded(value: Any) -> bytes:
    try:
        return msgspec.json.encode(value)
    except UnicodeEncodeError:
        return msgspec.json.encode(_whole(msgspec.to_builtins(value)))


def dumps(value: Any) -> bytes:
    """JSON in ASCII."""
    data = _encoded(value)
    return data if data.isascii() else data.decode().encode("ascii", _NOT_ASCII)


def quoted(text: str) -> bytes:
    """One JSON string: the hot path of a text that comes in pieces."""
    if text.isascii() and not _UNSAFE.search(text):
        return b'"%b"' % text.encode()
    return dumps(text)


def frame(data: bytes, *, event: str = "", id: str = "") -> bytes:
    """One server-sent event. `data`, `event` and `id` are ours: they hold no line end."""
    head = f"event: {event}\n" if event else ""
    head += f"id: {id}\n" if id else ""
    return b"%bdata: %b\n\n" % (head.encode(), data)


def plain(value: Any) -> Any:
    """A struct of ours as JSON data without its empty optional fields.

    Data of users inside it (arguments, results) stays as it is: a null there has a meaning.
    """
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
        return [plain(each) for each in value]  # pyright: ignore[reportUnknownVariableType]
    return value


def _whole(value: Any) -> Any:
    """JSON data without lone surrogates."""
    if isinstance(value, str):
        return value.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    if isinstance(value, dict):
        return {_whole(key): _whole(each) for key, each in value.items()}  # pyright: ignore
    if isinstance(value, (list, tuple)):
        return [_whole(each) for each in value]  # pyright: ignore
    return value
