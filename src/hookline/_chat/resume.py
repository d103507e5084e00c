"""A step that waited for approvals or clients: a later chat goes on with it, or closes it."""

from __future__ import annotations

from typing import Final

from hookline._base.messages import AssistantMessage, ToolMessage
from hookline._base.returns import Deny, Stop, ToolFailure, ToolResult
from hookline._chat.approval import act_on
from hookline._chat.batch import ToolBatch, open_batch
from hookline._chat.call import AWAY, PARKED, SETTLED, WAITING, WRITTEN
from hookline._chat.request import Overrides, known_tools, lookup
from hookline._chat.state import Chat
from hookline._chat.step import StepEnd, finish_step
from hookline._conversations.store import PendingStep
from hookline._model.model import ModelRequest, ModelResponse

_LEFT: Final = ToolFailure(
    "not finished: the user continued without the result of this call", type="Aborted"
)


async def resume_step(chat: Chat, pending: PendingStep) -> tuple[Overrides, StepEnd]:
    """Go on with a step whose calls were answered."""
    overrides = _overrides(chat, pending)
    chat.progress.continuations = pending.continuations
    chat.progress.steps = pending.iteration + 1
    answers = chat.input.answers or {}
    await chat.conversation.claim(chat.chat_id, answers)
    batch = _reopen(chat, pending)
    requests = [run.request for run in batch.runs if run.request is not None]
    chat.progress.accept([each.call.id for each in requests if each.id in answers])
    for run in batch.runs:
        answer = answers.get(run.id if run.request is None else run.request.id)
        if isinstance(answer, (ToolResult, ToolFailure)):
            run.post(answer)
        elif answer is not None:
            await act_on(chat, batch.iteration, run, answer)
    message = _waiting_message(chat)
    response = ModelResponse(
        parts=message.parts,
        finish_reason=message.finish_reason or "tool_calls",
        usage=message.usage,
        model=message.model,
        meta=message.meta,
    )
    return overrides, await finish_step(chat, response, batch, overrides)


def _overrides(chat: Chat, pending: PendingStep) -> Overrides:
    """The overrides of the chat that asked. Keywords of the resumed chat come first."""
    task = chat.input
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
    return Overrides(system=system, tools=tools, settings=settings)


async def deny_step(chat: Chat, pending: PendingStep) -> Stop | None:
    """Deny the approvals that wait and abort the clients' calls, since a new chat begins.

    Returns the Stop of a hook that saw this. A Stop from the earlier chat does not count.
    """
    await chat.conversation.claim(chat.chat_id, pending.ids)
    batch = _reopen(chat, pending)
    for run in batch.runs:
        if run.request is not None:
            await act_on(chat, batch.iteration, run, Deny("the user continued without answering"))
        elif run.state is AWAY:
            run.set(_LEFT, "aborted")
            run.move(SETTLED)
    batch.stop = None  # of the earlier chat; a hook of this chat may set it again
    batch.stopping = True  # calls that had to wait for the answers do not start
    await batch.run()
    chat.iteration = 0  # this chat's own steps begin now
    return batch.stop


def _waiting_message(chat: Chat) -> AssistantMessage:
    """The message whose calls wait."""
    return next(m for m in reversed(chat.history) if isinstance(m, AssistantMessage))


def _reopen(chat: Chat, pending: PendingStep) -> ToolBatch:
    """The batch as the earlier chat has left it."""
    chat.iteration = pending.iteration
    offered = [name for name in pending.offered if chat.config.scopes.find(name) is not None]
    tools = known_tools(chat, offered, ())
    request = ModelRequest(model=chat.config.model, messages=(), tools=tools)
    batch = open_batch(chat, pending.iteration, _waiting_message(chat).tool_calls, request)
    batch.stop = pending.stop
    results: dict[str, ToolMessage] = {}
    for message in reversed(chat.history):
        if not isinstance(message, ToolMessage):
            break
        results[message.call_id] = message
    if len(results) < len(batch.runs):
        chat.conversation.disorder()  # results of later calls are already written
    requests = {request.call.id: request for request in pending.requests}
    away = {call.id: call for call in pending.client_calls}
    for run in batch.runs:
        if run.id in results:
            run.message = results[run.id]
            run.state = WRITTEN
        elif run.id in requests:
            run.request = requests[run.id]
            run.wanted = run.request.call
            run.state = WAITING
        elif run.id in away:
            run.wanted = away[run.id]
            run.state = AWAY
        if run.state in PARKED:
            found = lookup(chat, request, run.wanted.name)
            run.tool, run.scope, run.offered = found or (None, None, False)
    return batch
