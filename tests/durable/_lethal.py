"""A worker whose process dies in a step of one chat, and of no other.

Its arguments: the engine, its address, options of the worker as JSON, a trace, and where it dies:
"model" or "tool".
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
from importlib import import_module
from typing import Any

from tests.durable._worker import Trace

from hookline import Agent, Run, tool
from hookline.models import Finish, TextChunk, ToolCallChunk
from hookline.runtimes import Durable


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


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
