"""Durable chats that other code continues: hooks come and go, wherever a life was cut.

The record of a whole chat is cut after each of its lines. Code that has one passive hook more, or
one less, goes on from there: to the end, or until it dies, too, and the first code goes on again.
"""

from __future__ import annotations

from typing import Any

import pytest
from tests.base.test_journal import World, live, once, same

from hookline import Agent, Ask
from hookline._hooks.points import TABLE
from hookline.runtimes import Halted

OUTSIDE = {"onScopeRegister", "onScopeUnregister", "preMessageUpdate", "onMessageUpdate"}
POINTS = [name for name in TABLE if name not in OUTSIDE]


class Bare(World):
    """A chat whose agent has one passive hook at each of these points, and no other hooks.

    If it asks, there is the hook that asks, too.
    """

    points = ()

    def __init__(self, *points: str, asks: bool) -> None:
        super().__init__(stored=False)
        self.points = points
        self.asks = asks

    def agent(self, **more: Any) -> Agent[Any]:
        made = self.bare(**more)
        if self.asks:
            made.add_hook(
                "preToolCall", lambda ctx: Ask("Refund?") if ctx.call.name == "refund" else None
            )
        for point in self.points:
            add(made, point)
        return made


def add(agent: Any, point: str) -> None:
    """Add a hook that changes nothing."""

    async def passes(ctx: Any, proceed: Any) -> Any:
        return await proceed()

    agent.add_hook(point, passes if point.startswith("around") else lambda ctx: None)


def calls_that_ran(world: World) -> set[str]:
    return {what for what in world.ran if what.partition(" ")[0] in ("lookup", "charge", "refund")}


async def goes_on(world: Bare, reference: Any, where: Any) -> None:
    """The chat comes to its end, with what had happened before."""
    ended = {line.key for line in world.lines if line.kind == "end"}
    before = len(world.ran)
    life = await live(world)
    assert life.error is None, (where, life.error)
    same(life, reference)
    once(world)
    again = world.ran[before:]
    for call, turn, what in (
        ("a", 0, "lookup a"), ("b", 0, "charge b"), ("c", 0, "refund c"), ("d", 1, "lookup d")
    ):  # fmt: skip
        assert f"step/{turn}/call/{call}/run" not in ended or what not in again, where
    for turn in range(3):
        assert f"step/{turn}/model" not in ended or f"model {turn}" not in again, where


@pytest.mark.parametrize("asks", [True, False], ids=["asks", "asks nothing"])
@pytest.mark.parametrize("comes", [True, False], ids=["comes", "goes"])
@pytest.mark.parametrize("point", [*POINTS, "all"])
async def test_a_hook_that_comes_or_goes_between_two_lives_stops_no_chat_and_may_return(
    point: str, comes: bool, asks: bool
) -> None:
    some = POINTS if point == "all" else (point,)
    old, new = ((), some) if comes else (some, ())
    first = Bare(*old, asks=asks)
    reference = await live(first)
    assert reference.error is None
    for cut, line in enumerate(first.lines, 1):
        if line.kind == "begin" and not line.key.endswith(("model", "run")):
            continue  # this line is only written together with the next one
        for more in (None, 3):
            world = Bare(*new, asks=asks)
            world.lines[:] = first.lines[:cut]
            if more is None:
                await goes_on(world, reference, cut)
            else:
                died = await live(world, cut + more)
                assert died.error is None or isinstance(died.error, Halted), (cut, more, died.error)
            world.points = old  # rolled back, also if the chat is over
            await goes_on(world, reference, (cut, more))
