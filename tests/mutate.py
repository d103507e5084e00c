"""Mutation testing of the core: change one place, run the tests that cover it, list the survivors.

    scripts/mutate --sample 300                   places drawn from the engine, `_chat`
    scripts/mutate --sample 50 --module _hooks    from another package, or one module: _chat.batch
    scripts/mutate --seed 7                       the same places again

The first run records which test covers which line (some minutes) and keeps it in .mutate/; it is
recorded anew when the sources or tests have changed. Each change is made in a copy of the sources,
never in the checkout. It exits 1 when a change survived. A survivor is a place to look at: it may
be a change that no promise forbids, such as a way round some work.
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
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

ROOT = Path(__file__).resolve().parent.parent
SOURCES = ROOT / "src" / "hookline"
KEPT = ROOT / ".mutate"
CORE_TESTS = ["tests/base", "tests/model", "tests/hooks", "tests/talk", "tests/chat"]
MOST_TESTS = 80  # asked about one change; more of them seldom notice what these did not
PYTEST = [sys.executable, "-P", "-m", "pytest", "-q", "--no-header", "-p", "no:cacheprovider"]


class Place(NamedTuple):
    """One change that can be made."""

    module: str
    line: int
    change: str
    number: int  # of the change, in the order of `changes`


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


def tests_of(record: Path) -> dict[tuple[str, int], list[str]]:
    """The tests that run each line: (module, line) → node ids."""
    from coverage.numbits import numbits_to_nums

    found: dict[tuple[str, int], list[str]] = {}
    with sqlite3.connect(record) as base:
        rows = base.execute(
            "SELECT file.path, context.context, line_bits.numbits FROM line_bits"
            " JOIN file ON file.id = line_bits.file_id"
            " JOIN context ON context.id = line_bits.context_id"
        ).fetchall()
        arcs = base.execute(
            "SELECT DISTINCT file.path, context.context, arc.tono FROM arc"
            " JOIN file ON file.id = arc.file_id JOIN context ON context.id = arc.context_id"
        ).fetchall()
    lines = [(path, test, line) for path, test, bits in rows for line in numbits_to_nums(bits)]
    for path, test, line in [*lines, *arcs]:
        if test.startswith("tests/") and line > 0:
            name = ".".join(Path(path).relative_to(SOURCES).with_suffix("").parts)
            found.setdefault((name, line), []).append(test.split("|")[0])
    return {line: sorted(set(tests)) for line, tests in found.items()}


# ── one change ──────────────────────────────────────────────────────────────────────────────


def survives(place: Place, tests: list[str]) -> bool:
    """Whether none of the tests fails with the change made. One that hangs has noticed it."""
    with tempfile.TemporaryDirectory() as folder:
        package = Path(folder) / "hookline"
        shutil.copytree(SOURCES, package, ignore=shutil.ignore_patterns("__pycache__"))
        path = package / f"{place.module.replace('.', '/')}.py"
        path.write_text(changed(path, place.number))
        env = {**os.environ, "PYTHONPATH": folder, "CI": "true", "PYTHONDONTWRITEBYTECODE": "1"}
        try:
            done = subprocess.run(
                [*PYTEST, "-x", "--timeout=30", *tests],
                cwd=ROOT,
                env=env,
                capture_output=True,
                timeout=240,
            )
        except subprocess.TimeoutExpired:
            return False
        return done.returncode == 0


def main() -> int:
    parser = argparse.ArgumentParser(prog="scripts/mutate", description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("--module", action="append", help="a package or module (default _chat)")
    parser.add_argument("--sample", type=int, default=50, help="how many changes (default 50)")
    parser.add_argument("--seed", type=int, default=0, help="which ones (default 0)")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    args = parser.parse_args()
    every = places(args.module or ["_chat"])
    if not every:
        parser.error(f"there is no such module in {SOURCES}: {args.module}")
    covered = tests_of(coverage())
    luck = random.Random(args.seed)
    sample = luck.sample(every, min(args.sample, len(every)))
    untested = [place for place in sample if not covered.get(place[:2])]
    asked = [place for place in sample if covered.get(place[:2])]

    def judge(place: Place) -> bool:
        tests = covered[place[:2]]
        chosen = random.Random(place.number).sample(tests, min(MOST_TESTS, len(tests)))
        return survives(place, sorted(chosen))

    survivors: list[Place] = []
    with ThreadPoolExecutor(args.jobs) as pool:
        for place, survived in zip(asked, pool.map(judge, asked), strict=True):
            if survived:
                survivors.append(place)
                print(f"survived: {place.module}:{place.line}: {place.change}", flush=True)
    for place in untested:
        print(f"not run by any test of the core: {place.module}:{place.line}: {place.change}")
    print(
        f"{len(asked) - len(survivors)} of {len(sample)} changes were noticed, {len(survivors)}"
        f" survived, {len(untested)} are in lines that no test of the core runs"
        f" (of {len(every)} possible changes, seed {args.seed})"
    )
    return 1 if survivors or untested else 0


if __name__ == "__main__":
    raise SystemExit(main())
