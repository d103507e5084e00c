"""What comes in from users and hooks: as messages, with text that any store takes. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeAlias, TypeVar, cast

from hookline._base.errors import UsageError
from hookline._base.json import clean_data, clean_text
from hookline._base.messages import Data, File, Image, Text, UserMessage, UserPart

Input: TypeAlias = str | UserMessage | Sequence[UserPart]
T = TypeVar("T")


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


def cleaned(value: T) -> T:
    """The same data without lone surrogates, which no store and no wire would take."""
    made: Any = value
    if isinstance(value, Data):
        changes: dict[str, Any] = {}
        for name in value.__struct_fields__:
            before = getattr(value, name)
            after = cleaned(before)
            if after != before:
                changes[name] = after
        made = value.replace(**changes) if changes else value
    elif isinstance(value, tuple):
        made = tuple([cleaned(each) for each in cast("tuple[Any, ...]", value)])
    else:
        made = clean_data(value)
    return cast("T", made)
