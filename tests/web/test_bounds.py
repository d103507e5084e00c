"""Totals of what a server keeps, approvals that change nothing, and a log without errors."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import httpx
import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from tests.web._load import Client, Foreseeable
from tests.web._load import site_of as site_with
from tests.web._server import HEADERS, LOCAL, client, direct, eventually, serve, site_of
from tests.web.test_guard import who
from tests.web.test_site import Gate, answer_of, asked, asking, request_of

from hookline import Agent, MemoryStore
from hookline.testing import ScriptedModel, Turn
from hookline.web import Caps, Site, chat_response

# ── what is kept of detached answers ────────────────────────────────────────────────────────


def words(*counts: int) -> Agent[Any]:
    """An agent whose answers have so many deltas."""
    return Agent(ScriptedModel(*["x" * count for count in counts], chunk=1))


def held(site: Site) -> dict[str, int]:
    """What is kept, by key, and that the totals say just that."""
    runs = site.runs
    found = {key: live.log.bytes for key, live in runs._live.items()}
    assert runs._bytes_total == sum(found.values())
    for principal, total in runs._bytes.items():
        mine = [size for key, size in found.items() if key.startswith(f"{principal}/")]
        assert total == sum(mine)
    return found


async def finished(site: Site, http: httpx.AsyncClient, user: str, id: str) -> None:
    body = request_of("native", "go", id)
    answer = await http.post("/native", json=body, headers={"x-user": user})
    assert answer.status_code == 200
    await eventually(lambda: len(site.runs) == 0)


async def test_a_principals_replays_have_a_total_and_the_first_to_end_is_forgotten() -> None:
    options: dict[str, Any] = {"on_disconnect": "detach", "authorize": who}
    async with direct(words(100), **options) as (site, http):
        await finished(site, http, "ada", "1")
        one = held(site)["ada/1"]
    assert one > 100 * 400
    caps = Caps(replay_bytes_per_principal=one * 5 // 2, drain=0.0)
    async with direct(words(*[100] * 5), caps=caps, **options) as (site, http):
        await finished(site, http, "bob", "1")
        for id in ("1", "2"):
            await finished(site, http, "ada", id)
        assert sorted(held(site)) == ["ada/1", "ada/2", "bob/1"]
        await finished(site, http, "ada", "3")
        assert sorted(held(site)) == ["ada/2", "ada/3", "bob/1"]
        await finished(site, http, "ada", "2")
        assert sorted(held(site)) == ["ada/2", "ada/3", "bob/1"]
        assert site.runs._bytes["ada"] <= caps.replay_bytes_per_principal


async def test_all_replays_of_a_process_have_a_total() -> None:
    options: dict[str, Any] = {"on_disconnect": "detach", "authorize": who}
    async with direct(words(100), **options) as (site, http):
        await finished(site, http, "ada", "1")
        one = held(site)["ada/1"]
    caps = Caps(replay_bytes_total=one * 5 // 2, drain=0.0)
    async with direct(words(*[100] * 4), caps=caps, **options) as (site, http):
        for user in ("ada", "bob", "eve", "kim"):
            await finished(site, http, user, "1")
            assert sum(held(site).values()) <= caps.replay_bytes_total
        assert sorted(held(site)) == ["eve/1", "kim/1"]
        assert sorted(site.runs._bytes) == ["eve", "kim"]


async def test_where_all_run_the_largest_loses_its_older_half_and_its_reader_is_told() -> None:
    small, large = Gate(), Gate()
    model = ScriptedModel(
        Turn(*"x" * 20, delay=_after(small, 20)),
        Turn(*"y" * 200, delay=_after(large, 200)),
        chunk=1,
    )
    caps = Caps(replay_bytes_total=150 * 401, drain=0.0)
    options: dict[str, Any] = {"on_disconnect": "detach", "caps": caps}
    async with site_of(Agent(model), **options) as (site, url), client(url) as http:
        first = asyncio.create_task(http.post("/native", json=request_of("native", "a", "s")))
        await small.reached.wait()
        second = asyncio.create_task(http.post("/native", json=request_of("native", "b", "l")))
        await large.reached.wait()
        logs = {key: live.log for key, live in site.runs._live.items()}
        assert (logs["owner/s"].first, logs["owner/l"].first > 50) == (0, True)
        assert sum(held(site).values()) <= caps.replay_bytes_total
        replay = await http.get("/native/l/stream")
        assert replay.status_code == 204  # its beginning is gone: load the messages
        small.open.set()
        large.open.set()
        for each in (first, second):
            assert '"chat_done"' in (await each).text  # who reads along has everything


def _after(gate: Gate, count: int) -> Any:
    """Wait at the gate once so many pieces have come."""
    left = count

    async def wait() -> None:
        nonlocal left
        left -= 1
        if left < 0:
            await gate()

    return wait


async def test_what_is_forgotten_is_not_counted_any_more() -> None:
    caps = Caps(replay_ttl=0.0, drain=0.0)
    options: dict[str, Any] = {"on_disconnect": "detach", "caps": caps}
    async with direct(words(50, 50), **options) as (site, http):
        for id in ("1", "2"):
            await http.post("/native", json=request_of("native", "go", id))
        await eventually(lambda: not site.runs._live)
        assert (site.runs._bytes_total, dict(site.runs._bytes)) == (0, {})


async def test_a_replay_counts_the_messages_that_its_client_sent() -> None:
    big = {"id": "u0", "role": "user", "content": "x" * 100_000}
    many = {"id": "a0", "role": "activity", "content": [[]] * 50_000}
    last = {"id": "u1", "role": "user", "content": "go", "unknown": [[]] * 50_000}
    body = request_of("ag-ui", "go")
    caps = Caps(replay_bytes_per_principal=250_000, drain=0.0)
    options: dict[str, Any] = {"on_disconnect": "detach", "authorize": who, "caps": caps}
    async with direct(words(*[1] * 4), **options) as (site, http):
        for id in ("1", "2", "3"):
            sent = {**body, "threadId": id, "messages": [big, many, last]}
            answer = await http.post("/ag-ui", json=sent, headers={"x-user": "ada"})
            assert answer.status_code == 200
            await eventually(lambda: len(site.runs) == 0)
            live = site.runs._live[f"ada/{id}"]
            assert 100_000 < live.header.size < 101_000
            assert live.log.bytes > live.header.size
        assert sorted(held(site)) == ["ada/2", "ada/3"]
        answer = await http.post("/native", json=request_of("native", "go", "4"))
        assert sum(held(site).values()) == site.runs._bytes_total


# ── approvals that change nothing ───────────────────────────────────────────────────────────


def edited(protocol: str, known: dict[str, Any], to: str) -> dict[str, Any]:
    """A yes to other arguments."""
    body = answer_of(protocol, known)
    if protocol == "native":
        body["answers"][known["id"]]["arguments"] = {"to": to, "amount": 10}
    else:
        body["resume"][0]["payload"]["editedArgs"] = {"to": to, "amount": 10}
    return body


@pytest.mark.parametrize("protocol", ["native", "ag-ui"])
async def test_without_edits_an_approval_runs_what_was_asked_about(protocol: str) -> None:
    agent, paid = asking()
    async with direct(agent, edits=False) as (_, http):
        known = await asked(http, protocol)
        answer = await http.post(f"/{protocol}", json=edited(protocol, known, "Mallory"))
        assert answer.status_code == 403
        assert answer.text == "The arguments must not be changed; approve or deny the call."
        assert paid == []
        same = edited(protocol, known, "Ada")  # 10 for 10.0: the same number
        assert (await http.post(f"/{protocol}", json=same)).status_code == 200
        assert paid == ["Ada"]


@pytest.mark.parametrize("protocol", ["native", "ag-ui"])
async def test_with_edits_an_approval_runs_what_the_user_made_of_it(protocol: str) -> None:
    agent, paid = asking()
    async with direct(agent) as (_, http):
        known = await asked(http, protocol)
        answer = await http.post(f"/{protocol}", json=edited(protocol, known, "Bob"))
        assert (answer.status_code, paid) == (200, ["Bob"])


async def test_a_route_of_ones_own_switches_edits_off_too() -> None:
    agent, paid = asking()
    store = MemoryStore()

    async def route(request: Request) -> Response:
        talk = await store.open("c1")
        return await chat_response(
            agent, request, protocol="native", conversation=talk, edits=False
        )

    way = httpx.ASGITransport(Starlette(routes=[Route("/native", route, methods=["POST"])]))
    async with httpx.AsyncClient(transport=way, base_url=LOCAL, headers=HEADERS) as http:
        known = await asked(http, "native")
        assert (await http.post("/native", json=edited("native", known, "Eve"))).status_code == 403
        assert paid == []
        assert (await http.post("/native", json=answer_of("native", known))).status_code == 200
        assert paid == ["Ada"]


# ── the server's log ────────────────────────────────────────────────────────────────────────


@contextmanager
def lines_of(*names: str) -> Iterator[list[str]]:
    """What these loggers write from ERROR on."""
    found: list[str] = []

    class Listen(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            found.append(f"{record.name}: {record.getMessage()}")

    handler = Listen(logging.ERROR)
    for name in names:
        logging.getLogger(name).addHandler(handler)
    try:
        yield found
    finally:
        for name in names:
            logging.getLogger(name).removeHandler(handler)


LOGS = ("uvicorn.error", "asyncio", "hookline.web")


@pytest.mark.parametrize("mode", ["cancel", "detach"])
async def test_a_reader_that_is_cut_off_leaves_no_error_in_the_servers_log(mode: str) -> None:
    model = Foreseeable(padding=500)
    site = site_with(model, on_disconnect=mode, caps={"replay_ttl": 0.0})
    with lines_of(*LOGS) as lines:
        async with serve(site, log_config=None) as url:
            port = int(url.rpartition(":")[2])
            readers = [Client(port, f"r{number}", 400) for number in range(6)]
            for each in readers:
                await each.connect(receive_buffer=4096)
            await readers[0].opened()
            readers[0].reset()  # in silence
            model.go.set()
            for number, each in enumerate(readers[1:]):
                await each.reader.readexactly(600 + 5000 * number)
                each.reset()  # in the middle of what is sent
            await eventually(lambda: len(site.runs) == 0)
    assert lines == []


async def test_a_reader_that_takes_nothing_leaves_no_error_in_the_servers_log_either() -> None:
    model = Foreseeable(padding=5000)
    site = site_with(model, caps={"replay_ttl": 0.0, "send": 0.1})
    with lines_of(*LOGS) as lines:
        async with serve(site, log_config=None) as url:
            reader = Client(int(url.rpartition(":")[2]), "slow", 4000)
            await reader.connect(receive_buffer=4096)
            await reader.opened()
            model.go.set()
            await eventually(lambda: len(site.runs) == 0)
            reader.reset()
    assert lines == []


async def test_the_log_that_is_looked_at_has_what_an_application_raises() -> None:
    async def broken(scope: Any, receive: Any, send: Any) -> None:
        raise RuntimeError("broken")

    with lines_of(*LOGS) as lines:
        async with serve(broken, lifespan="off", log_config=None) as url, client(url) as http:
            assert (await http.get("/")).status_code == 500
    assert [each for each in lines if "Exception in ASGI application" in each]
