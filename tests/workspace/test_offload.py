"""`Workspace.offload`: a large result of another tool is put aside, and the model can page it."""

import re

import pytest

from hookline import Agent, tool
from hookline.errors import UsageError
from hookline.testing import ScriptedModel, call
from hookline.workspace import Workspace, Workspaces

ROWS = [{"id": n, "name": f"name {n}"} for n in range(2000)]


@tool
async def rows() -> list[dict[str, object]]:
    """Read all rows."""
    return ROWS


@tool
async def line() -> str:
    """Read one long line."""
    return "x" * 9_000 + "END"


def handle_in(request):
    return re.search(r"output:[0-9a-f]{16}", request.messages[-1].text)[0]


async def chat(folder, base, *turns, over=1000, **options):
    workspace = Workspace(folder, state=base / "state", mode="read")
    model = ScriptedModel(*turns, "ok")
    agent = Agent(model, tools=[rows, line], plugins=[workspace])
    async with agent:
        await agent.use(workspace.offload(over, **options))
        response = await agent.chat("go")
    return [message for message in response.messages if message.role == "tool"]


async def test_a_large_result_is_cut_and_paged_by_its_handle(folder, base):
    def page(request):
        return call("read", path=handle_in(request), offset=7999, limit=4)

    cut, page = await chat(folder, base, call("rows"), page)
    assert len(cut.text) < 1200
    assert "characters are left out here; for all, read the path 'output:" in cut.text
    lines = [line.split("\t")[1].strip() for line in page.text.split("\n")[:4]]
    assert lines == ['"id": 1999,', '"name": "name 1999"', "}", "]"]


async def test_every_character_of_a_long_line_can_be_paged(folder, base):
    def page(request):
        return call("read", path=handle_in(request))

    _, page = await chat(folder, base, call("line"), page)
    assert page.text.count("x") == 9_000
    assert page.text.endswith("END")


async def test_a_small_result_and_the_workspaces_own_stay_as_they_are(folder, base):
    (folder / "long.txt").write_text("y\n" * 3000)
    own, small = await chat(folder, base, call("read", path="long.txt"), call("line"), over=9_003)
    assert "output:" not in own.text
    assert small.text == "x" * 9_000 + "END"


async def test_only_the_tools_that_are_named_are_offloaded(folder, base):
    whole, cut = await chat(folder, base, call("line"), call("rows"), tools=["rows"])
    assert whole.text.endswith("xEND")
    assert "output:" not in whole.text
    assert "output:" in cut.text


async def test_each_tenant_pages_its_own_results_and_no_others(base):
    workspaces = Workspaces(base / "all", key=lambda run: run.deps, mode="read")
    handles = []

    def page(request):
        handles.append(handle_in(request))
        return call("read", path=handles[-1], offset=7999, limit=1)

    def page_of_ann(request):
        return call("read", path=handles[0])

    turns = (call("rows"), page, "ok", call("rows"), page, page_of_ann, "ok")
    async with Agent(ScriptedModel(*turns), tools=[rows], plugins=[workspaces]) as agent:
        await agent.use(workspaces.offload(1000))
        ann, bob = [await agent.chat("go", deps=name) for name in ("ann", "bob")]
    assert all(len(response.tool_results[0].text) < 1200 for response in (ann, bob))
    assert ['"id": 1999,' in response.tool_results[1].text for response in (ann, bob)] == [True] * 2
    assert "is no longer kept" in bob.tool_results[2].text


def test_a_workspace_whose_model_cannot_read_a_handle_cannot_offload(folder, base):
    workspace = Workspace(folder, state=base / "state", tools=["list"])
    with pytest.raises(UsageError, match="add 'read' to tools="):
        workspace.offload()
    with pytest.raises(UsageError, match="add 'read' to tools="):
        Workspaces(base / "all", tools=["list"]).offload()
    with pytest.raises(UsageError, match="over=0"):
        Workspace(folder, state=base / "state").offload(0)
