"""`deny_commands`: calls that would run such a command do not run.

Arguments are looked at twice: before the call, and again when its handler is about to run, since
other hooks and approvers may have changed them. A check that fails denies its call.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

from hookline import Proceed, ToolCall, ToolFailure, ToolResult, define_hook
from hookline.errors import UsageError
from hookline.hooks._commands import (
    Command,
    command_of,
    pieces_in,
    runs,
    runs_together,
    texts_in,
)
from hookline.hooks._common import GUARD, LAST, Hooks, not_by_the_provider
from hookline.points import AroundToolCall, PreToolCall


def deny_commands(
    *commands: str | re.Pattern[str],
    tools: Iterable[str] | None = None,
    argument: str | None = None,
    inherit: bool = True,
    required: bool = True,
) -> Hooks:
    """Refuse calls with such a command in their arguments: `deny_commands("rm -rf")`.

    A text is a command with flags and words. It is found in the common ways to quote, order, split
    and hide it, and behind `sudo`, `;`, `|` or `bash -c`. A pattern is searched as it is. `tools`:
    only these; `argument`: only there. A shell has more ways to hide a command than a list can
    know: to keep one from running, use `allow_tools` or `approve`, and a sandbox. Raises UsageError
    without a command.
    """
    if not commands:
        raise UsageError("deny_commands() needs a command, such as deny_commands('rm -rf')")
    denied = [(each, command_of(each) if isinstance(each, str) else each) for each in commands]
    only = None if tools is None else tuple(tools)

    def finds(pattern: re.Pattern[str] | Command, where: Any) -> bool:
        if isinstance(pattern, re.Pattern):
            return any(pattern.search(text) for text in texts_in(where))
        return any(runs(text, pattern) for text in texts_in(where)) or any(
            runs_together(pieces, pattern) for pieces in pieces_in(where)
        )

    def refusal(call: ToolCall) -> ToolFailure | None:
        where = call.arguments if argument is None else call.arguments.get(argument)
        for each, pattern in denied:
            if finds(pattern, where):
                shown = each if isinstance(each, str) else each.pattern
                return ToolFailure(f"a command like {shown!r} is not allowed", type="Denied")
        return None

    def check(ctx: PreToolCall[Any]) -> ToolFailure | None:
        return refusal(ctx.call)

    async def check_again(
        ctx: AroundToolCall[Any], proceed: Proceed[ToolCall, ToolResult | ToolFailure]
    ) -> ToolResult | ToolFailure:
        return refusal(ctx.call) or await proceed()

    name = "deny_commands"
    return (
        define_hook(
            "preToolCall",
            check,
            name=name,
            priority=GUARD,
            on_error="deny",
            tools=only,
            inherit=inherit,
            required=required,
        ),
        define_hook(
            "aroundToolCall",
            check_again,
            name=name,
            priority=LAST,
            tools=only,
            inherit=inherit,
            required=required,
        ),
        *(
            (not_by_the_provider(name, only, inherit=inherit, required=required),)
            if only is not None
            else ()
        ),
    )
