"""Import the packages of an engine, which may not be installed."""

from __future__ import annotations

from importlib import import_module
from typing import Any, Final

from hookline.errors import UsageError

_EXTRAS: Final = {
    "restate": "restate",
    "hypercorn": "restate",
    "httpx": "restate",
    "asyncpg": "postgres",
}


def needed(module: str) -> Any:
    """Import a module of an extra; raises UsageError with the command that installs it."""
    try:
        return import_module(module)
    except ModuleNotFoundError as exc:
        extra = _EXTRAS[module.partition(".")[0]]
        raise UsageError(
            f"hookline.durable needs {exc.name}, which is not installed: "
            f"pip install 'hookline[{extra}]'"
        ) from exc
