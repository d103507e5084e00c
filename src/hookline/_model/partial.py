"""The beginning of a JSON object as data: what an answer that is being written says so far. Pure.

A string that is being written is shown as far as it goes; a number, a name or a word that may go on
is left out until it is whole.
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
    """The object that the text begins, or NOTHING."""
    whole = _closed(text)
    if whole is None:
        return NOTHING
    try:
        return msgspec.json.decode(whole)
    except (msgspec.DecodeError, UnicodeEncodeError, RecursionError):
        return NOTHING


def _closed(text: str) -> str | None:
    """The text up to the last whole value, with what is open closed; None before the object."""
    place = len(text) - len(text.lstrip())
    if not text.startswith("{", place):
        return None
    closers, names = "}", True  # what closes the open ones, inmost first; a name comes next
    place += 1
    best = place, closers  # up to where it is whole
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
    """Where the string ends that begins here, or its last whole character; and which of the two."""
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
            size = 12  # half a character: the other half comes next
        if place + size > len(text):
            break
        place += size
    return place, False
