"""`pin_tools`: a tool that has changed since somebody approved it does not run."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from hashlib import sha256
from pathlib import Path
from typing import Any

from hookline import ModelRequest, Tool, ToolFailure, define_hook
from hookline.errors import UsageError
from hookline.hooks._common import GUARD, LAST, Hooks, named
from hookline.points import PreRequest, PreToolCall


def tool_digest(tool: Tool[..., Any]) -> str:
    """What a model is told of a tool – its name, description and schema – as a digest."""
    told = [tool.name, tool.description, tool.parameters]
    return sha256(json.dumps(told, sort_keys=True, ensure_ascii=True).encode()).hexdigest()


def pin_tools(
    pins: Mapping[str, str] | str | os.PathLike[str],
    *names: str,
    hide: bool = True,
    inherit: bool = True,
    required: bool = True,
) -> Hooks:
    """Refuse a tool whose name, description or schema is not the one that was approved.

    `pins` has the digest of each tool by its name, as `tool_digest` makes it, or names a JSON file
    of them. With names, such as `"files_*"`, only these tools are looked at; one of them that is
    not in the pins is refused. `hide`: what is refused is not offered either. Raises UsageError for
    pins that cannot be read.
    """
    known = _read(pins)

    def refused(tool: Tool[..., Any]) -> bool:
        if names and not named(tool.name, names):
            return False
        return known.get(tool.name) != tool_digest(tool)

    def check(ctx: PreToolCall[Any]) -> ToolFailure | None:
        if not refused(ctx.tool):
            return None
        words = f"tool {ctx.call.name!r} is not the one that was approved"
        return ToolFailure(words, type="Denied")

    def offer(ctx: PreRequest[Any]) -> ModelRequest | None:
        left = tuple(tool for tool in ctx.request.tools if not refused(tool))
        return ctx.request.replace(tools=left) if len(left) < len(ctx.request.tools) else None

    guard = define_hook(
        "preToolCall",
        check,
        name="pin_tools",
        priority=GUARD,
        on_error="deny",
        inherit=inherit,
        required=required,
    )
    if not hide:
        return (guard,)
    hides = define_hook(
        "preRequest", offer, name="pin_tools", priority=LAST, inherit=inherit, required=required
    )
    return (guard, hides)


def _read(pins: Mapping[str, str] | str | os.PathLike[str]) -> dict[str, str]:
    found: Any = pins
    if isinstance(pins, (str, os.PathLike)):
        try:
            found = json.loads(Path(pins).read_text(encoding="utf-8"))
        except (OSError, ValueError) as exc:
            raise UsageError(
                f"pins={str(pins)!r} cannot be read ({type(exc).__name__}); write a JSON object of "
                "digests by the names of tools"
            ) from exc
    if not isinstance(found, Mapping):
        raise UsageError(f"pins={pins!r} must be digests by the names of tools")
    return dict(found)  # pyright: ignore[reportUnknownArgumentType]
