"""`Dialogue`: two agents that talk to each other, each with the other's words as the user's."""

import pytest

from hookline import Agent, Conversation, MemoryStore, Stop, check_history
from hookline.dialogue import Dialogue
from hookline.errors import ModelError, UsageError
from hookline.events import ChatDone, ChatStarted
from hookline.testing import ScriptedModel, Turn


def pair(a=("a1", "a2", "a3"), b=("b1", "b2", "b3")):
    return (
        Agent(ScriptedModel(*a), name="a", system="You are a."),
        Agent(ScriptedModel(*b), name="b", system="You are b."),
    )


def seen(agent):
    """The words of the agent's last request, and whose they are."""
    request = agent._config.model.requests[-1]
    return [(message.role, message.text) for message in request.messages]


async def read(dialogue):
    return [event async for event in dialogue]


def speakers(events):
    return [event.agent for event in events if isinstance(event, ChatStarted)]


async def test_each_sees_the_others_words_as_the_users_and_its_own_as_the_assistants():
    a, b = pair()
    dialogue = Dialogue(a, b, turns=4)
    dialogue.send("Talk.")
    events = await read(dialogue)
    assert speakers(events) == ["a", "b", "a", "b"]
    assert seen(a) == [("user", "Talk."), ("assistant", "a1"), ("user", "b1")]
    assert seen(b) == [("user", "Talk.\n\na1"), ("assistant", "b1"), ("user", "a2")]


async def test_what_is_stored_is_as_view_with_the_side_of_each_message():
    store = MemoryStore()
    talk = await Conversation.open(store, "talk")
    dialogue = Dialogue(*pair(), conversation=talk, turns=2)
    dialogue.send("Talk.")
    await read(dialogue)
    again = await Conversation.open(store, "talk")
    assert [(m.role, m.text) for m in again.messages] == [
        ("user", "Talk."),
        ("assistant", "a1"),
        ("user", "b1"),
    ]
    sides = again.meta["hookline.dialogue"]
    assert [sides.get(message.id) for message in again.messages] == ["user", None, "b"]
    check_history(again.messages)


async def test_it_goes_on_from_what_was_stored():
    a, b = pair()
    first = Dialogue(a, b, turns=2)
    first.send("Talk.")
    await read(first)
    talk = Conversation.from_json(first.conversation.to_json())
    await read(Dialogue(a, b, conversation=talk, turns=1))
    assert seen(a)[-1] == ("user", "b1")
    await read(Dialogue(a, b, conversation=talk, turns=1))
    assert seen(b)[-1] == ("user", "a2")


async def test_send_say_and_stop():
    a, b = pair()
    dialogue = Dialogue(a, b, turns=9)
    dialogue.send("Talk.")
    events = []
    async for event in dialogue:
        events.append(event)
        if isinstance(event, ChatDone) and len(speakers(events)) == 1:
            dialogue.say("a")
            dialogue.send("Go on.")
        elif isinstance(event, ChatDone):
            dialogue.stop()
    assert speakers(events) == ["a", "a"]
    assert seen(a)[-1] == ("user", "Go on.")


async def test_each_side_keeps_its_own_hooks():
    a, b = pair()
    heard = []
    for agent in (a, b):
        agent.add_hook("onResponse", lambda ctx, n=agent.name: heard.append((n, ctx.run.agent)))
    dialogue = Dialogue(a, b, turns=3)
    dialogue.send("Talk.")
    await read(dialogue)
    assert heard == [("a", "a"), ("b", "b"), ("a", "a")]


async def test_a_side_that_is_stopped_or_says_nothing_ends_it():
    a, b = pair(b=("",))
    dialogue = Dialogue(a, b)
    dialogue.send("Talk.")
    assert speakers(await read(dialogue)) == ["a", "b"]
    a, b = pair()
    a.add_hook("preRequest", lambda ctx: Stop("enough"))
    dialogue = Dialogue(a, b)
    dialogue.send("Talk.")
    assert speakers(await read(dialogue)) == ["a"]


async def test_what_a_side_raises_ends_it_and_nothing_is_lost():
    a, b = pair(b=(ModelError("broken"),))
    dialogue = Dialogue(a, b)
    dialogue.send("Talk.")
    with pytest.raises(ModelError, match="broken"):
        await read(dialogue)
    assert [message.text for message in dialogue.conversation.messages] == ["Talk.", "a1"]
    assert await read(dialogue) == []


async def test_leaving_it_early_stops_the_turn():
    a, b = pair(a=(Turn(text="a" * 500, chunk=1),))
    ended = []
    a.add_hook("onChatAbort", lambda ctx: ended.append(ctx.reason))
    async with Dialogue(a, b) as dialogue:
        dialogue.send("Talk.")
        async for _ in dialogue:
            break
    assert ended == ["consumer left"]
    assert not dialogue.conversation.busy


async def test_what_cannot_be_a_dialogue_is_refused():
    a, b = pair()
    with pytest.raises(UsageError, match="turns=0"):
        Dialogue(a, b, turns=0)
    with pytest.raises(UsageError, match="both sides"):
        Dialogue(a, a)
    with pytest.raises(UsageError, match="nothing to answer"):
        await read(Dialogue(a, b))
    with pytest.raises(UsageError, match="pass some text"):
        Dialogue(a, b).send(" ")
    with pytest.raises(UsageError, match="'c'"):
        Dialogue(a, b).say("c")
