"""What a shell's command line would run, read so that one finds more in it rather than less. Pure.

A command is a program with flags and words, in lower case: `sudo /bin/rm --force -R x` has all that
`rm -rf` asks for. Each word may be a program, and quoted texts are looked into as well.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from typing import Any, Final, NamedTuple, cast

from hookline.errors import UsageError

DEPTH: Final = 5  # of texts in quotes in texts in quotes
SEPARATORS: Final = re.escape(";&|()<>`\n{}")
# A word is put together of quoted and other pieces; a quote that is left open is part of it.
_TOKEN = re.compile(
    rf"""((?:'[^']*'|"(?:\\.|[^"\\])*"|\\.|[^\s{SEPARATORS}'"\\]|['"\\])+)|[{SEPARATORS}]""",
    re.DOTALL,
)
_PIECE = re.compile(r"""'([^']*)'|"((?:\\.|[^"\\])*)"|\\(.)|['"\\]""", re.DOTALL)
_BREAK = re.compile(rf"[\s{SEPARATORS}]")
_QUOTES = re.compile(r"[\"'\\]")


class Command(NamedTuple):
    """A program, and the flags and words that must be with it."""

    program: str
    needs: frozenset[str]


def command_of(text: str) -> Command:
    """The command that a user names; raises UsageError where there is none."""
    words = text.lower().split()
    if not words or words[0].startswith("-"):
        raise UsageError(f"{text!r} is no command: it needs a program's name, such as 'rm -rf'")
    return Command(words[0], frozenset(part for word in words[1:] for part in _parts(word)))


def runs(text: str, command: Command) -> bool:
    """Whether the text may run such a command."""
    text = re.sub(r"\\\r?\n", "", text.lower())
    text = re.sub(r"\$\{?ifs\}?", " ", text)
    text = re.sub(r"\{([^{}\s]*,[^{}\s]*)\}", lambda listed: listed[1].replace(",", " "), text)
    if command.program not in _QUOTES.sub("", text):
        return False
    for words in _lines(text, DEPTH):
        after: set[str] = set()
        for word in reversed(words):
            if word.rpartition("/")[2] == command.program and command.needs <= after:
                return True
            after.update(_parts(word))
    return False


def _parts(word: str) -> Iterator[str]:
    """The flags that a word holds, or the word; `--force` is -f: rather too much than none."""
    if word.startswith("--") and len(word) > 2:
        yield f"-{word[2]}"
    elif word.startswith("-") and len(word) > 1:
        yield from (f"-{letter}" for letter in word[1:])
    else:
        yield word


def _lines(text: str, depth: int) -> Iterator[list[str]]:
    """The words of each simple command, also of those in quoted words."""
    words: list[str] = []
    for token in _TOKEN.finditer(text):
        if token[1] is None:  # a separator
            yield words
            words = []
            continue
        word = _PIECE.sub(_unquoted, token[1])
        words.append(word.lstrip("$"))
        if depth and _BREAK.search(word):
            yield from _lines(word, depth - 1)
    yield words


def _unquoted(piece: re.Match[str]) -> str:
    """A piece of a word as the shell reads it."""
    if piece[2] is not None:
        return re.sub(r"\\(.)", r"\1", piece[2], flags=re.DOTALL)
    return piece[1] or piece[3] or ""


def texts_in(value: Any) -> Iterator[str]:
    """The strings in JSON data; a list of strings is also a command line."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for each in cast("dict[str, Any]", value).values():
            yield from texts_in(each)
    elif isinstance(value, (list, tuple)):
        items = cast("list[Any]", value)
        if items and all(isinstance(item, str) for item in items):
            yield shlex.join(items)
        for each in items:
            yield from texts_in(each)
