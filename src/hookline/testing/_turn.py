"""One turn of a scripted model, and the calls in it, as chunks.

`Turn` has more than six options, all by keyword. Each is a way in which a stream may behave or
fail.
"""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from itertools import count
from typing import Any, Final, Literal, TypeAlias, cast

from hookline import (
    File,
    Image,
    ModelRequest,
    ModelResponse,
    Reasoning,
    Source,
    Text,
    ToolCall,
    Usage,
)
from hookline.models import (
    Chunk,
    FileChunk,
    Finish,
    PartEndChunk,
    ReasoningChunk,
    SourceChunk,
    TextChunk,
    ToolCallChunk,
)
from hookline.points import as_tuple

Part: TypeAlias = str | Text | Reasoning | ToolCall | Source | Image | File | Chunk
"""A piece of a turn."""
Delay: TypeAlias = float | Callable[[], Awaitable[object]]
"""Seconds, or an async callable that is awaited."""
Numbers: TypeAlias = Callable[[], str]
PartKind: TypeAlias = Literal["text", "reasoning"]
FinishReason: TypeAlias = Literal["stop", "tool_calls", "pause", "length", "refusal", "other"]

ESTIMATE: Final = Usage()  # the default of `usage=`, compared by identity: count the tokens
INPUT_TOKENS: Final = 10
CHARS_PER_TOKEN: Final = 4


# ── calls ───────────────────────────────────────────────────────────────────────────────────


def call(
    name: str,
    arguments: Mapping[str, Any] | None = None,
    /,
    *,
    call_id: str | None = None,
    **more: Any,
) -> ToolCall:
    """Make a call for a script: `call("weather", city="Paris")`.

    Without `call_id=`, the script numbers its calls: "call_1", "call_2" and so on. For an argument
    that is named `call_id`, use a dict: `call("find", {"call_id": 7})`. Raises TypeError for an id
    that is not a str.
    """
    if call_id is not None and not isinstance(call_id, str):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise TypeError(
            f"call_id={call_id!r} is the id of the call and must be a str; "
            f'pass an argument named call_id as call({name!r}, {{"call_id": {call_id!r}}})'
        )
    return ToolCall(id=call_id or "", name=name, arguments={**(arguments or {}), **more})


def raw_call(name: str, text: str, call_id: str | None = None) -> ToolCall:
    """Make a call with exactly this text as its arguments, such as invalid or truncated JSON."""
    return ToolCall(id=call_id or "", name=name, raw=text)


# ── one turn ────────────────────────────────────────────────────────────────────────────────


class Turn:
    """One answer of a scripted model, with control over every detail.

    The order of the answer is `reasoning=`, `text=`, the `parts` and `tool_calls=`. A str is a
    piece of streamed text. A Text, Reasoning, ToolCall, Source, Image or File is a whole part. A
    chunk is sent unchanged. `chunk` is the number of characters in each piece of text, reasoning
    and arguments; with 0, each part is sent whole. `delay` is the number of seconds before each
    chunk, or an async function that is awaited before each chunk. `fail` is an exception to raise
    after `fail_after` chunks. By default, `fail` is raised after all chunks except the Finish.
    `raw_chunks` are sent unchanged, even if they are invalid. `cleanup` is an exception to raise
    when the stream is closed. `finish_reason` and `usage` are sent in the Finish; by default, they
    are derived from the parts. With `no_finish`, no Finish is sent. Raises ValueError for
    contradictory options.
    """

    __slots__ = (
        "chunk", "cleanup", "delay", "fail", "fail_after", "finish_reason", "no_finish", "parts",
        "raw_chunks", "usage",
    )  # fmt: skip

    def __init__(
        self,
        *parts: Part,
        text: str = "",
        reasoning: str = "",
        tool_calls: Sequence[ToolCall] = (),
        finish_reason: FinishReason | None = None,
        usage: Usage | None = ESTIMATE,
        chunk: int | None = None,
        delay: Delay | None = None,
        fail: BaseException | None = None,
        fail_after: int | None = None,
        raw_chunks: Iterable[object] | None = None,
        cleanup: BaseException | None = None,
        no_finish: bool = False,
    ) -> None:
        whole: list[Part] = []
        if reasoning:
            whole.append(Reasoning(reasoning))
        if text:
            whole.append(Text(text))
        whole += [*parts, *as_tuple("tool_calls", tool_calls)]
        if raw_chunks is not None and whole:
            raise ValueError("raw_chunks= is the whole turn; leave out the other parts")
        if fail_after is not None and (fail is None or fail_after < 0):
            raise ValueError(f"fail_after={fail_after!r} needs fail= and must be at least 0")
        if chunk is not None and chunk < 0:
            raise ValueError(f"chunk={chunk!r} must be at least 0")
        objects: list[object] = list(whole)
        for part in objects:
            if not isinstance(part, _PARTS):
                raise ValueError(f"{part!r} is not part of a turn; use one of: {_PART_NAMES}")
        self.parts: tuple[Part, ...] = tuple(whole)
        self.finish_reason: FinishReason | None = finish_reason
        self.usage = usage
        self.chunk = chunk
        self.delay = delay
        self.fail = fail
        self.fail_after = fail_after
        self.raw_chunks = None if raw_chunks is None else tuple(raw_chunks)
        self.cleanup = cleanup
        self.no_finish = no_finish

    def chunks(self, size: int, numbers: Numbers, model: str) -> list[object]:
        """The chunks to stream.

        `size` is the size of a piece if the turn does not set `chunk`.
        """
        if self.raw_chunks is not None:
            return list(self.raw_chunks)
        pieces = _pieces(self.parts, size if self.chunk is None else self.chunk, numbers)
        if self.no_finish:
            return pieces
        has_calls = any(isinstance(piece, ToolCallChunk) for piece in pieces)
        reason = self.finish_reason or ("tool_calls" if has_calls else "stop")
        usage = _estimate(pieces) if self.usage is ESTIMATE else self.usage
        return [*pieces, Finish(finish_reason=reason, usage=usage, model=model)]

    def __repr__(self) -> str:
        what = self.parts if self.raw_chunks is None else self.raw_chunks
        fails = f", fail={self.fail!r}" if self.fail is not None else ""
        return f"Turn({', '.join(map(repr, what))}{fails})"


_PARTS: Final = (
    str, Text, Reasoning, ToolCall, Source, Image, File, TextChunk, ReasoningChunk, PartEndChunk,
    ToolCallChunk, SourceChunk, FileChunk, Finish,
)  # fmt: skip
_PART_NAMES: Final = "str, Text, Reasoning, ToolCall, Source, Image, File and chunks"


def _pieces(parts: Sequence[Part], size: int, numbers: Numbers) -> list[object]:
    out: list[object] = []
    calls = count()
    before: type | None = None
    for part in parts:
        is_repeat = type(part) is before
        before = None
        if isinstance(part, str):
            out += [TextChunk(piece) for piece in _cut(part, size)]
        elif isinstance(part, (Text, Reasoning)):
            kind: PartKind = "text" if isinstance(part, Text) else "reasoning"
            if is_repeat:  # without a PartEndChunk, the two parts would be joined
                out.append(PartEndChunk(kind))
            chunk = TextChunk if kind == "text" else ReasoningChunk
            out += [chunk(piece) for piece in _cut(part.text, size)]
            if part.meta is None:
                before = type(part)
            else:
                out.append(PartEndChunk(kind, part.meta))
        elif isinstance(part, ToolCall):
            out += _call_chunks(part, next(calls), size, numbers)
        elif isinstance(part, Source):
            out.append(SourceChunk(part))
        elif isinstance(part, (Image, File)):
            out.append(FileChunk(part))
        else:
            out.append(part)
    return out


def _call_chunks(part: ToolCall, index: int, size: int, numbers: Numbers) -> list[ToolCallChunk]:
    text = json.dumps(part.arguments, ensure_ascii=False) if part.raw is None else part.raw
    first, *rest = _cut(text, size) or [""]
    head = ToolCallChunk(
        index=index, id=part.id or numbers(), name=part.name, arguments=first, meta=part.meta
    )
    return [head, *(ToolCallChunk(index=index, arguments=piece) for piece in rest)]


def _cut(text: str, size: int) -> list[str]:
    if size == 0:
        return [text] if text else []
    return [text[start : start + size] for start in range(0, len(text), size)]


def _estimate(pieces: Iterable[object]) -> Usage:
    """Count one token per four characters, rounded up."""
    chars = 0
    for piece in pieces:
        if isinstance(piece, (TextChunk, ReasoningChunk)):
            chars += len(piece.text)
        elif isinstance(piece, ToolCallChunk):
            chars += len(piece.arguments)
    return Usage(input_tokens=INPUT_TOKENS, output_tokens=-(-chars // CHARS_PER_TOKEN))


# ── turns in other forms ───────────────────────────────────────────────────────────────────────

Answer: TypeAlias = Part | Sequence[Part] | BaseException | ModelResponse | Turn
"""The forms in which one turn of a script can be written."""
ScriptTurn: TypeAlias = Answer | Callable[[ModelRequest], Answer | Awaitable[Answer]]
"""A turn, or a function, sync or async, that takes the request and returns a turn."""


def as_turn(answer: object) -> Turn:
    """Convert an answer to a Turn; raises ValueError if it is not a valid turn."""
    if isinstance(answer, Turn):
        return answer
    if isinstance(answer, BaseException):
        return Turn(fail=answer)
    if isinstance(answer, ModelResponse):
        finish = Finish(
            finish_reason=answer.finish_reason,
            usage=answer.usage,
            model=answer.model,
            response_id=answer.response_id,
            meta=answer.meta,
        )
        return Turn(*answer.parts, finish, no_finish=True)
    if isinstance(answer, (list, tuple)):
        return Turn(*cast("Sequence[Part]", answer))
    return Turn(cast("Part", answer))
