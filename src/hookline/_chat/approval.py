"""Calls that ask: the sealed request, the question, the answer.

Only the approved call runs: the request contains its name, arguments and id, and its digest seals
them. Without an approver, the request waits in the conversation. Without a conversation, the call
is denied.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from types import NoneType
from typing import Any, Final

from hookline._base.cancel import Expired
from hookline._base.errors import ApprovalError
from hookline._base.events import ApprovalRequested
from hookline._base.input import without_surrogates
from hookline._base.messages import ToolCall
from hookline._base.returns import (
    Answer,
    ApprovalRequest,
    Approve,
    Decision,
    Deny,
    ToolFailure,
    ToolResult,
)
from hookline._chat.asking import answer_of, tell
from hookline._chat.call import ASKING, RUNNING, WAITING, CallRun, CallVerdict
from hookline._chat.results import as_data
from hookline._chat.rules import check_rule, digest, remember, seal
from hookline._chat.run_tool import admit
from hookline._chat.state import Chat
from hookline._conversations.state import ConversationState
from hookline._conversations.store import PendingStep
from hookline._record.runtime import ANSWER, NOTHING, ON_ANSWER, Key
from hookline._record.runtime import ON_REQUEST as ASKED_KEY


def digest_of(call: ToolCall, tool_digest: str = "", details: Sequence[Any] = ()) -> str:
    """The digest that seals a request. Requests of older versions seal only the call."""
    data: tuple[Any, ...] = (call.id, call.name, call.arguments)
    return digest((*data, details, tool_digest) if tool_digest else data)


def _is_sealed(request: ApprovalRequest) -> bool:
    return digest_of(request.call, request.tool_digest, request.details) == request.digest


def prepare(chat: Chat, iteration: int, run: CallRun, verdict: CallVerdict) -> None:
    """Make the call's request for approval, or deny the call if nobody can answer."""
    run.approval = verdict.approval
    if run.approval is None and not _is_answered_here(chat) and not chat.can_wait:
        reason = "this call needs an approval, and nobody can give it"
        run.refuse(ToolFailure(reason, type="Denied"), "denied")
        return
    run.arguments = None  # the approver may change the arguments
    run.judged = None  # its guards may decide otherwise after the wait
    asks, now = verdict.asks, chat.runtime.now()
    limits = [ask.expires for ask in asks if ask.expires is not None]  # the shortest counts
    details = (
        without_surrogates(tuple([ask.details for ask in asks]))
        if any(ask.details for ask in asks)
        else ()
    )
    run.request = ApprovalRequest(
        id=f"{chat.chat_id}.{run.id}",
        call=run.call,
        prompts=tuple(ask.prompt for ask in asks),
        chat_id=chat.chat_id,
        path=chat.path,
        conversation_id=chat.root.conversation_id,
        iteration=iteration,
        digest=digest_of(run.call, verdict.tool_digest, details),
        tool_digest=verdict.tool_digest,
        asked_at=now,
        details=details,
        expires=now + min(limits) if limits else None,
    )
    run.move(ASKING)


def _is_answered_here(chat: Chat) -> bool:
    """Whether the answer comes while the chat runs: from an approver, or from its runtime."""
    return chat.input.approver is not None or chat.runtime.answers


async def put(chat: Chat, iteration: int, run: CallRun) -> None:
    """Ask for the approval: publish the event, and call onApproval without a decision.

    Without an approver, a later chat brings the answer. Nobody is asked if a hook or a remembered
    rule has answered.
    """
    request = run.request
    assert request is not None
    if run.approval is not None:
        await act_on(chat, iteration, run, run.approval)
        return
    await chat.room()
    chat.put(ApprovalRequested(chat_id=chat.chat_id, request=request))
    if not _is_answered_here(chat):
        run.move(WAITING)
    if chat.view.onApproval:
        key = (ASKED_KEY, iteration, run.id)
        await chat.runtime.step(key, tell, NOTHING, chat, request, None)


async def decide(chat: Chat, iteration: int, run: CallRun) -> None:
    """Wait for the approver's answer and carry it out."""
    request = run.request
    assert request is not None
    key = (ANSWER, iteration, run.id)
    if chat.input.approver is not None:
        ask = partial(_from_approver, chat, run, request)
        decision = await chat.runtime.wait(key, request, ask)
    else:
        decision = await ask_later(chat, iteration, key, request)
    chat.check()  # an approver may have ignored its cancellation
    await act_on(chat, iteration, run, decision)


async def ask_later(chat: Chat, iteration: int, key: Key, request: ApprovalRequest) -> Decision:
    """Wait for an answer in a runtime that can wait, for days and in other processes."""
    try:
        return await chat.runtime.wait(key, request, partial(_hold, chat, iteration))
    finally:  # the conversation no longer holds this question, whatever became of it
        if chat.step.batch is not None:
            chat.step.batch.answered.add(request.id)
        _note_questions(chat, iteration)


async def _hold(chat: Chat, iteration: int) -> None:
    """Save the chat's questions before its runtime waits; they hold the conversation."""
    _note_questions(chat, iteration)
    await chat.conversation.flush()


def _open_requests(run: CallRun) -> Iterator[ApprovalRequest]:
    """The requests of a call, and of the sub-agent that it runs, for which the chat waits."""
    if run.state is ASKING and run.request is not None:
        yield run.request
    if run.state is RUNNING and run.child is not None and run.child_answers is not None:
        for request in run.child.step.requests:
            if request.id not in run.child_answers:
                yield request


def _note_questions(chat: Chat, iteration: int) -> None:
    requests: list[ApprovalRequest] = []
    if (batch := chat.step.batch) is not None:
        waiting = [request for run in batch.runs for request in _open_requests(run)]
        requests = [request for request in waiting if request.id not in batch.answered]
    step = PendingStep(
        chat_id=chat.chat_id, iteration=iteration, requests=tuple(requests), locked=True
    )
    chat.conversation.wait(step if requests else None)


async def _from_approver(chat: Chat, run: CallRun, request: ApprovalRequest) -> Decision:
    approver = chat.input.approver
    assert approver is not None

    async def answer() -> Decision:
        decision = await answer_of(approver, request, run.run_of(chat))
        _check_edit(request.id, decision)
        return decision

    if request.expires is None:
        return await answer()
    seconds = max(0.001, request.expires - chat.runtime.now())
    try:
        return await chat.deadlines.run(answer(), seconds, "the approver")
    except Expired:
        return Deny("the approval expired before it was answered")


async def act_on(chat: Chat, iteration: int, run: CallRun, decision: Decision) -> None:
    """Carry out the answer: the call runs as approved, or is refused."""
    request = run.request
    assert request is not None
    rule = decision.remember if isinstance(decision, Approve) else None
    if chat.view.onApproval or rule is not None:
        key = (ON_ANSWER, iteration, run.id)
        await chat.runtime.step(key, _note_answer, NOTHING, chat, run, request, decision)
    run.note(decision)
    if isinstance(decision, Deny):
        run.refuse(ToolFailure(decision.reason, type="Denied"), "denied")
        return
    may_have_run = chat.has_run(iteration, run.id)  # the call answers that it may have run
    if not may_have_run and _is_other_tool(run, request):
        run.refuse(ToolFailure(_OTHER_TOOL.format(run.call.name), type="Denied"), "denied")
        return
    if not _is_sealed(request):  # checked again: hooks have seen the request
        raise ApprovalError(
            f"approval {request.id!r}: the call was changed after the request; start a new chat to "
            "ask again"
        )
    run.call = request.call
    if decision.arguments is not None:
        run.call = run.call.replace(arguments=decision.arguments, raw=None)
    run.approved = run.call
    error = None if may_have_run else admit(chat, run)
    if error is None:
        run.let_run(in_process=may_have_run)
    else:
        run.refuse(error, "error")


def _is_other_tool(run: CallRun, request: ApprovalRequest) -> bool:
    digest = request.tool_digest
    return bool(digest) and run.tool is not None and seal(run.tool) != digest


async def _note_answer(
    chat: Chat, run: CallRun, request: ApprovalRequest, decision: Decision
) -> None:
    """Tell the hooks of an answer, and remember the rule that comes with it."""
    if isinstance(decision, Approve) and decision.remember is not None:
        check_rule(chat, request, decision.remember)
        await remember(chat, run.tool, request, decision, decision.remember)
    await tell(chat, request, decision)


_SKEW: Final = 10.0  # seconds by which the clocks of two computers may differ
_OTHER_TOOL: Final = (
    "not run: the description or the parameters of tool {!r} were changed after the approval was "
    "requested, so the approval does not count; call the tool again, which asks again"
)


def _check_edit(id: str, decision: Any) -> None:
    if not isinstance(decision, Approve):
        return
    # An approver may be unchecked code, so the declared type proves nothing.
    if not isinstance(decision.arguments, (dict, NoneType)):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise ApprovalError(
            f"the answer to {id!r} must have a dict as its arguments; nothing was run"
        )


def _check_posted(id: str, answer: Any) -> None:
    if not isinstance(answer, (ToolResult, ToolFailure)):
        raise ApprovalError(
            f"call {id!r} is run by a client, so {answer!r} cannot answer it; use "
            "ToolResult(value) or ToolFailure('why')"
        )
    if isinstance(answer, ToolResult) and isinstance(data := as_data(answer), ToolFailure):
        raise ApprovalError(
            f"the result of call {id!r} must be JSON data; nothing was run: {data.message}"
        )


def check_answers(
    conversation: ConversationState, answers: Mapping[str, Answer], now: float | None
) -> None:
    """Refuse answers that no call waits for, before anything runs; raises ApprovalError.

    `now`: the time; None if the time has been checked.
    """
    pending = conversation.pending_step
    if pending is None:
        raise ApprovalError(
            f"no call waits for an answer in conversation {conversation.id!r}: its calls were "
            "answered, or a new chat has closed them; see conversation.pending and "
            "conversation.client_calls"
        )
    if not answers:
        raise ApprovalError(
            "resume() needs at least one answer: {approval_id: Approve()}, or {call_id: "
            "ToolResult(value)} for a client's tool"
        )
    requests = {request.id: request for request in pending.requests}
    client_calls = {call.id for call in pending.client_calls}
    for id, decision in answers.items():
        if id in client_calls:
            _check_posted(id, decision)
            continue
        request = requests.get(id)
        if request is None:
            waiting = ", ".join(map(repr, pending.ids))
            raise ApprovalError(
                f"no approval or client call with the id {id!r} is waiting; use one of {waiting}"
            )
        if not isinstance(decision, (Approve, Deny)):
            raise ApprovalError(f"the answer to {id!r} is {decision!r}; use Approve() or Deny()")
        _check_edit(id, decision)
        if not _is_sealed(request):
            raise ApprovalError(
                f"approval {id!r}: the call was changed after the request; start a new chat to ask "
                "again"
            )
        if now is not None:
            _check_time(request, now)


def _check_time(request: ApprovalRequest, now: float) -> None:
    """Refuse an answer that is late, or whose time is unknown, since a clock was set back."""
    if request.expires is None:
        return
    if now > request.expires:
        raise ApprovalError(f"approval {request.id!r} has expired; start a new chat to ask again")
    if request.asked_at is not None and now < request.asked_at - _SKEW:
        raise ApprovalError(
            f"approval {request.id!r} was requested {request.asked_at - now:.0f} s after the time "
            "of this computer's clock, so it may have expired; set the clock, or start a new chat "
            "to ask again"
        )
