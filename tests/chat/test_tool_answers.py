"""Answers that hooks give in a tool's place, and results that hooks turn into their opposite."""

import json
from dataclasses import dataclass

import pytest
from tests._tool_chats import goes_on, only, outcomes, results, written

from hookline import (
    Agent,
    Ask,
    Continue,
    Conversation,
    Stop,
    ToolFailure,
    ToolResult,
    tool,
)
from hookline.errors import HookReturnError, ToolDenied
from hookline.events import ToolCallFinished
from hookline.testing import ScriptedModel, call, collect


def agent_of(*turns, out, parallel_tools=True, **tools):
    """An agent whose tools give these values, or raise them; all its tool points are traced."""

    def make(name, value):
        @tool(name=name)
        async def fn():
            out.append(f"run {name}")
            if isinstance(value, Exception):
                raise value
            return value

        return fn

    agent = Agent(
        ScriptedModel(*turns),
        tools=[make(name, value) for name, value in tools.items()],
        parallel_tools=parallel_tools,
    )

    @agent.hook("aroundToolCall", priority=-1)
    async def around(ctx, proceed):
        out.append(f"around {ctx.call.name}")
        return await proceed()

    agent.add_hook(
        "onToolCallResult",
        lambda ctx: out.append(f"result {ctx.call.name} {ctx.result.value}"),
        priority=-1,
    )
    agent.add_hook(
        "onToolCallError",
        lambda ctx: out.append(f"error {ctx.call.name} {ctx.error.message}"),
        priority=-1,
    )
    return agent


# ── preToolCall answers ─────────────────────────────────────────────────────────────────────


async def test_a_ToolResult_from_preToolCall_skips_the_handler_and_passes_onToolCallResult():
    out = []
    agent = agent_of(call("a", call_id="x"), "done", out=out, a="real")
    agent.add_hook("preToolCall", lambda ctx: ToolResult("cached"))
    response = await agent.chat("go")
    assert out == ["result a cached"]
    assert results(response) == [("x", "answered", "cached")]


async def test_a_ToolError_from_preToolCall_skips_the_handler_and_passes_onToolCallError():
    out = []
    agent = agent_of(call("a", call_id="x"), "done", out=out, a="real")
    agent.add_hook("preToolCall", lambda ctx: ToolFailure("not allowed", type="Policy"))
    response = await agent.chat("go")
    assert out == ["error a not allowed"]
    ((_, outcome, text),) = results(response)
    assert outcome == "denied"
    assert json.loads(text) == {"error": {"type": "Denied", "message": "not allowed"}}


async def test_ToolDenied_raised_in_preToolCall_counts_as_returning_ToolError():
    out = []
    agent = agent_of(call("a", call_id="x"), "done", out=out, a="real")

    @agent.hook("preToolCall")
    def guard(ctx):
        raise ToolDenied("never on Sundays")

    response = await agent.chat("go")
    assert out == ["error a never on Sundays"]
    assert [outcome for _, outcome, _ in results(response)] == ["denied"]
    assert response.text == "done"


@pytest.mark.parametrize(
    "answer",
    [ToolResult("cached"), ToolFailure("no"), Stop("stop")],
    ids=["result", "error", "stop"],
)
async def test_an_answer_ends_the_chain_of_preToolCall(answer):
    out = []
    agent = agent_of(call("a"), "done", out=[], a="real")
    agent.add_hook("preToolCall", lambda ctx: out.append("first"), priority=2)
    agent.add_hook("preToolCall", lambda ctx: answer, priority=1)
    agent.add_hook("preToolCall", lambda ctx: out.append("never"))
    await agent.chat("go")
    assert out == ["first"]


async def test_an_answer_holds_for_its_call_alone():
    out = []
    agent = agent_of(
        [call("a", call_id="x"), call("b", call_id="y")], "done", out=out, a="A", b="B"
    )
    agent.add_hook("preToolCall", lambda ctx: ToolResult("cached"), tools=["a"])
    response = await agent.chat("go")
    assert out == ["result a cached", "around b", "run b", "result b B"]
    assert results(response) == [("x", "answered", "cached"), ("y", "ok", "B")]


async def test_the_error_of_an_answer_may_be_recovered():
    out = []
    agent = agent_of(call("a", call_id="x"), "done", out=out, a="real")
    agent.add_hook("preToolCall", lambda ctx: ToolFailure("not allowed"))
    agent.add_hook("onToolCallError", lambda ctx: ToolResult("harmless"))
    response = await agent.chat("go")
    assert out == ["result a harmless"]
    assert [text for _, _, text in results(response)] == ["harmless"]


async def test_history_keeps_the_models_arguments_where_a_hook_answers():
    agent = agent_of(call("a", call_id="x", n=1), "done", out=[], a="real")
    agent.add_hook("preToolCall", lambda ctx: ctx.call.replace(arguments={}), priority=1)
    agent.add_hook("preToolCall", lambda ctx: ToolResult("cached"))
    assert written(await agent.chat("go")) == {"x": {"n": 1}}


async def test_arguments_are_not_validated_where_a_hook_answers():
    agent = agent_of(call("a", nonsense=1), "done", out=[], a="real")
    agent.add_hook("preToolCall", lambda ctx: ToolResult("cached"))
    response = await agent.chat("go")
    assert [text for _, _, text in results(response)] == ["cached"]


@dataclass
class Point:
    x: int


async def test_the_value_of_an_answer_becomes_json_data():
    out = []
    agent = agent_of(call("a"), "done", out=out, a="real")
    agent.add_hook("preToolCall", lambda ctx: ToolResult(Point(1)))
    response = await agent.chat("go")
    assert out == ["result a {'x': 1}"]
    assert [text for _, _, text in results(response)] == ['{"x":1}']


async def test_an_answer_that_is_no_json_is_a_tool_error():
    out = []
    agent = agent_of(call("a"), "done", out=out, a="real")
    agent.add_hook("preToolCall", lambda ctx: ToolResult(object()))
    response = await agent.chat("go")
    assert [line.split()[0] for line in out] == ["error"]
    assert [outcome for _, outcome, _ in results(response)] == ["error"]


# ── Stop from preToolCall ───────────────────────────────────────────────────────────────────


async def test_after_a_Stop_from_preToolCall_no_handler_of_the_step_starts():
    """Calls without an answer get `stopped`."""
    out = []
    model_calls = [call("a", call_id="x"), call("b", call_id="y"), call("c", call_id="z")]
    agent = agent_of(model_calls, out=out, a="A", b="B", c="C")
    agent.add_hook("preToolCall", lambda ctx: Stop("halt"), tools=["b"])
    response = await agent.chat("go")
    assert [(id, outcome) for id, outcome, _ in results(response)] == [
        ("x", "stopped"),
        ("y", "stopped"),
        ("z", "stopped"),
    ]
    assert response.stop_reason == "halt"


async def test_stopped_calls_pass_neither_result_point():
    out = []
    agent = agent_of([call("a"), call("b")], out=out, a="A", b="B")
    agent.add_hook("preToolCall", lambda ctx: Stop("halt"))
    await agent.chat("go")
    assert out == []


async def test_a_call_that_was_answered_before_the_Stop_keeps_its_answer():
    out = []
    agent = agent_of([call("a", call_id="x"), call("b", call_id="y")], out=out, a="A", b="B")
    agent.add_hook("preToolCall", lambda ctx: ToolResult("cached"), tools=["a"])
    agent.add_hook("preToolCall", lambda ctx: Stop("halt"), tools=["b"])
    response = await agent.chat("go")
    assert out == ["result a cached"]
    assert [(id, outcome) for id, outcome, _ in results(response)] == [
        ("x", "answered"),
        ("y", "stopped"),
    ]


async def test_a_call_that_was_denied_before_the_Stop_keeps_its_error():
    out = []
    agent = agent_of([call("a", call_id="x"), call("b", call_id="y")], out=out, a="A", b="B")
    agent.add_hook("preToolCall", lambda ctx: ToolFailure("no"), tools=["a"])
    agent.add_hook("preToolCall", lambda ctx: Stop("halt"), tools=["b"])
    response = await agent.chat("go")
    assert out == ["error a no"]
    assert [outcome for _, outcome, _ in results(response)] == ["denied", "stopped"]


async def test_calls_that_ran_before_the_Stop_keep_their_results():
    """With calls that run one after the other, the first ran before the second was decided."""
    out = []
    agent = agent_of(
        [call("a", call_id="x"), call("b", call_id="y"), call("c", call_id="z")],
        out=out,
        parallel_tools=False,
        a="A",
        b="B",
        c="C",
    )
    agent.add_hook("preToolCall", lambda ctx: Stop("halt"), tools=["b"])
    response = await agent.chat("go")
    assert out == ["around a", "run a", "result a A"]
    assert [outcome for _, outcome, _ in results(response)] == ["ok", "stopped", "stopped"]


async def test_a_Stop_from_preToolCall_ends_with_onStep_and_its_text():
    """The step began, so it is finished; the text is committed as an assistant message."""
    seen = []
    agent = agent_of(call("a"), out=[], a="A")
    agent.add_hook("preToolCall", lambda ctx: Stop("halt", text="I was stopped."))
    agent.add_hook("onStep", lambda ctx: seen.append([each.outcome for each in ctx.results]))
    response = await agent.chat("go")
    assert seen == [["stopped"]]
    assert (response.stop_reason, response.text) == ("halt", "I was stopped.")
    assert response.messages[-1].text == "I was stopped."


async def test_the_first_Stop_in_the_models_order_gives_the_reason():
    agent = agent_of([call("a"), call("b")], out=[], a="A", b="B")
    agent.add_hook("preToolCall", lambda ctx: Stop(f"because of {ctx.call.name}"))
    response = await agent.chat("go")
    assert response.stop_reason == "because of a"


async def test_the_conversation_goes_on_after_a_Stop_from_preToolCall():
    conversation = Conversation()
    agent = agent_of([call("a"), call("b")], "next", out=[], a="A", b="B")
    agent.add_hook("preToolCall", lambda ctx: Stop("halt"))
    await agent.chat("go", conversation=conversation)
    await goes_on(agent, conversation)


# ── values of another type ──────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("point", "value"),
    [
        pytest.param("preToolCall", "no", id="preToolCall, a str"),
        pytest.param("preToolCall", True, id="preToolCall, a bool"),
        pytest.param("preToolCall", {"n": 1}, id="preToolCall, a dict"),
        pytest.param("preToolCall", Continue("go on"), id="preToolCall, Continue"),
        pytest.param("preToolCall", Continue("no"), id="preToolCall, Continue"),
        pytest.param("onToolCallResult", "text", id="onToolCallResult, a str"),
        pytest.param("onToolCallResult", Stop("no"), id="onToolCallResult, Stop"),
        pytest.param("onToolCallResult", Ask("?"), id="onToolCallResult, Ask"),
        pytest.param("onToolCallError", "text", id="onToolCallError, a str"),
        pytest.param("onToolCallError", Ask("?"), id="onToolCallError, Ask"),
        pytest.param("onToolCallError", ValueError("x"), id="onToolCallError, an exception"),
    ],
)
async def test_any_other_type_is_a_HookReturnError_that_names_all_of_it(point, value):
    tool = "bad" if point == "onToolCallError" else "good"
    agent = agent_of(call(tool), out=[], bad=ValueError("broken"), good="fine")
    agent.add_hook(point, lambda ctx: value, name="the odd one")
    with pytest.raises(HookReturnError) as caught:
        await agent.chat("go")
    text = str(caught.value)
    assert f"'the odd one' at {point} returned a value of type {type(value).__name__}" in text
    assert "Tool" in text.partition("accepts")[2]


# ── disabled, unoffered and unknown tools ───────────────────────────────────────────────────


def with_disabled(out, *turns):
    @tool(enabled=lambda: False)
    async def off() -> str:
        out.append("run")
        return "never"

    return Agent(ScriptedModel(*turns), tools=[off])


def with_unoffered(out, *turns):
    @tool
    async def off() -> str:
        out.append("run")
        return "never"

    agent = Agent(ScriptedModel(*turns), tools=[off])
    agent.add_hook("preRequest", lambda ctx: ctx.request.replace(tools=()))
    return agent


off_tools = pytest.mark.parametrize(
    "make", [with_disabled, with_unoffered], ids=["disabled", "unoffered"]
)


@off_tools
async def test_preToolCall_runs_for_a_tool_that_is_off_and_may_answer(make):
    out = []
    agent = make(out, call("off", call_id="x"), "done")
    agent.add_hook("preToolCall", lambda ctx: ToolResult(f"instead of {ctx.tool.name}"))
    response = await agent.chat("go")
    assert results(response) == [("x", "answered", "instead of off")]
    assert out == []


@off_tools
async def test_a_tool_that_is_off_is_a_DisabledToolError_where_no_hook_answers(make):
    out, seen = [], []
    agent = make(out, call("off", call_id="x"), "done")
    agent.add_hook("preToolCall", lambda ctx: seen.append(f"pre {ctx.call.name}"))
    agent.add_hook("onToolCallError", lambda ctx: seen.append(f"error {ctx.error.type}"))
    response = await agent.chat("go")
    assert seen == ["pre off", "error DisabledToolError"]
    ((_, outcome, text),) = results(response)
    assert (outcome, json.loads(text)["error"]["type"]) == ("error", "DisabledToolError")
    assert response.text == "done"
    assert out == []


@off_tools
async def test_a_changed_call_does_not_switch_a_tool_on(make):
    out = []
    agent = make(out, call("off", call_id="x"), "done")
    agent.add_hook("preToolCall", lambda ctx: ctx.call.replace(arguments={}))
    response = await agent.chat("go")
    assert [outcome for _, outcome, _ in results(response)] == ["error"]
    assert out == []


@off_tools
async def test_the_error_of_a_tool_that_is_off_may_be_recovered(make):
    out, seen = [], []
    agent = make(out, call("off", call_id="x"), "done")
    agent.add_hook("onToolCallError", lambda ctx: ToolResult("instead"))
    agent.add_hook("onToolCallResult", lambda ctx: seen.append(ctx.result.value))
    response = await agent.chat("go")
    assert seen == ["instead"]
    assert [text for _, _, text in results(response)] == ["instead"]
    assert out == []


async def test_an_unknown_tool_has_no_preToolCall_and_goes_to_onToolCallError():
    seen = []
    agent = agent_of(call("nope", call_id="x"), "done", out=[])
    agent.add_hook("preToolCall", lambda ctx: seen.append("pre"))
    agent.add_hook(
        "onToolCallError", lambda ctx: seen.append((ctx.error.type, ctx.tool, ctx.scope))
    )
    response = await agent.chat("go")
    assert seen == [("UnknownToolError", None, None)]
    assert [outcome for _, outcome, _ in results(response)] == ["error"]
    assert response.text == "done"


async def test_the_error_of_an_unknown_tool_may_be_recovered():
    seen = []
    agent = agent_of(call("nope", call_id="x"), "done", out=[])
    agent.add_hook("onToolCallError", lambda ctx: ToolResult("recovered"))
    agent.add_hook("onToolCallResult", lambda ctx: seen.append((ctx.call.name, ctx.result.value)))
    response = await agent.chat("go")
    assert seen == [("nope", "recovered")]
    assert results(response) == [("x", "answered", "recovered")]


# ── conversions ─────────────────────────────────────────────────────────────────────────────


async def test_ToolError_from_onToolCallResult_converts_and_ends_its_chain():
    """The value runs once through the other point's whole chain."""
    out = []
    agent = agent_of(call("a", call_id="x"), "done", out=out, a="secret")
    agent.add_hook("onToolCallResult", lambda ctx: ToolFailure("too secret"))
    agent.add_hook("onToolCallError", lambda ctx: out.append("first of errors"), priority=9)
    response = await agent.chat("go")
    assert out == ["around a", "run a", "first of errors", "error a too secret"]
    ((_, outcome, text),) = results(response)
    assert (outcome, json.loads(text)["error"]["message"]) == ("error", "too secret")


async def test_ToolResult_from_onToolCallError_recovers_and_ends_its_chain():
    out = []
    agent = agent_of(call("a", call_id="x"), "done", out=out, a=ValueError("broken"))
    agent.add_hook("onToolCallError", lambda ctx: ToolResult("mended"))
    agent.add_hook("onToolCallResult", lambda ctx: out.append("first of results"), priority=9)
    response = await agent.chat("go")
    assert out == ["around a", "run a", "first of results", "result a mended"]
    assert results(response) == [("x", "ok", "mended")]


async def test_a_converted_error_may_be_changed_by_the_error_chain():
    agent = agent_of(call("a"), "done", out=[], a="secret")
    agent.add_hook("onToolCallResult", lambda ctx: ToolFailure("no"))
    agent.add_hook("onToolCallError", lambda ctx: ctx.error.replace(message="no, changed"))
    response = await agent.chat("go")
    assert json.loads(results(response)[0][2])["error"]["message"] == "no, changed"


async def test_a_recovered_result_may_be_changed_by_the_result_chain():
    agent = agent_of(call("a"), "done", out=[], a=ValueError("broken"))
    agent.add_hook("onToolCallError", lambda ctx: ToolResult("mended"))
    agent.add_hook("onToolCallResult", lambda ctx: ToolResult(ctx.result.value.upper()))
    response = await agent.chat("go")
    assert results(response)[0][2] == "MENDED"


def convert_back_from_result(agent, **options):
    agent.add_hook("onToolCallError", lambda ctx: ToolResult("mended"))
    agent.add_hook("onToolCallResult", lambda ctx: ToolFailure("worse"), name="back", **options)


def convert_back_from_error(agent, **options):
    agent.add_hook("onToolCallResult", lambda ctx: ToolFailure("worse"))
    agent.add_hook("onToolCallError", lambda ctx: ToolResult("mended"), name="back", **options)


back = pytest.mark.parametrize(
    ("value", "convert", "point", "kind"),
    [
        pytest.param(
            ValueError("x"),
            convert_back_from_result,
            "onToolCallResult",
            "ToolFailure",
            id="error, result, error",
        ),
        pytest.param(
            "fine",
            convert_back_from_error,
            "onToolCallError",
            "ToolResult",
            id="result, error, result",
        ),
    ],
)


@back
async def test_converting_back_is_a_HookReturnError(value, convert, point, kind):
    agent = agent_of(call("a"), out=[], a=value)
    convert(agent)
    with pytest.raises(HookReturnError):
        await agent.chat("go")


@back
async def test_converting_back_names_hook_point_and_type(value, convert, point, kind):
    agent = agent_of(call("a"), out=[], a=value)
    convert(agent)
    with pytest.raises(HookReturnError, match=f"'back' at {point} returned a value of type {kind}"):
        await agent.chat("go")


@back
async def test_converting_back_follows_on_error(value, convert, point, kind):
    """`log`: the value stays the last good one."""
    agent = agent_of(call("a"), "done", out=[], a=value)
    convert(agent, on_error="log")
    response = await agent.chat("go")
    expected = "mended" if kind == "ToolFailure" else "worse"
    assert expected in results(response)[0][2]


@back
async def test_history_stays_valid_when_converting_back_ends_the_chat(value, convert, point, kind):
    conversation = Conversation()
    agent = agent_of([call("a"), call("b")], "next", out=[], a=value, b="B")
    disposers = []
    add_hook = agent.add_hook

    class Adding:
        def add_hook(self, *args, **kwargs):
            disposers.append(add_hook(*args, **kwargs))

    convert(Adding())
    with pytest.raises(HookReturnError):
        await agent.chat("go", conversation=conversation)
    for dispose in disposers:
        dispose()
    await goes_on(agent, conversation)


@pytest.mark.parametrize(
    ("value", "outcome"),
    [
        pytest.param("fine", "error", id="result to error"),
        pytest.param(ValueError("x"), "ok", id="error to result"),
    ],
)
async def test_a_converted_calls_outcome_is_what_it_became(value, outcome):
    agent = agent_of(call("a", call_id="x"), "done", out=[], a=value)
    agent.add_hook(
        "onToolCallResult", lambda ctx: ToolFailure("worse") if value == "fine" else None
    )
    agent.add_hook("onToolCallError", lambda ctx: None if value == "fine" else ToolResult("ok"))
    events = await collect(agent.chat_stream("go"))
    assert outcomes(events) == {"x": outcome}


async def test_onToolCallResult_always_drains():
    agent = agent_of(call("a"), "done", out=[], a="x")
    for _ in range(3):
        agent.add_hook("onToolCallResult", lambda ctx: ToolResult(ctx.result.value + "y"))
    response = await agent.chat("go")
    assert results(response)[0][2] == "xyyy"


async def test_onToolCallError_always_drains():
    agent = agent_of(call("a"), "done", out=[], a=ValueError("x"))
    for _ in range(3):
        agent.add_hook(
            "onToolCallError", lambda ctx: ctx.error.replace(message=ctx.error.message + "y")
        )
    response = await agent.chat("go")
    assert json.loads(results(response)[0][2])["error"]["message"] == "xyyy"


async def test_a_value_that_onToolCallResult_puts_in_place_becomes_json_data():
    agent = agent_of(call("a"), "done", out=[], a="x")
    agent.add_hook("onToolCallResult", lambda ctx: ToolResult(Point(7)))
    events = await collect(agent.chat_stream("go"))
    (finished,) = only(events, ToolCallFinished)
    assert finished.result.value == {"x": 7}


async def test_a_value_that_onToolCallResult_puts_in_place_and_is_no_json_is_a_tool_error():
    agent = agent_of(call("a"), "done", out=[], a="x")
    agent.add_hook("onToolCallResult", lambda ctx: ToolResult(object()))
    response = await agent.chat("go")
    assert [outcome for _, outcome, _ in results(response)] == ["error"]
    assert response.text == "done"


async def test_a_recovered_value_becomes_json_data():
    out = []
    agent = agent_of(call("a"), "done", out=out, a=ValueError("x"))
    agent.add_hook("onToolCallError", lambda ctx: ToolResult(Point(7)))
    response = await agent.chat("go")
    assert out[-1] == "result a {'x': 7}"
    assert results(response)[0][2] == '{"x":7}'


async def test_a_recovered_value_that_is_no_json_is_a_tool_error():
    agent = agent_of(call("a"), "done", out=[], a=ValueError("x"))
    agent.add_hook("onToolCallError", lambda ctx: ToolResult(object()))
    response = await agent.chat("go")
    assert [outcome for _, outcome, _ in results(response)] == ["error"]


# ── Stop from onToolCallError ───────────────────────────────────────────────────────────────


async def test_Stop_from_onToolCallError_keeps_the_error_and_lets_the_siblings_finish():
    """The chat stops after the step."""
    out = []
    agent = agent_of(
        [call("bad", call_id="x"), call("good", call_id="y")],
        out=out,
        bad=ValueError("broken"),
        good="fine",
    )
    agent.add_hook("onToolCallError", lambda ctx: Stop("that will do"))
    response = await agent.chat("go")
    assert [(id, outcome) for id, outcome, _ in results(response)] == [("x", "error"), ("y", "ok")]
    assert "broken" in results(response)[0][2]
    assert response.stop_reason == "that will do"


async def test_Stop_from_onToolCallError_does_not_end_its_chain():
    out = []
    agent = agent_of(call("bad"), out=out, bad=ValueError("broken"))
    agent.add_hook("onToolCallError", lambda ctx: Stop("that will do"))
    await agent.chat("go")
    assert out == ["around bad", "run bad", "error bad broken"]


async def test_of_several_Stops_from_onToolCallError_the_first_in_hook_order_counts():
    agent = agent_of(call("bad"), out=[], bad=ValueError("broken"))
    agent.add_hook("onToolCallError", lambda ctx: Stop("second"), priority=1)
    agent.add_hook("onToolCallError", lambda ctx: Stop("first"), priority=2)
    assert (await agent.chat("go")).stop_reason == "first"


async def test_a_Stop_stands_although_a_later_hook_recovers_the_error():
    agent = agent_of(call("bad", call_id="x"), out=[], bad=ValueError("broken"))
    agent.add_hook("onToolCallError", lambda ctx: Stop("enough"), priority=2)
    agent.add_hook("onToolCallError", lambda ctx: ToolResult("mended"), priority=1)
    response = await agent.chat("go")
    assert results(response) == [("x", "ok", "mended")]
    assert response.stop_reason == "enough"


async def test_a_Stop_from_onToolCallError_after_a_conversion_counts():
    agent = agent_of(call("a"), out=[], a="fine")
    agent.add_hook("onToolCallResult", lambda ctx: ToolFailure("worse"))
    agent.add_hook("onToolCallError", lambda ctx: Stop("enough"))
    assert (await agent.chat("go")).stop_reason == "enough"


async def test_after_a_Stop_from_onToolCallError_later_calls_of_the_step_still_run():
    out = []
    agent = agent_of(
        [call("bad"), call("good")],
        out=out,
        parallel_tools=False,
        bad=ValueError("broken"),
        good="fine",
    )
    agent.add_hook("onToolCallError", lambda ctx: Stop("enough"))
    await agent.chat("go")
    assert out[-3:] == ["around good", "run good", "result good fine"]


# ── a throw in a result hook ────────────────────────────────────────────────────────────────


def breaking(agent, point="onToolCallResult", **options):
    error = ZeroDivisionError("in the redactor")

    def broken(ctx):
        raise error

    return error, agent.add_hook(point, broken, **options)


async def test_a_throw_in_onToolCallResult_ends_the_chat_with_the_same_exception():
    agent = agent_of(call("a"), out=[], a="secret")
    error, _ = breaking(agent)
    with pytest.raises(ZeroDivisionError) as caught:
        await agent.chat("go")
    assert caught.value is error
    assert any("onToolCallResult" in note for note in error.__notes__)


async def test_after_a_throw_in_onToolCallResult_history_keeps_that_the_call_ran_not_its_value():
    """'ran; result withheld', for the hook may have been the redactor."""
    conversation = Conversation()
    agent = agent_of(call("a", call_id="x"), "next", out=[], a="secret")
    _, dispose = breaking(agent)
    with pytest.raises(ZeroDivisionError):
        await agent.chat("go", conversation=conversation)
    ((id, _, text),) = results(conversation)
    assert id == "x"
    assert "ran" in text
    assert "withheld" in text
    assert "secret" not in text
    dispose()
    await goes_on(agent, conversation)


async def test_after_a_throw_in_onToolCallResult_no_event_holds_the_value():
    agent = agent_of(call("a", call_id="x"), out=[], a="secret")
    breaking(agent)
    events = []
    with pytest.raises(ZeroDivisionError):
        await collect(agent.chat_stream("go"), events)
    assert outcomes(events).keys() == {"x"}
    assert not any(b"secret" in event.to_json() for event in events)


async def test_after_a_throw_in_onToolCallResult_the_tool_is_not_run_again():
    out = []
    conversation = Conversation()
    agent = agent_of(call("a"), "next", out=out, a="secret")
    _, dispose = breaking(agent)
    with pytest.raises(ZeroDivisionError):
        await agent.chat("go", conversation=conversation)
    dispose()
    await goes_on(agent, conversation)
    assert out.count("run a") == 1


async def test_a_throw_in_onToolCallResult_never_reaches_onToolCallError():
    out = []
    agent = agent_of(call("a"), out=out, a="secret")
    breaking(agent)
    with pytest.raises(ZeroDivisionError):
        await agent.chat("go")
    assert out == ["around a", "run a"]


async def test_a_throw_in_onToolCallResult_keeps_the_results_that_siblings_have():
    conversation = Conversation()
    agent = agent_of(
        [call("a", call_id="x"), call("b", call_id="y")],
        "next",
        out=[],
        parallel_tools=False,
        a="A",
        b="B",
    )
    _, dispose = breaking(agent, tools=["b"])
    with pytest.raises(ZeroDivisionError):
        await agent.chat("go", conversation=conversation)
    assert results(conversation)[0] == ("x", "ok", "A")
    assert "withheld" in results(conversation)[1][2]
    dispose()
    await goes_on(agent, conversation)


async def test_a_throw_in_onToolCallResult_with_on_error_log_leaves_the_last_good_value():
    agent = agent_of(call("a"), "done", out=[], a="x")
    agent.add_hook("onToolCallResult", lambda ctx: ToolResult("good"), priority=3)
    breaking(agent, on_error="log", priority=2)
    response = await agent.chat("go")
    assert results(response)[0][2] == "good"


@pytest.mark.parametrize("how", ["denied", "answered", "unknown", "off", "bad arguments"])
async def test_of_a_call_that_did_not_run_history_does_not_say_that_it_ran(how):
    """What a hook that failed was given is withheld; whether the call ran is told as it was."""
    conversation, out = Conversation(), []
    turn = {"unknown": call("nobody"), "bad arguments": call("a", {"surplus": 1})}
    agent = agent_of(turn.get(how, call("a")), "next", out=out, a="fine")
    if how == "denied":
        agent.add_hook("preToolCall", lambda ctx: ToolFailure("no"))
    elif how == "answered":
        agent.add_hook("preToolCall", lambda ctx: ToolResult("instead"))
    elif how == "off":
        agent.add_hook("preRequest", lambda ctx: ctx.request.replace(tools=()))
    breaking(agent, "onToolCallResult" if how == "answered" else "onToolCallError")
    with pytest.raises(ZeroDivisionError):
        await agent.chat("go", conversation=conversation)
    assert "run a" not in out
    text = results(conversation)[0][2]
    assert "withheld" in text
    assert "the call ran" not in text


async def test_a_throw_in_onToolCallError_ends_the_chat_and_leaves_history_valid():
    conversation = Conversation()
    agent = agent_of(
        [call("bad"), call("good")], "next", out=[], bad=ValueError("broken"), good="fine"
    )
    error, dispose = breaking(agent, "onToolCallError")
    with pytest.raises(ZeroDivisionError) as caught:
        await agent.chat("go", conversation=conversation)
    assert caught.value is error
    dispose()
    await goes_on(agent, conversation)


async def test_a_throw_in_the_second_chain_of_a_conversion_withholds_the_value_too():
    conversation = Conversation()
    agent = agent_of(call("a"), out=[], a="secret")
    agent.add_hook("onToolCallResult", lambda ctx: ToolFailure(f"bad value {ctx.result.value}"))
    breaking(agent, "onToolCallError")
    with pytest.raises(ZeroDivisionError):
        await agent.chat("go", conversation=conversation)
    assert "secret" not in results(conversation)[0][2]
