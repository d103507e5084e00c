"""The tool calls of a step: decided in order, run side by side, committed in order."""

import asyncio
import json
import threading
from contextlib import suppress
from dataclasses import dataclass

import pytest
from tests._tool_chats import goes_on, only, outcomes, result_ids, results, settle, written

from hookline import (
    Agent,
    Approve,
    Ask,
    Conversation,
    Image,
    Run,
    Stop,
    ToolFailure,
    ToolMessage,
    ToolResult,
    check_history,
    tool,
)
from hookline.errors import ChatAbortedError, HookReturnError, StopChat
from hookline.events import (
    ChatAborted,
    MessageAdded,
    StepFinished,
    ToolCallFinished,
    ToolCallStarted,
)
from hookline.testing import ScriptedModel, call, collect, raw_call


def noting(out, *names, **options):
    """Tools that note that they ran."""

    def make(name):
        @tool(name=name, **options)
        async def fn() -> str:
            out.append(f"run {name}")
            await asyncio.sleep(0)
            out.append(f"ran {name}")
            return name

        return fn

    return [make(name) for name in names]


def note_decisions(agent, out):
    @agent.hook("preToolCall")
    async def note(ctx):
        await asyncio.sleep(0)
        out.append(f"pre {ctx.call.name}")


# ── order ───────────────────────────────────────────────────────────────────────────────────


async def test_preToolCall_runs_for_each_call_in_the_models_order_before_any_handler():
    out = []
    agent = Agent(
        ScriptedModel([call("b"), call("a"), call("c")], "done"), tools=noting(out, "a", "b", "c")
    )
    note_decisions(agent, out)
    await agent.chat("go")
    assert out[:3] == ["pre b", "pre a", "pre c"]
    assert sorted(out[3:]) == ["ran a", "ran b", "ran c", "run a", "run b", "run c"]


async def test_allowed_calls_run_at_the_same_time():
    meet = asyncio.Barrier(3)

    @tool
    async def guest() -> str:
        await meet.wait()  # all three are here, or nobody goes on
        return "met"

    agent = Agent(
        ScriptedModel([call("guest"), call("guest"), call("guest")], "done"), tools=[guest]
    )
    response = await agent.chat("go")
    assert [text for _, _, text in results(response)] == ["met", "met", "met"]


async def test_sync_tools_of_a_step_run_at_the_same_time_too():
    meet = threading.Barrier(2)

    @tool
    def guest() -> str:
        meet.wait(10)
        return "met"

    agent = Agent(ScriptedModel([call("guest"), call("guest")], "done"), tools=[guest])
    response = await agent.chat("go")
    assert [text for _, _, text in results(response)] == ["met", "met"]


def first_and_second(first_may_end):
    """Two tools, of which the first called ends when it is told."""

    @tool
    async def first() -> str:
        await first_may_end.wait()
        return "1"

    @tool
    async def second() -> str:
        return "2"

    return [first, second]


async def test_a_result_waits_for_its_turn_to_be_committed():
    out, second_done = [], asyncio.Event()
    agent = Agent(
        ScriptedModel([call("first"), call("second")], "done"), tools=first_and_second(second_done)
    )

    @agent.hook("onToolCallResult")
    def note_result(ctx):
        out.append(f"result {ctx.call.name}")
        if ctx.call.name == "second":
            second_done.set()

    @agent.hook("onMessage")
    def note_message(ctx):
        if isinstance(ctx.message, ToolMessage):
            out.append(f"message {ctx.message.name}")

    await agent.chat("go")
    assert out == ["result second", "result first", "message first", "message second"]


async def test_a_result_is_committed_as_soon_as_its_turn_comes():
    """The first is written while the second still runs."""
    written_first = asyncio.Event()

    @tool
    async def first() -> str:
        return "1"

    @tool
    async def second() -> str:
        await written_first.wait()
        return "2"

    agent = Agent(ScriptedModel([call("first"), call("second")], "done"), tools=[first, second])

    @agent.hook("onMessage")
    def note(ctx):
        if isinstance(ctx.message, ToolMessage) and ctx.message.name == "first":
            written_first.set()

    response = await agent.chat("go")
    assert [text for _, _, text in results(response)] == ["1", "2"]


async def test_ToolCallFinished_comes_when_a_call_finishes_MessageAdded_when_it_is_committed():
    second_done = asyncio.Event()
    agent = Agent(
        ScriptedModel([call("first", call_id="a"), call("second", call_id="b")], "done"),
        tools=first_and_second(second_done),
    )
    out = []
    async with agent.chat_stream("go") as stream:
        async for event in stream:
            match event:
                case ToolCallStarted():
                    out.append(f"started {event.call.id}")
                case ToolCallFinished():
                    out.append(f"finished {event.call_id}")
                    if event.call_id == "b":
                        await settle()
                        second_done.set()
                case MessageAdded(message=ToolMessage()):
                    out.append(f"added {event.message.call_id}")
                case StepFinished(iteration=0):
                    out.append("step finished")
    assert out == [
        "started a",
        "started b",
        "finished b",
        "finished a",
        "added a",
        "added b",
        "step finished",
    ]


async def test_result_chains_of_parallel_calls_run_one_at_a_time():
    out = []
    calls = [call("a"), call("b"), call("c")]
    agent = Agent(ScriptedModel(calls, "done"), tools=noting([], "a", "b", "c"))

    @agent.hook("onToolCallResult")
    async def slow(ctx):
        out.append("in")
        await settle(5)
        out.append("out")

    await agent.chat("go")
    assert out == ["in", "out"] * 3


async def test_result_and_error_chains_run_one_at_a_time_together():
    out = []

    @tool
    async def good() -> str:
        return "fine"

    @tool
    async def bad() -> str:
        raise ValueError("no")

    agent = Agent(
        ScriptedModel([call("good"), call("bad"), call("good")], "done"), tools=[good, bad]
    )

    async def slow(ctx):
        out.append("in")
        await settle(5)
        out.append("out")

    agent.add_hook("onToolCallResult", slow)
    agent.add_hook("onToolCallError", slow)
    await agent.chat("go")
    assert out == ["in", "out"] * 3


async def test_the_next_request_has_the_results_in_the_models_order():
    second_done = asyncio.Event()
    model = ScriptedModel([call("first", call_id="a"), call("second", call_id="b")], "done")
    agent = Agent(model, tools=first_and_second(second_done))
    agent.add_hook(
        "onToolCallResult", lambda ctx: second_done.set() if ctx.call.id == "b" else None
    )
    await agent.chat("go")
    assert result_ids(model.last_request.messages) == ["a", "b"]


# ── calls that run alone ────────────────────────────────────────────────────────────────────


async def test_a_call_with_parallel_false_starts_when_all_earlier_calls_have_their_results():
    """Its preToolCall included."""
    out = []
    tools = [*noting(out, "a", "b"), *noting(out, "alone", parallel=False)]
    agent = Agent(ScriptedModel([call("a"), call("b"), call("alone")], "done"), tools=tools)
    note_decisions(agent, out)
    agent.add_hook("onToolCallResult", lambda ctx: out.append(f"result {ctx.call.name}"))
    await agent.chat("go")
    assert out[:2] == ["pre a", "pre b"]
    assert sorted(out[2:8]) == ["ran a", "ran b", "result a", "result b", "run a", "run b"]
    assert out[8:] == ["pre alone", "run alone", "ran alone", "result alone"]


async def test_nothing_runs_beside_a_call_with_parallel_false():
    out = []
    tools = [*noting(out, "a", "b"), *noting(out, "alone", parallel=False)]
    agent = Agent(ScriptedModel([call("alone"), call("a"), call("b")], "done"), tools=tools)
    note_decisions(agent, out)
    await agent.chat("go")
    assert out[:3] == ["pre alone", "run alone", "ran alone"]
    assert out[3:5] == ["pre a", "pre b"]


async def test_two_calls_with_parallel_false_run_one_after_the_other():
    out = []
    tools = noting(out, "a", "b", parallel=False)
    agent = Agent(ScriptedModel([call("b"), call("a")], "done"), tools=tools)
    note_decisions(agent, out)
    await agent.chat("go")
    assert out == ["pre b", "run b", "ran b", "pre a", "run a", "ran a"]


async def test_with_parallel_tools_false_each_call_starts_after_the_one_before_it():
    out = []
    agent = Agent(
        ScriptedModel([call("a"), call("b"), call("c")], "done"),
        tools=noting(out, "a", "b", "c"),
        parallel_tools=False,
    )
    note_decisions(agent, out)
    agent.add_hook("onToolCallResult", lambda ctx: out.append(f"result {ctx.call.name}"))
    await agent.chat("go")
    one_after_the_other = [
        f"{what} {name}" for name in "abc" for what in ("pre", "run", "ran", "result")
    ]
    assert out == one_after_the_other


async def test_a_call_that_runs_alone_sees_the_earlier_results_in_history():
    seen = []

    @tool
    async def early() -> str:
        return "early"

    @tool(parallel=False)
    async def late(run: Run) -> str:
        seen.extend(result_ids(run.history))
        return "late"

    agent = Agent(
        ScriptedModel(
            [call("early", call_id="a"), call("early", call_id="b"), call("late")], "done"
        ),
        tools=[early, late],
    )
    await agent.chat("go")
    assert seen == ["a", "b"]


async def test_a_call_that_runs_alone_waits_although_an_earlier_one_failed():
    out = []

    @tool
    async def bad() -> str:
        out.append("bad")
        raise ValueError("no")

    agent = Agent(
        ScriptedModel([call("bad"), call("alone")], "done"),
        tools=[bad, *noting(out, "alone", parallel=False)],
    )
    response = await agent.chat("go")
    assert out == ["bad", "run alone", "ran alone"]
    assert [outcome for _, outcome, _ in results(response)] == ["error", "ok"]


async def test_a_lone_call_runs_in_the_chats_own_task():
    tasks = []

    @tool
    async def look() -> None:
        tasks.append(asyncio.current_task())

    agent = Agent(ScriptedModel(call("look"), "done"), tools=[look])
    agent.add_hook("onChatStart", lambda ctx: tasks.append(asyncio.current_task()))
    await agent.chat("go")
    assert tasks[0] is tasks[1]


# ── siblings ────────────────────────────────────────────────────────────────────────────────


async def test_one_failing_tool_never_loses_its_siblings_results():
    failed = asyncio.Event()

    @tool
    async def bad() -> str:
        failed.set()
        raise ValueError("broken")

    @tool
    async def good() -> str:
        await failed.wait()
        await settle()
        return "fine"

    agent = Agent(
        ScriptedModel(
            [call("good", call_id="a"), call("bad", call_id="b"), call("good", call_id="c")], "done"
        ),
        tools=[bad, good],
    )
    response = await agent.chat("go")
    assert [(id, outcome) for id, outcome, _ in results(response)] == [
        ("a", "ok"),
        ("b", "error"),
        ("c", "ok"),
    ]
    assert response.text == "done"


async def test_a_tool_that_raises_CancelledError_never_loses_its_siblings_results():
    @tool
    async def bad() -> str:
        raise asyncio.CancelledError

    @tool
    async def good() -> str:
        await settle()
        return "fine"

    agent = Agent(
        ScriptedModel(
            [call("good", call_id="a"), call("bad", call_id="b"), call("good", call_id="c")], "done"
        ),
        tools=[bad, good],
    )
    response = await agent.chat("go")
    assert [outcome for _, outcome, _ in results(response)] == ["ok", "error", "ok"]


async def test_a_tool_that_cancels_its_own_task_never_leaves_a_call_without_a_result():
    @tool
    async def bad() -> str:
        asyncio.current_task().cancel()
        await asyncio.sleep(0)
        return "never"

    @tool
    async def good() -> str:
        await settle()
        return "fine"

    model = ScriptedModel(
        [call("good", call_id="a"), call("bad", call_id="b"), call("good", call_id="c")], "done"
    )
    response = await Agent(model, tools=[bad, good]).chat("go")
    assert [(id, outcome) for id, outcome, _ in results(response)] == [
        ("a", "ok"),
        ("b", "error"),
        ("c", "ok"),
    ]


@pytest.mark.parametrize("point", ["onToolCallResult", "onApproval", "preMessage"])
async def test_a_hook_that_cancels_its_own_task_never_leaves_a_call_without_a_result(point):
    async def suicidal(ctx):
        if point != "preMessage" or ctx.message.role == "tool":
            asyncio.current_task().cancel()
            await asyncio.sleep(0)

    conversation = Conversation()
    agent = Agent(
        ScriptedModel([call("a"), call("b"), call("c")], "done", "next"),
        tools=noting([], "a", "b", "c"),
        approver=lambda request, run: Approve(),
    )
    agent.add_hook("preToolCall", lambda ctx: Ask("may it?"))
    dispose = agent.add_hook(point, suicidal)
    with suppress(Exception, asyncio.CancelledError):
        await agent.chat("go", conversation=conversation)
    dispose()
    await settle()
    check_history(conversation.messages)


async def test_StopChat_in_a_tool_lets_its_siblings_finish():
    """It gives that call the reason as its result and stops the chat after the step."""
    stopped = asyncio.Event()

    @tool
    async def stop() -> str:
        stopped.set()
        raise StopChat("enough")

    @tool
    async def good() -> str:
        await stopped.wait()
        await settle()
        return "fine"

    model = ScriptedModel(
        [call("good", call_id="a"), call("stop", call_id="b"), call("good", call_id="c")]
    )
    response = await Agent(model, tools=[stop, good]).chat("go")
    assert results(response) == [("a", "ok", "fine"), ("b", "ok", "enough"), ("c", "ok", "fine")]
    assert response.stop_reason == "enough"
    model.done()


async def test_StopChat_lets_later_calls_of_the_step_run_too():
    out = []

    @tool(parallel=False)
    async def stop() -> str:
        raise StopChat("enough")

    model = ScriptedModel([call("stop"), call("alone")])
    agent = Agent(model, tools=[stop, *noting(out, "alone", parallel=False)])
    response = await agent.chat("go")
    assert out == ["run alone", "ran alone"]
    assert response.stop_reason == "enough"


async def test_the_first_failure_reaches_the_caller_whatever_siblings_raise_while_they_end():
    agent = Agent(
        ScriptedModel([call("a", call_id="a"), call("b", call_id="b")]), tools=noting([], "a", "b")
    )

    @agent.hook("aroundToolCall", tools=["a"])
    async def messy(ctx, proceed):
        try:
            await asyncio.Event().wait()
        finally:
            raise RuntimeError("while it was cancelled")

    @agent.hook("onToolCallResult")
    async def broken(ctx):
        raise ZeroDivisionError("first")

    with pytest.raises(ZeroDivisionError):
        await agent.chat("go")


async def test_a_result_that_its_hooks_have_not_seen_when_the_chat_ends_is_not_kept():
    """One of them may be the redactor."""
    out, inside = [], asyncio.Event()
    conversation = Conversation()

    @tool
    async def give() -> str:
        out.append("run")
        return "secret"

    agent = Agent(
        ScriptedModel([call("give", call_id="a"), call("give", call_id="b")], "next"), tools=[give]
    )

    async def redact(ctx):
        inside.set()
        await asyncio.Event().wait()

    dispose = agent.add_hook("onToolCallResult", redact)
    chat = asyncio.ensure_future(agent.chat("go", conversation=conversation))
    await inside.wait()
    await settle()
    chat.cancel()
    with pytest.raises(asyncio.CancelledError):
        await chat
    assert out == ["run", "run"]
    assert [id for id, _, _ in results(conversation)] == ["a", "b"]
    assert not any("secret" in text for _, _, text in results(conversation))
    dispose()
    await goes_on(agent, conversation)


# ── changed arguments ───────────────────────────────────────────────────────────────────────


@tool
async def double(n: int) -> int:
    return n * 2


def mend(ctx):
    """What the model wrote is 1; the tool is to get 21."""
    return ctx.call.replace(arguments={"n": 21})


def doubling(*turns, model=None):
    agent = Agent(model or ScriptedModel(call("double", n=1, call_id="a"), "done"), tools=[double])
    agent.add_hook("preToolCall", mend)
    return agent


async def test_a_changed_call_is_what_the_handler_gets():
    response = await doubling().chat("go")
    assert results(response) == [("a", "ok", "42")]


@pytest.mark.parametrize("point", ["preToolCall", "onToolCallResult"], ids=str)
async def test_a_changed_call_is_what_later_hooks_see(point):
    seen = []
    agent = doubling()
    agent.add_hook(point, lambda ctx: seen.append(ctx.call.arguments))
    await agent.chat("go")
    assert seen == [{"n": 21}]


async def test_a_changed_call_is_what_wrappers_see():
    seen = []
    agent = doubling()

    @agent.hook("aroundToolCall")
    async def look(ctx, proceed):
        seen.append(ctx.call.arguments)
        return await proceed()

    await agent.chat("go")
    assert seen == [{"n": 21}]


async def test_a_changed_call_is_what_onToolCallError_sees():
    seen = []
    agent = Agent(ScriptedModel(call("double", n=1), "done"), tools=[double])
    agent.add_hook("preToolCall", lambda ctx: ctx.call.replace(arguments={"n": "x"}))
    agent.add_hook("onToolCallError", lambda ctx: seen.append(ctx.call.arguments))
    await agent.chat("go")
    assert seen == [{"n": "x"}]


async def test_a_changed_call_is_what_the_events_show():
    events = await collect(doubling().chat_stream("go"))
    assert [event.call.arguments for event in only(events, ToolCallStarted)] == [{"n": 21}]


async def test_history_keeps_the_arguments_that_the_model_wrote():
    response = await doubling().chat("go")
    assert written(response) == {"a": {"n": 1}}


async def test_the_next_request_has_the_arguments_that_the_model_wrote():
    model = ScriptedModel(call("double", n=1, call_id="a"), "done")
    await doubling(model=model).chat("go")
    assert model.last_request.messages[1].tool_calls[0].arguments == {"n": 1}


async def test_each_hook_of_preToolCall_sees_what_the_one_before_it_returned():
    agent = Agent(ScriptedModel(call("double", n=1), "done"), tools=[double])

    def add_one(ctx):
        return ctx.call.replace(arguments={"n": ctx.call.arguments["n"] + 1})

    for _ in range(3):
        agent.add_hook("preToolCall", add_one)
    response = await agent.chat("go")
    assert [text for _, _, text in results(response)] == ["8"]


async def test_preToolCall_runs_before_the_arguments_are_validated_so_a_hook_can_mend_them():
    agent = Agent(ScriptedModel(call("double", number="1"), "done"), tools=[double])
    agent.add_hook("preToolCall", mend)
    response = await agent.chat("go")
    assert [text for _, _, text in results(response)] == ["42"]


async def test_a_hook_can_mend_arguments_that_are_no_json():
    """In preToolCall the arguments are empty then and `call.raw` holds the text."""
    seen = []
    agent = Agent(ScriptedModel(raw_call("double", "n=21", call_id="a"), "done"), tools=[double])

    @agent.hook("preToolCall")
    def read(ctx):
        seen.append((ctx.call.arguments, ctx.call.raw))
        return ctx.call.replace(arguments={"n": int(ctx.call.raw.removeprefix("n="))})

    response = await agent.chat("go")
    assert seen == [({}, "n=21")]
    assert results(response) == [("a", "ok", "42")]
    assert written(response) == {"a": {}}


@pytest.mark.parametrize(
    "changes", [{"name": "other"}, {"id": "b"}, {"name": "other", "id": "b"}], ids=str
)
async def test_a_ToolCall_with_another_name_or_id_is_refused(changes):
    model = ScriptedModel(call("double", n=1, call_id="a"))
    agent = Agent(model, tools=[double, *noting([], "other")])
    agent.add_hook("preToolCall", lambda ctx: ctx.call.replace(**changes), name="renamer")
    with pytest.raises(
        HookReturnError, match=r"'renamer' at preToolCall returned a value of type ToolCall"
    ):
        await agent.chat("go")


# ── events ──────────────────────────────────────────────────────────────────────────────────


def every_fate():
    """An agent whose model makes a call of each fate in one step."""
    calls = [
        call("ok", call_id="ok"),
        call("fails", call_id="failed"),
        call("nothing", call_id="unknown"),
        call("off", call_id="disabled"),
        call("ok", extra=1, call_id="invalid"),
        raw_call("ok", "{", call_id="cut"),
        call("denied", call_id="denied"),
        call("answered", call_id="answered"),
    ]

    @tool
    async def ok() -> str:
        return "fine"

    @tool
    async def fails() -> str:
        raise ValueError("broken")

    agent = Agent(
        ScriptedModel(calls, "done"),
        tools=[
            ok,
            fails,
            *noting([], "denied", "answered"),
            *noting([], "off", enabled=lambda: False),
        ],
    )

    @agent.hook("preToolCall")
    def decide(ctx):
        if ctx.call.name == "denied":
            return ToolFailure("not now")
        return ToolResult("cached") if ctx.call.name == "answered" else None

    return agent


async def test_ToolCallFinished_says_what_became_of_a_call():
    events = await collect(every_fate().chat_stream("go"))
    assert outcomes(events) == {
        "ok": "ok",
        "failed": "error",
        "unknown": "error",
        "disabled": "error",
        "invalid": "error",
        "cut": "error",
        "denied": "denied",
        "answered": "answered",
    }


async def test_the_tool_messages_say_the_same_as_the_events():
    events = await collect(every_fate().chat_stream("go"))
    messages = [
        event.message
        for event in only(events, MessageAdded)
        if isinstance(event.message, ToolMessage)
    ]
    assert {message.call_id: message.outcome for message in messages} == outcomes(events)


async def test_every_call_has_one_ToolCallStarted_in_the_models_order():
    events = await collect(every_fate().chat_stream("go"))
    assert [event.call.id for event in only(events, ToolCallStarted)] == [
        "ok",
        "failed",
        "unknown",
        "disabled",
        "invalid",
        "cut",
        "denied",
        "answered",
    ]


async def test_ToolCallStarted_comes_before_the_handler_runs():
    out = []
    agent = Agent(ScriptedModel(call("a"), "done"), tools=noting(out, "a"))
    with_subscriber = agent.subscribe(ToolCallStarted, ToolCallFinished)
    await agent.chat("go")
    assert out == ["run a", "ran a"]
    first = await anext(with_subscriber)
    second = await anext(with_subscriber)
    assert [type(first), type(second)] == [ToolCallStarted, ToolCallFinished]
    with_subscriber.close()


async def test_ToolCallFinished_carries_the_result_as_the_hooks_left_it():
    agent = Agent(ScriptedModel(call("double", n=4), "done"), tools=[double])
    agent.add_hook("onToolCallResult", lambda ctx: ctx.result.replace(value="redacted"))
    (event,) = only(await collect(agent.chat_stream("go")), ToolCallFinished)
    assert event.result == ToolResult("redacted")


async def test_a_Stop_from_preToolCall_gives_each_call_one_ToolCallStarted_and_Finished():
    agent = Agent(
        ScriptedModel([call("a", call_id="a"), call("b", call_id="b"), call("c", call_id="c")]),
        tools=noting([], "a", "b", "c"),
    )
    agent.add_hook("preToolCall", lambda ctx: Stop("no") if ctx.call.name == "b" else None)
    events = await collect(agent.chat_stream("go"))
    assert outcomes(events) == {"a": "stopped", "b": "stopped", "c": "stopped"}


async def test_an_abort_while_calls_run_finishes_each_of_them_once():
    running = asyncio.Event()

    @tool
    async def hang() -> str:
        running.set()
        await asyncio.Event().wait()

    @tool
    async def quick() -> str:
        return "quick"

    agent = Agent(
        ScriptedModel(
            [call("quick", call_id="a"), call("hang", call_id="b"), call("quick", call_id="c")]
        ),
        tools=[hang, quick],
    )
    events = []
    async with agent.chat_stream("go") as stream:
        async for event in stream:
            events.append(event)
            if isinstance(event, ToolCallFinished) and event.call_id == "c":
                stream.abort("that's it")
    assert outcomes(events) == {"a": "ok", "b": "aborted", "c": "ok"}
    assert isinstance(events[-1], ChatAborted)


async def test_a_call_that_was_never_started_is_never_finished():
    """The chat is aborted in preToolCall: the calls have their results, and no events."""
    agent = Agent(
        ScriptedModel([call("a", call_id="a"), call("b", call_id="b")]), tools=noting([], "a", "b")
    )

    @agent.hook("preToolCall")
    def abort(ctx):
        ctx.run.abort("no")

    events = []
    with pytest.raises(ChatAbortedError):
        await collect(agent.chat_stream("go"), events)
    assert outcomes(events) == {}
    assert [event.message.role for event in only(events, MessageAdded)] == [
        "user",
        "assistant",
        "tool",
        "tool",
    ]


async def test_results_that_are_aborted_pass_neither_result_point():
    out, running = [], asyncio.Event()

    @tool
    async def hang() -> None:
        running.set()
        await asyncio.Event().wait()

    agent = Agent(
        ScriptedModel([call("hang", call_id="a"), call("hang", call_id="b")]), tools=[hang]
    )
    agent.add_hook("onToolCallResult", lambda ctx: out.append("result"))
    agent.add_hook("onToolCallError", lambda ctx: out.append("error"))
    agent.add_hook("onMessage", lambda ctx: out.append(ctx.message.role))
    chat = asyncio.ensure_future(agent.chat("go"))
    await running.wait()
    chat.cancel()
    with pytest.raises(asyncio.CancelledError):
        await chat
    assert out == ["user", "assistant", "tool", "tool"]


async def test_a_throw_in_a_result_hook_finishes_each_call_once():
    agent = Agent(
        ScriptedModel([call("a", call_id="a"), call("b", call_id="b")]), tools=noting([], "a", "b")
    )

    @agent.hook("onToolCallResult")
    def broken(ctx):
        raise ZeroDivisionError

    events = []
    with pytest.raises(ZeroDivisionError):
        await collect(agent.chat_stream("go"), events)
    assert outcomes(events).keys() == {"a", "b"}


# ── what a tool gets ────────────────────────────────────────────────────────────────────────


async def test_a_tool_gets_the_run_by_a_parameter_annotated_Run_which_is_not_in_its_schema():
    seen = []

    @tool
    async def look(n: int, run: Run[str]) -> None:
        seen.append((n, run.deps, run.call_id, run.iteration, run.agent))

    model = ScriptedModel(call("look", n=1, call_id="a"), "done")
    await Agent(model, tools=[look], name="looker").chat("go", deps="deps")
    assert seen == [(1, "deps", "a", 0, "looker")]
    assert list(model.requests[0].tools[0].parameters["properties"]) == ["n"]


async def test_a_tool_that_a_hook_put_into_the_request_runs_in_that_step_alone():
    @tool
    async def extra() -> str:
        return "from a hook"

    model = ScriptedModel(call("extra", call_id="a"), call("extra", call_id="b"), "done")
    agent = Agent(model)
    agent.add_hook(
        "preRequest",
        lambda ctx: ctx.request.replace(tools=(extra,)) if ctx.iteration == 0 else None,
    )
    response = await agent.chat("go")
    first, second = results(response)
    assert first == ("a", "ok", "from a hook")
    assert second[:2] == ("b", "error")


async def test_pictures_of_a_result_go_to_the_model_beside_its_text():
    @tool
    async def draw() -> ToolResult:
        return ToolResult("a cat", media=(Image(url="https://example.org/cat.png"),))

    model = ScriptedModel(call("draw"), "done")
    await Agent(model, tools=[draw]).chat("go")
    message = model.last_request.messages[-1]
    assert message.text == "a cat"
    assert [each.url for each in message.media] == ["https://example.org/cat.png"]


async def test_tools_and_hooks_of_a_chat_share_its_state():
    @tool
    async def count(run: Run) -> int:
        run.state["n"] += 1
        return run.state["n"]

    agent = Agent(ScriptedModel(call("count"), call("count"), "done"), tools=[count])
    agent.add_hook("onChatStart", lambda ctx: ctx.run.state.update(n=10))
    response = await agent.chat("go")
    assert [text for _, _, text in results(response)] == ["11", "12"]


# ── what the model reads ────────────────────────────────────────────────────────────────────


@dataclass
class Point:
    x: int
    y: int


@pytest.mark.parametrize(
    ("value", "text"),
    [
        pytest.param("as it is", "as it is", id="a string as it is"),
        pytest.param('{"quoted": "json"}', '{"quoted": "json"}', id="a string like JSON"),
        pytest.param("", "", id="the empty string"),
        pytest.param(None, "null", id="None is null"),
        pytest.param(True, "true", id="bool"),
        pytest.param(7, "7", id="int"),
        pytest.param(0.5, "0.5", id="float"),
        pytest.param([1, "two"], '[1,"two"]', id="list"),
        pytest.param({"a": None}, '{"a":null}', id="dict"),
        pytest.param(Point(1, 2), '{"x":1,"y":2}', id="dataclass"),
    ],
)
async def test_the_model_reads_a_string_as_it_is_and_any_other_value_as_json(value, text):
    model = ScriptedModel(call("give"), "done")

    @tool
    async def give():
        return value

    await Agent(model, tools=[give]).chat("go")
    assert model.last_request.messages[-1].text == text


async def test_the_model_reads_an_error_as_its_type_and_message():
    model = ScriptedModel(call("fail"), "done")

    @tool
    async def fail() -> None:
        raise LookupError("not here")

    await Agent(model, tools=[fail]).chat("go")
    assert json.loads(model.last_request.messages[-1].text) == {
        "error": {"type": "LookupError", "message": "not here"}
    }


async def test_a_value_becomes_json_data_before_onToolCallResult_sees_it():
    seen = []

    @tool
    async def give() -> Point:
        return Point(1, 2)

    agent = Agent(ScriptedModel(call("give"), "done"), tools=[give])
    agent.add_hook("onToolCallResult", lambda ctx: seen.append(ctx.result.value))
    await agent.chat("go")
    assert seen == [{"x": 1, "y": 2}]


@pytest.mark.parametrize(
    ("result", "text"),
    [
        pytest.param(ToolResult({"a": 1}), '{"a":1}', id="ToolResult"),
        pytest.param(
            ToolFailure("no", type="Nope"),
            '{"error":{"type":"Nope","message":"no"}}',
            id="ToolFailure",
        ),
    ],
)
async def test_a_tool_may_return_its_result_ready_made(result, text):
    @tool
    async def give():
        return result

    response = await Agent(ScriptedModel(call("give"), "done"), tools=[give]).chat("go")
    assert [text for _, _, text in results(response)] == [text]
