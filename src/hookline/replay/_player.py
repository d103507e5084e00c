"""Plays one recorded chat again: the model writes what it wrote, and tools return what they did."""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable
from typing import Any, Final

import msgspec

from hookline import (
    Agent,
    ApprovalRequest,
    Approve,
    Conversation,
    Deny,
    LocalRuntime,
    ModelResponse,
    Response,
    Tool,
    ToolCall,
    ToolFailure,
    ToolMessage,
)
from hookline.replay._offline import closed
from hookline.replay._records import CallRecord, Record
from hookline.testing import ScriptedModel

NOT_RECORDED: Final = ToolFailure(
    "the record has no result of this call, because it did not run", type="NotRecorded"
)


def recorded_model(answers: Iterable[ModelResponse] = ()) -> ScriptedModel:
    """A model that writes the answers of a record, and empty ones after the last."""
    rest = iter(answers)
    return ScriptedModel(
        lambda request: next(rest, ModelResponse()), name="recorded", strict=False, repeat=True
    )


class RecordedClock(LocalRuntime):
    """The time of the record."""

    at: float | None = None
    """The time that is shown; None for the system's."""

    def now(self) -> float:
        """Return the time of the record."""
        return super().now() if self.at is None else self.at


class CallOutcome(msgspec.Struct, frozen=True, kw_only=True):
    """What became of a call in a replay, and who decided."""

    step: int
    tool: str
    arguments: dict[str, Any]
    outcome: str
    ran: dict[str, Any] | None
    text: str
    hooks: tuple[str, ...] = ()
    prompts: tuple[str, ...] = ()


class Played(msgspec.Struct, kw_only=True):
    """What became of a chat in a replay."""

    calls: dict[str, CallOutcome] = {}
    texts: tuple[str, ...] = ()
    stop: str | None = None
    error: str | None = None


class Player:
    """Plays records with a copy of an agent."""

    def __init__(
        self,
        agent: Agent[Any],
        *,
        hooks: Any = (),
        without: Any = (),
        deps: Callable[[Record], Any] | None = None,
    ) -> None:
        self._clock = RecordedClock()
        self._deps = deps
        self._calls: dict[str, CallRecord] = {}
        self._prompts: dict[str, tuple[str, ...]] = {}
        self._questions: Container[str] | None = None
        self._twin = agent.twin(
            model=recorded_model(), tools=self._stand_in, hooks=hooks, without=without
        )

    def _stand_in(self, tool: Tool[..., Any]) -> Tool[..., Any]:
        if tool.leads == "handoff":
            return tool

        async def handler(arguments: dict[str, Any], run: Any) -> Any:
            call = self._calls.get(run.call_id)
            return NOT_RECORDED if call is None else call.result

        return tool.with_handler(handler)

    def _approve(self, request: ApprovalRequest, run: Any) -> Approve | Deny:
        self._prompts[request.call.id] = request.prompts
        call = self._calls.get(request.call.id)
        if call is None or call.decision is not None:
            return Approve() if call is None else call.decision or Approve()
        if self._questions is not None and request.call.id not in self._questions:
            return Approve()  # a new question
        if call.outcome == "denied" and isinstance(call.result, ToolFailure):
            return Deny(call.result.message)
        return Approve(arguments=call.arguments)

    async def play(self, record: Record, questions: Container[str] | None = None) -> Played:
        """Play a record. A chat that fails is a result, too.

        If a record lacks the decision about a call in `questions`, it is the one that led to the
        call's outcome. A call that is not in it has not been asked about; None is all calls.
        """
        self._questions = questions
        self._clock.at = record.at
        self._calls, self._prompts = record.calls, {}
        conversation = Conversation(record.before)
        deps = None if self._deps is None else self._deps(record)
        try:
            with closed():
                response = await self._twin.chat(
                    record.message,
                    conversation=conversation,
                    model=recorded_model(record.answers),
                    approver=self._approve,
                    deps=deps,
                    runtime=self._clock,
                )
        except Exception as exc:
            messages = conversation.messages[len(record.before) :]
            return self._outcome(messages, error=f"{type(exc).__name__}: {exc}")
        return self._outcome(response.messages, response)

    def _outcome(
        self, messages: Any, response: Response[Any] | None = None, error: str | None = None
    ) -> Played:
        results = {m.call_id: m for m in messages if isinstance(m, ToolMessage)}
        answers = [message for message in messages if message.role == "assistant"]
        calls = {
            call.id: self._call(step, call, results[call.id])
            for step, message in enumerate(answers)
            for call in message.tool_calls
            if call.id in results
        }
        return Played(
            calls=calls,
            texts=tuple(message.text for message in messages if message.role != "tool"),
            stop=None if response is None else response.stop_reason,
            error=error,
        )

    def _call(self, step: int, call: ToolCall, message: ToolMessage) -> CallOutcome:
        ran, recorded = message.ran, self._calls.get(call.id)
        edited = None if ran is None or ran.arguments is None else dict(ran.arguments)
        outcome = message.outcome
        if outcome == "error" and recorded is not None and recorded.outcome == "aborted":
            outcome = "aborted"  # only its result says so: the chat goes on, without answers
        return CallOutcome(
            step=step,
            tool=call.name,
            arguments=dict(call.arguments),
            outcome=outcome,
            ran=edited,
            text=message.text,
            hooks=() if ran is None else ran.hooks,
            prompts=self._prompts.get(call.id, ()),
        )
