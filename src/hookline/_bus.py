"""The bus: where hooks are registered and where events go.

A registration is a `Hook` in a sorted tuple per point; tuples are replaced, never changed, so that
a dispatch runs the hooks that stood at its start. A `View` is what a chat looks at: one attribute
per point, an empty tuple where nobody listens. How hooks are called is `_chain.py`.
"""

from __future__ import annotations

import threading
import weakref
from collections.abc import Awaitable, Callable, Iterable
from typing import Any, Final, Generic, TypeVar, cast

from hookline._chain import ALONE, Alone, Conduct, Watch, call, intercept, notify, wrap
from hookline._errors import HookOptionError, UnknownHookError
from hookline._log import log_throw
from hookline._points import TABLE, Head, HookOutcome, Interceptor, OnHook, Wrapper, head_of
from hookline._registration import Disposer, Hook, HookDef, HookInfo, info_of, make_hook
from hookline._run import DepsT
from hookline._subscribe import Overflow, Subscription
from hookline._typed import AddHook, DefineHook, HookDecorator

E = TypeVar("E")
R = TypeVar("R")

EMPTY: Final[tuple[Hook, ...]] = ()


def _sorted(hooks: Iterable[Hook]) -> tuple[Hook, ...]:
    return tuple(sorted(hooks, key=lambda hook: -hook.priority))


class View:
    """The hooks of one chat, as attributes named like the points."""

    def __init__(self, *sources: tuple[HookBus[Any], Callable[[Hook], bool] | None]) -> None:
        self.sources = sources
        self.__dict__.update(dict.fromkeys(TABLE, EMPTY))
        for bus, _ in sources:
            for name in bus.used():
                self.refresh(name)
            bus.watch(self)

    def refresh(self, name: str) -> None:
        """The hooks of one point have changed."""
        merged = dict.fromkeys(  # a bus may be there twice: a hook runs once
            hook
            for bus, keep in self.sources
            for hook in bus.standing(name)
            if keep is None or keep(hook)
        )
        self.__dict__[name] = _sorted(merged)

    def __getattr__(self, name: str) -> tuple[Hook, ...]:
        if name.startswith("_"):
            raise AttributeError(name)
        return EMPTY  # a point that nobody has used yet


class HookBus(Generic[DepsT]):
    """Hooks and subscribers. Works without an agent, with points of one's own.

    `notify`, `intercept` and `wrap` fire a point that is declared as a class; the points of a
    chat are fired by the chat.
    """

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self._hooks: dict[str, tuple[Hook, ...]] = {}
        self._views: weakref.WeakSet[View] = weakref.WeakSet()
        self.subscribers: tuple[Subscription[Any], ...] = ()
        self.view = View((self, None))

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
        options.setdefault("origin", "add_hook")
        return self.enter(make_hook(point, hook, **options))

    def _decorate(self, point: object, **options: Any) -> Callable[[Any], Any]:
        def enter(fn: Any) -> Any:
            self._add(point, fn, **options)
            return fn

        return enter

    def enter(self, hook: Hook) -> Disposer:
        """Register a hook that `make_hook` made."""
        name = hook.head.name
        with self._lock:
            known = self._hooks.get(name, EMPTY)
            if known and known[0].head is not hook.head:
                raise HookOptionError(name, hook.name, "two different points have this name")
            self._hooks[name] = _sorted((*known, hook))
            self._refresh(name)
        return Disposer(self._remove, hook)

    def _remove(self, hook: Hook) -> None:
        hook.alive = False
        name = hook.head.name
        with self._lock:
            known = self._hooks.get(name, EMPTY)
            if any(each is hook for each in known):
                self._hooks[name] = tuple(each for each in known if each is not hook)
                self._refresh(name)

    def _refresh(self, name: str) -> None:
        for view in list(self._views):
            view.refresh(name)

    def all_hooks(self) -> list[Hook]:
        """Every registration."""
        return [hook for hooks in self._hooks.values() for hook in hooks]

    def used(self) -> tuple[str, ...]:
        """The points that have had a hook."""
        return tuple(self._hooks)

    def watch(self, view: View) -> None:
        """Keep a view up to date for as long as it lives."""
        self._views.add(view)

    def standing(self, name: str) -> tuple[Hook, ...]:
        """The hooks that a dispatch of this point would run now, in order."""
        return self._hooks.get(name, EMPTY)

    def hooks(self, point: object = None) -> tuple[HookInfo, ...]:
        """All registrations in firing order, of one point or of all."""
        names = [head_of(point).name] if point is not None else list(TABLE)
        if point is None:
            names += [name for name in self._hooks if name not in TABLE]
        return tuple(info_of(hook) for name in names for hook in self._hooks.get(name, EMPTY))

    def clear(self, point: object = None) -> None:
        """Remove all hooks, of one point or of all."""
        names = [head_of(point).name] if point is not None else list(self._hooks)
        for name in names:
            for hook in self._hooks.get(name, EMPTY):
                self._remove(hook)

    # ── points of one's own ─────────────────────────────────────────────────────────────────

    def _conduct(self) -> Conduct:
        return Alone(watcher(self.view, None)) if self.view.onHook else ALONE

    async def notify(self, ctx: Any) -> None:
        """Fire an observer point."""
        hooks: tuple[Hook, ...] = getattr(self.view, _own(ctx, "observer").name)
        if hooks:
            await notify(hooks, ctx, self._conduct())

    async def intercept(self, ctx: Interceptor[R]) -> R:
        """Fire an interceptor point; gives its payload as the hooks left it."""
        head = _own(ctx, "interceptor")
        hooks: tuple[Hook, ...] = getattr(self.view, head.name)
        last, end, _ = await intercept(hooks, ctx, self._conduct())
        if end is not None:
            return cast("R", end)
        return cast("R", getattr(last, head.payload))

    async def wrap(self, ctx: Wrapper[R], inner: Callable[[Any], Awaitable[R]]) -> R:
        """Fire a wrapper point around `inner`, which gets the payload."""
        hooks: tuple[Hook, ...] = getattr(self.view, _own(ctx, "wrapper").name)
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
        with self._lock:
            self.subscribers = (*self.subscribers, subscription)
        return subscription

    def _leave(self, subscription: Subscription[Any]) -> None:
        with self._lock:
            self.subscribers = tuple(each for each in self.subscribers if each is not subscription)

    def publish(self, event: object) -> None:
        """Hand an event to the subscribers; never waits for any of them."""
        for subscription in self.subscribers:
            subscription.offer(event)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} with {sum(map(len, self._hooks.values()))} hooks>"


class NullBus(HookBus[DepsT]):
    """A bus that takes registrations and runs no hook."""

    def standing(self, name: str) -> tuple[Hook, ...]:
        """No hook ever runs."""
        return EMPTY


def _own(ctx: object, kind: str) -> Head:
    head = head_of(type(ctx))
    if head.name in TABLE and TABLE[head.name] is head:
        raise UnknownHookError(f"{head.name} (fired by a chat only)", ())
    if head.kind != kind:
        raise HookOptionError(head.name, "-", f"it is an {head.kind} point and was fired as {kind}")
    return head


def watcher(view: View, run: Any) -> Watch:
    """What tells the `onHook` observers of each hook that ran."""

    async def watch(hook: Hook, outcome: HookOutcome, duration: float) -> None:
        if hook.head.name == "onHook":
            return
        for observer in view.onHook:
            ctx: OnHook[Any] = OnHook(
                run=run, point=hook.head.name, hook=hook.name, outcome=outcome, duration=duration
            )
            try:
                if observer.alive:
                    await call(observer, ctx)
            except Exception as exc:
                log_throw(f"hook {observer.name!r} at onHook raised", exc)

    return watch


define_hook = cast("DefineHook", HookDef)
