"""What workers of the same machine know of each other: whose process is gone, and its last call.

A call that ends its process at once is the one that began last. So each worker notes the chat of
its last call in a file in the directory for temporary files, which outlives the process. The file
only decides which suspect begins first (see `deaths`): nothing is lost without it.
"""

from __future__ import annotations

import os
import tempfile
import time
from contextlib import suppress
from functools import lru_cache
from hashlib import blake2b
from pathlib import Path
from typing import Final

_BOOT: Final = Path("/proc/sys/kernel/random/boot_id")
_PROCESSES: Final = "/proc/self/ns/pid"
_PREFIX: Final = "hookline-call-"
_SIZE: Final = 512
_AGE: Final = 86_400.0  # seconds for which the file of a dead worker is kept


@lru_cache(maxsize=1)
def boot() -> str:
    """Return a name for the time since this machine was started, where the system has one."""
    try:
        return f"{_BOOT.read_text().strip()[:8]}-"
    except OSError:
        return ""


@lru_cache(maxsize=1)
def _place() -> str:
    """Return a name for the processes that this one can see, where the system has one."""
    try:
        seen = f"{_BOOT.read_text()}{os.readlink(_PROCESSES)}"
    except OSError:
        return ""
    return blake2b(seen.encode(), digest_size=4).hexdigest()


def new_name() -> str:
    """Return a name for a worker of this process."""
    return f"{_place()}-{os.getpid()}-{os.urandom(5).hex()}"


def is_gone(name: str) -> bool:
    """Return whether a worker is known to be gone: its process ran here, and has ended."""
    place, _, rest = name.partition("-")
    pid, _, _ = rest.partition("-")
    if not place or place != _place() or not pid.isdecimal():
        return False
    try:
        os.kill(int(pid), 0)
    except ProcessLookupError:
        return True
    except OSError:
        return False
    return False


class LastCall:
    """The file of one worker."""

    def __init__(self, place: str) -> None:
        """`place` is that of the queue, whose workers read each other's files."""
        self.worker = ""
        """The name of the worker, once the file is open."""
        self._digest = blake2b(place.encode(), digest_size=8).hexdigest()
        self._path: Path | None = None
        self._fd = -1

    def open(self) -> None:
        """Name the worker, create the file, if there can be one, and remove old files."""
        for path in _gone("*"):
            with suppress(OSError):
                if path.stat().st_mtime < time.time() - _AGE:
                    path.unlink()
        self.worker = new_name()
        path = Path(tempfile.gettempdir(), f"{_PREFIX}{self._digest}-{self.worker}")
        with suppress(OSError, AttributeError):  # not on this system
            self._fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
            self._path = path

    def note(self, chat_id: str) -> None:
        """Note that a call of this chat begins."""
        if self._path is not None:
            with suppress(OSError):
                os.pwrite(self._fd, chat_id.encode()[:_SIZE].ljust(_SIZE, b"\0"), 0)

    def take_dead(self) -> set[str]:
        """Return the chats that workers of this machine noted last before they died, once."""
        chats: set[str] = set()
        for path in _gone(self._digest):
            with suppress(OSError):
                if not path.is_symlink() and path.stat().st_uid == os.geteuid():
                    chats.add(path.read_bytes()[:_SIZE].rstrip(b"\0").decode(errors="replace"))
                    path.unlink()
        return chats - {""}

    def close(self) -> None:
        """Remove the file."""
        path, self._path = self._path, None
        if path is not None:
            os.close(self._fd)
            path.unlink(missing_ok=True)


def _gone(digest: str) -> list[Path]:
    """Return the files of workers of these queues whose processes are gone."""
    files = Path(tempfile.gettempdir()).glob(f"{_PREFIX}{digest}-*")
    return [file for file in files if is_gone(file.name.removeprefix(_PREFIX).partition("-")[2])]
