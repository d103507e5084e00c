"""The stream: laziness, one reader, the bounded buffer, leaving early, how it ends, its events."""

# ruff: noqa: PT012, PT031 - that a whole block of reading raises or warns is what is tested

from __future__ import annotations

import asyncio
import gc
import inspect
import logging
import threading
import warnings
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import aclosing, suppress
from contextvars import ContextVar
from itertools import count
from typing import Any, assert_never, get_args

import pytest
from aiostream import stream as operators
from tests._every_point import sending

from hookline import (
    Agent,
    Approve,
    Ask,
    AssistantMessage,
    ChatStream,
    Conversation,
    Deny,
    Image,
    Limits,
    MemoryStore,
    ModelResponse,
    Reasoning,
    Response,
    Run,
    Source,
    Stop,
    Text,
    ToolCall,
    ToolFailure,
    ToolMessage,
    ToolResult,
    Usage,
    UserMessage,
    tool,
)
from hookline._chat.channel import HIGH_WATER, MARGIN, SIZE
from hookline.errors import (
    ChatAbortedError,
    StreamInterruptedError,
    StreamStateError,
    SubscriptionOverflowError,
    UsageError,
)
from hookline.events import (
    ApprovalRequested,
    ChatAborted,
    ChatDone,
    ChatEvent,
    ChatFailed,
    ChatStarted,
    FileAdded,
    MessageAdded,
    MessageQueued,
    MessageReturned,
    PartEnd,
    ReasoningDelta,
    ResponseReset,
    SourceAdded,
    Status,
    StepFinished,
    StepStarted,
    TextDelta,
    ToolCallDelta,
    ToolCallFinished,
    ToolCallStarted,
    read_event,
)
from hookline.models import Finish, ModelRequest, PartEndChunk, ReasoningChunk, TextChunk
from hookline.testing import ScriptedModel, Turn, call, collect, raw_call

BOUND = 64
FULL = HIGH_WATER + 1  # events that are waited for; the others follow them within the margin
TERMINAL = (ChatDone, ChatAborted, ChatFailed)
EVENTS: tuple[type, ...] = get_args(ChatEvent)
PAGE = Source(url="https://example.org", title="Example")
PICTURE = Image(data=b"png")
NOT_LAST = tuple(kind for kind in EVENTS if kind not in TERMINAL)  # the last one needs no room
Where = ContextVar[str]
where: Where = ContextVar("where", default="nowhere")


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
    """Let everything run that can run."""
    for _ in range(times):
        await asyncio.sleep(0)


def others() -> set[asyncio.Task[Any]]:
    return asyncio.all_tasks() - {asyncio.current_task()}  # type: ignore[arg-type]


def text(events: list[Any]) -> str:
    return "".join(event.text for event in events if isinstance(event, TextDelta))


def kinds(events: list[Any]) -> list[str]:
    return [type(event).__name__ for event in events]


def outcomes(agent: Agent[Any]) -> list[str]:
    """The trace of an agent's outcome hooks."""
    out: list[str] = []
    agent.add_hook("onChatStart", lambda ctx: out.append("start"))
    agent.add_hook("onChatDone", lambda ctx: out.append("done"))
    agent.add_hook("onChatAbort", lambda ctx: out.append(f"abort {ctx.reason}"))
    agent.add_hook("onChatError", lambda ctx: out.append(f"error {ctx.error}"))
    agent.add_hook("onChatEnd", lambda ctx: out.append("end"))
    return out


@pytest.fixture
def loud() -> None:
    """The test expects a warning in the log."""


@pytest.fixture(autouse=True)
async def nothing_left(
    request: pytest.FixtureRequest, caplog: pytest.LogCaptureFixture
) -> AsyncIterator[None]:
    """No test leaves a task behind, and none makes hookline complain without expecting it."""
    yield
    left = others()
    assert left == set()
    if "loud" not in request.fixturenames:
        said = [r for when in ("setup", "call") for r in caplog.get_records(when)]
        assert [r.getMessage() for r in said if r.levelno >= logging.WARNING] == []


# ── nothing runs before it is read ──────────────────────────────────────────────────────────


def test_chat_stream_is_a_plain_function_that_needs_no_loop() -> None:
    """'is a plain function; it returns a ChatStream'."""
    stream = Agent(ScriptedModel("hello")).chat_stream("hi")
    assert type(stream) is ChatStream
    assert not inspect.iscoroutine(stream)
    assert not inspect.isasyncgen(stream)
    events = asyncio.run(collect(stream))
    assert text(events) == "hello"


@pytest.mark.parametrize("how", ["called", "iter", "aclose", "abort", "response"])
async def test_nothing_runs_before_the_first_pull(how: str) -> None:
    """'Nothing runs before the first pull or `__aenter__`': no hook, no model, no write."""
    conversation = Conversation()
    model = ScriptedModel("hello")
    agent = Agent(model)
    trace = outcomes(agent)
    agent.add_hook("preMessage", lambda ctx: trace.append("write"))
    stream = agent.chat_stream("hi", conversation=conversation)
    if how == "iter":
        assert aiter(stream) is stream
    elif how == "aclose":
        await stream.aclose()
    elif how == "abort":
        assert stream.abort("never mind") is True
    elif how == "response":
        with pytest.raises(StreamStateError):
            _ = stream.response
    await turns()
    assert (trace, model.calls, conversation.messages) == ([], 0, ())
    assert not conversation.busy
    assert others() == set()


def test_a_stream_that_was_never_begun_can_be_dropped_without_a_warning() -> None:
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        stream = Agent(ScriptedModel("hello")).chat_stream("hi")
        del stream
        gc.collect()
    assert [str(each.message) for each in said] == []


async def test_entering_starts_the_chat() -> None:
    started = asyncio.Event()
    agent = Agent(ScriptedModel("hello"), hooks={"onChatStart": lambda ctx: started.set()})
    async with agent.chat_stream("hi"):
        await started.wait()


async def test_the_first_pull_starts_the_chat() -> None:
    stream = Agent(ScriptedModel("hello")).chat_stream("hi")
    assert isinstance(await anext(stream), ChatStarted)
    await stream.aclose()


async def test_a_bare_async_for_and_the_with_form_give_the_same() -> None:
    agent = Agent(ScriptedModel("hello", "hello"))
    bare = [event async for event in agent.chat_stream("hi")]
    async with agent.chat_stream("hi") as stream:
        entered = [event async for event in stream]
    assert kinds(bare) == kinds(entered)
    assert text(bare) == text(entered) == "hello"


async def test_an_ended_stream_stays_ended() -> None:
    stream = Agent(ScriptedModel("hello")).chat_stream("hi")
    await collect(stream)
    assert [event async for event in stream] == []
    async with stream:
        assert [event async for event in stream] == []
    await stream.aclose()


async def test_a_stream_aborted_before_it_begins_ends_at_once() -> None:
    """'Aborted before the first pull, the iterator ends at once' (12.13)."""
    stream = Agent(ScriptedModel("hello")).chat_stream("hi")
    stream.abort()
    assert await collect(stream) == []
    async with stream:
        pass


async def test_a_second_abort_before_the_start_is_late() -> None:
    stream = Agent(ScriptedModel("hello")).chat_stream("hi")
    assert [stream.abort(), stream.abort()] == [True, False]


async def test_a_failed_stream_raises_once_and_is_then_ended() -> None:
    """'ends the stream with ChatFailed, then raises'; afterwards there is nothing more."""
    error = ValueError("the model's own")
    stream = Agent(ScriptedModel(error)).chat_stream("hi")
    with pytest.raises(ValueError, match="the model's own"):
        async for _ in stream:
            pass
    assert [event async for event in stream] == []


async def test_chat_is_the_same_run_collected() -> None:
    """'`chat()` is the same run, collected': hooks, answer and history are the same."""
    seen: list[list[str]] = []
    answers: list[Response] = []
    for form in ("chat", "stream"):
        agent = Agent(ScriptedModel([Text("so"), call("add", a=1, b=2)], "done"), tools=[add])
        trace: list[str] = []
        agent.add_hook("onHook", lambda ctx, trace=trace: trace.append(ctx.point))
        for point in ("onChatStart", "preMessage", "onMessage", "onStep", "onDelta", "onChatEnd"):
            agent.add_hook(point, lambda ctx: None)
        if form == "chat":
            answers.append(await agent.chat("hi"))
        else:
            async with agent.chat_stream("hi") as stream:
                await collect(stream)
            answers.append(stream.response)
        seen.append(trace)
    assert seen[0] == seen[1]
    assert answers[0].text == answers[1].text == "done"
    assert [message.parts for message in answers[0].messages if not is_tool(message)] == [
        message.parts for message in answers[1].messages if not is_tool(message)
    ]


def is_tool(message: object) -> bool:
    return isinstance(message, ToolMessage)


@tool
async def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


# ── one reader, one loop ────────────────────────────────────────────────────────────────────


async def test_a_second_reader_is_refused_at_once_and_the_first_goes_on() -> None:
    """'A second reader gets an error at once'."""
    stall = Stall()
    stream = Agent(ScriptedModel(Turn("hello", delay=stall))).chat_stream("hi")
    for _ in range(3):
        await anext(stream)
    first = asyncio.create_task(anext(stream))  # type: ignore[arg-type]
    await stall.reached.wait()
    await turns()
    with pytest.raises(StreamStateError, match="one reader"):
        await anext(stream)
    stall.go.set()
    assert isinstance(await first, TextDelta)
    await stream.aclose()


async def test_a_second_reader_does_not_take_the_event_of_the_first() -> None:
    """The first has been woken for an event and has not run yet: it is still the reader."""
    stall = Stall()
    stream = Agent(ScriptedModel(Turn("hello", delay=stall))).chat_stream("hi")
    for _ in range(3):
        await anext(stream)
    first = asyncio.create_task(anext(stream))  # type: ignore[arg-type]
    await stall.reached.wait()
    await turns()
    stall.go.set()  # the chat runs next, and before the first reader the second
    second = asyncio.create_task(anext(stream))  # type: ignore[arg-type]
    done = await asyncio.gather(first, second, return_exceptions=True)
    assert isinstance(done[0], TextDelta)
    assert isinstance(done[1], StreamStateError)
    await stream.aclose()


@pytest.mark.parametrize(
    "waiting",
    [True, False],
    ids=["events held", "nothing held"],
)
def test_a_stream_is_not_read_in_another_loop(waiting: bool) -> None:
    """One loop owns a stream; elsewhere it is refused at once, and the chat goes on."""
    stall = Stall()
    agent = Agent(ScriptedModel(Turn("hello", delay=stall)))
    stream = agent.chat_stream("hi")

    async def elsewhere() -> None:
        with pytest.raises(StreamStateError, match="event loop"):
            async for _ in stream:
                raise AssertionError("an event was given away")

    def nowhere() -> None:
        with pytest.raises(StreamStateError, match="event loop"):
            aiter(stream)

    async def main() -> None:
        for _ in range(1 if waiting else 3):
            await anext(stream)
        await stall.reached.wait()
        await asyncio.to_thread(asyncio.run, elsewhere())
        await asyncio.to_thread(nowhere)
        stall.go.set()
        assert text(await collect(stream)) == "hello"

    asyncio.run(main())


@pytest.mark.parametrize("chunks", [3, 40], ids=["it waits for the model", "it has given way"])
def test_another_loop_of_the_same_thread_is_refused_where_it_would_wait(chunks: int) -> None:
    """What has come already may be given there; nothing hangs, and the chat goes on."""
    stall = Stall()
    said = "".join(f"{n:03d} " for n in range(chunks))
    model = ScriptedModel(Turn(said, chunk=4, delay=stall if chunks == 3 else None))
    stream = Agent(model).chat_stream("hi")
    events: list[object] = []
    ours, another = asyncio.new_event_loop(), asyncio.new_event_loop()

    async def begin() -> None:
        events.append(await anext(stream))
        ours.stop()  # at the end of this turn

    async def elsewhere() -> None:
        with pytest.raises(StreamStateError, match="event loop"):
            while True:
                events.append(await anext(stream))

    async def rest() -> None:
        stall.go.set()
        events.extend(await collect(stream))

    try:
        beginning = ours.create_task(begin())
        ours.run_forever()
        assert beginning.done()
        another.run_until_complete(asyncio.wait_for(elsewhere(), 60))
        another.run_until_complete(elsewhere())
        ours.run_until_complete(rest())
    finally:
        another.close()
        ours.close()
    assert text(events) == said
    assert [event.seq for event in events] == list(range(1, len(events) + 1))
    assert type(events[-1]) is ChatDone


async def test_closing_from_another_loop_is_refused() -> None:
    """A wrong loop gets an error instead of a wait that nobody ends."""
    stall = Stall()
    stream = Agent(ScriptedModel(Turn("hello", delay=stall))).chat_stream("hi")
    await anext(stream)
    with pytest.raises(StreamStateError, match="event loop"):
        await asyncio.to_thread(asyncio.run, stream.aclose())
    await stream.aclose()


async def test_each_pull_may_come_from_a_fresh_task() -> None:
    """As `wait_for`, `merge` and `timeout` of other libraries do it."""
    stream = Agent(ScriptedModel(Turn("hello", chunk=1))).chat_stream("hi")
    events: list[Any] = []
    while True:
        try:
            events.append(await asyncio.create_task(anext(stream)))  # type: ignore[arg-type]
        except StopAsyncIteration:
            break
    assert text(events) == "hello"
    assert isinstance(events[-1], ChatDone)


async def test_aiostream_merges_two_chats() -> None:
    agents = [Agent(ScriptedModel(Turn(word, chunk=1)), name=word) for word in ("abc", "xyz")]
    merged = operators.merge(*[agent.chat_stream("hi") for agent in agents])
    async with merged.stream() as streamer:
        events = [event async for event in streamer]
    by_chat: dict[str, list[Any]] = {}
    for event in events:
        by_chat.setdefault(event.chat_id, []).append(event)
    assert sorted(text(each) for each in by_chat.values()) == ["abc", "xyz"]


async def test_aiostream_take_leaves_the_chat_closed() -> None:
    model = ScriptedModel(Turn("hello", chunk=1, delay=Stall(2)))
    agent = Agent(model)
    trace = outcomes(agent)
    async with agent.chat_stream("hi") as mine, operators.take(mine, 4).stream() as streamer:
        events = [event async for event in streamer]
    assert len(events) == 4
    assert trace == ["start", "abort consumer left", "end"]
    assert model.open == 0


# ── the bounded buffer ──────────────────────────────────────────────────────────────────────


async def test_a_reader_that_pauses_stops_the_model_at_the_bound() -> None:
    """'a slow consumer slows the model down': it waits where `FULL` events wait."""
    sent = count()
    model = ScriptedModel(Turn("x" * 200, chunk=1, delay=counted(sent)))
    async with Agent(model).chat_stream("hi") as stream:
        await anext(stream)
        await turns(400)
    # Of 1 + FULL events three are no text; the chunk that is in hand was sent too.
    assert next(sent) == 1 + FULL - 3 + 1


def stream_ended(put: Any) -> bool:
    return bool(put._items) and isinstance(put._items[-1], TERMINAL) and not put._items[-1].path


def held(put: Any) -> int:
    """How many events a subscriber that nobody reads has: as many as were put."""
    return len(put._items)


def counted(sent: Iterator[int]) -> Callable[[], Any]:
    async def tick() -> None:
        next(sent)

    return tick


async def test_a_reader_that_waits_gets_each_piece_before_the_model_makes_the_next() -> None:
    """Not only the first one of an answer."""
    may_go_on: asyncio.Queue[None] = asyncio.Queue()
    words = [f"{i} " for i in range(5)]
    stream = Agent(ScriptedModel(Turn(*words, delay=may_go_on.get))).chat_stream("hi")

    async def next_text() -> str:
        async for event in stream:
            if isinstance(event, TextDelta):
                return event.text
        return "the end"

    for word in words:
        reader = asyncio.ensure_future(next_text())
        await turns()  # it has found nothing, and waits
        assert not reader.done()
        may_go_on.put_nowait(None)
        await turns()
        assert reader.done()
        assert await reader == word
    may_go_on.put_nowait(None)  # and the model says that this was all
    assert await next_text() == "the end"


async def test_nothing_is_dropped_for_a_slow_reader() -> None:
    """'nothing is dropped or piled up': all text arrives, in order, and never more than 64 wait."""
    words = [f"{i} " for i in range(300)]
    agent = Agent(ScriptedModel(list(words)))
    put = agent.subscribe(*NOT_LAST, size=10_000)
    events: list[Any] = []
    worst = 0
    async with agent.chat_stream("hi") as stream:
        async for event in stream:
            events.append(event)
            await turns(event.seq % 7)
            worst = max(worst, held(put) - len(events))
    assert text(events) == "".join(words)
    assert FULL <= worst <= BOUND


async def test_the_most_events_that_follow_one_wait_fill_the_margin() -> None:
    """At the end of the answer, a hook adds text of another kind, which then ends, too."""
    assert SIZE == BOUND == HIGH_WATER + MARGIN
    words = ["x"] * (HIGH_WATER - 2)  # ChatStarted is read; MessageAdded and StepStarted are not
    agent = Agent(ScriptedModel([*words]))

    @agent.hook("onDelta")
    def release(ctx: Any) -> Any:
        is_end = isinstance(ctx.delta, PartEndChunk)
        return (ReasoningChunk("the last"), ctx.delta) if is_end else None

    put = agent.subscribe(*NOT_LAST, size=10_000)
    async with agent.chat_stream("hi") as stream:
        events: list[Any] = [await anext(stream)]
        await turns(200)
        assert held(put) - len(events) == BOUND
        events += await collect(stream)
    assert [type(event) for event in events[HIGH_WATER + 1 :][:MARGIN]] == [
        PartEnd,
        ReasoningDelta,
        PartEnd,
    ]


async def test_parallel_writers_keep_the_bound_and_the_order() -> None:
    """I8 with many writers that wait for room at once: the bound holds, every number comes once."""

    @tool
    async def busy(n: int, run: Run[Any]) -> str:
        for i in range(20):
            await run.status("tick", [n, i])
        return "ok"

    calls = [call("busy", n=n) for n in range(6)]
    agent = Agent(ScriptedModel(calls, "done"), tools=[busy])
    put = agent.subscribe(*NOT_LAST, size=10_000)
    events: list[Any] = []
    worst = 0
    async with agent.chat_stream("hi") as stream:
        async for event in stream:
            events.append(event)
            await turns(event.seq % 5)
            worst = max(worst, held(put) - len(events))
    ticks = [event.data for event in events if isinstance(event, Status)]
    for n in range(6):
        assert [tick for tick in ticks if tick[0] == n] == [[n, i] for i in range(20)]
    assert [event.seq for event in events] == list(range(1, len(events) + 1))
    assert worst <= BOUND


async def test_each_call_that_runs_beside_others_may_have_one_event_over_the_bound() -> None:
    """I8: the sub-agents are held before the ends of their steps, and the buffer is filled then."""
    kids, chatting, ending = 8, asyncio.Event(), asyncio.Event()
    at_end: list[str] = []

    @tool
    async def chatty(run: Run[Any]) -> None:
        await chatting.wait()
        for i in range(100):
            await run.status("tick", i)

    async def hold(ctx: Any) -> None:
        at_end.append(ctx.run.chat_id)
        await ending.wait()

    kid = Agent(ScriptedModel(*["So."] * kids), name="kid")
    kid.add_hook("onStep", hold)
    calls = [call("chatty"), *[call("kid", input="?") for _ in range(kids)]]
    agent = Agent(ScriptedModel(calls, "done"), tools=[chatty, kid.as_tool()])
    put = agent.subscribe(size=10_000)
    async with agent.chat_stream("hi") as stream:
        events: list[Any] = []
        while len(at_end) < kids or held(put) > len(events):
            events.append(await anext(stream))
            await turns()
        chatting.set()
        await turns(200)
        assert held(put) - len(events) == FULL  # where each writer waits for room
        ending.set()
        await turns(200)
        assert held(put) - len(events) == FULL + kids <= BOUND + len(calls)
        events += await collect(stream)
    assert [event.seq for event in events] == list(range(1, len(events) + 1))


@pytest.mark.parametrize("refused", [False, True], ids=["", "a hook refuses the messages"])
async def test_the_ends_of_calls_that_were_broken_off_wait_for_room_too(refused: bool) -> None:
    """I8 in the ending: the buffer was full when the chat was aborted, and nothing is left out."""
    runs: list[Run[Any]] = []

    @tool
    async def chatty(run: Run[Any]) -> None:
        runs.append(run)
        for i in range(100):
            await run.status("tick", i)

    def refuse(ctx: Any) -> None:
        if refused and ctx.message.role == "tool":
            raise LookupError("mine")

    agent = Agent(ScriptedModel([call("chatty"), call("chatty")]), tools=[chatty])
    agent.add_hook("preMessage", refuse)
    put = agent.subscribe(*NOT_LAST, size=10_000)
    stream = agent.chat_stream("hi")
    events: list[Any] = [await anext(stream)]
    await turns(200)
    assert held(put) - len(events) == FULL
    runs[0].abort("enough")
    await turns(200)
    assert held(put) - len(events) == FULL
    with pytest.raises(ChatAbortedError, match="enough"):
        async for event in stream:
            events.append(event)
            await turns()
            assert held(put) - len(events) <= BOUND
    ends = [event.outcome for event in events if isinstance(event, ToolCallFinished)]
    assert ends == ["aborted", "aborted"]
    added = [event.message.role for event in events if isinstance(event, MessageAdded)]
    assert added == ["user", "assistant", "tool", "tool"]


def deny_refused(ctx: Any) -> Deny | None:
    """A hook at preSteer that refuses the message `refused`."""
    return Deny("not now") if ctx.message.text == "refused" else None


@pytest.mark.parametrize("pace", [3, 40])
@pytest.mark.parametrize("stored", [False, True], ids=["", "stored"])
@pytest.mark.parametrize("release", ["live", "response"])
async def test_every_kind_of_event_keeps_the_bound(release: Any, stored: bool, pace: int) -> None:
    """I8: the buffer is full all the time, so that each of them has to wait for its room."""

    @tool
    async def work(run: Run[Any]) -> str:
        await run.status("tick", 1)
        return "ok"

    @tool
    async def asked() -> str:
        return "ok"

    @tool(parallel=False)
    async def lonely() -> str:
        return "ok"

    child = Agent(ScriptedModel(["Hm.", call("work")], "so"), tools=[work], name="kid")
    think, words = Reasoning("Let me see."), "some more words than one"
    turns_ = [
        Turn(think, words, *[call("work", call_id=f"a{i}") for i in range(6)], chunk=3),
        Turn(
            words, PAGE, PICTURE, call("nobody"), call("work", {"x": 1}), call("refused"), chunk=3
        ),
        Turn(words, call("asked"), call("lonely"), call("kid", input="?"), chunk=3),
        *[Turn(think, call("work", call_id=f"b{i}"), chunk=2) for i in range(12)],
        *[Turn(words, raw_call("asked", '{"cut'), chunk=4) for _ in range(3)],
        Turn("to be changed", chunk=2),
    ]
    agent = Agent(
        ScriptedModel(*turns_),
        tools=[work, asked, lonely, child.as_tool()],
        approver=lambda request, run: Approve(),
        limits=Limits(steps=40),
    )

    def guard(ctx: Any) -> Any:
        if ctx.call.name == "work" and ctx.call.arguments:
            return ToolFailure("no")
        return Ask("may I?") if ctx.call.name == "asked" else None

    def other(ctx: Any) -> Any:
        changes = ctx.response.text in (words, "to be changed") and ctx.iteration % 2 == 0
        return (
            ctx.response.replace(parts=(Text("other"), *ctx.response.tool_calls))
            if changes
            else None
        )

    async def again(ctx: Any, proceed: Any) -> Any:
        answer = await proceed()
        return ModelResponse.of("made up") if ctx.iteration == 18 else answer

    for text in ("more", "refused"):
        agent.add_hook("onStep", sending(text))
    agent.add_hook("preSteer", deny_refused)
    agent.add_hook("preToolCall", guard, inherit=False)
    agent.add_hook("onResponse", other)
    agent.add_hook("aroundRequest", again)
    agent.add_hook("onStep", lambda ctx: Stop("enough", "Bye.") if ctx.iteration == 18 else None)
    put = agent.subscribe(*NOT_LAST, size=10_000)
    events: list[Any] = []
    worst = 0
    conversation = await MemoryStore().open("talk") if stored else Conversation()
    async with agent.chat_stream("hi", release=release, conversation=conversation) as stream:
        async for event in stream:
            events.append(event)
            await turns(pace)
            if not stream_ended(put):
                mine = [each for each in events if not isinstance(each, TERMINAL)]
                worst = max(worst, held(put) - len(mine))
    assert FULL < worst <= BOUND
    never: set[Any] = {ChatAborted, ChatFailed}
    if release == "response":
        never.add(ResponseReset)  # nothing is shown that could be taken back
    assert {type(event) for event in events} == {*EVENTS} - never
    assert [event.seq for event in events] == list(range(1, len(events) + 1))


async def test_a_writer_that_is_cancelled_while_it_waits_leaves_no_gap() -> None:
    """'an event is numbered when it is put': who never puts takes no number."""

    @tool(timeout=None)
    async def giving_up(run: Run[Any]) -> str:
        async def report() -> None:
            for i in range(3 * BOUND):
                await run.status("tick", i)

        reporting = asyncio.create_task(report())
        await turns()
        reporting.cancel()
        await asyncio.wait([reporting])
        return "ok"

    agent = Agent(ScriptedModel(call("giving_up"), "done"), tools=[giving_up])
    events: list[Any] = []
    async with agent.chat_stream("hi") as stream:
        events.append(await anext(stream))
        await turns(400)
        events += await collect(stream)
    assert [event.seq for event in events] == list(range(1, len(events) + 1))
    ticks = [event.data for event in events if isinstance(event, Status)]
    assert ticks == list(range(len(ticks)))
    assert 0 < len(ticks) < 3 * BOUND


async def test_events_of_sub_agents_are_numbered_with_their_parent_s() -> None:
    """'numbered in order per root chat', with their path, also when the buffer is full."""
    children = [
        Agent(ScriptedModel(Turn(f"{name} speaks" + "." * BOUND, chunk=1)), name=name).as_tool()
        for name in ("ann", "bob", "cid")
    ]
    wishes = [call(name, input="?", call_id=f"c_{name}") for name in ("ann", "bob", "cid")]
    agent = Agent(ScriptedModel(wishes, "done"), tools=children)
    put = agent.subscribe(size=10_000)
    events: list[Any] = []
    worst = 0
    async with agent.chat_stream("hi") as stream:
        async for event in stream:
            events.append(event)
            await turns(12 if event.seq > 20 else 0)
            if not stream_ended(put):
                worst = max(worst, held(put) - len(events))
    assert FULL <= worst <= BOUND + len(children)
    assert [event.seq for event in events] == list(range(1, len(events) + 1))
    assert {event.path for event in events} == {(), ("c_ann",), ("c_bob",), ("c_cid",)}
    for name in ("ann", "bob", "cid"):
        mine = [event for event in events if event.path == (f"c_{name}",)]
        assert text(mine) == f"{name} speaks" + "." * BOUND
        assert isinstance(mine[0], ChatStarted)
        assert [type(event) for event in mine if isinstance(event, TERMINAL)] == [ChatDone]
        assert isinstance(mine[-1], ChatDone)


async def test_subscribers_get_the_numbers_of_the_stream() -> None:
    agent = Agent(ScriptedModel([call("add", a=1, b=2)], "done"), tools=[add])
    heard = agent.subscribe()
    async with agent.chat_stream("hi") as stream:
        events = await collect(stream)
    heard.close()
    assert [event async for event in heard] == events


async def test_two_chats_of_one_agent_are_numbered_apart() -> None:
    agent = Agent(ScriptedModel("a", "b"))
    for _ in range(2):
        events = await collect(agent.chat_stream("hi"))
        assert [event.seq for event in events] == list(range(1, len(events) + 1))


# ── leaving early ───────────────────────────────────────────────────────────────────────────


async def test_after_the_with_block_everything_is_closed() -> None:
    """'in the `async with` form everything is closed before the line after the block'."""
    model = ScriptedModel(Turn("hello", chunk=1, delay=Stall(2)))
    conversation = Conversation()
    agent = Agent(model)
    trace = outcomes(agent)
    async with agent.chat_stream("hi", conversation=conversation) as stream:
        async for event in stream:
            if isinstance(event, TextDelta):
                break
    assert (model.open, model.cancelled, conversation.busy) == (0, 1, False)
    assert trace == ["start", "abort consumer left", "end"]
    assert others() == set()


async def test_after_an_abort_no_chunk_is_shown_of_a_model_that_never_waits() -> None:
    streams: list[Any] = []

    class Eager:
        name = "eager"

        async def stream(self, request: ModelRequest) -> AsyncIterator[Any]:
            yield TextChunk("shown")
            streams[0].abort("enough")
            yield TextChunk("too late")
            yield Finish("stop")

    streams.append(Agent(Eager()).chat_stream("hi"))
    events = [event async for event in streams[0]]
    assert [event.text for event in events if isinstance(event, TextDelta)] == ["shown"]
    last = events[-1]
    assert isinstance(last, ChatAborted)
    assert [message.text for message in last.partial] == ["hi", "shown"]


@pytest.mark.parametrize("body", ["pass", "abort", "raise"])
async def test_a_block_left_before_the_run_took_its_first_step(body: str) -> None:
    """Entered and left at once: no hook, no write, and nobody waits for a grace period."""
    agent = Agent(ScriptedModel("hello"), limits=Limits(grace=3600))
    trace = outcomes(agent)
    conversation = Conversation()
    out: list[str] = []
    async with asyncio.timeout(60):
        try:
            async with agent.chat_stream("hi", conversation=conversation) as stream:
                if body == "abort":
                    assert stream.abort() is True
                elif body == "raise":
                    raise KeyError("mine")
        except KeyError:
            out.append("mine")
    assert out == (["mine"] if body == "raise" else [])
    assert (trace, conversation.messages, conversation.busy) == ([], (), False)


@pytest.mark.parametrize(
    "error", [ValueError("mine"), KeyboardInterrupt(), StopAsyncIteration(), GeneratorExit()]
)
async def test_the_consumer_s_own_exception_comes_out_as_itself(error: BaseException) -> None:
    """'A consumer's own exception comes out as itself': the object, no group, no context added."""
    agent = Agent(ScriptedModel(Turn("hello", delay=Stall(1))))
    trace = outcomes(agent)
    caught: BaseException | None = None
    try:
        async with agent.chat_stream("hi") as stream:
            await anext(stream)
            raise error
    except BaseException as exc:
        caught = exc
    assert caught is error
    assert error.__context__ is None
    assert trace == ["start", "abort consumer left", "end"]
    error.__traceback__ = None


async def test_a_consumer_s_error_wins_over_the_chat_s(
    loud: None, caplog: pytest.LogCaptureFixture
) -> None:
    """The chat has failed too, unread: the consumer sees its own error, the log the other."""
    agent = Agent(ScriptedModel(RuntimeError("the chat's")))
    with pytest.raises(ValueError, match="mine"):
        async with agent.chat_stream("hi") as stream:
            await anext(stream)
            await turns()
            raise ValueError("mine")
    assert "after its stream was closed: RuntimeError" in caplog.text


async def test_leaving_by_timeout_while_waiting() -> None:
    agent = Agent(ScriptedModel(Turn("hello", delay=Stall())))
    trace = outcomes(agent)
    with pytest.raises(TimeoutError):
        async with agent.chat_stream("hi") as stream, asyncio.timeout(None) as limit:
            async for event in stream:
                if isinstance(event, StepStarted):
                    limit.reschedule(0)
    assert trace == ["start", "abort cancelled", "end"]
    assert asyncio.current_task().cancelling() == 0  # type: ignore[union-attr]


async def test_leaving_by_timeout_in_a_bare_for() -> None:
    """The wait itself stops the run and joins it: nothing lives on after the timeout."""
    model = ScriptedModel(Turn("hello", delay=Stall()))
    agent = Agent(model)
    trace = outcomes(agent)
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(None) as limit:
            async for event in agent.chat_stream("hi"):
                if isinstance(event, StepStarted):
                    limit.reschedule(0)
    assert trace == ["start", "abort cancelled", "end"]
    assert (model.open, others()) == (0, set())


@pytest.mark.parametrize("times", [1, 2, 5])
async def test_a_cancelled_reader_stays_cancelled_and_the_chat_is_over(times: int) -> None:
    """'cancellation stays cancellation', also when it comes again while the run is joined."""
    stall = Stall()
    ending, go_on = asyncio.Event(), asyncio.Event()
    agent = Agent(ScriptedModel(Turn("hello", delay=stall)))

    async def slow_end(ctx: object) -> None:
        ending.set()
        await go_on.wait()

    agent.add_hook("onChatAbort", slow_end)
    trace = outcomes(agent)

    async def read() -> None:
        async with agent.chat_stream("hi") as stream:
            await collect(stream)

    reader = asyncio.create_task(read())
    await stall.reached.wait()
    reader.cancel()
    await ending.wait()
    for _ in range(times - 1):
        reader.cancel()
        await turns()
    assert not reader.done()
    go_on.set()
    with pytest.raises(asyncio.CancelledError):
        await reader
    assert trace == ["start", "abort cancelled", "end"]


async def test_closing_from_another_task_ends_a_waiting_reader() -> None:
    """`aclose` 'works from any task'."""
    stall = Stall(1)
    agent = Agent(ScriptedModel(Turn("hello", chunk=1, delay=stall)))
    trace = outcomes(agent)
    stream = agent.chat_stream("hi")
    reader = asyncio.create_task(collect(stream))
    await stall.reached.wait()
    await turns()
    await stream.aclose()
    assert text(await reader) == "h"
    assert trace == ["start", "abort consumer left", "end"]


async def test_closing_twice_at_once_waits_for_the_same_end() -> None:
    go_on = asyncio.Event()
    agent = Agent(ScriptedModel(Turn("hello", delay=Stall())))
    trace = outcomes(agent)
    agent.add_hook("onChatAbort", lambda ctx: go_on.wait())
    stream = agent.chat_stream("hi")
    await anext(stream)
    closing = [asyncio.ensure_future(stream.aclose())]
    await turns()
    closing += [asyncio.ensure_future(stream.aclose()) for _ in range(2)]
    await turns()
    assert [each.done() for each in closing] == [False] * 3
    go_on.set()
    await asyncio.gather(*closing)
    await stream.aclose()
    assert trace == ["start", "abort consumer left", "end"]


async def test_a_cancelled_close_has_still_closed() -> None:
    """The close is waited for, then the cancellation goes on."""
    go_on, ending = asyncio.Event(), asyncio.Event()
    agent = Agent(ScriptedModel(Turn("hello", delay=Stall())))

    async def slow_end(ctx: object) -> None:
        ending.set()
        await go_on.wait()

    agent.add_hook("onChatAbort", slow_end)
    stream = agent.chat_stream("hi")
    await anext(stream)
    closing = asyncio.create_task(stream.aclose())
    await ending.wait()
    closing.cancel()
    await turns()
    assert not closing.done()
    go_on.set()
    with pytest.raises(asyncio.CancelledError):
        await closing
    assert others() == set()


@pytest.mark.parametrize(
    "parallel",
    [1, 2],
    ids=["lone call", "parallel calls"],
)
async def test_a_tool_may_close_the_stream_of_its_own_chat(
    parallel: int, loud: None, caplog: pytest.LogCaptureFixture
) -> None:
    """No deadlock, no grace period: the tool is cancelled like everything of the chat."""
    streams: list[ChatStream] = []

    @tool
    async def leave() -> str:
        await streams[0].aclose()
        return "left"

    limits = Limits(grace=0.05)
    agent = Agent(ScriptedModel([call("leave")] * parallel), tools=[leave], limits=limits)
    trace = outcomes(agent)
    streams.append(agent.chat_stream("hi"))
    await collect(streams[0])
    await turns()
    assert trace == ["start", "abort consumer left", "end"]
    assert caplog.text == ""


async def test_a_tool_of_a_sub_agent_may_close_the_stream_of_the_root() -> None:
    """No deadlock: the child that waits for it is a part of what it closes."""
    streams: list[ChatStream] = []

    @tool
    async def leave() -> None:
        await streams[0].aclose()
        await asyncio.Event().wait()

    child = Agent(ScriptedModel([call("leave")]), name="child", tools=[leave])
    agent = Agent(ScriptedModel([call("child", input="go")]), tools=[child.as_tool()])
    traces = [outcomes(agent), outcomes(child)]
    streams.append(agent.chat_stream("hi"))
    await collect(streams[0])
    await turns()
    assert traces == [
        ["start", "abort consumer left", "end"],
        ["start", "abort consumer left", "end"],  # the reason of the chat above
    ]


@pytest.mark.parametrize("who", ["hook", "model"])
async def test_a_StopAsyncIteration_of_somebody_s_own_is_no_normal_end(who: str) -> None:
    """A cut answer never looks whole: Python would take it for the end of the iteration."""
    error = StopAsyncIteration("mine")

    def fails(ctx: object) -> None:
        raise error

    agent = Agent(ScriptedModel("hello" if who == "hook" else error))
    if who == "hook":
        agent.add_hook("onResponse", fails)
    events: list[Any] = []
    with pytest.raises(RuntimeError) as caught:
        async for event in agent.chat_stream("hi"):
            events.append(event)
    assert caught.value.__cause__ is error
    assert isinstance(events[-1], ChatFailed)


async def test_a_hook_may_close_the_stream_of_its_own_chat() -> None:
    streams: list[ChatStream] = []
    agent = Agent(ScriptedModel("hello"), limits=Limits(grace=3600))
    trace = outcomes(agent)

    async def leave(ctx: object) -> None:
        await streams[0].aclose()

    agent.add_hook("preRequest", leave)
    streams.append(agent.chat_stream("hi"))
    async with asyncio.timeout(60):
        await collect(streams[0])
    await turns()
    assert trace == ["start", "abort consumer left", "end"]
    streams.clear()


# ── dropped ─────────────────────────────────────────────────────────────────────────────────


async def begun(agent: Agent[Any]) -> ChatStream:
    stream = agent.chat_stream("hi")
    await anext(stream)
    return stream


async def test_a_dropped_stream_stops_its_chat_and_warns() -> None:
    """'garbage' stops the run, with the reason 'collected' and a ResourceWarning."""
    model = ScriptedModel(Turn("hello", delay=Stall()))
    agent = Agent(model)
    trace = outcomes(agent)
    stream = await begun(agent)
    await turns()
    with pytest.warns(ResourceWarning, match="async with"):
        del stream
        gc.collect()
    await turns()
    assert trace == ["start", "abort collected", "end"]
    assert model.open == 0


async def test_a_stream_dropped_by_a_break_stops_its_chat() -> None:
    """The bare `async for`, left by break: nobody else holds the handle."""
    agent = Agent(ScriptedModel(Turn("hello", delay=Stall())))
    trace = outcomes(agent)
    with pytest.warns(ResourceWarning):
        async for _ in agent.chat_stream("hi"):
            break
        gc.collect()
    await turns()
    assert trace == ["start", "abort collected", "end"]


async def test_a_stream_dropped_in_another_thread_stops_its_chat() -> None:
    agent = Agent(ScriptedModel(Turn("hello", delay=Stall())))
    trace = outcomes(agent)
    ended = asyncio.Event()
    agent.add_hook("onChatEnd", lambda ctx: ended.set())
    held = [await begun(agent)]
    with pytest.warns(ResourceWarning):
        thread = threading.Thread(target=held.clear)
        thread.start()
        thread.join()
    await ended.wait()
    await turns()
    assert trace == ["start", "abort collected", "end"]


async def test_a_dropped_stream_that_had_ended_says_nothing() -> None:
    stream = Agent(ScriptedModel("hello")).chat_stream("hi")
    await collect(stream)
    del stream
    gc.collect()


async def test_a_stream_dropped_while_the_buffer_is_full_frees_its_writers() -> None:
    agent = Agent(ScriptedModel(Turn("x" * 100, chunk=1)))
    trace = outcomes(agent)
    stream = await begun(agent)
    await turns(200)
    with pytest.warns(ResourceWarning):
        del stream
        gc.collect()
    await turns()
    assert trace == ["start", "abort collected", "end"]


def test_a_stream_dropped_after_its_loop_has_closed() -> None:
    """No error in `__del__`, whatever became of the loop."""
    held: list[ChatStream] = []
    agent = Agent(ScriptedModel(Turn("hello", delay=Stall())))
    trace = outcomes(agent)

    async def main() -> None:
        held.append(await begun(agent))

    asyncio.run(main())  # cancels what is left
    held.clear()
    gc.collect()
    assert trace == ["start", "abort cancelled", "end"]


async def test_the_run_does_not_hold_its_handle() -> None:
    """'the handle holds the run, never the run the handle': no cycle keeps it alive."""
    agent = Agent(ScriptedModel(Turn("hello", delay=Stall())))
    trace = outcomes(agent)
    stream = await begun(agent)
    gc.disable()
    try:
        with pytest.warns(ResourceWarning):
            del stream
    finally:
        gc.enable()
    await turns()
    assert trace == ["start", "abort collected", "end"]


# ── the thirteen scenarios ──────────────────────────────────────────────────────────────────


class Scene:
    """A chat that is being read in a task of its own, with a mark on that task's context."""

    def __init__(self) -> None:
        self.stall = Stall(3)
        self.model = ScriptedModel(Turn("hello", chunk=1, delay=self.stall))
        self.conversation = Conversation()
        self.agent: Agent[Any] = Agent(self.model, tools=[add])
        self.trace = outcomes(self.agent)

        async def marks(ctx: Any, proceed: Any) -> Any:
            token = where.set("in the run")
            try:
                return await proceed()
            finally:
                where.reset(token)

        self.agent.add_hook("aroundChat", marks)

    def stream(self) -> ChatStream:
        return self.agent.chat_stream("hi", conversation=self.conversation)


async def break_bare(scene: Scene) -> None:
    with pytest.warns(ResourceWarning):
        async for event in scene.stream():
            if isinstance(event, TextDelta):
                break
        gc.collect()


async def break_in_with(scene: Scene) -> None:
    async with scene.stream() as stream:
        async for event in stream:
            assert where.get() == "the consumer"
            if isinstance(event, TextDelta):
                break


async def consumer_raises(scene: Scene) -> None:
    with pytest.raises(LookupError, match="mine"):
        async with scene.stream() as stream:
            async for _ in stream:
                raise LookupError("mine")


async def producer_raises(scene: Scene) -> None:
    error = LookupError("the model's")
    scene.model._turns = (Turn("hello", chunk=1, fail=error, fail_after=2),)
    with pytest.raises(LookupError) as caught:
        async with scene.stream() as stream:
            async for _ in stream:
                pass
    assert caught.value is error


async def outer_timeout_waiting(scene: Scene) -> None:
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(None) as limit:
            async with scene.stream() as stream:
                async for _ in stream:
                    if scene.stall.reached.is_set():
                        limit.reschedule(0)


async def outer_timeout_sleeping(scene: Scene) -> None:
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(None) as limit:
            async with scene.stream() as stream:
                async for _ in stream:
                    limit.reschedule(0)
                    await asyncio.Event().wait()


async def cancelled_twice(scene: Scene) -> None:
    async def read() -> None:
        async with scene.stream() as stream:
            await collect(stream)

    reader = asyncio.create_task(read())
    await scene.stall.reached.wait()
    reader.cancel()
    await asyncio.sleep(0)
    reader.cancel()
    with pytest.raises(asyncio.CancelledError):
        await reader


async def closed_elsewhere(scene: Scene) -> None:
    stream = scene.stream()
    await anext(stream)
    await asyncio.create_task(stream.aclose())


async def collected(scene: Scene) -> None:
    stream = scene.stream()
    await anext(stream)
    with pytest.warns(ResourceWarning):
        del stream
        gc.collect()


async def wrapped(scene: Scene) -> None:
    async def lines() -> AsyncIterator[str]:
        async with scene.stream() as stream:
            async for event in stream:
                assert where.get() == "the consumer"
                yield event.to_json().decode()

    async with aclosing(lines()) as mine:
        async for _ in mine:
            break


async def out_of_order(scene: Scene) -> None:
    other = Scene()
    one, two = scene.stream(), other.stream()
    await one.__aenter__()
    await two.__aenter__()
    await anext(one)
    await anext(two)
    await one.__aexit__(None, None, None)
    assert isinstance(await anext(two), MessageAdded)
    await two.__aexit__(None, None, None)
    assert other.trace == ["start", "abort consumer left", "end"]


async def slow_consumer(scene: Scene) -> None:
    scene.model._turns = (Turn("x" * 50, chunk=1),)
    events: list[Any] = []
    async with scene.stream() as stream:
        async for event in stream:
            events.append(event)
            await turns(5)
    assert text(events) == "x" * 50


async def producer_times_out(scene: Scene) -> None:
    async def limit(ctx: Any, proceed: Any) -> Any:
        async with asyncio.timeout(0):
            return await proceed()

    scene.agent.add_hook("aroundRequest", limit)
    with pytest.raises(TimeoutError):
        async with scene.stream() as stream:
            await collect(stream)


Scenario = Callable[[Scene], Any]
SCENARIOS: dict[str, tuple[Scenario, str]] = {
    "break": (break_bare, "abort collected"),
    "break in async with": (break_in_with, "abort consumer left"),
    "exception in the consumer": (consumer_raises, "abort consumer left"),
    "exception in the producer": (producer_raises, "error the model's"),
    "outer timeout while waiting": (outer_timeout_waiting, "abort cancelled"),
    "timeout while the consumer sleeps": (outer_timeout_sleeping, "abort consumer left"),
    "cancelled twice": (cancelled_twice, "abort cancelled"),
    "closed from another task": (closed_elsewhere, "abort consumer left"),
    "garbage collection": (collected, "abort collected"),
    "wrapped in a user's own generator": (wrapped, "abort consumer left"),
    "two streams closed out of order": (out_of_order, "abort consumer left"),
    "slow consumer": (slow_consumer, "done"),
    "producer's own timeout": (producer_times_out, "error "),
}


@pytest.mark.parametrize("name", SCENARIOS)
async def test_the_thirteen_scenarios(name: str) -> None:
    """Whatever the consumer does: one outcome, all closed, and its own task is left in peace."""
    scenario, outcome = SCENARIOS[name]
    scene = Scene()
    token = where.set("the consumer")
    await scenario(scene)
    await turns()
    assert scene.trace == ["start", outcome, "end"]
    assert (scene.model.open, scene.conversation.busy, others()) == (0, False, set())
    assert asyncio.current_task().cancelling() == 0  # type: ignore[union-attr]
    assert where.get() == "the consumer"
    where.reset(token)
    again = await Agent(ScriptedModel("fine")).chat("?", conversation=scene.conversation)
    assert again.text == "fine"


async def test_a_wrapping_generator_that_is_dropped_stops_the_chat() -> None:
    """The user's generator is collected in mid-iteration: the loop closes it, and it its chat."""
    scene = Scene()

    async def lines() -> AsyncIterator[str]:
        async with scene.stream() as stream:
            async for event in stream:
                yield type(event).__name__

    mine = lines()
    assert await anext(mine) == "ChatStarted"
    del mine
    gc.collect()
    await turns()
    assert scene.trace == ["start", "abort consumer left", "end"]


# ── how it ends ─────────────────────────────────────────────────────────────────────────────


async def test_stream_abort_ends_with_chat_aborted_then_normally() -> None:
    """'The consumer's own `stream.abort()` ends it with `ChatAborted`, then normally'."""
    stall = Stall(2)
    agent = Agent(ScriptedModel(Turn("hello", chunk=1, delay=stall)))
    events: list[Any] = []
    async with agent.chat_stream("hi") as stream:
        async for event in stream:
            events.append(event)
            if isinstance(event, TextDelta) and text(events) == "he":
                assert stream.abort("enough") is True
                assert stream.abort("enough again") is False
    assert isinstance(events[-1], ChatAborted)
    assert events[-1].reason == "enough"
    assert [message.text for message in events[-1].partial] == ["hi", "he"]
    with pytest.raises(StreamStateError):
        _ = stream.response


async def test_stream_abort_by_another_thread_ends_normally_however_soon_the_loop_wakes() -> None:
    """The thread that aborts is held until the stream has ended: nothing is decided after that."""
    loop = asyncio.get_running_loop()
    over = threading.Event()
    wake = loop.call_soon_threadsafe

    def wake_and_wait(*args: Any, **options: Any) -> Any:
        handle = wake(*args, **options)
        assert over.wait(20)
        return handle

    loop.call_soon_threadsafe = wake_and_wait  # type: ignore[method-assign]
    agent = Agent(ScriptedModel(Turn("hello", chunk=1, delay=Stall(2))))
    stream = agent.chat_stream("hi")
    events = [await anext(stream)]
    aborting = asyncio.create_task(asyncio.to_thread(stream.abort, "enough"))
    try:
        async with stream:
            events += [event async for event in stream]
    finally:
        over.set()
    assert await aborting is True
    assert isinstance(events[-1], ChatAborted)
    assert events[-1].reason == "enough"


async def test_run_abort_ends_with_chat_aborted_then_chat_aborted_error() -> None:
    """'`run.abort()` from elsewhere with `ChatAborted`, then `ChatAbortedError`'."""
    agent = Agent(ScriptedModel(Turn("hello", chunk=1)))

    def on_text(ctx: Any) -> None:
        if ctx.delta.text == "l":
            ctx.run.abort("no l")

    agent.add_hook("onDelta", on_text)
    events: list[Any] = []
    with pytest.raises(ChatAbortedError) as caught:
        async for event in agent.chat_stream("hi"):
            events.append(event)
    assert isinstance(events[-1], ChatAborted)
    assert (caught.value.reason, events[-1].reason) == ("no l", "no l")
    assert caught.value.partial == events[-1].partial


async def test_run_abort_by_the_consumer_s_task_is_not_stream_abort() -> None:
    """Who aborts by `run` is elsewhere, even in the consumer's task: the reader is told."""
    runs: list[Run[Any]] = []
    agent = Agent(ScriptedModel(Turn("hello", delay=Stall())))
    agent.add_hook("onChatStart", lambda ctx: runs.append(ctx.run))
    with pytest.raises(ChatAbortedError):
        async for event in agent.chat_stream("hi"):
            if isinstance(event, StepStarted):
                runs[0].abort("by run")


async def test_a_late_stream_abort_returns_false_and_changes_nothing() -> None:
    agent = Agent(ScriptedModel("hello"))
    trace = outcomes(agent)
    async with agent.chat_stream("hi") as stream:
        events = [event async for event in stream]
        assert stream.abort() is False
    assert isinstance(events[-1], ChatDone)
    assert stream.response.text == "hello"
    assert trace == ["start", "done", "end"]


async def test_stream_abort_after_run_abort_does_not_hide_it() -> None:
    """The first decides: the stream's late abort returns False and the error is still raised."""
    agent = Agent(ScriptedModel("hello"))
    agent.add_hook("preRequest", lambda ctx: ctx.run.abort("first") and None)
    async with agent.chat_stream("hi") as stream:
        await turns()
        assert stream.abort("second") is False
        with pytest.raises(ChatAbortedError, match="first"):
            await collect(stream)


@pytest.mark.parametrize("form", ["chat", "stream"])
async def test_a_third_party_that_cancels_the_owner_interrupts(form: str) -> None:
    """'a cut answer never looks whole': StreamInterruptedError; for the hooks an abort."""
    stall = Stall(2)
    agent = Agent(ScriptedModel(Turn("hello", chunk=1, delay=stall)))
    trace = outcomes(agent)
    owners: list[Any] = []
    agent.add_hook("onChatStart", lambda ctx: owners.append(asyncio.current_task()))
    events: list[Any] = []

    async def read() -> None:
        if form == "chat":
            await agent.chat("hi")
        else:
            await collect(agent.chat_stream("hi"), events)

    reader = asyncio.create_task(read())
    await stall.reached.wait()
    assert owners.pop().cancel()
    with pytest.raises(StreamInterruptedError):
        await reader
    assert trace == ["start", "abort cancelled", "end"]
    if form == "stream":
        assert isinstance(events[-1], ChatAborted)
        assert events[-1].reason == "cancelled"


async def test_a_cancelled_owner_task_ends_as_cancelled() -> None:
    """Who cancelled the task, as a runner at shutdown does, sees that it obeyed."""
    stall = Stall()
    agent = Agent(ScriptedModel(Turn("hello", delay=stall)))
    owners: list[Any] = []
    agent.add_hook("onChatStart", lambda ctx: owners.append(asyncio.current_task()))
    stream = await begun(agent)
    await stall.reached.wait()
    owners[0].cancel()
    await asyncio.wait(owners)
    assert owners[0].cancelled()
    with pytest.raises(StreamInterruptedError):
        await collect(stream)


async def test_exactly_one_terminal_event_and_it_is_the_last() -> None:
    """'then one of `ChatDone`, `ChatAborted`, `ChatFailed`', for each way to end."""
    seen: dict[str, list[str]] = {}
    for name, agent in endings().items():
        events: list[Any] = []
        with suppress(ChatAbortedError, LookupError):
            await collect(agent.chat_stream("hi"), events)
        seen[name] = [type(each).__name__ for each in events if isinstance(each, TERMINAL)]
        assert isinstance(events[-1], TERMINAL)
    assert seen == {
        "done": ["ChatDone"],
        "stopped": ["ChatDone"],
        "aborted": ["ChatAborted"],
        "model fails": ["ChatFailed"],
        "hook fails": ["ChatFailed"],
        "onChatDone fails": ["ChatDone"],
    }


def endings() -> dict[str, Agent[Any]]:
    def fails(ctx: object) -> None:
        raise LookupError("a hook's")

    return {
        "done": Agent(ScriptedModel("hello")),
        "stopped": Agent(ScriptedModel("hello"), hooks={"preChat": lambda ctx: Stop("no")}),
        "aborted": Agent(
            ScriptedModel("hello"), hooks={"onResponse": lambda ctx: ctx.run.abort() and None}
        ),
        "model fails": Agent(ScriptedModel(LookupError("the model's"))),
        "hook fails": Agent(ScriptedModel("hello"), hooks={"onMessage": fails}),
        "onChatDone fails": Agent(ScriptedModel("hello"), hooks={"onChatDone": fails}),
    }


async def test_an_error_ends_with_chat_failed_and_raises_the_same_object() -> None:
    """'An error ends the stream with `ChatFailed`, then raises' – the original one (I4)."""
    error = LookupError("the model's own")
    events: list[Any] = []
    with pytest.raises(LookupError) as caught:
        await collect(Agent(ScriptedModel(Turn("he", fail=error))).chat_stream("hi"), events)
    assert caught.value is error
    last = events[-1]
    assert isinstance(last, ChatFailed)
    assert (last.error.type, last.error.message) == ("LookupError", "the model's own")


async def test_what_is_wrong_before_the_start_is_raised_without_any_event() -> None:
    """A busy conversation 'reaches the caller alone: no other hook, no event'."""
    conversation = Conversation()
    stall = Stall()
    first = Agent(ScriptedModel(Turn("hello", delay=stall)))
    second = Agent(ScriptedModel("hello"))
    trace = outcomes(second)
    async with first.chat_stream("hi", conversation=conversation) as running:
        await anext(running)
        events: list[Any] = []
        with pytest.raises(Exception, match="is running chat"):
            await collect(second.chat_stream("hi", conversation=conversation), events)
        assert (events, trace) == ([], [])
        assert conversation.busy


async def test_the_response_is_there_when_chat_done_is() -> None:
    """`response`: an error while the chat runs, the answer from `ChatDone` on."""
    stall = Stall()
    stream = Agent(ScriptedModel(Turn("hello", delay=stall))).chat_stream("hi")
    async for event in stream:
        if isinstance(event, StepStarted):
            await stall.reached.wait()
            with pytest.raises(StreamStateError, match="no response yet"):
                _ = stream.response
            stall.go.set()
        elif isinstance(event, ChatDone):
            assert stream.response is event.response
    assert stream.response.text == "hello"


async def test_the_terminal_event_comes_after_the_last_hook_and_the_freed_conversation() -> None:
    """'then onChatEnd ) → conversation freed → ChatDone' (4)."""
    conversation = Conversation()
    agent = Agent(ScriptedModel("hello"))
    trace = outcomes(agent)
    async with agent.chat_stream("hi", conversation=conversation) as stream:
        async for event in stream:
            if isinstance(event, ChatDone):
                assert trace == ["start", "done", "end"]
                assert not conversation.busy


# ── events ──────────────────────────────────────────────────────────────────────────────────

CALL = ToolCall(id="c1", name="add", arguments={"a": 1})
HEAD: dict[str, Any] = {"chat_id": "x", "seq": 3, "path": ("c0",)}


def sample(kind: type) -> list[Any]:
    """Events of this type that have every field filled, and the shortest one."""
    request = ApprovalRequestSample
    filled: dict[type, dict[str, Any]] = {
        ChatStarted: {
            "agent": "a",
            "message": UserMessage(parts=(Text("hi"),)),
            "conversation_id": "k",
            "parent_chat_id": "p",
            "resumes": "r",
        },
        StepStarted: {"iteration": 1},
        TextDelta: {"iteration": 1, "text": "ä\u2028\0<"},
        ReasoningDelta: {"iteration": 1, "text": "hm"},
        PartEnd: {"iteration": 1, "part": "reasoning"},
        ToolCallDelta: {
            "iteration": 1, "index": 0, "call_id": "c1", "name": "add", "arguments": '{"a"',
        },
        ToolCallStarted: {"iteration": 1, "call": CALL},
        ToolCallFinished: {
            "iteration": 1,
            "call_id": "c1",
            "name": "add",
            "outcome": "error",
            "result": ToolFailure("bad", type="ValueError", issues=("a: no",)),
        },
        Status: {"iteration": 1, "type": "t", "data": {"deep": [1, None, 1.5]}, "call_id": "c1"},
        ApprovalRequested: {"request": request},
        MessageQueued: {"message": UserMessage(id="m", parts=(Text("t"),)), "when": "idle"},
        MessageReturned: {"message": UserMessage(id="m", parts=(Text("t"),)), "reason": "no"},
        MessageAdded: {
            "message": AssistantMessage(
                id="m", parts=(Reasoning("r", {"sig": "s"}), Text("t"), CALL), partial=True
            )
        },
        ResponseReset: {"iteration": 1},
        SourceAdded: {"iteration": 1, "source": PAGE},
        FileAdded: {"iteration": 1, "file": PICTURE},
        StepFinished: {"iteration": 1, "finish_reason": "length", "usage": Usage(input_tokens=1)},
        ChatDone: {
            "response": Response(
                chat_id="x", text="t", messages=(ToolMessage(call_id="c", name="n", text="t"),),
                stop_reason="s", pending=(request,), output={"a": 1},
            )
        },
        ChatAborted: {"reason": "why", "partial": (UserMessage(parts=(Text("hi"),)),)},
        ChatFailed: {"error": error_info()},
    }  # fmt: skip
    events = [kind(**HEAD, **filled[kind])]
    if kind is ToolCallFinished:
        events.append(events[0].replace(outcome="ok", result=ToolResult([1, "two"])))
    if kind is MessageAdded:
        events += [
            events[0].replace(message=message)
            for message in (
                UserMessage(parts=(Text("hi"),)),
                ToolMessage(call_id="c", name="n", text="t", outcome="stopped"),
            )
        ]
    return events


def error_info() -> Any:
    from hookline._base.returns import ErrorInfo

    return ErrorInfo.of(ValueError("why"))


def _request() -> Any:
    from hookline import ApprovalRequest

    return ApprovalRequest(
        id="a1", call=CALL, prompts=("may I?",), chat_id="x", conversation_id="k", iteration=1,
        digest="d", expires=5.0,
    )  # fmt: skip


ApprovalRequestSample = _request()


@pytest.mark.parametrize("kind", EVENTS, ids=lambda kind: kind.__name__)
def test_events_are_json_both_ways(kind: type) -> None:
    """'Frozen, typed, JSON both ways'."""
    for event in sample(kind):
        data = event.to_json()
        assert read_event(data) == event
        assert type(read_event(data.decode())) is kind


@pytest.mark.parametrize("kind", EVENTS, ids=lambda kind: kind.__name__)
def test_events_are_frozen(kind: type) -> None:
    event = sample(kind)[0]
    with pytest.raises(AttributeError):
        event.seq = 99
    assert event.replace(seq=99).seq == 99


def test_every_event_type_is_exported() -> None:
    import hookline.events

    assert {kind.__name__ for kind in EVENTS} <= set(hookline.events.__all__)
    assert len(EVENTS) == 20


def letter(event: ChatEvent) -> str:
    """A match with no catch-all: a new event type makes the type checkers fail here."""
    match event:
        case ChatStarted():
            return "S"
        case StepStarted():
            return "("
        case StepFinished():
            return ")"
        case TextDelta():
            return "t"
        case ReasoningDelta():
            return "r"
        case PartEnd():
            return "."
        case ToolCallDelta():
            return "c"
        case ToolCallStarted():
            return "["
        case ToolCallFinished():
            return "]"
        case Status():
            return "s"
        case ApprovalRequested():
            return "?"
        case MessageAdded():
            return "M"
        case MessageQueued():
            return "q"
        case MessageReturned():
            return "b"
        case SourceAdded():
            return "*"
        case FileAdded():
            return "#"
        case ResponseReset():
            return "~"
        case ChatDone():
            return "D"
        case ChatAborted():
            return "A"
        case ChatFailed():
            return "F"
        case _ as never:
            assert_never(never)


@pytest.mark.parametrize("kind", EVENTS, ids=lambda kind: kind.__name__)
def test_match_over_events_is_exhaustive(kind: type) -> None:
    assert len(letter(sample(kind)[0])) == 1


async def test_one_chat_shows_every_kind_of_event() -> None:
    """Each kind is published by a real chat, and each survives JSON."""

    @tool
    async def probe(run: Run[Any]) -> str:
        await run.status("working", 1)
        return "ok"

    conversation = Conversation()
    agent = Agent(
        ScriptedModel(
            [Reasoning("hm"), Text("no"), PAGE, PICTURE, call("probe", call_id="p")],
            "fine",
            ValueError("x"),
        ),
        tools=[probe],
    )
    agent.add_hook("preToolCall", lambda ctx: Ask("may I?"))
    for text in ("more", "refused"):
        agent.add_hook("onStep", sending(text))
    agent.add_hook("preSteer", deny_refused)
    agent.add_hook(
        "onResponse",
        lambda ctx: ctx.response.replace(text="yes") if ctx.response.text == "no" else None,
    )
    events = await collect(agent.chat_stream("hi", conversation=conversation))
    answers = {each.id: Approve() for each in conversation.pending}
    events += await collect(agent.resume_stream(conversation, answers))
    with pytest.raises(ValueError, match="x"):
        await collect(agent.chat_stream("again", conversation=conversation), events)
    aborting = Agent(ScriptedModel("hello"), hooks={"onResponse": lambda ctx: ctx.run.abort()})
    aborting.bus.clear()
    aborting.add_hook("preRequest", lambda ctx: ctx.run.abort("why") and None)
    with pytest.raises(ChatAbortedError):
        await collect(aborting.chat_stream("hi"), events)
    assert {type(event) for event in events} == set(EVENTS)
    for event in events:
        assert read_event(event.to_json()) == event


def refuse(ctx: Any) -> ToolFailure:
    return ToolFailure("no")


@pytest.mark.parametrize(
    ("wish", "hook", "outcome"),
    [
        (call("add", a=1, b=2), None, "ok"),
        (call("nope"), None, "error"),
        (call("add", a="x", b=2), None, "error"),
        (call("boom"), None, "error"),
        (call("off"), None, "error"),
        (call("add", a=1, b=2), refuse, "denied"),
        (call("add", a=1, b=2), lambda ctx: ToolResult(3), "answered"),
        (call("add", a=1, b=2), lambda ctx: Stop("enough"), "stopped"),
        (call("add", a=1, b=2), lambda ctx: Ask("may I?"), "denied"),
    ],
    ids=[
        "ok", "unknown", "bad arguments", "fails", "disabled", "denied", "answered", "stopped",
        "nobody to ask",
    ],
)  # fmt: skip
async def test_every_call_has_one_started_and_one_finished(
    wish: ToolCall, hook: Any, outcome: str
) -> None:
    """'every call – unknown and denied ones too – has one `ToolCallStarted` and one …Finished`'."""

    @tool
    async def boom() -> None:
        raise LookupError("the tool's")

    @tool(enabled=lambda: False)
    async def off() -> None: ...

    agent = Agent(ScriptedModel([wish], "done"), tools=[add, boom, off])
    if hook is not None:
        agent.add_hook("preToolCall", hook)
    events = await collect(agent.chat_stream("hi"))
    started = [e.call.name for e in events if isinstance(e, ToolCallStarted)]
    finished = [(e.name, e.outcome) for e in events if isinstance(e, ToolCallFinished)]
    assert started == [wish.name]
    assert finished == [(wish.name, outcome)]


async def test_an_aborted_call_is_finished_as_aborted() -> None:
    agent = Agent(ScriptedModel([call("hang")]), tools=[hang])
    events: list[Any] = []
    async with agent.chat_stream("hi") as stream:
        async for event in stream:
            events.append(event)
            if isinstance(event, ToolCallStarted):
                stream.abort()
    finished = [(e.name, e.outcome) for e in events if isinstance(e, ToolCallFinished)]
    assert finished == [("hang", "aborted")]
    assert kinds(events).index("ToolCallFinished") < kinds(events).index("ChatAborted")


@tool
async def hang() -> None:
    """Never return."""
    await asyncio.Event().wait()


async def test_a_pending_call_is_finished_by_the_resuming_chat() -> None:
    """'(a pending one finishes on resume)'."""
    conversation = Conversation()
    agent = Agent(ScriptedModel([call("add", a=1, b=2)], "done"), tools=[add])
    agent.add_hook("preToolCall", lambda ctx: Ask("may I?"))
    asked = await collect(agent.chat_stream("hi", conversation=conversation))
    answers = {each.id: Approve() for each in conversation.pending}
    resumed = await collect(agent.resume_stream(conversation, answers))
    names = [
        [name for name in kinds(events) if name.startswith("ToolCall") and name != "ToolCallDelta"]
        for events in (asked, resumed)
    ]
    assert names == [["ToolCallStarted"], ["ToolCallFinished"]]


@pytest.mark.parametrize("release", ["live", "response"])
async def test_release_response_publishes_only_what_the_hooks_have_passed(release: Any) -> None:
    """'each message only once `onResponse` and `preMessage` have run, one delta per part'."""
    model = ScriptedModel(Turn(reasoning="think", text="secret", chunk=2))
    agent = Agent(model)
    agent.add_hook("onResponse", lambda ctx: ctx.response.replace(text="public"))
    agent.add_hook("preMessage", exclaim)
    events = await collect(agent.chat_stream("hi", release=release))
    if release == "response":
        assert text(events) == "public!"
        assert [e.text for e in events if isinstance(e, ReasoningDelta)] == ["think"]
        assert "ResponseReset" not in kinds(events)
        assert kinds(events).count("TextDelta") == 1
    else:
        assert text(events) == "secretpublic!"
        assert kinds(events).count("ResponseReset") == 1
    final = [e.message for e in events if isinstance(e, MessageAdded)][-1]
    assert final.text == "public!"


def exclaim(ctx: Any) -> Any:
    message = ctx.message
    return message.replace(text=message.text + "!") if message.role == "assistant" else None


async def test_an_unknown_release_is_refused_where_it_is_given() -> None:
    with pytest.raises(UsageError, match="release"):
        Agent(ScriptedModel("hello")).chat_stream("hi", release="later")  # type: ignore[arg-type]


async def test_release_response_holds_back_what_an_error_cuts_off() -> None:
    """An unchecked text is never shown, not even when the model fails in the middle."""
    model = ScriptedModel(Turn("secret", fail=LookupError("the model's")))
    events: list[Any] = []
    with pytest.raises(LookupError):
        await collect(Agent(model).chat_stream("hi", release="response"), events)
    assert "TextDelta" not in kinds(events)


# ── contextvars ─────────────────────────────────────────────────────────────────────────────


async def test_the_run_sees_the_context_of_the_call_of_chat_stream() -> None:
    """'the caller's context as it was when `chat_stream()` was called'."""
    seen: list[str] = []

    @tool
    async def look() -> None:
        seen.append(f"tool {where.get()}")

    agent = Agent(ScriptedModel([call("look")], "done"), tools=[look])
    agent.add_hook("onChatStart", lambda ctx: seen.append(f"hook {where.get()}"))
    token = where.set("at the call")
    stream = agent.chat_stream("hi")
    where.set("at the first pull")
    await collect(stream)
    where.reset(token)
    assert seen == ["hook at the call", "tool at the call"]


async def test_what_the_run_sets_stays_in_the_run() -> None:
    """The consumer's body sees its own context, before, between and after."""
    seen: list[str] = []
    agent = Agent(ScriptedModel(Turn("hello", chunk=1)))
    agent.add_hook("onChatStart", lambda ctx: where.set("in the run") and None)
    agent.add_hook("onChatEnd", lambda ctx: seen.append(where.get()))
    token = where.set("the consumer")
    async with agent.chat_stream("hi") as stream:
        async for _ in stream:
            assert where.get() == "the consumer"
            where.set("the consumer")
    where.reset(token)
    assert seen == ["in the run"]


async def test_chat_gives_hooks_the_caller_s_context_too() -> None:
    """`chat()` runs 'also in an owner task, so that contextvars … behave alike'."""
    seen: list[str] = []
    agent = Agent(ScriptedModel("hello"))
    agent.add_hook("onChatStart", lambda ctx: seen.append(where.get()))
    agent.add_hook("onChatEnd", lambda ctx: where.set("in the run") and None)
    token = where.set("the caller")
    await agent.chat("hi")
    assert (seen, where.get()) == (["the caller"], "the caller")
    where.reset(token)


# ── subscribing ─────────────────────────────────────────────────────────────────────────────


async def test_a_subscriber_hears_all_chats_of_the_agent() -> None:
    """'any other task an iterator over the events of all chats of the agent'; no type: all."""
    agent = Agent(ScriptedModel("a", "b"))
    with agent.subscribe() as all_, agent.subscribe(TextDelta, ChatDone) as some:
        await agent.chat("hi")
        await collect(agent.chat_stream("hi"))
    heard = [event async for event in all_]
    assert len({event.chat_id for event in heard}) == 2
    assert kinds([event async for event in some]) == ["TextDelta", "ChatDone"] * 2


async def test_a_subscriber_that_lags_is_closed_and_told() -> None:
    """`overflow="close"` (default): what it holds, then an error – a gap is never silent."""
    agent = Agent(ScriptedModel(Turn("x" * 20, chunk=1)))
    lagging = agent.subscribe(TextDelta, size=4)
    await agent.chat("hi")
    events: list[Any] = []
    with pytest.raises(SubscriptionOverflowError):
        async for event in lagging:
            events.append(event)
    assert text(events) == "x" * 4


async def test_a_subscriber_may_drop_the_oldest_and_counts_them() -> None:
    agent = Agent(ScriptedModel(Turn("0123456789", chunk=1)))
    lagging = agent.subscribe(TextDelta, size=4, overflow="drop_oldest")
    await agent.chat("hi")
    lagging.close()
    assert text([event async for event in lagging]) == "6789"
    assert lagging.dropped == 6


async def test_a_subscriber_never_slows_a_chat() -> None:
    """'It never slows a chat': nobody reads, and the chat is done."""
    agent = Agent(ScriptedModel(Turn("x" * 500, chunk=1)))
    with agent.subscribe(size=2), agent.subscribe(size=2, overflow="drop_oldest"):
        assert (await agent.chat("hi")).text == "x" * 500


async def test_a_subscriber_hears_the_end_of_an_abandoned_chat() -> None:
    agent = Agent(ScriptedModel(Turn("hello", delay=Stall())))
    with agent.subscribe(*TERMINAL) as heard:
        async with agent.chat_stream("hi") as stream:
            await anext(stream)
            await turns()
    assert [(type(e).__name__, e.reason) async for e in heard] == [("ChatAborted", "consumer left")]


# ── the grace period, seen from the stream ──────────────────────────────────────────────────


async def test_a_close_waits_no_longer_than_the_grace_period(
    loud: None, caplog: pytest.LogCaptureFixture
) -> None:
    """`aclose()` 'joins within the grace limit; what outlives it is named in a warning'."""
    let_go = asyncio.Event()

    @tool
    async def stubborn() -> str:
        await stubbornly(let_go)
        return "late"

    agent = Agent(ScriptedModel([call("stubborn")]), tools=[stubborn], limits=Limits(grace=0.05))
    trace = outcomes(agent)
    async with agent.chat_stream("hi") as stream:
        async for event in stream:
            if isinstance(event, ToolCallStarted):
                break
        await turns()
    assert trace == ["start", "abort consumer left", "end"]
    assert "tool 'stubborn'" in caplog.text
    let_go.set()
    await turns()


async def test_a_response_given_by_a_hook_streams_like_any_other() -> None:
    """The reader cannot tell: deltas, then the message, then the end."""
    agent = Agent(ScriptedModel())
    agent.add_hook("preRequest", lambda ctx: ModelResponse.of("given", reasoning="why"))
    events = await collect(agent.chat_stream("hi"))
    assert "".join(map(letter, events)) == "SM(r.t.M)D"
