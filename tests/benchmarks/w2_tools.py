"""W2: one chat makes 50 tool calls, one after the other. What one iteration costs."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

from . import byhand, ours
from .measure import Options, Row, interleaved, job, micros, ratio_row

NAME = "W2"
CALLS = 50
CHATS = 8


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
    yield ratio_row(
        NAME,
        "50 tool iterations in a streamed chat, one",
        micros(one, CHATS * 4 * CALLS),
        micros(two, CHATS * CALLS),
        target=8.0,
    )
