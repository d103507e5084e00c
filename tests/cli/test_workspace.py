"""`hookline chat --workspace`, its commands, and `hookline workspace check`."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from hookline import ApprovalRequest, ToolCall, ToolResult
from hookline.cli import main
from hookline.cli._commands.workspace import (
    COMMANDS,
    WorkspaceOptions,
    check,
    greeting,
    open_workspace,
)
from hookline.cli._terminal.screen import STYLES
from hookline.cli._terminal.styled_lines import question, result_line
from hookline.events import ToolCallFinished
from hookline.workspace import Bwrap

MODULE = """
from hookline import Agent
from hookline.testing import ScriptedModel, call

agent = Agent(ScriptedModel(call("write", path="a.txt", text="new\\n"), "Done."))
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    folder = tmp_path / "project"
    folder.mkdir()
    return folder


@pytest.mark.parametrize(
    ("options", "status", "there"),
    [(["--mode", "edits"], 0, True), (["--mode", "read"], 0, False), ([], 0, False)],
    ids=["edits", "read", "ask"],
)
def test_an_agent_works_in_the_folder(
    folder: Path, tmp_path: Path, options: list[str], status: int, there: bool
) -> None:
    (tmp_path / "app.py").write_text(MODULE)
    line = [sys.executable, "-m", "hookline", "chat", "app:agent", "--workspace", "project"]
    env = {**os.environ, "PYTHONPATH": str(tmp_path)}
    done = subprocess.run(
        [*line, "-m", "Go.", *options], cwd=tmp_path, env=env, capture_output=True, text=True
    )
    assert done.returncode == status, done.stderr
    assert "Done." in done.stdout
    assert (folder / "a.txt").exists() == there


async def test_a_chat_without_a_sandbox_says_so_in_red(folder: Path) -> None:
    async with open_workspace(WorkspaceOptions(path=str(folder), sandbox=False)) as workspace:
        words, style = (await greeting(workspace))[1]
    assert words.startswith("NO SANDBOX: commands have all your rights")
    assert "red" in STYLES[style]


async def test_diff_shows_and_undo_undoes_the_last_change(folder: Path) -> None:
    (folder / "a.txt").write_text("old\n")
    async with open_workspace(WorkspaceOptions(path=str(folder))) as workspace:
        assert await COMMANDS["/diff"](workspace, 0) == [("nothing has changed", "")]
        assert await COMMANDS["/undo"](workspace, 0) == [("there is nothing to undo", "")]
        await workspace.snapshot("before step 0")
        (folder / "a.txt").write_text("new\n")
        rows = await COMMANDS["/diff"](workspace, 0)
        assert ("-old", "bad") in rows
        assert ("+new", "good") in rows
        await COMMANDS["/undo"](workspace, 0)
        assert (folder / "a.txt").read_text() == "old\n"


def test_the_difference_is_shown_in_colours_with_hidden_characters_as_numbers() -> None:
    details = {"kind": "diff", "path": "a", "text": "--- a\n+++ a\n@@ -1 +1 @@\n-x\n+y\x1b\u202e\n"}
    request = ApprovalRequest(
        id="1",
        call=ToolCall(id="1", name="write", arguments={}),
        prompts=("Change a?",),
        chat_id="c",
        iteration=0,
        digest="",
        details=(details,),
    )
    parts = [part for line in question(request, 1, 1, 80) for part in line]
    assert ("bad", "  -x") in parts
    added = next(text for style, text in parts if style == "good" and "y" in text)
    assert "\x1b" not in added
    assert "\u202e" not in added


def test_a_command_is_shown_once() -> None:
    call = ToolCall(id="1", name="bash", arguments={"command": "ls\x1b"})
    details = {"kind": "command", "text": "ls\x1b", "cwd": "sub\u202e", "confined": True}
    request = ApprovalRequest(
        id="1",
        call=call,
        prompts=("Run this command in the sandbox?",),
        chat_id="c",
        iteration=0,
        digest="",
        details=(details,),
    )
    lines = ["".join(text for _, text in line) for line in question(request, 1, 1, 80)]
    assert lines[2:] == [
        "│ Run this command in the sandbox?",
        '│   cwd = "sub\\u202e"',
        "│   confined = true",
        "├ bash",
        '│   command = "ls\\u001b"',
    ]


def test_a_long_result_is_shown_with_its_last_line() -> None:
    def shown(value: str) -> str:
        event = ToolCallFinished(
            chat_id="c",
            iteration=0,
            call_id="1",
            name="bash",
            outcome="ok",
            result=ToolResult(value),
        )
        return "".join(text for _, text in result_line("bash", event, 0, 40))

    assert shown("one\n[exit 1]") == '✓ bash "one\\n[exit 1]"'
    assert shown("one\n" * 40 + "[exit 1]") == '✓ bash "one\\none\\none\\none\\no… [exit 1]"'
    assert shown("one " * 40).endswith("…")


async def test_check_says_what_works_and_what_mends_the_rest(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def broken(self: Bwrap) -> str:
        return "no bubblewrap: pip install it"

    monkeypatch.setattr(Bwrap, "check", broken)
    lines, works = await check(str(folder))
    assert not works
    assert ("✗ commands cannot run: no bubblewrap: pip install it", "bad") in lines

    async def whole(self: Bwrap) -> None:
        return None

    monkeypatch.setattr(Bwrap, "check", whole)
    lines, works = await check(str(folder))
    assert works
    assert len(lines) == 3


def test_the_command_is_there(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["workspace", "check", str(folder)]) in (0, 1)
    assert "files: read, list, write and edit" in capsys.readouterr().out


def test_a_folder_that_cannot_be_a_workspace_is_wrong_usage(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["workspace", "check", "/"]) == 2
    assert "whole machine" in capsys.readouterr().err
