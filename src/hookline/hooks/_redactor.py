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
        self._withheld = False
        self.changed = False  # something was found in this text

    def feed(self, piece: str, *, last: bool = False) -> str:
        """What may be shown now."""
        raw, at = self._raw + piece, self._at
        sure = len(raw) if last else self._sure(raw)
        out: list[str] = []
        finds = [_Find(each) for each in self._redactor.patterns]
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
                break
            out.append(self._redactor.put(raw[start:end]))
            at = end
        if self._withheld:
            at = sure = len(raw)
        if at < sure:
            out.append(raw[at:sure])
            at = sure
        kept = 0 if last else max(0, at - self._redactor.hold)
        self._raw, self._at = ("", 0) if last else (raw[kept:], at - kept)
        self._withheld = self._withheld and not last
        return "".join(out)

    def _sure(self, raw: str) -> int:
        """Up to where nothing that comes can change what was found."""
        sure = max(self._at, len(raw) - self._redactor.hold)
        if self._redactor.words:
            for place in range(len(raw) - 1, sure - 1, -1):
                if raw[place].isspace():
                    return place + 1
        return sure


class _Find:
    """The next match of one pattern that is not empty and begins at a decided place."""

    def __init__(self, pattern: re.Pattern[str]) -> None:
        self._pattern = pattern
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
            spans = (found.span() for found in self._pattern.finditer(raw, at))
            self._span = next((span for span in spans if span[0] < span[1]), None)
        return self._span if self._span is not None and self._span[0] < before else None
