"""The pure half of `redact`: finds what must not be seen, in a whole text or piece by piece.

A stream gives the same as the whole text, however it is cut, for all patterns that look no further
than `hold` characters past what they have matched: so many are held back, and no more, but for a
match that is still growing. A match that grows without end withholds the rest of its text.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from math import inf
from typing import Any, Final, cast

from hookline.errors import UsageError

Replacement = str | Callable[[str], str]
GROWN: Final = 16  # times `hold`: a match that is longer has no end
FEW: Final = 32  # places that are tried one by one
_SPACE = re.compile(r"\s")
_RUN = re.compile(r"(\[\^?(?!\])(?:\\.|[^\]\\])+\]|\\[wdsWDS])\+(?![+?])")


class Redactor:
    """Patterns and values, and what stands in their place."""

    def __init__(
        self,
        patterns: Iterable[str | re.Pattern[str]],
        values: Iterable[str],
        replacement: Replacement,
        hold: int,
        words: bool,
    ) -> None:
        known = sorted({*values}, key=len, reverse=True)
        self.patterns = [re.compile(each) for each in patterns]
        if not known and not self.patterns:
            raise UsageError("redact() needs a pattern, or values=")
        if any(not value for value in known) or any(each.match("") for each in self.patterns):
            raise UsageError(
                "redact(): an empty value or match would be found everywhere; leave it out"
            )
        longest = len(known[0]) if known else 1
        self.hold = max(longest, hold if self.patterns else 1)
        # What holds no space is decided where the next one comes.
        self.words = (words or not self.patterns) and not any(map(_SPACE.search, known))
        self._replacement = replacement
        if known:
            self.patterns.append(re.compile("|".join(map(re.escape, known))))
        self.searches = [(each, _from_run_starts(each)) for each in self.patterns]

    def text(self, text: str) -> str:
        """The whole text without what must not be seen."""
        return Pieces(self, inf).feed(text, last=True)

    def data(self, value: Any) -> Any:
        """JSON data without it, keys and all."""
        if isinstance(value, str):
            return self.text(value)
        if isinstance(value, dict):
            items = cast("dict[str, Any]", value).items()
            return {self.text(key): self.data(each) for key, each in items}
        if isinstance(value, (list, tuple)):
            return [self.data(each) for each in cast("list[Any]", value)]
        return value

    def put(self, found: str) -> str:
        """What stands in its place."""
        return self._replacement if isinstance(self._replacement, str) else self._replacement(found)


class Pieces:
    """One text that comes in pieces."""

    def __init__(self, redactor: Redactor, longest: float | None = None) -> None:
        self._redactor = redactor
        self._longest = redactor.hold * GROWN if longest is None else longest
        self._raw = ""  # what is held back, and before it as much as a pattern may look back
        self._at = 0  # where the held back begins
        self._space = 0  # after the last space in it
        self._grows = 0  # up to where a match has come that may still grow
        self._withheld = False
        self.changed = False  # something was found in this text

    def feed(self, piece: str, *, last: bool = False) -> str:
        """What may be shown now."""
        raw, at = self._raw + piece, self._at
        sure = len(raw) if last else self._sure(raw, len(piece))
        if sure < self._grows:  # it cannot be decided before, so it need not be searched again
            self._raw = raw
            return ""
        out: list[str] = []
        finds = [_Find(*each) for each in self._redactor.searches]
        while at < sure and not self._withheld:
            spans = [span for find in finds if (span := find(raw, at, sure)) is not None]
            if not spans:
                break
            start, end = min(spans, key=lambda span: (span[0], -span[1]))
            out.append(raw[at:start])
            at = start
            self.changed = True
            if end - start > self._longest:
                self._withheld = True
            elif end > sure:
                sure = start  # it may still grow
                self._grows = end
                break
            out.append(self._redactor.put(raw[start:end]))
            at = end
        if self._withheld:
            at = sure = len(raw)
        if at < sure:
            out.append(raw[at:sure])
            at = sure
        self._keep(raw, at, last)
        return "".join(out)

    def _keep(self, raw: str, at: int, last: bool) -> None:
        """Remember what is held back, and before it what a pattern may look back at."""
        dropped = len(raw) if last else max(0, at - self._redactor.hold)
        self._raw, self._at = raw[dropped:], 0 if last else at - dropped
        self._space = max(0, self._space - dropped)
        self._grows = max(0, self._grows - dropped)
        self._withheld = self._withheld and not last

    def _sure(self, raw: str, new: int) -> int:
        """Up to where nothing that comes can change what was found."""
        sure = max(self._at, len(raw) - self._redactor.hold)
        if self._redactor.words:
            for place in range(len(raw) - 1, len(raw) - new - 1, -1):
                if raw[place].isspace():
                    self._space = place + 1
                    break
        return max(sure, self._space)


def _from_run_starts(pattern: re.Pattern[str]) -> re.Pattern[str]:
    """The same pattern, not tried again inside of a run of what it begins with.

    What begins with `[a-z]+` and fails where a run of such characters begins fails in all of the
    run. A search that tries every place costs the square of a long word.
    """
    run = _RUN.match(pattern.pattern)
    if run is None or pattern.flags & re.VERBOSE:
        return pattern
    return re.compile(f"(?<!{run[1]}){pattern.pattern}", pattern.flags)


class _Find:
    """The next match of one pattern that is not empty and begins at a decided place."""

    def __init__(self, pattern: re.Pattern[str], search: re.Pattern[str]) -> None:
        self._pattern = pattern
        self._search = search
        self._span: tuple[int, int] | None = (-1, -1)  # remembered while it lies ahead

    def __call__(self, raw: str, at: int, before: int) -> tuple[int, int] | None:
        if before - at <= FEW:  # a live text: what is held back need not be searched each time
            for place in range(at, before):
                found = self._pattern.match(raw, place)
                if found is not None:
                    if found.end() > place:
                        return found.span()
                    break
            else:
                return None
        if self._span is not None and self._span[0] < at:
            self._span = self._next(raw, at)
        return self._span if self._span is not None and self._span[0] < before else None

    def _next(self, raw: str, at: int) -> tuple[int, int] | None:
        here = self._pattern.match(raw, at)  # which may be in the middle of a run
        if here is not None and here.end() > at:
            return here.span()
        spans = (found.span() for found in self._search.finditer(raw, at))
        return next((span for span in spans if span[0] < span[1]), None)
