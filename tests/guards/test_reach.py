"""A guard that can never run is an error at the first request that has tools."""

import pytest

from hookline import Agent, Deny, NullBus, Scope, Tool, define_hook, global_bus
from hookline.errors import UsageError
from hookline.providers import tools as provider_tools
from hookline.testing import ScriptedModel, call


def bash(command: str) -> str:
    return f"ran {command}"


def other(n: int = 0) -> int:
    return n


def deny(ctx):
    return Deny("no")


def agent_of(*turns, **options):
    return Agent(ScriptedModel(*(turns or ("done",))), **({"tools": [bash]} | options))


def logged(caplog):
    return [each.getMessage() for each in caplog.records if each.name == "hookline"]


async def test_a_guard_that_can_match_no_tool_is_an_error_that_names_the_closest():
    agent = agent_of()
    agent.add_hook("preToolCall", deny, tools=["basch"], guard=True, name="mine")
    with pytest.raises(UsageError, match=r"guard 'mine' is for 'basch'.*did you mean 'bash'"):
        await agent.chat("go")


async def test_a_guard_for_a_tool_that_has_a_prefix_is_an_error_that_names_it():
    agent = agent_of(tools=[Tool(bash, name="x_bash")])
    agent.add_hook("preToolCall", deny, tools=["bash"], guard=True)
    with pytest.raises(UsageError, match="did you mean 'x_bash'"):
        await agent.chat("go")


async def test_a_guard_that_names_a_tool_of_the_provider_is_an_error():
    agent = agent_of(tools=[bash, provider_tools.web_search()])
    agent.add_hook("preToolCall", deny, tools=["bash", "web_search"], guard=True)
    with pytest.raises(UsageError, match="'web_search', which the provider runs itself"):
        await agent.chat("go")


async def test_a_guard_for_a_tool_of_a_sub_agent_is_right():
    below = agent_of(call("bash", command="x"), "done", name="below")
    above = agent_of(call("below", input="go"), "done", tools=[below.as_tool()])
    seen = []
    above.add_hook("preToolCall", lambda ctx: seen.append(ctx.call.name), tools=["bash"],
                   guard=True)  # fmt: skip
    await above.chat("go")
    assert seen == ["bash"]


async def test_a_guard_for_a_tool_of_a_handoff_target_is_right(caplog):
    target = agent_of(call("bash", command="x"), "done", name="target")
    first = agent_of(call("transfer_to_target"), tools=[])
    first.handoffs(target)
    seen = []
    first.add_hook("preToolCall", lambda ctx: seen.append(ctx.call.name), tools=["bash"],
                   guard=True)  # fmt: skip
    await first.chat("go")
    assert seen == ["bash"]
    assert logged(caplog) == []


async def test_a_guard_of_a_sub_agent_must_match_there():
    below = agent_of(name="below", tools=[other])
    below.add_hook("preToolCall", deny, tools=["bash"], guard=True)
    above = agent_of(call("below", input="go"), "done", tools=[bash, below.as_tool()])
    response = await above.chat("go")
    assert (
        "agent 'below' has no such tool, nor have its sub-agents" in response.tool_results[0].text
    )


async def test_without_any_tool_nothing_needs_the_guard_yet():
    agent = agent_of("one", "two", tools=[])
    agent.add_hook("preToolCall", deny, tools=["bash"], guard=True)
    await agent.chat("go")
    agent.scopes.register(Scope("late", tools=[other]))
    with pytest.raises(UsageError, match="has no such tool"):
        await agent.chat("go")


async def test_a_guard_may_name_a_tool_that_a_hook_or_a_chat_brings():
    agent = agent_of("one", "two", tools=[other])
    agent.add_hook("preToolCall", deny, tools=["bash"], guard=True)
    await agent.chat("go", tools=[bash])
    brings = define_hook(
        "preRequest", lambda ctx: ctx.request.replace(tools=(*ctx.request.tools, Tool(bash)))
    )
    await agent.chat("go", hooks=[brings])


async def test_hooks_that_are_no_guards_and_global_guards_may_name_any_tool():
    agent = agent_of("one", "two")
    agent.add_hook("preToolCall", deny, tools=["neither"])
    await agent.chat("go")
    with global_bus.add_hook("preToolCall", deny, tools=["neither"], guard=True):
        await agent.chat("go")


async def test_one_wrong_name_among_right_ones_is_logged_once(caplog):
    agent = agent_of("one", "two")
    agent.add_hook("preToolCall", deny, tools=["bash", "othr"], guard=True, name="mine")
    await agent.chat("go")
    await agent.chat("go")
    assert logged(caplog) == ["guard 'mine' names 'othr', but agent 'agent' has no such tool"]
    assert agent.hooks("preToolCall")[0].unmatched == ("othr",)


async def test_a_guard_that_is_added_later_is_checked_too():
    agent = agent_of("one", "two")
    agent.add_hook("preToolCall", deny, tools=["bash"], guard=True)
    await agent.chat("go")
    agent.add_hook("preToolCall", deny, tools=["basch"], guard=True)
    with pytest.raises(UsageError, match="'basch'"):
        await agent.chat("go")


# ── what does not follow ────────────────────────────────────────────────────────────────────


async def test_a_hook_that_does_not_follow_into_a_sub_agent_is_told_once(caplog):
    below = agent_of("one", "two", name="below")
    turns = [call("below", input="go"), call("below", input="go"), "done"]
    above = agent_of(*turns, name="above", tools=[below.as_tool()])
    above.add_hook("preToolCall", lambda ctx: None, name="mine")
    above.add_hook("preToolCall", lambda ctx: None, name="decided", inherit=False)
    above.add_hook("preToolCall", lambda ctx: None, name="guard", guard=True)
    await above.chat("go")
    assert logged(caplog) == [
        "hook 'mine' at preToolCall of agent 'above' does not run in the chat of agent 'below' "
        "inside a tool; write inherit=True, or inherit=False to say so"
    ]


async def test_every_hook_follows_a_handoff_so_nothing_is_told(caplog):
    target = agent_of(call("bash", command="x"), "done", "done", name="target")
    first = agent_of(call("transfer_to_target"), tools=[])
    first.handoffs(target)
    seen = []
    for options in ({}, {"guard": True}, {"inherit": False}, {"guard": True, "inherit": False}):
        first.add_hook(
            "preToolCall",
            lambda ctx, options=options: seen.append(options),
            tools=["bash"],
            **options,
        )
    await first.chat("go")
    assert seen == [{}, {"guard": True}, {"inherit": False}, {"guard": True, "inherit": False}]
    assert logged(caplog) == []


async def test_a_guard_that_does_not_follow_into_a_chat_of_a_tool_is_told_once(caplog):
    below = agent_of("one", "two", name="below")

    async def ask() -> str:
        return (await below.chat("go")).text

    above = agent_of(call("ask"), call("ask"), "done", name="above", tools=[ask])
    above.add_hook("preToolCall", lambda ctx: None, name="guard", guard=True)
    above.add_hook("preToolCall", lambda ctx: None, name="decided", guard=True, inherit=False)
    shared = define_hook("preToolCall", lambda ctx: None, guard=True)
    for agent in (above, below):
        await agent.use([shared])
    await above.chat("go")
    assert logged(caplog) == [
        "hook 'guard' at preToolCall of agent 'above' does not run in the chat of agent 'below' "
        "inside a tool; use as_tool(), or add the hook to that agent too"
    ]


async def test_a_chat_that_a_hook_begins_leaves_nothing_behind(caplog):
    judge = agent_of("fine", name="judge")
    agent = agent_of(call("bash", command="x"), "done")

    @agent.hook("preToolCall", guard=True)
    async def guard(ctx):
        await judge.chat("Is it fine?")

    await agent.chat("go")
    assert logged(caplog) == []


def test_the_list_of_hooks_says_what_a_null_bus_leaves_out():
    agent = agent_of(bus=NullBus())
    agent.add_hook("preToolCall", deny, guard=True)
    assert [hook.off for hook in agent.hooks()] == ["bus=NullBus()"]
