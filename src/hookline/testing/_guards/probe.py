"""Proofs for guards: a call is sent over each path to its tool, and must be refused or asked about.

The paths run on a copy of the agent: its hooks, and tools of the same names that only note the
call. No tool, model or store of the agent is called.
"""

from __future__ import annotations

from collections.abc import Mapping, Set
from dataclasses import dataclass, field
from typing import Any, Final, Literal, TypeAlias

from hookline import Agent, ToolCall
from hookline.errors import ToolArgumentsError, UsageError
from hookline.models import ProviderTool
from hookline.testing._guards.basic_paths import PROVIDER_PATHS
from hookline.testing._guards.call_path import CallPath, LeftOutError, Passage, Walk, contains
from hookline.testing._guards.path_table import PATHS
from hookline.testing._guards.sub_agent_tools import SUB_AGENT_PATHS, routes

Expected: TypeAlias = Literal["denied", "asked", "redacted"]
"""What must become of a call: it is refused, asked about, or its tool does not get the secret."""
_HOLDS: Final[dict[Expected, tuple[Passage, ...]]] = {
    "denied": ("denied",),
    "asked": ("asked", "denied"),
    "redacted": ("changed", "denied", "not run"),
}
_DIRECT: Final[dict[Expected, Passage]] = {"asked": "asked", "redacted": "changed"}
"""The only passage that holds in a plain chat."""


@dataclass
class Probe:
    """The passages of one call, and the names of the guards that were asked."""

    call: ToolCall
    """The call that was sent."""
    passages: dict[str, Passage] = field(default_factory=dict[str, Passage])
    """The passage on each path, by the name of the path."""
    other: dict[str, dict[str, Any]] = field(default_factory=dict[str, dict[str, Any]])
    """The arguments with which the tool ran where the passage is "changed"."""
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
            path for path in self.passages if expected != "asked" or path not in self.approved_paths
        ]

    def failures(self, expected: Expected) -> list[str]:
        """The paths on which the call passed.

        If a question or a redaction is expected, a refusal counts too, but not in a plain chat.
        """
        failures: list[str] = []
        for path in self.paths(expected):
            passage = self.passages[path]
            only = _DIRECT.get(expected, passage) if path == "chat" else passage
            if passage not in _HOLDS[expected] or passage != only:
                failures.append(path)
        return failures


async def probe(
    agent: Agent[Any],
    call: ToolCall,
    *,
    deps: Any = None,
    paths: Mapping[str, Walk] | None = None,
    secret: str | None = None,
) -> Probe:
    """Send the call over the paths to its tool; returns the passages.

    `paths` has further paths by name, such as one through a server of your own. A tool of a
    sub-agent, or of an agent after a handoff, has fewer paths, without those of `paths`. With
    `secret=`, a part of an argument, the call "ran" wherever the tool gets this text. Raises
    UsageError if the agent has no such tool, or if the tool refuses the arguments.
    """
    if secret is not None and not (secret and contains(call.arguments, secret)):
        raise UsageError(
            f"secret={secret!r} is in no argument of {call.name}({dict(call.arguments)!r}); pass a "
            "text of the arguments that the tool must not get"
        )
    way, tool = _tool_of(agent, call.name)
    result, direct, broken = Probe(call), frozenset[str](), dict[str, list[str]]()
    for name, walk in _walks(tool, call, paths, is_below=bool(way)).items():
        path = CallPath(agent, call, deps, secret)
        path.direct = direct
        path.leads = {tool.name: tool.leads for tool in way}
        try:
            await walk(path)
        except LeftOutError as exc:
            result.left_out[name] = str(exc)
            continue
        except Exception as exc:
            exc.add_note(f"raised by the probe {call.name}({dict(call.arguments)!r}), path: {name}")
            raise
        result.passages[name] = path.passage
        if path.passage == "changed" and path.other is not None:
            result.other[name] = path.other
        if path.is_approved:
            result.approved_paths.add(name)
        result.guards |= path.guards
        for hook in path.broken:
            broken.setdefault(hook, []).append(name)
        if name == "chat":
            direct = frozenset(path.refusers)
    result.notes = _notes(agent, direct, broken)
    return result


def _walks(
    tool: Any, call: ToolCall, paths: Mapping[str, Walk] | None, *, is_below: bool
) -> Mapping[str, Walk]:
    """The paths to a tool; raises UsageError if the tool refuses the arguments."""
    if isinstance(tool, ProviderTool):
        return PROVIDER_PATHS
    _check_arguments(tool, call)
    return SUB_AGENT_PATHS if is_below else {**PATHS, **(paths or {})}


def _tool_of(agent: Agent[Any], name: str) -> tuple[tuple[Any, ...], Any]:
    """The tool with this name, and the tools that lead to its agent."""
    entry = agent.scopes.tools.get(name)
    if entry is not None:
        return (), entry[0]
    others = {tool.name: (way, tool) for way, tool in reversed([*routes(agent)])}
    if name not in others:
        names = ", ".join(map(repr, (*agent.scopes.tools, *others))) or "none"
        raise UsageError(
            f"agent {agent.name!r} has no tool {name!r}, nor have its sub-agents; call one of "
            f"their tools: {names}"
        )
    return others[name]


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
    failures = result.failures(expected)
    if failures:
        lines = "\n".join([*(_line(result, name) for name in failures), *result.notes])
        if expected == "denied" and result.other:
            lines += "\nif a hook shall change the call, use assert_redacted"
        call = result.call
        raise AssertionError(
            f"the call {call.name}({dict(call.arguments)!r}) must be {expected}, but was not:\n"
            f"{lines}"
        )


def _line(result: Probe, path: str) -> str:
    """The passage on a path, with the arguments of a tool that got others."""
    other = result.other.get(path)
    return f"  {path}: {result.passages[path]}" + ("" if other is None else f", ran with {other!r}")


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


async def assert_redacted(
    agent: Agent[Any],
    call: ToolCall,
    secret: str,
    *,
    deps: Any = None,
    paths: Mapping[str, Walk] | None = None,
) -> None:
    """Check that the tool never gets a secret of its call, on every path to the tool.

    `await assert_redacted(agent, call("send", text="My card: 4111"), "4111")`. The tool must run
    without the secret in a plain chat; on the other paths, the call may also be refused. Like
    `assert_denied`, it takes further paths, calls no tool, model or store of the agent, and raises
    AssertionError. Raises UsageError if no argument contains the secret.
    """
    result = await probe(agent, call, deps=deps, paths=paths, secret=secret)
    _check(result, "redacted")
