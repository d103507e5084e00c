"""Find out when a line of bash runs certain commands and nothing else. Pure functions.

Only a line of literal words is plain. A variable, a substitution, a redirection, a glob, a brace, a
backslash, an assignment or a word of the shell's grammar makes it unknown, and so does a builtin
that runs its words or changes what later words mean.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

MAX_LINE: Final = 10_000
_PROGRAM: Final = re.compile(r"[\w.+/-]+")
_PIECE: Final = re.compile(r"""'([^']*)'|"([^"$`\\!]*)"|([\w@%+=:,./-]+)""")
_OPERATORS: Final = ("&&", "||", "|", ";", "\n")
# Words of the grammar, and builtins that run their words, read them as expressions, or change what
# later words mean.
_SHELL: Final = frozenset(
    (
        *(".", "[", "[[", "]]", "{", "}", "!", "((", "alias", "bg", "bind", "break", "builtin"),
        *("caller", "case", "command", "compgen", "complete", "compopt", "continue", "coproc"),
        *("declare", "dirs", "disown", "do", "done", "elif", "else", "enable", "esac", "eval"),
        *("exec", "export", "fc", "fg", "fi", "for", "function", "getopts", "hash", "help"),
        *("history", "if", "in", "jobs", "let", "local", "logout", "mapfile", "popd", "printf"),
        *("pushd", "read", "readarray", "readonly", "return", "select", "set", "shift"),
        *("shopt", "source", "suspend", "test", "then", "time", "times", "trap", "type"),
        *("typeset", "ulimit", "umask", "unalias", "unset", "until", "wait", "while"),
    )
)


def plain_commands(line: str) -> list[list[str]] | None:
    """Return the words of each command of a line, or None if the line may do anything else."""
    if len(line) > MAX_LINE or not all(char.isprintable() or char in "\n\t" for char in line):
        return None
    commands: list[list[str]] = [[]]
    operator = ""
    for word, source in _tokens(line):
        if word is None:
            return None
        if source in _OPERATORS:
            if commands[-1]:
                operator = source
                commands.append([])
            elif source != "\n":  # a new line may follow an operator
                return None
        elif commands[-1] or _is_program(word, source):
            commands[-1].append(word)
        else:
            return None
    if not commands[-1]:
        commands.pop()
        if operator not in (";", "\n"):
            return None
    return commands or None


def _tokens(line: str) -> Iterator[tuple[str | None, str]]:
    """Yield each word and operator, and how it is written; None for what is not literal."""
    at = 0
    while at < len(line):
        start = at
        if line[at] in " \t":
            at += 1
            continue
        operator = next((symbol for symbol in _OPERATORS if line.startswith(symbol, at)), None)
        if operator is not None:
            at += len(operator)
            has_ampersand = line[at : at + 1] == "&"  # |&
            yield None if has_ampersand else operator, operator
            continue
        word, at = _word(line, at)
        yield word, line[start:at]
        if word is None:
            return


def _is_program(word: str, source: str) -> bool:
    """Return whether the first word of a command is a program, written without quotes."""
    return word == source and bool(_PROGRAM.fullmatch(word)) and word not in _SHELL


def _word(line: str, at: int) -> tuple[str | None, int]:
    """Return the word that begins here, or None if it is not literal, and where it ends."""
    word, start = "", at
    while at < len(line) and line[at] not in " \t\n;|":
        if line.startswith("&&", at):
            break
        piece = _PIECE.match(line, at)
        if piece is None:
            return None, at
        word, at = word + (piece[1] or piece[2] or piece[3] or ""), piece.end()
    return (word if at > start else None), at
