"""Parse the beginning of a JSON object, such as an unfinished answer. Pure functions.

An unfinished string is returned as far as it goes. An unfinished number, name or literal is left
out until it is complete.
"""

from __future__ import annotations

import re
from typing import Any, Final

import msgspec

NOTHING: Final = object()
_BRACKETS: Final = "{[}]"
_CLOSER: Final = {"{": "}", "[": "]"}
_RUN: Final = re.compile(r'[^"\\]+')
_SCALAR: Final = re.compile(r"[^\s,\]}\[{:\"]+")


def partial_object(text: str) -> Any:
    """Parse the object that the text begins; or return NOTHING."""
    whole = _closed(text)
    if whole is None:
        return NOTHING
    try:
        return msgspec.json.decode(whole)
    except (msgspec.DecodeError, UnicodeEncodeError, RecursionError):
        return NOTHING


def _closed(text: str) -> str | None:
    """Close the text after its last complete value; None if no object has begun."""
    place = len(text) - len(text.lstrip())
    if not text.startswith("{", place):
        return None
    closers, names = "}", True  # the missing closers, innermost first; whether a name comes next
    place += 1
    best = place, closers  # the end of the last complete value
    while place < len(text) and closers:
        char = text[place]
        if char == '"':
            place, whole = _string(text, place)
            if not whole:
                return text[: best[0]] + best[1] if names else f'{text[:place]}"{closers}'
            best = best if names else (place, closers)
            names = False
        elif (scalar := _SCALAR.match(text, place)) is not None:
            place = scalar.end()
            best = best if place == len(text) else (place, closers)
        else:
            place += 1
            names = char == "{" or (char == "," and closers.startswith("}"))
            if char in _BRACKETS:
                closers = _CLOSER[char] + closers if char in _CLOSER else closers[1:]
                best = place, closers
    return text[: best[0]] + best[1]


def _string(text: str, place: int) -> tuple[int, bool]:
    """Find the end of the string that begins here; False if it is not closed yet."""
    place += 1
    while place < len(text):
        if text[place] == '"':
            return place + 1, True
        run = _RUN.match(text, place)
        if run is not None:
            place = run.end()
            continue
        size = 2 if text[place + 1 : place + 2] != "u" else 6
        if size == 6 and text[place + 2 : place + 4].lower() in ("d8", "d9", "da", "db"):
            size = 12  # a surrogate: the other half follows
        if place + size > len(text):
            break
        place += size
    return place, False
