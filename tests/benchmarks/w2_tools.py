"""W2: one chat makes 50 tool calls, one after the other. What one iteration costs."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from statistics import median

from . import byhand, ours
from .measure import Options, Row, interleaved, job, micros, ratio_row

NAME = "W2"
CALLS = 50
CHATS = 8
REFERENCE = 3.1  # µs of the loop by hand, where the targets in µs were set


def rows(options: Options) -> Iterator[Row]:
    times = options.times(25)
    theirs, mine = byhand.Counter(), byhand.Counter()
    script = byhand.script(CALLS)
    agent = ours.tool_agent(mine, CALLS)

    async def limit() -> int:
        return await byhand.read_calls(script, [], {"add": theirs.add})

    jobs = [
        job(limit, CHATS * 4, CALLS),
        job(lambda: ours.read_calls(agent), CHATS, CALLS),
    ]
    one, two = asyncio.run(interleaved(jobs, times))
    assert theirs.calls == CALLS * CHATS * 4 * (times + 1), theirs.calls
    assert mine.calls == CALLS * CHATS * (times + 1), mine.calls
    by_hand = micros(one, CHATS * 4 * CALLS)
    speed = REFERENCE / median(by_hand)
    yield ratio_row(
        NAME,
        "50 tool iterations in a streamed chat, one",
        by_hand,
        micros(two, CHATS * CALLS),
        target=12.0,
        note=f"this machine ran at {speed:.2f} of the speed at which targets in µs were set, where "
        f"the loop by hand took {REFERENCE} µs",
    )
