"""The commands of the conformance suite for sandboxes: each prints what shows that it ran.

They write to nothing outside of their workspace, connect to nothing but the loopback of the suite,
and start no more processes than the suite allows.
"""

from __future__ import annotations

from typing import Any, Final

Row = tuple[str, str, str]


def _python(code: str) -> str:
    """Run Python; what it refuses is printed by the name of the error."""
    lines = "".join(f"    {line}\n" for line in code.strip().splitlines())
    return (
        "python3 - <<'END'\n"
        "import ctypes, errno, os, socket\n"
        "libc = ctypes.CDLL(None, use_errno=True)\n"
        "def call(*arguments):\n"
        "    if libc.syscall(*arguments) < 0:\n"
        "        raise OSError(ctypes.get_errno(), '')\n"
        "try:\n"
        f"{lines}"
        "    print('succeeded')\n"
        "except OSError as exc:\n"
        "    print('refused', errno.errorcode.get(exc.errno, exc.errno))\n"
        "END"
    )


def _attack(name: str, code: str, error: str = "") -> Row:
    return name, _python(code), f"refused {error}".rstrip()


_VIEW: Final = (
    ("outside", "cat {host}/secret.txt link/secret.txt ../outside/secret.txt; echo end", "end"),
    ("list outside", "ls -R {host} link/ .. /home /root /var /srv /opt /mnt; echo end", "end"),
    ("environment", "env; cat /proc/*/environ; echo end", "end"),
    ("own environment", 'echo "$GIVEN"', "value"),
    (
        "options of the sandbox",
        "cat /proc/[0-9]*/cmdline | tr '\\0' '\\n' | grep -c '[-]-ro-bind'; echo end",
        "0\nend",
    ),
    ("root of the first process", "cat /proc/1/root{host}/secret.txt; echo end", "end"),
    ("folder of the first process", "ls /proc/1/cwd/../../outside; echo end", "end"),
    (
        "descriptors",
        "for fd in /proc/*/fd/*; do cat $fd/../outside/secret.txt $fd/secret.txt; done; echo end",
        "end",
    ),
    ("processes", "test $(ls -d /proc/[0-9]* | wc -l) -lt 9 && echo end", "end"),
    (
        "signals",
        "for p in $(seq 20 400); do kill -0 $p 2>/dev/null && echo x; done | grep -c x; echo end",
        "0\nend",
    ),
    ("kernel log", "dmesg; cat /dev/kmsg /proc/kmsg; echo end", "end"),
    ("devices", "ls /dev/sd* /dev/vd* /dev/mem /dev/kvm | grep -c /dev; echo end", "0\nend"),
    ("sysfs", "ls -d /sys/class /sys/fs | grep -c sys; echo end", "0\nend"),
    ("passwords", "cat /etc/shadow /etc/sudoers /etc/machine-id; echo end", "end"),
    ("host name", "test $(uname -n) = sandbox && echo end", "end"),
    ("other users", "wc -l < /etc/passwd", "1"),
)
_MASKS: Final = (
    ("read", "cat conf/.env; cp conf/.env b; cat b; head -c 99 < conf/.env; echo end", "end"),
    ("rename", "mv conf/.env b; cat b; echo end", "end"),
    ("rename the folder", "mv conf conf2; cat conf2/.env; echo end", "end"),
    ("hard link", "ln conf/.env b; cat b; echo end", "end"),
    ("link", "ln -s conf/.env b; cat b; echo end", "end"),
    ("mode", "chmod 644 conf/.env; cat conf/.env; echo end", "end"),
    ("remove", "rm -rf conf; cat conf/.env; echo end", "end"),
    ("replace", "echo x > b; mv -f b conf/.env; rm conf/.env; echo end", "end"),
    ("unmount", "umount conf/.env; umount -l conf; cat conf/.env; echo end", "end"),
    _attack(
        "exchange",
        "os.mkdir('other')\ncall(316, -100, b'conf', -100, b'other', 2)",
    ),
    _attack("open by handle", "call(304, -100, 0, 0)", "EPERM"),
    ("archive", "tar cf - conf 2>/dev/null | tar xOf - ; grep -r . conf; echo end", "end"),
)
_GIT: Final = (
    ("configuration", "echo '[core] fsmonitor = id' >> .git/config; echo end", "end"),
    ("hook", "echo id > .git/hooks/pre-commit; echo end", "end"),
    ("common folder", "mkdir -p evil; echo ../evil > .git/commondir; echo end", "end"),
    ("rename", "mv .git .git2; mkdir .git; echo end", "end"),
    ("remove", "rm -rf .git; echo end", "end"),
    ("remount", "mount -o remount,rw .git; mount --bind conf .git; echo end", "end"),
    ("git itself", "git init -q; git config core.fsmonitor id; echo end", "end"),
)
_NETWORK: Final = (
    _attack("loopback of the host", "socket.create_connection(('127.0.0.1', {port}), 3)"),
    (
        "datagram to the host",
        _python("socket.socket(type=socket.SOCK_DGRAM).sendto(b'x', ('127.0.0.1', {port}))"),
        "",
    ),
    (
        "names of hosts",
        "grep -c nameserver /etc/resolv.conf; getent hosts hookline.invalid; echo end $?",
        "0\nend 2",
    ),
    _attack(
        "socket in the workspace",
        "socket.socket(socket.AF_UNIX).connect('daemon.sock')",
        "EPERM",
    ),
    _attack("abstract socket", "socket.socket(socket.AF_UNIX).connect('\\0hookline-{token}')"),
    _attack("vsock", "socket.socket(40, socket.SOCK_STREAM)", "EPERM"),
    _attack("packets", "socket.socket(17, socket.SOCK_RAW)", "EPERM"),
    _attack("kernel crypto", "socket.socket(38, socket.SOCK_SEQPACKET)", "EPERM"),
    _attack("bluetooth", "socket.socket(31, socket.SOCK_RAW)", "EPERM"),
    ("sockets of services", "find /run /var -type s | grep -c .; echo end", "0\nend"),
    ("routes", "tail -n +2 /proc/net/route | grep -c .; echo end", "0\nend"),
    ("interfaces", "tail -n +3 /proc/net/dev | grep -vc ' lo:'; echo end", "0\nend"),
    ("own loopback", _python(
        "server = socket.create_server(('127.0.0.1', 0))\n"
        "socket.create_connection(server.getsockname(), 3)"
    ), "succeeded"),
)  # fmt: skip
_PRIVILEGES: Final = (
    ("set-user by chmod", "cp /bin/sh b; chmod 4755 b; chmod u+s b; chmod g+s b; echo end", "end"),
    ("set-user by install", "install -m 6755 /bin/sh b; echo end", "end"),
    ("set-group folder", "mkdir d; chmod g+s d; mkdir -m 2755 e; echo end", "end"),
    (
        "set-user by tar",
        _python(
            "import io, tarfile\n"
            "info = tarfile.TarInfo('b')\n"
            "info.mode = 0o4755\n"
            "file = io.BytesIO()\n"
            "with tarfile.open(fileobj=file, mode='w') as tar: tar.addfile(info)\n"
            "open('b.tar', 'wb').write(file.getvalue())"
        )
        + "\ntar xpf b.tar; echo end",
        "end",
    ),
    _attack("set-user by open", "os.open('b', os.O_CREAT | os.O_WRONLY, 0o4755)", "EPERM"),
    _attack(
        "set-user by openat2",
        "how = (ctypes.c_uint64 * 3)(os.O_CREAT | os.O_WRONLY, 0o4755, 0)\n"
        "call(437, -100, b'b', ctypes.byref(how), 24)",
        "ENOSYS",
    ),
    _attack("set-user by mknod", "os.mknod('b', 0o104755)", "EPERM"),
    _attack("device", "os.mknod('b', 0o20666, os.makedev(1, 3))"),
    (
        "capabilities",
        "grep -c 'Cap\\(Prm\\|Eff\\|Bnd\\|Amb\\).*0000000000000000' /proc/self/status",
        "4",
    ),
    ("no new privileges", "grep NoNewPrivs /proc/self/status", "1"),
    ("sudo", "sudo -n id; su -c id </dev/null; echo end", "end"),
    (
        "read-only system",
        "for d in / /usr /etc /dev; do touch $d/x && echo wrote; done | grep -c wrote; echo end",
        "0\nend",
    ),
    _attack(
        "sysctl",
        "if os.statvfs('/proc').f_flag & os.ST_RDONLY: raise OSError(errno.EROFS, '')",
        "EROFS",
    ),
    ("terminal", "test -t 0 || (exec 3<> /dev/tty) || echo end", "end"),
)
_CALLS: Final = (
    _attack("user namespace", "call(272, 0x10000000)", "EPERM"),
    _attack("mount namespace", "call(272, 0x20000)", "EPERM"),
    _attack("clone with a namespace", "call(56, 0x10000000 | 17, 0, 0, 0, 0)", "EPERM"),
    _attack("clone3", "call(435, 0, 0)", "ENOSYS"),
    ("calls of x32", f"{_python('call(0x40000000 | 39)')}\necho end $?", "end 159"),
    (
        "calls of i386",
        _python(
            "import mmap\n"
            "code = mmap.mmap(-1, 4096, prot=7)\n"
            "code.write(bytes.fromhex('b814000000cd80c3'))  # getpid, by int 0x80\n"
            "address = ctypes.addressof(ctypes.c_char.from_buffer(code))\n"
            "ctypes.CFUNCTYPE(ctypes.c_int)(address)()"
        )
        + "\necho end $?",
        "end 1",
    ),
    _attack("setns", "call(308, os.open('/proc/1/ns/net', 0), 0)", "E"),
    _attack("mount", "call(165, 0, 0, 0, 0, 0)", "EPERM"),
    _attack("move_mount", "call(429, -1, 0, -1, 0, 0)", "EPERM"),
    _attack("chroot", "os.chroot('.')", "EPERM"),
    _attack("keyctl", "call(250, 0, -3, 0)", "EPERM"),
    _attack("add_key", "call(248, b'user', b'x', b'x', 1, -3)", "EPERM"),
    _attack("io_uring", "call(425, 8, ctypes.create_string_buffer(120))", "EPERM"),
    _attack("bpf", "call(321, 0, 0, 0)", "EPERM"),
    _attack("userfaultfd", "call(323, 0)", "EPERM"),
    _attack("perf_event_open", "call(298, 0, 0, -1, -1, 0)", "EPERM"),
    _attack("personality", "call(135, 0x0040000)", "EPERM"),
    _attack("ptrace of the first process", "call(101, 16, 1, 0, 0)", "EPERM"),
    _attack("memory of the first process", "call(311, 1, 0, 0, 0, 0, 0)", "EPERM"),
)
COMMANDS: Final[dict[str, tuple[Row, ...]]] = {
    "view": _VIEW,
    "masks": _MASKS,
    "git": _GIT,
    "network": _NETWORK,
    "privileges": _PRIVILEGES,
    "calls": _CALLS,
}
LIMITS: Final[tuple[tuple[str, str, str, dict[str, Any], bool], ...]] = (
    ("processes", "for i in $(seq 100); do sleep 60 & done", "fork", {"seconds": 4}, True),
    ("time", "echo begun; sleep 60; echo end", "begun", {"seconds": 1}, True),
    ("output", "yes", "y", {"output_bytes": 1 << 20}, True),
    (
        "memory of a process",
        "python3 -c 'bytearray(1 << 30)'; echo end",
        "MemoryError",
        {"memory": 256 << 20},
        False,
    ),
    (
        "memory of all",
        "for i in 1 2 3 4; do python3 -c 'import time; x = bytearray(150 << 20); time.sleep(9)' & "
        "done; wait; echo end",
        "",
        {"memory": 300 << 20},
        True,
    ),
    (
        "size of a file",
        "head -c 4M /dev/zero > big; wc -c < big; rm big; echo end",
        "1048576",
        {"file_bytes": 1 << 20},
        False,
    ),
    (
        "disk",
        "for i in $(seq 24); do head -c 4M /dev/urandom > big$i; sleep 0.1; done; "
        "sleep 2; echo end",
        "",
        {"disk_bytes": 32 << 20},
        True,
    ),
    (
        "private /tmp",
        "head -c 4M /dev/zero > /tmp/x; wc -c < /tmp/x",
        "1048576",
        {"tmp_bytes": 1 << 20},
        False,
    ),
    ("daemon", "setsid sh -c 'sleep 300 # {token}' & disown; echo end", "end", {}, False),
    (
        "output in order",
        "for i in 1 2 3; do echo out$i; echo err$i >&2; done",
        "out1\nerr1\nout2\nerr2\nout3\nerr3\n",
        {},
        False,
    ),
)
