"""The dashboard of docs/grafana-dashboard.json: each query is of what hookline really exports.

Once by the names, and once by a real Prometheus that scrapes them and answers each query. Where
there is none the latter is skipped, but not in CI.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import shutil
import socket
import sqlite3
import subprocess
import time
import urllib.parse
import urllib.request
from collections import defaultdict
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

import pytest
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from tests._prometheus import samples, served
from tests.durable.test_engines import waits
from tests.web._server import eventually

from hookline import Agent, Approve, Ask, Conversation
from hookline.durable import client
from hookline.durable.sqlite import chats
from hookline.hooks import approve
from hookline.mcp import MCPServer, connect
from hookline.models import Rates
from hookline.otel import Telemetry
from hookline.runtimes import Durable
from hookline.testing import ScriptedModel, Turn, call

DASHBOARD: dict[str, Any] = json.loads(
    (Path(__file__).parents[2] / "docs" / "grafana-dashboard.json").read_text()
)


class Query(NamedTuple):
    panel: str
    expr: str
    legend: str

    @property
    def metrics(self) -> dict[str, set[str]]:
        """The labels that are asked of each metric, in its braces or for the whole query."""
        by = {
            each.strip() for each in ",".join(re.findall(r"by \(([^)]*)\)", self.expr)).split(",")
        }
        shown = set(re.findall(r"{{(\w+)}}", self.legend))
        found: dict[str, set[str]] = {}
        for name, braces in re.findall(r"(\w+)\{([^}]*)\}", self.expr):
            matched = set(re.findall(r"(\w+)(?:=~|!~|!=|=)", braces))
            found[name] = (matched | by | shown) - {"job", ""}
        return found


QUERIES = [
    Query(panel["title"], target["expr"], target["legendFormat"])
    for panel in DASHBOARD["panels"]
    for target in panel.get("targets", ())
    if "expr" in target
]
TRACEQL = [
    (panel["title"], target["query"])
    for panel in DASHBOARD["panels"]
    for target in panel.get("targets", ())
    if "query" in target
]


def execute(file: str, statement: str) -> None:
    """Change the jobs in a file, as no worker of this version does."""
    with closing(sqlite3.connect(file)) as connection, connection:
        connection.execute(statement)


class Seen:
    """What a chat of each kind has exported."""

    def __init__(self) -> None:
        self.reader = InMemoryMetricReader()
        self._spans = InMemorySpanExporter()
        tracers = TracerProvider(shutdown_on_exit=False)
        tracers.add_span_processor(SimpleSpanProcessor(self._spans))
        self._meters = MeterProvider([self.reader], shutdown_on_exit=False)
        self._telemetry = Telemetry(
            tracer_provider=tracers,
            meter_provider=self._meters,
            price={"scripted": Rates(input=1, output=2)},
        )

    @property
    def attributes(self) -> list[dict[str, Any]]:
        return [dict(span.attributes or {}) for span in self._spans.get_finished_spans()]

    async def chats(self) -> None:
        """A tool of an MCP server, one that fails, a hook, an approval, a model that fails."""
        from mcp.server import MCPServer as Server

        await self._durable_chats()
        server = Server("notes")

        @server.tool()
        def note(text: str) -> str:  # pyright: ignore[reportUnusedFunction]
            """Note something."""
            return text

        def broken() -> None:
            """Fail."""
            raise LookupError("no")

        turns = [
            [call("note", text="milk"), call("broken")],
            "two chunks",
            call("broken"),
            Turn(fail=ConnectionError("down")),
        ]
        agent = Agent(
            ScriptedModel(*turns, chunk=3),
            tools=[broken],
            telemetry=self._telemetry,
        )
        agent.add_hook("onMessage", lambda ctx: None, name="watch")
        async with connect(agent, MCPServer.local(server)):
            await agent.chat("note milk")
        asking = Agent(
            ScriptedModel(call("broken")),
            tools=[broken],
            hooks=[approve("broken")],
            telemetry=self._telemetry,
        )
        await asking.chat("go", conversation=Conversation())
        with pytest.raises(ConnectionError):
            await agent.chat("again")

    async def _durable_chats(self) -> None:
        """One loses its claim; others wait, are quarantined, or newer than the code."""
        with TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
            patch.setattr("opentelemetry.metrics.get_meter", self._meters.get_meter)  # not global
            where = f"{folder}/jobs.db"
            async with client(f"sqlite:///{where}") as jobs:
                await jobs.start("Hi.", chat_id="newer")
                execute(
                    where,
                    "INSERT INTO hookline_job_log (queue, id, n, at, data) VALUES "
                    """('hookline', 'newer', 0, 0, CAST('{"hookline":99,"lines":[]}' AS BLOB))""",
                )
                await jobs.quarantine(await jobs.start("Hi.", agent="theirs"))
                await jobs.start("Hi.", agent="theirs")
                begun = asyncio.Event()

                async def wait() -> None:
                    """Wait."""
                    begun.set()
                    await asyncio.Event().wait()

                agent = Agent(ScriptedModel(call("wait")), tools=[wait], runtime=Durable())
                agent.add_hook("preToolCall", lambda ctx: Ask("Wait?"))
                worker = chats(agent, where, poll=0.01, idle=0.05)
                async with worker:
                    id = await jobs.start("Wait.")
                    request = await waits(jobs, id)
                    await jobs.answer(id, {request: Approve()})
                    await begun.wait()
                    worker._next_look = 0.0  # it measures every ten seconds
                    await eventually(lambda: worker._next_look > 0)
                    execute(where, f"UPDATE hookline_job SET lease = 0 WHERE id = '{id}'")
                    async for event in jobs.watch(id, poll=0.01):
                        if event.kind == "loss":
                            break


@pytest.fixture
async def seen() -> Seen:
    found = Seen()
    await found.chats()
    return found


async def test_each_metric_and_label_of_the_dashboard_is_exported(seen: Seen) -> None:
    exported: defaultdict[str, set[str]] = defaultdict(set)
    for sample in samples(seen.reader):
        exported[sample.name] |= set(sample.labels)
    missing = [
        (query.panel, name, sorted(labels - exported[name]))
        for query in QUERIES
        for name, labels in query.metrics.items()
        if name not in exported or not labels <= exported[name]
    ]
    assert missing == []


async def test_each_attribute_of_a_search_for_traces_is_on_a_span(seen: Seen) -> None:
    for panel, query in TRACEQL:
        names = re.findall(r"span\.([\w.]+)", query)
        assert names, panel
        assert any(all(name in found for name in names) for found in seen.attributes), panel


def test_the_dashboard_asks_the_sources_that_are_chosen_in_it() -> None:
    names = {each["name"] for each in DASHBOARD["templating"]["list"]}
    used = set(re.findall(r"\$\{?(\w+)", json.dumps(DASHBOARD)))
    assert used - names == {"__rate_interval", "__all"}
    ids = [panel["id"] for panel in DASHBOARD["panels"]]
    assert len(ids) == len(set(ids))
    assert len(QUERIES) > 15


# ── in a real Prometheus ────────────────────────────────────────────────────────────────────


class Prometheus(NamedTuple):
    url: str

    def query(self, expr: str) -> list[dict[str, Any]]:
        query = urllib.parse.urlencode({"query": expr})
        with urllib.request.urlopen(f"{self.url}/api/v1/query?{query}", timeout=60) as answer:
            return list(json.load(answer)["data"]["result"])


@pytest.fixture
def prometheus(seen: Seen, tmp_path: Path) -> Iterator[Prometheus]:
    """One that scrapes what was seen."""
    program = shutil.which("prometheus")
    if program is None:
        if os.environ.get("CI"):
            pytest.fail("there is no prometheus: install it (Debian: prometheus)")
        pytest.skip("there is no prometheus")
    with served(seen.reader) as port, socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        own: int = free.getsockname()[1]
        config = tmp_path / "prometheus.yml"
        config.write_text(
            json.dumps(
                {
                    "global": {"scrape_interval": "200ms", "scrape_timeout": "200ms"},
                    "scrape_configs": [
                        {
                            "job_name": "shop",
                            "static_configs": [{"targets": [f"127.0.0.1:{port}"]}],
                        }
                    ],
                }
            )
        )
        free.close()
        with (tmp_path / "log").open("w") as log:
            process = subprocess.Popen(
                [
                    program,
                    f"--config.file={config}",
                    f"--storage.tsdb.path={tmp_path / 'data'}",
                    f"--web.listen-address=127.0.0.1:{own}",
                ],
                stdout=log,
                stderr=log,
            )
        try:
            yield Prometheus(f"http://127.0.0.1:{own}")
        finally:
            process.terminate()
            process.wait(30)


def until(what: Any) -> Any:
    """Ask again until there is an answer."""
    end = time.monotonic() + 40
    while time.monotonic() < end:
        try:
            found = what()
        except OSError:
            found = None
        if found:
            return found
        time.sleep(0.1)
    raise AssertionError("it took too long")


@pytest.mark.slow
async def test_prometheus_answers_each_query(prometheus: Prometheus, seen: Seen) -> None:
    total = 'sum(gen_ai_invoke_agent_duration_seconds_count{job="shop"})'

    def chats() -> float:
        return float(sum(float(each["value"][1]) for each in prometheus.query(total)))

    first = await asyncio.to_thread(until, chats)
    await seen.chats()  # a rate is of two scrapes
    await asyncio.to_thread(until, lambda: chats() > first)
    for query in QUERIES:
        expr = query.expr.replace("$__rate_interval", "1m").replace("$job", "shop|other")

        def answer(expr: str = expr) -> Any:
            """The rows once one is not 0: a scrape may fall between two chats."""
            rows = prometheus.query(expr)
            return rows if any(float(row["value"][1]) > 0 for row in rows) else None

        result = await asyncio.to_thread(until, answer)
        for label in re.findall(r"{{(\w+)}}", query.legend):
            assert all(label in each["metric"] for each in result), query
