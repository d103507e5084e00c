"""Paths and special files: no path leads out, and what is no text is named."""

import errno
import os
import re
import socket

import pytest

from hookline.workspace._errors import NotAFileError, OutsideError
from hookline.workspace._files.openat import KERNEL, openat2, walk
from hookline.workspace._files.root import Root

from .conftest import EACH_WAY

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
def test_no_path_leads_out(root, folder, path):
    (folder / "sub").mkdir()
    for name, target in LINKS.items():
        os.symlink(target, folder / name)
    os.symlink(folder.parent / "outside.txt", folder / "absolute")
    for name in (path, "absolute"):
        with pytest.raises(OutsideError):
            root.read(name)


@pytest.mark.parametrize("look", [openat2, walk])
@pytest.mark.parametrize("path", ["../outside.txt", "up", "absolute"])
def test_opening_itself_refuses_what_leads_out(root, folder, look, path):
    """Without the look at the real path, which comes after it."""
    os.symlink("../outside.txt", folder / "up")
    os.symlink(folder.parent / "outside.txt", folder / "absolute")
    with pytest.raises(OSError, match=re.escape(os.strerror(errno.EXDEV))):
        os.close(look(root.fd, path, os.O_RDONLY))


@EACH_WAY
@pytest.mark.parametrize("path", ["", "a\0b", "x" * 5000, "a/" * 2500])
def test_paths_that_are_none_are_refused(root, path):
    with pytest.raises(OutsideError):
        root.read(path)


@EACH_WAY
@pytest.mark.parametrize(
    "path",
    ["a.txt", "./a.txt", "sub/../a.txt", "/workspace/a.txt", "//workspace/a.txt"[1:], "link", "in"],
)
def test_a_path_beneath_is_read_wherever_it_comes_from(root, folder, path):
    (folder / "a.txt").write_text("inside")
    (folder / "sub").mkdir()
    os.symlink("a.txt", folder / "link")
    os.symlink("sub/../a.txt", folder / "in")
    file = root.read(path)
    assert (file.data, file.path) == (b"inside", "a.txt")


@EACH_WAY
@pytest.mark.parametrize(
    "path", ["\uff0e\uff0e/outside.txt", "~/x", "~", "output:../../x", "$HOME", "a\nb", "..\n/x"]
)
def test_names_that_only_look_special_are_names(root, path):
    from hookline.workspace import MissingError

    with pytest.raises(MissingError):
        root.read(path)


@EACH_WAY
def test_a_pipe_does_not_block_and_a_folder_is_none(root, folder):
    os.mkfifo(folder / "pipe")
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(folder / "socket"))
    for path in ("pipe", "socket", "."):
        with pytest.raises(NotAFileError):
            root.read(path)


@pytest.mark.parametrize("kernel", [True, False], ids=["openat2", "walk"])
def test_a_device_is_not_read(kernel):
    root = Root("/dev", "/workspace", kernel=kernel and KERNEL)
    for name in ("zero", "tty", "null"):
        with pytest.raises(NotAFileError):
            root.read(name)
    root.close()


@EACH_WAY
def test_a_file_that_was_moved_out_has_no_path(root, folder):
    (folder / "a.txt").write_text("x")
    with root.descriptor("a.txt", os.O_RDONLY) as fd:
        (folder / "a.txt").rename(folder.parent / "gone.txt")
        with pytest.raises(OutsideError):
            root.real(fd)


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
