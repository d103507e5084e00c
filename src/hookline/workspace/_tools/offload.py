"""`Workspace.offload`: large results of other tools are put aside, behind the handle of outputs."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Iterable
from typing import Any, Final

import msgspec

from hookline import HookDef, Tool, ToolResult, define_hook
from hookline.points import OnToolCallResult, check_number
from hookline.workspace._tools.outputs import Outputs
from hookline.workspace._tools.read import MAX_LINE

NAME: Final = "offload"


def offload_hooks(
    outputs: Outputs,
    over: int,
    *,
    bounded: Collection[Tool[Any, Any]],
    tools: Iterable[str] | None,
    inherit: bool,
    required: bool,
) -> tuple[HookDef, ...]:
    """Make the hook; the tools in `bounded` are left alone."""
    check_number("over", over, whole=True, least=1)

    async def put_aside(ctx: OnToolCallResult[Any]) -> ToolResult | None:
        if ctx.tool in bounded:
            return None
        value = ctx.result.value
        text = value if isinstance(value, str) else _as_text(value)
        if len(text) <= over:
            return None
        short = await asyncio.to_thread(outputs.cut, _folded(text), over)
        return ctx.result.replace(value=short, truncated=True)

    return (
        define_hook(
            "onToolCallResult",
            put_aside,
            name=NAME,
            tools=tools,
            inherit=inherit,
            required=required,
        ),
    )


def _as_text(value: Any) -> str:
    return msgspec.json.format(msgspec.json.encode(value), indent=1).decode()


def _folded(text: str) -> str:
    """The text without lines that are too long for `read`."""
    return "\n".join(
        line[start : start + MAX_LINE]
        for line in text.split("\n")
        for start in range(0, len(line) or 1, MAX_LINE)
    )
