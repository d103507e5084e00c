"""Metrics and events, as they arrive at a receiver of OTLP."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from tests._otlp import Pipeline, attributes_of, pipeline

from hookline import Agent, ModelResponse
from hookline.models import Timing
from hookline.testing import ScriptedModel, Turn, call


@pytest.fixture(params=["http/protobuf", "grpc"])
def otlp(request: pytest.FixtureRequest) -> Iterator[Pipeline]:
    with pipeline(request.param) as made:
        yield made


@pytest.fixture
def http() -> Iterator[Pipeline]:
    with pipeline() as made:
        yield made


async def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


SECONDS = [0.01, 0.02, 0.04, 0.08, 0.16, 0.32, 0.64, 1.28, 2.56, 5.12, 10.24, 20.48, 40.96, 81.92]
AGENT = [0.1, 0.2, 0.4, 0.8, 1.6, 3.2, 6.4, 12.8, 25.6, 51.2, 102.4, 204.8, 409.6]
TOKENS = [1, 4, 16, 64, 256, 1024, 4096, 16384, 65536, 262144, 1048576, 4194304, 16777216, 67108864]
COUNTS = [1, 2, 4, 8, 16, 32, 64, 128]
ADVISED = {
    "gen_ai.client.operation.duration": ("s", SECONDS),
    "gen_ai.client.token.usage": ("{token}", TOKENS),
    "gen_ai.client.operation.time_to_first_chunk": ("s", SECONDS),
    "gen_ai.client.operation.time_per_output_chunk": ("s", SECONDS),
    "gen_ai.invoke_agent.duration": ("s", AGENT),
    "gen_ai.invoke_agent.inference_calls": ("{inference_call}", COUNTS),
    "gen_ai.invoke_agent.tool_calls": ("{tool_call}", COUNTS),
    "gen_ai.execute_tool.duration": ("s", SECONDS),
}


def timed(agent: Agent[Any]) -> None:
    """Gives each answer a timing, as a model call has it."""

    async def wrapper(ctx: Any, proceed: Any) -> ModelResponse:
        response: ModelResponse = await proceed()
        return response

    agent.add_hook("aroundRequest", wrapper)


async def test_the_metrics_of_a_chat(otlp: Pipeline) -> None:
    model = ScriptedModel([call("add", a=1, b=2), call("add", a=3, b=4)], "3 and 7")
    agent = Agent(model, name="sums", tools=[add], telemetry=otlp.telemetry())
    response = await agent.chat("hi")
    received = otlp.flush()
    metrics = received.metrics
    for name, metric in metrics.items():
        if name in ADVISED:
            unit, bounds = ADVISED[name]
            assert (name, metric.unit) == (name, unit)
            assert metric.bounds == pytest.approx(bounds)
    asked = {
        "gen_ai.operation.name": "chat",
        "gen_ai.provider.name": "scripted",
        "gen_ai.request.model": "scripted",
        "gen_ai.response.model": "scripted",
    }
    duration = metrics["gen_ai.client.operation.duration"]
    assert (duration.labels(), duration.count) == ([asked], 2)
    spans = [span for span in received.spans if span.name == "chat scripted"]
    assert duration.sum == pytest.approx(sum(span.end - span.start for span in spans) / 1e9)
    tokens = {
        labels["gen_ai.token.type"]: (labels, point)
        for labels, point in zip(
            metrics["gen_ai.client.token.usage"].labels(),
            metrics["gen_ai.client.token.usage"].points,
            strict=True,
        )
    }
    assert tokens["input"][0] == {**asked, "gen_ai.token.type": "input"}
    assert tokens["input"][1].sum == response.usage.input_tokens
    assert tokens["output"][1].sum == response.usage.output_tokens
    whole = metrics["gen_ai.invoke_agent.duration"]
    assert whole.labels() == [{"gen_ai.agent.name": "sums", "gen_ai.request.model": "scripted"}]
    root = received.span("invoke_agent sums")
    assert whole.sum == pytest.approx((root.end - root.start) / 1e9)
    for name, count in (("inference_calls", 2), ("tool_calls", 2)):
        metric = metrics[f"gen_ai.invoke_agent.{name}"]
        assert (metric.labels(), metric.sum) == ([{"gen_ai.agent.name": "sums"}], count)
    tool = metrics["gen_ai.execute_tool.duration"]
    assert tool.count == 2
    assert tool.labels() == [
        {"gen_ai.tool.name": "add", "gen_ai.tool.type": "function", "gen_ai.agent.name": "sums"}
    ]


async def test_ids_are_on_no_metric(http: Pipeline) -> None:
    agent = Agent(ScriptedModel("hi"), telemetry=http.telemetry())
    agent.add_hook("onMessage", lambda ctx: None, name="mine")
    response = await agent.chat("hi")
    received = http.flush()
    for metric in received.metrics.values():
        for labels in metric.labels():
            assert not {name for name in labels if name.endswith(".id")}
            assert response.chat_id not in labels.values()


async def test_a_call_that_failed_is_measured_with_its_error(http: Pipeline) -> None:
    def broken() -> None:
        """A tool."""
        raise LookupError

    agent = Agent(
        ScriptedModel([call("broken")], Turn(fail=ConnectionError("down"))),
        tools=[broken],
        telemetry=http.telemetry(),
    )
    with pytest.raises(ConnectionError):
        await agent.chat("hi")
    metrics = http.flush().metrics
    failed = [
        labels.get("error.type") for labels in metrics["gen_ai.client.operation.duration"].labels()
    ]
    assert sorted(map(str, failed)) == ["ConnectionError", "None"]
    assert metrics["gen_ai.execute_tool.duration"].labels()[0]["error.type"] == "LookupError"
    assert metrics["gen_ai.invoke_agent.duration"].labels()[0]["error.type"] == "ConnectionError"
    assert metrics["gen_ai.invoke_agent.inference_calls"].sum == 2  # failed ones too
    assert metrics["gen_ai.invoke_agent.tool_calls"].sum == 1


async def test_the_time_of_hooks(http: Pipeline) -> None:
    agent = Agent(ScriptedModel("hi"), telemetry=http.telemetry())
    agent.add_hook("onMessage", lambda ctx: None, name="watch")
    agent.add_hook("preRequest", lambda ctx: ctx.request.replace(system="x"), name="edit")
    await agent.chat("hi")
    metric = http.flush().metrics["hookline.hook.duration"]
    found = {
        (
            labels["hookline.hook.name"],
            labels["hookline.hook.point"],
            labels["hookline.hook.outcome"],
        ): point.count
        for labels, point in zip(metric.labels(), metric.points, strict=True)
    }
    assert found == {("watch", "onMessage", "ok"): 2, ("edit", "preRequest", "changed"): 1}
    assert metric.unit == "s"


async def test_a_response_that_says_how_it_went_in_time(http: Pipeline) -> None:
    """What a model call says; where it came from is the core's."""

    async def timed(ctx: Any, proceed: Any) -> ModelResponse:
        return (await proceed()).replace(timing=Timing(first_chunk=0.25, duration=1.25, chunks=11))

    agent = Agent(ScriptedModel("hi"), telemetry=http.telemetry())
    agent.bus.add_hook("aroundRequest", timed, priority=-2_000_000)
    await agent.chat("hi")
    received = http.flush()
    span = received.span("chat scripted")
    assert span.attributes["gen_ai.response.time_to_first_chunk"] == 0.25
    assert received.metrics["gen_ai.client.operation.time_to_first_chunk"].sum == 0.25
    each = received.metrics["gen_ai.client.operation.time_per_output_chunk"]
    assert (each.sum, each.count) == (pytest.approx(0.1), 1)
    assert each.bounds == pytest.approx(SECONDS)
    assert each.labels() == [
        {
            "gen_ai.operation.name": "chat",
            "gen_ai.provider.name": "scripted",
            "gen_ai.request.model": "scripted",
            "gen_ai.response.model": "scripted",
        }
    ]


@pytest.mark.parametrize("beside", [False, True], ids=["alone", "beside another wrapper"])
async def test_the_time_of_the_first_chunk_comes_with_the_response(
    http: Pipeline, beside: bool
) -> None:
    model = ScriptedModel("several chunks", chunk=4, delay=0.005)
    agent = Agent(model, telemetry=http.telemetry())
    if beside:
        timed(agent)
    await agent.chat("hi")
    received = http.flush()
    span = received.span("chat scripted")
    first = span.attributes["gen_ai.response.time_to_first_chunk"]
    assert 0 < first < (span.end - span.start) / 1e9
    assert received.metrics["gen_ai.client.operation.time_to_first_chunk"].sum == first
    each = received.metrics["gen_ai.client.operation.time_per_output_chunk"]
    assert 0 < each.sum < (span.end - span.start) / 1e9


async def test_an_answer_from_a_cache_has_no_time_of_a_first_chunk(http: Pipeline) -> None:
    kept = ModelResponse.of("kept").replace(timing=Timing(first_chunk=0.5, duration=1.0, chunks=2))

    async def cache(ctx: Any, proceed: Any) -> ModelResponse:
        return kept

    agent = Agent(ScriptedModel(), telemetry=http.telemetry(), hooks={"aroundRequest": cache})
    await agent.chat("hi")
    received = http.flush()
    assert received.tree() == ["invoke_agent agent"]  # no model was asked
    assert "gen_ai.client.operation.time_to_first_chunk" not in received.metrics


# ── events ──────────────────────────────────────────────────────────────────────────────────


async def test_each_attempt_that_failed_is_an_event(otlp: Pipeline) -> None:
    agent = Agent(
        ScriptedModel(Turn(fail=ConnectionError("down")), "back again"), telemetry=otlp.telemetry()
    )

    async def retry(ctx: Any, proceed: Any) -> Any:
        try:
            return await proceed()
        except ConnectionError:
            return await proceed()

    agent.add_hook("aroundRequest", retry)
    await agent.chat("hi")
    received = otlp.flush()
    (event,) = received.events
    assert event.event_name == "gen_ai.client.operation.exception"
    assert (event.severity_number, event.severity_text) == (13, "WARN")
    assert attributes_of(event.attributes) == {
        "gen_ai.operation.name": "chat",
        "gen_ai.provider.name": "scripted",
        "gen_ai.request.model": "scripted",
        "exception.type": "ConnectionError",
    }
    span = received.span("chat scripted")
    assert (event.trace_id, event.span_id) == (span.trace_id, span.span_id)


async def test_a_failed_call_is_an_event_where_no_other_hook_stands(http: Pipeline) -> None:
    agent = Agent(ScriptedModel(Turn(fail=ConnectionError("down"))), telemetry=http.telemetry())
    with pytest.raises(ConnectionError):
        await agent.chat("hi")
    (event,) = http.flush().events
    assert attributes_of(event.attributes)["exception.type"] == "ConnectionError"


async def test_a_chat_that_went_well_has_no_event(http: Pipeline) -> None:
    await Agent(ScriptedModel("hi"), telemetry=http.telemetry()).chat("hi")
    assert http.flush().events == []


@pytest.mark.parametrize("said", ["true", "TRUE"])
async def test_the_details_of_each_call_are_an_event_where_it_is_asked_for(
    http: Pipeline, monkeypatch: pytest.MonkeyPatch, said: str
) -> None:
    monkeypatch.setenv("OTEL_INSTRUMENTATION_GENAI_EMIT_EVENT", said)
    await Agent(ScriptedModel("a secret"), telemetry=http.telemetry()).chat("hi")
    received = http.flush()
    (event,) = received.events
    assert event.event_name == "gen_ai.client.inference.operation.details"
    assert event.severity_number == 5
    attributes = attributes_of(event.attributes)
    assert attributes["gen_ai.response.finish_reasons"] == ["stop"]
    assert "gen_ai.output.messages" not in attributes
    assert b"a secret" not in received.raw
