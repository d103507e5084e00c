"""A relay: what runs at one worker is read, resumed and stopped at another. With a real Redis."""

from __future__ import annotations

import asyncio
import json
import random
import re
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import msgspec
import pytest
import redis.asyncio
from tests.web import _check_ag_ui as ag_ui
from tests.web._redis import URL, clear, need_redis, new_prefix, own_redis
from tests.web._server import TOKEN, client, eventually, serve
from tests.web.test_site import Gate, answer_of, asked, asking, native, request_of, text_of

from hookline import Agent, MemoryStore
from hookline.errors import OverloadedError, StoreError, UsageError
from hookline.events import ChatAborted, ChatDone, ChatStarted, ErrorInfo, ToolCallFinished
from hookline.hooks import retry
from hookline.testing import ScriptedModel, Turn, call
from hookline.web import Caps, Site, app
from hookline.web._runs.run_header import SHARED_BYTES
from hookline.web.relay import RedisRelay
from hookline.web.relay._commands import Link
from hookline.web.relay._redis import SILENCE, Names, connect
from hookline.web.relay._remote_runs import RemoteRun
from hookline.web.relay._writer import PARTITIONS

PROTOCOLS = ("native", "ai-sdk", "ag-ui")
EACH = pytest.mark.parametrize("protocol", PROTOCOLS)
TEXT = "A long answer, of which each piece must arrive once and in its place. " * 3
DOCS = Path(__file__).parents[2] / "docs"
LEASE = 3.0  # seconds; a busy machine must not lose a worker that lives


@pytest.fixture
def prefix() -> Iterator[str]:
    """The prefix of our own keys in the machine's Redis."""
    need_redis()
    made = new_prefix()
    yield made
    clear(made)


class Worker:
    """One of several processes, in all but the process."""

    def __init__(self, site: Site, relay: RedisRelay, http: httpx.AsyncClient) -> None:
        self.site = site
        self.relay = relay
        self.http = http


@asynccontextmanager
async def workers(
    agent: Agent[Any], prefix: str, count: int = 2, *, url: str = "", **options: Any
) -> AsyncIterator[list[Worker]]:
    """Workers of one agent, which share a store and a Redis."""
    relaying = {"lease": LEASE, **options.pop("relaying", {})}
    store = options.pop("store", None) or MemoryStore()
    options.setdefault("token", None if "authorize" in options else TOKEN)
    caps = Caps(drain=0.0, **options.pop("caps", {}))
    async with AsyncExitStack() as stack:
        made: list[Worker] = []
        for _ in range(count):
            relay = RedisRelay(url or need_redis(), prefix=prefix, **relaying)
            site = app(
                agent, store=store, on_disconnect="detach", relay=relay, caps=caps, **options
            )
            address = await stack.enter_async_context(serve(site))
            http = await stack.enter_async_context(client(address))
            made.append(Worker(site, relay, http))
        yield made


class Steps:
    """Lets so many pieces of a model through, and then waits for more to be let through."""

    def __init__(self, first: int = 0) -> None:
        self._open = asyncio.Semaphore(first)
        self.given = 0

    async def __call__(self) -> None:
        await self._open.acquire()
        self.given += 1

    def let(self, more: int = 10_000) -> None:
        for _ in range(more):
            self._open.release()


async def begun(worker: Worker, key: str = "owner/c1", entries: int = 1) -> None:
    """Wait until a worker has so many entries of a run, and the other workers can find the run."""
    await eventually(
        lambda: (
            worker.site.runs.find(key) is not None
            and worker.site.runs._live[key].log.number >= entries
            and key not in worker.relay._claims
        )
    )


async def followed_by(worker: Worker, readers: int = 1) -> RemoteRun:
    """The run of another worker that this one follows, once it has so many readers."""
    known = worker.relay._remote_runs.runs
    await eventually(lambda: known)
    (followed,) = [await each for each in known.values()]
    await eventually(lambda: len(followed.log.readers) == readers)
    return followed


# ── reading elsewhere ───────────────────────────────────────────────────────────────────────


@EACH
async def test_what_runs_at_one_worker_is_read_at_another(protocol: str, prefix: str) -> None:
    steps = Steps(8)
    agent = Agent(ScriptedModel(TEXT, chunk=5, delay=steps))
    async with workers(agent, prefix) as (a, b):
        first = asyncio.create_task(a.http.post(f"/{protocol}", json=request_of(protocol, "hi")))
        await begun(a, entries=8)
        second = asyncio.create_task(b.http.get(f"/{protocol}/c1/stream"))
        shown = (await b.http.get(f"/{protocol}/c1/messages")).json()
        assert shown["running"] is True
        steps.let()
        here, there = (await first).content, (await second).content
        assert there == here
        assert text_of(protocol, there) == TEXT
        assert (await b.http.get(f"/{protocol}/c1/stream")).status_code == 204
        assert (await b.http.get(f"/{protocol}/c1/messages")).json()["running"] is False


@pytest.mark.parametrize("size", [1000, 300_000], ids=["small", "large"])
async def test_redis_holds_the_messages_of_a_client_up_to_a_limit(size: int, prefix: str) -> None:
    steps = Steps(2)
    turns = Turn("It ", "is ", "not ", fail=OverloadedError("full"), delay=steps), "Whole."
    agent = Agent(ScriptedModel(*turns), hooks=list(retry(attempts=2, base=0.0)))
    before = {"id": "u0", "role": "user", "content": "x" * size}
    body = request_of("ag-ui", "hi")
    body["messages"].insert(0, before)
    async with workers(agent, prefix) as (a, b):
        first = asyncio.create_task(a.http.post("/ag-ui", json=body))
        await begun(a, entries=4)
        second = asyncio.create_task(b.http.get("/ag-ui/c1/stream"))
        await followed_by(b)
        header = await b.relay._link.commands.hget(b.relay._names.run("owner/c1"), "header")
        assert len(header) < SHARED_BYTES + 1000
        steps.let()
        here, there = (await first).content, (await second).content
        assert b"MESSAGES_SNAPSHOT" in here
        assert text_of("ag-ui", here).endswith("Whole.")
        if size == 1000:
            assert there == here
        else:
            ag_ui.check(there, thread_id="c1", run_id="r")
            assert b'"code":"reload"' in there
            assert b"MESSAGES_SNAPSHOT" not in there


async def test_a_reader_resumes_elsewhere_at_any_place(prefix: str) -> None:
    steps = Steps(20)
    agent = Agent(ScriptedModel(TEXT, chunk=3, delay=steps))
    chance = random.Random(5)
    async with workers(agent, prefix) as (a, b):
        first = asyncio.create_task(a.http.post("/native", json=request_of("native", "hi")))
        await begun(a, entries=20)
        run = a.site.runs._live["owner/c1"].header.run
        places = [chance.randrange(20) for _ in range(5)]

        def resume(place: int) -> Any:
            headers = {"last-event-id": f"{run}-{place}"}
            return asyncio.create_task(b.http.get("/native/c1/stream", headers=headers))

        early = [(place, resume(place)) for place in places]
        steps.let()
        whole = (await first).content
        frames = whole.split(b"\n\n")[1:]
        late = [(place, resume(place)) for place in range(0, len(frames) - 2, 7)]
        for place, reading in (*early, *late):
            answer = await reading
            assert answer.status_code == 200
            assert answer.content.split(b"\n\n")[1:] == frames[place + 1 :]
        last = await resume(len(frames) - 2)
        assert last.status_code == 204  # that client has it all


async def test_a_newer_answer_elsewhere_is_found_where_an_older_one_ended(prefix: str) -> None:
    steps = Steps()
    agent = Agent(ScriptedModel("One.", Turn(TEXT, delay=steps), chunk=5))
    async with workers(agent, prefix) as (a, b):
        await a.http.post("/native", json=request_of("native", "hi"))  # and is kept there
        steps.let(4)
        second = asyncio.create_task(b.http.post("/native", json=request_of("native", "again")))
        await begun(b, entries=4)
        run = b.site.runs._live["owner/c1"].header.run
        headers = {"last-event-id": f"{run}-1"}
        reading = asyncio.create_task(a.http.get("/native/c1/stream", headers=headers))
        await followed_by(a)
        steps.let()
        whole = (await second).content.split(b"\n\n")
        assert (await reading).content.split(b"\n\n")[1:] == whole[3:]


async def test_many_readers_of_a_run_elsewhere_follow_it_once(prefix: str) -> None:
    steps = Steps(4)
    agent = Agent(ScriptedModel(TEXT, chunk=9, delay=steps))
    async with workers(agent, prefix) as (a, b):
        first = asyncio.create_task(a.http.post("/native", json=request_of("native", "hi")))
        await begun(a, entries=4)
        readers = [asyncio.create_task(b.http.get("/native/c1/stream")) for _ in range(5)]
        await followed_by(b, readers=5)
        steps.let()
        whole = (await first).content
        assert {(await each).content for each in readers} == {whole}
        await eventually(
            lambda: not b.relay._remote_runs.runs and len(b.relay._remote_runs._feed) == 1
        )


async def test_a_reload_shows_elsewhere_what_went_on(prefix: str) -> None:
    """An answer that goes on after an approval: the replay begins with what was before it."""
    gate = Gate()
    agent, paid = asking(
        Turn("I ask. ", call("pay", to="Ada", amount=10.0, call_id="c1")), Turn("Done.", delay=gate)
    )
    async with workers(agent, prefix) as (a, b):
        known = await asked(a.http, "ai-sdk")
        going_on = asyncio.create_task(a.http.post("/ai-sdk", json=answer_of("ai-sdk", known)))
        await gate.reached.wait()
        await begun(a)
        replaying = asyncio.create_task(b.http.get("/ai-sdk/c1/stream"))
        shown = (await b.http.get("/ai-sdk/c1/messages")).json()["messages"]
        assert [m["role"] for m in shown] == ["user"]
        gate.open.set()
        await going_on
        assert text_of("ai-sdk", (await replaying).content) == "I ask. Done."
        assert paid == ["Ada"]


# ── stopping, answering ─────────────────────────────────────────────────────────────────────


async def test_a_stop_elsewhere_reaches_the_owner(prefix: str) -> None:
    steps = Steps(4)
    agent = Agent(ScriptedModel(TEXT, chunk=5, delay=steps))
    async with workers(agent, prefix) as (a, b):
        first = asyncio.create_task(a.http.post("/native", json=request_of("native", "hi")))
        await begun(a, entries=4)
        reading = asyncio.create_task(b.http.get("/native/c1/stream"))
        await followed_by(b)
        assert (await b.http.post("/native/c1/stop")).json() == {"stopped": True}
        for answer in (await first, await reading):
            last = native(answer.content)[-1]
            assert isinstance(last, ChatAborted)
            assert last.reason == "stopped by the user"
        assert (await b.http.post("/native/c1/stop")).json() == {"stopped": False}
        assert (await b.http.post("/native/none/stop")).json() == {"stopped": False}


async def test_a_conversation_that_is_busy_elsewhere_is_refused(prefix: str) -> None:
    steps = Steps(4)
    agent = Agent(ScriptedModel(TEXT, "Two.", chunk=5, delay=steps))
    async with workers(agent, prefix) as (a, b):
        first = asyncio.create_task(a.http.post("/native", json=request_of("native", "hi")))
        await begun(a)
        again = await b.http.post("/native", json=request_of("native", "again"))
        assert again.status_code == 409
        assert (await b.http.delete("/conversations/c1")).status_code == 409
        steps.let()
        await first
        again = await b.http.post("/native", json=request_of("native", "again"))
        assert text_of("native", again.content) == "Two."


async def test_a_claim_is_renewed_until_its_run_begins(prefix: str) -> None:
    """`deps=` may take longer than the lease, after which a claim would expire."""
    asked_for, gate = asyncio.Event(), asyncio.Event()

    async def deps(scope: Any, principal: str) -> None:
        asked_for.set()
        await gate.wait()

    key = Names(prefix).run("owner/c1")
    known = connect(URL)
    steps = Steps()
    agent = Agent(ScriptedModel("One.", delay=steps))
    async with workers(agent, prefix, deps=deps) as (a, b):
        first = asyncio.create_task(a.http.post("/native", json=request_of("native", "hi")))
        await asked_for.wait()
        await known.pexpire(key, 600_000)  # longer than a lease, which a renewal shows
        while await known.pttl(key) > LEASE * 1_000:  # noqa: ASYNC110
            await asyncio.sleep(0.05)
        again = await b.http.post("/native", json=request_of("native", "again"))
        assert (again.status_code, again.headers["retry-after"]) == (409, "5")
        gate.set()
        await begun(a)
        assert await known.pttl(key) > LEASE * 1_000  # a run is kept longer than a claim
        steps.let()
        assert text_of("native", (await first).content) == "One."
    await known.aclose()


@pytest.mark.parametrize("answers", [True, False])
async def test_a_response_ends_once_another_process_may_begin_the_next(
    prefix: str, monkeypatch: pytest.MonkeyPatch, answers: bool
) -> None:
    """A client may send its next message anywhere; a silent Redis delays it only a little."""
    gate, ending = asyncio.Event(), asyncio.Event()
    real = Link.over

    async def over(*args: Any) -> None:
        ending.set()
        await gate.wait()
        await real(*args)

    monkeypatch.setattr(Link, "over", over)
    monkeypatch.setattr("hookline.web.relay._writer.FREE_TIMEOUT", 60.0 if answers else 0.0)
    agent = Agent(ScriptedModel("One.", "Two."))
    async with workers(agent, prefix) as (a, b):
        first = asyncio.create_task(a.http.post("/native", json=request_of("native", "hi")))
        if answers:
            await ending.wait()
            await asyncio.wait([first], timeout=0.2)
            assert not first.done()
            gate.set()
        assert text_of("native", (await first).content) == "One."
        gate.set()
        if answers:
            again = await b.http.post("/native", json=request_of("native", "again"))
            assert text_of("native", again.content) == "Two."


async def test_an_answer_counts_once_wherever_it_is_given(prefix: str) -> None:
    agent, paid = asking([call("pay", to="Ada", amount=10.0, call_id="c1")], "Done.")
    async with workers(agent, prefix, 3) as (a, b, c):
        known = await asked(a.http, "native")
        body = answer_of("native", known)
        answers = await asyncio.gather(
            *(each.http.post("/native", json=body) for each in (b, c, b, c, a))
        )
        assert sorted(each.status_code for each in answers) == [200, 409, 409, 409, 409]
        assert paid == ["Ada"]
        late = await c.http.post("/native", json=body)
        assert late.status_code == 409
        assert paid == ["Ada"]


# ── whose it is ─────────────────────────────────────────────────────────────────────────────


def who(connection: Any) -> str:
    return str(connection.headers["x-user"])


async def test_nobody_reads_or_stops_what_is_anothers(prefix: str) -> None:
    steps = Steps(4)
    agent = Agent(ScriptedModel(TEXT, chunk=5, delay=steps))
    ada, eve = {"x-user": "ada"}, {"x-user": "eve"}
    async with workers(agent, prefix, authorize=who) as (a, b):
        body = request_of("native", "hi")
        first = asyncio.create_task(a.http.post("/native", json=body, headers=ada))
        await begun(a, "ada/c1", entries=4)
        assert (await b.http.get("/native/c1/stream", headers=eve)).status_code == 204
        stopped = (await b.http.post("/native/c1/stop", headers=eve)).json()
        assert stopped == {"stopped": False}
        for id in ("../ada/c1", "%2e%2e/ada/c1", "ada/c1"):
            answer = await b.http.get(f"/native/{id}/stream", headers=eve)
            assert answer.status_code in (204, 404)
        steps.let()
        assert text_of("native", (await first).content) == TEXT


async def test_the_header_of_a_run_is_checked_too(prefix: str) -> None:
    """Also where somebody has written a run of another's into Redis under a key of ours."""
    steps = Steps(4)
    agent = Agent(ScriptedModel(TEXT, chunk=5, delay=steps))
    names = Names(prefix)
    async with (
        workers(agent, prefix) as (a, b),
        redis.asyncio.Redis.from_url(need_redis()) as raw,
    ):
        first = asyncio.create_task(a.http.post("/native", json=request_of("native", "hi")))
        await begun(a, entries=4)
        key = names.run("owner/c1")
        header = json.loads(await raw.hget(key, "header"))
        await raw.hset(key, "header", json.dumps({**header, "principal": "eve"}))
        answer = await b.http.get("/native/c1/stream")
        assert answer.status_code == 404
        assert b"long answer" not in answer.content
        # … and the owner checks what the message of a stop says.
        for principal in ("eve", "owner"):
            note = {"act": "stop", "token": "t", "back": "nobody", "key": "owner/c1"}
            note |= {"run": header["run"], "principal": principal, "reason": "because"}
            await raw.xadd(names.inbox(a.relay._link.worker), {"n": json.dumps(note)})
            if principal == "eve":
                steps.let(5)
                await eventually(lambda: steps.given >= 8)
                assert not first.done()
        assert native((await first).content)[-1].reason == "because"


# ── what is lost ────────────────────────────────────────────────────────────────────────────


RELOAD = {
    "native": b'"event":"reload"',
    "ai-sdk": b'"type":"data-reload"',
    "ag-ui": b'"code":"reload"',
}


@EACH
async def test_who_misses_an_entry_is_told_to_reload(protocol: str, prefix: str) -> None:
    steps = Steps(6)
    agent = Agent(ScriptedModel(TEXT, chunk=5, delay=steps))
    async with (
        workers(agent, prefix) as (a, b),
        redis.asyncio.Redis.from_url(need_redis()) as raw,
    ):
        first = asyncio.create_task(a.http.post(f"/{protocol}", json=request_of(protocol, "hi")))
        await begun(a, entries=6)
        reading = asyncio.create_task(b.http.get(f"/{protocol}/c1/stream"))
        followed = await followed_by(b)
        run = a.site.runs._live["owner/c1"].header.run
        # One entry never arrives: another with its id is there before it.
        await a.relay._writer.flush()
        number = a.site.runs._live["owner/c1"].log.number
        await eventually(lambda: followed.log.number == number)
        stream = Names(prefix).log("owner/c1", run)
        await raw.xadd(stream, {"e": ""}, id=f"1-{number + 3}")
        cut = await reading
        assert RELOAD[protocol] in cut.content
        steps.let()
        assert text_of(protocol, (await first).content) == TEXT
        shown = (await b.http.get("/native/c1/messages")).json()["messages"]
        assert shown[-1]["parts"][0]["text"] == TEXT


async def test_a_stream_that_is_trimmed_cannot_be_replayed(prefix: str) -> None:
    steps = Steps(300)
    agent = Agent(ScriptedModel(TEXT * 3, chunk=1, delay=steps))
    async with (
        workers(agent, prefix) as (a, b),
        redis.asyncio.Redis.from_url(need_redis()) as raw,
    ):
        first = asyncio.create_task(a.http.post("/native", json=request_of("native", "hi")))
        await begun(a, entries=300)
        await a.relay._writer.flush()
        run = a.site.runs._live["owner/c1"].header.run
        stream = Names(prefix).log("owner/c1", run)
        (last,) = await raw.xrevrange(stream, count=1)
        await raw.xtrim(stream, minid=last[0], approximate=False)
        assert (await b.http.get("/native/c1/stream")).status_code == 204  # the messages have it
        assert (await b.http.get("/native/c1/messages")).json()["running"] is True
        kept = int(last[0].partition(b"-")[2]) - 1
        headers = {"last-event-id": f"{run}-{kept - 2}"}
        assert (await b.http.get("/native/c1/stream", headers=headers)).status_code == 204
        headers = {"last-event-id": f"{run}-{kept}"}
        reading = asyncio.create_task(b.http.get("/native/c1/stream", headers=headers))
        await followed_by(b)
        steps.let()
        whole = (await first).content.split(b"\n\n")
        assert (await reading).content.split(b"\n\n")[1:] == whole[kept + 2 :]


async def test_an_answer_of_more_entries_than_the_stream_holds_goes_on_for_its_reader(
    prefix: str,
) -> None:
    """A new reader has the messages."""
    steps = Steps()
    agent = Agent(ScriptedModel("x" * 1000, chunk=1, delay=steps))
    async with workers(agent, prefix, 3, relaying={"max_entries": 10}) as (a, b, c):
        first = asyncio.create_task(a.http.post("/native", json=request_of("native", "hi")))
        await begun(a)
        await a.relay._writer.flush()
        reading = asyncio.create_task(b.http.get("/native/c1/stream"))
        followed = await followed_by(b)
        for number in range(5, 995, 5):
            steps.let(5)
            await eventually(lambda number=number: followed.log.number >= number)
        assert (await c.http.get("/native/c1/stream")).status_code == 204
        assert (await c.http.get("/native/c1/messages")).json()["running"] is True
        steps.let()
        whole = (await first).content
        assert (await reading).content == whole
        assert text_of("native", whole) == "x" * 1000


async def test_the_process_that_shows_an_error_writes_its_text(prefix: str) -> None:
    """Redis has the text of the exception, and no browser gets it."""
    errors: list[str] = []

    def describe(error: ErrorInfo) -> str:
        errors.append(error.message)
        return "It broke."

    gate = Gate()

    async def fails() -> str:
        """Fail."""
        await gate()
        raise OSError("secret")

    agent = Agent(ScriptedModel([call("fails")], "Sorry."), tools=[fails])
    async with (
        workers(agent, prefix, describe_error=describe) as (a, b),
        redis.asyncio.Redis.from_url(need_redis()) as raw,
    ):
        first = asyncio.create_task(a.http.post("/native", json=request_of("native", "hi")))
        await begun(a)
        await a.relay._writer.flush()
        reading = asyncio.create_task(b.http.get("/native/c1/stream"))
        await followed_by(b)
        gate.open.set()
        for answer in (await first, await reading):
            assert b"It broke." in answer.content
            assert b"secret" not in answer.content
        assert errors == ["secret", "secret"]
        await a.relay._writer.flush()
        run = a.site.runs._live["owner/c1"].header.run
        assert "secret" in str(await raw.xrange(Names(prefix).log("owner/c1", run)))


async def test_a_run_whose_process_is_gone_is_told_to_reload(prefix: str) -> None:
    steps = Steps(6)
    agent = Agent(ScriptedModel(TEXT, "Again.", chunk=5, delay=steps))
    async with (
        workers(agent, prefix, relaying={"lease": 0.3}) as (a, b),
        redis.asyncio.Redis.from_url(need_redis()) as raw,
    ):
        first = asyncio.create_task(a.http.post("/native", json=request_of("native", "hi")))
        await begun(a, entries=6)
        reading = asyncio.create_task(b.http.get("/native/c1/stream"))
        await followed_by(b)
        for task in a.relay._tasks:  # as far as others can see, it is dead
            task.cancel()
        await raw.delete(Names(prefix).worker(a.relay._link.worker))
        cut = (await reading).content
        assert RELOAD["native"] in cut
        assert (await b.http.get("/native/c1/messages")).json()["running"] is False
        steps.let()
        await first


async def test_a_redis_that_is_killed_and_comes_back_empty(tmp_path: Path) -> None:
    """The answer goes on where it runs; who reads it elsewhere has it whole, or reloads."""
    steps = Steps(10)
    agent = Agent(ScriptedModel(TEXT, "Two.", chunk=5, delay=steps))
    async with own_redis(tmp_path) as server, workers(agent, "h:", url=server.url) as (a, b):
        first = asyncio.create_task(a.http.post("/native", json=request_of("native", "hi")))
        await begun(a, entries=10)
        reading = asyncio.create_task(b.http.get("/native/c1/stream"))
        await followed_by(b)
        server.kill()
        steps.let(5)
        await eventually(lambda: steps.given >= 15)
        refused = await b.http.post("/native", json=request_of("native", "x", "c2"))
        assert refused.status_code == 503
        await server.start()
        steps.let()
        assert text_of("native", (await first).content) == TEXT
        there = (await reading).content
        assert RELOAD["native"] in there or text_of("native", there) == TEXT
        stored = (await b.http.get("/native/c1/messages")).json()["messages"]
        assert stored[-1]["parts"][0]["text"] == TEXT
        again = await b.http.post("/native", json=request_of("native", "again"))
        assert text_of("native", again.content) == "Two."


async def test_a_redis_that_comes_back_with_its_data_has_the_whole_answer(tmp_path: Path) -> None:
    """Also where the answer has ended meanwhile: then nothing runs there any more."""
    steps = Steps(10)
    agent = Agent(ScriptedModel(TEXT, "Two.", chunk=5, delay=steps))
    async with (
        own_redis(tmp_path, keeps=True) as server,
        workers(agent, "h:", url=server.url, relaying={"lease": 10.0}) as (a, b),
    ):
        first = asyncio.create_task(a.http.post("/native", json=request_of("native", "hi")))
        await begun(a, entries=10)
        reading = asyncio.create_task(b.http.get("/native/c1/stream"))
        await followed_by(b)
        server.kill()
        steps.let()
        whole = (await first).content
        assert text_of("native", whole) == TEXT
        await server.start()
        assert (await reading).content == whole
        await a.relay._writer.flush()
        assert (await b.http.get("/native/c1/messages")).json()["running"] is False
        again = await b.http.post("/native", json=request_of("native", "again"))
        assert text_of("native", again.content) == "Two."


async def test_a_redis_that_hangs_delays_nobody_for_long(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It answers no command, and carries all of them out once it goes on."""
    monkeypatch.setattr("hookline.web.relay._redis.SILENCE", 0.5)
    monkeypatch.setattr("hookline.web.relay._reader.BLOCK", 100)
    steps = Steps(10)
    agent = Agent(ScriptedModel(TEXT, "Two.", "Three.", chunk=5, delay=steps))
    async with (
        own_redis(tmp_path) as server,
        workers(agent, "h:", url=server.url) as (a, b),
    ):
        first = asyncio.create_task(a.http.post("/native", json=request_of("native", "hi")))
        await begun(a, entries=10)
        reading = asyncio.create_task(b.http.get("/native/c1/stream"))
        await followed_by(b)
        server.freeze()
        steps.let()
        whole = (await first).content
        assert text_of("native", whole) == TEXT
        refused = await b.http.post("/native", json=request_of("native", "x", "c2"))
        assert refused.status_code == 503
        server.thaw()
        assert (await reading).content == whole
        for conversation in ("c1", "c2"):  # what was refused runs nowhere, and blocks nobody
            status = 409
            while status == 409:
                body = request_of("native", "again", conversation)
                status = (await a.http.post("/native", json=body)).status_code
            assert status == 200
        assert len(agent.model.requests) == 3


async def test_what_waits_for_redis_is_bounded(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    def given_up() -> int:
        return caplog.text.count("a run lost events")

    steps = Steps(4)
    agent = Agent(ScriptedModel(TEXT, chunk=5, delay=steps))
    async with own_redis(tmp_path) as server:
        relaying = {"lease": 1.0, "max_waiting_bytes": 2000}
        async with workers(agent, "h:", url=server.url, relaying=relaying) as (a, b):
            first = asyncio.create_task(a.http.post("/native", json=request_of("native", "hi")))
            await begun(a, entries=4)
            await a.relay._writer.flush()
            server.kill()
            steps.let(36)
            await eventually(lambda: given_up() == 1)  # and not only at the end
            assert not first.done()
            steps.let()
            assert text_of("native", (await first).content) == TEXT
            assert given_up() == 1
            assert a.relay._writer._bytes <= 2000
            await server.start()
            await a.relay._writer.flush()
            assert (await b.http.get("/native/c1/stream")).status_code == 204


# ── opening and bad input ───────────────────────────────────────────────────────────────────


async def test_a_redis_that_is_not_there_is_an_error_at_the_start(tmp_path: Path) -> None:
    relay = RedisRelay("redis://user:secret@127.0.0.1:1/0")
    site = app(
        Agent(ScriptedModel()),
        store=MemoryStore(),
        token=TOKEN,
        on_disconnect="detach",
        relay=relay,
    )
    with pytest.raises(StoreError, match="Redis cannot be used") as caught:
        await relay.open(site.runs)
    assert "secret" not in str(caught.value)
    sent: list[Any] = []

    async def receive() -> dict[str, str]:
        return {"type": "lifespan.startup"}

    async def send(message: Any) -> None:
        sent.append(message)

    await site({"type": "lifespan"}, receive, send)
    assert sent[0]["type"] == "lifespan.startup.failed"
    assert "secret" not in sent[0]["message"]


@pytest.mark.parametrize(("options", "seconds"), [("", SILENCE), ("?socket_timeout=10", 10)])
def test_the_address_says_how_long_redis_may_be_silent(options: str, seconds: float) -> None:
    pool = connect(f"redis://127.0.0.1/0{options}").connection_pool
    assert pool.connection_kwargs["socket_timeout"] == seconds


@pytest.mark.parametrize("url", ["http://user:secret@host", "secret", "redis://[secret"])
def test_an_address_that_is_none_is_refused_without_telling_it(url: str) -> None:
    with pytest.raises(UsageError, match="must begin with redis://") as caught:
        RedisRelay(url)
    assert "secret" not in str(caught.value)


def test_what_contradicts_itself_is_refused() -> None:
    agent = Agent(ScriptedModel())
    relay = RedisRelay("redis://127.0.0.1")
    with pytest.raises(UsageError, match="needs on_disconnect='detach'"):
        app(agent, store=MemoryStore(), token=TOKEN, relay=relay)
    with pytest.raises(UsageError, match="needs a store="):
        app(agent, token=TOKEN, on_disconnect="detach", relay=relay)
    with pytest.raises(UsageError, match="lease="):
        RedisRelay("redis://127.0.0.1", lease=0.0)
    with pytest.raises(UsageError, match="must be positive"):
        RedisRelay("redis://127.0.0.1", max_entries=0)


async def test_a_conversation_that_is_forgotten_leaves_nothing_in_redis(prefix: str) -> None:
    agent = Agent(ScriptedModel("Hello."))
    async with (
        workers(agent, prefix) as (a, b),
        redis.asyncio.Redis.from_url(need_redis()) as raw,
    ):
        await a.http.post("/native", json=request_of("native", "hi"))
        await a.relay._writer.flush()
        assert [key async for key in raw.scan_iter(f"{prefix}log:*")]
        assert (await b.http.delete("/conversations/c1")).status_code == 204
        assert not [key async for key in raw.scan_iter(f"{prefix}log:*")]
        assert not [key async for key in raw.scan_iter(f"{prefix}run:*")]


async def test_every_key_expires_and_begins_with_the_prefix(prefix: str) -> None:
    agent = Agent(ScriptedModel("Hello."))
    async with (
        workers(agent, prefix, relaying={"ttl": 60.0}) as (a, b),
        redis.asyncio.Redis.from_url(need_redis()) as raw,
    ):
        await a.http.post("/native", json=request_of("native", "hi"))
        await b.http.post("/native/c1/stop")
        await a.relay._writer.flush()
        keys = [key.decode() async for key in raw.scan_iter(f"{prefix}*")]
        assert {key.removeprefix(prefix).partition(":")[0] for key in keys} >= {"log", "run"}
        for key in keys:
            if not key.removeprefix(prefix).startswith("told:"):  # trimmed by age, and not gone
                assert 0 < await raw.ttl(key) <= 60, key


async def test_an_entry_of_an_older_life_is_refused(prefix: str) -> None:
    """What a process writes late, after another has gone on with the run, is not read."""
    from hookline.web._runs.run_header import Header
    from hookline.web.relay._writer import RunSink

    agent = Agent(ScriptedModel("Hello."))
    async with (
        workers(agent, prefix) as (a, b),
        redis.asyncio.Redis.from_url(need_redis()) as raw,
    ):
        for each in (a, b):
            await each.relay.open(each.site.runs)
        header = Header(run="r", chat_id="c", principal="owner")
        old = RunSink(a.relay._writer, "owner/c1", header, life=1)
        new = RunSink(b.relay._writer, "owner/c1", header, life=2)
        old.put(0, 0.0, ChatStarted(chat_id="c", seq=1, agent="a"))
        await a.relay._writer.flush()
        new.put(1, 0.1, ChatAborted(chat_id="c", seq=2, reason="new"))
        await b.relay._writer.flush()
        old.put(1, 0.1, ChatAborted(chat_id="c", seq=2, reason="old"))
        await a.relay._writer.flush()
        entries = await raw.xrange(Names(prefix).log("owner/c1", "r"))
        assert [id for id, _ in entries] == [b"1-1", b"2-2"]
        assert b"new" in entries[1][1][b"e"]


# ── remote observers ────────────────────────────────────────────────────────────────────────


async def collect(observer: Any, count: int, into: list[Any]) -> None:
    async for each in observer:
        into.append(each)
        if len(into) >= count:
            return


async def test_observers_get_each_event_in_order(prefix: str) -> None:
    turns = [*([call("look")] if n % 2 == 0 else f"Answer {n}." for n in range(12))]

    async def look() -> str:
        """Look."""
        return "seen"

    agent = Agent(ScriptedModel(*turns), tools=[look])
    async with workers(agent, prefix) as (a, b):
        types = [ChatStarted, ToolCallFinished, ChatDone]
        async with a.relay.observe("audit", types=types, lease=1.0) as observer:
            seen: list[Any] = []
            for n in range(6):
                worker = (a, b)[n % 2]
                await worker.http.post("/native", json=request_of("native", "hi", f"c{n % 3}"))
            async with asyncio.timeout(60):
                await collect(observer, 18, seen)
    for id in ("c0", "c1", "c2"):
        mine = [each.event for each in seen if each.conversation_id == id]
        assert [type(each) for each in mine] == types * 2
        assert {each.principal for each in seen} == {"owner"}
    assert len({(each.event.chat_id, each.event.seq) for each in seen}) == 18


async def test_what_an_observer_had_not_finished_comes_again_at_another(prefix: str) -> None:
    agent = Agent(ScriptedModel(*(f"Answer {n}." for n in range(8))))
    async with workers(agent, prefix, 1) as (a,):
        for n in range(8):
            await a.http.post("/native", json=request_of("native", "hi", f"c{n}"))
        seen: list[Any] = []
        async with a.relay.observe("audit", types=[ChatDone], lease=0.5) as observer:
            async for each in observer:
                if len(seen) == 3:
                    break  # in the middle of it
                seen.append(each)
        finished = [each.event.chat_id for each in seen]
        async with a.relay.observe("audit", types=[ChatDone], lease=0.5) as observer:
            rest: list[Any] = []
            async with asyncio.timeout(60):
                await collect(observer, 5, rest)
        assert not {each.event.chat_id for each in rest} & set(finished)
        assert len(rest) == 5


async def test_members_of_a_name_share_the_events_and_other_names_have_their_own(
    prefix: str,
) -> None:
    agent = Agent(ScriptedModel(*(f"Answer {n}." for n in range(40))))
    async with workers(agent, prefix, 1) as (a,):
        relay = a.relay
        one: list[Any] = []
        two: list[Any] = []
        other: list[Any] = []

        def chats(seen: list[Any]) -> set[str]:
            return {each.event.chat_id for each in seen}

        async with (
            relay.observe("audit", types=[ChatDone], lease=2.0) as first,
            relay.observe("audit", types=[ChatDone], lease=2.0) as second,
            relay.observe("bill", types=[ChatDone], lease=2.0) as third,
        ):
            await eventually(lambda: len(first._places) == len(second._places) == 8)
            assert not set(first._places) & set(second._places)
            reading = [
                asyncio.create_task(collect(observer, 99, into))
                for observer, into in ((first, one), (second, two), (third, other))
            ]
            for n in range(40):
                await a.http.post("/native", json=request_of("native", "hi", f"c{n}"))
            await eventually(lambda: len(chats(one) | chats(two)) == len(chats(other)) == 40)
            for task in reading:
                task.cancel()
            await asyncio.gather(*reading, return_exceptions=True)
        assert one
        assert two


async def test_a_member_that_dies_is_replaced(prefix: str) -> None:
    agent = Agent(ScriptedModel(*(f"Answer {n}." for n in range(4))))
    async with workers(agent, prefix, 1) as (a,):
        async with (
            a.relay.observe("audit", types=[ChatDone], lease=0.4) as dead,
            a.relay.observe("audit", types=[ChatDone], lease=0.4) as heir,
        ):
            await eventually(lambda: len(dead._places) == 8)
            assert dead._tending is not None
            dead._tending.cancel()  # it says nothing any more
            await eventually(lambda: len(heir._places) == 16)
            for n in range(4):
                await a.http.post("/native", json=request_of("native", "hi", f"c{n}"))
            seen: list[Any] = []
            async with asyncio.timeout(60):
                await collect(heir, 4, seen)
        assert len({each.event.chat_id for each in seen}) == 4


async def test_an_observer_that_begins_now_has_nothing_of_before(prefix: str) -> None:
    agent = Agent(ScriptedModel("One.", "Two."))
    async with workers(agent, prefix, 1) as (a,):
        await a.http.post("/native", json=request_of("native", "hi"))
        await a.relay._writer.flush()
        async with a.relay.observe("new", types=[ChatDone], since="now") as observer:
            await a.http.post("/native", json=request_of("native", "hi"))
            seen: list[Any] = []
            async with asyncio.timeout(60):
                await collect(observer, 1, seen)
        assert seen[0].event.response.text == "Two."


async def test_events_for_observers_are_kept_for_a_time_that_can_be_chosen(prefix: str) -> None:
    agent = Agent(ScriptedModel("Hello."))
    async with (
        workers(agent, prefix, relaying={"observer_ttl": 3600.0}) as (a, _),
        redis.asyncio.Redis.from_url(need_redis()) as raw,
    ):
        now = int(1000 * time.time())
        streams = [Names(prefix).events(partition) for partition in range(PARTITIONS)]
        pipe = raw.pipeline()
        for stream in streams:
            for text, age in (("old", 7_200_000), ("new", 1_800_000)):
                for number in range(300):
                    pipe.xadd(stream, {"e": text}, id=f"{now - age}-{number}")
        await pipe.execute()
        await a.http.post("/native", json=request_of("native", "hi"))
        await a.relay._writer.flush()
        (stream,) = [each for each in streams if await raw.ttl(each) > 0]
        assert await raw.ttl(stream) <= 3600
        entries: Any = [fields for _, fields in await raw.xrange(stream)]
        assert entries.count({b"e": b"old"}) < 100  # Redis removes a block at once
        assert entries.count({b"e": b"new"}) == 300


def test_bad_observers_are_refused() -> None:
    relay = RedisRelay("redis://127.0.0.1")
    with pytest.raises(UsageError, match="does not reach remote observers"):
        relay.observe("x", types=[msgspec.Struct])  # type: ignore[list-item]
    for options in ({"name": ""}, {"name": "x", "since": "then"}, {"name": "x", "lease": 0.0}):
        with pytest.raises(UsageError):
            relay.observe(**options)  # type: ignore[arg-type]


async def test_a_user_of_redis_needs_no_more_than_the_docs_say(tmp_path: Path) -> None:
    page = (Path(__file__).parents[2] / "docs" / "relay.md").read_text()
    rules = page.partition("<!-- acl -->\n```text\n")[2].partition("```")[0].split()
    assert rules[:3] == ["ACL", "SETUSER", "hookline"]
    agent, _ = asking([call("pay", to="Ada", amount=1.0, call_id="c1")], "Done.", "More.")
    async with own_redis(tmp_path) as server, redis.asyncio.Redis.from_url(server.url) as raw:
        await raw.execute_command(*rules)
        url = server.url.replace("redis://", "redis://hookline:PASSWORD@")
        async with workers(agent, "hookline:", url=url) as (a, b):
            known = await asked(a.http, "native")
            body = answer_of("native", known)
            assert text_of("native", (await b.http.post("/native", json=body)).content)
            await b.http.get("/native/c1/stream")
            await b.http.post("/native/c1/stop")
            async with a.relay.observe("audit", since="start") as observer:
                seen: list[Any] = []
                async with asyncio.timeout(60):
                    await collect(observer, 3, seen)
            await a.http.delete("/conversations/c1")
        log: Any = await raw.acl_log()
        assert log == []


# ── the connection ──────────────────────────────────────────────────────────────────────────


async def test_a_task_that_reads_in_a_loop_ends_when_it_is_cancelled(prefix: str) -> None:
    """Also when the cancellation comes just as a command is sent."""
    client = connect(URL)
    await client.get(prefix)

    async def reading() -> None:
        while True:
            await client.get(prefix)

    for turns in range(40):
        task = asyncio.create_task(reading())
        for _ in range(turns):
            await asyncio.sleep(0)
        task.cancel()
        done, _ = await asyncio.wait([task], timeout=60)
        task.cancel()
        assert done, f"after {turns} turns the cancellation was lost"
    await client.aclose()


# ── the figures of docs/relay.md ────────────────────────────────────────────────────────────


def figure(pattern: str) -> str:
    """A figure of the document."""
    found = re.search(pattern, (DOCS / "relay.md").read_text(encoding="utf-8"))
    assert found is not None
    return found[1]


async def test_a_process_opens_so_many_connections_for_any_number_of_streams(
    tmp_path: Path,
) -> None:
    steps = Steps()
    count = 16
    agent = Agent(ScriptedModel(*[Turn("Hi.", delay=steps)] * count))
    async with (
        own_redis(tmp_path) as server,
        workers(agent, "own:", url=server.url) as (a, b),
        redis.asyncio.Redis.from_url(server.url) as own,
    ):
        tasks: list[Any] = []
        for number in range(count):  # each shows what runs at the other
            here, there = (a, b) if number % 2 else (b, a)
            body = request_of("native", "hi", f"c{number}")
            tasks.append(asyncio.create_task(here.http.post("/native", json=body)))
            await begun(here, f"owner/c{number}")
            tasks.append(asyncio.create_task(there.http.get(f"/native/c{number}/stream")))
        await eventually(
            lambda: len(a.relay._remote_runs.runs) + len(b.relay._remote_runs.runs) == count
        )
        connections = len(await own.client_list()) - 1  # without this one
        steps.let()
        await asyncio.gather(*tasks)
    words = {"two": 2, "three": 3, "four": 4}
    assert connections == 2 * words[figure(r"Each process opens (\w+) connections")]


async def test_a_chat_takes_so_much_of_redis(tmp_path: Path) -> None:
    events = int(figure(r"A chat of (\d+) events takes"))
    others = 7  # the events of such an answer besides its deltas
    agent = Agent(ScriptedModel(["words "] * (events - others)))
    async with own_redis(tmp_path) as server, workers(agent, "own:", 1, url=server.url) as (a,):
        body = (await a.http.post("/native", json=request_of("native", "hi"))).content
        assert len(native(body)) == events
        async with redis.asyncio.Redis.from_url(server.url) as own:
            sizes = [await own.memory_usage(key) async for key in own.scan_iter("own:*")]
    assert sum(sizes) / 1000 == pytest.approx(int(figure(r"events takes about (\d+) kB")), rel=0.1)
