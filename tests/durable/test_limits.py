"""What operators set and see: keys, priorities, bounds, versions, timelines, traces, deploys."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from glob import glob
from pathlib import Path
from typing import Any

import httpx
import pytest
from msgspec import Struct
from tests.durable._engines import Engine
from tests.durable.figures import Statements, add_ended, statements_of
from tests.durable.test_engines import asking, waits
from tests.web._server import eventually

from hookline import Agent, Approve, Ask, tool
from hookline.durable import Client, check_chats
from hookline.durable._polled.claims import Claim, Selection
from hookline.durable._polled.suspects import Suspects
from hookline.durable._shared.deaths import TRIAL, Toll
from hookline.durable._shared.same_machine import LastCall, new_name
from hookline.durable.restate._slots import Slots, Suspect
from hookline.errors import QueueFullError, UsageError
from hookline.runtimes import Durable
from hookline.testing import ScriptedModel, call

POLLED = pytest.mark.parametrize("engine", ["sqlite", "postgres"], indirect=True)
RECORD = (
    b'{"hookline":1,"lines":[{"kind":"begin","key":"step/0/model"},'
    b'{"kind":"end","key":"step/0/model"}]}'
)


async def claimed(jobs: Any, limit: int = 9, **options: Any) -> list[str]:
    return [claim.id for claim in await jobs.take(f"w{id(jobs)}", limit, (), Selection(**options))]


# ── the queue ───────────────────────────────────────────────────────────────────────────────


@POLLED
async def test_chats_with_a_higher_priority_begin_first(engine: Engine, client: Client) -> None:
    for id, priority in (("a", 0), ("b", 5), ("c", -1), ("d", 5)):
        await client.start("Hi.", chat_id=id, priority=priority)
    jobs = engine.jobs()
    assert await claimed(jobs) == ["b", "d", "a", "c"]
    await jobs.aclose()


@POLLED
async def test_no_more_than_per_key_chats_of_a_key_run_at_once_in_all_workers(
    engine: Engine, client: Client
) -> None:
    for n in range(4):
        await client.start("Hi.", chat_id=f"a{n}", key="a")
    await client.start("Hi.", chat_id="b0", key="b")
    await client.start("Hi.", chat_id="free")
    one, other = engine.jobs(lease=60), engine.jobs(lease=60)
    assert await claimed(one, 1, per_key=2) == ["a0"]
    assert await claimed(other, per_key=2) == ["a1", "b0", "free"]
    assert await claimed(one, per_key=2) == []
    await one.aclose()  # releases its chat
    assert await claimed(other, per_key=2) == ["a0"]
    assert {chat.id for chat in await client.list(key="a")} == {"a0", "a1", "a2", "a3"}
    await other.aclose()


@POLLED
async def test_a_queue_that_is_full_refuses_a_chat_by_words(engine: Engine) -> None:
    jobs = engine.jobs()
    jobs._max_queued = 2
    async with Client(jobs) as client:
        await client.start("Hi.")
        await client.start("Hi.")
        with pytest.raises(QueueFullError, match="max_queued=2"):
            await client.start("Hi.")
        assert (await client.counts()).queued == 2


@POLLED
async def test_many_clients_that_wait_cost_one_query_together(engine: Engine) -> None:
    jobs = engine.jobs()
    queries: list[int] = []
    fetch = jobs._outcomes

    async def counted(ids: list[str]) -> dict[str, str | None]:
        queries.append(len(ids))
        return await fetch(ids)

    jobs._waiters._fetch = counted
    async with Client(jobs) as client:
        ids = [await client.start("Hi.", chat_id=f"c{n}") for n in range(20)]
        waiting = [asyncio.ensure_future(client.result(id)) for id in ids]
        await eventually(lambda: 20 in queries)
        for claim in await jobs.take("me", 20):
            await client.abort(claim.id)
            await jobs.leave(claim.id, claim.owner)
        async with engine.worker(Agent(ScriptedModel("Hi."), runtime=Durable())):
            done = await asyncio.gather(*waiting, return_exceptions=True)
    assert [type(exc).__name__ for exc in done] == ["ChatAbortedError"] * 20


@POLLED
async def test_the_chats_of_a_conversation_are_deleted_with_all_their_text(
    engine: Engine, client: Client
) -> None:
    await client.start("the secret", chat_id="a", conversation="c1")
    await client.start("the secret", chat_id="b", conversation="c2")
    jobs = engine.jobs()
    [first, *_] = await jobs.take("me", 1)
    assert await jobs.append(first.id, first.owner, 0, b"the secret")
    await jobs.ask(first.id, first.owner, "q", '"the secret"', None)
    assert await client.delete_conversation("c1") == 0  # a worker runs it
    await jobs.leave(first.id, first.owner)
    assert await client.delete_conversation("c1") == 1
    assert [chat.id for chat in await client.list(conversation="c")] == ["b"]
    for table in ("job", "job_log", "job_question", "job_life"):
        sql = f"SELECT * FROM hookline_{table} WHERE queue = $1 AND id = 'a'"
        assert await jobs.database.fetch(sql, jobs.queue, reads=True) == []
    await jobs.aclose()


@POLLED
async def test_workers_delete_chats_after_their_retention(engine: Engine, client: Client) -> None:
    id = await client.start("Hi.", agent="renamed")
    assert await client.abort(id, force=True)
    agent: Agent[Any] = Agent(ScriptedModel("Hi."), runtime=Durable(), name="mine")
    async with engine.worker(agent, retention=0.001):
        while True:
            if not await client.list():
                break
            await asyncio.sleep(0.01)
    with pytest.raises(UsageError, match="retention=0"):
        engine.worker(agent, retention=0)


@POLLED
async def test_a_clean_up_costs_as_much_per_chat_however_many_have_ended(
    engine: Engine, client: Client
) -> None:
    jobs = engine.jobs()
    await jobs.add("up", "{}")
    assert await client.cleanup(older_than=1.0) == 0
    statements = Statements(type(jobs.database))
    counts: list[int] = []
    try:
        for chats in (900, 1900, 2900):  # it deletes 1,000 at once
            await add_ended(engine, chats)
            statements.count = 0
            assert await client.cleanup(older_than=1.0) == chats
            counts.append(statements.count)
    finally:
        statements.end()
    assert counts[1] == 2 * counts[0]
    assert counts[2] == 3 * counts[0]
    select = "SELECT id FROM hookline_job WHERE queue = $1 AND ended < $2 ORDER BY ended LIMIT 9"
    await jobs.database.fetch("ANALYZE hookline_job")
    explain = "EXPLAIN QUERY PLAN" if engine.name == "sqlite" else "EXPLAIN"
    plan = await jobs.database.fetch(f"{explain} {select}", jobs.queue, 2.0, reads=True)
    assert "hookline_job_ended" in str(plan)
    await jobs.aclose()


@pytest.mark.parametrize("engine", ["postgres"], indirect=True)
async def test_a_chat_on_postgresql_costs_less_than_forty_statements(engine: Engine) -> None:
    assert await statements_of(engine, chats=1) < 40
    assert await statements_of(engine, chats=50) < 10


@pytest.mark.parametrize("engine", ["restate"], indirect=True)
async def test_restate_keeps_the_record_of_a_chat_as_long_as_its_outcome(
    engine: Engine, client: Client
) -> None:
    """The record has the id of the conversation, by which `delete_conversation` finds the chat."""
    agent: Agent[Any] = Agent(ScriptedModel("Hi."), runtime=Durable())
    async with engine.worker(agent, retention=2 * 24 * 60 * 60):
        id = await client.start("Hi.")
        await client.result(id)
    sql = (
        "SELECT completion_retention AS outcome, journal_retention AS record FROM sys_invocation "
        f"WHERE target_service_key = '{id}' AND target_handler_name = 'run'"
    )
    async with httpx.AsyncClient(headers={"accept": "application/json"}, timeout=60) as http:
        url = f"{engine.options()['admin']}/query"
        [row] = (await http.post(url, json={"query": sql})).json()["rows"]
    assert row["record"] == row["outcome"]


# ── deaths ──────────────────────────────────────────────────────────────────────────────────


async def strikes_after(jobs: Any) -> int:
    """The strikes of a chat once the claim of its life has lapsed."""
    while True:
        for claim in await jobs.take("heir", 9):
            return int(claim.strikes)
        await asyncio.sleep(0.02)


@POLLED
async def test_the_death_of_a_worker_that_was_told_to_stop_does_not_count(
    engine: Engine, client: Client
) -> None:
    """It is killed at the end of its grace."""
    await client.start("Hi.")
    jobs = engine.jobs(lease=0.05)
    [claim] = await jobs.take("stopped", 9)
    await jobs.excuse([claim.owner])
    assert await strikes_after(jobs) == 0
    await jobs.aclose()


@POLLED
async def test_a_worker_that_is_told_to_stop_excuses_its_lives(engine: Engine) -> None:
    began = asyncio.Event()

    async def work() -> str:
        began.set()
        await asyncio.sleep(60)
        return ""

    agent: Agent[Any] = Agent(ScriptedModel(call("work")), tools=[work], runtime=Durable())
    async with engine.client() as client, engine.worker(agent) as worker:
        await client.start("Hi.")
        await began.wait()
        worker.stop(drain=0.5)
        jobs = worker._jobs
        counts = True
        while counts:
            sql = "SELECT counts FROM hookline_job_life WHERE queue = $1"
            [[counts]] = await jobs.database.fetch(sql, jobs.queue, reads=True)
            await asyncio.sleep(0.01)


def test_a_little_progress_before_each_death_does_not_save_a_chat() -> None:
    toll = Toll()
    for _ in range(3):
        toll = toll.after([RECORD])
    assert toll.strikes == 1
    for _ in range(17):
        toll = toll.after([RECORD])
    assert toll.strikes == 5
    assert Toll().after([]).after([]).strikes == 2


@POLLED
async def test_a_life_that_ended_well_after_progress_forgives_the_deaths_before(
    engine: Engine, client: Client
) -> None:
    id = await client.start("Hi.")
    jobs = engine.jobs(lease=0.05)
    await jobs.take("killed", 9)
    assert await strikes_after(jobs) == 1
    [[owner]] = await jobs.database.fetch("SELECT owner FROM hookline_job WHERE id = $1", id)
    await jobs.leave(id, owner, forgive=False)
    assert (await client.status(id)).deaths == 1
    [claim] = await jobs.take("me", 9)
    await jobs.leave(id, claim.owner, forgive=True)
    assert (await client.status(id)).deaths == 0
    await jobs.aclose()


async def die(jobs: Any) -> None:
    """Let all claims lapse."""
    sql = "UPDATE hookline_job SET lease = 0 WHERE queue = $1 AND owner IS NOT NULL"
    await jobs.database.fetch(sql, jobs.queue)


@POLLED
async def test_a_suspect_that_dies_alone_clears_the_chats_that_had_died_with_it(
    engine: Engine, client: Client
) -> None:
    for id in ("one", "two", "three"):
        await client.start("Hi.", chat_id=id)
    jobs = engine.jobs(lease=60)
    assert len(await jobs.take("first", 9)) == 3
    await die(jobs)
    owners = {claim.id: claim.owner for claim in await jobs.take("second", 9)}
    await jobs.begin("two", owners["two"])
    await die(jobs)
    claims = {claim.id: claim for claim in await jobs.take("third", 9)}
    assert claims.keys() == {"one", "three"}  # the other waits for the delay of its second death
    assert {claim.last for claim in claims.values()} == {None}
    assert [(await client.status(id)).deaths for id in ("one", "two", "three")] == [0, 2, 0]
    await jobs.aclose()


@POLLED
async def test_a_new_chat_that_dies_beside_a_suspect_clears_nobody(
    engine: Engine, client: Client
) -> None:
    for id in ("one", "two"):
        await client.start("Hi.", chat_id=id)
    jobs = engine.jobs(lease=60)
    await jobs.take("first", 9)
    await die(jobs)
    suspects = await jobs.take("second", 9)
    assert {claim.id: claim.last is None for claim in suspects} == {"one": False, "two": False}
    await client.start("Hi.", chat_id="new")
    assert [(claim.id, claim.last) for claim in await jobs.take("second", 9)] == [("new", None)]
    await jobs.begin("two", next(claim.owner for claim in suspects if claim.id == "two"))
    await die(jobs)
    claims = await jobs.take("third", 9)
    assert {claim.id for claim in claims} == {"one", "new"}
    assert all(claim.last is not None for claim in claims)
    await jobs.aclose()


@POLLED
async def test_a_chat_that_recorded_nothing_shortly_before_a_death_is_no_suspect(
    engine: Engine, client: Client
) -> None:
    for id in ("calm", "busy"):
        await client.start("Hi.", chat_id=id)
    jobs = engine.jobs(lease=60)
    [calm, busy] = await jobs.take("first", 9)
    await jobs.append(busy.id, busy.owner, 0, RECORD)
    sql = "UPDATE hookline_job_life SET began = began - $2 WHERE queue = $1"
    await jobs.database.fetch(sql, jobs.queue, 2 * TRIAL)
    await die(jobs)
    assert [claim.id for claim in await jobs.take("second", 9)] == ["busy"]
    [claim] = await jobs.take("second", 9)
    assert (claim.id, claim.strikes, claim.last) == (calm.id, 1, None)
    await jobs.aclose()


@POLLED
async def test_a_worker_takes_over_at_once_from_one_whose_process_is_gone(
    engine: Engine, client: Client
) -> None:
    await client.start("Hi.", chat_id="one")
    program = "from hookline.durable._shared.same_machine import new_name; print(new_name())"
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", program, stdout=asyncio.subprocess.PIPE
    )
    output, _ = await process.communicate()
    jobs = engine.jobs(lease=60)
    assert len(await jobs.take(output.decode().strip(), 9)) == 1
    other = engine.jobs(lease=60)
    assert [claim.id for claim in await other.take(new_name(), 9)] == ["one"]
    third = engine.jobs(lease=60)
    assert await third.take(new_name(), 9) == []  # this process is not gone
    for each in (jobs, other, third):
        await each.aclose()


_NOTES = (
    "import sys; from hookline.durable._shared.same_machine import LastCall\n"
    "for place in sys.argv[1:]:\n"
    "    call = LastCall(place); call.open(); call.note('first'); call.note('last')"
)


async def test_the_chat_whose_call_began_last_in_a_dead_worker_is_the_first_to_be_tried(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", _NOTES, "here", "there", env={**os.environ, "TMPDIR": str(tmp_path)}
    )
    await process.wait()
    calls = LastCall("here")
    calls.open()
    calls.note("mine")
    assert LastCall("elsewhere").take_dead() == set()
    suspects = Suspects()
    for id, last in (("late", 3.0), ("last", 1.0), ("early", 2.0)):
        suspects.add(Claim(id, id, "{}", [], strikes=1, last=last))
    suspects.prime = calls.take_dead()
    assert suspects.prime == {"last"}
    assert calls.take_dead() == set()  # once
    assert [suspects.next({}), suspects.next({}), suspects.next({})] == [
        Claim(id, id, "{}", [], strikes=1, last=last)
        for id, last in (("last", 1.0), ("late", 3.0), ("early", 2.0))
    ]
    [left] = await asyncio.to_thread(glob, f"{tmp_path}/*-{process.pid}-*")
    os.utime(left, (0, 0))
    calls.close()
    LastCall("elsewhere").open()
    assert not await asyncio.to_thread(os.path.exists, left)


async def test_suspects_on_restate_begin_alone_until_one_of_them_dies_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    monkeypatch.setattr("hookline.durable.restate._slots.TRIAL", 1000.0)
    slots = Slots(9, 10.0, LastCall("here"))
    begun: list[str] = []
    ends = {id: asyncio.Event() for id in ("one", "two", "three")}

    async def live(id: str) -> None:
        suspect = Suspect(id, 1, ["killed"])
        slots.meet(suspect)
        async with slots.slot(suspect, asyncio.Event(), lambda: None):
            begun.append(id)
            await ends[id].wait()

    async with asyncio.TaskGroup() as tasks:
        for id in ends:
            tasks.create_task(live(id))
        await eventually(lambda: bool(begun))
        assert begun == ["one"]
        slots.meet(Suspect("four", 2, ["killed", "another"]))
        ends["one"].set()
        await eventually(lambda: sorted(begun) == ["one", "three", "two"])
        for end in ends.values():
            end.set()


async def test_a_new_worker_on_restate_waits_for_the_chat_that_may_have_killed_the_last_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    monkeypatch.setattr("hookline.durable.restate._slots._RETURN", 1000.0)
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", _NOTES, "here", env={**os.environ, "TMPDIR": str(tmp_path)}
    )
    await process.wait()
    slots = Slots(9, 10.0, LastCall("here"))
    begun = asyncio.Event()

    async def live() -> None:
        async with slots.slot(None, asyncio.Event(), lambda: None):
            begun.set()

    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(live())
        slots.meet(Suspect("other", 1, ["killed"]))
        await asyncio.sleep(0.1)  # enough to begin
        assert not begun.is_set()
        slots.meet(Suspect("last", 1, ["killed"]))
        await begun.wait()


# ── versions and deploys ────────────────────────────────────────────────────────────────────


@POLLED
async def test_with_pin_a_chat_that_has_begun_runs_only_in_its_version(
    engine: Engine, client: Client
) -> None:
    await client.start("Hi.", chat_id="begun")
    jobs = engine.jobs(lease=60)
    [claim] = await jobs.take("old", 9, (), Selection(version="1", pin=True))
    await jobs.leave(claim.id, claim.owner)
    await client.start("Hi.", chat_id="new")
    assert await claimed(jobs, version="2", pin=True) == ["new"]
    assert await jobs.others(Selection("a", version="2", pin=True)) == {("version", "1")}
    assert await jobs.others(Selection("a", version="2")) == set()
    assert await claimed(jobs, version="2") == ["begun"]
    assert [chat.version for chat in await client.list()] == ["2", "2"]
    lives = [event.text for event in await client.timeline("begun") if event.kind == "life"]
    assert lives == ["version 1", "version 2"]
    await jobs.aclose()
    with pytest.raises(UsageError, match="policy='pin' needs version="):
        engine.worker(Agent(ScriptedModel("x"), runtime=Durable()), policy="pin")


@pytest.mark.parametrize("engine", ["restate"], indirect=True)
async def test_a_deploy_is_checked_with_the_records_of_open_chats_on_restate(
    engine: Engine, client: Client
) -> None:
    ran: list[str] = []
    async with engine.worker(asking(ran, call("delete", path="a"), "Done.")) as worker:
        id = await client.start("Delete a.")
        await waits(client, id)
        await engine.at_rest(worker)
    same = asking(ran, call("delete", path="a"), "Done.")
    [replay] = await check_chats(same, client)
    assert replay.fits
    assert ran == []


@POLLED
async def test_a_deploy_is_checked_with_the_records_of_open_chats_and_runs_nothing(
    engine: Engine, client: Client
) -> None:
    ran: list[str] = []
    async with engine.worker(asking(ran, call("delete", path="a"), "Done.")) as worker:
        id = await client.start("Delete a.")
        request = await waits(client, id)
        await engine.at_rest(worker)
    await client.answer(id, {request: Approve()})

    same = asking(ran, call("delete", path="a"), "Done.")
    same.add_hook("onResponse", lambda ctx: ran.append("hook"))
    [replay] = await check_chats(same, client)
    assert replay.fits
    jobs = engine.jobs(lease=60)
    [claim] = await jobs.take("newer", 9)
    newer = b'{"hookline":99,"lines":[]}'
    assert await jobs.append(claim.id, claim.owner, len(claim.batches), newer)
    [replay] = await check_chats(same, client)
    assert not replay.fits
    assert "format 99" in replay.why
    assert ran == []
    await jobs.aclose()


@POLLED
async def test_a_deploy_that_goes_another_way_is_named_with_the_step_in_place_of_a_wait(
    engine: Engine, client: Client
) -> None:
    ran: list[str] = []

    async def waits_for_ever(ctx: Any, proceed: Any) -> Any:
        await asyncio.Event().wait()

    async with engine.worker(asking(ran, call("delete", path="a"), "Done.")) as worker:
        id = await client.start("Delete a.")
        request = await waits(client, id)
        await engine.at_rest(worker)
    slow = asking(ran)
    slow.add_hook("aroundChat", waits_for_ever)
    [replay] = await check_chats(slow, client, timeout=0.05)
    assert not replay.fits
    assert replay.why == "the replay waits at step 'message/0' for more than 0.05 s"
    await client.answer(id, {request: Approve()})
    jobs = engine.jobs(lease=60)
    [claim] = await jobs.take("newer", 9)
    step = b'{"hookline":1,"lines":[{"kind":"end","key":"step/7/model","value":{}}]}'
    assert await jobs.append(claim.id, claim.owner, len(claim.batches), step)
    [replay] = await check_chats(asking(ran), client)
    assert not replay.fits
    assert "'step/7/model'" in replay.why
    assert ran == []
    await jobs.aclose()


# ── what a chat has gone through ────────────────────────────────────────────────────────────


@POLLED
async def test_a_chat_is_watched_from_its_start_to_its_end(engine: Engine, client: Client) -> None:
    ran: list[str] = []
    kinds: list[str] = []
    texts: list[str] = []
    async with engine.worker(asking(ran, call("delete", path="a"), "Done.")):
        id = await client.start("Delete a.")
        async for event in client.watch(id, poll=0.02):
            kinds.append(event.kind)
            texts.append(event.text)
            if event.kind == "question":
                await client.answer(id, {event.name: Approve(by="alice")})
    assert [kinds[0], kinds[-1]] == ["start", "end"]
    assert "approved by alice" in texts
    assert "calls delete" in texts
    assert ran == ["a"]


class Receipt(Struct):
    """What the agent answers with."""

    total: int


async def test_a_result_has_the_type_of_the_output(engine: Engine, client: Client) -> None:
    agent: Agent[Any] = Agent(ScriptedModel('{"total": 7}'), runtime=Durable(), output=Receipt)
    async with engine.worker(agent):
        id = await client.start("Sum up.")
        assert (await client.result(id, output=Receipt)).output == Receipt(7)
        with pytest.raises(UsageError, match="pass the output= of"):
            await client.result(id, output=list[int])


async def test_each_life_is_in_the_trace_of_whoever_started_the_chat_or_answered_it_last(
    engine: Engine, client: Client
) -> None:
    """On Restate, an answer changes nothing: there, each life is in the trace of the start."""
    trace = pytest.importorskip("opentelemetry.trace")
    context = pytest.importorskip("opentelemetry.context")
    spans: list[tuple[str, int, int]] = []

    def note(what: str) -> None:
        span = trace.get_current_span().get_span_context()
        spans.append((what, span.trace_id, span.span_id))

    @contextmanager
    def request(trace_id: int, span_id: int) -> Iterator[None]:
        known = trace.SpanContext(trace_id, span_id, False, trace.TraceFlags(1))
        token = context.attach(trace.set_span_in_context(trace.NonRecordingSpan(known)))
        try:
            yield
        finally:
            context.detach(token)

    began = asyncio.Event()

    def agent(*turns: Any, stays: bool = False) -> Agent[Any]:
        @tool(idempotent=True)
        async def look() -> str:
            """Look."""
            note("look")
            if stays:
                began.set()
                await asyncio.Event().wait()
            return "seen"

        async def pay() -> str:
            """Pay."""
            note("pay")
            return "paid"

        made: Agent[Any] = Agent(ScriptedModel(*turns), tools=[look, pay], runtime=Durable())
        made.add_hook("preToolCall", lambda ctx: Ask("Pay?") if ctx.call.name == "pay" else None)
        return made

    async with engine.worker(agent(call("look"), stays=True)):
        with request(0x1234, 0x56):
            id = await client.start("Work.")
        await began.wait()
    async with engine.worker(agent(call("pay"), "Done.")) as worker:
        question = await waits(client, id)
        await engine.at_rest(worker)
        with request(0x789A, 0xBC):
            await client.answer(id, {question: Approve()})
        await client.result(id)
    last = (0x1234, 0x56) if engine.name == "restate" else (0x789A, 0xBC)
    assert spans == [("look", 0x1234, 0x56), ("look", 0x1234, 0x56), ("pay", *last)]
    note("after")
    assert spans[-1] == ("after", 0, 0)
