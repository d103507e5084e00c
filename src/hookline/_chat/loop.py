"""The life of a chat, from aroundChat to onChatEnd.

It reads like the contract: start, preChat, the user's message, steps until there is nothing left
to do, then exactly one outcome and its observers. It does no I/O of its own, asks no clock, draws
no random number and starts no task: all that comes through the runtime, and what has to do with
tasks and cancellation through the supervisor that owns the run.
"""

from __future__ import annotations

from collections.abc import Awaitable
from functools import partial
from typing import Any, NamedTuple

from hookline._base.errors import (
    ChatAbortedError,
    HookError,
    MaxStepsError,
)
from hookline._base.events import ChatStarted
from hookline._base.input import cleaned
from hookline._base.json import clean_text
from hookline._base.log import log_throw
from hookline._base.messages import Text, UserMessage
from hookline._base.returns import Continue, Response, Stop
from hookline._base.runtime import NOTHING, PRE_CHAT, PRE_STOP, START, Json
from hookline._chat.ending import end, respond
from hookline._chat.entry import check_entry, check_message
from hookline._chat.life import DONE, Phase, Sign
from hookline._chat.output import fits
from hookline._chat.request import (
    AS_IT_IS,
    Overrides,
    OverridesReturns,
    changed,
    first_request,
)
from hookline._chat.resume import deny_step, resume_step
from hookline._chat.speaker import remember_speaker, take_turn
from hookline._chat.state import Chat, SupervisorPort
from hookline._chat.step import GO, NATURAL, WAITING, StepEnd, run_step, say_stop_text
from hookline._hooks.call_rules import intercept, notify
from hookline._hooks.points import AroundChat, OnChatStart, PreChat, PreStop
from hookline._hooks.registration import Hook
from hookline._hooks.wrappers import wrap
from hookline._model.model import ModelResponse
from hookline._talk.store import PendingStep

_INPUTS: Json[list[Continue]] = Json(list[Continue])


def run(chat: Chat, supervisor: SupervisorPort) -> Awaitable[Response]:
    """One chat, on a conversation that it has taken.

    What is raised before aroundChat has proceeded reaches the caller alone.
    """
    if chat.conversation.ledger is not None:
        return _stored(chat, supervisor)
    return _checked(chat, supervisor)


async def _stored(chat: Chat, supervisor: SupervisorPort) -> Response:
    await chat.conversation.take(chat.chat_id, chat.lost, chat.runtime.life)
    return await _checked(chat, supervisor)


def _checked(chat: Chat, supervisor: SupervisorPort) -> Awaitable[Response]:
    chat.deadlines.enter()
    remember_speaker(chat)
    take_turn(chat)
    check_entry(chat)
    wrappers = chat.view.aroundChat
    if wrappers:
        return _wrapped(chat, supervisor, wrappers)
    return _proceed(chat, supervisor, chat.task.message)


async def _wrapped(chat: Chat, supervisor: SupervisorPort, wrappers: tuple[Hook, ...]) -> Response:
    ctx: AroundChat[Any] = AroundChat(run=chat.run, message=chat.task.message)
    inner = partial(_proceed, chat, supervisor)
    try:
        response = await wrap(
            wrappers, ctx, inner, chat, again=lambda: "proceed may be called once"
        )
    except Exception as exc:
        if chat.error is not None and exc is not chat.error:
            log_throw("a hook at aroundChat raised after the chat had failed", exc)
            raise chat.error from None
        raise
    if chat.life.phase is Phase.NEW:
        raise HookError(
            "a hook at aroundChat returned without calling proceed, and nothing was run: call it "
            "once"
        )
    if chat.outcome != "done":  # a wrapper cannot undo the outcome
        raise chat.error or ChatAbortedError(chat.reason, chat.messages)
    chat.response = response
    return response


async def _proceed(chat: Chat, supervisor: SupervisorPort, message: UserMessage | None) -> Response:
    """The inside of aroundChat: the chat, its one outcome, its observers."""
    chat.check()
    chat.life.move(Sign.PROCEED)
    chat.progress.started = chat.runtime.now()
    limit = chat.config.limits.steps
    try:
        response, overrides, step, answer, ended = await _begin(chat, message)
        while response is None:
            while ended == GO:
                if step >= limit:
                    raise MaxStepsError(limit)
                if take_turn(chat):
                    overrides = AS_IT_IS  # what preChat made was for another speaker
                ended = await run_step(chat, overrides, step, answer)
                answer = None
                step += 1
            response = await _after_steps(chat, ended, step < limit)
            ended = GO
        chat.response = response
        if not chat.life.decide(DONE):
            chat.check()
        chat.life.move(Sign.ANSWERED)
    except BaseException as exc:
        supervisor.judge(exc)
    ending = chat.ending = end(chat)
    if chat.outcome == "aborted":
        await supervisor.finish(ending)
    elif ending:
        try:
            while ending:
                await ending.popleft()()
        except BaseException as exc:
            supervisor.judge(exc)  # cancelled from outside in mid ending: the rest still happens
            await supervisor.finish(ending)
    if chat.life.error is not None:  # a cancellation: a wrapper's time limit, or a third party's
        raise chat.life.error
    if chat.life.late:
        raise chat.life.late[0]
    assert chat.response is not None
    return chat.response


class _Begun(NamedTuple):
    """How the steps begin; `ended` is how the last one did, of an earlier chat."""

    response: Response | None  # preChat has stopped the chat
    overrides: Overrides
    step: int = 0
    answer: ModelResponse | None = None
    ended: StepEnd = GO


async def _begin(chat: Chat, message: UserMessage | None) -> _Begun:
    """The start, and then the step that waited or what a new chat begins with."""
    view = chat.view
    pending = chat.conversation.pending_step
    resumed = pending if chat.task.answers is not None else None
    if resumed is not None:
        chat.progress.resumes = resumed.chat_id
        for key, value in (resumed.state or {}).items():
            chat.state.setdefault(key, value)
    if chat.config.scopes.told_by.told:
        await chat.config.scopes.told_by.tell()
    await chat.publish(
        ChatStarted,
        agent=chat.agent_name,
        message=message,
        conversation_id=chat.conversation_id,
        parent_chat_id=chat.parent_chat_id,
        resumes=chat.progress.resumes,
    )
    if view.onChatStart:
        start: OnChatStart[Any] = OnChatStart(run=chat.run, message=message)
        await chat.runtime.step((START,), notify, NOTHING, view.onChatStart, start, chat)
    chat.check()
    if resumed is not None:
        overrides, ended = await resume_step(chat, resumed)
        return _Begun(None, overrides, resumed.iteration + 1, None, ended)
    return await _enter(chat, message, pending)


async def _enter(chat: Chat, message: UserMessage | None, pending: PendingStep | None) -> _Begun:
    """preChat, what waited is denied, the user's message."""
    overrides, answer, said = AS_IT_IS, None, message
    if chat.view.preChat:
        overrides, said, answer = await chat.runtime.step(
            (PRE_CHAT,), _pre_chat, OverridesReturns(chat), chat, message
        )
        chat.check()
        if isinstance(answer, Stop):
            return _Begun(respond(chat, answer.reason, clean_text(answer.text or "")), overrides)
        if said is not None and said is not message:
            check_message(chat, said)
    stop = await deny_step(chat, pending) if pending is not None else None
    if said is not None:
        await chat.commit(said if said is message else cleaned(said))
    return _Begun(None, overrides, 0, answer, stop or GO)


async def _pre_chat(chat: Chat, message: UserMessage | None) -> Any:
    before = await first_request(chat, message)
    ctx: PreChat[Any] = PreChat(run=chat.run, request=before)
    ctx, answer, _ = await intercept(chat.view.preChat, ctx, chat)
    return changed(before, ctx.request), ctx.request.message, answer


async def _after_steps(chat: Chat, ended: StepEnd, may_go_on: bool) -> Response | None:
    """The chat ends by itself, is stopped, or waits; None where the model is asked again."""
    form = chat.config.output
    chat.check()
    if ended == WAITING:
        return respond(chat, "approval")
    reason = None
    if isinstance(ended, Stop):
        reason, chat.last.output = ended.reason, None
        if ended.text:
            await say_stop_text(chat, ended.text)
    elif form is not None and not await fits(chat, form, ended == NATURAL and may_go_on):
        return None
    more = await _pre_stop(chat, reason)
    if not more or ended != NATURAL or not may_go_on:
        return respond(chat, reason)
    chat.progress.continuations += 1
    await chat.commit(UserMessage(parts=(Text(clean_text(more)),)))
    return None


async def _pre_stop(chat: Chat, reason: str | None) -> str | None:
    """Ask preStop; the joined inputs of its Continues, None where there are none."""
    if not chat.view.preStop or chat.progress.continuations >= chat.config.limits.continuations:
        return None
    key = (PRE_STOP, chat.progress.continuations)
    inputs = await chat.runtime.step(key, _ask_to_stop, _INPUTS, chat, reason)
    chat.check()
    return "\n\n".join(each.input for each in inputs if each.input.strip()) or None


async def _ask_to_stop(chat: Chat, reason: str | None) -> list[Continue]:
    ctx: PreStop[Any] = PreStop(
        run=chat.run,
        reason=reason,
        response=respond(chat, reason),
        steps=chat.progress.steps,
        continuations=chat.progress.continuations,
    )
    _, _, inputs = await intercept(chat.view.preStop, ctx, chat)
    return inputs
