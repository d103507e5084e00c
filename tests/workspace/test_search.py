"""Searching: nothing outside, nothing ignored, and no program but ripgrep."""

import os
import re

import pytest


async def test_search_leaves_out_what_git_ignores(hands, folder, sandbox):
    (folder / ".gitignore").write_text("build/\n*.log\n")
    (folder / "build").mkdir()
    for name in ("a.py", "build/b.py", "c.log", "d.txt"):
        (folder / name).write_text("needle\nneedle (\n")
    hands = hands()
    assert await hands.text("glob", pattern="**/*.py") == "a.py"
    assert await hands.text("grep", pattern="needle", glob="*.py", mode="files") == "a.py"
    assert (
        await hands.text("grep", pattern="needle (", literal=True, mode="count")
        == "a.py:1\nd.txt:1"
    )
    assert await hands.text("grep", pattern="NEEDLE", ignore_case=True, path="d.txt") == (
        "d.txt:1:needle\nd.txt:2:needle ("
    )
    assert await hands.text("grep", pattern="nothing") == "[no match]"


@pytest.mark.parametrize(
    "arguments",
    [
        {"pattern": "OUTSIDE", "path": "../"},
        {"pattern": "OUTSIDE", "path": "up"},
        {"pattern": "--pre=id"},
        {"pattern": "OUTSIDE", "glob": "../*"},
        {"pattern": "OUTSIDE", "glob": "/etc/*"},
        {"pattern": "x'; id; '"},
        {"pattern": "(a+)+$"},
    ],
    ids=str,
)
async def test_search_finds_nothing_outside_and_runs_nothing(hands, folder, arguments, sandbox):
    os.symlink("..", folder / "up")
    (folder / "a.txt").write_text("a" * 60 + "b")
    text = (await hands()("grep", **arguments)).text
    assert "OUTSIDE" not in text.replace("OUTSIDE'", "")
    assert "uid=" not in text


@pytest.mark.parametrize(
    ("tool", "arguments"),
    [
        ("list", {"path": ".."}),
        ("list", {"path": "up"}),
        ("list", {"path": "/etc"}),
        ("list", {"path": "up/project/.."}),
        ("glob", {"pattern": "../*"}),
        ("glob", {"pattern": "*", "path": ".."}),
        ("glob", {"pattern": "*", "path": "up"}),
        ("glob", {"pattern": "/etc/*"}),
        ("read", {"path": "output:../../outside.txt"}),
        ("read", {"path": "output:0123456789abcdef/../../../outside.txt"}),
    ],
    ids=str,
)
async def test_no_tool_lists_or_pages_what_is_outside(hands, folder, tool, arguments, sandbox):
    os.symlink("..", folder / "up")
    text = (await hands()(tool, **arguments)).text.lower()
    assert "outside\n" not in text
    assert "passwd" not in text
    for path in arguments.values():
        text = text.replace(path, "")
    assert "outside.txt" not in text


async def test_search_says_what_is_wrong_with_a_pattern(hands, folder):
    assert "unclosed group" in await hands().error("grep", pattern="(")


async def test_long_results_have_a_handle(hands, folder):
    (folder / "a.txt").write_text("".join(f"{n} {'x' * 300}\n" for n in range(400)))
    hands = hands()
    text = await hands.text("grep", pattern="x")
    handle = re.search(r"output:[0-9a-f]{16}", text)[0]
    assert len(text) < 31_000
    assert "399 xxx" in await hands.text("read", path=handle, offset=400)
    assert "no longer kept" in await hands.error("read", path="output:0123456789abcdef")
