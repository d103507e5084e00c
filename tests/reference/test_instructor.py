"""What users of instructor-php's agents can do, row by row of README.md."""

import asyncio

import pytest

from hookline import (
    Agent,
    Ask,
    Continue,
    Conversation,
    HookBus,
    Limits,
    MemoryStore,
    ModelResponse,
    NullBus,
    Run,
    Stop,
    ToolFailure,
    ToolResult,
    define_hook,
    tool,
)
from hookline.errors import (
    HookOptionError,
    HookReturnError,
    StopChat,
    ToolArgumentsError,
    UnknownHookError,
)
from hookline.events import ChatDone, ChatStarted, StepFinished, TextDelta, ToolCallFinished
from hookline.hooks import budget
from hookline.points import TABLE, OnHook, PreToolCall
from hookline.testing import ScriptedModel, Turn, call, collect, record

from ._play import Boom, add, agent_of, names, only, requests, results, roles, sums, void


def noting(out, name):
    return lambda ctx: void(out.append(name))


# ── the hook stack ──────────────────────────────────────────────────────────────────────────


async def test_006_higher_priority_first_and_ties_in_order():
    out = []
    agent = agent_of()
    for name, priority in [("0", 0), ("200a", 200), ("-200", -200), ("200b", 200)]:
        agent.add_hook("preRequest", noting(out, name), priority=priority)
    await agent.chat("hi")
    assert out == ["200a", "200b", "0", "-200"]


async def test_006_one_object_may_listen_to_several_points():
    class Metrics:
        def __init__(self):
            self.seen = []

        def note(self, ctx):
            self.seen.append(type(ctx).__name__)

    metrics = Metrics()
    hooks = [define_hook(point, metrics.note) for point in ("onChatStart", "onStep", "onChatEnd")]
    await agent_of(hooks=hooks).chat("hi")
    assert metrics.seen == ["OnChatStart", "OnStep", "OnChatEnd"]


def test_007_guards_stand_at_200_and_the_finish_reason_at_minus_200():
    agent = agent_of(hooks=[budget(steps=5, finish_reasons=["length"])])
    assert {info.priority for info in agent.hooks("preRequest")} == {200}
    assert [info.priority for info in agent.hooks("onStep")] == [200, -200]


async def test_016_contexts_and_payloads_cannot_be_changed_in_place():
    failed = []
    agent = agent_of(sums, "done")

    @agent.hook("preToolCall")
    def change(ctx):
        for act in (
            lambda: setattr(ctx, "call", None),
            lambda: setattr(ctx.call, "name", "x"),
            lambda: ctx.call.arguments.update(a=9),
        ):
            try:
                act()
            except (AttributeError, TypeError) as exc:
                failed.append(type(exc).__name__)

    agent.add_hook("preRequest", lambda ctx: ctx.request.replace(system=None))
    assert results(await agent.chat("hi")) == [("ok", "3")]
    assert len(failed) == 3


async def test_017_what_a_point_may_change_is_its_type_and_anything_else_is_an_error():
    agent = agent_of(sums)
    agent.add_hook("preToolCall", lambda ctx: ModelResponse.of("x"), name="foreign")
    with pytest.raises(HookReturnError) as caught:
        await agent.chat("hi")
    for word in ("'foreign'", "preToolCall", "ModelResponse", "ToolCall, Ask"):
        assert word in str(caught.value)


async def test_019_each_hook_sees_what_the_one_before_has_made():
    agent = agent_of("a")
    for letter in "bc":
        agent.add_hook(
            "onResponse",
            lambda ctx, letter=letter: ctx.response.replace(text=ctx.response.text + letter),
        )
    assert (await agent.chat("hi")).text == "abc"


async def test_023_each_hook_that_ran_is_told_also_one_that_threw():
    out: list[OnHook] = []
    agent = agent_of()
    agent.add_hook("onHook", out.append)
    agent.add_hook("onChatStart", void, name="good")

    def fail(ctx):
        raise Boom

    agent.add_hook("preRequest", fail, name="bad")
    with pytest.raises(Boom):
        await agent.chat("hi")
    assert [(each.point, each.hook, each.outcome) for each in out] == [
        ("onChatStart", "good", "ok"),
        ("preRequest", "bad", "raised"),
    ]
    assert all(each.duration >= 0 for each in out)


async def test_024_the_whole_bus_may_be_another_one():
    out = []
    agent = agent_of(bus=NullBus())
    agent.add_hook("onChatStart", noting(out, "ran"))
    assert (await agent.chat("hi")).text == "ok"
    assert out == []

    class Counting(HookBus):
        def publish(self, event):
            out.append(type(event).__name__)
            super().publish(event)

    bus = Counting()  # which is asked to publish where somebody has subscribed
    events = bus.subscribe()
    await agent_of(bus=bus).chat("hi")
    assert "ChatDone" in out
    events.close()


def test_025_hooks_are_listed_with_name_point_and_priority():
    agent = agent_of(hooks=[define_hook("onStep", void, id="metrics", name="m", priority=150)])
    (info,) = agent.hooks()
    assert (info.point, info.name, info.priority, info.id, info.origin) == (
        "onStep",
        "m",
        150,
        "metrics",
        "agent",
    )


# ── a throw inside a hook ───────────────────────────────────────────────────────────────────

REACHES = ["onChatStart", "preRequest", "preToolCall", "onToolCallResult", "onStep", "onChatDone"]


@pytest.mark.parametrize("point", REACHES)
async def test_037_a_throw_reaches_the_caller_and_the_table_says_what_else(point):
    assert "onChatError" in TABLE[point].throws or "raised" in TABLE[point].throws
    agent = agent_of(sums, "done")

    def fail(ctx):
        raise Boom

    agent.add_hook(point, fail)
    with pytest.raises(Boom):
        await agent.chat("hi")


async def test_038_a_clean_stop_from_a_hook_or_a_tool():
    agent = agent_of(sums)
    agent.add_hook("onStep", lambda ctx: Stop("stop_requested"))
    errors = []
    agent.add_hook("onChatError", noting(errors, "error"))
    assert (await agent.chat("hi")).stop_reason == "stop_requested"

    @tool
    async def enough() -> None:
        raise StopChat("enough")

    response = await agent_of([call("enough"), sums], tools=[enough, add]).chat("hi")
    assert (response.stop_reason, results(response)) == ("enough", [("ok", "enough"), ("ok", "3")])
    assert errors == []


# ── the life of an execution ────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("end", ["done", "error", "aborted"])
async def test_049_before_and_after_an_execution_whatever_its_end(end):
    out = []
    agent = agent_of(Boom() if end == "error" else "ok")
    agent.add_hook("onChatStart", noting(out, "before"))
    agent.add_hook("onChatEnd", lambda ctx: out.append(ctx.outcome))
    if end == "aborted":
        agent.add_hook("preRequest", lambda ctx: void(ctx.run.abort()))
    await asyncio.gather(agent.chat("hi"), return_exceptions=True)
    assert out == ["before", end]


async def test_050_on_stop_fires_at_every_end_and_may_go_on_at_a_natural_one():
    out = []
    agent = agent_of("one", "two", sums)
    agent.add_hook("preStop", lambda ctx: void(out.append(ctx.reason)))
    agent.add_hook("preStop", lambda ctx: Continue("more") if not ctx.continuations else None)
    assert (await agent.chat("hi")).text == "two"
    agent.add_hook("onStep", lambda ctx: Stop("enough"))
    assert (await agent.chat("hi")).stop_reason == "enough"
    assert out == [None, None, "enough"]


async def test_051_after_an_error_what_ends_still_runs_in_order():
    out = []
    agent = agent_of(Boom("x"))
    agent.add_hook("onChatError", lambda ctx: out.append(repr(ctx.error)))
    agent.add_hook("onStep", noting(out, "step"))
    agent.add_hook("onChatEnd", noting(out, "end"))
    with pytest.raises(Boom):
        await agent.chat("hi")
    assert out == ["Boom('x')", "end"]


async def test_052_before_and_after_a_step_and_none_after_for_one_that_never_began():
    out = []
    agent = agent_of(sums, sums, hooks=[budget(tokens=1)])
    agent.add_hook("preRequest", lambda ctx: void(out.append(f"before {ctx.iteration}")))
    agent.add_hook("onStep", lambda ctx: void(out.append(f"after {ctx.iteration}")))
    await agent.chat("hi")
    assert out == ["before 0", "after 0"]
    agent = agent_of()
    agent.add_hook("preRequest", lambda ctx: Stop("not now"))
    agent.add_hook("onStep", noting(out, "never"))
    await agent.chat("hi")
    assert out == ["before 0", "after 0"]


async def test_064_request_and_response_at_the_border_of_the_model():
    agent = agent_of("from the model")

    @agent.hook("aroundRequest")
    async def border(ctx, proceed):
        response = await proceed(ctx.request.replace(system="replaced"))
        return response.replace(text=response.text.upper())

    events = await collect(agent.chat_stream("hi"))
    assert requests(agent)[0].system == "replaced"
    reset = names(events).index("ResponseReset")
    assert [e.text for e in events[reset:] if isinstance(e, TextDelta)] == ["FROM THE MODEL"]


# ── tools ───────────────────────────────────────────────────────────────────────────────────


async def test_081_before_each_call_it_may_be_replaced_or_blocked():
    agent = agent_of([sums, call("broken")], "done")
    agent.add_hook(
        "preToolCall", lambda ctx: ctx.call.replace(arguments={"a": 5, "b": 5}), tools=["add"]
    )
    agent.add_hook("preToolCall", lambda ctx: ToolFailure("blocked"), tools=["broken"])
    response = await agent.chat("hi")
    assert [outcome for outcome, _ in results(response)] == ["ok", "denied"]
    assert results(response)[0][1] == "10"


async def test_082_a_block_ends_the_chain_and_a_softer_one_does_not():
    out = []
    agent = agent_of(sums, "done")
    agent.add_hook("preToolCall", lambda ctx: ToolFailure("blocked"))
    agent.add_hook("preToolCall", noting(out, "never"))
    await agent.chat("hi")
    assert out == []
    agent = agent_of(sums, "done")
    agent.add_hook("preToolCall", lambda ctx: Ask("May it?"))  # a question, which others may beat
    agent.add_hook("preToolCall", lambda ctx: ToolResult("allowed from the cache"))
    assert results(await agent.chat("hi")) == [("answered", "allowed from the cache")]


async def test_083_a_blocked_call_is_seen_as_started_and_as_denied():
    out = []
    agent = agent_of(sums, "done")
    agent.add_hook("preToolCall", lambda ctx: ToolFailure("blocked"))
    agent.add_hook("onToolCallError", lambda ctx: out.append(ctx.error.message))
    events = await collect(agent.chat_stream("hi"))
    assert [each.outcome for each in only(events, ToolCallFinished)] == ["denied"]
    assert out == ["blocked"]


async def test_084_a_stop_from_a_tool_hook_is_not_lost():
    ran = []
    agent = agent_of([sums, call("broken")], "unasked", parallel_tools=False)
    agent.add_hook("preToolCall", lambda ctx: Stop("budget"), tools=["broken"])
    agent.add_hook("onStep", noting(ran, "step"))
    response = await agent.chat("hi")
    assert (response.stop_reason, ran, len(requests(agent))) == ("budget", ["step"], 1)
    assert [outcome for outcome, _ in results(response)] == ["ok", "stopped"]


async def test_084_state_that_hooks_share_lasts_as_long_as_the_chat():
    out = []
    agent = agent_of(sums, "done")
    agent.add_hook("preToolCall", lambda ctx: ctx.run.state.update(seen=ctx.call.id))
    agent.add_hook("onChatEnd", lambda ctx: out.append(ctx.run.state))
    await agent.chat("hi")
    assert out == [{"seen": "c1"}]


async def test_085_stop_on_a_block_and_throw_on_a_failure():
    agent = agent_of([call("broken"), sums], "unasked")
    agent.add_hook("preToolCall", lambda ctx: Stop("blocked"), tools=["broken"])
    response = await agent.chat("hi")
    assert [outcome for outcome, _ in results(response)] == ["stopped", "stopped"]
    agent = agent_of(call("broken"), "unasked")

    @agent.hook("onToolCallError")
    def throw(ctx):
        raise ctx.error.exception

    with pytest.raises(Boom, match="broken"):
        await agent.chat("hi")


async def test_086_after_a_call_its_result_may_be_replaced_a_failed_one_too():
    agent = agent_of([sums, call("broken")], "done")
    agent.add_hook("onToolCallResult", lambda ctx: ToolResult("replaced"), tools=["add"])
    agent.add_hook("onToolCallError", lambda ctx: ToolResult("recovered"))
    assert results(await agent.chat("hi")) == [("ok", "replaced"), ("ok", "recovered")]


# ── sessions ────────────────────────────────────────────────────────────────────────────────


async def test_102_conversations_are_kept_by_id_and_hooks_stand_before_and_after_each_write():
    out = []
    store = MemoryStore()
    agent = agent_of("one", "two", store=store)
    agent.add_hook("preMessage", lambda ctx: void(out.append(f"before {ctx.message.role}")))
    agent.add_hook("onMessage", lambda ctx: out.append(f"after {ctx.message.role}"))
    await agent.chat("hi", conversation="talk")
    await agent.chat("ho", conversation="talk")
    conversation = await store.open("talk")
    assert roles(conversation.messages) == ["user", "assistant"] * 2
    assert out[:4] == ["before user", "after user", "before assistant", "after assistant"]


# ── guards ──────────────────────────────────────────────────────────────────────────────────


async def test_107_n_steps_are_n_model_calls_and_none_disables_a_guard():
    agent = agent_of(*[sums] * 9, hooks=[budget(steps=2)])
    response = await agent.chat("hi")
    assert (len(requests(agent)), response.stop_reason, response.text) == (
        2,
        "steps_limit",
        "step limit reached: 2/2",
    )
    agent = agent_of(*[sums] * 30, "done", hooks=[budget(tokens=10**9)], limits=Limits(steps=50))
    assert (await agent.chat("hi")).text == "done"


async def test_108_what_a_step_is_can_be_chosen():
    def results_so_far(run: Run) -> int:
        return sum(message.role == "tool" for message in run.history)

    agent = agent_of(*[[sums, sums]] * 9, hooks=[budget(steps=3, count=results_so_far)])
    assert (await agent.chat("hi")).text == "step limit reached: 4/3"


@pytest.mark.parametrize(("reason", "steps"), [("length", 1), ("tool_calls", 2), (None, 2)])
async def test_109_a_finish_reason_stops(reason, steps):
    turn = Turn(sums, finish_reason=reason)
    agent = agent_of(turn, "done", hooks=[budget(finish_reasons=["length"])])
    await agent.chat("hi")
    assert len(requests(agent)) == steps


async def test_110_of_several_stops_the_first_in_order_is_told():
    agent = agent_of(sums, sums)
    agent.add_hook("onStep", lambda ctx: Stop("tokens"))
    agent.add_hook("onStep", lambda ctx: Stop("user_requested", "Stopped."), priority=200)
    response = await agent.chat("hi")
    assert (response.stop_reason, response.text) == ("user_requested", "Stopped.")


async def test_111_one_more_step_may_be_granted_to_a_guard_that_asks():
    def made(run: Run) -> int:
        return run.iteration - run.state.get("granted", 0)

    agent = agent_of(sums, sums, sums, hooks=[budget(steps=1, count=made)])
    agent.add_hook("onChatStart", lambda ctx: ctx.run.state.update(granted=1))
    await agent.chat("hi")
    assert len(requests(agent)) == 2


async def test_112_forced_and_natural_ends_can_be_told_apart():
    assert (await agent_of("ok").chat("hi")).stop_reason is None
    assert (await agent_of(sums, hooks=[budget(steps=1)]).chat("hi")).stop_reason is not None


# ── events, cancelling, the rest ────────────────────────────────────────────────────────────


async def test_133_a_wiretap_of_all_or_of_some_classes():
    agent = agent_of(sums, "done")
    everything, some = agent.subscribe(), agent.subscribe(ChatStarted, ChatDone)
    await agent.chat("hi")
    for each in (everything, some):
        each.close()
    assert "ToolCallStarted" in names([event async for event in everything])
    assert names([event async for event in some]) == ["ChatStarted", "ChatDone"]


async def test_138_cancelling_that_waits_for_the_step_to_end():
    wanted = asyncio.Event()
    agent = agent_of(sums, "unasked")
    agent.add_hook("preRequest", lambda ctx: Stop("user_requested") if wanted.is_set() else None)
    agent.add_hook("onToolCallResult", lambda ctx: void(wanted.set()))
    response = await agent.chat("hi")
    assert (response.stop_reason, results(response)) == ("user_requested", [("ok", "3")])


async def test_151_calls_in_the_models_order_where_one_asks_for_it():
    out = []
    agent = agent_of([sums, call("broken"), sums], "done", parallel_tools=False)
    agent.add_hook("preToolCall", lambda ctx: void(out.append(f"{ctx.call.name} begins")))
    agent.add_hook("onToolCallResult", noting(out, "ends"))
    agent.add_hook("onToolCallError", noting(out, "ends"))
    await agent.chat("hi")
    assert out == ["add begins", "ends", "broken begins", "ends", "add begins", "ends"]


async def test_152_arguments_are_checked_whole_not_only_for_what_is_missing():
    out = []
    agent = agent_of(call("add", a="x", c=1), "done")
    agent.add_hook("onToolCallError", lambda ctx: out.append(ctx.error.exception))
    await agent.chat("hi")
    assert isinstance(out[0], ToolArgumentsError)
    assert len(out[0].issues) >= 2


async def test_155_a_hook_may_ask_a_person():
    agent = agent_of(sums, "done")
    agent.add_hook("preToolCall", lambda ctx: Ask("May it?"))
    response = await agent.chat("hi", conversation=Conversation())
    assert response.stop_reason == "approval"


async def test_157_what_hooks_keep_for_the_conversation():
    conversation = Conversation()
    agent = agent_of("one", "two")
    agent.add_hook("onChatStart", lambda ctx: void(conversation.meta.setdefault("user", "ann")))
    await agent.chat("hi", conversation=conversation)
    await agent.chat("ho", conversation=conversation)
    assert conversation.meta == {"user": "ann"}


async def test_158_a_sub_agent_has_a_depth_a_budget_and_its_parents_id():
    out = []
    kid = Agent(ScriptedModel(*[sums] * 9), name="kid", tools=[add])
    mum = agent_of(
        call("kid", input="x"), "done", tools=[kid.as_tool(max_depth=1)], hooks=[budget(steps=4)]
    )
    kid.add_hook("onChatStart", lambda ctx: out.append(ctx.run.parent_chat_id))
    response = await mum.chat("hi")
    assert out == [response.chat_id]
    assert results(response) == [("ok", "step limit reached: 4/4")]
    with pytest.raises(Exception, match="max_depth"):
        kid.as_tool(max_depth=0)


async def test_161_usage_of_each_step_and_in_all():
    events = await collect(agent_of(sums, "done").chat_stream("hi"))
    steps = [each.usage.input_tokens for each in only(events, StepFinished)]
    assert (steps, events[-1].response.usage.input_tokens) == ([10, 10], 20)


async def test_163_wrappers_nest_and_everything_can_be_correlated():
    out = []
    agent = agent_of(sums, "done", name="ada")

    def span(point):
        async def wrap(ctx, proceed):
            out.append(f"{point} begins")
            assert (ctx.run.agent, bool(ctx.run.chat_id)) == ("ada", True)
            try:
                return await proceed()
            finally:
                out.append(f"{point} ends")

        return wrap

    for point in ("aroundChat", "aroundRequest", "aroundToolCall"):
        agent.add_hook(point, span(point), priority=150)
    await agent.chat("hi")
    assert out == [
        "aroundChat begins",
        "aroundRequest begins",
        "aroundRequest ends",
        "aroundToolCall begins",
        "aroundToolCall ends",
        "aroundRequest begins",
        "aroundRequest ends",
        "aroundChat ends",
    ]


async def test_164_a_scripted_driver_and_tools_that_are_plain_functions():
    agent = Agent(ScriptedModel([sums], "three"), tools=[add])
    with record(agent) as recorder:
        assert (await agent.chat("hi")).text == "three"
    assert "onToolCallResult add 3" in recorder.text


async def test_166_a_callable_needs_no_class():
    out = []
    agent = agent_of()
    agent.add_hook("onChatStart", lambda ctx: out.append(ctx.message.text))
    await agent.chat("hi")
    assert out == ["hi"]


async def test_167_the_context_is_set_at_the_start_and_empty_values_change_nothing():
    def context(system):
        return define_hook(
            "preChat", lambda ctx: ctx.request.replace(system=system) if system else None
        )

    for given, expected in [("Be brief.", "Be brief."), ("", "Be nice.")]:
        agent = agent_of(system="Be nice.", hooks=[context(given)])
        await agent.chat("hi")
        assert requests(agent)[0].system == expected


async def test_168_tools_of_capabilities_are_tools_like_any():
    out = []
    agent = agent_of([sums, call("extra")], "done")

    @tool
    async def extra() -> str:
        return "x"

    class Capability:
        tools = (extra,)

    await agent.use(Capability())
    agent.add_hook("preToolCall", lambda ctx: out.append(ctx.call.name))
    await agent.chat("hi")
    assert out == ["add", "extra"]


async def test_171_a_guard_is_written_with_public_hooks_only():
    class SelfCritique:
        """A capability: it asks the agent once to look at its own answer."""

        def __init__(self):
            self.hooks = (define_hook("preStop", self.critique),)

        def critique(self, ctx):
            return None if ctx.continuations else Continue("Is that right?")

    agent = agent_of("first", "second")
    await agent.use(SelfCritique())
    assert (await agent.chat("hi")).text == "second"


def test_an_unknown_point_or_option_is_told_at_once():
    with pytest.raises(UnknownHookError, match="preToolCall"):
        define_hook("beforeToolUse", void)
    with pytest.raises(HookOptionError, match="trigger"):
        agent_of().add_hook(PreToolCall, void, trigger=1)
