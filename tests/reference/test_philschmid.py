"""What users of @philschmid/agent can do, row by row of its table in README.md."""

import asyncio
import logging
from collections import Counter
from datetime import datetime

import pytest

from hookline import (
    Agent,
    Approve,
    Ask,
    Continue,
    Conversation,
    HookBus,
    Interceptor,
    ModelRequest,
    Observer,
    Run,
    ToolFailure,
    ToolResult,
    tool,
)
from hookline.events import ChatAborted, ChatFailed, Status, TextDelta, ToolCallFinished
from hookline.hooks import budget, deny_commands, rate_limit, truncate, window
from hookline.testing import ScriptedModel, call, collect
from hookline.workspace import Workspace

from ._play import Boom, add, agent_of, broken, names, only, requests, results, roles, sums, void


@tool
async def bash(command: str) -> str:
    return f"ran {command}"


def shell(*commands, **options):
    calls = [call("bash", command=command) for command in commands]
    return agent_of(calls, "done", **{"tools": [bash], **options})


# ── the hook runner ─────────────────────────────────────────────────────────────────────────


async def test_005_handlers_run_in_order_sync_or_async():
    out = []
    agent = agent_of()

    @agent.hook("onMessage")
    async def slow(ctx):
        await asyncio.sleep(0)
        out.append("slow")

    agent.add_hook("onMessage", lambda ctx: out.append("fast"))
    await agent.chat("hi")
    assert out == ["slow", "fast"] * 2


async def test_008_handlers_go_one_by_one_by_name_or_all_at_once():
    agent = agent_of()
    for point in ("onMessage", "onMessage", "onStep"):
        agent.add_hook(point, void)
    agent.bus.clear("onMessage")
    assert [info.point for info in agent.hooks()] == ["onStep"]
    agent.bus.clear()
    assert agent.hooks() == ()


async def test_018_returning_nothing_allows_and_changes_nothing():
    agent = shell("ls")
    agent.add_hook("preToolCall", lambda ctx: None)
    assert results(await agent.chat("go")) == [("ok", "ran ls")]


async def test_020_handlers_are_a_pipeline_so_no_ones_work_is_lost():
    agent = shell("x")
    agent.add_hook("onToolCallResult", lambda ctx: ToolResult(ctx.result.value + "1"))
    agent.add_hook("onToolCallResult", lambda ctx: ToolResult(ctx.result.value + "2"))
    assert results(await agent.chat("go")) == [("ok", "ran x12")]


async def test_022_what_an_observer_returns_is_ignored():
    agent = agent_of("text")
    agent.add_hook("onMessage", lambda ctx: {"allow": False})
    assert (await agent.chat("hi")).text == "text"


async def test_025_one_can_ask_which_handlers_there_are():
    agent = agent_of()
    agent.add_hook("preToolCall", void, name="guard", priority=200)
    assert [(i.point, i.name, i.priority) for i in agent.hooks("preToolCall")] == [
        ("preToolCall", "guard", 200)
    ]
    assert agent.hooks("onStep") == ()


async def test_027_the_bus_works_without_an_agent():
    class BeforeTool(Interceptor[ToolFailure | dict], frozen=True):
        arguments: dict
        ends = (ToolFailure,)

    class Ended(Observer, frozen=True):
        tool: str

    bus = HookBus()
    assert await bus.intercept(BeforeTool({"command": "ls"})) == {"command": "ls"}
    bus.add_hook(BeforeTool, lambda ctx: {**ctx.arguments, "cwd": "/"})
    bus.add_hook(
        BeforeTool, lambda ctx: ToolFailure("no") if "rm" in ctx.arguments["command"] else None
    )
    assert await bus.intercept(BeforeTool({"command": "ls"})) == {"command": "ls", "cwd": "/"}
    assert await bus.intercept(BeforeTool({"command": "rm"})) == ToolFailure("no")
    seen = []
    bus.add_hook(Ended, lambda ctx: seen.append(ctx.tool))
    await bus.notify(Ended("bash"))
    assert seen == ["bash"]


async def test_028_a_subclass_may_add_its_hooks():
    class MyAgent(Agent):
        def __init__(self, model, **options):
            super().__init__(model, **options)
            self.log = []
            self.add_hook("preToolCall", self.audit)
            self.add_hook("preStop", self.summarize)

        def audit(self, ctx):
            self.log.append(f"{ctx.call.name}({ctx.call.arguments})")

        def summarize(self, ctx):
            return Continue("Summarize.") if ctx.continuations == 0 else None

    agent = MyAgent(ScriptedModel(call("bash", command="ls"), "done", "in short"), tools=[bash])
    assert (await agent.chat("go")).text == "in short"
    assert agent.log == ["bash({'command': 'ls'})"]


@pytest.mark.parametrize(
    ("point", "told"),
    [
        ("onChatStart", False),
        ("onResponse", False),
        ("preStop", False),
        ("preToolCall", False),
        ("onToolCallResult", False),
        ("preToolCall", True),
    ],
)
async def test_036_what_a_throw_does_is_the_same_everywhere_and_can_be_chosen(point, told):
    agent = shell("ls")
    options = {"on_error": "deny"} if told else {}

    def fail(ctx):
        raise Boom

    agent.add_hook(point, fail, **options)
    if told:
        assert results(await agent.chat("go"))[0][0] == "denied"
        return
    with pytest.raises(Boom):
        await agent.chat("go")


# ── hooks ───────────────────────────────────────────────────────────────────────────────────


async def test_047_onAgentStart_once_a_chat_with_input_system_and_tools():
    out = []
    agent = shell("ls", system="Be nice.")

    @agent.hook("preChat")
    def start(ctx):
        out.append((ctx.request.message.text, ctx.request.system, len(ctx.request.tools)))
        return ctx.request.replace(
            message=ctx.request.message.replace(text="changed"),
            system=f"{ctx.request.system}\nIt is {datetime(2026, 11, 21):%A}.",
            tools=tuple(t for t in ctx.request.tools if t.name == "bash"),
        )

    calls = []
    agent.add_hook("preToolCall", lambda ctx: void(calls.append(ctx.call.name)))
    response = await agent.chat("hi")
    assert out == [("hi", "Be nice.", 1)]
    assert [each.system for each in requests(agent)] == ["Be nice.\nIt is Saturday."] * 2
    assert response.messages[0].text == "changed"
    assert calls == ["bash"]  # once, whatever was done with the tools


async def test_048_onAgentEnd_injects_input_joined_and_at_most_three_times():
    asked = []
    agent = agent_of(*"abcdef")
    agent.add_hook("preStop", lambda ctx: void(asked.append((ctx.steps, ctx.continuations))))
    agent.add_hook("preStop", lambda ctx: Continue("Verify changes"))
    agent.add_hook("preStop", lambda ctx: Continue("Check for errors"))
    response = await agent.chat("first")
    users = [m.text for m in response.messages if m.role == "user"]
    assert users == ["first"] + ["Verify changes\n\nCheck for errors"] * 3
    assert asked == [(1, 0), (2, 1), (3, 2)]
    assert len(requests(agent)[1].messages) == 3  # what was said before is not said again


async def test_061_onInteractionStart_fires_before_each_model_call():
    out = []
    agent = shell("ls")
    agent.add_hook("preRequest", lambda ctx: out.append(roles(ctx.request.messages)))
    await agent.chat("go")
    assert out == [["user"], ["user", "assistant", "tool"]]


async def test_062_onInteractionEnd_fires_after_the_tools_of_the_turn_and_is_awaited():
    out = []
    agent = shell("ls")

    @agent.hook("onStep")
    async def end(ctx):
        await asyncio.sleep(0)
        out.append((ctx.iteration, [m.text for m in ctx.results], len(requests(agent))))

    await agent.chat("go")
    assert out == [(0, ["ran ls"], 1), (1, [], 2)]


async def test_063_transformContext_replaces_messages_tools_and_system_of_one_call():
    agent = shell("ls")

    @agent.hook("preRequest")
    def transform(ctx):
        if ctx.iteration == 0:
            return ctx.request.replace(system="first call", tools=ctx.request.tools)
        return ctx.request.replace(messages=ctx.request.messages[:1], tools=())

    await agent.chat("go")
    first, second = requests(agent)
    assert (first.system, second.system) == ("first call", None)
    assert (len(second.messages), second.tools) == (1, ())


async def test_076_the_first_refusal_wins_and_nothing_allows():
    out = []
    agent = shell("ls")
    agent.add_hook("preToolCall", lambda ctx: None)
    agent.add_hook("preToolCall", lambda ctx: ToolFailure("Blocked"))
    agent.add_hook("preToolCall", lambda ctx: out.append("never"))
    assert results(await agent.chat("go"))[0][0] == "denied"
    assert out == []


async def test_077_changed_arguments_are_whole_and_each_handler_sees_the_last():
    agent = agent_of(sums, "done")
    agent.add_hook(
        "preToolCall", lambda ctx: ctx.call.replace(arguments={**ctx.call.arguments, "a": 5})
    )
    agent.add_hook(
        "preToolCall", lambda ctx: ctx.call.replace(arguments={**ctx.call.arguments, "b": 6})
    )
    assert results(await agent.chat("go")) == [("ok", "11")]


async def test_078_a_blocked_call_is_told_and_shown_as_denied():
    out = []
    agent = shell("ls")
    agent.add_hook("preToolCall", lambda ctx: ToolFailure("Blocked: no shell"))
    agent.add_hook("onToolCallResult", lambda ctx: out.append("after"))
    events = await collect(agent.chat_stream("go"))
    assert "ToolCallStarted" in names(events)
    (finished,) = only(events, ToolCallFinished)
    assert (finished.outcome, finished.result.message) == ("denied", "Blocked: no shell")
    assert out == []


async def test_079_failures_have_a_hook_of_their_own():
    out = []
    agent = agent_of([call("broken")], "done")
    agent.add_hook("onToolCallResult", lambda ctx: out.append("result"))
    agent.add_hook("onToolCallError", lambda ctx: out.append(ctx.error.type))
    await agent.chat("go")
    assert out == ["Boom"]


async def test_079_a_wrapper_sees_both():
    out = []
    agent = agent_of([sums, call("broken")], "done", parallel_tools=False)

    @agent.hook("aroundToolCall")
    async def after(ctx, proceed):
        result = await proceed()
        out.append(type(result).__name__)
        return result

    await agent.chat("go")
    assert out == ["ToolResult", "ToolFailure"]


async def test_080_an_unknown_tool_is_an_error_to_the_model():
    out = []
    agent = agent_of(call("nope"), "done")
    agent.add_hook("preToolCall", lambda ctx: out.append("pre"))
    response = await agent.chat("go")
    assert (out, response.text) == ([], "done")
    assert "UnknownToolError" in results(response)[0][1]


async def test_106_a_limit_always_has_its_reason():
    agent = agent_of(*[sums] * 9, hooks=[budget(steps=2)])
    response = await agent.chat("go")
    assert (response.stop_reason, response.text) == ("steps_limit", "step limit reached: 2/2")


async def test_113_all_follow_ups_that_wait_reach_the_model():
    queue = ["and the tests", "and the docs"]
    agent = agent_of("one", "two")

    @agent.hook("preStop")
    def follow_up(ctx):
        said, queue[:] = [*queue], []
        return Continue("\n\n".join(said)) if said else None

    response = await agent.chat("fix it")
    assert response.messages[2].text == "and the tests\n\nand the docs"


async def test_126_a_slow_reader_is_waited_for():
    agent = agent_of(["x"] * 200)
    ahead = []
    agent.add_hook("onDelta", lambda ctx: void(ahead.append(1)))
    read = 0
    async for event in agent.chat_stream("go"):
        read += isinstance(event, TextDelta)
        assert len(ahead) <= read + 66
    assert read == 200


async def test_129_a_tool_tells_how_far_it_is_and_the_response_is_awaited():
    @tool
    async def build(run: Run) -> str:
        for percent in (50, 100):
            await run.status("progress", {"percent": percent})
        return "built"

    agent = agent_of(call("build"), "done", tools=[build])
    async with agent.chat_stream("go") as stream:
        events = [event async for event in stream]
    assert [each.data for each in only(events, Status)] == [{"percent": 50}, {"percent": 100}]
    assert stream.response.text == "done"


async def test_130_a_failure_reaches_the_reader():
    events = []
    with pytest.raises(Boom):
        await collect(agent_of(Boom()).chat_stream("go"), events)
    assert isinstance(events[-1], ChatFailed)


async def test_137_an_abort_reaches_tools_and_model_and_is_an_event():
    out = []
    begun = asyncio.Event()

    @tool
    async def hang() -> None:
        begun.set()
        try:
            await asyncio.Event().wait()
        finally:
            out.append("cancelled")

    agent = agent_of(call("hang"), tools=[hang])
    events = []
    async with agent.chat_stream("go") as stream:
        async for event in stream:
            events.append(event)
            if type(event).__name__ == "ToolCallStarted":
                await begun.wait()
                stream.abort("enough")
    assert out == ["cancelled"]
    assert isinstance(events[-1], ChatAborted)


async def test_151_tools_run_in_the_models_order_if_one_wants():
    order = []

    @tool
    async def step(n: int) -> None:
        order.append(n)
        await asyncio.sleep(0)
        order.append(n)

    calls = [call("step", n=n) for n in range(3)]
    await agent_of(calls, "done", tools=[step], parallel_tools=False).chat("go")
    assert order == [0, 0, 1, 1, 2, 2]


async def test_152_arguments_are_checked_against_the_schema():
    ran = []

    @tool
    async def strict(n: int) -> None:
        ran.append(n)

    agent = agent_of(call("strict", n="7"), "done", tools=[strict])
    assert results(await agent.chat("go"))[0][0] == "error"
    assert ran == []


async def test_155_a_person_may_be_asked():

    agent = shell("ls", approver=lambda request, run: Approve())
    agent.add_hook("preToolCall", lambda ctx: Ask(f"Run {ctx.call.arguments['command']}?"))
    assert results(await agent.chat("go")) == [("ok", "ran ls")]


async def test_158_a_sub_agent_is_a_tool_whose_events_and_hooks_are_seen():
    out = []
    kid = Agent(ScriptedModel(call("bash", command="ls"), "found"), name="kid", tools=[bash])
    mum = agent_of(call("delegate", input="look"), "done", tools=[kid.as_tool(name="delegate")])
    mum.add_hook("preToolCall", lambda ctx: void(out.append(ctx.call.name)), inherit=True)
    events = await collect(mum.chat_stream("go"))
    assert out == ["delegate", "bash"]
    assert {each.path for each in events} == {(), ("call_1",)}


async def test_161_usage_of_the_chat():
    response = await agent_of(sums, "done").chat("go")
    assert response.usage.input_tokens == 20
    assert response.usage.total_tokens > 20


async def test_166_a_bound_method_and_a_lambda_are_hooks():
    out = []

    class Log:
        def note(self, ctx):
            out.append("method")

    agent = agent_of()
    agent.add_hook("onChatStart", Log().note)
    agent.add_hook("onChatStart", lambda ctx: out.append("lambda"))
    await agent.chat("hi")
    assert out == ["method", "lambda"]


async def test_168_tools_for_files_and_commands_are_built_in(tmp_path):
    (tmp_path / "project").mkdir()
    workspace = Workspace(tmp_path / "project", state=tmp_path / "state", mode="edits")
    write = call("write", path="a.txt", text="hi")
    out = []
    agent = agent_of(write, call("read", path="a.txt"), "done", plugins=[workspace])
    agent.add_hook("preToolCall", lambda ctx: out.append(ctx.call.name))
    response = await agent.chat("go")
    assert out == ["write", "read"]
    assert response.tool_results[1].text == "1\thi"
    assert {"bash", "grep", "edit", "plan"} <= set(agent.scopes.tools)


async def test_168_hooks_run_for_every_tool():
    out = []
    agent = agent_of([call("bash", command="ls"), sums], "done", tools=[bash, add, broken])
    agent.add_hook("preToolCall", lambda ctx: out.append(ctx.call.name))
    await agent.chat("go")
    assert out == ["bash", "add"]


# ── the recipes of its document ─────────────────────────────────────────────────────────────


async def test_recipe_block_rm_rf():
    agent = shell("rm -rf /", "ls", hooks=[deny_commands("rm -rf")])
    assert [outcome for outcome, _ in results(await agent.chat("go"))] == ["denied", "ok"]
    agent = shell("rm -rf /", "ls")

    @agent.hook("preToolCall", tools=["bash"])
    def block(ctx):
        if "rm -rf" in ctx.call.arguments["command"]:
            return ToolFailure("Destructive command blocked")
        return None

    assert [outcome for outcome, _ in results(await agent.chat("go"))] == ["denied", "ok"]


async def test_recipe_allow_list():
    allowed = {"ls", "pwd", "cat", "head", "tail"}
    agent = shell("ls -la", "curl x")

    @agent.hook("preToolCall", tools=["bash"], priority=200)
    def allow(ctx):
        first = ctx.call.arguments["command"].split(" ")[0]
        return None if first in allowed else ToolFailure(f"Command {first!r} not in allowlist")

    assert [outcome for outcome, _ in results(await agent.chat("go"))] == ["ok", "denied"]


async def test_recipe_rate_limit():
    agent = shell(*["ls"] * 12, hooks=[rate_limit(10)])
    counts = Counter(outcome for outcome, _ in results(await agent.chat("go")))
    assert counts == {"ok": 10, "denied": 2}


async def test_recipe_sliding_window():
    agent = agent_of(*["ok"] * 8, hooks=[window(10)])
    conversation = Conversation()
    for n in range(8):
        await agent.chat(str(n), conversation=conversation)
    assert len(requests(agent)[-1].messages) <= 10
    assert len(conversation.messages) == 16


async def test_recipe_truncate_results():
    @tool
    async def big() -> str:
        return "x" * 20_000

    agent = agent_of(call("big"), "done", tools=[big], hooks=[truncate(10_000)])
    ((_, text),) = results(await agent.chat("go"))
    assert len(text) < 10_050


async def test_recipe_system_prompt_with_the_time():
    agent = agent_of("ok", "ok", system=lambda run: f"Current time: {datetime.now():%H:%M}")
    await agent.chat("hi")
    assert requests(agent)[0].system.startswith("Current time: ")

    @agent.hook("preRequest")
    def add(ctx) -> ModelRequest:
        return ctx.request.replace(system=f"{ctx.request.system} o'clock")

    await agent.chat("hi")
    assert requests(agent)[1].system.endswith(" o'clock")


async def test_recipe_inject_verify_changes_at_the_end():
    agent = agent_of("done", "verified")
    agent.add_hook(
        "preStop", lambda ctx: Continue("Verify changes.") if ctx.continuations == 0 else None
    )
    response = await agent.chat("change it")
    assert response.text == "verified"


async def test_recipe_log_calls_and_results(caplog):
    agent = shell("ls")
    logger = logging.getLogger("app")
    agent.add_hook(
        "preToolCall", lambda ctx: logger.info("[TOOL] %s(%s)", ctx.call.name, ctx.call.arguments)
    )
    agent.add_hook("onToolCallResult", lambda ctx: logger.info("[RESULT] %.100s", ctx.result.value))
    with caplog.at_level(logging.INFO, logger="app"):
        await agent.chat("go")
    assert caplog.messages == ["[TOOL] bash({'command': 'ls'})", "[RESULT] ran ls"]


async def test_recipe_wrap_the_loop_yourself():
    """What there was a loop of one's own for: the stream, filtered and stopped from outside."""
    seen = []
    async with shell("ls").chat_stream("go") as stream:
        async for event in stream:
            if isinstance(event, ToolCallFinished):
                seen.append(event.outcome)
    assert seen == ["ok"]
