"""What a chat and its sub-agents have used of a budget: a meter each, in a line to the root."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from hookline import Run, Usage


class Meter:
    """What a chat and its sub-agents have used."""

    def __init__(self, run: Run[Any], start: float, parent: Meter | None) -> None:
        self.run = run
        self.start = start
        self.parent = parent
        self.steps_below = 0
        self.tokens = self.cost = 0.0
        self._seen = (0.0, 0.0)

    def line(self) -> Iterator[Meter]:
        """This chat and those above it."""
        meter: Meter | None = self
        while meter is not None:
            yield meter
            meter = meter.parent

    def spend(self, price: Callable[[Usage], float] | None) -> None:
        """Count what this chat has used since it was last looked at, here and above."""
        usage = self.run.usage
        now = (float(usage.total_tokens), price(usage) if price is not None else 0.0)
        tokens, cost = now[0] - self._seen[0], now[1] - self._seen[1]
        self._seen = now
        for meter in self.line():
            meter.tokens += tokens
            meter.cost += cost
