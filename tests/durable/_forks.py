"""Processes that are forked from one that has imported their modules, and so start at once.

`python -m tests.durable._forks MODULE…` reads a line of JSON for each process: the arguments of
`main` of the first module. It answers with the number of the process.
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import signal
import subprocess
import sys
import time
from contextlib import suppress
from importlib import import_module
from pathlib import Path

ROOT = Path(__file__).parents[2]


class Forked:
    """A process, as `subprocess.Popen` has it, whose exit status nobody knows."""

    def __init__(self, pid: int) -> None:
        self.pid = pid

    def runs(self) -> bool:
        try:
            os.kill(self.pid, 0)
        except ProcessLookupError:
            return False
        return True

    def send_signal(self, number: int) -> None:
        with suppress(ProcessLookupError):
            os.kill(self.pid, number)

    def kill(self) -> None:
        """Kill it, and wait until it is gone."""
        self.send_signal(signal.SIGKILL)
        while self.runs():
            time.sleep(0.002)


class Forks:
    """The process that has imported these modules."""

    def __init__(self, *modules: str) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-P", "-m", "tests.durable._forks", *modules],
            cwd=ROOT,
            env={**os.environ, "PYTHONPATH": str(ROOT)},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )

    def begin(self, *arguments: str) -> Forked:
        """Begin a process with these arguments."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(arguments) + "\n")
        self._process.stdin.flush()
        return Forked(int(self._process.stdout.readline()))

    def close(self) -> None:
        self._process.communicate()


def main(module: str, *others: str) -> None:
    work = import_module(module).main
    for other in others:
        import_module(other)
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # the kernel forgets at once who has ended
    for line in sys.stdin:
        pid = os.fork()
        if pid:
            print(pid, flush=True)
            continue
        try:
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            nowhere = os.open(os.devnull, os.O_RDWR)
            os.dup2(nowhere, 0)
            os.dup2(nowhere, 1)
            random.seed()
            asyncio.run(work(*json.loads(line)))
        finally:
            os._exit(1)


if __name__ == "__main__":
    main(*sys.argv[1:])
