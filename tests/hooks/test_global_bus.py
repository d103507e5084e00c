"""hookline.global_bus: hooks and subscribers of the whole process, and how an agent opts out."""

import threading
from collections.abc import Iterator
from typing import Any

import pytest

from hookline import Agent, HookBus, NullBus, Observer, Scope, define_hook, global_bus, tool
from hookline._hooks.bus import View
from hookline._hooks.declared import expand
from hookline.events import ChatDone, TextDelta
from hookline.testing import ScriptedModel, call


@pytest.fixture(autouse=True)
def nothing_stays() -> Iterator[None]:
    assert global_bus.hooks() == ()
    yield
    global_bus.clear()
    for subscription in global_bus.subscribers:
        subscription.close()


def agent_of(**options: Any) -> Agent[Any]:
    return Agent(ScriptedModel(*["ok"] * 9), **options)


def family(out: list[str], **kid_options: Any) -> Agent[Any]:
    """An agent that asks another one."""
    kid: Agent[Any] = Agent(ScriptedModel("ok"), name="kid", **kid_options)
    return Agent(ScriptedModel(call("kid", input="go"), "ok"), name="mum", tools=[kid.as_tool()])


def note(out: list[str]) -> Any:
    return lambda ctx: out.append(ctx.run.agent)


async def test_a_global_hook_runs_in_every_chat_of_every_agent() -> None:
    out: list[str] = []
    before = agent_of(name="before")
    dispose = global_bus.add_hook("onChatStart", note(out))
    await before.chat("hi")
    await agent_of(name="after").chat("hi")
    dispose()
    await before.chat("hi")
    assert out == ["before", "after"]


async def test_global_hooks_come_first_then_the_agents_then_the_chats() -> None:
    out: list[str] = []
    agent = agent_of(hooks={"onChatStart": lambda ctx: out.append("agent")})
    global_bus.add_hook("onChatStart", lambda ctx: out.append("global"))
    agent.add_hook("onChatStart", lambda ctx: out.append("agent first"), priority=1)
    await agent.chat("hi", hooks={"onChatStart": lambda ctx: out.append("chat")})
    assert out == ["agent first", "global", "agent", "chat"]


async def test_global_hooks_run_once_in_the_chat_of_a_sub_agent_inherited_or_not() -> None:
    out: list[str] = []
    global_bus.add_hook("onChatStart", note(out), inherit=True)
    global_bus.add_hook("onChatEnd", note(out))
    await family(out).chat("hi")
    assert out == ["mum", "kid", "kid", "mum"]


async def test_only_hooks_leave_global_hooks_alone() -> None:
    out: list[str] = []
    global_bus.add_hook("onChatStart", note(out))
    await agent_of(hooks={"onChatStart": note(out)}).chat("hi", only_hooks=[])
    assert out == ["agent"]


async def test_a_global_hook_that_is_added_in_mid_chat_runs_from_then_on() -> None:
    out: list[str] = []

    def start(ctx: Any) -> None:
        global_bus.add_hook("onStep", note(out))

    await agent_of(hooks={"onChatStart": start}).chat("hi")
    assert out == ["agent"]


async def test_a_global_hook_may_change_and_refuse_like_any_other() -> None:
    global_bus.add_hook("onResponse", lambda ctx: ctx.response.replace(text="changed"))
    assert (await agent_of().chat("hi")).text == "changed"


async def test_an_agent_opts_out_also_of_what_its_parent_hears() -> None:
    out: list[str] = []
    global_bus.add_hook("onChatStart", note(out), inherit=True)
    await agent_of(global_hooks=False).chat("hi")
    await family(out, global_hooks=False).chat("hi")
    assert out == ["mum"]


async def test_an_agent_on_a_null_bus_runs_no_hook_of_any_origin() -> None:
    out: list[str] = []
    global_bus.add_hook("onChatStart", note(out), inherit=True)
    mum = family(out, bus=NullBus())
    mum.add_hook("onChatStart", note(out), inherit=True)
    await mum.chat("hi")
    await agent_of(bus=NullBus()).chat("hi", hooks={"onChatStart": note(out)})
    assert out == ["mum", "mum"]


def test_global_hooks_are_listed_first_with_their_origin() -> None:
    agent = agent_of(hooks={"onStep": note([])})
    global_bus.add_hook("onStep", note([]), name="company")
    listed = [(info.name, info.origin) for info in agent.hooks("onStep")]
    assert listed[0] == ("company", "global")
    assert [origin for _, origin in listed] == ["global", "agent"]
    assert [info.origin for info in agent.hooks()] == ["global", "agent"]
    assert [info.off for info in agent.hooks()] == [None, None]
    [company] = agent_of(global_hooks=False).hooks()
    assert (company.origin, company.off) == ("global", "global_hooks=False")


async def test_a_plugin_may_bring_global_hooks_and_takes_them_back() -> None:
    def plugin(agent: Agent[Any]) -> None:
        global_bus.add_hook("onStep", note([]))

    agent = agent_of()
    remove = await agent.use(plugin)
    assert [info.origin for info in agent.hooks()] == ["global"]
    remove()
    assert global_bus.hooks() == ()


async def test_scopes_of_every_agent_are_heard() -> None:
    out: list[str] = []
    global_bus.add_hook("onScopeRegister", lambda ctx: out.append(ctx.scope.label))
    agent_of(scopes=[Scope("one")])
    agent_of(scopes=[Scope("two")], global_hooks=False)
    assert out == ["one"]


async def test_a_bus_of_ones_own_runs_no_global_hooks() -> None:
    class Arrived(Observer, frozen=True):
        who: str

    out: list[str] = []
    global_bus.add_hook(Arrived, lambda ctx: out.append("global"))
    bus: HookBus[Any] = HookBus()
    bus.add_hook(Arrived, lambda ctx: out.append("own"))
    await bus.notify(Arrived("ann"))
    assert out == ["own"]


async def test_subscribers_get_the_events_of_every_agent_that_has_not_opted_out() -> None:
    with global_bus.subscribe(ChatDone) as events:
        for options in ({}, {"global_hooks": False}, {"bus": NullBus()}):
            await Agent[Any](ScriptedModel(str(options.keys())), **options).chat("hi")  # type: ignore[arg-type]
    texts = [event.response.text async for event in events]
    assert texts == ["dict_keys([])", "dict_keys(['bus'])"]


async def test_events_of_sub_agents_reach_a_global_subscriber_once() -> None:
    with global_bus.subscribe(TextDelta) as events:
        await family([]).chat("hi")
    assert [len(event.path) async for event in events] == [1, 0]


async def test_a_subscriber_that_comes_and_goes_in_mid_chat_misses_only_the_rest() -> None:
    seen: list[Any] = []

    @tool
    async def listen() -> str:
        """Listen."""
        seen.append(global_bus.subscribe(ChatDone))
        return "ok"

    await Agent(ScriptedModel(call("listen"), "ok"), tools=[listen]).chat("hi")
    seen[0].close()
    assert len([event async for event in seen[0]]) == 1


async def test_while_it_is_empty_a_chat_looks_at_what_it_always_looks_at() -> None:
    """No source is asked per dispatch: an empty point is an empty tuple, as without it."""
    agent = agent_of()
    view = agent._view(None, None)
    assert view is agent._view(None, None)
    assert view.onStep == ()
    assert view.subscribed == ()


def test_views_of_two_buses_that_change_in_two_threads_lose_no_hook() -> None:
    one: HookBus[Any] = HookBus()
    two: HookBus[Any] = HookBus()
    view = View((one, None), (two, None))
    start = threading.Barrier(2)

    def add(bus: HookBus[Any]) -> None:
        start.wait()
        for _ in range(300):
            bus.add_hook("onStep", lambda ctx: None)

    threads = [threading.Thread(target=add, args=(bus,)) for bus in (one, two)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(view.onStep) == 600


async def test_a_definition_runs_once_though_it_is_global_too() -> None:
    out: list[str] = []
    mine = define_hook("onChatStart", note(out))
    global_bus.enter(expand([mine], {}, "global")[0])
    await agent_of(hooks=[mine]).chat("hi")
    assert out == ["agent"]
