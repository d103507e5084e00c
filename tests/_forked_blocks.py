"""Programs, each in a process that is forked from one that has imported its modules.

Each has its own `__main__`, folder, output and end, as in an interpreter of its own; only the
imports of these modules are not repeated. `python tests/_forked_blocks.py MODULE…` reads a line of
JSON for each program, and answers with its exit status.
"""

from __future__ import annotations

import gc
import json
import os
import signal
import subprocess
import sys
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any


class Programs:
    """The process that has imported these modules, where a warning is an error."""

    def __init__(self, *modules: str, env: dict[str, str]) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-P", "-W", "error", __file__, *modules],
            env=env,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )

    def run(self, path: Path, cwd: Path) -> subprocess.CompletedProcess[str]:
        """Run a program, and wait for its end."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        streams = [f"{path}.stdout", f"{path}.stderr"]
        try:
            self._process.stdin.write(json.dumps([str(path), str(cwd), *streams]) + "\n")
            self._process.stdin.flush()
            status = int(self._process.stdout.readline())
        except BaseException:  # the time of a test is over: no other may read the status
            self.close()
            raise
        return subprocess.CompletedProcess(
            [str(path)], status, *(Path(name).read_text(encoding="utf-8") for name in streams)
        )

    def close(self) -> None:
        """End the process, and a program that has not ended."""
        if self._process.poll() is None:
            os.killpg(self._process.pid, signal.SIGKILL)
            self._process.communicate()


def _run(path: str, cwd: str, *streams: str) -> None:
    """Turn this process into the program's."""
    for number, name in enumerate((os.devnull, *streams)):
        descriptor = os.open(name, os.O_RDWR | os.O_CREAT | os.O_TRUNC)
        os.dup2(descriptor, number)
        os.close(descriptor)
    os.chdir(cwd)
    sys.argv = [path]
    sys.path.insert(0, str(Path(path).parent))
    main: Any = ModuleType("__main__")
    main.__file__ = path
    sys.modules["__main__"] = main
    exec(compile(Path(path).read_text(encoding="utf-8"), path, "exec"), vars(main))


def main(*modules: str) -> None:
    for name in modules:
        import_module(name)
    gc.freeze()  # the programs share this memory, and pass over it at their end
    for line in sys.stdin:
        pid = os.fork()
        if not pid:
            _run(*json.loads(line))
            return
        print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
