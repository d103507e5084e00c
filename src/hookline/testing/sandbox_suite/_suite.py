"""How an attack of the suite runs: the place that it runs in, and what is checked after it."""

from __future__ import annotations

import asyncio
import os
import secrets
import shutil
import signal
import socket
import stat
import tempfile
from contextlib import ExitStack, aclosing, suppress
from pathlib import Path
from subprocess import DEVNULL, Popen
from typing import Any, Final

import msgspec

from hookline.testing.sandbox_suite._attacks import COMMANDS, LIMITS
from hookline.workspace import CommandLimits, Sandbox, View

_PLACES: Final = ("OUTSIDE", "HIDDEN", "ENVIRONMENT")
_MARK: Final = "HOOKLINE_SUITE"
MANY: Final = 64
"""The number of processes that the suite's commands may have."""


class Attack(msgspec.Struct, frozen=True, kw_only=True):
    """A command that tries something, and what its output must contain."""

    group: str
    """What the attack is about, such as "masks"."""
    name: str
    """The attack, in a few words."""
    command: str
    """A line of bash; `{host}`, `{port}` and the like stand for places outside of the sandbox."""
    expects: str = "end"
    """A text that the output contains if the command ran and was refused."""
    limits: CommandLimits = CommandLimits(seconds=20, processes=MANY)
    """The limits of the command."""
    stopped: bool = False
    """Whether a limit stops the command."""

    def __str__(self) -> str:
        return f"{self.group}-{self.name}".replace(" ", "-")

    async def run(self, sandbox: Sandbox) -> None:
        """Run the attack; raises AssertionError if it succeeds, or leaves something behind."""
        with ExitStack() as stack:
            place = _Place(stack)
            command = place.filled(self.command)
            view = place.view
            job = await sandbox.start(command, view, self.limits)
            async with aclosing(job.output()) as output:
                text = b"".join([chunk async for chunk in output]).decode(errors="replace")
            await job.wait()
            assert bool(job.stopped) == self.stopped, (job.stopped, text[-2000:])
            place.check(text)
            assert self.expects in text, text[-2000:]
            await place.check_processes()


class _Place:
    """A workspace and its surroundings, for one attack."""

    def __init__(self, stack: ExitStack) -> None:
        self._token = secrets.token_hex(8)
        self._base = Path(tempfile.mkdtemp(prefix="hookline-suite-"))
        stack.callback(shutil.rmtree, self._base, ignore_errors=True)
        self._root = self._base / "project"
        self._outside = self._base / "outside"
        for folder in (self._root / "conf", self._root / ".git" / "hooks", self._outside):
            folder.mkdir(parents=True)
        (self._outside / "secret.txt").write_text(self._secret("OUTSIDE"))
        (self._root / "conf" / ".env").write_text(self._secret("HIDDEN"))
        (self._root / "a.txt").write_text("a")
        (self._root / ".git" / "config").write_text("[core]\n")
        (self._root / "link").symlink_to("../outside")
        self._before = self._state()
        os.environ[_MARK] = self._secret("ENVIRONMENT")
        stack.callback(os.environ.pop, _MARK, None)
        other = Popen(["sleep", "60"], stdin=DEVNULL)
        stack.callback(other.wait)
        stack.callback(other.kill)
        self._port = self._listen(stack, ("127.0.0.1", 0), socket.AF_INET).getsockname()[1]
        self._datagrams = stack.enter_context(socket.socket(type=socket.SOCK_DGRAM))
        self._datagrams.bind(("127.0.0.1", self._port))
        self._datagrams.setblocking(False)
        self._listen(stack, str(self._root / "daemon.sock"), socket.AF_UNIX)
        self._listen(stack, f"\0hookline-{self._token}", socket.AF_UNIX)
        fd = os.open(self._root, os.O_RDONLY | os.O_DIRECTORY)
        stack.callback(os.close, fd)
        self.view = View(
            root=str(self._root),
            fd=fd,
            read_only=(".git",),
            hidden=("conf/.env",),
            env={"GIVEN": "value"},
        )

    def filled(self, command: str) -> str:
        """Put the places into a command, and the token, by which its processes are known."""
        names = {"host": self._outside, "port": self._port, "token": self._token}
        for name, value in names.items():
            command = command.replace(f"{{{name}}}", str(value))
        return f"# {self._token}\n{command}"

    def check(self, text: str) -> None:
        """Raise if the output has a secret, or something has changed outside."""
        for place in _PLACES:
            assert self._secret(place) not in text, f"the command has read {place}"
        with suppress(BlockingIOError):
            raise AssertionError(f"the command has sent {self._datagrams.recv(9)!r}")
        assert self._state() == self._before, "the command has changed what it must not change"
        for folder, folders, files in os.walk(self._root):
            for name in (*folders, *files):
                mode = os.lstat(os.path.join(folder, name)).st_mode
                assert not mode & (stat.S_ISUID | stat.S_ISGID), f"{name} is set-id"
                assert not stat.S_ISBLK(mode) and not stat.S_ISCHR(mode), f"{name} is a device"

    async def check_processes(self) -> None:
        """Kill what the command has started, and raise, if it is still there after some seconds."""
        pids: list[str] = []
        for _ in range(100):
            pids = [pid for pid in os.listdir("/proc") if pid.isdigit() and self._started(pid)]
            if not pids:
                return
            await asyncio.sleep(0.05)
        for pid in pids:
            with suppress(ProcessLookupError):
                os.kill(int(pid), signal.SIGKILL)
        raise AssertionError(f"processes are left: {pids}")

    def _started(self, pid: str) -> bool:
        try:
            return self._token.encode() in Path("/proc", pid, "cmdline").read_bytes()
        except OSError:
            return False

    def _secret(self, place: str) -> str:
        return f"{place}-{self._token}"

    def _state(self) -> dict[str, Any]:
        paths = [self._outside, self._root / ".git", self._root / "conf" / ".env"]
        files = [file for path in paths for file in (path, *path.rglob("*"))]
        return {
            str(file): (file.stat().st_mode, file.read_bytes() if file.is_file() else b"")
            for file in files
            if file.exists()
        }

    @staticmethod
    def _listen(stack: ExitStack, address: Any, family: int) -> socket.socket:
        listener = stack.enter_context(socket.socket(family, socket.SOCK_STREAM))
        listener.bind(address)
        listener.listen(1)
        return listener


ATTACKS: Final = (
    *(
        Attack(group=group, name=name, command=command, expects=expects)
        for group, rows in COMMANDS.items()
        for name, command, expects in rows
    ),
    *(
        Attack(
            group="limits",
            name=name,
            command=command,
            expects=expects,
            stopped=stopped,
            limits=CommandLimits(**{"seconds": 20, "processes": MANY, **limits}),
        )
        for name, command, expects, limits, stopped in LIMITS
    ),
)
"""The attacks, in groups: view, masks, git, network, privileges, system calls and limits."""
