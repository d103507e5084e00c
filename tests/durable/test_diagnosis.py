"""What an operator finds in the log and in the timeline when a chat did not go well."""

from __future__ import annotations

import asyncio
from contextlib import aclosing
from pathlib import Path
from typing import Any

import pytest
from tests.durable._engines import Engine, places
from tests.durable._lethal import supervised
from tests.durable.conftest import engine_at
from tests.durable.kills import until_taken
from tests.durable.test_engines import waits
from tests.web._server import eventually

from hookline import Agent, Approve, Ask, Deny, tool
from hookline.durable import Client, check_chats
from hookline.errors import RemoteChatError
from hookline.runtimes import Durable
from hookline.stores import SQLStore
from hookline.testing import ScriptedModel, call

# ── a chat that failed ──────────────────────────────────────────────────────────────────────


def broken(ctx: Any) -> None:
    """Raise, as a hook of a bad deploy does."""
    said = "PIN 1234"
    raise IndexError("list index out of range") from KeyError(said)


async def test_the_error_that_ended_a_chat_is_in_the_log_with_its_traceback_and_in_the_timeline(
    engine: Engine, client: Client, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", logger="hookline.durable")
    agent: Agent[Any] = Agent(ScriptedModel("Hello."), runtime=Durable())
    agent.add_hook("preRequest", broken)
    async with engine.worker(agent):
        id = await client.start("My PIN is 1234.")
        with pytest.raises(RemoteChatError, match="IndexError: list index"):
            await client.result(id)
    [record] = [each for each in caplog.records if each.levelname == "ERROR"]
    first, name, *places, cause = record.getMessage().splitlines()
    assert first == f"durable chat {id} failed; its timeline has the error:"
    assert (name, cause) == ("IndexError", "KeyError")
    assert "in broken" in "".join(places)
    assert "1234" not in caplog.text
    end = (await client.timeline(id))[-1]
    assert (end.kind, end.name) == ("end", "failed")
    assert end.text == "IndexError: list index out of range"


async def test_a_new_chat_in_its_conversation_continues_a_chat_that_failed(
    engine: Engine, client: Client, tmp_path: Path
) -> None:
    ran: list[str] = []

    @tool
    async def pay(account: str) -> str:
        """Pay."""
        ran.append(account)
        return f"paid {account}"

    def agent(store: SQLStore, *script: Any) -> Agent[Any]:
        made: Agent[Any] = Agent(
            ScriptedModel(*script), name="bank", tools=[pay], store=store, runtime=Durable()
        )
        made.add_hook("preToolCall", lambda ctx: Ask("Pay?"))
        return made

    both = call("pay", account="a"), call("pay", account="b")
    async with SQLStore(f"sqlite:///{tmp_path}/store.db") as store:
        async with engine.worker(agent(store, both)) as worker:
            await client.start("Pay a and b.", chat_id="failed", conversation="c")
            await waits(client, "failed")
            await engine.at_rest(worker)
        deployed = agent(store)
        deployed.add_hook("onToolCallResult", broken)
        async with engine.worker(deployed):
            while len(requests := await client.pending("failed")) < 2:  # noqa: ASYNC110
                await asyncio.sleep(0.01)
            await client.answer("failed", {request.id: Approve() for request in requests})
            with pytest.raises(RemoteChatError, match="IndexError"):
                await client.result("failed")
        async with engine.worker(agent(store, "Paid.")):
            next_id = await client.start(None, conversation="c")
            response = await client.result(next_id)
        stored = await store.load("c")
    assert response.text == "Paid."
    assert sorted(set(ran)) == sorted(ran) != []
    assert stored is not None
    assert [m.role for m in stored.messages] == ["user", "assistant", "tool", "tool", "assistant"]


# ── a chat whose workers die ────────────────────────────────────────────────────────────────


async def test_the_log_says_that_a_chat_was_quarantined(
    engine: Engine, client: Client, caplog: pytest.LogCaptureFixture, tmp_path: Path
) -> None:
    if engine.name == "restate":
        async with supervised(engine, tmp_path / "trace", "model", idle=30.0, max_deaths=9):
            await until_taken(client, "poison", None)
            while not [e for e in await client.timeline("poison") if e.kind == "death"]:  # noqa: ASYNC110
                await asyncio.sleep(0.05)
    else:
        jobs = engine.jobs()
        await jobs.add("poison", "{}")
        assert len(await jobs.take("dead", 9)) == 1
        await jobs.database.aclose()
    agent: Agent[Any] = Agent(ScriptedModel("Hello."), runtime=Durable())
    async with engine.worker(agent, max_deaths=1):
        with pytest.raises(RemoteChatError, match="workers died"):
            await client.result("poison")
        await eventually(lambda: "was quarantined" in caplog.text)
    [record] = [each for each in caplog.records if "was quarantined" in each.message]
    assert record.levelname == "ERROR"
    assert record.message.startswith("durable chat poison was quarantined: ")


POLLED = pytest.mark.parametrize("engine", ["sqlite", "postgres"], indirect=True)
TURNS = {
    "at its next sign of life": {"lease": 60.0},
    "when it records": {"lease": 90.0, "poll": 30},
}


@POLLED
@pytest.mark.parametrize("when", TURNS)
async def test_a_worker_that_has_lost_a_chat_says_so(
    engine: Engine, client: Client, caplog: pytest.LogCaptureFixture, when: str
) -> None:
    began, release = asyncio.Event(), asyncio.Event()

    @tool
    async def pay() -> str:
        """Pay."""
        began.set()
        await release.wait()
        return "paid"

    agent: Agent[Any] = Agent(ScriptedModel(call("pay"), "Paid."), tools=[pay], runtime=Durable())
    id = await client.start("Pay.")
    # With a concurrency of 1, the worker cannot claim its own lapsed chat before the other does.
    async with (
        aclosing(engine.jobs(lease=60.0)) as jobs,
        engine.worker(agent, concurrency=1, **TURNS[when]),
    ):
        await began.wait()
        while not (claims := await jobs.take("another", 1)):  # the first sign of life may come
            await jobs.database.fetch("UPDATE hookline_job SET lease = 0 WHERE id = $1", id)
        assert claims[0].ending == "died"
        if when == "when it records":
            release.set()
        await eventually(lambda: f"durable chat {id} was lost" in caplog.text)
        [life] = [life for life in (await client.record(id)).lives if life[4] is not None]
        assert life[4] == "lost"
    assert caplog.text.count("was lost") == 1


async def test_a_worker_that_has_lost_its_connection_to_restate_says_so(
    caplog: pytest.LogCaptureFixture,
) -> None:
    began = asyncio.Event()

    @tool(idempotent=True)
    async def pay() -> str:
        """Pay."""
        if began.is_set():
            return "paid"
        began.set()
        await asyncio.Event().wait()
        return "never"

    agent: Agent[Any] = Agent(ScriptedModel(call("pay"), "Paid."), tools=[pay], runtime=Durable())
    with places(("restate",), own=True) as found:
        engine = engine_at(found.__getitem__, "restate")
        async with engine.worker(agent, idle=30.0), engine.client() as client:
            id = await client.start("Pay.")
            await began.wait()
            engine.where.kill()
            engine.where.start()
            assert (await client.result(id)).text == "Paid."
    assert caplog.text.count(f"durable chat {id} was lost") == 1


# ── what has become of the calls ────────────────────────────────────────────────────────────


@tool
async def delete(path: str) -> str:
    """Delete a file."""
    return "deleted"


@tool
async def fail() -> str:
    """Fail."""
    raise ValueError("kaputt")


def delete_of_newer_code(description: str) -> Any:
    @tool(name="delete", description=description)
    async def other(path: str) -> str:
        return "deleted"

    return other


async def test_the_timeline_shows_which_calls_were_denied_failed_or_lost_their_approval(
    engine: Engine, client: Client
) -> None:
    script = *[call("delete", path=path) for path in "abc"], call("fail"), call("gone"), "Done."

    def agent(*steps: Any, **options: Any) -> Agent[Any]:
        made: Agent[Any] = Agent(ScriptedModel(*steps), runtime=Durable(), **options)
        asks = {"delete": Ask("Really?")}
        made.add_hook("preToolCall", lambda ctx: asks.get(ctx.call.name))
        return made

    async with engine.worker(agent(*script[:3], tools=[delete, fail])) as worker:
        id = await client.start("Go.")
        await client.answer(id, {await waits(client, id): Approve()})
        await client.answer(id, {await waits(client, id): Deny("no")})
        await waits(client, id)
        await engine.at_rest(worker)
    [begin] = [e for e in await client.timeline(id) if e.kind == "question" and e.name[-1] == "3"]
    assert begin.text == "delete"
    newer = delete_of_newer_code("Delete a file for ever.")
    async with engine.worker(agent(*script[3:], tools=[newer, fail])):
        await client.answer(id, {await waits(client, id): Approve()})
        await client.result(id)
    timeline = [event for event in await client.timeline(id) if event.name.startswith("message/")]
    assert [(event.kind, event.text) for event in timeline if event.text] == [
        ("step", "delete"),
        ("error", "delete: Denied"),
        ("error", "delete: Denied after its approval"),
        ("error", "fail: ValueError"),
        ("error", "gone: UnknownToolError"),
    ]


async def test_the_timeline_shows_the_call_that_runs_and_the_messages_that_wait(
    engine: Engine, client: Client
) -> None:
    began, release = asyncio.Event(), asyncio.Event()

    @tool
    async def pay() -> str:
        """Pay."""
        began.set()
        await release.wait()
        return "paid"

    id = "one"

    async def seen(kind: str) -> list[tuple[str, str]]:
        events = await client.timeline(id)
        return [(event.name, event.text) for event in events if event.kind == kind]

    agent: Agent[Any] = Agent(ScriptedModel(call("pay"), "Paid."), tools=[pay], runtime=Durable())
    async with engine.worker(agent):
        await client.start("Pay.", chat_id=id)
        await began.wait()
        sent = await client.send(id, "Thank you.")
        assert await seen("begin") == [("step/0/call/call_1/run", "pay")]
        assert await seen("message") == [(sent.message.id, "next, queued")]
        release.set()
        await client.result(id)
        assert await seen("begin") == []
        assert await seen("message") == [(sent.message.id, "next, delivered")]


async def test_the_timeline_shows_a_call_that_was_interrupted(
    engine: Engine, client: Client
) -> None:
    began = asyncio.Event()

    @tool
    async def pay() -> str:
        """Pay."""
        began.set()
        await asyncio.Event().wait()
        return "paid"

    def agent(*script: Any) -> Agent[Any]:
        return Agent(ScriptedModel(*script), tools=[pay], runtime=Durable())

    async with engine.worker(agent(call("pay"))):
        id = await client.start("Pay.")
        await began.wait()
    async with engine.worker(agent("Sorry.")):
        await client.result(id)
    errors = [event.text for event in await client.timeline(id) if event.kind == "error"]
    assert errors == ["pay: Interrupted"]


@POLLED
async def test_a_suspect_that_waits_for_its_turn_in_a_worker_does_not_count_as_running(
    engine: Engine, client: Client
) -> None:
    id = await client.start("Go.")
    jobs = engine.jobs(lease=60.0)
    [claim] = await jobs.take("dead", 1)
    assert (await client.status(id)).state == "running"
    await jobs.database.fetch("UPDATE hookline_job SET lease = 0 WHERE id = $1", id)
    [claim] = await jobs.take("heir", 1)
    assert (await client.status(id)).state == "queued"
    await jobs.begin(id, claim.owner)
    assert (await client.status(id)).state == "running"
    await jobs.aclose()


# ── a deploy ────────────────────────────────────────────────────────────────────────────────


async def test_a_check_names_the_step_of_an_exception_and_the_approvals_that_will_not_count(
    engine: Engine, client: Client
) -> None:
    def agent(*tools: Any) -> Agent[Any]:
        calls = [call("delete", path="a"), call("delete", path="b")]
        made: Agent[Any] = Agent(ScriptedModel(calls), tools=tools, runtime=Durable())
        made.add_hook("preToolCall", lambda ctx: Ask("Really?"))
        return made

    async def verdict(deployed: Agent[Any]) -> tuple[bool, str]:
        [replay] = await check_chats(deployed, client)
        return replay.fits, replay.why

    async with engine.worker(agent(delete)) as worker:
        id = await client.start("Go.")
        while len(requests := await client.pending(id)) < 2:  # noqa: ASYNC110
            await asyncio.sleep(0.01)
        await engine.at_rest(worker)
    assert await verdict(agent(delete)) == (True, "")
    changed = "tool 'delete' differs from the one to be approved: the approval will not count"
    missing = "agent 'agent' has no tool 'delete', whose call waits for an approval"
    assert await verdict(agent()) == (True, missing)
    newer = delete_of_newer_code("Delete a file for ever.")
    assert await verdict(agent(newer)) == (True, changed)
    if engine.name != "restate":  # a worker takes the answers there
        await client.answer(id, {request.id: Deny("no") for request in requests})
        assert await verdict(agent(newer)) == (True, "")

    closed = agent(delete)

    @closed.hook("aroundChat")
    async def maintenance(ctx: Any, proceed: Any) -> Any:
        raise RuntimeError("maintenance")

    stop = "the replay stopped before step 'message/0': RuntimeError: maintenance"
    assert await verdict(closed) == (False, stop)
