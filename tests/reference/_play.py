"""Short words for the tests of README.md; a test is named by its row's number."""

from weakref import WeakKeyDictionary

from hookline import Agent, tool
from hookline.testing import ScriptedModel, call


class Boom(Exception):
    """What a hook or tool raises here."""


@tool
async def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


@tool
async def broken() -> str:
    raise Boom("broken")


def agent_of(*turns, **options):
    """An agent with a scripted model and the tools above."""
    model = ScriptedModel(*(turns or ["ok"] * 9))
    agent = Agent(model, **{"tools": [add, broken], **options})
    _models[agent] = model
    return agent


_models = WeakKeyDictionary()


def requests(agent):
    """What the model was sent."""
    return _models[agent].requests


def roles(messages):
    return [message.role for message in messages]


def results(holder):
    """(outcome, text) of each tool message."""
    return [(m.outcome, m.text) for m in holder.messages if m.role == "tool"]


def names(events):
    """The events' names, without those of messages."""
    return [type(each).__name__ for each in events if type(each).__name__ != "MessageAdded"]


def only(events, *kinds):
    return [each for each in events if isinstance(each, kinds)]


def void(*values):
    """For a lambda whose values are nobody's."""
    return


sums = call("add", a=1, b=2, call_id="c1")
