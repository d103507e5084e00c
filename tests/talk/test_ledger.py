"""What a conversation notes of its store: its changes, and the lease that a chat renews."""

import asyncio

import pytest

from hookline import Agent, Conversation, MemoryStore, Text, UserMessage
from hookline._conversations.ledger import Ledger
from hookline.errors import StoreError
from hookline.storage import Change
from hookline.testing import ScriptedModel


def texts(conversation: Conversation) -> list[str]:
    return [message.text for message in conversation.messages]


def user(text: str) -> UserMessage:
    return UserMessage(parts=(Text(text),))


class Slow(MemoryStore):
    """A store whose writes wait until they may go on."""

    def __init__(self) -> None:
        super().__init__()
        self.asked = asyncio.Event()
        self.may_write = asyncio.Event()

    async def append(self, conversation_id: str, change: Change) -> int:
        self.asked.set()
        await self.may_write.wait()
        return await super().append(conversation_id, change)


async def test_a_restore_is_not_lost_when_a_save_to_another_store_is_cancelled() -> None:
    store, other = MemoryStore(), Slow()
    talk = Conversation([user("old")], id="talk")
    await talk.save(store)
    talk.restore([user("new")])
    saving = asyncio.create_task(talk.save(other))
    await other.asked.wait()
    saving.cancel()
    other.may_write.set()
    with pytest.raises(asyncio.CancelledError):
        await saving
    await talk.save()
    assert texts(await store.open("talk")) == ["new"]


async def test_a_reset_counts_although_a_chat_ran_when_the_conversation_was_opened() -> None:
    store = MemoryStore()
    await Conversation([user("old")], id="talk").save(store)
    await store.acquire("talk", "other/1")
    talk = await store.open("talk")
    await store.release("talk", "other/1")
    talk.reset()
    await Agent(ScriptedModel("hello")).chat("new", conversation=talk)
    assert texts(talk) == texts(await store.open("talk")) == ["new", "hello"]


class Failing(MemoryStore):
    """A store whose first renewal fails, as soon as it may."""

    lease = 0.003

    def __init__(self) -> None:
        super().__init__()
        self.asked = asyncio.Event()
        self.may_fail = asyncio.Event()

    async def renew(self, conversation_id: str, owner: str) -> bool:
        if not self.asked.is_set():
            self.asked.set()
            await self.may_fail.wait()
            raise StoreError("away")
        return await super().renew(conversation_id, owner)


async def test_a_lease_is_released_although_its_renewal_fails_at_that_moment() -> None:
    store = Failing()
    ledger = Ledger(store, "talk")
    lost: list[BaseException] = []
    await ledger.take("chat", None, lost.append)
    await store.asked.wait()
    leaving = asyncio.create_task(ledger.leave())
    await asyncio.sleep(0)
    store.may_fail.set()
    async with asyncio.timeout(60):
        await asyncio.wait([leaving])
    assert await store.acquire("talk", "next/1") == 0
    assert lost == []
