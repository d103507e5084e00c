"""soak: chats for as long as there is time, of which one in twenty goes wrong in some way.

A model, a tool or a hook raises, the run or the stream is aborted, the task is cancelled, the
reader is slow or breaks off: drawn by lot. The memory of the process is looked at again and again;
after the first fifth of the chats its growth is the slope of a line through what was seen. It runs
in a process of its own.
"""

from __future__ import annotations

import asyncio
import gc
import json
import sys
import time
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from random import Random
from statistics import linear_regression
from typing import Any
from weakref import WeakSet

from tests._checkpoints import left_running

from hookline import Agent, Conversation, ModelRequest, Run, UserMessage, tool
from hookline._chat.state import Chat
from hookline.errors import ChatAbortedError
from hookline.events import TextDelta
from hookline.models import Chunk, Finish, TextChunk, ToolCallChunk

from .figures import Budget, Figure, tries
from .invariants import ORPHANS, orphans
from .process import KIB, apart, resident

NAME = "soak"
TITLE = "many chats, 5 % of which go wrong"
WEIGHT = 18

FAULTS = 0.05
AT_ONCE = 20
LOOKS = 100  # at most, so that what was seen stays small itself
GROWTH = 32.0  # KiB per 1,000 chats
JUDGED = 3_000  # chats after the warm-up that it takes to tell growth from noise
TASKS = "tasks left"
CHATS = "chats that are still alive"
ENDINGS = "chats that ended otherwise than they had to"


class Fault(Exception):
    """What a model, a tool or a hook raises."""


# What may come out of a chat that is treated so.
KINDS: dict[str, tuple[type[BaseException], ...]] = {
    "fine": (),
    "model raises": (Fault,),
    "tool raises": (),  # the model is told
    "hook raises": (Fault,),
    "run aborted": (ChatAbortedError,),
    "stream aborted": (),
    "cancelled": (asyncio.CancelledError,),
    "slow reader": (),
    "breaks off": (),
}
WRONG = [kind for kind in KINDS if kind != "fine"]


@tool
async def look(run: Run[str]) -> str:
    """Look it up."""
    await asyncio.sleep(0)
    if run.deps == "tool raises":
        raise Fault("the tool's")
    return "sunny"


class Model:
    """Asks for the tool, then answers; keeps nothing."""

    name = "soak"

    async def stream(self, request: ModelRequest, /) -> AsyncIterator[Chunk]:
        last = request.messages[-1]
        if isinstance(last, UserMessage):
            yield TextChunk("Let me see. ")
            yield ToolCallChunk(index=0, id="c", name="look", arguments="{}")
            yield Finish(finish_reason="tool_calls")
            return
        for word in ("It ", "is ", "sunny."):
            yield TextChunk(word)
            await asyncio.sleep(0)
            if any(m.text == "model raises" for m in request.messages if m.role == "user"):
                raise Fault("the model's")
        yield Finish()


def agent() -> Agent[Any]:
    made: Agent[Any] = Agent(Model(), tools=[look])

    def on_step(ctx: Any) -> None:
        if ctx.run.deps == "hook raises":
            raise Fault("the hook's")
        if ctx.run.deps == "run aborted":
            ctx.run.abort("drawn by lot")

    made.add_hook("onStep", on_step)
    return made


async def chat(of: Agent[Any], kind: str, chance: Random, talk: Conversation) -> None:
    """One chat that is treated so."""
    stop_at = chance.randrange(1, 10)
    seen = 0
    async with of.chat_stream(kind, deps=kind, conversation=talk) as stream:
        async for event in stream:
            seen += 1
            if kind == "slow reader":
                for _ in range(5):
                    await asyncio.sleep(0)
            if seen == stop_at and kind == "stream aborted":
                stream.abort("drawn by lot")
            if seen == stop_at and kind == "breaks off":
                break
            if kind == "cancelled" and isinstance(event, TextDelta):
                task = asyncio.current_task()
                assert task is not None
                task.cancel()


@dataclass
class Soak:
    """What has happened so far."""

    agent: Agent[Any]
    chance: Random
    tally: Counter[str]
    otherwise: list[str]
    orphaned: int = 0

    async def one(self) -> None:
        """One chat, drawn by lot; whatever comes of it is compared with what may."""
        chance = self.chance
        kind = chance.choice(WRONG) if chance.random() < FAULTS else "fine"
        talk = Conversation()
        task = asyncio.ensure_future(chat(self.agent, kind, chance, talk))
        await asyncio.wait([task])
        self.tally[kind] += 1
        self.orphaned += orphans(talk.messages)
        error = asyncio.CancelledError() if task.cancelled() else task.exception()
        if KINDS[kind] != () and error is None:
            self.otherwise.append(f"{kind}: it was done")
        elif error is not None and not isinstance(error, KINDS[kind]):
            self.otherwise.append(f"{kind}: {error!r}")


def chats() -> list[Chat]:
    """All that are alive in this process, by whomever."""
    return [each for each in gc.get_objects() if type(each) is Chat]


async def measured(seconds: float, seed: int) -> dict[str, Any]:
    """Chats for so many seconds, some at once; the memory that was seen, and what is left."""
    soak = Soak(agent(), Random(seed), Counter(), [])
    before = WeakSet(chats())
    seen: list[tuple[int, int]] = []
    until = time.monotonic() + seconds
    next_look = 0.0
    while time.monotonic() < until:
        for _ in range(5):
            await asyncio.gather(*(soak.one() for _ in range(AT_ONCE)))
        if time.monotonic() >= next_look:
            gc.collect()
            seen.append((soak.tally.total(), resident()))
            next_look = time.monotonic() + seconds / LOOKS
    left = await left_running()
    gc.collect()
    alive = sum(each not in before for each in chats())
    return {
        "tally": dict(soak.tally),
        "seen": seen,
        TASKS: len(left),
        CHATS: alive,
        ENDINGS: len(soak.otherwise),
        "first": soak.otherwise[:1],
        ORPHANS: soak.orphaned,
    }


def growth(seen: list[tuple[int, int]]) -> tuple[float, int]:
    """KiB per 1,000 chats after the first fifth of them, and how many chats that is about."""
    warm = seen[-1][0] / 5
    after = [(chats, memory) for chats, memory in seen if chats >= warm]
    if len(after) < 3:
        return 0.0, 0
    slope = linear_regression(*zip(*after, strict=True)).slope
    return slope * 1000 / KIB, after[-1][0] - after[0][0]


def figures(budget: Budget) -> Iterator[Figure]:
    seconds = max(1.0, budget.seconds - 2)
    budget.tell(f"{seconds:.0f} s")
    found = apart(NAME, seconds, budget.seed)
    tally = Counter[str](found["tally"])
    wrong = {kind: tally[kind] for kind in WRONG}
    told = ", ".join(f"{kind} {count:,}" for kind, count in wrong.items())
    yield tries(NAME, "chats", tally.total(), 100)
    yield tries(NAME, "of them treated badly", sum(wrong.values()), 1, told)
    slope, chats = growth([(int(n), int(size)) for n, size in found["seen"]])
    judged = GROWTH if chats >= JUDGED else None
    note = f"by {len(found['seen'])} looks; judged from {JUDGED:,} chats on, here {chats:,}"
    what = "growth of the memory by 1,000 chats, once warm"
    yield Figure(NAME, what, slope, "KiB", judged, note=note)
    note = "first: " + found["first"][0] if found["first"] else ""
    yield Figure(NAME, ENDINGS, found[ENDINGS], most=0, note=note)
    for name in (TASKS, CHATS, ORPHANS):
        yield Figure(NAME, name, found[name], most=0)


if __name__ == "__main__":
    print(json.dumps(asyncio.run(measured(float(sys.argv[1]), int(sys.argv[2])))))
