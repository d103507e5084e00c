"""Open a path beneath a directory that is held open: no link and no `..` leads out of it. Rename
within a folder, without a loss: never over a file, or as an exchange of two files.

On Linux the kernel does this (`openat2` with RESOLVE_BENEATH). Elsewhere, `walk` opens one
component at a time with O_NOFOLLOW and reads links itself. Neither checks a path first and opens it
later, so no change in between can lead out. Both raise OSError with EXDEV for a path that leaves.
"""

from __future__ import annotations

import ctypes
import errno
import os
import sys
from contextlib import ExitStack
from typing import Any, Final

O_PATH: Final = getattr(os, "O_PATH", 0)  # opens a file without the right to read it
MAX_LINKS: Final = 40
_SYS_OPENAT2: Final = 437  # the same number on all architectures
_BENEATH_NO_MAGIC_LINKS: Final = 0x08 | 0x02
_AT_FDCWD: Final = -100
_LINUX: Final = ("renameat2", 1, 2)  # the flags: not over a file, exchange
_MACOS: Final = ("renameatx_np", 4, 2)
_RETRY: Final = (errno.EAGAIN, errno.EINTR)  # EAGAIN: a rename raced with '..'


class _How(ctypes.Structure):
    _fields_ = (
        ("flags", ctypes.c_uint64),
        ("mode", ctypes.c_uint64),
        ("resolve", ctypes.c_uint64),
    )


def libc() -> Any:
    """Return the C library of this process."""
    return ctypes.CDLL(None, use_errno=True)


def openat2(at: int, path: str, flags: int) -> int:
    """Open a path beneath the directory `at`, with the kernel's own resolution."""
    how = _How(flags | os.O_CLOEXEC, 0, _BENEATH_NO_MAGIC_LINKS)
    call = libc().syscall
    while True:
        fd: int = call(_SYS_OPENAT2, at, os.fsencode(path), ctypes.byref(how), ctypes.sizeof(how))
        if fd >= 0:
            return fd
        code = ctypes.get_errno()
        if code not in _RETRY:
            raise _error(code)


def walk(at: int, path: str, flags: int) -> int:
    """Open a path beneath the directory `at`, one component after the other."""
    with ExitStack() as stack:
        folders = [at]  # from the root to the folder that the next component is looked up in
        parts, links = path.split("/")[::-1], 0
        while parts:
            part = parts.pop()
            if part in ("", "."):
                continue
            if part == "..":
                folders.pop()
                if not folders:
                    raise _error(errno.EXDEV)
                continue
            target = link_target(part, folders[-1])
            if target is not None:
                links += 1
                _check_link(target, links, last=not any(parts), flags=flags)
                parts += target.split("/")[::-1]
                continue
            how = (O_PATH or os.O_RDONLY) | os.O_DIRECTORY if parts else flags
            fd = os.open(part, how | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=folders[-1])
            if not parts:
                return fd
            stack.callback(os.close, fd)
            folders.append(fd)
        return os.open(".", flags | os.O_CLOEXEC, dir_fd=folders[-1])


def _check_link(target: str, links: int, *, last: bool, flags: int) -> None:
    """Raise if a link must not be followed."""
    if links > MAX_LINKS or (last and flags & os.O_NOFOLLOW):
        raise _error(errno.ELOOP)
    if target.startswith("/"):
        raise _error(errno.EXDEV)


def rename_new(at: int, old: str, new: str) -> None:
    """Rename within a folder; raises FileExistsError if the new name is taken."""
    _rename(at, old, new, exchange=False)


def rename_free(at: int, old: str, stem: str) -> str:
    """Rename within a folder to `stem-N`, with the lowest N that is free; return the new name."""
    number = 1
    while True:
        new = f"{stem}-{number}"
        try:
            rename_new(at, old, new)
        except FileExistsError:
            number += 1
        else:
            return new


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


def link_target(name: str, folder: int) -> str | None:
    """Return the target of a link, or None if the name is not a link, or does not exist."""
    try:
        return os.readlink(name, dir_fd=folder)
    except OSError as exc:
        if exc.errno not in (errno.EINVAL, errno.ENOENT):
            raise
        return None


def _has_openat2() -> bool:
    try:
        os.close(openat2(_AT_FDCWD, ".", O_PATH))
    except OSError:
        return False
    return True


KERNEL: Final = sys.platform == "linux" and _has_openat2()
"""Whether the kernel resolves paths: Linux 5.6 and later, unless a container forbids the call."""
