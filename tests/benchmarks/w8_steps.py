"""W8: K tool iterations in one chat. What one of them costs, and whether it grows with K."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

from . import byhand, ours
from .measure import Job, Options, Row, interleaved, job, micros, ours_row, ratio_row

NAME = "W8"
STEPS = (25, 100, 400)
GROWTH = 1.3  # target: 400 against 25, about an exponent of 0.1


def limit_job(calls: int) -> Job:
    script = byhand.script(calls)
    tools: byhand.Tools = {"add": byhand.Counter().add}

    async def chat() -> int:
        return await byhand.read_calls(script, [], tools)

    return job(chat, 4 * max(STEPS) // calls, calls)


def our_job(calls: int) -> Job:
    agent = ours.tool_agent(byhand.Counter(), calls)
    return job(lambda: ours.read_calls(agent), max(STEPS) // calls, calls)


def rows(options: Options) -> Iterator[Row]:
    jobs = [make(calls) for calls in STEPS for make in (limit_job, our_job)]
    samples = asyncio.run(interleaved(jobs, options.times(15)))
    limit = {n: micros(s, 4 * max(STEPS)) for n, s in zip(STEPS, samples[0::2], strict=True)}
    mine = {n: micros(s, max(STEPS)) for n, s in zip(STEPS, samples[1::2], strict=True)}
    for calls in STEPS:
        yield ratio_row(
            NAME, f"{calls} tool iterations in one chat, one", limit[calls], mine[calls]
        )
    yield ours_row(
        NAME,
        "400 iterations against 25, each",
        [b / a for a, b in zip(limit[25], limit[400], strict=True)],
        [b / a for a, b in zip(mine[25], mine[400], strict=True)],
        unit="×",
        ratio=False,
        target=GROWTH,
    )
