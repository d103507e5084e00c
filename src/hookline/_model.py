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

from hookline._messages import (
    Data,
    FinishReason,
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
from hookline._tools import AnyTool

# ── chunks ──────────────────────────────────────────────────────────────────────────────────


class TextChunk(Data, frozen=True, tag_field="chunk", tag="text"):
    """More text."""

    text: str


class ReasoningChunk(Data, frozen=True, tag_field="chunk", tag="reasoning"):
    """More reasoning."""

    text: str


class PartEndChunk(Data, frozen=True, tag_field="chunk", tag="part_end"):
    """The open text or reasoning part is complete; `meta` is kept with a reasoning part."""

    part: Literal["text", "reasoning"]
    meta: dict[str, Any] | None = None


class ToolCallChunk(Data, frozen=True, kw_only=True, tag_field="chunk", tag="call"):
    """More of the call number `index`; its first chunk names it (`id` may be missing).

    `meta` is kept with the call, whichever of its chunks brings it.
    """

    index: int
    id: str | None = None
    name: str | None = None
    arguments: str = ""
    meta: dict[str, Any] | None = None


class Finish(Data, frozen=True, kw_only=True, tag_field="chunk", tag="finish"):
    """The answer is complete."""

    finish_reason: FinishReason = "stop"
    usage: Usage | None = None
    model: str | None = None
    response_id: str | None = None
    meta: dict[str, Any] | None = None


Chunk: TypeAlias = TextChunk | ReasoningChunk | PartEndChunk | ToolCallChunk | Finish
Delta: TypeAlias = TextChunk | ReasoningChunk | PartEndChunk | ToolCallChunk


# ── requests and responses ──────────────────────────────────────────────────────────────────


class Settings(Data, frozen=True, kw_only=True):
    """How the model is to answer. `extra` is handed to the provider as it is."""

    temperature: float | None = None
    top_p: float | None = None
    max_tokens: int | None = None
    stop: tuple[str, ...] = ()
    seed: int | None = None
    tool_choice: str | None = None
    extra: dict[str, Any] | None = None


DEFAULT_SETTINGS = Settings()


class OutputSchema(Data, frozen=True, kw_only=True):
    """The form that the answer is to have; an adapter uses its provider's own schema mode.

    `schema` is a JSON schema of an object, whose `$ref`s point to the `$defs` at its root.
    """

    name: str
    schema: dict[str, Any]


class ChatRequest(Data, frozen=True, kw_only=True):
    """What a chat begins with; an edit in `preChat` holds for all its steps."""

    message: UserMessage
    system: str | None = None
    tools: tuple[AnyTool, ...] = ()
    settings: Settings = DEFAULT_SETTINGS


class ModelRequest(Data, frozen=True, kw_only=True):
    """What one model call is given; an edit in `preRequest` holds for this call alone."""

    model: Model
    messages: Sequence[Message]
    system: str | None = None
    tools: tuple[AnyTool, ...] = ()
    settings: Settings = DEFAULT_SETTINGS
    output: OutputSchema | None = None


class Timing(Data, frozen=True, kw_only=True):
    """How a model call went in time, in seconds since the model was asked."""

    first_chunk: float
    duration: float
    chunks: int


class ModelResponse(Data, frozen=True, kw_only=True, tag_field="kind", tag="response"):
    """What one model call answered.

    `timing` is there in `aroundRequest`, where a model was asked and not a hook answered.
    """

    parts: tuple[ModelPart, ...] = ()
    finish_reason: FinishReason = "stop"
    usage: Usage | None = None
    model: str | None = None
    response_id: str | None = None
    meta: dict[str, Any] | None = None
    timing: Timing | None = None

    @classmethod
    def of(cls, text: str = "", *, calls: Sequence[ToolCall] = (), reasoning: str = "") -> Self:
        """A response made by hand: the usual way to answer from a hook."""
        parts: list[ModelPart] = []
        if reasoning:
            parts.append(Reasoning(reasoning))
        if text:
            parts.append(Text(text))
        parts.extend(calls)
        return cls(parts=tuple(parts), finish_reason="tool_calls" if calls else "stop")

    @property
    def text(self) -> str:
        return text_of(self.parts)

    @property
    def reasoning(self) -> str:
        return reasoning_of(self.parts)

    @property
    def calls(self) -> tuple[ToolCall, ...]:
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

    def stream(self, request: ModelRequest, /) -> AsyncIterator[Chunk]: ...


def model_name(model: Model) -> str:
    """The model's name, or that of its class."""
    return str(getattr(model, "name", None) or type(model).__name__)
