"""`guardrail`: what the user says and what the model answers is checked, and stopped."""

import asyncio
import logging

import pytest
from tests import _recording as recording
from tests._event_grammar import check_events

from hookline import Agent, Conversation, ModelResponse, Run, Stop, UserMessage, check_history, tool
from hookline.errors import ChatAbortedError, ModelError, UsageError
from hookline.events import ResponseReset, Status, TextDelta, ToolCallStarted
from hookline.hooks import guardrail, retry
from hookline.models import Finish, TextChunk
from hookline.testing import ScriptedModel, Turn, call, collect

NO = "I cannot help with that."


def says_no(what, run):
    return NO if "bad" in what.text else None


def shown(events):
    """The text that a user has before them at the end."""
    text = ""
    for event in events:
        if isinstance(event, ResponseReset):
            text = ""
        elif isinstance(event, TextDelta):
            text += event.text
    return text


def told(events):
    return [event.data for event in events if isinstance(event, Status)]


class Endless:
    """A model that begins to answer and goes on until it is cancelled."""

    name = "endless"

    def __init__(self):
        self.began = asyncio.Event()
        self.cancelled = False

    async def stream(self, request):
        yield TextChunk("Well, ")
        self.began.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            self.cancelled = True
            raise
        yield Finish()


# ── input, beside the model ─────────────────────────────────────────────────────────────────


async def test_a_check_that_trips_cancels_the_model_and_takes_back_what_was_shown():
    model = Endless()

    async def check(message: UserMessage, run: Run) -> str:
        await model.began.wait()
        return NO

    agent = Agent(model, hooks=[guardrail(check)])
    conversation = Conversation()
    events = await collect(agent.chat_stream("bad", conversation=conversation))
    check_events(events)
    response = events[-1].response
    assert (response.stop_reason, response.text) == ("guardrail", NO)
    assert model.cancelled
    assert any(isinstance(event, ResponseReset) for event in events)
    assert shown(events) == NO
    assert told(events) == [{"name": "guardrail", "on": "input", "why": "tripped"}]
    assert [message.text for message in conversation.messages] == ["bad", NO]


async def test_until_it_has_passed_no_answer_is_kept_and_no_tool_starts():
    passed = asyncio.Event()
    ran = []

    @tool
    async def act():
        ran.append(passed.is_set())

    async def check(message, run):
        await answered.wait()
        for _ in range(20):  # the model is done: all that could happen happens now
            await asyncio.sleep(0)
        kept.extend(run.history)
        passed.set()

    answered, kept = asyncio.Event(), []
    agent = Agent(ScriptedModel(call("act"), "done"), tools=[act], hooks=[guardrail(check)])

    @agent.hook("aroundRequest")
    async def note(ctx, proceed):
        response = await proceed()
        answered.set()
        return response

    response = await agent.chat("go")
    assert (response.text, ran) == ("done", [True])
    assert [message.role for message in kept] == ["user"]


async def test_what_was_stopped_stays_and_is_not_sent_again():
    model = ScriptedModel("never kept", "Hello.", "Hello again.")
    agent = Agent(model, hooks=[guardrail(says_no)])
    conversation = Conversation()
    await agent.chat("bad", conversation=conversation)
    conversation = Conversation.from_json(conversation.to_json())
    await agent.chat("good", conversation=conversation)
    await agent.chat("better", conversation=conversation)
    assert [m.text for m in model.requests[-1].messages] == ["good", "Hello.", "better"]
    texts = ["bad", NO, "good", "Hello.", "better", "Hello again."]
    assert [m.text for m in conversation.messages] == texts
    check_history(conversation.messages)


async def test_it_runs_once_for_what_the_user_said():
    seen = []
    hooks = [guardrail(lambda message, run: seen.append(message.text)), retry(base=0)]
    turns = [ModelError("x"), call("look"), "done"]
    turns[0].retryable = True

    @tool
    async def look():
        pass

    agent = Agent(ScriptedModel(*turns), tools=[look], hooks=hooks)
    assert (await agent.chat("go")).text == "done"
    assert seen == ["go"]


async def test_an_answer_that_a_hook_gives_waits_for_the_check_too():
    agent = Agent(ScriptedModel(), hooks=[guardrail(says_no)])
    agent.add_hook("preRequest", lambda ctx: ModelResponse.of("cached"))
    conversation = Conversation()
    events = await collect(agent.chat_stream("bad", conversation=conversation))
    assert events[-1].response.stop_reason == "guardrail"
    assert shown(events) == NO
    assert "cached" not in [message.text for message in conversation.messages]
    assert (await agent.chat("good")).text == "cached"


@pytest.mark.parametrize("broken", ["failed", "aborted"])
async def test_what_was_not_checked_because_its_chat_broke_off_is_checked_in_the_next(broken):
    seen, began = [], asyncio.Event()

    async def check(message, run):
        seen.append(message.text)
        if len(seen) == 1:
            began.set()
            await asyncio.Event().wait()
        return says_no(message, run)

    model = ScriptedModel(*["Hello."] * 3)
    agent = Agent(model, hooks=[guardrail(check)])
    conversation = Conversation()

    @agent.hook("aroundRequest")
    async def break_off(ctx, proceed):
        response = await proceed()
        if model.calls == 1:
            await began.wait()
            if broken == "failed":
                raise ModelError("broken")
            ctx.run.abort("enough")
        return response

    with pytest.raises((ModelError, ChatAbortedError)):
        await agent.chat("bad", conversation=conversation)
    response = await agent.chat("go on", conversation=conversation)
    assert (response.stop_reason, response.text) == ("guardrail", NO)
    assert (await agent.chat("good", conversation=conversation)).text == "Hello."
    assert [m.text for m in model.requests[-1].messages] == ["good"]
    assert seen == ["bad", "bad", "good"]


def failing(check):
    """An agent whose model fails once the check has begun."""
    began = asyncio.Event()

    def begin(message, run):
        began.set()
        return check(message, run)

    agent = Agent(ScriptedModel(), hooks=[guardrail(begin)])

    @agent.hook("aroundRequest")
    async def fail(ctx, proceed):
        await began.wait()
        await asyncio.sleep(0)
        raise ModelError("broken")

    return agent


@pytest.mark.parametrize("priority", [-1, 999], ids=["after the guardrail", "before it"])
async def test_what_was_not_checked_because_a_hook_stopped_the_chat_is_checked_later(priority):
    """The text of the Stop stands behind the message like an answer."""
    model = ScriptedModel("never kept", "Hello.", "Hello again.")
    seen = []

    def check(message, run):
        seen.append(message.text)
        return says_no(message, run)

    agent = Agent(model, hooks=[guardrail(check), guardrail(lambda message, run: None)])
    stop = agent.add_hook("preRequest", lambda ctx: Stop("quota", "Tomorrow."), priority=priority)
    conversation = Conversation()
    assert (await agent.chat("good", conversation=conversation)).text == "Tomorrow."
    assert (await agent.chat("bad", conversation=conversation)).text == "Tomorrow."
    assert seen == []
    stop()
    conversation = Conversation.from_json(conversation.to_json())
    assert (await agent.chat("better", conversation=conversation)).text == NO
    assert (await agent.chat("best", conversation=conversation)).text == "Hello."
    assert (await agent.chat("last", conversation=conversation)).text == "Hello again."
    sent = [message.text for message in model.requests[-1].messages if message.role == "user"]
    assert sent == ["good", "best", "last"]
    assert seen[-2:] == ["best", "last"]
    check_history(conversation.messages)


async def test_a_check_that_was_cut_short_by_another_that_trips_is_made_up_for():
    """The first message has passed one check when the second message trips it."""
    slow_ran = asyncio.Event()
    seen = []

    async def slow(message, run):
        seen.append(message.text)
        if "bad" in conversation.messages[-1].text:
            slow_ran.set()
            await asyncio.Event().wait()

    async def quick(message, run):
        if "bad" in message.text:
            await slow_ran.wait()
            return NO
        return None

    model = ScriptedModel(ModelError("down"), "never kept", "Hello.")
    agent = Agent(model, hooks=[guardrail(quick), guardrail(slow)])
    conversation = Conversation()
    with pytest.raises(ModelError):
        await agent.chat("first", conversation=conversation)
    assert (await agent.chat("bad", conversation=conversation)).text == NO
    seen.clear()
    assert (await agent.chat("good", conversation=conversation)).text == "Hello."
    assert seen == ["first", "good"]


async def test_a_model_that_fails_fails_while_the_check_still_runs():
    ended = []

    async def check(message, run):
        try:
            await asyncio.Event().wait()
        finally:
            ended.append("check")

    with pytest.raises(ModelError, match="broken"):
        await failing(check).chat("go")
    assert ended == ["check"]


@pytest.mark.parametrize("parallel", [True, False], ids=["parallel", "first"])
async def test_an_abort_takes_the_check_along(parallel):
    ended = []

    async def check(message, run):
        run.abort("enough")
        try:
            await asyncio.Event().wait()
        finally:
            ended.append("check")

    agent = Agent(ScriptedModel("hi"), hooks=[guardrail(check, parallel=parallel)])
    with pytest.raises(ChatAbortedError):
        await agent.chat("go")
    assert ended == ["check"]


async def test_a_check_that_raises_when_it_is_cancelled_changes_nothing(caplog):
    """The chat is over for other reasons: its outcome stands, and asyncio complains of nothing."""

    async def check(message, run):
        try:
            await asyncio.Event().wait()
        finally:
            raise RuntimeError("too late")

    with pytest.raises(ModelError, match="broken"):
        await failing(check).chat("go")
    assert not [record for record in caplog.records if record.name == "asyncio"]


# ── input, before anything is written ───────────────────────────────────────────────────────


async def test_not_in_parallel_it_runs_first_and_nothing_is_written():
    model = ScriptedModel("Hello.")
    agent = Agent(model, hooks=[guardrail(says_no, parallel=False)])
    conversation = Conversation()
    events = await collect(agent.chat_stream("bad", conversation=conversation))
    response = events[-1].response
    assert (response.stop_reason, response.text) == ("guardrail", NO)
    assert (model.calls, conversation.messages) == (0, ())
    assert told(events) == [{"name": "guardrail", "on": "input", "why": "tripped"}]
    assert (await agent.chat("good", conversation=conversation)).text == "Hello."


# ── output ──────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("live", [False, True], ids=["withheld", "live"])
async def test_an_answer_that_trips_is_never_kept_and_shown_only_live(live):
    agent = Agent(
        ScriptedModel(Turn(text="a bad answer", chunk=1)),
        hooks=[guardrail(says_no, on="output", live=live)],
    )
    conversation = Conversation()
    events = await collect(agent.chat_stream("hi", conversation=conversation))
    check_events(events)
    every = "".join(event.text for event in events if isinstance(event, TextDelta))
    assert every == ("a bad answer" if live else "") + NO
    assert shown(events) == NO
    assert events[-1].response.stop_reason == "guardrail"
    assert [message.text for message in conversation.messages] == ["hi", NO]


async def test_an_answer_that_passes_is_shown_then_and_tools_of_one_that_trips_do_not_run():
    ran = []

    @tool
    async def act():
        ran.append("act")

    turns = ["fine", Turn(call("act"), text="bad idea")]
    agent = Agent(ScriptedModel(*turns), tools=[act], hooks=[guardrail(says_no, on="output")])
    assert shown(await collect(agent.chat_stream("hi"))) == "fine"
    events = await collect(agent.chat_stream("hi"))
    assert ran == []
    assert not any(isinstance(event, ToolCallStarted) for event in events)
    assert shown(events) == NO


# ── failure rules ───────────────────────────────────────────────────────────────────────────

BAD_CHECKS = {
    "raises": (lambda what, run: 1 / 0, "failed"),
    "returns something else": (lambda what, run: True, "failed"),
    "hangs": (lambda what, run: asyncio.Event().wait(), "timeout"),
    "cancels itself": (lambda what, run: cancelling(), "failed"),
}


async def cancelling():
    raise asyncio.CancelledError


@pytest.mark.parametrize("what", BAD_CHECKS)
@pytest.mark.parametrize(
    "options",
    [{}, {"parallel": False}, {"on": "output"}],
    ids=["parallel", "first", "output"],
)
async def test_a_check_that_fails_has_tripped(what, options, caplog):
    check, why = BAD_CHECKS[what]
    hooks = [guardrail(check, timeout=0.01, text="Not now.", name="mine", **options)]
    agent = Agent(ScriptedModel("secret"), hooks=hooks)
    events = await collect(agent.chat_stream("hi"))
    assert (events[-1].response.stop_reason, events[-1].response.text) == ("guardrail", "Not now.")
    assert shown(events) in ("Not now.", "")
    (data,) = told(events)
    assert data == {"name": "mine", "on": options.get("on", "input"), "why": why}
    (line,) = [r.getMessage() for r in caplog.records if r.levelno >= logging.WARNING]
    assert line.startswith("guardrail 'mine'")


@pytest.mark.parametrize(
    "wrong",
    [{"on": "both"}, {"timeout": 0}, {"text": " "}],
    ids=["on", "timeout", "text"],
)
def test_options_that_do_not_fit_are_refused(wrong):
    with pytest.raises(UsageError, match="guardrail"):
        guardrail(says_no, **wrong)


# ── in other lives ──────────────────────────────────────────────────────────────────────────


def guarded(runtime, note):
    def check(message, run):
        note("check")
        return NO

    agent = Agent(recording.Model(note, ["Yes."]), hooks=[guardrail(check)], runtime=runtime)
    return agent, recording.ask()


async def test_under_a_durable_runtime_it_stays_stopped_wherever_the_chat_was_cut():
    whole = await recording.live(guarded)
    assert (whole.response.stop_reason, whole.response.text) == ("guardrail", NO)
    for cut in range(1, len(whole.journal)):
        first = await recording.live(guarded, limit=cut)
        second = await recording.live(guarded, first.journal)
        assert (second.response.stop_reason, second.response.text) == ("guardrail", NO), cut
        assert [message.text for message in second.history] == ["Go.", NO], cut
        if "message/1" in second.runtime.ran:  # otherwise an earlier life has written it
            assert second.conversation.meta == {"hookline.guardrail": ["chat-1.0"]}, cut


@pytest.mark.parametrize("parallel", [True, False])
async def test_a_message_into_the_running_chat_is_checked_before_it_is_stored(parallel):
    talk = Conversation()
    agent = Agent(ScriptedModel("One."), hooks=guardrail(says_no, parallel=parallel))
    async with agent.chat_stream("go", conversation=talk) as stream:
        bad, good = stream.send("bad"), stream.send("good")
        events = [event async for event in stream]
    assert (bad.status, bad.reason, good.status) == ("returned", NO, "delivered")
    assert [message.text for message in talk.messages] == ["go", "good", "One."]
    assert told(events) == [{"name": "guardrail", "on": "input", "why": "tripped"}]
