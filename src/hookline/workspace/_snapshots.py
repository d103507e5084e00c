"""Snapshots: the files of a workspace as they were before the first change of each step.

A snapshot is a list of paths, modes and digests; the contents are stored once each, outside of the
workspace. Files that are ignored, denied or protected are not part of it, and neither are files
above the size that the tools write. Without ripgrep there are no snapshots. The first snapshot of a
workspace's life, and some later ones, remove the contents that no snapshot has any more.
"""

from __future__ import annotations

import asyncio
import os
import stat
import time
from collections.abc import Mapping
from contextlib import AbstractContextManager, suppress
from pathlib import Path
from typing import Any, Final

import msgspec

from hookline import Run
from hookline.errors import ToolCallError, UsageError
from hookline.workspace._errors import MissingError
from hookline.workspace._files.access import Access
from hookline.workspace._files.diff import diff
from hookline.workspace._files.openat import O_PATH
from hookline.workspace._files.root import MAX_BYTES
from hookline.workspace._files.safe_write import is_temporary, replace
from hookline.workspace._files.text import decode
from hookline.workspace._sandbox.bwrap import INSTALL
from hookline.workspace._sandbox.commands import Commands
from hookline.workspace._tools.outputs import keep_latest
from hookline.workspace._tools.search import found_files

MOST: Final = 50_000
"""The most files of a snapshot."""
MAX_SNAPSHOTS: Final = 50
"""The number of snapshots that are kept."""
MAX_CHANGES: Final = 100
"""The most changed files of a command that are reported."""
_MAX_DIFFS: Final = 200_000
_UNUSED: Final = 86_400
"""The seconds for which a content stays that no snapshot has: a running command may need it."""
_ABANDONED: Final = 600
"""The seconds after which the temporary file of a change belongs to a program that was killed."""
Files = dict[str, tuple[str, int]]
"""The digest and the mode of each file, by its path."""


class Snapshot(msgspec.Struct, frozen=True, kw_only=True):
    """The files of a workspace at one time."""

    id: str
    """The id, for `Workspace.restore` and `Workspace.diff`."""
    label: str
    """What the snapshot was made before."""
    at: float
    """When it was made, in seconds since the epoch."""
    files: Mapping[str, tuple[str, int]]
    """The digest and the mode of each file."""


class Snapshots:
    """The snapshots of a workspace, in a folder outside of it."""

    def __init__(self, access: Access, commands: Commands, folder: Path) -> None:
        self._access = access
        self._commands = commands
        self._folder = folder
        self._lock = asyncio.Lock()
        self._digests: dict[str, tuple[tuple[int, ...], str]] = {}
        self._steps: dict[tuple[str, int], None] = {}
        self._count = 0

    async def before_change(self, run: Run[Any]) -> None:
        """Take a snapshot, if this is the first change of the step."""
        if (run.chat_id, run.iteration) not in self._steps:
            await self.before_command(run)

    async def before_command(self, run: Run[Any]) -> Files | None:
        """Return the files as they are; take a snapshot, if this is the first change of the step.

        None: the files cannot be listed.
        """
        if not self._commands.can_search:
            return None
        step = (run.chat_id, run.iteration)
        async with self._lock:
            files = await self._files()
            if step not in self._steps:
                label = f"before step {run.iteration} of chat {run.chat_id}"
                await asyncio.to_thread(self._store, label, files)
                self._steps[step] = None
                await asyncio.to_thread(self._clear, files)
        return files

    async def tell_changes(self, run: Run[Any], before: Files | None) -> None:
        """Report what a command has changed, as `write` and `edit` do: `file_changed`."""
        if before is None:
            return
        async with self._lock:
            now = await self._files()
        paths = _changed(before, now)
        room = _MAX_DIFFS
        for path in paths[:MAX_CHANGES]:
            old, new = before.get(path), now.get(path)
            text = "" if room <= 0 else await asyncio.to_thread(self._difference, path, old, new)
            room -= len(text)
            digests = {"before": old and old[0], "after": new and new[0]}
            await run.status("file_changed", {"path": path, "diff": text, **digests})
        if len(paths) > MAX_CHANGES:
            data = {"kind": "files_changed", "left_out": len(paths) - MAX_CHANGES}
            await run.status("workspace", data)

    async def take(self, label: str) -> Snapshot:
        """Take a snapshot; raises UsageError if that is not possible."""
        if not self._commands.can_search:
            raise UsageError(f"snapshots need ripgrep, which lists the files; run {INSTALL}")
        async with self._lock:
            return await asyncio.to_thread(self._store, label, await self._files())

    async def all(self) -> list[Snapshot]:
        """Return the snapshots, the oldest first."""
        return await asyncio.to_thread(self._all)

    async def restore(self, id: str) -> Snapshot:
        """Put all files back; returns a snapshot of what they were before."""
        snapshot = await asyncio.to_thread(self._load, id)
        now = await self.take(f"before restoring {id}")
        await asyncio.to_thread(self._put_back, snapshot, now)
        return now

    async def diff(self, since: str) -> str:
        """Return the differences between a snapshot and the files as they are."""
        old = await asyncio.to_thread(self._load, since)
        new = await self.take(f"to compare with {since}")
        return await asyncio.to_thread(self._diff, old, new)

    # ── one snapshot ────────────────────────────────────────────────────────────────────────

    async def _files(self) -> Files:
        """The files as they are; the content of each is stored, if it is new."""
        paths = await found_files(self._access, self._commands)
        return await asyncio.to_thread(self._entries, paths[:MOST])

    def _entries(self, paths: list[str]) -> Files:
        files: Files = {}
        for path in paths:
            if self._access.protects(path):
                continue
            with suppress(ToolCallError, OSError):
                files[path] = self._entry(path)
        return files

    def _store(self, label: str, files: Files) -> Snapshot:
        now = time.time()
        id = f"{time.strftime('%Y%m%d-%H%M%S', time.gmtime(now))}-{os.urandom(3).hex()}"
        snapshot = Snapshot(id=id, label=label, at=now, files=files)
        folder = self._folder / "snapshots"
        _write(folder / f"{id}.json", msgspec.json.encode(snapshot))
        keep_latest(folder, MAX_SNAPSHOTS)
        if self._count % MAX_SNAPSHOTS == 0:
            self._sweep()
        self._count += 1
        return snapshot

    def _sweep(self) -> None:
        """Remove the contents that no snapshot has, and that were not used for a while."""
        used = {name for snapshot in self._all() for name, _ in snapshot.files.values()}
        until = time.time() - _UNUSED
        for place in (self._folder / "objects").glob("*/*"):
            with suppress(FileNotFoundError):
                if place.name not in used and place.stat().st_mtime < until:
                    place.unlink()

    def _clear(self, files: Files) -> None:
        """Remove what killed writers have left behind; the snapshot that was just taken has it."""
        until = time.time() - _ABANDONED
        for path in [path for path in files if is_temporary(path)]:
            with suppress(ToolCallError, OSError):
                with self._handle(path) as fd:
                    changed_at = os.fstat(fd).st_ctime  # the time of the last rename
                if changed_at < until:
                    self._remove(path)
                    del files[path]

    def _entry(self, path: str) -> tuple[str, int]:
        """The digest and the mode of a file; its content is stored if it is new."""
        with self._handle(path) as fd:
            info = os.fstat(fd)
        stamp = (info.st_ino, info.st_size, info.st_mtime_ns, info.st_ctime_ns)
        entry = self._digests.get(path)
        if entry is not None and entry[0] == stamp and self._uses(entry[1]):
            return entry[1], stat.S_IMODE(info.st_mode)
        file = self._access.root.read(path, self._access.may_read, MAX_BYTES)
        if not self._uses(file.digest):
            _write(self._object(file.digest), file.data)
        self._digests[path] = (stamp, file.digest)
        return file.digest, stat.S_IMODE(file.mode)

    def _handle(self, path: str) -> AbstractContextManager[int]:
        return self._access.root.descriptor(path, (O_PATH or os.O_RDONLY) | os.O_NOFOLLOW)

    def _uses(self, name: str) -> bool:
        """Return whether a content is stored; if it is, it stays for a while."""
        now = time.time()
        try:
            os.utime(self._object(name), (now, now))
        except FileNotFoundError:
            return False
        return True

    def _object(self, name: str) -> Path:
        return self._folder / "objects" / name[:2] / name

    def _load(self, id: str) -> Snapshot:
        path = self._folder / "snapshots" / f"{os.path.basename(id)}.json"
        try:
            snapshot = msgspec.json.decode(path.read_bytes(), type=Snapshot)
        except (OSError, msgspec.DecodeError):
            ids = ", ".join(snapshot.id for snapshot in self._all()[-5:]) or "none"
            raise UsageError(f"there is no snapshot {id!r}; use one of the latest: {ids}") from None
        for name, _ in snapshot.files.values():
            self._uses(name)  # the next snapshot may take the place of this one
        return snapshot

    def _all(self) -> list[Snapshot]:
        folder = self._folder / "snapshots"
        names = sorted(folder.glob("*.json")) if folder.is_dir() else []
        snapshots = [msgspec.json.decode(name.read_bytes(), type=Snapshot) for name in names]
        return sorted(snapshots, key=lambda snapshot: snapshot.at)

    def _put_back(self, snapshot: Snapshot, now: Snapshot) -> None:
        root, access = self._access.root, self._access
        for path, (name, mode) in snapshot.files.items():
            current = now.files.get(path)
            if current == (name, mode) or is_temporary(path):
                continue
            if current is None or current[0] != name:
                data = self._object(name).read_bytes()
                expect = None if current is None else current[0]
                replace(root, path, data, expect=expect, permit=access.may_write)
            with root.descriptor(path, os.O_RDONLY | os.O_NOFOLLOW) as fd:
                os.fchmod(fd, mode & 0o777)
        for path in now.files.keys() - snapshot.files.keys():
            if not is_temporary(path):
                self._remove(path)

    def _remove(self, path: str) -> None:
        """Remove a file that the snapshot does not have; its content is in the latest one."""
        above, _, name = path.rpartition("/")
        flags, root = os.O_RDONLY | os.O_DIRECTORY, self._access.root
        with suppress(MissingError, OSError), root.descriptor(above or ".", flags) as folder:
            os.unlink(name, dir_fd=folder)

    def _diff(self, old: Snapshot, new: Snapshot) -> str:
        return "".join(
            self._difference(path, old.files.get(path), new.files.get(path))
            for path in _changed(old.files, new.files)
        )

    def _difference(
        self, path: str, before: tuple[str, int] | None, after: tuple[str, int] | None
    ) -> str:
        try:
            texts = [
                None if entry is None else decode(self._object(entry[0]).read_bytes(), path)[0]
                for entry in (before, after)
            ]
        except ToolCallError:
            return f"{path} is binary and has changed\n"
        return diff(path, *texts)


def _write(path: Path, data: bytes) -> None:
    """Write a file of the state in one step."""
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    part = path.with_suffix(f".{os.urandom(4).hex()}")
    part.write_bytes(data)
    part.replace(path)


def _changed(old: Mapping[str, tuple[str, int]], new: Mapping[str, tuple[str, int]]) -> list[str]:
    """Return the paths of the files that have another content, are new, or are gone."""
    before, after = ({(path, name) for path, (name, _) in files.items()} for files in (old, new))
    return sorted({path for path, _ in before ^ after})
