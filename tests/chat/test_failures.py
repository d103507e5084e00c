"""How software of this kind fails in the wild: each test is named after one such failure.

Not tested here, because the core has nothing of it:

- spans, exporters and lost trace contexts: telemetry stands on the hooks (what it needs of them –
  a wrapper that always unwinds, in its own context – is tested here);
- server-sent events, origins, content types, tokens, caps on streams of a web server, disconnects
  that a server has to notice: the web door's;
- hooks loaded from the working directory or from plugins: the core loads nothing by itself;
- sync twins that run a loop inside a loop: there is no sync form;
- reviewers that are language models: an approver is the user's code;
- pools and sockets of HTTP clients, handlers at the interpreter's exit, shutting down an executor:
  the core has none of these (of a client's pool only the part that the loop plays is tested:
  every stream that it opens, it closes).
"""

from __future__ import annotations

import asyncio
import gc
import logging
import threading
import traceback
import weakref
from collections.abc import AsyncIterator, Callable
from contextlib import suppress
from contextvars import ContextVar
from typing import Any

import pytest

from hookline import (
    Agent,
    Approve,
    Ask,
    AssistantMessage,
    Conversation,
    Deny,
    Limits,
    Run,
    Stop,
    Text,
    ToolCall,
    ToolFailure,
    ToolMessage,
    UserMessage,
    check_history,
    repair_history,
    tool,
)
from hookline.errors import (
    ChatAbortedError,
    ConversationBusyError,
    HistoryError,
    HookTimeoutError,
    MaxStepsError,
)
from hookline.events import (
    ChatDone,
    ChatFailed,
    ResponseReset,
    Status,
    StepStarted,
    TextDelta,
    ToolCallFinished,
    ToolCallStarted,
)
from hookline.models import Finish, TextChunk, ToolCallChunk
from hookline.testing import ScriptedModel, Turn, call, collect, raw_call

where: ContextVar[str] = ContextVar("where", default="outside")


@pytest.fixture(autouse=True)
async def no_task_is_left() -> AsyncIterator[None]:
    yield
    assert asyncio.all_tasks() - {asyncio.current_task()} == set()  # type: ignore[arg-type]


class Stall:
    """Before a chunk: lets `free` of them pass, then waits until `go` is set."""

    def __init__(self, free: int = 0) -> None:
        self.free = free
        self.reached = asyncio.Event()
        self.go = asyncio.Event()

    async def __call__(self) -> None:
        if self.free == 0:
            self.reached.set()
            await self.go.wait()
        else:
            self.free -= 1


async def turns(times: int = 60) -> None:
    for _ in range(times):
        await asyncio.sleep(0)


def text(events: list[Any]) -> str:
    return "".join(event.text for event in events if isinstance(event, TextDelta))


def results(conversation: Conversation) -> list[str]:
    return [m.outcome for m in conversation.messages if isinstance(m, ToolMessage)]


@tool
async def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


@tool
async def hang() -> None:
    """Never return."""
    await asyncio.Event().wait()


# ── streams, generators, cancel scopes ──────────────────────────────────────────────────────


async def test_a_break_cancels_unrelated_code_later() -> None:
    """A scope held open over a yield strikes whatever the task does next."""

    async def scoped(ctx: Any, proceed: Any) -> Any:
        async with asyncio.TaskGroup() as group, asyncio.timeout(3600):
            group.create_task(asyncio.sleep(0))
            return await proceed()

    agent = Agent(ScriptedModel(Turn("hello", chunk=1)), hooks={"aroundRequest": scoped})
    async with agent.chat_stream("hi") as stream:
        async for event in stream:
            if isinstance(event, TextDelta):
                break
    gc.collect()
    await turns()
    assert asyncio.current_task().cancelling() == 0  # type: ignore[union-attr]


async def test_a_scope_is_left_in_another_task_than_it_was_entered_in() -> None:
    """Each pull in its own task, the close in yet another, a time limit open all the while."""
    entered: list[Any] = []

    async def scoped(ctx: Any, proceed: Any) -> Any:
        async with asyncio.timeout(3600):
            entered.append(asyncio.current_task())
            try:
                return await proceed()
            finally:
                entered.append(asyncio.current_task())

    agent = Agent(ScriptedModel(Turn("hello", chunk=1, delay=Stall(3))))
    agent.add_hook("aroundRequest", scoped)
    stream = agent.chat_stream("hi")
    for _ in range(5):
        await asyncio.create_task(anext(stream))  # type: ignore[arg-type]
    await asyncio.create_task(stream.aclose())
    assert len(entered) == 2
    assert entered[0] is entered[1]


async def test_an_interrupted_tool_call_burns_the_processor(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """After the interruption the loop is idle, even with a tool left behind."""
    let_go = asyncio.Event()

    @tool
    async def stubborn() -> None:
        with suppress(asyncio.CancelledError):
            await let_go.wait()
        await let_go.wait()

    agent = Agent(ScriptedModel([call("stubborn")]), tools=[stubborn], limits=Limits(grace=0.01))
    async with agent.chat_stream("hi") as stream:
        async for event in stream:
            if isinstance(event, ToolCallStarted):
                await turns()
                break
    loop = asyncio.get_running_loop()
    scheduled: list[Any] = []
    call_soon = loop.call_soon

    def counted(callback: Any, *args: Any, context: Any = None) -> Any:
        scheduled.append(callback)
        return call_soon(callback, *args, context=context)

    idle = asyncio.Event()
    loop.call_later(0.03, idle.set)
    monkeypatch.setattr(loop, "call_soon", counted)
    await idle.wait()
    monkeypatch.undo()
    assert len(scheduled) < 5
    let_go.set()
    await turns()


async def test_close_returns_before_the_internal_tasks_have_finished() -> None:
    ended: list[str] = []

    @tool
    async def slow_to_stop(n: int) -> None:
        try:
            await asyncio.Event().wait()
        finally:
            await turns(10)
            ended.append(f"tool {n}")

    agent = Agent(
        ScriptedModel([call("slow_to_stop", n=1), call("slow_to_stop", n=2)]), tools=[slow_to_stop]
    )
    stream = agent.chat_stream("hi")
    async for event in stream:
        if isinstance(event, ToolCallStarted):
            await turns()
            break
    await stream.aclose()
    assert sorted(ended) == ["tool 1", "tool 2"]
    assert len(asyncio.all_tasks()) == 1


async def test_a_finally_does_not_run_when_the_reader_breaks() -> None:
    out: list[str] = []

    class Careful:
        async def stream(self, request: Any) -> AsyncIterator[Any]:
            try:
                for _ in range(100):
                    yield TextChunk("x")
            finally:
                out.append("model")

    async def wrapper(ctx: Any, proceed: Any) -> Any:
        try:
            return await proceed()
        finally:
            out.append(type(ctx).__name__)

    agent = Agent(Careful(), hooks={"aroundChat": wrapper, "aroundRequest": wrapper})
    async with agent.chat_stream("hi") as stream:
        async for event in stream:
            if isinstance(event, TextDelta):
                break
    assert out == ["model", "AroundRequest", "AroundChat"]


async def test_closing_a_stream_leaves_the_agent_running() -> None:
    """No further model call, no tool, no write after the close."""
    model = ScriptedModel(*[[call("add", a=1, b=2)]] * 10)
    conversation = Conversation()
    agent = Agent(model, tools=[add])
    async with agent.chat_stream("hi", conversation=conversation) as stream:
        async for event in stream:
            if isinstance(event, ToolCallFinished):
                break
    before = (model.calls, conversation.messages)
    await turns(300)
    assert (model.calls, conversation.messages) == before


async def test_a_generator_that_yields_while_it_is_closed_breaks_the_ending(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Python calls it 'async generator ignored GeneratorExit': logged, the outcome stands."""

    class Rude:
        async def stream(self, request: Any) -> AsyncIterator[Any]:
            try:
                yield TextChunk("he")
                yield TextChunk("llo")
            finally:
                yield Finish()

    out: list[str] = []

    def fails(ctx: Any) -> None:
        if ctx.delta.text == "llo":
            raise LookupError("the hook's own")

    agent = Agent(Rude())
    agent.add_hook("onDelta", fails)
    agent.add_hook("onChatError", lambda ctx: out.append("error"))
    with pytest.raises(LookupError, match="the hook's own"):
        await agent.chat("hi")
    assert out == ["error"]
    assert "raised an exception while it was being closed" in caplog.text


async def test_the_producer_survives_an_early_break() -> None:
    made = 0

    class Endless:
        async def stream(self, request: Any) -> AsyncIterator[Any]:
            nonlocal made
            while True:
                made += 1
                yield TextChunk("x")
                await asyncio.sleep(0)

    async with Agent(Endless()).chat_stream("hi") as stream:
        async for event in stream:
            if isinstance(event, TextDelta):
                break
    before = made
    await turns()
    assert made == before


# ── what telemetry needs of the hooks ───────────────────────────────────────────────────────


async def test_a_context_token_is_reset_in_another_context() -> None:
    """Each wrapper is left in the context in which it was entered, also on a break."""
    out: list[str] = []

    async def spanning(ctx: Any, proceed: Any) -> Any:
        token = where.set(type(ctx).__name__)
        try:
            return await proceed()
        finally:
            where.reset(token)  # raises ValueError in another context
            out.append(type(ctx).__name__)

    agent = Agent(ScriptedModel([call("hang")]), tools=[hang])
    for point in ("aroundChat", "aroundRequest", "aroundToolCall"):
        agent.add_hook(point, spanning)  # type: ignore[call-overload]
    async with agent.chat_stream("hi") as stream:
        async for event in stream:
            assert where.get() == "outside"
            if isinstance(event, ToolCallStarted):
                await turns()
                break
    assert out == ["AroundRequest", "AroundToolCall", "AroundChat"]


async def test_spans_of_a_streamed_chat_are_siblings_instead_of_children() -> None:
    """What a wrapper sets is seen by all that it wraps, parallel tools too, and by nothing else."""
    seen: list[str] = []

    async def spanning(ctx: Any, proceed: Any) -> Any:
        token = where.set(f"{where.get()} > {type(ctx).__name__}")
        try:
            return await proceed()
        finally:
            where.reset(token)

    @tool
    async def look() -> None:
        await asyncio.sleep(0)
        seen.append(where.get())

    agent = Agent(ScriptedModel([call("look"), call("look")], "done"), tools=[look])
    for point in ("aroundChat", "aroundRequest", "aroundToolCall"):
        agent.add_hook(point, spanning)  # type: ignore[call-overload]
    agent.add_hook("onDelta", lambda ctx: seen.append(where.get()))
    agent.add_hook("onStep", lambda ctx: seen.append(where.get()))
    async with agent.chat_stream("hi") as stream:
        await collect(stream)
    assert set(seen) == {
        "outside > AroundChat",
        "outside > AroundChat > AroundRequest",
        "outside > AroundChat > AroundToolCall",
    }


async def test_a_wrapper_misses_the_cancellation_of_what_it_wraps() -> None:
    seen: list[str] = []

    async def watching(ctx: Any, proceed: Any) -> Any:
        try:
            return await proceed()
        except BaseException as exc:
            seen.append(type(exc).__name__)
            raise

    agent = Agent(ScriptedModel(Turn("hello", delay=Stall())), hooks={"aroundRequest": watching})
    async with agent.chat_stream("hi") as stream:
        await anext(stream)
        await turns()
    assert seen == ["CancelledError"]


# ── the client is gone ──────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("form", ["streamed", "not streamed"])
async def test_the_upstream_is_not_closed_when_the_client_leaves(form: str) -> None:
    """Both paths: it is often only one of them that leaks."""
    stall = Stall(1)
    model = ScriptedModel(Turn("hello", chunk=1, delay=stall))
    agent = Agent(model)
    if form == "streamed":
        async with agent.chat_stream("hi") as stream:
            await anext(stream)
            await stall.reached.wait()
    else:
        task = asyncio.create_task(agent.chat("hi"))
        await stall.reached.wait()
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task
    assert model.open == 0
    assert model.closed + model.cancelled == 1


async def test_a_turn_is_written_and_paid_for_after_the_tab_was_closed() -> None:
    model = ScriptedModel(*[Turn("so", call("add", a=1, b=2))] * 20)
    conversation = Conversation()
    agent = Agent(model, tools=[add])
    told: list[str] = []
    agent.add_hook("onMessage", lambda ctx: told.append(ctx.message.role))
    async with agent.chat_stream("hi", conversation=conversation) as stream:
        async for event in stream:
            if isinstance(event, TextDelta):
                break
    after = (len(told), model.calls, len(conversation.messages))
    await turns(200)
    assert (len(told), model.calls, len(conversation.messages)) == after
    assert len(told) == len(conversation.messages)


@pytest.mark.parametrize("ticks", range(50, 64))
async def test_a_written_message_is_told_although_the_reader_leaves_before_its_event(
    ticks: int,
) -> None:
    """The buffer is full at another place each time: also between a write and its event."""

    @tool
    async def chatty(run: Run[Any]) -> str:
        for tick in range(ticks):
            await run.status("tick", tick)
        return "ok"

    conversation = Conversation()
    agent = Agent(ScriptedModel([call("chatty")], "so"), tools=[chatty])
    told: list[str] = []
    agent.add_hook("onMessage", lambda ctx: told.append(ctx.message.id))
    async with agent.chat_stream("hi", conversation=conversation) as stream:
        await anext(stream)
        await turns(300)
    assert told == [message.id for message in conversation.messages]


async def test_a_call_that_was_denied_is_not_said_to_have_run_when_the_chat_is_aborted() -> None:
    """The abort comes between the denial and the message about it."""
    ran: list[str] = []

    @tool
    async def pay(to: str) -> str:
        ran.append(to)
        return "paid"

    def check(ctx: Any) -> Any:
        return Deny("not him") if ctx.call.arguments["to"] == "bob" else Ask("Really?")

    def stop(ctx: Any) -> None:
        ctx.run.abort("enough")

    conversation = Conversation()
    agent = Agent(ScriptedModel([call("pay", to="bob"), call("pay", to="ann")]), tools=[pay])
    agent.add_hook("preToolCall", check)
    agent.add_hook("onApproval", stop)
    with pytest.raises(ChatAbortedError, match="enough"):
        await agent.chat("hi", conversation=conversation)
    results = [each for each in conversation.messages if each.role == "tool"]
    assert ran == []
    assert [each.outcome for each in results] == ["aborted", "aborted"]
    assert not any("ran" in each.text for each in results)


async def test_every_cancelled_error_is_taken_for_a_disconnect() -> None:
    """A library's own cancellation inside a tool is a failed tool, and no client has left."""

    @tool
    async def library() -> None:
        inner = asyncio.ensure_future(asyncio.Event().wait())
        inner.cancel()
        await inner

    conversation = Conversation()
    agent = Agent(ScriptedModel([call("library")], "done"), tools=[library])
    response = await agent.chat("hi", conversation=conversation)
    assert response.text == "done"
    assert results(conversation) == ["error"]


async def test_a_stream_that_is_never_read_keeps_what_it_has_claimed() -> None:
    """200 requests that die before their first pull: nothing was claimed, so nothing is stuck."""
    conversation = Conversation()
    agent = Agent(ScriptedModel("fine"))
    for _ in range(200):
        agent.chat_stream("hi", conversation=conversation)
    assert not conversation.busy
    assert (await agent.chat("hi", conversation=conversation)).text == "fine"


async def test_many_cancelled_chats_exhaust_the_provider_s_connections() -> None:
    model = ScriptedModel(*[Turn("hello", delay=Stall())] * 50)
    agent = Agent(model)
    tasks = [asyncio.create_task(agent.chat("hi")) for _ in range(50)]
    await turns()
    assert model.open == 50
    for task in tasks:
        task.cancel()
    await asyncio.wait(tasks)
    assert model.open == 0


# ── history ─────────────────────────────────────────────────────────────────────────────────


async def leave_at_a_tool(agent: Agent[Any], conversation: Conversation) -> None:
    async with agent.chat_stream("hi", conversation=conversation) as stream:
        async for event in stream:
            if isinstance(event, ToolCallStarted):
                await turns()
                break


async def test_an_interrupted_tool_step_leaves_calls_without_results() -> None:
    """The next request would be refused by every provider: it is valid instead."""
    conversation = Conversation()
    model = ScriptedModel([call("add", a=1, b=2), call("hang")], "fine")
    agent = Agent(model, tools=[add, hang])
    await leave_at_a_tool(agent, conversation)
    assert results(conversation) == ["ok", "aborted"]
    assert (await agent.chat("again", conversation=conversation)).text == "fine"


async def test_a_failed_model_call_poisons_the_conversation() -> None:
    """An error in mid-answer, with a call begun: the next chat on it works."""
    conversation = Conversation()
    turn = Turn("so", call("add", a=1, b=2), fail=LookupError("the model's"))
    agent = Agent(ScriptedModel(turn, "fine"), tools=[add])
    with pytest.raises(LookupError):
        await agent.chat("hi", conversation=conversation)
    assert (await agent.chat("again", conversation=conversation)).text == "fine"


async def test_the_write_of_a_turn_is_cancelled_with_its_cleanup() -> None:
    """The caller is cancelled while a message is being written: it is written, whole."""
    inside, go_on = asyncio.Event(), asyncio.Event()
    conversation = Conversation()
    agent = Agent(ScriptedModel([call("add", a=1, b=2)]), tools=[add])

    async def slow(ctx: Any) -> None:
        if ctx.message.role == "assistant":
            inside.set()
            await go_on.wait()

    agent.add_hook("onMessage", slow)
    task = asyncio.create_task(agent.chat("hi", conversation=conversation))
    await inside.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    check_history(conversation.messages)
    assert [m.role for m in conversation.messages] == ["user", "assistant", "tool"]
    assert results(conversation) == ["aborted"]


ORPHANS: list[Any] = [
    UserMessage(id="1", parts=(Text("hi"),)),
    ToolMessage(id="2", call_id="gone", name="add", text="an orphan result"),
    AssistantMessage(id="3", parts=(ToolCall(id="c1", name="add"), ToolCall(id="c2", name="add"))),
    ToolMessage(id="4", call_id="c2", name="add", text="3"),
    UserMessage(id="5", parts=(Text("and?"),)),
]


def test_repair_mends_orphan_calls_and_leaves_orphan_results() -> None:
    """It mends both directions, the same way each time."""
    with pytest.raises(HistoryError):
        check_history(ORPHANS)
    first, second = repair_history(ORPHANS), repair_history(ORPHANS)
    check_history(first.messages)
    assert first == second
    assert not any(getattr(m, "call_id", "") == "gone" for m in first.messages)
    assert {m.call_id for m in first.messages if isinstance(m, ToolMessage)} == {"c1", "c2"}


def test_a_broken_history_is_sent_and_refused_by_the_provider() -> None:
    """It is refused where the conversation is made, with every problem named."""
    with pytest.raises(HistoryError) as caught:
        Conversation(ORPHANS)
    assert len(caught.value.problems) >= 2


# ── parallel tools ──────────────────────────────────────────────────────────────────────────


async def test_a_failing_tool_orphans_its_siblings() -> None:
    """Their results are there, and none of them still runs."""
    ended: list[str] = []

    @tool
    async def slow() -> str:
        await turns(5)
        ended.append("slow")
        return "slow"

    @tool
    async def boom() -> None:
        raise LookupError("the tool's own")

    conversation = Conversation()
    agent = Agent(ScriptedModel([call("boom"), call("slow"), call("boom")], "done"),
                  tools=[boom, slow])  # fmt: skip
    await agent.chat("hi", conversation=conversation)
    assert ended == ["slow"]
    assert results(conversation) == ["error", "ok", "error"]


async def test_an_error_is_raised_while_siblings_still_run() -> None:
    """A wrapper's throw ends the chat; it is raised only when the siblings have ended."""
    ended: list[str] = []

    @tool
    async def slow() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            await turns(5)
            ended.append("slow")

    async def wrapper(ctx: Any, proceed: Any) -> Any:
        raise LookupError("the wrapper's own")

    conversation = Conversation()
    agent = Agent(ScriptedModel([call("slow"), call("add", a=1, b=2)]), tools=[slow, add])
    agent.add_hook("aroundToolCall", wrapper, tools=["add"])
    with pytest.raises(LookupError):
        await agent.chat("hi", conversation=conversation)
    assert ended == ["slow"]
    check_history(conversation.messages)


async def test_cancelling_a_chat_does_not_stop_its_tools() -> None:
    """A cancelled coroutine that nobody drives goes on: here the tools have really stopped."""
    ticks = 0

    @tool
    async def ticking() -> None:
        nonlocal ticks
        while True:
            ticks += 1
            await asyncio.sleep(0)

    agent = Agent(ScriptedModel([call("ticking"), call("ticking")]), tools=[ticking])
    task = asyncio.create_task(agent.chat("hi"))
    await turns()
    task.cancel()
    with suppress(asyncio.CancelledError):
        await task
    before = ticks
    await turns()
    assert before == ticks > 0


# ── hooks ───────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("point", ["onToolCallResult", "onMessage", "onStep"])
async def test_a_throw_after_the_tools_makes_them_run_again(point: str) -> None:
    ran: list[str] = []

    @tool
    async def pay() -> str:
        ran.append("paid")
        return "paid"

    failed: list[bool] = []

    def fails_once(ctx: Any) -> None:
        if getattr(getattr(ctx, "message", None), "role", "tool") == "tool" and not failed:
            failed.append(True)
            raise LookupError("the hook's own")

    conversation = Conversation()
    agent = Agent(ScriptedModel([call("pay")], "done"), tools=[pay])
    agent.add_hook(point, fails_once)  # type: ignore[call-overload]
    with pytest.raises(LookupError):
        await agent.chat("pay", conversation=conversation)
    await agent.chat("go on", conversation=conversation)
    assert ran == ["paid"]


async def test_an_exception_in_a_hook_is_ignored() -> None:
    error = LookupError("the hook's own")

    def fails(ctx: object) -> None:
        raise error

    with pytest.raises(LookupError) as caught:
        await Agent(ScriptedModel("hello"), hooks={"onChatStart": fails}).chat("hi")
    assert caught.value is error


async def test_a_start_hook_races_with_what_it_announces() -> None:
    """A slow hook is awaited: what comes after it in the contract comes after it in time."""
    out: list[str] = []

    @tool
    async def work() -> None:
        out.append("tool")

    def slow(name: str) -> Callable[[Any], Any]:
        async def hook(ctx: Any) -> None:
            await turns(5)
            out.append(name)

        return hook

    agent = Agent(ScriptedModel([call("work")], "done"), tools=[work])
    for point in ("onChatStart", "preRequest", "preToolCall", "onToolCallResult", "onChatDone"):
        agent.add_hook(point, slow(point))  # type: ignore[call-overload]
    await agent.chat("hi")
    assert out == [
        "onChatStart", "preRequest", "preToolCall", "tool", "onToolCallResult", "preRequest",
        "onChatDone",
    ]  # fmt: skip


@pytest.mark.parametrize("ending", ["done", "stopped", "error", "abort", "tool error", "max steps"])
async def test_hooks_do_not_fire_on_some_paths(ending: str) -> None:
    """Collected or streamed, the same hooks fire, however it ends."""
    traces: list[list[str]] = []
    for form in ("chat", "stream"):
        wishes = [call("add", a=1, b="x" if ending == "tool error" else 2)]
        last: Any = LookupError("x") if ending == "error" else "done"
        agent = Agent(ScriptedModel(wishes, last), tools=[add],
                      limits=Limits(steps=1 if ending == "max steps" else 20))  # fmt: skip
        trace: list[str] = []
        agent.add_hook(
            "onHook", lambda ctx, trace=trace: trace.append(f"{ctx.point} {ctx.outcome}")
        )
        for point in (
            "onChatStart", "preMessage", "onMessage", "preRequest", "onResponse", "preToolCall",
            "onToolCallResult", "onToolCallError", "preStop", "onChatDone", "onChatAbort",
            "onChatError", "onChatEnd",
        ):  # fmt: skip
            agent.add_hook(point, lambda ctx: None)  # type: ignore[call-overload]
        if ending == "stopped":
            agent.add_hook("onStep", lambda ctx: Stop("enough"))
        elif ending == "abort":
            agent.add_hook("onStep", lambda ctx: ctx.run.abort() and None)
        with suppress(LookupError, ChatAbortedError, MaxStepsError):
            if form == "chat":
                await agent.chat("hi")
            else:
                await collect(agent.chat_stream("hi"))
        traces.append(trace)
    assert traces[0] == traces[1]
    assert traces[0][-1] == "onChatEnd ok"


async def test_a_telemetry_hook_breaks_the_tools(caplog: pytest.LogCaptureFixture) -> None:
    """`on_error="log"`: its failure is logged, the tool's result stands."""

    async def telemetry(ctx: Any, proceed: Any) -> Any:
        await proceed()
        raise LookupError("the exporter's own")

    conversation = Conversation()
    agent = Agent(ScriptedModel([call("add", a=1, b=2)], "done"), tools=[add])
    agent.add_hook("aroundToolCall", telemetry, on_error="log")
    await agent.chat("hi", conversation=conversation)
    assert conversation.messages[2].text == "3"
    assert "telemetry" in caplog.text


async def test_a_hung_hook_wedges_the_loop() -> None:
    """With a timeout it ends the chat; other chats go on meanwhile."""

    async def hung(ctx: object) -> None:
        await asyncio.Event().wait()

    agent = Agent(ScriptedModel("hello"))
    agent.add_hook("onResponse", hung, timeout=0.01)
    other = asyncio.create_task(Agent(ScriptedModel("fine")).chat("hi"))
    with pytest.raises(HookTimeoutError):
        await agent.chat("hi")
    assert (await other).text == "fine"


async def test_one_hung_guard_bricks_the_agent_until_restart() -> None:
    """Its time limit is per call: the call is refused, the next one is decided anew."""
    hangs = [True]

    async def guard(ctx: object) -> None:
        if hangs.pop() if hangs else False:
            await asyncio.Event().wait()

    conversation = Conversation()
    wish = call("add", a=1, b=2)
    agent = Agent(ScriptedModel([wish], [wish], "done"), tools=[add])
    agent.add_hook("preToolCall", guard, timeout=0.01, on_error="deny")
    await agent.chat("hi", conversation=conversation)
    assert results(conversation) == ["denied", "ok"]


@pytest.mark.parametrize("how", ["raises", "hangs"])
@pytest.mark.parametrize("on_error", ["raise", "deny"])
async def test_a_broken_guard_lets_the_tool_run(how: str, on_error: Any) -> None:
    """It fails closed: the chat ends, or that call is refused; the tool never runs."""
    ran: list[str] = []

    @tool
    async def touch() -> None:
        ran.append("ran")

    async def guard(ctx: object) -> None:
        if how == "raises":
            raise LookupError("the guard's own")
        await asyncio.Event().wait()

    agent = Agent(ScriptedModel([call("touch")], "done"), tools=[touch])
    agent.add_hook("preToolCall", guard, timeout=0.01, on_error=on_error)
    with suppress(LookupError, HookTimeoutError):
        await agent.chat("hi")
    assert ran == []


async def test_a_hook_removed_during_a_dispatch_makes_the_next_one_skipped() -> None:
    out: list[str] = []
    agent = Agent(ScriptedModel("hello"))

    def first(ctx: object) -> None:
        out.append("first")
        dispose()

    dispose = agent.add_hook("onChatStart", first)
    agent.add_hook("onChatStart", lambda ctx: out.append("second"))
    agent.add_hook("onChatStart", lambda ctx: out.append("third"))
    await agent.chat("hi")
    assert out == ["first", "second", "third"]


@pytest.mark.parametrize("place", ["hook", "tool"])
async def test_a_chat_inside_a_chat_on_the_same_conversation_deadlocks(place: str) -> None:
    """It is refused at once: `ConversationBusyError`, and the first chat goes on."""
    conversation = Conversation()
    said: list[str] = []

    async def inside() -> None:
        try:
            await agent.chat("again", conversation=conversation)
        except ConversationBusyError as exc:
            said.append(type(exc).__name__)

    @tool
    async def nested() -> None:
        await inside()

    agent = Agent(ScriptedModel([call("nested")], "done"), tools=[nested])

    async def hook(ctx: object) -> None:
        if place == "hook":
            await inside()

    agent.add_hook("preToolCall", hook)
    await agent.chat("hi", conversation=conversation)
    assert said == ["ConversationBusyError"] * (2 if place == "hook" else 1)


async def test_a_hook_that_adds_a_hook_deadlocks() -> None:
    """Registering takes no lock that a dispatch holds; the new one waits for the next dispatch."""
    out: list[str] = []
    agent = Agent(ScriptedModel([call("add", a=1, b=2)], "done"), tools=[add])

    def adding(ctx: Any) -> None:
        if ctx.iteration == 0:
            agent.add_hook("preRequest", lambda ctx: out.append(f"added {ctx.iteration}") or None)

    agent.add_hook("preRequest", adding)
    await agent.chat("hi")
    assert out == ["added 1"]


async def test_a_throw_in_a_wrapper_s_teardown_skips_the_outer_wrappers() -> None:
    out: list[str] = []

    def wrapper(name: str) -> Any:
        async def around(ctx: Any, proceed: Any) -> Any:
            try:
                return await proceed()
            finally:
                out.append(name)
                if name == "inner":
                    raise LookupError("in the teardown")

        return around

    agent = Agent(ScriptedModel("hello"))
    for name in ("outer", "middle", "inner"):
        agent.add_hook("aroundRequest", wrapper(name))
    with pytest.raises(LookupError, match="in the teardown"):
        await agent.chat("hi")
    assert out == ["inner", "middle", "outer"]


# ── errors and memory ───────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("what", ["model", "hook", "one wrapper of two", "two wrappers", "abort"])
async def test_exception_groups_reach_the_user(what: str) -> None:
    """A single error is never wrapped, and of two the first comes out."""

    async def wrapper(ctx: Any, proceed: Any) -> Any:
        if ctx.call.arguments["a"] == 1 or what == "two wrappers":
            raise LookupError("mine")
        return await proceed()

    def fails(ctx: Any) -> None:
        raise LookupError("mine")

    model = (
        LookupError("mine") if what == "model" else [call("add", a=1, b=2), call("add", a=2, b=2)]
    )
    agent = Agent(ScriptedModel(model), tools=[add])
    if what == "hook":
        agent.add_hook("onResponse", fails)
    elif what == "abort":
        agent.add_hook("preToolCall", lambda ctx: ctx.run.abort("mine") and None)
    else:
        agent.add_hook("aroundToolCall", wrapper)
    with pytest.raises((LookupError, ChatAbortedError), match="mine") as caught:
        await collect(agent.chat_stream("hi"))
    assert not isinstance(caught.value, BaseExceptionGroup)


async def test_the_traceback_grows_with_the_length_of_the_chat() -> None:
    """Raised through each layer once: 50 steps before it make it no longer."""
    depths: list[int] = []
    for steps in (0, 50):
        wishes = [[call("add", a=1, b=2)]] * steps
        agent = Agent(
            ScriptedModel(*wishes, LookupError("mine")), tools=[add], limits=Limits(steps=100)
        )
        with pytest.raises(LookupError) as caught:
            await agent.chat("hi")
        depths.append(len(traceback.extract_tb(caught.value.__traceback__)))
    assert depths[0] == depths[1] < 30


async def test_the_exception_of_a_stream_tells_where_it_was_raised_like_that_of_a_chat() -> None:
    """Its event has a description, which is no reason to cut the traceback."""
    found: list[list[str]] = []
    for run in (lambda agent: agent.chat("hi"), lambda agent: collect(agent.chat_stream("hi"))):
        with pytest.raises(LookupError) as caught:
            await run(Agent(ScriptedModel(LookupError("mine"))))
        names = [frame.name for frame in traceback.extract_tb(caught.value.__traceback__)]
        found.append(names[names.index("_main") :])  # from the task of the chat on
    assert found[0] == found[1]


async def test_coroutines_are_left_unawaited() -> None:
    """Whatever is cut short, Python has no 'was never awaited' to say (it would fail the test)."""
    for rounds in range(6):
        agent = Agent(ScriptedModel([call("hang"), call("add", a=1, b=2)]), tools=[hang, add])
        agent.add_hook("preToolCall", lambda ctx: ctx.run.abort() and None)
        stream = agent.chat_stream("hi")
        for _ in range(rounds):
            await anext(stream)
        await stream.aclose()
        del stream
    gc.collect()


async def test_agents_are_never_freed() -> None:
    agent = Agent(ScriptedModel([call("add", a=1, b=2)], "done", "again"), tools=[add])
    agent.add_hook("onMessage", lambda ctx: None)
    with agent.subscribe():
        await agent.chat("hi")
    await collect(agent.chat_stream("hi"))
    freed = weakref.ref(agent)
    del agent
    await turns()
    gc.collect()
    assert freed() is None


async def test_a_slow_reader_makes_memory_grow() -> None:
    """What is produced waits with the producer: it has made 100 of 100,000 chunks at most."""
    made = 0

    class Fast:
        async def stream(self, request: Any) -> AsyncIterator[Any]:
            nonlocal made
            for _ in range(100_000):
                made += 1
                yield TextChunk("x" * 1000)
            yield Finish()

    async with Agent(Fast()).chat_stream("hi") as stream:
        async for event in stream:
            if isinstance(event, TextDelta):
                await turns(200)
                break
    assert made < 100


# ── concurrency, loops, threads ─────────────────────────────────────────────────────────────


async def test_two_chats_at_once_corrupt_a_conversation() -> None:
    conversation = Conversation()
    stall = Stall()
    agent = Agent(ScriptedModel(Turn("first", delay=stall), "second"))
    first = asyncio.create_task(agent.chat("one", conversation=conversation))
    await stall.reached.wait()
    before = conversation.messages
    with pytest.raises(ConversationBusyError):
        await agent.chat("two", conversation=conversation)
    assert conversation.messages == before
    stall.go.set()
    await first
    assert [m.text for m in conversation.messages] == ["one", "first"]


async def test_two_users_of_one_agent_see_each_other() -> None:
    async def echo(request: Any) -> Any:
        await asyncio.sleep(0)
        return " + ".join(message.text for message in request.messages)

    agent = Agent(ScriptedModel(*[echo] * 20))
    chats = [agent.chat(f"user {n}", state={"n": n}) for n in range(20)]
    responses = await asyncio.gather(*chats)
    assert [response.text for response in responses] == [f"user {n}" for n in range(20)]


def test_an_agent_is_bound_to_a_dead_event_loop() -> None:
    """One agent, one conversation, one bus: in one loop after another."""
    conversation = Conversation()
    agent = Agent(ScriptedModel(*[[call("add", a=1, b=2)], "done"] * 3), tools=[add])
    agent.add_hook("preToolCall", asyncio_friendly, timeout=10)
    for _ in range(3):
        response = asyncio.run(agent.chat("hi", conversation=conversation))
        assert response.text == "done"
    assert len(conversation.messages) == 12


async def asyncio_friendly(ctx: object) -> None:
    await asyncio.sleep(0)


def test_a_conversation_stays_busy_after_its_loop_has_died() -> None:
    """`asyncio.run` ends in mid-chat: the next loop can go on with it."""
    conversation = Conversation()
    agent = Agent(ScriptedModel(Turn("hello", delay=Stall()), "fine"))

    async def dies() -> None:
        task = asyncio.create_task(agent.chat("hi", conversation=conversation))
        await turns()
        assert not task.done()

    asyncio.run(dies())
    assert not conversation.busy
    assert asyncio.run(agent.chat("again", conversation=conversation)).text == "fine"


async def test_a_sync_tool_blocks_the_loop() -> None:
    """It waits for something that only the loop can bring."""
    loop = asyncio.get_running_loop()

    @tool
    def blocking() -> str:
        return asyncio.run_coroutine_threadsafe(asyncio.sleep(0, "from the loop"), loop).result(10)

    conversation = Conversation()
    agent = Agent(ScriptedModel([call("blocking")], "done"), tools=[blocking])
    await agent.chat("hi", conversation=conversation)
    assert conversation.messages[2].text == "from the loop"


@pytest.mark.xfail(strict=True, reason="the thread is one that Python waits for when it ends")
async def test_a_hung_sync_tool_hangs_the_process_again_when_it_ends() -> None:
    """Its thread is left behind: neither the chat, nor the loop, nor the process waits for it."""
    loop, began, let_go = asyncio.get_running_loop(), asyncio.Event(), threading.Event()
    threads: list[threading.Thread] = []

    @tool
    def hung() -> None:
        threads.append(threading.current_thread())
        loop.call_soon_threadsafe(began.set)
        let_go.wait(30)

    agent = Agent(ScriptedModel([call("hung")]), tools=[hung], limits=Limits(grace=0.05))
    try:
        async with agent.chat_stream("hi"):
            await began.wait()
        assert threads[0].is_alive()
        assert threads[0].daemon
    finally:
        let_go.set()


async def test_a_chat_in_a_sync_tool_deadlocks() -> None:
    """A thread of its own, a loop of its own: the inner chat runs."""
    inner = Agent(ScriptedModel("inner"))

    @tool
    def nested() -> str:
        return asyncio.run(inner.chat("hi")).text

    conversation = Conversation()
    agent = Agent(ScriptedModel([call("nested")], "done"), tools=[nested])
    await agent.chat("hi", conversation=conversation)
    assert conversation.messages[2].text == "inner"


# ── what models write ───────────────────────────────────────────────────────────────────────

BROKEN = {
    "cut": '{"path": "/home/me/ol',
    "cut in a string": '{"path": "/", "keep": "yes',
    "trailing text": '{"path": "/home/me"} and then',
    "a list": '["/"]',
    "single quotes": "{'path': '/'}",
    "duplicate keys": '{"path": "/home/me/old", "path": "/"}',
    "twice": '{"path": "/a"}{"path": "/b"}',
}


@pytest.mark.parametrize("raw", BROKEN.values(), ids=BROKEN)
async def test_broken_arguments_are_repaired_and_the_wrong_thing_runs(raw: str) -> None:
    """Never repaired: the tool does not run, and the model is told what is wrong."""
    ran: list[str] = []

    @tool
    async def delete(path: str = "/", keep: str = "no") -> None:
        ran.append(path)

    conversation = Conversation()
    model = ScriptedModel([raw_call("delete", raw)], "sorry")
    await Agent(model, tools=[delete]).chat("hi", conversation=conversation)
    assert ran == []
    assert results(conversation) == ["error"]
    assert "ToolArgumentsError" in conversation.messages[2].text


async def test_a_truncated_call_that_is_reported_as_complete_runs() -> None:
    """`finish_reason="tool_calls"` does not make half an argument whole."""
    ran: list[str] = []

    @tool
    async def delete(path: str) -> None:
        ran.append(path)

    cut = Turn(raw_call("delete", '{"path": "/home'), finish_reason="tool_calls")
    await Agent(ScriptedModel(cut, "sorry"), tools=[delete]).chat("hi")
    assert ran == []


async def test_duplicate_call_ids_make_duplicate_results() -> None:
    """Ids are made unique first: each call has one result, and none is taken for another's."""
    seen: list[int] = []

    @tool
    async def note(n: int) -> int:
        seen.append(n)
        return n

    conversation = Conversation()
    wish = [
        call("note", n=1, call_id="x"),
        call("note", n=2, call_id="x"),
        call("note", n=3, call_id="x"),
    ]
    agent = Agent(ScriptedModel(wish, [call("note", n=4, call_id="x")], "done"), tools=[note])
    await agent.chat("hi", conversation=conversation)
    check_history(conversation.messages)
    ids = [m.call_id for m in conversation.messages if isinstance(m, ToolMessage)]
    assert len(set(ids)) == 4
    told = [m.text for m in conversation.messages if isinstance(m, ToolMessage)]
    assert (sorted(seen), told) == ([1, 2, 3, 4], ["1", "2", "3", "4"])


async def test_a_call_without_an_id_ends_the_chat() -> None:
    chunks = [
        ToolCallChunk(index=0, name="add", arguments='{"a": 1, "b": 2}'),
        ToolCallChunk(index=1, id="", name="add", arguments='{"a": 1, "b": "x"}'),
        Finish(finish_reason="tool_calls"),
    ]
    conversation = Conversation()
    agent = Agent(ScriptedModel(Turn(raw_chunks=chunks), "done"), tools=[add])
    assert (await agent.chat("hi", conversation=conversation)).text == "done"
    assert results(conversation) == ["ok", "error"]


async def test_an_unknown_tool_ends_the_chat() -> None:
    """The model is told, with the names that there are, and may do better."""
    conversation = Conversation()
    agent = Agent(ScriptedModel([call("ad")], "sorry"), tools=[add])
    assert (await agent.chat("hi", conversation=conversation)).text == "sorry"
    assert "add" in conversation.messages[2].text


async def test_lone_surrogates_break_the_history() -> None:
    """From the user, the model and a tool: everything can still be written as JSON."""

    @tool
    async def odd() -> str:
        return "tool \ud83d"

    conversation = Conversation()
    agent = Agent(ScriptedModel(Turn("model \udc00", call("odd")), "done"), tools=[odd])
    events = await collect(agent.chat_stream("user \ud800", conversation=conversation))
    for item in (*events, *conversation.messages):
        item.to_json().decode()
    for message in conversation.messages:
        message.text.encode()


async def test_a_surrogate_pair_cut_in_two_is_lost() -> None:
    """Two chunks with half a character each: told as replacement or joined, never as an error."""
    agent = Agent(
        ScriptedModel(Turn(raw_chunks=[TextChunk("\ud83d"), TextChunk("\ude00"), Finish()]))
    )
    response = await agent.chat("hi")
    response.text.encode()
    assert response.text


async def test_a_huge_tool_output_fills_the_context() -> None:
    """It is cut at the limit, and says so."""

    @tool
    async def huge() -> str:
        return "ä" * 5_000_000

    conversation = Conversation()
    agent = Agent(ScriptedModel([call("huge")], "done"), tools=[huge])
    await agent.chat("hi", conversation=conversation)
    said = conversation.messages[2].text
    assert len(said.encode()) < 262_144 + 200
    assert "truncated" in said


async def test_huge_arguments_fill_the_memory() -> None:
    ran: list[int] = []

    @tool
    async def take(data: str) -> None:
        ran.append(len(data))

    conversation = Conversation()
    piece = "x" * 100_000
    chunks = [ToolCallChunk(index=0, id="c", name="take", arguments='{"data": "')]
    chunks += [ToolCallChunk(index=0, arguments=piece) for _ in range(30)]
    chunks += [ToolCallChunk(index=0, arguments='"}')]
    turn = Turn(raw_chunks=[*chunks, Finish(finish_reason="tool_calls")])
    await Agent(ScriptedModel(turn, "sorry"), tools=[take]).chat("hi", conversation=conversation)
    assert (ran, results(conversation)) == ([], ["error"])


async def test_the_limit_of_tool_calls_is_soft() -> None:
    """The 65th call of a step does not run, and is answered."""
    ran: list[int] = []

    @tool
    async def note(n: int) -> None:
        ran.append(n)

    conversation = Conversation()
    agent = Agent(ScriptedModel([call("note", n=n) for n in range(70)], "done"), tools=[note])
    await agent.chat("hi", conversation=conversation)
    assert len(ran) == 64
    assert results(conversation) == ["ok"] * 64 + ["error"] * 6


async def test_a_model_that_calls_tools_for_ever_never_stops() -> None:
    class Loops:
        calls = 0

        async def stream(self, request: Any) -> AsyncIterator[Any]:
            self.calls += 1
            yield ToolCallChunk(index=0, name="add", arguments='{"a": 1, "b": 2}')
            yield Finish(finish_reason="tool_calls")

    model = Loops()
    with pytest.raises(MaxStepsError):
        await Agent(model, tools=[add]).chat("hi")
    assert model.calls == 20


async def test_a_retry_doubles_the_text_that_was_shown() -> None:
    """The reader is told to forget the first attempt; the history has the second alone."""

    async def retry(ctx: Any, proceed: Any) -> Any:
        try:
            return await proceed()
        except LookupError:
            return await proceed()

    agent = Agent(ScriptedModel(Turn("hel", fail=LookupError("once")), "hello"))
    agent.add_hook("aroundRequest", retry)
    conversation = Conversation()
    events = await collect(agent.chat_stream("hi", conversation=conversation))
    kinds = [type(e) for e in events if isinstance(e, StepStarted | TextDelta | ResponseReset)]
    assert kinds == [StepStarted, TextDelta, ResponseReset, TextDelta]
    assert [m.text for m in conversation.messages] == ["hi", "hello"]
    assert isinstance(events[-1], ChatDone)


async def test_a_retry_runs_a_tool_twice() -> None:
    """Only a tool that is declared `idempotent` may be run again by a wrapper."""
    ran: list[str] = []

    @tool
    async def pay() -> None:
        ran.append("paid")
        raise LookupError("after the payment")

    async def retry(ctx: Any, proceed: Any) -> Any:
        result = await proceed()
        return await proceed() if isinstance(result, ToolFailure) else result

    agent = Agent(ScriptedModel([call("pay")], "done"), tools=[pay])
    agent.add_hook("aroundToolCall", retry)
    with pytest.raises(Exception, match="idempotent"):
        await agent.chat("hi")
    assert ran == ["paid"]


# ── secrets and approvals ───────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("path", ["hook", "retry", "tool", "end", "late"])
async def test_a_secret_is_logged_only_on_one_path(
    path: str, caplog: pytest.LogCaptureFixture
) -> None:
    """The text of an exception is never in a record at the default levels, on no path."""
    caplog.set_level(logging.INFO, logger="hookline")
    secret = "sk-hunter2"

    def fails(ctx: object) -> None:
        raise LookupError(secret)

    @tool
    async def leaky() -> None:
        raise LookupError(secret)

    agent = Agent(ScriptedModel([call("leaky")], secret), tools=[leaky])
    if path == "hook":
        agent.add_hook("onResponse", fails, on_error="log")
    elif path == "retry":

        async def retry(ctx: Any, proceed: Any) -> Any:
            raise LookupError(secret)

        agent.add_hook("aroundRequest", retry, on_error="log")
    elif path == "end":
        agent.add_hook("onChatEnd", fails)
    elif path == "late":
        agent.add_hook("onChatDone", fails)
        agent.add_hook("onChatDone", fails)
    with suppress(LookupError):
        await collect(agent.chat_stream(secret))
    assert (caplog.text == "") == (path == "tool")
    assert secret not in caplog.text


async def test_what_runs_is_not_what_was_approved() -> None:
    """Name, arguments and call id of the request are those of the call that runs."""
    ran: list[Any] = []

    @tool
    async def pay(amount: int, run: Run[Any]) -> None:
        ran.append((run.call_id, amount))

    conversation = Conversation()
    agent = Agent(ScriptedModel([call("pay", amount=5, call_id="c1")], "done"), tools=[pay])
    agent.add_hook("preToolCall", lambda ctx: Ask("pay?"))
    agent.add_hook(
        "preToolCall", lambda ctx: ctx.call.replace(arguments={"amount": 7}), priority=-1
    )
    await agent.chat("hi", conversation=conversation)
    (asked,) = conversation.pending
    await agent.resume(conversation, {asked.id: Approve()})
    assert ran == [(asked.call.id, asked.call.arguments["amount"])] == [("c1", 7)]


async def test_a_status_of_one_chat_is_seen_in_another() -> None:
    """Side by side on one agent: each stream has its own events alone."""

    @tool
    async def report(n: int, run: Run[Any]) -> None:
        for _ in range(5):
            await run.status("mine", n)
            await asyncio.sleep(0)

    agent = Agent(
        ScriptedModel(*[lambda request: wish(request.messages[0].text)] * 5, *["done"] * 5),
        tools=[report],
    )

    def wish(said: str) -> Any:
        return [call("report", n=int(said))]

    streams = [agent.chat_stream(str(n)) for n in range(5)]
    for n, events in enumerate(await asyncio.gather(*map(collect, streams))):
        assert [event.data for event in events if isinstance(event, Status)] == [n] * 5
        assert {event.chat_id for event in events} == {streams[n].chat_id}
        assert text(events) == "done"


@pytest.mark.parametrize("size", [8_192, 8_193, 20_000_000], ids=["whole", "cut", "huge"])
async def test_the_text_of_an_error_event_is_bounded_and_the_exception_is_whole(size: int) -> None:
    raised = LookupError("x" * size)
    agent = Agent(ScriptedModel(raised))
    seen = agent.subscribe(ChatFailed)
    with pytest.raises(LookupError) as caught:
        await agent.chat("hi")
    assert caught.value is raised
    text = (await anext(seen)).error.message
    if size == 8_192:
        assert text == "x" * size
    else:
        cut = f"\n[truncated: the first 8192 of {size} characters]"
        assert text == "x" * 8_192 + cut
