"""The trial of the relay between real processes, small: its counts, and no times."""

from __future__ import annotations

import sys

import pytest
from tests.web import relay_trial
from tests.web._redis import need_redis

pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(180),
    pytest.mark.skipif(sys.platform != "linux", reason="reads /proc"),
]


async def test_answers_are_resumed_elsewhere_at_random_places() -> None:
    need_redis()
    found = await relay_trial.resumes(12)
    assert found["wrong"] == 0
    assert found["whole text the same"] is True


async def test_many_streams_are_shown_over_three_connections() -> None:
    need_redis()
    found = await relay_trial.streams(60, deltas=20, pause=0.2)
    assert (found["gaps"], found["wrong texts"]) == (0, 0)
    assert found["events"] == 60 * 27
    assert found["connections to Redis"] <= 3


async def test_killed_workers_leave_no_wrong_text() -> None:
    need_redis()
    found = await relay_trial.kills(2)
    assert found["chats"] == found["whole"] + found["cut, and reloaded"] == 10
    assert (found["wrong texts"], found["did not go on"]) == (0, 0)
