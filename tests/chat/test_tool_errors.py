"""Calls that fail: the model is told, the chat goes on, nothing is repaired in silence."""

import asyncio
import json
import logging
import math
import threading
from typing import Any

import pytest
from tests._tool_chats import Clock, goes_on, only, outcomes, results, settle, written

from hookline import Agent, Conversation, Deny, Limits, Run, Scope, ToolFailure, ToolResult, tool
from hookline.errors import (
    DisabledToolError,
    StopChat,
    ToolArgumentsError,
    ToolDefinitionError,
    ToolDenied,
    ToolTimeoutError,
    UnknownToolError,
)
from hookline.events import StepStarted, ToolCallFinished, ToolCallStarted
from hookline.testing import ScriptedModel, call, collect, raw_call


async def told(agent, text="go", outcome="error"):
    """What the model is told of the one call of the chat, which went on."""
    response = await agent.chat(text)
    assert response.text == "done"
    ((_, found, text),) = results(response)
    assert found == outcome
    return json.loads(text)["error"]


def refuses(error):
    def hook(ctx):
        raise error

    return hook


def seen_errors(agent):
    seen = []
    agent.add_hook("onToolCallError", lambda ctx: seen.append(ctx.error))
    return seen


@tool
async def greet(name: str, times: int = 1) -> str:
    return f"hello {name}" * times


# ── a tool that cannot be made ──────────────────────────────────────────────────────────────


@pytest.mark.parametrize("name", ["", "two words", "ümlaut", "dotted.name", "x" * 65], ids=repr)
def test_a_bad_name_is_an_error_where_the_tool_is_made(name):
    with pytest.raises(ToolDefinitionError, match="name"):
        tool(name=name)(lambda: None)


def test_a_bad_schema_is_an_error_where_the_tool_is_made():
    async def act(what: object, **more: int) -> None: ...

    with pytest.raises(ToolDefinitionError, match="act"):
        tool(act)


@pytest.mark.parametrize("timeout", [0, -1, math.nan], ids=repr)
def test_a_bad_timeout_is_an_error_where_the_tool_is_made(timeout):
    with pytest.raises(ToolDefinitionError, match="timeout"):
        tool(name="act", timeout=timeout)(lambda: None)


def test_a_tool_that_is_not_callable_is_an_error_where_the_agent_is_made():
    with pytest.raises(ToolDefinitionError):
        Agent(ScriptedModel(), tools=["act"])


# ── no such tool, or not now ────────────────────────────────────────────────────────────────


async def test_an_unknown_tool_is_an_UnknownToolError_that_names_what_is_offered():
    agent = Agent(ScriptedModel(call("great"), "done"), tools=[greet])
    seen = seen_errors(agent)
    error = await told(agent)
    assert error["type"] == "UnknownToolError"
    assert "'great'" in error["message"]
    assert "greet" in error["message"]
    assert isinstance(seen[0].exception, UnknownToolError)


async def test_a_disabled_tool_is_a_DisabledToolError_and_never_runs():
    out = []

    @tool(enabled=lambda: False)
    async def off() -> None:
        out.append("run")

    agent = Agent(ScriptedModel(call("off"), "done"), tools=[off])
    seen = seen_errors(agent)
    assert (await told(agent))["type"] == "DisabledToolError"
    assert isinstance(seen[0].exception, DisabledToolError)
    assert out == []


async def test_a_tool_that_this_steps_final_request_did_not_offer_never_runs():
    out = []

    @tool
    async def hidden() -> None:
        out.append("run")

    model = ScriptedModel(call("hidden"), "done")
    agent = Agent(model, tools=[hidden, greet])
    agent.add_hook("preRequest", lambda ctx: ctx.request.replace(tools=(greet,)))
    assert (await told(agent))["type"] == "DisabledToolError"
    assert out == []


async def test_a_tool_that_preChat_took_away_never_runs():
    out = []

    @tool
    async def hidden() -> None:
        out.append("run")

    agent = Agent(ScriptedModel(call("hidden"), "done"), tools=[hidden, greet])
    agent.add_hook("preChat", lambda ctx: ctx.request.replace(tools=(greet,)))
    assert (await told(agent))["type"] == "DisabledToolError"
    assert out == []


async def test_a_tool_that_was_offered_in_an_earlier_step_alone_never_runs_in_a_later_one():
    out = []

    @tool
    async def once() -> None:
        out.append("run")

    agent = Agent(ScriptedModel(call("once"), call("once"), "done"), tools=[once])
    agent.add_hook(
        "preRequest", lambda ctx: ctx.request.replace(tools=()) if ctx.iteration == 1 else None
    )
    response = await agent.chat("go")
    assert [outcome for _, outcome, _ in results(response)] == ["ok", "error"]
    assert out == ["run"]


async def test_a_tool_that_is_switched_off_between_request_and_call_never_runs():
    out, on = [], [True]

    @tool(enabled=lambda: on[0])
    async def fickle() -> None:
        out.append("run")

    agent = Agent(ScriptedModel(call("fickle"), "done"), tools=[fickle])
    agent.add_hook("onResponse", lambda ctx: on.clear() or on.append(False))
    assert (await told(agent))["type"] == "DisabledToolError"
    assert out == []


async def test_a_tool_that_preToolCall_switches_off_never_runs():
    out, on = [], [True]

    @tool(enabled=lambda: on[0])
    async def fickle() -> None:
        out.append("run")

    agent = Agent(ScriptedModel(call("fickle"), "done"), tools=[fickle])
    agent.add_hook("preToolCall", lambda ctx: on.clear() or on.append(False))
    assert (await told(agent))["type"] == "DisabledToolError"
    assert out == []


async def test_a_tool_whose_scope_was_removed_between_request_and_call_never_runs():
    out = []

    @tool
    async def gone() -> None:
        out.append("run")

    agent = Agent(ScriptedModel(call("gone"), "done"), scopes=[Scope("brief", tools=[gone])])

    @agent.hook("onResponse")
    def remove(ctx):
        agent.scopes.unregister("brief")

    assert (await told(agent))["type"] in ("UnknownToolError", "DisabledToolError")
    assert out == []


async def test_a_tool_whose_scope_an_earlier_call_of_the_step_removed_never_runs():
    out = []

    @tool(parallel=False)
    async def remove() -> None:
        agent.scopes.unregister("brief")

    @tool(parallel=False)
    async def gone() -> None:
        out.append("run")

    agent = Agent(
        ScriptedModel([call("remove"), call("gone")], "done"),
        tools=[remove],
        scopes=[Scope("brief", tools=[gone])],
    )
    response = await agent.chat("go")
    assert [outcome for _, outcome, _ in results(response)] == ["ok", "error"]
    assert out == []


async def test_a_tool_that_was_registered_after_the_request_was_sent_never_runs():
    out = []

    @tool
    async def late() -> None:
        out.append("run")

    agent = Agent(ScriptedModel(call("late"), "done"))

    @agent.hook("onResponse")
    def register(ctx):
        if agent.scopes.get("late") is None:
            agent.scopes.register(Scope("late", tools=[late]))

    assert (await told(agent))["type"] in ("UnknownToolError", "DisabledToolError")
    assert out == []


async def test_another_tool_under_an_offered_name_never_runs():
    """The scope was replaced after the request; nor does the one that is gone."""
    out = []

    @tool(name="act")
    async def first() -> None:
        out.append("first")

    @tool(name="act")
    async def second() -> None:
        out.append("second")

    agent = Agent(ScriptedModel(call("act"), "done"), scopes=[Scope("s", tools=[first])])

    @agent.hook("onResponse")
    def swap(ctx):
        if ctx.iteration == 0:
            agent.scopes.unregister("s")
            agent.scopes.register(Scope("s", tools=[second]))

    await agent.chat("go")
    assert out == []


async def test_a_tool_whose_scope_an_earlier_call_of_the_step_replaced_never_runs():
    """Neither the one that was offered and is gone, nor the one that was not offered."""
    out = []

    @tool(parallel=False)
    async def swap() -> None:
        agent.scopes.unregister("s")
        agent.scopes.register(Scope("s", tools=[second]))

    @tool(name="act", parallel=False)
    async def first() -> None:
        out.append("first")

    @tool(name="act", parallel=False)
    async def second() -> None:
        out.append("second")

    agent = Agent(
        ScriptedModel([call("swap"), call("act")], "done"),
        tools=[swap],
        scopes=[Scope("s", tools=[first])],
    )
    response = await agent.chat("go")
    assert [outcome for _, outcome, _ in results(response)] == ["ok", "error"]
    assert out == []


# ── arguments ───────────────────────────────────────────────────────────────────────────────


async def test_bad_arguments_are_told_with_every_issue():
    agent = Agent(ScriptedModel(call("greet", tmies=2, times="many"), "done"), tools=[greet])
    seen = seen_errors(agent)
    message = (await told(agent))["message"]
    issues = seen[0].issues
    assert len(issues) == 3
    for name in ("name", "times", "tmies"):
        assert any(name in issue for issue in issues)
        assert name in message


async def test_bad_arguments_are_a_ToolArgumentsError_that_keeps_the_raw_text_aside():
    agent = Agent(ScriptedModel(raw_call("greet", '{"name": '), "done"), tools=[greet])
    seen = seen_errors(agent)
    assert (await told(agent))["type"] == "ToolArgumentsError"
    error = seen[0].exception
    assert isinstance(error, ToolArgumentsError)
    assert error.raw == '{"name": '


@pytest.mark.parametrize(
    "text",
    [
        pytest.param('{"name": "Ann"', id="no closing bracket"),
        pytest.param('{"name": "Ann",}', id="trailing comma"),
        pytest.param("{'name': 'Ann'}", id="single quotes"),
        pytest.param('```json\n{"name": "Ann"}\n```', id="a code fence"),
        pytest.param('{"name": "Ann"} {"name": "Bob"}', id="two objects"),
        pytest.param('"{\\"name\\": \\"Ann\\"}"', id="an object in a string"),
        pytest.param("name=Ann", id="no JSON at all"),
    ],
)
async def test_bad_arguments_are_never_silently_repaired(text):
    agent = Agent(ScriptedModel(raw_call("greet", text), "done"), tools=[greet])
    assert (await told(agent))["type"] == "ToolArgumentsError"


@pytest.mark.parametrize(
    "arguments",
    [
        pytest.param({"name": 7}, id="a number for a string"),
        pytest.param({"name": "Ann", "times": "2"}, id="a string for a number"),
        pytest.param({"name": None}, id="null for a string"),
    ],
)
async def test_values_of_another_type_are_never_silently_converted(arguments):
    agent = Agent(ScriptedModel(call("greet", arguments), "done"), tools=[greet])
    assert (await told(agent))["type"] == "ToolArgumentsError"


async def test_the_raw_text_of_bad_arguments_is_never_sent_back():
    """History and later requests show `{}` for it."""
    model = ScriptedModel(raw_call("greet", '{"name": "Zebedee', call_id="a"), "done")
    conversation = Conversation()
    await Agent(model, tools=[greet]).chat("go", conversation=conversation)
    assert written(conversation) == {"a": {}}
    assert not any(b"Zebedee" in message.to_json() for message in model.last_request.messages)


async def test_bad_arguments_are_validated_after_preToolCall():
    out = []
    agent = Agent(ScriptedModel(call("greet", nam="x"), "done"), tools=[greet])
    agent.add_hook("preToolCall", lambda ctx: out.append("pre"))
    agent.add_hook("onToolCallError", lambda ctx: out.append("error"))
    await told(agent)
    assert out == ["pre", "error"]


async def test_bad_arguments_that_a_hook_wrote_are_a_tool_error_too():
    agent = Agent(ScriptedModel(call("greet", name="x"), "done"), tools=[greet])
    agent.add_hook("preToolCall", lambda ctx: ctx.call.replace(arguments={"name": 1}))
    assert (await told(agent))["type"] == "ToolArgumentsError"


async def test_a_tool_with_bad_arguments_never_runs_and_skips_aroundToolCall():
    out = []

    @tool
    async def act(n: int) -> None:
        out.append("run")

    agent = Agent(ScriptedModel(call("act", n="x"), "done"), tools=[act])

    @agent.hook("aroundToolCall")
    async def around(ctx, proceed):
        out.append("around")
        return await proceed()

    await told(agent)
    assert out == []


# ── a tool that raises ──────────────────────────────────────────────────────────────────────


async def test_what_a_tool_raises_is_told_by_type_and_message():
    @tool
    async def fail() -> None:
        raise KeyError("lost")

    agent = Agent(ScriptedModel(call("fail"), "done"), tools=[fail])
    assert await told(agent) == {"type": "KeyError", "message": "'lost'"}


async def test_an_exception_without_a_text_is_told_by_its_name():
    @tool
    async def fail() -> None:
        raise RuntimeError

    agent = Agent(ScriptedModel(call("fail"), "done"), tools=[fail])
    assert await told(agent) == {"type": "RuntimeError", "message": "RuntimeError"}


async def test_hooks_see_the_exception_itself():
    error = ValueError("broken")

    @tool
    async def fail() -> None:
        raise error

    agent = Agent(ScriptedModel(call("fail"), "done"), tools=[fail])
    seen = seen_errors(agent)
    await told(agent)
    assert seen[0].exception is error


async def test_a_sync_tool_that_raises_is_a_tool_error():
    @tool
    def fail() -> None:
        raise ValueError("broken")

    agent = Agent(ScriptedModel(call("fail"), "done"), tools=[fail])
    assert await told(agent) == {"type": "ValueError", "message": "broken"}


async def test_a_sync_tool_runs_in_a_thread():
    threads = []

    @tool
    def work() -> None:
        threads.append(threading.current_thread())

    await Agent(ScriptedModel(call("work"), "done"), tools=[work]).chat("go")
    assert threads[0] is not threading.current_thread()


async def test_an_exception_group_of_a_tool_is_one_tool_error():
    @tool
    async def fail() -> None:
        raise ExceptionGroup("both", [ValueError("a"), KeyError("b")])

    agent = Agent(ScriptedModel(call("fail"), "done"), tools=[fail])
    assert (await told(agent))["type"] == "ExceptionGroup"


async def test_StopIteration_from_a_tool_is_a_tool_error():
    @tool
    def fail() -> None:
        raise StopIteration("over")

    agent = Agent(ScriptedModel(call("fail"), "done"), tools=[fail])
    await told(agent)


@tool
async def guarded() -> None:
    raise ToolDenied("not for you")


async def test_ToolDenied_in_a_tool_is_a_denial_that_the_model_is_told():
    agent = Agent(ScriptedModel(call("guarded"), "done"), tools=[guarded])
    error = await told(agent, outcome="denied")
    assert error == {"type": "Denied", "message": "denied while running: not for you"}


async def test_ToolDenied_in_a_tool_passes_onToolCallError():
    agent = Agent(ScriptedModel(call("guarded"), "done"), tools=[guarded])
    seen = seen_errors(agent)
    await told(agent, outcome="denied")
    assert [(error.type, error.message) for error in seen] == [
        ("Denied", "denied while running: not for you")
    ]
    assert isinstance(seen[0].exception, ToolDenied)


@pytest.mark.parametrize("on_error", ["raise", "log"])
@pytest.mark.parametrize(
    ("ran", "message"),
    [
        pytest.param(False, "not for you", id="before proceed"),
        pytest.param(True, "denied while running: not for you", id="after proceed"),
    ],
)
async def test_ToolDenied_in_aroundToolCall_is_a_denial(on_error: Any, ran: bool, message: str):
    @tool
    async def harmless() -> str:
        out.append("ran")
        return "ok"

    async def guard(ctx: Any, proceed: Any) -> Any:
        if ran:
            await proceed()
        raise ToolDenied("not for you")

    async def outside(ctx: Any, proceed: Any) -> Any:
        result = await proceed()
        out.append(result.type)
        return result

    out: list[str] = []
    agent = Agent(ScriptedModel(call("harmless"), "done"), tools=[harmless])
    agent.add_hook("aroundToolCall", outside)
    agent.add_hook("aroundToolCall", guard, on_error=on_error)
    error = await told(agent, outcome="denied")
    assert error == {"type": "Denied", "message": message}
    assert out == [*(["ran"] if ran else []), "Denied"]


@pytest.mark.parametrize(
    "refusal",
    [
        pytest.param(lambda ctx: Deny("not for you"), id="Deny"),
        pytest.param(lambda ctx: ToolFailure("not for you", type="Mine"), id="ToolFailure"),
        pytest.param(refuses(ToolDenied("not for you")), id="ToolDenied"),
    ],
)
@pytest.mark.parametrize("on_error", ["raise", "log", "deny"])
async def test_every_refusal_of_preToolCall_has_the_type_Denied(refusal: Any, on_error: Any):
    agent = Agent(ScriptedModel(call("guarded"), "done"), tools=[guarded])
    agent.add_hook("preToolCall", refusal, on_error=on_error)
    events: list[Any] = []
    async with agent.chat_stream("go") as stream:
        events += [event async for event in stream]
    (finished,) = [event for event in events if isinstance(event, ToolCallFinished)]
    assert (finished.outcome, finished.result.type) == ("denied", "Denied")
    ((_, outcome, text),) = results(stream.response)
    assert (outcome, json.loads(text)["error"]) == (
        "denied",
        {"type": "Denied", "message": "not for you"},
    )


async def test_a_call_that_was_recovered_without_its_handler_is_answered():
    agent = Agent(ScriptedModel(call("guarded"), "done"), tools=[guarded])
    agent.add_hook("preToolCall", lambda ctx: Deny("no"))
    agent.add_hook("onToolCallError", lambda ctx: ToolResult("instead"))
    response = await agent.chat("go")
    assert [(outcome, text) for _, outcome, text in results(response)] == [("answered", "instead")]


async def test_StopChat_in_a_tool_gives_the_reason_as_its_result_and_stops_after_the_step():
    out = []

    @tool
    async def enough() -> None:
        raise StopChat("all is said")

    model = ScriptedModel(["one moment", call("enough", call_id="a")])
    agent = Agent(model, tools=[enough])
    agent.add_hook("onToolCallResult", lambda ctx: out.append(ctx.result.value))
    agent.add_hook("onStep", lambda ctx: out.append("step"))
    agent.add_hook("onChatDone", lambda ctx: out.append("done"))
    response = await agent.chat("go")
    assert results(response) == [("a", "ok", "all is said")]
    assert response.stop_reason == "all is said"
    assert out == ["all is said", "step", "done"]
    model.done()


async def test_StopChat_in_a_sync_tool_stops_the_chat_too():
    @tool
    def enough() -> None:
        raise StopChat("all is said")

    response = await Agent(ScriptedModel(call("enough")), tools=[enough]).chat("go")
    assert response.stop_reason == "all is said"


async def test_a_tools_own_CancelledError_is_a_tool_error():
    """Nobody had cancelled it: the chat was not aborted."""

    @tool
    async def fail() -> None:
        raise asyncio.CancelledError("my own")

    agent = Agent(ScriptedModel(call("fail"), "done"), tools=[fail])
    assert await told(agent) == {"type": "CancelledError", "message": "my own"}


async def test_a_cancelled_subtask_of_a_tool_is_a_tool_error():
    @tool
    async def fail() -> None:
        task = asyncio.ensure_future(asyncio.Event().wait())
        asyncio.get_running_loop().call_soon(task.cancel)
        await task

    agent = Agent(ScriptedModel(call("fail"), "done"), tools=[fail])
    assert (await told(agent))["type"] == "CancelledError"


async def test_a_ToolError_that_a_tool_returns_is_its_error():
    @tool
    async def fail() -> ToolFailure:
        return ToolFailure("no such city", type="NotFound")

    agent = Agent(ScriptedModel(call("fail"), "done"), tools=[fail])
    assert await told(agent) == {"type": "NotFound", "message": "no such city"}


async def test_a_ToolError_made_of_an_exception_is_a_tool_error_too():
    @tool
    async def fail() -> ToolFailure:
        return ToolFailure(ValueError("not a text"))

    agent = Agent(ScriptedModel(call("fail"), "done"), tools=[fail])
    assert "not a text" in (await told(agent))["message"]


@pytest.mark.parametrize("message", [None, 5, {"a": 1}], ids=repr)
async def test_a_ToolError_made_of_anything_else_is_a_tool_error_by_its_type(message):
    @tool
    async def fail() -> ToolFailure:
        return ToolFailure(message)

    agent = Agent(ScriptedModel(call("fail"), "done"), tools=[fail])
    assert await told(agent) == {"type": "ToolFailure", "message": f"a {type(message).__name__}"}


async def test_a_tool_that_a_wrapper_took_out_of_the_request_never_runs():
    """The final request is the one that the model was sent."""
    ran = []

    @tool
    async def work() -> None:
        ran.append("work")

    model = ScriptedModel(call("work"), "done")
    agent = Agent(model, tools=[work])

    @agent.hook("aroundRequest")
    async def around(ctx, proceed):
        return await proceed(ctx.request.replace(tools=()))

    error = await told(agent)
    assert [request.tools for request in model.requests] == [(), ()]
    assert ran == []
    assert error["type"] == "DisabledToolError"


async def test_a_tool_whose_scope_its_wrapper_removes_never_runs():
    ran = []

    @tool
    async def work() -> None:
        ran.append("work")

    agent = Agent(ScriptedModel(call("work"), "done"))
    dispose = agent.scopes.register(Scope("web", tools=[work]))

    @agent.hook("aroundToolCall")
    async def around(ctx, proceed):
        dispose()
        return await proceed()

    assert (await told(agent))["type"] == "UnknownToolError"
    assert ran == []


async def test_a_tool_that_a_hook_put_into_the_request_runs_inside_its_wrappers():
    """It stands in no scope that could be gone; its wrappers may take their time."""
    ran = []

    @tool
    async def work(n: int = 0) -> None:
        ran.append(n)

    agent = Agent(ScriptedModel(call("work"), "done"))
    agent.add_hook("preRequest", lambda ctx: ctx.request.replace(tools=(work,)))

    @agent.hook("aroundToolCall")
    async def around(ctx, proceed):
        await asyncio.sleep(0)
        return await proceed(ctx.call.replace(arguments={"n": 7}))

    await agent.chat("go")
    assert ran == [7]


class Silent(Exception):
    def __str__(self):
        raise RuntimeError("no text")

    __repr__ = __str__


async def test_an_exception_whose_text_raises_is_a_tool_error_by_its_type():
    @tool
    async def fail() -> None:
        raise Silent

    agent = Agent(ScriptedModel(call("fail"), "done"), tools=[fail])
    assert (await told(agent))["type"] == "Silent"


# ── time ────────────────────────────────────────────────────────────────────────────────────


async def test_a_tool_that_runs_out_of_time_is_cancelled_and_a_ToolTimeoutError():
    clock, out = Clock(), []

    @tool(timeout=5)
    async def hang() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            out.append("cancelled")

    agent = Agent(ScriptedModel(call("hang"), "done"), tools=[hang])
    seen = seen_errors(agent)
    chat = asyncio.ensure_future(told(agent))
    await clock.advance(4)
    assert out == []
    await clock.advance(2)
    error = await chat
    assert error["type"] == "ToolTimeoutError"
    assert "'hang'" in error["message"]
    assert isinstance(seen[0].exception, ToolTimeoutError)
    assert out == ["cancelled"]


async def test_a_tool_that_runs_out_of_time_never_loses_its_siblings_results():
    clock = Clock()
    go = asyncio.Event()

    @tool(timeout=5)
    async def hang() -> None:
        await asyncio.Event().wait()

    @tool
    async def good() -> str:
        await go.wait()
        return "fine"

    agent = Agent(ScriptedModel([call("hang"), call("good")], "done"), tools=[hang, good])
    chat = asyncio.ensure_future(agent.chat("go"))
    await clock.advance(6)
    go.set()
    assert [outcome for _, outcome, _ in results(await chat)] == ["error", "ok"]


async def test_a_TimeoutError_of_the_tools_own_is_told_as_it_is():
    @tool(timeout=60)
    async def fail() -> None:
        raise TimeoutError("the server did not answer")

    agent = Agent(ScriptedModel(call("fail"), "done"), tools=[fail])
    assert await told(agent) == {"type": "TimeoutError", "message": "the server did not answer"}


async def test_a_sync_tool_that_runs_out_of_time_is_left_to_its_thread():
    clock, release = Clock(), threading.Event()

    @tool(timeout=5)
    def hang() -> None:
        release.wait(20)

    agent = Agent(ScriptedModel(call("hang"), "done"), tools=[hang])
    chat = asyncio.ensure_future(told(agent))
    try:
        await clock.advance(6)
        assert (await chat)["type"] == "ToolTimeoutError"
    finally:
        release.set()


# ── values ──────────────────────────────────────────────────────────────────────────────────


class Unshowable:
    def __repr__(self):
        raise RuntimeError("never ask")


def cycle() -> list[Any]:
    value: list[Any] = []
    value.append(value)
    return value


@pytest.mark.parametrize(
    "value",
    [
        pytest.param(object(), id="an object"),
        pytest.param(Unshowable(), id="an object whose repr raises"),
        pytest.param(math.nan, id="NaN"),
        pytest.param([math.inf], id="Infinity"),
        pytest.param(cycle(), id="a list in itself"),
        pytest.param(2**80, id="an integer beyond 64 bits"),
        pytest.param({(1, 2): 3}, id="a tuple as key"),
        pytest.param(lambda: None, id="a function"),
    ],
)
async def test_a_value_that_is_no_json_is_a_tool_error(value):
    out = []

    @tool
    async def give():
        return value

    agent = Agent(ScriptedModel(call("give"), "done"), tools=[give])
    agent.add_hook("onToolCallResult", lambda ctx: out.append("result"))
    agent.add_hook("onToolCallError", lambda ctx: out.append("error"))
    assert (await told(agent))["message"]
    assert out == ["error"]


async def test_an_awaitable_that_a_sync_tool_returns_is_awaited():
    async def later():
        return "later"

    @tool
    def give():
        return later()

    response = await Agent(ScriptedModel(call("give"), "done"), tools=[give]).chat("go")
    assert results(response)[0][2] == "later"


# ── the rest of the chat ────────────────────────────────────────────────────────────────────


async def test_after_any_tool_error_the_model_is_asked_again():
    agent = Agent(ScriptedModel(call("nope"), call("nope"), "done"), tools=[greet])
    events = await collect(agent.chat_stream("go"))
    assert [event.iteration for event in only(events, StepStarted)] == [0, 1, 2]
    assert set(outcomes(events).values()) == {"error"}


async def test_a_failed_call_has_its_ToolCallStarted_and_Finished_with_the_error():
    @tool
    async def fail() -> None:
        raise ValueError("broken")

    agent = Agent(ScriptedModel(call("fail", call_id="a"), "done"), tools=[fail])
    events = await collect(agent.chat_stream("go"))
    assert [event.call.id for event in only(events, ToolCallStarted)] == ["a"]
    (finished,) = only(events, ToolCallFinished)
    assert (finished.call_id, finished.name, finished.outcome) == ("a", "fail", "error")
    assert (finished.result.type, finished.result.message) == ("ValueError", "broken")


async def test_a_tool_that_ignores_its_cancellation_is_reported_by_name(caplog):
    """After the grace period; the chat has ended by then."""
    started, release = asyncio.Event(), asyncio.Event()

    @tool
    async def stubborn() -> str:
        started.set()
        while not release.is_set():
            try:
                await release.wait()
            except asyncio.CancelledError:
                continue
        return "late"

    conversation = Conversation()
    agent = Agent(
        ScriptedModel(call("stubborn", call_id="a"), "next"),
        tools=[stubborn],
        limits=Limits(grace=0.05),
    )
    chat = asyncio.ensure_future(agent.chat("go", conversation=conversation))
    await started.wait()
    chat.cancel()
    with caplog.at_level(logging.WARNING), pytest.raises(asyncio.CancelledError):
        await chat
    assert any("'stubborn'" in record.getMessage() for record in caplog.records)
    assert [(id, outcome) for id, outcome, _ in results(conversation)] == [("a", "aborted")]
    await goes_on(agent, conversation)
    release.set()
    await settle()
    assert [(id, outcome) for id, outcome, _ in results(conversation)] == [("a", "aborted")]


async def test_a_sync_tool_that_outlives_an_abort_is_reported_by_name(caplog):
    started, release = asyncio.Event(), threading.Event()
    loop = asyncio.get_running_loop()

    @tool
    def stubborn() -> None:
        loop.call_soon_threadsafe(started.set)
        release.wait(20)

    clock = Clock()
    agent = Agent(ScriptedModel(call("stubborn")), tools=[stubborn])
    chat = asyncio.ensure_future(agent.chat("go"))
    try:
        await started.wait()
        chat.cancel()
        with pytest.raises(asyncio.CancelledError):
            await chat
        with caplog.at_level(logging.WARNING):
            await clock.advance(6)
        assert any("'stubborn'" in record.getMessage() for record in caplog.records)
    finally:
        release.set()


async def test_a_tool_that_aborts_the_chat_gets_no_result_but_aborted():
    out = []

    @tool
    async def quit(run: Run) -> str:
        out.append(run.abort("tool said so"))
        await asyncio.sleep(0)
        out.append("never")
        return "never"

    conversation = Conversation()
    agent = Agent(ScriptedModel(call("quit", call_id="a"), "next"), tools=[quit])
    with pytest.raises(Exception, match="tool said so"):
        await agent.chat("go", conversation=conversation)
    assert out == [True]
    assert [(id, outcome) for id, outcome, _ in results(conversation)] == [("a", "aborted")]
    await goes_on(agent, conversation)
