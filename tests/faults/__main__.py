"""Try what can go wrong, count what is left, and print one table. Run by scripts/dev/faults.

A part is a module with a NAME, a TITLE, a WEIGHT (its share of the time) and `figures(budget)`; to
add one, write the module and put it in PARTS.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import random
import shutil
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from io import StringIO
from textwrap import fill
from typing import Any, TextIO

from . import cancel, kill, mutants, rules, soak, sockets, streams, throw
from .figures import Budget, Figure, Part

PARTS: Sequence[Part] = (cancel, throw, rules, kill, mutants, streams, sockets, soak)


def main(argv: Sequence[str] | None = None) -> int:
    args = arguments(argv)
    parts = [part for part in PARTS if not args.only or part.NAME in args.only]
    seed: int = random.randrange(10**6) if args.seed is None else args.seed
    to_stdout = args.json == "-"
    table = Table(StringIO() if to_stdout else sys.stdout)
    progress = Progress(sys.stderr)
    begin = time.monotonic()
    table.line(f"{machine()}; --seconds {args.seconds:g} --seed {seed}")
    found: list[Figure] = []
    whole = sum(part.WEIGHT for part in parts)
    for part in parts:
        table.line(f"\n{part.NAME}: {part.TITLE}")
        budget = Budget(args.seconds * part.WEIGHT / whole, seed, progress.of(part.NAME))
        for figure in _figures(part, budget):
            progress.clear()
            found.append(figure)
            table.figure(figure)
    progress.clear()
    took = time.monotonic() - begin
    broken = [figure for figure in found if figure.ok is False]
    judged = sum(figure.ok is not None for figure in found)
    table.line(f"\n{judged - len(broken)} of {judged} invariants hold, in {took:.0f} s")
    if args.json:
        write(args.json, found, {"seed": seed, "seconds": args.seconds, "took": round(took, 1)})
    return 1 if broken or not judged else 0


def _figures(part: Part, budget: Budget) -> Iterator[Figure]:
    """The figures of a part; one that fails altogether is broken, and the others go on."""
    try:
        yield from part.figures(budget)
    except Exception as exc:
        note = f"{type(exc).__name__}: {exc}"
        yield Figure(part.NAME, "failures of the part itself", 1, most=0, note=note)


def write(file: str, found: Sequence[Figure], options: dict[str, Any]) -> None:
    rows = [asdict(figure) | {"ok": figure.ok} for figure in found]
    record = {"machine": machine(), **options, "figures": rows}
    text = json.dumps(record, indent=1, ensure_ascii=False) + "\n"
    if file == "-":
        sys.stdout.write(text)
    else:
        with open(file, "w") as out:
            out.write(text)


def arguments(argv: Sequence[str] | None) -> argparse.Namespace:
    names = ", ".join(f"{part.NAME} ({part.TITLE})" for part in PARTS)
    parser = argparse.ArgumentParser(
        prog="scripts/dev/faults",
        description="Try what can go wrong with hookline, and count what is left of it.",
        epilog=f"Parts: {names}. Exits with 1 when an invariant is broken.",
    )
    parser.add_argument("--seconds", type=seconds, default=120.0, help="about (120)", metavar="N")
    parser.add_argument("--only", type=names_of, metavar="cancel,soak", help="only these parts")
    parser.add_argument("--seed", type=int, metavar="N", help="the luck of an earlier run")
    parser.add_argument(
        "--json",
        nargs="?",
        const="-",
        metavar="FILE",
        help="as JSON, instead of the table or there",
    )
    return parser.parse_args(argv)


def seconds(text: str) -> float:
    try:
        found = float(text)
    except ValueError:
        found = 0.0
    if not 1 <= found <= 86_400:
        raise argparse.ArgumentTypeError("must be a number of seconds from 1 to 86400")
    return found


def names_of(text: str) -> set[str]:
    found = {name.strip().lower() for name in text.split(",") if name.strip()}
    unknown = found - {part.NAME for part in PARTS}
    if unknown or not found:
        known = ", ".join(part.NAME for part in PARTS)
        raise argparse.ArgumentTypeError(
            f"no such part: {', '.join(sorted(unknown)) or repr(text)}; there are {known}"
        )
    return found


def machine() -> str:
    load = f", load {os.getloadavg()[0]:.1f}" if hasattr(os, "getloadavg") else ""
    python = f"{platform.python_implementation()} {platform.python_version()}"
    return f"{python}, {platform.system()} {platform.machine()}, {os.cpu_count()} CPUs{load}"


# ── what is printed ─────────────────────────────────────────────────────────────────────────

WHAT, VALUE, MUST, WIDTH = 50, 10, 7, 80


class Table:
    """Lines of figures, as they come."""

    def __init__(self, out: TextIO) -> None:
        self._out = out

    def line(self, text: str) -> None:
        print(text, file=self._out, flush=True)

    def figure(self, figure: Figure) -> None:
        verdict = {True: "ok", False: "BROKEN", None: ""}[figure.ok]
        cells = (
            f"  {figure.what:<{WHAT}} {amount(figure):>{VALUE}}  {must(figure):<{MUST}}{verdict}"
        )
        self.line(cells.rstrip())
        if figure.note:
            indent = " " * 6
            self.line(fill(figure.note, WIDTH, initial_indent=indent, subsequent_indent=indent))


def must(figure: Figure) -> str:
    if figure.most is not None:
        return f"{'≤' if figure.most else '='} {figure.most:g}"
    return "" if figure.least is None else f"≥ {figure.least:g}"


def amount(figure: Figure) -> str:
    value = figure.value
    if value == int(value):
        text = f"{value:,.0f}"
    else:
        text = f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3g}"
    return f"{text} {figure.unit}".rstrip()


class Progress:
    """One line on a terminal that tells how far it is; silent elsewhere."""

    def __init__(self, out: TextIO) -> None:
        self._out = out if out.isatty() else None
        self._last = 0.0

    def of(self, part: str) -> Any:
        def tell(text: str) -> None:
            now = time.monotonic()
            if self._out is not None and now - self._last > 0.1:
                self._last = now
                width = shutil.get_terminal_size().columns - 1
                self._out.write(f"\r\x1b[2K{f'  … {part}: {text}'[:width]}")
                self._out.flush()

        return tell

    def clear(self) -> None:
        if self._out is not None:
            self._out.write("\r\x1b[2K")
            self._out.flush()


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit(130)
