"""However a chat ends, each of its spans ends once, children first, and says how it ended."""

from __future__ import annotations

import asyncio
import gc
import logging
import warnings
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from typing import Any

import pytest
from opentelemetry import trace
from tests._otlp import Pipeline, Received, Span, pipeline

from hookline import Agent, Limits, ModelRequest, Response, tool
from hookline.errors import (
    ChatAbortedError,
    MaxStepsError,
    StopChat,
    StreamInterruptedError,
)
from hookline.hooks import guardrail
from hookline.models import Chunk, TextChunk
from hookline.testing import ScriptedModel, Turn, call, collect

pytestmark = pytest.mark.usefixtures("quiet")


@pytest.fixture(params=["http/protobuf", "grpc"])
def otlp(request: pytest.FixtureRequest) -> Iterator[Pipeline]:
    with pipeline(request.param) as made:
        yield made


@pytest.fixture
def http() -> Iterator[Pipeline]:
    with pipeline() as made:
        yield made


@pytest.fixture
def quiet(caplog: pytest.LogCaptureFixture) -> Iterator[None]:
    """Fails the test in which OpenTelemetry, or our telemetry, complains."""
    caplog.set_level(logging.INFO)
    yield
    names = ("opentelemetry", "hookline.otel")
    said = [record.getMessage() for record in caplog.records if record.name.startswith(names)]
    assert said == []


class Slow:
    """A model that sends a text and then nothing more."""

    name = "slow"
    provider = "tests"

    def __init__(self) -> None:
        self.waits = asyncio.Event()

    async def stream(self, request: ModelRequest, /) -> AsyncIterator[Chunk]:
        yield TextChunk("Well, ")
        self.waits.set()
        await asyncio.Event().wait()


async def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


def check(received: Received, names: list[str]) -> list[Span]:
    """The spans in order of their beginning: of these names, each once, children inside."""
    spans = received.spans
    assert [span.name for span in spans] == names
    ids = {span.span_id: span for span in spans}
    assert len(ids) == len(spans)
    for span in spans:
        parent = ids.get(span.parent_id)
        if parent is not None:
            assert parent.start <= span.start <= span.end <= parent.end
    order = [
        part.span_id
        for request in received.of("traces", _requests())
        for resource in request.resource_spans
        for scope in resource.scope_spans
        for part in scope.spans
    ]
    for span in spans:  # they are exported in the order in which they ended
        if span.parent_id in ids:
            assert order.index(span.span_id) < order.index(span.parent_id)
    return spans


def _requests() -> Any:
    from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

    return ExportTraceServiceRequest


def errors(spans: list[Span]) -> list[str | None]:
    """The error.type of each; it is there exactly where the status is ERROR."""
    for span in spans:
        assert (span.status == "ERROR") is ("error.type" in span.attributes)
        assert span.status in ("UNSET", "ERROR")
        assert span.status_text == ""
    return [span.attributes.get("error.type") for span in spans]


# ── errors ──────────────────────────────────────────────────────────────────────────────────


async def test_success(otlp: Pipeline) -> None:
    await Agent(ScriptedModel("hi"), telemetry=otlp.telemetry()).chat("hi")
    spans = check(otlp.flush(), ["invoke_agent agent", "chat scripted"])
    assert errors(spans) == [None, None]
    assert spans[0].attributes["hookline.outcome"] == "done"


class RateLimit(Exception):
    pass


@pytest.mark.parametrize("chunks", [0, 1], ids=["at once", "in the middle"])
async def test_a_model_that_fails(otlp: Pipeline, chunks: int) -> None:
    model = ScriptedModel(Turn("We", "ll", fail=RateLimit("wait"), fail_after=chunks))
    agent = Agent(model, telemetry=otlp.telemetry())
    with pytest.raises(RateLimit):
        await agent.chat("hi")
    spans = check(otlp.flush(), ["invoke_agent agent", "chat scripted"])
    kind = f"{RateLimit.__module__}.RateLimit"
    assert errors(spans) == [kind, kind]
    assert spans[0].attributes["hookline.outcome"] == "error"
    assert spans[1].attributes["gen_ai.response.finish_reasons"] == ["error"]


async def test_a_model_that_recovers_is_no_error(http: Pipeline) -> None:
    agent = Agent(ScriptedModel(Turn(fail=RateLimit("wait")), "there"), telemetry=http.telemetry())

    async def retry(ctx: Any, proceed: Any) -> Any:
        try:
            return await proceed()
        except RateLimit:
            return await proceed()

    agent.add_hook("aroundRequest", retry)
    await agent.chat("hi")
    spans = check(http.flush(), ["invoke_agent agent", "chat scripted"])
    assert errors(spans) == [None, None]
    assert spans[1].attributes["hookline.attempts"] == 2


async def test_a_tool_that_fails_is_an_error_of_its_own_span_alone(otlp: Pipeline) -> None:
    def broken() -> None:
        """A tool."""
        raise LookupError("secret")

    agent = Agent(ScriptedModel([call("broken")], "ok"), tools=[broken], telemetry=otlp.telemetry())
    await agent.chat("hi")
    spans = check(
        otlp.flush(),
        ["invoke_agent agent", "chat scripted", "execute_tool broken", "chat scripted"],
    )
    assert errors(spans) == [None, None, "LookupError", None]


async def test_a_tool_that_runs_out_of_time(http: Pipeline) -> None:
    @tool(timeout=0.01)
    async def slow() -> None:
        """A tool."""
        await asyncio.Event().wait()

    agent = Agent(ScriptedModel([call("slow")], "ok"), tools=[slow], telemetry=http.telemetry())
    await agent.chat("hi")
    span = http.flush().span("execute_tool slow")
    assert errors([span]) == ["hookline.errors.ToolTimeoutError"]


async def test_a_tool_that_stops_the_chat_has_not_failed(http: Pipeline) -> None:
    def stop() -> None:
        """A tool."""
        raise StopChat("enough")

    agent = Agent(ScriptedModel([call("stop")]), tools=[stop], telemetry=http.telemetry())
    await agent.chat("hi")
    names = ["invoke_agent agent", "chat scripted", "execute_tool stop"]
    assert errors(check(http.flush(), names)) == [None, None, None]


async def test_calls_that_never_run_have_no_span(http: Pipeline) -> None:
    model = ScriptedModel([call("add", a=1, b=1), call("gone"), call("add", a="x", b=1)], "ok")
    agent = Agent(model, tools=[add], telemetry=http.telemetry())
    agent.add_hook("preToolCall", lambda ctx: None)
    await agent.chat("hi")
    spans = http.flush().spans
    assert [span.name for span in spans].count("execute_tool add") == 1
    assert "execute_tool gone" not in [span.name for span in spans]


async def test_too_many_steps(http: Pipeline) -> None:
    agent = Agent(
        ScriptedModel([call("add", a=1, b=1)]),
        tools=[add],
        limits=Limits(steps=1),
        telemetry=http.telemetry(),
    )
    with pytest.raises(MaxStepsError):
        await agent.chat("hi")
    names = ["invoke_agent agent", "chat scripted", "execute_tool add"]
    spans = check(http.flush(), names)
    assert errors(spans) == ["hookline.errors.MaxStepsError", None, None]


@pytest.mark.parametrize("point", ["onChatStart", "preChat", "preRequest", "onResponse", "onStep"])
async def test_a_hook_that_raises(http: Pipeline, point: str) -> None:
    def broken(ctx: Any) -> None:
        raise ValueError("secret")

    agent = Agent(ScriptedModel("hi"), hooks={point: broken}, telemetry=http.telemetry())
    with pytest.raises(ValueError, match="secret"):
        await agent.chat("hi")
    asked = point in ("onResponse", "onStep")
    spans = check(http.flush(), ["invoke_agent agent", *["chat scripted"][: int(asked)]])
    assert errors(spans) == ["ValueError", *[None][: int(asked)]]


@pytest.mark.parametrize("after", [False, True], ids=["before proceed", "after proceed"])
async def test_a_wrapper_of_the_chat_that_raises(http: Pipeline, after: bool) -> None:
    async def broken(ctx: Any, proceed: Any) -> Any:
        if after:
            await proceed()
        raise ValueError("secret")

    agent = Agent(ScriptedModel("hi"), hooks={"aroundChat": broken}, telemetry=http.telemetry())
    with pytest.raises(ValueError, match="secret"):
        await agent.chat("hi")
    spans = check(http.flush(), ["invoke_agent agent", *["chat scripted"][: int(after)]])
    assert errors(spans)[0] == "ValueError"


# ── aborts ──────────────────────────────────────────────────────────────────────────────────

SPANS = ["invoke_agent agent", "chat slow"]


async def _at_the_first_text(agent: Agent, act: Callable[[], object]) -> None:
    async with agent.chat_stream("hi") as stream:
        async for event in stream:
            if type(event).__name__ == "TextDelta":
                act()


async def _stream_abort(agent: Agent, model: Slow) -> None:
    async with agent.chat_stream("hi") as stream:
        async for event in stream:
            if type(event).__name__ == "TextDelta":
                stream.abort("enough")


async def _run_abort(agent: Agent, model: Slow) -> None:
    agent.add_hook("onDelta", lambda ctx: ctx.run.abort("enough") and None)
    with pytest.raises(ChatAbortedError):
        await agent.chat("hi")


async def _leave(agent: Agent, model: Slow) -> None:
    async with agent.chat_stream("hi") as stream:
        async for event in stream:
            if type(event).__name__ == "TextDelta":
                break


async def _raise(agent: Agent, model: Slow) -> None:
    def fail() -> None:
        raise KeyError("the reader's own")

    with pytest.raises(KeyError):
        await _at_the_first_text(agent, fail)


async def _collected(agent: Agent, model: Slow) -> None:
    async def read() -> None:
        stream = agent.chat_stream("hi")
        async for event in stream:
            if type(event).__name__ == "TextDelta":
                return

    ended = asyncio.Event()
    agent.add_hook("onChatEnd", lambda ctx: ended.set())
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        await read()
        gc.collect()
    assert [warning.category for warning in warned] == [ResourceWarning]
    await ended.wait()
    await _settled()


async def _cancelled(agent: Agent, model: Slow) -> None:
    task = asyncio.create_task(agent.chat("hi"))
    await model.waits.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


async def _timed_out(agent: Agent, model: Slow) -> None:
    async def let_it_run_out(limit: asyncio.Timeout) -> None:
        await model.waits.wait()
        limit.reschedule(asyncio.get_running_loop().time())

    async def chat() -> None:
        async with asyncio.timeout(None) as limit:
            running_out = asyncio.create_task(let_it_run_out(limit))
            await agent.chat("hi")
        await running_out

    with pytest.raises(TimeoutError):
        await chat()


async def _third_party(agent: Agent, model: Slow) -> None:
    tasks: list[asyncio.Task[Any]] = []
    agent.add_hook("preRequest", lambda ctx: tasks.append(asyncio.current_task()))
    with pytest.raises(StreamInterruptedError):
        await _at_the_first_text(agent, lambda: tasks[0].cancel())


async def _settled() -> None:
    """Until the chat's own task has ended."""
    others = asyncio.all_tasks() - {asyncio.current_task()}
    if others:
        await asyncio.wait(others)


ABORTED = "hookline.errors.ChatAbortedError"
WAYS: dict[str, tuple[Callable[[Agent, Slow], Awaitable[None]], str, str]] = {
    "stream.abort": (_stream_abort, ABORTED, "CancelledError"),
    "run.abort": (_run_abort, ABORTED, "CancelledError"),
    "break": (_leave, "_OTHER", "_OTHER"),
    "the reader raises": (_raise, "_OTHER", "_OTHER"),
    "garbage": (_collected, "_OTHER", "_OTHER"),
    "cancelled": (_cancelled, "CancelledError", "CancelledError"),
    "timeout": (_timed_out, "CancelledError", "CancelledError"),
    "third party": (_third_party, "CancelledError", "CancelledError"),
}


@pytest.mark.parametrize("way", WAYS)
async def test_a_chat_that_is_cut_in_the_middle_of_an_answer(otlp: Pipeline, way: str) -> None:
    cut, outer, inner = WAYS[way]
    model = Slow()
    tracer = otlp.tracers.get_tracer("caller")
    with tracer.start_as_current_span("caller") as caller:
        await cut(Agent(model, telemetry=otlp.telemetry()), model)
        assert trace.get_current_span() is caller
    spans = check(otlp.flush(), ["caller", *SPANS])
    assert errors(spans) == [None, outer, inner]
    assert spans[1].attributes["hookline.outcome"] == "aborted"
    assert spans[2].attributes["gen_ai.response.finish_reasons"] == ["error"]
    metrics = otlp.received.metrics
    assert metrics["gen_ai.invoke_agent.duration"].labels()[0]["error.type"] == outer
    assert metrics["gen_ai.client.operation.duration"].labels()[0]["error.type"] == inner
    assert metrics["gen_ai.invoke_agent.inference_calls"].sum == 1


async def test_an_abort_while_tools_run_side_by_side(otlp: Pipeline) -> None:
    running = asyncio.Barrier(3)

    async def wait() -> None:
        """A tool."""
        await running.wait()
        await asyncio.Event().wait()

    agent = Agent(
        ScriptedModel([call("wait"), call("wait")]), tools=[wait], telemetry=otlp.telemetry()
    )
    async with agent.chat_stream("hi") as stream:
        reading = asyncio.create_task(collect(stream))
        await running.wait()
        stream.abort("enough")
        await reading
    names = ["invoke_agent agent", "chat scripted", "execute_tool wait", "execute_tool wait"]
    spans = check(otlp.flush(), names)
    assert errors(spans) == [ABORTED, None, "CancelledError", "CancelledError"]


async def test_a_sub_agent_ends_before_the_agent_that_is_aborted(otlp: Pipeline) -> None:
    model = Slow()
    inner = Agent(model, name="inner")
    outer = Agent(
        ScriptedModel([call("inner", input="go")]),
        tools=[inner.as_tool()],
        telemetry=otlp.telemetry(),
    )
    async with outer.chat_stream("hi") as stream:
        reading = asyncio.create_task(collect(stream))
        await model.waits.wait()
        stream.abort("enough")
        await reading
    spans = check(
        otlp.flush(),
        [
            *("invoke_agent agent", "chat scripted", "execute_tool inner"),
            *("invoke_agent inner", "chat slow"),
        ],
    )
    assert [span.status for span in spans] == ["ERROR", "UNSET", "ERROR", "ERROR", "ERROR"]


@pytest.mark.parametrize("where", ["tool", "hook", "model"])
async def test_what_is_left_behind_has_its_spans_ended(
    otlp: Pipeline, where: str, caplog: pytest.LogCaptureFixture
) -> None:
    """A tool, a hook or a model that ignores its cancellation for longer than the grace period."""
    stuck, free = asyncio.Event(), asyncio.Event()

    async def ignore() -> None:
        stuck.set()
        while not free.is_set():
            try:
                await free.wait()
            except asyncio.CancelledError:
                continue

    async def waiting() -> None:
        """A tool."""
        await ignore()

    class Model:
        name = "slow"

        async def stream(self, request: ModelRequest, /) -> AsyncIterator[Chunk]:
            await ignore()
            yield TextChunk("late")

    async def hook(ctx: Any) -> None:
        await ignore()

    model: Any = Model() if where == "model" else ScriptedModel([call("waiting")], "late")
    agent = Agent(model, tools=[waiting], limits=Limits(grace=0.05), telemetry=otlp.telemetry())
    if where == "hook":
        agent.add_hook("preRequest", hook)
    async with agent.chat_stream("hi") as stream:
        reading = asyncio.create_task(collect(stream))
        await stuck.wait()
        stream.abort("enough")
        await reading
    names = {
        "tool": ["invoke_agent agent", "chat scripted", "execute_tool waiting"],
        "hook": ["invoke_agent agent"],
        "model": ["invoke_agent agent", "chat slow"],
    }[where]
    spans = check(otlp.flush(), names)
    assert spans[0].status == spans[-1].status == "ERROR"
    free.set()
    await _settled()
    assert len(otlp.flush().spans) == len(names)  # what comes in late changes nothing


def test_a_loop_that_is_closed_in_the_middle_of_a_chat(http: Pipeline) -> None:
    """What asyncio.run does at its end: it cancels what is left."""

    async def main() -> None:
        model = Slow()
        agent = Agent(model, telemetry=http.telemetry())
        tasks.append(asyncio.create_task(agent.chat("hi")))
        await model.waits.wait()

    tasks: list[asyncio.Task[Response]] = []
    asyncio.run(main())
    assert tasks[0].cancelled()
    spans = check(http.flush(), SPANS)
    assert errors(spans) == ["CancelledError", "CancelledError"]


def test_a_loop_that_is_dropped_in_the_middle_of_a_chat(
    http: Pipeline, recwarn: pytest.WarningsRecorder
) -> None:
    """Nobody cancels, and the coroutines are closed by the garbage collector, elsewhere."""
    tracer = http.tracers.get_tracer("caller")

    def abandon() -> None:
        loop = asyncio.new_event_loop()
        model = Slow()
        agent = Agent(model, telemetry=http.telemetry())

        async def begin() -> None:
            chat = asyncio.create_task(agent.chat("hi"))
            await model.waits.wait()
            chats.append(chat)

        chats: list[asyncio.Task[Response]] = []
        loop.run_until_complete(begin())
        loop.set_exception_handler(lambda loop, context: None)
        loop.close()

    with tracer.start_as_current_span("elsewhere") as elsewhere:
        abandon()
        gc.collect()
        assert trace.get_current_span() is elsewhere
    received = http.flush()
    spans = [span for span in received.spans if span.name != "elsewhere"]
    assert sorted(span.name for span in spans) == ["chat slow", "invoke_agent agent"]
    assert errors(spans) == ["_OTHER", "_OTHER"]


class Broken(str):
    """A text that cannot be written."""

    __slots__ = ()

    def isascii(self) -> bool:
        raise RuntimeError("secret")

    encode: Any = isascii


async def test_content_that_cannot_be_written_ends_every_span_all_the_same(
    http: Pipeline, caplog: pytest.LogCaptureFixture
) -> None:
    """Whatever the reason, it is no reason to lose a span."""
    agent = Agent(
        ScriptedModel([call("add", a=1, b=2)], "3"),
        tools=[add],
        telemetry=http.telemetry(
            capture="span_only",
            redact=lambda text: Broken(text) if text in ("hi", "1", "2", "3") else text,
        ),
    )
    with trace.use_span(http.tracers.get_tracer("caller").start_span("caller"), end_on_exit=True):
        assert (await agent.chat("hi")).text == "3"
    names = ["invoke_agent agent", "chat scripted", "execute_tool add", "chat scripted"]
    check(http.flush(), ["caller", *names])
    assert "secret" not in caplog.text
    caplog.clear()  # it was told


# ── a guard that stops the chat ─────────────────────────────────────────────────────────────


@pytest.mark.parametrize("on", ["input", "output"])
async def test_a_guard_that_stops_a_chat_has_decided_and_is_no_error(on: Any) -> None:
    with pipeline() as otlp:
        model = ScriptedModel("an answer")
        guard: Any = guardrail(lambda said, run: "Not here.", on=on)
        agent = Agent(model, hooks=guard, telemetry=otlp.telemetry())
        assert (await agent.chat("hi")).stop_reason == "guardrail"
        received = otlp.flush()
    assert {span.status for span in received.spans} == {"UNSET"}
    assert not any("error.type" in span.attributes for span in received.spans)
    told = [
        event.attributes["hookline.hook.outcome"]
        for span in received.spans
        for event in span.events
        if "hookline.hook.outcome" in event.attributes
    ]
    assert told == ["stopped"]
    assert "exception" not in str([span.events for span in received.spans])
