"""`Root`: the directory of a workspace, held open, and the files beneath it.

Renaming or replacing the directory later changes nothing here. Each function that takes `permit`
calls it with the path of what it has opened, after links, and before it reads or writes: a rule is
thus about the file itself, not about the name that somebody has written.
"""

from __future__ import annotations

import errno
import hashlib
import os
import stat
import sys
from collections.abc import Callable, Generator
from contextlib import contextmanager, suppress
from difflib import get_close_matches
from importlib import import_module
from os import PathLike
from typing import Any, Final, NamedTuple

from hookline.errors import ToolCallError, UsageError
from hookline.workspace._errors import (
    MissingError,
    NotAFileError,
    OutsideError,
    TooLargeError,
    WorkspaceClosedError,
)
from hookline.workspace._files.openat import (
    KERNEL,
    MAX_LINKS,
    O_PATH,
    link_target,
    openat2,
    walk,
)

MAX_BYTES: Final = 8 << 20
"""The most bytes of a file that a tool reads or writes."""
MAX_PATH: Final = 4096
_LEAVES: Final = (errno.EXDEV, errno.ELOOP)
_ABSENT: Final = (errno.ENOENT, errno.ENOTDIR)
Permit = Callable[[str], None]
"""Raises an error if the file with this path must not be used."""


class FileData(NamedTuple):
    """The content of a file, and what its path and mode were."""

    data: bytes
    digest: str
    mode: int
    path: str


def digest(data: bytes) -> str:
    """Return the digest by which the tools recognize a version of a file."""
    return hashlib.sha256(data).hexdigest()[:32]


def free(path: str) -> None:
    """The `permit` that permits everything."""


class Root:
    """A directory that is held open.

    Args:
        path: The directory.
        at: The absolute path that tools and commands use for it.
        kernel: Whether the kernel resolves paths.
    """

    def __init__(self, path: str | PathLike[str], at: str | None, *, kernel: bool = KERNEL) -> None:
        self.path = os.path.realpath(path)
        try:
            self._fd: int | None = os.open(self.path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        except OSError as exc:
            raise UsageError(
                f"the workspace {str(path)!r} cannot be opened ({exc.strerror}); pass the path of "
                "a folder"
            ) from exc
        self.at = at or self.path
        self.shows: Callable[[str], bool] = lambda path: True
        """Whether an error may name a file that perhaps was meant."""
        self._open = openat2 if kernel else walk

    @property
    def fd(self) -> int:
        """The descriptor of the directory; raises WorkspaceClosedError after `close`."""
        if self._fd is None:
            raise WorkspaceClosedError(
                "the workspace is closed; use it within its `async with` block"
            )
        return self._fd

    def close(self) -> None:
        """Close the directory."""
        if self._fd is not None:
            os.close(self._fd)
            self._fd = None

    # ── paths ───────────────────────────────────────────────────────────────────────────────

    def relative(self, path: str) -> str:
        """Return a path relative to the root; an absolute path must begin with `at`."""
        if not path or "\0" in path or len(os.fsencode(path)) > MAX_PATH:
            raise OutsideError(f"a path has 1 to {MAX_PATH} bytes and no NUL; pass another path")
        if path.startswith("/"):
            if path != self.at and not path.startswith(f"{self.at}/"):
                raise OutsideError(f"{path!r} is outside of the workspace; pass a relative path")
            path = path[len(self.at) :].lstrip("/")
        return path or "."

    def real(self, fd: int) -> str:
        """Return the path, after links, of a file that is open; "." for the root."""
        path, root = _path_of(fd), _path_of(self.fd)
        if path == root:
            return "."
        if not path.startswith(f"{root.rstrip('/')}/"):  # it was moved away after it was opened
            raise OutsideError("the file has left the workspace; pass another path")
        return path[len(root.rstrip("/")) + 1 :]

    def resolve(self, path: str) -> str | None:
        """Return where a path leads, after links; None if nothing is there."""
        try:
            with self.place(path) as (folder, name, real):
                os.stat(name, dir_fd=folder, follow_symlinks=False)
                return real
        except (MissingError, FileNotFoundError):
            return None

    @contextmanager
    def place(
        self, path: str, *, make: bool = False, permit: Permit = free
    ) -> Generator[tuple[int, str, str], None, None]:
        """Open the folder of a file, after links; yield it, the name, and the path of both.

        The path is not asked of the file itself: while programs replace the file, its content may
        already have another name.
        """
        path = self.relative(path).rstrip("/") or "."
        for _ in range(MAX_LINKS):
            above, _, name = path.rpartition("/")
            if name in ("", ".", ".."):
                with self.descriptor(path, os.O_RDONLY | os.O_DIRECTORY) as folder:
                    yield folder, ".", self.real(folder)
                return
            folder = (
                self.folder(above, permit)
                if make
                else self.open(above or ".", os.O_RDONLY | os.O_DIRECTORY)
            )
            try:
                real = self.real(folder)
                target = link_target(name, folder)
                if target is None:
                    yield folder, name, name if real == "." else f"{real}/{name}"
                    return
                if target.startswith("/"):
                    raise self._leaves(path)
                path = target if real == "." else f"{real}/{target}"
                path = path.rstrip("/")
            finally:
                os.close(folder)
        raise self._leaves(path)

    @contextmanager
    def descriptor(self, path: str, flags: int) -> Generator[int, None, None]:
        """Open a path beneath the root, and close it at the end of the block."""
        fd = self.open(path, flags)
        try:
            yield fd
        finally:
            os.close(fd)

    def open(self, path: str, flags: int) -> int:
        """Open a path beneath the root; the caller closes it."""
        path = self.relative(path)
        try:
            return self._open(self.fd, path, flags)
        except OSError as exc:
            raise self._unopened(path, exc) from None

    def _unopened(self, path: str, exc: OSError) -> ToolCallError:
        """Return the error for a path that cannot be opened."""
        if exc.errno in _LEAVES:
            return self._leaves(path)
        if exc.errno in _ABSENT:
            hint = self._names_near(self.relative(path))
            return MissingError(f"{path!r} does not exist{hint}")
        return NotAFileError(
            f"{path!r} cannot be opened ({os.strerror(exc.errno or 0)}); pass another path"
        )

    @staticmethod
    def _leaves(path: str) -> OutsideError:
        return OutsideError(
            f"{path!r} leads out of the workspace, by a link or by '..'; pass another path"
        )

    def _names_near(self, path: str) -> str:
        """Return the names that were perhaps meant, as a hint."""
        folder, _, name = path.rstrip("/").rpartition("/")
        try:
            fd = self._open(self.fd, folder or ".", os.O_RDONLY | os.O_DIRECTORY)
        except OSError:
            return "; list the folder above it" if folder else "; list the workspace"
        try:
            real = self.real(fd)
            prefix = "" if real == "." else f"{real}/"
            entries = [entry for entry in os.listdir(fd) if self.shows(prefix + entry)]
            matches = get_close_matches(name, entries, n=3, cutoff=0.5)
        finally:
            os.close(fd)
        prefix = f"{folder}/" if folder else ""
        names = " or ".join(repr(prefix + entry) for entry in matches)
        return f" (did you mean {names}?)" if names else "; list the folder"

    # ── files ───────────────────────────────────────────────────────────────────────────────

    def read(self, path: str, permit: Permit = free, limit: int = MAX_BYTES) -> FileData:
        """Read a regular file; a pipe or a device is never opened for reading."""
        with self.place(path) as (folder, name, real):
            handle = self._handle(folder, name, path)
            try:
                info = os.fstat(handle)
                if not stat.S_ISREG(info.st_mode):
                    kind = "a folder" if stat.S_ISDIR(info.st_mode) else "not a regular file"
                    raise NotAFileError(f"{path!r} is {kind}; pass the path of a regular file")
                permit(real)
                if info.st_size > limit:
                    raise TooLargeError(
                        f"{path!r} has {info.st_size:,} bytes, more than {limit:,}; search it with "
                        "grep, or take a part of it with a command"
                    )
                with os.fdopen(_for_reading(handle), "rb") as file:
                    data = file.read(limit + 1)  # the size may be wrong: the file may grow
            finally:
                os.close(handle)
        if len(data) > limit:
            raise TooLargeError(f"{path!r} grew over {limit:,} bytes; read it again later")
        return FileData(data, digest(data), info.st_mode, real)

    def _handle(self, folder: int, name: str, path: str) -> int:
        """Open a file of a folder by its path alone, where that is possible."""
        flags = O_PATH or os.O_RDONLY | os.O_NONBLOCK
        try:
            return os.open(name, flags | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=folder)
        except OSError as exc:  # for one, it has just become a link
            raise self._unopened(path, exc) from None

    def folder(self, path: str, permit: Permit = free) -> int:
        """Open a folder, made if it is missing, each component from the one above it."""
        try:
            return self.open(path or ".", os.O_RDONLY | os.O_DIRECTORY)
        except MissingError:
            parent, _, name = path.rstrip("/").rpartition("/")
            if name in ("", ".", ".."):
                raise
        above = self.folder(parent, permit)
        try:
            real = self.real(above)
            permit(name if real == "." else f"{real}/{name}")
            with suppress(FileExistsError):
                os.mkdir(name, 0o755, dir_fd=above)
            flags = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
            return os.open(name, flags, dir_fd=above)
        except OSError as exc:
            raise NotAFileError(
                f"{path!r} is not a folder ({os.strerror(exc.errno or 0)}); pass another path"
            ) from None
        finally:
            os.close(above)


def _for_reading(handle: int) -> int:
    """Open a file for reading that was opened by its path alone."""
    if not O_PATH:
        return os.dup(handle)
    try:
        return os.open(f"/proc/self/fd/{handle}", os.O_RDONLY | os.O_CLOEXEC)
    except OSError as exc:
        raise NotAFileError(
            f"the file cannot be read ({os.strerror(exc.errno or 0)}); pass another path"
        ) from None


def _path_of(fd: int) -> str:
    if sys.platform == "darwin":
        fcntl: Any = import_module("fcntl")  # Windows has none
        path: bytes = fcntl.fcntl(fd, fcntl.F_GETPATH, bytes(1024))
        return path.rstrip(b"\0").decode()
    return os.readlink(f"/proc/self/fd/{fd}")
