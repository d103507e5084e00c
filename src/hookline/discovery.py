"""Find declared hooks: in a folder that is named, and among the entry points of what is installed.

    found = from_folder("/srv/app/hooks", required=["guards.py"])
    agent = Agent(model, hooks=found.hooks)

A file that cannot be loaded is reported and the others load; where it is required, DiscoveryError
is raised instead, so that no agent starts without its guards. A file that cannot be read may be a
guard, so it counts as required. Code from a folder runs with all that the program may do: the
folder is named by its whole path, only its owner may write to it, and links that lead out of it are
not followed.
"""

from __future__ import annotations

import os
import re
import stat
import sys
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from hashlib import sha256
from importlib import metadata
from pathlib import Path
from types import ModuleType
from typing import Any, Final, NamedTuple, cast

from hookline import HookDef
from hookline.errors import DiscoveryError, UsageError

__all__ = ["Found", "Problem", "from_entry_points", "from_folder"]

GROUP: Final = "hookline.hooks"
BOM: Final = b"\xef\xbb\xbf"
MARK: Final = re.compile(rb"\s*#\s*hookline:\s*required\s*", re.IGNORECASE)


class Problem(NamedTuple):
    """What could not be loaded, and why."""

    where: str
    """The file or entry point."""
    why: str
    """What went wrong there."""


@dataclass(frozen=True, slots=True)
class Found:
    """What was found: definitions for `Agent(hooks=)` or `agent.use()`, and what failed."""

    hooks: tuple[HookDef, ...]
    """What was loaded, in order."""
    problems: tuple[Problem, ...]
    """What was not."""


class _Finds:
    """What was found so far; ids are unique among all of it."""

    def __init__(self) -> None:
        self.hooks: list[HookDef] = []
        self.problems: list[Problem] = []

    def take(self, where: str, required: bool, load: Callable[[], Sequence[HookDef]]) -> None:
        """Load one source: all of its hooks, or a problem; raises where it is required."""
        try:
            new = [hook for hook in load() if all(hook is not each for each in self.hooks)]
            self._check_ids(new)
        except (Exception, SystemExit) as exc:
            why = str(exc) if isinstance(exc, UsageError) else f"{type(exc).__name__}: {exc}"
            if required:
                raise DiscoveryError(
                    f"required hooks cannot be loaded: {where}: {why}. Mend that, or do not "
                    "require them"
                ) from exc
            self.problems.append(Problem(where, why))
            return
        for hook in new:
            hook.origin = where
        self.hooks += new

    def _check_ids(self, new: Sequence[HookDef]) -> None:
        seen = {hook.id: hook for hook in self.hooks if hook.id is not None}
        for hook in new:
            if hook.id is not None and seen.setdefault(hook.id, hook) is not hook:
                other = seen[hook.id].origin or "the same file"
                raise UsageError(
                    f"the id {hook.id!r} is taken by a hook of {other}; give one of them another"
                )

    def done(self) -> Found:
        return Found(tuple(self.hooks), tuple(self.problems))


# ── a folder ────────────────────────────────────────────────────────────────────────────────


def from_folder(
    folder: str | os.PathLike[str],
    *,
    root: str | os.PathLike[str] | None = None,
    required: Collection[str] = (),
) -> Found:
    """The hooks of all `*.py` files in this folder, in the order of their names.

    Taken are definitions that stand by a name of the module, also in lists. Names that begin with
    `_` are not loaded. `required`: files that must be there and load; a file may also say so itself
    by a line `# hookline: required`, and one that cannot be read counts as required. `root`: the
    folder must lie inside of it, symlinks resolved.
    Raises DiscoveryError for a folder that is not safe, and where something required fails.
    """
    place = _safe_folder(Path(folder), None if root is None else Path(root))
    finds = _Finds()
    names = sorted(each.name for each in place.iterdir() if _is_ours(each.name))
    for name in sorted({*required} - {*names}):
        raise DiscoveryError(
            f"required hooks are not there: put a file at {place / name}, or do not require it"
        )
    for name in names:
        path = place / name

        def load(path: Path = path) -> Sequence[HookDef]:
            return _run(path, _read(path, place))

        finds.take(f"file {path}", name in required or _says_required(path), load)
    return finds.done()


def _is_ours(name: str) -> bool:
    return name.endswith(".py") and not name.startswith(("_", "."))


def _safe_folder(folder: Path, root: Path | None) -> Path:
    if not folder.is_absolute() or (root is not None and not root.is_absolute()):
        raise DiscoveryError(
            f"{str(folder)!r}: name the folder by its whole path, which does not depend on where "
            "the program was started"
        )
    if not folder.is_dir():
        raise DiscoveryError(f"{str(folder)!r} must be a folder")
    place = folder.resolve()
    top = place if root is None else root.resolve()
    if not place.is_relative_to(top):
        raise DiscoveryError(
            f"{str(folder)!r} is {str(place)!r}, which must be inside {str(top)!r}"
        )
    for each in (place, *place.parents):
        if each.is_relative_to(top):
            _check_mode(each, each.stat())
    return place


def _check_mode(path: Path, found: os.stat_result) -> None:
    """Only its owner may write there, who is this process's user or the administrator."""
    if os.name != "posix":
        return
    if found.st_mode & stat.S_IWOTH:
        raise DiscoveryError(f"{str(path)!r} may be written by everybody: chmod go-w")
    if found.st_mode & stat.S_IWGRP:
        raise DiscoveryError(f"{str(path)!r} may be written by its group: chmod g-w")
    if found.st_uid not in (0, os.geteuid()):
        raise DiscoveryError(
            f"{str(path)!r} belongs to another user ({found.st_uid}): chown it, or use a folder "
            "of your own"
        )


def _read(path: Path, folder: Path) -> bytes:
    """The file's bytes, from the very file that was checked."""
    real = path.resolve(strict=True)
    if not real.is_relative_to(folder):
        raise DiscoveryError(
            f"it leads out of the folder, to {str(real)!r}; put the file itself there"
        )
    with open(real, "rb", opener=_no_link) as file:
        found = os.fstat(file.fileno())
        if not stat.S_ISREG(found.st_mode):
            raise DiscoveryError(f"{str(path)!r} must be a regular file")
        _check_mode(real, found)
        return file.read()


def _no_link(path: str, flags: int) -> int:
    return os.open(path, flags | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0))


def _says_required(path: Path) -> bool:
    """Whether the file is marked as required, or cannot be read, so that nobody knows."""
    try:
        if not stat.S_ISREG(path.stat().st_mode):
            return False  # a folder or a pipe holds no hooks
        source = path.read_bytes()
    except OSError:
        return True
    return any(map(MARK.fullmatch, source.removeprefix(BOM).splitlines()))


def _run(path: Path, source: bytes) -> Sequence[HookDef]:
    name = f"hookline_hooks_{sha256(str(path).encode()).hexdigest()[:12]}_{path.stem}"
    module = ModuleType(name)
    module.__file__ = str(path)
    sys.modules[name] = module  # dataclasses and pickle look there
    try:
        exec(compile(source, str(path), "exec"), module.__dict__)
        hooks = list(_definitions(list(vars(module).values())))
        if not hooks:
            raise UsageError(f"there is no hook in {path.name}: use @define_hook(...)")
    except BaseException:
        del sys.modules[name]
        raise
    return hooks


def _definitions(value: Any) -> Iterator[HookDef]:
    """The definitions in lists of lists, each once."""
    seen: set[int] = set()
    todo = list(value)
    while todo:
        each = todo.pop(0)
        if isinstance(each, HookDef) and id(each) not in seen:
            seen.add(id(each))
            yield each
        elif isinstance(each, (list, tuple)):
            todo = [*cast("list[Any]", each), *todo]


# ── entry points ────────────────────────────────────────────────────────────────────────────


def from_entry_points(
    names: Collection[str] | None = None, *, group: str = GROUP, required: Collection[str] = ()
) -> Found:
    """The hooks that installed packages offer in this group of entry points.

    An entry point names a definition, a list of them, or a function that makes these. `names`: only
    those; `required`: those must be there and load, or DiscoveryError is raised.
    """
    finds = _Finds()
    points = sorted(metadata.entry_points(group=group), key=lambda point: (point.name, point.value))
    for name in sorted({*required} - {point.name for point in points}):
        raise DiscoveryError(
            f"required hooks are not installed: {name!r} in {group!r}; install the package that "
            "has them"
        )
    for point in points:
        if names is not None and point.name not in {*names, *required}:
            continue

        def load(point: metadata.EntryPoint = point) -> Sequence[HookDef]:
            offered: Any = point.load()
            if callable(offered) and not isinstance(offered, HookDef):
                offered = offered()
            hooks = list(_definitions([offered]))
            if not hooks:
                raise UsageError(
                    f"{point.value} gives a {type(offered).__name__}; it must give hooks made by "
                    "define_hook"
                )
            return hooks

        finds.take(f"entry point {point.name}", point.name in required, load)
    return finds.done()
