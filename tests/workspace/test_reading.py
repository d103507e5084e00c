"""Paths and special files: no path leads out, and what is no text is named."""

import os
import re
import socket

import pytest

from hookline.workspace import Workspace

from .conftest import EACH_WAY, Hands

LINKS = {
    "up": "../outside.txt",
    "deep": "sub/../../outside.txt",
    "chain": "up",
    "loop": "loop",
    "root": "/",
    "proc": "/proc/self/root",
    "self": "/proc/self/cwd",
    "device": "/dev/zero",
}
OUTSIDE = [
    "../outside.txt",
    "sub/../../outside.txt",
    "sub/../../project/../outside.txt",
    "./../outside.txt",
    "/etc/passwd",
    "/workspace/../outside.txt",
    "/workspacex/a.txt",
    *LINKS,
    "root/etc/passwd",
    "proc/etc/passwd",
    "/proc/self/root/etc/passwd",
    "/proc/self/fd/0",
    "up/",
]


# ── paths ────────────────────────────────────────────────────────────────────────────────────────


@EACH_WAY
@pytest.mark.parametrize("path", OUTSIDE)
async def test_no_path_leads_out(hands, folder, path):
    (folder / "sub").mkdir()
    for name, target in LINKS.items():
        os.symlink(target, folder / name)
    os.symlink(folder.parent / "outside.txt", folder / "absolute")
    hands = hands(guarded=False)
    for name in (path, "absolute"):
        assert "OutsideError" in await hands.error("read", path=name)


@EACH_WAY
@pytest.mark.parametrize("path", ["../outside.txt", "up/outside.txt", "absolute/outside.txt"])
async def test_opening_itself_refuses_what_leads_out(hands, folder, path):
    """The look at the real path, which comes after it, has other words."""
    os.symlink("..", folder / "up")
    os.symlink(folder.parent, folder / "absolute")
    error = await hands(guarded=False).error("read", path=path)
    assert "leads out of the workspace, by a link or by '..'" in error


@EACH_WAY
@pytest.mark.parametrize("path", ["", "a\0b", "x" * 5000, "a/" * 2500])
async def test_paths_that_are_none_are_refused(hands, path):
    assert "OutsideError" in await hands(guarded=False).error("read", path=path)


@EACH_WAY
@pytest.mark.parametrize(
    "path",
    ["a.txt", "./a.txt", "sub/../a.txt", "/workspace/a.txt", "//workspace/a.txt"[1:], "link", "in"],
)
async def test_a_path_beneath_is_read_wherever_it_comes_from(hands, folder, path):
    (folder / "a.txt").write_text("inside")
    (folder / "sub").mkdir()
    os.symlink("a.txt", folder / "link")
    os.symlink("sub/../a.txt", folder / "in")
    hands = hands(guarded=False)
    assert await hands.text("read", path=path) == "1\tinside"
    await hands.text("write", path="a.txt", text="new")  # it counts as read by its own path


@EACH_WAY
@pytest.mark.parametrize(
    "path", ["\uff0e\uff0e/outside.txt", "~/x", "~", "output:../../x", "$HOME", "a\nb", "..\n/x"]
)
async def test_names_that_only_look_special_are_names(hands, path):
    assert "MissingError" in await hands(guarded=False).error("read", path=path)


@EACH_WAY
async def test_a_pipe_does_not_block_and_a_folder_is_none(hands, folder):
    os.mkfifo(folder / "pipe")
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(folder / "socket"))
    hands = hands(guarded=False)
    for path in ("pipe", "socket", "."):
        assert "NotAFileError" in await hands.error("read", path=path)


@EACH_WAY
async def test_a_device_is_not_read(base, kernel):
    async with Workspace("/dev", state=base / "state") as workspace:
        hands = Hands(workspace, guarded=False)
        for name in ("zero", "tty", "null"):
            assert "NotAFileError" in await hands.error("read", path=name)


@EACH_WAY
async def test_a_folder_that_was_moved_out_has_no_path(hands, folder, monkeypatch):
    """It is moved after it was opened, and before its path is looked at."""
    (folder / "sub").mkdir()
    (folder / "sub" / "a.txt").write_text("x")
    readlink, moved = os.readlink, []

    def moving(path, **options):
        target = readlink(path, **options)
        if target == str(folder / "sub") and not moved:
            moved.append((folder / "sub").rename(folder.parent / "gone"))
            target = readlink(path, **options)
        return target

    monkeypatch.setattr(os, "readlink", moving)
    assert "has left the workspace" in await hands(guarded=False).error("read", path="sub/a.txt")
    assert moved


# ── the tool ─────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"a\0b", "binary"),
        ("ä".encode("latin1"), "iconv"),
        (b"x" * ((8 << 20) + 1), "grep"),
    ],
    ids=["nul", "latin1", "large"],
)
async def test_what_is_no_text_is_named(hands, folder, data, words):
    (folder / "a.txt").write_bytes(data)
    assert words in await hands().error("read", path="a.txt")


async def test_read_pages_and_shows_control_characters_as_numbers(hands, folder):
    (folder / "a.txt").write_text("\n".join(f"line {n}" for n in range(1, 5001)))
    (folder / "b.txt").write_text("red \x1b[31m\u202eevil")
    hands = hands()
    text = await hands.text("read", path="a.txt")
    assert "continue with offset=2001" in text
    assert len(text) <= 33_000
    assert (await hands.text("read", path="a.txt", offset=4999)).split("\n") == [
        "4999\tline 4999",
        "5000\tline 5000",
    ]
    text = await hands.text("read", path="b.txt")
    assert "\x1b" not in text
    assert "\u202e" not in text
    assert "\\x1b" in text


async def test_a_picture_is_media(hands, folder):
    (folder / "a.png").write_bytes(b"\x89PNG\r\n\x1a\n rest")
    message = await hands()("read", path="a.png")
    assert message.media[0].media_type == "image/png"


async def test_no_text_has_a_path_of_this_machine(hands, folder):
    hands = hands()
    (folder / "a.txt").write_text("x")
    texts = [
        await hands.text("list"),
        await hands.text("read", path="a.txt"),
        await hands.error("read", path="b.txt"),
        await hands.error("read", path="/etc/passwd"),
        await hands.error("write", path="../x", text=""),
        await hands.error("grep", pattern="("),
        await hands.text("glob", pattern="*"),
    ]
    for text in texts:
        assert str(folder) not in text
        assert not re.search(r"/tmp/|/home/", text)
