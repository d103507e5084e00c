"""The plugin's own tests: its hooks are given to an agent, nothing has to be installed."""

import asyncio

import pytest
from hookline_petty_cash import hooks

from hookline import Agent
from hookline.testing import ScriptedModel, call


async def pay(to: str, euros: int) -> str:
    """Send money."""
    return "paid"


@pytest.mark.parametrize(
    ("euros", "outcome"),
    [(10, "ok"), (11, "denied"), ("a lot", "denied")],
    ids=["the limit", "more", "no sum"],
)
def test_the_petty_cash_pays_up_to_its_limit(euros: object, outcome: str) -> None:
    model = ScriptedModel(call("pay", to="Ada", euros=euros), "Done.")
    agent = Agent(model, tools=[pay], hooks=[hooks(limit=10)])
    with model:
        response = asyncio.run(agent.chat("Pay Ada."))
    (told,) = [message for message in response.messages if message.role == "tool"]
    assert told.outcome == outcome
