"""A message is committed once: whatever interrupts a commit, it is there 0 or 1 times.

Chats with one to four parallel calls, in no store, a store that waits, and an SQLite file. Each is
interrupted once, at any place: by a hook, by its store, by a cancellation, by an abort.
"""

from __future__ import annotations

import asyncio
import tempfile
from collections import Counter
from collections.abc import Callable
from contextlib import aclosing
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from tests._checkpoints import CountingLoop

from hookline import (
    Agent,
    Conversation,
    Limits,
    MemoryStore,
    Message,
    Run,
    ToolMessage,
    check_history,
    tool,
)
from hookline.errors import StoreError
from hookline.events import ChatAborted
from hookline.storage import Change, Store
from hookline.stores import SQLStore
from hookline.testing import ScriptedModel, Turn, call


class Boom(Exception):
    pass


class Interruption(NamedTuple):
    """What happens, and at which of its chances."""

    how: str
    at: int


HOOKED = ("onToolCallResult", "onToolCallError", "preMessage", "onMessage")
IN_A_HOOK = ("raises", "cancels", "times out", "cancels its task", "aborts")
INTERRUPTIONS = [
    *[f"{point} {how}" for point in HOOKED for how in IN_A_HOOK],
    *("store refuses", "store writes and raises"),
    *("caller cancels", "abort"),
]


class Plan(NamedTuple):
    """A chat, and what interrupts it."""

    tools: list[str]  # the kind of each call's tool
    store: str
    waits: int  # how often each hook gives way
    interruption: Interruption


PLANS = st.builds(
    Plan,
    tools=st.lists(st.sampled_from(["waits", "quick", "thread", "fails"]), min_size=1, max_size=4),
    store=st.sampled_from(["none", "memory", "sqlite"]),
    waits=st.integers(0, 2),
    interruption=st.builds(Interruption, how=st.sampled_from(INTERRUPTIONS), at=st.integers(0, 40)),
)


class Troubled:
    """A store that takes its time, and that has trouble with one of its writes."""

    def __init__(self, store: Any, plan: Plan) -> None:
        self.sound = store
        self._plan = plan
        self._writes = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self.sound, name)

    async def append(self, conversation_id: str, change: Change) -> int:
        how, at = self._plan.interruption
        trouble = how if self._writes == at % 8 else ""
        self._writes += 1
        await asyncio.sleep(0)
        if trouble == "store refuses":
            raise StoreError("not now")
        version: int = await self.sound.append(conversation_id, change)
        if trouble == "store writes and raises":
            raise StoreError("written, and the line broke")
        await asyncio.sleep(0)
        return version


class Scene:
    """One chat that is interrupted once."""

    def __init__(self, plan: Plan, store: Store | None) -> None:
        self.plan = plan
        self.out: list[tuple[str, str]] = []  # points, and the id of what they saw
        self.happened: list[str] = []
        self.chances = 0
        calls = [call(kind, call_id=f"c{i}") for i, kind in enumerate(plan.tools)]
        model = ScriptedModel(Turn("Let me see.", *calls), "done", "next", strict=False)
        self.agent: Agent[Any] = Agent(
            model, tools=self._tools(), store=store, limits=Limits(grace=5.0)
        )
        for point in HOOKED:
            timeout = 0.01 if plan.interruption.how == f"{point} times out" else None
            self.agent.add_hook(point, self._hook(point), timeout=timeout)  # type: ignore[call-overload]

    def _tools(self) -> list[Any]:
        @tool
        async def quick() -> str:
            return "ok"

        @tool
        async def waits(run: Run[Any]) -> str:
            for _ in range(3):
                await asyncio.sleep(0)
            return "ok"

        @tool
        def thread() -> str:
            return "ok"

        @tool
        async def fails() -> str:
            raise LookupError("as planned")

        return [quick, waits, thread, fails]

    def _hook(self, point: str) -> Callable[[Any], Any]:
        async def hook(ctx: Any) -> None:
            seen = ctx.message.id if hasattr(ctx, "message") else ctx.call.id
            if isinstance(getattr(ctx, "message", None), ToolMessage):
                seen = ctx.message.call_id
            self.out.append((point, seen))
            for _ in range(self.plan.waits):
                await asyncio.sleep(0)
            how, at = self.plan.interruption
            place, _, act = how.partition(" ")
            if place != point:
                return
            self.chances += 1
            calls = len(self.plan.tools)  # a message more for the user's, and one for the model's
            if self.happened or self.chances <= at % (calls + 2 if "Message" in point else calls):
                return
            self.happened.append(how)
            self.out.append((how, seen))
            await self._act(act, ctx)

        return hook

    async def _act(self, act: str, ctx: Any) -> None:
        match act:
            case "raises":
                raise Boom
            case "cancels":
                raise asyncio.CancelledError
            case "times out":
                await asyncio.Event().wait()
            case "cancels its task":
                task = asyncio.current_task()
                assert task is not None
                task.cancel()
                await asyncio.sleep(0)
            case "aborts":
                ctx.run.abort("enough")
                await asyncio.sleep(0)

    async def play(self, loop: CountingLoop, conversation: Any) -> None:
        """Run the chat to its end, whatever that is."""
        stream = self.agent.chat_stream("go", conversation=conversation)
        task = asyncio.ensure_future(self._read(stream))
        how, at = self.plan.interruption
        if how == "caller cancels":
            loop.arm(at * 3, task.cancel)
        elif how == "abort":
            loop.arm(at * 3, lambda: stream.abort("enough"))
        try:
            await asyncio.wait([task])
            if not task.cancelled():
                task.exception()  # whatever it is
        finally:
            loop.disarm()
        await stream.aclose()

    async def _read(self, stream: Any) -> None:
        async with stream:
            async for _ in stream:
                pass


def check_once(messages: tuple[Message, ...]) -> None:
    ids = Counter(message.id for message in messages)
    results = Counter(each.call_id for each in messages if isinstance(each, ToolMessage))
    assert max([*ids.values(), *results.values(), 0]) <= 1, (ids, results)


async def interrupted(loop: CountingLoop, plan: Plan, folder: str) -> None:
    if plan.store == "sqlite":
        async with aclosing(SQLStore(f"sqlite:///{Path(folder, 'chats.db')}")) as sound:
            await interrupted_in(loop, plan, Troubled(sound, plan))
    else:
        store = Troubled(MemoryStore(), plan) if plan.store == "memory" else None
        await interrupted_in(loop, plan, store)


async def interrupted_in(loop: CountingLoop, plan: Plan, store: Any) -> None:
    scene = Scene(plan, store)
    conversation: Any = Conversation()
    if store is not None:
        conversation = await Conversation.open(store, "c")
    await scene.play(loop, conversation)
    assert not conversation.busy
    check_once(conversation.messages)
    check_history(conversation.messages)
    if store is not None:
        stored = await store.load("c")
        check_once(() if stored is None else stored.messages)
        # What is loaded takes the next turn.
        another: Agent[Any] = Agent(ScriptedModel("next"))
        again = await Conversation.open(store.sound, "c")
        assert (await another.chat("more", conversation=again)).text == "next"
    how = plan.interruption.how
    if scene.happened and how.endswith(("raises", " cancels", "times out")):
        place = next(i for i, (point, _) in enumerate(scene.out) if point == how)
        refused, later = scene.out[place][1], scene.out[place + 1 :]
        assert ("preMessage", refused) not in later or not how.startswith("preMessage")
        assert not {"onToolCallResult", "onToolCallError"} & {point for point, _ in later}


def plan(how: str, at: int, *tools: str, store: str = "none", waits: int = 1) -> Plan:
    return Plan(list(tools), store, waits, Interruption(how, at))


@pytest.mark.slow
@settings(max_examples=300)
@given(plan=PLANS)
@example(plan("onMessage raises", 2, "quick", "quick"))
@example(plan("onMessage times out", 2, "quick", "thread"))
@example(plan("onMessage cancels", 2, "quick", "quick", "fails", store="memory"))
@example(plan("onMessage cancels its task", 2, "quick", "quick"))
@example(plan("preMessage raises", 2, "quick", "quick", "quick", store="sqlite"))
@example(plan("onToolCallResult raises", 0, "quick", "waits", "thread"))
@example(plan("store refuses", 3, "quick", "quick", store="memory"))
@example(plan("store writes and raises", 3, "quick", "quick", store="sqlite"))
def test_a_message_is_committed_once_whatever_interrupts_its_commit(plan: Plan) -> None:
    with tempfile.TemporaryDirectory() as folder:
        loop = CountingLoop()
        try:
            asyncio.set_event_loop(loop)
            loop.run_until_complete(interrupted(loop, plan, folder))
        finally:
            asyncio.set_event_loop(None)
            loop.run_until_complete(loop.shutdown_default_executor())
            loop.close()


@pytest.mark.parametrize("at", range(0, 60, 2))
def test_a_message_is_committed_once_whenever_its_chat_is_cancelled_during_a_write(at: int) -> None:
    with tempfile.TemporaryDirectory() as folder:
        loop = CountingLoop()
        try:
            asyncio.set_event_loop(loop)
            cut = plan("caller cancels", at, "quick", "thread", store="sqlite")
            loop.run_until_complete(interrupted(loop, cut, folder))
        finally:
            asyncio.set_event_loop(None)
            loop.run_until_complete(loop.shutdown_default_executor())
            loop.close()


class Hanging(MemoryStore):
    """Its write of the first tool result takes until it is let go, and may fail then."""

    def __init__(self, fails: bool) -> None:
        super().__init__()
        self.fails = fails
        self.hangs = asyncio.Event()
        self.free = asyncio.Event()

    async def append(self, conversation_id: str, change: Change) -> int:
        result = any(isinstance(each, ToolMessage) for each in change.messages)
        if result and not self.hangs.is_set():
            self.hangs.set()
            await self.free.wait()
            if self.fails:
                raise StoreError("not now")
        return await super().append(conversation_id, change)


@pytest.mark.parametrize("fails", [False, True], ids=["", "and fails then"])
async def test_a_write_that_outlives_its_chat_is_the_only_one(
    fails: bool, caplog: pytest.LogCaptureFixture
) -> None:
    """The chat is aborted, and its store answers long after the grace period."""

    @tool
    async def quick() -> str:
        return "ok"

    store = Hanging(fails)
    conversation = await Conversation.open(store, "c")
    model = ScriptedModel([call("quick", call_id="c0"), call("quick", call_id="c1")])
    agent: Agent[Any] = Agent(model, tools=[quick], limits=Limits(grace=0.02))
    stream = agent.chat_stream("go", conversation=conversation)

    async def abort() -> None:
        await store.hangs.wait()
        stream.abort("enough")

    aborting = asyncio.create_task(abort())
    assert isinstance([event async for event in stream][-1], ChatAborted)
    await aborting
    assert "its store did not answer within 0.02 s" in caplog.text
    store.free.set()
    await turns(lambda: not conversation.busy)
    stored = await store.load("c")
    assert stored is not None
    for messages in (conversation.messages, stored.messages):
        check_once(messages)
        check_history(messages)
        assert {each.call_id for each in messages if isinstance(each, ToolMessage)} == {"c0", "c1"}


async def test_a_result_whose_write_fails_while_its_chat_ends_is_kept() -> None:
    """The store answers when the grace period is over, and the last hooks still run."""

    @tool
    async def quick() -> str:
        return "ok"

    store = Hanging(True)
    conversation = await Conversation.open(store, "c")
    model = ScriptedModel([call("quick", call_id="c0"), call("quick", call_id="c1")])
    agent: Agent[Any] = Agent(model, tools=[quick], limits=Limits(grace=0.02))
    stream = agent.chat_stream("go", conversation=conversation)

    @agent.hook("onChatAbort")
    async def late(ctx: Any) -> None:
        before = len(conversation.messages)
        store.free.set()
        await turns(lambda: len(conversation.messages) > before)

    async def abort() -> None:
        await store.hangs.wait()
        stream.abort("enough")

    aborting = asyncio.create_task(abort())
    assert isinstance([event async for event in stream][-1], ChatAborted)
    await aborting
    await turns(lambda: not conversation.busy)
    stored = await store.load("c")
    assert stored is not None
    for messages in (conversation.messages, stored.messages):
        check_once(messages)
        check_history(messages)
        texts = {each.call_id: each.text for each in messages if isinstance(each, ToolMessage)}
        assert texts["c0"] == "ok"


async def turns(over: Callable[[], bool]) -> None:
    """Give way until it is so."""
    for _ in range(1000):
        if over():
            return
        await asyncio.sleep(0)
    raise AssertionError("it never was")
