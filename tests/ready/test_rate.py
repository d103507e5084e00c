"""`rate_limit`: no window of that length ever sees more calls, whoever asks at the same time."""

import asyncio
import threading
from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests import _recording as recording

from hookline import Agent, Approve, Conversation, ToolFailure, tool
from hookline.errors import UsageError
from hookline.hooks import approve, rate_limit
from hookline.hooks._guards.rate_limit import _Windows
from hookline.testing import ScriptedModel, call


class Clock:
    now = 100.0

    def __call__(self):
        return self.now


def agent_of(turns, *hooks, deps=None):
    ran = []

    @tool
    async def look(n: int = 0) -> str:
        ran.append(n)
        await asyncio.sleep(0)
        return "seen"

    @tool
    async def dig() -> str:
        ran.append("dig")
        return "dug"

    return Agent(ScriptedModel(*turns), tools=[look, dig], hooks=hooks), ran


def told(response):
    return [(m.outcome, m.text) for m in response.messages if m.role == "tool"]


async def test_what_goes_beyond_is_told_to_the_model_with_the_time_to_wait():
    clock = Clock()
    agent, ran = agent_of(
        [[call("look", n=n) for n in range(4)], "ok"], rate_limit(3, 60, clock=clock)
    )
    response = await agent.chat("go")
    assert ran == [0, 1, 2]
    assert told(response)[3] == (
        "denied",
        '{"error":{"type":"Denied","message":'
        '"rate limit reached: 3 calls in 60 s; try again in 60 s"}}',
    )


async def test_each_tool_is_counted_by_itself_over_all_chats():
    agent, ran = agent_of(
        [call("look"), "ok", call("dig"), "ok", call("look"), "ok"], rate_limit(1)
    )
    for _ in range(3):
        await agent.chat("go")
    assert ran == [0, "dig"]


async def test_a_window_moves_on():
    clock = Clock()
    agent, ran = agent_of([call("look"), "ok"] * 4, rate_limit(2, 10, clock=clock))
    for seconds in (0, 4, 5.9, 0.1):
        clock.now += seconds
        await agent.chat("go")
    assert len(ran) == 3


async def test_by_conversation():
    one, two = Conversation(), Conversation()
    agent, ran = agent_of(
        [call("look"), "ok", call("dig"), "ok"] * 3, rate_limit(1, by="conversation")
    )
    for conversation in (one, one, two, None, None):
        await agent.chat("go", conversation=conversation)
    assert len(ran) == 4


async def test_by_chat():
    agent, ran = agent_of([[call("look"), call("dig")], "ok"] * 2, rate_limit(1, by="chat"))
    await agent.chat("go")
    await agent.chat("go")
    assert ran == [0, 0]


@pytest.mark.parametrize("by", ["chat", "conversation"])
async def test_what_a_sub_agent_calls_counts_as_its_parents(by):
    ran = []

    @tool
    async def look() -> None:
        ran.append(1)

    kid = Agent(ScriptedModel([call("look")] * 3, "kid done"), name="kid", tools=[look])
    mum = Agent(
        ScriptedModel(call("look"), call("kid", input="x"), call("look"), "done"),
        tools=[look, kid.as_tool()],
        hooks=[rate_limit(3, by=by, tools=["look"])],
    )
    await mum.chat("go", conversation=Conversation())
    assert len(ran) == 3


async def test_by_the_caller():
    agent, ran = agent_of([call("look"), "ok"] * 4, rate_limit(1, by=lambda ctx: ctx.run.deps))
    for caller in ("ann", "bob", "ann", "bob"):
        await agent.chat("go", deps=caller)
    assert len(ran) == 2


async def test_for_some_tools_alone():
    agent, ran = agent_of(
        [[call("look"), call("dig"), call("dig")], "ok"], rate_limit(0, tools=["look"])
    )
    await agent.chat("go")
    assert ran == ["dig", "dig"]


async def test_a_key_that_fails_denies_the_call():
    agent, ran = agent_of([call("look"), "ok"], rate_limit(9, by=lambda ctx: ctx.run.deps["user"]))
    response = await agent.chat("go", deps={})
    assert (ran, told(response)[0][0]) == ([], "denied")


async def test_a_call_that_another_guard_refuses_does_not_count():
    agent, ran = agent_of(
        [call("look"), call("dig"), "ok"],
        rate_limit(1, by=lambda ctx: "all"),
    )
    agent.add_hook("preToolCall", refuse, tools=["look"], priority=200)
    await agent.chat("go")
    assert ran == ["dig"]


def refuse(ctx):
    return ToolFailure("no")


@pytest.mark.parametrize("wrong", [(-1, 1.0, "tool"), (1, 0, "tool"), (1, 1.0, "person")])
def test_limits_that_cannot_hold_are_refused(wrong):
    calls, per, by = wrong
    with pytest.raises(UsageError):
        rate_limit(calls, per, by=by)


# ── under load ──────────────────────────────────────────────────────────────────────────────


def twice_then_done(request):
    return "ok" if request.messages[-1].role == "tool" else [call("look"), call("look")]


@pytest.mark.parametrize("limit", [1, 7, 100])
async def test_a_thousand_chats_at_the_same_time_never_exceed_it(limit):
    agent, ran = agent_of([twice_then_done] * 2000, rate_limit(limit, 3600))
    responses = await asyncio.gather(*(agent.chat("go") for _ in range(1000)))
    assert len(ran) == limit
    outcomes = Counter(outcome for response in responses for outcome, _ in told(response))
    assert outcomes == {"ok": limit, "denied": 2000 - limit}


def test_threads_never_exceed_it_either():
    windows = _Windows(50, 3600, Clock())
    taken = []
    start = threading.Barrier(8)

    def work():
        start.wait()
        for _ in range(500):
            if windows.take("key") is None:
                taken.append(1)

    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(taken) == 50


@settings(max_examples=200)
@given(
    calls=st.integers(0, 4),
    per=st.integers(1, 20),
    waits=st.lists(st.tuples(st.integers(0, 12), st.sampled_from("ab")), max_size=60),
)
def test_in_no_window_there_are_more_and_none_is_refused_without_need(calls, per, waits):
    clock = Clock()
    windows = _Windows(calls, per, clock)
    made = {"a": [], "b": []}
    for seconds, key in waits:
        clock.now += seconds
        wait = windows.take(key)
        recent = [at for at in made[key] if clock.now - at < per]
        assert (wait is None) == (len(recent) < calls)
        if wait is None:
            made[key].append(clock.now)
        elif recent:
            assert wait == per - (clock.now - recent[0])


def kept_by(hooks):
    """The counts of a limit, read off its key function's closure."""
    (guard, *_) = hooks
    inside = dict(zip(guard.fn.__code__.co_freevars, guard.fn.__closure__, strict=True))
    return inside["windows"].cell_contents._times


@pytest.mark.parametrize("by", ["chat", "conversation"])
async def test_what_a_chat_has_counted_is_forgotten_when_it_ends(by):
    hooks = rate_limit(2, by=by)
    agent, ran = agent_of([call("look"), "ok"] * 2 + [call("look"), ValueError("boom")], hooks)
    await agent.chat("go")
    await agent.chat("go")
    with pytest.raises(ValueError, match="boom"):
        await agent.chat("go")
    assert (len(ran), len(kept_by(hooks))) == (3, 0)


async def test_a_conversation_is_remembered_also_if_a_chat_has_its_name():
    hooks = rate_limit(1, by="conversation")
    agent, ran = agent_of([call("look"), "ok"] * 3, hooks)
    conversation = Conversation(id="one")
    await agent.chat("go", conversation=conversation)
    await agent.chat("go", chat_id="one")
    await agent.chat("go", conversation=conversation)
    assert len(ran) == 2


@pytest.mark.parametrize("by", ["chat", "conversation"])
async def test_a_sub_agent_that_ends_does_not_forget_what_its_parent_has_counted(by):
    ran = []

    @tool
    async def look() -> None:
        ran.append(1)

    kid = Agent(ScriptedModel(call("look"), "done"), name="kid", tools=[look])
    turns = (call("look"), call("kid", input="x"), call("look"), "done")
    hooks = rate_limit(2, by=by, tools=["look"])
    mum = Agent(ScriptedModel(*turns), tools=[look, kid.as_tool()], hooks=[hooks])
    await mum.chat("go")
    assert (len(ran), len(kept_by(hooks))) == (2, 0)


async def test_a_chat_that_resumes_after_an_approval_counts_anew():
    agent, ran = agent_of(
        [call("look"), call("dig"), call("look"), "ok"],
        rate_limit(1, by="chat", tools=["look"]),
        approve("dig"),
    )
    conversation = Conversation()
    response = await agent.chat("go", conversation=conversation)
    (waits,) = response.pending
    await agent.resume(conversation, {waits.id: Approve()})
    assert ran == [0, "dig", 0]


async def test_a_durable_chat_that_was_cut_off_counts_on():
    hooks = rate_limit(1, by="chat")

    async def act() -> str:
        return "done"

    def acting(runtime, note):
        model = recording.Model(note, [("c1", "act", {})], [("c2", "act", {})], ["Done."])
        agent = Agent(model, tools=[act], hooks=[hooks], runtime=runtime)
        return agent, recording.ask()

    whole = await recording.live(acting)
    assert [result.outcome for result in whole.response.tool_results] == ["ok", "denied"]
    for cut in range(1, len(whole.journal)):
        first = await recording.live(acting, limit=cut)
        second = await recording.live(acting, first.journal)
        assert second.response.tool_results[1].outcome == "denied", cut
        assert len(kept_by(hooks)) == 0


def test_keys_that_have_nothing_left_are_forgotten():
    clock = Clock()
    windows = _Windows(1, 10, clock)
    for n in range(50_000):
        clock.now += 0.1
        assert windows.take(n) is None
    assert len(windows._times) < 3000
