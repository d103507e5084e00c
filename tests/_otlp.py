"""A receiver of OTLP, over HTTP and over gRPC, that keeps every request as it came.

What the tests look at has passed the SDK's own exporters and a socket. `raw` is all that was sent,
byte for byte, for those tests which ask what was never sent.
"""

from __future__ import annotations

import gzip
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import grpc
from opentelemetry.metrics import NoOpMeterProvider
from opentelemetry.proto.collector.logs.v1 import logs_service_pb2 as logs
from opentelemetry.proto.collector.logs.v1 import logs_service_pb2_grpc as logs_grpc
from opentelemetry.proto.collector.metrics.v1 import metrics_service_pb2 as metrics
from opentelemetry.proto.collector.metrics.v1 import metrics_service_pb2_grpc as metrics_grpc
from opentelemetry.proto.collector.trace.v1 import trace_service_pb2 as traces
from opentelemetry.proto.collector.trace.v1 import trace_service_pb2_grpc as traces_grpc
from opentelemetry.sdk._logs import LoggerProvider
from opentelemetry.sdk._logs.export import BatchLogRecordProcessor
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import PeriodicExportingMetricReader
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from tests._conventions import check

from hookline.otel import Telemetry

KINDS = {1: "INTERNAL", 2: "SERVER", 3: "CLIENT"}
STATUSES = {0: "UNSET", 1: "OK", 2: "ERROR"}


# ── what came, decoded ──────────────────────────────────────────────────────────────────────


def value_of(value: Any) -> Any:
    kind = value.WhichOneof("value")
    if kind is None:
        return None
    if kind == "array_value":
        return [value_of(each) for each in value.array_value.values]
    if kind == "kvlist_value":
        return attributes_of(value.kvlist_value.values)
    return getattr(value, kind)


def attributes_of(pairs: Any) -> dict[str, Any]:
    return {pair.key: value_of(pair.value) for pair in pairs}


@dataclass
class Event:
    name: str
    attributes: dict[str, Any]


@dataclass
class Span:
    name: str
    kind: str
    trace_id: bytes
    span_id: bytes
    parent_id: bytes
    start: int
    end: int
    status: str
    status_text: str
    attributes: dict[str, Any]
    events: list[Event]
    links: list[tuple[bytes, dict[str, Any]]]
    scope: str


@dataclass
class Metric:
    name: str
    unit: str
    points: list[Any]

    def labels(self) -> list[dict[str, Any]]:
        return [attributes_of(point.attributes) for point in self.points]

    @property
    def count(self) -> int:
        return sum(point.count for point in self.points)

    @property
    def sum(self) -> float:
        return sum(point.sum for point in self.points)

    @property
    def bounds(self) -> list[float]:
        return list(self.points[0].explicit_bounds)


@dataclass
class Received:
    """Everything that came, as it came; asked for, it is decoded."""

    requests: list[tuple[str, bytes]] = field(default_factory=lambda: list[tuple[str, bytes]]())
    headers: list[str] = field(default_factory=lambda: list[str]())
    paths: list[str] = field(default_factory=lambda: list[str]())  # over HTTP

    @property
    def raw(self) -> bytes:
        return b"\n".join([body for _, body in self.requests]) + "\n".join(self.headers).encode()

    def of(self, signal: str, kind: Any) -> Iterator[Any]:
        for name, body in self.requests:
            if name == signal:
                yield kind.FromString(body)

    @property
    def spans(self) -> list[Span]:
        """In the order in which they began."""
        found = [
            Span(
                name=span.name,
                kind=KINDS[span.kind],
                trace_id=span.trace_id,
                span_id=span.span_id,
                parent_id=span.parent_span_id,
                start=span.start_time_unix_nano,
                end=span.end_time_unix_nano,
                status=STATUSES[span.status.code],
                status_text=span.status.message,
                attributes=attributes_of(span.attributes),
                events=[Event(e.name, attributes_of(e.attributes)) for e in span.events],
                links=[(link.span_id, attributes_of(link.attributes)) for link in span.links],
                scope=scope.scope.name,
            )
            for request in self.of("traces", traces.ExportTraceServiceRequest)
            for resource in request.resource_spans
            for scope in resource.scope_spans
            for span in scope.spans
        ]
        return sorted(found, key=lambda span: span.start)

    @property
    def ours(self) -> list[Span]:
        """Those that hookline made."""
        return [span for span in self.spans if span.scope == "hookline"]

    def span(self, name: str) -> Span:
        (found,) = [span for span in self.spans if span.name == name]
        return found

    def tree(self) -> list[str]:
        """The spans as an indented list, children below their parents."""
        spans = self.spans
        ids = {span.span_id for span in spans}

        def lines(parent: bytes | None, depth: int) -> Iterator[str]:
            for span in spans:
                below = span.parent_id if span.parent_id in ids else None
                if below == parent:
                    yield "  " * depth + span.name
                    yield from lines(span.span_id, depth + 1)

        return list(lines(None, 0))

    @property
    def metrics(self) -> dict[str, Metric]:
        """The last state of each."""
        found: dict[str, Metric] = {}
        for request in self.of("metrics", metrics.ExportMetricsServiceRequest):
            for resource in request.resource_metrics:
                for scope in resource.scope_metrics:
                    if scope.scope.name != "hookline":
                        continue  # the SDK measures itself, too
                    for metric in scope.metrics:
                        kind = metric.WhichOneof("data")
                        points = list(getattr(metric, kind).data_points)
                        found[metric.name] = Metric(metric.name, metric.unit, points)
        return found

    @property
    def events(self) -> list[Any]:
        return [
            record
            for request in self.of("logs", logs.ExportLogsServiceRequest)
            for resource in request.resource_logs
            for scope in resource.scope_logs
            for record in scope.log_records
        ]

    @property
    def resources(self) -> list[dict[str, Any]]:
        return [
            attributes_of(resource.resource.attributes)
            for request in self.of("traces", traces.ExportTraceServiceRequest)
            for resource in request.resource_spans
        ]


# ── the servers ─────────────────────────────────────────────────────────────────────────────


@contextmanager
def http_receiver() -> Iterator[tuple[str, Received]]:
    """OTLP over HTTP; gives the endpoint and what comes."""
    received = Received()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["content-length"]))
            if self.headers.get("content-encoding") == "gzip":
                body = gzip.decompress(body)
            received.headers.append(str(self.headers))
            received.paths.append(self.path)
            received.requests.append((self.path.rpartition("/")[2], body))
            self.send_response(200)
            self.send_header("content-type", "application/x-protobuf")
            self.send_header("content-length", "0")
            self.end_headers()

        def log_message(self, format: str, *args: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}", received
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


@contextmanager
def grpc_receiver() -> Iterator[tuple[str, Received]]:
    """OTLP over gRPC."""
    received = Received()

    def keep(signal: str, response: Any) -> Any:
        def export(self: object, request: Any, context: grpc.ServicerContext) -> Any:
            received.headers.append(str(context.invocation_metadata()))
            received.requests.append((signal, request.SerializeToString()))
            return response()

        return export

    class Traces(traces_grpc.TraceServiceServicer):
        Export = keep("traces", traces.ExportTraceServiceResponse)

    class Metrics(metrics_grpc.MetricsServiceServicer):
        Export = keep("metrics", metrics.ExportMetricsServiceResponse)

    class Logs(logs_grpc.LogsServiceServicer):
        Export = keep("logs", logs.ExportLogsServiceResponse)

    server = grpc.server(ThreadPoolExecutor(4))
    traces_grpc.add_TraceServiceServicer_to_server(Traces(), server)
    metrics_grpc.add_MetricsServiceServicer_to_server(Metrics(), server)
    logs_grpc.add_LogsServiceServicer_to_server(Logs(), server)
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    try:
        yield f"http://127.0.0.1:{port}", received
    finally:
        server.stop(None).wait()


RECEIVERS = {"http/protobuf": http_receiver, "grpc": grpc_receiver}


# ── the way there ───────────────────────────────────────────────────────────────────────────


class Pipeline:
    """SDK providers that export to a receiver, and the telemetry of an agent that uses them."""

    def __init__(self, protocol: str, endpoint: str, received: Received) -> None:
        exporters = _exporters(protocol, endpoint)
        self.received = received
        self.semconv = "v1.41"
        self.tracers = TracerProvider(shutdown_on_exit=False)
        self.tracers.add_span_processor(BatchSpanProcessor(exporters[0]))
        reader = PeriodicExportingMetricReader(exporters[1], export_interval_millis=3_600_000)
        self.meters = MeterProvider([reader], shutdown_on_exit=False)
        self.loggers = LoggerProvider(shutdown_on_exit=False)
        self.loggers.add_log_record_processor(BatchLogRecordProcessor(exporters[2]))

    def telemetry(self, **options: Any) -> Telemetry:
        self.semconv = options.get("semconv", self.semconv)
        return Telemetry(
            tracer_provider=self.tracers,
            meter_provider=self.meters,
            logger_provider=self.loggers,
            **options,
        )

    def flush(self) -> Received:
        """What has come, once all was sent."""
        for provider in (self.tracers, self.meters, self.loggers):
            assert provider.force_flush(10_000)
        return self.received

    def close(self) -> None:
        for provider in (self.tracers, self.meters, self.loggers):
            provider.shutdown()


def _exporters(protocol: str, endpoint: str) -> tuple[Any, Any, Any]:
    if protocol == "grpc":
        from opentelemetry.exporter.otlp.proto.grpc._log_exporter import OTLPLogExporter
        from opentelemetry.exporter.otlp.proto.grpc.metric_exporter import OTLPMetricExporter
        from opentelemetry.exporter.otlp.proto.grpc.trace_exporter import OTLPSpanExporter

        return (
            OTLPSpanExporter(endpoint=endpoint),
            OTLPMetricExporter(endpoint=endpoint),
            OTLPLogExporter(endpoint=endpoint),
        )
    from opentelemetry.exporter.otlp.proto.http._log_exporter import OTLPLogExporter as Logs
    from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter as Metrics
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter as Spans

    return (
        Spans(endpoint=f"{endpoint}/v1/traces"),
        Metrics(endpoint=f"{endpoint}/v1/metrics"),
        Logs(endpoint=f"{endpoint}/v1/logs"),
    )


@contextmanager
def pipeline(protocol: str = "http/protobuf") -> Iterator[Pipeline]:
    with RECEIVERS[protocol]() as (endpoint, received):
        made = Pipeline(protocol, endpoint, received)
        try:
            yield made
        finally:
            made.close()
        check(received.ours, made.semconv)


def only_traces(provider: TracerProvider) -> Telemetry:
    return Telemetry(tracer_provider=provider, meter_provider=NoOpMeterProvider())
