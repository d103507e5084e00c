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
    """What the user said, as a message without lone surrogates. Raises UsageError for nothing."""
    if isinstance(input, str):
        message = UserMessage(parts=(Text(clean_text(input)),))
    elif isinstance(input, UserMessage):
        message = cleaned(input)
    else:
        message = cleaned(UserMessage(parts=_parts(input)))
    if not any(not isinstance(part, Text) or part.text.strip() for part in message.parts):
        raise UsageError(
            f"input={input!r} has neither text nor media: write what the user says, or pass "
            "input=None to go on from the history"
        )
    return message


def _parts(input: Any) -> tuple[UserPart, ...]:
    parts: tuple[Any, ...] = ()
    if isinstance(input, (list, tuple)):
        parts = tuple(cast("Sequence[Any]", input))
    else:
        raise UsageError(
            f"input={input!r} must be a str, a UserMessage, or a list of Text, Image and File parts"
        )
    for part in parts:
        if not isinstance(part, (Text, Image, File)):
            raise UsageError(f"input={input!r}: {part!r} must be a Text, an Image or a File")
    return parts


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
