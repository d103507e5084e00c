"""Import the third-party packages of the extra `web` when they are used."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from hookline.errors import UsageError


def needs(module: str) -> Any:
    """Import a module of the extra; raises UsageError with the command that installs it."""
    try:
        return import_module(module)
    except ImportError as exc:
        top = module.partition(".")[0]
        raise UsageError(
            f"this needs {top}, which is not installed: pip install 'hookline[web]'"
        ) from exc
