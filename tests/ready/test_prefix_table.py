"""Each ready-made hook keeps the start of requests in a loop of 40 tool steps."""

import inspect
from pathlib import Path

import hookline.hooks

from ._prefix_table import HOOKS, SHORTENING, measure, measure_all, with_table

PAGE = Path(__file__).parents[2] / "docs" / "ready-made.md"


async def test_each_keeps_the_start_of_requests_and_short_requests_cost_less():
    rows = await measure_all()
    whole = rows["nothing"].cost
    for name, row in rows.items():
        assert row.share >= 0.85, name
        assert row.cost <= whole * (0.75 if name in SHORTENING else 1.01), name
    assert with_table(PAGE.read_text(), rows) == PAGE.read_text()


async def test_a_window_that_slides_would_not_pass():
    row = await measure(hookline.hooks.window(20, keep=20))
    assert row.share < 0.5


def test_every_ready_made_hook_is_measured():
    functions = {
        name for name, value in vars(hookline.hooks).items() if inspect.isfunction(value)
    } - {"read_reviews", "request_key", "rough_tokens", "runs_command", "tool_digest"}
    assert functions <= set(HOOKS)
