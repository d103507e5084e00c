"""Wire: what it costs to write a chat's events as server-sent events, in each of the protocols.

The limit is `json.dumps` of the very dicts that were sent, each with the same frame around it. The
chat has texts, as most frames are, and tool calls. In hookline's own protocol a run that several
clients read is written once; in the others, whose frames depend on what the client has, each reader
has an encoder of its own, and the limit of that row writes each event once for all of them.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from typing import Any

from hookline import Agent
from hookline.events import ChatEvent, TextDelta
from hookline.models import Chunk, Finish, ModelRequest, TextChunk, ToolCallChunk
from hookline.web import AgUiEncoder, AiSdkEncoder, NativeEncoder

from . import byhand, ours
from .measure import Job, Options, Row, interleaved, micros, ratio_row

NAME = "Wire"
TEXTS = 900
CALLS = 5
READERS = 10
TIMES = 5  # the chat, a sample
Encode = Callable[[ChatEvent], bytes]

PROTOCOLS: dict[str, Callable[[], Any]] = {
    "native": NativeEncoder,
    "AI SDK": AiSdkEncoder,
    "AG-UI": lambda: AgUiEncoder(thread_id="t", run_id="r"),
}


class Model:
    """Calls a tool some times, then says a lot."""

    def __init__(self) -> None:
        self._calls = byhand.calls(CALLS)
        self._texts = [TextChunk(text) for text in byhand.texts(TEXTS)]

    async def stream(self, request: ModelRequest, /) -> AsyncIterator[Chunk]:
        chunks: Sequence[Chunk] = [*self._texts, Finish()]
        step = len(request.messages) // 2
        if step < CALLS:
            id, name, arguments = self._calls[step]
            call = ToolCallChunk(index=0, id=id, name=name, arguments=arguments)
            chunks = [TextChunk("Let me add. "), call, ours.CALLS]
        for chunk in chunks:
            yield chunk


async def events() -> list[ChatEvent]:
    """What happens in that chat."""
    agent: Agent[Any] = Agent(Model(), tools=[byhand.Counter().add])
    async with agent.chat_stream("go") as stream:
        return [event async for event in stream]


def dicts(data: bytes) -> list[Any]:
    """What stands in the frames, as somebody who reads them gets it."""
    found = [part.partition(b"data: ")[2] for part in data.split(b"\n\n") if part]
    return [json.loads(each) for each in found if not each.startswith(b"[")]


def limit_job(sent: Sequence[Any], readers: int = 1) -> Job:
    """Each dict dumped once, and its bytes put into so many answers."""

    async def run() -> None:
        for _ in range(TIMES):
            answers: list[list[bytes]] = [[] for _ in range(readers)]
            for each in sent:
                data = b"data: %b\n\n" % json.dumps(each, separators=(",", ":")).encode()
                for answer in answers:
                    answer.append(data)

    return run


def our_job(make: Callable[[], Any], heard: Sequence[ChatEvent], readers: int = 1) -> Job:
    """Each event written by an encoder for each reader."""

    async def run() -> None:
        for _ in range(TIMES):
            for _ in range(readers):
                encode: Encode = make().encode
                _answer = [encode(event) for event in heard]

    return run


def rows(options: Options) -> Iterator[Row]:
    heard = asyncio.run(events())
    assert sum(type(event) is TextDelta for event in heard) == TEXTS + CALLS
    wanted: list[tuple[str, Callable[[], Any], list[ChatEvent], int]] = []
    for protocol, make in PROTOCOLS.items():
        wanted.append((f"{protocol}: a chat of {TEXTS + CALLS} texts, an event", make, heard, 1))
    others = [event for event in heard if type(event) is not TextDelta]
    wanted.append(("native: its other events alone, an event", NativeEncoder, others, 1))
    what = f"AI SDK: {READERS} readers of a run, an event and reader"
    wanted.append((what, AiSdkEncoder, heard, READERS))
    jobs: list[Job] = []
    for _, make, some, readers in wanted:
        encoder = make()
        sent = dicts(b"".join([encoder.encode(event) for event in some]))
        assert len(sent) > CALLS
        jobs += [limit_job(sent, readers), our_job(make, some, readers)]
    samples = asyncio.run(interleaved(jobs, options.times(25)))
    for (what, _, some, readers), limit, mine in zip(
        wanted, samples[0::2], samples[1::2], strict=True
    ):
        units = TIMES * len(some) * readers
        yield ratio_row(NAME, what, micros(limit, units), micros(mine, units))
