"""Handoffs: the choice of the agent that speaks in a chat.

A handoff is a tool. It writes the name of the next speaker into `run.state`, which is recorded with
its step, and adds the handoff to the list in the conversation's meta, for later chats. The change
takes effect at the start of the next step. The chat then has the new agent's model, system text,
tools, settings and scopes, and its hooks after those of the agent that was called. The keywords of
the chat, its limits, runtime and the form of its answer do not change. Agents are found by their
names, through the handoff tools that lead to them.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final, cast

from msgspec.structs import replace

from hookline._base.errors import ToolDenied, UsageError
from hookline._base.log import logger
from hookline._base.messages import AssistantMessage, ToolCall
from hookline._base.run import Run
from hookline._chat.config import Config, for_chat
from hookline._chat.leading_tools import HandoffTool, Speaker
from hookline._chat.state import Chat
from hookline._hooks.bus import Key, View
from hookline._tools.tool import AnyTool

SPEAKER: Final = "hookline.speaker"
STATUS: Final = "handoff"
HANDOFFS: Final = "handoffs"  # the scope of an agent's handoff tools


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
        answer = _last_answer(chat)  # perhaps of an earlier chat, in which the call waited
        handoff = {"name": to.config.name, "before": before, "chat": _chat_of(answer)}
        chat.meta[SPEAKER] = [*_handoffs(chat), {**handoff, "call": run.call_id}]
        await run.status(STATUS, {"from": before, "to": to.config.name})
        return f"{to.config.name} goes on from here."

    return HandoffTool(hand_over, to, name)


def take_turn(chat: Chat) -> bool:
    """Let the agent of the last handoff speak; return True if the speaker has changed."""
    name = chat.state.get(SPEAKER)
    if name is None or name == chat.agent_name:
        return False
    config, view = chat.first_config, chat.input.view
    if name != config.name:
        speaker = _speakers(config).get(name)
        if speaker is None:
            logger.warning(
                "chat %s: no handoff leads to the last agent of the chat, %r", chat.chat_id, name
            )
            del chat.state[SPEAKER]
            chat.meta.pop(SPEAKER, None)  # calls that wait from here on are those of this agent
            return chat.agent_name != config.name and _change(chat, config, view)
        config = _config_of(chat, speaker.config)
        view = View(*view.sources, (speaker.bus, None))
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
    agent = chat.first_config
    config, options = target, chat.input.options
    if options is not None:
        config = for_chat(target, options, chat.input.model, speaks_later=True)
    validators = agent.output_validators
    if config.output_validators is target.output_validators and _same_output(agent, config):
        validators += tuple(
            validator for validator in target.output_validators if validator not in validators
        )
    return replace(
        config,
        limits=agent.limits,
        runtime=agent.runtime,
        output=agent.output,
        output_retries=agent.output_retries,
        output_validators=validators,
    )


def speakers_points(config: Config) -> list[Key]:
    """The points at which the agents have hooks that may speak in the chats of this agent."""
    return [key for speaker in _speakers(config).values() for key in speaker.bus.keys_in_use()]


def remember_speaker(chat: Chat) -> None:
    """Begin with the last speaker of the history, or the one whose calls wait for answers."""
    handoffs = _handoffs(chat)
    if handoffs:
        last = handoffs[-1]
        waits = chat.input.answers is not None and last["call"] in _last_calls(chat)
        chat.state.setdefault(SPEAKER, last["before" if waits else "name"])
        take_turn(chat)
        if waits:  # for the next step
            chat.state[SPEAKER] = last["name"]
    else:
        take_turn(chat)


def _handoffs(chat: Chat) -> list[dict[str, str]]:
    """The handoffs in the history; one that was cut off, replaced or not copied does not count.

    A later life of a chat begins before its own messages, and so before its own handoffs.
    """
    handoffs: Any = chat.meta.get(SPEAKER)
    if not isinstance(handoffs, list):
        return []
    calls = {
        (_chat_of(message), call.id)
        for message in chat.history
        if isinstance(message, AssistantMessage)
        for call in message.tool_calls
    }
    entries = cast("list[dict[str, str]]", handoffs)
    return [handoff for handoff in entries if (handoff["chat"], handoff["call"]) in calls]


def _change(chat: Chat, config: Config, view: View) -> bool:
    chat.config, chat.view = config, view
    chat.live = chat.live and not any(hook.options.withhold for hook in view.onResponse)
    return True


def _first_handoff(chat: Chat) -> Any:
    """The first handoff that the model asked for in this step."""
    for call in _last_calls(chat).values():
        entry = chat.config.scopes.tools.get(call.name)
        if entry is not None and isinstance(entry[0], HandoffTool):
            return call
    return None


def _last_calls(chat: Chat) -> dict[str, ToolCall]:
    """The calls of the last answer, by their ids."""
    return {call.id: call for call in _last_answer(chat).tool_calls}


def _last_answer(chat: Chat) -> AssistantMessage:
    answers = (
        message for message in reversed(chat.history) if isinstance(message, AssistantMessage)
    )
    return next(answers, AssistantMessage(parts=()))


def _chat_of(message: AssistantMessage) -> str:
    """The id of the chat that wrote the message."""
    return message.id.rpartition(".")[0]


def _leads_to(config: Config) -> Iterator[Speaker]:
    for tool, _ in config.scopes.tools.values():
        if isinstance(tool, HandoffTool):
            yield tool.speaker


def _speakers(config: Config) -> dict[str, Speaker]:
    """All agents that handoffs lead to, directly or through other agents."""
    speakers: dict[str, Speaker] = {}
    todo = [config]
    while todo:
        for to in _leads_to(todo.pop()):
            if to.config.name not in speakers:
                speakers[to.config.name] = to
                todo.append(to.config)
    return speakers
