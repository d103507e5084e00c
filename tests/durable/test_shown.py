"""Durable chats in a browser: a web worker shows, answers and stops what a durable worker runs."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import msgspec
import pytest
import redis as sync_redis
import redis.asyncio
from tests.base.test_journal import MemoryLog, World
from tests.durable._engines import Engine
from tests.durable._streams import runs_of, text_of, text_shown, told_twice
from tests.web._redis import clear, need_redis, new_prefix, own_redis
from tests.web._server import TOKEN, client, eventually, serve
from tests.web.test_site import answer_of, asked, native, request_of
from tests.web.test_site import text_of as text_in

from hookline import Agent, Ask, MemoryStore, Text, UserMessage
from hookline.durable._job import Job, encode_job, run_job
from hookline.durable._polled.worker_operations import Jobs
from hookline.errors import UsageError
from hookline.events import ChatAborted, ChatDone, ChatStarted
from hookline.hooks import redact
from hookline.runtimes import Durable, Halted, Journal
from hookline.stores import SQLStore
from hookline.testing import ScriptedModel, call
from hookline.web import app
from hookline.web._runs.run_header import Header
from hookline.web.relay import RedisRelay

PROTOCOLS = ("native", "ai-sdk", "ag-ui")
EACH = pytest.mark.parametrize("protocol", PROTOCOLS)
TEXT = "A long answer, of which each piece must arrive once and in its place. " * 3


@pytest.fixture
def prefix() -> Iterator[str]:
    need_redis()
    made = new_prefix()
    yield made
    clear(made)


def relay_of(prefix: str, url: str = "", **options: Any) -> RedisRelay:
    return RedisRelay(url or need_redis(), prefix=prefix, **{"lease": 20.0, **options})


def agent_of(*turns: Any, asks: bool = False, **more: Any) -> tuple[Agent[Any], list[str]]:
    """A durable agent, which asks before it pays, and what it has paid."""
    paid: list[str] = []

    async def pay(to: str, amount: float) -> str:
        """Pay."""
        paid.append(to)
        return f"paid {amount} to {to}"

    model = ScriptedModel(*turns, **{"chunk": 5, **more})
    agent = Agent(model, tools=[pay], runtime=Durable(), store=MemoryStore())
    if asks:
        agent.add_hook("preToolCall", lambda ctx: Ask("Pay?"))
    return agent, paid


@asynccontextmanager
async def browser(
    engine: Engine, agent: Agent[Any], prefix: str, url: str = ""
) -> AsyncIterator[httpx.AsyncClient]:
    """A web worker of its own, as a browser reaches it."""
    jobs = engine.client()
    site = app(
        agent,
        token=TOKEN,
        on_disconnect="detach",
        relay=relay_of(prefix, url),
        durable=jobs,
    )
    async with serve(site) as address, client(address) as http:
        yield http


PAY = call("pay", to="Ada", amount=10.0, call_id="c1")


@EACH
async def test_a_browser_reads_at_any_web_worker_what_a_durable_worker_runs(
    engine: Engine, protocol: str, prefix: str
) -> None:
    steps = asyncio.Semaphore(8)

    async def delay() -> None:
        await steps.acquire()

    agent, _ = agent_of(TEXT, delay=delay)
    async with (
        engine.worker(agent, relay=relay_of(prefix)),
        browser(engine, agent, prefix) as a,
        browser(engine, agent, prefix) as b,
    ):
        first = asyncio.create_task(a.post(f"/{protocol}", json=request_of(protocol, "hi")))
        await eventually(steps.locked)
        second = asyncio.create_task(b.get(f"/{protocol}/c1/stream"))
        shown = (await b.get(f"/{protocol}/c1/messages")).json()
        assert shown["running"] is True
        busy = await b.post(f"/{protocol}", json=request_of(protocol, "again"))
        assert busy.status_code == 409
        for _ in range(1000):
            steps.release()
        here, there = (await first).content, (await second).content
        assert text_in(protocol, here) == TEXT
        assert there == here
        again = await b.post("/ai-sdk", json=request_of("ai-sdk", "hi"))
        assert (again.status_code == 409) == (protocol != "native")


def everything_in(prefix: str) -> bytes:
    """All that Redis gives out of the keys of a relay."""
    with sync_redis.Redis.from_url(need_redis()) as raw:
        kinds = {b"hash": raw.hgetall, b"stream": raw.xrange, b"string": raw.get}
        parts: list[Any] = []
        for key in raw.scan_iter(f"{prefix}*"):
            read = kinds.get(raw.type(key))  # type: ignore[arg-type]
            parts.append((key, None if read is None else read(key)))
        return repr(parts).encode()


@pytest.mark.parametrize("engine", ["sqlite"], indirect=True)
@pytest.mark.parametrize("waits", [False, True], ids=["over", "waits"])
async def test_nothing_of_a_conversation_that_a_browser_deletes_is_left_in_a_file_or_in_redis(
    engine: Engine, prefix: str, waits: bool, tmp_path: Path
) -> None:
    paid: list[str] = []

    async def pay(to: str) -> str:
        """Pay."""
        paid.append(to)
        return f"paid {to}"

    def files() -> bytes:
        stored = [*Path(engine.where).iterdir(), *tmp_path.glob("chats.db*")]
        return b"".join(path.read_bytes() for path in stored if path.is_file())

    script = "The XYZZY of first.", [call("pay", to="XYZZY")], "Paid XYZZY."
    store = SQLStore(f"sqlite:///{tmp_path}/chats.db")
    agent: Agent[Any] = Agent(ScriptedModel(*script), tools=[pay], runtime=Durable(), store=store)
    if waits:
        agent.add_hook("preToolCall", lambda ctx: Ask("Pay XYZZY?"))
    async with (
        engine.worker(agent, relay=relay_of(prefix)) as worker,
        browser(engine, agent, prefix) as http,
    ):
        for text in ("first XYZZY", "second XYZZY"):
            async with asyncio.timeout(60):
                while (
                    await http.post("/native", json=request_of("native", text))
                ).status_code == 409:
                    await engine.at_rest(worker)
        if waits:
            await engine.at_rest(worker)
            assert (await http.delete("/conversations/c1")).status_code == 409
            assert b"XYZZY" in everything_in(prefix)
            assert (await http.post("/native/c1/stop")).is_success
        assert b"XYZZY" in files()
        assert b"XYZZY" in everything_in(prefix)
        async with asyncio.timeout(60):
            while (await http.delete("/conversations/c1")).status_code == 409:
                await engine.at_rest(worker)
        assert (await http.get("/conversations")).json()["conversations"] == []
        assert b"XYZZY" not in everything_in(prefix)
        assert b"XYZZY" not in files()
    await store.aclose()
    assert paid == ([] if waits else ["XYZZY"])


@EACH
async def test_an_answer_of_a_browser_reaches_the_durable_chat_that_waits(
    engine: Engine, protocol: str, prefix: str
) -> None:
    agent, paid = agent_of(["I pay. ", PAY], "That is done.", asks=True)
    async with (
        browser(engine, agent, prefix) as a,
        browser(engine, agent, prefix) as b,
    ):
        async with engine.worker(agent, relay=relay_of(prefix)) as worker:
            known = await asked(a, protocol)
            assert (await b.get(f"/{protocol}/c1/stream")).status_code == 204
            assert (await b.get("/native/c1/messages")).json()["running"] is False
            refused = await b.post(f"/{protocol}", json=request_of(protocol, "and?"))
            assert refused.status_code == 409
            await engine.at_rest(worker)
        async with engine.worker(agent, relay=relay_of(prefix)):
            answer = await b.post(f"/{protocol}", json=answer_of(protocol, known))
            assert answer.status_code == 200
            late = await a.post(f"/{protocol}", json=answer_of(protocol, known))
            assert late.status_code == 409
    assert paid == ["Ada"]
    if protocol == "native":
        events = native(answer.content)
        assert text_in("native", answer.content) == "That is done."
        assert isinstance(events[-1], ChatDone)
        names = [type(event).__name__ for event in events]
        assert names.count("ToolCallFinished") == 1
        assert names[0] == "ChatStarted"
    assert b"That" in answer.content
    assert not re.search(
        rb'"(event|type)":\s*"text[-_]delta"[^\n]*I pay', answer.content, re.IGNORECASE
    )


async def test_the_worker_gives_a_conversation_its_title_once_the_hooks_have_run(
    engine: Engine, prefix: str
) -> None:
    agent, _ = agent_of("Hello.", "Hello again.")
    await agent.use(redact(r"\S+@\S+"))
    async with (
        engine.worker(agent, relay=relay_of(prefix)),
        browser(engine, agent, prefix) as http,
    ):
        for said in ("I am joe@example.com", "Again."):
            await http.post("/native", json=request_of("native", said))
            (listed,) = (await http.get("/conversations")).json()["conversations"]
            assert listed["title"] == "I am [redacted]"


async def test_an_answer_that_comes_before_the_chat_is_put_aside_counts(
    engine: Engine, prefix: str
) -> None:
    agent, paid = agent_of(["I pay. ", PAY], "That is done.", asks=True)
    async with (
        engine.worker(agent, relay=relay_of(prefix), idle=20.0),
        browser(engine, agent, prefix) as http,
    ):
        known = await asked(http, "native")
        answer = await http.post("/native", json=answer_of("native", known))
        assert text_in("native", answer.content) == "That is done."
    assert paid == ["Ada"]


async def test_an_answer_that_comes_before_the_engine_has_the_question_counts(
    postgres: Engine, prefix: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The browser sees the question while the worker still stores it."""
    real = Jobs.ask

    async def slow(self: Any, *args: Any) -> Any:
        await asyncio.sleep(0.2)
        return await real(self, *args)

    monkeypatch.setattr(Jobs, "ask", slow)
    agent, paid = agent_of(["I pay. ", PAY], "That is done.", asks=True)
    async with (
        postgres.worker(agent, relay=relay_of(prefix), idle=20.0),
        browser(postgres, agent, prefix) as http,
    ):
        known = await asked(http, "native")
        answer = await http.post("/native", json=answer_of("native", known))
        assert text_in("native", answer.content) == "That is done."
    assert paid == ["Ada"]


async def test_a_durable_chat_is_stopped_from_a_browser_while_it_runs_and_while_it_waits(
    engine: Engine, prefix: str
) -> None:
    steps = asyncio.Semaphore(8)

    async def delay() -> None:
        await steps.acquire()

    agent, _ = agent_of(TEXT, ["I pay. ", PAY], delay=delay, asks=True)
    async with (
        engine.worker(agent, relay=relay_of(prefix)),
        browser(engine, agent, prefix) as a,
        browser(engine, agent, prefix) as b,
    ):
        first = asyncio.create_task(a.post("/native", json=request_of("native", "hi")))
        await eventually(steps.locked)
        assert (await b.post("/native/c1/stop")).json() == {"stopped": True}
        events = native((await first).content)
        assert isinstance(events[-1], ChatAborted)
        assert events[-1].reason == "stopped by the user"
        for _ in range(1000):
            steps.release()
        await asked(a, "native")
        assert (await b.post("/native/c1/stop")).json() == {"stopped": True}
        pending = [0]
        while pending:
            pending = (await b.get("/native/c1/messages")).json()["pending"]
        async with asyncio.timeout(60):  # the chat comes to its end a little later
            while (await b.post("/native/c1/stop")).json() != {"stopped": False}:
                pass


@pytest.mark.parametrize("started", [True, False], ids=["ran", "never started"])
async def test_a_run_whose_end_nobody_reported_is_ended_by_a_stop(
    engine: Engine, prefix: str, started: bool
) -> None:
    """Its worker ended while Redis was away, or whoever announced it died before it started."""
    agent, _ = agent_of("One.", "Two.")
    header = Header(run="r", chat_id="chat", principal="owner")
    async with (
        engine.worker(agent, relay=relay_of(prefix)),
        browser(engine, agent, prefix) as http,
        engine.client() as jobs,
    ):
        if started:
            await jobs.start("hi", conversation="owner/c1", chat_id="chat")
            assert (await jobs.result("chat")).text == "One."
        relay = relay_of(prefix)
        await relay.open()
        await relay.forget("owner/c1")
        await relay.announce("owner/c1", header)
        await relay.aclose()
        busy = await http.post("/native", json=request_of("native", "again"))
        assert busy.status_code == 409
        assert (await http.post("/native/c1/stop")).json() == {"stopped": False}
        again = await http.post("/native", json=request_of("native", "again"))
        assert text_in("native", again.content) == ("Two." if started else "One.")


@pytest.mark.parametrize("keeps", [False, True], ids=["empty", "with its data"])
@pytest.mark.parametrize("late", [False, True], ids=["while it runs", "after its end"])
async def test_a_redis_that_is_killed_leaves_the_chat_and_its_readers_whole(
    tmp_path: Path, engine: Engine, keeps: bool, late: bool, caplog: pytest.LogCaptureFixture
) -> None:
    """The chat goes on; a reader has all of it or is told to reload; then the next one is shown."""
    steps = asyncio.Semaphore(8)

    async def delay() -> None:
        await steps.acquire()

    agent, _ = agent_of(*[TEXT] * 5, delay=delay)  # of a life that was cut, too
    async with own_redis(tmp_path, keeps=keeps) as server:
        relay = relay_of("h:", server.url, lease=1.0)  # so long it waits for Redis
        async with (
            engine.worker(agent, relay=relay),
            browser(engine, agent, "h:", server.url) as http,
            engine.client() as jobs,
        ):
            reading = asyncio.create_task(http.post("/native", json=request_of("native", "hi")))
            await eventually(steps.locked)
            (shown,) = relay._publishers
            server.kill()
            for _ in range(1000):
                steps.release()
            if late:
                response = await jobs.result(shown._journal.chat_id)
                await server.start()
            else:
                await server.start()
                response = await jobs.result(shown._journal.chat_id)
            assert response.text == TEXT
            seen = (await reading).content
            assert b'"event":"reload"' in seen or text_shown([native(seen)]) == TEXT
            await relay._writer.flush()
            kept = (await http.get("/native/c1/messages")).json()
            assert kept["running"] is False
            assert kept["messages"][-1]["parts"][0]["text"] == TEXT
            again = await http.post("/native", json=request_of("native", "again"))
            assert text_shown([native(again.content)]) == TEXT
    assert not [each for each in caplog.records if each.levelname == "ERROR"]


async def test_what_contradicts_a_durable_application_is_refused(prefix: str) -> None:
    agent, _ = agent_of("Hi.")
    jobs: Any = object()
    with pytest.raises(UsageError, match="needs relay="):
        app(agent, token=TOKEN, durable=jobs)
    with pytest.raises(UsageError, match="client_tools="):
        app(
            agent,
            token=TOKEN,
            on_disconnect="detach",
            relay=relay_of(prefix),
            durable=jobs,
            client_tools=True,
        )


@pytest.mark.parametrize("own", [True, False], ids=["an id of its own", "an id of the chat"])
async def test_a_reader_of_a_durable_chat_has_the_message_of_its_user_once(
    engine: Engine, prefix: str, own: bool
) -> None:
    steps = asyncio.Semaphore(8)

    async def delay() -> None:
        await steps.acquire()

    agent, _ = agent_of("One.", TEXT, delay=delay)
    said = UserMessage(id="mine" if own else "", parts=(Text("hi"),))
    async with (
        engine.worker(agent, relay=relay_of(prefix)),
        browser(engine, agent, prefix),
        engine.client() as jobs,
    ):
        await jobs.result(await jobs.start("before", conversation="owner/c1"))
        id = await jobs.start(said, conversation="owner/c1")
        await eventually(steps.locked)
        async with redis.asyncio.Redis.from_url(need_redis()) as raw:
            header = msgspec.json.decode(
                await raw.hget(f"{prefix}run:owner/c1", "header"), type=Header
            )
        assert (header.chat_id, header.before) == (id, 2)
        for _ in range(1000):
            steps.release()
        await jobs.result(id)


# ── cut after each line of the record ───────────────────────────────────────────────────────

KEY = "owner/c1"
JOB = encode_job(Job(input="Go.", conversation=KEY))


def stop_writing(relay: Any) -> None:
    """Write nothing more to Redis, and let nobody wait for it."""

    async def at_once() -> None: ...

    relay._tasks[0].cancel()
    relay._writer.flush = at_once
    relay._writer._done = relay._writer._put
    relay._writer._written.set()


async def live(world: World, prefix: str, limit: int | None = None, *, killed: bool = False) -> Any:
    """One life, up to a line of the log; `killed`: what was not written yet is lost with it."""
    world.log = log = MemoryLog(world.lines, limit)
    relay = relay_of(prefix)
    await relay.open()
    if killed:

        def look(line: Any) -> None:
            if limit == len(log.lines) + 1:
                stop_writing(relay)

        log.before = look
    journal = await Journal.open("chat", log)
    try:
        async with world.agent() as agent:
            return await journal.carry(lambda: run_job(agent, journal, JOB, None, relay))
    except Halted:
        return None
    finally:
        for task in relay._tasks if killed else []:
            task.cancel()
        await relay.aclose()


async def test_a_life_that_has_lost_its_chat_takes_no_conversation() -> None:
    """It was asleep, and another life goes on: it would take the lease from that one."""
    world = World(stored=True)
    journal = await Journal.open("chat", MemoryLog(world.lines, 0))
    async with world.agent() as agent:
        with pytest.raises(Halted):
            await journal.carry(lambda: run_job(agent, journal, JOB, None, None))
    assert world.store is not None
    assert await world.store.load(KEY) is None


async def streams(prefix: str) -> list[list[Any]]:
    async with redis.asyncio.Redis.from_url(need_redis()) as client:
        return await runs_of(client, prefix, KEY)


async def text_stored(world: World) -> str:
    assert world.store is not None
    found = await world.store.load(KEY)
    assert found is not None
    return text_of([each.text for each in found.messages if each.role == "assistant"])


@pytest.mark.slow
@pytest.mark.timeout(600)  # it lives through two lives for each line
@pytest.mark.parametrize("killed", [False, True], ids=["halted", "killed"])
async def test_cut_after_each_line_what_was_shown_is_what_is_stored_and_nothing_is_told_twice(
    prefix: str, killed: bool
) -> None:
    first = World(stored=True)
    assert (await live(first, prefix)).text == "Done: end."
    wanted = text_shown(await streams(prefix))
    assert wanted == "Let me see, now. |One more. |Done: end."
    for limit in range(1, len(first.lines)):
        mine = f"{prefix}{limit}:"
        world = World(stored=True)
        assert await live(world, mine, limit, killed=killed) is None
        assert (await live(world, mine)).text == "Done: end."
        runs = await streams(mine)
        assert text_shown(runs) == await text_stored(world) == wanted, limit
        assert not told_twice(runs), limit
        assert all(isinstance(run[0], ChatStarted) for run in runs), limit
