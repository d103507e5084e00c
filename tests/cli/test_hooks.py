"""`hookline hooks`, and what the program says of itself."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from rich.cells import cell_len
from tests._programs import in_terminal, run

import hookline
from hookline.cli import main
from hookline.points import TABLE

MODULE = '''\
from functools import partial, wraps

from hookline import Agent, Observer, define_hook
from hookline.testing import ScriptedModel


async def delete(path: str) -> str:
    """Delete a file."""
    return path


def traced(fn):
    @wraps(fn)
    def inner(ctx):
        return fn(ctx)

    return inner


class Mine(Observer, frozen=True):
    number: int = 0


class Counter:
    def __call__(self, ctx):
        return None


def declared(ctx):
    return None


bare = Agent(ScriptedModel("x"))


async def agent():
    made = Agent(
        ScriptedModel("x"),
        tools=[delete],
        hooks=[define_hook("onMessage", declared, id="first_one", required=True)],
    )

    @made.hook("preToolCall", tools=["del*", "delte"], on_error="deny", timeout=5, priority=20)
    async def guard(ctx):
        return None

    @made.hook("preToolCall", priority=200, inherit=True)
    @traced
    def early(ctx):
        return None

    made.add_hook("onMessage", partial(Counter()), name="counter")
    made.add_hook("onMessage", print, priority=-5)
    made.add_hook(Mine, lambda ctx: None, name="mine")
    await made.use(lambda it: it.add_hook("onStep", declared), name="plug")
    return made
'''


def line_of(words: str) -> int:
    """Where these words stand in the module."""
    return next(n for n, line in enumerate(MODULE.splitlines(), 1) if words in line)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "app.py").write_text(MODULE)
    return tmp_path


# ── hooks ───────────────────────────────────────────────────────────────────────────────────


def test_hooks_are_listed_by_point_in_firing_order_with_their_rules(folder: Path) -> None:
    done = run(folder, "hooks", "app:agent")
    assert done.returncode == 0, done.stderr
    lines = [" ".join(line.split()) for line in done.stdout.splitlines()]
    assert lines == [
        "onMessage · observer",
        f"0 declared (id first_one) app:{line_of('def declared')} agent · sync · required",
        f"0 counter app:{line_of('def __call__')} add_hook · sync",
        "-5 print – add_hook · sync",
        "preToolCall · interceptor",
        f"200 agent.early app:{line_of('inherit=True')} add_hook · sync · inherit",
        f"20 agent.guard app:{line_of('guard(ctx)') - 1}",
        "add_hook · async · tools del*, delte · no tool delte · on_error deny · timeout 5 s · "
        "guard",
        "· inherit",
        "onStep · interceptor",
        f"0 declared app:{line_of('def declared')} plugin plug · sync",
        "Mine · observer",
        f"0 mine app:{line_of('add_hook(Mine')} add_hook · sync",
    ]


def test_points_without_hooks_are_shown_when_all_are_asked_for(folder: Path) -> None:
    done = run(folder, "hooks", "app:agent", "--all")
    titles = [line.split()[0] for line in done.stdout.splitlines() if not line.startswith(" ")]
    assert titles == [*TABLE, "Mine"]


def test_an_agent_without_hooks_says_so(folder: Path) -> None:
    assert run(folder, "hooks", "app:bare").stdout == "no hooks\n"


def test_hooks_as_json_are_those_of_the_agent(folder: Path) -> None:
    done = run(folder, "hooks", "app:agent", "--output", "json")
    points: list[dict[str, Any]] = json.loads(done.stdout)
    assert [(each["point"], each["kind"]) for each in points] == [
        ("onMessage", "observer"),
        ("preToolCall", "interceptor"),
        ("onStep", "interceptor"),
        ("Mine", "observer"),
    ]
    assert points[1]["hooks"][1] == {
        "point": "preToolCall",
        "name": "agent.<locals>.guard",
        "priority": 20,
        "origin": "add_hook",
        "id": None,
        "required": True,
        "guard": True,
        "off": None,
        "withhold": False,
        "keeps_deltas": False,
        "early": False,
        "observes": False,
        "on_error": "deny",
        "timeout": 5,
        "tools": ["del*", "delte"],
        "unmatched": ["delte"],
        "inherit": True,
        "kind": "interceptor",
        "is_async": True,
        "where": f"app:{line_of('guard(ctx)') - 1}",
    }
    every = run(folder, "hooks", "app:agent", "--output", "json", "--all")
    assert [each["point"] for each in json.loads(every.stdout)] == [*TABLE, "Mine"]


@pytest.mark.parametrize("columns", [80, 40])
def test_the_list_fits_into_a_terminal(folder: Path, columns: int) -> None:
    with in_terminal(folder, "hooks", "app:agent", columns=columns) as terminal:
        assert terminal.end() == 0
        for line in terminal.lines:
            assert line[0] != " " or line[:9].strip().lstrip("-").isdigit() or not line[:9].strip()
        shown = " ".join(" ".join(terminal.lines).split())
        for words in (
            "timeout 5 s",
            "plugin plug",
            "agent.early",
            f"app:{line_of('inherit=True')}",
        ):
            assert words in shown


LONG = """\
from hookline import Agent
from hookline.testing import ScriptedModel


async def agent():
    made = Agent(ScriptedModel("x"))
    name = "a\\x1b[2J " + "very " * 30 + "漢字"
    await made.use(lambda it: it.add_hook("onStep", print, name=name), name="x" * 90)
    return made
"""


@pytest.mark.parametrize("columns", [40, 80])
def test_a_name_of_any_length_is_shown_whole_and_harmless(tmp_path: Path, columns: int) -> None:
    (tmp_path / "app.py").write_text(LONG)
    with in_terminal(tmp_path, "hooks", "app:agent", columns=columns) as terminal:
        assert terminal.end() == 0
    assert b"\x1b[2J" not in terminal.raw
    lines = terminal.text.splitlines()
    assert all(cell_len(line) <= columns for line in lines)
    assert all(line.isprintable() for line in lines)
    whole = "".join("".join(lines).split())
    assert "x" * 90 in whole
    assert whole.count("very") == 30


# ── the program ─────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("command", ["", "chat", "hooks", "serve"])
def test_help_teaches_by_examples(
    command: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    assert main([*filter(None, [command]), "--help"]) == 0
    shown = capsys.readouterr().out
    assert f"\n  hookline {command or 'chat'} app:agent\n" in shown
    assert max(map(len, shown.splitlines())) <= 80


def test_without_a_command_it_shows_what_there_is(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([]) == 0
    shown = capsys.readouterr().out
    for command in ("chat", "hooks", "serve", "--install-completion", "--version"):
        assert command in shown


@pytest.mark.parametrize("command", ["", "hooks", "durable", "durable ls", "mcp list"])
def test_the_version(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*command.split(), "--version"]) == 0
    assert capsys.readouterr().out == f"{hookline.__version__}\n"


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (
            ["frob"],
            'Unknown command "frob". Available commands: ',
        ),
        (["hooks"], "requires an argument. See: hookline hooks --help"),
        (["serve", "app:agent", "--port", "x"], "See: hookline serve --help"),
        (["hooks", "app:agent", "--al"], "Did you mean --all?"),
        (["hooks", "a\x1b[2Jb"], "must be module:attribute"),
    ],
)
def test_wrong_usage_is_one_line_and_status_2(
    arguments: list[str], words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(arguments) == 2
    captured = capsys.readouterr()
    assert words in captured.err
    assert captured.out == ""
    assert captured.err.count("\n") == 1
    assert "\x1b" not in captured.err


def test_the_command_is_installed_under_its_name(tmp_path: Path) -> None:
    command = Path(sys.executable).parent / "hookline"
    done = subprocess.run([command, "--version"], cwd=tmp_path, capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (0, f"{hookline.__version__}\n")


def test_completion_is_written_for_a_shell(tmp_path: Path) -> None:
    script = tmp_path / "hookline.bash"
    done = run(
        tmp_path,
        *("--install-completion", "--shell", "bash", "--output", str(script)),
        HOME=str(tmp_path),
    )
    assert done.returncode == 0, done.stderr
    assert "--conversation" in script.read_text()
