"""Make hidden characters of foreign text visible, for a person who decides by what is shown. Pure.

Text from a model, a tool or a server may contain characters that move the cursor, hide, or reorder
their neighbours. Whoever asks a person about a call shows its name, arguments and prompt so.
"""

from __future__ import annotations

from typing import Final

# Letters and marks that are printed as nothing, or as a blank.
UNSEEN: Final = (
    (0x034F, 0x034F), (0x115F, 0x1160), (0x17B4, 0x17B5), (0x180B, 0x180F), (0x2800, 0x2800),
    (0x3164, 0x3164), (0xFE00, 0xFE0F), (0xFFA0, 0xFFA0), (0xE0100, 0xE01EF),
)  # fmt: skip


def _number(code: int) -> str:
    if code < 0x100:
        return f"\\x{code:02x}"
    return f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


class _Strict(dict[int, str]):
    """Maps each character to its form in strict text, in which nothing is hidden."""

    def __missing__(self, code: int) -> str:
        char = chr(code)
        escape = {"\n": "\\n", "\r": "\\r", "\t": "\\t"}.get(char)
        is_visible = char.isprintable() and not any(first <= code <= last for first, last in UNSEEN)
        text = escape or (char if is_visible else _number(code))
        self[code] = text
        return text


_strict: Final = _Strict()


def strict(text: str) -> str:
    """Return the text on a single line, with the number of each hidden character in its place."""
    return text.translate(_strict)
