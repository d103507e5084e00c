"""Chats that carry a secret, and what is left of them: the ground of `_text_roads.py`."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any, NamedTuple, TypeAlias

from hookline import Agent, Conversation
from hookline.errors import ChatAbortedError, HooklineError, ModelError
from hookline.testing import ScriptedModel

SECRET = "s3cr3t-123"
THROUGH = f"It is {SECRET}."
LATE = -20_000  # a priority after that of `redact`

Guards: TypeAlias = Any
Play: TypeAlias = Callable[[Guards], Awaitable["Trace"]]


class Trace(NamedTuple):
    """What is left of a chat."""

    events: list[Any]
    conversation: Conversation
    response: Any = None
    more: Mapping[str, str] = {}
    """The text of other places, by their names."""


async def chat(agent: Agent[Any], *, message: str = "Hi.", **options: Any) -> Trace:
    conversation = options.pop("conversation", None) or Conversation()
    stream = agent.chat_stream(message, conversation=conversation, **options)
    events: list[Any] = []
    try:
        async for event in stream:
            events.append(event)
    except (ValueError, ModelError, ChatAbortedError, HooklineError):
        return Trace(events, conversation)
    return Trace(events, conversation, stream.response)


def agent_of(guards: Guards, *turns: Any, **options: Any) -> Agent[Any]:
    return Agent(ScriptedModel(*(turns or ("Done.",)), chunk=4), hooks=guards, **options)


def hooked(point: Any, hook: Any, *turns: Any, priority: int = 0, **options: Any) -> Play:
    """A chat with this hook."""

    async def play(guards: Guards) -> Trace:
        agent = agent_of(guards, *turns, **options)
        agent.add_hook(point, hook, priority=priority)
        return await chat(agent)

    return play


def said(*turns: Any, message: str = "Hi.", chat_options: Any = None, **options: Any) -> Play:
    """A chat in which the model, the user or a tool says it."""

    async def play(guards: Guards) -> Trace:
        agent = agent_of(guards, *turns, **options)
        return await chat(agent, message=message, **(chat_options or {}))

    return play


async def tells() -> str:
    """Return the secret."""
    return f"it is {SECRET}"


async def takes(text: str = "") -> str:
    """Take a text."""
    return "done"
