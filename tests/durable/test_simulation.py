"""A thousand durable chats on twenty workers that die, are cut off and come back."""

from __future__ import annotations

import pytest
from tests.durable._simulation import LAST, World, loop_with_a_clock

from hookline import check_history


def simulate(seed: int, chats: int, workers: int) -> World:
    loop = loop_with_a_clock()
    try:
        world = World(seed, chats, workers)
        loop.run_until_complete(world.run())
        loop.run_until_complete(look_at(world))
        return world
    finally:
        loop.close()


async def look_at(world: World) -> None:
    """Each chat came to its end once, and nothing ran twice that may not."""
    for job in world.jobs.values():
        assert job.text == LAST
        assert job.finished == 1
        stored = await world.store.load(f"talk-{job.id}")
        assert stored is not None
        assert stored.owner is None
        assert stored.pending is None
        check_history(stored.messages)
        roles = [message.role for message in stored.messages]
        assert roles == ["user", "assistant", "tool", "tool", "tool", "assistant"]
        for call in ("b", "c"):
            assert world.began[job.id, f"step/0/call/{call}/run"] <= 1
        for message in stored.messages:
            if message.role == "tool" and message.call_id != "a":
                right = message.text == f"{message.name} {message.call_id}"
                assert right or "may have run" in message.text
    counts = world.network.counts
    assert world.repeated == 0
    assert counts["busy"] == 0
    for what in ("requests lost", "answers lost", "requests reordered", "appends refused"):
        assert counts[what] > 0, what
    assert counts["lives"] > len(world.jobs)


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_a_thousand_chats_on_twenty_workers_that_die_and_are_cut_off_all_end_right() -> None:
    world = simulate(seed=1, chats=1000, workers=20)
    print(dict(world.network.counts))
    assert world.network.counts["deaths"] > 10
    assert world.network.counts["partitions"] > 10


def test_the_same_seed_is_the_same_world() -> None:
    first, second = (simulate(seed=7, chats=40, workers=4) for _ in range(2))
    assert first.network.counts == second.network.counts
    assert first.began == second.began
