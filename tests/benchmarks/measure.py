"""How the benchmarks measure: CPU time, limit and ours in turn, medians with quartiles, as rows.

A limit is the same work written by hand without any library, in the same process and measured
right before ours: on a busy machine absolute figures drift, and the two of a pair drift together.
Speed is never a test: a row that misses its target says so, and that is all.
"""

from __future__ import annotations

import gc
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from random import Random
from statistics import median, quantiles
from time import process_time_ns
from typing import Literal, Protocol

Work = Callable[[], Awaitable[int]]  # does it once, and gives how much was delivered
Job = Callable[[], Awaitable[None]]  # what one sample measures
Spread = tuple[float, float, float]  # lower quartile, median, upper quartile


@dataclass(frozen=True)
class Options:
    """How thoroughly to measure."""

    repeats: int | None = None
    quick: bool = False

    def times(self, usual: int) -> int:
        """How often to repeat what is usually repeated so often."""
        if self.repeats is not None:
            return self.repeats
        return max(3, usual // 5) if self.quick else usual


@dataclass(frozen=True)
class Row:
    """One line of the table. `low` and `high` are the quartiles of what the target is about."""

    name: str
    what: str
    unit: str
    limit: float | None
    ours: float
    ratio: float | None
    low: float
    high: float
    of: Literal["ratio", "ours"]
    target: float | None = None
    note: str = ""

    @property
    def judged(self) -> float:
        """The figure that the target is about."""
        return self.ours if self.of == "ours" or self.ratio is None else self.ratio

    @property
    def ok(self) -> bool | None:
        """Whether the target is met; None where there is none."""
        return None if self.target is None else self.judged <= self.target


class Workload(Protocol):
    """A module of this folder that measures something."""

    @property
    def NAME(self) -> str: ...

    def rows(self, options: Options) -> Iterator[Row]: ...


# ── sampling ────────────────────────────────────────────────────────────────────────────────


def job(work: Work, chats: int, delivered: int) -> Job:
    """A job that does the work so many times, each time with the right outcome."""

    async def run() -> None:
        for _ in range(chats):
            got = await work()
            assert got == delivered, f"{got} delivered instead of {delivered}"

    return run


async def cpu(run: Job) -> int:
    """The CPU nanoseconds that it takes, its own garbage included and nobody else's."""
    gc.collect()
    start = process_time_ns()
    await run()
    return process_time_ns() - start


async def interleaved(jobs: Sequence[Job], times: int) -> list[list[int]]:
    """The samples of each job, taken in turn after an unmeasured round."""
    samples: list[list[int]] = [[] for _ in jobs]
    for run in jobs:
        await run()
    for _ in range(times):
        for run, taken in zip(jobs, samples, strict=True):
            taken.append(await cpu(run))
    return samples


async def alternating(jobs: Sequence[Job], rounds: int, times: int) -> list[list[int]]:
    """The same for small differences: a sample is the sum over so many short rounds.

    What disturbs the machine for longer than a round then disturbs all jobs alike; the order is
    another in each round, since a job pays for what the one before it has left in the caches.
    """
    samples: list[list[int]] = [[] for _ in jobs]
    order = list(range(len(jobs)))
    shuffle = Random(0).shuffle
    for _ in range(times):
        gc.collect()
        for run in jobs:
            await run()
        sums = [0] * len(jobs)
        for _ in range(rounds):
            shuffle(order)
            for place in order:
                start = process_time_ns()
                await jobs[place]()
                sums[place] += process_time_ns() - start
        for total, taken in zip(sums, samples, strict=True):
            taken.append(total)
    return samples


# ── figures ─────────────────────────────────────────────────────────────────────────────────


def spread(values: Iterable[float]) -> Spread:
    """The quartiles."""
    found = list(values)
    if len(found) < 2:
        return found[0], found[0], found[0]
    low, middle, high = quantiles(found, n=4, method="inclusive")
    return low, middle, high


def ratio_row(
    name: str,
    what: str,
    limit: Sequence[float],
    ours: Sequence[float],
    *,
    unit: str = "µs",
    target: float | None = None,
    note: str = "",
) -> Row:
    """A row whose target is a ratio: the median over the pairs, with its quartiles."""
    low, ratio, high = spread(b / a for a, b in zip(limit, ours, strict=True))
    return Row(
        name=name,
        what=what,
        unit=unit,
        limit=median(limit),
        ours=median(ours),
        ratio=ratio,
        low=low,
        high=high,
        of="ratio",
        target=target,
        note=note,
    )


def ours_row(
    name: str,
    what: str,
    limit: Sequence[float] | None,
    ours: Sequence[float],
    *,
    unit: str = "µs",
    ratio: bool = True,
    target: float | None = None,
    note: str = "",
) -> Row:
    """A row whose target is a figure of ours, in `unit`; the spread is that figure's."""
    low, middle, high = spread(ours)
    floor = None if limit is None else median(limit)
    return Row(
        name=name,
        what=what,
        unit=unit,
        limit=floor,
        ours=middle,
        ratio=middle / floor if ratio and floor is not None and floor > 0 else None,
        low=low,
        high=high,
        of="ours",
        target=target,
        note=note,
    )


def micros(samples: Sequence[int], units: int) -> list[float]:
    """Nanoseconds a sample as microseconds a unit."""
    return [sample / units / 1_000 for sample in samples]
