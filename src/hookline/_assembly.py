"""Chunks → the parts of an answer. Pure: no I/O, no events, no hooks.

Text and reasoning are what `onDelta` let through, calls what the model wrote. Ids are made unique
here, before anybody sees them; arguments are parsed once, when the answer is complete.
"""

from __future__ import annotations

from typing import Any, Literal

from hookline._errors import ModelError
from hookline._messages import ModelPart, Reasoning, Text, ToolCall
from hookline._model import Finish, ModelResponse, ToolCallChunk
from hookline._schema import BadArguments, parse_arguments

PartKind = Literal["text", "reasoning"]


class _Call:
    __slots__ = ("id", "index", "name", "size", "text")

    def __init__(self, index: int, id: str, name: str) -> None:
        self.index = index
        self.id = id
        self.name = name
        self.text: list[str] = []
        self.size = 0


class Assembly:
    """One answer in the making. `taken` holds the call ids that this chat has used."""

    __slots__ = ("_calls", "_limit", "_mine", "_prefix", "_taken", "kind", "parts", "text")

    def __init__(self, taken: set[str], prefix: str, limit: int) -> None:
        self._taken = taken
        self._mine: list[str] = []  # the ids that this answer took
        self._prefix = prefix
        self._limit = limit
        self._calls: dict[int, _Call] = {}
        self.parts: list[Any] = []
        self.kind: PartKind | None = None  # of the part that is open
        self.text: list[str] = []  # its pieces

    def open(self, kind: PartKind) -> None:
        """Begin a text or reasoning part."""
        self.kind = kind
        self.text = []

    def close(self, meta: dict[str, Any] | None = None) -> None:
        """The open part is complete. Blank text is no part; reasoning with `meta` is one."""
        kind, self.kind = self.kind, None
        text = "".join(self.text)
        self.text = []
        if kind == "text" and text.strip():
            self.parts.append(Text(text))
        elif kind == "reasoning" and (meta or text.strip()):
            self.parts.append(Reasoning(text, meta))

    def call(self, chunk: ToolCallChunk) -> _Call:
        """Take more of a call."""
        call = self._calls.get(chunk.index)
        if call is None:
            if not chunk.name:
                raise ModelError(f"the first chunk of call {chunk.index} has no name: {chunk!r}")
            call = _Call(chunk.index, self._unique(chunk.id, chunk.index), chunk.name)
            self._calls[chunk.index] = call
            self.parts.append(call)
        if chunk.arguments and call.size <= self._limit:
            call.text.append(chunk.arguments)
            call.size += len(chunk.arguments)
        return call

    def _unique(self, id: str | None, index: int) -> str:
        taken = self._taken
        base = id or f"{self._prefix}.{index}"
        found, n = base, 1
        while found in taken:
            n += 1
            found = f"{base}.{n}"
        taken.add(found)
        self._mine.append(found)
        return found

    def forget(self) -> None:
        """The answer is taken back: its ids are free again."""
        self._taken.difference_update(self._mine)

    def given(self, call: ToolCall, index: int) -> ToolCall:
        """Take a whole call that a hook wrote."""
        found = self._unique(call.id, index)
        call = call if found == call.id else call.replace(id=found)
        self.parts.append(call)
        return call

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
            model=finish.model,
            response_id=finish.response_id,
            meta=finish.meta,
        )

    def _parsed(self, call: _Call, *, cut: bool) -> ToolCall:
        text = call.text[0] if len(call.text) == 1 else "".join(call.text)
        if cut and not text.strip():
            return ToolCall(id=call.id, name=call.name, raw=text)  # cut before its arguments
        try:
            arguments = parse_arguments(text, limit=self._limit)
        except BadArguments:
            return ToolCall(id=call.id, name=call.name, raw=text)
        return ToolCall(id=call.id, name=call.name, arguments=arguments)

    def partial(self) -> tuple[ModelPart, ...]:
        """What there is of an answer that was cut off: text and reasoning, no calls."""
        self.close()
        return tuple(part for part in self.parts if isinstance(part, (Text, Reasoning)))


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
    response: ModelResponse, before: ModelResponse, taken: set[str], prefix: str
) -> ModelResponse:
    """A response that hooks changed, with call ids that this chat has not used otherwise."""
    free = {call.id for call in before.calls}
    parts: list[ModelPart] = []
    for index, part in enumerate(response.parts):
        if type(part) is ToolCall:
            base = part.id or f"{prefix}.{index}"
            found, n = base, 1
            while found in taken and found not in free:
                n += 1
                found = f"{base}.{n}"
            free.discard(found)
            taken.add(found)
            part = part if found == part.id else part.replace(id=found)
        parts.append(part)
    return response.replace(parts=tuple(parts))
