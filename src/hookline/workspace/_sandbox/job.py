"""A command that runs as a process of this machine, and the watch over what it uses.

The pipe of the output belongs to the job, not to asyncio's process, which would wait for the end of
the pipe too. That may never come: a process that survives the kill keeps the pipe open.
"""

from __future__ import annotations

import asyncio
import os
import signal
from asyncio.subprocess import Process
from collections.abc import AsyncGenerator, Iterator
from contextlib import suppress
from pathlib import Path
from subprocess import DEVNULL, STDOUT
from typing import Any, Final, Self

from hookline.workspace._sandbox.protocol import CommandLimits

CHUNK: Final = 65_536
LOOK: Final = 0.25
"""The seconds between two looks at what a command uses."""


class ProcessJob:
    """A process, the processes that it starts, and their output.

    Args:
        process: The process, with its own process group.
        reader: What the process and those that it starts print.
        pipe: The pipe that `reader` is fed from.
        limits: The limits that this class enforces: time, output, memory of all, and disk.
        fd: A descriptor on the disk that the command writes to.
    """

    def __init__(
        self,
        process: Process,
        reader: asyncio.StreamReader,
        pipe: asyncio.ReadTransport,
        limits: CommandLimits,
        fd: int,
    ) -> None:
        self.stopped = ""
        self._process = process
        self._reader = reader
        self._pipe = pipe
        self._limits = limits
        self._fd = fd
        self._until = asyncio.get_running_loop().time() + limits.seconds
        self._watch = asyncio.create_task(self._look(), name="hookline: watches a command")

    @classmethod
    async def start(cls, *arguments: str, limits: CommandLimits, fd: int, **options: Any) -> Self:
        """Start a process; `options` are those of `asyncio.create_subprocess_exec`."""
        reading, writing = os.pipe()
        try:
            reader = asyncio.StreamReader()
            pipe, _ = await asyncio.get_running_loop().connect_read_pipe(
                lambda: asyncio.StreamReaderProtocol(reader), os.fdopen(reading, "rb", 0)
            )
            try:
                process = await asyncio.create_subprocess_exec(
                    *arguments,
                    stdin=DEVNULL,
                    stdout=writing,
                    stderr=STDOUT,
                    start_new_session=True,
                    **options,
                )
            except BaseException:
                pipe.close()
                raise
        finally:
            os.close(writing)
        return cls(process, reader, pipe, limits, fd)

    async def output(self) -> AsyncGenerator[bytes]:
        """Yield what the command prints, until it has ended or a limit stops it."""
        size = 0
        try:
            while chunk := await self._read():
                size += len(chunk)
                yield chunk
                if size > self._limits.output_bytes:
                    self._stop(f"after {size:,} bytes of output")
        finally:
            self._end()

    async def wait(self) -> int:
        """Wait for the end of the command; returns its exit status."""
        self._end()
        return await self._process.wait()

    def kill(self) -> None:
        """Kill the process group; a sandbox makes sure that everything else ends with it."""
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(self._process.pid, signal.SIGKILL)

    async def _read(self) -> bytes:
        """Read what was printed; b"" at the end, and when the command has ended and is silent."""
        while True:
            seconds = self._until - asyncio.get_running_loop().time()
            try:
                return await asyncio.wait_for(self._reader.read(CHUNK), max(min(seconds, LOOK), 0))
            except TimeoutError:
                if self._process.returncode is not None:
                    self._pipe.close()  # a process that is left keeps it open
                    return await self._reader.read(CHUNK)
                if seconds <= LOOK:
                    self._stop(f"after {self._limits.seconds:g} s")
                    return b""

    def _stop(self, why: str) -> None:
        self.stopped = self.stopped or why
        self.kill()

    def _end(self) -> None:
        self._watch.cancel()
        self.kill()
        self._pipe.close()

    async def _look(self) -> None:
        """Stop the command if all its processes use too much memory, or fill the disk."""
        try:
            free = _free(self._fd)
            while True:
                await asyncio.sleep(LOOK)
                if self._process.returncode is not None:  # what it has left behind keeps the pipe
                    return self.kill()
                memory = sum(map(_resident, _tree(self._process.pid)))
                if memory > self._limits.memory:
                    return self._stop(f"at {memory >> 20:,} MiB of memory")
                if free - _free(self._fd) > self._limits.disk_bytes:
                    return self._stop("because the disk was filling up")
        except OSError:  # the workspace was closed: its jobs have been killed
            self.kill()


def _free(fd: int) -> int:
    info = os.fstatvfs(fd)
    return info.f_bavail * info.f_frsize


def _tree(pid: int) -> Iterator[int]:
    """Yield a process and all processes below it."""
    pids = [pid]
    while pids:
        pid = pids.pop()
        yield pid
        with suppress(OSError):
            for thread in Path(f"/proc/{pid}/task").iterdir():
                pids += map(int, (thread / "children").read_text().split())


def _resident(pid: int) -> int:
    """Return the bytes of memory that a process holds; 0 if it has ended, or without /proc."""
    try:
        pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    except (OSError, IndexError):
        return 0
    return pages * os.sysconf("SC_PAGE_SIZE")


def limited(limits: CommandLimits, *, processes: bool) -> str:
    """Return a line of bash that sets the limits of a process and runs the command in `$1`.

    Without a user namespace, `processes` would count all processes of the user.
    """
    count = f" -u {limits.processes}" if processes else ""
    return (
        f"ulimit -c 0 -d {limits.memory >> 10} -f {limits.file_bytes >> 10} "
        f"-n {limits.open_files}{count} || exit 125; umask 022; "
        'exec /bin/bash --norc --noprofile -c "$1"'
    )
