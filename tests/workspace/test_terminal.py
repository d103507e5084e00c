"""`hookline chat --workspace` in a pseudo-terminal: the questions, /diff and /undo."""

from __future__ import annotations

import pytest
from tests._terminal import Fork, Terminal, environment

MODULE = r"""
from hookline import Agent
from hookline.testing import ScriptedModel, call

agent = Agent(
    ScriptedModel(
        call("read", path="prices.py"),
        call("edit", path="prices.py", edits=[{"old": "net * VAT", "new": "round(net * VAT)"}]),
        "Rounded.",
        call("bash", command="echo one >> log"),
        call("bash", command="echo one >> log"),
        call("bash", command="echo two >> log"),
        call("write", path="new.txt", text="as the model has it\n"),
        "All done.",
    ),
    name="coder",
)
"""
PRICES = "VAT = 0.19\n\n\ndef vat(net):\n    return net * VAT\n"


@pytest.fixture
def terminal(folder, base):
    (base / "app.py").write_text(MODULE)
    (folder / "prices.py").write_text(PRICES)
    arguments = ["chat", "app:agent", "--workspace", "project"]
    variables = environment(XDG_STATE_HOME=str(base / "state"), HOME=str(base))

    def start(terminal):
        return Fork(arguments, base, terminal, variables)

    with Terminal(start, base) as terminal:
        terminal.expect("› ")
        yield terminal


def test_a_change_is_shown_and_asked_about_then_compared_and_undone(terminal, folder):
    for command, answer in [
        ("/diff", "nothing has changed"),
        ("/undo", "there is nothing to undo"),
    ]:
        terminal.say(command)
        terminal.expect(answer)
        terminal.expect("› ")
    terminal.say("Round it.")
    shown = terminal.expect("Run edit? [y/n/e] ")
    assert "Change prices.py?" in shown
    assert "-    return net * VAT\n" in shown
    assert "+    return round(net * VAT)\n" in shown
    assert (folder / "prices.py").read_text() == PRICES
    terminal.send("a")  # only a command can be remembered
    terminal.expect("y: run it.  n: refuse it.  e: edit the arguments.")
    terminal.send("y")
    terminal.expect("Rounded.")
    terminal.expect("› ")
    assert "round(net * VAT)" in (folder / "prices.py").read_text()
    terminal.say("/diff")
    assert "-    return net * VAT\n+    return round(net * VAT)" in terminal.expect("› ")
    assert b"\x1b[32m+    return round(net * VAT)" in terminal.raw
    assert b"\x1b[31m-    return net * VAT" in terminal.raw
    terminal.say("/undo")
    terminal.expect("the files are as they were before the last change")
    terminal.expect("› ")
    assert (folder / "prices.py").read_text() == PRICES
    terminal.say("/diff")
    terminal.expect("nothing has changed")


def test_a_command_is_remembered_or_refused_and_arguments_are_edited(terminal, folder, sandbox):
    terminal.say("Round it.")
    terminal.expect("Run edit? [y/n/e] ")
    terminal.send("n")
    terminal.expect("Why not? ")
    terminal.say("not this one")
    terminal.expect("Rounded.")
    terminal.expect("› ")
    assert (folder / "prices.py").read_text() == PRICES
    terminal.say("Now the log.")
    assert "echo one >> log" in terminal.expect("Run bash? [y/a/n/e] ")
    terminal.send("a")
    assert "echo two >> log" in terminal.expect("Run bash? [y/a/n/e] ")  # one is asked about once
    assert (folder / "log").read_text() == "one\none\n"
    terminal.send("n")
    terminal.expect("Why not? ")
    terminal.say("")
    terminal.expect("Run write? [y/n/e] ")
    terminal.send("e")
    terminal.expect("arguments: ")
    terminal.send("\x15")  # clears the line
    terminal.say('{"path": "new.txt", "text": "as the person has it\\n"}')
    terminal.expect("as the person has it")
    terminal.expect("Run write? [y/n/e] ")
    assert not (folder / "new.txt").exists()
    terminal.send("y")
    terminal.expect("All done.")
    terminal.expect("› ")
    assert (folder / "new.txt").read_text() == "as the person has it\n"
    assert (folder / "log").read_text() == "one\none\n"
    terminal.say("/udno")
    assert "There is no command /udno" in terminal.expect("› ")
    assert (folder / "new.txt").exists()
    terminal.say("/undo")
    terminal.expect("› ")
    assert not (folder / "new.txt").exists()
    assert (folder / "log").read_text() == "one\none\n"
    terminal.say("/undo")
    terminal.expect("› ")
    assert (folder / "log").read_text() == "one\n"
