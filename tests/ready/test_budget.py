"""`budget`: a chat ends gracefully at its limit, a sub-agent within what its parent has left."""

import asyncio
import gc
import weakref

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests import _recording as recording

from hookline import Agent, Approve, Conversation, Limits, Usage, check_history, tool
from hookline.errors import OverloadedError, UsageError
from hookline.hooks import approve, budget, fallback
from hookline.models import Rates, genai_prices, price_function
from hookline.testing import ScriptedModel, Turn, call, record

USED = Usage(input_tokens=60, output_tokens=40)


@tool
async def look() -> str:
    return "seen"


def looking(n=30, **turn):
    """A model that asks for a tool again and again."""
    return ScriptedModel(*[Turn(call("look"), usage=USED, **turn)] * n, "done")


def agent_of(model=None, **options):
    return Agent(model or looking(), tools=[look], hooks=[budget(**options)])


class Clock:
    now = 1000.0

    def __call__(self):
        return self.now


# ── what ends it ────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("steps", [0, 1, 2, 10])
async def test_n_steps_are_n_model_calls_and_the_reason_is_told(steps):
    model = looking()
    conversation = Conversation()
    agent = agent_of(steps=steps, model=model)
    response = await agent.chat("go", conversation=conversation)
    assert len(model.requests) == response.steps == steps
    assert response.stop_reason == "steps_limit"
    assert response.text == f"step limit reached: {steps}/{steps}"
    check_history(conversation.messages)


async def test_only_what_is_named_holds():
    clock = Clock()

    @tool(name="look")
    async def slow():
        clock.now += 1000

    heavy = Turn(call("look"), usage=Usage(input_tokens=10**6))
    for named in ({"steps": 40}, {"tokens": 10**9}, {"seconds": 10**6}):
        model = ScriptedModel(*[heavy] * 30, "done")
        hooks = [budget(clock=clock, **named)]
        agent = Agent(model, tools=[slow], hooks=hooks, limits=Limits(steps=50))
        response = await agent.chat("go")
        assert (response.stop_reason, response.steps, response.text) == (None, 31, "done")


async def test_tokens_of_all_model_calls_count():
    response = await agent_of(tokens=250).chat("go")
    assert (response.stop_reason, response.text) == (
        "tokens_limit",
        "token limit reached: 300/250",
    )
    assert response.steps == 3


async def test_time_counts_from_the_start_of_the_chat():
    clock = Clock()
    agent = agent_of(seconds=10, clock=clock)
    late = []

    @agent.hook("preChat")
    def slow(ctx):
        clock.now += 11
        late.append(ctx.run.chat_id)

    response = await agent.chat("go")
    assert (response.stop_reason, response.steps) == ("time_limit", 0)
    agent.bus.clear("preChat")
    clock.now += 100
    model = ScriptedModel("done")
    other = Agent(model, hooks=[budget(seconds=10, clock=clock)], bus=agent.bus)
    assert (await other.chat("go")).stop_reason is None  # another chat has its own start


async def test_cost_is_what_the_price_of_the_usage_comes_to():
    response = await agent_of(cost=0.25, price=lambda model, usage: usage.total_tokens / 1000).chat(
        "go"
    )
    assert (response.stop_reason, response.text) == ("cost_limit", "cost limit reached: 0.3/0.25")


async def test_a_finish_reason_ends_the_chat_after_the_step():
    model = looking(finish_reason="length")
    out = []
    agent = agent_of(finish_reasons=["length"], model=model)
    agent.add_hook("onStep", lambda ctx: out.append("business"))
    response = await agent.chat("go")
    assert (response.stop_reason, response.steps, out) == ("finish_reason", 1, ["business"])
    assert agent.hooks("onStep")[-1].priority == -200


async def test_an_answer_without_a_listed_finish_reason_passes():
    response = await agent_of(finish_reasons=["length"], model=ScriptedModel("ok")).chat("go")
    assert response.stop_reason is None


async def test_a_custom_counter_counts():
    model = ScriptedModel([call("look"), call("look")], [call("look"), call("look")], "done")
    agent = Agent(model, tools=[look], hooks=[budget(steps=3, count=agent_count)])
    response = await agent.chat("go")
    assert response.text == "step limit reached: 4/3"


def agent_count(run):
    return sum(message.role == "tool" for message in run.history)


async def test_of_several_the_steps_are_told_first():
    response = await agent_of(steps=1, tokens=1).chat("go")
    assert response.stop_reason == "steps_limit"


async def test_the_reason_need_not_be_said():
    conversation = Conversation()
    response = await agent_of(steps=1, say=False).chat("go", conversation=conversation)
    assert (response.stop_reason, response.text) == ("steps_limit", "")
    assert conversation.messages[-1].role == "tool"


async def test_a_stopped_conversation_goes_on_in_the_next_chat():
    conversation = Conversation()
    agent = agent_of(steps=1, model=ScriptedModel(call("look"), "fine"))
    await agent.chat("go", conversation=conversation)
    assert (await agent.chat("and?", conversation=conversation)).text == "fine"


@pytest.mark.parametrize(
    "wrong",
    [
        {},
        {"steps": -1},
        {"seconds": -0.5},
        {"cost": 1.0},
        {"tokens": 9, "count": len},
        {"seconds": float("nan")},
    ],
    ids=["nothing", "steps", "seconds", "no price", "count without steps", "nan"],
)
def test_limits_that_cannot_hold_are_refused(wrong):
    with pytest.raises(UsageError):
        budget(**wrong)


async def test_guards_stand_at_200():
    agent = agent_of(steps=9)
    assert {info.priority for info in agent.hooks("preRequest")} == {200}
    seen = []
    agent.add_hook("preRequest", lambda ctx: seen.append("business"))
    await agent.chat("go", hooks=[budget(steps=0)])
    assert seen == []


async def test_nothing_of_a_chat_is_kept_after_it():
    """The run of a chat that has ended is held by nobody."""
    runs = []
    agent = agent_of(model=looking(2), steps=9)
    agent.add_hook("onChatStart", lambda ctx: runs.append(weakref.ref(ctx.run)))
    await agent.chat("go")
    gc.collect()
    assert runs
    assert [ref() for ref in runs] == [None] * len(runs)


# ── families ────────────────────────────────────────────────────────────────────────────────


def family(kid_turns, mum_turns, **options):
    kid = Agent(ScriptedModel(*kid_turns), name="kid", tools=[look])
    mum = Agent(
        ScriptedModel(*mum_turns),
        name="mum",
        tools=[kid.as_tool()],
        hooks=[budget(**options)],
        parallel_tools=False,
    )
    return mum, kid


ask = call("kid", input="help")
working = Turn(call("look"), usage=USED)


async def test_a_child_has_what_its_parent_has_left():
    mum, _ = family([working] * 9, [Turn(ask, usage=USED), "done"], tokens=350)
    response = await mum.chat("go")
    assert response.messages[2].text == "token limit reached: 400/350"
    assert response.stop_reason == "tokens_limit"


async def test_steps_of_a_child_are_steps_of_its_parent():
    mum, kid = family([working] * 9, [ask, "done"], steps=5)
    with record(kid, points=["preRequest"]) as asked:
        response = await mum.chat("go")
    assert response.messages[2].text == "step limit reached: 5/5"
    assert len(asked.points) == 4  # and the one that its parent has made
    assert response.stop_reason == "steps_limit"


async def test_a_child_may_have_a_smaller_budget_of_its_own():
    mum, kid = family([working] * 9, [ask, "done"], steps=10)
    for hook in budget(steps=2):
        await kid.use(hook)
    response = await mum.chat("go")
    assert response.messages[2].text == "step limit reached: 2/2"
    assert (response.stop_reason, response.text) == (None, "done")


async def test_the_time_of_a_child_is_that_of_its_parent():
    clock = Clock()
    mum, kid = family([working] * 9, [ask, "done"], seconds=100, clock=clock)
    kid.add_hook("onStep", lambda ctx: setattr(clock, "now", clock.now + 60))
    response = await mum.chat("go")
    assert response.messages[2].text == "time limit reached: 120/100 s"


async def test_what_a_child_has_used_counts_after_it_has_ended():
    turns = [ask, ask, ask, "done"]
    mum, _ = family(
        [Turn(text="hi", usage=USED)] * 3, [Turn(t, usage=None) for t in turns], tokens=200
    )
    response = await mum.chat("go")
    assert response.text == "token limit reached: 200/200"
    assert response.steps == 2


async def test_a_childs_own_usage_is_not_its_siblings():
    """Two children side by side share the budget of their parent and nothing else."""
    kid = Agent(ScriptedModel(*[working] * 40), name="kid", tools=[look])
    for hook in budget(steps=3):
        await kid.use(hook)
    mum = Agent(
        ScriptedModel([call("kid", input="a"), call("kid", input="b")], "done"),
        tools=[kid.as_tool()],
        hooks=[budget(steps=100)],
    )
    response = await mum.chat("go")
    assert [m.text for m in response.messages[2:4]] == ["step limit reached: 3/3"] * 2


# ── other lives of a chat ───────────────────────────────────────────────────────────────────


async def test_a_chat_that_goes_on_after_an_approval_counts_on():
    clock = Clock()
    hooks = [budget(tokens=250, seconds=100, clock=clock), approve("look")]
    agent = Agent(looking(), tools=[look], hooks=hooks)
    agent.add_hook("onResponse", lambda ctx: setattr(clock, "now", clock.now + 1))
    conversation = Conversation()
    response = await agent.chat("go", conversation=conversation)
    clock.now += 10**6  # somebody thinks it over, for days
    response = await resumed(agent, conversation)
    assert response.stop_reason == "approval"
    conversation = Conversation.from_json(conversation.to_json())
    response = await resumed(agent, conversation)
    assert response.stop_reason == "approval"
    response = await resumed(agent, conversation)
    assert (response.stop_reason, response.text) == (
        "tokens_limit",
        "token limit reached: 300/250",
    )


async def resumed(agent, conversation):
    (waits,) = conversation.pending
    return await agent.resume(conversation, {waits.id: Approve()})


@pytest.mark.parametrize(
    ("limit", "reason", "text"),
    [
        pytest.param({"steps": 3}, "steps_limit", "step limit reached: 3/3", id="steps"),
        pytest.param({"tokens": 250}, "tokens_limit", "token limit reached: 300/250", id="tokens"),
        pytest.param({"seconds": 100}, "time_limit", "time limit reached: 120/100 s", id="seconds"),
        pytest.param(
            {"cost": 2.5, "price": lambda model, usage: usage.total_tokens / 100},
            "cost_limit",
            "cost limit reached: 3/2.5",
            id="cost",
        ),
    ],
)
async def test_a_new_agent_on_the_same_store_counts_on(tmp_path, limit, reason, text):
    response = None
    for process in range(4):
        clock = Clock()  # a process has its own
        clock.now = 10.0**process
        async with Agent(
            looking(),
            tools=[look],
            hooks=[budget(**limit, clock=clock), approve("look")],
            store=f"sqlite:///{tmp_path}/chats.db",
        ) as agent:
            agent.add_hook(
                "onResponse", lambda ctx, clock=clock: setattr(clock, "now", clock.now + 40)
            )
            if response is None:
                response = await agent.chat("go", conversation="ada")
            else:
                (waits,) = response.pending
                response = await agent.resume("ada", {waits.id: Approve()})
        if response.stop_reason != "approval":
            break
    assert (process, response.stop_reason, response.text) == (3, reason, text)


async def test_what_a_sub_agent_used_before_an_approval_counts_after_it():
    kid = Agent(ScriptedModel(*[Turn(text="hi", usage=USED)] * 3), name="kid")
    turns = [Turn(call("kid", input="a"), usage=None), call("look"), call("look"), "done"]
    model = ScriptedModel(*turns)
    hooks = [budget(steps=4), approve("look")]
    agent = Agent(model, tools=[kid.as_tool(), look], hooks=hooks)
    conversation = Conversation()
    await agent.chat("go", conversation=conversation)
    assert (await resumed(agent, conversation)).stop_reason == "approval"
    response = await resumed(agent, conversation)
    assert response.text == "step limit reached: 4/4"


SPENT = recording.USAGE.total_tokens


def counting(runtime, note):
    """Two steps, each with a sub-agent, and a budget that ends the chat before the third."""
    kid = Agent(recording.Model(note, ["There."]), name="kid")
    calls = [[(id, "kid", {"input": id})] for id in ("c1", "c2")]
    model = recording.Model(note, *calls, ["Done."])
    hooks = [budget(tokens=SPENT * 4)]
    agent = Agent(model, name="mum", tools=[kid.as_tool()], hooks=hooks, runtime=runtime)
    return agent, recording.ask()


async def test_under_a_durable_runtime_it_counts_on_wherever_the_chat_was_cut():
    whole = await recording.live(counting)
    assert whole.response.text == f"token limit reached: {SPENT * 4}/{SPENT * 4}"
    assert len(whole.ran("model 0")) == 3
    for cut in range(1, len(whole.journal)):
        first = await recording.live(counting, limit=cut)
        if first.journal[-1].get("begin", "").endswith("/run"):
            continue  # what a sub-agent had used that was cut off is known to nobody
        second = await recording.live(counting, first.journal)
        assert second.response.text == whole.response.text, cut
        assert second.response.steps == 2, cut


async def test_time_between_two_lives_in_one_process_does_not_count():
    clock = Clock()
    hooks = [budget(seconds=20, clock=clock)]

    async def act() -> str:
        clock.now += 3
        return "done"

    def acting(runtime, note):
        model = recording.Model(note, [("c1", "act", {})], [("c2", "act", {})], ["Done."])
        agent = Agent(model, tools=[act], hooks=hooks, runtime=runtime)
        return agent, recording.ask()

    whole = await recording.live(acting)
    assert whole.response.text == "Done."
    for cut in range(1, len(whole.journal)):
        first = await recording.live(acting, limit=cut)
        clock.now += 100
        second = await recording.live(acting, first.journal)
        assert second.response.text == "Done.", cut


# ── a law ───────────────────────────────────────────────────────────────────────────────────


@settings(max_examples=60)
@given(
    steps=st.integers(0, 6),
    tokens=st.integers(1, 700),
    costs=st.lists(st.integers(0, 200), min_size=1, max_size=8),
)
def test_no_model_call_begins_beyond_a_limit_and_none_within_it_is_refused(steps, tokens, costs):
    turns = [Turn(call("look"), usage=Usage(input_tokens=cost)) for cost in costs]
    model = ScriptedModel(*turns, "done")
    agent = Agent(model, tools=[look], hooks=[budget(steps=steps, tokens=tokens)])
    response = asyncio.run(agent.chat("go"))
    spent = 0
    expected = 0
    for cost in [*costs, 0]:
        if expected >= steps or spent >= tokens:
            break
        expected += 1
        spent += cost
    assert len(model.requests) == expected
    assert (response.stop_reason is None) == (expected == len(costs) + 1)


async def test_cost_by_a_table_of_rates_is_that_of_the_model_that_answered():
    rates = {"small": Rates(input=0, output=0), "big": Rates(input=1_000_000, output=0)}
    first = ScriptedModel(Turn(fail=OverloadedError("no")), name="small")
    big = ScriptedModel([call("add", a=1, b=1)], name="big")
    agent = Agent(
        first,
        tools=[add],
        hooks=[budget(cost=5, price=rates), fallback(big)],
    )
    response = await agent.chat("go")
    assert response.stop_reason == "cost_limit"
    assert response.steps == 1


async def test_a_model_that_the_table_does_not_know_is_an_error_before_it_is_asked():
    model = ScriptedModel("hi", name="large-1")
    agent = Agent(model, hooks=[budget(cost=5, price={"small": Rates(input=1, output=1)})])
    with pytest.raises(UsageError, match=r"cost=5\) has no price for model 'large-1'"):
        await agent.chat("go")
    assert model.calls == 0


async def test_a_model_that_a_function_has_no_price_for_ends_the_chat_before_its_tools():
    ran = []

    async def look() -> None:
        ran.append("look")

    model = ScriptedModel(call("look"), "done", name="large-1")
    agent = Agent(model, tools=[look], hooks=[budget(cost=5, price=lambda model, usage: None)])
    with pytest.raises(UsageError, match="no price for model 'large-1'"):
        await agent.chat("go")
    assert (ran, model.calls) == ([], 1)


async def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


def test_a_table_has_prices_of_the_versions_of_a_model_and_none_of_others():
    price = price_function(
        {"gpt-5": Rates(input=1, output=10), "gpt-5-mini": Rates(input=0.5, output=2)}
    )
    used = Usage(input_tokens=1_000_000, output_tokens=100_000)
    assert price("gpt-5-2026-01-01", used) == 2.0
    assert price("gpt-5-mini-2026", used) == 0.7
    assert price("other", used) is None
    cached = Rates(input=10, output=0, cache_read=1, cache_write=20)
    used = Usage(input_tokens=1_000_000, cache_read_tokens=500_000, cache_write_tokens=100_000)
    assert cached.cost(used) == 4 + 0.5 + 2


def test_the_prices_of_genai_prices():
    pytest.importorskip("genai_prices")
    price = genai_prices()
    used = Usage(input_tokens=1_000_000, output_tokens=1_000_000)
    cost = price("gpt-4o", used)
    assert cost is not None
    assert cost > 0
    assert price("no-such-model", used) is None
