"""`agent.as_tool()`: an agent's chat as the tool call of another agent's chat."""

import asyncio
import json
import logging

import pytest
from tests._tool_chats import Clock, assert_json, goes_on, only, outcomes, results, settle

from hookline import (
    Agent,
    Approve,
    Ask,
    Conversation,
    Deny,
    HookDef,
    Limits,
    Run,
    Scope,
    Stop,
    ToolResult,
    tool,
)
from hookline._chat.channel import HIGH_WATER
from hookline.errors import ChatAbortedError, UsageError
from hookline.events import (
    ChatAborted,
    ChatDone,
    ChatFailed,
    ChatStarted,
    Status,
    TextDelta,
    ToolCallFinished,
    ToolCallStarted,
)
from hookline.testing import ScriptedModel, call, collect


def family(*child_turns, parent_turns=None, child=None, parent=None):
    """A parent whose model asks the child once, and the child."""
    kid = Agent(ScriptedModel(*child_turns), name="kid", **(child or {}))
    turns = parent_turns or (call("kid", input="help me", call_id="ask"), "parent done")
    mum = Agent(
        ScriptedModel(*turns),
        name="mum",
        **{**(parent or {}), "tools": [kid.as_tool(), *(parent or {}).get("tools", ())]},
    )
    return mum, kid


def three_generations():
    baby = Agent(ScriptedModel("baby says hi"), name="baby")
    ask_baby = call("baby", input="x", call_id="inner")
    kid = Agent(ScriptedModel(ask_baby, "kid done"), name="kid", tools=[baby.as_tool()])
    ask_kid = call("kid", input="x", call_id="outer")
    mum = Agent(ScriptedModel(ask_kid, "mum done"), name="mum", tools=[kid.as_tool()])
    return mum, kid, baby


# ── how deep ────────────────────────────────────────────────────────────────────────────────


async def test_a_family_of_agents_is_at_most_so_deep():
    asked = []

    def myself(request):
        asked.append(len(asked))
        return call("kid", input="deeper") if len(request.messages) == 1 else "back"

    kid = Agent(ScriptedModel(*[myself] * 9), name="kid")
    kid.scopes.register(Scope("self", tools=[kid.as_tool(max_depth=2)]))
    errors = []
    kid.add_hook("onToolCallError", lambda ctx: errors.append(ctx.error.message), inherit=True)
    response = await kid.chat("go")
    assert response.text == "back"
    assert asked[-1] == 5  # three chats of two steps
    assert errors == [
        "agent 'kid' was not called, because agents may be nested at most 2 levels below the first "
        "one; answer without this agent"
    ]


def test_a_depth_is_at_least_one():
    with pytest.raises(UsageError, match="max_depth"):
        Agent(ScriptedModel()).as_tool(max_depth=0)


# ── its own chat ────────────────────────────────────────────────────────────────────────────


async def test_a_childs_answer_is_the_tools_result():
    mum, _ = family("child says hi")
    response = await mum.chat("go")
    assert results(response) == [("ask", "ok", "child says hi")]
    assert response.text == "parent done"


async def test_a_child_is_asked_what_the_model_wrote():
    mum, kid = family("hi")
    seen = []
    kid.add_hook("onChatStart", lambda ctx: seen.append(ctx.message.text))
    await mum.chat("go")
    assert seen == ["help me"]


def test_the_tool_is_named_like_the_agent_and_takes_one_text():
    kid = Agent(ScriptedModel(), name="my kid!")
    made = kid.as_tool()
    assert made.name == "my_kid_"
    assert list(made.parameters["properties"]) == ["input"]
    assert made.parameters["properties"]["input"]["type"] == "string"


def test_the_tool_may_be_named_and_described():
    made = Agent(ScriptedModel()).as_tool(name="ask_kid", description="Ask the kid.")
    assert (made.name, made.description) == ("ask_kid", "Ask the kid.")


async def test_a_childs_chat_has_its_own_id_its_parents_id_and_no_conversation():
    seen = []
    mum, kid = family("hi")
    kid.add_hook(
        "onChatStart",
        lambda ctx: seen.append((ctx.run.agent, ctx.run.conversation_id, ctx.run.parent_chat_id)),
    )
    kid.add_hook("onChatStart", lambda ctx: seen.append(ctx.run.chat_id))
    response = await mum.chat("go", conversation=Conversation())
    assert seen[0] == ("kid", None, response.chat_id)
    assert seen[1] != response.chat_id


async def test_a_child_sees_nothing_of_its_parents_history_and_leaves_nothing_there():
    mum, kid = family("secret thoughts of the kid", "hi again")
    seen = []
    kid.add_hook("preRequest", lambda ctx: seen.append([m.text for m in ctx.request.messages]))
    kid.add_hook("onResponse", lambda ctx: ctx.response.replace(text="short"))
    response = await mum.chat("go")
    assert seen == [["help me"]]
    assert [message.role for message in response.messages] == [
        "user",
        "assistant",
        "tool",
        "assistant",
    ]


async def test_a_child_remembers_nothing_of_its_last_chat():
    seen = []
    turns = (call("kid", input="one"), call("kid", input="two"), "done")
    mum, kid = family("first", "second", parent_turns=turns)
    kid.add_hook("preRequest", lambda ctx: seen.append(len(ctx.request.messages)))
    await mum.chat("go")
    assert seen == [1, 1]


async def test_deps_are_passed_on():
    seen = []
    mum, kid = family("hi")
    kid.add_hook("onChatStart", lambda ctx: seen.append(ctx.run.deps))
    deps = object()
    await mum.chat("go", deps=deps)
    assert seen == [deps]


async def test_state_is_not_shared_with_a_child():
    seen = []
    mum, kid = family("hi")
    kid.add_hook("onChatStart", lambda ctx: seen.append(dict(ctx.run.state)))
    mum.add_hook("onChatStart", lambda ctx: ctx.run.state.update(mine=1))
    await mum.chat("go")
    assert seen == [{}]


async def test_two_children_run_at_the_same_time():
    meet = asyncio.Barrier(2)
    turns = ([call("kid", input="a", call_id="a"), call("kid", input="b", call_id="b")], "done")
    mum, kid = family("one", "two", parent_turns=turns)

    @kid.hook("onChatStart")
    async def wait(ctx):
        await meet.wait()

    response = await mum.chat("go")
    assert sorted(text for _, _, text in results(response)) == ["one", "two"]


@tool
async def dangerous() -> str:
    return "done it"


def asking_child(**parent):
    mum, kid = family(call("dangerous"), "child done", child={"tools": [dangerous]}, parent=parent)
    kid.add_hook("preToolCall", lambda ctx: Ask("may it?"))
    out = []
    kid.add_hook("onToolCallResult", lambda ctx: out.append(ctx.result.value))
    kid.add_hook("onToolCallError", lambda ctx: out.append(ctx.error.message))
    return mum, out


async def test_the_approver_of_a_chat_is_passed_on():
    mum, out = asking_child()
    asked = []

    def approver(request, run):
        asked.append((request.call.name, run.agent))
        return Approve()

    await mum.chat("go", approver=approver)
    assert asked == [("dangerous", "kid")]
    assert out == ["done it"]


async def test_the_approver_of_the_parent_agent_is_passed_on():
    mum, out = asking_child(approver=lambda request, run: Deny("mum says no"))
    await mum.chat("go")
    assert out == ["mum says no"]


async def test_without_approver_and_conversation_a_childs_question_is_a_denial():
    """There is no conversation in which the call could wait."""
    mum, out = asking_child()
    response = await mum.chat("go")
    assert len(out) == 1
    assert out != ["done it"]
    assert response.pending == ()
    assert response.text == "parent done"


# ── hooks ───────────────────────────────────────────────────────────────────────────────────


async def test_hooks_with_inherit_follow_into_a_child_and_others_do_not():
    seen = []
    mum, _ = family("hi")
    mum.add_hook("onChatStart", lambda ctx: seen.append(f"stays {ctx.run.agent}"))
    mum.add_hook("onChatStart", lambda ctx: seen.append(f"follows {ctx.run.agent}"), inherit=True)
    await mum.chat("go")
    assert seen == ["stays mum", "follows mum", "follows kid"]


async def test_inherited_hooks_follow_transitively():
    seen = []
    baby = Agent(ScriptedModel("baby says hi"), name="baby")
    kid = Agent(
        ScriptedModel(call("baby", input="x"), "kid done"), name="kid", tools=[baby.as_tool()]
    )
    mum = Agent(
        ScriptedModel(call("kid", input="x"), "mum done"), name="mum", tools=[kid.as_tool()]
    )
    for agent in (mum, kid, baby):
        agent.add_hook(
            "onChatStart",
            lambda ctx, of=agent.name: seen.append(f"{of}'s in {ctx.run.agent}"),
            inherit=True,
        )
    await mum.chat("go")
    assert seen == [
        "mum's in mum",
        "mum's in kid",
        "kid's in kid",
        "mum's in baby",
        "kid's in baby",
        "baby's in baby",
    ]


async def test_at_equal_priority_the_parents_hooks_come_first_although_registered_later():
    seen = []
    mum, kid = family("hi")
    kid.add_hook("preRequest", lambda ctx: seen.append("kid's"))
    mum.add_hook("preRequest", lambda ctx: seen.append("mum's"), inherit=True)
    await mum.chat("go")
    assert seen == ["mum's", "mum's", "kid's", "mum's"]


async def test_priority_counts_across_parent_and_child():
    seen = []
    mum, kid = family("hi")
    kid.add_hook("onChatStart", lambda ctx: seen.append("kid's 10"), priority=10)
    kid.add_hook("onChatStart", lambda ctx: seen.append("kid's 0"))
    mum.add_hook("onChatStart", lambda ctx: seen.append("mum's 5"), priority=5, inherit=True)
    await mum.chat("go")
    assert seen == ["mum's 5", "kid's 10", "mum's 5", "kid's 0"]


async def test_an_inherited_guard_holds_for_a_childs_tools():
    ran = []

    @tool
    async def delete() -> None:
        ran.append("run")

    mum, kid = family(call("delete"), "child done", child={"tools": [delete]})

    @mum.hook("preToolCall", inherit=True, tools=["delete"])
    def guard(ctx):
        return ToolResult("only pretending")

    seen = []
    kid.add_hook("onToolCallResult", lambda ctx: seen.append(ctx.result.value))
    await mum.chat("go")
    assert ran == []
    assert seen == ["only pretending"]


async def test_a_hook_added_while_the_child_runs_holds_for_its_next_dispatch():
    seen = []
    mum, kid = family("hi")

    @kid.hook("onChatStart")
    def add(ctx):
        mum.add_hook("onChatDone", lambda ctx: seen.append(ctx.run.agent), inherit=True)

    await mum.chat("go")
    assert seen == ["kid", "mum"]


async def test_the_hooks_of_a_chat_follow_too_where_they_are_inherited():
    seen = []
    mum, _ = family("hi")
    follows = HookDef("onChatStart", lambda ctx: seen.append(ctx.run.agent), inherit=True)
    stays = HookDef("onChatStart", lambda ctx: seen.append(f"{ctx.run.agent} only"))
    await mum.chat("go", hooks=[follows, stays])
    assert seen == ["mum", "mum only", "kid"]


async def test_hooks_that_a_chat_replaced_do_not_follow():
    seen = []
    follows = HookDef("onChatStart", lambda ctx: seen.append(ctx.run.agent), inherit=True)
    mum, _ = family("hi", parent={"hooks": [follows]})
    await mum.chat("go", only_hooks=[])
    assert seen == []


async def test_declared_hooks_that_are_required_follow_from_a_chat_with_only_hooks():
    seen = []
    follows = HookDef(
        "onChatStart", lambda ctx: seen.append(ctx.run.agent), inherit=True, required=True
    )
    mum, _ = family("hi", parent={"hooks": [follows]})
    await mum.chat("go", only_hooks=[])
    assert seen == ["mum", "kid"]


async def test_a_hook_of_a_bus_that_parent_and_child_share_runs_once():
    seen = []
    kid = Agent(ScriptedModel("hi"), name="kid")
    mum = Agent(
        ScriptedModel(call("kid", input="x"), "done"),
        name="mum",
        tools=[kid.as_tool()],
        bus=kid.bus,
    )
    mum.add_hook("onChatStart", lambda ctx: seen.append(ctx.run.agent), inherit=True)
    await mum.chat("go")
    assert seen == ["mum", "kid"]


async def test_a_child_that_is_asked_by_itself_inherits_nothing():
    seen = []
    mum, kid = family("hi")
    mum.add_hook("onChatStart", lambda ctx: seen.append("mum's"), inherit=True)
    await kid.chat("go")
    assert seen == []


# ── how a child ends ────────────────────────────────────────────────────────────────────────


async def test_a_childs_Stop_ends_the_child_alone():
    mum, kid = family("never asked", parent_turns=None)
    kid.add_hook("preRequest", lambda ctx: Stop("enough", text="I stop here."))
    response = await mum.chat("go")
    assert results(response) == [("ask", "ok", "I stop here.")]
    assert (response.text, response.stop_reason) == ("parent done", None)


async def test_a_childs_error_is_a_tool_error_to_the_parent():
    mum, _ = family(ConnectionError("no network"))
    response = await mum.chat("go")
    ((_, outcome, text),) = results(response)
    assert outcome == "error"
    assert json.loads(text)["error"] == {"type": "ConnectionError", "message": "no network"}
    assert response.text == "parent done"


async def test_a_throw_in_a_childs_own_hook_is_a_tool_error_to_the_parent():
    mum, kid = family("hi")

    def broken(ctx):
        raise ZeroDivisionError("in the kid")

    kid.add_hook("onStep", broken)
    response = await mum.chat("go")
    assert [outcome for _, outcome, _ in results(response)] == ["error"]
    assert response.text == "parent done"


async def test_a_child_that_runs_out_of_steps_is_a_tool_error_to_the_parent():
    mum, _ = family(call("nope"), child={"limits": Limits(steps=1)})
    response = await mum.chat("go")
    assert json.loads(results(response)[0][2])["error"]["type"] == "MaxStepsError"


async def test_a_childs_abort_is_a_tool_error_to_the_parent():
    seen = []
    mum, kid = family("hi")
    kid.add_hook("onChatStart", lambda ctx: ctx.run.abort("the kid had enough") and None)
    kid.add_hook("onChatAbort", lambda ctx: seen.append(f"kid: {ctx.reason}"))
    mum.add_hook("onChatAbort", lambda ctx: seen.append("mum"))
    response = await mum.chat("go")
    error = json.loads(results(response)[0][2])["error"]
    assert error["type"] == "ChatAbortedError"
    assert "the kid had enough" in error["message"]
    assert response.text == "parent done"
    assert seen == ["kid: the kid had enough"]


async def test_a_failed_child_never_loses_its_siblings_results():
    turns = ([call("kid", input="x", call_id="a"), call("dangerous", call_id="b")], "done")
    mum, _ = family(ValueError("broken"), parent_turns=turns, parent={"tools": [dangerous]})
    response = await mum.chat("go")
    assert [(id, outcome) for id, outcome, _ in results(response)] == [("a", "error"), ("b", "ok")]


def hanging(out, started):
    @tool
    async def hang() -> None:
        started.set()
        try:
            await asyncio.Event().wait()
        finally:
            out.append("tool cancelled")

    return hang


def watched(agent, out):
    """Notes the outcome observers of an agent."""
    agent.add_hook("onChatDone", lambda ctx: out.append(f"{ctx.run.agent} done"))
    agent.add_hook("onChatAbort", lambda ctx: out.append(f"{ctx.run.agent} abort {ctx.reason}"))
    agent.add_hook("onChatError", lambda ctx: out.append(f"{ctx.run.agent} error"))
    agent.add_hook("onChatEnd", lambda ctx: out.append(f"{ctx.run.agent} end"))


async def test_the_parents_abort_takes_the_child_along_with_its_reason():
    out, started = [], asyncio.Event()
    mum, kid = family(call("hang"), child={"tools": [hanging(out, started)]})
    watched(mum, out)
    watched(kid, out)
    runs = []
    mum.add_hook("onChatStart", lambda ctx: runs.append(ctx.run))
    chat = asyncio.ensure_future(mum.chat("go"))
    await started.wait()
    assert runs[0].abort("the boss is here")
    with pytest.raises(ChatAbortedError) as caught:
        await chat
    assert caught.value.reason == "the boss is here"
    assert out[0] == "tool cancelled"
    assert out[1:] == [
        "kid abort the boss is here",
        "kid end",
        "mum abort the boss is here",
        "mum end",
    ]


async def test_the_parents_abort_takes_a_child_along_that_never_suspends():
    """An abort is looked at after every step: also the parent's, in the child."""
    streams = []

    @tool
    async def leave() -> str:
        assert streams[0].abort("enough")
        return "left"

    model = ScriptedModel([call("leave")], "the child went on")
    asked = []
    child = Agent(model, name="child", tools=[leave], system=lambda run: asked.append(1) or "Go.")
    agent = Agent(ScriptedModel([call("child", input="go")]), tools=[child.as_tool()])
    ends = []
    child.add_hook("onChatEnd", lambda ctx: ends.append(ctx.outcome))
    streams.append(agent.chat_stream("hi"))
    await collect(streams[0])
    assert ends == ["aborted"]
    assert len(model.requests) == len(asked) == 1


async def test_cancelling_the_parents_caller_takes_the_child_along():
    out, started = [], asyncio.Event()
    conversation = Conversation()
    mum, kid = family(
        call("hang"),
        parent_turns=(call("kid", input="x", call_id="ask"), "next"),
        child={"tools": [hanging(out, started)]},
    )
    watched(kid, out)
    chat = asyncio.ensure_future(mum.chat("go", conversation=conversation))
    await started.wait()
    chat.cancel()
    with pytest.raises(asyncio.CancelledError):
        await chat
    assert out[0] == "tool cancelled"
    assert [line.split(" ")[1] for line in out[1:]] == ["abort", "end"]
    assert [(id, outcome) for id, outcome, _ in results(conversation)] == [("ask", "aborted")]
    await goes_on(mum, conversation)


async def test_leaving_the_parents_stream_takes_the_child_along():
    out, started = [], asyncio.Event()
    mum, kid = family(call("hang"), child={"tools": [hanging(out, started)]})
    watched(kid, out)
    async with mum.chat_stream("go") as stream:
        async for event in stream:
            if event.path and isinstance(event, ChatStarted):
                break
        await started.wait()
    assert out[0] == "tool cancelled"
    assert [line.split(" ")[1] for line in out[1:]] == ["abort", "end"]


async def test_the_parents_abort_takes_several_children_along():
    out, started = [], asyncio.Event()
    turns = ([call("kid", input="a", call_id="a"), call("kid", input="b", call_id="b")],)
    mum, kid = family(
        call("hang"), call("hang"), parent_turns=turns, child={"tools": [hanging(out, started)]}
    )
    watched(kid, out)
    chat = asyncio.ensure_future(mum.chat("go"))
    await started.wait()
    await settle()
    chat.cancel()
    with pytest.raises(asyncio.CancelledError):
        await chat
    assert sorted(line.split(" ")[-1] for line in out) == [
        "cancelled",
        "cancelled",
        "cancelled",
        "cancelled",
        "end",
        "end",
    ]


async def test_an_abort_from_a_hook_that_a_child_inherited_ends_the_child_alone():
    mum, _ = family("hi")
    mum.add_hook(
        "onResponse",
        lambda ctx: ctx.run.abort("not here") and None if ctx.run.agent == "kid" else None,
        inherit=True,
    )
    response = await mum.chat("go")
    assert [outcome for _, outcome, _ in results(response)] == ["error"]
    assert response.text == "parent done"


async def test_a_child_whose_tool_ignores_its_cancellation_is_left_behind_with_its_parent(caplog):
    """The tool is reported by name, and the parent's own end is the last event."""
    clock, started, release = Clock(), asyncio.Event(), asyncio.Event()

    @tool
    async def stubborn() -> None:
        started.set()
        while not release.is_set():
            try:
                await release.wait()
            except asyncio.CancelledError:
                continue

    mum, _ = family(call("stubborn"), child={"tools": [stubborn]})
    events = []

    async def read():
        async with mum.chat_stream("go") as stream:
            async for event in stream:
                events.append(event)
                if event.path and isinstance(event, ToolCallStarted):
                    await started.wait()
                    stream.abort("enough")

    reading = asyncio.ensure_future(read())
    await started.wait()
    with caplog.at_level(logging.WARNING):
        await clock.advance(6)
        await clock.advance(6)
        await reading
    assert any("'stubborn'" in record.getMessage() for record in caplog.records)
    assert isinstance(events[-1], ChatAborted)
    assert events[-1].path == ()
    release.set()
    await settle()


async def test_a_child_that_is_cancelled_while_its_last_event_waits_for_room_still_answers():
    """Other code cancels the child's task when its outcome is decided and the channel is full."""
    tasks = []
    # The room is used up by the texts and 12 events of mum and kid, up to kid's ChatDone.
    text = "x" * (HIGH_WATER + 1 - 12)
    mum, kid = family([*text])
    kid.add_hook("onChatDone", lambda ctx: tasks.append(asyncio.current_task()))
    async with mum.chat_stream("go") as stream:
        await settle()
        (task,) = tasks
        assert not task.done()  # it waits for room
        task.cancel()
        await settle()
        assert task.cancelled()
        events = [event async for event in stream]
    (finished,) = only(events, ToolCallFinished)
    assert finished.outcome == "ok"
    assert finished.result.value == text
    assert isinstance(events[-1], ChatDone)


async def test_a_tool_limit_of_the_parent_does_not_cut_a_child():
    """It has limits of its own."""
    kid = Agent(ScriptedModel("hi"), name="kid")
    assert kid.as_tool().timeout == float("inf")


# ── events ──────────────────────────────────────────────────────────────────────────────────


async def test_a_childs_events_appear_in_the_parents_stream_with_their_path():
    mum, _ = family(call("dangerous", call_id="d"), "child done", child={"tools": [dangerous]})
    events = await collect(mum.chat_stream("go"))
    inner = [event for event in events if event.path]
    assert {event.path for event in inner} == {("ask",)}
    assert isinstance(inner[0], ChatStarted)
    assert isinstance(inner[-1], ChatDone)
    assert [event.call_id for event in only(inner, ToolCallFinished)] == ["d"]
    assert "".join(event.text for event in only(inner, TextDelta)) == "child done"
    assert_json(events)


async def test_a_childs_events_lie_between_the_start_and_the_end_of_its_call():
    mum, _ = family("child done")
    events = await collect(mum.chat_stream("go"))
    kinds = [f"{type(event).__name__}{'/'.join(event.path)}" for event in events]
    start, end = kinds.index("ToolCallStarted"), kinds.index("ToolCallFinished")
    assert all(start < n < end for n, event in enumerate(events) if event.path)


async def test_a_childs_events_have_the_roots_numbers_in_order():
    turns = ([call("kid", input="a", call_id="a"), call("kid", input="b", call_id="b")], "done")
    mum, _ = family("one", "two", parent_turns=turns)
    events = await collect(mum.chat_stream("go"))
    assert [event.seq for event in events] == list(range(1, len(events) + 1))
    assert {event.path for event in events} == {(), ("a",), ("b",)}


async def test_a_childs_events_have_the_childs_chat_id_and_name_its_parent():
    mum, _ = family("hi")
    events = await collect(mum.chat_stream("go"))
    mine, theirs = only(events, ChatStarted)
    assert (theirs.agent, theirs.parent_chat_id) == ("kid", mine.chat_id)
    assert {event.chat_id for event in events if event.path} == {theirs.chat_id}
    assert {event.chat_id for event in events if not event.path} == {mine.chat_id}


async def test_the_path_of_a_grandchild_names_both_calls():
    mum, _, _ = three_generations()
    events = await collect(mum.chat_stream("go"))
    assert [event.path for event in only(events, ChatStarted)] == [
        (),
        ("outer",),
        ("outer", "inner"),
    ]
    assert [event.seq for event in events] == list(range(1, len(events) + 1))


async def test_each_call_of_parent_and_child_is_finished_once():
    mum, _ = family(call("dangerous", call_id="d"), "child done", child={"tools": [dangerous]})
    assert outcomes(await collect(mum.chat_stream("go"))) == {"ask": "ok", "d": "ok"}


async def test_a_childs_status_is_shown_with_its_path():
    @tool
    async def work(run: Run) -> None:
        await run.status("working")

    mum, _ = family(call("work", call_id="w"), "child done", child={"tools": [work]})
    (status,) = only(await collect(mum.chat_stream("go")), Status)
    assert (status.type, status.path, status.call_id) == ("working", ("ask",), "w")


async def test_the_parents_terminal_event_alone_ends_the_stream():
    mum, _ = family("hi")
    events = await collect(mum.chat_stream("go"))
    assert [event.path for event in only(events, ChatDone)] == [("ask",), ()]
    assert events[-1].response.text == "parent done"


async def test_a_failed_child_is_shown_as_failed_with_its_path():
    mum, _ = family(ValueError("broken"))
    events = await collect(mum.chat_stream("go"))
    (end,) = only(events, ChatFailed)
    assert end.path == ("ask",)
    assert isinstance(events[-1], ChatDone)


async def test_an_aborted_child_is_shown_as_aborted_before_its_parent():
    started = asyncio.Event()
    mum, _ = family(call("hang"), child={"tools": [hanging([], started)]})
    events = []
    async with mum.chat_stream("go") as stream:
        async for event in stream:
            events.append(event)
            if started.is_set() or (event.path and isinstance(event, ChatStarted)):
                await started.wait()
                stream.abort("enough")
    assert [event.path for event in only(events, ChatAborted)] == [("ask",), ()]
    assert events[-1].reason == "enough"


async def test_subscribers_of_the_child_see_its_events_and_those_of_the_parent_see_all():
    mum, kid = family("hi")
    at_kid, at_mum = kid.subscribe(ChatStarted), mum.subscribe(ChatStarted)
    await mum.chat("go")
    at_kid.close()
    at_mum.close()
    assert [event.agent async for event in at_kid] == ["kid"]
    assert [event.agent async for event in at_mum] == ["mum", "kid"]


async def test_release_by_response_holds_for_a_child_too():
    kid = Agent(ScriptedModel(["in ", "pieces"]), name="kid")
    mum = Agent(ScriptedModel(call("kid", input="x"), "done"), tools=[kid.as_tool()])
    events = await collect(mum.chat_stream("go", release="response"))
    assert [event.text for event in only(events, TextDelta) if event.path] == ["in pieces"]


async def test_a_child_that_is_slowed_down_by_the_consumer_loses_no_event():
    @tool
    async def chatter(run: Run) -> None:
        for n in range(100):
            await run.status("at", n)

    mum, _ = family(call("chatter"), "child done", child={"tools": [chatter]})
    events = []
    async with mum.chat_stream("go") as stream:
        async for event in stream:
            events.append(event)
            await asyncio.sleep(0)
    assert [event.data for event in only(events, Status)] == list(range(100))
    assert [event.seq for event in events] == list(range(1, len(events) + 1))
