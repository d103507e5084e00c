"""A worker whose process dies in a step of one chat, and of no other; and its supervisor.

The arguments of the worker: the engine, its address, options as JSON, a trace, and where it dies:
"model" or "tool".
"""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from importlib import import_module
from pathlib import Path
from typing import Any

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
    """Calls the tool once, then ends; some die."""

    name = "lethal"

    def __init__(self, dies: bool) -> None:
        self._dies = dies

    async def stream(self, request: Any) -> Any:
        if self._dies and request.messages[0].text == "poison":
            os._exit(9)
        if len(request.messages) == 1:
            yield ToolCallChunk(index=0, id="c", name="work", arguments="{}")
            yield Finish(finish_reason="tool_calls")
        else:
            yield TextChunk("Done.")
            yield Finish(finish_reason="stop")


class Supervisor:
    """Begins a worker again whenever it dies, a limited number of times."""

    def __init__(self, engine: Engine, trace: Path, where: str, **options: float) -> None:
        options = {**engine.options(), **options}
        self.arguments = engine.name, engine.address, json.dumps(options), str(trace), where
        self.deaths = 0

    async def run(self) -> None:
        forks = Forks("tests.durable._lethal", f"hookline.durable.{self.arguments[0]}")
        try:
            while self.deaths <= 2 * MAX_DEATHS:
                worker = forks.begin(*self.arguments)
                try:
                    while worker.runs():  # noqa: ASYNC110
                        await asyncio.sleep(0.01)
                    self.deaths += 1
                finally:
                    worker.kill()
        finally:
            forks.close()


@asynccontextmanager
async def supervised(
    engine: Engine, trace: Path, where: str, **options: float
) -> AsyncIterator[Supervisor]:
    supervisor = Supervisor(engine, trace, where, **options)
    running = asyncio.create_task(supervisor.run())
    try:
        yield supervisor
    finally:
        running.cancel()
        await asyncio.wait([running])


async def register(engine: Engine, client: Client) -> None:
    """Make the workers known to Restate."""
    async with engine.worker(Agent(ScriptedModel("Hi."), runtime=Durable())):
        await client.result(await client.start("Hi."))


async def main(engine: str, address: str, options: str, trace: str, where: str) -> None:
    lines = Trace(trace)

    @tool(idempotent=True)
    async def work(run: Run[Any]) -> str:
        """Work for a while, or die."""
        if where == "tool" and run.chat_id == "poison":
            lines.note("poison", "dies")
            os._exit(9)
        lines.note(run.chat_id, "begins")
        await asyncio.sleep(0.3)
        return "worked"

    agent: Agent[Any] = Agent(Model(where == "model"), tools=[work], runtime=Durable())
    module = import_module(f"hookline.durable.{engine}")
    await module.chats(agent, address, **json.loads(options)).run()
