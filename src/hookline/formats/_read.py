"""Functions that the readers and writers of both formats share."""

from __future__ import annotations

from base64 import b64decode, b64encode
from binascii import Error as NotBase64
from collections.abc import Collection, Generator, Iterable, Iterator, Mapping
from contextlib import contextmanager
from reprlib import repr as short_repr
from types import NoneType
from typing import Any, TypeVar, cast

import msgspec

from hookline import AssistantMessage, File, Image, Message, ToolCall, ToolMessage, UserMessage
from hookline.errors import UsageError

T = TypeVar("T")


class Imported(msgspec.Struct, frozen=True, kw_only=True):
    """A history: use `Conversation(history.messages)` and `Agent(system=history.system)`."""

    messages: tuple[Message, ...]
    """The messages, as hookline message types."""
    system: str | None = None
    """The system text, which is not a message in hookline."""


def refuse(where: str, problem: str) -> UsageError:
    """Make the error for data that cannot be read."""
    return UsageError(f"{where}: {problem}")


@contextmanager
def reading(what: str) -> Generator[None, None, None]:
    """Raise UsageError in place of the errors of data that JSON cannot express."""
    try:
        yield
    except UsageError:
        raise
    except Exception as exc:  # of any kind: it is the caller's data
        raise UsageError(f"{what} is not JSON data ({exc}); pass dicts, lists and texts") from exc


def unknown_part(kind: str, where: str) -> UsageError:
    """Make the error for a part that would be lost."""
    return refuse(where, f"hookline messages have no parts of type {kind!r}; leave this part out")


def items(messages: object) -> Iterable[Any]:
    """Return the items of an argument that must be a list."""
    if isinstance(messages, (str, bytes, Mapping)) or not isinstance(messages, Iterable):
        raise UsageError(f"messages must be a list of messages, not {short_repr(messages)}")  # pyright: ignore
    return messages  # pyright: ignore[reportUnknownVariableType]


def placed(messages: object) -> Iterator[tuple[str, Message]]:
    """Yield messages of hookline with their places, for errors."""
    for index, message in enumerate(items(messages)):
        where = f"message {index}"
        if not isinstance(message, (UserMessage, AssistantMessage, ToolMessage)):
            kind = type(message).__name__
            raise refuse(
                where,
                f"this must be a message of hookline, not a {kind}; use from_openai() "
                "or from_anthropic() for dicts",
            )
        yield where, message


def field(data: Any, name: str, kind: type[T], where: str) -> T:
    """Return a required field of this type."""
    value: Any = mapping(data, where).get(name)
    if not isinstance(value, kind):
        raise refuse(where, f"{name!r} must be a {kind.__name__}, not {short_repr(value)}")
    return value


def object_at(data: Any, name: str, where: str) -> dict[str, Any]:
    """Return a required field that is an object."""
    return field(data, name, dict, where)  # pyright: ignore[reportUnknownVariableType]


def list_at(data: Any, name: str, where: str) -> list[Any]:
    """Return a required field that is a list."""
    return field(data, name, list, where)  # pyright: ignore[reportUnknownVariableType]


def text_at(data: Any, name: str, where: str) -> str | None:
    """Return an optional text."""
    return None if data.get(name) is None else field(data, name, str, where)


def mapping(data: Any, where: str) -> Mapping[str, Any]:
    """Return data that must be a dict."""
    if not isinstance(data, Mapping):
        raise refuse(
            where,
            f"this must be a dict, not a {type(data).__name__}; pass objects of an SDK as dicts, "
            "with their model_dump()",
        )
    return cast("Mapping[str, Any]", data)


def check_fields(data: Mapping[str, Any], names: Collection[str], where: str) -> None:
    """Refuse a field with data that would be lost."""
    for name, value in data.items():
        if value and name not in names:
            raise refuse(where, f"hookline messages have no field {name!r}; leave this field out")


def refuse_media(parts: Iterable[object], where: str) -> None:
    """Refuse pictures and files of a model, which neither format has in an answer."""
    for part in parts:
        if isinstance(part, (Image, File)):
            raise refuse(
                where,
                f"answers in this format have no {type(part).__name__}; leave this part out",
            )


def blocks(content: Any, where: str) -> list[tuple[str, dict[str, Any]]]:
    """Return content as blocks with their places, for errors; a string becomes one text block."""
    if isinstance(content, str):
        return [(where, {"type": "text", "text": content})] if content else []
    if content is None:
        return []
    if not isinstance(content, (list, tuple)):
        raise refuse(where, f"content must be a string or a list, not {short_repr(content)}")
    parts: list[tuple[str, dict[str, Any]]] = []
    for index, block in enumerate(content):  # pyright: ignore[reportUnknownVariableType, reportUnknownArgumentType]
        at = f"{where}, part {index}"
        field(block, "type", str, at)
        parts.append((at, block))  # pyright: ignore[reportUnknownArgumentType]
    return parts


def call_of(id: str, name: str, arguments: Any, where: str) -> ToolCall:
    """Make a call; arguments that are not a JSON object are kept as text in `raw`."""
    if isinstance(arguments, Mapping):
        return ToolCall(id=id, name=name, arguments=dict(arguments))  # pyright: ignore
    if not isinstance(arguments, (str, NoneType)):
        raise refuse(where, f"the arguments must be a JSON text, not {short_repr(arguments)}")
    try:
        decoded: Any = msgspec.json.decode(arguments or "{}")
    except (msgspec.DecodeError, UnicodeEncodeError, RecursionError):
        decoded = None
    if isinstance(decoded, dict):
        return ToolCall(id=id, name=name, arguments=decoded)  # pyright: ignore
    return ToolCall(id=id, name=name, raw=arguments)


def encoded(data: bytes) -> str:
    return b64encode(data).decode("ascii")


def decoded(text: str, where: str) -> bytes:
    try:
        return b64decode(text, validate=True)
    except (NotBase64, ValueError) as exc:
        raise refuse(where, f"its data must be base64: {exc}") from exc


def from_url(url: str, where: str) -> tuple[str, bytes | None, str | None]:
    """Split a URL, which may contain the data itself, into media type, data and URL."""
    if not url.startswith("data:"):
        return "", None, url
    head, comma, body = url[5:].partition(",")
    media_type, _, rest = head.partition(";")  # the rest may begin with parameters
    if not comma or rest.rpartition(";")[2] != "base64":
        raise refuse(where, f"a data URL must contain base64, but this URL is {url[:40]!r}")
    return media_type, decoded(body, where), None


def to_url(part: Image | File, where: str) -> str:
    """The URL of a part; a data URL if the part has bytes."""
    if part.data is not None:
        return f"data:{part.media_type};base64,{encoded(part.data)}"
    if part.url is not None:
        return part.url
    raise refuse(where, f"this {type(part).__name__} has neither data nor url; give it one")
