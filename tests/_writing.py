"""Somebody who tries to write into everything that a payload leads to."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import msgspec

from hookline import Run, Scope, Tool

# Promised to be mutable, or nobody's business: what the caller gave, and the chat behind a run.
LEFT_OUT = {"run", "deps", "state", "exception", "agent"}


def reachable(root: Any) -> Iterator[tuple[str, Any]]:
    """Each object that can be had from this one through public names, with its path."""
    seen: set[int] = set()
    kept: list[Any] = []  # so that no id is used twice
    todo: list[tuple[str, Any]] = [("ctx", root)]
    while todo:
        path, value = todo.pop()
        if id(value) in seen or isinstance(value, (str, int, float, bytes, type(None), type)):
            continue
        seen.add(id(value))
        kept.append(value)
        yield path, value
        if isinstance(value, dict):
            todo += [(f"{path}[{key!r}]", each) for key, each in value.items()]
        elif isinstance(value, (list, tuple)):
            todo += [(f"{path}[{i}]", each) for i, each in enumerate(value)]
        for name in fields(value):
            with contextlib.suppress(AttributeError):
                todo.append((f"{path}.{name}", getattr(value, name)))
        run = getattr(value, "run", None)
        if isinstance(run, Run):
            todo.append((f"{path}.run.history", tuple(run.history)))
            todo.append((f"{path}.run.usage", run.usage))


def fields(value: Any) -> list[str]:
    """The public fields of a payload, a tool or a scope."""
    if isinstance(value, msgspec.Struct):
        names = value.__struct_fields__
    elif isinstance(value, (Tool, Scope)):
        names = tuple(type(value).__slots__)
    else:
        names = ()
    return [name for name in names if not name.startswith("_") and name not in LEFT_OUT]


EVIL: Any = "changed in place"


def writes(value: Any) -> Iterator[tuple[str, Any]]:
    """Each way to change this object, as a name and something to call."""
    for name in fields(value):
        yield f".{name} = …", lambda name=name: setattr(value, name, EVIL)
    if isinstance(value, dict):
        key = next(iter(value), "new")
        yield "[…] = …", lambda: value.__setitem__(key, EVIL)
        yield "['new'] = …", lambda: value.__setitem__("new", EVIL)
        yield "del […]", lambda: value.__delitem__(key)
        yield ".update", lambda: value.update({"new": EVIL})
        yield ".setdefault", lambda: value.setdefault("new", EVIL)
        yield " |= …", lambda: value.__ior__({"new": EVIL})
        yield ".pop", lambda: value.pop(key, None)
        yield ".popitem", lambda: value.popitem()
        yield ".clear", lambda: value.clear()
        yield ".__init__", lambda: value.__init__(new=EVIL)
    if isinstance(value, list):
        yield "[0] = …", lambda: value.__setitem__(slice(0, 1), [EVIL])
        yield "del [0]", lambda: value.__delitem__(slice(0, 1))
        yield " += …", lambda: value.__iadd__([EVIL])
        yield " *= …", lambda: value.__imul__(2)
        yield ".append", lambda: value.append(EVIL)
        yield ".extend", lambda: value.extend([EVIL])
        yield ".insert", lambda: value.insert(0, EVIL)
        yield ".remove", lambda: value.remove(value[0] if value else EVIL)
        yield ".pop", lambda: value.pop()
        yield ".clear", lambda: value.clear()
        yield ".sort", lambda: value.sort(key=repr)
        yield ".reverse", lambda: value.reverse()
        yield ".__init__", lambda: value.__init__([EVIL])


def attack(root: Any) -> list[str]:
    """Try every write on everything reachable; the writes that were let through."""
    through: list[str] = []
    for path, value in reachable(root):
        for name, write in writes(value):
            try:
                write()
            except (TypeError, AttributeError):
                continue
            through.append(f"{path}{name}")
    return through
