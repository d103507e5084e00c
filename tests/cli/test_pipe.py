"""`hookline chat` in pipes and scripts: one message, plain output, JSON, and what goes wrong."""

from __future__ import annotations

import asyncio
import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from tests._programs import run
from tests._terminal import Terminal, environment, program
from tests.wire import Wire, WireServer

from hookline.events import ChatDone, read_event

MODULE = r'''
import asyncio

from hookline import Agent, Ask, Run, Limits
from hookline.errors import AuthenticationError, RateLimitError
from hookline.testing import ScriptedModel, Turn, call


async def weather(city: str, run: Run) -> str:
    """The weather."""
    await run.status("asking", "a station")
    return "18 degrees"


async def delete(path: str) -> str:
    """Delete a file."""
    open("ran.txt", "w").close()
    return "gone"


def agent_of(*turns, **more):
    return Agent(ScriptedModel(*turns), tools=[weather, delete], **more)


agent = agent_of(["I look.", call("weather", city="Paris")], "It is warm.\nVery.")
echo = agent_of(lambda request: f"You said: {request.messages[-1].text}")
talks = agent_of(*[lambda request: f"You said: {request.messages[-1].text}"] * 9)
fails = agent_of(RuntimeError("the model\nbroke"))
half = agent_of(Turn("Half an answer", fail=RuntimeError("cut")))
key = agent_of(AuthenticationError("openai: 401, no such key", provider="openai"))
limited = agent_of(RateLimitError("openai: 429", provider="openai", retry_after=7.0))
long = agent_of(Turn("word " * 9000, chunk=5))
endless = agent_of(*[[call("weather", city="Paris")]] * 9, limits=Limits(steps=2))
hooked = agent_of("never said")
number = 3


@hooked.hook("preRequest", name="guard")
def guard(ctx):
    raise ValueError("not today")


warns = agent_of("Hello.")


@warns.hook("onMessage", name="broken", on_error="log")
def broken_hook(ctx):
    raise ValueError("oops")


def asks():
    agent = agent_of(call("delete", path="a.txt"), "Then I keep it.")
    agent.add_hook("preToolCall", lambda ctx: Ask("Delete it?"), tools=["delete"])
    return agent


def expires():
    agent = agent_of(call("delete", path="a.txt"))
    agent.add_hook("preToolCall", lambda ctx: Ask("?", expires=0.000001), tools=["delete"])
    return agent


def settles():
    """The same in a later process: the model has two things left to say."""
    agent = agent_of("It is gone.", "All is well.")
    agent.add_hook("preToolCall", lambda ctx: Ask("Delete it?"), tools=["delete"])
    return agent


async def for_ever():
    print("asked", flush=True)
    await asyncio.Event().wait()


hangs = agent_of(Turn("never", delay=for_ever))


async def make_later():
    return agent_of("Made later.")


knows = agent_of(lambda request: request.system, system=lambda run: f"deps: {run.deps}")
shop = "a shop"
shops = []


async def open_shop():
    shops.append("shop")
    return f"shop {len(shops)}"


class Shop:
    def __str__(self):
        return "a Shop"


async def no_shop():
    raise LookupError("it is closed")


def broken():
    raise LookupError("no configuration")
'''


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "app.py").write_text(MODULE)
    (tmp_path / "breaks.py").write_text("import nothing_of_this_name\n")
    (tmp_path / "typo.py").write_text("def (:\n")
    return tmp_path


# ── plain output ────────────────────────────────────────────────────────────────────────────


def test_stdout_is_the_answer_alone_and_the_rest_is_on_stderr(folder: Path) -> None:
    done = run(folder, "chat", "app:agent", "--hooks", stdin="weather?\n")
    assert (done.returncode, done.stdout) == (0, "It is warm.\nVery.\n")
    assert done.stderr.splitlines() == [
        "  I look.",
        '→ weather(city="Paris")',
        "  asking: a station",
        '✓ weather "18 degrees"',
        "· prompt cache 62% of the request reusable",
    ]


def test_all_of_stdin_is_one_message(folder: Path) -> None:
    done = run(folder, "chat", "app:echo", stdin="one\ntwo\n\n")
    assert done.stdout == "You said: one\ntwo\n"


def test_with_a_message_stdin_is_left_alone(folder: Path) -> None:
    """A pipe that is never closed would hold it up, and a loop around it would lose its lines."""
    ours, theirs = os.pipe()
    try:
        done = subprocess.run(
            program("chat", "app:echo", "--message", "hi"),
            cwd=folder,
            env=environment(),
            stdin=ours,
            capture_output=True,
            text=True,
            timeout=50,
        )
    finally:
        os.close(ours)
        os.close(theirs)
    assert (done.returncode, done.stdout) == (0, "You said: hi\n")


def test_a_message_may_be_like_an_option(folder: Path) -> None:
    done = run(folder, "chat", "app:echo", "-m", "--hooks")
    assert (done.returncode, done.stdout) == (0, "You said: --hooks\n")


def test_a_message_may_begin_with_a_hyphen(folder: Path) -> None:
    assert run(folder, "chat", "app:echo", "-m", "- one").stdout == "You said: - one\n"


def test_a_closed_stdin_is_an_empty_one(folder: Path) -> None:
    command = " ".join(program("chat", "app:echo"))
    for message, status in (("", 2), (" -m hi", 0)):
        done = subprocess.run(
            ["/bin/sh", "-c", f"{command}{message} <&-"],
            cwd=folder,
            env=environment(),
            capture_output=True,
            text=True,
            timeout=50,
        )
        assert done.returncode == status, done.stderr


@pytest.mark.parametrize(
    ("closed", "out", "err"),
    [(">&-", "", ""), ("2>&-", "You said: hi\n", ""), (">&- 2>&-", "", "")],
    ids=["stdout", "stderr", "both"],
)
def test_a_closed_stdout_or_stderr_swallows_what_would_be_there(
    folder: Path, closed: str, out: str, err: str
) -> None:
    command = " ".join(program("chat", "app:echo", "-m", "hi"))
    done = subprocess.run(
        ["/bin/sh", "-c", f"{command} {closed}"],
        cwd=folder,
        env=environment(),
        capture_output=True,
        text=True,
        timeout=50,
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, out, err)


def test_what_hookline_logs_is_a_note_and_the_modules_own_logging_stays(folder: Path) -> None:
    done = run(folder, "chat", "app:warns", "-m", "hi")
    assert "hookline: hook 'broken' at onMessage raised" in done.stderr
    (folder / "logs.py").write_text(
        "import logging\nfrom app import warns\nlogging.basicConfig(format='mine %(message)s')\n"
    )
    done = run(folder, "chat", "logs:warns", "-m", "hi")
    lines = [line for line in done.stderr.splitlines() if "broken" in line]
    assert lines
    assert all(line.startswith("mine hook 'broken'") for line in lines)


def test_a_pipe_has_no_escape_sequences_even_where_colours_are_forced(folder: Path) -> None:
    done = run(folder, "chat", "app:agent", "-m", "hi", FORCE_COLOR="1", CLICOLOR_FORCE="1")
    assert "\x1b" not in done.stdout + done.stderr


def test_an_answer_that_broke_off_is_not_on_stdout(folder: Path) -> None:
    done = run(folder, "chat", "app:half", "-m", "hi")
    assert (done.returncode, done.stdout) == (1, "")
    assert "RuntimeError: cut" in done.stderr


def test_what_nobody_can_be_asked_about_is_denied(folder: Path) -> None:
    done = run(folder, "chat", "app:asks", "-m", "delete it")
    assert (done.returncode, done.stdout) == (0, "Then I keep it.\n")
    assert "✗ delete denied: this call needs an approval" in done.stderr
    assert not (folder / "ran.txt").exists()


@pytest.mark.slow
def test_with_a_store_the_question_waits_for_a_terminal(folder: Path) -> None:
    store = ("--store", "sqlite:///chats.db", "--conversation", "ada")
    for message in ("delete it", "and now?"):  # the second does not refuse it in silence
        done = run(folder, "chat", "app:asks", *store, "-m", message)
        assert (done.returncode, done.stdout) == (3, "")
        assert (
            "waiting for an approval (delete); to answer, run in a terminal: hookline chat"
            in done.stderr
        )
        assert "--conversation ada --store sqlite:///chats.db" in done.stderr
    assert not (folder / "ran.txt").exists()
    with Terminal(program("chat", "app:settles", *store, "-m", "well?"), folder) as terminal:
        terminal.expect("Run delete? [y/n/e] ")
        terminal.say("y")
        terminal.expect('✓ delete "gone"')
        assert terminal.end() == 0
        assert terminal.lines[-2:] == ["  It is gone.", "  All is well."]
    assert (folder / "ran.txt").exists()


@pytest.mark.slow
def test_a_question_that_has_expired_waits_for_nobody(folder: Path) -> None:
    store = ("--store", "sqlite:///chats.db", "--conversation", "ada")
    run(folder, "chat", "app:expires", *store, "-m", "delete it")
    done = run(folder, "chat", "app:talks", *store, "-m", "and now?")
    assert (done.returncode, done.stdout) == (0, "You said: and now?\n")
    assert "A question has expired: its tool call does not run." in done.stderr
    assert not (folder / "ran.txt").exists()


def test_who_answers_a_waiting_call_is_told_the_servers_too(folder: Path) -> None:
    (folder / "none.json").write_text('{"mcpServers": {}}')
    (folder / "more.json").write_text('{"mcpServers": {}}')
    servers = ("--mcp", "none.json", "--mcp", "more.json")
    done = run(folder, "chat", "app:asks", *servers, "--store", "sqlite:///chats.db", "-m", "go")
    assert done.returncode == 3
    assert " --mcp none.json --mcp more.json " in done.stderr


def test_a_password_in_the_url_of_a_store_is_not_told(folder: Path, postgres: str) -> None:
    place = postgres.rpartition("@")[2]
    url = f"postgresql://postgres:hunter2@{place}"
    done = run(folder, "chat", "app:asks", "--store", url, "-m", "go")
    assert done.returncode == 3, done.stderr
    assert f"--store 'postgresql://postgres:…@{place}'" in done.stderr
    assert "hunter2" not in done.stdout + done.stderr


def test_the_url_of_a_file_is_told_whole(folder: Path) -> None:
    done = run(folder, "chat", "app:asks", "--store", "sqlite:///a:b@c.db", "-m", "go")
    assert done.returncode == 3, done.stderr
    assert "--store sqlite:///a:b@c.db" in done.stderr


def test_a_question_is_put_on_stderr_where_only_stdout_is_piped(folder: Path) -> None:
    shell = f"{' '.join(program('chat', 'app:asks', '-m', 'go'))} > answer.txt"
    with Terminal(["/bin/sh", "-c", shell], folder) as terminal:
        terminal.expect("Run delete? [y/n/e] ")
        terminal.say("n")
        terminal.expect("Why not? ")
        terminal.say("no")
        assert terminal.end() == 0
    assert (folder / "answer.txt").read_text() == "Then I keep it.\n"


def test_a_conversation_of_which_the_answers_are_piped_on(folder: Path) -> None:
    shell = f"{' '.join(program('chat', 'app:talks'))} | tee answers.txt"
    with Terminal(["/bin/sh", "-c", shell], folder) as terminal:
        terminal.expect("› ")
        for message in ("one", "two"):
            terminal.say(message)
            terminal.expect(f"You said: {message}\n")  # before the next prompt or after it
        terminal.send("\x04")
        assert terminal.end() == 0
    assert (folder / "answers.txt").read_text() == "You said: one\nYou said: two\n"


def test_a_sigint_ends_it_with_130(folder: Path) -> None:
    process = subprocess.Popen(
        program("chat", "app:hangs", "-m", "go"),
        cwd=folder,
        env=environment(),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "asked\n"
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=50)
    assert (process.returncode, out) == (130, "")
    assert err == "■ stopped: interrupted\n"


def test_head_ends_it_without_a_traceback(folder: Path) -> None:
    command = " ".join(program("hooks", "app:hooked", "--all"))
    done = subprocess.run(
        ["/bin/sh", "-c", f"{command} | true"],
        cwd=folder,
        env=environment(),
        capture_output=True,
        text=True,
        timeout=50,
    )
    assert "Traceback" not in done.stderr


def test_head_ends_a_chat_without_an_error(folder: Path) -> None:
    command = " ".join(program("chat", "app:long", "-m", "hi", "--output", "json"))
    done = subprocess.run(
        ["/bin/sh", "-c", f"{command} | head -n 1"],
        cwd=folder,
        env=environment(),
        capture_output=True,
        text=True,
        timeout=50,
    )
    assert json.loads(done.stdout)["event"] == "chat_started"
    assert done.stderr == ""


# ── JSON ────────────────────────────────────────────────────────────────────────────────────


def test_json_is_every_event_and_hook_as_a_line(folder: Path) -> None:
    done = run(folder, "chat", "app:agent", "-m", "hi", "--output", "json", "--hooks")
    lines = done.stdout.splitlines()
    ours = ("hook", "prefix")
    events = [read_event(line) for line in lines if json.loads(line)["event"] not in ours]
    assert [event.seq for event in events] == list(range(1, len(events) + 1))
    last = events[-1]
    assert isinstance(last, ChatDone)
    assert last.response.text == "It is warm.\nVery."
    assert (done.returncode, done.stderr) == (0, "")


def test_json_tells_hooks_as_the_web_protocol_does(folder: Path) -> None:
    done = run(folder, "chat", "app:hooked", "-m", "hi", "--output", "json", "--hooks")
    (hook,) = [
        each for each in map(json.loads, done.stdout.splitlines()) if each["event"] == "hook"
    ]
    assert hook.pop("duration") >= 0
    assert hook.pop("chat_id")
    assert hook == {"event": "hook", "point": "preRequest", "hook": "guard", "outcome": "raised"}
    assert json.loads(done.stdout.splitlines()[-1])["event"] == "chat_failed"
    assert done.returncode == 1


def test_hooks_shows_what_of_a_request_a_prompt_cache_can_reuse(folder: Path) -> None:
    done = run(folder, "chat", "app:agent", "-m", "hi", "--output", "json", "--hooks")
    lines = map(json.loads, done.stdout.splitlines())
    (figure,) = [line for line in lines if line["event"] == "prefix"]
    assert 0 < figure.pop("share") < 1
    assert figure.pop("chat_id")
    assert figure == {"event": "prefix", "iteration": 1, "lost": 0, "differs": None, "hook": None}
    text = run(folder, "chat", "app:agent", "-m", "hi", "--hooks").stderr
    assert re.search(r"· prompt cache \d+% of the request reusable", text)


def test_json_is_ascii(folder: Path) -> None:
    message = "\x1b[31m \x9b \u202e \x7f 漢"
    done = run(folder, "chat", "app:echo", "-m", message, "--output", "json")
    assert all(0x20 <= ord(char) < 0x7F or char == "\n" for char in done.stdout)
    last = read_event(done.stdout.splitlines()[-1])
    assert isinstance(last, ChatDone)
    assert last.response.text == f"You said: {message}"


# ── deps ────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("options", "answer"),
    [
        pytest.param([], "deps: None", id="none"),
        pytest.param(["--deps", "app:shop"], "deps: a shop", id="a value"),
        pytest.param(["--deps", "app:open_shop"], "deps: shop 1", id="an async function"),
        pytest.param(["--deps", "app:Shop"], "deps: a Shop", id="a class"),
    ],
)
def test_a_chat_gets_the_deps_that_are_named(folder: Path, options: list[str], answer: str) -> None:
    done = run(folder, "chat", "app:knows", *options, "-m", "hi")
    assert (done.returncode, done.stdout, done.stderr) == (0, f"{answer}\n", "")


def test_who_answers_a_waiting_call_is_told_the_deps_too(folder: Path) -> None:
    store = ("--store", "sqlite:///chats.db", "--conversation", "ada")
    done = run(folder, "chat", "app:asks", "--deps", "app:shop", *store, "-m", "delete it")
    assert done.returncode == 3
    assert "hookline chat app:asks --deps app:shop --conversation ada" in done.stderr


# ── what goes wrong ─────────────────────────────────────────────────────────────────────────

WRONG = [
    pytest.param(["app"], 2, "'app' must be module:attribute", id="no attribute"),
    pytest.param(["nowhere:agent"], 2, "there is no module 'nowhere' in", id="no module"),
    pytest.param(["app.py:agent"], 2, "a module, not a file: try app:agent", id="a file"),
    pytest.param(
        ["app:other"],
        2,
        "has no 'other'; name one of its agents: app:agent, app:echo",
        id="no name",
    ),
    pytest.param(["app:number"], 2, "app:number must be an Agent, not a int", id="no agent"),
    pytest.param(["app:broken"], 2, "app:broken() raised LookupError: no conf", id="a factory"),
    pytest.param(
        ["app:delete"], 2, "the function is called without arguments", id="needs arguments"
    ),
    pytest.param(["breaks:agent"], 2, "needs nothing_of_this_name, which is not", id="imports"),
    pytest.param(["typo:agent"], 2, "raised SyntaxError", id="syntax"),
    pytest.param([], 2, "name an agent, as in", id="nothing"),
    pytest.param(["app:knows", "--deps", "app"], 2, "(named by --deps app)", id="deps: no name"),
    pytest.param(
        ["app:knows", "--deps", "app:shpo"],
        2,
        "module 'app' has no 'shpo'; name one of its variables or functions (named by --deps app:",
        id="deps: another name",
    ),
    pytest.param(
        ["app:knows", "--deps", "breaks:shop"],
        2,
        "(named by --deps breaks:shop)",
        id="deps: imports",
    ),
    pytest.param(
        ["app:knows", "--deps", "app:no_shop"],
        2,
        "--deps app:no_shop() raised LookupError: it is closed; the function is called for",
        id="deps: raises",
    ),
    pytest.param(
        ["--model", "gpt"], 2, "begin with a provider; use one of: openai:…", id="no provider"
    ),
    pytest.param(["--model", "opnai:x"], 2, "there is no provider 'opnai'", id="wrong provider"),
    pytest.param(
        ["--model", "openai:x"], 2, "no API key for openai: set OPENAI_API_KEY", id="no key"
    ),
    pytest.param(["app:agent", "--conversation", "a"], 2, "add --store sqlite:///", id="no store"),
    pytest.param(["app:agent", "--store", "x:y"], 2, "there is no store for this URL", id="store"),
    pytest.param(["app:agent", "--hoks"], 2, "Unknown option: --hoks", id="an option"),
    pytest.param(["app:agent", "--output", "xml"], 2, "Choose from", id="a choice"),
    pytest.param(["app:fails"], 1, "failed with RuntimeError: the model broke;", id="a model"),
    pytest.param(["app:key"], 1, "401, no such key", id="a wrong key"),
    pytest.param(["app:limited"], 1, "429; try again in 7 s", id="a limit"),
    pytest.param(["app:endless"], 1, "Limits.steps=2); raise the limit", id="steps"),
    pytest.param(["app:hooked"], 1, "ValueError: not today (raised by hook 'guard'", id="a hook"),
]


@pytest.mark.parametrize(("arguments", "status", "words"), WRONG)
def test_what_goes_wrong_is_told_in_one_line(
    folder: Path, arguments: list[str], status: int, words: str
) -> None:
    env = {"OPENAI_API_KEY": "", "OPENAI_BASE_URL": ""}
    done = run(folder, "chat", *arguments, "-m", "hi", **env)
    assert done.returncode == status, done.stderr
    line = done.stderr.splitlines()[-1]
    assert words in line
    assert line.startswith("hookline: ")
    assert "Traceback" not in done.stderr
    assert done.stdout == ""


@pytest.mark.parametrize("target", ["app:fails", "breaks:agent", "app:broken"])
def test_debug_shows_the_traceback(folder: Path, target: str) -> None:
    done = run(folder, "chat", target, "-m", "hi", "--debug")
    assert "Traceback (most recent call last)" in done.stderr


@pytest.mark.parametrize("text", ["", " \n"])
def test_an_empty_message_is_refused(folder: Path, text: str) -> None:
    done = run(folder, "chat", "app:agent", stdin=text)
    assert done.returncode == 2
    assert "the message is empty" in done.stderr


def test_an_agent_may_be_made_by_an_async_function(folder: Path) -> None:
    assert run(folder, "chat", "app:make_later", "-m", "hi").stdout == "Made later.\n"


@pytest.mark.parametrize(
    ("missing", "arguments", "line"),
    [
        ("cyclopts", ["chat", "app:agent"], "pip install 'hookline[cli]'"),
        ("rich", ["hooks", "app:agent"], "pip install 'hookline[cli]'"),
        ("cyclopts", ["serve", "app:agent"], "pip install 'hookline[cli,web]'"),
        ("uvicorn", ["serve", "app:agent"], "pip install 'hookline[cli,web]'"),
    ],
)
def test_a_missing_extra_is_named_with_the_line_that_installs_it(
    folder: Path, missing: str, arguments: list[str], line: str
) -> None:
    code = (
        "import sys\n"
        "class Gone:\n"
        "    def find_spec(self, name, path=None, target=None):\n"
        f"        if name.partition('.')[0] == {missing!r}:\n"
        "            raise ModuleNotFoundError(name, name=name)\n"
        "sys.meta_path.insert(0, Gone())\n"
        "from hookline.cli import main\n"
        f"sys.exit(main({arguments!r}))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=folder,
        env=environment(),
        capture_output=True,
        text=True,
        timeout=50,
    )
    assert done.returncode == 2
    assert missing in done.stderr
    assert line in done.stderr
    assert len(done.stderr.splitlines()) == 1


# ── models by name ──────────────────────────────────────────────────────────────────────────


async def piped(folder: Path, *arguments: str, **env: str) -> tuple[int, str, str]:
    """The command beside a server that runs in this loop."""
    done = await asyncio.to_thread(run, folder, *arguments, **env)
    return done.returncode, done.stdout, done.stderr


@pytest.mark.parametrize("target", [[], ["app:agent"]], ids=["without an agent", "of an agent"])
async def test_a_model_is_named_on_the_command_line(folder: Path, target: list[str]) -> None:
    async with WireServer("openai", "Hello from the wire.") as server:
        env = {"OPENAI_API_KEY": "any", "OPENAI_BASE_URL": server.url}
        chosen = ["chat", *target, "--model", "openai:gpt-x", "-m", "hi", "--hooks"]
        status, out, err = await piped(folder, *chosen, **env)
        assert (status, out, err) == (0, "Hello from the wire.\n", "")
        assert server.requests[0].json["model"] == "gpt-x"


async def test_an_error_of_the_provider_is_one_line(folder: Path) -> None:
    async with WireServer("openai", Wire(status=401, message="no such key")) as server:
        env = {"OPENAI_API_KEY": "any", "OPENAI_BASE_URL": server.url}
        status, out, err = await piped(folder, "chat", "--model", "openai:x", "-m", "hi", **env)
        assert (status, out) == (1, "")
        assert len(err.splitlines()) == 1
        assert err.count("heck the key") == 1
