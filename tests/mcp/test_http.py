"""Servers behind an address that behave badly, in both revisions: bounded and told."""

import asyncio
import json
import logging
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

import pytest
from tests._ahead import jump_in
from tests._listening import listening

from hookline import Agent
from hookline.errors import ScopeError
from hookline.events import Status, ToolCallFinished
from hookline.mcp import MCPServer, MCPServerError, connect
from hookline.testing import ScriptedModel, call, collect

mcp = pytest.importorskip("mcp")
types = pytest.importorskip("mcp_types")
lowlevel = pytest.importorskip("mcp.server")
Context = pytest.importorskip("mcp.server.mcpserver").Context

WRONG = {"type": "object", "properties": {"a": {"type": "text"}}}
MIB = 1024 * 1024
NOTHING: dict[str, Any] = {"type": "object", "properties": {}}
NUMBER = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}
RAW = ("huge", "huge-event", "never", "mute", "drips", "html", "broken", "cut", "accepted", "down")


class Bad:
    """The SDK's server, with tools whose answers are written by hand."""

    def __init__(self, name: str = "bad") -> None:
        self.names = ["ok", "noisy", "liar", "rename", *RAW]
        self.left = asyncio.Event()  # the client went away from a call without an answer
        self.server = lowlevel.Server(
            name, on_list_tools=self._list, on_call_tool=self._call, version="1"
        )
        self.broken = '{"jsonrpc": "2.0", "id": '
        self._app: Any = None

    async def _list(self, ctx: Any, params: Any) -> Any:
        tools = [
            types.Tool(
                name=name,
                input_schema=NOTHING if name != "bad-schema" else WRONG,
                output_schema=NUMBER if name == "liar" else None,
            )
            for name in self.names
        ]
        return types.ListToolsResult(tools=tools)

    async def _call(self, ctx: Any, params: Any) -> Any:
        text = types.TextContent(type="text", text="fine")
        match params.name:
            case "noisy":
                for done in range(1_000):
                    await ctx.session.report_progress(done + 1, 1_000)
            case "liar":
                return types.CallToolResult(content=[text], structured_content={"n": "many"})
            case "rename":
                self.names[0] = "other"
                await ctx.session.send_tool_list_changed()
            case _:
                pass
        return types.CallToolResult(content=[text])

    # ── by hand ─────────────────────────────────────────────────────────────────────────────

    async def app(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "lifespan" or scope["method"] != "POST":
            await self._app(scope, receive, send)
            return
        body, more = b"", True
        while more:
            message = await receive()
            body += message.get("body", b"")
            more = message.get("more_body", False)
        told = json.loads(body)
        params = told.get("params") or {}
        if told.get("method") == "tools/call" and params.get("name") in RAW:
            await self._raw(params["name"], told["id"], receive, send)
            return
        given = iter([{"type": "http.request", "body": body, "more_body": False}])

        async def again() -> Any:
            return next(given, None) or await receive()

        await self._app(scope, again, send)

    async def _raw(self, kind: str, id: Any, receive: Any, send: Any) -> None:
        async def begin(status: int, content_type: str) -> None:
            headers = [(b"content-type", content_type.encode())]
            await send({"type": "http.response.start", "status": status, "headers": headers})

        async def write(data: bytes, *, last: bool = False) -> None:
            await send({"type": "http.response.body", "body": data, "more_body": not last})

        async def leaves() -> None:
            while (await receive())["type"] != "http.disconnect":
                pass
            self.left.set()

        match kind:
            case "huge":
                await begin(200, "application/json")
                await write(f'{{"jsonrpc":"2.0","id":{id},"result":"'.encode())
                for _ in range(50):
                    await write(b"x" * MIB)
                await write(b'"}', last=True)
            case "huge-event":
                await begin(200, "text/event-stream")
                await write(b"data: ")
                for _ in range(50):
                    await write(b"x" * MIB)
                await write(b"\n\n", last=True)
            case "never":
                await begin(200, "text/event-stream")
                await write(b"")
                await leaves()
            case "mute":
                await leaves()
            case "drips":
                await begin(200, "text/event-stream")
                leaving = asyncio.ensure_future(leaves())
                while not leaving.done():
                    await write(b": still here\n\n")
                    await asyncio.wait([leaving], timeout=0.02)
            case "html":
                await begin(200, "text/html")
                await write(b"<h1>Welcome</h1>", last=True)
            case "broken":
                await begin(200, "application/json")
                await write(self.broken.encode(), last=True)
            case "cut":
                await begin(200, "text/event-stream")
                await write(b'data: {"jsonrpc"', last=True)
            case "accepted":
                await begin(202, "application/json")
                await write(b"", last=True)
            case _:
                await begin(502, "text/html")
                await write(b"<h1>Bad gateway</h1>", last=True)

    @asynccontextmanager
    async def __call__(self) -> Any:
        self._app = self.server.streamable_http_app()
        async with listening(self.app) as url:
            yield url


@pytest.fixture(params=["modern", "handshake"])
def era(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def bad(era: str, monkeypatch: pytest.MonkeyPatch) -> Bad:
    if era == "handshake":
        monkeypatch.setattr(mcp, "Client", partial(mcp.Client, mode="legacy"))
    return Bad()


async def results(url: str, *names: str, out_of_time: str = "") -> tuple[dict[str, str], list[Any]]:
    """What calls of these tools, one a step, came to, and the statuses."""
    server = MCPServer.http(url, label="bad")
    agent = Agent(ScriptedModel(*[call(name, call_id=name) for name in names], "done"))
    if out_of_time:
        jump_in(agent, out_of_time)
    async with connect(agent, server):
        events = await collect(agent.chat_stream("go"))
    found = {
        event.call_id: str(getattr(event.result, "value", None) or event.result.message)  # type: ignore[union-attr]
        for event in events
        if isinstance(event, ToolCallFinished)
    }
    return found, [event for event in events if isinstance(event, Status)]


@pytest.mark.parametrize(
    ("kind", "words"),
    [
        pytest.param("huge", "6291456 bytes", id="50-MB"),
        pytest.param("huge-event", "SSE stream failed", id="50-MB-in-an-event"),
        pytest.param("html", "Unexpected content type", id="a-page"),
        pytest.param("broken", "Failed to parse", id="half-a-message"),
        pytest.param("cut", "ended without a response", id="half-an-event"),
        pytest.param("accepted", "202 Accepted", id="no-answer-at-all"),
        pytest.param("down", "the server answered with HTTP 502", id="a-gateway"),
        pytest.param("liar", "does not match its own schema", id="another-schema"),
    ],
)
async def test_a_bad_answer_is_a_tool_error_and_the_next_call_works(
    bad: Bad, kind: str, words: str
) -> None:
    async with bad() as url:
        found, _ = await results(url, kind, "ok")
    assert words in found[kind]
    assert len(found[kind]) < 2_500
    assert found["ok"] == "fine"


async def test_an_event_that_is_too_large_fails_its_call_alone(bad: Bad) -> None:
    async with bad() as url:
        found, statuses = await results(url, "huge-event", "ok")
    assert "6291456 byte" in found["huge-event"]
    assert statuses == []  # the connection was not lost


@pytest.mark.parametrize("json", [False, True], ids=["an-event", "json"])
@pytest.mark.parametrize("mode", ["auto", "legacy"])
async def test_an_answer_of_several_mib_arrives(
    json: bool, mode: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(mcp, "Client", partial(mcp.Client, mode=mode))
    server = lowlevel.MCPServer("big")

    @server.tool(structured_output=False)
    def dump() -> str:
        return "x" * (3 * MIB)

    app = server.streamable_http_app(json_response=json)
    async with app.router.lifespan_context(app), listening(app, lifespan="off") as url:
        found, _ = await results(url, "dump")
    assert found["dump"].startswith("xxx")  # the agent has limits of its own


@pytest.mark.parametrize("kind", ["never", "mute", "drips"])
async def test_a_call_without_an_end_runs_out_of_time_and_the_session_stays(
    bad: Bad, kind: str
) -> None:
    async with bad() as url:
        found, statuses = await results(url, kind, "ok", out_of_time=kind)
    assert found == {kind: "the server did not answer within 60 s", "ok": "fine"}
    assert statuses == []  # the connection was not lost


@pytest.mark.parametrize("kind", ["never", "mute"])
async def test_an_abort_goes_away_from_the_call_and_leaves_the_session_usable(
    bad: Bad, kind: str
) -> None:
    agent = Agent(ScriptedModel(call(kind), call("ok"), "done"))
    async with bad() as url, connect(agent, MCPServer.http(url, label="bad")):
        async with agent.chat_stream("go") as stream:
            async for event in stream:
                if event.__class__.__name__ == "ToolCallStarted":
                    stream.abort("enough")
        response = await agent.chat("again")
    assert [m.text for m in response.messages if m.role == "tool"] == ["fine"]


async def test_a_thousand_notes_of_progress_are_a_few_statuses(bad: Bad) -> None:
    async with bad() as url:
        found, statuses = await results(url, "noisy")
    assert found == {"noisy": "fine"}
    assert 1 <= len(statuses) < 100
    assert statuses[-1].data["done"] == 1_000


async def test_after_a_change_of_the_tools_the_next_step_has_them_and_none_is_without(
    bad: Bad, era: str
) -> None:
    agent = Agent(model := ScriptedModel(call("rename"), call("other"), call("ok"), "done"))
    if era == "modern":
        bad.server = renaming()
    async with bad() as url, connect(agent, MCPServer.http(url, label="bad")):
        events = await collect(agent.chat_stream("go"))
    offered = [{tool.name for tool in request.tools} for request in model.requests]
    assert len({len(names) for names in offered}) == 1
    assert ["ok" in names for names in offered] == [True, False, False, False]
    assert ["other" in names for names in offered] == [False, True, True, True]
    outcomes = [e.outcome for e in events if isinstance(e, ToolCallFinished)]
    assert outcomes == ["ok", "ok", "error"]  # the old name is no tool any more


def renaming() -> Any:
    """A server without sessions, one of whose tools gets another name."""
    server = lowlevel.MCPServer("renaming")
    server.add_tool(lambda: "fine", name="ok")

    @server.tool()
    async def rename(ctx: Context) -> str:  # type: ignore[valid-type]
        server.remove_tool("ok")
        server.add_tool(lambda: "fine", name="other")
        await ctx.notify_tools_changed()
        return "renamed"

    return server


async def test_a_schema_that_is_none_leaves_the_tool_out(bad: Bad) -> None:
    bad.names = ["ok", "bad-schema"]
    agent = Agent(ScriptedModel("x"))
    async with bad() as url, connect(agent, server := MCPServer.http(url, label="bad")):
        assert set(server.left_out) == {"bad-schema"}
        assert [tool.name for tool in server.tools_now()] == ["ok"]


async def test_two_servers_with_a_tool_of_one_name_are_told_of_prefix(bad: Bad) -> None:
    agent = Agent(ScriptedModel(call("two_ok"), "done"))
    async with bad() as one, Bad("other")() as two:
        first = MCPServer.http(one, label="one")
        with pytest.raises(ScopeError, match="prefix="):
            async with connect(agent, first, MCPServer.http(two, label="two")):
                raise AssertionError("connected")
        assert list(agent.scopes) == []
        async with connect(agent, first, MCPServer.http(two, label="two", prefix="two_")):
            response = await agent.chat("go")
    assert [m.text for m in response.messages if m.role == "tool"] == ["fine"]


async def test_an_address_that_serves_something_else_is_told() -> None:
    async def page(scope: Any, receive: Any, send: Any) -> None:
        headers = [(b"content-type", b"text/html")]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": b"<h1>Welcome</h1>"})

    async with listening(page, lifespan="off") as url:
        with pytest.raises(MCPServerError, match="Unexpected content type"):
            async with connect(Agent(ScriptedModel("x")), MCPServer.http(url, label="page")):
                raise AssertionError("connected")


async def test_the_sdks_log_does_not_quote_an_answer_that_cannot_be_read(
    bad: Bad, caplog: pytest.LogCaptureFixture
) -> None:
    secret = '"secret": "4711"'
    bad.broken = '{"jsonrpc": "2.0", "id": 1, ' + secret  # cut off
    with caplog.at_level(logging.INFO):
        async with bad() as url:
            await results(url, "broken")
    assert "4711" not in caplog.text
    assert any(record.name.startswith("mcp.") for record in caplog.records)
