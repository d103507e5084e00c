"""`hookline mcp list` and `hookline chat --mcp`: servers of a file, in a terminal."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from hookline.cli import main

PROGRAM = str(Path(__file__).resolve().parents[1] / "_mcp_program.py")


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.chdir(tmp_path)
    good = {"command": sys.executable, "args": [PROGRAM, "ok"]}
    servers = {"good": good, "gone": {"command": "no-such-command-here"}}
    (tmp_path / "mcp.json").write_text(json.dumps({"mcpServers": servers}))
    (tmp_path / "app.py").write_text(
        "from hookline import Agent\nfrom hookline.testing import ScriptedModel, call\n"
        "agent = Agent(ScriptedModel(call('good_ok'), 'It is fine.'))\n"
    )
    return "mcp.json"


def run(*arguments: str) -> int:
    return main(list(arguments))


def test_the_tools_of_the_servers_of_a_file_are_listed(file: str, capsys: Any) -> None:
    assert run("mcp", "list", file) == 1  # one of them cannot be connected
    out = capsys.readouterr().out
    assert "good_ok" in out
    assert "bad is left out" in out
    assert "'no-such-command-here' cannot be started" in out


def test_one_server_of_a_file_and_a_command_are_listed_as_json(file: str, capsys: Any) -> None:
    assert run("mcp", "list", file, "good", "--output", "json") == 0
    [listed] = json.loads(capsys.readouterr().out)
    assert listed["label"] == "good"
    assert listed["tools"][0]["name"] == "good_ok"
    assert run("mcp", "list", sys.executable, PROGRAM, "ok", "--output", "json") == 0


def test_the_arguments_of_a_command_are_its_own(file: str, tmp_path: Path) -> None:
    noting = "import sys; open('given.txt', 'w').write(repr(sys.argv[1:]))"
    run("mcp", "list", sys.executable, "-c", noting, "--hooks", "x")
    assert (tmp_path / "given.txt").read_text() == "['--hooks', 'x']"


def test_a_server_that_the_file_does_not_have_is_told(file: str, capsys: Any) -> None:
    assert run("mcp", "list", file, "other") == 2
    assert "has no server 'other'; name one of: good, gone" in capsys.readouterr().err


def test_a_chat_gets_the_tools_of_a_file(file: str, tmp_path: Path, capsys: Any) -> None:
    one = {"servers": {"good": {"command": sys.executable, "args": [PROGRAM, "ok"]}}}
    (tmp_path / "one.json").write_text(json.dumps(one))
    sys.modules.pop("app", None)
    assert run("chat", "app:agent", "--mcp", "one.json", "-m", "go", "--output", "json") == 0
    events = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    [end] = [event for event in events if event["event"] == "tool_call_finished"]
    assert end["outcome"] == "ok"
