"""The difference of two texts, for people, and bounded in time and size."""

from __future__ import annotations

from difflib import unified_diff
from typing import Final

MAX_LINES: Final = 4000
"""The most changed lines that are compared; more are shown as removed and added."""
MAX_DIFF: Final = 60_000
_CONTEXT: Final = 3


def diff(path: str, old: str | None, new: str | None) -> str:
    """Return the unified difference; None stands for no file."""
    before, after = _lines(old), _lines(new)
    start = _common(before, after)
    rest = _common(before[start:][::-1], after[start:][::-1])
    first = max(start - _CONTEXT, 0)
    last = max(rest - _CONTEXT, 0)
    middle = before[first : len(before) - last], after[first : len(after) - last]
    names = ("/dev/null" if old is None else path, "/dev/null" if new is None else path)
    if sum(map(len, middle)) > MAX_LINES:
        old_lines, new_lines = [
            before[start : len(before) - rest],
            after[start : len(after) - rest],
        ]
        body = [f"@@ -{start + 1},{len(old_lines)} +{start + 1},{len(new_lines)} @@\n"]
        body += [f"-{line}" for line in old_lines] + [f"+{line}" for line in new_lines]
        lines = [f"--- {names[0]}\n", f"+++ {names[1]}\n", *body]
    else:
        lines = list(unified_diff(*middle, *names, n=_CONTEXT))
        lines = [_shift(line, first) if line.startswith("@@") else line for line in lines]
    text = "".join(
        line if line.endswith("\n") else f"{line}\n\\ No newline at end of file\n" for line in lines
    )
    if len(text) > MAX_DIFF:
        text = f"{text[:MAX_DIFF]}\n[{len(text) - MAX_DIFF:,} more characters]\n"
    return text


def counts(text: str) -> tuple[int, int]:
    """Return the number of added and of removed lines of a difference."""
    lines = text.split("\n")[2:]
    return (
        sum(line.startswith("+") for line in lines),
        sum(line.startswith("-") for line in lines),
    )


def _lines(text: str | None) -> list[str]:
    return [] if text is None else text.splitlines(keepends=True)


def _common(one: list[str], other: list[str]) -> int:
    """The number of lines that both begin with."""
    number = 0
    for line, same in zip(one, other, strict=False):
        if line != same:
            break
        number += 1
    return number


def _shift(head: str, lines: int) -> str:
    """The head of a hunk, whose lines are counted from the start of the file."""
    _, old, new, *_ = head.split(" ")
    return f"@@ {_later(old, lines)} {_later(new, lines)} @@\n"


def _later(place: str, lines: int) -> str:
    start, comma, count = place[1:].partition(",")
    return f"{place[0]}{int(start) + lines}{comma}{count}"
