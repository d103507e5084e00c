"""sockets: from an abort to the moment at which the provider sees its connection closed.

A thousand streams are open, each on a real socket of its own, each sent a word every second and
read by a task. One after the other some are aborted, and opened anew; then streams through the
four adapters and the providers' SDKs are, beside the thousand; at last the thousand are, at once.
The servers run in the same event loop: their part, and what the thousand do, is in the figures.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from collections.abc import AsyncIterator, Iterator
from typing import Any, Self

from tests._aborts import once
from tests._checkpoints import left_running
from tests._wires import WIRES

from hookline import Agent, ChatStream, ModelRequest
from hookline.events import TextDelta
from hookline.models import Chunk, TextChunk

from .figures import Budget, Figure, percentiles, tries
from .invariants import gone
from .process import apart, many_files

NAME = "sockets"
TITLE = "from an abort to the provider's socket closed, many streams open"
WEIGHT = 15

STREAMS = 1_000
ABORTS = 200
TOO_LONG = 5.0
OPEN = "sockets not closed within 5 s"
TASKS = "tasks left"


class Provider:
    """A server that says a word a second on each connection, and notes when one is left."""

    def __init__(self) -> None:
        self.open = 0
        self.left_at = 0.0
        self.left = asyncio.Event()
        self.port = 0
        self._server: asyncio.Server | None = None

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0, backlog=STREAMS)
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(self, *exc: object) -> None:
        assert self._server is not None
        self._server.close()
        await self._server.wait_closed()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.open += 1
        gone = asyncio.ensure_future(reader.read(1))  # nothing comes, or the end does
        while not gone.done():
            writer.write(b"word \n")
            await asyncio.wait([gone], timeout=1.0)
        self.left_at = asyncio.get_running_loop().time()
        self.left.set()
        self.open -= 1
        writer.transport.abort()


class Model:
    """Streams what such a server says: the smallest adapter there could be."""

    name = "words"

    def __init__(self, port: int) -> None:
        self._port = port

    async def stream(self, request: ModelRequest, /) -> AsyncIterator[Chunk]:
        reader, writer = await asyncio.open_connection("127.0.0.1", self._port)
        try:
            while line := await reader.readline():
                yield TextChunk(line.decode())
        finally:
            writer.close()


class Reader:
    """A task that reads a stream of its own."""

    def __init__(self, agent: Agent[Any]) -> None:
        self.stream: ChatStream = agent.chat_stream("Hi.")
        self.reading = asyncio.Event()
        self.task = asyncio.create_task(self._read())

    async def _read(self) -> None:
        async with self.stream as stream:
            async for event in stream:
                if isinstance(event, TextDelta):
                    self.reading.set()


async def started(agent: Agent[Any], count: int) -> list[Reader]:
    """So many that have read something; not all at once, so that the server keeps up."""
    readers: list[Reader] = []
    while len(readers) < count:
        some = [Reader(agent) for _ in range(min(50, count - len(readers)))]
        for each in some:
            await each.reading.wait()
        readers += some
    return readers


async def one_abort(reader: Reader, server: Provider) -> float | None:
    """Seconds until the server has seen it; None where it has not in time."""
    server.left.clear()
    begin = asyncio.get_running_loop().time()
    reader.stream.abort("enough")
    try:
        await asyncio.wait_for(server.left.wait(), TOO_LONG)
    except TimeoutError:
        return None
    return server.left_at - begin


async def all_aborted(readers: list[Reader], server: Provider) -> float:
    """Seconds until no connection is open, or too long."""
    begin = time.perf_counter()
    for each in readers:
        each.stream.abort("enough")
    await gone(lambda: server.open, TOO_LONG)
    return time.perf_counter() - begin


async def through(kind: Any, seconds: float) -> list[float | None]:
    """Aborts through one adapter, for so many seconds and three at least."""
    until = time.monotonic() + seconds
    taken: list[float | None] = []
    while len(taken) < ABORTS and (len(taken) < 3 or time.monotonic() < until):
        try:
            taken.append(await once(kind, "abort"))
        except TimeoutError:
            taken.append(None)
    return taken


async def measured(streams: int, seconds: float) -> dict[str, Any]:
    """All of it; `seconds` is how long the aborts through adapters may take."""
    taken: dict[str, list[float | None]] = {"a plain socket": []}
    async with Provider() as server:
        agent: Agent[Any] = Agent(Model(server.port))
        readers = await started(agent, streams)
        opened = server.open
        for _ in range(min(ABORTS, streams)):
            reader = readers.pop(0)
            taken["a plain socket"].append(await one_abort(reader, server))
            await asyncio.wait([reader.task])
            readers += await started(agent, 1)
        for kind in WIRES:
            taken[kind] = await through(kind, seconds / len(WIRES))
        meanwhile = min(opened, server.open)
        at_once = await all_aborted(readers, server)
        await asyncio.gather(*(each.task for each in readers))
        still = server.open
    return {
        "open": meanwhile,
        "taken": {kind: [t for t in times if t is not None] for kind, times in taken.items()},
        "at once": at_once,
        OPEN: still + sum(times.count(None) for times in taken.values()),
        TASKS: len(await left_running()),
    }


def figures(budget: Budget) -> Iterator[Figure]:
    streams = max(10, min(STREAMS, (many_files(3 * STREAMS) - 200) // 2))
    budget.tell(f"{streams:,} streams")
    found = apart(NAME, streams, max(0.0, 0.6 * budget.seconds - 4))
    yield tries(NAME, "streams open meanwhile", found["open"], streams)
    for kind, taken in found["taken"].items():
        if taken:
            median, late, worst = percentiles([each * 1e3 for each in taken])
            note = f"worst {worst:.3g} ms, of {len(taken)} aborts"
            yield Figure(NAME, f"{kind}: closed after (median)", median, "ms", note=note)
            if len(taken) >= 100:
                yield Figure(NAME, f"{kind}: closed after (99th percentile)", late, "ms")
    yield Figure(NAME, "all aborted at once: closed after", found["at once"] * 1e3, "ms")
    for name in (OPEN, TASKS):
        yield Figure(NAME, name, found[name], most=0)


if __name__ == "__main__":
    many_files(3 * STREAMS)
    print(json.dumps(asyncio.run(measured(int(sys.argv[1]), float(sys.argv[2])))))
