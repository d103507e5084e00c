"""The call rules: how hooks are called. Nothing else calls a hook.

Theory of operation. A dispatch is given the hooks of one point in their order, as they stood when
it began, and a context. `_drive` is the one loop behind observers, interceptors and deltas. For
each hook it asks whether the hook is still registered and meant for this tool, calls it, awaits
what it returns where that can be awaited, and hands a value that is not None to `take`, which says
what has become of the context:

- `notify` ignores the value: the context stays.
- `intercept` looks the value's type up in the point's row. The context is replaced by one with the
  new payload, or the value is kept and the context stays, or no context is left: the chain is over.
- `flow` gives a context for each delta that the hook made of one: none, one or several. Later
  hooks see them one by one.

A sync hook costs no coroutine. An exception is a value until the hook's own failure rule (`excuse`)
has seen it: it is raised again with a note that names hook and point, or logged, or it denies the
call. After each hook the loop looks whether the chat has ended meanwhile.

Wrappers are an onion instead of a loop (`wrappers.py`); they share the failure rule and the time
limit. What the points mean, what a chat is, and how hooks are registered is not known here.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from inspect import isawaitable
from time import perf_counter
from types import CoroutineType
from typing import Any, Final, Protocol, TypeAlias, TypeVar, cast

import msgspec

from hookline._base.cancel import Deadlines, Expired
from hookline._base.errors import HookError, HookReturnError, HookTimeoutError, ToolDenied
from hookline._base.log import log_throw
from hookline._base.returns import ToolFailure
from hookline._hooks.points import DECIDED, END, KEEP, HookOutcome
from hookline._hooks.registration import Hook
from hookline._model.model import PartEndChunk, ToolCallChunk

R = TypeVar("R")
C = TypeVar("C", bound=msgspec.Struct)

_replace = msgspec.structs.replace

Hooks = Sequence[Hook]


class Watch(Protocol):
    """Called after each hook that ran, where `onHook` has observers."""

    async def __call__(self, hook: Hook, outcome: HookOutcome, duration: float) -> None: ...


class Firing(Protocol):
    """What a dispatch needs of the chat that it happens in."""

    @property
    def broken(self) -> bool:
        """Aborted or failed meanwhile: no later hook of the dispatch runs."""
        ...

    @property
    def deadlines(self) -> Deadlines | None: ...
    @property
    def watch(self) -> Watch | None: ...


class OutsideChat:
    """A dispatch that no end of a chat interrupts."""

    broken = False

    def __init__(self, watch: Watch | None = None, deadlines: Deadlines | None = None) -> None:
        self.watch = watch
        self.deadlines = deadlines


OUTSIDE: Final = OutsideChat()


# ── one hook ────────────────────────────────────────────────────────────────────────────────


def in_time(hook: Hook, work: Awaitable[R], firing: Firing) -> Awaitable[R]:
    return work if hook.timeout is None else _limited(hook, work, firing)


async def _limited(hook: Hook, work: Awaitable[R], firing: Firing) -> R:
    assert hook.timeout is not None
    deadlines = firing.deadlines or Deadlines()
    try:
        return await deadlines.run(work, hook.timeout, hook.name)
    except Expired:
        raise HookTimeoutError(hook.spec.name, hook.name, hook.timeout) from None
    finally:
        if firing.deadlines is None:
            deadlines.close()


def fault(hook: Hook, exc: BaseException) -> Exception:
    """The hook's own failure; raises what is not: the chat's cancellation, an interrupt."""
    if isinstance(exc, Exception):
        return exc
    try:
        task = asyncio.current_task()
    except RuntimeError:
        task = None  # scopes may be registered where no loop runs
    if not isinstance(exc, asyncio.CancelledError) or (task is not None and task.cancelling()):
        raise exc
    error = HookError(
        f"hook {hook.name!r} at {hook.spec.name} raised CancelledError; raise an error instead"
    )
    error.__cause__ = exc
    return error


def excuse(hook: Hook, exc: BaseException) -> ToolFailure | None:
    """Apply the hook's failure rule: raise, or return what stands for the hook's answer."""
    exc = fault(hook, exc)
    if denies(hook, exc):
        return ToolFailure.of(exc).replace(type="Denied")
    if hook.options.on_error == "log":
        log_throw(f"hook {hook.name!r} at {hook.spec.name} raised", exc)
        return None
    if hook.options.on_error == "deny":
        log_throw(f"hook {hook.name!r} at {hook.spec.name} raised and denies the call", exc)
        return ToolFailure("the call was denied: its check failed", type="Denied")
    note = f"raised by hook {hook.name!r} at {hook.spec.name}"
    if note not in getattr(exc, "__notes__", ()):
        exc.add_note(note)
    try:
        raise exc
    finally:
        del exc  # or its traceback would hold it


def refusal(hook: Hook, value: object, allowed: str = "") -> HookReturnError:
    return HookReturnError(hook.spec.name, hook.name, value, allowed or hook.spec.allowed)


def _act(hook: Hook, ctx: Any, value: object, refused: type | None = None) -> str:
    """What the value's type does at this point; raises HookReturnError where nothing."""
    spec = hook.spec
    if refused is not None and isinstance(value, refused):
        rest = ", ".join(kind.__name__ for kind in spec.acts if kind is not refused)
        raise refusal(hook, value, f"{rest}, None: the value was converted once already")
    act = spec.acts.get(type(value))
    if act is None:
        act = next((does for kind, does in spec.acts.items() if isinstance(value, kind)), None)
        if act is None or (isinstance(value, bool) and bool not in spec.acts):
            raise refusal(hook, value)
    if spec.check is not None and act is not END and act is not KEEP:
        problem = spec.check(ctx, value)
        if problem:
            raise refusal(hook, value, problem)
    return act


def _outcome(hook: Hook, value: object) -> HookOutcome:
    """What a hook decided, in a word."""
    if value is None or hook.spec.kind != "interceptor":
        return "ok"
    kind = type(value)
    return DECIDED.get(kind, "changed") if hook.spec.acts.get(kind) in (END, KEEP) else "changed"


def denies(hook: Hook, exc: BaseException) -> bool:
    """True if this refuses a call, which is not a failure of the hook."""
    return isinstance(exc, ToolDenied) and hook.spec.name in ("preToolCall", "aroundToolCall")


def stopped() -> asyncio.CancelledError:
    return asyncio.CancelledError("the chat ended during this dispatch")


# ── the loop ────────────────────────────────────────────────────────────────────────────────

# What has become of a context: the ones in its place, None if it stays.
Take: TypeAlias = Callable[[Hook, Any, Any], Sequence[Any] | None]
Failed: TypeAlias = Callable[[Hook, BaseException], ToolFailure | None]


async def _drive(
    hooks: Hooks, ctx: Any, take: Take, firing: Firing, tool: str = "", failed: Failed = excuse
) -> Sequence[Any]:
    """Call each hook with each context in turn; gives the contexts that are left."""
    contexts: Sequence[Any] = (ctx,)
    watch = firing.watch
    for hook in hooks:
        if hook.tools is not None and tool not in hook.tools:
            continue
        after: list[Any] | None = None  # the contexts for the next hook, once one has changed
        for index, ctx in enumerate(contexts):
            made: Sequence[Any] | None = None
            if hook.alive:  # also asked between two deltas: it may be disposed by then
                start = perf_counter()
                try:
                    value = hook.fn(ctx)
                    if value is not None:
                        if value.__class__ is CoroutineType or isawaitable(value):
                            value = await in_time(hook, value, firing)
                        made = _taken(take, hook, ctx, value)
                except BaseException as exc:
                    await _tell_failure(watch, hook, exc, start)
                    made = _taken(take, hook, ctx, failed(hook, exc))
                else:
                    if watch is not None:
                        await watch(hook, _outcome(hook, value), perf_counter() - start)
                if firing.broken:
                    raise stopped()
            if made is not None or after is not None:
                after = _replaced(contexts, index, after, made)
        if after is not None:
            contexts = after
    return contexts


def _taken(take: Take, hook: Hook, ctx: Any, value: Any) -> Sequence[Any] | None:
    return None if value is None else take(hook, ctx, value)


def _replaced(
    contexts: Sequence[Any], index: int, after: list[Any] | None, made: Sequence[Any] | None
) -> list[Any]:
    """The contexts so far, with what was made of the one at the index."""
    if after is None:
        after = list(contexts[:index])
    after.extend((contexts[index],) if made is None else made)
    return after


async def _tell_failure(watch: Watch | None, hook: Hook, exc: BaseException, start: float) -> None:
    if watch is not None:
        outcome: HookOutcome = "blocked" if denies(hook, exc) else "raised"
        await watch(hook, outcome, perf_counter() - start)


def _ignore(hook: Hook, ctx: Any, value: Any) -> None:
    """What an observer returns."""


async def notify(hooks: Hooks, ctx: Any, firing: Firing = OUTSIDE, tool: str = "") -> None:
    """Observers: one after the other, each awaited; what they return is ignored."""
    await _drive(hooks, ctx, _ignore, firing, tool)


class _Chain:
    """What the interceptors of one dispatch have decided so far."""

    __slots__ = ("ctx", "end", "kept", "refused")

    def __init__(self, ctx: Any, refused: type | None) -> None:
        self.ctx = ctx
        self.end: Any = None  # the value that ended it
        self.kept: list[Any] = []
        self.refused = refused

    def take(self, hook: Hook, ctx: Any, value: Any) -> Sequence[Any] | None:
        act = _act(hook, ctx, value, self.refused)
        if act is END:
            self.end = value
            return ()
        if act is KEEP:
            self.kept.append(value)
            return None
        self.ctx = _replace(ctx, **{act: value})
        return (self.ctx,)


async def intercept(
    hooks: Hooks,
    ctx: C,
    firing: Firing = OUTSIDE,
    tool: str = "",
    refused: type | None = None,
) -> tuple[C, Any, list[Any]]:
    """Interceptors: a chain. Gives the last context, what ended the chain, what was kept.

    `refused`: a type that the point takes and this dispatch does not.
    """
    chain = _Chain(ctx, refused)
    await _drive(hooks, ctx, chain.take, firing, tool)
    return chain.ctx, chain.end, chain.kept


async def flow(hooks: Hooks, ctx: Any, firing: Firing = OUTSIDE) -> Sequence[Any]:
    """Deltas: each hook turns one into none, one or several, which later hooks see one by one."""
    return [left.delta for left in await _drive(hooks, ctx, _split, firing)]


def _split(hook: Hook, ctx: Any, value: Any) -> Sequence[Any]:
    """A context for each delta that a hook made of one."""
    return [_replace(ctx, delta=delta) for delta in _deltas(hook, ctx, value)]


def _deltas(hook: Hook, ctx: Any, value: Any) -> Sequence[Any]:
    """Check what `onDelta` returned for one delta, and keep what may not get lost."""
    old = ctx.delta
    new = cast("Sequence[Any]", value if isinstance(value, (tuple, list)) else (value,))
    for delta in new:
        _act(hook, ctx, delta)
        if isinstance(delta, (ToolCallChunk, PartEndChunk)) and delta != old:
            raise refusal(hook, delta, "text and reasoning deltas, or the delta it was given")
    if type(old) is ToolCallChunk and any(delta != old for delta in new):
        raise refusal(hook, new, "for a call the same delta, or an empty tuple to hide it")
    if type(old) is PartEndChunk and old not in new:
        return (*new, old)
    return new


async def call(hook: Hook, ctx: Any, firing: Firing = OUTSIDE) -> None:
    """Call one observer and raise what it raises, where another failure rule applies."""
    await _drive((hook,), ctx, _ignore, firing, failed=_raise)


def _raise(hook: Hook, exc: BaseException) -> None:
    try:
        raise exc
    finally:
        del exc  # or its traceback would hold it
