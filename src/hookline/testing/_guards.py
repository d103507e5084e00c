"""Proofs for guards: a call is sent over each road to its tool, and must be refused or asked about.

The roads run on a copy of the agent: its hooks, and tools of the same names that only note the
call. No tool, model or store of the agent is called.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias

from hookline import Agent, ToolCall
from hookline.errors import UsageError
from hookline.models import ProviderTool
from hookline.testing._guard_road import LeftOutError, Passage, Road
from hookline.testing._guard_roads import PROVIDER_ROADS, ROADS, ROADS_WITH_ANSWER

Expected: TypeAlias = Literal["denied", "asked"]
"""What a guard must do with a call."""


@dataclass
class Probe:
    """The passages of one call, and the names of the guards that were asked."""

    call: ToolCall
    """The call that was sent."""
    passages: dict[str, Passage] = field(default_factory=dict[str, Passage])
    """The passage on each road, by the name of the road."""
    left_out: dict[str, str] = field(default_factory=dict[str, str])
    """The roads that were left out, with the reason."""
    guards: set[str] = field(default_factory=set[str])
    """The names of the hooks that were asked about the call."""

    def failures(self, expected: Expected) -> list[str]:
        """The roads on which the call passed.

        If a question is expected, a refusal counts too, but not on the direct road. A person who
        changes a call approves it, so the roads with an answer do not count then.
        """
        if expected == "denied":
            return [road for road, passage in self.passages.items() if passage != "denied"]
        roads = {
            road: passage
            for road, passage in self.passages.items()
            if road not in ROADS_WITH_ANSWER
        }
        failures = [road for road, passage in roads.items() if passage not in ("asked", "denied")]
        return ["chat", *failures] if roads.get("chat") == "denied" else failures


async def probe(agent: Agent[Any], call: ToolCall, *, deps: Any = None) -> Probe:
    """Send the call over the roads to its tool; returns the passages.

    Raises UsageError if the agent has no such tool.
    """
    entry = agent.scopes.tools.get(call.name)
    if entry is None:
        raise UsageError(
            f"agent {agent.name!r} has no tool {call.name!r}; call one of its tools: "
            f"{', '.join(map(repr, agent.scopes.tools)) or 'none'}"
        )
    result = Probe(call)
    direct: frozenset[str] = frozenset()
    every = PROVIDER_ROADS if isinstance(entry[0], ProviderTool) else ROADS | ROADS_WITH_ANSWER
    for name, walk in every.items():
        road = Road(agent, call, deps)
        road.direct = direct
        try:
            await walk(road)
        except LeftOutError as exc:
            result.left_out[name] = str(exc)
            continue
        except Exception as exc:
            exc.add_note(f"raised by the probe {call.name}({dict(call.arguments)!r}), road: {name}")
            raise
        result.passages[name] = road.passage
        result.guards |= road.guards
        if name == "chat":
            direct = frozenset(road.refusers)
    return result


def _check(result: Probe, expected: Expected) -> None:
    roads = result.passages
    failures = result.failures(expected)
    if failures:
        lines = "\n".join(f"  {name}: {roads[name]}" for name in failures)
        call = result.call
        raise AssertionError(
            f"the call {call.name}({dict(call.arguments)!r}) must be {expected}, but was not:\n"
            f"{lines}"
        )


async def assert_denied(agent: Agent[Any], call: ToolCall, *, deps: Any = None) -> None:
    """Check that the agent's guards refuse this call, on every road to its tool.

    `await assert_denied(agent, call("bash", command="rm -rf /"))`. The roads are a chat, a stream,
    a sub-agent, and calls that a later hook, a wrapper or an approver has changed. The hooks of the
    agent run; no tool, model or store of the agent is called. Raises AssertionError that names the
    roads on which the call was not refused, and UsageError if the agent has no such tool.
    """
    _check(await probe(agent, call, deps=deps), "denied")


async def assert_asked(agent: Agent[Any], call: ToolCall, *, deps: Any = None) -> None:
    """Check that this call needs an approval, on every road to its tool.

    On a road on which a person can no longer be asked, the call must be refused. Like
    `assert_denied`, it calls no tool, model or store of the agent, and raises AssertionError.
    """
    _check(await probe(agent, call, deps=deps), "asked")
