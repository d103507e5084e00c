"""`hookline chat --workspace`, its commands, and `hookline workspace check`."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from tests._terminal import Fork, Terminal, environment

from hookline.cli import main
from hookline.workspace import Bwrap

MODULE = r"""
from hookline import Agent, Ask
from hookline.testing import ScriptedModel, call

agent = Agent(ScriptedModel(call("write", path="a.txt", text="new\n"), "Done."))
changes = Agent(
    ScriptedModel(
        call("read", path="a.txt"),
        call("edit", path="a.txt", edits=[{"old": "old", "new": "new\x1b\u202e"}]),
        "Done.",
    )
)


def bash(command: str) -> str:
    '''Run a command.'''
    return {"short": "one\n[exit 1]", "long": "one\n" * 40 + "[exit 1]"}.get(command, "one " * 40)


turns = [call("bash", command=each) for each in ("short", "long", "x")]
runs = Agent(ScriptedModel(*turns, "Done."), tools=[bash])
asks = Agent(ScriptedModel(call("bash", command="ls\x1b"), "Done."), tools=[bash])
details = {"kind": "command", "text": "ls\x1b", "cwd": "sub\u202e", "confined": True}
asks.add_hook("preToolCall", lambda ctx: Ask("Run this command in the sandbox?", details=details))
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    folder = tmp_path / "project"
    folder.mkdir()
    (tmp_path / "app.py").write_text(MODULE)
    return folder


def chat(folder: Path, agent: str, *options: str, columns: int = 80) -> Terminal:
    """A chat in a terminal; a fork of this process has imported everything already."""
    arguments = ("chat", f"app:{agent}", *options)

    def command(terminal: int) -> Fork:
        return Fork(arguments, folder.parent, terminal, environment())

    return Terminal(command, folder.parent, columns=columns)


@pytest.mark.parametrize(
    ("options", "status", "there"),
    [(["--mode", "edits"], 0, True), (["--mode", "read"], 0, False), ([], 0, False)],
    ids=["edits", "read", "ask"],
)
def test_an_agent_works_in_the_folder(
    folder: Path, tmp_path: Path, options: list[str], status: int, there: bool
) -> None:
    line = [sys.executable, "-m", "hookline", "chat", "app:agent", "--workspace", "project"]
    env = {**os.environ, "PYTHONPATH": str(tmp_path)}
    done = subprocess.run(
        [*line, "-m", "Go.", *options], cwd=tmp_path, env=env, capture_output=True, text=True
    )
    assert done.returncode == status, done.stderr
    assert "Done." in done.stdout
    assert (folder / "a.txt").exists() == there


def test_a_chat_without_a_sandbox_says_so_in_red(folder: Path) -> None:
    with chat(folder, "agent", "--workspace", "project", "--no-sandbox") as terminal:
        terminal.expect("› ")
        words = "NO SANDBOX: commands have all your rights"
        assert terminal.colour(words) == "red"


def test_diff_shows_and_undo_undoes_the_last_change(folder: Path) -> None:
    (folder / "a.txt").write_text("old\n")
    with chat(folder, "changes", "--workspace", "project", "--mode", "edits") as terminal:
        terminal.expect("› ")
        terminal.say("/diff")
        terminal.expect("nothing has changed")
        terminal.say("/undo")
        terminal.expect("there is nothing to undo")
        terminal.say("Go.")
        terminal.expect("Done.")
        terminal.expect("› ")
        terminal.say("/diff")
        terminal.expect("+new")
        terminal.expect("› ")
        assert (terminal.colour("-old"), terminal.colour("+new")) == ("red", "green")
        terminal.say("/undo")
        terminal.expect("as they were before the last change")
    assert (folder / "a.txt").read_text() == "old\n"


def test_the_difference_is_shown_in_colours_with_hidden_characters_as_numbers(
    folder: Path,
) -> None:
    (folder / "a.txt").write_text("old\n")
    with chat(folder, "changes", "--workspace", "project", "-m", "Go.") as terminal:
        terminal.expect("Run edit? [y/n/e] ")
        assert (terminal.colour("-old"), terminal.colour("+new")) == ("red", "green")
        assert any(line.endswith("+new\\x1b\\u202e") for line in terminal.lines)


def test_a_command_is_shown_once(folder: Path) -> None:
    with chat(folder, "asks", "-m", "Go.") as terminal:
        terminal.expect("Run bash? ")
        lines = [line for line in terminal.lines if line.startswith(("│", "├"))]
    assert lines == [
        "│ Run this command in the sandbox?",
        '│   cwd = "sub\\u202e"',
        "│   confined = true",
        "├ bash",
        '│   command = "ls\\u001b"',
    ]


def test_a_long_result_is_shown_with_its_last_line(folder: Path) -> None:
    with chat(folder, "runs", "-m", "Go.", columns=40) as terminal:
        terminal.expect("Done.")
        short, long, words = [line for line in terminal.lines if line.startswith("✓")]
    assert short == '✓ bash "one\\n[exit 1]"'
    assert long == '✓ bash "one\\none\\none\\none\\no… [exit 1]"'
    assert words.endswith("…")


def test_check_says_what_works_and_what_mends_the_rest(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    async def broken(self: Bwrap) -> str:
        return "no bubblewrap: pip install it"

    monkeypatch.setattr(Bwrap, "check", broken)
    assert main(["workspace", "check", str(folder)]) == 1
    assert "✗ commands cannot run: no bubblewrap: pip install it" in capsys.readouterr().out

    async def whole(self: Bwrap) -> None:
        return None

    monkeypatch.setattr(Bwrap, "check", whole)
    assert main(["workspace", "check", str(folder)]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line[0] for line in lines] == ["✓"] * 3


def test_the_command_is_there(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["workspace", "check", str(folder)]) in (0, 1)
    assert "files: read, list, write and edit" in capsys.readouterr().out


def test_a_folder_that_cannot_be_a_workspace_is_wrong_usage(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["workspace", "check", "/"]) == 2
    assert "whole machine" in capsys.readouterr().err
