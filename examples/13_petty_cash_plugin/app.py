"""A plugin: a package of hooks, found by its entry point after installation.

Needs `pip install ./13_petty_cash_plugin`. The package and its tests are next to this file.
"""

import asyncio

from hookline import Agent
from hookline.discovery import from_entry_points
from hookline.testing import ScriptedModel, call


async def pay(to: str, euros: int) -> str:
    """Send money."""
    return f"{euros} euros sent to {to}"


async def main() -> None:
    # Required: without it there is an error here, and no agent that pays whatever it is asked.
    found = from_entry_points(required=["petty_cash"])
    model = ScriptedModel(
        [call("pay", to="Ada", euros=20), call("pay", to="Bob", euros=900)],
        "Ada has her money. Bob's is too much for the petty cash.",
    )
    agent = Agent(model, tools=[pay], hooks=found.hooks)
    for hook in agent.hooks():
        print(f"{hook.point}: {hook.id}, from {hook.origin}")
    print((await agent.chat("Pay Ada 20 and Bob 900.")).text)


asyncio.run(main())
