"""The reference servers of npm, by stdio and by HTTP, as they are installed by scripts/mcp-servers.

HOOKLINE_MCP_SERVERS=required makes what is missing a failure; without it, it is a visible skip.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import socket
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from hookline import Agent, Approve, Image, Run, Text, ToolResult
from hookline.events import Status, ToolCallFinished
from hookline.mcp import MCPServer, connect, serve
from hookline.testing import ScriptedModel, call, collect

JS = Path(__file__).resolve().parent / "js"
SERVERS = JS / "node_modules" / "@modelcontextprotocol"


@pytest.fixture(autouse=True)
def _there() -> None:
    if SERVERS.is_dir() and shutil.which("node"):
        return
    if os.environ.get("HOOKLINE_MCP_SERVERS") == "required":
        pytest.fail("run scripts/mcp-servers: HOOKLINE_MCP_SERVERS=required")
    pytest.skip("the servers of npm are not there: scripts/mcp-servers installs them")


def stdio(name: str, *args: str, **options: Any) -> MCPServer:
    script = SERVERS / f"server-{name}" / "dist" / "index.js"
    return MCPServer.stdio("node", str(script), *args, label=name, **options)


@asynccontextmanager
async def http() -> Any:
    """server-everything behind an address of this machine."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    process = await asyncio.create_subprocess_exec(
        *("node", str(SERVERS / "server-everything" / "dist" / "index.js"), "streamableHttp"),
        env={**os.environ, "PORT": str(port)},
        stdout=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.PIPE,
    )
    assert process.stderr is not None
    while b"listening" not in (await process.stderr.readline()).lower():
        pass
    try:
        yield MCPServer.http(f"http://127.0.0.1:{port}/mcp", label="everything")
    finally:
        process.kill()
        await process.wait()


@asynccontextmanager
async def everything(by: str) -> Any:
    if by == "stdio":
        yield stdio("everything", "stdio")
    else:
        async with http() as server:
            yield server


@pytest.mark.parametrize("by", ["stdio", "http"])
async def test_server_everything_works(by: str) -> None:
    asked: list[Any] = []

    def approver(request: Any, run: Run) -> Approve:
        asked.append(request.schema)
        return Approve(arguments={"name": "Ada", "check": True})

    model = ScriptedModel(
        call("echo", message="hi", id="echo"),
        call("get-tiny-image", id="image"),
        call("trigger-long-running-operation", duration=0.4, steps=4, id="long"),
        call("trigger-elicitation-request", id="ask"),
        call("echo", id="bad"),
        "done",
    )
    agent = Agent(model, approver=approver)
    async with everything(by) as server, connect(agent, server):
        assert server._link is not None
        assert server._link.client.protocol_version == "2025-11-25"
        events = await collect(agent.chat_stream("go"))
        read = await server.read("demo://resource/static/document/features.md")
        [message] = await server.prompt("simple-prompt")
    ends: dict[str, Any] = {e.call_id: e.result for e in events if isinstance(e, ToolCallFinished)}
    assert ends["echo"] == ToolResult("Echo: hi")
    assert [type(each) for each in ends["image"].media] == [Image]
    assert ends["long"].value.startswith("Long running operation completed")
    assert "Name: Ada" in ends["ask"].value
    assert len(asked) == 1
    assert ends["bad"].type == "ToolArgumentsError"
    done = [e.data["done"] for e in events if isinstance(e, Status)]
    assert done[-1] == 4
    assert isinstance(read, Text)
    assert message.role == "user"


async def test_server_filesystem_works(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("hello")
    path = str(tmp_path / "a.txt")
    model = ScriptedModel(
        call("fs_read_text_file", path=path),
        call("fs_write_file", path=path, content="changed"),
        "done",
    )
    agent = Agent(model)
    server = stdio("filesystem", str(tmp_path), prefix="fs_", approve=["write_*"])
    async with connect(agent, server):
        response = await agent.chat("go")
    texts = [m.text for m in response.messages if m.role == "tool"]
    assert "hello" in texts[0]
    assert "nobody is there" in texts[1]  # no approver: it is denied
    assert (tmp_path / "a.txt").read_text() == "hello"


async def test_server_memory_works(tmp_path: Path) -> None:
    entity = {"name": "Ada", "entityType": "person", "observations": ["likes tea"]}
    model = ScriptedModel(
        call("create_entities", entities=[entity]), call("search_nodes", query="tea"), "done"
    )
    agent = Agent(model)
    env = {"MEMORY_FILE_PATH": str(tmp_path / "memory.jsonl")}
    async with connect(agent, stdio("memory", env=env)):
        response = await agent.chat("go")
    [_, found] = [m.text for m in response.messages if m.role == "tool"]
    assert "likes tea" in found


async def test_the_client_of_the_typescript_sdk_talks_to_a_served_agent() -> None:
    uvicorn = pytest.importorskip("uvicorn")
    agent = Agent(ScriptedModel("Hello there."), name="helper")
    server = uvicorn.Server(uvicorn.Config(serve(agent), port=0, log_level="critical"))
    task = asyncio.ensure_future(server.serve())
    while not server.started:  # noqa: ASYNC110 - uvicorn has no event for it
        await asyncio.sleep(0.01)
    port = server.servers[0].sockets[0].getsockname()[1]
    try:
        process = await asyncio.create_subprocess_exec(
            *("node", "client.mjs", f"http://127.0.0.1:{port}/mcp"),
            cwd=JS,
            stdout=asyncio.subprocess.PIPE,
        )
        out, _ = await process.communicate()
    finally:
        server.should_exit = True
        await task
    assert out.decode().splitlines() == ["tools chat", "progress Hello there.", "Hello there."]
