"""docs/comparison.md: its lines are those of the programs, and ours keep what it says."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
PEERS = ROOT / "scripts" / "dev" / "peers"
PAGE = (ROOT / "docs" / "comparison.md").read_text()
COUNT = "import sys; sys.path.insert(0, sys.argv[1]); import faults, json; "
COUNT += "print(json.dumps([faults.lines(name) for name in sys.argv[2:]]))"


def cells(title: str) -> list[str]:
    (row,) = re.findall(rf"^\| {re.escape(title)} \| (.*) \|$", PAGE, re.MULTILINE)
    return str(row).split(" | ")


def run(*command: str) -> str:
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def test_the_lines_are_those_of_the_programs() -> None:
    names = ("with_hookline", "with_pydantic_ai", "with_langgraph")
    counted = json.loads(run(sys.executable, "-c", COUNT, str(PEERS), *names))
    for task in ("desk", "worker", "migration"):
        assert cells(f"lines: {task}") == [str(counts[task]) for counts in counted]
    prose = [line for line in PAGE.splitlines() if not line.startswith("|")]
    assert len(" ".join(prose).split()) <= 500


@pytest.mark.slow
def test_our_programs_keep_what_the_page_says() -> None:
    report = json.loads(run(sys.executable, str(PEERS / "faults.py"), "with_hookline"))
    rows = [(task, *kept) for task, promises in report["kept"].items() for kept in promises.items()]
    assert len(rows) == 12
    for task, promise, kept in rows:
        assert cells(f"{task}: {promise}")[0] == "yes"
        assert kept, f"{task}: {promise}"
