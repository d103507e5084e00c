"""`deny_commands`: refuse calls that would run certain commands.

As every guard, it is asked again just before the tool runs if another hook or an approver has
changed the arguments. If the check fails, its call is denied.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

from hookline import Deny
from hookline.errors import UsageError
from hookline.hooks._common import GUARD, Hooks, definer, not_by_the_provider, tool_names
from hookline.hooks._guards.shell_commands import (
    Command,
    command_of,
    pieces_in,
    runs,
    runs_together,
    texts_in,
)
from hookline.points import PreToolCall


def deny_commands(
    *commands: str | re.Pattern[str],
    tools: Iterable[str] | None = None,
    argument: str | None = None,
    inherit: bool = True,
    required: bool = True,
) -> Hooks:
    """Refuse calls whose arguments contain one of these commands: `deny_commands("rm -rf")`.

    Each text is a command with flags and words. The hook also finds a command that is quoted,
    reordered, split or hidden in common ways, or that follows `sudo`, `;`, `|` or `bash -c`. You
    can also pass compiled patterns, which are searched for in the unchanged text. `tools` and
    `argument` limit the check to these tools and this argument. No list can cover every way to hide
    a command in a shell. To prevent a command reliably, use `allow_tools` or `approve`, and a
    sandbox. Raises UsageError if no command is given, and for anything that is not a command.
    """
    if not commands:
        raise UsageError("deny_commands() needs a command, such as deny_commands('rm -rf')")
    denied = [(command, _search_for(command)) for command in commands]
    only = tool_names(tools)

    def finds(pattern: re.Pattern[str] | Command, where: Any) -> bool:
        if isinstance(pattern, re.Pattern):
            return any(pattern.search(text) for text in texts_in(where))
        return any(runs(text, pattern) for text in texts_in(where)) or any(
            runs_together(pieces, pattern) for pieces in pieces_in(where)
        )

    def check(ctx: PreToolCall[Any]) -> Deny | None:
        arguments = ctx.call.arguments
        where = arguments if argument is None else arguments.get(argument)
        for command, pattern in denied:
            if finds(pattern, where):
                label = command if isinstance(command, str) else command.pattern
                return Deny(f"a command like {label!r} is not allowed; continue without it")
        return None

    add = definer(name="deny_commands", inherit=inherit, required=required)
    guard = add("preToolCall", check, priority=GUARD, on_error="deny", tools=only)
    return (guard,) if only is None else (guard, not_by_the_provider(add, "deny_commands", only))


def _search_for(command: Any) -> Command | re.Pattern[str]:
    """Return what to search for; raises UsageError if it is neither a text nor a pattern."""
    if isinstance(command, str):
        return command_of(command)
    if isinstance(command, re.Pattern) and isinstance(command.pattern, str):  # pyright: ignore
        return command  # pyright: ignore
    raise UsageError(
        f"deny_commands() got {command!r}, which is not a command; pass each command by itself, as "
        "in deny_commands('rm -rf', 'shutdown')"
    )
