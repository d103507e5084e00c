"""Plugins: what `agent.use()` takes, and how all that one has added is taken back.

A plugin is a function of the agent, or something that holds hooks, tools and scopes. While its
function runs, each registration made from its context is noted, also by way of the agent's bus or
of another plugin; a plugin that throws leaves nothing behind.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Generator, Iterable, Sequence
from contextlib import contextmanager
from inspect import isawaitable
from typing import Any, Protocol, Self, TypeAlias, TypeVar, cast

from hookline._base.errors import UsageError
from hookline._base.log import log_throw
from hookline._hooks.declared import HasHooks, HookDef, hooks_of
from hookline._hooks.registration import OWNER
from hookline._model.scopes import Scope
from hookline._model.tool import ToolLike, is_async_callable

A = TypeVar("A", contravariant=True)


class SetUp(Protocol[A]):
    """A plugin that is a function: sync or async; a function that it returns cleans up."""

    def __call__(self, agent: A, /) -> object: ...


class HasTools(Protocol):
    """A plugin that brings tools; `hooks` and `scopes` are looked at too."""

    @property
    def tools(self) -> Iterable[ToolLike]: ...


class HasScopes(Protocol):
    """A plugin that brings scopes; `hooks` and `tools` are looked at too."""

    @property
    def scopes(self) -> Iterable[Scope]: ...


PluginObject: TypeAlias = HasHooks | HasTools | HasScopes


class Uninstall:
    """Takes back all that a plugin has added. Twice is harmless; it also works in a `with`."""

    def __init__(self, name: str) -> None:
        self.name = name
        """The plugin's name."""
        self.origin = f"plugin {name}"
        """What `hooks()` shows as the origin of its hooks."""
        self._undo: list[Callable[[], object]] = []

    def note(self, dispose: Callable[[], object], /) -> None:
        """Something was added, and this takes it back."""
        self._undo.append(dispose)

    def __call__(self) -> None:
        """Last in, first out; what one step raises is raised when all are done."""
        raised: list[BaseException] = []
        while self._undo:
            try:
                self._undo.pop()()
            except Exception as exc:
                raised.append(exc)
        if raised:
            raise raised[0]

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self()

    def __repr__(self) -> str:
        return f"<Uninstall of {self.origin}>"


@contextmanager
def noted(plugin: Uninstall) -> Generator[None]:
    """What is added from this context belongs to the plugin, and to the one that uses it."""
    outer = OWNER.get()
    token = OWNER.set(plugin)
    try:
        yield
    except BaseException:
        try:
            plugin()
        except Exception as exc:
            log_throw(f"{plugin.origin} raised while it was taken back", exc)
        raise
    finally:
        OWNER.reset(token)
    if outer is not None:
        outer.note(plugin)


async def set_up(plugin: Callable[[Any], object], agent: object, undo: Uninstall) -> None:
    """Call a plugin's function; what it returns to be called at the end is called first."""
    cleanup: Any = plugin(agent)
    if isawaitable(cleanup):
        cleanup = await _awaited(cleanup)
    if cleanup is None:
        return
    if not callable(cleanup) or is_async_callable(cleanup):
        raise UsageError(
            f"plugin {undo.name!r} returned a {type(cleanup).__name__}: return nothing, "
            "or a sync function that cleans up"
        )
    undo.note(cleanup)


async def _awaited(work: Awaitable[Any]) -> Any:
    return await work


def brings(plugin: object) -> bool:
    """True for an object that holds what an agent can take, so that it is not called."""
    if any(hasattr(plugin, part) for part in ("hooks", "tools", "scopes")):
        return True
    return not isinstance(plugin, type) and bool(hooks_of(plugin))


def name_of(plugin: object) -> str:
    """How a plugin is called in `hooks()`: its `name`, or that of its function or class."""
    if isinstance(plugin, HookDef):
        return plugin.id or plugin.name
    if isinstance(plugin, (list, tuple)):
        hooks = cast("Sequence[object]", plugin)
        return name_of(hooks[0]) if hooks else "hooks"
    name: Any = getattr(plugin, "name", None) or getattr(plugin, "__qualname__", None)
    return name if isinstance(name, str) else type(plugin).__qualname__
