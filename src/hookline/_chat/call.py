"""One tool call on its way from the model's wish to its message. State only."""

from __future__ import annotations

from typing import Any

import msgspec

from hookline._base.messages import CallOutcome, ToolCall, ToolMessage
from hookline._base.returns import ApprovalRequest, Ask, CallResult, Stop, ToolFailure, ToolResult
from hookline._base.run import ChatPort, Run
from hookline._model.scopes import Scope
from hookline._model.tool import AnyTool


class Verdict(msgspec.Struct, frozen=True, kw_only=True):
    """What preToolCall came to: the call as it stands, an answer in its place, a question."""

    call: ToolCall
    answer: ToolResult | ToolFailure | Stop | None = None
    asks: tuple[Ask, ...] = ()
    failed: bool = False  # the answer is a failure of the call, not a hook's


class Call(msgspec.Struct, eq=False):
    """A call and what has become of it."""

    id: str
    call: ToolCall  # as hooks left it
    place: int
    tool: AnyTool | None = None
    scope: Scope | None = None
    offered: bool = False  # by this step's final request
    fixed: object = None  # the scopes when it was looked up, where none of them can be off
    request: ApprovalRequest | None = None
    asked: bool = False  # the question was put
    decided: bool = False  # the request was answered
    pending: bool = False  # it waits for an answer that a later chat brings
    bound: dict[str, Any] | None = None  # validated arguments
    runs: bool = False  # its handler is to run
    ran: bool = False  # its tool's function was called
    made: CallResult | None = None  # what that came to, as JSON data
    result: CallResult | None = None
    outcome: CallOutcome = "ok"
    final: bool = False  # no hook may change the result any more
    stop: Stop | None = None
    earlier: bool = False  # its message was committed by an earlier chat
    announced: bool = False  # ToolCallStarted was published
    reported: bool = False  # ToolCallFinished was published
    message: ToolMessage | None = None

    def set(self, result: CallResult, outcome: CallOutcome | None) -> None:
        """This is its result; it does not run (any more)."""
        self.result = result
        self.runs = False
        if outcome is not None:
            self.outcome = outcome
        else:
            self.outcome = "ok" if isinstance(result, ToolResult) else "error"

    def withhold(self, result: ToolFailure) -> None:
        """A hook that failed may have had to change the result: this stands in its place."""
        self.set(result, "error" if self.outcome in ("ok", "answered") else self.outcome)

    def run_of(self, chat: ChatPort) -> Run[Any]:
        """The run as this call's hooks and its handler see it."""
        return Run(chat, self.id)
