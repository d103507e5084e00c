"""The examples that are more than a script: at a terminal, under uvicorn, with a collector of one's
own, and the plugin, built and installed. What each prints by itself is in test_examples.py.
"""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import sysconfig
import venv
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from ._otlp import http_receiver

ROOT = Path(__file__).parent.parent
PLACE = ROOT / "examples"
PLUGIN = PLACE / "13_petty_cash_plugin"


def run(*command: str | Path, cwd: Path, **env: str) -> str:
    """What a program prints; it must end well."""
    done = subprocess.run(
        command, cwd=cwd, env={**os.environ, **env}, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


# ── 07: a terminal ──────────────────────────────────────────────────────────────────────────


def _hears_ctrl_c() -> None:
    """In the program: a signal that is ignored around the tests is not ignored there."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


class Terminal:
    """Somebody at a terminal, in which an example runs."""

    def __init__(self, path: Path, cwd: Path) -> None:
        pty: Any = pytest.importorskip("pty")
        self.keyboard, theirs = pty.openpty()
        self.process = subprocess.Popen(
            [sys.executable, "-W", "error", path],
            cwd=cwd,
            stdin=theirs,
            stdout=theirs,
            stderr=theirs,
            env={**os.environ, "TERM": "dumb"},
            preexec_fn=_hears_ctrl_c,
        )
        os.close(theirs)
        self.unread = b""

    def see(self, text: str) -> None:
        """Read until that has been printed."""
        while text.encode() not in self.unread:
            self.unread += os.read(self.keyboard, 4096)  # at the end of the program: an OSError
        self.unread = self.unread.partition(text.encode())[2]

    def type(self, line: str) -> None:
        os.write(self.keyboard, line.encode())


def test_ctrl_c_stops_an_answer_and_the_next_one_comes(tmp_path: Path) -> None:
    terminal = Terminal(PLACE / "07_terminal.py", tmp_path)
    try:
        terminal.see("> ")
        terminal.type("Tell me more.\n")
        terminal.see("It is even")
        terminal.process.send_signal(signal.SIGINT)
        terminal.see("(stopped)")
        terminal.see("> ")
        terminal.type("What is 6 times 7?\n")
        for text in ("[multiply {'a': 6, 'b': 7}]", "[ok]", "It is 42.", "> "):
            terminal.see(text)
        terminal.type("\x04")  # Ctrl-D
        assert terminal.process.wait(20) == 0
    finally:
        terminal.process.kill()
        terminal.process.wait()
        os.close(terminal.keyboard)


# ── 10: a server ────────────────────────────────────────────────────────────────────────────


@contextmanager
def under_uvicorn() -> Iterator[str]:
    """The address of the application, served as its head says."""
    command = [sys.executable, "-m", "uvicorn", "10_fastapi:api", "--port", "0"]
    server = subprocess.Popen(command, cwd=PLACE, stderr=subprocess.PIPE, text=True)
    assert server.stderr is not None
    try:
        said = ""
        while not (found := re.search(r"running on (http://\S+)", said)):
            line = server.stderr.readline()
            assert line, said
            said += line
        yield found[1]
        server.send_signal(signal.SIGINT)
        rest = server.stderr.read()
        assert server.wait(20) == 0, rest
        assert "Traceback" not in rest
    finally:
        server.kill()
        server.wait()
        server.stderr.close()


def test_the_web_service_streams_stops_and_asks(tmp_path: Path) -> None:
    with under_uvicorn() as url, httpx.Client(base_url=url, timeout=60) as client:

        def ask(**body: Any) -> Iterator[dict[str, Any]]:
            with client.stream("POST", "/chat/7", json=body) as answer:
                assert answer.headers["content-type"].startswith("text/event-stream")
                for line in answer.iter_lines():
                    if line.startswith("data:"):
                        yield json.loads(line.removeprefix("data:"))

        events = ask(message="Tell me a story.")
        assert next(event for event in events if event["event"] == "text_delta")
        assert httpx.post(f"{url}/chat/7/stop", timeout=60).json() is True  # in mid-answer
        assert [event["event"] for event in events][-1] == "chat_aborted"

        done = list(ask(message="Order tulips."))[-1]
        (waits,) = done["response"]["pending"]
        told = list(ask(answers={waits["id"]: {"approved": True}}))
        assert [event["text"] for event in told if event["event"] == "text_delta"] == ["Done."]


# ── 12: a collector ─────────────────────────────────────────────────────────────────────────


def test_traces_go_to_the_collector_that_the_variable_names(tmp_path: Path) -> None:
    with http_receiver() as (endpoint, received):
        program = PLACE / "12_tracing.py"
        printed = run(sys.executable, program, cwd=tmp_path, OTEL_EXPORTER_OTLP_ENDPOINT=endpoint)
    assert printed == ""
    assert received.tree() == [
        "invoke_agent guide",
        "  chat scripted",
        "  execute_tool librarian",
        "    invoke_agent librarian",
        "      chat scripted",
        "  chat scripted",
    ]


# ── 13: a plugin ────────────────────────────────────────────────────────────────────────────


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The Python of an environment in which wheels of hookline and of the plugin are installed.

    What hookline needs is found where it is for these tests, so that no index is asked.
    """
    place = tmp_path_factory.mktemp("plugin")
    for source in (ROOT, PLUGIN):
        build = ["-m", "build", "--no-isolation", "--wheel", "--outdir", place / "dist", source]
        run(sys.executable, *build, cwd=place)
    venv.create(place / "venv", with_pip=False, symlinks=True)
    python = place / "venv" / "bin" / "python"
    pip = ["-m", "pip", "--python", python, "install", "--no-index", "--no-deps"]
    run(sys.executable, *pip, *(place / "dist").glob("*.whl"), cwd=place)
    own = run(python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))", cwd=place)
    Path(own.strip(), "others.pth").write_text(sysconfig.get_path("purelib") + "\n")
    return python


@pytest.mark.slow
@pytest.mark.timeout(180)
def test_an_installed_plugin_is_found_by_its_entry_point(installed: Path, tmp_path: Path) -> None:
    place = run(installed, "-c", "import hookline; print(hookline.__file__)", cwd=tmp_path)
    assert Path(place.strip()).is_relative_to(installed.parent.parent)  # the wheel, no checkout
    assert run(installed, "-W", "error", PLUGIN / "app.py", cwd=tmp_path).splitlines() == [
        "preToolCall: small_sums, from entry point petty_cash",
        "onToolCallResult: receipt, from entry point petty_cash",
        "receipt: {'to': 'Ada', 'euros': 20}",
        "Ada has her money. Bob's is too much for the petty cash.",
    ]


def test_without_the_plugin_the_application_does_not_start(tmp_path: Path) -> None:
    program = [sys.executable, PLUGIN / "app.py"]
    done = subprocess.run(program, cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 1
    assert "the required entry point 'petty_cash'" in done.stderr


def test_the_tests_of_the_plugin_pass(tmp_path: Path) -> None:
    pytest_alone = [sys.executable, "-m", "pytest", "-q", "-c", os.devnull, "--rootdir", PLUGIN]
    printed = run(*pytest_alone, "-p", "no:cacheprovider", PLUGIN, cwd=tmp_path)
    assert "3 passed" in printed
