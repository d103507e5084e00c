"""The bounds of a chat's tool calls: how many, how large, how long."""

import asyncio
import math
import sys
import threading
import traceback
from collections.abc import AsyncIterator
from contextlib import suppress
from typing import Any

import msgspec
import pytest
from tests._tool_chats import Clock, goes_on, only, outcomes, results, settle

from hookline import (
    Agent,
    Ask,
    Conversation,
    Deny,
    HookBus,
    Limits,
    Observer,
    Run,
    ToolFailure,
    ToolResult,
    tool,
)
from hookline._chat.channel import SIZE
from hookline._chat.config import DEFAULT_LIMITS
from hookline.errors import (
    HookTimeoutError,
    IdleTimeoutError,
    StopChat,
    ToolArgumentsError,
    ToolDenied,
    ToolLimitError,
    UsageError,
)
from hookline.events import ChatAborted, Status, TextDelta, ToolCallFinished
from hookline.models import Chunk, ModelRequest, TextChunk
from hookline.testing import ScriptedModel, Turn, call, collect, raw_call


def test_the_defaults_are_finite_and_those_that_are_promised():
    assert msgspec.structs.asdict(Limits().over(DEFAULT_LIMITS)) == {
        "steps": 20,
        "continuations": 3,
        "tool_calls": 64,
        "argument_bytes": 1_048_576,
        "output_bytes": 262_144,
        "answer_bytes": 8_388_608,
        "request_seconds": 600.0,
        "tool_timeout": 120.0,
        "grace": 5.0,
    }


def test_limits_change_only_the_fields_that_they_name():
    limits = Limits(steps=7, tool_timeout=None).over(Limits(steps=9, grace=1.0))
    assert (limits.steps, limits.tool_timeout, limits.grace) == (7, None, 1.0)
    assert limits == Limits(steps=7, tool_timeout=None, grace=1.0)
    assert repr(limits) == "Limits(steps=7, tool_timeout=None, grace=1.0)"


@pytest.mark.parametrize("value", [-1, math.nan, True, "5", [1]], ids=repr)
@pytest.mark.parametrize("name", Limits.__struct_fields__)
def test_a_limit_that_is_no_number_is_refused(name, value):
    with pytest.raises(UsageError, match=rf"Limits\.{name}="):
        Limits(**{name: value})


@pytest.mark.parametrize("name", ["steps", "tool_calls", "answer_bytes"])
@pytest.mark.parametrize("value", [None, 1.5], ids=repr)
def test_a_limit_that_counts_is_a_whole_number(name, value):
    with pytest.raises(UsageError, match="whole number"):
        Limits(**{name: value})


# ── tool calls a step ───────────────────────────────────────────────────────────────────────


def counting(out, *turns, **limits):
    @tool
    async def act(n: int = 0) -> int:
        out.append(n)
        return n

    return Agent(ScriptedModel(*turns), tools=[act], limits=Limits(**limits))


async def test_calls_beyond_the_limit_of_a_step_do_not_run_and_the_model_is_told():
    out, seen = [], []
    calls = [call("act", n=n, call_id=f"c{n}") for n in range(4)]
    agent = counting(out, calls, "done", tool_calls=2)
    agent.add_hook("onToolCallError", lambda ctx: seen.append(type(ctx.error.exception)))
    events = await collect(agent.chat_stream("go"))
    assert out == [0, 1]
    assert outcomes(events) == {"c0": "ok", "c1": "ok", "c2": "error", "c3": "error"}
    assert seen == [ToolLimitError, ToolLimitError]


async def test_the_limit_of_calls_counts_anew_in_each_step():
    out = []
    agent = counting(
        out, [call("act"), call("act")], [call("act"), call("act")], "done", tool_calls=2
    )
    await agent.chat("go")
    assert out == [0, 0, 0, 0]


async def test_nobody_is_asked_about_calls_beyond_the_limit():
    out, asked = [], []
    agent = counting(out, [call("act", n=1), call("act", n=2)], "done", tool_calls=1)
    agent.add_hook("preToolCall", lambda ctx: Ask("may it?"))

    def approver(request, run):
        asked.append(request.call.arguments["n"])
        return Deny("no")

    await agent.chat("go", approver=approver)
    assert asked == [1]


async def test_the_limit_of_calls_holds_although_calls_run_one_after_the_other():
    out = []
    model = ScriptedModel([call("act", n=n) for n in range(4)], "done")

    @tool(parallel=False)
    async def act(n: int) -> None:
        out.append(n)

    await Agent(model, tools=[act], limits=Limits(tool_calls=2)).chat("go")
    assert out == [0, 1]


# ── argument bytes ──────────────────────────────────────────────────────────────────────────


def text_of_size(size, letter="x"):
    """A JSON object of exactly so many bytes."""
    empty = len('{"text": ""}')
    count, rest = divmod(size - empty, len(letter.encode()))
    return '{"text": "' + letter * count + "." * rest + '"}'


def reading(out, *turns, **limits):
    @tool
    async def read(text: str) -> str:
        out.append(len(text))
        return "read"

    return Agent(ScriptedModel(*turns), tools=[read], limits=Limits(**limits))


@pytest.mark.parametrize("letter", ["x", "€"], ids=["ascii", "three bytes a letter"])
@pytest.mark.parametrize("chunk", [0, 7], ids=["one chunk", "many chunks"])
async def test_arguments_of_exactly_the_limit_are_taken(letter, chunk):
    out = []
    turn = Turn(raw_call("read", text_of_size(100, letter)), chunk=chunk)
    response = await reading(out, turn, "done", argument_bytes=100).chat("go")
    assert [outcome for _, outcome, _ in results(response)] == ["ok"]
    assert len(out) == 1


@pytest.mark.parametrize("letter", ["x", "€"], ids=["ascii", "three bytes a letter"])
@pytest.mark.parametrize("chunk", [0, 7], ids=["one chunk", "many chunks"])
async def test_arguments_beyond_the_limit_are_bad_arguments(letter, chunk):
    out, seen = [], []
    turn = Turn(raw_call("read", text_of_size(101, letter)), chunk=chunk)
    agent = reading(out, turn, "done", argument_bytes=100)
    agent.add_hook("onToolCallError", lambda ctx: seen.append(ctx.error))
    response = await agent.chat("go")
    assert out == []
    assert isinstance(seen[0].exception, ToolArgumentsError)
    assert "100" in seen[0].message
    assert response.text == "done"


async def test_of_arguments_beyond_the_limit_no_more_is_kept_than_the_limit_and_one_chunk():
    seen = []
    agent = reading([], Turn(raw_call("read", "x" * 5_000), chunk=10), "done", argument_bytes=100)
    agent.add_hook("preToolCall", lambda ctx: seen.append(len(ctx.call.raw)))
    await agent.chat("go")
    assert seen[0] <= 120


# ── output bytes ────────────────────────────────────────────────────────────────────────────


def giving(value, *turns, **limits):
    @tool
    async def give():
        if isinstance(value, Exception):
            raise value
        return value

    return Agent(
        ScriptedModel(*(turns or (call("give"), "done"))), tools=[give], limits=Limits(**limits)
    )


async def test_an_output_of_exactly_the_limit_is_whole():
    response = await giving("x" * 100, output_bytes=100).chat("go")
    assert results(response)[0][2] == "x" * 100


async def test_a_longer_output_is_truncated_and_marked():
    response = await giving("x" * 101, output_bytes=100).chat("go")
    text = results(response)[0][2]
    assert text.startswith("x" * 100 + "\n")
    assert "truncated" in text
    assert "101" in text


async def test_hooks_and_events_are_told_that_an_output_was_truncated():
    seen = []
    agent = giving("x" * 101, output_bytes=100)
    agent.add_hook("onToolCallResult", lambda ctx: seen.append(ctx.result.truncated))
    (finished,) = only(await collect(agent.chat_stream("go")), ToolCallFinished)
    assert seen == [True]
    assert finished.result.truncated


async def test_an_output_is_measured_as_the_json_that_the_model_reads():
    response = await giving(["x" * 10] * 20, output_bytes=100).chat("go")
    text = results(response)[0][2]
    assert text.startswith('["xxxxxxxxxx",')
    assert "truncated" in text
    assert len(text) < 200


async def test_an_output_is_cut_between_letters():
    response = await giving("€" * 100, output_bytes=100).chat("go")
    assert results(response)[0][2].startswith("€" * 33 + "\n")


LONG = "y" * 5_000


@pytest.mark.parametrize(
    "error",
    [ValueError(LONG), ToolDenied(LONG), StopChat(LONG)],
    ids=["an exception", "ToolDenied", "StopChat"],
)
async def test_what_a_tool_raises_is_truncated_too(error):
    agent = giving(error, call("give"), "done", output_bytes=100)
    response = await agent.chat("go")
    text = results(response)[0][2]
    assert "truncated" in text
    assert len(text) < 400


def answering(value):
    def arrange(agent):
        agent.add_hook("preToolCall", lambda ctx: value)

    return arrange


def replacing(agent):
    agent.add_hook("onToolCallResult", lambda ctx: ToolResult(LONG))


def converting(agent):
    agent.add_hook("onToolCallResult", lambda ctx: ToolFailure(LONG))


def wrapping(agent):
    @agent.hook("aroundToolCall")
    async def wrap(ctx, proceed):
        return ToolResult(LONG)


@pytest.mark.parametrize(
    "arrange",
    [
        pytest.param(answering(ToolResult(LONG)), id="preToolCall answers"),
        pytest.param(answering(ToolFailure(LONG)), id="preToolCall denies"),
        pytest.param(wrapping, id="aroundToolCall"),
        pytest.param(replacing, id="onToolCallResult"),
        pytest.param(converting, id="onToolCallResult converts"),
    ],
)
async def test_what_hooks_give_in_a_tools_place_is_truncated_too(arrange):
    agent = giving("short", output_bytes=100)
    arrange(agent)
    response = await agent.chat("go")
    text = results(response)[0][2]
    assert "truncated" in text
    assert len(text) < 400


async def test_a_long_denial_is_truncated_too():
    agent = giving("short", output_bytes=100)
    agent.add_hook("preToolCall", lambda ctx: Ask("may it?"))
    response = await agent.chat("go", approver=lambda request, run: Deny(LONG))
    text = results(response)[0][2]
    assert "truncated" in text
    assert len(text) < 400


@pytest.mark.parametrize(
    "wanted",
    [
        pytest.param(call("give", dict.fromkeys(map(str, range(2_000)), 1)), id="2,000 issues"),
        pytest.param(call(LONG), id="a long unknown name"),
    ],
)
async def test_what_hookline_says_of_a_call_is_truncated_too(wanted):
    agent = giving("short", wanted, "done", output_bytes=1_000)
    response = await agent.chat("go")
    text = results(response)[0][2]
    assert len(text) < 2_000
    assert response.text == "done"


async def test_a_limit_of_output_leaves_numbers_and_null_alone():
    agent = giving(123456789, output_bytes=4)
    assert results(await agent.chat("go"))[0][2] == "123456789"


# ── time ────────────────────────────────────────────────────────────────────────────────────


def hanging(out, limits=None, **options):
    @tool(**options)
    async def hang() -> str:
        try:
            await asyncio.Event().wait()
        finally:
            out.append("cancelled")

    return Agent(ScriptedModel(call("hang"), "done"), tools=[hang], limits=limits or Limits())


@pytest.mark.parametrize(
    ("limits", "options", "seconds"),
    [
        pytest.param(Limits(), {}, 120, id="by default two minutes"),
        pytest.param(Limits(tool_timeout=10), {}, 10, id="the agent's limit"),
        pytest.param(Limits(tool_timeout=10), {"timeout": 30}, 30, id="a tool's own, longer"),
        pytest.param(Limits(tool_timeout=10), {"timeout": 3}, 3, id="a tool's own, shorter"),
        pytest.param(Limits(tool_timeout=None), {"timeout": 3}, 3, id="a tool's own alone"),
    ],
)
async def test_a_tool_is_cancelled_when_its_time_is_up(limits, options, seconds):
    clock, out = Clock(), []
    chat = asyncio.ensure_future(hanging(out, limits, **options).chat("go"))
    await clock.advance(seconds - 1)
    assert out == []
    await clock.advance(2)
    assert out == ["cancelled"]
    assert [outcome for _, outcome, _ in results(await chat)] == ["error"]


@pytest.mark.parametrize(
    ("limits", "options"),
    [
        pytest.param(Limits(tool_timeout=None), {}, id="the agent has none"),
        pytest.param(Limits(tool_timeout=10), {"timeout": math.inf}, id="the tool has none"),
    ],
)
async def test_a_tool_without_a_limit_runs_on(limits, options):
    clock, out = Clock(), []
    chat = asyncio.ensure_future(hanging(out, limits, **options).chat("go"))
    await clock.advance(1_000_000)
    assert out == []
    chat.cancel()
    with pytest.raises(asyncio.CancelledError):
        await chat


async def test_each_parallel_call_has_its_own_time():
    clock, out = Clock(), []
    go = asyncio.Event()

    @tool(timeout=5)
    async def short() -> None:
        try:
            await go.wait()
        finally:
            out.append("short")

    @tool(timeout=50)
    async def long() -> str:
        await go.wait()
        return "long"

    agent = Agent(ScriptedModel([call("long"), call("short")], "done"), tools=[short, long])
    chat = asyncio.ensure_future(agent.chat("go"))
    await clock.advance(6)
    assert out == ["short"]
    go.set()
    assert [outcome for _, outcome, _ in results(await chat)] == ["ok", "error"]


async def test_a_tools_time_counts_from_its_beginning_not_from_where_it_first_waits():
    out = []
    loop = asyncio.get_running_loop()
    clock = Clock()

    @tool(timeout=5)
    async def slow() -> str:
        clock.skip(6)  # it computes for so long, and only then waits
        try:
            await asyncio.Event().wait()
        finally:
            out.append(loop.time())
        return ""

    chat = await Agent(ScriptedModel(call("slow"), "done"), tools=[slow]).chat("go")
    assert [outcome for _, outcome, _ in results(chat)] == ["error"]
    assert out


class Told(Observer):
    """A point of our own."""


async def test_a_bus_of_its_own_counts_by_the_clock_of_its_event_loop():
    clock, out = Clock(), []
    clock.skip(1_000)  # it is not the machine's
    bus = HookBus()

    async def slow(ctx):
        try:
            await asyncio.Event().wait()
        finally:
            out.append("cancelled")

    bus.add_hook(Told, slow, timeout=5)
    publishing = asyncio.ensure_future(bus.notify(Told()))
    await clock.advance(4)
    assert out == []
    await clock.advance(2)
    assert out == ["cancelled"]
    with pytest.raises(HookTimeoutError):
        await publishing


async def test_a_tool_that_never_waits_has_no_limit():
    clock = Clock()

    @tool(timeout=5)
    async def busy() -> str:
        clock.skip(1_000)
        return "there was nothing to cancel"

    chat = await Agent(ScriptedModel(call("busy"), "done"), tools=[busy]).chat("go")
    assert [outcome for _, outcome, _ in results(chat)] == ["ok"]


async def test_a_tool_may_swallow_the_end_of_its_time_wait_again_and_give_a_result():
    clock, again = Clock(), asyncio.Event()

    @tool(timeout=5)
    async def stubborn() -> str:
        for _ in range(2):
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                break
        await asyncio.sleep(0)
        await again.wait()
        return "what there is so far"

    agent = Agent(ScriptedModel(call("stubborn"), "done"), tools=[stubborn])
    chat = asyncio.ensure_future(agent.chat("go"))
    await clock.advance(6)
    assert not chat.done()
    again.set()
    assert [outcome for _, outcome, _ in results(await chat)] == ["ok"]
    assert chat.cancelling() == 0, "the cancellation was the limit's, and is taken back"


async def test_what_a_tool_awaits_sees_no_difference_in_whether_it_has_a_limit():
    """What is sent, thrown and closed reaches the tool, wherever it waits."""
    seen = []

    async def waits(run: Run) -> str:
        future = asyncio.get_running_loop().create_future()
        asyncio.get_running_loop().call_soon(future.set_exception, KeyError("first"))
        try:
            await future
        except KeyError as exc:
            seen.append(repr(exc))
        async with asyncio.timeout(0):
            try:
                await asyncio.sleep(3600)
            except asyncio.CancelledError:
                seen.append("cancelled")
                raise
        return ""

    for limit in (None, 60.0):
        seen.append(limit)
        agent = Agent(
            ScriptedModel(call("waits"), "done"), tools=[waits], limits=Limits(tool_timeout=limit)
        )
        seen.append(results(await agent.chat("go")))
    assert seen[:4] == [None, "KeyError('first')", "cancelled", seen[3]]
    assert seen[4:] == [60.0, *seen[1:4]]


# ── a slow consumer ─────────────────────────────────────────────────────────────────────────


def chatty(again=None, **options):
    """A tool that reports more than the stream's buffer holds, then waits until it may end."""

    @tool(**options)
    async def work(run: Run) -> str:
        for n in range(2 * SIZE):
            await run.status("at", n)
        if again is not None:
            await again.wait()
        return "finished"

    return work


async def first_status(stream):
    async for event in stream:
        if isinstance(event, Status):
            return


async def test_a_tools_time_does_not_count_while_it_waits_for_a_slow_consumer():
    clock = Clock()
    agent = Agent(ScriptedModel(call("work", call_id="a"), "done"), tools=[chatty(timeout=5)])
    async with agent.chat_stream("go") as stream:
        await first_status(stream)
        await clock.advance(1_000)
        rest = [event async for event in stream]
    (finished,) = only(rest, ToolCallFinished)
    assert finished.outcome == "ok"


@pytest.mark.parametrize("before", range(SIZE - 20, SIZE))
async def test_nor_where_the_first_thing_that_it_waits_for_is_the_consumer(before):
    """However full the stream's buffer is when the tool begins."""
    clock = Clock()
    turn = Turn(*["text "] * (before + 1), call("work", call_id="a"))
    agent = Agent(ScriptedModel(turn, "done"), tools=[chatty(timeout=5)])
    async with agent.chat_stream("go") as stream:
        await anext(stream)
        await clock.advance(1_000)
        rest = [event async for event in stream]
    assert [event.outcome for event in only(rest, ToolCallFinished)] == ["ok"]


async def test_a_tools_time_counts_again_when_the_consumer_reads_on():
    clock, again = Clock(), asyncio.Event()
    agent = Agent(
        ScriptedModel(call("work", call_id="a"), "done"), tools=[chatty(again, timeout=5)]
    )
    async with agent.chat_stream("go") as stream:
        await first_status(stream)
        await clock.advance(1_000)
        rest = asyncio.ensure_future(anext_finished(stream))
        await clock.advance(4)
        assert not rest.done()
        await clock.advance(2)
        assert (await rest).result.type == "ToolTimeoutError"


async def anext_finished(stream):
    async for event in stream:
        if isinstance(event, ToolCallFinished):
            return event
    return None


async def test_a_wrappers_time_does_not_count_while_it_waits_for_a_slow_consumer():
    clock = Clock()
    agent = Agent(ScriptedModel(call("work", call_id="a"), "done"), tools=[chatty()])

    @agent.hook("aroundToolCall", timeout=5)
    async def limited(ctx, proceed):
        return await proceed()

    async with agent.chat_stream("go") as stream:
        await first_status(stream)
        await clock.advance(1_000)
        rest = [event async for event in stream]
    (finished,) = only(rest, ToolCallFinished)
    assert finished.outcome == "ok"


async def test_a_wrappers_time_around_a_sub_agent_does_not_count_while_that_waits():
    clock = Clock()
    child = Agent(ScriptedModel(call("work"), "child is done"), tools=[chatty()], name="child")
    agent = Agent(
        ScriptedModel(call("child", input="x", call_id="a"), "done"), tools=[child.as_tool()]
    )

    @agent.hook("aroundToolCall", timeout=5)
    async def limited(ctx, proceed):
        return await proceed()

    async with agent.chat_stream("go") as stream:
        await first_status(stream)
        await clock.advance(1_000)
        rest = [event async for event in stream]
    assert [event.outcome for event in only(rest, ToolCallFinished)] == ["ok", "ok"]


async def test_a_wrappers_time_around_a_sub_agent_counts_again_when_the_consumer_reads_on():
    clock, again = Clock(), asyncio.Event()
    turns = [call("work"), "child is done"]
    child = Agent(ScriptedModel(*turns), tools=[chatty(again, timeout=None)], name="child")
    agent = Agent(ScriptedModel(call("child", input="x", call_id="a")), tools=[child.as_tool()])

    @agent.hook("aroundToolCall", timeout=5)
    async def limited(ctx, proceed):
        return await proceed()

    async with agent.chat_stream("go") as stream:
        await first_status(stream)
        await clock.advance(1_000)
        rest = asyncio.ensure_future(collect(stream))
        await clock.advance(4)
        assert not rest.done()
        await clock.advance(2)
        assert rest.done()
        with pytest.raises(HookTimeoutError):
            await rest


async def test_a_wrappers_time_counts_where_nobody_waits_for_the_consumer():
    clock = Clock()
    agent = Agent(ScriptedModel(call("work")), tools=[chatty(asyncio.Event(), timeout=1_000)])

    @agent.hook("aroundToolCall", timeout=5)
    async def limited(ctx, proceed):
        return await proceed()

    chat = asyncio.ensure_future(agent.chat("go"))
    await clock.advance(6)
    with pytest.raises(HookTimeoutError):
        await chat


@pytest.mark.parametrize("what", ["tool", "hook"])
@pytest.mark.parametrize("ends", ["before the grace period is over", "after it"])
async def test_what_ignores_that_its_time_is_over_is_named_after_the_grace_period(
    what, ends, caplog
):
    """It is waited for all the same: nobody has aborted the chat."""
    clock, release = Clock(), asyncio.Event()

    async def deaf():
        while not release.is_set():
            with suppress(asyncio.CancelledError):
                await release.wait()
        return "at last"

    agent = Agent(ScriptedModel(call("deaf"), "done"), tools=[tool(timeout=3)(deaf)])
    if what == "hook":
        agent = Agent(ScriptedModel("done"))

        async def waits(ctx):
            await deaf()

        agent.add_hook("onStep", waits, name="deaf", timeout=3)
    chat = asyncio.ensure_future(agent.chat("go"))
    await clock.advance(4)
    await clock.advance(4.5)
    if ends == "after it":
        assert caplog.text == ""
        await clock.advance(1)
        assert "'deaf' is still running 5 s after its time limit of 3 s" in caplog.text
    release.set()
    await settle()
    await clock.advance(10)
    assert (await chat).text == "done"
    assert ("'deaf'" in caplog.text) == (ends == "after it")


async def test_what_was_left_behind_is_named_once(caplog):
    """Its time limit runs out after the abort: that is no news, and nobody waits for it."""
    clock, started, release = Clock(), asyncio.Event(), asyncio.Event()

    @tool(timeout=3)
    async def deaf():
        started.set()
        while not release.is_set():
            with suppress(asyncio.CancelledError):
                await release.wait()

    chat = asyncio.ensure_future(Agent(ScriptedModel(call("deaf")), tools=[deaf]).chat("go"))
    await started.wait()
    chat.cancel()
    for _ in range(15):
        await clock.advance(1)
    assert chat.cancelled()
    assert len(caplog.records) == 1
    assert "'deaf' ignored its cancellation for 5 s and is left behind" in caplog.text
    release.set()
    await settle()


async def test_hooks_at_the_end_that_hang_share_one_grace_period():
    clock, out = Clock(), []
    agent = Agent(ScriptedModel(Turn("hello", delay=asyncio.Event().wait)))

    for n in range(3):

        async def hangs(ctx, n=n):
            out.append(n)
            await asyncio.Event().wait()

        agent.add_hook("onChatAbort", hangs)
    chat = asyncio.ensure_future(agent.chat("go"))
    await settle()
    chat.cancel()
    await clock.advance(4.9)
    assert out == [0]
    for _ in range(10):
        await clock.advance(0.1)
    assert out == [0, 1, 2]
    assert chat.cancelled()


def in_a_thread(file):
    """Whether code of this file runs in another thread than ours."""
    frames = sys._current_frames()
    del frames[threading.get_ident()]
    stacks = [traceback.StackSummary.extract(traceback.walk_stack(f)) for f in frames.values()]
    return any(line.filename.endswith(file) for stack in stacks for line in stack)


@pytest.mark.parametrize("ends", ["before the grace period is over", "after it"])
async def test_a_thread_is_named_if_it_still_runs_when_the_grace_period_is_over(ends, caplog):
    clock = Clock()
    started, release = asyncio.Event(), threading.Event()
    loop = asyncio.get_running_loop()

    @tool
    def deaf() -> None:
        loop.call_soon_threadsafe(started.set)
        release.wait(30)

    chat = asyncio.ensure_future(Agent(ScriptedModel(call("deaf")), tools=[deaf]).chat("go"))
    await started.wait()
    chat.cancel()
    if ends == "before the grace period is over":
        release.set()
        while in_a_thread("_chat/run_tool.py"):  # noqa: ASYNC110 - no event tells that
            await asyncio.sleep(0)
    await clock.advance(6)
    release.set()
    with pytest.raises(asyncio.CancelledError):
        await chat
    assert ("'deaf'" in caplog.text) == (ends == "after it")


# ── grace ───────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("limits", "seconds"),
    [
        pytest.param(Limits(), 5, id="by default five seconds"),
        pytest.param(Limits(grace=60), 60, id="longer"),
    ],
)
async def test_a_chat_ends_when_the_grace_period_of_what_was_aborted_is_over(limits, seconds):
    clock = Clock()
    started, release = asyncio.Event(), asyncio.Event()

    @tool
    async def stubborn() -> None:
        started.set()
        while not release.is_set():
            try:
                await release.wait()
            except asyncio.CancelledError:
                continue

    conversation = Conversation()
    agent = Agent(ScriptedModel(call("stubborn"), "next"), tools=[stubborn], limits=limits)
    chat = asyncio.ensure_future(agent.chat("go", conversation=conversation))
    await started.wait()
    chat.cancel()
    await clock.advance(seconds - 1)
    assert not chat.done()
    await clock.advance(2)
    assert chat.done()
    with pytest.raises(asyncio.CancelledError):
        await chat
    await goes_on(agent, conversation)
    release.set()
    await settle()


async def test_a_tool_that_was_left_behind_cannot_change_how_the_stream_ends():
    """It ends after the grace period, before the reader has read the end."""
    clock = Clock()
    started, release = asyncio.Event(), asyncio.Event()

    @tool
    async def stubborn() -> None:
        started.set()
        while not release.is_set():
            try:
                await release.wait()
            except asyncio.CancelledError:
                continue

    conversation = Conversation()
    agent = Agent(ScriptedModel(call("stubborn"), "next"), tools=[stubborn])
    async with agent.chat_stream("go", conversation=conversation) as stream:
        await started.wait()
        stream.abort("enough")
        await clock.advance(6)
        release.set()
        await settle()
        events = [event async for event in stream]
    assert isinstance(events[-1], ChatAborted)
    await goes_on(agent, conversation)


# ── the time of a model call ────────────────────────────────────────────────────────────────


class Endless:
    """A model that sends reasoning without end, and never suspends for long."""

    name, provider = "endless", "test"

    def __init__(self, *, silent: bool = False) -> None:
        self.silent = silent
        self.calls = 0
        self.closed = 0

    async def stream(self, request: ModelRequest) -> AsyncIterator[Chunk]:
        self.calls += 1
        try:
            if self.silent:
                await asyncio.Event().wait()
            while True:
                yield TextChunk("x")
                await asyncio.sleep(0)
        finally:
            self.closed += 1


@pytest.mark.parametrize("silent", [False, True], ids=["sends", "is silent"])
async def test_a_model_call_ends_at_request_seconds(silent: bool) -> None:
    model = Endless(silent=silent)
    agent = Agent(model, limits=Limits(request_seconds=0.05))
    with pytest.raises(IdleTimeoutError, match=r"Limits\.request_seconds=0\.05") as caught:
        await agent.chat("Go.")
    assert caught.value.retryable
    assert (model.calls, model.closed) == (1, 1)
    task = asyncio.current_task()
    assert task is not None
    assert task.cancelling() == 0


async def test_request_seconds_counts_each_attempt_of_proceed_on_its_own() -> None:
    model = Endless(silent=True)
    clock = Clock()
    agent = Agent(model, limits=Limits(request_seconds=10))

    async def again(ctx: Any, proceed: Any) -> Any:
        passing = asyncio.create_task(clock.advance(11))
        with pytest.raises(IdleTimeoutError):
            await proceed(ctx.request)
        await passing
        return await proceed(ctx.request.replace(model=ScriptedModel("Second.")))

    agent.add_hook("aroundRequest", again)

    assert (await agent.chat("Go.")).text == "Second."
    assert model.closed == 1


async def test_request_seconds_stands_still_while_a_slow_reader_is_awaited() -> None:
    """The reader takes longer than the limit, and the model does not."""
    words = ["x"] * 200
    clock = Clock()
    agent = Agent(ScriptedModel("".join(words), chunk=1), limits=Limits(request_seconds=10))
    async with agent.chat_stream("Go.") as stream:
        slept = False
        async for event in stream:
            if isinstance(event, TextDelta) and not slept:
                slept = True
                await clock.advance(100)
    assert stream.response is not None
    assert stream.response.text == "".join(words)


async def test_request_seconds_may_be_none() -> None:
    agent = Agent(ScriptedModel("Done."), limits=Limits(request_seconds=None))
    assert (await agent.chat("Go.")).text == "Done."
