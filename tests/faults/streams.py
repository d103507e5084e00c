"""streams: ten thousand streams open in one process: what one costs, and how fast all are aborted.

Each is a chat of its own that streams and of which some was read. `full`: the model goes on and
nobody reads, so the buffer is full. `silent`: all was read, and the model says nothing for now.
Each is measured in fresh processes, one for what Python allocates and one for what the system
gives, since asking for the first makes the second larger.
"""

from __future__ import annotations

import asyncio
import gc
import json
import sys
import time
import tracemalloc
from collections.abc import AsyncIterator, Iterator
from typing import Any

from tests._checkpoints import left_running

from hookline import Agent, ChatStream, ModelRequest
from hookline.events import ChatAborted, ChatEvent, TextDelta
from hookline.models import Chunk, TextChunk

from .figures import Budget, Figure, tries
from .invariants import gone
from .process import KIB, apart, resident

NAME = "streams"
TITLE = "many streams open in one process, each read a bit"
WEIGHT = 30

STREAMS = 10_000
READ = 5  # texts of each that are read
TRACED = 2_000  # enough to know what Python allocates, which does not depend on luck
PROBE = 500
MORE = 1.6  # how much longer one takes where there are more of them, its end included
UNTRACED = 0.8  # the same, as a part of what one takes that is traced
TOO_LONG = 60.0
TURNS = 60  # of the loop, after which every buffer is full
KINDS = {"full": "buffers full", "silent": "all read, models silent"}
ENDED = "streams that did not end with ChatAborted"
MODELS = "model streams left open"
TASKS = "tasks left"


class Model:
    """Says words for ever, or some and then nothing more."""

    name = "words"

    def __init__(self, kind: str) -> None:
        self.open = 0
        self._silent = kind == "silent"

    async def stream(self, request: ModelRequest, /) -> AsyncIterator[Chunk]:
        self.open += 1
        try:
            said = 0
            while not (self._silent and said == READ):
                yield TextChunk("word ")
                said += 1
                await asyncio.sleep(0)
            await asyncio.Event().wait()
        finally:
            self.open -= 1


async def opened(agent: Agent[Any]) -> ChatStream:
    """A stream of which some was read."""
    stream = agent.chat_stream("Say something.")
    read = 0
    while read < READ:
        read += isinstance(await anext(stream), TextDelta)
    return stream


async def ended(stream: ChatStream) -> bool:
    """Read it to its end: whether that was ChatAborted."""
    last: ChatEvent | None = None
    async for event in stream:
        last = event
    return isinstance(last, ChatAborted)


async def measured(kind: str, count: int, traced: bool) -> dict[str, Any]:
    """What so many cost, in bytes each, and how they ended."""
    model = Model(kind)
    agent: Agent[Any] = Agent(model)
    for stream in [await opened(agent) for _ in range(20)]:  # warm
        await stream.aclose()
    gc.collect()
    if traced:
        tracemalloc.start()
    before = tracemalloc.get_traced_memory()[0] if traced else resident()
    begin = time.perf_counter()
    streams = [await opened(agent) for _ in range(count)]
    opening = time.perf_counter() - begin
    for _ in range(TURNS):
        await asyncio.sleep(0)
    gc.collect()
    after = tracemalloc.get_traced_memory()[0] if traced else resident()
    tracemalloc.stop()
    assert model.open == count, f"{model.open} of {count} are open"
    return {"bytes": (after - before) / count, "opening": opening, **await end(streams, model)}


async def end(streams: list[ChatStream], model: Model) -> dict[str, Any]:
    """Abort them all, and see that it is the end."""
    begin = time.perf_counter()
    for stream in streams:
        stream.abort("enough")
    await gone(lambda: model.open, TOO_LONG)
    aborting = time.perf_counter() - begin
    wrong = [not await ended(stream) for stream in streams]
    left = await left_running()
    return {"aborting": aborting, ENDED: sum(wrong), MODELS: model.open, TASKS: len(left)}


# ── the table ───────────────────────────────────────────────────────────────────────────────


def _size(budget: Budget) -> int:
    """As many as there is time for, by what a few hundred take."""
    begin = time.monotonic()
    each = apart(NAME, "full", PROBE, 1)["opening"] / PROBE
    start = time.monotonic() - begin - each * PROBE  # of a process
    for size in (STREAMS, 5_000, 2_000, 1_000):
        takes = 2 * start + each * (UNTRACED * size + MORE * min(size, TRACED))
        if len(KINDS) * takes <= budget.left:
            return size
    return PROBE


def figures(budget: Budget) -> Iterator[Figure]:
    count = _size(budget)
    yield tries(NAME, "streams open at once", count, 1)
    found: list[dict[str, Any]] = []
    for kind, what in KINDS.items():
        budget.tell(f"{count:,} streams, {what}")
        system = apart(NAME, kind, count, 0)
        python = apart(NAME, kind, min(count, TRACED), 1)
        found += [system, python]
        yield Figure(NAME, f"{what}: resident memory each", system["bytes"] / KIB, "KiB")
        note = f"with {TRACED:,} of them" if count > TRACED else ""
        allocated = python["bytes"] / KIB
        yield Figure(NAME, f"{what}: allocated by Python each", allocated, "KiB", note=note)
        yield Figure(NAME, f"{what}: aborting all of them", system["aborting"] * 1e3, "ms")
    for name in (TASKS, MODELS, ENDED):
        yield Figure(NAME, name, sum(each[name] for each in found), most=0)


if __name__ == "__main__":
    print(json.dumps(asyncio.run(measured(sys.argv[1], int(sys.argv[2]), sys.argv[3] == "1"))))
