"""The chats of a store or a file are read by one function, and a wrong file is an error."""

import sqlite3
import time

import pytest

from hookline import (
    Agent,
    Conversation,
    Deny,
    MemoryStore,
    Text,
    ToolFailure,
    UserMessage,
    define_hook,
    tool,
)
from hookline.durable import chats, client
from hookline.errors import JournalError, OverloadedError, StopChat, StoreError, UsageError
from hookline.hooks import audit, retry
from hookline.replay import records_in, records_of, replay
from hookline.runtimes import Durable
from hookline.stores import SQLStore
from hookline.testing import ScriptedModel, TestRuntime, call, raw_call
from hookline.testing.cassette import cassette


@tool
async def pay(amount: int) -> dict:
    """Pay an amount."""
    if amount == 0:
        raise StopChat("nothing to pay")
    return {"paid": amount}


@define_hook("preToolCall", tools=["pay"])
def limit(ctx):
    return Deny("too much") if ctx.call.arguments.get("amount", 0) > 10 else None


def agent_of(*turns, **options):
    return Agent(ScriptedModel(*turns), tools=[pay], **options)


async def read(source, **options):
    return [record async for record in records_in(source, **options)]


@pytest.fixture
def tape(tmp_path, monkeypatch):
    monkeypatch.delenv("CI", raising=False)
    return tmp_path / "tape.json"


# ── files of every kind ─────────────────────────────────────────────────────────────────────


async def test_a_store_is_read_by_its_url_and_by_its_file(tmp_path):
    path = tmp_path / "chats.db"
    async with SQLStore(f"sqlite:///{path}") as store:
        agent = agent_of(call("pay", amount=20), "done", store=store)
        await agent.chat("go", conversation="talk", chat_id="c1")
        from_store = await read(store)
    assert from_store
    for source in (f"sqlite:///{path}", str(path), path):
        assert await read(source) == from_store
        report = await replay(source, agent, hooks=[limit])
        assert [verdict.now for verdict in report] == ["denied"]


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "has no chats that can be read; pass a store"),
        ("hello\n", "has no chats that can be read; pass a store"),
        ("[1, 2]\n", "has no chats that can be read; pass a store"),
        ('{"what": "ever"}\n', "has no chats that can be read; pass a store"),
        ('{"hookline_cassette": 1, "cha', "is not JSON"),
        ('{"hookline_cassette": 9, "chats": {}}', "has format 9, and this version reads 1"),
        ('{"hookline_cassette": 1, "chats": {"a": 3}}', "is damaged"),
    ],
    ids=["empty", "text", "list", "other lines", "cut off", "newer", "damaged"],
)
async def test_a_file_of_another_kind_is_an_error_with_its_name(tmp_path, text, why):
    path = tmp_path / "some.file"
    path.write_text(text)
    with pytest.raises(UsageError, match=r"some\.file") as caught:
        await replay(path, agent_of(), hooks=[limit])
    assert why in str(caught.value)


async def test_a_path_without_a_file_is_an_error(tmp_path):
    for path in (tmp_path / "none", tmp_path):
        with pytest.raises(UsageError, match="there is no file"):
            await read(path)


# ── conversations ───────────────────────────────────────────────────────────────────────────


async def test_since_leaves_out_older_chats_of_a_conversation_that_went_on():
    runtime, store = TestRuntime(100.0), MemoryStore()
    agent = agent_of("one", "two", runtime=runtime, store=store)
    await agent.chat("first", conversation="talk")
    runtime.advance(900.0)
    await agent.chat("second", conversation="talk")
    records = await read(store)
    assert [(record.id, record.at) for record in records] == [
        ("talk/chat-1", 100.0),
        ("talk/chat-2", 1000.0),
    ]
    assert await read(store, since=500.0) == records[1:]


async def test_a_chat_is_known_by_its_messages_and_not_by_an_id_that_a_client_has_chosen():
    agent, talk = agent_of("one", "two"), Conversation()
    for text in ("first", "second"):
        message = UserMessage(id=f"{text}.7", parts=(Text(text),))  # reads like the id of a chat
        await agent.chat(message, conversation=talk, chat_id=f"chat-{text}")
    records = records_of([message for message in talk.messages if message.role == "user"])
    assert [record.id for record in records] == ["chat-first", "chat-second"]


async def test_messages_without_chat_and_time_are_those_of_the_chat_in_their_ids():
    agent, talk = agent_of("one", "two"), Conversation(id="talk")
    for text in ("first", "second"):
        await agent.chat(text, conversation=talk, chat_id=text)
    bare = [message.replace(chat_id=None, at=None) for message in talk.messages]
    records = records_of(bare, at=7.0)
    assert [(record.id, record.at) for record in records] == [("first", 7.0), ("second", 7.0)]


# ── audit files ─────────────────────────────────────────────────────────────────────────────


async def test_an_audit_file_without_content_is_an_error_with_its_line(tmp_path):
    path = tmp_path / "audit.jsonl"
    await agent_of(call("pay", amount=20), "done", hooks=[audit(path)]).chat("go")
    with pytest.raises(UsageError, match=r"audit\.jsonl', line 2 has no text.*content=True"):
        await read(path)


async def test_a_line_that_a_kill_has_cut_off_is_left_out(tmp_path):
    path = tmp_path / "audit.jsonl"
    agent = agent_of(call("pay", amount=20), "done", hooks=[audit(path, content=True)])
    path.write_text('{"at":1.0,"what":"tool sta')
    await agent.chat("go")
    (record,) = await read(path)
    assert [message.role for message in record.messages] == [
        *("user", "assistant", "tool", "assistant")
    ]


async def test_a_file_that_begins_in_the_middle_of_a_chat_has_the_later_chats(tmp_path):
    path = tmp_path / "audit.jsonl"
    hooks = [audit(path, content=True)]
    await agent_of(call("pay", amount=20), "done", hooks=hooks).chat("first", conversation=None)
    lines = path.read_text().splitlines(keepends=True)
    (start,) = [at for at, line in enumerate(lines) if '"tool started"' in line]
    path.write_text("".join(lines[start:]))
    await agent_of(call("pay", amount=30), "done", hooks=hooks).chat("second")
    records = await read(path)
    assert [record.message.text for record in records] == ["second"]


async def test_an_audit_file_knows_the_time_and_the_conversation_of_a_chat(tmp_path):
    path, times = tmp_path / "audit.jsonl", iter(range(1_000))
    hooks = [audit(path, content=True, clock=lambda: float(next(times)))]
    agent = agent_of("one", "two", "three", hooks=hooks, store=MemoryStore())
    for conversation in ("a/1", "a/1", "b/1"):
        await agent.chat("go", conversation=conversation)
    records = await read(path)
    assert [record.id.rpartition("/")[0] for record in records] == ["a/1", "a/1", "b/1"]
    assert [len(record.before) for record in records] == [0, 2, 0]
    (one, two, three) = [record.at for record in records]
    assert one < two < three
    assert await read(path, prefix="b/") == records[2:]
    assert await read(path, since=two) == records[1:]


@pytest.mark.parametrize("place", [0, 2], ids=["the first answer", "the last answer"])
async def test_a_replaced_answer_is_a_chat_that_no_later_chat_has_in_its_history(tmp_path, place):
    path = tmp_path / "audit.jsonl"
    store = MemoryStore()
    hooks = audit(path, content=True)
    agent = agent_of("One.", "Two.", "New.", "Three.", store=store, hooks=hooks)
    talk = await store.open("talk")
    await agent.chat("a", conversation=talk, chat_id="c1")
    await agent.chat("b", conversation=talk, chat_id="c2")
    question = talk.replace_answer(talk.messages[place].id)
    await agent.chat(question, conversation=talk, chat_id="c3")
    await agent.chat("c", conversation=talk, chat_id="c4")

    def texts_of(records):
        return {
            record.id: [m.text for m in (*record.before, *record.messages)] for record in records
        }

    first, second = ["a", "One."], ["b", "Two."]
    new = [question.text, "New."] if place == 0 else [*first, question.text, "New."]
    chats = {"talk/c3": new, "talk/c4": [*new, "c", "Three."]}
    replaced = {"talk/c1": first, "talk/c2": [*first, *second]}
    from_file = texts_of(await read(path))
    assert from_file == {**replaced, **chats}
    assert list(from_file) == ["talk/c1", "talk/c2", "talk/c3", "talk/c4"]
    assert texts_of(await read(store)) == ({"talk/c1": first, **chats} if place else chats)


async def test_a_chat_of_a_sub_agent_is_no_record_of_its_own(tmp_path, tape):
    path = tmp_path / "audit.jsonl"
    helper = agent_of(call("pay", amount=20), "paid", name="helper")
    boss = Agent(
        ScriptedModel(call("helper", message="pay"), "done"),
        tools=[helper.as_tool(description="Pays.")],
    )
    with cassette(tape) as recording:
        await boss.chat("go", hooks=[recording, *audit(path, content=True)])
    for source in (path, tape):
        (record,) = await read(source)
        assert (record.message.text, len(record.calls)) == ("go", 1)
        report = await replay(source, boss, hooks=[limit])
        assert (report.verdicts, report.inexact) == ([], {})


async def test_a_chat_that_a_hook_begins_is_no_record_of_its_own(tape):
    async def ask(ctx):
        await agent_of("Well.").chat(f"Look at this, {type(ctx).__name__}.")

    hooks = [define_hook(point, ask) for point in ("preChat", "preRequest")]
    with cassette(tape) as recording:
        await agent_of("done", hooks=hooks).chat("go", hooks=[recording])
    assert [record.message.text for record in await read(tape)] == ["go"]


# ── cassettes ───────────────────────────────────────────────────────────────────────────────


async def test_a_cassette_has_no_times_and_no_conversations(tape):
    with cassette(tape) as recording:
        await agent_of("done").chat("go", hooks=[recording])
    for options in ({"since": 5.0}, {"prefix": "desk/"}):
        with pytest.raises(UsageError, match="cannot be used with the cassette"):
            await read(tape, **options)


async def test_a_cassette_has_whole_results_broken_arguments_and_no_failed_answers(tape):
    agent = agent_of(
        OverloadedError("busy", retry_after=0.0),
        [call("pay", amount=20), raw_call("pay", '{"amount": '), call("pay", amount=3)],
        "done",
        hooks=[retry(attempts=2)],
    )
    with cassette(tape) as recording:
        await agent.chat("go", hooks=[recording])
    (record,) = await read(tape)
    assert len(record.answers) == 2
    broken = record.answers[0].tool_calls[1]
    assert (broken.raw, dict(broken.arguments)) == ('{"amount": ', {})
    first, second, third = record.calls.values()
    assert first.result.value == {"paid": 20}
    assert isinstance(second.result, ToolFailure)
    assert third.outcome == "ok"
    report = await replay(tape, agent_of(), hooks=[limit])
    assert [(verdict.call, verdict.now) for verdict in report] == [("pay(amount=20)", "denied")]
    assert report.inexact == {}


async def test_a_cassette_of_answers_alone_has_the_texts_of_the_results(tape):
    with cassette(tape, mode="model") as recording:
        await agent_of(call("pay", amount=20), "done").chat("go", hooks=[recording])
    (record,) = await read(tape)
    (only,) = record.calls.values()
    assert (only.outcome, only.result.value) == ("ok", {"paid": 20})


async def test_a_chat_that_its_tool_has_ended_is_exact(tape, tmp_path):
    path = tmp_path / "audit.jsonl"
    with cassette(tape) as recording:
        agent = agent_of([call("pay", amount=0), call("pay", amount=20)])
        await agent.chat("go", hooks=[recording, *audit(path, content=True)])
    for source in (tape, path):
        report = await replay(source, agent, hooks=[limit])
        assert [(verdict.call, verdict.now) for verdict in report] == [("pay(amount=20)", "denied")]
        assert report.inexact == {}


async def test_a_log_or_conversation_that_cannot_be_read_is_named_and_the_rest_goes_on(tmp_path):
    url = f"sqlite:///{tmp_path}/chats.db"
    agent = agent_of(runtime=Durable())
    model = ScriptedModel(*[call("pay", amount=20), "done"] * 4)
    async with client(url) as jobs, SQLStore(url) as store:
        async with chats(Agent(model, tools=[pay], runtime=Durable()), url):
            for id in ("good", "bad"):
                await jobs.result(await jobs.start("go", chat_id=id))
        for id in ("good", "bad"):
            await Agent(model, tools=[pay], store=store).chat("go", conversation=id)
        with sqlite3.connect(tmp_path / "chats.db") as database:
            database.execute("UPDATE hookline_job_log SET data = x'00' WHERE id = 'bad'")
            database.execute("UPDATE hookline_message SET body = '{' WHERE conversation_id = 'bad'")
        for source in (jobs, store):
            report = await replay(source, agent, hooks=[limit])
            assert [verdict.now for verdict in report] == ["denied"]
            assert [text.partition(": ")[0] for text in report.unreadable] == ["bad"]
            assert report.summary().startswith("1 chat, 1 differs: denied 1\nunreadable: bad: ")
            with pytest.raises((JournalError, StoreError)):
                await read(source)
        assert await read(jobs, since=time.time() + 60) == []
