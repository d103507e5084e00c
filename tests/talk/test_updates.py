"""Messages that are changed afterwards: their hooks, what fits, and what stands there then."""

from __future__ import annotations

import asyncio
import uuid
from typing import Any

import pytest

from hookline import (
    Agent,
    AssistantMessage,
    Conversation,
    Image,
    MemoryStore,
    MessageChanges,
    Reasoning,
    Text,
    ToolCall,
    ToolMessage,
)
from hookline.errors import (
    ChatAbortedError,
    ConversationBusyError,
    ConversationConflictError,
    HookReturnError,
    UsageError,
)
from hookline.storage import Change
from hookline.testing import ScriptedModel, call


async def look(q: str = "") -> str:
    """Look it up."""
    return f"found {q}"


def agent_of(*turns: Any, **options: Any) -> Agent[Any]:
    return Agent(ScriptedModel(*turns), tools=[look], **options)


async def chatted(store: Any, agent: Agent[Any]) -> Conversation:
    """A conversation of four messages: user, a call, its result, an answer."""
    talk: Conversation = await store.open(f"talk-{uuid.uuid4().hex[:12]}")
    await agent.chat("hello", conversation=talk)
    return talk


TURNS = (["I look.", call("look", q="x")], "Done.", "Again.")


async def test_stored_and_live_message_are_the_same_afterwards(store: Any) -> None:
    agent = agent_of(*TURNS, store=store)
    talk = await chatted(store, agent)
    before, view = talk.messages, talk.history
    for place, text in ((0, "good day"), (1, "I search."), (2, "nothing"), (3, "Finished.")):
        message = before[place]
        new = await agent.update_message(talk, message.id, MessageChanges(text=text))
        assert new == message.replace(text=text)
        assert talk.messages[place] == new
        assert (await store.open(talk.id)).messages == talk.messages
    assert talk.messages[1].tool_calls == before[1].tool_calls  # type: ignore[union-attr]
    assert tuple(view) == before  # what was handed out before stays what it was
    await agent.chat("on", conversation=talk)
    model: Any = agent._config.model
    assert [m.text for m in model.last_request.messages] == [
        "good day", "I search.", "nothing", "Finished.", "on",
    ]  # fmt: skip


async def test_by_id_the_stored_message_is_changed(store: Any) -> None:
    agent = agent_of(*TURNS, store=store)
    talk = await chatted(store, agent)
    await agent.update_message(talk.id, talk.messages[0].id, MessageChanges(text="changed"))
    assert (await store.open(talk.id)).messages[0].text == "changed"
    assert talk.messages[0].text == "hello"  # it has not looked
    await agent.chat("on", conversation=talk)
    assert talk.messages[0].text == "changed"


async def test_hooks_change_what_is_changed_and_see_what_was(store: Any) -> None:
    agent = agent_of(*TURNS, store=store)
    talk = await chatted(store, agent)
    seen: list[Any] = []

    @agent.hook("preMessageUpdate")
    def upper(ctx: Any) -> MessageChanges:
        seen.append((ctx.message.text, ctx.changes.text, ctx.run.conversation_id, ctx.run.deps))
        return ctx.changes.replace(text=ctx.changes.text.upper())

    @agent.hook("onMessageUpdate")
    async def after(ctx: Any) -> None:
        stored = await store.load(talk.id)
        seen.append((ctx.message.text, ctx.changes.text, stored.messages[0].text))

    changes = MessageChanges(text="bye")
    new = await agent.update_message(talk, talk.messages[0].id, changes, deps="mine")
    assert new.text == "BYE"
    assert seen == [("hello", "bye", talk.id, "mine"), ("BYE", "BYE", "BYE")]


async def test_a_hook_that_throws_before_changes_nothing(store: Any) -> None:
    agent = agent_of(*TURNS, store=store)
    talk = await chatted(store, agent)
    boom = LookupError("no")

    def refuse(ctx: Any) -> None:
        raise boom

    remove = agent.add_hook("preMessageUpdate", refuse, name="guard")
    before = await store.load(talk.id)
    with pytest.raises(LookupError) as caught:
        await agent.update_message(talk, talk.messages[0].id, MessageChanges(text="x"))
    assert caught.value is boom
    assert "guard" in "".join(boom.__notes__)
    assert await store.load(talk.id) == before
    assert talk.messages[0].text == "hello"
    remove()
    agent.add_hook("preMessageUpdate", lambda ctx: "x", name="wrong")  # type: ignore[arg-type, return-value]
    with pytest.raises(HookReturnError, match="MessageChanges"):
        await agent.update_message(talk, talk.messages[0].id, MessageChanges(text="x"))
    assert await store.load(talk.id) == before
    await agent.chat("on", conversation=talk)  # it is free


async def test_a_hook_that_throws_afterwards_does_not_undo_it(store: Any) -> None:
    agent = agent_of(*TURNS, store=store)
    talk = await chatted(store, agent)

    def fail(ctx: Any) -> None:
        raise LookupError("late")

    agent.add_hook("onMessageUpdate", fail)
    with pytest.raises(LookupError):
        await agent.update_message(talk, talk.messages[0].id, MessageChanges(text="x"))
    assert talk.messages[0].text == "x"
    assert (await store.load(talk.id)).messages[0].text == "x"


async def test_parts_are_changed_where_they_fit() -> None:
    agent = agent_of(*TURNS)
    talk = Conversation()
    await agent.chat("hello", conversation=talk)
    user, asked, _, _ = talk.messages
    picture = Image(url="https://example.com/a.png")
    await agent.update_message(talk, user.id, MessageChanges(parts=(Text("see"), picture)))
    assert talk.messages[0].parts == (Text("see"), picture)  # type: ignore[union-attr]
    assert isinstance(asked, AssistantMessage)
    parts = (Reasoning("hm"), *asked.tool_calls)
    await agent.update_message(talk, asked.id, MessageChanges(parts=parts))
    assert talk.messages[1].parts == parts  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("place", "changes", "says"),
    [
        (0, MessageChanges(parts=(Reasoning("hm"),)), "Reasoning is not a part"),
        (1, MessageChanges(parts=(Image(url="u"),)), "Image is not a part"),
        (1, MessageChanges(parts=(Text("no call"),)), "calls of message"),
        (1, MessageChanges(parts=(ToolCall(id="other", name="look"),)), "calls of message"),
        (2, MessageChanges(parts=(Text("x"),)), "only text"),
        (3, MessageChanges(text=""), "leave message"),
        (3, MessageChanges(parts=()), "leave message"),
    ],
)
async def test_what_does_not_fit_the_message_is_refused(
    place: int, changes: MessageChanges, says: str
) -> None:
    agent = agent_of(*TURNS)
    talk = Conversation()
    await agent.chat("hello", conversation=talk)
    before = talk.messages
    with pytest.raises(UsageError, match=says):
        await agent.update_message(talk, before[place].id, changes)
    assert talk.messages == before


async def test_a_message_that_is_not_there_is_refused() -> None:
    agent = agent_of("ok")
    talk = Conversation([ToolMessage(call_id="c", name="n", text="t")][:0])
    await agent.chat("hello", conversation=talk)
    for id in ("none", ""):
        with pytest.raises(UsageError, match="no message"):
            await agent.update_message(talk, id, MessageChanges(text="x"))


async def test_no_message_is_changed_under_a_chat() -> None:
    agent = agent_of("ok")
    talk = Conversation()
    refused: list[bool] = []

    async def hook(ctx: Any) -> None:
        with pytest.raises(ConversationBusyError):
            await agent.update_message(talk, ctx.message.id, MessageChanges(text="x"))
        refused.append(True)

    agent.add_hook("onMessage", hook)
    await agent.chat("hello", conversation=talk)
    assert refused == [True, True]
    assert talk.messages[0].text == "hello"


async def test_no_timer_of_its_hooks_is_left() -> None:
    agent = agent_of("ok")
    talk = Conversation()
    await agent.chat("hello", conversation=talk)

    async def hook(ctx: Any) -> None:
        await asyncio.sleep(0)

    agent.add_hook("onMessageUpdate", hook, timeout=60)
    loop: Any = asyncio.get_running_loop()
    before = {timer for timer in loop._scheduled if not timer.cancelled()}
    await agent.update_message(talk, talk.messages[0].id, MessageChanges(text="x"))
    assert {timer for timer in loop._scheduled if not timer.cancelled()} <= before


async def test_nothing_is_written_where_nothing_changes(store: Any) -> None:
    agent = agent_of(*TURNS, store=store)
    talk = await chatted(store, agent)
    version = (await store.load(talk.id)).version
    await agent.update_message(talk, talk.messages[0].id, MessageChanges(text="hello"))
    assert (await store.load(talk.id)).version == version


@pytest.mark.parametrize("place", ["append", "release"])
async def test_a_cancelled_update_frees_its_conversation(place: str) -> None:
    """Also if it is cancelled while its last changes are written, or its lease is released."""
    inside = asyncio.Event()

    class Slow(MemoryStore):
        async def append(self, conversation_id: str, change: Change) -> int:
            await slowly("append")
            return await super().append(conversation_id, change)

        async def release(self, conversation_id: str, owner: str) -> None:
            await slowly("release")
            await super().release(conversation_id, owner)

    store = Slow()

    async def slowly(name: str) -> None:
        if name == place:
            inside.set()
            for _ in range(3):
                await asyncio.sleep(0)

    agent = agent_of(*TURNS, store=store)
    talk = await chatted(store, agent)
    inside.clear()

    def note(ctx: Any) -> None:
        ctx.run.meta["seen"] = True  # is written when the update leaves

    agent.add_hook("onMessageUpdate", note)
    changes = MessageChanges(text="good day")
    task = asyncio.ensure_future(agent.update_message(talk, talk.messages[0].id, changes))
    await inside.wait()
    task.cancel()
    await asyncio.wait([task])
    assert task.cancelled()
    assert not talk.busy
    stored = await store.load(talk.id)
    assert stored is not None
    assert (stored.owner, stored.meta) == (None, {"seen": True})
    assert (await agent.chat("on", conversation=talk)).text == "Again."


async def test_an_update_that_a_hook_aborts_raises_no_cancellation(store: Any) -> None:
    agent = agent_of(*TURNS, store=store)
    talk = await chatted(store, agent)
    before = talk.messages
    agent.add_hook("preMessageUpdate", lambda ctx: ctx.run.abort("not now") and None)
    with pytest.raises(ChatAbortedError, match="not now"):
        await agent.update_message(talk, before[0].id, MessageChanges(text="good day"))
    assert talk.messages == before
    assert not talk.busy


async def test_an_update_whose_lease_is_lost_raises_why() -> None:
    class Losing(MemoryStore):
        lease = 0.001

        async def renew(self, conversation_id: str, owner: str) -> bool:
            asked.set()
            return False

    asked, store = asyncio.Event(), Losing()
    agent = agent_of(*TURNS)
    talk = await chatted(MemoryStore(), agent)
    talk = Conversation(talk.messages)
    await talk.save(store)

    async def wait(ctx: Any) -> None:
        await asked.wait()
        for _ in range(5):
            await asyncio.sleep(0)

    agent.add_hook("preMessageUpdate", wait)
    with pytest.raises(ConversationConflictError):
        await agent.update_message(talk, talk.messages[0].id, MessageChanges(text="good day"))
    assert not talk.busy


@pytest.mark.parametrize(
    "changes", [MessageChanges(text=" "), MessageChanges(parts=())], ids=["text", "parts"]
)
async def test_a_user_s_message_is_not_emptied(changes: MessageChanges) -> None:
    agent = agent_of(*TURNS)
    talk = await chatted(MemoryStore(), agent)
    with pytest.raises(UsageError, match="empty"):
        await agent.update_message(talk, talk.messages[0].id, changes)
    assert talk.messages[0].text == "hello"
