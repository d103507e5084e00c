"""`allow_tools`: allow only these tools to run.

The model sees each refusal, and the chat continues. If the check fails, its call is denied.
"""

from __future__ import annotations

from typing import Any

from hookline import Deny, ModelRequest
from hookline.errors import UsageError
from hookline.hooks._common import GUARD, LAST, Hooks, definer
from hookline.points import PreRequest, PreToolCall, matches


def allow_tools(
    *names: str, hide: bool = True, inherit: bool = False, required: bool = True
) -> Hooks:
    """Allow only these tools to run; `"read_*"` is a pattern. If no names are given, no tool may
    run.

    With `hide`, the other tools are not offered to the model either. Raises UsageError for an empty
    name.
    """
    for name in names:
        if not isinstance(name, str) or not name:  # pyright: ignore
            raise UsageError(
                f"allow_tools() got {name!r}, which is not the name of a tool; pass each name or "
                "pattern by itself, as in allow_tools('search', 'read_*')"
            )

    def offer(ctx: PreRequest[Any]) -> ModelRequest | None:
        tools = tuple(tool for tool in ctx.request.tools if matches(tool.name, names))
        return ctx.request.replace(tools=tools) if len(tools) < len(ctx.request.tools) else None

    def check(ctx: PreToolCall[Any]) -> Deny | None:
        if matches(ctx.call.name, names):
            return None
        return Deny(f"tool {ctx.call.name!r} is not allowed here")

    add = definer(name="allow_tools", inherit=inherit, required=required)
    guard = add("preToolCall", check, priority=GUARD, on_error="deny")
    # `offer` runs last, so that it also checks the tools that other hooks add.
    return (guard, add("preRequest", offer, priority=LAST)) if hide else (guard,)
