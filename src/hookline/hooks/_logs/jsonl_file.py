"""A file of JSON lines that is only appended to, by any number of threads and programs.

Each line is written with a single system call. If a kill cuts off a line during that call, the
fragment stays on a line of its own: the next line begins on a new line.
"""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec

from hookline import Run

if sys.platform != "win32":
    import fcntl

    def _lock(file: int) -> None:
        """Lock the file against other writers until it is closed."""
        fcntl.flock(file, fcntl.LOCK_EX)

else:

    def _lock(file: int) -> None:
        """Do nothing: Windows keeps appended lines apart."""


class Lines:
    """The file. It is opened for each line, so it can be moved away at any time."""

    def __init__(self, path: Path, fsync: bool, clock: Callable[[], float]) -> None:
        self._path = path
        self._fsync = fsync
        self._clock = clock

    async def add(self, run: Run[Any], what: str, **more: Any) -> None:
        line: dict[str, Any] = {
            "at": self._clock(),
            "what": what,
            "agent": run.agent,
            "chat": run.chat_id,
            "conversation": run.conversation_id,
            "parent": run.parent_chat_id,
            **more,
        }
        data = msgspec.json.encode({key: value for key, value in line.items() if value is not None})
        await asyncio.to_thread(self._write, data + b"\n")

    def _write(self, data: bytes) -> None:
        flags = os.O_RDWR | os.O_APPEND | os.O_CREAT | getattr(os, "O_BINARY", 0)
        file = os.open(self._path, flags, 0o600)
        try:
            _lock(file)
            if os.lseek(file, 0, os.SEEK_END):
                os.lseek(file, -1, os.SEEK_END)
                data = data if os.read(file, 1) == b"\n" else b"\n" + data
            size = os.write(file, data)
            if size != len(data):
                raise OSError(
                    f"only {size} of {len(data)} bytes were written to {self._path}: make room "
                    "on the disk"
                )
            if self._fsync:
                os.fsync(file)
        finally:
            os.close(file)
