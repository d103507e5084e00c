"""`offload` of a workspace: large results of other tools are put aside, behind a handle."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final, Protocol

import msgspec

from hookline import HookDef, Run, Tool, ToolResult, define_hook
from hookline.errors import UsageError
from hookline.points import OnToolCallResult, check_number
from hookline.workspace._tools.read import MAX_LINE

NAME: Final = "offload"


class Offloading(Protocol):
    """A workspace, or many of them."""

    @property
    def tools_by_name(self) -> Mapping[str, Tool[Any, Any]]: ...
    async def cut(self, run: Run[Any], text: str, over: int) -> str: ...


def offload(
    self: Offloading,
    over: int = 10_000,
    *,
    tools: Iterable[str] | None = None,
    inherit: bool = False,
    required: bool = False,
) -> tuple[HookDef, ...]:
    """Put tool results of more than `over` characters aside: `agent.use(workspace.offload())`.

    The model gets the beginning and the end of such a result, and a handle that `read` pages in the
    workspace of the run. The tools of the workspace bound their own results. With `tools`, only
    results of these tools are put aside. Raises UsageError if `read` is not among the workspace's
    tools.
    """
    own = self.tools_by_name
    check_number("over", over, whole=True, least=1)
    if "read" not in own:
        raise UsageError(
            f"offload() needs the tool 'read', and this workspace has {list(own)!r}; add 'read' to "
            "tools="
        )
    bounded = tuple(own.values())

    async def put_aside(ctx: OnToolCallResult[Any]) -> ToolResult | None:
        if ctx.tool in bounded:
            return None
        value = ctx.result.value
        if not isinstance(value, str):
            value = msgspec.json.format(msgspec.json.encode(value), indent=1).decode()
        if len(value) <= over:
            return None
        short = await self.cut(ctx.run, _folded(value), over)
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


def _folded(text: str) -> str:
    """The text without lines that are too long for `read`."""
    return "\n".join(
        line[start : start + MAX_LINE]
        for line in text.split("\n")
        for start in range(0, len(line) or 1, MAX_LINE)
    )
