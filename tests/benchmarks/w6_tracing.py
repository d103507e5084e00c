"""W6: what tracing adds to an iteration of W2, with OpenTelemetry's SDK and without one.

The SDK has a simple processor and an exporter that keeps nothing. One limit is a loop written by
hand that does the same with the bare SDK (`traced.py`); before anything is measured, what both have
written is compared.

A chat is more code than that loop, and the same SDK is slower in it: caches and branch predictor of
the CPU hold less of each. So the limit that has a target is in the chat, where the same spans are
made by hand, by a model and a tool. The bytecodes tell whose code it is that runs; they do not
depend on the load of the machine.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from typing import Any

from opentelemetry.metrics import NoOpMeterProvider
from opentelemetry.sdk.metrics import MeterProvider as SdkMeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor, SpanExporter, SpanExportResult
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.sdk.trace.sampling import ALWAYS_OFF, ParentBased, Sampler

from hookline import Agent, Limits
from hookline.otel import Telemetry

from . import byhand, ours
from .bytecodes import count
from .measure import Job, Options, Row, Work, interleaved, job, micros, ours_row, ratio_row
from .traced import Histograms, inside, traced_by_hand

NAME = "W6"
CALLS = 50
CHATS = 4
SPANS = 2 * CALLS + 2  # an agent, its model calls and its tool calls
TARGET = 60.0  # µs
RATIO = 1.5  # of what is added, to what the same spans by hand add to the same chat


class Counting(SpanExporter):
    """Counts what is exported, and keeps nothing."""

    def __init__(self) -> None:
        self.spans = 0

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        self.spans += len(spans)
        return SpanExportResult.SUCCESS


def provider(exporter: SpanExporter, sampler: Sampler | None = None) -> TracerProvider:
    made = TracerProvider(sampler=sampler, shutdown_on_exit=False)
    made.add_span_processor(SimpleSpanProcessor(exporter))
    return made


# ── what both write ───────────────────────────────────────────────────────────────────────────


def agent_of(tool: byhand.Counter, telemetry: Telemetry | None, calls: int = CALLS) -> Agent[Any]:
    return Agent(
        ours.Scripted(calls), tools=[tool.add], limits=Limits(steps=calls + 1), telemetry=telemetry
    )


def written(spans: Sequence[ReadableSpan], reader: InMemoryMetricReader) -> tuple[Any, Any]:
    """The spans below the agent's, and the metrics' points of model and tool calls."""
    found: list[Any] = []
    for span in spans:
        if span.parent is not None:
            inner = dict(span.attributes or {})
            inner.pop("gen_ai.response.time_to_first_chunk", None)
            inner.pop("hookline.prefix", None)  # how much of the request a cache may have
            found.append((span.name, span.kind, sorted(inner.items())))
    data = reader.get_metrics_data()
    points: list[Any] = [
        (metric.name, getattr(point, "count", None), sorted((point.attributes or {}).items()))
        for resource in (data.resource_metrics if data is not None else ())
        for scope in resource.scope_metrics
        for metric in scope.metrics
        for point in metric.data.data_points
        if "invoke_agent" not in metric.name
    ]
    return found, sorted(points)


async def check_same() -> None:
    """Both write the same spans and metrics for an iteration."""
    both: list[Any] = []
    tool = byhand.Counter()
    for by_hand in (True, False):
        exporter, reader = InMemorySpanExporter(), InMemoryMetricReader()
        tracers = provider(exporter)
        meters = SdkMeterProvider([reader], shutdown_on_exit=False)
        if by_hand:
            to = Histograms(meters.get_meter("by hand"))
            tools: byhand.Tools = {"add": tool.add}
            await traced_by_hand(tracers.get_tracer("by hand"), byhand.script(3), tools, to)
        else:
            telemetry = Telemetry(tracer_provider=tracers, meter_provider=meters)
            await ours.read_calls(agent_of(tool, telemetry, 3))
        both.append(written(exporter.get_finished_spans(), reader))
    assert len(both[0][0]) == 7, both[0]
    assert both[0] == both[1], both


# ── the rows ────────────────────────────────────────────────────────────────────────────────


def added(on: Sequence[float], off: Sequence[float]) -> list[float]:
    """What each sample with tracing took more than the one without."""
    return [more - less for more, less in zip(on, off, strict=True)]


def rows(options: Options) -> Iterator[Row]:
    asyncio.run(check_same())
    times = options.times(15)
    counter, script = byhand.Counter(), byhand.script(CALLS)
    tools: byhand.Tools = {"add": counter.add}
    exporter = Counting()
    tracers = provider(exporter)
    meters = SdkMeterProvider([InMemoryMetricReader()], shutdown_on_exit=False)
    tracer, to = tracers.get_tracer("by hand"), Histograms(meters.get_meter("by hand"))

    dropping = provider(exporter, ParentBased(ALWAYS_OFF))
    unread = NoOpMeterProvider()

    def mine(telemetry: Telemetry | None) -> Work:
        agent = agent_of(counter, telemetry)
        return lambda: ours.read_calls(agent)

    works: list[Work] = [
        lambda: byhand.read_calls(script, [], tools),
        lambda: traced_by_hand(tracer, script, tools),
        lambda: traced_by_hand(tracer, script, tools, to),
        mine(None),
        inside(tracer, CALLS),
        mine(Telemetry(tracer_provider=tracers, meter_provider=unread)),
        mine(Telemetry(tracer_provider=tracers, meter_provider=meters)),
        mine(Telemetry(tracer_provider=dropping, meter_provider=unread)),
        mine(Telemetry()),
    ]
    jobs: list[Job] = [job(work, CHATS, CALLS) for work in works]
    samples = asyncio.run(interleaved(jobs, times))
    assert exporter.spans == 5 * SPANS * CHATS * (times + 1), exporter.spans
    hand, *by_hand, off, in_chat, on, metered, dropped, silent = [
        micros(each, CHATS * CALLS) for each in samples
    ]
    traced, measured = [added(each, hand) for each in by_hand]
    spans, ours_on = added(in_chat, off), added(on, off)
    what = "added to a tool iteration by"
    yield ours_row(NAME, f"{what} traces", spans, ours_on, target=TARGET)
    yield ratio_row(
        NAME, "the same against spans by hand in the chat", spans, ours_on, target=RATIO
    )
    yield ours_row(NAME, f"{what} traces, beside the loop by hand", traced, ours_on)
    yield ours_row(NAME, f"{what} traces and metrics", measured, added(metered, off))
    yield ours_row(NAME, f"{what} traces that a sampler drops", None, added(dropped, off))
    yield ours_row(NAME, f"{what} telemetry without an SDK", None, added(silent, off), target=2.0)
    yield from asyncio.run(bytecodes(off=works[3], in_chat=works[4], on=works[5], dropped=works[7]))


WHERE = {
    "/opentelemetry/attributes/": "the SDK's attributes",
    "/opentelemetry/context/": "the API's context",
    "/opentelemetry/": "the rest of the SDK",
    "/hookline/otel/": "hookline.otel",
    "/hookline/_": "the core's wrappers",
    "": "other code",
}


async def bytecodes(*, off: Work, in_chat: Work, on: Work, dropped: Work) -> Iterator[Row]:
    """The bytecodes that traces add to an iteration, in all and by whose they are."""
    without = await count(off, WHERE)
    limit, ours, unsampled = [await count(each, WHERE) for each in (in_chat, on, dropped)]
    for found in (limit, ours, unsampled):
        found.subtract(without)
    what = "bytecodes added by traces"
    both = [[each.total() / CALLS] for each in (limit, ours)]
    rows = [ours_row(NAME, what, *both, unit="")]
    for name in WHERE.values():
        theirs = [limit[name] / CALLS] if limit[name] else None
        rows.append(ours_row(NAME, f"{what}, in {name}", theirs, [ours[name] / CALLS], unit=""))
    for name, each in (
        ("in all", unsampled.total()),
        ("in hookline.otel", unsampled["hookline.otel"]),
    ):
        rows.append(
            ours_row(NAME, f"{what} that a sampler drops, {name}", None, [each / CALLS], unit="")
        )
    return iter(rows)
