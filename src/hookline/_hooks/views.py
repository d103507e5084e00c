"""Whose hooks run in a chat: the agent's, the chat's own, those that a sub-agent inherits.

And how an observer of scopes is told, which happens outside of any chat.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from hookline._base.log import log_throw
from hookline._hooks.bus import HookBus, View, watcher
from hookline._hooks.call_rules import ALONE, Alone, call, fault
from hookline._hooks.registration import Hook


def stays(hook: Hook) -> bool:
    """True for a hook of the agent that also runs in a chat with `only_hooks=`."""
    return not hook.declared or hook.required


def _inherits(hook: Hook) -> bool:
    return hook.inherit


def inherited(parent: View, bus: HookBus[Any], tracing: HookBus[Any] | None) -> View:
    """A sub-agent's hooks: the parent's that are inherited, then its own."""
    sources = [(source, _both(keep)) for source, keep in parent.sources]
    return View(*sources, (bus, None), *also(tracing))


def inherited_points(parent: View) -> set[object]:
    """The points at which a parent has hooks for its sub-agents."""
    return {hook.head.key for bus, _ in parent.sources for hook in bus.all_hooks() if hook.inherit}


def also(tracing: HookBus[Any] | None) -> list[tuple[HookBus[Any], None]]:
    """What telemetry brings, as a further source of a view."""
    return [] if tracing is None else [(tracing, None)]


def _both(keep: Callable[[Hook], bool] | None) -> Callable[[Hook], bool]:
    if keep is None:
        return _inherits
    return lambda hook: hook.inherit and keep(hook)


async def observe(view: View, hook: Hook, ctx: Any, begun: Awaitable[Any] | None) -> None:
    """Tell an async scope observer; `begun` is what a sync one has returned to be awaited."""
    conduct = Alone(watcher(view, None)) if view.onHook else ALONE
    try:
        if begun is not None:
            await begun
        elif hook.alive:
            await call(hook, ctx, conduct)
    except BaseException as exc:
        log_throw(f"hook {hook.name!r} at {hook.head.name} raised", fault(hook, exc))
