"""One step: the request, the model's answer, its tool calls, onStep."""

from __future__ import annotations

from typing import Any, Final, Literal, TypeAlias

from hookline._base.errors import StopChat
from hookline._base.events import StepFinished, StepStarted
from hookline._base.input import cleaned
from hookline._base.messages import (
    AssistantMessage,
    FinishReason,
    ModelPart,
    ToolMessage,
    Usage,
    calls_of,
)
from hookline._base.returns import Stop
from hookline._base.run import Run
from hookline._base.runtime import LOCAL, MODEL, PENDING, REQUEST, RESPONSE, SAY, STEP, Json
from hookline._chat.answer import RESPONSE_JSON, ask_model, give, stream_answer
from hookline._chat.batch import Step, open_step
from hookline._chat.request import (
    Asked,
    AskedReturns,
    Opening,
    build,
    check_tools,
    foreign_names,
    system_text,
)
from hookline._chat.state import Chat
from hookline._hooks.call_rules import hear, intercept
from hookline._hooks.points import OnResponse, OnStep, PreRequest
from hookline._model.assembly import kept, unique_calls
from hookline._model.model import ModelRequest, ModelResponse
from hookline._talk.history import check_history
from hookline._talk.store import PendingStep

StepEnd: TypeAlias = Stop | Literal["go", "natural", "stopped", "waiting"]
GO: Final = "go"  # the model is asked again
NATURAL: Final = "natural"  # it asked for nothing more
STOPPED_NATURAL: Final = "stopped"  # the same, and a hook said Stop: nothing may prolong it
WAITING: Final = "waiting"  # calls wait for approval

_PENDING: Json[PendingStep] = Json(PendingStep)
_STOPS: Json[list[Stop]] = Json(list[Stop])


async def run_step(
    chat: Chat, begin: Opening, iteration: int, answer: ModelResponse | None
) -> StepEnd:
    """One step; `answer` is what preChat has given in the model's place."""
    runtime, view = chat.runtime, chat.view
    chat.iteration = iteration
    if chat.parent_chat_id is not None:
        _hear_of_parent(chat)
    if chat.config.scopes.told_by.told:
        await chat.config.scopes.told_by.tell()
    said: ModelResponse | Stop | None = answer
    response: ModelResponse | Stop
    streamed: ModelResponse | Stop
    request = build(chat, begin) if runtime is LOCAL and answer is None else None
    if request is None:
        place, returns = (REQUEST, iteration), AskedReturns(chat)
        asked = await runtime.step(place, _request, returns, chat, begin, answer)
        request, said = asked.request, asked.answer
    elif view.preRequest:
        ctx = _before(chat, request)
        if (chain := hear(view.preRequest, ctx, chat)) is not None:
            ctx, said, _ = await chain
            request = _after(chat, request, ctx.request)
    if said is not None and isinstance(said, Stop):
        return said
    answer = said
    chat.check()
    chat.steps = iteration + 1
    await chat.publish(StepStarted, iteration=iteration)
    sent = request
    if runtime is LOCAL and answer is None and not view.aroundRequest:
        response = streamed = await stream_answer(chat, request)
    else:
        chat.sent = chat.sent_tools = None
        response = streamed = await ask_model(chat, (MODEL, iteration), request, answer)
        sent = chat.sent or request
    try:
        if view.onResponse and not isinstance(streamed, Stop):
            key, given = (RESPONSE, iteration), (chat, iteration, request, streamed)
            response = await runtime.step(key, _on_response, RESPONSE_JSON, *given)
        chat.check()
        if isinstance(response, Stop) or isinstance(streamed, Stop):
            return await _refused(chat, response)
        asm, parts = chat.assembly, response.parts
        sound = response is streamed and asm is not None and asm.sound
        message = answer_of(chat, response, parts if sound else kept(parts))
        if sound and parts and chat.live and chat.keep(message):
            chat.assembly, chat.shown = None, False
            chat.answer, chat.finish_reason = message, response.finish_reason
            if view.onMessage:
                await chat.tell(message)
        else:
            await commit_answer(chat, message, response, streamed)
    except Exception:
        await _unsay(chat)
        raise
    calls = asm.whole_calls if sound and asm is not None else calls_of(parts)
    step = open_step(chat, iteration, calls, sent) if calls else None
    return await finish_step(chat, iteration, response, step, begin)


async def _unsay(chat: Chat) -> None:
    """A hook has refused the answer: nothing of it is kept, and what was shown is taken back."""
    if chat.assembly is not None:
        chat.assembly = None
        await chat.take_back()


async def _refused(chat: Chat, stop: Any) -> Stop:
    """A hook has stopped the chat around the answer: the step ends without one."""
    await _unsay(chat)
    await _finished(chat, "other", None)
    said: Stop = stop
    return said


def _hear_of_parent(chat: Chat) -> None:
    """A child that never suspends hears here that what it is a part of was broken off."""
    parent: Chat | None = chat.task.parent
    if parent is not None and parent.broken:
        chat.abort(parent.reason)
        chat.check()


async def _request(chat: Chat, begin: Opening, answer: ModelResponse | None) -> Asked:
    before = build(chat, begin)
    if before is None:
        before = build(chat, begin, await system_text(chat) or "")
        assert before is not None
    if answer is not None or not chat.view.preRequest:
        return Asked(request=before, answer=answer)  # preChat has answered step 0
    ctx, said, _ = await intercept(chat.view.preRequest, _before(chat, before), chat)
    return Asked(request=_after(chat, before, ctx.request), answer=said)


def _before(chat: Chat, request: ModelRequest) -> PreRequest[Any]:
    return PreRequest(run=Run(chat), iteration=chat.iteration, request=request)


def _after(chat: Chat, before: ModelRequest, request: ModelRequest) -> ModelRequest:
    """The request as its hooks left it, if that can be sent."""
    if request is before:
        return before
    check_tools(before, request)
    if request.messages is not before.messages:
        request = request.replace(messages=tuple(request.messages))  # the hook's list no more
        check_history(request.messages)
        chat.base_messages = request.messages
    return request


async def _on_response(
    chat: Chat, iteration: int, request: ModelRequest, response: ModelResponse
) -> ModelResponse | Stop:
    ctx: OnResponse[Any] = OnResponse(
        run=chat.run, iteration=iteration, request=request, response=response
    )
    try:
        ctx, _, _ = await intercept(chat.view.onResponse, ctx, chat)
    except StopChat as stop:
        return Stop(stop.reason, stop.text)
    if ctx.response is response:
        return response
    given, taken = cleaned(ctx.response), chat.conversation.call_ids
    return unique_calls(given, response, taken, chat.chat_id, iteration)


def answer_of(
    chat: Chat, response: ModelResponse, parts: tuple[ModelPart, ...]
) -> AssistantMessage:
    """The message of an answer; the parts are as history keeps them."""
    return AssistantMessage(
        id=f"{chat.chat_id}.{len(chat.messages)}",
        parts=parts,
        finish_reason=response.finish_reason,
        usage=response.usage,
        model=response.model,
        meta=response.meta,
    )


async def commit_answer(
    chat: Chat, message: AssistantMessage, response: ModelResponse, streamed: ModelResponse
) -> None:
    """Write the answer; one that says nothing is not written."""
    if response is not streamed:  # a hook's own, or from the record
        chat.take_ids(message)
    if message.parts:
        message = await chat.commit(message, streamed.parts)
    else:
        await chat.agree((), streamed.parts)
        chat.assembly = None
    chat.answer = message if message.parts else None
    chat.finish_reason = response.finish_reason


async def say(chat: Chat, text: str) -> None:
    """What a Stop says to the user, streamed and committed like an answer."""
    said = ModelResponse.of(text).replace(finish_reason=chat.finish_reason or "stop")
    streamed = await give(chat, (SAY, chat.iteration), said)
    await commit_answer(chat, answer_of(chat, streamed, kept(streamed.parts)), streamed, streamed)


async def finish_step(
    chat: Chat, iteration: int, response: ModelResponse, step: Step | None, begin: Opening
) -> StepEnd:
    """Run the step's calls and end it, or write down how to go on where some wait for approval."""
    stop: Stop | None = None
    if step is not None:
        whole = await step.run()
        if chat.broken:
            chat.check()
        if not whole:
            await _suspend(chat, step, begin)
            return WAITING
        chat.open_step = None
        stop = step.stop
    if chat.view.onStep:
        results = step.results if step is not None else ()
        key = (STEP, iteration)
        stops = await chat.runtime.step(key, _on_step, _STOPS, chat, iteration, response, results)
        stop = stop or (stops[0] if stops else None)
    await _finished(chat, response.finish_reason, response.usage)
    if step is not None:
        return stop or GO
    return NATURAL if stop is None else STOPPED_NATURAL


async def _finished(chat: Chat, reason: FinishReason, usage: Usage | None) -> None:
    iteration = chat.iteration
    await chat.publish(StepFinished, iteration=iteration, finish_reason=reason, usage=usage)


async def _suspend(chat: Chat, step: Step, begin: Opening) -> None:
    """Some calls wait for approval: write down how a later chat goes on."""
    pending = step.pending_step().replace(
        system=begin.system,
        tools=None if begin.tools is None else tuple(tool.name for tool in begin.tools),
        foreign=tuple(foreign_names(chat, begin.tools or ())),
        settings=begin.settings,
        state=chat.json_state() or None,
    )
    waits = await chat.runtime.step((PENDING, step.iteration), _wait, _PENDING, chat, pending)
    chat.conversation.wait(waits)  # once more, for a step that was replayed
    chat.open_step = None


async def _wait(chat: Chat, pending: PendingStep) -> PendingStep:
    conversation = chat.conversation
    conversation.wait(pending)
    if conversation.ledger is not None:
        cut = await conversation.flush()
        if cut is not None:
            raise cut
    return pending


async def _on_step(
    chat: Chat, iteration: int, response: ModelResponse, results: tuple[ToolMessage, ...]
) -> list[Stop]:
    ctx: OnStep[Any] = OnStep(run=chat.run, iteration=iteration, response=response, results=results)
    _, _, stops = await intercept(chat.view.onStep, ctx, chat)
    return stops
