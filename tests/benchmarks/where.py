"""Where the work of a chunk and of a tool iteration is done: bytecodes, counted and not timed.

The calls of Python functions and the coroutines are counted, too.

Each workload is run twice, the second time with twice as many units; the difference over the units
is what one unit costs.

    .venv/bin/python -m tests.benchmarks.where
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable

from hookline import Agent

from . import byhand, ours
from .bytecodes import count, count_calls
from .measure import Work

PARTS = {
    "events, and the chat's state": (
        "_chat/channel",
        "_base/events",
        "_chat/state",
        "_chat/stream",
    ),
    "the model's answer": ("_chat/answer", "_model/chunks", "_model/assembly", "_model/model"),
    "tool calls": (
        "_chat/batch",
        "_chat/call",
        "_chat/run_tool",
        "_tools/schema",
        "_tools/scopes",
        "_chat/values",
        "_base/cancel",
    ),
    "messages and history": (
        "_chat/commit",
        "_chat/shown",
        "_conversations/conversation",
        "_conversations/state",
        "_base/messages",
        "_conversations/history",
    ),
    "the step and its request": (
        "_chat/step",
        "_chat/request",
        "_chat/loop",
        "_record/runtime",
        "_chat/supervisor",
    ),
    "JSON": ("_base/json", "json/decoder", "json/__init__"),
    "asyncio": ("asyncio/", "selectors", "_weakrefset"),
    "the workload: model, tool, reader": ("benchmarks/",),
}
WHERE = {
    f"/{file}" if file.endswith("/") else f"/{file}.py": part
    for part, files in PARTS.items()
    for file in files
}


async def a_unit(make: Callable[[int], Work], few: int) -> dict[str, float]:
    """Bytecodes of one unit, by part."""
    less, more = await count(make(few), WHERE), await count(make(2 * few), WHERE)
    return {part: (whole - less[part]) / few for part, whole in more.items()}


async def calls_of_a_unit(make: Callable[[int], Work], few: int) -> tuple[float, float]:
    """The calls and the coroutines of one unit."""
    less, more = await count_calls(make(few)), await count_calls(make(2 * few))
    return (more[0] - less[0]) / few, (more[1] - less[1]) / few


def text_by_hand(units: int) -> Work:
    texts = byhand.texts(units)
    return lambda: byhand.read_text(lambda _: byhand.stream(texts))


def text_ours(units: int) -> Work:
    agent = Agent(ours.Streaming(byhand.texts(units)))
    return lambda: ours.read_text(agent)


def calls_by_hand(units: int) -> Work:
    script, tool = byhand.script(units), byhand.Counter()
    return lambda: byhand.read_calls(script, [], {"add": tool.add})


def calls_ours(units: int) -> Work:
    agent = ours.tool_agent(byhand.Counter(), units)
    return lambda: ours.read_calls(agent)


def show(title: str, by_hand: Callable[[int], Work], mine: Callable[[int], Work], few: int) -> None:
    limit = sum(asyncio.run(a_unit(by_hand, few)).values())
    parts = asyncio.run(a_unit(mine, few))
    whole = sum(parts.values())
    calls, coroutines = asyncio.run(calls_of_a_unit(mine, few))
    print(f"{title}: {whole:,.0f} bytecodes; by hand {limit:,.0f}: {whole / limit:.1f}×")
    print(f"  in {calls:,.1f} calls, {coroutines:,.1f} coroutines")
    for part, bytecodes in sorted(parts.items(), key=lambda each: -each[1]):
        if bytecodes >= 1:
            print(f"  {bytecodes:8,.0f} {bytecodes / whole:6.1%}  {part or 'other'}")
    print()


def main() -> None:
    print("CPython", sys.version.split()[0], "\n")
    show("W1, a chunk", text_by_hand, text_ours, 1_000)
    show("W2, a tool iteration", calls_by_hand, calls_ours, 50)


if __name__ == "__main__":
    main()
