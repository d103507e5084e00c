"""Observe runs for the page: the hooks that ran and, on request, the requests of its steps."""

from __future__ import annotations

from typing import Any, Final, TypeAlias, cast

from hookline import Agent, ModelRequest, ModelResponse, Proceed, Run
from hookline.models import PartEndChunk, ReasoningChunk, TextChunk, ToolCallChunk
from hookline.points import AroundRequest, OnChatEnd, OnHook, OnStep
from hookline.web._http.sse import json_text, plain
from hookline.web._page.recorder import Record
from hookline.web._page.step_details import as_text, changes
from hookline.web._runs.backlog import FieldChange, HookFired
from hookline.web._runs.registry import Runs

OURS: Final = "hookline.web timeline"
UNSEEN: Final = "hookline.web "
"""How the names of hooks begin that are not in a timeline."""
LAST: Final = -1_000_000  # inside every other wrapper, to see the final request
Texts: TypeAlias = dict[str, list[str]]


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


class DeltaHook:
    """What one hook at onDelta did in one step, as one frame: a frame for each piece says little.

    A hook that only held text back, until it could judge the whole of it, has changed nothing.
    """

    def __init__(self, ctx: OnHook[Any]) -> None:
        self._first = ctx
        self._times = 0
        self._duration = 0.0
        self._outcome: str = "ok"
        self._before: Texts = {}
        self._after: Texts = {}

    def add(self, ctx: OnHook[Any]) -> None:
        """Add one run of the hook."""
        self._times += 1
        self._duration += ctx.duration
        delta = ctx.context.delta
        _add(self._before, delta)
        if ctx.outcome == "changed":
            self._outcome = "held"
            returned: Any = ctx.returned
            several = isinstance(returned, (tuple, list))
            pieces = cast("tuple[Any, ...]", returned if several else (returned,))
            for piece in pieces:
                _add(self._after, piece)
        elif ctx.outcome == "ok":
            _add(self._after, delta)
        else:
            self._outcome = ctx.outcome

    def frame(self, chat_id: str, *, details: bool) -> HookFired:
        """Return the frame of the step."""
        before, after = _joined(self._before), _joined(self._after)
        fields = [
            FieldChange(name=name, before=as_text(before.get(name)), after=as_text(after.get(name)))
            for name in {**before, **after}
            if before.get(name) != after.get(name) and (name in after or not _is_of_call(name))
        ]
        if self._outcome == "held" and fields:
            self._outcome = "changed"
        return HookFired(
            chat_id=chat_id,
            point=self._first.point,
            hook=self._first.hook,
            id=self._first.id,
            outcome=self._outcome,
            duration=round(self._duration * 1000, 3),
            times=self._times,
            changes=tuple(fields) if details and self._outcome == "changed" else (),
        )


def _add(texts: Texts, delta: Any) -> None:
    """Add a delta to the texts, by what it is a piece of."""
    match delta:
        case TextChunk(text=text):
            pieces = {"text": text}
        case ReasoningChunk(text=text):
            pieces = {"reasoning": text}
        case ToolCallChunk(index=index, name=name, arguments=arguments):
            pieces = {f"tool {index}": name or "", f"arguments {index}": arguments}
        case PartEndChunk():
            pieces = {}
        case _:
            pieces = {"parts": json_text(plain(delta))}
    for name, text in pieces.items():
        texts.setdefault(name, []).append(text)


def _is_of_call(name: str) -> bool:
    """Whether the text is of a call, which is shown as a whole after its response if it is held."""
    return name.startswith(("tool ", "arguments "))


def _joined(texts: Texts) -> dict[str, str]:
    return {name: text for name, pieces in texts.items() if (text := "".join(pieces))}
