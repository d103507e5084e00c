"""Messages that browsers send into durable chats: at any web worker, in any life of the chat."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager
from typing import Any

import httpx
import pytest
from tests.durable._engines import Engine
from tests.durable.conftest import engine_at
from tests.durable.test_shown import EACH, browser, relay_of
from tests.web._redis import clear, need_redis, new_prefix
from tests.web.test_site import answer_of, asked, request_of
from tests.web.test_steering import Work, sent, texts, told

from hookline import Agent, Ask, Deny, MemoryStore, tool
from hookline.points import OnChatDone, PreSteer
from hookline.runtimes import Durable
from hookline.testing import ScriptedModel, call
from hookline.web.relay import RedisRelay


@pytest.fixture(params=["sqlite", "postgres", "restate"])
def engine(request: pytest.FixtureRequest, _places: Any) -> Engine:
    return engine_at(_places, request.param)


@pytest.fixture
def prefix() -> Iterator[str]:
    need_redis()
    made = new_prefix()
    yield made
    clear(made)


def working(work: Work, steps: int) -> Agent[Any]:
    turns = [call("work") for _ in range(steps)]
    model = ScriptedModel(*turns, *("Done.",) * 40)
    tools = [tool(idempotent=True)(work.work)]
    agent: Agent[Any] = Agent(model, tools=tools, runtime=Durable(), store=MemoryStore())

    @agent.hook("preSteer")
    def refuse(ctx: PreSteer) -> Deny | None:
        return Deny("not this") if "forbidden" in ctx.message.text else None

    return agent


async def stored(agent: Agent[Any]) -> Any:
    assert agent.store is not None
    conversation = await agent.store.load("owner/c1")
    assert conversation is not None
    return conversation.messages


@EACH
async def test_a_message_of_a_browser_is_in_the_next_request_of_the_durable_chat(
    engine: Engine, protocol: str, prefix: str
) -> None:
    work = Work()
    agent = working(work, 1)
    async with (
        engine.worker(agent, relay=relay_of(prefix)),
        browser(engine, agent, prefix) as a,
        browser(engine, agent, prefix) as b,
    ):
        path = f"/{protocol}/c1/messages"
        assert (await b.post(path, json=sent(protocol, "early"))).status_code == 409
        first = asyncio.create_task(a.post(f"/{protocol}", json=request_of(protocol, "hi")))
        await work.runs(1)
        body = sent(protocol, "Be brief.", "my-id")
        replies = [await http.post(path, json=body) for http in (b, a)]
        await a.post(path, json=sent(protocol, "forbidden"))
        work.end()
        data = (await first).content
        replies.append(await b.post(path, json=body))  # it is delivered, and the chat is over
        id = replies[0].json()["id"]
        assert [(r.status_code, r.json()) for r in replies] == [
            (202, {"id": id, "status": "queued"})
        ] * 3
        [(queued, _), (refused, _)] = [t for t in told(protocol, data) if t[1] == "queued"]
        assert queued == id
        assert data.count(b"not this") == 1
        assert sorted(told(protocol, data)) == sorted(
            [(id, "queued"), (id, "delivered"), (refused, "queued"), (refused, "returned")]
        )
        assert texts(await stored(agent)) == ["hi", "Be brief."]
        late = await b.post(path, json=sent(protocol, "late"))
        assert (late.status_code, late.text) == (
            409,
            "Not delivered: the chat ended before the message was delivered; "
            "send it as a new message.",
        )


@EACH
async def test_a_message_that_comes_when_a_durable_chat_ends_is_returned_in_its_stream(
    engine: Engine, protocol: str, prefix: str
) -> None:
    agent = working(Work(), 0)
    path = f"/{protocol}/c1/messages"
    replies: list[httpx.Response] = []
    async with (
        engine.worker(agent, relay=relay_of(prefix)),
        browser(engine, agent, prefix) as http,
    ):

        @agent.hook("onChatDone")
        async def late(ctx: OnChatDone) -> None:
            replies.append(await http.post(path, json=sent(protocol, "late", "my-id")))

        data = (await http.post(f"/{protocol}", json=request_of(protocol, "hi"))).content
        [reply] = replies
        assert reply.status_code == 202
        assert told(protocol, data) == [(reply.json()["id"], "returned")]
        again = await http.post(path, json=sent(protocol, "late", "my-id"))
        assert again.status_code == 409
        after = await http.post(path, json=sent(protocol, "after", "another-id"))
        assert after.status_code == 409
        assert texts(await stored(agent)) == ["hi"]


class Late(RedisRelay):
    """A relay that does something between the last event of a chat and the end of its stream."""

    act: Callable[[], Awaitable[None]]

    @asynccontextmanager
    async def show(self, *args: Any) -> AsyncIterator[Any]:
        async with super().show(*args) as screen:
            yield screen
            await self.act()


@EACH
async def test_a_message_that_comes_after_the_last_event_of_a_durable_chat_is_not_accepted(
    engine: Engine, protocol: str, prefix: str
) -> None:
    agent = working(Work(), 0)
    body = sent(protocol, "late", "my-id")
    path = f"/{protocol}/c1/messages"
    relay = Late(need_redis(), prefix=prefix, lease=5.0)
    replies: list[httpx.Response] = []

    async def late() -> None:
        replies.append(await http.post(path, json=body))

    relay.act = late
    async with engine.worker(agent, relay=relay), browser(engine, agent, prefix) as http:
        data = (await http.post(f"/{protocol}", json=request_of(protocol, "hi"))).content
        [reply] = replies
        assert (reply.status_code, reply.headers["retry-after"]) == (503, "1")
        assert told(protocol, data) == []
        while reply.status_code == 503:
            reply = await http.post(path, json=body)
        assert reply.status_code == 409
        assert texts(await stored(agent)) == ["hi"]


async def test_a_chat_that_waits_for_an_approval_takes_a_message_of_a_browser(
    engine: Engine, prefix: str
) -> None:
    work = Work()
    work.end()
    agent = working(work, 1)
    agent.add_hook("preToolCall", lambda ctx: Ask("Work?"))
    async with (
        engine.worker(agent, relay=relay_of(prefix)) as worker,
        browser(engine, agent, prefix) as http,
    ):
        known = await asked(http, "native")
        await engine.at_rest(worker)
        relay = relay_of(prefix)
        await relay.open()
        await relay.forget("owner/c1")  # as once the run has expired
        await relay.aclose()
        reply = await http.post("/native/c1/messages", json=sent("native", "And tell me."))
        assert reply.status_code == 202
        answer = await http.post("/native", json=answer_of("native", known))
        id = reply.json()["id"]
        assert told("native", answer.content) == [(id, "queued"), (id, "delivered")]
        assert texts(await stored(agent))[-1] == "And tell me."


@pytest.mark.parametrize("key", ["/answer", "/answered", "/run", "/input"])
async def test_a_life_that_ends_once_an_approval_is_recorded_hides_nothing_of_what_follows(
    engine: Engine, prefix: str, key: str
) -> None:
    work = Work()
    work.end(2)
    agent = working(work, 1)
    agent.add_hook("preToolCall", lambda ctx: Ask("Work?"))
    lives: list[str] = []

    @agent.hook("onChatStart")
    @agent.hook("onApproval")
    def end_later(ctx: Any) -> None:
        [journal] = engine.journals(worker)
        append = journal.log.append

        async def append_and_end(data: bytes) -> None:
            await append(data)
            if f'{key}"'.encode() in data and not lives:
                lives.append("over")
                journal.halt()

        journal.log.append = append_and_end  # type: ignore[method-assign]

    async with (
        engine.worker(agent, relay=relay_of(prefix)) as worker,
        browser(engine, agent, prefix) as http,
    ):
        known = await asked(http, "native")
        await engine.at_rest(worker)
        reply = await http.post("/native/c1/messages", json=sent("native", "And tell me."))
        id = reply.json()["id"]
        answer = await http.post("/native", json=answer_of("native", known))
        assert lives == ["over"]
        assert told("native", answer.content) == [(id, "queued"), (id, "delivered")]
        assert answer.content.count(b"tool_call_finished") == 1


async def test_a_message_of_a_browser_that_interrupts_cancels_a_running_tool(
    engine: Engine, prefix: str
) -> None:
    work = Work()
    agent = working(work, 1)
    async with (
        engine.worker(agent, relay=relay_of(prefix)),
        browser(engine, agent, prefix) as http,
    ):
        first = asyncio.create_task(http.post("/native", json=request_of("native", "hi")))
        await work.runs(1)
        body = sent("native", "Stop that.", when="interrupt")
        assert (await http.post("/native/c1/messages", json=body)).status_code == 202
        await first
        assert texts(await stored(agent)) == ["hi", "Stop that."]


@pytest.mark.slow
async def test_a_message_too_many_for_a_durable_chat_is_refused_with_the_reason(
    engine: Engine, prefix: str
) -> None:
    work = Work()
    agent = working(work, 2)
    async with (
        engine.worker(agent, relay=relay_of(prefix)),
        browser(engine, agent, prefix) as http,
    ):
        first = asyncio.create_task(http.post("/native", json=request_of("native", "hi")))
        for step in (1, 2):  # the messages that the chat has taken do not count
            await work.runs(step)
            replies = [
                await http.post("/native/c1/messages", json=sent("native", f"{step}"))
                for _ in range(65)
            ]
            assert {reply.status_code for reply in replies[:64]} == {202}
            assert (replies[64].status_code, replies[64].text) == (
                409,
                "Not delivered: 64 messages wait already; send it as a new message.",
            )
            work.end()
        await first
        assert texts(await stored(agent)) == ["hi", *("1",) * 64, *("2",) * 64]


@EACH
@pytest.mark.parametrize("seed", range(3))
async def test_each_of_many_messages_is_delivered_once_in_order_or_returned(
    engine: Engine, protocol: str, seed: int, prefix: str
) -> None:
    """Two web workers, two durable workers, and lives that end anywhere."""
    rng = random.Random(f"{protocol} {seed}")
    work, steps = Work(), rng.randint(2, 6)
    agent = working(work, steps)
    path = f"/{protocol}/c1/messages"
    bodies: dict[str, tuple[str, Any]] = {}  # by the id of the sent message: when, and the request
    refusals: list[str] = []
    ends = 2

    def end(ctx: Any) -> None:
        nonlocal ends
        if ends and rng.random() < 0.3:
            ends -= 1
            for worker in (one, two):
                for journal in engine.journals(worker):
                    journal.halt()

    agent.add_hook("preSteer", end)
    agent.add_hook("onStep", end)
    one, two = (engine.worker(agent, relay=relay_of(prefix)) for _ in range(2))
    async with (
        one,
        two,
        browser(engine, agent, prefix) as a,
        browser(engine, agent, prefix) as b,
    ):

        async def send(count: int) -> None:
            for _ in range(count):
                number = len(bodies) + len(refusals)
                text = f"{rng.choice(['plain', 'forbidden', 'plain'])} {number}"
                when = rng.choice(["next", "next", "idle"])
                body = sent(protocol, text, f"id-{number}", when=when)
                http: httpx.AsyncClient = rng.choice([a, b])
                reply = await http.post(path, json=body)
                if reply.status_code == 202:
                    assert reply.json()["id"] not in bodies
                    bodies[reply.json()["id"]] = (when, body)
                else:
                    assert reply.status_code == 409
                    refusals.append(text)

        first = asyncio.create_task(a.post(f"/{protocol}", json=request_of(protocol, "hi")))
        for step in range(steps):
            await work.runs(step + 1)
            await send(rng.randint(0, 5))
            racing = asyncio.create_task(send(3 * (step == steps - 1)))
            work.end()
            await racing
        data = (await first).content
        async with engine.client() as jobs:
            [chat] = await jobs.list()
            await jobs.result(chat.id)
        again = {id: await b.post(path, json=body) for id, (_, body) in bodies.items()}

    messages = await stored(agent)
    ids = [m.id for m in messages if m.id in bodies]
    assert len(ids) == len(set(ids))
    for when in ("next", "idle"):
        order = [id for id, (each, _) in bodies.items() if each == when and id in ids]
        assert [id for id in ids if bodies[id][0] == when] == order
    assert not set(texts(messages)) & set(refusals)
    assert {id for id, reply in again.items() if reply.status_code == 202} == set(ids)
    assert {reply.status_code for reply in again.values()} <= {202, 409}
    assert [id for id, status in told(protocol, data) if status == "delivered"] == ids
    queued = [id for id, status in told(protocol, data) if status == "queued"]
    assert len(queued) == len(set(queued))
    assert set(ids) <= set(queued) <= set(bodies)
