"""Convert a server's tools to hookline's, and leave out unusable tools with a reason.

A name is mapped to a name that every provider accepts; two tools never get the same name. Control
and format characters, which can hide instructions from people, are removed from texts, and texts
are shortened.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable
from hashlib import sha256
from logging import getLogger
from math import inf
from typing import Any, Final, TypeAlias, cast
from unicodedata import category

from hookline import Run, Tool, ToolFailure, ToolResult
from hookline.errors import ToolArgumentsError, ToolDefinitionError
from hookline.mcp._errors import reason, short
from hookline.points import matches

logger = getLogger("hookline.mcp")

MAX_SCHEMA: Final = 64 * 1024  # most characters of a tool's schema
MAX_DESCRIPTION: Final = 4_096  # characters
MAX_SCHEMA_TEXT: Final = 1_024
MAX_NAME: Final = 64
_OTHER: Final = re.compile(r"[^a-zA-Z0-9_-]")
_HIDDEN_CATEGORIES: Final = frozenset(["Cc", "Cf", "Co", "Cs", "Cn"])
Invoke: TypeAlias = Callable[[str, dict[str, Any], Run[Any]], Awaitable[ToolResult | ToolFailure]]


def tools_of(
    descriptions: list[Any],
    label: str,
    *,
    prefix: str,
    allow: tuple[str, ...],
    deny: tuple[str, ...],
    approve: tuple[str, ...],
    invoke: Invoke,
) -> tuple[list[Tool[..., Any]], dict[str, str], set[str]]:
    """Return the tools that the patterns allow, and those with unusable schemas and the reasons.

    The set has the model's names of the tools whose own names match `approve`.
    """
    usable = [
        tool for tool in descriptions if matches(tool.name, allow) and not matches(tool.name, deny)
    ]
    names = mapped([tool.name for tool in usable], prefix)
    tools: dict[str, Tool[..., Any]] = {}
    left_out: dict[str, str] = {}
    for tool in usable:
        plain = names[tool.name]
        try:
            tools[plain] = _tool(tool, plain, invoke)
        except (ToolDefinitionError, ValueError, RecursionError) as exc:
            left_out[tool.name] = reason(exc)
            logger.warning(
                "tool %r of MCP server %r is left out: its schema cannot be used",
                *(clean(tool.name, 100), label),
            )
    to_approve = {names[tool.name] for tool in usable if matches(tool.name, approve)}
    return list(tools.values()), left_out, to_approve


def _tool(tool: Any, plain: str, invoke: Invoke) -> Tool[..., Any]:
    schema = clean_schema(tool.input_schema)
    if len(repr(schema)) > MAX_SCHEMA:
        raise ValueError(f"the schema of {plain!r} must be shorter than {MAX_SCHEMA} characters")

    promised = _promised(tool, plain)

    async def fn(arguments: dict[str, Any], run: Run[Any]) -> ToolResult | ToolFailure:
        result = await invoke(tool.name, arguments, run)
        if promised is not None and isinstance(result, ToolResult):
            return _check_result(promised, result)
        return result

    about = description_of(tool.description, tool.name, plain)
    # The server has its own time limit. Its hints are untrusted, and relax nothing here.
    return Tool.from_schema(plain, about, schema, fn, timeout=inf)


def _promised(tool: Any, plain: str) -> Tool[..., Any] | None:
    """Return a tool that validates structured data. The SDK's own check has no size limit."""
    if tool.output_schema is None or tool.output_schema.get("type") != "object":
        return None
    if len(repr(tool.output_schema)) > MAX_SCHEMA:
        raise ValueError(f"the output schema of {plain!r} must be shorter than {MAX_SCHEMA}")
    return Tool.from_schema(plain, "", tool.output_schema, _nothing)


async def _nothing(arguments: dict[str, Any]) -> None: ...


def _check_result(promised: Tool[..., Any], result: ToolResult) -> ToolResult | ToolFailure:
    """Return the result if it matches the server's schema, otherwise a failure."""
    value: Any = result.value
    if not isinstance(value, dict):
        words = "the server sent no structured data, although its own schema requires it"
        return ToolFailure(words, type="MCPServerError")
    try:
        promised.bind(cast("dict[str, Any]", value))
    except ToolArgumentsError as exc:
        words = f"the server's data does not match its own schema: {'; '.join(exc.issues)}"
        return ToolFailure(short(words), type="MCPServerError")
    return result


# ── names and texts ─────────────────────────────────────────────────────────────────────────


def mapped(names: list[str], prefix: str) -> dict[str, str]:
    """Map the server's names to valid, distinct names for the model."""
    out: dict[str, str] = {}
    results: set[str] = set()
    for name in dict.fromkeys(names):  # a server may list a tool twice
        plain = _OTHER.sub("_", prefix + name)
        if len(plain) > MAX_NAME or plain in results or not name:
            mark = sha256(name.encode("utf-8", "replace")).hexdigest()[:8]
            plain = f"{plain[: MAX_NAME - 9]}_{mark}"
        results.add(plain)
        out[name] = plain
    return out


def clean(text: object, limit: int = MAX_DESCRIPTION) -> str:
    """Remove invisible characters from an untrusted text, and shorten it."""
    if not isinstance(text, str):
        return ""
    visible = "".join(
        char
        for char in text[: limit * 2]
        if char in "\n\t" or category(char) not in _HIDDEN_CATEGORIES
    )
    return visible if len(visible) <= limit else f"{visible[: limit - 1]}…"


def clean_schema(schema: Any) -> Any:
    """Return a schema with cleaned titles and descriptions."""
    if isinstance(schema, list):
        return [clean_schema(value) for value in schema]  # pyright: ignore[reportUnknownVariableType]
    if not isinstance(schema, dict):
        return schema
    return {
        key: clean(value, MAX_SCHEMA_TEXT)
        if key in ("title", "description") and isinstance(value, str)
        else clean_schema(value)
        for key, value in schema.items()  # pyright: ignore[reportUnknownVariableType]
    }


def description_of(description: object, name: str, plain: str) -> str:
    """Return the description for the model; add the original name if the tool was renamed."""
    text = clean(description)
    if plain.endswith(name):
        return text
    original = f"The server calls it {clean(name, 128)!r}."
    return f"{text}\n\n{original}" if text else original
