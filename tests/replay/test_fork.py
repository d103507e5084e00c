"""A fork goes on live from a step of a record, and nothing before that step happens again."""

import pytest
from tests.replay.scenes import logged_scenes

from hookline import (
    Agent,
    AssistantMessage,
    MemoryStore,
    Text,
    ToolCall,
    ToolMessage,
    UserMessage,
    define_hook,
)
from hookline.errors import UsageError
from hookline.replay import Record, fork, record_of_log, records_of
from hookline.testing import ScriptedModel, call

RUNS = []


async def pay(amount: int) -> str:
    """Pay."""
    RUNS.append(amount)
    return f"paid {amount}"


async def recorded():
    """A store with a conversation of two chats, and the record of the second: two calls, a text."""
    store = MemoryStore()
    turns = ["Hello.", call("pay", amount=1), call("pay", amount=2), "Done."]
    agent = Agent(ScriptedModel(*turns), tools=[pay], store=store)
    await agent.chat("Hi", conversation="desk")
    await agent.chat("Pay.", conversation="desk")
    RUNS.clear()
    stored = await store.load("desk")
    return store, records_of(stored.messages, id="desk")[1]


@pytest.mark.parametrize(
    ("step", "kept"),
    [
        (0, ["Pay."]),
        (1, ["Pay.", "", "paid 1"]),
        (2, ["Pay.", "", "paid 1", "", "paid 2"]),
    ],
)
async def test_a_fork_goes_on_from_each_step_and_runs_no_recorded_tool_again(step, kept):
    _, record = await recorded()
    model = ScriptedModel(call("pay", amount=9), "Other.")
    conversation = fork(record, step=step)
    response = await Agent(model, tools=[pay]).chat(None, conversation=conversation)
    assert response.text == "Other."
    assert RUNS == [9]
    seen = [message.text for message in model.requests[0].messages]
    assert seen == ["Hi", "Hello.", *kept]
    assert conversation.messages[: len(seen)] == (*record.before, *record.messages[: len(kept)])


async def test_the_store_and_the_record_stay_as_they_are():
    store, record = await recorded()
    before = (await store.load("desk"), [repr(each) for each in record.messages])
    conversation = fork(record, step=1)
    other = Agent(ScriptedModel("Other."), tools=[pay], store=store)
    await other.chat(None, conversation=conversation)
    assert (await store.load("desk"), [repr(m) for m in record.messages]) == before
    assert conversation.id not in {info.id for info in await store.list()} | {"desk"}
    assert fork(record, step=1).id != conversation.id


async def test_a_hook_of_the_fork_sees_only_the_later_steps():
    _, record = await recorded()
    seen = []

    @define_hook("preToolCall")
    def watch(ctx):
        seen.append(ctx.call.arguments["amount"])

    agent = Agent(ScriptedModel(call("pay", amount=2), "Done."), tools=[pay])
    await agent.chat(None, conversation=fork(record, step=1), hooks=[watch])
    assert seen == [2]


async def test_the_log_of_a_durable_chat_can_be_forked_at_each_of_its_steps():
    logs, _ = await logged_scenes(20)
    forked = 0
    for id, batches in logs.items():
        record = record_of_log(id, batches)
        assert record.messages[0] == record.message
        for step in range(len(record.answers)):
            conversation = fork(record, step=step)
            answers = [m for m in conversation.messages if isinstance(m, AssistantMessage)]
            assert len(answers) == step
            calls = {each.id for answer in answers for each in answer.tool_calls}
            results = {m.call_id for m in conversation.messages if isinstance(m, ToolMessage)}
            assert calls == results
            model = ScriptedModel("Other.")
            response = await Agent(model).chat(None, conversation=conversation)
            assert response.text == "Other."
            forked += 1
    assert forked > 20


async def test_a_step_that_is_not_there_is_an_error_that_names_those_that_are():
    _, record = await recorded()
    with pytest.raises(UsageError, match=r"step=4 is not in the record .* from 0 to 2$"):
        fork(record, step=4)
    with pytest.raises(UsageError, match="step=-1 must be a whole number of at least 0"):
        fork(record, step=-1)
    with pytest.raises(UsageError, match="step=3, because the chat ended there; pass an earlier"):
        fork(record, step=3)


def said(role, *parts):
    return role(parts=parts)


def test_a_record_that_lacks_messages_is_an_error():
    first = said(UserMessage, Text("Pay."))
    bare = Record(id="bare", source="log", message=first)
    with pytest.raises(UsageError, match="because the record lacks the first messages"):
        fork(bare, step=0)
    continued = Record(
        id="late",
        source="log",
        message=first,
        messages=(said(AssistantMessage, Text("Go on.")), first),
    )
    with pytest.raises(UsageError, match="because the record lacks the first messages"):
        fork(continued, step=1)
    answer = said(AssistantMessage, ToolCall(id="c1", name="pay", arguments={"amount": 1}))
    own = (first, answer, said(UserMessage, Text("And?")), said(AssistantMessage, Text("No.")))
    unfinished = Record(id="open", source="log", message=first, messages=own)
    with pytest.raises(UsageError, match="step=1, because its messages are not complete"):
        fork(unfinished, step=1)
    assert [each.text for each in fork(unfinished, step=0).messages] == ["Pay."]
