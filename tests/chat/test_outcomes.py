"""Outcomes: exactly one of done, abort and error after each start; what an early end leaves."""

# ruff: noqa: PT012 - that a whole block of reading raises is what is tested

from __future__ import annotations

import asyncio
import gc
import logging
import sys
import threading
from collections.abc import AsyncIterator, Callable
from contextlib import suppress
from typing import Any, cast

import pytest
from tests._event_grammar import check_events
from tests._every_point import compacting

from hookline import (
    Agent,
    Approve,
    Ask,
    AssistantMessage,
    Conversation,
    Limits,
    MemoryStore,
    ModelResponse,
    Reasoning,
    Run,
    Scope,
    Stop,
    Text,
    ToolMessage,
    check_history,
    tool,
)
from hookline._chat.channel import HIGH_WATER
from hookline._chat.state import RUNNING
from hookline._chat.steering import send
from hookline.errors import (
    ChatAbortedError,
    HookError,
    MaxStepsError,
    ModelError,
    StopChat,
    StreamInterruptedError,
)
from hookline.events import (
    ChatAborted,
    ChatFailed,
    MessageAdded,
    PartEnd,
    ResponseReset,
    Status,
    TextDelta,
    ToolCallStarted,
)
from hookline.models import Finish, TextChunk, ToolCallChunk
from hookline.points import TABLE
from hookline.storage import Change
from hookline.testing import ScriptedModel, Turn, call, collect, raw_call

FULL = HIGH_WATER + 1  # events after which a writer waits
OUTSIDE = {"onScopeRegister", "onScopeUnregister", "preMessageUpdate", "onMessageUpdate"}
POINTS = [name for name in TABLE if name not in OUTSIDE]  # those fire outside of chats


@pytest.fixture
def loud() -> None:
    """The test expects a warning in the log."""


@pytest.fixture(autouse=True)
async def nothing_left(
    request: pytest.FixtureRequest, caplog: pytest.LogCaptureFixture
) -> AsyncIterator[None]:
    """No test leaves a task behind, and none makes hookline complain without expecting it."""
    yield
    assert asyncio.all_tasks() - {asyncio.current_task()} == set()  # type: ignore[arg-type]
    if "loud" not in request.fixturenames:
        said = [r for when in ("setup", "call") for r in caplog.get_records(when)]
        assert [r.getMessage() for r in said if r.levelno >= logging.WARNING] == []


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


async def stubbornly(let_go: asyncio.Event) -> None:
    """Wait, and ignore one cancellation (a second one, as at a loop's end, is obeyed)."""
    with suppress(asyncio.CancelledError):
        await let_go.wait()
    await let_go.wait()


async def turns(times: int = 60) -> None:
    for _ in range(times):
        await asyncio.sleep(0)


def outcomes(agent: Agent[Any]) -> list[str]:
    """The trace of an agent's outcome hooks."""
    out: list[str] = []
    agent.add_hook("onChatStart", lambda ctx: out.append("start"))
    agent.add_hook("onChatDone", lambda ctx: out.append("done"))
    agent.add_hook("onChatAbort", lambda ctx: out.append(f"abort {ctx.reason}"))
    agent.add_hook("onChatError", lambda ctx: out.append(f"error {type(ctx.error).__name__}"))
    agent.add_hook("onChatEnd", lambda ctx: out.append(f"end {ctx.outcome}"))
    return out


def lines(conversation: Conversation) -> list[str]:
    """The history in short: `user hi`, `assistant* he` (partial), `tool aborted`."""
    out: list[str] = []
    for message in conversation.messages:
        if isinstance(message, ToolMessage):
            out.append(f"tool {message.outcome}")
        elif isinstance(message, AssistantMessage):
            mark = "*" if message.partial else ""
            calls = [f"{each.name}()" for each in message.tool_calls]
            said = [message.text] if message.text else []
            out.append(" ".join([f"assistant{mark}", *said, *calls]))
        else:
            out.append(f"user {message.text}")
    return out


@tool
async def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


@tool
async def boom() -> None:
    """Fail."""
    raise LookupError("the tool's own")


@tool
async def hang() -> None:
    """Never return."""
    await asyncio.Event().wait()


# ── exactly one outcome ─────────────────────────────────────────────────────────────────────


class Full:
    """A chat in which every point fires: two calls (one fails), an approval, a status, input."""

    def __init__(self) -> None:
        @tool
        async def report(run: Run[Any]) -> int:
            await run.status("working")
            send(RUNNING[run.chat_id], "hurry", "next")
            return 1

        wish = [Text("let me see"), call("report", call_id="c1"), call("boom", call_id="c2")]
        self.model = ScriptedModel(wish, "done")
        self.conversation = Conversation()
        self.agent: Agent[Any] = Agent(
            self.model,
            tools=[report, boom],
            approver=lambda request, run: Approve(),
        )
        self.trace = outcomes(self.agent)
        self.fired: set[str] = set()
        self.agent.add_hook("preToolCall", lambda ctx: Ask("may I?"), tools=["report"])
        self.agent.add_hook("preRequest", compacting)

    def hook(self, point: str, act: Callable[[Any], Any], before: bool = True) -> None:
        """Let `act` happen at a point; at a wrapper before or after it has proceeded."""

        async def wrapper(ctx: Any, proceed: Any) -> Any:
            self.fired.add(point)
            if before:
                act(ctx)
                return await proceed()
            result = await proceed()
            act(ctx)
            return result

        async def other(ctx: Any) -> None:
            self.fired.add(point)
            act(ctx)

        fn: Any = wrapper if TABLE[point].kind == "wrapper" else other
        self.agent.add_hook(point, fn, priority=-1)  # type: ignore[call-overload]

    async def run(self) -> BaseException | None:
        try:
            await self.agent.chat("hi", conversation=self.conversation)
        except Exception as exc:
            return exc
        return None


async def test_the_full_chat_fires_every_point() -> None:
    """The tests below would prove nothing at a point that does not fire."""
    fired: set[str] = set()
    for ends in ("done", "aborted", "error"):
        full = Full()
        for point in POINTS:
            full.hook(point, lambda ctx: None)
        if ends == "aborted":
            full.hook("onStep", lambda ctx: ctx.run.abort())
        elif ends == "error":
            full.hook("onStep", lambda ctx: 1 / 0)
        await full.run()
        fired |= full.fired
    assert fired == set(POINTS)


def throw(ctx: object) -> None:
    raise LookupError("the hook's own")


LOGGED = {"onChatAbort", "onChatError", "onChatEnd", "onHook"}  # throws there are logged


@pytest.mark.parametrize("point", POINTS)
async def test_one_outcome_when_a_hook_throws(point: str, loud: None) -> None:
    """'Each `onChatStart` is followed by exactly one …, crash of a hook – and then `onChatEnd`'."""
    full = Full()
    full.hook(point, throw)
    error = await full.run()
    if point in LOGGED:
        assert error is None
        assert full.trace == ["start", "done", "end done"]
    elif point == "aroundChat":
        assert full.trace == []  # before proceed: the caller alone
    elif point == "onChatDone":
        assert full.trace == ["start", "done", "end done"]
    else:
        assert full.trace == ["start", "error LookupError", "end error"]
    if point not in LOGGED:
        assert isinstance(error, LookupError)
    check_history(full.conversation.messages)
    assert not full.conversation.busy


@pytest.mark.parametrize("point", ["aroundChat", "aroundRequest", "aroundToolCall"])
async def test_one_outcome_when_a_wrapper_throws_afterwards(point: str) -> None:
    full = Full()
    full.hook(point, throw, before=False)
    assert isinstance(await full.run(), LookupError)
    end = "done" if point == "aroundChat" else "error"
    assert full.trace == [
        "start",
        "done" if point == "aroundChat" else "error LookupError",
        f"end {end}",
    ]
    check_history(full.conversation.messages)


@pytest.mark.parametrize("point", [name for name in POINTS if name not in {"onHook"}])
async def test_one_outcome_when_a_hook_aborts(point: str) -> None:
    """The first of abort, error and the start of the outcome observers decides."""
    full = Full()
    full.hook(point, lambda ctx: ctx.run.abort("why"))
    error = await full.run()
    if point == "aroundChat":
        assert full.trace == []
        assert isinstance(error, ChatAbortedError)
    elif point in {"onChatDone", "onChatEnd", "onChatAbort", "onChatError"}:
        assert error is None
        assert full.trace == ["start", "done", "end done"]
    else:
        assert isinstance(error, ChatAbortedError)
        assert error.reason == "why"
        assert full.trace == ["start", "abort why", "end aborted"]
    check_history(full.conversation.messages)
    assert not full.conversation.busy


@pytest.mark.parametrize("point", [name for name in POINTS if name not in LOGGED])
async def test_one_outcome_when_a_hook_cancels_its_own_task(point: str) -> None:
    """A third party that cancels the owner, from inside: an abort for the hooks."""
    full = Full()
    tasks: list[Any] = []

    def cancel(ctx: object) -> None:
        if not tasks:
            task = asyncio.current_task()
            tasks.append(task)
            assert task is not None
            task.cancel()

    full.hook(point, cancel)
    error = await full.run()
    await turns()
    if error is None:  # nothing was awaited any more: the answer is whole
        assert point in {"onStep", "preCompact", "preSteer", "preStop", "onChatDone"}
        assert full.trace == ["start", "done", "end done"]
    else:
        assert isinstance(error, StreamInterruptedError)
        assert full.trace == ["start", "abort cancelled", "end aborted"]
    assert tasks[0].cancelled()  # who has cancelled it sees that it obeyed
    check_history(full.conversation.messages)
    assert not full.conversation.busy


@pytest.mark.parametrize("what", ["model", "hook", "steps", "no finish", "tool wrapper"])
async def test_one_outcome_on_error(what: str) -> None:
    error = LookupError("mine")
    agents: dict[str, Agent[Any]] = {
        "model": Agent(ScriptedModel(Turn("he", fail=error))),
        "hook": Agent(ScriptedModel("hello"), hooks={"onResponse": throw}),
        "steps": Agent(ScriptedModel([call("boom")]), tools=[boom], limits=Limits(steps=1)),
        "no finish": Agent(ScriptedModel(Turn("he", no_finish=True))),
        "tool wrapper": Agent(ScriptedModel([call("add", a=1, b=2)]), tools=[add]),
    }

    async def wrapper(ctx: Any, proceed: Any) -> Any:
        raise error

    agents["tool wrapper"].add_hook("aroundToolCall", wrapper)
    agent = agents[what]
    trace = outcomes(agent)
    with pytest.raises((LookupError, MaxStepsError, ModelError)) as caught:
        await agent.chat("hi")
    assert trace == ["start", f"error {type(caught.value).__name__}", "end error"]


@pytest.mark.parametrize("how", ["natural", "Stop from preChat", "StopChat", "answered"])
async def test_one_outcome_when_it_is_done(how: str) -> None:
    @tool
    async def stopping() -> None:
        raise StopChat("enough")

    agents: dict[str, Agent[Any]] = {
        "natural": Agent(ScriptedModel("hello")),
        "Stop from preChat": Agent(ScriptedModel(), hooks={"preChat": lambda ctx: Stop("no")}),
        "StopChat": Agent(ScriptedModel([call("stopping")]), tools=[stopping]),
        "answered": Agent(
            ScriptedModel(), hooks={"preRequest": lambda ctx: ModelResponse.of("given")}
        ),
    }
    trace = outcomes(agents[how])
    await agents[how].chat("hi")
    assert trace == ["start", "done", "end done"]


async def test_the_end_knows_the_outcome() -> None:
    """`onChatEnd`: `outcome`, `response?`, `error?`, `usage`, `duration`."""
    seen: list[Any] = []
    for fails in (None, "abort", LookupError("mine")):
        agent = Agent(ScriptedModel("hello" if fails in (None, "abort") else fails))
        if fails == "abort":
            agent.add_hook("onResponse", lambda ctx: ctx.run.abort() and None)
        agent.add_hook("onChatEnd", seen.append)
        with suppress(LookupError, ChatAbortedError):
            await agent.chat("hi")
    done, aborted, error = seen
    assert [each.outcome for each in seen] == ["done", "aborted", "error"]
    assert (done.response.text, done.error) == ("hello", None)
    assert (aborted.response, aborted.error) == (None, None)
    assert (error.response, str(error.error)) == (None, "mine")
    assert [each.usage.output_tokens for each in seen] == [2, 2, 0]
    assert all(each.duration >= 0 for each in seen)


async def test_the_outcome_observers_run_in_order_each_once() -> None:
    agent = Agent(ScriptedModel("hello"))
    out: list[str] = []
    for name, priority in (("low", -1), ("high", 1), ("mid", 0)):
        agent.add_hook("onChatDone", lambda ctx, n=name: out.append(n), priority=priority)
        agent.add_hook("onChatEnd", lambda ctx, n=name: out.append(f"end {n}"), priority=priority)
    await agent.chat("hi")
    assert out == ["high", "mid", "low", "end high", "end mid", "end low"]


# ── the first decides ───────────────────────────────────────────────────────────────────────


async def test_an_abort_after_an_error_is_late() -> None:
    """'a late `abort()` returns False': the error has decided."""
    said: list[bool] = []
    agent = Agent(ScriptedModel(LookupError("mine")))
    trace = outcomes(agent)
    agent.add_hook("onChatError", lambda ctx: said.append(ctx.run.abort()))
    with pytest.raises(LookupError):
        await agent.chat("hi")
    assert said == [False]
    assert trace == ["start", "error LookupError", "end error"]


@pytest.mark.parametrize("point", ["onChatDone", "onChatEnd"])
async def test_an_abort_after_the_start_of_the_outcome_observers_is_late(
    point: Any, caplog: pytest.LogCaptureFixture
) -> None:
    """It changes nothing any more, and 'what comes later is logged'."""
    said: list[bool] = []
    agent = Agent(ScriptedModel("hello"))
    trace = outcomes(agent)
    agent.add_hook(point, lambda ctx: said.append(ctx.run.abort("too much")))
    with caplog.at_level(logging.INFO, "hookline"):
        response = await agent.chat("hi")
    assert "an abort was requested too late" in caplog.text
    assert "too much" not in caplog.text
    assert (response.text, said) == ("hello", [False])
    assert trace == ["start", "done", "end done"]


async def test_an_abort_at_the_last_moment_is_timely() -> None:
    """'looked at after every step and before the outcome'."""
    said: list[bool] = []
    agent = Agent(ScriptedModel("hello"))
    trace = outcomes(agent)
    agent.add_hook("preStop", lambda ctx: said.append(ctx.run.abort("last moment")))
    with pytest.raises(ChatAbortedError):
        await agent.chat("hi")
    assert said == [True]
    assert trace == ["start", "abort last moment", "end aborted"]


async def test_of_two_aborts_the_first_gives_the_reason() -> None:
    said: list[bool] = []

    def twice(ctx: Any) -> None:
        said.extend([ctx.run.abort("first"), ctx.run.abort("second")])

    agent = Agent(ScriptedModel("hello"), hooks={"onResponse": twice})
    with pytest.raises(ChatAbortedError) as caught:
        await agent.chat("hi")
    assert (said, caught.value.reason) == ([True, False], "first")


async def test_an_abort_after_the_chat_is_late() -> None:
    runs: list[Run[Any]] = []
    agent = Agent(ScriptedModel("hello"), hooks={"onChatStart": lambda ctx: runs.append(ctx.run)})
    await agent.chat("hi")
    assert runs[0].abort() is False


async def test_an_abort_that_is_followed_by_a_throw_stays_an_abort(
    loud: None, caplog: pytest.LogCaptureFixture
) -> None:
    """The first decides; what comes later is logged, by its type and its place."""

    def both(ctx: Any) -> None:
        ctx.run.abort("first")
        raise LookupError("second")

    agent = Agent(ScriptedModel("hello"), hooks={"onResponse": both})
    trace = outcomes(agent)
    with pytest.raises(ChatAbortedError):
        await agent.chat("hi")
    assert trace == ["start", "abort first", "end aborted"]
    (record,) = caplog.records
    assert "LookupError" in record.getMessage()
    assert "second" not in caplog.text


async def test_an_abort_by_a_call_beats_its_sibling_s_later_error(
    loud: None, caplog: pytest.LogCaptureFixture
) -> None:
    """The sibling's wrapper fails while it is cancelled: that comes later, and is logged."""

    async def wrapper(ctx: Any, proceed: Any) -> Any:
        try:
            return await proceed()
        except asyncio.CancelledError:
            raise LookupError("in the cleanup") from None

    @tool
    async def aborting(run: Run[Any]) -> None:
        run.abort("first")

    agent = Agent(ScriptedModel([call("hang"), call("aborting")]), tools=[hang, aborting])
    agent.add_hook("aroundToolCall", wrapper, tools=["hang"])
    trace = outcomes(agent)
    with pytest.raises(ChatAbortedError):
        await agent.chat("hi")
    assert trace == ["start", "abort first", "end aborted"]
    gc.collect()
    assert "in the cleanup" not in caplog.text
    assert "never retrieved" not in caplog.text
    assert ["LookupError" in record.getMessage() for record in caplog.records] == [True]


async def test_what_is_raised_while_calls_are_cancelled_twice_is_logged_by_its_type_alone(
    loud: None, caplog: pytest.LogCaptureFixture
) -> None:
    """Nobody is left to raise it to; asyncio would log its text as never retrieved."""
    began, cleaning, go = asyncio.Event(), asyncio.Event(), asyncio.Event()

    async def wrapper(ctx: Any, proceed: Any) -> Any:
        try:
            return await proceed()
        except asyncio.CancelledError:
            cleaning.set()
            await go.wait()
            raise LookupError("in the cleanup") from None

    owners: list[asyncio.Task[Any] | None] = []
    agent = Agent(ScriptedModel([call("hang"), call("hang")]), tools=[hang])
    agent.add_hook("aroundToolCall", wrapper)

    def begin(ctx: Any) -> None:
        owners.append(asyncio.current_task())
        began.set()

    agent.add_hook("onChatStart", begin)
    trace = outcomes(agent)
    task = asyncio.create_task(agent.chat("hi"))
    await began.wait()
    await turns()
    task.cancel()
    await cleaning.wait()
    assert owners[0] is not None
    owners[0].cancel()  # a third party, while the calls still clean up
    await turns()
    go.set()
    with pytest.raises(asyncio.CancelledError):
        await task
    gc.collect()
    assert trace == ["start", "abort cancelled", "end aborted"]
    assert "in the cleanup" not in caplog.text
    assert "never retrieved" not in caplog.text
    assert ["LookupError" in record.getMessage() for record in caplog.records] == [True, True]


async def test_an_error_of_a_call_beats_its_sibling_s_later_abort() -> None:
    said: list[bool] = []

    @tool
    async def late(run: Run[Any]) -> None:
        try:
            await asyncio.Event().wait()
        finally:
            said.append(run.abort("second"))

    async def wrapper(ctx: Any, proceed: Any) -> Any:
        raise LookupError("first")

    agent = Agent(ScriptedModel([call("late"), call("add", a=1, b=2)]), tools=[late, add])
    agent.add_hook("aroundToolCall", wrapper, tools=["add"])
    trace = outcomes(agent)
    with pytest.raises(LookupError, match="first"):
        await agent.chat("hi")
    assert said == [False]
    assert trace == ["start", "error LookupError", "end error"]


async def test_a_consumer_that_leaves_a_done_chat_changes_nothing() -> None:
    """The answer is whole before the reader has read it: leaving is then no abort."""
    agent = Agent(ScriptedModel("hello"))
    trace = outcomes(agent)
    async with agent.chat_stream("hi") as stream:
        await anext(stream)
        await turns()
    assert trace == ["start", "done", "end done"]
    assert stream.response.text == "hello"


async def test_a_cancellation_during_on_chat_done_leaves_the_outcome() -> None:
    """The outcome observers have started: the chat is done, the caller is cancelled."""
    inside = asyncio.Event()
    out: list[str] = []
    agent = Agent(ScriptedModel("hello"))
    trace = outcomes(agent)

    async def slow(ctx: object) -> None:
        inside.set()
        await turns(5)
        out.append("finished")

    agent.add_hook("onChatDone", slow)
    task = asyncio.create_task(agent.chat("hi"))
    await inside.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert out == ["finished"]
    assert trace == ["start", "done", "end done"]


# ── who aborts, and with which reason ───────────────────────────────────────────────────────


@pytest.mark.parametrize("reason", ["why", None])
async def test_chat_raises_chat_aborted_error(reason: str | None) -> None:
    """'`chat()` raises `ChatAbortedError` (`reason`, `partial`)'."""
    agent = Agent(ScriptedModel(Turn("hello", chunk=1)))

    def on_delta(ctx: Any) -> None:
        if getattr(ctx.delta, "text", "") == "l":
            ctx.run.abort(reason)

    agent.add_hook("onDelta", on_delta)
    with pytest.raises(ChatAbortedError) as caught:
        await agent.chat("hi")
    assert caught.value.reason == reason
    assert [message.text for message in caught.value.partial] == ["hi", "he"]


async def test_a_tool_may_abort() -> None:
    @tool
    async def aborting(run: Run[Any]) -> str:
        assert run.abort("by the tool") is True
        return "never read"

    conversation = Conversation()
    agent = Agent(ScriptedModel([call("aborting")]), tools=[aborting])
    with pytest.raises(ChatAbortedError, match="by the tool"):
        await agent.chat("hi", conversation=conversation)
    assert lines(conversation) == ["user hi", "assistant aborting()", "tool aborted"]


async def test_another_thread_may_abort() -> None:
    agent = Agent(ScriptedModel(Turn("hello", delay=Stall())))
    runs: list[Run[Any]] = []
    agent.add_hook("onChatStart", lambda ctx: runs.append(ctx.run))
    task = asyncio.create_task(agent.chat("hi"))
    await turns()
    assert await asyncio.to_thread(runs[0].abort, "from a thread") is True
    with pytest.raises(ChatAbortedError, match="from a thread"):
        await task


async def test_an_approver_may_abort() -> None:
    def approver(request: Any, run: Run[Any]) -> Approve:
        run.abort("by the approver")
        return Approve()

    ran: list[str] = []

    @tool
    async def touch() -> None:
        ran.append("ran")

    agent = Agent(ScriptedModel([call("touch")]), tools=[touch], approver=approver)
    agent.add_hook("preToolCall", lambda ctx: Ask("may I?"))
    with pytest.raises(ChatAbortedError, match="by the approver"):
        await agent.chat("hi")
    assert ran == []


async def test_the_reason_of_a_consumer_that_leaves() -> None:
    agent = Agent(ScriptedModel(Turn("hello", delay=Stall())))
    trace = outcomes(agent)
    async with agent.chat_stream("hi") as stream:
        await anext(stream)
    assert trace == ["start", "abort consumer left", "end aborted"]


async def test_the_reason_of_a_cancelled_caller() -> None:
    """'cancellation stays cancellation', and the hooks have run before it arrives."""
    stall = Stall()
    agent = Agent(ScriptedModel(Turn("hello", delay=stall)))
    trace = outcomes(agent)
    task = asyncio.create_task(agent.chat("hi"))
    await stall.reached.wait()
    task.cancel("the caller's")
    with pytest.raises(asyncio.CancelledError, match="the caller's"):
        await task
    assert trace == ["start", "abort cancelled", "end aborted"]


async def test_a_timeout_around_chat_is_a_timeout() -> None:
    agent = Agent(ScriptedModel(Turn("hello", delay=Stall())))
    trace = outcomes(agent)
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(None) as limit:
            agent.add_hook("preRequest", lambda ctx: limit.reschedule(0))
            await agent.chat("hi")
    assert trace == ["start", "abort cancelled", "end aborted"]


async def test_a_task_group_may_cancel_a_chat() -> None:
    """The sibling's error is the only one in the group."""
    stall = Stall()
    agent = Agent(ScriptedModel(Turn("hello", delay=stall)))
    trace = outcomes(agent)

    async def sibling() -> None:
        await stall.reached.wait()
        raise LookupError("the sibling's")

    with pytest.raises(ExceptionGroup) as caught:
        async with asyncio.TaskGroup() as group:
            group.create_task(agent.chat("hi"))
            group.create_task(sibling())
    assert [str(each) for each in caught.value.exceptions] == ["the sibling's"]
    assert trace == ["start", "abort cancelled", "end aborted"]


async def test_a_caller_cancelled_before_the_first_step_of_the_run() -> None:
    """'Aborted before the first pull: no hook, no write' – the same for `chat()`."""
    conversation = Conversation()
    agent = Agent(ScriptedModel("hello"))
    trace = outcomes(agent)
    task = asyncio.create_task(agent.chat("hi", conversation=conversation))
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert (trace, conversation.messages, conversation.busy) == ([], (), False)


async def test_an_abort_before_around_chat_proceeds_runs_nothing() -> None:
    """What is wrong before that 'reaches the caller alone: no other hook, no event'."""

    async def wrapper(ctx: Any, proceed: Any) -> Any:
        assert ctx.run.abort("not now") is True
        return await proceed()

    agent = Agent(ScriptedModel(), hooks={"aroundChat": wrapper})
    trace = outcomes(agent)
    events: list[Any] = []
    with pytest.raises(ChatAbortedError, match="not now"):
        await collect(agent.chat_stream("hi"), events)
    assert (trace, events) == ([], [])


async def test_a_chat_cancelled_before_its_first_event_tells_no_hook() -> None:
    """The observers of a new scope run first; the chat has not begun until they are done."""
    inside = asyncio.Event()
    agent = Agent(ScriptedModel("hello"))
    trace = outcomes(agent)

    async def slow(ctx: Any) -> None:
        inside.set()
        await asyncio.Event().wait()

    agent.add_hook("onScopeRegister", slow)
    agent.scopes.register(Scope("new"))
    conversation = Conversation()
    task = asyncio.ensure_future(agent.chat("hi", conversation=conversation))
    await inside.wait()
    task.cancel()
    await asyncio.wait([task])
    assert task.cancelled()
    assert trace == []
    assert not conversation.busy


async def test_a_sub_agent_whose_first_event_finds_no_room_has_not_begun() -> None:
    ready = asyncio.Event()
    sub = Agent(ScriptedModel("hello"), name="sub")
    trace = outcomes(sub)
    agent = Agent(ScriptedModel([call("sub", input="go")]), tools=[sub.as_tool()])

    @agent.hook("aroundToolCall")
    async def fill(ctx: Any, proceed: Any) -> Any:
        await ready.wait()
        for _ in range(FULL):
            await ctx.run.status("full")
        return await proceed()

    events: list[Any] = []
    async with agent.chat_stream("hi") as stream:
        async for event in stream:
            events.append(event)
            if isinstance(event, ToolCallStarted):
                ready.set()
                await turns()
                stream.abort()
    check_events(events)
    assert trace == []
    assert {event.path for event in events} == {()}


@pytest.mark.parametrize("room", [0, 1, 2], ids=["reset", "text", "message"])
@pytest.mark.parametrize("point", ["onResponse", "preMessage"])
async def test_an_abort_while_a_changed_answer_is_shown_leaves_what_is_shown(
    point: Any, room: int
) -> None:
    """The reader is slow: the reset, the new text or its message waits for room."""
    ready = asyncio.Event()
    agent = Agent(ScriptedModel("secret"))

    @agent.hook(point)
    async def change(ctx: Any) -> Any:
        value = ctx.response if point == "onResponse" else ctx.message
        if "secret" not in value.text:
            return None
        if not ready.is_set():
            await ready.wait()
            for _ in range(FULL - room):
                await ctx.run.status("full")
        return value.replace(text="***")

    events: list[Any] = []
    conversation = Conversation()
    async with agent.chat_stream("hi", conversation=conversation) as stream:
        async for event in stream:
            events.append(event)
            if isinstance(event, PartEnd) and not ready.is_set():
                ready.set()
                await turns()
                stream.abort()
    check_events(events)
    assert len(lines(conversation)) == (1 if room == 1 else 2)


async def test_an_abort_while_a_failed_attempt_is_taken_back_leaves_what_is_shown() -> None:
    ready = asyncio.Event()
    turn = Turn("he", "llo", fail=ModelError("broken off"), fail_after=1)
    agent = Agent(ScriptedModel(turn, "again"))

    @agent.hook("aroundRequest")
    async def retry(ctx: Any, proceed: Any) -> Any:
        with suppress(ModelError):
            return await proceed()
        await ready.wait()
        for _ in range(FULL):
            await ctx.run.status("full")
        return await proceed()

    events: list[Any] = []
    conversation = Conversation()
    async with agent.chat_stream("hi", conversation=conversation) as stream:
        async for event in stream:
            events.append(event)
            if isinstance(event, TextDelta):
                ready.set()
                await turns()
                stream.abort()
    check_events(events)
    assert lines(conversation) == ["user hi", "assistant* he"]


@pytest.mark.skipif(sys.version_info < (3, 12), reason="new in Python 3.12")
async def test_a_chat_that_was_begun_eagerly_can_be_aborted_at_once() -> None:
    factory: Any = vars(asyncio)["eager_task_factory"]
    asyncio.get_running_loop().set_task_factory(factory)
    agent = Agent(ScriptedModel("hello"))
    trace = outcomes(agent)
    agent.add_hook("preChat", lambda ctx: ctx.run.abort("at once") and None)
    with pytest.raises(ChatAbortedError, match="at once"):
        await agent.chat("hi")
    assert trace == ["start", "abort at once", "end aborted"]


async def test_an_abort_takes_the_sub_agent_along() -> None:
    """The child's chat has its own single outcome, with the parent's reason."""
    stall = Stall()
    child = Agent(ScriptedModel(Turn("hello", delay=stall)), name="child")
    inner = outcomes(child)
    agent = Agent(ScriptedModel([call("child", input="?")]), tools=[child.as_tool()])
    outer = outcomes(agent)
    runs: list[Run[Any]] = []
    agent.add_hook("onChatStart", lambda ctx: runs.append(ctx.run))
    task = asyncio.create_task(agent.chat("hi"))
    await stall.reached.wait()
    runs[0].abort("enough")
    with pytest.raises(ChatAbortedError, match="enough"):
        await task
    assert [inner[0], inner[-1], len(inner)] == ["start", "end aborted", 3]
    assert outer == ["start", "abort enough", "end aborted"]


# ── at once ─────────────────────────────────────────────────────────────────────────────────


async def test_an_abort_cancels_the_model_call_at_once() -> None:
    """'running tools and the model call are cancelled at once'."""
    model = ScriptedModel(Turn("hello", delay=Stall()))
    agent = Agent(model)
    order: list[str] = []
    agent.add_hook("onChatAbort", lambda ctx: order.append(f"hook, {model.cancelled} cancelled"))
    async with agent.chat_stream("hi") as stream:
        await anext(stream)
        await turns()
        assert model.open == 1
    assert order == ["hook, 1 cancelled"]


@pytest.mark.parametrize("number", [1, 3], ids=["lone", "parallel"])
async def test_an_abort_cancels_running_tools_at_once(number: int) -> None:
    order: list[str] = []

    @tool
    async def long() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            order.append("tool cancelled")

    agent = Agent(ScriptedModel([call("long")] * number), tools=[long])
    agent.add_hook("onChatAbort", lambda ctx: order.append("hook"))
    async with agent.chat_stream("hi") as stream:
        async for event in stream:
            if isinstance(event, ToolCallStarted):
                await turns()
                break
    assert order == ["tool cancelled"] * number + ["hook"]


async def test_a_chat_that_never_suspends_can_be_aborted_by_a_hook() -> None:
    """'looked at after every step … so that a chat that never suspends stops too'."""

    class Endless:
        def __init__(self) -> None:
            self.calls = 0

        async def stream(self, request: Any) -> AsyncIterator[Any]:
            self.calls += 1
            yield ToolCallChunk(index=0, id=f"c{self.calls}", name="add", arguments='{"a":1,"b":2}')
            yield Finish(finish_reason="tool_calls")

    model = Endless()
    agent = Agent(model, tools=[add], limits=Limits(steps=1000))
    agent.add_hook("onStep", lambda ctx: None if ctx.iteration < 4 else ctx.run.abort() and None)
    with pytest.raises(ChatAbortedError):
        await agent.chat("hi")
    assert model.calls == 5


@pytest.mark.parametrize("place", ["model", "tool"])
async def test_a_chat_that_never_suspends_can_be_aborted_by_a_thread(place: str) -> None:
    """The loop has no turn in which a cancellation could arrive: the check stops it."""
    now, aborted = threading.Event(), threading.Event()
    runs: list[Run[Any]] = []
    seen: list[int] = []

    def third(number: int) -> None:
        seen.append(number)
        if number == 3:
            now.set()
            aborted.wait(10)

    class Endless:
        calls = 0

        async def stream(self, request: Any) -> AsyncIterator[Any]:
            self.calls += 1
            if place == "model":
                third(self.calls)
            yield ToolCallChunk(index=0, id=f"c{self.calls}", name="work", arguments="{}")
            yield Finish(finish_reason="tool_calls")

    model = Endless()

    @tool
    async def work() -> None:
        if place == "tool":
            third(model.calls)

    def abort() -> None:
        now.wait(10)
        runs[0].abort("by a thread")
        aborted.set()

    agent = Agent(model, tools=[work], limits=Limits(steps=1000))
    agent.add_hook("onChatStart", lambda ctx: runs.append(ctx.run))
    thread = threading.Thread(target=abort)
    thread.start()
    with pytest.raises(ChatAbortedError, match="by a thread"):
        await agent.chat("hi")
    thread.join()
    assert seen == [1, 2, 3]


@pytest.mark.parametrize(
    "place", ["system", "scope context", "tool enabled", "scope enabled", "after Finish"]
)
async def test_a_chat_that_never_suspends_can_be_aborted_by_any_callable(place: str) -> None:
    """What the user gave is called in many places that are no hooks: each is looked at."""
    runs: list[Run[Any]] = []
    asked: list[int] = []

    def abort_at(here: str) -> bool:
        if place == here and runs:
            runs[0].abort("here")
        return True

    class Quick:
        async def stream(self, request: Any) -> AsyncIterator[Any]:
            asked.append(1)
            yield TextChunk("hello")
            yield Finish()
            abort_at("after Finish")

    def system(run: Run[Any]) -> str:
        runs.append(run)
        abort_at("system")
        return "be brief"

    def context() -> str:
        abort_at("scope context")
        return "it rains"

    @tool(enabled=lambda: abort_at("tool enabled"))
    async def idle() -> None: ...

    scope = Scope("s", tools=[idle], context=context, enabled=lambda: abort_at("scope enabled"))
    agent = Agent(Quick(), system=system, scopes=[scope])
    agent.add_hook("onChatStart", lambda ctx: runs.append(ctx.run))
    trace = outcomes(agent)
    conversation = Conversation()
    with pytest.raises(ChatAbortedError, match="here"):
        await agent.chat("hi", conversation=conversation)
    assert asked == ([1] if place == "after Finish" else [])
    assert lines(conversation)[1:] == (["assistant* hello"] if place == "after Finish" else [])
    assert trace == ["start", "abort here", "end aborted"]


# ── abort inside a hook ─────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("point", ["onChatStart", "preRequest", "onDelta", "onResponse", "onStep"])
async def test_after_an_abort_the_hook_s_next_await_is_cancelled(point: str) -> None:
    """'In a hook, `abort()` returns, its next await is cancelled and no later hook … runs'."""
    out: list[str] = []

    async def aborting(ctx: Any) -> None:
        out.append(f"abort returned {ctx.run.abort()}")
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            out.append("its next await was cancelled")
            raise

    agent = Agent(ScriptedModel("hello"))
    agent.add_hook(point, aborting)  # type: ignore[call-overload]
    agent.add_hook(point, lambda ctx: out.append("a later hook ran"))  # type: ignore[call-overload]
    with pytest.raises(ChatAbortedError):
        await agent.chat("hi")
    assert out == ["abort returned True", "its next await was cancelled"]


@pytest.mark.parametrize("point", ["aroundToolCall", "onToolCallResult", "onStatus"])
async def test_after_an_abort_beside_other_calls_the_hook_s_next_await_is_cancelled(
    point: str,
) -> None:
    """The same where calls run in tasks of their own; the very next await, and no turn later."""
    out: list[str] = []

    @tool
    async def work(run: Run[Any]) -> str:
        await asyncio.sleep(0)
        await run.status("working")
        return "worked"

    async def aborting(ctx: Any, proceed: Any = None) -> Any:
        if not ctx.run.abort("enough"):
            return await proceed() if proceed else None
        try:
            await asyncio.sleep(0)
            out.append("went on")
        except asyncio.CancelledError:
            out.append("cancelled")
            raise
        return await proceed() if proceed else None

    agent = Agent(ScriptedModel([call("work"), call("work"), call("work")]), tools=[work])
    agent.add_hook(point, aborting)  # type: ignore[call-overload]
    conversation = Conversation()
    with pytest.raises(ChatAbortedError):
        await agent.chat("hi", conversation=conversation)
    assert out == ["cancelled"]
    check_history(conversation.messages)


@pytest.mark.parametrize("point", ["onChatStart", "preRequest", "onDelta", "onResponse", "onStep"])
async def test_after_an_abort_in_a_sync_hook_no_later_hook_runs(point: str) -> None:
    out: list[str] = []
    agent = Agent(ScriptedModel("hello"))

    def aborting(ctx: Any) -> None:
        ctx.run.abort()
        out.append("the rest of the hook")

    agent.add_hook(point, aborting)  # type: ignore[call-overload]
    agent.add_hook(point, lambda ctx: out.append("a later hook ran"))  # type: ignore[call-overload]
    with pytest.raises(ChatAbortedError):
        await agent.chat("hi")
    assert out == ["the rest of the hook"]


async def test_after_an_abort_in_a_wrapper_nothing_inside_it_runs() -> None:
    model = ScriptedModel("hello")

    async def wrapper(ctx: Any, proceed: Any) -> Any:
        ctx.run.abort("before proceed")
        return await proceed()

    agent = Agent(model, hooks={"aroundRequest": wrapper})
    with pytest.raises(ChatAbortedError):
        await agent.chat("hi")
    assert model.calls == 0


async def test_an_abort_before_a_tool_s_wrapper_proceeds_does_not_run_the_tool() -> None:
    ran: list[str] = []

    @tool
    async def touch() -> None:
        ran.append("ran")

    async def wrapper(ctx: Any, proceed: Any) -> Any:
        ctx.run.abort("before proceed")
        return await proceed()

    agent = Agent(ScriptedModel([call("touch")]), tools=[touch])
    agent.add_hook("aroundToolCall", wrapper)
    with pytest.raises(ChatAbortedError):
        await agent.chat("hi")
    assert ran == []


async def test_a_hook_that_swallows_the_cancellation_does_not_save_the_chat() -> None:
    agent = Agent(ScriptedModel("hello"))
    out: list[str] = []

    async def swallowing(ctx: Any) -> None:
        ctx.run.abort("why")
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            out.append("swallowed")

    agent.add_hook("onResponse", swallowing)
    trace = outcomes(agent)
    with pytest.raises(ChatAbortedError):
        await agent.chat("hi")
    assert out == ["swallowed"]
    assert trace == ["start", "abort why", "end aborted"]


async def test_a_value_returned_after_an_abort_has_no_effect() -> None:
    model = ScriptedModel("hello")

    def answering(ctx: Any) -> Any:
        ctx.run.abort("why")
        return ModelResponse.of("given")

    conversation = Conversation()
    agent = Agent(model, hooks={"preRequest": answering})
    with pytest.raises(ChatAbortedError):
        await agent.chat("hi", conversation=conversation)
    assert lines(conversation) == ["user hi"]


# ── the hooks of an abort ───────────────────────────────────────────────────────────────────


async def test_on_chat_abort_gets_the_partial_messages() -> None:
    """'`onChatAbort` is awaited … and gets the partial messages'."""
    seen: list[Any] = []
    stall = Stall(2)
    agent = Agent(ScriptedModel(Turn("hello", chunk=1, delay=stall)))
    agent.add_hook("onChatAbort", lambda ctx: seen.extend(ctx.partial))
    async with agent.chat_stream("hi") as stream:
        await anext(stream)
        await stall.reached.wait()
    assert [(type(m).__name__, m.text) for m in seen] == [
        ("UserMessage", "hi"),
        ("AssistantMessage", "he"),
    ]
    assert seen[1].partial


async def test_on_chat_abort_is_awaited_under_a_shield() -> None:
    """The abort's cancellation, and further ones, do not reach it."""
    out: list[str] = []
    inside = asyncio.Event()
    agent = Agent(ScriptedModel(Turn("hello", delay=Stall())))

    async def slow(ctx: object) -> None:
        inside.set()
        await turns(10)
        out.append("finished")

    agent.add_hook("onChatAbort", slow)
    task = asyncio.create_task(agent.chat("hi"))
    await turns()
    task.cancel()
    await inside.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert out == ["finished"]


async def test_an_abort_hook_that_hangs_is_cut_off_and_the_others_still_run(
    loud: None, caplog: pytest.LogCaptureFixture
) -> None:
    """'within the grace period': the caller is freed, `onChatEnd` still fires."""
    out: list[str] = []
    agent = Agent(ScriptedModel(Turn("hello", delay=Stall())), limits=Limits(grace=0.05), hooks={})

    async def hanging(ctx: object) -> None:
        await asyncio.Event().wait()

    agent.add_hook("onChatAbort", hanging)
    agent.add_hook("onChatAbort", lambda ctx: out.append("another"))
    agent.add_hook("onChatEnd", lambda ctx: out.append("end"))
    async with agent.chat_stream("hi") as stream:
        await anext(stream)
    assert out == ["another", "end"]
    assert "grace period" in caplog.text


@pytest.mark.parametrize("times", [1, 3])
async def test_cancelling_the_owner_again_does_not_cut_its_ending(times: int) -> None:
    """Under a shield: the stream ends only when the abort's hooks have ended."""
    stall = Stall()
    inside, go_on = asyncio.Event(), asyncio.Event()
    owners: list[Any] = []
    out: list[str] = []
    agent = Agent(ScriptedModel(Turn("hello", delay=stall)))
    agent.add_hook("onChatStart", lambda ctx: owners.append(asyncio.current_task()))

    async def slow(ctx: object) -> None:
        inside.set()
        await go_on.wait()
        out.append("hook ended")

    agent.add_hook("onChatAbort", slow)
    reader = asyncio.create_task(collect(agent.chat_stream("hi")))
    await stall.reached.wait()
    owners[0].cancel()
    await inside.wait()
    for _ in range(times):
        owners[0].cancel()
        await turns(5)
    assert not reader.done()
    go_on.set()
    with pytest.raises(StreamInterruptedError):
        await reader
    assert out == ["hook ended"]


async def test_a_slow_reader_does_not_eat_the_time_of_the_abort_hooks(loud: None) -> None:
    """The buffer is full and nobody reads: `onChatAbort` has the grace period all the same."""
    out: list[str] = []
    runs: list[Run[Any]] = []
    loop = asyncio.get_running_loop()

    @tool
    async def chatty(run: Run[Any]) -> None:
        for i in range(100):
            await run.status("tick", i)

    agent = Agent(ScriptedModel([call("chatty")] * 2), tools=[chatty], limits=Limits(grace=0.3))
    agent.add_hook("onChatStart", lambda ctx: runs.append(ctx.run))
    ended = asyncio.Event()

    async def needs_time(ctx: object) -> None:
        enough = asyncio.Event()
        loop.call_later(0.1, enough.set)
        await enough.wait()
        out.append("had its time")

    agent.add_hook("onChatAbort", needs_time)
    agent.add_hook("onChatEnd", lambda ctx: ended.set())
    stream = agent.chat_stream("hi")
    await anext(stream)
    await turns(200)
    runs[0].abort("enough")
    await ended.wait()
    with pytest.raises(ChatAbortedError, match="enough"):
        await collect(stream)
    assert out == ["had its time"]


async def test_after_an_abort_a_wrapper_of_the_chat_may_await() -> None:
    """The abort's cancellation is used up: what a wrapper does afterwards is not cancelled."""
    out: list[str] = []

    async def wrapper(ctx: Any, proceed: Any) -> Any:
        try:
            return await proceed()
        finally:
            task = asyncio.current_task()
            assert task is not None
            await turns(3)
            out.append(f"cancelling {task.cancelling()}")

    agent = Agent(ScriptedModel(Turn("hello", delay=Stall())), hooks={"aroundChat": wrapper})
    async with agent.chat_stream("hi") as stream:
        await anext(stream)
        await turns()
    assert out == ["cancelling 0"]


async def test_an_abort_hook_that_ignores_its_cancellation_frees_the_caller(
    loud: None, caplog: pytest.LogCaptureFixture
) -> None:
    """The grace period is over: what will not end is named and left behind."""
    let_go = asyncio.Event()
    out: list[str] = []
    agent = Agent(ScriptedModel(Turn("hello", delay=Stall())), limits=Limits(grace=0.05))

    async def stubborn_hook(ctx: object) -> None:
        await stubbornly(let_go)

    agent.add_hook("onChatAbort", stubborn_hook)
    agent.add_hook("onChatEnd", lambda ctx: out.append("end"))
    stream = agent.chat_stream("hi")
    await anext(stream)
    await turns()
    try:
        done, _ = await asyncio.wait([asyncio.ensure_future(stream.aclose())], timeout=2)
        assert len(done) == 1
        assert out == ["end"]
        assert "stubborn_hook" in caplog.text
    finally:
        let_go.set()
        await turns()


@pytest.mark.parametrize("point", ["onChatDone", "onChatError", "onChatEnd", "aroundChat"])
@pytest.mark.parametrize("form", ["chat", "stream"])
@pytest.mark.parametrize("how", ["obeys", "ignores"])
async def test_a_hook_at_the_end_that_hangs_does_not_hold_a_caller_who_leaves(
    point: Any, form: str, how: str, loud: None
) -> None:
    """The outcome stands, and who leaves waits no longer than the grace period."""
    inside, let_go = asyncio.Event(), asyncio.Event()
    turn = LookupError("mine") if point == "onChatError" else "hello"
    agent = Agent(ScriptedModel(turn), limits=Limits(grace=0.05))

    async def wrapper(ctx: Any, proceed: Any) -> Any:
        response = await proceed()
        await observer(ctx)
        return response

    async def observer(ctx: Any) -> None:
        inside.set()
        await (let_go.wait() if how == "obeys" else stubbornly(let_go))

    trace = outcomes(agent)
    agent.add_hook(point, wrapper if point == "aroundChat" else observer)
    work: Any = agent.chat("hi") if form == "chat" else collect(agent.chat_stream("hi"))
    task = asyncio.ensure_future(work)
    await inside.wait()
    task.cancel()
    try:
        done, _ = await asyncio.wait([task], timeout=2)
        assert done == {task}
        assert task.cancelled()
        outcome = "error" if point == "onChatError" else "done"
        assert [line.split()[0] for line in trace] == ["start", outcome, "end"]
    finally:
        let_go.set()
        await asyncio.wait([task])
        await turns()


@pytest.mark.parametrize("form", ["chat", "stream"])
@pytest.mark.parametrize("how", ["obeys", "ignores"])
async def test_a_wrapper_that_hangs_after_an_abort_does_not_hold_the_caller(
    form: str, how: str, loud: None, caplog: pytest.LogCaptureFixture
) -> None:
    """The chat has ended inside it; what the wrapper does then has a grace period, too."""
    inside, let_go = asyncio.Event(), asyncio.Event()
    stall = Stall()
    agent = Agent(ScriptedModel(Turn("hello", delay=stall)), limits=Limits(grace=0.05))
    trace = outcomes(agent)

    @agent.hook("aroundChat")
    async def slow_wrapper(ctx: Any, proceed: Any) -> Any:
        try:
            return await proceed()
        finally:
            inside.set()
            await (let_go.wait() if how == "obeys" else stubbornly(let_go))

    conversation = Conversation()
    work: Any
    if form == "chat":
        work = agent.chat("hi", conversation=conversation)
    else:
        work = collect(agent.chat_stream("hi", conversation=conversation))
    task = asyncio.ensure_future(work)
    await stall.reached.wait()
    task.cancel()
    await inside.wait()
    try:
        done, _ = await asyncio.wait([task], timeout=2)
        assert done == {task}
        assert task.cancelled()
        assert "slow_wrapper" in caplog.text
        assert trace == ["start", "abort cancelled", "end aborted"]
        assert not conversation.busy
    finally:
        let_go.set()
        await asyncio.wait([task])
        await turns()


@pytest.mark.parametrize("where", ["onToolCallResult", "onStatus"])
@pytest.mark.parametrize("form", ["chat", "stream"])
async def test_a_call_that_ignores_its_cancellation_does_not_hold_a_chat_that_has_failed(
    form: str, where: Any, loud: None, caplog: pytest.LogCaptureFixture
) -> None:
    """Nobody has aborted: a hook raised, beside a call that will not end."""
    inside, let_go = asyncio.Event(), asyncio.Event()

    @tool
    async def quick(run: Run[Any]) -> str:
        await inside.wait()
        await run.status("working")
        return "done"

    @tool
    async def stubborn() -> str:
        inside.set()
        while not let_go.is_set():
            with suppress(asyncio.CancelledError):
                await let_go.wait()
        return "late"

    def fails(ctx: Any) -> None:
        raise LookupError("mine")

    conversation = Conversation()
    model = ScriptedModel([call("quick"), call("stubborn")], "next")
    agent = Agent(model, tools=[quick, stubborn], limits=Limits(grace=0.05))
    agent.add_hook(where, fails)
    trace = outcomes(agent)
    work: Any
    if form == "chat":
        work = agent.chat("hi", conversation=conversation)
    else:
        work = collect(agent.chat_stream("hi", conversation=conversation))
    task = asyncio.ensure_future(work)
    try:
        done, _ = await asyncio.wait([task], timeout=5)
        assert done == {task}
        with pytest.raises(LookupError, match="mine"):
            await task
        assert trace == ["start", "error LookupError", "end error"]
        assert "tool 'stubborn' ignored its cancellation" in caplog.text
        kept = lines(conversation)
        check_history(conversation.messages)
        assert (await agent.chat("again", conversation=conversation)).text == "next"
    finally:
        let_go.set()
        await turns()
    assert lines(conversation)[: len(kept)] == kept
    assert len(conversation.messages) == len(kept) + 2


@pytest.mark.parametrize("form", ["chat", "stream"])
async def test_what_hangs_before_the_chat_has_begun_is_left_behind_and_no_hook_is_told(
    form: str, loud: None, caplog: pytest.LogCaptureFixture
) -> None:
    """No start, so no outcome; and what is left behind cannot begin the chat any more."""
    inside, let_go = asyncio.Event(), asyncio.Event()
    model = ScriptedModel("hello")
    agent = Agent(model, limits=Limits(grace=0.05))
    trace = outcomes(agent)
    after: list[str] = []

    @agent.hook("aroundChat")
    async def stubborn_wrapper(ctx: Any, proceed: Any) -> Any:
        inside.set()
        await stubbornly(let_go)
        try:
            return await proceed()
        except BaseException as exc:
            after.append(type(exc).__name__)
            raise

    conversation = Conversation()
    work: Any
    if form == "chat":
        work = agent.chat("hi", conversation=conversation)
    else:
        work = collect(agent.chat_stream("hi", conversation=conversation))
    task = asyncio.ensure_future(work)
    await inside.wait()
    task.cancel()
    try:
        done, _ = await asyncio.wait([task], timeout=2)
        assert done == {task}
        assert task.cancelled()
        assert not conversation.busy
        assert "stubborn_wrapper" in caplog.text
    finally:
        let_go.set()
        await turns()
    assert after == ["CancelledError"]
    assert (trace, conversation.messages, model.calls) == ([], (), 0)


async def test_a_throw_in_on_chat_abort_is_logged_and_hides_nothing(
    loud: None, caplog: pytest.LogCaptureFixture
) -> None:
    agent = Agent(ScriptedModel("hello"), hooks={"onResponse": lambda c: c.run.abort("x") and None})
    agent.add_hook("onChatAbort", throw)
    trace = outcomes(agent)
    with pytest.raises(ChatAbortedError, match="x"):
        await agent.chat("hi")
    assert trace == ["start", "abort x", "end aborted"]
    assert "onChatAbort" in caplog.text


# ── what is kept ────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("form", ["sync", "async"])
async def test_an_answer_that_onResponse_aborted_over_is_kept_and_marked(form: str) -> None:
    """It was shown, and not all hooks have seen it: it counts as partial."""
    conversation = Conversation()
    agent = Agent(ScriptedModel("hello"))

    def abort(ctx: Any) -> None:
        ctx.run.abort("enough")

    async def abort_later(ctx: Any) -> None:
        ctx.run.abort("enough")

    agent.add_hook("onResponse", abort if form == "sync" else abort_later)
    with pytest.raises(ChatAbortedError, match="enough"):
        await agent.chat("hi", conversation=conversation)
    assert lines(conversation) == ["user hi", "assistant* hello"]


@pytest.mark.parametrize("how", ["left", "abort", "error", "no finish"])
async def test_a_partial_text_is_kept_and_marked(how: str) -> None:
    """'A partial assistant text is kept and marked', and the next chat sends it."""
    stall = Stall(2)
    turn = {
        "left": Turn("hello", chunk=1, delay=stall),
        "abort": Turn("hello", chunk=1, delay=stall),
        "error": Turn("he", fail=LookupError("mine")),
        "no finish": Turn("he", no_finish=True),
    }[how]
    conversation = Conversation()
    model = ScriptedModel(turn, "fine")
    agent = Agent(model)
    try:
        async with agent.chat_stream("hi", conversation=conversation) as stream:
            async for _ in stream:
                if stall.reached.is_set():
                    if how == "left":
                        break
                    stream.abort()
    except (LookupError, ModelError):
        pass
    assert lines(conversation) == ["user hi", "assistant* he"]
    await agent.chat("again", conversation=conversation)
    assert [m.text for m in model.last_request.messages] == ["hi", "he", "again"]


async def test_partial_reasoning_is_kept_with_the_text() -> None:
    conversation = Conversation()
    turn = Turn(Reasoning("so it"), Text("he"), fail=LookupError("mine"))
    with pytest.raises(LookupError):
        await Agent(ScriptedModel(turn)).chat("hi", conversation=conversation)
    message = conversation.messages[-1]
    assert isinstance(message, AssistantMessage)
    assert (message.partial, message.reasoning, message.text) == (True, "so it", "he")


async def test_a_blank_partial_is_not_kept() -> None:
    """'Blank text is absent' holds for what was cut off, too."""
    conversation = Conversation()
    with pytest.raises(LookupError):
        await Agent(ScriptedModel(Turn(" \n", fail=LookupError()))).chat(
            "hi", conversation=conversation
        )
    assert lines(conversation) == ["user hi"]


async def test_nothing_is_rolled_back_on_error() -> None:
    """'the user message stays', as do the steps that were complete."""
    conversation = Conversation()
    agent = Agent(ScriptedModel([call("add", a=1, b=2)], LookupError("mine")), tools=[add])
    with pytest.raises(LookupError):
        await agent.chat("hi", conversation=conversation)
    assert lines(conversation) == ["user hi", "assistant add()", "tool ok"]


async def test_kept_messages_pass_pre_message_and_on_message() -> None:
    """'Messages kept after an abort … pass `preMessage` and `onMessage`' (12.6)."""
    out: list[str] = []
    conversation = Conversation()
    agent = Agent(ScriptedModel([Text("so"), call("hang")]), tools=[hang])

    def pre(ctx: Any) -> Any:
        if ctx.message.role == "tool":
            return ctx.message.replace(text=f"seen: {ctx.message.outcome}")
        return None

    agent.add_hook("preMessage", pre)
    agent.add_hook("onMessage", lambda ctx: out.append(ctx.message.role))
    agent.add_hook("onStep", lambda ctx: out.append("onStep"))
    agent.add_hook("onChatAbort", lambda ctx: out.append("abort"))
    async with agent.chat_stream("hi", conversation=conversation) as stream:
        async for event in stream:
            if isinstance(event, ToolCallStarted):
                break
    assert out == ["user", "assistant", "tool", "abort"]  # no onStep for a broken step
    assert conversation.messages[-1].text == "seen: aborted"


async def test_a_partial_text_passes_pre_message_and_on_message() -> None:
    out: list[str] = []
    stall = Stall(2)
    conversation = Conversation()
    agent = Agent(ScriptedModel(Turn("hello", chunk=1, delay=stall)))
    agent.add_hook("onMessage", lambda ctx: out.append(ctx.message.text))

    def shout(ctx: Any) -> Any:
        return ctx.message.replace(text=ctx.message.text.upper())

    agent.add_hook("preMessage", shout)
    async with agent.chat_stream("hi", conversation=conversation) as stream:
        await anext(stream)
        await stall.reached.wait()
    assert out == ["HI", "HE"]
    assert lines(conversation) == ["user HI", "assistant* HE"]


async def test_a_pre_message_hook_that_hangs_on_what_is_kept_is_cut_off(loud: None) -> None:
    """'within the grace period' – and the history is valid all the same."""
    conversation = Conversation()
    agent = Agent(ScriptedModel([call("hang")]), tools=[hang], limits=Limits(grace=0.05))

    async def hanging(ctx: Any) -> None:
        if ctx.message.role == "tool":
            await asyncio.Event().wait()

    agent.add_hook("preMessage", hanging)
    trace = outcomes(agent)
    async with agent.chat_stream("hi", conversation=conversation) as stream:
        async for event in stream:
            if isinstance(event, ToolCallStarted):
                break
    check_history(conversation.messages)
    assert lines(conversation) == ["user hi", "assistant hang()", "tool aborted"]
    assert trace == ["start", "abort consumer left", "end aborted"]


async def test_an_abort_beside_a_call_that_waits_leaves_nothing_waiting() -> None:
    """The chat is over: there is nothing that an answer could go on with."""
    conversation = Conversation()
    model = ScriptedModel([call("hang"), call("add", a=1, b=2)])
    agent = Agent(model, tools=[hang, add])
    agent.add_hook("preToolCall", lambda ctx: Ask("sure?"), tools=["hang"])
    agent.add_hook("onToolCallResult", lambda ctx: ctx.run.abort("enough") and None)
    with pytest.raises(ChatAbortedError):
        await agent.chat("hi", conversation=conversation)
    assert conversation.pending == ()
    assert [message.role for message in conversation.messages[2:]] == ["tool", "tool"]
    check_history(conversation.messages)


async def test_an_abort_during_the_last_write_of_a_step_leaves_nothing_waiting() -> None:
    """Nothing was waited for after it: the step looks before it writes down what waits."""

    class Store(MemoryStore):
        async def append(self, conversation_id: str, change: Change) -> int:
            version = await super().append(conversation_id, change)
            if any(message.role == "tool" for message in change.messages):
                stream.abort()
            return version

    store = Store()
    model = ScriptedModel([call("hang"), call("add", a=1, b=2)])
    agent = Agent(model, tools=[hang, add], store=store)
    agent.add_hook("preToolCall", lambda ctx: Ask("sure?"), tools=["hang"])
    stream = agent.chat_stream("hi", conversation="talk")
    events = await collect(stream)
    assert isinstance(events[-1], ChatAborted)
    found = await Conversation.open(store, "talk")
    assert found.pending == ()
    check_history(found.messages)


@pytest.mark.parametrize("calls", [1, 2, 3])
async def test_results_that_a_hanging_hook_has_left_undone_are_published(
    calls: int, loud: None
) -> None:
    """A reader that follows the events has the history that is stored."""
    conversation = Conversation()
    model = ScriptedModel([call("hang") for _ in range(calls)])
    agent = Agent(model, tools=[hang], limits=Limits(grace=0.05))

    async def hanging(ctx: Any) -> None:
        if ctx.message.role == "tool":
            await asyncio.Event().wait()

    agent.add_hook("preMessage", hanging)
    stream = agent.chat_stream("hi", conversation=conversation)
    told: list[Any] = []
    began = 0
    async for event in stream:
        if isinstance(event, ToolCallStarted):
            began += 1
            if began == calls:
                stream.abort()
        elif isinstance(event, MessageAdded):
            told.append(event.message)
    assert tuple(told) == conversation.messages
    assert [message.role for message in told] == ["user", "assistant", *["tool"] * calls]


async def test_a_pre_message_hook_that_throws_on_what_is_kept_changes_no_outcome(
    loud: None,
) -> None:
    conversation = Conversation()
    agent = Agent(ScriptedModel([call("hang")]), tools=[hang])

    def fails(ctx: Any) -> None:
        if ctx.message.role == "tool":
            raise LookupError("mine")

    agent.add_hook("preMessage", fails)
    trace = outcomes(agent)
    async with agent.chat_stream("hi", conversation=conversation) as stream:
        async for event in stream:
            if isinstance(event, ToolCallStarted):
                break
    check_history(conversation.messages)
    assert trace == ["start", "abort consumer left", "end aborted"]


async def test_a_partial_text_that_pre_message_refuses_is_taken_back(loud: None) -> None:
    """Text shown = stored: what no hook would have is neither."""
    stall = Stall(2)
    conversation = Conversation()
    agent = Agent(ScriptedModel(Turn("hello", chunk=1, delay=stall)))

    def fails(ctx: Any) -> None:
        if ctx.message.role == "assistant":
            raise LookupError("mine")

    agent.add_hook("preMessage", fails)
    trace = outcomes(agent)
    events: list[Any] = []
    async with agent.chat_stream("hi", conversation=conversation) as stream:
        async for event in stream:
            events.append(event)
            if isinstance(event, TextDelta):
                stream.abort("enough")
    assert [type(e) for e in events[-2:]] == [ResponseReset, ChatAborted]
    assert lines(conversation) == ["user hi"]
    assert trace == ["start", "abort enough", "end aborted"]


async def test_an_on_message_hook_that_throws_on_what_is_kept_leaves_it_there_once(
    loud: None,
) -> None:
    """Its message is committed already: nothing is written a second time in its place."""
    conversation = Conversation()
    agent = Agent(ScriptedModel([call("hang"), call("hang")]), tools=[hang])

    def fails(ctx: Any) -> None:
        if ctx.message.role == "tool":
            raise LookupError("mine")

    agent.add_hook("onMessage", fails)
    trace = outcomes(agent)
    async with agent.chat_stream("hi", conversation=conversation) as stream:
        async for event in stream:
            if isinstance(event, ToolCallStarted):
                break
    assert lines(conversation)[2:] == ["tool aborted", "tool aborted"]
    check_history(conversation.messages)
    assert trace == ["start", "abort consumer left", "end aborted"]


@pytest.mark.parametrize("ending", ["done", "aborted", "error"])
async def test_an_outcome_observer_that_an_earlier_one_disposes_is_not_told(ending: str) -> None:
    """…nor one of `onChatEnd` that an observer of the outcome has disposed."""
    out: list[str] = []
    disposers: list[Any] = []
    agent: Any = Agent(ScriptedModel("hello" if ending == "done" else LookupError("model")))
    point = {"done": "onChatDone", "aborted": "onChatAbort", "error": "onChatError"}[ending]
    if ending == "aborted":
        agent.add_hook("preRequest", lambda ctx: ctx.run.abort("enough") and None)

    def dispose_all(ctx: Any) -> None:
        for dispose in disposers:
            dispose()

    agent.add_hook(point, dispose_all, priority=1)
    for each in (point, "onChatEnd"):
        disposers.append(agent.add_hook(each, lambda ctx: out.append("disposed")))
        agent.add_hook(each, lambda ctx: out.append("stays"))
    with suppress(LookupError, ChatAbortedError):
        await agent.chat("hi")
    assert out == ["stays", "stays"]


@pytest.mark.parametrize("how", ["abort", "error", "no finish"])
async def test_arguments_cut_in_mid_stream_never_run(how: str) -> None:
    """'Arguments cut in mid-stream never run' – although what is there is valid JSON."""
    ran: list[str] = []

    @tool
    async def touch() -> None:
        ran.append("ran")

    stall = Stall(2)
    cut = [TextChunk("so"), ToolCallChunk(index=0, id="c", name="touch", arguments="{}")]
    turn = {
        "abort": Turn(raw_chunks=[*cut, Finish()], delay=stall),
        "error": Turn(raw_chunks=cut, fail=LookupError("mine")),
        "no finish": Turn(raw_chunks=cut),
    }[how]
    conversation = Conversation()
    agent = Agent(ScriptedModel(turn), tools=[touch])
    try:
        async with agent.chat_stream("hi", conversation=conversation) as stream:
            async for _ in stream:
                if stall.reached.is_set():
                    stream.abort()
    except (LookupError, ModelError):
        pass
    assert ran == []
    assert lines(conversation) == ["user hi", "assistant* so"]


async def test_arguments_cut_by_the_length_limit_never_run() -> None:
    """The provider cuts the answer and calls it `length`: bad arguments, told to the model."""
    ran: list[str] = []

    @tool
    async def touch(path: str = "") -> None:
        ran.append("ran")

    cut = Turn(raw_call("touch", '{"path": "/tm'), finish_reason="length")
    conversation = Conversation()
    response = await Agent(ScriptedModel(cut, "sorry"), tools=[touch]).chat(
        "hi", conversation=conversation
    )
    assert (ran, response.text) == ([], "sorry")
    assert lines(conversation)[2] == "tool error"


@pytest.mark.parametrize("finish", ["stop", "length", "other", "refusal"])
async def test_complete_calls_run_whatever_the_finish_reason_says(finish: Any) -> None:
    """An answer with Finish is whole: the calls decide, not the provider's word for its end."""
    turn = Turn(call("add", a=1, b=2), finish_reason=finish)
    response = await Agent(ScriptedModel(turn, "3"), tools=[add]).chat("hi")
    assert [m.outcome for m in response.messages if isinstance(m, ToolMessage)] == ["ok"]


# ── each ending pairs calls and results ─────────────────────────────────────────────────────


async def test_an_abort_keeps_the_results_that_were_there() -> None:
    """Real, error and aborted results, in the model's order; each call has exactly one."""
    conversation = Conversation()
    wishes = [call("add", a=1, b=2), call("hang"), call("boom"), call("nope")]
    agent = Agent(ScriptedModel(wishes, "again"), tools=[add, hang, boom])
    async with agent.chat_stream("hi", conversation=conversation) as stream:
        async for event in stream:
            if isinstance(event, ToolCallStarted) and event.call.name == "nope":
                await turns()
                break
    assert lines(conversation)[2:] == ["tool ok", "tool aborted", "tool error", "tool error"]
    check_history(conversation.messages)


@pytest.mark.parametrize(
    "point",
    ["preToolCall", "aroundToolCall", "onToolCallResult", "onToolCallError", "preMessage",
     "onMessage", "onStep", "onStatus", "onApproval"],
)  # fmt: skip
@pytest.mark.parametrize("how", ["throw", "abort"])
async def test_each_ending_pairs_calls_and_results(point: str, how: str) -> None:
    """'each call has exactly one result, right after its message', however the step ends."""
    full = Full()
    calls = 0

    def act(ctx: Any) -> None:
        nonlocal calls
        message = getattr(ctx, "message", None)
        if point in ("preMessage", "onMessage") and getattr(message, "role", "") != "tool":
            return
        calls += 1
        if calls == 1:
            if how == "throw":
                raise LookupError("mine")
            ctx.run.abort()

    full.hook(point, act)
    assert await full.run() is not None
    check_history(full.conversation.messages)
    results = [m for m in full.conversation.messages if isinstance(m, ToolMessage)]
    assert [m.call_id for m in results] == ["c1", "c2"]
    model = ScriptedModel("fine")
    await Agent(model).chat("again", conversation=full.conversation)
    assert model.calls == 1


async def test_a_throw_in_on_tool_call_result_withholds_the_value() -> None:
    """History keeps 'ran; result withheld', not the value; the tool is not run again (3.7)."""
    ran: list[str] = []

    @tool
    async def secret() -> str:
        ran.append("ran")
        return "hunter2"

    conversation = Conversation()
    agent = Agent(ScriptedModel([call("secret")]), tools=[secret])
    agent.add_hook("onToolCallResult", throw)
    with pytest.raises(LookupError):
        await agent.chat("hi", conversation=conversation)
    last = conversation.messages[-1]
    assert isinstance(last, ToolMessage)
    assert "withheld" in last.text
    assert "hunter2" not in last.text
    assert ran == ["ran"]


async def test_the_limit_of_steps_pairs_the_last_calls() -> None:
    conversation = Conversation()
    agent = Agent(ScriptedModel([call("add", a=1, b=2)]), tools=[add], limits=Limits(steps=1))
    trace = outcomes(agent)
    with pytest.raises(MaxStepsError):
        await agent.chat("hi", conversation=conversation)
    assert lines(conversation) == ["user hi", "assistant add()", "tool ok"]
    assert trace == ["start", "error MaxStepsError", "end error"]


async def test_calls_behind_one_that_runs_alone_are_aborted_without_having_begun() -> None:
    out: list[str] = []

    @tool(parallel=False)
    async def alone() -> None:
        await asyncio.Event().wait()

    @tool
    async def touch() -> None:
        out.append("ran")

    conversation = Conversation()
    agent = Agent(ScriptedModel([call("alone"), call("touch")]), tools=[alone, touch])
    agent.add_hook("preToolCall", lambda ctx: out.append(f"pre {ctx.call.name}"))
    async with agent.chat_stream("hi", conversation=conversation) as stream:
        async for event in stream:
            if isinstance(event, ToolCallStarted):
                await turns()
                break
    assert out == ["pre alone"]
    assert lines(conversation)[2:] == ["tool aborted", "tool aborted"]


# ── what does not end ───────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("number", [1, 2], ids=["lone", "parallel"])
async def test_a_tool_that_ignores_its_cancellation_is_reported_by_name(
    number: int, loud: None, caplog: pytest.LogCaptureFixture
) -> None:
    """'reported by name after the grace period'; the caller is freed, the history valid."""
    let_go = asyncio.Event()
    inside = asyncio.Event()

    @tool
    async def stubborn() -> str:
        inside.set()
        await stubbornly(let_go)
        return "late"

    conversation = Conversation()
    wishes = [call("stubborn"), call("add", a=1, b=2)][:number]
    agent = Agent(ScriptedModel(wishes), tools=[stubborn, add], limits=Limits(grace=0.05))
    trace = outcomes(agent)
    task = asyncio.create_task(agent.chat("hi", conversation=conversation))
    await inside.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert "tool 'stubborn' ignored its cancellation" in caplog.text
    assert trace == ["start", "abort cancelled", "end aborted"]
    assert lines(conversation)[2:] == ["tool aborted", "tool ok"][:number]
    assert not conversation.busy
    before = lines(conversation)
    let_go.set()
    await turns()
    assert lines(conversation) == before  # what comes late is not written
    assert trace == ["start", "abort cancelled", "end aborted"]


@pytest.mark.parametrize("where", ["tool", "onToolCallResult", "approver"])
async def test_what_comes_late_of_parallel_calls_is_not_reported(
    where: str, loud: None, caplog: pytest.LogCaptureFixture
) -> None:
    """The log names what was left behind, not the call that ended; its late end says nothing."""
    let_go, inside = asyncio.Event(), asyncio.Event()
    heard: list[str] = []

    async def late() -> None:
        inside.set()
        with suppress(asyncio.CancelledError):
            await let_go.wait()
        await let_go.wait()

    @tool
    async def stubborn() -> str:
        if where == "tool":
            await late()
        return "late"

    async def approver(request: Any, run: Any) -> Approve:
        await late()
        return Approve()

    model = ScriptedModel([call("stubborn"), call("hang")])
    agent = Agent(model, tools=[stubborn, hang], limits=Limits(grace=0.05), approver=approver)
    if where == "onToolCallResult":

        @agent.hook("onToolCallResult")
        async def stubborn_hook(ctx: Any) -> None:
            await late()

    elif where == "approver":
        agent.add_hook("preToolCall", lambda ctx: Ask("?"), tools=["stubborn"])
    agent.add_hook("onApproval", lambda ctx: heard.append("answer" if ctx.decision else "question"))
    conversation = Conversation()
    trace = outcomes(agent)
    task = asyncio.create_task(agent.chat("hi", conversation=conversation))
    await inside.wait()
    await turns()
    task.cancel()
    await asyncio.wait([task])
    assert ("tool 'stubborn' ignored" in caplog.text) == (where == "tool")
    assert "'hang'" not in caplog.text
    caplog.clear()
    let_go.set()
    await turns()
    assert [record.getMessage() for record in caplog.records] == []
    assert trace == ["start", "abort cancelled", "end aborted"]
    assert "answer" not in heard
    check_history(conversation.messages)


async def test_a_model_that_ignores_its_cancellation_is_reported(
    loud: None, caplog: pytest.LogCaptureFixture
) -> None:
    let_go = asyncio.Event()
    inside = asyncio.Event()

    class Stubborn:
        async def stream(self, request: Any) -> AsyncIterator[Any]:
            yield TextChunk("he")
            inside.set()
            await stubbornly(let_go)
            yield Finish()

    conversation = Conversation()
    agent = Agent(Stubborn(), limits=Limits(grace=0.05))
    trace = outcomes(agent)
    task = asyncio.create_task(agent.chat("hi", conversation=conversation))
    await inside.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert "model ignored its cancellation" in caplog.text
    assert lines(conversation) == ["user hi", "assistant* he"]
    let_go.set()
    await turns()
    assert lines(conversation) == ["user hi", "assistant* he"]
    assert trace == ["start", "abort cancelled", "end aborted"]


async def test_what_a_tool_left_behind_still_says_goes_nowhere(loud: None) -> None:
    """After the end no event, no hook: the terminal event was the last."""
    let_go = asyncio.Event()
    out: list[str] = []

    @tool
    async def stubborn(run: Run[Any]) -> None:
        await stubbornly(let_go)
        try:
            await run.status("still here")
        finally:
            out.append("tried")

    agent = Agent(ScriptedModel([call("stubborn")]), tools=[stubborn], limits=Limits(grace=0.05))
    agent.add_hook("onStatus", lambda ctx: out.append("status"))
    with agent.subscribe(ChatAborted, Status) as heard:
        async with agent.chat_stream("hi") as stream:
            async for event in stream:
                if isinstance(event, ToolCallStarted):
                    await turns()
                    break
        let_go.set()
        await turns()
    assert out == ["tried"]
    assert [type(event) async for event in heard] == [ChatAborted]


async def test_a_sync_tool_does_not_hold_up_the_abort(
    loud: None, caplog: pytest.LogCaptureFixture
) -> None:
    """Nobody can stop its thread: the caller is freed at once and the thread reported by name."""
    inside = asyncio.Event()
    let_go = threading.Event()
    loop = asyncio.get_running_loop()

    @tool
    def blocking() -> str:
        loop.call_soon_threadsafe(inside.set)
        let_go.wait(10)
        return "late"

    conversation = Conversation()
    agent = Agent(ScriptedModel([call("blocking")]), tools=[blocking], limits=Limits(grace=0.05))
    trace = outcomes(agent)
    async with agent.chat_stream("hi", conversation=conversation) as stream:
        async for event in stream:
            if isinstance(event, ToolCallStarted):
                await inside.wait()
                break
    assert trace == ["start", "abort consumer left", "end aborted"]
    assert lines(conversation)[2:] == ["tool aborted"]
    reported = asyncio.Event()
    loop.call_later(0.06, reported.set)
    await reported.wait()
    assert "tool 'blocking' ignored its cancellation" in caplog.text
    assert "its thread is left behind" in caplog.text  # it alone: the chat had ended at once
    let_go.set()


async def test_a_sync_tool_that_ends_in_time_is_not_reported() -> None:
    inside = asyncio.Event()
    let_go = threading.Event()
    loop = asyncio.get_running_loop()

    @tool
    def blocking() -> str:
        loop.call_soon_threadsafe(inside.set)
        let_go.wait(10)
        return "late"

    agent = Agent(ScriptedModel([call("blocking")]), tools=[blocking], limits=Limits(grace=0.05))
    async with agent.chat_stream("hi") as stream:
        async for event in stream:
            if isinstance(event, ToolCallStarted):
                await inside.wait()
                let_go.set()
                break
    reported = asyncio.Event()
    loop.call_later(0.06, reported.set)
    await reported.wait()  # the fixture says that nothing was logged


async def test_a_sync_tool_does_not_block_the_loop() -> None:
    """'A sync tool runs in a thread': the loop turns while it waits."""
    go = threading.Event()

    @tool
    def blocking() -> str:
        go.wait(10)
        return threading.current_thread().name

    agent = Agent(ScriptedModel([call("blocking")], "done"), tools=[blocking])
    task = asyncio.create_task(agent.chat("hi"))
    await turns()
    go.set()
    response = await task
    assert threading.current_thread().name not in response.messages[2].text


# ── not every CancelledError is an abort ────────────────────────────────────────────────────


async def test_a_hook_s_own_cancelled_error_is_a_hook_error() -> None:
    """'surfaces as `HookError` with it as cause and the note on the `HookError`' (12.14)."""
    error = asyncio.CancelledError("the hook's own")

    def raising(ctx: object) -> None:
        raise error

    agent = Agent(ScriptedModel("hello"))
    agent.add_hook("onResponse", raising, name="mine")
    trace = outcomes(agent)
    with pytest.raises(HookError) as caught:
        await agent.chat("hi")
    assert caught.value.__cause__ is error
    assert any("mine" in note and "onResponse" in note for note in caught.value.__notes__)
    assert trace == ["start", "error HookError", "end error"]


async def test_a_hook_s_awaited_task_that_was_cancelled_is_a_hook_error() -> None:
    """The common way to get one: a task of the hook's own was cancelled."""

    async def awaiting(ctx: object) -> None:
        task = asyncio.ensure_future(asyncio.Event().wait())
        task.cancel()
        await task

    agent = Agent(ScriptedModel("hello"), hooks={"onResponse": awaiting})
    with pytest.raises(HookError):
        await agent.chat("hi")


@pytest.mark.parametrize("number", [1, 2], ids=["lone", "parallel"])
async def test_a_tool_s_own_cancelled_error_is_a_tool_error(number: int) -> None:
    """The chat was not aborted: the model is told, and its sibling is not lost."""

    @tool
    async def cancelled() -> None:
        raise asyncio.CancelledError("the tool's own")

    wishes = [call("cancelled"), call("add", a=1, b=2)][:number]
    conversation = Conversation()
    agent = Agent(ScriptedModel(wishes, "done"), tools=[cancelled, add])
    response = await agent.chat("hi", conversation=conversation)
    assert response.text == "done"
    assert lines(conversation)[2:-1] == ["tool error", "tool ok"][:number]


async def test_a_model_s_own_cancelled_error_is_an_error() -> None:
    agent = Agent(ScriptedModel(Turn("he", fail=asyncio.CancelledError())))
    trace = outcomes(agent)
    with pytest.raises(ModelError):
        await agent.chat("hi")
    assert trace == ["start", "error ModelError", "end error"]


async def test_a_model_s_own_cancelled_error_before_its_stream_is_an_error() -> None:
    class Refusing:
        async def stream(self, request: Any) -> Any:
            raise asyncio.CancelledError

    agent = Agent(cast("Any", Refusing()))
    trace = outcomes(agent)
    with pytest.raises(ModelError):
        await agent.chat("hi")
    assert trace == ["start", "error ModelError", "end error"]


async def test_a_model_s_own_cancelled_error_while_it_is_closed_changes_nothing(
    loud: None, caplog: pytest.LogCaptureFixture
) -> None:
    class Closing:
        def __init__(self, request: Any) -> None:
            self._chunks = ScriptedModel("hello").stream(request)

        def __aiter__(self) -> Any:
            return self

        async def __anext__(self) -> Any:
            return await anext(self._chunks)

        async def aclose(self) -> None:
            raise asyncio.CancelledError

    class Model:
        def stream(self, request: Any) -> Any:
            return Closing(request)

    agent = Agent(Model())
    trace = outcomes(agent)
    assert (await agent.chat("hi")).text == "hello"
    assert trace == ["start", "done", "end done"]
    assert "while it was being closed" in caplog.text


async def test_a_tool_s_own_timeout_is_a_tool_error() -> None:
    @tool
    async def slow() -> None:
        async with asyncio.timeout(0):
            await asyncio.Event().wait()

    conversation = Conversation()
    agent = Agent(ScriptedModel([call("slow")], "done"), tools=[slow])
    await agent.chat("hi", conversation=conversation)
    assert lines(conversation)[2] == "tool error"


# ── time that is spent waiting for a slow consumer ──────────────────────────────────────────


class Clock:
    """The loop's time, which can be set forward."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        loop = asyncio.get_running_loop()
        real = loop.time
        self.ahead = 0.0
        monkeypatch.setattr(loop, "time", lambda: real() + self.ahead)

    async def forward(self, seconds: float) -> None:
        self.ahead += seconds
        await turns()


def chatty(**options: Any) -> Any:
    @tool(**options)
    async def talk(run: Run[Any]) -> str:
        for i in range(40):
            await run.status("tick", i)
        return "ok"

    return talk


@pytest.mark.parametrize("limit", ["tool", "agent", "wrapper"])
async def test_a_time_limit_stands_still_while_room_is_waited_for(
    limit: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """'A wrapper's or tool's timeout does not count time spent waiting for a slow consumer'."""
    talk = chatty(timeout=10.0) if limit == "tool" else chatty()
    limits = Limits(tool_timeout=10.0) if limit == "agent" else Limits()
    conversation = Conversation()
    agent = Agent(ScriptedModel([call("talk")], "done"), tools=[talk], limits=limits)

    async def wrapper(ctx: Any, proceed: Any) -> Any:
        return await proceed()

    if limit == "wrapper":
        agent.add_hook("aroundToolCall", wrapper, timeout=10.0)
    clock = Clock(monkeypatch)
    async with agent.chat_stream("hi", conversation=conversation) as stream:
        async for event in stream:
            if isinstance(event, Status):
                await turns()
                await clock.forward(1000.0)
    assert lines(conversation)[2] == "tool ok"


async def test_a_wrapper_s_time_limit_around_the_model_stands_still_too(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def wrapper(ctx: Any, proceed: Any) -> Any:
        return await proceed()

    agent = Agent(ScriptedModel(Turn("x" * 60, chunk=1)))
    agent.add_hook("aroundRequest", wrapper, timeout=10.0)
    clock = Clock(monkeypatch)
    async with agent.chat_stream("hi") as stream:
        async for _event in stream:
            await turns()
            await clock.forward(1000.0)
    assert stream.response.text == "x" * 60


@pytest.mark.parametrize("reader", ["fast", "slow"])
async def test_the_time_a_tool_itself_takes_does_count(
    reader: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The control: the same clock, and a tool that waits for something else."""
    inside = asyncio.Event()

    @tool(timeout=10.0)
    async def slow(run: Run[Any]) -> None:
        for i in range(40 if reader == "slow" else 1):
            await run.status("tick", i)
        inside.set()
        await asyncio.Event().wait()

    conversation = Conversation()
    agent = Agent(ScriptedModel([call("slow")], "done"), tools=[slow])
    clock = Clock(monkeypatch)

    async def read() -> None:
        async with agent.chat_stream("hi", conversation=conversation) as stream:
            async for event in stream:
                if reader == "slow" and isinstance(event, Status) and not inside.is_set():
                    await turns()
                    await clock.forward(5.0)

    reading = asyncio.create_task(read())
    await inside.wait()
    await turns(400)  # the reader catches up
    assert "tool error" not in lines(conversation)
    await clock.forward(11.0)
    await reading
    assert lines(conversation)[2] == "tool error"


async def test_a_parent_s_time_limit_stands_still_while_its_sub_agent_waits_for_room(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    child = Agent(ScriptedModel(Turn("x" * 60, chunk=1)), name="child")
    conversation = Conversation()
    as_tool = child.as_tool().replace(timeout=10.0)
    agent = Agent(ScriptedModel([call("child", input="?")], "done"), tools=[as_tool])
    clock = Clock(monkeypatch)
    async with agent.chat_stream("hi", conversation=conversation) as stream:
        async for event in stream:
            if event.path:
                await turns()
                await clock.forward(1000.0)
    assert lines(conversation)[2] == "tool ok"


# ── the response ────────────────────────────────────────────────────────────────────────────


async def test_the_response_says_what_the_chat_came_to() -> None:
    """'`Response`: text, reasoning, messages of this chat, usage, finish_reason, stop_reason'."""
    conversation = Conversation()
    wish = [Reasoning("hm"), Text("let me"), call("add", a=1, b=2)]
    model = ScriptedModel("before", wish, Turn(reasoning="so", text="3"))
    agent = Agent(model, tools=[add])
    await agent.chat("first", conversation=conversation)
    response = await agent.chat("hi", conversation=conversation)
    assert (response.text, response.reasoning) == ("3", "so")
    assert [m.role for m in response.messages] == ["user", "assistant", "tool", "assistant"]
    assert response.messages == conversation.messages[2:]
    assert response.usage.input_tokens == 20
    assert (response.finish_reason, response.stop_reason, response.pending) == ("stop", None, ())
    assert response.output is None


async def test_blank_text_is_absent_and_empty_deltas_are_dropped() -> None:
    conversation = Conversation()
    wish = Turn(" ", call("add", a=1, b=2))
    agent = Agent(ScriptedModel(wish, Turn("", "ok", "", "!")), tools=[add])
    events = await collect(agent.chat_stream("hi", conversation=conversation))
    assert conversation.messages[1].parts[0].name == "add"  # type: ignore[union-attr]
    assert all(getattr(event, "text", "-") for event in events)
    assert lines(conversation)[-1] == "assistant ok!"


async def test_chat_failed_and_the_raised_error_agree() -> None:
    events: list[Any] = []
    with pytest.raises(LookupError) as caught:
        await collect(Agent(ScriptedModel(LookupError("mine"))).chat_stream("hi"), events)
    assert isinstance(events[-1], ChatFailed)
    assert events[-1].error.message == "mine"
    assert not isinstance(caught.value, BaseExceptionGroup)


async def test_the_error_of_a_chat_outlasts_a_cancellation_while_its_lease_is_given_back():
    owners = []

    class Cancelling(MemoryStore):
        async def release(self, conversation_id, owner):
            owners[0].cancel()  # a third party
            await asyncio.sleep(0)
            await super().release(conversation_id, owner)

    agent = Agent(ScriptedModel(ValueError("broken")), store=Cancelling())
    agent.add_hook("onChatStart", lambda ctx: owners.append(asyncio.current_task()))
    with pytest.raises(ValueError, match="broken"):
        await agent.chat("go", conversation="talk")
    await asyncio.wait(owners)
    assert owners[0].cancelled()
