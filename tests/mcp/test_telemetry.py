"""Spans, metrics and `traceparent` by the conventions for MCP, as client and as server."""

from __future__ import annotations

import sys
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from tests._listening import listening

from hookline import Agent
from hookline.errors import UsageError
from hookline.mcp import MCPServer, connect, serve
from hookline.otel import Telemetry
from hookline.testing import ScriptedModel, call

mcp = pytest.importorskip("mcp")
types = pytest.importorskip("mcp_types")
lowlevel = pytest.importorskip("mcp.server")
metrics = pytest.importorskip("opentelemetry.sdk.metrics")
metrics_export = pytest.importorskip("opentelemetry.sdk.metrics.export")
trace = pytest.importorskip("opentelemetry.sdk.trace")
export = pytest.importorskip("opentelemetry.sdk.trace.export")
memory = pytest.importorskip("opentelemetry.sdk.trace.export.in_memory_span_exporter")

NOTHING: dict[str, Any] = {"type": "object", "properties": {}}


class Seen:
    """What a pair of providers was told."""

    def __init__(self) -> None:
        self._spans = memory.InMemorySpanExporter()
        self.tracers = trace.TracerProvider()
        self.tracers.add_span_processor(export.SimpleSpanProcessor(self._spans))
        self._reader = metrics_export.InMemoryMetricReader()
        self.meters = metrics.MeterProvider(metric_readers=[self._reader])
        self.telemetry = Telemetry(tracer_provider=self.tracers, meter_provider=self.meters)

    def span(self, name: str) -> Any:
        [found] = [each for each in self._spans.get_finished_spans() if each.name == name]
        return found

    def points(self, name: str) -> list[tuple[dict[str, Any], int]]:
        """The labels of each series of a histogram, and how often it was recorded."""
        data = self._reader.get_metrics_data()
        return [
            (dict(point.attributes), point.count)
            for resource in (data.resource_metrics if data else ())
            for scope in resource.scope_metrics
            for metric in scope.metrics
            if metric.name == name
            for point in metric.data.data_points
        ]


def parent_of(span: Any) -> str:
    """A span as the parent that `traceparent` tells of."""
    return f"{span.context.trace_id:032x}-{span.context.span_id:016x}"


class Notes:
    """A server that keeps the `_meta` of its calls."""

    def __init__(self) -> None:
        self.meta: list[dict[str, Any]] = []
        self.server = lowlevel.Server("notes", on_list_tools=self._list, on_call_tool=self._call)

    async def _list(self, ctx: Any, params: Any) -> Any:
        names = ("add", "fail", "refuse", "never")
        return types.ListToolsResult(
            tools=[types.Tool(name=name, input_schema=NOTHING) for name in names]
        )

    async def _call(self, ctx: Any, params: Any) -> Any:
        self.meta.append(dict(ctx.meta or {}))
        if params.name == "refuse":
            raise mcp.MCPError(-32050, "not today")
        text = types.TextContent(type="text", text="fine")
        return types.CallToolResult(content=[text], is_error=params.name == "fail")


@pytest.fixture(params=["2026-07-28", "2025-11-25"])
def version(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    if request.param == "2025-11-25":
        monkeypatch.setattr(mcp, "Client", partial(mcp.Client, mode="legacy"))
    return str(request.param)


@pytest.mark.parametrize("by", ["local", "http"])
async def test_a_call_carries_the_trace_and_its_span_says_what_was_asked(
    version: str, by: str
) -> None:
    seen, notes = Seen(), Notes()
    agent = Agent(ScriptedModel(call("n_add"), "done"), telemetry=seen.telemetry)
    if by == "local":
        async with connect(agent, MCPServer.local(notes.server, prefix="n_")):
            await agent.chat("go")
        about: dict[str, Any] = {}
    else:
        async with (
            listening(notes.server.streamable_http_app()) as url,
            connect(agent, MCPServer.http(url, prefix="n_")),
        ):
            await agent.chat("go")
        about = {
            "network.transport": "tcp",
            "network.protocol.name": "http",
            "server.address": "127.0.0.1",
            "server.port": int(url.rsplit(":", 1)[1].partition("/")[0]),
        }
    span = seen.span("execute_tool n_add")
    assert notes.meta[0]["traceparent"].startswith(f"00-{parent_of(span)}-")
    said = {"mcp.method.name": "tools/call", "mcp.protocol.version": version, **about}
    assert dict(span.attributes).items() >= said.items()
    labels = {**said, "gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": "n_add"}
    assert seen.points("mcp.client.operation.duration") == [(labels, 1)]


async def test_what_fails_is_told_by_its_code(version: str) -> None:
    seen, notes = Seen(), Notes()
    model = ScriptedModel(call("fail"), call("refuse"), "done")
    agent = Agent(model, telemetry=seen.telemetry)
    async with connect(agent, MCPServer.local(notes.server)):
        await agent.chat("go")
    refused = dict(seen.span("execute_tool refuse").attributes)
    assert refused["rpc.response.status_code"] == "-32050"
    assert refused["error.type"] == "MCPError"
    found = {
        labels["gen_ai.tool.name"]: (labels["error.type"], labels.get("rpc.response.status_code"))
        for labels, _ in seen.points("mcp.client.operation.duration")
    }
    assert found == {"fail": ("tool_error", None), "refuse": ("-32050", "-32050")}


async def test_an_agent_without_telemetry_tells_nobody(version: str) -> None:
    notes = Notes()
    agent = Agent(ScriptedModel(call("add"), "done"), telemetry=None)
    async with connect(agent, MCPServer.local(notes.server)):
        await agent.chat("go")
    assert "traceparent" not in notes.meta[0]


async def test_the_span_of_an_outer_agent_is_not_told_of_its_sub_agents_calls(
    version: str,
) -> None:
    seen, notes = Seen(), Notes()
    inner = Agent(ScriptedModel(call("add"), "done"), name="inner", telemetry=None)
    outer = Agent(
        ScriptedModel(call("inner", input="go"), "done"),
        tools=[inner.as_tool()],
        telemetry=seen.telemetry,
    )
    async with connect(inner, MCPServer.local(notes.server)):
        await outer.chat("go")
    assert len(notes.meta) == 1
    assert "mcp.method.name" not in seen.span("execute_tool inner").attributes
    assert seen.points("mcp.client.operation.duration") == []


BANK = """\
import os

from hookline import Agent
from hookline.testing import ScriptedModel


def answer(request):
    return os._exit(3) if request.messages[-1].text == "die" else "Hi."


agent = Agent(ScriptedModel(answer, repeat=True))
"""


@pytest.mark.slow
async def test_a_connection_is_measured_until_it_is_closed_or_lost(
    version: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = Seen()
    monkeypatch.setattr("opentelemetry.metrics.get_meter", seen.meters.get_meter)
    (tmp_path / "bank.py").write_text(BANK)
    server = MCPServer.stdio(sys.executable, "-m", "hookline", "mcp", "bank:agent", cwd=tmp_path)
    agent = Agent(
        ScriptedModel(call("chat", message="die"), call("chat", message="hi"), "done"),
        telemetry=None,
    )
    async with connect(agent, server):
        assert seen.points("mcp.client.session.duration") == []  # it is up
        await agent.chat("go")  # the second call waits until it is connected again
    lasted = {"mcp.protocol.version": version, "network.transport": "pipe"}
    assert seen.points("mcp.client.session.duration") == [
        ({**lasted, "error.type": "connection_lost"}, 1),
        (lasted, 1),
    ]


# ── an agent as a server ────────────────────────────────────────────────────────────────────


async def test_a_chat_that_a_client_asks_for_is_in_the_clients_trace(version: str) -> None:
    seen = Seen()
    served = Agent(ScriptedModel("Hello."), name="bank", telemetry=seen.telemetry)
    mode = "auto" if version == "2026-07-28" else "legacy"
    meta = {"traceparent": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"}
    async with listening(serve(served)) as url, mcp.Client(url, mode=mode) as client:
        await client.call_tool("chat", {"message": "hi"}, meta=meta)
    span = seen.span("invoke_agent bank")
    assert f"{span.context.trace_id:032x}" == "0af7651916cd43dd8448eb211c80319c"


async def test_an_agent_that_asks_an_agent_by_http_is_one_trace(version: str) -> None:
    seen = Seen()
    bank = Agent(ScriptedModel("Three."), name="bank", telemetry=seen.telemetry)
    agent = Agent(
        ScriptedModel(call("chat", message="How much?"), "done"),
        name="asks",
        telemetry=seen.telemetry,
    )
    async with (
        listening(serve(bank)) as url,
        connect(agent, MCPServer.http(url, label="bank")),
    ):
        await agent.chat("go")
    asked, answered = seen.span("execute_tool chat"), seen.span("invoke_agent bank")
    assert answered.context.trace_id == asked.context.trace_id
    assert answered.parent.span_id == asked.context.span_id


async def test_a_served_agent_is_measured(version: str, monkeypatch: pytest.MonkeyPatch) -> None:
    seen = Seen()
    monkeypatch.setattr("opentelemetry.metrics.get_meter", seen.meters.get_meter)
    served = Agent(ScriptedModel("Hello."), name="bank", telemetry=None)
    mode = "auto" if version == "2026-07-28" else "legacy"
    async with listening(serve(served)) as url, mcp.Client(url, mode=mode) as client:
        await client.list_tools()
        await client.call_tool("chat", {"message": "hi"})
        await client.call_tool("chat", {"message": ""})
        await client.call_tool("x" * 50, {})
        with pytest.raises(mcp.MCPError):
            await client.get_prompt("none")
    points = seen.points("mcp.server.operation.duration")
    assert {labels["mcp.protocol.version"] for labels, _ in points} == {version}
    found = {
        (labels["mcp.method.name"], labels.get("gen_ai.tool.name"), labels.get("error.type")): n
        for labels, n in points
    }
    assert found["tools/list", None, None] >= 1
    assert found["tools/call", "chat", None] == 1
    assert found["tools/call", "chat", "tool_error"] == 1
    assert found["tools/call", None, "tool_error"] == 1  # no name of a client's own
    assert found["_OTHER", None, "-32601"] == 1


@pytest.mark.parametrize("stateless", [False, True], ids=["sessions", "stateless"])
async def test_a_session_of_a_served_agent_is_measured_at_its_end(
    version: str, stateless: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is asked without a handshake has no session."""
    seen = Seen()
    monkeypatch.setattr("opentelemetry.metrics.get_meter", seen.meters.get_meter)
    served = Agent(ScriptedModel("Hello."), name="bank", telemetry=None)
    mode = "auto" if version == "2026-07-28" else "legacy"
    name = "mcp.server.session.duration"
    async with (
        listening(serve(served, stateless=stateless)) as url,
        mcp.Client(url, mode=mode) as client,
    ):
        await client.call_tool("chat", {"message": "hi"})
        assert seen.points(name) == []
    handshake = version == "2025-11-25" and not stateless
    assert seen.points(name) == ([({"mcp.protocol.version": version}, 1)] if handshake else [])


@pytest.mark.parametrize("url", ["http://x:port/mcp", "http://x:99999/mcp"])
def test_an_address_with_a_port_that_is_none_is_refused(url: str) -> None:
    with pytest.raises(UsageError, match="port"):
        MCPServer.http(url)
