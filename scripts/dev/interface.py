"""Write the public interface, one line an item, to interface.txt.

    scripts/dev/interface.py                   write the file
    scripts/dev/interface.py --check           print the difference, and exit with 1 if there is one
    scripts/dev/interface.py --since v1.0.0    exit with 1 if the interface changed since that tag,
                                           but CHANGELOG.md does not name each change, in
                                           backquotes above the section of that version

The interface is everything that a program, or its stored data, can depend on: the public names with
their signatures, the hook points, the JSON of events and messages, the keys of recorded steps, and
the tables. A line that changes or goes breaks somebody; a new line does not.
"""

from __future__ import annotations

import difflib
import enum
import inspect
import json
import re
import subprocess
import sys
import types
from collections.abc import Iterator
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any, get_args

import msgspec

import hookline
from hookline._base.messages import Data, Message
from hookline._record.runtime import KEYS
from hookline.durable._polled import schema as job_tables
from hookline.events import ChatEvent
from hookline.points import TABLE
from hookline.stores import _schema as chat_tables

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = Path(hookline.__file__).parent
NAME = "interface.txt"


def main() -> int:
    match sys.argv[1:]:
        case []:
            (ROOT / NAME).write_text(interface(), encoding="utf-8")
            return 0
        case ["--check"]:
            difference = changes((ROOT / NAME).read_text(encoding="utf-8"), interface())
            sys.stdout.writelines(difference)
            if difference:
                print(
                    f"The public interface differs from {NAME}: run scripts/dev/interface.py, and"
                )
                print("say in CHANGELOG.md what a user of the old interface must do.")
            return bool(difference)
        case ["--since", tag]:
            return check_changelog(ROOT, tag)
        case _:
            print(__doc__)
            return 2


def changes(old: str, new: str) -> list[str]:
    """The lines that differ, marked with - and +."""
    lines = difflib.unified_diff(
        old.splitlines(keepends=True), new.splitlines(keepends=True), "released", "now", n=0
    )
    return [line for line in lines if not line.startswith("@@")]


def check_changelog(root: Path, tag: str) -> int:
    """Compare the interface with that of a tag; a difference needs a sentence in the changelog."""
    shown = subprocess.run(
        ["git", "show", f"{tag}:{NAME}"], cwd=root, capture_output=True, text=True, check=False
    )
    changelog = (root / "CHANGELOG.md").read_text(encoding="utf-8")
    text = changelog.partition(f"\n## [{tag.removeprefix('v')}]")[0]
    untold = [
        line
        for line in changes(shown.stdout, (root / NAME).read_text(encoding="utf-8"))
        if not line.startswith(("---", "+++")) and not is_told(line[1:], text)
    ]
    if untold:
        sys.stdout.writelines(untold)
        print(f"They have changed since {tag}: name each in CHANGELOG.md, in backquotes.")
    return bool(untold)


def is_told(line: str, changelog: str) -> bool:
    """Whether the changelog quotes what a line is about: a name, a class, a module or a table."""
    quoted = {text.partition("(")[0] for text in re.findall(r"`([^`]+)`", changelog)}
    subject = re.match(r"[\w.]*", line)
    path = subject[0].split(".") if subject else []
    modules = (".".join(path[:end]) for end in range(2, len(path) + 1))
    tables = re.findall(r"hookline_\w+", line)
    return bool(
        quoted & ({line, *path[-2:], ".".join(path[-2:]), *modules, *tables} - {"hookline"})
    )


def interface() -> str:
    """All lines, by section."""
    sections = {
        "names": sorted(
            [*of_class("Data", Data), *(line for name in modules() for line in of_module(name))]
        ),
        "hook points": [*of_points()],
        "JSON": [*of_json()],
        "keys of recorded steps": sorted(KEYS),
        "tables": [*of_tables("conversations", chat_tables), *of_tables("durable", job_tables)],
    }
    return "\n".join(
        [
            "# The public interface. Written by scripts/dev/interface.py; do not edit.",
            *(line for title, lines in sections.items() for line in ("", f"# {title}", *lines)),
            "",
        ]
    )


# ── names ───────────────────────────────────────────────────────────────────────────────────


def modules() -> Iterator[str]:
    """The modules whose path has no underscore, and that list their names."""
    for path in sorted(PACKAGE.rglob("*.py")):
        parts = path.relative_to(PACKAGE.parent).with_suffix("").parts
        parts = parts[:-1] if parts[-1] == "__init__" else parts
        if any(part.startswith("_") for part in parts):
            continue
        name = ".".join(parts)
        if hasattr(import_module(name), "__all__"):
            yield name


def of_module(name: str) -> Iterator[str]:
    module = import_module(name)
    for public in module.__all__:
        yield from of_value(f"{name}.{public}", getattr(module, public))


def of_value(path: str, value: Any) -> Iterator[str]:
    if inspect.isclass(value):
        yield from of_class(path, value)
    elif callable(value) and hasattr(value, "__name__"):
        yield path + signature(value)
    elif isinstance(value, types.ModuleType):
        yield f"{path}: module"
    elif isinstance(value, (str, int, float)):
        yield f"{path} = {value!r}" if path != "hookline.__version__" else f"{path}: str"
    else:
        yield f"{path}: {type(value).__name__}"


def of_class(path: str, cls: type[Any]) -> Iterator[str]:
    bases = [base.__name__ for base in cls.__bases__ if base is not object]
    yield f"{path}{signature(cls)}" + (f" is {', '.join(bases)}" if bases else "")
    if issubclass(cls, enum.Enum):
        for member in cls:
            yield f"{path}.{member.name} = {member.value!r}"
        return
    for name in sorted({name for base in own_bases(cls) for name in vars(base)}):
        if name.startswith("_"):
            continue
        member: Any = inspect.getattr_static(cls, name)
        function = getattr(member, "__func__", member)  # of a class or static method
        if inspect.isfunction(function):
            yield f"{path}.{name}{signature(function)}"
        elif isinstance(member, property):
            result = member.fget and member.fget.__annotations__.get("return", "Any")
            yield f"{path}.{name}: {result}"


def own_bases(cls: type) -> list[type]:
    """The class and its bases in hookline, without those that have lines of their own."""
    bases = [base for base in cls.__mro__ if base.__module__.partition(".")[0] == "hookline"]
    return [base for base in bases if base is cls or (base is not Data and not is_public(base))]


@cache
def public_classes() -> frozenset[type]:
    faces = [import_module(name) for name in modules()]
    values = [getattr(face, name) for face in faces for name in face.__all__]
    return frozenset(value for value in values if inspect.isclass(value))


def is_public(cls: type) -> bool:
    return cls in public_classes()


def signature(value: Any) -> str:
    try:
        own = inspect.signature(value)
    except (TypeError, ValueError):
        return "(…)"
    text = str(own.replace(parameters=[plain(entry) for entry in own.parameters.values()]))
    text = re.sub(r"<(?:function|class|object)? ?[^<>]*?>", "…", text).replace("'", "")
    return re.sub(r"\btyping\.|ForwardRef\((.*?)\)", r"\1", text)


def plain(parameter: inspect.Parameter) -> inspect.Parameter:
    """The parameter, without a default that is long or that prints its address."""
    default: object = parameter.default
    if default is None or default is inspect.Parameter.empty:
        return parameter
    short = isinstance(default, (str, int, float, tuple)) and len(f"{default!r}") < 40
    return parameter if short else parameter.replace(default=...)


# ── hook points, JSON, tables ───────────────────────────────────────────────────────────────


def of_points() -> Iterator[str]:
    for name, spec in TABLE.items():
        fields = ", ".join(field.name for field in msgspec.structs.fields(spec.context))
        effects = sorted(f"{kind.__name__} {effect}" for kind, effect in spec.acts.items())
        yield f"{name} {spec.kind} ({fields}) -> {' | '.join(effects) or 'None'}"


def of_json() -> Iterator[str]:
    kinds = [*get_args(ChatEvent), *get_args(Message)]
    _, components = msgspec.json.schema_components(kinds)
    for name, schema in sorted(components.items()):
        required = set(schema.get("required", ()))
        properties = schema.get("properties")
        if properties is None:
            yield f"{name}: {compact(schema)}"
            continue
        for field, kind in properties.items():
            yield f"{name}.{field}{'' if field in required else '?'}: {compact(kind)}"


def compact(schema: dict[str, Any]) -> str:
    known = {key: value for key, value in schema.items() if key not in ("title", "description")}
    return json.dumps(known, sort_keys=True).replace("#/$defs/", "")


def of_tables(name: str, module: Any) -> Iterator[str]:
    for version, statements in enumerate(module.MIGRATIONS, 1):
        for statement in statements:
            yield f"{name} {version}: {' '.join(statement.split())}"


if __name__ == "__main__":
    raise SystemExit(main())
