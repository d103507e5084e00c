"""Convert Markdown to lines of styled pieces, in the width of a terminal. Pure.

The parser is the one for the chat page (`hookline.web`): HTML stays text, an image becomes a link,
a formula stays unchanged. Nothing is hidden: a link is followed by its address. The output is
clean, and indented like all text of a model (`text_layout.py`).
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import zip_longest
from typing import Any, Final

from rich.cells import cell_len

from hookline.cli._terminal.clean_text import prose, strict
from hookline.cli._terminal.styled_lines import Line, Piece
from hookline.cli._terminal.text_layout import INDENT, ROOM, TAB
from hookline.web._page.markdown import Node, blocks

MEASURE: Final = 100  # most cells of a line of prose: longer lines are hard to read
NARROWEST: Final = 2  # least cells of a table column
STYLED: Final = {"strong": "strong", "em": "em", "s": "struck", "code": "code", "a": "link"}
GAP: Final = "  "  # between columns
BULLETS: Final = ("• ", "◦ ", "▪ ")


def markdown(text: str, width: int) -> list[Line]:
    """Convert a text to indented lines of at most this number of cells."""
    room = max(ROOM, width - len(INDENT))
    lines: list[Line] = []
    for line in _stacked([each.node for each in blocks(prose(text))], room, spaced=True):
        # Deeply nested text keeps at least ROOM cells, and may then be too wide.
        lines += [line] if _cells(line) <= room else _broken(_characters(line), room, words=False)
    return [[("", INDENT), *line] if line else [] for line in lines]


def settled(text: str) -> int:
    """Return the number of characters at the start of a growing text that form final blocks.

    Further text changes at most the last block.
    """
    whole = text[: text.rfind("\n") + 1]
    found = blocks(whole)
    if len(found) < 2:
        return 0
    return sum(len(line) + 1 for line in whole.split("\n")[: found[-1].line])


# ── blocks ──────────────────────────────────────────────────────────────────────────────────


def _stacked(nodes: Sequence[Node], width: int, *, spaced: bool, depth: int = 0) -> list[Line]:
    """Stack blocks; text between them, as in a tight list, is a paragraph."""
    lines: list[Line] = []
    inline: list[Node] = []

    def add(more: list[Line]) -> None:
        if lines and more and spaced:
            lines.append([])
        lines.extend(more)

    for node in nodes:
        if _is_block(node):
            if inline:
                add(_wrapped(_pieces(inline), min(width, MEASURE)))
                inline = []
            add(_block(node, width, depth))
        else:
            inline.append(node)
    if inline:
        add(_wrapped(_pieces(inline), min(width, MEASURE)))
    return lines


def _is_block(node: Node) -> bool:
    return not isinstance(node, str) and node[0] not in (*STYLED, "br", "span")


def _block(node: Any, width: int, depth: int) -> list[Line]:
    tag, attributes, *children = node
    match tag:
        case "h1" | "h2" | "h3" | "h4" | "h5" | "h6":
            style = "title" if tag == "h1" else "strong"
            return _wrapped(_pieces(children, style), min(width, MEASURE))
        case "ul" | "ol":
            return _list(tag, attributes, children, width, depth)
        case "blockquote":
            inner = _stacked(children, max(ROOM, width - 2), spaced=True, depth=depth)
            return [[("dim", "▎ "), *line] for line in inner]
        case "pre":
            return _code(children, width)
        case "table":
            return _table(children, width)
        case "hr":
            return [[("dim", "─" * min(width, MEASURE))]]
        case _:
            return _wrapped(_pieces(children), min(width, MEASURE))


def _list(
    tag: str, attributes: dict[str, str], items: list[Any], width: int, depth: int
) -> list[Line]:
    """Convert a list with hanging indents; a loose list has empty lines between its items."""
    loose = any(_is_block(child) and child[0] == "p" for _, _, *item in items for child in item)
    first = int(attributes.get("start", "1")[:9])
    marks = [BULLETS[min(depth, len(BULLETS) - 1)]] * len(items)
    if tag == "ol":
        marks = [f"{first + place}. " for place in range(len(items))]
    hang = max(len(mark) for mark in marks)
    lines: list[Line] = []
    for mark, (_, _, *item) in zip(marks, items, strict=True):
        inner = _stacked(item, max(ROOM, width - hang), spaced=loose, depth=depth + 1) or [[]]
        if loose and lines:
            lines.append([])
        lines.append([("bullet", mark.rjust(hang)), *inner[0]])
        lines += [[("", " " * hang), *line] if line else [] for line in inner[1:]]
    return lines


def _code(children: list[Any], width: int) -> list[Line]:
    """Indent code, and break long lines anywhere, so that the code can be selected unchanged."""
    pieces = _pieces(children)
    while pieces and pieces[-1][1].endswith("\n"):
        style, text = pieces.pop()
        if text.rstrip("\n"):
            pieces.append((style, text.rstrip("\n")))
    rows = _wrapped(pieces, max(ROOM, width - len(INDENT)), words=False)
    return [[("", INDENT), *row] if row else [] for row in rows]


# ── tables ──────────────────────────────────────────────────────────────────────────────────


def _table(parts: list[Any], width: int) -> list[Line]:
    """Convert a table, with a line below its header; the cells of a wide table are wrapped."""
    rows = [(part[0] == "thead", row[2:]) for part in parts for row in part[2:]]
    cells = [[_pieces(each[2:], "strong" if head else "") for each in row] for head, row in rows]
    columns = len(cells[0])  # the parser makes all rows equally long
    room = width - len(GAP) * (columns - 1)
    if columns * NARROWEST > room:  # no space for columns
        return [line for row in cells for pieces in row for line in _wrapped(pieces, width)]
    widths = _widths(cells, room)
    sides = [each[1].get("align", "") for each in rows[0][1]]
    below = [("dim", GAP.join("─" * size for size in widths))]
    lines: list[Line] = []
    for (head, _), row in zip(rows, cells, strict=True):
        lines += [*_row(row, sides, widths), below] if head else _row(row, sides, widths)
    return lines


def _widths(cells: list[list[Line]], room: int) -> list[int]:
    """Compute the column widths: the widest columns shrink until all columns fit."""
    widths = [max(1, *map(_cells, column)) for column in zip(*cells, strict=True)]
    while sum(widths) > room:
        widths[widths.index(max(widths))] -= 1
    return widths


def _row(cells: list[Line], sides: list[str], widths: list[int]) -> list[Line]:
    """Return the lines of a row, as many as its tallest cell needs."""
    broken = [_wrapped(pieces, size) for pieces, size in zip(cells, widths, strict=True)]
    lines: list[Line] = []
    for parts in zip_longest(*broken, fillvalue=list[Piece]()):
        line: Line = []
        for part, side, size in zip(parts, sides, widths, strict=True):
            free = size - _cells(part)
            left = {"right": free, "center": free // 2}.get(side, 0)
            line += [("", GAP if line else ""), ("", " " * left), *part, ("", " " * (free - left))]
        lines.append(line)
    return lines


# ── text ────────────────────────────────────────────────────────────────────────────────────


def _pieces(nodes: Sequence[Node], style: str = "") -> Line:
    """Convert inline nodes to styled pieces, cleaned again: an entity may be any character."""
    line: Line = []
    for node in nodes:
        if isinstance(node, str):
            line.append((style, prose(node)))
            continue
        tag, attributes, *children = node
        if tag == "br":
            line.append((style, "\n"))
            continue
        kind = attributes.get("class", "") if tag == "span" else STYLED.get(tag, "")
        inner = _pieces(children, f"{style} {kind}".strip())
        line += inner
        href = strict(attributes.get("href", ""))
        if href and href.removeprefix("mailto:") != "".join(text for _, text in inner):
            line.append((f"{style} dim".strip(), f" ({href})"))
    return line


def _cells(line: Line) -> int:
    """Return the number of cells of a line, rather too many than too few."""
    return sum(_cells_of(char) for _, text in line for char in text)


def _cells_of(char: str) -> int:
    """Count the cells of a character; an emoji selector widens the character before it."""
    return 1 if char == "\ufe0f" else cell_len(char)


def _wrapped(pieces: Line, width: int, *, words: bool = True) -> list[Line]:
    """Break pieces into lines of this number of cells, between words or anywhere."""
    lines: list[Line] = []
    row: Line = []
    for each in [*_characters(pieces), ("", "\n")]:
        if each[1] == "\n":
            lines += _broken(row, width, words=words)
            row = []
        else:
            row.append(each)
    while lines and not lines[-1]:
        lines.pop()
    return lines


def _characters(pieces: Line) -> Line:
    """Split pieces into single characters."""
    return [(style, char) for style, text in pieces for char in text.replace("\t", TAB)]


def _broken(row: Line, width: int, *, words: bool) -> list[Line]:
    """Break one line; the blanks at the breaks are dropped."""
    lines: list[Line] = []
    start = 0
    while start < len(row):
        end, cells = start, 0
        while end < len(row) and (cells := cells + _cells_of(row[end][1])) <= width:
            end += 1
        end = max(end, start + 1)
        if words and end < len(row):
            end = next((place for place in range(end, start, -1) if _opens(row[place][1])), end)
        lines.append(_joined(row[start:end]))
        start = end
        while words and start < len(row) and row[start][1] == " ":
            start += 1
    return lines or [[]]


def _opens(char: str) -> bool:
    """Return whether a line may be broken before this character."""
    return char == " " or cell_len(char) == 2


def _joined(row: Line) -> Line:
    """Join neighbouring characters of the same style into one piece."""
    line: Line = []
    for style, char in row:
        if line and line[-1][0] == style:
            line[-1] = (style, line[-1][1] + char)
        else:
            line.append((style, char))
    return line
