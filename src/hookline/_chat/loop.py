"""The life of a chat, from aroundChat to onChatEnd.

The order is that of the contract: start, preChat, the user's message, steps until nothing is left
to do, then exactly one outcome and its observers. This module does no I/O, reads no clock, draws no
random number and starts no task. The runtime provides all of these. The supervisor owns the run and
handles tasks and cancellation.
"""

from __future__ import annotations

from asyncio import CancelledError
from collections.abc import Awaitable
from contextlib import suppress
from functools import partial
from typing import Any, NamedTuple

from hookline._base.cancel import give_way
from hookline._base.errors import (
    ChatAbortedError,
    HookError,
    MaxStepsError,
)
from hookline._base.events import ChatStarted
from hookline._base.input import without_surrogates
from hookline._base.json import clean_text
from hookline._base.log import log_throw
from hookline._base.messages import Text, UserMessage
from hookline._base.returns import Continue, Response, Stop
from hookline._chat.channel import HIGH_WATER
from hookline._chat.commit import commit
from hookline._chat.ending import end, respond
from hookline._chat.entry import check_entry, check_message
from hookline._chat.life import DONE, Phase, Sign
from hookline._chat.output import fits
from hookline._chat.request import (
    AS_IT_IS,
    PRE_CHAT_END,
    Overrides,
    PreChatEnd,
    first_request,
    overrides_of,
)
from hookline._chat.resume import deny_step, resume_step
from hookline._chat.speaker import SPEAKER, remember_speaker, take_turn
from hookline._chat.state import Chat, SupervisorPort
from hookline._chat.steering import may_have_input, take_input
from hookline._chat.step import GO, NATURAL, WAITING, StepEnd, run_step, say_stop_text
from hookline._conversations.store import PendingStep
from hookline._hooks.call_rules import intercept, notify
from hookline._hooks.points import AroundChat, OnChatStart, PreChat, PreStop
from hookline._hooks.registration import Hook
from hookline._hooks.wrappers import wrap
from hookline._model.model import ModelResponse
from hookline._record.runtime import NOTHING, PRE_CHAT, PRE_STOP, START, Json

_INPUTS: Json[list[Continue]] = Json(list[Continue])


async def prepare(chat: Chat) -> None:
    """Take the lease of the conversation that the supervisor has acquired, and check the input."""
    await chat.conversation.take(chat.chat_id, chat.lose_lease, chat.runtime.life)
    chat.deadlines.enter()
    remember_speaker(chat)  # before the checks: an approved tool may be the speaker's
    await check_entry(chat)


def run(chat: Chat, supervisor: SupervisorPort) -> Awaitable[Response]:
    """Run a chat that is prepared.

    An exception before aroundChat has called `proceed` only reaches the caller. The supervisor is a
    parameter because the chat drops it at its end, when a task that was left behind may still run.
    """
    wrappers = chat.view.aroundChat
    if wrappers:
        return _with_wrappers(chat, supervisor, wrappers)
    return _proceed(chat, supervisor, chat.input.message)


async def _with_wrappers(
    chat: Chat, supervisor: SupervisorPort, wrappers: tuple[Hook, ...]
) -> Response:
    ctx: AroundChat[Any] = AroundChat(run=chat.run, message=chat.input.message)
    inner = partial(_proceed, chat, supervisor)
    try:
        response = await wrap(
            wrappers, ctx, inner, chat, again=lambda: "proceed may be called once"
        )
    except Exception as exc:
        if chat.error is not None and exc is not chat.error:
            log_throw("a hook at aroundChat raised an exception after the chat had failed", exc)
            raise chat.error from None
        raise
    if chat.life.phase is Phase.NEW:
        raise HookError(
            "a hook at aroundChat returned without calling proceed, so nothing was run; call "
            "proceed exactly once"
        )
    if chat.life.outcome != "done":  # a wrapper cannot undo the outcome
        raise chat.error or ChatAbortedError(chat.reason, chat.messages)
    chat.response = response  # the caller and ChatDone get the wrapper's; observers got the chat's
    return response


async def _proceed(chat: Chat, supervisor: SupervisorPort, message: UserMessage | None) -> Response:
    """Run the inside of aroundChat: the chat, its one outcome, its observers."""
    chat.check()
    chat.progress.started = chat.runtime.now()
    await _start(chat, message)
    limit = chat.config.limits.steps
    try:
        response, overrides, step, answer, step_end = await _begin(chat, message)
        while response is None:
            while step_end == GO:
                if step >= limit:
                    raise MaxStepsError(limit)
                if may_have_input(chat, answer):
                    await take_input(chat, step, idle=False)
                if SPEAKER in chat.state and take_turn(chat):
                    overrides = AS_IT_IS  # preChat made these for another speaker
                step_end = await run_step(chat, overrides, step, answer)
                answer = None
                step += 1
            response = await _after_steps(chat, step_end, step, may_go_on=step < limit)
            step_end = GO
        chat.response = response
        if not chat.life.decide(DONE):  # an abort from another thread came first
            chat.check()
        chat.life.move(Sign.COMPLETE)
    except BaseException as exc:
        supervisor.judge(exc)
        # A cancellation takes effect at the next await. If the chat failed by itself just before,
        # its own cancellation is still to come, and must hit no observer.
        with suppress(CancelledError):
            await give_way()
    # Each act is taken out before it runs, so that others can go on where this task is stuck.
    ending = chat.ending = end(chat)
    if chat.life.outcome == "aborted":  # more cancellations may come; `finish` keeps them away
        await supervisor.finish(ending)
    elif ending:
        try:
            while ending:
                await ending.popleft()()
        except BaseException as exc:
            supervisor.judge(exc)  # cancelled in the middle of the ending: the rest still runs
            await supervisor.finish(ending)
    if chat.life.error is not None:  # also a cancellation: a wrapper's time limit, or other code
        raise chat.life.error
    if chat.life.late:
        raise chat.life.late[0]
    assert chat.response is not None
    return chat.response


async def _start(chat: Chat, message: UserMessage | None) -> None:
    """Move on to RUNNING and publish ChatStarted, with nothing awaited in between.

    A chat that is broken off before that has not begun: no hook and no reader is told of it.
    """
    pending = chat.conversation.pending_step
    if chat.input.answers is not None and pending is not None:
        chat.progress.resumes = pending.chat_id
    if chat.config.scopes.observers.waiting:  # async observers of scopes registered since
        await chat.config.scopes.observers.tell()
    if len(chat.channel.items) > HIGH_WATER:
        await chat.room()
    if not chat.life.move(Sign.PROCEED):
        chat.check()
    chat.put(
        ChatStarted(
            chat_id=chat.chat_id,
            agent=chat.agent_name,
            message=message,
            conversation_id=chat.conversation_id,
            parent_chat_id=chat.parent_chat_id,
            resumes=chat.progress.resumes,
        )
    )


class _FirstStep(NamedTuple):
    """The start of the steps. `end`: the end of a step that an earlier chat had begun."""

    response: Response | None  # preChat has stopped the chat
    overrides: Overrides
    step: int = 0
    answer: ModelResponse | None = None
    end: StepEnd = GO


async def _begin(chat: Chat, message: UserMessage | None) -> _FirstStep:
    """Start the chat, then go on with the step that waited, or enter a new chat."""
    view = chat.view
    pending = chat.conversation.pending_step
    resumed = pending if chat.input.answers is not None else None
    if resumed is not None:
        for key, value in (resumed.state or {}).items():
            chat.state.setdefault(key, value)  # the `state=` of this chat comes first
    if view.onChatStart:
        start: OnChatStart[Any] = OnChatStart(run=chat.run, message=message)
        await chat.runtime.step((START,), notify, NOTHING, view.onChatStart, start, chat)
    chat.check()
    if resumed is not None:
        overrides, end = await resume_step(chat, resumed)
        return _FirstStep(None, overrides, resumed.iteration + 1, None, end)
    return await _enter(chat, message, pending)


async def _enter(
    chat: Chat, message: UserMessage | None, pending: PendingStep | None
) -> _FirstStep:
    """Run preChat, deny the calls that still wait, and commit the user's message."""
    overrides, message_text, answer = AS_IT_IS, message, None
    if chat.asks(chat.view.preChat, (PRE_CHAT,)):
        end = await chat.runtime.step((PRE_CHAT,), _pre_chat, PRE_CHAT_END, chat, message)
        chat.check()
        overrides, message_text = end.overrides, end.message
        if isinstance(end.answer, Stop):
            text = clean_text(end.answer.text or "")
            return _FirstStep(respond(chat, end.answer.reason, text), overrides)
        answer = end.answer
        if message_text is not None and message_text is not message:
            await check_message(chat, message_text, "preChat")
    # After preChat, so that a hook that stops the chat leaves the waiting calls as they are.
    stop = await deny_step(chat, pending) if pending is not None else None
    if message_text is not None:
        await commit(
            chat, message_text if message_text is message else without_surrogates(message_text)
        )
    return _FirstStep(None, overrides, 0, answer, stop or GO)


async def _pre_chat(chat: Chat, message: UserMessage | None) -> PreChatEnd:
    before = await first_request(chat, message)
    ctx: PreChat[Any] = PreChat(run=chat.run, request=before)
    ctx, answer, _ = await intercept(chat.view.preChat, ctx, chat)
    return PreChatEnd(overrides_of(before, ctx.request), ctx.request.message, answer)


async def _after_steps(chat: Chat, end: StepEnd, step: int, *, may_go_on: bool) -> Response | None:
    """The response of a chat whose steps have ended; None if the model is asked again."""
    chat.check()
    chat.last.output = None  # a response has the output of its last step
    if end == WAITING:
        return respond(chat, "approval" if chat.conversation.pending else "client_tool")
    reason = None
    if isinstance(end, Stop):
        reason = end.reason
        if end.text:
            await say_stop_text(chat, end.text)
    elif not await fits(chat, end == NATURAL and may_go_on):
        return None
    more = await _pre_stop(chat, reason)
    if end != NATURAL or not may_go_on:
        return respond(chat, reason)
    if more:
        chat.progress.continuations += 1
        await commit(chat, UserMessage(parts=(Text(clean_text(more)),)))
    elif not await take_input(chat, step, idle=True):
        return respond(chat, reason)
    chat.progress.stops += 1
    return None


async def _pre_stop(chat: Chat, reason: str | None) -> str | None:
    """Call preStop; return the joined inputs of its Continues, or None."""
    key = (PRE_STOP, chat.progress.stops)
    if chat.progress.continuations >= chat.config.limits.continuations:
        return None
    if not chat.asks(chat.view.preStop, key):
        return None
    inputs = await chat.runtime.step(key, _ask_to_stop, _INPUTS, chat, reason)
    chat.check()
    return (
        "\n\n".join(continuation.input for continuation in inputs if continuation.input.strip())
        or None
    )


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
