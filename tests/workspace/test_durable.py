"""A workspace in durable chats whose process is killed: what runs again, and what never does.

The engine is the one for SQLite. Each life of a chat is a process, which SIGKILL ends.
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import signal
import sqlite3
import threading
import traceback
from contextlib import closing

import pytest

from hookline import Agent, Limits, ToolMessage
from hookline.durable.sqlite import Chats, chats
from hookline.models import Finish, TextChunk, ToolCallChunk
from hookline.runtimes import Durable
from hookline.workspace import Bwrap, Workspace

from .conftest import SANDBOX_TESTS

ID = "the-chat"
READ = ("read", {"path": "a.txt"})
WRITES = {
    "write": ("write", {"path": "a.txt", "text": "new\n"}),
    "edit": ("edit", {"path": "a.txt", "edits": [{"old": "old", "new": "new"}]}),
}
BASH = ("bash", {"command": "echo ran >> log; echo begun; sleep 274"})


class Model:
    """Makes the calls in their order, in whichever life it is."""

    name = "scripted"

    def __init__(self, calls):
        self.calls = calls

    async def stream(self, request):
        number = sum(message.role == "tool" for message in request.messages)
        if number < len(self.calls):
            name, arguments = self.calls[number]
            text = json.dumps(arguments)
            yield ToolCallChunk(index=0, id=f"c{number}", name=name, arguments=text)
            yield Finish(finish_reason="tool_calls")
        else:
            yield TextChunk("Done.")
            yield Finish(finish_reason="stop")


def die():
    os.kill(os.getpid(), signal.SIGKILL)


class Lives:
    """The lives of one chat. `ran` has the calls whose tools have begun, in all lives."""

    def __init__(self, folder, base, calls):
        self.folder = folder
        self.base = base
        self.calls = calls
        asyncio.run(self._start())

    async def _start(self):
        async with Chats(self.base / "chats.db") as client:
            await client.start("Go.", chat_id=ID)

    def begin(self, prepare=None):
        """Begin a life; returns the id of its process. The process of the life before is dead."""
        with closing(sqlite3.connect(self.base / "chats.db", timeout=60)) as database, database:
            database.execute("UPDATE hookline_job SET lease = 0 WHERE lease IS NOT NULL")
        pid = os.fork()
        if pid == 0:
            status = 1
            try:
                asyncio.run(self._live(prepare))
                status = 0
            except BaseException:
                traceback.print_exc()
            finally:
                os._exit(status)
        return pid

    async def _live(self, prepare):
        workspace = Workspace(self.folder, state=self.base / "state", mode="edits")
        agent = Agent(
            Model(self.calls), plugins=[workspace], runtime=Durable(), limits=Limits(steps=40)
        )

        @agent.hook("aroundToolCall", priority=-100)
        async def note(ctx, proceed):
            with (self.base / "ran").open("a") as file:
                file.write(f"{ctx.call.name}\n")
            return await proceed()

        if prepare is not None:
            prepare(agent)
        options = {"poll": 0.02, "lease": 30.0, "idle": 0.1, "max_deaths": 1000}
        async with (
            chats(agent, self.base / "chats.db", **options),
            Chats(self.base / "chats.db") as client,
        ):
            messages = (await client.result(ID)).messages
        texts = [message.text for message in messages if isinstance(message, ToolMessage)]
        (self.base / "texts").write_text(json.dumps(texts))

    def killed(self, prepare):
        """Live until somebody kills the process."""
        _, status = os.waitpid(self.begin(prepare), 0)
        assert os.WIFSIGNALED(status)
        assert os.WTERMSIG(status) == signal.SIGKILL

    def ended(self):
        """Live to the end; returns the results of the calls."""
        _, status = os.waitpid(self.begin(), 0)
        assert status == 0
        return self.texts()

    def texts(self):
        return json.loads((self.base / "texts").read_text())

    @property
    def ran(self):
        return (self.base / "ran").read_text().split()


@pytest.fixture
def lives(folder, base):
    (folder / "a.txt").write_text("old\n")
    return lambda *calls: Lives(folder, base, calls)


@pytest.fixture
def needs_sandbox():
    problem = asyncio.run(Bwrap().check())
    if problem is not None:
        (pytest.fail if SANDBOX_TESTS else pytest.skip)(f"no sandbox: {problem}")


def before_commit(tool):
    """The tool has done its work, and the engine does not know its result yet."""

    def prepare(agent):
        @agent.hook("aroundToolCall", tools=[tool])
        async def last(ctx, proceed):
            await proceed()
            die()

    return prepare


def before_rename(agent):
    """The tool has noted what it is about to write, and has not written it."""
    opened = os.open

    def die_at_the_first_byte(path, *args, **options):
        if str(path).startswith(".hookline-"):  # the file that becomes the new version
            die()
        return opened(path, *args, **options)

    os.open = die_at_the_first_byte  # of this process alone


@pytest.mark.parametrize(
    ("call", "text"),
    [
        (READ, "1\told"),
        (("list", {}), "a.txt"),
        (("glob", {"pattern": "*.txt"}), "a.txt"),
        (("grep", {"pattern": "ol"}), "a.txt:1:old"),
        (("plan", {"items": [{"text": "x"}]}), "0 of 1 done"),
    ],
    ids=lambda value: value[0] if isinstance(value, tuple) else "",
)
def test_what_reads_runs_again(lives, needs_sandbox, call, text):
    chat = lives(call)
    chat.killed(before_commit(call[0]))
    (answer,) = chat.ended()
    assert text in answer
    assert chat.ran == [call[0]] * 2


@pytest.mark.parametrize("tool", WRITES)
def test_a_change_that_was_made_is_not_made_again(lives, folder, tool):
    chat = lives(READ, WRITES[tool])
    chat.killed(before_commit(tool))
    written = (folder / "a.txt").stat()
    assert (folder / "a.txt").read_text() == "new\n"
    _, answer = chat.ended()
    assert "written by an earlier attempt" in answer
    assert (folder / "a.txt").stat().st_ino == written.st_ino
    assert chat.ran == ["read", tool]


@pytest.mark.parametrize("tool", WRITES)
def test_a_change_that_was_not_made_is_made(lives, folder, tool):
    chat = lives(READ, WRITES[tool])
    chat.killed(before_rename)
    assert (folder / "a.txt").read_text() == "old\n"
    _, answer = chat.ended()
    assert "lines added: 1, removed: 1" in answer
    assert (folder / "a.txt").read_text() == "new\n"
    assert chat.ran == ["read", tool, tool]


@pytest.mark.parametrize("tool", WRITES)
@pytest.mark.parametrize("prepare", ["before the rename", "before the commit"])
def test_what_somebody_has_written_meanwhile_stays(lives, folder, tool, prepare):
    chat = lives(READ, WRITES[tool])
    chat.killed(before_rename if prepare == "before the rename" else before_commit(tool))
    (folder / "a.txt").write_text("old, of somebody else\n")
    _, answer = chat.ended()
    assert "has changed since it was read" in answer
    assert (folder / "a.txt").read_text() == "old, of somebody else\n"


@pytest.mark.parametrize("when", ["while it runs", "before the commit"])
def test_a_command_never_runs_again(lives, folder, needs_sandbox, when):
    line = BASH[1]["command"].replace("sleep 274", "sleep 274" * (when == "while it runs"))
    chat = lives(("bash", {"command": line}))

    def while_it_runs(agent):
        @agent.hook("onStatus")
        def killed(ctx):
            if ctx.type == "output":
                die()

    chat.killed(while_it_runs if when == "while it runs" else before_commit("bash"))
    (answer,) = chat.ended()
    assert "Interrupted" in answer
    assert "may have run" in answer
    assert (folder / "log").read_text() == "ran\n"
    assert chat.ran == ["bash"]


@pytest.mark.slow
def test_whenever_the_process_is_killed_each_change_is_made_once(
    lives, folder, base, needs_sandbox
):
    """Twelve edits and twelve commands; the process is killed at random moments, twenty times."""
    (folder / "a.txt").write_text("END\n")
    calls = [READ]
    for number in range(12):
        edits = [{"old": "END", "new": f"{number}\nEND"}]
        calls += [
            ("edit", {"path": "a.txt", "edits": edits}),
            ("bash", {"command": f"echo {number} >> log"}),
        ]
    chat = lives(*calls)
    source = random.Random(5)
    kills = 0
    while not (base / "texts").exists():
        pid = chat.begin()
        timer = threading.Timer(source.uniform(0.05, 0.35), os.kill, (pid, signal.SIGKILL))
        if kills < 20:
            timer.start()
        _, status = os.waitpid(pid, 0)
        timer.cancel()
        assert status == 0 or os.WIFSIGNALED(status)
        kills += os.WIFSIGNALED(status)
    texts = chat.texts()[1:]
    assert kills >= 3
    assert (folder / "a.txt").read_text() == "".join(f"{n}\n" for n in range(12)) + "END\n"
    lines = (folder / "log").read_text().split()
    for number, text in enumerate(texts[1::2]):
        runs = lines.count(str(number))
        assert runs == 1 if text == "[exit 0]" else runs <= 1 and "may have run" in text
