"""The reference servers of npm, by stdio and by HTTP, as scripts/dev/mcp-servers installs them.

HOOKLINE_MCP_SERVERS=required makes what is missing a failure; without it, it is a visible skip.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import socket
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from tests._listening import listening

from hookline import Agent, Approve, Ask, Image, Run, Text, ToolResult, tool
from hookline.events import Status, ToolCallFinished
from hookline.mcp import MCPServer, connect, serve
from hookline.testing import ScriptedModel, call, collect

mcp = pytest.importorskip("mcp")
JS = Path(__file__).resolve().parent / "js"
SERVERS = JS / "node_modules" / "@modelcontextprotocol"
PROXY = JS / "node_modules" / "mcp-proxy" / "dist" / "bin" / "mcp-proxy.mjs"


@pytest.fixture(autouse=True)
def _there() -> None:
    if PROXY.is_file() and shutil.which("node"):
        return
    if os.environ.get("HOOKLINE_MCP_SERVERS") == "required":
        pytest.fail("run scripts/dev/mcp-servers: HOOKLINE_MCP_SERVERS=required")
    pytest.skip("the servers of npm are not there: scripts/dev/mcp-servers installs them")


def script_of(name: str) -> str:
    return str(SERVERS / f"server-{name}" / "dist" / "index.js")


@asynccontextmanager
async def listening_program(*args: str, says: bytes, **env: str) -> Any:
    """A program that listens on a free port, which it is told as PORT; gives its address."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    process = await asyncio.create_subprocess_exec(
        *(each.replace("PORT", port) for each in ("node", *args)),
        env={**os.environ, **env, "PORT": port},
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
        start_new_session=True,
    )
    assert process.stdout is not None
    while says not in (line := await process.stdout.readline()):
        assert line, "it has ended"
    while True:  # it says so before it does
        try:
            _, writer = await asyncio.open_connection("127.0.0.1", int(port))
        except OSError:
            await asyncio.sleep(0.01)
        else:
            writer.close()
            break
    try:
        yield f"http://127.0.0.1:{port}/mcp"
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        await process.wait()


@asynccontextmanager
async def reached(by: str, name: str, *args: str, env: Any = None, **options: Any) -> Any:
    """A server of npm, by one of WAYS."""
    options = {"label": name, **options}
    if by == "stdio":
        yield MCPServer.stdio("node", script_of(name), *args, env=env, **options)
    elif by == "its-own-http":
        async with listening_program(script_of(name), "streamableHttp", says=b"listening") as url:
            yield MCPServer.http(url, **options)
    else:  # a proxy that speaks both revisions to us, and stdio to the server
        proxy = (str(PROXY), "--server", "stream", "--host", "127.0.0.1", "--port", "PORT", "--")
        program = (*proxy, "node", script_of(name), *args)
        async with listening_program(*program, says=b"starting server", **(env or {})) as url:
            yield MCPServer.http(url, **options)


@pytest.fixture(params=["stdio", "http-2025-11-25", "http-2026-07-28"])
def by(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """How a server is reached; where both sides know the newer revision, they agree on it."""
    if request.param == "http-2025-11-25":
        monkeypatch.setattr(mcp, "Client", partial(mcp.Client, mode="legacy"))
    return str(request.param)


def assert_revision(server: MCPServer, by: str) -> None:
    link: Any = server._link
    revision = "2026-07-28" if by == "http-2026-07-28" else "2025-11-25"
    assert link.client.protocol_version == revision


async def test_server_everything_works(by: str) -> None:
    await use_everything(by)


async def test_server_everything_works_by_its_own_http() -> None:
    await use_everything("its-own-http")


async def use_everything(by: str) -> None:
    asked: list[Any] = []

    def approver(request: Any, run: Run) -> Approve:
        asked.append(request.schema)
        return Approve(arguments={"name": "Ada", "check": True})

    model = ScriptedModel(
        call("echo", message="hi", call_id="echo"),
        call("get-tiny-image", call_id="image"),
        call("trigger-long-running-operation", duration=0.4, steps=4, call_id="long"),
        call("trigger-elicitation-request", call_id="ask"),
        call("echo", call_id="bad"),
        "done",
    )
    agent = Agent(model, approver=approver)
    async with reached(by, "everything") as server, connect(agent, server):
        assert_revision(server, by)
        events = await collect(agent.chat_stream("go"))
        read = await server.read("demo://resource/static/document/features.md")
        [message] = await server.prompt("simple-prompt")
    ends: dict[str, Any] = {e.call_id: e.result for e in events if isinstance(e, ToolCallFinished)}
    assert ends["echo"] == ToolResult("Echo: hi")
    assert [type(each) for each in ends["image"].media] == [Image]
    assert ends["long"].value.startswith("Long running operation completed")
    if by.startswith("http-"):  # the proxy does not hand on a server's questions
        assert ends["ask"].type == "UnknownToolError"
    else:
        assert "Name: Ada" in ends["ask"].value
        assert len(asked) == 1
    assert ends["bad"].type == "ToolArgumentsError"
    done = [e.data["done"] for e in events if isinstance(e, Status)]
    # The proxy may answer before it has handed on the last note.
    assert done[-1] == 4 or (by.startswith("http-") and done[-1] == 3)
    assert isinstance(read, Text)
    assert message.role == "user"


async def test_server_filesystem_works(by: str, tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("hello")
    path = str(tmp_path / "a.txt")
    model = ScriptedModel(
        call("fs_read_text_file", path=path),
        call("fs_write_file", path=path, content="changed"),
        "done",
    )
    agent = Agent(model)
    options: Any = {"prefix": "fs_", "approve": ["write_*"]}
    async with (
        reached(by, "filesystem", str(tmp_path), **options) as server,
        connect(agent, server),
    ):
        assert_revision(server, by)
        response = await agent.chat("go")
    texts = [m.text for m in response.messages if m.role == "tool"]
    assert "hello" in texts[0]
    assert "nobody can give it" in texts[1]  # no approver: it is denied
    assert (tmp_path / "a.txt").read_text() == "hello"


async def test_server_memory_works(by: str, tmp_path: Path) -> None:
    entity = {"name": "Ada", "entityType": "person", "observations": ["likes tea"]}
    model = ScriptedModel(
        call("create_entities", entities=[entity]), call("search_nodes", query="tea"), "done"
    )
    agent = Agent(model)
    env = {"MEMORY_FILE_PATH": str(tmp_path / "memory.jsonl")}
    async with reached(by, "memory", env=env) as server, connect(agent, server):
        assert_revision(server, by)
        response = await agent.chat("go")
    [_, found] = [m.text for m in response.messages if m.role == "tool"]
    assert "likes tea" in found


@pytest.mark.parametrize("revision", ["2026-07-28", "2025-11-25"])
async def test_the_client_of_the_typescript_sdk_talks_to_a_served_agent(revision: str) -> None:
    ended: list[str] = []
    paid: list[int] = []
    aborted = asyncio.Event()

    @tool
    async def wait() -> None:
        """Wait for ever."""
        await asyncio.Event().wait()

    @tool
    async def pay(amount: int) -> str:
        """Pay."""
        assert aborted.is_set()  # the chat that was cancelled has ended by now
        paid.append(amount)
        return "paid"

    model = ScriptedModel(
        "Hello there.", ["Wait. ", call("wait")], call("pay", amount=7), "It is paid."
    )
    agent = Agent(model, tools=[wait, pay], name="helper")
    agent.add_hook("preToolCall", lambda ctx: Ask("May it pay?"), tools=["pay"])

    @agent.hook("onChatEnd")
    def ends(ctx: Any) -> None:
        ended.append(ctx.outcome)
        if ctx.outcome == "aborted":
            aborted.set()

    @agent.hook("preChat")
    async def one_after_the_other(ctx: Any) -> None:
        if ctx.request.message.text == "pay":
            await aborted.wait()

    async with listening(serve(agent)) as url:
        process = await asyncio.create_subprocess_exec(
            *("node", "client.mjs", url, revision), cwd=JS, stdout=asyncio.subprocess.PIPE
        )
        out, _ = await process.communicate()
    assert out.decode().splitlines() == [
        "tools chat",
        "progress Hello there.",
        "said Hello there.",
        "cancelled",
        """asked "May it pay?\\npay {\\"amount\\": 7}\"""",
        "said It is paid.",
    ]
    assert paid == [7]
    assert ended.count("aborted") == 1
