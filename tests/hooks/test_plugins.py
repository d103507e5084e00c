"""`agent.use(plugin)`: what a plugin adds, who owns it, and how all of it goes."""

import asyncio
from types import SimpleNamespace

import pytest

from hookline import (
    Agent,
    Approve,
    Ask,
    Conversation,
    Deny,
    HookBus,
    HookDef,
    Scope,
    define_hook,
    tool,
)
from hookline.errors import ScopeError, UnknownHookError, UsageError
from hookline.testing import ScriptedModel, call


@tool
async def look() -> str:
    return "seen"


@tool
async def dig() -> str:
    return "dug"


def agent_of(**options):
    return Agent(ScriptedModel(*["ok"] * 9), **options)


def state(agent):
    """All that a plugin can add."""
    return agent.hooks(), tuple(agent.scopes), tuple(agent.scopes.tools)


def note(out, name, **options):
    return HookDef("onChatStart", lambda ctx: out.append(name), **options)


# ── the forms ───────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("form", ["sync", "async"])
async def test_a_function_of_the_agent_adds_hooks_tools_and_scopes(form):
    out = []

    def add(agent):
        agent.add_hook("onChatStart", lambda ctx: out.append("ran"))
        agent.scopes.register(Scope("garden", tools=[look]))

    async def add_later(agent):
        await asyncio.sleep(0)
        add(agent)

    agent = agent_of()
    before = state(agent)
    remove = await agent.use(add if form == "sync" else add_later)
    await agent.chat("hi")
    assert out == ["ran"]
    assert list(agent.scopes.tools) == ["look"]
    remove()
    assert state(agent) == before
    await agent.chat("hi")
    assert out == ["ran"]


async def test_an_object_with_hooks_tools_and_scopes():
    out = []

    class Garden:
        name = "garden"

        def __init__(self):
            self.hooks = [note(out, "a"), [note(out, "b")]]
            self.tools = [look]
            self.scopes = [Scope("shed", tools=[dig])]

    agent = agent_of()
    before = state(agent)
    async with asyncio.timeout(60):
        remove = await agent.use(Garden())
    assert [scope.label for scope in agent.scopes] == ["shed", "garden"]
    await agent.chat("hi")
    assert out == ["a", "b"]
    remove()
    assert state(agent) == before


async def test_an_object_may_bring_a_table_of_hooks_or_nothing_but_tools():
    out = []

    agent = agent_of()
    await agent.use(SimpleNamespace(hooks={"onChatStart": lambda ctx: out.append("ran")}))
    await agent.use(SimpleNamespace(tools=[look]))
    await agent.chat("hi")
    assert out == ["ran"]
    assert [scope.label for scope in agent.scopes] == ["SimpleNamespace"]


async def test_definitions_and_lists_of_them_are_plugins():
    out = []
    agent = agent_of()
    await agent.use(note(out, "a"))
    remove = await agent.use([note(out, "b"), (note(out, "c"),)])
    await agent.chat("hi")
    remove()
    await agent.chat("hi")
    assert out == ["a", "b", "c", "a"]


@pytest.mark.parametrize("nothing", [3, object(), None], ids=["int", "object", "None"])
async def test_what_is_no_plugin_is_refused(nothing):
    with pytest.raises(UsageError, match="not a plugin"):
        await agent_of().use(nothing)


# ── who owns what ───────────────────────────────────────────────────────────────────────────


async def test_the_origin_of_a_plugins_hooks_is_visible():
    def garden(agent):
        agent.add_hook("onChatStart", lambda ctx: None)
        agent.bus.add_hook("onChatEnd", lambda ctx: None)

    agent = agent_of(hooks=[note([], "declared")])
    agent.add_hook("onStep", lambda ctx: None)
    await agent.use(garden, name="garden")
    await agent.use([note([], "x", id="weeds")], name="weeds")
    assert [(info.point, info.id, info.origin) for info in agent.hooks()] == [
        ("onChatStart", None, "agent"),
        ("onChatStart", None, "plugin garden"),
        ("onChatStart", "weeds", "plugin weeds"),
        ("onStep", None, "add_hook"),
        ("onChatEnd", None, "plugin garden"),
    ]


async def test_what_others_add_while_a_plugin_waits_is_not_the_plugins():
    agent = agent_of()
    begun, go_on = asyncio.Event(), asyncio.Event()

    async def slow(agent):
        agent.add_hook("onChatStart", lambda ctx: None, name="mine")
        begun.set()
        await go_on.wait()

    using = asyncio.create_task(agent.use(slow))
    await begun.wait()
    agent.add_hook("onChatStart", lambda ctx: None, name="other")
    go_on.set()
    (await using)()
    assert [(info.name, info.origin) for info in agent.hooks()] == [("other", "add_hook")]


async def test_a_plugins_hooks_run_also_in_a_chat_with_only_hooks():
    out = []
    agent = agent_of(hooks=[note(out, "declared")])
    await agent.use([note(out, "plugin")])
    await agent.chat("hi", only_hooks=[])
    assert out == ["plugin"]


async def test_ids_of_a_plugin_are_known_while_it_is_there():
    out = []
    agent = agent_of()
    remove = await agent.use([note(out, "a", id="greet")])
    await agent.chat("hi", hooks=["greet"])
    remove()
    with pytest.raises(UnknownHookError, match="greet"):
        await agent.chat("hi", hooks=["greet"])


async def test_a_plugin_may_use_another_and_takes_it_along():
    out = []

    async def outer(agent):
        await agent.use([note(out, "inner")], name="inner")
        agent.add_hook("onChatStart", lambda ctx: out.append("outer"))

    agent = agent_of()
    remove = await agent.use(outer)
    await agent.chat("hi")
    assert out == ["inner", "outer"]
    assert agent.hooks()[0].origin == "plugin inner"
    remove()
    assert agent.hooks() == ()


async def test_a_plugin_may_bring_hooks_of_a_bus_of_ones_own():
    bus = HookBus()

    def both(agent):
        bus.add_hook("onStep", lambda ctx: None)

    remove = await agent_of().use(both)
    assert len(bus.hooks()) == 1
    remove()
    assert bus.hooks() == ()


async def test_a_subscription_of_a_plugin_is_closed_with_it():
    kept = []
    agent = agent_of()
    remove = await agent.use(lambda agent: void(kept.append(agent.subscribe())))
    remove()
    await agent.chat("hi")
    assert [each async for each in kept[0]] == []


# ── going ───────────────────────────────────────────────────────────────────────────────────


async def test_cleanup_is_called_first_and_once():
    out = []
    agent = agent_of()

    def garden(agent):
        agent.add_hook("onChatStart", lambda ctx: None)
        return lambda: out.append(len(agent.hooks()))

    remove = await agent.use(garden)
    remove()
    remove()
    assert out == [1]
    assert agent.hooks() == ()


async def test_a_cleanup_that_raises_keeps_nothing_back():
    def garden(agent):
        agent.add_hook("onChatStart", lambda ctx: None)

        def fail():
            raise ValueError("broken")

        return fail

    agent = agent_of()
    remove = await agent.use(garden)
    with pytest.raises(ValueError, match="broken"):
        remove()
    assert agent.hooks() == ()


async def test_the_disposer_is_a_context_manager():
    agent = agent_of()
    with await agent.use([note([], "a")]):
        assert len(agent.hooks()) == 1
    assert agent.hooks() == ()


async def test_a_disposer_never_removes_a_later_scope_of_the_same_name():
    agent = agent_of()
    remove = await agent.use(lambda agent: void(agent.scopes.register(Scope("a"))))
    agent.scopes.unregister("a")
    later = Scope("a")
    agent.scopes.register(later)
    remove()
    assert list(agent.scopes) == [later]


def void(value):
    return None


# ── cleaning up asynchronously ──────────────────────────────────────────────────────────────


class Garden:
    """A plugin whose gate takes its time to close."""

    def __init__(self, out, error=None):
        self.out = out
        self.error = error
        self.closing = asyncio.Event()
        self.may_close = asyncio.Event()

    def __call__(self, agent):
        agent.add_hook("onChatStart", lambda ctx: None)
        self.agent = agent
        return self.close

    async def close(self):
        self.out.append(f"closing with {len(self.agent.hooks())} hooks")
        self.closing.set()
        await self.may_close.wait()
        if self.error is not None:
            raise self.error
        self.out.append("closed")


CLOSED = ["closing with 0 hooks", "closed"]


async def test_aclose_unregisters_and_waits_for_the_cleanup_which_runs_once():
    out = []
    garden = Garden(out)
    garden.may_close.set()
    remove = await agent_of().use(garden)
    await remove.aclose()
    await remove.aclose()
    remove()
    assert out == CLOSED


async def test_an_async_with_closes_the_plugin():
    out = []
    garden = Garden(out)
    garden.may_close.set()
    async with await agent_of().use(garden):
        assert out == []
    assert out == CLOSED


async def test_a_plain_uninstall_unregisters_at_once_and_closes_in_a_task_of_its_own():
    out = []
    agent, garden = agent_of(), Garden(out)
    remove = await agent.use(garden)
    remove()
    assert agent.hooks() == ()
    assert out == []
    garden.may_close.set()
    await remove.aclose()
    assert out == CLOSED


@pytest.mark.parametrize("first", ["left alone", "uninstalled"])
async def test_closing_the_agent_closes_every_plugin_the_last_first(first, no_leaks):
    out = []
    agent = agent_of()
    for name in ("a", "b"):

        async def close(name=name):
            await asyncio.sleep(0)
            out.append(name)

        remove = await agent.use(lambda agent, close=close: close, name=name)
        if first == "uninstalled":
            remove()
    async with agent:
        pass
    assert out == (["b", "a"] if first == "left alone" else ["a", "b"])
    await agent.aclose()
    assert len(out) == 2


async def test_an_inner_plugin_is_closed_with_the_one_that_uses_it():
    out = []
    garden = Garden(out)
    garden.may_close.set()

    async def outer(agent):
        await agent.use(garden)

        async def close():
            out.append("outer closed")

        return close

    await (await agent_of().use(outer)).aclose()
    assert sorted(out) == sorted([*CLOSED, "outer closed"])


async def test_what_a_cleanup_raises_reaches_aclose_when_all_are_done():
    out = []
    agent = agent_of()
    first, second = Garden(out), Garden(out, ValueError("stuck"))
    for garden in (first, second):
        garden.may_close.set()
        await agent.use(garden)
    with pytest.raises(ValueError, match="stuck"):
        await agent.aclose()
    assert out == ["closing with 1 hooks", *CLOSED]
    await agent.aclose()


async def test_what_the_cleanup_of_an_inner_plugin_raises_reaches_aclose_too(caplog):
    garden = Garden([], ValueError("stuck"))
    garden.may_close.set()

    async def outer(agent):
        await agent.use(garden)

        async def close():
            await asyncio.sleep(0)
            await asyncio.sleep(0)

        return close

    remove = await agent_of().use(outer)
    with pytest.raises(ValueError, match="stuck"):
        await remove.aclose()
    assert caplog.text == ""


async def test_a_cleanup_that_raises_CancelledError_has_failed_and_the_others_still_run():
    """Nobody has cancelled anything, so nobody who waits is cancelled."""
    out = []
    agent = agent_of()
    first, second = Garden(out), Garden([], asyncio.CancelledError())
    for garden in (first, second):
        garden.may_close.set()
        await agent.use(garden)
    with pytest.raises(UsageError, match="CancelledError"):
        await agent.aclose()
    assert out[-1] == "closed"


async def test_what_a_cleanup_raises_is_logged_where_nobody_waits(caplog):
    garden = Garden([], ValueError("stuck"))
    garden.may_close.set()
    remove = await agent_of().use(garden)
    remove()
    await asyncio.wait(asyncio.all_tasks() - {asyncio.current_task()})
    assert remove.is_done
    assert "plugin Garden raised during its cleanup: ValueError" in caplog.text


async def test_a_cleanup_goes_on_when_the_one_that_waits_for_it_is_cancelled():
    out = []
    garden = Garden(out)
    remove = await agent_of().use(garden)
    waiting = asyncio.create_task(remove.aclose())
    await garden.closing.wait()
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    garden.may_close.set()
    await remove.aclose()
    assert out == CLOSED


def test_without_a_loop_the_asynchronous_part_waits_for_aclose():
    out = []
    garden = Garden(out)
    agent = agent_of()
    remove = asyncio.run(agent.use(garden))
    remove()
    assert agent.hooks() == ()
    assert out == []

    async def close():
        garden.may_close.set()
        await agent.aclose()

    asyncio.run(close())
    assert out == CLOSED


async def test_what_a_sync_cleanup_returns_is_awaited_too():
    out = []
    garden = Garden(out)
    garden.may_close.set()
    garden.agent = agent = agent_of()
    async with await agent.use(lambda agent: lambda: garden.close()):
        pass
    assert out == CLOSED


# ── all or nothing ──────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    "error", [ValueError("broken"), asyncio.CancelledError()], ids=["error", "cancelled"]
)
async def test_a_plugin_that_raises_leaves_nothing_and_its_error_reaches_the_caller(error):
    agent = agent_of(tools=[look])
    before = state(agent)

    async def broken(agent):
        agent.add_hook("onChatStart", lambda ctx: None)
        agent.scopes.register(Scope("shed", tools=[dig]))
        await agent.use([note([], "x", id="x")])
        raise error

    with pytest.raises(type(error)) as caught:
        await agent.use(broken)
    assert caught.value is error
    assert state(agent) == before
    await agent.use([note([], "y", id="x")])  # the id is free again


async def test_a_cleanup_that_raises_meanwhile_hides_nothing(caplog):
    def inner(agent):
        def fail():
            raise ValueError("cleanup")

        return fail

    async def broken(agent):
        await agent.use(inner)
        agent.add_hook("onChatStart", lambda ctx: None)
        raise KeyError("first")

    agent = agent_of()
    with pytest.raises(KeyError, match="first"):
        await agent.use(broken)
    assert agent.hooks() == ()
    assert "was removed: ValueError" in caplog.text


async def test_an_object_whose_tool_is_taken_leaves_nothing():
    shed = Scope("shed", tools=[dig])
    garden = SimpleNamespace(hooks=[note([], "a")], scopes=[shed], tools=[look])
    agent = agent_of(tools=[look])
    before = state(agent)
    with pytest.raises(ScopeError, match="look"):
        await agent.use(garden)
    assert state(agent) == before


async def test_what_is_returned_must_clean_up():
    agent = agent_of()

    def garden(agent):
        agent.add_hook("onChatStart", lambda ctx: None)
        return 3

    with pytest.raises(UsageError, match="cleanup function"):
        await agent.use(garden)
    assert agent.hooks() == ()


async def test_a_tool_of_a_plugin_runs_and_is_unknown_afterwards():
    agent = Agent(ScriptedModel(call("look"), "one", call("look"), "two"))
    with await agent.use(SimpleNamespace(tools=[look])):
        response = await agent.chat("go")
    assert response.messages[2].text == "seen"
    response = await agent.chat("go")
    assert "UnknownToolError" in response.messages[2].text


# ── the decorator ───────────────────────────────────────────────────────────────────────────


async def test_define_hook_decorates_and_takes_every_option():
    out = []

    @define_hook("preToolCall", id="deny", required=True, priority=7, tools=["dig"], inherit=True)
    def deny(ctx):
        out.append(ctx.call.name)

    assert isinstance(deny, HookDef)
    agent = Agent(ScriptedModel([call("look"), call("dig")], "ok"), tools=[look, dig], hooks=[deny])
    await agent.chat("hi", only_hooks=[])
    assert out == ["dig"]
    (info,) = agent.hooks()
    assert (info.id, info.required, info.priority, info.tools) == ("deny", True, 7, ("dig",))


async def test_a_definition_can_be_called_like_its_function():
    @define_hook("onChatStart")
    async def greet(ctx):
        return f"hello {ctx}"

    assert await greet("Ada") == "hello Ada"


# ── an object of an agent ───────────────────────────────────────────────────────────────────


class Pond:
    """A plugin with hooks, tools and a scope of its own name, which must be closed."""

    name = "pond"
    tools = (dig,)
    scopes = (Scope("pond", tools=[look], context=lambda run: f"the agent is {run.agent}"),)

    def __init__(self):
        self.closed = 0

    @define_hook("onChatStart")
    def start(self, ctx):
        ctx.run.state["pond"] = True

    async def aclose(self):
        self.closed += 1


@pytest.mark.parametrize("how", ["plugins=", "use"])
async def test_an_object_may_have_tools_and_a_scope_of_its_name(how):
    model = ScriptedModel("ok")
    agent = Agent(model, plugins=[Pond()] if how == "plugins=" else [])
    if how == "use":
        await agent.use(Pond())
    assert [scope.label for scope in agent.scopes] == ["pond"]
    assert list(agent.scopes.tools) == ["look", "dig"]
    assert [info.origin for info in agent.hooks("onChatStart")] == ["plugin pond"]
    state = {}
    await agent.chat("hi", state=state)
    assert "the agent is agent" in model.last_request.system


@pytest.mark.parametrize("how", ["plugins=", "use"])
async def test_an_agent_closes_its_plugins(how):
    pond = Pond()
    agent = agent_of(plugins=[pond] if how == "plugins=" else [])
    if how == "use":
        remove = await agent.use(pond)
        await remove.aclose()
        assert pond.closed == 1
    await agent.aclose()
    assert pond.closed == 1
    assert list(agent.scopes) == []


def test_a_function_needs_use():
    with pytest.raises(UsageError, match=r"agent\.use"):
        agent_of(plugins=[lambda agent: None])


async def test_a_plugin_may_bring_what_answers_approvals():
    ran = []

    async def pay(amount: int) -> str:
        """Pay."""
        ran.append(amount)
        return "paid"

    @define_hook("preToolCall", priority=-100)
    async def answer(ctx):
        return Approve() if ctx.call.arguments["amount"] < 10 else Deny("too much", by="bot")

    turns = [call("pay", amount=1), call("pay", amount=20), "Done."]
    agent = Agent(ScriptedModel(*turns, call("pay", amount=1)), tools=[pay])
    agent.add_hook("preToolCall", lambda ctx: Ask("sure?"))
    async with await agent.use(SimpleNamespace(hooks=[answer])):
        response = await agent.chat("go", conversation=Conversation())
    assert [result.outcome for result in response.tool_results] == ["ok", "denied"]
    assert response.stop_reason is None
    assert ran == [1]
    waits = await agent.chat("go", conversation=Conversation())  # the plugin is removed
    assert waits.stop_reason == "approval"
