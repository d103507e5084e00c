"""What all tests may use."""

from __future__ import annotations

import asyncio
import gc
import logging
import os
import sys
import threading
from collections import Counter
from collections.abc import AsyncIterator, Callable, Generator, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

from hookline import MemoryStore
from hookline.stores import SQLStore

from ._postgres import NAMED, database_of_our_own

if sys.platform != "win32":  # there is none for it
    import uvloop
else:
    uvloop = None

Loop = Callable[[], asyncio.AbstractEventLoop]


def pytest_xdist_auto_num_workers() -> int:
    """Return the workers for `-n auto`: more than cores, because many tests wait for processes."""
    return (os.cpu_count() or 1) + 2


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Run the files with slow tests first, then the long ones.

    Otherwise one of several workers would still run such a file when the others have ended.
    """
    sizes = Counter(item.path for item in items)
    slow = {item.path for item in items if item.get_closest_marker("slow")}
    items.sort(key=lambda item: (item.path not in slow, -sizes[item.path], item.path))


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Collect no garbage while the tests are collected: all that is made then stays."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.enable()


@pytest.fixture(scope="module", autouse=True)
def small_heap() -> None:
    """Let the collections of a module's tests pass over what was there before: it is large."""
    gc.collect()
    gc.freeze()


@pytest.fixture(scope="module", autouse=True)
def log_level() -> Iterator[None]:
    """Undo the level that a command of the command line has set for its process."""
    logger = logging.getLogger("hookline")
    level = logger.level
    yield
    logger.setLevel(level)


@pytest.fixture(autouse=True)
def no_open_databases() -> Iterator[None]:
    """Fails the test that leaves a connection to SQLite open, not a later one that collects it."""
    yield
    for thread in threading.enumerate():
        if "_connection_worker_thread" in thread.name:  # of aiosqlite
            thread.join(10)  # it ends soon after its connection is closed
            assert not thread.is_alive(), "a connection to SQLite is open: close its store"


@pytest.fixture
async def no_leaks() -> AsyncIterator[None]:
    """Fails the test that leaves a task behind."""
    yield
    left = asyncio.all_tasks() - {asyncio.current_task()}
    assert not left, f"tasks are left: {left}"


# One profile for the whole suite: no test fails because the machine is slow. A run that decides
# about a change must not depend on luck either; at home the examples are random.
settings.register_profile(
    "hookline",
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
    derandomize=bool(os.environ.get("CI")),
)
settings.load_profile("hookline")


# ── event loops ─────────────────────────────────────────────────────────────────────────────
#
# Who serves web pages often runs uvloop. What is about tasks, cancellation, and the stream is
# tested in both; tests of other modules turn asyncio's own clock by hand.

ON_BOTH = {
    *("test_checkpoints", "test_invariants", "test_quick_ways", "test_stream", "test_subscribe"),
    *("test_bad_input", "test_deltas", "test_life", "test_run", "test_throws", "test_tool_calls"),
}


def pytest_asyncio_loop_factories(item: pytest.Item) -> dict[str, Loop]:
    """The event loops that a test runs in, one after the other."""
    loops: dict[str, Loop] = {"asyncio": asyncio.new_event_loop}
    if uvloop is not None and item.path.stem in ON_BOTH:
        loops["uvloop"] = uvloop.new_event_loop
    return loops


# ── PostgreSQL ──────────────────────────────────────────────────────────────────────────────
#
# Where HOOKLINE_POSTGRES is set, the tests that need a server fail without it; where it is not,
# the usual place is tried, and they skip.


@pytest.fixture(scope="session")
def postgres() -> Iterator[str]:
    """The URL of a database of our own, for as long as the tests run."""
    with ExitStack() as stack:
        try:
            url = stack.enter_context(database_of_our_own())
        except OSError as exc:
            if NAMED:
                raise
            pytest.skip(f"there is no PostgreSQL server here ({exc}); HOOKLINE_POSTGRES names one")
        yield url


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
