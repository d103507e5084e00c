"""Match tool names with patterns: the same rules for `tools=`, the ready-made guards and MCP."""

from __future__ import annotations

from collections.abc import Iterable
from fnmatch import fnmatchcase
from typing import Final

from hookline._base.lists import as_tuple

_MAX_NAMES: Final = 1024  # names per `NamePatterns`: a model can invent any number of names


def matches(name: str, patterns: Iterable[str]) -> bool:
    """Return whether one of these patterns matches the name; `*` matches anything."""
    return any(fnmatchcase(name, pattern) for pattern in as_tuple("patterns", patterns))


def unmatched(patterns: Iterable[str], names: Iterable[str]) -> tuple[str, ...]:
    """Return the patterns that match none of these names."""
    names = tuple(names)
    return tuple(
        pattern for pattern in patterns if not any(matches(name, (pattern,)) for name in names)
    )


class NamePatterns:
    """Patterns that cache their results: `name in patterns` is a dict lookup."""

    __slots__ = ("_cache", "_patterns")

    def __init__(self, patterns: tuple[str, ...]) -> None:
        self._patterns = patterns
        self._cache: dict[str, bool] = {}

    def __contains__(self, name: str) -> bool:
        result = self._cache.get(name)
        if result is None:
            if len(self._cache) >= _MAX_NAMES:
                self._cache.clear()
            result = self._cache[name] = matches(name, self._patterns)
        return result
