"""The seam to language models: a request in, an async iterator of typed chunks out.

A model's chunks and the stream's events are different types: chunks are what `onDelta` sees and
may change, events are what came of them. An adapter may send `PartEndChunk` to separate two
texts; where it does not, the loop ends a part when another kind of chunk follows. `Finish` comes
last and is required: an answer without it is cut off.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from typing import Any, Literal, Protocol, Self, TypeAlias, runtime_checkable

import msgspec

from hookline._base.frozen import own, own_tuples
from hookline._base.messages import (
    Data,
    FinishReason,
    History,
    Message,
    ModelPart,
    Reasoning,
    Text,
    ToolCall,
    Usage,
    UserMessage,
    calls_of,
    reasoning_of,
    text_of,
    with_text,
)
from hookline._model.tool import AnyTool

# ── chunks ──────────────────────────────────────────────────────────────────────────────────


class TextChunk(Data, frozen=True, tag_field="chunk", tag="text"):
    """More text."""

    text: str
    """As the model wrote it, of any length."""


class ReasoningChunk(Data, frozen=True, tag_field="chunk", tag="reasoning"):
    """More reasoning."""

    text: str
    """As the model wrote it, of any length."""


class PartEndChunk(Data, frozen=True, tag_field="chunk", tag="part_end"):
    """The open text or reasoning part is complete; `meta` is kept with it."""

    part: Literal["text", "reasoning"]
    """Which of the two it is."""
    meta: dict[str, Any] | None = None
    """The provider's own, kept with a reasoning part."""

    def __post_init__(self) -> None:
        own(self, "meta")


class ToolCallChunk(Data, frozen=True, kw_only=True, tag_field="chunk", tag="call"):
    """More of the call number `index`; its first chunk names it (`id` may be missing).

    `meta` is kept with the call, whichever of its chunks brings it.
    """

    index: int
    """Which call of the answer it belongs to."""
    id: str | None = None
    """Made up where the provider gives none."""
    name: str | None = None
    """Required in a call's first chunk."""
    arguments: str = ""
    """More of the JSON text."""
    meta: dict[str, Any] | None = None
    """The provider's own, kept with the call."""

    def __post_init__(self) -> None:
        own(self, "meta")


class Finish(Data, frozen=True, kw_only=True, tag_field="chunk", tag="finish"):
    """The answer is complete."""

    finish_reason: FinishReason = "stop"
    """Why the model ended."""
    usage: Usage | None = None
    """What the answer cost, where the provider tells."""
    model: str | None = None
    """The model that answered, by its own name."""
    response_id: str | None = None
    """The provider's id of the answer."""
    meta: dict[str, Any] | None = None
    """The provider's own, kept with the message."""

    def __post_init__(self) -> None:
        own(self, "meta")


Chunk: TypeAlias = TextChunk | ReasoningChunk | PartEndChunk | ToolCallChunk | Finish
"""What an adapter may yield."""
Delta: TypeAlias = TextChunk | ReasoningChunk | PartEndChunk | ToolCallChunk
"""What `onDelta` sees: a chunk that is not the Finish."""


# ── requests and responses ──────────────────────────────────────────────────────────────────


class Settings(Data, frozen=True, kw_only=True):
    """How the model is to answer. `extra` is handed to the provider as it is."""

    temperature: float | None = None
    """None: the provider's default, here and below."""
    top_p: float | None = None
    """Nucleus sampling."""
    max_tokens: int | None = None
    """The longest answer."""
    stop: tuple[str, ...] = ()
    """Texts at which the answer ends."""
    seed: int | None = None
    """A wish: left out where a provider knows none."""
    tool_choice: str | None = None
    """"auto", "none", "required", or the name of a tool."""
    extra: dict[str, Any] | None = None
    """Handed to the provider as it is."""

    def __post_init__(self) -> None:
        own(self, "extra")
        own_tuples(self, "stop")

    def over(self, other: Settings) -> Settings:
        """These settings, with the fields that they do not name taken from `other`."""
        named = {name: getattr(self, name) for name in self.__struct_fields__}
        return other.replace(
            **{name: each for name, each in named.items() if each is not None and each != ()}
        )


DEFAULT_SETTINGS = Settings()


class OutputSchema(Data, frozen=True, kw_only=True):
    """The form that the answer is to have; an adapter uses its provider's own schema mode.

    `schema` is a JSON schema of an object, whose `$ref`s point to the `$defs` at its root.
    """

    name: str
    """The type's name."""
    schema: dict[str, Any]
    """The JSON schema of an object."""

    def __post_init__(self) -> None:
        own(self, "schema")


class ChatRequest(Data, frozen=True, kw_only=True):
    """What a chat begins with; an edit in `preChat` holds for all its steps."""

    message: UserMessage | None
    """What the user says; None where the chat goes on from its history."""
    system: str | None = None
    """The system text, without what scopes add."""
    tools: tuple[AnyTool, ...] = ()
    """What is offered, in this order."""
    settings: Settings = DEFAULT_SETTINGS
    """The agent's, or those of the chat."""

    def __post_init__(self) -> None:
        own_tuples(self, "tools")


class ModelRequest(Data, frozen=True, kw_only=True):
    """What one model call is given; an edit in `preRequest` holds for this call alone."""

    model: Model
    """Who is asked; another one is a way to fall back."""
    messages: Sequence[Message]
    """The history, and what hooks have put beside it."""
    system: str | None = None
    """The system text, with what scopes add."""
    tools: tuple[AnyTool, ...] = ()
    """What is offered in this step, and may run."""
    settings: Settings = DEFAULT_SETTINGS
    """How the model is to answer."""
    output: OutputSchema | None = None
    """The form that the answer is to have, if one was asked for."""

    def prompted(self) -> ModelRequest:
        """The request with its `output` as words in the system text.

        An adapter sends it to a model that has no mode for JSON schemas.
        """
        if self.output is None:
            return self
        schema = msgspec.json.encode(self.output.schema).decode()
        asked = (
            f"Answer with one JSON object and nothing else. It must fit this JSON schema:\n{schema}"
        )
        system = f"{self.system}\n\n{asked}" if self.system else asked
        return msgspec.structs.replace(self, system=system, output=None)

    def __post_init__(self) -> None:
        own_tuples(self, "tools")
        if type(self.messages) is not History:
            own_tuples(self, "messages")


class Timing(Data, frozen=True, kw_only=True):
    """How a model call went in time, in seconds since the model was asked."""

    first_chunk: float
    """Until the first chunk came."""
    duration: float
    """Until the answer was whole."""
    chunks: int
    """How many there were."""


class ModelResponse(Data, frozen=True, kw_only=True, tag_field="kind", tag="response"):
    """What one model call answered.

    `timing` is there in `aroundRequest`, where a model was asked and not a hook answered.
    """

    parts: tuple[ModelPart, ...] = ()
    """Text, reasoning and calls, in order."""
    finish_reason: FinishReason = "stop"
    """Why the model ended."""
    usage: Usage | None = None
    """What the answer cost, where the provider tells."""
    model: str | None = None
    """The model that answered, by its own name."""
    response_id: str | None = None
    """The provider's id of the answer."""
    meta: dict[str, Any] | None = None
    """The provider's own, kept with the message."""
    timing: Timing | None = None
    """How the call went in time, where a model was asked."""

    def __post_init__(self) -> None:
        own(self, "meta")
        own_tuples(self, "parts")

    @classmethod
    def of(
        cls, text: str = "", *, tool_calls: Sequence[ToolCall] = (), reasoning: str = ""
    ) -> Self:
        """A response made by hand: the usual way to answer from a hook."""
        parts: list[ModelPart] = []
        if reasoning:
            parts.append(Reasoning(reasoning))
        if text:
            parts.append(Text(text))
        parts.extend(tool_calls)
        return cls(parts=tuple(parts), finish_reason="tool_calls" if tool_calls else "stop")

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


@runtime_checkable
class Model(Protocol):
    """A language model. `stream` is usually an async generator; it is closed when left.

    A `name` and a `provider` attribute, where there are any, name it in traces.
    """

    def stream(self, request: ModelRequest, /) -> AsyncIterator[Chunk]:
        """The answer in chunks, Finish last; raise a ModelError where it cannot be had."""
        ...


def model_name(model: Model) -> str:
    """The model's name, or that of its class."""
    return str(getattr(model, "name", None) or type(model).__name__)
