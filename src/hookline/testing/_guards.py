"""Proofs for guards: a call is sent over each path to its tool, and must be refused or asked about.

The paths run on a copy of the agent: its hooks, and tools of the same names that only note the
call. No tool, model or store of the agent is called.
"""

from __future__ import annotations

from collections.abc import Mapping, Set
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias

from hookline import Agent, ToolCall
from hookline.errors import ToolArgumentsError, UsageError
from hookline.models import ProviderTool
from hookline.testing._guard_path import CallPath, LeftOutError, Passage, Walk
from hookline.testing._guard_paths import PATHS, PROVIDER_PATHS

Expected: TypeAlias = Literal["denied", "asked"]
"""What a guard must do with a call."""


@dataclass
class Probe:
    """The passages of one call, and the names of the guards that were asked."""

    call: ToolCall
    """The call that was sent."""
    passages: dict[str, Passage] = field(default_factory=dict[str, Passage])
    """The passage on each path, by the name of the path."""
    left_out: dict[str, str] = field(default_factory=dict[str, str])
    """The paths that were left out, with the reason."""
    approved_paths: set[str] = field(default_factory=set[str])
    """The paths on which a person or a hook allows the call."""
    guards: set[str] = field(default_factory=set[str])
    """The names of the hooks that were asked about the call."""
    notes: list[str] = field(default_factory=list[str])
    """Remarks about the hooks: which refused the call but are not guards, and which raised."""

    def paths(self, expected: Expected) -> list[str]:
        """The paths that count if this is expected.

        A person who changes a call approves it, so only a refusal holds on a path with an answer.
        """
        return [
            path
            for path in self.passages
            if expected == "denied" or path not in self.approved_paths
        ]

    def failures(self, expected: Expected) -> list[str]:
        """The paths on which the call passed.

        If a question is expected, a refusal counts too, but not on the direct path.
        """
        holds = ("denied",) if expected == "denied" else ("asked", "denied")
        failures = [path for path in self.paths(expected) if self.passages[path] not in holds]
        direct = self.passages.get("chat") == "denied" and expected == "asked"
        return ["chat", *failures] if direct else failures


async def probe(
    agent: Agent[Any],
    call: ToolCall,
    *,
    deps: Any = None,
    paths: Mapping[str, Walk] | None = None,
) -> Probe:
    """Send the call over the paths to its tool; returns the passages.

    `paths` has further paths by name, such as one through a server of your own. Raises UsageError
    if the agent has no such tool, or if the tool refuses the arguments.
    """
    entry = agent.scopes.tools.get(call.name)
    if entry is None:
        raise UsageError(
            f"agent {agent.name!r} has no tool {call.name!r}; call one of its tools: "
            f"{', '.join(map(repr, agent.scopes.tools)) or 'none'}"
        )
    tool = entry[0]
    result, direct, broken = Probe(call), frozenset[str](), dict[str, list[str]]()
    walks = {**PATHS, **(paths or {})}
    if isinstance(tool, ProviderTool):
        walks = PROVIDER_PATHS
    else:
        _check_arguments(tool, call)
    for name, walk in walks.items():
        path = CallPath(agent, call, deps)
        path.direct = direct
        try:
            await walk(path)
        except LeftOutError as exc:
            result.left_out[name] = str(exc)
            continue
        except Exception as exc:
            exc.add_note(f"raised by the probe {call.name}({dict(call.arguments)!r}), path: {name}")
            raise
        result.passages[name] = path.passage
        if path.is_approved:
            result.approved_paths.add(name)
        result.guards |= path.guards
        for hook in path.broken:
            broken.setdefault(hook, []).append(name)
        if name == "chat":
            direct = frozenset(path.refusers)
    result.notes = _notes(agent, direct, broken)
    return result


def _notes(agent: Agent[Any], refusers: Set[str], broken: Mapping[str, list[str]]) -> list[str]:
    hooks = {hook.name for hook in agent.hooks("preToolCall") if not hook.guard}
    return [
        *(
            f'the hook {name!r} is not a guard; register it with on_error="deny"'
            for name in sorted(hooks & refusers)
        ),
        *(
            f"the hook {name!r} raised an exception on {len(paths)} paths: {paths[0]}, …"
            for name, paths in sorted(broken.items())
        ),
    ]


def _check_arguments(tool: Any, call: ToolCall) -> None:
    """Raise UsageError for a call that its tool refuses: it would prove nothing."""
    try:
        tool.bind(dict(call.arguments))
    except ToolArgumentsError as exc:
        raise UsageError(
            f"the call {call.name}({dict(call.arguments)!r}) proves nothing, since its tool "
            f"refuses the arguments; change them: {'; '.join(exc.issues)}"
        ) from exc


def _check(result: Probe, expected: Expected) -> None:
    paths = result.passages
    failures = result.failures(expected)
    if failures:
        lines = "\n".join([*(f"  {name}: {paths[name]}" for name in failures), *result.notes])
        call = result.call
        raise AssertionError(
            f"the call {call.name}({dict(call.arguments)!r}) must be {expected}, but was not:\n"
            f"{lines}"
        )


async def assert_denied(
    agent: Agent[Any],
    call: ToolCall,
    *,
    deps: Any = None,
    paths: Mapping[str, Walk] | None = None,
) -> None:
    """Check that the agent's guards refuse this call, on every path to its tool.

    `await assert_denied(agent, call("bash", command="rm -rf /"))`. The paths are a chat, a stream,
    sub-agents, handoffs, durable chats, resumed chats, and calls that a later hook, a wrapper or an
    approver has changed. `paths` adds others by name, such as `hookline.testing.doors.DOOR_PATHS`.
    The hooks of the agent run; no tool, model or store of the agent is called. Raises
    AssertionError that names the paths on which the call was not refused, and UsageError if the
    agent has no such tool.
    """
    _check(await probe(agent, call, deps=deps, paths=paths), "denied")


async def assert_asked(
    agent: Agent[Any],
    call: ToolCall,
    *,
    deps: Any = None,
    paths: Mapping[str, Walk] | None = None,
) -> None:
    """Check that this call needs an approval, on every path to its tool.

    On a path on which a person can no longer be asked, the call must be refused. Like
    `assert_denied`, it takes further paths, calls no tool, model or store of the agent, and raises
    AssertionError.
    """
    _check(await probe(agent, call, deps=deps, paths=paths), "asked")
