"""Metrics as Prometheus has them: renamed by its rules for OpenTelemetry, and served to be scraped.

The rules are those of Prometheus' own OTLP receiver and of OpenTelemetry's exporter: what is no
letter or digit is `_`, a unit is a suffix unless it is an annotation in braces, a counter ends in
`_total`, and a histogram is three series.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, NamedTuple

from opentelemetry.sdk.metrics.export import InMemoryMetricReader

UNITS = {"s": "seconds"}


class Sample(NamedTuple):
    """One series and its value."""

    name: str
    labels: dict[str, str]
    value: float


def named(text: str) -> str:
    """A name as Prometheus takes it."""
    return re.sub(r"[^A-Za-z0-9_]+", "_", text)


def samples(reader: InMemoryMetricReader) -> list[Sample]:
    """All series that hookline has written."""
    data = reader.get_metrics_data()
    metrics = [
        metric
        for resource in (data.resource_metrics if data is not None else ())
        for scope in resource.scope_metrics
        if scope.scope.name in ("hookline", "hookline.durable")
        for metric in scope.metrics
    ]
    return [sample for metric in metrics for sample in _of(metric)]


def _of(metric: Any) -> Iterator[Sample]:
    name = named(metric.name)
    if not metric.unit.startswith("{"):
        name = f"{name}_{UNITS[metric.unit]}"
    for point in metric.data.data_points:
        labels = {named(key): str(value) for key, value in point.attributes.items()}
        if not hasattr(point, "bucket_counts"):
            is_counter = hasattr(metric.data, "is_monotonic")
            yield Sample(f"{name}_total" if is_counter else name, labels, point.value)
            continue
        count = 0
        bounds = [*map(str, point.explicit_bounds), "+Inf"]
        for bound, more in zip(bounds, point.bucket_counts, strict=True):
            count += more
            yield Sample(f"{name}_bucket", {**labels, "le": bound}, count)
        yield Sample(f"{name}_sum", labels, point.sum)
        yield Sample(f"{name}_count", labels, point.count)


@contextmanager
def served(reader: InMemoryMetricReader) -> Iterator[int]:
    """Serve them in Prometheus' text format; gives the port."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            body = "".join(map(_line, samples(reader))).encode()
            self.send_response(200)
            self.send_header("content-type", "text/plain; version=0.0.4")
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True)
    thread.start()
    try:
        yield server.server_address[1]
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def _line(sample: Sample) -> str:
    labels = ",".join(f'{name}="{value}"' for name, value in sample.labels.items())
    return f"{sample.name}{{{labels}}} {float(sample.value)!r}\n"
