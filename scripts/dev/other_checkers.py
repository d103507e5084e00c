"""Hold tests/typing/api.py against ty and pyrefly too: which of its lines are errors.

mypy and pyright check that file with the comments that expect their errors. Here it is checked
without them, and each checker must find an error on exactly those lines.
"""

from __future__ import annotations

import re
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory

ROOT = Path(__file__).resolve().parents[2]
FILE = ROOT / "tests" / "typing" / "api.py"
EXPECTED = re.compile(r"  # (?:type|pyright): ignore\[.*$", re.MULTILINE)
COMMANDS = {
    "ty": ("--python", sys.prefix, "--extra-search-path", "src", "--output-format", "concise"),
    "pyrefly": (
        *("--python-interpreter-path", sys.executable, "--search-path", "src"),
        *("--output-format", "min-text"),
    ),
}


def expected(text: str) -> set[int]:
    """The lines on which an error is expected."""
    return {text.count("\n", 0, found.start()) + 1 for found in EXPECTED.finditer(text)}


def found_by(checker: str, text: str) -> set[int]:
    """The lines on which this checker finds an error."""
    with TemporaryDirectory(prefix="hookline-typing-") as name:
        place = Path(name)
        (place / "api.py").write_text(EXPECTED.sub("", text))
        (place / "src").symlink_to(ROOT / "src")
        (place / f"{checker}.toml").touch()  # nothing of pyproject.toml
        command = (sys.executable, "-m", checker, "check", *COMMANDS[checker])
        done = subprocess.run(
            (*command, "--python-version", "3.11", *(("api.py",) if checker == "ty" else ())),
            cwd=place,
            capture_output=True,
            text=True,
        )
    return {int(line) for line in re.findall(r"\bapi\.py:(\d+):", done.stdout)}


def main() -> int:
    text = FILE.read_text()
    wanted, wrong = expected(text), 0
    for checker in COMMANDS:
        if find_spec(checker) is None:
            print(f"{checker} is not installed: run scripts/setup")
            wrong = 1
            continue
        found = found_by(checker, text)
        print(f"{checker}: {len(found & wanted)} of {len(wanted)} expected errors")
        for line in sorted(found ^ wanted):
            wrong = 1
            print(f"{FILE.relative_to(ROOT)}:{line}: ", end="")
            print("an error" if line in found else "no error, and one is expected")
    return wrong


if __name__ == "__main__":
    sys.exit(main())
