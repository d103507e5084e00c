"""Calls that ask: the sealed request, the question, the answer.

What runs is exactly what was approved: name, arguments and call id stand in the request and are
sealed by its digest. Without an approver the request waits in the conversation; without either,
asking is a denial.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from types import NoneType
from typing import Any

import msgspec

from hookline._base.cancel import Expired
from hookline._base.errors import ApprovalError
from hookline._base.events import ApprovalRequested
from hookline._base.messages import ToolCall
from hookline._base.returns import ApprovalRequest, Approve, Ask, Decision, Deny, ToolFailure
from hookline._base.runtime import ANSWER, ANSWERED, NOTHING
from hookline._base.runtime import ASKED as ASKED_KEY
from hookline._chat.asking import answer_of, tell
from hookline._chat.call import ASKED, READY, WAITING, CallRun
from hookline._chat.run_tool import admit
from hookline._chat.state import Chat
from hookline._talk.conversation import Conversation


def digest_of(call: ToolCall) -> str:
    """The seal of what is approved."""
    from hashlib import sha256  # only here: it costs a millisecond of an import

    text = msgspec.json.encode((call.id, call.name, call.arguments), order="deterministic")
    return sha256(text).hexdigest()


def prepare(chat: Chat, iteration: int, run: CallRun, asks: Sequence[Ask]) -> None:
    """The call must not run before somebody says so."""
    if not _is_answered_here(chat) and not chat.keeps:
        reason = "this call needs an approval, and nobody is there to give it"
        run.refuse(ToolFailure(reason, type="Denied"), "denied")
        return
    run.bound = None
    limits = [ask.expires for ask in asks if ask.expires is not None]  # the strictest counts
    run.request = ApprovalRequest(
        id=f"{chat.chat_id}.{run.id}",
        call=run.wanted,
        prompts=tuple(ask.prompt for ask in asks),
        chat_id=chat.chat_id,
        conversation_id=chat.conversation_id,
        iteration=iteration,
        digest=digest_of(run.wanted),
        expires=chat.runtime.now() + min(limits) if limits else None,
    )
    run.move(ASKED)


def _is_answered_here(chat: Chat) -> bool:
    """Whether an answer comes while the chat runs: of an approver, or through its runtime."""
    return chat.task.approver is not None or chat.runtime.answers


async def put(chat: Chat, iteration: int, run: CallRun) -> None:
    """Put the question: the event, and onApproval without a decision.

    Without an approver the answer comes in a later chat.
    """
    request = run.request
    assert request is not None
    await chat.publish(ApprovalRequested, request=request)
    if not _is_answered_here(chat):
        run.move(WAITING)
    if chat.view.onApproval:
        key = (ASKED_KEY, iteration, run.id)
        await chat.runtime.step(key, tell, NOTHING, chat, request, None)


async def decide(chat: Chat, iteration: int, run: CallRun) -> None:
    """Wait for the approver's answer and act on it."""
    request = run.request
    assert request is not None
    key = (ANSWER, iteration, run.id)
    if chat.task.approver is not None:
        asked = partial(_from_approver, chat, run, request)
        decision = await chat.runtime.wait(key, request, asked)
    else:
        try:
            decision = await chat.runtime.wait(key, request, partial(_hold, chat, iteration))
        finally:
            _note_questions(chat, iteration, but=run)
    await act_on(chat, iteration, run, decision)


async def _hold(chat: Chat, iteration: int) -> None:
    """Before it waits by itself, the chat's questions stand in the store, and hold it."""
    _note_questions(chat, iteration)
    if chat.conversation.ledger is not None:
        cut = await chat.conversation.flush()
        if cut is not None:
            raise cut


def _note_questions(chat: Chat, iteration: int, but: CallRun | None = None) -> None:
    runs: list[CallRun] = [] if chat.making.batch is None else chat.making.batch.runs
    asked = [run.request for run in runs if run.state is ASKED and run is not but and run.request]
    chat.conversation.hold(chat.chat_id, iteration, asked)


async def _from_approver(chat: Chat, run: CallRun, request: ApprovalRequest) -> Decision:
    approver = chat.task.approver
    assert approver is not None

    async def answer() -> Decision:
        decision = await answer_of(approver, request, run.run_of(chat))
        _check_edit(request.id, decision)
        return decision

    if request.expires is None:
        return await answer()
    left = max(0.001, request.expires - chat.runtime.now())
    try:
        return await chat.deadlines.run(answer(), left, "the approver")
    except Expired:
        return Deny("the question expired before it was answered")


async def act_on(chat: Chat, iteration: int, run: CallRun, decision: Decision) -> None:
    """Carry out the answer: the call runs as approved, or is refused."""
    request = run.request
    assert request is not None
    if chat.view.onApproval:
        key = (ANSWERED, iteration, run.id)
        await chat.runtime.step(key, tell, NOTHING, chat, request, decision)
    if isinstance(decision, Deny):
        run.refuse(ToolFailure(decision.reason, type="Denied"), "denied")
        return
    if digest_of(request.call) != request.digest:  # now that everybody has seen it
        raise ApprovalError(
            f"approval {request.id!r}: the call was changed after it was asked about; start a new "
            "chat to ask again"
        )
    run.wanted = request.call
    if decision.arguments is not None:
        run.wanted = run.wanted.replace(arguments=decision.arguments, raw=None)
    error = admit(chat, run)
    if error is None:
        run.move(READY)
    else:
        run.refuse(error, "error")


def _check_edit(id: str, decision: Any) -> None:
    if not isinstance(decision, Approve):
        return
    # Whoever answers may be unchecked code: the declared type is not what must be there.
    if not isinstance(decision.arguments, (dict, NoneType)):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise ApprovalError(
            f"the arguments of the answer to {id!r} must be a dict, and nothing was run"
        )


def check_answers(conversation: Conversation, answers: Mapping[str, Decision], now: float) -> None:
    """Refuse answers that nothing waits for: raises ApprovalError, before anything runs."""
    pending = conversation.pending_step
    if pending is None:
        raise ApprovalError(
            f"nothing waits for an approval in conversation {conversation.id!r}: it was answered "
            "before, or a new chat has denied it; look at conversation.pending"
        )
    if not answers:
        raise ApprovalError("resume() needs at least one answer: {approval_id: Approve()}")
    requests = {request.id: request for request in pending.requests}
    for id, decision in answers.items():
        request = requests.get(id)
        if request is None:
            waiting = ", ".join(map(repr, requests))
            raise ApprovalError(
                f"there is no pending approval {id!r}; answer what waits: {waiting}"
            )
        if not isinstance(decision, (Approve, Deny)):  # pyright: ignore
            raise ApprovalError(f"the answer to {id!r} is {decision!r}; use Approve() or Deny()")
        _check_edit(id, decision)
        if digest_of(request.call) != request.digest:
            raise ApprovalError(
                f"approval {id!r}: the call is not the one that was asked about; start a new chat "
                "to ask again"
            )
        if request.expires is not None and now > request.expires:
            raise ApprovalError(f"approval {id!r} has expired; start a new chat to ask again")
