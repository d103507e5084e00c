"""A step that waited for approvals, in a later chat: gone on with, or denied."""

from __future__ import annotations

from collections.abc import Iterable

from hookline._base.messages import AssistantMessage, ToolMessage
from hookline._base.returns import Deny, Stop
from hookline._chat.approval import act_on
from hookline._chat.batch import ToolBatch, open_batch
from hookline._chat.call import WAITING, WRITTEN
from hookline._chat.request import Overrides, known_tools, lookup
from hookline._chat.state import Chat
from hookline._chat.step import StepEnd, finish_step
from hookline._model.model import ModelRequest, ModelResponse
from hookline._talk.store import PendingStep


async def resume_step(chat: Chat, pending: PendingStep) -> tuple[Overrides, StepEnd]:
    """Go on with a step whose approvals were answered."""
    overrides = _overrides(chat, pending)
    chat.progress.continuations = pending.continuations
    chat.progress.steps = pending.iteration + 1
    answers = chat.task.answers or {}
    await _claim(chat, answers)
    batch = _reopen(chat, pending)
    for run in batch.runs:
        if run.request is not None and run.request.id in answers:
            await act_on(chat, batch.iteration, run, answers[run.request.id])
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
    return Overrides(system=system, tools=tools, settings=settings)


async def deny_step(chat: Chat, pending: PendingStep) -> Stop | None:
    """A new chat on the conversation: what waited is denied. Gives the Stop that a hook said to it.

    A Stop that was said in the earlier chat ended that one, and is not this one's.
    """
    await _claim(chat, [request.id for request in pending.requests])
    batch = _reopen(chat, pending)
    for run in batch.runs:
        if run.request is not None:
            await act_on(chat, batch.iteration, run, Deny("the user went on without answering"))
    batch.stop = None
    batch.halted = True  # calls that had to wait for the answers do not start any more
    await batch.run()
    chat.iteration = 0  # that step was an earlier chat's: this one's own begin now
    return batch.stop


async def _claim(chat: Chat, answered: Iterable[str]) -> None:
    """An answer counts once, whatever happens now: written down before anything runs."""
    cut = await chat.conversation.claim(chat.chat_id, answered)
    if cut is not None:
        raise cut


def _waiting_message(chat: Chat) -> AssistantMessage:
    """The message whose calls wait."""
    return next(m for m in reversed(chat.history) if isinstance(m, AssistantMessage))


def _reopen(chat: Chat, pending: PendingStep) -> ToolBatch:
    """The batch as it was left, with what is known of its calls."""
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
        chat.conversation.disorder()  # what is written now comes after results of later calls
    requests = {request.call.id: request for request in pending.requests}
    for run in batch.runs:
        if run.id in results:
            run.message = results[run.id]
            run.state = WRITTEN
        elif run.id in requests:
            run.request = requests[run.id]
            run.wanted = run.request.call
            run.state = WAITING
            found = lookup(chat, request, run.wanted.name)
            run.tool, run.scope, run.offered = found or (None, None, False)
    return batch
