"""W6: what tracing adds to an iteration of W2, with OpenTelemetry's SDK and without one.

The SDK has a simple processor and an exporter that keeps nothing. The limit is the loop written by
hand with the same spans and attributes, so that it is the SDK's own price that is taken off.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Sequence
from typing import Any

from opentelemetry.metrics import MeterProvider, NoOpMeterProvider
from opentelemetry.sdk.metrics import MeterProvider as SdkMeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor, SpanExporter, SpanExportResult
from opentelemetry.trace import NoOpTracerProvider, SpanKind, Tracer, set_span_in_context

from hookline import Agent
from hookline.otel import Telemetry

from . import byhand, ours
from .measure import Options, Row, interleaved, job, micros, ours_row

NAME = "W6"
CALLS = 50
CHATS = 4
SPANS = 2 * CALLS + 2  # an agent, its model calls and its tool calls


class Counting(SpanExporter):
    """Counts what is exported, and keeps nothing."""

    def __init__(self) -> None:
        self.spans = 0

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        self.spans += len(spans)
        return SpanExportResult.SUCCESS


def provider() -> tuple[TracerProvider, Counting]:
    exporter = Counting()
    made = TracerProvider(shutdown_on_exit=False)
    made.add_span_processor(SimpleSpanProcessor(exporter))
    return made, exporter


def agent(tool: byhand.Counter, telemetry: Telemetry | None) -> Agent[Any]:
    made = ours.tool_agent(tool, CALLS)
    return (
        Agent(ours.Scripted(CALLS), tools=[tool.add], max_steps=CALLS + 1, telemetry=telemetry)
        if telemetry is not None
        else made
    )


async def traced_by_hand(tracer: Tracer, script: Any, tools: byhand.Tools) -> int:
    """The loop of W2 with a span around the chat, each model call and each tool call."""
    root = tracer.start_span(
        "invoke_agent agent",
        attributes={"gen_ai.operation.name": "invoke_agent", "gen_ai.agent.name": "agent"},
    )
    inside = set_span_in_context(root)
    history: list[byhand.Entry] = [("user", "go")]
    step = 0
    while True:
        said: list[str] = []
        wanted: list[byhand.CallChunk] = []
        span = tracer.start_span(
            "chat scripted",
            context=inside,
            kind=SpanKind.CLIENT,
            attributes={
                "gen_ai.operation.name": "chat",
                "gen_ai.provider.name": "scripted",
                "gen_ai.request.model": "scripted",
                "gen_ai.request.stream": True,
                "iteration": step,
            },
        )
        async for chunk in byhand.scripted(script, 1, history):
            if isinstance(chunk, str):
                said.append(chunk)
            else:
                wanted.append(chunk)
        span.set_attributes({"gen_ai.response.finish_reasons": ("stop",)})
        span.end()
        history.append(("assistant", "".join(said), wanted))
        if not wanted:
            root.end()
            return len(history)
        for id, name, arguments in wanted:
            span = tracer.start_span(
                f"execute_tool {name}",
                context=inside,
                attributes={
                    "gen_ai.operation.name": "execute_tool",
                    "gen_ai.tool.name": name,
                    "gen_ai.tool.type": "function",
                    "gen_ai.agent.name": "agent",
                    "gen_ai.tool.call.id": id,
                    "iteration": step,
                },
            )
            value = await tools[name](**byhand.json.loads(arguments))
            span.end()
            history.append(("tool", id, str(value)))
        step += 1


def rows(options: Options) -> Iterator[Row]:
    yield added(options, "added to a tool iteration by traces", target=60.0)
    yield added(options, "added by traces and metrics", metrics=True)
    yield silent(options)
