"""The sandbox of Linux: it passes the public suite, and the suite finds what is left out of it."""

import asyncio
import errno
import os
import pty
import signal
import traceback
from contextlib import suppress
from pathlib import Path

import pytest
from msgspec.structs import replace

from hookline.errors import UsageError
from hookline.testing.sandbox_suite import ATTACKS
from hookline.workspace import Bwrap, CommandLimits, Unconfined, View
from hookline.workspace._sandbox import bwrap as module
from hookline.workspace._sandbox import job as jobs
from hookline.workspace._sandbox import seccomp


@pytest.mark.parametrize("attack", ATTACKS, ids=str)
async def test_an_attack_fails(attack, sandbox):
    await attack.run(sandbox)


# ── what is left out ────────────────────────────────────────────────────────────────────────


def attack(name):
    return next(attack for attack in ATTACKS if str(attack) == name)


def without(*options):
    def change(monkeypatch):
        kept = [option for option in module._NAMESPACES if option not in options]
        monkeypatch.setattr(module, "_NAMESPACES", tuple(kept))

    return change


def unlocked(path):
    def change(monkeypatch):
        locked = list(module._LOCKED)
        place = locked.index(path)
        monkeypatch.setattr(module, "_LOCKED", tuple(locked[: place - 1] + locked[place + 1 :]))

    return change


def unfiltered(table, name):
    def change(monkeypatch):
        whole = getattr(seccomp, table)
        assert name in whole
        monkeypatch.setattr(seccomp, table, {k: v for k, v in whole.items() if k != name})

    return change


def unpinned(monkeypatch):
    whole = module._workspace

    def changed(view, stack):
        options, out = iter(whole(view, stack)), []
        for option in options:
            if option == "--bind-fd":
                fd, place = next(options), next(options)
                if place == view.at:
                    out += [option, fd, place]
                else:
                    os.set_inheritable(int(fd), False)
            else:
                out.append(option)
        return out

    monkeypatch.setattr(module, "_workspace", changed)


def any_family(monkeypatch):
    monkeypatch.setattr(seccomp, "FAMILIES", (*seccomp.FAMILIES, 1, 17, 31, 38, 40))


def any_architecture(monkeypatch):
    monkeypatch.setattr(seccomp, "_KILL", seccomp._ALLOW)


def all_writable(monkeypatch):
    whole = module._workspace

    def changed(view, stack):
        return whole(View(root=view.root, fd=view.fd, at=view.at, hidden=view.hidden), stack)

    monkeypatch.setattr(module, "_workspace", changed)


def not_hidden(monkeypatch):
    whole = module._workspace

    def changed(view, stack):
        return whole(View(root=view.root, fd=view.fd, at=view.at, read_only=view.read_only), stack)

    monkeypatch.setattr(module, "_workspace", changed)


def unwatched(monkeypatch):
    async def look(self):
        await asyncio.sleep(3600)

    monkeypatch.setattr(jobs.ProcessJob, "_look", look)


def always_free(monkeypatch):
    monkeypatch.setattr(jobs, "_free", lambda fd: 1 << 40)


MUTATIONS = {
    "no /proc remount": (unlocked("/proc"), "privileges-sysctl"),
    "no / remount": (unlocked("/"), "privileges-read-only-system"),
    "no /dev remount": (unlocked("/dev"), "privileges-read-only-system"),
    "life": (without("--die-with-parent"), "limits-time"),
    "network": (without("--unshare-net"), "network-loopback-of-the-host"),
    "network, datagrams": (without("--unshare-net"), "network-datagram-to-the-host"),
    "processes": (without("--unshare-pid"), "view-processes"),
    "host name": (without("--hostname", "sandbox"), "view-host-name"),
    "no pins": (unpinned, "masks-rename-the-folder"),
    "git writable": (all_writable, "git-common-folder"),
    "not hidden": (not_hidden, "masks-read"),
    "any socket": (any_family, "network-socket-in-the-workspace"),
    "any abstract socket": (any_family, "network-vsock"),
    "chmod": (unfiltered("MODES", "fchmodat"), "privileges-set-user-by-chmod"),
    "mkdir": (unfiltered("MODES", "mknodat"), "privileges-set-user-by-mknod"),
    "openat": (unfiltered("MODES", "openat"), "privileges-set-user-by-open"),
    "openat2": (unfiltered("ENOSYS_CALLS", "openat2"), "privileges-set-user-by-openat2"),
    "clone3": (unfiltered("ENOSYS_CALLS", "clone3"), "calls-clone3"),
    "keyctl": (unfiltered("EPERM_CALLS", "keyctl"), "calls-keyctl"),
    "io_uring": (unfiltered("EPERM_CALLS", "io_uring_setup"), "calls-io_uring"),
    "ptrace": (unfiltered("EPERM_CALLS", "ptrace"), "calls-ptrace-of-the-first-process"),
    "other architectures": (any_architecture, "calls-calls-of-i386"),
    "no watch": (unwatched, "limits-memory-of-all"),
    "disk": (always_free, "limits-disk"),
}


@pytest.mark.slow
@pytest.mark.parametrize(("mutation", "name"), MUTATIONS.values(), ids=MUTATIONS)
async def test_the_suite_finds_what_is_left_out(mutation, name, sandbox, monkeypatch):
    mutation(monkeypatch)
    tried = attack(name)
    if name == "calls-ptrace-of-the-first-process":  # it stops that process, and never ends
        tried = replace(tried, limits=replace(tried.limits, seconds=2))
    with pytest.raises(AssertionError):
        await tried.run(sandbox)


async def test_each_namespace_is_its_own(sandbox, view):
    line = "cd /proc/self/ns; for name in *; do echo $name $(readlink $name); done"
    text, _ = await output_of(await sandbox.start(line, view, CommandLimits()))
    inside = dict(row.split() for row in text.splitlines())
    for name in ("cgroup", "ipc", "mnt", "net", "pid", "user", "uts"):
        assert inside[name] != os.readlink(f"/proc/self/ns/{name}"), name


# On x86_64. The kernel refuses most of them without the filter too, for want of a right.
NEVER = {
    "io_uring_setup": 425,
    "io_uring_enter": 426,
    "io_uring_register": 427,
    "keyctl": 250,
    "add_key": 248,
    "request_key": 249,
    "bpf": 321,
    "userfaultfd": 323,
    "clone3": 435,
    "perf_event_open": 298,
    "fanotify_init": 300,
    "open_by_handle_at": 304,
    "openat2": 437,
    "kexec_load": 246,
    "kexec_file_load": 320,
    "mount": 165,
    "umount2": 166,
    "chroot": 161,
    "pivot_root": 155,
    "fsopen": 430,
    "fsmount": 432,
    "open_tree": 428,
    "move_mount": 429,
    "mount_setattr": 442,
    "setns": 308,
    "unshare": 272,
    "quotactl": 179,
    "syslog": 103,
    "acct": 163,
    "personality": 135,
    "move_pages": 279,
    "modify_ldt": 154,
    "ptrace": 101,
    "process_vm_readv": 310,
    "process_vm_writev": 311,
}
SET_ID = {
    "chmod": (90, 1),
    "fchmod": (91, 1),
    "fchmodat": (268, 2),
    "fchmodat2": (452, 2),
    "creat": (85, 1),
    "open": (2, 2),
    "openat": (257, 3),
    "mkdir": (83, 1),
    "mkdirat": (258, 2),
    "mknod": (133, 1),
    "mknodat": (259, 2),
}
PROBE = f"""
import ctypes
libc = ctypes.CDLL(None, use_errno=True)
def refused(*arguments):
    return libc.syscall(*arguments) == -1 and ctypes.get_errno() == {errno.EDQUOT}
calls = [(name, number, -1) for name, number in {NEVER}.items()]
for name, (number, place) in {SET_ID}.items():
    for mode in (0o4755, 0o2755):
        calls.append((f"{{name}} {{mode:o}}", number, *[-1] * place, mode))
    if refused(number, *[-1] * place, 0o755):
        print("refused", name)
calls += [("clone", 56, 1 << bit | 17, 0, 0, 0, 0) for bit in (17, *range(25, 31))]
calls += [("socket", 41, family, 1, 0) for family in range(50) if family not in (2, 10, 16)]
for name, *arguments in calls:
    if not refused(*arguments):
        print("not refused", name, *arguments)
"""


@pytest.mark.skipif(os.uname().machine != "x86_64", reason="the numbers are those of x86_64")
async def test_each_line_of_the_filter_refuses_its_calls(sandbox, view, monkeypatch):
    """By an error that the kernel has for none of them."""
    for name in ("_EPERM", "_ENOSYS"):
        monkeypatch.setattr(seccomp, name, 0x50000 | errno.EDQUOT)
    job = await sandbox.start(f"python3 - <<'END'{PROBE}END", view, CommandLimits())
    text, status = await output_of(job)
    assert (text, status) == ("", 0)


async def test_without_the_filter_there_are_no_user_namespaces_either(sandbox, view, monkeypatch):
    monkeypatch.setattr(module, "program", lambda: None)
    job = await sandbox.start("unshare -U true && echo made", view, CommandLimits())
    text, status = await output_of(job)
    assert "made" not in text
    assert status == 1


async def test_a_signal_to_its_process_group_stays_in_the_sandbox(sandbox, view):
    line = "trap '' TERM; kill 0; sleep 0.3; echo end"
    assert await output_of(await sandbox.start(line, view, CommandLimits())) == ("end\n", 0)


def test_a_command_cannot_reach_the_terminal_of_this_program():
    pid, terminal = pty.fork()
    if pid == 0:
        status = 1
        try:
            os.close(os.open("/dev/tty", os.O_RDWR))  # this process has one
            asyncio.run(attack("privileges-terminal").run(Bwrap()))
            status = 0
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(status)
    with suppress(OSError):  # the end of a terminal
        while os.read(terminal, 4096):
            pass
    os.close(terminal)
    assert os.waitpid(pid, 0)[1] == 0


async def test_the_suite_finds_that_there_is_no_sandbox():
    for name in ("view-outside", "view-environment", "git-configuration", "masks-read"):
        with pytest.raises(AssertionError):
            await attack(name).run(Unconfined())


# ── the life of a command ───────────────────────────────────────────────────────────────────


@pytest.fixture
def view(folder):
    fd = os.open(folder, os.O_RDONLY)
    yield View(root=str(folder), fd=fd)
    os.close(fd)


async def output_of(job):
    text = b"".join([chunk async for chunk in job.output()])
    return text.decode(), await job.wait()


async def test_a_cancelled_command_ends_with_everything_it_started(sandbox, view, base):
    job = await sandbox.start("setsid sleep 271 & echo begun; sleep 272", view, CommandLimits())
    begun = asyncio.Event()

    async def read():
        async for _ in job.output():
            begun.set()

    task = asyncio.create_task(read())
    await begun.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    await job.wait()
    for _ in range(1000):
        if not sleeping("271", "272"):
            break
        await asyncio.sleep(0.01)
    assert not sleeping("271", "272")


async def test_a_command_ends_though_nobody_reads_its_output(sandbox, view):
    """Its pipe stays full, and is not read to its end."""
    job = await sandbox.start("yes", view, CommandLimits())
    output = job.output()
    await anext(output)
    while not job._reader._paused:  # noqa: ASYNC110
        await asyncio.sleep(0)
    await output.aclose()
    async with asyncio.timeout(60):
        assert await job.wait() != 0


def sleeping(*words):
    """The processes whose last argument is one of these words."""
    pids = []
    for pid in map(int, filter(str.isdigit, os.listdir("/proc"))):
        with suppress(OSError):
            line = Path(f"/proc/{pid}/cmdline").read_bytes().decode(errors="replace")
            if line.strip("\0").split("\0")[-1] in words:
                pids.append(pid)
    return pids


async def test_a_process_that_survives_the_kill_keeps_nobody_waiting(view):
    """Without a sandbox, a process in a session of its own does."""
    line = "setsid sleep 276 & echo begun; test {} || sleep 60"
    before = set(os.listdir("/proc/self/fd"))
    try:
        async with asyncio.timeout(20):
            job = await Unconfined().start(line.format(1), view, CommandLimits())
            assert await output_of(job) == ("begun\n", 0)
            assert job.stopped == ""
            job = await Unconfined().start(line.format(""), view, CommandLimits(seconds=1))
            assert (await output_of(job))[0] == "begun\n"
            assert job.stopped == "after 1 s"
            await asyncio.sleep(0)
            assert set(os.listdir("/proc/self/fd")) == before
    finally:
        survivors = sleeping("276")
        for pid in survivors:
            os.kill(pid, signal.SIGKILL)
    assert len(survivors) == 2


async def test_a_command_sees_the_workspace_at_its_path(sandbox, folder, view):
    (folder / "sub").mkdir()
    inside = View(root=view.root, fd=view.fd, at="/somewhere", cwd="sub")
    assert await output_of(await sandbox.start("pwd", inside, CommandLimits())) == (
        "/somewhere/sub\n",
        0,
    )


async def test_the_folder_stays_the_same_if_its_path_is_replaced(sandbox, folder, view):
    (folder / "a.txt").write_text("mine")
    folder.rename(folder.parent / "moved")
    folder.mkdir()
    (folder / "a.txt").write_text("other")
    assert (await output_of(await sandbox.start("cat a.txt", view, CommandLimits())))[0] == "mine"


async def test_no_descriptor_is_left_open(sandbox, view):
    before = set(os.listdir("/proc/self/fd"))
    await output_of(await sandbox.start("true", view, CommandLimits()))
    await asyncio.sleep(0)
    assert set(os.listdir("/proc/self/fd")) == before


async def test_root_is_refused(monkeypatch, sandbox):
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    assert "ordinary user" in await sandbox.check()


async def test_what_is_missing_is_said(monkeypatch):
    monkeypatch.setattr(module, "_find_bwrap", lambda: None)
    assert "pip install" in await Bwrap().check()


@pytest.mark.parametrize("path", ["/", "relative", os.path.expanduser("~")])
def test_not_everything_can_be_visible(path):
    with pytest.raises(UsageError):
        Bwrap(visible=[path])


@pytest.mark.parametrize("name", CommandLimits.__struct_fields__)
@pytest.mark.parametrize("value", [0, -1, float("nan"), float("inf"), True, "1"], ids=repr)
def test_limits_are_numbers_above_zero(name, value):
    with pytest.raises(UsageError):
        CommandLimits(**{name: value})


def test_an_unknown_processor_has_no_filter():
    assert seccomp.program("sparc") is None
    assert len(seccomp.program("aarch64")) % 8 == 0
