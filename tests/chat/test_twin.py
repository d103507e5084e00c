"""`agent.twin()`: a copy with the same interceptors, and nothing that the outside could notice."""

import pytest

import hookline
from hookline import Agent, Ask, Deny, Limits, MemoryStore, Scope, define_hook, tool
from hookline.errors import MaxStepsError
from hookline.runtimes import Durable
from hookline.testing import ScriptedModel, call, spans

RUNS = []


@tool(idempotent=True)
def pay(amount: int) -> str:
    """Pay an amount."""
    RUNS.append(amount)
    return f"paid {amount}"


@tool(client=True)
def pick(color: str) -> str:
    """Let the person pick."""
    raise AssertionError("only the client runs this")


def stand_in(of):
    async def handler(arguments, run):
        return f"{of.name} {arguments} for {run.agent}"

    return of.with_handler(handler)


def make_agent(*turns, **options):
    model = ScriptedModel(*(turns or (call("pay", amount=1), "done")))
    return Agent(model, name="cashier", tools=[pay], **options)


def outcomes(response):
    return [(result.name, result.outcome, result.text) for result in response.tool_results]


async def test_a_copy_runs_interceptors_and_wrappers_but_no_observers():
    fired = []

    async def wrap(ctx, proceed):
        fired.append("wrapper")
        return await proceed()

    agent = make_agent(call("pay", amount=1), call("pay", amount=9), "done")
    agent.add_hook(
        "preToolCall", lambda ctx: Deny("no") if ctx.call.arguments["amount"] > 5 else None
    )
    agent.add_hook("aroundToolCall", wrap)
    agent.add_hook("onMessage", lambda ctx: fired.append("observer"))
    RUNS.clear()
    response = await agent.twin(tools=stand_in).chat("go")
    assert RUNS == []
    assert [outcome for _, outcome, _ in outcomes(response)] == ["ok", "denied"]
    assert outcomes(response)[0][2] == "pay {'amount': 1} for cashier"
    assert fired == ["wrapper"]


async def test_observers_come_along_if_they_are_asked_for():
    fired = []
    agent = make_agent()
    agent.add_hook("onChatDone", lambda ctx: fired.append("done"))
    await agent.twin(tools=stand_in, observers=True).chat("go")
    assert fired == ["done"]


async def test_a_copy_has_the_global_interceptors_of_the_agent():
    hook = hookline.global_bus.add_hook("preToolCall", lambda ctx: Deny("closed"))
    with hook:
        assert outcomes(await make_agent().twin().chat("go"))[0][1] == "denied"
        RUNS.clear()
        alone = make_agent(global_hooks=False).twin(tools=stand_in)
        assert outcomes(await alone.chat("go"))[0][1] == "ok"


async def test_nobody_outside_notices_a_chat_of_a_copy():
    store = MemoryStore()
    with spans() as recorded:
        agent = make_agent(store=store, approver=lambda request, run: None)
        everything = agent.subscribe()
        copy = agent.twin(tools=stand_in)
        assert copy.store is None
        await copy.chat("go")
        everything.close()
    assert [event async for event in everything] == []
    assert recorded.all == []
    assert len(await store.list()) == 0


async def test_hooks_are_added_and_left_out_by_id_or_name():
    refuse = define_hook("preToolCall", lambda ctx: Deny("no"), id="refuse")
    agent = make_agent(hooks=[refuse])
    agent.add_hook("preToolCall", lambda ctx: Ask("sure?"), name="ask", priority=9)
    assert outcomes(await agent.twin(tools=stand_in, without=["ask"]).chat("go"))[0][1] == "denied"
    assert agent.twin(without=["ask", "refuse"]).hooks("preToolCall") == ()
    added = agent.twin(hooks=[define_hook("preToolCall", lambda ctx: None, name="more")])
    assert [hook.name for hook in added.hooks("preToolCall")][::2] == ["ask", "more"]
    assert len(agent.hooks("preToolCall")) == 2


async def test_a_later_change_of_the_agent_does_not_change_the_copy():
    agent = make_agent(call("pay", amount=1), "done", call("pay", amount=1), "done")
    copy = agent.twin(tools=stand_in)
    agent.add_hook("preToolCall", lambda ctx: Deny("no"))
    agent.scopes.unregister("agent")
    assert outcomes(await copy.chat("go"))[0][1] == "ok"


async def test_the_system_text_settings_limits_and_contexts_are_the_same():
    agent = make_agent(
        system=lambda run: f"You are {run.agent}.",
        limits=Limits(steps=1),
        scopes=[Scope("now", context=lambda: "It is noon.")],
    )
    copy = agent.twin(tools=stand_in)
    with pytest.raises(MaxStepsError):
        await copy.chat("go")
    request = copy.model.last_request
    assert request.system == "You are cashier.\n\n## now\nIt is noon."
    assert request.tools[0].parameters == pay.parameters


async def test_sub_agents_and_their_tools_are_copied_too():
    inner = make_agent()
    outer = Agent(ScriptedModel(call("cashier", input="pay"), "done"), name="outer")
    outer.scopes.register(Scope("below", tools=[inner.as_tool(max_depth=2)]))
    hidden = inner.add_hook("onMessage", lambda ctx: RUNS.append("observer"))
    RUNS.clear()
    copy = outer.twin(tools=lambda of: of if of.leads else stand_in(of))
    with hidden:
        response = await copy.chat("go")
    assert outcomes(response) == [("cashier", "ok", "done")]
    assert RUNS == []
    assert inner.model.last_request.messages[-1].text == "pay {'amount': 1} for cashier"


async def test_a_model_of_the_copy_is_that_of_its_sub_agents_too():
    inner = Agent(ScriptedModel(), name="inner")
    outer = Agent(ScriptedModel(), name="outer", tools=[inner.as_tool()])
    model = ScriptedModel(call("inner", input="hi"), "from below", "done")
    response = await outer.twin(model=model).chat("go")
    assert outcomes(response) == [("inner", "ok", "from below")]


async def test_agents_that_hand_over_to_each_other_are_copied_once():
    one, two = Agent(ScriptedModel(), name="one"), Agent(ScriptedModel(), name="two", tools=[pay])
    one.handoffs(two)
    two.handoffs(one)
    two.add_hook("preToolCall", lambda ctx: Deny("no") if ctx.call.name == "pay" else None)
    model = ScriptedModel(
        call("transfer_to_two"), call("pay", amount=1), call("transfer_to_one"), "back"
    )
    response = await one.twin(model=model).chat("go")
    assert [outcome for _, outcome, _ in outcomes(response)] == ["ok", "denied", "ok"]
    assert response.text == "back"


def test_a_tool_says_where_it_leads():
    agent = Agent(ScriptedModel(), name="one")
    agent.handoffs(Agent(ScriptedModel(), name="two"))
    assert agent.scopes.tools["transfer_to_two"][0].leads == "handoff"
    assert agent.as_tool().leads == "agent"
    assert agent.as_tool().replace(name="other").leads == "agent"
    assert pay.leads is None


async def test_a_stand_in_gets_the_json_arguments_and_only_those_that_fit():
    seen = []

    async def handler(arguments, run):
        seen.append(arguments)
        return "ok"

    copy = pay.with_handler(handler)
    assert (copy.name, copy.description, copy.parameters) == (
        pay.name,
        pay.description,
        pay.parameters,
    )
    assert copy.idempotent
    model = ScriptedModel(call("pay", amount=1), call("pay", amount="much"), "done")
    response = await Agent(model, tools=[copy]).chat("go")
    assert [outcome for _, outcome, _ in outcomes(response)] == ["ok", "error"]
    assert seen == [{"amount": 1}]


async def test_a_stand_in_of_a_client_tool_runs_here():
    model = ScriptedModel(call("pick", color="red"), "done")
    response = await Agent(model, tools=[stand_in(pick)]).chat("go")
    assert outcomes(response) == [("pick", "ok", "pick {'color': 'red'} for agent")]


def test_the_copy_has_the_runtime_of_the_agent():
    runtime = Durable()
    assert make_agent(runtime=runtime).twin().runtime is runtime
