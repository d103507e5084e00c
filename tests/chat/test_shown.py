"""How things show themselves in a debugger or a log: by name and number, never by content."""

import asyncio
from typing import Any

from hookline import Agent, Conversation, HookBus, Run, Scope, define_hook, tool
from hookline.events import TextDelta
from hookline.testing import ScriptedModel, call

SECRET = "S3CRET"


@tool
async def look(q: str) -> str:
    """Look it up."""
    return q


def noted(ctx: Any) -> None:
    """A hook."""


async def test_what_is_kept_shows_its_name_and_no_content() -> None:
    seen: list[Any] = []
    conversation = Conversation(id="c1")
    agent: Any = Agent(
        ScriptedModel([SECRET, call("look", q=SECRET)], SECRET),
        name="clerk",
        system=SECRET,
        tools=[look],
        scopes=[Scope("page", context=lambda: SECRET), Scope("books", tools=[])],
    )
    agent.add_hook("onStep", lambda ctx: seen.append((repr(ctx.run), repr(ctx.run.history))))
    stream = agent.chat_stream(SECRET, conversation=conversation)
    subscription = agent.subscribe(TextDelta)
    shown = [repr(stream), repr(agent), repr(subscription), repr(look), *map(repr, agent.scopes)]
    async with stream:
        shown.append(repr(stream))
        events = [event async for event in stream]
    assert events
    shown += [repr(stream), repr(conversation), repr(agent.bus), *seen[0]]
    shown.append(repr(define_hook("onStep", noted, id="noted")))
    assert SECRET not in " ".join(shown)
    id = stream.chat_id
    assert shown == [
        f"<ChatStream of chat {id!r}, not begun>",
        "<Agent 'clerk'>",
        "<Subscription open, 0/1024 held, 0 dropped>",
        "<Tool 'look'>",
        "<Scope 'agent': look>",
        "<Scope 'page': no tools>",
        "<Scope 'books': no tools>",
        f"<ChatStream of chat {id!r}, running>",
        f"<ChatStream of chat {id!r}, ended>",
        "<Conversation 'c1': 4 messages>",
        "<HookBus with 1 hooks>",
        f"<Run of chat {id!r} of agent 'clerk', step 0>",
        "<History of 3 messages>",
        "<HookDef 'noted' at onStep>",
    ]


async def test_an_ended_run_still_shows_itself() -> None:
    runs: list[Run[Any]] = []
    agent: Any = Agent(ScriptedModel("hello"))
    agent.add_hook("onChatEnd", lambda ctx: runs.append(ctx.run))
    response = await agent.chat("hi")
    assert repr(runs[0]) == f"<Run of chat {response.chat_id!r} of agent 'agent', step 0>"


def test_a_bus_counts_its_hooks() -> None:
    bus: HookBus[Any] = HookBus()
    dispose = bus.add_hook("onStep", noted)
    bus.add_hook("onMessage", noted)
    assert repr(bus) == "<HookBus with 2 hooks>"
    dispose()
    assert repr(bus) == "<HookBus with 1 hooks>"


async def test_a_tool_is_still_the_function_that_it_was_made_of() -> None:
    assert await look("x") == "x"
    assert await asyncio.gather(look(q="a"), look(q="b")) == ["a", "b"]
