"""The work of one hook at onDelta in one step, as one frame: a frame for each piece says little.

A hook that only held text back, until it could judge the whole of it, has changed nothing.
"""

from __future__ import annotations

from typing import Any, cast

from hookline.models import PartEndChunk, ReasoningChunk, TextChunk, ToolCallChunk
from hookline.points import OnHook
from hookline.web._http.sse import json_text, plain
from hookline.web._page.step_details import as_text
from hookline.web._runs.fired_hooks import FieldChange, HookFired

Texts = dict[str, list[str]]


class DeltaHook:
    """What one hook did with the deltas of one step."""

    def __init__(self, ctx: OnHook[Any]) -> None:
        self._first = ctx
        self._times = 0
        self._duration = 0.0
        self._outcome: str = "ok"
        self._before: Texts = {}
        self._after: Texts = {}

    def add(self, ctx: OnHook[Any]) -> None:
        """Add one run of the hook."""
        self._times += 1
        self._duration += ctx.duration
        delta = ctx.context.delta
        _add(self._before, delta)
        if ctx.outcome == "changed":
            self._outcome = "held"
            returned: Any = ctx.returned
            several = isinstance(returned, (tuple, list))
            pieces = cast("tuple[Any, ...]", returned if several else (returned,))
            for piece in pieces:
                _add(self._after, piece)
        elif ctx.outcome == "ok":
            _add(self._after, delta)
        else:
            self._outcome = ctx.outcome

    def frame(self, chat_id: str, *, details: bool) -> HookFired:
        """Return the frame of the step."""
        before, after = _joined(self._before), _joined(self._after)
        changes = [
            FieldChange(name=name, before=as_text(before.get(name)), after=as_text(after.get(name)))
            for name in {**before, **after}
            if before.get(name) != after.get(name) and (name in after or not _is_of_call(name))
        ]
        if self._outcome == "held" and changes:
            self._outcome = "changed"
        return HookFired(
            chat_id=chat_id,
            point=self._first.point,
            hook=self._first.hook,
            id=self._first.id,
            outcome=self._outcome,
            duration=round(self._duration * 1000, 3),
            times=self._times,
            changes=tuple(changes) if details and self._outcome == "changed" else (),
        )


def _add(texts: Texts, delta: Any) -> None:
    """Add a delta to the texts, by what it is a piece of."""
    match delta:
        case TextChunk(text=text):
            pieces = {"text": text}
        case ReasoningChunk(text=text):
            pieces = {"reasoning": text}
        case ToolCallChunk(index=index, name=name, arguments=arguments):
            pieces = {f"tool {index}": name or "", f"arguments {index}": arguments}
        case PartEndChunk():
            pieces = {}
        case _:
            pieces = {"parts": json_text(plain(delta))}
    for name, text in pieces.items():
        texts.setdefault(name, []).append(text)


def _is_of_call(name: str) -> bool:
    """Whether the text is of a call, which is shown as a whole after its response if it is held."""
    return name.startswith(("tool ", "arguments "))


def _joined(texts: Texts) -> dict[str, str]:
    return {name: text for name, pieces in texts.items() if (text := "".join(pieces))}
