"""`explore` finds each wrong policy that is planted here, and raises no alarm about right ones."""

from typing import get_args

import pytest

from hookline import Agent, Approve, Ask, Deny, Stop, define_hook, tool
from hookline.errors import UsageError
from hookline.hooks import approve
from hookline.runtimes import Durable
from hookline.testing import ScriptedModel
from hookline.testing.explore import Unapproved, explore
from hookline.testing.explore._scene import Person, Resume


@tool
def pay(amount: int, to: str = "ann") -> str:
    """Pay somebody."""
    raise AssertionError("no tool of an explored agent runs")


@tool
def look(name: str) -> str:
    """Look somebody up."""
    raise AssertionError("no tool of an explored agent runs")


def is_large(arguments):
    return arguments["amount"] > 50


GUARDED = {"pay": is_large}


def make_agent(*hooks, tools=(pay, look), **options):
    return Agent(ScriptedModel(), tools=list(tools), hooks=list(hooks), **options)


def ask_if_large(ctx):
    return Ask("sure?") if ctx.call.name == "pay" and is_large(ctx.call.arguments) else None


# ── wrong policies ──────────────────────────────────────────────────────────────────────────


def later_edit():
    """A hook behind the policy multiplies the amount."""

    def double(ctx):
        if ctx.call.name == "pay":
            arguments = dict(ctx.call.arguments)
            return ctx.call.replace(arguments={**arguments, "amount": arguments["amount"] * 2})
        return None

    return make_agent(
        define_hook("preToolCall", ask_if_large),
        define_hook("preToolCall", double, priority=-1),
    )


def wrapper_edit():
    """A wrapper changes what nobody was asked about."""

    async def more(ctx, proceed):
        if ctx.call.name != "pay":
            return await proceed()
        arguments = dict(ctx.call.arguments)
        return await proceed(ctx.call.replace(arguments={**arguments, "amount": 51}))

    return make_agent(define_hook("preToolCall", ask_if_large), define_hook("aroundToolCall", more))


def fragile():
    """A policy that fails on an argument that the model left out, and whose failure is logged."""

    def check(ctx):
        if ctx.call.name == "pay" and ctx.call.arguments["to"] and is_large(ctx.call.arguments):
            return Ask("sure?")
        return None

    return make_agent(define_hook("preToolCall", check, on_error="log"))


def once_for_all():
    """One approval in a chat allows all later calls."""

    def check(ctx):
        if ctx.call.name == "pay" and is_large(ctx.call.arguments):
            return None if ctx.run.state.get("approved") else Ask("sure?")
        return None

    def remember(ctx):
        if isinstance(ctx.decision, Approve):
            ctx.run.state["approved"] = True

    return make_agent(define_hook("preToolCall", check), define_hook("onApproval", remember))


def not_below():
    """The policy does not follow into the sub-agent."""
    helper = Agent(ScriptedModel(), name="helper", tools=[pay])
    return make_agent(
        define_hook("preToolCall", ask_if_large, tools=["pay"]), tools=[look, helper.as_tool()]
    )


def memory_of_the_process():
    """A durable policy that remembers in the process whom it may pay."""
    known = set()

    def check(ctx):
        if ctx.call.name == "pay" and is_large(ctx.call.arguments):
            return None if ctx.call.arguments.get("to") in known else Ask("sure?")
        return None

    def remember(ctx):
        if isinstance(ctx.decision, Approve):
            known.add(ctx.request.call.arguments.get("to"))

    return make_agent(
        define_hook("preToolCall", check),
        define_hook("onApproval", remember),
        runtime=Durable(),
    )


def set_of_call_ids():
    """A set of the process has the ids of approved calls, but ids repeat among conversations."""
    approved = set()

    def check(ctx):
        if ctx.call.name == "pay" and is_large(ctx.call.arguments):
            return None if ctx.call.id in approved else Ask("sure?")
        return None

    def remember(ctx):
        if isinstance(ctx.decision, Approve):
            approved.add(ctx.request.call.id)

    return make_agent(define_hook("preToolCall", check), define_hook("onApproval", remember))


def only_the_first():
    """Only the first call of a step is looked at."""

    def check(ctx):
        first = ctx.run.state.get("step") != ctx.run.iteration
        if ctx.call.name == "pay":
            ctx.run.state["step"] = ctx.run.iteration
            return Ask("sure?") if first and is_large(ctx.call.arguments) else None
        return None

    return make_agent(define_hook("preToolCall", check))


def by_name_of_payee():
    """Payments to bob are trusted, but an approver may write another amount."""

    def check(ctx):
        if ctx.call.name != "pay" or ctx.call.arguments.get("to") == "bob":
            return None
        return Ask("sure?") if is_large(ctx.call.arguments) else None

    return make_agent(define_hook("preToolCall", check))


def runs_twice():
    """A wrapper tries again, so that one approval pays twice."""

    async def again(ctx, proceed):
        await proceed()
        return await proceed()

    return make_agent(
        define_hook("preToolCall", ask_if_large),
        define_hook("aroundToolCall", again),
        tools=[pay.replace(idempotent=True), look],
    )


WRONG = [
    later_edit,
    wrapper_edit,
    fragile,
    once_for_all,
    not_below,
    memory_of_the_process,
    set_of_call_ids,
    only_the_first,
    by_name_of_payee,
    runs_twice,
]


@pytest.mark.slow
@pytest.mark.parametrize("seed", [1, 2, 3])
@pytest.mark.parametrize("policy", WRONG)
def test_a_wrong_policy_is_found_with_a_short_trace(policy, seed):
    with pytest.raises(Unapproved) as caught:
        explore(policy, GUARDED, scenes=3_000, seed=seed)
    problem, *steps, again = str(caught.value).splitlines()
    assert " ran without an approval, after " in problem
    assert len(steps) <= 12
    scene = again.partition("scene=")[2][1:-2]
    with pytest.raises(Unapproved):
        explore(policy, GUARDED, scene=scene)


# ── right policies ──────────────────────────────────────────────────────────────────────────


def guard():
    return make_agent(define_hook("preToolCall", ask_if_large, required=True))


def ready_made():
    return make_agent(*approve("pay", arguments={"amount": lambda amount: amount > 50}))


def refuses():
    return make_agent(
        define_hook(
            "preToolCall", lambda ctx: Deny("no") if ask_if_large(ctx) else None, on_error="deny"
        )
    )


def durable_guard():
    return make_agent(define_hook("preToolCall", ask_if_large, required=True), runtime=Durable())


def guard_above_a_helper():
    helper = Agent(ScriptedModel(), name="helper", tools=[pay])
    return make_agent(
        define_hook("preToolCall", ask_if_large, guard=True, tools=["pay"]),
        tools=[look, helper.as_tool()],
    )


RIGHT = [guard, ready_made, refuses, durable_guard, guard_above_a_helper]


@pytest.mark.parametrize("policy", RIGHT)
def test_a_right_policy_raises_no_alarm(policy):
    explored = explore(policy, GUARDED, scenes=200)
    assert explored.scenes == 200
    assert explored.reached["pay", "called"] > 50
    assert str(explored).startswith("200 scenes: pay ")


@pytest.mark.slow
def test_the_generated_world_has_every_answer_and_every_fault():
    lines, scenes = [], []

    def note(world):
        lines.extend(world.trace)
        scenes.append(world.scene)

    for policy in (guard, durable_guard, guard_above_a_helper):
        explore(policy, GUARDED, scenes=200, invariants=[note])
    people = [f": {person}" for person in get_args(Person)]
    resumed = [f"resumed: {way}" for way in get_args(Resume)]
    for end in (*people, *resumed, "the chat is aborted", "the worker crashes", "chat 3"):
        assert any(line.endswith(end) for line in lines), end
    assert any(call.tool == "pay" for scene in scenes for call in scene.below)
    assert any(len(set(scene.delays)) > 1 for scene in scenes)


# ── what a user may get wrong ───────────────────────────────────────────────────────────────


def test_a_guarded_tool_that_is_never_reached_is_an_error():
    def unreachable():
        return make_agent(define_hook("preChat", lambda ctx: Stop("closed")))

    with pytest.raises(UsageError, match=r"in 50 scenes, no call of 'pay' .* came to the agent"):
        explore(unreachable, GUARDED, scenes=50)


def test_the_name_of_a_guarded_tool_must_exist():
    with pytest.raises(UsageError, match="the agent has no tool 'pya'; name one of 'pay'"):
        explore(guard, {"pya": "always"})


def test_the_same_agent_twice_is_an_error():
    agent = guard()
    with pytest.raises(UsageError, match="the same agent twice"):
        explore(lambda: agent, GUARDED)


def test_a_boundary_that_no_value_reaches_needs_values():
    guarded = {"pay": lambda arguments: arguments["amount"] > 10**9}
    with pytest.raises(UsageError, match="pass some: values="):
        explore(guard, guarded)
    with pytest.raises(Unapproved, match=r"pay\(amount=2000000000\)"):
        explore(make_agent, guarded, values={"pay": [{"amount": 2 * 10**9}]})


def test_a_check_that_raises_names_the_arguments():
    with pytest.raises(KeyError) as caught:
        explore(guard, {"pay": lambda arguments: arguments["sum"]})
    assert "raised by guarded['pay'] for the arguments {'amount': 1" in caught.value.__notes__[0]


def test_a_default_counts_as_an_argument():
    def strangers(ctx):
        return Ask("who?") if ctx.call.arguments.get("to", "ann") == "ann" else None

    explore(
        lambda: make_agent(define_hook("preToolCall", strangers, required=True, tools=["pay"])),
        {"pay": lambda arguments: arguments["to"] == "ann"},
        scenes=200,
    )


def test_an_invariant_of_ones_own_fails_with_the_scene():
    def no_lookups(world):
        return "somebody was looked up" if "RUN look" in "\n".join(world.trace) else None

    with pytest.raises(Unapproved, match="somebody was looked up, after "):
        explore(guard, GUARDED, invariants=[no_lookups])


def test_a_scene_that_is_none_is_refused():
    with pytest.raises(UsageError, match="is not a scene"):
        explore(guard, GUARDED, scene="hello")


async def test_it_is_not_called_in_an_event_loop():
    with pytest.raises(UsageError, match="call it in a test that is not async"):
        explore(guard, GUARDED)
