"""The last look: each guard is asked about a call as it will run, right before its tool begins."""

import asyncio
import json

import pytest

from hookline import (
    Agent,
    Approve,
    Ask,
    Conversation,
    Deny,
    Scope,
    Stop,
    ToolFailure,
    ToolResult,
    define_hook,
    tool,
)
from hookline.errors import HookOptionError, ToolDenied
from hookline.hooks import rate_limit
from hookline.testing import ScriptedModel, call


class Shell:
    """A tool that runs commands, and a guard that denies some of them."""

    def __init__(self, *, idempotent=False):
        self.ran = []
        self.denied = ["bad"]
        self.looks = []

        @tool(idempotent=idempotent)
        async def bash(command: str) -> str:
            self.ran.append(command)
            return f"ran {command}"

        self.tool = bash

    def guard(self, ctx):
        command = ctx.call.arguments["command"]
        self.looks.append((command, ctx.again))
        return Deny(f"{command} is denied") if command in self.denied else None


def agent_of(shell, *turns, **options):
    model = ScriptedModel(*(turns or (call("bash", command="good", call_id="a"), "done")))
    return Agent(model, tools=[shell.tool], **options)


def becomes(command):
    return lambda ctx: ctx.call.replace(arguments={"command": command})


async def outcome(agent, **options):
    talk = Conversation()
    await agent.chat("go", conversation=talk, **options)
    return talk.messages[2].outcome


async def test_a_guard_that_has_just_seen_the_call_is_not_asked_again():
    shell = Shell()
    agent = agent_of(shell)
    agent.add_hook("preToolCall", shell.guard, guard=True)
    await agent.chat("go")
    assert shell.looks == [("good", False)]
    assert shell.ran == ["good"]


@pytest.mark.parametrize("options", [{"guard": True}, {"on_error": "deny"}], ids=str)
async def test_a_guard_sees_what_a_later_hook_made_of_the_call(options):
    shell = Shell()
    agent = agent_of(shell)
    agent.add_hook("preToolCall", shell.guard, **options)
    agent.add_hook("preToolCall", becomes("bad"))
    assert await outcome(agent) == "denied"
    assert shell.looks == [("good", False), ("bad", True)]
    assert shell.ran == []


async def test_a_guard_after_the_last_change_is_asked_once():
    shell = Shell()
    agent = agent_of(shell)
    agent.add_hook("preToolCall", becomes("fine"))
    agent.add_hook("preToolCall", shell.guard, guard=True)
    await agent.chat("go")
    assert shell.looks == [("fine", False)]


async def test_a_hook_that_is_no_guard_is_not_asked_again():
    shell = Shell()
    agent = agent_of(shell)
    agent.add_hook("preToolCall", shell.guard)
    agent.add_hook("preToolCall", becomes("bad"))
    await agent.chat("go")
    assert shell.looks == [("good", False)]


async def test_a_question_about_a_changed_call_is_asked_before_it_runs():
    shell = Shell()
    agent = agent_of(shell)
    agent.add_hook(
        "preToolCall",
        lambda ctx: Ask("Really?") if ctx.call.arguments["command"] == "bad" else None,
        guard=True,
    )
    agent.add_hook("preToolCall", becomes("bad"))
    talk = Conversation()
    response = await agent.chat("go", conversation=talk)
    assert [request.prompts for request in response.pending] == [("Really?",)]
    await agent.resume(talk, {response.pending[0].id: Approve()})
    assert shell.ran == ["bad"]


async def test_a_guard_sees_the_call_that_a_wrapper_made():
    shell = Shell()
    agent = agent_of(shell)
    agent.add_hook("preToolCall", shell.guard, guard=True)

    @agent.hook("aroundToolCall")
    async def change(ctx, proceed):
        return await proceed(ctx.call.replace(arguments={"command": "bad"}))

    assert await outcome(agent) == "denied"
    assert shell.looks == [("good", False), ("bad", True)]
    assert shell.ran == []


async def test_a_guard_is_asked_each_time_that_an_idempotent_tool_begins():
    shell = Shell(idempotent=True)
    agent = agent_of(shell)
    agent.add_hook("preToolCall", shell.guard, guard=True)

    @agent.hook("aroundToolCall")
    async def twice(ctx, proceed):
        await proceed()
        shell.denied.append("good")
        return await proceed()

    assert await outcome(agent) == "denied"
    assert shell.looks == [("good", False), ("good", True)]
    assert shell.ran == ["good"]


async def test_access_that_was_withdrawn_while_the_request_waited_is_refused():
    shell = Shell()
    agent = agent_of(shell)
    agent.add_hook("preToolCall", shell.guard, guard=True)
    agent.add_hook("preToolCall", lambda ctx: Ask("May it?"))
    talk = Conversation()
    response = await agent.chat("go", conversation=talk)
    shell.denied.append("good")
    await agent.resume(talk, {response.pending[0].id: Approve()})
    assert talk.messages[2].outcome == "denied"
    assert shell.looks == [("good", False), ("good", True)]
    assert shell.ran == []


async def test_access_that_was_withdrawn_while_the_approver_thought_is_refused():
    shell = Shell()

    async def approver(request, run):
        shell.denied.append("good")
        return Approve()

    agent = agent_of(shell, approver=approver)
    agent.add_hook("preToolCall", shell.guard, guard=True)
    agent.add_hook("preToolCall", lambda ctx: Ask("May it?"))
    assert await outcome(agent) == "denied"
    assert shell.ran == []


async def test_a_guard_sees_the_arguments_of_the_approver():
    shell = Shell()
    agent = agent_of(shell, approver=lambda request, run: Approve(arguments={"command": "bad"}))
    agent.add_hook("preToolCall", shell.guard, guard=True)
    agent.add_hook("preToolCall", lambda ctx: Ask("May it?"))
    assert await outcome(agent) == "denied"
    assert shell.ran == []


async def test_an_approved_call_answers_the_question_of_the_last_look():
    shell = Shell()
    agent = agent_of(shell, approver=lambda request, run: Approve())
    agent.add_hook("preToolCall", lambda ctx: Ask("May it?"), guard=True)
    await agent.chat("go")
    assert shell.ran == ["good"]


async def test_a_call_that_a_wrapper_made_dangerous_needs_an_approval_that_it_does_not_have():
    shell = Shell()
    agent = agent_of(shell, approver=lambda request, run: Approve())
    agent.add_hook(
        "preToolCall",
        lambda ctx: Ask("Really?") if ctx.call.arguments["command"] == "bad" else None,
        guard=True,
    )

    @agent.hook("aroundToolCall")
    async def change(ctx, proceed):
        return await proceed(ctx.call.replace(arguments={"command": "bad"}))

    assert await outcome(agent) == "denied"
    assert shell.ran == []


@pytest.mark.parametrize("kind", ["ToolFailure", "ToolDenied", "Stop"])
async def test_every_refusal_of_a_second_look_counts(kind):
    shell = Shell()
    agent = agent_of(shell)

    @agent.hook("preToolCall", guard=True)
    def guard(ctx):
        if not ctx.again:
            return None
        if kind == "ToolDenied":
            raise ToolDenied("no")
        return ToolFailure("no") if kind == "ToolFailure" else Stop("enough")

    @agent.hook("aroundToolCall")
    async def change(ctx, proceed):
        return await proceed(ctx.call.replace(arguments={"command": "fine"}))

    talk = Conversation()
    response = await agent.chat("go", conversation=talk)
    assert shell.ran == []
    assert talk.messages[2].outcome == ("stopped" if kind == "Stop" else "denied")
    assert response.stop_reason == ("enough" if kind == "Stop" else None)


async def test_edits_and_results_of_a_second_look_do_not_count():
    shell = Shell()
    agent = agent_of(shell)

    @agent.hook("preToolCall", guard=True, priority=1)
    def edits(ctx):
        return ctx.call.replace(arguments={"command": "worse"}) if ctx.again else None

    @agent.hook("preToolCall", guard=True)
    def answers(ctx):
        return ToolResult("from a cache") if ctx.again else None

    @agent.hook("aroundToolCall")
    async def change(ctx, proceed):
        return await proceed(ctx.call.replace(arguments={"command": "fine"}))

    await agent.chat("go")
    assert shell.ran == ["fine"]


async def test_a_guard_that_raises_at_the_last_look_ends_the_chat_whatever_wrappers_do():
    shell = Shell()
    agent = agent_of(shell)

    @agent.hook("preToolCall", guard=True)
    def guard(ctx):
        if ctx.again:
            raise ValueError("a bug in the guard")

    @agent.hook("aroundToolCall")
    async def change(ctx, proceed):
        try:
            return await proceed(ctx.call.replace(arguments={"command": "fine"}))
        except BaseException:
            return ToolResult("never mind")

    with pytest.raises(ValueError, match="a bug in the guard"):
        await agent.chat("go")
    assert shell.ran == []


async def test_a_guard_with_on_error_deny_that_raises_at_the_last_look_refuses():
    shell = Shell()
    agent = agent_of(shell)

    @agent.hook("preToolCall", on_error="deny")
    def guard(ctx):
        if ctx.again:
            raise ValueError("a bug in the guard")

    agent.add_hook("preToolCall", becomes("fine"))
    assert await outcome(agent) == "denied"
    assert shell.ran == []


async def test_a_guard_that_is_added_between_decision_and_run_is_asked():
    shell = Shell()
    shell.denied = ["good"]
    agent = agent_of(shell)

    @agent.hook("aroundToolCall")
    async def tighten(ctx, proceed):
        agent.add_hook("preToolCall", shell.guard, guard=True)
        return await proceed()

    assert await outcome(agent) == "denied"
    assert shell.looks == [("good", False)]
    assert shell.ran == []


async def test_a_guard_that_was_removed_is_not_asked():
    shell = Shell()
    agent = agent_of(shell)
    remove = agent.add_hook("preToolCall", shell.guard, guard=True)

    @agent.hook("aroundToolCall")
    async def loosen(ctx, proceed):
        remove()
        return await proceed(ctx.call.replace(arguments={"command": "bad"}))

    await agent.chat("go")
    assert shell.ran == ["bad"]


async def test_a_tool_that_is_removed_while_a_guard_looks_does_not_run():
    shell = Shell()
    agent = agent_of(shell)

    @agent.hook("preToolCall", guard=True)
    async def guard(ctx):
        if ctx.again:
            await asyncio.sleep(0)
            agent.scopes.unregister(ctx.scope.label)

    @agent.hook("aroundToolCall")
    async def change(ctx, proceed):
        return await proceed(ctx.call.replace(arguments={"command": "fine"}))

    assert await outcome(agent) == "error"
    assert shell.ran == []


async def test_a_second_look_does_not_count_twice():
    shell = Shell()
    turns = [
        call("bash", command="one", call_id="a"),
        call("bash", command="two", call_id="b"),
        "done",
    ]
    agent = agent_of(shell, *turns, hooks=rate_limit(2))
    agent.add_hook("preToolCall", lambda ctx: becomes(ctx.call.arguments["command"] + "!")(ctx))
    await agent.chat("go")
    assert shell.ran == ["one!", "two!"]


# ── who is a guard ──────────────────────────────────────────────────────────────────────────


def nothing(ctx):
    return None


def test_a_guard_is_required_or_denies_on_errors_or_says_so():
    options = [{"guard": True}, {"on_error": "deny"}, {"required": True}]
    for each in options:
        hook = define_hook("preToolCall", nothing, **each).options
        assert (hook.guard, hook.required, hook.inherit) == (True, True, True), each
    plain = define_hook("preToolCall", nothing).options
    assert (plain.guard, plain.required, plain.inherit) == (False, False, None)
    elsewhere = define_hook("onResponse", nothing, required=True).options
    assert (elsewhere.guard, elsewhere.inherit) == (False, None)


def test_a_guard_elsewhere_than_before_a_tool_call_is_refused():
    with pytest.raises(HookOptionError, match="guard=True works only at preToolCall"):
        define_hook("onResponse", nothing, guard=True)
    with pytest.raises(HookOptionError, match="guard=1 must be True or False"):
        define_hook("preToolCall", nothing, guard=1)


def test_who_writes_required_false_lets_a_chat_leave_the_guard_out():
    hook = define_hook("preToolCall", nothing, on_error="deny", required=False).options
    assert (hook.guard, hook.required, hook.inherit) == (True, False, True)


async def test_only_hooks_never_removes_a_guard():
    shell = Shell()
    shell.denied = ["good"]
    guard = define_hook("preToolCall", shell.guard, guard=True)
    await agent_of(shell, hooks=[guard]).chat("go", only_hooks=[])
    assert shell.ran == []


@pytest.mark.parametrize("depth", [1, 2, 3])
async def test_guards_go_with_sub_agents_at_any_depth(depth):
    shell = Shell()
    shell.denied = ["good"]
    agent = agent_of(shell, name="a0")
    for level in range(depth):
        model = ScriptedModel(call(f"a{level}", input="go"), "done")
        agent = Agent(model, name=f"a{level + 1}", tools=[agent.as_tool()])
    agent.add_hook("preToolCall", lambda ctx: None)
    agent.add_hook(
        "preToolCall", lambda ctx: shell.guard(ctx) if ctx.call.name == "bash" else None, guard=True
    )
    await agent.chat("go")
    assert shell.ran == []


async def test_a_guard_with_inherit_false_stays_out_of_sub_agents():
    shell = Shell()
    shell.denied = ["good"]
    below = agent_of(shell, name="below")
    above = Agent(ScriptedModel(call("below", input="go"), "done"), tools=[below.as_tool()])
    above.add_hook("preToolCall", lambda ctx: Deny("no") if ctx.call.name == "bash" else None,
                   guard=True, inherit=False)  # fmt: skip
    await above.chat("go")
    assert shell.ran == ["good"]


async def test_the_model_reads_the_refusal_of_the_last_look():
    shell = Shell()
    agent = agent_of(shell)
    agent.add_hook("preToolCall", shell.guard, guard=True)
    agent.add_hook("preToolCall", becomes("bad"))
    talk = Conversation()
    await agent.chat("go", conversation=talk)
    assert json.loads(talk.messages[2].text) == {
        "error": {"type": "Denied", "message": "bad is denied"}
    }


async def test_a_clients_call_that_an_approver_has_broken_does_not_leave():
    @tool(client=True)
    async def pick(number: int) -> int: ...

    agent = Agent(ScriptedModel(call("pick", number=1), "done"), tools=[pick])
    agent.add_hook("preToolCall", lambda ctx: Ask("May it?"))
    talk = Conversation()
    response = await agent.chat("go", conversation=talk)
    answer = Approve(arguments={"number": "no number"})
    await agent.resume(talk, {response.pending[0].id: answer})
    assert talk.client_calls == ()
    assert talk.messages[2].outcome == "error"


async def test_a_tool_that_was_replaced_by_another_of_its_name_does_not_run():
    shell, other = Shell(), Shell()
    agent = agent_of(shell)

    @agent.hook("aroundToolCall")
    async def replace(ctx, proceed):
        agent.scopes.unregister(ctx.scope.label)
        agent.scopes.register(Scope("new", tools=[other.tool]))
        return await proceed(ctx.call.replace(arguments={"command": "fine"}))

    assert await outcome(agent) == "error"
    assert shell.ran == other.ran == []
