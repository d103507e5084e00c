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
_ASSIGNMENT = re.compile(rf"(?:(?<=[\s;&|(`])|^)([a-z_]\w*)\+?={_VALUE}", re.DOTALL)
_VARIABLE = re.compile(
    r"\$(?:([a-z_]\w*)|[0-9@*]|\{([a-z_]\w*|[0-9@*]+)(?::?[-=+]([^{}]*)|[^{}]*)?\})"
)
_SUBSTITUTED = re.compile(r"\$\(([^()`]*)\)|`([^`()]*)`")
_PRINTED = re.compile(r"(?:echo|printf)\s+(?:-[a-z]+\s+)*(.*)", re.DOTALL)
_BRACES = re.compile(r"\{([^{}\s]*)\}")
_WHOLE_QUOTE = re.compile(r"""'([^']*)'|"([^"\\]*)\"""")


def expand(text: str) -> str | None:
    """Expand a line as the shell would, in lower case; None if it grows too much."""
    text = _ANSI.sub(lambda match: shlex.quote(_ESCAPE.sub(_character, match[1])), text)
    text = re.sub(r"\\\r?\n", "", text.lower())
    variables = {"ifs": " "}
    longest = max(4096, LONGEST * len(text))
    for _ in range(ROUNDS):
        variables |= {name: _bare(value) for name, value in _ASSIGNMENT.findall(text)}
        before, longer = text, _with_values(text, variables, longest)
        if longer is None:
            return None
        text = _SUBSTITUTED.sub(_printed, longer)
        if text == before:
            break
    return _BRACES.sub(lambda match: match[1].replace(",", " "), text)


def _with_values(text: str, variables: dict[str, str], longest: int) -> str | None:
    """Insert the values of variables into the text; None if the result is too long."""
    out: list[str] = []
    at = size = 0
    for match in _VARIABLE.finditer(text):
        value = variables.get(match[1] or match[2] or "", match[3] or "")
        out += (text[at : match.start()], value)
        at = match.end()
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


def _printed(match: re.Match[str]) -> str:
    printed = _PRINTED.fullmatch((match[1] or match[2] or "").strip())
    return "" if printed is None else _bare(printed[1])
