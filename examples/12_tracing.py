"""OpenTelemetry traces, sent to a collector, which draws the received spans as a tree.

Needs `pip install 'hookline[otel]'`. This file has a small collector; with
OTEL_EXPORTER_OTLP_ENDPOINT=http://localhost:4318 the traces go to your own collector.
"""

import asyncio
import os
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.trace.v1.trace_pb2 import Span

from hookline import Agent
from hookline.otel import setup
from hookline.testing import ScriptedModel, call

spans: list[Span] = []


class Collector(BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["content-length"]))
        if self.path == "/v1/traces":  # metrics and events come by other paths
            for resource in ExportTraceServiceRequest.FromString(body).resource_spans:
                for scope in resource.scope_spans:
                    spans.extend(scope.spans)
        self.send_response(200)
        self.end_headers()

    def log_message(self, format: str, *args: object) -> None:
        pass


def draw(parent: bytes = b"", depth: int = 0) -> None:
    for span in sorted(spans, key=lambda span: span.start_time_unix_nano):
        if span.parent_span_id == parent:
            ms = (span.end_time_unix_nano - span.start_time_unix_nano) / 1e6
            print(f"{'   ' * depth + span.name:<36}{ms:6.1f} ms")
            draw(span.span_id, depth + 1)


async def main() -> None:
    librarian = Agent(ScriptedModel("Shelf 7.", delay=0.01), name="librarian")
    model = ScriptedModel(call("librarian", input="Dante?"), "It is on shelf 7.", delay=0.01)
    guide = Agent(model, name="guide", tools=[librarian.as_tool()])  # nothing about traces here
    await guide.chat("Where is Dante?")


if "OTEL_EXPORTER_OTLP_ENDPOINT" not in os.environ:
    collector = HTTPServer(("127.0.0.1", 0), Collector)
    threading.Thread(target=collector.serve_forever, daemon=True).start()
    os.environ["OTEL_EXPORTER_OTLP_ENDPOINT"] = f"http://127.0.0.1:{collector.server_port}"
exporting = setup(service_name="library")  # once in a process; the variable says where to
asyncio.run(main())
exporting.shutdown()  # sends what is waiting
draw()
