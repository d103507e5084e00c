"""What a call of an MCP server's tool costs over the SDK's own, and how soon a dead server is told.

    python -m tests.benchmarks.mcp

The server is a program that answers at once. Calls are made one after the other, in rounds that
take turns; each figure is the median of its rounds: of the time that passes, and of the CPU time of
this process, which a busy machine changes less. The server that is killed is so in mid-call.
"""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import sys
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from statistics import median
from typing import Any

from hookline import Agent, tool
from hookline.events import ToolCallFinished, ToolCallStarted
from hookline.mcp import MCPServer, connect
from hookline.testing import ScriptedModel, call

PROGRAM = str(Path(__file__).resolve().parents[1] / "_mcp_program.py")
ROUNDS = 20
CALLS = 18  # of a round: the steps of a chat
KILLS = 10


def server_of(label: str, **options: Any) -> MCPServer:
    return MCPServer.stdio(sys.executable, PROGRAM, "ok", label=label, **options)


@tool
async def plain() -> str:
    """Answer at once, in this process."""
    return "fine"


def agent_of(name: str, *tools: Any) -> Agent:
    model = ScriptedModel(*[call(name) for _ in range(CALLS)], "done", repeat=True)
    return Agent(model, tools=tools)


async def _calls() -> None:
    server = server_of("ok")
    far, near = agent_of("ok"), agent_of("plain", plain)
    async with connect(far, server):
        link: Any = server._link  # pyright: ignore[reportPrivateUsage]
        client = link.client

        async def sdk() -> None:
            for _ in range(CALLS):
                await client.call_tool("ok", {})

        async def chat(agent: Agent) -> None:
            await agent.chat("go")

        kinds: dict[str, Callable[[], Awaitable[None]]] = {
            "the SDK's call": sdk,
            "a step with a function": lambda: chat(near),
            "a step with the server": lambda: chat(far),
        }
        passed: dict[str, list[float]] = {kind: [] for kind in kinds}
        worked: dict[str, list[float]] = {kind: [] for kind in kinds}
        for _ in range(ROUNDS):
            for kind, work in kinds.items():
                began, cpu = time.perf_counter(), time.process_time()
                await work()
                worked[kind].append((time.process_time() - cpu) / CALLS * 1e3)
                passed[kind].append((time.perf_counter() - began) / CALLS * 1e3)
    print(f"{'':40} {'time':>9} {'CPU':>11}")
    wall, cpus = ([median(each) for each in found.values()] for found in (passed, worked))
    for kind, time_, cpu in zip(kinds, wall, cpus, strict=True):
        print(f"{kind:40} {time_:6.2f} ms {cpu:8.2f} ms")
    time_, cpu = (servers - function - sdks for sdks, function, servers in (wall, cpus))
    print(f"{'so a call costs over that of the SDK':40} {time_:6.2f} ms {cpu:8.2f} ms")


def _children() -> set[int]:
    path = Path(f"/proc/{os.getpid()}/task/{os.getpid()}/children")
    return set(map(int, path.read_text().split()))


async def _kills() -> None:
    agent = Agent(ScriptedModel(call("never"), "done", repeat=True))
    told: list[float] = []
    for _ in range(KILLS):
        before = _children()
        async with connect(agent, server_of("dying")):
            [process] = _children() - before
            began = 0.0
            async with agent.chat_stream("go") as stream:
                async for event in stream:
                    if isinstance(event, ToolCallStarted):
                        await asyncio.sleep(0.05)  # the server has the call
                        began = time.perf_counter()
                        os.kill(process, signal.SIGKILL)
                    elif isinstance(event, ToolCallFinished):
                        told.append((time.perf_counter() - began) * 1e3)
    print(
        f"{'from SIGKILL to the tool error':45} {median(told):6.2f} ms, at most {max(told):.1f} ms"
    )


async def _main() -> None:
    logging.getLogger("hookline.mcp").setLevel(logging.ERROR)
    await _calls()
    await _kills()


if __name__ == "__main__":
    asyncio.run(_main())
