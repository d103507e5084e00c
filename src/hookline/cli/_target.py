"""Read the values of a command line: an agent or deps at `module:attribute`, stores, and numbers.

Any problem with a target is a UsageError.
"""

from __future__ import annotations

import sys
from collections.abc import AsyncGenerator, Callable, Coroutine, Sequence
from contextlib import asynccontextmanager, suppress
from importlib import import_module
from inspect import isawaitable
from pathlib import Path
from typing import Any, Final, NamedTuple, TypeAlias

from hookline import Agent, Store
from hookline.errors import UsageError
from hookline.storage import resolve_store

EXAMPLE: Final = "`app:agent` is the variable `agent` of app.py in this folder"
MakeDeps: TypeAlias = Callable[[], Coroutine[Any, Any, Any]]


class ModuleFailedError(UsageError):
    """The module raised during its import, or the callable raised."""


def whole(_: Any, tokens: Sequence[Any]) -> int:
    """Read a whole number of at least 0; cyclopts alone would cut 1.5 to 1."""
    text: str = tokens[0].value
    with suppress(ValueError):
        if 0 <= (number := int(text)) <= sys.maxsize:
            return number
    raise ValueError(f"{tokens[0].keyword}={text!r} must be a whole number of 0 to {sys.maxsize:,}")


class Located(NamedTuple):
    """What is at the target of a command line."""

    target: str
    value: Any

    async def agent(self) -> Agent[Any]:
        """Return the agent, which may have to be awaited; raises UsageError for anything else."""
        value = await self.value if isawaitable(self.value) else self.value
        if not isinstance(value, Agent):
            raise UsageError(f"{self.target} must be an Agent, not a {type(value).__name__}")
        return value  # pyright: ignore[reportUnknownVariableType]


def locate(target: str) -> Located:
    """Locate the agent at `module:attribute`; a function there is called. Raises UsageError."""
    value = object_at(target, _agents)
    if isinstance(value, Agent) or not callable(value):
        return Located(target, value)
    try:
        return Located(target, value())
    except Exception as exc:
        why = "the function is called without arguments, and must return an Agent"
        raise _failed(target, exc, why) from exc


def deps_at(target: str | None) -> MakeDeps:
    """Return an async function that returns the deps of one chat: None without a target.

    A callable at `module:attribute` is called for each chat. Any other object is the deps of every
    chat. Raises UsageError if there is no such object. The function raises UsageError if the
    callable fails.
    """
    try:
        value = None if target is None else object_at(target)
    except UsageError as exc:
        exc.add_note(f"named by --deps {target}")
        raise

    async def make() -> Any:
        if not callable(value):
            return value
        try:
            deps = value()
            return await deps if isawaitable(deps) else deps
        except Exception as exc:
            why = "the function is called for each chat, without arguments"
            raise _failed(f"--deps {target}", exc, why) from exc

    return make


def object_at(
    target: str, others: Callable[[str], str] = lambda module: "variables or functions"
) -> Any:
    """Return the object at `module:attribute`; raises UsageError that lists `others`."""
    module_name, _, path = target.partition(":")
    if not module_name or not path:
        raise UsageError(f"{target!r} must be module:attribute; {EXAMPLE}")
    if module_name.endswith(".py"):
        right = module_name.removesuffix(".py").replace("/", ".").lstrip(".")
        raise UsageError(f"{target!r} must name a module, not a file: try {right}:{path}")
    value: Any = _module(module_name)
    for name in path.split("."):
        try:
            value = getattr(value, name)
        except AttributeError:
            raise UsageError(
                f"module {module_name!r} has no {path!r}; name one of its {others(module_name)}"
            ) from None
    return value


@asynccontextmanager
async def store_at(url: str) -> AsyncGenerator[Store]:
    """Open the store at a URL, and close it at the end of the block. Raises UsageError."""
    store = resolve_store(url)
    try:
        yield store
    finally:
        closing: Any = getattr(store, "aclose", None)
        if closing is not None:
            await closing()


def _failed(target: str, exc: Exception, why: str) -> ModuleFailedError:
    return ModuleFailedError(f"{target}() raised {type(exc).__name__}: {exc}; {why}")


def _module(name: str) -> Any:
    folder = str(Path.cwd())
    if folder not in sys.path:
        sys.path.insert(0, folder)
    try:
        return import_module(name)
    except ModuleNotFoundError as exc:
        if exc.name is not None and f"{name}.".startswith(f"{exc.name}."):
            raise UsageError(
                f"there is no module {name!r} in {folder}; "
                f"start the command in the module's folder: {EXAMPLE}"
            ) from None
        raise ModuleFailedError(
            f"module {name!r} needs {exc.name}, which is not installed"
        ) from exc
    except UsageError:
        raise
    except Exception as exc:
        raise ModuleFailedError(
            f"module {name!r} raised {type(exc).__name__} during its import: {exc}"
        ) from exc


def _agents(module_name: str) -> str:
    """List the agents of a module, for an error message."""
    variables = vars(sys.modules[module_name])
    names = sorted(name for name, value in variables.items() if isinstance(value, Agent))
    return f"agents: {', '.join(f'{module_name}:{name}' for name in names)}" if names else "agents"
