"""Two forms of rename that lose nothing: never over a file, and an exchange of two files."""

from __future__ import annotations

import ctypes
import errno
import os
import sys
from typing import Final

from hookline.workspace._files.openat import libc

_LINUX: Final = ("renameat2", 1, 2)
_MACOS: Final = ("renameatx_np", 4, 2)


def rename_new(at: int, old: str, new: str) -> None:
    """Rename within a folder; raises FileExistsError if the new name is taken."""
    _rename(at, old, new, exchange=False)


def exchange(at: int, one: str, other: str) -> None:
    """Exchange two files of a folder in one step; raises FileNotFoundError if one is missing."""
    _rename(at, one, other, exchange=True)


def _rename(at: int, old: str, new: str, *, exchange: bool) -> None:
    name, no_replace, swap = _MACOS if sys.platform == "darwin" else _LINUX
    call = getattr(libc(), name, None)
    if call is None:
        raise _error(errno.ENOSYS)
    if call(at, os.fsencode(old), at, os.fsencode(new), swap if exchange else no_replace):
        raise _error(ctypes.get_errno())


def _error(code: int) -> OSError:
    return OSError(code, os.strerror(code))
