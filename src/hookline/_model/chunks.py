"""Check that the values sent by a model are valid chunks. Pure functions."""

from __future__ import annotations

from typing import Any, get_args

from hookline._base.errors import ModelError
from hookline._base.messages import File, FinishReason, Image, Source, Usage
from hookline._model.model import (
    FileChunk,
    Finish,
    PartEndChunk,
    ReasoningChunk,
    SourceChunk,
    TextChunk,
    ToolCallChunk,
)

_REASONS = frozenset(get_args(FinishReason))
_MAYBE = (str, type(None))  # the type of most fields


def checked(chunk: Any) -> Any:
    """Return the chunk; raises a ModelError that names the invalid field."""
    kind = chunk.__class__
    if kind is ToolCallChunk:
        if (
            chunk.arguments.__class__ is str
            and chunk.index.__class__ is int
            and chunk.id.__class__ in _MAYBE
            and chunk.name.__class__ in _MAYBE
            and chunk.meta is None
        ):
            return chunk
    elif kind is Finish:
        if (
            chunk.finish_reason.__class__ is str
            and chunk.finish_reason in _REASONS
            and (chunk.usage is None or chunk.usage.__class__ is Usage)
            and chunk.model.__class__ in _MAYBE
            and chunk.response_id.__class__ in _MAYBE
            and chunk.meta is None
        ):
            return chunk
    elif (kind is TextChunk or kind is ReasoningChunk) and chunk.text.__class__ is str:
        return chunk
    whole = kind is SourceChunk or kind is FileChunk
    problem = _wrong_part(chunk) if whole else _problem(chunk)
    if problem:
        raise ModelError(f"the model sent {problem}; fix its adapter")
    return chunk


def _problem(chunk: Any) -> str | None:
    match chunk:
        case TextChunk() | ReasoningChunk():
            return _wrong(chunk, "text", str)
        case PartEndChunk():
            if chunk.part not in ("text", "reasoning"):
                return f"a PartEndChunk whose part is {chunk.part!r}"
            return _wrong(chunk, "meta", dict, None)
        case ToolCallChunk():
            return (
                _wrong(chunk, "index", int)
                or _wrong(chunk, "id", str, None)
                or _wrong(chunk, "name", str, None)
                or _wrong(chunk, "arguments", str)
                or _wrong(chunk, "meta", dict, None)
            )
        case Finish():
            if chunk.finish_reason not in _REASONS:
                return f"a Finish whose finish_reason is {chunk.finish_reason!r}"
            return (
                _wrong(chunk, "usage", Usage, None)
                or _wrong(chunk, "model", str, None)
                or _wrong(chunk, "response_id", str, None)
                or _wrong(chunk, "meta", dict, None)
            )
        case _:
            return f"a {type(chunk).__name__}, which is not a chunk"


def _wrong_part(chunk: SourceChunk | FileChunk) -> str | None:
    if isinstance(chunk, SourceChunk):
        return _wrong(chunk, "source", Source)
    return _wrong(chunk, "file", (Image, File))


def _wrong(chunk: Any, field: str, kind: type | tuple[type, ...], *others: None) -> str | None:
    value = getattr(chunk, field)
    if isinstance(value, kind) or (others and value is None):
        return None
    return f"a {type(chunk).__name__} whose {field} is a {type(value).__name__}"
