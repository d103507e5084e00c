"""What an operator relies on: odd values lose nothing, hidden texts stay hidden, all is counted."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Iterator
from decimal import Decimal
from enum import Enum
from typing import Any

import pytest
from opentelemetry.context import Context
from opentelemetry.metrics import NoOpMeterProvider
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.sdk.trace.sampling import (
    ALWAYS_OFF,
    Decision,
    ParentBased,
    Sampler,
    SamplingResult,
)
from tests._otlp import Pipeline, Span, attributes_of, only_traces, pipeline

from hookline import (
    Agent,
    Conversation,
    Limits,
    ModelResponse,
    Run,
    Settings,
    Text,
    Tool,
    Usage,
    tool,
)
from hookline.errors import StopChat, ToolDenied
from hookline.hooks import redact, retry
from hookline.models import Rates
from hookline.otel import Telemetry, record_evaluation
from hookline.testing import ScriptedModel, TestRuntime, Turn, call

SECRET = "4711-secret"
LARGE = 2**64 - 1


@pytest.fixture
def http() -> Iterator[Pipeline]:
    with pipeline() as made:
        yield made


@tool
async def echo(text: str) -> str:
    """Say it again."""
    return f"{text} {SECRET}"


def model_span(http: Pipeline) -> Span:
    (found,) = [span for span in http.flush().ours if span.name.startswith("chat ")]
    return found


# ── hidden texts stay hidden ────────────────────────────────────────────────────────────────


async def test_what_the_redact_hook_removes_is_in_no_trace(http: Pipeline) -> None:
    model = ScriptedModel([call("echo", text=SECRET)], f"It is {SECRET}.")
    telemetry = http.telemetry(capture="span_and_event", openinference=True)
    agent = Agent(model, tools=[echo], hooks=redact(SECRET), telemetry=telemetry)
    await agent.chat(f"say {SECRET}")
    root = http.flush().spans[0]
    assert "[redacted]" in root.attributes["gen_ai.input.messages"]
    assert SECRET.encode() not in http.received.raw


async def test_a_message_that_was_not_stored_is_in_no_trace(http: Pipeline) -> None:
    def clean(ctx: Any) -> Any:
        return ctx.message.replace(text="say ***") if ctx.message.role == "user" else None

    telemetry = http.telemetry(capture="span_only")
    agent = Agent(ScriptedModel("ok"), hooks={"preMessage": clean}, telemetry=telemetry)
    await agent.chat(f"say {SECRET}")
    root = http.flush().spans[0]
    assert "say ***" in root.attributes["gen_ai.input.messages"]
    assert SECRET.encode() not in http.received.raw


async def test_a_users_status_of_a_known_type_writes_no_content(
    http: Pipeline, caplog: pytest.LogCaptureFixture
) -> None:
    async def work(run: Run) -> str:
        """Work."""
        await run.status("summarized", {"text": SECRET, "messages": 2})
        await run.status("guardrail", SECRET)
        await run.status("handoff", {"from": [SECRET], "to": {"name": SECRET}})
        return "done"

    agent = Agent(ScriptedModel([call("work")], "ok"), tools=[work], telemetry=http.telemetry())
    await agent.chat("hi")
    received = http.flush()
    assert SECRET.encode() not in received.raw
    told = received.span("execute_tool work").events
    assert told[0].attributes == {"hookline.summarized.messages": 2}
    assert caplog.records == []


class Kind(Enum):
    SECRET = SECRET


OBJECT: Any = {"object": {"a": 1}}
_tracer = TracerProvider(shutdown_on_exit=False).get_tracer(__name__)
KEEPS_OBJECTS = bool(_tracer.start_span("x", attributes=OBJECT).attributes)
"""False before version 1.45 of the SDK, which drops them with a warning."""


async def test_redaction_reaches_every_value_of_the_applications_attributes(
    http: Pipeline, caplog: pytest.LogCaptureFixture
) -> None:
    given: dict[Any, Any] = {
        **({"object": {"text": SECRET, "numbers": [4711, None]}} if KEEPS_OBJECTS else {}),
        "bytes": SECRET.encode(),
        "enum": Kind.SECRET,
        "set": {SECRET},
        "number": 4711,
        5: "five",
    }

    def clean(text: str) -> str:
        return text.replace(SECRET, "***").replace("4711", "***")

    redacting = http.telemetry(attributes=given, redact=clean)
    await Agent(ScriptedModel("x"), telemetry=redacting).chat("hi")
    found = http.flush().spans[0].attributes
    if KEEPS_OBJECTS:
        assert found["object"] == {"text": "***", "numbers": ["***", None]}
    assert (found["number"], found["5"]) == ("***", "five")
    assert b"4711" not in http.received.raw
    assert caplog.records == []


async def test_content_of_a_chat_that_is_not_sampled_is_not_even_converted() -> None:
    seen: list[str] = []

    def watch(text: str) -> str:
        seen.append(text)
        return text

    provider = TracerProvider(sampler=ParentBased(ALWAYS_OFF), shutdown_on_exit=False)
    telemetry = Telemetry(
        tracer_provider=provider,
        meter_provider=MeterProvider(shutdown_on_exit=False),
        capture="span_only",
        redact=watch,
    )
    agent = Agent(ScriptedModel("the answer"), telemetry=telemetry)
    await agent.chat("the question")
    assert not {"the question", "the answer"} & set(seen)


# ── odd values lose nothing ─────────────────────────────────────────────────────────────────


async def test_an_integer_that_no_wire_takes_does_not_lose_the_rest(
    http: Pipeline, caplog: pytest.LogCaptureFixture
) -> None:
    schema = {"type": "object", "properties": {"n": {"type": "integer", "maximum": LARGE}}}

    def large(given: dict[str, Any]) -> dict[str, int]:
        return {"n": LARGE}

    count = Tool.from_schema("count", "Count.", schema, large)
    telemetry = http.telemetry(capture="span_and_event", attributes={"large": LARGE, "small": 1})
    agent = Agent(ScriptedModel([call("count", n=1)], "ok"), tools=[count], telemetry=telemetry)
    await agent.chat("hi")
    received = http.flush()
    first = attributes_of(received.events[0].attributes)
    assert first["gen_ai.tool.definitions"][0]["name"] == "count"
    root = received.spans[0].attributes
    assert (root["large"], root["small"]) == (str(LARGE), 1)
    assert caplog.records == []


@pytest.mark.parametrize("where", ["agent", "model", "provider", "answer", "hook"])
async def test_a_lone_surrogate_in_a_name_does_not_lose_its_batch(
    http: Pipeline, where: str, caplog: pytest.LogCaptureFixture
) -> None:
    odd = {where: "x\ud800"}
    model = ScriptedModel(
        ModelResponse(parts=(Text("ok"),), model=odd.get("answer"), usage=Usage(input_tokens=1)),
        name=odd.get("model", "large"),
    )
    model.provider = odd.get("provider", "tests")
    agent = Agent(model, name=odd.get("agent", "agent"), telemetry=http.telemetry())

    def change(ctx: Any) -> Any:
        return ctx.request.replace(system="Be kind.")

    agent.add_hook("preRequest", change, name=odd.get("hook", "change"))
    await agent.chat("hi")
    received = http.flush()
    assert len(received.spans) == 2
    assert "gen_ai.client.operation.duration" in received.metrics
    assert caplog.records == []


@pytest.mark.parametrize(
    ("price", "cost"),
    [(Decimal("0.5"), 0.5), (1, 1.0), (float("nan"), None), (float("inf"), None), ("x", None)],
    ids=repr,
)
async def test_a_price_of_any_type_costs_no_other_metric(
    http: Pipeline, price: Any, cost: float | None
) -> None:
    def costs(model: str, usage: Usage) -> Any:
        return price

    telemetry = http.telemetry(price=costs)
    await Agent(ScriptedModel("hi"), telemetry=telemetry).chat("hi")
    received = http.flush()
    assert [span.attributes.get("hookline.cost") for span in received.spans] == [cost, cost]
    assert "gen_ai.client.operation.duration" in received.metrics
    assert ("hookline.cost" in received.metrics) is (cost is not None)


async def test_too_many_attributes_of_the_application_drop_none_of_the_conventions(
    http: Pipeline,
) -> None:
    telemetry = http.telemetry(attributes={f"own.{n}": n for n in range(140)})
    agent = Agent(ScriptedModel([call("echo", text="x")], "ok"), tools=[echo], telemetry=telemetry)
    await agent.chat("hi")
    spans = http.flush().spans  # the pipeline checks their attributes at its end
    assert [span.attributes["gen_ai.operation.name"] for span in spans] == [
        "invoke_agent", "chat", "execute_tool", "chat",
    ]  # fmt: skip


async def test_events_need_no_other_signal(http: Pipeline) -> None:
    telemetry = Telemetry(
        tracer_provider=None,
        meter_provider=NoOpMeterProvider(),
        logger_provider=http.loggers,
        capture="event_only",
    )
    await Agent(ScriptedModel("hi"), telemetry=telemetry).chat("hi")
    assert [record.event_name for record in http.flush().events] == [
        "gen_ai.client.inference.operation.details"
    ]


# ── all is counted, once ────────────────────────────────────────────────────────────────────

USED = Usage(input_tokens=10, output_tokens=5)
PRICES = {"scripted": Rates(input=1e6, output=1e6)}
Twice = [Turn("no", usage=USED), Turn("yes", usage=USED)]


def spent(http: Pipeline) -> tuple[Any, Any, Any]:
    """The tokens and the cost of the model's span; the tokens of the metric."""
    found = model_span(http).attributes
    tokens = http.received.metrics.get("gen_ai.client.token.usage")
    used = found.get("gen_ai.usage.input_tokens"), found.get("hookline.cost")
    return *used, None if tokens is None else tokens.sum


async def test_a_hook_that_asks_twice_has_paid_twice(http: Pipeline) -> None:
    async def ask_again(ctx: Any, proceed: Any) -> Any:
        await proceed()
        return await proceed()

    hooks = {"aroundRequest": ask_again}
    telemetry = http.telemetry(price=PRICES)
    await Agent(ScriptedModel(*Twice), hooks=hooks, telemetry=telemetry).chat("hi")
    assert spent(http) == (20, 30.0, 30)
    root = http.received.spans[0].attributes
    assert (root["gen_ai.usage.input_tokens"], root["hookline.cost"]) == (20, 30.0)


@pytest.mark.parametrize("error", [ValueError("no"), StopChat("enough")], ids=["error", "stop"])
async def test_an_answer_that_a_hook_refuses_was_paid_all_the_same(
    http: Pipeline, error: Exception
) -> None:
    async def refuse(ctx: Any, proceed: Any) -> Any:
        await proceed()
        raise error

    agent = Agent(
        ScriptedModel(Turn("no", usage=USED)),
        hooks={"aroundRequest": refuse},
        telemetry=http.telemetry(price=PRICES),
    )
    if isinstance(error, StopChat):
        await agent.chat("hi")
    else:
        with pytest.raises(ValueError, match="no"):
            await agent.chat("hi")
    assert spent(http) == (10, 15.0, 15)


async def test_a_stored_answer_after_a_failed_attempt_costs_nothing(http: Pipeline) -> None:
    stored = ModelResponse(parts=(Text("as before"),), usage=USED)

    async def fall_back(ctx: Any, proceed: Any) -> Any:
        try:
            return await proceed()
        except ConnectionError:
            return stored

    agent = Agent(
        ScriptedModel(ConnectionError("no")),
        hooks={"aroundRequest": fall_back},
        telemetry=http.telemetry(price=PRICES),
    )
    await agent.chat("hi")
    assert spent(http) == (None, None, None)


async def test_the_settings_of_a_later_attempt_are_those_of_the_span(http: Pipeline) -> None:
    async def longer(ctx: Any, proceed: Any) -> Any:
        try:
            return await proceed()
        except ConnectionError:
            return await proceed(ctx.request.replace(settings=Settings(max_tokens=50)))

    agent = Agent(
        ScriptedModel(ConnectionError("no"), "ok"),
        hooks={"aroundRequest": longer},
        settings=Settings(max_tokens=10),
        telemetry=http.telemetry(),
    )
    await agent.chat("hi")
    assert model_span(http).attributes["gen_ai.request.max_tokens"] == 50


async def test_the_attempts_of_an_agent_that_was_handed_over_to_are_seen(http: Pipeline) -> None:
    flaky = ScriptedModel(ConnectionError("no"), "ok", name="flaky")
    second = Agent(flaky, name="second", hooks=[retry(base=0, on=ConnectionError)])
    agent = Agent(ScriptedModel([call("transfer_to_second")]), telemetry=http.telemetry())
    agent.handoffs(second)
    await agent.chat("hi")
    received = http.flush()
    assert received.span("chat flaky").attributes["hookline.attempts"] == 2
    assert [record.event_name for record in received.events] == [
        "gen_ai.client.operation.exception"
    ]


async def test_a_hook_that_changes_the_text_of_a_hooks_answer_has_decided(http: Pipeline) -> None:
    """An answer by a hook has no span, so its events are on the chat's."""

    def answer(ctx: Any) -> Any:
        return ModelResponse(parts=(Text("short"),)) if ctx.iteration == 0 else None

    def louder(ctx: Any) -> Any:
        return ctx.delta.replace(text="LOUD") if hasattr(ctx.delta, "text") else None

    agent = Agent(ScriptedModel("unused"), telemetry=http.telemetry())
    agent.add_hook("preRequest", answer)
    agent.add_hook("onDelta", louder, name="louder")
    await agent.chat("hi")
    (root,) = http.flush().spans
    hooks = [event.attributes.get("hookline.hook.name") for event in root.events]
    assert hooks.count("louder") == 1


# ── trees, endings and memory ───────────────────────────────────────────────────────────────


async def test_chats_with_the_same_id_do_not_mix_up_their_spans(http: Pipeline) -> None:
    telemetry = http.telemetry()
    inner = Agent(ScriptedModel("x"), name="inner", telemetry=telemetry, runtime=TestRuntime())

    async def ask() -> str:
        """Ask the other agent."""
        return (await inner.chat("hi")).text

    model = ScriptedModel([call("ask")], "ok")
    agent = Agent(model, tools=[ask], telemetry=telemetry, runtime=TestRuntime())
    await agent.chat("hi")
    assert http.flush().tree() == [
        "invoke_agent agent",
        "  chat scripted",
        "  execute_tool ask",
        "    invoke_agent inner",
        "      chat scripted",
        "  chat scripted",
    ]


class Named(Sampler):
    """Samples only spans of this name."""

    def should_sample(
        self, parent_context: Any, trace_id: Any, name: str, *_: Any, **more: Any
    ) -> Any:
        return SamplingResult(Decision.RECORD_AND_SAMPLE if name == "job" else Decision.DROP)

    def get_description(self) -> str:
        return "Named"


async def test_another_trace_that_begins_inside_an_unsampled_chat_is_whole() -> None:
    found = InMemorySpanExporter()
    provider = TracerProvider(sampler=ParentBased(Named()), shutdown_on_exit=False)
    provider.add_span_processor(SimpleSpanProcessor(found))
    telemetry = only_traces(provider)
    inner = Agent(ScriptedModel("x"), name="inner", telemetry=telemetry)

    async def job() -> str:
        """Do a job, in a trace of its own."""
        tracer = provider.get_tracer("tests")
        with tracer.start_as_current_span("job", context=Context()):
            return (await inner.chat("hi")).text

    agent = Agent(ScriptedModel([call("job")], "ok"), tools=[job], telemetry=telemetry)
    await agent.chat("hi")
    names = [span.name for span in found.get_finished_spans()]
    assert names == ["chat scripted", "invoke_agent inner", "job"]


async def test_a_tool_that_refuses_has_decided_and_is_no_error(http: Pipeline) -> None:
    @tool
    async def pay() -> str:
        """Pay."""
        raise ToolDenied("not today")

    agent = Agent(ScriptedModel([call("pay")], "ok"), tools=[pay], telemetry=http.telemetry())
    await agent.chat("hi")
    span = http.flush().span("execute_tool pay")
    assert (span.status, span.attributes["hookline.outcome"]) == ("UNSET", "denied")
    labels = http.received.metrics["gen_ai.execute_tool.duration"].labels()
    assert "error.type" not in labels[0]


async def test_a_chat_that_is_cancelled_before_it_proceeds_was_aborted(http: Pipeline) -> None:
    waits = asyncio.Event()

    async def limiter(ctx: Any, proceed: Any) -> Any:
        waits.set()
        await asyncio.Event().wait()

    agent = Agent(ScriptedModel(), hooks={"aroundChat": limiter}, telemetry=http.telemetry())
    task = asyncio.create_task(agent.chat("hi"))
    await waits.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    (span,) = http.flush().spans
    assert span.attributes["hookline.outcome"] == "aborted"
    assert span.attributes["error.type"] == "CancelledError"


async def test_a_finished_chat_whose_observer_hangs_has_its_span_ended(
    http: Pipeline, caplog: pytest.LogCaptureFixture
) -> None:
    stuck, free = asyncio.Event(), asyncio.Event()

    async def hang(ctx: Any) -> None:
        stuck.set()
        while not free.is_set():
            try:
                await free.wait()
            except asyncio.CancelledError:
                continue

    agent = Agent(
        ScriptedModel("hi"),
        hooks={"onChatDone": hang},
        limits=Limits(grace=0.05),
        telemetry=http.telemetry(),
    )
    task = asyncio.create_task(agent.chat("hi"))
    await stuck.wait()
    task.cancel()
    await asyncio.wait([task])
    root = http.flush().span("invoke_agent agent")
    assert (root.status, root.attributes["hookline.outcome"]) == ("UNSET", "done")
    assert root.attributes["hookline.steps"] == 1
    free.set()
    others = asyncio.all_tasks() - {asyncio.current_task()}
    await asyncio.wait(others)
    assert len(http.flush().spans) == 2


class Fussy:
    """A span that refuses attributes at its end."""

    def __init__(self, span: Any) -> None:
        self._span = span

    def __getattr__(self, name: str) -> Any:
        return getattr(self._span, name)

    def set_attributes(self, attributes: Any) -> None:
        raise RuntimeError("no more attributes")


async def test_a_span_that_cannot_take_its_attributes_is_ended_all_the_same() -> None:
    found = InMemorySpanExporter()
    provider = TracerProvider(shutdown_on_exit=False)
    provider.add_span_processor(SimpleSpanProcessor(found))

    class Tracers:
        def get_tracer(self, *args: Any, **options: Any) -> Any:
            tracer: Any = provider.get_tracer(*args, **options)
            begin = tracer.start_span

            def start(*args: Any, **options: Any) -> Any:
                return Fussy(begin(*args, **options))

            tracer.start_span = start
            return tracer

    tracers: Any = Tracers()
    telemetry = Telemetry(tracer_provider=tracers, meter_provider=NoOpMeterProvider())
    agent = Agent(ScriptedModel([call("echo", text="x")], "ok"), tools=[echo], telemetry=telemetry)
    await agent.chat("hi")
    assert len(found.get_finished_spans()) == 4


def traced() -> set[tuple[int, str]]:
    """The objects of hookline.otel that are in memory: where each is, and of which type."""
    gc.collect()
    objects = ((id(each), type(each)) for each in gc.get_objects())
    ours = [(place, kind) for place, kind in objects if kind.__module__.startswith("hookline.otel")]
    return {(place, kind.__name__) for place, kind in ours}


async def test_an_ended_chat_can_be_rated_and_keeps_no_history_in_memory(http: Pipeline) -> None:
    telemetry = http.telemetry(capture="span_only")
    inner = Agent(ScriptedModel("x", "x"), name="inner", telemetry=telemetry)
    during: set[tuple[int, str]] = set()

    async def look() -> str:
        """Look at the memory."""
        during.update(traced())
        return "seen"

    model = ScriptedModel([call("inner", input="go"), call("look")], "ok", repeat=True)
    agent = Agent(model, tools=[inner.as_tool(), look], telemetry=telemetry)
    await agent.chat("hi", conversation=Conversation(id="first"))  # what is made once
    before = traced()
    during.clear()
    response = await agent.chat("hi", conversation=Conversation(id="talk"))
    of_the_chat = during - before
    assert "Trace" in {kind for _, kind in of_the_chat}
    assert not of_the_chat & traced()
    assert record_evaluation(response, "helpful", score=1, telemetry=telemetry)
    (record,) = http.flush().events
    first, rated = [span for span in http.received.spans if span.name == "invoke_agent agent"]
    assert record.span_id == rated.span_id != first.span_id
