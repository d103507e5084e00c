"""One chat that can be cut at each place where anything else can happen, and what must then hold.

The event loop counts its callbacks. Between two of them lies a checkpoint: there a caller can be
cancelled, a stream closed, a run aborted. `Scene` is the chat (three parallel tools, hooks at every
point, each of which suspends), `WAYS` are the ways to end it, `once` ends it at one checkpoint.
For tests/chat/test_checkpoints.py and for scripts/dev/faults.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Callable
from typing import Any

from hookline import (
    Agent,
    Approve,
    Ask,
    AssistantMessage,
    ChatStream,
    Conversation,
    Run,
    Text,
    ToolMessage,
    UserMessage,
    check_history,
    tool,
)
from hookline._chat.state import RUNNING
from hookline._chat.steering import send
from hookline.errors import ChatAbortedError, StreamInterruptedError
from hookline.events import ChatAborted, ChatDone, ChatFailed, ToolCallFinished, ToolCallStarted
from hookline.points import TABLE
from hookline.testing import ScriptedModel, Turn, call, validate_request

TERMINAL = (ChatDone, ChatAborted, ChatFailed)
OUTCOMES = {"onChatDone": "done", "onChatAbort": "aborted", "onChatError": "error"}
POINTS = [name for name in TABLE if not name.startswith("onScope")]


# ── the loop that counts ────────────────────────────────────────────────────────────────────


class CountingLoop(asyncio.SelectorEventLoop):
    """Does something before its n-th callback."""

    def __init__(self) -> None:
        super().__init__()
        self.count = 0
        self.at = -1
        self.act: Callable[[], object] | None = None
        self.said: list[str] = []
        self.set_exception_handler(lambda loop, context: self.said.append(context["message"]))

    def arm(self, at: int, act: Callable[[], object]) -> None:
        self.count, self.at, self.act = 0, at, act

    def disarm(self) -> bool:
        """Whether it has happened."""
        happened, self.act = self.act is None, None
        return happened

    def call_soon(  # type: ignore[override]
        self, callback: Any, *args: Any, context: Any = None
    ) -> asyncio.Handle:
        if self.act is None:
            return super().call_soon(callback, *args, context=context)
        return super().call_soon(self._counted, callback, args, context=context)

    def _counted(self, callback: Any, args: Any) -> None:
        act = self.act
        if act is not None:
            if self.count == self.at:
                self.act = None
                act()
            self.count += 1
        callback(*args)


class Complaints(logging.Handler):
    """What hookline has said that nobody asked it to say."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.said: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.said.append(record.getMessage())


# ── the chat ────────────────────────────────────────────────────────────────────────────────


@tool
async def report(run: Run[Any]) -> str:
    with run.deps.counted("report"):
        await run.status("working", 1)
        send(RUNNING[run.chat_id], "Hurry.", "next")
        await asyncio.sleep(0)
        return "ok"


@tool
async def fails(run: Run[Any]) -> None:
    with run.deps.counted("fails"):
        await asyncio.sleep(0)
        raise LookupError("the tool's")


@tool
async def quick(n: int, run: Run[Any]) -> int:
    with run.deps.counted("quick"):
        return n


EARLIER = (
    UserMessage(id="e.0", parts=(Text("earlier"),)),
    AssistantMessage(id="e.1", parts=(Text("answer"),)),
)


def wish(**options: Any) -> Turn:
    """The first answer: it asks for the three tools. `options` are a Turn's."""
    calls = (
        call("report", call_id="c1"),
        call("fails", call_id="c2"),
        call("quick", n=1, call_id="c3"),
    )
    return Turn("let me see", *calls, delay=lambda: asyncio.sleep(0), **options)


def answer(**options: Any) -> Turn:
    """The second answer."""
    return Turn("do", "ne", delay=lambda: asyncio.sleep(0), **options)


class Scene:
    """One chat with hooks at every point, each of which suspends once.

    `at_hook(number, ctx)` is called in each call of a hook, and may fail there; `at_site(name,
    ctx)` also after a wrapper's `proceed`, in `onHook`, in the approver, and where a tool begins
    and ends. `options` are the agent's.
    """

    def __init__(self, *turns: Any, conversation: Any = None, **options: Any) -> None:
        self.trace: list[str] = []
        self.calls = 0  # of hooks
        self.running = 0  # tools that have begun and not ended
        self.ran: Counter[str] = Counter()
        self.runs: list[Run[Any]] = []
        self.owners: list[asyncio.Task[Any]] = []
        self.events: list[Any] = []
        self.streams: list[ChatStream] = []
        self.at_hook: Callable[[int, Any], None] | None = None
        self.at_site: Callable[[str, Any], None] | None = None
        self.error: BaseException | None = None
        self.tool_errors: list[BaseException | None] = []
        self.closing: asyncio.Task[None] | None = None
        self.left: set[asyncio.Task[Any]] = set()  # tasks that outlived the chat
        self.model = ScriptedModel(*(turns or (wish(), answer())))
        self.conversation: Any = Conversation(EARLIER) if conversation is None else conversation
        options = {"model": self.model, "tools": self.tools(), "approver": self.approve, **options}
        self.agent: Agent[Any] = Agent(options.pop("model"), **options)
        self.message_ids: list[str] = []
        self.add_hooks()

    def tools(self) -> list[Any]:
        return [report, fails, quick]

    def counted(self, name: str) -> Any:
        scene = self

        class Ran:
            def __enter__(self) -> None:
                scene.ran[name] += 1
                scene.site(f"{name} begins")
                scene.running += 1

            def __exit__(self, *exc: object) -> None:
                scene.running -= 1
                scene.site(f"{name} ends")

        return Ran()

    async def approve(self, request: Any, run: Run[Any]) -> Approve:
        await asyncio.sleep(0)
        self.site("approver")
        return Approve()

    def add_hooks(self) -> None:
        for point in POINTS:
            if TABLE[point].kind == "wrapper":
                self.agent.add_hook(point, self.wrapper(point))  # type: ignore[call-overload]
            else:
                self.agent.add_hook(point, self.hook(point), inherit=False)  # type: ignore[call-overload]

    def hook(self, point: str) -> Any:
        async def hook(ctx: Any) -> Any:
            if point == "onHook":
                self.site("onHook")
                return None
            if point == "onChatStart":
                self.trace.append("start")
            elif point in OUTCOMES:
                self.trace.append(OUTCOMES[point])
            elif point == "onChatEnd":
                self.trace.append(f"end {ctx.outcome}")
            elif point == "onMessage":
                self.message_ids.append(ctx.message.id)
            elif point == "onToolCallError":
                self.tool_errors.append(ctx.error.exception)
            self.here(ctx)
            await asyncio.sleep(0)
            asks = point == "preToolCall" and ctx.call.name == "quick"
            return Ask("may I?") if asks else None

        return hook

    def wrapper(self, point: str) -> Any:
        async def wrapper(ctx: Any, proceed: Any) -> Any:
            if point == "aroundChat":
                self.runs.append(ctx.run)
                self.owners.append(asyncio.current_task())  # type: ignore[arg-type]
            self.here(ctx)
            await asyncio.sleep(0)
            try:
                value = await proceed()
            finally:
                await asyncio.sleep(0)
            self.site(f"after {point}", ctx)
            return value

        return wrapper

    def here(self, ctx: Any) -> None:
        self.calls += 1
        if self.at_hook is not None:
            self.at_hook(self.calls, ctx)
        point: str = type(ctx).__name__
        self.site(point[0].lower() + point[1:], ctx)

    def site(self, name: str, ctx: Any = None) -> None:
        """A place at which something may fail."""
        if self.at_site is not None:
            self.at_site(name, ctx)

    # the ways to consume it

    async def by_chat(self) -> None:
        await self.agent.chat("hi", conversation=self.conversation, deps=self)

    async def by_stream(self) -> None:
        stream = self.agent.chat_stream("hi", conversation=self.conversation, deps=self)
        self.streams.append(stream)
        async with stream:
            async for event in stream:
                self.events.append(event)

    async def by_slow_stream(self) -> None:
        stream = self.agent.chat_stream("hi", conversation=self.conversation, deps=self)
        self.streams.append(stream)
        async with stream:
            async for event in stream:
                self.events.append(event)
                for _ in range(2):
                    await asyncio.sleep(0)

    async def by_bare_stream(self) -> None:
        stream = self.agent.chat_stream("hi", conversation=self.conversation, deps=self)
        self.streams.append(stream)
        async for event in stream:
            self.events.append(event)

    def holds(self) -> None:
        """What must hold, however the chat has ended."""
        assert self.left == set()
        starts = self.trace.count("start")
        ends = [line for line in self.trace if line in OUTCOMES.values()]
        if starts:
            assert self.trace == ["start", ends[0], f"end {ends[0]}"]
        else:
            assert self.trace == []
        messages = self.conversation.messages
        check_history(messages)
        results = [m for m in messages if isinstance(m, ToolMessage)]
        asked = [c for m in messages if isinstance(m, AssistantMessage) for c in m.tool_calls]
        assert [m.call_id for m in results] == [c.id for c in asked]
        for request in self.model.requests:
            validate_request(request)
        assert not self.conversation.busy
        assert self.model.open == 0
        assert self.running == 0
        assert max(self.ran.values(), default=0) <= 1
        assert len(self.message_ids) == len(set(self.message_ids))
        assert set(self.message_ids) <= {m.id for m in messages}
        finals = [event for event in self.events if isinstance(event, TERMINAL) and not event.path]
        assert len(finals) <= 1
        assert [event.seq for event in self.events] == list(range(1, len(self.events) + 1))
        if finals:
            assert finals[0] is self.events[-1]
            begun = [e.call.id for e in self.events if isinstance(e, ToolCallStarted)]
            ended = [e.call_id for e in self.events if isinstance(e, ToolCallFinished)]
            assert sorted(begun) == sorted(ended)


async def left_running() -> set[asyncio.Task[Any]]:
    """The tasks beside this one that do not end within a few turns."""
    this = asyncio.current_task()
    for _ in range(60):
        if len(asyncio.all_tasks()) == 1:
            break
        await asyncio.sleep(0)
    return {task for task in asyncio.all_tasks() if task is not this}


async def nothing_runs() -> None:
    """Only this task is left, after a few turns at most."""
    assert await left_running() == set()


async def goes_on(conversation: Conversation) -> None:
    """The next chat on it works: nobody holds it, and its history is accepted."""
    response = await Agent(ScriptedModel("fine")).chat("next", conversation=conversation)
    assert response.text == "fine"


# ── the ways to end it ──────────────────────────────────────────────────────────────────────


def cancel_consumer(scene: Scene, consumer: asyncio.Task[None]) -> None:
    consumer.cancel()


def cancel_twice(scene: Scene, consumer: asyncio.Task[None]) -> None:
    consumer.cancel()
    consumer.get_loop().call_soon(consumer.cancel)


def abort_run(scene: Scene, consumer: asyncio.Task[None]) -> None:
    for run in scene.runs:
        run.abort("swept")


def abort_stream(scene: Scene, consumer: asyncio.Task[None]) -> None:
    for stream in scene.streams:
        stream.abort("swept")


def close_stream(scene: Scene, consumer: asyncio.Task[None]) -> None:
    for stream in scene.streams:
        scene.closing = consumer.get_loop().create_task(stream.aclose())


def cancel_owner(scene: Scene, consumer: asyncio.Task[None]) -> None:
    for owner in scene.owners:
        owner.cancel()


def cancel_owner_and_consumer(scene: Scene, consumer: asyncio.Task[None]) -> None:
    consumer.cancel()
    cancel_owner(scene, consumer)


def abort_and_cancel(scene: Scene, consumer: asyncio.Task[None]) -> None:
    abort_run(scene, consumer)
    consumer.cancel()


Act = Callable[[Scene, "asyncio.Task[None]"], None]
WAYS: dict[str, tuple[str, Act, tuple[type[BaseException], ...]]] = {
    "the caller of chat() is cancelled": (
        "by_chat", cancel_consumer, (asyncio.CancelledError,),
    ),
    "the reader is cancelled": ("by_stream", cancel_consumer, (asyncio.CancelledError,)),
    "the reader is cancelled twice": ("by_stream", cancel_twice, (asyncio.CancelledError,)),
    "a bare reader is cancelled": ("by_bare_stream", cancel_consumer, (asyncio.CancelledError,)),
    "a slow reader is cancelled": ("by_slow_stream", cancel_consumer, (asyncio.CancelledError,)),
    "run.abort() under a slow reader": ("by_slow_stream", abort_run, (ChatAbortedError,)),
    "run.abort() under chat()": ("by_chat", abort_run, (ChatAbortedError,)),
    "run.abort() under a stream": ("by_stream", abort_run, (ChatAbortedError,)),
    "stream.abort()": ("by_stream", abort_stream, ()),
    "aclose() by another task": ("by_stream", close_stream, ()),
    "the owner is cancelled": ("by_stream", cancel_owner, (StreamInterruptedError,)),
    "the owner and the reader are cancelled": (
        "by_stream", cancel_owner_and_consumer, (asyncio.CancelledError,),
    ),
    "abort and cancel at once": (
        "by_stream", abort_and_cancel, (asyncio.CancelledError, ChatAbortedError),
    ),
}  # fmt: skip


async def once(
    form: str, act: Act, at: int, make: Callable[[], Scene] = Scene
) -> tuple[Scene, bool]:
    """The chat, ended at one checkpoint (or not, when it has fewer)."""
    loop = asyncio.get_running_loop()
    assert isinstance(loop, CountingLoop)
    scene = make()
    consumer: asyncio.Task[None] | None = None

    def now() -> None:
        assert consumer is not None
        if not consumer.done():
            act(scene, consumer)

    loop.arm(at, now)
    consumer = loop.create_task(getattr(scene, form)())
    await asyncio.wait([consumer])
    happened = loop.disarm()
    scene.left = await left_running()
    scene.error = None if consumer.cancelled() else consumer.exception()
    if consumer.cancelled():
        scene.error = asyncio.CancelledError()
    return scene, happened
