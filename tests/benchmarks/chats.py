"""What a chat costs whatever happens in it: with an empty answer, and streamed with one chunk."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

from hookline import Agent

from . import byhand, ours
from .measure import Options, Row, Work, interleaved, job, micros, ratio_row

NAME = "chat"
CHATS = 200


def limit_work(chunks: int) -> Work:
    texts = byhand.texts(chunks)

    async def chat() -> int:
        return await byhand.read_text(lambda _: byhand.stream(texts))

    return chat


def rows(options: Options) -> Iterator[Row]:
    silent, brief = Agent(ours.Streaming([])), Agent(ours.Streaming(byhand.texts(1)))

    async def collected() -> int:
        return len((await silent.chat("go")).text)

    async def collected_brief() -> int:
        return len((await brief.chat("go")).text)

    jobs = [
        job(limit_work(0), CHATS * 10, 0),
        job(collected, CHATS, 0),
        job(limit_work(1), CHATS * 10, 1),
        job(collected_brief, CHATS, 4),
        job(limit_work(1), CHATS * 10, 1),
        job(lambda: ours.read_text(brief), CHATS, 1),
    ]
    samples = asyncio.run(interleaved(jobs, options.times(25)))
    names = ("chat() with an empty answer", "chat() of one chunk", "chat_stream() of one chunk")
    for what, limit, mine in zip(names, samples[0::2], samples[1::2], strict=True):
        yield ratio_row(NAME, what, micros(limit, CHATS * 10), micros(mine, CHATS))
