"""What every store promises: once, in order, one chat at a time, each message as it was written."""

from __future__ import annotations

import asyncio
import gc
import re
import traceback
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any, cast

import pytest
import sqlalchemy as sa
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from hookline import (
    Agent,
    Approve,
    Ask,
    AssistantMessage,
    Conversation,
    File,
    Image,
    MemoryStore,
    MessageChanges,
    Reasoning,
    Run,
    Text,
    ToolCall,
    ToolMessage,
    Usage,
    UserMessage,
)
from hookline.errors import (
    ApprovalError,
    ConversationBusyError,
    ConversationConflictError,
    HistoryError,
    StoreError,
    UsageError,
)
from hookline.events import MessageAdded, Status
from hookline.storage import Change, Stored, after_prefix, shown_url
from hookline.stores import SQLStore
from hookline.testing import ScriptedModel, call


def new_id() -> str:
    return f"talk-{uuid.uuid4().hex[:12]}"


def user(text: str, id: str = "") -> UserMessage:
    return UserMessage(id=id, parts=(Text(text),))


def texts(conversation: Conversation) -> list[str]:
    return [message.text for message in conversation.messages]


async def write(store: Any, id: str, *messages: Any, **more: Any) -> int:
    """Put these messages at the end, as a chat would."""
    version = await store.acquire(id, "writer")
    stored = await store.load(id)
    change = Change(
        owner="writer",
        expected=version,
        place=len(stored.messages),
        messages=messages,
        **more,
    )
    after: int = await store.append(id, change)
    await store.release(id, "writer")
    return after


async def look(q: str = "") -> str:
    """Look it up."""
    return f"found {q}"


# ── the protocol ────────────────────────────────────────────────────────────────────────────


async def test_what_is_written_comes_back_as_it_was(store: Any) -> None:
    id = new_id()
    messages = (
        UserMessage(
            id="m1",
            parts=(
                Text("naïve \x00 \u2028 😀"),
                Image(data=b"\x00\xff", media_type="image/gif"),
                File(media_type="text/plain", name="a.txt", url="https://example.com/a.txt"),
            ),
        ),
        AssistantMessage(
            id="m2",
            parts=(
                Reasoning("hm", {"anthropic": {"signature": "s"}}),
                Text("I look."),
                ToolCall(id="c1", name="look", arguments={"q": "x", "n": [1, 2.5, None, True]}),
            ),
            finish_reason="tool_calls",
            usage=Usage(input_tokens=3, output_tokens=4),
            model="m",
            meta={"openai": {"id": 1}},
        ),
        ToolMessage(id="m3", call_id="c1", name="look", text="found", media=(Image(url="u"),)),
    )
    await write(store, id, *messages, meta={"title": "é", "n": 1})
    assert await store.load(id) == Stored(
        id=id, version=1, messages=messages, meta={"title": "é", "n": 1}
    )


async def test_there_is_nothing_where_nothing_was_written(store: Any) -> None:
    id = new_id()
    assert await store.load(id) is None
    assert await store.delete(id) is False
    assert (await Conversation.open(store, id)).messages == ()
    assert await store.load(id) is None  # opening writes nothing


async def test_messages_without_ids_are_kept_too(store: Any) -> None:
    id = new_id()
    await write(store, id, user("a"), AssistantMessage(parts=(Text("b"),)), user("c"))
    assert texts(await store.open(id)) == ["a", "b", "c"]


async def test_a_version_counts_up_with_each_write(store: Any) -> None:
    id = new_id()
    assert await store.acquire(id, "me") == 0
    first = Change(owner="me", expected=0, place=0, messages=(user("a", "m1"),))
    assert await store.append(id, first) == 1
    assert await store.append(id, Change(owner="me", expected=1, place=1, meta={"k": 1})) == 2
    new = user("b", "m1")
    assert await store.update(id, new, owner="me", expected=2) == 3
    again = Change(owner="me", expected=3, place=0, messages=(user("c"), user("d")), fresh=True)
    assert await store.append(id, again) == 4
    last = Change(owner="me", expected=4, place=2, messages=(user("e"),))
    assert await store.append(id, last) == 5
    stored = await store.load(id)
    assert (stored.version, [m.text for m in stored.messages]) == (5, ["c", "d", "e"])
    assert stored.owner == "me"
    await store.release(id, "me")
    assert await store.acquire(id, "you") == 5
    await store.release(id, "you")


@pytest.mark.parametrize(
    "change",
    [
        Change(owner="me", expected=0, place=0, messages=(user("x"),)),
        Change(owner="me", expected=2, place=2, messages=(user("x"),)),
        Change(owner="me", expected=0, place=0, messages=(user("x"), user("y"))),
        Change(owner="me", expected=2, place=1, meta={"k": 1}),
        Change(owner="me", expected=9, place=0, fresh=True),
    ],
    ids=["behind", "ahead", "two behind", "meta ahead", "fresh ahead"],
)
async def test_another_version_is_a_conflict_and_writes_nothing(store: Any, change: Change) -> None:
    id = new_id()
    await write(store, id, user("a"))
    await store.acquire(id, "me")
    with pytest.raises(ConversationConflictError) as caught:
        await store.append(id, change)
    assert (caught.value.expected, caught.value.found) == (change.expected, 1)
    stored = await store.load(id)
    assert (stored.version, [m.text for m in stored.messages]) == (1, ["a"])
    await store.release(id, "me")


@pytest.mark.parametrize("owner", ["you", ""], ids=["another", "nobody"])
async def test_who_has_not_the_lease_writes_nothing(store: Any, owner: str) -> None:
    id = new_id()
    await write(store, id, user("a", "m1"))
    await store.acquire(id, "me")
    one = Change(owner=owner, expected=1, place=1, messages=(user("x"),))
    for change in (one, Change(owner=owner, expected=1, place=1, meta={"k": 1})):
        with pytest.raises(ConversationConflictError, match="taken over"):
            await store.append(id, change)
    with pytest.raises(ConversationConflictError):
        await store.update(id, user("x", "m1"), owner=owner, expected=1)
    assert (await store.load(id)).version == 1
    await store.release(id, "me")


async def test_a_message_id_stands_once_in_a_conversation(store: Any) -> None:
    if isinstance(store, MemoryStore):
        pytest.skip("the conversation sees to it; a database does besides")
    id = new_id()
    await write(store, id, user("a", "m1"))
    with pytest.raises(ConversationConflictError):
        await write(store, id, user("b", "m1"))
    assert len((await store.load(id)).messages) == 1


async def test_a_lease_has_one_owner(store: Any) -> None:
    id = new_id()
    await store.acquire(id, "a")
    with pytest.raises(ConversationBusyError) as caught:
        await store.acquire(id, "b")
    assert caught.value.chat_id == "a"
    assert await store.acquire(id, "a") == 0  # the same owner again
    assert await store.renew(id, "a") is True
    assert await store.renew(id, "b") is False
    await store.release(id, "b")  # not theirs: nothing happens
    with pytest.raises(ConversationBusyError):
        await store.acquire(id, "b")
    await store.release(id, "a")
    await store.acquire(id, "b")
    assert await store.renew(id, "a") is False
    await store.release(id, "b")


async def test_of_many_that_take_a_lease_at_once_one_gets_it(store: Any) -> None:
    id = new_id()

    async def take(owner: str) -> bool:
        try:
            await store.acquire(id, owner)
        except ConversationBusyError:
            return False
        return True

    taken = await asyncio.gather(*[take(f"owner-{n}") for n in range(20)])
    assert taken.count(True) == 1


async def test_a_conversation_that_is_in_use_is_not_deleted(store: Any) -> None:
    id = new_id()
    await write(store, id, user("a"))
    await store.acquire(id, "me")
    with pytest.raises(ConversationBusyError):
        await store.delete(id)
    await store.release(id, "me")
    assert await store.delete(id) is True
    assert await store.load(id) is None
    assert await store.delete(id) is False


async def test_the_list_has_the_last_changed_first(store: Any) -> None:
    ids = [new_id() for _ in range(3)]
    for number, id in enumerate(ids):
        await write(store, id, *[user("x")] * (number + 1), meta={"n": number})
    await write(store, ids[0], user("y"))
    infos = [info for info in await store.list(limit=1000) if info.id in ids]
    assert [info.id for info in infos] == [ids[0], ids[2], ids[1]]
    assert [info.messages for info in infos] == [2, 3, 2]
    assert [info.meta for info in infos] == [{"n": 0}, {"n": 2}, {"n": 1}]
    assert all(info.created <= info.updated and not info.waits for info in infos)
    assert len(await store.list(limit=2)) == 2
    everything = await store.list(limit=1000)
    assert await store.list(limit=1, offset=1) == everything[1:2]


@pytest.mark.parametrize("id", ["", "x" * 256, "a\x00b", "a\nb", "\ud800"])
async def test_an_id_that_not_every_store_could_keep_is_refused(store: Any, id: str) -> None:
    with pytest.raises(UsageError, match="conversation id"):
        await store.open(id)
    with pytest.raises(UsageError, match="conversation id"):
        await Agent(ScriptedModel("x"), store=store).chat("hi", conversation=id or "")


# ── chats ───────────────────────────────────────────────────────────────────────────────────


async def test_a_chat_by_id_goes_on_where_the_last_one_ended(store: Any, no_leaks: None) -> None:
    id = new_id()
    model = ScriptedModel(["Let me see.", call("look", q="x")], "Found.", "Again.")
    agent = Agent(model, tools=[look], store=store)
    first = await agent.chat("one", conversation=id)
    second = await agent.chat("two", conversation=id)
    talk = await store.open(id)
    assert talk.messages == (*first.messages, *second.messages)
    assert texts(talk) == ["one", "Let me see.", "found x", "Found.", "two", "Again."]
    assert [m.text for m in model.last_request.messages] == texts(talk)[:-1]


async def test_an_opened_conversation_is_written_to(store: Any) -> None:
    talk = await store.open(new_id())
    agent = Agent(ScriptedModel("a", "b"))  # the conversation knows its store, not the agent
    await agent.chat("one", conversation=talk)
    await agent.chat("two", conversation=talk)
    again = await store.open(talk.id)
    assert again.messages == talk.messages
    assert texts(again) == ["one", "a", "two", "b"]


async def test_each_message_is_written_as_it_happens(store: Any) -> None:
    id = new_id()
    seen: list[int] = []
    agent = Agent(ScriptedModel(call("look"), "Done."), tools=[look], store=store)

    async def count(ctx: Any) -> None:
        stored = await store.load(id)
        assert stored.messages[-1] == ctx.message
        seen.append(len(stored.messages))

    agent.add_hook("onMessage", count)
    await agent.chat("hi", conversation=id)
    assert seen == [1, 2, 3, 4]


async def test_a_conversation_that_another_wrote_to_catches_up(store: Any) -> None:
    model = ScriptedModel("a", "b", "c")
    agent = Agent(model, store=store)
    mine = await store.open(new_id())
    await agent.chat("one", conversation=mine)
    await agent.chat("two", conversation=mine.id)  # somebody else, as far as `mine` knows
    assert texts(mine) == ["one", "a"]
    await agent.chat("three", conversation=mine)
    assert texts(mine) == ["one", "a", "two", "b", "three", "c"]
    assert [m.text for m in model.last_request.messages] == texts(mine)[:-1]


async def test_what_both_have_changed_is_a_conflict(store: Any) -> None:
    agent = Agent(ScriptedModel("a", "b", "c"), store=store)
    mine = await store.open(new_id())
    await agent.chat("one", conversation=mine)
    mine.reset()
    await agent.chat("two", conversation=mine.id)
    with pytest.raises(ConversationConflictError):
        await agent.chat("three", conversation=mine)
    assert texts(await store.open(mine.id)) == ["one", "a", "two", "b"]
    await agent.chat("four", conversation=mine.id)  # and it is free


async def test_a_second_chat_on_a_conversation_is_refused_whoever_begins_it(store: Any) -> None:
    id = new_id()
    other = Agent(ScriptedModel("never"), store=store)
    agent = Agent(ScriptedModel("ok"), store=store)

    async def hook(ctx: Any) -> None:
        with pytest.raises(ConversationBusyError):
            await other.chat("second", conversation=id)
        with pytest.raises(ConversationBusyError):
            await other.update_message(id, "x", MessageChanges(text="y"))

    agent.add_hook("onMessage", hook)
    await agent.chat("first", conversation=id)
    assert texts(await store.open(id)) == ["first", "ok"]


async def test_meta_is_saved_with_the_next_message(store: Any) -> None:
    talk = await store.open(new_id())
    talk.meta["title"] = "greetings"
    await Agent(ScriptedModel("a")).chat("hi", conversation=talk)
    assert (await store.open(talk.id)).meta == {"title": "greetings"}


async def test_a_chat_takes_the_meta_that_somebody_else_has_saved_meanwhile(store: Any) -> None:
    """And where nobody has, the dict that the user holds stays the conversation's."""
    here = await store.open(new_id())
    agent = Agent(ScriptedModel("one", "two", "three"), store=store)
    await agent.chat("a", conversation=here)
    mine = here.meta
    mine["by"] = "me"
    await agent.chat("b", conversation=here)
    assert here.meta is mine
    there = await store.open(here.id)
    there.meta["by"] = "somebody else"
    await there.save()
    await agent.chat("c", conversation=here)
    assert here.meta == {"by": "somebody else"}
    assert (await store.open(here.id)).meta == {"by": "somebody else"}


async def test_meta_is_saved_by_save(store: Any) -> None:
    talk = await store.open(new_id())
    talk.meta["n"] = 1
    await talk.save()
    again = await store.open(talk.id)
    assert (again.meta, again.messages) == ({"n": 1}, ())
    again.meta["n"] = 2
    await again.save()
    talk.meta["n"] = 3
    with pytest.raises(ConversationConflictError):
        await talk.save()
    assert (await store.open(talk.id)).meta == {"n": 2}


async def test_meta_that_is_no_json_is_refused_with_whose_it_is(store: Any) -> None:
    talk = await store.open(new_id())
    talk.meta["x"] = object()
    with pytest.raises(UsageError, match="meta"):
        await talk.save()


async def test_reset_and_restore_are_written_with_the_next_message(store: Any) -> None:
    talk = await store.open(new_id())
    agent = Agent(ScriptedModel("a", "b", "c"))
    await agent.chat("one", conversation=talk)
    checkpoint = talk.messages
    await agent.chat("two", conversation=talk)
    talk.restore(checkpoint)
    assert texts(await store.open(talk.id)) == ["one", "a", "two", "b"]
    await agent.chat("three", conversation=talk)
    assert texts(await store.open(talk.id)) == ["one", "a", "three", "c"]
    talk.reset()
    await talk.save()
    assert texts(await store.open(talk.id)) == []


async def test_a_conversation_moves_from_one_store_to_another(store: Any) -> None:
    talk = Conversation([user("a", "m1"), AssistantMessage(parts=(Text("b"),))], meta={"k": 1})
    await talk.save(store)
    again = await store.open(talk.id)
    assert (again.messages, again.meta) == (talk.messages, {"k": 1})
    await Agent(ScriptedModel("d")).chat("c", conversation=talk)
    assert texts(await store.open(talk.id)) == ["a", "b", "c", "d"]
    with pytest.raises(ConversationConflictError):
        await Conversation([user("x")], id=talk.id).save(store)
    assert texts(await store.open(talk.id)) == ["a", "b", "c", "d"]
    other = MemoryStore()
    copy = Conversation.from_json(again.to_json(), id="copy")
    await copy.save(other)
    assert texts(await other.open("copy")) == ["a", "b"]


async def test_a_failed_chat_keeps_what_was_said(store: Any) -> None:
    id = new_id()

    def fail(request: Any) -> Any:
        raise RuntimeError("no model")

    agent = Agent(ScriptedModel(fail, "ok"), store=store)
    with pytest.raises(RuntimeError):
        await agent.chat("one", conversation=id)
    await agent.chat("two", conversation=id)
    assert texts(await store.open(id)) == ["one", "two", "ok"]


async def test_an_aborted_chat_is_written_to_its_end(store: Any, no_leaks: None) -> None:
    id = new_id()

    async def endless(run: Run, q: str) -> str:
        """Look, for ever."""
        await run.status("looking", q)
        await asyncio.Event().wait()
        return "never"

    model = ScriptedModel([call("endless", q="1"), call("endless", q="2")], "ok")
    agent = Agent(model, tools=[endless], store=store)
    async with agent.chat_stream("go", conversation=id) as stream:
        async for event in stream:
            if isinstance(event, Status):
                stream.abort("enough")
    talk = await store.open(id)
    assert [message.role for message in talk.messages] == ["user", "assistant", "tool", "tool"]
    response = await agent.chat("on", conversation=id)
    assert response.text == "ok"


async def test_a_reader_that_leaves_loses_nothing(store: Any, no_leaks: None) -> None:
    id = new_id()
    agent = Agent(ScriptedModel("one two three", "ok", delay=0.001), store=store)
    async with agent.chat_stream("go", conversation=id) as stream:
        async for _ in stream:
            break
    await agent.chat("on", conversation=id)
    talk = await store.open(id)
    assert [message.role for message in talk.messages][-2:] == ["user", "assistant"]
    assert len({message.id for message in talk.messages}) == len(talk.messages)


@pytest.mark.parametrize("pause", [0, 1, 2, 3, 5, 8, 13, 21, 34])
async def test_cancelled_anywhere_store_and_history_agree(store: Any, pause: int) -> None:
    """After a cancellation at any moment the next chat goes on, and nothing stands twice."""
    id = new_id()
    talk = await store.open(id)
    agent = Agent(ScriptedModel(call("look"), "Done.", "Again."), tools=[look])
    task = asyncio.create_task(agent.chat("one", conversation=talk))
    for _ in range(pause * 4):
        await asyncio.sleep(0)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    assert not talk.busy
    assert (await store.open(id)).messages == talk.messages
    ids = [message.id for message in talk.messages]
    assert len(set(ids)) == len(ids)
    await Agent(ScriptedModel("ok")).chat("two", conversation=talk)
    assert (await store.open(id)).messages == talk.messages


# ── what a dead chat left ───────────────────────────────────────────────────────────────────


def a_call(*ids: str) -> AssistantMessage:
    return AssistantMessage(id="m2", parts=tuple([ToolCall(id=id, name="look") for id in ids]))


async def test_an_open_step_of_a_dead_chat_is_closed(store: Any) -> None:
    id = new_id()
    found = ToolMessage(id="m3", call_id="c1", name="look", text="found")
    await write(store, id, user("a", "m1"), a_call("c1", "c2"), found)
    talk = await store.open(id)
    lost = talk.messages[-1]
    assert isinstance(lost, ToolMessage)
    assert (lost.call_id, lost.outcome) == ("c2", "aborted")
    assert "may have run" in lost.text
    assert len((await store.load(id)).messages) == 3  # reading writes nothing
    await Agent(ScriptedModel("ok"), store=store).chat("b", conversation=id)
    again = await store.open(id)
    assert again.messages[:4] == talk.messages
    assert texts(again)[-2:] == ["b", "ok"]


async def test_an_open_step_of_a_running_chat_is_left_alone(store: Any) -> None:
    id = new_id()
    await write(store, id, user("a", "m1"), a_call("c1"))
    await store.acquire(id, "alive")
    talk = await store.open(id)
    assert len(talk.messages) == 2
    await store.release(id, "alive")  # it died without a word: the version is the same
    await Agent(ScriptedModel("ok")).chat("b", conversation=talk)
    assert [message.role for message in talk.messages] == [
        "user", "assistant", "tool", "user", "assistant",
    ]  # fmt: skip
    assert (await store.open(id)).messages == talk.messages


async def test_a_history_that_no_provider_would_take_is_refused(store: Any) -> None:
    id = new_id()
    await write(store, id, user("a", "m1"), a_call("c1"), user("b", "m3"))
    with pytest.raises(HistoryError, match="c1"):
        await store.open(id)
    with pytest.raises(HistoryError, match="c1"):
        await Agent(ScriptedModel("ok"), store=store).chat("b", conversation=id)
    stored = await store.load(id)  # what stands there can be read, and mended
    from hookline import repair_history

    talk = Conversation(id=new_id())
    talk.restore(repair_history(stored.messages).messages)
    assert await store.delete(id) is True  # and nothing holds it


# ── doors ───────────────────────────────────────────────────────────────────────────────────


async def test_an_agent_takes_the_url_of_a_store(database: str) -> None:
    id = new_id()
    async with Agent(ScriptedModel("a", "b"), store=database) as agent:
        await agent.chat("one", conversation=id)
        assert isinstance(agent.store, SQLStore)
    async with SQLStore(database) as store:
        assert texts(await store.open(id)) == ["one", "a"]


@pytest.mark.parametrize(
    ("url", "says"),
    [
        ("mysql://host/name", "there is no store"),
        ("chats.db", "there is no store"),
        ("sqlite://", "MemoryStore"),
        ("sqlite:///:memory:", "MemoryStore"),
    ],
)
def test_a_url_that_is_none_is_refused(url: str, says: str) -> None:
    with pytest.raises(UsageError, match=says):
        Agent(ScriptedModel("x"), store=url)


@pytest.mark.parametrize(
    "url",
    [
        "mysql://ada:swordfish@host/name",
        "nowhere+db://ada:swordfish@host:5432/name",
        "postgresql://ada:p@ss:swordfish@host/name",
        "postgresql://ada:p@swordfish@host/name",
        "postgresql://a/da:swordfish@host/name",
        "postgresql://ada:swordfish@host:99999/name",
        "postgresql://ada:swordfish@host/name?sslmode=maybe",
        "postgresql://host:99999/name?user=ada&password=swordfish",
        "sqlite://ada:swordfish@/x.db",
        "ada:swordfish@host",
        "ada:swordfish@host/name?password=swordfish",
        "postgresql:ada:swordfish@host",
        "swordfish@host",
        "://ada:swordfish@host",
        "postgresql://ada:swordfish@host/na\0me",
    ],
)
def test_no_error_holds_the_password_of_a_url(url: str) -> None:
    for make in (partial(Agent, ScriptedModel("x")), SQLStore):
        options = {"store": url} if make is not SQLStore else {"url": url}
        with pytest.raises(UsageError) as told:
            make(**options)  # type: ignore[operator]
        text = "".join(traceback.format_exception(told.value, chain=True))
        assert "swordfish" not in "\n".join(
            line for line in text.splitlines() if not line.startswith(" ")
        )


@pytest.mark.parametrize(
    "url",
    [
        "postgresql://ada:swordfish@127.0.0.1:1/name",
        "postgresql://127.0.0.1:1/name?user=ada&password=swordfish",
    ],
    ids=["before the host", "in the query"],
)
async def test_no_store_error_holds_the_password_of_a_url(url: str) -> None:
    async with SQLStore(url, reconnect=0) as store:
        with pytest.raises(StoreError, match=r"127\.0\.0\.1:1/name") as told:
            await store.load("x")
    assert "swordfish" not in str(told.value)
    assert "swordfish" not in repr(store)


@pytest.mark.parametrize(
    ("url", "says"),
    [
        ("postgresql://u@h:99999/x", "port 99999"),
        ("postgresql://u@h:0/x", "port 0"),
        ("postgresql://u@h/x?port=99999", "port 99999"),
        ("postgresql://u@h/x?port=five", "use a number"),
        ("postgresql://u@h/x?connect_timeout=soon", "use a number"),
        ("postgresql://u@h/x?sslmode=maybe", "verify-full"),
        ("postgresql://u@h/x?channel_binding=require", "leave it out"),
        ("postgresql://u@h:p/x", "percent-encode"),
        ("sqlite://u@/x.db", "sqlite:///relative.db"),
        ("sqlite://host/x.db", "sqlite:///relative.db"),
        ("sqlite:///x.db?mode=ro", "uri=true"),
        ("sqlite:///a\0b", "null character; remove it"),
        ("sqlite:///x.db?uri=maybe", "change its URL"),
        (5, "store= is of type int; pass a URL"),
        (None, "store= is of type NoneType; pass a URL"),
    ],
)
def test_a_url_that_cannot_work_is_refused_at_once_with_what_to_do(url: Any, says: str) -> None:
    with pytest.raises(UsageError, match=says):
        SQLStore(url)


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("sqlite:///chats.db", "sqlite:///chats.db"),
        ("chats.db", "chats.db"),
        ("postgresql://u:p@h/x", "postgresql://…"),
        ("sqlite:///x.db?password=p", "sqlite://…"),
        ("u:p@h", "…"),
        ("p w://h", "…"),
    ],
)
def test_a_url_is_shown_without_what_may_be_secret(url: str, shown: str) -> None:
    assert shown_url(url) == shown


@pytest.mark.parametrize("id", ["", "a\ud800b", "a\x00b", "x" * 256])
@pytest.mark.parametrize("verb", ["load", "open", "delete", "pending"])
async def test_an_id_that_cannot_be_kept_is_refused_by_whatever_takes_one(
    store: Any, verb: str, id: str
) -> None:
    with pytest.raises(UsageError, match="conversation id"):
        await getattr(store, verb)(id)


class Turns:
    """Counts the turns that the event loop has given to others."""

    def __init__(self) -> None:
        self.count = 0
        self._ended = False

    async def __aenter__(self) -> Turns:
        self._task = asyncio.create_task(self._run())
        await asyncio.sleep(0)
        return self

    async def _run(self) -> None:
        while not self._ended:
            self.count += 1
            await asyncio.sleep(0)

    async def __aexit__(self, *exc: object) -> None:
        self._ended = True
        await self._task


@contextmanager
def statements(seen: Callable[..., None]) -> Iterator[None]:
    """Let a function see each statement of SQLAlchemy before it runs."""
    sa.event.listen(sa.Engine, "before_cursor_execute", seen)
    try:
        yield
    finally:
        sa.event.remove(sa.Engine, "before_cursor_execute", seen)


async def test_a_long_conversation_is_read_in_pieces(database: str) -> None:
    """Between two of them, the event loop gets its turns."""
    many = 5_000
    count = 0

    def seen(connection: Any, cursor: Any, statement: str, *rest: Any) -> None:
        nonlocal count
        count += "hookline_message" in statement

    async with SQLStore(database) as store:
        await write(store, "long", *[user(f"{n}", f"m{n}") for n in range(many)])
        with statements(seen):
            stored = await store.load("long")
    assert stored is not None
    assert len(stored.messages) == many
    assert count >= many // 1_000


async def test_the_event_loop_gets_its_turns_while_a_long_conversation_is_opened() -> None:
    many = 5_000
    store = MemoryStore()  # which itself keeps nobody waiting
    await write(store, "long", *[user(f"{n}", f"m{n}") for n in range(many)])
    async with Turns() as turns:
        assert len((await store.open("long")).messages) == many
    assert turns.count >= many // 1_000


def test_what_is_no_store_is_refused() -> None:
    with pytest.raises(UsageError, match="is not a store"):
        Agent(ScriptedModel("x"), store=object())  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="of type bytes") as raised:
        Agent(ScriptedModel("x"), store=cast(Any, b"postgresql://ada:hunter2@db/chats"))
    assert "hunter2" not in str(raised.value)


def test_options_that_cannot_be_are_refused(tmp_path: Any) -> None:
    url = f"sqlite:///{tmp_path}/x.db"
    with pytest.raises(UsageError, match="lease"):
        SQLStore(url, lease=0)
    with pytest.raises(UsageError, match="synchronous"):
        SQLStore(url, synchronous="OFF")  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="must be the URL"):
        SQLStore("nonsense")
    with pytest.raises(UsageError, match="pool_sise"):
        SQLStore(url, pool_sise=3)
    with pytest.raises(UsageError, match="clock=3 must be a function"):
        SQLStore(url, clock=3)  # type: ignore[arg-type]


def test_a_missing_package_is_named_with_what_to_do(
    tmp_path: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    import sys

    monkeypatch.setitem(sys.modules, "sqlalchemy", None)
    for name in [name for name in sys.modules if name.startswith("hookline.stores")]:
        monkeypatch.delitem(sys.modules, name)
    with pytest.raises(UsageError, match=r'pip install "hookline\[sqlite\]"'):
        Agent(ScriptedModel("x"), store=f"sqlite:///{tmp_path}/x.db")
    with pytest.raises(UsageError, match=r'pip install "hookline\[postgres\]"'):
        Agent(ScriptedModel("x"), store="postgresql://host/name")


async def test_a_store_is_used_from_several_event_loops(database: str) -> None:
    """One store, one thread each with a loop of its own; one conversation each, and one shared."""
    store = SQLStore(database, pool_size=2)
    shared = new_id()

    async def talk(number: int) -> str:
        try:
            agent = Agent(ScriptedModel("a", "b"), store=store)
            await agent.chat("own", conversation=f"{shared}-{number}")
            try:
                await agent.chat(f"from {number}", conversation=shared)
            except ConversationBusyError:
                return "busy"
            return "written"
        finally:
            await store.aclose()

    done = await asyncio.gather(
        *[asyncio.to_thread(asyncio.run, talk(number)) for number in range(4)]
    )
    found = await store.open(shared)
    assert len(found.messages) == 2 * done.count("written")
    assert done.count("written") >= 1
    for number in range(4):
        assert len((await store.open(f"{shared}-{number}")).messages) == 2
    await store.aclose()


async def test_nothing_is_held_while_a_model_thinks(database: str) -> None:
    """A pool of one connection serves many chats whose models all think at once."""
    options: dict[str, Any] = {"pool_size": 1, "max_overflow": 0, "pool_timeout": 5}
    thinking = 0
    all_think = asyncio.Event()

    class Slow:
        async def stream(self, request: Any) -> Any:
            nonlocal thinking
            thinking += 1
            if thinking == 10:
                all_think.set()
            await all_think.wait()
            async for chunk in ScriptedModel("ok").stream(request):
                yield chunk

    async with SQLStore(database, **options) as store:
        agent = Agent(Slow(), store=store)
        base = new_id()
        answers = await asyncio.gather(
            *[agent.chat("hi", conversation=f"{base}-{n}") for n in range(10)]
        )
    assert [answer.text for answer in answers] == ["ok"] * 10


async def test_every_message_is_told_of_also_when_a_chat_is_aborted(database: str) -> None:
    """A full buffer, a slow reader, an abort at each event: told, stored and kept are the same."""

    async def busy(run: Run, q: str = "") -> str:
        """Report a lot."""
        for number in range(8):
            await run.status("busy", number)
        return "done"

    turns = (["a b c", call("busy"), call("busy")], "Done.")
    async with SQLStore(database) as store:
        for stop in range(0, 36, 2):
            id = new_id()
            agent = Agent(ScriptedModel(*turns), tools=[busy], store=store)
            told: list[str] = []
            async with agent.chat_stream("go", conversation=id) as stream:
                count = 0
                async for event in stream:
                    count += 1
                    if isinstance(event, MessageAdded):
                        told.append(event.message.id)
                    if count == stop:
                        stream.abort("enough")
            assert told == [message.id for message in (await store.open(id)).messages]


async def test_what_cannot_be_taken_is_left_as_it_is(store: Any) -> None:
    """A conflict, a broken history: nothing is written, and the conversation is free."""
    id = new_id()
    await write(store, id, user("a", "m1"), a_call("c1"), user("b", "m3"), meta={"k": 1})
    before = await store.load(id)
    with pytest.raises(HistoryError):
        await Agent(ScriptedModel("ok"), store=store).chat("b", conversation=id)
    assert await store.load(id) == before
    mine = Conversation(id=id)
    with pytest.raises(ConversationConflictError):
        await mine.save(store)
    assert await store.load(id) == before
    await Agent(ScriptedModel("ok")).chat("on", conversation=mine)
    assert await store.load(id) == before  # it is kept nowhere


@pytest.mark.parametrize(
    "page", [{"limit": -1}, {"offset": -1}, {"limit": -3, "offset": -2}], ids=str
)
async def test_a_page_of_the_list_must_not_be_negative(store: Any, page: dict[str, int]) -> None:
    await write(store, new_id(), user("a"))
    with pytest.raises(UsageError, match="must be a whole number of at least 0"):
        await store.list(**page)
    assert await store.list(limit=0) == ()
    assert await store.list(limit=0, offset=1) == ()


async def test_a_list_has_at_most_a_hundred_conversations_unless_more_are_asked_for(
    store: Any,
) -> None:
    prefix = new_id()
    for number in range(101):
        await write(store, f"{prefix}/{number}", user("a"))
    assert len(await store.list(prefix=prefix)) == 100
    assert len(await store.list(prefix=prefix, limit=1000)) == 101
    assert len(await store.list(prefix=prefix, offset=100)) == 1


async def test_a_running_chat_counts_as_the_last_change(store: Any) -> None:
    first, second = new_id(), new_id()
    for id in (first, second):
        await write(store, id, user("a"))
    await store.acquire(first, "writer")
    infos = [info.id for info in await store.list(limit=1000) if info.id in (first, second)]
    assert infos == [first, second]
    await store.release(first, "writer")


@pytest.mark.parametrize("message_id", ["", "m9"])
async def test_a_message_that_is_not_there_cannot_be_updated(store: Any, message_id: str) -> None:
    id = new_id()
    await write(store, id, user("a", "m1"))
    version = await store.acquire(id, "writer")
    with pytest.raises(UsageError, match="pass the id of one of its messages"):
        await store.update(id, user("b", message_id), owner="writer", expected=version)
    stored = await store.load(id)
    assert (stored.version, stored.messages[0].text) == (version, "a")
    await store.release(id, "writer")


async def test_a_page_of_the_memory_list_decodes_nothing_but_its_own() -> None:
    """The meta of a conversation may be large, and a list of many has many pages."""
    store = MemoryStore()
    for number in range(3):
        await write(store, f"c{number}", user("a"), meta={"n": number})
    store._entries["c0"].meta = b"not JSON"
    assert [info.meta for info in await store.list(limit=2)] == [{"n": 2}, {"n": 1}]


async def test_a_chat_that_wrote_nothing_leaves_nothing_to_list(store: Any) -> None:
    id = new_id()
    with pytest.raises(ApprovalError):
        await Agent(ScriptedModel("ok"), store=store).resume(id, {"x": Approve()})
    assert id not in [info.id for info in await store.list(limit=1000)]
    assert texts(await store.open(id)) == []


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
async def test_a_stream_that_is_dropped_frees_its_conversation(store: Any, no_leaks: None) -> None:
    id = new_id()
    agent = Agent(ScriptedModel("one two three", "ok", delay=0.01), store=store)

    async def begin() -> None:
        stream = agent.chat_stream("go", conversation=id)
        await anext(stream)

    await begin()
    gc.collect()
    async with asyncio.timeout(60):
        while True:
            try:
                response = await agent.chat("on", conversation=id)
                break
            except ConversationBusyError:  # until the dropped one has ended
                await asyncio.sleep(0.01)
    assert response.text in ("ok", "one two three")


# ── accounts ────────────────────────────────────────────────────────────────────────────────


async def test_an_account_adds_up_until_it_is_at_its_limit(store: Any) -> None:
    account = new_id()
    assert await store.spend(account, 2, limit=0) is None
    assert await store.spend(account, 2, limit=3) == 2
    assert await store.spend(account, 2.5, limit=3) == 4.5  # it was below its limit
    assert await store.spend(account, 0.1, limit=3) is None
    assert await store.spend(account, 0.5) == 5
    assert await store.spend(account, -4, limit=None) == 1
    assert await store.spend(account, 1, limit=3) == 2
    assert await store.spend(new_id(), 1, limit=3) == 1


async def test_of_many_at_once_as_many_are_booked_as_the_limit_allows(store: Any) -> None:
    account = new_id()
    totals = await asyncio.gather(*[store.spend(account, 1, limit=5) for _ in range(20)])
    assert sorted(each for each in totals if each is not None) == [1, 2, 3, 4, 5]


# ── a part of the list ──────────────────────────────────────────────────────────────────────

PIECES = ["a", "b", "A", "%", "_", "/", "~", " ", "é", "字", "\ud7fb", "\uffe6", "😀", "-", "."]


@settings(max_examples=30, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    prefixes=st.lists(
        st.text(st.sampled_from(PIECES), min_size=1, max_size=4),
        min_size=2,
        max_size=3,
        unique=True,
    ),
    endings=st.lists(st.text(st.sampled_from(PIECES), max_size=3), min_size=1, max_size=6),
)
async def test_a_prefix_lists_exactly_the_conversations_that_begin_with_it(
    store: Any, prefixes: list[str], endings: list[str]
) -> None:
    mark = new_id()
    ids = {f"{mark}{prefix}{ending}" for prefix in prefixes for ending in endings}
    for id in sorted(ids):
        await write(store, id, user("x"))
    everything = [info.id for info in await store.list(prefix=mark, limit=1000)]
    assert set(everything) == ids
    for prefix in prefixes:
        part = [info.id for info in await store.list(prefix=mark + prefix, limit=1000)]
        assert part == [id for id in everything if id.startswith(mark + prefix)]


@pytest.mark.parametrize(
    ("prefix", "above"),
    [
        ("ada/", "ada0"),
        ("a\ud7ff", "a\ue000"),
        ("a\U0010ffff", "b"),
        ("\U0010ffff", None),
        ("", None),
    ],
    ids=["a slash", "before the surrogates", "the last point", "nothing is above", "all"],
)
def test_the_end_of_a_range_is_the_least_text_above_it(prefix: str, above: str | None) -> None:
    assert after_prefix(prefix) == above


async def test_a_prefix_is_a_range_of_an_index(store: Any) -> None:
    if not isinstance(store, SQLStore):
        pytest.skip("a store in memory has no index")
    await write(store, new_id(), user("x"))

    plans: list[str] = []

    def explain(connection: Any, cursor: Any, statement: str, parameters: Any, *rest: Any) -> None:
        if "hookline_conversation" not in statement or "EXPLAIN" in statement:
            return
        asked = "EXPLAIN QUERY PLAN"
        if connection.dialect.name == "postgresql":
            connection.exec_driver_sql("SET enable_seqscan = off")
            asked = "EXPLAIN"
        rows = connection.exec_driver_sql(f"{asked} {statement}", parameters).all()
        plans.append("\n".join(" ".join(map(str, row)) for row in rows))

    with statements(explain):
        await store.list(prefix="ada/")
    [text] = plans
    # The index of the prefix, or in SQLite the index of the primary key, which compares bytes too.
    if "SEARCH" in text:
        assert re.search(r"SEARCH hookline_conversation USING .* \(id>\? AND id<\?\)", text), text
    else:
        index = r"Index Scan using hookline_conversation_prefix .*\n *Index Cond: .* >= 'ada/'"
        assert re.search(index, text), text


async def test_the_approvals_of_a_prefix_are_listed(store: Any) -> None:
    mark = new_id()
    model = ScriptedModel(*[call("look", q=name) for name in "abcd"])
    agent = Agent(model, tools=[look], hooks={"preToolCall": lambda ctx: Ask("look?")})
    for name in ("ada/1", "ada/2", "ad", "eve/1"):
        await agent.chat("go", conversation=await store.open(f"{mark}{name}"))
    every = [request.conversation_id for request in await store.pending(prefix=mark)]
    assert sorted(every) == [f"{mark}{name}" for name in ("ad", "ada/1", "ada/2", "eve/1")]
    ours = [request.conversation_id for request in await store.pending(prefix=f"{mark}ada/")]
    assert ours == [f"{mark}ada/1", f"{mark}ada/2"]
    assert await store.pending(prefix=f"{mark}kim/") == ()


class _NoScan(dict[str, Any]):
    """Entries that can only be looked up by id."""

    def _refuse(self, *args: Any) -> Any:
        raise AssertionError("all entries were read")

    items = values = keys = __iter__ = _refuse


class _NoWalk(list[str]):
    """A sorted list that can be searched, but not walked through."""

    __iter__ = _NoScan._refuse


async def test_a_prefix_reads_no_other_conversation_in_memory() -> None:
    store = MemoryStore()
    for name in ("ada/1", "eve/1", "ada/2", "zoe/1"):
        await write(store, name, user("x"))
    assert await store.delete("ada/2")
    await write(store, "ada/3", user("x"))
    store._entries, store._ids = _NoScan(store._entries), _NoWalk(store._ids)
    assert sorted([info.id for info in await store.list(prefix="ada/")]) == ["ada/1", "ada/3"]
    assert await store.pending(prefix="ada/") == ()
