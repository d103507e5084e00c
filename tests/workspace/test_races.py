"""Races: while others swap folders or write, nothing leaks, and no version is lost."""

import asyncio
import ctypes
import os
import signal
import sys
from contextlib import contextmanager

from hookline.events import Status, ToolCallFinished
from hookline.testing import call

from .conftest import EACH_WAY


def exchange(one, other):
    """Exchange two entries of folders in one step."""
    libc = ctypes.CDLL(None, use_errno=True)
    if sys.platform == "darwin":
        failed = libc.renamex_np(os.fsencode(one), os.fsencode(other), 2)
    else:
        failed = libc.renameat2(-1, os.fsencode(one), -1, os.fsencode(other), 2)
    if failed:
        raise OSError(ctypes.get_errno(), "exchange")


@contextmanager
def swapping(one, other):
    """Let another process swap a folder and a link to the outside as fast as it can."""
    parent, pid = os.getpid(), os.fork()
    if pid == 0:
        try:
            while os.getppid() == parent:
                exchange(one, other)
        finally:
            os._exit(1)
    try:
        yield
    finally:
        os.kill(pid, signal.SIGKILL)
        assert os.WTERMSIG(os.waitpid(pid, 0)[1]) == signal.SIGKILL


@EACH_WAY
async def test_no_read_leaks_while_a_folder_becomes_a_link(hands, folder):
    (folder / "sub").mkdir()
    (folder / "sub" / "outside.txt").write_text("inside")
    os.symlink("..", folder / "other")
    hands = hands()
    calls = [call("read", path="sub/outside.txt") for _ in range(5_000)]
    texts, refused = set(), 0
    with swapping(folder / "sub", folder / "other"):
        async for event in hands.at_once(calls):
            if isinstance(event, ToolCallFinished):
                if event.outcome == "ok":
                    texts.add(event.result.value)
                else:
                    refused += 1
    assert texts == {"1\tinside"}
    assert refused


@EACH_WAY
async def test_no_write_lands_outside_while_a_folder_becomes_a_link(hands, folder, tmp_path):
    (folder / "sub").mkdir()
    os.symlink("..", folder / "other")
    hands = hands(state=tmp_path, parallel_tools=False)
    calls = [call("write", path=f"sub/{number}.txt", text="x") for number in range(300)]
    with swapping(folder / "sub", folder / "other"):
        outcomes = [
            event.outcome
            async for event in hands.at_once(calls)
            if isinstance(event, ToolCallFinished)
        ]
    assert len(outcomes) == 300
    assert sorted(path.name for path in folder.parent.iterdir()) == ["outside.txt", "project"]


async def test_three_writers_lose_no_version(hands, folder, base):
    """Each version that was written is in the file or beside it, or its writer was told."""
    (folder / "a.txt").write_text("start\n")
    accepted = []

    async def write(name):
        calls = []
        for number in range(300):
            calls += [
                call("read", path="a.txt"),
                call("write", path="a.txt", text=f"{name} {number}\n"),
            ]
        writer = hands(state=base / name, parallel_tools=False)
        async for event in writer.at_once(calls):
            if isinstance(event, Status) and event.type == "file_changed":
                _, _, _, old, new = event.data["diff"].splitlines()
                accepted.append((old.removeprefix("-"), new.removeprefix("+")))

    await asyncio.gather(*map(write, "abc"))
    kept = {path.read_text().strip() for path in folder.iterdir()}
    replaced = {old for old, _ in accepted}
    for _, text in accepted:
        assert text in replaced or text in kept, text
    assert len(replaced) == len(accepted)  # no two writers have replaced the same version
    assert len({new.split()[0] for _, new in accepted}) == 3
    assert not [path for path in folder.iterdir() if path.name.startswith(".hookline")]
