"""The roads of a text that leave the chat: files, logs, durable chats, replays, MCP and the web."""

from __future__ import annotations

import asyncio
import json
import os
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import mcp
from mcp import types
from mcp.server import lowlevel
from tests._text_chats import SECRET, THROUGH, Guards, Play, Trace, agent_of, chat, takes, tells
from tests.web._redis import clear, need_redis, new_prefix
from tests.web._server import conversation_of, direct
from tests.web.test_relay import begun, followed_by, workers
from tests.web.test_site import Gate, request_of

from hookline import Agent, Approve, Ask, Conversation, Deny, MemoryStore, define_hook
from hookline.durable import chats, client
from hookline.hooks import audit, cache, log
from hookline.mcp import MCPServer, connect
from hookline.mcp._server.serve import _Served
from hookline.replay import fork, record_of_log, records_of, replay
from hookline.runtimes import Durable
from hookline.testing import ScriptedModel, call
from hookline.testing.cassette import cassette
from hookline.web import Page

# ── files and logs ──────────────────────────────────────────────────────────────────────────


def _speaks(guards: Guards, **options: Any) -> Agent[Any]:
    """An agent whose model and tool say it."""
    return agent_of(guards, [THROUGH, call("tells")], THROUGH, tools=[tells], **options)


async def audit_file(guards: Guards) -> Trace:
    with TemporaryDirectory() as folder:
        file = Path(folder) / "audit.jsonl"
        trace = await chat(_speaks([*audit(file, content=True), *guards]))
        return trace._replace(more={"audit file": file.read_text()})


async def audited_answers(guards: Guards) -> Trace:
    with TemporaryDirectory() as folder:
        file = Path(folder) / "audit.jsonl"
        hooks = [*audit(file, content=True), *guards]
        agent = agent_of(hooks, call("takes"), "Done.", tools=[takes])
        agent.add_hook("preToolCall", lambda ctx: Ask("Sure?"))
        trace = await chat(agent, approver=lambda request, run: Approve(note=SECRET))
        return trace._replace(more={"audit file": file.read_text()})


async def log_file(guards: Guards) -> Trace:
    return await chat(_speaks([*log("hookline.chats", content=True), *guards]))


class _Answers:
    """A cache that a program shares with others."""

    def __init__(self) -> None:
        self.entries: dict[str, bytes] = {}

    async def get(self, key: str, /) -> bytes | None:
        return self.entries.get(key)

    async def set(self, key: str, value: bytes, /) -> None:
        self.entries[key] = value


async def cached(guards: Guards) -> Trace:
    answers = _Answers()
    trace = await chat(_speaks([*cache(answers), *guards]))
    return trace._replace(more={"cache": repr(answers.entries)})


@contextmanager
def _at_home() -> Iterator[None]:
    """Leave CI, where no cassette is recorded."""
    before = os.environ.pop("CI", None)
    try:
        yield
    finally:
        if before is not None:
            os.environ["CI"] = before


async def on_tape(guards: Guards) -> Trace:
    with TemporaryDirectory() as folder:
        file = Path(folder) / "tape.json"
        with _at_home(), cassette(file) as tape:
            trace = await chat(_speaks(guards), hooks=[tape])
        return trace._replace(more={"cassette": file.read_text()})


# ── durable chats ───────────────────────────────────────────────────────────────────────────


async def _durable(agent: Agent[Any], message: str = "Hi.") -> dict[str, str]:
    """The places in which a durable chat is kept, and what the readers of its log show."""
    with TemporaryDirectory() as folder:
        url = f"sqlite:///{folder}/chats.db"
        async with client(url) as jobs, chats(agent, url):
            id = await jobs.start(message)
            await jobs.result(id)
            log = [batch for _, batch in (await jobs.record(id)).batches]
            timeline = await jobs.timeline(id)
        with closing(sqlite3.connect(f"{folder}/chats.db")) as database:
            job = repr(database.execute("SELECT * FROM hookline_job").fetchall())
    record = record_of_log(id, log)
    return {
        "durable log": b"".join(log).decode(),
        "record of the log": repr(record),
        "timeline": repr(timeline),
        "queue of the engine": job,
    }


async def durable_chat(guards: Guards) -> Trace:
    more = await _durable(_speaks(guards, runtime=Durable()))
    return Trace([], Conversation(), more=more)


async def durable_message(guards: Guards) -> Trace:
    more = await _durable(agent_of(guards, runtime=Durable()), THROUGH)
    return Trace([], Conversation(), more=more)


# ── replays ─────────────────────────────────────────────────────────────────────────────────


def refuse(ctx: Any) -> Deny:
    return Deny(SECRET)


async def _replayed(guards: Guards, policy: Any) -> dict[str, str]:
    store = MemoryStore()
    turns = call("takes", text=SECRET), THROUGH
    agent = agent_of(guards, *turns, tools=[takes], store=store)
    await agent.chat("Hi.", conversation="a")
    report = await replay(store, agent, hooks=[policy])
    return {"replay report": report.table() + repr(list(report))}


async def replayed_call(guards: Guards) -> Trace:
    policy = define_hook("preToolCall", lambda ctx: Deny("no"), name="policy")
    return Trace([], Conversation(), more=await _replayed(guards, policy))


async def replayed_reason(guards: Guards) -> Trace:
    policy = define_hook("preToolCall", refuse, name="policy")
    return Trace([], Conversation(), more=await _replayed(guards, policy))


async def forked(guards: Guards) -> Trace:
    """The fork of a chat goes on with an agent that has no guard."""
    first = await chat(_speaks(guards))
    second = await chat(agent_of(guards), message="More.", conversation=first.conversation)
    copy = fork(records_of(second.conversation.messages)[-1], step=0)
    return await chat(Agent(ScriptedModel("Done.")), message="More.", conversation=copy)


# ── MCP ─────────────────────────────────────────────────────────────────────────────────────


def _tool_server(
    text: str = "fine", *, fails: bool = False, progress: str = "", question: str = ""
) -> Any:
    """A server with one tool, which says and asks this."""

    async def list_tools(ctx: Any, params: Any) -> Any:
        tool = types.Tool(name="look", description="Look.", input_schema={"type": "object"})
        return types.ListToolsResult(tools=[tool])

    async def call_tool(ctx: Any, params: Any) -> Any:
        if progress:
            await ctx.session.report_progress(1, 2, progress)
        if question and not params.input_responses:
            form = types.ElicitRequestFormParams(message=question, requested_schema=_FORM)
            request = types.ElicitRequest(params=form)
            return types.InputRequiredResult(input_requests={"q": request}, request_state="s")
        content = types.TextContent(type="text", text=text)
        return types.CallToolResult(content=[content], is_error=fails)

    return lowlevel.Server("far", on_list_tools=list_tools, on_call_tool=call_tool)


_FORM: dict[str, Any] = {"type": "object", "properties": {}}


def of_mcp(**options: Any) -> Play:
    """A chat with a tool of an MCP server that says it."""

    async def play(guards: Guards) -> Trace:
        approver = (lambda request, run: Approve()) if "question" in options else None
        agent = agent_of(guards, call("look"), "Done.", approver=approver)
        async with connect(agent, MCPServer.local(_tool_server(**options))):
            return await chat(agent)

    return play


async def over_mcp(guards: Guards) -> Trace:
    """A client of the agent, which is a tool of an MCP server."""
    shown: list[str] = []

    async def progress(done: float, total: float | None, message: str | None) -> None:
        shown.append(message or "")

    server = _Served(_speaks(guards), None, None, None).server()
    async with mcp.Client(server) as far:
        result = await far.call_tool("chat", {"message": "hi"}, progress_callback=progress)
    more = {"MCP result": repr(result), "MCP progress": "".join(shown)}
    return Trace([], Conversation(), more=more)


# ── the web ─────────────────────────────────────────────────────────────────────────────────


async def _posted(
    agent: Agent[Any], protocol: str, message: str = "Hi.", *, details: bool = False
) -> dict[str, str]:
    """What a client and the page of the application get."""
    async with direct(agent, page=Page(details=details)) as (_, http):
        posted = await http.post(f"/{protocol}", json=request_of(protocol, message))
        assert posted.status_code == 200, posted.text
        more = {"frames": posted.text}
        more["titles"] = (await http.get("/conversations")).text
        more["messages"] = (await http.get(f"/{protocol}/c1/messages")).text
        more["timeline of the page"] = (await http.get("/page/c1/timeline")).text
        (run,) = json.loads(more["timeline of the page"])["runs"]
        steps = [await http.get(f"/page/c1/steps/{run['run']}/{step}") for step in (0, 1)]
        more["details of a step"] = "".join(step.text for step in steps)
    return more


def on_the_web(protocol: str, *, details: bool = False) -> Play:
    async def play(guards: Guards) -> Trace:
        more = await _posted(_speaks(guards), protocol, details=details)
        return Trace([], Conversation(), more=more)

    return play


async def title(guards: Guards) -> Trace:
    return Trace([], Conversation(), more=await _posted(agent_of(guards), "native", THROUGH))


async def new_title(guards: Guards) -> Trace:
    agent = agent_of(guards)
    async with direct(agent) as (site, http):
        await http.post("/native", json=request_of("native", "Hi."))
        renamed = await http.patch("/conversations/c1", json={"title": THROUGH})
        listed = await http.get("/conversations")
        talk = await conversation_of(site, "c1")
    return Trace([], talk, more={"answer": renamed.text, "titles": listed.text})


async def shared_state(guards: Guards) -> Trace:
    """A front end of AG-UI sends its part of `run.state`."""
    async with direct(agent_of(guards), ag_ui_state={"note": str}) as (site, http):
        body = request_of("ag-ui", "Hi.", state={"note": THROUGH})
        posted = await http.post("/ag-ui", json=body)
        talk = await conversation_of(site, "c1")
    return Trace([], talk, more={"frames": posted.text})


async def relayed(guards: Guards) -> Trace:
    """A run of one process is read in another. Needs Redis."""
    need_redis()
    prefix, gate = new_prefix(), Gate()
    model = ScriptedModel(THROUGH, chunk=4, delay=gate)
    try:
        async with workers(Agent(model, hooks=guards), prefix) as (first, second):
            posting = asyncio.ensure_future(
                first.http.post("/native", json=request_of("native", "Hi."))
            )
            await begun(first)
            reading = asyncio.ensure_future(second.http.get("/native/c1/stream"))
            await followed_by(second)
            gate.open.set()
            await posting
            frames = (await reading).text
    finally:
        clear(prefix)
    return Trace([], Conversation(), more={"relay": frames})
