"""A worker whose process dies in a step of one chat, and of no other; and its supervisor.

The arguments of the worker: the engine, its address, options as JSON, a trace, and where it dies:
"model", "tool", or "again": in a tool that may not run twice, which its model requests again. The
last argument is for how many seconds a call of the tool takes.
"""

from __future__ import annotations

import asyncio
import json
import os
import time
from collections.abc import AsyncIterator, Container
from contextlib import asynccontextmanager
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple

from tests.durable._engines import Engine
from tests.durable._forks import Forks
from tests.durable._worker import Trace

from hookline import Agent, Run, tool
from hookline.durable import Client
from hookline.models import Finish, TextChunk, ToolCallChunk
from hookline.runtimes import Durable
from hookline.testing import ScriptedModel

MAX_DEATHS = 3


class Model:
    """Calls the tool once, then ends; some die, and some call it again and again."""

    name = "lethal"

    def __init__(self, where: str) -> None:
        self._where = where

    async def stream(self, request: Any) -> Any:
        is_poison = request.messages[0].text == "poison"
        if is_poison and self._where == "model":
            os._exit(9)
        if len(request.messages) == 1 or (is_poison and self._where == "again"):
            id = f"c{len(request.messages)}"
            yield ToolCallChunk(index=0, id=id, name="work", arguments="{}")
            yield Finish(finish_reason="tool_calls")
        else:
            yield TextChunk("Done.")
            yield Finish(finish_reason="stop")


def up_of(trace: Path | str) -> Path:
    """The file that a worker creates once it is up."""
    return Path(f"{trace}.up")


class Supervisor:
    """Begins a worker again whenever it dies, a limited number of times."""

    def __init__(
        self, engine: Engine, trace: Path, where: str, work: float, **options: float
    ) -> None:
        options = {**engine.options(), **options}
        settings = json.dumps(options), str(trace), where, str(work)
        self.arguments = engine.name, engine.address, *settings
        self.up = up_of(trace)
        self.deaths = 0
        self.down = 0.0
        """The seconds without a worker."""

    async def run(self) -> None:
        forks = Forks("tests.durable._lethal", f"hookline.durable.{self.arguments[0]}")
        try:
            while self.deaths <= 2 * MAX_DEATHS:
                self.up.unlink(missing_ok=True)
                begin = time.monotonic()
                worker = forks.begin(*self.arguments)
                try:
                    while worker.runs() and not self.up.exists():  # noqa: ASYNC110
                        await asyncio.sleep(0.01)
                    self.down += time.monotonic() - begin
                    while worker.runs():  # noqa: ASYNC110
                        await asyncio.sleep(0.01)
                    self.deaths += 1
                finally:
                    worker.kill()
        finally:
            forks.close()


@asynccontextmanager
async def supervised(
    engine: Engine, trace: Path, where: str, work: float = 0.3, **options: float
) -> AsyncIterator[Supervisor]:
    supervisor = Supervisor(engine, trace, where, work, **options)
    running = asyncio.create_task(supervisor.run())
    try:
        yield supervisor
    finally:
        running.cancel()
        await asyncio.wait([running])


class Interruptions(NamedTuple):
    """How often the tools of the chats beside the lethal one were interrupted."""

    first: int
    """At the first death."""
    later: int


def interruptions(lines: list[str], reported: Container[str] = ()) -> Interruptions:
    """Read from a trace how often a tool was interrupted: it began again, or it was reported."""
    processes: dict[str, list[str]] = {}  # in which a chat began, by chat
    for line in lines:
        process, id, _ = line.split(" ")
        if id != "poison":
            processes.setdefault(id, []).append(process)
    first = lines[0].partition(" ")[0]
    again = [begun if id in reported else begun[:-1] for id, begun in processes.items()]
    return Interruptions(
        sum(begun.count(first) for begun in again),
        sum(process != first for begun in again for process in begun),
    )


async def register(engine: Engine, client: Client) -> None:
    """Make the workers known to Restate."""
    async with engine.worker(Agent(ScriptedModel("Hi."), runtime=Durable())):
        await client.result(await client.start("Hi."))


async def main(
    engine: str, address: str, options: str, trace: str, where: str, seconds: str
) -> None:
    lines = Trace(trace)

    @tool(idempotent=where != "again")
    async def work(run: Run[Any]) -> str:
        """Work for a while, or die."""
        if where != "model" and run.chat_id == "poison":
            lines.note("poison", "dies")
            os._exit(9)
        lines.note(run.chat_id, "begins")
        await asyncio.sleep(float(seconds))
        return "worked"

    agent: Agent[Any] = Agent(Model(where), tools=[work], runtime=Durable())
    module = import_module(f"hookline.durable.{engine}")
    async with module.chats(agent, address, **json.loads(options)):
        up_of(trace).touch()
        await asyncio.Event().wait()
