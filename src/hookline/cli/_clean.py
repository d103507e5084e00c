"""Make foreign text safe for a terminal. Pure.

Text from a model, a tool or a stored conversation may contain escape sequences that move the
cursor, recolour, retitle or answer for the user, and characters that hide or reorder their
neighbours. Each of them is replaced by a visible symbol or by its number. `prose` is for text to be
read. `strict` is for names, arguments and results: it also makes invisible characters visible, and
returns a single line.
"""

from __future__ import annotations

import unicodedata
from typing import Final

# Joiners and marks of direction, which some scripts and emoji need to be written correctly. They
# are kept in prose, and made visible in arguments.
WRITTEN: Final = frozenset("\u200c\u200d\u200e\u200f\u061c")
# Letters and marks that are printed as nothing, or as a blank.
UNSEEN: Final = (
    (0x034F, 0x034F), (0x115F, 0x1160), (0x17B4, 0x17B5), (0x180B, 0x180F), (0x2800, 0x2800),
    (0x3164, 0x3164), (0xFE00, 0xFE0F), (0xFFA0, 0xFFA0), (0xE0100, 0xE01EF),
)  # fmt: skip
_HIDDEN: Final = frozenset({"Cc", "Cf", "Cs", "Zl", "Zp"})


def _number(code: int) -> str:
    if code < 0x100:
        return f"\\x{code:02x}"
    return f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


class _Prose(dict[int, str]):
    """Maps each character to its form in prose; each is computed once."""

    def __missing__(self, code: int) -> str:
        char = chr(code)
        if char in "\n\t" or char in WRITTEN:
            shown = char
        elif code < 0x20:
            shown = chr(0x2400 + code)  # a visible symbol, such as ␛
        elif code == 0x7F:
            shown = "␡"
        else:
            shown = _number(code) if unicodedata.category(char) in _HIDDEN else char
        self[code] = shown
        return shown


class _Strict(dict[int, str]):
    """Maps each character to its form in strict text, in which nothing is hidden."""

    def __missing__(self, code: int) -> str:
        char = chr(code)
        named = {"\n": "\\n", "\r": "\\r", "\t": "\\t"}.get(char)
        seen = char.isprintable() and not any(first <= code <= last for first, last in UNSEEN)
        shown = named or (char if seen else _number(code))
        self[code] = shown
        return shown


_prose: Final = _Prose()
_strict: Final = _Strict()


def prose(text: str) -> str:
    """Clean text to be read: keep lines and tabs, and make control characters visible."""
    return text.replace("\r\n", "\n").translate(_prose)


def strict(text: str) -> str:
    """Clean text to a single line without invisible characters."""
    return text.translate(_strict)
