"""Find declared hooks in a folder, and among the entry points of installed packages.

    found = from_folder("/srv/app/hooks", required=["guards.py"])
    agent = Agent(model, hooks=found.hooks)

A file that fails to load is reported, and the others still load. If a required file fails,
DiscoveryError is raised, so that no agent starts without its guards. An unreadable file counts as
required. Code from a folder has all rights of the program. The folder must therefore be an absolute
path, and writable only for its owner. Links to files outside of the folder are refused.
"""

from __future__ import annotations

import os
import re
import stat
import sys
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from hashlib import sha256
from importlib import metadata
from inspect import signature
from pathlib import Path
from types import ModuleType
from typing import Any, Final, NamedTuple, TypeGuard, cast

from hookline import HookDef, HookSet
from hookline.errors import DiscoveryError, UsageError
from hookline.points import as_tuple

__all__ = ["Discovery", "Problem", "from_entry_points", "from_folder"]

GROUP: Final = "hookline.hooks"
BOM: Final = b"\xef\xbb\xbf"
MARK: Final = re.compile(rb"\s*#\s*hookline:\s*required\s*", re.IGNORECASE)


class Problem(NamedTuple):
    """A source that could not be loaded, and the reason."""

    where: str
    """The file or entry point that failed."""
    why: str
    """The reason."""


@dataclass(frozen=True, slots=True)
class Discovery:
    """The hooks for `Agent(hooks=)` or `agent.use()`, and the problems of the search."""

    hooks: tuple[HookDef, ...]
    """The definitions that were loaded, in order."""
    problems: tuple[Problem, ...]
    """The files and entry points that could not be loaded."""


class _Finds:
    """The hooks and problems found so far; hook ids are unique among them."""

    def __init__(self) -> None:
        self.hooks: list[HookDef] = []
        self.problems: list[Problem] = []

    def take(self, where: str, required: bool, load: Callable[[], Sequence[HookDef]]) -> None:
        """Load all hooks of one source, or note a problem; raises if the source is required."""
        try:
            new = [hook for hook in load() if hook not in self.hooks]
            self._check_ids(new)
        except (Exception, SystemExit) as exc:
            why = str(exc) if isinstance(exc, UsageError) else f"{type(exc).__name__}: {exc}"
            if required:
                raise DiscoveryError(
                    f"required hooks cannot be loaded: {where}: {why}. Fix the error, or do not "
                    "require these hooks"
                ) from exc
            self.problems.append(Problem(where, why))
            return
        for hook in new:
            hook.origin = where
        self.hooks += new

    def _check_ids(self, new: Sequence[HookDef]) -> None:
        by_id = {hook.id: hook for hook in self.hooks if hook.id is not None}
        for hook in new:
            if hook.id is not None and by_id.setdefault(hook.id, hook) != hook:
                other = by_id[hook.id].origin or "the same file"
                raise UsageError(
                    f"the id {hook.id!r} is taken by a hook of {other}; choose another id"
                )

    def done(self) -> Discovery:
        return Discovery(tuple(self.hooks), tuple(self.problems))


# ── a folder ────────────────────────────────────────────────────────────────────────────────


def from_folder(
    folder: str | os.PathLike[str],
    *,
    root: str | os.PathLike[str] | None = None,
    required: Collection[str] = (),
) -> Discovery:
    """Load the hooks of all `*.py` files in this folder, in the order of the file names.

    Loads the hooks that have a name in the module: definitions, objects with hooks, and lists of
    these. A class of hooks is instantiated if the file has no instance or subclass of that class.
    Files whose names begin with `_` are skipped. `required` lists files that must load. A file
    with the line `# hookline: required`, or an unreadable file, counts as required. After symlinks
    are resolved, this folder must be inside `root`. Raises DiscoveryError if the folder is not
    safe, or if a required file fails.
    """
    required, finds = as_tuple("required", required), _Finds()
    place = _safe_folder(Path(folder), None if root is None else Path(root))
    files = (path.name for path in place.iterdir() if path.suffix == ".py")
    names = sorted(name for name in files if not name.startswith(("_", ".")))
    for name in sorted({*required} - {*names}):
        raise DiscoveryError(
            f"the required file {str(place / name)!r} is missing; create it or do not require it"
        )
    for name in names:
        path = place / name
        needed = name in required or _says_required(path)
        finds.take(f"file {path}", needed, partial(_load_file, path, place))
    return finds.done()


def _safe_folder(folder: Path, root: Path | None) -> Path:
    if not folder.is_absolute() or (root is not None and not root.is_absolute()):
        raise DiscoveryError(
            f"{str(folder)!r} depends on the working directory; pass an absolute path"
        )
    if not folder.is_dir():
        raise DiscoveryError(f"{str(folder)!r} is not a folder; pass the path of a folder")
    place = folder.resolve()
    top = place if root is None else root.resolve()
    if not place.is_relative_to(top):
        raise DiscoveryError(
            f"{str(folder)!r} resolves to {str(place)!r}, which must be inside {str(top)!r}"
        )
    for directory in (place, *place.parents):
        if directory.is_relative_to(top):
            _check_mode(directory, directory.stat())
    return place


def _check_mode(path: Path, status: os.stat_result) -> None:
    """Raise unless only the owner may write, and the owner is the process's user or root."""
    if os.name != "posix":
        return
    if status.st_mode & stat.S_IWOTH:
        raise DiscoveryError(f"{str(path)!r} is writable by everyone; run chmod go-w on it")
    if status.st_mode & stat.S_IWGRP:
        raise DiscoveryError(f"{str(path)!r} is group-writable; run chmod g-w on it")
    if status.st_uid not in (0, os.geteuid()):
        raise DiscoveryError(
            f"{str(path)!r} belongs to another user ({status.st_uid}); run chown on it"
        )


def _read(path: Path, folder: Path) -> bytes:
    """Read the bytes of the same file that was checked."""
    real = path.resolve(strict=True)
    if not real.is_relative_to(folder):
        raise DiscoveryError(
            f"the file is a link to {str(real)!r}, outside of the folder; use a regular file"
        )
    with open(real, "rb", opener=_no_link) as file:
        status = os.fstat(file.fileno())
        if not stat.S_ISREG(status.st_mode):
            raise DiscoveryError(f"{str(path)!r} must be a regular file")
        _check_mode(real, status)
        return file.read()


def _no_link(path: str, flags: int) -> int:
    # The path is resolved, so a link there is new. Opening a pipe must not wait for its writer.
    return os.open(path, flags | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0))


def _says_required(path: Path) -> bool:
    """Return whether the file is marked as required, or cannot be read to find out."""
    try:
        if not stat.S_ISREG(path.stat().st_mode):
            return False  # a folder or a pipe holds no hooks
        source = path.read_bytes()
    except OSError:  # it may hold guards, so the program must not start without it
        return True
    return any(map(MARK.fullmatch, source.removeprefix(BOM).splitlines()))


def _load_file(path: Path, folder: Path) -> Sequence[HookDef]:
    source = _read(path, folder)
    name = f"hookline_hooks_{sha256(str(path).encode()).hexdigest()[:12]}_{path.stem}"
    module = ModuleType(name)
    module.__file__ = str(path)
    sys.modules[name] = module  # dataclasses and pickle look up the module there
    try:
        exec(compile(source, str(path), "exec"), module.__dict__)
        hooks = _named_in(module)
        if not hooks:
            raise UsageError(f"there is no hook in {path.name}; use @define_hook(...)")
    except BaseException:
        del sys.modules[name]
        raise
    return hooks


def _named_in(module: ModuleType) -> Sequence[HookDef]:
    """The hooks that the module names; a class counts if it has no instance or subclass there."""
    values = list(vars(module).values())
    objects: set[type] = set()
    hooks = [hook for value in values if _offers(value) for hook in _definitions(value, objects)]
    kinds = {value for value in values if _is_class(value)}
    for kind in dict.fromkeys(value for value in values if _is_class(value)):
        if not any(issubclass(other, kind) for other in objects | (kinds - {kind})):
            hooks += _definitions(kind, set())
    return list(dict.fromkeys(hooks))


# ── what is offered ─────────────────────────────────────────────────────────────────────────


def _definitions(value: object, objects: set[type]) -> Iterator[HookDef]:
    """Yield the definitions in this object, and add the classes of their objects to `objects`.

    Raises UsageError for an object that is not a hook.
    """
    if isinstance(value, HookDef):
        objects.add(cast("type", type(getattr(value.fn, "__self__", None))))
        yield value
    elif isinstance(value, (list, tuple)):
        for item in cast("Sequence[object]", value):
            yield from _definitions(item, objects)
    elif _is_class(value):
        yield from _definitions(_instance(value), objects)
    elif hooks := _hooks_of(value):
        objects.add(type(value))
        yield from _definitions(hooks, objects)
    else:
        raise UsageError(
            f"{value!r} is not a hook; use @define_hook(...), an object or a class with such "
            "hooks, or a list of these"
        )


def _offers(value: object) -> bool:
    """Return whether a value in a module has hooks; classes are checked later."""
    if isinstance(value, (list, tuple)):
        items = cast("Sequence[object]", value)
        return any(_offers(item) or _is_class(item) for item in items)
    return isinstance(value, (HookDef, HookSet)) or bool(_hooks_of(value))


def _is_class(value: Any) -> TypeGuard[type[Any]]:
    """Return whether this is a class whose instances have hooks."""
    if not isinstance(value, type) or value is HookSet:
        return False
    attributes = _attributes(cast("type[object]", value))
    return issubclass(value, HookSet) or any(map(_is_hook, attributes.values()))


def _attributes(kind: type) -> dict[str, object]:
    return {name: value for base in reversed(kind.__mro__) for name, value in vars(base).items()}


def _is_hook(attribute: object) -> bool:
    inner = attribute.__func__ if isinstance(attribute, staticmethod) else attribute
    return isinstance(inner, HookDef)


def _hooks_of(value: object) -> list[object]:
    """The hooks of an object; an empty list for any other value."""
    if isinstance(value, (type, ModuleType)):
        return []
    attributes = _attributes(type(value)) | getattr(value, "__dict__", {})
    own = [getattr(value, name) for name, attribute in attributes.items() if _is_hook(attribute)]
    more = getattr(value, "hooks", None) if own or isinstance(value, HookSet) else None
    return own if more is None else [more, *own]


def _instance(kind: type) -> object:
    try:
        signature(kind).bind()
    except TypeError as exc:
        raise UsageError(
            f"the class {kind.__qualname__} needs arguments ({exc}); offer an instance of this "
            "class, or a function that makes one"
        ) from exc
    return kind()


# ── entry points ────────────────────────────────────────────────────────────────────────────


def from_entry_points(
    names: Collection[str] | None = None, *, group: str = GROUP, required: Collection[str] = ()
) -> Discovery:
    """Load the hooks that installed packages offer in this group of entry points.

    An entry point names a hook definition, an object or a class whose methods are hooks, or a list
    of these. It may also name a function that returns one of these. `names` restricts the search to
    these entry points. `required` lists entry points that must exist and load. Raises
    DiscoveryError if a required entry point is missing or fails.
    """
    required, finds = as_tuple("required", required), _Finds()
    names = None if names is None else (*as_tuple("names", names), *required)
    points = sorted(metadata.entry_points(group=group), key=lambda point: (point.name, point.value))
    for name in sorted({*required} - {point.name for point in points}):
        raise DiscoveryError(
            f"the required entry point {name!r} of {group!r} is not installed; install its "
            "package, or do not require it"
        )
    for point in points:
        if names is None or point.name in names:
            load = partial(_load_entry_point, point)
            finds.take(f"entry point {point.name}", point.name in required, load)
    return finds.done()


def _load_entry_point(point: metadata.EntryPoint) -> Sequence[HookDef]:
    value: Any = point.load()
    if callable(value) and not _offers(value) and not isinstance(value, type):
        value = value()
    hooks = list(dict.fromkeys(_definitions(value, set())))
    if not hooks:
        raise UsageError(f"{point.value} returned an empty list; return hooks")
    return hooks
