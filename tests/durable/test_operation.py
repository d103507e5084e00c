"""What an operator relies on: chats of others, clean-ups, early aborts, and chats that kill."""

from __future__ import annotations

import asyncio
import os
import sqlite3
import time
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, aclosing
from importlib import import_module
from pathlib import Path
from typing import Any, cast

import pytest
from tests.durable._engines import Engine, places
from tests.durable._lethal import MAX_DEATHS, interruptions, register, supervised
from tests.durable.conftest import engine_at
from tests.durable.figures import turns
from tests.durable.kills import until_taken
from tests.durable.test_engines import asking, waits
from tests.web._server import eventually

from hookline import Agent, ApprovalRequest, Approve, Ask, Deny, Run, ToolCall, define_hook, tool
from hookline.durable import Client, Counts
from hookline.durable._polled.chat_life import Log
from hookline.durable._polled.claims import Claim, Selection
from hookline.durable._polled.schema import LATEST
from hookline.durable._polled.worker_operations import Jobs
from hookline.durable.sqlite._file import File
from hookline.errors import ChatAbortedError, RemoteChatError, StoreError, UsageError
from hookline.models import Finish, ModelRequest, TextChunk
from hookline.replay import record_of_log, replay
from hookline.runtimes import Durable
from hookline.stores import SQLStore
from hookline.testing import ScriptedModel, call

POLLED = pytest.mark.parametrize("engine", ["sqlite", "postgres"], indirect=True)


# ── chats that a worker may not run ─────────────────────────────────────────────────────────


async def unreadable(engine: Engine, count: int) -> list[str]:
    """Chats whose record newer code has written."""
    jobs = engine.jobs(lease=60)
    ids = [f"newer-{n}" for n in range(count)]
    for id in ids:
        await jobs.add(id, "{}")
    for job in await jobs.take("newer", count, set()):
        assert await jobs.append(job.id, job.owner, 0, b'{"hookline":99,"lines":[]}')
        await jobs.leave(job.id, job.owner)
    await jobs.aclose()
    return ids


@pytest.mark.slow
async def test_a_thousand_chats_that_a_worker_may_not_run_cost_it_no_claim_of_its_own(
    postgres: Engine,
) -> None:
    ran: list[str] = []

    @tool
    async def work() -> str:
        """Work for longer than a claim lasts without a sign of life."""
        ran.append("ran")
        await asyncio.sleep(1.5 * postgres.options()["lease"])
        return "worked"

    agent: Agent[Any] = Agent(
        ScriptedModel(call("work"), "Done."), tools=[work], runtime=Durable(), name="mine"
    )
    async with postgres.client() as client:
        await client.start("Hi.", chat_id="up", agent="theirs")
        await unreadable(postgres, 200)
        await asyncio.gather(*[client.start("Hi.", agent="theirs") for _ in range(800)])
        id = await client.start("Hi.", agent="mine")
        async with asyncio.timeout(60), postgres.worker(agent):
            response = await client.result(id)
    assert response.text == "Done."
    assert ran == ["ran"]
    assert [m.text for m in response.messages if m.role == "tool"] == ["worked"]


@POLLED
async def test_a_turn_beside_foreign_and_refused_chats_costs_one_statement_however_many_they_are(
    engine: Engine,
) -> None:
    [none, _], [some, _] = [await turns(engine, foreign, 5) for foreign in (0, 300)]
    assert (none, some) == (1, 1)


# ── messages of clients ─────────────────────────────────────────────────────────────────────


async def test_a_clean_up_in_the_middle_of_a_wait_loses_no_answer(engine: Engine) -> None:
    ran: list[str] = []
    agent = asking(ran, call("delete", path="a"), call("delete", path="b"), "Done.")
    async with engine.worker(agent) as worker, engine.client() as client:
        id = await client.start("Delete a and b.")
        first = await waits(client, id)
        await engine.at_rest(worker)
        assert await client.cleanup(older_than=-1.0) == 0
        await client.answer(id, {first: Approve()})
        assert await client.pending(id) == ()
        second = await waits(client, id)
        await engine.at_rest(worker)
        assert await client.cleanup(older_than=-1.0) == 0
        assert [request.id for request in await client.pending(id)] == [second]
        await client.answer(id, {second: Approve()})
        async with asyncio.timeout(60):
            assert (await client.result(id)).text == "Done."
    assert ran == ["a", "b"]


# ── aborts ──────────────────────────────────────────────────────────────────────────────────


@POLLED
async def test_an_abort_before_the_first_life_ends_the_chat_without_one(
    engine: Engine, client: Client
) -> None:
    ran: list[str] = []

    @tool
    async def charge() -> str:
        """Charge."""
        ran.append("charge")
        return "charged"

    agent: Agent[Any] = Agent(
        ScriptedModel(call("charge"), "Done."), tools=[charge], runtime=Durable()
    )
    agent.add_hook("onChatStart", lambda ctx: ran.append("start"))
    id = await client.start("Charge.")
    assert await client.abort(id, "a mistake")
    async with engine.worker(agent):
        with pytest.raises(ChatAbortedError, match="a mistake"):
            await client.result(id)
    assert ran == []


@pytest.mark.parametrize("engine", ["restate"], indirect=True)
async def test_an_abort_of_a_chat_that_waits_for_a_slot_wins_over_all_of_its_tools(
    engine: Engine, client: Client
) -> None:
    ran: list[str] = []
    release = asyncio.Event()

    @tool
    async def charge(run: Run[Any]) -> str:
        """Charge."""
        ran.append(run.chat_id)
        await release.wait()
        return "charged"

    model = ScriptedModel(call("charge"), "Done.")
    agent: Agent[Any] = Agent(model, tools=[charge], runtime=Durable())
    async with engine.worker(agent, concurrency=1, idle=30.0):
        first = await client.start("Charge.")
        await eventually(lambda: ran == [first])
        id = await client.start("Charge.")
        assert await client.abort(id, "a mistake")
        release.set()
        with pytest.raises(ChatAbortedError, match="a mistake"):
            await client.result(id)
        await client.result(first)
    assert ran == [first]


@POLLED
async def test_an_abort_of_a_parked_chat_wins_over_the_tool_that_was_approved(
    engine: Engine, client: Client
) -> None:
    ran: list[str] = []
    script = call("delete", path="a"), "Done."
    async with engine.worker(asking(ran, *script)) as worker:
        id = await client.start("Delete a.")
        request = await waits(client, id)
        await engine.at_rest(worker)
    await client.answer(id, {request: Approve()})
    assert await client.abort(id, "too late for that")
    async with engine.worker(asking(ran, "Done.")):
        with pytest.raises(ChatAbortedError, match="too late for that"):
            await client.result(id)
    assert ran == []


@POLLED
async def test_an_abort_by_force_ends_a_chat_that_no_worker_can_run(
    engine: Engine, client: Client
) -> None:
    id = await client.start("Hi.", agent="renamed")
    other: Agent[Any] = Agent(ScriptedModel("Hi."), runtime=Durable(), name="other")
    async with engine.worker(other):
        assert await client.abort(id, "nobody can run it", force=True)
        with pytest.raises(ChatAbortedError, match="nobody can run it"):
            await client.result(id)
    assert not await client.abort(id, force=True)


# ── chats that kill their workers ───────────────────────────────────────────────────────────

ONE = Selection(max_deaths=1)


@pytest.mark.slow
@pytest.mark.parametrize("where", ["model", "tool", "again"])
async def test_a_chat_that_kills_its_workers_is_quarantined_and_its_neighbours_end(
    engine: Engine, client: Client, where: str, tmp_path: Path
) -> None:
    trace = tmp_path / "trace"
    trace.touch()
    ids = [*[f"good-{n}" for n in range(10)], "poison", *[f"good-{n}" for n in range(10, 20)]]
    good = [id for id in ids if id != "poison"]
    if engine.name == "restate":  # it knows no chats before its first worker
        await register(engine, client)
    for id in ids:
        await client.start("poison" if id == "poison" else "Work.", chat_id=id)
    options = {"max_deaths": MAX_DEATHS, "idle": 30.0 if engine.name == "restate" else 0.1}
    async with supervised(engine, trace, where, **options) as supervisor:
        responses = {id: await client.result(id) for id in good}
        with pytest.raises(RemoteChatError, match="3 workers died") as caught:
            await client.result("poison")
    assert caught.value.type == "WorkerDied"
    assert supervisor.deaths == MAX_DEATHS
    assert [response.text for response in responses.values()] == ["Done."] * 20
    reported = [
        id for id, response in responses.items() if "may have run" in response.messages[2].text
    ]
    assert interruptions(trace.read_text().splitlines(), reported).later == 0


RESTATE = pytest.mark.parametrize("engine", ["restate"], indirect=True)


class Repaired:
    """The model of the workers that die, which kills no more."""

    name = "lethal"
    begin = 0.0

    async def stream(self, request: ModelRequest) -> AsyncIterator[Any]:
        self.begin = time.time()
        yield TextChunk("Done.")
        yield Finish(finish_reason="stop")


@RESTATE
async def test_a_chat_that_kills_its_workers_begins_after_a_delay_on_restate(
    engine: Engine, client: Client, tmp_path: Path
) -> None:
    async with supervised(engine, tmp_path / "trace", "model", idle=30.0) as supervisor:
        await until_taken(client, "poison", None)
        await eventually(lambda: supervisor.deaths == 3, seconds=60)
    model = Repaired()
    async with engine.worker(Agent(model, runtime=Durable()), idle=30.0):
        assert (await client.result("poison")).text == "Done."
    deaths = [event.at for event in await client.timeline("poison") if event.kind == "death"]
    assert len(deaths) == 3
    assert model.begin >= deaths[-1] + 0.99


@RESTATE
async def test_a_chat_that_restate_quarantined_has_no_deaths_after_a_retry(
    engine: Engine, client: Client, tmp_path: Path
) -> None:
    async with supervised(engine, tmp_path / "trace", "model", idle=30.0, max_deaths=1):
        await until_taken(client, "poison", None)
        with pytest.raises(RemoteChatError, match="1 workers died"):
            await client.result("poison")
    assert await quarantined(client) == ["poison"]
    async with engine.worker(Agent(Repaired(), runtime=Durable()), max_deaths=1):
        await client.retry("poison")
        assert (await client.result("poison")).text == "Done."


@pytest.mark.slow
async def test_a_quarantined_chat_has_its_outcome_after_a_restart_of_the_server(
    server: Engine, tmp_path: Path
) -> None:
    trace = tmp_path / "trace"
    async with server.client() as client, supervised(server, trace, "model", max_deaths=1):
        await until_taken(client, "poison", None)
        while not await quarantined(client):  # noqa: ASYNC110
            await asyncio.sleep(0.05)
    server.where.kill()
    server.where.start()
    async with server.client() as client:
        with pytest.raises(RemoteChatError, match="1 workers died"):
            await client.result("poison")


async def quarantined(client: Client) -> list[str]:
    return [status.id for status in await client.list(state="quarantined")]


def waiting(begun: list[str], release: asyncio.Event) -> Agent[Any]:
    """An agent whose tool, which may run again, waits for a release."""

    @tool(idempotent=True)
    async def wait() -> str:
        """Wait."""
        begun.append("wait")
        await release.wait()
        return "waited"

    return Agent(ScriptedModel(call("wait"), "Done."), tools=[wait], runtime=Durable())


@RESTATE
async def test_a_life_that_is_cut_off_by_the_stop_of_its_worker_has_not_died(
    engine: Engine, client: Client
) -> None:
    begun: list[str] = []
    release = asyncio.Event()
    for count in (1, 2, 3):
        async with engine.worker(waiting(begun, release), max_deaths=1, idle=30.0) as worker:
            if count == 1:
                await client.start("Go.", chat_id="one")
            await eventually(lambda count=count: len(begun) == count)
            worker.stop(drain=0.0)
    release.set()
    async with engine.worker(waiting(begun, release), max_deaths=1, idle=30.0):
        assert (await client.result("one")).text == "Done."


async def test_a_life_whose_connection_to_restate_breaks_has_not_died(
    tmp_path: Path,
) -> None:
    begun: list[str] = []
    release = asyncio.Event()
    with places(("restate",), own=True) as found:
        engine = engine_at(found.__getitem__, "restate")
        agent = waiting(begun, release)
        async with engine.worker(agent, max_deaths=1, idle=30.0), engine.client() as client:
            await client.start("Go.", chat_id="one")
            for count in (1, 2, 3):
                await eventually(lambda count=count: len(begun) == count, seconds=30)
                engine.where.kill()
                engine.where.start()
            release.set()
            assert (await client.result("one")).text == "Done."


@RESTATE
async def test_a_worker_that_is_busy_for_longer_than_idle_gets_on_with_its_chats(
    engine: Engine, client: Client
) -> None:
    def busy(deps: Any) -> None:
        """Keep the event loop from anything else."""
        end = time.monotonic() + 1.0
        while time.monotonic() < end:
            pass

    agent: Agent[Any] = Agent(ScriptedModel("Hello."), runtime=Durable())
    async with engine.worker(agent, idle=0.3, deps=busy):
        id = await client.start("Hi.")
        assert (await client.result(id, timeout=60)).text == "Hello."
    assert Counter(event.kind for event in await client.timeline(id))["life"] == 1


@RESTATE
async def test_the_lives_of_a_chat_that_is_answered_often_have_not_died(
    engine: Engine, client: Client
) -> None:
    ran: list[str] = []
    calls = [call("delete", path=f"{n}") for n in range(5)]
    async with engine.worker(asking(ran, calls, "Done.")):
        id = await client.start("Go.")
        await waits(client, id)
        for request in await client.pending(id):
            while (await client.status(id)).state == "running":  # noqa: ASYNC110
                await asyncio.sleep(0.05)
            await client.answer(id, {request.id: Deny("no")})
        assert (await client.result(id)).text == "Done."
    kinds = Counter(event.kind for event in await client.timeline(id))
    assert ran == []
    assert kinds["life"] > 3
    assert kinds["death"] == 0


# ── replay ──────────────────────────────────────────────────────────────────────────────────


async def test_the_chats_of_an_engine_are_replayed(engine: Engine, client: Client) -> None:
    ran: list[str] = []
    agent = asking(ran, call("delete", path="a"), "Done.")
    async with engine.worker(agent):
        id = await client.start("Go.")
        await client.answer(id, {await waits(client, id): Approve()})
        assert (await client.result(id)).text == "Done."

    @define_hook("preToolCall")
    def refuse(ctx: Any) -> Deny:
        return Deny("no")

    report = await replay(client, agent, hooks=[refuse])
    assert [(verdict.call, verdict.now) for verdict in report] == [("delete(path='a')", "denied")]
    assert (report.inexact, report.unreadable) == ({}, [])
    batches = [data for _, data in (await client.record(id)).batches]
    record = record_of_log(id, batches)
    assert record is not None
    assert [message.text for message in record.messages] == ["Go.", "", "a is gone", "Done."]
    assert ran == ["a"]


# ── the deaths of lives ─────────────────────────────────────────────────────────────────────


def jobs_of(engine: Engine) -> Jobs:
    """The chats of an engine, for a worker whose claims lapse at once."""
    return engine.jobs(lease=0.05)


async def claim_after(jobs: Any) -> Claim:
    """Take the job of a worker that gives no sign of life, once its claim has lapsed."""
    while True:
        for job in await jobs.take("heir", 9, set()):
            return cast(Claim, job)
        await asyncio.sleep(0.02)


@POLLED
async def test_a_worker_that_only_lost_its_claim_takes_the_death_of_its_life_back(
    engine: Engine, client: Client
) -> None:
    id = await client.start("Hi.")
    jobs = jobs_of(engine)
    [slept] = await jobs.take("slept", 9, set())
    heir = await claim_after(jobs)
    assert (slept.strikes, heir.strikes) == (0, 1)
    await jobs.undo_death(id, slept.owner)
    assert (await client.status(id)).deaths == 0
    await jobs.aclose()


@POLLED
async def test_a_released_chat_and_a_suspect_that_has_not_begun_have_not_died(
    engine: Engine, client: Client
) -> None:
    await client.start("Hi.")
    jobs = jobs_of(engine)
    [job] = await jobs.take("drained", 9, set())
    await jobs.leave(job.id, job.owner)
    [job] = await jobs.take("killed", 9, set())
    assert job.strikes == 0
    assert [(await claim_after(jobs)).strikes for _ in range(3)] == [1, 1, 1]
    await jobs.aclose()


@POLLED
@pytest.mark.parametrize("name", ["append", "finish"])
async def test_a_worker_that_cannot_reach_its_engine_for_a_while_has_not_died(
    engine: Engine, client: Client, name: str
) -> None:
    agent: Agent[Any] = Agent(ScriptedModel("Hello.", "Hello."), runtime=Durable())
    worker = engine.worker(agent)
    jobs = worker._jobs
    real, leave, take = getattr(jobs, name), jobs.leave, jobs.take
    away: list[str] = []
    deaths: list[int] = []

    async def broken(*args: Any) -> Any:
        if not away:
            away.append(name)
            raise StoreError("the database is away")
        return await real(*args)

    async def unreleased(*args: Any, **options: Any) -> None:
        if away == [name]:
            away.append("leave")
            raise StoreError("the database is away")
        await leave(*args, **options)

    async def noted(*args: Any) -> Any:
        jobs_taken = await take(*args)
        deaths.extend(job.strikes for job in jobs_taken)
        return jobs_taken

    setattr(jobs, name, broken)
    jobs.leave, jobs.take = unreleased, noted
    async with worker:
        assert (await client.result(await client.start("Hi."))).text == "Hello."
    assert deaths == [0, 0]


# ── operators ───────────────────────────────────────────────────────────────────────────────


@POLLED
async def test_an_operator_lists_retries_aborts_and_deletes_chats(
    engine: Engine, client: Client
) -> None:
    jobs = jobs_of(engine)
    await client.start("Hi.", chat_id="poison")
    [job] = await jobs.take("killed", 9, set(), ONE)
    while (await client.status("poison")).state != "quarantined":
        assert await jobs.take("heir", 9, set(), ONE) == []
        await asyncio.sleep(0.02)
    await client.start("Hi.", chat_id="queued", agent="zoo")
    assert [status.id for status in await client.list(state="quarantined")] == ["poison"]
    assert [status.id for status in await client.list(agent="zoo")] == ["queued"]
    assert [status.id for status in await client.list(limit=1)] == ["poison"]
    assert await client.list(older_than=1000.0) == ()
    with pytest.raises(RemoteChatError, match="1 workers died"):
        await client.result("poison")
    assert not await jobs.append("poison", job.owner, 0, b"late")
    await client.retry("poison")
    assert (await client.status("poison")).state == "queued"
    with pytest.raises(UsageError, match="not quarantined"):
        await client.retry("poison")
    with pytest.raises(UsageError, match="before it is over"):
        await client.delete("poison")
    assert await client.abort("poison", force=True)
    assert (await client.status("poison")).state == "aborted"
    await client.delete("poison")
    with pytest.raises(UsageError, match="there is no durable chat 'poison'"):
        await client.status("poison")
    with pytest.raises(TimeoutError):
        await client.result("queued", timeout=0.05)
    await jobs.aclose()


async def test_a_clean_up_deletes_what_has_ended_and_no_chat_that_lives(
    engine: Engine, client: Client
) -> None:
    ran: list[str] = []
    async with engine.worker(asking(ran, call("delete", path="a"), "Done.")) as worker:
        waiting = await client.start("Delete a.")
        request = await waits(client, waiting)
        await engine.at_rest(worker)
        assert (await client.status(waiting)).state == "waiting"
        over = await client.start("Hi.", agent="renamed")
        await client.abort(over, force=True)
        with pytest.raises((ChatAbortedError, RemoteChatError)):  # Restate fails it at once
            await client.result(over)
        assert await client.cleanup(older_than=1000.0) == 0
        assert await client.cleanup(older_than=-1.0) == 1
        await client.answer(waiting, {request: Approve()})
        assert (await client.result(waiting)).text == "Done."
        assert (await client.status(waiting)).state == "done"
    with pytest.raises(UsageError, match="no durable chat"):
        await client.result(over)


async def test_a_client_that_lists_creates_no_file_and_no_queue(
    engine: Engine, client: Client
) -> None:
    assert await client.list() == ()
    assert await client.cleanup(older_than=0.0) == 0
    with pytest.raises(UsageError, match="no durable chat"):
        await client.result("chat-1")
    if engine.name == "sqlite":
        assert not await asyncio.to_thread(os.path.exists, engine.address)


async def test_a_client_that_looks_creates_no_tables_in_the_file_of_others(tmp_path: Path) -> None:
    file = tmp_path / "chats.db"
    with sqlite3.connect(file) as other:
        other.execute("CREATE TABLE mine (id TEXT)")
    other.close()
    jobs = Jobs(File(str(file)), "hookline", 0.01)
    assert await jobs.counts() == Counts()
    with pytest.raises(UsageError, match=r"chats\.db' has no tables of durable chats"):
        await jobs.questions("one")
    await jobs.aclose()
    with sqlite3.connect(file) as other:
        assert other.execute("SELECT name FROM sqlite_master").fetchall() == [("mine",)]
    other.close()


async def test_a_client_names_the_queues_that_have_chats(engine: Engine, client: Client) -> None:
    if engine.name == "sqlite":
        with pytest.raises(UsageError, match=r"no durable chats: the file .* does not exist"):
            await client.queues()
    async with engine.worker(Agent(ScriptedModel("Hello."), runtime=Durable())):
        await client.result(await client.start("Hi."))
    mine = engine.options().get("queue", engine.options().get("name", "hookline"))
    queues = await client.queues()
    assert mine in queues
    assert list(queues) == sorted(set(queues))


async def test_an_operator_reads_what_has_happened_to_a_chat(
    engine: Engine, client: Client
) -> None:
    async with engine.worker(asking([], call("delete", path="a"), "Done.")) as worker:
        id = await client.start("Delete a.", agent="agent", key="acme")
        request = await waits(client, id)
        await engine.at_rest(worker)
        [status] = await client.list(state="waiting", agent="agent", key="acme")
        assert (status.id, status.ended) == (id, None)
        assert await client.list(state="running") == await client.list(key="zoo") == ()
        assert await client.list(older_than=1000.0) == ()
        assert (await client.counts()).resting == 1
        events = client.watch(id, poll=0.05)
        kinds: list[str] = []
        async with aclosing(events):
            async for event in events:
                kinds.append(event.kind)
                if event.kind == "question":
                    assert (event.name, event.text) == (request, "delete")
                    await client.answer(id, {request: Approve(by="ada")})
        assert (await client.status(id)).state == "done"
    timeline = await client.timeline(id)
    places = [kinds.index(kind) for kind in ("start", "life", "question", "answer", "end")]
    assert places == sorted(places)
    assert "approved by ada" in [event.text for event in timeline if event.kind == "answer"]
    assert ("step/0/model", "calls delete") in [(event.name, event.text) for event in timeline]
    assert [event.kind for event in timeline][-1] == "end"
    await client.delete(id)
    with pytest.raises(UsageError, match="no durable chat"):
        await client.timeline(id)


async def test_the_log_says_what_happens_to_a_chat(
    engine: Engine, client: Client, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", logger="hookline.durable")
    ran: list[str] = []
    async with engine.worker(asking(ran, call("delete", path="a"), "Done.")) as worker:
        id = await client.start("Delete a.")
        request = await waits(client, id)
        await engine.at_rest(worker)
        await client.answer(id, {request: Approve()})
        await client.result(id)
        await engine.at_rest(worker)
    begins = "serves" if engine.name == "restate" else "takes"
    assert [f"begins: it {begins}" in each for each in caplog.messages].count(True) == 1
    claimed = [] if engine.name == "restate" else [f"durable chat {id} was claimed"]
    assert [each for each in caplog.messages if each.startswith(f"durable chat {id} ")] == [
        *claimed,
        f"durable chat {id} began: life 1",
        f"durable chat {id} waits for an answer",
        *claimed,
        f"durable chat {id} continues: life 2",
        f"durable chat {id} ended: done",
    ]


@POLLED
async def test_the_log_says_that_a_chat_was_taken_over_from_a_dead_worker(
    engine: Engine, client: Client, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", logger="hookline.durable")
    id = await client.start("Hi.")
    jobs = jobs_of(engine)
    assert len(await jobs.take("dead", 9, set())) == 1
    async with engine.worker(Agent(ScriptedModel("Hello."), runtime=Durable())):
        await client.result(id)
    await jobs.aclose()
    assert (
        f"durable chat {id} was taken over from a worker that gave no sign of life" in caplog.text
    )


async def test_an_operator_ends_and_forgets_chats_that_wait(
    engine: Engine, client: Client, tmp_path: Path
) -> None:
    ran: list[str] = []

    @tool
    async def charge() -> str:
        """Charge."""
        ran.append("charge")
        return "charged"

    model = ScriptedModel(*[call("charge")] * 3)
    async with SQLStore(f"sqlite:///{tmp_path}/store.db") as store, AsyncExitStack() as stack:
        agent: Agent[Any] = Agent(model, tools=[charge], store=store, runtime=Durable())
        agent.add_hook("preToolCall", lambda ctx: Ask("Really?"))
        worker = await stack.enter_async_context(engine.worker(agent))
        for id in ("one", "two", "two-more"):
            await waits(client, await client.start("Hi.", chat_id=id, conversation=id))
        await engine.at_rest(worker)
        with pytest.raises(UsageError, match="before it is over"):
            await client.delete("one")
        assert await client.abort("one", force=True)
        assert (await client.status("one")).state == "aborted"
        with pytest.raises(ChatAbortedError):
            await client.result("one")
        assert not await client.abort("one", force=True)
        assert await client.delete_conversation("two") == 1
        assert [status.id for status in await client.list(conversation="two")] == ["two-more"]
    assert ran == []


@RESTATE
async def test_an_operator_puts_a_chat_on_restate_in_quarantine_and_retries_it(
    engine: Engine, client: Client
) -> None:
    agent: Agent[Any] = Agent(ScriptedModel("Hello."), runtime=Durable())
    async with engine.worker(agent):
        await client.result(await client.start("Hi."))
    id = await client.start("Hi.")
    while True:  # it counts as running while Restate tries to connect to the worker
        try:
            await client.quarantine(id)
            break
        except UsageError:
            await asyncio.sleep(0.05)
    assert [status.id for status in await client.list(state="quarantined")] == [id]
    assert (await client.counts()).quarantined == 1
    async with engine.worker(Agent(ScriptedModel("Hello again."), runtime=Durable())):
        await client.retry(id)
        assert (await client.result(id)).text == "Hello again."
    with pytest.raises(UsageError, match="not quarantined"):
        await client.retry(id)


@RESTATE
async def test_what_restate_cannot_do_names_its_own_means(client: Client) -> None:
    with pytest.raises(UsageError, match="stop its workers"):
        await client.drain()
    with pytest.raises(UsageError, match="start a worker"):
        await client.resume()


# ── the file ────────────────────────────────────────────────────────────────────────────────


@POLLED
async def test_tables_of_a_newer_version_are_refused_by_words(engine: Engine) -> None:
    jobs = engine.jobs()
    await jobs.add("one", "{}")
    await jobs.database.fetch("UPDATE hookline_job_schema SET version = 99")
    await jobs.aclose()
    try:
        with pytest.raises(StoreError, match=r"version 99.*install a newer hookline"):
            await jobs.take("me", 9)
        with pytest.raises(StoreError, match=r"version 99.*install a newer hookline"):
            await jobs.questions("one")
    finally:
        await jobs.aclose()
        if engine.name == "postgres":  # other tests share its tables
            connection = await import_module("asyncpg").connect(engine.address)
            await connection.execute("UPDATE hookline_job_schema SET version = $1", LATEST)
            await connection.close()


async def test_the_record_is_on_the_disk_unless_an_option_says_otherwise(tmp_path: Path) -> None:
    settings: list[int] = []
    for file in (
        File(str(tmp_path / "a.db")),
        File(str(tmp_path / "b.db"), synchronous="NORMAL"),
    ):
        [[value]] = await file.fetch("PRAGMA synchronous", reads=True)
        settings.append(value)
        await file.aclose()
    assert settings == [2, 1]
    with pytest.raises(UsageError, match="synchronous='off'"):
        File("c.db", synchronous="off")


async def test_looking_for_work_waits_for_no_writer_and_writes_nothing(tmp_path: Path) -> None:
    jobs = Jobs(File(str(tmp_path / "a.db")), "hookline", 0.01)
    await jobs.add("theirs", '{"agent":"zoo"}')
    other = sqlite3.connect(jobs.database.place, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    assert await jobs.take("me", 9, set(), Selection("bank")) == []
    assert await jobs.others(Selection("bank")) == {("agent", "zoo")}
    other.execute("ROLLBACK")
    other.close()
    await jobs.aclose()


@POLLED
async def test_an_answer_that_was_just_heard_keeps_its_chat_from_being_put_aside(
    engine: Engine,
) -> None:
    jobs = engine.jobs()
    await jobs.add("one", "{}")
    [claim] = await jobs.take("me", 1)
    log = Log(jobs, claim, 0.01)
    call = ToolCall(id="c", name="delete", arguments={})
    request = ApprovalRequest(
        id="q", call=call, prompts=("Delete?",), chat_id="one", iteration=0, digest=""
    )
    asking = asyncio.ensure_future(log.answer(request))
    await eventually(lambda: log.only_waits)
    await jobs.answer("one", {"q": '{"kind":"approve"}'})
    log.hear((await jobs.beat([claim.owner]))[claim.owner].answers)
    assert not log.only_waits
    assert await asking == Approve()
    await jobs.aclose()
