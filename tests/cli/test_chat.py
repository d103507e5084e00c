"""`hookline chat` in a terminal: the real program in a pseudo-terminal, with a scripted model."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest
from tests._programs import in_terminal
from tests._terminal import Terminal

MODULE = r'''
import asyncio
import os
import signal
import time
from pathlib import Path

from hookline import Agent, Ask, Continue, ModelRequest, Run, Stop, Text
from hookline.testing import ScriptedModel, Turn, call


async def for_ever():
    await asyncio.Event().wait()


made = []


async def late_deps() -> str:
    made.append(1)
    if len(made) == 1:
        print("making deps", flush=True)
        await for_ever()
    return "Ada"


async def weather(city: str, run: Run) -> str:
    """The weather."""
    await run.status("asking", {"station": city})
    return "18 degrees"


async def delete(path: str) -> str:
    """Delete a file."""
    with open("ran.txt", "a") as file:
        file.write(path + "\n")
    return f"{path} is gone"


async def hang() -> str:
    """Hangs."""
    await for_ever()
    return ""


async def work() -> str:
    """Works until the test says that it is done."""
    return await asyncio.to_thread(Path("done").read_text)


async def stubborn() -> str:
    """Takes no cancellation."""
    print("begun", flush=True)
    while True:
        try:
            await for_ever()
        except asyncio.CancelledError:
            print("not yet", flush=True)


def agent_of(*turns):
    tools = [weather, delete, hang, work, stubborn]
    return Agent(ScriptedModel(*turns), name="helper", tools=tools)


def plain():
    return agent_of("Hello, Ada.", "Good bye.")


def tools():
    agent = agent_of(
        [call("weather", city="Paris"), call("weather", city="Rome")], "It is warm."
    )

    @agent.hook("preRequest")
    def be_brief(ctx) -> ModelRequest:
        return ctx.request.replace(system="Be brief.")

    @agent.hook("onDelta")
    def watch(ctx) -> None:
        return None

    @agent.hook("onStep")
    def noted(ctx) -> None:
        return None

    return agent


def streams():
    """An answer of which the second half never comes, then a tool that never ends."""
    seen = []

    async def delay():
        seen.append(1)
        if len(seen) == 3:
            await for_ever()

    return agent_of(
        Turn("So far ", "so good ", "and never this", delay=delay),
        call("hang"),
        "Back again.",
    )


def blocks():
    """A hook that holds up the loop."""
    agent = agent_of("never")

    @agent.hook("preRequest")
    def block(ctx):
        before = signal.getsignal(signal.SIGINT)

        def told(*arguments):
            before(*arguments)
            os.write(1, b"not yet\n")  # `print` may be what is interrupted

        signal.signal(signal.SIGINT, told)
        print("begun", flush=True)
        while True:
            time.sleep(0.01)

    return agent


def refuses_nothing():
    return agent_of(call("hang"))


def refuses_to_end():
    return agent_of(call("stubborn"))


def knows():
    """An agent that tells the deps of each chat."""
    tell = lambda request: request.system
    return Agent(ScriptedModel(tell, tell), system=lambda run: f"deps: {run.deps}")


customers = iter(["Ada", "Bob"])


def customer():
    return next(customers)


def asks():
    agent = agent_of(call("delete", path="a.txt"), "That is settled.", "Something else.")
    agent.add_hook("preToolCall", lambda ctx: Ask("Delete it?"), tools=["delete"])
    return agent


def asks_twice():
    agent = agent_of(
        [call("delete", path="a.txt"), call("delete", path="b.txt")], "That is settled."
    )
    agent.add_hook("preToolCall", lambda ctx: Ask("Delete it?"), tools=["delete"])
    return agent


def expires():
    agent = agent_of(call("delete", path="a.txt"), "Never mind.")
    agent.add_hook("preToolCall", lambda ctx: Ask("?", expires=0.000001), tools=["delete"])
    return agent


def resumes():
    """The same, in a process that comes later: the model only says the last word."""
    agent = agent_of("That is settled.")
    agent.add_hook("preToolCall", lambda ctx: Ask("Delete it?"), tools=["delete"])
    return agent


def remembers():
    def tell(request):
        said = [m.text for m in request.messages if m.role == "user"]
        return f"You said: {' and '.join(said)}."

    return agent_of(*[tell] * 9)


def works():
    def tell(request):
        said = [m.text for m in request.messages if m.role == "user"]
        return f"You said: {' and '.join(said)}."

    return agent_of(call("work"), *[tell] * 9)


def changes():
    agent = agent_of("the secret is 42")

    @agent.hook("onResponse")
    def redact(ctx):
        return ctx.response.replace(parts=(Text("the secret is safe"),))

    return agent


def goes_on():
    agent = agent_of("First.", "Second.")

    @agent.hook("preStop")
    def once(ctx):
        return Continue("and then?") if ctx.steps == 1 else None

    return agent


def stops():
    agent = agent_of("never said")
    agent.add_hook("preRequest", lambda ctx: Stop("budget", text="No money left."))
    return agent


def fails():
    return agent_of(RuntimeError("the model broke"), "It works again.")


def thinks():
    return agent_of(Turn(reasoning="I have to think.", text="Here it is."))


def sub_agents():
    inner = Agent(
        ScriptedModel(["Hidden text.", call("weather", city="Oslo")], "inner answer"),
        name="inner",
        tools=[weather],
    )
    model = ScriptedModel(call("inner", input="weather?"), "The outer answer.")
    return Agent(model, tools=[inner.as_tool()])
'''

STORE = ("--store", "sqlite:///chats.db", "--conversation", "ada")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "app.py").write_text(MODULE)
    return tmp_path


def chat(folder: Path, agent: str, *options: str, columns: int = 80, **env: str) -> Terminal:
    return in_terminal(folder, "chat", f"app:{agent}", *options, columns=columns, **env)


def ran(folder: Path) -> list[str]:
    path = folder / "ran.txt"
    return path.read_text().splitlines() if path.exists() else []


# ── talking ─────────────────────────────────────────────────────────────────────────────────


def test_messages_and_answers_alternate_until_ctrl_d(folder: Path) -> None:
    with chat(folder, "plain") as terminal:
        terminal.expect("helper (app:plain)")
        terminal.expect("› ")
        terminal.say("hi")
        terminal.expect("  Hello, Ada.\n")
        terminal.expect("› ")
        terminal.say("")  # an empty line says nothing
        terminal.expect("› ")
        terminal.say("bye")
        terminal.expect("  Good bye.\n")
        terminal.expect("› ")
        terminal.send("\x04")
        assert terminal.end() == 0


def test_deps_are_made_for_each_chat(folder: Path) -> None:
    with chat(folder, "knows", "--deps", "app:customer") as terminal:
        for name in ("Ada", "Bob"):
            terminal.expect("› ")
            terminal.say("hi")
            terminal.expect(f"  deps: {name}\n")
        terminal.expect("› ")
        terminal.send("\x04")
        assert terminal.end() == 0


def test_a_line_that_ends_with_a_backslash_goes_on(folder: Path) -> None:
    with chat(folder, "remembers") as terminal:
        terminal.expect("› ")
        terminal.say("one\\")
        terminal.expect("… ")
        terminal.say("two")
        terminal.expect("You said: one\n  two.")


def test_a_paste_of_several_lines_is_one_message(folder: Path) -> None:
    with chat(folder, "remembers") as terminal:
        terminal.expect("› ")
        terminal.say("\x1b[200~one\ntwo\x1b[201~")
        terminal.expect("You said: one\n  two.")


def test_calls_and_results_are_shown_and_calls_of_one_name_told_apart(folder: Path) -> None:
    with chat(folder, "tools") as terminal:
        terminal.expect("› ")
        terminal.say("weather?")
        terminal.expect('→ weather(city="Paris")\n')
        terminal.expect('→ weather#2(city="Rome")\n')
        terminal.expect('✓ weather "18 degrees"\n')
        terminal.expect('✓ weather#2 "18 degrees"\n')
        terminal.expect("  It is warm.\n")
        terminal.expect("› ")
        assert not any(line.startswith("·") for line in terminal.lines), "hooks, unasked for"


def test_waiting_is_shown_by_a_spinner_with_the_status_that_a_tool_reports(folder: Path) -> None:
    with chat(folder, "streams") as terminal:
        terminal.expect("› ")
        terminal.say("go")
        terminal.expect("thinking")
        terminal.expect("So far ")
        terminal.send("\x03")
        terminal.expect("› ")
        terminal.say("hang")
        terminal.expect("running hang")
        terminal.send("\x03")
        terminal.expect("› ")
    with chat(folder, "tools") as terminal:
        terminal.expect("› ")
        terminal.say("weather?")
        terminal.expect('asking: station="Paris"')
        terminal.expect("› ")
        assert not any("asking" in line for line in terminal.lines), "it does not stay"


def test_hooks_are_shown_in_the_order_in_which_they_fire(folder: Path) -> None:
    with chat(folder, "tools", "--hooks", "-m", "weather?") as terminal:
        assert terminal.end() == 0
        assert [" ".join(line.split()[:3]) for line in terminal.lines if line] == [
            "· preRequest be_brief",
            "· onDelta watch",
            '→ weather(city="Paris")',
            '→ weather#2(city="Rome")',
            '✓ weather "18',
            '✓ weather#2 "18',
            "· onStep noted",
            "· preRequest be_brief",
            "It is warm.",
            "· onDelta watch",
            "· prompt cache",
            "· onStep noted",
        ]


def test_reasoning_is_set_apart_from_the_answer(folder: Path) -> None:
    with chat(folder, "thinks", "-m", "go") as terminal:
        assert terminal.end() == 0
        assert terminal.lines == ["  I have to think.", "", "  Here it is."]


def test_what_a_hook_takes_back_is_said_to_be_taken_back(folder: Path) -> None:
    with chat(folder, "changes", "-m", "go") as terminal:
        assert terminal.end() == 0
        first, mark, second = terminal.lines
        assert (first, second) == ("  the secret is 42", "  the secret is safe")
        assert mark.startswith("↺ withdrawn")


def test_what_a_hook_says_in_the_users_place_is_shown(folder: Path) -> None:
    with chat(folder, "goes_on", "-m", "go") as terminal:
        assert terminal.end() == 0
        assert terminal.lines == ["  First.", "» and then?", "  Second."]


def test_a_stop_is_told_with_its_reason(folder: Path) -> None:
    with chat(folder, "stops", "-m", "go") as terminal:
        assert terminal.end() == 0
        assert terminal.lines == ["  No money left.", "■ stopped: budget"]


def test_calls_of_a_sub_agent_are_indented_and_its_text_is_not_the_answer(folder: Path) -> None:
    with chat(folder, "sub_agents", "-m", "go") as terminal:
        assert terminal.end() == 0
        assert terminal.lines == [
            '→ inner(input="weather?")',
            '  → weather(city="Oslo")',
            '  ✓ weather "18 degrees"',
            '✓ inner "inner answer"',
            "",
            "  The outer answer.",
        ]


def test_a_turn_that_fails_does_not_end_the_program(folder: Path) -> None:
    with chat(folder, "fails") as terminal:
        terminal.expect("› ")
        terminal.say("hi")
        terminal.expect("hookline: the chat failed with RuntimeError: the model broke")
        terminal.expect("› ")
        terminal.say("again")
        terminal.expect("  It works again.\n")


# ── a line typed into an answer ─────────────────────────────────────────────────────────────


def test_a_line_that_is_typed_while_the_answer_runs_is_sent_into_it(folder: Path) -> None:
    os.mkfifo(folder / "done")
    with chat(folder, "works") as terminal:
        terminal.expect("› ")
        terminal.say("go")
        terminal.expect("→ work()")
        terminal.send("Be ")
        terminal.say("brief.")
        terminal.expect("queued: Be brief.")
        (folder / "done").write_text("done")
        terminal.expect("» Be brief.")
        terminal.expect("You said: go and Be brief.")
        terminal.expect("› ")
        terminal.say("still there?")  # the terminal shows what is typed
        terminal.expect("still there?")
        terminal.expect("You said: go and Be brief. and still")


def test_lines_that_are_pasted_into_an_answer_are_one_message(folder: Path) -> None:
    os.mkfifo(folder / "done")
    with chat(folder, "works") as terminal:
        terminal.expect("› ")
        terminal.say("go")
        terminal.expect("→ work()")
        terminal.send("one\rtwo\rand the beginning of a line")
        terminal.expect("queued: one\\ntwo")
        (folder / "done").write_text("done")
        terminal.expect("You said: go and one\n  two.")
        terminal.expect("› and the beginning of a line")


def test_a_line_that_an_answer_has_not_taken_is_shown_as_not_delivered(folder: Path) -> None:
    with chat(folder, "refuses_nothing") as terminal:
        terminal.expect("› ")
        terminal.say("go")
        terminal.expect("→ hang()")
        terminal.say("hurry up")
        terminal.expect("queued: hurry up")
        terminal.send("\x03")
        terminal.expect("■ stopped: interrupted")
        terminal.expect("not delivered, the chat ended before the message was delivered: hurry up")
        terminal.expect("› ")


def test_ctrl_d_in_an_answer_leaves_after_it(folder: Path) -> None:
    os.mkfifo(folder / "done")
    with chat(folder, "works") as terminal:
        terminal.expect("› ")
        terminal.say("go")
        terminal.expect("→ work()")
        terminal.send("\x04")
        (folder / "done").write_text("done")
        terminal.expect("You said: go.")
        assert terminal.end() == 0


# ── Ctrl-C ──────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("how", ["typed", "signal"])
def test_ctrl_c_stops_the_answer_and_not_the_program(folder: Path, how: str) -> None:
    with chat(folder, "streams") as terminal:
        terminal.expect("› ")
        for word in ("So far so", "→ hang()"):
            terminal.say("go")
            terminal.expect(word)
            terminal.send("\x03") if how == "typed" else terminal.interrupt()
            terminal.expect("■ stopped: interrupted")
            terminal.expect("› ")
        terminal.say("still there?")
        terminal.expect("  Back again.\n")
        terminal.expect("› ")
        terminal.send("\x04")
        assert terminal.end() == 0


def test_ctrl_c_while_deps_are_made_stops_the_turn_and_not_the_program(folder: Path) -> None:
    with chat(folder, "knows", "--deps", "app:late_deps") as terminal:
        terminal.expect("› ")
        terminal.say("hi")
        terminal.expect("making deps")
        terminal.send("\x03")
        terminal.expect("■ stopped: interrupted")
        terminal.expect("› ")
        terminal.say("hi again")
        terminal.expect("  deps: Ada\n")
        terminal.expect("› ")
        terminal.send("\x04")
        assert terminal.end() == 0


def test_ctrl_c_twice_at_the_prompt_leaves(folder: Path) -> None:
    with chat(folder, "plain") as terminal:
        terminal.expect("› ")
        terminal.send("half a line")
        # Ctrl-C discards what was typed and not yet read: readline would then wait for a key and
        # look for no signal.
        terminal.expect("half a line")
        terminal.press_ctrl_c("Press Ctrl-C again, or Ctrl-D, to leave.")
        terminal.expect("› ")
        terminal.say("hi")  # the first one is forgotten
        terminal.expect("Hello, Ada.")
        terminal.expect("› ")
        terminal.press_ctrl_c("Press Ctrl-C again, or Ctrl-D, to leave.")
        terminal.expect("› ")
        terminal.press_ctrl_c("\n")
        assert terminal.end() == 130


def test_ctrl_c_ends_a_single_message_with_130(folder: Path) -> None:
    with chat(folder, "streams", "-m", "go") as terminal:
        terminal.expect("So far so")
        terminal.send("\x03")
        assert terminal.end() == 130
        # A terminal sends the signal before it echoes "^C": what answers it may be there first.
        assert terminal.text.replace("^C", "").endswith("\n■ stopped: interrupted\n")


@pytest.mark.parametrize("agent", ["refuses_to_end", "blocks"])
def test_a_second_ctrl_c_leaves_where_something_does_not_end(folder: Path, agent: str) -> None:
    with chat(folder, agent) as terminal:
        terminal.expect("› ")
        terminal.say("go")
        terminal.expect("begun")
        terminal.send("\x03")
        terminal.expect("not yet")
        terminal.send("\x03")
        assert terminal.end() == 130
        assert "Traceback" not in terminal.text


def test_sigterm_gives_the_cursor_back(folder: Path) -> None:
    with chat(folder, "streams", "-m", "go") as terminal:
        terminal.expect("So far so")
        terminal.process.send_signal(signal.SIGTERM)
        assert terminal.end() == 128 + signal.SIGTERM
    with chat(folder, "refuses_nothing", "-m", "go") as terminal:
        terminal.expect("running hang")
        terminal.process.send_signal(signal.SIGTERM)
        assert terminal.end() == 128 + signal.SIGTERM
        assert terminal.raw.rindex(b"\x1b[?25h") > terminal.raw.rindex(b"\x1b[?25l")


# ── approvals ───────────────────────────────────────────────────────────────────────────────


def test_what_is_approved_runs_once(folder: Path) -> None:
    with chat(folder, "asks") as terminal:
        terminal.expect("› ")
        terminal.say("delete it")
        before = terminal.expect("Run delete? [y/n/e] ")
        assert '│ Delete it?\n├ delete\n│   path = "a.txt"\n' in before
        assert ran(folder) == []
        terminal.say("maybe")  # no answer
        terminal.expect("y: run it.  n: refuse it.  e: edit the arguments.")
        terminal.expect("Run delete? [y/n/e] ")
        terminal.say("y")
        terminal.expect('✓ delete "a.txt is gone"')
        terminal.expect("That is settled.")
        assert ran(folder) == ["a.txt"]


def test_what_is_refused_never_runs_and_the_model_is_told_why(folder: Path) -> None:
    with chat(folder, "asks", *STORE) as terminal:
        terminal.expect("› ")
        terminal.say("delete it")
        terminal.expect("Run delete? [y/n/e] ")
        terminal.say("n")
        terminal.expect("Why not? ")
        terminal.say("I need it")
        terminal.expect("✗ delete denied: I need it")
        terminal.expect("› ")
        terminal.say("and now?")  # a further turn runs nothing either
        terminal.expect("Something else.")
        terminal.expect("› ")
        terminal.send("\x04")
        assert terminal.end() == 0
    assert ran(folder) == []


def test_edited_arguments_are_shown_again_and_are_what_runs(folder: Path) -> None:
    with chat(folder, "asks") as terminal:
        terminal.expect("› ")
        terminal.say("delete it")
        terminal.expect("Run delete? [y/n/e] ")
        terminal.say("e")
        terminal.expect('arguments: {"path": "a.txt"}')
        terminal.say("\x01\x0b[1]")  # to the beginning, delete the line, another
        terminal.expect("This is not a JSON object")
        terminal.expect("arguments: [1]")
        terminal.say('\x01\x0b{"path": "c.txt"}')
        terminal.expect('│   path = "c.txt"\n')
        terminal.expect("Run delete? [y/n/e] ")
        assert ran(folder) == []
        terminal.say("y")
        terminal.expect('✓ delete "c.txt is gone"')
    assert ran(folder) == ["c.txt"]


def test_each_of_several_questions_is_put(folder: Path) -> None:
    with chat(folder, "asks_twice", "-m", "delete them") as terminal:
        terminal.expect("May this run? (1 of 2)")
        terminal.expect("Run delete? [y/n/e] ")
        terminal.say("n")
        terminal.expect("Why not? ")
        terminal.say("")
        terminal.expect("May this run? (2 of 2)")
        terminal.expect("Run delete? [y/n/e] ")
        terminal.say("y")
        assert terminal.end() == 0
        assert "✗ delete denied: denied by the user" in terminal.text
    assert ran(folder) == ["b.txt"]


def test_ctrl_c_at_a_question_runs_nothing_and_enter_asks_again(folder: Path) -> None:
    with chat(folder, "asks") as terminal:
        terminal.expect("› ")
        terminal.say("delete it")
        terminal.expect("Run delete? [y/n/e] ")
        terminal.press_ctrl_c("Not answered: no waiting call has run.")
        terminal.expect("› ")
        terminal.say("")
        terminal.expect("Run delete? [y/n/e] ")
        terminal.press_ctrl_c("› ")
        terminal.say("another thing")  # a new message refuses what waits
        terminal.expect("That is settled.")
        terminal.expect("› ")
        terminal.say("")
        terminal.expect("› ")
    assert ran(folder) == []


def test_what_was_typed_before_a_question_does_not_answer_it(folder: Path) -> None:
    """Somebody types ahead, or pastes lines: a `y` among them is no approval."""
    with chat(folder, "asks", "-m", "delete it") as terminal:
        terminal.send("y\ry\ry\r")  # before there is a question
        terminal.expect("Run delete? [y/n/e] ")
        terminal.say("n")
        terminal.expect("Why not? ")
        terminal.say("typed ahead")
        assert terminal.end() == 0
    assert ran(folder) == []


def test_an_expired_question_is_not_put(folder: Path) -> None:
    with chat(folder, "expires") as terminal:
        terminal.expect("› ")
        terminal.say("delete it")
        terminal.expect("A question has expired: its tool call does not run.")
        terminal.expect("› ")
        terminal.say("well")
        terminal.expect("Never mind.")
    assert ran(folder) == []


# ── conversations that are kept ─────────────────────────────────────────────────────────────


def test_a_conversation_goes_on_in_another_process(folder: Path) -> None:
    with chat(folder, "remembers", *STORE) as terminal:
        terminal.expect("conversation ada: 0 messages")
        terminal.expect("› ")
        terminal.say("one")
        terminal.expect("You said: one.")
        terminal.expect("› ")
        terminal.send("\x04")
        assert terminal.end() == 0
    with chat(folder, "remembers", *STORE) as terminal:
        terminal.expect("conversation ada: 2 messages")
        terminal.expect("› ")
        terminal.say("two")
        terminal.expect("You said: one and two.")


@pytest.mark.parametrize("end", ["left", "killed"])
def test_a_question_outlives_its_process_and_is_asked_first(folder: Path, end: str) -> None:
    with chat(folder, "asks", *STORE) as terminal:
        terminal.expect("› ")
        terminal.say("delete it")
        terminal.expect("Run delete? [y/n/e] ")
        if end == "left":
            terminal.send("\x04")
            terminal.expect("no waiting call has run. You can answer later.")
            assert terminal.end() == 0
        else:
            os.kill(terminal.process.pid, signal.SIGKILL)
            assert terminal.end() == -signal.SIGKILL
    assert ran(folder) == []
    with chat(folder, "resumes", *STORE) as terminal:
        assert "› " not in terminal.expect("Run delete? [y/n/e] ")
        terminal.say("y")
        terminal.expect('✓ delete "a.txt is gone"')
        terminal.expect("That is settled.")
        terminal.expect("› ")
        terminal.send("\x04")
        assert terminal.end() == 0
    assert ran(folder) == ["a.txt"]


def test_a_store_without_an_id_begins_a_conversation_and_names_it(folder: Path) -> None:
    with chat(folder, "remembers", "--store", "sqlite:///chats.db") as terminal:
        terminal.expect("conversation ")
        id = terminal.expect(": 0 messages")
        terminal.expect("› ")
        terminal.say("one")
        terminal.expect("You said: one.")
        terminal.expect("› ")
        terminal.send("\x04")
        assert terminal.end() == 0
    store = ("--store", "sqlite:///chats.db", "--conversation", id)
    with chat(folder, "remembers", *store, "-m", "two") as terminal:
        assert terminal.end() == 0
        assert terminal.lines == ["  You said: one and two."]
