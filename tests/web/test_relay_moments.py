"""A relay at unlucky moments: something ends or is cancelled while something else goes on."""

from __future__ import annotations

import asyncio
import gc
import warnings
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import redis.asyncio
from redis.exceptions import ResponseError
from tests._tool_chats import Clock, settle
from tests.web._redis import own_redis
from tests.web.test_relay import TEXT, Steps, begun, followed_by, workers
from tests.web.test_site import native, request_of, text_of

from hookline import Agent, ToolResult
from hookline.errors import StoreError
from hookline.events import ChatAborted, ChatStarted, ToolCallFinished
from hookline.testing import ScriptedModel
from hookline.web._runs.registry import Runs
from hookline.web._runs.run import Live
from hookline.web._runs.run_header import Header
from hookline.web._site.answers.answer import Answers
from hookline.web._site.answers.streaming import Presence
from hookline.web.relay import Observer, RedisRelay
from hookline.web.relay._commands import Link
from hookline.web.relay._reader import Feed
from hookline.web.relay._redis import Names
from hookline.web.relay._remote_runs import RemoteRun, RemoteRuns
from hookline.web.relay._writer import BATCH, RunSink, Writer

HEADER = Header(run="r", chat_id="c", principal="owner")


class Redis:
    """A Redis in which one run has begun; a gate holds back the reading of its stream."""

    def __init__(self) -> None:
        self.names = Names("t:")
        self.commands = self
        self.gate = asyncio.Event()
        self.gate.set()
        self.read = 0

    async def xrange(self, stream: str, min: bytes, count: int) -> list[Any]:
        self.read += 1
        await self.gate.wait()
        return []


def elsewhere() -> tuple[Redis, Feed, RemoteRuns]:
    known = Redis()
    feed = Feed(known, lambda: None)
    return known, feed, RemoteRuns(known, feed, 10_000)  # type: ignore[arg-type]


# ── readers that come and go ────────────────────────────────────────────────────────────────


async def test_a_reader_that_left_long_ago_takes_no_stream_from_the_next_one() -> None:
    clock = Clock()
    _, feed, runs = elsewhere()
    first = await runs.follow("owner/c1", HEADER)
    first.log.read().close()
    await clock.advance(0.9)
    first.log.read().close()  # a second reload, in the same second
    await clock.advance(0.2)
    assert len(feed) == 0
    second = await runs.follow("owner/c1", HEADER)
    assert second is not first
    second.log.read()
    await clock.advance(1.0)
    assert len(feed) == 1
    assert not second.log.complete


async def test_a_reader_whose_request_is_cancelled_cancels_no_other() -> None:
    known, feed, runs = elsewhere()
    known.gate.clear()
    first = asyncio.create_task(runs.follow("owner/c1", HEADER))
    await settle()
    others = [asyncio.create_task(runs.follow("owner/c1", HEADER)) for _ in range(2)]
    await settle()
    first.cancel()
    known.gate.set()
    found = await asyncio.gather(*others, return_exceptions=True)
    assert isinstance(found[0], RemoteRun)
    assert found[1] is found[0]
    assert known.read == 2
    assert len(feed) == 1
    assert first.cancelled()


async def test_an_entry_that_was_asked_for_before_a_stream_was_left_is_not_taken_twice() -> None:
    asked, answer = asyncio.Event(), asyncio.Event()
    entry = (b"1-1", {b"e": b"x"})

    class Client:
        async def xread(self, streams: dict[str, bytes], **_: Any) -> list[Any]:
            if asked.is_set():
                await asyncio.Event().wait()
            asked.set()
            await answer.wait()
            return [[b"s", [entry]]]

    taken: list[bytes] = []
    feed = Feed(Client(), lambda: None)
    feed.follow("s", b"0-0", lambda id, fields: None)
    running = asyncio.create_task(feed.run())
    await asked.wait()
    feed.leave("s")
    feed.follow("s", b"1-1", lambda id, fields: taken.append(id))  # it has this entry already
    answer.set()
    await settle()
    running.cancel()
    assert taken == []


async def test_a_run_that_cannot_be_shown_is_not_followed_any_longer() -> None:
    left: list[str] = []
    run = RemoteRun("owner/c1", HEADER, limit=1000, on_unread=lambda: left.append("left"))

    async def find(key: str, principal: str) -> RemoteRun:
        return run

    async def open(principal: str, id: str) -> None:
        raise StoreError("the store is away")

    agent = Agent(ScriptedModel())
    config: Any = SimpleNamespace(relay=SimpleNamespace(find=find), agent=agent, runs=Runs())
    index: Any = SimpleNamespace(open=open)
    answers = Answers(config, index, Presence(agent.bus))
    with pytest.raises(StoreError):
        await answers.follow("owner", "c1")
    assert left == ["left"]


# ── opening and closing ─────────────────────────────────────────────────────────────────────


async def test_a_relay_that_could_not_be_opened_can_be_opened_later(tmp_path: Path) -> None:
    async with own_redis(tmp_path) as server:
        relay = RedisRelay(server.url)
        server.kill()
        with pytest.raises(StoreError):
            await relay.open()
        await server.start()
        for _ in range(2):
            await relay.open()
            await relay.aclose()


async def test_a_relay_whose_closing_is_cancelled_is_closed(tmp_path: Path) -> None:
    async with own_redis(tmp_path) as server:
        relay = RedisRelay(server.url)
        await relay.open()
        server.kill()
        relay._writer.end(RunSink(relay._writer, "owner/c1", HEADER), b"done")
        closing = asyncio.create_task(relay.aclose())
        await settle()
        closing.cancel()
        await asyncio.wait([closing])
        assert closing.cancelled()
        assert [each.done() for each in relay._tasks] == [True] * 3


async def test_an_observer_whom_redis_refuses_gets_the_error_that_the_docs_say(
    tmp_path: Path,
) -> None:
    async with own_redis(tmp_path) as server, redis.asyncio.Redis.from_url(server.url) as raw:
        await raw.execute_command("ACL SETUSER", "weak", "on", ">PASSWORD", "~*", "+@connection")
        relay = RedisRelay(server.url.replace("redis://", "redis://weak:PASSWORD@"))
        with pytest.raises(StoreError, match="Redis cannot be used"):
            async with relay.observe("audit"):
                pass


async def test_a_run_is_published_although_its_request_is_cancelled(tmp_path: Path) -> None:
    async with own_redis(tmp_path) as server:
        here, there = RedisRelay(server.url), RedisRelay(server.url)
        await here.open()
        await there.open()
        await here.claim("owner/c1", "r")
        live = Live(Agent(ScriptedModel("Hello.")).chat_stream("hi"), HEADER, detached=True)
        telling = asyncio.create_task(here.tell("owner/c1", live))
        await settle(1)
        telling.cancel()
        await asyncio.wait([telling])
        await asyncio.gather(*here._link._sending)
        assert telling.cancelled()
        assert await there.running("owner/c1", "owner") == HEADER
        assert here._claims == {}
        await here.aclose()
        await there.aclose()


# ── a Redis that accepts no writes ──────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("no", "yes"),
    [
        ("CONFIG SET maxmemory 1", "CONFIG SET maxmemory 0"),
        ("REPLICAOF 127.0.0.1 1", "REPLICAOF NO ONE"),
        ("CONFIG SET min-replicas-to-write 1", "CONFIG SET min-replicas-to-write 0"),
    ],
    ids=["full", "replica", "too few replicas"],
)
async def test_a_redis_that_accepts_no_writes_for_a_while_is_away_for_a_while(
    no: str, yes: str, tmp_path: Path
) -> None:
    steps = Steps(4)
    agent = Agent(ScriptedModel(TEXT, "Next.", "Next.", chunk=5, delay=steps))
    async with (
        own_redis(tmp_path) as server,
        redis.asyncio.Redis.from_url(server.url) as raw,
        workers(agent, "h:", url=server.url) as (a, b),
    ):
        async with asyncio.timeout(60):
            first = asyncio.create_task(a.http.post("/native", json=request_of("native", "hi")))
            await begun(a, entries=4)
            await a.relay._writer.flush()
            await raw.execute_command(*no.split())
            with pytest.raises(ResponseError):
                await raw.set("h:x", "1")
            alive = Names("h:").worker(a.relay._link.worker)
            while await raw.pttl(alive) > 0:  # noqa: ASYNC110
                await asyncio.sleep(0.05)
            steps.let()
            assert text_of("native", (await first).content) == TEXT
            other = await b.http.post("/native", json=request_of("native", "hi", "c2"))
            assert other.status_code == 503
            assert "not available; try again later" in other.text
            await raw.execute_command(*yes.split())
            await a.relay._writer.flush()
            while not await raw.exists(alive):  # noqa: ASYNC110
                await asyncio.sleep(0.05)
            log = Names("h:").log("owner/c1", a.site.runs._live["owner/c1"].header.run)
            ((_, last),) = await raw.xrevrange(log, count=1)
            assert last[b"x"] == b"done"
            again = await b.http.post("/native", json=request_of("native", "again"))
            assert text_of("native", again.content) == "Next."


async def test_a_failover_that_ends_the_reading_of_streams_ends_it_for_a_moment(
    tmp_path: Path,
) -> None:
    """A primary that becomes a replica answers a waiting XREAD with an error."""
    steps = Steps(4)
    agent = Agent(ScriptedModel(TEXT, chunk=5, delay=steps))
    async with (
        own_redis(tmp_path) as server,
        redis.asyncio.Redis.from_url(server.url) as raw,
        workers(agent, "h:", url=server.url) as (a, b),
        asyncio.timeout(60),
    ):
        first = asyncio.create_task(a.http.post("/native", json=request_of("native", "hi")))
        await begun(a, entries=4)
        await raw.execute_command("REPLICAOF", "127.0.0.1", "1")
        await raw.execute_command("REPLICAOF", "NO", "ONE")
        reading = asyncio.create_task(b.http.get("/native/c1/stream"))
        await followed_by(b)
        assert (await b.http.post("/native/c1/stop")).json() == {"stopped": True}
        for answer in (await first, await reading):
            assert isinstance(native(answer.content)[-1], ChatAborted)


async def test_what_waits_for_observers_is_bounded() -> None:
    """Also where the runs themselves have ended: the oldest events are dropped first."""

    class Client:
        def pipeline(self, transaction: bool) -> Any:
            raise ConnectionError

    writer = Writer(
        Client(),
        Names("t:"),
        ttl=1.0,
        max_entries=10,
        max_bytes=10_000,
        observer_ttl=1.0,
        back=lambda: None,
    )
    told = RunSink(writer, "owner/c1", HEADER)
    for number in range(100):
        event = ToolCallFinished(
            chat_id="c",
            seq=number,
            iteration=0,
            call_id="1",
            name="look",
            outcome="ok",
            result=ToolResult("x" * 1000),
        )
        told.put(number, 0.0, event)
        told = RunSink(writer, "owner/c1", HEADER)  # each is of another run
    assert 0 < sum(len(fields[b"e"]) for _, fields in writer._news) <= 10_000
    assert b'"seq":99,' in writer._news[-1][1][b"e"]
    assert writer._bytes <= 10_000


@pytest.mark.parametrize("anew", ["loop", "observer"])
async def test_an_event_whose_handling_failed_comes_again_at_the_same_observer(
    anew: str, tmp_path: Path
) -> None:
    async with own_redis(tmp_path) as server:
        relay = RedisRelay(server.url)
        await relay.open()
        told = RunSink(relay._writer, "owner/c1", HEADER)
        for seq in range(3):
            told.put(seq, 0.0, ChatStarted(chat_id="c", seq=seq, agent="a"))
        await relay._writer.flush()
        await relay.aclose()
        seen: list[int] = []

        async def handle(observer: Observer) -> None:
            async for each in observer:
                seen.append(each.event.seq)
                if len(seen) == 2:
                    raise LookupError
                if each.event.seq == 2:
                    return

        observer = relay.observe("audit")
        async with asyncio.timeout(60):
            if anew == "observer":
                with pytest.raises(LookupError):
                    async with observer:
                        await handle(observer)
            async with observer:
                if anew == "loop":
                    with pytest.raises(LookupError):
                        await handle(observer)
                await handle(observer)
        assert seen == [0, 1, 1, 2]


async def test_a_flush_ends_although_more_runs_than_a_batch_holds_go_on_and_on() -> None:
    event = ChatStarted(chat_id="c", seq=1, agent="a")
    batches = 0

    class Client:
        """While it takes a batch, as many items arrive."""

        def pipeline(self, transaction: bool) -> Any:
            return self

        def xadd(self, *_: Any, **__: Any) -> None: ...

        def pexpire(self, *_: Any) -> None: ...

        async def execute(self, raise_on_error: bool) -> list[Any]:
            nonlocal batches
            batches += 1
            begin(BATCH)
            await asyncio.sleep(0)
            return []

    names = Names("t:")
    writer = Writer(
        Client(),
        names,
        ttl=1.0,
        max_entries=10,
        max_bytes=10**9,
        observer_ttl=1.0,
        back=lambda: None,
    )

    def begin(count: int) -> None:
        for _ in range(count):
            RunSink(writer, "owner/c1", HEADER).put(0, 0.0, event, observed=False)

    begin(BATCH + 1)
    flushing = asyncio.create_task(writer.flush())
    writing = asyncio.create_task(writer.run())
    while batches < 5:  # noqa: ASYNC110
        await asyncio.sleep(0)
    writing.cancel()
    assert flushing.done()


async def test_what_a_relay_had_no_time_to_send_leaves_no_warning() -> None:
    async def send() -> None:
        raise AssertionError("it was sent")

    link = Link("redis://127.0.0.1:1", Names("t:"), ttl=1.0, lease=1.0)
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        link.later(send())
        await link.aclose()
        gc.collect()
    assert [str(warning.message) for warning in seen] == []
