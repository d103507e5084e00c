"""The call rules: how observers and interceptors are called. `wrappers.py` calls wrappers.

Theory of operation. A dispatch gets the hooks of one point in order, as registered when it began,
and a context. `_drive` is the loop behind observers, interceptors and deltas. For each hook it
checks that the hook is still registered and applies to this tool, calls the hook, and awaits the
returned value if it is awaitable. A value other than None is passed to `take`, which decides what
happens to the context:

- `notify` ignores the value, and the context stays the same.
- `intercept` looks up the value's type in the point's row. Either the context gets the value as its
  new payload, or the value is kept and the context stays the same, or the value ends the chain.
- `flow` replaces one delta by none, one or several. Later hooks see each of them separately.

A sync hook creates no coroutine. An exception is treated as a value until the hook's own failure
rule (`excuse`) has handled it: it is raised again with a note that names hook and point, or logged,
or it denies the call. After each hook the loop checks whether the chat has ended.

Wrappers are nested calls instead of a loop; they use the same failure rule and time limits. This
module does not depend on chats or registration.
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
from hookline._base.errors import HookError, HookReturnError, HookTimeoutError, StopChat, ToolDenied
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
    """Called after each hook that ran, if `onHook` has observers."""

    async def __call__(
        self,
        hook: Hook,
        outcome: HookOutcome,
        duration: float,
        ctx: Any,
        value: Any = None,
        way: Any = None,
    ) -> None: ...


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
    """Return the hook's own failure; re-raises a cancellation of the chat, or an interrupt."""
    if isinstance(exc, Exception):
        return exc
    try:
        task = asyncio.current_task()
    except RuntimeError:
        task = None  # no event loop is running, as when a scope is registered outside one
    if not isinstance(exc, asyncio.CancelledError) or (task is not None and task.cancelling()):
        raise exc
    error = HookError(
        f"hook {hook.name!r} at {hook.spec.name} raised CancelledError; "
        "raise a subclass of Exception instead"
    )
    error.__cause__ = exc
    return error


def excuse(hook: Hook, exc: BaseException) -> ToolFailure | None:
    """Apply the hook's failure rule: raise, or return the answer to use in place of the hook's."""
    exc = fault(hook, exc)
    if denies(hook, exc):
        return ToolFailure.of(exc).replace(type="Denied")
    if hook.options.on_error == "log":
        log_throw(f"hook {hook.name!r} at {hook.spec.name} raised", exc)
        return None
    if hook.options.on_error == "deny":
        log_throw(
            f"hook {hook.name!r} at {hook.spec.name} raised an exception, so the call is denied",
            exc,
        )
        return ToolFailure("the call was denied: its check failed", type="Denied")
    note = f"raised by hook {hook.name!r} at {hook.spec.name}"
    if note not in getattr(exc, "__notes__", ()):
        exc.add_note(note)
    try:
        raise exc
    finally:
        del exc  # otherwise its traceback would refer to it


def refusal(hook: Hook, value: object, allowed: str = "") -> HookReturnError:
    return HookReturnError(hook.spec.name, hook.name, value, allowed or hook.spec.allowed)


def _act(hook: Hook, ctx: Any, value: object, refused: type | None = None) -> str:
    """Return the effect of the value's type at this point; raises HookReturnError if none."""
    spec = hook.spec
    if refused is not None and isinstance(value, refused):
        rest = ", ".join(kind.__name__ for kind in spec.acts if kind is not refused)
        raise refusal(hook, value, f"{rest}, None (the value was already converted once)")
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
    """Return the hook's decision as an outcome."""
    if value is None or hook.spec.kind != "interceptor":
        return "ok"
    kind = type(value)
    return DECIDED.get(kind, "changed") if hook.spec.acts.get(kind) in (END, KEEP) else "changed"


def denies(hook: Hook, exc: BaseException) -> bool:
    """Return whether this exception refuses a call, which is not a failure of the hook."""
    return isinstance(exc, ToolDenied) and hook.spec.name in ("preToolCall", "aroundToolCall")


def outcome_of(hook: Hook, exc: BaseException) -> HookOutcome:
    """Return the outcome of a hook that raised."""
    if denies(hook, exc):
        return "blocked"
    stops = isinstance(exc, StopChat) and hook.spec.name in ("aroundRequest", "onResponse")
    return "stopped" if stops else "raised"


def stopped() -> asyncio.CancelledError:
    return asyncio.CancelledError("the chat ended during this dispatch")


# ── the loop ────────────────────────────────────────────────────────────────────────────────

# Returns the contexts that replace a context; None if it stays the same.
Take: TypeAlias = Callable[[Hook, Any, Any], Sequence[Any] | None]


async def _drive(
    hooks: Hooks, ctx: Any, take: Take, firing: Firing, tool: str = ""
) -> Sequence[Any]:
    """Call each hook with each context in turn; returns the contexts at the end."""
    contexts: Sequence[Any] = (ctx,)
    watch = firing.watch
    for hook in hooks:
        if hook.tools is not None and tool not in hook.tools:
            continue
        after: list[Any] | None = None  # the contexts for the next hook, once one of them changed
        for index, ctx in enumerate(contexts):
            made: Sequence[Any] | None = None
            if hook.alive:  # checked for each delta, because the hook may be disposed in between
                start = perf_counter()
                try:
                    value = hook.fn(ctx)
                    if value is not None:
                        if value.__class__ is CoroutineType or isawaitable(value):
                            value = await in_time(hook, value, firing)
                        made = _taken(take, hook, ctx, value)
                except BaseException as exc:
                    await _tell_failure(watch, hook, exc, start, ctx)
                    made = _taken(take, hook, ctx, excuse(hook, exc))
                else:
                    if watch is not None:
                        spent = perf_counter() - start
                        await watch(hook, _outcome(hook, value), spent, ctx, value)
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
    """Extend the new contexts with the replacement of the context at this index."""
    if after is None:
        after = list(contexts[:index])
    after.extend((contexts[index],) if made is None else made)
    return after


async def _tell_failure(
    watch: Watch | None, hook: Hook, exc: BaseException, start: float, ctx: Any
) -> None:
    if watch is not None:
        await watch(hook, outcome_of(hook, exc), perf_counter() - start, ctx)


def _ignore(hook: Hook, ctx: Any, value: Any) -> None:
    """Ignore the return value of an observer."""


async def notify(hooks: Hooks, ctx: Any, firing: Firing = OUTSIDE, tool: str = "") -> None:
    """Call observers one after the other and await each; their return values are ignored."""
    await _drive(hooks, ctx, _ignore, firing, tool)


class _Chain:
    """The decisions of one dispatch's interceptors so far."""

    __slots__ = ("ctx", "end", "kept", "refused")

    def __init__(self, ctx: Any, refused: type | None) -> None:
        self.ctx = ctx
        self.end: Any = None  # the value that ended the chain
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
    """Call interceptors as a chain; returns the last context, the value at the end, kept values.

    `refused` is a type that the point accepts but this dispatch does not.
    """
    chain = _Chain(ctx, refused)
    await _drive(hooks, ctx, chain.take, firing, tool)
    return chain.ctx, chain.end, chain.kept


async def flow(hooks: Hooks, ctx: Any, firing: Firing = OUTSIDE) -> Sequence[Any]:
    """Call delta hooks: each turns a delta into none, one or several for the later hooks."""
    return [left.delta for left in await _drive(hooks, ctx, _split, firing)]


def _split(hook: Hook, ctx: Any, value: Any) -> Sequence[Any]:
    """Make a context for each delta that a hook returned."""
    return [_replace(ctx, delta=delta) for delta in _deltas(hook, ctx, value)]


def _deltas(hook: Hook, ctx: Any, value: Any) -> Sequence[Any]:
    """Check the return value of `onDelta`, and keep deltas that must not be lost."""
    old = ctx.delta
    new = cast("Sequence[Any]", value if isinstance(value, (tuple, list)) else (value,))
    for delta in new:
        _act(hook, ctx, delta)
        if isinstance(delta, (ToolCallChunk, PartEndChunk)) and delta != old:
            raise refusal(hook, delta, "text and reasoning deltas, or the delta itself, unchanged")
    if type(old) is ToolCallChunk and any(delta != old for delta in new):
        raise refusal(hook, new, "for a call, the same delta, or an empty tuple to hide it")
    if type(old) is PartEndChunk and old not in new:
        return (*new, old)
    return new
