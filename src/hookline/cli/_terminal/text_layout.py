"""Fit text to the width of a terminal, counted in cells. Pure.

All text of a model is indented, on every line of the terminal. Only hookline's own lines begin in
the first column, so a model's text cannot imitate a question or a tool call.
"""

from __future__ import annotations

from typing import Final

from rich.cells import cell_len

from hookline.cli._terminal.clean_text import prose

INDENT: Final = "  "
TAB: Final = "    "
ROOM: Final = 8  # least cells of a line, even on a narrow terminal


class Flow:
    """Breaks growing text into indented lines, between words.

    A word is held back until it is complete, because written text cannot be moved.
    """

    def __init__(self) -> None:
        self._column = 0  # cells of the open line with its indent; 0: no line is open
        self._blank = ""  # spaces, dropped at a line break
        self._word = ""
        self._cells = 0  # cells of the word
        self._cr = ""  # a carriage return whose next character is not known yet
        self._is_continuation = False  # whether the open line continues a long line

    def feed(self, text: str, width: int) -> str:
        """Return the part of the text that can be written now."""
        text = self._cr + text
        self._cr = "\r" if text.endswith("\r") else ""
        out: list[str] = []
        for char in prose(text.removesuffix("\r")):
            if char == "\n":
                out.append(self._flush(width) + "\n")
                self._column, self._blank, self._is_continuation = 0, "", False
            elif char in " \t":
                out.append(self._flush(width))
                self._blank += TAB if char == "\t" else " "
            else:
                out.append(self._add(char, width))
        return "".join(out)

    def end(self, width: int) -> str:
        """Return the remaining text, and the end of the line."""
        rest = self.feed("\n", width) if self._cr else ""
        rest += self._flush(width)
        line_end = "\n" if self._column else ""
        self._column, self._blank, self._is_continuation = 0, "", False
        return rest + line_end

    def _add(self, char: str, width: int) -> str:
        cells = cell_len(char)
        out = ""
        if cells == 2 or self._cells + cells > _room(width):  # a line may be broken before it
            out = self._flush(width)
        self._word += char
        self._cells += cells
        return out + self._flush(width) if cells == 2 else out

    def _flush(self, width: int) -> str:
        if not self._word:
            return ""
        out = ""
        if self._column and self._column + len(self._blank) + self._cells > len(INDENT) + _room(
            width
        ):
            out, self._column, self._blank, self._is_continuation = "\n", 0, "", True
        if not self._column:
            out += INDENT
            self._column = len(INDENT)
            if self._is_continuation or len(self._blank) + self._cells > _room(width):
                self._blank = ""
        out += self._blank + self._word
        self._column += len(self._blank) + self._cells
        self._word, self._blank, self._cells = "", "", 0
        return out


def _room(width: int) -> int:
    return max(ROOM, width - len(INDENT))


def fit(text: str, width: int) -> str:
    """Cut a text to a number of cells, with `…` at the cut."""
    if cell_len(text) <= width:
        return text
    part, cells = "", 0
    for char in text:
        cells += cell_len(char)
        if cells > width - 1:
            break
        part += char
    return part + "…"


def pad(text: str, width: int) -> str:
    """Pad or cut a text to exactly this number of cells."""
    text = fit(text, width)
    return text + " " * (width - cell_len(text))


def fold(text: str, width: int) -> list[str]:
    """Break the whole text into lines of this number of cells, at any character."""
    lines: list[str] = []
    line, cells = "", 0
    for char in text:
        size = cell_len(char)
        if line and cells + size > max(ROOM, width):
            lines.append(line)
            line, cells = "", 0
        line += char
        cells += size
    return [*lines, line]


def break_words(text: str, width: int) -> list[str]:
    """Break one line of clean text into lines of this number of cells, preferably between words."""
    lines: list[str] = []
    for word in text.split(" "):
        if lines and cell_len(lines[-1]) + 1 + cell_len(word) <= width:
            lines[-1] += f" {word}"
        else:
            lines += fold(word, width)
    return lines
