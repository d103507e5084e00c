"""A stop, a deletion or a change that comes while a request's `deps=` or `hooks=` still run."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from typing import Any

import httpx
import pytest
import redis.asyncio
from tests.web._redis import clear, need_redis, new_prefix
from tests.web._server import client, conversation_of, direct, eventually, site_of
from tests.web.test_queue import QUEUE, left_nothing, post, waiting
from tests.web.test_relay import workers
from tests.web.test_site import EACH, Gate, gated, request_of, text_of

from hookline import Agent
from hookline.testing import ScriptedModel

STOPPED = "This answer was stopped before it began; send the request again."
MODES = pytest.mark.parametrize("mode", [{}, {"on_disconnect": "detach"}, QUEUE], ids=str)


class Slow:
    """A `deps=` or `hooks=` that waits; `stubborn`: it goes on although it is cancelled."""

    def __init__(self, *, stubborn: bool = False) -> None:
        self.gate = Gate()
        self.stubborn = stubborn
        self.ended = 0

    async def __call__(self, scope: Any, principal: str) -> None:
        try:
            await self.gate()
        except asyncio.CancelledError:
            if not self.stubborn:
                raise
        finally:
            self.ended += 1


def model() -> Agent[Any]:
    return Agent(ScriptedModel("One.", "Two."))


@asynccontextmanager
async def asked(http: httpx.AsyncClient, slow: Slow) -> AsyncIterator[asyncio.Task[httpx.Response]]:
    """A request that waits for its `deps=`."""
    task = post(http, "native", "hi")
    await slow.gate.reached.wait()
    try:
        yield task
    finally:
        slow.gate.open.set()
        await asyncio.wait([task])


@pytest.fixture
def prefix() -> Iterator[str]:
    need_redis()
    made = new_prefix()
    yield made
    clear(made)


@MODES
@pytest.mark.parametrize("option", ["deps", "hooks"])
@pytest.mark.parametrize("stubborn", [False, True], ids=["cancellable", "stubborn"])
async def test_a_stop_before_the_answer_begins_runs_nothing(
    mode: dict[str, Any], option: str, stubborn: bool
) -> None:
    slow = Slow(stubborn=stubborn)
    async with direct(model(), **{option: slow}, **mode) as (site, http):
        async with asked(http, slow) as first:
            assert (await http.post("/native/c1/stop")).json() == {"stopped": True}
            answer = await first
            assert (answer.status_code, answer.text) == (409, STOPPED)
        assert slow.ended == 1
        assert (await http.post("/native/c1/stop")).json() == {"stopped": False}
        assert (await http.get("/native/c1/messages")).json()["messages"] == []
        again = await http.post("/native", json=request_of("native", "again"))
        assert text_of("native", again.content) == "One."
        assert left_nothing(site)


@EACH
async def test_a_stop_as_a_waiting_message_gets_its_turn_runs_nothing(protocol: str) -> None:
    gate, slow = Gate(), Slow()
    first = True

    async def deps(scope: Any, principal: str) -> None:
        nonlocal first
        if not first:
            await slow(scope, principal)
        first = False

    agent = gated("One.", gate=gate)
    async with site_of(agent, deps=deps, **QUEUE) as (site, url), client(url) as http:
        answers = [post(http, protocol, "a")]
        await gate.reached.wait()
        answers.append(post(http, protocol, "b"))
        await waiting(site, 1)
        gate.open.set()
        await slow.gate.reached.wait()
        assert (await http.post(f"/{protocol}/c1/stop")).json() == {"stopped": True}
        assert text_of(protocol, (await answers[0]).content) == "One."
        answer = await answers[1]
        assert text_of(protocol, answer.content) == ""
        sign = {"native": '"chat_aborted"', "ai-sdk": '"abort"', "ag-ui": '"cancelled"'}
        assert sign[protocol] in answer.text
        await eventually(lambda: left_nothing(site))
        kept = await conversation_of(site, "c1")
    assert [each.text for each in kept.messages] == ["a", "One."]


async def test_a_stop_reaches_all_requests_that_have_not_begun_and_no_other() -> None:
    slow = Slow()
    async with direct(model(), deps=slow) as (_, http):
        here = [post(http, "native", "a"), post(http, "native", "b")]
        there = asyncio.create_task(http.post("/native", json=request_of("native", "c", "c2")))
        await slow.gate.reached.wait()
        assert (await http.post("/native/c1/stop")).json() == {"stopped": True}
        assert [(await each).status_code for each in here] == [409, 409]
        slow.gate.open.set()
        assert text_of("native", (await there).content) == "One."


@pytest.mark.parametrize("stubborn", [False, True], ids=["cancellable", "stubborn"])
async def test_a_stop_elsewhere_reaches_an_answer_that_has_not_begun(
    prefix: str, stubborn: bool
) -> None:
    slow = Slow(stubborn=stubborn)
    async with (
        workers(model(), prefix, deps=slow) as (a, b),
        redis.asyncio.Redis.from_url(need_redis()) as known,
    ):
        async with asked(a.http, slow) as first:
            assert (await b.http.post("/native/c1/stop")).json() == {"stopped": True}
            answer = await first
            assert (answer.status_code, answer.text) == (409, STOPPED)
        while await known.exists(f"{prefix}run:owner/c1"):  # noqa: ASYNC110
            await asyncio.sleep(0.01)
        assert (await b.http.post("/native/c1/stop")).json() == {"stopped": False}
        again = await b.http.post("/native", json=request_of("native", "again"))
        assert text_of("native", again.content) == "One."


async def test_a_stop_before_a_durable_answer_begins_starts_no_chat(prefix: str) -> None:
    class Jobs:
        started = 0

        async def start(self, *args: Any, **options: Any) -> str:
            self.started += 1
            return "chat"

        async def aclose(self) -> None:
            pass

    slow, jobs = Slow(), Jobs()
    durable: Any = jobs
    async with workers(model(), prefix, 1, deps=slow, durable=durable) as (a,):
        async with asked(a.http, slow) as first:
            assert (await a.http.post("/native/c1/stop")).json() == {"stopped": True}
            answer = await first
            assert (answer.status_code, answer.text) == (409, STOPPED)
        assert (await a.http.get("/conversations")).json() == {"conversations": []}
    assert jobs.started == 0


async def test_a_stop_while_a_durable_chat_is_started_aborts_it(prefix: str) -> None:
    class Jobs:
        def __init__(self) -> None:
            self.gate = Gate()
            self.done: list[str] = []

        async def start(self, *args: Any, chat_id: str, **options: Any) -> str:
            await self.gate()
            self.done.append(f"start {chat_id}")
            return chat_id

        async def abort(self, chat_id: str, reason: str) -> bool:
            self.done.append(f"abort {chat_id}: {reason}")
            return True

        async def aclose(self) -> None:
            pass

    jobs = Jobs()
    durable: Any = jobs
    async with workers(model(), prefix, 1, durable=durable) as (a,):
        first = post(a.http, "native", "hi")
        await jobs.gate.reached.wait()
        assert (await a.http.post("/native/c1/stop")).json() == {"stopped": True}
        jobs.gate.open.set()
        await eventually(lambda: len(jobs.done) == 2)
        first.cancel()
        await asyncio.wait([first])
    (start, abort) = jobs.done
    assert abort == f"abort {start.removeprefix('start ')}: stopped by the user"


async def test_a_request_that_was_refused_lets_the_first_one_keep_its_claim(prefix: str) -> None:
    slow = Slow()
    async with workers(model(), prefix, 1, deps=slow) as (a,):
        async with asked(a.http, slow) as first:
            assert (await post(a.http, "native", "again")).status_code == 409
            assert a.relay._claims.keys() == {"owner/c1"}
        assert text_of("native", (await first).content) == "One."
        assert not a.relay._claims


@MODES
async def test_a_conversation_whose_answer_begins_is_not_deleted(mode: dict[str, Any]) -> None:
    slow = Slow()
    async with direct(model(), deps=slow, **mode) as (_, http):
        slow.gate.open.set()
        await post(http, "native", "a")
        slow.gate.open.clear()
        slow.gate.reached.clear()
        async with asked(http, slow):
            assert (await http.delete("/conversations/c1")).status_code == 409
        shown = (await http.get("/native/c1/messages")).json()["messages"]
        assert [each["parts"][0]["text"] for each in shown] == ["a", "One.", "hi", "Two."]
        assert (await http.delete("/conversations/c1")).status_code == 204


@pytest.mark.parametrize("option", ["deps", "hooks"])
@MODES
async def test_a_preparation_that_was_cancelled_by_itself_has_failed(
    option: str, mode: dict[str, Any]
) -> None:
    async def broken(scope: Any, principal: str) -> None:
        raise asyncio.CancelledError

    async with direct(model(), **{option: broken}, **mode) as (site, http):
        answer = await http.post("/native", json=request_of("native", "hi"))
        assert answer.status_code == 500
        assert answer.text.startswith("Something went wrong (error ")
        assert left_nothing(site)


async def test_a_change_while_an_answer_is_prepared_breaks_no_answer() -> None:
    slow = Slow()
    async with direct(model(), deps=slow) as (_, http):
        slow.gate.open.set()
        await post(http, "native", "a")
        slow.gate.open.clear()
        slow.gate.reached.clear()
        async with asked(http, slow) as second:
            renamed = await http.patch("/conversations/c1", json={"title": "Mine"})
            assert renamed.status_code == 200
        assert text_of("native", (await second).content) == "Two."
        (entry,) = (await http.get("/conversations")).json()["conversations"]
        assert entry["title"] == "Mine"
