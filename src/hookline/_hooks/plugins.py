"""Plugins: what `agent.use()` takes, and how all that one has added is taken back.

A plugin is a function of the agent, or something that holds hooks, tools and scopes. While its
function runs, each registration made from its context is noted, also by way of the agent's bus or
of another plugin; a plugin that raises leaves nothing behind. What cleans up asynchronously runs
in one task for each plugin, whoever asks for it, so that it runs once.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Generator, Iterable, Sequence
from contextlib import contextmanager
from functools import partial
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
    """A plugin that is a function, sync or async, and may return one that cleans up."""

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
    """Takes back all that a plugin has added. Twice is harmless.

    Calling it, or leaving a `with`, removes hooks, tools and scopes at once, and starts what cleans
    up asynchronously in a task of the plugin's own; an exception there is logged. `aclose()`, or
    leaving an `async with`, waits for that task and raises what it raised. Where no event loop
    runs, the asynchronous part waits for `aclose()`.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        """The plugin's name."""
        self.origin = f"plugin {name}"
        """What `hooks()` shows as the origin of its hooks."""
        self._undo: list[Callable[[], object]] = []
        self._cleanups: list[Callable[[], object]] = []  # to be awaited, last in, first out
        self._inner: list[Uninstall] = []
        self._closing: asyncio.Task[None] | None = None
        self._awaited = False  # somebody is told what its closing raises
        self._raised: list[Exception] = []

    def note(self, dispose: Callable[[], object], /) -> None:
        """Something was added, and this takes it back."""
        self._undo.append(dispose)
        if isinstance(dispose, Uninstall):
            self._inner.append(dispose)

    def clean_up(self, cleanup: Callable[[], object]) -> None:
        """Call this, sync or async, when the plugin goes."""
        (self._cleanups if is_async_callable(cleanup) else self._undo).append(cleanup)

    @property
    def gone(self) -> bool:
        """True once nothing of it is left, its closing included."""
        busy = self._undo or self._cleanups or (self._closing and not self._closing.done())
        return not busy and all(each.gone for each in self._inner)

    def __call__(self) -> None:
        """Last in, first out; what one step raises is raised when all are done."""
        raised: list[BaseException] = []
        while self._undo:
            try:
                left: Any = self._undo.pop()()
                if isawaitable(left):
                    self._cleanups.append(partial(_awaited, left))
            except Exception as exc:
                raised.append(exc)
        self._start()
        if raised:
            raise raised[0]

    def _start(self) -> None:
        if not self._cleanups or self._closing is not None:
            return
        try:
            loop = asyncio.get_running_loop()
        except RuntimeError:
            return  # aclose() will do it
        self._closing = loop.create_task(self._close(), name=f"hookline: {self.origin} closes")

    async def _close(self) -> None:
        while self._cleanups:
            try:
                done: Any = self._cleanups.pop()()
                if isawaitable(done):
                    await done
            except Exception as exc:
                if self._awaited:
                    self._raised.append(exc)
                else:
                    log_throw(f"{self.origin} raised while it was closed", exc)

    async def aclose(self) -> None:
        """Take everything back and wait until it has cleaned up; raises what that raised."""
        raised: list[Exception] = []
        self._awaited = True
        try:
            self()
        except Exception as exc:
            raised.append(exc)
        if self._closing is not None:
            await asyncio.shield(self._closing)
        try:
            await close_all(self._inner)
        except Exception as exc:
            raised.append(exc)
        raised += self._raised
        self._raised = []
        if raised:
            raise raised[0]

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self.aclose()

    def __repr__(self) -> str:
        return f"<Uninstall of {self.origin}>"


async def close_all(plugins: Iterable[Uninstall]) -> None:
    """Close these plugins, the last first; raises the first exception when all are done."""
    raised: list[Exception] = []
    for plugin in reversed(list(plugins)):
        try:
            await plugin.aclose()
        except Exception as exc:
            raised.append(exc)
    if raised:
        raise raised[0]


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
    """Call a plugin's function; a sync function that it returns is called first when it goes."""
    cleanup: Any = plugin(agent)
    if isawaitable(cleanup):
        cleanup = await _awaited(cleanup)
    if cleanup is None:
        return
    if not callable(cleanup):
        raise UsageError(
            f"plugin {undo.name!r} returned a {type(cleanup).__name__}: return nothing, "
            "or a function that cleans up, sync or async"
        )
    undo.clean_up(cleanup)


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
