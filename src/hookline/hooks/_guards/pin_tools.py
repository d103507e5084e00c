"""`pin_tools`: refuse tools that have changed since they were approved."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from hashlib import sha256
from pathlib import Path
from typing import Any

from hookline import Deny, ModelRequest, Tool
from hookline.errors import UsageError
from hookline.hooks._common import GUARD, LAST, Hooks, definer
from hookline.points import PreRequest, PreToolCall, matches


def tool_digest(tool: Tool[..., Any]) -> str:
    """Return a digest of everything that a model sees of a tool: name, description and schema."""
    data = [tool.name, tool.description, tool.parameters]
    return sha256(json.dumps(data, sort_keys=True, ensure_ascii=True).encode()).hexdigest()


def pin_tools(
    pins: Mapping[str, str] | str | os.PathLike[str],
    *names: str,
    hide: bool = True,
    inherit: bool = True,
    required: bool = True,
) -> Hooks:
    """Refuse a tool if its name, description or schema differs from the approved version.

    `pins` maps the names of tools to digests made by `tool_digest`. `pins` can also be the path of
    a JSON file with this map. If names such as `"files_*"` are given, only the tools with these
    names are checked. A checked tool without a digest in `pins` is refused. With `hide`, refused
    tools are not offered to the model either. Raises UsageError for pins that cannot be read.
    """
    digests = _read(pins)

    def is_refused(tool: Tool[..., Any]) -> bool:
        if names and not matches(tool.name, names):
            return False
        return digests.get(tool.name) != tool_digest(tool)

    def check(ctx: PreToolCall[Any]) -> Deny | None:
        if not is_refused(ctx.tool):
            return None
        return Deny(f"tool {ctx.call.name!r} is not the approved version")

    def offer(ctx: PreRequest[Any]) -> ModelRequest | None:
        tools = tuple(tool for tool in ctx.request.tools if not is_refused(tool))
        return ctx.request.replace(tools=tools) if len(tools) < len(ctx.request.tools) else None

    add = definer(name="pin_tools", inherit=inherit, required=required)
    guard = add("preToolCall", check, priority=GUARD, on_error="deny", tools=names or None)
    return (guard, add("preRequest", offer, priority=LAST)) if hide else (guard,)


def _read(pins: Mapping[str, str] | str | os.PathLike[str]) -> dict[str, str]:
    data: Any = pins
    if isinstance(pins, (str, os.PathLike)):
        try:
            data = json.loads(Path(pins).read_text(encoding="utf-8"))
        except (OSError, ValueError) as exc:
            raise UsageError(
                f"pins={str(pins)!r} cannot be read ({type(exc).__name__}); write a JSON object "
                "that maps the names of tools to digests"
            ) from exc
    if not isinstance(data, Mapping):
        raise UsageError(f"pins={pins!r} must map the names of tools to digests")
    return dict(data)  # pyright: ignore[reportUnknownArgumentType]
