"""The record of a run for the page's timeline: steps, calls and hooks, without their texts, and
what a workspace reports: the plan, and the changed files.

A record has a size limit, is JSON, and outlives its run. From it a reloaded page draws the same
timeline as from the stream.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, cast

import msgspec

from hookline import AssistantMessage, ModelRequest, ModelResponse, Usage
from hookline.events import (
    ChatAborted,
    ChatDone,
    ChatEvent,
    ChatFailed,
    ErrorInfo,
    MessageAdded,
    Status,
    StepFinished,
    StepStarted,
    ToolCallFinished,
    ToolCallStarted,
)
from hookline.web._http.sse import plain
from hookline.web._page.step_details import StepDetail, add_answer, cut, describe_request
from hookline.web._protocols.masked_texts import Mask
from hookline.web._runs.backlog import HookFired, Item

FRAMES: Final = 1000  # most frames of one run
STEPS: Final = 50  # most steps of one run to keep with details
DIFF: Final = 10_000  # most characters of the difference of one file
_WORKSPACE: Final = ("plan", "file_changed", "workspace")


class RecordedRun(msgspec.Struct, kw_only=True):
    """A stored run. `frames`: the frames that the timeline draws, in the native form."""

    run: str
    chat_id: str
    started: float = 0.0
    """The start, in seconds since the epoch."""
    frames: list[dict[str, Any]] = []
    steps: list[StepDetail] = []
    outcome: str = msgspec.field(default="", name="ended")
    """"done", "aborted" or "failed"; empty while the run is active."""
    text: str = ""
    """The reason, if the run was aborted or failed."""
    after: str = ""
    """The id of the last committed message; the page shows `text` below it."""
    usage: dict[str, Any] | None = None


class Record:
    """Records a run; `on_end` is called once the run is over."""

    def __init__(
        self,
        data: RecordedRun,
        *,
        mask: Mask,
        scope_of: Callable[[str], str | None] | None,
        price: Callable[[Usage], float] | None,
        on_end: Callable[[Record], None],
    ) -> None:
        self.data = data
        self._mask = mask
        self._scope_of = scope_of
        self._price = price
        self._on_end = on_end
        self._steps: dict[tuple[str, int], StepDetail] = {}

    # ── what comes of the run ───────────────────────────────────────────────────────────────

    def put(self, number: int, at: float, item: Item) -> None:
        """Record an item of the run."""
        if isinstance(item, HookFired):
            self._hook(item, at)
            return
        if item.path:  # of a sub-agent
            self._ran(item, at, path=list(item.path), chat_id=item.chat_id)
            return
        match item:
            case ToolCallStarted(call=call):
                scope = None if self._scope_of is None else self._scope_of(call.name)
                self._ran(item, at, scope=scope)
            case MessageAdded(message=message):
                self.data.after = message.id
                self._ran(item, at)
            case ChatDone(response=response):
                pending = [{"call": {"id": request.call.id}} for request in response.pending]
                self._frame(at, event="chat_done", response={"pending": pending})
                self.data.outcome = "done"
                self.data.usage = plain(response.usage)
            case ChatAborted(reason=reason):
                self._frame(at, event="chat_aborted")
                self.data.outcome, self.data.text = "aborted", reason or "stopped"
            case ChatFailed(error=error):
                self._fail(error, at)
            case _:
                self._ran(item, at)

    def _ran(self, event: ChatEvent, at: float, **more: Any) -> None:
        """Record the start or end of a step, call or chat."""
        match event:
            case ChatDone() | ChatAborted() | ChatFailed():
                self._frame(at, event=event.__struct_config__.tag, **more)
            case StepStarted(iteration=iteration):
                self._frame(at, event="step_started", iteration=iteration, **more)
            case ToolCallStarted(call=call):
                fields = {"id": call.id, "name": call.name}
                self._frame(at, event="tool_call_started", call=fields, **more)
            case ToolCallFinished(call_id=id, name=name, outcome=outcome):
                fields = {"call_id": id, "name": name, "outcome": outcome}
                self._frame(at, event="tool_call_finished", **fields, **more)
            case MessageAdded(message=AssistantMessage()):
                self._frame(at, event="message_added", message={"role": "assistant"}, **more)
            case StepFinished(iteration=iteration, usage=usage):
                cost = None if usage is None else plain(usage)
                self._frame(at, event="step_finished", iteration=iteration, usage=cost, **more)
            case Status(type=type, data=data) if type in _WORKSPACE:
                self._frame(at, event="status", type=type, data=_shortened(plain(data)))
            case _:
                pass

    def end(self, error: BaseException | None) -> None:
        """Record the end of the run."""
        if not self.data.outcome:
            if error is None:
                self.data.outcome, self.data.text = "aborted", "stopped"
            else:
                self._fail(ErrorInfo.of(error), 0)
        self._on_end(self)

    def _fail(self, error: ErrorInfo, at: float) -> None:
        self._frame(at, event="chat_failed")
        self.data.outcome, self.data.text = "failed", self._mask.text(error)

    def _hook(self, hook: HookFired, at: float) -> None:
        """Record a hook; a hook that runs at each delta is only counted."""
        last = self.data.frames[-1] if self.data.frames else {}
        fields = plain(hook)
        same = ("point", "hook", "outcome")
        if last.get("event") == "hook" and all(last.get(key) == fields[key] for key in same):
            last["times"] = last.get("times", 1) + hook.times
            last["duration"] += hook.duration
            return
        self._frame(at, **{"event": "hook", **fields})

    def _frame(self, at: float, **data: Any) -> None:
        if len(self.data.frames) < FRAMES:
            self.data.frames.append({**data, "at": round(at * 1000, 1)})

    # ── what the steps asked ────────────────────────────────────────────────────────────────

    def add_request(self, chat_id: str, iteration: int, request: ModelRequest) -> None:
        """Record a model request; a wrapper may repeat it."""
        chat = "" if chat_id == self.data.chat_id else chat_id
        before = self._steps.get((chat, iteration))
        masked = request.replace(
            messages=[self._mask.message(message) for message in request.messages]
        )
        tries = 1 if before is None else before.tries + 1
        if before is not None or len(self._steps) < STEPS:
            self._set(describe_request(iteration, masked, chat=chat, tries=tries))

    def add_response(self, chat_id: str, iteration: int, response: ModelResponse) -> None:
        """Record the response of the model."""
        chat = "" if chat_id == self.data.chat_id else chat_id
        step = self._steps.get((chat, iteration))
        if step is not None:
            usage = response.usage
            cost = None if self._price is None or usage is None else self._price(usage)
            self._set(add_answer(step, response, cost))

    def _set(self, step: StepDetail) -> None:
        self._steps[step.chat, step.iteration] = step
        self.data.steps = list(self._steps.values())


def _shortened(data: Any) -> Any:
    """Shorten the difference of a file."""
    if not isinstance(data, dict):
        return data
    fields = cast("dict[str, Any]", data)
    text = fields.get("diff")
    return {**fields, "diff": cut(text, DIFF)} if isinstance(text, str) else fields
