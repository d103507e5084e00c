"""Chunks → the parts of an answer. Pure: no I/O, no events, no hooks.

Text and reasoning are what `onDelta` let through, calls what the model wrote. Ids are made unique
here, before anybody sees them; arguments are parsed once, when the answer is complete.
"""

from __future__ import annotations

from typing import Any, Literal

import msgspec

from hookline._errors import ModelError
from hookline._json import BadArguments, Frozen, clean_data, clean_text, parse_arguments
from hookline._messages import ModelPart, Reasoning, Text, ToolCall
from hookline._model import Finish, ModelResponse, ToolCallChunk

PartKind = Literal["text", "reasoning"]


class _Call(msgspec.Struct, eq=False):
    id: str
    name: str
    text: list[str] = []
    size: int = 0


class Assembly(msgspec.Struct, kw_only=True, eq=False):
    """One answer in the making. `taken` holds the call ids that this conversation has used."""

    taken: set[str]
    chat_id: str
    iteration: int
    limit: int  # bytes of a call's arguments
    mine: list[str] = []  # the ids that this answer took
    calls: dict[int, _Call] = {}
    parts: list[Any] = []
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
        self.text = []
        self.shown = self.hot = False
        if kind == "text" and text.strip():
            self.parts.append(Text(text))
        elif kind == "reasoning" and (meta or text.strip()):
            said = text if text.strip() else ""  # what was not shown is not stored
            self.parts.append(Reasoning(said, clean_data(meta)))

    def call(self, chunk: ToolCallChunk) -> tuple[str, str]:
        """Take more of a call; gives its id and name."""
        call = self.calls.get(chunk.index)
        if call is None:
            name = chunk.name
            if not name:
                raise ModelError(f"the first chunk of call {chunk.index} has no name: {chunk!r}")
            call = _Call(self._unique(chunk.id, chunk.index), clean_text(name))
            self.calls[chunk.index] = call
            self.parts.append(call)
        text = chunk.arguments
        if text and call.size <= self.limit:
            call.text.append(text)
            call.size += len(text)
        return call.id, call.name

    def _unique(self, id: str | None, index: int) -> str:
        taken = self.taken
        base = clean_text(id or made_id(self.chat_id, self.iteration, index))
        found, n = base, 1
        while found in taken:
            n += 1
            found = f"{base}.{n}"
        taken.add(found)
        self.mine.append(found)
        return found

    def forget(self) -> None:
        """The answer is taken back: its ids are free again."""
        self.taken.difference_update(self.mine)

    def given(self, call: ToolCall, index: int) -> ToolCall:
        """Take a whole call that a hook wrote."""
        found = self._unique(call.id, index)
        call = call if found == call.id else call.replace(id=found)
        self.parts.append(call)
        return call

    def recall(self, response: ModelResponse) -> None:
        """Take an answer that was given in an earlier life of the chat."""
        self.parts = list(response.parts)
        self.mine = [call.id for call in response.calls]
        self.taken.update(self.mine)

    def whole(self) -> tuple[ModelPart, ...]:
        """The parts, where no call is in the making."""
        return tuple(self.parts)

    def finish(self, finish: Finish) -> ModelResponse:
        """The whole answer."""
        cut = finish.finish_reason == "length"
        parts: list[ModelPart] = []
        for part in self.parts:
            if type(part) is _Call:
                last = part is self.parts[-1]
                parts.append(self._parsed(part, cut=cut and last))
            else:
                parts.append(part)
        return ModelResponse(
            parts=tuple(parts),
            finish_reason=finish.finish_reason,
            usage=finish.usage,
            model=finish.model and clean_data(finish.model),
            response_id=finish.response_id and clean_data(finish.response_id),
            meta=finish.meta and clean_data(finish.meta),
        )

    def _parsed(self, call: _Call, *, cut: bool) -> ToolCall:
        text = call.text[0] if len(call.text) == 1 else "".join(call.text)
        if cut and not text.strip():
            return ToolCall(id=call.id, name=call.name, raw=text)  # cut before its arguments
        try:
            arguments = parse_arguments(text, limit=self.limit)
        except BadArguments:
            return ToolCall(id=call.id, name=call.name, raw=text)
        return ToolCall(id=call.id, name=call.name, arguments=Frozen(arguments))

    def partial(self) -> tuple[ModelPart, ...]:
        """What there is of an answer that was cut off: text and reasoning, no calls."""
        self.close()
        return tuple(part for part in self.parts if isinstance(part, (Text, Reasoning)))


def made_id(chat_id: str, iteration: int, index: int) -> str:
    """The id of a call that came without one."""
    return f"call_{chat_id[:8]}_{iteration}.{index}"


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
    response: ModelResponse, before: ModelResponse, taken: set[str], chat_id: str, iteration: int
) -> ModelResponse:
    """A response that hooks changed, with call ids that this chat has not used otherwise."""
    free = {call.id for call in before.calls}
    parts: list[ModelPart] = []
    for index, part in enumerate(response.parts):
        if type(part) is ToolCall:
            base = part.id or made_id(chat_id, iteration, index)
            found, n = base, 1
            while found in taken and found not in free:
                n += 1
                found = f"{base}.{n}"
            free.discard(found)
            taken.add(found)
            part = part if found == part.id else part.replace(id=found)
        parts.append(part)
    return response.replace(parts=tuple(parts))
