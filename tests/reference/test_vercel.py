"""What users of experimental-agent can do, row by row of its table in README.md."""

import asyncio
from dataclasses import dataclass

import pytest

from hookline import (
    Agent,
    Approve,
    Conversation,
    Deny,
    LocalRuntime,
    MemoryStore,
    Run,
    Scope,
    Settings,
    ToolFailure,
    ToolResult,
    tool,
)
from hookline.errors import ApprovalError
from hookline.events import ApprovalRequested, Status
from hookline.hooks import approve, redact
from hookline.points import PreToolCall
from hookline.runtimes import key_name
from hookline.testing import call, collect
from hookline.workspace import Workspace

from ._play import Boom, add, agent_of, broken, only, requests, results, roles, sums, void


@tool
async def bash(command: str) -> dict[str, str]:
    return {"stdout": f"ran {command}; key=sk-12345678"}


@tool
async def read(path: str) -> str:
    return f"text of {path}"


def shell(*calls, **options):
    return agent_of([*calls], "done", **{"tools": [bash, read], **options})


async def test_009_hooks_as_a_table_are_the_same_as_added_ones():
    out = []
    table = {"preToolCall": lambda ctx: void(out.append(ctx.call.name)), "onStatus": void}
    agent = shell(call("read", path="a"), hooks=table)
    await agent.chat("go")
    assert out == ["read"]
    assert [info.point for info in agent.hooks()] == ["preToolCall", "onStatus"]


async def test_018_nothing_returned_passes_through():
    agent = shell(call("read", path="a"))
    agent.add_hook("preToolCall", void)
    agent.add_hook("onToolCallResult", void)
    assert results(await agent.chat("go")) == [("ok", "text of a")]


async def test_041_a_block_is_a_value_the_tool_never_runs_and_the_model_is_told():
    agent = shell(call("bash", command="rm -rf /"))

    @agent.hook("preToolCall", tools=["bash"])
    def before(ctx):
        if "rm -rf" in ctx.call.arguments["command"]:
            return ToolFailure("Destructive commands are not allowed")
        return ctx.call.replace(
            arguments={"command": f"cd /safe && {ctx.call.arguments['command']}"}
        )

    ((outcome, text),) = results(await agent.chat("go"))
    assert outcome == "denied"
    assert "Destructive" in text


async def test_041_a_throw_may_block_that_call_too():
    agent = shell(call("bash", command="ls"))

    @agent.hook("preToolCall", on_error="deny")
    def before(ctx):
        raise Boom

    assert results(await agent.chat("go"))[0][0] == "denied"


async def test_068_system_tools_and_settings_are_asked_at_every_step():
    on = {"read": True}

    def system(run: Run[str]) -> str:
        return f"step {run.iteration} of {run.deps}"

    def fade(path: str) -> str:
        on["read"] = False
        return path

    tools = [bash, tool(name="read", enabled=lambda: on["read"])(fade)]
    agent = agent_of(call("read", path="a"), "done", tools=tools, system=system)

    @agent.hook("preRequest")
    def cooler(ctx):
        return ctx.request.replace(settings=Settings(temperature=ctx.iteration / 10))

    await agent.chat("go", deps="ann")
    first, second = requests(agent)
    assert (first.system, second.system) == ("step 0 of ann", "step 1 of ann")
    assert [len(each.tools) for each in (first, second)] == [2, 1]
    assert [each.settings.temperature for each in (first, second)] == [0.0, 0.1]


async def test_087_one_hook_sees_all_tools_and_may_replace_the_input():
    out = []
    agent = shell(call("bash", command="ls"), call("read", path="a"))

    @agent.hook("preToolCall")
    def before(ctx):
        out.append(ctx.call.name)
        if ctx.call.name != "bash":
            return None
        return ctx.call.replace(
            arguments={"command": f"cd /safe && {ctx.call.arguments['command']}"}
        )

    response = await agent.chat("go")
    assert out == ["bash", "read"]
    assert "ran cd /safe && ls" in results(response)[0][1]


async def test_088_the_result_may_be_replaced_and_failures_have_their_own_hook():
    out = []
    agent = agent_of(
        [call("bash", command="ls"), call("broken")],
        "done",
        tools=[bash, add, broken],
    )

    @agent.hook("onToolCallResult", tools=["bash"])
    def after(ctx):
        return ToolResult({**ctx.result.value, "stdout": "redacted"})

    agent.add_hook("onToolCallError", lambda ctx: out.append(ctx.error.message))
    response = await agent.chat("go")
    assert results(response)[0] == ("ok", '{"stdout":"redacted"}')
    assert out == ["broken"]


@dataclass
class Caller:
    user: str
    token: str


async def test_089_hooks_have_the_callers_context_and_the_chat():
    out = []
    agent: Agent[Caller] = shell(call("read", path="a"))

    @agent.hook("preToolCall")
    def before(ctx: PreToolCall[Caller]) -> None:
        run = ctx.run
        out.append((run.deps.user, run.conversation_id, run.agent, roles(run.history)))

    conversation = Conversation(id="talk")
    await agent.chat("go", deps=Caller("ann", "t"), conversation=conversation)
    assert out == [("ann", "talk", "agent", ["user", "assistant"])]


async def test_102_a_session_is_a_conversation_by_id():
    store = MemoryStore()
    agent = agent_of("one", "two", store=store)
    await agent.chat("hi", conversation="talk")
    await collect(agent.chat_stream("ho", conversation="talk"))
    conversation = await store.open("talk")
    assert [m.text for m in conversation.messages] == ["hi", "one", "ho", "two"]


TYPES = [
    "sandbox-setup",
    "sandbox-setup-cold",
    "loading-skills",
    "processing-approvals",
    "needs-approval",
    "thinking",
    "indexing the garden",
]


@pytest.mark.parametrize("type", TYPES)
@pytest.mark.parametrize("source", ["hook", "tool"])
async def test_131_a_status_reaches_observer_stream_and_subscribers_and_is_not_stored(type, source):
    out = []

    @tool
    async def work(run: Run) -> str:
        await run.status(type, {"n": 1})
        return "worked"

    agent = agent_of(call("work", call_id="c1"), "done", tools=[work])
    if source == "hook":
        agent.scopes.unregister("agent")
        agent.add_hook("onChatStart", lambda ctx: ctx.run.status(type, {"n": 1}))
    agent.add_hook("onStatus", lambda ctx: out.append((ctx.type, ctx.data)))
    subscription = agent.subscribe(Status)
    conversation = Conversation()
    events = await collect(agent.chat_stream("go", conversation=conversation))
    subscription.close()
    (event,) = only(events, Status)
    assert [each async for each in subscription] == [event]
    assert (event.type, event.data, event.call_id) == (
        type,
        {"n": 1},
        "c1" if source == "tool" else None,
    )
    assert out == [(type, {"n": 1})]
    assert type not in str([m.text for m in conversation.messages])


async def test_132_a_second_reader_sees_the_running_answer_from_where_it_joins():
    joined = asyncio.Event()

    async def slow(request):
        await joined.wait()
        return "the answer"

    agent = agent_of(slow)
    chat = asyncio.create_task(agent.chat("hi"))
    events = agent.subscribe()
    joined.set()
    await chat
    events.close()
    assert "ChatDone" in [type(each).__name__ async for each in events]


async def test_139_a_second_message_may_take_the_place_of_a_running_chat():
    begun = asyncio.Event()

    async def hang(request):
        begun.set()
        await asyncio.Event().wait()

    conversation = Conversation()
    agent = agent_of(hang, "the second answer")
    runs = []
    agent.add_hook("onChatStart", lambda ctx: runs.append(ctx.run))
    first = asyncio.create_task(agent.chat("first", conversation=conversation))
    await begun.wait()
    runs[0].abort("superseded")
    with pytest.raises(Exception, match="superseded"):
        await first
    assert (await agent.chat("second", conversation=conversation)).text == "the second answer"


async def test_154_approvals_by_tool_and_predicate_suspend_and_resume():
    hooks = [
        approve("bash"),
        approve("read", when=lambda ctx: ctx.call.arguments["path"][0] == "/"),
    ]
    agent = shell(
        call("bash", command="ls"),
        call("read", path="/etc/passwd"),
        call("read", path="notes"),
        hooks=hooks,
    )
    conversation = Conversation()
    events = await collect(agent.chat_stream("go", conversation=conversation))
    assert len(only(events, ApprovalRequested)) == 2
    first, second = conversation.pending
    assert [each.call.name for each in (first, second)] == ["bash", "read"]
    with pytest.raises(ApprovalError):
        await agent.resume(conversation, {"nothing": Approve()})
    response = await agent.resume(conversation, {first.id: Approve(), second.id: Deny("private")})
    told = {text for _, text in results(conversation)}
    assert response.text == "done"
    assert any("private" in text for text in told)
    assert sorted(outcome for outcome, _ in results(conversation)) == ["denied", "ok", "ok"]


async def test_156_the_callers_context_is_its_own_and_never_stored():
    seen = []
    meet = asyncio.Barrier(2)

    async def answer(request):
        await meet.wait()
        return "ok"

    agent = agent_of(answer, answer)
    agent.add_hook("onChatEnd", lambda ctx: seen.append(ctx.run.deps.token))
    talks = [Conversation(), Conversation()]
    await asyncio.gather(
        *(agent.chat("hi", deps=Caller("x", f"t{n}"), conversation=talks[n]) for n in range(2))
    )
    assert sorted(seen) == ["t0", "t1"]
    assert "t0" not in str([m.to_json() for m in talks[0].messages])


async def test_157_state_that_lasts_over_turns():
    conversation = Conversation(meta={"visits": 0})

    @tool
    async def visit(run: Run) -> int:
        conversation.meta["visits"] += 1
        return conversation.meta["visits"]

    agent = agent_of(call("visit"), "one", call("visit"), "two", tools=[visit])
    await agent.chat("hi", conversation=conversation)
    await agent.chat("ho", conversation=conversation)
    assert conversation.meta == {"visits": 2}


async def test_161_usage_of_a_session():
    agent = agent_of("one", "two")
    conversation = Conversation()
    for text in ("hi", "ho"):
        await agent.chat(text, conversation=conversation)
    total = [m.usage.input_tokens for m in conversation.messages if m.role == "assistant"]
    assert total == [10, 10]


async def test_166_functions_sync_and_async_are_hooks():
    out = []

    async def later(ctx):
        out.append("async")

    agent = agent_of(hooks={"onChatStart": [lambda ctx: out.append("sync"), later]})
    await agent.chat("hi")
    assert out == ["sync", "async"]


async def test_168_hooks_run_for_all_tools_of_all_scopes():
    out = []
    agent = shell(call("read", path="a"), sums)
    agent.scopes.register(Scope("more", tools=[add, broken]))
    agent.add_hook("preToolCall", lambda ctx: out.append((ctx.scope.label, ctx.call.name)))
    await agent.chat("go")
    assert out == [("agent", "read"), ("more", "add")]


async def test_170_commands_run_in_a_sandbox(tmp_path):
    """tests/workspace/test_sandbox.py has the attacks; here a command runs, or is refused."""
    (tmp_path / "project").mkdir()
    workspace = Workspace(tmp_path / "project", state=tmp_path / "state", mode="edits")
    run = call("bash", command="pwd; cat /etc/shadow; touch /usr/x")
    response = await agent_of(run, "done", plugins=[workspace]).chat("go")
    text = response.tool_results[0].text
    if await workspace.check() is None:
        assert text.startswith("/workspace\n")
        assert "Read-only file system" in text
    else:
        assert "commands cannot run" in text


async def test_170_a_runtime_may_keep_what_each_step_gave():
    """The seam for a durable engine: every step that reaches out, by its key."""

    class Noting(LocalRuntime):
        def __init__(self):
            self.keys = []

        def step(self, key, fn, returns, /, *args):
            self.keys.append(key_name(key))
            return super().step(key, fn, returns, *args)

    runtime = Noting()
    agent = agent_of(sums, "done", runtime=runtime)
    await agent.chat("hi")
    for key in ("message/0", "step/0/request", "step/0/model", "step/0/call/c1/run"):
        assert key in runtime.keys


# ── the recipes of its document ─────────────────────────────────────────────────────────────


async def test_recipe_redact_what_a_tool_prints():
    agent = shell(call("bash", command="env"), hooks=[redact(r"sk-\w{8,}")])
    assert results(await agent.chat("go")) == [("ok", '{"stdout":"ran env; key=[redacted]"}')]


async def test_recipe_log_statuses():
    out = []
    agent = agent_of(hooks={"onStatus": lambda ctx: out.append(f"Agent status: {ctx.type}")})
    agent.add_hook("onChatStart", lambda ctx: ctx.run.status("thinking"))
    await agent.chat("hi")
    assert out == ["Agent status: thinking"]
