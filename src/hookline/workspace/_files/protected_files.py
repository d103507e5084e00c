"""Find the protected and the hidden files of a workspace, before and after each command.

The first scan lists every folder. A later one lists only folders that have changed since: a new,
renamed or removed name changes the times of its folder, which no command can set back.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterable
from contextlib import suppress
from typing import Final, NamedTuple

from hookline.errors import ToolCallError
from hookline.workspace._errors import TooLargeError
from hookline.workspace._files.access import Access
from hookline.workspace._files.openat import rename_free
from hookline.workspace._files.root import Root

MAX_MARKS: Final = 400
"""The most files that are mounts of their own, in one command."""
_FRESH: Final = 2_000_000_000  # ns: a folder that changed so recently may change unseen


class Mark(NamedTuple):
    """A file or folder with a protected or hidden name, and which one it is."""

    path: str
    identity: tuple[int, int]
    is_link: bool
    is_hidden: bool


class _Folder(NamedTuple):
    stamp: tuple[int, int, int]
    folders: tuple[str, ...]
    marks: tuple[Mark, ...]
    seen_at: int


class Scan:
    """The marks of a workspace, kept up to date."""

    def __init__(self, access: Access) -> None:
        self._access = access
        self._root: Root = access.root
        self._folders: dict[str, _Folder] = {}

    def marks(self) -> tuple[Mark, ...]:
        """Return the protected and hidden files and folders; nothing beneath them is listed."""
        folders: dict[str, _Folder] = {}
        marks: list[Mark] = []
        paths = ["."]
        while paths:
            path = paths.pop()
            with suppress(ToolCallError, OSError):  # it was removed or replaced meanwhile
                folder = folders[path] = self._look(path)
                marks += folder.marks
                paths += folder.folders
        self._folders = folders
        return tuple(sorted(marks))

    def view(self, marks: Iterable[Mark]) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """Return what a command can only read, and what it cannot read; links are followed.

        Raises TooLargeError if that is more than a sandbox takes.
        """
        sets: tuple[dict[str, None], dict[str, None]] = ({}, {})
        for mark in marks:
            path: str | None = mark.path
            if mark.is_link:
                path = None
                with suppress(ToolCallError):
                    path = self._root.resolve(mark.path)
            if path is not None and path != ".":
                sets[mark.is_hidden][path] = None
        if len(sets[0]) + len(sets[1]) > MAX_MARKS:
            raise TooLargeError(
                f"more than {MAX_MARKS} files are denied or protected; tell the user to deny "
                "folders instead of files"
            )
        return tuple(sets[0]), tuple(sets[1])

    def hold_back(self, before: Iterable[Mark]) -> list[tuple[str, str]]:
        """Rename each protected file or folder that a command has made; return old and new."""
        earlier = {(mark.path, mark.identity) for mark in before}
        renamed: list[tuple[str, str]] = []
        for mark in self.marks():
            if mark.is_hidden or (mark.path, mark.identity) in earlier:
                continue
            new = self._rename(mark.path)
            if new is not None:
                renamed.append((mark.path, new))
        return renamed

    def _rename(self, path: str) -> str | None:
        above, _, name = path.rpartition("/")
        with self._root.descriptor(
            above or ".", os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW
        ) as folder:
            try:
                new = rename_free(folder, name, f"{name}.held")
            except FileNotFoundError:
                return None
        return f"{above}/{new}" if above else new

    def _look(self, path: str) -> _Folder:
        with self._root.descriptor(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW) as fd:
            info = os.fstat(fd)
            stamp = (info.st_ino, info.st_ctime_ns, info.st_mtime_ns)
            folder = self._folders.get(path)
            if (
                folder is not None
                and folder.stamp == stamp
                and folder.seen_at - info.st_ctime_ns > _FRESH
            ):
                return folder
            seen_at = time.time_ns()
            with os.scandir(fd) as entries:
                return self._folder(path, stamp, seen_at, list(entries))

    def _folder(
        self, path: str, stamp: tuple[int, int, int], seen_at: int, entries: list[os.DirEntry[str]]
    ) -> _Folder:
        folders: list[str] = []
        marks: list[Mark] = []
        prefix = "" if path == "." else f"{path}/"
        rules = self._access.rules
        inside = self._access.protects(path)  # it is a mark already, but not what is hidden in it
        for entry in entries:
            name = f"{prefix}{entry.name}"
            is_hidden = rules.hides(name)
            protected = not inside and self._access.protects(name)
            if is_hidden or protected:
                marks.append(Mark(name, _identity(entry), entry.is_symlink(), is_hidden))
            look = not is_hidden and (rules.hiding or not (inside or protected))
            if look and entry.is_dir(follow_symlinks=False):
                folders.append(name)
        return _Folder(stamp, tuple(folders), tuple(marks), seen_at)


def _identity(entry: os.DirEntry[str]) -> tuple[int, int]:
    """What tells an entry from another one of its name, which may get the same inode.

    A link cannot be a mount, so a command can replace it. Other entries are read-only for it.
    """
    changed_at = entry.stat(follow_symlinks=False).st_ctime_ns if entry.is_symlink() else 0
    return entry.inode(), changed_at
