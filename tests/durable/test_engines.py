"""Durable chats on each engine: over restarts, kills, waits, and answers from other processes."""

from __future__ import annotations

import asyncio
import random
import sqlite3
import time
from argparse import Namespace
from collections import Counter
from contextlib import closing
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
from tests._recording import Model
from tests.durable import kills
from tests.durable._engines import Engine

from hookline import (
    Agent,
    Approve,
    Ask,
    Conversation,
    Deny,
    LocalRuntime,
    Text,
    Usage,
    UserMessage,
    check_history,
    tool,
)
from hookline.durable import Client
from hookline.errors import (
    ApprovalError,
    ChatAbortedError,
    ConversationBusyError,
    RemoteChatError,
    UsageError,
)
from hookline.models import Finish, TextChunk
from hookline.runtimes import Durable, Halted, Journal, Log
from hookline.storage import Rule
from hookline.stores import SQLStore
from hookline.testing import ScriptedModel, call

ROOT = Path(__file__).parents[2]


def asking(ran: list[str], *turns: Any, store: Any = None, **ask: Any) -> Agent[Any]:
    @tool
    async def delete(path: str) -> str:
        """Delete a file."""
        ran.append(path)
        return f"{path} is gone"

    model = ScriptedModel(*turns)
    made: Agent[Any] = Agent(model, tools=[delete], runtime=Durable(), store=store)
    made.add_hook("preToolCall", lambda ctx: Ask("Really?", **ask))
    return made


async def waits(client: Client, chat_id: str) -> str:
    """The id of what waits there, once it does."""
    return (await waits_for(client, chat_id, 1))[0]


async def waits_for(client: Client, chat_id: str, count: int) -> list[str]:
    """The ids of so many requests, once they wait there."""
    while True:
        pending = await client.pending(chat_id)
        if len(pending) >= count:
            return [request.id for request in pending]
        await asyncio.sleep(0.01)


async def test_a_chat_is_started_and_awaited_by_its_id(engine: Engine, client: Client) -> None:
    async with engine.worker(Agent(ScriptedModel("Hello."), runtime=Durable())):
        id = await client.start("Hi.")
        response = await client.result(id)
    assert (response.text, response.chat_id) == ("Hello.", id)
    assert [message.role for message in response.messages] == ["user", "assistant"]


async def test_an_abort_whose_reason_is_not_unicode_is_recorded(
    engine: Engine, client: Client
) -> None:
    aborts: list[bool] = []
    agent: Agent[Any] = Agent(ScriptedModel("Hello."), runtime=Durable())
    agent.add_hook("onChatStart", lambda ctx: aborts.append(ctx.run.abort("\udc80")))
    async with engine.worker(agent):
        with pytest.raises(ChatAbortedError):
            await client.result(await client.start("Hi."))
    assert aborts == [True]


async def test_a_reason_that_is_not_unicode_is_refused(client: Client) -> None:
    with pytest.raises(UsageError, match="must be text"):
        await client.abort("one", "\udc80")


async def test_a_question_that_is_not_unicode_can_be_answered(
    engine: Engine, client: Client
) -> None:
    ran: list[str] = []
    agent = asking(ran, call("delete", path="a"), "Done.")
    agent.add_hook("preToolCall", lambda ctx: Ask("Really \udc80?"))
    async with engine.worker(agent):
        id = await client.start("Delete a.")
        await client.answer(id, {await waits(client, id): Approve()})
        assert (await client.result(id)).text == "Done."
    assert ran == ["a"]


async def test_deps_that_raise_cancelled_error_uncancelled_fail_the_chat(
    engine: Engine, client: Client
) -> None:
    """They awaited something that was cancelled: nobody cancelled the chat."""

    async def make(data: Any) -> Any:
        await asyncio.sleep(0)
        raise asyncio.CancelledError

    async with engine.worker(Agent(ScriptedModel("Hello."), runtime=Durable()), deps=make):
        with pytest.raises(RemoteChatError, match="raised CancelledError, but"):
            await client.result(await client.start("Hi."))


async def test_a_worker_stops_while_deps_are_made(engine: Engine, client: Client) -> None:
    begun, cancelled = asyncio.Event(), asyncio.Event()

    async def make(data: Any) -> Any:
        begun.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            cancelled.set()
            raise

    agent: Agent[Any] = Agent(ScriptedModel("Hello."), runtime=Durable())
    async with engine.worker(agent, deps=make):
        id = await client.start("Hi.")
        await begun.wait()
    assert cancelled.is_set()
    async with engine.worker(agent):
        assert (await client.result(id)).text == "Hello."


async def test_one_id_is_one_chat(engine: Engine, client: Client) -> None:
    model = ScriptedModel("Hello.")
    async with engine.worker(Agent(model, runtime=Durable())):
        for _ in range(3):
            assert await client.start("Hi.", chat_id="one") == "one"
        assert (await client.result("one")).text == "Hello."
        await client.start("Hi again.", chat_id="one")
        assert (await client.result("one")).text == "Hello."
    assert len(model.requests) == 1


async def test_many_starts_of_one_id_at_once_are_one_chat(engine: Engine, client: Client) -> None:
    model = ScriptedModel("Hello.")
    async with engine.worker(Agent(model, runtime=Durable())), engine.client() as other:
        starts = [each.start("Hi.", chat_id="one") for each in (client, other) for _ in range(5)]
        assert set(await asyncio.gather(*starts)) == {"one"}
        assert (await other.result("one")).text == "Hello."
    assert len(model.requests) == 1


async def test_a_chat_that_waits_holds_no_worker_and_goes_on_when_it_is_answered(
    engine: Engine, client: Client
) -> None:
    ran: list[str] = []
    agent = asking(ran, call("delete", path="a"), "Done.")
    async with engine.worker(agent) as first:
        id = await client.start("Delete a.")
        request = await waits(client, id)
        await engine.at_rest(first)
    assert ran == []
    async with engine.worker(agent):
        await client.answer(id, {request: Approve()})
        assert (await client.result(id)).text == "Done."
    assert ran == ["a"]
    with pytest.raises(ApprovalError, match="has no pending approval"):
        await client.answer(id, {request: Approve()})


@pytest.mark.parametrize("id", ["", "a/b", "../x", "a?b", "\N{SNOWMAN}", "\ud800", "a\0b", None])
async def test_what_cannot_be_the_id_of_a_chat_is_refused(client: Client, id: Any) -> None:
    """It may come from a browser, and is a part of the path at Restate."""
    calls: list[Any] = [client.start("Hi.", chat_id=id)] if id is not None else []
    calls += [client.pending(id), client.answer(id, {"q": Approve()}), client.abort(id)]
    for each in (*calls, client.result(id)):
        with pytest.raises(UsageError, match="must be 1 to 64 characters"):
            await each


async def test_an_answer_counts_once_and_to_nothing_else(engine: Engine, client: Client) -> None:
    ran: list[str] = []
    async with engine.worker(asking(ran, call("delete", path="a"), "Done.")):
        id = await client.start("Delete a.")
        request = await waits(client, id)
        for wrong in ("another", f"{request}x"):
            with pytest.raises(ApprovalError):
                await client.answer(id, {request: Approve(), wrong: Approve()})  # all or none
        with pytest.raises(ApprovalError, match="must be Approve"):
            await client.answer(id, {request: True})  # type: ignore[dict-item]
        for unreadable in (Deny(None), Approve(arguments={"path": object()})):  # type: ignore[arg-type]
            with pytest.raises(ApprovalError, match="cannot be stored"):
                await client.answer(id, {request: unreadable})
        assert [each.id for each in await client.pending(id)] == [request]
        await client.answer(id, {request: Deny("no")})
        with pytest.raises(ApprovalError):
            await client.answer(id, {request: Approve()})
        await client.result(id)
    assert ran == []


async def test_a_question_that_expires_is_denied_though_nobody_held_it(
    engine: Engine, client: Client
) -> None:
    ran: list[str] = []
    async with engine.worker(asking(ran, call("delete", path="a"), "Done.", expires=0.3)):
        id = await client.start("Delete a.")
        request = await waits(client, id)
        response = await client.result(id)
        with pytest.raises(ApprovalError):
            await client.answer(id, {request: Approve()})
    assert ran == []
    assert "expired" in response.messages[2].text


async def test_a_chat_is_aborted_by_its_id_while_it_runs_or_waits(
    engine: Engine, client: Client
) -> None:
    ran: list[str] = []
    async with engine.worker(asking(ran, call("delete", path="a"), "Done.")) as running:
        id = await client.start("Delete a.")
        await waits(client, id)
        await engine.at_rest(running)
        assert await client.abort(id, "the user") is True
        with pytest.raises(ChatAbortedError) as caught:
            await client.result(id)
        assert caught.value.reason == "the user"
        check_history(caught.value.partial)
        assert await client.abort(id) is False
    assert ran == []


async def test_a_chat_that_waits_holds_its_conversation(
    tmp_path: Path, engine: Engine, client: Client
) -> None:
    """Nobody renews its lease meanwhile; the question in the store stays its own."""
    ran: list[str] = []

    @tool
    async def delete(path: str) -> str:
        """Delete a file."""
        ran.append(path)
        return f"{path} is gone"

    now = [1000.0]
    url = f"sqlite:///{tmp_path}/chats.db"
    async with SQLStore(url, clock=lambda: now[0]) as store:
        model = ScriptedModel(call("delete", path="a"), "Done.")
        agent: Agent[Any] = Agent(model, tools=[delete], runtime=Durable(), store=store)
        agent.add_hook("preToolCall", lambda ctx: Ask("Really?"))
        other = Agent(ScriptedModel("Hello."), store=store)
        async with engine.worker(agent) as running:
            id = await client.start("Delete a.", conversation="talk")
            request = await waits(client, id)
            await engine.at_rest(running)
            now[0] += 1000  # its lease has run out
            assert [each.id for each in await store.pending()] == [request]
            for attempt in (
                other.chat("Hi.", conversation="talk"),
                other.resume("talk", {request: Approve()}),
            ):
                with pytest.raises(ConversationBusyError, match=r"client\.answer") as busy:
                    await attempt
                assert busy.value.chat_id == id
            assert ran == []
            await client.answer(id, {request: Approve()})
            assert (await client.result(id)).text == "Done."
        assert ran == ["a"]
        assert await store.pending() == ()
        assert (await other.chat("Hi.", conversation="talk")).text == "Hello."


@pytest.mark.parametrize("end", ["answered", "one by one", "aborted"])
@pytest.mark.parametrize("told", ["hook", "rule", "nobody"])
async def test_a_chat_with_two_questions_leaves_its_conversation_free(
    tmp_path: Path, engine: Engine, client: Client, end: str, told: str
) -> None:
    """What is told of one answer takes a while, in which the other one comes."""
    ran: list[str] = []
    async with SQLStore(f"sqlite:///{tmp_path}/chats.db") as store:
        both = [call("delete", path="a"), call("delete", path="b")]
        agent = asking(ran, both, "Done.", store=store)
        if told == "hook":
            agent.add_hook("onApproval", lambda ctx: asyncio.sleep(0.01))
        rule = Rule("delete") if told == "rule" else None
        async with engine.worker(agent):
            id = await client.start("Delete both.", conversation="talk")
            answers = dict.fromkeys(await waits_for(client, id, 2), Approve(remember=rule))
            if end == "aborted":
                assert await client.abort(id)
                with pytest.raises(ChatAbortedError):
                    await client.result(id)
            else:
                for part in [answers] if end == "answered" else [{k: answers[k]} for k in answers]:
                    await client.answer(id, part)
                assert (await client.result(id)).text == "Done."
        assert sorted(ran) == ([] if end == "aborted" else ["a", "b"])
        assert await store.pending() == ()
        other = Agent(ScriptedModel("Hello."), store=store)
        assert (await other.chat("Hi.", conversation="talk")).text == "Hello."


async def test_a_chat_that_fails_is_a_finished_job(engine: Engine, client: Client) -> None:
    agent: Agent[Any] = Agent(ScriptedModel(LookupError("no")), runtime=Durable())
    async with engine.worker(agent):
        id = await client.start("Hi.")
        with pytest.raises(RemoteChatError, match="LookupError") as caught:
            await client.result(id)
    assert (caught.value.chat_id, caught.value.type) == (id, "LookupError")


async def test_deps_are_made_of_the_json_that_a_chat_was_started_with(
    engine: Engine, client: Client
) -> None:
    seen: list[object] = []
    agent: Agent[Any] = Agent(ScriptedModel("Hello."), runtime=Durable())
    agent.add_hook("onChatStart", lambda ctx: seen.append(ctx.run.deps))

    async def make(data: Any) -> Any:
        return {"user": data["user"], "connection": object}

    async with engine.worker(agent, deps=make):
        await client.result(await client.start("Hi.", deps={"user": "ada"}))
    assert seen == [{"user": "ada", "connection": object}]


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"deps": object()}, "must be JSON"),
        ({"system": lambda run: "x"}, "system="),
        ({"model": ScriptedModel("x")}, "model="),
        ({"hooks": [lambda ctx: None]}, "hooks="),
        ({"conversation": 3}, "conversation="),
        ({"settings": {"temperature": 1}}, "settings="),
        ({"limits": {"steps": 1}}, "limits="),
        ({"chat_id": "a/b"}, "chat_id="),
        ({"chat_id": ""}, "chat_id="),
        ({"chat_id": 7}, "chat_id="),
        ({"release": "later"}, "release="),
        ({"release": None}, "release="),
    ],
    ids=lambda value: next(iter(value)) if isinstance(value, dict) else "",
)
async def test_what_a_file_cannot_keep_is_refused_by_name(
    client: Client, options: Any, says: str
) -> None:
    with pytest.raises(UsageError, match=says):
        await client.start("Hi.", **options)


async def test_the_reason_of_an_abort_is_text(client: Client) -> None:
    """Anything else would be recorded, and no later life could read the record."""
    with pytest.raises(UsageError, match="reason=7"):
        await client.abort("chat", 7)  # type: ignore[arg-type]


async def test_input_that_is_neither_text_nor_a_message_is_refused(client: Client) -> None:
    with pytest.raises(UsageError, match="input="):
        await client.start(["Hi."])  # type: ignore[arg-type]


async def test_input_may_be_a_message(engine: Engine, client: Client) -> None:
    model = ScriptedModel("Hello.")
    async with engine.worker(Agent(model, runtime=Durable())):
        await client.result(await client.start(UserMessage(parts=(Text("Hi."),))))
    assert model.requests[0].messages[-1].text == "Hi."


async def test_an_agent_without_a_durable_runtime_is_refused(engine: Engine) -> None:
    for runtime in (LocalRuntime(), None):
        agent: Agent[Any] = (
            Agent(ScriptedModel("x"), runtime=runtime) if runtime else Agent(ScriptedModel("x"))
        )
        with pytest.raises(UsageError, match="runtime=Durable"):
            engine.worker(agent)


@pytest.mark.parametrize("engine", ["sqlite", "postgres"], indirect=True)
async def test_a_worker_that_would_run_no_chat_is_refused(engine: Engine) -> None:
    with pytest.raises(UsageError, match="concurrency=0"):
        engine.worker(Agent(ScriptedModel("x"), runtime=Durable()), concurrency=0)


async def test_there_is_no_result_of_what_was_not_started(client: Client) -> None:
    with pytest.raises(UsageError, match=r"start it first|start a chat"):
        await client.result("nothing")


async def test_a_worker_that_stops_hands_its_chats_to_the_next_at_once(
    engine: Engine, client: Client
) -> None:
    """The lease is longer than the test: nobody waits for it."""
    thinks = asyncio.Event()
    patient = {"idle": 1000.0} if engine.name == "restate" else {"lease": 1000}

    class Thinking:
        name = "scripted"

        async def stream(self, request: Any) -> Any:
            thinks.set()
            await asyncio.Event().wait()
            yield

    agent: Agent[Any] = Agent(Thinking(), runtime=Durable())
    async with engine.worker(agent, **patient):
        id = await client.start("Hi.")
        await thinks.wait()
    async with engine.worker(Agent(ScriptedModel("Hello."), runtime=Durable()), **patient):
        assert (await client.result(id)).text == "Hello."


async def said(caplog: pytest.LogCaptureFixture, text: str) -> None:
    """Until the log has it."""
    while True:
        if any(text in each for each in caplog.messages):
            return
        await asyncio.sleep(0.01)


async def test_code_without_a_hook_goes_on_with_the_chats_of_the_code_that_had_it(
    engine: Engine, client: Client, caplog: pytest.LogCaptureFixture
) -> None:
    ran: list[str] = []
    old = asking(ran, call("delete", path="a"))
    old.add_hook("onChatStart", lambda ctx: ran.append("started"))
    async with engine.worker(old):
        id = await client.start("Delete a.")
        request = await waits(client, id)
    async with engine.worker(asking(ran, "Done.")):
        await client.answer(id, {request: Approve()})
        response = await client.result(id)
    assert (response.stop_reason, ran) == (None, ["started", "a"])
    assert f"durable chat {id}: skipped step 'start' of its record" in caplog.text


async def test_a_question_says_since_when_it_waits_also_in_the_next_life(
    engine: Engine, client: Client
) -> None:
    ran: list[str] = []
    start = time.time()
    async with engine.worker(asking(ran, call("delete", path="a"))):
        id = await client.start("Delete a.")
        await waits(client, id)
        [first] = await client.pending(id)
    end = time.time()
    async with engine.worker(asking(ran, "Done.")) as worker:
        await engine.at_rest(worker)
        [second] = await client.pending(id)
        await client.answer(id, {second.id: Approve()})
        await client.result(id)
    assert second.asked_at == first.asked_at
    assert first.asked_at is not None
    assert start <= first.asked_at <= end
    assert ran == ["a"]


@pytest.mark.parametrize("change", ["description", "schema", "code"])
async def test_an_approval_of_a_tool_that_a_deploy_has_changed_does_not_count_and_is_asked_again(
    engine: Engine, client: Client, change: str
) -> None:
    """The approver has seen the name, the description and the schema of the tool."""
    ran: list[str] = []
    async with engine.worker(asking(ran, call("delete", path="a"))):
        id = await client.start("Delete a.")
        first = await waits(client, id)

    @tool(description="Delete a file." if change == "code" else "Delete for good.")
    async def delete(path: str) -> str:
        ran.append(f"new {path}")
        return f"{path} is gone for good"

    @tool(name="delete", description="Delete a file.")
    async def longer(path: str, *, force: bool = False) -> str:
        ran.append(f"new {path}")
        return f"{path} is gone for good"

    again = [] if change == "code" else [call("delete", path="a")]
    new: Agent[Any] = Agent(
        ScriptedModel(*again, "Done."),
        tools=[longer if change == "schema" else delete],
        runtime=Durable(),
    )
    new.add_hook("preToolCall", lambda ctx: Ask("Really?"))
    async with engine.worker(new), asyncio.timeout(30):
        await client.answer(id, {first: Approve()})
        if again:
            second = await waits(client, id)
            assert second != first
            assert ran == []
            await client.answer(id, {second: Approve()})
        response = await client.result(id)
    results = [m.text for m in response.messages if m.role == "tool"]
    assert ran == ["new a"]
    assert results[-1] == "a is gone for good"
    if again:
        assert "changed after the approval was requested" in results[0]


class LastBatch:
    """The last batch of a chat's record, where its engine keeps it."""

    def __init__(self, engine: Engine, id: str) -> None:
        self._engine = engine
        self._id = id

    async def swap(self, text: str | None = None) -> str:
        """Put this there, or half of what is there; gives what was there."""
        if self._engine.name == "sqlite":
            return self._in_sqlite(text)
        return await self._in_postgres(text)

    def _in_sqlite(self, text: str | None) -> str:
        with closing(sqlite3.connect(self._engine.address)) as file, file:
            n, data = file.execute(
                "SELECT n, data FROM hookline_job_log WHERE id = ? ORDER BY n DESC", (self._id,)
            ).fetchone()
            found = bytes(data).decode()
            new = half(found) if text is None else text
            file.execute(
                "UPDATE hookline_job_log SET data = ? WHERE id = ? AND n = ?",
                (new.encode(), self._id, n),
            )
        return found

    async def _in_postgres(self, text: str | None) -> str:
        asyncpg: Any = import_module("asyncpg")
        connection = await asyncpg.connect(self._engine.address)
        where = "WHERE queue = $1 AND id = $2"
        at = (self._engine.options()["queue"], self._id)
        try:
            row = await connection.fetchrow(
                f"SELECT n, data FROM hookline_job_log {where} ORDER BY n DESC", *at
            )
            found: str = row["data"].decode()
            await connection.execute(
                f"UPDATE hookline_job_log SET data = $4 {where} AND n = $3",
                *at,
                row["n"],
                (half(found) if text is None else text).encode(),
            )
        finally:
            await connection.close()
        return found


def half(text: str) -> str:
    return text[: len(text) // 2]


@pytest.mark.parametrize("engine", ["sqlite", "postgres"], indirect=True)
async def test_a_record_whose_last_line_is_cut_in_half_leaves_the_chat_as_it_is(
    engine: Engine, client: Client, caplog: pytest.LogCaptureFixture
) -> None:
    ran: list[str] = []
    agent = asking(ran, call("delete", path="a"), "Done.")
    async with engine.worker(agent):
        id = await client.start("Delete a.")
        request = await waits(client, id)
    last = LastBatch(engine, id)
    whole = await last.swap()
    async with engine.worker(agent):
        await client.answer(id, {request: Approve()})
        await said(caplog, f"{id} cannot continue here: batch ")
    assert ran == []
    assert await last.swap(whole) == half(whole)
    await client.quarantine(id)
    await client.retry(id)  # otherwise no worker tries it for half a minute
    async with engine.worker(agent):
        assert (await client.result(id)).text == "Done."
    assert ran == ["a"]


async def test_a_clock_that_jumps_takes_no_chat_from_a_worker_that_lives(
    engine: Engine, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    real, asked = time.time, 0

    def jumping() -> float:
        return real() + random.choice([-86_400.0, 0.0, 86_400.0])

    class Slow:
        name = "slow"

        async def stream(self, request: Any) -> Any:
            nonlocal asked
            asked += 1
            for _ in range(20):
                await asyncio.sleep(0.1)
                yield TextChunk("a")
            yield Finish(finish_reason="stop", usage=Usage(input_tokens=1, output_tokens=1))

    agent: Agent[Any] = Agent(Slow(), runtime=Durable())
    async with engine.worker(agent), engine.worker(agent):
        id = await client.start("Hi.")
        monkeypatch.setattr(time, "time", jumping)
        response = await client.result(id)
        monkeypatch.undo()
    assert (response.text, asked) == ("a" * 20, 1)


# ── cut ─────────────────────────────────────────────────────────────────────────────────────


class Cut:
    """A log that takes so many batches, after which its life is over."""

    def __init__(self, log: Log, batches: int) -> None:
        self._log = log
        self._left = batches
        self.read, self.answer, self.poke = log.read, log.answer, log.poke

    async def append(self, data: bytes) -> None:
        if not self._left:
            raise Halted
        self._left -= 1
        await self._log.append(data)


@pytest.fixture
def cut(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """Cut the first life of `chat-3` after three batches; gives how many lives each chat had."""
    opened = Journal.open
    lives: Counter[str] = Counter()

    async def cut(chat_id: str, log: Log, worker: str = "") -> Journal:
        lives[chat_id] += 1
        first = lives[chat_id] == 1
        batches = int(chat_id.removeprefix("chat-")) if first else 1000
        return await opened(chat_id, Cut(log, batches), worker)

    monkeypatch.setattr(Journal, "open", cut)
    return lives


async def test_a_message_with_an_id_of_its_own_is_stored_once_wherever_its_worker_dies(
    engine: Engine, client: Client, cut: Counter[str], tmp_path: Path
) -> None:
    """Cut after each batch of the record, once what comes before the next one is stored."""

    @tool(idempotent=True)
    async def look(place: str) -> str:
        """Look something up."""
        return f"{place}: fine"

    before = UserMessage(id="before", parts=(Text("Hello."),))
    said = UserMessage(id="said", parts=(Text("Hi."),))
    ids = [f"chat-{count}" for count in range(16)]
    async with SQLStore(f"sqlite:///{tmp_path}/chats.db") as store:
        asked = Model(print, [("c1", "look", {"place": "here"})], ["It is fine."])
        agent: Agent[Any] = Agent(asked, tools=[look], runtime=Durable(), store=store)
        async with engine.worker(agent):
            for id in ids:
                await Conversation((before,), id=f"talk-{id}").save(store)
                await client.start(said, chat_id=id, conversation=f"talk-{id}")
            for id in ids:
                response = await client.result(id)
                assert response.text == "It is fine.", id
                stored = await store.load(f"talk-{id}")
                assert stored is not None
                assert stored.messages == (before, *response.messages), id
                assert [m.id for m in stored.messages if m.role == "user"] == ["before", "said"]
    lives = [cut[id] for id in ids]
    assert lives == sorted(lives, reverse=True)
    assert (lives[0], lives[5], lives[-1]) == (2, 2, 1)  # the last ones came to their end uncut


# ── killed ──────────────────────────────────────────────────────────────────────────────────


KILLS = Namespace(every=0.2, chats=6, store="", stop=0.0, restart=False, relay=False)
KILLS.deploy = KILLS.addresses = False


def long(test: Any) -> Any:
    """Its workers may get little of a busy machine."""
    return pytest.mark.slow(pytest.mark.timeout(900)(test))


def kills_with(**options: Any) -> Namespace:
    return Namespace(**{**vars(KILLS), **options})


@long
async def test_killed_workers_lose_and_repeat_nothing(engine: Engine) -> None:
    """The short form of scripts/dev/durable-kills."""
    assert await kills.run(engine, kills_with(store="sqlite"))


@long
async def test_killed_workers_lose_and_repeat_nothing_when_each_kill_is_a_deploy(
    engine: Engine,
) -> None:
    """Hooks come and go, and each worker of Restate has an address of its own."""
    assert await kills.run(engine, kills_with(deploy=True, addresses=True))


@long
async def test_a_worker_that_slept_past_its_lease_writes_nothing(engine: Engine) -> None:
    stop = 5.0 if engine.name == "restate" else 1.5 * engine.options()["lease"]
    assert await kills.run(engine, kills_with(chats=4, stop=stop))


@long
async def test_an_engine_that_is_killed_and_started_again_has_all_chats(
    server: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    killed: list[int] = []
    kill = server.where.kill

    def noted() -> None:
        killed.append(server.where.process.pid)
        kill()

    monkeypatch.setattr(server.where, "kill", noted)
    assert await kills.run(server, kills_with(chats=4, restart=True))
    assert killed
