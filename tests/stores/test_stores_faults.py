"""What can go wrong under a store: a clear error, nothing lost, doubled, or run unapproved."""

from __future__ import annotations

import asyncio
import os
import re
import shutil
import signal
import socket
import sqlite3
import subprocess
import sys
import threading
import time
import uuid
from collections.abc import AsyncIterator, Coroutine, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import event
from tests._tool_chats import Clock as LoopClock

from hookline import (
    Agent,
    Approve,
    Ask,
    Conversation,
    Deny,
    Limits,
    LocalRuntime,
    MemoryStore,
    MessageChanges,
    Text,
    UserMessage,
    check_history,
)
from hookline.errors import (
    ApprovalError,
    ConversationBusyError,
    ConversationConflictError,
    StoreError,
)
from hookline.events import ChatAborted
from hookline.points import OnChatDone
from hookline.storage import Change
from hookline.stores import SQLStore
from hookline.testing import ScriptedModel, Turn, call, collect


def user(text: str, id: str = "") -> UserMessage:
    return UserMessage(id=id, parts=(Text(text),))


def texts(conversation: Conversation) -> list[str]:
    return [message.text for message in conversation.messages]


@pytest.fixture
def talk() -> str:
    return f"talk-{uuid.uuid4().hex[:12]}"


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "chats.db"


@pytest.fixture
async def sqlite(file: Path) -> AsyncIterator[SQLStore]:
    async with SQLStore(f"sqlite:///{file}", busy_timeout=0.1) as store:
        yield store


@pytest.fixture
async def base(database: str) -> AsyncIterator[SQLStore]:
    """A database of each kind."""
    async with SQLStore(database) as store:
        yield store


async def execute(url: str, statement: str) -> None:
    """What somebody does to the tables behind our back."""
    if url.startswith("sqlite"):
        with sqlite3.connect(url.removeprefix("sqlite:///")) as connection:
            connection.execute(statement)
        connection.close()
        return
    import asyncpg

    other = await asyncpg.connect(url)
    await other.execute(statement)
    await other.close()


# ── what does not end in time ───────────────────────────────────────────────────────────────


async def free(conversation: Conversation) -> None:
    """Wait until no chat has it, some turns of the event loop at most."""
    for _ in range(100):
        if not conversation.busy:
            return
        await asyncio.sleep(0)
    raise AssertionError("it is busy still")


class Hanging(MemoryStore):
    """A store whose writes hang once it is told to, as when a network is cut."""

    def __init__(self) -> None:
        super().__init__()
        self.answers = asyncio.Event()
        self.answers.set()
        self.asked = asyncio.Event()

    async def append(self, conversation_id: str, change: Change) -> int:
        self.asked.set()
        await self.answers.wait()
        return await super().append(conversation_id, change)

    async def update(self, conversation_id: str, message: Any, **options: Any) -> int:
        self.asked.set()
        await self.answers.wait()
        return await super().update(conversation_id, message, **options)


async def cancelled_while_it_writes(store: Hanging, doing: Coroutine[Any, Any, object]) -> None:
    """Cancel it in the middle of its first write, which then comes back; it stays cancelled."""
    store.answers.clear()
    store.asked.clear()
    work = asyncio.create_task(doing)
    await store.asked.wait()
    work.cancel()
    store.answers.set()
    await asyncio.wait([work], timeout=10)
    assert work.cancelled()


@pytest.mark.parametrize("how", ["the stream is aborted", "its reader is cancelled", "chat()"])
async def test_a_store_that_hangs_is_waited_for_no_longer_than_the_grace_period(
    talk: str, how: str, caplog: pytest.LogCaptureFixture
) -> None:
    store = Hanging()
    limits = Limits(grace=0.05)
    agent = Agent(ScriptedModel("one", "two"), store=store, limits=limits)
    conversation = await store.open(talk)
    await agent.chat("a", conversation=conversation)
    store.answers.clear()
    store.asked.clear()
    stream = agent.chat_stream("b", conversation=conversation)
    work: asyncio.Task[Any]
    if how == "chat()":
        work = asyncio.create_task(agent.chat("b", conversation=conversation))
    else:
        work = asyncio.create_task(collect(stream))
    await store.asked.wait()
    if how == "the stream is aborted":
        assert stream.abort()
    else:
        work.cancel()
    await asyncio.wait([work], timeout=10)
    if how == "the stream is aborted":
        assert type(work.result()[-1]) is ChatAborted
    else:
        assert work.cancelled()
    assert f"{talk!r} is busy until the store answers" in caplog.text
    assert "the store ignored its cancellation" in caplog.text

    with pytest.raises(ConversationBusyError):  # what was being written is not known yet
        await agent.chat("c", conversation=conversation)
    store.answers.set()
    await free(conversation)
    assert (await agent.chat("c", conversation=conversation)).text == "two"
    assert texts(conversation) == ["a", "one", "b", "c", "two"]
    assert texts(await store.open(talk)) == texts(conversation)


def test_a_closing_event_loop_waits_for_a_store_that_hangs(talk: str) -> None:
    store = Hanging()

    async def main() -> None:
        agent = Agent(ScriptedModel("one"), store=store, limits=Limits(grace=0.05))
        store.answers.clear()
        work = asyncio.create_task(agent.chat("a", conversation=talk))
        await store.asked.wait()
        work.cancel()
        await asyncio.wait([work])
        assert texts(await store.open(talk)) == []
        asyncio.get_running_loop().call_later(0.01, store.answers.set)  # while it closes

    asyncio.run(main())
    assert texts(asyncio.run(store.open(talk))) == ["a"]


async def test_a_store_that_hangs_under_the_last_write_is_waited_for_until_somebody_cancels(
    talk: str,
) -> None:
    """The answer is there; `meta`, which an observer of it has changed, is not written yet."""
    store = Hanging()
    agent = Agent(ScriptedModel("one"), store=store, limits=Limits(grace=0.05))
    conversation = await store.open(talk)
    ended = asyncio.Event()

    @agent.hook("onChatDone")
    def note(ctx: OnChatDone) -> None:
        conversation.meta["seen"] = True
        store.answers.clear()
        store.asked.clear()
        ended.set()

    work = asyncio.create_task(agent.chat("a", conversation=conversation))
    await ended.wait()
    await store.asked.wait()
    await asyncio.wait([work], timeout=0.2)  # four times the grace period
    assert not work.done()
    work.cancel()
    await asyncio.wait([work], timeout=10)
    assert work.cancelled()
    store.answers.set()
    await free(conversation)
    assert (await store.open(talk)).meta == {"seen": True}


async def test_a_caller_that_leaves_a_store_that_hangs_at_the_end_waits_for_two_grace_periods(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """One in which the store may still answer, and one after the chat's task was cancelled."""
    store, clock, ended = Hanging(), LoopClock(), asyncio.Event()
    agent = Agent(ScriptedModel("one"), limits=Limits(grace=5))
    conversation = await Conversation.open(store, "c")

    @agent.hook("onChatDone")
    def note(ctx: OnChatDone) -> None:
        conversation.meta["seen"] = True
        store.answers.clear()
        store.asked.clear()
        ended.set()

    work = asyncio.create_task(agent.chat("a", conversation=conversation))
    await ended.wait()
    await store.asked.wait()
    work.cancel()
    await clock.advance(5.1)
    assert not work.done()
    await clock.advance(5.1)
    assert work.cancelled()
    assert caplog.text.count("its store did not answer") == 1
    assert "left behind" not in caplog.text
    store.answers.set()
    await free(conversation)


async def test_a_save_that_is_cancelled_is_written_whole_and_stays_cancelled(talk: str) -> None:
    store = Hanging()
    conversation = await store.open(talk)
    await Agent(ScriptedModel("one"), store=store).chat("a", conversation=conversation)
    conversation.meta["seen"] = True
    await cancelled_while_it_writes(store, conversation.save())
    assert not conversation.busy
    assert (await store.open(talk)).meta == {"seen": True}


async def test_an_update_that_is_cancelled_is_written_whole_and_stays_cancelled(talk: str) -> None:
    store = Hanging()
    agent = Agent(ScriptedModel("one"), store=store)
    conversation = await store.open(talk)
    await agent.chat("a", conversation=conversation)
    answer = conversation.messages[-1].id
    changes = MessageChanges(text="changed")
    doing = agent.update_message(conversation, answer, changes)
    await cancelled_while_it_writes(store, doing)
    assert not conversation.busy
    assert texts(conversation) == texts(await store.open(talk)) == ["a", "changed"]


async def test_a_resume_that_is_cancelled_while_its_answers_are_written_runs_nothing(
    talk: str,
) -> None:
    """Nothing has begun, so they are given back."""
    ran: list[str] = []

    async def delete() -> str:
        ran.append("delete")
        return "gone"

    store = Hanging()
    agent = Agent(ScriptedModel(call("delete"), "fine"), tools=[delete], store=store)
    agent.add_hook("preToolCall", lambda ctx: Ask("may I?"))
    conversation = await store.open(talk)
    waits = await agent.chat("a", conversation=conversation)
    answers = {waits.pending[0].id: Approve()}
    await cancelled_while_it_writes(store, agent.resume(conversation, answers))
    again = await store.open(talk)
    assert again.pending == waits.pending
    assert (await agent.resume(again, answers)).text == "fine"
    assert ran == ["delete"]
    check_history(again.messages)


async def test_a_chat_that_was_left_behind_takes_no_lease_from_the_next(talk: str) -> None:
    store = MemoryStore()
    let_go, begun, asked, answer = (asyncio.Event() for _ in range(4))

    async def stubborn() -> str:
        """Ignores its cancellation."""
        begun.set()
        while not let_go.is_set():
            with suppress(asyncio.CancelledError):
                await let_go.wait()
        return "late"

    async def pause() -> None:
        asked.set()
        await answer.wait()

    model = ScriptedModel(call("stubborn"), Turn("two", delay=pause))
    agent = Agent(model, tools=[stubborn], store=store, limits=Limits(grace=0.05))
    conversation = await store.open(talk)
    first = asyncio.create_task(agent.chat("a", conversation=conversation))
    await begun.wait()
    first.cancel()
    await asyncio.wait([first], timeout=10)
    assert first.cancelled()
    assert not conversation.busy

    second = asyncio.create_task(agent.chat("b", conversation=conversation))
    await asked.wait()
    let_go.set()
    for _ in range(20):
        await asyncio.sleep(0)
    stored = await store.load(talk)
    assert stored is not None
    assert stored.owner is not None  # the second chat's
    answer.set()
    assert (await second).text == "two"
    assert texts(await store.open(talk)) == texts(conversation)


# ── damage ──────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("statement", "says"),
    [
        ('UPDATE hookline_message SET body = \'{"role": "us\' {where} AND seq = 1', "message 1"),
        ("UPDATE hookline_message SET body = '{{}}' {where} AND seq = 0", "message 0"),
        ("UPDATE hookline_message SET body = '' {where} AND seq = 1", "message 1"),
        ("DELETE FROM hookline_message {where} AND seq = 0", "message 0"),
        ("DELETE FROM hookline_message {where} AND seq = 1", "message 1"),
        ("DELETE FROM hookline_message {where}", "message 0"),
        ("UPDATE hookline_conversation SET meta = '[1' WHERE id = '{id}'", "meta"),
        ("UPDATE hookline_conversation SET pending = 'x' WHERE id = '{id}'", "pending"),
    ],
    ids=["cut off", "no message", "empty", "missing", "the last", "all", "meta", "pending"],
)
async def test_a_damaged_row_is_named_and_nothing_is_written_over_it(
    base: SQLStore, database: str, talk: str, statement: str, says: str
) -> None:
    agent = Agent(ScriptedModel("a", "b"), store=base)
    await agent.chat("one", conversation=talk)
    where = f"WHERE conversation_id = '{talk}'"
    statement = statement.replace("{where}", where).replace("{id}", talk).replace("{{}}", "{}")
    await execute(database, statement)
    for attempt in (base.open(talk), agent.chat("two", conversation=talk)):
        with pytest.raises(StoreError) as caught:
            await attempt
        assert says in str(caught.value)
        assert talk in str(caught.value)
    other = f"{talk}-other"
    await agent.chat("on", conversation=other)  # the rest of the store goes on
    assert await base.delete(talk) is True  # and nothing holds the damaged one


async def test_an_unknown_schema_version_is_refused_untouched(
    base: SQLStore, database: str, talk: str
) -> None:
    await Agent(ScriptedModel("a"), store=base).chat("one", conversation=talk)
    await execute(database, "UPDATE hookline_schema SET version = version + 1")
    try:
        async with SQLStore(database) as newer:
            with pytest.raises(StoreError, match="newer"):
                await newer.open(talk)
            with pytest.raises(StoreError) as caught:
                await Agent(ScriptedModel("b"), store=newer).chat("two", conversation=talk)
        found, supported = re.findall(r"schema (\d+)", str(caught.value))
        assert int(found) == int(supported) + 1
    finally:
        await execute(database, "UPDATE hookline_schema SET version = version - 1")
    async with SQLStore(database) as again:
        assert texts(await again.open(talk)) == ["one", "a"]


async def test_many_processes_make_the_tables_at_once(tmp_path: Path, talk: str) -> None:
    """Stores that see an empty file at the same moment: the tables are made once."""
    stores = [SQLStore(f"sqlite:///{tmp_path}/new.db", busy_timeout=20) for _ in range(8)]
    await asyncio.gather(
        *[
            Agent(ScriptedModel("a"), store=store).chat("one", conversation=f"{talk}-{number}")
            for number, store in enumerate(stores)
        ]
    )
    assert len(await stores[0].list()) == 8
    for store in stores:
        await store.aclose()


@pytest.fixture
def letter(file: Path) -> None:
    file.write_bytes(b"This is a letter to my aunt, and no database at all. " * 100)


@pytest.mark.usefixtures("letter")
async def test_no_database_is_told_as_what_it_is(talk: str, sqlite: SQLStore) -> None:
    with pytest.raises(StoreError, match="not a SQLite database"):
        await sqlite.open(talk)


async def test_a_directory_that_is_not_there_is_told(tmp_path: Path, talk: str) -> None:
    async with SQLStore(f"sqlite:///{tmp_path}/none/chats.db") as store:
        with pytest.raises(StoreError, match="directory"):
            await store.open(talk)


# ── SQLite: read-only, full, locked ─────────────────────────────────────────────────────────


async def test_a_read_only_database_can_be_read_and_says_so(file: Path, talk: str) -> None:
    async with SQLStore(f"sqlite:///{file}") as store:
        await Agent(ScriptedModel("a"), store=store).chat("one", conversation=talk)
    url = f"sqlite:///file:{file}?mode=ro&uri=true"
    async with SQLStore(url) as store:
        assert texts(await store.open(talk)) == ["one", "a"]
        with pytest.raises(StoreError, match="read-only"):
            await Agent(ScriptedModel("b"), store=store).chat("two", conversation=talk)
    async with SQLStore(f"sqlite:///{file}") as store:
        assert texts(await store.open(talk)) == ["one", "a"]


FULL = """
import asyncio, resource, signal, sys
from hookline import Agent
from hookline.errors import StoreError
from hookline.stores import SQLStore
from hookline.testing import ScriptedModel

async def main(file, limit):
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    async with SQLStore(f"sqlite:///{file}") as store:
        agent = Agent(ScriptedModel(*["x" * 20_000] * 200), store=store)
        done = 0
        try:
            await agent.chat("0", conversation="c")
            resource.setrlimit(resource.RLIMIT_FSIZE, (limit, resource.RLIM_INFINITY))
            for number in range(1, 200):
                done = number
                await agent.chat(str(number), conversation="c")
        except StoreError as exc:
            print(done)
            print(exc)
        resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY,) * 2)
        print((await agent.chat("after", conversation="c")).text[:1])

asyncio.run(main(sys.argv[1], int(sys.argv[2])))
"""


@pytest.mark.skipif(not hasattr(signal, "SIGXFSZ"), reason="needs limits of a file's size")
async def test_a_full_disk_is_told_and_what_was_written_stays(file: Path) -> None:
    """Simulated by a limit of the file's size: a write fails half way, as on a full disk."""
    done = await asyncio.to_thread(
        subprocess.run,
        [sys.executable, "-c", FULL, str(file), "1000000"],
        capture_output=True,
        text=True,
        timeout=50,
    )
    assert done.returncode == 0, done.stderr
    number, error, after = done.stdout.splitlines()
    assert "disk" in error
    assert after == "x"  # with room again, the same store goes on
    async with SQLStore(f"sqlite:///{file}") as store:
        found = texts(await store.open("c"))
    said = [text for text in found if not text.startswith("x")]
    before = [str(each) for each in range(int(number))]
    assert said in ([*before, "after"], [*before, number, "after"])
    assert len(found) >= 2 * len(before) + 2
    assert set(map(len, found)) <= {1, 2, 3, 5, 20_000}  # each message whole


async def test_a_locked_database_is_told_and_goes_on_afterwards(
    file: Path, talk: str, sqlite: SQLStore
) -> None:
    agent = Agent(ScriptedModel("a", "b", "c"), store=sqlite)
    await agent.chat("one", conversation=talk)
    other = sqlite3.connect(file, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    with pytest.raises(StoreError, match="locked"):
        await agent.chat("two", conversation=talk)
    assert texts(await sqlite.open(talk)) == ["one", "a"]  # reading goes on meanwhile
    other.execute("ROLLBACK")
    await agent.chat("three", conversation=talk)
    assert texts(await sqlite.open(talk)) == ["one", "a", "three", "b"]
    other.close()


async def test_a_database_locked_for_a_moment_is_waited_for(file: Path, talk: str) -> None:
    async with SQLStore(f"sqlite:///{file}", busy_timeout=20) as store:
        await store.open(talk)
        other = sqlite3.connect(file, isolation_level=None, check_same_thread=False)
        other.execute("BEGIN IMMEDIATE")
        chat = asyncio.create_task(
            Agent(ScriptedModel("a"), store=store).chat("one", conversation=talk)
        )
        await asyncio.sleep(0.05)
        assert not chat.done()
        other.execute("ROLLBACK")
        other.close()
        assert (await chat).text == "a"


async def test_locked_in_mid_chat_the_result_of_a_tool_is_not_lost(
    file: Path, talk: str, sqlite: SQLStore
) -> None:
    """A tool has run, its result cannot be written: the chat fails, and it does not run again."""
    runs = 0
    other = sqlite3.connect(file, isolation_level=None)

    async def work() -> str:
        """Work."""
        nonlocal runs
        runs += 1
        other.execute("BEGIN IMMEDIATE")
        return "worked"

    agent = Agent(ScriptedModel(call("work"), "b"), tools=[work], store=sqlite)
    agent.add_hook("onChatError", lambda ctx: None)
    with pytest.raises(StoreError, match="locked"):
        await agent.chat("one", conversation=talk)
    other.execute("ROLLBACK")
    other.close()
    found = await sqlite.open(talk)
    assert [message.role for message in found.messages] == ["user", "assistant", "tool"]
    assert "may have run" in found.messages[-1].text
    await agent.chat("two", conversation=talk)  # its lease was not released, and is known as ended
    assert runs == 1


# ── clocks and leases ───────────────────────────────────────────────────────────────────────


class Clock:
    def __init__(self) -> None:
        self.now = 1_000_000.0

    def __call__(self) -> float:
        return self.now


async def test_a_dead_owners_lease_is_taken_over_when_it_has_run_out(file: Path, talk: str) -> None:
    clock = Clock()
    async with SQLStore(f"sqlite:///{file}", clock=clock) as store:
        await store.acquire(talk, "dead")
        clock.now += 29
        with pytest.raises(ConversationBusyError):
            await store.acquire(talk, "heir")
        assert (await store.load(talk)).owner == "dead"
        clock.now += 2
        assert (await store.load(talk)).owner is None
        await store.acquire(talk, "heir")
        assert await store.renew(talk, "dead") is False
        change = Change(owner="dead", expected=0, place=0, messages=(user("late"),))
        with pytest.raises(ConversationConflictError, match="taken over"):
            await store.append(talk, change)
        assert (await store.load(talk)).messages == ()


async def test_a_clock_that_jumps_back_does_not_lock_a_dead_chats_conversation(
    file: Path, talk: str
) -> None:
    """The expiry seems to be hours away: whoever watches for a lease's length may take it."""
    clock = Clock()
    async with SQLStore(f"sqlite:///{file}", clock=clock, lease=0.2) as store:
        await store.acquire(talk, "dead")
        clock.now -= 7200
        begin = time.monotonic()
        with pytest.raises(ConversationBusyError):
            await store.acquire(talk, "heir")
        while True:
            try:
                await store.acquire(talk, "heir")
                break
            except ConversationBusyError:
                await asyncio.sleep(0.01)
        assert time.monotonic() - begin >= 0.2  # no sooner


async def test_a_clock_that_jumps_back_takes_nothing_from_the_living(file: Path, talk: str) -> None:
    clock = Clock()
    async with SQLStore(f"sqlite:///{file}", clock=clock, lease=0.3) as store:
        await store.acquire(talk, "alive")
        clock.now -= 7200
        for _ in range(12):
            with pytest.raises(ConversationBusyError):
                await store.acquire(talk, "heir")
            assert await store.renew(talk, "alive") is True
            await asyncio.sleep(0.05)


async def test_messages_stay_in_order_whatever_the_clock_says(file: Path, talk: str) -> None:
    clock = Clock()
    async with SQLStore(f"sqlite:///{file}", clock=clock) as store:
        agent = Agent(ScriptedModel("a", "b", "c"), store=store)
        for text in ("one", "two", "three"):
            await agent.chat(text, conversation=talk)
            clock.now -= 5000
        assert texts(await store.open(talk)) == ["one", "a", "two", "b", "three", "c"]


class StoodStillError(Exception):
    """The machine did nothing for half of a lease: what comes of that is no fault of a store."""


async def test_a_long_chat_keeps_its_lease(database: str, talk: str) -> None:
    """Its lease is renewed while a model thinks for several lengths of it."""

    async def keeps(lease: float, talk: str) -> bool:
        async with SQLStore(database, lease=lease) as store:

            class Slow:
                async def stream(self, request: Any) -> Any:
                    for _ in range(12):
                        begin = time.monotonic()
                        await asyncio.sleep(lease / 5)
                        try:
                            await store.acquire(talk, "heir")
                        except ConversationBusyError:
                            continue
                        if time.monotonic() - begin > lease / 2:
                            raise StoodStillError
                        pytest.fail("the lease was free while the chat ran")
                    async for chunk in ScriptedModel("ok").stream(request):
                        yield chunk

            try:
                await Agent(Slow(), store=store).chat("hi", conversation=talk)
            except (StoodStillError, ConversationConflictError):
                return False
            await store.acquire(talk, "heir")  # and it is given back
            return True

    leases = (0.6, 2.4, 9.6)  # the longer ones for a machine that stands still at times
    for number, lease in enumerate(leases):
        if await keeps(lease, f"{talk}.{number}"):
            return
    pytest.fail("the machine stood still each time")


async def test_a_chat_that_has_lost_its_lease_stops(base: SQLStore, talk: str) -> None:
    """It was taken over (the process had slept): nothing more of it runs or is written."""
    ran: list[str] = []

    async def work() -> str:
        """Work."""
        ran.append("work")
        return "worked"

    agent = Agent(ScriptedModel(call("work"), "b"), tools=[work], store=base)

    async def take_over(ctx: Any) -> None:
        await base.release(talk, (await base.load(talk)).owner)
        await base.acquire(talk, "heir")

    agent.add_hook("onResponse", take_over)
    with pytest.raises(ConversationConflictError, match="taken over"):
        await agent.chat("one", conversation=talk)
    assert ran == []
    assert [m.text for m in (await base.load(talk)).messages] == ["one"]
    assert (await base.load(talk)).owner == "heir"


async def test_a_lost_lease_is_noticed_while_a_model_thinks(database: str, talk: str) -> None:
    async with SQLStore(database, lease=0.15) as store:

        class Thinking:
            async def stream(self, request: Any) -> Any:
                await execute(database, "UPDATE hookline_conversation SET owner = 'heir'")
                await asyncio.Event().wait()
                yield

        with pytest.raises(ConversationConflictError, match="taken over"):
            await Agent(Thinking(), store=store).chat("one", conversation=talk)


# ── two that write ──────────────────────────────────────────────────────────────────────────


async def test_of_two_that_append_at_the_same_place_one_does(database: str, talk: str) -> None:
    async with SQLStore(database) as one, SQLStore(database) as two:
        await one.acquire(talk, "same")  # one owner, twice: the lease lets both
        for place in range(10):

            async def append(store: SQLStore, text: str, place: int = place) -> bool:
                message = user(text, f"{text}{place}")
                change = Change(owner="same", expected=place, place=place, messages=(message,))
                try:
                    await store.append(talk, change)
                except ConversationConflictError:
                    return False
                return True

            assert sorted(await asyncio.gather(append(one, "a"), append(two, "b"))) == [False, True]
        assert len((await one.load(talk)).messages) == 10


# ── approvals ───────────────────────────────────────────────────────────────────────────────


def asking(store: Any, ran: list[str], *turns: Any, **ask: Any) -> Agent[Any]:
    async def delete(path: str) -> str:
        """Delete a file."""
        ran.append(path)
        return f"{path} is gone"

    agent: Agent[Any] = Agent(ScriptedModel(*turns), tools=[delete], store=store)
    agent.add_hook("preToolCall", lambda ctx: Ask("sure?", **ask))
    return agent


async def test_what_waits_can_be_listed(store: Any, talk: str) -> None:
    agent = asking(store, [], [call("delete", path="a"), call("delete", path="b")])
    response = await agent.chat("go", conversation=talk)
    assert await store.pending(talk) == response.pending
    assert len(response.pending) == 2
    assert [r.id for r in await store.pending() if r.conversation_id == talk] == [
        r.id for r in response.pending
    ]
    assert [info.waits for info in await store.list(limit=1000) if info.id == talk] == [True]
    assert (await store.open(talk)).pending == response.pending


async def test_some_answers_leave_the_rest_waiting(store: Any, talk: str) -> None:
    ran: list[str] = []
    agent = asking(store, ran, [call("delete", path=p) for p in "abc"], "Done.")
    first, second, third = (await agent.chat("go", conversation=talk)).pending
    response = await agent.resume(talk, {second.id: Approve()})
    assert ran == ["b"]
    assert [r.call for r in response.pending] == [first.call, third.call]
    assert [r.call for r in await store.pending(talk)] == [first.call, third.call]
    with pytest.raises(ApprovalError):
        await agent.resume(talk, {second.id: Approve()})
    answers = {r.id: d for r, d in zip(response.pending, (Deny("no"), Approve()), strict=True)}
    response = await agent.resume(talk, answers)
    assert (response.text, ran) == ("Done.", ["b", "c"])
    assert await store.pending(talk) == ()
    outcomes = {m.call_id: m.outcome for m in (await store.open(talk)).messages if m.role == "tool"}
    assert sorted(outcomes.values()) == ["denied", "ok", "ok"]


async def test_edited_arguments_run_validated_and_are_shown(store: Any, talk: str) -> None:
    ran: list[str] = []
    agent = asking(store, ran, call("delete", path="a"), "Done.", call("delete", path="b"), "Hm.")
    seen: list[Any] = []
    agent.add_hook("onApproval", lambda ctx: seen.append(ctx.decision))
    agent.add_hook("onToolCallResult", lambda ctx: seen.append(ctx.call.arguments))
    (request,) = (await agent.chat("go", conversation=talk)).pending
    edited = Approve(arguments={"path": "other"})
    await agent.resume(talk, {request.id: edited})
    assert ran == ["other"]
    assert seen == [None, edited, {"path": "other"}]
    (request,) = (await agent.chat("go", conversation=talk)).pending
    await agent.resume(talk, {request.id: Approve(arguments={"path": 7})})
    assert ran == ["other"]
    assert (await store.open(talk)).messages[-2].outcome == "error"


@pytest.mark.parametrize("wrong", ["unknown", "foreign", "none", "expired", "edited"])
async def test_a_wrong_answer_is_an_error_and_runs_nothing(
    store: Any, talk: str, wrong: str
) -> None:
    ran: list[str] = []
    expires = -1.0 if wrong == "expired" else None
    agent = asking(store, ran, call("delete", path="a"), call("delete", path="b"), expires=expires)
    (request,) = (await agent.chat("go", conversation=talk)).pending
    (other,) = (await agent.chat("go", conversation=f"{talk}-other")).pending
    answers: dict[str, Any] = {
        "unknown": {"no-such-id": Approve()},
        "foreign": {other.id: Approve()},
        "none": {},
        "expired": {request.id: Approve()},
        "edited": {request.id: Approve(arguments=["path"])},  # type: ignore[arg-type]
    }
    before = await store.load(talk)
    with pytest.raises(ApprovalError):
        await agent.resume(talk, answers[wrong])
    assert ran == []
    assert await store.load(talk) == before
    assert [r.id for r in await store.pending(talk)] == [request.id]


async def test_a_call_that_was_changed_in_the_store_does_not_run(
    base: SQLStore, database: str, talk: str
) -> None:
    ran: list[str] = []
    agent = asking(base, ran, call("delete", path="a.txt"))
    (request,) = (await agent.chat("go", conversation=talk)).pending
    await execute(
        database,
        "UPDATE hookline_conversation SET pending = replace(pending, 'a.txt', 'b.txt') "
        f"WHERE id = '{talk}'",
    )
    with pytest.raises(ApprovalError, match="was changed after the request"):
        await agent.resume(talk, {request.id: Approve()})
    assert ran == []


async def test_a_new_chat_denies_what_waits(store: Any, talk: str) -> None:
    ran: list[str] = []
    agent = asking(store, ran, call("delete", path="a"), "Then not.")
    (request,) = (await agent.chat("go", conversation=talk)).pending
    await agent.chat("never mind", conversation=talk)
    assert await store.pending(talk) == ()
    with pytest.raises(ApprovalError):
        await agent.resume(talk, {request.id: Approve()})
    assert ran == []
    roles = [message.role for message in (await store.open(talk)).messages]
    assert roles == ["user", "assistant", "tool", "user", "assistant"]


async def test_an_answer_whose_chat_was_aborted_before_its_tool_began_is_given_back(
    store: Any, talk: str
) -> None:
    ran: list[str] = []
    agent = asking(store, ran, [call("delete", path="a"), call("delete", path="b")], "Done.")
    first, second = (await agent.chat("go", conversation=talk)).pending
    dispose = agent.add_hook("onApproval", lambda ctx: ctx.run.abort("enough") and None)
    with pytest.raises(Exception, match="aborted"):
        await agent.resume(talk, {first.id: Approve()})
    assert ran == []
    assert await store.pending(talk) == (first, second)
    dispose()
    await agent.resume(talk, {request.id: Approve() for request in (first, second)})
    assert sorted(ran) == ["a", "b"]


@pytest.mark.slow
@pytest.mark.parametrize("count", [1, 2])
async def test_an_abort_at_any_await_of_a_resume_runs_the_tool_or_gives_the_answer_back(
    store: Any, count: int
) -> None:
    """The abort comes after more and more turns of the event loop, until the chat is faster.

    In memory each await is tried; a chat takes hundreds of turns in a database.
    """
    turns = 0
    while True:
        talk, ran = f"talk-{turns}", list[str]()
        paths = [f"{number}" for number in range(count)]
        agent = asking(store, ran, [call("delete", path=path) for path in paths], "Done.", "Done.")
        pending = (await agent.chat("go", conversation=talk)).pending
        stream = agent.resume_stream(talk, {each.id: Approve() for each in pending})
        answer = asyncio.create_task(collect(stream))
        for _ in range(turns):
            await asyncio.sleep(0)
        over = answer.done()
        stream.abort("a deploy")
        await asyncio.gather(answer, return_exceptions=True)
        again = await store.open(talk)
        waiting = await store.pending(talk)
        assert {each.id for each in waiting} <= {each.id for each in pending}
        assert again.pending == waiting
        assert sorted([*ran, *(each.call.arguments["path"] for each in waiting)]) == paths
        assert "may have run" not in str(again.messages)
        if waiting:
            await agent.resume(talk, {each.id: Approve() for each in waiting})
            assert sorted(ran) == paths
        check_history((await store.open(talk)).messages)
        if over:
            return
        turns += 1 if isinstance(store, MemoryStore) else 1 + turns // 3


async def test_a_chat_that_died_before_its_approved_tool_began_leaves_the_question_waiting(
    base: SQLStore, talk: str
) -> None:
    ran: list[str] = []
    agent = asking(base, ran, call("delete", path="a"), "Done.")
    (request,) = (await agent.chat("go", conversation=talk)).pending
    stored = await base.load(talk)
    assert stored is not None
    assert stored.pending is not None
    await base.acquire(talk, "dead")
    claimed = stored.pending.replace(claimed_by="dead", answer_ids=(request.id,), begun_ids=())
    change = Change(
        owner="dead", expected=stored.version, place=len(stored.messages), pending=claimed
    )
    await base.append(talk, change)
    assert await base.pending(talk) == ()  # nobody else is asked while the chat runs
    await base.release(talk, "dead")  # and no further word of it
    assert await base.pending(talk) == (request,)
    assert (await agent.resume(talk, {request.id: Approve()})).text == "Done."
    assert ran == ["a"]


async def test_partial_answers_of_a_chat_that_died_leave_the_rest_waiting(
    base: SQLStore, database: str, talk: str
) -> None:
    """The claimed call may have run: it is closed. The other question still waits."""
    ran: list[str] = []
    agent = asking(base, ran, [call("delete", path="a"), call("delete", path="b")], "Done.")
    first, second = (await agent.chat("go", conversation=talk)).pending
    stored = await base.load(talk)
    assert stored is not None
    assert stored.pending is not None
    await base.acquire(talk, "dead")
    claimed = stored.pending.replace(claimed_by="dead", answer_ids=(first.id,))
    change = Change(
        owner="dead", expected=stored.version, place=len(stored.messages), pending=claimed
    )
    await base.append(talk, change)
    await base.release(talk, "dead")
    assert [r.id for r in await base.pending(talk)] == [second.id]
    with pytest.raises(ApprovalError):
        await agent.resume(talk, {first.id: Approve()})
    response = await agent.resume(talk, {second.id: Approve()})
    assert (response.text, ran) == ("Done.", ["b"])
    results = {m.call_id: m.outcome for m in (await base.open(talk)).messages if m.role == "tool"}
    assert results == {first.call.id: "aborted", second.call.id: "ok"}


async def test_a_store_that_fails_at_the_claim_runs_nothing_and_keeps_the_question(
    talk: str,
) -> None:
    class Failing(MemoryStore):
        fail = False

        async def append(self, conversation_id: str, change: Change) -> int:
            if self.fail:
                raise StoreError("no")
            return await super().append(conversation_id, change)

    ran: list[str] = []
    store = Failing()
    agent = asking(store, ran, call("delete", path="a"), "Done.")
    (request,) = (await agent.chat("go", conversation=talk)).pending
    opened = await store.open(talk)
    store.fail = True
    with pytest.raises(StoreError):
        await agent.resume(opened, {request.id: Approve()})
    assert ran == []
    store.fail = False
    assert (await agent.resume(opened, {request.id: Approve()})).text == "Done."
    assert ran == ["a"]


# ── PostgreSQL goes away ────────────────────────────────────────────────────────────────────


def _binary(name: str) -> str | None:
    found = shutil.which(name)
    places = sorted(Path("/usr/lib/postgresql").glob(f"*/bin/{name}"))
    return found or (str(places[-1]) if places else None)


class Cluster:
    """A PostgreSQL server of our own, that may be stopped."""

    def __init__(self, directory: Path, port: int) -> None:
        self.directory = directory
        self.port = port
        self.url = f"postgresql://postgres@127.0.0.1:{port}/postgres"
        self.tls = False

    def ctl(self, *arguments: str) -> None:
        options = f"-p {self.port} -c listen_addresses=127.0.0.1 -k {self.directory} -c fsync=off"
        more = ["-o", options, "-l", str(self.directory / "log")]
        command = [str(_binary("pg_ctl")), "-D", str(self.directory / "data"), "-w", *more]
        self.run(*command, *arguments)

    def certify(self) -> None:
        """Let it speak TLS, with a certificate of its own."""
        openssl = shutil.which("openssl")
        if openssl is None:
            return
        data = self.directory / "data"
        files = ["-keyout", f"{data}/server.key", "-out", f"{data}/server.crt"]
        kind = ["-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=localhost"]
        self.run(openssl, "req", *kind, *files)
        with (data / "postgresql.conf").open("a") as settings:
            settings.write("ssl = on\n")
        self.tls = True

    def run(self, *command: str) -> None:
        who: Any = {"user": "postgres"} if os.geteuid() == 0 else {}
        subprocess.run(
            command, check=True, stdout=subprocess.DEVNULL, cwd=self.directory, timeout=50, **who
        )


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    if _binary("initdb") is None or _binary("pg_ctl") is None:
        pytest.skip("PostgreSQL's initdb and pg_ctl are not installed here")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    import tempfile

    with tempfile.TemporaryDirectory(prefix="hkpg", ignore_cleanup_errors=True) as place:
        directory = Path(place)
        directory.chmod(0o777)
        made = Cluster(directory, port)
        data = str(directory / "data")
        made.run(str(_binary("initdb")), "-D", data, "-A", "trust", "-U", "postgres", "-N")
        made.certify()
        made.ctl("start")
        yield made
        made.ctl("-m", "immediate", "stop")


async def test_the_url_of_a_hosted_service_works_with_its_sslmode(
    cluster: Cluster, talk: str
) -> None:
    if not cluster.tls:
        pytest.skip("openssl, which makes a certificate, is not installed here")
    async with SQLStore(f"{cluster.url}?sslmode=require&application_name={talk}") as store:
        await Agent(ScriptedModel("a"), store=store).chat("one", conversation=talk)
        async with store._database.engine.connect() as connection:
            used = "SELECT ssl, application_name FROM pg_stat_ssl JOIN pg_stat_activity USING (pid)"
            rows = await connection.exec_driver_sql(f"{used} WHERE pid = pg_backend_pid()")
            assert tuple(rows.one()) == (True, talk)


async def restarts(cluster: Cluster, mode: str) -> None:
    await asyncio.to_thread(cluster.ctl, "-m", mode, "restart")


@pytest.mark.parametrize("mode", ["fast", "immediate"])
async def test_a_server_that_is_restarted_in_mid_chat_is_found_again(
    cluster: Cluster, talk: str, mode: str
) -> None:
    """Between two messages, and with the connection in the pool: nothing is lost or doubled."""
    runs = 0

    async def work() -> str:
        """Work while the server is restarted."""
        nonlocal runs
        runs += 1
        await restarts(cluster, mode)
        return "worked"

    async with SQLStore(cluster.url) as store:
        model = ScriptedModel(call("work"), call("work"), "Done.", "Again.")
        agent = Agent(model, tools=[work], store=store)
        response = await agent.chat("go", conversation=talk)
        assert (response.text, runs) == ("Done.", 2)
        await agent.chat("on", conversation=talk)
        found = await store.open(talk)
        assert texts(found)[-3:] == ["Done.", "on", "Again."]
        assert len(found.messages) == 8
        assert len({message.id for message in found.messages}) == 8


async def test_a_server_restarted_under_many_writes_doubles_nothing(
    cluster: Cluster, talk: str
) -> None:
    """Chats all the while: each write that was cut off is found out about, and made once."""
    async with SQLStore(cluster.url, reconnect=30) as store:
        stop = asyncio.Event()

        async def chat(number: int) -> int:
            agent = Agent(ScriptedModel(*["ok"] * 10_000), store=store)
            while not stop.is_set():
                await agent.chat(f"{number} {done[number]}", conversation=f"{talk}-{number}")
                done[number] += 1
                told[number].set()
            return done[number]

        done = [0] * 4
        told = [asyncio.Event() for _ in range(4)]
        async with asyncio.TaskGroup() as group:  # a chat that fails ends the test
            chats = [group.create_task(chat(number)) for number in range(4)]
            for mode in ("fast", "immediate", "immediate", "fast"):
                await restarts(cluster, mode)
                for number in range(4):
                    told[number].clear()
                    await told[number].wait()
            stop.set()
        counts = [each.result() for each in chats]
        assert min(counts) >= 4
        for number, count in enumerate(counts):
            expected = [t for n in range(count) for t in (f"{number} {n}", "ok")]
            assert texts(await store.open(f"{talk}-{number}")) == expected


async def test_a_server_that_stays_away_is_told_and_the_next_chat_goes_on(
    cluster: Cluster, talk: str
) -> None:
    async def work() -> str:
        """Stop the server."""
        await asyncio.to_thread(cluster.ctl, "-m", "fast", "stop")
        return "worked"

    async with SQLStore(cluster.url, reconnect=0.3, lease=1) as store:
        agent = Agent(ScriptedModel(call("work"), "ok"), tools=[work], store=store)
        try:
            with pytest.raises(StoreError, match="check that it runs"):
                await agent.chat("go", conversation=talk)
        finally:
            await asyncio.to_thread(cluster.ctl, "start")
        found = await store.open(talk)
        assert texts(found)[:1] == ["go"]
        deadline = time.monotonic() + 30
        while True:
            try:
                assert (await agent.chat("on", conversation=talk)).text == "ok"
                break
            except ConversationBusyError:  # its release did not reach the server
                assert time.monotonic() < deadline
                await asyncio.sleep(0.1)
        found = await store.open(talk)
        assert [message.role for message in found.messages] == [
            "user", "assistant", "tool", "user", "assistant",
        ]  # fmt: skip


@pytest.mark.slow
async def test_a_chat_aborted_while_the_server_is_away_is_closed_when_it_is_back(
    cluster: Cluster, talk: str
) -> None:
    """The grace period ends long before the store gives up: a server may start slowly."""
    away = asyncio.Event()

    async def work() -> str:
        """Stop the server and never end."""
        await asyncio.to_thread(cluster.ctl, "-m", "fast", "stop")
        away.set()
        await asyncio.Event().wait()
        return "never"

    async with SQLStore(cluster.url, reconnect=60) as store:
        agent = Agent(ScriptedModel(call("work"), "ok"), tools=[work], store=store)
        conversation = Conversation.at(store, talk)
        stream = agent.chat_stream("go", conversation=conversation)
        reading = asyncio.create_task(collect(stream))
        await away.wait()
        try:
            assert stream.abort("enough")
            events = await reading  # the grace period is over, and the server is still away
            assert isinstance(events[-1], ChatAborted)
            with pytest.raises(ConversationBusyError):
                await agent.chat("on", conversation=conversation)
        finally:
            await asyncio.to_thread(cluster.ctl, "start")
        while conversation.busy:  # noqa: ASYNC110 - nothing tells
            await asyncio.sleep(0.05)
        found = await store.open(talk)
        assert [(m.role, getattr(m, "outcome", "")) for m in found.messages] == [
            ("user", ""), ("assistant", ""), ("tool", "aborted"),
        ]  # fmt: skip
        assert (await agent.chat("on", conversation=conversation)).text == "ok"


async def test_no_server_is_told_with_where(talk: str) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        url = f"postgresql://somebody:secret@127.0.0.1:{free.getsockname()[1]}/chats"
    async with SQLStore(url, reconnect=0.1) as store:
        with pytest.raises(StoreError) as caught:
            await store.open(talk)
    assert "127.0.0.1" in str(caught.value)
    assert "secret" not in str(caught.value)


# ── what only a store of somebody's own would do ────────────────────────────────────────────


class Unrenewable(MemoryStore):
    """A store whose leases run, and that cannot be reached to renew them."""

    lease = 0.6
    renewals = 0

    async def renew(self, conversation_id: str, owner: str) -> bool:
        self.renewals += 1
        raise StoreError("away")


async def test_a_lease_that_cannot_be_renewed_is_tried_for_then_the_chat_stops(
    talk: str, caplog: pytest.LogCaptureFixture
) -> None:
    class Endless:
        async def stream(self, request: Any) -> Any:
            await asyncio.Event().wait()
            yield

    store = Unrenewable()
    with pytest.raises(StoreError, match="away"):
        await Agent(Endless(), store=store).chat("go", conversation=talk)
    assert store.renewals >= 2  # not given up at the first
    assert "its lease was not renewed: StoreError" in caplog.text
    assert "away" not in caplog.text  # a driver's text may hold hosts and parameters
    assert (await store.load(talk)).owner is None  # type: ignore[union-attr]


class Named(LocalRuntime):
    """A durable runtime that begins a chat of this id again."""

    def __init__(self, name: str, life: str = "2") -> None:
        self.name = name
        self.life = life

    def new_id(self) -> str:
        return self.name


async def test_a_second_life_of_a_resumed_chat_has_its_answers(store: Any, talk: str) -> None:
    """Its first life had claimed them and died: they are its own, and nobody else's."""
    ran: list[str] = []
    agent = asking(store, ran, [call("delete", path="a"), call("delete", path="b")])
    first, second = (await agent.chat("go", conversation=talk)).pending
    stored = await store.load(talk)
    await store.acquire(talk, "resumed/1")
    claimed = stored.pending.replace(claimed_by="resumed", answer_ids=(first.id,))
    change = Change(
        owner="resumed/1", expected=stored.version, place=len(stored.messages), pending=claimed
    )
    await store.append(talk, change)

    async def delete(path: str) -> str:
        """Delete a file."""
        ran.append(path)
        return f"{path} is gone"

    again = Agent(ScriptedModel("Done."), tools=[delete], store=store, runtime=Named("resumed"))
    response = await again.resume(talk, {first.id: Approve()})
    assert ran == ["a"]
    assert [request.call for request in response.pending] == [second.call]
    response = await asking(store, ran, "Done.").resume(talk, {response.pending[0].id: Approve()})
    assert (response.text, ran) == ("Done.", ["a", "b"])


async def test_what_an_earlier_life_wrote_and_a_later_does_not_reach_stays(talk: str) -> None:
    store = MemoryStore()
    await Agent(ScriptedModel("one"), store=store, runtime=Named("chat")).chat(
        "go", conversation=talk
    )
    opened = await store.open(talk)

    def fail(ctx: Any) -> None:
        raise LookupError("no")

    second = Agent(ScriptedModel("two"), store=store, runtime=Named("chat"))
    second.add_hook("onChatStart", fail)
    with pytest.raises(LookupError):
        await second.chat("go", conversation=opened)
    assert texts(opened) == texts(await store.open(talk)) == ["go", "one"]


async def test_a_later_life_takes_the_lease_at_once_and_the_zombie_is_refused(
    store: Any, talk: str
) -> None:
    version = await store.acquire(talk, "chat/1", heir=True)
    for owner, heir in (("chat/2", False), ("cha_/2", True), ("cha/1", True), ("other/1", True)):
        with pytest.raises(ConversationBusyError) as busy:
            await store.acquire(talk, owner, heir=heir)
        assert busy.value.chat_id == "chat"
    assert await store.acquire(talk, "chat/2", heir=True) == version

    def change(owner: str, expected: int) -> Change:
        message = user("hello", f"m{expected}")
        return Change(owner=owner, expected=expected, place=expected, messages=(message,))

    assert await store.renew(talk, "chat/1") is False
    with pytest.raises(ConversationConflictError):
        await store.append(talk, change("chat/1", version))
    await store.release(talk, "chat/1")  # frees nothing
    assert await store.renew(talk, "chat/2") is True
    version = await store.append(talk, change("chat/2", version))
    with pytest.raises(ConversationConflictError):
        await store.update(talk, user("mine", "m0"), owner="chat/1", expected=version)
    with pytest.raises(ConversationBusyError):
        await store.acquire(talk, "chat/1", heir=True)  # it comes back too late
    assert (await store.load(talk)).owner == "chat/2"
    assert texts(await store.open(talk)) == ["hello"]
    assert await store.acquire(talk, "chat/10.a", heir=True) == version
    with pytest.raises(ConversationBusyError):
        await store.acquire(talk, "chat/9.b", heir=True)
    assert await store.acquire(talk, "chat/10.c", heir=True) == version
    await store.release(talk, "chat/10.c")
    assert (await store.load(talk)).owner is None


async def test_a_zombie_stops_and_its_heir_lives(store: Any, talk: str) -> None:
    thinks, think_on = asyncio.Event(), asyncio.Event()

    async def pause() -> None:
        thinks.set()
        await think_on.wait()

    def life(number: str, model: Any) -> Agent[Any]:
        return Agent(model, store=store, runtime=Named("chat", number))

    zombie = life("1", ScriptedModel(Turn("of the zombie", delay=pause)))
    first = asyncio.create_task(zombie.chat("go", conversation=talk))
    await thinks.wait()
    heir = life("2", ScriptedModel("of the heir"))
    assert (await heir.chat("go", conversation=talk)).text == "of the heir"
    think_on.set()
    with pytest.raises(ConversationConflictError):
        await first
    assert texts(await store.open(talk)) == ["go", "of the heir"]
    assert (await Agent(ScriptedModel("on"), store=store).chat("b", conversation=talk)).text == "on"


async def test_a_chat_of_one_life_takes_no_lease_of_the_same_id(store: Any, talk: str) -> None:
    """As when two processes are given one chat_id."""
    await store.acquire(talk, "chat/1")
    with pytest.raises(ConversationBusyError):
        await Agent(ScriptedModel("x"), store=store, runtime=Single("chat")).chat(
            "go", conversation=talk
        )


class Single(LocalRuntime):
    """Names its chats, which have one life each."""

    def __init__(self, name: str) -> None:
        self.name = name

    def new_id(self) -> str:
        return self.name


async def test_a_database_of_the_first_schema_is_migrated_and_goes_on(
    tmp_path: Path, talk: str
) -> None:
    url = f"sqlite:///{tmp_path}/old.db"
    async with SQLStore(url) as store:
        await Agent(ScriptedModel("a"), store=store).chat("one", conversation=talk)
    await execute(url, "ALTER TABLE hookline_conversation DROP COLUMN messages")
    await execute(url, "DROP TABLE hookline_account")
    await execute(url, "DROP INDEX hookline_conversation_prefix")
    await execute(url, "UPDATE hookline_schema SET version = 1")
    async with SQLStore(url) as store:
        await Agent(ScriptedModel("b"), store=store).chat("two", conversation=talk)
        assert texts(await store.open(talk)) == ["one", "a", "two", "b"]
        assert await store.spend("acme", 1) == 1


async def test_a_store_whose_closing_was_cancelled_can_be_closed_again(
    sqlite: SQLStore, talk: str
) -> None:
    await sqlite.load(talk)
    database = sqlite._database
    async with database._lock:  # a write goes on
        closing = asyncio.create_task(sqlite.aclose())
        await asyncio.sleep(0)
        closing.cancel()
        await asyncio.wait([closing])
    assert closing.cancelled()
    await sqlite.aclose()
    assert database.engine.pool.checkedin() == 0  # type: ignore[attr-defined]


async def test_a_second_outage_is_waited_for_like_the_first(talk: str) -> None:
    """Also if nothing was asked while the server was there in between."""
    calls = 0

    async def refuse(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal calls
        calls += 1
        writer.close()

    server = await asyncio.start_server(refuse, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    url = f"postgresql://somebody@127.0.0.1:{port}/chats?sslmode=disable"
    async with server, SQLStore(url, reconnect=0.1) as store:
        for outage in range(2):
            calls = 0
            with pytest.raises(StoreError, match="unreachable"):
                await store.load(talk)
            assert calls > 1, outage
            await asyncio.sleep(0.11)  # longer than `reconnect`, and nobody asks


async def test_an_owner_that_takes_its_lease_again_keeps_it_after_a_failed_release(
    file: Path, sqlite: SQLStore, talk: str
) -> None:
    await sqlite.acquire(talk, "chat/1")
    locked = sqlite3.connect(file, isolation_level=None)
    locked.execute("BEGIN IMMEDIATE")
    with pytest.raises(StoreError, match="locked"):
        await sqlite.release(talk, "chat/1")
    locked.execute("ROLLBACK")
    locked.close()
    await sqlite.acquire(talk, "chat/1")
    assert (await sqlite.load(talk)).owner == "chat/1"  # type: ignore[union-attr]
    with pytest.raises(ConversationBusyError):
        await sqlite.acquire(talk, "other/1")


async def test_what_is_read_while_another_writes_is_of_one_version(
    database: str, talk: str
) -> None:
    async def write(place: int) -> None:
        async with SQLStore(database) as store:
            version = await store.acquire(talk, "w/1")
            change = Change(
                owner="w/1",
                expected=version,
                place=place,
                messages=(user(f"m{place}"),),
                meta={"n": place},
            )
            await store.append(talk, change)
            await store.release(talk, "w/1")

    await write(0)
    async with SQLStore(database) as store:
        await store.load(talk)
        written: list[str] = []

        @event.listens_for(store._database.engine.sync_engine, "after_cursor_execute")
        def between(connection: Any, cursor: Any, statement: str, *more: Any) -> None:
            if not written:  # after the first statement of the next read
                written.append(statement)
                thread = threading.Thread(target=lambda: asyncio.run(write(1)))
                thread.start()
                thread.join()

        found = await store.load(talk)
        assert found is not None
        assert (found.version, len(found.messages), found.meta) == (1, 1, {"n": 0})
        found = await store.load(talk)
        assert found is not None
        assert (found.version, len(found.messages), found.meta) == (2, 2, {"n": 1})


async def test_a_pool_that_is_used_up_names_the_option(database: str, talk: str) -> None:
    async with SQLStore(database, pool_size=1, max_overflow=0, pool_timeout=0.01) as store:
        await store.load(talk)
        async with store._database.engine.connect():
            with pytest.raises(StoreError, match="pool_size="):
                await store.load(talk)


class Refusing(MemoryStore):
    """A store that writes nothing any more."""

    full = False

    async def append(self, conversation_id: str, change: Change) -> int:
        if self.full:
            raise StoreError("disk of secret.example full")
        return await super().append(conversation_id, change)


async def test_the_log_blames_no_hook_where_the_store_has_refused(
    talk: str, caplog: pytest.LogCaptureFixture
) -> None:
    store = Refusing()
    said = asyncio.Event()

    async def pause() -> None:
        if said.is_set():
            await asyncio.Event().wait()
        said.set()

    model = ScriptedModel(Turn("some words of an answer", delay=pause, chunk=4))
    agent = Agent(model, store=store, limits=Limits(grace=0.05))
    stream = agent.chat_stream("a", conversation=talk)
    reading = asyncio.create_task(collect(stream))
    await said.wait()
    for _ in range(10):
        await asyncio.sleep(0)
    store.full = True
    stream.abort("the user's own words")
    await asyncio.wait([reading], timeout=10)
    assert "its partial answer was not kept: StoreError" in caplog.text
    assert "hook " not in caplog.text
    assert "secret.example" not in caplog.text
    assert "own words" not in caplog.text


# ── slower than the grace period ────────────────────────────────────────────────────────────


class Slow(MemoryStore):
    """Its calls of one kind hang from the nth on, until they are let go."""

    def __init__(self, kind: str, nth: int) -> None:
        super().__init__()
        self.kind = kind
        self.left = nth
        self.hangs = asyncio.Event()
        self.let_go = asyncio.Event()

    async def _pass(self, kind: str) -> None:
        self.left -= kind == self.kind
        if kind == self.kind and self.left <= 0:
            self.hangs.set()
            await self.let_go.wait()

    async def acquire(self, conversation_id: str, owner: str, **more: Any) -> int:
        await self._pass("acquire")
        return await super().acquire(conversation_id, owner, **more)

    async def load(self, conversation_id: str) -> Any:
        await self._pass("load")
        return await super().load(conversation_id)

    async def append(self, conversation_id: str, change: Change) -> int:
        await self._pass("append")
        return await super().append(conversation_id, change)

    async def release(self, conversation_id: str, owner: str) -> None:
        await self._pass("release")
        await super().release(conversation_id, owner)


@pytest.mark.parametrize(
    ("kind", "nth"),
    [("acquire", 1), ("load", 1), ("append", 1), ("append", 2), ("append", 3), ("append", 4)],
    ids=["the lease", "what stands there", "the user's", "the calls", "a result", "the last"],
)
async def test_no_step_stays_open_and_no_conversation_is_free_before_a_slow_store_has_answered(
    talk: str, kind: str, nth: int
) -> None:
    store = Slow("none", nth)
    model = ScriptedModel("hello", call("look"), "one", repeat=True)
    agent = Agent(model, tools=[look], store=store, limits=Limits(grace=0.05))
    await agent.chat("before", conversation=talk)
    store.kind = kind
    conversation = Conversation.at(store, talk)
    stream = agent.chat_stream("a", conversation=conversation)
    reading = asyncio.create_task(collect(stream))
    await store.hangs.wait()
    stream.abort()
    await asyncio.wait([reading], timeout=10)
    assert reading.done()
    assert conversation.busy
    with pytest.raises(ConversationBusyError):
        await agent.chat("b", conversation=conversation)

    store.kind = "none"
    store.let_go.set()
    await free(conversation)
    stored = await store.load(talk)
    assert stored is not None
    assert stored.owner is None
    check_history(stored.messages)  # no call is without a result
    assert conversation.messages in ((), stored.messages)  # it was read, or it was not
    await agent.chat("b", conversation=conversation)
    for request in model.requests:
        check_history(request.messages)


def look() -> str:
    """Look."""
    return "seen"
