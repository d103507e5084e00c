"""A server's tools in an agent, in both revisions; prompts, resources, questions."""

import asyncio
import base64
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from functools import partial
from types import SimpleNamespace
from typing import Any

import pytest

from hookline import (
    Agent,
    Approve,
    Conversation,
    Deny,
    File,
    Image,
    Run,
    Text,
    ToolFailure,
    ToolResult,
    UserMessage,
)
from hookline.errors import UsageError
from hookline.events import ApprovalRequested, Status, ToolCallFinished
from hookline.mcp import MCPServer, MCPServerError, connect
from hookline.mcp._client.call import Call, elicited
from hookline.mcp._client.connection import Link
from hookline.mcp._client.pool import Pool
from hookline.mcp._client.tools import clean, clean_schema, mapped
from hookline.testing import ScriptedModel, call, collect

mcp = pytest.importorskip("mcp")
types = pytest.importorskip("mcp_types")
Context = pytest.importorskip("mcp.server.mcpserver").Context
lowlevel = pytest.importorskip("mcp.server")

PNG = base64.b64encode(b"\x89PNG").decode()


class Notes:
    """A server of notes, with what servers have."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, Any]] = []
        self.names = ["add", "notes.list", "paint", "fail", "ask", "slow", "more"]
        self.slow = asyncio.Event()
        self.cancelled = asyncio.Event()
        self.server = lowlevel.Server(
            "notes",
            on_list_tools=self.list_tools,
            on_call_tool=self.call_tool,
            on_list_prompts=self.list_prompts,
            on_get_prompt=self.get_prompt,
            on_read_resource=self.read_resource,
            on_list_resources=self.list_resources,
        )

    async def list_tools(self, ctx: Any, params: Any) -> Any:
        schema = {"type": "object", "properties": {"text": {"type": "string"}}}
        return types.ListToolsResult(
            tools=[
                types.Tool(name=name, description=f"{name}\u200b it", input_schema=schema)
                for name in self.names
            ]
        )

    async def call_tool(self, ctx: Any, params: Any) -> Any:
        self.calls.append((params.name, params.arguments))
        text = types.TextContent(type="text", text="fine")
        match params.name:
            case "notes.list":
                data = {"notes": ["a"]}
                return types.CallToolResult(content=[text], structured_content=data)
            case "paint":
                return types.CallToolResult(content=pictures())
            case "fail":
                text = types.TextContent(type="text", text="no paper left")
                return types.CallToolResult(content=[text], is_error=True)
            case "ask":
                return await self.ask(ctx, params)
            case "slow":
                self.slow.set()
                try:
                    await asyncio.Event().wait()
                except BaseException:
                    self.cancelled.set()
                    raise
            case "more":
                self.names.append("new")
                if ctx.session.can_send_request:
                    await ctx.session.send_tool_list_changed()
            case _:
                await ctx.session.report_progress(1, 2, "half\x1b[31m")
        return types.CallToolResult(content=[text])

    async def ask(self, ctx: Any, params: Any) -> Any:
        schema = {"type": "object", "properties": {"ok": {"type": "boolean"}}, "required": ["ok"]}
        if ctx.session.can_send_request:
            answer = await ctx.session.elicit_form("Really?", schema, ctx.request_id)
        elif params.input_responses:
            answer = params.input_responses["q"]
        else:
            form = types.ElicitRequestFormParams(message="Really?", requested_schema=schema)
            asked = {"q": types.ElicitRequest(params=form)}
            return types.InputRequiredResult(input_requests=asked, request_state="s")
        words = f"{answer.action} {answer.content}"
        return types.CallToolResult(content=[types.TextContent(type="text", text=words)])

    async def list_prompts(self, ctx: Any, params: Any) -> Any:
        return types.ListPromptsResult(prompts=[types.Prompt(name="greet")])

    async def get_prompt(self, ctx: Any, params: Any) -> Any:
        text = types.TextContent(type="text", text=f"Greet {params.arguments['who']}.")
        return types.GetPromptResult(messages=[types.PromptMessage(role="user", content=text)])

    async def list_resources(self, ctx: Any, params: Any) -> Any:
        return types.ListResourcesResult(resources=[])

    async def read_resource(self, ctx: Any, params: Any) -> Any:
        uri = str(params.uri)
        if uri == "note:text":
            content: Any = types.TextResourceContents(uri=uri, text="dear diary")
        elif uri == "note:picture":
            content = types.BlobResourceContents(uri=uri, blob=PNG, mime_type="image/png")
        else:
            raise mcp.MCPError(-32002, "no such note")
        return types.ReadResourceResult(contents=[content])


def pictures() -> list[Any]:
    blob = types.BlobResourceContents(uri="note:pdf", blob=PNG, mime_type="application/pdf")
    return [
        types.TextContent(type="text", text="look"),
        types.ImageContent(type="image", data=PNG, mime_type="image/png"),
        types.AudioContent(type="audio", data=PNG, mime_type="audio/wav"),
        types.ResourceLink(type="resource_link", name="a", uri="note:a", description="first"),
        types.EmbeddedResource(type="resource", resource=blob),
        types.ImageContent(type="image", data="no base64!", mime_type="image/png"),
    ]


@pytest.fixture(params=["modern", "handshake"])
def notes(request: pytest.FixtureRequest) -> Any:
    return Notes(), request.param


@pytest.fixture(autouse=True)
def by_era(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """In this process both sides would agree on the newer revision."""
    era = getattr(getattr(request.node, "callspec", None), "params", {}).get("notes")
    if era == "handshake":
        monkeypatch.setattr(mcp, "Client", partial(mcp.Client, mode="legacy"))


def server_of(made: Notes, era: str, **options: Any) -> MCPServer:
    return MCPServer.local(made.server, **options)


async def events_of(server: MCPServer, *turns: Any, **options: Any) -> list[Any]:
    agent = Agent(ScriptedModel(*turns, "done"))
    async with connect(agent, server):
        return await collect(agent.chat_stream("go", **options))


def ends(events: list[Any]) -> list[Any]:
    return [event.result for event in events if isinstance(event, ToolCallFinished)]


# ── tools ───────────────────────────────────────────────────────────────────────────────────


async def test_a_servers_tools_run_in_both_revisions(notes: Any) -> None:
    made, era = notes
    server = server_of(made, era)
    agent = Agent(model := ScriptedModel(call("add", text="x"), call("notes_list"), "done"))
    async with connect(agent, server):
        events = await collect(agent.chat_stream("go"))
        assert server.connected
        expected = {"modern": "2026-07-28", "handshake": "2025-11-25"}[era]
        link: Any = server._link
        assert link.client.protocol_version == expected
    assert ends(events) == [ToolResult("fine"), ToolResult({"notes": ["a"]})]
    assert made.calls == [("add", {"text": "x"}), ("notes.list", {})]
    [status] = [event for event in events if isinstance(event, Status)]
    assert status.type == "mcp/progress"
    assert status.data == {"server": "notes", "done": 1.0, "total": 2.0, "message": "half[31m"}
    offered = {tool.name: tool.description for tool in model.requests[0].tools}
    assert offered["notes_list"] == "notes.list it\n\nThe server calls it 'notes.list'."
    assert not server.connected
    assert list(agent.scopes) == []


async def test_text_pictures_sound_files_and_links_come_through(notes: Any) -> None:
    [result] = ends(await events_of(server_of(*notes), call("paint")))
    assert result.value == ("look\n[a](note:a): first\n[image/png was left out: it is not base64]")
    assert [type(each) for each in result.media] == [Image, File, File]
    assert [each.media_type for each in result.media] == [
        "image/png",
        "audio/wav",
        "application/pdf",
    ]


async def test_a_servers_error_is_a_failure_of_the_call(notes: Any) -> None:
    [result] = ends(await events_of(server_of(*notes), call("fail")))
    assert result == ToolFailure("no paper left", type="MCPToolError")


async def test_bad_arguments_never_reach_the_server(notes: Any) -> None:
    made, _ = notes
    [result] = ends(await events_of(server_of(*notes), call("add", text=1)))
    assert result.type == "ToolArgumentsError"
    assert made.calls == []


async def test_patterns_say_which_tools_are_taken(notes: Any) -> None:
    server = server_of(*notes, allow=["*a*", "slow"], deny=["fa*"], prefix="n.")
    agent = Agent(ScriptedModel("x"))
    async with connect(agent, server):
        [scope] = agent.scopes
        assert [tool.name for tool in scope.tools] == ["n_add", "n_paint", "n_ask", "n_slow"]


async def test_after_a_change_the_next_step_has_the_new_tools_and_none_is_without(
    notes: Any,
) -> None:
    made, era = notes
    server = made.server if era == "handshake" else growing()
    agent = Agent(model := ScriptedModel(call("more"), call("new"), "done"))
    async with connect(agent, MCPServer.local(server)):
        await agent.chat("go")
    counts = [len(request.tools) for request in model.requests]
    assert counts == ([7, 8, 8] if era == "handshake" else [1, 2, 2])


def growing() -> Any:
    """A server without sessions, whose tools become more."""
    server = lowlevel.MCPServer("growing")

    @server.tool()
    async def more(ctx: Context) -> str:  # type: ignore[valid-type]
        server.add_tool(lambda: "fine", name="new")
        await ctx.notify_tools_changed()
        return "more"

    return server


async def test_an_abort_cancels_the_servers_work_and_leaves_the_session_usable(
    notes: Any,
) -> None:
    made, _ = notes
    agent = Agent(ScriptedModel(call("slow"), call("add"), "done"))
    async with connect(agent, server_of(*notes)):
        stream = agent.chat_stream("go")
        reading = asyncio.ensure_future(collect(stream))
        await made.slow.wait()
        stream.abort("enough")
        await reading
        await made.cancelled.wait()
        response = await agent.chat("again")
    assert [m.text for m in response.messages if m.role == "tool"] == ["fine"]


async def test_use_connects_and_its_uninstall_takes_all_back(notes: Any) -> None:
    server = server_of(*notes, approve=["add"])
    agent = Agent(ScriptedModel("x"))
    uninstall = await agent.use(server)
    assert [scope.label for scope in agent.scopes] == ["notes"]
    assert [hook.name for hook in agent.hooks()] == ["approve notes"]
    uninstall()
    assert list(agent.scopes) == []
    assert agent.hooks() == ()
    assert not server.connected


async def test_a_server_of_two_agents_is_closed_with_the_last(notes: Any) -> None:
    server = server_of(*notes)
    one, two = Agent(ScriptedModel("x")), Agent(ScriptedModel(call("add"), "done"))
    async with connect(two, server):
        async with connect(one, server):
            assert [len(list(agent.scopes)) for agent in (one, two)] == [1, 1]
        assert server.connected
        assert (await two.chat("go")).text == "done"
    assert not server.connected


# ── approvals and questions ─────────────────────────────────────────────────────────────────


async def test_calls_that_match_approve_are_asked_about(notes: Any) -> None:
    made, _ = notes
    events = await events_of(
        server_of(*notes, approve=["add"], prefix="n_"),
        [call("n_add"), call("n_notes_list")],
        conversation=Conversation(),
    )
    assert [e.request.call.name for e in events if isinstance(e, ApprovalRequested)] == ["n_add"]
    assert made.calls == [("notes.list", {})]


@pytest.mark.parametrize("pattern", ["notes.list", "notes.*", "n_notes_list", "notes_list"])
async def test_a_tool_is_asked_about_by_the_name_that_its_server_gives_it(
    notes: Any, pattern: str
) -> None:
    """The model knows the tool by another name, without the dot."""
    made, _ = notes
    events = await events_of(
        server_of(*notes, approve=[pattern], prefix="n_"),
        call("n_notes_list"),
        conversation=Conversation(),
    )
    asked = [e.request.call.name for e in events if isinstance(e, ApprovalRequested)]
    assert asked == ["n_notes_list"]
    assert made.calls == []


@pytest.mark.parametrize(
    ("decision", "words"),
    [
        pytest.param(Approve(arguments={"ok": True}), "accept {'ok': True}", id="yes"),
        pytest.param(Deny("no"), "decline None", id="no"),
        pytest.param(None, "decline None", id="nobody"),
    ],
)
async def test_a_servers_question_is_put_to_the_approver(
    notes: Any, decision: Any, words: str
) -> None:
    asked: list[Any] = []

    def approver(request: Any, run: Run) -> Any:
        asked.append((request.prompts, sorted(request.schema["properties"])))
        return decision

    options: Any = {} if decision is None else {"approver": approver}
    [result] = ends(await events_of(server_of(*notes), call("ask"), **options))
    assert result == ToolResult(words)
    assert asked == ([(("notes: Really?",), ["ok"])] if decision is not None else [])


async def test_time_that_somebody_is_asked_does_not_count(notes: Any) -> None:
    clock = asyncio.get_running_loop()
    real, ahead = clock.time, [0.0]
    clock.time = lambda: real() + ahead[0]  # type: ignore[method-assign]

    async def approver(request: Any, run: Run) -> Any:
        ahead[0] += 1_000  # they think for a quarter of an hour
        return Approve(arguments={"ok": True})

    try:
        [result] = ends(await events_of(server_of(*notes), call("ask"), approver=approver))
    finally:
        clock.time = real  # type: ignore[method-assign]
    assert result == ToolResult("accept {'ok': True}")


async def test_a_question_that_may_be_anothers_is_declined() -> None:
    """A program of the handshake does not say whose call it asks about."""
    link: Any = Fake()
    link.calls = [SimpleNamespace(run=SimpleNamespace(chat_id=each)) for each in "ab"]
    answer = await elicited(link, None)
    assert answer.action == "decline"


class TwoQuestions(Notes):
    """A server that asks two questions at one time."""

    async def ask(self, ctx: Any, params: Any) -> Any:
        schema = {"type": "object", "properties": {"ok": {"type": "boolean"}}}
        asked = [ctx.session.elicit_form("Really?", schema, ctx.request_id) for _ in range(2)]
        await asyncio.gather(*asked)
        return types.CallToolResult(content=[])


async def test_an_abort_with_a_question_in_the_queue_leaves_the_session_usable(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(mcp, "Client", partial(mcp.Client, mode="legacy"))
    waiting, queued = asyncio.Event(), asyncio.Event()
    question = Call.question

    async def noted(self: Any, params: Any) -> Any:
        if waiting.is_set():
            queued.set()
        waiting.set()
        return await question(self, params)

    monkeypatch.setattr(Call, "question", noted)

    async def approver(request: Any, run: Run) -> Any:
        await asyncio.Event().wait()

    agent = Agent(ScriptedModel(call("ask"), call("add"), "done"), approver=approver)
    async with connect(agent, MCPServer.local(TwoQuestions().server)):
        async with agent.chat_stream("go") as stream:
            async for event in stream:
                if isinstance(event, ApprovalRequested):
                    await queued.wait()
                    stream.abort("enough")
        response = await agent.chat("again")
    assert [m.text for m in response.messages if m.role == "tool"] == ["fine"]


@pytest.mark.parametrize("error", [OSError, ValueError, TimeoutError])
async def test_an_error_of_the_approver_is_not_taken_for_one_of_the_server(
    notes: Any, error: type[Exception]
) -> None:
    def approver(request: Any, run: Run) -> Any:
        raise error("nobody is there")

    agent = Agent(ScriptedModel(call("ask"), "done"), approver=approver)
    server = server_of(*notes)
    async with connect(agent, server):
        client = server._link.client  # type: ignore[union-attr]
        [result] = ends(await collect(agent.chat_stream("go")))
        assert server._link.client is client  # type: ignore[union-attr]
    assert result == ToolFailure("nobody is there", type=error.__name__)


# ── prompts and resources ───────────────────────────────────────────────────────────────────


async def test_prompts_and_resources_are_read_and_nothing_is_sent_by_itself(notes: Any) -> None:
    server = server_of(*notes)
    agent = Agent(model := ScriptedModel("x"))
    async with connect(agent, server):
        assert await server.prompt("greet", who="Ada") == (
            UserMessage(parts=(Text("Greet Ada."),)),
        )
        assert await server.read("note:text") == Text("dear diary")
        assert await server.read("note:picture") == Image(data=b"\x89PNG")
        with pytest.raises(MCPServerError, match="no such note"):
            await server.read("note:none")
        await agent.chat("go")
    assert [message.text for message in model.requests[0].messages] == ["go"]
    with pytest.raises(UsageError, match="not connected"):
        await server.read("note:text")


# ── names and texts ─────────────────────────────────────────────────────────────────────────


def test_names_become_valid_and_stay_different() -> None:
    names = ["a.b", "a b", "a_b", "x" * 128, "x" * 127, "é"]
    found = mapped(names, "p_")
    assert len(set(found.values())) == len(names)
    assert all(len(each) <= 64 for each in found.values())
    assert found["a.b"] == "p_a_b"
    assert mapped(names, "p_") == found


def test_a_tool_that_is_listed_twice_keeps_its_name() -> None:
    """As at the seam of two pages, while the list changes."""
    assert mapped(["one", "two", "one"], "p_") == {"one": "p_one", "two": "p_two"}


def test_what_nobody_sees_is_taken_out_and_the_rest_is_bounded() -> None:
    assert clean("a\u202eb\x00c\U000e0041\n\td\u200b") == "abc\n\td"
    assert len(clean("x" * 100_000)) == 4_096
    assert clean_schema({"description": "a\u200b", "enum": ["b\u200b"]}) == {
        "description": "a",
        "enum": ["b\u200b"],
    }
    assert clean_schema({"properties": {"title": {"type": "string"}}}) == {
        "properties": {"title": {"type": "string"}}
    }


@pytest.mark.parametrize(
    "make",
    [
        lambda: MCPServer.stdio("x", label="x", timeout=0),
        lambda: MCPServer.stdio("x", allow="read_*"),
        lambda: MCPServer.http("bank/mcp"),
        lambda: MCPServer(lambda h, e: None, label=""),
    ],
    ids=["timeout", "pattern", "url", "label"],
)
def test_options_that_cannot_be_are_refused(make: Any) -> None:
    with pytest.raises(UsageError):
        make()


# ── one connection for each set of headers ──────────────────────────────────────────────────


class Fake(Link):
    """A connection that is there at once."""

    def __init__(self) -> None:
        super().__init__(
            "fake",
            lambda ended: None,
            elicit=lambda c, p: None,  # type: ignore[arg-type, return-value]
            connect_timeout=1,
        )
        self.closed = False

    async def start(self) -> None:
        self.client = object()

    def close(self) -> None:
        self.closed = True


async def test_a_set_of_headers_has_one_connection_and_idle_ones_make_room() -> None:
    made: list[Fake] = []
    pool = Pool(lambda headers: made.append(Fake()) or made[-1], size=2)  # type: ignore[func-returns-value]
    one, again, two = [await pool.get({"token": each}) for each in ("a", "a", "b")]
    assert one is again
    assert one is not two
    two.calls.append(object())
    three = await pool.get({"token": "c"})
    assert [each.closed for each in made] == [True, False, False]
    three.calls.append(object())
    with pytest.raises(MCPServerError, match="2 connections with other headers are in use"):
        await pool.get({"token": "d"})
    pool.links()


async def test_a_connection_that_was_idle_for_long_is_closed() -> None:
    pool = Pool(lambda headers: Fake(), idle=10)
    link: Any = await pool.get({})
    link.last_use -= 5
    pool._sweep()
    assert not link.closed
    link.last_use -= 6
    pool._sweep()
    assert link.closed
    assert len(pool) == 0
    pool.links()


@pytest.mark.parametrize("headers", [None, "token", {"a": 1}], ids=repr)
async def test_headers_that_are_none_are_a_clear_error(headers: Any) -> None:
    with pytest.raises(MCPServerError, match="mapping of str to str"):
        await Pool(lambda given: Fake()).get(headers)


class Slow(Fake):
    """A connection that is there when it may, or fails."""

    def __init__(self) -> None:
        super().__init__()
        self.may = asyncio.Event()
        self.fails = False

    async def start(self) -> None:
        await self.may.wait()
        if self.fails:
            raise MCPServerError("not there")
        await super().start()


async def turns() -> None:
    """Let everything happen that only waits for its turn."""
    for _ in range(20):
        await asyncio.sleep(0)


async def left_while_it_starts(pool: Pool) -> None:
    waiting = asyncio.create_task(pool.get({}))
    await turns()
    waiting.cancel()
    await asyncio.wait([waiting])


async def test_a_connection_whose_only_chat_left_while_it_started_can_make_room() -> None:
    made: list[Slow] = []
    pool = Pool(lambda headers: made.append(Slow()) or made[-1], size=1)  # type: ignore[func-returns-value]
    await left_while_it_starts(pool)
    made[0].may.set()
    await turns()
    other = asyncio.create_task(pool.get({"token": "b"}))
    await turns()
    made[1].may.set()
    assert await other is made[1]
    assert made[0].closed
    pool.links()


async def test_a_failure_that_no_chat_waited_for_does_not_fail_the_next_chat() -> None:
    made: list[Slow] = []
    pool = Pool(lambda headers: made.append(Slow()) or made[-1])  # type: ignore[func-returns-value]
    await left_while_it_starts(pool)
    made[0].fails = True
    made[0].may.set()
    await turns()
    again = asyncio.create_task(pool.get({}))
    await turns()
    made[-1].may.set()
    assert await again is made[1]
    pool.links()


async def test_a_pool_whose_start_is_cancelled_does_not_cancel_the_chat() -> None:
    pool = Pool(lambda headers: Slow())
    waiting = asyncio.create_task(pool.get({}))
    await turns()
    [starting] = pool._starting.values()
    starting.cancel()
    with pytest.raises(MCPServerError, match="was closed"):
        await waiting
    pool.links()


async def test_a_server_that_is_closed_while_headers_are_made_opens_no_connection() -> None:
    made, opened = Notes(), []
    waits, may = asyncio.Event(), asyncio.Event()

    async def headers(run: Run) -> dict[str, str]:
        waits.set()
        await may.wait()
        return {"token": "a"}

    def open(given: Any, ended: Any) -> Any:
        opened.append(dict(given))
        return made.server

    server = MCPServer(open, label="notes", headers=headers)
    agent = Agent(ScriptedModel(call("add"), "done"))
    async with connect(agent, server):
        chat = asyncio.create_task(collect(agent.chat_stream("go")))
        await waits.wait()
    may.set()
    [result] = ends(await chat)
    assert result == ToolFailure(
        "the MCP server was closed; connect it again", type="MCPServerError"
    )
    assert opened == [{}]


async def test_a_connection_that_is_closed_before_it_begins_is_an_error_and_no_hang() -> None:
    pool = Pool(MCPServer.local(Notes().server)._linked)
    waiting = asyncio.create_task(pool.get({}))
    await asyncio.sleep(0)  # its task is made, and has not begun
    [link] = pool.links()
    await link.aclose()
    await turns()
    assert waiting.done()
    with pytest.raises(MCPServerError, match="was closed"):
        await waiting


# ── schemas of a stranger ───────────────────────────────────────────────────────────────────

EVIL = {"type": "object", "properties": {"a": {"type": "string", "pattern": "^(a+)+$"}}}


def answering(output: Any, structured: Any) -> Any:
    """A server with one tool, which says that of its results and gives this one."""

    async def list_tools(ctx: Any, params: Any) -> Any:
        tool = types.Tool(name="tell", input_schema=EVIL, output_schema=output)
        return types.ListToolsResult(tools=[tool])

    async def call_tool(ctx: Any, params: Any) -> Any:
        text = types.TextContent(type="text", text="fine")
        return types.CallToolResult(content=[text], structured_content=structured)

    return lowlevel.Server("tells", on_list_tools=list_tools, on_call_tool=call_tool)


async def test_a_pattern_that_could_take_for_ever_holds_neither_arguments_nor_results() -> None:
    evil = "a" * 5_000 + "!"
    server = MCPServer.local(answering(EVIL, {"a": evil}))
    [result] = ends(await events_of(server, call("tell", a=evil)))
    assert result == ToolResult({"a": evil})


@pytest.mark.parametrize(
    ("structured", "words"),
    [
        pytest.param({"a": 3}, "a: 3 is not of type 'string'", id="another-type"),
        pytest.param(None, "sent no structured data", id="none"),
    ],
)
async def test_a_result_that_is_not_as_its_schema_says_is_a_tool_error(
    structured: Any, words: str
) -> None:
    [result] = ends(await events_of(MCPServer.local(answering(EVIL, structured)), call("tell")))
    assert result.type == "MCPServerError"
    assert words in result.message


async def test_a_tool_whose_output_schema_is_none_is_left_out() -> None:
    wrong = {"type": "object", "properties": {"a": {"type": "text"}}}
    server = MCPServer.local(answering(wrong, {}))
    async with connect(Agent(ScriptedModel("x")), server):
        assert set(server.left_out) == {"tell"}


# ── unlucky moments ─────────────────────────────────────────────────────────────────────────


async def test_a_cancellation_at_the_end_of_the_block_closes_the_servers() -> None:
    server = MCPServer.local(Notes().server)

    async def work() -> None:
        async with connect(Agent(ScriptedModel("x")), server):
            asyncio.current_task().cancel()  # type: ignore[union-attr]

    with pytest.raises(asyncio.CancelledError):
        await asyncio.create_task(work())
    assert not server.connected
    assert server._users == 0


async def test_a_server_that_is_closed_in_a_call_ends_the_call(notes: Any) -> None:
    made, _ = notes
    agent = Agent(ScriptedModel(call("slow"), "done"))
    async with connect(agent, server_of(*notes)):
        chat = asyncio.create_task(collect(agent.chat_stream("go")))
        await made.slow.wait()
    for _ in range(10):
        await turns()
    assert chat.done()
    [result] = ends(await chat)
    assert result.type == "MCPServerError"
    assert "the connection to MCP server 'notes' was lost" in result.message


async def test_a_connect_that_is_cancelled_ends_at_once() -> None:
    opens = asyncio.Event()

    @asynccontextmanager
    async def open() -> AsyncGenerator[Any]:
        opens.set()
        await asyncio.Event().wait()
        yield

    server = MCPServer(lambda headers, ended: open(), label="silent")
    starting = asyncio.create_task(server.start())
    await opens.wait()
    starting.cancel()
    await turns()
    assert starting.cancelled()


async def test_a_program_that_ends_right_after_its_list_is_not_connected() -> None:
    told: list[Any] = []

    class Ends(Notes):
        async def list_tools(self, ctx: Any, params: Any) -> Any:
            told[0]("the server has ended with status 3")
            return await super().list_tools(ctx, params)

    listed = Ends().server
    server = MCPServer(lambda headers, ended: told.append(ended) or listed, label="brief")  # type: ignore[func-returns-value]
    with pytest.raises(MCPServerError, match="'brief': the server has ended with status 3"):
        await server.start()
    assert not server.connected


async def test_a_server_whose_tools_change_with_each_listing_is_not_listed_without_a_pause(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(mcp, "Client", partial(mcp.Client, mode="legacy"))
    monkeypatch.setattr("hookline.mcp._client.connection.FIRST_WAIT", 3600.0)
    lists: list[int] = []
    again = asyncio.Event()

    async def listed(ctx: Any, params: Any) -> Any:
        lists.append(len(lists))
        if len(lists) == 2:
            again.set()
        await ctx.session.send_tool_list_changed()
        return types.ListToolsResult(tools=[])

    restless = lowlevel.Server("restless", on_list_tools=listed)
    async with connect(Agent(ScriptedModel("x")), MCPServer.local(restless)):
        await again.wait()
        for _ in range(1_000):
            await asyncio.sleep(0)
        assert len(lists) == 2
