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
from hookline._base.input import cleaned
from hookline._base.json import BadArguments, clean_data, clean_text, parse_arguments
from hookline._base.messages import MediaPart, ModelPart, Reasoning, Source, Text, Timing, ToolCall
from hookline._model.model import Finish, ModelResponse, ToolCallChunk

PartKind = Literal["text", "reasoning"]


class _Call(msgspec.Struct, eq=False):
    """A call that is being assembled."""

    id: str
    name: str
    text: list[str]
    size: int
    meta: dict[str, Any] | None = None


class Assembly(msgspec.Struct, eq=False):
    """One answer that is being assembled. `taken` has the call ids of this conversation."""

    taken: dict[str, int | None]
    chat_id: str
    iteration: int
    limit: int  # the most bytes that the arguments of a call may have
    calls: dict[int, _Call] = {}
    parts: list[Any] = []
    pieces: int = 0  # the number of pieces of all complete texts
    source: PartKind | None = None  # the kind that the model is sending
    kind: PartKind | None = None  # the kind of the open part, which hooks may have changed
    text: list[str] = []  # the pieces of the open part
    shown: bool = False  # whether the open part is not blank, so that its pieces are shown
    began: float = 0.0  # when the model was called
    first: float | None = None  # when its first chunk arrived
    waited: float = 0.0  # how long the chat had waited for its reader when the model was called
    hot: bool = False  # whether the fast path applies: shown text that hooks have not changed

    def open(self, kind: PartKind) -> None:
        """Begin a text or reasoning part."""
        self.kind = kind

    def add(self, text: str) -> str:
        """Add a piece to the open part; returns the text to show.

        Blank text does not count as text, so a blank beginning is held back until more arrives.
        """
        self.text.append(text)
        if self.shown:
            return text
        whole = "".join(self.text)
        if not whole.strip():
            return ""
        self.shown = True
        self.hot = self.kind == "text" == self.source
        return whole

    def close(self, meta: dict[str, Any] | None = None) -> None:
        """Complete the open part. Blank text is dropped, as is blank reasoning without `meta`."""
        kind, self.kind = self.kind, None
        text = "".join(self.text)
        self.pieces += len(self.text)
        self.text = []
        self.shown = self.hot = False
        if kind == "text" and text.strip():
            self.parts.append(Text(text, clean_data(meta)))
        elif kind == "reasoning" and (meta or text.strip()):
            said = text if text.strip() else ""  # text that was not shown is not stored
            self.parts.append(Reasoning(said, clean_data(meta)))

    def add_part(self, part: Source | MediaPart) -> Source | MediaPart:
        """Add a whole part and return it as stored; no text or reasoning part may be open."""
        made = cleaned(part)
        self.parts.append(made)
        return made

    def call(self, chunk: ToolCallChunk) -> tuple[str, str]:
        """Add a piece of a call; returns the call's id and name."""
        index, text = chunk.index, chunk.arguments
        call = self.calls.get(index)
        if call is not None:
            if text and call.size <= self.limit:
                call.text.append(text)
                call.size += len(text)
        else:
            name = chunk.name  # an empty name is treated as an unknown tool
            if name is None:
                raise ModelError(f"the first chunk of call {index} must have a name, not {chunk!r}")
            if not name.isascii():
                name = clean_text(name)
            call = self.calls[index] = _Call(self._unique(chunk.id, index), name, [text], len(text))
            self.parts.append(call)
        if chunk.meta is not None:
            call.meta = clean_data(chunk.meta)
        return call.id, call.name

    def _unique(self, id: str | None, index: int) -> str:
        return unique_id(id or made_id(self.chat_id, self.iteration, index), self.taken)

    def forget(self) -> None:
        """Discard the answer and free its ids."""
        for part in self.parts:
            if isinstance(part, (_Call, ToolCall)):
                self.taken.pop(part.id, None)
                base = part.id.rpartition("_")[0]
                if base in self.taken:
                    self.taken[base] = None  # the numbers after this id are free again, too

    def given(self, call: ToolCall, index: int) -> ToolCall:
        """Add a whole call that a hook wrote."""
        found = self._unique(call.id, index)
        call = call if found == call.id else call.replace(id=found)
        self.parts.append(call)
        return call

    def recall(self, response: ModelResponse) -> None:
        """Restore an answer that was recorded in an earlier life of the chat."""
        self.parts = list(response.parts)
        self.taken.update({call.id: None for call in response.tool_calls})

    def whole(self) -> tuple[ModelPart, ...]:
        """The parts of an answer that has no unfinished calls."""
        return tuple(self.parts)

    def timing(self, now: float, waited: float) -> Timing | None:
        """The timing of the call so far; None before the first chunk."""
        if self.first is None:
            return None
        chunks = self.pieces + len(self.text) + sum([len(c.text) for c in self.calls.values()])
        return Timing(
            first_chunk=self.first - self.began,
            duration=now - self.began,
            chunks=chunks,
            reader_wait=waited - self.waited,
        )

    def finish(self, finish: Finish, timing: Timing | None = None) -> ModelResponse:
        """Complete the answer; `timing` is the timing of the call, if it was measured."""
        parts = self.parts
        if self.calls:
            cut = parts[-1] if finish.finish_reason == "length" else None
            for place, part in enumerate(parts):
                if type(part) is _Call:
                    parts[place] = self._parsed(part, part is cut)
        return ModelResponse(
            parts=tuple(parts),
            finish_reason=finish.finish_reason,
            usage=finish.usage,
            model=finish.model and clean_data(finish.model),
            response_id=finish.response_id and clean_data(finish.response_id),
            meta=finish.meta and clean_data(finish.meta),
            timing=timing,
        )

    def _parsed(self, call: _Call, cut: bool) -> ToolCall:
        text = call.text[0] if len(call.text) == 1 else "".join(call.text)
        if not cut or text.strip():  # otherwise the answer was cut off before the arguments
            try:
                arguments = parse_arguments(text, limit=self.limit)
                return ToolCall(id=call.id, name=call.name, arguments=arguments, meta=call.meta)
            except BadArguments:
                pass
        return ToolCall(id=call.id, name=call.name, raw=text, meta=call.meta)

    def partial(self) -> tuple[ModelPart, ...]:
        """The parts of an answer that was cut off, without its calls."""
        self.close()
        return tuple(part for part in self.parts if not isinstance(part, (_Call, ToolCall)))


MAX_ID: Final = 64
_FOREIGN: Final = re.compile(r"[^A-Za-z0-9_-]")


def unique_id(id: str, taken: dict[str, int | None]) -> str:
    """Reserve an id that every provider accepts: `id` itself, or a variant that is not taken.

    A taken id gets a number as a suffix. `taken` stores the last number that was tried for each id,
    so that a thousand calls with the same id need no quadratic search.
    """
    base = _FOREIGN.sub("_", id)[:MAX_ID]
    found, n = base, taken.get(base) or 1
    while found in taken:
        n += 1
        suffix = f"_{n}"
        found = base[: MAX_ID - len(suffix)] + suffix
    if found != base:
        taken[base] = n
    taken[found] = None
    return found


def made_id(chat_id: str, iteration: int, index: int) -> str:
    """Make an id for a call that has none."""
    return f"call_{chat_id[:8]}_{iteration}_{index}"


def kept(parts: tuple[ModelPart, ...]) -> tuple[ModelPart, ...]:
    """The parts as history stores them: without blank text, and with `{}` for invalid arguments."""
    for part in parts:
        if (type(part) is ToolCall and part.raw is not None) or (
            type(part) is Text and not part.text.strip()
        ):
            break
    else:
        return parts
    out: list[ModelPart] = []
    for part in parts:
        if type(part) is ToolCall and part.raw is not None:
            part = part.replace(raw=None)
        if type(part) is not Text or part.text.strip():
            out.append(part)
    return tuple(out)


def unique_calls(
    response: ModelResponse,
    before: ModelResponse,
    taken: dict[str, int | None],
    chat_id: str,
    iteration: int,
) -> ModelResponse:
    """Give the calls of a changed response ids that this chat has not used elsewhere."""
    free = {call.id for call in before.tool_calls}
    parts: list[ModelPart] = []
    for index, part in enumerate(response.parts):
        if type(part) is ToolCall:
            found = part.id or made_id(chat_id, iteration, index)
            if found in free:
                free.discard(found)
                taken.setdefault(found, None)
            else:
                found = unique_id(found, taken)
            part = part if found == part.id else part.replace(id=found)
        parts.append(part)
    return response.replace(parts=tuple(parts))
