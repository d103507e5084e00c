"""Make foreign text safe for a terminal. Pure.

Text from a model, a tool or a stored conversation may contain escape sequences that move the
cursor, recolour, retitle or answer for the user, and characters that hide or reorder their
neighbours. Each of them is replaced by a visible symbol or by its number. `prose` is for text to be
read. `strict` of `hookline.events` is for names, arguments and results.
"""

from __future__ import annotations

import unicodedata
from typing import Final

from hookline.events import strict

__all__ = ["prose", "strict"]

# Joiners and marks of direction, which some scripts and emoji need to be written correctly. They
# are kept in prose, and made visible in arguments.
DIRECTION_MARKS: Final = frozenset("\u200c\u200d\u200e\u200f\u061c")
_INVISIBLE: Final = frozenset({"Cc", "Cf", "Cs", "Zl", "Zp"})


class _Prose(dict[int, str]):
    """Maps each character to its form in prose; each is computed once."""

    def __missing__(self, code: int) -> str:
        char = chr(code)
        if char in "\n\t" or char in DIRECTION_MARKS:
            symbol = char
        elif code < 0x20:
            symbol = chr(0x2400 + code)  # a visible symbol, such as ␛
        elif code == 0x7F:
            symbol = "␡"
        else:
            symbol = strict(char) if unicodedata.category(char) in _INVISIBLE else char
        self[code] = symbol
        return symbol


_prose: Final = _Prose()


def prose(text: str) -> str:
    """Clean text to be read: keep lines and tabs, and make control characters visible."""
    return text.replace("\r\n", "\n").translate(_prose)
