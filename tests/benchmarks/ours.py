"""The same chats with hookline: the smallest model that a user could write, and one reader."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from typing import Any

from hookline import Agent, Conversation, Limits
from hookline.events import TextDelta, ToolCallFinished
from hookline.models import Chunk, Finish, ModelRequest, TextChunk, ToolCallChunk

from . import byhand

STOP = Finish()
CALLS = Finish(finish_reason="tool_calls")


class Streaming:
    """A model that streams text."""

    def __init__(self, texts: Sequence[str]) -> None:
        self.chunks = [TextChunk(text) for text in texts]

    async def stream(self, request: ModelRequest, /) -> AsyncIterator[Chunk]:
        for chunk in self.chunks:
            yield chunk
        yield STOP


class Yielding:
    """The same, giving way to the other chats after each chunk."""

    def __init__(self, texts: Sequence[str], crowd: byhand.Crowd) -> None:
        self.chunks = [TextChunk(text) for text in texts]
        self.crowd = crowd

    async def stream(self, request: ModelRequest, /) -> AsyncIterator[Chunk]:
        self.crowd.enter()
        for chunk in self.chunks:
            yield chunk
            await asyncio.sleep(0)
        self.crowd.leave()
        yield STOP


class Scripted:
    """A model that knows by the length of the history which of its answers is due.

    `before`: how many messages there are before the first answer.
    """

    def __init__(self, calls: int, before: int = 1) -> None:
        self.before = before
        self.answers: list[list[Chunk]] = [
            [ToolCallChunk(index=0, id=id, name=name, arguments=arguments), CALLS]
            for id, name, arguments in byhand.calls(calls)
        ]
        self.answers.append([TextChunk("done"), STOP])

    async def stream(self, request: ModelRequest, /) -> AsyncIterator[Chunk]:
        for chunk in self.answers[(len(request.messages) - self.before) // 2]:
            yield chunk


def tool_agent(tool: byhand.Counter, calls: int, before: int = 1) -> Agent[Any]:
    """An agent whose chats make so many tool calls, one after the other."""
    return Agent(Scripted(calls, before), tools=[tool.add], limits=Limits(steps=calls + 1))


async def read_text(agent: Agent[Any]) -> int:
    """One streamed chat, its text collected; gives the number of text events."""
    out: list[str] = []
    async with agent.chat_stream("go") as stream:
        async for event in stream:
            if type(event) is TextDelta:
                out.append(event.text)
    return len(out)


async def read_calls(agent: Agent[Any], conversation: Conversation | None = None) -> int:
    """One streamed chat, all its events read; gives the number of finished calls."""
    done = 0
    stream = (
        agent.chat_stream("go")
        if conversation is None
        else agent.chat_stream("go", conversation=conversation)
    )
    async with stream:
        async for event in stream:
            if type(event) is ToolCallFinished:
                done += event.outcome == "ok"
    return done
