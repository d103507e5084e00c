"""What a shell's command line would run, read so that one finds more in it rather than less. Pure.

A command is a program with flags and words, in lower case: `sudo /bin/rm --force -R x` has all that
`rm -rf` asks for. A line is read as it is and once more as the shell would expand it (`_expand`).
Each of its words may be a program, and quoted texts are looked into as well, but for a line that is
known to run none of its words (`_plain`), such as `echo 'do not rm -rf'`.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable, Iterator
from fnmatch import fnmatchcase
from typing import Any, Final, NamedTuple, cast

from hookline.errors import UsageError
from hookline.hooks._expand import expand

DEPTH: Final = 5  # of texts in quotes in texts in quotes
PATH: Final = 256  # characters: a longer word is no program's file
SEPARATORS: Final = re.escape(";&|()<>`\n{}")
# A word is put together of quoted and other pieces; a quote that is left open is part of it.
_TOKEN = re.compile(
    rf"""((?:'[^']*'|"(?:\\.|[^"\\])*"|\\.|[^\s{SEPARATORS}'"\\]|['"\\])+)|[{SEPARATORS}]""",
    re.DOTALL,
)
_PIECE = re.compile(r"""'([^']*)'|"((?:\\.|[^"\\])*)"|\\(.)|['"\\]""", re.DOTALL)
_BREAK = re.compile(rf"[\s{SEPARATORS}]")
_QUOTES = re.compile(r"[\"'\\]")
_GIVEN = re.compile(r"[\w.+-]+=!?")
_GLOB = re.compile(r"[*?\[]")
# Nothing here changes how quotes are read, is expanded, or sends output to where it may be run.
_PLAIN_LINE = re.compile(r"""(?:'[^'\n]*'|"[^"\n]*"|&&|\|\||[^&|'"])*""")
_SPECIAL = re.compile(r"[$`<>\\#*?\[\](){}!~^%]")
# Programs that run none of their words, or none where they are asked for this.
_PRINTS: Final = frozenset(
    {"echo", "ls", "cat", "head", "tail", "wc", "cd", "pwd", "true", "false"}
)
_MANAGES: Final = {
    "git": frozenset({"rm", "add", "mv", "commit", "status", "log", "show", "tag", "branch"}),
    "npm": frozenset({"rm", "remove", "uninstall"}),
    "pnpm": frozenset({"rm", "remove", "uninstall"}),
    "yarn": frozenset({"remove"}),
    "cargo": frozenset({"rm", "remove"}),
    "docker": frozenset({"rm", "rmi"}),
    "podman": frozenset({"rm", "rmi"}),
}


class Command(NamedTuple):
    """A program, and the flags and words that must be with it."""

    program: str
    needs: frozenset[str]


def command_of(text: str) -> Command:
    """The command that a user names; raises UsageError where there is none."""
    words = text.lower().split()
    if not words or words[0].startswith("-"):
        raise UsageError(f"{text!r} is not a command: it needs a program's name, such as 'rm -rf'")
    return Command(words[0], frozenset(part for word in words[1:] for part in _parts(word)))


def runs(text: str, command: Command) -> bool:
    """Whether the text may run such a command."""
    if _plain(text.lower()):
        return any(
            _is(words[0], command) and command.needs <= _parts_of(words[1:])
            for words in _lines(text.lower(), 0)
            if words
        )
    expanded = expand(text)
    if expanded is None:  # it grows without end: nobody knows what it holds
        return True
    return any(_runs(each, command) for each in {text.lower(), expanded})


def runs_together(texts: Iterable[str], command: Command) -> bool:
    """Whether the texts may run such a command as the pieces of one line, in whatever order."""
    pieces = [(each, _last_line(each)) for each in map(str.lower, texts)]
    if not command.needs <= {part for _, words in pieces for part in _parts_of(words)}:
        return False
    return any(
        _is(word, command) for piece, words in pieces for word in _programs(words, _plain(piece))
    )


def _last_line(text: str) -> list[str]:
    """The words that another piece would be added to."""
    *_, last = _lines(text, 0)
    return last


def _programs(words: list[str], plain: bool) -> list[str]:
    """Which words of a piece may be the program: the first, or the last before flags."""
    last = next((word for word in reversed(words) if not word.startswith("-")), "")
    return words[:1] if plain else [*words[:1], last]


def _plain(text: str) -> bool:
    """Whether it is known that nothing here runs but the first words of its lines."""
    if _SPECIAL.search(text) or not _PLAIN_LINE.fullmatch(text):
        return False
    for words in _lines(text, 0):
        if not words or words[0] in _PRINTS:
            continue
        if len(words) < 2 or words[1] not in _MANAGES.get(words[0], ()):
            return False
    return True


def _runs(text: str, command: Command) -> bool:
    # What is spelt with other signs than its own may be any program.
    if not _GLOB.search(text) and command.program not in _QUOTES.sub("", text):
        return False
    for words in _lines(text, DEPTH):
        if words and _fits(words[0], command.program):
            words[0] = command.program
        after: set[str] = set()
        for word in reversed(words):
            if _is(word, command) and command.needs <= after:
                return True
            after.update(_parts(word))
    return False


def _is(word: str, command: Command) -> bool:
    return word.rpartition("/")[2] == command.program


def _fits(word: str, program: str) -> bool:
    """Whether a word such as `/bin/r?` may be that program's file."""
    name = word.rpartition("/")[2]
    return len(name) < PATH and bool(_GLOB.search(name)) and fnmatchcase(program, name)


def _parts_of(words: Iterable[str]) -> set[str]:
    return {part for word in words for part in _parts(word)}


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
            given = _GIVEN.match(word)  # a variable or an alias: its value may be run by that name
            yield from _lines(word[given.end() :] if given else word, depth - 1)
    yield words


def _unquoted(piece: re.Match[str]) -> str:
    """A piece of a word as the shell reads it."""
    if piece[2] is not None:
        return re.sub(r"\\(.)", r"\1", piece[2], flags=re.DOTALL)
    return piece[1] or piece[3] or ""


# ── arguments ───────────────────────────────────────────────────────────────────────────────


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


def pieces_in(value: Any) -> Iterator[list[str]]:
    """The strings of each object, which a tool may put together to one command line.

    What an object holds belongs to it, but for the objects in a list, each of which is one.
    """
    if isinstance(value, dict):
        own: list[str] = []
        lists: list[Any] = []
        todo: list[Any] = [value]
        while todo:
            each = todo.pop()
            if isinstance(each, str):
                own.append(each)
            elif isinstance(each, dict):
                todo += cast("dict[str, Any]", each).values()
            elif isinstance(each, (list, tuple)):
                items = cast("list[Any]", each)
                todo += [item for item in items if not isinstance(item, dict)]
                lists += [item for item in items if isinstance(item, dict)]
        if len(own) > 1:
            yield own
        for each in lists:
            yield from pieces_in(each)
    elif isinstance(value, (list, tuple)):
        for each in cast("list[Any]", value):
            yield from pieces_in(each)
