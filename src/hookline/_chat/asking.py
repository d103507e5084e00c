"""The question of a running tool: the approver answers it while the tool waits.

A running tool is never suspended, so without an approver the question is denied at once. The answer
is checked against the schema of the question.
"""

from __future__ import annotations

from inspect import isawaitable
from typing import Any, Protocol

from hookline._base.cancel import Deadlines, no_cancellation_of_its_own
from hookline._base.errors import ApprovalError, ToolDenied
from hookline._base.events import ApprovalRequested, ChatEvent
from hookline._base.frozen import thaw
from hookline._base.json import BadArguments, clean_text
from hookline._base.messages import ToolCall
from hookline._base.returns import ApprovalRequest, Approve, Decision, Deny
from hookline._base.run import ChatPort, Run
from hookline._chat.config import Approver, ChatInput
from hookline._hooks.bus import View
from hookline._hooks.call_rules import Firing, notify
from hookline._hooks.points import OnApproval
from hookline._record.runtime import Runtime
from hookline._tools.foreign import checker


class Asking(ChatPort, Protocol):
    """The parts of a chat that a question needs."""

    input: ChatInput
    runtime: Runtime
    view: View
    firing: Firing
    deadlines: Deadlines

    async def room(self) -> None: ...
    def put(self, event: ChatEvent) -> None: ...


async def ask(
    chat: Asking, call: ToolCall, prompt: str, schema: dict[str, Any] | None
) -> dict[str, Any]:
    """Ask a question and wait for its answer; raises ToolDenied for Deny."""
    check = checker("run.ask", schema) if schema is not None else None
    approver = chat.input.approver
    if approver is None:
        raise ToolDenied(f"nobody can answer {prompt[:80]!r}; run the chat with approver=")
    request = ApprovalRequest(
        id=chat.runtime.new_id(),
        call=call,
        prompts=(clean_text(prompt),),
        chat_id=chat.chat_id,
        conversation_id=chat.conversation_id,
        iteration=chat.iteration,
        digest="",
        asked_at=chat.runtime.now(),
        schema=schema,
    )
    await chat.room()
    chat.put(ApprovalRequested(chat_id=chat.chat_id, request=request))
    await tell(chat, request, None)
    chat.deadlines.pause()  # waiting does not count as the tool's time
    try:
        decision = await answer_of(approver, request, Run(chat, call.id))
    finally:
        chat.deadlines.resume()
    await tell(chat, request, decision)
    if isinstance(decision, Deny):
        raise ToolDenied(f"the question was denied: {decision.reason}; continue without it")
    arguments = thaw(decision.arguments or {})
    if check is not None:
        try:
            check(arguments)
        except BadArguments as bad:
            raise ApprovalError(
                f"the answer to {prompt[:80]!r} does not fit request.schema: {bad}; return "
                "Approve(arguments={...}) with arguments that fit"
            ) from bad
    return arguments  # type: ignore[no-any-return]


async def answer_of(approver: Approver, request: ApprovalRequest, run: Run[Any]) -> Decision:
    """Call the approver; raises ApprovalError for a value that is not an answer."""
    with no_cancellation_of_its_own(ApprovalError, "the approver", "return Deny('why')"):
        value: Any = approver(request, run)
        decision: Any = await value if isawaitable(value) else value
    if not isinstance(decision, (Approve, Deny)):
        raise ApprovalError(
            f"the approver returned a {type(decision).__name__}; return Approve() or Deny('why')"
        )
    return decision


async def tell(chat: Asking, request: ApprovalRequest, decision: Decision | None) -> None:
    """Call onApproval with a question, or with its answer."""
    if chat.view.onApproval:
        run: Run[Any] = Run(chat)
        ctx: OnApproval[Any] = OnApproval(run=run, request=request, decision=decision)
        await notify(chat.view.onApproval, ctx, chat.firing)
