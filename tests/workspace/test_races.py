"""Races: while others swap folders or write, nothing leaks, and no version is lost."""

import contextlib
import os
import threading

import pytest

from hookline.workspace._errors import ChangedError, NotAFileError
from hookline.workspace._files.rename import exchange
from hookline.workspace._files.replace import replace
from hookline.workspace._files.root import Root

from .conftest import EACH_WAY


@pytest.mark.slow
@EACH_WAY
def test_no_read_leaks_while_a_folder_becomes_a_link(root, folder):
    """A thread swaps a folder and a link to the outside as fast as it can."""
    (folder / "sub").mkdir()
    (folder / "sub" / "outside.txt").write_text("inside")
    os.symlink("..", folder / "other")
    done = threading.Event()

    def swap():
        while not done.is_set():
            exchange(root.fd, "sub", "other")

    thread = threading.Thread(target=swap)
    thread.start()
    texts, refused = set(), 0
    try:
        for _ in range(25_000):
            try:
                texts.add(root.read("sub/outside.txt").data)
            except Exception:
                refused += 1
    finally:
        done.set()
        thread.join()
    assert texts == {b"inside"}
    assert refused


@EACH_WAY
def test_no_write_lands_outside_while_a_folder_becomes_a_link(root, folder):
    (folder / "sub").mkdir()
    os.symlink("..", folder / "other")
    done = threading.Event()

    def swap():
        while not done.is_set():
            exchange(root.fd, "sub", "other")

    thread = threading.Thread(target=swap)
    thread.start()
    try:
        for number in range(300):
            with contextlib.suppress(Exception):
                replace(root, f"sub/{number}.txt", b"x", expect=None)
    finally:
        done.set()
        thread.join()
    assert sorted(path.name for path in folder.parent.iterdir()) == ["outside.txt", "project"]


def test_three_writers_lose_no_version(folder):
    """Each version that was written is in the file or beside it, or its writer was told."""
    (folder / "a.txt").write_bytes(b"start")
    accepted, lock = [], threading.Lock()

    def write(name, count):
        root = Root(folder, None)
        for number in range(count):
            try:
                old = root.read("a.txt")
                data = f"{name} {number}".encode()
                replace(root, "a.txt", data, expect=old.digest)
            except (ChangedError, NotAFileError):
                continue
            with lock:
                accepted.append((old.data, data))
        root.close()

    writers = [threading.Thread(target=write, args=(name, 1000)) for name in "abc"]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join()
    kept = {path.read_bytes() for path in folder.iterdir()}
    replaced = {old for old, _ in accepted}
    for _, data in accepted:
        assert data in replaced or data in kept, data
    assert len(replaced) == len(accepted)  # no two writers have replaced the same version
    assert not [path for path in folder.iterdir() if path.name.startswith(".hookline")]
