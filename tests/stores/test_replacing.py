"""An answer that is made again: the old one is there until the new one replaces it."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from tests.stores.test_stores import new_id, texts

from hookline import (
    Agent,
    Ask,
    Conversation,
    MemoryStore,
    tool,
)
from hookline.errors import ConversationBusyError, ConversationConflictError, UsageError
from hookline.points import PreChat
from hookline.storage import Change
from hookline.testing import ScriptedModel, Turn, call


async def talked(store: Any, *turns: Any, **options: Any) -> tuple[Agent[Any], Conversation]:
    """An agent, and a conversation with three questions and answers; `turns` come after them."""
    agent = Agent(ScriptedModel("One.", "Two.", "Three.", *turns), **options)
    conversation = Conversation() if store is None else await Conversation.open(store, new_id())
    for question in ("a", "b", "c"):
        await agent.chat(question, conversation=conversation)
    return agent, conversation


async def stored(store: Any, conversation: Conversation) -> list[str]:
    """The texts that another process finds."""
    return texts(await Conversation.open(store, conversation.id))


WHOLE = ["a", "One.", "b", "Two.", "c", "Three."]


@pytest.mark.parametrize(
    ("place", "expected"),
    [
        (None, ["a", "One.", "b", "Two.", "c", "New."]),
        (2, ["a", "One.", "b", "New."]),  # the question
        (3, ["a", "One.", "b", "New."]),  # its answer
        (0, ["a", "New."]),
    ],
)
async def test_a_new_answer_replaces_the_old_one_and_all_that_follows(
    store: Any, place: int | None, expected: list[str]
) -> None:
    agent, conversation = await talked(store, "New.", "More.")
    id = None if place is None else conversation.messages[place].id
    question = conversation.replace_answer(id)
    assert texts(conversation) == WHOLE
    await agent.chat(question, conversation=conversation)
    assert texts(conversation) == expected
    assert await stored(store, conversation) == expected
    await agent.chat("d", conversation=conversation)
    assert await stored(store, conversation) == [*expected, "d", "More."]


async def test_without_a_store_an_answer_is_replaced_too() -> None:
    agent, conversation = await talked(None, "New.")
    await agent.chat(conversation.replace_answer(), conversation=conversation)
    assert texts(conversation) == [*WHOLE[:-1], "New."]


async def test_the_new_answer_is_asked_for_without_the_old_one(store: Any) -> None:
    agent, conversation = await talked(store, lambda request: f"{len(request.messages)}")
    await agent.chat(conversation.replace_answer(), conversation=conversation)
    assert texts(conversation)[-1] == "5"


async def test_the_old_answer_is_replaced_in_one_write() -> None:
    changes: list[Change] = []

    class Watched(MemoryStore):
        async def append(self, conversation_id: str, change: Change) -> int:
            changes.append(change)
            return await super().append(conversation_id, change)

    store = Watched()
    agent, conversation = await talked(store, "New.")
    changes.clear()
    await agent.chat(conversation.replace_answer(), conversation=conversation)
    (change,) = changes
    assert change.fresh
    assert len(change.messages) == 6


@pytest.mark.parametrize("with_store", [True, False], ids=["stored", "in memory"])
async def test_a_hook_that_raises_before_the_new_answer_loses_nothing(
    store: Any, with_store: bool
) -> None:
    agent, conversation = await talked(store if with_store else None, "New.", "More.")

    def refuse(ctx: PreChat[Any]) -> None:
        raise PermissionError("the budget is used up")

    before = conversation.messages
    question = conversation.replace_answer(conversation.messages[1].id)
    with pytest.raises(PermissionError):
        await agent.chat(question, conversation=conversation, hooks={"preChat": refuse})
    assert conversation.messages == before
    if with_store:
        assert await stored(store, conversation) == WHOLE
    await agent.chat("d", conversation=conversation)
    assert texts(conversation) == [*WHOLE, "d", "New."]
    if with_store:
        assert await stored(store, conversation) == [*WHOLE, "d", "New."]


async def test_a_model_that_fails_before_the_new_answer_loses_nothing(store: Any) -> None:
    agent, conversation = await talked(store, ConnectionError("overloaded"), "New.")
    with pytest.raises(ConnectionError):
        await agent.chat(conversation.replace_answer(), conversation=conversation)
    assert texts(conversation) == WHOLE
    assert await stored(store, conversation) == WHOLE
    await agent.chat(conversation.replace_answer(), conversation=conversation)
    assert await stored(store, conversation) == [*WHOLE[:-1], "New."]


async def test_until_the_new_answer_the_store_has_the_old_one(store: Any) -> None:
    reached, free = asyncio.Event(), asyncio.Event()
    heard: list[str] = []

    async def wait() -> None:
        reached.set()
        await free.wait()

    agent, conversation = await talked(store, Turn("New.", delay=wait))
    agent.add_hook("onMessage", lambda ctx: heard.append(ctx.message.text))
    question = conversation.replace_answer(conversation.messages[1].id)
    chat = asyncio.create_task(agent.chat(question, conversation=conversation))
    await reached.wait()
    there = await store.load(conversation.id)
    assert [message.text for message in there.messages] == WHOLE  # what a killed process leaves
    assert heard == ["a"]
    free.set()
    await chat
    assert await stored(store, conversation) == ["a", "New."]


async def test_a_stop_before_the_new_answer_loses_nothing(store: Any) -> None:
    agent, conversation = await talked(store)
    reached = asyncio.Event()

    async def wait(ctx: PreChat[Any]) -> None:
        reached.set()
        await asyncio.Event().wait()

    question = conversation.replace_answer(conversation.messages[1].id)
    stream = agent.chat_stream(question, conversation=conversation, hooks={"preChat": wait})

    async def read() -> list[str]:
        async with stream:
            return [type(event).__name__ async for event in stream]

    chat = asyncio.create_task(read())
    await reached.wait()
    stream.abort("stopped by the user")
    assert (await chat)[-1] == "ChatAborted"
    assert texts(conversation) == WHOLE
    assert await stored(store, conversation) == WHOLE


async def test_a_question_that_waits_is_still_waiting_after_a_failed_repetition(store: Any) -> None:
    @tool
    async def pay() -> str:
        """Pay."""
        return "paid"

    def ask(ctx: Any) -> Any:
        return Ask("Pay?")

    agent = Agent(
        ScriptedModel([call("pay")], ConnectionError("overloaded")),
        tools=[pay],
        hooks={"preToolCall": ask},
    )
    conversation = await Conversation.open(store, new_id())
    await agent.chat("a", conversation=conversation)
    waiting = conversation.pending
    assert len(waiting) == 1
    with pytest.raises(ConnectionError):
        await agent.chat(conversation.replace_answer(), conversation=conversation)
    assert conversation.pending == waiting
    assert await store.pending(conversation.id) == waiting


@pytest.mark.parametrize("fails", [True, False], ids=["the model fails", "the model answers"])
async def test_a_message_sent_before_the_new_answer_begins_is_not_lost(
    store: Any, fails: bool
) -> None:
    turn = Turn(fail=ConnectionError("gone")) if fails else "New."
    agent, conversation = await talked(store, turn, "Yes.")
    sent: list[Any] = []
    agent.add_hook("preChat", lambda ctx: sent.append(stream.send("And d?")))
    question = conversation.replace_answer()
    try:
        async with agent.chat_stream(question, conversation=conversation) as stream:
            async for _ in stream:
                pass
    except ConnectionError:
        assert fails
    expected = WHOLE if fails else [*WHOLE[:-1], "New.", "And d?", "Yes."]
    assert sent[0].status == ("returned" if fails else "delivered")
    assert texts(conversation) == expected
    assert await stored(store, conversation) == expected


async def test_another_writer_between_question_and_chat_is_a_conflict(store: Any) -> None:
    agent, conversation = await talked(store, "Four.")
    question = conversation.replace_answer()
    other = await Conversation.open(store, conversation.id)
    await agent.chat("d", conversation=other)
    with pytest.raises(ConversationConflictError):
        await agent.chat(question, conversation=conversation)
    assert await stored(store, conversation) == [*WHOLE, "d", "Four."]


async def test_an_answer_that_is_not_there_is_not_replaced(store: Any) -> None:
    agent, conversation = await talked(store, "Four.")
    with pytest.raises(UsageError, match="no answer with the message 'x'"):
        conversation.replace_answer("x")
    with pytest.raises(UsageError, match="send a message first"):
        Conversation().replace_answer()
    async with agent.chat_stream("d", conversation=conversation) as stream:
        await anext(stream)
        with pytest.raises(ConversationBusyError):
            conversation.replace_answer()
