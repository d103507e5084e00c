"""Wrappers: nested layers, of which the first hook is the outermost; and `Proceed`.

Each layer calls its hook with a `proceed` that enters the next layer, or the wrapped operation. A
wrapper that fails before it calls `proceed` is skipped if its failure rule allows that. The wrapped
operation never runs twice because a wrapper failed: its first result or exception is used.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from time import perf_counter
from typing import Any, Protocol, TypeVar

import msgspec

from hookline._base.errors import HookError
from hookline._hooks.call_rules import Firing, Hooks, stop_error
from hookline._hooks.one_hook import excuse, in_time, outcome_of_error, refusal
from hookline._hooks.points import HookOutcome
from hookline._hooks.registration import Hook

P = TypeVar("P", contravariant=True)
R_co = TypeVar("R_co", covariant=True)
R = TypeVar("R")

_replace = msgspec.structs.replace


class Proceed(Protocol[P, R_co]):
    """Runs the wrapped operation: `await proceed()` or `await proceed(changed)`.

    Raises HookError if an earlier call of the same `proceed` is still running, or if the hook has
    already returned. Exceptions of the wrapped operation are raised unchanged.
    """

    async def __call__(self, payload: P | None = None, /) -> R_co:
        """Run the wrapped operation, and return its result."""
        ...


def wrap(
    hooks: Hooks,
    ctx: Any,
    inner: Callable[[Any], Awaitable[R]],
    firing: Firing,
    *,
    tool: str = "",
    again: Callable[[], str | None] | None = None,
) -> Awaitable[R]:
    """Call wrappers as nested layers, the first hook outermost; `inner` gets the point's payload.

    `again` is called before a second call of one `proceed`; if it returns a text, that call raises.
    """
    return _inside(_Onion(hooks, hooks[0].spec.payload, inner, firing, tool, again), 0, ctx)


class _Onion(msgspec.Struct, frozen=True, eq=False):
    hooks: Hooks
    field: str  # the context's field with the payload
    inner: Callable[[Any], Awaitable[Any]]
    firing: Firing
    tool: str
    again: Callable[[], str | None] | None


def _inside(onion: _Onion, index: int, ctx: Any) -> Awaitable[Any]:
    """Enter the next active layer, or `inner`; this function only makes the call."""
    hooks = onion.hooks
    while index < len(hooks):
        hook = hooks[index]
        if hook.alive and (hook.tools is None or onion.tool in hook.tools):
            return _layer(onion, index, hook, ctx)
        index += 1
    return onion.inner(getattr(ctx, onion.field))


class _Way(msgspec.Struct, eq=False):
    """A hook's `proceed`: the way to the next layer, and the record of its calls."""

    onion: _Onion
    index: int
    hook: Hook
    ctx: Any
    calls: int = 0
    running: bool = False
    over: bool = False  # whether the hook has returned
    result: Any = None
    error: BaseException | None = None
    inner: float = 0.0  # seconds spent in the next layers, measured only if there is a watch
    new_value: Any = None  # the value that was passed in place of the payload

    async def __call__(self, payload: Any = None, /) -> Any:
        if self.running:
            raise HookError(
                "proceed was called again while an earlier call was still running; await the "
                "earlier call first"
            )
        if self.over:  # the chat has gone on without it
            raise HookError(
                "proceed was called after its hook had returned; await it inside the hook"
            )
        onion = self.onion
        if self.calls and onion.again is not None:
            self._ask_again(onion.again)
        ctx = self.ctx
        if payload is not None:
            ctx = self._with_changes(payload)
            self.new_value = payload
        # Counted only now, because a refused call is a failure of the hook and not an attempt.
        self.calls += 1
        self.running = True
        self.error = None
        start = perf_counter() if onion.firing.watch is not None else 0.0
        try:
            if onion.firing.broken:
                raise stop_error()
            result = self.result = await _inside(onion, self.index + 1, ctx)
            return result
        except BaseException as exc:
            self.error = exc
            raise
        finally:
            self.running = False
            if start:
                self.inner += perf_counter() - start

    def _ask_again(self, again: Callable[[], str | None]) -> None:
        problem = again()
        if problem:
            raise HookError(f"hook {self.hook.name!r} at {self.hook.spec.name}: {problem}")

    def _with_changes(self, payload: Any) -> Any:
        """Return the context with the payload that the hook passed."""
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
    value: Any = None
    try:
        value = await in_time(hook, hook.fn(ctx, proceed), firing.deadlines)
        if value.__class__ not in hook.spec.acts and not isinstance(value, tuple(hook.spec.acts)):
            raise refusal(hook, value)
        if proceed.calls != 1:
            outcome = "answered" if proceed.calls == 0 else "changed"
        elif value is not proceed.result:
            outcome = "changed"
        return value
    except BaseException as exc:
        if exc is proceed.error:
            raise  # the wrapped operation failed, not the wrapper
        outcome = outcome_of_error(hook, exc)
        denial = excuse(hook, exc)
        if denial is not None:
            return denial
        if proceed.calls == 0:
            return await proceed()  # a call like the hook's own, so that the hook cannot add one
        if proceed.running:
            raise exc from None  # `proceed` runs in another task: there is no result yet
        if proceed.error is not None:
            if isinstance(proceed.error, asyncio.CancelledError):
                raise exc from None  # its own timeout cut off the operation: no result
            raise proceed.error from None
        return proceed.result
    finally:
        proceed.over = True
        proceed.error = None  # the exception's traceback refers to `proceed`
        if watch is not None:
            seconds = perf_counter() - start
            inner, new_value = proceed.inner, proceed.new_value
            await watch(hook, outcome, seconds, ctx, value, inner=inner, new_value=new_value)
