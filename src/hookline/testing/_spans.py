"""`spans()`: collect the spans of chats in a test, and draw them as a tree."""

from __future__ import annotations

from collections.abc import Collection, Generator, Iterator, Mapping
from contextlib import contextmanager
from importlib import import_module
from typing import Any, NamedTuple

from hookline.errors import UsageError


class TracedEvent(NamedTuple):
    """An event of a span."""

    name: str
    """The event's name, such as `hookline.retry`."""
    attributes: Mapping[str, Any]
    """The event's attributes."""


class TracedSpan(NamedTuple):
    """A finished span."""

    name: str
    """The span's name, such as `chat gpt-5`."""
    attributes: Mapping[str, Any]
    """The span's attributes."""
    events: tuple[TracedEvent, ...]
    """The events of the span."""
    error: str | None
    """The span's `error.type`; None if the span succeeded."""
    id: int
    """The span's id, which is the `parent` of the span's children."""
    parent: int | None
    """The id of the parent span; None for a root span."""
    start: int
    """The start time, in nanoseconds."""


class Spans:
    """The spans that have finished since `spans()` was entered."""

    def __init__(self, telemetry: Any, exporter: Any) -> None:
        self.telemetry: Any = telemetry
        """The telemetry to pass to an agent that sets its own: `Agent(telemetry=...)`."""
        self._exporter = exporter

    @property
    def all(self) -> list[TracedSpan]:
        """The spans, in the order in which they began."""
        spans = [_read(span) for span in self._exporter.get_finished_spans()]
        return sorted(spans, key=lambda span: span.start)

    def by_name(self, name: str) -> list[TracedSpan]:
        """The spans with this name."""
        return [span for span in self.all if span.name == name]

    def tree(self, *attributes: str, events: bool = False) -> str:
        """Draw the spans with one line for each span; children are indented below their parents.

        A line begins with the span's name. For a failed span, an exclamation mark and the
        `error.type` follow. The line ends with the span's values of the given `attributes`. With
        `events`, the names of the span's events follow on separate lines.
        """
        return "\n".join(_lines(self.all, None, 0, attributes, events))

    def __len__(self) -> int:
        return len(self.all)


@contextmanager
def spans(**options: Any) -> Generator[Spans, None, None]:
    """Collect the spans of all chats that begin inside the block.

    Agents without their own telemetry, and the sub-agents of these agents, are traced. `options`
    are the options of `hookline.otel.Telemetry`. Nothing global is changed. Raises UsageError
    for `tracer_provider=`, and if OpenTelemetry's SDK is not installed.
    """
    try:
        sdk: Any = import_module("opentelemetry.sdk.trace")
        export: Any = import_module("opentelemetry.sdk.trace.export")
        memory: Any = import_module("opentelemetry.sdk.trace.export.in_memory_span_exporter")
    except ImportError as exc:
        raise UsageError(
            'spans() needs OpenTelemetry\'s SDK: pip install "hookline[otel]"'
        ) from exc
    if "tracer_provider" in options:
        raise UsageError(
            f"spans(tracer_provider={options['tracer_provider']!r}) would collect nothing, because "
            "spans() has a provider of its own; leave tracer_provider= out"
        )
    exporter = memory.InMemorySpanExporter()
    provider = sdk.TracerProvider(shutdown_on_exit=False)
    provider.add_span_processor(export.SimpleSpanProcessor(exporter))
    silent: Any = import_module("opentelemetry.metrics").NoOpMeterProvider()
    otel: Any = import_module("hookline.otel")
    telemetry = otel.Telemetry(**{"tracer_provider": provider, "meter_provider": silent, **options})
    with otel.using(telemetry):
        yield Spans(telemetry, exporter)


def _read(span: Any) -> TracedSpan:
    attributes = dict(span.attributes or {})
    return TracedSpan(
        name=span.name,
        attributes=attributes,
        events=tuple(TracedEvent(e.name, dict(e.attributes or {})) for e in span.events),
        error=attributes.get("error.type"),
        id=span.context.span_id,
        parent=None if span.parent is None else span.parent.span_id,
        start=span.start_time,
    )


def _lines(
    spans: list[TracedSpan],
    parent: int | None,
    depth: int,
    attributes: Collection[str],
    events: bool,
) -> Iterator[str]:
    ids = {span.id for span in spans}
    for span in spans:
        if (span.parent if span.parent in ids else None) != parent:
            continue
        values = [
            f"{name}={span.attributes[name]!r}" for name in attributes if name in span.attributes
        ]
        failed = [] if span.error is None else [f"!{span.error}"]
        yield "  " * depth + " ".join([span.name, *failed, *values])
        for event in span.events if events else ():
            yield "  " * (depth + 1) + f"· {event.name}"
        yield from _lines(spans, span.id, depth + 1, attributes, events)
