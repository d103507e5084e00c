"""W3: what a no-op hook costs at a point, in chats of 20 tool iterations.

The same chats with 0, 1, 2, 10 and 100 hooks; a figure is the difference of two of these within
one repeat, over the number of dispatches. The limit is `for hook in hooks: await hook(ctx)` in the
loop by hand (without the await for sync hooks).
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Iterator, Sequence
from typing import Any

from hookline import Agent

from . import byhand, ours
from .measure import Job, Options, Row, alternating, job, micros, ours_row, spread

NAME = "W3"
COUNTS = (0, 1, 2, 10, 100)
CALLS = 20
ROUNDS = 20
LIMIT_CHATS = 4  # by hand, a chat is too short for the clock
FIRST = 4.0  # targets, in µs
FURTHER = {"sync": 0.5, "async": 1.0}

SyncHooks = Sequence[Callable[[Any], None]]
AsyncHooks = Sequence[Callable[[Any], Awaitable[None]]]


def sync_noop(ctx: Any) -> None:
    """A hook that does nothing."""


async def async_noop(ctx: Any) -> None:
    """The same."""


async def sync_chat(
    script: Sequence[Sequence[byhand.Chunk]],
    tools: byhand.Tools,
    requests: SyncHooks,
    before: SyncHooks,
) -> int:
    """The loop by hand, with sync hooks before the model and before the tool."""
    history: list[byhand.Entry] = [byhand.user()]
    while True:
        wanted: list[byhand.Chunk] = []
        for hook in requests:
            hook(history)
        async for chunk in byhand.scripted(script, 1, history):
            wanted.append(chunk)
        history.append(("assistant", wanted))
        if isinstance(wanted[0], str):
            return len(history)
        for call in wanted:
            for hook in before:
                hook(call)
            value = await tools[call[1]](**json.loads(call[2]))
            history.append(("tool", json.dumps(value)))


async def async_chat(
    script: Sequence[Sequence[byhand.Chunk]],
    tools: byhand.Tools,
    requests: AsyncHooks,
    before: AsyncHooks,
) -> int:
    """The same with async ones."""
    history: list[byhand.Entry] = [byhand.user()]
    while True:
        wanted: list[byhand.Chunk] = []
        for hook in requests:
            await hook(history)
        async for chunk in byhand.scripted(script, 1, history):
            wanted.append(chunk)
        history.append(("assistant", wanted))
        if isinstance(wanted[0], str):
            return len(history)
        for call in wanted:
            for hook in before:
                await hook(call)
            value = await tools[call[1]](**json.loads(call[2]))
            history.append(("tool", json.dumps(value)))


def agent_with(point: str, hook: Callable[[Any], Any], count: int) -> Agent[Any]:
    """An agent with so many hooks at the point."""
    agent = ours.tool_agent(byhand.Counter(), CALLS)
    add: Any = agent.add_hook
    for _ in range(count):
        add(point, hook)
    return agent


def our_job(point: str, kind: str, count: int) -> Job:
    agent = agent_with(point, sync_noop if kind == "sync" else async_noop, count)

    async def chat() -> int:
        return (await agent.chat("go")).steps

    return job(chat, 1, CALLS + 1)


def limit_job(point: str, kind: str, count: int) -> Job:
    script = byhand.script(CALLS)
    tools: byhand.Tools = {"add": byhand.Counter().add}
    at_tool = point == "preToolCall"

    async def chat() -> int:
        if kind == "sync":
            some = [sync_noop] * count
            return await sync_chat(script, tools, *(([], some) if at_tool else (some, [])))
        more = [async_noop] * count
        return await async_chat(script, tools, *(([], more) if at_tool else (more, [])))

    return job(chat, LIMIT_CHATS, 2 + 2 * CALLS)


async def check(point: str, kind: str, dispatches: int) -> None:
    """Hooks that stand are run, each one at each dispatch."""
    ran = 0

    def count_sync(ctx: Any) -> None:
        nonlocal ran
        ran += 1

    async def count_async(ctx: Any) -> None:
        nonlocal ran
        ran += 1

    for count in COUNTS:
        ran = 0
        await agent_with(point, count_sync if kind == "sync" else count_async, count).chat("go")
        assert ran == dispatches * count, (point, kind, count, ran)


def rows(options: Options) -> Iterator[Row]:
    times = options.times(40)
    for point, dispatches in (("preToolCall", CALLS), ("preRequest", CALLS + 1)):
        for kind in ("sync", "async"):
            asyncio.run(check(point, kind, dispatches))
            # Limits and ours by turns of one each: limit 0, ours 0, limit 1, ours 1, …
            jobs = [make(point, kind, n) for n in COUNTS for make in (limit_job, our_job)]
            samples = asyncio.run(alternating(jobs, ROUNDS, times))
            limit = _costs(samples[0::2], ROUNDS * LIMIT_CHATS * dispatches)
            mine = _costs(samples[1::2], ROUNDS * dispatches)
            what = f"{kind} {point}"
            low, base, high = spread(mine[0])
            second = spread(_slope(mine, 1, 2))
            yield ours_row(
                NAME,
                f"{what}: the first hook",
                _slope(limit, 0, 1),
                _slope(mine, 0, 1),
                target=FIRST,
                note=f"a second {second[1]:.2f} ({second[0]:.2f}…{second[2]:.2f}) µs; an iteration "
                f"without hooks {base:.2f} ({low:.2f}…{high:.2f}) µs",
            )
            for few, many in ((1, 10), (10, 100)):
                yield ours_row(
                    NAME,
                    f"{what}: a further one, {few} → {many}",
                    _slope(limit, few, many),
                    _slope(mine, few, many),
                    target=FURTHER[kind],
                )


def _costs(samples: Sequence[Sequence[int]], dispatches: int) -> dict[int, list[float]]:
    return {count: micros(taken, dispatches) for count, taken in zip(COUNTS, samples, strict=True)}


def _slope(costs: dict[int, list[float]], few: int, many: int) -> list[float]:
    """What one more hook costs, within each repeat."""
    pairs = zip(costs[few], costs[many], strict=True)
    return [(more - less) / (many - few) for less, more in pairs]
