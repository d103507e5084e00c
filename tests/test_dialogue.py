"""`Dialogue`: two agents that talk to each other, each with the other's words as the user's."""

import asyncio

import pytest

from hookline import Agent, Conversation, MemoryStore, Stop, check_history
from hookline._conversations.conversation import state_of
from hookline.dialogue import Dialogue
from hookline.errors import ConversationBusyError, ModelError, StoreError, UsageError
from hookline.events import ChatDone, ChatStarted, TextDelta
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


async def test_a_turn_with_nothing_to_answer_is_not_used_up():
    a, b = pair()
    dialogue = Dialogue(a, b, turns=2)
    with pytest.raises(UsageError, match="side 'a' has nothing to answer"):
        await anext(dialogue)
    dialogue.send("Talk.")
    assert speakers(await read(dialogue)) == ["a", "b"]


# ── unlucky moments ─────────────────────────────────────────────────────────────────────────


class Troubled(MemoryStore):
    """A store that fails once, or waits, when it is told to."""

    def __init__(self):
        super().__init__()
        self.fails = False
        self.waits = asyncio.Event()
        self.goes_on = asyncio.Event()
        self.goes_on.set()

    async def append(self, conversation_id, change):
        self.waits.set()
        await self.goes_on.wait()
        if self.fails:
            self.fails = False
            raise StoreError("the disk is full")
        return await super().append(conversation_id, change)


def words(conversation):
    return [message.text for message in conversation.messages]


async def test_texts_that_the_store_did_not_take_are_in_the_next_turn():
    store = Troubled()
    dialogue = Dialogue(*pair(), conversation=await Conversation.open(store, "talk"), turns=1)
    dialogue.send("One.")
    dialogue.send("Two.")
    store.fails = True
    with pytest.raises(StoreError, match="full"):
        await read(dialogue)
    await read(dialogue)
    assert words(dialogue.conversation) == ["One.", "Two.", "a1"]
    assert words(await Conversation.open(store, "talk")) == ["One.", "Two.", "a1"]


async def test_a_text_for_a_busy_conversation_is_in_the_next_turn():
    talk = Conversation()
    dialogue = Dialogue(*pair(), conversation=talk, turns=1)
    dialogue.send("Talk.")
    state_of(talk).acquire("another chat")
    with pytest.raises(ConversationBusyError):
        await read(dialogue)
    state_of(talk).release("another chat")
    await read(dialogue)
    assert words(talk) == ["Talk.", "a1"]


@pytest.mark.parametrize("end", ["stop", "aclose"])
async def test_no_turn_begins_after_an_end_while_a_text_is_stored(end):
    store = Troubled()
    dialogue = Dialogue(*pair(), conversation=await Conversation.open(store, "talk"))
    dialogue.send("Talk.")
    store.goes_on.clear()
    reader = asyncio.create_task(read(dialogue))
    await store.waits.wait()
    ended = getattr(dialogue, end)()
    if ended is not None:
        await ended
    store.goes_on.set()
    assert await reader == []


async def test_a_dialogue_that_another_task_closes_ends_for_its_reader():
    dialogue = Dialogue(*pair(a=(Turn(text="a" * 500, chunk=1),)))
    dialogue.send("Talk.")
    speaks = asyncio.Event()
    events = []

    async def reader():
        async for event in dialogue:
            events.append(event)
            if isinstance(event, TextDelta):
                speaks.set()

    reading = asyncio.create_task(reader())
    await speaks.wait()
    await dialogue.aclose()
    await reading
    assert speakers(events) == ["a"]
    assert not dialogue.conversation.busy


async def test_it_goes_on_after_old_messages_were_removed():
    a, b = pair()
    first = Dialogue(a, b, turns=5)
    first.send("Talk.")
    await read(first)
    talk = first.conversation
    talk.restore(talk.messages[2:])
    await read(Dialogue(a, b, conversation=talk, turns=1))
    assert words(talk) == ["b1", "a2", "b2", "a3", "b3"]
    check_history(talk.messages)
