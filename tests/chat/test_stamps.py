"""Messages know which chat has written them, and when: `message.chat_id` and `message.at`."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import Any

import pytest

from hookline import (
    Agent,
    Approve,
    Ask,
    AssistantMessage,
    Conversation,
    Limits,
    MemoryStore,
    Message,
    MessageChanges,
    Text,
    ToolCall,
    ToolMessage,
    UserMessage,
    read_message,
    repair_history,
)
from hookline.errors import ChatAbortedError
from hookline.events import MessageAdded
from hookline.replay import fork, record_of_log, records_of
from hookline.runtimes import Durable, Halted, Journal
from hookline.testing import ScriptedModel, TestRuntime, Turn, call, collect


async def look(q: str = "") -> str:
    """Look it up."""
    return f"found {q}"


TURNS = (["I look.", call("look", q="x")], "Done.")


def agent_of(*turns: Any, **options: Any) -> Agent[Any]:
    return Agent(ScriptedModel(*(turns or TURNS)), tools=[look], **options)


def stamps(messages: Any) -> list[tuple[str, str | None, float | None]]:
    return [(message.role, message.chat_id, message.at) for message in messages]


class Ticking(TestRuntime):
    """A clock that goes on by a second each time that it is read."""

    def now(self) -> float:
        self.advance(1)
        return self.time


# ── what a chat writes ──────────────────────────────────────────────────────────────────────


async def test_every_message_of_a_chat_has_the_chat_and_the_time() -> None:
    store = MemoryStore()
    agent = agent_of(store=store, runtime=Ticking(100.0))
    before: list[Message] = []
    after: list[Message] = []
    agent.add_hook("preMessage", lambda ctx: before.append(ctx.message))
    agent.add_hook("onMessage", lambda ctx: after.append(ctx.message))
    events = await collect(agent.chat_stream("hello", conversation="talk", chat_id="one"))
    talk = await store.open("talk")
    roles = ["user", "assistant", "tool", "assistant"]
    assert [(role, chat) for role, chat, _ in stamps(talk.messages)] == [(r, "one") for r in roles]
    times = [message.at for message in talk.messages]
    assert times == sorted(times, key=lambda at: at or 0)
    assert len({*times}) == 4
    assert times[0] == 102.0  # after the start of the chat, and before all others
    added = [event.message for event in events if isinstance(event, MessageAdded)]
    assert stamps(before) == stamps(after) == stamps(added) == stamps(talk.messages)


async def test_each_chat_of_a_conversation_marks_its_own_messages() -> None:
    runtime = TestRuntime(5.0)
    agent, talk = agent_of("one", "two", runtime=runtime), Conversation()
    await agent.chat("first", conversation=talk)
    runtime.advance(10)
    await agent.chat(UserMessage(id="mine", parts=(Text("second"),)), conversation=talk)
    assert stamps(talk.messages) == [
        *(("user", "chat-1", 5.0), ("assistant", "chat-1", 5.0)),
        *(("user", "chat-2", 15.0), ("assistant", "chat-2", 15.0)),
    ]


async def test_a_message_that_is_passed_in_cannot_bring_a_chat_or_a_time() -> None:
    forged = UserMessage(parts=(Text("hi"),), chat_id="other", at=1.0)
    response = await agent_of("ok", runtime=TestRuntime(5.0)).chat(forged)
    assert stamps(response.messages)[0] == ("user", "chat-1", 5.0)


async def test_a_hook_cannot_change_them() -> None:
    agent = agent_of("ok", runtime=TestRuntime(5.0))
    agent.add_hook("preMessage", lambda ctx: ctx.message.replace(chat_id="other", at=None))
    response = await agent.chat("hi")
    assert {(chat, at) for _, chat, at in stamps(response.messages)} == {("chat-1", 5.0)}


async def test_the_messages_of_a_sub_agent_have_its_chat() -> None:
    child = Agent(ScriptedModel("inner"), name="child", runtime=TestRuntime(3.0))
    inner: list[Message] = []
    child.add_hook("onMessage", lambda ctx: inner.append(ctx.message))
    parent = Agent(ScriptedModel(call("child", input="x"), "outer"), tools=[child.as_tool()])
    response = await parent.chat("hi", chat_id="parent")
    assert stamps(inner) == [("user", "chat-1", 3.0), ("assistant", "chat-1", 3.0)]
    assert {message.chat_id for message in response.messages} == {"parent"}


async def test_what_a_resumed_chat_writes_is_its_own() -> None:
    agent, talk = agent_of(), Conversation()
    agent.add_hook("preToolCall", lambda ctx: Ask("may it?"))
    (request,) = (await agent.chat("go", conversation=talk, chat_id="asked")).pending
    await agent.resume(talk, {request.id: Approve()}, chat_id="went-on")
    assert [message.chat_id for message in talk.messages] == [
        *("asked", "asked", "went-on", "went-on")
    ]


@pytest.mark.parametrize("point", ["preMessage", "onToolCallResult"])
async def test_a_result_that_is_written_past_a_hook_has_them_too(point: str) -> None:
    agent, talk = agent_of(runtime=TestRuntime(5.0)), Conversation()

    def refuse(ctx: Any) -> None:
        if point != "preMessage" or ctx.message.role == "tool":
            raise RuntimeError("no")

    agent.add_hook(point, refuse)
    with pytest.raises(RuntimeError, match="no"):
        await agent.chat("go", conversation=talk)
    assert stamps(talk.messages) == [
        (role, "chat-1", 5.0) for role in ("user", "assistant", "tool")
    ]


async def test_a_result_that_is_written_although_a_hook_hangs_has_them_too() -> None:
    talk = Conversation()
    agent = agent_of(runtime=TestRuntime(5.0), limits=Limits(grace=0.0))

    async def hang(ctx: Any) -> None:
        if ctx.message.role == "tool":
            ctx.run.abort()
            await asyncio.Event().wait()

    agent.add_hook("preMessage", hang)
    with pytest.raises(ChatAbortedError):
        await agent.chat("go", conversation=talk)
    assert stamps(talk.messages)[2:] == [("tool", "chat-1", 5.0)]


async def test_a_result_that_was_lost_has_the_chat_that_has_lost_it() -> None:
    exports: list[bytes] = []
    talk = Conversation()

    async def peek() -> str:
        exports.append(talk.to_json())
        return "peeked"

    agent = Agent(ScriptedModel(call("peek"), "Done."), tools=[peek])
    await agent.chat("go", conversation=talk, chat_id="lost")
    last = Conversation.from_json(exports[0]).messages[-1]
    assert (last.role, last.chat_id, last.at) == ("tool", "lost", None)
    repaired = repair_history(talk.messages[:2]).messages[-1]
    assert (repaired.role, repaired.chat_id, repaired.at) == ("tool", "lost", None)


async def test_a_partial_answer_has_them_too() -> None:
    agent = agent_of(Turn("a", "b", fail=LookupError("gone")), runtime=TestRuntime(5.0))
    talk = Conversation()
    with pytest.raises(LookupError):
        await agent.chat("go", conversation=talk)
    last = talk.messages[-1]
    assert isinstance(last, AssistantMessage)
    assert (last.partial, last.chat_id, last.at) == (True, "chat-1", 5.0)


# ── and keeps ───────────────────────────────────────────────────────────────────────────────


async def test_they_are_stored_exported_restored_and_forked() -> None:
    runtime = TestRuntime(5.0)
    agent, talk = agent_of(runtime=runtime), Conversation(id="talk")
    await agent.chat("go", conversation=talk)
    runtime.advance(100)
    written = stamps(talk.messages)
    assert stamps(Conversation.from_json(talk.to_json()).messages) == written
    restored = Conversation()
    restored.restore(talk.messages)
    assert stamps(restored.messages) == written
    assert stamps(fork(records_of(talk.messages)[0], step=1).messages) == written[:3]
    assert stamps(repair_history(talk.messages).messages) == written


async def test_a_changed_message_keeps_them() -> None:
    runtime = TestRuntime(5.0)
    agent, talk = agent_of(runtime=runtime), Conversation()
    await agent.chat("go", conversation=talk)
    runtime.advance(100)
    await agent.update_message(talk, talk.messages[0].id, MessageChanges(text="stop"))
    assert stamps(talk.messages)[0] == ("user", "chat-1", 5.0)


async def test_a_question_that_is_asked_again_keeps_them() -> None:
    runtime = TestRuntime(5.0)
    agent, talk = agent_of("one", "two", runtime=runtime), Conversation()
    await agent.chat("hi", conversation=talk)
    runtime.advance(10)
    await agent.chat(talk.replace_answer(), conversation=talk)
    assert stamps(talk.messages) == [("user", "chat-1", 5.0), ("assistant", "chat-2", 15.0)]


async def test_a_later_life_of_a_durable_chat_has_those_of_the_first() -> None:
    agent, log = agent_of(runtime=Durable()), DyingLog()
    chat = partial(agent.chat, "go", chat_id="one")
    with pytest.raises(Halted):
        await (await Journal.open("one", log)).carry(chat)
    begun = record_of_log("one", log.batches)
    response = await (await Journal.open("one", log)).carry(chat)
    whole = record_of_log("one", log.batches)
    assert begun is not None
    assert whole is not None
    assert stamps(response.messages) == stamps(whole.messages)
    assert stamps(response.messages)[:2] == stamps(begun.messages)
    assert {message.chat_id for message in whole.messages} == {"one"}


class DyingLog:
    """A log in memory, whose process dies once, right after the tool has run."""

    def __init__(self) -> None:
        self.batches: list[bytes] = []
        self.dies = True

    async def read(self) -> list[bytes]:
        return list(self.batches)

    async def append(self, data: bytes) -> None:
        if self.dies and b'/run","value"' in b"".join(self.batches):
            self.dies = False
            raise Halted
        self.batches.append(data)

    async def answer(self, request: Any) -> Approve:
        return Approve()

    def poke(self) -> None:
        """Nothing is suspended here."""


# ── and what they are not ───────────────────────────────────────────────────────────────────

MESSAGES: list[Message] = [
    UserMessage(id="c.0", parts=(Text("hi"),)),
    AssistantMessage(id="c.1", parts=(ToolCall(id="k1", name="look", arguments={"q": "x"}),)),
    ToolMessage(id="c.2", call_id="k1", name="look", text="found x"),
]


@pytest.mark.parametrize("message", MESSAGES, ids=lambda message: message.role)
def test_they_are_no_part_of_what_is_compared(message: Message) -> None:
    stamped = message.replace(chat_id="c", at=5.0)
    assert stamped == message
    assert (stamped != message) is False
    assert hash(stamped) == hash(message)
    assert stamped != message.replace(id="other")
    assert message.replace(id="other") != stamped
    assert stamped != stamped.id
    others = [other for other in MESSAGES if other is not message]
    assert stamped not in others


def test_messages_with_another_text_are_not_equal() -> None:
    assert MESSAGES[0] != MESSAGES[0].replace(text="ho")
    assert MESSAGES[2] != MESSAGES[2].replace(text="lost")


def test_a_row_of_before_has_none() -> None:
    row = b'{"role":"user","id":"c.0","parts":[{"part":"text","text":"hi"}]}'
    message = read_message(row)
    assert (message.chat_id, message.at) == (None, None)
    assert message == MESSAGES[0]
