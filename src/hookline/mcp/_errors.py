"""The error class of `hookline.mcp`, and the import of the SDK."""

from __future__ import annotations

from contextvars import ContextVar
from importlib import import_module
from typing import Any, Final

from hookline.errors import HooklineError, UsageError

MAX_TEXT = 2_000
"""The most characters of a server's error to pass on."""

RAISED: Final[ContextVar[list[Exception] | None]] = ContextVar("hookline_mcp_raised", default=None)
"""Collects what the user's own login has raised in the requests of a call or a connection."""


class MCPServerError(HooklineError):
    """An MCP server is not reachable, or has violated the protocol.

    What to do: check the server's command or address, and whether the server runs on its own. If
    the server is a program that has exited, the error quotes the last line of its stderr. The whole
    stderr is in the log of `hookline.mcp` at DEBUG.
    """


def sdk(module: str) -> Any:
    """Import a module of the official SDK; raises UsageError if it is not installed."""
    try:
        return import_module(module)
    except ImportError as exc:
        raise UsageError(f'hookline.mcp needs {exc.name}: pip install "hookline[mcp]"') from exc


def short(text: object) -> str:
    """Shorten a text from a server."""
    words = str(text)
    return words if len(words) <= MAX_TEXT else f"{words[:MAX_TEXT]}…"


def reason(exc: BaseException) -> str:
    """Return the reason of a failure; for an exception group, the first exception with a text."""
    while isinstance(exc, BaseExceptionGroup):
        group: BaseExceptionGroup[BaseException] = exc  # pyright: ignore[reportUnknownVariableType]
        exc = group.exceptions[0]
    return short(f"{type(exc).__name__}: {exc}" if str(exc) else type(exc).__name__)
