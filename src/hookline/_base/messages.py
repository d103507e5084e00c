"""The contents of a conversation: messages, their parts, and their token usage.

All of it is frozen data that converts to and from JSON. There are no half-written messages: a text
that was cut off by an abort or an error is a whole message, marked as `partial`. If the model's
arguments for a call are not a JSON object, they are not kept: the message then shows `{}`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Self, TypeAlias, overload

import msgspec

from hookline._base.frozen import EMPTY, FrozenDict, own, own_tuple
from hookline._base.json import Reader, clean_data, encode_foreign

FinishReason: TypeAlias = Literal["stop", "tool_calls", "pause", "length", "refusal", "other"]
"""Why a model ended its answer, in terms that all providers share.

"pause" means that the provider runs tools, and must be called again to continue."""
CallOutcome: TypeAlias = Literal["ok", "error", "denied", "answered", "stopped", "aborted"]
"""How a tool call ended."""


class Data(msgspec.Struct, frozen=True):
    """The base class of hookline's frozen data: `.replace(...)` makes a changed copy."""

    if TYPE_CHECKING:  # each noun has its own signature, which this one does not restrict

        def replace(self, *args: Any, **kwargs: Any) -> Self: ...

    else:

        def replace(self, **changes: Any) -> Self:
            """Return a copy with these fields changed; an unknown field raises TypeError."""
            return msgspec.structs.replace(self, **changes)

    def to_json(self) -> bytes:
        """Encode this object as JSON text."""
        return encoded(self)


def encoded(value: Any) -> bytes:
    """Encode a value as JSON text; lone surrogates, which are not valid Unicode, become U+FFFD."""
    try:
        return msgspec.json.encode(value, enc_hook=encode_foreign)
    except UnicodeEncodeError:
        data = msgspec.to_builtins(value, enc_hook=encode_foreign)
        return msgspec.json.encode(clean_data(data))


class Timing(Data, frozen=True, kw_only=True):
    """The timing of one model call. All times are in seconds since the request."""

    first_chunk: float
    """Seconds until the first chunk arrived."""
    duration: float
    """Seconds until the answer was complete, including waits for a slow reader."""
    chunks: int
    """The number of chunks."""
    reader_wait: float = 0.0
    """Seconds of waiting for a slow reader of the stream."""

    if TYPE_CHECKING:  # by scripts/dev/generate.py

        def replace(
            self,
            *,
            first_chunk: float = ...,
            duration: float = ...,
            chunks: int = ...,
            reader_wait: float = ...,
        ) -> Self: ...


class Usage(Data, frozen=True, kw_only=True):
    """Token counts. `input_tokens` and `output_tokens` include cached and reasoning tokens."""

    input_tokens: int = 0
    """Tokens sent, including cached ones."""
    output_tokens: int = 0
    """Tokens of the answer, including reasoning."""
    cache_read_tokens: int = 0
    """Input tokens that were read from the provider's cache."""
    cache_write_tokens: int = 0
    """Input tokens that were written to the provider's cache."""
    reasoning_tokens: int = 0
    """Output tokens spent on reasoning."""

    @property
    def total_tokens(self) -> int:
        """The sum of input and output."""
        return self.input_tokens + self.output_tokens

    def __add__(self, other: Usage) -> Usage:
        return Usage(
            input_tokens=self.input_tokens + other.input_tokens,
            output_tokens=self.output_tokens + other.output_tokens,
            cache_read_tokens=self.cache_read_tokens + other.cache_read_tokens,
            cache_write_tokens=self.cache_write_tokens + other.cache_write_tokens,
            reasoning_tokens=self.reasoning_tokens + other.reasoning_tokens,
        )

    if TYPE_CHECKING:  # by scripts/dev/generate.py

        def replace(
            self,
            *,
            input_tokens: int = ...,
            output_tokens: int = ...,
            cache_read_tokens: int = ...,
            cache_write_tokens: int = ...,
            reasoning_tokens: int = ...,
        ) -> Self: ...


NO_USAGE = Usage()


# ── parts ───────────────────────────────────────────────────────────────────────────────────


class Text(Data, frozen=True, omit_defaults=True, tag_field="part", tag="text"):
    """A piece of text; `meta` holds the provider's own data, such as citations."""

    text: str
    """The text. In a message of a history, the text is never blank."""
    meta: dict[str, Any] | None = None
    """The provider's own data, such as the sources that the text cites."""

    def __post_init__(self) -> None:
        if self.meta is not None:
            own(self, "meta")

    if TYPE_CHECKING:  # by scripts/dev/generate.py

        def replace(self, *, text: str = ..., meta: dict[str, Any] | None = ...) -> Self: ...


class Reasoning(Data, frozen=True, tag_field="part", tag="reasoning"):
    """The model's reasoning; `meta` holds the provider's own data, such as signatures."""

    text: str
    """The reasoning text; empty if the provider sends only a signature."""
    meta: dict[str, Any] | None = None
    """The provider's own data, such as a signature, which is sent back to the provider."""

    def __post_init__(self) -> None:
        if self.meta is not None:
            own(self, "meta")

    if TYPE_CHECKING:  # by scripts/dev/generate.py

        def replace(self, *, text: str = ..., meta: dict[str, Any] | None = ...) -> Self: ...


class Image(Data, frozen=True, kw_only=True, tag_field="part", tag="image"):
    """A picture: its bytes, or a URL."""

    media_type: str = "image/png"
    """The media type, such as "image/png"."""
    data: bytes | None = None
    """The bytes; None if `url` is set."""
    url: str | None = None
    """The URL from which the provider fetches the data."""
    meta: dict[str, Any] | None = None
    """The provider's own data for a picture that the provider's model made."""

    def __post_init__(self) -> None:
        own(self, "meta")

    if TYPE_CHECKING:  # by scripts/dev/generate.py

        def replace(
            self,
            *,
            media_type: str = ...,
            data: bytes | None = ...,
            url: str | None = ...,
            meta: dict[str, Any] | None = ...,
        ) -> Self: ...


class File(Data, frozen=True, kw_only=True, tag_field="part", tag="file"):
    """A document, a sound or a video: its bytes, or a URL.

    If a provider made the file and stores it, `data` and `url` are None, and `meta` has the
    provider's file id.
    """

    media_type: str
    """The media type, such as "application/pdf" or "audio/wav"."""
    name: str | None = None
    """The file name that the model sees."""
    data: bytes | None = None
    """The bytes; None if `url` is set."""
    url: str | None = None
    """The URL from which the provider fetches the data."""
    meta: dict[str, Any] | None = None
    """The provider's own data, such as the id of a file that the provider's model made."""

    def __post_init__(self) -> None:
        own(self, "meta")

    if TYPE_CHECKING:  # by scripts/dev/generate.py

        def replace(
            self,
            *,
            media_type: str = ...,
            name: str | None = ...,
            data: bytes | None = ...,
            url: str | None = ...,
            meta: dict[str, Any] | None = ...,
        ) -> Self: ...


class Source(Data, frozen=True, kw_only=True, tag_field="part", tag="source"):
    """A source of an answer: a page or document that a provider's own tool found.

    The `meta` of a Text has the sources that the text cites.
    """

    url: str | None = None
    """The address of a page; None for a document that the provider stores."""
    title: str | None = None
    """The title, as reported by the provider."""
    name: str | None = None
    """The file name of a document."""
    media_type: str | None = None
    """The media type, such as "application/pdf", if the provider reports it."""
    meta: dict[str, Any] | None = None
    """The provider's own data, such as the id of a document."""

    def __post_init__(self) -> None:
        own(self, "meta")

    if TYPE_CHECKING:  # by scripts/dev/generate.py

        def replace(
            self,
            *,
            url: str | None = ...,
            title: str | None = ...,
            name: str | None = ...,
            media_type: str | None = ...,
            meta: dict[str, Any] | None = ...,
        ) -> Self: ...


class ToolCall(Data, frozen=True, kw_only=True, tag_field="part", tag="call"):
    """A tool call by the model.

    `raw` is the invalid text of the arguments; None if the text is a JSON object. `meta` holds the
    provider's own data, such as a signature, which must be sent back with the call.
    """

    id: str
    """The call's id, which is unique within the conversation. The result of the call has the same
    id."""
    name: str
    """The name of the tool that the model called, even if that tool does not exist."""
    arguments: dict[str, Any] = msgspec.field(default_factory=lambda: EMPTY)
    """The arguments as a JSON object; empty if the model wrote no arguments."""
    raw: str | None = None
    """The invalid text of the arguments; None if the text is a JSON object."""
    meta: dict[str, Any] | None = None
    """The provider's own data, which is sent back to the provider."""

    def __post_init__(self) -> None:
        if self.arguments.__class__ is not FrozenDict:
            own(self, "arguments")
        if self.meta is not None:
            own(self, "meta")

    if TYPE_CHECKING:  # by scripts/dev/generate.py

        def replace(
            self,
            *,
            id: str = ...,
            name: str = ...,
            arguments: dict[str, Any] = ...,
            raw: str | None = ...,
            meta: dict[str, Any] | None = ...,
        ) -> Self: ...


UserPart: TypeAlias = Text | Image | File
"""A part of a user's message."""
MediaPart: TypeAlias = Image | File
"""A picture or another file."""
ModelPart: TypeAlias = Text | Reasoning | ToolCall | Source | MediaPart
"""A part of a model's answer."""


def text_of(parts: Iterable[object]) -> str:
    """The text of all Text parts, joined."""
    return "".join([part.text for part in parts if type(part) is Text])


def calls_of(parts: Iterable[object]) -> tuple[ToolCall, ...]:
    """The calls among these parts, in order."""
    return tuple([part for part in parts if type(part) is ToolCall])


def with_text(parts: Sequence[ModelPart], text: str) -> tuple[ModelPart, ...]:
    """Replace all text of these parts; the new text comes where the first text or call was."""
    others = [part for part in parts if type(part) is not Text]
    if text:
        places = [place for place, part in enumerate(parts) if type(part) in (Text, ToolCall)]
        others.insert(min(places, default=len(parts)), Text(text))
    return tuple(others)


class ModelAnswer(Data, frozen=True):
    """An answer of a model, in a message or in a response: its parts, by kind."""

    if TYPE_CHECKING:  # as fields of this class, they would come before `id` in the stored JSON
        parts: tuple[ModelPart, ...]
        meta: dict[str, Any] | None = None

    def __post_init__(self) -> None:
        if self.meta is not None:
            own(self, "meta")
        if self.parts.__class__ is not tuple:
            own_tuple(self, "parts")

    @property
    def text(self) -> str:
        """The joined text of all Text parts."""
        return text_of(self.parts)

    @property
    def reasoning(self) -> str:
        """The joined text of all Reasoning parts."""
        return "".join([part.text for part in self.parts if type(part) is Reasoning])

    @property
    def tool_calls(self) -> tuple[ToolCall, ...]:
        """The tool calls, in the order in which the model wrote them."""
        return calls_of(self.parts)

    @property
    def sources(self) -> tuple[Source, ...]:
        """The sources that the provider's own tools found for the answer."""
        return tuple([part for part in self.parts if isinstance(part, Source)])

    @property
    def files(self) -> tuple[MediaPart, ...]:
        """The pictures and files that the model or the provider's own tools made."""
        return tuple([part for part in self.parts if isinstance(part, (Image, File))])

    if not TYPE_CHECKING:

        def replace(self, *, text: str | None = None, **changes: Any) -> Self:
            """Return a changed copy; `text=` replaces the whole text."""
            if text is not None:
                changes["parts"] = with_text(changes.get("parts", self.parts), text)
            return msgspec.structs.replace(self, **changes)


# ── messages ────────────────────────────────────────────────────────────────────────────────


class Stamped(Data, frozen=True):
    """A message, which knows the chat that wrote it and the time; neither is compared."""

    if TYPE_CHECKING:  # as fields of this class, they would come before `id` in the stored JSON
        id: str
        chat_id: str | None
        at: float | None

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, type(self)):
            return NotImplemented
        return Data.__eq__(self, other.replace(chat_id=self.chat_id, at=self.at))

    def __hash__(self) -> int:
        return hash(self.id)


class UserMessage(Stamped, frozen=True, kw_only=True, tag_field="role", tag="user"):
    """A message from the user, or from a hook in place of the user."""

    role: ClassVar[Literal["user"]] = "user"
    """Always "user"."""
    id: str = ""
    """The message's id, which is set when the message is committed."""
    parts: tuple[UserPart, ...]
    """Text, images and files, in order."""
    chat_id: str | None = None
    """The id of the chat that has written the message; never sent to a model, nor compared."""
    at: float | None = None
    """When the message was committed, in seconds since the epoch; never sent to a model, nor
    compared."""

    def __post_init__(self) -> None:
        own_tuple(self, "parts")

    @property
    def text(self) -> str:
        """The joined text of all Text parts."""
        return text_of(self.parts)

    if not TYPE_CHECKING:

        def replace(self, *, text: str | None = None, **changes: Any) -> Self:
            """Return a changed copy; `text=` replaces the whole text."""
            if text is not None:
                media = tuple(part for part in self.parts if type(part) is not Text)
                changes["parts"] = (Text(text), *media)
            return msgspec.structs.replace(self, **changes)

    if TYPE_CHECKING:  # by scripts/dev/generate.py

        def replace(
            self,
            *,
            text: str | None = ...,
            id: str = ...,
            parts: tuple[UserPart, ...] = ...,
            chat_id: str | None = ...,
            at: float | None = ...,
        ) -> Self: ...


class AssistantMessage(
    Stamped, ModelAnswer, frozen=True, kw_only=True, tag_field="role", tag="assistant"
):
    """An answer of the model. If `partial` is true, the answer was cut off and has no calls."""

    role: ClassVar[Literal["assistant"]] = "assistant"
    """Always "assistant"."""
    id: str = ""
    """The message's id, which is set when the message is committed."""
    parts: tuple[ModelPart, ...]
    """Text, reasoning, calls, sources and files, in order."""
    finish_reason: FinishReason | None = None
    """Why the model ended its answer, as reported by the provider."""
    usage: Usage | None = None
    """The tokens that this answer used, if the provider reports them."""
    model: str | None = None
    """The model's name, as the answer reports it."""
    partial: bool = False
    """Whether the answer was cut off."""
    meta: dict[str, Any] | None = None
    """The provider's own data, which the adapter needs in later requests."""
    chat_id: str | None = None
    """The id of the chat that has written the message; never sent to a model, nor compared."""
    at: float | None = None
    """When the message was committed, in seconds since the epoch; never sent to a model, nor
    compared."""

    if TYPE_CHECKING:  # by scripts/dev/generate.py

        def replace(
            self,
            *,
            text: str | None = ...,
            id: str = ...,
            parts: tuple[ModelPart, ...] = ...,
            finish_reason: FinishReason | None = ...,
            usage: Usage | None = ...,
            model: str | None = ...,
            partial: bool = ...,
            meta: dict[str, Any] | None = ...,
            chat_id: str | None = ...,
            at: float | None = ...,
        ) -> Self: ...


class RanCall(Data, frozen=True, omit_defaults=True, kw_only=True):
    """What became of a call that a hook or a person decided about; never sent to a model."""

    arguments: dict[str, Any] | None = None
    """The effective arguments, if they are not those that the model wrote."""
    hooks: tuple[str, ...] = ()
    """The names of the `preToolCall` hooks that changed, answered or denied the call, or asked."""
    hook_ids: tuple[str, ...] = ()
    """The ids of those of these hooks that have an id."""
    approved: bool | None = None
    """The decision of a person or an approver; None if nobody was asked."""
    by: str | None = None
    """Who decided, as `Approve(by=…)` or `Deny(by=…)` names them."""
    note: str | None = None
    """The remark of `Approve(note=…)`."""
    at: float | None = None
    """When the call began to run, in seconds since the epoch; None if it did not run."""
    duration: float | None = None
    """How long the call ran, in seconds."""

    def __post_init__(self) -> None:
        own(self, "arguments")
        own_tuple(self, "hooks")
        own_tuple(self, "hook_ids")

    if TYPE_CHECKING:  # by scripts/dev/generate.py

        def replace(
            self,
            *,
            arguments: dict[str, Any] | None = ...,
            hooks: tuple[str, ...] = ...,
            hook_ids: tuple[str, ...] = ...,
            approved: bool | None = ...,
            by: str | None = ...,
            note: str | None = ...,
            at: float | None = ...,
            duration: float | None = ...,
        ) -> Self: ...


class ToolMessage(Stamped, frozen=True, kw_only=True, tag_field="role", tag="tool"):
    """The result of one call; `text` is sent to the model."""

    role: ClassVar[Literal["tool"]] = "tool"
    """Always "tool"."""
    id: str = ""
    """The message's id, which is set when the message is committed."""
    call_id: str
    """The `id` of the call that has this result."""
    name: str
    """The tool's name."""
    text: str
    """The text that is sent to the model."""
    outcome: CallOutcome = "ok"
    """How the call ended."""
    media: tuple[MediaPart, ...] = ()
    """Pictures and files that are sent to the model together with the text."""
    ran: RanCall | None = None
    """What ran, if a hook or a person decided about the call; never sent to a model."""
    chat_id: str | None = None
    """The id of the chat that has written the message; never sent to a model, nor compared."""
    at: float | None = None
    """When the message was committed, in seconds since the epoch; never sent to a model, nor
    compared."""

    def __post_init__(self) -> None:
        if self.media.__class__ is not tuple:
            own_tuple(self, "media")

    if TYPE_CHECKING:  # by scripts/dev/generate.py

        def replace(
            self,
            *,
            id: str = ...,
            call_id: str = ...,
            name: str = ...,
            text: str = ...,
            outcome: CallOutcome = ...,
            media: tuple[MediaPart, ...] = ...,
            ran: RanCall | None = ...,
            chat_id: str | None = ...,
            at: float | None = ...,
        ) -> Self: ...


Message: TypeAlias = UserMessage | AssistantMessage | ToolMessage
"""A message of a history; use `role` or the class to tell the kinds apart."""


class History(Sequence[Message]):
    """A read-only view of the first `length` messages of a list that only grows.

    The cost of a view does not depend on the number of messages. A slice is a tuple. An index out
    of range raises IndexError.
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
    """Read a message from JSON text; raises msgspec.ValidationError if it is not a message."""
    return _message.decode(data)
