"""What others wrote, made fit for a terminal. Pure.

A model, a tool or a stored conversation may hold escape sequences that move the cursor, recolour,
retitle or answer for the user, and characters that hide or reorder what is beside them. None of
them gets out of here: each is shown as a picture or as its number. `prose` is for text that is
read; `strict`, for names, arguments and results, also shows what is merely invisible, and puts all
of it on one line.
"""

from __future__ import annotations

import unicodedata
from typing import Final

# Joiners and marks of direction, without which some scripts and emoji are not written rightly.
# They may stand in prose; in arguments they are shown.
WRITTEN: Final = frozenset("\u200c\u200d\u200e\u200f\u061c")
# What is printed as nothing, or as a blank, though its category is that of a letter or a mark.
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
    """Each character as it is shown in prose, found out once."""

    def __missing__(self, code: int) -> str:
        char = chr(code)
        if char in "\n\t" or char in WRITTEN:
            shown = char
        elif code < 0x20:
            shown = chr(0x2400 + code)  # a picture of it, such as ␛
        elif code == 0x7F:
            shown = "␡"
        else:
            shown = _number(code) if unicodedata.category(char) in _HIDDEN else char
        self[code] = shown
        return shown


class _Strict(dict[int, str]):
    """Each character as it is shown where nothing may be hidden."""

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
    """Text to be read: lines and tabs stay, what controls a terminal is shown instead of done."""
    return text.replace("\r\n", "\n").translate(_prose)


def strict(text: str) -> str:
    """Text on one line, in which nothing is invisible."""
    return text.translate(_strict)
