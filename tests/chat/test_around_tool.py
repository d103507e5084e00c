"""aroundToolCall: wrappers around a tool's handler."""

import asyncio
import json
from dataclasses import dataclass

import pytest
from tests._tool_chats import Clock, goes_on, results, settle, written

from hookline import Agent, Approve, Ask, Conversation, Stop, ToolFailure, ToolResult, tool
from hookline.errors import HookError, HookReturnError, HookTimeoutError, StopChat, ToolDenied
from hookline.testing import ScriptedModel, call, raw_call


def agent_of(fn, *turns, **options):
    return Agent(
        ScriptedModel(*(turns or (call(fn.name, call_id="a"), "done"))), tools=[fn], **options
    )


def plain(out, value="value", **options):
    """A tool that notes that it ran, and gives a value or raises it."""

    @tool(name="act", **options)
    async def act(n: int = 0):
        out.append(f"run {n}")
        if isinstance(value, BaseException):
            raise value
        return value

    return act


def around(agent, **options):
    return agent.hook("aroundToolCall", **options)


# ── the onion ───────────────────────────────────────────────────────────────────────────────


async def test_the_first_wrapper_in_order_is_the_outermost():
    out = []
    agent = agent_of(plain(out))

    def wrapper(name):
        async def wrap(ctx, proceed):
            out.append(f"{name} >")
            result = await proceed()
            out.append(f"< {name}")
            return result

        return wrap

    agent.add_hook("aroundToolCall", wrapper("inner"))
    agent.add_hook("aroundToolCall", wrapper("outer"), priority=1)
    await agent.chat("go")
    assert out == ["outer >", "inner >", "run 0", "< inner", "< outer"]


async def test_a_wrapper_sees_call_tool_scope_and_run():
    seen = []
    act = plain([])
    agent = agent_of(act)

    @around(agent)
    async def look(ctx, proceed):
        seen.append((ctx.call.id, ctx.tool is act, ctx.scope.label, ctx.run.call_id))
        return await proceed()

    await agent.chat("go")
    assert seen == [("a", True, "agent", "a")]


async def test_each_call_has_its_own_onion():
    out = []
    agent = agent_of(plain(out), [call("act", call_id="a"), call("act", call_id="b")], "done")

    @around(agent)
    async def look(ctx, proceed):
        out.append(ctx.call.id)
        return await proceed()

    await agent.chat("go")
    assert sorted(out) == ["a", "b", "run 0", "run 0"]


async def test_tools_limits_a_wrapper_to_those_tools():
    out = []

    @tool
    async def other() -> None: ...

    agent = Agent(ScriptedModel([call("act"), call("other")], "done"), tools=[plain([]), other])

    @around(agent, tools=["other"])
    async def look(ctx, proceed):
        out.append(ctx.call.name)
        return await proceed()

    await agent.chat("go")
    assert out == ["other"]


async def test_what_a_wrapper_returns_is_the_result():
    agent = agent_of(plain([]))

    @around(agent)
    async def upper(ctx, proceed):
        result = await proceed()
        return result.replace(value=result.value.upper())

    assert results(await agent.chat("go")) == [("a", "ok", "VALUE")]


async def test_the_result_of_a_wrapper_passes_onToolCallResult():
    seen = []
    agent = agent_of(plain([]))

    @around(agent)
    async def other(ctx, proceed):
        return ToolResult("other")

    agent.add_hook("onToolCallResult", lambda ctx: seen.append(ctx.result.value))
    await agent.chat("go")
    assert seen == ["other"]


async def test_a_wrapper_that_does_not_proceed_answers_in_the_tools_place():
    out = []
    agent = agent_of(plain(out))

    @around(agent)
    async def cache(ctx, proceed):
        return ToolResult("cached")

    assert results(await agent.chat("go")) == [("a", "ok", "cached")]
    assert out == []


async def test_a_wrapper_may_turn_a_result_into_an_error():
    seen = []
    agent = agent_of(plain([]))

    @around(agent)
    async def refuse(ctx, proceed):
        await proceed()
        return ToolFailure("too large")

    agent.add_hook("onToolCallError", lambda ctx: seen.append(ctx.error.message))
    response = await agent.chat("go")
    assert seen == ["too large"]
    assert [outcome for _, outcome, _ in results(response)] == ["error"]


async def test_a_wrapper_may_turn_an_error_into_a_result():
    seen = []
    agent = agent_of(plain([], ValueError("broken")))

    @around(agent)
    async def fall_back(ctx, proceed):
        result = await proceed()
        return ToolResult("instead") if isinstance(result, ToolFailure) else result

    agent.add_hook("onToolCallError", lambda ctx: seen.append("error"))
    assert results(await agent.chat("go")) == [("a", "ok", "instead")]
    assert seen == []


@dataclass
class Point:
    x: int


async def test_the_value_of_a_wrapper_becomes_json_data_before_onToolCallResult_sees_it():
    seen = []
    agent = agent_of(plain([]))

    @around(agent)
    async def other(ctx, proceed):
        return ToolResult(Point(1))

    agent.add_hook("onToolCallResult", lambda ctx: seen.append(ctx.result.value))
    await agent.chat("go")
    assert seen == [{"x": 1}]


async def test_a_wrapper_sees_the_tools_value_as_json_data():
    seen = []
    agent = agent_of(plain([], Point(1)))

    @around(agent)
    async def look(ctx, proceed):
        result = await proceed()
        seen.append(result.value)
        return result

    await agent.chat("go")
    assert seen == [{"x": 1}]


async def test_a_value_of_a_wrapper_that_is_no_json_is_a_tool_error():
    agent = agent_of(plain([]))

    @around(agent)
    async def other(ctx, proceed):
        return ToolResult(object())

    response = await agent.chat("go")
    assert [outcome for _, outcome, _ in results(response)] == ["error"]
    assert response.text == "done"


@pytest.mark.parametrize("value", [None, "text", Stop("no"), {"value": 1}], ids=repr)
async def test_any_other_type_is_a_HookReturnError(value):
    agent = agent_of(plain([]))

    @around(agent, name="odd")
    async def odd(ctx, proceed):
        await proceed()
        return value

    with pytest.raises(HookReturnError, match="'odd' at aroundToolCall returned a"):
        await agent.chat("go")


# ── proceed never raises for the tool ───────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("error", "kind", "outcome"),
    [
        pytest.param(ValueError("broken"), "ValueError", "error", id="an exception"),
        pytest.param(ToolDenied("no"), "Denied", "denied", id="ToolDenied"),
        pytest.param(
            asyncio.CancelledError(), "CancelledError", "error", id="its own CancelledError"
        ),
        pytest.param(HookError("odd"), "HookError", "error", id="an error of hookline's"),
    ],
)
async def test_proceed_gives_a_ToolError_for_whatever_the_tool_raises(error, kind, outcome):
    seen = []
    agent = agent_of(plain([], error))

    @around(agent)
    async def look(ctx, proceed):
        result = await proceed()
        seen.append((type(result).__name__, result.type))
        return result

    response = await agent.chat("go")
    assert seen == [("ToolFailure", kind)]
    assert [found for _, found, _ in results(response)] == [outcome]


async def test_proceed_gives_a_ToolError_for_a_tool_that_runs_out_of_time():
    clock, seen = Clock(), []

    @tool(timeout=5)
    async def act() -> None:
        await asyncio.Event().wait()

    agent = agent_of(act)

    @around(agent)
    async def look(ctx, proceed):
        result = await proceed()
        seen.append(result.type)
        return result

    chat = asyncio.ensure_future(agent.chat("go"))
    await clock.advance(6)
    await chat
    assert seen == ["ToolTimeoutError"]


async def test_proceed_gives_the_reason_of_StopChat_as_result_and_the_chat_stops():
    seen = []
    agent = agent_of(plain([], StopChat("enough")), call("act"))

    @around(agent)
    async def look(ctx, proceed):
        result = await proceed()
        seen.append(result)
        return result

    response = await agent.chat("go")
    assert seen == [ToolResult("enough")]
    assert response.stop_reason == "enough"


async def test_what_a_wrapper_raises_is_the_wrappers_and_ends_the_chat():
    error = LookupError("in the wrapper")
    seen = []
    agent = agent_of(plain([]), call("act"))

    @around(agent)
    async def broken(ctx, proceed):
        await proceed()
        raise error

    agent.add_hook("onToolCallError", lambda ctx: seen.append("tool error"))
    with pytest.raises(LookupError) as caught:
        await agent.chat("go")
    assert caught.value is error
    assert any("aroundToolCall" in note for note in error.__notes__)
    assert seen == []


async def test_history_stays_valid_when_a_wrapper_raises():
    conversation, broken = Conversation(), [True]
    agent = agent_of(plain([]), [call("act", call_id="a"), call("act", call_id="b")], "next")

    @around(agent)
    async def wrap(ctx, proceed):
        result = await proceed()
        if broken and ctx.call.id == "b":
            raise LookupError
        return result

    with pytest.raises(LookupError):
        await agent.chat("go", conversation=conversation)
    assert [id for id, _, _ in results(conversation)] == ["a", "b"]
    broken.clear()
    await goes_on(agent, conversation)


async def test_with_on_error_log_a_wrapper_that_failed_before_proceed_is_skipped():
    out = []
    agent = agent_of(plain(out))

    @around(agent, on_error="log")
    async def broken(ctx, proceed):
        raise LookupError

    assert results(await agent.chat("go")) == [("a", "ok", "value")]
    assert out == ["run 0"]


async def test_with_on_error_log_the_tool_never_runs_twice_for_a_wrapper_that_failed_after_it():
    out = []
    agent = agent_of(plain(out))

    @around(agent, on_error="log")
    async def broken(ctx, proceed):
        await proceed()
        raise LookupError

    assert results(await agent.chat("go")) == [("a", "ok", "value")]
    assert out == ["run 0"]


async def test_a_wrappers_timeout_covers_the_tool():
    clock, out = Clock(), []

    @tool
    async def act() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            out.append("cancelled")

    agent = agent_of(act, call("act"))

    @around(agent, timeout=3)
    async def limited(ctx, proceed):
        return await proceed()

    chat = asyncio.ensure_future(agent.chat("go"))
    await clock.advance(4)
    with pytest.raises(HookTimeoutError):
        await chat
    assert out == ["cancelled"]


# ── proceed again ───────────────────────────────────────────────────────────────────────────


async def test_proceed_a_second_time_raises_unless_the_tool_is_idempotent():
    out, raised = [], []
    agent = agent_of(plain(out))

    @around(agent)
    async def retry(ctx, proceed):
        result = await proceed()
        try:
            await proceed()
        except HookError as exc:
            raised.append(str(exc))
        return result

    response = await agent.chat("go")
    assert out == ["run 0"]
    assert "idempotent" in raised[0]
    assert response.text == "done"


async def test_proceed_a_second_time_uncaught_ends_the_chat():
    out = []
    agent = agent_of(plain(out), call("act"))

    @around(agent, name="twice")
    async def retry(ctx, proceed):
        await proceed()
        return await proceed()

    with pytest.raises(HookError, match="twice"):
        await agent.chat("go")
    assert out == ["run 0"]


async def test_a_tool_that_failed_is_not_run_again_either_unless_it_is_idempotent():
    out = []
    agent = agent_of(plain(out, ValueError("broken")), call("act"))

    @around(agent)
    async def retry(ctx, proceed):
        result = await proceed()
        return await proceed() if isinstance(result, ToolFailure) else result

    with pytest.raises(HookError):
        await agent.chat("go")
    assert out == ["run 0"]


async def test_an_idempotent_tool_may_run_again():
    out = []
    agent = agent_of(plain(out, idempotent=True))

    @around(agent)
    async def thrice(ctx, proceed):
        await proceed()
        await proceed()
        return await proceed()

    assert results(await agent.chat("go")) == [("a", "ok", "value")]
    assert out == ["run 0"] * 3


async def test_two_wrappers_cannot_run_a_tool_twice_by_turns():
    """Also where an outer wrapper proceeds again into an inner one."""
    out = []
    agent = agent_of(plain(out), call("act"))

    @around(agent, priority=1)
    async def outer(ctx, proceed):
        await proceed()
        return await proceed()

    @around(agent)
    async def inner(ctx, proceed):
        return await proceed()

    with pytest.raises(HookError):
        await agent.chat("go")
    assert out == ["run 0"]


async def test_proceed_again_is_refused_although_an_inner_wrapper_answered_the_first_time():
    """The outer one cannot know whether the tool ran."""
    out = []
    agent = agent_of(plain(out), call("act"))

    @around(agent, priority=1)
    async def outer(ctx, proceed):
        await proceed()
        return await proceed()

    @around(agent)
    async def inner(ctx, proceed):
        return ToolResult("cached")

    with pytest.raises(HookError):
        await agent.chat("go")
    assert out == []


@pytest.mark.parametrize("idempotent", [True, False], ids=["idempotent", "not idempotent"])
async def test_proceed_twice_at_the_same_time_runs_the_tool_once(idempotent):
    out = []

    @tool(idempotent=idempotent)
    async def act() -> str:
        out.append("run")
        await settle()
        return "value"

    agent = agent_of(act)

    @around(agent)
    async def race(ctx, proceed):
        tries = await asyncio.gather(proceed(), proceed(), return_exceptions=True)
        assert isinstance(tries[1], HookError)
        return tries[0]

    assert results(await agent.chat("go")) == [("a", "ok", "value")]
    assert out == ["run"]


async def test_a_retry_of_an_idempotent_tool_keeps_the_last_result():
    tries = []

    @tool(idempotent=True)
    async def flaky() -> str:
        tries.append(1)
        if len(tries) < 3:
            raise ConnectionError("down")
        return "up"

    agent = agent_of(flaky)

    @around(agent)
    async def retry(ctx, proceed):
        for _ in range(5):
            result = await proceed()
            if isinstance(result, ToolResult):
                break
        return result

    assert results(await agent.chat("go")) == [("a", "ok", "up")]


# ── proceed(changed) ────────────────────────────────────────────────────────────────────────


def changing(agent, arguments, **options):
    @around(agent, **options)
    async def change(ctx, proceed):
        return await proceed(ctx.call.replace(arguments=arguments))


async def test_proceed_with_a_changed_call_runs_the_tool_with_it():
    out = []
    agent = agent_of(plain(out))
    changing(agent, {"n": 7})
    await agent.chat("go")
    assert out == ["run 7"]


async def test_a_call_that_proceed_changed_is_what_inner_wrappers_see():
    seen = []
    agent = agent_of(plain([]))
    changing(agent, {"n": 7}, priority=1)

    @around(agent)
    async def look(ctx, proceed):
        seen.append(ctx.call.arguments)
        return await proceed()

    await agent.chat("go")
    assert seen == [{"n": 7}]


async def test_a_call_that_proceed_changed_is_what_result_hooks_see():
    seen = []
    agent = agent_of(plain([]))
    changing(agent, {"n": 7})
    agent.add_hook("onToolCallResult", lambda ctx: seen.append(ctx.call.arguments))
    await agent.chat("go")
    assert seen == [{"n": 7}]


async def test_proceed_with_a_changed_call_leaves_history_as_the_model_wrote_it():
    agent = agent_of(plain([]), call("act", call_id="a", n=1), "done")
    changing(agent, {"n": 7})
    assert written(await agent.chat("go")) == {"a": {"n": 1}}


async def test_arguments_that_proceed_changed_are_validated():
    out = []
    agent = agent_of(plain(out))
    changing(agent, {"n": "many"})
    response = await agent.chat("go")
    ((_, outcome, text),) = results(response)
    assert (outcome, json.loads(text)["error"]["type"]) == ("error", "ToolArgumentsError")
    assert out == []


@pytest.mark.parametrize("changes", [{"name": "other"}, {"id": "b"}], ids=["name", "id"])
async def test_proceed_with_another_name_or_id_is_a_HookReturnError(changes):
    out = []
    agent = agent_of(plain(out), call("act", call_id="a"))

    @around(agent, name="renamer")
    async def rename(ctx, proceed):
        return await proceed(ctx.call.replace(**changes))

    with pytest.raises(HookReturnError, match="renamer"):
        await agent.chat("go")
    assert out == []


async def test_proceed_with_something_else_is_a_HookReturnError():
    agent = agent_of(plain([]), call("act", call_id="a"))

    @around(agent)
    async def odd(ctx, proceed):
        return await proceed({"n": 1})

    with pytest.raises(HookReturnError):
        await agent.chat("go")


async def test_proceed_without_an_argument_goes_on_with_the_payload_as_it_stands():
    out = []
    agent = agent_of(plain(out), call("act", n=3), "done")

    @around(agent)
    async def wrap(ctx, proceed):
        return await proceed()

    await agent.chat("go")
    assert out == ["run 3"]


async def test_each_try_of_an_idempotent_tool_may_have_other_arguments():
    out = []
    agent = agent_of(plain(out, idempotent=True))

    @around(agent)
    async def two(ctx, proceed):
        await proceed(ctx.call.replace(arguments={"n": 1}))
        return await proceed()

    await agent.chat("go")
    assert out == ["run 1", "run 0"]


async def test_a_call_that_was_approved_cannot_be_changed_by_a_wrapper():
    """What runs is exactly what was approved."""
    out = []
    agent = agent_of(
        plain(out), call("act", call_id="a", n=1), approver=lambda request, run: Approve()
    )
    agent.add_hook("preToolCall", lambda ctx: Ask("may it?"))
    changing(agent, {"n": 7})
    with pytest.raises(HookError):
        await agent.chat("go")
    assert out == []


# ── calls without a handler ─────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("wanted", "answer"),
    [
        pytest.param(call("act"), ToolResult("cached"), id="answered"),
        pytest.param(call("act"), ToolFailure("no"), id="denied"),
        pytest.param(call("act"), Stop("no"), id="stopped"),
        pytest.param(call("nope"), None, id="unknown"),
        pytest.param(call("act", n="x"), None, id="bad arguments"),
        pytest.param(raw_call("act", "{"), None, id="cut arguments"),
    ],
)
async def test_calls_that_do_not_run_skip_aroundToolCall(wanted, answer):
    out = []
    agent = agent_of(plain(out), wanted, "done")
    agent.add_hook("preToolCall", lambda ctx: answer)

    @around(agent)
    async def wrap(ctx, proceed):
        out.append("around")
        return await proceed()

    await agent.chat("go")
    assert out == []


async def test_wrappers_of_parallel_calls_run_at_the_same_time():
    meet = asyncio.Barrier(2)
    agent = agent_of(plain([]), [call("act", call_id="a"), call("act", call_id="b")], "done")

    @around(agent)
    async def wait(ctx, proceed):
        await meet.wait()
        return await proceed()

    assert len(results(await agent.chat("go"))) == 2


async def test_an_abort_cancels_a_wrapper_and_history_stays_valid():
    out, inside = [], asyncio.Event()
    conversation = Conversation()
    agent = agent_of(plain(out), call("act", call_id="a"), "next")

    async def wait(ctx, proceed):
        inside.set()
        try:
            await asyncio.Event().wait()
        finally:
            out.append("left")

    dispose = agent.add_hook("aroundToolCall", wait)
    chat = asyncio.ensure_future(agent.chat("go", conversation=conversation))
    await inside.wait()
    chat.cancel()
    with pytest.raises(asyncio.CancelledError):
        await chat
    await settle()
    assert out == ["left"]
    assert [(id, outcome) for id, outcome, _ in results(conversation)] == [("a", "aborted")]
    dispose()
    await goes_on(agent, conversation)
