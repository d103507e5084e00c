"""What a conversation is made of: messages, their parts, and the usage that they cost.

All of it is frozen data with JSON both ways. A message is never half written: a text that was
cut off by an abort or an error is a whole message that says so (`partial`). What the model wrote
as arguments of a call and was no JSON object is not kept: the message then shows `{}`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from typing import Any, ClassVar, Literal, Self, TypeAlias, overload

import msgspec

from hookline._base.frozen import EMPTY, own, own_tuples
from hookline._base.json import Reader, clean_data, encode_foreign

FinishReason: TypeAlias = Literal["stop", "tool_calls", "pause", "length", "refusal", "other"]
"""Why a model ended its answer, in words that all providers share.

"pause": its provider runs tools, and wants to be asked again to go on."""
CallOutcome: TypeAlias = Literal["ok", "error", "denied", "answered", "stopped", "aborted"]


class Data(msgspec.Struct, frozen=True):
    """The root of hookline's frozen data: `.replace(...)` makes a changed copy."""

    def replace(self, **changes: Any) -> Self:
        """A copy with these fields changed; an unknown field is a TypeError."""
        return msgspec.structs.replace(self, **changes)

    def to_json(self) -> bytes:
        """The JSON text of this object."""
        return encoded(self)


def encoded(value: Any) -> bytes:
    """The JSON text of a value; lone surrogates, which have none, become U+FFFD."""
    try:
        return msgspec.json.encode(value, enc_hook=encode_foreign)
    except UnicodeEncodeError:
        data = msgspec.to_builtins(value, enc_hook=encode_foreign)
        return msgspec.json.encode(clean_data(data))


class Usage(Data, frozen=True, kw_only=True):
    """Tokens. `input` and `output` are totals: cached and reasoning tokens are inside them."""

    input_tokens: int = 0
    """What was sent, cached tokens included."""
    output_tokens: int = 0
    """What was answered, reasoning included."""
    cache_read_tokens: int = 0
    """Of the input: read from the provider's cache."""
    cache_write_tokens: int = 0
    """Of the input: written to the provider's cache."""
    reasoning_tokens: int = 0
    """Of the output: spent on reasoning."""

    @property
    def total_tokens(self) -> int:
        """Input and output together."""
        return self.input_tokens + self.output_tokens

    def __add__(self, other: Usage) -> Usage:
        return Usage(
            input_tokens=self.input_tokens + other.input_tokens,
            output_tokens=self.output_tokens + other.output_tokens,
            cache_read_tokens=self.cache_read_tokens + other.cache_read_tokens,
            cache_write_tokens=self.cache_write_tokens + other.cache_write_tokens,
            reasoning_tokens=self.reasoning_tokens + other.reasoning_tokens,
        )


NO_USAGE = Usage()


# ── parts ───────────────────────────────────────────────────────────────────────────────────


class Text(Data, frozen=True, omit_defaults=True, tag_field="part", tag="text"):
    """A piece of text; `meta` is the provider's own, such as what it cites."""

    text: str
    """Never blank in a message of a history."""
    meta: dict[str, Any] | None = None
    """The provider's own, such as what the text cites."""


class Reasoning(Data, frozen=True, tag_field="part", tag="reasoning"):
    """What the model thought aloud; `meta` is the provider's own (signatures it wants back)."""

    text: str
    """Empty where the provider signed it and kept it to itself."""
    meta: dict[str, Any] | None = None
    """The provider's own, such as a signature, sent back to it."""

    def __post_init__(self) -> None:
        own(self, "meta")


class Image(Data, frozen=True, kw_only=True, tag_field="part", tag="image"):
    """A picture, as bytes or by URL."""

    media_type: str = "image/png"
    """Such as "image/png"."""
    data: bytes | None = None
    """The bytes, or None where there is a `url`."""
    url: str | None = None
    """An address that the provider fetches."""


class File(Data, frozen=True, kw_only=True, tag_field="part", tag="file"):
    """A document, as bytes or by URL."""

    media_type: str
    """Such as "application/pdf"."""
    name: str | None = None
    """What the model is told it is called."""
    data: bytes | None = None
    """The bytes, or None where there is a `url`."""
    url: str | None = None
    """An address that the provider fetches."""


class ToolCall(Data, frozen=True, kw_only=True, tag_field="part", tag="call"):
    """A call that the model asked for. `raw` is its text where that was no JSON object.

    `meta` is the provider's own, such as a signature that it wants back with the call.
    """

    id: str
    """Unique within the conversation; its result bears the same."""
    name: str
    """The tool that is meant, whether or not there is one."""
    arguments: dict[str, Any] = msgspec.field(default_factory=lambda: EMPTY)
    """A JSON object; empty where the model wrote none."""
    raw: str | None = None
    """What the model wrote, where that is not a JSON object."""
    meta: dict[str, Any] | None = None
    """The provider's own, sent back to it."""

    def __post_init__(self) -> None:
        own(self, "arguments", "meta")


UserPart: TypeAlias = Text | Image | File
ModelPart: TypeAlias = Text | Reasoning | ToolCall
MediaPart: TypeAlias = Image | File


def text_of(parts: Iterable[object]) -> str:
    """The text of all Text parts, joined."""
    return "".join([part.text for part in parts if type(part) is Text])


def reasoning_of(parts: Iterable[object]) -> str:
    """The text of all Reasoning parts, joined."""
    return "".join([part.text for part in parts if type(part) is Reasoning])


def calls_of(parts: Iterable[object]) -> tuple[ToolCall, ...]:
    """The calls among these parts, in order."""
    calls: list[ToolCall] = []
    for part in parts:
        if type(part) is ToolCall:
            calls.append(part)
    return tuple(calls)


def with_text(parts: Sequence[ModelPart], text: str) -> tuple[ModelPart, ...]:
    """These parts with all their text replaced: it stands where the first text stood."""
    out: list[ModelPart] = []
    placed = not text
    for part in parts:
        if type(part) is not Text:
            if type(part) is ToolCall and not placed:
                out.append(Text(text))
                placed = True
            out.append(part)
        elif not placed:
            out.append(Text(text))
            placed = True
    if not placed:
        out.append(Text(text))
    return tuple(out)


# ── messages ────────────────────────────────────────────────────────────────────────────────


class UserMessage(Data, frozen=True, kw_only=True, tag_field="role", tag="user"):
    """What the user, or a hook in the user's place, said."""

    role: ClassVar[Literal["user"]] = "user"
    """Always "user"."""
    id: str = ""
    """Given when the message is committed."""
    parts: tuple[UserPart, ...]
    """Text, images and files, in order."""

    def __post_init__(self) -> None:
        own_tuples(self, "parts")

    @property
    def text(self) -> str:
        """The text of all its Text parts, joined."""
        return text_of(self.parts)

    def replace(self, *, text: str | None = None, **changes: Any) -> Self:
        """A changed copy; `text=` replaces all the text at once."""
        if text is not None:
            media = tuple(part for part in self.parts if type(part) is not Text)
            changes["parts"] = (Text(text), *media)
        return msgspec.structs.replace(self, **changes)


class AssistantMessage(Data, frozen=True, kw_only=True, tag_field="role", tag="assistant"):
    """What the model answered. `partial`: it was cut off, and its calls were left out."""

    role: ClassVar[Literal["assistant"]] = "assistant"
    """Always "assistant"."""
    id: str = ""
    """Given when the message is committed."""
    parts: tuple[ModelPart, ...]
    """Text, reasoning and calls, in order."""
    finish_reason: FinishReason | None = None
    """Why the model ended, as its provider said."""
    usage: Usage | None = None
    """What this answer cost, where the provider told."""
    model: str | None = None
    """The model that answered, by its own name."""
    partial: bool = False
    """True for an answer that was cut off."""
    meta: dict[str, Any] | None = None
    """The provider's own, which an adapter wants back."""

    def __post_init__(self) -> None:
        own(self, "meta")
        own_tuples(self, "parts")

    @property
    def text(self) -> str:
        """The text of all its Text parts, joined."""
        return text_of(self.parts)

    @property
    def reasoning(self) -> str:
        """The text of all its Reasoning parts, joined."""
        return reasoning_of(self.parts)

    @property
    def tool_calls(self) -> tuple[ToolCall, ...]:
        """The tool calls, in the order in which the model wrote them."""
        return calls_of(self.parts)

    def replace(self, *, text: str | None = None, **changes: Any) -> Self:
        """A changed copy; `text=` replaces all the text at once."""
        if text is not None:
            changes["parts"] = with_text(changes.get("parts", self.parts), text)
        return msgspec.structs.replace(self, **changes)


class ToolMessage(Data, frozen=True, kw_only=True, tag_field="role", tag="tool"):
    """The one result of a call: `text` is what the model reads."""

    role: ClassVar[Literal["tool"]] = "tool"
    """Always "tool"."""
    id: str = ""
    """Given when the message is committed."""
    call_id: str
    """The `id` of the call that it answers."""
    name: str
    """The tool's name."""
    text: str
    """What the model reads."""
    outcome: CallOutcome = "ok"
    """How the call went."""
    media: tuple[MediaPart, ...] = ()
    """Pictures and files that go to the model beside the text."""

    def __post_init__(self) -> None:
        own_tuples(self, "media")


Message: TypeAlias = UserMessage | AssistantMessage | ToolMessage
"""What a history holds: tell them apart by `role` or by class."""


class History(Sequence[Message]):
    """A read-only view of the first `length` messages of a list that is only appended to.

    It costs the same for ten messages and for ten thousand; a slice of it is a tuple. An index that
    is out of range raises IndexError.
    """

    __slots__ = ("_items", "_length")

    def __init__(self, items: list[Message], length: int) -> None:
        self._items = items
        self._length = length

    def __len__(self) -> int:
        return self._length

    @overload
    def __getitem__(self, index: int) -> Message: ...
    @overload
    def __getitem__(self, index: slice) -> tuple[Message, ...]: ...
    def __getitem__(self, index: int | slice) -> Message | tuple[Message, ...]:
        if isinstance(index, slice):
            return tuple([self._items[i] for i in range(*index.indices(self._length))])
        if not -self._length <= index < self._length:
            raise IndexError(f"there is no message {index}; use an index below {self._length}")
        return self._items[index if index >= 0 else index + self._length]

    def __iter__(self) -> Iterator[Message]:
        return islice(iter(self._items), self._length)

    def __reversed__(self) -> Iterator[Message]:
        items = self._items
        return (items[i] for i in range(self._length - 1, -1, -1))

    def __eq__(self, other: object) -> bool:
        if isinstance(other, Sequence) and not isinstance(other, (str, bytes)):
            return tuple(self) == tuple(other)  # pyright: ignore[reportUnknownArgumentType]
        return NotImplemented

    def __hash__(self) -> int:
        return hash((id(self._items), self._length))

    def __repr__(self) -> str:
        return f"<History of {self._length} messages>"


_message: Reader[Message] = Reader(Message)


def read_message(data: bytes | str) -> Message:
    """A message from its JSON text; raises msgspec.ValidationError when it is none."""
    return _message.decode(data)
