"""Every way to refuse a call that docs/tasks.md compares, as its table says it."""

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from hookline import Agent, Deny, Proceed, ToolCall, ToolFailure, ToolResult
from hookline.errors import HookReturnError, ToolDenied
from hookline.points import AroundToolCall, PreToolCall
from hookline.testing import ScriptedModel, call, record

PAGE = Path(__file__).parents[2] / "docs" / "tasks.md"
ROWS = [
    tuple(cell.strip() for cell in line.strip("|").split("|"))
    for line in PAGE.read_text("utf-8").partition("## Refuse a tool call")[2].splitlines()
    if re.match(r"\| (`preToolCall`|`aroundToolCall`|in the tool) \|", line)
]
Handed = Proceed[ToolCall, ToolResult | ToolFailure]


def returned(answer: Deny | ToolFailure) -> Callable[[Agent[Any]], object]:
    def hook(ctx: PreToolCall) -> Deny | ToolFailure:
        return answer

    return lambda agent: agent.add_hook("preToolCall", hook)


def wrapped(answer: ToolFailure | None) -> Callable[[Agent[Any]], object]:
    async def hook(ctx: AroundToolCall, proceed: Handed) -> ToolResult | ToolFailure:
        if answer is None:
            raise ToolDenied("why")
        return answer

    return lambda agent: agent.add_hook("aroundToolCall", hook)


WAYS: dict[tuple[str, str], tuple[Callable[[Agent[Any]], object] | None, Exception | None]] = {
    ("`preToolCall`", 'return `Deny("why")`'): (returned(Deny("why")), None),
    ("`preToolCall`", 'return `ToolFailure("why")`'): (returned(ToolFailure("why")), None),
    ("`aroundToolCall`", 'raise `ToolDenied("why")`'): (wrapped(None), None),
    ("`aroundToolCall`", 'return `ToolFailure("why")`'): (wrapped(ToolFailure("why")), None),
    ("in the tool", 'raise `ToolDenied("why")`'): (None, ToolDenied("why")),
    ("in the tool", "raise another exception"): (None, ValueError("why")),
}


def test_the_page_has_exactly_these_ways() -> None:
    assert [row[:2] for row in ROWS] == [*WAYS]


@pytest.mark.parametrize("row", ROWS, ids=" ".join)
async def test_each_way_ends_as_the_page_says(row: tuple[str, str, str, str]) -> None:
    register, raised = WAYS[row[:2]]
    begun: list[str] = []

    async def pay() -> str:
        """Pay."""
        begun.append("pay")
        if raised is not None:
            raise raised
        return "paid"

    agent = Agent(ScriptedModel(call("pay"), "I cannot."), tools=[pay])
    if register is not None:
        register(agent)
    with record(agent, points=["onToolCallError", "onChatEnd"]) as recorder:
        response = await agent.chat("Pay.")
    (result,) = response.tool_results
    assert f"`{result.outcome}`" == row[3]
    assert "why" in result.text
    assert recorder.points == ["onToolCallError", "onChatEnd"]
    assert bool(begun) == (row[2] == "has begun")


async def test_a_wrapper_may_not_return_deny() -> None:
    async def hook(ctx: AroundToolCall, proceed: Handed) -> Any:
        return Deny("why")

    async def pay() -> str:
        """Pay."""
        return "paid"

    agent = Agent(ScriptedModel(call("pay")), tools=[pay])
    agent.add_hook("aroundToolCall", hook)
    with pytest.raises(HookReturnError, match="ToolResult, ToolFailure"):
        await agent.chat("Pay.")
