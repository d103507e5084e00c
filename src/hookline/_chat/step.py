"""One step: the request, the model's answer, its tool calls, onStep."""

from __future__ import annotations

from typing import Any, Final, Literal, TypeAlias

from hookline._base.errors import StopChat
from hookline._base.events import StepFinished, StepStarted
from hookline._base.input import without_surrogates
from hookline._base.json import clean_text
from hookline._base.messages import (
    AssistantMessage,
    FinishReason,
    Text,
    ToolMessage,
    Usage,
    UserMessage,
)
from hookline._base.returns import Guide, Stop
from hookline._chat.answer import ANSWER, ask_model
from hookline._chat.batch import ToolBatch, open_batch
from hookline._chat.channel import HIGH_WATER
from hookline._chat.commit import commit, end_answer, take_ids
from hookline._chat.request import BUILT_REQUEST, Overrides, build_request, foreign_names
from hookline._chat.shown import show, take_back
from hookline._chat.state import Chat, Step
from hookline._conversations.store import PendingStep
from hookline._hooks.call_rules import intercept
from hookline._hooks.points import OnResponse, OnStep
from hookline._model.assembly import parts_to_store, unique_calls
from hookline._model.model import ModelRequest, ModelResponse
from hookline._record.runtime import LOCAL, MODEL, PENDING, REQUEST, RESPONSE, SAY, STEP, Json

StepEnd: TypeAlias = Stop | Literal["go", "natural", "stopped", "waiting"]
GO: Final = "go"  # ask the model again
NATURAL: Final = "natural"  # the model asked for nothing more
STOPPED_NATURAL: Final = "stopped"  # the same, after a Stop: nothing may prolong the chat
WAITING: Final = "waiting"  # calls wait for approvals or clients

_PENDING: Json[PendingStep] = Json(PendingStep)
_DECIDED: Json[ModelResponse | Stop | Guide] = Json(ModelResponse | Stop | Guide)
_STOPS: Json[list[Stop]] = Json(list[Stop])


async def run_step(
    chat: Chat, overrides: Overrides, iteration: int, first_answer: ModelResponse | None
) -> StepEnd:
    """Run one step. `first_answer` is an answer of preChat in place of the model's."""
    chat.iteration = iteration
    chat.step = Step()
    parent: Chat | None = chat.input.parent
    if parent is not None and parent.broken:  # a chat that never suspends must check itself
        chat.abort(parent.reason)
        chat.check()
    if chat.config.scopes.observers.waiting:
        await chat.config.scopes.observers.tell()

    built = await chat.runtime.step(
        (REQUEST, iteration), build_request, BUILT_REQUEST, chat, overrides, first_answer
    )
    request, answer_of_hook = built.request, built.answer
    del built  # of many chats that wait for their models, each object counts
    if isinstance(answer_of_hook, Stop):
        return answer_of_hook  # the step has not begun
    if chat.life.broken:
        chat.check()
    chat.progress.steps = iteration + 1
    if len(chat.channel.items) > HIGH_WATER:
        await chat.room()
    chat.put(StepStarted(chat_id=chat.chat_id, iteration=iteration))

    answer = await chat.runtime.step(
        (MODEL, iteration), ask_model, ANSWER, chat, request, answer_of_hook
    )
    if isinstance(answer, ModelResponse):
        response = await _keep_answer(chat, answer, request)
    else:
        response = answer
    if not isinstance(response, ModelResponse):
        return await _end_without_answer(chat, response, answer)

    # The calls are those of the response: in history bad arguments are `{}`.
    # Wrappers may have offered other tools.
    request = chat.step.final_request or request
    batch = open_batch(chat, iteration, response.parts, request)
    return await finish_step(chat, response, batch, overrides)


# ── the answer ──────────────────────────────────────────────────────────────────────────────


async def _keep_answer(
    chat: Chat, streamed: ModelResponse, request: ModelRequest | None
) -> ModelResponse | Stop | Guide:
    """Pass the answer through onResponse and write it, unless it is empty.

    Without a request, the answer is the text of a Stop and skips onResponse. If a hook returns Stop
    or Guide instead of an answer, nothing is written.
    """
    response = streamed
    try:
        if request is not None and (chat.view.onResponse or chat.runtime is not LOCAL):
            decision = await _ask_on_response(chat, request, streamed)
            if not isinstance(decision, ModelResponse):
                return decision
            response = decision
        if chat.life.broken:
            chat.check()
        message = AssistantMessage(
            parts=parts_to_store(response.parts),
            finish_reason=response.finish_reason,
            usage=response.usage,
            model=response.model,
            meta=response.meta,
        )
        if response is not streamed:  # a hook's own
            take_ids(chat, message)
        if message.parts:
            stored: AssistantMessage = await commit(chat, message, streamed=streamed.parts)
            chat.last.message = stored if stored.parts else None
        else:
            await show(chat, (), streamed.parts)
            end_answer(chat)
            chat.last.message = None
    except Exception:
        await _retract_answer(chat)
        raise
    chat.last.finish_reason = response.finish_reason
    return response


async def _retract_answer(chat: Chat) -> None:
    """Take back the shown text of an answer that a hook has refused. Nothing of it is kept."""
    if chat.step.assembly is not None:
        chat.step.assembly = None
        await take_back(chat)


async def _ask_on_response(
    chat: Chat, request: ModelRequest, response: ModelResponse
) -> ModelResponse | Stop | Guide:
    """The answer as onResponse leaves it, in this life of the chat or in an earlier one."""
    key = (RESPONSE, chat.iteration)
    if not chat.asks(chat.view.onResponse, key):
        return response
    return await chat.runtime.step(key, _on_response, _DECIDED, chat, request, response)


async def _on_response(
    chat: Chat, request: ModelRequest, response: ModelResponse
) -> ModelResponse | Stop | Guide:
    ctx: OnResponse[Any] = OnResponse(
        run=chat.run, iteration=chat.iteration, request=request, response=response
    )
    try:
        ctx, guide, _ = await intercept(chat.view.onResponse, ctx, chat)
    except StopChat as stop:
        return Stop(stop.reason, stop.text)
    if isinstance(guide, Guide):
        return guide
    if ctx.response is response:
        return response
    answer, ids = without_surrogates(ctx.response), chat.conversation.call_ids
    return unique_calls(answer, response, ids, chat.chat_id, chat.iteration)


async def say_stop_text(chat: Chat, text: str) -> None:
    """Stream and commit the text of a Stop like an answer. A hook at onDelta may withdraw it."""
    answer = ModelResponse.of(text).replace(finish_reason=chat.last.finish_reason or "stop")
    streamed = await chat.runtime.step((SAY, chat.iteration), ask_model, ANSWER, chat, None, answer)
    if isinstance(streamed, ModelResponse):
        await _keep_answer(chat, streamed, None)
    else:
        chat.check()
        await _retract_answer(chat)


# ── the end of the step ─────────────────────────────────────────────────────────────────────


async def finish_step(
    chat: Chat, response: ModelResponse, batch: ToolBatch | None, overrides: Overrides
) -> StepEnd:
    """Run the step's calls and end the step, or save it if some calls wait."""
    stop: Stop | None = None
    if batch is not None:
        if not await batch.run():
            await _suspend(chat, batch, overrides)
            return WAITING
        stop = batch.stop
    if chat.view.onStep or chat.runtime is not LOCAL:
        stop_of_hooks = await _ask_on_step(chat, response, batch)
        stop = stop or stop_of_hooks
    chat.put(
        StepFinished(
            chat_id=chat.chat_id,
            iteration=chat.iteration,
            finish_reason=response.finish_reason,
            usage=response.usage,
        )
    )
    if batch is not None or response.finish_reason == "pause":  # the provider wants to go on
        return stop or GO
    return NATURAL if stop is None else STOPPED_NATURAL


async def _end_without_answer(
    chat: Chat, end: Stop | Guide, answer: ModelResponse | Stop
) -> StepEnd:
    """End a step whose answer was taken back: the chat stops, or the model is told why."""
    chat.check()
    await _retract_answer(chat)
    reason: FinishReason = "other"
    usage: Usage | None = None
    if isinstance(end, Guide) and isinstance(answer, ModelResponse):
        reason, usage = answer.finish_reason, answer.usage
    chat_id, iteration = chat.chat_id, chat.iteration
    chat.put(StepFinished(chat_id=chat_id, iteration=iteration, finish_reason=reason, usage=usage))
    if isinstance(end, Stop):
        return end
    await commit(chat, UserMessage(parts=(Text(clean_text(end.reason)),)))
    return GO


async def _suspend(chat: Chat, batch: ToolBatch, overrides: Overrides) -> None:
    """Save the step so that a later chat can go on with it: some calls wait."""
    pending = batch.pending_step().replace(
        system=overrides.system,
        tools=None if overrides.tools is None else tuple(tool.name for tool in overrides.tools),
        foreign=tuple(foreign_names(chat, overrides.tools or ())),
        settings=overrides.settings,
        state=chat.json_state() or None,
        guards=chat.input.guards,
    )
    waits = await chat.runtime.step((PENDING, batch.iteration), _wait, _PENDING, chat, pending)
    chat.conversation.wait(waits)  # again, since a replayed step did not run
    chat.step.batch = None  # or the ending would give results to the calls that wait


async def _wait(chat: Chat, pending: PendingStep) -> PendingStep:
    conversation = chat.conversation
    conversation.wait(pending)
    await conversation.flush()  # a caller that has the response may answer from another process
    return pending


async def _ask_on_step(chat: Chat, response: ModelResponse, batch: ToolBatch | None) -> Stop | None:
    """Call onStep, unless an earlier life of the chat went past it; return the first Stop."""
    key = (STEP, chat.iteration)
    if not chat.asks(chat.view.onStep, key):
        return None
    results = () if batch is None else batch.results
    stops = await chat.runtime.step(key, _on_step, _STOPS, chat, response, results)
    return stops[0] if stops else None


async def _on_step(
    chat: Chat, response: ModelResponse, results: tuple[ToolMessage, ...]
) -> list[Stop]:
    ctx: OnStep[Any] = OnStep(
        run=chat.run, iteration=chat.iteration, response=response, results=results
    )
    _, _, stops = await intercept(chat.view.onStep, ctx, chat)
    return stops
