"""Workers of Restate at addresses of their own: one is gone, others go on with its chats."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator
from contextlib import AsyncExitStack, suppress
from typing import Any

import httpx
import pytest
from tests.durable._engines import Engine, Missing, free_port, places
from tests.web._server import eventually

from hookline import Agent, Run, tool
from hookline.durable.restate import chats
from hookline.errors import StoreError, UsageError
from hookline.runtimes import Durable
from hookline.testing import ScriptedModel, call


@pytest.fixture
def restate() -> Iterator[Engine]:
    with places(("restate",)) as found:
        if isinstance(found["restate"], Missing):
            pytest.skip(str(found["restate"]))
        yield Engine("restate", found["restate"])


def answering(*turns: Any, tools: Any = ()) -> Agent[Any]:
    return Agent(ScriptedModel(*turns, repeat=True), tools=tools, runtime=Durable())


async def test_the_chats_of_a_worker_that_is_gone_go_on_at_another_address(
    restate: Engine, caplog: pytest.LogCaptureFixture
) -> None:
    working = asyncio.Event()

    @tool(idempotent=True)
    async def work() -> str:
        """Work."""
        if working.is_set():
            return "worked"
        working.set()
        await asyncio.Event().wait()
        raise AssertionError

    async with restate.client() as client:
        async with restate.worker(answering(call("work"), "Done.", tools=[work])):
            await client.start("Go.", chat_id="one")
            await working.wait()
        there = f"127.0.0.1:{free_port()}"
        async with restate.worker(answering("Done.", tools=[work]), bind=there):
            assert (await client.result("one")).text == "Done."
    said = caplog.text
    assert f"also registered at http://127.0.0.1:{restate.port}/" in said
    assert "took over a chat" in said


async def test_a_chat_that_an_operator_has_paused_is_not_moved(restate: Engine) -> None:
    ids = ("operators", "ours", "ours-too")
    begun: list[str] = []
    over = asyncio.Event()

    @tool(idempotent=True)
    async def work(run: Run[Any]) -> str:
        """Work."""
        begun.append(run.chat_id)
        await over.wait()
        return "worked"

    async def invocation(id: str) -> dict[str, Any]:
        sql = (
            "SELECT id, status, retry_count, last_failure_error_code AS code FROM sys_invocation "
            f"WHERE target_service_key = '{id}' AND target_handler_name = 'run'"
        )
        answer = await http.post(f"{restate.where.admin_url}/query", json={"query": sql})
        row: dict[str, Any] = answer.json()["rows"][0]
        return row

    async with restate.client() as client, AsyncExitStack() as stack:
        http = await stack.enter_async_context(
            httpx.AsyncClient(headers={"accept": "application/json"}, timeout=30.0)
        )
        async with restate.worker(answering(call("work"), tools=[work])):
            for id in ids:
                await client.start("Go.", chat_id=id)
            await eventually(lambda: len(begun) == 3)
        over.set()
        for id in ids:
            while True:
                row = await invocation(id)
                if row["code"] == "RT0010" and row["retry_count"] >= 5:
                    break
                await asyncio.sleep(0.1)
            await http.patch(f"{restate.where.admin_url}/invocations/{row['id']}/pause")
            while (await invocation(id))["status"] != "paused":  # noqa: ASYNC110
                await asyncio.sleep(0.05)
        there = restate.worker(answering("Done.", tools=[work]), bind=f"127.0.0.1:{free_port()}")
        await stack.enter_async_context(there)
        # Their worker paused these two, and died, too. When the second one ends, the new worker has
        # looked at all three at least twice.
        for id in ("ours", "ours-too"):
            await http.post(
                f"{restate.where.admin_url}/services/{restate.options()['name']}-answers/state",
                json={"object_key": id, "new_state": {"moving": list(b"true")}},
            )
            assert (await client.result(id)).text == "Done."
        assert (await invocation("operators"))["status"] == "paused"
        await client.retry("operators")
        assert (await client.result("operators")).text == "Done."


async def test_a_worker_waits_for_a_server_that_is_away(
    restate: Engine, caplog: pytest.LogCaptureFixture
) -> None:
    restate.where.kill()
    waits = asyncio.Event()

    class Heard(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            if "waits for its server" in record.getMessage():
                waits.set()

    heard = Heard()
    logging.getLogger("hookline.durable").addHandler(heard)
    worker = restate.worker(answering("Hello."))
    running = asyncio.create_task(worker.run())
    try:
        await waits.wait()
        await asyncio.to_thread(restate.where.start)
        async with restate.client() as client:
            while True:
                with suppress(UsageError, StoreError):  # until the worker is registered
                    id = await client.start("Hi.")
                    break
            assert (await client.result(id)).text == "Hello."
    finally:
        logging.getLogger("hookline.durable").removeHandler(heard)
        running.cancel()
        await asyncio.wait([running])


async def test_an_address_of_another_agent_is_not_overwritten(restate: Engine) -> None:
    async with restate.worker(answering("Hello.")):
        pass
    with pytest.raises(UsageError, match="is registered with Restate for"):
        async with restate.worker(answering("Hello."), name="another"):
            pass
    async with restate.worker(answering("Hello.")), restate.client() as client:
        assert (await client.result(await client.start("Hi."))).text == "Hello."


async def test_restate_is_told_the_address_that_is_advertised(restate: Engine) -> None:
    url = f"http://localhost:{restate.port}/"
    async with (
        restate.worker(answering("Hello."), bind=f"0.0.0.0:{restate.port}", advertise=url),
        httpx.AsyncClient(timeout=60) as http,
    ):
        answer = await http.get(f"{restate.where.admin_url}/deployments")
        assert [each["uri"] for each in answer.json()["deployments"]] == [url]


async def test_a_worker_runs_no_more_chats_at_once_than_its_concurrency(restate: Engine) -> None:
    running, most = 0, 0

    @tool
    async def work() -> str:
        """Work."""
        nonlocal running, most
        running += 1
        most = max(most, running)
        await asyncio.sleep(0)
        running -= 1
        return "worked"

    agent = answering(call("work"), "Done.", tools=[work])
    async with restate.worker(agent, concurrency=2), restate.client() as client:
        ids = [await client.start("Go.") for _ in range(8)]
        await asyncio.gather(*(client.result(id) for id in ids))
    assert 1 <= most <= 2


@pytest.mark.parametrize(
    ("host", "address"),
    [
        pytest.param("0.0.0.0", "127.0.0.1", id="all interfaces"),
        pytest.param("", "127.0.0.1", id="no host"),
        pytest.param("[::]", "127.0.0.1", id="all interfaces with IPv6"),
        pytest.param("127.0.0.7", "127.0.0.7", id="one interface"),
    ],
)
async def test_the_address_that_is_derived_is_never_that_of_all_interfaces(
    restate: Engine, host: str, address: str
) -> None:
    """The server is at 127.0.0.1, and so is the worker for it."""
    async with (
        restate.worker(answering("Hello."), bind=f"{host}:{restate.port}"),
        httpx.AsyncClient(timeout=60) as http,
    ):
        answer = await http.get(f"{restate.where.admin_url}/deployments")
    uris = [deployment["uri"] for deployment in answer.json()["deployments"]]
    assert uris == [f"http://{address}:{restate.port}/"]


def test_an_address_and_a_concurrency_are_checked() -> None:
    with pytest.raises(UsageError, match="advertise='workers:9080' must be the URL"):
        chats(answering("x"), advertise="workers:9080")
    with pytest.raises(UsageError, match="concurrency=0 must be at least 1"):
        chats(answering("x"), concurrency=0)
