"""Text in the width of a terminal, counted in its cells. Pure.

All that a model says stands behind an indent, on every line that the terminal shows: what begins
in the first column is hookline's own, so that no text can pass for a question or a tool call.
"""

from __future__ import annotations

from typing import Final

from rich.cells import cell_len

from hookline.cli._clean import prose

INDENT: Final = "  "
TAB: Final = "    "
ROOM: Final = 8  # cells that a line has at least, however narrow the terminal


class Flow:
    """Text as it comes → lines behind an indent, broken between words.

    A word is held back until it is whole, since nothing that stands on a terminal can be moved.
    """

    def __init__(self) -> None:
        self._column = 0  # cells on the open line, with its indent; 0: it has not begun
        self._blank = ""  # spaces, which a break swallows
        self._word = ""
        self._cells = 0  # of the word
        self._cr = ""  # a carriage return, of which it is not yet known what follows
        self._wrapped = False  # the open line goes on with one that was too long

    @property
    def open(self) -> bool:
        """Whether something stands on the line that is being written."""
        return self._column > 0

    def feed(self, text: str, width: int) -> str:
        """What of this text can be written now."""
        text = self._cr + text
        self._cr = "\r" if text.endswith("\r") else ""
        out: list[str] = []
        for char in prose(text.removesuffix("\r")):
            if char == "\n":
                out.append(self._flush(width) + "\n")
                self._column, self._blank, self._wrapped = 0, "", False
            elif char in " \t":
                out.append(self._flush(width))
                self._blank += TAB if char == "\t" else " "
            else:
                out.append(self._add(char, width))
        return "".join(out)

    def end(self, width: int) -> str:
        """The rest, and the end of the line."""
        rest = self.feed("\n", width) if self._cr else ""
        rest += self._flush(width)
        ended = "\n" if self._column else ""
        self._column, self._blank, self._wrapped = 0, "", False
        return rest + ended

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
            out, self._column, self._blank, self._wrapped = "\n", 0, "", True
        if not self._column:
            out += INDENT
            self._column = len(INDENT)
            if self._wrapped or len(self._blank) + self._cells > _room(width):
                self._blank = ""
        out += self._blank + self._word
        self._column += len(self._blank) + self._cells
        self._word, self._blank, self._cells = "", "", 0
        return out


def _room(width: int) -> int:
    return max(ROOM, width - len(INDENT))


def fit(text: str, width: int) -> str:
    """The text, cut to so many cells; `…` says that it was cut."""
    if cell_len(text) <= width:
        return text
    kept, cells = "", 0
    for char in text:
        cells += cell_len(char)
        if cells > width - 1:
            break
        kept += char
    return kept + "…"


def pad(text: str, width: int) -> str:
    """The text in exactly so many cells."""
    text = fit(text, width)
    return text + " " * (width - cell_len(text))


def fold(text: str, width: int) -> list[str]:
    """All of the text in lines of so many cells, broken anywhere, with nothing left out."""
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
    """Clean text of one line in lines of so many cells, broken between words where it can be."""
    lines: list[str] = []
    for word in text.split(" "):
        if lines and cell_len(lines[-1]) + 1 + cell_len(word) <= width:
            lines[-1] += f" {word}"
        else:
            lines += fold(word, width)
    return lines
