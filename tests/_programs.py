"""The command `hookline` in forks of one process that has imported it, and so starts at once.

A fork has its own folder, environment, standard streams and session, and ends as Python ends. What
it does not do is start Python: a test of that runs `program` of `tests/_terminal.py`.

The process of the forks reads a line of JSON for each program from its stdin, a socket, which also
brings the three streams and a pipe. The pipe gets the number of the program, then its exit status.
"""

from __future__ import annotations

import atexit
import fcntl
import gc
import json
import os
import random
import select
import signal
import socket
import struct
import subprocess
import sys
import termios
from collections.abc import Sequence
from contextlib import suppress
from functools import cache, partial
from importlib import import_module
from pathlib import Path
from tempfile import TemporaryFile

from tests._terminal import PATIENCE, Terminal, environment

from hookline.cli import main

ROOT = Path(__file__).parents[1]
COMMANDS = ("approvals", "chat", "conversations", "hooks", "init", "replay")
IMPORTED = (
    "hookline.cli._main",
    *(f"hookline.cli._commands.{name}" for name in COMMANDS),
    *("hookline.stores", "hookline.testing"),
)
NUMBER = struct.Struct("i")


class Program:
    """A running command, as `subprocess.Popen` has it."""

    def __init__(
        self, arguments: Sequence[str], folder: Path, streams: Sequence[int], **env: str
    ) -> None:
        request = {"arguments": arguments, "folder": str(folder), "env": environment(**env)}
        self._pipe, theirs = os.pipe()
        socket.send_fds(_forks(), [json.dumps(request).encode() + b"\n"], [*streams, theirs])
        os.close(theirs)
        self.returncode: int | None = None
        self.pid = self._number(PATIENCE)

    def _number(self, seconds: float) -> int:
        if not select.select([self._pipe], [], [], seconds)[0]:
            raise subprocess.TimeoutExpired("hookline", seconds)
        number: int
        (number,) = NUMBER.unpack(os.read(self._pipe, NUMBER.size))
        return number

    def wait(self, timeout: float = PATIENCE) -> int:
        if self.returncode is None:
            self.returncode = self._number(timeout)
            os.close(self._pipe)
        return self.returncode

    def poll(self) -> int | None:
        try:
            return self.wait(0)
        except subprocess.TimeoutExpired:
            return None

    def send_signal(self, number: int) -> None:
        if self.poll() is None:
            os.kill(self.pid, number)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)


def run(
    folder: Path, *arguments: str, stdin: str = "", **env: str
) -> subprocess.CompletedProcess[str]:
    """The command without a terminal, to its end."""
    with TemporaryFile() as source, TemporaryFile() as out, TemporaryFile() as err:
        source.write(stdin.encode())
        source.seek(0)
        streams = [file.fileno() for file in (source, out, err)]
        status = Program(arguments, folder, streams, **env).wait()
        for file in (out, err):
            file.seek(0)
        texts = [file.read().decode() for file in (out, err)]
    return subprocess.CompletedProcess(arguments, status, *texts)


def in_terminal(
    folder: Path, *arguments: str, columns: int = 80, rows: int = 50, **env: str
) -> Terminal:
    """The command in a terminal of its own."""

    def start(theirs: int) -> Program:
        return Program(arguments, folder, [theirs] * 3, **env)

    return Terminal(start, folder, columns=columns, rows=rows)


@cache
def _forks() -> socket.socket:
    """The socket of the process that forks; the process ends when the socket is closed."""
    ours, theirs = socket.socketpair()
    more = os.environ.get("PYTHONPATH")
    pid = os.posix_spawn(
        sys.executable,
        [sys.executable, "-P", "-W", "error", "-m", "tests._programs"],
        {**environment(), "PYTHONPATH": os.pathsep.join(filter(None, [str(ROOT), more]))},
        file_actions=[(os.POSIX_SPAWN_DUP2, theirs.fileno(), 0)],
    )
    theirs.close()

    def end() -> None:
        ours.close()
        os.waitpid(pid, 0)

    atexit.register(end)
    return ours


# ── the process that forks ──────────────────────────────────────────────────────────────────


def next_program() -> list[str]:
    """Fork for each request; returns in a fork, as the program with these arguments."""
    requests = socket.socket(fileno=os.dup(0))
    while True:
        data, files, _, _ = socket.recv_fds(requests, 1 << 20, 4)
        while data and not data.endswith(b"\n"):
            data += requests.recv(1 << 20)
        _forget_the_ended()
        if not data:
            os._exit(0)
        if not os.fork():
            break
        for file in files:
            os.close(file)
    requests.close()
    *streams, pipe = files
    if pid := os.fork():
        _report(pid, streams, pipe)
    os.close(pipe)
    request = json.loads(data)
    _become(streams, request["folder"], request["env"])
    arguments: list[str] = request["arguments"]
    return arguments


def _forget_the_ended() -> None:
    with suppress(ChildProcessError):
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass


def _report(pid: int, streams: Sequence[int], pipe: int) -> None:
    """Tell the number of the program and its exit status, then end."""
    for stream in streams:
        os.close(stream)  # or its reader would not see the end
    os.write(pipe, NUMBER.pack(pid))
    _, status = os.waitpid(pid, 0)
    os.write(pipe, NUMBER.pack(os.waitstatus_to_exitcode(status)))
    os._exit(0)


def _become(streams: Sequence[int], folder: str, env: dict[str, str]) -> None:
    """Be as Python is after its start in this folder."""
    os.setsid()
    if os.isatty(streams[0]):
        fcntl.ioctl(streams[0], termios.TIOCSCTTY, 0)
    for place, stream in enumerate(streams):
        os.dup2(stream, place)
        os.close(stream)
    text = partial(open, encoding="utf-8", closefd=False)
    sys.stdin, sys.stdout = text(0), text(1, "w")
    sys.stderr = text(2, "w", buffering=1, errors="backslashreplace")
    signal.signal(signal.SIGINT, signal.default_int_handler)
    os.chdir(folder)
    os.environ.clear()
    os.environ.update(env)
    sys.path[0] = folder  # instead of ROOT
    random.seed()


if __name__ == "__main__":
    for module in IMPORTED:
        import_module(module)
    gc.freeze()
    sys.exit(main(next_program()))
