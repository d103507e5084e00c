"""kill: processes in the middle of a chat are shot with SIGKILL at random moments, on a store.

What is written is told from outside of the process, message by message; a new process then opens
the conversation, compares, and takes the next turn. On SQLite, and on PostgreSQL where there is a
server: HOOKLINE_POSTGRES names one, else the usual place on this machine is tried.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from tempfile import TemporaryDirectory

from tests._postgres import NAMED, database_of_our_own

from .figures import Budget, Figure, tries

NAME = "kill"
TITLE = "a process shot with SIGKILL in the middle of a chat"
WEIGHT = 25

SCRIPT = Path(__file__).parent.parent / "_killing.py"
LINE = re.compile(r"(\d+) killed, (\d+) messages, (\d+) tool calls, (.*)")
DAMAGE = {
    "lost": "messages lost",
    "doubled": "messages doubled",
    "reordered": "conversations in another order",
    "ran twice": "tool calls that ran twice",
}


def figures(budget: Budget) -> Iterator[Figure]:
    if not hasattr(os, "fork"):
        yield Figure(NAME, "not tried: needs os.fork and SIGKILL", 0)
        return
    with ExitStack() as stack:
        place = Path(stack.enter_context(TemporaryDirectory()))
        urls = {"SQLite": f"sqlite:///{place}/chats.db"}
        try:
            urls["PostgreSQL"] = stack.enter_context(database_of_our_own("faults"))
        except Exception as exc:  # no server, or one that is not for us
            if NAMED:
                raise
            yield Figure(NAME, "PostgreSQL: not tried", 0, note=f"no server here: {exc}")
        for number, (kind, url) in enumerate(urls.items()):
            budget.tell(f"{kind} for {budget.left / (len(urls) - number):.0f} s")
            directory = place / kind
            directory.mkdir()
            yield from shot(kind, url, directory, budget.left / (len(urls) - number), budget)


def shot(kind: str, url: str, directory: Path, seconds: float, budget: Budget) -> Iterator[Figure]:
    """The figures of one kind of store."""
    command = [sys.executable, str(SCRIPT), url, str(10**6), str(budget.seed), str(directory)]
    done = subprocess.run([*command, str(max(1.0, seconds))], capture_output=True, text=True)
    found = LINE.fullmatch(done.stdout.strip())
    said = done.stderr.strip().rpartition("\n")[2]
    if found is None:
        yield Figure(NAME, f"{kind}: processes that could not be shot", 1, most=0, note=said)
        return
    kills, messages, calls = map(int, found.groups()[:3])
    yield tries(NAME, f"{kind}: kills", kills, note=f"{messages:,} messages, {calls:,} tool calls")
    yield from damaged(kind, directory)
    bad = int(done.returncode != 0)
    yield Figure(NAME, f"{kind}: conversations that did not go on", bad, most=0, note=said)


def damaged(kind: str, directory: Path) -> Iterator[Figure]:
    """What the processes that came after have found."""
    file = directory / "damage"
    found = [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []
    for name, what in DAMAGE.items():
        yield Figure(NAME, f"{kind}: {what}", sum(each[name] for each in found), most=0)
