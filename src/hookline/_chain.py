"""The call rules: notify, intercept, flow (deltas), wrap. Nothing else calls a hook.

Each function takes the hooks that stood at the start of the dispatch, in order, and a context.
An exception is a value until the hook's own failure rule has looked at it: `raise` (with a note
that names hook and point), `log` (the value stays the last good one) or `deny`. What registers
hooks, and what the points mean, is not known here.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from inspect import isawaitable
from time import perf_counter
from types import CoroutineType
from typing import Any, Final, Protocol, TypeGuard, TypeVar, cast

import msgspec

from hookline._deadline import Deadlines, Expired
from hookline._errors import HookError, HookReturnError, HookTimeoutError, ToolDenied
from hookline._log import log_throw
from hookline._model import PartEndChunk, ToolCallChunk
from hookline._outcomes import ToolError
from hookline._points import DECIDED, END, KEEP, HookOutcome, head_of
from hookline._proceed import Proceed
from hookline._registration import Hook

R = TypeVar("R")
C = TypeVar("C", bound=msgspec.Struct)

_replace = msgspec.structs.replace

Hooks = Sequence[Hook]


class Conduct(Protocol):
    """What a dispatch needs of the chat it happens in."""

    @property
    def broken(self) -> bool:
        """Aborted or failed meanwhile: no later hook of the dispatch runs."""
        ...

    @property
    def deadlines(self) -> Deadlines | None: ...
    @property
    def watch(self) -> Watch | None: ...


class Watch(Protocol):
    """Told of each hook that ran, where `onHook` has observers."""

    async def __call__(self, hook: Hook, outcome: HookOutcome, duration: float) -> None: ...


class Alone:
    """The conduct of a bus without a chat."""

    broken = False

    def __init__(self, watch: Watch | None = None, deadlines: Deadlines | None = None) -> None:
        self.watch = watch
        self.deadlines = deadlines


ALONE: Final = Alone()


# ── one hook ────────────────────────────────────────────────────────────────────────────────


async def _limited(hook: Hook, work: Awaitable[R], conduct: Conduct) -> R:
    assert hook.timeout is not None
    deadlines = conduct.deadlines or Deadlines()
    try:
        return await deadlines.run(work, hook.timeout)
    except Expired:
        raise HookTimeoutError(hook.head.name, hook.name, hook.timeout) from None
    finally:
        if conduct.deadlines is None:
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
    error = HookError(f"hook {hook.name!r} at {hook.head.name} raised CancelledError")
    error.__cause__ = exc
    return error


def excuse(hook: Hook, exc: BaseException) -> ToolError | None:
    """Apply the hook's failure rule: raise, or return what stands for the hook's answer."""
    exc = fault(hook, exc)
    if _denies(hook, exc):
        return ToolError.of(exc)
    if hook.on_error == "log":
        log_throw(f"hook {hook.name!r} at {hook.head.name} raised", exc)
        return None
    if hook.on_error == "deny":
        log_throw(f"hook {hook.name!r} at {hook.head.name} raised and denies the call", exc)
        return ToolError("the call was denied: its check failed", type="Denied")
    note = f"raised by hook {hook.name!r} at {hook.head.name}"
    if note not in getattr(exc, "__notes__", ()):
        exc.add_note(note)
    try:
        raise exc
    finally:
        del exc  # or its traceback would hold it


def _refuse(hook: Hook, value: object, allowed: str = "") -> HookReturnError:
    return HookReturnError(hook.head.name, hook.name, value, allowed or hook.head.allowed)


def _act(hook: Hook, ctx: Any, value: object, refused: type | None = None) -> str:
    """What the value's type does at this point; raises HookReturnError where nothing."""
    head = hook.head
    if refused is not None and isinstance(value, refused):
        rest = ", ".join(kind.__name__ for kind in head.acts if kind is not refused)
        raise _refuse(hook, value, f"{rest}, None: the value was converted once already")
    act = head.acts.get(type(value))
    if act is None:
        act = next((does for kind, does in head.acts.items() if isinstance(value, kind)), None)
        if act is None or (isinstance(value, bool) and bool not in head.acts):
            raise _refuse(hook, value)
    if head.check is not None and act is not END and act is not KEEP:
        problem = head.check(ctx, value)
        if problem:
            raise _refuse(hook, value, problem)
    return act


def _outcome(hook: Hook, value: object) -> HookOutcome:
    """What an interceptor decided, in a word."""
    kind = type(value)
    return DECIDED.get(kind, "changed") if hook.head.acts.get(kind) in (END, KEEP) else "changed"


async def _watched(hook: Hook, ctx: Any, conduct: Conduct, refused: type | None = None) -> Any:
    """Call one hook the slow way: its time limit, and `onHook` told."""
    watch = conduct.watch
    start = perf_counter()
    outcome: HookOutcome = "ok"
    try:
        value = hook.fn(ctx)
        if _awaits(value):
            value = await (_limited(hook, value, conduct) if hook.timeout else value)
        if value is not None and hook.head.kind == "interceptor":
            if hook.head.flat:
                _deltas(hook, ctx, value)
            else:
                _act(hook, ctx, value, refused)
            outcome = _outcome(hook, value)
        return value
    except BaseException as exc:
        outcome = "blocked" if _denies(hook, exc) else "raised"
        raise
    finally:
        if watch is not None:
            await watch(hook, outcome, perf_counter() - start)


def _denies(hook: Hook, exc: BaseException) -> bool:
    return isinstance(exc, ToolDenied) and hook.head.name == "preToolCall"


async def call(hook: Hook, ctx: Any, conduct: Conduct = ALONE) -> Any:
    """Call one hook, whatever it is: for the few dispatches with rules of their own."""
    if hook.timeout is not None or conduct.watch is not None:
        return await _watched(hook, ctx, conduct)
    value = hook.fn(ctx)
    return await value if _awaits(value) else value


def _awaits(value: Any) -> TypeGuard[Awaitable[Any]]:
    return type(value) is CoroutineType or isawaitable(value)


def _stopped() -> asyncio.CancelledError:
    return asyncio.CancelledError("the chat ended during this dispatch")


# ── the rules ───────────────────────────────────────────────────────────────────────────────


async def notify(hooks: Hooks, ctx: Any, conduct: Conduct = ALONE, tool: str = "") -> None:
    """Observers: one after the other, each awaited, what they return ignored."""
    slow = conduct.watch is not None
    for hook in hooks:
        if not hook.alive or (hook.tools is not None and tool not in hook.tools):
            continue
        try:
            if slow or hook.timeout is not None:
                await _watched(hook, ctx, conduct)
            else:
                value = hook.fn(ctx)
                if value is not None and _awaits(value):
                    await value
        except BaseException as exc:
            excuse(hook, exc)
        if conduct.broken:
            raise _stopped()


async def intercept(
    hooks: Hooks,
    ctx: C,
    conduct: Conduct = ALONE,
    tool: str = "",
    refused: type | None = None,
) -> tuple[C, Any, list[Any]]:
    """Interceptors: a chain. Gives the last context, what ended the chain, what was kept.

    `refused`: a type that the point takes and this dispatch does not.
    """
    slow = conduct.watch is not None
    kept: list[Any] = []
    for hook in hooks:
        if not hook.alive or (hook.tools is not None and tool not in hook.tools):
            continue
        try:
            if slow or hook.timeout is not None:
                value = await _watched(hook, ctx, conduct, refused)
            else:
                value = hook.fn(ctx)
                if value is not None and _awaits(value):
                    value = await value
            act = None if value is None else _act(hook, ctx, value, refused)
        except BaseException as exc:
            value = excuse(hook, exc)
            act = None if value is None else END
        if conduct.broken:
            raise _stopped()
        if act is None:
            continue
        if act is END:
            return ctx, value, kept
        if act is KEEP:
            kept.append(value)
        else:
            ctx = _replace(ctx, **{act: value})
    return ctx, None, kept


async def flow(hooks: Hooks, ctx: Any, conduct: Conduct = ALONE) -> Sequence[Any]:
    """Deltas: each hook turns one into none, one or several, which later hooks see one by one."""
    deltas: Sequence[Any] = (ctx.delta,)
    slow = conduct.watch is not None
    for hook in hooks:
        if not hook.alive:
            continue
        out: list[Any] = []
        for delta in deltas:
            if not hook.alive:
                out.append(delta)
                continue
            if delta is not ctx.delta:
                ctx = _replace(ctx, delta=delta)
            try:
                if slow or hook.timeout is not None:
                    value = await _watched(hook, ctx, conduct)
                else:
                    value = hook.fn(ctx)
                    if value is not None and _awaits(value):
                        value = await value
                new = (delta,) if value is None else _deltas(hook, ctx, value)
            except BaseException as exc:
                excuse(hook, exc)
                new = (delta,)
            if conduct.broken:
                raise _stopped()
            out.extend(new)
        deltas = out
    return deltas


def _deltas(hook: Hook, ctx: Any, value: Any) -> Sequence[Any]:
    """Check what `onDelta` returned for one delta, and keep what may not get lost."""
    old = ctx.delta
    new = cast("Sequence[Any]", value if isinstance(value, (tuple, list)) else (value,))
    for delta in new:
        _act(hook, ctx, delta)
        if isinstance(delta, (ToolCallChunk, PartEndChunk)) and delta != old:
            raise _refuse(hook, delta, "text and reasoning deltas, or the delta it was given")
    if type(old) is ToolCallChunk and any(delta != old for delta in new):
        raise _refuse(hook, new, "for a call the same delta, or an empty tuple to hide it")
    if type(old) is PartEndChunk and old not in new:
        return (*new, old)
    return new


def wrap(
    hooks: Hooks,
    ctx: Any,
    inner: Callable[[Any], Awaitable[R]],
    conduct: Conduct = ALONE,
    *,
    tool: str = "",
    again: Callable[[], str | None] | None = None,
) -> Awaitable[R]:
    """Wrappers: an onion whose first hook is the outermost; `inner` gets the point's payload.

    `again` is asked before a further call of one `proceed`; a text refuses it.
    """
    field = hooks[0].head.payload if hooks else head_of(ctx.__class__).payload
    if tool:
        hooks = [hook for hook in hooks if hook.tools is None or tool in hook.tools]
    return _inside(_Onion(hooks, field, inner, conduct, again), 0, ctx)


class _Onion:
    __slots__ = ("again", "conduct", "field", "hooks", "inner")

    def __init__(self, hooks: Hooks, field: str, inner: Any, conduct: Conduct, again: Any) -> None:
        self.hooks = hooks
        self.field = field
        self.inner = inner
        self.conduct = conduct
        self.again = again


def _inside(onion: _Onion, index: int, ctx: Any) -> Awaitable[Any]:
    """The next layer that stands, or what is inside of all: nothing but a call."""
    hooks = onion.hooks
    while index < len(hooks):
        if hooks[index].alive:
            return _layer(onion, index, hooks[index], ctx)
        index += 1
    work: Awaitable[Any] = onion.inner(getattr(ctx, onion.field))
    return work


class _Way(Proceed[Any, Any]):
    """The way on from one layer."""

    __slots__ = ("_ctx", "_hook", "_index", "_onion")

    def __init__(self, onion: _Onion, index: int, hook: Hook, ctx: Any) -> None:
        self.calls = 0  # what the base class does: a call less for each layer
        self.running = False
        self.over = False
        self.result = None
        self.error = None
        self._onion = onion
        self._index = index
        self._hook = hook
        self._ctx = ctx

    def _go(self, payload: Any) -> Awaitable[Any]:
        onion, hook, ctx = self._onion, self._hook, self._ctx
        if onion.conduct.broken:
            raise _stopped()
        if self.calls > 1 and onion.again is not None:
            problem = onion.again()
            if problem:
                raise HookError(f"hook {hook.name!r} at {hook.head.name}: {problem}")
        if payload is not None:
            takes = hook.head.takes
            if not isinstance(payload, takes):
                names = ", ".join(kind.__name__ for kind in takes)
                raise _refuse(hook, payload, f"{names} for proceed()")
            problem = hook.head.check(ctx, payload) if hook.head.check is not None else None
            if problem:
                raise _refuse(hook, payload, f"{problem} for proceed()")
            ctx = _replace(ctx, **{onion.field: payload})
        return _inside(onion, self._index + 1, ctx)


async def _layer(onion: _Onion, index: int, hook: Hook, ctx: Any) -> Any:
    conduct = onion.conduct
    proceed = _Way(onion, index, hook, ctx)
    watch = conduct.watch
    start = perf_counter() if watch is not None else 0.0
    outcome: HookOutcome = "ok"
    try:
        value = hook.fn(ctx, proceed)
        if type(value) is CoroutineType or isawaitable(value):
            value = await (value if hook.timeout is None else _limited(hook, value, conduct))
        if value.__class__ not in hook.head.acts and not isinstance(value, tuple(hook.head.acts)):
            raise _refuse(hook, value)
        if proceed.calls != 1:
            outcome = "answered" if proceed.calls == 0 else "changed"
        elif value is not proceed.result:
            outcome = "changed"
        return value
    except BaseException as exc:
        if exc is proceed.error:
            raise  # what it wraps failed, not the wrapper
        outcome = "raised"
        excuse(hook, exc)
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
