"""Plugins: the argument of `agent.use()`, and how everything that a plugin added is removed.

A plugin is a function that takes the agent, or an object with hooks, tools and scopes. While the
function runs, each registration made from its context is noted, even through the agent's bus or
another plugin. A plugin that raises leaves nothing behind. The async cleanup of a plugin runs in
one task, so that it runs only once, no matter how many callers request it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Generator, Iterable, Sequence
from contextlib import contextmanager
from functools import partial
from inspect import isawaitable
from typing import Any, Protocol, Self, TypeAlias, TypeVar, cast

from hookline._base.cancel import no_cancellation_of_its_own
from hookline._base.errors import UsageError
from hookline._base.log import log_throw
from hookline._hooks.declared import HasHooks, HookDef, hooks_of
from hookline._hooks.registration import OWNER
from hookline._tools.callables import is_async_callable
from hookline._tools.scopes import Scope
from hookline._tools.tool import ToolLike

A = TypeVar("A", contravariant=True)


class SetUp(Protocol[A]):
    """A plugin function, sync or async, which may return a cleanup function."""

    def __call__(self, agent: A, /) -> object: ...


class HasTools(Protocol):
    """A plugin that has tools; its `hooks` and `scopes` are used too."""

    @property
    def tools(self) -> Iterable[ToolLike]: ...


class HasScopes(Protocol):
    """A plugin that has scopes; its `hooks` and `tools` are used too."""

    @property
    def scopes(self) -> Iterable[Scope]: ...


PluginObject: TypeAlias = HasHooks | HasTools | HasScopes
"""An object that a plugin can be: it has hooks, tools or scopes."""


class Uninstall:
    """A handle that removes everything that a plugin has added. Further calls do nothing.

    Calling the handle, or leaving its `with` block, removes hooks, tools and scopes at once. Async
    cleanup starts in a separate task; an exception in the cleanup is logged. `aclose()`, or leaving
    an `async with` block, waits for the cleanup and raises its exception. If no event loop is
    running, async cleanup starts only in `aclose()`.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        """The plugin's name."""
        self.origin = f"plugin {name}"
        """The origin of the plugin's hooks, as `hooks()` shows it."""
        self._undo: list[Callable[[], object]] = []
        self._cleanups: list[Callable[[], object]] = []  # to be awaited, in reverse order
        self._inner: list[Uninstall] = []
        self._closing: asyncio.Task[None] | None = None
        self._is_awaited = False  # whether a caller gets the exceptions of the cleanup
        self._raised: list[Exception] = []

    def note(self, dispose: Callable[[], object], /) -> None:
        """Register a function that removes something that the plugin has added."""
        self._undo.append(dispose)
        if isinstance(dispose, Uninstall):
            self._inner.append(dispose)

    def clean_up(self, cleanup: Callable[[], object]) -> None:
        """Register a sync or async function that is called when the plugin is removed."""
        (self._cleanups if is_async_callable(cleanup) else self._undo).append(cleanup)

    @property
    def is_done(self) -> bool:
        """True once everything has been removed and the cleanup has ended."""
        busy = self._undo or self._cleanups or (self._closing and not self._closing.done())
        return not busy and all(inner.is_done for inner in self._inner)

    def __call__(self) -> None:
        """Undo all steps in reverse order; the first exception is raised at the end."""
        raised: list[BaseException] = []
        while self._undo:
            try:
                pending: Any = self._undo.pop()()
                if isawaitable(pending):  # a sync cleanup function that returned a coroutine
                    self._cleanups.append(partial(_await_work, pending))
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
            return  # no event loop: aclose() must be called for the cleanup
        self._closing = loop.create_task(self._close(), name=f"hookline: {self.origin} closes")

    async def _close(self) -> None:
        name = f"the cleanup of {self.origin}"
        while self._cleanups:
            try:
                with no_cancellation_of_its_own(UsageError, name, "raise another exception"):
                    done: Any = self._cleanups.pop()()
                    if isawaitable(done):
                        await done
            except Exception as exc:
                if self._is_awaited:
                    self._raised.append(exc)
                else:
                    log_throw(f"{self.origin} raised during its cleanup", exc)

    def _await(self) -> None:
        """Keep the exceptions of the cleanup for a caller, also those of inner plugins."""
        self._is_awaited = True
        for inner in self._inner:
            inner._await()

    async def aclose(self) -> None:
        """Remove everything and wait for the cleanup; raises exceptions from the cleanup."""
        raised: list[Exception] = []
        self._await()  # first, because undoing starts the cleanup of inner plugins
        try:
            self()
        except Exception as exc:
            raised.append(exc)
        if self._closing is not None:
            # The cleanup continues if the caller is cancelled; a second aclose() waits for it.
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
    """Close these plugins in reverse order; raises the first exception at the end."""
    raised: list[Exception] = []
    for plugin in reversed(list(plugins)):
        try:
            await plugin.aclose()
        except Exception as exc:
            raised.append(exc)
    if raised:
        raise raised[0]


@contextmanager
def collecting(plugin: Uninstall) -> Generator[None]:
    """Note everything added from this context for the plugin, and for the plugin that uses it."""
    outer = OWNER.get()
    token = OWNER.set(plugin)
    try:
        yield
    except BaseException:
        try:
            plugin()
        except Exception as exc:
            log_throw(f"{plugin.origin} raised while it was removed", exc)
        raise
    finally:
        OWNER.reset(token)
    if outer is not None:  # removed together with the plugin that uses it
        outer.note(plugin)


async def set_up(plugin: Callable[[Any], object], agent: object, undo: Uninstall) -> None:
    """Call a plugin's function; the function that it returns is called first on removal."""
    cleanup: Any = plugin(agent)
    if isawaitable(cleanup):
        cleanup = await cleanup
    if cleanup is None:
        return
    if not callable(cleanup):
        raise UsageError(
            f"plugin {undo.name!r} returned a {type(cleanup).__name__}; return nothing, "
            "or a cleanup function, sync or async"
        )
    undo.clean_up(cleanup)


async def _await_work(work: Awaitable[Any]) -> Any:
    return await work


def brings(plugin: object) -> bool:
    """Return whether an object has hooks, tools or scopes, so that it is not called."""
    if any(hasattr(plugin, part) for part in ("hooks", "tools", "scopes")):
        return True
    return not isinstance(plugin, type) and bool(hooks_of(plugin))


def name_of(plugin: object) -> str:
    """The plugin's name in `hooks()`: its `name`, or the name of its function or class."""
    if isinstance(plugin, HookDef):
        return plugin.id or plugin.name
    if isinstance(plugin, (list, tuple)):
        hooks = cast("Sequence[object]", plugin)
        return name_of(hooks[0]) if hooks else "hooks"
    name: Any = getattr(plugin, "name", None) or getattr(plugin, "__qualname__", None)
    return name if isinstance(name, str) else type(plugin).__qualname__
