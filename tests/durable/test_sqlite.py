"""The file of `hookline.durable.sqlite`: while another process uses it, and when it fails."""

from __future__ import annotations

import asyncio
import re
import sqlite3
import sys
from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from typing import Any

import anyio
import pytest

from hookline import Agent, MemoryStore
from hookline.durable import Client, chats, client
from hookline.durable._polled.worker_operations import Jobs, Signs
from hookline.durable.sqlite import Worker
from hookline.durable.sqlite._file import File
from hookline.errors import StoreError, UsageError
from hookline.runtimes import Durable
from hookline.testing import ScriptedModel, call


def jobs_at(file: str, lease: float = 1.0) -> Jobs:
    return Jobs(File(file), "hookline", 0.01, lease)


def database_of(jobs: Jobs) -> File:
    assert isinstance(jobs.database, File)
    return jobs.database


async def lapsed(jobs: Jobs) -> list[Any]:
    """The jobs that are claimed once a claim has lapsed."""
    while True:
        if claims := await jobs.take("heir", 9):
            return claims
        await asyncio.sleep(0.01)


@pytest.fixture
async def two(tmp_path: Path) -> AsyncIterator[tuple[Jobs, Jobs]]:
    """Of two workers, for which a sign of life is missing as soon as they look again."""
    made = [jobs_at(str(tmp_path / "chats.db"), lease=0.05) for _ in range(2)]
    yield made[0], made[1]
    for jobs in made:
        await jobs.aclose()


async def test_a_new_file_that_another_process_is_writing_is_waited_for(tmp_path: Path) -> None:
    file = str(tmp_path / "chats.db")
    other = sqlite3.connect(file, isolation_level=None)
    other.execute("CREATE TABLE theirs (id)")  # without a write-ahead log, as a new file is
    other.execute("BEGIN IMMEDIATE")
    jobs = jobs_at(file)
    adding = asyncio.create_task(jobs.add("chat-1", "{}"))
    await asyncio.sleep(0.1)
    assert not adding.done()
    other.execute("COMMIT")
    assert await adding
    await jobs.aclose()
    other.close()


async def test_many_that_open_a_new_file_at_once_all_get_in(tmp_path: Path) -> None:
    file = str(tmp_path / "chats.db")
    all = [jobs_at(file) for _ in range(24)]
    added = await asyncio.gather(*(jobs.add(f"chat-{n}", "{}") for n, jobs in enumerate(all)))
    assert added == [True] * 24
    for jobs in all:
        await jobs.aclose()


# ── lives ───────────────────────────────────────────────────────────────────────────────────


async def test_a_job_of_which_its_worker_has_lost_sight_is_taken_by_the_same_worker(
    two: tuple[Jobs, Jobs],
) -> None:
    """The worker could not read or write the file; there may be no other worker."""
    jobs = two[0]
    await jobs.add("one", "{}")
    [first] = await jobs.take("me", 9)
    [second] = await lapsed(jobs)
    assert (second.id, second.job) == ("one", "{}")
    assert not await jobs.append("one", first.owner, 0, b"late")
    assert await jobs.append("one", second.owner, 0, b"in time")


async def test_a_claim_from_before_the_machine_was_started_anew_has_lapsed(
    two: tuple[Jobs, Jobs],
) -> None:
    """The clock of claims begins anew, so that a claim may seem to last for long."""
    jobs = jobs_at(two[0].database.place, lease=1000.0)
    await jobs.add("one", "{}")
    await jobs.take("me", 9)
    assert await two[0].take("me", 9) == []
    two[0].database.boot = two[1].database.boot = "another-"  # type: ignore[misc]
    [claim] = await two[0].take("me", 9)
    assert claim.id == "one"
    await jobs.aclose()


@pytest.mark.parametrize("name", ["append", "finish"])
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

    async def refused(*args: Any, **options: Any) -> None:
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
    stopped, other = (jobs_at(str(tmp_path / "chats.db"), lease=1000.0) for _ in range(2))
    await stopped.add("one", "{}")
    await stopped.add("two", "{}")
    [one] = await stopped.take("stopped", 1, set())
    [two] = await other.take("stopped-too", 1, set())
    await stopped.aclose()
    assert [job.id for job in await other.take("other", 9, set())] == [one.id]
    assert await other.beat([two.owner]) == {two.owner: Signs(None, {})}
    await other.aclose()


async def test_a_life_that_has_lost_its_chat_stores_and_answers_no_question(
    two: tuple[Jobs, Jobs],
) -> None:
    """Its worker has slept past its lease."""
    slept, other = two
    await slept.add("one", "{}")
    [old] = await slept.take("slept", 9, set())
    [new] = await lapsed(other)
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
        super().__init__(File(file), "hookline", 0.01)
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
    async with worker_at(jobs), Client(jobs_at(jobs.database.place)) as client:
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

    jobs, other = (jobs_at(str(tmp_path / "chats.db"), lease=1000.0) for _ in range(2))
    agent: Agent[Any] = Agent(ScriptedModel(call("think")), tools=[think], runtime=Durable())
    worker = Worker(agent, jobs, deps=None, relay=None, concurrency=9, idle=1.0, poll=0.01)
    async with Client(other) as client:
        id = await client.start("Hi.")
        async with anyio.create_task_group() as group:
            group.start_soon(worker.run)
            await thinks.wait()
            group.cancel_scope.cancel()
        assert database_of(jobs)._connection is None
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
    connection = database_of(jobs)._connection
    assert connection is not None
    connection.execute("PRAGMA max_page_count = 1")
    with pytest.raises(StoreError, match="disk is full"):
        await jobs.abort("one", "x" * 10_000_000)
    connection.execute("PRAGMA max_page_count = 1000000")
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
    assert await two[0].beat([job.owner]) == {job.owner: Signs(None, {})}
    assert asked == []


@pytest.mark.parametrize("url", ["sqlite:///", "sqlite:///:memory:", "sqlite://chats.db"])
def test_what_is_no_file_that_worker_and_client_share_is_refused(url: str) -> None:
    """Each of them would have a database of its own, and wait forever."""
    with pytest.raises(UsageError, match=r"sqlite:///jobs\.db"):
        client(url)
    with pytest.raises(UsageError, match=r"sqlite:///jobs\.db"):
        chats(Agent(ScriptedModel("x"), runtime=Durable()), url)


async def test_no_transaction_is_lost_while_the_thread_takes_those_that_wait(
    two: tuple[Jobs, Jobs],
) -> None:
    """The loop adds a transaction at any moment of it: between any two steps of the thread."""
    file = database_of(two[0])
    await two[0].add("one", "{}")
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        for _ in range(300):
            calls = [file.fetch("UPDATE hookline_job SET answers = answers + 1") for _ in range(20)]
            await asyncio.gather(*calls)
    finally:
        sys.setswitchinterval(interval)
    assert await file.fetch("SELECT answers FROM hookline_job", reads=True) == [(6000,)]


# ── a power cut ─────────────────────────────────────────────────────────────────────────────


FRAME = 24 + 4096  # bytes in the write-ahead log, after a header of 32


def batches_in(file: Path) -> list[bytes]:
    with closing(sqlite3.connect(file)) as database:
        rows = database.execute("SELECT data FROM hookline_job_log ORDER BY n").fetchall()
    return [bytes(row[0]) for row in rows]


def size_of(file: Path) -> int:
    return file.stat().st_size


def after_a_power_cut(file: Path, folder: Path, length: int) -> Path:
    """The files as they are on the disk, if only so much of the write-ahead log is there."""
    folder.mkdir()
    copy = folder / file.name
    copy.write_bytes(file.read_bytes())
    Path(f"{copy}-wal").write_bytes(Path(f"{file}-wal").read_bytes()[:length])
    return copy


def charging(ran: list[str], *turns: Any) -> Agent[Any]:
    async def charge(what: str) -> str:
        """Charge."""
        ran.append(what)
        return f"charged {what}"

    return Agent(ScriptedModel(*turns), tools=[charge], runtime=Durable())


@pytest.mark.slow
async def test_a_power_cut_forgets_and_repeats_nothing_that_an_append_has_acknowledged(
    tmp_path: Path,
) -> None:
    """Whatever is lost of the write-ahead log after what was there when the append returned."""
    file = tmp_path / "chats.db"
    log = Path(f"{file}-wal")
    turns = (call("charge", what="a"), call("charge", what="b"), "Done.")
    ran: list[str] = []
    acknowledged: list[tuple[int, bytes]] = []
    worker = chats(charging(ran, *turns), f"sqlite:///{file}")
    real = worker._jobs.append

    async def append(id: str, owner: str, n: int, data: bytes) -> bool:
        done = await real(id, owner, n, data)
        acknowledged.append((size_of(log), data))
        return done

    worker._jobs.append = append  # type: ignore[method-assign]
    async with client(f"sqlite:///{file}") as jobs:
        async with worker:
            id = await jobs.start("Charge.")
            assert (await jobs.result(id)).text == "Done."
        assert ran == ["a", "b"]
        sizes = [size for size, _ in acknowledged]
        assert sizes == sorted(sizes)
        assert size_of(file) < size_of(log)  # all of the chat is in the log
        ends = range(32, size_of(log) + 1, FRAME)
        cuts = sorted({*ends, *[end + 100 for end in ends]})  # also in the middle of a frame
        for number, cut in enumerate(cuts):
            if cut < sizes[0]:
                continue
            there = [data for size, data in acknowledged if size <= cut]
            copy = after_a_power_cut(file, tmp_path / f"cut{number}", cut)
            assert batches_in(copy)[: len(there)] == there, cut
        for number, size in enumerate(sizes):
            await goes_on(after_a_power_cut(file, tmp_path / f"ack{number}", size), id, turns)


async def goes_on(copy: Path, id: str, turns: tuple[Any, ...]) -> None:
    """The next worker repeats no step of which the end is recorded."""
    record = b"".join(batches_in(copy)).decode()
    answered = len(re.findall(r'"kind":"end","key":"step/\d+/model"', record))
    with closing(sqlite3.connect(copy)) as database, database:
        database.execute("UPDATE hookline_job SET lease = 0 WHERE owner IS NOT NULL")
    again: list[str] = []
    where = f"sqlite:///{copy}"
    agent = charging(again, *turns[answered:])
    async with client(where) as jobs, chats(agent, where), asyncio.timeout(60):
        response = await jobs.result(id)
    assert response.text == "Done."
    begun = len(re.findall(r'"kind":"begin","key":"step/\d+/call/[^"]+/run"', record))
    assert again == ["a", "b"][begun:]
    assert len(agent.model.requests) == len(turns) - answered  # type: ignore[attr-defined]
