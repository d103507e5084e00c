"""What a subscriber costs for each event: chats of 1,000 chunks with 0, 1 and 10 subscribers.

The limit is an asyncio.Queue for each subscriber, read by a task of its own like ours, and a
stream that gives way every 16 chunks, as the buffer of a chat's stream does.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

from hookline import Agent

from . import byhand, ours
from .measure import Options, Row, Work, interleaved, job, micros, ours_row

NAME = "subscribe"
COUNTS = (0, 1, 10)
CHUNKS = 1_000
EVENTS = CHUNKS + 7  # chat and step begin and end, two messages, the end of the text
CHATS = 3


def limit_work(count: int) -> Work:
    texts = byhand.texts(EVENTS)

    async def read(queue: asyncio.Queue[str | None]) -> int:
        got = 0
        while await queue.get() is not None:
            got += 1
        return got

    async def chat() -> int:
        queues: list[asyncio.Queue[str | None]] = [asyncio.Queue() for _ in range(count)]
        readers = [asyncio.create_task(read(queue)) for queue in queues]
        sent = 0
        async for chunk in byhand.stream(texts):
            for queue in queues:
                queue.put_nowait(chunk)
            sent += 1
            if sent % 16 == 0:
                await asyncio.sleep(0)
        for queue in queues:
            queue.put_nowait(None)
        return sum(await asyncio.gather(*readers))

    return chat


def our_work(count: int) -> Work:
    agent: Agent[Any] = Agent(ours.Streaming(byhand.texts(CHUNKS)))

    async def read(subscription: Any) -> int:
        got = 0
        async for _ in subscription:
            got += 1
        return got

    async def chat() -> int:
        subscriptions = [agent.subscribe(size=2 * EVENTS) for _ in range(count)]
        readers = [asyncio.create_task(read(each)) for each in subscriptions]
        await ours.read_text(agent)
        for each in subscriptions:
            each.close()
        return sum(await asyncio.gather(*readers))

    return chat


def rows(options: Options) -> Iterator[Row]:
    jobs = [
        job(make(count), chats, count * EVENTS)
        for count in COUNTS
        for make, chats in ((limit_work, CHATS), (our_work, CHATS))
    ]
    samples = asyncio.run(interleaved(jobs, options.times(15)))
    limit = [micros(taken, CHATS * EVENTS) for taken in samples[0::2]]
    mine = [micros(taken, CHATS * EVENTS) for taken in samples[1::2]]
    for what, less, more in (("first", 0, 1), ("further", 1, 2)):
        many = COUNTS[more] - COUNTS[less]
        yield ours_row(
            NAME,
            f"a {what} subscriber, an event",
            [(b - a) / many for a, b in zip(limit[less], limit[more], strict=True)],
            [(b - a) / many for a, b in zip(mine[less], mine[more], strict=True)],
        )
