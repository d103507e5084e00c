"""What an operator relies on: chats of others, clean-ups, early aborts, and chats that kill."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
from tests.durable._engines import ROOT, Engine
from tests.durable.test_engines import asking, waits

from hookline import Agent, Approve, tool
from hookline.durable._absurd import Jobs
from hookline.durable._client import Client
from hookline.errors import ChatAbortedError, RemoteChatError
from hookline.runtimes import Durable
from hookline.testing import ScriptedModel, call

POLLED = pytest.mark.parametrize("engine", ["sqlite", "postgres"], indirect=True)


# ── chats that a worker may not run ─────────────────────────────────────────────────────────


async def unreadable(engine: Engine, count: int) -> list[str]:
    """Chats whose record newer code has written."""
    jobs = Jobs(engine.address, engine.options()["queue"], 0.01, 60)
    ids = [f"newer-{n}" for n in range(count)]
    for id in ids:
        await jobs.add(id, "{}")
    for job in await jobs.take("newer", count, set()):
        assert await jobs.append(job.id, job.owner, b'{"hookline":99,"lines":[]}')
        await jobs.leave(job.id, job.owner)
    await jobs.aclose()
    return ids


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


# ── messages of clients ─────────────────────────────────────────────────────────────────────


async def clean_up(engine: Engine) -> None:
    """What `absurdctl cleanup` does, with no time to live."""
    asyncpg: Any = import_module("asyncpg")
    connection = await asyncpg.connect(engine.address)
    try:
        queue = engine.options()["queue"]
        await connection.execute("SELECT absurd.cleanup_tasks($1, 0)", queue)
        await connection.execute("SELECT absurd.cleanup_events($1, 0)", queue)
    finally:
        await connection.close()


async def test_a_clean_up_of_the_database_in_the_middle_of_a_wait_loses_no_answer(
    postgres: Engine,
) -> None:
    ran: list[str] = []
    agent = asking(ran, call("delete", path="a"), call("delete", path="b"), "Done.")
    async with postgres.worker(agent) as worker, postgres.client() as client:
        id = await client.start("Delete a and b.")
        first = await waits(client, id)
        await postgres.at_rest(worker)
        await clean_up(postgres)
        await client.answer(id, {first: Approve()})
        assert await client.pending(id) == ()
        second = await waits(client, id)
        await postgres.at_rest(worker)
        await clean_up(postgres)
        assert [request.id for request in await client.pending(id)] == [second]
        await client.answer(id, {second: Approve()})
        async with asyncio.timeout(20):
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

MAX_DEATHS = 3


class Supervisor:
    """Begins a worker again whenever it dies, a limited number of times."""

    def __init__(self, engine: Engine, trace: Path, where: str) -> None:
        options = {**engine.options(), "max_deaths": MAX_DEATHS}
        self.command = [
            *(sys.executable, "-P", "-m", "tests.durable._lethal", engine.name, engine.address),
            *(json.dumps(options), str(trace), where),
        ]
        self.deaths = 0

    async def run(self) -> None:
        while self.deaths <= 2 * MAX_DEATHS:
            worker = await asyncio.create_subprocess_exec(
                *self.command, cwd=ROOT, env={**os.environ, "PYTHONPATH": str(ROOT)}
            )
            try:
                await worker.wait()
                self.deaths += 1
            finally:
                if worker.returncode is None:
                    worker.kill()
                    await worker.wait()


@asynccontextmanager
async def supervised(engine: Engine, trace: Path, where: str) -> AsyncIterator[Supervisor]:
    supervisor = Supervisor(engine, trace, where)
    running = asyncio.create_task(supervisor.run())
    try:
        yield supervisor
    finally:
        running.cancel()
        await asyncio.wait([running])


@POLLED
@pytest.mark.parametrize("where", ["model", "tool"])
async def test_a_chat_that_kills_its_workers_is_quarantined_and_its_neighbours_end(
    engine: Engine, client: Client, where: str, tmp_path: Path
) -> None:
    trace = tmp_path / "trace"
    trace.touch()
    good = [await client.start("Work.", chat_id=f"good-{n}") for n in range(10)]
    await client.start("poison", chat_id="poison")
    good += [await client.start("Work.", chat_id=f"good-{n}") for n in range(10, 20)]
    async with supervised(engine, trace, where) as supervisor:
        for id in good:
            assert (await client.result(id)).text == "Done."
        with pytest.raises(RemoteChatError, match="3 workers in a row died") as caught:
            await client.result("poison")
    assert caught.value.type == "WorkerDied"
    assert supervisor.deaths == MAX_DEATHS
    begun = Counter(line.split()[1] for line in trace.read_text().splitlines())
    assert max(begun[id] for id in good) <= 2
