"""Routes of one's own: reading on, somebody else who approves, ids, errors as statuses."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import re
from inspect import signature
from pathlib import Path
from typing import Any, get_args, get_type_hints

import httpx
import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route
from tests.web import _check_ai_sdk as ai_sdk
from tests.web._server import LOCAL, direct
from tests.web._sse import read
from tests.web.test_site import Gate, answer_of, asked, asking, native, request_of

from hookline import Agent, Approve, Deny, MemoryStore, Text, UserMessage
from hookline.errors import (
    ApprovalError,
    ConversationBusyError,
    HooklineError,
    ModelError,
    OverloadedError,
    RateLimitError,
    StoreError,
    UsageError,
)
from hookline.events import ChatStarted
from hookline.hooks import allow_tools
from hookline.points import OnChatStart, PreChat
from hookline.stores import SQLStore
from hookline.testing import ScriptedModel, Turn
from hookline.web import (
    Refused,
    Runs,
    chat_response,
    conversation_key,
    error_response,
    read_conversation_key,
    resume_detached,
    resume_response,
    status_of,
)

STORED = "acme/ada/1"


class Desk:
    """Routes for one who asks, and for one who decides."""

    def __init__(self, agent: Agent[Any], store: MemoryStore, **options: Any) -> None:
        self.agent, self.store, self.runs = agent, store, Runs()
        self.options = {"protocol": "native", "on_disconnect": "detach", **options}
        routes = [
            Route("/chat", self.chat, methods=["POST"]),
            Route("/stream", self.again),
            Route("/decide", self.decide, methods=["POST"]),
        ]
        handlers: Any = {HooklineError: error_response, Refused: error_response}
        api = Starlette(routes=routes, exception_handlers=handlers)
        self.http = httpx.AsyncClient(transport=httpx.ASGITransport(api), base_url=LOCAL)

    async def chat(self, request: Request) -> Response:
        talk = await self.store.open(STORED)
        return await chat_response(
            self.agent, request, conversation=talk, runs=self.runs, **self.options
        )

    async def again(self, request: Request) -> Response:
        protocol = self.options["protocol"]
        return resume_response(STORED, request=request, runs=self.runs, protocol=protocol)

    async def decide(self, request: Request) -> Response:
        said: dict[str, bool] = await request.json()
        answers = {id: Approve() if yes else Deny("no") for id, yes in said.items()}
        talk = await self.store.open(STORED)
        await resume_detached(self.agent, talk, answers, runs=self.runs)
        return JSONResponse({"decided": len(answers)})


async def test_a_client_of_an_own_route_reads_on_after_a_frame_also_after_the_end() -> None:
    desk = Desk(Agent(ScriptedModel("One two three.", chunk=4)), MemoryStore())
    body = (await desk.http.post("/chat", json={"message": "hi"})).content
    frames, _ = read(body)
    assert len(frames) > 4
    assert (await desk.http.get("/stream")).status_code == 204  # nothing runs
    for at, frame in enumerate(frames[:-1]):
        rest = await desk.http.get("/stream", headers={"last-event-id": str(frame.id)})
        assert read(rest.content)[0] == frames[at + 1 :]
    last = await desk.http.get("/stream", headers={"last-event-id": str(frames[-1].id)})
    assert last.status_code == 204
    other = await desk.http.get("/stream", headers={"last-event-id": "ffffffffffff-1"})
    assert other.status_code == 204


async def test_a_program_sends_a_message_into_the_answer_of_an_own_route() -> None:
    gate = Gate()
    model = ScriptedModel(Turn("One.", delay=gate), "Two.")
    desk = Desk(Agent(model), MemoryStore())
    assert desk.runs.send(STORED, UserMessage(parts=(Text("Early."),))) is None
    posted = asyncio.create_task(desk.http.post("/chat", json={"message": "hi"}))
    await gate.reached.wait()
    queued = desk.runs.send(STORED, UserMessage(parts=(Text("And?"),)), when="idle")
    assert queued is not None
    assert queued.refused is None
    gate.open.set()
    await posted
    talk = await desk.store.open(STORED)
    assert [message.text for message in talk.messages] == ["hi", "One.", "And?", "Two."]
    assert talk.messages[2].id == queued.id
    late = desk.runs.send(STORED, UserMessage(parts=(Text("Late."),)))
    assert late is None or late.refused


async def test_what_runs_is_read_on_after_a_frame_and_from_its_start() -> None:
    gate, reached = asyncio.Event(), asyncio.Event()

    async def wait() -> None:
        reached.set()
        await gate.wait()

    desk = Desk(Agent(ScriptedModel("One two three.", chunk=4, delay=wait)), MemoryStore())
    first = asyncio.create_task(desk.http.post("/chat", json={"message": "hi"}))
    await reached.wait()
    run = next(iter(desk.runs._live.values())).header.run
    readers = [
        asyncio.create_task(desk.http.get("/stream", headers=headers))
        for headers in ({}, {"last-event-id": f"{run}-1"})
    ]
    while len(next(iter(desk.runs._live.values())).log.readers) < 3:  # noqa: ASYNC110
        await asyncio.sleep(0)
    gate.set()
    frames, _ = read((await first).content)
    whole, rest = [read((await each).content)[0] for each in readers]
    assert (whole, rest) == (frames, frames[2:])


# ── who approves ────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("protocol", ["native", "ai-sdk", "ag-ui"])
async def test_the_one_who_asks_may_not_answer_where_somebody_else_decides(protocol: str) -> None:
    agent, paid = asking()
    async with direct(agent, approvals=False) as (_, http):
        known = await asked(http, protocol)
        refused = await http.post(f"/{protocol}", json=answer_of(protocol, known))
        assert refused.status_code == 403
        assert refused.text == "You cannot answer approvals here; wait for the decision."
        assert paid == []


async def pending_of(desk: Desk) -> str:
    (waiting,) = (await desk.store.open(STORED)).pending
    return waiting.id


async def test_somebody_else_approves_and_the_stream_of_the_asker_goes_on() -> None:
    agent, paid = asking()
    desk = Desk(agent, MemoryStore(), approvals=False)
    await desk.http.post("/chat", json={"message": "pay"})
    id = await pending_of(desk)
    own = await desk.http.post("/chat", json={"answers": {id: {"approved": True}}})
    assert (own.status_code, paid) == (403, [])

    done = await desk.http.post("/decide", json={id: True})
    assert done.json() == {"decided": 1}
    run = desk.runs._live[STORED].header.run
    seen = await desk.http.get("/stream", headers={"last-event-id": f"{run}-0"})
    assert b"That is done." in seen.content
    assert paid == ["Ada"]

    late = await desk.http.post("/decide", json={id: True})  # an answer counts once
    assert late.status_code == 409
    assert late.json()["detail"].startswith("This approval is no longer waiting for an answer")
    assert paid == ["Ada"]


async def test_the_asker_reads_the_decision_while_it_is_carried_out_also_after_a_restart() -> None:
    store = MemoryStore()
    agent, _ = asking()
    before = Desk(agent, store, protocol="ai-sdk", approvals=False)
    await before.http.post("/chat", json=request_of("ai-sdk", "pay"))

    gate = asyncio.Event()
    other, paid = asking("That is done.")
    other.add_hook("preRequest", lambda ctx: gate.wait())  # type: ignore[arg-type,return-value]
    desk = Desk(other, store, protocol="ai-sdk", approvals=False)  # a new process
    id = await pending_of(desk)
    await desk.http.post("/decide", json={id: True})
    reading = asyncio.create_task(desk.http.get("/stream"))
    while not desk.runs._live[STORED].log.readers:  # noqa: ASYNC110
        await asyncio.sleep(0)
    busy = await desk.http.post("/decide", json={id: True})
    assert busy.status_code == 409
    gate.set()
    chunks = ai_sdk.check((await reading).content)
    outputs = [each["output"] for each in chunks if each["type"] == "tool-output-available"]
    assert outputs == ["paid 10.0 to Ada"]
    assert paid == ["Ada"]


@pytest.mark.parametrize("drain", [0, 10])
async def test_an_approval_that_was_accepted_right_before_a_shutdown_is_carried_out(
    tmp_path: Path, drain: int
) -> None:
    """The shutdown comes after more and more turns of the event loop, as far as 200 tries go."""
    async with SQLStore(f"sqlite:///{tmp_path}/desk.db") as store:
        for tries in range(int(os.environ.get("HOOKLINE_TRIES", "12"))):
            agent, paid = asking()
            id = f"acme/ada/{tries}"
            talk, runs = await store.open(id), Runs()
            (request,) = (await agent.chat("pay", conversation=talk)).pending
            await resume_detached(agent, talk, {request.id: Approve()}, runs=runs)
            for _ in range(tries * 5):
                await asyncio.sleep(0)
            await runs.shutdown(drain)
            assert paid == ["Ada"]
            assert await store.pending(id) == ()


async def test_a_refusal_by_somebody_else_is_shown_as_one() -> None:
    agent, paid = asking()
    desk = Desk(agent, MemoryStore(), protocol="ai-sdk", approvals=False)
    await desk.http.post("/chat", json=request_of("ai-sdk", "pay"))
    talk = await desk.store.open(STORED)
    (waiting,) = talk.pending
    await resume_detached(agent, talk, {waiting.id: Deny("no")}, runs=desk.runs)
    live = desk.runs._live[STORED]
    assert live.header.denied == (waiting.call.id,)
    await live.join()
    assert paid == []


def keywords(function: Any) -> frozenset[str]:
    """The keywords that a function passes on to a chat."""
    starlette: dict[str, Any] = {"Request": Any, "Response": Any, "StreamingResponse": Any}
    (options,) = get_args(get_type_hints(function, localns=starlette)["options"])
    return frozenset(options.__optional_keys__)


def test_the_keywords_of_a_route_are_those_of_a_chat() -> None:
    own = {"self", "input", "answers", "conversation"}
    for method in (Agent.chat_stream, Agent.resume_stream):
        named = set(signature(method).parameters) - own
        assert named == keywords(resume_detached)
        assert named - {"system"} == keywords(chat_response)  # the route's is another


@pytest.mark.parametrize("principal", ["ada", "a/b", "ä@x.org", "%~", "%2F", " "])
@pytest.mark.parametrize("id", ["c1", "a/b", "%20"])
def test_a_key_tells_the_principal_and_the_id(principal: str, id: str) -> None:
    assert read_conversation_key(conversation_key(principal, id)) == (principal, id)


@pytest.mark.parametrize(
    "key",
    ["", "c1", "ada/", "a b/c1", "%~timeline/x", conversation_key("a" * 101, "c1")],
)
def test_what_is_no_key_of_ours_is_refused(key: str) -> None:
    with pytest.raises(UsageError, match=re.escape(repr(key))):
        read_conversation_key(key)


# ── ids ─────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("options", "body", "name"),
    [
        ({}, {}, None),
        ({}, {"conversation": "mine"}, "mine"),
        ({"conversation_id": "c-1"}, {"conversation": "mine"}, "c-1"),
    ],
    ids=["unnamed", "the client's", "the route's"],
)
async def test_the_id_of_the_store_never_leaves_the_server(
    options: Any, body: Any, name: str | None
) -> None:
    agent, _ = asking()
    desk = Desk(agent, MemoryStore(), **options)
    data = (await desk.http.post("/chat", json={"message": "pay", **body})).content
    assert STORED.encode() not in data
    started = native(data)[0]
    assert isinstance(started, ChatStarted)
    assert started.conversation_id == name
    id = await pending_of(desk)
    await desk.http.post("/chat", json={"answers": {id: {"approved": True}}, **body})
    run = desk.runs._live[STORED].header.run
    again = await desk.http.get("/stream", headers={"last-event-id": f"{run}-0"})
    assert b"That is done." in again.content
    assert STORED.encode() not in again.content


async def test_without_a_conversation_the_stream_and_the_hooks_know_one_id() -> None:
    agent = Agent(ScriptedModel("Hello!"))
    seen: list[str | None] = []

    @agent.hook("onChatStart")
    def started(ctx: OnChatStart) -> None:
        seen.append(ctx.run.conversation_id)

    async def chat(request: Request) -> Response:
        return await chat_response(agent, request, protocol="native")

    api = Starlette(routes=[Route("/", chat, methods=["POST"])])
    async with httpx.AsyncClient(transport=httpx.ASGITransport(api), base_url=LOCAL) as http:
        events = native((await http.post("/", json={"message": "hi"})).content)
    assert [events[0].conversation_id] == seen


async def test_a_message_that_goes_on_after_an_approval_has_not_stopped() -> None:
    agent, _ = asking()
    async with direct(agent) as (_, http):
        first = await http.post("/ai-sdk", json=request_of("ai-sdk", "pay"))
        chunks = ai_sdk.check(first.content)
        assert chunks[-1]["messageMetadata"]["stopReason"] == "approval"
        (request,) = [c for c in chunks if c["type"] == "tool-approval-request"]
        known = {"id": request["approvalId"], "message": chunks[0]["messageId"]}
        second = await http.post("/ai-sdk", json=answer_of("ai-sdk", known))
        metadata: dict[str, Any] = {}
        for chunk in [*chunks, *ai_sdk.check(second.content, known={"c1"})]:
            metadata |= chunk.get("messageMetadata", {})  # as the client merges it
        assert metadata["stopReason"] is None


# ── errors ──────────────────────────────────────────────────────────────────────────────────


def test_each_error_has_its_status() -> None:
    assert status_of(ConversationBusyError("c", "d")) == 409
    assert status_of(ApprovalError("late")) == 409
    assert status_of(RateLimitError("slow")) == status_of(OverloadedError("busy")) == 503
    assert status_of(ModelError("broken")) == 502
    assert status_of(StoreError("gone")) == 503
    assert status_of(UsageError("wrong")) == status_of(ValueError("x")) == 500
    assert status_of(Refused(418, "tea")) == 418


async def test_a_handler_answers_with_the_status_and_no_secret() -> None:
    async def fail(request: Request) -> Response:
        name = request.path_params["name"]
        if name == "busy":
            raise ConversationBusyError(STORED, "chat-1")
        if name == "slow":
            raise RateLimitError("sk-123", retry_after=1.2)
        raise Refused(429, "Too many.", retry_after="5")

    handlers: Any = {HooklineError: error_response, Refused: error_response}
    api = Starlette(routes=[Route("/{name}", fail)], exception_handlers=handlers)
    async with httpx.AsyncClient(transport=httpx.ASGITransport(api), base_url=LOCAL) as http:
        busy, slow, many = [await http.get(f"/{name}") for name in ("busy", "slow", "many")]
    assert busy.status_code == 409
    assert busy.json()["detail"].startswith("This conversation is busy with another answer (error")
    assert (slow.status_code, slow.headers["retry-after"]) == (503, "2")
    assert "sk-123" not in slow.text
    assert (many.status_code, many.headers["retry-after"]) == (429, "5")
    assert many.json() == {"detail": "Too many."}


async def test_the_application_answers_with_the_same_statuses() -> None:
    class Closed(MemoryStore):
        async def load(self, *args: Any, **more: Any) -> Any:
            raise StoreError("password=hunter2")

    async with direct(Agent(ScriptedModel("Hello!")), store=Closed()) as (_, http):
        answer = await http.post("/native", json=request_of("native", "hi"))
    assert answer.status_code == 503
    assert "hunter2" not in answer.text


async def test_the_log_names_the_hook_that_ended_a_chat(caplog: pytest.LogCaptureFixture) -> None:
    agent = Agent(ScriptedModel("Hello!"))

    @agent.hook("preChat", name="quota")
    def quota(ctx: PreChat) -> None:
        error = ValueError("password=hunter2")
        error.add_note("seen by hunter2")
        raise error

    with caplog.at_level(logging.ERROR, "hookline.web"):
        async with direct(agent) as (_, http):
            data = (await http.post("/native", json=request_of("native", "hi"))).text
    id = json.loads(read(data.encode())[0][-1].data)["error"]["message"].split()[-1][:-2]
    assert f"error {id}: raised by hook 'quota' at preChat" in caplog.messages
    assert "hunter2" not in caplog.text


async def test_hooks_of_a_site_are_given_for_each_principal() -> None:
    model = ScriptedModel("Hello!", "Hello!")

    def search() -> str:
        """Search."""
        return "nothing"

    def delete() -> str:
        """Delete."""
        return "deleted"

    async def policy(scope: Any, principal: str) -> list[Any]:
        return [allow_tools("search")] if principal == "ada" else []

    site = {"authorize": lambda connection: connection.headers.get("x-user"), "hooks": policy}
    async with direct(Agent(model, tools=[search, delete]), **site) as (_, http):
        for user in ("ada", "bea"):
            body = request_of("native", "hi")
            assert (await http.post("/native", json=body, headers={"x-user": user})).is_success
    names = [sorted(tool.name for tool in request.tools) for request in model.requests]
    assert names == [["search"], ["delete", "search"]]
