"""The record of a run for the page's timeline: steps, calls and hooks, without their texts.

A record has a size limit, is JSON, and outlives its run. From it a reloaded page draws the same
timeline as from the stream.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import msgspec

from hookline import AssistantMessage, ModelRequest, ModelResponse, Usage
from hookline.events import (
    ChatAborted,
    ChatDone,
    ChatEvent,
    ChatFailed,
    ErrorInfo,
    MessageAdded,
    StepFinished,
    StepStarted,
    ToolCallFinished,
    ToolCallStarted,
)
from hookline.web._http.sse import plain
from hookline.web._page.step_details import StepDetail, answered, asked
from hookline.web._protocols.error_texts import Mask
from hookline.web._runs.backlog import Item
from hookline.web._runs.items import HookFired

ENDS: Final[dict[type[Any], str]] = {
    ChatDone: "chat_done",
    ChatAborted: "chat_aborted",
    ChatFailed: "chat_failed",
}
FRAMES: Final = 1000  # most frames of one run
STEPS: Final = 50  # most steps of one run to keep with details


class Kept(msgspec.Struct, kw_only=True):
    """A stored run. `frames`: the frames that the timeline draws, in the native form."""

    run: str
    chat_id: str
    started: float = 0.0
    """The start, in seconds since the epoch."""
    frames: list[dict[str, Any]] = []
    steps: list[StepDetail] = []
    ended: str = ""
    """"done", "aborted" or "failed"; empty while the run is active."""
    text: str = ""
    """The reason, if the run was aborted or failed."""
    after: str = ""
    """The id of the last committed message; the page shows `text` below it."""
    usage: dict[str, Any] | None = None


class Record:
    """Records a run; `ended` is called once the run is over."""

    def __init__(
        self,
        kept: Kept,
        *,
        mask: Mask,
        scope_of: Callable[[str], str | None] | None,
        price: Callable[[Usage], float] | None,
        ended: Callable[[Record], None],
    ) -> None:
        self.kept = kept
        self._mask = mask
        self._scope_of = scope_of
        self._price = price
        self._ended = ended
        self._steps: dict[tuple[str, int], StepDetail] = {}

    # ── what comes of the run ───────────────────────────────────────────────────────────────

    def put(self, number: int, at: float, item: Item) -> None:
        """Record an item of the run."""
        if isinstance(item, HookFired):
            self._hook(item, at)
            return
        if item.path:
            self._nested(item, at)
            return
        match item:
            case ToolCallStarted(call=call):
                scope = None if self._scope_of is None else self._scope_of(call.name)
                self._ran(item, at, scope=scope)
            case MessageAdded(message=message):
                self.kept.after = message.id
                self._ran(item, at)
            case ChatDone(response=response):
                pending = [{"call": {"id": each.call.id}} for each in response.pending]
                self._frame(at, event="chat_done", response={"pending": pending})
                self.kept.ended = "done"
                self.kept.usage = plain(response.usage)
            case ChatAborted(reason=reason):
                self._frame(at, event="chat_aborted")
                self.kept.ended, self.kept.text = "aborted", reason or "stopped"
            case ChatFailed(error=error):
                self._fail(error, at)
            case _:
                self._ran(item, at)

    def _nested(self, event: ChatEvent, at: float) -> None:
        """Record an event of a sub-agent."""
        within = {"path": list(event.path), "chat_id": event.chat_id}
        if type(event) in ENDS:
            self._frame(at, event=ENDS[type(event)], **within)
        else:
            self._ran(event, at, **within)

    def _ran(self, event: ChatEvent, at: float, **more: Any) -> None:
        """Record the start or end of a step or call."""
        match event:
            case StepStarted(iteration=iteration):
                self._frame(at, event="step_started", iteration=iteration, **more)
            case ToolCallStarted(call=call):
                told = {"id": call.id, "name": call.name}
                self._frame(at, event="tool_call_started", call=told, **more)
            case ToolCallFinished(call_id=id, name=name, outcome=outcome):
                told = {"call_id": id, "name": name, "outcome": outcome}
                self._frame(at, event="tool_call_finished", **told, **more)
            case MessageAdded(message=AssistantMessage()):
                self._frame(at, event="message_added", message={"role": "assistant"}, **more)
            case StepFinished(iteration=iteration, usage=usage):
                cost = None if usage is None else plain(usage)
                self._frame(at, event="step_finished", iteration=iteration, usage=cost, **more)
            case _:
                pass

    def end(self, error: BaseException | None) -> None:
        """Record the end of the run."""
        if not self.kept.ended:
            if error is None:
                self.kept.ended, self.kept.text = "aborted", "stopped"
            else:
                self._fail(ErrorInfo.of(error), 0)
        self._ended(self)

    def _fail(self, error: ErrorInfo, at: float) -> None:
        self._frame(at, event="chat_failed")
        self.kept.ended, self.kept.text = "failed", self._mask.text(error)

    def _hook(self, hook: HookFired, at: float) -> None:
        """Record a hook; a hook that runs at each delta is only counted."""
        last = self.kept.frames[-1] if self.kept.frames else {}
        told = plain(hook)
        same = ("point", "hook", "outcome")
        if last.get("event") == "hook" and all(last.get(key) == told[key] for key in same):
            last["times"] = last.get("times", 1) + 1
            last["duration"] += hook.duration
            return
        self._frame(at, **{"event": "hook", **told})

    def _frame(self, at: float, **data: Any) -> None:
        if len(self.kept.frames) < FRAMES:
            self.kept.frames.append({**data, "at": round(at * 1000, 1)})

    # ── what the steps asked ────────────────────────────────────────────────────────────────

    def asked(self, chat_id: str, iteration: int, request: ModelRequest) -> None:
        """Record a model request; a wrapper may repeat it."""
        chat = "" if chat_id == self.kept.chat_id else chat_id
        before = self._steps.get((chat, iteration))
        masked = request.replace(messages=[self._mask.message(each) for each in request.messages])
        tries = 1 if before is None else before.tries + 1
        if before is not None or len(self._steps) < STEPS:
            self._set(asked(iteration, masked, chat=chat, tries=tries))

    def answered(self, chat_id: str, iteration: int, response: ModelResponse) -> None:
        """Record the response of the model."""
        chat = "" if chat_id == self.kept.chat_id else chat_id
        step = self._steps.get((chat, iteration))
        if step is not None:
            usage = response.usage
            cost = None if self._price is None or usage is None else self._price(usage)
            self._set(answered(step, response, cost))

    def _set(self, step: StepDetail) -> None:
        self._steps[step.chat, step.iteration] = step
        self.kept.steps = list(self._steps.values())
