"""The pure half of `redact`: finds and replaces matches in a whole text or piece by piece.

A stream gives the same result as the whole text, however it is split, for all patterns that look at
most `hold` characters past their match. Only that many characters are held back, except for a match
that is still growing. If a match grows without end, the rest of its text is withheld.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from math import inf
from typing import Any, Final, cast

from hookline.errors import UsageError
from hookline.points import as_tuple

Replacement = str | Callable[[str], str]
"""The text in place of a match, or a function of the match."""
MAX_GROWTH: Final = 16  # as a multiple of `hold`: a longer match counts as endless
FEW: Final = 32  # the number of places that are tried one by one
_RAISED: Final = str.maketrans("0123456789", "⁰¹²³⁴⁵⁶⁷⁸⁹")
_SPACE = re.compile(r"\s")
_RUN = re.compile(r"(\[\^?(?!\])(?:\\.|[^\]\\])+\]|\\[wdsWDS])\+(?![+?])")


class Redactor:
    """Patterns and values, and their replacement."""

    def __init__(
        self,
        patterns: Iterable[str | re.Pattern[str]],
        values: Iterable[str],
        replacement: Replacement,
        hold: int,
        words: bool,
    ) -> None:
        texts = sorted({*map(_value, as_tuple("values", values))}, key=len, reverse=True)
        self.patterns = [_pattern(pattern) for pattern in patterns]
        if not texts and not self.patterns:
            raise UsageError("redact() needs a pattern or values=")
        if "" in texts or any(pattern.match("") for pattern in self.patterns):
            raise UsageError(
                "redact(): an empty value or match would be found everywhere; leave it out"
            )
        longest = len(texts[0]) if texts else 1
        self.hold = max(longest, hold if self.patterns else 1)
        # Without spaces in any match, a word can be decided at the next space.
        self.words = (words or not self.patterns) and not any(map(_SPACE.search, texts))
        self._replacement = replacement
        if texts:
            self.patterns.append(re.compile("|".join(map(re.escape, texts))))
        self.searches = [(pattern, _from_run_starts(pattern)) for pattern in self.patterns]
        if isinstance(replacement, str) and self.text(replacement) != replacement:
            raise UsageError(
                f"redact(replacement={replacement!r}): a pattern or value matches a part of the "
                "replacement, which would then be redacted again; choose another replacement"
            )

    def text(self, text: str) -> str:
        """Redact a whole text."""
        return Pieces(self, inf).feed(text, last=True)

    def data(self, value: Any) -> Any:
        """Redact JSON data, including its keys; a number that matches becomes text.

        If keys become equal, a raised number is added, as in `[redacted]²`, so that no value is
        lost. Few patterns match such a number, so redacting twice changes nothing.
        """
        if isinstance(value, str):
            return self.text(value)
        if isinstance(value, dict):
            items = cast("dict[str, Any]", value)
            return dict(zip(self._keys(items), map(self.data, items.values()), strict=True))
        if isinstance(value, (list, tuple)):
            return [self.data(item) for item in cast("list[Any]", value)]
        if value is None or isinstance(value, bool):
            return value
        text = repr(value)
        clean = self.text(text)
        return value if clean == text else clean

    def _keys(self, keys: Iterable[str]) -> list[str]:
        """Redact the keys of an object, which stay different; other keys do not change."""
        clean = [(key, self.text(key)) for key in keys]
        names = {key for key, text in clean if text == key}
        last: dict[str, int] = {}
        out: list[str] = []
        for key, text in clean:
            new = text
            while text != key and new in names:
                last[text] = last.get(text, 1) + 1
                new = text + str(last[text]).translate(_RAISED)
            names.add(new)
            out.append(new)
        return out

    def put(self, match: str) -> str:
        """Return the replacement of a match."""
        return self._replacement if isinstance(self._replacement, str) else self._replacement(match)


def _value(value: Any) -> str:
    if isinstance(value, str):
        return value
    kind = type(value).__name__
    raise UsageError(f"redact(values=) has a value of type {kind}; pass the texts to replace")


def _pattern(source: Any) -> re.Pattern[str]:
    try:
        pattern: re.Pattern[Any] = re.compile(source)
    except (TypeError, re.error) as exc:
        raise UsageError(
            f"redact() got {source!r}, which is not a regular expression ({exc}); pass each "
            "pattern by itself, and pass plain texts as values=[…]"
        ) from exc
    if isinstance(pattern.pattern, str):
        return pattern
    raise UsageError(f"redact() got {source!r}, which is a pattern of bytes; pass one of a str")


class Pieces:
    """One text that arrives in pieces."""

    def __init__(self, redactor: Redactor, longest: float | None = None) -> None:
        self._redactor = redactor
        self._longest = redactor.hold * MAX_GROWTH if longest is None else longest
        self._raw = ""  # the held-back text, and the text before it that a pattern may look back at
        self._at = 0  # where the held-back text begins
        self._space = 0  # the place after the last space in it
        self._grows = 0  # the end of a match that may still grow
        self._endless = False
        self.has_match = False  # whether there was a match in this text

    def feed(self, piece: str, *, last: bool = False) -> str:
        """Add a piece; returns the text that may be shown now."""
        raw, at = self._raw + piece, self._at
        sure = len(raw) if last else self._sure(raw, len(piece))
        if sure < self._grows:  # a match is still undecided, so there is no need to search again
            self._raw = raw
            return ""
        out: list[str] = []
        finds = [_Find(*search) for search in self._redactor.searches]
        while at < sure and not self._endless:
            spans = [span for find in finds if (span := find(raw, at, sure)) is not None]
            if not spans:
                break
            start, end = min(spans, key=lambda span: (span[0], -span[1]))
            out.append(raw[at:start])
            at = start
            self.has_match = True
            if end - start > self._longest:
                self._endless = True
            elif end > sure:
                sure = start  # the match may still grow
                self._grows = end
                break
            out.append(self._redactor.put(raw[start:end]))
            at = end
        if self._endless:
            at = sure = len(raw)
        if at < sure:
            out.append(raw[at:sure])
            at = sure
        self._keep(raw, at, last)
        return "".join(out)

    def _keep(self, raw: str, at: int, last: bool) -> None:
        """Keep the held-back text, and the text before it that a pattern may look back at."""
        start = len(raw) if last else max(0, at - self._redactor.hold)
        self._raw, self._at = raw[start:], 0 if last else at - start
        self._space = max(0, self._space - start)
        self._grows = max(0, self._grows - start)
        self._endless = self._endless and not last

    def _sure(self, raw: str, new: int) -> int:
        """Return the place before which later text cannot change the matches."""
        sure = max(self._at, len(raw) - self._redactor.hold)
        if self._redactor.words:
            for place in range(len(raw) - 1, len(raw) - new - 1, -1):
                if raw[place].isspace():
                    self._space = place + 1
                    break
        return max(sure, self._space)


def _from_run_starts(pattern: re.Pattern[str]) -> re.Pattern[str]:
    """Make a pattern that is not tried again inside a run of the characters that it begins with.

    If a pattern begins with `[a-z]+` and fails at the start of a run of such characters, it fails
    everywhere in the run. Trying every place would take quadratic time for a long word.
    """
    run = _RUN.match(pattern.pattern)
    if run is None or pattern.flags & re.VERBOSE:
        return pattern
    return re.compile(f"(?<!{run[1]}){pattern.pattern}", pattern.flags)


class _Find:
    """Finds the next non-empty match of a pattern that begins at a decided place."""

    def __init__(self, pattern: re.Pattern[str], search: re.Pattern[str]) -> None:
        self._pattern = pattern
        self._search = search
        self._span: tuple[int, int] | None = (-1, -1)  # the next match, cached until it is passed

    def __call__(self, raw: str, at: int, before: int) -> tuple[int, int] | None:
        if before - at <= FEW:  # live text: avoids searching the held-back text each time
            for place in range(at, before):
                match = self._pattern.match(raw, place)
                if match is not None:
                    if match.end() > place:
                        return match.span()
                    break
            else:
                return None
        if self._span is not None and self._span[0] < at:
            self._span = self._next(raw, at)
        return self._span if self._span is not None and self._span[0] < before else None

    def _next(self, raw: str, at: int) -> tuple[int, int] | None:
        match = self._pattern.match(raw, at)  # the place may be in the middle of a run
        if match is not None and match.end() > at:
            return match.span()
        spans = (match.span() for match in self._search.finditer(raw, at))
        return next((span for span in spans if span[0] < span[1]), None)
