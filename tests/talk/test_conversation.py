"""Conversations in memory: one chat at a time, whole messages once, valid histories, repair."""

import asyncio
import contextlib
import gc
from collections.abc import Callable, Iterator
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hookline import (
    Agent,
    Approve,
    Ask,
    AssistantMessage,
    Conversation,
    Limits,
    LocalRuntime,
    MemoryStore,
    Message,
    Repair,
    Run,
    Text,
    ToolCall,
    ToolMessage,
    UserMessage,
    check_history,
    read_message,
    repair_history,
    tool,
)
from hookline._record.runtime import LOCAL
from hookline.errors import (
    ChatAbortedError,
    ConversationBusyError,
    HistoryError,
    UsageError,
)
from hookline.events import ChatStarted
from hookline.storage import Change
from hookline.testing import ScriptedModel, Turn, call, collect


class Boom(Exception):
    pass


@tool
async def look(q: str = "") -> str:
    """Look it up."""
    return f"found {q}"


def texts(conversation: Conversation) -> list[str]:
    return [message.text for message in conversation.messages]


def user(text: str, id: str = "") -> UserMessage:
    return UserMessage(id=id, parts=(Text(text),))


def assistant(text: str = "", *ids: str, id: str = "") -> AssistantMessage:
    calls = [ToolCall(id=each, name="look") for each in ids]
    return AssistantMessage(id=id, parts=(*([Text(text)] if text else []), *calls))


def result(call_id: str, text: str = "found", id: str = "") -> ToolMessage:
    return ToolMessage(id=id, call_id=call_id, name="look", text=text)


# ── messages kept across chats ──────────────────────────────────────────────────────────────


async def test_a_conversation_keeps_messages_across_chats() -> None:
    model = ScriptedModel("one", "two")
    conversation = Conversation()
    agent = Agent(model)
    await agent.chat("a", conversation=conversation)
    await agent.chat("b", conversation=conversation)
    assert texts(conversation) == ["a", "one", "b", "two"]
    assert [m.text for m in model.last_request.messages] == ["a", "one", "b"]


async def test_a_conversation_belongs_to_no_agent() -> None:
    conversation = Conversation()
    first, second = ScriptedModel("one"), ScriptedModel("two")
    await Agent(first).chat("a", conversation=conversation)
    await Agent(second).chat("b", conversation=conversation)
    assert [m.text for m in second.last_request.messages] == ["a", "one", "b"]


async def test_messages_are_the_same_tuple_until_a_commit() -> None:
    seen: list[bool] = []
    conversation = Conversation([user("old"), assistant("answer")])
    before = conversation.messages
    assert isinstance(before, tuple)
    assert conversation.messages is before
    agent = Agent(ScriptedModel("ok"))
    agent.add_hook("preMessage", lambda ctx: seen.append(conversation.messages is last[-1]))
    last = [before]
    agent.add_hook("onMessage", lambda ctx: last.append(conversation.messages))
    await agent.chat("hi", conversation=conversation)
    assert seen == [True, True]
    assert [len(messages) for messages in last] == [2, 3, 4]
    assert conversation.messages is last[-1]
    assert len(before) == 2


async def test_each_message_is_committed_once_and_in_order() -> None:
    conversation = Conversation()
    agent = Agent(ScriptedModel(["a", call("look", q="x")], "b"), tools=[look])
    response = await agent.chat("hi", conversation=conversation)
    assert conversation.messages == response.messages
    assert texts(conversation) == ["hi", "a", "found x", "b"]


def test_a_conversation_has_an_id_given_or_made() -> None:
    assert Conversation(id="c1").id == "c1"
    first, second = Conversation(), Conversation()
    assert first.id
    assert first.id != second.id


async def test_ChatStarted_names_the_conversation() -> None:
    conversation = Conversation(id="c1")
    events = await collect(Agent(ScriptedModel("ok")).chat_stream("hi", conversation=conversation))
    assert isinstance(events[0], ChatStarted)
    assert events[0].conversation_id == "c1"


# ── reset, restore, meta ────────────────────────────────────────────────────────────────────


async def test_reset_forgets_all_messages() -> None:
    model = ScriptedModel("one", "two")
    conversation = Conversation(id="c1")
    agent = Agent(model)
    await agent.chat("a", conversation=conversation)
    kept = conversation.messages
    conversation.reset()
    assert conversation.messages == ()
    assert conversation.id == "c1"
    await agent.chat("b", conversation=conversation)
    assert [m.text for m in model.last_request.messages] == ["b"]
    assert [m.text for m in kept] == ["a", "one"]


async def test_restore_begins_again_with_these_messages() -> None:
    conversation = Conversation()
    agent = Agent(ScriptedModel("one", "two", "three"))
    await agent.chat("a", conversation=conversation)
    checkpoint = conversation.messages
    await agent.chat("b", conversation=conversation)
    conversation.restore(checkpoint)
    assert conversation.messages == checkpoint
    await agent.chat("c", conversation=conversation)
    assert texts(conversation) == ["a", "one", "c", "three"]


def test_restore_copies_what_it_is_given() -> None:
    given_: list[Message] = [user("a")]
    conversation = Conversation()
    conversation.restore(given_)
    given_.append(user("b"))
    assert texts(conversation) == ["a"]


def test_a_conversation_copies_what_it_is_given() -> None:
    given_: list[Message] = [user("a")]
    conversation = Conversation(given_)
    given_.append(user("b"))
    assert texts(conversation) == ["a"]


def test_what_gives_the_messages_may_use_other_conversations() -> None:
    one, other = Conversation(), Conversation([user("here")])

    def moved() -> Iterator[Message]:
        yield from other.messages
        other.reset()

    one.restore(moved())
    assert [message.text for message in one.messages] == ["here"]
    assert other.messages == ()


def test_a_broken_history_is_not_restored_and_changes_nothing() -> None:
    conversation = Conversation([user("a")])
    before = conversation.messages
    with pytest.raises(HistoryError):
        conversation.restore([result("nobody")])
    assert conversation.messages is before


async def test_messages_come_back_from_their_JSON() -> None:
    """What a user stores on their own and restores later."""
    conversation = Conversation()
    agent = Agent(ScriptedModel(["a", call("look", q="x")], "b", "c"), tools=[look])
    await agent.chat("hi", conversation=conversation)
    lines = [message.to_json() for message in conversation.messages]
    again = Conversation([read_message(each) for each in lines])
    assert again.messages == conversation.messages
    assert (await agent.chat("more", conversation=again)).text == "c"


async def test_meta_is_kept_with_the_conversation() -> None:
    store = MemoryStore()
    agent = Agent(ScriptedModel("a", "b"), store=store)
    conversation = await store.open("c1")
    assert conversation.meta == {}
    conversation.meta["title"] = "greetings"
    await agent.chat("hi", conversation=conversation)
    assert (await store.open("c1")).meta == {"title": "greetings"}
    assert Conversation(meta={"k": 1}).meta == {"k": 1}


def test_two_conversations_do_not_share_their_meta() -> None:
    first, second = Conversation(), Conversation()
    first.meta["k"] = 1
    assert second.meta == {}


# ── by id: MemoryStore ──────────────────────────────────────────────────────────────────────


async def test_a_conversation_may_be_named_by_its_id() -> None:
    model = ScriptedModel("one", "two", "three")
    agent = Agent(model, store=MemoryStore())
    await agent.chat("a", conversation="c1")
    await agent.chat("b", conversation="c2")
    await agent.chat("c", conversation="c1")
    assert [m.text for m in model.last_request.messages] == ["a", "one", "c"]


async def test_two_agents_may_share_a_store() -> None:
    store = MemoryStore()
    second = ScriptedModel("two")
    await Agent(ScriptedModel("one"), store=store).chat("a", conversation="c1")
    await Agent(second, store=store).chat("b", conversation="c1")
    assert [m.text for m in second.last_request.messages] == ["a", "one", "b"]
    assert [info.id for info in await store.list()] == ["c1"]


async def test_a_store_gives_a_new_conversation_for_a_new_id() -> None:
    conversation = await MemoryStore().open("c1")
    assert (conversation.id, conversation.messages) == ("c1", ())


async def test_a_store_forgets_a_conversation() -> None:
    store = MemoryStore()
    agent = Agent(ScriptedModel("one", "two"), store=store)
    await agent.chat("a", conversation="c1")
    assert await store.delete("c1") is True
    assert await store.delete("c1") is False
    assert await store.list() == ()
    await agent.chat("b", conversation="c1")
    assert texts(await store.open("c1")) == ["b", "two"]


async def test_an_empty_id_is_refused() -> None:
    with pytest.raises(UsageError, match="empty"):
        await MemoryStore().open("")


async def test_an_id_without_a_store_is_refused_with_what_to_do() -> None:
    with pytest.raises(UsageError, match="store="):
        await Agent(ScriptedModel()).chat("hi", conversation="c1")


async def test_two_chats_by_one_id_are_on_one_conversation() -> None:
    agent = Agent(ScriptedModel("ok"), store=MemoryStore())

    async def hook(ctx: Any) -> None:
        with pytest.raises(ConversationBusyError):
            await agent.chat("second", conversation="c1")

    agent.add_hook("onChatStart", hook)
    await agent.chat("first", conversation="c1")


# ── one chat at a time ──────────────────────────────────────────────────────────────────────


class Waiting:
    """A model that tells when it is asked and answers when it is told to."""

    def __init__(self) -> None:
        self.asked = asyncio.Event()
        self.go = asyncio.Event()
        self.model = ScriptedModel(self.answer, "more")

    async def answer(self, request: Any) -> str:
        self.asked.set()
        await self.go.wait()
        return "done"


async def test_a_second_chat_is_refused_before_anything_changes() -> None:
    """No hook, no event, no write; the first goes on as if nothing had been."""
    out: list[str] = []
    waiting = Waiting()
    conversation = Conversation(id="c1")
    agent = Agent(waiting.model)
    first = asyncio.create_task(agent.chat("first", conversation=conversation))
    await waiting.asked.wait()
    before = conversation.messages
    agent.add_hook("onChatStart", lambda ctx: out.append("hook"))
    with agent.subscribe() as subscription:
        with pytest.raises(ConversationBusyError, match="c1") as caught:
            await agent.chat("second", conversation=conversation)
        assert (out, conversation.messages is before, conversation.busy) == ([], True, True)
        waiting.go.set()
        response = await first
        ids = {(await anext(subscription)).chat_id}
    assert ids == {response.chat_id} == {caught.value.chat_id}
    assert texts(conversation) == ["first", "done"]


async def test_a_second_stream_is_refused_when_it_is_read() -> None:
    waiting = Waiting()
    conversation = Conversation()
    agent = Agent(waiting.model)
    first = asyncio.create_task(agent.chat("first", conversation=conversation))
    await waiting.asked.wait()
    with pytest.raises(ConversationBusyError):
        await collect(agent.chat_stream("second", conversation=conversation))
    waiting.go.set()
    assert (await first).text == "done"


async def test_another_agent_is_refused_too() -> None:
    waiting = Waiting()
    conversation = Conversation()
    first = asyncio.create_task(Agent(waiting.model).chat("first", conversation=conversation))
    await waiting.asked.wait()
    with pytest.raises(ConversationBusyError):
        await Agent(ScriptedModel()).chat("second", conversation=conversation)
    waiting.go.set()
    await first


@pytest.mark.parametrize(
    "point",
    ["onChatStart", "preRequest", "onDelta", "onMessage", "onStep", "onChatDone", "onChatEnd"],
)
async def test_a_chat_from_a_hook_of_the_first_is_refused(point: Any) -> None:
    """Not a deadlock: an error."""
    errors: list[Exception] = []
    conversation = Conversation()
    agent = Agent(ScriptedModel("ok"))

    async def hook(ctx: Any) -> None:
        try:
            await agent.chat("inner", conversation=conversation)
        except ConversationBusyError as exc:
            errors.append(exc)

    agent.add_hook(point, hook)
    await agent.chat("outer", conversation=conversation)
    assert errors
    assert texts(conversation) == ["outer", "ok"]


async def test_a_chat_from_a_tool_of_the_first_is_refused_and_the_model_is_told() -> None:
    conversation = Conversation()

    @tool
    async def again() -> str:
        return (await agent.chat("inner", conversation=conversation)).text

    agent: Agent[Any] = Agent(ScriptedModel([call("again")], "ok"), tools=[again])
    response = await agent.chat("outer", conversation=conversation)
    result_ = response.messages[2]
    assert isinstance(result_, ToolMessage)
    assert result_.outcome == "error"
    assert "ConversationBusyError" in result_.text
    assert response.text == "ok"


async def test_a_chat_on_another_conversation_from_a_hook_is_fine() -> None:
    out: list[str] = []
    agent = Agent(ScriptedModel("inner", "outer"))

    async def hook(ctx: Any) -> None:
        if ctx.message.text == "outer?":
            out.append((await agent.chat("inner?", conversation=Conversation())).text)

    agent.add_hook("onChatStart", hook)
    assert (await agent.chat("outer?", conversation=Conversation())).text == "outer"
    assert out == ["inner"]


async def test_reset_and_restore_are_refused_while_a_chat_runs() -> None:
    conversation = Conversation()
    agent = Agent(ScriptedModel("ok"))
    errors: list[str] = []

    def hook(ctx: Any) -> None:
        for act in (conversation.reset, lambda: conversation.restore([user("x")])):
            try:
                act()
            except ConversationBusyError as exc:
                errors.append(type(exc).__name__)

    agent.add_hook("onStep", hook)
    await agent.chat("hi", conversation=conversation)
    assert errors == ["ConversationBusyError"] * 2
    assert texts(conversation) == ["hi", "ok"]


async def test_a_stream_that_was_never_read_holds_nothing() -> None:
    conversation = Conversation()
    agent = Agent(ScriptedModel("ok"))
    stream = agent.chat_stream("hi", conversation=conversation)
    assert not conversation.busy
    await stream.aclose()
    assert (await agent.chat("hi", conversation=conversation)).text == "ok"


# ── freed, whatever happens ─────────────────────────────────────────────────────────────────


async def next_chat(conversation: Conversation) -> None:
    """The conversation is free, valid, and takes the next turn."""
    assert not conversation.busy
    check_history(conversation.messages)
    before = len(conversation.messages)
    agent = Agent(ScriptedModel("fine"))
    assert (await agent.chat("again", conversation=conversation)).text == "fine"
    assert len(conversation.messages) == before + 2


CRASHES = [
    "onChatStart",
    "preChat",
    "preMessage",
    "onMessage",
    "preRequest",
    "onDelta",
    "onResponse",
    "preToolCall",
    "onToolCallResult",
    "onStep",
    "preStop",
    "onChatDone",
]


@pytest.mark.parametrize("point", CRASHES)
async def test_a_crash_of_a_hook_frees_it(point: Any) -> None:
    conversation = Conversation()
    agent = Agent(ScriptedModel(["a", call("look")], "ok"), tools=[look])

    def boom(ctx: Any) -> None:
        raise Boom

    agent.add_hook(point, boom)
    with pytest.raises(Boom):
        await agent.chat("hi", conversation=conversation)
    await next_chat(conversation)


@pytest.mark.parametrize("point", ["aroundChat", "aroundRequest", "aroundToolCall"])
@pytest.mark.parametrize("when", ["before", "after"])
async def test_a_crash_of_a_wrapper_frees_it(point: Any, when: str) -> None:
    conversation = Conversation()
    agent = Agent(ScriptedModel(["a", call("look")], "ok"), tools=[look])

    async def boom(ctx: Any, proceed: Any) -> Any:
        if when == "after":
            await proceed()
        raise Boom

    agent.add_hook(point, boom)
    with pytest.raises(Boom):
        await agent.chat("hi", conversation=conversation)
    await next_chat(conversation)


@pytest.mark.parametrize(
    "turn",
    [
        pytest.param(Boom(), id="before-the-first-chunk"),
        pytest.param(Turn("a", "b", fail=Boom()), id="in-mid-text"),
        pytest.param(Turn("a", call("look"), fail=Boom()), id="after-a-call"),
    ],
)
async def test_a_crash_of_the_model_frees_it(turn: Any) -> None:
    conversation = Conversation()
    with pytest.raises(Boom):
        await Agent(ScriptedModel(turn), tools=[look]).chat("hi", conversation=conversation)
    assert texts(conversation)[0] == "hi"  # nothing is rolled back
    await next_chat(conversation)


async def test_a_partial_answer_is_kept_and_marked() -> None:
    conversation = Conversation()
    agent = Agent(ScriptedModel(Turn("a", "b", fail=Boom())))
    with pytest.raises(Boom):
        await agent.chat("hi", conversation=conversation)
    message = conversation.messages[-1]
    assert isinstance(message, AssistantMessage)
    assert (message.text, message.partial) == ("ab", True)


async def test_an_abort_frees_it() -> None:
    conversation = Conversation()
    agent = Agent(ScriptedModel(["a", call("look")]), tools=[look])

    def abort(ctx: Any) -> None:
        ctx.run.abort()

    agent.add_hook("preToolCall", abort)
    with pytest.raises(ChatAbortedError):
        await agent.chat("hi", conversation=conversation)
    await next_chat(conversation)


async def test_a_cancelled_caller_frees_it() -> None:
    conversation = Conversation()
    waiting = Waiting()
    agent = Agent(waiting.model, limits=Limits(grace=0.05))
    task = asyncio.create_task(agent.chat("hi", conversation=conversation))
    await waiting.asked.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    await next_chat(conversation)


async def test_a_reader_that_leaves_frees_it() -> None:
    conversation = Conversation()
    agent = Agent(ScriptedModel(Turn("a", "b", "c")))
    async with agent.chat_stream("hi", conversation=conversation) as stream:
        async for _ in stream:
            break
    await next_chat(conversation)


async def test_a_collected_stream_frees_it() -> None:
    conversation = Conversation()
    freed = asyncio.Event()
    waiting = Waiting()
    agent = Agent(waiting.model, limits=Limits(grace=0.05))
    agent.add_hook("onChatAbort", lambda ctx: freed.set())
    streams = [agent.chat_stream("hi", conversation=conversation)]
    await anext(streams[0])
    await waiting.asked.wait()
    assert conversation.busy

    def drop() -> None:
        streams.clear()
        gc.collect()

    with pytest.warns(ResourceWarning, match="dropped"):
        drop()
    await freed.wait()
    for _ in range(50):
        if not conversation.busy:
            break
        await asyncio.sleep(0)
    await next_chat(conversation)


async def test_a_tool_that_ignores_cancellation_holds_it_for_the_grace_period_alone() -> None:
    conversation = Conversation()
    release = asyncio.Event()
    left = asyncio.Event()

    @tool
    async def stubborn(run: Run[Any]) -> str:
        run.abort("enough")
        while not release.is_set():
            with contextlib.suppress(asyncio.CancelledError):
                await release.wait()
        left.set()
        return "at last"

    agent = Agent(
        ScriptedModel([call("stubborn", call_id="c")]), tools=[stubborn], limits=Limits(grace=0.05)
    )
    with pytest.raises(ChatAbortedError):
        await agent.chat("hi", conversation=conversation)
    await next_chat(conversation)
    kept = conversation.messages
    release.set()
    await left.wait()
    for _ in range(50):
        await asyncio.sleep(0)
    assert conversation.messages is kept  # what was left behind writes nothing


# ── what a history must be ──────────────────────────────────────────────────────────────────

BROKEN: list[Any] = [
    pytest.param([user("a"), assistant("b", "c1")], "c1", id="orphan-call-at-the-end"),
    pytest.param([assistant("b", "c1"), user("a")], "c1", id="orphan-call"),
    pytest.param([assistant("b", "c1", "c2"), result("c1")], "c2", id="one-of-two"),
    pytest.param([user("a"), result("c1")], "c1", id="orphan-result"),
    pytest.param([result("c1"), assistant("", "c1")], "c1", id="result-before-its-call"),
    pytest.param(
        [assistant("", "c1"), user("a"), result("c1")], "c1", id="result-not-right-behind"
    ),
    pytest.param([assistant("", "c1"), result("c1"), result("c1")], "c1", id="second-result"),
    pytest.param([assistant("", "c1", "c1"), result("c1")], "c1", id="two-calls-of-one-id"),
    pytest.param([user("a", id="m1"), assistant("b", id="m1")], "m1", id="repeated-message"),
]


@pytest.mark.parametrize(("messages", "named"), BROKEN)
def test_a_broken_history_is_refused_where_the_conversation_is_made(
    messages: list[Message], named: str
) -> None:
    """Orphan call, orphan result, duplicate: a clear error that names it and the way out."""
    with pytest.raises(HistoryError) as caught:
        Conversation(messages)
    assert caught.value.problems
    assert any(named in problem for problem in caught.value.problems)
    assert "repair_history" in str(caught.value)


def test_all_that_is_wrong_is_listed() -> None:
    with pytest.raises(HistoryError) as caught:
        Conversation([result("c0"), assistant("", "c1"), user("a", id="m"), user("b", id="m")])
    assert len(caught.value.problems) == 3


VALID: list[Any] = [
    pytest.param([], id="empty"),
    pytest.param([user("a")], id="user-alone"),
    pytest.param([user("a"), user("b")], id="two-users"),
    pytest.param([assistant("a")], id="assistant-first"),
    pytest.param([assistant("", "c1"), result("c1")], id="call-and-result"),
    pytest.param([assistant("", "c1", "c2"), result("c2"), result("c1")], id="in-any-order"),
    pytest.param(
        [assistant("", "c1"), result("c1"), assistant("", "c1"), result("c1")],
        id="an-id-again-in-a-later-step",
    ),
    pytest.param([user("a", id="m1"), assistant("b", id="m2")], id="ids"),
]


@pytest.mark.parametrize("messages", VALID)
def test_a_valid_history_is_taken_as_it_is(messages: list[Message]) -> None:
    assert Conversation(messages).messages == tuple(messages)


@pytest.mark.parametrize("messages", VALID)
def test_a_valid_history_needs_no_repair(messages: list[Message]) -> None:
    assert repair_history(messages) == Repair(messages=tuple(messages), actions=())


@pytest.mark.parametrize("messages", VALID)
async def test_a_chat_goes_on_from_a_valid_history_with_a_valid_request(
    messages: list[Message],
) -> None:
    model = ScriptedModel("ok")
    await Agent(model).chat("hi", conversation=Conversation(messages))
    check_history(model.last_request.messages)


# ── repair ──────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(("messages", "named"), BROKEN)
def test_repair_mends_it_and_says_what_it_did(messages: list[Message], named: str) -> None:
    repaired = repair_history(messages)
    check_history(repaired.messages)
    assert repaired.actions
    assert all(named in action or "moved" in action for action in repaired.actions)


def test_a_missing_result_is_written_and_says_that_the_call_may_have_run() -> None:
    repaired = repair_history([user("a"), assistant("b", "c1"), user("next")])
    written = repaired.messages[2]
    assert isinstance(written, ToolMessage)
    assert (written.call_id, written.name, written.outcome) == ("c1", "look", "aborted")
    assert "interrupted" in written.text
    assert "may have run" in written.text
    assert repaired.messages[3].text == "next"


def test_a_result_that_came_late_is_moved_behind_its_call() -> None:
    messages = [assistant("", "c1"), user("a"), result("c1", "late")]
    repaired = repair_history(messages)
    assert repaired.messages == (messages[0], messages[2], messages[1])


def test_orphan_results_are_left_out() -> None:
    repaired = repair_history([user("a"), result("c1"), assistant("b")])
    assert [m.role for m in repaired.messages] == ["user", "assistant"]


def test_the_first_of_two_results_is_kept() -> None:
    repaired = repair_history([assistant("", "c1"), result("c1", "first"), result("c1", "second")])
    assert [m.text for m in repaired.messages] == ["", "first"]


def test_a_repeated_message_is_left_out() -> None:
    messages = [user("a", id="m1"), assistant("b", id="m2"), user("a", id="m1")]
    assert repair_history(messages).messages == tuple(messages[:2])


IDS = st.sampled_from(["", "", "m1", "m2", "m3"])
CALL_IDS = st.sampled_from(["c1", "c2", "c3"])
MESSAGES: st.SearchStrategy[list[Message]] = st.lists(
    st.one_of(
        st.builds(user, st.sampled_from("ab"), IDS),
        st.builds(
            lambda ids, id, text: assistant(text, *ids, id=id),
            st.lists(CALL_IDS, max_size=3),
            IDS,
            st.sampled_from("xy"),
        ),
        st.builds(result, CALL_IDS, st.sampled_from(["r1", "r2"]), IDS),
        st.builds(result, CALL_IDS, st.sampled_from(["r1", "r2"])),
    ),
    max_size=12,
)


def is_valid(messages: list[Message]) -> bool:
    try:
        check_history(messages)
    except HistoryError:
        return False
    return True


@settings(max_examples=400)
@given(MESSAGES)
def test_whatever_was_broken_repair_makes_it_valid(messages: list[Message]) -> None:
    repaired = repair_history(messages)
    check_history(repaired.messages)
    assert Conversation(repaired.messages).messages == repaired.messages


@settings(max_examples=200)
@given(MESSAGES)
def test_repair_is_deterministic_and_leaves_its_input_alone(messages: list[Message]) -> None:
    before = list(messages)
    copy: list[Message] = msgspec.json.decode(
        msgspec.json.encode(messages), type=list[UserMessage | AssistantMessage | ToolMessage]
    )
    assert repair_history(messages) == repair_history(copy) == repair_history(tuple(messages))
    assert messages == before


@settings(max_examples=200)
@given(MESSAGES)
def test_repair_is_idempotent(messages: list[Message]) -> None:
    repaired = repair_history(messages)
    assert repair_history(repaired.messages) == Repair(messages=repaired.messages, actions=())


@settings(max_examples=400)
@given(MESSAGES)
def test_repair_reports_exactly_when_it_changed_something(messages: list[Message]) -> None:
    repaired = repair_history(messages)
    assert (repaired.messages == tuple(messages)) == (repaired.actions == ())


@settings(max_examples=400)
@given(MESSAGES)
def test_repair_touches_nothing_exactly_when_the_history_was_valid(messages: list[Message]) -> None:
    assert (repair_history(messages).actions == ()) == is_valid(messages)


@settings(max_examples=200)
@given(MESSAGES)
def test_repair_loses_no_message_of_user_or_assistant_but_repeated_ones(
    messages: list[Message],
) -> None:
    def said(of: Any) -> list[Any]:
        seen: set[str] = set()
        out = []
        for message in of:
            if message.id and message.id in seen:
                continue
            seen.add(message.id)
            if message.role != "tool":
                out.append((message.role, message.id, message.text))
        return out

    assert said(repair_history(messages).messages) == said(messages)


@settings(max_examples=100)
@given(MESSAGES)
def test_a_chat_goes_on_from_what_repair_made(messages: list[Message]) -> None:
    async def chat() -> None:
        model = ScriptedModel([call("look")], "ok")  # it refuses a request that is not valid
        conversation = Conversation(repair_history(messages).messages)
        await Agent(model, tools=[look]).chat("hi", conversation=conversation)
        check_history(conversation.messages)

    asyncio.run(chat())


# ── any chat leaves a valid history ─────────────────────────────────────────────────────────

Breaker = Callable[[Any], None]
POINTS = [
    *("onChatStart", "preChat", "preMessage", "onMessage", "preRequest", "onDelta", "onResponse"),
    *("preToolCall", "onToolCallResult", "onToolCallError", "onStep", "preStop", "onChatDone"),
]


@settings(max_examples=150)
@given(
    point=st.sampled_from(POINTS),
    at=st.integers(0, 5),
    how=st.sampled_from(["raise", "abort"]),
    script=st.lists(
        st.lists(st.sampled_from(["text", "look", "fails", "nobody"]), max_size=3), max_size=3
    ),
)
def test_however_a_chat_ends_its_history_is_valid_and_free(
    point: Any, at: int, how: str, script: list[list[str]]
) -> None:
    """I1, I6: at whatever dispatch of whatever point it is broken off."""

    @tool
    async def fails() -> str:
        raise Boom

    async def chat() -> None:
        turns: list[Any] = [
            [kind if kind == "text" else call(kind) for kind in turn] for turn in script
        ]
        agent = Agent(ScriptedModel(*turns, "ok", "ok", "ok"), tools=[look, fails])
        left = [at]

        def breaker(ctx: Any) -> None:
            left[0] -= 1
            if left[0] == -1:
                if how == "raise":
                    raise Boom
                ctx.run.abort("enough")

        agent.add_hook(point, breaker)
        conversation = Conversation()
        (ended,) = await asyncio.gather(
            agent.chat("hi", conversation=conversation), return_exceptions=True
        )
        assert not isinstance(ended, HistoryError)
        ids = [m.id for m in conversation.messages]
        assert len(set(ids)) == len(ids)
        agent.bus.clear()
        await next_chat(conversation)

    asyncio.run(chat())


# ── as JSON ─────────────────────────────────────────────────────────────────────────────────


async def test_a_conversation_is_exported_and_imported_as_json() -> None:
    agent = Agent(ScriptedModel(["Look.", call("look", q="x")], "Done.", "More."), tools=[look])
    talk = Conversation(meta={"title": "é", "n": [1, None]})
    await agent.chat("hi \x00 \u2028 😀", conversation=talk)
    again = Conversation.from_json(talk.to_json())
    assert (again.id, again.messages, again.meta) == (talk.id, talk.messages, talk.meta)
    assert again.to_json() == talk.to_json()
    await agent.chat("on", conversation=again)
    assert texts(again)[-2:] == ["on", "More."]
    assert Conversation.from_json(talk.to_json().decode(), id="copy").id == "copy"


async def test_what_waits_is_exported_too() -> None:
    ran: list[str] = []

    async def delete(path: str) -> str:
        ran.append(path)
        return "gone"

    agent: Agent[Any] = Agent(ScriptedModel(call("delete", path="a"), "Done."), tools=[delete])
    agent.add_hook("preToolCall", lambda ctx: Ask("sure?"))
    talk = Conversation()
    (request,) = (await agent.chat("go", conversation=talk)).pending
    again = Conversation.from_json(talk.to_json())
    assert again.pending == (request,)
    assert (await agent.resume(again, {request.id: Approve()})).text == "Done."
    assert ran == ["a"]


async def test_an_export_from_the_middle_of_a_step_is_closed_on_import() -> None:
    exports: list[bytes] = []
    talk = Conversation()

    async def peek(q: str) -> str:
        exports.append(talk.to_json())
        return "peeked"

    await Agent(ScriptedModel(call("peek", q="x"), "Done."), tools=[peek]).chat(
        "go", conversation=talk
    )
    again = Conversation.from_json(exports[0])
    lost = again.messages[-1]
    assert isinstance(lost, ToolMessage)
    assert (lost.outcome, "may have run" in lost.text) == ("aborted", True)
    await Agent(ScriptedModel("ok")).chat("on", conversation=again)


@pytest.mark.parametrize(
    ("data", "says"),
    [
        ("", "must be JSON from Conversation"),
        ("{", "must be JSON from Conversation"),
        ("[]", "must be JSON from Conversation"),
        ('{"id": "c", "messages": []}', "hookline"),
        ('{"hookline": 2, "id": "c", "messages": []}', "format 2"),
        ('{"hookline": 1, "id": "c", "messages": [{"role": "oracle"}]}', "oracle"),
    ],
)
def test_what_is_no_exported_conversation_is_refused(data: str, says: str) -> None:
    with pytest.raises(UsageError, match=says):
        Conversation.from_json(data)


def test_an_import_with_a_broken_history_is_refused() -> None:
    data = msgspec.json.decode(Conversation([user("a", "m")]).to_json())
    data["messages"] *= 2
    with pytest.raises(HistoryError, match="twice"):
        Conversation.from_json(msgspec.json.encode(data))


async def test_a_conversation_in_no_store_is_not_saved() -> None:
    with pytest.raises(UsageError, match="save\\(store\\)"):
        await Conversation().save()


# ── an earlier life of the same chat ────────────────────────────────────────────────────────


class SameId(LocalRuntime):
    """A durable runtime that begins the same chat again."""

    life = "2"

    def new_id(self) -> str:
        return "the-chat"


def looking(runtime: Any = LOCAL, **options: Any) -> Agent[Any]:
    model = ScriptedModel(call("look", q="x"), "Done.")
    return Agent(model, tools=[look], runtime=runtime, **options)


@pytest.mark.parametrize("lived", range(5))
async def test_a_second_life_on_a_store_writes_nothing_twice(lived: int) -> None:
    """The first life died after some messages; the second does it all again, under the same id."""
    store = MemoryStore()
    await Agent(ScriptedModel("before")).chat("old", conversation=await store.open("c"))
    whole = Conversation((await store.open("c")).messages)
    await looking(SameId()).chat("go", conversation=whole)
    version = await store.acquire("c", "the-chat/1")
    for place in range(2, 2 + lived):
        message = whole.messages[place]
        change = Change(owner="the-chat/1", expected=version, place=place, messages=(message,))
        version = await store.append("c", change)
    told: list[str] = []
    second = looking(SameId(), store=store)
    second.add_hook("onMessage", lambda ctx: told.append(ctx.message.role))
    assert (await second.chat("go", conversation="c")).text == "Done."
    assert (await store.open("c")).messages == whole.messages
    assert told == ["user", "assistant", "tool", "assistant"]
    await looking(store=store).chat("on", conversation="c")
