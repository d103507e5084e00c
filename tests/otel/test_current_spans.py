"""The current span around hooks: wrappers open spans of their own, in any order around ours."""

from __future__ import annotations

from itertools import combinations_with_replacement
from typing import Any

import pytest
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import get_current_span

from hookline import Agent
from hookline.errors import OverloadedError
from hookline.otel import Telemetry
from hookline.testing import ScriptedModel, Turn, call

AROUND = ("aroundChat", "aroundRequest", "aroundToolCall")
BESIDE = ("onChatStart", "preChat", "preRequest", "onResponse", "preToolCall", "onToolCallResult",
          "onStep", "preStop", "onChatDone", "onChatEnd")  # fmt: skip
PLACES = (2_000_000, 1, 0, -2_000_000)  # outside of our wrappers, between them, inside of them


def current() -> str:
    return getattr(get_current_span(), "name", "-")


async def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


async def played(places: tuple[int, ...], *, retries: bool) -> tuple[list[Any], list[str]]:
    """The spans of a chat with wrappers at these places, and where a hook left another span."""
    spans = InMemorySpanExporter()
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(spans))
    tracer = provider.get_tracer("user")
    wrong: list[str] = []
    turns = [Turn(fail=OverloadedError("busy"))] if retries else []
    model = ScriptedModel(
        *turns, [call("add", a=1, b=2), call("add", a=3, b=4)], call("add", a=5, b=6), "Done."
    )
    telemetry = Telemetry(tracer_provider=provider)
    agent: Agent[Any] = Agent(model, name="sums", tools=[add], telemetry=telemetry)

    def wrapper(point: str, place: int) -> Any:
        async def wraps(ctx: Any, proceed: Any) -> Any:
            before = current()
            with tracer.start_as_current_span(f"{point} {place}"):
                try:
                    response = await proceed()
                except OverloadedError:
                    response = await proceed()
                if current() != f"{point} {place}":
                    wrong.append(f"inside of {point} {place}: {current()}")
            if current() != before:
                wrong.append(f"after {point} {place}: {current()}, not {before}")
            return response

        return wraps

    for point in AROUND:
        for place in places:
            agent.add_hook(point, wrapper(point, place), priority=place)
    around: list[str] = []

    def looks(point: str) -> Any:
        def look(ctx: Any) -> None:
            around.append(current())

        return look

    for point in BESIDE:
        agent.add_hook(point, looks(point))
    assert (await agent.chat("Go.")).text == "Done."
    if len(set(around)) > 1:
        wrong.append(f"beside: {sorted(set(around))}")
    return list(spans.get_finished_spans()), wrong


@pytest.mark.parametrize("retries", [False, True], ids=["once", "retried"])
@pytest.mark.parametrize(
    "places",
    [order for n in (1, 2, 3) for order in combinations_with_replacement(PLACES, n)],
    ids=lambda places: " ".join(map(str, places)),
)
async def test_after_any_wrapper_the_current_span_is_what_it_was(
    places: tuple[int, ...], retries: bool
) -> None:
    spans, wrong = await played(places, retries=retries)
    assert wrong == []
    assert current() == "-"
    by_id = {span.context.span_id: span for span in spans}
    for span in spans:
        if span.parent is not None:
            parent = by_id[span.parent.span_id]
            assert parent.end_time >= span.start_time, (parent.name, span.name)


@pytest.mark.parametrize(
    ("semconv", "schema"),
    [("v1.41", "https://opentelemetry.io/schemas/1.41.0"), ("genai-v0.1.0", "")],
)
async def test_spans_carry_the_schema_url_of_their_conventions(semconv: Any, schema: str) -> None:
    spans = InMemorySpanExporter()
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(spans))
    telemetry = Telemetry(tracer_provider=provider, semconv=semconv)
    await Agent(ScriptedModel("Hello."), telemetry=telemetry).chat("Hi.")
    assert {span.instrumentation_scope.schema_url for span in spans.get_finished_spans()} == {
        schema
    }
