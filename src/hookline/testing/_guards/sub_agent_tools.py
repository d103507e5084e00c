"""Paths of a probe to a tool of a sub-agent, or of an agent to which the agent hands over.

The agents are copies of the real ones, with their own hooks. The model of each calls the tool that
leads to the next agent, and the model of the last agent makes the call. People approve the calls
that lead there: what counts is the call itself.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from functools import partial
from typing import Any, Final

from hookline import Agent, Approve, Conversation, Deny, ModelRequest, ToolCall, ToolMessage
from hookline.errors import OutputError
from hookline.models import ProviderTool
from hookline.points import PreToolCall
from hookline.testing._events import collect
from hookline.testing._guards.call_path import LAST, OURS, CallPath, Walk, changing
from hookline.testing._script import ScriptedModel
from hookline.testing._turn import call as call_of

_MOST_QUESTIONS: Final = 10  # of the calls that lead to the agent, and of the call


def routes(agent: Agent[Any]) -> Iterator[tuple[tuple[Any, ...], Any]]:
    """Each tool of the agents that this one leads to, with the tools that lead to its agent."""
    todo: list[tuple[tuple[Any, ...], Any]] = [((), agent)]
    agents = {id(agent)}
    while todo:
        way, agent = todo.pop(0)
        for tool, _ in agent.scopes.tools.values():
            if way and not isinstance(tool, ProviderTool):
                yield way, tool
            target = getattr(tool, "agent", None)
            if target is not None and id(target) not in agents:
                agents.add(id(target))
                todo.append(((*way, tool), target))


def _answer(path: CallPath, call: ToolCall, request: ModelRequest) -> Any:
    """The answer of each agent's model: it calls the tool that leads on, and at the end the tool
    of the probe."""
    names = {tool.name for tool in request.tools}
    last = request.messages[-1]
    if isinstance(last, ToolMessage) and path.leads.get(last.name) != "handoff":
        return "done"
    if call.name in names:
        return path.turn(call)
    for name, way in path.leads.items():
        if name in names:
            return call_of(name) if way == "handoff" else call_of(name, input="probe")
    return "done"


def _agents(path: CallPath, call: ToolCall | None = None) -> tuple[Agent[Any], Agent[Any]]:
    """Copies of the agent and of the agent that has the tool; `call` replaces that of the path."""
    top: Agent[Any] = path.agent.twin(
        model=ScriptedModel(partial(_answer, path, call or path.call), repeat=True),
        tools=lambda tool: tool if tool.leads else path.tool(tool),
    )
    top.add_hook("onHook", path.watch, inherit=True, name=OURS)
    last: Any = top
    for name in path.leads:
        last = last.scopes.tools[name][0].agent
    return top, last


def _add_last(path: CallPath, agent: Any, point: str, function: Any) -> None:
    """Add a hook for the tool of the call, which runs after all others."""
    agent.add_hook(point, function, name=OURS, priority=LAST, tools=[path.call.name])


async def _chat(path: CallPath, agent: Agent[Any], **options: Any) -> Any:
    with suppress(OutputError):  # an agent with `output=`: its call is already decided
        return await path.chat(agent, **options)


async def _direct(path: CallPath) -> None:
    await _chat(path, _agents(path)[0])


async def _streamed(path: CallPath) -> None:
    stream = _agents(path)[0].chat_stream("probe", approver=path.deny, deps=path.deps)
    with suppress(OutputError):
        await collect(stream)


async def _only_hooks(path: CallPath) -> None:
    await _chat(path, _agents(path)[0], only_hooks=[])


async def _changed_by_a_hook(path: CallPath) -> None:
    def change(ctx: PreToolCall[Any]) -> ToolCall:
        return ctx.call.replace(arguments=path.call.arguments)

    top, last = _agents(path, path.harmless)
    _add_last(path, last, "preToolCall", change)
    await _chat(path, top)


async def _changed_by_a_wrapper(path: CallPath) -> None:
    top, last = _agents(path, path.harmless)
    _add_last(path, last, "aroundToolCall", changing(path.call.arguments).fn)
    await _chat(path, top)


async def _changed_by_an_approver(path: CallPath) -> None:
    path.is_approved = True
    top, last = _agents(path, path.harmless)
    _add_last(path, last, "preToolCall", path.question().fn)

    async def approve(request: Any, run: Any) -> Approve | Deny:
        return Approve() if request.call.name in path.leads else path.edited

    await _chat(path, top, approver=approve)


async def _changed_by_an_answer(path: CallPath) -> None:
    path.is_approved = True
    top, last = _agents(path, path.harmless)
    _add_last(path, last, "preToolCall", path.question().fn)
    talk = Conversation()
    await _chat(path, top, conversation=talk, approver=None)
    with suppress(OutputError):
        for _ in range(_MOST_QUESTIONS):
            if not talk.pending:
                break
            answers = {
                request.id: Approve() if request.call.name in path.leads else path.edited
                for request in talk.pending
            }
            await path.resume(top, talk, answers, approver=None)


SUB_AGENT_PATHS: Final[dict[str, Walk]] = {
    "chat": _direct,
    "chat_stream": _streamed,
    "only_hooks=[]": _only_hooks,
    "changed by a later hook": _changed_by_a_hook,
    "changed by a wrapper": _changed_by_a_wrapper,
    "changed by an approver": _changed_by_an_approver,
    "changed by an answer of resume": _changed_by_an_answer,
}
"""The paths to a tool of another agent."""
