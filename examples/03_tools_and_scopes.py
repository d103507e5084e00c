"""Tools are functions. A scope is a group of tools and context, added and removed together."""

import asyncio
from dataclasses import dataclass, field
from typing import Literal

from hookline import Agent, Conversation, Run, Scope, ToolMessage, tool
from hookline.testing import ScriptedModel, call


@dataclass
class Shop:
    stock: dict[str, int] = field(default_factory=lambda: {"pear": 3, "plum": 0})


async def buy(fruit: Literal["pear", "plum"], count: int, run: Run[Shop]) -> str:
    """Put fruit into the cart."""  # `run` is hookline's to give: the model does not see it
    if run.deps.stock[fruit] < count:
        raise ValueError("sold out")  # the model is told, and the chat goes on
    run.deps.stock[fruit] -= count
    return f"{count} {fruit}"


@tool(timeout=5, idempotent=True)
def opening_hours() -> dict[str, str]:  # not async: it runs in a thread
    """When the shop is open."""
    return {"monday": "closed", "tuesday": "9-18"}


def gift_wrap(colour: str = "red") -> str:
    """Wrap what is in the cart."""
    return f"wrapped in {colour}"


season = Scope("season", tools=[gift_wrap], context=lambda: "Gift wrapping is free this week.")
model = ScriptedModel(
    [call("buy", fruit="pear", count=2), call("buy", fruit="plum", count=1)],
    "Two pears are in your cart. The plums are sold out.",
    [call("gift_wrap"), call("opening_hours"), call("buy", fruit="fig")],
    "Wrapped in red. We have no figs. Come by on Tuesday.",
)
agent = Agent[Shop](model, system="You keep a shop.", tools=[buy, opening_hours])


async def main() -> None:
    shop, talk = Shop(), Conversation()  # an agent itself remembers nothing
    close = agent.scopes.register(season)
    for text in ("Two pears and a plum, please.", "Wrap it, and a fig."):
        response = await agent.chat(text, deps=shop, conversation=talk)
        print(f"user   {text}")
        for message in response.messages:
            if isinstance(message, ToolMessage):
                print(f"tool   {message.name}: {message.text}")
        print(f"agent  {response.text}\n")
    print(model.last_request.system)
    close()  # the tool and the context are gone
    print([scope.label for scope in agent.scopes])


asyncio.run(main())
