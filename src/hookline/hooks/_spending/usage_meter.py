"""Measures the usage of a chat and its sub-agents: one meter per chat, linked to the root.

The counts are JSON in `run.state`, with one entry per chat: for this chat, its sub-agents, and the
chats that it continues after an approval. An entry has the total usage of its chat, so writing it
twice counts once, and a chat that continues in another process finds the earlier counts. Time in
which no process runs the chat does not count.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Final

import msgspec

from hookline import Run, Usage
from hookline.models import PriceFunction

KEY: Final = "hookline.budget"


class Entry(msgspec.Struct):
    """The usage of one chat."""

    usage: Usage = msgspec.field(default_factory=Usage)
    cost: float = 0.0  # the cost of `usage`
    steps: int = 0  # only for a sub-agent
    seconds: float = 0.0  # only for the chat itself, which includes the time of its sub-agents


class Meter:
    """The usage of a chat and its sub-agents."""

    def __init__(
        self,
        run: Run[Any],
        clock: Callable[[], float],
        parent: Meter | None,
        price: PriceFunction | None,
    ) -> None:
        self.run = run
        self.parent = parent
        self._clock = clock
        self._price = price
        self._before = self._entry(run.chat_id).seconds  # in an earlier process
        self._start = clock()

    def line(self) -> Iterator[Meter]:
        """Yield the meters of this chat and of its parents."""
        meter: Meter | None = self
        while meter is not None:
            yield meter
            meter = meter.parent

    def note(self, steps: int | None = None, *models: str) -> None:
        """Record the usage of this chat, here and in its parents.

        `steps` is the number of steps, if known. `models` are names of the model that caused the
        new usage, by default the agent's own model; the first name with a price is used.
        """
        own = self._entry(self.run.chat_id)
        more = self._cost(own.usage, models or (self.run.model,))
        for meter in self.line():
            entry = meter._entry(self.run.chat_id)
            entry.usage = self.run.usage
            entry.cost = own.cost + more
            if meter is self:
                entry.seconds = self._before + self._clock() - self._start
            elif steps is not None:
                entry.steps = steps
            entries = {self.run.chat_id: msgspec.to_builtins(entry)}
            meter.run.state[KEY] = {**meter._entries(), **entries}

    def amounts(self, steps: int) -> tuple[float, ...]:
        """The steps, tokens, seconds and cost of this chat and its sub-agents."""
        entries = [self._entry(chat_id) for chat_id in self._entries()]
        return (
            steps + sum(entry.steps for entry in entries),
            sum(entry.usage.total_tokens for entry in entries),
            sum(entry.seconds for entry in entries),
            sum(entry.cost for entry in entries),
        )

    def _cost(self, before: Usage, models: tuple[str, ...]) -> float:
        """The cost of the usage since `before`; 0 if the model has no price."""
        now = self.run.usage
        if self._price is None or now == before:
            return 0.0
        usage = Usage(
            **{
                name: max(getattr(now, name) - getattr(before, name), 0)
                for name in Usage.__struct_fields__
            }
        )
        costs = (self._price(model, usage) for model in models)
        return next((cost for cost in costs if cost is not None), 0.0)

    def _entries(self) -> dict[str, Any]:
        entries: dict[str, Any] = self.run.state.get(KEY, {})
        return entries

    def _entry(self, chat_id: str) -> Entry:
        return msgspec.convert(self._entries().get(chat_id, {}), Entry)
