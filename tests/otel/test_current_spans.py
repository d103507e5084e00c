"""The current span around hooks: wrappers open spans of their own, in any order around ours.

Two laws hold in each of these chats. After any hook the current span is what it was before, and no
span has a parent that ended before it began.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from itertools import combinations
from typing import Any, Final, NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import get_current_span

from hookline import Agent, Limits, tool
from hookline.errors import OverloadedError
from hookline.otel import Telemetry
from hookline.testing import ScriptedModel, Turn, call

AROUND: Final = ("aroundChat", "aroundRequest", "aroundToolCall")
BESIDE: Final = (
    "onChatStart", "preChat", "preRequest", "onDelta", "onResponse", "preMessage", "onMessage",
    "preToolCall", "onToolCallResult", "onToolCallError", "onStep", "preStop", "onChatDone",
    "onChatError", "onChatAbort", "onChatEnd",
)  # fmt: skip
PLACES: Final = {"outside": 2_000_000, "between": 0, "inside": -2_000_000}  # of our wrappers


def current() -> str:
    return getattr(get_current_span(), "name", "-")


class Wrapper(NamedTuple):
    """A user's wrapper: its point, its priority, and how it uses spans."""

    point: str
    priority: int
    style: str = "around"


class Chats:
    """A tracer, agents whose hooks open spans, and what the hooks saw."""

    def __init__(self) -> None:
        self.exporter = InMemorySpanExporter()
        self.provider = TracerProvider(shutdown_on_exit=False)
        self.provider.add_span_processor(SimpleSpanProcessor(self.exporter))
        self.tracer = self.provider.get_tracer("user")
        self.telemetry = Telemetry(tracer_provider=self.provider)
        self.wrong: list[str] = []
        self.hooks = 0

    # ── hooks ───────────────────────────────────────────────────────────────────────────────

    def add(self, agent: Agent[Any], wrappers: list[Wrapper], *, is_async: bool) -> Agent[Any]:
        for wrapper in wrappers:
            agent.add_hook(wrapper.point, self._wraps(wrapper), priority=wrapper.priority)
        for point in BESIDE:
            for priority in PLACES.values():
                look = self._looks(point, is_async)
                agent.add_hook(point, look, priority=priority, inherit=False)
        return agent

    def _wraps(self, wrapper: Wrapper) -> Any:
        point, priority, style = wrapper

        async def attempt(proceed: Any, number: int) -> Any:
            name = f"{point} {priority} #{number}"
            if style == "apart":  # no span is open while the call runs
                with self.tracer.start_as_current_span(name):
                    self.hooks += 1
                return await proceed()
            with self.tracer.start_as_current_span(name):
                try:
                    if style == "task":
                        work = asyncio.create_task(proceed())
                        work.add_done_callback(lambda work: work.cancelled() or work.exception())
                        return await work
                    return (
                        await asyncio.wait_for(proceed(), 60)
                        if style == "timed"
                        else (await proceed())
                    )
                finally:
                    if current() != name:
                        self.wrong.append(f"inside of {name}: {current()}")

        async def wraps(ctx: Any, proceed: Any) -> Any:
            before = current()
            try:
                try:
                    return await attempt(proceed, 1)
                except OverloadedError:
                    if point == "aroundChat":  # a chat runs once
                        raise
                    return await attempt(proceed, 2)
            finally:
                if current() != before:
                    self.wrong.append(f"after {point} {priority}: {current()}, not {before}")
                with self.tracer.start_as_current_span(f"after {point} {priority}"):
                    self.hooks += 1

        return wraps

    def _looks(self, point: str, is_async: bool) -> Any:
        def look(ctx: Any) -> None:
            with self.tracer.start_as_current_span(point):
                self.hooks += 1

        async def look_later(ctx: Any) -> None:
            with self.tracer.start_as_current_span(point):
                await asyncio.sleep(0)
                self.hooks += 1

        return look_later if is_async else look

    # ── the laws ────────────────────────────────────────────────────────────────────────────

    def check(self) -> list[str]:
        """Check the laws; returns the names of our spans."""
        assert self.wrong == []
        assert self.hooks > 0
        spans = self.exporter.get_finished_spans()
        by_id = {span.context.span_id: span for span in spans}
        for span in spans:
            if span.parent is not None:
                parent = by_id[span.parent.span_id]  # a KeyError: the parent never ended
                assert (parent.end_time or 0) >= (span.start_time or 0), (parent.name, span.name)
        roots = {span.name for span in spans if span.parent is None}
        assert roots == {"caller"}
        ours = [span for span in spans if span.instrumentation_scope.name == "hookline"]
        return sorted(span.name.partition(" ")[0] for span in ours)


# ── the chats ───────────────────────────────────────────────────────────────────────────────


async def add(a: int, b: int) -> int:
    """Add two numbers."""
    with chats_tracer().start_as_current_span("work"):
        await asyncio.sleep(0)
    return a + b


def divide(a: int, b: int) -> float:
    """Divide two numbers."""
    with chats_tracer().start_as_current_span("work"):
        return a / b


def chats_tracer() -> Any:
    """The tracer of the span that is current."""
    return TRACERS[-1]


TRACERS: list[Any] = []
SUM: Final = call("add", a=1, b=2)
BUSY: Final = OverloadedError("busy")
Course = tuple[tuple[Any, ...], list[str]]
# For each course of a chat: the turns of its model, and how often each of our spans occurs.
COURSES: Final[dict[str, Course]] = {
    "a tool": (([SUM], "Done."), ["chat"] * 2 + ["execute_tool", "invoke_agent"]),
    "parallel tools": (
        ([SUM, call("add", a=3, b=4), call("divide", a=1, b=1)], [SUM], "Done."),
        ["chat"] * 3 + ["execute_tool"] * 4 + ["invoke_agent"],
    ),
    "retries": (
        (Turn(fail=BUSY), [SUM], Turn("Do", fail=BUSY, fail_after=1), "Done."),
        ["chat"] * 2 + ["execute_tool", "invoke_agent"],
    ),
    "a tool that fails": (
        ([call("divide", a=1, b=0), SUM], "Done."),
        ["chat"] * 2 + ["execute_tool"] * 2 + ["invoke_agent"],
    ),
    "a model that fails": (
        ([SUM], Turn("Do", fail=ConnectionError("gone"), fail_after=1)),
        ["chat"] * 2 + ["execute_tool", "invoke_agent"],
    ),
    "a sub-agent": (
        ([call("sums", input="Add."), SUM], [SUM], "Three.", "Done."),
        ["chat"] * 4 + ["execute_tool"] * 3 + ["invoke_agent"] * 2,
    ),
    "a handoff": (
        ([call("transfer_to_sums")], [SUM], "Done."),
        ["chat"] * 3 + ["execute_tool"] * 2 + ["invoke_agent"],
    ),
}


async def collected(agent: Agent[Any]) -> None:
    await agent.chat("Go.")


async def streamed(agent: Agent[Any]) -> None:
    async with agent.chat_stream("Go.") as stream:
        async for _ in stream:
            assert current() == "caller"


async def aborted(agent: Agent[Any]) -> None:
    """Abort the chat from another task, after its first step."""
    stream = agent.chat_stream("Go.")
    steps = 0
    async with stream:
        async for event in stream:
            assert current() == "caller"
            steps += type(event).__name__ == "StepFinished"
            if steps:
                await asyncio.create_task(stream.aclose())
                break


ROADS: Final[dict[str, Callable[[Agent[Any]], Awaitable[None]]]] = {
    "chat": collected, "chat_stream": streamed, "aborted": aborted,
}  # fmt: skip


async def played(
    course: str, road: str, wrappers: list[Wrapper], *, is_async: bool = False
) -> list[str]:
    """Play a chat, and check the laws; returns the names of our spans."""
    chats = Chats()
    TRACERS[:] = [chats.tracer]
    turns = COURSES[course][0]
    model = ScriptedModel(*turns)
    sums: Agent[Any] = Agent(model, name="sums", tools=[add], telemetry=chats.telemetry)
    chats.add(sums, wrappers, is_async=is_async)
    agent: Agent[Any] = Agent(
        model,
        name="helper",
        tools=[add, tool(divide), sums.as_tool()],
        telemetry=chats.telemetry,
    )
    agent.handoffs(sums)
    chats.add(agent, wrappers, is_async=is_async)
    with chats.tracer.start_as_current_span("caller"):
        try:
            await ROADS[road](agent)
        except (ConnectionError, OverloadedError):
            assert course in ("a model that fails", "retries")
        assert current() == "caller"
    assert current() == "-"
    return chats.check()


ORDERS: Final = [order for size in (1, 2, 3) for order in combinations(PLACES, size)]


@pytest.mark.parametrize("road", ROADS)
@pytest.mark.parametrize("course", COURSES)
@pytest.mark.parametrize("order", ORDERS, ids=" and ".join)
async def test_after_any_hook_the_current_span_is_what_it_was(
    order: tuple[str, ...], course: str, road: str, caplog: pytest.LogCaptureFixture
) -> None:
    """With wrappers at all three points, at each set of places around ours: 147 chats."""
    wrappers = [Wrapper(point, PLACES[place]) for point in AROUND for place in order]
    names = await played(course, road, wrappers)
    if road != "aborted":
        # A wrapper outside of ours that retries makes calls of its own.
        more = ["chat"] * 2 if course == "retries" and order == ("outside",) else []
        assert names == sorted([*COURSES[course][1], *more])
    assert logged(caplog) == []


STYLES: Final = ("around", "apart", "task", "timed")


@pytest.mark.slow
@settings(max_examples=100)
@given(
    wrappers=st.lists(
        st.builds(
            Wrapper,
            st.sampled_from(AROUND),
            st.sampled_from([2_000_000, 7, 0, -7, -2_000_000]),
            st.sampled_from(STYLES),
        ),
        max_size=8,
    ),
    course=st.sampled_from(list(COURSES)),
    road=st.sampled_from(list(ROADS)),
    is_async=st.booleans(),
)
def test_so_it_is_with_wrappers_in_any_order(
    wrappers: list[Wrapper], course: str, road: str, is_async: bool
) -> None:
    """Also with calls in tasks of their own, with time limits, and with hooks that await."""
    asyncio.run(played(course, road, wrappers, is_async=is_async))


async def test_a_chat_that_is_left_behind_has_its_span_ended() -> None:
    """The wrapper that ends the span never returns: a hook ignores the chat's cancellation."""
    chats = Chats()
    gate, hanging = asyncio.Event(), asyncio.Event()

    async def hang(ctx: Any) -> None:
        hanging.set()
        while not gate.is_set():
            with suppress(asyncio.CancelledError):
                await gate.wait()

    limits = Limits(grace=0.05)
    agent: Agent[Any] = Agent(ScriptedModel("Hi."), telemetry=chats.telemetry, limits=limits)
    agent.add_hook("onChatStart", hang)
    chat = asyncio.create_task(agent.chat("Go."))
    await hanging.wait()
    chat.cancel()
    with pytest.raises(asyncio.CancelledError):
        await chat
    assert [span.name for span in chats.exporter.get_finished_spans()] == ["invoke_agent agent"]
    gate.set()


def logged(caplog: pytest.LogCaptureFixture) -> list[str]:
    """What telemetry has logged, such as "Failed to detach context"."""
    ours = ("opentelemetry", "hookline.otel")
    return [record.getMessage() for record in caplog.records if record.name.startswith(ours)]


@pytest.mark.parametrize(
    ("semconv", "schema"),
    [("v1.41", "https://opentelemetry.io/schemas/1.41.0"), ("genai-v0.1.0", "")],
)
async def test_spans_carry_the_schema_url_of_their_conventions(semconv: Any, schema: str) -> None:
    chats = Chats()
    telemetry = Telemetry(tracer_provider=chats.provider, semconv=semconv)
    await Agent(ScriptedModel("Hello."), telemetry=telemetry).chat("Hi.")
    spans = chats.exporter.get_finished_spans()
    assert {span.instrumentation_scope.schema_url for span in spans} == {schema}
