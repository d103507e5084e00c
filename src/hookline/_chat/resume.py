"""A step that waited for approvals, in a later chat: gone on with, or denied."""

from __future__ import annotations

from collections.abc import Iterable

from hookline._base.messages import AssistantMessage, ToolMessage
from hookline._base.returns import Deny, Stop
from hookline._chat.approval import act_on
from hookline._chat.batch import STOPPED, Step, open_step
from hookline._chat.request import Opening, known_tools, lookup
from hookline._chat.state import Chat
from hookline._chat.step import StepEnd, finish_step
from hookline._model.model import ModelRequest, ModelResponse
from hookline._talk.store import PendingStep


async def resume_step(chat: Chat, pending: PendingStep) -> tuple[Opening, StepEnd]:
    """Go on with a step whose approvals were answered."""
    begin = _opening(chat, pending)
    chat.continuations = pending.continuations
    chat.steps = pending.iteration + 1
    answers = chat.task.answers or {}
    await _claim(chat, answers)
    step = _reopen(chat, pending)
    for call in step.calls:
        if call.request is not None and call.request.id in answers:
            await act_on(chat, step.iteration, call, answers[call.request.id])
    message = _asked(chat)
    response = ModelResponse(
        parts=message.parts,
        finish_reason=message.finish_reason or "tool_calls",
        usage=message.usage,
        model=message.model,
        meta=message.meta,
    )
    return begin, await finish_step(chat, step.iteration, response, step, begin)


def _opening(chat: Chat, pending: PendingStep) -> Opening:
    """What preChat made of the chat that asked; what the resumed one was given comes first."""
    task = chat.task
    tools = None if pending.tools is None else known_tools(chat, pending.tools, pending.foreign)
    if tools is not None and task.own_tools:
        known = {tool.name for tool in tools}
        more = chat.config.scopes.tools.values()
        tools += tuple(
            tool for tool, scope in more if scope.label == "chat" and tool.name not in known
        )
    settings = pending.settings
    if settings is not None and task.settings is not None:
        settings = task.settings.over(settings)
    system = None if task.own_system else pending.system
    return Opening(system=system, tools=tools, settings=settings)


async def deny_step(chat: Chat, pending: PendingStep) -> Stop | None:
    """A new chat on the conversation: what waited is denied. Gives the Stop that a hook said to it.

    A Stop that was said in the earlier chat ended that one, and is not this one's.
    """
    await _claim(chat, [request.id for request in pending.requests])
    step = _reopen(chat, pending)
    for call in step.calls:
        if call.request is not None:
            deny = Deny("the user went on without answering")
            await act_on(chat, step.iteration, call, deny)
        elif call.message is None:
            call.set(STOPPED, "stopped")
            call.final = True
    step.stop = None
    await step.run()
    chat.iteration = 0  # that step was an earlier chat's: this one's own begin now
    return step.stop


async def _claim(chat: Chat, answered: Iterable[str]) -> None:
    """An answer counts once, whatever happens now: written down before anything runs."""
    cut = await chat.conversation.claim(chat.chat_id, answered)
    if cut is not None:
        raise cut


def _asked(chat: Chat) -> AssistantMessage:
    """The message whose calls wait."""
    return next(m for m in reversed(chat.history) if isinstance(m, AssistantMessage))


def _reopen(chat: Chat, pending: PendingStep) -> Step:
    """The step as it was left, with what is known of its calls."""
    chat.iteration = pending.iteration
    offered = [name for name in pending.offered if chat.config.scopes.find(name) is not None]
    tools = known_tools(chat, offered, ())
    request = ModelRequest(model=chat.config.model, messages=(), tools=tools)
    step = open_step(chat, pending.iteration, _asked(chat).tool_calls, request)
    step.stop = pending.stop
    step.reopened()
    results: dict[str, ToolMessage] = {}
    for message in reversed(chat.history):
        if not isinstance(message, ToolMessage):
            break
        results[message.call_id] = message
    if len(results) < len(step.calls):
        chat.conversation.disorder()  # what is written now comes after results of later calls
    requests = {request.call.id: request for request in pending.requests}
    for call in step.calls:
        call.message = results.get(call.id)
        if call.message is not None:
            call.earlier = call.announced = call.reported = True
        elif call.id in requests:
            call.request = requests[call.id]
            call.call = call.request.call
            call.announced = call.asked = call.pending = True
            found = lookup(chat, request, call.call.name)
            if found is not None:
                call.tool, call.scope, call.offered = found
    return step
