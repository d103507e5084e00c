"""Calls that ask: an approver is awaited beside the others; without one they are resumed later."""

import asyncio
import json
from contextlib import suppress
from hashlib import sha256

import msgspec
import pytest
from tests._tool_chats import (
    Clock,
    assert_json,
    goes_on,
    only,
    outcomes,
    result_ids,
    results,
    settle,
    written,
)

from hookline import (
    Agent,
    Approve,
    Ask,
    Continue,
    Conversation,
    Deny,
    Limits,
    LocalRuntime,
    MemoryStore,
    Run,
    Scope,
    Stop,
    ToolFailure,
    ToolMessage,
    ToolResult,
    check_history,
    define_hook,
    read_message,
    tool,
)
from hookline._conversations.conversation import state_of
from hookline.errors import (
    ApprovalError,
    ConversationBusyError,
    HooklineError,
    MaxStepsError,
    StopChat,
    UsageError,
)
from hookline.events import (
    ApprovalRequested,
    ChatDone,
    ChatStarted,
    MessageAdded,
    StepFinished,
    StepStarted,
    ToolCallFinished,
    ToolCallStarted,
)
from hookline.formats import to_openai
from hookline.hooks import audit
from hookline.storage import RanCall
from hookline.testing import ScriptedModel, call, collect

# `delete` asks, `look` does not, `last` runs alone.


def agent_of(*turns, out=None, prompt="may it?", **options):
    done = out if out is not None else []

    @tool
    async def delete(path: str = "/") -> str:
        done.append(f"delete {path}")
        return f"deleted {path}"

    @tool
    async def look() -> str:
        done.append("look")
        return "seen"

    @tool(parallel=False)
    async def last() -> str:
        done.append("last")
        return "at last"

    tools = options.pop("tools", [delete, look, last])
    agent = Agent(ScriptedModel(*turns), tools=tools, **options)
    agent.add_hook("preToolCall", lambda ctx: Ask(prompt), tools=["delete"], name="asker")
    return agent


def delete(path="/", id="a"):
    return call("delete", path=path, call_id=id)


def yes(response):
    """Approve all that waits."""
    return {request.id: Approve() for request in response.pending}


def no(response, reason="not today"):
    return {request.id: Deny(reason) for request in response.pending}


def approve(request, run):
    return Approve()


# ── with an approver ────────────────────────────────────────────────────────────────────────


async def test_an_approver_is_shown_exactly_the_call():
    seen = []

    def approver(request, run):
        seen.append((request.call.id, request.call.name, request.call.arguments, run.call_id))
        return Approve()

    await agent_of(delete("/x"), "done", approver=approver).chat("go")
    assert seen == [("a", "delete", {"path": "/x"}, "a")]


async def test_an_approved_call_runs_and_the_chat_goes_on():
    out = []
    response = await agent_of(delete("/x"), "done", out=out, approver=approve).chat("go")
    assert out == ["delete /x"]
    assert results(response) == [("a", "ok", "deleted /x")]
    assert (response.text, response.stop_reason, response.pending) == ("done", None, ())


async def test_a_denied_call_never_runs_and_the_model_is_told_why():
    out = []
    agent = agent_of(delete(), "done", out=out, approver=lambda request, run: Deny("not today"))
    events = await collect(agent.chat_stream("go"))
    assert out == []
    assert outcomes(events) == {"a": "denied"}
    (finished,) = only(events, ToolCallFinished)
    assert finished.result.message == "not today"
    assert events[-1].response.text == "done"


async def test_a_denial_of_an_approver_passes_onToolCallError():
    seen = []
    agent = agent_of(delete(), "done", approver=lambda request, run: Deny("not today"))
    agent.add_hook("onToolCallError", lambda ctx: seen.append(ctx.error.message))
    await agent.chat("go")
    assert seen == ["not today"]


async def test_an_approver_may_be_async():
    async def approver(request, run):
        await asyncio.sleep(0)
        return Approve()

    out = []
    await agent_of(delete(), "done", out=out, approver=approver).chat("go")
    assert out == ["delete /"]


async def test_an_answer_is_awaited_beside_the_running_calls():
    looked = asyncio.Event()

    async def approver(request, run):
        await looked.wait()
        return Approve()

    agent = agent_of([delete(), call("look", call_id="b")], "done", approver=approver)
    agent.add_hook("onToolCallResult", lambda ctx: looked.set() if ctx.call.id == "b" else None)
    response = await agent.chat("go")
    assert [id for id, _, _ in results(response)] == ["a", "b"]


async def test_several_answers_are_awaited_at_the_same_time():
    meet = asyncio.Barrier(2)

    async def approver(request, run):
        await meet.wait()
        return Approve()

    agent = agent_of([delete(id="a"), delete(id="b")], "done", approver=approver)
    assert len(results(await agent.chat("go"))) == 2


async def test_a_call_that_waits_for_its_approver_holds_up_a_call_that_runs_alone():
    out = []

    async def approver(request, run):
        await settle()
        out.append("approved")
        return Approve()

    agent = agent_of([delete(), call("last")], "done", out=out, approver=approver)
    await agent.chat("go")
    assert out == ["approved", "delete /", "last"]


async def test_the_approver_of_a_chat_stands_for_the_agents():
    agent = agent_of(delete(), "done", approver=approve)
    response = await agent.chat("go", approver=lambda request, run: Deny("no"))
    assert [outcome for _, outcome, _ in results(response)] == ["denied"]


async def test_a_chat_may_do_without_the_agents_approver():
    agent = agent_of(delete(), approver=approve)
    response = await agent.chat("go", approver=None, conversation=Conversation())
    assert [request.call.id for request in response.pending] == ["a"]


async def test_an_approver_that_raises_ends_the_chat_and_the_call_never_runs():
    out, error = [], ConnectionError("nobody is there")
    conversation = Conversation()

    def approver(request, run):
        raise error

    agent = agent_of(delete(), "next", out=out, approver=approver)
    with pytest.raises(ConnectionError) as caught:
        await agent.chat("go", conversation=conversation)
    assert caught.value is error
    assert out == []
    await goes_on(agent, conversation)


@pytest.mark.parametrize("expires", [None, 60.0], ids=["no-limit", "with-a-limit"])
@pytest.mark.parametrize("number", [1, 2])
async def test_an_approver_s_own_CancelledError_is_its_failure(number, expires):
    """Nobody has cancelled: the chat has failed and was not aborted, and no call runs."""
    out, ends = [], []
    conversation = Conversation()

    async def approver(request, run):
        task = asyncio.ensure_future(asyncio.sleep(0))
        task.cancel()
        await task

    turn = [call("delete", path=str(n)) for n in range(number)]
    agent = agent_of(turn, "next", out=out, approver=approver)
    agent.add_hook("preToolCall", lambda ctx: Ask("may it?", expires=expires), priority=5)
    agent.add_hook("onChatError", lambda ctx: ends.append("error"))
    agent.add_hook("onChatAbort", lambda ctx: ends.append("aborted"))
    with pytest.raises(ApprovalError, match="approver") as caught:
        await agent.chat("go", conversation=conversation)
    assert isinstance(caught.value.__cause__, asyncio.CancelledError)
    assert ends == ["error"]
    assert out == []
    await goes_on(agent, conversation)


@pytest.mark.parametrize("answer", [None, True, "yes", Approve], ids=repr)
async def test_an_approver_that_gives_no_decision_is_an_error_and_the_call_never_runs(answer):
    out = []
    agent = agent_of(delete(), out=out, approver=lambda request, run: answer)
    with pytest.raises(ApprovalError):
        await agent.chat("go")
    assert out == []


async def test_an_approver_may_edit_the_arguments():
    out, seen = [], []
    agent = agent_of(
        delete("/x"),
        "done",
        out=out,
        approver=lambda request, run: Approve(arguments={"path": "/tmp/x"}),
    )
    agent.add_hook("onToolCallResult", lambda ctx: seen.append(ctx.call.arguments))
    response = await agent.chat("go")
    assert out == ["delete /tmp/x"]
    assert seen == [{"path": "/tmp/x"}]
    assert written(response) == {"a": {"path": "/x"}}


async def test_a_call_with_edited_arguments_is_announced_once_as_it_was_asked_about():
    agent = agent_of(
        delete("/x"), "done", approver=lambda request, run: Approve(arguments={"path": "/tmp/x"})
    )
    events = await collect(agent.chat_stream("go"))
    assert [event.call.arguments for event in only(events, ToolCallStarted)] == [{"path": "/x"}]


async def test_edited_arguments_are_validated():
    out = []
    agent = agent_of(
        delete(), "done", out=out, approver=lambda request, run: Approve(arguments={"path": 7})
    )
    response = await agent.chat("go")
    ((_, outcome, text),) = results(response)
    assert (outcome, json.loads(text)["error"]["type"]) == ("error", "ToolArgumentsError")
    assert out == []


async def test_a_question_that_expires_is_a_denial():
    clock, out = Clock(), []

    async def approver(request, run):
        await asyncio.Event().wait()

    agent = agent_of(delete(), "done", out=out, approver=approver)
    agent.add_hook("preToolCall", lambda ctx: Ask("quick!", expires=10))
    chat = asyncio.ensure_future(agent.chat("go"))
    await clock.advance(9)
    assert not chat.done()
    await clock.advance(2)
    assert [outcome for _, outcome, _ in results(await chat)] == ["denied"]
    assert out == []


async def test_an_abort_while_an_approver_is_awaited_runs_nothing():
    out, asked = [], asyncio.Event()

    async def approver(request, run):
        asked.set()
        try:
            await asyncio.Event().wait()
        finally:
            out.append("left")

    conversation = Conversation()
    agent = agent_of(delete(), "next", out=out, approver=approver)
    chat = asyncio.ensure_future(agent.chat("go", conversation=conversation))
    await asked.wait()
    chat.cancel()
    with pytest.raises(asyncio.CancelledError):
        await chat
    assert out == ["left"]
    assert [(id, outcome) for id, outcome, _ in results(conversation)] == [("a", "aborted")]
    await goes_on(agent, conversation)


async def test_an_approver_may_report_its_status():
    seen = []

    async def approver(request, run):
        await run.status("asking", request.call.name)
        return Approve()

    agent = agent_of(delete(), "done", approver=approver)
    agent.add_hook("onStatus", lambda ctx: seen.append(ctx.data))
    await agent.chat("go")
    assert seen == ["delete"]


class Waits(LocalRuntime):
    """A runtime under which a chat waits by itself; `seen` is called while it does."""

    answers = True

    def __init__(self, seen):
        self.seen = seen

    async def wait(self, key, request, ask):
        assert await ask() is None
        await self.seen(request)
        return Approve()


async def test_a_chat_that_waits_by_itself_holds_its_conversation_in_the_store():
    store, seen = MemoryStore(), []

    async def look(request):
        seen.append(request)
        assert await store.pending("c-1") == (request,)

    out = []
    agent = agent_of(delete("/x"), "done", out=out, store=store, runtime=Waits(look))
    response = await agent.chat("go", conversation="c-1")
    assert (response.text, out, len(seen)) == ("done", ["delete /x"], 1)
    assert await store.pending("c-1") == ()


# ── what is asked ───────────────────────────────────────────────────────────────────────────


async def test_several_questions_about_a_call_merge_into_one():
    seen = []

    def approver(request, run):
        seen.append(request.prompts)
        return Approve()

    agent = agent_of(delete(), "done", prompt="first?", approver=approver)
    agent.add_hook("preToolCall", lambda ctx: Ask("second?"))
    await agent.chat("go")
    assert seen == [("first?", "second?")]


async def test_a_prompt_of_two_lines_is_one_prompt():
    seen = []

    def approver(request, run):
        seen.append(request.prompts)
        return Approve()

    await agent_of(delete(), "done", prompt="delete it?\nreally?", approver=approver).chat("go")
    assert seen == [("delete it?\nreally?",)]


async def test_of_several_questions_the_strictest_expiry_counts():
    seen = []

    def approver(request, run):
        seen.append(request.expires - LocalRuntime().now())
        return Approve()

    agent = agent_of(delete(), "done", approver=approver)
    agent.add_hook("preToolCall", lambda ctx: Ask("soon?", expires=100))
    agent.add_hook("preToolCall", lambda ctx: Ask("sometime?", expires=1_000))
    await agent.chat("go")
    assert 90 < seen[0] <= 100


@pytest.mark.parametrize(
    ("answer", "outcome"),
    [
        pytest.param(ToolResult("cached"), "answered", id="ToolResult"),
        pytest.param(ToolFailure("no"), "denied", id="ToolFailure"),
        pytest.param(Stop("no"), "stopped", id="Stop"),
    ],
)
async def test_a_later_answer_beats_Ask(answer, outcome):
    out, asked = [], []

    def approver(request, run):
        asked.append(request)
        return Approve()

    agent = agent_of(delete(), "done", out=out, approver=approver)
    agent.add_hook("preToolCall", lambda ctx: answer)
    events = await collect(agent.chat_stream("go"))
    assert outcomes(events) == {"a": outcome}
    assert only(events, ApprovalRequested) == []
    assert (asked, out) == ([], [])


async def test_Ask_does_not_end_the_chain():
    out = []
    agent = agent_of(delete(), "done", approver=approve)
    agent.add_hook("preToolCall", lambda ctx: out.append("later hook"))
    await agent.chat("go")
    assert out == ["later hook"]


async def test_a_later_ToolCall_changes_what_is_asked_and_what_runs():
    out, seen = [], []

    def approver(request, run):
        seen.append(request.call.arguments)
        return Approve()

    agent = agent_of(delete("/x"), "done", out=out, approver=approver)
    agent.add_hook("preToolCall", lambda ctx: ctx.call.replace(arguments={"path": "/tmp/x"}))
    await agent.chat("go")
    assert seen == [{"path": "/tmp/x"}]
    assert out == ["delete /tmp/x"]


async def test_arguments_are_validated_before_anyone_is_asked():
    asked = []

    def approver(request, run):
        asked.append(request)
        return Approve()

    agent = agent_of(call("delete", paht="/"), "done", approver=approver)
    events = await collect(agent.chat_stream("go"))
    assert list(outcomes(events).values()) == ["error"]
    assert only(events, ApprovalRequested) == []
    assert asked == []


async def test_nobody_is_asked_about_a_tool_that_is_off():
    asked = []

    @tool(enabled=lambda: False)
    async def off() -> None: ...

    def approver(request, run):
        asked.append(request)
        return Approve()

    agent = Agent(ScriptedModel(call("off"), "done"), tools=[off], approver=approver)
    agent.add_hook("preToolCall", lambda ctx: Ask("may it?"))
    response = await agent.chat("go")
    assert [outcome for _, outcome, _ in results(response)] == ["error"]
    assert asked == []


async def test_nobody_is_asked_about_a_tool_that_was_switched_off_since_the_request():
    asked, on = [], [True]

    @tool(enabled=lambda: on[0])
    async def off() -> None: ...

    def approver(request, run):
        asked.append(request)
        return Approve()

    agent = Agent(ScriptedModel(call("off"), "done"), tools=[off], approver=approver)

    @agent.hook("preToolCall")
    def ask(ctx):
        on[0] = False
        return Ask("may it?")

    response = await agent.chat("go")
    assert [outcome for _, outcome, _ in results(response)] == ["error"]
    assert asked == []


async def test_onApproval_sees_the_question_and_then_the_answer():
    seen = []
    agent = agent_of(delete(), "done", approver=lambda request, run: Deny("no"))
    agent.add_hook("onApproval", lambda ctx: seen.append((ctx.request.call.id, ctx.decision)))
    await agent.chat("go")
    assert seen == [("a", None), ("a", Deny("no"))]


async def test_the_question_is_put_after_all_preToolCall_chains_of_the_step():
    out = []
    agent = agent_of([delete(), call("look")], "done", approver=approve)
    agent.add_hook("preToolCall", lambda ctx: out.append(f"pre {ctx.call.name}"))
    agent.add_hook(
        "onApproval", lambda ctx: out.append("asked" if ctx.decision is None else "answered")
    )
    await agent.chat("go")
    assert out == ["pre delete", "pre look", "asked", "answered"]


async def test_ApprovalRequested_comes_between_ToolCallStarted_and_ToolCallFinished():
    events = await collect(agent_of(delete(), "done", approver=approve).chat_stream("go"))
    kinds = only(events, ToolCallStarted, ApprovalRequested, ToolCallFinished)
    assert [type(event) for event in kinds] == [
        ToolCallStarted,
        ApprovalRequested,
        ToolCallFinished,
    ]
    assert_json(events)


async def test_a_throw_in_onApproval_ends_the_chat_and_the_call_never_runs():
    out = []

    def broken(ctx):
        raise ZeroDivisionError

    conversation = Conversation()
    agent = agent_of(delete(), "next", out=out, approver=approve)
    dispose = agent.add_hook("onApproval", broken)
    with pytest.raises(ZeroDivisionError):
        await agent.chat("go", conversation=conversation)
    assert out == []
    dispose()
    await goes_on(agent, conversation)


async def test_what_was_approved_cannot_be_changed_while_somebody_thinks():
    """The digest seals name, arguments and call id."""
    out, seen = [], []

    async def approver(request, run):
        with suppress(TypeError):
            seen[0].arguments["path"] = "/etc"  # whoever else holds the call writes into it
        return Approve()

    agent = agent_of(delete("/x"), "done", out=out, approver=approver)
    agent.add_hook("preToolCall", lambda ctx: seen.append(ctx.call), priority=-1)
    with suppress(HooklineError):
        await agent.chat("go")
    assert "delete /etc" not in out


@pytest.mark.parametrize(
    ("write", "error", "words"),
    [
        pytest.param(lambda a: a.update(path="/etc"), TypeError, "read-only", id="told"),
        pytest.param(
            lambda a: dict.update(a, path="/etc"), ApprovalError, "changed after", id="by-force"
        ),
    ],
)
async def test_an_approver_that_writes_into_what_it_is_shown_runs_nothing(write, error, words):
    """Arguments are edited by `Approve(arguments=…)`, where they are seen and validated."""
    out = []

    def approver(request, run):
        write(request.call.arguments)
        return Approve()

    conversation = Conversation()
    agent = agent_of(delete("/x"), "next", out=out, approver=approver)
    with pytest.raises(error, match=words):
        await agent.chat("go", conversation=conversation)
    assert out == []
    await goes_on(agent, conversation)


# ── nobody is there ─────────────────────────────────────────────────────────────────────────


async def test_without_approver_and_conversation_Ask_is_a_denial():
    out, seen = [], []
    agent = agent_of(delete(), "done", out=out)
    agent.add_hook("onToolCallError", lambda ctx: seen.append(ctx.error.type))
    events = await collect(agent.chat_stream("go"))
    assert outcomes(events) == {"a": "denied"}
    assert only(events, ApprovalRequested) == []
    assert out == []
    assert len(seen) == 1
    assert events[-1].response.text == "done"


# ── pending ─────────────────────────────────────────────────────────────────────────────────


async def test_without_approver_the_chat_ends_as_done_with_what_is_pending():
    done = []
    conversation = Conversation()
    agent = agent_of(delete("/x"))
    agent.add_hook("onChatDone", lambda ctx: done.append(ctx.response.stop_reason))
    response = await agent.chat("go", conversation=conversation)
    (request,) = response.pending
    assert (request.call.name, request.call.arguments) == ("delete", {"path": "/x"})
    assert request.conversation_id == conversation.id
    assert response.stop_reason == "approval"
    assert done == ["approval"]
    assert conversation.pending == response.pending


async def test_calls_that_need_no_approval_run_although_one_is_pending():
    out = []
    conversation = Conversation()
    agent = agent_of([delete(), call("look", call_id="b")], out=out)
    await agent.chat("go", conversation=conversation)
    assert out == ["look"]
    assert results(conversation) == [("b", "ok", "seen")]


async def test_results_of_later_calls_do_not_wait_for_a_pending_one():
    agent = agent_of([call("look", call_id="a"), delete(id="b"), call("look", call_id="c")])
    events = await collect(agent.chat_stream("go", conversation=Conversation()))
    added = [
        e.message.call_id for e in only(events, MessageAdded) if isinstance(e.message, ToolMessage)
    ]
    assert added == ["a", "c"]


async def test_a_pending_call_has_its_ToolCallStarted_and_finishes_on_resume():
    conversation = Conversation()
    agent = agent_of(delete(), "done")
    first = await collect(agent.chat_stream("go", conversation=conversation))
    assert len(only(first, ToolCallStarted)) == 1
    assert only(first, ToolCallFinished) == []
    second = await collect(agent.resume_stream(conversation, yes(first[-1].response)))
    assert only(second, ToolCallStarted) == []
    (finished,) = only(second, ToolCallFinished)
    assert (finished.call_id, finished.outcome) == ("a", "ok")
    assert_json([*first, *second])


async def test_preStop_onStep_and_StepFinished_belong_to_the_resuming_chat():
    out = []
    conversation = Conversation()
    agent = agent_of([delete(), call("look", call_id="b")], "done")
    agent.add_hook("onStep", lambda ctx: out.append(f"onStep {ctx.iteration} {len(ctx.results)}"))
    agent.add_hook("preStop", lambda ctx: out.append("preStop"))
    first = await collect(agent.chat_stream("go", conversation=conversation))
    assert out == []
    assert only(first, StepFinished) == []
    second = await collect(agent.resume_stream(conversation, yes(first[-1].response)))
    assert out == ["onStep 0 2", "onStep 1 0", "preStop"]
    assert [event.iteration for event in only(second, StepFinished)] == [0, 1]


async def test_asked_fires_in_the_pending_chat_and_answered_in_the_resuming_one():
    out = []
    conversation = Conversation()
    agent = agent_of([delete(), call("look")], "done")
    agent.add_hook("preToolCall", lambda ctx: out.append(f"pre {ctx.call.name}"))
    agent.add_hook("onApproval", lambda ctx: out.append(ctx.decision))
    response = await agent.chat("go", conversation=conversation)
    assert out == ["pre delete", "pre look", None]
    await agent.resume(conversation, yes(response))
    assert out == ["pre delete", "pre look", None, Approve()]


async def test_a_call_that_runs_alone_waits_behind_a_pending_one():
    out = []
    conversation = Conversation()
    agent = agent_of(
        [delete(), call("last", call_id="b"), call("look", call_id="c")], "done", out=out
    )
    agent.add_hook("preToolCall", lambda ctx: out.append(f"pre {ctx.call.name}"))
    response = await agent.chat("go", conversation=conversation)
    assert out == ["pre delete"]
    assert results(conversation) == []
    await agent.resume(conversation, yes(response))
    assert out == ["pre delete", "delete /", "pre last", "last", "pre look", "look"]
    assert result_ids(conversation.messages) == ["a", "b", "c"]


async def test_with_parallel_tools_false_nothing_overtakes_a_pending_call():
    out = []
    conversation = Conversation()
    agent = agent_of([delete(), call("look")], "done", out=out, parallel_tools=False)
    response = await agent.chat("go", conversation=conversation)
    assert out == []
    await agent.resume(conversation, no(response))
    assert out == ["look"]


async def test_a_call_that_waited_behind_a_pending_one_may_ask_as_well():
    out = []
    conversation = Conversation()
    agent = agent_of(
        [delete("/1", id="a"), delete("/2", id="b")], "done", out=out, parallel_tools=False
    )
    first = await agent.chat("go", conversation=conversation)
    assert [request.call.id for request in first.pending] == ["a"]
    second = await agent.resume(conversation, yes(first))
    assert [request.call.id for request in second.pending] == ["b"]
    assert second.stop_reason == "approval"
    assert out == ["delete /1"]
    third = await agent.resume(conversation, yes(second))
    assert out == ["delete /1", "delete /2"]
    assert third.text == "done"


async def test_over_all_chats_of_a_step_each_call_is_started_once_and_finished_once():
    conversation = Conversation()
    calls = [delete(id="a"), delete(id="b"), call("look", call_id="c"), call("last", call_id="d")]
    agent = agent_of(calls, "done")
    events = await collect(agent.chat_stream("go", conversation=conversation))
    while conversation.pending:
        answer = {conversation.pending[-1].id: Approve()}
        events += await collect(agent.resume_stream(conversation, answer))
    assert outcomes(events) == {"a": "ok", "b": "ok", "c": "ok", "d": "ok"}
    asked = [event.request.call.id for event in only(events, ApprovalRequested)]
    assert asked == ["a", "b"]
    assert len(only(events, StepFinished)) == 2


async def test_an_abort_while_other_calls_run_leaves_nothing_pending():
    running = asyncio.Event()

    @tool
    async def delete() -> None: ...

    @tool
    async def hang() -> None:
        running.set()
        await asyncio.Event().wait()

    conversation = Conversation()
    agent = agent_of(
        [call("delete", call_id="a"), call("hang", call_id="b")], "next", tools=[delete, hang]
    )
    chat = asyncio.ensure_future(agent.chat("go", conversation=conversation))
    await running.wait()
    chat.cancel()
    with pytest.raises(asyncio.CancelledError):
        await chat
    assert conversation.pending == ()
    assert [(id, outcome) for id, outcome, _ in results(conversation)] == [
        ("a", "aborted"),
        ("b", "aborted"),
    ]
    await goes_on(agent, conversation)


async def test_a_Stop_for_a_later_call_stops_one_that_has_asked():
    out = []
    conversation = Conversation()
    agent = agent_of([delete(), call("look", call_id="b")], out=out)
    agent.add_hook("preToolCall", lambda ctx: Stop("halt"), tools=["look"])
    events = await collect(agent.chat_stream("go", conversation=conversation))
    assert outcomes(events) == {"a": "stopped", "b": "stopped"}
    assert only(events, ApprovalRequested) == []
    assert (conversation.pending, out) == ((), [])
    assert events[-1].response.stop_reason == "halt"


# ── resume ──────────────────────────────────────────────────────────────────────────────────


async def pend(*turns, **options):
    """A conversation whose last chat waits, its agent and response."""
    conversation = Conversation()
    agent = agent_of(*turns, **options)
    response = await agent.chat("go", conversation=conversation)
    assert response.pending
    return agent, conversation, response


async def test_an_approved_call_runs_on_resume_and_the_chat_goes_on():
    out = []
    agent, conversation, response = await pend(delete("/x"), "done", out=out)
    assert out == []
    answer = await agent.resume(conversation, yes(response))
    assert out == ["delete /x"]
    assert (answer.text, answer.stop_reason, answer.pending) == ("done", None, ())
    assert results(conversation) == [("a", "ok", "deleted /x")]
    assert conversation.pending == ()


async def test_a_denied_call_never_runs_on_resume_and_passes_onToolCallError():
    out, seen = [], []
    agent, conversation, response = await pend(delete(), "done", out=out)
    agent.add_hook("onToolCallError", lambda ctx: seen.append(ctx.error.message))
    events = await collect(agent.resume_stream(conversation, no(response)))
    assert out == []
    assert seen == ["not today"]
    ((id, outcome, text),) = results(conversation)
    assert (id, outcome) == ("a", "denied")
    assert "not today" in text
    assert events[-1].response.text == "done"


@pytest.mark.parametrize("answer", [Approve(), Deny("no"), None], ids=["yes", "no", "a new chat"])
async def test_hooks_of_a_later_chat_see_the_call_that_was_asked_about(answer):
    """As preToolCall left it, whatever becomes of it, and not as the model wrote it."""
    seen, conversation = [], Conversation()
    agent = agent_of(delete("/x"), "done", "next")
    agent.add_hook("preToolCall", lambda ctx: ctx.call.replace(arguments={"path": "/tmp/x"}))
    response = await agent.chat("go", conversation=conversation)
    for point in ("onToolCallResult", "onToolCallError"):
        agent.add_hook(point, lambda ctx: seen.append(ctx.call.arguments))
    if answer is None:
        await agent.chat("never mind", conversation=conversation)
    else:
        await agent.resume(conversation, {response.pending[0].id: answer})
    assert seen == [{"path": "/tmp/x"}]
    assert written(conversation) == {"a": {"path": "/x"}}


async def test_a_resumed_chat_has_its_own_id_and_says_what_it_resumes():
    agent, conversation, response = await pend(delete(), "done")
    events = await collect(agent.resume_stream(conversation, yes(response)))
    started = events[0]
    assert isinstance(started, ChatStarted)
    assert started.resumes == response.chat_id
    assert started.chat_id != response.chat_id
    assert {event.chat_id for event in events} == {started.chat_id}


async def test_onChatStart_fires_on_resume_without_a_message():
    seen = []
    agent, conversation, response = await pend(delete(), "done")
    agent.add_hook("onChatStart", lambda ctx: seen.append(ctx.message))
    await agent.resume(conversation, yes(response))
    assert seen == [None]


async def test_preChat_and_the_user_message_are_not_run_again_on_resume():
    out = []
    agent, conversation, response = await pend(delete(), "done")
    agent.add_hook("preChat", lambda ctx: out.append("preChat"))
    agent.add_hook("onMessage", lambda ctx: out.append(ctx.message.role))
    await agent.resume(conversation, yes(response))
    assert out == ["tool", "assistant"]
    assert [message.role for message in conversation.messages] == [
        "user",
        "assistant",
        "tool",
        "assistant",
    ]


async def test_preToolCall_is_not_run_again_on_resume():
    out = []
    agent, conversation, response = await pend([delete(), call("look")], "done")
    agent.add_hook("preToolCall", lambda ctx: out.append(ctx.call.name))
    await agent.resume(conversation, yes(response))
    assert out == []


async def test_what_preChat_made_of_the_chat_holds_after_resume_too():
    conversation = Conversation()
    agent = agent_of(delete(), "done")
    dispose = agent.add_hook("preChat", lambda ctx: ctx.request.replace(system="Be brief."))
    response = await agent.chat("go", conversation=conversation)
    dispose()
    model = ScriptedModel("done")
    later = agent_of()
    later = Agent(model, tools=[each for scope in agent.scopes for each in scope.tools])
    await later.resume(conversation, yes(response))
    assert model.last_request.system == "Be brief."


async def test_steps_count_on_after_resume():
    agent, conversation, response = await pend(call("look"), delete(), call("look"), "done")
    events = await collect(agent.resume_stream(conversation, yes(response)))
    assert response.steps == 2
    assert [event.iteration for event in only(events, StepStarted)] == [2, 3]
    assert events[-1].response.steps == 4


async def test_a_resumed_chat_that_ends_with_its_step_has_counted_it():
    agent, conversation, response = await pend(call("look"), delete())
    assert response.steps == 2
    agent.add_hook("onStep", lambda ctx: Stop("enough"))
    assert (await agent.resume(conversation, yes(response))).steps == 2


async def test_the_limit_of_steps_counts_on_after_resume():
    agent, conversation, response = await pend(call("look"), delete(), limits=Limits(steps=2))
    with pytest.raises(MaxStepsError):
        await agent.resume(conversation, yes(response))
    check_history(conversation.messages)


async def test_what_preStop_has_continued_counts_on_after_resume():
    """The bound is one of what the user asked for, and not of each part of it."""
    agent, conversation = (
        agent_of("one", delete(), "two", limits=Limits(continuations=1)),
        Conversation(),
    )
    asked = []

    def go_on(ctx):
        asked.append((ctx.reason, ctx.continuations))
        return Continue("and then?") if ctx.reason is None else None

    agent.add_hook("preStop", go_on)
    response = await agent.chat("go", conversation=conversation)
    assert (await agent.resume(conversation, yes(response))).text == "two"
    assert asked == [(None, 0)]  # at the bound it is not asked


async def test_resume_passes_the_result_points_and_wrappers():
    out = []
    agent, conversation, response = await pend(delete(), "done")

    @agent.hook("aroundToolCall")
    async def around(ctx, proceed):
        out.append(f"around {ctx.call.id} {ctx.tool.name} {ctx.scope.label}")
        return await proceed()

    agent.add_hook("onToolCallResult", lambda ctx: out.append(f"result {ctx.result.value}"))
    await agent.resume(conversation, yes(response))
    assert out == ["around a delete agent", "result deleted /"]


async def test_the_response_of_a_resumed_chat_has_its_own_messages():
    agent, conversation, response = await pend(delete(), "done")
    answer = await agent.resume(conversation, yes(response))
    assert [message.role for message in answer.messages] == ["tool", "assistant"]


async def test_requests_have_a_late_result_in_the_models_order():
    model = ScriptedModel([delete(id="a"), call("look", call_id="b")], "done")
    conversation = Conversation()
    agent = agent_of()
    agent = Agent(model, tools=[each for scope in agent.scopes for each in scope.tools])
    agent.add_hook("preToolCall", lambda ctx: Ask("?"), tools=["delete"])
    response = await agent.chat("go", conversation=conversation)
    await agent.resume(conversation, yes(response))
    assert result_ids(conversation.messages) == ["b", "a"]
    assert result_ids(model.last_request.messages) == ["a", "b"]


async def test_later_chats_have_a_late_result_in_the_models_order_too():
    model = ScriptedModel([delete(id="a"), call("look", call_id="b")], "done", "next")
    conversation = Conversation()
    tools = [each for scope in agent_of().scopes for each in scope.tools]
    agent = Agent(model, tools=tools)
    agent.add_hook("preToolCall", lambda ctx: Ask("?"), tools=["delete"])
    response = await agent.chat("go", conversation=conversation)
    await agent.resume(conversation, yes(response))
    await goes_on(agent, conversation)
    assert result_ids(model.last_request.messages) == ["a", "b"]


async def test_a_loaded_history_with_a_late_result_is_requested_in_the_models_order():
    agent, conversation, response = await pend([delete(id="a"), call("look", call_id="b")], "done")
    await agent.resume(conversation, yes(response))
    model = ScriptedModel("next")
    loaded = Conversation(conversation.messages)
    await Agent(model).chat("and now?", conversation=loaded)
    assert result_ids(model.last_request.messages) == ["a", "b"]


async def test_resume_with_edited_arguments_runs_them_once_they_are_validated():
    out = []
    agent, conversation, response = await pend(delete("/x"), "done", out=out)
    (request,) = response.pending
    await agent.resume(conversation, {request.id: Approve(arguments={"path": "/tmp/x"})})
    assert out == ["delete /tmp/x"]
    assert written(conversation) == {"a": {"path": "/x"}}


async def test_resume_with_bad_arguments_is_a_tool_error_and_runs_nothing():
    out = []
    agent, conversation, response = await pend(delete("/x"), "done", out=out)
    (request,) = response.pending
    answer = await agent.resume(conversation, {request.id: Approve(arguments={"paht": "/"})})
    ((_, outcome, text),) = results(answer)
    assert (outcome, json.loads(text)["error"]["type"]) == ("error", "ToolArgumentsError")
    assert out == []
    assert answer.text == "done"


async def test_resume_runs_the_arguments_that_hooks_had_made_of_the_call():
    out = []
    conversation = Conversation()
    agent = agent_of(delete("/x"), "done", out=out)
    dispose = agent.add_hook(
        "preToolCall", lambda ctx: ctx.call.replace(arguments={"path": "/tmp/x"})
    )
    response = await agent.chat("go", conversation=conversation)
    dispose()
    await agent.resume(conversation, yes(response))
    assert out == ["delete /tmp/x"]


async def test_several_pending_calls_are_answered_together():
    out = []
    agent, conversation, response = await pend(
        [delete("/1", id="a"), delete("/2", id="b")], "done", out=out
    )
    first, second = response.pending
    answer = await agent.resume(conversation, {first.id: Approve(), second.id: Deny("no")})
    assert out == ["delete /1"]
    assert [(id, outcome) for id, outcome, _ in results(answer)] == [("a", "ok"), ("b", "denied")]
    assert answer.text == "done"


async def test_several_approved_calls_run_at_the_same_time():
    meet = asyncio.Barrier(2)

    @tool
    async def delete() -> None:
        await meet.wait()

    agent, conversation, response = await pend(
        [call("delete"), call("delete")], "done", tools=[delete]
    )
    assert (await agent.resume(conversation, yes(response))).text == "done"


async def test_answers_may_come_one_by_one():
    out = []
    agent, conversation, response = await pend(
        [delete("/1", id="a"), delete("/2", id="b"), call("look", call_id="c")], "done", out=out
    )
    first, second = response.pending
    between = await agent.resume(conversation, {second.id: Approve()})
    assert out == ["look", "delete /2"]
    assert between.stop_reason == "approval"
    assert between.pending == (first,)
    assert conversation.pending == (first,)
    answer = await agent.resume(conversation, {first.id: Approve()})
    assert out == ["look", "delete /2", "delete /1"]
    assert answer.text == "done"
    assert result_ids(conversation.messages) == ["c", "b", "a"]


async def test_while_an_answer_is_missing_the_step_has_no_end():
    out = []
    agent, conversation, response = await pend([delete(id="a"), delete(id="b")], "done")
    first, second = response.pending
    agent.add_hook("onStep", lambda ctx: out.append(f"onStep {ctx.iteration}"))
    agent.add_hook("preStop", lambda ctx: out.append("preStop"))
    events = await collect(agent.resume_stream(conversation, {first.id: Approve()}))
    assert out == []
    assert only(events, StepFinished) == []
    assert only(events, ApprovalRequested) == []
    await agent.resume(conversation, {second.id: Approve()})
    assert out == ["onStep 0", "onStep 1", "preStop"]


async def test_a_resumed_chat_may_wait_again_for_a_later_step():
    out = []
    agent, conversation, first = await pend(
        delete("/1", id="a"), delete("/2", id="b"), "done", out=out
    )
    second = await agent.resume(conversation, yes(first))
    assert second.stop_reason == "approval"
    assert out == ["delete /1"]
    third = await agent.resume(conversation, yes(second))
    assert out == ["delete /1", "delete /2"]
    assert third.text == "done"


async def test_a_StopChat_of_a_sibling_is_remembered_until_the_step_ends():
    @tool
    async def delete() -> str:
        return "deleted"

    @tool
    async def enough() -> str:
        raise StopChat("enough")

    agent, conversation, response = await pend(
        [call("delete"), call("enough")], tools=[delete, enough]
    )
    assert response.stop_reason == "approval"
    answer = await agent.resume(conversation, yes(response))
    assert answer.stop_reason == "enough"


async def test_a_Stop_from_the_denials_onToolCallError_stops_the_resumed_chat():
    agent, conversation, response = await pend(delete())
    agent.add_hook("onToolCallError", lambda ctx: Stop("denied, so be it", text="As you wish."))
    answer = await agent.resume(conversation, no(response))
    assert (answer.stop_reason, answer.text) == ("denied, so be it", "As you wish.")


async def test_usage_and_deps_of_a_resumed_chat_are_its_own():
    seen = []

    @tool
    async def delete(run: Run[str]) -> None:
        seen.append(run.deps)

    agent, conversation, response = await pend(call("delete"), "done", tools=[delete])
    await agent.resume(conversation, yes(response), deps="now")
    assert seen == ["now"]


async def test_a_resumed_call_may_be_asked_of_an_approver_in_later_steps():
    out = []
    agent, conversation, response = await pend(
        delete("/1", id="a"), delete("/2", id="b"), "done", out=out
    )
    answer = await agent.resume(conversation, yes(response), approver=approve)
    assert out == ["delete /1", "delete /2"]
    assert answer.text == "done"


async def test_resume_by_the_id_of_a_stored_conversation():
    out = []
    agent = agent_of(delete(), "done", out=out, store=MemoryStore())
    response = await agent.chat("go", conversation="c-1")
    assert response.pending[0].conversation_id == "c-1"
    answer = await agent.resume("c-1", yes(response))
    assert answer.text == "done"
    assert out == ["delete /"]


async def test_resume_in_another_process_days_later():
    """All that is needed is JSON: the messages and the pending step."""
    _, conversation, response = await pend([delete("/x"), call("look", call_id="b")])
    messages = [message.to_json() for message in conversation.messages]
    step = conversation.pending_step
    stored = step.to_json()

    out = []
    loaded = Conversation(
        [read_message(each) for each in messages],
        id=conversation.id,
        pending=msgspec.json.decode(stored, type=type(step)),
    )
    agent = agent_of("done", out=out)
    requests = []
    agent.add_hook("preRequest", lambda ctx: requests.append(ctx.request))
    answer = await agent.resume(loaded, yes(response))
    assert out == ["delete /x"]
    assert answer.text == "done"
    assert result_ids(loaded.messages) == ["b", "a"]
    assert result_ids(requests[0].messages) == ["a", "b"]


# ── answers that run nothing ────────────────────────────────────────────────────────────────


async def refused(agent, conversation, answers, **options):
    """Resuming is an ApprovalError that reaches the caller alone."""
    out = []
    disposers = [
        agent.add_hook("onChatStart", lambda ctx: out.append("start")),
        agent.add_hook("onChatError", lambda ctx: out.append("error")),
        agent.add_hook("onChatEnd", lambda ctx: out.append("end")),
    ]
    before = conversation.messages
    events = []
    with pytest.raises(ApprovalError):
        await collect(agent.resume_stream(conversation, answers, **options), events)
    with pytest.raises(ApprovalError):
        await agent.resume(conversation, answers, **options)
    for dispose in disposers:
        dispose()
    assert (out, events) == ([], [])
    assert conversation.messages is before
    assert not conversation.busy


async def test_an_unknown_answer_is_an_error_and_runs_nothing():
    out = []
    agent, conversation, response = await pend(delete(), "done", out=out)
    await refused(agent, conversation, {"nonsense": Approve()})
    assert out == []
    await agent.resume(conversation, yes(response))
    assert out == ["delete /"]


async def test_an_unknown_answer_beside_a_known_one_runs_nothing_either():
    out = []
    agent, conversation, response = await pend(delete(), "done", out=out)
    await refused(agent, conversation, {**yes(response), "nonsense": Approve()})
    assert out == []


async def test_a_foreign_answer_is_an_error_and_runs_nothing():
    out = []
    agent, _, foreign = await pend(delete(), "done", out=out)
    other = Conversation()
    agent = agent_of(delete(), out=out)
    await agent.chat("go", conversation=other)
    await refused(agent, other, yes(foreign))
    assert out == []


async def test_a_replayed_answer_is_an_error_and_runs_nothing():
    out = []
    agent, conversation, response = await pend(delete(), "done", out=out)
    await agent.resume(conversation, yes(response))
    await refused(agent, conversation, yes(response))
    assert out == ["delete /"]


async def test_an_answer_that_was_denied_cannot_be_approved_afterwards():
    out = []
    agent, conversation, response = await pend(delete(), "done", out=out)
    await agent.resume(conversation, no(response))
    await refused(agent, conversation, yes(response))
    assert out == []


async def test_a_partial_answer_cannot_be_given_twice():
    out = []
    agent, conversation, response = await pend(
        [delete("/1", id="a"), delete("/2", id="b")], out=out
    )
    first, _ = response.pending
    await agent.resume(conversation, {first.id: Approve()})
    await refused(agent, conversation, {first.id: Approve()})
    assert out == ["delete /1"]


async def test_a_late_answer_is_an_error_and_runs_nothing():
    """A new chat has denied what was pending."""
    out = []
    agent, conversation, response = await pend(delete(), "next", out=out)
    await goes_on(agent, conversation)
    await refused(agent, conversation, yes(response))
    assert out == []


async def test_no_answers_are_an_error():
    agent, conversation, _ = await pend(delete())
    await refused(agent, conversation, {})


async def test_nothing_pending_is_an_error():
    await refused(agent_of(), Conversation(), {"a": Approve()})


@pytest.mark.parametrize("answer", [None, True, "yes", Approve], ids=repr)
async def test_an_answer_that_is_no_decision_is_an_error_and_runs_nothing(answer):
    out = []
    agent, conversation, response = await pend(delete(), out=out)
    await refused(agent, conversation, {response.pending[0].id: answer})
    assert out == []


class AtTime(LocalRuntime):
    """The local runtime at a time that the test says."""

    time = 1_000.0

    def now(self):
        return self.time


async def test_an_expired_answer_is_an_error_and_runs_nothing():
    out, runtime = [], AtTime()
    conversation = Conversation()
    agent = agent_of(delete(), "next", out=out, runtime=runtime)
    agent.add_hook("preToolCall", lambda ctx: Ask("soon", expires=60))
    response = await agent.chat("go", conversation=conversation)
    assert response.pending[0].expires == 1_060
    runtime.time = 1_061
    await refused(agent, conversation, yes(response))
    assert out == []
    await goes_on(agent, conversation)


@pytest.mark.parametrize("back", [11, 3_600])
async def test_a_clock_that_was_set_back_does_not_revive_an_expired_question(back):
    out, runtime = [], AtTime()
    conversation = Conversation()
    agent = agent_of(delete(), "next", out=out, runtime=runtime)
    agent.add_hook("preToolCall", lambda ctx: Ask("soon", expires=1))
    response = await agent.chat("go", conversation=conversation)
    runtime.time -= back
    await refused(agent, conversation, yes(response))
    assert out == []
    await goes_on(agent, conversation)


async def test_a_clock_within_the_time_limit_of_a_question_decides_alone():
    out, runtime = [], AtTime()
    conversation = Conversation()
    agent = agent_of(delete(), "done", out=out, runtime=runtime)
    agent.add_hook("preToolCall", lambda ctx: Ask("soon", expires=60))
    response = await agent.chat("go", conversation=conversation)
    runtime.time = 1_061  # it has expired, and nothing notes this
    await refused(agent, conversation, yes(response))
    runtime.time = 991  # another computer, whose clock is late
    await agent.resume(conversation, yes(response))
    assert out == ["delete /"]


async def test_an_answer_in_time_runs():
    out, runtime = [], AtTime()
    conversation = Conversation()
    agent = agent_of(delete(), "done", out=out, runtime=runtime)
    agent.add_hook("preToolCall", lambda ctx: Ask("soon", expires=60))
    response = await agent.chat("go", conversation=conversation)
    runtime.time = 1_059
    await agent.resume(conversation, yes(response))
    assert out == ["delete /"]


async def test_a_pending_call_that_was_tampered_with_is_refused():
    out = []
    agent, conversation, response = await pend(delete("/x"), out=out)
    dict.update(conversation.pending_step.requests[0].call.arguments, path="/etc")  # by force
    await refused(agent, conversation, yes(response))
    assert out == []


async def test_a_new_chat_denies_a_pending_call_that_was_tampered_with_too():
    out = []
    agent, conversation, _ = await pend(delete("/x"), "next", out=out)
    dict.update(conversation.pending_step.requests[0].call.arguments, path="/etc")  # by force
    await goes_on(agent, conversation)
    assert [outcome for _, outcome, _ in results(conversation)] == ["denied"]
    assert out == []


@pytest.mark.parametrize("arguments", ["path", ["/x"], 7], ids=repr)
async def test_arguments_of_an_answer_that_are_no_dict_run_nothing(arguments):
    out = []
    agent, conversation, response = await pend(delete("/x"), "done", "next", out=out)
    with suppress(ApprovalError):
        answer = await agent.resume(
            conversation, {response.pending[0].id: Approve(arguments=arguments)}
        )
        assert [outcome for _, outcome, _ in results(answer)] == ["error"]
    assert out == []
    check_history(conversation.messages, open_end=bool(conversation.pending))
    for message in conversation.messages:
        assert read_message(message.to_json()) == message


async def test_the_id_of_an_approval_cannot_be_guessed_from_the_call():
    _, _, response = await pend(delete())
    _, _, other = await pend(delete())
    assert response.pending[0].id != other.pending[0].id


async def test_two_resumes_at_once_run_the_call_once():
    out = []
    agent, conversation, response = await pend(delete(), "done", out=out)
    answers = await asyncio.gather(
        agent.resume(conversation, yes(response)),
        agent.resume(conversation, yes(response)),
        return_exceptions=True,
    )
    assert out == ["delete /"]
    errors = [each for each in answers if isinstance(each, Exception)]
    assert len(errors) == 1
    assert isinstance(errors[0], (ConversationBusyError, ApprovalError))


async def test_an_answer_counts_once_although_the_resumed_chat_failed():
    out = []
    agent, conversation, response = await pend(delete(), "next", out=out)

    def broken(ctx):
        raise ZeroDivisionError

    dispose = agent.add_hook("onToolCallResult", broken)
    with pytest.raises(ZeroDivisionError):
        await agent.resume(conversation, yes(response))
    dispose()
    await refused(agent, conversation, yes(response))
    assert out == ["delete /"]
    await goes_on(agent, conversation)


async def test_history_is_valid_when_a_resumed_chat_fails_while_another_call_is_pending():
    agent, conversation, response = await pend(
        [delete(id="a"), delete(id="b"), call("look", call_id="c")], "next"
    )

    def broken(ctx):
        raise ZeroDivisionError

    dispose = agent.add_hook("onToolCallResult", broken)
    with pytest.raises(ZeroDivisionError):
        await agent.resume(conversation, {response.pending[1].id: Approve()})
    dispose()
    await goes_on(agent, conversation)


async def test_an_aborted_resume_leaves_a_valid_history():
    running = asyncio.Event()

    @tool
    async def delete() -> None:
        running.set()
        await asyncio.Event().wait()

    agent, conversation, response = await pend(
        [call("delete", call_id="a")], "next", tools=[delete]
    )
    resumed = asyncio.ensure_future(agent.resume(conversation, yes(response)))
    await running.wait()
    resumed.cancel()
    with pytest.raises(asyncio.CancelledError):
        await resumed
    assert [(id, outcome) for id, outcome, _ in results(conversation)] == [("a", "aborted")]
    await goes_on(agent, conversation)


async def test_a_resume_that_is_aborted_before_anything_ran_leaves_nothing_open():
    """An abort in onChatStart of the resuming chat."""
    out = []
    agent, conversation, response = await pend(delete(), "next", out=out)
    dispose = agent.add_hook("onChatStart", lambda ctx: ctx.run.abort("no") and None)
    with pytest.raises(HooklineError):
        await agent.resume(conversation, yes(response))
    dispose()
    assert out == []
    await goes_on(agent, conversation)


# ── the tool has changed meanwhile ──────────────────────────────────────────────────────────


async def test_an_approved_tool_that_is_gone_is_refused_before_the_answer_counts():
    out = []

    @tool
    async def delete() -> None:
        out.append("run")

    agent, conversation, response = await pend(call("delete", call_id="a"), "done", tools=[delete])
    agent.scopes.unregister("agent")
    with pytest.raises(UsageError, match="tool 'delete' no longer exists"):
        await agent.resume(conversation, yes(response))
    assert len(conversation.pending) == 1
    agent.scopes.register(Scope("again", tools=[delete]))
    answer = await agent.resume(conversation, yes(response))
    assert [(id, outcome) for id, outcome, _ in results(answer)] == [("a", "ok")]
    assert out == ["run"]


async def test_an_approved_tool_that_is_off_on_resume_is_a_tool_error():
    out, on = [], [True]

    @tool(enabled=lambda: on[0])
    async def delete() -> None:
        out.append("run")

    agent, conversation, response = await pend(call("delete", call_id="a"), "done", tools=[delete])
    on[0] = False
    answer = await agent.resume(conversation, yes(response))
    assert [(id, outcome) for id, outcome, _ in results(answer)] == [("a", "error")]
    assert out == []


async def test_a_denied_tool_that_is_gone_on_resume_is_denied():
    @tool
    async def delete() -> None: ...

    agent, conversation, response = await pend(call("delete", call_id="a"), "done", tools=[delete])
    agent.scopes.unregister("agent")
    answer = await agent.resume(conversation, no(response))
    assert [(id, outcome) for id, outcome, _ in results(answer)] == [("a", "denied")]


@pytest.mark.parametrize("change", ["parameters", "description"])
async def test_an_approval_of_a_tool_that_has_changed_does_not_count(change):
    out = []

    @tool(name="delete")
    async def before(path: str) -> None: ...

    if change == "parameters":

        @tool(name="delete")
        async def after(path: str, force: bool = True) -> None:
            out.append("run")
    else:

        @tool(name="delete", description="Delete for good.")
        async def after(path: str) -> None:
            out.append("run")

    agent, conversation, response = await pend(call("delete", path="/x"), "done", tools=[before])
    agent.scopes.unregister("agent")
    agent.scopes.register(Scope("agent", tools=[after]))
    answer = await agent.resume(conversation, yes(response))
    ((_, outcome, text),) = results(answer)
    assert outcome == "denied"
    assert "were changed after the approval was requested" in text
    assert out == []


async def test_a_tool_that_a_hook_had_offered_is_refused_where_it_is_gone():
    out = []

    @tool
    async def delete() -> None:
        out.append("run")

    conversation = Conversation()
    agent = agent_of(call("delete", call_id="a"), "done", tools=[])
    agent.add_hook("preRequest", lambda ctx: ctx.request.replace(tools=(delete,)))
    response = await agent.chat("go", conversation=conversation)
    assert len(response.pending) == 1
    with pytest.raises(UsageError, match="tool 'delete' no longer exists"):
        await agent.resume(conversation, yes(response))
    assert out == []


@pytest.mark.parametrize("point", ["preRequest", "preChat"])
async def test_a_tool_that_a_hook_had_put_in_place_of_the_agents_is_never_that_one_on_resume(point):
    """What runs is exactly what was approved: a name that another tool has too is not enough."""
    out = []

    @tool(name="delete")
    async def of_the_agent() -> None:
        out.append("the agent's")

    @tool(name="delete")
    async def of_the_hook() -> None:
        out.append("the hook's")

    conversation = Conversation()
    agent = agent_of(call("delete", call_id="a"), "done", tools=[of_the_agent])
    agent.add_hook(point, lambda ctx: ctx.request.replace(tools=(of_the_hook,)))
    response = await agent.chat("go", conversation=conversation)
    answer = await agent.resume(conversation, yes(response))
    assert out == []
    assert answer.text == "done"
    assert [(id, outcome) for id, outcome, _ in results(conversation)] == [("a", "error")]


# ── a new chat instead ──────────────────────────────────────────────────────────────────────


async def test_a_new_chat_denies_what_is_pending():
    out, seen = [], []
    agent, conversation, _ = await pend(delete(), "next", out=out)
    agent.add_hook("onToolCallError", lambda ctx: seen.append(ctx.call.id))
    agent.add_hook("onApproval", lambda ctx: seen.append(type(ctx.decision)))
    events = await collect(agent.chat_stream("never mind", conversation=conversation))
    assert out == []
    assert seen == [Deny, "a"]
    assert [(id, outcome) for id, outcome, _ in results(conversation)] == [("a", "denied")]
    (finished,) = only(events, ToolCallFinished)
    assert (finished.call_id, finished.outcome) == ("a", "denied")
    assert isinstance(events[-1], ChatDone)
    assert conversation.pending == ()
    assert [message.role for message in conversation.messages] == [
        "user",
        "assistant",
        "tool",
        "user",
        "assistant",
    ]


async def test_a_new_chat_denies_several_pending_calls_and_runs_none_that_waited_behind():
    out = []
    agent, conversation, _ = await pend(
        [delete(id="a"), call("last", call_id="b"), delete(id="c")], "next", out=out
    )
    await goes_on(agent, conversation)
    assert out == []
    assert result_ids(conversation.messages) == ["a", "b", "c"]
    assert {outcome for _, outcome, _ in results(conversation)} <= {"denied", "stopped"}


async def test_a_new_chat_that_denies_counts_its_own_steps_from_0():
    seen = []
    agent = agent_of(call("look", call_id="l"), delete(), "next")
    conversation = Conversation()
    await agent.chat("go", conversation=conversation)
    agent.add_hook("onMessage", lambda ctx: seen.append((ctx.message.role, ctx.run.iteration)))
    await agent.chat("never mind", conversation=conversation)
    assert seen == [("tool", 1), ("user", 0), ("assistant", 0)]


async def test_a_new_chat_puts_a_denied_result_in_the_models_order():
    model = ScriptedModel([delete(id="a"), call("look", call_id="b")], "next")
    conversation = Conversation()
    tools = [each for scope in agent_of().scopes for each in scope.tools]
    agent = Agent(model, tools=tools)
    agent.add_hook("preToolCall", lambda ctx: Ask("?"), tools=["delete"])
    await agent.chat("go", conversation=conversation)
    await goes_on(agent, conversation)
    assert result_ids(model.last_request.messages) == ["a", "b"]


async def test_a_stop_that_a_hook_says_to_the_denial_ends_the_new_chat_before_the_model_is_asked():
    agent, conversation, _ = await pend(delete())  # the model has no turn left
    agent.add_hook("onToolCallError", lambda ctx: Stop("refused", text="As you wish."))
    response = await agent.chat("never mind", conversation=conversation)
    assert (response.text, response.stop_reason, response.steps) == ("As you wish.", "refused", 0)
    said = [(message.role, getattr(message, "text", "")) for message in conversation.messages]
    assert said[-2:] == [("user", "never mind"), ("assistant", "As you wish.")]
    check_history(conversation.messages)


async def test_a_stop_of_the_earlier_chat_does_not_end_the_new_one():
    agent, conversation, _ = await pend([delete(), call("look", call_id="b")], "next")
    assert conversation.pending_step is not None
    state_of(conversation).wait(conversation.pending_step.replace(stop=Stop("that was then")))
    response = await agent.chat("never mind", conversation=conversation)
    assert (response.text, response.stop_reason) == ("next", None)


async def test_history_is_valid_when_a_hook_raises_while_a_new_chat_denies():
    agent, conversation, _ = await pend([delete(id="a"), delete(id="b")], "next")

    def broken(ctx):
        raise ZeroDivisionError

    dispose = agent.add_hook("onToolCallError", broken)
    with pytest.raises(ZeroDivisionError):
        await agent.chat("never mind", conversation=conversation)
    dispose()
    assert conversation.pending == ()
    await goes_on(agent, conversation)


async def test_a_new_chat_that_is_stopped_in_preChat_denies_nothing():
    """Nothing is written."""
    out = []
    agent, conversation, response = await pend(delete(), "done", out=out)
    dispose = agent.add_hook("preChat", lambda ctx: Stop("closed"))
    await agent.chat("hello?", conversation=conversation)
    dispose()
    assert conversation.pending == response.pending
    await agent.resume(conversation, yes(response))
    assert out == ["delete /"]


async def test_reset_forgets_what_is_pending():
    out = []
    agent, conversation, response = await pend(delete(), "next", out=out)
    conversation.reset()
    assert conversation.pending == ()
    await refused(agent, conversation, yes(response))
    await goes_on(agent, conversation)
    assert out == []


# ── what docs/approvals.md says of upgrades and copies ──────────────────────────────────────


async def test_who_decided_and_what_ran_stand_beside_the_result(tmp_path):
    """In the history, in a store, and in a log; no model reads it."""
    paid, log = [], tmp_path / "audit.jsonl"
    store = MemoryStore()

    @tool
    async def pay(euros: int) -> str:
        paid.append(euros)
        return "paid"

    model = ScriptedModel(call("pay", euros=1, call_id="a"), "done")
    agent = Agent(model, tools=[pay], store=store, hooks=[audit(log, content=True)])
    agent.add_hook("preToolCall", lambda ctx: Ask("may it?"), name="asker")
    (request,) = (await agent.chat("go", conversation="t")).pending
    answer = Approve(arguments={"euros": 9}, by="lea", note="as agreed")
    response = await agent.resume("t", {request.id: answer})
    assert paid == [9]
    for messages in (response.messages, (await store.open("t")).messages):
        ran = next(each.ran for each in messages if isinstance(each, ToolMessage))
        assert (ran.arguments, ran.approved, ran.by, ran.note) == (
            {"euros": 9},
            True,
            "lea",
            "as agreed",
        )
        assert ran.at >= request.asked_at
        assert ran.duration >= 0
    lines = map(json.loads, log.read_text().splitlines())
    (line,) = [each for each in lines if each["what"] == "approval: approve"]
    assert (line["by"], line["note"], line["arguments"]) == ("lea", "as agreed", {"euros": 9})
    assert "lea" not in json.dumps(to_openai(response.messages))


async def test_a_denial_says_who_denied():
    agent, conversation, response = await pend(delete(), "done")
    await agent.resume(conversation, {response.pending[0].id: Deny("no", by="lea")})
    (ran,) = [each.ran for each in conversation.messages if isinstance(each, ToolMessage)]
    assert ran == RanCall(hooks=("asker",), approved=False, by="lea")


async def test_a_hook_that_changes_or_answers_a_call_stands_beside_its_result():
    agent = agent_of([call("look", call_id="a"), call("last", call_id="b")], "done")

    @agent.hook("preToolCall", tools=["look"])
    def answers(ctx):
        return ToolResult("not today")

    response = await agent.chat("go")
    looked, last = response.tool_results
    assert looked.ran == RanCall(hooks=(answers.__qualname__,))
    assert last.ran is None  # nobody decided


async def test_the_ids_of_the_hooks_that_decided_stand_beside_the_result(tmp_path):
    """Two hooks of one name can be told apart; rows without ids are read as before."""
    log, store = tmp_path / "audit.jsonl", MemoryStore()

    def limits(id, fn):
        return define_hook("preToolCall", fn, name="limits", id=id)

    hooks = [
        limits("silent", lambda ctx: None),
        limits("small", lambda ctx: ctx.call.replace(arguments={"path": "/y"})),
        limits("large", lambda ctx: Deny("no")),
        audit(log),
    ]

    @tool
    async def delete(path: str) -> str:
        raise AssertionError("it was denied")

    model = ScriptedModel(call("delete", path="/x"), "done")
    await Agent(model, tools=[delete], hooks=hooks, store=store).chat("go", conversation="t")
    (ran,) = [m.ran for m in (await store.open("t")).messages if isinstance(m, ToolMessage)]
    assert ran == RanCall(arguments={"path": "/y"}, hooks=("limits",), hook_ids=("small", "large"))
    (line,) = [each for each in map(json.loads, log.read_text().splitlines()) if "tool" in each]
    assert (line["hooks"], line["hook_ids"]) == (["limits"], ["small", "large"])
    old = msgspec.json.decode(b'{"hooks":["limits"]}', type=RanCall)
    assert old == RanCall(hooks=("limits",))
    assert msgspec.json.encode(old) == b'{"hooks":["limits"]}'


async def test_a_hook_may_change_a_call_and_ask_about_it_in_one_value():
    out = []
    conversation = Conversation()
    agent = agent_of(delete("/x"), "done", out=out)
    agent.add_hook(
        "preToolCall",
        lambda ctx: (ctx.call.replace(arguments={"path": "/y"}), Ask("the other?")),
        tools=["delete"],
        priority=-1,
    )
    response = await agent.chat("go", conversation=conversation)
    (request,) = response.pending
    assert (request.call.arguments, request.prompts) == ({"path": "/y"}, ("may it?", "the other?"))
    await agent.resume(conversation, yes(response))
    assert out == ["delete /y"]


@pytest.mark.parametrize("value", [(Ask("a"),), (Ask("a"), Ask("b")), (Deny("a"), Ask("b"))])
async def test_another_tuple_is_refused(value):
    agent = agent_of(delete())
    agent.add_hook("preToolCall", lambda ctx: value, priority=1)
    with pytest.raises(HooklineError, match=r"a tuple \(ToolCall, Ask\)"):
        await agent.chat("go", conversation=Conversation())


async def test_the_details_of_a_question_are_kept_and_sealed():
    out = []
    conversation = Conversation()
    agent = agent_of(delete("/x"), "done", out=out)
    agent.add_hook("preToolCall", lambda ctx: Ask("sure?", details={"files": [1, 2]}), priority=1)
    (request,) = (await agent.chat("go", conversation=conversation)).pending
    assert request.prompts == ("sure?", "may it?")
    assert request.details == ({"files": [1, 2]}, None)
    text = conversation.to_json().decode()
    assert Conversation.from_json(text).pending == (request,)
    forged = Conversation.from_json(text.replace('{"files":[1,2]}', '{"files":[1]}'))
    with pytest.raises(ApprovalError, match="changed after the request"):
        await agent.resume(forged, {request.id: Approve()})
    assert out == []


async def test_a_request_of_an_older_version_can_still_be_answered():
    """It has no time, no details and no digest of the tool; a claim of that time is used up."""
    out = []
    agent, conversation, _ = await pend(delete("/x"), "done", out=out)
    stored = json.loads(conversation.to_json())
    (request,) = stored["pending"]["requests"]
    for name in ("asked_at", "details", "tool_digest"):
        request.pop(name, None)
    stored["pending"].pop("begun", None)
    data = json.dumps([request["call"]["id"], request["call"]["name"], {"path": "/x"}])
    request["digest"] = sha256(data.replace(" ", "").encode()).hexdigest()
    old = Conversation.from_json(json.dumps(stored))
    await agent.resume(old, {old.pending[0].id: Approve()})
    assert out == ["delete /x"]
    stored["pending"] |= {"claimed": "dead", "answered": [request["id"]]}
    assert Conversation.from_json(json.dumps(stored)).pending == ()


async def test_after_an_upgrade_the_tool_of_that_name_runs_with_what_was_approved():
    ran = []

    @tool(name="delete")
    async def moved_to_the_bin(path: str = "/") -> str:
        ran.append(path)
        return "in the bin"

    talk = Conversation()
    asked = await agent_of(delete("/x")).chat("go", conversation=talk)
    newer = Agent(ScriptedModel("done"), tools=[moved_to_the_bin])
    response = await newer.resume(talk, yes(asked))
    assert ran == ["/x"]
    assert results(response) == [("a", "ok", "in the bin")]


async def test_each_of_two_copies_of_an_exported_conversation_takes_an_answer():
    out = []
    talk = Conversation()
    asked = await agent_of(delete("/x"), out=out).chat("go", conversation=talk)
    copies = [Conversation.from_json(talk.to_json()) for _ in range(2)]
    for copy in copies:
        await agent_of("done", out=out).resume(copy, yes(asked))
    assert out == ["delete /x", "delete /x"]
