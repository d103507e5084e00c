"""An agent as a server: one tool, with progress, cancellation, conversations and approvals."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from tests._listening import listening

import hookline
from hookline import Agent, Approve, Ask, Deny, MemoryStore, Run, Text, tool
from hookline.errors import UsageError
from hookline.mcp import AgentApp, MCPServer, connect, serve
from hookline.testing import ScriptedModel, call

mcp = pytest.importorskip("mcp")
types = pytest.importorskip("mcp_types")

MODES = pytest.mark.parametrize("mode", ["auto", "legacy"], ids=["modern", "handshake"])


class Bank:
    """An agent that pays, once somebody has said so."""

    def __init__(self, *turns: Any, store: Any = None, approver: Any = None) -> None:
        self.paid: list[int] = []
        self.slow = asyncio.Event()
        self.ended: list[str] = []

        @tool
        async def pay(amount: int) -> str:
            """Pay."""
            self.paid.append(amount)
            return "paid"

        @tool
        async def wait() -> None:
            """Wait for ever."""
            self.slow.set()
            await asyncio.Event().wait()

        @tool
        async def name(run: Run) -> Any:
            """Ask for the name."""
            schema = {"type": "object", "properties": {"name": {"type": "string"}}}
            return await run.ask("Who?", schema)

        self.model = ScriptedModel(*turns)
        self.agent: Agent[Any] = Agent(
            self.model, tools=[pay, wait, name], name="bank", store=store, approver=approver
        )
        self.agent.add_hook("preToolCall", lambda ctx: Ask("May it pay?"), tools=["pay"])
        self.over = asyncio.Event()

        @self.agent.hook("onChatEnd")
        def ends(ctx: Any) -> None:
            self.ended.append(ctx.outcome)
            self.over.set()


@asynccontextmanager
async def client_of(bank: Bank, mode: str, *, answer: Any = None, principal: Any = None) -> Any:
    """A client of the SDK's, whose user answers so; None: it cannot ask anybody."""
    asked: list[str] = []

    async def elicit(ctx: Any, params: Any) -> Any:
        asked.append(params.message)
        return answer

    callback = None if answer is None else elicit
    async with (
        listening(serve(bank.agent, principal=principal)) as url,
        mcp.Client(url, mode=mode, elicitation_callback=callback) as client,
    ):
        yield client, asked


def text(result: Any) -> str:
    return "".join(block.text for block in result.content)


YES = types.ElicitResult(action="accept", content={"approve": True})


@MODES
async def test_a_client_lists_and_calls_with_progress(mode: str) -> None:
    async with client_of(Bank("Hello there."), mode) as (client, _):
        [listed] = (await client.list_tools()).tools
        assert (listed.name, listed.description) == ("chat", "Talk to the agent bank.")
        assert list(listed.input_schema["properties"]) == ["message"]
        shown: list[str] = []

        async def progress(done: float, total: float | None, message: str | None) -> None:
            shown.append(message or "")

        result = await client.call_tool("chat", {"message": "hi"}, progress_callback=progress)
    assert text(result) == "Hello there."
    assert "".join(shown) == "Hello there."


@MODES
async def test_a_client_that_cancels_aborts_the_chat(mode: str) -> None:
    bank = Bank(call("wait"), "never")
    async with client_of(bank, mode) as (client, _):
        asking = asyncio.ensure_future(client.call_tool("chat", {"message": "hi"}))
        await bank.slow.wait()
        asking.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asking
        await bank.over.wait()
    assert bank.ended == ["aborted"]


@MODES
@pytest.mark.parametrize("kept", [False, True], ids=["no-store", "store"])
@pytest.mark.parametrize(
    ("answer", "paid"),
    [
        pytest.param(YES, [7], id="yes"),
        pytest.param(types.ElicitResult(action="accept", content={"approve": False}), [], id="no"),
        pytest.param(types.ElicitResult(action="decline"), [], id="declined"),
        pytest.param(None, [], id="cannot-ask"),
    ],
)
async def test_a_call_that_needs_an_approval_is_put_to_the_clients_user(
    mode: str, kept: bool, answer: Any, paid: list[int]
) -> None:
    bank = Bank(call("pay", amount=7), "Said.", store=MemoryStore() if kept else None)
    async with client_of(bank, mode, answer=answer) as (client, asked):
        arguments = {"message": "pay", **({"conversation": "a"} if kept else {})}
        result = await client.call_tool("chat", arguments)
    assert text(result) == "Said."
    assert bank.paid == paid
    assert asked == ([] if answer is None else ['May it pay?\npay {"amount": 7}'])


@MODES
@pytest.mark.parametrize("answer", [YES, None], ids=["asks", "cannot-ask"])
@pytest.mark.parametrize("approves", [True, False], ids=["approves", "denies"])
async def test_an_agents_own_approver_decides_instead_of_the_clients_user(
    mode: str, answer: Any, approves: bool
) -> None:
    decision = Approve() if approves else Deny("no")
    bank = Bank(call("pay", amount=7), "Said.", approver=lambda request, run: decision)
    async with client_of(bank, mode, answer=answer) as (client, asked):
        await client.call_tool("chat", {"message": "pay"})
    assert bank.paid == ([7] if approves else [])
    assert asked == []


@MODES
async def test_a_text_that_a_hook_withdraws_is_not_sent_as_progress(mode: str) -> None:
    bank = Bank("the secret")
    bank.agent.add_hook("onResponse", lambda ctx: ctx.response.replace(parts=(Text("nothing"),)))
    shown: list[str | None] = []

    async def progress(done: float, total: float | None, message: str | None) -> None:
        shown.append(message)

    async with client_of(bank, mode) as (client, _):
        result = await client.call_tool("chat", {"message": "hi"}, progress_callback=progress)
    assert (text(result), shown) == ("nothing", ["nothing"])


async def test_a_tools_question_is_put_to_a_client_that_can_be_asked() -> None:
    answer = types.ElicitResult(action="accept", content={"name": "Ada"})
    bank = Bank(call("name"), "Hello.")
    async with client_of(bank, "legacy", answer=answer) as (client, asked):
        await client.call_tool("chat", {"message": "hi"})
    assert asked == ["Who?"]


@MODES
async def test_a_call_that_a_client_must_run_is_an_error_and_no_empty_answer(mode: str) -> None:
    bank = Bank(call("pick"), "Then not.", store=MemoryStore())

    @tool(client=True)
    def pick() -> None:
        """Pick a file in the browser."""

    bank.agent = Agent(bank.model, tools=[pick], store=bank.agent.store)
    arguments = {"message": "hi", "conversation": "a"}
    async with client_of(bank, mode) as (client, _):
        first = await client.call_tool("chat", arguments)
        second = await client.call_tool("chat", arguments)
    assert first.is_error
    assert "a tool that its client runs" in text(first)
    assert (text(second), second.is_error) == ("Then not.", False)


@MODES
async def test_no_client_reaches_anothers_conversation(mode: str) -> None:
    store = MemoryStore()
    who = ["ada"]
    bank = Bank("one", "two", "three", store=store)
    async with client_of(bank, mode, principal=lambda ctx: who[0]) as (client, _):
        for name in ("ada", "ada", "eve/ada"):
            who[0] = name
            await client.call_tool("chat", {"message": "hi", "conversation": "c"})
    counts = [len(request.messages) for request in bank.model.requests]
    assert counts == [1, 3, 1]


async def test_answers_of_another_client_run_nothing() -> None:
    who = ["ada"]
    bank = Bank(call("pay", amount=7), "Said.")
    async with client_of(bank, "auto", answer=YES, principal=lambda ctx: who[0]) as (client, _):
        first = await client.session.call_tool(
            "chat", {"message": "pay"}, allow_input_required=True
        )
        who[0] = "eve"
        again = await client.session.call_tool(
            "chat",
            {"message": "pay"},
            input_responses=dict.fromkeys(first.input_requests, YES),
            request_state=first.request_state,
            allow_input_required=True,
        )
    assert again.is_error
    assert "these answers are no longer expected" in text(again)
    assert bank.paid == []


@MODES
@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        pytest.param({}, "message must be a string", id="nothing"),
        pytest.param({"message": " "}, "message must be a string", id="blank"),
        pytest.param({"message": 3}, "message must be a string", id="number"),
        pytest.param({"message": "x" * 1_048_577}, "message must be a string", id="long"),
        pytest.param({"message": "x", "conversation": "a"}, "does not keep conv", id="no-store"),
        pytest.param({"message": "x", "conversation": "../b"}, "letters, digits", id="bad-id"),
    ],
)
async def test_a_request_that_cannot_be_served_is_an_error_of_the_tool(
    mode: str, arguments: Any, words: str
) -> None:
    async with client_of(Bank("never"), mode) as (client, _):
        result = await client.call_tool("chat", arguments)
    assert result.is_error
    assert words in text(result)


async def test_the_error_of_an_agent_shows_no_more_than_its_type() -> None:
    bank = Bank("x")
    bank.agent.add_hook("onChatStart", lambda ctx: 1 / 0)
    async with client_of(bank, "auto") as (client, _):
        result = await client.call_tool("chat", {"message": "hi"})
    assert (result.is_error, text(result)) == (True, "the agent failed (ZeroDivisionError)")


def test_something_else_than_an_agent_is_refused() -> None:
    with pytest.raises(UsageError, match="needs an Agent"):
        serve("app:agent")  # type: ignore[arg-type]


# ── by HTTP and by stdio, with hookline on both ends ────────────────────────────────────────


@pytest.mark.parametrize("stateless", [False, True], ids=["sessions", "stateless"])
async def test_an_agent_asks_an_agent_by_http(stateless: bool) -> None:
    bank = Bank("We have 3 euros.")
    agent = Agent(ScriptedModel(call("chat", message="How much?"), "Three."))
    async with (
        listening(serve(bank.agent, stateless=stateless)) as url,
        connect(agent, MCPServer.http(url, label="bank")),
    ):
        response = await agent.chat("go")
    assert [m.text for m in response.messages if m.role == "tool"] == ["We have 3 euros."]


async def test_each_tenant_has_a_connection_with_its_own_token() -> None:
    served = serve(Bank("one", "two", "three").agent)
    sent: list[tuple[bytes, str]] = []  # by whom, and what

    async def noting(scope: Any, receive: Any, send: Any) -> None:
        async def receive_and_note() -> Any:
            message = await receive()
            token = dict(scope.get("headers", ())).get(b"authorization")
            if token and (body := message.get("body")):
                sent.append((token, json.loads(body)["method"]))
            return message

        await served(scope, receive_and_note, send)

    agent: Agent[str] = Agent(ScriptedModel(call("chat", message="?"), "done", repeat=True))

    async def headers(run: Run[Any]) -> dict[str, str]:
        return {"Authorization": f"Bearer {run.deps}"}

    async with (
        listening(noting) as url,
        connect(agent, MCPServer.http(url, label="bank", headers=headers)),
    ):
        for tenant in ("ada", "eve", "ada"):
            await agent.chat("go", deps=tenant)
    assert sent == [
        (b"Bearer ada", "server/discover"),
        (b"Bearer ada", "tools/call"),
        (b"Bearer eve", "server/discover"),
        (b"Bearer eve", "tools/call"),
        (b"Bearer ada", "tools/call"),  # on the same connection
    ]


async def test_a_server_that_is_not_there_is_told() -> None:
    server = MCPServer.http("http://127.0.0.1:9/mcp", label="bank", connect_timeout=20)
    with pytest.raises(Exception, match="cannot connect to MCP server 'bank'"):
        async with connect(Agent(ScriptedModel("x")), server):
            raise AssertionError("connected")


async def test_an_agent_is_served_on_stdio_by_the_command_line(tmp_path: Path) -> None:
    pytest.importorskip("cyclopts")
    (tmp_path / "bank.py").write_text(
        "from hookline import Agent\nfrom hookline.testing import ScriptedModel\n"
        "print('a print that must not break the protocol')\n"
        "agent = Agent(ScriptedModel('We have 3 euros.'), name='bank')\n"
    )
    server = MCPServer.stdio(
        sys.executable, "-m", "hookline", "mcp", "bank:agent", label="bank", cwd=tmp_path
    )
    agent = Agent(ScriptedModel(call("chat", message="How much?"), "Three."))
    async with connect(agent, server):
        response = await agent.chat("go")
    assert [m.text for m in response.messages if m.role == "tool"] == ["We have 3 euros."]


# ── as a part of another application, with and without a lifespan ───────────────────────────


@pytest.mark.parametrize("stateless", [False, True], ids=["sessions", "stateless"])
@pytest.mark.parametrize("lifespan", ["on", "off"])
async def test_a_mounted_server_answers_though_its_lifespan_does_not_run(
    lifespan: str, stateless: bool
) -> None:
    applications: Any = pytest.importorskip("starlette.applications")
    routing: Any = pytest.importorskip("starlette.routing")
    served = serve(Bank("We have 3 euros.").agent, stateless=stateless)
    site = applications.Starlette(routes=[routing.Mount("/agent", app=served)])
    agent = Agent(ScriptedModel(call("chat", message="How much?"), "Three."))
    async with listening(site, lifespan=lifespan) as url:
        server = MCPServer.http(url.replace("/mcp", "/agent/mcp"), label="bank")
        async with connect(agent, server):
            response = await agent.chat("go")
    assert [m.text for m in response.messages if m.role == "tool"] == ["We have 3 euros."]


def test_one_application_serves_in_one_event_loop_after_another() -> None:
    served = serve(Bank("one", "two").agent)

    async def ask() -> list[str]:
        agent = Agent(ScriptedModel(call("chat", message="?"), "done"))
        async with (
            listening(served, lifespan="off") as url,
            connect(agent, MCPServer.http(url, label="bank")),
        ):
            response = await agent.chat("go")
        return [m.text for m in response.messages if m.role == "tool"]

    assert [asyncio.run(ask()), asyncio.run(ask())] == [["one"], ["two"]]


async def test_sessions_that_cannot_begin_fail_each_request_and_are_tried_again() -> None:
    applications: Any = pytest.importorskip("starlette.applications")
    tries: list[str] = []

    @asynccontextmanager
    async def life(app: Any) -> AsyncGenerator[None]:
        tries.append("try")
        raise OSError("no sessions")
        yield

    served = AgentApp(lambda: applications.Starlette(lifespan=life))

    async def nothing(*args: Any) -> Any: ...

    for number in (1, 2):
        with pytest.raises(OSError, match="no sessions"):
            await served({"type": "http"}, nothing, nothing)
        assert len(tries) == number


async def test_a_lifespan_ends_the_sessions() -> None:
    served = serve(Bank("one").agent)
    before = asyncio.all_tasks()
    agent = Agent(ScriptedModel(call("chat", message="?"), "done"))
    async with listening(served) as url, connect(agent, MCPServer.http(url, label="bank")):
        await agent.chat("go")
    assert [task for task in asyncio.all_tasks() - before if not task.done()] == []


@MODES
async def test_the_server_tells_its_version(mode: str) -> None:
    async with client_of(Bank("Hi."), mode) as (client, _):
        assert client.server_info.version == hookline.__version__


@pytest.mark.parametrize("kept", [False, True], ids=["no-store", "store"])
async def test_an_answer_that_comes_twice_is_told_what_to_do(kept: bool) -> None:
    bank = Bank(call("pay", amount=7), "Said.", store=MemoryStore() if kept else None)
    arguments = {"message": "pay", **({"conversation": "a"} if kept else {})}
    async with client_of(bank, "auto", answer=YES) as (client, _):
        first = await client.session.call_tool("chat", arguments, allow_input_required=True)
        both = [
            await client.session.call_tool(
                "chat",
                arguments,
                input_responses=dict.fromkeys(first.input_requests, YES),
                request_state=first.request_state,
                allow_input_required=True,
            )
            for _ in range(2)
        ]
    assert [text(each) for each in both] == [
        "Said.",
        "these answers are no longer expected; send the message again",
    ]
    assert bank.paid == [7]


async def test_an_answer_may_come_to_another_process_if_the_conversation_is_in_a_store() -> None:
    store = MemoryStore()
    asking = Bank(call("pay", amount=7), "never", store=store)
    answering = Bank("Said.", store=store)
    arguments = {"message": "pay", "conversation": "a"}
    async with client_of(asking, "auto", answer=YES) as (client, _):
        first = await client.session.call_tool("chat", arguments, allow_input_required=True)
    async with client_of(answering, "auto", answer=YES) as (client, _):
        again = await client.session.call_tool(
            "chat",
            arguments,
            input_responses=dict.fromkeys(first.input_requests, YES),
            request_state=first.request_state,
            allow_input_required=True,
        )
    assert (text(again), asking.paid, answering.paid) == ("Said.", [], [7])


@pytest.mark.parametrize(
    ("options", "host", "refused"),
    [
        pytest.param({}, "localhost:8000", False, id="loopback"),
        pytest.param({}, "agents.example", True, id="another-name"),
        pytest.param({"host": "0.0.0.0"}, "agents.example", False, id="open"),
        pytest.param({"allowed_hosts": ("agents.example",)}, "agents.example", False, id="named"),
        pytest.param({"allowed_hosts": ("agents.example",)}, "localhost:8000", True, id="unnamed"),
    ],
)
async def test_a_request_for_a_host_that_is_not_served_is_refused(
    options: Any, host: str, refused: bool
) -> None:
    httpx = pytest.importorskip("httpx")
    transport = httpx.ASGITransport(serve(Bank("Hi.").agent, **options))
    headers = {"accept": "application/json, text/event-stream"}
    async with httpx.AsyncClient(transport=transport, base_url=f"http://{host}") as client:
        answer = await client.post("/mcp", json={}, headers=headers)
    assert answer.status_code == (421 if refused else 400)
    assert (answer.text == "Invalid Host header") is refused


@MODES
@pytest.mark.parametrize(
    ("details", "lines"),
    [
        ({"kind": "diff", "path": "a", "text": "-old\n+new\u202e\n"}, ["-old", "+new\\u202e"]),
        ({"kind": "command", "text": "ls\x1b"}, ['{"kind": "command", "text": "ls\\u001b"}']),
        ({"kind": "diff"}, ['{"kind": "diff"}']),
        (None, []),
    ],
    ids=["diff", "command", "no text", "none"],
)
async def test_a_clients_user_sees_the_details_of_a_question(
    mode: str, details: dict[str, str] | None, lines: list[str]
) -> None:
    @tool
    def send() -> str:
        """Send money."""
        return "sent"

    bank = Bank(call("send"), "done")
    agent = Agent(bank.model, tools=[send], name="bank")
    agent.add_hook("preToolCall", lambda ctx: Ask("Sure?", details=details))
    bank.agent = agent
    async with client_of(bank, mode, answer=YES) as (client, asked):
        await client.call_tool("chat", {"message": "hi"})
    [question] = asked
    assert question.split("\n")[:-1] == ["Sure?", *lines]


@MODES
async def test_a_clients_user_sees_the_hidden_characters_of_a_question(mode: str) -> None:
    to = "evil\u202emoc.knab\u200b\x1b[2J"

    @tool
    def send(to: str) -> str:
        """Send money."""
        return "sent"

    bank = Bank(call("send", to=to), "done")
    agent = Agent(bank.model, tools=[send], name="bank")
    agent.add_hook("preToolCall", lambda ctx: Ask(f"Send to {to}?\nSure?"))
    bank.agent = agent
    async with client_of(bank, mode, answer=YES) as (client, asked):
        await client.call_tool("chat", {"message": "hi"})
    [question] = asked
    assert question.replace("\n", "").isprintable()
    first, second, third = question.split("\n")
    assert first == r"Send to evil\u202emoc.knab\u200b\x1b[2J?"
    assert second == "Sure?"
    assert r"evil\u202emoc.knab\u200b" in third
