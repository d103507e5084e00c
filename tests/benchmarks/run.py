"""Measure hookline against loops written by hand, and print one table. Run by scripts/bench.

Every figure of ours stands beside its limit, measured in the same process by turns. A workload is a
module with a NAME and `rows(options)`; to add one, write the module and put it in WORKLOADS.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import sys
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from . import (
    chats,
    served,
    store,
    subscribers,
    w1_stream,
    w2_tools,
    w3_hooks,
    w4_many,
    w5_import,
    w6_tracing,
    w7_history,
    w8_steps,
    wire,
)
from .measure import Options, Row, Workload

WORKLOADS: Sequence[Workload] = (
    w1_stream,
    w2_tools,
    w3_hooks,
    w4_many,
    w5_import,
    w6_tracing,
    w7_history,
    w8_steps,
    chats,
    subscribers,
    store,
    wire,
    served,
)

Old = dict[tuple[str, str], dict[str, Any]]


def main(argv: Sequence[str] | None = None) -> int:
    args = arguments(argv)
    options = Options(repeats=args.repeats, quick=args.quick)
    old: Old | None = args.compare
    wanted = [each for each in WORKLOADS if not args.only or each.NAME.lower() in args.only]
    print(machine())
    print(heading(old))
    found: list[Row] = []
    for workload in wanted:
        for row in workload.rows(options):
            found.append(row)
            print(line(row, old), flush=True)
    notes = [f"  {row.name} {row.what}: {row.note}" for row in found if row.note]
    if notes:
        print("", *notes, sep="\n")
    missed = [row for row in found if row.ok is False]
    judged = sum(row.ok is not None for row in found)
    print(f"\n{judged - len(missed)} of {judged} targets met")
    if args.json:
        record = {
            "machine": machine(),
            "options": asdict(options),
            "rows": [asdict(row) | {"ok": row.ok} for row in found],
        }
        args.json.write_text(json.dumps(record, indent=1, ensure_ascii=False) + "\n")
    return 0


def arguments(argv: Sequence[str] | None) -> argparse.Namespace:
    names = [each.NAME for each in WORKLOADS]
    parser = argparse.ArgumentParser(
        prog="scripts/bench",
        description="Measure hookline against the same work written by hand.",
        epilog=f"Workloads: {', '.join(names)}. Medians; the spread is from the lower to the "
        "upper quartile. The exit code says nothing about speed.",
    )
    parser.add_argument("--only", type=names_of, metavar="W1,W3", help="only these workloads")
    parser.add_argument("--repeats", type=positive, metavar="N", help="repeat each sample N times")
    parser.add_argument("--quick", action="store_true", help="a fifth of the usual repeats")
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write the rows there")
    parser.add_argument(
        "--compare", type=read_old, metavar="OLD.json", help="show the change since"
    )
    return parser.parse_args(argv)


def names_of(text: str) -> set[str]:
    found = {name.strip().lower() for name in text.split(",") if name.strip()}
    unknown = found - {each.NAME.lower() for each in WORKLOADS}
    if unknown:
        raise argparse.ArgumentTypeError(f"no such workload: {', '.join(sorted(unknown))}")
    return found


def positive(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError("must be a whole number above 0")
    return int(text)


def machine() -> str:
    load = f", load {os.getloadavg()[0]:.1f}" if hasattr(os, "getloadavg") else ""
    python = f"{platform.python_implementation()} {platform.python_version()}"
    return f"{python}, {platform.system()} {platform.machine()}, {os.cpu_count()} CPUs{load}"


# ── the table ───────────────────────────────────────────────────────────────────────────────

COLUMNS = (10, -48, 11, 11, 8, 15, 9)  # widths; a negative one is aligned to the left


def columns(*cells: str) -> str:
    padded: list[str] = []
    for cell, width in zip(cells, COLUMNS, strict=False):
        padded.append(cell.ljust(-width) if width < 0 else cell.rjust(width))
    padded[0] = cells[0].ljust(COLUMNS[0])
    return "  ".join([*padded, *cells[len(COLUMNS) :]]).rstrip()


def heading(old: Old | None) -> str:
    names = ("name", "what", "limit", "ours", "ratio", "spread", "target", "")
    text = columns(*names, *(("was",) if old is not None else ()))
    return f"{text}\n{'-' * len(text)}"


def line(row: Row, old: Old | None) -> str:
    unit = "×" if row.of == "ratio" else row.unit
    verdict = {True: "ok", False: "MISSED", None: ""}[row.ok]
    cells = [
        row.name,
        row.what,
        "–" if row.limit is None else amount(row.limit, row.unit),
        amount(row.ours, row.unit),
        "–" if row.ratio is None else amount(row.ratio, "×"),
        f"{number(row.low)}…{amount(row.high, unit)}",
        "–" if row.target is None else f"≤ {amount(row.target, unit)}",
        verdict,
    ]
    if old is not None:
        cells[-1] = verdict.ljust(6)
        cells.append(change(row, old))
    return columns(*cells)


def number(value: float) -> str:
    if value == 0 or abs(value) >= 100:
        return f"{value:,.0f}"
    if abs(value) >= 10:
        return f"{value:.1f}"
    return f"{value:.2f}"


def amount(value: float, unit: str) -> str:
    text = number(value)
    if not unit:
        return text.removesuffix(".00")
    return f"{text}×" if unit == "×" else f"{text} {unit}"


def change(row: Row, old: Old) -> str:
    """How the judged figure has changed; `=` where the quartiles overlap or it is below 1 %."""
    was = old.get((row.name, row.what))
    if was is None:
        return "new"
    before = was["ours"] if row.of == "ours" or was["ratio"] is None else was["ratio"]
    text = number(before)
    if before > 0 and row.judged > 0:
        text += f" {row.judged / before - 1:+.0%}"
    overlap = row.low <= was["high"] and was["low"] <= row.high
    if overlap or abs(row.judged - before) < 0.01 * abs(before):
        return f"{text} ="
    return f"{text} {'worse' if row.judged > before else 'better'}"


def read_old(file: str) -> Old:
    """The rows that --json has written there."""
    try:
        rows = json.loads(Path(file).read_text())["rows"]
        return {(row["name"], row["what"]): row for row in rows}
    except (OSError, ValueError, KeyError, TypeError) as exc:
        raise argparse.ArgumentTypeError(f"{file} is no table that --json wrote: {exc}") from exc


if __name__ == "__main__":
    sys.exit(main())
