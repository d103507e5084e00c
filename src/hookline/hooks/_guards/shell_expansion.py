"""Expand a command line like a shell, as far as its text allows. Pure functions.

Variables get the values that the text itself assigns, and are empty otherwise. A substitution is
replaced by the output of an `echo` or `printf` in it, and is empty otherwise. The result is a
guess, so callers also check the unexpanded text.
"""

from __future__ import annotations

import re
import shlex
from typing import Final

ROUNDS: Final = 4  # levels of variables in variables
LONGEST: Final = 16  # the most growth, as a multiple of the text; at least a page is allowed
_ANSI = re.compile(r"\$'((?:\\.|[^'\\])*)'", re.DOTALL)
_ESCAPE = re.compile(
    r"\\(?:x([\da-fA-F]{1,2})|u([\da-fA-F]{1,4})|U([\da-fA-F]{1,8})|([0-7]{1,3})|c(.)|(.))",
    re.DOTALL,
)
_SHORT: Final = {"n": "\n", "t": "\t", "r": "\r", "a": "\a", "b": "\b", "e": "\x1b"}
_VALUE = r"""((?:'[^']*'|"(?:\\.|[^"\\])*"|\\.|[^\s;&|()<>`'"\\])*)"""
_GIVEN = re.compile(rf"(?:(?<=[\s;&|(`])|^)([a-z_]\w*)\+?={_VALUE}", re.DOTALL)
_NAMED = re.compile(
    r"\$(?:([a-z_]\w*)|[0-9@*]|\{([a-z_]\w*|[0-9@*]+)(?::?[-=+]([^{}]*)|[^{}]*)?\})"
)
_SUBSTITUTED = re.compile(r"\$\(([^()`]*)\)|`([^`()]*)`")
_PRINTED = re.compile(r"(?:echo|printf)\s+(?:-[a-z]+\s+)*(.*)", re.DOTALL)
_BRACES = re.compile(r"\{([^{}\s]*)\}")
_WHOLE_QUOTE = re.compile(r"""'([^']*)'|"([^"\\]*)\"""")


def expand(text: str) -> str | None:
    """Expand a line as the shell would, in lower case; None if it grows too much."""
    text = _ANSI.sub(lambda found: shlex.quote(_ESCAPE.sub(_character, found[1])), text)
    text = re.sub(r"\\\r?\n", "", text.lower())
    given = {"ifs": " "}
    longest = max(4096, LONGEST * len(text))
    for _ in range(ROUNDS):
        given |= {name: _bare(value) for name, value in _GIVEN.findall(text)}
        before, grown = text, _with_values(text, given, longest)
        if grown is None:
            return None
        text = _SUBSTITUTED.sub(_printed, grown)
        if text == before:
            break
    return _BRACES.sub(lambda listed: listed[1].replace(",", " "), text)


def _with_values(text: str, given: dict[str, str], longest: int) -> str | None:
    """Insert the values of variables into the text; None if the result is too long."""
    out: list[str] = []
    at = size = 0
    for found in _NAMED.finditer(text):
        value = given.get(found[1] or found[2] or "", found[3] or "")
        out += (text[at : found.start()], value)
        at = found.end()
        size += len(value)
        if size > longest:
            return None
    return "".join([*out, text[at:]])


def _character(escape: re.Match[str]) -> str:
    code = escape[1] or escape[2] or escape[3]
    if code is not None:
        value = int(code, 16)
        return chr(value) if value < 0x110000 else ""
    if escape[4] is not None:
        return chr(int(escape[4], 8) & 0xFF)
    if escape[5] is not None:
        return chr(ord(escape[5]) & 0x1F)
    return _SHORT.get(escape[6], escape[6])


def _bare(value: str) -> str:
    """Remove the quotes around a value."""
    whole = _WHOLE_QUOTE.fullmatch(value)
    return value if whole is None else whole[1] or whole[2] or ""


def _printed(found: re.Match[str]) -> str:
    printed = _PRINTED.fullmatch((found[1] or found[2] or "").strip())
    return "" if printed is None else _bare(printed[1])
