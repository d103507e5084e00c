"""`retry` and `fallback`: asked again where it may help, and nothing is ever done twice."""

import asyncio

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests._event_grammar import check_events

from hookline import Agent, Conversation, tool
from hookline.errors import (
    AuthenticationError,
    ModelError,
    OverloadedError,
    RateLimitError,
    StopChat,
    UsageError,
)
from hookline.events import ResponseReset, Status, TextDelta
from hookline.hooks import fallback, retry
from hookline.testing import ScriptedModel, Turn, call, collect


class Waits:
    """A sleep that takes no time and remembers."""

    def __init__(self):
        self.seconds = []

    async def __call__(self, seconds):
        self.seconds.append(seconds)


def retrying(*turns, **options):
    waits = Waits()
    options = {"draw": lambda: 1.0, **options}
    model = ScriptedModel(*turns)
    return Agent(model, hooks=[retry(sleep=waits, **options)]), model, waits


def down(text="busy", **options):
    return OverloadedError(text, **options)


def shown(events):
    """What a reader of the stream has in the end."""
    text = ""
    for event in events:
        if isinstance(event, ResponseReset):
            text = ""
        elif isinstance(event, TextDelta):
            text += event.text
    return text


# ── retry ───────────────────────────────────────────────────────────────────────────────────


async def test_it_is_asked_again_with_growing_waits():
    agent, model, waits = retrying(down(), down(), down(), "ok", attempts=4, base=0.5, longest=1.5)
    assert (await agent.chat("hi")).text == "ok"
    assert waits.seconds == [0.5, 1.0, 1.5]
    assert len(model.requests) == 4


async def test_the_last_error_stands_and_is_the_very_one():
    errors = [down(str(n)) for n in range(3)]
    agent, _, waits = retrying(*errors)
    seen = []
    agent.add_hook("onChatError", lambda ctx: seen.append(ctx.error))
    with pytest.raises(OverloadedError) as caught:
        await agent.chat("hi")
    assert caught.value is errors[2]
    assert seen == [errors[2]]
    assert len(waits.seconds) == 2


@pytest.mark.parametrize(
    "error",
    [
        AuthenticationError("no"),
        ModelError("broken"),
        RateLimitError("no money", retryable=False),
        ValueError("x"),
    ],
    ids=["authentication", "model", "no money", "no model"],
)
async def test_what_would_not_help_is_not_tried(error):
    agent, model, waits = retrying(error, "ok")
    with pytest.raises(type(error)):
        await agent.chat("hi")
    assert (len(model.requests), waits.seconds) == (1, [])


@pytest.mark.parametrize(
    "on",
    [ValueError, (KeyError, ValueError), lambda exc: str(exc) == "x"],
    ids=["type", "types", "function"],
)
async def test_one_may_say_oneself_what_helps(on):
    agent, _, _ = retrying(ValueError("x"), "ok", on=on)
    assert (await agent.chat("hi")).text == "ok"
    agent, _, _ = retrying(OverloadedError("y"), "ok", on=on)
    with pytest.raises(OverloadedError):
        await agent.chat("hi")


async def test_it_waits_as_long_as_the_service_asks():
    agent, _, waits = retrying(RateLimitError("slow", retry_after=7.5), down(), "ok", base=1.0)
    await agent.chat("hi")
    assert waits.seconds == [7.5, 2.0]


async def test_a_wait_that_is_too_long_is_not_waited():
    agent, _, waits = retrying(RateLimitError("slow", retry_after=61), "ok")
    with pytest.raises(RateLimitError):
        await agent.chat("hi")
    assert waits.seconds == []


@settings(max_examples=100)
@given(st.floats(0, 1), st.integers(1, 40), st.one_of(st.none(), st.floats(0, 60)))
def test_a_wait_is_within_its_bounds(drawn, attempts, asked):
    async def run():
        errors = [down(retry_after=asked) for _ in range(attempts)]
        agent, _, waits = retrying(
            *errors, "ok", attempts=attempts + 1, base=0.5, longest=30, draw=lambda: drawn
        )
        await agent.chat("hi")
        for n, seconds in enumerate(waits.seconds):
            assert seconds >= (asked or 0)
            assert seconds <= max(asked or 0, min(30, 0.5 * 2**n))

    asyncio.run(run())


async def test_what_was_shown_is_taken_back():
    agent, _, _ = retrying(Turn("half an ans", fail=down()), "The answer.")
    conversation = Conversation()
    events = await collect(agent.chat_stream("hi", conversation=conversation))
    check_events(events)
    assert [type(each) for each in events if isinstance(each, (TextDelta, ResponseReset))] == [
        TextDelta,
        ResponseReset,
        TextDelta,
    ]
    assert shown(events) == conversation.messages[-1].text == "The answer."


async def test_nothing_is_taken_back_where_nothing_was_shown():
    agent, _, _ = retrying(down(), "ok")
    events = await collect(agent.chat_stream("hi"))
    assert not [each for each in events if isinstance(each, ResponseReset)]


async def test_a_tool_is_never_run_again_for_it():
    ran = []

    @tool
    async def pay() -> str:
        ran.append(1)
        return "paid"

    waits = Waits()
    model = ScriptedModel(down(), call("pay"), Turn("Pa", fail=down()), down(), "Paid.")
    agent = Agent(model, tools=[pay], hooks=[retry(3, sleep=waits)])
    conversation = Conversation()
    response = await agent.chat("go", conversation=conversation)
    assert (ran, response.text) == ([1], "Paid.")
    assert [m.role for m in conversation.messages] == ["user", "assistant", "tool", "assistant"]


async def test_calls_of_a_broken_answer_are_never_run():
    ran = []

    @tool
    async def pay(n: int) -> str:
        ran.append(n)
        return "paid"

    broken = Turn(tool_calls=[call("pay", n=1)], fail=down())
    model = ScriptedModel(broken, [call("pay", n=2)], "ok")
    agent = Agent(model, tools=[pay], hooks=[retry(sleep=Waits())])
    await agent.chat("go")
    assert ran == [2]


async def test_each_wait_is_a_status():
    agent, _, _ = retrying(down("secret text"), "ok")
    events = await collect(agent.chat_stream("hi"))
    (status,) = [each for each in events if isinstance(each, Status)]
    assert (status.type, status.data) == (
        "retrying",
        {"attempt": 2, "of": 3, "wait": 0.5, "error": "OverloadedError"},
    )


async def test_an_abort_ends_the_wait():
    begun = asyncio.Event()

    async def sleep(seconds):
        begun.set()
        await asyncio.Event().wait()

    agent = Agent(ScriptedModel(down(), "ok"), hooks=[retry(sleep=sleep)])
    async with agent.chat_stream("hi") as stream:
        async for event in stream:
            if isinstance(event, Status):
                await begun.wait()
                assert stream.abort("enough")
    assert begun.is_set()


async def test_however_many_attempts_the_wait_has_its_bound():
    agent, _, waits = retrying(*[down()] * 1100, "ok", attempts=1101, base=0.5, longest=30)
    assert (await agent.chat("hi")).text == "ok"
    assert waits.seconds[-1] == max(waits.seconds) == 30


@pytest.mark.parametrize("repeats", [retry, fallback])
async def test_a_hook_that_ends_the_chat_is_not_asked_again(repeats):
    waits, other = Waits(), ScriptedModel()
    hooks = retry(on=Exception, sleep=waits) if repeats is retry else fallback(other, on=Exception)
    agent = Agent(ScriptedModel(), hooks=hooks)
    asked = []

    @agent.hook("aroundRequest")
    async def end(ctx, proceed):
        asked.append(ctx.iteration)
        raise StopChat("closed", "We are closed.")

    response = await agent.chat("hi")
    assert (response.stop_reason, response.text) == ("closed", "We are closed.")
    assert (asked, waits.seconds) == ([0], [])


async def test_one_attempt_is_no_retry():
    agent, _, _ = retrying(down(), "ok", attempts=1)
    with pytest.raises(OverloadedError):
        await agent.chat("hi")
    with pytest.raises(UsageError, match="attempts"):
        retry(0)


async def test_usage_counts_what_was_thrown_away():
    agent, _, _ = retrying("one", "two")
    agent.bus.clear()

    @agent.hook("aroundRequest")
    async def twice(ctx, proceed):
        await proceed()
        return await proceed()

    assert (await agent.chat("hi")).usage.input_tokens == 20


# ── fallback ────────────────────────────────────────────────────────────────────────────────


async def test_the_next_model_answers_where_one_fails():
    one = ScriptedModel(Turn("half", fail=AuthenticationError("no")), name="one")
    two = ScriptedModel(down(), name="two")
    three = ScriptedModel("three", name="three")
    agent = Agent(one, hooks=[fallback(two, three)])
    events = await collect(agent.chat_stream("hi"))
    check_events(events)
    assert shown(events) == "three"
    statuses = [each.data for each in events if isinstance(each, Status)]
    assert statuses == [
        {"from": "one", "to": "two", "error": "AuthenticationError"},
        {"from": "two", "to": "three", "error": "OverloadedError"},
    ]


async def test_the_last_ones_error_stands():
    last = down("last")
    agent = Agent(ScriptedModel(down()), hooks=[fallback(ScriptedModel(last))])
    with pytest.raises(OverloadedError) as caught:
        await agent.chat("hi")
    assert caught.value is last


async def test_an_error_that_is_nobodys_model_is_not_tried_elsewhere():
    two = ScriptedModel("two")
    agent = Agent(ScriptedModel(ValueError("mine")), hooks=[fallback(two)])
    with pytest.raises(ValueError, match="mine"):
        await agent.chat("hi")
    assert two.requests == []


async def test_it_may_be_narrowed():
    two = ScriptedModel("two")
    agent = Agent(
        ScriptedModel(AuthenticationError("no")), hooks=[fallback(two, on=OverloadedError)]
    )
    with pytest.raises(AuthenticationError):
        await agent.chat("hi")


async def test_each_step_begins_with_the_first_model_again():
    @tool
    async def look() -> str:
        return "seen"

    one = ScriptedModel(down(), "from one")
    two = ScriptedModel(call("look"))
    response = await Agent(one, tools=[look], hooks=[fallback(two)]).chat("go")
    assert response.text == "from one"


async def test_a_retry_inside_tries_each_model_in_turn():
    waits = Waits()
    one, two = ScriptedModel(down(), down()), ScriptedModel(down(), "ok")
    hooks = [retry(2, sleep=waits), fallback(two)]
    assert (await Agent(one, hooks=hooks).chat("hi")).text == "ok"
    assert len(waits.seconds) == 2


def test_a_fallback_needs_a_model():
    with pytest.raises(UsageError, match="model"):
        fallback()


def test_a_fallback_to_something_else_is_refused_before_it_is_needed():
    with pytest.raises(UsageError, match=r"fallback\('openai:x'\) must be a model, not a str"):
        fallback(ScriptedModel(), "openai:x")


@settings(max_examples=80)
@given(
    st.lists(
        st.tuples(
            st.sampled_from(["ok", "down", "half", "half"]), st.text("ab ", min_size=1, max_size=9)
        ),
        max_size=6,
    )
)
def test_whatever_fails_shown_is_stored_and_one_answer_stands(plan):
    async def run():
        turns = []
        for kind, text in plan:
            turns.append(
                text if kind == "ok" else down() if kind == "down" else Turn(*text, fail=down())
            )
        agent, _, _ = retrying(*turns, "end", attempts=len(plan) + 1)
        conversation = Conversation()
        events = await collect(agent.chat_stream("hi", conversation=conversation))
        check_events(events)
        first = next((text for kind, text in plan if kind == "ok"), "end")
        stored = "".join(m.text for m in conversation.messages[1:])
        assert shown(events) == stored == (first.lstrip() and first if first.strip() else "")

    asyncio.run(run())
