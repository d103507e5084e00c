"""The chat whose call began last in a worker: a call that ends its process at once is this one.

A worker notes it in a file in the directory for temporary files, which outlives the process. The
file only decides which suspect begins first (see `deaths`), so nothing is lost without it.
"""

from __future__ import annotations

import os
import tempfile
import time
from contextlib import suppress
from hashlib import blake2b
from pathlib import Path
from typing import Final

from hookline.durable._polled.machine import is_gone, new_name

_PREFIX: Final = "hookline-call-"
_SIZE: Final = 512
_AGE: Final = 86_400.0  # seconds for which the file of a dead worker is kept


class LastCall:
    """The file of one worker."""

    def __init__(self, place: str) -> None:
        """`place` is that of the queue, whose workers read each other's files."""
        self._digest = blake2b(place.encode(), digest_size=8).hexdigest()
        self._path: Path | None = None
        self._fd = -1

    def open(self) -> None:
        """Create the file, if there can be one, and remove old files."""
        for path in _gone("*"):
            with suppress(OSError):
                if path.stat().st_mtime < time.time() - _AGE:
                    path.unlink()
        path = Path(tempfile.gettempdir(), f"{_PREFIX}{self._digest}-{new_name()}")
        with suppress(OSError, AttributeError):  # not on this system
            self._fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
            self._path = path

    def note(self, chat_id: str) -> None:
        """Note that a call of this chat begins."""
        if self._path is not None:
            with suppress(OSError):
                os.pwrite(self._fd, chat_id.encode()[:_SIZE].ljust(_SIZE, b"\0"), 0)

    def of_the_dead(self) -> set[str]:
        """Return the chats that workers of this machine noted last before they died."""
        chats: set[str] = set()
        for path in _gone(self._digest):
            with suppress(OSError):
                if not path.is_symlink() and path.stat().st_uid == os.geteuid():
                    chats.add(path.read_bytes()[:_SIZE].rstrip(b"\0").decode(errors="replace"))
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
