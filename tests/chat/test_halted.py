"""`Halted`: this life of a chat is over and the chat is not, at whatever step it comes."""

from __future__ import annotations

import asyncio
import gc
from typing import Any

import pytest
from tests._recording import Crash, Model, Recording

from hookline import Agent, Approve, Ask, LocalRuntime, MemoryStore, Run, tool
from hookline._chat.recorder import Recorder
from hookline.errors import StreamStateError
from hookline.points import TABLE
from hookline.runtimes import Halted
from hookline.testing import ScriptedModel, call, collect

QUIET = {"onHook", "onDelta"}  # they only make the trace long


class Calls(MemoryStore):
    """A store that notes what it is asked for, as it is asked."""

    def __init__(self, trace: list[str]) -> None:
        super().__init__()
        self.trace = trace

    def acquire(self, *args: Any, **options: Any) -> Any:
        self.trace.append("store acquire")
        return super().acquire(*args, **options)

    def load(self, *args: Any) -> Any:
        self.trace.append("store load")
        return super().load(*args)

    def append(self, *args: Any) -> Any:
        self.trace.append("store append")
        return super().append(*args)

    def release(self, *args: Any) -> Any:
        self.trace.append("store release")
        return super().release(*args)


def noting(trace: list[str], point: str) -> Any:
    if TABLE[point].kind == "wrapper":

        async def around(ctx: Any, proceed: Any) -> Any:
            trace.append(point)
            return await proceed()

        return around

    async def hook(ctx: Any) -> Any:
        trace.append(point)
        await asyncio.sleep(0)
        if point == "preToolCall" and ctx.call.name == "asks":
            return Ask("may I?")
        return None

    return hook


class Scene:
    """A chat with a store, hooks at every point, three calls side by side, one of which asks."""

    def __init__(self, runtime: Recording) -> None:
        self.runtime = runtime
        trace = self.trace = list[str]()

        @tool
        async def works(run: Run[Any], x: int) -> int:
            """Work."""
            trace.append(f"tool {x}")
            await run.status("works", x)
            for _ in range(x):
                await asyncio.sleep(0)
            return x

        @tool
        async def asks(run: Run[Any]) -> str:
            """Ask."""
            trace.append("tool asks")
            return "asked"

        calls = [("a", "works", {"x": 1}), ("b", "works", {"x": 5}), ("c", "asks", {})]
        model = Model(lambda text: trace.append(text), ["Well. ", *calls], ["Done."])
        self.agent: Agent[Any] = Agent(
            model, tools=[works, asks], runtime=runtime, store=Calls(trace)
        )
        for point in TABLE.keys() - QUIET:
            self.agent.add_hook(point, noting(trace, point))  # type: ignore[call-overload]
        self.heard = self.agent.subscribe()
        self.at_the_halt: tuple[int, int] | None = None
        runtime.died = self.halted

    def halted(self) -> None:
        if self.at_the_halt is None:
            self.at_the_halt = len(self.trace), len(self.heard._items)

    async def play(self, form: str) -> Any:
        options: Any = {"conversation": "kept", "approver": lambda request, run: Approve()}
        if form == "chat":
            return await self.agent.chat("Go.", **options)
        return await collect(self.agent.chat_stream("Go.", **options))


@pytest.mark.parametrize("form", ["chat", "stream"])
async def test_nothing_comes_after_the_halt(form: str, caplog: pytest.LogCaptureFixture) -> None:
    """Halted before each line of the journal: no hook, event, store call or release follows."""
    whole = Scene(Recording())
    await whole.play(form)
    assert {"onChatDone", "onChatEnd", "tool 5", "tool asks"} <= set(whole.trace)
    complaints: list[str] = []
    asyncio.get_running_loop().set_exception_handler(
        lambda loop, context: complaints.append(context["message"])
    )
    for limit in range(1, len(whole.runtime.journal)):
        await _halted_at(limit, form)
        assert caplog.text == ""
    gc.collect()  # asyncio complains of a task as it is freed
    assert complaints == []


async def test_a_chat_that_is_halted_while_its_observers_are_told_has_no_response() -> None:
    whole = Scene(Recording())
    await whole.play("chat")
    scene = Scene(Recording(limit=len(whole.runtime.journal) - 1))
    stream = scene.agent.chat_stream(
        "Go.", conversation="kept", approver=lambda request, run: Approve()
    )
    with pytest.raises(Halted):
        await collect(stream)
    assert "onChatDone" in scene.trace
    with pytest.raises(StreamStateError):
        _ = stream.response


async def _halted_at(limit: int, form: str) -> None:
    scene = Scene(Recording(limit=limit))
    with pytest.raises(Halted) as caught:
        await scene.play(form)
    assert isinstance(caught.value, Crash)
    assert scene.at_the_halt is not None
    for _ in range(20):  # what is left over would show
        await asyncio.sleep(0)
    place, events = scene.at_the_halt
    assert scene.trace[place:] == [], f"after line {limit}"
    assert len(scene.heard._items) == events
    assert "store release" not in scene.trace
    assert asyncio.all_tasks() == {asyncio.current_task()}
    caught.value.__traceback__ = None


class Held(Recording):
    """It keeps the chat, which an engine may halt at any moment."""

    chat: Any = None

    def for_chat(self, chat: Any) -> Any:
        self.chat = chat
        return super().for_chat(chat)


async def test_a_halt_from_outside_cancels_what_runs() -> None:
    began, ended = asyncio.Event(), list[str]()

    @tool
    async def waits() -> None:
        """Wait for ever."""
        began.set()
        try:
            await asyncio.Event().wait()
        finally:
            ended.append("waits")

    runtime = Held()
    agent: Agent[Any] = Agent(ScriptedModel(call("waits")), tools=[waits], runtime=runtime)
    chat = asyncio.create_task(agent.chat("Go."))
    await began.wait()
    runtime.chat.halt()
    for _ in range(20):
        await asyncio.sleep(0)
    assert ended == ["waits"]
    assert chat.done()
    assert isinstance(chat.exception(), Halted)


class Once(LocalRuntime):
    """It halts the chat when it is asked for the first time."""

    def __init__(self) -> None:
        self.asked = 0

    def now(self) -> float:
        self.asked += 1
        if self.asked == 1:
            raise Halted("the lease is lost")
        return 1000.0


class Noted:
    def __init__(self) -> None:
        self.halted: list[Halted] = []

    def halt(self, exc: Halted) -> None:
        self.halted.append(exc)


def test_a_runtime_that_has_halted_a_chat_is_asked_for_nothing_more() -> None:
    runtime, chat = Once(), Noted()
    recorder = Recorder(chat, runtime)
    for _ in range(2):
        with pytest.raises(Halted):
            recorder.now()
    assert runtime.asked == 1
    assert [str(each) for each in chat.halted] == ["the lease is lost"]
