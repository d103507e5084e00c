"""Find the commands in a shell command line, preferring false positives to misses. Pure functions.

A command is a program with flags and words, in lower case: `sudo /bin/rm --force -R x` contains
everything in `rm -rf`. A line is parsed as it is, and again as the shell would expand it
(`expand`). Each word may be a program, and quoted texts are searched too. The exception is a line
that is known to run none of its words (`_plain`), such as `echo 'do not rm -rf'`.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable, Iterator
from fnmatch import fnmatchcase
from typing import Any, Final, NamedTuple, cast

from hookline.errors import UsageError
from hookline.hooks._guards.shell_expansion import expand

DEPTH: Final = 5  # levels of texts in quotes
PATH: Final = 256  # characters: a longer word is not the path of a program
SEPARATORS: Final = re.escape(";&|()<>`\n{}")
# A word consists of quoted and other pieces; an unclosed quote is part of the word.
_TOKEN = re.compile(
    rf"""((?:'[^']*'|"(?:\\.|[^"\\])*"|\\.|[^\s{SEPARATORS}'"\\]|['"\\])+)|[{SEPARATORS}]""",
    re.DOTALL,
)
_PIECE = re.compile(r"""'([^']*)'|"((?:\\.|[^"\\])*)"|\\(.)|['"\\]""", re.DOTALL)
_BREAK = re.compile(rf"[\s{SEPARATORS}]")
_QUOTES = re.compile(r"[\"'\\]")
_ASSIGNMENT = re.compile(r"[\w.+-]+=!?")
_GLOB = re.compile(r"[*?\[]")
# A line without anything that changes quoting, is expanded, or redirects output to a command.
_PLAIN_LINE = re.compile(r"""(?:'[^'\n]*'|"[^"\n]*"|&&|\|\||[^&|'"])*""")
_SPECIAL = re.compile(r"[$`<>\\#*?\[\](){}!~^%]")
# Programs that never run their words, or do not run them with these subcommands.
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
    """A program, and the flags and words that must be present."""

    program: str
    needs: frozenset[str]


def command_of(text: str) -> Command:
    """Parse a command that a user names; raises UsageError if the text has no program."""
    words = text.lower().split()
    if not words or words[0].startswith("-"):
        raise UsageError(f"{text!r} is not a command; begin with a program's name, as in 'rm -rf'")
    return Command(words[0], frozenset(part for word in words[1:] for part in _parts(word)))


def runs_command(line: str, command: str) -> bool:
    """Return whether a shell line may run a command, as in `runs_command(line, "git push")`.

    `deny_commands` describes what is found. The search prefers false positives to misses. Raises
    UsageError if `command` does not begin with a program's name.
    """
    return runs(line, command_of(command))


def runs(text: str, command: Command) -> bool:
    """Return whether the text may run such a command."""
    if _plain(text.lower()):
        return any(
            _is(words[0], command) and command.needs <= _parts_of(words[1:])
            for words in _lines(text.lower(), 0)
            if words
        )
    expanded = expand(text)
    if expanded is None:  # the expansion is too long to search
        return True
    return any(_runs(line, command) for line in {text.lower(), expanded})


def runs_together(texts: Iterable[str], command: Command) -> bool:
    """Return whether the texts may run such a command if joined to one line, in any order."""
    pieces = [(text, _last_line(text)) for text in map(str.lower, texts)]
    if not command.needs <= {part for _, words in pieces for part in _parts_of(words)}:
        return False
    return any(
        _is(word, command) for piece, words in pieces for word in _programs(words, _plain(piece))
    )


def _last_line(text: str) -> list[str]:
    """The words of the last command, which another piece would continue."""
    *_, last = _lines(text, 0)
    return last


def _programs(words: list[str], plain: bool) -> list[str]:
    """The words of a piece that may be the program: the first, or the last before flags."""
    last = next((word for word in reversed(words) if not word.startswith("-")), "")
    return words[:1] if plain else [*words[:1], last]


def _plain(text: str) -> bool:
    """Return whether this text certainly runs only the first words of its lines."""
    if _SPECIAL.search(text) or not _PLAIN_LINE.fullmatch(text):
        return False
    for words in _lines(text, 0):
        if not words or words[0] in _PRINTS:
            continue
        if len(words) < 2 or words[1] not in _MANAGES.get(words[0], ()):
            return False
    return True


def _runs(text: str, command: Command) -> bool:
    # A word with wildcards or quotes in it may be any program.
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
    """Return whether a word such as `/bin/r?` may be the path of that program."""
    name = word.rpartition("/")[2]
    return len(name) < PATH and bool(_GLOB.search(name)) and fnmatchcase(program, name)


def _parts_of(words: Iterable[str]) -> set[str]:
    return {part for word in words for part in _parts(word)}


def _parts(word: str) -> Iterator[str]:
    """The flags in a word, or the word itself; `--force` also counts as -f."""
    if word.startswith("--") and len(word) > 2:
        yield f"-{word[2]}"
    elif word.startswith("-") and len(word) > 1:
        yield from (f"-{letter}" for letter in word[1:])
    else:
        yield word


def _lines(text: str, depth: int) -> Iterator[list[str]]:
    """The words of each simple command, including the commands in quoted words."""
    words: list[str] = []
    for token in _TOKEN.finditer(text):
        if token[1] is None:  # a separator
            yield words
            words = []
            continue
        word = _PIECE.sub(_unquoted, token[1])
        words.append(word.lstrip("$"))
        if depth and _BREAK.search(word):
            match = _ASSIGNMENT.match(word)  # the value of a variable or an alias may be run later
            yield from _lines(word[match.end() :] if match else word, depth - 1)
    yield words


def _unquoted(piece: re.Match[str]) -> str:
    """Return a piece of a word as the shell reads it."""
    if piece[2] is not None:
        return re.sub(r"\\(.)", r"\1", piece[2], flags=re.DOTALL)
    return piece[1] or piece[3] or ""


# ── arguments ───────────────────────────────────────────────────────────────────────────────


def texts_in(value: Any) -> Iterator[str]:
    """Yield the strings in JSON data; a list of strings is also joined to a command line."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for item in cast("dict[str, Any]", value).values():
            yield from texts_in(item)
    elif isinstance(value, (list, tuple)):
        items = cast("list[Any]", value)
        if items and all(isinstance(item, str) for item in items):
            yield shlex.join(items)
        for item in items:
            yield from texts_in(item)


def pieces_in(value: Any) -> Iterator[list[str]]:
    """Yield the strings of each object, which a tool may join to one command line.

    Nested values belong to the object, except for objects in a list, which are treated separately.
    """
    if isinstance(value, dict):
        own: list[str] = []
        lists: list[Any] = []
        todo: list[Any] = [value]
        while todo:
            part = todo.pop()
            if isinstance(part, str):
                own.append(part)
            elif isinstance(part, dict):
                todo += cast("dict[str, Any]", part).values()
            elif isinstance(part, (list, tuple)):
                items = cast("list[Any]", part)
                todo += [item for item in items if not isinstance(item, dict)]
                lists += [item for item in items if isinstance(item, dict)]
        if len(own) > 1:
            yield own
        for part in lists:
            yield from pieces_in(part)
    elif isinstance(value, (list, tuple)):
        for part in cast("list[Any]", value):
            yield from pieces_in(part)
