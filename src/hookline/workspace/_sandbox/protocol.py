"""What a sandbox is: the protocol of adapters, and the values that it takes.

`hookline.testing.sandbox_suite` checks the promises of an adapter: a command reads nothing outside
its view, has no network and no environment but its own, ends with everything that it started, and
leaves nothing behind.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping
from math import isfinite
from typing import Any, Protocol, runtime_checkable

import msgspec

from hookline.errors import UsageError


class CommandLimits(msgspec.Struct, frozen=True, kw_only=True):
    """The limits of one command. Raises UsageError for a limit that is not above 0."""

    seconds: float = 120.0
    """The time that a command may take; `bash(timeout=…)` can only lower it."""
    memory: int = 2 << 30
    """The bytes of memory of each process, and of all processes together."""
    processes: int = 256
    """The number of processes and threads."""
    file_bytes: int = 1 << 30
    """The bytes of each file that a command writes."""
    disk_bytes: int = 2 << 30
    """The bytes by which the free space of the disk may shrink while a command runs."""
    tmp_bytes: int = 256 << 20
    """The bytes of /tmp, which each command has for itself, in memory."""
    output_bytes: int = 64 << 20
    """The bytes that a command may print."""
    open_files: int = 1024
    """The number of open files of each process."""

    def __post_init__(self) -> None:
        for name in self.__struct_fields__:
            value: Any = getattr(self, name)
            number = isinstance(value, (int, float)) and not isinstance(value, bool)
            if not number or not value > 0 or not isfinite(value):
                raise UsageError(f"CommandLimits({name}={value!r}) must be a number above 0")
            if name != "seconds" and not isinstance(value, int):
                raise UsageError(f"CommandLimits({name}={value!r}) must be a whole number")


class View(msgspec.Struct, frozen=True, kw_only=True):
    """What a command sees of the workspace. Paths are relative to the root."""

    root: str
    """The path of the workspace on this machine."""
    fd: int
    """The workspace, held open; it stays the same if the path is renamed."""
    at: str = "/workspace"
    """The path at which a command sees the workspace."""
    cwd: str = "."
    """The folder in which the command starts."""
    read_only: tuple[str, ...] = ()
    """The files and folders that the command can read and not change; "." for everything."""
    hidden: tuple[str, ...] = ()
    """The files and folders that the command cannot read."""
    env: Mapping[str, str] = {}
    """Additional environment variables."""
    programs: Mapping[str, str] = {}
    """Programs of this machine that the command can run: path in the sandbox, path here."""


class Job(Protocol):
    """A command that runs. Whoever starts it reads `output` to its end, then calls `wait`."""

    @property
    def stopped(self) -> str:
        """Why the command was stopped, such as "after 120 s"; empty if it ended by itself."""
        ...

    def output(self) -> AsyncGenerator[bytes]:
        """Yield what the command prints, stdout and stderr in order, until it has ended."""
        ...

    async def wait(self) -> int:
        """Wait for the end of the command; returns its exit status."""
        ...

    def kill(self) -> None:
        """Kill the command and everything that it has started."""
        ...


@runtime_checkable
class Sandbox(Protocol):
    """Runs commands so that they reach their view and nothing else."""

    @property
    def name(self) -> str:
        """The name of the sandbox, for people."""
        ...

    @property
    def confines(self) -> bool:
        """Whether commands are confined; if False, each command needs an approval."""
        ...

    async def check(self) -> str | None:
        """Return None if commands can run here, else the reason and what to change."""
        ...

    async def start(self, command: str, view: View, limits: CommandLimits) -> Job:
        """Start a line of bash."""
        ...

    async def aclose(self) -> None:
        """Release everything that the sandbox holds."""
        ...
