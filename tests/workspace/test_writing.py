"""Writing: nothing outside, nothing protected, and no version that somebody else has written."""

import os
import re

import pytest

from .conftest import EACH_WAY


async def test_a_link_stays_and_its_file_is_written(hands, folder):
    (folder / "a.txt").write_text("old")
    (folder / "a.txt").chmod(0o4755)
    os.symlink("a.txt", folder / "link")
    hands = hands()
    await hands.text("read", path="link")
    await hands.text("write", path="link", text="new")
    assert (folder / "link").is_symlink()
    assert (folder / "a.txt").read_text() == "new"
    assert (folder / "a.txt").stat().st_mode & 0o7777 == 0o755


async def test_a_hard_link_is_broken_and_not_written_through(hands, folder):
    os.link(folder.parent / "outside.txt", folder / "hard.txt")
    hands = hands()
    assert await hands.text("read", path="hard.txt") == "1\tOUTSIDE"  # the user has put it here
    await hands.text("write", path="hard.txt", text="new")
    assert (folder / "hard.txt").read_text() == "new"
    assert (folder.parent / "outside.txt").read_text() == "OUTSIDE"


@EACH_WAY
@pytest.mark.parametrize(
    "path",
    [
        *("pipe/x", "up/x", "../x", "pipe", ".", "dangling", "chain", "up/new/x", "absolute/x"),
        *("/x", "/workspace/../x", "sub/../../x", "loop/x"),
    ],
)
async def test_no_file_is_made_outside_or_in_what_is_no_folder(hands, folder, tmp_path, path):
    (folder / "sub").mkdir()
    os.mkfifo(folder / "pipe")
    for name, target in {
        "up": "..",
        "dangling": "../x",
        "chain": "dangling",
        "absolute": folder.parent,
        "loop": "loop",
    }.items():
        os.symlink(target, folder / name)
    hands = hands(guarded=False, state=tmp_path)
    error = await hands.error("write", path=path, text="x")
    assert re.search(r'"type":"(OutsideError|NotAFileError)"', error)
    assert sorted(path.name for path in folder.parent.iterdir()) == ["outside.txt", "project"]
    assert not os.path.exists("/x")  # noqa: ASYNC240


async def test_write_and_edit_say_what_they_did(hands, folder):
    hands = hands()
    assert "created a/b.txt; lines added: 2" in await hands.text(
        "write", path="a/b.txt", text="x\ny\n"
    )
    edits = [{"old": "x", "new": "z"}, {"old": "y\n", "new": "y\nw\n"}]
    assert "lines added: 2, removed: 1" in await hands.text("edit", path="a/b.txt", edits=edits)
    assert (folder / "a" / "b.txt").read_text() == "z\ny\nw\n"


async def test_edits_are_all_or_nothing(hands, folder):
    (folder / "a.txt").write_text("one\ntwo\ntwo\n")
    hands = hands()
    await hands.text("read", path="a.txt")
    first = {"old": "one", "new": "1"}
    for second, kind in [
        ({"old": "tow", "new": ""}, "NoMatchError"),
        ({"old": "two", "new": ""}, "Ambiguous"),
    ]:
        assert kind in await hands.error("edit", path="a.txt", edits=[first, second])
        assert (folder / "a.txt").read_text() == "one\ntwo\ntwo\n"
    assert "lines 2, 3" in await hands.error(
        "edit", path="a.txt", edits=[{"old": "two", "new": ""}]
    )
    await hands.text("edit", path="a.txt", edits=[first, {"old": "two", "new": "2", "all": True}])
    assert (folder / "a.txt").read_text() == "1\n2\n2\n"


async def test_a_file_must_be_read_first_and_as_it_is_now(hands, folder):
    (folder / "a.txt").write_text("mine")
    hands = hands()
    assert "NotReadError" in await hands.error("write", path="a.txt", text="theirs")
    await hands.text("read", path="a.txt")
    (folder / "a.txt").write_text("changed")
    assert "ChangedError" in await hands.error("write", path="a.txt", text="theirs")
    assert (folder / "a.txt").read_text() == "changed"
    await hands.text("read", path="a.txt")
    await hands.text("write", path="a.txt", text="theirs")
    await hands.text("write", path="a.txt", text="theirs again")  # what it wrote, it knows


@pytest.mark.parametrize(
    "data",
    [
        pytest.param("\ufeffä\r\nb\r\n".encode(), id="bom-crlf"),
        pytest.param("\ufeffä\nb\n".encode("utf-16-le"), id="utf-16-le"),
        pytest.param("\ufeffä\r\nb\r\n".encode("utf-16-be"), id="utf-16-be"),
        pytest.param("ä\r\nb\n".encode(), id="mixed"),
    ],
)
async def test_an_edit_keeps_encoding_mark_and_line_ends(hands, folder, data):
    (folder / "a.txt").write_bytes(data)
    hands = hands()
    await hands.text("read", path="a.txt")
    await hands.text("edit", path="a.txt", edits=[{"old": "b", "new": "c"}])
    wide = data[:2] in (b"\xff\xfe", b"\xfe\xff")
    old, new = ("b".encode("utf-16-be"), "c".encode("utf-16-be")) if wide else (b"b", b"c")
    if data[:2] == b"\xff\xfe":
        old, new = b"b\0", b"c\0"
    assert (folder / "a.txt").read_bytes() == data.replace(old, new)


async def test_a_new_file_never_replaces_one_that_appeared_meanwhile(hands, folder, monkeypatch):
    """It appears when the new one is on the disk, and has not got its name."""
    fsync = os.fsync

    def late(fd):
        fsync(fd)
        (folder / "a.txt").write_text("theirs")

    monkeypatch.setattr(os, "fsync", late)
    error = await hands().error("write", path="a.txt", text="mine")
    assert "NotReadError" in error
    assert "exists" in error
    assert [path.read_text() for path in folder.iterdir()] == ["theirs"]


# ── protected files ──────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    "path",
    [
        ".git/config",
        ".GIT/config",
        "sub/.git/hooks/x",
        ".mcp.json",
        ".github/workflows/x.yml",
        "sub/../.git/config",
        "link/config",
        "/workspace/.git/config",
        ".vscode/tasks.json",
        ".envrc",
    ],
)
async def test_protected_files_are_not_written(hands, folder, path):
    (folder / ".git").mkdir()
    (folder / "sub").mkdir()
    os.symlink(".git", folder / "link")
    assert "Protected" in await hands().error("write", path=path, text="x")
    assert list((folder / ".git").iterdir()) == []
