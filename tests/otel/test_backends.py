"""The settings of docs/backends.md: with each of them, everything goes where the page says."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import pytest
from tests._otlp import http_receiver

PAGE = (Path(__file__).parents[2] / "docs" / "backends.md").read_text()
KEYS = {
    "LANGFUSE_PUBLIC_KEY": "pk",
    "LANGFUSE_SECRET_KEY": "sk",
    "DD_API_KEY": "dd",
    "LOGFIRE_TOKEN": "token",
    "HONEYCOMB_API_KEY": "bee",
}
PROGRAM = """
import asyncio
import hookline.otel
from hookline import Agent
from hookline.testing import ScriptedModel

exporting = hookline.otel.setup(service_name="shop")
asyncio.run(Agent(ScriptedModel("hi")).chat("hi"))
exporting.flush()
"""


class Settings(NamedTuple):
    paths: set[str]
    traces: dict[str, str]  # headers of the signals
    metrics: dict[str, str]


NOTHING: dict[str, str] = {}
DOGS = {"dd-api-key": "dd"}
BEES = {"x-honeycomb-team": "bee"}
BASIC = {"authorization": "Basic cGs6c2s=", "x-langfuse-ingestion-version": "4"}
BACKENDS = {
    "Phoenix": Settings({"/v1/traces"}, NOTHING, NOTHING),
    "Langfuse": Settings({"/api/public/otel/v1/traces"}, BASIC, NOTHING),
    "Grafana": Settings({"/v1/traces", "/api/v1/otlp/v1/metrics"}, NOTHING, NOTHING),
    "Datadog": Settings({"/v1/traces", "/v1/metrics"}, {**DOGS, "dd-otlp-source": "llmobs"}, DOGS),
    "Logfire": Settings(
        {"/v1/traces", "/v1/metrics"}, {"authorization": "token"}, {"authorization": "token"}
    ),
    "Honeycomb": Settings(
        {"/v1/traces", "/v1/metrics"}, BEES, {**BEES, "x-honeycomb-dataset": "shop-metrics"}
    ),
}


def exports(name: str) -> str:
    """The lines of a section that set something."""
    section = PAGE.partition(f"\n## {name}\n")[2].partition("\n## ")[0]
    block = re.search(r"```sh\n(.*?)```", section, re.DOTALL)
    assert block is not None
    return "\n".join(
        line for line in block[1].splitlines() if line.startswith("export ") or "auth=" in line
    )


@pytest.mark.parametrize("name", BACKENDS)
def test_the_settings_of_a_back_end_send_there_what_it_takes(name: str) -> None:
    bash = shutil.which("bash")
    if bash is None:
        pytest.skip("there is no bash")
    kept = {key: value for key, value in os.environ.items() if not key.startswith("OTEL_")}
    shown = subprocess.run(
        [bash, "-euc", f"{exports(name)}\nenv -0"],
        env={**kept, **KEYS},
        capture_output=True,
        text=True,
        check=True,
    )
    set_there = dict(each.split("=", 1) for each in shown.stdout.split("\0") if each)
    with http_receiver() as (url, received):
        env = {
            key: re.sub(r"^https?://[^/]+", url, value) if key.startswith("OTEL_") else value
            for key, value in set_there.items()
        }
        subprocess.run([sys.executable, "-c", PROGRAM], env=env, check=True, timeout=50)
        assert set(received.paths) == BACKENDS[name].paths
        for path, headers in zip(received.paths, received.headers, strict=True):
            wanted = BACKENDS[name].traces if "traces" in path else BACKENDS[name].metrics
            lines = dict(line.split(": ", 1) for line in headers.splitlines() if line)
            sent = {key.lower(): value for key, value in lines.items()}
            assert sent.items() >= wanted.items()
        assert [span.name for span in received.ours] == ["invoke_agent agent", "chat scripted"]


def test_each_back_end_of_the_page_has_its_settings_tried() -> None:
    assert re.findall(r"^## (\w+)$", PAGE, re.MULTILINE) == list(BACKENDS)
