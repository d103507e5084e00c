"""Mutation testing of the core: change one place, run the tests that cover it, list the survivors.

    scripts/dev/mutate --sample 300                   places drawn from the engine, `_chat`
    scripts/dev/mutate --sample 50 --module _hooks    of another package, or one module: _chat.batch
    scripts/dev/mutate --seed 7                       the same places again
    scripts/dev/mutate --guards                       the changes in tests/guards/mutations.py

The first run records which test covers which line (some minutes) and keeps it in .mutate/; it is
recorded anew when the sources or tests have changed. Each change is made in a copy of the sources,
never in the checkout, and looked at twice: by a few of the tests that run the line, and where these
pass, by many more of them. Progress goes to stderr, survivors and the figures to stdout. It exits 1
when a change survived. A survivor is a place to look at: it may be a change that no promise
forbids, such as a way round some work.
"""

from __future__ import annotations

import argparse
import ast
import copy
import hashlib
import os
import random
import shutil
import sqlite3
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from .guards import mutations

ROOT = Path(__file__).resolve().parent.parent
SOURCES = ROOT / "src" / "hookline"
KEPT = ROOT / ".mutate"
CORE_TESTS = ["tests/base", "tests/model", "tests/hooks", "tests/talk", "tests/chat"]
FIRST_LOOK, SECOND_LOOK = 80, 600  # how many tests each asks about a change at most
NOTICED = ("noticed by the first look", "noticed by the second look")
SURVIVED, UNTESTED = "survived", "not run by any test of the core"
PYTEST = [sys.executable, "-P", "-m", "pytest", "-q", "--no-header", "-p", "no:cacheprovider"]


class Place(NamedTuple):
    """One change that can be made."""

    module: str
    line: int
    change: str
    number: int  # of the change, in the order of `changes`

    def __str__(self) -> str:
        return f"{self.module}:{self.line}: {self.change}"


# ── the changes ─────────────────────────────────────────────────────────────────────────────

OPPOSITE: dict[type[ast.AST], type[ast.AST]] = {
    ast.Lt: ast.GtE,
    ast.GtE: ast.Lt,
    ast.Gt: ast.LtE,
    ast.LtE: ast.Gt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
    ast.And: ast.Or,
    ast.Or: ast.And,
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
}


def changes(tree: ast.Module) -> Iterator[tuple[ast.AST, str, ast.AST]]:
    """Each change of a module: the node, what is done to it, the node that takes its place."""
    for function in ast.walk(tree):
        if not isinstance(function, (ast.FunctionDef, ast.AsyncFunctionDef)):
            continue
        for statement in function.body:
            for node in _inside(statement):
                yield from _of(node)


def _inside(node: ast.AST) -> Iterator[ast.AST]:
    """The nodes of a statement, without annotations, assertions and inner functions."""
    if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Assert)):
        return  # functions come in their own turn
    yield node
    for name, value in ast.iter_fields(node):
        if name == "annotation":
            continue
        for each in value if isinstance(value, list) else [value]:
            if isinstance(each, ast.AST):
                yield from _inside(each)


def _of(node: ast.AST) -> Iterator[tuple[ast.AST, str, ast.AST]]:
    if isinstance(node, (ast.If, ast.While, ast.IfExp)):
        other = copy.copy(node)
        other.test = ast.UnaryOp(ast.Not(), node.test)
        yield node, "negate the condition", other
    elif isinstance(node, ast.Expr) and not isinstance(node.value, ast.Constant):
        yield node, "leave out the statement", ast.Pass()
    elif isinstance(node, (ast.Assign, ast.AugAssign)) and _is_state(node):
        yield node, "leave out the assignment", ast.Pass()
    elif isinstance(node, ast.Raise):
        yield node, "do not raise", ast.Pass()
    elif isinstance(node, ast.Return) and node.value is not None:
        if not (isinstance(node.value, ast.Constant) and node.value.value is None):
            yield node, "return None", ast.Return(ast.Constant(None))
    elif isinstance(node, ast.Compare) and type(node.ops[0]) in OPPOSITE:
        turned: Any = copy.copy(node)
        turned.ops = [OPPOSITE[type(node.ops[0])](), *node.ops[1:]]
        yield node, "turn the comparison", turned
    elif isinstance(node, (ast.BoolOp, ast.BinOp)) and type(node.op) in OPPOSITE:
        swapped: Any = copy.copy(node)
        swapped.op = OPPOSITE[type(node.op)]()
        yield node, "swap the operator", swapped
    elif isinstance(node, ast.Constant) and isinstance(node.value, bool):
        yield node, "turn the constant", ast.Constant(not node.value)
    elif isinstance(node, ast.Constant) and isinstance(node.value, int):
        yield node, "add 1", ast.Constant(node.value + 1)


def _is_state(node: ast.Assign | ast.AugAssign) -> bool:
    """Without the assignment of a local name most changes are a NameError, found by any test."""
    targets = node.targets if isinstance(node, ast.Assign) else [node.target]
    return isinstance(node, ast.AugAssign) or isinstance(targets[0], (ast.Attribute, ast.Subscript))


class _Put(ast.NodeTransformer):
    def __init__(self, old: ast.AST, new: ast.AST) -> None:
        self.old, self.new = old, new

    def visit(self, node: ast.AST) -> ast.AST:
        return self.new if node is self.old else super().visit(node)


def changed(path: Path, number: int) -> str:
    """The text of a module with its change of this number."""
    tree = ast.parse(path.read_text())
    old, _, new = list(changes(tree))[number]
    return ast.unparse(ast.fix_missing_locations(_Put(old, new).visit(tree)))


def places(modules: list[str]) -> list[Place]:
    found: list[Place] = []
    for path in sorted(SOURCES.rglob("*.py")):
        name = ".".join(path.relative_to(SOURCES).with_suffix("").parts)
        if any(name == module or name.startswith(f"{module}.") for module in modules):
            for number, (node, change, _) in enumerate(changes(ast.parse(path.read_text()))):
                found.append(Place(name, getattr(node, "lineno", 0), change, number))
    return found


# ── the tests that run a line ───────────────────────────────────────────────────────────────


def coverage() -> Path:
    """The record of which test runs which line; made anew when something has changed."""
    digest = hashlib.sha256()
    for path in sorted([*SOURCES.rglob("*.py"), *(ROOT / "tests").rglob("*.py")]):
        digest.update(path.read_bytes())
    record = KEPT / f"{digest.hexdigest()[:16]}.coverage"
    if not record.exists():
        print("recording which test runs which line …", file=sys.stderr)
        shutil.rmtree(KEPT, ignore_errors=True)
        KEPT.mkdir()
        made = KEPT / "made"
        env = {**os.environ, "COVERAGE_FILE": str(made), "CI": "true"}
        command = [*PYTEST, "-n", "auto", "--dist", "loadfile", "--cov=hookline", "--cov-report="]
        subprocess.run([*command, "--cov-context=test", *CORE_TESTS], cwd=ROOT, env=env)
        made.rename(record)
    return record


def tests_of(record: Path, module: str) -> dict[int, list[str]]:
    """The tests that run each line of a module: line → node ids."""
    found: dict[int, set[str]] = {}
    path = SOURCES / f"{module.replace('.', '/')}.py"
    with sqlite3.connect(record) as base:
        rows = base.execute(
            "SELECT DISTINCT arc.tono, context.context FROM arc"
            " JOIN file ON file.id = arc.file_id JOIN context ON context.id = arc.context_id"
            " WHERE file.path = ? AND arc.tono > 0 AND context.context LIKE 'tests/%'",
            [str(path)],
        )
        for line, test in rows:
            found.setdefault(line, set()).add(test.rsplit("|", 1)[0])
    return {line: sorted(tests) for line, tests in found.items()}


# ── one change ──────────────────────────────────────────────────────────────────────────────


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """A hook of pytest: the first failure ends the process, and nothing that it left hanging."""
    if report.failed:
        os._exit(1)


def survives(place: Place, tests: list[str]) -> bool:
    """Whether none of the tests fails with the change made. One that hangs has noticed it."""
    with tempfile.TemporaryDirectory() as folder:
        package = Path(folder) / "hookline"
        shutil.copytree(SOURCES, package, ignore=shutil.ignore_patterns("__pycache__"))
        path = package / f"{place.module.replace('.', '/')}.py"
        path.write_text(changed(path, place.number))
        paths = os.pathsep.join([folder, str(ROOT)])
        env = {**os.environ, "PYTHONPATH": paths, "CI": "true", "PYTHONDONTWRITEBYTECODE": "1"}
        command = [*PYTEST, "-p", "tests.mutate", "--timeout=60", "--timeout-method=thread"]
        return not subprocess.run(
            [*command, *tests], cwd=ROOT, env=env, capture_output=True
        ).returncode


def drawn(place: Place, tests: list[str]) -> list[list[str]]:
    """The tests that each look at the change asks, none of them twice."""
    order = random.Random(place.number).sample(tests, len(tests))
    return [sorted(order[:FIRST_LOOK]), sorted(order[FIRST_LOOK:][:SECOND_LOOK])]


def judged(place: Place, looks: list[list[str]]) -> str:
    """What became of the change: NOTICED, SURVIVED or UNTESTED."""
    if not any(looks):
        return UNTESTED
    for end, tests in zip(NOTICED, looks, strict=True):
        if tests and not survives(place, tests):
            return end
    return SURVIVED


def main() -> int:
    parser = argparse.ArgumentParser(prog="scripts/dev/mutate", description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("--guards", action="store_true", help="the changes of the guard tests")
    parser.add_argument("--module", action="append", help="a package or module, by default _chat")
    parser.add_argument("--sample", type=int, default=50, help="how many changes (default 50)")
    parser.add_argument("--seed", type=int, default=0, help="which ones (default 0)")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    args = parser.parse_args()
    if args.guards:
        return mutations.main(args.module or (), jobs=args.jobs)
    every = places(args.module or ["_chat"])
    if not every:
        parser.error(f"there is no such module in {SOURCES}: {args.module}")
    sample = random.Random(args.seed).sample(every, min(args.sample, len(every)))
    record = coverage()
    covered = {module: tests_of(record, module) for module in {place.module for place in sample}}
    looks = [drawn(place, covered[place.module].get(place.line, [])) for place in sample]
    ends: Counter[str] = Counter()
    with ThreadPoolExecutor(args.jobs) as pool:
        for place, end in zip(sample, pool.map(judged, sample, looks), strict=True):
            ends[end] += 1
            report = sys.stderr if end in NOTICED else sys.stdout
            print(f"{end}: {place}", file=report, flush=True)
    print(f"{len(sample)} of {len(every)} possible changes, seed {args.seed}:")
    print(*(f"{ends[end]:5} {end}" for end in (*NOTICED, SURVIVED, UNTESTED)), sep="\n")
    return 1 if ends[SURVIVED] or ends[UNTESTED] else 0


if __name__ == "__main__":
    raise SystemExit(main())
