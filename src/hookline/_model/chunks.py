"""Check that the values sent by a model are valid chunks. Pure functions."""

from __future__ import annotations

from itertools import product
from types import NoneType
from typing import Any, Final, get_args

from hookline._base.errors import ModelError
from hookline._base.frozen import FrozenDict
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

_MAYBE: Final = (str, NoneType)
_META: Final = (FrozenDict, NoneType)  # a chunk freezes the dict that it is given

# The types of each field, in the order of the fields.
_FIELDS: Final[dict[type, dict[str, tuple[type, ...]]]] = {
    TextChunk: {"text": (str,)},
    ReasoningChunk: {"text": (str,)},
    PartEndChunk: {"part": (str,), "meta": _META},
    ToolCallChunk: {
        "index": (int,),
        "id": _MAYBE,
        "name": _MAYBE,
        "arguments": (str,),
        "meta": _META,
    },
    SourceChunk: {"source": (Source,)},
    FileChunk: {"file": (Image, File)},
    Finish: {
        "finish_reason": (str,),
        "usage": (Usage, NoneType),
        "model": _MAYBE,
        "response_id": _MAYBE,
        "meta": _META,
    },
}
_CALLS: Final = frozenset(product(*_FIELDS[ToolCallChunk].values()))
_ENDS: Final = frozenset(product(*_FIELDS[Finish].values()))
_TEXTS: Final = frozenset({TextChunk, ReasoningChunk})
_REASONS: Final = get_args(FinishReason)
_CHOICES: Final = {"part": ("text", "reasoning"), "finish_reason": _REASONS}


def measure(chunk: Any) -> int:
    """The bytes of a chunk that count for `Limits.answer_bytes`.

    Raises a ModelError that names the invalid field if the chunk is not valid.
    """
    kind = chunk.__class__
    text = ""
    # The chunks of every answer are found valid at once, in a tenth of the time.
    if kind in _TEXTS:
        text = chunk.text
        is_valid = text.__class__ is str
    elif kind is ToolCallChunk:
        text = chunk.arguments
        is_valid = (
            chunk.index.__class__,
            chunk.id.__class__,
            chunk.name.__class__,
            text.__class__,
            chunk.meta.__class__,
        ) in _CALLS
    elif kind is Finish:
        is_valid = (
            chunk.finish_reason in _REASONS
            and (
                chunk.finish_reason.__class__,
                chunk.usage.__class__,
                chunk.model.__class__,
                chunk.response_id.__class__,
                chunk.meta.__class__,
            )
            in _ENDS
        )
    else:
        is_valid = False
    if not is_valid:
        if problem := _problem(chunk):
            raise ModelError(f"the model sent {problem}; fix its adapter")
        # a chunk of a subclass
        text = chunk.arguments if isinstance(chunk, ToolCallChunk) else getattr(chunk, "text", "")
    return len(text.encode("utf-8", "replace")) if text else 0


def _problem(chunk: Any) -> str | None:
    """The first wrong field of a chunk. The chunk and its fields may be of subclasses."""
    name = type(chunk).__name__
    fields = next((_FIELDS[kind] for kind in _FIELDS if isinstance(chunk, kind)), None)
    if fields is None:
        return f"a {name}, which is not a chunk"
    for field, types in fields.items():
        value = getattr(chunk, field)
        if field in _CHOICES and value not in _CHOICES[field]:
            return f"a {name} whose {field} is {value!r}"
        if not isinstance(value, types):
            return f"a {name} whose {field} is a {type(value).__name__}"
    return None
