"""The workspace as an agent has it: guard, approvals, snapshots, plans, skills, and whole chats."""

import asyncio
import os
import re
import subprocess
import sys
from subprocess import DEVNULL

import pytest

from hookline import Agent, Approve, Conversation, Deny, MemoryStore, ToolCall, define_hook
from hookline.errors import UsageError
from hookline.testing import ScriptedModel, Turn, spans
from hookline.workspace import Bwrap, CommandLimits, Rules, Workspace


class Approver:
    """Answers as it is told, and remembers the requests."""

    def __init__(self, *answers):
        self.answers = list(answers)
        self.requests = []

    def __call__(self, request, run):
        self.requests.append(request)
        answer = self.answers.pop(0) if self.answers else Approve()
        return answer(request) if callable(answer) else answer


def tools_of(workspace):
    return {tool.name: tool for scope in workspace.scopes for tool in scope.tools}


# ── modes ───────────────────────────────────────────────────────────────────────────────────


async def offered(workspace):
    model = ScriptedModel("done")
    await Agent(model, scopes=workspace.scopes, hooks=workspace.hooks).chat("go")
    return [tool.name for tool in model.last_request.tools], model.last_request.system


async def test_the_model_sees_the_tools_and_where_it_is(workspace):
    names, system = await offered(workspace())
    assert names == ["read", "list", "glob", "grep", "write", "edit", "bash", "plan"]
    assert "/workspace" in system


async def test_in_the_mode_read_nothing_is_changed(workspace, hands, folder):
    names, _ = await offered(workspace(mode="read"))
    assert names == ["read", "list", "glob", "grep", "plan"]
    hands = hands(mode="read")
    for tool, arguments in [("write", {"path": "a", "text": ""}), ("bash", {"command": "touch a"})]:
        assert "DisabledToolError" in await hands.error(tool, **arguments)
    assert list(folder.iterdir()) == []


async def test_in_the_mode_ask_changes_and_commands_wait_for_an_approval(hands, folder, sandbox):
    approver = Approver(Approve(), Deny("not this"), Approve())
    hands = hands(mode="ask", approver=approver)
    await hands.text("write", path="a.txt", text="x\n")
    assert "not this" in await hands.error("bash", command="touch b")
    await hands.text("bash", command="touch c")
    assert sorted(path.name for path in folder.iterdir()) == ["a.txt", "c"]
    diff, command, _ = [request.details[0] for request in approver.requests]
    assert diff == {
        "kind": "diff",
        "path": "a.txt",
        "text": "--- /dev/null\n+++ a.txt\n@@ -0,0 +1 @@\n+x\n",
    }
    assert command == {"kind": "command", "text": "touch b", "cwd": ".", "confined": True}


async def test_in_the_mode_edits_nothing_is_asked_in_a_sandbox(hands, folder, sandbox):
    hands = hands(mode="edits")
    await hands.text("write", path="a.txt", text="x")
    await hands.text("bash", command="mv a.txt b.txt")
    assert (folder / "b.txt").exists()


async def test_without_a_sandbox_each_command_is_asked_about(hands, folder):
    approver = Approver()
    hands = hands(sandbox="none", unsafe=True, mode="edits", approver=approver)
    text = await hands.text("bash", command="pwd; sleep 100 & echo end")
    assert str(folder) in text
    assert "WITHOUT A SANDBOX" in approver.requests[0].prompts[0]
    text = await hands.text("bash", command="sleep 60", timeout=0.5)
    assert "[stopped after 0.5 s]" in text


async def test_rules_go_before_the_mode(hands, folder, sandbox):
    rules = Rules(
        allow=["bash(ls*)", "edit(docs/**)"], ask=["edit(*.md)"], deny=["bash(git push*)"]
    )
    approver = Approver()
    hands = hands(mode="ask", rules=rules, approver=approver)
    await hands.text("bash", command="ls -a")
    await hands.text("write", path="docs/a.txt", text="")
    assert approver.requests == []
    await hands.text("write", path="docs/a.md", text="")
    assert len(approver.requests) == 1
    assert "Denied" in await hands.error("bash", command="cd docs && git push")
    assert len(approver.requests) == 1


# ── the guard ───────────────────────────────────────────────────────────────────────────────


async def test_no_chat_leaves_the_guard_out(workspace, folder):
    workspace = workspace(mode="ask")
    write = ToolCall(id="1", name="write", arguments={"path": "a.txt", "text": ""})
    agent = Agent(ScriptedModel(write, "done"), scopes=workspace.scopes, hooks=workspace.hooks)
    response = await agent.chat("go", only_hooks=[])
    assert "needs an approval" in response.tool_results[0].text
    assert list(folder.iterdir()) == []


async def test_a_guard_that_fails_denies_the_call(hands, folder, monkeypatch):
    def fail(self, tool, names):
        raise RuntimeError("a fault")

    monkeypatch.setattr(Rules, "for_paths", fail)
    message = await hands()("list")
    assert message.outcome == "denied"


@pytest.mark.parametrize("change", ["approver", "wrapper", "hook"])
@pytest.mark.parametrize(("path", "reason"), [(".env", "Denied"), (".git/config", "Protected")])
async def test_what_is_changed_after_the_guard_is_looked_at_again(
    hands, folder, change, path, reason
):
    """The guard has seen a harmless path; another one is put in its place."""
    (folder / ".git").mkdir()
    other = {"path": path, "text": "evil"}
    hands = hands(
        mode="edits" if change == "wrapper" else "ask",
        rules=Rules(deny=["edit(.env)"]),
        approver=Approver(Approve(arguments=other) if change == "approver" else Approve()),
    )

    @define_hook("aroundToolCall", priority=-50)
    async def wrap(ctx, proceed):
        return await proceed(ctx.call.replace(arguments=other))

    @define_hook("preToolCall", priority=-50)
    def swap(ctx):
        return None if ctx.again else ctx.call.replace(arguments=other)

    extra = {"approver": [], "wrapper": [wrap], "hook": [swap]}[change]
    hands.workspace.hooks = (*hands.workspace.hooks, *extra)
    assert reason in await hands.error("write", path="a.txt", text="x")
    assert not (folder / path).exists()


async def test_a_hook_of_three_lines_refuses_a_path_for_all_tools_and_for_bash(
    hands, folder, sandbox
):
    (folder / "secret").mkdir()
    (folder / "secret" / "a.txt").write_text("SECRET")

    @define_hook("preToolCall", guard=True)
    def no_secrets(ctx):
        return Deny("no") if "secret" in str(ctx.call.arguments) else None

    hands = hands()
    hands.workspace.hooks = (*hands.workspace.hooks, no_secrets)
    for tool, arguments in {
        "read": {"path": "secret/a.txt"},
        "list": {"path": "secret"},
        "glob": {"pattern": "secret/*"},
        "grep": {"pattern": "x", "path": "secret"},
        "write": {"path": "secret/b.txt", "text": ""},
        "edit": {"path": "secret/a.txt", "edits": [{"old": "S", "new": ""}]},
        "bash": {"command": "cat secret/a.txt"},
    }.items():
        assert "Denied" in await hands.error(tool, **arguments), tool


async def test_every_act_of_a_tool_passes_the_hooks_and_is_traced(hands, folder, skills, sandbox):
    seen = []

    @define_hook("preToolCall")
    def note(ctx):
        seen.append(ctx.call.name)

    hands = hands(skills=[skills()])
    hands.workspace.hooks = (*hands.workspace.hooks, note)
    (folder / "a.txt").write_text("x")
    calls = {
        "read": {"path": "a.txt"},
        "list": {},
        "glob": {"pattern": "*"},
        "grep": {"pattern": "x"},
        "write": {"path": "b.txt", "text": "x"},
        "edit": {"path": "a.txt", "edits": [{"old": "x", "new": "y"}]},
        "bash": {"command": "true"},
        "plan": {"items": [{"text": "x"}]},
        "skill": {"name": "pdf"},
    }
    assert calls.keys() == tools_of(hands.workspace).keys()
    with spans() as traced:
        for tool, arguments in calls.items():
            await hands.text(tool, **arguments)
    assert seen == list(calls)
    names = [span.name for span in traced.all if span.name.startswith("execute_tool")]
    assert names == [f"execute_tool {name}" for name in calls]


async def test_a_sub_agent_has_the_guard(workspace, folder):
    workspace = workspace(mode="ask")
    child = Agent(
        ScriptedModel(
            ToolCall(id="1", name="write", arguments={"path": "a.txt", "text": ""}), "done"
        ),
        name="child",
        tools=[tools_of(workspace)["write"]],
    )
    parent = Agent(
        ScriptedModel(ToolCall(id="1", name="child", arguments={"input": "go"}), "done"),
        plugins=[workspace],
        tools=[child.as_tool()],
    )
    seen = []
    child.add_hook("onMessage", lambda ctx: seen.append(ctx.message))
    await parent.chat("go")
    texts = [message.text for message in seen if message.role == "tool"]
    assert len(texts) == 1
    assert "needs an approval" in texts[0]
    assert list(folder.iterdir()) == []


# ── approvals ───────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("tool", ["write", "edit"])
async def test_an_approval_is_for_the_version_that_was_shown(hands, folder, tool):
    (folder / "a.txt").write_text("one\n")

    def meanwhile(request):
        (folder / "a.txt").write_text("one\ntwo\n")
        return Approve()

    hands = hands(mode="ask", approver=Approver(meanwhile))
    await hands.text("read", path="a.txt")
    edits = [{"old": "one", "new": "1"}]
    arguments = {"write": {"text": "new"}, "edit": {"edits": edits}}[tool]
    assert "ChangedError" in await hands.error(tool, path="a.txt", **arguments)
    assert (folder / "a.txt").read_text() == "one\ntwo\n"


async def test_an_approval_may_come_days_later_and_is_still_for_that_version(workspace, folder):
    (folder / "a.txt").write_text("one\n")
    store, workspace = MemoryStore(), workspace(mode="ask")

    def agent(*turns):
        return Agent(
            ScriptedModel(*turns), scopes=workspace.scopes, hooks=workspace.hooks, store=store
        )

    read = ToolCall(id="1", name="read", arguments={"path": "a.txt"})
    for number, (text, outcome) in enumerate([(None, "ok"), ("other\n", "error")]):
        (folder / "a.txt").write_text("one\n")
        write = ToolCall(id="2", name="write", arguments={"path": "a.txt", "text": f"new {number}"})
        pending = await agent(read, write).chat("go", conversation=f"c{number}")
        assert pending.stop_reason == "approval"
        if text is not None:
            (folder / "a.txt").write_text(text)
        answers = {pending.pending[0].id: Approve()}
        response = await agent("done").resume(f"c{number}", answers)
        assert response.tool_results[0].outcome == outcome
        assert (folder / "a.txt").read_text() == (text or f"new {number}")


async def test_what_cannot_be_done_is_not_asked(hands, folder):
    (folder / "a.txt").write_text("x")
    approver = Approver()
    hands = hands(mode="ask", approver=approver)
    assert "read it before" in await hands.error("write", path="a.txt", text="y")
    await hands.text("read", path="a.txt")
    edits = [{"old": "z", "new": ""}]
    assert "does not occur" in await hands.error("edit", path="a.txt", edits=edits)
    assert "protected" in await hands.error("write", path=".git/x", text="y")
    assert approver.requests == []


async def test_a_command_that_cannot_run_is_not_asked_about(hands, monkeypatch):
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    approver = Approver()
    text = await hands(mode="ask", approver=approver).error("bash", command="id")
    assert "commands cannot run" in text
    assert "ordinary user" in text
    assert approver.requests == []


# ── commands ────────────────────────────────────────────────────────────────────────────────


async def test_a_command_says_what_it_printed_and_how_it_ended(hands, sandbox):
    hands = hands()
    assert await hands.text("bash", command="echo a; echo b >&2; exit 3") == "a\nb\n[exit 3]"
    assert await hands.text("bash", command="true") == "[exit 0]"
    text = await hands.text(
        "bash", command="printf '\\033[31m red'; echo begun; sleep 60", timeout=1
    )
    assert text == "\\x1b[31m redbegun\n[stopped after 1 s]"


async def test_a_long_output_has_a_handle(hands, sandbox):
    hands = hands()
    text = await hands.text("bash", command="seq 20000")
    assert len(text) < 31_000
    assert text.startswith("1\n2\n")
    assert text.endswith("20000\n[exit 0]")
    handle = re.search(r"output:[0-9a-f]{16}", text)[0]
    assert "10000\t10000" in await hands.text("read", path=handle, offset=10_000, limit=1)


async def test_a_protected_name_that_a_command_makes_is_held_back(hands, folder, sandbox):
    hands = hands()
    text = await hands.text(
        "bash", command="mkdir -p .vscode n/.git/hooks; echo id > .envrc; echo x > .git/y; ls -A"
    )
    for name in (".vscode", "n/.git", ".envrc"):
        assert f"[{name} is a protected name" in text
        assert not (folder / name).exists()
        assert (folder / f"{name}.held-1").exists()


async def test_a_protected_file_that_exists_is_read_only(hands, folder, sandbox):
    (folder / ".git").mkdir()
    (folder / "n" / ".git").mkdir(parents=True)
    (folder / ".envrc").write_text("mine")
    (folder / "real").write_text("mine")
    os.symlink("real", folder / ".mcp.json")
    await hands().text(
        "bash",
        command="echo x > .git/config; echo ../e > .git/commondir; echo x > n/.git/config; "
        "echo x > .envrc; echo x > real; rm -f .envrc .mcp.json; ln -s /etc .mcp.json; mv n m",
    )
    assert not list((folder / ".git").iterdir())
    assert not list((folder / "n" / ".git").iterdir())
    assert (folder / ".envrc").read_text() == (folder / "real").read_text() == "mine"
    assert not (folder / ".mcp.json").exists()  # the new link was held back


async def test_git_of_this_machine_runs_nothing_that_a_command_has_planted(hands, folder, sandbox):
    """The folder is a repository; whatever a command does to it, git here runs no plant."""
    await git(folder, "init", "-q")
    plant = f"touch {folder.parent}/planted"
    await hands().text(
        "bash",
        command=(
            "git config core.fsmonitor id; mkdir -p evil n; cp -r .git evil/git 2>/dev/null; "
            "echo ../evil/git > .git/commondir; "
            f"git init -q n; printf '[core]\\n fsmonitor = \"{plant}\"\\n' >> n/.git/config; "
            "echo 'gitdir: evil/git' > .git"
        ),
    )
    for place in (folder, folder / "n"):
        await git(place, "status")
    assert not (folder.parent / "planted").exists()


async def git(folder, *words):
    env = {"PATH": os.environ["PATH"], "HOME": str(folder.parent)}
    done = await asyncio.create_subprocess_exec("git", *words, cwd=folder, env=env, stdout=DEVNULL)
    await done.wait()


async def test_the_scan_sees_what_has_changed_since_the_last_one(hands, folder, sandbox):
    hands = hands(rules=Rules(deny=["read(*.key)"]))
    await hands.text("bash", command="true")
    (folder / "late.key").write_text("SECRET")
    (folder / "sub").mkdir()
    (folder / "sub" / "late.key").write_text("SECRET")
    assert "SECRET" not in await hands.text("bash", command="cat late.key sub/late.key")


async def test_two_commands_of_one_answer_run_one_after_the_other(workspace, folder, sandbox):
    workspace = workspace()
    line = "test -e busy && touch both; touch busy; sleep 0.2; rm busy"
    calls = [ToolCall(id=str(n), name="bash", arguments={"command": line}) for n in range(3)]
    model = ScriptedModel(Turn(*calls), "done")
    response = await Agent(model, plugins=[workspace]).chat("go")
    assert [message.outcome for message in response.tool_results] == ["ok"] * 3
    assert not (folder / "both").exists()


async def test_an_aborted_chat_leaves_no_process(workspace, sandbox):
    workspace = workspace()
    call = ToolCall(id="1", name="bash", arguments={"command": "echo begun; sleep 273"})
    agent = Agent(ScriptedModel(call, "done"), plugins=[workspace])
    async with agent.chat_stream("go") as stream:
        async for event in stream:
            if type(event).__name__ == "Status" and event.type == "output":
                break
    assert await _ended("273")


async def _ended(seconds):
    """Whether the command that sleeps for so long ends soon."""
    for _ in range(1200):
        if seconds not in _sleeping():
            return True
        await asyncio.sleep(0.05)
    return False


def _sleeping():
    out = subprocess.run(["ps", "-eo", "args"], capture_output=True, text=True, check=True).stdout
    return [line.split()[-1] for line in out.splitlines() if line.startswith("sleep")]


async def test_a_command_changes_nothing_for_the_next_one(hands, folder, sandbox):
    """Neither start files and variables of a shell, nor libraries, nor what /tmp has."""
    hands = hands()
    await hands.text(
        "bash",
        command="echo 'echo EVIL' | tee .bashrc .bash_profile .profile ~/.bashrc ~/.profile; "
        "export BASH_ENV=/workspace/.bashrc ENV=/workspace/.bashrc; touch /tmp/x evil.so; "
        "export LD_PRELOAD=/workspace/evil.so; echo /workspace/evil.so > /etc/ld.so.preload",
    )
    line = "env | grep -E 'BASH_ENV|^ENV|LD_'; ls -A /tmp; ls /etc/ld.so.preload 2>/dev/null; true"
    assert await hands.text("bash", command=line) == "[exit 0]"


async def test_a_command_ends_if_its_workspace_is_closed(workspace, sandbox):
    workspace = workspace(limits=CommandLimits(seconds=40))
    call = ToolCall(id="1", name="bash", arguments={"command": "echo begun; sleep 275"})
    agent = Agent(ScriptedModel(call, "done"), scopes=workspace.scopes, hooks=workspace.hooks)
    async with agent.chat_stream("go") as stream:
        async for event in stream:
            if type(event).__name__ == "Status" and event.type == "output":
                await workspace.aclose()
                assert await _ended("275")
    assert stream.response.tool_results[0].outcome != "ok"


@pytest.mark.slow
@pytest.mark.parametrize("shape", ["wide", "deep"])
async def test_a_command_that_makes_3000_folders_stops_nothing(hands, folder, sandbox, shape):
    hands = hands(limits=CommandLimits(seconds=20))
    step = {"wide": "os.mkdir(str(n))", "deep": "os.mkdir('n'); os.chdir('n')"}[shape]
    lines = ["import os", "for n in range(3000):", f"    {step}", "os.mkdir('.vscode')"]
    (folder / "make.py").write_text("\n".join(lines))
    try:
        assert "[exit 0]" in await hands.text("bash", command="python3 make.py")
        assert "made" in await hands.text("bash", command="mkdir .idea; echo made")
        assert not (folder / ".idea").exists()
        await hands.text("write", path="a.txt", text="x")
        await hands.text("list")
        assert "a.txt" in await hands.text("glob", pattern="a.*")
    finally:
        await asyncio.to_thread(subprocess.run, ["rm", "-rf", folder], check=True)


# ── snapshots ───────────────────────────────────────────────────────────────────────────────


def state(folder):
    files = [path for path in folder.rglob("*") if path.is_file()]
    return {str(path): (path.read_bytes(), path.stat().st_mode) for path in files}


async def test_restore_brings_back_what_was_there(workspace, hands, folder, sandbox):
    (folder / "a.txt").write_text("a")
    (folder / "run.sh").write_text("#!/bin/sh\n")
    (folder / "run.sh").chmod(0o755)
    (folder / ".gitignore").write_text("ignored\n")
    (folder / "ignored").write_text("x")
    hands = hands()
    workspace = hands.workspace
    before = state(folder)
    await hands.text(
        "bash", command="rm a.txt; echo b > b.txt; chmod 644 run.sh; mkdir d; echo > d/x"
    )
    assert state(folder) != before
    snapshot = (await workspace.snapshots())[0]
    assert snapshot.label.startswith("before step 0")
    assert "-a\n" in (text := await workspace.diff(snapshot.id))
    assert "+b\n" in text
    undone = await workspace.restore(snapshot.id)
    assert state(folder) == before
    await workspace.restore(undone)
    assert (folder / "b.txt").exists()
    with pytest.raises(UsageError, match="no snapshot"):
        await workspace.restore("x")


async def test_one_snapshot_is_taken_for_each_step_that_changes_something(hands, sandbox):
    hands = hands()
    await hands.text("list")
    assert await hands.workspace.snapshots() == []
    await hands.text("write", path="a", text="")
    await hands.text("bash", command="true")
    assert len(await hands.workspace.snapshots()) == 2


# ── durable chats ───────────────────────────────────────────────────────────────────────────


async def test_a_repeated_write_finds_its_own_version(workspace, folder):
    """The check of a tool, as a durable runtime asks it when a call was cut off."""
    from hookline import NotRun

    workspace = workspace()
    (folder / "a.txt").write_text("old")
    answers = {}

    def remember(ctx):
        tool = tools_of(workspace)["write"]
        answers["before"] = tool.check.fn(ctx.run)

    async def around(ctx, proceed):
        result = await proceed()
        if ctx.call.name == "write":
            answers["after"] = tools_of(workspace)["write"].check.fn(ctx.run)
            (folder / "a.txt").write_text("somebody else")
            answers["changed"] = tools_of(workspace)["write"].check.fn(ctx.run)
        return result

    calls = [
        ToolCall(id="1", name="read", arguments={"path": "a.txt"}),
        ToolCall(id="2", name="write", arguments={"path": "a.txt", "text": "new"}),
    ]
    agent = Agent(ScriptedModel(*calls, "done"), plugins=[workspace])
    agent.add_hook("preToolCall", remember, tools=["write"])
    agent.add_hook("aroundToolCall", around)
    await agent.chat("go")
    assert isinstance(answers["before"], NotRun)
    assert "earlier attempt" in answers["after"]
    assert isinstance(answers["changed"], NotRun)
    tools = tools_of(workspace)
    assert [name for name in tools if tools[name].idempotent] == [
        "read",
        "list",
        "glob",
        "grep",
        "plan",
    ]
    assert tools["bash"].check is None


# ── plan and skills ─────────────────────────────────────────────────────────────────────────


async def test_a_plan_is_kept_with_the_conversation(hands):
    hands = hands()
    items = [{"text": "a", "status": "done"}, {"text": "b"}]
    assert await hands.text("plan", items=items) == "1 of 2 done"
    assert hands.conversation.meta["plan"] == [
        {"text": "a", "status": "done"},
        {"text": "b", "status": "open"},
    ]
    assert "100 items" in await hands.error("plan", items=[{"text": "x"}] * 101)


@pytest.fixture
def skills(base):
    def made(name="pdf", head="", body="Do it.", field="name"):
        skill = base / "skills" / name
        skill.mkdir(parents=True, exist_ok=True)
        text = f"---\n{field}: {name}\ndescription: Makes {name} files.\n{head}---\n{body}\n"
        (skill / "SKILL.md").write_text(text)
        (skill / "form.md").write_text("the form")
        return base / "skills"

    return made


async def test_a_skill_is_in_the_context_and_its_body_on_demand(hands, workspace, skills):
    folder = skills()
    _, system = await offered(workspace(skills=[folder]))
    assert "- pdf: Makes pdf files." in system
    assert "Do it." not in system
    hands = hands(skills=[folder])
    assert await hands.text("skill", name="pdf") == "Do it."
    assert await hands.text("skill", name="pdf", file="form.md") == "the form"
    assert "use one of: pdf" in await hands.error("skill", name="doc")
    assert "OutsideError" in await hands.error("skill", name="pdf", file="../../outside.txt")
    hands.workspace.rules.deny += Rules(deny=["read(form.md)"]).deny
    assert "must not be read" in await hands.error("skill", name="pdf", file="form.md")
    (folder / "pdf" / "SKILL.md").write_text("---\nname: pdf\ndescription: x\n---\nEvil.\n")
    assert "has changed" in await hands.error("skill", name="pdf")


async def test_the_tools_of_a_skill_only_narrow(workspace, skills, folder, sandbox):
    """Commands that the skill names run only if the workspace allows them; no others run."""
    (folder / "a.txt").write_text("x")
    workspace = workspace(
        skills=[skills(head="allowed-tools: Bash(ls*) Bash(git push*) Read WebFetch\n")],
        rules=Rules(deny=["bash(git push*)"]),
    )
    calls = [
        ("skill", {"name": "pdf"}),
        ("bash", {"command": "ls"}),
        ("bash", {"command": "touch b"}),
        ("bash", {"command": "git push"}),
        ("read", {"path": "a.txt"}),
        ("write", {"path": "b.txt", "text": ""}),
    ]
    turns = [ToolCall(id=str(n), name=name, arguments=args) for n, (name, args) in enumerate(calls)]
    response = await Agent(ScriptedModel(*turns, "done"), plugins=[workspace]).chat("go")
    outcomes = [message.outcome for message in response.tool_results]
    assert outcomes == ["ok", "ok", "denied", "denied", "ok", "denied"]


@pytest.mark.parametrize(
    "options", [{"field": "nam"}, {"name": "Bad_Name"}, {"name": "x" * 65}, {"field": "x:\nname"}]
)
def test_a_skill_that_is_not_valid_is_refused(workspace, skills, options):
    folder = skills(**options)
    if options.get("field", "").startswith("x"):
        (folder / "pdf" / "SKILL.md").write_text("no head")
    with pytest.raises(UsageError):
        workspace(skills=[folder])


# ── whole chats ─────────────────────────────────────────────────────────────────────────────


async def test_an_agent_fixes_a_failing_test(workspace, folder, sandbox):
    """Reads, runs the test, edits after an approval, and runs the test again."""
    (folder / "add.sh").write_text("add() { echo $(($1 - $2)); }\n")
    (folder / "test.sh").write_text('. ./add.sh; test "$(add 2 3)" = 5 && echo passed\n')
    approver = Approver()
    workspace = workspace(mode="ask", rules=Rules(allow=["bash(bash test.sh)"]))
    edits = [{"old": "$1 - $2", "new": "$1 + $2"}]
    calls = [
        ("plan", {"items": [{"text": "find the mistake", "status": "active"}]}),
        ("bash", {"command": "bash test.sh"}),
        ("grep", {"pattern": "add\\("}),
        ("read", {"path": "add.sh"}),
        ("edit", {"path": "add.sh", "edits": edits}),
        ("bash", {"command": "bash test.sh"}),
    ]
    turns = [ToolCall(id=str(n), name=name, arguments=args) for n, (name, args) in enumerate(calls)]
    agent = Agent(ScriptedModel(*turns, "fixed"), plugins=[workspace], approver=approver)
    async with agent:
        response = await agent.chat("The test fails.", conversation=Conversation())
    texts = [message.text for message in response.tool_results]
    assert texts[1] == "[exit 1]"
    assert texts[5] == "passed\n[exit 0]"
    assert response.text == "fixed"
    assert [request.call.name for request in approver.requests] == ["edit"]
    assert "+add() { echo $(($1 + $2)); }" in approver.requests[0].details[0]["text"]


async def test_a_changed_file_is_told_to_the_stream(workspace, folder):
    call = ToolCall(id="1", name="write", arguments={"path": "a.txt", "text": "x\n"})
    agent = Agent(ScriptedModel(call, "done"), plugins=[workspace()])
    told = []
    agent.add_hook("onStatus", lambda ctx: told.append((ctx.type, ctx.data)))
    await agent.chat("go")
    kind, data = told[0]
    assert kind == "file_changed"
    assert (data["path"], data["before"]) == ("a.txt", None)
    assert data["diff"].endswith("+x\n")


async def test_the_files_that_a_command_changes_are_told_too(workspace, folder, sandbox):
    """Each once: not what the user or another tool had changed before the command."""
    for name in ("old", "gone", "same"):
        (folder / name).write_text(f"{name}\n")
    (folder / ".gitignore").write_text("built\n")
    (folder / "image").write_bytes(b"\0")
    calls = [
        ("write", {"path": "mine", "text": "x\n"}),
        ("bash", {"command": "echo new > old; rm gone; mkdir d; echo a > d/b; echo z > built"}),
        ("bash", {"command": "cat same; printf '\\0\\0' > image; chmod +x same"}),
    ]
    turn = Turn(*(ToolCall(id=str(n), name=name, arguments=a) for n, (name, a) in enumerate(calls)))
    agent = Agent(ScriptedModel(turn, "done"), plugins=[workspace()])
    told = []
    agent.add_hook("onStatus", lambda ctx: told.append((ctx.call.id, ctx.data)))
    await agent.chat("go")
    changes = {data["path"]: (id, data) for id, data in told if "diff" in data}
    assert len(changes) == len([data for _, data in told if "diff" in data])
    assert {path: id for path, (id, _) in changes.items()} == {
        "mine": "0",
        "d/b": "1",
        "gone": "1",
        "old": "1",
        "image": "2",
    }
    _, old = changes["old"]
    assert old["diff"] == "--- old\n+++ old\n@@ -1 +1 @@\n-old\n+new\n"
    assert [bool(old["before"]), bool(old["after"])] == [True, True]
    assert (changes["d/b"][1]["before"], changes["gone"][1]["after"]) == (None, None)
    assert changes["image"][1]["diff"] == "image is binary and has changed\n"


async def test_many_changes_of_a_command_are_counted(workspace, sandbox):
    call = ToolCall(id="1", name="bash", arguments={"command": "touch $(seq 130)"})
    agent = Agent(ScriptedModel(call, "done"), plugins=[workspace()])
    told = []
    agent.add_hook("onStatus", lambda ctx: told.append((ctx.type, ctx.data)))
    await agent.chat("go")
    assert [kind for kind, _ in told].count("file_changed") == 100
    assert told[-1] == ("workspace", {"kind": "files_changed", "left_out": 30})


async def test_a_closed_workspace_says_so(workspace):
    workspace = workspace()
    call = ToolCall(id="1", name="list", arguments={})
    agent = Agent(ScriptedModel(call, "done"), scopes=workspace.scopes, hooks=workspace.hooks)
    await workspace.aclose()
    response = await agent.chat("go")
    assert "closed" in response.tool_results[0].text


@pytest.mark.parametrize(
    "options",
    [
        {"path": "/"},
        {"path": os.path.expanduser("~")},
        {"path": "/nowhere/at/all"},
        {"mode": "write"},
        {"tools": ["raed"]},
        {"tools": "read"},
        {"sandbox": "none"},
        {"sandbox": 3},
        {"at": "workspace"},
        {"at": "/"},
    ],
    ids=str,
)
def test_what_cannot_be_a_workspace_is_refused(folder, base, options):
    with pytest.raises(UsageError):
        Workspace(**{"path": folder, "state": base / "state", **options})


def test_the_state_is_outside_of_the_workspace(folder):
    with pytest.raises(UsageError, match="in the workspace"):
        Workspace(folder, state=folder / "state")


async def test_a_program_outside_is_visible_if_it_is_named(folder, base, hands, sandbox):
    (base / "programs").mkdir()
    (base / "programs" / "hi").write_text("#!/bin/sh\necho hi\n")
    (base / "programs" / "hi").chmod(0o755)
    hands = hands(sandbox=Bwrap(visible=[str(base / "programs")]), limits=CommandLimits(seconds=9))
    assert await hands.text("bash", command=f"{base}/programs/hi") == "hi\n[exit 0]"


def test_where_there_are_no_such_calls_the_module_is_there_and_a_workspace_is_refused(folder):
    """As on Windows, whose `os` has less, and which has no fcntl."""
    code = """
import os, sys
for name in [name for name in dir(os) if name.startswith("O_") and name not in (
        "O_RDONLY", "O_WRONLY", "O_RDWR", "O_CREAT", "O_EXCL", "O_TRUNC", "O_APPEND")]:
    delattr(os, name)
import asyncio  # the standard library has what it needs
sys.platform, sys.modules["fcntl"] = "win32", None
import hookline.workspace
from hookline.errors import UsageError
try:
    hookline.workspace.Workspace(sys.argv[1])
except UsageError as exc:
    print(exc)
"""
    command = [sys.executable, "-c", code, str(folder)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert "needs Linux or macOS" in done.stdout, done.stderr
