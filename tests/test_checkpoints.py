"""A sweep: one chat, ended early at each place where anything else can happen, in each way.

The event loop counts its callbacks. Between two of them lies a checkpoint: there a caller can be
cancelled, a stream closed, a run aborted. The chat (three parallel tools, hooks at every point,
each of which suspends) is run once for each checkpoint and each way to end it, and each time the
same things must hold: one outcome, a valid history, no task left, nothing said in the log.
"""

from __future__ import annotations

import asyncio
import gc
import logging
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import pytest

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

    def call_soon(self, callback: Any, *args: Any, context: Any = None) -> asyncio.Handle:
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


@pytest.fixture
def loop() -> Iterator[CountingLoop]:
    with asyncio.Runner(loop_factory=CountingLoop) as runner:
        loop = runner.get_loop()
        assert isinstance(loop, CountingLoop)
        yield loop


class Complaints(logging.Handler):
    """What hookline has said that nobody asked it to say."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.said: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.said.append(record.getMessage())


@pytest.fixture
def complaints() -> Iterator[Complaints]:
    handler = Complaints()
    logging.getLogger("hookline").addHandler(handler)
    yield handler
    logging.getLogger("hookline").removeHandler(handler)


# ── the chat ────────────────────────────────────────────────────────────────────────────────


@tool
async def report(run: Run[Any]) -> str:
    with run.deps.counted("report"):
        await run.status("working", 1)
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


class Scene:
    """One chat with hooks at every point, each of which suspends once."""

    def __init__(self) -> None:
        self.trace: list[str] = []
        self.calls = 0  # of hooks
        self.running = 0  # tools that have begun and not ended
        self.ran: Counter[str] = Counter()
        self.runs: list[Run[Any]] = []
        self.owners: list[asyncio.Task[Any]] = []
        self.events: list[Any] = []
        self.streams: list[ChatStream] = []
        self.at_hook: Callable[[int, Any], None] | None = None
        self.error: BaseException | None = None
        wish = Turn(
            "let me see",
            call("report", id="c1"),
            call("fails", id="c2"),
            call("quick", n=1, id="c3"),
            delay=lambda: asyncio.sleep(0),
        )
        self.model = ScriptedModel(wish, Turn("do", "ne", delay=lambda: asyncio.sleep(0)))
        self.conversation = Conversation(EARLIER)
        self.agent: Agent[Any] = Agent(self.model, tools=self.tools(), approver=self.approve)
        self.message_ids: list[str] = []
        self.add_hooks()

    def tools(self) -> list[Any]:
        return [report, fails, quick]

    def counted(self, name: str) -> Any:
        scene = self

        class Ran:
            def __enter__(self) -> None:
                scene.running += 1
                scene.ran[name] += 1

            def __exit__(self, *exc: object) -> None:
                scene.running -= 1

        return Ran()

    async def approve(self, request: Any, run: Run[Any]) -> Approve:
        await asyncio.sleep(0)
        return Approve()

    def add_hooks(self) -> None:
        for point in POINTS:
            if TABLE[point].kind == "wrapper":
                self.agent.add_hook(point, self.wrapper(point))  # type: ignore[call-overload]
            else:
                self.agent.add_hook(point, self.hook(point))  # type: ignore[call-overload]

    def hook(self, point: str) -> Any:
        async def hook(ctx: Any) -> Any:
            if point == "onHook":
                return None
            if point == "onChatStart":
                self.trace.append("start")
            elif point in OUTCOMES:
                self.trace.append(OUTCOMES[point])
            elif point == "onChatEnd":
                self.trace.append(f"end {ctx.outcome}")
            elif point == "onMessage":
                self.message_ids.append(ctx.message.id)
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
                return await proceed()
            finally:
                await asyncio.sleep(0)

        return wrapper

    def here(self, ctx: Any) -> None:
        self.calls += 1
        if self.at_hook is not None:
            self.at_hook(self.calls, ctx)

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
        starts = self.trace.count("start")
        ends = [line for line in self.trace if line in OUTCOMES.values()]
        if starts:
            assert self.trace == ["start", ends[0], f"end {ends[0]}"]
        else:
            assert self.trace == []
        messages = self.conversation.messages
        check_history(messages)
        results = [m for m in messages if isinstance(m, ToolMessage)]
        asked = [c for m in messages if isinstance(m, AssistantMessage) for c in m.calls]
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


async def nothing_runs() -> None:
    """Only this task is left, after a few turns at most."""
    for _ in range(60):
        if len(asyncio.all_tasks()) == 1:
            return
        await asyncio.sleep(0)
    others = asyncio.all_tasks() - {asyncio.current_task()}  # type: ignore[arg-type]
    assert others == set()


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
        scene.closing = consumer.get_loop().create_task(stream.aclose())  # type: ignore[attr-defined]


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


async def once(form: str, act: Act, at: int) -> tuple[Scene, bool]:
    """The chat, ended at one checkpoint (or not, when it has fewer)."""
    loop = asyncio.get_running_loop()
    assert isinstance(loop, CountingLoop)
    scene = Scene()
    consumer: asyncio.Task[None] | None = None

    def now() -> None:
        assert consumer is not None
        if not consumer.done():
            act(scene, consumer)

    loop.arm(at, now)
    consumer = loop.create_task(getattr(scene, form)())
    await asyncio.wait([consumer])
    happened = loop.disarm()
    await nothing_runs()
    scene.error = None if consumer.cancelled() else consumer.exception()
    if consumer.cancelled():
        scene.error = asyncio.CancelledError()
    return scene, happened


@pytest.mark.parametrize("way", WAYS)
def test_ended_at_every_checkpoint(way: str, loop: CountingLoop, complaints: Complaints) -> None:
    """Section 7, first sentence, and I1, I3, I6, I7 – for each place where a chat can be cut."""
    form, act, errors = WAYS[way]
    endings: Counter[str] = Counter()

    async def sweep() -> int:
        at = 0
        while True:
            scene, happened = await once(form, act, at)
            try:
                scene.holds()
                assert scene.error is None or isinstance(scene.error, errors)
                if at % 3 == 0:
                    await goes_on(scene.conversation)
                assert complaints.said == []
                assert loop.said == []
            except BaseException as exc:
                exc.add_note(f"at checkpoint {at}; trace {scene.trace}; raised {scene.error!r}")
                raise
            endings[scene.trace[1] if scene.trace else "nothing"] += 1
            if not happened:
                assert scene.error is None
                return at
            at += 1

    checkpoints = loop.run_until_complete(sweep())
    gc.collect()
    assert loop.said == []
    print(f"{way}: {checkpoints} checkpoints, {dict(endings)}")
    assert checkpoints > 70
    assert endings["aborted"] > 60


PAIRS: dict[str, tuple[Act, Act]] = {
    "the reader is cancelled, then the owner": (cancel_consumer, cancel_owner),
    "the owner is cancelled, then the run aborted": (cancel_owner, abort_run),
    "the stream is aborted, then the reader cancelled": (abort_stream, cancel_consumer),
    "the stream is closed, then the reader cancelled": (close_stream, cancel_consumer),
}


@pytest.mark.parametrize("gap", [3])
@pytest.mark.parametrize("pair", PAIRS)
def test_ended_twice(pair: str, gap: int, loop: CountingLoop, complaints: Complaints) -> None:
    """The first decides; what comes a few callbacks later, in the middle of the ending, is late."""
    first, then = PAIRS[pair]

    def both(scene: Scene, consumer: asyncio.Task[None]) -> None:
        first(scene, consumer)
        loop.arm(gap, lambda: None if consumer.done() else then(scene, consumer))

    async def sweep() -> None:
        for at in range(2, 200, 2):
            scene, happened = await once("by_stream", both, at)
            try:
                scene.holds()
                assert scene.error is None or isinstance(
                    scene.error,
                    asyncio.CancelledError | ChatAbortedError | StreamInterruptedError,
                )
                if at % 3 == 0:
                    await goes_on(scene.conversation)
                assert (complaints.said, loop.said) == ([], [])
            except BaseException as exc:
                exc.add_note(f"at checkpoint {at}; trace {scene.trace}; raised {scene.error!r}")
                raise
            if not happened and scene.trace[1:2] == ["done"]:
                return

    loop.run_until_complete(sweep())
    gc.collect()
    assert loop.said == []


@pytest.mark.parametrize("turns", [0, 1, 3])
def test_dropped_after_every_event(turns: int, loop: CountingLoop, complaints: Complaints) -> None:
    """The reader takes n events, waits a few turns, and lets the handle go."""

    async def sweep() -> int:
        taken = 0
        while True:
            scene = Scene()
            stream = scene.agent.chat_stream("hi", conversation=scene.conversation, deps=scene)
            for _ in range(taken):
                scene.events.append(await anext(stream))
            for _ in range(turns):
                await asyncio.sleep(0)
            ended = bool(scene.events) and isinstance(scene.events[-1], TERMINAL)
            with warnings.catch_warnings(record=True) as said:
                warnings.simplefilter("always")
                del stream
            await nothing_runs()
            assert {each.category for each in said} <= {ResourceWarning}
            scene.holds()
            assert bool(scene.trace) == (taken > 0)
            assert not (ended and said)
            await goes_on(scene.conversation)
            assert (complaints.said, loop.said) == ([], [])
            if ended:
                return taken
            taken += 1

    events = loop.run_until_complete(sweep())
    print(f"dropped after each of {events} events, {turns} turns later")
    assert events > 25


@pytest.mark.parametrize("what", ["throws", "aborts", "cancels the caller"])
def test_at_every_call_of_a_hook(what: str, loop: CountingLoop, complaints: Complaints) -> None:
    """The n-th call of any hook throws, aborts, or has the caller cancelled."""
    endings: Counter[str] = Counter()

    async def sweep() -> int:
        at = 0
        while True:
            at += 1
            scene = Scene()
            fired: list[Any] = []

            consumers: list[asyncio.Task[None]] = []

            def act(
                number: int,
                ctx: Any,
                at: int = at,
                fired: list[Any] = fired,
                consumers: list[asyncio.Task[None]] = consumers,
            ) -> None:
                if number == at:
                    fired.append(ctx)
                    if what == "throws":
                        raise ValueError("the hook's")
                    if what == "aborts":
                        ctx.run.abort("swept")
                    else:
                        consumers[0].cancel()

            scene.at_hook = act
            consumer = loop.create_task(scene.by_stream())
            consumers.append(consumer)
            await asyncio.wait(consumers)
            await nothing_runs()
            error = asyncio.CancelledError() if consumer.cancelled() else consumer.exception()
            try:
                if fired and type(fired[0]).__name__ == "AroundChat":
                    assert scene.trace == []
                scene.holds()
                kind = {"throws": ValueError, "aborts": ChatAbortedError}
                assert error is None or isinstance(error, kind.get(what, asyncio.CancelledError))
                if at % 3 == 0:
                    await goes_on(scene.conversation)
                if what != "throws":  # throws of the last hooks are logged
                    assert complaints.said == []
                assert loop.said == []
            except BaseException as exc:
                exc.add_note(f"at hook {at}, {fired}; trace {scene.trace}; raised {error!r}")
                raise
            endings[scene.trace[1] if scene.trace else "nothing"] += 1
            if not fired:
                return at - 1

    hooks = loop.run_until_complete(sweep())
    gc.collect()
    assert loop.said == []
    print(f"{what}: at each of {hooks} calls of a hook, {dict(endings)}")
    assert hooks > 40


def test_shut_down_at_every_checkpoint(loop: CountingLoop) -> None:
    """A runner that cancels all tasks at once: nothing hangs, and the history stays whole."""

    async def sweep() -> int:
        at = 0
        while True:
            scene = Scene()
            main = asyncio.current_task()

            def all_of_them(main: Any = main) -> None:
                for task in asyncio.all_tasks():
                    if task is not main:
                        task.cancel()

            loop.arm(at, all_of_them)
            consumer = loop.create_task(scene.by_stream())
            await asyncio.wait([consumer])
            happened = loop.disarm()
            await nothing_runs()
            consumer.cancelled() or consumer.exception()
            try:
                check_history(scene.conversation.messages)
                assert len([each for each in scene.trace if each in OUTCOMES.values()]) <= 1
                assert (scene.model.open, scene.running) == (0, 0)
                if at % 3 == 0:
                    await goes_on(scene.conversation)
            except BaseException as exc:
                exc.add_note(f"at checkpoint {at}; trace {scene.trace}")
                raise
            if not happened:
                return at
            at += 1

    checkpoints = loop.run_until_complete(sweep())
    print(f"shut down at each of {checkpoints} checkpoints")
    assert checkpoints > 100


def test_a_sub_agent_is_ended_at_every_checkpoint(
    loop: CountingLoop, complaints: Complaints
) -> None:
    """'the parent's abort takes the child along': both have one outcome, wherever it comes."""

    class Family(Scene):
        def tools(self) -> list[Any]:
            self.inner: list[str] = []
            step = lambda: asyncio.sleep(0)  # noqa: E731
            child = Agent(ScriptedModel(Turn("hel", "lo", delay=step)), name="report")
            child.add_hook("onChatStart", lambda ctx: self.inner.append("start"))
            for point, outcome in OUTCOMES.items():
                child.add_hook(point, lambda ctx, o=outcome: self.inner.append(o))  # type: ignore[call-overload]
            child.add_hook("onChatEnd", lambda ctx: self.inner.append(f"end {ctx.outcome}"))
            return [child.as_tool(), *super().tools()[1:]]

    async def sweep() -> int:
        at = 0
        while True:
            scene = Family()
            scene.model._turns = (
                [
                    Text("let me see"),
                    call("report", input="?", id="c1"),
                    call("quick", n=1, id="c2"),
                ],
                "done",
            )
            consumers: list[asyncio.Task[None]] = []
            loop.arm(at, lambda consumers=consumers: consumers[0].cancel())  # type: ignore[misc]
            consumers.append(loop.create_task(scene.by_stream()))
            await asyncio.wait(consumers)
            happened = loop.disarm()
            await nothing_runs()
            try:
                scene.holds()
                assert scene.inner in ([], *(["start", o, f"end {o}"] for o in OUTCOMES.values()))
                if at % 3 == 0:
                    await goes_on(scene.conversation)
                assert (complaints.said, loop.said) == ([], [])
            except BaseException as exc:
                exc.add_note(f"at checkpoint {at}; trace {scene.trace}, inner {scene.inner}")
                raise
            if not happened:
                assert scene.inner == ["start", "done", "end done"]
                return at
            at += 1

    checkpoints = loop.run_until_complete(sweep())
    print(f"a sub-agent: {checkpoints} checkpoints")
    assert checkpoints > 80
