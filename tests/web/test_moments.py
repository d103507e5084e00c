"""A server at unlucky moments: what a program of ours gets wrong, or does just then."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import httpx
import pytest
from tests.web._server import TOKEN, client, direct, serve
from tests.web.test_site import request_of

from hookline import Agent, MemoryStore
from hookline.events import ErrorInfo
from hookline.testing import ScriptedModel
from hookline.web import app
from hookline.web._header import Header
from hookline.web._live import Live
from hookline.web._timelines import Timelines
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

    site = app(Agent(ScriptedModel(ValueError("x"))), token=TOKEN, errors=words, page=page)
    async with serve(site) as address, client(address) as http, asyncio.timeout(10):
        response = await http.post(f"/{protocol}", json=request_of(protocol, "hi"))
        assert "Something went wrong (error " in response.text
    assert "errors= raised LookupError; the default text is shown" in caplog.text
    assert "secret" not in response.text + caplog.text


async def test_a_run_whose_record_fails_has_an_end_for_its_readers() -> None:
    class Broken:
        def put(self, number: int, at: float, item: Any) -> None: ...

        def end(self, error: BaseException | None) -> None:
            raise LookupError

    live = Live(Agent(ScriptedModel("Hello.")).chat_stream("hi"), HEADER, kept=True)
    live.record = Broken()
    live.start(lambda live: None)
    await live.join()
    assert live.log.ended
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
