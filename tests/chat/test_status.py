"""`run.status`: what hooks and tools report while they work."""

import asyncio
from dataclasses import dataclass

import anyio.from_thread
import pytest
from tests._tool_chats import Clock, assert_json, goes_on, only, outcomes, results, settle

from hookline import Agent, Conversation, Run, ToolResult, tool
from hookline.errors import HooklineError
from hookline.events import (
    ChatDone,
    ChatFailed,
    Status,
    StepStarted,
    ToolCallFinished,
    ToolCallStarted,
)
from hookline.points import TABLE
from hookline.testing import ScriptedModel, call, collect


@tool
async def work(run: Run) -> str:
    await run.status("working", {"percent": 50})
    return "worked"


def working(*turns):
    return Agent(ScriptedModel(*(turns or (call("work", call_id="a"), "done"))), tools=[work])


# ── where it goes ───────────────────────────────────────────────────────────────────────────


async def test_the_status_of_a_tool_reaches_onStatus():
    seen = []
    agent = working()
    agent.add_hook("onStatus", lambda ctx: seen.append((ctx.type, ctx.data)))
    await agent.chat("go")
    assert seen == [("working", {"percent": 50})]


async def test_onStatus_sees_the_call_of_a_tools_status_as_hooks_left_it():
    seen = []
    agent = working()
    agent.add_hook("onStatus", lambda ctx: seen.append(ctx.call))
    agent.add_hook("onChatStart", lambda ctx: ctx.run.status("begun"))
    await agent.chat("go")
    assert [None if each is None else each.id for each in seen] == [None, "a"]


async def test_the_status_of_a_tool_reaches_the_stream_between_its_start_and_its_end():
    events = await collect(working().chat_stream("go"))
    kinds = [type(event) for event in only(events, ToolCallStarted, Status, ToolCallFinished)]
    assert kinds == [ToolCallStarted, Status, ToolCallFinished]
    (status,) = only(events, Status)
    assert (status.type, status.data, status.call_id) == ("working", {"percent": 50}, "a")
    assert_json(events)


async def test_a_sync_tool_reports_from_its_thread():
    """`tools report progress the same way`: a sync one through the loop that waits for it."""
    seen = []

    @tool
    def slow(run: Run) -> str:
        anyio.from_thread.run(run.status, "working", {"percent": 50})
        seen.append("worked")
        return "worked"

    agent = Agent(ScriptedModel(call("slow", call_id="a"), "done"), tools=[slow])
    agent.add_hook("onStatus", lambda ctx: seen.append((ctx.type, ctx.data, ctx.call.id)))
    events = await collect(agent.chat_stream("go"))
    assert seen == [("working", {"percent": 50}, "a"), "worked"]
    assert [(each.type, each.call_id) for each in only(events, Status)] == [("working", "a")]


async def test_a_status_reaches_subscribers():
    agent = working()
    statuses = agent.subscribe(Status)
    await agent.chat("go")
    assert (await anext(statuses)).type == "working"
    statuses.close()


async def test_a_status_is_shown_at_once_not_when_the_tool_ends():
    shown = asyncio.Event()

    @tool
    async def patient(run: Run) -> str:
        await run.status("waiting")
        await shown.wait()
        return "seen"

    agent = Agent(ScriptedModel(call("patient"), "done"), tools=[patient])
    async with agent.chat_stream("go") as stream:
        async for event in stream:
            if isinstance(event, Status):
                shown.set()
    assert stream.response.text == "done"


OBSERVERS_AND_INTERCEPTORS = [
    "onChatStart",
    "preChat",
    "preRequest",
    "onDelta",
    "onResponse",
    "preMessage",
    "onMessage",
    "preToolCall",
    "onToolCallResult",
    "onStep",
    "preStop",
    "onChatDone",
    "onChatEnd",
]


@pytest.mark.parametrize("point", OBSERVERS_AND_INTERCEPTORS)
async def test_a_status_may_come_from_any_hook_of_a_chat(point):
    agent = working()
    sent, seen = [], []

    async def report(ctx):
        sent.append(point)
        await ctx.run.status("from hook", point)

    agent.add_hook(point, report)
    agent.add_hook("onStatus", lambda ctx: seen.append(ctx.data))
    events = await collect(agent.chat_stream("go"))
    shown = [event.data for event in only(events, Status) if event.type == "from hook"]
    assert sent
    assert shown == sent
    assert [data for data in seen if data == point] == sent
    assert isinstance(events[-1], ChatDone)


@pytest.mark.parametrize("point", ["aroundChat", "aroundRequest", "aroundToolCall"])
async def test_a_status_may_come_from_a_wrapper(point):
    assert TABLE[point].kind == "wrapper"
    agent = working()

    async def report(ctx, proceed):
        await ctx.run.status("before")
        result = await proceed()
        await ctx.run.status("after")
        return result

    agent.add_hook(point, report)
    events = await collect(agent.chat_stream("go"))
    types = [event.type for event in only(events, Status) if event.type != "working"]
    assert types[:2] == ["before", "after"]


async def test_a_status_from_onToolCallError_is_shown():
    agent = Agent(ScriptedModel(call("nope"), "done"))
    agent.add_hook("onToolCallError", lambda ctx: ctx.run.status("failed", ctx.error.type))
    (status,) = only(await collect(agent.chat_stream("go")), Status)
    assert (status.type, status.data) == ("failed", "UnknownToolError")


async def test_a_status_of_a_tool_point_names_its_call():
    agent = working()
    agent.add_hook("preToolCall", lambda ctx: ctx.run.status("checking"))
    first, _ = only(await collect(agent.chat_stream("go")), Status)
    assert (first.type, first.call_id) == ("checking", "a")


async def test_a_status_outside_a_tool_call_names_none():
    agent = working()
    agent.add_hook("onStep", lambda ctx: ctx.run.status("stepped"))
    stepped = [e for e in only(await collect(agent.chat_stream("go")), Status) if not e.call_id]
    assert [event.type for event in stepped] == ["stepped", "stepped"]


async def test_a_status_says_in_which_step_it_was_sent():
    agent = working(call("work"), call("work"), "done")
    events = await collect(agent.chat_stream("go"))
    assert [event.iteration for event in only(events, Status)] == [0, 1]
    assert len(only(events, StepStarted)) == 3


async def test_statuses_keep_their_order_and_are_numbered_with_the_other_events():
    @tool
    async def count(run: Run) -> None:
        for n in range(30):
            await run.status("at", n)

    agent = Agent(ScriptedModel([call("count", call_id="a")], "done"), tools=[count])
    events = await collect(agent.chat_stream("go"))
    assert [event.data for event in only(events, Status)] == list(range(30))
    assert [event.seq for event in events] == list(range(1, len(events) + 1))


async def test_a_status_without_data_has_none():
    agent = working()
    agent.add_hook("onChatStart", lambda ctx: ctx.run.status("thinking"))
    first, _ = only(await collect(agent.chat_stream("go")), Status)
    assert (first.type, first.data) == ("thinking", None)


# ── what it carries ─────────────────────────────────────────────────────────────────────────


@dataclass
class Progress:
    done: int
    of: int


async def test_the_data_of_a_status_becomes_json_data():
    seen = []
    agent = working()
    agent.add_hook("onChatStart", lambda ctx: ctx.run.status("at", Progress(1, 2)))
    agent.add_hook("onStatus", lambda ctx: seen.append(ctx.data))
    events = await collect(agent.chat_stream("go"))
    assert seen[0] == {"done": 1, "of": 2}
    assert_json(events)


async def test_the_data_of_a_status_is_as_it_was_when_it_was_sent():
    @tool
    async def work(run: Run) -> None:
        data = {"n": 1}
        await run.status("at", data)
        data["n"] = 2

    agent = Agent(ScriptedModel(call("work"), "done"), tools=[work])
    (status,) = only(await collect(agent.chat_stream("go")), Status)
    assert status.data == {"n": 1}


async def test_data_that_is_no_json_is_a_tool_error_in_a_tool():
    @tool
    async def work(run: Run) -> None:
        await run.status("at", object())

    agent = Agent(ScriptedModel(call("work"), "done"), tools=[work])
    events = await collect(agent.chat_stream("go"))
    assert list(outcomes(events).values()) == ["error"]
    assert only(events, Status) == []


async def test_data_that_is_no_json_is_an_error_of_hooklines_tree_in_a_hook():
    agent = working()
    agent.add_hook("onChatStart", lambda ctx: ctx.run.status("at", object()))
    with pytest.raises(HooklineError):
        await agent.chat("go")


# ── a throw in onStatus ─────────────────────────────────────────────────────────────────────


def breaking(agent):
    error = ZeroDivisionError("in onStatus")

    def broken(ctx):
        raise error

    return error, agent.add_hook("onStatus", broken)


async def test_a_throw_in_onStatus_ends_the_chat_with_the_same_exception():
    agent = working()
    error, _ = breaking(agent)
    with pytest.raises(ZeroDivisionError) as caught:
        await agent.chat("go")
    assert caught.value is error
    assert any("onStatus" in note for note in error.__notes__)


async def test_a_throw_in_onStatus_fires_onChatError_once():
    seen = []
    agent = working()
    error, _ = breaking(agent)
    agent.add_hook("onChatError", lambda ctx: seen.append(ctx.error))
    agent.add_hook("onChatDone", lambda ctx: seen.append("done"))
    agent.add_hook("onChatAbort", lambda ctx: seen.append("abort"))
    events = []
    with pytest.raises(ZeroDivisionError):
        await collect(agent.chat_stream("go"), events)
    assert seen == [error]
    assert isinstance(events[-1], ChatFailed)


def catching(out):
    @tool(name="work")
    async def stubborn(run: Run) -> str:
        try:
            await run.status("at")
        except BaseException as exc:
            out.append(type(exc).__name__)
        try:
            await asyncio.sleep(0)
        except BaseException as exc:
            out.append(type(exc).__name__)
            raise
        out.append("went on")
        return "caught"

    return stubborn


@pytest.mark.parametrize(
    "turn", [call("work"), [call("work"), call("other")]], ids=["a lone call", "parallel calls"]
)
async def test_a_tool_cannot_catch_a_throw_in_onStatus_and_is_cancelled(turn):
    out = []

    @tool
    async def other() -> None:
        await asyncio.Event().wait()

    conversation = Conversation()
    agent = Agent(ScriptedModel(turn, "next"), tools=[catching(out), other])
    error, dispose = breaking(agent)
    with pytest.raises(ZeroDivisionError) as caught:
        await agent.chat("go", conversation=conversation)
    assert caught.value is error
    assert out == ["CancelledError", "CancelledError"]
    dispose()
    await goes_on(agent, conversation)


async def test_after_a_throw_in_onStatus_observers_have_the_time_they_need(caplog):
    """The grace period is for what was cancelled, and that has ended."""
    clock, out = Clock(), []
    agent = working([call("work"), call("work")])

    def broken(ctx):
        raise ValueError("broken")

    async def slow(ctx):
        await clock.advance(6)
        out.append("told")

    agent.add_hook("onStatus", broken)
    agent.add_hook("onChatError", slow)
    with pytest.raises(ValueError, match="broken"):
        await agent.chat("go")
    assert out == ["told"]
    assert "left behind" not in caplog.text


async def test_a_wrapper_cannot_catch_a_throw_in_onStatus():
    agent = working()
    error, _ = breaking(agent)

    @agent.hook("aroundToolCall")
    async def catch(ctx, proceed):
        try:
            return await proceed()
        except BaseException:
            return ToolResult("all is well")

    with pytest.raises(ZeroDivisionError) as caught:
        await agent.chat("go")
    assert caught.value is error


async def test_a_throw_in_onStatus_with_on_error_log_changes_nothing():
    agent = working()

    def broken(ctx):
        raise ZeroDivisionError

    agent.add_hook("onStatus", broken, on_error="log")
    response = await agent.chat("go")
    assert results(response) == [("a", "ok", "worked")]


async def test_a_throw_in_onStatus_while_done_observers_run_hides_nothing():
    """The outcome stands: the chat is done."""
    seen = []
    agent = working("done")
    agent.add_hook("onChatDone", lambda ctx: ctx.run.status("late"))
    agent.add_hook("onChatError", lambda ctx: seen.append("error"))
    agent.add_hook("onChatEnd", lambda ctx: seen.append(ctx.outcome))
    error, _ = breaking(agent)
    events = []
    with pytest.raises(ZeroDivisionError) as caught:
        await collect(agent.chat_stream("go"), events)
    assert caught.value is error
    assert seen == ["done"]
    assert isinstance(events[-1], ChatDone)


# ── out of time ─────────────────────────────────────────────────────────────────────────────


async def test_a_status_after_the_chats_end_is_never_published():
    later = asyncio.Event()
    tasks, seen = [], []

    @tool
    async def work(run: Run) -> None:
        async def report():
            await later.wait()
            await run.status("too late")

        tasks.append(asyncio.ensure_future(report()))

    agent = Agent(ScriptedModel(call("work"), "done"), tools=[work])
    agent.add_hook("onStatus", lambda ctx: seen.append(ctx.type))
    statuses = agent.subscribe(Status)
    await agent.chat("go")
    later.set()
    await settle()
    assert tasks[0].done()
    assert tasks[0].cancelled() or tasks[0].exception() is not None
    assert seen == []
    statuses.close()
    assert [event async for event in statuses] == []


async def test_the_observers_of_an_error_in_onStatus_may_wait():
    told = []
    agent = working()

    async def tell(ctx):
        await asyncio.sleep(0)
        told.append(type(ctx.error).__name__)

    agent.add_hook("onStatus", lambda ctx: 1 / 0)
    agent.add_hook("onChatError", tell)
    with pytest.raises(ZeroDivisionError):
        await agent.chat("go")
    assert told == ["ZeroDivisionError"]
