"""Reading, writing, listing and searching: what the tools do, refuse, and never lose."""

import contextlib
import errno
import os
import re
import socket
import threading

import pytest

from hookline.workspace import Rules
from hookline.workspace._errors import ChangedError, NotAFileError, NotReadError, OutsideError
from hookline.workspace._files.openat import KERNEL, openat2, walk
from hookline.workspace._files.rename import exchange
from hookline.workspace._files.replace import replace
from hookline.workspace._files.root import Root, digest

BOTH = pytest.mark.parametrize(
    "kernel", [pytest.param(True, id="openat2"), pytest.param(False, id="walk")]
)


@pytest.fixture
def root(folder, request):
    kernel = getattr(request, "param", KERNEL)
    if kernel and not KERNEL:
        pytest.skip("this kernel has no openat2")
    root = Root(folder, "/workspace", kernel=kernel)
    yield root
    root.close()


EACH_WAY = pytest.mark.parametrize("root", [True, False], ids=["openat2", "walk"], indirect=True)

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


# ── read by path ────────────────────────────────────────────────────────────────────────────


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


@EACH_WAY
def test_a_file_that_was_moved_out_has_no_path(root, folder):
    (folder / "a.txt").write_text("x")
    with root.descriptor("a.txt", os.O_RDONLY) as fd:
        (folder / "a.txt").rename(folder.parent / "gone.txt")
        with pytest.raises(OutsideError):
            root.real(fd)


# ── races ───────────────────────────────────────────────────────────────────────────────────


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


# ── write ───────────────────────────────────────────────────────────────────────────────────


def test_a_link_stays_and_its_file_is_written(root, folder):
    (folder / "a.txt").write_text("old")
    (folder / "a.txt").chmod(0o4755)
    os.symlink("a.txt", folder / "link")
    replace(root, "link", b"new", expect=digest(b"old"))
    assert (folder / "link").is_symlink()
    assert (folder / "a.txt").read_text() == "new"
    assert (folder / "a.txt").stat().st_mode & 0o7777 == 0o755


def test_a_hard_link_is_broken_and_not_written_through(root, folder):
    os.link(folder.parent / "outside.txt", folder / "hard.txt")
    assert root.read("hard.txt").data == b"OUTSIDE"  # the user has put it into the workspace
    replace(root, "hard.txt", b"new", expect=digest(b"OUTSIDE"))
    assert (folder.parent / "outside.txt").read_text() == "OUTSIDE"


@EACH_WAY
@pytest.mark.parametrize(
    "path",
    [
        *("pipe/x", "up/x", "../x", "pipe", ".", "dangling", "chain", "up/new/x", "absolute/x"),
        *("/x", "/workspace/../x", "sub/../../x", "loop/x"),
    ],
)
def test_no_file_is_made_outside_or_in_what_is_no_folder(root, folder, path):
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
    with pytest.raises((OutsideError, NotAFileError)):
        replace(root, path, b"x", expect=None)
    assert sorted(path.name for path in folder.parent.iterdir()) == ["outside.txt", "project"]
    assert not os.path.exists("/x")


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


async def test_a_missing_file_has_a_hint_but_not_the_name_of_a_denied_one(hands, folder):
    (folder / "config.py").write_text("")
    (folder / "secret.py").write_text("")
    hands = hands(rules=Rules(deny=["read(secret*)"]))
    assert "config.py" in await hands.error("read", path="confg.py")
    assert "secret.py" not in await hands.error("read", path="secre.py")


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


# ── protected files ─────────────────────────────────────────────────────────────────────────


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


# ── denied files ────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    "path", [".env", ".ENV", "link", "sub/../.env", "/workspace/.env", "sub/.env.local", "./.env"]
)
async def test_a_denied_file_is_not_read_by_any_name(hands, folder, path):
    (folder / "sub").mkdir()
    for name in (".env", ".ENV", "sub/.env.local"):
        (folder / name).write_text("SECRET")
    os.symlink(".env", folder / "link")
    hands = hands(rules=Rules(deny=["read(**/.env*)"]))
    assert "SECRET" not in (text := await hands.error("read", path=path))
    assert "Denied" in text
    assert "Denied" in await hands.error("write", path=path, text="x")
    assert "SECRET" not in (await hands("grep", pattern="SECRET|.", path=path)).text


async def test_a_denied_file_is_in_no_list(hands, folder, sandbox):
    (folder / ".env").write_text("SECRET")
    (folder / "a.txt").write_text("SECRET santa")
    os.symlink(".env", folder / "link")
    hands = hands(rules=Rules(deny=["read(.env)"]))
    assert ".env" not in await hands.text("list")
    assert ".env" not in await hands.text("glob", pattern="*")
    assert await hands.text("grep", pattern="SECRET") == "a.txt:1:SECRET santa"
    text = await hands.text(
        "bash", command="cat .env link; cp .env b; cat b; ls -l .env; grep -r SECRET ."
    )
    assert "SECRET" not in text.replace("SECRET santa", "")


async def test_a_rule_that_asks_about_reading_asks(hands, folder):
    asked = []

    def approver(request, run):
        from hookline import Deny

        asked.append(request.details)
        return Deny("no")

    (folder / "a.key").write_text("x")
    hands = hands(rules=Rules(ask=["read(*.key)"]), approver=approver)
    await hands.error("read", path="a.key")
    assert asked == [({"kind": "path", "text": "a.key"},)]


# ── search ──────────────────────────────────────────────────────────────────────────────────


async def test_search_leaves_out_what_git_ignores(hands, folder, sandbox):
    (folder / ".gitignore").write_text("build/\n*.log\n")
    (folder / "build").mkdir()
    for name in ("a.py", "build/b.py", "c.log", "d.txt"):
        (folder / name).write_text("needle\nneedle (\n")
    hands = hands()
    assert await hands.text("glob", pattern="**/*.py") == "a.py"
    assert await hands.text("grep", pattern="needle", glob="*.py", mode="files") == "a.py"
    assert (
        await hands.text("grep", pattern="needle (", literal=True, mode="count")
        == "a.py:1\nd.txt:1"
    )
    assert await hands.text("grep", pattern="NEEDLE", ignore_case=True, path="d.txt") == (
        "d.txt:1:needle\nd.txt:2:needle ("
    )
    assert await hands.text("grep", pattern="nothing") == "[no match]"


@pytest.mark.parametrize(
    "arguments",
    [
        {"pattern": "OUTSIDE", "path": "../"},
        {"pattern": "OUTSIDE", "path": "up"},
        {"pattern": "--pre=id"},
        {"pattern": "OUTSIDE", "glob": "../*"},
        {"pattern": "OUTSIDE", "glob": "/etc/*"},
        {"pattern": "x'; id; '"},
        {"pattern": "(a+)+$"},
    ],
    ids=str,
)
async def test_search_finds_nothing_outside_and_runs_nothing(hands, folder, arguments, sandbox):
    os.symlink("..", folder / "up")
    (folder / "a.txt").write_text("a" * 60 + "b")
    text = (await hands()("grep", **arguments)).text
    assert "OUTSIDE" not in text.replace("OUTSIDE'", "")
    assert "uid=" not in text


@pytest.mark.parametrize(
    ("tool", "arguments"),
    [
        ("list", {"path": ".."}),
        ("list", {"path": "up"}),
        ("list", {"path": "/etc"}),
        ("list", {"path": "up/project/.."}),
        ("glob", {"pattern": "../*"}),
        ("glob", {"pattern": "*", "path": ".."}),
        ("glob", {"pattern": "*", "path": "up"}),
        ("glob", {"pattern": "/etc/*"}),
        ("read", {"path": "output:../../outside.txt"}),
        ("read", {"path": "output:0123456789abcdef/../../../outside.txt"}),
    ],
    ids=str,
)
async def test_no_tool_lists_or_pages_what_is_outside(hands, folder, tool, arguments, sandbox):
    os.symlink("..", folder / "up")
    text = (await hands()(tool, **arguments)).text.lower()
    assert "outside\n" not in text
    assert "passwd" not in text
    for path in arguments.values():
        text = text.replace(path, "")
    assert "outside.txt" not in text


async def test_search_says_what_is_wrong_with_a_pattern(hands, folder):
    assert "unclosed group" in await hands().error("grep", pattern="(")


async def test_long_results_have_a_handle(hands, folder):
    (folder / "a.txt").write_text("".join(f"{n} {'x' * 300}\n" for n in range(400)))
    hands = hands()
    text = await hands.text("grep", pattern="x")
    handle = re.search(r"output:[0-9a-f]{16}", text)[0]
    assert len(text) < 31_000
    assert "399 xxx" in await hands.text("read", path=handle, offset=400)
    assert "no longer kept" in await hands.error("read", path="output:0123456789abcdef")


def test_a_new_file_never_replaces_one_that_appeared_meanwhile(root, folder):
    (folder / "a.txt").write_text("theirs")
    with pytest.raises(NotReadError, match="exists"):
        replace(root, "a.txt", b"mine", expect=None)
    assert [path.read_text() for path in folder.iterdir()] == ["theirs"]
