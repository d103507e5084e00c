"""A replay says what a change of hooks would have done, and nothing else happens."""

import asyncio
import json
import logging

import pytest
from tests.replay import scenes
from tests.replay.scenes import (
    KINDS,
    POLICIES,
    RUNS,
    Log,
    all_records,
    expected_verdicts,
    look,
    make_agent,
    pay,
    policy,
    stored_scenes,
)

from hookline import Agent, Deny, MemoryStore, define_hook
from hookline.errors import ChatAbortedError, UsageError
from hookline.hooks import audit
from hookline.replay import Record, record_of_log, records_of, replay
from hookline.runtimes import Durable, Journal
from hookline.testing import ScriptedModel, call, spans

NUMBER = 20


@pytest.fixture(scope="module")
def recorded(tmp_path_factory):
    """Some scenes in each kind of record; scripts/dev/replay-scenes plays more of them."""
    return asyncio.run(all_records(tmp_path_factory.mktemp("records"), NUMBER))


@pytest.mark.parametrize("kind", KINDS)
async def test_a_policy_that_does_nothing_changes_nothing_and_every_chat_is_exact(kind, recorded):
    records, scenes = recorded
    assert {record.source for record in records[kind]} == {kind}
    texts = [record.message.text for record in records[kind]]
    assert sorted(texts) == sorted(text for text in scenes if (text[0] == "c") == (kind == "log"))
    RUNS.clear()
    report = await replay(records[kind], make_agent([]), hooks=[policy("nothing")])
    assert report.chats == len(texts)
    assert report.verdicts == []
    assert report.inexact == {}
    assert RUNS == []


@pytest.mark.parametrize("name", POLICIES)
@pytest.mark.parametrize("kind", KINDS)
async def test_the_verdicts_are_those_of_a_live_run(kind, name, recorded):
    records, scenes = recorded
    report = await replay(records[kind], make_agent([]), hooks=[policy(name)])
    for record in records[kind]:
        expected = await expected_verdicts(*scenes[record.message.text], policy(name))
        verdicts = [verdict.now for verdict in report if verdict.chat == record.id]
        assert verdicts == expected, record


async def test_a_store_is_read_with_its_hooks_and_times():
    store, made = await stored_scenes(20)
    report = await replay(store, make_agent([]), hooks=[policy("limit")])
    assert report.chats == len(made)
    denied = [verdict for verdict in report if verdict.now == "denied"]
    assert denied
    assert all(v.hook == "limit" and v.reason == "limit" and v.tool == "pay" for v in denied)
    times = sorted(verdict.at for verdict in report)
    later = await replay(store, make_agent([]), hooks=[policy("limit")], since=times[-1])
    assert 0 < later.chats < report.chats


async def test_leaving_a_hook_out_shows_what_it_had_done():
    store, _ = await stored_scenes(40)
    report = await replay(store, make_agent([]), without=["own_policy"])
    counts = report.counts
    assert counts["allowed"]
    assert counts["changed"]
    refused = [verdict for verdict in report if verdict.now == "allowed"]
    assert {verdict.was for verdict in refused} == {"denied", "asked, ok", "asked, denied"}
    assert "own_policy" not in {verdict.hook for verdict in report}


async def test_nothing_outside_notices_a_replay(tmp_path):
    store, _ = await stored_scenes(10)
    version = (await store.list())[0].updated
    written = tmp_path / "audit.jsonl"
    fired = []
    with spans() as recorded:
        agent = make_agent([], store=store)
        await agent.use(audit(written))
        agent.add_hook("onMessage", lambda ctx: fired.append("observer"))
        RUNS.clear()
        await replay(store, agent, hooks=[policy("limit")])
    assert (RUNS, fired, recorded.all) == ([], [], [])
    assert not written.exists()
    assert (await store.list())[0].updated == version


async def test_a_hook_that_reaches_out_is_told_so():
    import socket

    def connects(ctx):
        socket.create_connection(("127.0.0.1", 9))

    store, _ = await stored_scenes(10)
    report = await replay(store, make_agent([]), hooks=[define_hook("preRequest", connects)])
    assert {verdict.now for verdict in report} == {"raised"}
    assert "a hook reaches out of a replay (socket." in report.verdicts[0].reason
    with pytest.raises(OSError):  # noqa: PT011 - outside of a replay, it may connect
        socket.create_connection(("127.0.0.1", 9))


async def test_a_hook_that_raises_is_one_verdict_of_its_chat():
    def breaks(ctx):
        raise KeyError("amount")

    store = MemoryStore()
    agent = Agent(ScriptedModel([call("pay", amount=1)] * 2, "done"), tools=[pay], store=store)
    await agent.chat("go", conversation="talk")
    report = await replay(store, agent, hooks=[define_hook("preToolCall", breaks)])
    assert [(verdict.was, verdict.now) for verdict in report] == [("done", "raised")]


async def test_hooks_on_answers_and_results_have_verdicts_too():
    def hide(ctx):
        return ctx.response.replace(text=ctx.response.text.replace("4711", "****"))

    def shorten(ctx):
        return ctx.result.replace(value="short")

    store, _ = await stored_scenes(30)
    report = await replay(
        store,
        make_agent([]),
        hooks=[define_hook("onResponse", hide), define_hook("onToolCallResult", shorten)],
    )
    texts = [verdict for verdict in report if verdict.now == "text"]
    assert {(v.was, v.reason) for v in texts} == {("secret 4711", "secret ****")}
    tools = {v.tool for v in report if v.now == "result"}
    assert tools == {"pay", "look", "ask_helper", "transfer_to_desk"}


async def test_what_the_record_cannot_tell_is_counted_and_named():
    store, _ = await stored_scenes(30)
    smaller = Agent(ScriptedModel(), tools=[look])
    report = await replay(store, smaller, hooks=[policy("limit")])
    assert report.inexact["the agent has no tool 'pay' any more"] > 5
    assert "inexact in " in report.table()


async def test_deps_come_from_the_record():
    def only_ann(ctx):
        return None if ctx.run.deps == "ann" else Deny("not you")

    store, _ = await stored_scenes(20)
    options = {"hooks": [define_hook("preToolCall", only_ann)]}
    allowed = await replay(store, make_agent([]), deps=lambda record: "ann", **options)
    refused = await replay(store, make_agent([]), deps=lambda record: record.id, **options)
    assert (len(allowed), bool(len(refused))) == (0, True)


async def test_an_aborted_call_is_exact_and_denied_by_a_hook_that_refuses_it():
    store = MemoryStore()
    log = Log(None)
    journal = await Journal.open("c1", log)
    model = [call("pay", amount=1), call("give_up")]
    with pytest.raises(ChatAbortedError):
        await make_agent(model, store=store).chat("go", conversation="talk")
    with pytest.raises(ChatAbortedError):
        await journal.carry(lambda: make_agent(model, runtime=Durable()).chat("go", chat_id="c1"))
    hook = define_hook("preToolCall", lambda ctx: Deny("go on"), tools=["give_up"])
    for records in (store, [record_of_log("c1", log.batches)]):
        report = await replay(records, make_agent([]), hooks=[hook])
        assert [(v.tool, v.was, v.now) for v in report] == [("give_up", "aborted", "denied")]
        assert report.inexact == {}


@pytest.mark.parametrize("how", ["aborts", "raises"])
async def test_a_log_can_be_read_whose_model_call_a_hook_has_cut_off(how: str):
    async def cuts_off(ctx, proceed):
        await proceed()
        if how == "raises":
            raise OSError("no network")
        ctx.run.abort("enough")
        await asyncio.sleep(0)

    log = Log(None)
    journal = await Journal.open("c1", log)
    agent = make_agent(["An answer."], runtime=Durable())
    agent.add_hook("aroundRequest", cuts_off)
    with pytest.raises((ChatAbortedError, OSError)):
        await journal.carry(lambda: agent.chat("go", chat_id="c1"))
    record = record_of_log("c1", log.batches)
    assert record is not None
    assert (record.message.text, record.answers) == ("go", ())


async def test_the_report_is_a_table_json_and_html():
    store = MemoryStore()
    agent = Agent(ScriptedModel(call("pay", amount=80), "done"), tools=[pay], store=store)
    await agent.chat("<b>go</b>", conversation="talk", chat_id="c1")
    report = await replay(
        store,
        agent,
        hooks=[define_hook("preToolCall", lambda ctx: Deny("<i>\x1b[1mno"), name="limit")],
    )
    assert report.table() == (
        "chat     step  call            was  now     by     why\n"
        "talk/c1  0     pay(amount=80)  ok   denied  limit  <i> [1mno\n"
        "1 chat, 1 differs: denied 1"
    )
    assert json.loads(report.json())["verdicts"][0]["now"] == "denied"
    assert "&lt;i&gt;" in report.html()
    assert "<i>" not in report.html()


async def test_wrong_use_is_an_error_that_says_what_to_do():
    store, _ = await stored_scenes(1)
    agent = make_agent([])
    with pytest.raises(UsageError, match="change nothing; pass the hooks to try out"):
        await replay(store, agent)
    with pytest.raises(UsageError, match="without='other' is not a hook of the agent; name one of"):
        await replay(store, agent, without=["other"])
    with pytest.raises(UsageError, match="has no chats; check the URL or path"):
        await replay(MemoryStore(), agent, hooks=[policy("limit")])


def test_chats_are_found_by_the_ids_of_their_messages():
    from hookline import AssistantMessage, Text, UserMessage

    def user(id):
        return UserMessage(id=id, parts=(Text("hi"),))

    def answer(id):
        return AssistantMessage(id=id, parts=(Text("yes"),))

    messages = [user("a.0"), answer("a.1"), user("mine"), answer("b.1"), user("b.2"), answer("b.3")]
    first, second = records_of(messages, id="talk")
    assert (first.id, second.id) == ("talk/a", "talk/b")
    assert (len(second.before), second.message.id, len(second.answers)) == (2, "mine", 2)
    assert isinstance(first, Record)
    assert records_of([]) == []


async def test_a_replay_logs_no_warnings_of_its_own(caplog):
    store, _ = await stored_scenes(20)
    with caplog.at_level(logging.WARNING):
        await replay(store, make_agent([]), hooks=[policy("nothing")])
    assert scenes.RUNS is RUNS
    assert [record.message for record in caplog.records] == []
