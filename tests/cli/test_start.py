"""What a command imports: its own module, not those of the other commands."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from hookline.cli import main

IMPORTED = """
import json, sys
from hookline.cli import main

status = main(sys.argv[1:])
names = [name.removeprefix("hookline.") for name in sys.modules if name.startswith("hookline.")]
print(json.dumps([status, names]))
"""
DOORS = {"durable", "hooks", "mcp", "providers", "replay", "testing", "web", "workspace"}
COMMAND = "cli._commands."


@pytest.mark.parametrize(
    ("arguments", "commands", "doors"),
    [
        ("--help", "", ""),
        ("init project", "init", ""),
        ("hooks --help", "hooks", ""),
        (
            "serve --help",
            "reload serve workers",
            "durable hooks providers replay testing web",
        ),
        ("check --help", "check", "durable hooks mcp providers replay testing web"),
    ],
)
def test_a_command_imports_only_what_it_needs(
    arguments: str, commands: str, doors: str, tmp_path: Path
) -> None:
    command = [sys.executable, "-P", "-c", IMPORTED, *arguments.split()]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    status, names = json.loads(done.stdout.splitlines()[-1])
    assert status == 0
    imported = {name.removeprefix(COMMAND) for name in names if name.startswith(COMMAND)}
    assert imported == set(commands.split())
    assert {name.split(".")[0] for name in names} & DOORS <= set(doors.split())


def test_each_command_has_the_same_summary_in_its_help_and_in_the_list(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["--help"]) == 0
    shown = re.sub(r" *│\n│  +", " ", capsys.readouterr().out)  # whole rows
    rows = re.findall(r"^│ ([a-z]+) +(\S.*?) *│$", shown, re.MULTILINE)
    assert {"chat", "check", "durable", "init", "mcp", "serve"} < {name for name, _ in rows}
    for name, summary in rows:
        assert main([name, "--help"]) == 0
        assert f"\n{summary}\n" in capsys.readouterr().out
