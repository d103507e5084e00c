"""One tool call on its way from the model's wish to its message. State only."""

from __future__ import annotations

from typing import Any

import msgspec

from hookline._messages import CallOutcome, ToolCall, ToolMessage
from hookline._outcomes import ApprovalRequest, Ask, CallResult, Stop, ToolError, ToolResult
from hookline._run import ChatPort, Run
from hookline._scopes import Scope
from hookline._tools import AnyTool


class Verdict(msgspec.Struct, frozen=True, kw_only=True):
    """What preToolCall came to: the call as it stands, an answer in its place, a question."""

    call: ToolCall
    answer: ToolResult | ToolError | Stop | None = None
    asks: tuple[Ask, ...] = ()
    failed: bool = False  # the answer is a failure of the call, not a hook's


class Call:
    """A call and what has become of it."""

    __slots__ = (
        "announced",
        "asked",
        "bound",
        "call",
        "decided",
        "earlier",
        "final",
        "id",
        "message",
        "offered",
        "outcome",
        "pending",
        "place",
        "reported",
        "request",
        "result",
        "runs",
        "scope",
        "stop",
        "tool",
    )

    def __init__(self, call: ToolCall, place: int) -> None:
        self.id = call.id
        self.call = call  # as hooks left it
        self.place = place
        self.tool: AnyTool | None = None
        self.scope: Scope | None = None
        self.offered = False  # by this step's final request
        self.request: ApprovalRequest | None = None
        self.asked = False  # the question was put
        self.decided = False  # the request was answered
        self.pending = False  # it waits for an answer that a later chat brings
        self.bound: dict[str, Any] | None = None  # validated arguments
        self.runs = False  # its handler is to run
        self.result: CallResult | None = None
        self.outcome: CallOutcome = "ok"
        self.final = False  # no hook may change the result any more
        self.stop: Stop | None = None
        self.earlier = False  # its message was committed by an earlier chat
        self.announced = False  # ToolCallStarted was published
        self.reported = False  # ToolCallFinished was published
        self.message: ToolMessage | None = None

    def set(self, result: CallResult, outcome: CallOutcome | None) -> None:
        """This is its result; it does not run (any more)."""
        self.result = result
        self.runs = False
        if outcome is not None:
            self.outcome = outcome
        else:
            self.outcome = "ok" if isinstance(result, ToolResult) else "error"

    def withhold(self, result: ToolError) -> None:
        """A hook that failed may have had to change the result: this stands in its place."""
        self.set(result, "error" if self.outcome in ("ok", "answered") else self.outcome)

    def run_of(self, chat: ChatPort) -> Run[Any]:
        """The run as this call's hooks and its handler see it."""
        return Run(chat, self.id)
