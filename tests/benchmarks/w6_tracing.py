"""W6: what tracing adds to an iteration of W2, with OpenTelemetry's SDK and without one.

The SDK has a simple processor and an exporter that keeps nothing. The limit is the loop written by
hand with the same spans and attributes, so that it is the SDK's own price that is taken off.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Iterator, Sequence
from typing import Any

from opentelemetry.metrics import NoOpMeterProvider
from opentelemetry.sdk.metrics import MeterProvider as SdkMeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor, SpanExporter, SpanExportResult
from opentelemetry.trace import SpanKind, Tracer, set_span_in_context

from hookline import Agent
from hookline.otel import Telemetry

from . import byhand, ours
from .measure import Job, Options, Row, interleaved, job, micros, ours_row

NAME = "W6"
CALLS = 50
CHATS = 4
SPANS = 2 * CALLS + 2  # an agent, its model calls and its tool calls
TARGET = 60.0
# The attributes that ours have, too.
AGENT = {"gen_ai.operation.name": "invoke_agent", "gen_ai.agent.name": "agent"}
MODEL: dict[str, Any] = {
    "gen_ai.operation.name": "chat",
    "gen_ai.provider.name": "unknown",
    "gen_ai.request.model": "Scripted",
    "gen_ai.request.stream": True,
}
TOOL = {
    "gen_ai.operation.name": "execute_tool",
    "gen_ai.tool.name": "add",
    "gen_ai.tool.type": "function",
    "gen_ai.tool.description": "Add two numbers.",
    "gen_ai.agent.name": "agent",
}


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


async def traced_stream(
    tracer: Tracer, script: Sequence[Sequence[byhand.Chunk]], tools: byhand.Tools
) -> AsyncIterator[byhand.Event]:
    """The limit's loop with a span around the chat, each model call and each tool call."""
    history: list[byhand.Entry] = [byhand.user()]
    root = tracer.start_span("invoke_agent agent", attributes=AGENT)
    inside = set_span_in_context(root)
    step = 0
    while True:
        said: list[str] = []
        wanted: list[byhand.CallChunk] = []
        span = tracer.start_span(
            "chat Scripted",
            context=inside,
            kind=SpanKind.CLIENT,
            attributes={**MODEL, "hookline.iteration": step},
        )
        async for chunk in byhand.scripted(script, 1, history):
            if isinstance(chunk, str):
                said.append(chunk)
                yield "text", chunk
            else:
                wanted.append(chunk)
        span.set_attributes({"gen_ai.response.finish_reasons": ("stop",)})
        span.end()
        history.append({"role": "assistant", "content": "".join(said), "tool_calls": wanted})
        if not wanted:
            root.end()
            return
        for id, name, arguments in wanted:
            span = tracer.start_span(
                f"execute_tool {name}",
                context=inside,
                attributes={**TOOL, "gen_ai.tool.call.id": id, "hookline.iteration": step},
            )
            value = await tools[name](**json.loads(arguments))
            span.end()
            history.append({"role": "tool", "tool_call_id": id, "content": str(value)})
            yield "result", value
        step += 1


async def traced_by_hand(
    tracer: Tracer, script: Sequence[Sequence[byhand.Chunk]], tools: byhand.Tools
) -> int:
    """One such chat, all read; gives the number of finished calls."""
    done = 0
    async for kind, _ in traced_stream(tracer, script, tools):
        done += kind == "result"
    return done


def added(on: Sequence[float], off: Sequence[float]) -> list[float]:
    """What each sample with tracing took more than the one without."""
    return [more - less for more, less in zip(on, off, strict=True)]


def rows(options: Options) -> Iterator[Row]:
    times = options.times(15)
    counter, script = byhand.Counter(), byhand.script(CALLS)
    tools: byhand.Tools = {"add": counter.add}
    tracers, exporter = provider()
    meters = SdkMeterProvider([InMemoryMetricReader()], shutdown_on_exit=False)
    tracer = tracers.get_tracer("by hand")

    def mine(telemetry: Telemetry | None) -> Job:
        agent: Agent[Any] = Agent(
            ours.Scripted(CALLS), tools=[counter.add], max_steps=CALLS + 1, telemetry=telemetry
        )
        return job(lambda: ours.read_calls(agent), CHATS, CALLS)

    jobs = [
        job(lambda: byhand.read_calls(script, [], tools), CHATS, CALLS),
        job(lambda: traced_by_hand(tracer, script, tools), CHATS, CALLS),
        mine(None),
        mine(Telemetry(tracer_provider=tracers, meter_provider=NoOpMeterProvider())),
        mine(Telemetry(tracer_provider=tracers, meter_provider=meters)),
        mine(Telemetry()),
    ]
    samples = asyncio.run(interleaved(jobs, times))
    assert exporter.spans == 3 * SPANS * CHATS * (times + 1), exporter.spans
    plain, traced, off, on, metered, silent = [micros(each, CHATS * CALLS) for each in samples]
    limit = added(traced, plain)
    what = "added to a tool iteration by"
    yield ours_row(NAME, f"{what} traces", limit, added(on, off), target=TARGET)
    yield ours_row(NAME, f"{what} traces and metrics", limit, added(metered, off))
    yield ours_row(NAME, f"{what} telemetry without an SDK", None, added(silent, off), target=2.0)
