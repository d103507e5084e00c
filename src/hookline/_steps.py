"""One step: the request, the model's answer, its tool calls, onStep."""

from __future__ import annotations

from functools import partial
from typing import Any, Final, Literal, TypeAlias

from hookline._answer import ask_model, play
from hookline._assembly import kept, unique_calls
from hookline._chain import intercept
from hookline._chat import Chat
from hookline._conversation import PendingStep
from hookline._dispatch import Step
from hookline._events import StepFinished, StepStarted
from hookline._history import check_history
from hookline._messages import AssistantMessage, ToolMessage
from hookline._model import ModelRequest, ModelResponse
from hookline._outcomes import Stop
from hookline._outlet import SIZE
from hookline._points import OnResponse, OnStep, PreRequest
from hookline._request import Asked, AskedReturns, Opening, build, check_tools, foreign_names
from hookline._runtime import MODEL, PENDING, REQUEST, RESPONSE, SAY, STEP, Json

StepEnd: TypeAlias = Stop | Literal["go", "natural", "stopped", "waiting"]
GO: Final = "go"  # the model is asked again
NATURAL: Final = "natural"  # it asked for nothing more
STOPPED_NATURAL: Final = "stopped"  # the same, and a hook said Stop: nothing may prolong it
WAITING: Final = "waiting"  # calls wait for approval

_RESPONSE: Json[ModelResponse] = Json(ModelResponse)
_PENDING: Json[PendingStep] = Json(PendingStep)
_STOPS: Json[list[Stop]] = Json(list[Stop])


async def run_step(
    chat: Chat, begin: Opening, iteration: int, answer: ModelResponse | None
) -> StepEnd:
    """One step; `answer` is what preChat has given in the model's place."""
    runtime, view, scopes = chat.runtime, chat.view, chat.config.scopes
    chat.iteration = iteration
    if scopes.told:
        await scopes.tell()
    ask = partial(_request, chat, begin, iteration, answer)
    asked = await runtime.step((REQUEST, iteration), ask, AskedReturns(chat))
    if isinstance(asked.answer, Stop):
        return asked.answer
    if chat.broken:
        chat.check()
    request = asked.request
    chat.steps = iteration + 1
    outlet = chat.outlet
    if len(outlet.items) >= SIZE:
        await outlet.room()
    seq = outlet.number()
    if outlet.buffer is not None or outlet.heard:
        outlet.put(
            StepStarted(chat_id=chat.chat_id, seq=seq, path=outlet.path, iteration=iteration)
        )
    if asked.answer is None:
        streamed = await ask_model(chat, iteration, request)
    else:
        streamed = await play(chat, (MODEL, iteration), iteration, asked.answer)
    response = streamed
    try:
        if view.onResponse:
            seen = partial(_on_response, chat, iteration, request, streamed)
            response = await runtime.step((RESPONSE, iteration), seen, _RESPONSE)
        if chat.broken:
            chat.check()
        await commit_answer(chat, response, streamed)
    except Exception:
        if chat.assembly is not None:  # a hook refused the answer: nothing of it is kept
            chat.assembly = None
            await chat.take_back()
        raise
    calls = response.calls
    if not calls:
        return await _end_step(chat, iteration, response, None)
    return await run_calls(chat, Step(chat, iteration, calls, request), response, begin)


async def _request(
    chat: Chat, begin: Opening, iteration: int, answer: ModelResponse | None
) -> Asked:
    before = await build(chat, begin)
    hooks = chat.view.preRequest
    if answer is not None or not hooks:
        return Asked(request=before, answer=answer)  # preChat has answered step 0
    ctx: PreRequest[Any] = PreRequest(run=chat.run, iteration=iteration, request=before)
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
    return unique_calls(ctx.response, response, chat.taken, chat.chat_id, iteration)


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
    streamed = await play(chat, (SAY, chat.iteration), chat.iteration, said)
    await commit_answer(chat, streamed, streamed)


async def run_calls(chat: Chat, step: Step, response: ModelResponse, begin: Opening) -> StepEnd:
    """Run the step's calls; where some wait for approval, write down how to go on."""
    whole = await step.run()
    if chat.broken:
        chat.check()
    if whole:
        return await _end_step(chat, step.iteration, response, step)
    pending = step.pending_step().replace(
        system=begin.system,
        tools=None if begin.tools is None else tuple(tool.name for tool in begin.tools),
        foreign=tuple(foreign_names(chat, begin.tools or ())),
        settings=begin.settings,
    )
    key = (PENDING, step.iteration)
    waits = await chat.runtime.step(key, partial(_wait, chat, pending), _PENDING)
    chat.conversation.wait(waits)  # once more, for a step that was replayed
    chat.open_step = None
    return WAITING


async def _wait(chat: Chat, pending: PendingStep) -> PendingStep:
    conversation = chat.conversation
    conversation.wait(pending)
    if conversation.ledger is not None:
        cut = await conversation.flush()
        if cut is not None:
            raise cut
    return pending


async def _end_step(
    chat: Chat, iteration: int, response: ModelResponse, step: Step | None
) -> StepEnd:
    stop = step.stop if step is not None else None
    if chat.view.onStep:
        results = step.results if step is not None else ()
        ask = partial(_on_step, chat, iteration, response, results)
        stops = await chat.runtime.step((STEP, iteration), ask, _STOPS)
        stop = stop or (stops[0] if stops else None)
    outlet = chat.outlet
    if len(outlet.items) >= SIZE:
        await outlet.room()
    seq = outlet.number()
    if outlet.buffer is not None or outlet.heard:
        outlet.put(
            StepFinished(
                chat_id=chat.chat_id,
                seq=seq,
                path=outlet.path,
                iteration=iteration,
                finish_reason=response.finish_reason,
                usage=response.usage,
            )
        )
    if step is not None:
        return stop or GO
    return NATURAL if stop is None else STOPPED_NATURAL


async def _on_step(
    chat: Chat, iteration: int, response: ModelResponse, results: tuple[ToolMessage, ...]
) -> list[Stop]:
    ctx: OnStep[Any] = OnStep(run=chat.run, iteration=iteration, response=response, results=results)
    _, _, stops = await intercept(chat.view.onStep, ctx, chat)
    return stops
