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

SEPARATORS: Final = ";&|()<>`\n{}"
DEPTH: Final = 5  # of texts in quotes in texts in quotes
LONG: Final = 20_000  # what is longer is not read quote by quote
_QUOTES = re.compile(r"[\"'\\]")
_BREAK = re.compile(rf"[\s{re.escape(SEPARATORS)}]")
_WORDS = re.compile(rf"[^\s{re.escape(SEPARATORS)}]+|[{re.escape(SEPARATORS)}]")


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
    text = re.sub(r"\{([^{}\s]*,[^{}\s]*)\}", lambda list_: list_[1].replace(",", " "), text)
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
    for token in _tokens(text):
        if token[0] in SEPARATORS:
            yield words
            words = []
            continue
        words.append(token.lstrip("$"))
        if depth and _BREAK.search(token):
            yield from _lines(token, depth - 1)
    yield words


def _tokens(text: str) -> list[str]:
    lexer = shlex.shlex(text, posix=True, punctuation_chars=SEPARATORS)
    lexer.whitespace_split = True
    lexer.whitespace = " \t\r"
    lexer.commenters = ""
    try:
        if len(text) <= LONG:
            return [token for token in lexer if token]
    except ValueError:  # a quote is left open
        pass
    return _WORDS.findall(_QUOTES.sub("", text))


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
