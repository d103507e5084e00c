"""Convert input of users and hooks to messages whose text every store accepts. Pure functions."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from hashlib import blake2b
from typing import Any, TypeAlias, TypeVar, cast

from hookline._base.errors import UsageError
from hookline._base.json import clean_data, clean_text
from hookline._base.messages import Data, File, Image, Message, Text, UserMessage, UserPart

Input: TypeAlias = str | UserMessage | Sequence[UserPart]
"""The user's message: a text, a UserMessage, or a list of its parts."""
T = TypeVar("T")


def as_message(input: Any) -> UserMessage:
    """Convert the user's input to a message without lone surrogates; raises UsageError if empty."""
    if isinstance(input, str):
        message = UserMessage(parts=(Text(clean_text(input)),))
    elif isinstance(input, UserMessage):
        message = without_surrogates(input)
    else:
        message = without_surrogates(UserMessage(parts=_parts(input)))
    if says_nothing(message.parts):
        raise UsageError(
            f"input={input!r} has neither text nor media; pass the user's text, or pass "
            "input=None to continue from the history"
        )
    return message


def sent_into(chat_id: str, input: Any) -> UserMessage:
    """Convert a message that is sent into a chat. Its id there follows from the id that it has."""
    message = as_message(input)
    key = _key(message.id) if message.id else os.urandom(10).hex()
    return message.replace(id=f"{chat_id}.{key}")


def find_sent(messages: Iterable[Message], id: str) -> str | None:
    """Return the id under which a message with this id was sent into one of the chats, or None."""
    end = f".{_key(id)}"
    return next((message.id for message in messages if id and message.id.endswith(end)), None)


def _key(id: str) -> str:
    return blake2b(id.encode("utf-8", "surrogatepass"), digest_size=10).hexdigest()


def says_nothing(parts: Iterable[object]) -> bool:
    """Whether there is no part but blank text."""
    return all(isinstance(part, Text) and not part.text.strip() for part in parts)


def _parts(input: Any) -> tuple[UserPart, ...]:
    if not isinstance(input, (list, tuple)):
        raise UsageError(
            f"input={input!r} must be a str, a UserMessage, or a list of Text, Image and File parts"
        )
    parts: tuple[Any, ...] = tuple(cast("Sequence[Any]", input))
    for part in parts:
        if not isinstance(part, (Text, Image, File)):
            raise UsageError(f"input={input!r}: {part!r} must be a Text, an Image or a File")
    return parts


def without_surrogates(value: T) -> T:
    """Return the same data without lone surrogates, which stores and network formats reject."""
    data: Any = value
    if isinstance(data, Data):
        before = {name: getattr(data, name) for name in data.__struct_fields__}
        after = {name: without_surrogates(item) for name, item in before.items()}
        data = data.replace(**after) if after != before else data
    elif isinstance(data, tuple):
        data = tuple([without_surrogates(item) for item in data])  # pyright: ignore
    else:
        data = clean_data(data)
    return cast("T", data)
