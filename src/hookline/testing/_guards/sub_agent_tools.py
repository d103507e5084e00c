"""Paths of a probe to a tool of a sub-agent, or of an agent to which the agent hands over.

The agents are copies of the real ones, with their own hooks. The model of each calls the tool that
leads to the next agent, and the model of the last agent makes the call. People approve the calls
that lead there: what counts is the call itself.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from contextlib import suppress
from typing import Any, Final

from hookline import Agent, Approve, Conversation, Deny, ModelRequest, ToolCall, ToolMessage
from hookline.errors import OutputError
from hookline.models import Chunk, ProviderTool
from hookline.points import PreToolCall
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


class _Leader:
    """The model of all agents on the way: it calls the tool that leads on, and at the end the
    tool of the probe."""

    name = provider = OURS

    def __init__(self, path: CallPath, turn: Any) -> None:
        self._path = path
        self._turn = turn

    async def stream(self, request: ModelRequest, /) -> AsyncIterator[Chunk]:
        async for chunk in ScriptedModel(self._answer(request)).stream(request):
            yield chunk

    def _answer(self, request: ModelRequest) -> Any:
        names = {tool.name for tool in request.tools}
        last = request.messages[-1]
        hands_over = isinstance(last, ToolMessage) and self._path.leads.get(last.name) == "handoff"
        if isinstance(last, ToolMessage) and not hands_over:
            return "done"
        if self._path.call.name in names:
            return self._turn
        leads = self._path.leads.items()
        tool = next(((name, how) for name, how in leads if name in names), None)
        if tool is None:
            return "done"
        return call_of(tool[0]) if tool[1] == "handoff" else call_of(tool[0], input="probe")


def _agents(path: CallPath, turn: Any = None) -> tuple[Agent[Any], Agent[Any]]:
    """Copies of the agent and of the agent that has the tool."""
    model = _Leader(path, path.turn() if turn is None else turn)
    top: Agent[Any] = path.agent.twin(
        model=model, tools=lambda tool: tool if tool.leads else path.tool(tool)
    )
    top.add_hook("onHook", path.watch, inherit=True, name=OURS)
    last: Any = top
    for name in path.leads:
        last = last.scopes.tools[name][0].agent
    return top, last


async def _chat(path: CallPath, agent: Agent[Any], **options: Any) -> Any:
    with suppress(OutputError):  # an agent with `output=`: its call is already decided
        return await path.chat(agent, **options)


async def _direct(path: CallPath) -> None:
    await _chat(path, _agents(path)[0])


async def _streamed(path: CallPath) -> None:
    stream = _agents(path)[0].chat_stream("probe", approver=path.deny, deps=path.deps)
    with suppress(OutputError):
        async with stream:
            async for _ in stream:
                pass


async def _only_hooks(path: CallPath) -> None:
    await _chat(path, _agents(path)[0], only_hooks=[])


async def _changed_by_a_hook(path: CallPath) -> None:
    def change(ctx: PreToolCall[Any]) -> ToolCall:
        return ctx.call.replace(arguments=path.call.arguments)

    top, last = _agents(path, path.turn(path.harmless))
    last.add_hook("preToolCall", change, name=OURS, priority=LAST, tools=[path.call.name])
    await _chat(path, top)


async def _changed_by_a_wrapper(path: CallPath) -> None:
    top, last = _agents(path, path.turn(path.harmless))
    change = changing(path.call.arguments).fn
    last.add_hook("aroundToolCall", change, name=OURS, priority=LAST, tools=[path.call.name])
    await _chat(path, top)


def _asks(path: CallPath, last: Agent[Any]) -> None:
    question = path.question().fn
    last.add_hook("preToolCall", question, name=OURS, priority=LAST, tools=[path.call.name])


async def _changed_by_an_approver(path: CallPath) -> None:
    path.is_approved = True
    top, last = _agents(path, path.turn(path.harmless))
    _asks(path, last)

    async def approve(request: Any, run: Any) -> Approve | Deny:
        return Approve() if request.call.name in path.leads else path.edited

    await _chat(path, top, approver=approve)


async def _changed_by_an_answer(path: CallPath) -> None:
    path.is_approved = True
    top, last = _agents(path, path.turn(path.harmless))
    _asks(path, last)
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
