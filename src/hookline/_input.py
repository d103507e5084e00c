"""What comes in as messages: what a user may say, with text that any store takes. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeAlias, TypeVar, cast

from hookline._errors import UsageError
from hookline._json import clean_text
from hookline._messages import (
    AssistantMessage,
    File,
    Image,
    Message,
    Reasoning,
    Text,
    ToolMessage,
    UserMessage,
    UserPart,
)

Input: TypeAlias = str | UserMessage | Sequence[UserPart]
M = TypeVar("M", UserMessage, AssistantMessage, ToolMessage, Message)


def as_message(input: Any) -> UserMessage:
    """What the user said, as a message without lone surrogates."""
    if isinstance(input, UserMessage):
        return cleaned(input)
    if isinstance(input, str):
        return UserMessage(parts=(Text(clean_text(input)),))
    parts: tuple[Any, ...] = ()
    if isinstance(input, (list, tuple)):
        parts = tuple(cast("Sequence[Any]", input))
    if not parts or not all(isinstance(part, (Text, Image, File)) for part in parts):
        raise UsageError(
            f"{input!r} is nothing a user can say: pass a str, a UserMessage, or a list of "
            "Text, Image and File parts"
        )
    return cleaned(UserMessage(parts=parts))


def cleaned(message: M) -> M:
    """The message without lone surrogates, which no store and no wire would take."""
    if type(message) is ToolMessage:
        text = message.text
        return message if text.isascii() else message.replace(text=clean_text(text))
    assert not isinstance(message, ToolMessage)
    for part in message.parts:
        if isinstance(part, (Text, Reasoning)) and not part.text.isascii():
            break
    else:
        return message
    parts: list[Any] = []
    for part in message.parts:
        if isinstance(part, (Text, Reasoning)):
            part = part.replace(text=clean_text(part.text))
        parts.append(part)
    return message.replace(parts=tuple(parts))
