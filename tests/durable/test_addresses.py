"""Addresses and names of durable chats: which file, which server, which queue, and unknown ids."""

from __future__ import annotations

import asyncio
import os
import socket
import sys
from importlib import import_module
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from tests.durable._engines import Engine
from tests.durable.test_postgres import Server

from hookline import Agent, Approve
from hookline.durable import Client, chats, client
from hookline.durable.postgres import Chats as PostgresChats
from hookline.durable.sqlite import Chats as SQLiteChats
from hookline.errors import StoreError, UsageError
from hookline.runtimes import Durable
from hookline.testing import ScriptedModel


def agent_of(*turns: Any, name: str = "agent") -> Agent[Any]:
    return Agent(ScriptedModel(*turns), runtime=Durable(), name=name)


# ── addresses ───────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("form", ["sqlite:///{}", "sqlite+aiosqlite:///{}", "{}"])
async def test_a_file_is_named_by_its_path_or_by_its_url(form: str, tmp_path: Path) -> None:
    where = form.format(tmp_path / "jobs.db")
    async with SQLiteChats(where) as jobs:
        await jobs.start("Hi.")
    assert sorted(os.listdir(tmp_path))[:1] == ["jobs.db"]


def test_a_url_of_a_file_on_a_host_is_refused() -> None:
    with pytest.raises(UsageError, match="has a host, but SQLite is a file"):
        SQLiteChats("sqlite://server/jobs.db")


async def test_a_url_of_a_store_is_the_url_of_durable_chats_too(postgres: Engine) -> None:
    url = postgres.address.replace("postgresql://", "postgresql+asyncpg://")
    async with PostgresChats(url, queue=postgres.options()["queue"]) as jobs:
        assert await jobs.start("Hi.", chat_id="one") == "one"


def test_a_missing_package_is_named_before_the_first_chat(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "asyncpg", None)
    with pytest.raises(UsageError, match=r"needs asyncpg.*hookline\[postgres\]"):
        PostgresChats("postgresql://postgres@127.0.0.1/postgres")


# ── queues ──────────────────────────────────────────────────────────────────────────────────


async def test_a_queue_is_chosen_with_any_engine_whose_place_several_agents_share(
    engine: Engine,
) -> None:
    options = engine.options()
    queue = options.pop("name" if engine.name == "restate" else "queue", "other")
    if engine.name == "restate":
        async with engine.worker(agent_of("Hello.")), client(engine.address, queue=queue) as jobs:
            assert (await jobs.result(await jobs.start("Hi."))).text == "Hello."
        return
    url = f"sqlite:///{engine.address}" if engine.name == "sqlite" else engine.address
    async with (
        chats(agent_of("Hello."), url, queue=queue),
        client(url, queue=queue) as jobs,
        client(url, queue="empty") as others,
    ):
        assert (await jobs.result(await jobs.start("Hi."))).text == "Hello."
        assert await others.list() == ()


# ── chats that there are not ────────────────────────────────────────────────────────────────


async def test_a_chat_that_was_never_started_is_an_error_of_each_method(
    engine: Engine, client: Client
) -> None:
    async with engine.worker(agent_of("Hello.")):
        await client.start("Hi.", chat_id="known")
        for unknown in (
            client.pending("unknown"),
            client.answer("unknown", {"q": Approve()}),
            client.abort("unknown"),
            client.result("unknown"),
        ):
            with pytest.raises(UsageError, match=r"no durable chat 'unknown'.*start it"):
                await unknown
        await client.result("known")
        assert await client.pending("known") == ()
        assert await client.abort("known") is False


async def test_reading_creates_no_table(postgres: Engine) -> None:
    asyncpg: Any = import_module("asyncpg")
    schema = f"typo_{postgres.own}"
    connection = await asyncpg.connect(postgres.address)
    try:
        await connection.execute(f"CREATE SCHEMA {schema}")
        url = f"{postgres.address}?search_path={schema}"
        async with PostgresChats(url) as jobs:
            for read in (jobs.pending("x"), jobs.abort("x"), jobs.result("x")):
                with pytest.raises(UsageError, match="there is no durable chat 'x'"):
                    await read
            assert await jobs.list() == ()
            there = "SELECT to_regclass($1) IS NOT NULL"
            assert not await connection.fetchval(there, f"{schema}.hookline_job")
            await jobs.start("Hi.", chat_id="x")
            assert await jobs.pending("x") == ()
            assert await connection.fetchval(there, f"{schema}.hookline_job")
    finally:
        await connection.execute(f"DROP SCHEMA {schema} CASCADE")
        await connection.close()


async def test_an_engine_that_is_not_there_is_named_with_what_to_do(tmp_path: Path) -> None:
    """Not only the chat: somebody who waits at a wrong address must see the address."""
    file = tmp_path / "jobs.db"
    async with client(f"sqlite:///{file}") as jobs:
        with pytest.raises(UsageError, match=rf"the file '{file}' does not exist; check the"):
            await jobs.result("chat-1")
    folder = tmp_path / "missing"
    async with client(f"sqlite:///{folder}/jobs.db") as jobs:
        with pytest.raises(UsageError, match=rf"the folder '{folder}' does not exist; check the"):
            await jobs.result("chat-1")
        with pytest.raises(UsageError, match=rf"the folder '{folder}' does not exist; check the"):
            await jobs.pending("chat-1")
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]  # closed below: nobody listens there
    async with client(f"postgresql://nobody@127.0.0.1:{port}/none") as jobs:
        with pytest.raises(StoreError, match=str(port)):
            await jobs.result("chat-1")


async def test_reading_creates_no_file(tmp_path: Path) -> None:
    async with SQLiteChats(tmp_path / "typo.db") as jobs:
        for read in (jobs.pending("x"), jobs.abort("x"), jobs.result("x")):
            with pytest.raises(UsageError, match=r"there is no durable chat 'x'.*typo\.db"):
                await read
    assert os.listdir(tmp_path) == []


# ── what went wrong ─────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("port", "database", "says"),
    [
        pytest.param(9, None, "cannot be reached.*Connect", id="port closed"),
        pytest.param(
            None, "/no_such", r'refused.*\(database "no_such" does not exist\)', id="no database"
        ),
    ],
)
async def test_an_error_of_the_database_says_what_the_server_said(
    postgres: Engine, port: int | None, database: str | None, says: str
) -> None:
    at = urlsplit(postgres.address)
    place = f"{at.hostname}:{port or at.port}{database or at.path}"
    async with PostgresChats(f"postgresql://{at.username}:geheim@{place}") as jobs:
        with pytest.raises(StoreError, match=says) as caught:
            await jobs.start("Hi.")
    assert "geheim" not in str(caught.value)


async def test_an_error_of_a_cut_connection_says_that_one_can_try_again(postgres: Engine) -> None:
    server = Server(postgres)
    asyncpg: Any = import_module("asyncpg")
    connection = await asyncpg.connect(postgres.address)
    async with PostgresChats(server.url) as jobs:
        await jobs.start("Hi.")
        try:
            async with connection.transaction():
                await connection.execute("LOCK TABLE hookline_job")
                starting = asyncio.create_task(jobs.start("Hi."))
                while not await server.waits():  # noqa: ASYNC110
                    await asyncio.sleep(0.01)
                assert server.close_connections() == 1
            with pytest.raises(StoreError, match=r"was cut \(.+\); try again"):
                await starting
        finally:
            await connection.close()
        await jobs.start("Hi.")
