"""What users of ag2b can do, row by row of its table in README.md."""

import asyncio
import json
import logging
from contextlib import suppress

import pytest
from tests._event_grammar import check_events

from hookline import (
    Agent,
    Conversation,
    Limits,
    ModelResponse,
    Response,
    Run,
    Scope,
    Tool,
    ToolFailure,
    ToolResult,
    tool,
)
from hookline.errors import (
    ChatAbortedError,
    ConversationBusyError,
    DisabledToolError,
    HooklineError,
    HookReturnError,
    MaxStepsError,
    ModelError,
    ScopeError,
    ToolArgumentsError,
    ToolDefinitionError,
    UnknownHookError,
    UnknownToolError,
)
from hookline.events import (
    ChatAborted,
    ChatDone,
    ChatFailed,
    PartEnd,
    ReasoningDelta,
    TextDelta,
    ToolCallDelta,
    ToolCallFinished,
    ToolCallStarted,
)
from hookline.models import Finish, TextChunk
from hookline.testing import ScriptedModel, Turn, call, collect, raw_call, record

from ._play import Boom, add, agent_of, broken, names, only, requests, results, roles, sums, void


def noting(out, name, value=None):
    def hook(ctx):
        out.append(name)
        return value

    return hook


def raising(error):
    def hook(ctx):
        raise error

    return hook


# ── the hook bus ────────────────────────────────────────────────────────────────────────────


async def test_001_a_hook_is_added_and_its_disposer_removes_it():
    out = []
    agent = agent_of()
    dispose = agent.add_hook("onMessage", noting(out, "message"))
    agent.add_hook("onChatStart", noting(out, "start"))
    dispose()
    await agent.chat("hi")
    assert out == ["start"]


async def test_002_a_disposer_removes_its_own_registration_once():
    out = []
    hook = noting(out, "ran")
    agent = agent_of()
    dispose = agent.add_hook("onChatStart", hook)
    agent.add_hook("onChatStart", hook)
    dispose()
    dispose()
    await agent.chat("hi")
    assert out == ["ran"]


async def test_003_a_hook_that_removes_itself_makes_nobody_be_skipped():
    out = []
    agent = agent_of()

    def once(ctx):
        out.append("a")
        dispose()

    dispose = agent.add_hook("onChatStart", once)
    agent.add_hook("onChatStart", noting(out, "b"))
    agent.add_hook("onChatStart", noting(out, "c"))
    await agent.chat("hi")
    await agent.chat("hi")
    assert out == ["a", "b", "c", "b", "c"]


async def test_004_a_hook_that_is_added_meanwhile_waits_for_the_next_dispatch():
    out = []
    agent = agent_of()
    agent.add_hook(
        "onMessage", lambda ctx: void(agent.add_hook("onMessage", noting(out, ctx.message.role)))
    )
    await agent.chat("hi")
    assert out == ["user"]


async def test_005_order_is_that_of_registration_each_awaited():
    out = []
    agent = agent_of()

    async def slow(ctx):
        await asyncio.sleep(0)
        out.append("slow")

    agent.add_hook("onChatStart", slow)
    agent.add_hook("onChatStart", noting(out, "fast"))
    await agent.chat("hi")
    assert out == ["slow", "fast"]


async def test_018_none_leaves_the_value_as_it_is():
    agent = agent_of("text")
    agent.add_hook("onResponse", lambda ctx: None)
    assert (await agent.chat("hi")).text == "text"


async def test_019_each_sees_what_the_previous_one_returned():
    agent = agent_of("  Hello ")
    agent.add_hook("onResponse", lambda ctx: ctx.response.replace(text=ctx.response.text.strip()))
    agent.add_hook("onResponse", lambda ctx: ctx.response.replace(text=ctx.response.text.upper()))
    assert (await agent.chat("hi")).text == "HELLO"


async def test_021_what_a_point_does_not_take_is_an_error_that_names_what_it_takes():
    agent = agent_of()
    agent.add_hook("onResponse", lambda ctx: {"respnse": ctx.response}, name="typo")
    with pytest.raises(
        HookReturnError, match=r"'typo' at onResponse returned a value of type dict.*ModelResponse"
    ):
        await agent.chat("hi")


async def test_022_what_an_observer_returns_is_ignored():
    agent = agent_of("text")
    agent.add_hook("onMessage", lambda ctx: {"message": None})
    assert (await agent.chat("hi")).text == "text"


@pytest.mark.parametrize("form", ["sync", "async"])
async def test_026_a_plugin_is_used_and_removed(form):
    out = []

    def plugin(agent):
        agent.add_hook("onChatStart", noting(out, "ran"))
        return lambda: out.append("cleaned")

    async def plugin_later(agent):
        return plugin(agent)

    agent = agent_of()
    remove = await agent.use(plugin if form == "sync" else plugin_later)
    await agent.chat("hi")
    remove()
    await agent.chat("hi")
    assert out == ["ran", "cleaned"]
    assert agent.hooks() == ()
    with pytest.raises(Boom):
        await agent.use(raising(Boom()))


# ── a throw inside a hook ───────────────────────────────────────────────────────────────────


async def test_029_a_throw_ends_the_chat_and_the_same_error_reaches_the_caller():
    out, error = [], Boom("policy")
    agent = agent_of()
    agent.add_hook("preRequest", raising(error))
    agent.add_hook("preRequest", noting(out, "next"))
    agent.add_hook("onChatError", lambda ctx: out.append(ctx.error))
    with pytest.raises(Boom) as caught:
        await agent.chat("hi")
    assert caught.value is error
    assert out == [error]
    assert requests(agent) == []


async def test_030_a_throw_in_onChatStart_is_an_error_of_the_chat_too():
    out, error = [], Boom()
    agent = agent_of()
    agent.add_hook("onChatStart", raising(error))
    agent.add_hook("onChatError", lambda ctx: out.append(ctx.error))
    conversation = Conversation()
    events = []
    with pytest.raises(Boom):
        await collect(agent.chat_stream("hi", conversation=conversation), events)
    assert out == [error]
    assert names(events) == ["ChatStarted", "ChatFailed"]
    assert conversation.messages == ()


async def test_031_a_throw_in_onChatDone_leaves_one_outcome():
    out, error = [], Boom()
    agent = agent_of()
    agent.add_hook("onChatDone", raising(error))
    agent.add_hook("onChatDone", noting(out, "done"))
    agent.add_hook("onChatError", noting(out, "error"))
    events = []
    with pytest.raises(Boom) as caught:
        await collect(agent.chat_stream("hi"), events)
    assert caught.value is error
    assert out == ["done"]
    assert isinstance(events[-1], ChatDone)


@pytest.mark.parametrize("point", ["onChatError", "onChatAbort"])
async def test_032_a_throw_while_failing_hides_nothing(point):
    out, error = [], Boom("first")
    agent = agent_of()
    agent.add_hook(point, raising(ValueError("second")))
    agent.add_hook(point, noting(out, point))
    if point == "onChatError":
        agent.add_hook("preRequest", raising(error))
        with pytest.raises(Boom) as caught:
            await agent.chat("hi")
        assert caught.value is error
    else:
        agent.add_hook("preRequest", lambda ctx: void(ctx.run.abort("enough")))
        with pytest.raises(ChatAbortedError, match="enough"):
            await agent.chat("hi")
    assert out == [point]


@pytest.mark.parametrize("point", ["onToolCallResult", "onToolCallError", "onMessage"])
async def test_033_a_throw_after_a_tool_ends_the_chat_and_history_stays_valid(point):
    out = []
    agent = agent_of([sums, call("broken", call_id="c2")], "next")
    dispose = agent.add_hook(
        point, lambda ctx: 1 / 0 if point != "onMessage" or ctx.message.role == "tool" else None
    )
    agent.add_hook("onToolCallError", noting(out, "error hook"), tools=["add"])
    conversation = Conversation()
    with pytest.raises(ZeroDivisionError):
        await agent.chat("hi", conversation=conversation)
    assert out == []
    assert roles(conversation.messages) == ["user", "assistant", "tool", "tool"]
    dispose()
    assert (await agent.chat("go on", conversation=conversation)).text == "next"


async def test_034_a_throw_in_preToolCall_ends_the_chat_an_error_value_does_not():
    agent = agent_of(sums, "fine", sums)
    dispose = agent.add_hook("preToolCall", lambda ctx: ToolFailure("not permitted"))
    response = await agent.chat("hi")
    assert (response.text, results(response)[0][0]) == ("fine", "denied")
    dispose()
    agent.add_hook("preToolCall", raising(Boom()))
    with pytest.raises(Boom):
        await agent.chat("hi")


async def test_035_a_throw_of_a_scope_hook_is_logged_and_the_scope_stays(caplog):
    agent = agent_of()

    @agent.hook("onScopeRegister")
    async def fail(ctx):
        raise Boom

    with caplog.at_level(logging.WARNING, logger="hookline"):
        agent.scopes.register(Scope("garden"))
        await agent.chat("hi")
    assert "onScopeRegister raised: Boom" in caplog.text
    assert agent.scopes.get("garden") is not None


# ── the life of a chat ──────────────────────────────────────────────────────────────────────


async def test_042_onChatStart_fires_once_before_the_user_message_is_in_history():
    out = []
    agent = agent_of()
    agent.add_hook("onChatStart", lambda ctx: out.append((ctx.message.text, len(ctx.run.history))))
    await agent.chat("hi")
    assert out == [("hi", 0)]


async def test_043_onChatDone_has_the_response_before_the_event():
    out = []
    agent = agent_of("answer")

    @agent.hook("onChatDone")
    def done(ctx):
        out.append((ctx.response.text, roles(ctx.run.history)))

    async with agent.chat_stream("hi") as stream:
        async for event in stream:
            if isinstance(event, ChatDone):
                out.append("event")
    assert out == [("answer", ["user", "assistant"]), "event"]


async def test_044_what_is_raised_after_an_abort_is_an_abort():
    out = []

    def die(request):
        out.append("asked")
        raise ConnectionError("net")

    agent = agent_of(die)
    agent.add_hook("onChatAbort", lambda ctx: out.append(ctx.reason))
    agent.add_hook("onChatError", noting(out, "error"))

    @agent.hook("aroundRequest")
    async def stop_first(ctx, proceed):
        ctx.run.abort("enough")
        return await proceed()

    with pytest.raises(ChatAbortedError, match="enough"):
        await agent.chat("hi")
    assert out == ["enough"]


@pytest.mark.parametrize("cause", ["limit", "model", "hook"])
async def test_045_onChatError_fires_once_for_each_cause(cause):
    out = []
    turns = {"limit": [sums, sums], "model": [Boom()], "hook": ["ok"]}[cause]
    agent = agent_of(*turns, limits=Limits(steps=2))
    agent.add_hook("onChatError", lambda ctx: out.append(type(ctx.error)))
    if cause == "hook":
        agent.add_hook("onResponse", raising(Boom()))
    kind = MaxStepsError if cause == "limit" else Boom
    with pytest.raises(kind):
        await agent.chat("hi")
    assert out == [kind]


async def test_046_on_abort_first_the_hook_then_the_event_then_the_error_with_its_reason():
    out = []
    agent = agent_of()
    agent.add_hook("preRequest", lambda ctx: void(ctx.run.abort("enough")))
    agent.add_hook("onChatAbort", lambda ctx: out.append(f"hook {ctx.reason}"))

    async def read():
        async for event in agent.chat_stream("hi"):
            if isinstance(event, ChatAborted):
                out.append(f"event {event.reason}")

    with pytest.raises(ChatAbortedError) as caught:
        await read()
    assert out == ["hook enough", "event enough"]
    assert caught.value.reason == "enough"


# ── model calls ─────────────────────────────────────────────────────────────────────────────


async def test_055_preRequest_sees_each_request_with_its_iteration():
    out = []
    agent = agent_of(sums, "done", system="Be nice.")
    agent.scopes.register(Scope("place", context=lambda: "home"))
    agent.add_hook(
        "preRequest",
        lambda ctx: out.append(
            (ctx.iteration, len(ctx.request.messages), len(ctx.request.tools), ctx.request.system)
        ),
    )
    await agent.chat("hi")
    system = "Be nice.\n\n## place\nhome"
    assert out == [(0, 1, 2, system), (1, 3, 2, system)]


async def test_056_preRequest_replaces_the_request_or_answers_and_skips_the_rest():
    out = []
    agent = agent_of("from the model", "from the model")
    cached = {}

    @agent.hook("preRequest")
    def cache(ctx):
        return cached.get(ctx.request.messages[-1].text)

    @agent.hook("preRequest")
    def concise(ctx):
        out.append("concise")
        return ctx.request.replace(system="Be concise.")

    assert (await agent.chat("hi")).text == "from the model"
    cached["hi"] = ModelResponse.of("from the cache")
    assert (await agent.chat("hi")).text == "from the cache"
    cached["hi"] = None
    assert (await agent.chat("hi")).text == "from the model"
    assert [each.system for each in requests(agent)] == ["Be concise."] * 2
    assert out == ["concise"] * 2


async def test_057_onResponse_after_a_short_circuit_sees_the_request_as_hooks_left_it():
    out = []
    agent = agent_of()
    agent.add_hook("preRequest", lambda ctx: ctx.request.replace(system="changed"))
    agent.add_hook("preRequest", lambda ctx: ModelResponse.of("cached"))
    agent.add_hook("onResponse", lambda ctx: out.append((ctx.request.system, ctx.response.text)))
    await agent.chat("hi")
    assert out == [("changed", "cached")]


async def test_058_a_short_circuited_answer_is_streamed_like_any():
    agent = agent_of()
    agent.add_hook("preRequest", lambda ctx: ModelResponse.of("cached"))
    events = await collect(agent.chat_stream("hi"))
    assert [each.text for each in only(events, TextDelta)] == ["cached"]


async def test_059_onResponse_drains_and_decides_which_calls_run():
    out = []
    agent = agent_of([sums, call("add", a=2, b=2)], "unasked")
    agent.add_hook("onResponse", lambda ctx: ctx.response.replace(parts=()))
    agent.add_hook("onResponse", noting(out, "drained"))
    response = await agent.chat("hi")
    assert (len(requests(agent)), results(response), out) == (1, [], ["drained"])


async def test_060_what_onResponse_rewrites_is_taken_back_in_the_stream_too():
    agent = agent_of(["The key is ", "1234."])
    agent.add_hook("onResponse", lambda ctx: ctx.response.replace(text="The key is [x]."))
    conversation = Conversation()
    events = await collect(agent.chat_stream("hi", conversation=conversation))
    reset = names(events).index("ResponseReset")
    shown = [e.text for e in events if isinstance(e, TextDelta)][2:]
    assert reset > 0
    assert "".join(shown) == conversation.messages[-1].text == "The key is [x]."


# ── tools ───────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("made", "asked"),
    [(call("nope"), 0), (call("add", a="x"), 1), (call("off"), 1), (sums, 1)],
    ids=["unknown", "bad arguments", "disabled", "good"],
)
async def test_069_preToolCall_runs_before_validation_and_not_for_unknown_tools(made, asked):
    out = []

    @tool(enabled=lambda: False)
    async def off() -> None: ...

    agent = agent_of(made, "done", tools=[add, off])
    agent.add_hook("preToolCall", lambda ctx: out.append((ctx.tool.name, ctx.scope.label)))
    await agent.chat("hi")
    assert out == [(made.name, "agent")] * asked


async def test_070_changed_arguments_are_what_everybody_sees_but_history():
    out = []
    agent = agent_of(sums, "done")
    agent.add_hook("preToolCall", lambda ctx: ctx.call.replace(arguments={"a": 40, "b": 2}))
    agent.add_hook("onToolCallResult", lambda ctx: out.append(ctx.call.arguments))
    conversation = Conversation()
    events = await collect(agent.chat_stream("hi", conversation=conversation))
    assert only(events, ToolCallStarted)[0].call.arguments == {"a": 40, "b": 2}
    assert out == [{"a": 40, "b": 2}]
    assert results(conversation) == [("ok", "42")]
    assert conversation.messages[1].tool_calls[0].arguments == {"a": 1, "b": 2}
    agent = agent_of(sums)
    agent.add_hook("preToolCall", lambda ctx: ctx.call.replace(name="broken"))
    with pytest.raises(HookReturnError, match="arguments only"):
        await agent.chat("hi")


async def test_071_a_result_skips_handler_and_validation_also_of_a_disabled_tool():
    out = []

    @tool(enabled=lambda: False)
    async def off(n: int) -> None:
        out.append("ran")

    agent = agent_of(call("off", n="not a number"), "done", tools=[off])
    agent.add_hook("preToolCall", lambda ctx: ToolResult("cached"))
    agent.add_hook("onToolCallResult", lambda ctx: out.append(ctx.result.value))
    response = await agent.chat("hi")
    assert (results(response), out) == ([("answered", "cached")], ["cached"])


async def test_072_an_error_value_rejects_and_passes_onToolCallError():
    out = []
    agent = agent_of(sums, "done")
    agent.add_hook("preToolCall", lambda ctx: ToolFailure("not permitted"))
    agent.add_hook("onToolCallError", lambda ctx: out.append(ctx.error.message))
    assert results(await agent.chat("hi"))[0][0] == "denied"
    assert out == ["not permitted"]


async def test_073_result_hooks_see_the_value_before_it_is_text_and_compose():
    agent = agent_of(sums, "done")
    agent.add_hook("onToolCallResult", lambda ctx: ToolResult(ctx.result.value + 1))
    agent.add_hook("onToolCallResult", lambda ctx: ToolResult(ctx.result.value * 10))
    assert results(await agent.chat("hi")) == [("ok", "40")]


async def test_074_five_causes_are_five_tool_errors():
    out = []

    @tool(enabled=lambda: False)
    async def off() -> None: ...

    @tool
    async def refused() -> None: ...

    calls = [
        call("broken"),
        call("add", a=1),
        call("nope"),
        call("off"),
        call("refused"),
    ]
    agent = agent_of(calls, "done", tools=[add, broken, off, refused])
    agent.add_hook("preToolCall", lambda ctx: ToolFailure("no"), tools=["refused"])

    @agent.hook("onToolCallError")
    def note(ctx):
        known = ctx.tool is not None and ctx.scope is not None
        out.append((ctx.call.name, ctx.error.type, known))

    await agent.chat("hi")
    assert sorted(out) == [
        ("add", "ToolArgumentsError", True),
        ("broken", "Boom", True),
        ("nope", "UnknownToolError", False),
        ("off", "DisabledToolError", True),
        ("refused", "Denied", True),
    ]


async def test_075_a_value_that_is_no_json_is_a_tool_error():
    @tool
    async def odd() -> object:
        return object()

    response = await agent_of(call("odd"), "done", tools=[odd]).chat("hi")
    assert response.text == "done"
    assert results(response)[0][0] == "error"


# ── messages and history ────────────────────────────────────────────────────────────────────


async def test_094_onMessage_fires_after_each_commit_in_order():
    out = []
    agent = agent_of(sums, "done")
    agent.add_hook("onMessage", lambda ctx: out.append((ctx.message.role, len(ctx.run.history))))
    await agent.chat("hi")
    assert out == [("user", 1), ("assistant", 2), ("tool", 3), ("assistant", 4)]


async def test_098_history_is_a_tuple_that_is_the_same_until_it_changes():
    agent = agent_of("one", "two")
    conversation = Conversation()
    await agent.chat("hi", conversation=conversation)
    first = conversation.messages
    assert conversation.messages is first
    await agent.chat("ho", conversation=conversation)
    assert conversation.messages is not first
    assert roles(conversation.messages) == ["user", "assistant"] * 2
    given = list(first)
    conversation.restore(given)
    given.clear()
    assert conversation.messages == first
    conversation.reset()
    assert conversation.messages == ()
    agent.add_hook("onChatStart", lambda ctx: conversation.reset())
    with pytest.raises(ConversationBusyError):
        await agent.chat("hi", conversation=conversation)


async def test_099_the_user_message_stays_after_a_failure():
    agent = agent_of(Boom())
    conversation = Conversation()
    with pytest.raises(Boom):
        await agent.chat("hi", conversation=conversation)
    assert roles(conversation.messages) == ["user"]


async def test_100_blank_text_is_no_text_and_the_providers_meta_is_kept():
    answer = ModelResponse.of("  ").replace(meta={"seal": "x"})
    agent = agent_of(answer, ModelResponse.of(" a ").replace(meta={"seal": "x"}))
    conversation = Conversation()
    assert (await agent.chat("hi", conversation=conversation)).text == ""
    assert roles(conversation.messages) == ["user"]
    await agent.chat("hi", conversation=conversation)
    assert conversation.messages[-1].text.strip() == "a"
    assert conversation.messages[-1].meta == {"seal": "x"}


async def test_101_what_the_model_reads_of_a_result():
    @tool
    async def none() -> None: ...

    @tool
    async def data() -> dict[str, int]:
        return {"n": 1}

    calls = [call("none"), call("data"), call("broken"), call("add", a=1)]
    response = await agent_of(calls, "done", tools=[none, data, broken, add]).chat("hi")
    texts = [text for _, text in results(response)]
    assert texts[:2] == ["null", '{"n":1}']
    assert json.loads(texts[2]) == {"error": {"type": "Boom", "message": "broken"}}
    assert json.loads(texts[3])["error"]["type"] == "ToolArgumentsError"
    assert "b" in json.loads(texts[3])["error"]["message"]


# ── the loop ────────────────────────────────────────────────────────────────────────────────


async def test_103_calls_decide_whether_it_goes_on_not_the_finish_reason():
    turns = [Turn(sums, finish_reason="length"), Turn("end", finish_reason="tool_calls"), "unasked"]
    agent = agent_of(*turns)
    response = await agent.chat("hi")
    assert (len(requests(agent)), response.text) == (2, "end")
    assert response.finish_reason == "tool_calls"


async def test_105_the_last_steps_tools_run_then_it_is_an_error_with_its_limit():
    ran = []

    @tool
    async def work() -> None:
        ran.append(1)

    agent = agent_of(*[call("work")] * 5, tools=[work], limits=Limits(steps=2))
    with pytest.raises(MaxStepsError) as caught:
        await agent.chat("hi")
    assert (len(requests(agent)), len(ran), caught.value.limit) == (2, 2, 2)


# ── the stream ──────────────────────────────────────────────────────────────────────────────

PAIRS = {
    "agent_chat_start": "ChatStarted",
    "agent_reasoning_delta": "ReasoningDelta",
    "agent_reasoning_end": "PartEnd",
    "agent_content_delta": "TextDelta",
    "agent_content_end": "PartEnd",
    "agent_tool_call_delta": "ToolCallDelta",
    "agent_tool_call_start": "ToolCallStarted",
    "agent_tool_call_result": "ToolCallFinished",
    "agent_tool_call_error": "ToolCallFinished",
    "agent_chat_done": "ChatDone",
    "agent_chat_abort": "ChatAborted",
    "agent_chat_error": "ChatFailed",
}


async def test_114_each_event_has_a_counterpart():
    seen = set()
    turn = Turn(reasoning="hm", text="I add", tool_calls=[sums, call("broken")])
    for turns in ([turn, "done"], [Boom()], ["ok"]):
        agent = agent_of(*turns)
        if turns == ["ok"]:
            agent.add_hook("preRequest", lambda ctx: void(ctx.run.abort()))
        events = []
        with suppress(Boom, ChatAbortedError):
            await collect(agent.chat_stream("hi"), events)
        seen |= set(names(events))
    assert set(PAIRS.values()) <= seen


async def test_115_the_order_of_a_turn_with_a_tool():
    events = await collect(agent_of(sums, "three").chat_stream("hi"))
    check_events(events)
    assert [name for name in names(events) if not name.startswith("Step")] == [
        "ChatStarted",
        "ToolCallDelta",
        "ToolCallStarted",
        "ToolCallFinished",
        "TextDelta",
        "PartEnd",
        "ChatDone",
    ]


async def test_116_events_have_what_they_tell_of():
    events = await collect(agent_of([sums, call("broken")], "three").chat_stream("hi"))
    by_name = {type(each).__name__: each for each in events}
    assert by_name["ChatStarted"].message.text == "hi"
    assert by_name["TextDelta"].text == "three"
    delta = only(events, ToolCallDelta)[0]
    assert (delta.index, delta.call_id, delta.name) == (0, "c1", "add")
    good, bad = sorted(only(events, ToolCallFinished), key=lambda each: each.outcome, reverse=True)
    assert (good.outcome, good.result.value) == ("ok", 3)
    assert (bad.outcome, bad.result.type) == ("error", "Boom")
    assert by_name["ChatDone"].response.text == "three"


async def test_117_each_step_has_one_end_also_without_text():
    events = await collect(agent_of(sums, "three").chat_stream("hi"))
    assert names(events).count("StepFinished") == 2
    added = [each.message.role for each in events if type(each).__name__ == "MessageAdded"]
    assert added == ["user", "assistant", "tool", "assistant"]


async def test_118_reasoning_ends_once_just_before_what_follows():
    events = await collect(agent_of(Turn(reasoning="hmm", text="a", chunk=1)).chat_stream("hi"))
    kinds = [type(each) for each in only(events, ReasoningDelta, PartEnd, TextDelta)]
    assert kinds == [ReasoningDelta] * 3 + [PartEnd, TextDelta, PartEnd]
    events = await collect(agent_of("a").chat_stream("hi"))
    assert [each.part for each in only(events, PartEnd)] == ["text"]


async def test_119_unknown_disabled_and_denied_calls_are_started_and_finished():
    agent = agent_of([call("nope"), sums], "done")
    agent.add_hook("preToolCall", lambda ctx: ToolFailure("no"))
    events = await collect(agent.chat_stream("hi"))
    started = [each.call.name for each in only(events, ToolCallStarted)]
    finished = {each.name: each.outcome for each in only(events, ToolCallFinished)}
    assert sorted(started) == ["add", "nope"]
    assert finished == {"nope": "error", "add": "denied"}


async def test_120_empty_deltas_are_dropped_and_white_space_is_kept():
    chunks = [TextChunk("a"), TextChunk(""), TextChunk("\n"), TextChunk("b"), Finish()]
    events = await collect(agent_of(Turn(raw_chunks=chunks)).chat_stream("hi"))
    assert [each.text for each in only(events, TextDelta)] == ["a", "\n", "b"]


async def test_121_others_see_the_same_events_of_chat_and_of_a_model_that_does_not_stream():
    seen = []
    for form in ("chat", "stream"):
        agent = agent_of(sums, Turn(text="whole answer", chunk=0 if form == "chat" else 3))
        events = agent.subscribe()
        if form == "chat":
            await agent.chat("hi")
        else:
            await collect(agent.chat_stream("hi"))
        events.close()
        kinds = names([event async for event in events])
        seen.append([kind for n, kind in enumerate(kinds) if kind != kinds[n - 1]])
    assert seen[0] == seen[1]


async def test_122_hooks_are_the_same_for_both_forms():
    seen = []
    for form in ("chat", "stream"):
        agent = agent_of([sums, call("broken")], "done", parallel_tools=False)
        with record(agent) as recorder:
            if form == "chat":
                await agent.chat("hi")
            else:
                await collect(agent.chat_stream("hi"))
        seen.append(recorder.points)
    assert seen[0] == seen[1]


async def test_123_an_error_is_an_event_first_and_then_raised():
    events = []
    with pytest.raises(Boom):
        await collect(agent_of(Boom("x")).chat_stream("hi"), events)
    assert isinstance(events[-1], ChatFailed)
    assert events[-1].error.type == "Boom"


async def test_124_nothing_runs_before_the_first_pull():
    out = []
    agent = agent_of()
    agent.add_hook("onChatStart", noting(out, "start"))
    stream = agent.chat_stream("hi")
    await asyncio.sleep(0)
    assert out == []
    await stream.aclose()
    assert out == []


async def test_125_leaving_early_stops_the_run_before_the_next_line():
    out = []
    forever = asyncio.Event()

    @tool
    async def hang() -> None:
        try:
            await forever.wait()
        finally:
            out.append("cancelled")

    agent = agent_of(call("hang"), "unasked", tools=[hang])
    agent.add_hook("onChatAbort", lambda ctx: out.append(ctx.reason))
    async with agent.chat_stream("hi") as stream:
        async for event in stream:
            if isinstance(event, ToolCallStarted):
                break
    assert out == ["cancelled", "consumer left"]


async def test_126_a_slow_reader_slows_the_model_and_loses_nothing():
    ahead = []
    agent = agent_of(Turn(text="x" * 500, chunk=1))
    agent.add_hook("onDelta", lambda ctx: ahead.append(1))
    read = 0
    async for event in agent.chat_stream("hi"):
        if isinstance(event, TextDelta):
            read += 1
            await asyncio.sleep(0)
            assert len(ahead) <= read + 66
    assert read == 500


async def test_127_a_reader_that_throws_gets_its_own_error_and_breaks_nobody_elses():
    out = []
    agent = agent_of(Turn(text="x" * 100, chunk=1))
    agent.add_hook("onChatError", noting(out, "error"))
    agent.add_hook("onChatAbort", noting(out, "abort"))
    error = Boom("mine")

    async def read():
        async with agent.chat_stream("hi") as stream:
            async for event in stream:
                if isinstance(event, TextDelta):
                    raise error

    with pytest.raises(Boom) as caught:
        await read()
    assert caught.value is error
    assert out == ["abort"]


@pytest.mark.parametrize(
    ("text", "outcome"), [('{"a": 1, "b"', "error"), ("", "error"), ('{"a": 1, "b": 2}', "ok")]
)
async def test_128_a_streamed_call_is_put_together_and_bad_json_is_a_tool_error(text, outcome):
    agent = agent_of(Turn(raw_call("add", text), chunk=2), "done")
    response = await agent.chat("hi")
    assert (results(response)[0][0], response.text) == (outcome, "done")
    if text == "":
        assert response.messages[1].tool_calls[0].arguments == {}


# ── aborting ────────────────────────────────────────────────────────────────────────────────


async def test_134_aborted_before_the_first_pull_nothing_has_happened():
    out = []
    conversation = Conversation()
    agent = agent_of()
    agent.add_hook("onChatStart", noting(out, "start"))
    stream = agent.chat_stream("hi", conversation=conversation)
    stream.abort("enough")
    assert await collect(stream) == []
    assert (out, conversation.messages, requests(agent)) == ([], (), [])


async def test_135_an_abort_cancels_the_tools_at_once():
    out = []

    @tool
    async def first(run: Run) -> None:
        run.abort("enough")
        await asyncio.sleep(0)
        out.append("first went on")

    @tool(parallel=False)
    async def second() -> None:
        out.append("second ran")

    agent = agent_of([call("first"), call("second")], tools=[first, second])
    conversation = Conversation()
    with pytest.raises(ChatAbortedError):
        await agent.chat("hi", conversation=conversation)
    assert out == []
    assert [outcome for outcome, _ in results(conversation)] == ["aborted", "aborted"]


async def test_136_an_abort_counts_until_the_outcome_is_decided():
    out = []
    agent = agent_of("the answer", "the answer")
    agent.add_hook("onStep", lambda ctx: void(out.append(ctx.run.abort("late"))))
    with pytest.raises(ChatAbortedError):
        await agent.chat("hi")
    agent.bus.clear()
    agent.add_hook("onChatDone", lambda ctx: out.append(ctx.run.abort("too late")))
    assert (await agent.chat("hi")).text == "the answer"
    assert out == [True, False]


async def test_141_two_chats_never_mix_and_one_conversation_takes_one_at_a_time():
    meet = asyncio.Barrier(2)
    seen = []

    async def answer(request):
        seen.append(roles(request.messages))
        await meet.wait()
        return "ok"

    agent = agent_of(answer, answer)
    ids = await asyncio.gather(*(agent.chat(f"{n}") for n in range(2)))
    assert seen == [["user"], ["user"]]
    assert ids[0].chat_id != ids[1].chat_id
    conversation = Conversation()
    agent = agent_of("ok")

    @agent.hook("onChatStart")
    async def again(ctx):
        with pytest.raises(ConversationBusyError):
            await agent.chat("me too", conversation=conversation)

    await agent.chat("hi", conversation=conversation)


# ── scopes and tools ────────────────────────────────────────────────────────────────────────


async def test_142_a_scope_is_a_bundle_that_is_there_from_the_next_step_on():
    garden = Scope("garden", tools=[add], context=lambda: "roses", title="The garden")
    agent = agent_of(call("open"), "done", tools=[])

    @tool(name="open")
    async def open_garden() -> None:
        agent.scopes.register(garden)

    agent.scopes.register(Scope("door", tools=[open_garden]))
    await agent.chat("hi")
    first, second = requests(agent)
    assert [t.name for t in first.tools] == ["open"]
    assert [t.name for t in second.tools] == ["open", "add"]
    assert second.system == "## The garden\nroses"


def test_143_registering_is_all_or_nothing():
    agent = agent_of()
    with pytest.raises(ScopeError, match="'add' is taken by scope 'agent'"):
        agent.scopes.register(Scope("more", tools=[Tool(lambda: None, name="new"), add]))
    agent.scopes.register(Scope("more", tools=[Tool(lambda: None, name="new")]))
    with pytest.raises(ScopeError, match="more"):
        agent.scopes.register(Scope("more"))
    with pytest.raises(ScopeError, match="two tools"):
        Scope("twice", tools=[add, add])
    assert issubclass(ScopeError, HooklineError)
    assert [scope.label for scope in agent.scopes] == ["agent", "more"]


async def test_144_an_old_disposer_leaves_a_later_scope_alone():
    out = []
    agent = agent_of()
    agent.add_hook("onScopeUnregister", lambda ctx: out.append(ctx.scope.label))
    dispose = agent.scopes.register(Scope("garden"))
    assert agent.scopes.unregister("garden")
    later = Scope("garden")
    agent.scopes.register(later)
    dispose()
    assert agent.scopes.get("garden") is later
    assert not agent.scopes.unregister("nothing")
    assert out == ["garden"]


async def test_145_scope_hooks_fire_after_the_change_and_not_where_it_failed():
    out = []
    agent = agent_of()
    agent.add_hook(
        "onScopeRegister",
        lambda ctx: out.append((ctx.scope.label, agent.scopes.get(ctx.scope.label) is ctx.scope)),
    )

    @agent.hook("onScopeRegister")
    async def later(ctx):
        out.append("later")

    agent.scopes.register(Scope("garden"))
    assert out == [("garden", True)]
    with pytest.raises(ScopeError):
        agent.scopes.register(Scope("garden"))
    await agent.chat("hi")
    assert out == [("garden", True), "later"]


def test_145_without_a_running_loop_sync_ones_fire_too():
    out = []
    agent = agent_of()
    agent.add_hook("onScopeRegister", lambda ctx: out.append(ctx.scope.label))
    agent.scopes.register(Scope("garden"))
    assert out == ["garden"]


async def test_146_predicates_are_asked_at_each_request_and_call():
    on = {"tool": True, "scope": True}

    def fragile():
        if on["tool"] is None:
            raise Boom
        return on["tool"]

    @tool(enabled=fragile)
    async def flip(what: str) -> None:
        on[what] = None if what == "tool" else False

    scope = Scope("s", tools=[flip, add], context=lambda: "here", enabled=lambda: on["scope"])
    agent = agent_of(call("flip", what="tool"), sums, "done", "ok", tools=[], scopes=[scope])
    await agent.chat("hi")
    seen = [([t.name for t in each.tools], each.system) for each in requests(agent)]
    assert seen[0] == (["flip", "add"], "## s\nhere")
    assert seen[1] == (["add"], "## s\nhere")
    on["scope"] = False
    await agent.chat("hi")
    assert requests(agent)[-1].tools == ()


async def test_147_a_disabled_tool_is_an_error_to_the_model_after_preToolCall():
    out = []

    @tool(enabled=lambda: False)
    async def off() -> None:
        out.append("ran")

    agent = agent_of(call("off"), "done", tools=[off])
    agent.add_hook("preToolCall", noting(out, "pre"))
    agent.add_hook("onToolCallError", lambda ctx: out.append(type(ctx.error.exception)))
    response = await agent.chat("hi")
    assert (response.text, out) == ("done", ["pre", DisabledToolError])


async def test_148_an_unknown_tool_is_an_error_to_the_model_also_one_removed_meanwhile():
    out = []
    agent = agent_of(call("gone"), "done")
    dispose = agent.scopes.register(Scope("s", tools=[Tool(lambda: None, name="gone")]))
    agent.add_hook("onResponse", lambda ctx: void(dispose()))
    agent.add_hook("preToolCall", noting(out, "pre"))
    agent.add_hook("onToolCallError", lambda ctx: out.append((ctx.error.type, ctx.tool)))
    response = await agent.chat("hi")
    assert (response.text, out) == ("done", [("UnknownToolError", None)])
    assert issubclass(UnknownToolError, HooklineError)


async def test_149_context_is_injected_into_the_request_and_never_stored():
    scopes = [
        Scope("place", context=lambda: {"city": "Rome"}, title="Where"),
        Scope("mood", context=lambda: "calm", inject="user"),
        Scope("odd", context=lambda: 1 / 0),
    ]
    agent = agent_of("ok", scopes=scopes, system="Be nice.")
    conversation = Conversation()
    await agent.chat("hi", conversation=conversation)
    (request,) = requests(agent)
    assert request.system == 'Be nice.\n\n## Where\n{"city":"Rome"}'
    assert request.messages[-1].text == "hi\n\n## mood\ncalm"
    assert conversation.messages[0].text == "hi"


async def test_150_a_tool_is_checked_where_it_is_made_and_its_arguments_where_it_is_called():
    with pytest.raises(ToolDefinitionError, match="my tool"):
        Tool(lambda: None, name="my tool")
    ran = []

    @tool
    def strict(n: int) -> None:
        ran.append(n)

    assert strict.parameters["type"] == "object"
    out = []
    agent = agent_of(call("strict", n="x"), call("strict", n=1), "done", tools=[strict])
    agent.add_hook("onToolCallError", lambda ctx: out.append(ctx.error))
    await agent.chat("hi")
    assert ran == [1]
    assert isinstance(out[0].exception, ToolArgumentsError)
    assert out[0].issues == out[0].exception.issues != ()


async def test_151_calls_run_side_by_side_and_their_results_stand_in_order():
    both = asyncio.Barrier(2)

    @tool
    async def meet(n: int) -> int:
        await both.wait()
        return n

    calls = [call("meet", n=n) for n in range(2)]
    response = await agent_of(calls, "done", tools=[meet]).chat("hi")
    assert [text for _, text in results(response)] == ["0", "1"]
    order = []

    @tool
    async def alone(n: int) -> None:
        order.append(f"{n} begins")
        await asyncio.sleep(0)
        order.append(f"{n} ends")

    calls = [call("alone", n=n) for n in range(2)]
    await agent_of(calls, "done", tools=[alone], parallel_tools=False).chat("hi")
    assert order == ["0 begins", "0 ends", "1 begins", "1 ends"]


async def test_155_a_hook_may_wait_for_a_person():
    asked, answer = asyncio.Event(), asyncio.get_running_loop().create_future()
    agent = agent_of(sums, "done")

    @agent.hook("preToolCall")
    async def ask(ctx):
        asked.set()
        return None if await answer else ToolFailure("the user said no")

    chat = asyncio.create_task(agent.chat("hi"))
    await asked.wait()
    answer.set_result(False)
    assert results(await chat)[0][0] == "denied"


async def test_159_any_object_that_streams_is_a_model_and_its_errors_are_typed():
    class Echo:
        async def stream(self, request):
            yield TextChunk(request.messages[-1].text)
            yield Finish()

    events = await collect(Agent(Echo()).chat_stream("hi"))
    assert [each.text for each in only(events, TextDelta)] == ["hi"]
    error = ModelError("overloaded", status=529, retryable=True, retry_after=2.0)
    with pytest.raises(ModelError) as caught:
        await agent_of(error).chat("hi")
    assert (caught.value.status, caught.value.retry_after) == (529, 2.0)


async def test_160_the_response_has_the_last_answer_and_all_of_the_chat():
    response = await agent_of(sums, Turn(reasoning="so", text="three")).chat("hi")
    assert isinstance(response, Response)
    assert (response.text, response.reasoning, response.finish_reason) == ("three", "so", "stop")
    assert roles(response.messages) == ["user", "assistant", "tool", "assistant"]
    assert response.usage.input_tokens == 20


def test_162_one_tree_of_errors():
    for kind in (
        ModelError,
        MaxStepsError,
        ToolArgumentsError,
        UnknownToolError,
        DisabledToolError,
        ChatAbortedError,
        UnknownHookError,
    ):
        assert issubclass(kind, HooklineError)
    error = ToolArgumentsError("add", ["b is missing"])
    assert (error.tool, error.issues) == ("add", ("b is missing",))


async def test_164_a_scripted_model_is_public():
    model = ScriptedModel([sums], "three")
    response = await Agent(model, tools=[add]).chat("hi")
    assert response.text == "three"
    model.done()


async def test_165_a_bridge_to_other_tools_is_a_plugin_of_two_scope_hooks():
    """What a scope brings is mirrored elsewhere, and called from there."""
    elsewhere = {}

    def bridge(agent):
        def mirror(ctx):
            elsewhere.update({t.name: t for t in ctx.scope.tools})

        def forget(ctx):
            for each in ctx.scope.tools:
                elsewhere.pop(each.name)

        agent.add_hook("onScopeRegister", mirror)
        agent.add_hook("onScopeUnregister", forget)

    agent = agent_of(tools=[])
    remove = await agent.use(bridge)
    dispose = agent.scopes.register(Scope("sums", tools=[add]))
    assert await elsewhere["add"](1, 2) == 3
    dispose()
    assert elsewhere == {}
    remove()
    assert agent.hooks() == ()


async def test_166_a_function_and_an_object_that_is_called_are_hooks():
    out = []

    class Audit:
        def __call__(self, ctx):
            out.append(ctx.message.role)

    agent = agent_of()
    agent.add_hook("onMessage", Audit())
    agent.add_hook("onMessage", noting(out, "function"))
    await agent.chat("hi")
    assert out == ["user", "function", "assistant", "function"]


# ── the recipes of its documents ────────────────────────────────────────────────────────────


async def test_recipe_cache_by_short_circuit():
    cache = {}
    agent = agent_of("first", "second")

    def key(request):
        return tuple(message.text for message in request.messages)

    @agent.hook("preRequest")
    def look_up(ctx):
        return cache.get(key(ctx.request))

    @agent.hook("onResponse")
    def keep(ctx):
        cache[key(ctx.request)] = ctx.response

    assert [(await agent.chat("hi")).text for _ in range(2)] == ["first", "first"]


async def test_recipe_cached_tool_result():
    @tool
    async def fetch_weather(city: str) -> str:
        raise AssertionError("not asked")

    weather = {"Rome": "sunny"}
    agent = agent_of(call("fetch_weather", city="Rome"), "done", tools=[fetch_weather])

    @agent.hook("preToolCall", tools=["fetch_weather"])
    def cached(ctx):
        found = weather.get(ctx.call.arguments["city"])
        return ToolResult(found) if found else None

    assert results(await agent.chat("hi")) == [("answered", "sunny")]


async def test_recipe_permission_by_a_typed_error():
    allowed = {"ann": {"add"}}
    agent = agent_of(sums, "done", sums, "done")

    @agent.hook("preToolCall")
    def permission(ctx):
        if ctx.tool.name not in allowed.get(ctx.run.deps, ()):
            return ToolFailure("Not permitted")
        return None

    assert results(await agent.chat("hi", deps="ann")) == [("ok", "3")]
    assert results(await agent.chat("hi", deps="bob"))[0][0] == "denied"


async def test_recipe_redact_emails_in_a_result():
    from hookline.hooks import redact

    @tool
    async def list_users() -> list[dict[str, str]]:
        return [{"name": "Ada", "mail": "ada@example.org"}]

    agent = agent_of(
        call("list_users"), "done", tools=[list_users], hooks=[redact(r"[\w.]+@[\w.]+")]
    )
    assert results(await agent.chat("hi")) == [("ok", '[{"name":"Ada","mail":"[redacted]"}]')]


async def test_recipe_reword_validation_errors():
    agent = agent_of(call("add", a="x"), "done")

    @agent.hook("onToolCallError")
    def reword(ctx):
        if isinstance(ctx.error.exception, ToolArgumentsError):
            return ToolFailure(f"Bad arguments for {ctx.call.name}")
        return None

    assert "Bad arguments for add" in results(await agent.chat("hi"))[0][1]


async def test_recipe_log_by_an_observer(caplog):
    from hookline.hooks import log

    with caplog.at_level(logging.INFO, logger="hookline.chats"):
        await agent_of(sums, "done", hooks=[log()]).chat("hi")
    assert "tool add(c1): ok" in caplog.text
