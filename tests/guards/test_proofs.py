"""assert_denied, assert_asked and `hookline check`: a call is sent over the roads to its tool."""

import random
import subprocess
import sys

import pytest
from tests.guards.attacks import ATTACKS
from tests.guards.attacks import passed as attacks_passed
from tests.guards.battery import BATTERY, passed

from hookline import Agent, Ask, Deny, Scope, Tool, ToolResult
from hookline.errors import UsageError
from hookline.hooks import allow_tools, approve, deny_commands, rate_limit
from hookline.providers import tools as provider_tools
from hookline.stores import SQLStore
from hookline.testing import ScriptedModel, assert_asked, assert_denied, call, probe
from hookline.testing._guard_roads import ROADS, ROADS_WITH_ANSWER

RAN = []


def bash(command: str = "") -> str:
    """Run a command."""
    RAN.append(command)
    return "ran"


BAD = call("bash", command="rm -rf /")


def agent_of(*hooks, **options):
    return Agent(ScriptedModel(), tools=[bash], hooks=[*hooks], **options)


def denies(ctx):
    return Deny("no") if ctx.call.arguments.get("command") == "rm -rf /" else None


def asks(ctx):
    return Ask("Really?") if ctx.call.arguments.get("command") == "rm -rf /" else None


@pytest.mark.parametrize("hook", [deny_commands("rm -rf"), allow_tools("other")])
async def test_a_ready_made_guard_denies_the_call_on_every_road(hook):
    await assert_denied(agent_of(hook), BAD)
    assert RAN == []


@pytest.mark.parametrize("options", [{"guard": True}, {"on_error": "deny"}], ids=str)
async def test_an_own_guard_denies_the_call_on_every_road(options):
    agent = agent_of()
    agent.add_hook("preToolCall", denies, **options)
    await assert_denied(agent, BAD)
    assert RAN == []


async def test_a_hook_that_is_no_guard_is_found_out():
    agent = agent_of()
    agent.add_hook("preToolCall", denies)
    with pytest.raises(AssertionError) as info:
        await assert_denied(agent, BAD)
    assert str(info.value).splitlines() == [
        "the call bash({'command': 'rm -rf /'}) must be denied, but was not:",
        "  changed by a later hook: ran",
        "  changed by a wrapper: ran",
        "  run again by a wrapper: ran",
        "  in a sub-agent of the agent: ran",
        "  three sub-agents below the agent: ran",
        "  changed by an approver: ran",
        "  changed by an answer of resume: ran",
        "  withdrawn while an approver thinks: ran",
        "  withdrawn between two runs: ran",
        "  withdrawn while the call waits: ran",
        "  withdrawn while the call waits in a store: ran",
        "  withdrawn while a sub-agent waits: ran",
        "  withdrawn while a durable chat waits: ran",
        "  withdrawn before a durable chat is replayed: ran",
    ]
    assert RAN == []


async def test_an_agent_without_guards_lets_the_call_pass_on_every_road():
    with pytest.raises(AssertionError) as info:
        await assert_denied(agent_of(), BAD)
    failures = str(info.value).splitlines()[1:]
    ran = {line.strip().removesuffix(": ran") for line in failures if line.endswith(": ran")}
    # On the other roads the call does not run, whether there is a guard or not.
    assert (ROADS.keys() | ROADS_WITH_ANSWER.keys()) - ran == {
        "not offered to the model",
        "beside a call that stops the chat",
        "request changed by the approver",
        "approved too late",
        "resumed too late",
        "resumed without the hooks of the chat",
        "resumed with a changed request",
        "resumed after a client's tool was removed",
        "a new chat instead of an answer",
    }
    assert RAN == []


@pytest.mark.parametrize("row", BATTERY)
async def test_a_proof_holds_for_each_kind_of_guard(row):
    """Whether it fails if a guard does not hold: scripts/mutate --guards."""
    assert await passed(row) == []


async def test_no_attack_passes_on_any_road():
    """A sample; scripts/guard-matrix --attacks sends all of them."""
    assert len({repr((each.name, each.arguments)) for each in ATTACKS}) == 200
    sample = random.Random(1).sample(ATTACKS, 10)
    assert await attacks_passed(sample) == []
    assert len(await attacks_passed(sample[:2], guard=False)) == 2


async def test_a_guard_that_is_not_inherited_leaves_out_the_sub_agents():
    agent = agent_of()
    agent.add_hook("preToolCall", denies, guard=True, inherit=False)
    result = await probe(agent, BAD)
    assert result.failures("denied") == []
    assert result.left_out == {
        "in a sub-agent of the agent": "the guards have inherit=False",
        "three sub-agents below the agent": "the guards have inherit=False",
        "withdrawn while a sub-agent waits": "the guards have inherit=False",
    }


async def test_a_tool_that_the_provider_runs_passes_unless_a_guard_names_it():
    search = provider_tools.web_search()
    agent = Agent(ScriptedModel(), tools=[search], hooks=[deny_commands("rm")])
    with pytest.raises(AssertionError, match="run by the provider: ran"):
        await assert_denied(agent, call("web_search"))
    await assert_denied(
        Agent(ScriptedModel(), tools=[search], hooks=[allow_tools("other")]), call("web_search")
    )


async def test_a_question_is_not_a_refusal():
    with pytest.raises(AssertionError, match="chat: asked"):
        await assert_denied(agent_of(approve("bash")), BAD)


async def test_a_question_is_asked_on_every_road():
    await assert_asked(agent_of(approve("bash")), BAD)
    agent = agent_of()
    agent.add_hook("preToolCall", asks, guard=True)
    await assert_asked(agent, BAD)
    assert RAN == []


async def test_a_refusal_is_not_a_question():
    with pytest.raises(AssertionError, match="chat: denied"):
        await assert_asked(agent_of(deny_commands("rm -rf")), BAD)
    with pytest.raises(AssertionError, match="chat: ran"):
        await assert_asked(agent_of(), BAD)


async def test_a_guard_reads_the_deps_of_the_proof():
    agent = agent_of()
    agent.add_hook(
        "preToolCall", lambda ctx: None if ctx.run.deps == "root" else Deny("no"), guard=True
    )
    await assert_denied(agent, BAD, deps="guest")
    with pytest.raises(AssertionError):
        await assert_denied(agent, BAD, deps="root")


async def test_a_proof_for_a_tool_that_is_not_there_is_an_error():
    with pytest.raises(UsageError, match="has no tool 'basch'; call one of its tools: 'bash'"):
        await assert_denied(agent_of(), call("basch"))


async def test_a_proof_opens_no_store_of_the_agent(tmp_path):
    file = tmp_path / "talks.db"
    async with Agent(ScriptedModel(), tools=[bash], hooks=[deny_commands("rm -rf")],
                     store=SQLStore(f"sqlite:///{file}")) as agent:  # fmt: skip
        await assert_denied(agent, BAD)
    assert not file.exists()


async def test_a_guard_that_counts_does_not_disturb_the_proof():
    await assert_denied(agent_of(rate_limit(100), deny_commands("rm -rf")), BAD)


async def test_a_tool_that_is_off_today_is_proved_as_if_it_were_on():
    off = Scope("off", tools=[Tool(bash, enabled=lambda: False)], enabled=lambda: False)
    with pytest.raises(AssertionError, match="chat: ran"):
        await assert_denied(Agent(ScriptedModel(), scopes=[off]), BAD)


async def test_an_answer_in_place_of_the_tool_is_not_a_refusal():
    agent = agent_of()
    agent.add_hook("preToolCall", lambda ctx: ToolResult("cached"), guard=True)
    with pytest.raises(AssertionError, match="chat: not run"):
        await assert_denied(agent, BAD)


async def test_a_guard_that_reads_an_argument_gets_one_on_every_road():
    agent = agent_of()

    @agent.hook("preToolCall", guard=True)
    def guard(ctx):
        return Deny("no") if ctx.call.arguments["command"].startswith("rm") else None

    await assert_denied(agent, BAD)


# ── on the command line ─────────────────────────────────────────────────────────────────────

APP = """
from hookline import Agent
from hookline.hooks import approve, deny_commands
from hookline.testing import ScriptedModel


def bash(command: str = "") -> str:
    raise AssertionError("a probe runs no tool")


def pay(amount: int) -> str:
    raise AssertionError("a probe runs no tool")


agent = Agent(ScriptedModel(), tools=[bash, pay], hooks=[deny_commands("rm -rf"), approve("pay")])
"""


def check(folder, *lines, app=APP):
    (folder / "app.py").write_text(app)
    (folder / "calls.jsonl").write_text("\n".join(lines))
    command = [sys.executable, "-m", "hookline", "check", "app:agent", "--probe", "calls.jsonl"]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=50)
    return done.returncode, [*done.stdout.splitlines(), *done.stderr.splitlines()]


DENIED = '{"name": "bash", "arguments": {"command": "rm -rf /"}}'
ASKED = '{"name": "pay", "arguments": {"amount": 7}, "expect": "asked"}'


def test_calls_that_every_guard_stops_are_reported_as_such(tmp_path):
    assert check(tmp_path, DENIED, "", ASKED) == (
        0,
        ['ok    bash {"command": "rm -rf /"}  denied', 'ok    pay {"amount": 7}  asked'],
    )


def test_a_road_that_is_left_out_is_listed_with_its_reason(tmp_path):
    app = APP.replace('deny_commands("rm -rf"), approve("pay")', "")
    app += """
from hookline import Deny

agent.add_hook("preToolCall", lambda ctx: Deny("no"), name="no", guard=True, inherit=False)
"""
    assert check(tmp_path, DENIED, app=app) == (
        0,
        [
            'ok    bash {"command": "rm -rf /"}  denied',
            "      left out: in a sub-agent of the agent (the guards have inherit=False)",
            "      left out: three sub-agents below the agent (the guards have inherit=False)",
            "      left out: withdrawn while a sub-agent waits (the guards have inherit=False)",
        ],
    )


def test_a_call_that_passes_and_a_guard_that_is_never_asked_exit_with_1(tmp_path):
    status, lines = check(tmp_path, '{"name": "bash", "arguments": {"command": "ls"}}')
    assert status == 1
    assert lines[0].startswith('FAIL  bash {"command": "ls"}  passes: chat, chat_stream,')
    assert lines[-1] == "FAIL  guard approve was never asked"


@pytest.mark.parametrize("line", ["{", "[]", '{"name": 1}', '{"name": "bash", "expect": "x"}'])
def test_a_line_that_is_not_a_call_is_reported_with_its_place(tmp_path, line):
    status, lines = check(tmp_path, DENIED, line)
    assert status == 2
    assert "calls.jsonl:2: " in " ".join(lines)
