"""Hooks that are declared: Agent(hooks=…), chat(hooks=…), by object, by id, required or not."""

import asyncio
from typing import Any

import pytest

from hookline import Agent, Approve, Ask, HookDef, MemoryStore, ModelRequest, define_hook, tool
from hookline.errors import HookOptionError, UnknownHookError, UsageError
from hookline.points import OnChatStart
from hookline.testing import ScriptedModel, call, collect


class Boom(Exception):
    pass


def say(out: list[str], name: str, **options: Any) -> HookDef:
    """A definition that notes that it ran."""
    return HookDef("onChatStart", lambda ctx: out.append(name), **options)


def agent_of(**options: Any) -> Agent[Any]:
    return Agent(ScriptedModel(*["ok"] * 9), **options)


# ── Agent(hooks=…) ──────────────────────────────────────────────────────────────────────────


async def test_hooks_of_an_agent_run_in_every_chat() -> None:
    out: list[str] = []
    agent = agent_of(hooks=[say(out, "a")])
    await agent.chat("hi")
    await collect(agent.chat_stream("hi"))
    assert out == ["a", "a"]


async def test_hooks_of_an_agent_count_as_registered_at_construction() -> None:
    """So they stand before what add_hook brings, at equal priority."""
    out: list[str] = []
    agent = agent_of(hooks=[say(out, "declared 1"), say(out, "declared 2")])
    agent.add_hook("onChatStart", lambda ctx: out.append("added"))
    agent.add_hook("onChatStart", lambda ctx: out.append("added high"), priority=1)
    await agent.chat("hi")
    assert out == ["added high", "declared 1", "declared 2", "added"]


async def test_the_options_of_a_definition_are_those_of_add_hook() -> None:
    out: list[str] = []

    def boom(ctx: Any) -> None:
        out.append("boom")
        raise Boom

    hooks = [
        say(out, "low", priority=-1),
        HookDef("onChatStart", boom, priority=5, on_error="log", name="loud"),
    ]
    agent = agent_of(hooks=hooks)
    await agent.chat("hi")
    assert out == ["boom", "low"]
    first, second = agent.hooks("onChatStart")
    assert (first.name, first.priority, first.on_error) == ("loud", 5, "log")
    assert second.priority == -1


async def test_a_definition_may_name_its_point_by_the_context_class() -> None:
    out: list[str] = []
    await agent_of(hooks=[HookDef(OnChatStart, lambda ctx: out.append("ran"))]).chat("hi")
    assert out == ["ran"]


async def test_the_table_form_takes_one_hook_or_several() -> None:
    out: list[str] = []
    agent = agent_of(
        hooks={
            "onChatStart": lambda ctx: out.append("one"),
            "onChatEnd": [lambda ctx: out.append("two"), lambda ctx: out.append("three")],
        }
    )
    await agent.chat("hi")
    assert out == ["one", "two", "three"]


async def test_lists_of_definitions_may_be_nested() -> None:
    """What a plugin gives may be put into the list as it is."""
    out: list[str] = []
    plugin = [say(out, "b"), say(out, "c", id="c")]
    agent = agent_of(hooks=[say(out, "a"), plugin])
    await agent.chat("hi")
    await agent.chat("hi", only_hooks=["c"])
    assert out == ["a", "b", "c", "c"]


async def test_declared_hooks_are_listed_with_their_origin_and_id() -> None:
    agent = agent_of(hooks=[say([], "a", id="greet")])
    agent.add_hook("onChatStart", lambda ctx: None, name="mine")
    told = [(info.point, info.id, info.origin) for info in agent.hooks()]
    assert told == [("onChatStart", "greet", "agent"), ("onChatStart", None, "add_hook")]


def test_a_definition_that_cannot_work_is_refused_where_it_is_made() -> None:
    with pytest.raises(UnknownHookError, match="onChatStart"):
        HookDef("onChatStrat", lambda ctx: None)
    with pytest.raises(HookOptionError, match="tools="):
        HookDef("onChatStart", lambda ctx: None, tools=["look"])
    with pytest.raises(HookOptionError, match="async"):
        HookDef("aroundRequest", lambda ctx, proceed: None)
    with pytest.raises(HookOptionError, match="works only at onResponse"):
        HookDef("onMessage", lambda ctx: None, withhold=True)
    assert HookDef("onResponse", lambda ctx: None, withhold=True).options.withhold


def test_an_unknown_point_in_the_table_form_is_refused_at_construction() -> None:
    with pytest.raises(UnknownHookError, match="onMessage"):
        agent_of(hooks={"onMesage": lambda ctx: None})


@pytest.mark.parametrize("id", ["Upper", "with-dash", "1st", "_x", "", "with space", "é", "a\n"])
def test_an_id_is_snake_case(id: str) -> None:
    """The rule is in the message."""
    with pytest.raises(HookOptionError, match="snake_case"):
        HookDef("onChatStart", lambda ctx: None, id=id)


@pytest.mark.parametrize("id", ["a", "redact_pii", "step_2"])
def test_ids_that_are_fine(id: str) -> None:
    assert HookDef("onChatStart", lambda ctx: None, id=id).id == id


def test_a_single_string_is_no_list_of_ids() -> None:
    with pytest.raises(UsageError, match="list"):
        agent_of(hooks="redact")


async def test_define_hook_makes_a_definition() -> None:
    out: list[str] = []
    made = define_hook("onChatStart", lambda ctx: out.append("ran"), id="mine")
    assert isinstance(made, HookDef)
    await agent_of(hooks=[made]).chat("hi")
    assert out == ["ran"]


# ── chat(hooks=…) ───────────────────────────────────────────────────────────────────────────


async def test_hooks_of_a_chat_are_added_after_those_of_the_agent() -> None:
    out: list[str] = []
    agent = agent_of(hooks=[say(out, "agent")])
    agent.add_hook("onChatStart", lambda ctx: out.append("added"))
    await agent.chat("hi", hooks=[say(out, "chat")])
    await agent.chat("hi")
    assert out == ["agent", "added", "chat", "agent", "added"]


@pytest.mark.parametrize("none", [None, [], {}], ids=["not given", "a list", "a table"])
async def test_no_hooks_for_a_chat_leave_the_declared_ones(none: Any) -> None:
    out: list[str] = []
    await agent_of(hooks=[say(out, "agent")]).chat("hi", hooks=none)
    assert out == ["agent"]


async def test_a_definition_that_already_runs_is_not_added_twice() -> None:
    out: list[str] = []
    mine = say(out, "mine", id="mine")
    agent = agent_of(hooks=[mine, [mine]])
    await agent.chat("hi", hooks=[mine, "mine"])
    assert out == ["mine"]


async def test_a_definition_that_a_plugin_brings_too_stays_when_the_plugin_goes() -> None:
    out: list[str] = []
    mine = say(out, "mine")
    agent = agent_of(hooks=[mine])
    remove = await agent.use([mine])
    await agent.chat("hi")
    remove()
    await agent.chat("hi")
    assert out == ["mine", "mine"]


async def test_a_definition_of_parent_and_sub_agent_runs_once_in_the_sub_agent() -> None:
    seen: list[str] = []
    shared = HookDef("onChatStart", lambda ctx: seen.append(ctx.run.agent), inherit=True)
    kid: Agent[Any] = Agent(ScriptedModel("ok"), name="kid", hooks=[shared])
    model = ScriptedModel(call("kid", input="go"), "ok")
    await Agent(model, name="mum", tools=[kid.as_tool()], hooks=[shared]).chat("hi")
    assert seen == ["mum", "kid"]


# ── chat(only_hooks=…) ──────────────────────────────────────────────────────────────────────


async def test_only_hooks_replace_the_declared_ones_for_that_chat() -> None:
    out: list[str] = []
    agent = agent_of(hooks=[say(out, "agent")])
    await agent.chat("hi", only_hooks=[say(out, "chat")])
    await agent.chat("hi")
    assert out == ["chat", "agent"]


async def test_empty_only_hooks_replace_them_too() -> None:
    out: list[str] = []
    agent = agent_of(hooks=[say(out, "agent")])
    await agent.chat("hi", only_hooks=[])
    await agent.chat("hi", only_hooks={})
    assert out == []


async def test_only_hooks_may_name_declared_ones() -> None:
    out: list[str] = []
    one, two = say(out, "one", id="one"), say(out, "two")
    agent = agent_of(hooks=[one, two, say(out, "three")])
    await agent.chat("hi", only_hooks=["one"])
    await agent.chat("hi", only_hooks=[two])
    assert out == ["one", "two"]


async def test_required_hooks_run_in_a_chat_with_only_hooks() -> None:
    out: list[str] = []
    agent = agent_of(hooks=[say(out, "usual"), say(out, "guard", required=True)])
    await agent.chat("hi", only_hooks=[say(out, "chat")])
    await agent.chat("hi", only_hooks=[])
    assert out == ["guard", "chat", "guard"]


async def test_hooks_that_were_added_always_run() -> None:
    out: list[str] = []
    agent = agent_of(hooks=[say(out, "usual")])
    dispose = agent.add_hook("onChatStart", lambda ctx: out.append("added"))
    await agent.chat("hi", only_hooks=[])
    dispose()
    await agent.chat("hi", only_hooks=[])
    assert out == ["added"]


@pytest.mark.parametrize("form", ["chat", "chat_stream", "resume", "resume_stream"])
async def test_hooks_and_only_hooks_together_are_refused_before_anything_runs(form: str) -> None:
    out: list[str] = []
    model = ScriptedModel()
    agent: Agent[Any] = Agent(model, hooks=[say(out, "agent")], store=MemoryStore())
    given: Any = {"hooks": [say(out, "one")], "only_hooks": []}
    start: Any = getattr(agent, form)
    asked = ("hi",) if form.startswith("chat") else ("talk", {})
    with pytest.raises(UsageError, match=r"hooks= adds .* only_hooks= replaces"):
        await _run(lambda: start(*asked, **given))
    assert (out, model.calls) == ([], 0)


async def _run(start: Any) -> None:
    started = start()
    if hasattr(started, "__await__"):
        await started
    else:
        await collect(started)


async def test_only_hooks_leave_the_hooks_of_sub_agents_alone() -> None:
    out: list[str] = []
    kid: Agent[Any] = Agent(ScriptedModel("ok"), name="kid", hooks=[say(out, "kid's own")])
    model = ScriptedModel(call("kid", input="go"), "ok")
    agent: Agent[Any] = Agent(model, tools=[kid.as_tool()], hooks=[say(out, "mine")])
    await agent.chat("hi", only_hooks=[])
    assert out == ["kid's own"]


async def test_a_resumed_chat_is_given_its_hooks_anew() -> None:
    out: list[str] = []

    @tool
    async def pay() -> str:
        """Pay."""
        return "paid"

    ask = HookDef("preToolCall", lambda ctx: Ask("May it?"), required=True)
    agent: Agent[Any] = Agent(
        ScriptedModel(call("pay"), "Done.", call("pay"), "Done."),
        tools=[pay],
        hooks=[ask, say(out, "usual")],
        store=MemoryStore(),
    )
    for only in ([], None):
        waits = await agent.chat("go", conversation="talk", only_hooks=[])
        answers = {each.id: Approve() for each in waits.pending}
        assert out == []
        await agent.resume("talk", answers, only_hooks=only)
    assert out == ["usual"]


# ── both ────────────────────────────────────────────────────────────────────────────────────


async def test_priority_orders_hooks_of_both_kinds() -> None:
    out: list[str] = []
    agent = agent_of()
    agent.add_hook("onChatStart", lambda ctx: out.append("added"))
    await agent.chat("hi", hooks=[say(out, "high", priority=1), say(out, "low", priority=-1)])
    assert out == ["high", "added", "low"]


async def test_a_chat_names_declared_hooks_by_id() -> None:
    out: list[str] = []
    agent = agent_of(hooks=[say(out, "a", id="a"), say(out, "b", id="b"), say(out, "c", id="c")])
    await agent.chat("hi", only_hooks=["c", "a"])
    assert out == ["c", "a"]


async def test_ids_that_an_agent_knows_without_running_them() -> None:
    out: list[str] = []
    known = [say(out, "a", id="a"), say(out, "b", id="b")]
    agent = agent_of(known_hooks=known, hooks=["b"])
    await agent.chat("hi")
    await agent.chat("hi", hooks=["a"])
    assert out == ["b", "b", "a"]


async def test_ids_and_objects_may_be_mixed() -> None:
    out: list[str] = []
    agent = agent_of(known_hooks=[say(out, "a", id="a")])
    await agent.chat("hi", hooks=["a", say(out, "b"), [say(out, "c")]])
    assert out == ["a", "b", "c"]


async def test_the_table_form_works_for_a_chat_too() -> None:
    out: list[str] = []
    agent = agent_of(hooks=[say(out, "usual")])
    await agent.chat("hi", hooks={"onChatEnd": lambda ctx: out.append("end")})
    assert out == ["usual", "end"]


async def test_an_unknown_id_is_an_error_with_the_closest_names_and_runs_nothing() -> None:
    """Never silent."""
    out: list[str] = []
    agent = agent_of(hooks=[say(out, "a", id="redact_pii")])
    with pytest.raises(UnknownHookError, match="redact_pii"):
        await agent.chat("hi", hooks=["redact_pi"])
    assert out == []


def test_an_unknown_id_is_an_error_at_construction() -> None:
    with pytest.raises(UnknownHookError, match="nobody"):
        agent_of(hooks=["nobody"])


async def test_an_unknown_id_is_told_with_all_ids_that_are_known() -> None:
    known = [say([], "a", id="greet"), say([], "b", id="bow")]
    with pytest.raises(UnknownHookError, match="known names \\(bow, greet\\)"):
        await agent_of(hooks=known).chat("hi", hooks=["zzz"])


def test_an_id_stands_for_one_hook_alone() -> None:
    one = say([], "a", id="greet")
    agent_of(hooks=[one, one], known_hooks=[one])
    with pytest.raises(UsageError, match="two hooks have the id 'greet'"):
        agent_of(hooks=[one], known_hooks=[say([], "b", id="greet")])


async def test_a_chat_cannot_give_an_id_of_the_agent_to_another_hook() -> None:
    agent = agent_of(hooks=[say([], "a", id="greet")])
    with pytest.raises(UsageError, match="two hooks have the id 'greet'"):
        await agent.chat("hi", hooks=[say([], "b", id="greet")])


async def test_a_required_hook_that_the_chat_names_too_runs_once() -> None:
    out: list[str] = []
    guard = say(out, "guard", id="guard", required=True)
    agent = agent_of(hooks=[guard])
    await agent.chat("hi", hooks=["guard"])
    await agent.chat("hi", hooks=[guard])
    assert out == ["guard", "guard"]


async def test_hooks_of_one_chat_do_not_reach_another_that_runs_beside_it() -> None:
    out: list[str] = []
    meet = asyncio.Barrier(2)

    async def answer(request: ModelRequest) -> str:
        await meet.wait()
        return "ok"

    agent: Agent[Any] = Agent(ScriptedModel(answer, answer))

    def noting(name: str) -> Any:
        return {"onStep": lambda ctx: out.append(f"{name} {ctx.run.deps}")}

    await asyncio.gather(
        agent.chat("hi", deps="ann", hooks=noting("a")),
        agent.chat("hi", deps="bob", hooks=noting("b")),
    )
    assert sorted(out) == ["a ann", "b bob"]


async def test_a_hook_that_is_added_in_mid_chat_runs_in_a_chat_with_hooks_of_its_own() -> None:
    out: list[str] = []
    agent = agent_of()
    start = {"onChatStart": lambda ctx: void(agent.add_hook("onStep", note))}

    def note(ctx: Any) -> None:
        out.append("added")

    await agent.chat("hi", hooks=start)
    assert out == ["added"]


def void(value: object) -> None:
    return None


async def test_hooks_of_a_chat_are_not_listed_by_the_agent_and_leave_nothing_behind() -> None:
    agent = agent_of()
    await agent.chat("hi", hooks=[say([], "chat")])
    assert agent.hooks() == ()


@pytest.mark.parametrize("form", ["chat", "chat_stream"])
async def test_hooks_of_a_chat_work_for_both_forms(form: str) -> None:
    out: list[str] = []
    agent = agent_of(hooks=[say(out, "usual")])
    if form == "chat":
        await agent.chat("hi", hooks=[say(out, "mine")])
    else:
        await collect(agent.chat_stream("hi", hooks=[say(out, "mine")]))
    assert out == ["usual", "mine"]
