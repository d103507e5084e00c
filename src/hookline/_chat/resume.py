"""A step that waited for approvals or clients: a later chat goes on with it, or closes it."""

from __future__ import annotations

from typing import Final

from hookline._base.messages import AssistantMessage, ToolMessage
from hookline._base.returns import Deny, Stop, ToolFailure, ToolResult
from hookline._chat.approval import act_on
from hookline._chat.batch import ToolBatch, open_batch
from hookline._chat.call import AT_CLIENT, COMMITTED, FINAL, FOR_LATER, WAITING, CallRun
from hookline._chat.child_answers import deny_child, take_answers
from hookline._chat.request import Overrides, known_tools, look_up
from hookline._chat.state import Chat
from hookline._chat.step import StepEnd, finish_step
from hookline._conversations.store import PendingStep
from hookline._model.model import ModelRequest, ModelResponse

_NOT_REACHED: Final = ToolFailure(
    "not finished: the user continued without the result of this call", type="Aborted"
)
_NOT_ANSWERED: Final = Deny("the user continued without answering")


async def resume_step(chat: Chat, pending: PendingStep) -> tuple[Overrides, StepEnd]:
    """Go on with a step whose calls were answered."""
    overrides = _overrides(chat, pending)
    chat.progress.continuations = pending.continuations
    chat.progress.steps = pending.iteration + 1
    answers = chat.input.answers or {}
    await chat.conversation.claim(chat.chat_id, answers)
    batch = _reopen(chat, pending)
    requests = [request for request in pending.requests if request.id in answers]
    chat.progress.accept([pending.call_id_of(request) for request in requests])
    for run in batch.runs:
        if run.child is not None:
            take_answers(chat, run, answers)
            continue
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
        names = {tool.name for tool in tools}
        more = chat.config.scopes.tools.values()
        tools += tuple(
            tool for tool, scope in more if scope.label == "chat" and tool.name not in names
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
        if run.child is not None:
            await deny_child(chat, run, _NOT_ANSWERED)
        elif run.request is not None:
            await act_on(chat, batch.iteration, run, _NOT_ANSWERED)
        elif run.state is AT_CLIENT:
            run.set(_NOT_REACHED, "aborted")
            run.move(FINAL)
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
    names = [name for name in pending.offered_tools if chat.config.scopes.find(name) is not None]
    tools = known_tools(chat, names, ())
    request = ModelRequest(model=chat.config.model, messages=(), tools=tools)
    batch = open_batch(chat, pending.iteration, _waiting_message(chat).parts, request)
    assert batch is not None
    batch.stop = pending.stop
    results: dict[str, ToolMessage] = {}
    for message in reversed(chat.history):
        if not isinstance(message, ToolMessage):
            break
        results[message.call_id] = message
    if len(results) < len(batch.runs):
        chat.conversation.disorder()  # results of later calls are already written
    for run in batch.runs:
        if run.id in results:
            run.message = results[run.id]
            run.state = COMMITTED
        else:
            _reopen_call(run, pending)
        if run.state in FOR_LATER:
            run.record = pending.records.get(run.id)
            look_up(chat, request, run)
    return batch


def _reopen_call(run: CallRun, pending: PendingStep) -> None:
    """The state of a call that has no result; it stays PROPOSED if it was not processed."""
    id = run.id
    own = (item for item in pending.requests if item.path == pending.path)
    run.request = next((request for request in own if request.call.id == id), None)
    run.child = next((child for child in pending.children if child.call.id == id), None)
    client_call = next((call for call in pending.client_calls if call.id == id), None)
    if run.child is not None:
        run.call = run.child.call
        run.approved = run.call if run.child.approved else None
        run.state = WAITING
    elif run.request is not None:
        run.call = run.request.call
        run.state = WAITING
    elif client_call is not None:
        run.call = client_call
        run.state = AT_CLIENT
