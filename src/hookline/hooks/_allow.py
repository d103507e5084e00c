"""`allow_tools`: only these tools may run.

What is refused is told to the model, and the chat goes on. A check that fails denies its call.
"""

from __future__ import annotations

from typing import Any

from hookline import ModelRequest, ToolFailure, define_hook
from hookline.hooks._common import GUARD, LAST, Hooks, named
from hookline.points import PreRequest, PreToolCall


def allow_tools(
    *names: str, hide: bool = True, inherit: bool = False, required: bool = True
) -> Hooks:
    """Only these tools may run; `"read_*"` allows all that begin so. Without names, none may.

    `hide`: the others are not offered to the model either.
    """

    def offer(ctx: PreRequest[Any]) -> ModelRequest | None:
        left = tuple(tool for tool in ctx.request.tools if named(tool.name, names))
        return ctx.request.replace(tools=left) if len(left) < len(ctx.request.tools) else None

    def check(ctx: PreToolCall[Any]) -> ToolFailure | None:
        if named(ctx.call.name, names):
            return None
        return ToolFailure(f"tool {ctx.call.name!r} is not allowed here", type="Denied")

    guard = define_hook(
        "preToolCall",
        check,
        name="allow_tools",
        priority=GUARD,
        on_error="deny",
        inherit=inherit,
        required=required,
    )
    if not hide:
        return (guard,)
    # Last of all: what another hook offers is looked at too.
    return (
        guard,
        define_hook(
            "preRequest",
            offer,
            name="allow_tools",
            priority=LAST,
            inherit=inherit,
            required=required,
        ),
    )
