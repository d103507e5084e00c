"""docs/cli.md says what the program does: its agent, its tables, its pictures."""

from __future__ import annotations

import re
import struct
from pathlib import Path

import pytest
from tests._programs import in_terminal, run
from tests._terminal import Terminal, program

from hookline.cli import main

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "cli.md").read_text()
PARTS = dict(re.findall(r"^## (hookline \w+)\n(.*?)(?=^## |\Z)", PAGE, re.DOTALL | re.MULTILINE))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (block,) = re.findall(r"^```python\n(.*?)^```$", PAGE, re.DOTALL | re.MULTILINE)
    (tmp_path / "app.py").write_text(block)
    return tmp_path


def test_the_agent_of_the_page_talks_as_in_its_picture(folder: Path) -> None:
    with Terminal(program("chat", "app:agent", "--hooks"), folder) as terminal:
        terminal.expect("› ")
        terminal.say("Do I need a hat?")
        terminal.expect("· preRequest        be_brief                    changed")
        terminal.expect('→ weather(city="Paris")')
        terminal.expect("You need no hat, but take sunglasses:")
        terminal.expect("Paris       18  sunny")
        terminal.expect("› ")
        terminal.say("Tidy up.")
        terminal.expect("✗ shell#2 denied: a command like 'sudo' is not allowed")
        terminal.expect("Run shell? [y/n/e] ")
        terminal.say("y")
        terminal.expect('✓ shell "done"')
        terminal.expect("› ")


def test_the_hooks_of_the_page_are_those_of_its_picture(folder: Path) -> None:
    with in_terminal(folder, "hooks", "app:agent") as terminal:
        assert terminal.end() == 0
        titles = [line for line in terminal.lines if not line.startswith(" ")]
        assert titles == [
            "preRequest · interceptor",
            "onDelta · interceptor",
            "preToolCall · interceptor",
        ]
        assert "add_hook · async · tools shell · on_error deny · timeout 5 s" in terminal.lines[8]


@pytest.mark.parametrize("command", ["chat", "hooks", "serve"])
def test_every_option_stands_on_the_page(command: str, tmp_path: Path) -> None:
    """In a process of its own: the help of a command keeps the width that it was first shown in."""
    shown = run(tmp_path, command, "--help", COLUMNS="200").stdout
    options = set(re.findall(r"^│ (--[\w-]+)", shown, re.MULTILINE))
    assert len(options) >= 3
    told = set(re.findall(r"--[\w-]+", PARTS[f"hookline {command}"])) | {"--debug"}
    assert options <= told


ENDINGS = """\
from hookline import Agent, Ask
from hookline.testing import ScriptedModel, call


def pay() -> str:
    return "paid"


asks = Agent(ScriptedModel(call("pay")), tools=[pay])
asks.add_hook("preToolCall", lambda ctx: Ask("Pay?"))
fails = Agent(ScriptedModel(LookupError("no")))
"""


def test_every_exit_status_stands_on_the_page(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "ended.py").write_text(ENDINGS)
    monkeypatch.syspath_prepend(str(tmp_path))
    more = ("-m", "go", "--store", f"sqlite:///{tmp_path}/chats.db")
    statuses = {main(["chat", f"ended:{name}", *more]) for name in ("asks", "fails")}
    statuses |= {main(["--version"]), main(["unknown"])}
    with in_terminal(tmp_path, "chat", "ended:asks", "-m", "go") as terminal:
        terminal.expect("Run pay? [y/n/e] ")
        terminal.interrupt()
        statuses.add(terminal.end())
    assert {int(each) for each in re.findall(r"^\| (\d+) \|", PAGE, re.MULTILINE)} == statuses
    assert statuses == {0, 1, 2, 3, 130}


@pytest.mark.parametrize("name", ["cli-chat", "cli-hooks"])
def test_a_picture_is_there(name: str) -> None:
    data = (ROOT / "docs" / "images" / f"{name}.png").read_bytes()
    assert data[:8] == b"\x89PNG\r\n\x1a\n"
    width, height = struct.unpack(">II", data[16:24])
    assert width > 1000
    assert height > 300
