"""Handoffs: the choice of the agent that speaks in a chat.

A handoff is a tool. It writes the name of the next speaker into `run.state`, which is recorded with
its step, and into the conversation's meta for later chats. The change takes effect at the start of
the next step. The chat then has the new agent's model, system text, tools, settings and scopes, and
its hooks after those of the agent that was called. The keywords of the chat, its limits, runtime
and the form of its answer do not change. Agents are found by their names, through the handoff tools
that lead to them.
"""

from __future__ import annotations

from collections.abc import Iterator
from math import inf
from typing import Any, Final, NamedTuple, cast

from msgspec.structs import replace

from hookline._base.errors import ToolDenied, UsageError
from hookline._base.log import logger
from hookline._base.messages import AssistantMessage
from hookline._base.run import Run
from hookline._chat.config import Config
from hookline._chat.state import Chat
from hookline._hooks.bus import HookBus, Key, View
from hookline._tools.tool import AnyTool, Tool

SPEAKER: Final = "hookline.speaker"
STATUS: Final = "handoff"
HANDOFFS: Final = "handoffs"  # the scope of an agent's handoff tools
LEADS_TO: Final = "hookline_leads_to"  # an attribute of a handoff tool's function
SUB_AGENT: Final = "hookline_sub_agent"  # an attribute of the function of an agent as a tool


class Speaker(NamedTuple):
    """An agent that may speak in the chats of another agent."""

    config: Config
    bus: HookBus[Any]


def handoff_tool(to: Speaker, name: str) -> AnyTool:
    """The tool by which a model hands over to that agent."""

    async def hand_over(run: Run[Any], reason: str = "") -> str:
        chat = Run.chat_of(run)
        assert isinstance(chat, Chat)
        first = _first_handoff(chat)
        if first is not None and first.id != run.call_id:
            raise ToolDenied(f"{first.name!r} was called first in this step; call only one handoff")
        before = chat.agent_name
        chat.state[SPEAKER] = to.config.name
        chat.meta[SPEAKER] = {"name": to.config.name, "chat": chat.chat_id, "before": before}
        await run.status(STATUS, {"from": before, "to": to.config.name})
        return f"{to.config.name} goes on from here."

    setattr(hand_over, LEADS_TO, to)
    about = f"Hand the conversation over to {to.config.name!r}, which goes on with it."
    return Tool(hand_over, name=name, description=about, parallel=False, timeout=inf)


def take_turn(chat: Chat) -> bool:
    """Let the agent of the last handoff speak; return True if the speaker has changed."""
    name = chat.state.get(SPEAKER)
    if name is None or name == chat.agent_name:
        return False
    config, view = chat.called
    if name != config.name:
        found = _speakers(config).get(name)
        if found is None:
            logger.warning(
                "chat %s: no handoff leads to the last agent of the chat, %r", chat.chat_id, name
            )
            del chat.state[SPEAKER]
            return chat.agent_name != config.name and _change(chat, config, view)
        config = _config_of(chat, found.config)
        view = View(*view.sources, (found.bus, None))
    return _change(chat, config, view)


def check_output(caller: Config, target: Config) -> None:
    """Refuse a handoff that would change the form of the answer.

    The caller of a chat knows only the agent that it has called, and that agent's `output=`.
    """
    if target.output is not None and not _same_output(caller, target):
        own = "no output=" if caller.output is None else f"output={caller.output.name}"
        raise UsageError(
            f"agent {caller.name!r} has {own} and cannot hand over to agent {target.name!r}, which "
            f"has output={target.output.name}; give both agents the same output="
        )


def _same_output(one: Config, other: Config) -> bool:
    if one.output is None or other.output is None:
        return one.output is other.output
    return bool(one.output.kind == other.output.kind)


def _config_of(chat: Chat, target: Config) -> Config:
    """The configuration of a chat in which another agent speaks."""
    called, _ = chat.called
    config = target if chat.input.for_speaker is None else chat.input.for_speaker(target)
    validators = called.output_validators
    if config.output_validators is target.output_validators and _same_output(called, config):
        validators += tuple(each for each in target.output_validators if each not in validators)
    return replace(
        config,
        limits=called.limits,
        runtime=called.runtime,
        output=called.output,
        output_retries=called.output_retries,
        output_validators=validators,
    )


def speakers_points(config: Config) -> list[Key]:
    """The points at which the agents have hooks that may speak in the chats of this agent."""
    return [key for speaker in _speakers(config).values() for key in speaker.bus.used()]


def remember_speaker(chat: Chat) -> None:
    """Begin with the last speaker of the conversation."""
    last: Any = chat.meta.get(SPEAKER)
    if isinstance(last, dict):
        kept = cast("dict[str, str]", last)
        own = kept["chat"] == chat.chat_id  # written by an earlier life of this chat
        chat.state.setdefault(SPEAKER, kept["before" if own else "name"])


def _change(chat: Chat, config: Config, view: View) -> bool:
    chat.config, chat.view = config, view
    chat.outlet.view = view
    chat.live = chat.live and not any(hook.options.withhold for hook in view.onResponse)
    return True


def _first_handoff(chat: Chat) -> Any:
    """The first handoff that the model asked for in this step."""
    answers = (each for each in reversed(chat.history) if isinstance(each, AssistantMessage))
    answer = next(answers, None)
    for call in answer.tool_calls if answer is not None else ():
        found = chat.config.scopes.tools.get(call.name)
        if found is not None and hasattr(found[0].fn, LEADS_TO):
            return call
    return None


def leads_to(tool: AnyTool) -> Speaker | None:
    """The agent to which a handoff tool leads; None for another tool."""
    to: Speaker | None = getattr(tool.fn, LEADS_TO, None)
    return to


def _leads_to(config: Config) -> Iterator[Speaker]:
    for tool, _ in config.scopes.tools.values():
        to = leads_to(tool)
        if to is not None:
            yield to


def _speakers(config: Config) -> dict[str, Speaker]:
    """All agents that handoffs lead to, directly or through other agents."""
    found: dict[str, Speaker] = {}
    todo = [config]
    while todo:
        for to in _leads_to(todo.pop()):
            if to.config.name not in found:
                found[to.config.name] = to
                todo.append(to.config)
    return found
