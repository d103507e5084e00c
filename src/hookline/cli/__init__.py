"""The command line: `hookline chat`, `hookline hooks`, `hookline serve`.

It stands on the face and on `hookline.web`, like a program of a user's. Cyclopts and rich, the
extra `cli`, are imported when the command runs, so that a missing one is told in a line.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib import import_module
from typing import Any

__all__ = ["main"]

MISSING = "hookline: the command line needs {}, which is not installed: pip install 'hookline[{}]'"
EXTRA = ("cyclopts", "rich")


def main(arguments: Sequence[str] | None = None) -> int:
    """The command `hookline`; gives the exit status, of which docs/cli.md has a table."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    try:
        program: Any = import_module("hookline.cli._main")
    except ModuleNotFoundError as exc:
        top = (exc.name or "").partition(".")[0]
        if top not in EXTRA:
            raise
        extras = "cli,web" if given[:1] == ["serve"] else "cli"
        print(MISSING.format(top, extras), file=sys.stderr)
        return 2
    status: int = program.run(given)
    return status
