"""The rules for one hook: its time limit, its failure rule, and the effect of its return value.

`call_rules.py` and `wrappers.py` call hooks by these rules.
"""

from __future__ import annotations

from asyncio import CancelledError
from collections.abc import Awaitable
from typing import Any, TypeVar, cast

from hookline._base.cancel import Deadlines, Expired, being_cancelled
from hookline._base.errors import HookError, HookReturnError, HookTimeoutError, StopChat, ToolDenied
from hookline._base.log import log_throw
from hookline._base.returns import ToolFailure
from hookline._hooks.points import DECIDED, END, KEEP, HookOutcome
from hookline._hooks.registration import Hook

R = TypeVar("R")

# ── its time limit ──────────────────────────────────────────────────────────────────────────


def in_time(hook: Hook, work: Awaitable[R], deadlines: Deadlines | None) -> Awaitable[R]:
    # No coroutine of our own without a limit, because most hooks have none.
    return work if hook.timeout is None else _limited(hook, work, hook.timeout, deadlines)


async def _limited(
    hook: Hook, work: Awaitable[R], seconds: float, deadlines: Deadlines | None
) -> R:
    timers = deadlines or Deadlines()
    try:
        return await timers.run(work, seconds, hook.name)
    except Expired:
        raise HookTimeoutError(hook.spec.name, hook.name, seconds) from None
    finally:
        if deadlines is None:
            timers.close()


# ── its failure ─────────────────────────────────────────────────────────────────────────────


def fault(hook: Hook, exc: BaseException) -> Exception:
    """Return the hook's own failure; re-raises a cancellation of the chat, or an interrupt."""
    if isinstance(exc, Exception):
        return exc
    if not isinstance(exc, CancelledError) or being_cancelled():
        raise exc
    error = HookError(
        f"hook {hook.name!r} at {hook.spec.name} raised CancelledError; "
        "raise a subclass of Exception instead"
    )
    error.__cause__ = exc
    return error


def log_fault(hook: Hook, exc: BaseException) -> None:
    """Log the hook's own failure; re-raises as `fault` does."""
    log_throw(f"hook {hook.name!r} at {hook.spec.name} raised", fault(hook, exc))


def excuse(hook: Hook, exc: BaseException) -> ToolFailure | None:
    """Apply the hook's failure rule: raise, or return the answer to use in place of the hook's."""
    exc = fault(hook, exc)
    if _denies(hook, exc):
        return ToolFailure.of(exc).replace(type="Denied")
    if hook.options.on_error == "log":
        log_fault(hook, exc)
        return None
    if hook.options.on_error == "deny":
        log_throw(
            f"hook {hook.name!r} at {hook.spec.name} raised an exception, so the call is denied",
            exc,
        )
        return ToolFailure("the call was denied: its check failed", type="Denied")
    note = f"raised by hook {hook.name!r} at {hook.spec.name}"
    if note not in getattr(exc, "__notes__", ()):  # a hook may raise the same exception again
        exc.add_note(note)
    try:
        raise exc
    finally:
        del exc  # otherwise its traceback would refer to it


def _denies(hook: Hook, exc: BaseException) -> bool:
    """Return whether this exception refuses a call, which is not a failure of the hook."""
    return isinstance(exc, ToolDenied) and hook.spec.name in ("preToolCall", "aroundToolCall")


def outcome_of_error(hook: Hook, exc: BaseException) -> HookOutcome:
    """Return the outcome of a hook that raised."""
    if _denies(hook, exc):
        return "blocked"
    stops = isinstance(exc, StopChat) and hook.spec.name in ("aroundRequest", "onResponse")
    return "stopped" if stops else "raised"


# ── its return value ────────────────────────────────────────────────────────────────────────


def _act_of(hook: Hook, value: object) -> str | None:
    """Return the effect of the value's type, or of a type that it is derived from."""
    acts = hook.spec.acts
    act = acts.get(type(value))
    if act is None and not isinstance(value, bool):  # a bool never stands for an int
        act = next((does for kind, does in acts.items() if isinstance(value, kind)), None)
    return act


def effect_of(hook: Hook, ctx: Any, value: object, not_allowed: type | None = None) -> str:
    """Return the effect of the value at this point; raises HookReturnError if it is not allowed."""
    spec = hook.spec
    if not_allowed is not None and isinstance(value, not_allowed):
        rest = ", ".join(kind.__name__ for kind in spec.acts if kind is not not_allowed)
        raise refusal(hook, value, f"{rest}, None (the value was already converted once)")
    act = _act_of(hook, value)
    if act is None:
        raise refusal(hook, value)
    if spec.check is not None and act is not END:
        problem = spec.check(ctx, value)
        if problem:
            raise refusal(hook, value, problem)
    return act


def parts_of(hook: Hook, value: object) -> tuple[object, ...]:
    """Return the values that a hook returned: one, or the two of a point's pair."""
    pair = hook.spec.pair
    if pair is None or not isinstance(value, tuple):
        return (value,)
    parts = cast("tuple[object, ...]", value)
    if len(parts) != 2 or not all(map(isinstance, parts, pair)):
        raise refusal(hook, parts)
    return parts


def refusal(hook: Hook, value: object, may_return: str = "") -> HookReturnError:
    return HookReturnError(hook.spec.name, hook.name, value, may_return or hook.spec.may_return)


def outcome_of_value(hook: Hook, value: object) -> HookOutcome:
    """Return the outcome of an observer or interceptor that returned this value."""
    if value is None or hook.spec.kind != "interceptor":
        return "ok"
    last = parts_of(hook, value)[-1]
    if _act_of(hook, last) in (END, KEEP):
        for kind, outcome in DECIDED.items():
            if isinstance(last, kind):
                return outcome
    return "changed"
