"""W1: one chat streams 2,000 chunks of four characters. What one chunk costs.

Two limits, for the figures published of other libraries are over the second one: reading the model
and nothing else, and a loop by hand that passes each chunk on to its reader and keeps the history.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator

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

    async def chat(history: list[byhand.Entry]) -> AsyncIterator[str]:
        said: list[str] = []
        async for chunk in byhand.stream(texts):
            said.append(chunk)
            yield chunk
        history.append(("assistant", "".join(said)))

    async def passed_on() -> int:
        out: list[str] = []
        history: list[byhand.Entry] = [("user", "go")]
        async for chunk in chat(history):
            out.append(chunk)
        return len(out)

    jobs = [
        job(bare, CHATS * 4, CHUNKS),
        job(lambda: ours.read_text(agent), CHATS, CHUNKS),
        job(passed_on, CHATS * 4, CHUNKS),
        job(lambda: ours.read_text(agent), CHATS, CHUNKS),
    ]
    samples = asyncio.run(interleaved(jobs, options.times(25)))
    limits = ("a chunk read", "a chunk passed on")
    for what, limit, mine in zip(limits, samples[0::2], samples[1::2], strict=True):
        yield ratio_row(
            NAME,
            f"stream of 2,000 chunks; limit: {what}",
            micros(limit, CHATS * 4 * CHUNKS),
            micros(mine, CHATS * CHUNKS),
            target=TARGET,
        )
