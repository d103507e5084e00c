"""The limit: what these chats cost when they are written by hand, with no library at all.

An async generator is the model, another one the chat, whose reader gets each text; a list is the
history, a tool is awaited directly: the least loop that does the work. A chunk is a plain string,
a call a tuple of id, name and arguments as JSON.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from typing import Any

CallChunk = tuple[str, str, str]
Chunk = str | CallChunk
Tools = dict[str, Callable[..., Awaitable[Any]]]
Entry = tuple[Any, ...]


def user(text: str = "go") -> Entry:
    """What the user said."""
    return "user", text


class Counter:
    """A tool that counts its calls: the same one for the limit and for ours."""

    def __init__(self) -> None:
        self.calls = 0

    async def add(self, a: int, b: int) -> int:
        """Add two numbers."""
        self.calls += 1
        return a + b


class Crowd:
    """Counts how many model streams are open at the same time."""

    def __init__(self) -> None:
        self.open = 0
        self.peak = 0

    def enter(self) -> None:
        self.open += 1
        self.peak = max(self.peak, self.open)

    def leave(self) -> None:
        self.open -= 1


def texts(count: int) -> list[str]:
    """So many chunks of four characters."""
    return [f"{n % 1000:03d} " for n in range(count)]


def calls(count: int) -> list[CallChunk]:
    """So many calls of `add`."""
    return [(f"call_{n}", "add", f'{{"a": {n}, "b": {n + 1}}}') for n in range(count)]


async def stream(chunks: Sequence[str]) -> AsyncIterator[str]:
    """A model that streams text."""
    for chunk in chunks:
        yield chunk


async def yielding(chunks: Sequence[str], crowd: Crowd) -> AsyncIterator[str]:
    """The same, giving way to the other chats after each chunk."""
    crowd.enter()
    for chunk in chunks:
        yield chunk
        await asyncio.sleep(0)
    crowd.leave()


async def scripted(
    answers: Sequence[Sequence[Chunk]], before: int, history: list[Entry]
) -> AsyncIterator[Chunk]:
    """A model that knows by the length of the history which of its answers is due."""
    for chunk in answers[(len(history) - before) // 2]:
        yield chunk


def script(count: int) -> list[list[Chunk]]:
    """So many answers with one call each, then a text."""
    answers: list[list[Chunk]] = [[call] for call in calls(count)]
    answers.append(["done"])
    return answers


async def chat(
    model: Callable[[list[Entry]], AsyncIterator[Chunk]], history: list[Entry], tools: Tools
) -> AsyncIterator[str]:
    """Ask the model until it calls no more tool; yields its text to a reader, piece by piece."""
    while True:
        said: list[str] = []
        wanted: list[CallChunk] = []
        async for chunk in model(history):
            if isinstance(chunk, str):
                said.append(chunk)
                yield chunk
            else:
                wanted.append(chunk)
        history.append(("assistant", said, wanted))
        if not wanted:
            return
        for id, name, arguments in wanted:
            value = await tools[name](**json.loads(arguments))
            history.append(("tool", id, str(value)))


async def read_text(model: Callable[[list[Entry]], AsyncIterator[Chunk]]) -> int:
    """One streamed chat, read to its end; gives the number of texts."""
    texts = 0
    async for _ in chat(model, [user()], {}):
        texts += 1
    return texts


async def read_calls(answers: Sequence[Sequence[Chunk]], history: list[Entry], tools: Tools) -> int:
    """One streamed chat on this history; gives the number of finished calls."""
    history.append(user())
    before = len(history)
    async for _ in chat(lambda known: scripted(answers, before, known), history, tools):
        pass
    return sum(entry[0] == "tool" for entry in history[before:])
