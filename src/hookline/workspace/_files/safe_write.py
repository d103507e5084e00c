"""Write a file so that no version of any writer is lost.

The new bytes go to a temporary file in the same folder, which is then exchanged with the old file
in one step. What comes out of the exchange is looked at: if it is not the version that the caller
has read, the two are exchanged back. If a third writer came between both exchanges, its version
stays beside the file, with `.conflict-N` in its name.
"""

from __future__ import annotations

import errno
import os
import re
import stat
from contextlib import suppress
from typing import Final

from hookline.workspace._errors import (
    ChangedError,
    NotAFileError,
    NotReadError,
    TooLargeError,
)
from hookline.workspace._files.openat import exchange, rename_free, rename_new
from hookline.workspace._files.root import MAX_BYTES, Permit, Root, digest, free

_TEMPORARY: Final = re.compile(r"(?:.*/)?\.hookline-[0-9a-f]{16}", re.DOTALL)


def replace(
    root: Root, path: str, data: bytes, *, expect: str | None, permit: Permit = free
) -> None:
    """Put `data` at the path if the file there has the digest `expect`.

    None: the file must not exist. A link is followed, and stays. The mode of the file is kept,
    without the bits that change the user.
    """
    if len(data) > MAX_BYTES:
        raise TooLargeError(
            f"the text has {len(data):,} bytes, more than {MAX_BYTES:,}; write several files"
        )
    temporary = f".hookline-{os.urandom(8).hex()}"
    with root.place(path, make=True, permit=permit) as (folder, name, real):
        permit(real)
        mode = _mode(folder, name, path)
        try:
            _write(folder, temporary, data, mode)
            if expect is None:
                rename_new(folder, temporary, name)
            else:
                exchange(folder, temporary, name)
                _look(folder, temporary, name, path, expect, digest(data))
        except OSError as exc:
            raise _error(exc, path) from None
        finally:
            with suppress(OSError):
                os.unlink(temporary, dir_fd=folder)


def is_temporary(path: str) -> bool:
    """Return whether a file is one that `replace` makes, and leaves behind if it is killed."""
    return _TEMPORARY.fullmatch(path) is not None


def _mode(folder: int, name: str, path: str) -> int:
    """Return the mode of a file, without the bits that change the user."""
    try:
        info = os.stat(name, dir_fd=folder, follow_symlinks=False)
    except FileNotFoundError:
        return 0o644
    if not stat.S_ISREG(info.st_mode):
        raise NotAFileError(f"{path!r} is not a regular file; pass another path")
    return stat.S_IMODE(info.st_mode) & 0o777


def _write(folder: int, name: str, data: bytes, mode: int) -> None:
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    try:
        with os.fdopen(os.open(name, flags, 0o600, dir_fd=folder), "wb") as file:
            file.write(data)
            file.flush()
            os.fchmod(file.fileno(), mode)
            os.fsync(file.fileno())
    except OSError as exc:
        raise NotAFileError(
            f"the file cannot be written ({os.strerror(exc.errno or 0)}); tell the user"
        ) from None


def _look(folder: int, old: str, name: str, path: str, expect: str, own: str) -> None:
    """Look at the version that came out; if it is another one, put it back and raise."""
    if _digest_of(folder, old) == expect:
        return
    exchange(folder, old, name)
    note = ""
    if _digest_of(folder, old) != own:  # somebody wrote between the two exchanges
        conflict = rename_free(folder, old, f"{name[:200]}.conflict")
        note = f"; another writer's version is in {conflict!r} beside it"
    raise ChangedError(f"{path!r} has changed since it was read{note}; read it again")


def _digest_of(folder: int, name: str) -> str | None:
    """Return the digest of a file, or None if it is no regular file, or too large."""
    flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    try:
        with os.fdopen(os.open(name, flags, dir_fd=folder), "rb") as file:
            if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                return None
            return digest(file.read(MAX_BYTES + 1))
    except OSError:
        return None


def _error(exc: OSError, path: str) -> Exception:
    if exc.errno == errno.EEXIST:
        return NotReadError(f"{path!r} exists; read it before you write it")
    if exc.errno == errno.ENOENT:
        return ChangedError(f"{path!r} was removed since it was read; write it as a new file")
    if exc.errno in (errno.EINVAL, errno.ENOSYS):
        return NotAFileError(
            f"{path!r} is on a file system that cannot exchange two files; tell the user to move "
            "the workspace"
        )
    return NotAFileError(f"{path!r} cannot be written ({os.strerror(exc.errno or 0)})")
