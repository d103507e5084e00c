"""`Rules`: what is allowed, what needs an approval, and what is denied.

`deny` comes first, then `ask`, then `allow`; without a rule, the mode of the workspace decides. A
rule for commands allows a line only if each command of it is known and allowed; `deny` and `ask`
find a command anywhere in a line, also in quotes and behind `sudo`, and rather too often than not.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable
from difflib import get_close_matches
from fnmatch import fnmatchcase
from functools import lru_cache
from os import PathLike
from pathlib import Path
from typing import Any, Final, Literal, NamedTuple, Self, cast

import msgspec

from hookline.errors import UsageError
from hookline.hooks import runs_command
from hookline.workspace._commands.plain import plain_commands
from hookline.workspace._commands.risky_programs import CHANGE_FOLDER, RUNNERS, writes_or_runs

Kind = Literal["allow", "ask", "deny"]
_RULE: Final = re.compile(r"\s*([A-Za-z_]+)\s*(?:\((.*)\))?\s*", re.DOTALL)
_TOOLS: Final = {
    "bash": "bash",
    "read": "read",
    "list": "read",
    "glob": "read",
    "grep": "read",
    "edit": "edit",
    "write": "edit",
    "plan": "plan",
    "skill": "skill",
}
_PATHS: Final = ("read", "edit")


class Rule(msgspec.Struct, frozen=True):
    """One rule, such as `bash(git status*)`."""

    text: str
    """The rule, as it was written."""
    tool: str
    """The tool: "bash", "read" for all tools that read, "edit" for all that write, …"""
    pattern: str | None = None
    """What is in the parentheses; None if the rule is about all calls of the tool."""


class Verdict(NamedTuple):
    """What the rules say about a call, and by which rule."""

    kind: Kind
    """Whether the call runs, needs an approval, or is refused."""
    rule: str
    """The rule that decided, as it was written."""


class Rules:
    """Rules for the tools of a workspace: `Rules(allow=["bash(npm test)"], deny=["read(.env*)"])`.

    `bash(git status*)` matches a command with these words and any further ones; without the `*`,
    exactly this command. `read(pattern)` is about everything that reads a file: the tools, the
    lists, and commands in the sandbox. `edit(pattern)` is about `write` and `edit`. A pattern of a
    path is written as in .gitignore. Raises UsageError for a rule that cannot be read.
    """

    def __init__(
        self, *, allow: Iterable[str] = (), ask: Iterable[str] = (), deny: Iterable[str] = ()
    ) -> None:
        self.allow = tuple(_rule(text) for text in _texts("allow", allow))
        """What runs without an approval."""
        self.ask = tuple(_rule(text) for text in _texts("ask", ask))
        """What needs an approval."""
        self.deny = tuple(_rule(text) for text in _texts("deny", deny))
        """What is refused."""

    @classmethod
    def load(cls, path: str | PathLike[str]) -> Self:
        """Read rules from a JSON file: `{"permissions": {"allow": […], "ask": […], "deny": […]}}`.

        Other keys beside `permissions` are left to other programs. Raises UsageError for another
        key in `permissions`, and for a file that cannot be read.
        """
        try:
            data: Any = json.loads(Path(path).read_text())
        except (OSError, ValueError) as exc:
            raise UsageError(
                f"the rules in {str(path)!r} cannot be read ({exc}); pass a file of JSON"
            ) from exc
        whole: Any = cast("dict[str, Any]", data) if isinstance(data, dict) else {}
        table: Any = whole.get("permissions", {}) if isinstance(data, dict) else None
        if not isinstance(table, dict):
            raise UsageError(f'{str(path)!r} must be an object with "permissions"; correct it')
        kinds = ("allow", "ask", "deny")
        for key in cast("dict[str, Any]", table):
            if key not in kinds:
                raise UsageError(
                    f"{str(path)!r} has the key {key!r} in permissions; use allow, ask or deny"
                )
        return cls(**cast("dict[str, Any]", table))

    def __or__(self, other: Rules) -> Rules:
        """Return these rules and the others'."""
        rules = Rules()
        rules.allow = self.allow + other.allow
        rules.ask = self.ask + other.ask
        rules.deny = self.deny + other.deny
        return rules

    def __repr__(self) -> str:
        kinds = [(name, getattr(self, name)) for name in ("allow", "ask", "deny")]
        texts = [f"{name}={[rule.text for rule in rules]}" for name, rules in kinds if rules]
        return f"Rules({', '.join(texts)})"

    # ── questions ───────────────────────────────────────────────────────────────────────────

    def for_command(self, line: str, *, confined: bool) -> Verdict | None:
        """Say what the rules want of a line of bash; None if no rule is about it."""

        def contains(rule: Rule) -> bool:
            return rule.tool == "bash" and (rule.pattern is None or _contains(line, rule.pattern))

        verdict = _first(contains, ("deny", self.deny), ("ask", self.ask))
        return verdict or self._allows(line, confined=confined)

    def for_paths(self, tool: Literal["read", "edit"], paths: Iterable[str]) -> Verdict | None:
        """Say what the rules want of a file that has these paths; None if no rule is about it."""
        names = tuple(paths)

        def fits(rule: Rule) -> bool:
            return _is_about(rule, tool) and any(_path_fits(name, rule.pattern) for name in names)

        def allows(rule: Rule) -> bool:
            return rule.tool == tool and all(_path_fits(name, rule.pattern) for name in names)

        verdict = _first(fits, ("deny", self.deny), ("ask", self.ask))
        return verdict or _first(allows, ("allow", self.allow))

    def for_tool(self, tool: str) -> Verdict | None:
        """Say what the rules want of a tool that has no pattern."""

        def fits(rule: Rule) -> bool:
            return rule.tool == tool

        return _first(fits, ("deny", self.deny), ("ask", self.ask), ("allow", self.allow))

    def hides(self, path: str) -> bool:
        """Return whether a path must not be read, so that lists and commands do not have it."""
        return any(rule.tool == "read" and _path_fits(path, rule.pattern) for rule in self.deny)

    @property
    def hiding(self) -> tuple[str, ...]:
        """The patterns of files that must not be read."""
        return tuple(rule.pattern or "**" for rule in self.deny if rule.tool == "read")

    def _allows(self, line: str, *, confined: bool) -> Verdict | None:
        rules = [rule for rule in self.allow if rule.tool == "bash"]
        for rule in rules:
            if rule.pattern is None:
                return Verdict("allow", rule.text)
        commands = plain_commands(line) if rules else None
        if commands is None or _moves(commands, confined=confined):
            return None
        texts: list[str] = []
        for words in commands:
            fits = [rule.text for rule in rules if _matches(words, rule.pattern or "")]
            if not fits:
                return None
            texts.append(fits[0])
        return Verdict("allow", ", ".join(dict.fromkeys(texts)))


def _first(fits: Callable[[Rule], bool], *kinds: tuple[Kind, Iterable[Rule]]) -> Verdict | None:
    verdicts = (Verdict(kind, rule.text) for kind, rules in kinds for rule in rules if fits(rule))
    return next(verdicts, None)


def _is_about(rule: Rule, tool: str) -> bool:
    """A file that must not be read, or only after an approval, is not written without it either."""
    return rule.tool == tool or (tool == "edit" and rule.tool == "read")


# ── rules ───────────────────────────────────────────────────────────────────────────────────


def _texts(name: str, rules: Any) -> tuple[Any, ...]:
    if isinstance(rules, str):
        raise UsageError(f"Rules({name}={rules!r}) must be a list of rules; put it in brackets")
    return tuple(rules)


def is_rule(text: str) -> bool:
    """Return whether a text is a rule about a tool of a workspace."""
    match = _RULE.fullmatch(text)
    return match is not None and match[1].lower() in _TOOLS


def _rule(text: Any) -> Rule:
    match = _RULE.fullmatch(text) if isinstance(text, str) else None
    if match is None:
        raise UsageError(f"{text!r} is not a rule; write a rule as in 'bash(git status*)'")
    name, pattern = match[1].lower(), match[2]
    if name not in _TOOLS:
        hint = "".join(
            f" (did you mean {tool!r}?)" for tool in get_close_matches(name, _TOOLS, n=1)
        )
        raise UsageError(
            f"the rule {text!r} is about no tool{hint}; use one of {', '.join(sorted(_TOOLS))}"
        )
    tool = _TOOLS[name]
    if pattern is None or (pattern.strip() == "*" and tool == "bash"):
        return Rule(text, tool)
    if not pattern.strip():
        raise UsageError(f"the rule {text!r} has an empty pattern; leave the parentheses out")
    if tool not in (*_PATHS, "bash"):
        raise UsageError(f"the rule {text!r} cannot have a pattern; write {name!r}")
    return Rule(text, tool, pattern.strip())


# ── commands ────────────────────────────────────────────────────────────────────────────────


def _words(pattern: str) -> tuple[list[str], bool]:
    """The words of a pattern, and whether any further words may follow."""
    open_end = pattern.endswith("*")
    return re.sub(r":?\*$", "", pattern).split(), open_end


def _matches(words: list[str], pattern: str) -> bool:
    """Return whether a pattern matches a command, word by word: `ls*` is not `lsof`."""
    pattern_words, open_end = _words(pattern)
    if len(words) < len(pattern_words) or (not open_end and len(words) != len(pattern_words)):
        return False
    if not pattern_words or not all(map(fnmatchcase, words, pattern_words)):
        return False
    literal = not open_end and "*" not in pattern and "?" not in pattern and "[" not in pattern
    name = words[0].rpartition("/")[2]
    return literal or (name not in RUNNERS and not writes_or_runs(words))


def _contains(line: str, pattern: str) -> bool:
    """Return whether a line may run such a command, wherever it stands in the line."""
    literals = [word for word in _words(pattern)[0] if "*" not in word]
    if not literals or literals[0].startswith("-"):
        return True
    return runs_command(line, " ".join(literals))


def _moves(commands: list[list[str]], *, confined: bool) -> bool:
    """Return whether a line leaves its folder, so that git would read another configuration."""
    return (
        not confined and len(commands) > 1 and any(words[0] in CHANGE_FOLDER for words in commands)
    )


# ── paths ───────────────────────────────────────────────────────────────────────────────────


def _path_fits(path: str, pattern: str | None) -> bool:
    return pattern is None or bool(compiled(pattern)(path.casefold()))


@lru_cache(maxsize=1000)
def compiled(pattern: str) -> Callable[[str], Any]:
    """Compile the pattern of a path, as in .gitignore; what it matches covers what is beneath."""
    text = pattern.casefold()
    anchored = "/" in text.rstrip("/")
    text = text.removeprefix("./").strip("/")
    parts: list[str] = [] if anchored else ["(?:.*/)?"]
    at = 0
    while at < len(text):
        if text.startswith("**/", at):
            parts.append("(?:.*/)?")
            at += 3
        elif text.startswith("**", at):
            parts.append(".*")
            at += 2
        else:
            parts.append({"*": "[^/]*", "?": "[^/]"}.get(text[at], re.escape(text[at])))
            at += 1
    return re.compile("".join(parts) + "(?:/.*)?", re.DOTALL).fullmatch
