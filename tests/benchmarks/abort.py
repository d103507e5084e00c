"""How long after an abort, a break or the reader's death the socket to a provider is closed.

    python -m tests.benchmarks.abort [RUNS]

The time is from the act to the moment at which the server reads the end of the connection; the
service has fallen silent in the middle of its answer. The limit that is promised is 100 ms.
"""

from __future__ import annotations

import asyncio
import sys
import warnings
from statistics import median
from typing import Any

from tests._wires import WIRES, wire

from hookline import Agent
from hookline.events import TextDelta
from hookline.testing import Turn, Wire, WireServer

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
    await asyncio.wait_for(server.left.wait(), 5)
    assert server.left_at is not None
    return server.left_at - start


def main() -> None:
    runs = int(sys.argv[1]) if len(sys.argv) > 1 else 20
    warnings.simplefilter("ignore", ResourceWarning)  # of the reader that dies
    print(f"milliseconds until the socket is closed, {runs} runs: median, worst")
    for kind in WIRES:
        for act in ACTS:
            times = [asyncio.run(once(kind, act)) * 1000 for _ in range(runs)]
            print(f"{kind:12} {act:8} {median(times):7.2f} {max(times):7.2f}", flush=True)


if __name__ == "__main__":
    main()
