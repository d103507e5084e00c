"""The call rules: notify, intercept (and `hear`, its quick way), flow (deltas), wrap. Nothing else
calls a hook.

Each function takes the hooks that stood at the start of the dispatch, in order, and a context.
An exception is a value until the hook's own failure rule has looked at it: `raise` (with a note
that names hook and point), `log` (the value stays the last good one) or `deny`. What registers
hooks, and what the points mean, is not known here. It is long because the four rules are read side
by side: what one does about a throw, the others do.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from inspect import isawaitable
from time import perf_counter
from types import CoroutineType
from typing import Any, Final, Protocol, TypeGuard, TypeVar, cast

import msgspec

from hookline._base.cancel import Deadlines, Expired
from hookline._base.errors import HookError, HookReturnError, HookTimeoutError, ToolDenied
from hookline._base.log import log_throw
from hookline._base.returns import ToolFailure
from hookline._hooks.points import DECIDED, END, KEEP, HookOutcome, OnHook, head_of
from hookline._hooks.registration import Hook
from hookline._model.model import PartEndChunk, ToolCallChunk

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
    def view(self) -> Watched:
        """Whether `onHook` has observers: an attribute, since each dispatch looks."""
        ...

    @property
    def watch(self) -> Watch | None: ...


class Watched(Protocol):
    """What knows the observers of `onHook`."""

    @property
    def onHook(self) -> Sequence[Any]: ...


class Watch(Protocol):
    """Told of each hook that ran, where `onHook` has observers."""

    async def __call__(self, hook: Hook, outcome: HookOutcome, duration: float) -> None: ...


class Alone:
    """The conduct of a bus without a chat."""

    broken = False

    def __init__(self, watch: Watch | None = None, deadlines: Deadlines | None = None) -> None:
        self.watch = watch
        self.deadlines = deadlines
        self.onHook = () if watch is None else (watch,)

    @property
    def view(self) -> Watched:
        return self


ALONE: Final = Alone()


# ── one hook ────────────────────────────────────────────────────────────────────────────────


async def _limited(hook: Hook, work: Awaitable[R], conduct: Conduct) -> R:
    assert hook.timeout is not None
    deadlines = conduct.deadlines or Deadlines()
    try:
        return await deadlines.run(work, hook.timeout, hook.name)
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
    error = HookError(
        f"hook {hook.name!r} at {hook.head.name} raised CancelledError; raise an error instead"
    )
    error.__cause__ = exc
    return error


def excuse(hook: Hook, exc: BaseException) -> ToolFailure | None:
    """Apply the hook's failure rule: raise, or return what stands for the hook's answer."""
    exc = fault(hook, exc)
    if _denies(hook, exc):
        return ToolFailure.of(exc)
    if hook.options.on_error == "log":
        log_throw(f"hook {hook.name!r} at {hook.head.name} raised", exc)
        return None
    if hook.options.on_error == "deny":
        log_throw(f"hook {hook.name!r} at {hook.head.name} raised and denies the call", exc)
        return ToolFailure("the call was denied: its check failed", type="Denied")
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
    if hook.timeout is not None or conduct.view.onHook:
        return await _watched(hook, ctx, conduct)
    value = hook.fn(ctx)
    return await value if _awaits(value) else value


def watcher(view: Watched, run: Any) -> Watch:
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
            except BaseException as exc:
                log_throw(f"hook {observer.name!r} at onHook raised", fault(observer, exc))

    return watch


def _awaits(value: Any) -> TypeGuard[Awaitable[Any]]:
    return type(value) is CoroutineType or isawaitable(value)


def _stopped() -> asyncio.CancelledError:
    return asyncio.CancelledError("the chat ended during this dispatch")


# ── the rules ───────────────────────────────────────────────────────────────────────────────


async def notify(hooks: Hooks, ctx: Any, conduct: Conduct = ALONE, tool: str = "") -> None:
    """Observers: one after the other, each awaited, what they return ignored."""
    slow = conduct.view.onHook
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


class _Said(msgspec.Struct, eq=False):
    """What the first hook of a chain has said already, or raised."""

    value: Any = None
    raised: BaseException | None = None

    def again(self) -> Any:
        """The value, or the throw once more."""
        raised, self.raised = self.raised, None
        if raised is None:
            return self.value
        try:
            raise raised
        finally:
            del raised  # or its traceback would hold it


def hear(
    hooks: Hooks, ctx: C, conduct: Conduct, tool: str = ""
) -> Awaitable[tuple[C, Any, list[Any]]] | None:
    """`intercept` without a coroutine as long as hooks are plain functions and say nothing.

    None where nobody had anything to say, as in most chains; else what is to be awaited.
    """
    if conduct.view.onHook:
        return intercept(hooks, ctx, conduct, tool)
    for hook in hooks:
        if not hook.alive or (hook.tools is not None and tool not in hook.tools):
            continue
        if hook.is_async:
            if hook is hooks[-1] and hook.timeout is None:
                return _last(hook, ctx, conduct, tool)
            return intercept(_from(hook, hooks), ctx, conduct, tool)
        try:
            value = hook.fn(ctx)
        except BaseException as exc:
            return intercept(_from(hook, hooks), ctx, conduct, tool, said=_Said(raised=exc))
        if value is not None:
            return intercept(_from(hook, hooks), ctx, conduct, tool, said=_Said(value))
        if conduct.broken:
            raise _stopped()
    return None


async def _last(hook: Hook, ctx: C, conduct: Conduct, tool: str) -> tuple[C, Any, list[Any]]:
    """The last hook of a chain, a coroutine function, in as little as it can be awaited in."""
    try:
        value = await hook.fn(ctx)
    except BaseException as exc:
        said = _Said(raised=exc)
    else:
        if value is None and not conduct.broken:
            return ctx, None, []
        said = _Said(value)
    return await intercept((hook,), ctx, conduct, tool, said=said)


def _from(hook: Hook, hooks: Hooks) -> Hooks:
    return hooks[hooks.index(hook) :]


async def intercept(
    hooks: Hooks,
    ctx: C,
    conduct: Conduct = ALONE,
    tool: str = "",
    refused: type | None = None,
    said: _Said | None = None,
) -> tuple[C, Any, list[Any]]:
    """Interceptors: a chain. Gives the last context, what ended the chain, what was kept.

    `refused`: a type that the point takes and this dispatch does not. `said`: by the first.
    """
    slow = conduct.view.onHook
    kept: list[Any] = []
    act: str | None = None  # what the value of this hook does
    value: Any
    for hook in hooks:
        if said is None and (not hook.alive or (hook.tools is not None and tool not in hook.tools)):
            continue
        try:
            if said is None and (slow or hook.timeout is not None):
                value = await _watched(hook, ctx, conduct, refused)
            else:
                if said is None:
                    value = hook.fn(ctx)
                else:  # by the first, which is not called again, whoever watches by now
                    first, said = said, None
                    value = first.again()
                if value is not None and (value.__class__ is CoroutineType or _awaits(value)):
                    value = await value
            if value is not None:
                act = _act(hook, ctx, value, refused)
        except BaseException as exc:
            value = excuse(hook, exc)
            if value is not None:
                act = END
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
        act = None
    return ctx, None, kept


async def flow(hooks: Hooks, ctx: Any, conduct: Conduct = ALONE) -> Sequence[Any]:
    """Deltas: each hook turns one into none, one or several, which later hooks see one by one."""
    deltas: Sequence[Any] = (ctx.delta,)
    slow = conduct.view.onHook
    for hook in hooks:
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
    return _inside(_Onion(hooks, field, inner, conduct, tool, again), 0, ctx)


class _Onion(msgspec.Struct, frozen=True, eq=False):
    hooks: Hooks
    field: str  # of the context: the payload
    inner: Callable[[Any], Awaitable[Any]]
    conduct: Conduct
    tool: str
    again: Callable[[], str | None] | None


def _inside(onion: _Onion, index: int, ctx: Any) -> Awaitable[Any]:
    """The next layer that stands, or what is inside of all: nothing but a call."""
    hooks = onion.hooks
    while index < len(hooks):
        hook = hooks[index]
        if hook.alive and (hook.tools is None or not onion.tool or onion.tool in hook.tools):
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
            if onion.conduct.broken:
                raise _stopped()
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
            raise HookError(f"hook {self.hook.name!r} at {self.hook.head.name}: {problem}")

    def _changed(self, payload: Any) -> Any:
        """The context with what the hook hands on."""
        head = self.hook.head
        if not isinstance(payload, head.takes):
            names = ", ".join(kind.__name__ for kind in head.takes)
            raise _refuse(self.hook, payload, f"{names} for proceed()")
        problem = head.check(self.ctx, payload) if head.check is not None else None
        if problem:
            raise _refuse(self.hook, payload, f"{problem} for proceed()")
        return _replace(self.ctx, **{self.onion.field: payload})


async def _layer(onion: _Onion, index: int, hook: Hook, ctx: Any) -> Any:
    conduct = onion.conduct
    proceed = _Way(onion, index, hook, ctx)
    watch = conduct.watch if conduct.view.onHook else None
    start = perf_counter() if watch is not None else 0.0
    outcome: HookOutcome = "ok"
    try:
        value: Any = hook.fn(ctx, proceed)
        if value.__class__ is CoroutineType or _awaits(value):
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
