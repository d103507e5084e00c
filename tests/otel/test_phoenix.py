"""A trace in a real back-end: sent to arize-phoenix by OTLP, and read back through its API.

It runs in an environment of its own that `scripts/dev/phoenix` makes on first use, some minutes
long. Where no package index can be reached the test is skipped, but not in CI.
"""

from __future__ import annotations

import asyncio
import json
import os
import socket
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from opentelemetry._logs import NoOpLoggerProvider
from opentelemetry.metrics import NoOpMeterProvider
from tests._otlp import Pipeline, Received

from hookline import Agent, Conversation
from hookline.otel import Telemetry
from hookline.testing import ScriptedModel, Turn, call

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]
SCRIPT = Path(__file__).parents[2] / "scripts" / "dev" / "phoenix"


class Phoenix(NamedTuple):
    http: str
    grpc: str

    def get(self, path: str) -> Any:
        with urllib.request.urlopen(f"{self.http}{path}", timeout=60) as answer:
            return json.load(answer)

    def spans(self) -> list[dict[str, Any]]:
        try:
            found = self.get("/v1/projects/default/spans?limit=1000")
        except urllib.error.HTTPError:  # the project begins with its first span
            return []
        return list(found["data"])


def free_port() -> int:
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        port: int = sock.getsockname()[1]
        return port


def until(what: Any, seconds: float) -> Any:
    """Ask again until there is an answer."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        try:
            found = what()
        except OSError:
            found = None
        if found:
            return found
        time.sleep(0.2)
    raise AssertionError("it took too long")


@pytest.fixture(scope="module")
def phoenix(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Phoenix]:
    made = subprocess.run([SCRIPT, "install"], stderr=subprocess.PIPE, text=True)
    if made.returncode != 0:
        if os.environ.get("CI"):
            pytest.fail(made.stderr)
        pytest.skip("arize-phoenix could not be installed")
    home = tmp_path_factory.mktemp("phoenix")
    ports = free_port(), free_port()
    kept = {name: value for name, value in os.environ.items() if not name.startswith("OTEL_")}
    env = {
        **kept,
        "PHOENIX_WORKING_DIR": str(home),
        "PHOENIX_HOST": "127.0.0.1",
        "PHOENIX_PORT": str(ports[0]),
        "PHOENIX_GRPC_PORT": str(ports[1]),
        "PHOENIX_TELEMETRY_ENABLED": "false",
    }
    with (home / "log").open("w") as log:
        process = subprocess.Popen([SCRIPT, "serve"], env=env, stdout=log, stderr=log)
    there = Phoenix(f"http://127.0.0.1:{ports[0]}", f"http://127.0.0.1:{ports[1]}")
    try:

        def up() -> bool:
            assert process.poll() is None, (home / "log").read_text()
            with urllib.request.urlopen(f"{there.http}/healthz", timeout=60):
                return True

        until(up, 180)
        yield there
    finally:
        process.terminate()
        process.wait(30)


@pytest.mark.parametrize("protocol", ["http/protobuf", "grpc"])
async def test_a_trace_is_read_back_from_phoenix(phoenix: Phoenix, protocol: str) -> None:
    async def add(a: int, b: int) -> int:
        """Add two numbers."""
        return a + b

    def broken() -> None:
        """Broken."""
        raise LookupError("no")

    endpoint = phoenix.grpc if protocol == "grpc" else phoenix.http
    to = Pipeline(protocol, endpoint, Received())
    inner = Agent(ScriptedModel([call("broken")], "sorry"), name="inner", tools=[broken])
    agent = Agent(
        ScriptedModel(
            [call("add", a=1, b=2), call("inner", input="help")], Turn(fail=ConnectionError("x"))
        ),
        name=f"outer-{protocol}",
        tools=[add, inner.as_tool()],
        telemetry=Telemetry(
            tracer_provider=to.tracers,
            meter_provider=NoOpMeterProvider(),  # it takes traces alone
            logger_provider=NoOpLoggerProvider(),
            capture="span_only",
        ),
    )
    agent.add_hook("preRequest", lambda ctx: ctx.request.replace(system="x"), name="edit")
    with pytest.raises(ConnectionError):
        await agent.chat("1 + 2?", conversation=Conversation(id=f"talk-{protocol}"))
    assert await asyncio.to_thread(to.tracers.force_flush, 10_000)
    await asyncio.to_thread(to.close)

    def arrived() -> list[dict[str, Any]]:
        spans = phoenix.spans()
        roots = [span for span in spans if span["name"] == f"invoke_agent outer-{protocol}"]
        trace = {span["context"]["trace_id"] for span in roots}
        found = [span for span in spans if span["context"]["trace_id"] in trace]
        return found if len(found) == 9 else []

    spans = await asyncio.to_thread(until, arrived, 60)
    names = {span["context"]["span_id"]: span["name"] for span in spans}
    tree = sorted((names.get(span["parent_id"], "-"), span["name"]) for span in spans)
    root = f"invoke_agent outer-{protocol}"
    assert tree == sorted(
        [
            ("-", root),
            (root, "chat scripted"),
            (root, "execute_tool add"),
            (root, "execute_tool inner"),
            ("execute_tool inner", "invoke_agent inner"),
            ("invoke_agent inner", "chat scripted"),
            ("invoke_agent inner", "execute_tool broken"),
            ("invoke_agent inner", "chat scripted"),
            (root, "chat scripted"),
        ]
    )
    kinds = {span["name"].split()[0]: span["span_kind"] for span in spans}
    assert kinds == {"invoke_agent": "AGENT", "chat": "LLM", "execute_tool": "TOOL"}
    (top,) = [span for span in spans if span["name"] == root]
    assert top["status_code"] == "ERROR"
    assert top["attributes"]["error.type"] == "ConnectionError"
    assert top["attributes"]["session.id"] == f"talk-{protocol}"  # what it makes of ours
    assert [event["name"] for event in top["events"]] == ["hookline.hook"] * 2
    (failed,) = [span for span in spans if span["name"] == "execute_tool broken"]
    assert failed["attributes"]["error.type"] == "LookupError"
    first = min((s for s in spans if s["name"] == "chat scripted"), key=lambda s: s["start_time"])
    assert first["attributes"]["llm.model_name"] == "scripted"
    assert first["attributes"]["llm.input_messages.0.message.content"] == "x"
    assert first["attributes"]["llm.input_messages.1.message.content"] == "1 + 2?"
