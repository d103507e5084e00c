"""The programs of docs/evals.md run, and pass the type checker, with the libraries that they use.

HOOKLINE_EVALS is the Python that `scripts/dev/evals` prints; without it, this is a visible skip.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
SOURCE = ROOT / "src"
PAGE = (ROOT / "docs" / "evals.md").read_text()
PROGRAM = re.compile(r"^## (\S+)\n.*?^```py\n(.*?)^```$", re.DOTALL | re.MULTILINE)
PROGRAMS: dict[str, str] = dict(PROGRAM.findall(PAGE))


@pytest.fixture
def python() -> str:
    path = os.environ.get("HOOKLINE_EVALS")
    if path is None:
        pytest.skip("HOOKLINE_EVALS is not set: scripts/dev/evals makes and prints it")
    return path


def test_each_library_has_a_program() -> None:
    assert list(PROGRAMS) == ["pydantic-evals", "inspect-ai"]


@pytest.mark.timeout(180)
@pytest.mark.parametrize("library", PROGRAMS)
def test_a_program_runs_with_its_library(library: str, python: str, tmp_path: Path) -> None:
    environment = {"PATH": os.environ["PATH"], "HOME": str(tmp_path), "PYTHONPATH": str(SOURCE)}
    program = subprocess.run(
        [python, "-c", PROGRAMS[library]],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        encoding="utf-8",
    )
    assert program.returncode == 0, program.stderr


@pytest.mark.timeout(180)
def test_the_programs_pass_the_type_checker(python: str, tmp_path: Path) -> None:
    for number, program in enumerate(PROGRAMS.values()):
        (tmp_path / f"program_{number}.py").write_text(program)
    config = {
        "typeCheckingMode": "strict",
        "reportUnknownVariableType": False,  # parts of inspect-ai's own types are unknown
        "extraPaths": [str(SOURCE)],
        "include": ["*.py"],
    }
    (tmp_path / "pyrightconfig.json").write_text(json.dumps(config))
    command = [sys.executable, "-m", "pyright", "--pythonpath", python, "--project", str(tmp_path)]
    checker = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    assert checker.returncode == 0, checker.stdout
