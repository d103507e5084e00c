"""Chunks → the parts of an answer. Pure: no I/O, no events, no hooks.

Text and reasoning are what `onDelta` let through, calls what the model wrote. Ids are made unique
here, before anybody sees them; arguments are parsed once, when the answer is complete.
"""

from __future__ import annotations

import re
from typing import Any, Final, Literal

import msgspec

from hookline._base.errors import ModelError
from hookline._base.json import BadArguments, clean_data, clean_text, parse_arguments
from hookline._base.messages import ModelPart, Reasoning, Text, ToolCall
from hookline._model.model import Finish, ModelResponse, Timing, ToolCallChunk

PartKind = Literal["text", "reasoning"]


class _Call(msgspec.Struct, eq=False):
    """A call in the making."""

    id: str
    name: str
    text: list[str]
    size: int
    meta: dict[str, Any] | None = None


class Assembly(msgspec.Struct, eq=False):
    """One answer in the making. `taken` holds the call ids that this conversation has used."""

    taken: dict[str, int | None]
    chat_id: str
    iteration: int
    limit: int  # bytes of a call's arguments
    calls: dict[int, _Call] = {}
    parts: list[Any] = []
    pieces: int = 0  # of all complete texts
    source: PartKind | None = None  # what the model is sending
    kind: PartKind | None = None  # what hooks made of it: the part that is written
    text: list[str] = []  # its pieces
    shown: bool = False  # it is not blank: its pieces are shown as they come
    hot: bool = False  # text that hooks have not changed, and shown: the fast way

    def open(self, kind: PartKind) -> None:
        """Begin a text or reasoning part."""
        self.kind = kind

    def add(self, text: str) -> str:
        """Keep a piece of the open part; gives what there is to show of it.

        Blank text is no text, so the blank beginning of a part waits for what follows.
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
        """The open part is complete. Blank text is no part; reasoning with `meta` is one."""
        kind, self.kind = self.kind, None
        text = "".join(self.text)
        self.pieces += len(self.text)
        self.text = []
        self.shown = self.hot = False
        if kind == "text" and text.strip():
            self.parts.append(Text(text, clean_data(meta)))
        elif kind == "reasoning" and (meta or text.strip()):
            said = text if text.strip() else ""  # what was not shown is not stored
            self.parts.append(Reasoning(said, clean_data(meta)))

    def call(self, chunk: ToolCallChunk) -> tuple[str, str]:
        """Take more of a call; gives its id and name."""
        index, text = chunk.index, chunk.arguments
        call = self.calls.get(index)
        if call is not None:
            if text and call.size <= self.limit:
                call.text.append(text)
                call.size += len(text)
        else:
            name = chunk.name  # an empty one is that of an unknown tool
            if name is None:
                raise ModelError(f"the first chunk of call {index} must have a name: {chunk!r}")
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
        """The answer is taken back: its ids are free again."""
        for part in self.parts:
            if isinstance(part, (_Call, ToolCall)):
                self.taken.pop(part.id, None)
                base = part.id.rpartition("_")[0]
                if base in self.taken:
                    self.taken[base] = None  # its numbers are free again, too

    def given(self, call: ToolCall, index: int) -> ToolCall:
        """Take a whole call that a hook wrote."""
        found = self._unique(call.id, index)
        call = call if found == call.id else call.replace(id=found)
        self.parts.append(call)
        return call

    def recall(self, response: ModelResponse) -> None:
        """Take an answer that was given in an earlier life of the chat."""
        self.parts = list(response.parts)
        self.taken.update({call.id: None for call in response.tool_calls})

    def whole(self) -> tuple[ModelPart, ...]:
        """The parts, where no call is in the making."""
        return tuple(self.parts)

    def finish(
        self, finish: Finish, first: float | None = None, duration: float = 0.0
    ) -> ModelResponse:
        """The whole answer; `first` and `duration` say how it went in time, where that was seen."""
        parts = self.parts
        timing: Timing | None = None
        if first is not None:
            chunks = self.pieces + sum([len(call.text) for call in self.calls.values()])
            timing = Timing(first_chunk=first, duration=duration, chunks=chunks)
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
        if not cut or text.strip():  # else it was cut before its arguments
            try:
                arguments = parse_arguments(text, limit=self.limit)
                return ToolCall(id=call.id, name=call.name, arguments=arguments, meta=call.meta)
            except BadArguments:
                pass
        return ToolCall(id=call.id, name=call.name, raw=text, meta=call.meta)

    def partial(self) -> tuple[ModelPart, ...]:
        """What there is of an answer that was cut off: text and reasoning, no calls."""
        self.close()
        return tuple(part for part in self.parts if isinstance(part, (Text, Reasoning)))


MAX_ID: Final = 64
_FOREIGN: Final = re.compile(r"[^A-Za-z0-9_-]")


def unique_id(id: str, taken: dict[str, int | None]) -> str:
    """Take an id that every provider accepts and that is not taken: `id`, or one like it.

    A number is put behind one that is taken. With each id stands the last number that was tried
    behind it, so that a thousand calls of one id are not compared with each other.
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
    """The id of a call that came without one."""
    return f"call_{chat_id[:8]}_{iteration}_{index}"


def kept(parts: tuple[ModelPart, ...]) -> tuple[ModelPart, ...]:
    """The parts as history keeps them: no blank text, and of bad arguments only `{}`."""
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
    """A response that hooks changed, with call ids that this chat has not used otherwise."""
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
