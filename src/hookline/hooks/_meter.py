"""What a chat and its sub-agents have used of a budget: a meter each, in a line to the root.

What was counted is JSON in `run.state`, an entry for each chat: this one, its sub-agents, and those
that it goes on from after an approval. An entry says what its chat has used in all, so writing it
twice counts once, and a chat that goes on in another process finds what was counted before. The
time in which no process runs the chat does not count.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Final

import msgspec

from hookline import Run, Usage

KEY: Final = "hookline.budget"


class Entry(msgspec.Struct):
    """What one chat has used."""

    usage: Usage = msgspec.field(default_factory=Usage)
    steps: int = 0  # of a sub-agent
    seconds: float = 0.0  # of a chat itself: a sub-agent's are within them


class Meter:
    """What a chat and its sub-agents have used."""

    def __init__(self, run: Run[Any], clock: Callable[[], float], parent: Meter | None) -> None:
        self.run = run
        self.parent = parent
        self._clock = clock
        self._before = self._entry(run.chat_id).seconds  # in an earlier process
        self._start = clock()

    def line(self) -> Iterator[Meter]:
        """This chat and those above it."""
        meter: Meter | None = self
        while meter is not None:
            yield meter
            meter = meter.parent

    def note(self, made: int | None = None) -> None:
        """Write down what this chat has used, here and above; `made` steps, if that is known."""
        for meter in self.line():
            entry = meter._entry(self.run.chat_id)
            entry.usage = self.run.usage
            if meter is self:
                entry.seconds = self._before + self._clock() - self._start
            elif made is not None:
                entry.steps = made
            told = {self.run.chat_id: msgspec.to_builtins(entry)}
            meter.run.state[KEY] = {**meter._entries(), **told}

    def used(self, made: int, price: Callable[[Usage], float] | None) -> tuple[float, ...]:
        """Steps, tokens, seconds and cost of this chat and all that belongs to it."""
        entries = [self._entry(chat_id) for chat_id in self._entries()]
        return (
            made + sum(entry.steps for entry in entries),
            sum(entry.usage.total_tokens for entry in entries),
            sum(entry.seconds for entry in entries),
            sum(price(entry.usage) for entry in entries) if price is not None else 0.0,
        )

    def _entries(self) -> dict[str, Any]:
        entries: dict[str, Any] = self.run.state.get(KEY, {})
        return entries

    def _entry(self, chat_id: str) -> Entry:
        return msgspec.convert(self._entries().get(chat_id, {}), Entry)
