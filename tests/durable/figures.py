"""What one worker and one engine hold: chats that wait, chats a second, bytes and writes of one.

`scripts/durable-figures` prints them for each engine; docs/scale.md quotes them.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import resource
import sys
import time
from typing import Any

import msgspec
from tests.durable._engines import Engine, Missing, places

from hookline import Agent, Approve, Ask
from hookline.durable._client import Client
from hookline.runtimes import Durable, Journal
from hookline.testing import ScriptedModel, call

COUNT = 100
WRITTEN: list[int] = []


class Weighed:
    """A log that weighs what is appended."""

    def __init__(self, log: Any) -> None:
        self._log = log
        self.read, self.answer, self.poke = log.read, log.answer, log.poke

    async def append(self, data: bytes) -> None:
        WRITTEN.append(len(data))
        await self._log.append(data)


def weigh() -> None:
    """Let all journals of this process weigh what they record."""
    opened = Journal.open

    async def weighed(chat_id: str, log: Any) -> Journal:
        return await opened(chat_id, Weighed(log))

    Journal.open = weighed  # type: ignore[method-assign, assignment]


async def look(place: str) -> str:
    """Look something up."""
    return f"{place}: fine"


def agent(asks: bool) -> Agent[Any]:
    class ByTurn:
        """One answer for each turn of a chat, whichever chat it is."""

        name = "scripted"

        def stream(self, request: Any) -> Any:
            turn = sum(message.role == "assistant" for message in request.messages)
            one = ScriptedModel(call("look", place="here") if turn == 0 else "It is fine here.")
            return one.stream(request)

    made: Agent[Any] = Agent(ByTurn(), tools=[look], runtime=Durable())
    if asks:
        made.add_hook("preToolCall", lambda ctx: Ask("Look?"))
    return made


async def flow(engine: Engine, **options: Any) -> dict[str, float]:
    """Chats a second of one worker, and what one of them writes."""
    async with engine.worker(agent(asks=False), **options), engine.client() as client:
        await client.result(await client.start("Go."))
        WRITTEN.clear()
        begun, cpu = time.perf_counter(), time.process_time()
        ids = await asyncio.gather(*[client.start("Go.") for _ in range(COUNT)])
        await asyncio.gather(*[client.result(id) for id in ids])
        seconds, used = time.perf_counter() - begun, time.process_time() - cpu
    return {
        "chats a second": COUNT / seconds,
        "ms of CPU a chat": 1000 * used / COUNT,
        "appends a chat": len(WRITTEN) / COUNT,
        "bytes a chat": sum(WRITTEN) / COUNT,
    }


async def waits(engine: Engine) -> dict[str, float]:
    """What chats that wait for an answer leave in the worker, once they are put aside."""
    async with engine.worker(agent(asks=True)) as worker, engine.client() as client:
        ids = [await client.start("Go.") for _ in range(COUNT)]
        for id in ids:
            await until_asked(client, id)
        await engine.at_rest(worker)
        gc.collect()
        held = sum(isinstance(each, Journal) for each in gc.get_objects())
        for id in ids:
            waiting = await client.pending(id)
            await client.answer(id, {waiting[0].id: Approve()})
        for id in ids:
            await client.result(id)
    return {f"chats in memory while {COUNT} wait": held}


async def until_asked(client: Client, id: str) -> None:
    while True:
        if await client.pending(id):
            return
        await asyncio.sleep(0.05)


def main() -> int:
    about = "Measures what one worker and one engine of durable chats hold, on each engine."
    argparse.ArgumentParser("durable-figures", description=about).parse_args()
    weigh()
    with places() as found:
        for name, where in found.items():
            if isinstance(where, Missing):
                print(f"{name}: not tried: {where}")
                continue
            told = {
                **asyncio.run(flow(Engine(name, where))),
                **asyncio.run(waits(Engine(name, where))),
            }
            print(f"{name}: " + ", ".join(f"{value:.4g} {what}" for what, value in told.items()))
            if name == "sqlite":
                rate = asyncio.run(flow(Engine(name, where), synchronous="NORMAL"))
                print(f"sqlite, synchronous=NORMAL: {rate['chats a second']:.4g} chats a second")
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
    print(f"all of it in one process of {peak} MiB; msgspec {msgspec.__version__}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
