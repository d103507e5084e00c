"""Resume chats in another process, each with its kind of guard.

The process reads a line of JSON for each chat, and answers with the commands that ran.
"""

from __future__ import annotations

import asyncio
import atexit
import json
import os
import subprocess
import sys
from contextlib import suppress
from functools import cache
from pathlib import Path

from tests.guards.case import APPROVED, Case

from hookline.errors import HooklineError
from hookline.stores import SQLStore

ROOT = Path(__file__).resolve().parents[2]


@cache
def _process() -> subprocess.Popen[str]:
    """The process, which ends with its input."""
    process = subprocess.Popen(
        [sys.executable, "-P", "-m", "tests.guards.second_process"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), *sys.path])},
        text=True,
    )
    atexit.register(process.communicate)
    return process


def commands_that_ran(kind: str, url: str, requests: list[str]) -> list[str]:
    """Approve these requests in the other process."""
    process = _process()
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write(json.dumps([kind, url, requests]) + "\n")
    process.stdin.flush()
    ran: list[str] = json.loads(process.stdout.readline())
    return ran


async def _resume(kind: str, url: str, requests: list[str]) -> list[str]:
    case = Case(kind)
    with case.stack:
        async with SQLStore(url) as store:
            agent = case.agent("done", store=store)
            with suppress(HooklineError):
                await agent.resume("one", dict.fromkeys(requests, APPROVED), **case.keywords)
    return case.ran


def main() -> None:
    for line in sys.stdin:
        print(json.dumps(asyncio.run(_resume(*json.loads(line)))), flush=True)


if __name__ == "__main__":
    main()
