"""Connections come and go, are lost and made again: nothing stays behind."""

from __future__ import annotations

import asyncio
import gc
import heapq
import os
import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from tests.web._server import eventually

from hookline import Agent, ToolResult
from hookline.events import Status, ToolCallFinished
from hookline.mcp import MCPServer, MCPServerError, connect
from hookline.testing import ScriptedModel, call, collect

mcp = pytest.importorskip("mcp")
TESTS = Path(__file__).resolve().parents[1]


class Program:
    """A server behind an address, which can be started again there."""

    def __init__(self) -> None:
        self.port = 0
        self._process: asyncio.subprocess.Process | None = None

    async def start(self) -> None:
        line = b""
        while not line:  # another process may have a connection from this port for a while
            self._process = await asyncio.create_subprocess_exec(
                *(sys.executable, str(TESTS / "_mcp_http_program.py"), str(self.port)),
                stdout=asyncio.subprocess.PIPE,
            )
            assert self._process.stdout is not None
            line = await self._process.stdout.readline()
        self.port = int(line)

    async def stop(self) -> None:
        assert self._process is not None
        if self._process.returncode is None:
            self._process.kill()
        await self._process.wait()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/mcp"


@pytest.fixture
async def program() -> AsyncGenerator[Program]:
    made = Program()
    await made.start()
    yield made
    await made.stop()


@asynccontextmanager
async def nothing_stays() -> AsyncGenerator[None]:
    """No task, no process and no open file is there afterwards that was not before."""
    before = _all()
    yield
    gc.collect()
    with suppress(TimeoutError):  # the other side closes its end in its own time
        await eventually(lambda: _all() == before)
    assert _all() == before


def _all() -> tuple[int, int, list[str]]:
    if not Path("/proc/self/fd").exists():
        pytest.skip("needs /proc")
    links = []
    for each in os.listdir("/proc/self/fd"):
        try:
            links.append(os.readlink(f"/proc/self/fd/{each}").split(":")[0])
        except OSError:  # the one of listdir itself
            continue
    children = Path(f"/proc/{os.getpid()}/task/{os.getpid()}/children").read_text().split()
    return len(asyncio.all_tasks()), len(children), sorted(links)


REVISIONS = pytest.mark.parametrize("revision", ["2026-07-28", "2025-11-25"])


def speak(revision: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if revision == "2025-11-25":
        monkeypatch.setattr(mcp, "Client", partial(mcp.Client, mode="legacy"))


@pytest.mark.slow
@REVISIONS
async def test_a_hundred_connections_over_http_leave_no_socket_and_no_task(
    revision: str, program: Program, monkeypatch: pytest.MonkeyPatch
) -> None:
    speak(revision, monkeypatch)
    agent = Agent(ScriptedModel(call("ok"), "done", repeat=True))
    async with connect(agent, MCPServer.http(program.url)):  # what is made once and kept
        await agent.chat("go")
    async with nothing_stays():
        for _ in range(100):
            async with connect(agent, MCPServer.http(program.url)):
                await agent.chat("go")


@pytest.mark.slow
async def test_a_hundred_programs_leave_no_process_no_pipe_and_no_task() -> None:
    server = MCPServer.stdio(sys.executable, str(TESTS / "_mcp_program.py"), "ok")
    agent = Agent(ScriptedModel("x"))
    async with connect(agent, server):
        pass
    async with nothing_stays():
        for _ in range(100):
            async with connect(agent, server):
                pass


async def test_the_close_of_an_uninstall_waits_until_the_server_is_gone() -> None:
    server = MCPServer.stdio(sys.executable, str(TESTS / "_mcp_program.py"), "ok")
    agent = Agent(ScriptedModel("x"))
    async with nothing_stays():
        uninstall = await agent.use(server)
        assert _all()[1] >= 1
        await uninstall.aclose()
        assert list(agent.scopes) == []


async def test_the_close_of_an_agent_waits_until_its_servers_are_gone() -> None:
    server = MCPServer.stdio(sys.executable, str(TESTS / "_mcp_program.py"), "ok")
    async with nothing_stays():
        async with Agent(ScriptedModel("x")) as agent:
            await agent.use(server)
            assert server.connected
        assert not server.connected


async def test_the_uninstall_of_one_of_two_agents_closes_nothing() -> None:
    server = MCPServer.stdio(sys.executable, str(TESTS / "_mcp_program.py"), "ok")
    one, two = Agent(ScriptedModel("x")), Agent(ScriptedModel(call("ok"), "done"))
    first, second = await one.use(server), await two.use(server)
    await first.aclose()
    assert server.connected
    assert (await two.chat("go")).text == "done"
    await second.aclose()
    assert not server.connected


def forget_cancelled_timers() -> None:
    """The event loop keeps cancelled timers and their contexts until it has a hundred of them."""
    loop: Any = asyncio.get_running_loop()
    loop._scheduled = [timer for timer in loop._scheduled if not timer.cancelled()]
    heapq.heapify(loop._scheduled)


@pytest.mark.slow
@REVISIONS
async def test_a_thousand_calls_over_http_leave_nothing_behind(
    revision: str, program: Program, monkeypatch: pytest.MonkeyPatch
) -> None:
    speak(revision, monkeypatch)
    model = ScriptedModel(*[call("ok")] * 10, "done", repeat=True)
    agent = Agent(model)
    counts: list[int] = []
    async with connect(agent, MCPServer.http(program.url)):
        for _ in range(4):
            for _ in range(25):
                await agent.chat("go")
            model.requests.clear()  # which it keeps for tests
            forget_cancelled_timers()
            gc.collect()
            counts.append(len(gc.get_objects()))
    # The first calls fill caches; the next 500 add less than one object a call.
    assert counts[3] - counts[1] < 250


@REVISIONS
async def test_a_server_that_dies_in_a_call_over_http_is_a_tool_error_and_the_next_call_works(
    revision: str, program: Program, monkeypatch: pytest.MonkeyPatch
) -> None:
    speak(revision, monkeypatch)
    agent = Agent(ScriptedModel(call("dies", call_id="dies"), call("ok", call_id="ok"), "done"))

    async def again(ctx: Any) -> None:
        if ctx.call.id == "dies":
            await program.stop()
            await program.start()

    agent.add_hook("onToolCallError", again)
    async with connect(agent, MCPServer.http(program.url, label="far")):
        events = await collect(agent.chat_stream("go"))
    [dead, fine] = [each.result for each in events if isinstance(each, ToolCallFinished)]
    assert dead.type == "MCPServerError"  # type: ignore[union-attr]
    assert "the connection to MCP server 'far' was lost" in dead.message  # type: ignore[union-attr]
    assert fine == ToolResult({"result": "fine"})
    told = [event.type for event in events if isinstance(event, Status)]
    assert told[0] == "mcp/lost"


@REVISIONS
async def test_a_server_that_was_restarted_between_calls_is_connected_again(
    revision: str, program: Program, monkeypatch: pytest.MonkeyPatch
) -> None:
    speak(revision, monkeypatch)
    agent = Agent(ScriptedModel(call("ok"), "done", repeat=True))
    async with connect(agent, MCPServer.http(program.url, label="far")):
        await agent.chat("go")
        await program.stop()
        await program.start()
        await agent.chat("go")  # which may find that the session is over
        events = await collect(agent.chat_stream("go"))
    [result] = [each.result for each in events if isinstance(each, ToolCallFinished)]
    assert result == ToolResult({"result": "fine"})


async def test_a_prompt_finds_out_that_the_session_is_over_too(
    program: Program, monkeypatch: pytest.MonkeyPatch
) -> None:
    speak("2025-11-25", monkeypatch)
    server = MCPServer.http(program.url, label="far")
    async with connect(Agent(ScriptedModel("x")), server):
        await program.stop()
        await program.start()
        with pytest.raises(MCPServerError, match="Session terminated"):
            await server.prompt("greet")
        assert not server.connected
