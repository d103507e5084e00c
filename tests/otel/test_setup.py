"""`setup`, exporters that are broken, and what an agent pays where there is no SDK.

Global providers can be set once in a process, so what sets them runs in one of its own.
"""

from __future__ import annotations

import asyncio
import os
import socket
import subprocess
import sys
import threading
from collections.abc import Sequence
from typing import Any

import pytest
from opentelemetry._logs import LogRecord
from opentelemetry.sdk._logs import LoggerProvider
from opentelemetry.sdk._logs.export import BatchLogRecordProcessor, InMemoryLogRecordExporter
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace import Span as SdkSpan
from opentelemetry.sdk.trace.export import (
    BatchSpanProcessor,
    SimpleSpanProcessor,
    SpanExporter,
    SpanExportResult,
    SpanProcessor,
)
from tests._otlp import RECEIVERS, only_traces

from hookline import Agent
from hookline.errors import UsageError
from hookline.otel import Exporting, Telemetry, setup
from hookline.testing import ScriptedModel, call


def program(code: str, **env: str) -> subprocess.CompletedProcess[str]:
    """Run it in an interpreter whose environment says nothing else of OpenTelemetry."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("OTEL_")}
    return subprocess.run(
        [sys.executable, "-W", "error", "-c", code],
        env={**kept, **env},
        capture_output=True,
        text=True,
        timeout=50,
    )


CHAT = """
import asyncio
from hookline import Agent
from hookline.testing import ScriptedModel, Turn, call

async def add(a: int, b: int) -> int:
    return a + b

agent = Agent(ScriptedModel([call("add", a=1, b=2)], "3"), name="sums", tools=[add])
failing = Agent(ScriptedModel(Turn(fail=ConnectionError("down"))), name="failing")

async def main():
    print((await agent.chat("1 + 2?")).text)
    try:
        await failing.chat("hi")
    except ConnectionError:
        print("failed")

asyncio.run(main())
"""
TREE = [
    "invoke_agent sums",
    "  chat scripted",
    "  execute_tool add",
    "  chat scripted",
    "invoke_agent failing",
    "  chat scripted",
]


# ── one line ────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("protocol", RECEIVERS)
@pytest.mark.parametrize("how", ["arguments", "variables"])
def test_one_line_sends_all_that_there_is(protocol: str, how: str) -> None:
    with RECEIVERS[protocol]() as (endpoint, received):
        if how == "arguments":
            options = f"endpoint={endpoint!r}, protocol={protocol!r}, service_name='shop'"
            options += ", headers={'x-api-key': 'k1'}"
            env: dict[str, str] = {}
        else:
            options = ""
            env = {
                "OTEL_EXPORTER_OTLP_ENDPOINT": endpoint,
                "OTEL_EXPORTER_OTLP_PROTOCOL": protocol,
                "OTEL_EXPORTER_OTLP_HEADERS": "x-api-key=k1",
                "OTEL_SERVICE_NAME": "shop",
                "OTEL_RESOURCE_ATTRIBUTES": "deployment.environment.name=test",
            }
        done = program(f"import hookline.otel\nhookline.otel.setup({options})\n{CHAT}", **env)
    assert (done.returncode, done.stdout, done.stderr) == (0, "3\nfailed\n", "")
    assert received.tree() == TREE
    assert received.metrics["gen_ai.invoke_agent.duration"].count == 2
    assert len(received.events) == 1
    assert received.resources[0]["service.name"] == "shop"
    if how == "variables":
        assert received.resources[0]["deployment.environment.name"] == "test"
    assert received.headers
    assert all("x-api-key" in headers for headers in received.headers)


def test_what_is_waiting_can_be_sent_at_any_time() -> None:
    with RECEIVERS["http/protobuf"]() as (endpoint, received):
        code = (
            f"import hookline.otel\nexporting = hookline.otel.setup({endpoint!r})\n{CHAT}\n"
            "assert exporting.flush()\nimport os\nos._exit(0)"  # no end that could send it
        )
        done = program(code)
    assert (done.returncode, done.stderr) == (0, "")
    assert received.tree() == TREE


@pytest.mark.parametrize(
    ("variable", "value", "missing"),
    [
        ("OTEL_METRICS_EXPORTER", "none", "metrics"),
        ("OTEL_LOGS_EXPORTER", "none", "logs"),
        ("OTEL_TRACES_EXPORTER", "none", "traces"),
    ],
)
def test_a_signal_that_is_not_wanted(variable: str, value: str, missing: str) -> None:
    with RECEIVERS["http/protobuf"]() as (endpoint, received):
        code = f"import hookline.otel\nhookline.otel.setup({endpoint!r})\n{CHAT}"
        done = program(code, **{variable: value})
    assert (done.returncode, done.stderr) == (0, "")
    kinds = {"traces", "metrics", "logs"}
    assert {name for name, _ in received.requests} == kinds - {missing}


@pytest.mark.parametrize(
    ("signal", "shown"),
    [("traces", '"name": "invoke_agent sums"'), ("metrics", "gen_ai."), ("logs", "gen_ai.")],
)
def test_a_signal_may_be_printed(signal: str, shown: str) -> None:
    with RECEIVERS["http/protobuf"]() as (endpoint, received):
        code = f"import hookline.otel\nhookline.otel.setup({endpoint!r})\n{CHAT}"
        done = program(code, **{f"OTEL_{signal.upper()}_EXPORTER": "console"})
    assert (done.returncode, done.stderr) == (0, "")
    assert shown in done.stdout
    kinds = {"traces", "metrics", "logs"}
    assert {name for name, _ in received.requests} == kinds - {signal}


def test_the_sdk_can_be_disabled() -> None:
    with RECEIVERS["http/protobuf"]() as (endpoint, received):
        code = f"import hookline.otel\nhookline.otel.setup({endpoint!r})\n{CHAT}"
        done = program(code, OTEL_SDK_DISABLED="true")
    assert (done.returncode, done.stdout, done.stderr) == (0, "3\nfailed\n", "")
    assert received.requests == []


def test_sampling_is_left_to_the_standard_variables() -> None:
    with RECEIVERS["http/protobuf"]() as (endpoint, received):
        code = f"import hookline.otel\nhookline.otel.setup({endpoint!r})\n{CHAT}"
        done = program(code, OTEL_TRACES_SAMPLER="always_off")
    assert done.returncode == 0, done.stderr
    assert received.spans == []
    assert received.metrics["gen_ai.invoke_agent.duration"].count == 2


@pytest.mark.parametrize("protocol", RECEIVERS)
def test_a_header_may_have_capitals(protocol: str) -> None:
    with RECEIVERS[protocol]() as (endpoint, received):
        options = f"{endpoint!r}, protocol={protocol!r}, headers={{'X-Api-Key': 'k1'}}"
        done = program(f"import hookline.otel\nhookline.otel.setup({options})\n{CHAT}")
    assert (done.returncode, done.stdout, done.stderr) == (0, "3\nfailed\n", "")
    assert received.tree() == TREE
    assert all("x-api-key" in headers.lower() for headers in received.headers)


def test_a_provider_that_cannot_shut_down_keeps_no_other_from_it(
    caplog: pytest.LogCaptureFixture,
) -> None:
    class Unclosable(InMemoryMetricReader):
        def shutdown(self, timeout_millis: float = 30_000, **more: Any) -> None:
            raise RuntimeError("the collector is away")

    sent = InMemoryLogRecordExporter()
    logs = LoggerProvider()
    logs.add_log_record_processor(BatchLogRecordProcessor(sent))
    exporting = Exporting({"metrics": MeterProvider([Unclosable()]), "logs": logs})
    logs.get_logger("test").emit(LogRecord(body="waiting"))
    exporting.shutdown()
    assert len(sent.get_finished_logs()) == 1
    assert "could not be shut down" in caplog.text


def test_a_flush_takes_no_longer_than_it_may() -> None:
    given: list[int] = []

    class Slow:
        def force_flush(self, millis: int) -> bool:
            given.append(millis)
            threading.Event().wait(millis / 1000)  # all that it may take
            return True

    exporting = Exporting({"traces": Slow(), "metrics": Slow(), "logs": Slow()})
    assert exporting.flush(0.05)
    first, *others = given
    assert 0 < first <= 50
    assert others == [0, 0]


@pytest.mark.parametrize("signal", ["metrics", "logs"])
def test_a_provider_of_another_signal_is_not_silently_kept_from_its_exporter(signal: str) -> None:
    code = {
        "metrics": "from opentelemetry import metrics as api\n"
        "from opentelemetry.sdk.metrics import MeterProvider\n"
        "api.set_meter_provider(MeterProvider())\n",
        "logs": "from opentelemetry import _logs as api\n"
        "from opentelemetry.sdk._logs import LoggerProvider\n"
        "api.set_logger_provider(LoggerProvider())\n",
    }[signal] + (
        "import hookline.otel\n"
        "from hookline.errors import UsageError\n"
        "try:\n    hookline.otel.setup('http://127.0.0.1:9')\n"
        "except UsageError as exc:\n    print(exc)"
    )
    done = program(code)
    assert f"OTEL_{signal.upper()}_EXPORTER=none" in done.stdout, done.stderr


def test_a_second_setup_is_refused() -> None:
    code = (
        "import hookline.otel\n"
        "from hookline.errors import UsageError\n"
        "hookline.otel.setup('http://127.0.0.1:9').shutdown()\n"
        "try:\n    hookline.otel.setup('http://127.0.0.1:9')\n"
        "except UsageError as exc:\n    print(exc)"
    )
    done = program(code)
    assert "has a tracer provider already" in done.stdout, done.stderr


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"protocol": "http/json"}, "must be one of"),
        ({"endpoint": "localhost:4318"}, "http://localhost:4318"),
    ],
    ids=["protocol", "endpoint"],
)
def test_what_setup_refuses(options: Any, says: str) -> None:
    with pytest.raises(UsageError, match=says):
        setup(**options)


@pytest.mark.parametrize(
    ("name", "value"),
    [("OTEL_TRACES_EXPORTER", "zipkin"), ("OTEL_EXPORTER_OTLP_PROTOCOL", "http/json")],
)
def test_what_setup_does_not_know(monkeypatch: pytest.MonkeyPatch, name: str, value: str) -> None:
    monkeypatch.setenv(name, value)
    with pytest.raises(UsageError, match=name):
        setup("http://127.0.0.1:9")


def test_without_the_extra_the_error_names_it() -> None:
    code = (
        "import sys\n"
        "sys.modules['opentelemetry.exporter.otlp.proto.http.trace_exporter'] = None\n"
        "from hookline.otel import setup\n"
        "setup('http://127.0.0.1:9')"
    )
    assert 'pip install "hookline[otel]"' in program(code).stderr


# ── exporters that are broken ───────────────────────────────────────────────────────────────


class Raising(SpanExporter):
    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        raise RuntimeError("the exporter is broken")


class Hanging(SpanExporter):
    """Hangs until it is let go, as one does that waits for its network."""

    def __init__(self) -> None:
        self.hangs = threading.Event()
        self.let_go = threading.Event()

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        self.hangs.set()
        self.let_go.wait(5)
        return SpanExportResult.SUCCESS


class Broken(SpanProcessor):
    """A processor that raises in the middle of our code."""

    def __init__(self, where: str) -> None:
        self._where = where

    def on_start(self, span: SdkSpan, parent_context: Any = None) -> None:
        if self._where == "start":
            raise RuntimeError("the processor is broken")

    def on_end(self, span: ReadableSpan) -> None:
        if self._where == "end":
            raise RuntimeError("the processor is broken")


async def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


def agent_of(telemetry: Telemetry) -> Agent:
    return Agent(ScriptedModel([call("add", a=1, b=2)], "3"), tools=[add], telemetry=telemetry)


@pytest.mark.parametrize("processor", [SimpleSpanProcessor, BatchSpanProcessor])
async def test_an_exporter_that_raises_changes_no_result(processor: Any) -> None:
    provider = TracerProvider(shutdown_on_exit=False)
    provider.add_span_processor(processor(Raising()))
    response = await agent_of(only_traces(provider)).chat("hi")
    assert (response.text, len(response.messages)) == ("3", 4)
    await asyncio.to_thread(provider.shutdown)


@pytest.mark.parametrize("where", ["start", "end"])
async def test_a_processor_that_raises_changes_no_result(
    where: str, caplog: pytest.LogCaptureFixture
) -> None:
    provider = TracerProvider(shutdown_on_exit=False)
    provider.add_span_processor(Broken(where))
    response = await agent_of(only_traces(provider)).chat("hi")
    assert (response.text, len(response.messages)) == ("3", 4)
    assert "the processor is broken" not in caplog.text


async def test_an_exporter_that_hangs_blocks_no_loop() -> None:
    exporter = Hanging()
    provider = TracerProvider(shutdown_on_exit=False)
    provider.add_span_processor(
        BatchSpanProcessor(exporter, max_export_batch_size=1, schedule_delay_millis=1)
    )
    telemetry = only_traces(provider)
    try:
        await agent_of(telemetry).chat("hi")
        assert await asyncio.to_thread(exporter.hangs.wait, 10)
        for _ in range(10):  # it hangs, and chats go on
            assert (await agent_of(telemetry).chat("hi")).text == "3"
        assert not exporter.let_go.is_set()
    finally:
        exporter.let_go.set()
        await asyncio.to_thread(provider.shutdown)


@pytest.mark.parametrize("protocol", RECEIVERS)
def test_a_collector_that_is_not_there(protocol: str) -> None:
    """It refuses connections: the chats are as ever, and the process ends."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # and nobody listens
        endpoint = f"http://127.0.0.1:{taken.getsockname()[1]}"
        options = f"endpoint={endpoint!r}, protocol={protocol!r}"
        code = f"import hookline.otel\nhookline.otel.setup({options})\n{CHAT}"
        done = program(code, OTEL_EXPORTER_OTLP_TIMEOUT="1")
    assert (done.returncode, done.stdout) == (0, "3\nfailed\n")


# ── no SDK ──────────────────────────────────────────────────────────────────────────────────


def test_a_chat_imports_nothing_of_opentelemetry_where_nobody_did() -> None:
    done = program(
        f"{CHAT}\nimport sys\n"
        "print([name for name in sys.modules if 'opentelemetry' in name or 'otel' in name])"
    )
    assert done.stdout.splitlines()[-1] == "[]", done.stderr


@pytest.mark.parametrize("what", ["trace", "metrics", "trace, metrics, _logs"])
def test_a_chat_has_no_tracing_hooks_where_there_is_no_sdk(what: str) -> None:
    done = program(f"from opentelemetry import {what}\n{CHAT}\nprint(agent._traced)")
    assert done.stdout.splitlines()[-1] == "None", done.stderr


def test_a_provider_that_is_named_in_the_environment_counts() -> None:
    code = f"{CHAT}\nfrom opentelemetry import trace\nprint(type(trace.get_tracer_provider()))"
    code += "\nprint(agent._traced is not None)"
    done = program(code, OTEL_PYTHON_TRACER_PROVIDER="sdk_tracer_provider")
    assert done.stdout.splitlines()[-1] == "True", done.stderr


def test_a_disabled_sdk_is_none() -> None:
    code = (
        "from opentelemetry import trace\nfrom opentelemetry.sdk.trace import TracerProvider\n"
        f"trace.set_tracer_provider(TracerProvider())\n{CHAT}\nprint(agent._traced)"
    )
    done = program(code, OTEL_SDK_DISABLED="true")
    assert done.stdout.splitlines()[-1] == "None", done.stderr
