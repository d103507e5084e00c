"""The page beside a workspace: the plan, the changed files and their differences."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tests.web._browser import page_of, serving
from tests.web._server import direct
from tests.web.test_desk import said

from hookline import Agent, Limits
from hookline.testing import ScriptedModel, call
from hookline.web import Page
from hookline.workspace import Workspace

pytestmark = [pytest.mark.timeout(90), pytest.mark.asyncio(loop_scope="module")]
HOSTILE = "<img src=x onerror=\"document.title='owned'\">"
PLAN = ("Find the mistake", "Correct it", HOSTILE)


def items(*statuses: str) -> list[dict[str, str]]:
    return [{"text": text, "status": status} for text, status in zip(PLAN, statuses, strict=True)]


def edit(old: str, new: str) -> Any:
    return call("edit", path="add.py", edits=[{"old": old, "new": new}])


def coder(folder: Path, mode: Any = "edits") -> Agent[Any]:
    """An agent that plans, edits a file twice, and writes a new one."""
    project = folder / "project"
    project.mkdir()
    (project / "add.py").write_text("def add(a, b):\n    return a - b\n")
    model = ScriptedModel(
        call("plan", items=items("active", "open", "open")),
        call("read", path="add.py"),
        edit("a - b", "a +\u202e b"),
        edit("def add(a, b):", f"def add(a, b):  # {HOSTILE}"),
        call("write", path=f"{HOSTILE.replace('/', '')}\u200b.txt", text="one\ntwo\n"),
        call("plan", items=items("done", "done", "active")),
        "Fixed.",
    )
    workspace = Workspace(project, state=folder / "state", mode=mode)
    return Agent(model, plugins=[workspace], name="coder")


async def test_the_plan_and_the_changed_files_are_beside_the_chat_and_stay_after_a_reload(
    browser: Any, tmp_path: Path
) -> None:
    async with serving(coder(tmp_path)) as (site, url):
        page = await page_of(browser, url)  # a script would run
        await page.open()
        assert not await page.page.locator("#plan-section, #changed-section").first.is_visible()
        await page.say("The test fails.")
        await page.sees("Fixed.")
        for _ in range(2):
            timeline = page.page.locator("#timeline")
            await timeline.locator("#plan .item").nth(2).wait_for()
            assert await timeline.locator("#plan-title").inner_text() == "Plan 2 of 3 done"
            rows = await timeline.locator("#plan .item").all_inner_texts()
            assert [row.split("\n")[0] for row in rows] == ["✓", "✓", "◐"]
            assert HOSTILE in rows[2]
            assert await timeline.locator("#changed-title").inner_text() == "Changed files 2"
            add, new = await timeline.locator("#changed details").all()
            assert "add.py" in await add.locator("summary").inner_text()
            assert "+2 \u22122" in await add.locator("summary").inner_text()
            assert "new" in await new.locator("summary").inner_text()
            assert "+2 \u22120" in await new.locator("summary").inner_text()
            assert f"{HOSTILE}\\u200b.txt" in await new.locator("summary").inner_text()
            await add.locator("summary").click()
            diffs = await add.locator("pre").all_inner_texts()
            assert "-    return a - b\n+    return a +\\u202e b\n" in diffs[0]
            assert f"+def add(a, b):  # {HOSTILE}\n" in diffs[1]
            assert await page.page.title() == "coder"
            assert await page.violations() == []
            await site._page.timelines.settle()
            await page.page.reload()
        await page.assert_sound()


async def test_the_names_of_changed_files_are_stored_even_if_their_differences_do_not_fit(
    tmp_path: Path,
) -> None:
    (tmp_path / "project").mkdir()
    text = "".join(f"{number:0100}\n" for number in range(500))
    writes = [call("write", path=f"{number}.txt", text=text) for number in range(70)]
    workspace = Workspace(tmp_path / "project", state=tmp_path / "state", mode="edits")
    agent: Agent[Any] = Agent(
        ScriptedModel(*writes, "Done."), plugins=[workspace], limits=Limits(steps=100)
    )
    async with direct(agent, page=Page()) as (site, http):
        await said(http, "a", "Write.")
        await site._page.timelines.settle()
        (run,) = (await http.get("/page/a/timeline")).json()["runs"]
    changes = [frame["data"] for frame in run["frames"] if frame["event"] == "status"]
    assert [change["path"] for change in changes] == [f"{number}.txt" for number in range(70)]
    assert {change["diff"] for change in changes} == {""}
