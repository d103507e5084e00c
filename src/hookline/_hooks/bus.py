"""The bus: where hooks are registered and where events go.

A registration is a `Hook` in a sorted tuple per point. Tuples are replaced and never changed, so a
dispatch runs the hooks that were registered when it started. A chat looks at a `View` of one or
more buses: one attribute per point, an empty tuple where nobody listens. Buses keep their views up
to date, so looking costs an attribute and a bus without hooks costs nothing. How hooks are called
is `_hooks/call_rules.py`.
"""

from __future__ import annotations

import os
import threading
import weakref
from collections.abc import Awaitable, Callable, Iterable
from typing import TYPE_CHECKING, Any, Final, Generic, TypeAlias, TypeVar, cast

from hookline._base.errors import HookOptionError, UnknownHookError
from hookline._base.run import DepsT
from hookline._hooks.call_rules import (
    OUTSIDE,
    Firing,
    OutsideChat,
    intercept,
    notify,
)
from hookline._hooks.on_hook import watcher
from hookline._hooks.points import TABLE, Interceptor, PointSpec, Wrapper, spec_of
from hookline._hooks.registration import (
    Disposer,
    Hook,
    HookInfo,
    check_names,
    make_hook,
)
from hookline._hooks.subscribe import Overflow, Subscription
from hookline._hooks.typed import AddHook, HookDecorator
from hookline._hooks.wrappers import wrap

E = TypeVar("E")
R = TypeVar("R")

Key: TypeAlias = str | type
Keep: TypeAlias = Callable[[Hook], bool]
EMPTY: Final[tuple[Hook, ...]] = ()

# Held while registrations change and views follow. There is one for all buses: a view has several,
# which change in different threads. A fork waits for it, or a child whose parent was just adding a
# hook in another thread would inherit a lock that nobody releases.
_lock: Final = threading.RLock()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(
        before=_lock.acquire, after_in_parent=_lock.release, after_in_child=_lock.release
    )


def _sorted(hooks: Iterable[Hook]) -> tuple[Hook, ...]:
    return tuple(sorted(hooks, key=lambda hook: -hook.options.priority))


class View:
    """The hooks of one chat, as attributes named like the points, and who gets its events.

    A source is a bus and which of its hooks run: None for all.
    """

    def __init__(self, *sources: tuple[HookBus[Any], Keep | None]) -> None:
        self.sources = sources
        self.own: dict[type, tuple[Hook, ...]] = {}  # of points that users declared
        self.__dict__.update(dict.fromkeys(TABLE, EMPTY))
        with _lock:
            for bus, _ in sources:
                bus.watch(self)
                for key in bus.used():
                    self.refresh(key)
            self.refresh_subscribers()

    def refresh_subscribers(self) -> None:
        """Somebody has subscribed at one of the buses, or has left."""
        buses = dict.fromkeys(bus for bus, _ in self.sources if bus.subscribers)
        self.subscribed = tuple(buses)
        """The buses that have subscribers."""

    def publish(self, event: object) -> None:
        """Hand an event to the subscribers of all buses; never waits for any of them."""
        for bus in self.subscribed:
            bus.publish(event)

    def refresh(self, key: Key) -> None:
        """The hooks of one point have changed."""
        merged: dict[object, Hook] = {}
        for bus, keep in self.sources:
            for hook in bus.standing(key):
                if keep is None or keep(hook):
                    # A bus may be a source twice, a definition may be registered twice: each
                    # runs once, at its first place.
                    merged.setdefault(hook.definition or hook, hook)
        if isinstance(key, str):
            self.__dict__[key] = _sorted(merged.values())
        else:
            self.own[key] = _sorted(merged.values())

    if TYPE_CHECKING:
        onHook: tuple[Hook, ...]

        def __getattr__(self, name: str) -> tuple[Hook, ...]: ...


class HookBus(Generic[DepsT]):
    """Hooks and subscribers. Works without an agent, with points of one's own.

    `notify`, `intercept` and `wrap` fire a point that is declared as a class; the points of a
    chat are fired by the chat.
    """

    origin = "add_hook"
    """The origin of what is added here, as `hooks()` shows it."""

    def __init__(self) -> None:
        self._hooks: dict[Key, tuple[Hook, ...]] = {}
        self._views: weakref.WeakSet[View] = weakref.WeakSet()
        self.subscribers: tuple[Subscription[Any], ...] = ()
        """Who gets the events, in no order that counts."""
        self.view = View((self, None))
        """What a chat on this bus looks at: the hooks of each point."""

    # ── registration ────────────────────────────────────────────────────────────────────────

    @property
    def add_hook(self) -> AddHook[DepsT]:
        """Add a hook; returns its disposer. docs/hooks.md lists points and options."""
        return cast("AddHook[DepsT]", self._add)

    @property
    def hook(self) -> HookDecorator[DepsT]:
        """The decorator form of `add_hook`."""
        return cast("HookDecorator[DepsT]", self._decorate)

    def _add(self, point: object, hook: Callable[..., Any], **options: Any) -> Disposer:
        return self.enter(make_hook(point, hook, options, self.origin))

    def _decorate(self, point: object, **options: Any) -> Callable[[Any], Any]:
        check_names(point, options)

        def enter(fn: Any) -> Any:
            self._add(point, fn, **options)
            return fn

        return enter

    def enter(self, hook: Hook) -> Disposer:
        """Register a hook that `make_hook` made."""
        key = hook.spec.key
        with _lock:
            self._hooks[key] = _sorted((*self._hooks.get(key, EMPTY), hook))
            self._refresh(key)
        return Disposer(self._remove, hook)

    def _remove(self, hook: Hook) -> None:
        hook.alive = False
        key = hook.spec.key
        with _lock:
            known = self._hooks.get(key, EMPTY)
            if any(each is hook for each in known):
                self._hooks[key] = tuple(each for each in known if each is not hook)
                self._refresh(key)

    def _refresh(self, key: Key) -> None:
        for view in list(self._views):
            view.refresh(key)

    def sibling(self) -> HookBus[Any]:
        """An empty bus of the same kind, for the hooks of one chat."""
        return HookBus()

    def all_hooks(self) -> list[Hook]:
        """Every registration."""
        return [hook for hooks in self._hooks.values() for hook in hooks]

    def used(self) -> tuple[Key, ...]:
        """The points that have had a hook."""
        return tuple(self._hooks)

    def watch(self, view: View) -> None:
        """Keep a view up to date for as long as it lives."""
        self._views.add(view)

    def standing(self, key: Key) -> tuple[Hook, ...]:
        """The hooks that a dispatch of this point would run now, in order."""
        return self._hooks.get(key, EMPTY)

    def registered(self, key: Key) -> tuple[Hook, ...]:
        """The registrations of this point, in order."""
        return self._hooks.get(key, EMPTY)

    def hooks(self, point: object = None) -> tuple[HookInfo, ...]:
        """All registrations in firing order, of one point or of all."""
        return listed((self,), point)

    def clear(self, point: object = None) -> None:
        """Remove all hooks, of one point or of all."""
        keys = [spec_of(point).key] if point is not None else list(self._hooks)
        for key in keys:
            for hook in self._hooks.get(key, EMPTY):
                self._remove(hook)

    # ── points of one's own ─────────────────────────────────────────────────────────────────

    def _conduct(self) -> Firing:
        return OutsideChat(watcher(self.view, None)) if self.view.onHook else OUTSIDE

    async def notify(self, ctx: Any) -> None:
        """Fire an observer point."""
        point = ctx.__class__
        if point not in _observers:  # asked once for each point, since most are not heard
            _observers.add(_own(ctx, "observer").context)
        hooks = self.view.own.get(point)
        if hooks:
            await notify(hooks, ctx, self._conduct())

    async def intercept(self, ctx: Interceptor[R]) -> R:
        """Fire an interceptor point; gives its payload as the hooks left it."""
        spec = _own(ctx, "interceptor")
        hooks = self.view.own.get(spec.context, EMPTY)
        last, end, _ = await intercept(hooks, ctx, self._conduct())
        if end is not None:
            return cast("R", end)
        return cast("R", getattr(last, spec.payload))

    async def wrap(self, ctx: Wrapper[R], inner: Callable[[Any], Awaitable[R]]) -> R:
        """Fire a wrapper point around `inner`, which gets the payload."""
        hooks = self.view.own.get(_own(ctx, "wrapper").context, EMPTY)
        return await wrap(hooks, ctx, inner, self._conduct())

    # ── events ──────────────────────────────────────────────────────────────────────────────

    def subscribe(
        self, *types: type[E], size: int = 1024, overflow: Overflow = "close"
    ) -> Subscription[E]:
        """An iterator over the published events of these types (none: all).

        It holds at most `size`; `overflow` says what happens beyond: "close" ends it with
        SubscriptionOverflowError, "drop_oldest" drops and counts.
        """
        subscription: Subscription[E] = Subscription(types, size, overflow, self._leave)
        with _lock:
            self._set_subscribers((*self.subscribers, subscription))
        return subscription

    def _leave(self, subscription: Subscription[Any]) -> None:
        with _lock:
            self._set_subscribers(
                tuple(each for each in self.subscribers if each is not subscription)
            )

    def _set_subscribers(self, subscribers: tuple[Subscription[Any], ...]) -> None:
        self.subscribers = subscribers
        for view in list(self._views):
            view.refresh_subscribers()

    def publish(self, event: object) -> None:
        """Hand an event to the subscribers; never waits for any of them."""
        for subscription in self.subscribers:
            subscription.offer(event)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} with {sum(map(len, self._hooks.values()))} hooks>"


class NullBus(HookBus[DepsT]):
    """A bus that takes registrations and runs no hook."""

    def standing(self, key: Key) -> tuple[Hook, ...]:
        """No hook ever runs."""
        return EMPTY

    def sibling(self) -> HookBus[Any]:
        """Another bus that runs no hook."""
        return NullBus()


class _GlobalBus(HookBus[Any]):
    origin = "global"


global_bus: Final[HookBus[Any]] = _GlobalBus()
"""The hooks of this process: they run in every chat of every agent, before the agent's own.

`Agent(global_hooks=False)` opts out, and so does an agent on a `NullBus`. Its subscribers get the
events of every agent that has not opted out.
"""


def listed(buses: tuple[HookBus[Any], ...], point: object = None) -> tuple[HookInfo, ...]:
    """The registrations of these buses in firing order, of one point or of all."""
    keys: Iterable[Key]
    if point is not None:
        keys = (spec_of(point).key,)
    else:
        keys = dict.fromkeys((*TABLE, *(key for bus in buses for key in bus.used())))
    return tuple(
        hook.info()
        for key in keys
        for hook in _sorted(hook for bus in buses for hook in bus.registered(key))
    )


_observers: Final[set[type]] = set()  # points of a user's own that `notify` may fire


def _own(ctx: object, kind: str) -> PointSpec:
    spec = spec_of(type(ctx))
    if spec.key in TABLE:
        raise UnknownHookError(f"{spec.name} (fired by a chat only)", ())
    if spec.kind != kind:
        raise HookOptionError(
            spec.name,
            "-",
            f"it is an {spec.kind} point and was fired as {kind}; use its own method of the bus",
        )
    return spec
