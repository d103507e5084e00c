"""A change of one file: what it will be, and the change itself. Used by `write`, `edit` and diffs.

A change is planned from the file as it is now. It is made only if the file is still the version
that the conversation has read and, if it was approved, the version that the approver has seen.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from hookline import Run
from hookline.workspace._errors import (
    AmbiguousError,
    ChangedError,
    MissingError,
    NoMatchError,
    NotReadError,
)
from hookline.workspace._files.access import Access
from hookline.workspace._files.diff import diff
from hookline.workspace._files.text import PLAIN, decode, encode
from hookline.workspace._tools.seen_files import asked_digest, read_digest

NO_FILE: Final = ""
"""The digest of a file that does not exist."""
_MAX_PLACES: Final = 10


@dataclass(frozen=True)
class Replacement:
    """A text to replace.

    Args:
        old: The text as it is in the file, with enough of its surroundings to be unique.
        new: The text to put in its place.
        all: Whether to replace every occurrence.
    """

    old: str
    new: str
    all: bool = False


class Change(NamedTuple):
    """A planned change of a file."""

    path: str
    old: str | None
    new: str
    before: str
    data: bytes

    @property
    def text(self) -> str:
        """The difference."""
        return diff(self.path, self.old, self.new)


def plan_change(access: Access, path: str, change: str | Sequence[Replacement]) -> Change:
    """Return what a new text, or replacements in the old text, would make of a file."""
    try:
        file = access.root.read(path, access.may_read)
    except MissingError:
        if not isinstance(change, str):
            raise
        return Change(access.names(path)[-1], None, change, NO_FILE, encode(change, PLAIN))
    access.may_write(file.path)
    old, form = decode(file.data, path)
    new = change if isinstance(change, str) else _apply(old, change, path)
    return Change(file.path, old, new, file.digest, encode(new, form))


def check(run: Run[Any], change: Change) -> None:
    """Raise if the file is not the version that was read, and that was approved."""
    approved_digest = asked_digest(run)
    if approved_digest is not None and approved_digest != change.before:
        raise ChangedError(f"{change.path!r} has changed since this was approved; read it again")
    if change.before == NO_FILE:
        return
    digest = read_digest(run, change.path)
    if digest is None:
        raise NotReadError(f"{change.path!r} exists; read it before you change it")
    if digest != change.before:
        raise ChangedError(f"{change.path!r} has changed since it was read; read it again")


def _apply(text: str, edits: Sequence[Replacement], path: str) -> str:
    """Apply all replacements, or raise."""
    if not edits:
        raise NoMatchError("edits is empty; pass at least one replacement")
    for number, edit in enumerate(edits, 1):
        name = f"edit {number} of {path!r}" if len(edits) > 1 else f"the edit of {path!r}"
        if not edit.old:
            raise NoMatchError(f"{name} has an empty old text; use write for a new file")
        places = text.count(edit.old)
        if places == 0:
            raise NoMatchError(f"{name}: the old text does not occur{_hint(text, edit.old)}")
        if places > 1 and not edit.all:
            raise AmbiguousError(
                f"{name}: the old text occurs {places} times, in lines {_places(text, edit.old)}; "
                "pass more of the text around it, or all=true"
            )
        text = text.replace(edit.old, edit.new)
    return text


def _places(text: str, part: str) -> str:
    lines: list[str] = []
    at = text.find(part)
    while at >= 0 and len(lines) <= _MAX_PLACES:
        lines.append(str(text.count("\n", 0, at) + 1))
        at = text.find(part, at + len(part))
    return ", ".join(lines[:_MAX_PLACES]) + (" …" if len(lines) > _MAX_PLACES else "")


def _hint(text: str, part: str) -> str:
    """Say where a similar text is: the same line with other spaces, or its first words."""
    first_line = next((line.strip() for line in part.split("\n") if line.strip()), "")
    if not first_line:
        return "; read the file and copy the text exactly"
    lines = text.split("\n")
    numbers = [n for n, line in enumerate(lines, 1) if line.strip() == first_line]
    numbers = numbers or [n for n, line in enumerate(lines, 1) if first_line[:20] in line]
    if not numbers:
        return "; read the file and copy the text exactly"
    first = numbers[0]
    return f"; line {first} is {lines[first - 1][:200]!r}: copy the text exactly"
