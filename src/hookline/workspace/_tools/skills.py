"""Skills: folders with a file SKILL.md, whose text the model reads when it needs it.

The model always sees the names and descriptions. A skill is pinned: if its SKILL.md has changed
since the workspace was opened, it is refused. `allowed-tools` can only narrow what a chat may do.
"""

from __future__ import annotations

import asyncio
import os
import re
from collections.abc import Iterable
from contextlib import closing
from os import PathLike
from typing import Any, Final, cast

import msgspec

from hookline import Run, Tool
from hookline.errors import ToolCallError, UsageError
from hookline.workspace._commands.rules import Rules, is_rule
from hookline.workspace._errors import ChangedError
from hookline.workspace._files.access import Access
from hookline.workspace._files.root import Root
from hookline.workspace._files.text import decode
from hookline.workspace._tools.outputs import Outputs
from hookline.workspace._tools.seen_files import KEY, notes_of

FILE: Final = "SKILL.md"
MAX_NAME: Final = 64
MAX_DESCRIPTION: Final = 1024
_HEAD: Final = re.compile(r"---[ \t]*\n(.*?\n)---[ \t]*(?:\n|\Z)", re.DOTALL)
_FIELD: Final = re.compile(r"([A-Za-z][\w-]*):[ \t]*(.*)")
_NAME: Final = re.compile(r"[a-z0-9]+(?:-[a-z0-9]+)*")
_TOOL: Final = re.compile(r"[^\s,(]+(?:\([^)]*\))?")


class Skill(msgspec.Struct, frozen=True):
    """A skill, as it was when the workspace was opened."""

    name: str
    description: str
    folder: str
    digest: str
    allowed_tools: tuple[str, ...] | None


class Skills:
    """The skills in some folders. Raises UsageError for a SKILL.md that is not valid."""

    def __init__(self, folders: Iterable[str | PathLike[str]], rules: Rules) -> None:
        self._rules = rules
        self._skills: dict[str, Skill] = {}
        for folder in folders:
            path = os.path.realpath(folder)
            if os.path.isfile(os.path.join(path, FILE)):
                self._add(path)
                continue
            try:
                names = sorted(os.listdir(path))
            except OSError as exc:
                raise UsageError(
                    f"skills has {str(folder)!r}, which cannot be read ({exc.strerror}); pass a "
                    "folder of skills"
                ) from exc
            for name in names:
                if os.path.isfile(os.path.join(path, name, FILE)):
                    self._add(os.path.join(path, name))

    def __bool__(self) -> bool:
        return bool(self._skills)

    def catalogue(self) -> str:
        """Return the names and descriptions, for the model."""
        lines = [f"- {skill.name}: {skill.description}" for skill in self._skills.values()]
        return "\n".join(["Skills; call `skill` to read one before you use it:", *lines])

    def tool(self, outputs: Outputs) -> Tool[Any, Any]:
        """Make the tool that reads skills."""

        async def skill(run: Run[Any], name: str, file: str | None = None) -> str:
            """Read the instructions of a skill, or one of its files.

            Args:
                name: The name of the skill.
                file: The path of a file in the skill's folder; by default, its instructions.
            """
            definition = self._skills.get(name)
            if definition is None:
                names = ", ".join(self._skills)
                raise ToolCallError(f"there is no skill {name!r}; use one of: {names}")
            text = await asyncio.to_thread(self._read, definition, file)
            if file is None and definition.allowed_tools is not None:
                rules = only_rules(run)
                tools = list(definition.allowed_tools)
                _note_only(run, tools if rules is None else [r for r in rules if r in tools])
            return await asyncio.to_thread(outputs.cut, text)

        return Tool(skill, idempotent=True)

    def _add(self, folder: str) -> None:
        try:
            with closing(Root(folder, None)) as root:
                data = root.read(FILE)
        except ToolCallError as exc:
            raise UsageError(
                f"the skill in {folder!r} cannot be read ({exc}); remove or replace it"
            ) from exc
        fields, _ = _parsed(decode(data.data, FILE)[0], folder)
        name, description = fields.get("name", ""), fields.get("description", "")
        if not _NAME.fullmatch(name) or len(name) > MAX_NAME:
            raise UsageError(
                f"the skill in {folder!r} has the name {name!r}; use 1 to {MAX_NAME} lower-case "
                "letters, digits and hyphens"
            )
        if not description or len(description) > MAX_DESCRIPTION:
            raise UsageError(
                f"the skill {name!r} needs a description of 1 to {MAX_DESCRIPTION} characters; "
                "add it to its SKILL.md"
            )
        if name in self._skills:
            raise UsageError(f"two skills have the name {name!r}; rename one of them")
        tools = fields.get("allowed-tools")
        allowed_tools = None if tools is None else tuple(_TOOL.findall(tools))
        if allowed_tools is not None:
            Rules(
                allow=[text for text in allowed_tools if is_rule(text)]
            )  # raises if one is not valid
        self._skills[name] = Skill(name, description, folder, data.digest, allowed_tools)

    def _read(self, skill: Skill, file: str | None) -> str:
        with closing(Root(skill.folder, None)) as root:
            body = root.read(FILE)
            if body.digest != skill.digest:
                raise ChangedError(
                    f"the skill {skill.name!r} has changed since the workspace was opened; tell "
                    "the user to open it again"
                )
            if file is None:
                return _parsed(decode(body.data, FILE)[0], skill.name)[1].strip()
            access = Access(root, self._rules, ())
            return decode(root.read(file, access.may_read).data, file)[0]


def _parsed(text: str, place: str) -> tuple[dict[str, str], str]:
    """The fields of the head, and the text after it. Lines that are indented continue a field."""
    match = _HEAD.match(text)
    if match is None:
        raise UsageError(f"{FILE} of {place!r} must begin with fields between two lines '---'")
    fields: dict[str, str] = {}
    last = ""
    for line in match[1].split("\n"):
        field = _FIELD.fullmatch(line.rstrip())
        if field is not None:
            last = field[1]
            fields[last] = field[2].strip().strip("\"'").lstrip(">|").strip()
        elif last and line[:1] in (" ", "\t"):
            fields[last] = f"{fields[last]} {line.strip().removeprefix('- ')}".strip()
    return fields, text[match.end() :]


def only_rules(run: Run[Any]) -> list[str] | None:
    """Return the rules to which skills have limited this chat; None if there are none.

    The skills of a chat also limit its sub-agents.
    """
    rules: Any = notes_of(run.state).get("only")
    own = cast("list[str]", rules) if isinstance(rules, list) else None
    above = None if run.parent is None else only_rules(run.parent)
    if own is None or above is None:
        return above if own is None else own
    return [rule for rule in own if rule in above]


def _note_only(run: Run[Any], rules: list[str]) -> None:
    """Limit this chat to these rules, and to those of earlier skills."""
    run.state[KEY] = {**notes_of(run.state), "only": rules}
