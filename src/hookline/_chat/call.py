"""One tool call, from the model's request to its result message. State only.

A call is in one state at a time, and MOVES is the whole of its life:

    PROPOSED ─┬─ READY ── RUNNING ── SETTLING ── SETTLED ── REPORTED ── WRITING ── WRITTEN
              ├─ ASKED ── (WAITING) ── READY or REFUSED        (a chat that ends settles any state)
              └─ REFUSED ──────────────────────── SETTLED

A call that is past PROPOSED was announced: ToolCallStarted is out. SETTLED results are final: no
hook changes them any more. A message is written once, because WRITING is entered once: a write that
has begun is nobody else's to begin, and only the write itself moves the call on.
"""

from __future__ import annotations

from enum import IntEnum
from typing import Any, Final

import msgspec

from hookline._base.json import clean_text, json_text
from hookline._base.messages import CallOutcome, MediaPart, ToolCall, ToolMessage
from hookline._base.returns import ApprovalRequest, Ask, CallResult, Stop, ToolFailure, ToolResult
from hookline._base.run import ChatPort, Run
from hookline._model.scopes import Scope
from hookline._model.tool import AnyTool


class CallState(IntEnum):
    """How far a call is."""

    PROPOSED = 0  # the model asked for it
    READY = 1  # it may run
    ASKED = 2  # a hook asked for approval; an approver of this chat answers
    WAITING = 3  # the same, and a later chat brings the answer
    REFUSED = 4  # it has an answer and does not run
    RUNNING = 5  # its handler, or a wrapper
    SETTLING = 6  # it has a result that its hooks have not seen
    SETTLED = 7  # its result is final
    REPORTED = 8  # ToolCallFinished is out; its message waits for its turn
    WRITING = 9  # the write of its message has begun
    WRITTEN = 10  # its message is in history


PROPOSED, READY, ASKED, WAITING, REFUSED, RUNNING = list(CallState)[:6]
SETTLING, SETTLED, REPORTED, WRITING, WRITTEN = list(CallState)[6:]

MOVES: Final = {
    PROPOSED: {READY, ASKED, REFUSED, SETTLED},
    READY: {RUNNING, SETTLED},
    ASKED: {WAITING, READY, REFUSED, SETTLED},
    WAITING: {READY, REFUSED, SETTLED},
    REFUSED: {SETTLED},
    RUNNING: {SETTLING, SETTLED},
    SETTLING: {SETTLED},
    SETTLED: {REPORTED, WRITING},  # one that was never announced is not reported
    REPORTED: {WRITING},
    WRITING: {WRITTEN, REPORTED},  # back, where the store has refused it
    WRITTEN: set[CallState](),
}


class Verdict(msgspec.Struct, frozen=True, kw_only=True):
    """What preToolCall came to: the call as it stands, an answer in its place, a question."""

    call: ToolCall
    answer: ToolResult | ToolFailure | Stop | None = None
    asks: tuple[Ask, ...] = ()
    failed: bool = False  # the answer is a failure of the call, not a hook's


class CallRun(msgspec.Struct, eq=False):
    """The run of one call: what is wanted, how far it is, what it came to."""

    id: str
    wanted: ToolCall  # as hooks left it
    place: int  # among the calls of its answer
    state: CallState = PROPOSED
    tool: AnyTool | None = None
    scope: Scope | None = None
    offered: bool = False  # by this step's final request
    request: ApprovalRequest | None = None
    bound: dict[str, Any] | None = None  # validated arguments
    ran: bool = False  # its tool's function was called
    made: CallResult | None = None  # what that came to, as JSON data
    result: CallResult | None = None
    outcome: CallOutcome = "ok"
    stop: Stop | None = None  # what its tool or its hooks said about the chat
    message: ToolMessage | None = None  # as it is to be written, once preMessage was asked

    def move(self, state: CallState) -> None:
        """Go on to this state."""
        if state not in MOVES[self.state]:
            raise RuntimeError(f"call {self.id!r} cannot go from {self.state!r} to {state!r}")
        self.state = state

    def set(self, result: CallResult, outcome: CallOutcome | None = None) -> None:
        """Give it this result."""
        self.result = result
        self.outcome = outcome or ("ok" if isinstance(result, ToolResult) else "error")

    def refuse(self, result: CallResult, outcome: CallOutcome) -> None:
        """Answer it in place of its handler."""
        self.set(result, outcome)
        self.move(REFUSED)

    def withhold(self) -> None:
        """Replace a result that a hook was looking at when it failed: it may be the redactor."""
        failure = _RAN if self.ran else _NOT_RUN
        self.set(failure, "error" if self.outcome in ("ok", "answered") else self.outcome)

    def message_for(self, id: str) -> ToolMessage:
        """The message that tells the model what the call came to."""
        result = self.result
        media: tuple[MediaPart, ...] = ()
        if isinstance(result, ToolResult):
            value, media = result.value, result.media
            text = value if isinstance(value, str) else json_text(value)
        else:
            assert result is not None
            error = {"type": clean_text(result.type), "message": clean_text(result.message)}
            text = json_text({"error": error})
        return ToolMessage(
            id=id,
            call_id=self.id,
            name=self.wanted.name,
            text=text,
            outcome=self.outcome,
            media=media,
        )

    def run_of(self, chat: ChatPort) -> Run[Any]:
        """The run as this call's hooks and its handler see it."""
        return Run(chat, self.id)


_RAN: Final = ToolFailure("the call ran; its result is withheld", type="Withheld")
_NOT_RUN: Final = ToolFailure("not run; what was said of it is withheld", type="Withheld")
