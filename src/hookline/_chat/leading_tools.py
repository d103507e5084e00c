"""Tools that lead to another agent: a sub-agent that answers a call, or an agent that goes on."""

from __future__ import annotations

from collections.abc import Callable
from math import inf
from typing import TYPE_CHECKING, Any, NamedTuple, Self

from hookline._chat.config import Config
from hookline._hooks.bus import HookBus
from hookline._tools.tool import AnyTool, Tool


class Speaker(NamedTuple):
    """An agent to which a tool leads."""

    config: Config
    bus: HookBus[Any]
    agent: Any
    """The Agent, for `Agent.twin`."""


class LeadingTool(Tool[..., Any]):
    """A tool that leads to another agent."""

    __slots__ = ("speaker",)

    speaker: Speaker
    """The parts of the agent that a chat needs."""

    @property
    def agent(self) -> Any:  # pyright: ignore[reportIncompatibleVariableOverride]
        """The agent that the tool leads to."""
        return self.speaker.agent

    if not TYPE_CHECKING:

        def replace(self, **changes: Any) -> Self:
            """Return a changed copy that leads to the same agent."""
            copy = super().replace(**changes)
            copy._set(speaker=self.speaker)
            return copy


class HandoffTool(LeadingTool):
    """A tool by which a model hands the conversation over to another agent."""

    __slots__ = ()
    leads = "handoff"

    def __init__(self, fn: Callable[..., Any], to: Speaker, name: str) -> None:
        about = f"Hand the conversation over to {to.config.name!r}, which goes on with it."
        super().__init__(fn, name=name, description=about, parallel=False, timeout=inf)
        self._set(speaker=to)


class SubAgentTool(LeadingTool):
    """A tool that runs another agent, and returns its answer."""

    __slots__ = ("max_depth",)
    leads = "agent"

    max_depth: int
    """How deep agents may be nested below the first one."""

    def __init__(
        self, fn: Callable[..., Any], to: Speaker, name: str, about: str, max_depth: int
    ) -> None:
        super().__init__(fn, name=name, description=about, timeout=inf)
        self._set(speaker=to, max_depth=max_depth)

    if not TYPE_CHECKING:

        def replace(self, **changes: Any) -> Self:
            """Return a changed copy that leads to the same agent."""
            copy = super().replace(**changes)
            copy._set(max_depth=self.max_depth)
            return copy


def sub_agent_of(tool: AnyTool | None) -> Config | None:
    """The configuration of the agent that the tool runs; None for any other tool."""
    return tool.speaker.config if isinstance(tool, SubAgentTool) else None
