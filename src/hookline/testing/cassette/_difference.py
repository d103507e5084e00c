"""A difference between a chat and its cassette, as a text that a reader can act on."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import SequenceMatcher
from json import dumps
from typing import Any, Final, cast

import msgspec

from hookline.errors import HooklineError
from hookline.testing.cassette._shape import FIELDS

LINES: Final = 30
WIDTH: Final = 110
BEFORE: Final = 40  # characters shown before the first difference of a long line


class Difference(msgspec.Struct, frozen=True, kw_only=True):
    """The first place at which a chat differs from its cassette."""

    chat: str
    """The chat's name on the cassette: its message, and the calls that lead to a sub-agent."""
    place: str
    """The request or the call, such as `request 1` or `call 0.1`: a call by step and position."""
    text: str
    """What differs."""

    def __str__(self) -> str:
        lines = f"chat {self.chat}, {self.place}: {self.text}".splitlines()
        more = len(lines) - (LINES - 2)
        if more > 0:
            lines = [*lines[: LINES - 3], f"    … and {more + 1} more lines"]
        return "\n".join(lines)


class CassetteError(HooklineError, AssertionError):
    """A chat differs from its cassette, or the cassette cannot be used.

    What to do: if the change is intended, record again with `HOOKLINE_CASSETTE=patch`, which keeps
    what is still the same. `differences` has the places.
    """

    def __init__(self, message: str, differences: tuple[Difference, ...] = ()) -> None:
        self.differences = differences
        super().__init__(message)


def pretty(value: Any, indent: str = "") -> list[str]:
    """JSON as lines: what fits into one line is not split."""
    text = dumps(value, ensure_ascii=False)
    if len(text) + len(indent) <= WIDTH or not isinstance(value, (dict, list, tuple)) or not value:
        return [indent + text]
    items: list[tuple[str, Any]]
    if isinstance(value, dict):
        fields = cast("dict[str, Any]", value)
        items = [(f"{dumps(name, ensure_ascii=False)}: ", item) for name, item in fields.items()]
        opening, closing = "{", "}"
    else:
        items = [("", item) for item in cast("list[Any]", value)]
        opening, closing = "[", "]"
    lines = [indent + opening]
    for place, (name, item) in enumerate(items):
        inner = pretty(item, indent + " ")
        inner[0] = f"{indent} {name}{inner[0].lstrip(' ')}"
        inner[-1] += "," if place < len(items) - 1 else ""
        lines += inner
    return [*lines, indent + closing]


def difference_of_requests(old: dict[str, Any], new: dict[str, Any], fields: Iterable[str]) -> str:
    """What differs in two requests, field by field."""
    names = [name for name in FIELDS if name in fields and old[name] != new[name]]
    lines = [f"the request differs in {', '.join(names)} (-recorded +now)"]
    for name in names:
        lines += [f"  {name}:", *_changes(_lines(old[name]), _lines(new[name]))]
    return "\n".join(lines)


def _lines(value: Any) -> list[str]:
    if isinstance(value, str):
        return value.splitlines()
    return [line.rstrip(",") for line in pretty(value)]


def _changes(old: list[str], new: list[str]) -> list[str]:
    lines: list[str] = []
    for tag, i, j, k, m in SequenceMatcher(None, old, new, autojunk=False).get_opcodes():
        if tag == "equal":
            continue
        if i:
            lines.append(f"     {_cut(old[i - 1], 0)}")
        deletions, insertions = old[i:j], new[k:m]
        for place in range(max(len(deletions), len(insertions))):
            a = deletions[place] if place < len(deletions) else ""
            b = insertions[place] if place < len(insertions) else ""
            start = _first_difference(a, b) if a and b else 0
            lines += [f"    -{_cut(a, start)}"] if place < len(deletions) else []
            lines += [f"    +{_cut(b, start)}"] if place < len(insertions) else []
    return lines


def _first_difference(a: str, b: str) -> int:
    pairs = zip(a, b, strict=False)
    return next((i for i, (x, y) in enumerate(pairs) if x != y), min(len(a), len(b)))


def _cut(line: str, start: int) -> str:
    begin = max(0, start - BEFORE) if len(line) > WIDTH else 0
    text = line[begin : begin + WIDTH]
    return f"{'…' if begin else ''}{text}{'…' if begin + WIDTH < len(line) else ''}"


def call_text(tool: str, arguments: dict[str, Any]) -> str:
    """A call as a line: `refund(amount=80)`."""
    values = ", ".join(f"{name}={dumps(value)}" for name, value in arguments.items())
    return _cut(f"{tool}({values})", 0)
