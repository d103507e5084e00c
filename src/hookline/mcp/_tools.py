"""A server's tools as hookline's: what is taken of a list, and what is left out and why."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from logging import getLogger
from math import inf
from typing import Any, Final, TypeAlias

from hookline import Run, Tool, ToolFailure, ToolResult
from hookline.errors import ToolDefinitionError
from hookline.mcp._errors import reason
from hookline.mcp._names import clean, clean_schema, mapped, matches, told

logger = getLogger("hookline.mcp")

MAX_SCHEMA: Final = 64 * 1024  # characters of a tool's schema
Invoke: TypeAlias = Callable[[str, dict[str, Any], Run[Any]], Awaitable[ToolResult | ToolFailure]]


def tools_of(
    listed: list[Any],
    label: str,
    *,
    prefix: str,
    allow: tuple[str, ...],
    deny: tuple[str, ...],
    invoke: Invoke,
) -> tuple[list[Tool[..., Any]], dict[str, str]]:
    """The tools that the patterns let in, and those whose schema cannot be used, with why."""
    wanted = [each for each in listed if matches(each.name, allow) and not matches(each.name, deny)]
    names = mapped([each.name for each in wanted], prefix)
    tools: dict[str, Tool[..., Any]] = {}
    left_out: dict[str, str] = {}
    for each in wanted:
        plain = names[each.name]
        try:
            tools[plain] = _tool(each, plain, invoke)
        except (ToolDefinitionError, ValueError, RecursionError) as exc:
            left_out[each.name] = reason(exc)
            logger.warning(
                "tool %r of MCP server %r is left out: its schema cannot be used",
                *(clean(each.name, 100), label),
            )
    return list(tools.values()), left_out


def _tool(each: Any, plain: str, invoke: Invoke) -> Tool[..., Any]:
    schema = clean_schema(each.input_schema)
    if len(repr(schema)) > MAX_SCHEMA:
        raise ValueError(f"the schema of {plain!r} must be shorter than {MAX_SCHEMA} characters")

    async def fn(arguments: dict[str, Any], run: Run[Any]) -> ToolResult | ToolFailure:
        return await invoke(each.name, arguments, run)

    about = told(each.description, each.name, plain)
    # The server has a time limit of its own; hints are its word, and relax nothing here.
    return Tool.from_schema(plain, about, schema, fn, timeout=inf)
