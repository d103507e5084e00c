"""docs/durable.md: its two programs work together, and its table has every option."""

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
        assert worker.communicate() == (None, "")
        assert worker.returncode == 0
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
