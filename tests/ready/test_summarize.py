"""`summarize`: old messages become a summary in requests, and history stays whole."""

import logging

import msgspec
import pytest
from tests._otlp import pipeline
from tests._recording import USAGE, Model, ask, live

from hookline import (
    Agent,
    Approve,
    Ask,
    AssistantMessage,
    Conversation,
    MessageChanges,
    Text,
    Usage,
    UserMessage,
    check_history,
    tool,
)
from hookline.errors import ModelError, UsageError
from hookline.events import Status
from hookline.hooks import budget, summarize
from hookline.testing import ScriptedModel, Turn, call, collect

HEAD = "Summary of the conversation so far:\n"


def talker(*summaries, turns=9, when=3, **options):
    """An agent that says `A<n>` to anything, and the model that summarizes for it."""
    writer = ScriptedModel(*summaries)
    model = ScriptedModel(*[f"A{n}" for n in range(turns)])
    options = {"count": lambda message: 1, "keep": 1, **options}
    return Agent(model, hooks=[summarize(when, by=writer, **options)]), model, writer


async def say(agent, conversation, *texts):
    for text in texts:
        response = await agent.chat(text, conversation=conversation)
    return response


def sent(model):
    return [message.text for message in model.requests[-1].messages]


async def test_old_messages_become_a_summary_and_history_stays_whole():
    agent, model, writer = talker("They said 0 and 1.")
    conversation = Conversation()
    await say(agent, conversation, "0", "1", "2")
    assert sent(model) == [f"{HEAD}They said 0 and 1.\n\n2"]
    assert [m.text for m in conversation.messages] == ["0", "A0", "1", "A1", "2", "A2"]
    assert sent(writer) == ["user: 0\n\nassistant: A0\n\nuser: 1\n\nassistant: A1"]


async def test_it_changes_only_when_the_threshold_is_passed_again():
    agent, model, writer = talker("One.", "Two.")
    conversation = Conversation()
    await say(agent, conversation, "0", "1", "2", "3")
    assert sent(model) == [f"{HEAD}One.\n\n2", "A2", "3"]
    assert writer.calls == 1
    await say(agent, conversation, "4")
    assert sent(model) == [f"{HEAD}Two.\n\n4"]
    assert sent(writer)[0].startswith(f"user: {HEAD}One.")


async def test_another_process_has_the_summary_and_a_fork_has_not():
    agent, model, writer = talker("One.", "Again.")
    conversation = Conversation()
    await say(agent, conversation, "0", "1", "2")
    again = Conversation.from_json(conversation.to_json())
    await say(agent, again, "3")
    assert (sent(model)[0], writer.calls) == (f"{HEAD}One.\n\n2", 1)
    await say(agent, Conversation(conversation.messages), "3")
    assert writer.calls == 2


@pytest.mark.parametrize("change", ["update", "reset", "restore"])
async def test_what_changes_the_covered_messages_makes_it_invalid(change):
    agent, model, writer = talker("One.", "New.")
    conversation = Conversation()
    await say(agent, conversation, "0", "1", "2")
    if change == "update":
        first = conversation.messages[0].id
        await agent.update_message(conversation, first, MessageChanges(text="zero"))
        await say(agent, conversation, "3")
        assert "zero" in sent(writer)[0]
    elif change == "reset":
        conversation.reset()
        await say(agent, conversation, "3")
        assert sent(model) == ["3"]
    else:
        conversation.restore(conversation.messages[2:])
        await say(agent, conversation, "3")
        assert sent(writer)[0].startswith("user: 1")


async def test_calls_and_results_are_never_parted():
    @tool
    async def look(n: int) -> int:
        return n

    model = ScriptedModel(*[call("look", n=n) for n in range(6)], "done")
    hooks = [summarize(3, by=ScriptedModel(*["So far."] * 9), count=lambda m: 1, keep=2)]
    agent = Agent(model, tools=[look], hooks=hooks)
    response = await agent.chat("go")
    assert response.text == "done"
    for request in model.requests:
        check_history(request.messages)
    assert sent(model)[0] == f"{HEAD}So far."
    assert len(model.requests[-1].messages) == 3


async def test_its_tokens_count_and_are_told():
    used = Usage(input_tokens=90, output_tokens=10)
    model = ScriptedModel("A0", "A1", "never")
    writer = ScriptedModel(Turn(text="So far.", usage=used), name="writer")
    hooks = [budget(tokens=10**6), summarize(2, by=writer, count=lambda m: 1, keep=1)]
    agent = Agent(model, hooks=hooks)
    conversation = Conversation()
    await agent.chat("0", conversation=conversation)
    events = await collect(agent.chat_stream("1", conversation=conversation))
    assert events[-1].response.usage.total_tokens >= 100
    (told,) = [event for event in events if isinstance(event, Status)]
    data = {"messages": 2, "tokens": 100, "model": "writer", "usage": msgspec.to_builtins(used)}
    assert (told.type, told.data) == ("summarized", data)


@pytest.mark.parametrize("answer", [ModelError("down"), " "], ids=["raises", "says nothing"])
async def test_a_summary_that_fails_leaves_the_whole_history(answer, caplog):
    agent, model, _ = talker(answer)
    conversation = Conversation()
    response = await say(agent, conversation, "0", "1", "2")
    assert (response.text, sent(model)) == ("A2", ["0", "A0", "1", "A1", "2"])
    lines = [r.getMessage() for r in caplog.records if r.levelno >= logging.WARNING]
    assert [line for line in lines if "whole history is sent" in line]


async def test_without_another_the_model_of_the_chat_summarizes():
    model = ScriptedModel("A0", "So far.", "A1")
    agent = Agent(model, hooks=[summarize(lambda messages: len(messages) > 2, keep=1)])
    conversation = Conversation()
    await say(agent, conversation, "0", "1")
    assert sent(model) == [f"{HEAD}So far.\n\n1"]


@pytest.mark.parametrize("wrong", [(0, 6), (9, 0)], ids=["when", "keep"])
def test_numbers_below_1_are_refused(wrong):
    with pytest.raises(UsageError, match="summarize"):
        summarize(wrong[0], keep=wrong[1])


# ── under a durable runtime, beside a question, in a trace ──────────────────────────────────


def durable(runtime, note):
    """Two steps, each of which is begun with a longer history; the first one is summarized."""
    writer = Model(lambda text: note(f"writer {text}"), ["They talked."])
    agent = Agent(
        Model(note, *[[("c1", "look", {})], ["Done."]][-2:]),
        tools=[tool(look, idempotent=True)],
        hooks=[summarize(2, by=writer, keep=1, count=lambda message: 1), budget(tokens=10**6)],
        runtime=runtime,
    )
    agent.add_hook("preRequest", lambda ctx: note(f"sent {[m.text for m in ctx.request.messages]}"))
    return agent, ask("Look.")


async def look() -> str:
    return "seen"


def spoken():
    """A conversation with more in it than is sent."""
    said = [UserMessage(id="u", parts=(Text("0"),)), AssistantMessage(id="a", parts=(Text("A0"),))]
    return Conversation(said, id="conv")


async def test_its_model_call_is_a_part_of_a_recorded_step():
    """Killed after each line of its record, a chat is summarized once, and counts it once."""
    whole = await live(durable, conversation=spoken())
    assert whole.ran("writer ") == ["writer model 0"]
    assert whole.response.usage == USAGE + USAGE + USAGE
    kept = whole.conversation.meta
    request = [line.get("end") for line in whole.journal].index("step/0/request")
    for cut in range(len(whole.journal)):
        after = await live(durable, whole.journal[:cut], conversation=spoken())
        assert after.ran("writer ") == ([] if cut > request else ["writer model 0"])
        assert (after.response, after.conversation.meta) == (whole.response, kept)
    assert kept["hookline.summary"]["upto"] == "a"


async def test_a_step_that_waits_is_never_parted_from_its_calls():
    writer = ScriptedModel(*["So far."] * 9)
    model = ScriptedModel("A0", call("look", call_id="c1"), "A1", call("look", call_id="c2"), "A2")
    agent = Agent(
        model, tools=[tool(look)], hooks=[summarize(2, by=writer, keep=1, count=lambda m: 1)]
    )
    agent.add_hook("preToolCall", lambda ctx: Ask("?"))
    talk = Conversation()
    await agent.chat("0", conversation=talk)
    for text in ("1", "2"):
        asked = await agent.chat(text, conversation=talk)
        assert asked.stop_reason == "approval"
        summary = talk.meta["hookline.summary"]
        waiting = next(m for m in talk.messages if m.id == summary["upto"])
        assert not getattr(waiting, "tool_calls", ())
        answers = {request.id: Approve() for request in asked.pending}
        again = Conversation.from_json(talk.to_json())  # another process goes on with it
        response = await agent.resume(again, answers)
        check_history(model.requests[-1].messages)
        texts = [message.text for message in model.requests[-1].messages]
        assert texts[0].startswith(HEAD)
        assert texts[-1] == "seen"
        talk = again
    assert response.text == "A2"


async def test_a_budget_counts_what_a_summary_costs():
    used = Usage(input_tokens=900, output_tokens=100)
    model = ScriptedModel("A0", call("look"), "never")
    writer = ScriptedModel(Turn(text="So far.", usage=used))
    hooks = [budget(tokens=500), summarize(2, by=writer, count=lambda m: 1, keep=1)]
    agent = Agent(model, tools=[tool(look)], hooks=hooks)
    talk = Conversation()
    await agent.chat("0", conversation=talk)
    assert (await agent.chat("1", conversation=talk)).stop_reason == "tokens_limit"


async def test_its_model_call_has_a_span_below_that_of_the_chat():
    with pipeline() as otlp:
        writer = ScriptedModel("So far.")
        hooks = [summarize(2, by=writer, count=lambda m: 1, keep=1)]
        agent = Agent(
            ScriptedModel("A0", "A1"), name="talker", hooks=hooks, telemetry=otlp.telemetry()
        )
        talk = Conversation()
        await agent.chat("0", conversation=talk)
        await agent.chat("1", conversation=talk)
        received = otlp.flush()
    assert received.tree()[2:] == [
        "invoke_agent talker",
        "  invoke_agent summarize",
        "    chat scripted",
        "  chat scripted",
    ]


async def test_a_tail_larger_than_the_limit_does_not_cause_a_summary_at_each_step():
    """The messages that must stay are too many tokens: only what pays is summarized."""

    @tool
    async def read(n: int) -> str:
        return "x" * 400

    writer = ScriptedModel("A summary.", repeat=True)
    model = ScriptedModel(*[call("read", n=n) for n in range(18)], "ok")
    agent = Agent(model, tools=[read], hooks=[summarize(600, keep=6, by=writer)])
    await agent.chat("go")
    assert 1 <= writer.calls <= 9


async def test_a_summary_of_the_whole_history_is_not_used_in_an_answer_that_is_made_again():
    """Its last message is a question that got no answer, and that is asked again."""
    agent, model, _ = talker("So far.", when=2)
    talk = Conversation([UserMessage(id=text, parts=(Text(text),)) for text in ("one", "two")])
    await agent.chat("three", conversation=talk)
    assert [m.text for m in model.requests[-1].messages] == [HEAD + "So far.\n\nthree"]
    question = talk.replace_answer("two")
    assert (await agent.chat(question, conversation=talk)).text == "A1"
    assert [m.text for m in model.requests[-1].messages] == ["one", "two"]
