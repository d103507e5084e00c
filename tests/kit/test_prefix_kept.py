"""`assert_prefix_kept`: an agent whose hooks move the start of requests does not pass."""

from itertools import count

import pytest

from hookline import Agent, tool
from hookline.errors import UsageError
from hookline.hooks import allow_tools, approve, budget, summarize, window
from hookline.testing import ScriptedModel, assert_prefix_kept, call


@tool
async def pay(euros: int) -> str:
    """Pay."""
    raise AssertionError("the check must not run the agent's tools")


def agent_with(*hooks, **options):
    model = ScriptedModel(call("pay", euros=1))  # never asked
    return Agent(model, tools=[pay], hooks=hooks, **{"system": "Be kind.", **options})


async def test_an_agent_whose_hooks_only_add_passes_without_a_call_of_its_model_or_tools():
    model = ScriptedModel(call("pay", euros=1))
    await assert_prefix_kept(Agent(model, tools=[pay], hooks=[budget(steps=99), approve()]))
    assert model.calls == 0


async def test_a_window_that_slides_is_named():
    with pytest.raises(AssertionError, match=r"request 4\d: .*messages\[1\], moved by window") as e:
        await assert_prefix_kept(agent_with(window(20, keep=20)), steps=45)
    assert "a prompt cache cannot reuse the rest" in str(e.value)


@pytest.mark.parametrize(
    "make",
    [lambda: window(40), lambda: window(tokens=8000), lambda: summarize(8000)],
    ids=["messages", "tokens", "summaries"],
)
async def test_windows_and_summaries_pass(make):
    await assert_prefix_kept(agent_with(make()))


async def test_a_system_text_that_moves_is_no_hooks_fault():
    numbers = count()
    with pytest.raises(AssertionError, match="difference is system, moved by no hook"):
        await assert_prefix_kept(agent_with(system=lambda run: f"It is {next(numbers)}."))


async def test_a_chat_that_a_hook_ends_at_once_proves_nothing():
    with pytest.raises(AssertionError, match="ended after one request"):
        await assert_prefix_kept(agent_with(budget(steps=1)))
    with pytest.raises(UsageError, match="steps=1"):
        await assert_prefix_kept(agent_with(), steps=1)


async def test_a_guard_that_refuses_the_calls_of_the_check_does_not_hide_a_move():
    with pytest.raises(AssertionError, match="moved by window"):
        await assert_prefix_kept(agent_with(allow_tools("pay"), window(8, keep=8)))
