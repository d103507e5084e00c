"""Convert Markdown to blocks from which the page makes elements. Pure.

A node is a text, or a list of a tag, its attributes and its children. Only the tags and attributes
below can appear, whatever the text is: HTML stays text, an image becomes a link, and a link leads
to http, https or mail. The page checks the tags again, and creates each element itself.

While an answer grows, only the text from its last block on is parsed again: `Block.line` is the
first line of each block.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import suppress
from functools import cache
from importlib import import_module
from typing import Any, Final, TypeAlias

import msgspec

from hookline.web._http.extra import needs

Node: TypeAlias = str | list[Any]

MOST: Final = 200_000  # most characters of a text to read as Markdown
MOST_CODE: Final = 20_000  # most characters of a code block to highlight: its first lines
LINES: Final = 40  # lines of a code block in one element: the page lays out only the last one again
_TAGS: Final = """
    p h1 h2 h3 h4 h5 h6 ul ol li blockquote pre code em strong s a br hr
    table thead tbody tr th td span sup
"""
TAGS: Final = frozenset(_TAGS.split())
# Only these are highlighted: the lexers of some rare languages are very slow for some texts.
_LANGUAGES: Final = """
    bash c cpp css csharp diff dockerfile go graphql html ini java javascript json jsx kotlin
    lua makefile markdown php python r ruby rust scala sh shell sql swift toml ts tsx typescript
    xml yaml js py rb rs yml console c++ zsh golang
"""
LANGUAGES: Final = frozenset(_LANGUAGES.split())
_HREF: Final = re.compile(r"(?:https?://|mailto:)[^\s\x00-\x1f]+", re.IGNORECASE)
_BARE: Final = re.compile(r"(?<![\w@])(https?://[^\s<>\"]*[^\s<>\"'.,:;!?()\[\]*])", re.IGNORECASE)
_TASK: Final = re.compile(r"\[([ xX])\](?=\s)")
_NOTE: Final = re.compile(r"\[\^([^\s\[\]^]{1,40})\](:?)[ \t]*")
_MATHS: Final = re.compile(
    r"\$\$.+?\$\$|\$[^\s$](?:[^$\n]*[^\s$\\])?\$(?!\d)|\\\(.+?\\\)|\\\[.+?\\\]", re.DOTALL
)
_LINE: Final = re.compile(r"[^\n]*\n|[^\n]+")
_CLOSING: Final = {"$$": "$$", "\\[": "\\]"}
MOST_MATHS: Final = 2000  # most characters of a formula, so that a lone `$` costs little


class Block(msgspec.Struct, frozen=True, kw_only=True):
    """A top-level block: its first line in the text, and its node."""

    line: int
    node: Node


@cache
def _reader() -> Any:
    md: Any = needs("markdown_it").MarkdownIt("commonmark", {"html": False, "maxNesting": 20})
    md.enable(["table", "strikethrough"])
    md.disable(["html_block", "html_inline"], ignoreInvalid=True)
    md.inline.ruler.before("escape", "maths", _maths)
    interrupts = ["paragraph", "reference", "blockquote", "list"]
    md.block.ruler.before("fence", "maths_block", _maths_block, {"alt": interrupts})
    md.block.ruler.before("reference", "footnote", _footnote, {"alt": ["paragraph", "reference"]})
    md.inline.ruler.before("link", "footnote_mark", _footnote_mark)
    return md


def _maths(state: Any, silent: bool) -> bool:
    """Keep a formula as plain text: `_` and `*` in it are not Markdown."""
    if state.src[state.pos] not in "$\\":
        return False
    end = min(state.posMax, state.pos + MOST_MATHS)
    found = _MATHS.match(state.src, state.pos, end)
    if found is None:
        return False
    if not silent:
        token = state.push("maths", "", 0)
        token.content = found[0]
    state.pos = found.end()
    return True


def _maths_block(state: Any, first: int, last: int, silent: bool) -> bool:
    """Keep a formula at the start of a line as plain text, whatever its lines look like.

    If its opening sign has a line of its own, the formula goes on to the closing sign, as a code
    fence does. Otherwise it ends at an empty line at the latest. Text below the formula is never
    looked at, so that a growing text is parsed in the same way.
    """
    line = _line_of(state, first).strip()
    closing = _CLOSING.get(line[:2])
    if closing is None or closing in line[2:] or state.is_code_block(first):
        return False
    if silent:
        return bool(line[2:] == "")
    at = first + 1
    while at < last and closing not in (text := _line_of(state, at)):
        if line[2:] and not text.strip():
            break
        at += 1
    end = at + 1 if at < last and closing in _line_of(state, at) else at
    state.line = end
    token = state.push("maths_block", "", 0)
    token.map = [first, end]
    token.content = state.getLines(first, end, state.sCount[first], False).rstrip("\n")
    return True


def _footnote(state: Any, first: int, last: int, silent: bool) -> bool:
    """Read a footnote: `[^name]: text`, up to an empty line or the next footnote."""
    match = _NOTE.match(_line_of(state, first))
    if match is None or not match[2] or state.is_code_block(first):
        return False
    if silent:
        return True
    end = first + 1
    while end < last and not state.isEmpty(end) and not _NOTE.match(_line_of(state, end)):
        end += 1
    state.env.setdefault("footnotes", set()).add(match[1])
    text = state.getLines(first, end, state.blkIndent, False)
    opening = state.push("paragraph_open", "p", 1)
    opening.attrs["class"] = "footnote"
    opening.map = [first, end]
    inline = state.push("inline", "", 0)
    inline.map, inline.children = [first, end], []
    inline.content = f"[^{match[1]}] {text.lstrip()[match.end() :].strip()}"
    state.push("paragraph_close", "p", -1)
    state.line = end
    return True


def _footnote_mark(state: Any, silent: bool) -> bool:
    """Read `[^name]` as the mark of a footnote, if there is that footnote."""
    match = _NOTE.match(state.src, state.pos, state.posMax)
    if match is None or match[1] not in state.env.get("footnotes", ()):
        return False
    if not silent:
        state.push("footnote_mark", "", 0).content = match[1]
    state.pos += len(match[1]) + 3
    return True


def _line_of(state: Any, line: int) -> str:
    text: str = state.src[state.bMarks[line] + state.tShift[line] : state.eMarks[line]]
    return text


def blocks(text: str) -> list[Block]:
    """Parse a text into blocks; a text that is too long or too deep becomes one block of text."""
    if len(text) <= MOST:
        tokens = iter(_reader().parse(text.replace("\0", "\ufffd")))
        with suppress(RecursionError):
            return [
                Block(line=token.map[0] if token.map else 0, node=node)
                for token in tokens
                for node in _nodes(token, tokens)
            ]
    return [Block(line=0, node=["p", {}, text])]


def _nodes(token: Any, rest: Iterator[Any], *, in_link: bool = False) -> list[Node]:
    """Return the nodes of a token. If it opens an element, the next tokens are its children."""
    if token.nesting != 1:
        return _leaf(token, in_link=in_link)
    children: list[Node] = []
    for inner in rest:
        if inner.nesting == -1:
            break
        children += _nodes(inner, rest, in_link=in_link or token.tag == "a")
    return _element(token, children)


def _element(token: Any, children: list[Any]) -> list[Node]:
    if token.hidden:  # a paragraph in a tight list
        return children
    if token.tag == "a":
        return _link(str(token.attrs.get("href", "")), children)
    attributes: dict[str, str] = {}
    if token.tag == "ol" and str(token.attrs.get("start", "")).isdigit():
        attributes["start"] = str(token.attrs["start"])
    style = str(token.attrs.get("style", ""))
    if token.tag in ("th", "td") and style.startswith("text-align:"):
        attributes["align"] = style.removeprefix("text-align:")
    if token.attrs.get("class") == "footnote":
        attributes["class"] = "footnote"
    if token.tag == "li":
        children = _task(children)
    return [[token.tag, attributes, *children]] if token.tag in TAGS else children


def _task(children: list[Node]) -> list[Node]:
    """Return the children of an item, with a box in place of a leading `[ ]` or `[x]`."""
    first = children[0] if children else ""
    if isinstance(first, list) and first[0] == "p":
        return [[*first[:2], *_task(first[2:])], *children[1:]]
    match = _TASK.match(first) if isinstance(first, str) else None
    if match is None:
        return children
    box = ["span", {"class": "open" if match[1] == " " else "checked"}]
    return [box, str(first)[3:], *children[1:]]


def _bare_links(text: str) -> list[Node]:
    """Return the pieces of a text, with the addresses in it as links."""
    pieces: list[Node] = list(_BARE.split(text))
    pieces[1::2] = [["a", {"href": address}, address] for address in pieces[1::2]]
    return [piece for piece in pieces if piece]


def _link(href: str, children: list[Any]) -> list[Node]:
    if not _HREF.fullmatch(href):
        return children
    return [["a", {"href": href}, *children]]


def _leaf(token: Any, *, in_link: bool) -> list[Node]:
    match token.type:
        case "inline":
            tokens = iter(token.children or ())
            return [node for inner in tokens for node in _nodes(inner, tokens)]
        case "fence" | "code_block":
            language = token.info.split()[0].lower()[:30] if token.info.split() else ""
            return [["pre", {"language": language}, *_coloured(token.content, language)]]
        case "maths_block":
            return [["p", {}, ["span", {"class": "maths"}, token.content]]]
        case "hr":
            return [["hr", {}]]
        case _:
            return _span(token, in_link=in_link)


def _span(token: Any, *, in_link: bool) -> list[Node]:
    match token.type:
        case "image":
            address = str(token.attrs.get("src", ""))
            name = token.content or (address if len(address) < 100 else f"{address[:60]}…")
            return _link(address, [f"🖼 {name}"])
        case "code_inline":
            return [["code", {}, token.content]]
        case "footnote_mark":
            return [["sup", {}, token.content]]
        case "maths":
            return [["span", {"class": "maths"}, token.content]]
        case "hardbreak":
            return [["br", {}]]
        case "softbreak":
            return ["\n"]
        case "text" if not in_link:
            return _bare_links(token.content)
        case _:
            return [token.content] if token.content else []


# ── code ────────────────────────────────────────────────────────────────────────────────────

# The token types of Pygments, and the CSS class that colours each of them.
_KINDS: Final = (
    ("Token.Comment", "c"),
    ("Token.Keyword", "k"),
    ("Token.Name.Builtin", "b"),
    ("Token.Name.Function", "f"),
    ("Token.Name.Class", "f"),
    ("Token.Name.Decorator", "f"),
    ("Token.Name.Tag", "k"),
    ("Token.Name.Attribute", "b"),
    ("Token.Literal.String", "s"),
    ("Token.Literal.Number", "n"),
    ("Token.Operator.Word", "k"),
    ("Token.Generic.Inserted", "i"),
    ("Token.Generic.Deleted", "d"),
    ("Token.Generic.Heading", "k"),
)


@cache
def _kind(token: Any) -> str:
    name = str(token)
    return next((short for long, short in _KINDS if name.startswith(long)), "")


def _coloured(code: str, language: str) -> list[Node]:
    """Return the code in pieces of some lines, its beginning with colours."""
    end = len(code) if len(code) <= MOST_CODE else code.rfind("\n", 0, MOST_CODE) + 1
    tokens: list[tuple[str, str]] = []
    if language in LANGUAGES:
        tokens += [(_kind(kind), text) for kind, text in _lexer(language).get_tokens(code[:end])]
        tokens.append(("", code[end:]))
    else:
        tokens.append(("", code))
    pieces: list[list[tuple[str, str]]] = [[]]
    room = LINES
    for kind, text in tokens:
        for line in _LINE.findall(text):
            if not room:
                pieces.append([])
                room = LINES
            room -= line.endswith("\n")
            piece = pieces[-1]
            if piece and piece[-1][0] == kind:
                piece[-1] = (kind, piece[-1][1] + line)
            else:
                piece.append((kind, line))
    return [["span", {"class": "lines"}, *_spans(piece)] for piece in pieces if piece]


def _spans(piece: list[tuple[str, str]]) -> list[Node]:
    return [["span", {"class": kind}, text] if kind else text for kind, text in piece]


@cache
def _lexer(language: str) -> Any:
    needs("pygments")
    name = "yaml" if language == "yml" else language  # a name that only new versions know
    return import_module("pygments.lexers").get_lexer_by_name(name, stripnl=False, ensurenl=False)
