"""`stream.partial_outputs()`: the answer as data while it is written."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any, Self

from hookline._base.events import (
    ChatDone,
    ChatEvent,
    ResponseReset,
    StepStarted,
    TextDelta,
)
from hookline._base.json import to_json_data
from hookline._model.output import Form
from hookline._model.partial import NOTHING


class PartialOutputs:
    """The answer so far as JSON data, after each change; the last item is the output.

    The data start over with each new answer: at another step, and after ResponseReset. Raises the
    exceptions of the stream.
    """

    __slots__ = ("_events", "_form", "_last", "_text")

    def __init__(self, events: AsyncIterator[ChatEvent], form: Form) -> None:
        self._events = events
        self._form = form
        self._text = ""
        self._last: Any = NOTHING

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Any:
        while True:
            event = await anext(self._events)
            if event.path:
                continue  # a sub-agent's
            value: Any = NOTHING
            if isinstance(event, (StepStarted, ResponseReset)):
                self._text = ""
                self._last = NOTHING
            elif isinstance(event, TextDelta):
                self._text += event.text
                value = self._form.partial(self._text)
            elif isinstance(event, ChatDone) and event.response.stop_reason is None:
                value = to_json_data(event.response.output)
            if value is not NOTHING and (self._last is NOTHING or value != self._last):
                self._last = value
                return value
