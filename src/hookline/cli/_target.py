"""`module:attribute` → the agent that is meant; what is wrong with it is a UsageError."""

from __future__ import annotations

import sys
from importlib import import_module
from inspect import isawaitable
from pathlib import Path
from typing import Any, Final

from hookline import Agent
from hookline.errors import UsageError

EXAMPLE: Final = "`app:agent` is the variable `agent` of app.py in this folder"


class ModuleFailedError(UsageError):
    """The module is there, and raised while it was imported; or the function did."""


def locate(target: str) -> Any:
    """What stands at `module:attribute`; a function there is called. Raises UsageError.

    What it returns may be awaitable: `settled` awaits it, where a loop runs.
    """
    module_name, _, path = target.partition(":")
    if not module_name or not path:
        raise UsageError(f"{target!r} must be module:attribute; {EXAMPLE}")
    if module_name.endswith(".py"):
        right = module_name.removesuffix(".py").replace("/", ".").lstrip(".")
        raise UsageError(f"{target!r} must name a module, not a file: try {right}:{path}")
    found: Any = _module(module_name)
    for name in path.split("."):
        try:
            found = getattr(found, name)
        except AttributeError:
            raise UsageError(
                f"module {module_name!r} has no {path!r}; "
                f"name one of its agents{_agents(module_name)}"
            ) from None
    if isinstance(found, Agent) or not callable(found):
        return found  # pyright: ignore[reportUnknownVariableType]
    try:
        return found()
    except Exception as exc:
        raise ModuleFailedError(
            f"{target}() raised {type(exc).__name__}: {exc}; it is called without arguments, and "
            "must return an Agent"
        ) from exc


async def settled(found: Any, target: str) -> Agent[Any]:
    """The agent that was located; raises UsageError where it is none."""
    if isawaitable(found):
        found = await found
    if not isinstance(found, Agent):
        raise UsageError(f"{target} is a {type(found).__name__}, and must be an Agent")
    return found  # pyright: ignore[reportUnknownVariableType]


def _module(name: str) -> Any:
    folder = str(Path.cwd())
    if folder not in sys.path:
        sys.path.insert(0, folder)
    try:
        return import_module(name)
    except ModuleNotFoundError as exc:
        if exc.name is not None and f"{name}.".startswith(f"{exc.name}."):
            raise UsageError(
                f"there is no module {name!r} here ({folder}); "
                f"start it where the file is: {EXAMPLE}"
            ) from None
        raise ModuleFailedError(f"module {name!r} needs {exc.name}, which is not there") from exc
    except UsageError:
        raise
    except Exception as exc:
        raise ModuleFailedError(
            f"module {name!r} raised {type(exc).__name__} when it was imported: {exc}"
        ) from exc


def _agents(module_name: str) -> str:
    """Which agents a module has, for whoever has named none of them."""
    there = vars(sys.modules[module_name])
    names = sorted(name for name, value in there.items() if isinstance(value, Agent))
    return f": {', '.join(f'{module_name}:{name}' for name in names)}" if names else ""
