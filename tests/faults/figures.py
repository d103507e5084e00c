"""What a part of the table gives: figures, some of which have to be something.

An invariant is a figure with a bound. A part that has tried nothing has shown nothing, so the
number of tries has a bound, too.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from random import Random
from statistics import quantiles
from typing import Protocol


@dataclass(frozen=True)
class Figure:
    """One line of the table. `most` and `least` are what must hold."""

    part: str
    what: str
    value: float
    unit: str = ""
    most: float | None = None
    least: float | None = None
    note: str = ""

    @property
    def ok(self) -> bool | None:
        """Whether what must hold does; None where nothing has to."""
        if self.most is None and self.least is None:
            return None
        return not (
            (self.most is not None and self.value > self.most)
            or (self.least is not None and self.value < self.least)
            or self.value != self.value  # not a number
        )


class Findings:
    """How often each invariant was broken, and where first."""

    def __init__(self, *names: str) -> None:
        self.counts = dict.fromkeys(names, 0)
        self.first: dict[str, str] = {}

    def note(self, name: str, count: int, where: str) -> None:
        """So many were found there; none is nothing to note."""
        self.counts[name] = self.counts.get(name, 0) + count
        if count:
            self.first.setdefault(name, where)

    def take(self, found: dict[str, int], where: str) -> None:
        for name, count in found.items():
            self.note(name, count, where)

    def figures(self, part: str) -> Iterator[Figure]:
        for name, count in self.counts.items():
            note = f"first: {self.first[name]}" if name in self.first else ""
            yield Figure(part, name, count, most=0, note=note)


class Budget:
    """How long a part may take, its luck, and where it tells how far it is."""

    def __init__(
        self, seconds: float, seed: int, tell: Callable[[str], None] = lambda text: None
    ) -> None:
        self.seconds = seconds
        self.seed = seed
        self.chance = Random(seed)
        self.tell = tell
        self._until = time.monotonic() + seconds

    @property
    def left(self) -> float:
        """Seconds that are left."""
        return self._until - time.monotonic()


class Part(Protocol):
    """A module of this folder that tries something."""

    @property
    def NAME(self) -> str: ...

    @property
    def TITLE(self) -> str: ...

    @property
    def WEIGHT(self) -> float: ...

    def figures(self, budget: Budget) -> Iterator[Figure]: ...


def tries(part: str, what: str, count: int, least: int = 1, note: str = "") -> Figure:
    """How often something was tried; `least` is what it takes to have shown anything."""
    return Figure(part, what, count, least=least, note=note)


def percentiles(values: Sequence[float]) -> tuple[float, float, float]:
    """The median, the 99th percentile and the worst."""
    if len(values) == 1:
        return values[0], values[0], values[0]
    cuts = quantiles(values, n=100, method="inclusive")
    return cuts[49], cuts[98], max(values)
