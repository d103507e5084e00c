"""What guards cost, in bytecodes: nothing without them, one comparison for a call just seen."""

from typing import Any

from tests.benchmarks import byhand, ours
from tests.benchmarks.bytecodes import count

from hookline import Agent, Limits
from hookline.hooks import budget

LOOK = {"/_chat/guards.py": "the last look", "/_chat/run_tool.py": "the run of a call",
        "/_chat/child_history.py": "sub-agents",
        "/_chat/child_answers.py": "sub-agents", "/_chat/rules.py": "rules",
        "/_chat/approval.py": "approvals", "/_chat/reach.py": "the check of guards"}  # fmt: skip


async def of_calls(units: int, **hook: Any) -> dict[str, int]:
    """The bytecodes of the modules of LOOK for a chat of so many calls."""

    async def work() -> Any:
        limits = Limits(steps=units + 1)
        agent: Agent[Any] = Agent(ours.Scripted(units), tools=[byhand.Counter().add], limits=limits)
        if hook:
            agent.add_hook("preToolCall", lambda ctx: None, **hook)
        await ours.read_calls(agent)

    found = await count(work, LOOK)
    return {name: found[name] for name in set(LOOK.values())}


async def of_one_call(**hook: Any) -> dict[str, float]:
    less, more = await of_calls(8, **hook), await of_calls(16, **hook)
    return {name: (more[name] - less[name]) / 8 for name in more}


async def test_a_chat_without_guards_does_nothing_for_them():
    done = await of_calls(8)
    assert done.pop("the run of a call") > 0
    assert set(done.values()) == {0}


async def test_a_guard_that_has_just_seen_the_call_costs_one_comparison():
    """More than a hook that is no guard: whether there are guards, and whether a look is due."""
    hook, guard = await of_one_call(guard=False), await of_one_call(guard=True)
    more = {name: guard[name] - hook[name] for name in guard}
    assert 0 < more.pop("the last look") < 20
    assert 0 < more.pop("the run of a call") < 20
    assert 0 < more.pop("the check of guards") < 40  # that the tools of the request are the same
    assert set(more.values()) == {0}


async def test_a_budget_counts_a_call_once_over_the_last_look():
    """A wrapper changes the calls, so every guard is asked twice; the tokens count once."""

    async def chat(*, again: bool) -> Any:
        agent: Agent[Any] = Agent(
            ours.Scripted(2),
            tools=[byhand.Counter().add],
            hooks=[budget(tokens=10**9, steps=99)],
        )
        looks: list[bool] = []
        agent.add_hook("preToolCall", lambda ctx: looks.append(ctx.again), guard=True)

        async def change(ctx: Any, proceed: Any) -> Any:
            first, *rest = ctx.call.arguments
            arguments = {name: ctx.call.arguments[name] for name in rest} | {first: 7}
            return await proceed(ctx.call.replace(arguments=arguments))

        if again:
            agent.add_hook("aroundToolCall", change)
        states: list[Any] = []
        agent.add_hook(
            "onChatEnd", lambda ctx: states.append(dict(ctx.run.state)), priority=-20_000
        )
        response = await agent.chat("go")
        (entry,) = states[0]["hookline.budget"].values()
        return len(looks), entry["usage"], response.usage.total_tokens

    once, twice = await chat(again=False), await chat(again=True)
    assert (once[0], twice[0]) == (2, 4)
    assert once[1:] == twice[1:]
