"""Print the test files that a change concerns: those that import a changed module, however far.

The change is what git sees against a revision, by default `HEAD`: what is not committed yet. A test
file is printed if it has changed, or if it imports a changed Python file, directly or through other
modules and helpers. A program that a test names as a string counts as imported, and a changed
`conftest.py` concerns all tests of its folder. Nothing is run.

    scripts/dev/changed_tests.py [REVISION]
"""

from __future__ import annotations

import ast
import subprocess
import sys
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def modules() -> dict[str, Path]:
    """All modules of the package, the tests and the examples, by dotted name."""
    paths: dict[str, Path] = {}
    for folder, base in (("src/hookline", "src"), ("tests", "."), ("examples", ".")):
        for path in (ROOT / folder).rglob("*.py"):
            parts = path.relative_to(ROOT / base).with_suffix("").parts
            paths[".".join(parts).removesuffix(".__init__")] = path
    return paths


def imports(module: str, known: dict[str, Path]) -> set[str]:
    """The known modules that a module imports, and the programs that a test names."""
    names: set[str] = set()
    programs: dict[str, str] = {}
    if module.startswith("tests."):
        programs = {name: name for name in known}
        programs |= {path.name: name for name, path in known.items() if path.name[0] == "_"}
    for node in ast.walk(ast.parse(known[module].read_text())):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            above = module.split(".")[: -node.level] if node.level else []
            whence = ".".join([*above, *([node.module] if node.module else [])])
            names |= {whence, *(f"{whence}.{alias.name}" for alias in node.names)}
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            names.add(programs.get(node.value, ""))
    return names & known.keys()


def changed_files(revision: str) -> set[Path]:
    """The files that differ from the revision, and those that git does not know yet."""
    commands = (
        ["git", "diff", "--name-only", revision],
        ["git", "ls-files", "--others", "--exclude-standard"],
    )
    lines = [
        line
        for command in commands
        for line in subprocess.run(
            command, cwd=ROOT, check=True, capture_output=True, text=True
        ).stdout.splitlines()
    ]
    return {ROOT / line for line in lines}


@cache
def graph() -> dict[str, set[str]]:
    """The modules that each module imports."""
    known = modules()
    return {name: imports(name, known) for name in known}


def concerned(changes: set[Path]) -> list[Path]:
    """The test files that import a changed file, directly or through others."""
    known = modules()
    dirty = {name for name, path in known.items() if path in changes}
    while more := {name for name, used in graph().items() if name not in dirty and used & dirty}:
        dirty |= more
    paths = {known[name] for name in dirty}
    for change in changes:
        if change.name == "conftest.py":
            paths |= set(change.parent.rglob("test_*.py"))
    return sorted(path for path in paths if path.match("test_*.py"))


if __name__ == "__main__":
    revision = sys.argv[1] if len(sys.argv) > 1 else "HEAD"
    for path in concerned(changed_files(revision)):
        print(path.relative_to(ROOT))
