"""Count the names that say nothing about what they hold: `found`, `given`, `kept`, `each` …

A name should be the noun that it holds or the verb that it does: `match`, `hooks`, `arguments`.
This script reads the syntax tree of each module and counts how many of its bindings (variables,
parameters, attributes of `self`, functions, classes, loop variables) are a bare participle or a
bare adverb, in a thousand bindings. It is a figure to watch, and never fails.

    scripts/dev/names.py              one line for each package, and the total
    scripts/dev/names.py --list       each of these bindings, with its place
    scripts/dev/names.py --list otel  only those below src/hookline/otel
"""

from __future__ import annotations

import ast
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

PACKAGE = Path(__file__).resolve().parents[2] / "src" / "hookline"
# `closed`, `cancelled`, `started`, `done` and `pending` are words of the field, and stay.
BARE = {
    "added", "allowed", "answered", "asked", "awaited", "begun", "bound", "brought", "built",
    "called", "changed", "checked", "chosen", "claimed", "cleaned", "collected", "counted",
    "covered", "dropped", "ended", "entered", "fired", "fitted", "followed", "forgotten",
    "found", "freed", "gathered", "given", "gone", "grown", "handed", "heard", "held", "hidden",
    "ignored", "inherited", "interrupted", "joined", "kept", "known", "learned", "left",
    "listed", "loaded", "looked", "lost", "made", "marked", "matched", "meant", "merged",
    "missed", "mended", "moved", "named", "noted", "offered", "opened", "parked", "passed",
    "picked", "placed", "planned", "posted", "prepared", "refused", "released", "removed",
    "replaced", "reported", "said", "saved", "seen", "sent", "settled", "shared", "shortened",
    "shown", "skipped", "spent", "spoken", "stated", "stopped", "stored", "taken", "thrown",
    "told", "touched", "tried", "used", "waited", "wanted", "warned", "watched", "withheld",
    "worded", "woven", "written", "wrapped", "ahead", "apart", "aside", "away", "beside",
    "elsewhere", "here", "near", "since", "there", "together", "each",
}  # fmt: skip


def bindings(tree: ast.Module) -> Iterator[tuple[str, int]]:
    """Each name that the module binds, and its line."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.id, node.lineno
        elif isinstance(node, ast.arg):
            yield node.arg, node.lineno
        elif isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            yield node.name, node.lineno
        elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
            yield node.attr, node.lineno


def is_bare(name: str) -> bool:
    """Whether the name is a participle or an adverb alone, in any case."""
    return name.strip("_").lower() in BARE


def main(arguments: list[str]) -> None:
    """Print the counts, or with --list the places."""
    names = [argument for argument in arguments if argument != "--list"]
    total: Counter[str] = Counter()
    bare: Counter[str] = Counter()
    for path in sorted(PACKAGE.rglob("*.py")):
        place = path.relative_to(PACKAGE)
        if names and not any(place.as_posix().startswith(name) for name in names):
            continue
        package = place.parts[0].removesuffix(".py")
        for name, line in bindings(ast.parse(path.read_text())):
            total[package] += 1
            if is_bare(name):
                bare[package] += 1
                if "--list" in arguments:
                    print(f"src/hookline/{place}:{line}: {name}")
    if "--list" not in arguments:
        for package in sorted(total, key=lambda package: -bare[package]):
            if bare[package]:
                _print(package, bare[package], total[package])
    _print("total", bare.total(), total.total())


def _print(package: str, bare: int, total: int) -> None:
    print(f"{package:16} {bare:5} of {total:6}  {1000 * bare / max(total, 1):5.1f} in a thousand")


if __name__ == "__main__":
    main(sys.argv[1:])
