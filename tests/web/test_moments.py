"""A server at unlucky moments: what a program of ours gets wrong, or does just then."""

from __future__ import annotations

import asyncio
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import httpx
import pytest
from tests.web._redis import own_redis
from tests.web._server import TOKEN, client, direct, serve
from tests.web.test_site import Gate, gated, request_of

from hookline import Agent, Conversation, MemoryStore
from hookline.events import ErrorInfo
from hookline.testing import ScriptedModel
from hookline.web import app
from hookline.web._page.timeline_store import Timelines
from hookline.web._runs.run import Live
from hookline.web._runs.run_header import Header
from hookline.web._site.conversations import PRINCIPALS, Index
from hookline.web.relay import RedisRelay

PROTOCOLS = ("native", "ai-sdk", "ag-ui")
HEADER = Header(run="r", chat_id="c", principal="owner")


@pytest.mark.parametrize("page", [False, True])
@pytest.mark.parametrize("protocol", PROTOCOLS)
async def test_errors_that_fails_is_replaced_by_the_default_sentence(
    protocol: str, page: bool, caplog: pytest.LogCaptureFixture
) -> None:
    def words(error: ErrorInfo) -> str:
        raise LookupError("secret")

    site = app(Agent(ScriptedModel(ValueError("x"))), token=TOKEN, describe_error=words, page=page)
    async with serve(site) as address, client(address) as http, asyncio.timeout(60):
        response = await http.post(f"/{protocol}", json=request_of(protocol, "hi"))
        assert "Something went wrong (error " in response.text
    assert "describe_error= raised LookupError; the default text is shown" in caplog.text
    assert "secret" not in response.text + caplog.text


async def test_a_run_whose_record_fails_has_an_end_for_its_readers() -> None:
    class Broken:
        def put(self, number: int, at: float, item: Any) -> None: ...

        def end(self, error: BaseException | None) -> None:
            raise LookupError

    live = Live(Agent(ScriptedModel("Hello.")).chat_stream("hi"), HEADER, detached=True)
    live.record = Broken()
    live.start(lambda live: None)
    await live.join()
    assert live.log.complete
    assert live._task is not None
    assert isinstance(live._task.exception(), LookupError)


async def test_an_origin_that_is_no_address_is_refused() -> None:
    site = app(Agent(ScriptedModel()), token=TOKEN)
    async with serve(site) as address, client(address) as http:
        response = await http.get("/conversations", headers={"origin": "https://[x"})
    assert response.status_code == 403
    assert "origins=" in response.text


async def test_a_relay_of_another_app_is_an_error_at_the_start() -> None:
    relay = RedisRelay("redis://127.0.0.1:1/0")
    sent: list[Any] = []

    async def receive() -> dict[str, str]:
        return {"type": "lifespan.startup"}

    async def send(message: Any) -> None:
        sent.append(message)

    options: Any = {"token": TOKEN, "on_disconnect": "detach", "relay": relay}
    first, second = (app(Agent(ScriptedModel()), store=MemoryStore(), **options) for _ in range(2))
    relay._runs = first.runs  # it was opened there
    await second({"type": "lifespan"}, receive, send)
    assert sent[0]["type"] == "lifespan.startup.failed"
    assert "make one for each app" in sent[0]["message"]


async def test_a_timeline_that_is_deleted_as_its_run_ends_stays_deleted() -> None:
    store = MemoryStore()
    timelines = Timelines(store)
    live: Any = SimpleNamespace(header=HEADER, scope_of=None)
    timelines.begin("owner/c1", live).end(None)
    await timelines.forget("owner/c1")
    await timelines.settle()
    assert await store.list() == ()


async def test_a_conversation_that_another_process_has_deleted_leaves_the_list() -> None:
    store = MemoryStore()
    options: Any = {"token": TOKEN, "store": store, "on_disconnect": "detach"}
    gate = Gate()
    async with (
        direct(gated("One.", "Two.", gate=gate), **options) as (site, here),
        direct(Agent(ScriptedModel()), **options) as (_, there),
    ):

        async def shown() -> list[str]:
            found = (await here.get("/conversations")).json()["conversations"]
            return [each["id"] for each in found]

        gate.open.set()
        await here.post("/native", json=request_of("native", "hi", "a"))
        assert (await there.delete("/conversations/a")).status_code == 204
        assert await shown() == []
        gate.open.clear()
        gate.reached.clear()
        running = asyncio.create_task(here.post("/native", json=request_of("native", "hi", "b")))
        await gate.reached.wait()
        assert await shown() == ["b"]
        gate.open.set()
        await running
        await site.shutdown()


async def test_a_conversation_that_moves_while_the_list_is_read_is_listed_once() -> None:
    class Moving(MemoryStore):
        """Between two pages, the last conversation changes, and is now the first."""

        async def list(self, *, prefix: str = "", limit: int = 2, offset: int = 0) -> Any:
            found = await super().list(prefix=prefix, limit=min(limit, 2), offset=offset)
            if offset == 0:
                (last,) = await super().list(limit=1, offset=3)
                await self.acquire(last.id, "chat/1")
                await self.release(last.id, "chat/1")
            return found

    store = Moving()
    async with direct(Agent(ScriptedModel(*["One."] * 4)), store=store) as (_, http):
        for id in ("a", "b", "c", "d"):
            await http.post("/native", json=request_of("native", "hi", id))
    async with direct(Agent(ScriptedModel()), store=store) as (_, http):
        found = (await http.get("/conversations")).json()["conversations"]
    assert [each["id"] for each in found] == ["d", "c", "b"]


async def test_the_titles_of_many_principals_are_bounded() -> None:
    index = Index(MemoryStore())
    for number in range(PRINCIPALS + 2):
        index.touch(f"p{number}", "c", Conversation())
        index.touch("p0", "c", Conversation())
    assert len(index._entries) == PRINCIPALS
    assert "p0" in index._entries


@pytest.mark.parametrize("method", ["GET", "POST"])
async def test_a_site_that_was_shut_down_opens_nothing_again(method: str, tmp_path: Path) -> None:
    async with own_redis(tmp_path) as server:
        relay = RedisRelay(server.url)
        options: Any = {"store": MemoryStore(), "on_disconnect": "detach", "relay": relay}
        async with direct(Agent(ScriptedModel("One.")), **options) as (site, http):
            assert (await http.get("/conversations")).status_code == 200
            await site.shutdown()
            path = "/conversations" if method == "GET" else "/native"
            answer = await http.request(method, path, json=request_of("native", "hi"))
            assert answer.status_code == 503
            assert not relay._open


async def test_a_list_shows_what_other_processes_have_changed() -> None:
    store = MemoryStore()
    agent = Agent(ScriptedModel(*["Hello."] * 5))
    options: Any = {"token": TOKEN, "store": store}
    async with (
        direct(agent, **options) as (_, here),
        direct(agent, **options) as (_, there),
    ):

        async def shown(http: httpx.AsyncClient) -> list[tuple[str, str]]:
            found = (await http.get("/conversations")).json()["conversations"]
            return [(each["id"], each["title"]) for each in found]

        for id in ("a", "b", "c"):
            await here.post("/native", json=request_of("native", f"hi {id}", id))
        assert await shown(here) == [("c", "hi c"), ("b", "hi b"), ("a", "hi a")]
        await there.patch("/conversations/b", json={"title": "Mine"})
        await there.delete("/conversations/c")
        await there.post("/native", json=request_of("native", "again", "a"))
        assert await shown(there) == [("a", "hi a"), ("b", "Mine")]
        assert await shown(here) == [("a", "hi a"), ("b", "Mine")]
        await here.patch("/conversations/b", json={"title": "Ours"})
        assert await shown(here) == [("b", "Ours"), ("a", "hi a")]
        await there.delete("/conversations/b")
        assert await shown(here) == [("a", "hi a")]
