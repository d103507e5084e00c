"""A message that comes while an answer runs, with `on_busy="queue"`: in order, bounded, stopped."""

from __future__ import annotations

import asyncio
from typing import Any

import httpx
import pytest
from tests.web._clients import need_node
from tests.web._server import client, conversation_of, direct, eventually, site_of
from tests.web.test_asgi import Wire
from tests.web.test_clients import ag_ui, ai, text
from tests.web.test_guard import who
from tests.web.test_site import EACH, Gate, asking, gated, request_of, text_of

from hookline import Agent, MemoryStore
from hookline.errors import UsageError
from hookline.testing import ScriptedModel
from hookline.web import Caps, Site, app
from hookline.web.relay import RedisRelay

QUEUE: dict[str, Any] = {"on_disconnect": "detach", "on_busy": "queue"}


def post(http: httpx.AsyncClient, protocol: str, said: str) -> asyncio.Task[httpx.Response]:
    return asyncio.create_task(http.post(f"/{protocol}", json=request_of(protocol, said)))


async def waiting(site: Site, count: int) -> None:
    await eventually(lambda: site.runs._lines.waiting() == count)


def left_nothing(site: Site) -> bool:
    lines = site.runs._lines
    return not (len(site.runs) or lines.waiting() or lines.length("owner/c1"))


@EACH
async def test_messages_are_answered_in_the_order_in_which_they_came(protocol: str) -> None:
    gate = Gate()
    agent = gated("One.", "Two.", "Three.", gate=gate)
    async with site_of(agent, **QUEUE) as (site, url), client(url) as http:
        answers = [post(http, protocol, "a")]
        await gate.reached.wait()
        for count, said in enumerate(("b", "c"), start=1):
            answers.append(post(http, protocol, said))
            await waiting(site, count)
        gate.open.set()
        said = [text_of(protocol, (await each).content) for each in answers]
        kept = await conversation_of(site, "c1")
        await eventually(lambda: left_nothing(site))
    assert said == ["One.", "Two.", "Three."]
    assert [m.text for m in kept.messages] == ["a", "One.", "b", "Two.", "c", "Three."]


@EACH
async def test_a_full_line_refuses_the_next_message(protocol: str) -> None:
    gate = Gate()
    agent = gated("One.", "Two.", gate=gate)
    options = {**QUEUE, "caps": Caps(queue=1, drain=0.0)}
    async with site_of(agent, **options) as (site, url), client(url) as http:
        first = post(http, protocol, "a")
        await gate.reached.wait()
        second = post(http, protocol, "b")
        await waiting(site, 1)
        third = await http.post(f"/{protocol}", json=request_of(protocol, "c"))
        assert third.status_code == 429
        assert (
            third.text == "Too many messages wait for this answer; wait until it ends, or stop it."
        )
        gate.open.set()
        assert text_of(protocol, (await first).content) == "One."
        assert text_of(protocol, (await second).content) == "Two."


async def test_what_waits_counts_as_an_answer_of_its_principal() -> None:
    gate = Gate()
    options = {**QUEUE, "caps": Caps(streams_per_principal=2, streams=3, drain=0.0)}
    agent = gated("One.", "Two.", "Three.", gate=gate)
    async with site_of(agent, authorize=who, **options) as (site, url), client(url) as http:
        http.headers["x-user"] = "ada"
        running = [post(http, "native", "a")]
        await gate.reached.wait()
        running.append(post(http, "native", "b"))
        await waiting(site, 1)
        other = await http.post("/native", json=request_of("native", "x", "c2"))
        assert (other.status_code, other.headers["retry-after"]) == (429, "5")
        http.headers["x-user"] = "bob"
        running.append(post(http, "native", "c"))
        await eventually(lambda: len(site.runs) == 2)
        http.headers["x-user"] = "eve"
        assert (await http.post("/native", json=request_of("native", "x"))).status_code == 429
        gate.open.set()
        assert [(await each).status_code for each in running] == [200, 200, 200]
        await eventually(lambda: left_nothing(site))


@EACH
async def test_a_stop_takes_back_what_waits(protocol: str) -> None:
    gate = Gate()
    agent = gated("One.", gate=gate)
    async with site_of(agent, **QUEUE) as (site, url), client(url) as http:
        first, second = post(http, protocol, "a"), None
        await gate.reached.wait()
        second = post(http, protocol, "b")
        await waiting(site, 1)
        assert (await http.post(f"/{protocol}/c1/stop")).json() == {"stopped": True}
        for each in (first, second):
            answer = await each
            text_of(protocol, answer.content)  # whole, as its protocol wants it
            sign = {"native": '"chat_aborted"', "ai-sdk": '"abort"', "ag-ui": '"cancelled"'}
            assert sign[protocol] in answer.text
        await eventually(lambda: left_nothing(site))
        assert [m.text for m in (await conversation_of(site, "c1")).messages] == ["a"]
        assert (await http.post(f"/{protocol}/c1/stop")).json() == {"stopped": False}


async def test_a_client_that_leaves_takes_its_message_back(no_leaks: None) -> None:
    gate = Gate()
    site = app(gated("One.", "Three.", gate=gate), token="a-token-of-the-tests", **QUEUE)
    wires = [Wire("2.3", text=each) for each in "abc"]
    serving = [wires[0].run(site)]
    await gate.reached.wait()
    for count, wire in enumerate(wires[1:], start=1):
        serving.append(wire.run(site))
        await waiting(site, count)
    wires[1].leave()
    await serving[1]
    assert site.runs._lines.waiting() == 1
    gate.open.set()
    await asyncio.gather(*serving)
    assert text_of("native", wires[2].data) == "Three."
    assert [m.text for m in (await conversation_of(site, "c1")).messages] == [
        *("a", "One.", "c", "Three."),
    ]
    await site.shutdown()


async def test_a_message_that_waits_is_kept_alive() -> None:
    gate = Gate()
    site = app(
        gated("One.", "Two.", gate=gate),
        token="a-token-of-the-tests",
        caps=Caps(keep_alive=0.01, drain=0.0),
        **QUEUE,
    )
    first, second = Wire("2.3", text="a"), Wire("2.3", text="b")
    serving = [first.run(site)]
    await gate.reached.wait()
    serving.append(second.run(site))
    await eventually(lambda: second.data.count(b": keep-alive") > 2)
    assert b"data:" not in second.data
    gate.open.set()
    await asyncio.gather(*serving)
    assert text_of("native", second.data) == "Two."
    await site.shutdown()


@EACH
async def test_a_message_never_denies_a_question_that_its_user_has_not_seen(protocol: str) -> None:
    agent, paid = asking()
    gate = Gate()

    async def held(ctx: Any) -> None:
        await gate()

    agent.add_hook("onChatStart", held)
    async with site_of(agent, **QUEUE) as (site, url), client(url) as http:
        first = post(http, protocol, "pay")
        await gate.reached.wait()
        second = post(http, protocol, "b")
        await waiting(site, 1)
        gate.open.set()
        await first
        said = (await second).text
        assert "The previous answer needs your approval or a result; send it first." in said
        kept = await conversation_of(site, "c1")
        assert (len(kept.pending), kept.messages[-1].role) == (1, "assistant")
        await eventually(lambda: left_nothing(site))
    assert paid == []


async def test_a_message_that_fails_in_its_turn_lets_the_next_one_pass() -> None:
    """An error of the store is told without its words."""

    class Store(MemoryStore):
        broken = False

        async def open(self, conversation_id: str) -> Any:
            if self.broken:
                self.broken = False
                raise OSError("postgres://user:secret@db")
            return await super().open(conversation_id)

    gate, store = Gate(), Store()
    agent = gated("One.", "Two.", gate=gate)
    async with site_of(agent, store=store, **QUEUE) as (site, url), client(url) as http:
        answers = [post(http, "ai-sdk", "a")]
        await gate.reached.wait()
        for count, said in enumerate(("b", "c"), start=1):
            answers.append(post(http, "ai-sdk", said))
            await waiting(site, count)
        store.broken = True
        gate.open.set()
        first, second, third = [(await each).text for each in answers]
    assert '"One' in first
    assert "Something went wrong (error " in second
    assert "secret" not in second
    assert text_of("ai-sdk", third.encode()) == "Two."


async def test_a_shutdown_takes_back_what_waits() -> None:
    gate = Gate()
    agent = gated("One.", gate=gate)
    async with site_of(agent, **QUEUE) as (site, url), client(url) as http:
        first = post(http, "ag-ui", "a")
        await gate.reached.wait()
        second = post(http, "ag-ui", "b")
        await waiting(site, 1)
        await site.shutdown(0.0)
        assert '"cancelled"' in (await first).text
        assert '"cancelled"' in (await second).text
        assert left_nothing(site)


async def test_two_messages_at_the_same_moment_are_both_answered() -> None:
    async with direct(Agent(ScriptedModel("One.", "Two.")), on_busy="queue") as (site, http):
        both = await asyncio.gather(post(http, "native", "a"), post(http, "native", "b"))
        assert sorted(text_of("native", each.content) for each in both) == ["One.", "Two."]
        assert len((await conversation_of(site, "c1")).messages) == 4


async def test_an_answer_or_a_repetition_does_not_wait() -> None:
    gate = Gate()
    agent = gated("One.", gate=gate)
    async with site_of(agent, **QUEUE) as (_, url), client(url) as http:
        first = post(http, "ai-sdk", "a")
        await gate.reached.wait()
        again = {"id": "c1", "trigger": "regenerate-message", "messages": []}
        assert (await http.post("/ai-sdk", json=again)).status_code == 409
        gate.open.set()
        await first


def test_options_that_cannot_work_are_refused() -> None:
    agent, store = Agent(ScriptedModel()), MemoryStore()
    with pytest.raises(UsageError, match="on_busy='wait' must be 'refuse' or 'queue'"):
        app(agent, token="x" * 16, on_busy="wait")  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="relay= needs on_busy='refuse'"):
        app(agent, token="x" * 16, store=store, relay=RedisRelay("redis://nowhere"), **QUEUE)


# ── the real clients ────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("version", ["ai", "ai6"])
async def test_the_sdk_shows_an_answer_that_had_to_wait(version: str) -> None:
    need_node()
    gate = Gate()
    agent = gated("One.", "Two.", gate=gate)
    async with site_of(agent, **QUEUE) as (site, url), client(url) as http:
        first = post(http, "native", "a")
        await gate.reached.wait()
        second = asyncio.create_task(ai(url, [{"send": "b"}], version))
        await waiting(site, 1)
        gate.open.set()
        assert text_of("native", (await first).content) == "One."
        seen = await second
    assert (seen["status"], [text(each) for each in seen["messages"]]) == ("ready", ["b", "Two."])


async def test_http_agent_shows_an_answer_that_had_to_wait_and_one_that_was_stopped() -> None:
    need_node()
    gate = Gate()
    agent = gated("One.", "Two.", gate=gate)
    async with site_of(agent, **QUEUE) as (site, url), client(url) as http:
        first = post(http, "native", "a")
        await gate.reached.wait()
        second = asyncio.create_task(ag_ui(url, [{"send": "b"}]))
        await waiting(site, 1)
        gate.open.set()
        await first
        seen = await second
        assert [m.get("content") for m in seen["messages"]] == ["b", "Two."]
        assert (seen["runs"], seen["warnings"]) == (["resolved"], [])
    gate = Gate()
    async with site_of(gated("One.", gate=gate), **QUEUE) as (site, url), client(url) as http:
        first = post(http, "native", "a")
        await gate.reached.wait()
        second = asyncio.create_task(ag_ui(url, [{"send": "b"}]))
        await waiting(site, 1)
        await http.post("/ag-ui/c1/stop")
        await first
        seen = await second
        assert seen["events"][-1]["outcome"] == {"type": "cancelled"}
        assert (seen["runs"], seen["warnings"]) == (["resolved"], [])
