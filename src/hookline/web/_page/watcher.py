"""What the page sees of a run: the hooks that ran and, on request, the requests of its steps."""

from __future__ import annotations

from typing import Any, Final

from hookline import Agent, ModelRequest, ModelResponse, Proceed
from hookline.points import AroundRequest, OnHook
from hookline.web._page.recorder import Record
from hookline.web._page.step_details import changes
from hookline.web._runs.items import HookFired
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

    def watch(self, agent: Agent[Any]) -> None:
        """Observe the agent."""
        agent.add_hook("onHook", self._fired, name=OURS, on_error="log", inherit=True)
        if self._details:
            agent.add_hook("aroundRequest", self._asked, name=OURS, priority=LAST, inherit=True)

    def _fired(self, ctx: OnHook[Any]) -> None:
        run = ctx.run
        if run is None or ctx.hook.startswith(UNSEEN):
            return
        live = self._runs.run_of(run)
        if live is not None and not live.log.ended:
            live.put(
                HookFired(
                    chat_id=run.chat_id,
                    point=ctx.point,
                    hook=ctx.hook,
                    outcome=ctx.outcome,
                    duration=round(ctx.duration * 1000, 3),
                    own=round((ctx.duration - ctx.inner) * 1000, 3) if ctx.inner else None,
                    changes=tuple(changes(ctx)) if self._details else (),
                )
            )

    async def _asked(
        self, ctx: AroundRequest[Any], proceed: Proceed[ModelRequest, ModelResponse]
    ) -> ModelResponse:
        """Record the request and response of a step for the page's timeline."""
        live = self._runs.run_of(ctx.run)
        record = None if live is None else live.record
        if not isinstance(record, Record):
            return await proceed()
        record.asked(ctx.run.chat_id, ctx.iteration, ctx.request)
        response = await proceed()
        record.answered(ctx.run.chat_id, ctx.iteration, response)
        return response
