"""Convert Markdown to styled lines in the width of a terminal, with `rich.markdown`. Pure.

HTML stays text, and an image becomes a link. Nothing is hidden: a link is followed by its address.
The text is cleaned before it is parsed, and each part again after that, because an entity may be
any character. All lines are indented, like all text of a model (`text_layout.py`).
"""

from __future__ import annotations

import io
from collections.abc import Iterator
from functools import cache
from itertools import groupby
from typing import Any, ClassVar, Final

from markdown_it import MarkdownIt
from markdown_it.token import Token
from rich.console import Console, ConsoleOptions, RenderResult
from rich.markdown import CodeBlock, Heading, Markdown, MarkdownElement
from rich.padding import Padding
from rich.segment import Segment
from rich.syntax import Syntax
from rich.theme import Theme

from hookline.cli._terminal.clean_text import prose, strict
from hookline.cli._terminal.styled_lines import Line
from hookline.cli._terminal.text_layout import INDENT, ROOM, TAB

MEASURE: Final = 100  # most cells of a line: longer lines are hard to read
MOST_CODE: Final = 20_000  # most characters of a code block to highlight
# Only these are highlighted: the lexers of some rare languages are very slow for some texts.
_LANGUAGES: Final = """
    bash c c++ cpp css diff go html java javascript js json kotlin py python rb rs ruby rust sh sql
    swift toml ts tsx typescript xml yaml yml
"""
LANGUAGES: Final = frozenset(_LANGUAGES.split())
CODE_THEME: Final = "ansi_dark"
THEME: Final = Theme({"markdown.code": "cyan"})  # rich puts it on black


class _Title(Heading):
    """A heading at the left margin."""

    LEVEL_ALIGN: ClassVar[Any] = {}


class _Code(CodeBlock):
    """A code block that is indented, without a background."""

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        code = str(self.text).strip("\n")
        has_lexer = self.lexer_name.lower() in LANGUAGES and len(code) <= MOST_CODE
        lexer = self.lexer_name.lower() if has_lexer else "text"
        syntax = Syntax(code, lexer, theme=CODE_THEME, word_wrap=True, background_color="default")
        yield Padding(syntax, (0, 0, 0, len(INDENT)))


class _Block(Markdown):
    """The tokens of one block, as rich draws them."""

    elements: ClassVar[dict[str, type[MarkdownElement]]] = {
        **Markdown.elements, "heading_open": _Title, "fence": _Code, "code_block": _Code,
    }  # fmt: skip

    def __init__(self, tokens: list[Token]) -> None:
        super().__init__("", hyperlinks=False)
        self.parsed = tokens


@cache
def _parser() -> MarkdownIt:
    parser = MarkdownIt("commonmark", {"html": False, "maxNesting": 20})
    return parser.enable(["table", "strikethrough"]).disable("image")


def _blocks(text: str) -> list[list[Token]]:
    """Return the tokens of each top-level block."""
    number = 0
    numbered: list[tuple[int, Token]] = []
    for token in _parser().parse(text):
        numbered.append((number, token))
        number += token.level == 0 and token.nesting < 1
    return [[token for _, token in group] for _, group in groupby(numbered, lambda pair: pair[0])]


def _clean(tokens: list[Token]) -> None:
    """Clean the parts again, and keep the line breaks of the text."""
    for token in tokens:
        token.content = prose(token.content).replace("\t", TAB)
        if "href" in token.attrs:
            token.attrs["href"] = strict(str(token.attrs["href"]))
        if token.type == "softbreak":
            token.type = "hardbreak"
        _clean(token.children or [])


def markdown(text: str, width: int) -> list[Line]:
    """Convert a text to indented lines of at most this number of cells."""
    room = min(max(ROOM, width - len(INDENT)), MEASURE)
    console = Console(width=room, file=io.StringIO(), force_terminal=True, theme=THEME)
    lines: list[Line] = []
    for tokens in _blocks(prose(text)):
        _clean(tokens)
        block = [[("", INDENT), *line] if line else [] for line in _lines(console, tokens)]
        lines += [[], *block] if lines and block else block
    return lines


def _lines(console: Console, tokens: list[Token]) -> list[Line]:
    """Draw a block; empty lines around it, and blanks at the ends of lines, are left out."""
    rows = console.render_lines(_Block(tokens), pad=False)
    lines = [list(_pieces(row)) for row in rows]
    while lines and not lines[-1]:
        lines.pop()
    while lines and not lines[0]:
        del lines[0]
    return lines


def _pieces(row: list[Segment]) -> Iterator[Any]:
    """Yield the pieces of a line; blanks at its end are left out."""
    last = max((place for place, segment in enumerate(row) if segment.text.strip()), default=-1)
    for place, segment in enumerate(row[: last + 1]):
        yield segment.style or "", segment.text.rstrip() if place == last else segment.text


def settled_size(text: str) -> int:
    """Return the number of characters at the start of a growing text that form final blocks.

    Further text changes at most the last block.
    """
    whole = text[: text.rfind("\n") + 1]
    starts = [block[0].map[0] for block in _blocks(whole) if block[0].map is not None]
    if len(starts) < 2:
        return 0
    return sum(len(line) + 1 for line in whole.split("\n")[: starts[-1]])
