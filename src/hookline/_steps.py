"""One step: the request, the model's answer, its tool calls, onStep."""

from __future__ import annotations

from typing import Any, Final, Literal, TypeAlias

from hookline._answer import RESPONSE_JSON, ask_model, play, recall
from hookline._assembly import kept, unique_calls
from hookline._chain import intercept
from hookline._chat import Chat
from hookline._dispatch import Step, open_step
from hookline._events import StepFinished, StepStarted
from hookline._history import check_history
from hookline._input import cleaned
from hookline._messages import AssistantMessage, ToolMessage
from hookline._model import ModelRequest, ModelResponse
from hookline._outcomes import Stop
from hookline._outlet import SIZE
from hookline._points import OnResponse, OnStep, PreRequest
from hookline._request import (
    Asked,
    AskedReturns,
    Opening,
    build,
    check_tools,
    foreign_names,
    named,
    system_text,
)
from hookline._runtime import MODEL, PENDING, REQUEST, RESPONSE, SAY, STEP, Json
from hookline._store import PendingStep

StepEnd: TypeAlias = Stop | Literal["go", "natural", "stopped", "waiting"]
GO: Final = "go"  # the model is asked again
NATURAL: Final = "natural"  # it asked for nothing more
STOPPED_NATURAL: Final = "stopped"  # the same, and a hook said Stop: nothing may prolong it
WAITING: Final = "waiting"  # calls wait for approval

_PENDING: Json[PendingStep] = Json(PendingStep)
_STOPS: Json[list[Stop]] = Json(list[Stop])


async def run_step(
    chat: Chat, begin: Opening, iteration: int, answer: ModelResponse | None, asks: AskedReturns
) -> StepEnd:
    """One step; `answer` is what preChat has given in the model's place."""
    runtime, view = chat.runtime, chat.view
    chat.iteration = iteration
    parent: Chat | None = chat.task.parent
    if parent is not None and parent.broken:
        chat.abort(parent.reason)  # a child that never suspends does not hear of it otherwise
        chat.check()
    if chat.config.scopes.told:
        await chat.config.scopes.tell()
    asked = await runtime.step((REQUEST, iteration), _request, asks, chat, begin, answer)
    if isinstance(asked.answer, Stop):
        return asked.answer
    if chat.broken:
        chat.check()
    request = asked.request
    chat.steps = iteration + 1
    outlet = chat.outlet
    if len(outlet.items) >= SIZE:
        await outlet.room()
    outlet.put(StepStarted(chat_id=chat.chat_id, path=outlet.path, iteration=iteration))
    before = chat.asked
    chat.sent = chat.sent_tools = None
    response = streamed = await ask_model(chat, (MODEL, iteration), request, asked.answer)
    if chat.asked == before:
        recall(chat, streamed)
        if chat.sent_tools is not None:
            chat.sent = request.replace(tools=named(request.tools, chat.sent_tools))
    try:
        if view.onResponse:
            key = (RESPONSE, iteration)
            response = await runtime.step(
                key, _on_response, RESPONSE_JSON, chat, iteration, request, streamed
            )
        if chat.broken:
            chat.check()
        await commit_answer(chat, response, streamed)
    except Exception:
        if chat.assembly is not None:  # a hook refused the answer: nothing of it is kept
            chat.assembly = None
            await chat.take_back()
        raise
    calls = response.calls
    step = open_step(chat, iteration, calls, chat.sent or request) if calls else None
    return await finish_step(chat, iteration, response, step, begin)


async def _request(chat: Chat, begin: Opening, answer: ModelResponse | None) -> Asked:
    system = begin.system if begin.system is not None else chat.config.system
    if system is not None and not isinstance(system, str):
        system = await system_text(chat)
    before = build(chat, begin, system)
    hooks = chat.view.preRequest
    if answer is not None or not hooks:
        return Asked(request=before, answer=answer)  # preChat has answered step 0
    ctx: PreRequest[Any] = PreRequest(run=chat.run, iteration=chat.iteration, request=before)
    ctx, said, _ = await intercept(hooks, ctx, chat)
    check_tools(before, ctx.request)
    request = ctx.request
    if request.messages is not before.messages:
        request = request.replace(messages=tuple(request.messages))  # the hook's list no more
        check_history(request.messages)
        chat.base_messages = request.messages
    return Asked(request=request, answer=said)


async def _on_response(
    chat: Chat, iteration: int, request: ModelRequest, response: ModelResponse
) -> ModelResponse:
    ctx: OnResponse[Any] = OnResponse(
        run=chat.run, iteration=iteration, request=request, response=response
    )
    ctx, _, _ = await intercept(chat.view.onResponse, ctx, chat)
    if ctx.response is response:
        return response
    return unique_calls(ctx.response, response, chat.conversation.call_ids, chat.chat_id, iteration)


async def commit_answer(chat: Chat, response: ModelResponse, streamed: ModelResponse) -> None:
    """Write the answer; one that says nothing is not written."""
    message = AssistantMessage(
        id=chat.next_id(),
        parts=kept(response.parts),
        finish_reason=response.finish_reason,
        usage=response.usage,
        model=response.model,
        meta=response.meta,
    )
    if response is not streamed:  # a hook's own
        message = cleaned(message)
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
    before = chat.asked
    key = (SAY, chat.iteration)
    streamed = await chat.runtime.step(key, play, RESPONSE_JSON, chat, said)
    if chat.asked == before:
        recall(chat, streamed)
    await commit_answer(chat, streamed, streamed)


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
        stop = step.stop
    if chat.view.onStep:
        results = step.results if step is not None else ()
        key = (STEP, iteration)
        stops = await chat.runtime.step(key, _on_step, _STOPS, chat, iteration, response, results)
        stop = stop or (stops[0] if stops else None)
    outlet = chat.outlet
    if len(outlet.items) >= SIZE:
        await outlet.room()
    outlet.put(
        StepFinished(
            chat_id=chat.chat_id,
            path=outlet.path,
            iteration=iteration,
            finish_reason=response.finish_reason,
            usage=response.usage,
        )
    )
    if step is not None:
        return stop or GO
    return NATURAL if stop is None else STOPPED_NATURAL


async def _suspend(chat: Chat, step: Step, begin: Opening) -> None:
    """Some calls wait for approval: write down how a later chat goes on."""
    pending = step.pending_step().replace(
        system=begin.system,
        tools=None if begin.tools is None else tuple(tool.name for tool in begin.tools),
        foreign=tuple(foreign_names(chat, begin.tools or ())),
        settings=begin.settings,
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
