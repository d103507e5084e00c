"""The bus: holds the registered hooks and publishes events.

A registration is a `Hook` in a sorted tuple per point. Tuples are replaced and never changed, so a
dispatch runs the hooks that were registered when it started. A chat uses a `View` of one or more
buses: one attribute per point, which is an empty tuple if the point has no hooks. Buses keep their
views up to date. So a lookup costs one attribute access, and a bus without hooks costs nothing. The
rules for calling hooks are in `_hooks/call_rules.py`.
"""

from __future__ import annotations

import weakref
from collections.abc import Awaitable, Callable, Iterable
from typing import TYPE_CHECKING, Any, Final, Generic, TypeAlias, TypeVar, cast

from hookline._base.errors import HookOptionError, UnknownHookError
from hookline._base.forks import lock_for_forks
from hookline._base.run import DepsT
from hookline._hooks.call_rules import (
    OUTSIDE,
    Firing,
    OutsideChat,
    Watch,
    intercept,
    notify,
)
from hookline._hooks.points import TABLE, Interceptor, PointSpec, Wrapper, spec_of
from hookline._hooks.registration import (
    Disposer,
    Hook,
    HookInfo,
    OnError,
    check_names,
    make_hook,
)
from hookline._hooks.subscribe import Overflow, Subscription
from hookline._hooks.typed import AddHook, HookDecorator
from hookline._hooks.wrappers import wrap

E = TypeVar("E")
R = TypeVar("R")

Key: TypeAlias = str | type
"""The name of a hook point, or the class of your own point."""
Keep: TypeAlias = Callable[[Hook], bool]
EMPTY: Final[tuple[Hook, ...]] = ()

# Held while registrations change and views are updated. All buses share one lock, because a view
# may have several buses, which change in different threads.
_lock: Final = lock_for_forks()


def _sorted(hooks: Iterable[Hook]) -> tuple[Hook, ...]:
    return tuple(sorted(hooks, key=lambda hook: -hook.options.priority))


class View:
    """The hooks of one chat, as attributes named after the points, and its subscribers.

    A source is a bus and a filter of its hooks; None keeps all hooks.
    """

    def __init__(self, *sources: tuple[HookBus[Any], Keep | None]) -> None:
        self.sources = sources
        self.own: dict[type, tuple[Hook, ...]] = {}  # of points that users declared
        self.guards: tuple[str, ...] = ()  # required hooks that were passed to the chat itself
        self.compared_with: object = None  # the guards and tools that `reach.py` has compared
        self.tool_guards = EMPTY  # the guards among the hooks of preToolCall
        self.__dict__.update(dict.fromkeys(TABLE, EMPTY))
        with _lock:  # no registration may come between watching a bus and reading its hooks
            for bus, _ in sources:
                bus.watch(self)
                for key in bus.keys_in_use():
                    self.refresh(key)
            self.refresh_subscribers()

    def refresh_subscribers(self) -> None:
        """Update the subscribers after a change at one of the buses."""
        buses = dict.fromkeys(bus for bus, _ in self.sources if bus.subscribers)
        self.subscribed = tuple(buses)
        """The buses that have subscribers, each once even if it is a source twice."""

    def publish(self, event: object) -> None:
        """Pass an event to the subscribers of all buses, without waiting for any of them."""
        for bus in self.subscribed:
            bus.publish(event)

    def firing(self) -> Firing:
        """Return the rules of a dispatch outside a chat."""
        return OutsideChat(Watch(self, None)) if self.onHook else OUTSIDE

    def refresh(self, key: Key) -> None:
        """Update the hooks of one point after a change."""
        by_id: dict[object, Hook] = {}
        for bus, keep in self.sources:
            for hook in bus.standing(key):
                if keep is None or keep(hook):
                    # A bus may be a source twice, and a definition may be registered twice.
                    # Each hook still runs once, at its first place.
                    by_id.setdefault(hook.definition or hook, hook)
        if isinstance(key, str):
            hooks = self.__dict__[key] = _sorted(by_id.values())
            if key == "preToolCall":
                guards = tuple(hook for hook in hooks if hook.guard)
                if guards != self.tool_guards:  # the same tuple says that no guard has changed
                    self.tool_guards = guards
        else:
            self.own[key] = _sorted(by_id.values())

    if TYPE_CHECKING:
        onHook: tuple[Hook, ...]

        def __getattr__(self, name: str) -> tuple[Hook, ...]: ...


class HookBus(Generic[DepsT]):
    """A registry of hooks and subscribers. A bus also works without an agent, for your own points.

    `notify`, `intercept` and `wrap` fire a point that you have declared as a class. Only chats fire
    the built-in points.
    """

    origin = "add_hook"
    """The origin that `hooks()` shows for the hooks of this bus."""

    def __init__(self) -> None:
        self._hooks: dict[Key, tuple[Hook, ...]] = {}
        # Weak, because a chat with hooks of its own has its own view and never takes it back.
        self._views: weakref.WeakSet[View] = weakref.WeakSet()
        self.subscribers: tuple[Subscription[Any], ...] = ()
        """The open subscriptions, in no particular order."""
        self.view = View((self, None))
        """The view of a chat on this bus: the hooks of each point."""

    # ── registration ────────────────────────────────────────────────────────────────────────

    @property
    def add_hook(self) -> AddHook[DepsT]:
        """`add_hook(point, hook, *, priority=0, name=None, tools=None, timeout=None,
        on_error="raise", inherit=None, guard=False, keeps_deltas=False, early=False,
        observes=False)` adds a hook at a point and returns its disposer.
        """
        return cast("AddHook[DepsT]", self._add)

    @property
    def hook(self) -> HookDecorator[DepsT]:
        """The decorator form of `add_hook`."""
        return cast("HookDecorator[DepsT]", self._decorate)

    def _add(
        self,
        point: object,
        hook: Callable[..., Any],
        *,
        priority: int = 0,
        name: str | None = None,
        tools: Iterable[str] | None = None,
        timeout: float | None = None,
        on_error: OnError = "raise",
        inherit: bool | None = None,
        guard: bool = False,
        keeps_deltas: bool = False,
        early: bool = False,
        observes: bool = False,
        **unknown: Any,
    ) -> Disposer:
        """Add a hook at a point; returns its disposer, which removes only this registration.

        `point` is the name of a point, such as "preToolCall", or the class of its context. `hook`
        is called with the context; a wrapper is also called with `proceed`. Hooks with a higher
        `priority` run first. `name` is by default the function's name. `tools` limits the hook to
        these tools. `timeout` is in seconds, for async hooks. `on_error` is the effect of an
        exception: "raise" ends the chat, "log" continues the chat, and "deny" denies the call (at
        preToolCall). With `inherit`, the hook also runs in the chats of sub-agents; by default,
        only a guard does. With `guard` (at preToolCall), the hook is asked again before the tool
        runs if the call has changed or has waited. `keeps_deltas` (at onResponse and preMessage),
        `early` (at preSteer) and `observes` (of a wrapper) are promises of the hook. Raises
        UnknownHookError for an unknown point, and HookOptionError for an option that does not fit
        or does not exist.
        """
        options = {"priority": priority, "name": name, "tools": tools, "timeout": timeout}
        options |= {"on_error": on_error, "inherit": inherit, "guard": guard, "early": early}
        options |= {"keeps_deltas": keeps_deltas, "observes": observes, **unknown}
        return self.enter(make_hook(point, hook, options, self.origin))

    def _decorate(self, point: object, **options: Any) -> Callable[[Any], Any]:
        check_names(point, options)

        def enter(fn: Any) -> Any:
            self._add(point, fn, **options)
            return fn

        return enter

    def enter(self, hook: Hook) -> Disposer:
        """Register a hook that was made by `make_hook`."""
        key = hook.spec.key
        with _lock:
            self._hooks[key] = _sorted((*self.registered(key), hook))
            self._refresh(key)
        return Disposer(self._remove, hook)

    def _remove(self, hook: Hook) -> None:
        hook.alive = False  # a dispatch under way still has the hook in its tuple
        key = hook.spec.key
        with _lock:
            hooks = self.registered(key)
            rest = tuple(other for other in hooks if other is not hook)
            if len(rest) < len(hooks):
                if rest:
                    self._hooks[key] = rest
                else:
                    del self._hooks[key]
                self._refresh(key)

    def _refresh(self, key: Key) -> None:
        for view in list(self._views):
            view.refresh(key)

    def sibling(self) -> HookBus[Any]:
        """Return an empty bus of the same kind, for the hooks of one chat."""
        return HookBus()

    def all_hooks(self) -> list[Hook]:
        """Return all registrations."""
        return [hook for hooks in list(self._hooks.values()) for hook in hooks]

    def keys_in_use(self) -> tuple[Key, ...]:
        """Return the points that have hooks."""
        return tuple(self._hooks)

    def watch(self, view: View) -> None:
        """Update a view after each change, for as long as the view exists."""
        self._views.add(view)

    def standing(self, key: Key) -> tuple[Hook, ...]:
        """Return, in order, the hooks that would run if this point fired now."""
        return self.registered(key)

    def registered(self, key: Key) -> tuple[Hook, ...]:
        """Return the registrations at this point, in order."""
        return self._hooks.get(key, EMPTY)

    def hooks(self, point: object = None) -> tuple[HookInfo, ...]:
        """Return the registrations at one point or at all points, in firing order."""
        return hook_infos((self,), point)

    def clear(self, point: object = None) -> None:
        """Remove the hooks at one point, or all hooks."""
        keys = [spec_of(point).key] if point is not None else list(self._hooks)
        for key in keys:
            for hook in self.registered(key):
                self._remove(hook)

    # ── user-defined points ─────────────────────────────────────────────────────────────────────

    async def notify(self, ctx: Any) -> None:
        """Fire an observer point."""
        point = ctx.__class__
        if point not in _observers:  # checked once per point, because most points have no hooks
            _observers.add(_own(ctx, "observer").context)
        hooks = self.view.own.get(point)
        if hooks:
            await notify(hooks, ctx, self.view.firing())

    async def intercept(self, ctx: Interceptor[R]) -> R:
        """Fire an interceptor point; returns its payload with the changes of the hooks."""
        spec = _own(ctx, "interceptor")
        hooks = self.view.own.get(spec.context, EMPTY)
        last, end, _ = await intercept(hooks, ctx, self.view.firing())
        if end is not None:
            return cast("R", end)
        return cast("R", getattr(last, spec.payload))

    async def wrap(self, ctx: Wrapper[R], inner: Callable[[Any], Awaitable[R]]) -> R:
        """Fire a wrapper point around `inner`; `inner` is called with the payload."""
        spec = _own(ctx, "wrapper")
        hooks = self.view.own.get(spec.context)
        if not hooks:
            return await inner(getattr(ctx, spec.payload))
        return await wrap(hooks, ctx, inner, self.view.firing())

    # ── events ──────────────────────────────────────────────────────────────────────────────

    def subscribe(
        self, *types: type[E], size: int = 1024, overflow: Overflow = "close"
    ) -> Subscription[E]:
        """Return an iterator over the published events of these types, or of all types.

        The iterator buffers at most `size` events. On overflow, "close" ends the iterator with
        SubscriptionOverflowError; "drop_oldest" drops the oldest events and counts them.
        """
        subscription: Subscription[E] = Subscription(types, size, overflow, self._leave)
        with _lock:
            self._set_subscribers((*self.subscribers, subscription))
        return subscription

    def _leave(self, subscription: Subscription[Any]) -> None:
        with _lock:
            self._set_subscribers(
                tuple(other for other in self.subscribers if other is not subscription)
            )

    def _set_subscribers(self, subscribers: tuple[Subscription[Any], ...]) -> None:
        self.subscribers = subscribers
        for view in list(self._views):
            view.refresh_subscribers()

    def publish(self, event: object) -> None:
        """Pass an event to the subscribers, without waiting for any of them."""
        for subscription in self.subscribers:
            subscription.offer(event)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} with {sum(map(len, self._hooks.values()))} hooks>"


class NullBus(HookBus[DepsT]):
    """A bus that accepts registrations but never runs a hook."""

    def standing(self, key: Key) -> tuple[Hook, ...]:
        """Return an empty tuple: no hook ever runs."""
        return EMPTY

    def sibling(self) -> HookBus[Any]:
        """Return a new bus that never runs a hook."""
        return NullBus()


class _GlobalBus(HookBus[Any]):
    origin = "global"


global_bus: Final[HookBus[Any]] = _GlobalBus()
"""The global hooks of this process. They run in every chat, before the hooks of its agent.

They do not run for an agent with `global_hooks=False`, or with a `NullBus` as its bus. Subscribers
of this bus get the events of all other agents.
"""


def hook_infos(buses: tuple[HookBus[Any], ...], point: object = None) -> tuple[HookInfo, ...]:
    """The registrations of these buses at one point or at all points, in firing order."""
    keys: Iterable[Key]
    if point is not None:
        keys = (spec_of(point).key,)
    else:
        keys = dict.fromkeys((*TABLE, *(key for bus in buses for key in bus.keys_in_use())))
    return tuple(
        hook.info()
        for key in keys
        for hook in _sorted(hook for bus in buses for hook in bus.registered(key))
    )


_observers: Final[set[type]] = set()  # user-defined points that `notify` may fire


def _own(ctx: object, kind: str) -> PointSpec:
    spec = spec_of(type(ctx))
    if spec.key in TABLE:
        raise UnknownHookError(f"{spec.name} (fired by a chat only)", ())
    if spec.kind != kind:
        raise HookOptionError(
            spec.name,
            "-",
            f"this {spec.kind} point was fired as {kind}; call the method for {spec.kind} points",
        )
    return spec
