"""W1: one chat streams 2,000 chunks of four characters. What one chunk costs.

The limit is the least loop by hand, which does little more than read the model.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

from hookline import Agent

from . import byhand, ours
from .measure import Options, Row, interleaved, job, micros, ratio_row

NAME = "W1"
CHUNKS = 2_000
CHATS = 5
TARGET = 4.5


def rows(options: Options) -> Iterator[Row]:
    texts = byhand.texts(CHUNKS)
    agent = Agent(ours.Streaming(texts))

    async def by_hand() -> int:
        return await byhand.read_text(lambda _: byhand.stream(texts))

    jobs = [
        job(by_hand, CHATS * 4, CHUNKS),
        job(lambda: ours.read_text(agent), CHATS, CHUNKS),
    ]
    limit, mine = asyncio.run(interleaved(jobs, options.times(25)))
    yield ratio_row(
        NAME,
        "stream of 2,000 chunks, one",
        micros(limit, CHATS * 4 * CHUNKS),
        micros(mine, CHATS * CHUNKS),
        target=TARGET,
    )
