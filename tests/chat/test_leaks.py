"""Nothing of a chat outlives it: tasks, timers, threads, and what the user gave to it."""

from __future__ import annotations

import asyncio
import gc
import threading
import warnings
import weakref
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

import anyio.to_thread
import pytest

from hookline import (
    Agent,
    Approve,
    Ask,
    Conversation,
    HookBus,
    Limits,
    MemoryStore,
    Run,
    ToolFailure,
    Wrapper,
    tool,
)
from hookline.errors import ChatAbortedError, HookTimeoutError, MaxStepsError
from hookline.events import TextDelta, ToolCallFinished, ToolCallStarted
from hookline.models import TextChunk
from hookline.testing import ScriptedModel, Turn, call, collect


async def turns(times: int = 60) -> None:
    for _ in range(times):
        await asyncio.sleep(0)


class Deps:
    """What the user gives to a chat: it lives as long as anything of the chat does."""


class OwnError(Exception):
    """An exception that can be referred to weakly."""


MADE: list[weakref.ref[OwnError]] = []


def made(error: OwnError) -> OwnError:
    """Remember it weakly."""
    MADE.append(weakref.ref(error))
    return error


class Work(Wrapper[str]):
    job: str = ""


@tool
async def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


@tool
async def nothing() -> None:
    """Do nothing."""


@tool
async def boom() -> None:
    """Fail."""
    raise OwnError("the tool's")


@tool
async def hang(run: Run[Any]) -> None:
    """Never return."""
    await asyncio.Event().wait()


async def throw(ctx: object) -> None:
    raise OwnError("the hook's")


async def pass_on(ctx: Any, proceed: Any) -> Any:
    return await proceed()


# ── the ways in which a chat ends ───────────────────────────────────────────────────────────


async def done(deps: Deps) -> None:
    await Agent(ScriptedModel([call("add", a=1, b=2)], "done"), tools=[add]).chat("hi", deps=deps)


async def streamed(deps: Deps) -> None:
    agent = Agent(ScriptedModel([call("add", a=1, b=2)], "done"), tools=[add])
    async with agent.chat_stream("hi", deps=deps) as stream:
        await collect(stream)


async def with_hooks(deps: Deps) -> None:
    wishes = [call("add", a=1, b=2), call("add", a=3, b=4)]
    agent = Agent(ScriptedModel(wishes, "done"), tools=[add])
    for point in ("aroundChat", "aroundRequest", "aroundToolCall"):
        agent.add_hook(point, pass_on, timeout=60)  # type: ignore[call-overload]
    for point in ("onChatStart", "preChat", "onDelta", "preToolCall", "onChatDone", "onHook"):
        agent.add_hook(point, lambda ctx: None)  # type: ignore[call-overload]
    await agent.chat("hi", deps=deps)


class Fails:
    """A model whose exception is held by nothing of the test's (a script would hold it)."""

    async def stream(self, request: Any) -> AsyncIterator[Any]:
        yield TextChunk("he")
        raise made(OwnError("the model's"))


async def model_fails(deps: Deps) -> None:
    with suppress(OwnError):
        await Agent(Fails()).chat("hi", deps=deps)


async def hook_fails(deps: Deps) -> None:
    with suppress(OwnError):
        await Agent(ScriptedModel("hello"), hooks={"onResponse": throw}).chat("hi", deps=deps)


async def hook_fails_streamed(deps: Deps) -> None:
    agent = Agent(ScriptedModel("hello"), hooks={"onResponse": throw})
    with suppress(OwnError):
        await collect(agent.chat_stream("hi", deps=deps))


async def hook_at_the_end_fails(deps: Deps) -> None:
    with suppress(OwnError):
        await Agent(ScriptedModel("hello"), hooks={"onChatDone": throw}).chat("hi", deps=deps)


async def wrapper_fails_beside_a_call(deps: Deps) -> None:
    async def wrapper(ctx: Any, proceed: Any) -> Any:
        raise OwnError("the wrapper's")

    agent = Agent(ScriptedModel([call("hang"), call("add", a=1, b=2)]), tools=[hang, add])
    agent.add_hook("aroundToolCall", wrapper, tools=["add"])
    with suppress(OwnError):
        await agent.chat("hi", deps=deps)


async def tools_fail(deps: Deps) -> None:
    agent = Agent(ScriptedModel([call("boom"), call("boom")], [call("boom")], "done"), tools=[boom])
    await agent.chat("hi", deps=deps)


async def tool_times_out(deps: Deps) -> None:
    agent = Agent(ScriptedModel([call("hang")], "done"), tools=[hang.replace(timeout=0.001)])
    await agent.chat("hi", deps=deps)


async def hook_times_out(deps: Deps) -> None:
    async def hung(ctx: object) -> None:
        await asyncio.Event().wait()

    agent = Agent(ScriptedModel("hello"))
    agent.add_hook("onResponse", hung, timeout=0.001)
    with suppress(HookTimeoutError):
        await agent.chat("hi", deps=deps)


async def too_many_steps(deps: Deps) -> None:
    agent = Agent(ScriptedModel([call("add", a=1, b=2)]), tools=[add], limits=Limits(steps=1))
    with suppress(MaxStepsError):
        await agent.chat("hi", deps=deps)


async def aborted(deps: Deps) -> None:
    agent = Agent(ScriptedModel("hello"))
    agent.add_hook("onResponse", lambda ctx: ctx.run.abort() and None)
    with suppress(ChatAbortedError):
        await agent.chat("hi", deps=deps)


async def aborted_by_its_reader(deps: Deps) -> None:
    agent = Agent(ScriptedModel([call("hang"), call("hang")]), tools=[hang])
    async with agent.chat_stream("hi", deps=deps) as stream:
        async for event in stream:
            if isinstance(event, ToolCallStarted):
                stream.abort()


async def left(deps: Deps) -> None:
    async with Agent(ScriptedModel(Turn("hello", chunk=1))).chat_stream("hi", deps=deps) as stream:
        async for event in stream:
            if isinstance(event, TextDelta):
                break


async def left_at_once(deps: Deps) -> None:
    async with Agent(ScriptedModel("hello")).chat_stream("hi", deps=deps):
        pass


async def never_read(deps: Deps) -> None:
    Agent(ScriptedModel("hello")).chat_stream("hi", deps=deps)


async def dropped(deps: Deps) -> None:
    stream = Agent(ScriptedModel(Turn("hello", chunk=1))).chat_stream("hi", deps=deps)
    await anext(stream)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)
        del stream
    await turns()


async def cancelled(deps: Deps) -> None:
    agent = Agent(ScriptedModel([call("hang"), call("add", a=1, b=2)]), tools=[hang, add])
    task = asyncio.create_task(agent.chat("hi", deps=deps))
    await turns()
    task.cancel()
    await asyncio.wait([task])


async def refused(deps: Deps) -> None:
    agent = Agent(ScriptedModel("hello"), hooks={"aroundChat": fails_before})
    with suppress(OwnError):
        await agent.chat("hi", deps=deps)


async def fails_before(ctx: Any, proceed: Any) -> Any:
    raise OwnError("before proceed")


async def sub_agent(deps: Deps) -> None:
    child = Agent(ScriptedModel([call("add", a=1, b=2)], "done"), name="child", tools=[add])
    agent = Agent(ScriptedModel([call("child", input="?")], "done"), tools=[child.as_tool()])
    async with agent.chat_stream("hi", deps=deps) as stream:
        await collect(stream)


async def approved(deps: Deps) -> None:
    conversation = Conversation()
    agent = Agent(ScriptedModel([call("add", a=1, b=2)], "done"), tools=[add])
    agent.add_hook("preToolCall", lambda ctx: Ask("may I?"))
    await agent.chat("hi", conversation=conversation, deps=deps)
    answers = {each.id: Approve() for each in conversation.pending}
    await agent.resume(conversation, answers, deps=deps)


async def sync_tool(deps: Deps) -> None:
    @tool
    def in_a_thread(run: Run[Any]) -> str:
        return "ok"

    agent = Agent(ScriptedModel([call("in_a_thread")], "done"), tools=[in_a_thread])
    await agent.chat("hi", deps=deps)
    await anyio.to_thread.run_sync(int)  # the worker thread has let go of what it did before


ENDINGS: dict[str, Callable[[Deps], Awaitable[None]]] = {
    each.__name__: each
    for each in (
        done, streamed, with_hooks, model_fails, hook_fails, hook_fails_streamed,
        hook_at_the_end_fails, wrapper_fails_beside_a_call, tools_fail, tool_times_out,
        hook_times_out, too_many_steps, aborted, aborted_by_its_reader, left, left_at_once,
        never_read, dropped, cancelled, refused, sub_agent, approved, sync_tool,
    )
}  # fmt: skip


@pytest.fixture(autouse=True)
async def no_task_is_left() -> AsyncIterator[None]:
    yield
    assert asyncio.all_tasks() - {asyncio.current_task()} == set()  # type: ignore[arg-type]


# Exceptions of calls side by side hold each other's tasks: these wait for the collector.
CYCLIC = {"wrapper_fails_beside_a_call", "cancelled"}


@contextmanager
def no_collector() -> Iterator[None]:
    """Only what nothing refers to is freed: a cycle would stay."""
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


@pytest.mark.parametrize("ending", ENDINGS)
async def test_after_a_collection_nothing_of_a_chat_is_alive(ending: str) -> None:
    """I3: 'no task, socket, thread or handle of ours is alive' – nor what was given to it."""
    deps = Deps()
    freed = weakref.ref(deps)
    await ENDINGS[ending](deps)
    del deps
    await turns()
    gc.collect()
    assert freed() is None
    assert len(asyncio.all_tasks()) == 1


@pytest.mark.parametrize("ending", [each for each in ENDINGS if each not in CYCLIC])
async def test_a_chat_is_freed_without_the_collector(ending: str) -> None:
    """No reference cycle holds it: not through a traceback, not through its own parts."""
    with no_collector():
        deps = Deps()
        freed = weakref.ref(deps)
        await ENDINGS[ending](deps)
        del deps
        await turns()
        assert freed() is None


@pytest.mark.parametrize("ending", ENDINGS)
async def test_no_timer_of_a_chat_is_left(ending: str) -> None:
    """A time limit of two minutes would hold the chat for two minutes."""
    loop: Any = asyncio.get_running_loop()
    before = {timer for timer in loop._scheduled if not timer.cancelled()}
    await ENDINGS[ending](Deps())
    await turns()
    after = {timer for timer in loop._scheduled if not timer.cancelled()}
    assert after <= before


@pytest.mark.parametrize("how", ["in time", "too late", "raises"])
async def test_a_dispatch_without_a_chat_leaves_no_timer(how: str) -> None:
    """It would hold what the hook holds until the time is over."""
    bus: HookBus[Any] = HookBus()
    loop: Any = asyncio.get_running_loop()

    async def wrapper(ctx: Any, proceed: Any) -> Any:
        await asyncio.sleep(0)
        if how == "raises":
            raise LookupError("mine")
        if how == "too late":
            await asyncio.Event().wait()
        return await proceed()

    async def inner(job: str) -> str:
        return job

    bus.add_hook(Work, wrapper, timeout=0.01 if how == "too late" else 60)
    before = {timer for timer in loop._scheduled if not timer.cancelled()}
    with suppress(LookupError, HookTimeoutError):
        await bus.wrap(Work("job"), inner)
    assert {timer for timer in loop._scheduled if not timer.cancelled()} == before


@pytest.mark.parametrize(
    "where",
    ["model", "streamed hook", "hook", "onChatDone"],
)
async def test_an_exception_that_was_handled_is_freed_without_the_collector(where: str) -> None:
    """'drops it from the state': the error is in no cycle with the frames it went through."""
    MADE.clear()

    def fails(ctx: object) -> None:
        raise made(OwnError("mine"))

    agent = Agent(Fails() if where == "model" else Same())
    if where == "onChatDone":
        agent.add_hook("onChatDone", fails)
    elif where != "model":
        agent.add_hook("onResponse", fails)
    with no_collector():
        try:
            if where == "streamed hook":
                await collect(agent.chat_stream("hi"))
            else:
                await agent.chat("hi")
        except OwnError:
            pass
        await turns()
        assert [ref() for ref in MADE] == [None]


async def test_a_tool_s_exception_is_freed_with_the_chat() -> None:
    MADE.clear()

    @tool
    async def fails() -> None:
        raise made(OwnError("mine"))

    agent = Agent(ScriptedModel([call("fails"), call("fails")], "done"), tools=[fails])
    with no_collector():
        await agent.chat("hi")
        await turns()
        assert [ref() for ref in MADE] == [None, None]


# ── what the user keeps keeps no chat ───────────────────────────────────────────────────────


async def test_a_kept_response_keeps_no_chat() -> None:
    deps = Deps()
    freed = weakref.ref(deps)
    agent = Agent(ScriptedModel([call("boom")], "done"), tools=[boom])
    response = await agent.chat("hi", deps=deps)
    del deps
    await turns()
    gc.collect()
    assert (freed(), response.text) == (None, "done")


@tool
async def fails_knowingly(run: Run[Any]) -> None:
    """Fail, with the run in the traceback."""
    raise OwnError("mine")


async def test_kept_events_keep_no_chat() -> None:
    """Also those of calls that failed with an exception, which has a traceback."""
    deps = Deps()
    freed = weakref.ref(deps)
    model = ScriptedModel([call("fails_knowingly")], "done")
    agent = Agent(model, tools=[fails_knowingly])
    events = await collect(agent.chat_stream("hi", deps=deps))
    del deps
    await turns()
    gc.collect()
    (finished,) = [event for event in events if isinstance(event, ToolCallFinished)]
    assert isinstance(finished.result, ToolFailure)
    assert freed() is None


@pytest.mark.parametrize("ending", ["done", "left", "error"])
async def test_a_kept_conversation_keeps_no_chat(ending: str) -> None:
    deps = Deps()
    freed = weakref.ref(deps)
    conversation = Conversation()

    def answer(request: object) -> Turn:
        return Turn("hello", chunk=1, fail=OwnError("mine") if ending == "error" else None)

    agent = Agent(ScriptedModel(answer))
    with suppress(OwnError):
        async with agent.chat_stream("hi", conversation=conversation, deps=deps) as stream:
            async for event in stream:
                if ending == "left" and isinstance(event, TextDelta):
                    break
    del deps, stream
    await turns()
    gc.collect()
    assert len(conversation.messages) == 2
    assert freed() is None


async def test_an_agent_keeps_no_chat() -> None:
    """Neither through its bus, nor through the hooks that one chat has brought along."""
    agent = Agent(ScriptedModel("hello", "hello"), store=MemoryStore())
    with agent.subscribe(), agent.add_hook("onMessage", lambda ctx: None):
        for hooks in (None, {"onChatStart": lambda ctx: None}):
            deps = Deps()
            freed = weakref.ref(deps)
            options: dict[str, Any] = {} if hooks is None else {"hooks": hooks}
            await agent.chat("hi", deps=deps, conversation="kept", **options)
            del deps
            await turns()
            gc.collect()
            assert freed() is None


# ── many ────────────────────────────────────────────────────────────────────────────────────


async def grown(work: Callable[[], Awaitable[None]], warm: int, times: int) -> int:
    """How many objects more there are after doing it many times."""
    for _ in range(warm):
        await work()
    await turns()
    gc.collect()
    before = len(gc.get_objects())
    for _ in range(times):
        await work()
    await turns()
    gc.collect()
    return len(gc.get_objects()) - before


class Same:
    """A model that asks for a tool where there is one, and keeps nothing."""

    async def stream(self, request: Any) -> AsyncIterator[Any]:
        asks = len(request.messages) == 1 and request.tools
        async for chunk in ScriptedModel([call(request.tools[0].name)] if asks else "done").stream(
            request
        ):
            yield chunk


@pytest.mark.slow
@pytest.mark.parametrize(
    "form",
    ["chat", "stream", "left", "error", "tool error", "own hooks"],
)
async def test_many_chats_do_not_grow(form: str) -> None:
    """400 of one kind on one agent: at the end there is what there was."""
    tools = {"tool error": [boom], "error": []}.get(form, [nothing])
    agent = Agent(Same(), tools=tools)
    heard = agent.subscribe(TextDelta, size=1, overflow="drop_oldest")

    async def work() -> None:
        if form == "chat":
            await agent.chat("hi")
        elif form == "stream":
            await collect(agent.chat_stream("hi", conversation=Conversation()))
        elif form == "tool error":
            await agent.chat("hi")
        elif form == "left":
            async with agent.chat_stream("hi") as stream:
                await anext(stream)
        elif form == "error":
            with suppress(OwnError):
                await agent.chat("hi", hooks={"onResponse": throw})
        else:
            await agent.chat("hi", hooks={"onChatStart": lambda ctx: None})

    assert await grown(work, warm=20, times=400) < 50
    heard.close()


@pytest.mark.slow
async def test_many_hooks_added_and_disposed_do_not_grow() -> None:
    agent = Agent(Same())

    async def work() -> None:
        with agent.add_hook("onMessage", lambda ctx: None), agent.subscribe():
            await agent.chat("hi")

    assert await grown(work, warm=20, times=200) < 50
    assert agent.hooks() == ()


def test_threads_of_sync_tools_end_with_the_loop() -> None:
    before = threading.active_count()

    @tool
    def work(n: int) -> int:
        return n

    async def main() -> None:
        for _ in range(5):
            wishes = [call("work", n=n) for n in range(8)]
            await Agent(ScriptedModel(wishes, "done"), tools=[work]).chat("hi")

    asyncio.run(main())
    for thread in threading.enumerate():
        if thread is not threading.current_thread():
            thread.join(0.5)
    assert threading.active_count() <= before


async def test_idle_subscribers_and_streams_hold_no_task() -> None:
    agent = Agent(ScriptedModel("hello"))
    with agent.subscribe(), agent.subscribe(TextDelta):
        agent.chat_stream("hi")
        await turns()
        assert len(asyncio.all_tasks()) == 1
