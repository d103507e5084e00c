"""One abort of a stream that goes through an adapter, and when the service has seen it."""

from __future__ import annotations

import asyncio
from typing import Any

from tests.wire import Wire, WireServer

from hookline import Agent
from hookline.events import TextDelta
from hookline.testing import Turn

from ._wires import wire

ACTS = ("abort", "break", "cancel", "death")
LONG = Turn(*["word "] * 200)


async def once(kind: Any, act: str) -> float:
    """Seconds until the server has seen that the connection is closed."""
    async with wire(kind, Wire(LONG, stall=6_000)) as (model, server):
        stream = Agent(model).chat_stream("Hi.")
        reading = asyncio.Event()
        loop = asyncio.get_running_loop()
        if act == "death":
            while not isinstance(await anext(stream), TextDelta):
                pass
            start = loop.time()
            del stream  # nobody else holds it, so that it needs no collector
            return await _left(server, start)
        start = 0.0

        async def read() -> None:
            nonlocal start
            async with stream:
                async for event in stream:
                    if isinstance(event, TextDelta):
                        reading.set()
                        if act == "break":
                            start = loop.time()
                            break

        task = asyncio.create_task(read())
        await reading.wait()
        if act == "abort":
            start = loop.time()
            stream.abort("enough")
        elif act == "cancel":
            start = loop.time()
            task.cancel()
        await asyncio.wait([task])
        return await _left(server, start)


async def _left(server: WireServer, start: float) -> float:
    await asyncio.wait_for(server.left.wait(), 60)
    assert server.left_at is not None
    return server.left_at - start
