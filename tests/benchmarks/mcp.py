"""What a call of an MCP server's tool costs over the SDK's own, and how soon a dead server is told.

    python -m tests.benchmarks.mcp

The server is a program that answers at once. Medians of 500 calls, one after the other.
"""

from __future__ import annotations

import asyncio
import sys
import time
from pathlib import Path
from statistics import median
from typing import Any

from hookline import Agent
from hookline.mcp import MCPServer, connect
from hookline.testing import ScriptedModel, call

PROGRAM = str(Path(__file__).resolve().parents[1] / "_mcp_program.py")
CALLS = 500


async def _median(work: Any) -> float:
    taken: list[float] = []
    for _ in range(CALLS):
        began = time.perf_counter()
        await work()
        taken.append(time.perf_counter() - began)
    return median(taken) * 1e3


async def _main() -> None:
    server = MCPServer.stdio(sys.executable, PROGRAM, "ok", label="ok")
    steps = [call("ok") for _ in range(18)]
    agent = Agent(ScriptedModel(*steps, "done", repeat=True))
    dying = Agent(ScriptedModel(call("dies"), "done"))
    async with connect(agent, server), connect(dying, server):
        link: Any = server._link  # pyright: ignore[reportPrivateUsage]
        client = link.client
        print(f"the SDK's call       {await _median(lambda: client.call_tool('ok', {})):6.2f} ms")
        began = time.perf_counter()
        for _ in range(10):
            await agent.chat("go")
        step = (time.perf_counter() - began) / 180 * 1e3
        print(f"a whole step with it {step:6.2f} ms")
        began = time.perf_counter()
        await dying.chat("go")
        print(f"a chat whose server dies in a call {(time.perf_counter() - began) * 1e3:6.1f} ms")


if __name__ == "__main__":
    asyncio.run(_main())
