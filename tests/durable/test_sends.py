"""Messages that clients send into durable chats: once, in order, or returned to the sender."""

from __future__ import annotations

import asyncio
from argparse import Namespace
from collections.abc import AsyncIterator
from typing import Any

import pytest
from tests.durable import sends
from tests.durable._engines import Engine
from tests.durable.conftest import engine_at
from tests.durable.test_engines import asking, waits
from tests.web._redis import need_redis

from hookline import Agent, Approve, Ask, Deny, ToolMessage, UserMessage, tool
from hookline.durable import Client
from hookline.errors import ChatAbortedError, UsageError
from hookline.events import Interrupt, MessageQueued
from hookline.points import Hold, OnChatDone, OnMessage, PreMessage, PreSteer, PreToolCall
from hookline.runtimes import Durable
from hookline.testing import ScriptedModel, call


@pytest.fixture(params=["sqlite", "postgres", "restate"])
def engine(request: pytest.FixtureRequest, _places: Any) -> Engine:
    return engine_at(_places, request.param)


@pytest.fixture
async def client(engine: Engine) -> AsyncIterator[Client]:
    async with engine.client() as made:
        yield made


def sending(client: Client, *turns: Any, texts: dict[str, str]) -> Agent[Any]:
    """An agent whose tool sends these texts into its own chat, from a client."""

    async def search(topic: str) -> str:
        """Search the archive."""
        for text, when in texts.items():
            await client.send("c1", text, when=when)  # type: ignore[arg-type]
        return "three reports"

    return Agent(ScriptedModel(*turns), tools=[search], runtime=Durable())


def stuck(begun: asyncio.Event | None = None) -> Agent[Any]:
    """An agent whose tool never ends."""

    async def wait() -> None:
        """Wait."""
        if begun is not None:
            begun.set()
        await asyncio.Event().wait()

    return Agent(ScriptedModel(call("wait"), call("wait")), tools=[wait], runtime=Durable())


def users(messages: Any) -> list[str]:
    return [message.text for message in messages if isinstance(message, UserMessage)]


async def test_a_message_from_another_process_is_in_the_next_request(
    engine: Engine, client: Client
) -> None:
    order: list[str] = []
    texts = {"One.": "next", "Last.": "idle", "Two.": "next"}
    agent = sending(client, call("search", topic="rain"), "A report.", "Bye.", texts=texts)

    @agent.hook("preSteer")
    def steer(ctx: PreSteer) -> None:
        order.append(f"preSteer {ctx.message.text} {ctx.when}")

    @agent.hook("preMessage")
    def before(ctx: PreMessage) -> None:
        order.append(f"preMessage {ctx.message.role}")

    @agent.hook("onMessage")
    def after(ctx: OnMessage) -> None:
        order.append(f"onMessage {ctx.message.role}")

    async with engine.worker(agent):
        response = await client.result(await client.start("Find.", chat_id="c1"))
    assert [message.role for message in response.messages] == [
        "user", "assistant", "tool", "user", "user", "assistant", "user", "assistant",
    ]  # fmt: skip
    assert users(response.messages) == ["Find.", "One.", "Two.", "Last."]
    at = order.index("preSteer One. next")
    assert order[at : at + 6] == [
        "preSteer One. next", "preSteer Two. next", "preMessage user", "onMessage user",
        "preMessage user", "onMessage user",
    ]  # fmt: skip
    sent = await client.sent("c1")
    assert [(each.message.text, each.status) for each in sent] == [
        ("One.", "delivered"), ("Last.", "delivered"), ("Two.", "delivered"),
    ]  # fmt: skip
    assert {each.message.id for each in sent} <= {message.id for message in response.messages}


async def test_an_interrupt_from_another_process_cancels_a_running_tool(
    engine: Engine, client: Client
) -> None:
    @tool(idempotent=True)
    async def search(topic: str) -> str:
        """Search the archive."""
        await client.send("c1", Interrupt("Not rain, snow."))
        await asyncio.Event().wait()
        return "never"

    turns = (call("search", topic="rain"), "A report.")
    agent: Agent[Any] = Agent(ScriptedModel(*turns), tools=[search], runtime=Durable())
    async with engine.worker(agent):
        response = await client.result(await client.start("Find.", chat_id="c1"))
    [result] = [message for message in response.messages if isinstance(message, ToolMessage)]
    assert "interrupted by the user's next message" in result.text
    assert users(response.messages) == ["Find.", "Not rain, snow."]
    [sent] = await client.sent("c1")
    assert (sent.status, sent.when) == ("delivered", "next")


async def test_an_interrupt_that_an_earlier_life_delivered_cancels_nothing(
    engine: Engine, client: Client
) -> None:
    """A life reads the messages again when it hears of an answer."""
    if engine.name == "restate":  # there, a life reads none again
        return
    heard = asyncio.Event()

    @tool(idempotent=True)
    async def search() -> str:
        """Search the archive."""
        [journal] = engine.journals(worker)
        interrupt = journal.interrupt

        def hear(message_id: str) -> None:
            interrupt(message_id)
            heard.set()

        journal.interrupt = hear  # type: ignore[method-assign]
        await client.answer("c1", {await waits(client, "c1"): Approve()})
        await heard.wait()
        return "three reports"

    @tool
    async def order() -> str:
        """Order a report."""
        return "ordered"

    turns = ([call("search"), call("order")], "Done.")
    agent: Agent[Any] = Agent(ScriptedModel(*turns), tools=[search, order], runtime=Durable())
    agent.add_hook("preToolCall", lambda ctx: Ask("Order?") if ctx.call.name == "order" else None)
    ended: list[str] = []

    @agent.hook("preToolCall")
    def end(ctx: PreToolCall) -> None:
        if not ended:
            ended.append(ctx.call.name)
            for journal in engine.journals(worker):
                journal.halt()

    worker = engine.worker(agent)
    await client.start("Find.", chat_id="c1")
    await client.send("c1", Interrupt("Only from 2024."))
    async with worker:
        response = await client.result("c1")
    results = [message.text for message in response.messages if isinstance(message, ToolMessage)]
    assert results == ["three reports", "ordered"]


async def test_a_message_that_comes_too_late_is_returned(engine: Engine, client: Client) -> None:
    async with engine.worker(Agent(ScriptedModel("Hello."), runtime=Durable())):
        id = await client.start("Hi.")
        await client.result(id)
        late = await client.send(id, "Wait.")
    assert late.status == "returned"
    assert late.reason == "the chat ended before the message was delivered"
    assert await client.sent(id) == ()


async def test_a_message_to_a_chat_that_is_aborted_first_is_returned(
    engine: Engine, client: Client
) -> None:
    begun = asyncio.Event()
    async with engine.worker(stuck(begun)):
        id = await client.start("Hi.")
        await begun.wait()
        queued = await client.send(id, "Wait.")
        assert (queued.status, [each.status for each in await client.sent(id)]) == (
            "queued",
            ["queued"],
        )
        assert await client.abort(id, "no")
        with pytest.raises(ChatAbortedError):
            await client.result(id)
        [returned] = await client.sent(id)
        assert (returned.status, returned.message) == ("returned", queued.message)


async def test_a_message_that_a_hook_refuses_is_returned_with_its_reason(
    engine: Engine, client: Client
) -> None:
    texts = {"FASTER": "next"}
    agent = sending(client, call("search", topic="rain"), "A report.", texts=texts)
    agent.add_hook("preSteer", lambda ctx: Deny("no shouting"))
    async with engine.worker(agent):
        response = await client.result(await client.start("Hi.", chat_id="c1"))
    [sent] = await client.sent("c1")
    assert (sent.status, sent.reason) == ("returned", "no shouting")
    assert users(response.messages) == ["Hi."]


async def test_a_message_that_a_hook_holds_is_returned_if_the_chat_is_ended_without_a_worker(
    engine: Engine, client: Client
) -> None:
    begun = asyncio.Event()

    async def search() -> str:
        """Search the archive."""
        await client.send("c1", "Later.")
        return "three reports"

    async def wait() -> None:
        """Wait for ever."""
        begun.set()
        await asyncio.Event().wait()

    model = ScriptedModel(call("search"), call("wait"), call("wait"))
    agent = Agent(model, tools=[search, wait], runtime=Durable())
    agent.add_hook("preSteer", lambda ctx: Hold())
    async with engine.worker(agent):
        await client.start("Find.", chat_id="c1")
        await begun.wait()
        [held] = await client.sent("c1")
        assert held.status == "queued"
    assert await client.abort("c1", "no", force=True)
    with pytest.raises(ChatAbortedError):
        await client.result("c1")
    [returned] = await client.sent("c1")
    assert (returned.status, returned.message) == ("returned", held.message)


async def test_a_chat_that_waits_for_an_approval_gets_the_message_when_it_continues(
    engine: Engine, client: Client
) -> None:
    ran: list[str] = []
    worker = engine.worker(asking(ran, call("delete", path="a"), "Done."))
    async with worker:
        id = await client.start("Delete a.")
        approval = await waits(client, id)
        await engine.at_rest(worker)
        for text in ("And", "tell", "me."):
            await client.send(id, text)
        await client.answer(id, {approval: Approve()})
        response = await client.result(id)
    assert [message.role for message in response.messages] == [
        "user", "assistant", "tool", "user", "user", "user", "assistant",
    ]  # fmt: skip
    assert users(response.messages) == ["Delete a.", "And", "tell", "me."]


@pytest.mark.parametrize("point", ["preSteer", "preMessage", "onMessage", "preRequest", "onStep"])
async def test_a_life_that_ends_around_the_delivery_delivers_once(
    engine: Engine, client: Client, point: Any
) -> None:
    """The life ends inside this point, once the messages were taken."""
    texts = {"One.": "next", "Two.": "next", "NO": "next"}
    turns = [call("search", topic="rain"), "A report.", "More."]
    agent = sending(client, *turns, texts=texts)
    taken: list[str] = []
    lives: list[str] = []

    def end(ctx: Any) -> None:
        if taken and not lives:
            lives.append("over")
            for journal in engine.journals(worker):
                journal.halt()

    @agent.hook("preSteer")
    def refuse(ctx: PreSteer) -> Deny | None:
        taken.append(ctx.message.text)
        return Deny("no shouting") if ctx.message.text == "NO" else None

    agent.add_hook(point, end)
    worker = engine.worker(agent)
    async with worker:
        await client.start("Find.", chat_id="c1")
        await client.send("c1", "Last.", when="idle")
        response = await client.result("c1")
    assert lives == ["over"]
    assert users(response.messages) == ["Find.", "One.", "Two.", "Last."]
    assert [(each.message.text, each.status) for each in await client.sent("c1")] == [
        ("Last.", "delivered"), ("One.", "delivered"), ("Two.", "delivered"), ("NO", "returned"),
    ]  # fmt: skip


async def test_a_message_that_a_life_has_returned_is_not_delivered_by_the_next_one(
    engine: Engine, client: Client
) -> None:
    """It comes when the chat is about to end; its life ends once its return is recorded."""
    agent: Agent[Any] = Agent(ScriptedModel("Hello.", "More."), runtime=Durable())
    ends: list[bytes] = []

    @agent.hook("onChatDone")
    async def late(ctx: OnChatDone) -> None:
        await client.send("c1", "Late.")
        [journal] = engine.journals(worker)
        log = journal.log
        append = log.append

        async def append_once(data: bytes) -> None:
            await append(data)
            if b"returned" in data:
                ends.append(data)
                journal.halt()

        log.append = append_once  # type: ignore[method-assign]

    worker = engine.worker(agent)
    async with worker:
        response = await client.result(await client.start("Hi.", chat_id="c1"))
    assert len(ends) == 1
    assert users(response.messages) == ["Hi."]
    [sent] = await client.sent("c1")
    assert (sent.message.text, sent.status) == ("Late.", "returned")


async def test_a_message_that_is_held_is_announced_once_over_all_lives(
    engine: Engine, client: Client
) -> None:
    """The life that has held it ends in the next step."""
    turns = [call("search", topic="rain"), call("search", topic="sun"), "A report.", "More."]
    agent = sending(client, *turns, texts={"Later.": "next"})
    asked: list[str] = []
    statuses: list[str] = []

    @agent.hook("preSteer")
    async def hold(ctx: PreSteer) -> Hold | None:
        asked.append(ctx.message.text)
        return Hold() if len(asked) < 3 else None

    @agent.hook("preToolCall")
    async def end(ctx: PreToolCall) -> None:
        if asked and not statuses:
            [journal] = engine.journals(worker)
            await journal.flush()
            statuses.extend(each.status for each in await client.sent("c1"))
            journal.halt()

    worker = engine.worker(agent)
    async with worker:
        with agent.subscribe(MessageQueued) as events:
            await client.start("Find.", chat_id="c1")
            response = await client.result("c1")
        announced = [event.message.text async for event in events]
    assert statuses == ["queued"]
    assert users(response.messages) == ["Find.", "Later.", "Later."]
    assert announced == ["Later.", "Later."]  # the two that the tool has sent


async def test_the_messages_of_a_chat_are_deleted_with_it(engine: Engine, client: Client) -> None:
    async with engine.worker(stuck()):
        id = await client.start("Hi.")
        await client.send(id, "Wait.")
        await client.abort(id)
        with pytest.raises(ChatAbortedError):
            await client.result(id)
        await client.delete(id)
        await client.start("Hi.", chat_id=id)
        assert await client.sent(id) == ()
        await client.abort(id)


async def test_what_cannot_be_sent_is_refused(engine: Engine, client: Client) -> None:
    async with engine.worker(stuck()):
        id = await client.start("Hi.")
        with pytest.raises(UsageError, match="neither text nor media"):
            await client.send(id, " ")
        with pytest.raises(UsageError, match="must be 'next' or 'idle'"):
            await client.send(id, "Hi.", when="now")  # type: ignore[arg-type]
        with pytest.raises(UsageError, match="leave when= out"):
            await client.send(id, Interrupt("Hi."), when="idle")
        with pytest.raises(UsageError, match="start it first"):
            await client.send("nobody", "Hi.")
        await client.abort(id)


async def test_messages_into_chats_whose_workers_are_killed_come_once_and_in_order(
    engine: Engine,
) -> None:
    """The short form of scripts/dev/durable-kills --sends."""
    options = Namespace(chats=4, sends=3, kills=2, every=0.2, relay=False, web=False)
    assert await sends.run(engine, options)


async def test_messages_over_the_web_into_chats_whose_workers_are_killed_come_once_and_in_order(
    engine: Engine,
) -> None:
    """The short form of scripts/dev/durable-kills --sends --web."""
    need_redis()
    options = Namespace(chats=6, sends=3, kills=2, every=0.2, relay=True, web=True)
    assert await sends.run(engine, options)
