"""Notify the observers of `onHook` of each hook that ran; their exceptions are only logged."""

from __future__ import annotations

from typing import Any

from hookline._base.log import log_throw
from hookline._hooks.call_rules import Watch, fault, notify
from hookline._hooks.points import HookOutcome, OnHook
from hookline._hooks.registration import Hook


class _Watcher:
    def __init__(self, view: Any, run: Any) -> None:
        self._view = view
        self._run = run

    async def __call__(
        self,
        hook: Hook,
        outcome: HookOutcome,
        duration: float,
        ctx: Any,
        value: Any = None,
        way: Any = None,
    ) -> None:
        """Report a hook that has run; `way` is the `proceed` of a wrapper."""
        if hook.spec.name == "onHook":
            return
        told: OnHook[Any] = OnHook(
            run=self._run,
            point=hook.spec.name,
            hook=hook.name,
            outcome=outcome,
            duration=duration,
            inner=0.0 if way is None else way.inner,
            context=ctx,
            returned=value,
            passed=None if way is None else way.passed,
        )
        await self._tell(told)

    async def _tell(self, ctx: OnHook[Any]) -> None:
        for observer in self._view.onHook:
            try:
                if observer.alive:
                    await notify((observer,), ctx)
            except BaseException as exc:
                log_throw(f"hook {observer.name!r} at onHook raised", fault(observer, exc))


def watcher(view: Any, run: Any) -> Watch:
    """Return a watch that reports each hook that ran to the `onHook` observers of a view."""
    return _Watcher(view, run)
