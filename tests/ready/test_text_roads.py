"""docs/security.md lists each road on which a text passes `redact` or a guardrail, and why."""

from __future__ import annotations

import pytest
from tests._text_chats import SECRET, tells
from tests._text_roads import NO_ANSWER, PAGE, ROADS, page, places

from hookline import Agent, define_hook
from hookline.models import TextChunk
from hookline.testing import ScriptedModel, call


def test_there_are_many_roads() -> None:
    assert len(ROADS) >= 60


@pytest.mark.parametrize("guard", ["redact", "guardrail"])
@pytest.mark.parametrize("road", ROADS)
async def test_a_road_is_covered_or_its_reason_is_listed(road: str, guard: str) -> None:
    reason = getattr(ROADS[road], guard)
    if reason is not NO_ANSWER:
        found = await places(ROADS[road], guard)
        assert bool(found) == (reason is not None), (found, reason)


@pytest.mark.parametrize("road", ROADS)
async def test_without_a_guard_the_secret_gets_through_on_each_road(road: str) -> None:
    assert await places(ROADS[road], "nothing")


def test_the_table_in_the_docs_is_fresh() -> None:
    assert page() == PAGE.read_text(encoding="utf-8"), "run scripts/dev/text-matrix"


async def test_an_own_hook_at_onDelta_changes_no_result_of_a_tool() -> None:
    rewrite = define_hook(
        "onDelta",
        lambda ctx: (
            ctx.delta.replace(text="***")
            if isinstance(ctx.delta, TextChunk) and SECRET in ctx.delta.text
            else None
        ),
    )
    agent = Agent(ScriptedModel(SECRET), hooks=[rewrite])
    assert (await agent.chat("Hi.")).text == "***"
    agent = Agent(ScriptedModel(call("tells"), "Done."), tools=[tells], hooks=[rewrite])
    assert SECRET in (await agent.chat("Hi.")).tool_results[0].text
