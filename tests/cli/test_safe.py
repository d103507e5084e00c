"""A terminal under `hookline chat`: no escape of a model's or a tool's gets to it, at any width."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from tests._programs import in_terminal
from tests._terminal import Terminal

# Clears the screen, retitles the window, asks the terminal to type, rings, moves, hides, reorders.
EVIL = "\x1b[2J\x1b]0;owned\x07\x1b[6n\x9b2J\x08\x7f\r\x0b\u202e\u2066\ufeff\U000e0041end"
FORBIDDEN = [b"\x1b[2J", b"\x1b]", b"\x1b[6n", b"\x07", b"\x08\x7f", b"\x0b", b"\x7f"]
INVISIBLE = "\x9b\u202e\u2066\ufeff\U000e0041"

MODULE = r'''
from hookline import Agent, Ask, Run, ToolFailure
from hookline.errors import ToolDenied
from hookline.testing import ScriptedModel, Turn, call

EVIL = {evil!r}


async def delete(path: str, why: str = "") -> str:
    """Delete a file."""
    return f"{{path}}{{EVIL}}"


async def fail() -> str:
    """Fails."""
    raise RuntimeError(EVIL)


async def report(run: Run) -> str:
    """Reports."""
    await run.status(EVIL, EVIL)
    await run.status(EVIL, {{EVIL: EVIL}})
    return "done"


def agent_of(*turns):
    return Agent(ScriptedModel(*turns), tools=[delete, fail, report])


text = agent_of(Turn(EVIL, chunk=1))
thought = agent_of(Turn(reasoning=EVIL, text="done", chunk=1))
result = agent_of(call("delete", path="a"), "done")
error = agent_of(call("fail"), "done")
unknown = agent_of(call(EVIL, {{EVIL: EVIL}}), "done")
status = agent_of(call("report"), "done")
failure = agent_of(RuntimeError(EVIL))
edited = agent_of([call("fail")], call("delete", path=EVIL))


def question():
    agent = agent_of(call("delete", path=EVIL, why=f"one\n{{EVIL}}\ntwo"), "done")
    agent.add_hook("preToolCall", lambda ctx: Ask(f"Really?\n{{EVIL}}"), tools=["delete"])
    return agent


def hook():
    agent = agent_of("done")
    agent.add_hook("preRequest", lambda ctx: None, name=EVIL)
    return agent


def fake():
    """A model that draws the question and the answer to it."""
    drawn = "? May this run?\r\n├ delete\n│   path = 'a.txt'\nRun delete? [y/n/e] y\n"
    return agent_of(Turn(drawn + "→ delete(path='a.txt')\n› hi", chunk=2))


WORDS = "A paragraph of many words that has to be broken, 漢字は二倍の幅です、 and "
LONG = "w" * 95


def wide():
    agent = agent_of(
        [call("delete", path="漢字" * 40, why=f"one\n{{LONG}}\n" + "漢" * 50)],
        Turn(WORDS + LONG + " 👩 end.", chunk=3),
    )
    agent.add_hook("preToolCall", lambda ctx: Ask(WORDS + LONG), tools=["delete"])
    agent.add_hook("preRequest", lambda ctx: None, name="a_hook_with_a_rather_long_name_of_its_own")
    return agent
'''


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "app.py").write_text(MODULE.format(evil=EVIL))
    return tmp_path


def chat(folder: Path, agent: str, *options: str, columns: int = 80, **env: str) -> Terminal:
    return in_terminal(folder, "chat", f"app:{agent}", *options, "-m", "go", columns=columns, **env)


def check(terminal: Terminal) -> None:
    """Nothing of the evil reached the terminal, and something was put in its place."""
    for sequence in FORBIDDEN:
        assert sequence not in terminal.raw, sequence
    text = terminal.raw.decode()
    assert not set(INVISIBLE) & set(text)
    assert "[2J" in text, "what is not done is shown"


@pytest.mark.parametrize(
    "agent", ["text", "thought", "result", "error", "unknown", "status", "failure", "hook"]
)
@pytest.mark.parametrize("term", ["xterm-256color", "dumb"])
def test_no_escape_gets_to_the_terminal(folder: Path, agent: str, term: str) -> None:
    with chat(folder, agent, "--hooks", TERM=term) as terminal:
        assert terminal.end() == (1 if agent == "failure" else 0)
        check(terminal)


def test_no_escape_gets_there_by_a_traceback(folder: Path) -> None:
    with chat(folder, "failure", "--debug") as terminal:
        assert terminal.end() == 1
        check(terminal)
        assert "Traceback" in terminal.text


def test_a_question_hides_nothing_of_what_would_run(folder: Path) -> None:
    with chat(folder, "question") as terminal:
        terminal.expect("Run delete? [y/n/e] ")
        check(terminal)
        asked = "".join(line[2:].strip() for line in terminal.lines)
        for char in INVISIBLE:
            number = f"{ord(char):x}"
            assert asked.lower().count(number) >= 3, "in the prompt, and in both arguments"
        terminal.say("e")
        terminal.expect("arguments: ")
        terminal.expect('two"}')
        check(terminal)
        terminal.say("")
        terminal.expect("Run delete? [y/n/e] ")
        terminal.say("n")
        terminal.expect("Why not? ")
        terminal.say("")
        assert terminal.end() == 0
        check(terminal)


def test_a_model_cannot_draw_a_question(folder: Path) -> None:
    """Whatever it says stands behind an indent; what begins in the first column is ours."""
    with chat(folder, "fake") as terminal:
        assert terminal.end() == 0
        assert "  ? May this run?" in terminal.lines
        assert [line for line in terminal.lines if line and not line.startswith("  ")] == []


@pytest.mark.parametrize("columns", [80, 40])
def test_every_line_fits_and_says_whose_it_is(folder: Path, columns: int) -> None:
    """Also a continued one: nothing that a model writes comes to stand in the first column."""
    with chat(folder, "wide", "--hooks", columns=columns) as terminal:
        terminal.expect("Run delete? [y/n/e] ")
        terminal.say("y")
        assert terminal.end() == 0
        ours = re.compile(r"^(  |· |→ |✓ |✗ |\? |[│├] |│┄|Run delete\? \[y/n/e\] y$)")
        assert [line for line in terminal.lines if line and not ours.match(line)] == []
        whole = "".join(line[2:].strip().removeprefix("┆ ") for line in terminal.lines)
        assert "漢字" * 40 in whole
        assert whole.count("w" * 95) == 3, "in the prompt, an argument and the answer"
        assert "漢" * 50 in whole
        assert whole.endswith("end.")


@pytest.mark.parametrize("how", [{"NO_COLOR": "1"}, {"TERM": "dumb"}], ids=["no colour", "dumb"])
def test_colours_are_left_out_where_nobody_wants_them(folder: Path, how: dict[str, str]) -> None:
    with chat(folder, "question", "--hooks", **how) as terminal:
        terminal.expect("Run delete? [y/n/e] ")
        terminal.say("y")
        assert terminal.end() == 0
        assert not re.search(rb"\x1b\[[0-9;]*m", terminal.raw)
        if "TERM" in how:
            assert b"\x1b" not in terminal.raw, "and no spinner"


def test_a_terminal_has_colours(folder: Path) -> None:
    with chat(folder, "result") as terminal:
        assert terminal.end() == 0
        assert re.search(rb"\x1b\[[0-9;]*m", terminal.raw)


def test_a_terminal_without_the_characters_is_no_crash(folder: Path) -> None:
    with chat(folder, "wide", PYTHONIOENCODING="ascii") as terminal:
        terminal.expect("Run delete? [y/n/e] ")
        terminal.say("y")
        assert terminal.end() == 0
        assert terminal.lines[-1].endswith("end.")
