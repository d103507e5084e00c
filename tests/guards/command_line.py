"""`hookline chat -m` with a guard of each kind, in a process of its own for its main thread."""

from __future__ import annotations

import json
import subprocess
import sys
from contextlib import redirect_stderr, redirect_stdout
from functools import cache
from io import StringIO
from pathlib import Path
from types import ModuleType

from tests.guards.case import KINDS, NONE, Case

from hookline.cli import main as hookline

APP = "guarded_app"
PROGRAM = "import sys; sys.path.insert(0, '.'); from tests.guards.command_line import main; main()"


def commands_that_ran(kind: str) -> list[str]:
    """Run the command line here."""
    case = Case(kind)
    module = ModuleType(APP)
    with case.stack, redirect_stdout(StringIO()), redirect_stderr(StringIO()):
        module.agent = case.agent()  # type: ignore[attr-defined]
        sys.modules[APP] = module
        hookline(["chat", f"{APP}:agent", "-m", "go"])
    return case.ran


@cache
def commands_by_kind() -> dict[str, list[str]]:
    """Run the command line in another process, once for all kinds."""
    root = Path(__file__).resolve().parents[2]
    command = [sys.executable, "-P", "-c", PROGRAM]
    done = subprocess.run(command, cwd=root, capture_output=True, text=True, check=True)
    by_kind: dict[str, list[str]] = json.loads(done.stdout)
    return by_kind


def main() -> None:
    """Print the commands that ran, by kind."""
    print(json.dumps({kind: commands_that_ran(kind) for kind in [NONE, *KINDS]}))
