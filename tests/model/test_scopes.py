"""Scopes: named bundles of tools and context, registered and removed as a unit."""

import asyncio
import logging
import threading

import pytest
from tests._tool_chats import results, settle

from hookline import Agent, Conversation, Run, Scope, tool
from hookline._tools.scopes import Scopes
from hookline.errors import ScopeError, ToolDefinitionError
from hookline.points import OnScopeRegister, OnScopeUnregister
from hookline.testing import ScriptedModel, call


def make(name, out=None, **options):
    """A tool of that name, which notes that it ran."""

    @tool(name=name, **options)
    async def fn() -> str:
        if out is not None:
            out.append(name)
        return name

    return fn


def names(request):
    return [each.name for each in request.tools]


def labels(agent):
    return [scope.label for scope in agent.scopes]


async def offered(agent_scopes, **options):
    """The names of the tools that a request offers."""
    model = ScriptedModel("done")
    agent = Agent(model, scopes=agent_scopes, **options)
    await agent.chat("go")
    return names(model.last_request)


# ── registering ─────────────────────────────────────────────────────────────────────────────


async def test_the_tools_of_a_registered_scope_are_offered_and_run():
    model = ScriptedModel(call("search", call_id="a"), "done")
    agent = Agent(model)
    agent.scopes.register(Scope("web", tools=[make("search")]))
    response = await agent.chat("go")
    assert names(model.last_request) == ["search"]
    assert results(response) == [("a", "ok", "search")]


async def test_hooks_see_the_scope_of_a_tool():
    seen = []
    agent = Agent(
        ScriptedModel([call("search"), call("own")], "done"),
        tools=[make("own")],
        scopes=[Scope("web", tools=[make("search")])],
    )
    agent.add_hook("preToolCall", lambda ctx: seen.append((ctx.call.name, ctx.scope.label)))
    await agent.chat("go")
    assert seen == [("search", "web"), ("own", "agent")]


async def test_the_tools_of_an_agent_are_the_scope_agent():
    agent = Agent(ScriptedModel(), tools=[make("own")])
    assert labels(agent) == ["agent"]
    assert [each.name for each in agent.scopes.get("agent").tools] == ["own"]


async def test_tools_are_offered_in_the_order_of_registration():
    scopes = [Scope("b", tools=[make("b1"), make("b2")]), Scope("a", tools=[make("a1")])]
    assert await offered(scopes, tools=[make("own")]) == ["own", "b1", "b2", "a1"]


async def test_a_plain_function_may_be_a_tool_of_a_scope():
    async def search() -> str:
        """Search the web."""

    assert await offered([Scope("web", tools=[search])]) == ["search"]


async def test_a_disposer_removes_its_scope():
    model = ScriptedModel("one", "two")
    agent = Agent(model)
    dispose = agent.scopes.register(Scope("web", tools=[make("search")]))
    await agent.chat("go")
    dispose()
    await agent.chat("go")
    assert [names(request) for request in model.requests] == [["search"], []]
    assert labels(agent) == []


async def test_a_disposer_may_be_called_twice():
    agent = Agent(ScriptedModel())
    dispose = agent.scopes.register(Scope("web"))
    dispose()
    dispose()
    assert labels(agent) == []


async def test_a_disposer_never_removes_a_later_scope_of_the_same_name():
    agent = Agent(ScriptedModel())
    dispose = agent.scopes.register(Scope("web", tools=[make("search")]))
    agent.scopes.unregister("web")
    later = Scope("web", tools=[make("search")])
    agent.scopes.register(later)
    dispose()
    assert agent.scopes.get("web") is later


async def test_a_disposer_never_removes_the_same_scope_registered_anew():
    agent = Agent(ScriptedModel())
    scope = Scope("web", tools=[make("search")])
    first = agent.scopes.register(scope)
    first()
    agent.scopes.register(scope)
    first()
    assert labels(agent) == ["web"]


async def test_a_disposer_works_from_another_thread():
    agent = Agent(ScriptedModel())
    dispose = agent.scopes.register(Scope("web"))
    thread = threading.Thread(target=dispose)
    thread.start()
    thread.join()
    assert labels(agent) == []


async def test_unregister_says_whether_there_was_a_scope_of_that_label():
    agent = Agent(ScriptedModel(), scopes=[Scope("web")])
    assert agent.scopes.unregister("web") is True
    assert agent.scopes.unregister("web") is False


def test_two_tools_of_one_name_in_a_scope_are_refused_where_it_is_made():
    with pytest.raises(ScopeError, match="search"):
        Scope("web", tools=[make("search"), make("search")])


def test_two_tools_of_one_name_in_an_agent_are_refused():
    with pytest.raises(ScopeError, match="search"):
        Agent(ScriptedModel(), tools=[make("search"), make("search")])


def test_a_scope_without_a_label_is_refused():
    with pytest.raises(ScopeError, match="label"):
        Scope("")


def clashing(*, label="other", tools=("fresh", "search")):
    """An agent with scope web (tool search), and a scope that clashes with it."""
    agent = Agent(ScriptedModel(), scopes=[Scope("web", tools=[make("search")])])
    return agent, Scope(label, tools=[make(name) for name in tools])


async def test_tool_names_are_unique_across_scopes():
    agent, scope = clashing()
    with pytest.raises(ScopeError, match=r"'search'.*'web'"):
        agent.scopes.register(scope)


async def test_tool_names_are_unique_across_the_agents_own_tools_and_scopes():
    with pytest.raises(ScopeError, match="search"):
        Agent(
            ScriptedModel(), tools=[make("search")], scopes=[Scope("web", tools=[make("search")])]
        )


async def test_labels_are_unique():
    agent, scope = clashing(label="web", tools=["fresh"])
    with pytest.raises(ScopeError, match="'web'"):
        agent.scopes.register(scope)


@pytest.mark.parametrize(
    "scope",
    [
        pytest.param({"tools": ("fresh", "search")}, id="a tool name that is taken"),
        pytest.param({"label": "web", "tools": ("fresh",)}, id="a label that is taken"),
    ],
)
async def test_registering_is_all_or_nothing(scope):
    """Nothing of a scope that was refused is registered, offered or told."""
    told = []
    agent, refused = clashing(**scope)
    agent.add_hook("onScopeRegister", lambda ctx: told.append(ctx.scope.label))
    before = agent.scopes.get("web")
    with pytest.raises(ScopeError):
        agent.scopes.register(refused)
    assert list(agent.scopes) == [before]
    assert told == []
    agent.scopes.register(Scope("later", tools=[make("fresh")]))  # the name is free
    assert labels(agent) == ["web", "later"]


async def test_the_names_of_a_removed_scope_are_free_again():
    agent, scope = clashing()
    agent.scopes.unregister("web")
    agent.scopes.register(scope)
    assert labels(agent) == ["other"]


async def test_one_scope_may_be_registered_with_two_agents():
    scope = Scope("web", tools=[make("search")])
    first, second = (Agent(ScriptedModel(), scopes=[scope]) for _ in range(2))
    first.scopes.unregister("web")
    assert labels(second) == ["web"]


async def test_a_scope_registered_by_a_tool_is_offered_from_the_next_step_on():
    model = ScriptedModel(call("enter"), call("inside", call_id="b"), "done")
    agent = Agent(model)

    @tool
    async def enter() -> None:
        agent.scopes.register(Scope("room", tools=[make("inside")]))

    agent.scopes.register(Scope("hall", tools=[enter]))
    response = await agent.chat("go")
    assert [names(request) for request in model.requests] == [
        ["enter"],
        ["enter", "inside"],
        ["enter", "inside"],
    ]
    assert results(response)[1] == ("b", "ok", "inside")


async def test_a_scope_removed_by_a_tool_is_not_offered_any_more():
    model = ScriptedModel(call("leave"), "done")
    agent = Agent(model)

    @tool
    async def leave() -> None:
        agent.scopes.unregister("room")

    agent.scopes.register(Scope("room", tools=[leave]))
    await agent.chat("go")
    assert [names(request) for request in model.requests] == [["leave"], []]


# ── switches ────────────────────────────────────────────────────────────────────────────────


def raising():
    raise RuntimeError("who knows")


@pytest.mark.parametrize(
    ("scope_on", "tool_on", "expected"),
    [
        pytest.param(lambda: True, lambda: True, ["search"], id="both"),
        pytest.param(lambda: True, lambda: False, [], id="the scope alone"),
        pytest.param(lambda: False, lambda: True, [], id="the tool alone"),
        pytest.param(lambda: False, lambda: False, [], id="neither"),
        pytest.param(None, None, ["search"], id="no switch"),
        pytest.param(raising, lambda: True, [], id="the scope's raises"),
        pytest.param(lambda: True, raising, [], id="the tool's raises"),
    ],
)
async def test_scope_and_tool_must_both_be_on_at_the_request(scope_on, tool_on, expected):
    scope = Scope("web", enabled=scope_on, tools=[make("search", enabled=tool_on)])
    assert await offered([scope]) == expected


@pytest.mark.parametrize("which", ["scope", "tool"])
@pytest.mark.parametrize("how", ["off", "raises"])
async def test_scope_and_tool_must_both_be_on_at_the_call(which, how):
    out, state = [], ["on"]

    def switch():
        if state[0] == "raises":
            raise RuntimeError("who knows")
        return state[0] == "on"

    search = make("search", out, enabled=switch if which == "tool" else None)
    scope = Scope("web", tools=[search], enabled=switch if which == "scope" else None)
    agent = Agent(ScriptedModel(call("search", call_id="a"), "done"), scopes=[scope])

    @agent.hook("onResponse")
    def turn(ctx):
        state[0] = how

    response = await agent.chat("go")
    assert [(id, outcome) for id, outcome, _ in results(response)] == [("a", "error")]
    assert out == []


@pytest.mark.parametrize("which", ["scope", "tool"])
async def test_a_switch_that_raises_is_logged_by_name(which, caplog):
    search = make("search", enabled=raising if which == "tool" else None)
    scope = Scope("web", tools=[search], enabled=raising if which == "scope" else None)
    with caplog.at_level(logging.WARNING):
        assert await offered([scope]) == []
    name = "web" if which == "scope" else "search"
    assert any(name in record.getMessage() for record in caplog.records)


@pytest.mark.parametrize("where", ["scope", "tool", "context"])
async def test_a_switch_or_context_that_raises_CancelledError_is_off_too(where, caplog):
    """Asking a task that was cancelled for its result raises it; nobody has cancelled the chat."""

    def cancelled():
        raise asyncio.CancelledError

    search = make("search", enabled=cancelled if where == "tool" else None)
    scope = Scope(
        "web",
        tools=[search],
        enabled=cancelled if where == "scope" else None,
        context=cancelled if where == "context" else None,
    )
    model = ScriptedModel("done")
    with caplog.at_level(logging.WARNING):
        response = await Agent(model, scopes=[scope]).chat("go")
    assert response.text == "done"
    (request,) = model.requests
    assert [each.name for each in request.tools] == (["search"] if where == "context" else [])
    assert request.system is None
    assert any("CancelledError" in record.getMessage() for record in caplog.records)


async def _async_off():
    return False


@pytest.mark.parametrize("option", ["enabled", "context"])
def test_an_async_switch_or_context_is_refused_where_the_scope_is_made(option):
    with pytest.raises(ScopeError, match=option):
        Scope("web", **{option: _async_off})


def test_an_async_switch_is_refused_where_the_tool_is_made():
    with pytest.raises(ToolDefinitionError, match="enabled"):
        make("search", enabled=_async_off)


@pytest.mark.parametrize("which", ["scope", "tool"])
async def test_a_switch_that_gives_an_awaitable_is_off(which, caplog):
    """It would be true whatever it comes to: a guard that cannot be asked fails closed."""
    asked = []

    def switch():
        asked.append(asyncio.get_running_loop().create_future())
        return asked[-1]

    search = make("search", enabled=switch if which == "tool" else None)
    scope = Scope("web", tools=[search], enabled=switch if which == "scope" else None)
    with caplog.at_level(logging.WARNING):
        assert await offered([scope]) == []
    assert asked
    assert any("treated as off" in record.getMessage() for record in caplog.records)


async def test_a_switch_of_one_scope_leaves_the_others_alone():
    scopes = [
        Scope("broken", tools=[make("a")], enabled=raising),
        Scope("off", tools=[make("b")], enabled=lambda: False),
        Scope("on", tools=[make("c")]),
    ]
    assert await offered(scopes) == ["c"]


async def test_switches_are_asked_anew_at_each_step():
    on = [False]

    @tool
    async def turn_on() -> None:
        on[0] = True

    model = ScriptedModel(call("turn_on"), "done")
    agent = Agent(
        model,
        tools=[turn_on],
        scopes=[Scope("web", tools=[make("search")], enabled=lambda: on[0])],
    )
    await agent.chat("go")
    assert [names(request) for request in model.requests] == [["turn_on"], ["turn_on", "search"]]


async def test_what_is_off_is_off_for_the_tools_of_preChat_too():
    """A hook that kept a tool in the request does not switch its scope on."""
    on = [True]
    model = ScriptedModel(call("turn_off"), "done")

    @tool
    async def turn_off() -> None:
        on[0] = False

    agent = Agent(
        model,
        tools=[turn_off],
        scopes=[Scope("web", tools=[make("search")], enabled=lambda: on[0])],
    )
    agent.add_hook("preChat", lambda ctx: ctx.request.replace(tools=tuple(ctx.request.tools)))
    agent.add_hook("preChat", lambda ctx: ctx.request.replace(tools=ctx.request.tools[::-1]))
    await agent.chat("go")
    assert [names(request) for request in model.requests] == [["search", "turn_off"], ["turn_off"]]


# ── context ─────────────────────────────────────────────────────────────────────────────────


async def requested(scopes, *, turns=("done",), tools=(), system=None, text="go"):
    """The requests of one chat."""
    model = ScriptedModel(*turns)
    await Agent(model, scopes=scopes, tools=tools, system=system).chat(text)
    return model.requests


async def test_context_is_a_section_of_the_system_text():
    scope = Scope("time", context=lambda: "It is noon.")
    (request,) = await requested([scope], system="Be brief.")
    assert request.system.startswith("Be brief.\n\n")
    assert "time" in request.system
    assert "It is noon." in request.system
    assert request.messages[-1].text == "go"


async def test_context_is_the_system_text_where_there_is_no_other():
    (request,) = await requested([Scope("time", context=lambda: "It is noon.")])
    assert "It is noon." in request.system


async def test_context_may_go_into_the_last_user_message():
    scope = Scope("time", context=lambda: "It is noon.", inject="user")
    (request,) = await requested([scope], system="Be brief.")
    assert request.system == "Be brief."
    assert request.messages[-1].text.startswith("go")
    assert "It is noon." in request.messages[-1].text


async def test_context_goes_into_the_last_user_message_of_later_steps_too():
    scope = Scope("time", context=lambda: "It is noon.", inject="user")
    _, second = await requested([scope], turns=(call("work"), "done"), tools=[make("work")])
    assert [message.role for message in second.messages] == ["user", "assistant", "tool"]
    assert "It is noon." in second.messages[0].text
    assert "It is noon." not in second.messages[2].text


async def test_context_goes_into_the_last_of_several_user_messages_alone():
    model = ScriptedModel("one", "two")
    conversation = Conversation()
    agent = Agent(model, scopes=[Scope("time", context=lambda: "It is noon.", inject="user")])
    await agent.chat("first", conversation=conversation)
    await agent.chat("second", conversation=conversation)
    said = [message.text for message in model.last_request.messages if message.role == "user"]
    assert said[0] == "first"
    assert "It is noon." in said[1]


@pytest.mark.parametrize("inject", ["system", "user"])
async def test_context_is_never_stored(inject):
    conversation, seen = Conversation(), []
    model = ScriptedModel(call("work"), "done")
    agent = Agent(
        model,
        tools=[make("work")],
        scopes=[Scope("time", context=lambda: "It is noon.", inject=inject)],
    )
    agent.add_hook("onMessage", lambda ctx: seen.append(ctx.message))
    response = await agent.chat("go", conversation=conversation)
    for messages in (conversation.messages, response.messages, seen):
        assert not any(b"noon" in message.to_json() for message in messages)


async def test_context_is_asked_anew_at_each_step():
    times = iter(["one", "two"])
    scope = Scope("time", context=lambda: f"It is {next(times)}.")
    first, second = await requested([scope], turns=(call("work"), "done"), tools=[make("work")])
    assert "It is one." in first.system
    assert "It is two." in second.system
    assert "one" not in second.system


async def test_context_may_be_json_data():
    scope = Scope("state", context=lambda: {"items": [1, 2]})
    (request,) = await requested([scope])
    assert '{"items":[1,2]}' in request.system


@pytest.mark.parametrize("value", [None, ""], ids=["None", "empty"])
async def test_context_that_says_nothing_is_left_out(value):
    (request,) = await requested([Scope("state", context=lambda: value)], system="Be brief.")
    assert request.system == "Be brief."


async def test_contexts_stand_in_the_order_of_registration_under_their_titles():
    scopes = [
        Scope("b", context=lambda: "second letter", title="Bee"),
        Scope("a", context=lambda: "first letter"),
    ]
    (request,) = await requested(scopes)
    places = [request.system.index(text) for text in ("Bee", "second", "a\n", "first")]
    assert places == sorted(places)


async def test_context_that_raises_is_left_out_and_logged(caplog):
    scopes = [Scope("broken", context=raising), Scope("time", context=lambda: "It is noon.")]
    with caplog.at_level(logging.WARNING):
        (request,) = await requested(scopes)
    assert "It is noon." in request.system
    assert "broken" not in request.system
    assert any("'broken'" in record.getMessage() for record in caplog.records)


async def test_context_that_is_no_json_is_left_out_and_logged(caplog):
    with caplog.at_level(logging.WARNING):
        (request,) = await requested([Scope("broken", context=object)])
    assert request.system is None
    assert any("'broken'" in record.getMessage() for record in caplog.records)


async def test_context_of_a_scope_that_is_off_is_not_even_asked():
    asked = []
    scope = Scope("off", context=lambda: asked.append(1) or "never", enabled=lambda: False)
    (request,) = await requested([scope])
    assert request.system is None
    assert asked == []


async def test_preRequest_sees_the_context_and_may_take_it_away():
    seen = []
    model = ScriptedModel("done")
    agent = Agent(model, scopes=[Scope("time", context=lambda: "It is noon.")])

    @agent.hook("preRequest")
    def strip(ctx):
        seen.append("It is noon." in ctx.request.system)
        return ctx.request.replace(system="Nothing.")

    await agent.chat("go")
    assert seen == [True]
    assert model.last_request.system == "Nothing."


async def test_context_of_a_scope_that_a_tool_registered_is_there_in_the_next_step():
    model = ScriptedModel(call("enter"), "done")
    agent = Agent(model)

    @tool
    async def enter() -> None:
        agent.scopes.register(Scope("room", context=lambda: "You are inside."))

    agent.scopes.register(Scope("hall", tools=[enter]))
    await agent.chat("go")
    first, second = model.requests
    assert first.system is None
    assert "You are inside." in second.system


# ── observers ───────────────────────────────────────────────────────────────────────────────


async def test_sync_observers_run_before_register_and_dispose_return():
    out = []
    agent = Agent(ScriptedModel())
    agent.add_hook("onScopeRegister", lambda ctx: out.append(f"+ {ctx.scope.label}"))
    agent.add_hook("onScopeUnregister", lambda ctx: out.append(f"- {ctx.scope.label}"))
    dispose = agent.scopes.register(Scope("web"))
    assert out == ["+ web"]
    dispose()
    assert out == ["+ web", "- web"]
    dispose()
    assert out == ["+ web", "- web"]


async def test_observers_see_the_scope_registered_and_gone():
    seen = []
    agent = Agent(ScriptedModel())
    agent.add_hook(OnScopeRegister, lambda ctx: seen.append(ctx.scope in list(agent.scopes)))
    agent.add_hook(OnScopeUnregister, lambda ctx: seen.append(ctx.scope in list(agent.scopes)))
    agent.scopes.register(Scope("web"))()
    assert seen == [True, False]


async def test_observers_see_the_scopes_that_an_agent_is_made_with():
    seen = []
    Agent(
        ScriptedModel(),
        hooks={"onScopeRegister": lambda ctx: seen.append(ctx.scope.label)},
        tools=[make("own")],
        scopes=[Scope("web")],
    )
    assert seen == ["agent", "web"]


async def test_observers_run_in_the_order_of_priority():
    out = []
    agent = Agent(ScriptedModel())
    agent.add_hook("onScopeRegister", lambda ctx: out.append("low"), priority=-1)
    agent.add_hook("onScopeRegister", lambda ctx: out.append("high"), priority=1)
    agent.scopes.register(Scope("web"))
    assert out == ["high", "low"]


def observing(agent, out, point="onScopeRegister"):
    @agent.hook(point)
    async def observe(ctx):
        await asyncio.sleep(0)
        out.append(f"{point} {ctx.scope.label}")


async def test_async_observers_run_before_the_agents_next_chat():
    out = []
    agent = Agent(ScriptedModel("done"))
    observing(agent, out)
    agent.add_hook("onChatStart", lambda ctx: out.append("onChatStart"))
    agent.scopes.register(Scope("web"))
    assert out == []
    await agent.chat("go")
    assert out == ["onScopeRegister web", "onChatStart"]


async def test_async_observers_have_run_before_a_chat_that_begins_beside_another():
    """ "…async ones before the agent's next chat or step": also where another chat tells them."""
    out, began, gate = [], asyncio.Event(), asyncio.Event()
    agent = Agent(ScriptedModel("done", "done"))

    @agent.hook("onScopeRegister")
    async def observe(ctx):
        began.set()
        await gate.wait()
        out.append("observed")

    agent.add_hook("onChatStart", lambda ctx: out.append("onChatStart"))
    agent.scopes.register(Scope("web"))
    first = asyncio.create_task(agent.chat("one"))
    await began.wait()
    second = asyncio.create_task(agent.chat("two"))
    for _ in range(20):  # turns enough for it to begin
        await asyncio.sleep(0)
    gate.set()
    await asyncio.gather(first, second)
    assert out == ["observed", "onChatStart", "onChatStart"]


async def test_an_awaitable_that_a_sync_observer_returns_is_awaited():
    out = []

    async def later(label):
        await asyncio.sleep(0)
        out.append(f"later {label}")

    agent = Agent(ScriptedModel("done"))
    agent.add_hook("onScopeRegister", lambda ctx: later(ctx.scope.label))
    agent.add_hook("onChatStart", lambda ctx: out.append("onChatStart"))
    agent.scopes.register(Scope("web"))
    assert out == []
    await agent.chat("go")
    assert out == ["later web", "onChatStart"]


def test_a_sync_observer_that_raises_CancelledError_is_ignored_where_no_loop_runs(caplog):
    out = []
    agent = Agent(ScriptedModel())

    def cancelled(ctx):
        raise asyncio.CancelledError

    agent.add_hook("onScopeRegister", cancelled, name="cancelled")
    agent.add_hook("onScopeRegister", lambda ctx: out.append(ctx.scope.label))
    with caplog.at_level(logging.WARNING):
        agent.scopes.register(Scope("web"))
    assert agent.scopes.get("web") is not None
    assert out == ["web"]
    assert any("'cancelled' at onScopeRegister" in r.getMessage() for r in caplog.records)


def test_an_observer_that_an_earlier_one_disposes_is_not_told():
    out = []
    agent = Agent(ScriptedModel())
    disposers = []
    agent.add_hook("onScopeRegister", lambda ctx: disposers[0](), priority=1)
    disposers.append(agent.add_hook("onScopeRegister", lambda ctx: out.append("disposed")))
    agent.add_hook("onScopeRegister", lambda ctx: out.append("last"))
    agent.scopes.register(Scope("web"))
    assert out == ["last"]


async def test_async_observers_run_before_the_agents_first_request():
    out = []
    agent = Agent(ScriptedModel("done"))
    observing(agent, out)
    agent.add_hook("preRequest", lambda ctx: out.append("preRequest"))
    agent.scopes.register(Scope("web"))
    await agent.chat("go")
    assert out == ["onScopeRegister web", "preRequest"]


async def test_async_observers_run_before_the_next_step_where_a_tool_registered():
    out = []
    agent = Agent(ScriptedModel(call("enter"), "done"))

    @tool
    async def enter() -> None:
        agent.scopes.register(Scope("room"))

    agent.scopes.register(Scope("hall", tools=[enter]))
    observing(agent, out)
    agent.add_hook("onStep", lambda ctx: out.append(f"onStep {ctx.iteration}"))
    agent.add_hook("preRequest", lambda ctx: out.append(f"preRequest {ctx.iteration}"))
    await agent.chat("go")
    assert out == [
        "preRequest 0",
        "onStep 0",
        "onScopeRegister room",
        "preRequest 1",
        "onStep 1",
    ]


async def test_async_observers_are_told_in_the_order_of_what_happened_and_once():
    out = []
    agent = Agent(ScriptedModel("one", "two"))
    observing(agent, out)
    observing(agent, out, "onScopeUnregister")
    agent.scopes.register(Scope("a"))()
    agent.scopes.register(Scope("b"))
    await agent.chat("go")
    await agent.chat("go")
    assert out == ["onScopeRegister a", "onScopeUnregister a", "onScopeRegister b"]


async def test_an_async_observer_that_was_disposed_meanwhile_is_not_called():
    out = []

    async def observe(ctx):
        out.append("never")

    agent = Agent(ScriptedModel("done"))
    dispose = agent.add_hook("onScopeRegister", observe)
    agent.scopes.register(Scope("web"))
    dispose()
    await agent.chat("go")
    assert out == []


@pytest.mark.parametrize("kind", ["sync", "async"])
@pytest.mark.parametrize("point", ["onScopeRegister", "onScopeUnregister"])
async def test_a_throw_in_a_scope_observer_is_logged_and_ignored(kind, point, caplog):
    out = []

    def sync_broken(ctx):
        raise RuntimeError("broken")

    async def async_broken(ctx):
        raise RuntimeError("broken")

    agent = Agent(ScriptedModel("done"))
    agent.add_hook(point, sync_broken if kind == "sync" else async_broken, name="the broken one")
    agent.add_hook(point, lambda ctx: out.append("next"))
    with caplog.at_level(logging.WARNING):
        agent.scopes.register(Scope("web"))()
        response = await agent.chat("go")
    assert out == ["next"]
    assert response.text == "done"
    assert any("the broken one" in record.getMessage() for record in caplog.records)


async def test_a_chat_that_is_aborted_while_it_tells_async_observers_loses_none():
    out, inside = [], asyncio.Event()

    async def slow(ctx):
        inside.set()
        await asyncio.Event().wait()

    agent = Agent(ScriptedModel("done"))
    dispose = agent.add_hook("onScopeRegister", slow)
    observing(agent, out)
    agent.scopes.register(Scope("web"))
    chat = asyncio.ensure_future(agent.chat("go"))
    await inside.wait()
    chat.cancel()
    with pytest.raises(asyncio.CancelledError):
        await chat
    dispose()
    await agent.chat("go")
    assert out == ["onScopeRegister web"]


async def test_a_scope_that_an_observer_registers_is_told_too():
    out = []
    agent = Agent(ScriptedModel())

    @agent.hook("onScopeRegister")
    def follow(ctx):
        out.append(ctx.scope.label)
        if ctx.scope.label == "first":
            agent.scopes.register(Scope("second"))

    agent.scopes.register(Scope("first"))
    assert out == ["first", "second"]
    assert labels(agent) == ["first", "second"]


async def test_registering_from_other_threads_loses_nothing():
    agent = Agent(ScriptedModel("done"))
    threads = [
        threading.Thread(
            target=agent.scopes.register, args=(Scope(f"s{n}", tools=[make(f"t{n}")]),)
        )
        for n in range(20)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(labels(agent)) == sorted(f"s{n}" for n in range(20))


@pytest.mark.parametrize("calls", [1, 2])
async def test_a_call_whose_scope_a_preToolCall_hook_removes_does_not_run(calls: int):
    ran: list[int] = []

    @tool
    async def look() -> str:
        ran.append(1)
        return "seen"

    wanted = [call("look", call_id=f"c{n}") for n in range(calls)]
    agent = Agent(ScriptedModel(wanted, "done"), scopes=[Scope("room", tools=[look])])
    agent.add_hook("preToolCall", lambda ctx: (agent.scopes.unregister("room"), None)[1])
    response = await agent.chat("go")
    assert ran == []
    assert [(id, outcome) for id, outcome, _ in results(response)] == [
        (f"c{n}", "error") for n in range(calls)
    ]
    assert "there is no tool 'look'" in results(response)[0][2]


async def test_a_registration_by_another_thread_in_the_middle_of_one_is_told_too():
    told = []

    class Late(list):
        """The observers of one registration. Another thread registers just before they are kept."""

        def __iter__(self):
            if not others:
                others.append(threading.Thread(target=lambda: scopes.register(Scope("second"))))
                others[0].start()
                others[0].join()
            return super().__iter__()

    def observer(point, scope):
        async def tell():
            told.append(scope.label)

        return Late([tell])

    others = []
    scopes = Scopes(observer)
    scopes.register(Scope("first"))
    await scopes.observers.tell()
    assert sorted(told) == ["first", "second"]


async def test_a_running_chat_and_a_changing_registry_do_not_disturb_each_other():
    started, changed = asyncio.Event(), asyncio.Event()

    @tool
    async def wait(run: Run) -> str:
        started.set()
        await changed.wait()
        return "waited"

    model = ScriptedModel([call("wait", call_id="a"), call("quick", call_id="b")], "done")
    agent = Agent(model, tools=[wait], scopes=[Scope("s", tools=[make("quick")])])
    chat = asyncio.ensure_future(agent.chat("go"))
    await started.wait()
    agent.scopes.unregister("s")
    agent.scopes.unregister("agent")
    agent.scopes.register(Scope("new", tools=[make("fresh")]))
    changed.set()
    response = await chat
    await settle()
    assert results(response)[0] == ("a", "ok", "waited")
    assert names(model.last_request) == ["fresh"]
