"""Calls the observers of scopes, which run outside chats. Their exceptions are only logged."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial
from inspect import isawaitable
from time import perf_counter
from typing import Any

from hookline._hooks.bus import View
from hookline._hooks.call_rules import Watch, notify_safely
from hookline._hooks.one_hook import log_fault
from hookline._hooks.points import HookOutcome
from hookline._hooks.registration import Hook


def notify_of_scope(view: View, point: str, ctx: Any) -> list[Callable[[], Awaitable[None]]]:
    """Call the sync observers; returns calls of the others, to be made before a chat or a step."""
    late: list[Callable[[], Awaitable[None]]] = []
    for hook in getattr(view, point):
        if not hook.alive:
            continue
        if hook.is_async:
            # Called later, because a scope may be registered outside an event loop.
            late.append(partial(_call, view, hook, ctx))
            continue
        start = perf_counter()
        value: Any = None
        outcome: HookOutcome = "ok"
        try:
            value = hook.fn(ctx)
        except BaseException as exc:
            outcome = "raised"
            log_fault(hook, exc)
        if view.onHook or isawaitable(value):
            seconds = perf_counter() - start
            late.append(partial(_finish, view, hook, ctx, value, outcome, seconds))
    return late


async def _call(view: View, hook: Hook, ctx: Any) -> None:
    await notify_safely(hook, ctx, view.firing())


async def _finish(
    view: View, hook: Hook, ctx: Any, value: Any, outcome: HookOutcome, seconds: float
) -> None:
    """Await the value of a sync observer if it is awaitable, and report the hook to `onHook`."""
    if isawaitable(value):
        start = perf_counter()
        try:
            value = await value
        except BaseException as exc:
            value, outcome = None, "raised"
            log_fault(hook, exc)
        seconds += perf_counter() - start
    await Watch(view, None)(hook, outcome, seconds, ctx, value)
