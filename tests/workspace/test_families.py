"""A workspace and sub-agents: whose files, whose guard, and whose skill."""

import pytest

from hookline import Agent, Approve, Conversation, ToolCall, ToolResult
from hookline.storage import Rule
from hookline.testing import ScriptedModel, call
from hookline.workspace import Workspace

WRITE = call("write", path="a.txt", text="new")


def parent_of(child: Agent, workspace: Workspace, *before: ToolCall) -> Agent:
    model = ScriptedModel(*before, call("child", input="go"), "done")
    return Agent(model, plugins=[workspace], tools=[child.as_tool()])


@pytest.mark.parametrize("mode", ["ask", "edits", "read"])
@pytest.mark.parametrize("childs_mode", ["ask", "edits"])
async def test_the_workspace_of_a_sub_agent_has_a_guard_of_its_own(mode, childs_mode, base, folder):
    (below := base / "below").mkdir()
    (below / "a.txt").write_text("old")
    edits = [{"old": "old", "new": "new"}]
    calls = call("read", path="a.txt"), call("edit", path="a.txt", edits=edits)
    workspace = Workspace(below, state=base / "state2", mode=childs_mode)
    child = Agent(ScriptedModel(*calls, "done"), name="child", plugins=[workspace])
    asked = []

    def approver(request, run):
        asked.append((run.agent, request.prompts))
        return Approve()

    parent = parent_of(child, Workspace(folder, state=base / "state", mode=mode))
    await parent.chat("go", approver=approver)
    assert (below / "a.txt").read_text() == "new"
    assert asked == ([("child", ("Change a.txt?",))] if childs_mode == "ask" else [])


@pytest.mark.parametrize("mode", ["ask", "edits", "read"])
async def test_another_tool_of_a_sub_agent_with_the_name_of_ours_is_not_guarded(
    mode, base, folder, caplog
):
    sent = []

    def write(to: str) -> str:
        """Write a letter."""
        sent.append(to)
        return "sent"

    def bash(times: int) -> str:
        """Hit it."""
        sent.append(times)
        return "hit"

    model = ScriptedModel(call("write", to="ann"), call("bash", times=2), "done")
    child = Agent(model, name="child", tools=[write, bash])
    await parent_of(child, Workspace(folder, state=base / "state", mode=mode)).chat("go")
    assert sent == ["ann", 2]
    assert caplog.text == ""


@pytest.mark.parametrize("change", ["description", "handler", "none"])
async def test_a_tool_with_another_description_or_handler_is_still_guarded(change, base, folder):
    workspace = Workspace(folder, state=base / "state", mode="ask")
    ran = []

    async def handler(arguments, run):
        ran.append(arguments)

    tool = workspace.tools_by_name["write"]
    if change == "description":
        tool = tool.replace(description="Write.")
    elif change == "handler":
        tool = tool.with_handler(handler)
    child = Agent(ScriptedModel(WRITE, "done"), name="child", tools=[tool])
    talk = Conversation()
    response = await parent_of(child, workspace).chat("go", conversation=talk)
    assert [request.prompts for request in response.pending] == [("Create a.txt?",)]
    assert ran == list(folder.iterdir()) == []


@pytest.mark.parametrize("reader", ["parent", "child"])
async def test_the_skill_of_a_chat_limits_its_sub_agents(reader, base, folder):
    (skill := base / "skills" / "careful").mkdir(parents=True)
    head = "---\nname: careful\ndescription: Read.\nallowed-tools: read\n---\n"
    (skill / "SKILL.md").write_text(f"{head}Read.")
    workspace = Workspace(folder, state=base / "state", mode="edits", skills=[base / "skills"])
    use = call("skill", name="careful")
    turns = [use, "done"] if reader == "child" else [WRITE, "done"]
    child = Agent(ScriptedModel(*turns), name="child", plugins=[workspace])
    before = [use] if reader == "parent" else []
    after = [WRITE] if reader == "child" else []
    model = ScriptedModel(*before, call("child", input="go"), *after, "done")
    await Agent(model, plugins=[workspace], tools=[child.as_tool()]).chat("go")
    assert (folder / "a.txt").exists() is (reader == "child")


async def test_an_approval_that_is_remembered_in_a_sandbox_does_not_hold_without(base, folder):
    class Confined:
        """Runs nothing, and says that it does so in a sandbox."""

        name, confines = "confined", True

        async def check(self):
            return None

        async def start(self, command, view, limits): ...

        async def aclose(self): ...

    talk, state = Conversation(), base / "state"
    asked = []

    def approver(request, run):
        asked.append(request.prompts[0])
        return Approve(remember=Rule("bash"))

    for sandbox in (Confined(), Confined(), "none"):
        options = {} if sandbox != "none" else {"unsafe": True}
        workspace = Workspace(folder, state=state, mode="ask", sandbox=sandbox, **options)
        agent = Agent(ScriptedModel(call("bash", command="true"), "done"), plugins=[workspace])
        agent.add_hook("aroundToolCall", _no_tool)
        await agent.chat("go", conversation=talk, approver=approver)
    assert asked == ["Run this command in the sandbox?", "Run this command WITHOUT A SANDBOX?"]


async def _no_tool(ctx, proceed):
    return ToolResult("not run")
