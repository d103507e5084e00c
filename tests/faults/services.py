"""Answers of a provider that fail: refused, broken off at any byte, with garbage, on real sockets.

Each goes through the provider's own SDK, to a loopback server that speaks the provider's format.
Part of throw.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from tests._checkpoints import left_running
from tests._wires import WIRES, wire
from tests.wire import Wire, WireFormat

from hookline import Agent, Conversation, tool
from hookline.errors import HooklineError, ModelError
from hookline.testing import Turn, call

from .figures import Budget, Figure, Findings, tries
from .invariants import ONE, ORPHANS, TASKS, gone, one_outcome, orphans

OUTSIDE = "errors that are no ModelError"
SOCKETS = "sockets left open"
STATUSES = (400, 401, 403, 404, 429, 500, 503)
TURN = Turn("Let me see.", call("add", a=1, b=2))
CUTS = 12
SECONDS = 5.0


@tool
async def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


def answers(kind: WireFormat) -> Iterator[tuple[str, Wire]]:
    """The ways in which an answer fails."""
    for status in STATUSES:
        yield f"status {status}", Wire(status=status)
    whole = len(b"".join(Wire(TURN).pieces(kind, 1)))
    for number in range(CUTS):
        at = max(1, whole * number // CUTS)
        yield f"cut after {at} of {whole} bytes", Wire(TURN, cut=at)
        yield f"garbage after {at} of {whole} bytes", Wire(TURN, garbage=b"\xff{", after=at)


def agent_of(model: Any, trace: list[str]) -> Agent[Any]:
    agent: Agent[Any] = Agent(model, tools=[add])
    agent.add_hook("onChatStart", lambda ctx: trace.append("start"))
    agent.add_hook("onChatDone", lambda ctx: trace.append("done"))
    agent.add_hook("onChatError", lambda ctx: trace.append("error"))
    agent.add_hook("onChatAbort", lambda ctx: trace.append("aborted"))
    agent.add_hook("onChatEnd", lambda ctx: trace.append(f"end {ctx.outcome}"))
    return agent


async def one(kind: WireFormat, answer: Wire) -> dict[str, int]:
    """A chat whose first answer is this one, and what is broken after it."""
    trace: list[str] = []
    talk = Conversation()
    outside = 0
    async with wire(kind, answer, "Well.") as (model, server):
        agent = agent_of(model, trace)
        try:
            await agent.chat("Add 1 and 2.", conversation=talk)
        except ModelError:
            pass
        except HooklineError:
            outside = 1
        broken = answer.status < 400 and trace[1:2] != ["done"]  # others may be used again
        if broken:
            await gone(lambda: server.open, SECONDS)
        left = server.open if broken else 0
    return {
        OUTSIDE: outside,
        ORPHANS: orphans(talk.messages),
        ONE: 0 if one_outcome(trace) else 1,
        SOCKETS: left,
    }


async def broken_off(budget: Budget) -> list[Figure]:
    """All of them, through all adapters."""
    findings = Findings(OUTSIDE, ORPHANS, ONE, TASKS, SOCKETS)
    count = 0
    for kind in WIRES:
        for name, answer in answers(kind):
            budget.tell(f"{kind}, {name}")
            count += 1
            try:
                found = await one(kind, answer)
            except Exception as exc:
                found = {OUTSIDE: 1}
                name = f"{name}: {exc!r}"
            findings.take(found, f"{kind}, {name}")
        findings.note(TASKS, len(await left_running()), kind)
    note = f"through {len(WIRES)} adapters and the providers' SDKs"
    return [tries("throw", "answers of a provider that failed", count, 100, note)] + [
        Figure(each.part, f"– {each.what}", each.value, most=0, note=each.note)
        for each in findings.figures("throw")
    ]
