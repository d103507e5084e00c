"""What prevents a chat is a status of the response; what happens in a chat is an event."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import httpx
import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from tests.web._server import LOCAL, client, direct, eventually, site_of
from tests.web._sse import read
from tests.web.test_site import EACH, Gate, gated, native, request_of, text_of

from hookline import Agent, MemoryStore, Proceed, UserMessage
from hookline import Response as ChatResponse
from hookline.errors import StoreError, UsageError
from hookline.events import MessageAdded
from hookline.points import AroundChat, OnChatStart
from hookline.testing import ScriptedModel
from hookline.web import Caps, Runs, chat_response

BUSY = "This conversation is busy with another answer"


@asynccontextmanager
async def busy_elsewhere(protocol: str) -> AsyncIterator[MemoryStore]:
    """A store in which another application answers in conversation c1."""
    store, gate = MemoryStore(), Gate()
    async with (
        site_of(gated("Hello.", gate=gate), store=store) as (_, url),
        client(url) as http,
    ):
        posting = asyncio.create_task(http.post(f"/{protocol}", json=request_of(protocol, "hi")))
        await gate.reached.wait()
        yield store
        gate.open.set()
        assert text_of(protocol, (await posting).content) == "Hello."


def own_route(agent: Agent[Any], store: Any, **options: Any) -> httpx.AsyncClient:
    async def chat(request: Request) -> Response:
        talk = await store.open("owner/c1")
        return await chat_response(agent, request, conversation=talk, **options)

    api = Starlette(routes=[Route("/{protocol}", chat, methods=["POST"])])
    return httpx.AsyncClient(transport=httpx.ASGITransport(api), base_url=LOCAL)


@EACH
@pytest.mark.parametrize("how", ["cancel", "detach", "queue", "route"])
async def test_a_conversation_that_is_busy_elsewhere_is_a_409(
    protocol: Any, how: str, caplog: pytest.LogCaptureFixture
) -> None:
    agent = Agent(ScriptedModel("Mine."))
    options: dict[str, Any] = {"detach": {"on_disconnect": "detach"}}.get(how, {})
    if how == "queue":
        options = {"on_busy": "queue"}
    async with (
        busy_elsewhere(protocol) as store,
        direct(agent, store=store, page=True, **options) as (site, http),
    ):
        if how == "route":
            http = own_route(agent, store, protocol=protocol)
        with caplog.at_level(logging.WARNING):
            answer = await http.post(f"/{protocol}", json=request_of(protocol, "me too"))
        assert answer.status_code == 409
        assert answer.headers["content-type"].startswith("text/plain")
        assert answer.headers["retry-after"] == "5"
        assert answer.text.startswith(BUSY)
        assert (len(site.runs), site.runs._live) == (0, {})
    assert len(caplog.messages) == 1
    assert "ConversationBusyError" in caplog.messages[0]


@EACH
async def test_a_conversation_that_is_busy_here_says_when_to_try_again(protocol: str) -> None:
    gate = Gate()
    async with site_of(gated("Hello.", gate=gate)) as (_, url), client(url) as http:
        posting = asyncio.create_task(http.post(f"/{protocol}", json=request_of(protocol, "hi")))
        await gate.reached.wait()
        second = await http.post(f"/{protocol}", json=request_of(protocol, "two"))
        assert (second.status_code, second.headers["retry-after"]) == (409, "5")
        gate.open.set()
        await posting


async def test_the_free_conversation_answers_after_a_refusal() -> None:
    agent = Agent(ScriptedModel("Mine."))
    async with busy_elsewhere("native") as store:
        pass
    async with direct(agent, store=store) as (_, http):
        answer = await http.post("/native", json=request_of("native", "me too"))
        assert text_of("native", answer.content) == "Mine."


@EACH
async def test_the_head_does_not_wait_for_the_model_or_a_hook_of_the_chat(protocol: str) -> None:
    gate = Gate()
    agent = Agent(ScriptedModel("Hello."))

    @agent.hook("onChatStart")
    async def slow(ctx: OnChatStart) -> None:
        await gate()

    body = request_of(protocol, "hi")
    async with (
        site_of(agent) as (_, url),
        client(url) as http,
        http.stream("POST", f"/{protocol}", json=body) as answer,
    ):
        assert answer.status_code == 200  # while the hook still waits
        gate.open.set()
        assert text_of(protocol, await answer.aread()) == "Hello."


class Wrapped:
    """An agent with a wrapper around each chat that waits, and then may raise."""

    def __init__(self, error: Exception | None) -> None:
        self.gate = Gate()
        self.agent = Agent(ScriptedModel("Hello."))

        async def around(
            ctx: AroundChat, proceed: Proceed[UserMessage, ChatResponse]
        ) -> ChatResponse:
            await self.gate()
            if error is not None:
                raise error
            return await proceed()

        self.agent.add_hook("aroundChat", around, name="quota")


@pytest.mark.parametrize("route", [False, True], ids=["app", "own route"])
@pytest.mark.parametrize(
    ("kind", "status"), [(UsageError, 500), (StoreError, 503), (ValueError, 500)]
)
async def test_what_is_raised_before_a_chat_has_its_status(
    route: bool, kind: type[Exception], status: int, caplog: pytest.LogCaptureFixture
) -> None:
    wrapped = Wrapped(kind("hunter2"))
    wrapped.gate.open.set()
    async with direct(wrapped.agent) as (site, http):
        if route:
            http = own_route(wrapped.agent, MemoryStore(), protocol="native", runs=site.runs)
        with caplog.at_level(logging.ERROR, "hookline.web"):
            answer = await http.post("/native", json=request_of("native", "hi"))
        assert answer.status_code == status
        id = answer.text.split()[-1][:-2]
        assert f"error {id}: raised by hook 'quota' at aroundChat" in caplog.messages
        assert f"error {id}: a chat did not begin: {kind.__name__}" in caplog.messages
        assert "hunter2" not in caplog.text + answer.text
        assert (len(site.runs), site.runs._live) == (0, {})
        if not route:
            assert (await http.get("/conversations")).json() == {"conversations": []}


async def test_a_message_that_is_there_already_is_refused_before_the_chat() -> None:
    """Two tabs send the same message: the second chat finds it in the store."""
    store = MemoryStore()
    agent = Agent(ScriptedModel("One.", "Two."))
    said = {"parts": [{"part": "text", "text": "hi"}], "id": "u1"}
    http = own_route(agent, store, protocol="native")
    assert (await http.post("/native", json={"message": said})).status_code == 200
    again = await http.post("/native", json={"message": said})
    assert again.status_code == 409


async def test_a_slow_beginning_is_awaited_with_comments() -> None:
    """A wrapper may wait for minutes; no proxy may take the connection for dead meanwhile."""
    wrapped = Wrapped(ValueError("hunter2"))
    caps = Caps(keep_alive=0.01)
    async with (
        site_of(wrapped.agent, caps=caps) as (_, url),
        client(url) as http,
        http.stream("POST", "/native", json=request_of("native", "hi")) as answer,
    ):
        assert answer.status_code == 200
        parts = answer.aiter_raw()
        seen = b""
        while b": keep-alive" not in seen:
            seen += await anext(parts)
        wrapped.gate.open.set()
        seen += b"".join([each async for each in parts])
    (event,) = [event for event in read(seen)[0] if "chat_failed" in event.data]
    assert "hunter2" not in event.data


async def test_a_request_that_ends_before_its_chat_begins_ends_the_chat() -> None:
    wrapped = Wrapped(None)
    async with site_of(wrapped.agent) as (site, _):
        scope = {
            "type": "http",
            "method": "POST",
            "path": "/native",
            "headers": [
                (b"host", b"localhost"),
                (b"content-type", b"application/json"),
                (b"authorization", f"Bearer {site._config.guard._token}".encode()),
            ],
        }
        body = b'{"conversation": "c1", "message": "hi"}'

        async def receive() -> dict[str, Any]:
            return {"type": "http.request", "body": body}

        async def send(message: Any) -> None:
            raise AssertionError(message)

        request = asyncio.create_task(site(scope, receive, send))
        await wrapped.gate.reached.wait()
        request.cancel()
        await asyncio.gather(request, return_exceptions=True)
        await eventually(lambda: len(site.runs) == 0)


async def test_a_resumed_stream_of_a_chat_that_cannot_begin_is_not_a_second_refusal() -> None:
    wrapped = Wrapped(ValueError("hunter2"))
    runs = Runs()
    store = MemoryStore()
    http = own_route(wrapped.agent, store, protocol="native", runs=runs, on_disconnect="detach")
    posting = asyncio.create_task(http.post("/native", json=request_of("native", "hi")))
    await wrapped.gate.reached.wait()
    wrapped.gate.open.set()
    assert (await posting).status_code == 500
    assert runs._live == {}


# ── what the application's own functions raise ──────────────────────────────────────────────


@pytest.mark.parametrize("name", ["deps", "hooks"])
@pytest.mark.parametrize("kind", ["sync", "async"])
async def test_the_log_names_the_function_that_raised(
    name: str, kind: str, caplog: pytest.LogCaptureFixture
) -> None:
    def fails(scope: Any, principal: str) -> Any:
        raise KeyError("hunter2")

    async def fails_later(scope: Any, principal: str) -> Any:
        raise KeyError("hunter2")

    given = {name: fails if kind == "sync" else fails_later}
    async with direct(Agent(ScriptedModel("Hello!")), **given) as (_, http):
        with caplog.at_level(logging.ERROR, "hookline.web"):
            answer = await http.post("/native", json=request_of("native", "hi"))
    assert answer.status_code == 500
    id = answer.text.split()[-1][:-2]
    assert caplog.messages == [f"error {id}: {name}= raised KeyError"]
    assert "hunter2" not in answer.text


# ── requests that cannot be read ────────────────────────────────────────────────────────────


@pytest.mark.parametrize("body", [{}, {"conversation": "c1"}, {"message": None}, {"history": []}])
async def test_a_request_for_nothing_is_told_which_keys_there_are(body: Any) -> None:
    async with direct(Agent(ScriptedModel())) as (_, http):
        answer = await http.post("/native", json=body)
    assert answer.status_code == 400
    assert answer.text == "Send exactly one of: message; answers and results; regenerate."


@EACH
@pytest.mark.parametrize("id", [".", ".."])
async def test_an_id_that_no_address_can_have_is_refused(protocol: str, id: str) -> None:
    """A client takes `/native/../stream` for `/stream`, so nobody could read or stop the answer."""
    async with direct(Agent(ScriptedModel("Hello!", "Hello!"))) as (_, http):
        answer = await http.post(f"/{protocol}", json=request_of(protocol, "hi", id))
        assert answer.status_code == 400
        assert "must not be '.' or '..'" in answer.text
        near = await http.post(f"/{protocol}", json=request_of(protocol, "hi", f"{id}a"))
        assert near.status_code == 200


async def test_while_an_answer_runs_the_messages_and_the_stream_are_the_conversation() -> None:
    gate = Gate()
    agent = gated("Hello.", gate=gate)
    async with (
        site_of(agent, on_disconnect="detach") as (_, url),
        client(url) as http,
    ):
        posting = asyncio.create_task(http.post("/native", json=request_of("native", "hi")))
        await gate.reached.wait()
        listed = {}
        for protocol in ("native", "ai-sdk", "ag-ui"):
            shown = (await http.get(f"/{protocol}/c1/messages")).json()
            assert shown["running"] is True
            listed[protocol] = [each["role"] for each in shown["messages"]]
        assert listed == {"native": [], "ai-sdk": ["user"], "ag-ui": ["user"]}
        gate.open.set()
        added = [each for each in native((await posting).content) if isinstance(each, MessageAdded)]
        assert [each.message.role for each in added] == ["user", "assistant"]
