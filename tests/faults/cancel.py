"""cancel: a streamed chat with three tools is ended at every checkpoint, in every way there is.

A checkpoint lies between two callbacks of the event loop. The chat has hooks at every point, a
conversation, an approval, and tracing on. When all is done and time is left, chats are ended twice:
in two ways drawn by lot, some callbacks apart.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from random import Random

from tests._checkpoints import WAYS, Act, CountingLoop, Scene, once

from hookline.errors import ChatAbortedError, StreamInterruptedError

from .figures import Budget, Figure, Findings, tries
from .invariants import ALL, Spans, listening, look

NAME = "cancel"
TITLE = "a streamed chat with three tools, ended at every checkpoint"
WEIGHT = 15

FIRST = "the reader is cancelled"  # the sweep that is made however little time there is
RAISED = "readers told something else"
SAID = "complaints in the log"
CUT = (asyncio.CancelledError, ChatAbortedError, StreamInterruptedError)


class Sweep:
    """Chats on one loop, and what was found."""

    def __init__(self, loop: CountingLoop, said: list[str]) -> None:
        self.loop = loop
        self.said = said
        self.spans = Spans()
        self.findings = Findings(*ALL, RAISED, SAID)
        self.chats = 0
        self.points = 0

    def scene(self) -> Scene:
        return Scene(telemetry=self.spans.telemetry)

    async def one(self, way: str, at: int) -> bool:
        """The chat, ended at this checkpoint; False where it has fewer."""
        form, act, errors = WAYS[way]
        scene, happened = await once(form, act, at, self.scene)
        await self._judge(scene, errors if happened else (), f"{way}, checkpoint {at}")
        return happened

    async def twice(self, chance: Random) -> None:
        """One that is ended in two ways, at two places drawn by lot."""
        names = [name for name, (form, _, _) in WAYS.items() if form == "by_stream"]
        first, then = chance.choice(names), chance.choice(names)
        at, gap = chance.randrange(110), chance.randrange(12)
        one, other = WAYS[first][1], WAYS[then][1]
        scene, _ = await once("by_stream", self._both(one, other, gap), at, self.scene)
        await self._judge(scene, CUT, f"{first} at {at}, {then} {gap} later")

    def _both(self, first: Act, then: Act, gap: int) -> Act:
        def act(scene: Scene, consumer: asyncio.Task[None]) -> None:
            first(scene, consumer)
            late = lambda: None if consumer.done() else then(scene, consumer)  # noqa: E731
            self.loop.arm(gap, late)

        return act

    async def _judge(
        self, scene: Scene, errors: tuple[type[BaseException], ...], where: str
    ) -> None:
        self.chats += 1
        self.findings.take(await look(scene, self.spans), where)
        told = scene.error is None or isinstance(scene.error, errors)
        self.findings.note(RAISED, 0 if told else 1, f"{where}: {scene.error!r}")
        said = [*self.said, *self.loop.said]
        self.findings.note(SAID, len(said), f"{where}: {said[0] if said else ''}")
        self.said.clear()
        self.loop.said.clear()


async def _sweep(sweep: Sweep, budget: Budget) -> tuple[int, int]:
    """How many ways were swept, and how many chats were ended twice."""
    ways = [FIRST, *(way for way in WAYS if way != FIRST)]
    begun = budget.left
    for number, way in enumerate(ways):
        if number and budget.left < 1.5 * (begun - budget.left) / number:
            return number, 0
        at = 0
        while await sweep.one(way, at):
            at += 1
            budget.tell(f"{way}, checkpoint {at}")
        sweep.points += at
    twice = 0
    while budget.left > 0:
        await sweep.twice(budget.chance)
        twice += 1
        if twice % 50 == 0:
            budget.tell(f"{twice} ended twice")
    return len(ways), twice


def figures(budget: Budget) -> Iterator[Figure]:
    with asyncio.Runner(loop_factory=CountingLoop) as runner, listening() as said:
        loop = runner.get_loop()
        assert isinstance(loop, CountingLoop)
        sweep = Sweep(loop, said)
        ways, twice = runner.run(_sweep(sweep, budget))
    note = f"in {ways} of {len(WAYS)} ways"
    yield tries(NAME, "chats ended, once each at every checkpoint", sweep.points, 90, note)
    if twice:
        yield tries(NAME, "chats ended twice, at two places by lot", twice)
    yield from sweep.findings.figures(NAME)
    # Without these, that none is left open would mean nothing.
    yield tries(NAME, "spans that ended", sweep.spans.ended, sweep.points)
