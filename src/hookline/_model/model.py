"""The interface to language models: takes a request and returns an async iterator of chunks.

A model's chunks and a stream's events are different types: `onDelta` sees chunks and may change
them, and events are made from the result. An adapter may send `PartEndChunk` to separate two texts;
otherwise a part ends when a chunk of another kind follows. `Finish` comes last and is required:
an answer without it counts as cut off.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from typing import TYPE_CHECKING, Any, Literal, Protocol, Self, TypeAlias, runtime_checkable

import msgspec

from hookline._base.frozen import own, own_tuple
from hookline._base.lists import as_tuple
from hookline._base.messages import (
    Data,
    FinishReason,
    History,
    MediaPart,
    Message,
    ModelAnswer,
    ModelPart,
    Reasoning,
    Source,
    Text,
    Timing,
    ToolCall,
    Usage,
    UserMessage,
)
from hookline._tools.tool import AnyTool

# ── chunks ──────────────────────────────────────────────────────────────────────────────────


class TextChunk(Data, frozen=True, tag_field="chunk", tag="text"):
    """More text of the answer."""

    text: str
    """A piece of the model's text, of any length."""

    if TYPE_CHECKING:  # by scripts/dev/generate.py

        def replace(self, *, text: str = ...) -> Self: ...


class ReasoningChunk(Data, frozen=True, tag_field="chunk", tag="reasoning"):
    """More of the model's reasoning."""

    text: str
    """A piece of the model's reasoning, of any length."""

    if TYPE_CHECKING:  # by scripts/dev/generate.py

        def replace(self, *, text: str = ...) -> Self: ...


class PartEndChunk(Data, frozen=True, tag_field="chunk", tag="part_end"):
    """The open text or reasoning part is complete; `meta` is stored with the part."""

    part: Literal["text", "reasoning"]
    """Whether the part is text or reasoning."""
    meta: dict[str, Any] | None = None
    """The provider's own data, which is stored with the part."""

    def __post_init__(self) -> None:
        if self.meta is not None:
            own(self, "meta")

    if TYPE_CHECKING:  # by scripts/dev/generate.py

        def replace(
            self, *, part: Literal["text", "reasoning"] = ..., meta: dict[str, Any] | None = ...
        ) -> Self: ...


class ToolCallChunk(Data, frozen=True, kw_only=True, tag_field="chunk", tag="call"):
    """A piece of the call at position `index`. The first piece has the name and perhaps the id.

    `meta` may come with any chunk of the call, and is stored with the call.
    """

    index: int
    """The position of the call in the answer."""
    id: str | None = None
    """The call's id; hookline makes one if the provider sends none."""
    name: str | None = None
    """The tool's name; required in a call's first chunk."""
    arguments: str = ""
    """A piece of the arguments' JSON text."""
    meta: dict[str, Any] | None = None
    """The provider's own data, which is stored with the call."""

    def __post_init__(self) -> None:
        if self.meta is not None:
            own(self, "meta")

    if TYPE_CHECKING:  # by scripts/dev/generate.py

        def replace(
            self,
            *,
            index: int = ...,
            id: str | None = ...,
            name: str | None = ...,
            arguments: str = ...,
            meta: dict[str, Any] | None = ...,
        ) -> Self: ...


class SourceChunk(Data, frozen=True, tag_field="chunk", tag="source"):
    """A page or document that the answer is based on. This chunk ends the open part."""

    source: Source
    """The whole part, which is added to the answer."""

    if TYPE_CHECKING:  # by scripts/dev/generate.py

        def replace(self, *, source: Source = ...) -> Self: ...


class FileChunk(Data, frozen=True, tag_field="chunk", tag="file"):
    """A picture or a file that the model made. This chunk ends the open part."""

    file: MediaPart
    """The whole part, which is added to the answer."""

    if TYPE_CHECKING:  # by scripts/dev/generate.py

        def replace(self, *, file: MediaPart = ...) -> Self: ...


class Finish(Data, frozen=True, kw_only=True, tag_field="chunk", tag="finish"):
    """The answer is complete."""

    finish_reason: FinishReason = "stop"
    """Why the model ended its answer."""
    usage: Usage | None = None
    """The tokens that the answer used, if the provider reports them."""
    model: str | None = None
    """The model's name, as the answer reports it."""
    response_id: str | None = None
    """The provider's id of the answer."""
    meta: dict[str, Any] | None = None
    """The provider's own data, which is stored with the message."""

    def __post_init__(self) -> None:
        if self.meta is not None:
            own(self, "meta")

    if TYPE_CHECKING:  # by scripts/dev/generate.py

        def replace(
            self,
            *,
            finish_reason: FinishReason = ...,
            usage: Usage | None = ...,
            model: str | None = ...,
            response_id: str | None = ...,
            meta: dict[str, Any] | None = ...,
        ) -> Self: ...


Delta: TypeAlias = (
    TextChunk | ReasoningChunk | PartEndChunk | ToolCallChunk | SourceChunk | FileChunk
)
"""The chunks that `onDelta` sees: all except Finish."""
Chunk: TypeAlias = Delta | Finish
"""The chunks that an adapter may yield."""


# ── requests and responses ──────────────────────────────────────────────────────────────────


class Settings(Data, frozen=True, kw_only=True):
    """Settings of model calls. `extra` is passed to the provider unchanged."""

    temperature: float | None = None
    """The sampling temperature. In all settings, None is the provider's default."""
    top_p: float | None = None
    """The probability mass for nucleus sampling (top-p)."""
    max_tokens: int | None = None
    """The maximum number of tokens of an answer."""
    stop: tuple[str, ...] = ()
    """Stop texts: the answer ends as soon as the model writes one of these texts."""
    seed: int | None = None
    """A seed for sampling; ignored by providers that do not support seeds."""
    tool_choice: str | None = None
    """"auto", "none", "required", or the name of a tool."""
    extra: dict[str, Any] | None = None
    """Fields that are passed to the provider unchanged."""

    def __post_init__(self) -> None:
        own(self, "extra")
        defaults = zip(self.__struct_fields__[::-1], self.__struct_defaults__[::-1], strict=False)
        for name, default in defaults:
            if default == ():  # also in the settings of a provider
                own_tuple(self, name)

    def over(self, other: Settings) -> Settings:
        """Return a copy in which unset fields have the values of `other`."""
        values = {name: getattr(self, name) for name in self.__struct_fields__}
        return other.replace(
            **{name: value for name, value in values.items() if value is not None and value != ()}
        )

    if TYPE_CHECKING:  # by scripts/dev/generate.py

        def replace(
            self,
            *,
            temperature: float | None = ...,
            top_p: float | None = ...,
            max_tokens: int | None = ...,
            stop: tuple[str, ...] = ...,
            seed: int | None = ...,
            tool_choice: str | None = ...,
            extra: dict[str, Any] | None = ...,
        ) -> Self: ...


DEFAULT_SETTINGS = Settings()


class OutputSchema(Data, frozen=True, kw_only=True):
    """The schema that the answer must fit, for a model with `takes_schema = True`.

    `schema` is a JSON schema of an object. Each `$ref` points to the `$defs` at the schema's root.
    """

    name: str
    """The type's name."""
    schema: dict[str, Any]
    """The JSON schema of an object."""

    def __post_init__(self) -> None:
        own(self, "schema")

    if TYPE_CHECKING:  # by scripts/dev/generate.py

        def replace(self, *, name: str = ..., schema: dict[str, Any] = ...) -> Self: ...


class ChatRequest(Data, frozen=True, kw_only=True):
    """The input of a chat; a change in `preChat` applies to all steps of the chat."""

    message: UserMessage | None
    """The user's message; None if the chat continues from its history."""
    system: str | None = None
    """The system text, without the text that scopes add."""
    tools: tuple[AnyTool, ...] = ()
    """The tools that are offered, in this order."""
    settings: Settings = DEFAULT_SETTINGS
    """The settings of the chat; fields that the chat does not set come from the agent."""

    def __post_init__(self) -> None:
        own_tuple(self, "tools")

    if TYPE_CHECKING:  # by scripts/dev/generate.py

        def replace(
            self,
            *,
            message: UserMessage | None = ...,
            system: str | None = ...,
            tools: tuple[AnyTool, ...] = ...,
            settings: Settings = ...,
        ) -> Self: ...


class ModelRequest(Data, frozen=True, kw_only=True):
    """The input of one model call; a change in `preRequest` applies only to this call."""

    model: Model
    """The model to call; a hook may replace it with another model."""
    messages: Sequence[Message]
    """The history, and the messages that hooks have added only for this call."""
    system: str | None = None
    """The system text, including the text that scopes add."""
    tools: tuple[AnyTool, ...] = ()
    """The tools that are offered in this step and may run."""
    settings: Settings = DEFAULT_SETTINGS
    """The settings of the model call."""
    output: OutputSchema | None = None
    """The type that the answer must fit; None if no type was requested."""

    def prompted(self) -> ModelRequest:
        """Return the request with a system text that describes `output`.

        Models without `takes_schema = True` get the request in this form.
        """
        if self.output is None:
            return self
        schema = msgspec.json.encode(self.output.schema).decode()
        choice = (
            f"Answer with one JSON object and nothing else. It must fit this JSON schema:\n{schema}"
        )
        system = f"{self.system}\n\n{choice}" if self.system else choice
        return msgspec.structs.replace(self, system=system, output=None)

    def __post_init__(self) -> None:
        if self.tools.__class__ is not tuple:
            own_tuple(self, "tools")
        if self.messages.__class__ is not History:  # read-only, and not copied at each step
            own_tuple(self, "messages")

    if TYPE_CHECKING:  # by scripts/dev/generate.py

        def replace(
            self,
            *,
            model: Model = ...,
            messages: Sequence[Message] = ...,
            system: str | None = ...,
            tools: tuple[AnyTool, ...] = ...,
            settings: Settings = ...,
            output: OutputSchema | None = ...,
        ) -> Self: ...


class ModelResponse(ModelAnswer, frozen=True, kw_only=True, tag_field="kind", tag="response"):
    """The answer of one model call.

    `timing` is set in `aroundRequest` if the answer came from a model and not from a hook.
    """

    parts: tuple[ModelPart, ...] = ()
    """Text, reasoning, calls, sources and files, in order."""
    finish_reason: FinishReason = "stop"
    """Why the model ended its answer."""
    usage: Usage | None = None
    """The tokens that the answer used, if the provider reports them."""
    model: str | None = None
    """The model's name, as the answer reports it."""
    response_id: str | None = None
    """The provider's id of the answer."""
    meta: dict[str, Any] | None = None
    """The provider's own data, which is stored with the message."""
    timing: Timing | None = None
    """The timing of the call; None if no model was called."""

    @classmethod
    def of(
        cls, text: str = "", *, tool_calls: Sequence[ToolCall] = (), reasoning: str = ""
    ) -> Self:
        """Make a response by hand, usually to answer from a hook."""
        tool_calls = as_tuple("tool_calls", tool_calls)
        parts: list[ModelPart] = []
        if reasoning:
            parts.append(Reasoning(reasoning))
        if text:
            parts.append(Text(text))
        parts.extend(tool_calls)
        return cls(parts=tuple(parts), finish_reason="tool_calls" if tool_calls else "stop")

    if TYPE_CHECKING:  # by scripts/dev/generate.py

        def replace(
            self,
            *,
            text: str | None = ...,
            parts: tuple[ModelPart, ...] = ...,
            finish_reason: FinishReason = ...,
            usage: Usage | None = ...,
            model: str | None = ...,
            response_id: str | None = ...,
            meta: dict[str, Any] | None = ...,
            timing: Timing | None = ...,
        ) -> Self: ...


@runtime_checkable
class Model(Protocol):
    """A language model. `stream` is usually an async generator, and is closed after the last read.

    The optional attributes `name` and `provider` identify the model in traces. A model with
    `takes_schema = True` gets the schema in `request.output`, and sends it in the provider's schema
    mode. For other models, the system text describes the schema, and `request.output` is None.
    """

    def stream(self, request: ModelRequest, /) -> AsyncIterator[Chunk]:
        """Yield the answer in chunks, with Finish last, or raise a ModelError."""
        ...


def model_name(model: Model) -> str:
    """The model's name, or the name of its class."""
    return str(getattr(model, "name", None) or type(model).__name__)


def without_foreign_items(request: ModelRequest) -> ModelRequest:
    """The request in the form that its model supports: with a schema, or described in words."""
    if getattr(request.model, "takes_schema", False):
        return request
    return request.prompted()
