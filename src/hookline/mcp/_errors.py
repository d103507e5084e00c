"""The one error of this door, and the import of the SDK."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from hookline.errors import HooklineError, UsageError

MAX_TEXT = 2_000
"""Characters of a server's error that are told on."""


class MCPServerError(HooklineError):
    """An MCP server that cannot be reached, or that has broken the protocol.

    What to do: see whether its command or address is right and whether it runs by itself; its
    stderr is in the log of `hookline.mcp` at DEBUG.
    """


def sdk(module: str) -> Any:
    """A module of the official SDK; UsageError names the install line where it is missing."""
    try:
        return import_module(module)
    except ImportError as exc:
        raise UsageError(f'hookline.mcp needs {exc.name}: pip install "hookline[mcp]"') from exc


def short(text: object) -> str:
    """A text of a server's, bounded."""
    words = str(text)
    return words if len(words) <= MAX_TEXT else f"{words[:MAX_TEXT]}…"


def reason(exc: BaseException) -> str:
    """Why something failed: of a group of exceptions, the first that says something."""
    while isinstance(exc, BaseExceptionGroup):
        group: BaseExceptionGroup[BaseException] = exc  # pyright: ignore[reportUnknownVariableType]
        exc = group.exceptions[0]
    return short(f"{type(exc).__name__}: {exc}" if str(exc) else type(exc).__name__)
