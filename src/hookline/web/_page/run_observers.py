"""Observe runs for the page: the hooks that ran and, on request, the requests of its steps."""

from __future__ import annotations

from typing import Any, Final

from hookline import Agent, ModelRequest, ModelResponse, Proceed, Run
from hookline.points import AroundRequest, OnChatEnd, OnHook, OnStep
from hookline.web._page.delta_hooks import DeltaHook
from hookline.web._page.recorder import Record
from hookline.web._page.step_details import changes
from hookline.web._runs.fired_hooks import HookFired
from hookline.web._runs.registry import Runs

OURS: Final = "hookline.web timeline"
UNSEEN: Final = "hookline.web "
"""How the names of hooks begin that are not in a timeline."""
LAST: Final = -1_000_000  # inside every other wrapper, to see the final request


class Watcher:
    """Records the hooks of an agent and its sub-agents in the run in which they run.

    `details`: also record the changes of hooks, and the request and response of each step.
    """

    def __init__(self, runs: Runs, *, details: bool = False) -> None:
        self._runs = runs
        self._details = details
        self._delta_hooks: dict[str, dict[str, DeltaHook]] = {}  # of the open steps, by chat

    def watch(self, agent: Agent[Any]) -> None:
        """Observe the agent."""
        agent.add_hook("onHook", self._record_hook, name=OURS, on_error="log", inherit=True)
        agent.add_hook("onStep", self._end_step, name=OURS, on_error="log", inherit=True)
        agent.add_hook("onChatEnd", self._end_step, name=OURS, on_error="log", inherit=True)
        if self._details:
            agent.add_hook(
                "aroundRequest", self._record_step, name=OURS, priority=LAST, inherit=True
            )

    def _record_hook(self, ctx: OnHook[Any]) -> None:
        run = ctx.run
        if run is None or ctx.hook.startswith(UNSEEN):
            return
        if ctx.point == "onDelta":
            hooks = self._delta_hooks.setdefault(run.chat_id, {})
            hooks.setdefault(ctx.hook, DeltaHook(ctx)).add(ctx)
            return
        self._record_deltas(run)
        self._put(
            run,
            HookFired(
                chat_id=run.chat_id,
                point=ctx.point,
                hook=ctx.hook,
                id=ctx.id,
                outcome=ctx.outcome,
                duration=round(ctx.duration * 1000, 3),
                own=round((ctx.duration - ctx.inner) * 1000, 3) if ctx.inner else None,
                changes=tuple(changes(ctx)) if self._details else (),
            ),
        )

    def _end_step(self, ctx: OnStep[Any] | OnChatEnd[Any]) -> None:
        self._record_deltas(ctx.run)

    def _record_deltas(self, run: Run[Any]) -> None:
        for hook in self._delta_hooks.pop(run.chat_id, {}).values():
            self._put(run, hook.frame(run.chat_id, details=self._details))

    def _put(self, run: Run[Any], item: HookFired) -> None:
        live = self._runs.run_of(run)
        if live is not None and not live.log.complete:
            live.put(item)

    async def _record_step(
        self, ctx: AroundRequest[Any], proceed: Proceed[ModelRequest, ModelResponse]
    ) -> ModelResponse:
        """Record the request and response of a step for the page's timeline."""
        live = self._runs.run_of(ctx.run)
        record = None if live is None else live.record
        if not isinstance(record, Record):
            return await proceed()
        record.add_request(ctx.run.chat_id, ctx.iteration, ctx.request)
        response = await proceed()
        record.add_response(ctx.run.chat_id, ctx.iteration, response)
        return response
