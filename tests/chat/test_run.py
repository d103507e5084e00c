"""`Run`: what a hook or a tool may know and do of the chat it runs in."""

import asyncio
import contextlib
import dataclasses
from collections.abc import Callable
from typing import Any

import pytest
from tests._every_point import compacting, sending

from hookline import (
    Agent,
    AssistantMessage,
    Conversation,
    History,
    Limits,
    MemoryStore,
    Run,
    Text,
    Usage,
    UserMessage,
    tool,
)
from hookline.errors import ChatAbortedError
from hookline.events import ChatDone, ChatStarted, Status
from hookline.points import TABLE
from hookline.testing import ScriptedModel, Turn, call, collect


class Boom(Exception):
    pass


@tool
async def look(q: str = "") -> str:
    """Look it up."""
    return f"found {q}"


def at_each_point(agent: Agent[Any], see: Callable[[str, Run[Any]], object]) -> None:
    """Show the run that each point of a chat is given."""

    def observer(name: str) -> Any:
        def hook(ctx: Any) -> None:
            see(name, ctx.run)

        return hook

    def wrapper(name: str) -> Any:
        async def hook(ctx: Any, proceed: Any) -> Any:
            see(name, ctx.run)
            return await proceed()

        return hook

    add: Any = agent.add_hook
    for name, head in TABLE.items():
        if name not in ("onScopeRegister", "onScopeUnregister", "onHook"):
            add(name, wrapper(name) if head.kind == "wrapper" else observer(name))


# ── what it has ─────────────────────────────────────────────────────────────────────────────


def test_run_has_what_the_contract_lists_and_no_more() -> None:
    public = {name for name in dir(Run) if not name.startswith("_")} - {"chat_of"}
    assert public == {
        *("chat_id", "conversation_id", "agent", "parent_chat_id", "iteration", "attempt"),
        *("deps", "state", "history", "usage", "meta", "abort", "status", "compact"),
        *("call_id", "call_key", "ask", "path", "parent"),
        *("model", "provider", "timing"),  # for telemetry: what answers, and how fast
    }


async def test_run_cannot_be_changed() -> None:
    seen: list[Any] = []
    agent = Agent(ScriptedModel("ok"))
    agent.add_hook("onChatStart", lambda ctx: seen.append(ctx.run))
    await agent.chat("hi")
    (run,) = seen
    for name in ("chat_id", "agent", "deps", "state", "history", "usage", "iteration", "anything"):
        with pytest.raises(AttributeError):
            setattr(run, name, "x")


async def test_every_point_is_given_the_same_chat() -> None:
    seen: list[tuple[str, str]] = []
    agent = Agent(ScriptedModel(["a", call("look")], "ok"), tools=[look])
    at_each_point(agent, lambda name, run: seen.append((name, run.chat_id)))
    stream = agent.chat_stream("hi")
    await collect(stream)
    assert {chat_id for _, chat_id in seen} == {stream.chat_id}
    assert len({name for name, _ in seen}) > 15


async def test_run_knows_the_agents_name() -> None:
    seen: list[str] = []
    agent = Agent(ScriptedModel("ok"), name="helper")
    agent.add_hook("onChatStart", lambda ctx: seen.append(ctx.run.agent))
    await agent.chat("hi")
    assert seen == ["helper"]


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        pytest.param({}, None, id="none"),
        pytest.param({"conversation": Conversation(id="c1")}, "c1", id="object"),
        pytest.param({"conversation": "c2"}, "c2", id="by-id"),
    ],
)
async def test_run_knows_the_conversation(options: Any, expected: str | None) -> None:
    seen: list[str | None] = []
    agent = Agent(ScriptedModel("ok"), store=MemoryStore())
    agent.add_hook("onChatStart", lambda ctx: seen.append(ctx.run.conversation_id))
    await agent.chat("hi", **options)
    assert seen == [expected]


async def test_a_chat_of_ones_own_has_no_parent_and_is_the_first_attempt() -> None:
    seen: list[Any] = []
    agent = Agent(ScriptedModel("ok"))
    at_each_point(
        agent, lambda name, run: seen.append((run.parent_chat_id, run.parent, run.attempt))
    )
    await agent.chat("hi")
    assert set(seen) == {(None, None, 1)}


async def test_the_chat_of_a_sub_agent_knows_its_parent() -> None:
    seen: list[Any] = []
    child = Agent(ScriptedModel("42"), name="child")
    child.add_hook("onChatStart", lambda ctx: seen.append(ctx.run))
    parent = Agent(
        ScriptedModel([call("child", input="?")], "ok"), name="parent", tools=[child.as_tool()]
    )
    parent.add_hook("onChatStart", lambda ctx: seen.append(ctx.run))
    await parent.chat("hi")
    above, below = seen
    assert (above.agent, below.agent) == ("parent", "child")
    assert below.parent_chat_id == below.parent.chat_id == above.chat_id != below.chat_id
    assert below.parent.state is above.state
    assert below.conversation_id is None


async def test_the_path_of_a_run_is_that_of_its_events() -> None:
    paths: list[tuple[str, ...]] = []
    grandchild = Agent(ScriptedModel("42"), name="grandchild")
    child = Agent(
        ScriptedModel([call("grandchild", input="?", call_id="b")], "42"),
        name="child",
        tools=[grandchild.as_tool()],
    )
    parent = Agent(
        ScriptedModel([call("child", input="?", call_id="a")], "ok"), tools=[child.as_tool()]
    )
    for agent in (parent, child, grandchild):
        agent.add_hook("onChatStart", lambda ctx: paths.append(ctx.run.path))
    starts = [
        event.path async for event in parent.chat_stream("hi") if isinstance(event, ChatStarted)
    ]
    assert paths == starts == [(), ("a",), ("a", "b")]


async def test_iteration_is_that_of_the_step() -> None:
    seen: list[tuple[str, int]] = []
    agent = Agent(ScriptedModel([call("look")], "ok"), tools=[look])
    at_each_point(agent, lambda name, run: seen.append((name, run.iteration)))
    await agent.chat("hi")
    of: dict[str, list[int]] = {}
    for name, iteration in seen:
        of.setdefault(name, []).append(iteration)
    assert of["onChatStart"] == of["preChat"] == [0]
    for name in ("preRequest", "aroundRequest", "onResponse", "onStep"):
        assert of[name] == [0, 1]
    assert of["preToolCall"] == of["aroundToolCall"] == of["onToolCallResult"] == [0]
    assert of["onMessage"] == [0, 0, 0, 1]
    assert of["onChatDone"] == of["onChatEnd"] == [1]


# ── deps ────────────────────────────────────────────────────────────────────────────────────


@dataclasses.dataclass
class Deps:
    user: str


async def test_deps_are_what_the_caller_passed_for_hooks_and_tools() -> None:
    seen: list[Any] = []
    deps = Deps("ann")

    @tool
    async def who(run: Run[Deps]) -> str:
        seen.append(run.deps)
        return run.deps.user

    agent: Agent[Deps] = Agent(ScriptedModel([call("who")], "ok"), tools=[who])
    at_each_point(agent, lambda name, run: seen.append(run.deps))
    response = await agent.chat("hi", deps=deps)
    assert all(each is deps for each in seen)
    assert response.messages[2].text == "ann"


async def test_deps_are_None_where_none_were_passed() -> None:
    seen: list[Any] = []
    agent = Agent(ScriptedModel("ok"))
    agent.add_hook("onChatStart", lambda ctx: seen.append(ctx.run.deps))
    await agent.chat("hi")
    assert seen == [None]


async def test_deps_go_on_to_a_sub_agent() -> None:
    seen: list[Any] = []
    deps = Deps("ann")
    child = Agent(ScriptedModel("42"), name="child")
    child.add_hook("onChatStart", lambda ctx: seen.append(ctx.run.deps))
    parent = Agent(ScriptedModel([call("child", input="?")], "ok"), tools=[child.as_tool()])
    await parent.chat("hi", deps=deps)
    assert seen == [deps]


async def test_a_tool_receives_the_run_by_annotation_and_its_schema_does_not_show_it() -> None:
    seen: list[Any] = []

    @tool
    async def note(text: str, run: Run[Any]) -> None:
        """Note it."""
        seen.append((run.chat_id, run.iteration, run.call_id, text))

    assert set(note.parameters["properties"]) == {"text"}
    agent = Agent(ScriptedModel([call("note", text="x", call_id="c")], "ok"), tools=[note])
    response = await agent.chat("hi")
    assert seen == [(response.chat_id, 0, "c", "x")]


async def test_call_id_is_known_at_the_points_of_a_tool_call_alone() -> None:
    seen: dict[str, Any] = {}
    agent = Agent(ScriptedModel([call("look", call_id="c")], "ok"), tools=[look])
    at_each_point(agent, lambda name, run: seen.update({name: run.call_id}))
    await agent.chat("hi")
    with_id = {name for name, call_id in seen.items() if call_id == "c"}
    assert with_id == {"preToolCall", "aroundToolCall", "onToolCallResult"}
    assert {seen[name] for name in set(seen) - with_id} == {None}


# ── state ───────────────────────────────────────────────────────────────────────────────────


async def test_state_is_shared_by_the_hooks_and_tools_of_a_chat() -> None:
    out: list[Any] = []

    @tool
    async def count(run: Run[Any]) -> int:
        run.state["n"] += 1
        return int(run.state["n"])

    agent = Agent(ScriptedModel([call("count")], "ok"), tools=[count])
    agent.add_hook("onChatStart", lambda ctx: ctx.run.state.update(n=1))
    agent.add_hook("onToolCallResult", lambda ctx: out.append(ctx.run.state["n"]))
    agent.add_hook("onChatEnd", lambda ctx: out.append(ctx.run.state))
    await agent.chat("hi")
    assert out == [2, {"n": 2}]


async def test_each_chat_has_a_state_of_its_own() -> None:
    seen: list[dict[str, Any]] = []
    conversation = Conversation()
    agent = Agent(ScriptedModel("a", "b"))

    def hook(ctx: Any) -> None:
        seen.append(dict(ctx.run.state))
        ctx.run.state["seen"] = True

    agent.add_hook("onChatStart", hook)
    for _ in range(2):
        await agent.chat("hi", conversation=conversation)
    assert seen == [{}, {}]


async def test_a_chat_may_begin_with_a_state() -> None:
    seen: list[Any] = []
    agent = Agent(ScriptedModel("a"))
    agent.add_hook("onChatStart", lambda ctx: seen.append(ctx.run.state["lang"]))
    await agent.chat("hi", state={"lang": "fr"})
    assert seen == ["fr"]


async def test_a_sub_agent_has_a_state_of_its_own() -> None:
    seen: list[Any] = []
    child = Agent(ScriptedModel("42"), name="child")
    child.add_hook("onChatStart", lambda ctx: seen.append(dict(ctx.run.state)))
    parent = Agent(ScriptedModel([call("child", input="?")], "ok"), tools=[child.as_tool()])
    parent.add_hook("onChatStart", lambda ctx: ctx.run.state.update(mine=1))
    await parent.chat("hi")
    assert seen == [{}]


# ── history ─────────────────────────────────────────────────────────────────────────────────


async def test_history_is_that_of_the_conversation_and_the_chat() -> None:
    seen: list[list[str]] = []
    conversation = Conversation(
        [UserMessage(parts=(Text("old"),)), AssistantMessage(parts=(Text("answer"),))]
    )
    agent = Agent(ScriptedModel([call("look", q="x")], "ok"), tools=[look])
    agent.add_hook("onStep", lambda ctx: seen.append([m.text for m in ctx.run.history]))
    await agent.chat("hi", conversation=conversation)
    assert seen == [
        ["old", "answer", "hi", "", "found x"],
        ["old", "answer", "hi", "", "found x", "ok"],
    ]


async def test_history_is_read_only_and_stays_what_it_was() -> None:
    kept: list[Any] = []
    agent = Agent(ScriptedModel([call("look")], "ok"), tools=[look])
    agent.add_hook("onStep", lambda ctx: kept.append(ctx.run.history))
    await agent.chat("hi")
    first, second = kept
    assert isinstance(first, History)
    assert (len(first), len(second)) == (3, 4)
    with pytest.raises(TypeError):
        first[0] = None
    assert not hasattr(first, "append")
    assert first == list(second)[:3]
    assert first not in ("hi", 3, second)
    assert len({first, second}) == 2


async def test_a_tool_sees_the_history() -> None:
    @tool
    async def last(run: Run[Any]) -> str:
        return run.history[0].text

    response = await Agent(ScriptedModel([call("last")], "ok"), tools=[last]).chat("hi")
    assert response.messages[2].text == "hi"


# ── usage ───────────────────────────────────────────────────────────────────────────────────


async def test_usage_is_what_the_chat_has_used_so_far() -> None:
    seen: list[Any] = []
    one, two = Usage(input_tokens=1, output_tokens=2), Usage(input_tokens=10, output_tokens=20)
    agent = Agent(
        ScriptedModel(Turn(tool_calls=[call("look")], usage=one), Turn("ok", usage=two)),
        tools=[look],
    )
    for point in ("preRequest", "onResponse", "onChatEnd"):
        agent.add_hook(point, lambda ctx: seen.append(ctx.run.usage))
    response = await agent.chat("hi")
    assert seen == [Usage(), one, one, one + two, one + two]
    assert response.usage == one + two
    assert seen[-1].total_tokens == 33


async def test_a_model_that_does_not_count_uses_nothing() -> None:
    response = await Agent(ScriptedModel(Turn("ok", usage=None))).chat("hi")
    assert response.usage == Usage()


# ── abort ───────────────────────────────────────────────────────────────────────────────────


async def test_a_timely_abort_is_True_and_a_second_one_False() -> None:
    seen: list[bool] = []
    agent = Agent(ScriptedModel())

    def hook(ctx: Any) -> None:
        seen.append(ctx.run.abort("first"))
        seen.append(ctx.run.abort("second"))

    agent.add_hook("preRequest", hook)
    with pytest.raises(ChatAbortedError) as caught:
        await agent.chat("hi")
    assert seen == [True, False]
    assert caught.value.reason == "first"


async def test_an_abort_after_the_chat_is_False() -> None:
    runs: list[Any] = []
    agent = Agent(ScriptedModel("ok"))
    agent.add_hook("onChatStart", lambda ctx: runs.append(ctx.run))
    assert (await agent.chat("hi")).text == "ok"
    assert runs[0].abort("late") is False


ABORTABLE = [name for name in TABLE if name not in ("onHook", "onApproval")]
NOT_HERE = ("onScopeRegister", "onScopeUnregister", "preMessageUpdate", "onMessageUpdate")
TOO_LATE = ("onChatDone", "onChatAbort", "onChatError", "onChatEnd")


@pytest.mark.parametrize("point", [p for p in ABORTABLE if p not in NOT_HERE + TOO_LATE])
async def test_a_hook_at_any_point_may_abort(point: str) -> None:
    """abort() returns; its next await is cancelled; no later hook of that dispatch runs."""
    out: list[str] = []

    @tool
    async def fails(run: Run[Any]) -> str:
        await run.status("working")
        raise Boom

    async def abort(ctx: Any, proceed: Any = None) -> Any:
        if "aborting" in out:
            return await proceed() if proceed is not None else None
        out.append("aborting")
        ctx.run.abort("enough")
        out.append("returned")
        await asyncio.sleep(0)
        out.append("not cancelled")
        return await proceed() if proceed is not None else None

    async def later(ctx: Any, proceed: Any = None) -> Any:
        out.append("later")
        return await proceed() if proceed is not None else None

    model = ScriptedModel([call("look"), call("fails")], "ok")
    agent = Agent(model, tools=[look, fails], parallel_tools=False, limits=Limits(grace=0.05))
    add: Any = agent.add_hook
    dispose = add(point, abort)
    if point == "preSteer":
        add("onStep", sending("And then?"))
    if point == "preCompact":
        add("preRequest", compacting)
    ended: list[str] = []

    def end(ctx: Any) -> None:
        ended.append(type(ctx).__name__)
        dispose()

    add("onChatAbort", end)
    add("onChatDone", end)
    add("onChatError", end)
    if point != "preMessage" and point != "onMessage":  # kept messages pass these two again
        add(point, later, priority=-1)
    with pytest.raises(ChatAbortedError, match="enough"):
        await agent.chat("hi")
    before = out[: out.index("aborting")]
    assert out[len(before) :] == ["aborting", "returned"]
    # aroundChat comes before the chat has begun: then nothing else is told.
    assert ended == ([] if point == "aroundChat" else ["OnChatAbort"])


async def test_an_abort_that_no_hook_asked_for_stops_a_chat_that_never_suspends() -> None:
    """The abort is looked at after every step, and before the outcome."""
    model = ScriptedModel("never", "never")

    def system(run: Run[Any]) -> str:
        if run.iteration == 0:
            run.abort("enough")
        return "be kind"

    with pytest.raises(ChatAbortedError, match="enough"):
        await Agent(model, system=system).chat("hi")
    assert model.calls == 0


async def test_a_tool_may_abort_the_chat() -> None:
    out: list[str] = []

    @tool
    async def quits(run: Run[Any]) -> str:
        out.append(f"aborting {run.abort('tool')}")
        await asyncio.sleep(0)
        out.append("not cancelled")
        return "never"

    agent = Agent(ScriptedModel([call("quits")]), tools=[quits])
    with pytest.raises(ChatAbortedError, match="tool"):
        await agent.chat("hi")
    assert out == ["aborting True"]


# ── status ──────────────────────────────────────────────────────────────────────────────────


async def test_status_of_a_hook_reaches_onStatus_the_stream_and_subscribers() -> None:
    seen: list[Any] = []
    agent = Agent(ScriptedModel("ok"))

    async def hook(ctx: Any) -> None:
        await ctx.run.status("thinking", {"left": 3})

    agent.add_hook("preRequest", hook)
    agent.add_hook("onStatus", lambda ctx: seen.append((ctx.type, ctx.data, ctx.call)))
    with agent.subscribe(Status, ChatDone) as subscription:
        events = await collect(agent.chat_stream("hi"))
        heard = []
        async for event in subscription:
            if isinstance(event, ChatDone):
                break
            heard.append(event)
    (status,) = [e for e in events if isinstance(e, Status)]
    assert (status.type, status.data, status.call_id) == ("thinking", {"left": 3}, None)
    assert status.iteration == 0
    assert seen == [("thinking", {"left": 3}, None)]
    assert heard == [status]


async def test_status_of_a_tool_names_its_call() -> None:
    seen: list[Any] = []

    @tool
    async def work(run: Run[Any]) -> str:
        await run.status("working", 1)
        await run.status("working", 2)
        return "done"

    agent = Agent(ScriptedModel([call("work", call_id="c")], "ok"), tools=[work])
    agent.add_hook("onStatus", lambda ctx: seen.append((ctx.type, ctx.data, ctx.call.id)))
    events = await collect(agent.chat_stream("hi"))
    told = [(e.type, e.data, e.call_id) for e in events if isinstance(e, Status)]
    assert told == seen == [("working", 1, "c"), ("working", 2, "c")]


async def test_the_data_of_a_status_is_JSON_and_none_by_default() -> None:
    agent = Agent(ScriptedModel("ok"))

    async def hook(ctx: Any) -> None:
        await ctx.run.status("a", Deps("ann"))
        await ctx.run.status("b")

    agent.add_hook("onChatStart", hook)
    events = await collect(agent.chat_stream("hi"))
    assert [e.data for e in events if isinstance(e, Status)] == [{"user": "ann"}, None]


async def test_the_data_of_a_status_is_what_it_was_when_it_was_sent() -> None:
    agent = Agent(ScriptedModel("ok"))

    async def hook(ctx: Any) -> None:
        data = {"left": 3}
        await ctx.run.status("a", data)
        data["left"] = 0

    agent.add_hook("onChatStart", hook)
    events = await collect(agent.chat_stream("hi"))
    assert [e.data for e in events if isinstance(e, Status)] == [{"left": 3}]


async def test_a_status_at_the_end_comes_before_the_last_event() -> None:
    agent = Agent(ScriptedModel("ok"))

    async def hook(ctx: Any) -> None:
        await ctx.run.status("bye")

    agent.add_hook("onChatDone", hook)
    events = await collect(agent.chat_stream("hi"))
    assert [type(e).__name__ for e in events[-2:]] == ["Status", "ChatDone"]


async def test_a_status_after_the_chat_reaches_nobody_and_cancels_nobody() -> None:
    """A task that a hook left behind is not cancelled by asking for something too late."""
    runs: list[Any] = []
    heard: list[Any] = []
    agent = Agent(ScriptedModel("ok"))
    agent.add_hook("onChatStart", lambda ctx: runs.append(ctx.run))
    agent.add_hook("onStatus", heard.append)
    await agent.chat("hi")
    with contextlib.suppress(Exception):  # an error that says so is fine
        await runs[0].status("late")
    assert heard == []
