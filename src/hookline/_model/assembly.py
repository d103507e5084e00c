"""Assemble chunks into the parts of an answer. Pure: no I/O, no events, no hooks.

Text and reasoning are assembled as `onDelta` returned them, calls as the model wrote them. Ids are
made unique here, before anything else sees them. Arguments are parsed once, when the answer is
complete.
"""

from __future__ import annotations

import re
from typing import Any, Final, Literal

import msgspec

from hookline._base.errors import ModelError
from hookline._base.frozen import EMPTY
from hookline._base.input import without_surrogates
from hookline._base.json import BadArguments, clean_data, clean_text, parse_arguments
from hookline._base.messages import MediaPart, ModelPart, Reasoning, Source, Text, Timing, ToolCall
from hookline._model.model import Finish, ModelResponse, ToolCallChunk

PartKind = Literal["text", "reasoning"]


class CallPieces(msgspec.Struct, eq=False):
    """A call that is being assembled. It stands in `Assembly.parts` where its first piece came."""

    id: str
    name: str
    text: list[str]
    size: int
    meta: dict[str, Any] | None = None


class Assembly(msgspec.Struct, eq=False):
    """One answer that is being assembled. `ids` has the call ids of this conversation."""

    ids: dict[str, int | None]
    chat_id: str
    iteration: int
    limit: int  # the most bytes that the arguments of a call may have
    calls: dict[int, CallPieces] = {}
    parts: list[Any] = []
    pieces: int = 0  # the number of pieces of all complete texts
    source: PartKind | None = None  # the kind that the model is sending
    kind: PartKind | None = None  # the kind of the open part, which hooks may have changed
    text: list[str] = []  # the pieces of the open part
    visible: bool = False  # whether the open part is not blank, so that its pieces are shown
    began: float | None = None  # when the model was called; None for an answer of a hook
    first: float | None = None  # when its first chunk arrived
    reader_seconds: float = (
        0.0  # how long the chat had waited for its reader when the model was called
    )
    hot: bool = False  # whether the fast path applies: shown text that hooks have not changed

    def add(self, text: str) -> str:
        """Add a piece to the open part; returns the text to show.

        Blank text does not count as text, so a blank beginning is held back until more arrives.
        """
        self.text.append(text)
        if self.visible:
            return text
        whole = "".join(self.text)
        if not whole.strip():
            return ""
        self.visible = True
        self.hot = self.kind == "text" == self.source
        return whole

    def close(self, meta: dict[str, Any] | None = None) -> None:
        """Complete the open part. Blank text is dropped, as is blank reasoning without `meta`."""
        kind, self.kind = self.kind, None
        text = "".join(self.text)
        self.pieces += len(self.text)
        self.text = []
        self.visible = self.hot = False
        if kind == "text" and text.strip():
            self.parts.append(Text(text, clean_data(meta)))
        elif kind == "reasoning" and (meta or text.strip()):
            stored_text = text if text.strip() else ""  # text that was not shown is not stored
            self.parts.append(Reasoning(stored_text, clean_data(meta)))

    def add_part(self, part: Source | MediaPart) -> Source | MediaPart:
        """Add a whole part and return it as stored; no text or reasoning part may be open."""
        clean_part = without_surrogates(part)
        self.parts.append(clean_part)
        return clean_part

    def call(self, chunk: ToolCallChunk) -> CallPieces:
        """Add a piece of a call; returns the call so far."""
        index, text = chunk.index, chunk.arguments
        call = self.calls.get(index)
        if call is None:
            if chunk.name is None:  # an empty name is treated as an unknown tool
                raise ModelError(f"the first chunk of call {index} must have a name, not {chunk!r}")
            id = unique_id(chunk.id or made_id(self.chat_id, self.iteration, index), self.ids)
            call = self.calls[index] = CallPieces(id, clean_text(chunk.name), [text], len(text))
            self.parts.append(call)
        elif text and call.size <= self.limit:  # the rest of longer arguments is of no use
            call.text.append(text)
            call.size += len(text)
        if chunk.meta is not None:
            call.meta = clean_data(chunk.meta)
        return call

    def forget(self) -> None:
        """Discard the answer and free its ids."""
        for part in self.parts:
            if isinstance(part, (CallPieces, ToolCall)):
                self.ids.pop(part.id, None)
                base = part.id.rpartition("_")[0]
                if base in self.ids:  # the numbers after this id are free again, too
                    self.ids[base] = None

    def with_id(self, call: ToolCall, index: int) -> ToolCall:
        """Add a whole call that a hook wrote."""
        id = unique_id(call.id or made_id(self.chat_id, self.iteration, index), self.ids)
        call = call if id == call.id else call.replace(id=id)
        self.parts.append(call)
        return call

    def recall(self, response: ModelResponse) -> None:
        """Restore an answer that was recorded in an earlier life of the chat."""
        self.parts = list(response.parts)
        self.ids.update(dict.fromkeys(call.id for call in response.tool_calls))

    def whole(self) -> tuple[ModelPart, ...]:
        """The parts of an answer that has no unfinished calls."""
        return tuple(self.parts)

    def timing(self, now: float, reader_seconds: float) -> Timing | None:
        """The timing of the call so far; None before the first chunk, and without a call."""
        if self.began is None or self.first is None:
            return None
        chunks = self.pieces + len(self.text) + sum([len(c.text) for c in self.calls.values()])
        return Timing(
            first_chunk=self.first - self.began,
            duration=now - self.began,
            chunks=chunks,
            reader_wait=reader_seconds - self.reader_seconds,
        )

    def finish(self, finish: Finish, timing: Timing | None = None) -> ModelResponse:
        """Complete the answer; `timing` is the timing of the call, if it was measured."""
        # Only the last part of an answer that became too long can be incomplete.
        cut = self.parts[-1] if finish.finish_reason == "length" and self.parts else None
        parts: list[ModelPart] = []
        for part in self.parts:
            if type(part) is CallPieces:
                text, raw = "".join(part.text), None
                arguments: dict[str, Any] = EMPTY
                try:
                    # Blank arguments are {}, unless the answer was cut off before they came.
                    if part is not cut or text.strip():
                        arguments = parse_arguments(text, limit=self.limit)
                    else:
                        raw = text
                except BadArguments:
                    raw = text
                part = ToolCall(
                    id=part.id, name=part.name, arguments=arguments, raw=raw, meta=part.meta
                )
            parts.append(part)
        return ModelResponse(
            parts=tuple(parts),
            finish_reason=finish.finish_reason,
            usage=finish.usage,
            model=finish.model and clean_data(finish.model),
            response_id=finish.response_id and clean_data(finish.response_id),
            meta=finish.meta and clean_data(finish.meta),
            timing=timing,
        )

    def partial(self) -> tuple[ModelPart, ...]:
        """The parts of an answer that was cut off, without its calls."""
        self.close()
        return tuple(part for part in self.parts if not isinstance(part, (CallPieces, ToolCall)))


MAX_ID: Final = 64
_FOREIGN: Final = re.compile(r"[^A-Za-z0-9_-]")


def unique_id(id: str, existing: dict[str, int | None]) -> str:
    """Reserve an id that every provider accepts: `id` itself, or a variant that is not taken.

    A taken id gets a number as a suffix. `existing` stores the last number that was tried for each
    id, so that a thousand calls with the same id need no quadratic search.
    """
    candidate = base = _FOREIGN.sub("_", id)[:MAX_ID]
    if base in existing:
        n = existing[base] or 1
        while candidate in existing:
            n += 1
            suffix = f"_{n}"
            candidate = base[: MAX_ID - len(suffix)] + suffix
        existing[base] = n
    existing[candidate] = None
    return candidate


def made_id(chat_id: str, iteration: int, index: int) -> str:
    """Make an id for a call that has none."""
    return f"call_{chat_id[:8]}_{iteration}_{index}"


def parts_to_store(parts: tuple[ModelPart, ...]) -> tuple[ModelPart, ...]:
    """The parts as history stores them: without blank text, and with `{}` for invalid arguments."""
    stored: tuple[ModelPart, ...] = tuple(filter(None, map(_part_to_store, parts)))
    return parts if stored == parts else stored  # the same tuple: nothing has changed


def _part_to_store(part: ModelPart) -> ModelPart | None:
    if type(part) is ToolCall:
        return part if part.raw is None else part.replace(raw=None)
    return None if type(part) is Text and not part.text.strip() else part


def unique_calls(
    response: ModelResponse,
    before: ModelResponse,
    existing: dict[str, int | None],
    chat_id: str,
    iteration: int,
) -> ModelResponse:
    """Give the calls of a changed response ids that this chat has not used elsewhere."""
    free = {call.id for call in before.tool_calls}
    parts: list[ModelPart] = []
    for index, part in enumerate(response.parts):
        if type(part) is ToolCall:
            call_id = part.id or made_id(chat_id, iteration, index)
            if (
                call_id in free
            ):  # it was in the answer before; the next call with this id gets another
                free.discard(call_id)
                existing.setdefault(call_id, None)
            else:
                call_id = unique_id(call_id, existing)
            part = part if call_id == part.id else part.replace(id=call_id)
        parts.append(part)
    return response.replace(parts=tuple(parts))
