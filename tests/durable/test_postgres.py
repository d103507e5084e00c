"""Connections to PostgreSQL that break: under a chat that waits, in a statement, and while idle."""

from __future__ import annotations

import asyncio
import logging
from argparse import Namespace
from collections.abc import AsyncIterator, Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager, suppress
from importlib import import_module
from typing import Any, TypeVar
from urllib.parse import urlsplit, urlunsplit

import pytest
from tests.durable._engines import Engine
from tests.durable.test_engines import asking, waits
from tests.web._server import eventually

from hookline import Agent, Approve, tool
from hookline.durable._polled.database import Statement, Work
from hookline.durable._polled.worker_operations import Jobs, Signs
from hookline.durable.postgres import chats
from hookline.durable.postgres._connection import Connections
from hookline.errors import StoreError
from hookline.runtimes import Durable
from hookline.testing import ScriptedModel, call

TURNS = range(6)  # of the loop, until it knows that a connection is gone


class Server:
    """The server, as its administrator has it."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self.name = f"test-{engine.own}"
        self.url = f"{engine.address}?application_name={self.name}"

    def close_connections(self) -> Any:
        """Close all connections of this name; meanwhile the loop does nothing."""
        with ThreadPoolExecutor(1) as threads:
            return threads.submit(lambda: asyncio.run(self._close())).result()

    async def _close(self) -> Any:
        return await self._look("count(pg_terminate_backend(pid, 5000))")

    async def runs(self, query: str) -> Any:
        """Whether a connection of this name runs this query."""
        return await self._look("bool_or(query = $2)", query)

    async def waits(self) -> Any:
        """Whether a connection of this name waits for a lock."""
        return await self._look("bool_or(wait_event_type = 'Lock')")

    async def _look(self, what: str, *arguments: str) -> Any:
        asyncpg: Any = import_module("asyncpg")
        connection = await asyncpg.connect(self.engine.address)
        try:
            return await connection.fetchval(
                f"SELECT {what} FROM pg_stat_activity WHERE application_name = $1",
                self.name,
                *arguments,
            )
        finally:
            await connection.close()

    @asynccontextmanager
    async def jobs(self) -> AsyncIterator[Jobs]:
        made = Jobs(Connections(self.url), self.engine.options()["queue"], 0.01)
        try:
            yield made
        finally:
            await made.aclose()

    def worker(self, agent: Agent[Any]) -> Any:
        return chats(agent, self.url, **self.engine.options())


@pytest.fixture
def server(postgres: Engine) -> Server:
    return Server(postgres)


async def turn(times: int) -> None:
    for _ in range(times):
        await asyncio.sleep(0)


# ── one call ────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("turns", TURNS)
async def test_an_idle_connection_that_the_server_has_closed_costs_one_call_at_most(
    server: Server, turns: int
) -> None:
    """The loop hears of it by and by: asyncpg has another exception for each moment."""
    async with server.jobs() as jobs:
        await jobs.add("first", "{}")
        assert server.close_connections() == 1
        await turn(turns)
        with suppress(StoreError):
            await jobs.add("second", "{}")
        await jobs.add("third", "{}")
        assert await jobs.questions("third") == []


@pytest.mark.parametrize("turns", TURNS)
async def test_a_connection_that_goes_away_in_a_transaction_is_a_store_error(
    server: Server, turns: int
) -> None:
    async with server.jobs() as jobs:
        await jobs.add("one", "{}")
        [claim] = await jobs.take("me", 1)

        def work() -> Work[None]:
            yield Statement("UPDATE hookline_job SET resting = TRUE WHERE id = 'one'")
            assert server.close_connections() >= 1
            yield Statement("SELECT 1")

        with pytest.raises(StoreError):
            await jobs.database.run(work)
        await turn(turns)
        with suppress(StoreError):
            await jobs.append(claim.id, claim.owner, 0, b"lost")
        await jobs.append(claim.id, claim.owner, 1, b"kept")
        assert (await jobs.record("one")).batches[-1][1] == b"kept"
        assert not (await jobs.database.fetch("SELECT resting FROM hookline_job"))[0][0]


async def test_a_statement_whose_connection_goes_away_meanwhile_is_a_store_error(
    server: Server,
) -> None:
    async with server.jobs() as jobs:
        await jobs.add("one", "{}")

        async def slow() -> None:
            sleeping.set()
            await jobs.database.fetch("SELECT pg_sleep(60)")

        sleeping = asyncio.Event()
        task = asyncio.create_task(slow())
        await sleeping.wait()
        while not await server.runs("SELECT pg_sleep(60)"):  # noqa: ASYNC110
            await asyncio.sleep(0.01)
        assert server.close_connections() == 1
        with pytest.raises(StoreError):
            await task
        assert await jobs.questions("one") == []


async def test_a_chat_that_ends_while_its_claim_is_renewed_is_no_error(server: Server) -> None:
    async with server.jobs() as jobs:
        await jobs.add("one", "{}")
        await jobs.add("two", "{}")
        first, second = await jobs.take("me", 2)
        await jobs.finish(first.id, first.owner, "{}")
        assert await jobs.beat([first.owner, second.owner]) == {second.owner: Signs(None, {})}


async def test_a_worker_outlives_a_fault_of_its_engine(
    server: Server, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    take = Jobs.take
    faults = iter([RuntimeError("a fault"), KeyError("another")])

    async def broken(*args: Any) -> Any:
        if (fault := next(faults, None)) is not None:
            raise fault
        return await take(*args)

    monkeypatch.setattr(Jobs, "take", broken)
    agent: Agent[Any] = Agent(ScriptedModel("Hello."), runtime=Durable())
    async with server.worker(agent), server.engine.client() as client:
        assert (await client.result(await client.start("Hi."))).text == "Hello."
    told = [each.getMessage() for each in caplog.records if each.levelname == "ERROR"]
    assert told == [
        "the worker could not look after its chats: RuntimeError",
        "the worker could not look after its chats: KeyError",
    ]


async def test_an_answer_that_comes_while_a_chat_is_put_aside_is_heard(server: Server) -> None:
    """The client has locked the chat when the worker puts it aside."""
    async with server.jobs() as jobs, server.jobs() as clients:
        await jobs.add("one", "{}")
        [claim] = await jobs.take("me", 1)
        for request in ("q1", "q2"):
            assert await jobs.ask(claim.id, claim.owner, request, '"body"', None) is None
        resting: asyncio.Task[bool]

        def slow() -> Work[None]:
            nonlocal resting
            yield Statement("SELECT id FROM hookline_job WHERE id = 'one' FOR UPDATE")
            resting = asyncio.ensure_future(jobs.rest(claim.id, claim.owner, None, forgive=False))
            yield Statement("SELECT pg_sleep(0.2)")
            yield Statement("UPDATE hookline_job SET answers = answers + 1 WHERE id = 'one'")

        await clients.database.run(slow)
        assert not await resting
        assert await clients.answer("one", {"q1": '"yes"'}) is None
        signs = await jobs.beat([claim.owner])
        assert signs == {claim.owner: Signs(None, {"q1": '"yes"'}, news=True)}
        assert await jobs.rest(claim.id, claim.owner, None, forgive=False)


async def test_a_database_that_cannot_be_made_ready_costs_one_connection(server: Server) -> None:
    """A worker tries it again and again."""
    connections = Connections(f"{server.url}&default_transaction_read_only=on")
    jobs = Jobs(connections, f"r{server.engine.own}", 0.01)
    pools: list[Any] = []
    create = connections._asyncpg.create_pool

    async def noted(*args: Any, **kwargs: Any) -> Any:
        pools.append(await create(*args, **kwargs))
        return pools[-1]

    connections._asyncpg = Namespace(**{**vars(connections._asyncpg), "create_pool": noted})
    for _ in range(3):
        with pytest.raises(StoreError):
            await jobs.add("one", "{}")
    assert [pool.get_size() for pool in pools] == [1]
    await jobs.aclose()
    assert [pool.get_size() for pool in pools] == [0]


async def test_a_worker_that_stops_while_the_database_is_away_is_cancelled_and_closed(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def away(*args: Any) -> Any:
        raise StoreError("the database is away")

    worker = server.worker(Agent(ScriptedModel("x"), runtime=Durable()))
    jobs = worker._jobs
    await jobs.add("one", "{}")
    await jobs.take("me", 1)
    monkeypatch.setattr(Connections, "run", away)
    working = asyncio.create_task(worker.run())
    await asyncio.sleep(0)
    working.cancel()
    with pytest.raises(asyncio.CancelledError):
        await working
    assert jobs.database._pool is None


# ── a silent server ─────────────────────────────────────────────────────────────────────────


class Wire:
    """A proxy before the server: connections that it freezes stay open, and carry nothing."""

    def __init__(self, engine: Engine) -> None:
        self.there = urlsplit(engine.address)
        self.frozen: list[asyncio.StreamWriter] = []
        self.open: list[asyncio.StreamWriter] = []
        self.all: list[asyncio.StreamWriter] = []
        self.tasks: list[asyncio.Task[None]] = []

    def freeze(self) -> None:
        """Freeze all open connections; new ones are carried."""
        self.frozen += self.open
        self.open = []

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        far = await asyncio.open_connection(self.there.hostname, self.there.port)
        self.open.append(writer)
        self.all += writer, far[1]
        for source, target in ((reader, far[1]), (far[0], writer)):
            self.tasks.append(asyncio.create_task(self._carry(source, target, writer)))

    async def _carry(
        self, source: asyncio.StreamReader, target: asyncio.StreamWriter, near: Any
    ) -> None:
        while (data := await source.read(65_536)) and near not in self.frozen:
            target.write(data)
        if near not in self.frozen:
            target.close()

    @asynccontextmanager
    async def listening(self) -> AsyncIterator[str]:
        """The URL of the database through this proxy."""
        listener = await asyncio.start_server(self._connected, "127.0.0.1", 0)
        port = listener.sockets[0].getsockname()[1]
        name = self.there.netloc.replace(f":{self.there.port}", f":{port}")
        try:
            yield urlunsplit(self.there._replace(netloc=name))
        finally:
            listener.close()
            for task in self.tasks:
                task.cancel()
            for writer in self.all:
                writer.close()
            await asyncio.gather(*self.tasks, return_exceptions=True)


@pytest.fixture
async def wire(postgres: Engine, monkeypatch: pytest.MonkeyPatch) -> Wire:
    async with Server(postgres).jobs() as jobs:
        await jobs.database.prepare()  # which takes a while
    monkeypatch.setattr("hookline.durable.postgres._connection._SILENCE", 1.0)
    return Wire(postgres)


async def test_a_server_that_falls_silent_in_a_chat_is_noticed_and_connected_anew(
    wire: Wire,
    postgres: Engine,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Its machine is lost: nothing closes the connections of the worker."""
    monkeypatch.setattr("hookline.durable._polled.chat_life.RETRY_DELAY", 0.05)
    ran: list[str] = []

    @tool(idempotent=True)
    async def wait() -> str:
        if not ran:
            wire.freeze()
        ran.append("ran")
        return ""

    agent: Agent[Any] = Agent(
        ScriptedModel(call("wait"), *["Hello."] * 20), tools=[wait], runtime=Durable()
    )
    async with (
        wire.listening() as url,
        chats(agent, url, **postgres.options()),
        postgres.client() as client,
    ):
        assert (await client.result(await client.start("Hi."))).text == "Hello."
    assert any(": StoreError" in each.getMessage() for each in caplog.records)


@pytest.mark.parametrize("cancelled", [False, True])
async def test_a_call_of_a_server_that_falls_silent_is_a_store_error(
    wire: Wire, postgres: Engine, cancelled: bool
) -> None:
    async with wire.listening() as url:
        jobs = Jobs(Connections(url), postgres.options()["queue"], 0.01)
        await jobs.add("one", "{}")
        wire.freeze()
        asking = asyncio.create_task(jobs.questions("one"))
        if cancelled:
            await turn(20)
            asking.cancel()
        with pytest.raises(asyncio.CancelledError if cancelled else StoreError):
            await asking
        assert await jobs.questions("one") == []
        wire.freeze()
        await jobs.aclose()


# ── a chat ──────────────────────────────────────────────────────────────────────────────────


class Closing:
    """Closes the worker's connections before the first calls of a method, one after the other."""

    def __init__(self, server: Server, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
        self.left = [*reversed(TURNS)]  # with the last two it knows, and takes another
        real = getattr(Jobs, name)

        async def broken(jobs: Jobs, *args: Any) -> Any:
            if self.is_due(*args) and self.left:
                server.close_connections()
                await turn(self.left.pop())
            return await real(jobs, *args)

        monkeypatch.setattr(Jobs, name, broken)

    def is_due(self, *args: Any) -> bool:
        return True


T = TypeVar("T")


async def patient(call: Callable[[], Awaitable[T]]) -> T:
    """Call it until no connection of the client's own is closed meanwhile."""
    while True:
        try:
            return await call()
        except StoreError:
            await asyncio.sleep(0.01)


async def test_a_chat_waits_on_while_the_database_is_away(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its question could not be put at first."""
    closing = Closing(server, monkeypatch, "ask")
    ran: list[str] = []
    async with (
        server.worker(asking(ran, call("delete", path="a"), "Done.")),
        server.engine.client() as client,
    ):
        id = await client.start("Delete a.")
        request = await patient(lambda: waits(client, id))
        await patient(lambda: client.answer(id, {request: Approve()}))
        assert (await patient(lambda: client.result(id))).text == "Done."
    assert ran == ["a"]
    assert len(closing.left) < len(TURNS)


async def test_a_chat_is_not_put_aside_before_its_question_is_stored(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody could answer the question, so nothing would ever wake the chat."""
    failures = iter(range(10))  # for longer than a worker keeps a chat that waits
    real = Jobs.ask

    async def broken(*args: Any) -> Any:
        if next(failures, None) is not None:
            raise StoreError("the database is away")
        return await real(*args)

    monkeypatch.setattr(Jobs, "ask", broken)
    ran: list[str] = []
    async with (
        server.worker(asking(ran, call("delete", path="a"), "Done.")),
        server.engine.client() as client,
    ):
        id = await client.start("Delete a.")
        await client.answer(id, {await waits(client, id): Approve()})
        assert (await client.result(id)).text == "Done."
    assert ran == ["a"]


async def test_a_question_expires_though_the_database_is_away_then(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    closing = Closing(server, monkeypatch, "ask")
    closing.is_due = lambda *args: args[-1] is not None  # type: ignore[method-assign]
    ran: list[str] = []
    async with (
        server.worker(asking(ran, call("delete", path="a"), "Done.", expires=0.05)),
        server.engine.client() as client,
    ):
        id = await client.start("Delete a.")
        response = await patient(lambda: client.result(id))
    assert ran == []
    assert "expired" in response.messages[2].text
    assert len(closing.left) < len(TURNS)


@pytest.mark.parametrize("name", ["append", "beat", "take", "finish"])
async def test_a_chat_comes_to_its_end_though_its_connections_break(
    server: Server,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    name: str,
) -> None:
    """What could not be recorded is the next life's; the worker goes on."""
    caplog.set_level(logging.CRITICAL, "hookline.durable")
    monkeypatch.setattr("hookline.durable._polled.chat_life.RETRY_DELAY", 0.05)
    closing = Closing(server, monkeypatch, name)

    async def wait() -> str:
        """Wait until the worker has asked for new messages, which it does by a clock."""
        await eventually(lambda: name != "beat" or len(closing.left) < len(TURNS))
        return ""

    script = [[call("wait")], "Hello."]
    agent: Agent[Any] = Agent(ScriptedModel(*script * 20), tools=[wait], runtime=Durable())
    async with server.worker(agent), server.engine.client() as client:
        assert (await client.result(await client.start("Hi."))).text == "Hello."
    assert len(closing.left) < len(TURNS)
