"""`rate_limit`: limit the calls per time, by tool, by conversation, or by a key of your own.

Checking and counting a call is one atomic operation: no matter how many chats run at the same time,
also in threads, no time window ever has more calls than allowed. Refused calls do not count.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Hashable, Iterable
from math import ceil, inf
from threading import RLock
from time import monotonic
from typing import Any, Final, Literal

from hookline import Deny, Run
from hookline.errors import UsageError
from hookline.hooks._common import GUARD, LAST, Hooks, PerChat, definer
from hookline.points import OnChatEnd, OnChatStart, PreToolCall

By = Literal["tool", "conversation", "chat"] | Callable[[PreToolCall[Any]], Hashable]
"""What calls are counted by, or a function that returns the key."""

# Held only briefly, so one lock is enough for all limits. A fork acquires it first, because a child
# would otherwise inherit a lock that another thread held and that nothing would ever release.
_lock: Final = RLock()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(
        before=_lock.acquire, after_in_parent=_lock.release, after_in_child=_lock.release
    )


class _Windows:
    """The recent times of the calls of each key."""

    def __init__(self, calls: int, per: float, clock: Callable[[], float]) -> None:
        self._calls = calls
        self._per = per
        self._clock = clock
        self._times: dict[Hashable, deque[float]] = {}
        self._sweep_at = 1024

    def take(self, key: Hashable) -> float | None:
        """Count one more call; returns None, or the seconds until a call is allowed."""
        with _lock:
            now = self._clock()
            times = self._times.get(key)
            if times is None:
                self._sweep(now)
                times = self._times[key] = deque()
            while times and now - times[0] >= self._per:
                times.popleft()
            if len(times) >= self._calls:
                return self._per - (now - times[0]) if times else inf
            times.append(now)
            return None

    def forget(self, key: Hashable) -> None:
        """Forget the calls of a key that nothing will ask for again."""
        with _lock:
            self._times.pop(key, None)

    def _sweep(self, now: float) -> None:
        """Remove keys without recent calls."""
        if len(self._times) < self._sweep_at:
            return
        self._times = {
            key: times
            for key, times in self._times.items()
            if times and now - times[-1] < self._per
        }
        self._sweep_at = max(1024, 2 * len(self._times))


def rate_limit(
    calls: int,
    per: float | None = None,
    *,
    by: By = "tool",
    tools: Iterable[str] | None = None,
    clock: Callable[[], float] = monotonic,
    inherit: bool = True,
    required: bool = True,
) -> Hooks:
    """Allow at most `calls` tool calls in any period of `per` seconds, for each key.

    With `per=None`, the limit never resets. `by` chooses the key: "tool", "conversation", "chat",
    or a function that returns the key, such as the caller's id. With "conversation", a chat without
    a conversation has its own key. Calls of a sub-agent count as calls of its parent. With `tools`,
    only calls of these tools count. A call over the limit is refused with a tool error that says
    when to try again. Raises UsageError for invalid numbers or an invalid `by=`.
    """
    if calls < 0 or (per is not None and not per > 0):
        raise UsageError(
            f"rate_limit({calls!r}, per={per!r}): calls must be at least 0, and per above 0 seconds"
        )
    windows = _Windows(calls, inf if per is None else per, clock)

    def root(run: Run[Any]) -> tuple[str, str]:
        parents = roots.find(run.parent_chat_id)
        if parents is not None:
            return parents
        if by == "conversation" and run.conversation_id is not None:
            return ("conversation", run.conversation_id)
        return ("chat", run.chat_id)

    roots = PerChat(root)

    def begin(ctx: OnChatStart[Any]) -> None:
        roots.of(ctx.run)

    def end(ctx: OnChatEnd[Any]) -> None:
        windows.forget(("chat", ctx.run.chat_id))  # its id is not used again

    def key_of(ctx: PreToolCall[Any]) -> Hashable:
        if callable(by):
            return by(ctx)
        return ctx.call.name if by == "tool" else roots.of(ctx.run)

    def check(ctx: PreToolCall[Any]) -> Deny | None:
        if ctx.again:  # the call was counted when it was made
            return None
        wait = windows.take(key_of(ctx))
        if wait is None:
            return None
        rule = f"{calls} calls" if per is None else f"{calls} calls in {per:g} s"
        again = "" if wait == inf else f"; try again in {ceil(wait)} s"
        return Deny(f"rate limit reached: {rule}{again}")

    if not callable(by) and by not in ("tool", "conversation", "chat"):
        raise UsageError(f"by={by!r} must be 'tool', 'conversation', 'chat' or a function")
    add = definer(name="rate_limit", inherit=inherit, required=required)
    # After other guards, so that calls that they refuse do not count.
    guard = add("preToolCall", check, priority=GUARD - 10, on_error="deny", tools=tools)
    if callable(by) or by == "tool":
        return (guard,)
    return (
        guard,
        add("onChatStart", begin, priority=GUARD),
        add("onChatEnd", end, priority=LAST),
        roots.forget(add),
    )
