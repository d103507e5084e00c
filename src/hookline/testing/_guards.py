"""Proofs for guards: a call is sent over each road to its tool, and must be refused or asked about.

The roads run on a copy of the agent: its hooks, and tools of the same names that only note the
call. No tool, model or store of the agent is called.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Literal, TypeAlias

from hookline import (
    Agent,
    Approve,
    Ask,
    Conversation,
    Deny,
    Scope,
    Tool,
    ToolCall,
    define_hook,
)
from hookline.errors import UsageError
from hookline.points import AroundToolCall, OnHook, PreToolCall
from hookline.testing._script import ScriptedModel
from hookline.testing._turn import call as call_of

Passage: TypeAlias = Literal["denied", "asked", "ran", "not run"]
"""The end of a road: the call was refused, asked about, run, or not run for another reason."""
Expected: TypeAlias = Literal["denied", "asked"]
"""What a guard must do with a call."""
OURS: Final = "hookline probe"  # the name of the hooks on the roads
LAST: Final = -1_000_000_000


@dataclass
class Probe:
    """The passages of one call, and the names of the guards that were asked."""

    call: ToolCall
    """The call that was sent."""
    passages: dict[str, Passage] = field(default_factory=dict[str, Passage])
    """The passage on each road, by the name of the road."""
    guards: set[str] = field(default_factory=set[str])
    """The names of the hooks that were asked about the call."""

    def failures(self, expected: Expected) -> list[str]:
        """The roads on which the call passed.

        If a question is expected, a refusal counts too, but not on the direct road. A person who
        changes a call approves it, so the roads with an answer do not count then.
        """
        if expected == "denied":
            return [road for road, passage in self.passages.items() if passage != "denied"]
        roads = {road: self.passages[road] for road in ROADS}
        failures = [road for road, passage in roads.items() if passage not in ("asked", "denied")]
        return ["chat", *failures] if roads["chat"] == "denied" else failures


class _Road:
    """One run of a copy of the agent; notes whether the call was asked about or run."""

    def __init__(self, agent: Agent[Any], call: ToolCall, deps: Any) -> None:
        self.call = call
        self.deps = deps
        self.asked = False
        self.ran = False
        self.refused = False
        self.guards: set[str] = set()
        self.own = agent.bus
        self.copy = self._copy(agent)
        self.watch = define_hook("onHook", self._watch, inherit=True)

    def _copy(self, agent: Agent[Any]) -> Agent[Any]:
        scopes: dict[int, Scope] = {}
        tools: dict[int, list[Any]] = {}
        for tool, scope in agent.scopes.tools.values():
            scopes[id(scope)] = scope
            tools.setdefault(id(scope), []).append(self._fake(tool))
        opted_out = any(hook.off == "global_hooks=False" for hook in agent.hooks())
        return Agent(
            ScriptedModel("done", repeat=True),
            name=agent.name,
            bus=agent.bus,
            scopes=[Scope(scopes[key].label, tools=tools[key]) for key in scopes],
            global_hooks=not opted_out,
        )

    def _fake(self, tool: Any) -> Any:
        def note(arguments: dict[str, Any]) -> str:
            self.ran = self.ran or self._is_meant(tool.name, arguments)
            return "noted"

        return Tool.from_schema(
            tool.name, tool.description, tool.parameters, note, validate=False, idempotent=True
        )

    def _is_meant(self, name: str, arguments: Mapping[str, Any]) -> bool:
        return name == self.call.name and arguments == self.call.arguments

    def _watch(self, ctx: OnHook[Any]) -> None:
        if ctx.point == "preToolCall" and ctx.hook != OURS:
            self.guards.add(ctx.hook)
            refusals = ("blocked", "stopped", "asked", "raised")
            self.refused = self.refused or ctx.outcome in refusals

    async def answer(self, request: Any, run: Any) -> Deny:
        self.asked = self.asked or self._is_meant(request.call.name, request.call.arguments)
        return Deny("only a probe")

    async def chat(self, *hooks: Any, first: ToolCall | None = None, **options: Any) -> Any:
        """A chat whose model asks for the call, or for another one first."""
        first = self.call if first is None else first
        options = {"approver": self.answer, "deps": self.deps, **options}
        model = ScriptedModel(call_of(first.name, dict(first.arguments)), "done", repeat=True)
        return await self.copy.chat("probe", model=model, hooks=[*hooks, self.watch], **options)

    @property
    def harmless(self) -> ToolCall:
        """A call of the same tool with empty arguments, which is changed on the way."""
        empty = {name: _empty(value) for name, value in self.call.arguments.items()}
        return self.call.replace(arguments=empty)

    @property
    def passage(self) -> Passage:
        if self.ran:
            return "ran"
        if self.asked:
            return "asked"
        return "denied" if self.refused else "not run"


def _empty(value: object) -> Any:
    if isinstance(value, (list, dict)):
        return [] if isinstance(value, list) else {}
    return None if value is None else type(value)()


async def _direct(road: _Road) -> Any:
    return await road.chat()


async def _streamed(road: _Road) -> Any:
    model = ScriptedModel(call_of(road.call.name, dict(road.call.arguments)), "done")
    stream = road.copy.chat_stream(
        "probe", model=model, hooks=[road.watch], approver=road.answer, deps=road.deps
    )
    async with stream:
        async for _ in stream:
            pass
    return stream.response


async def _changed_by_a_hook(road: _Road) -> Any:
    def change(ctx: PreToolCall[Any]) -> ToolCall:
        return ctx.call.replace(arguments=road.call.arguments)

    return await road.chat(
        define_hook("preToolCall", change, name=OURS, priority=LAST), first=road.harmless
    )


async def _changed_by_a_wrapper(road: _Road) -> Any:
    async def change(ctx: AroundToolCall[Any], proceed: Any) -> Any:
        return await proceed(ctx.call.replace(arguments=road.call.arguments))

    hook = define_hook("aroundToolCall", change, priority=LAST)
    return await road.chat(hook, first=road.harmless)


async def _run_twice(road: _Road) -> Any:
    async def twice(ctx: AroundToolCall[Any], proceed: Any) -> Any:
        await proceed()
        return await proceed(ctx.call.replace(arguments=road.call.arguments))

    return await road.chat(define_hook("aroundToolCall", twice), first=road.harmless)


def _asks(ctx: PreToolCall[Any]) -> Ask:
    return Ask("only a probe")


async def _changed_by_an_approver(road: _Road) -> Any:
    async def approve(request: Any, run: Any) -> Approve:
        return Approve(arguments=dict(road.call.arguments))

    asks = define_hook("preToolCall", _asks, name=OURS, priority=LAST)
    return await road.chat(asks, first=road.harmless, approver=approve)


async def _resumed(road: _Road) -> Any:
    asks = define_hook("preToolCall", _asks, name=OURS, priority=LAST)
    talk = Conversation()
    options: dict[str, Any] = {"conversation": talk, "approver": None}
    response = await road.chat(asks, first=road.harmless, **options)
    answers = {
        request.id: Approve(arguments=dict(road.call.arguments)) for request in response.pending
    }
    if not answers:
        return response
    model = ScriptedModel("done", repeat=True)
    return await road.copy.resume(talk, answers, model=model, hooks=[asks, road.watch])


async def _in_a_sub_agent(road: _Road) -> Any:
    road.copy = Agent(
        ScriptedModel(call_of("probe", input="probe"), "done", repeat=True),
        tools=[_below(road).as_tool(name="probe")],
    )
    return await road.copy.chat("probe", hooks=[road.watch], approver=road.answer, deps=road.deps)


def _below(road: _Road) -> Agent[Any]:
    """The copy of the agent with a script of its own, since a sub-agent takes no `model=`."""
    turns = (call_of(road.call.name, dict(road.call.arguments)), "done")
    scopes = {id(scope): scope for _, scope in road.copy.scopes.tools.values()}
    return Agent(
        ScriptedModel(*turns, repeat=True),
        name=road.copy.name,
        bus=road.own,
        scopes=list(scopes.values()),
    )


Walk: TypeAlias = Callable[[_Road], Awaitable[Any]]
ROADS: Final[dict[str, Walk]] = {
    "chat": _direct,
    "chat_stream": _streamed,
    "changed by a later hook": _changed_by_a_hook,
    "changed by a wrapper": _changed_by_a_wrapper,
    "run again by a wrapper": _run_twice,
    "in a sub-agent": _in_a_sub_agent,
}
ANSWERED: Final[dict[str, Walk]] = {
    "changed by an approver": _changed_by_an_approver,
    "changed by an answer of resume": _resumed,
}
"""Roads on which a person approves the call, so that a guard that only asks allows it."""


async def probe(agent: Agent[Any], call: ToolCall, *, deps: Any = None) -> Probe:
    """Send the call over the roads to its tool; returns the passages.

    Raises UsageError if the agent has no such tool.
    """
    if call.name not in agent.scopes.tools:
        raise UsageError(
            f"agent {agent.name!r} has no tool {call.name!r}; call one of its tools: "
            f"{', '.join(map(repr, agent.scopes.tools)) or 'none'}"
        )
    result = Probe(call)
    for name, walk in (ROADS | ANSWERED).items():
        road = _Road(agent, call, deps)
        try:
            await walk(road)
        except Exception as exc:
            exc.add_note(f"raised by the probe {call.name}({dict(call.arguments)!r}), road: {name}")
            raise
        result.passages[name] = road.passage
        result.guards |= road.guards
    return result


def _check(result: Probe, expected: Expected) -> None:
    roads = result.passages
    failures = result.failures(expected)
    if failures:
        shown = "\n".join(f"  {name}: {roads[name]}" for name in failures)
        call = result.call
        raise AssertionError(
            f"the call {call.name}({dict(call.arguments)!r}) must be {expected}, but was not:\n"
            f"{shown}"
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
