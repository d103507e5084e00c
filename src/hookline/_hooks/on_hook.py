"""The observers of `onHook`: told of each hook that ran; what they raise is logged and ignored."""

from __future__ import annotations

from typing import Any

from hookline._base.log import log_throw
from hookline._hooks.call_rules import Watch, call, fault
from hookline._hooks.points import HookOutcome, OnHook
from hookline._hooks.registration import Hook


def watcher(view: Any, run: Any) -> Watch:
    """Tell the `onHook` observers of a view about each hook that ran."""

    async def watch(hook: Hook, outcome: HookOutcome, duration: float) -> None:
        if hook.spec.name == "onHook":
            return
        for observer in view.onHook:
            ctx: OnHook[Any] = OnHook(
                run=run, point=hook.spec.name, hook=hook.name, outcome=outcome, duration=duration
            )
            try:
                if observer.alive:
                    await call(observer, ctx)
            except BaseException as exc:
                log_throw(f"hook {observer.name!r} at onHook raised", fault(observer, exc))

    return watch
