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
from hookline.hooks._commands import command_of, runs, texts_in
from hookline.hooks._common import GUARD, LAST, Hooks
from hookline.points import AroundToolCall, PreToolCall


def deny_commands(
    *commands: str | re.Pattern[str],
    tools: Iterable[str] | None = None,
    argument: str | None = None,
    inherit: bool = True,
    required: bool = True,
) -> Hooks:
    """Refuse calls with such a command in their arguments: `deny_commands("rm -rf")`.

    A text is a command with flags and words: it is found however they are quoted, ordered and
    spelled, and behind `sudo`, `;`, `|` or `bash -c`. A pattern is searched as it is. `tools`: only
    these; `argument`: only there. A list of what is forbidden is no sandbox. Raises UsageError
    without a command.
    """
    if not commands:
        raise UsageError("deny_commands() needs a command, such as deny_commands('rm -rf')")
    denied = [(each, command_of(each) if isinstance(each, str) else each) for each in commands]
    only = None if tools is None else tuple(tools)

    def refusal(call: ToolCall) -> ToolFailure | None:
        where = call.arguments if argument is None else call.arguments.get(argument)
        for text in texts_in(where):
            for each, pattern in denied:
                if pattern.search(text) if isinstance(pattern, re.Pattern) else runs(text, pattern):
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
    )
