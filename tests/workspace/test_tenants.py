"""`Workspaces`: nobody sees another's files, and no client's text becomes part of a path."""

import asyncio

import pytest

from hookline import Agent, Approve, Conversation, ToolCall
from hookline.errors import UsageError
from hookline.testing import ScriptedModel, call
from hookline.workspace import Rules, Workspaces


def calls(*rows):
    return [ToolCall(id=str(n), name=name, arguments=args) for n, (name, args) in enumerate(rows)]


async def chat(workspaces, deps, *rows, **options):
    model = ScriptedModel(*calls(*rows), "done")
    agent = Agent(model, scopes=workspaces.scopes, hooks=workspaces.hooks)
    response = await agent.chat("go", deps=deps, conversation=Conversation(), **options)
    return [message.text for message in response.tool_results]


@pytest.fixture
def workspaces(base):
    return Workspaces(base / "all", key=lambda run: run.deps, mode="edits", limit=1)


async def test_each_key_has_its_own_files(workspaces, base, sandbox):
    write = ("write", {"path": "a.txt", "text": "of ann"})
    for key, rows in [("ann", [write]), ("../bob", [("list", {})]), ("ann", [("list", {})])]:
        texts = await chat(workspaces, key, *rows, ("bash", {"command": "cat a.txt; pwd; ls /"}))
        assert ("a.txt" in texts[0]) == (key == "ann")
        assert ("of ann" in texts[1]) == (key == "ann")
        assert "/workspace\n" in texts[1]
        assert str(base) not in "".join(texts)
    names = sorted(path.name for path in (base / "all").iterdir())
    assert len(names) == 3  # and the pattern
    assert all(name == "pattern" or len(name) == 32 for name in names)


async def test_the_tools_work_as_those_of_one_workspace(base):
    workspaces = Workspaces(base / "all", mode="ask", rules=Rules(deny=["read(.env)"]))
    asked = []

    def approver(request, run):
        asked.append(request.details[0]["kind"])
        return Approve()

    texts = await chat(
        workspaces,
        None,
        ("write", {"path": "a.txt", "text": "x\n"}),
        ("read", {"path": "a.txt"}),
        ("edit", {"path": "a.txt", "edits": [{"old": "x", "new": "y"}]}),
        ("read", {"path": ".env"}),
        ("read", {"pth": "a"}),
        approver=approver,
    )
    assert asked == ["diff", "diff"]
    assert texts[1] == "1\tx"
    assert "changed a.txt" in texts[2]
    assert "Denied" in texts[3]
    assert "ToolArgumentsError" in texts[4]


async def test_few_workspaces_stay_open(workspaces):
    for number in range(5):
        await chat(workspaces, f"user {number}", ("list", {}))
    assert len(workspaces._open) == 1
    await asyncio.gather(*(chat(workspaces, f"user {n}", ("list", {})) for n in range(5)))
    assert len(workspaces._open) == 1
    await workspaces.aclose()
    assert workspaces._open == {}


@pytest.mark.parametrize("key", ["", None, 3])
async def test_a_key_is_a_text(base, key):
    workspaces = Workspaces(base / "all", key=lambda run: key)
    with pytest.raises(UsageError):
        workspaces.of(object())
    text = (await chat(workspaces, None, ("list", {})))[0]
    assert "Denied" in text


@pytest.mark.parametrize("options", [{"limit": -1}, {"path": "x"}, {"state": "x"}, {"mode": "x"}])
def test_options_that_cannot_be_are_refused(base, options):
    with pytest.raises(UsageError):
        Workspaces(base / "all", **options)


async def test_a_sub_agent_works_in_the_folder_of_its_conversation(base):
    workspaces = Workspaces(base / "all", mode="edits")
    for options in ({"conversation": Conversation()}, {}):
        write = call("write", path="a.txt", text="of the child")
        child = Agent(ScriptedModel(write, "done"), name="child", plugins=[workspaces])
        model = ScriptedModel(call("child", input="go"), call("read", path="a.txt"), "done")
        parent = Agent(model, tools=[child.as_tool()], plugins=[workspaces])
        _, result = (await parent.chat("go", **options)).tool_results
        assert "of the child" in result.text
