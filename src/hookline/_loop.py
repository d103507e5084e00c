"""The life of a chat, from aroundChat to onChatEnd.

It reads like the contract: start, preChat, the user's message, steps until there is nothing left
to do, then exactly one outcome and its observers. It does no I/O of its own, asks no clock, draws
no random number and starts no task: all that comes through the runtime, and what has to do with
tasks and cancellation through the keeper that owns the run.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any, Final, Literal, Protocol

from hookline._answer import ask_model, play
from hookline._approval import act_on, check_answers
from hookline._assembly import kept, unique_calls
from hookline._chain import call, excuse, intercept, notify, wrap
from hookline._chat import Chat
from hookline._conversation import PendingStep
from hookline._dispatch import STOPPED, Step
from hookline._errors import ChatAbortedError, HookError, MaxStepsError
from hookline._events import ChatStarted, StepFinished, StepStarted
from hookline._log import log_throw
from hookline._messages import AssistantMessage, Text, ToolMessage, UserMessage
from hookline._model import ModelRequest, ModelResponse
from hookline._outcomes import Continue, Deny, Response, Stop
from hookline._points import (
    AroundChat,
    OnChatAbort,
    OnChatDone,
    OnChatEnd,
    OnChatError,
    OnChatStart,
    OnResponse,
    OnStep,
    PreChat,
    PreRequest,
    PreStop,
)
from hookline._registration import Hook
from hookline._request import (
    AS_IT_IS,
    Asked,
    AskedReturns,
    Opening,
    OpeningReturns,
    build,
    check_tools,
    first_request,
    lookup,
    opening,
)
from hookline._runtime import (
    END_CHAT,
    MODEL,
    NOTHING,
    OUTCOME,
    PENDING,
    PRE_CHAT,
    PRE_STOP,
    REQUEST,
    RESPONSE,
    SAY,
    START,
    STEP,
    Json,
)

Ending = deque[Callable[[], Awaitable[None]]]
StepEnd = Stop | Literal["go", "natural", "stopped", "waiting"]
GO: Final = "go"  # the model is asked again
NATURAL: Final = "natural"  # it asked for nothing more
STOPPED_NATURAL: Final = "stopped"  # the same, and a hook said Stop: nothing may prolong it
WAITING: Final = "waiting"  # calls wait for approval

_RESPONSE: Json[ModelResponse] = Json(ModelResponse)
_STOPS: Json[list[Stop]] = Json(list[Stop])
_INPUTS: Json[list[Continue]] = Json(list[Continue])


class Keeper(Protocol):
    """Who owns the task in which the chat lives."""

    def judge(self, exc: BaseException) -> None:
        """Decide the outcome by what came out of the chat; raises what is not the chat's."""
        ...

    async def finish(self, ending: Ending) -> None:
        """Carry out the ending whatever is cancelled meanwhile, within the grace period."""
        ...


async def run(chat: Chat, keeper: Keeper) -> Response:
    """One chat. What is raised before aroundChat has proceeded reaches the caller alone."""
    named = chat.task.conversation
    if isinstance(named, str):
        assert chat.task.store is not None
        chat.conversation = await chat.task.store.open(named)
    chat.conversation.acquire(chat.chat_id)
    try:
        if chat.task.answers is not None:
            check_answers(chat.conversation, chat.task.answers, chat.runtime.now())
        wrappers = chat.view.aroundChat
        if not wrappers:
            return await _proceed(chat, keeper, chat.task.message)
        return await _wrapped(chat, keeper, wrappers)
    finally:
        chat.conversation.release(chat.chat_id)
        chat.deadlines.close()


async def _wrapped(chat: Chat, keeper: Keeper, wrappers: tuple[Hook, ...]) -> Response:
    ctx: AroundChat[Any] = AroundChat(run=chat.run, message=chat.task.message)
    inner = partial(_proceed, chat, keeper)
    try:
        response = await wrap(
            wrappers, ctx, inner, chat, again=lambda: "proceed may be called once"
        )
    except Exception as exc:
        if chat.error is not None and exc is not chat.error:
            log_throw("a hook at aroundChat raised after the chat had failed", exc)
            raise chat.error from None
        raise
    if not chat.began:
        raise HookError("a hook at aroundChat returned without calling proceed: nothing was run")
    if chat.error is not None:
        raise chat.error  # a wrapper cannot undo the outcome
    chat.response = response
    return response


async def _proceed(chat: Chat, keeper: Keeper, message: UserMessage | None) -> Response:
    """The inside of aroundChat: the chat, its one outcome, its observers."""
    chat.check()
    chat.began = True
    chat.started = chat.runtime.now()
    try:
        response = await _live(chat, message)
        chat.check()
        chat.response = response
        chat.outcome = "done"
    except BaseException as exc:
        keeper.judge(exc)
    ending = end(chat)
    if chat.outcome == "aborted":
        await keeper.finish(ending)
    elif ending:
        try:
            while ending:
                await ending.popleft()()
        except BaseException as exc:
            keeper.judge(exc)  # cancelled from outside in mid ending: the rest still happens
            await keeper.finish(ending)
    if chat.error is not None:
        raise chat.error
    if chat.thrown is not None:
        raise chat.thrown  # by a hook at onChatDone
    assert chat.response is not None
    return chat.response


async def _live(chat: Chat, message: UserMessage | None) -> Response:
    view, runtime = chat.view, chat.runtime
    pending = chat.conversation.pending_step
    if chat.task.answers is not None and pending is not None:
        chat.resumes = pending.chat_id
    await chat.publish(
        ChatStarted,
        agent=chat.agent_name,
        message=message,
        conversation_id=chat.conversation_id,
        parent_chat_id=chat.parent_chat_id,
        resumes=chat.resumes,
    )
    if view.onChatStart:
        start: OnChatStart[Any] = OnChatStart(run=chat.run, message=message)
        await runtime.step((START,), partial(notify, view.onChatStart, start, chat), NOTHING)
    chat.check()
    if chat.resumes is not None and pending is not None:
        return await _resume(chat, pending)
    assert message is not None
    begin, answer = AS_IT_IS, None
    said = message
    if view.preChat:
        ask = partial(_pre_chat, chat, message)
        begin, said, answer = await runtime.step((PRE_CHAT,), ask, OpeningReturns(chat))
        chat.check()
        if isinstance(answer, Stop):
            return respond(chat, answer.reason, text=answer.text or "")
    if pending is not None:
        await _deny(chat, pending)
    await chat.commit(said)
    return await _steps(chat, begin, 0, answer)


async def _pre_chat(chat: Chat, message: UserMessage) -> Any:
    before = await first_request(chat, message)
    ctx: PreChat[Any] = PreChat(run=chat.run, request=before)
    ctx, answer, _ = await intercept(chat.view.preChat, ctx, chat)
    return opening(before, ctx.request), ctx.request.message, answer


# ── steps ───────────────────────────────────────────────────────────────────────────────────


async def _steps(chat: Chat, begin: Opening, first: int, answer: ModelResponse | None) -> Response:
    """Steps until the chat ends by itself, is stopped, or waits."""
    step, limit = first, chat.config.max_steps
    while True:
        if step >= limit:
            raise MaxStepsError(limit)
        ended = await _step(chat, begin, step, answer)
        chat.check()
        answer = None
        step += 1
        if ended == GO:
            continue
        if ended == WAITING:
            return respond(chat, "approval")
        reason = None
        if isinstance(ended, Stop):
            reason = ended.reason
            if ended.text:
                await _say(chat, ended.text)
        more = await _pre_stop(chat, reason, steps=step)
        if not more or ended != NATURAL or step >= limit:
            return respond(chat, reason)
        chat.continuations += 1
        await chat.commit(UserMessage(parts=(Text(more),)))


async def _step(
    chat: Chat, begin: Opening, iteration: int, answer: ModelResponse | None
) -> StepEnd:
    runtime, view = chat.runtime, chat.view
    chat.iteration = iteration
    if chat.config.scopes.told:
        await chat.config.scopes.tell()
    ask = partial(_request, chat, begin, iteration, answer)
    asked = await runtime.step((REQUEST, iteration), ask, AskedReturns(chat, begin))
    if isinstance(asked.answer, Stop):
        return asked.answer
    chat.check()
    request = asked.request
    await chat.publish(StepStarted, iteration=iteration)
    if asked.answer is None:
        streamed = await ask_model(chat, iteration, request)
    else:
        streamed = await play(chat, (MODEL, iteration), iteration, asked.answer)
    response = streamed
    if view.onResponse:
        seen = partial(_on_response, chat, iteration, request, streamed)
        response = await runtime.step((RESPONSE, iteration), seen, _RESPONSE)
    chat.check()
    await _commit_answer(chat, response, streamed)
    calls = response.calls
    if not calls:
        return await _end_step(chat, iteration, response, None)
    step = Step(chat, iteration, calls, request)
    return await _run_calls(chat, step, response, begin)


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
    return Asked(request=ctx.request, answer=said)


async def _on_response(
    chat: Chat, iteration: int, request: ModelRequest, response: ModelResponse
) -> ModelResponse:
    ctx: OnResponse[Any] = OnResponse(
        run=chat.run, iteration=iteration, request=request, response=response
    )
    ctx, _, _ = await intercept(chat.view.onResponse, ctx, chat)
    if ctx.response is response:
        return response
    return unique_calls(ctx.response, response, chat.taken, chat.call_prefix)


async def _commit_answer(chat: Chat, response: ModelResponse, streamed: ModelResponse) -> None:
    parts = kept(response.parts)
    if parts:
        message = AssistantMessage(
            parts=parts,
            finish_reason=response.finish_reason,
            usage=response.usage,
            model=response.model,
            meta=response.meta,
        )
        await chat.commit(message, streamed.parts)
        chat.finish_reason = response.finish_reason
    else:
        await chat.agree(parts, streamed.parts)
    chat.assembly = None
    chat.shown = False


async def _run_calls(chat: Chat, step: Step, response: ModelResponse, begin: Opening) -> StepEnd:
    await step.run()
    chat.check()
    if not step.waiting:
        return await _end_step(chat, step.iteration, response, step)
    pending = step.pending_step().replace(
        system=begin.system,
        tools=None if begin.tools is None else tuple(tool.name for tool in begin.tools),
        settings=begin.settings,
    )
    await chat.runtime.step((PENDING, step.iteration), partial(_wait, chat, pending), NOTHING)
    chat.open_step = None
    return WAITING


async def _wait(chat: Chat, pending: PendingStep | None) -> None:
    chat.conversation.wait(pending)


async def _end_step(
    chat: Chat, iteration: int, response: ModelResponse, step: Step | None
) -> StepEnd:
    stop = step.stop if step is not None else None
    if chat.view.onStep:
        results = step.results if step is not None else ()
        ask = partial(_on_step, chat, iteration, response, results)
        stops = await chat.runtime.step((STEP, iteration), ask, _STOPS)
        stop = stop or (stops[0] if stops else None)
    await chat.publish(
        StepFinished,
        iteration=iteration,
        finish_reason=response.finish_reason,
        usage=response.usage,
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


# ── approvals that were answered, or never will be ──────────────────────────────────────────


async def _reopen(chat: Chat, pending: PendingStep, begin: Opening) -> Step:
    """The step that waited, with what is known of its calls."""
    chat.iteration = pending.iteration
    history = chat.conversation.history
    asked = next(m for m in reversed(history) if isinstance(m, AssistantMessage))
    request = await build(chat, begin)
    offered = set(pending.offered)
    request = request.replace(tools=tuple(t for t in request.tools if t.name in offered))
    step = Step(chat, pending.iteration, asked.calls, request)
    step.stop = pending.stop
    chat.taken.update(each.id for each in asked.calls)
    results: dict[str, ToolMessage] = {}
    for message in reversed(history):
        if not isinstance(message, ToolMessage):
            break
        results[message.call_id] = message
    requests = {request.call.id: request for request in pending.requests}
    for each in step.calls:
        each.message = results.get(each.id)
        if each.message is not None:
            each.earlier = each.announced = each.reported = True
        elif each.id in requests:
            each.request = requests[each.id]
            each.call = each.request.call
            each.announced = each.pending = True
            found = lookup(chat, request, each.call.name)
            if found is not None:
                each.tool, each.scope, _ = found
    return step


async def _resume(chat: Chat, pending: PendingStep) -> Response:
    """Go on with a step whose approvals were answered."""
    tools = OpeningReturns(chat).tools(pending.tools)
    begin = Opening(system=pending.system, tools=tools, settings=pending.settings)
    chat.continuations = pending.continuations
    step = await _reopen(chat, pending, begin)
    chat.conversation.wait(None)  # an answer counts once, whatever happens now
    answers = chat.task.answers or {}
    for each in step.calls:
        if each.request is not None and each.request.id in answers:
            await act_on(chat, step.iteration, each, answers[each.request.id])
    response = _response_of(chat)
    ended = await _run_calls(chat, step, response, begin)
    chat.check()
    if ended == WAITING:
        return respond(chat, "approval")
    if isinstance(ended, Stop):
        if ended.text:
            await _say(chat, ended.text)
        await _pre_stop(chat, ended.reason, steps=pending.iteration + 1)
        return respond(chat, ended.reason)
    return await _steps(chat, begin, pending.iteration + 1, None)


async def _deny(chat: Chat, pending: PendingStep) -> None:
    """A new chat on the conversation: what waited is denied."""
    step = await _reopen(chat, pending, AS_IT_IS)
    chat.conversation.wait(None)
    for each in step.calls:
        if each.request is not None:
            deny = Deny("the user went on without answering")
            await act_on(chat, step.iteration, each, deny)
        elif each.message is None:
            each.set(STOPPED, "stopped")
            each.final = True
    await step.run()
    chat.open_step = None


def _response_of(chat: Chat) -> ModelResponse:
    message = next(m for m in reversed(chat.history) if isinstance(m, AssistantMessage))
    return ModelResponse(
        parts=message.parts,
        finish_reason=message.finish_reason or "tool_calls",
        usage=message.usage,
        model=message.model,
        meta=message.meta,
    )


# ── ends ────────────────────────────────────────────────────────────────────────────────────


async def _say(chat: Chat, text: str) -> None:
    """What a Stop says to the user, streamed and committed like an answer."""
    said = ModelResponse.of(text)
    streamed = await play(chat, (SAY, chat.iteration), chat.iteration, said)
    await _commit_answer(chat, streamed, streamed)


async def _pre_stop(chat: Chat, reason: str | None, *, steps: int) -> str | None:
    """Ask preStop; the joined inputs of its Continues, None where there are none."""
    if not chat.view.preStop or chat.continuations >= chat.config.max_continuations:
        return None
    key = (PRE_STOP, steps)
    inputs = await chat.runtime.step(key, partial(_ask_to_stop, chat, reason, steps), _INPUTS)
    chat.check()
    return "\n\n".join(each.input for each in inputs) or None


async def _ask_to_stop(chat: Chat, reason: str | None, steps: int) -> list[Continue]:
    ctx: PreStop[Any] = PreStop(
        run=chat.run,
        reason=reason,
        response=respond(chat, reason),
        steps=steps,
        continuations=chat.continuations,
    )
    _, _, inputs = await intercept(chat.view.preStop, ctx, chat)
    return inputs


def respond(chat: Chat, stop_reason: str | None, text: str | None = None) -> Response:
    """What the chat has come to so far: the text is that of its last answer."""
    last = next((m for m in reversed(chat.messages) if isinstance(m, AssistantMessage)), None)
    return Response(
        chat_id=chat.chat_id,
        text=text if text is not None else last.text if last is not None else "",
        reasoning=last.reasoning if last is not None else "",
        messages=tuple(chat.messages),
        usage=chat.usage,
        finish_reason=chat.finish_reason,
        stop_reason=stop_reason,
        pending=chat.conversation.pending if stop_reason == "approval" else (),
        steps=chat.iteration + 1,
    )


def end(chat: Chat) -> Ending:
    """What is left to do once the outcome is decided: close the step, tell the observers."""
    ending: Ending = deque()
    if chat.outcome != "done":
        ending.append(partial(_close, chat))
    view, left = chat.view, ending
    for place, hook in enumerate(_outcome_hooks(chat)):
        left.append(partial(_observe, chat, hook, (OUTCOME, place)))
    for place, hook in enumerate(view.onChatEnd):
        left.append(partial(_observe, chat, hook, (END_CHAT, place)))
    return ending


def _outcome_hooks(chat: Chat) -> tuple[Hook, ...]:
    view = chat.view
    if chat.outcome == "done":
        return view.onChatDone
    return view.onChatAbort if chat.outcome == "aborted" else view.onChatError


async def _close(chat: Chat) -> None:
    """Keep what there is of the step that was broken off."""
    if chat.assembly is not None:
        parts, chat.assembly = chat.assembly.partial(), None
        if parts:
            message = AssistantMessage(parts=parts, partial=True)
            try:
                await chat.commit(message, parts)
            except Exception as exc:
                log_throw("a hook raised while a partial answer was kept", exc)
    if chat.open_step is not None:
        step: Step = chat.open_step
        try:
            await step.close()
        finally:
            step.close_now()
    if isinstance(chat.error, ChatAbortedError):
        chat.error.partial = tuple(chat.messages)


async def _observe(chat: Chat, hook: Hook, key: tuple[str, int]) -> None:
    if hook.alive:
        await chat.runtime.step(key, partial(_tell, chat, hook), NOTHING)


async def _tell(chat: Chat, hook: Hook) -> None:
    """Tell one observer how the chat ended. Only a throw in onChatDone is ever raised."""
    try:
        await call(hook, _outcome_ctx(chat, hook.head.name), chat.conduct)
    except Exception as exc:
        if hook.head.name != "onChatDone":
            log_throw(f"hook {hook.name!r} at {hook.head.name} raised", exc)
            return
        try:
            excuse(hook, exc)
        except Exception as raised:
            if chat.thrown is None:
                chat.thrown = raised
            else:
                log_throw(f"hook {hook.name!r} at onChatDone raised too", raised)


def _outcome_ctx(chat: Chat, point: str) -> Any:
    run = chat.run
    if point == "onChatDone":
        assert chat.response is not None
        return OnChatDone(run=run, response=chat.response)
    if point == "onChatAbort":
        return OnChatAbort(run=run, reason=chat.reason, partial=tuple(chat.messages))
    if point == "onChatError":
        assert chat.error is not None
        return OnChatError(run=run, error=chat.error)
    assert chat.outcome is not None
    return OnChatEnd(
        run=run,
        outcome=chat.outcome,
        response=chat.response if chat.outcome == "done" else None,
        error=chat.error if chat.outcome == "error" else None,
        usage=chat.usage,
        duration=max(0.0, chat.runtime.now() - chat.started),
    )
