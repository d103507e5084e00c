"""Chunks that an adapter may send, and what its error says of the others."""

from __future__ import annotations

from typing import Any

import pytest

from hookline import Source, Usage
from hookline._model.chunks import measure
from hookline.errors import ModelError
from hookline.models import (
    FileChunk,
    Finish,
    PartEndChunk,
    ReasoningChunk,
    SourceChunk,
    TextChunk,
    ToolCallChunk,
)


class Word(str): ...


class Named(TextChunk, frozen=True, tag="named"): ...


class Cited(SourceChunk, frozen=True, tag="cited"): ...


VALID: list[Any] = [
    TextChunk("a"),
    TextChunk(Word("a")),
    Named("a"),
    ReasoningChunk(""),
    Cited(Source(url="https://example.org")),
    PartEndChunk("text"),
    PartEndChunk("reasoning", {"signature": "x"}),
    ToolCallChunk(index=0),
    ToolCallChunk(index=True, id=Word("a"), name="b", arguments="{}", meta={"a": 1}),
    Finish(),
    Finish(finish_reason="length", usage=Usage(), model="m", response_id="r", meta={}),
]


@pytest.mark.parametrize("chunk", VALID, ids=repr)
def test_a_valid_chunk_is_measured(chunk: Any) -> None:
    text = getattr(chunk, "text", getattr(chunk, "arguments", ""))
    assert measure(chunk) == len(text.encode())


INVALID: list[tuple[Any, str]] = [
    ("text", "a str, which is not a chunk"),
    (TextChunk, "a StructMeta, which is not a chunk"),
    (TextChunk(7), "a TextChunk whose text is a int"),  # type: ignore[arg-type]
    (Named(b"a"), "a Named whose text is a bytes"),  # type: ignore[arg-type]
    (ReasoningChunk(None), "a ReasoningChunk whose text is a NoneType"),  # type: ignore[arg-type]
    (PartEndChunk("call"), "a PartEndChunk whose part is 'call'"),  # type: ignore[arg-type]
    (PartEndChunk("text", 7), "a PartEndChunk whose meta is a int"),  # type: ignore[arg-type]
    (ToolCallChunk(index="0"), "a ToolCallChunk whose index is a str"),  # type: ignore[arg-type]
    (ToolCallChunk(index=0, id=7), "a ToolCallChunk whose id is a int"),  # type: ignore[arg-type]
    (ToolCallChunk(index=0, name=7), "a ToolCallChunk whose name is a int"),  # type: ignore[arg-type]
    (Finish(finish_reason="over"), "a Finish whose finish_reason is 'over'"),  # type: ignore[arg-type]
    (Finish(finish_reason=["stop"]), "a Finish whose finish_reason is ['stop']"),  # type: ignore[arg-type]
    (Finish(usage={}), "a Finish whose usage is a dict"),  # type: ignore[arg-type]
    (SourceChunk("https://a.org"), "a SourceChunk whose source is a str"),  # type: ignore[arg-type]
    (FileChunk(b"a"), "a FileChunk whose file is a bytes"),  # type: ignore[arg-type]
]


@pytest.mark.parametrize(("chunk", "problem"), INVALID, ids=[each for _, each in INVALID])
def test_the_error_names_the_field_that_is_wrong(chunk: Any, problem: str) -> None:
    with pytest.raises(ModelError) as raised:
        measure(chunk)
    assert str(raised.value) == f"the model sent {problem}; fix its adapter"
