"""Compare three small programs with what two other libraries need for the same.

    scripts/dev/compare.py            print the tables
    scripts/dev/compare.py --write    also write them into docs/comparison.md

The programs and the faults are in scripts/dev/peers. Each library runs in an environment of its own
that uv makes, with the versions below. The times are CPU time, and each is a multiple of the least
loop in the same process.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "scripts/dev/peers"))

from faults import lines  # noqa: E402

PAGE = ROOT / "docs" / "comparison.md"
BEGIN, END = "<!-- scripts/dev/compare.py -->", "<!-- end -->"
LIBRARIES = {
    "hookline": [f"{ROOT}[sqlite]"],
    "pydantic-ai": ["pydantic-ai-slim[dbos]==2.68.0"],
    "langgraph": [
        *("langgraph==1.2.24", "langchain==1.5.2", "langgraph-checkpoint-sqlite==3.1.2"),
    ],
}


def main() -> None:
    reports = {name: report(name, packages) for name, packages in LIBRARIES.items()}
    text = tables(reports, datetime.now(UTC).strftime("%-d %B %Y"))
    print(text)
    if sys.argv[1:] == ["--write"]:
        page = PAGE.read_text(encoding="utf-8")
        head, rest = page.split(BEGIN)
        PAGE.write_text(f"{head}{BEGIN}\n{text}\n{END}{rest.split(END)[1]}", encoding="utf-8")


def report(name: str, packages: list[str]) -> dict[str, Any]:
    """Run the programs of a library; return the promises and the times."""
    uv = [sys.executable, "-P", "-m", "uv", "--quiet"]
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run([*uv, "venv", "--python", sys.executable, folder], check=True)
        python = f"{folder}/bin/python"
        subprocess.run([*uv, "pip", "install", "--python", python, *packages], check=True)
        run = subprocess.run(
            [python, str(ROOT / "scripts/dev/peers/faults.py"), module_of(name)],
            capture_output=True,
            text=True,
            check=True,
        )
    return dict(json.loads(run.stdout.splitlines()[-1]))


def module_of(name: str) -> str:
    return f"with_{name.replace('-', '_')}"


def tables(reports: dict[str, Any], date: str) -> str:
    """The two tables, in Markdown."""
    head = [f"| | {' | '.join(reports)} |", f"|---|{'---|' * len(reports)}"]
    counted = {name: lines(module_of(name)) for name in reports}
    sums = [
        *(
            row(f"lines: {task}", [c[task] for c in counted.values()])
            for task in ("desk", "worker")
        ),
        row("lines: migration", [c["migration"] for c in counted.values()]),
        row("a tool iteration, in least loops", [times(r) for r in reports.values()]),
    ]
    kept = [
        row(
            f"{task}: {promise}",
            ["yes" if r["kept"][task][promise] else "**no**" for r in reports.values()],
        )
        for task, promises in next(iter(reports.values()))["kept"].items()
        for promise in promises
    ]
    return "\n".join([f"Run on {date}.", "", *head, *sums, "", *head, *kept])


def times(report: dict[str, Any]) -> str:
    library, least = report["microseconds"]
    return f"{library / least:.0f}×"


def row(title: str, cells: list[Any]) -> str:
    return f"| {title} | {' | '.join(map(str, cells))} |"


if __name__ == "__main__":
    main()
