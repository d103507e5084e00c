"""docs/durable.md: its two programs work together, and it has every option, method and command."""

from __future__ import annotations

import inspect
import re
import signal
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import pytest

from hookline import durable

PAGE = (Path(__file__).parents[2] / "docs" / "durable.md").read_text(encoding="utf-8")
# Prints each metric that a worker creates.
METRICS = """
from opentelemetry import metrics
from hookline import Agent
from hookline.durable.sqlite import chats
from hookline.runtimes import Durable
from hookline.testing import ScriptedModel

class Meter(metrics.NoOpMeter):
    def create_counter(self, name, unit="", description=""):
        print(name)
        return super().create_counter(name, unit, description)

    def create_gauge(self, name, unit="", description=""):
        print(name)
        return super().create_gauge(name, unit, description)

class Meters(metrics.NoOpMeterProvider):
    def get_meter(self, name, *rest):
        return Meter(name)

metrics.set_meter_provider(Meters())
chats(Agent(ScriptedModel("x"), runtime=Durable()), "never-opened.db")
"""
PROGRAM = re.compile(r"^```python\n# (\w+\.py)\n(.*?)^```$", re.DOTALL | re.MULTILINE)


@pytest.mark.timeout(120)
def test_the_worker_and_the_client_work_together_and_the_worker_ends_when_it_is_told(
    tmp_path: Path,
) -> None:
    for name, code in PROGRAM.findall(PAGE):
        (tmp_path / name).write_text(code, encoding="utf-8")
    command = [sys.executable, "-W", "error"]
    worker = subprocess.Popen(
        [*command, "worker.py"], cwd=tmp_path, stderr=subprocess.PIPE, text=True
    )
    try:
        client = subprocess.run(
            [*command, "client.py"], cwd=tmp_path, capture_output=True, text=True
        )
        assert (client.stdout, client.stderr) == ("Booked.\n", "")
        worker.send_signal(signal.SIGTERM)
        _, log = worker.communicate()
        assert worker.returncode == 0
        assert [line for line in log.splitlines() if not line.startswith("INFO:")] == []
        assert log.splitlines()[-1].endswith(" ended: done")
    finally:
        worker.kill()
        worker.wait()


@pytest.mark.parametrize("engine", ["sqlite", "postgres", "restate"])
def test_every_option_of_an_engine_is_in_the_table(engine: str) -> None:
    module = import_module(f"hookline.durable.{engine}")
    options = {
        name
        for made in (module.chats, module.Chats, durable.chats, durable.client)
        for name, each in inspect.signature(made).parameters.items()
        if each.kind is each.KEYWORD_ONLY
    }
    table = PAGE.partition("\n## Options\n")[2].partition("\n## ")[0]
    assert {name for name in options if f"{name}=" not in table} == set()


def test_every_method_of_the_client_is_in_a_table() -> None:
    methods = [name for name in vars(durable.Client) if name[0] != "_" and name != "aclose"]
    assert [name for name in methods if not re.search(rf"^\|.*`{name}\(", PAGE, re.MULTILINE)] == []


def test_every_command_is_on_the_page() -> None:
    command = [sys.executable, "-m", "hookline", "durable", "--help"]
    text = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    commands = re.findall(r"^│ ([\w-]+) ", text, re.MULTILINE)
    assert len(commands) > 10
    missing = [
        name for name in commands if f"durable {name} " not in PAGE and f"`{name}`" not in PAGE
    ]
    assert missing == []


def test_every_metric_is_in_the_table_of_telemetry() -> None:
    command = [sys.executable, "-W", "error", "-c", METRICS]
    text = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    names = {name.removeprefix("hookline.durable.") for name in text.split()}
    page = (Path(__file__).parents[2] / "docs" / "telemetry.md").read_text(encoding="utf-8")
    rows = [line for line in page.splitlines() if line.startswith("| `hookline.durable.")]
    table = {name for row in rows for name in re.findall(r"\.(\w+)`", row.split("|")[1])}
    assert len(names) > 5
    assert table == names
