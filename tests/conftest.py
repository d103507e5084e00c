"""What all tests may use."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings

from hookline import MemoryStore
from hookline.stores import SQLStore


@pytest.fixture
async def no_leaks() -> AsyncIterator[None]:
    """Fails the test that leaves a task behind."""
    yield
    left = asyncio.all_tasks() - {asyncio.current_task()}
    assert not left, f"tasks are left: {left}"


# A run that decides about a change must not depend on luck; at home the examples are random.
settings.register_profile("ci", derandomize=True)
if os.environ.get("CI"):
    settings.load_profile("ci")


# ── PostgreSQL ──────────────────────────────────────────────────────────────────────────────
#
# HOOKLINE_POSTGRES is the URL of a server on which a database may be made. Where it is set, the
# tests that need one fail without it; where it is not, the usual place is tried, and they skip.

POSTGRES = os.environ.get("HOOKLINE_POSTGRES")


def _admin(statement: str) -> None:
    """Carry out a statement, in a thread: a loop may run in this one."""
    with ThreadPoolExecutor(1) as threads:
        threads.submit(lambda: asyncio.run(_execute(statement))).result()


async def _execute(statement: str) -> None:
    import asyncpg

    connection = await asyncpg.connect(POSTGRES or "postgresql://postgres@127.0.0.1:5432/postgres")
    try:
        await connection.execute(statement)
    finally:
        await connection.close()


@pytest.fixture(scope="session")
def postgres() -> Iterator[str]:
    """The URL of a database of our own, for as long as the tests run."""
    name = f"hookline_tests_{os.getpid()}"
    try:
        _admin(f"CREATE DATABASE {name}")
    except OSError as exc:
        if POSTGRES:
            raise
        pytest.skip(f"there is no PostgreSQL server here ({exc}); HOOKLINE_POSTGRES names one")
    base = (POSTGRES or "postgresql://postgres@127.0.0.1:5432/postgres").rpartition("/")[0]
    yield f"{base}/{name}"
    _admin(f"DROP DATABASE {name} WITH (FORCE)")


@pytest.fixture(params=["sqlite", "postgres"])
def database(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """The URL of a database, of each kind."""
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path}/chats.db"
    url: str = request.getfixturevalue("postgres")
    return url


@pytest.fixture(params=["memory", "sqlite", "postgres"])
async def store(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Any]:
    """A store of each kind."""
    if request.param == "memory":
        yield MemoryStore()
        return
    url = f"sqlite:///{tmp_path}/chats.db"
    if request.param == "postgres":
        url = request.getfixturevalue("postgres")
    async with SQLStore(url) as made:
        yield made
