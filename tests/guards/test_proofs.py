"""assert_denied, assert_asked and `hookline check`: a call is sent over the paths to its tool."""

import random
import re
import subprocess
import sys
from pathlib import Path

import pytest
from tests.guards.attacks import ATTACKS
from tests.guards.attacks import passed as attacks_passed
from tests.guards.battery import BATTERY, passed

from hookline import Agent, Ask, Deny, Scope, Tool, ToolResult
from hookline.cli._probe.second_process import SecondProcess
from hookline.errors import UsageError
from hookline.hooks import allow_tools, approve, deny_commands, rate_limit, redact
from hookline.providers import tools as provider_tools
from hookline.stores import SQLStore
from hookline.testing import (
    LeftOutError,
    ScriptedModel,
    assert_asked,
    assert_denied,
    assert_redacted,
    call,
    probe,
)
from hookline.testing._guards.path_table import PATHS
from hookline.testing._guards.sub_agent_tools import SUB_AGENT_PATHS
from hookline.testing.doors import DOOR_PATHS
from hookline.testing.doors._mcp_paths import MCP_PATHS

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
async def test_a_ready_made_guard_denies_the_call_on_every_path(hook):
    await assert_denied(agent_of(hook), BAD)
    assert RAN == []


async def test_a_guard_is_proved_on_the_paths_through_the_doors_too():
    await assert_denied(agent_of(deny_commands("rm -rf")), BAD, paths=DOOR_PATHS)
    await assert_asked(agent_of(approve("bash")), BAD, paths=DOOR_PATHS)
    with pytest.raises(AssertionError, match="but was not") as caught:
        await assert_denied(agent_of(), BAD, paths=DOOR_PATHS)
    lines = str(caught.value).splitlines()
    assert {"  web (native): ran", "  web (AI SDK): ran", "  web (AG-UI): ran", "  MCP: ran"} <= {
        *lines
    }


@pytest.mark.parametrize("options", [{"guard": True}, {"on_error": "deny"}], ids=str)
async def test_an_own_guard_denies_the_call_on_every_path(options):
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
        "the hook 'denies' is not a guard; register it with on_error=\"deny\"",
    ]
    assert RAN == []


async def test_an_agent_without_guards_lets_the_call_pass_on_every_path():
    with pytest.raises(AssertionError) as info:
        await assert_denied(agent_of(), BAD)
    failures = str(info.value).splitlines()[1:]
    ran = {line.strip().removesuffix(": ran") for line in failures if line.endswith(": ran")}
    # On the other paths the call does not run, whether there is a guard or not.
    assert PATHS.keys() - ran == {
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
    """Whether it fails if a guard does not hold: scripts/dev/mutate --guards."""
    assert await passed(row) == []


@pytest.mark.slow
async def test_no_attack_passes_on_any_path():
    """A sample; scripts/dev/guard-matrix --attacks sends all of them."""
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


@pytest.mark.parametrize("arguments", [{"comand": "rm"}, {"command": 7}, {}], ids=str)
async def test_a_call_that_its_tool_would_refuse_proves_nothing(arguments):
    """A guard that reads `arguments["command"]` would raise, and so refuse it."""

    def delete(command: str) -> str:
        raise AssertionError("a probe runs no tool")

    agent = Agent(ScriptedModel(), tools=[delete])
    agent.add_hook("preToolCall", lambda ctx: Deny(ctx.call.arguments["command"]), on_error="deny")
    with pytest.raises(UsageError, match=r"proves nothing, since its tool refuses the arguments"):
        await assert_denied(agent, call("delete", arguments))


async def test_a_guard_that_raises_is_noted():
    agent = agent_of()
    agent.add_hook("preToolCall", lambda ctx: 1 / 0, name="broken", on_error="deny")
    result = await probe(agent, BAD)
    assert result.failures("denied") == []
    assert result.notes == [
        f"the hook 'broken' raised an exception on {len(result.passages)} paths: chat, …"
    ]


async def test_a_question_is_not_a_refusal():
    with pytest.raises(AssertionError, match="chat: asked"):
        await assert_denied(agent_of(approve("bash")), BAD)


async def test_a_question_is_asked_on_every_path():
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
    with pytest.raises(UsageError, match=r"has no tool 'basch', nor have .*: 'bash'"):
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


async def test_a_guard_that_reads_an_argument_gets_one_on_every_path():
    agent = agent_of()

    @agent.hook("preToolCall", guard=True)
    def guard(ctx):
        return Deny("no") if ctx.call.arguments["command"].startswith("rm") else None

    await assert_denied(agent, BAD)


async def test_a_path_of_your_own_is_part_of_the_proof():
    async def in_a_job(path):
        await path.guarded().chat("go", deps=path.deps)

    async def never(path):
        raise LeftOutError("there is no queue")

    paths = {"in a job": in_a_job, "in a queue": never}
    agent = agent_of(deny_commands("rm -rf"))
    result = await probe(agent, BAD, paths=paths)
    assert result.failures("denied") == []
    assert result.passages["in a job"] == "denied"
    assert result.left_out == {"in a queue": "there is no queue"}
    assert (await probe(agent_of(), BAD, paths=paths)).passages["in a job"] == "ran"
    assert RAN == []


# ── a supervisor ────────────────────────────────────────────────────────────────────────────


def boss_of(*hooks, leads="agent", own=()):
    clerk = Agent(ScriptedModel(), name="clerk", tools=[bash], hooks=[*own])
    desk = Agent(ScriptedModel(), name="desk", tools=[clerk.as_tool()])
    boss = Agent(ScriptedModel(), name="boss", hooks=[*hooks])
    if leads == "agent":
        boss.scopes.register(Scope("desk", tools=[desk.as_tool()]))
    else:
        boss.handoffs(clerk)
    return boss


@pytest.mark.parametrize("leads", ["agent", "handoff"])
async def test_a_guard_of_a_supervisor_is_proved_for_the_tools_of_its_sub_agents(leads):
    await assert_denied(boss_of(deny_commands("rm -rf"), leads=leads), BAD)
    await assert_denied(boss_of(own=[deny_commands("rm -rf")], leads=leads), BAD)
    await assert_asked(boss_of(approve("bash"), leads=leads), BAD)
    await assert_redacted(boss_of(redact(values=["rm"]), leads=leads), BAD, "rm")
    with pytest.raises(AssertionError) as info:
        await assert_denied(boss_of(leads=leads), BAD)
    assert [line.split(":")[0].strip() for line in str(info.value).splitlines()[1:]] == [
        *SUB_AGENT_PATHS
    ]
    assert RAN == []


async def test_a_guard_of_a_supervisor_that_is_not_inherited_is_found_out():
    boss = boss_of()
    boss.add_hook("preToolCall", denies, guard=True, inherit=False)
    with pytest.raises(AssertionError, match="  chat: ran"):
        await assert_denied(boss, BAD)


async def test_a_question_about_the_sub_agent_is_no_refusal_of_its_tool():
    with pytest.raises(AssertionError, match="  chat: ran"):
        await assert_denied(boss_of(approve("desk")), BAD)


# ── redaction ───────────────────────────────────────────────────────────────────────────────

CARD = "4111111111111111"


async def send_mail(to: str, text: str) -> str:
    """Send a mail."""
    raise AssertionError("a probe runs no tool")


MAIL = call("send_mail", to="bob", text=f"The card is {CARD}.")


def mailer(*hooks):
    return Agent(ScriptedModel(), tools=[send_mail], hooks=[*hooks])


@pytest.mark.parametrize("more", [(), (approve("send_mail"),)], ids=["alone", "approve"])
async def test_no_path_brings_a_redacted_secret_to_its_tool(more):
    await assert_redacted(mailer(redact(r"\d{13,16}"), *more), MAIL, CARD, paths=DOOR_PATHS)


async def test_a_secret_that_nobody_redacts_is_found_on_every_path_that_runs_the_call():
    with pytest.raises(AssertionError, match="must be redacted, but was not") as info:
        await assert_redacted(mailer(), MAIL, CARD, paths=DOOR_PATHS)
    lines = {*str(info.value).splitlines()}
    paths = ["chat", "chat_stream", "in a sub-agent of the agent", "durable chat", "web (native)"]
    assert {f"  {path}: ran" for path in [*paths, "MCP", "changed by an approver"]} <= lines


async def test_a_secret_that_is_redacted_only_in_part_of_the_arguments_is_found():
    agent = mailer()

    @agent.hook("preToolCall", guard=True)
    def only_the_receiver(ctx):
        return ctx.call.replace(arguments={**ctx.call.arguments, "to": "[redacted]"})

    with pytest.raises(AssertionError, match="  chat: ran"):
        await assert_redacted(agent, MAIL, CARD)


async def test_a_refusal_is_not_a_redaction():
    with pytest.raises(AssertionError, match="  chat: denied"):
        await assert_redacted(mailer(allow_tools("other")), MAIL, CARD)


async def test_a_failure_shows_the_arguments_with_which_the_tool_ran():
    with pytest.raises(AssertionError) as info:
        await assert_denied(mailer(redact(r"\d{13,16}")), MAIL)
    lines = str(info.value).splitlines()
    arguments = {"to": "bob", "text": "The card is [redacted]."}
    assert lines[1] == f"  chat: changed, ran with {arguments!r}"
    assert lines[-1] == "if a hook shall change the call, use assert_redacted"


async def test_a_secret_that_is_in_no_argument_proves_nothing():
    with pytest.raises(UsageError, match="secret='4242' is in no argument of send_mail"):
        await assert_redacted(mailer(), MAIL, "4242")


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


ANSWERED = 18  # paths on which a person or a hook allows the call
EVERY = len(PATHS) + len(DOOR_PATHS) + len(SecondProcess("", None).paths)


def check(folder, *lines, app=APP, options=()):
    (folder / "app.py").write_text(app)
    (folder / "calls.jsonl").write_text("\n".join(lines))
    command = [sys.executable, "-m", "hookline", "check", "app:agent", "--probe", "calls.jsonl"]
    done = subprocess.run(
        [*command, *options], cwd=folder, capture_output=True, text=True, timeout=50
    )
    return done.returncode, [*done.stdout.splitlines(), *done.stderr.splitlines()]


DENIED = '{"name": "bash", "arguments": {"command": "rm -rf /"}}'
ASKED = '{"name": "pay", "arguments": {"amount": 7}, "expect": "asked"}'


def test_calls_that_every_guard_stops_are_reported_as_such(tmp_path):
    assert check(tmp_path, DENIED, "", ASKED) == (
        0,
        [
            f'ok    bash {{"command": "rm -rf /"}}  denied on {EVERY} paths',
            f'ok    pay {{"amount": 7}}  asked on {EVERY - ANSWERED} paths',
        ],
    )


@pytest.mark.slow
def test_the_command_of_the_docs_proves_their_guard_and_names_one_that_is_none(tmp_path):
    page = (Path(__file__).parents[2] / "docs" / "guards.md").read_text()
    app, line = (
        re.findall(rf"^```{kind}\n(.*?)^```$", page, re.DOTALL | re.MULTILINE)[0]
        for kind in ("python", "json")
    )
    status, lines = check(tmp_path, line, app=app)
    assert (status, lines) == (
        0,
        [f'ok    bash {{"command": "rm -rf /"}}  denied on {EVERY} paths'],
    )
    no_guard = app.replace(', on_error="deny"', "").partition("asyncio.run(")[0]
    status, lines = check(tmp_path, line, app=no_guard)
    assert status == 1
    assert lines[-1] == (
        "      the hook 'no_removal' is not a guard; register it with on_error=\"deny\""
    )


MAILER = """
from hookline import Agent
from hookline.hooks import redact
from hookline.testing import ScriptedModel


def send_mail(text: str) -> str:
    raise AssertionError("a probe runs no tool")


agent = Agent(ScriptedModel(), tools=[send_mail], hooks=[redact(values=["4111"])])
"""
SECRET = '{"name": "send_mail", "arguments": {"text": "4111"}, "expect": "redacted"%s}'


@pytest.mark.slow
def test_a_redacted_secret_is_proved_on_the_command_line(tmp_path):
    line = SECRET % ', "secret": "4111"'
    assert check(tmp_path, line, app=MAILER) == (
        0,
        [f'ok    send_mail {{"text": "4111"}}  redacted on {EVERY} paths'],
    )
    status, lines = check(tmp_path, line, app=MAILER.replace('["4111"]', '["4242"]'))
    assert status == 1
    doors = ["chat", "MCP", "web (AG-UI)", "changed by an answer (second process)"]
    assert {f"      ran: {path}" for path in doors} <= {*lines}
    status, lines = check(tmp_path, SECRET.replace("redacted", "denied") % "", app=MAILER)
    assert (status, lines[1]) == (1, '      changed: chat, ran with {"text": "[redacted]"}')


def test_a_probe_names_the_tool_of_a_sub_agent_on_the_command_line(tmp_path):
    boss = APP.replace("agent = Agent", "clerk = Agent").replace(
        'hooks=[deny_commands("rm -rf"), approve("pay")]', 'name="clerk"'
    )
    boss += """
agent = Agent(ScriptedModel(), tools=[clerk.as_tool()], hooks=[deny_commands("rm -rf")])
"""
    assert check(tmp_path, DENIED, app=boss) == (
        0,
        [f'ok    bash {{"command": "rm -rf /"}}  denied on {len(SUB_AGENT_PATHS)} paths'],
    )
    status, lines = check(tmp_path, ASKED, app=boss)
    assert (status, lines[1]) == (1, "      ran: chat")


def test_a_redaction_without_its_secret_is_an_error(tmp_path):
    status, lines = check(tmp_path, SECRET % "", app=MAILER)
    assert status == 2
    assert '"expect": "redacted" and "secret" belong together; add "secret"' in lines[-1]


@pytest.mark.slow
def test_a_path_that_is_left_out_is_listed_with_its_reason(tmp_path):
    app = APP.replace('deny_commands("rm -rf"), approve("pay")', "")
    app += """
from hookline import Deny

agent.add_hook("preToolCall", lambda ctx: Deny("no"), name="no", guard=True, inherit=False)
"""
    assert check(tmp_path, DENIED, app=app) == (
        0,
        [
            f'ok    bash {{"command": "rm -rf /"}}  denied on {EVERY - 3} paths',
            "      left out: in a sub-agent of the agent (the guards have inherit=False)",
            "      left out: three sub-agents below the agent (the guards have inherit=False)",
            "      left out: withdrawn while a sub-agent waits (the guards have inherit=False)",
        ],
    )


def test_a_call_that_passes_and_a_guard_that_is_never_asked_exit_with_1(tmp_path):
    status, lines = check(tmp_path, '{"name": "bash", "arguments": {"command": "ls"}}')
    assert status == 1
    assert lines[0].startswith('FAIL  bash {"command": "ls"}  not denied on ')
    assert lines[1:3] == ["      ran: chat", "      ran: chat_stream"]
    assert lines[-1] == "FAIL  guard approve was never asked"
    doors = [*DOOR_PATHS, *SecondProcess("", None).paths]
    # The call runs on each path through a door; on this one, no answer of the front end counts.
    assert [path for path in doors if f"      ran: {path}" not in lines] == [
        "approved as another call (web, AI SDK)"
    ]


def test_a_path_whose_extra_is_not_installed_is_left_out_with_the_command_that_installs_it(
    tmp_path,
):
    for name in ("mcp", "sqlalchemy"):
        text = f"raise ModuleNotFoundError('not here', name={name!r})"
        (tmp_path / f"{name}.py").write_text(text)
    status, lines = check(tmp_path, DENIED, ASKED)
    assert status == 0
    left_out = [line.split(" (")[-1] for line in lines if "left out" in line]
    assert set(left_out) == {
        'hookline.mcp needs mcp: pip install "hookline[mcp]")',
        "store='sqlite:///probe.db' needs sqlalchemy: pip install \"hookline[sqlite]\")",
    }
    assert len(left_out) == 2 * (len(MCP_PATHS) + len(SecondProcess("", None).paths))


@pytest.mark.slow
@pytest.mark.parametrize("name", ["guest", "root"])
def test_guards_that_read_deps_get_those_of_the_command_line_on_each_path(tmp_path, name):
    app = APP.replace('deny_commands("rm -rf"), approve("pay")', "")
    app += f"""
from hookline import Deny

user = {{"name": {name!r}}}


@agent.hook("preToolCall", on_error="deny", tools=["bash"])
def guests(ctx):
    return Deny("not you") if ctx.run.deps["name"] == "guest" else None
"""
    status, lines = check(tmp_path, DENIED, app=app, options=["--deps", "app:user"])
    assert status == (0 if name == "guest" else 1)
    paths = ["web (AG-UI)", "withdrawn while the call waits (second process)"]
    assert [f"      ran: {path}" in lines for path in paths] == [name == "root"] * 2
    # The MCP server has no deps, so the guard raises, which refuses the call.
    assert lines[-1] == "      the hook 'guests' raised an exception on 4 paths: MCP, …"


NEVER = """
from hookline import MemoryStore


class Never(MemoryStore):
    def stream(self, *arguments, **options):
        raise AssertionError("a probe calls no model and no store")

    open = load = acquire = append = stream


"""


@pytest.mark.slow
def test_no_tool_model_or_store_of_the_application_is_called(tmp_path):
    """In either process; the tools raise an exception too."""
    model, store = "ScriptedModel()", "hooks=["
    app = APP.replace(model, "Never()").replace(store, f"store=Never(), {store}")
    app = app.replace("def bash(", f"{NEVER}def bash(")
    status, lines = check(tmp_path, DENIED, ASKED, app=app)
    assert (status, [line[:5] for line in lines]) == (0, ["ok   ", "ok   "])


@pytest.mark.slow
def test_a_module_that_works_in_one_process_only_is_an_error(tmp_path):
    app = "from pathlib import Path\nPath('lock').open('x')\n" + APP
    status, lines = check(tmp_path, DENIED, ASKED, app=app)
    assert status == 2
    assert "module 'app' raised FileExistsError during its import" in " ".join(lines)
    assert "app:agent ended a second process with status 2; see its error above" in lines[-1]


@pytest.mark.parametrize("line", ["{", "[]", '{"name": 1}', '{"name": "bash", "expect": "x"}'])
def test_a_line_that_is_not_a_call_is_reported_with_its_place(tmp_path, line):
    status, lines = check(tmp_path, DENIED, line)
    assert status == 2
    assert "calls.jsonl:2: " in " ".join(lines)
