"""Paths of a probe on which another agent makes the call: a sub-agent, or one after a handoff."""

from __future__ import annotations

from typing import Any

from hookline import Approve, Conversation, Scope
from hookline.testing._guards.call_path import NEXT, OURS, SUB_AGENT, CallPath, LeftOutError
from hookline.testing._turn import call as call_of


def _with(path: CallPath, *tools: Any) -> list[Any]:
    """The scopes of the agent, and one with these tools."""
    return [*path.scopes(), Scope(OURS, tools=tools)]


async def in_a_sub_agent(path: CallPath) -> None:
    tools = [path.guarded().as_tool(name=SUB_AGENT)]
    await path.chat(path.bare(call_of(SUB_AGENT, input="probe"), tools=tools))


async def below(levels: int, path: CallPath) -> None:
    path.must_inherit()
    agent = path.bare()
    for _ in range(levels - 1):
        tools = [agent.as_tool(name=SUB_AGENT)]
        agent = path.bare(call_of(SUB_AGENT, input="probe"), tools=tools)
    scopes = _with(path, agent.as_tool(name=SUB_AGENT))
    await path.chat(path.guarded(call_of(SUB_AGENT, input="probe"), scopes=scopes))


async def after_a_handoff(path: CallPath) -> None:
    first = path.guarded(call_of(f"transfer_to_{NEXT}"))
    target, turns = path.bare(name=NEXT), list[str]()
    target.add_hook("preRequest", lambda ctx: turns.append(ctx.run.agent), name=OURS)
    first.handoffs(target)
    await path.chat(first)
    if not turns:
        raise LeftOutError("the agent's hooks allow no handoff")


async def handed_over_to(path: CallPath) -> None:
    first = path.bare(call_of(f"transfer_to_{NEXT}"), name="probe_first", scopes=[])
    first.handoffs(path.guarded(name=NEXT))
    await path.chat(first)


async def withdrawn_while_a_sub_agent_waits(path: CallPath) -> None:
    path.is_approved = True
    path.must_inherit()
    below, talk = path.bare(), Conversation()
    below.add_hook("preToolCall", path.question().fn, name=OURS)
    top = [call_of(SUB_AGENT, input="probe"), "done"]
    first = path.bare(*top, tools=[below.as_tool(name=SUB_AGENT)])
    response = await path.chat(first, conversation=talk, approver=None)
    answers = {request.id: Approve() for request in response.pending}
    second = path.guarded("done", scopes=_with(path, below.as_tool(name=SUB_AGENT)))
    await path.resume(second, talk, answers)
