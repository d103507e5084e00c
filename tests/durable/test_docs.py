"""docs/durable.md: its two programs work together, and it has every option, method and command."""

from __future__ import annotations

import inspect
import re
import signal
import subprocess
import sys
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

from hookline import Agent, durable
from hookline.cli import main
from hookline.runtimes import Durable
from hookline.testing import ScriptedModel

PAGE = (Path(__file__).parents[2] / "docs" / "durable.md").read_text(encoding="utf-8")
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


def test_every_command_is_on_the_page(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["durable", "--help"]) == 0
    commands = re.findall(r"^│ (\w+)  ", capsys.readouterr().out, re.MULTILINE)
    assert len(commands) > 10
    missing = [
        name for name in commands if f"durable {name} " not in PAGE and f"`{name}`" not in PAGE
    ]
    assert missing == []


async def test_every_metric_is_in_the_table_of_telemetry(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    metrics = pytest.importorskip("opentelemetry.metrics")
    names: set[str] = set()

    class Meter(metrics.NoOpMeter):  # type: ignore[misc, name-defined]
        def create_gauge(self, name: str, *args: Any, **options: Any) -> Any:
            names.add(name)
            return super().create_gauge(name, *args, **options)

        def create_counter(self, name: str, *args: Any, **options: Any) -> Any:
            names.add(name)
            return super().create_counter(name, *args, **options)

    monkeypatch.setattr(metrics, "get_meter", Meter)
    agent: Agent[Any] = Agent(ScriptedModel(), runtime=Durable())
    async with durable.chats(agent, f"sqlite:///{tmp_path}/jobs.db"):
        pass
    page = (Path(__file__).parents[2] / "docs" / "telemetry.md").read_text(encoding="utf-8")
    rows = [line for line in page.splitlines() if line.startswith("| `hookline.durable.")]
    table = {name for row in rows for name in re.findall(r"\.(\w+)`", row.split("|")[1])}
    assert {f"hookline.durable.{name}" for name in table} == names
