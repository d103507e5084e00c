"""The limit: what these chats cost when they are written by hand, with no library at all.

An async generator is the model, a list the history, a tool is awaited directly. A chunk is a plain
string, a call a tuple of id, name and arguments as JSON text.
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


async def chat(answers: Sequence[Sequence[Chunk]], history: list[Entry], tools: Tools) -> int:
    """Ask the model until it calls no more tool; gives the number of messages."""
    history.append(("user", "go"))
    before = len(history)
    while True:
        said: list[str] = []
        wanted: list[CallChunk] = []
        async for chunk in scripted(answers, before, history):
            if isinstance(chunk, str):
                said.append(chunk)
            else:
                wanted.append(chunk)
        history.append(("assistant", "".join(said), wanted))
        if not wanted:
            return len(history)
        for id, name, arguments in wanted:
            value = await tools[name](**json.loads(arguments))
            history.append(("tool", id, str(value)))
