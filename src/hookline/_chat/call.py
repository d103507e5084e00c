"""One tool call, from the model's request to its result message. State only.

A call is in one state at a time, and MOVES is the whole of its life:

    PROPOSED ─┬─ READY ── RUNNING ── FINISHED ── (WRITING) ── COMMITTED
              ├─ ASKING ── (WAITING) ── READY, AT_CLIENT or NOT_RUN
              ├─ AT_CLIENT ─ POSTED ─ FINISHED
              └─ NOT_RUN ──────────── FINISHED

Only a store makes a message wait in WRITING. A RUNNING call may have its result, which hooks have
not seen. A resumed chat sets the state in which an earlier chat has left a call (`resume.py`).

A Stop, a failing hook and the end of the chat settle a call in any state: it is FINAL until its end
is published. From FINAL on, no hook changes the result. A call past PROPOSED was announced. A call
past FINISHED is not written again; from WRITING on, only the write itself moves it.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import IntEnum
from typing import Any, Final

import msgspec

from hookline._base.input import without_surrogates
from hookline._base.json import clean_text, json_text
from hookline._base.messages import CallOutcome, RanCall, ToolCall, ToolMessage
from hookline._base.returns import (
    Answer,
    ApprovalRequest,
    Approve,
    Ask,
    CallResult,
    Decision,
    Deny,
    Stop,
    ToolFailure,
    ToolResult,
)
from hookline._base.run import ChatPort, Run
from hookline._conversations.store import WaitingChild
from hookline._tools.scopes import Scope
from hookline._tools.tool import AnyTool


class CallState(IntEnum):
    """How far a call is."""

    PROPOSED = 0  # the model asked for it
    READY = 1  # it may run
    ASKING = 2  # a hook asked for approval, which this chat gets
    WAITING = 3  # a hook asked for approval, which a later chat gets
    AT_CLIENT = 4  # a client runs it; a later chat brings the result
    NOT_RUN = 5  # it has an answer and does not run
    RUNNING = 6  # its handler, or a wrapper
    POSTED = 7  # its client has brought the result, which hooks have not seen
    FINAL = 8  # its result is final; ToolCallFinished is not out
    FINISHED = 9  # ToolCallFinished is out; its message waits for its turn
    WRITING = 10  # the write of its message has begun
    COMMITTED = 11  # its message is in history


PROPOSED, READY, ASKING, WAITING, AT_CLIENT, NOT_RUN, RUNNING = list(CallState)[:7]
POSTED, FINAL, FINISHED, WRITING, COMMITTED = list(CallState)[7:]
FOR_LATER: Final = (WAITING, AT_CLIENT)  # a later chat goes on with the call

MOVES: Final = {
    PROPOSED: {READY, ASKING, AT_CLIENT, NOT_RUN, FINAL},
    READY: {RUNNING, FINAL},
    ASKING: {WAITING, READY, AT_CLIENT, NOT_RUN, FINAL},
    WAITING: {READY, AT_CLIENT, NOT_RUN, FINAL},
    AT_CLIENT: {POSTED, FINAL},
    NOT_RUN: {FINISHED, FINAL},
    RUNNING: {FINISHED, WAITING, FINAL},
    POSTED: {FINISHED, FINAL},
    FINAL: {FINISHED, WRITING, COMMITTED},  # a call that was not announced is not reported
    FINISHED: {WRITING, COMMITTED},
    WRITING: {COMMITTED, FINISHED},  # back, if the store has refused it
    COMMITTED: set[CallState](),
}


class CallVerdict(msgspec.Struct, frozen=True, kw_only=True):
    """The verdict of preToolCall: the call, an answer in place of running it, questions."""

    call: ToolCall
    answer: ToolResult | ToolFailure | Stop | None = None
    asks: tuple[Ask, ...] = ()
    approval: Approve | None = None  # that answers them: of a hook, or by a remembered rule
    failed: bool = False  # the answer is an error, not the refusal of a hook
    hooks: tuple[str, ...] = ()  # the names of those that returned a value
    hook_ids: tuple[str, ...] = ()  # their ids
    tool_digest: str = ""  # of the tool that was asked about


class CallRun(msgspec.Struct, eq=False):
    """The run of one call: the wanted call, its state, its result."""

    id: str
    call: ToolCall  # as hooks left it
    place: int  # among the calls of its answer
    model_call: ToolCall | None = None  # by the model
    state: CallState = PROPOSED
    tool: AnyTool | None = None
    scope: Scope | None = None
    is_offered: bool = False  # by this step's final request
    verdict: CallVerdict | None = None  # on whether it may run; None if nobody has a say
    request: ApprovalRequest | None = None
    approval: Approve | None = None  # which the request has already, from a hook or a rule
    approved: ToolCall | None = None  # as the approver has allowed it
    judged: ToolCall | None = None  # as the guards have just let it pass, in this life of the chat
    judges: Sequence[object] = ()  # these guards
    refusal: ToolFailure | None = None  # of its guards, when it was about to run
    arguments: dict[str, Any] | None = None  # validated arguments
    interrupted: bool = False  # a message that was sent cancels its tool
    ran: bool = False  # its tool's function was called, here or by its client
    result: CallResult | None = None
    outcome: CallOutcome = "ok"
    stop: Stop | None = None  # from its tool or its hooks
    child: WaitingChild | None = None  # the chat of a sub-agent, which waits for answers
    child_answers: dict[str, Answer] | None = None  # with which this chat goes on
    record: RanCall | None = None  # what hooks and persons decided, and what ran
    message: ToolMessage | None = None  # as it will be written, once preMessage has run

    @property
    def is_for_client(self) -> bool:
        """Whether a client runs its tool."""
        return self.tool is not None and self.tool.client

    @property
    def in_tool(self) -> bool:
        """Whether its tool runs now."""
        return self.state is RUNNING and self.ran and self.result is None

    def move(self, state: CallState) -> None:
        """Move to this state; raises RuntimeError if MOVES does not allow it."""
        if state not in MOVES[self.state]:
            raise RuntimeError(f"call {self.id!r} cannot go from {self.state!r} to {state!r}")
        self.state = state

    def set(self, result: CallResult, outcome: CallOutcome | None = None) -> None:
        """Give it this result."""
        self.result = result
        self.outcome = outcome or ("ok" if isinstance(result, ToolResult) else "error")

    def note(self, decision: Decision) -> None:
        """Record who approved or denied the call."""
        record = self.record or RanCall()
        if isinstance(decision, Deny):
            self.record = record.replace(approved=False, by=decision.by)
        else:
            self.record = record.replace(approved=True, by=decision.by, note=decision.note)

    def wait_again(self, child: WaitingChild) -> None:
        """Wait for the answers that the chat of its sub-agent needs."""
        self.child, self.child_answers = child, None
        self.ran = False
        self.judged = None  # its guards may decide otherwise after the wait
        self.move(WAITING)

    def let_run(self, *, in_process: bool = False) -> None:
        """Let the call run, here or at its client."""
        self.move(AT_CLIENT if self.is_for_client and not in_process else READY)

    def post(self, result: CallResult) -> None:
        """Take the result from its client."""
        self.ran = True
        self.set(result)
        self.move(POSTED)

    def refuse(self, result: CallResult, outcome: CallOutcome) -> None:
        """Answer the call in place of its handler."""
        self.set(result, outcome)
        self.move(NOT_RUN)

    def withhold(self) -> None:
        """Replace the result that a failed hook was looking at, since it may need redaction."""
        failure = _RAN if self.ran else _NOT_RUN
        self.set(failure, "error" if self.outcome in ("ok", "answered") else self.outcome)

    def to_message(
        self, id: str = "", chat_id: str | None = None, at: float | None = None
    ) -> ToolMessage:
        """The message with the result for the model."""
        result = self.result
        if isinstance(result, ToolResult):
            value, media = result.value, result.media
            text = value if isinstance(value, str) else json_text(value)
        else:
            assert result is not None
            media = ()
            error = {"type": clean_text(result.type), "message": clean_text(result.message)}
            text = json_text({"error": error})
        as_made = self.call is self.model_call
        return ToolMessage(
            id=id,
            call_id=self.id,
            name=self.call.name,
            text=text,
            outcome=self.outcome,
            media=media,
            ran=None if as_made and self.record is None else self._what_ran(),
            chat_id=chat_id,
            at=at,
        )

    def _what_ran(self) -> RanCall | None:
        """The record of the call, with arguments that are not the model's."""
        record, arguments = self.record, self.call.arguments
        if self.model_call is not None and arguments != self.model_call.arguments:
            record = (record or RanCall()).replace(arguments=arguments)
        return None if record is None else without_surrogates(record)

    def run_of(self, chat: ChatPort) -> Run[Any]:
        """The run as this call's hooks and its handler see it."""
        return Run(chat, self.id)


_RAN: Final = ToolFailure("the call ran; its result is withheld", type="Withheld")
_NOT_RUN: Final = ToolFailure("the call did not run; its result is withheld", type="Withheld")
INTERRUPTED: Final = ToolFailure(
    "interrupted by the user's next message; the call may have run. Call it again if its result is "
    "still needed",
    type="Interrupted",
)


def may_be_interrupted(tool: AnyTool) -> bool:
    """Whether an Interrupt may cancel the tool: it can run again, and does not run in a thread."""
    return tool.idempotent and tool.is_async
