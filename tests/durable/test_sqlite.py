"""The file of `hookline.durable.sqlite`: while another process uses it, and when it fails."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import anyio
import pytest

from hookline import Agent, MemoryStore
from hookline.durable import Client, chats, client
from hookline.durable._polled.worker import Worker
from hookline.durable.sqlite._tables import Jobs
from hookline.errors import StoreError, UsageError
from hookline.runtimes import Durable
from hookline.testing import ScriptedModel, call


@pytest.fixture
async def two(tmp_path: Path) -> AsyncIterator[tuple[Jobs, Jobs]]:
    """Of two workers, for which a sign of life is missing as soon as they look again."""
    made = [Jobs(str(tmp_path / "chats.db"), poll=0.01, lease=0.0) for _ in range(2)]
    yield made[0], made[1]
    for jobs in made:
        jobs.close()


async def test_a_new_file_that_another_process_is_writing_is_waited_for(tmp_path: Path) -> None:
    file = str(tmp_path / "chats.db")
    other = sqlite3.connect(file, isolation_level=None)
    other.execute("CREATE TABLE theirs (id)")  # without a write-ahead log, as a new file is
    other.execute("BEGIN IMMEDIATE")
    jobs = Jobs(file, poll=0.01)
    adding = asyncio.create_task(jobs.add("chat-1", "{}"))
    await asyncio.sleep(0.1)
    assert not adding.done()
    other.execute("COMMIT")
    assert await adding
    jobs.close()
    other.close()


async def test_many_that_open_a_new_file_at_once_all_get_in(tmp_path: Path) -> None:
    file = str(tmp_path / "chats.db")
    all = [Jobs(file, poll=0.01) for _ in range(24)]
    added = await asyncio.gather(*(jobs.add(f"chat-{n}", "{}") for n, jobs in enumerate(all)))
    assert added == [True] * 24
    for jobs in all:
        jobs.close()


# ── lives ───────────────────────────────────────────────────────────────────────────────────


async def test_a_job_of_which_its_worker_has_lost_sight_is_taken_by_the_same_worker(
    two: tuple[Jobs, Jobs],
) -> None:
    """The worker could not read or write the file; there may be no other worker."""
    jobs = two[0]
    await jobs.add("one", "{}")
    [first] = await jobs.take("me", 9, set())
    assert await jobs.take("me", 9, set()) == []
    await jobs.beat([first.owner])
    assert await jobs.take("me", 9, set()) == []
    [second] = await jobs.take("me", 9, set())
    assert (second.id, second.job) == ("one", "{}")
    assert not await jobs.append("one", first.owner, b"late")
    assert await jobs.append("one", second.owner, b"in time")


@pytest.mark.parametrize("name", ["read", "append", "finish"])
async def test_a_chat_comes_to_its_end_though_its_only_worker_cannot_use_the_file_for_a_while(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    real, failed = getattr(Jobs, name), []

    async def broken(*args: Any) -> Any:
        if not failed:
            failed.append(name)
            monkeypatch.setattr(Jobs, "leave", refused)
            raise StoreError("the disk is full")
        return await real(*args)

    async def refused(*args: Any) -> None:
        monkeypatch.setattr(Jobs, "leave", leave)
        raise StoreError("the disk is full")

    leave = Jobs.leave
    monkeypatch.setattr(Jobs, name, broken)
    url = f"sqlite:///{tmp_path}/chats.db"
    agent: Agent[Any] = Agent(ScriptedModel("Hello.", "Hello."), runtime=Durable())
    async with chats(agent, url), client(url) as jobs:
        assert (await jobs.result(await jobs.start("Hi."))).text == "Hello."
    assert failed == [name]


async def test_a_worker_that_stops_releases_the_jobs_that_it_has_taken_and_not_begun(
    tmp_path: Path,
) -> None:
    """The lease is longer than the test: nobody waits for it."""
    stopped, other = (Jobs(str(tmp_path / "chats.db"), 0.01, lease=1000.0) for _ in range(2))
    await stopped.add("one", "{}")
    await stopped.add("two", "{}")
    [one] = await stopped.take("stopped", 1, set())
    [two] = await other.take("stopped-too", 1, set())
    await stopped.aclose()
    assert [job.id for job in await other.take("other", 9, set())] == [one.id]
    assert await other.beat([two.owner]) == {two.owner: None}
    other.close()


async def test_a_worker_forgets_the_jobs_of_others_that_are_over(two: tuple[Jobs, Jobs]) -> None:
    mine, theirs = two
    for n in range(3):
        await mine.add(f"chat-{n}", "{}")
    taken = await theirs.take("they", 9, set())
    assert await mine.take("me", 9, set()) == []
    for job in taken:
        await theirs.finish(job.id, job.owner, "{}")
    assert await mine.take("me", 9, set()) == []
    assert len(mine._seen) == 0


async def test_a_life_that_has_lost_its_chat_stores_and_answers_no_question(
    two: tuple[Jobs, Jobs],
) -> None:
    """Its worker has slept past its lease."""
    slept, other = two
    await slept.add("one", "{}")
    [old] = await slept.take("slept", 9, set())
    assert await other.take("other", 9, set()) == []
    [new] = await other.take("other", 9, set())
    assert await other.ask("one", new.owner, "q1", '"body"', None) is None
    assert await slept.ask("one", old.owner, "q1", '"body"', '"too late"') is None
    assert await slept.ask("one", old.owner, "q2", '"body"', None) is None
    assert await slept.questions("one") == ['"body"']
    assert await slept.answer("one", {"q1": '"yes"'}) is None
    assert await other.ask("one", new.owner, "q1", '"body"', None) == '"yes"'
    await other.finish("one", new.owner, "{}")
    assert await slept.ask("one", old.owner, "q1", '"body"', None) is None
    assert await slept.questions("one") == []


class Slow(Jobs):
    """Takes its time to store an outcome."""

    def __init__(self, file: str) -> None:
        super().__init__(file, poll=0.01)
        self.finishing = asyncio.Event()
        self.done: list[str] = []

    async def finish(self, *args: str) -> None:
        self.finishing.set()
        for _ in range(100):
            await asyncio.sleep(0)
        await super().finish(*args)
        self.done.append("finished")

    async def aclose(self) -> None:
        self.done.append("closed")
        await super().aclose()


def worker_at(jobs: Jobs, relay: Any = None) -> Worker:
    agent: Agent[Any] = Agent(
        ScriptedModel("Hello."), runtime=Durable(), store=None if relay is None else MemoryStore()
    )
    return Worker(agent, jobs, deps=None, relay=relay, concurrency=9, idle=1.0, poll=0.01)


async def test_a_worker_that_stops_stores_the_outcome_of_a_chat_that_has_ended(
    tmp_path: Path,
) -> None:
    jobs = Slow(str(tmp_path / "chats.db"))
    async with worker_at(jobs), Client(Jobs(jobs.file, poll=0.01)) as client:
        id = await client.start("Hi.")
        await jobs.finishing.wait()
    assert jobs.done == ["finished", "closed"]
    assert (await client.result(id)).text == "Hello."
    await client.aclose()


async def test_a_worker_that_is_cancelled_again_and_again_releases_its_chats(
    tmp_path: Path,
) -> None:
    """As anyio cancels what runs in its task groups. The lease is longer than the test."""
    thinks = asyncio.Event()

    async def think() -> str:
        thinks.set()
        await asyncio.Event().wait()
        return ""

    jobs, other = (Jobs(str(tmp_path / "chats.db"), 0.01, lease=1000.0) for _ in range(2))
    agent: Agent[Any] = Agent(ScriptedModel(call("think")), tools=[think], runtime=Durable())
    worker = Worker(agent, jobs, deps=None, relay=None, concurrency=9, idle=1.0, poll=0.01)
    async with Client(other) as client:
        id = await client.start("Hi.")
        async with anyio.create_task_group() as group:
            group.start_soon(worker.run)
            await thinks.wait()
            group.cancel_scope.cancel()
        assert jobs._connection is None
        assert [job.id for job in await other.take("other", 9, set())] == [id]


async def test_a_relay_that_cannot_be_closed_keeps_no_file_open(tmp_path: Path) -> None:
    class Relay:
        async def open(self) -> None:
            """It is open."""

        async def aclose(self) -> None:
            raise StoreError("Redis is away")

    jobs = Slow(str(tmp_path / "chats.db"))
    running = asyncio.create_task(worker_at(jobs, Relay()).run())
    await asyncio.sleep(0)
    running.cancel()
    with pytest.raises(StoreError):
        await running
    assert jobs.done == ["closed"]


# ── faults ──────────────────────────────────────────────────────────────────────────────────


async def test_a_full_disk_is_named_in_the_error(two: tuple[Jobs, Jobs]) -> None:
    """SQLite has ended the transaction itself by then."""
    jobs = two[0]
    await jobs.add("one", "{}")
    assert jobs._connection is not None
    jobs._connection.execute("PRAGMA max_page_count = 1")
    with pytest.raises(StoreError, match="disk is full"):
        await jobs.abort("one", "x" * 10_000_000)
    jobs._connection.execute("PRAGMA max_page_count = 1000000")
    assert await jobs.abort("one", "{}")


async def test_the_file_is_read_though_all_threads_of_the_program_are_busy(
    two: tuple[Jobs, Jobs],
) -> None:
    """A worker that cannot write its sign of life counts as dead."""
    asked: list[object] = []

    class Busy(ThreadPoolExecutor):
        def submit(self, fn: Any, /, *args: Any, **kwargs: Any) -> Any:
            asked.append(fn)
            return super().submit(fn, *args, **kwargs)

    asyncio.get_running_loop().set_default_executor(Busy(1))
    await two[0].add("one", "{}")
    [job] = await two[0].take("me", 9, set())
    assert await two[0].beat([job.owner]) == {job.owner: None}
    assert asked == []


@pytest.mark.parametrize("url", ["sqlite:///", "sqlite:///:memory:", "sqlite://chats.db"])
def test_what_is_no_file_that_worker_and_client_share_is_refused(url: str) -> None:
    """Each of them would have a database of its own, and wait forever."""
    with pytest.raises(UsageError, match=r"sqlite:///jobs\.db"):
        client(url)
    with pytest.raises(UsageError, match=r"sqlite:///jobs\.db"):
        chats(Agent(ScriptedModel("x"), runtime=Durable()), url)
