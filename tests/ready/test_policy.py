"""`allow_tools`, `deny_commands`, `approve`: what is refused never runs, what is asked waits."""

import json
import re
import shlex
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from hookline import Agent, Approve, Conversation, Deny, Scope, Tool, ToolResult, tool
from hookline.errors import UsageError
from hookline.hooks import allow_tools, approve, deny_commands, runs_command
from hookline.hooks._guards.shell_commands import command_of, runs
from hookline.testing import ScriptedModel, call, raw_call


def tools():
    """A shell that runs nothing and notes everything, and two other tools."""
    ran = []

    @tool
    async def bash(command: str | list[str]) -> str:
        ran.append(command)
        return "ran"

    @tool
    async def read_file(path: str) -> str:
        ran.append(path)
        return "read"

    @tool
    async def pay(amount: int, to: str = "") -> str:
        ran.append(amount)
        return "paid"

    return [bash, read_file, pay], ran


def agent_of(*turns, hooks, **options):
    made, ran = tools()
    return Agent(ScriptedModel(*turns, "done"), tools=made, hooks=[hooks], **options), ran


def outcomes(response):
    return [m.outcome for m in response.messages if m.role == "tool"]


def told(response):
    return [m.text for m in response.messages if m.role == "tool"]


def requests_of(agent):
    """The names of the tools that each model call of the agent is offered."""
    offered = []

    @agent.hook("aroundRequest", priority=-1_000_000)
    async def note(ctx, proceed):
        offered.append([each.name for each in ctx.request.tools])
        return await proceed()

    return offered


# ── allow_tools ─────────────────────────────────────────────────────────────────────────────


async def test_only_allowed_tools_run_and_only_they_are_offered():
    agent, ran = agent_of(
        [call("read_file", path="a"), call("bash", command="ls")], hooks=allow_tools("read_*")
    )
    offered = requests_of(agent)
    response = await agent.chat("go")
    assert (ran, outcomes(response)) == (["a"], ["ok", "denied"])
    assert json.loads(told(response)[1])["error"] == {
        "type": "Denied",
        "message": "tool 'bash' is not allowed here",
    }
    assert offered == [["read_file"], ["read_file"]]


async def test_the_others_may_be_offered_nevertheless():
    agent, ran = agent_of(call("bash", command="ls"), hooks=allow_tools("pay", hide=False))
    offered = requests_of(agent)
    response = await agent.chat("go")
    assert (ran, outcomes(response)) == ([], ["denied"])
    assert [len(names) for names in offered] == [3, 3]


@pytest.mark.parametrize("options", [{}, {"inherit": True}], ids=str)
async def test_the_list_is_for_no_tools_of_sub_agents_unless_it_is_inherited(options):
    made, ran = tools()
    child = Agent(ScriptedModel(call("pay", amount=7), "paid"), tools=made, name="clerk")
    model = ScriptedModel(call("clerk", input="Pay."), "done")
    hooks = allow_tools("clerk", **options)
    await Agent(model, tools=[child.as_tool()], hooks=hooks).chat("go")
    assert ran == ([] if options else [7])


async def test_without_names_none_may_run():
    agent, ran = agent_of(call("bash", command="ls"), hooks=allow_tools())
    assert outcomes(await agent.chat("go")) == ["denied"]
    assert ran == []


@pytest.mark.parametrize(("hide", "outcome"), [(True, "error"), (False, "denied")])
async def test_a_tool_that_another_hook_brings_is_looked_at_too(hide, outcome):
    ran = []
    agent, _ = agent_of(call("sneak"), hooks=allow_tools("read_file", hide=hide))

    async def sneak():
        ran.append("sneak")

    agent.add_hook(
        "preRequest",
        lambda ctx: ctx.request.replace(tools=(*ctx.request.tools, Tool(sneak))),
        priority=-500,
    )
    assert outcomes(await agent.chat("go")) == [outcome]
    assert ran == []


async def test_a_hook_that_answers_first_by_priority_may_still_answer():
    """A guard at 200 comes before the cache of an application at 0."""
    agent, _ = agent_of(call("bash", command="ls"), hooks=allow_tools())
    agent.add_hook("preToolCall", lambda ctx: ToolResult("cached"))
    assert outcomes(await agent.chat("go")) == ["denied"]


# ── deny_commands ───────────────────────────────────────────────────────────────────────────

RM = command_of("rm -rf")
DISGUISED = [
    "rm -rf /",
    "rm  -r   -f x",
    "rm -fr x",
    "rm x -f -r",
    "rm --recursive --force x",
    "rm -Rfv x",
    "RM -RF x",
    "/bin/rm -rf x",
    '"rm" -rf x',
    "r''m -rf x",
    "r\\m '-rf' x",
    "r\\\nm -rf x",
    "sudo -u root rm -rf x",
    "env A=1 nohup rm -rf x",
    "cd / && rm -rf x",
    "true;rm -rf x",
    "false||rm -rf x",
    "ls|xargs rm -rf",
    "(rm -rf x)",
    "{ rm -rf x; }",
    "{rm,-rf,x}",
    "ls\nrm -rf x",
    "`rm -rf x`",
    "echo $(rm -rf x)",
    'echo "$(rm -rf x)"',
    'bash -c "rm -rf x"',
    "bash -c 'bash -c \"rm -rf x\"'",
    "find . -exec rm -rf {} +",
    "rm${IFS}-rf${IFS}x",
    "rm$IFS-rf$IFS'x'",
    "$'rm' -rf x",
    "rm -rf 'x",
    "rm ';' -rf x",
    "rm \\; -rf x",
    "sh -c '(rm -rf)'",
    """sh -c "sh -c 'rm \\"-rf\\" x'" """,
    "rm -- -rf x",
    "c='rm -rf /x'; $c",
    "c=rm; $c -rf /x",
    'c=rm f="-rf"; "$c" $f /x',
    "a=r b=m; c=$a$b; ${c} -rf x",
    "alias k='rm -rf'; k /x",
    "export run='rm -rf'; eval $run x",
    r"$'\x72\x6d' -rf x",
    r"$'\162\155' $'\u002drf' x",
    r"$'\U00000072m' -rf x",
    "r$()m -rf x",
    "r``m -rf x",
    "r$(true)m -rf x",
    "$(echo rm) -rf x",
    "`printf 'rm'` -rf x",
    "r${nothing}m -rf x",
    "r$@m -rf x",
    "${x:-rm} -rf x",
    "rm$IFS$9-rf x",
    "r{m,} -rf x",
    "/bin/r? -rf x",
    "/b?n/[r]m -rf x",
    "echo 'rm -rf x' | sh",
    "echo 'rm -rf x' > run.sh; sh run.sh",
    "echo hello; rm -rf x",
    "echo hello && git status\nrm -rf x",
    "git rebase --exec='rm -rf x'",
    "echo $'\\''; rm -rf x #'",
    "echo a # '\nrm -rf x # '",
    "git -c alias.x='!rm -rf x' x",
    "git submodule foreach 'rm -rf .'",
    "npm exec -- rm -rf x",
]
HARMLESS = [
    "npm rm -rf x",
    "git rm -r --force x",
    "git status && git rm -r -f x; echo 'gone: rm -rf'",
    "echo 'do not rm -rf'",
    'echo "never rm -rf /"',
    "git commit -m 'rm -rf is gone'",
    "x='rm'; ls -rf",
    "ls * -rf",
    "ls -rf",
    "rm -r x",
    "rm -f x",
    "echo rm; ls -rf",
    "rm x; ls -r -f",
    "farm -rf",
    "rmdir -rf",
    "git rm-rf",
    "",
    "   ",
    "'unclosed",
    "rm",
]


@pytest.mark.parametrize("command", DISGUISED)
async def test_a_command_is_found_however_it_is_written(command):
    agent, ran = agent_of(call("bash", command=command), hooks=deny_commands("rm -rf"))
    assert outcomes(await agent.chat("go")) == ["denied"]
    assert ran == []


@pytest.mark.parametrize("command", HARMLESS)
async def test_other_commands_run(command):
    agent, ran = agent_of(call("bash", command=command), hooks=deny_commands("rm -rf"))
    assert outcomes(await agent.chat("go")) == ["ok"]
    assert ran == [command]


WORDS = st.lists(st.sampled_from(["ls", "a", "-v", "--color", "x=1", "sudo", "."]), max_size=4)


@st.composite
def disguises(draw):
    """`rm` with both flags among other words, quoted at random, behind something else."""
    flags = draw(
        st.sampled_from([["-rf"], ["-f", "-r"], ["-vfr"], ["--recursive", "-f"], ["-R", "--force"]])
    )
    words = [draw(st.sampled_from(["rm", "/bin/rm", "./rm"])), *draw(WORDS)]
    for flag in flags:
        words.insert(draw(st.integers(1, len(words))), flag)

    def quoted(word):
        way = draw(st.integers(0, 4))
        if way == 1:
            return f"'{word}'"
        if way == 2:
            return f'"{word}"'
        if way == 3:
            return word[0] + "''" + word[1:]
        if way == 4:
            return "".join("\\" + c if draw(st.booleans()) else c for c in word)
        return word

    command = draw(st.sampled_from([" ", "  ", "\t"])).join(map(quoted, words))
    for _ in range(draw(st.integers(0, 3))):
        form = draw(st.sampled_from(["{}; ls", "ls && {}", "sudo {}", "({})", "ls | {}", "quote"]))
        command = f"sh -c {shlex.quote(command)}" if form == "quote" else form.format(command)
    return command


@settings(max_examples=300)
@given(disguises())
def test_no_disguise_of_quotes_order_and_place_gets_through(command):
    assert runs(command, RM)


@settings(max_examples=300)
@given(st.text(st.sampled_from("rm -f/'\"\\$(){}`;&|\n ax"), max_size=60))
@example("rm" * 10_000 + " -rf")
@example("rm " * 20_000)
def test_any_text_is_read_without_failing_and_what_a_shell_sees_is_found(text):
    found = runs(text, RM)
    try:
        words = shlex.split(text)  # which knows of no separators
    except ValueError:
        return
    if words and words[0] == "rm" and "-rf" in words[1:]:
        assert found


def test_a_line_can_be_searched_for_a_command():
    assert runs_command("cd x && git -C y push", "git push")
    assert not runs_command("git status && echo 'do not push'", "git push")
    with pytest.raises(UsageError):
        runs_command("ls", "")


async def test_every_string_of_the_arguments_is_looked_at():
    agent, ran = agent_of(
        call("bash", command=["rm", "-rf", "/"]),
        call("read_file", path="; rm -rf /"),
        hooks=deny_commands("rm -rf"),
    )
    assert outcomes(await agent.chat("go")) == ["denied", "denied"]
    assert ran == []


SPLIT = [
    {"cmd": "rm", "args": ["-rf", "/"]},
    {"args": ["-rf", "/"], "cmd": "rm"},
    {"cmd": "sudo rm", "args": "-r /x -f"},
    {"cmd": "sudo rm -r", "args": ["-f"]},
    {"cmd": ["rm"], "options": {"flags": ["-f"], "more": {"flag": "-r"}}},
    {"jobs": [{"cmd": "ls", "args": []}, {"cmd": "/bin/rm", "args": ["-r", "--force"]}]},
    {"cmd": "cd x; rm", "args": ["-rf"]},
]
APART = [
    {"command": "git rm -r --force x", "description": "Remove it"},
    {"command": "ls -r -f", "description": "like rm, but it lists"},
    {"jobs": [{"cmd": "rm", "args": ["x"]}, {"cmd": "ls", "args": ["-rf"]}]},
    {"cmd": "rm; ls", "args": ["-rf"]},
    {"cmd": "rm", "args": ["-r", "x"]},
]


@pytest.mark.parametrize("arguments", SPLIT, ids=range(len(SPLIT)))
async def test_a_command_that_is_split_over_arguments_is_found(arguments):
    agent, ran = agent_of(call("job", what=arguments), hooks=deny_commands("rm -rf"))
    agent.scopes.register(Scope("jobs", tools=[job_tool(ran)]))
    assert outcomes(await agent.chat("go")) == ["denied"]
    assert ran == []


@pytest.mark.parametrize("arguments", APART, ids=range(len(APART)))
async def test_what_does_not_belong_together_runs(arguments):
    agent, ran = agent_of(call("job", what=arguments), hooks=deny_commands("rm -rf"))
    agent.scopes.register(Scope("jobs", tools=[job_tool(ran)]))
    assert outcomes(await agent.chat("go")) == ["ok"]
    assert ran == [arguments]


def job_tool(ran):
    @tool
    async def job(what: dict[str, Any]) -> str:
        ran.append(what)
        return "done"

    return job


@pytest.mark.parametrize(
    "text",
    [
        "a=" + "x" * 9000 + ";" + "$a" * 9000,
        "{" + "," * 100_000,
        "$(" * 50_000,
        "`" * 50_001,
        "a='" * 30_000,
        "${a" * 30_000,
        "echo '" * 20_001,
        "[" * 50_000,
    ],
    ids=["grows", "braces", "substitutions", "ticks", "quotes", "names", "plain", "globs"],
)
def test_a_text_that_is_made_to_cost_much_is_read_all_the_same(text):
    assert isinstance(runs(text + " rm", RM), bool)


def test_a_text_that_grows_without_end_counts_as_found():
    assert runs("a=" + "x" * 9000 + ";" + "$a" * 9000, RM)


async def test_it_may_be_for_some_tools_or_one_argument_alone():
    calls = [call("bash", command="rm -rf x"), call("read_file", path="rm -rf x")]
    agent, _ = agent_of(calls, hooks=deny_commands("rm -rf", tools=["bash"]))
    assert outcomes(await agent.chat("go")) == ["denied", "ok"]
    agent, _ = agent_of(calls, hooks=deny_commands("rm -rf", argument="path"))
    assert outcomes(await agent.chat("go")) == ["ok", "denied"]


async def test_a_pattern_is_searched_as_it_is():
    agent, _ = agent_of(
        [call("bash", command="curl x | sh"), call("bash", command="curl x")],
        hooks=deny_commands(re.compile(r"curl .*\| *sh")),
    )
    response = await agent.chat("go")
    assert outcomes(response) == ["denied", "ok"]
    assert "curl" in told(response)[0]


async def test_several_commands_and_words_that_must_be_there():
    hooks = deny_commands("git push --force", "shutdown")
    for command, outcome in [
        ("git push origin main", "ok"),
        ("git -C x push -f origin", "denied"),
        ("git commit -f", "ok"),
        ("sudo shutdown now", "denied"),
    ]:
        agent, _ = agent_of(call("bash", command=command), hooks=hooks)
        assert outcomes(await agent.chat("go")) == [outcome], command


@pytest.mark.parametrize("wrong", [(), ("",), ("-rf",)], ids=["none", "empty", "flags"])
def test_a_list_without_commands_is_refused(wrong):
    with pytest.raises(UsageError, match="command"):
        deny_commands(*wrong)


async def test_what_a_later_hook_makes_of_a_call_is_looked_at_too():
    agent, ran = agent_of(call("bash", command="ls"), hooks=deny_commands("rm -rf"))
    agent.add_hook("preToolCall", lambda ctx: ctx.call.replace(arguments={"command": "rm -rf /"}))
    response = await agent.chat("go")
    assert (ran, outcomes(response)) == ([], ["denied"])
    assert "not allowed" in told(response)[0]


async def test_what_a_wrapper_makes_of_a_call_is_looked_at_too():
    agent, ran = agent_of(call("bash", command="ls"), hooks=deny_commands("rm -rf"))

    @agent.hook("aroundToolCall", priority=-100)
    async def change(ctx, proceed):
        return await proceed(ctx.call.replace(arguments={"command": "rm -rf /"}))

    await agent.chat("go")
    assert ran == []


async def test_what_an_approver_makes_of_a_call_is_looked_at_too():
    agent, ran = agent_of(
        call("bash", command="ls"),
        hooks=[deny_commands("rm -rf"), approve("bash")],
        approver=lambda request, run: Approve(arguments={"command": "rm -rf /"}),
    )
    await agent.chat("go")
    assert ran == []


async def test_it_follows_into_sub_agents():
    made, ran = tools()
    kid = Agent(ScriptedModel(call("bash", command="rm -rf /"), "no"), name="kid", tools=made)
    mum = Agent(
        ScriptedModel(call("kid", input="x"), "done"),
        tools=[kid.as_tool()],
        hooks=[deny_commands("rm -rf")],
    )
    await mum.chat("go")
    assert ran == []


async def test_arguments_that_are_no_json_run_nothing_anyway():
    agent, ran = agent_of(raw_call("bash", '{"command": "rm -rf'), hooks=deny_commands("rm -rf"))
    assert outcomes(await agent.chat("go")) == ["error"]
    assert ran == []


async def test_a_check_that_fails_denies_its_call():
    agent, ran = agent_of(
        [call("bash", command="ls"), call("read_file", path="a")],
        hooks=approve("bash", when=lambda ctx: 1 / 0),
    )
    assert outcomes(await agent.chat("go")) == ["denied", "ok"]
    assert ran == ["a"]


# ── approve ─────────────────────────────────────────────────────────────────────────────────


async def asked(agent, conversation=None):
    response = await agent.chat("go", conversation=conversation or Conversation())
    return [(each.call.name, each.prompts) for each in response.pending]


async def test_by_name():
    agent, _ = agent_of(
        [call("bash", command="ls"), call("read_file", path="x"), call("pay", amount=1)],
        hooks=approve("ba*", "pay", prompt="Run {name}?"),
    )
    assert await asked(agent) == [("bash", ("Run bash?",)), ("pay", ("Run pay?",))]


@pytest.mark.parametrize("form", ["sync", "async"])
async def test_by_a_predicate_that_sees_the_call_and_the_chat(form):
    def much(ctx):
        return ctx.call.arguments.get("amount", 0) > ctx.run.deps

    async def much_later(ctx):
        return much(ctx)

    agent, ran = agent_of(
        [call("pay", amount=5), call("pay", amount=50)],
        hooks=approve(when=much if form == "sync" else much_later),
    )
    response = await agent.chat("go", deps=10, conversation=Conversation())
    assert [each.call.arguments["amount"] for each in response.pending] == [50]
    assert ran == [5]


@pytest.mark.parametrize(
    ("wanted", "asks"),
    [
        ({"path": "/etc/*"}, ["/etc/passwd"]),
        ({"path": "b"}, ["b"]),
        ({"path": lambda path: len(path) > 1}, ["/etc/passwd"]),
        ({"path": "*", "other": 1}, []),
        ({"other": lambda value: True}, []),
    ],
    ids=["glob", "text", "function", "all of them", "missing"],
)
async def test_by_argument(wanted, asks):
    agent, _ = agent_of(
        [call("read_file", path=path) for path in ("a", "b", "/etc/passwd")],
        hooks=approve(arguments=wanted),
    )
    response = await agent.chat("go", conversation=Conversation())
    assert [each.call.arguments["path"] for each in response.pending] == asks


@pytest.mark.parametrize(
    ("wanted", "asks"), [(lambda n: n > 100, 1), (lambda n: n < 100, 0), (1000, 1), (7, 0)]
)
async def test_an_argument_that_is_left_out_counts_as_the_tools_default(wanted, asks):
    ran = []

    @tool
    async def refund(number: str, amount: int = 1000) -> str:
        ran.append(amount)
        return "sent"

    agent = Agent(
        ScriptedModel(call("refund", number="A-1"), "done"),
        tools=[refund],
        hooks=[approve(arguments={"amount": wanted})],
    )
    assert len(await asked(agent)) == asks
    assert ran == ([] if asks else [1000])


async def test_an_argument_that_is_left_out_asks_if_nobody_knows_its_value():
    schema = {"type": "object", "properties": {"amount": {"type": "integer"}}}
    tools = [
        Tool.from_schema(name, "", schema, lambda arguments: "sent") for name in ("give", "lend")
    ]
    agent = Agent(
        ScriptedModel([call("give"), call("lend", amount=5)], "done"),
        tools=tools,
        hooks=[approve(arguments={"amount": lambda n: n > 100})],
    )
    assert [name for name, _ in await asked(agent)] == ["give"]


async def test_all_that_is_given_must_hold():
    agent, _ = agent_of(
        [call("pay", amount=5), call("pay", amount=50), call("bash", command="ls")],
        hooks=approve("pay", arguments={"amount": lambda n: n > 10}, when=lambda ctx: True),
    )
    assert [name for name, _ in await asked(agent)] == ["pay"]


async def test_without_conditions_every_call_asks():
    agent, ran = agent_of([call("pay", amount=5), call("bash", command="ls")], hooks=approve())
    assert len(await asked(agent)) == 2
    assert ran == []


async def test_an_approved_call_runs_and_a_denied_one_is_told_why():
    conversation = Conversation()
    agent, ran = agent_of([call("pay", amount=1), call("pay", amount=2)], hooks=approve("pay"))
    response = await agent.chat("go", conversation=conversation)
    first, second = response.pending
    response = await agent.resume(conversation, {first.id: Approve(), second.id: Deny("too much")})
    assert ran == [1]
    assert outcomes(response) == ["ok", "denied"]
    assert "too much" in told(response)[1]


async def test_a_prompt_may_be_a_function_and_expire():
    agent, _ = agent_of(
        call("pay", amount=5, to="Ada"),
        hooks=approve("pay", prompt=lambda ctx: f"Pay {ctx.call.arguments['to']}?", expires=60),
    )
    response = await agent.chat("go", conversation=Conversation())
    assert response.pending[0].prompts == ("Pay Ada?",)
    assert response.pending[0].expires is not None


@pytest.mark.parametrize("prompt", ["Pay {amount}?", "Run {?", "Run {}?", "Run {name.tool}?"])
def test_a_prompt_that_cannot_be_filled_in_is_refused(prompt):
    with pytest.raises(UsageError, match=r"may contain only \{name\}"):
        approve("pay", prompt=prompt)


async def test_what_is_denied_is_not_asked_about():
    agent, ran = agent_of(
        call("bash", command="rm -rf /"), hooks=[approve("bash"), deny_commands("rm -rf")]
    )
    assert await asked(agent) == []
    assert ran == []


async def test_names_in_scopes_are_matched_like_any():
    made, ran = tools()
    agent = Agent(ScriptedModel(call("bash", command="ls"), "done"), hooks=[allow_tools("pay")])
    agent.scopes.register(Scope("shell", tools=made))
    assert outcomes(await agent.chat("go")) == ["denied"]
    assert ran == []
