"""The call rules: how observers and interceptors are called. `wrappers.py` calls wrappers.

Theory of operation. A dispatch gets the hooks of one point in order, as registered when it began,
and a context. `_drive` is the loop behind observers, interceptors and deltas. For each hook it
checks that the hook is still registered and applies to this tool, calls the hook, and awaits the
returned value if it is awaitable. A value other than None is passed to `take`, which decides what
happens to the context:

- `notify` ignores the value, and the context stays the same.
- `intercept` looks up the value's type in the point's row. Either the context gets the value as its
  new payload, or the value is kept and the context stays the same, or the value ends the chain.
- `look` counts only refusals and kept values; the context stays the same.
- `flow` replaces one delta by none, one or several. Later hooks see each of them separately.

A sync hook creates no coroutine. An exception is treated as a value until the hook's own failure
rule (`excuse`) has handled it: it is raised again with a note that names hook and point, or logged,
or it denies the call. After each hook the loop checks whether the chat has ended.

Wrappers are nested calls instead of a loop; they use the same failure rule and time limits
(`one_hook.py`). This module does not depend on chats or registration.
"""

from __future__ import annotations

from asyncio import CancelledError
from collections.abc import Callable, Sequence
from inspect import isawaitable
from time import perf_counter
from types import CoroutineType
from typing import Any, Final, Protocol, TypeAlias, TypeVar, cast

import msgspec

from hookline._base.cancel import Deadlines
from hookline._hooks.one_hook import (
    effect_of,
    excuse,
    in_time,
    log_fault,
    outcome_of_error,
    outcome_of_value,
    parts_of,
    refusal,
)
from hookline._hooks.points import END, KEEP, HookOutcome, OnHook
from hookline._hooks.registration import Hook
from hookline._model.model import PartEndChunk, ToolCallChunk

C = TypeVar("C", bound=msgspec.Struct)

_replace = msgspec.structs.replace

Hooks = Sequence[Hook]


class Firing(Protocol):
    """The part of a chat that a dispatch needs."""

    @property
    def broken(self) -> bool:
        """Whether the chat was aborted or has failed; no further hooks of the dispatch run."""
        ...

    @property
    def deadlines(self) -> Deadlines | None: ...
    @property
    def watch(self) -> Watch | None: ...


class OutsideChat:
    """A dispatch outside a chat, which the end of a chat cannot interrupt."""

    broken = False

    def __init__(self, watch: Watch | None = None, deadlines: Deadlines | None = None) -> None:
        self.watch = watch
        self.deadlines = deadlines


OUTSIDE: Final = OutsideChat()


class Watch:
    """Reports each hook that ran to the observers of `onHook`; exists only if there are some."""

    def __init__(self, view: Any, run: Any) -> None:
        self._view = view  # and not its hooks, which may change during a dispatch
        self._run = run

    async def __call__(
        self,
        hook: Hook,
        outcome: HookOutcome,
        duration: float,
        ctx: Any,
        value: Any = None,
        *,
        inner: float = 0.0,
        new_value: Any = None,
    ) -> None:
        event: OnHook[Any] = OnHook(
            run=self._run,
            point=hook.spec.name,
            hook=hook.name,
            id=hook.options.id,
            outcome=outcome,
            duration=duration,
            inner=inner,
            context=ctx,
            returned=value,
            passed=new_value,
        )
        for observer in self._view.onHook:
            # Outside the chat, so that observers are not reported to each other.
            await notify_safely(observer, event)


def stop_error() -> CancelledError:
    return CancelledError("the chat ended during this dispatch")


# ── the loop ────────────────────────────────────────────────────────────────────────────────

# Returns the context for the next hook, after a hook has returned a value; None ends the chain.
Take: TypeAlias = Callable[[Hook, Any, Any], Any]


async def _drive(hooks: Hooks, ctx: Any, take: Take, firing: Firing, tool: str = "") -> Any:
    """Call each hook in turn; returns the context that the last one has left, or None."""
    watch = firing.watch
    for hook in hooks:
        if hook.tools is not None and tool not in hook.tools:
            continue
        if not hook.alive:  # checked for each delta, because the hook may be disposed in between
            continue
        after = ctx  # the context for the next hook
        start = perf_counter()
        try:
            value = hook.fn(ctx)
            if value is not None:
                # The class is compared first: it is much faster than isawaitable().
                if value.__class__ is CoroutineType or isawaitable(value):
                    value = await in_time(hook, value, firing.deadlines)
                if value is not None:
                    after = take(hook, ctx, value)
        except BaseException as exc:
            if watch is not None:  # before the failure rule, which may raise
                await watch(hook, outcome_of_error(hook, exc), perf_counter() - start, ctx)
            denial = excuse(hook, exc)
            if denial is not None:
                after = take(hook, ctx, denial)
        else:
            if watch is not None:
                outcome = outcome_of_value(hook, value)
                await watch(hook, outcome, perf_counter() - start, ctx, value)
        if firing.broken:
            raise stop_error()
        if after is None:
            return None
        ctx = after
    return ctx


def _ignore(hook: Hook, ctx: Any, value: Any) -> Any:
    """Ignore the return value of an observer."""
    return ctx


async def notify(hooks: Hooks, ctx: Any, firing: Firing = OUTSIDE) -> None:
    """Call observers one after the other and await each; their return values are ignored."""
    await _drive(hooks, ctx, _ignore, firing)


async def notify_safely(hook: Hook, ctx: Any, firing: Firing = OUTSIDE) -> None:
    """Call one observer; an exception is only logged."""
    try:
        await notify((hook,), ctx, firing)
    except BaseException as exc:
        log_fault(hook, exc)


async def intercept(
    hooks: Hooks,
    ctx: C,
    firing: Firing = OUTSIDE,
    tool: str = "",
    not_allowed: type | None = None,
    effects: list[tuple[Hook, str]] | None = None,
) -> tuple[C, Any, list[Any]]:
    """Call interceptors as a chain; returns the last context, the value at the end, kept values.

    `not_allowed` is a type that the point accepts but this dispatch does not. Each hook that
    returned a value is added to `effects`, with the effect of the value.
    """
    last, end = ctx, None
    values: list[Any] = []

    def take(hook: Hook, ctx: Any, value: Any) -> Any:
        nonlocal last, end
        for part in parts_of(hook, value):
            act = effect_of(hook, ctx, part, not_allowed)
            if effects is not None:
                effects.append((hook, act))
            if act is END:
                end = part
                return None
            if act is KEEP:
                values.append(part)
            else:
                last = ctx = _replace(ctx, **{act: part})
        return ctx

    await _drive(hooks, ctx, take, firing, tool)
    return last, end, values


async def look(
    hooks: Hooks, ctx: Any, firing: Firing, tool: str, refusals: tuple[type, ...]
) -> tuple[Any, list[Any]]:
    """Call interceptors that can only refuse or ask; returns the refusal and the kept values.

    Changes, and values at the end that are no refusals, are ignored.
    """
    end = None
    values: list[Any] = []

    def take(hook: Hook, ctx: Any, value: Any) -> Any:
        nonlocal end
        act = effect_of(hook, ctx, value)
        if act is KEEP:
            values.append(value)
        elif act is END and isinstance(value, refusals):
            end = value
            return None
        return ctx

    await _drive(hooks, ctx, take, firing, tool)
    return end, values


async def flow(hooks: Hooks, ctx: Any, firing: Firing = OUTSIDE) -> Sequence[Any]:
    """Call delta hooks: each turns a delta into none, one or several for the later hooks."""
    pieces = [ctx]
    for hook in hooks:
        after: list[Any] = []
        for piece in pieces:
            passed = await _drive((hook,), piece, _split, firing)
            after += [piece] if passed is piece else passed
        pieces = after
    return [piece.delta for piece in pieces]


def _split(hook: Hook, ctx: Any, value: Any) -> list[Any]:
    """Make a context for each delta that a hook returned."""
    return [_replace(ctx, delta=delta) for delta in _deltas(hook, ctx, value)]


def _deltas(hook: Hook, ctx: Any, value: Any) -> Sequence[Any]:
    """Check the return value of `onDelta`, and keep deltas that must not be lost."""
    old = ctx.delta
    new = cast("Sequence[Any]", value if isinstance(value, (tuple, list)) else (value,))
    for delta in new:
        effect_of(hook, ctx, delta)
        if isinstance(delta, (ToolCallChunk, PartEndChunk)) and delta != old:
            raise refusal(hook, delta, "text and reasoning deltas, or the delta itself, unchanged")
    if type(old) is ToolCallChunk and any(delta != old for delta in new):
        raise refusal(hook, new, "for a call, the same delta, or an empty tuple to hide it")
    if type(old) is PartEndChunk and old not in new:
        return (*new, old)
    return new
