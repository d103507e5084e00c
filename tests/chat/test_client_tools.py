"""Tools that a client runs: the call ends the turn, and the chat goes on with the posted result."""

import asyncio
from typing import Any

import pytest

from hookline import (
    Agent,
    Approve,
    Ask,
    Conversation,
    Deny,
    Limits,
    MemoryStore,
    Run,
    Stop,
    Tool,
    ToolFailure,
    ToolMessage,
    ToolResult,
    UserMessage,
    check_history,
    tool,
)
from hookline.errors import (
    ApprovalError,
    ConversationBusyError,
    ScopeError,
    StopChat,
    ToolDefinitionError,
    UsageError,
)
from hookline.events import ToolCallFinished, ToolCallStarted
from hookline.stores import SQLStore
from hookline.testing import ScriptedModel, call, collect


@tool(client=True)
def pick(kind: str) -> str:
    """Let the user pick a file."""
    raise AssertionError("a client's tool has no handler")


@tool
def look() -> str:
    """Look around."""
    return "seen"


def agent_of(*turns, tools=(pick, look), **options):
    return Agent(ScriptedModel(*turns), tools=list(tools), **options)


def wants(kind="image", id="c1"):
    return call("pick", kind=kind, call_id=id)


def results(talk):
    found = [each for each in talk.messages if isinstance(each, ToolMessage)]
    return [(each.call_id, each.outcome, each.text) for each in found]


# ── the call ends the turn ──────────────────────────────────────────────────────────────────


async def test_the_call_ends_the_turn_and_the_chat_goes_on_with_the_posted_result():
    talk = Conversation()
    agent = agent_of(wants(), "Nice picture.")
    first = await agent.chat("Show me one.", conversation=talk)
    assert first.stop_reason == "client_tool"
    assert first.pending == ()
    (wanted,) = first.client_calls
    assert (wanted.id, wanted.name, wanted.arguments) == ("c1", "pick", {"kind": "image"})
    assert talk.client_calls == first.client_calls
    second = await agent.resume(talk, {wanted.id: ToolResult("cat.png")})
    assert (second.text, second.stop_reason, second.client_calls) == ("Nice picture.", None, ())
    assert results(talk) == [("c1", "ok", "cat.png")]
    check_history(talk.messages)


async def test_calls_beside_it_run_and_requests_put_the_results_in_the_models_order():
    talk = Conversation()
    agent = agent_of([wants(), call("look", call_id="l1")], "done")
    first = await agent.chat("go", conversation=talk)
    assert [each.call_id for each in first.tool_results] == ["l1"]
    await agent.resume(talk, {"c1": ToolResult({"file": "a.txt"})})
    sent = agent._config.model.requests[-1].messages
    assert [each.call_id for each in sent if isinstance(each, ToolMessage)] == ["c1", "l1"]
    assert results(talk) == [("l1", "ok", "seen"), ("c1", "ok", '{"file":"a.txt"}')]


async def test_the_stream_tells_of_the_call_and_of_its_result():
    talk = Conversation()
    agent = agent_of(wants(), "done")
    async with agent.chat_stream("go", conversation=talk) as stream:
        events = await collect(stream)
    assert [each.call.id for each in events if isinstance(each, ToolCallStarted)] == ["c1"]
    assert not [each for each in events if isinstance(each, ToolCallFinished)]
    async with agent.resume_stream(talk, {"c1": ToolResult("x")}) as stream:
        events = await collect(stream)
    assert not [each for each in events if isinstance(each, ToolCallStarted)]
    (ended,) = [each for each in events if isinstance(each, ToolCallFinished)]
    assert (ended.call_id, ended.outcome, ended.result) == ("c1", "ok", ToolResult("x"))


async def test_its_hooks_are_those_of_a_call_except_around_it():
    log = []
    talk = Conversation()
    agent = agent_of(wants(), "done")

    async def around(ctx, proceed):
        log.append("around")
        return await proceed()

    agent.add_hook("preToolCall", lambda ctx: log.append(("pre", ctx.tool.client)))
    agent.add_hook("aroundToolCall", around)
    agent.add_hook("onToolCallResult", lambda ctx: ToolResult(f"<{ctx.result.value}>"))
    agent.add_hook("onStep", lambda ctx: log.append(("step", ctx.run.iteration)))
    agent.add_hook("preStop", lambda ctx: log.append(("stop", ctx.reason)))
    await agent.chat("go", conversation=talk)
    assert log == [("pre", True)]
    await agent.resume(talk, {"c1": ToolResult("x")})
    assert log == [("pre", True), ("step", 0), ("step", 1), ("stop", None)]
    assert results(talk) == [("c1", "ok", "<x>")]


async def test_a_posted_failure_is_an_error_that_hooks_see():
    seen = []
    talk = Conversation()
    agent = agent_of(wants(), "done")
    agent.add_hook("onToolCallError", lambda ctx: seen.append(ctx.error.message))
    await agent.chat("go", conversation=talk)
    await agent.resume(talk, {"c1": ToolFailure("the user closed the dialogue")})
    assert seen == ["the user closed the dialogue"]
    assert [each[1] for each in results(talk)] == ["error"]


async def test_a_failure_that_a_hook_recovers_is_ok_since_its_client_has_run_it():
    talk = Conversation()
    agent = agent_of(wants(), "done")
    agent.add_hook("onToolCallError", lambda ctx: ToolResult("default.png"))
    await agent.chat("go", conversation=talk)
    await agent.resume(talk, {"c1": ToolFailure("closed")})
    assert results(talk) == [("c1", "ok", "default.png")]


async def test_a_result_whose_hook_fails_is_withheld():
    talk = Conversation()
    agent = agent_of(wants(), "done")

    def fail(ctx):
        raise RuntimeError("the redactor is broken")

    agent.add_hook("onToolCallResult", fail)
    await agent.chat("go", conversation=talk)
    with pytest.raises(RuntimeError, match="redactor"):
        await agent.resume(talk, {"c1": ToolResult("secret")})
    ((_, outcome, text),) = results(talk)
    assert outcome == "error"
    assert "the call ran; its result is withheld" in text
    assert "secret" not in text


async def test_a_long_result_is_cut():
    talk = Conversation()
    agent = agent_of(wants(), "done", limits=Limits(output_bytes=10))
    await agent.chat("go", conversation=talk)
    await agent.resume(talk, {"c1": ToolResult("x" * 100)})
    assert "[truncated: the first 10 of 100 bytes are shown]" in results(talk)[0][2]


# ── before it waits ─────────────────────────────────────────────────────────────────────────


async def test_bad_arguments_are_an_error_before_anybody_waits():
    agent = agent_of(call("pick", file=3, call_id="c1"), "sorry")
    response = await agent.chat("go", conversation=Conversation())
    assert response.text == "sorry"
    (result,) = response.tool_results
    assert result.outcome == "error"
    assert "kind: missing" in result.text


async def test_without_a_conversation_the_call_is_a_tool_error():
    response = await agent_of(wants(), "sorry").chat("go")
    (result,) = response.tool_results
    assert (response.text, result.outcome) == ("sorry", "error")
    assert "no conversation" in result.text


async def test_a_sub_agents_call_is_a_tool_error():
    child = agent_of(wants(), "I could not.", name="child")
    parent = Agent(ScriptedModel(call("child", input="go"), "done"), tools=[child.as_tool()])
    assert (await parent.chat("go", conversation=Conversation())).text == "done"
    assert "no conversation" in child._config.model.requests[-1].messages[-1].text


async def test_a_hook_answers_or_denies_it_in_place_of_the_client():
    for answer, outcome in ((ToolResult("own"), "answered"), (Deny("no"), "denied")):
        agent = agent_of(wants(), "done")
        agent.add_hook("preToolCall", lambda ctx, answer=answer: answer)
        response = await agent.chat("go", conversation=Conversation())
        assert response.stop_reason is None
        assert [each.outcome for each in response.tool_results] == [outcome]


async def test_the_client_is_given_the_call_as_hooks_left_it():
    agent = agent_of(wants("img"), "done")
    agent.add_hook("preToolCall", lambda ctx: ctx.call.replace(arguments={"kind": "image"}))
    response = await agent.chat("go", conversation=Conversation())
    assert response.client_calls[0].arguments == {"kind": "image"}


async def test_hooks_of_the_posted_result_see_the_call_that_the_client_was_given():
    talk, seen = Conversation(), []
    agent = agent_of(wants("img"), "done")
    agent.add_hook("preToolCall", lambda ctx: ctx.call.replace(arguments={"kind": "image"}))
    agent.add_hook("onToolCallResult", lambda ctx: seen.append(ctx.call.arguments))
    await agent.chat("go", conversation=talk)
    await agent.resume(talk, {"c1": ToolResult("cat.png")})
    assert seen == [{"kind": "image"}]


async def test_a_disabled_tool_never_reaches_the_client():
    off = pick.replace(enabled=lambda: False)
    assert off.client
    agent = agent_of(wants(), "done", tools=[off])
    response = await agent.chat("go", conversation=Conversation())
    assert [each.outcome for each in response.tool_results] == ["error"]


async def test_a_stop_keeps_it_from_the_client():
    agent = agent_of([wants(), call("look", call_id="l1")], "never")
    agent.add_hook("preToolCall", lambda ctx: Stop("enough"), tools=["look"])
    talk = Conversation()
    response = await agent.chat("go", conversation=talk)
    assert response.stop_reason == "enough"
    assert [each[:2] for each in results(talk)] == [("c1", "stopped"), ("l1", "stopped")]


async def test_a_stop_of_a_sibling_counts_after_the_result_has_come():
    @tool
    def last() -> str:
        """Stop."""
        raise StopChat("enough")

    talk = Conversation()
    agent = agent_of([wants(), call("last", call_id="l1")], "never", tools=[pick, last])
    assert (await agent.chat("go", conversation=talk)).stop_reason == "client_tool"
    response = await agent.resume(talk, {"c1": ToolResult("x")})
    assert response.stop_reason == "enough"


async def test_a_call_that_runs_alone_waits_for_the_client():
    ran = []

    @tool(parallel=False)
    def write() -> str:
        """Write."""
        ran.append(1)
        return "written"

    talk = Conversation()
    agent = agent_of([wants(), call("write", call_id="w1")], "done", tools=[pick, write])
    await agent.chat("go", conversation=talk)
    assert ran == []
    await agent.resume(talk, {"c1": ToolResult("x")})
    assert ran == [1]
    assert [each[0] for each in results(talk)] == ["c1", "w1"]


# ── approvals ───────────────────────────────────────────────────────────────────────────────


def asking(*turns, **options):
    agent = agent_of(*turns, **options)
    agent.add_hook("preToolCall", lambda ctx: Ask("may it?"), tools=["pick"])
    return agent


async def test_it_is_approved_first_and_then_handed_to_the_client():
    talk = Conversation()
    agent = asking(wants(), "done")
    response = await agent.chat("go", conversation=talk)
    assert response.stop_reason == "approval"
    assert response.client_calls == ()
    answers = {response.pending[0].id: Approve(arguments={"kind": "text"})}
    response = await agent.resume(talk, answers)
    assert (response.stop_reason, response.pending) == ("client_tool", ())
    assert [each.arguments for each in response.client_calls] == [{"kind": "text"}]
    assert (await agent.resume(talk, {"c1": ToolResult("x")})).text == "done"


async def test_an_approver_approves_and_cannot_answer():
    talk = Conversation()
    agent = asking([wants(), call("look", call_id="l1")], "done", approver=lambda *a: Approve())
    response = await agent.chat("go", conversation=talk)
    assert response.stop_reason == "client_tool"
    assert results(talk) == [("l1", "ok", "seen")]
    assert (await agent.resume(talk, {"c1": ToolResult("x")})).text == "done"
    check_history(talk.messages)


async def test_an_approver_that_answers_last_holds_back_no_result():
    """The client's call is parked while the results of later calls are there already."""
    go = asyncio.Event()

    async def approver(request, run):
        await go.wait()
        return Approve()

    talk = Conversation()
    agent = asking([wants(), call("look", call_id="l1")], "done", approver=approver)
    agent.add_hook("onToolCallResult", lambda ctx: go.set())
    response = await agent.chat("go", conversation=talk)
    assert response.stop_reason == "client_tool"
    assert results(talk) == [("l1", "ok", "seen")]


async def test_a_step_may_wait_for_both_and_each_answer_may_come_alone():
    @tool
    def delete() -> str:
        """Delete."""
        return "gone"

    talk = Conversation()
    agent = agent_of([call("delete", call_id="d1"), wants()], "done", tools=[pick, delete])
    agent.add_hook("preToolCall", lambda ctx: Ask("?"), tools=["delete"])
    response = await agent.chat("go", conversation=talk)
    assert response.stop_reason == "approval"
    assert [each.id for each in response.client_calls] == ["c1"]
    response = await agent.resume(talk, {"c1": ToolResult("x")})
    assert (response.stop_reason, response.client_calls) == ("approval", ())
    response = await agent.resume(talk, {response.pending[0].id: Approve()})
    assert response.text == "done"
    assert sorted(results(talk)) == [("c1", "ok", "x"), ("d1", "ok", "gone")]


# ── what does not answer it ─────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    "answer", [Approve(), Deny("no"), "cat.png", None], ids=["approve", "deny", "str", "none"]
)
async def test_only_a_result_answers_it(answer: Any):
    talk = Conversation()
    agent = agent_of(wants(), "done")
    await agent.chat("go", conversation=talk)
    with pytest.raises(ApprovalError, match="use ToolResult"):
        await agent.resume(talk, {"c1": answer})
    assert results(talk) == []
    assert talk.client_calls  # and still waits


async def test_a_result_does_not_approve():
    talk = Conversation()
    agent = asking(wants(), "done")
    response = await agent.chat("go", conversation=talk)
    with pytest.raises(ApprovalError, match=r"use Approve\(\) or Deny\(\)"):
        await agent.resume(talk, {response.pending[0].id: ToolResult("x")})
    with pytest.raises(ApprovalError, match="with the id 'c1' is waiting"):
        await agent.resume(talk, {"c1": ToolResult("x")})


async def test_a_result_that_is_not_json_is_the_posters_error():
    talk = Conversation()
    agent = agent_of(wants(), "done")
    await agent.chat("go", conversation=talk)
    with pytest.raises(ApprovalError, match="must be JSON data; nothing was run"):
        await agent.resume(talk, {"c1": ToolResult(object())})
    assert talk.client_calls


async def test_a_replayed_or_foreign_result_is_refused():
    talk = Conversation()
    agent = agent_of(wants(), "done", wants(id="c2"))
    await agent.chat("go", conversation=talk)
    with pytest.raises(ApprovalError, match="with the id 'c9' is waiting"):
        await agent.resume(talk, {"c9": ToolResult("x")})
    await agent.resume(talk, {"c1": ToolResult("x")})
    with pytest.raises(ApprovalError, match="no call waits"):
        await agent.resume(talk, {"c1": ToolResult("y")})
    await agent.chat("again", conversation=talk)
    with pytest.raises(ApprovalError, match="with the id 'c1' is waiting"):
        await agent.resume(talk, {"c1": ToolResult("y")})
    assert results(talk) == [("c1", "ok", "x")]


async def test_input_none_names_resume():
    talk = Conversation()
    agent = agent_of(wants(), "done")
    await agent.chat("go", conversation=talk)
    with pytest.raises(UsageError, match="resume"):
        await agent.chat(None, conversation=talk)


async def test_a_new_chat_closes_it_as_aborted():
    seen = []
    talk = Conversation()
    agent = agent_of(wants(), "Never mind.")
    agent.add_hook("onToolCallResult", lambda ctx: seen.append("result"))
    agent.add_hook("onToolCallError", lambda ctx: seen.append("error"))
    await agent.chat("go", conversation=talk)
    async with agent.chat_stream("Forget it.", conversation=talk) as stream:
        events = await collect(stream)
    assert [e.outcome for e in events if isinstance(e, ToolCallFinished)] == ["aborted"]
    assert [each[:2] for each in results(talk)] == [("c1", "aborted")]
    assert [type(each) for each in talk.messages[2:4]] == [ToolMessage, UserMessage]
    assert seen == []
    with pytest.raises(ApprovalError):
        await agent.resume(talk, {"c1": ToolResult("late")})
    check_history(talk.messages)


# ── in a store ──────────────────────────────────────────────────────────────────────────────


async def test_another_process_takes_the_result(tmp_path):
    url = f"sqlite:///{tmp_path}/chats.db"
    async with agent_of(wants(), store=url) as first:
        await first.chat("go", conversation="t")
    async with SQLStore(url) as store:
        assert await store.pending() == ()  # nobody is asked to approve anything
        assert not (await store.list())[0].waits
    async with agent_of("done", store=url) as second:
        response = await second.resume("t", {"c1": ToolResult("x")})
        assert response.text == "done"
        with pytest.raises(ApprovalError):
            await second.resume("t", {"c1": ToolResult("y")})


async def test_a_call_that_waits_survives_as_json():
    talk = Conversation()
    agent = agent_of(wants(), "done")
    await agent.chat("go", conversation=talk)
    again = Conversation.from_json(talk.to_json())
    assert again.client_calls == talk.client_calls
    assert (await agent.resume(again, {"c1": ToolResult("x")})).text == "done"


async def test_of_two_client_calls_one_may_wait_on_and_a_dead_chat_loses_only_the_posted_one():
    store = MemoryStore()
    agent = agent_of([wants(), wants("text", "c2")], "done", store=store)
    await agent.chat("go", conversation="t")
    stored = await store.load("t")
    assert stored is not None
    taken = stored.pending.replace(claimed_by="gone", answer_ids=("c1",))
    talk = Conversation(stored.messages, pending=taken)
    again = Conversation.from_json(talk.to_json())  # as after a crash
    assert [each.id for each in again.client_calls] == ["c2"]
    assert [(id, outcome) for id, outcome, _ in results(again)] == [("c1", "aborted")]
    assert (await agent.resume(again, {"c2": ToolResult("y")})).text == "done"


async def test_a_posted_result_counts_once_of_two_that_come_at_once():
    store = MemoryStore()
    agent = agent_of(wants(), "done", store=store)
    await agent.chat("go", conversation="t")
    posts = [agent.resume("t", {"c1": ToolResult(n)}) for n in range(2)]
    ended = await asyncio.gather(*posts, return_exceptions=True)
    lost = [each for each in ended if isinstance(each, BaseException)]
    assert len(lost) == 1
    assert isinstance(lost[0], (ApprovalError, ConversationBusyError))


# ── tools that a client describes ───────────────────────────────────────────────────────────

SCHEMA = {"type": "object", "properties": {"kind": {"type": "string"}}, "required": ["kind"]}


async def test_a_client_describes_its_tool_by_a_schema():
    theirs = Tool.from_schema("pick", "Let the user pick.", SCHEMA, client=True)
    talk = Conversation()
    agent = agent_of(wants(), "done", tools=[])
    response = await agent.chat("go", conversation=talk, tools=[theirs])
    assert response.stop_reason == "client_tool"
    response = await agent.resume(talk, {"c1": ToolResult("x")}, tools=[theirs])
    assert response.text == "done"


async def test_a_result_may_come_where_the_tool_is_not_known():
    theirs = Tool.from_schema("pick", "Let the user pick.", SCHEMA, client=True)
    talk = Conversation()
    agent = agent_of(wants(), "done", tools=[])
    await agent.chat("go", conversation=talk, tools=[theirs])
    assert (await agent.resume(talk, {"c1": ToolResult("x")})).text == "done"


async def test_a_clients_tool_never_takes_the_place_of_the_agents():
    theirs = Tool.from_schema("look", "Mine.", SCHEMA, client=True)
    talk = Conversation()
    with pytest.raises(ScopeError, match="look"):
        await agent_of("never").chat("go", conversation=talk, tools=[theirs])
    assert talk.messages == ()


def test_what_only_a_handler_could_use_is_refused():
    def with_run(run: Run) -> str:
        """No."""
        return ""

    with pytest.raises(ToolDefinitionError, match="leave out the parameter 'run'"):
        tool(with_run, client=True)
    with pytest.raises(ToolDefinitionError, match="timeout"):
        tool(look.fn, client=True, timeout=3)
    with pytest.raises(ToolDefinitionError, match="leave out <function"):
        Tool.from_schema("a", "b", SCHEMA, lambda arguments: 1, client=True)
    with pytest.raises(ToolDefinitionError, match="client=True"):
        Tool.from_schema("a", "b", SCHEMA)
