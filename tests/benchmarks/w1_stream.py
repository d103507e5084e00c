"""W1: one chat streams 2,000 chunks of four characters. What one chunk costs.

The limit is the loop by hand. Beside it stands what reading the model alone costs, with no loop.
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
TARGET = 6.0


def rows(options: Options) -> Iterator[Row]:
    texts = byhand.texts(CHUNKS)
    agent = Agent(ours.Streaming(texts))

    async def bare() -> int:
        out: list[str] = []
        async for chunk in byhand.stream(texts):
            out.append(chunk)
        return len(out)

    async def by_hand() -> int:
        return await byhand.read_text(lambda _: byhand.stream(texts))

    jobs = [
        job(by_hand, CHATS * 4, CHUNKS),
        job(lambda: ours.read_text(agent), CHATS, CHUNKS),
        job(bare, CHATS * 4, CHUNKS),
        job(lambda: ours.read_text(agent), CHATS, CHUNKS),
    ]
    samples = asyncio.run(interleaved(jobs, options.times(25)))
    rows = (("stream of 2,000 chunks, one", TARGET), ("the same against reading the model", None))
    for (what, target), limit, mine in zip(rows, samples[0::2], samples[1::2], strict=True):
        yield ratio_row(
            NAME,
            what,
            micros(limit, CHATS * 4 * CHUNKS),
            micros(mine, CHATS * CHUNKS),
            target=target,
        )
