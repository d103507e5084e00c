"""The roads through other doors: durable chats, cassettes, forks, workspaces, MCP and the web."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import mcp
from mcp import types
from mcp.server import lowlevel
from tests.guards.case import (
    APPROVED,
    BAD,
    EDITED,
    GOOD,
    Case,
    asks,
    bash_call,
    road,
)
from tests.guards.command_line import commands_by_kind
from tests.guards.second_process import commands_that_ran
from tests.web._server import direct
from tests.web.test_site import request_of

from hookline import Agent, Approve, Conversation, Deny, MemoryStore, ToolMessage
from hookline.mcp import MCPServer, connect
from hookline.mcp._server.serve import _Served
from hookline.points import Guide
from hookline.replay import fork, records_of
from hookline.runtimes import Durable, Halted, Journal
from hookline.storage import Rule
from hookline.stores import SQLStore
from hookline.testing import ScriptedModel, call
from hookline.testing.cassette import cassette
from hookline.workspace import Workspace

# ── messages into a chat, answers again ─────────────────────────────────────────────────────


async def _sent(case: Case, when: Any, *turns: Any) -> None:
    agent = case.agent(*turns)
    async with agent.chat_stream("go", conversation=Conversation(), **case.keywords) as stream:
        stream.send("Now the other one.", when=when)
        async for _ in stream:
            pass


@road("a message is sent into the chat")
async def _(case: Case) -> None:
    await _sent(case, "next", bash_call(GOOD), bash_call())


@road("a message is sent for the end of the chat")
async def _(case: Case) -> None:
    await _sent(case, "idle", "hello", bash_call())


@road("a Guide asks for another answer")
async def _(case: Case) -> None:
    agent = case.agent("hello", bash_call())
    once = iter([Guide("Use a tool.")])
    agent.add_hook("onResponse", lambda ctx: next(once, None))
    await case.chat(agent)


# ── durable chats ───────────────────────────────────────────────────────────────────────────


class _Model:
    """A model that goes on where the history is, in any life of a durable chat."""

    name = provider = "scripted"

    def __init__(self, turn: Any) -> None:
        self._turn = turn

    async def stream(self, request: Any, /) -> AsyncIterator[Any]:
        turn = "done" if isinstance(request.messages[-1], ToolMessage) else self._turn
        async for chunk in ScriptedModel(turn).stream(request):
            yield chunk


class _Log:
    """The log of a durable chat, in memory. The worker dies at the batch with this number."""

    def __init__(self, answer: Any = lambda: Deny("no"), crash: int | None = None) -> None:
        self._batches: list[bytes] = []
        self._answer = answer
        self._crash = crash

    async def read(self) -> list[bytes]:
        return list(self._batches)

    async def append(self, data: bytes) -> None:
        if len(self._batches) == self._crash:
            self._crash = None
            raise Halted
        self._batches.append(data)

    async def answer(self, request: Any) -> Any:
        return self._answer()

    def poke(self) -> None:
        """Nothing is suspended here."""


async def _live(case: Case, agent: Agent[Any], log: _Log) -> bool:
    """One life of a durable chat; returns whether it has ended."""
    journal = await Journal.open("chat", log)
    try:
        await journal.carry(lambda: agent.chat("go", chat_id="chat", **case.keywords))
    except Halted:
        return False
    return True


def _durable(case: Case, *, guarded: bool, command: str = BAD) -> Agent[Any]:
    make = case.agent if guarded else case.bare
    return make(model=_Model(bash_call(command)), runtime=Durable())


def _durable_above(case: Case, below: Agent[Any]) -> Agent[Any]:
    model = _Model(call("sub", input="go"))
    return case.agent(model=model, runtime=Durable(), tools=[below.as_tool(name="sub")])


@road("a durable chat")
async def _(case: Case) -> None:
    await _live(case, _durable(case, guarded=True), _Log())


@road("a sub-agent of a durable chat, guard on the top")
async def _(case: Case) -> None:
    await _live(case, _durable_above(case, case.bare(name="below")), _Log())


@road("a durable approval, guard added while the call waited")
async def _(case: Case) -> None:
    agent = _durable(case, guarded=False)
    asks(agent)

    def answer() -> Approve:
        case.tighten(agent)
        return APPROVED

    await _live(case, agent, _Log(answer))


@road("a durable approval with changed arguments")
async def _(case: Case) -> None:
    agent = _durable(case, guarded=True, command=GOOD)
    asks(agent)
    await _live(case, agent, _Log(lambda: EDITED))


@road("a durable approval in a sub-agent with changed arguments, guard on the top")
async def _(case: Case) -> None:
    below = case.bare(bash_call(GOOD), name="below")
    asks(below)
    await _live(case, _durable_above(case, below), _Log(lambda: EDITED))


@road("a durable chat goes on in another process, guard added since")
async def _(case: Case) -> None:
    """The worker dies at each place of the log, unless the command has run by then."""
    for crash in range(100):
        log = _Log(crash=crash)
        if await _live(case, _durable(case, guarded=False), log):
            break
        case.ran.clear()
        await _live(case, _durable(case, guarded=True), log)
        if case.ran:
            return
        case.stack.close()  # the next first life has no guard
        case.keywords = {}
    case.ran.clear()  # of the life that had no guard


# ── cassettes and forks ─────────────────────────────────────────────────────────────────────


@contextmanager
def _at_home() -> Iterator[None]:
    """Leave CI, where no cassette is recorded."""
    before = os.environ.pop("CI", None)
    try:
        yield
    finally:
        if before is not None:
            os.environ["CI"] = before


async def _taped(case: Case, agent: Agent[Any], file: Path, **options: Any) -> Any:
    with _at_home(), cassette(file, **options) as tape:
        return await case.chat(agent, hooks=[*case.keywords.get("hooks", []), tape])


@road("a cassette is recorded")
async def _(case: Case) -> None:
    with TemporaryDirectory() as folder:
        await _taped(case, case.agent(), Path(folder) / "tape.json")


@road("a cassette is replayed with the tools, guard added since")
async def _(case: Case) -> None:
    with TemporaryDirectory() as folder:
        file = Path(folder) / "tape.json"
        await _taped(case, case.bare(), file, mode="model")
        case.ran.clear()
        await _taped(case, case.agent(), file, mode="model")


@road("a cassette is replayed, guard added since")
async def _(case: Case) -> None:
    """A recorded result counts as a run."""
    with TemporaryDirectory() as folder:
        file = Path(folder) / "tape.json"
        await _taped(case, case.bare(), file)
        case.ran.clear()
        agent = case.agent()

        def note(ctx: Any) -> None:
            case.ran.append(ctx.call.arguments["command"])

        agent.add_hook("onToolCallResult", note)
        await _taped(case, agent, file)


@road("a fork of a chat")
async def _(case: Case) -> None:
    talk = Conversation()
    await case.bare(bash_call(GOOD)).chat("go", conversation=talk)
    copy = fork(records_of(talk.messages)[-1], step=1)
    await case.agent().chat(None, conversation=copy, **case.keywords)


@road("agent.twin()")
async def _(case: Case) -> None:
    await case.chat(case.agent().twin())


# ── remembered rules ────────────────────────────────────────────────────────────────────────


@road("a remembered approval of all conversations, guard added since")
async def _(case: Case) -> None:
    store = MemoryStore()
    first = case.bare(store=store)
    asks(first)
    response = await first.chat("go", conversation="one")
    rule = Approve(remember=Rule("bash", scope="always"))
    await first.resume("one", {each.id: rule for each in response.pending})
    case.ran.clear()
    second = case.agent(store=store)
    asks(second)
    await case.chat(second, conversation="two")


# ── a workspace ─────────────────────────────────────────────────────────────────────────────


class _Job:
    """A command that has ended."""

    stopped = ""

    async def output(self) -> Any:
        yield b"done\n"

    async def wait(self) -> int:
        return 0

    def kill(self) -> None:
        """It has ended."""


class _Sandbox:
    """A sandbox of one's own, which only notes the command."""

    name = "notes"
    confines = True

    def __init__(self, case: Case) -> None:
        self._case = case

    async def check(self) -> None:
        """Commands can run."""

    async def start(self, command: str, view: Any, limits: Any) -> _Job:
        self._case.ran.append(command)
        return _Job()

    async def aclose(self) -> None:
        """Nothing is held."""


@road("the bash of a workspace")
async def _(case: Case) -> None:
    with TemporaryDirectory() as folder:
        (root := Path(folder) / "root").mkdir()
        space = Workspace(root, mode="edits", sandbox=_Sandbox(case), state=Path(folder) / "state")
        async with case.agent(tools=[], plugins=[space]) as agent:
            await case.chat(agent)


# ── MCP ─────────────────────────────────────────────────────────────────────────────────────


@road("a tool of an MCP server")
async def _(case: Case) -> None:
    async def list_tools(ctx: Any, params: Any) -> Any:
        schema = {"type": "object", "properties": {"command": {"type": "string"}}}
        return types.ListToolsResult(
            tools=[types.Tool(name="bash", description="Run.", input_schema=schema)]
        )

    async def call_tool(ctx: Any, params: Any) -> Any:
        case.ran.append(params.arguments["command"])
        return types.CallToolResult(content=[types.TextContent(type="text", text="ran")])

    server = lowlevel.Server("far", on_list_tools=list_tools, on_call_tool=call_tool)
    agent = case.agent(tools=[])
    async with connect(agent, MCPServer.local(server)):
        await case.chat(agent)


@road("an MCP client asks the agent")
async def _(case: Case) -> None:
    server = _Served(case.agent(), None, None, None).server()
    async with mcp.Client(server) as client:
        await client.call_tool("chat", {"message": "go"})


# ── the command line ────────────────────────────────────────────────────────────────────────


@road("hookline chat -m")
async def _(case: Case) -> None:
    by_kind = await asyncio.to_thread(commands_by_kind)
    case.ran.extend(by_kind[case.kind])


# ── the web ─────────────────────────────────────────────────────────────────────────────────


def _site(case: Case, agent: Agent[Any]) -> Any:
    hooks = case.keywords.get("hooks", [])
    return direct(agent, **({"hooks": lambda scope, principal: hooks} if hooks else {}))


async def _posted(case: Case, protocol: str) -> None:
    async with _site(case, case.agent()) as (_, http):
        response = await http.post(f"/{protocol}", json=request_of(protocol, "go"))
        assert response.status_code == 200, response.text


@road("a web client, native")
async def _(case: Case) -> None:
    await _posted(case, "native")


@road("a web client, AI SDK")
async def _(case: Case) -> None:
    await _posted(case, "ai-sdk")


@road("a web client, AG-UI")
async def _(case: Case) -> None:
    await _posted(case, "ag-ui")


@road("a web client answers, guard added while the call waited")
async def _(case: Case) -> None:
    agent = case.bare()
    asks(agent)
    store = MemoryStore()
    async with direct(agent, store=store) as (_, http):
        await http.post("/native", json=request_of("native", "go"))
    case.tighten(agent)
    (request,) = await store.pending()
    hooks = case.keywords.get("hooks", [])
    options = {"hooks": lambda scope, principal: hooks} if hooks else {}
    async with direct(agent, store=store, **options) as (_, http):
        answers = {"conversation": "c1", "answers": {request.id: {"approved": True}}}
        response = await http.post("/native", json=answers)
        assert response.status_code == 200, response.text


@road("resume in a second process, guard added while the call waited")
async def _(case: Case) -> None:
    with TemporaryDirectory() as folder:
        url = f"sqlite:///{folder}/talks.db"
        async with SQLStore(url) as store:
            first = case.bare(store=store)
            asks(first)
            response = await first.chat("go", conversation="one")
        requests = [request.id for request in response.pending]
        case.ran += commands_that_ran(case.kind, url, requests)
