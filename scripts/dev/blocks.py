"""Check every block of Python in README.md and docs/ with mypy --strict and pyright --strict.

Each block is a program of its own, as it stands, and both checkers see all of them in one run, side
by side. A block is written to a file at the line that it has on its page, so that what is wrong is
told as `docs/tools.md:82`. `.venv/bin/python scripts/dev/blocks.py [PAGE…]` checks other pages.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

ROOT = Path(__file__).resolve().parents[2]
CACHES = ROOT / ".mypy_cache"  # mypy looks again at what has changed alone
PLUGIN = ROOT / "examples" / "13_petty_cash_plugin"  # a package, which one of the blocks imports
BLOCK = re.compile(r"^(<!-- not run -->\n+)?```(\w*)\n(.*?)^```$", re.DOTALL | re.MULTILINE)
FILE = re.compile(r"[^\s:]*?(\w+)__\d+\.py:(\d+)")


def pages() -> list[Path]:
    return [ROOT / "README.md", *sorted(ROOT.glob("docs/*.md"))]


def blocks(page: Path) -> Iterator[tuple[int, str]]:
    """The line before each block of Python, and the block."""
    text = page.read_text()
    for block in BLOCK.finditer(text):
        if block[2] == "python":
            yield text.count("\n", 0, block.start(3)), block[3]


def written(places: Iterable[Path], folder: Path) -> dict[str, Path]:
    """Write the blocks down; gives the pages by the beginning of their files' names."""
    found: dict[str, Path] = {}
    for page in places:
        stem = re.sub(r"\W", "_", page.stem)
        found[stem] = page
        for number, (line, code) in enumerate(blocks(page), start=1):
            (folder / f"{stem}__{number}.py").write_text("\n" * line + code)
    return found


def begun(folder: Path, *command: str) -> subprocess.Popen[str]:
    environment = {
        **os.environ,
        "MYPYPATH": f"{ROOT / 'src'}{os.pathsep}{PLUGIN}",
        "PYRIGHT_PYTHON_IGNORE_WARNINGS": "1",  # do not ask the network for a newer pyright
    }
    return subprocess.Popen(
        [sys.executable, "-P", "-m", *command],
        cwd=folder,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def checkers(folder: Path, cache: Path) -> list[subprocess.Popen[str]]:
    """Both, begun."""
    config = {
        "include": ["*.py"],
        "exclude": [],
        "typeCheckingMode": "strict",
        "pythonVersion": "3.11",
        "venvPath": str(ROOT),
        "venv": ".venv",
        "extraPaths": [str(ROOT / "src"), str(PLUGIN)],
        "enableTypeIgnoreComments": False,
        "reportUnnecessaryTypeIgnoreComment": "error",
    }
    (folder / "pyrightconfig.json").write_text(json.dumps(config))
    own = ("--strict", "--python-version=3.11", "--config-file=", "--no-error-summary")
    more = ("--enable-error-code=ignore-without-code", f"--cache-dir={cache}")
    files = [path.name for path in sorted(folder.glob("*.py"))]
    return [
        begun(folder, "mypy", *own, *more, *files),
        begun(folder, "pyright", "--project", str(folder)),
    ]


def main(names: list[str]) -> int:
    with TemporaryDirectory(prefix="hookline-blocks-") as name:
        folder = Path(name)
        found = written([Path(name).resolve() for name in names] or pages(), folder)
        count = len(list(folder.glob("*.py")))
        # Two runs at a time must not share a cache: a test checks a page of its own.
        cache = CACHES / ("pages" if names else "blocks")
        wrong = check(folder, found, cache) if count else 1
    print(f"{count} blocks: {'not clean' if wrong else 'clean'}")
    return wrong


def check(folder: Path, found: dict[str, Path], cache: Path) -> int:
    """Let both checkers look at the blocks; 1 where one of them has found something."""

    def place(match: re.Match[str]) -> str:
        page = found[match[1]]
        return f"{page.relative_to(ROOT) if page.is_relative_to(ROOT) else page}:{match[2]}"

    wrong = 0
    for checker in checkers(folder, cache):
        said, _ = checker.communicate()
        if checker.returncode:
            print("\n".join(FILE.sub(place, line) for line in said.splitlines()))
            wrong = 1
    return wrong


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
