"""`hookline init`, `hookline conversations`, `--resume`: where a user begins, and begins again."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from tests._programs import in_terminal, run
from tests._terminal import environment

from hookline import Conversation
from hookline.cli import main

AGENT = """
from hookline import Agent
from hookline.testing import ScriptedModel

agent = Agent(ScriptedModel(*["Hello."] * 9))
"""


def test_init_writes_an_agent_whose_test_runs(tmp_path: Path) -> None:
    done = run(tmp_path, "init", "mine")
    assert done.returncode == 0, done.stderr
    assert "hookline chat app:agent" in done.stdout
    folder = tmp_path / "mine"
    ran = subprocess.run(
        [sys.executable, "test_app.py"], cwd=folder, capture_output=True, text=True
    )
    assert (ran.returncode, ran.stdout) == (0, "fine\n"), ran.stderr
    told = run(folder, "hooks", "app:agent")
    assert "ask_first" in told.stdout


def test_the_test_that_init_writes_calls_no_real_model(tmp_path: Path) -> None:
    assert run(tmp_path, "init").returncode == 0
    nowhere = {"OPENAI_API_KEY": "any", "OPENAI_BASE_URL": "http://127.0.0.1:9/v1"}
    ran = subprocess.run(
        [sys.executable, "test_app.py"],
        cwd=tmp_path,
        env={**environment(), **nowhere, "HOOKLINE_MODEL": "openai:gpt-5-mini"},
        capture_output=True,
        text=True,
    )
    assert (ran.returncode, ran.stdout) == (0, "fine\n"), ran.stderr


def test_what_init_writes_is_talked_to(tmp_path: Path) -> None:
    assert run(tmp_path, "init").returncode == 0
    with in_terminal(tmp_path, "chat", "app:agent") as terminal:
        terminal.expect("› ")
        terminal.say("Do I need a hat?")
        terminal.expect("Run weather? [y/n/e] ")
        terminal.send("y")  # one key
        terminal.expect("18 degrees")


async def test_each_conversation_with_the_scripted_model_of_init_asks(tmp_path: Path) -> None:
    assert await asyncio.to_thread(main, ["init", str(tmp_path)]) == 0
    names: dict[str, Any] = {}
    exec((tmp_path / "app.py").read_text(), names)
    for conversation in (Conversation(), Conversation()):
        response = await names["agent"].chat("Do I need a hat?", conversation=conversation)
        assert [request.call.name for request in response.pending] == ["weather"]


def test_init_changes_no_file(tmp_path: Path) -> None:
    (tmp_path / "app.py").write_text("mine")
    done = run(tmp_path, "init")
    assert done.returncode == 2
    assert "app.py already exists" in done.stderr
    assert (tmp_path / "app.py").read_text() == "mine"
    assert not (tmp_path / "test_app.py").exists()


@pytest.mark.slow
def test_conversations_are_listed_and_the_last_is_resumed(tmp_path: Path) -> None:
    (tmp_path / "demo.py").write_text(AGENT)
    store = ("--store", "sqlite:///chats.db")
    none = run(tmp_path, "chat", "demo:agent", "-m", "Hi", *store, "--resume")
    assert none.returncode == 2
    assert "no conversation" in none.stderr
    for id in ("first", "second"):
        done = run(tmp_path, "chat", "demo:agent", "-m", "Hi", "--conversation", id, *store)
        assert done.returncode == 0, done.stderr
    listed = run(tmp_path, "conversations", "sqlite:///chats.db").stdout.splitlines()
    assert [line.split()[2] for line in listed] == ["second", "first"]
    assert all(line.endswith("2 messages  Hi") for line in listed)
    again = run(tmp_path, "chat", "demo:agent", "-m", "More", *store, "--resume")
    assert again.returncode == 0, again.stderr
    found = run(tmp_path, "conversations", "sqlite:///chats.db", "--output", "json").stdout
    assert {each["id"]: each["messages"] for each in json.loads(found)} == {"second": 4, "first": 2}


@pytest.mark.slow
def test_a_title_is_what_the_hooks_have_left_of_the_first_words(tmp_path: Path) -> None:
    agent = 'Agent(ScriptedModel(*["Hello."] * 9), hooks=redact(values=["hunter2"]))'
    redacting = AGENT.partition("agent =")[0] + "from hookline.hooks import redact\n"
    redacting += f"agent = {agent}\n"
    (tmp_path / "demo.py").write_text(redacting)
    store = ("--store", "sqlite:///chats.db")
    for text in ("My password is\nhunter2.", "And more."):
        done = run(tmp_path, "chat", "demo:agent", "-m", text, *store, "--conversation", "a")
        assert done.returncode == 0, done.stderr
    (line,) = run(tmp_path, "conversations", "sqlite:///chats.db").stdout.splitlines()
    assert "4 messages  My password is" in line
    assert b"hunter2" not in (tmp_path / "chats.db").read_bytes()


def test_resume_needs_a_store(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "demo.py").write_text(AGENT)
    done = run(tmp_path, "chat", "demo:agent", "-m", "Hi", "--resume")
    assert done.returncode == 2
    assert "--resume needs a store" in done.stderr


def test_what_was_typed_is_there_in_the_next_chat(tmp_path: Path) -> None:
    (tmp_path / "demo.py").write_text(AGENT)
    path = tmp_path / "state" / "history"
    for _ in range(2):
        with in_terminal(tmp_path, "chat", "demo:agent", HOOKLINE_HISTORY=str(path)) as terminal:
            terminal.expect("› ")
            if path.exists():
                terminal.send("\x1b[A")  # arrow up
                terminal.expect("remember me")
                break
            terminal.say("remember me")
            terminal.expect("Hello.")
            terminal.expect("› ")
    assert path.stat().st_mode & 0o777 == 0o600
    assert path.read_text() == "remember me\n"


def test_reload_and_workers_exclude_each_other(capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["serve", "x:y", "--reload", "--workers", "2", "--relay", "redis://localhost"]
    assert main(arguments) == 2
    assert "--reload serves from one process" in capsys.readouterr().err


class Server:
    """The process of a server that ends when it has been waited for."""

    def __init__(self, told: list[object]) -> None:
        self.told = told
        told.append("begin")

    def poll(self) -> None:
        return None

    def terminate(self) -> None:
        self.told.append("terminate")

    def kill(self) -> None:
        self.told.append("kill")

    def wait(self, seconds: float | None = None) -> None:
        self.told += [] if seconds is None else [seconds]


@pytest.fixture
def looks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[list[Callable[[], object]]]:
    """What happens in the folder before each look of `--reload` for changes; then one ends it."""
    steps: list[Callable[[], object]] = []

    def sleep(seconds: float) -> None:
        if not steps:
            raise KeyboardInterrupt
        steps.pop(0)()

    (tmp_path / "demo.py").write_text(AGENT)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("time.sleep", sleep)
    handlers = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGHUP)}
    yield steps
    for number, handler in handlers.items():
        signal.signal(number, handler)


def reloading(monkeypatch: pytest.MonkeyPatch) -> list[object]:
    """What `hookline serve --reload` does to its servers until it is interrupted."""
    told: list[object] = []
    monkeypatch.setattr("subprocess.Popen", lambda *_, **__: Server(told))
    with suppress(KeyboardInterrupt):
        main(["serve", "demo:agent", "--reload", "--drain", "60"])
    return told


def test_a_server_is_restarted_when_a_python_file_that_is_ours_changes(
    tmp_path: Path, looks: list[Callable[[], object]], monkeypatch: pytest.MonkeyPatch
) -> None:
    def others() -> None:
        for name in ("node_modules", ".venv", "__pycache__"):
            (tmp_path / name).mkdir()
            (tmp_path / name / "x.py").write_text("1")
        (tmp_path / "notes.txt").write_text("1")

    looks += [others, lambda: None]
    assert reloading(monkeypatch).count("begin") == 1
    looks += [lambda: os.utime(tmp_path / "demo.py", ns=(1, 1)), lambda: None]
    assert reloading(monkeypatch).count("begin") == 2
    looks += [lambda: (tmp_path / "new.py").write_text("2"), (tmp_path / "new.py").unlink]
    assert reloading(monkeypatch).count("begin") == 3


def test_a_reload_waits_for_the_whole_drain_time(
    tmp_path: Path, looks: list[Callable[[], object]], monkeypatch: pytest.MonkeyPatch
) -> None:
    looks.append((tmp_path / "new.py").touch)
    begin, terminate, seconds, *_ = told = reloading(monkeypatch)
    assert (begin, terminate) == ("begin", "terminate")
    assert isinstance(seconds, float)
    assert seconds > 60.0
    assert "kill" not in told


@pytest.mark.parametrize(
    ("option", "words"),
    [
        ("--port=65536", "--port 65536 must be from 0 to 65535"),
        ("--drain=-1", "--drain -1 must be"),
        ("--drain=inf", "--drain inf must be"),
    ],
)
def test_numbers_that_cannot_be_are_refused(
    option: str,
    words: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    text = "from hookline import Agent\nfrom hookline.testing import ScriptedModel\n"
    (tmp_path / "app_of_numbers.py").write_text(f"{text}agent = Agent(ScriptedModel('Hi.'))\n")
    assert main(["serve", "app_of_numbers:agent", option]) == 2
    assert words in capsys.readouterr().err
