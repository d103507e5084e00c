"""What a workspace stores beside its folder, and what a kill leaves: bounded, and never half."""

import asyncio
import os
import pathlib
import signal
import time

import pytest

from hookline import Agent
from hookline.testing import ScriptedModel, call

SNAPSHOTS = 50  # so many are kept, as docs/workspace.md says
OUTPUTS = 100
CALLS = 200
DAY = 86_400


@pytest.fixture
def later(monkeypatch):
    """A function that moves the clock by some seconds."""
    real, ahead = time.time, [0.0]
    monkeypatch.setattr(time, "time", lambda: real() + ahead[0])

    def move(seconds):
        ahead[0] += seconds

    return move


def contents(base):
    return {path.name for path in (base / "state" / "objects").glob("*/*")}


def killed(act):
    """Run a coroutine in a process that SIGKILL ends."""
    pid = os.fork()
    if pid == 0:
        try:
            asyncio.run(act())
        finally:
            os._exit(1)
    assert os.WTERMSIG(os.waitpid(pid, 0)[1]) == signal.SIGKILL


def die(*_):
    os.kill(os.getpid(), signal.SIGKILL)


# ── snapshots ───────────────────────────────────────────────────────────────────────────────


async def test_contents_are_removed_with_their_last_snapshot(workspace, folder, base, later):
    first = workspace()
    (folder / "same.txt").write_text("same")
    for number in range(SNAPSHOTS + 1):
        (folder / "a.txt").write_text(f"version {number}")
        await first.snapshot()
    await first.aclose()
    assert len(contents(base)) == SNAPSHOTS + 2
    later(DAY + 1)
    (folder / "a.txt").write_text("last")
    second = workspace()
    await second.snapshot()
    snapshots = await second.snapshots()
    assert len(snapshots) == SNAPSHOTS
    assert contents(base) == {name for each in snapshots for name, _ in each.files.values()}
    await second.restore(snapshots[-2].id)
    assert (folder / "a.txt").read_text() == f"version {SNAPSHOTS}"


@pytest.mark.slow
async def test_contents_are_removed_in_a_long_life_too(workspace, folder, base, later):
    workspace = workspace()
    for number in range(2 * SNAPSHOTS + 1):
        (folder / "a.txt").write_text(f"version {number}")
        await workspace.snapshot()
        later(DAY + 1)
    assert len(contents(base)) == SNAPSHOTS


@pytest.mark.slow
async def test_the_oldest_snapshot_can_be_restored(workspace, folder, base, later):
    """The snapshot of what was there before takes its place."""
    first = workspace()
    for number in range(SNAPSHOTS):
        (folder / "a.txt").write_text(f"version {number}")
        await first.snapshot()
    later(DAY + 1)
    oldest, *_ = await first.snapshots()
    second = workspace()
    await second.restore(oldest.id)
    assert (folder / "a.txt").read_text() == "version 0"
    assert oldest.id not in [snapshot.id for snapshot in await second.snapshots()]


async def test_a_content_that_another_process_has_removed_is_stored_again(workspace, folder, base):
    workspace = workspace()
    (folder / "a.txt").write_text("mine")
    await workspace.snapshot()
    for path in (base / "state" / "objects").glob("*/*"):
        path.unlink()
    id = await workspace.snapshot()
    (folder / "a.txt").write_text("changed")
    await workspace.restore(id)
    assert (folder / "a.txt").read_text() == "mine"


async def test_a_kill_leaves_no_half_snapshot(workspace, folder):
    workspace = workspace()
    (folder / "a.txt").write_text("mine")
    id = await workspace.snapshot()
    (folder / "a.txt").write_text("changed")
    write = pathlib.Path.write_bytes

    def half(self, data):
        if b"the second" not in data:
            return write(self, data)
        write(self, data[: len(data) // 2])
        return die()

    async def die_while_writing():
        pathlib.Path.write_bytes = half
        await workspace.snapshot("the second")

    killed(die_while_writing)
    assert [snapshot.id for snapshot in await workspace.snapshots()] == [id]
    await workspace.restore(id)
    assert (folder / "a.txt").read_text() == "mine"


# ── calls and outputs ───────────────────────────────────────────────────────────────────────


async def test_the_notes_about_changes_are_bounded(hands, base):
    hands = hands()
    calls = base / "state" / "calls"
    calls.mkdir(parents=True)
    for number in range(CALLS + 20):
        (calls / str(number)).write_text("")
        os.utime(calls / str(number), (0, number))
    await hands.text("write", path="a.txt", text="x")
    names = {path.name for path in calls.iterdir()}
    assert len(names) == CALLS
    assert len(names - set(map(str, range(CALLS + 20)))) == 1  # the new one stays


async def test_many_threads_store_outputs(workspace, base):
    async def export():
        """Export all rows."""
        return "x" * 2_000

    workspace = workspace()

    async def chat():
        model = ScriptedModel(*[[call("export") for _ in range(60)]] * 4, "done")
        agent = Agent(model, tools=[export], hooks=workspace.offload(1_000))
        results = (await agent.chat("go")).tool_results
        assert [(result.outcome, "output:" in result.text) for result in results] == [
            ("ok", True)
        ] * 240

    await asyncio.gather(*[chat() for _ in range(5)])
    assert len(list((base / "state" / "outputs").iterdir())) <= OUTPUTS + 5


# ── what a killed writer leaves in the folder ───────────────────────────────────────────────


def left_behind(folder):
    return list(folder.rglob(".hookline-*"))


async def test_what_a_killed_writer_leaves_is_removed_and_stays_in_a_snapshot(hands, folder, later):
    (folder / "sub").mkdir()
    (folder / "sub" / "a.txt").write_text("old")

    hands = hands()
    await hands.text("read", path="sub/a.txt")

    async def write():
        os.fsync = die
        await hands.text("write", path="sub/a.txt", text="unfinished")

    killed(write)
    assert [path.read_text() for path in left_behind(folder)] == ["unfinished"]
    await hands.text("write", path="b.txt", text="x")
    assert len(left_behind(folder)) == 1  # it may belong to a program that is writing
    later(601)
    await hands.text("write", path="c.txt", text="x")
    assert left_behind(folder) == []
    snapshot = (await hands.workspace.snapshots())[-1]
    assert "-unfinished" in await hands.workspace.diff(snapshot.id)
    await hands.workspace.restore(snapshot.id)
    assert left_behind(folder) == []
    assert (folder / "sub" / "a.txt").read_text() == "old"


async def test_files_of_users_with_similar_names_stay(hands, folder, later):
    for name in (".hookline-notes", ".hookline-0123456789abcdef0", "x.hookline-0123456789abcdef"):
        (folder / name).write_text("mine")
    hands = hands()
    later(601)
    await hands.text("write", path="a.txt", text="x")
    assert len(list(folder.iterdir())) == 4
