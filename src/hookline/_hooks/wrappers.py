"""Wrappers: an onion whose first hook is the outermost, and `Proceed`, the way on inside of it.

Each layer calls its hook with a `proceed` that enters the next layer, or the inner part. A wrapper
that fails before it has called `proceed` is skipped where its failure rule allows that. The inner
part never runs twice because a wrapper failed: its result or its error is then the answer.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from inspect import isawaitable
from time import perf_counter
from types import CoroutineType
from typing import Any, Protocol, TypeVar

import msgspec

from hookline._base.errors import HookError
from hookline._hooks.call_rules import (
    OUTSIDE,
    Firing,
    Hooks,
    denies,
    excuse,
    in_time,
    refusal,
    stopped,
)
from hookline._hooks.points import HookOutcome, spec_of
from hookline._hooks.registration import Hook

P = TypeVar("P", contravariant=True)
R_co = TypeVar("R_co", covariant=True)
R = TypeVar("R")

_replace = msgspec.structs.replace


class Proceed(Protocol[P, R_co]):
    """The way on, as a wrapper is given it: `await proceed()` or `await proceed(changed)`.

    Raises HookError when it is called while an earlier call of it runs, or after its hook has
    returned; and whatever the inner part raises.
    """

    async def __call__(self, payload: P | None = None, /) -> R_co:
        """Run what is inside, and give what it came to."""
        ...


def wrap(
    hooks: Hooks,
    ctx: Any,
    inner: Callable[[Any], Awaitable[R]],
    firing: Firing = OUTSIDE,
    *,
    tool: str = "",
    again: Callable[[], str | None] | None = None,
) -> Awaitable[R]:
    """Wrappers: an onion whose first hook is the outermost; `inner` gets the point's payload.

    `again` is asked before a further call of one `proceed`; a text refuses it.
    """
    field = hooks[0].spec.payload if hooks else spec_of(ctx.__class__).payload
    return _inside(_Onion(hooks, field, inner, firing, tool, again), 0, ctx)


class _Onion(msgspec.Struct, frozen=True, eq=False):
    hooks: Hooks
    field: str  # of the context: the payload
    inner: Callable[[Any], Awaitable[Any]]
    firing: Firing
    tool: str
    again: Callable[[], str | None] | None


def _inside(onion: _Onion, index: int, ctx: Any) -> Awaitable[Any]:
    """The next layer that stands, or what is inside of all: nothing but a call."""
    hooks = onion.hooks
    while index < len(hooks):
        hook = hooks[index]
        if hook.alive and (hook.tools is None or onion.tool in hook.tools):
            return _layer(onion, index, hook, ctx)
        index += 1
    return onion.inner(getattr(ctx, onion.field))


class _Way(msgspec.Struct, eq=False):
    """The way on from one layer, and how it went: a hook's `proceed`."""

    onion: _Onion
    index: int
    hook: Hook
    ctx: Any
    calls: int = 0
    running: bool = False
    over: bool = False  # the hook has returned
    result: Any = None
    error: BaseException | None = None

    async def __call__(self, payload: Any = None, /) -> Any:
        if self.running:
            raise HookError(
                "proceed was called while an earlier call of it was still running; await that one "
                "first"
            )
        if self.over:
            raise HookError(
                "proceed was called after its hook had returned; await it inside of the hook"
            )
        onion, ctx = self.onion, self.ctx
        self.calls += 1
        self.running = True
        self.error = None
        try:
            if onion.firing.broken:
                raise stopped()
            if self.calls > 1 and onion.again is not None:
                self._ask_again(onion.again)
            if payload is not None:
                ctx = self._changed(payload)
            result = self.result = await _inside(onion, self.index + 1, ctx)
            return result
        except BaseException as exc:
            self.error = exc
            raise
        finally:
            self.running = False

    def _ask_again(self, again: Callable[[], str | None]) -> None:
        problem = again()
        if problem:
            raise HookError(f"hook {self.hook.name!r} at {self.hook.spec.name}: {problem}")

    def _changed(self, payload: Any) -> Any:
        """The context with what the hook hands on."""
        spec = self.hook.spec
        if not isinstance(payload, spec.takes):
            names = ", ".join(kind.__name__ for kind in spec.takes)
            raise refusal(self.hook, payload, f"{names} for proceed()")
        problem = spec.check(self.ctx, payload) if spec.check is not None else None
        if problem:
            raise refusal(self.hook, payload, f"{problem} for proceed()")
        return _replace(self.ctx, **{self.onion.field: payload})


async def _layer(onion: _Onion, index: int, hook: Hook, ctx: Any) -> Any:
    firing = onion.firing
    proceed = _Way(onion, index, hook, ctx)
    watch = firing.watch
    start = perf_counter() if watch is not None else 0.0
    outcome: HookOutcome = "ok"
    try:
        value: Any = hook.fn(ctx, proceed)
        if value.__class__ is CoroutineType or isawaitable(value):
            value = await in_time(hook, value, firing)
        if value.__class__ not in hook.spec.acts and not isinstance(value, tuple(hook.spec.acts)):
            raise refusal(hook, value)
        if proceed.calls != 1:
            outcome = "answered" if proceed.calls == 0 else "changed"
        elif value is not proceed.result:
            outcome = "changed"
        return value
    except BaseException as exc:
        if exc is proceed.error:
            raise  # what it wraps failed, not the wrapper
        outcome = "blocked" if denies(hook, exc) else "raised"
        denial = excuse(hook, exc)
        if denial is not None:
            return denial
        if proceed.calls == 0:
            return await _inside(onion, index + 1, ctx)
        if proceed.running:
            raise exc from None  # in a task of the hook's own: no result stands yet
        if proceed.error is not None:
            if isinstance(proceed.error, asyncio.CancelledError):
                raise exc from None  # its own timeout cut the inner part: no result stands
            raise proceed.error from None
        return proceed.result
    finally:
        proceed.over = True
        proceed.error = None  # whose traceback holds it
        if watch is not None:
            await watch(hook, outcome, perf_counter() - start)
