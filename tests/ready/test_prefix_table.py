"""Each ready-made hook keeps the start of requests in a loop of 40 tool steps."""

import inspect
import json
import tempfile
from itertools import pairwise
from pathlib import Path

import pytest

import hookline.hooks
from hookline import Agent, Limits
from hookline.providers.anthropic import AnthropicSettings
from hookline.providers.anthropic._request import request_body

from ._prefix_table import (
    HOOKS,
    SHORTENING,
    STEPS,
    is_summary,
    look,
    looking,
    measure,
    measure_all,
    with_table,
)

PAGE = Path(__file__).parents[2] / "docs" / "ready-made.md"


async def test_each_keeps_the_start_of_requests_and_short_requests_cost_less():
    rows = await measure_all()
    whole = rows["nothing"].cost
    for name, row in rows.items():
        assert row.share >= 0.85, name
        assert row.cost + row.own <= whole * (0.75 if name in SHORTENING else 1.01), name
    assert with_table(PAGE.read_text(), rows) == PAGE.read_text()


async def test_a_window_that_slides_would_not_pass():
    row = await measure(hookline.hooks.window(20, keep=20))
    assert row.share < 0.5


def marked_starts(body):
    """The starts of a request that the provider writes to its cache, or looks for there."""
    starts, text = [], json.dumps(body["tools"]) + json.dumps(body["system"])
    for message in body["messages"]:
        marks = [part.pop("cache_control", None) for part in message["content"]]
        text += json.dumps(message)
        if any(marks):
            starts.append(text)
    return starts


@pytest.mark.parametrize("name", SHORTENING)
async def test_the_marks_of_a_provider_find_what_the_request_before_has_cached(name):
    model = looking()
    with tempfile.TemporaryDirectory() as folder:
        agent = Agent(
            model,
            tools=[look],
            system="Be brief.",
            hooks=HOOKS[name](Path(folder)),
            limits=Limits(steps=STEPS + 5),
        )
        await agent.chat("Look around.")
    settings = AnthropicSettings(cache=True)
    starts = [marked_starts(request_body("m", each, settings)) for each in model.requests]
    hits = [bool({*before} & {*after}) for before, after in pairwise(starts)]
    assert sum(hits) >= 0.85 * STEPS
    summaries = [n for n, request in enumerate(model.requests) if is_summary(request)]
    assert bool(summaries) == (name == "summarize")
    for n in summaries:  # they end earlier than the request before, but like one before that
        cached = {start for before in starts[:n] for start in before}
        assert max(map(len, cached & {*starts[n]})) > 0.8 * max(map(len, starts[n]))


def test_every_ready_made_hook_is_measured():
    functions = {
        name for name, value in vars(hookline.hooks).items() if inspect.isfunction(value)
    } - {"read_reviews", "request_key", "rough_tokens", "runs_command", "tool_digest"}
    assert functions <= set(HOOKS)
