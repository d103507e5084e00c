"""W7: a turn of 10 tool calls on a conversation of H messages. What one model request costs."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from math import log

from hookline import AssistantMessage, Conversation, Text, UserMessage

from . import byhand, ours
from .measure import Job, Options, Row, cpu, micros, ours_row, ratio_row

NAME = "W7"
LENGTHS = (10, 100, 1_000, 5_000)
CALLS = 10
CHATS = 16
EXPONENT = 0.1  # target


class Limit:
    """Turns by hand on lists of so many entries."""

    def __init__(self, length: int) -> None:
        self.script = byhand.script(CALLS)
        self.tools: byhand.Tools = {"add": byhand.Counter().add}
        self.base: list[byhand.Entry] = [
            ("user" if n % 2 == 0 else "assistant", f"message {n}") for n in range(length)
        ]

    def prepare(self) -> Job:
        """Fresh lists, and what is to be measured on them."""
        fresh = [list(self.base) for _ in range(CHATS)]
        expected = len(self.base) + 2 + 2 * CALLS

        async def run() -> None:
            for history in fresh:
                assert await byhand.read_calls(self.script, history, self.tools) == CALLS
                assert len(history) == expected

        return run


class Ours:
    """The same on conversations."""

    def __init__(self, length: int) -> None:
        self.agent = ours.tool_agent(byhand.Counter(), CALLS, length + 1)
        self.base = [
            UserMessage(parts=(Text(f"message {n}"),))
            if n % 2 == 0
            else AssistantMessage(parts=(Text(f"message {n}"),), finish_reason="stop")
            for n in range(length)
        ]

    def prepare(self) -> Job:
        """Fresh conversations, and what is to be measured on them."""
        fresh = [Conversation(self.base) for _ in range(CHATS)]
        expected = len(self.base) + 2 + 2 * CALLS

        async def run() -> None:
            for conversation in fresh:
                assert await ours.read_calls(self.agent, conversation) == CALLS
                assert len(conversation.history) == expected

        return run


async def measured(times: int) -> dict[int, tuple[list[int], list[int]]]:
    sides: dict[int, tuple[Limit, Ours]] = {n: (Limit(n), Ours(n)) for n in LENGTHS}
    samples: dict[int, tuple[list[int], list[int]]] = {length: ([], []) for length in LENGTHS}
    for round in range(times + 1):
        for length, pair in sides.items():
            limit, mine = await cpu(pair[0].prepare()), await cpu(pair[1].prepare())
            if round:  # the first one warms up
                samples[length][0].append(limit)
                samples[length][1].append(mine)
    return samples


def rows(options: Options) -> Iterator[Row]:
    samples = asyncio.run(measured(options.times(15)))
    requests = CHATS * (CALLS + 1)
    for length, (limit, mine) in samples.items():
        what = f"turn of 10 calls on {length:,} messages, a request"
        yield ratio_row(NAME, what, micros(limit, requests), micros(mine, requests))
    yield ours_row(
        NAME,
        "exponent of that from 1,000 to 5,000 messages",
        _exponents(samples[1_000][0], samples[5_000][0]),
        _exponents(samples[1_000][1], samples[5_000][1]),
        unit="",
        ratio=False,
        target=EXPONENT,
    )


def _exponents(short: list[int], long: list[int]) -> list[float]:
    return [log(b / a) / log(5) for a, b in zip(short, long, strict=True)]
