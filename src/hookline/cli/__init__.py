"""The command line: `hookline chat`, `hookline hooks`, `hookline serve`.

It uses only the public names of `hookline` and `hookline.web`, like a program of your own. Cyclopts
and rich (the extra `cli`) are imported when the command runs, so a missing package is reported in
one line.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from importlib import import_module
from typing import Any

__all__ = ["main"]

MISSING = "hookline: the command line needs {}, which is not installed: pip install 'hookline[{}]'"
EXTRA = ("cyclopts", "rich")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command `hookline`; return the exit status (docs/cli.md has a table)."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    sys.stdout = sys.stdout or open(os.devnull, "w")  # noqa: SIM115 - None: closed by the caller
    sys.stderr = sys.stderr or open(os.devnull, "w")  # noqa: SIM115 - likewise
    try:
        program: Any = import_module("hookline.cli._main")
    except ModuleNotFoundError as exc:
        top = (exc.name or "").partition(".")[0]
        if top not in EXTRA:
            raise
        extras = "cli,web" if words[:1] == ["serve"] else "cli"
        print(MISSING.format(top, extras), file=sys.stderr)
        return 2
    status: int = program.run(words)
    return status
