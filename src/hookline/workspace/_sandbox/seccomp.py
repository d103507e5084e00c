"""A filter of system calls, as the BPF program that `bwrap --seccomp` reads.

It refuses what only an attack needs, and what no namespace confines: keyrings, vsock, sockets of
daemons whose files are in the workspace, calls that go round the filter (io_uring, another
architecture), modes that let a file run as its owner outside of the sandbox, and `ptrace`: with it,
a command could keep the first process of the sandbox from ending with the program that started it.
"""

from __future__ import annotations

import platform
import struct
from typing import Final

_LOAD, _EQUAL, _ANY_BIT, _AT_LEAST, _RETURN = 0x20, 0x15, 0x45, 0x35, 0x06
_ALLOW, _KILL = 0x7FFF0000, 0x80000000
_EPERM, _ENOSYS = 0x00050001, 0x00050026
_NUMBER, _ARCHITECTURE, _ARGUMENTS = 0, 4, 16  # offsets in the data that the filter sees
_X32: Final = 0x40000000
_SET_ID: Final = 0o6000
_NEW_NAMESPACES: Final = 0x7E020000  # CLONE_NEW*

MACHINES: Final = {"x86_64": (0, 0xC000003E), "aarch64": (1, 0xC00000B7)}
# The number of each call on x86_64 and on aarch64; None where there is no such call.
EPERM_CALLS: Final[dict[str, tuple[int | None, int | None]]] = {
    "io_uring_setup": (425, 425),
    "io_uring_enter": (426, 426),
    "io_uring_register": (427, 427),
    "keyctl": (250, 219),
    "add_key": (248, 217),
    "request_key": (249, 218),
    "bpf": (321, 280),
    "userfaultfd": (323, 282),
    "perf_event_open": (298, 241),
    "fanotify_init": (300, 262),
    "open_by_handle_at": (304, 265),
    "kexec_load": (246, 104),
    "kexec_file_load": (320, 294),
    "mount": (165, 40),
    "umount2": (166, 39),
    "pivot_root": (155, 41),
    "chroot": (161, 51),
    "fsopen": (430, 430),
    "fsmount": (432, 432),
    "open_tree": (428, 428),
    "move_mount": (429, 429),
    "mount_setattr": (442, 442),
    "setns": (308, 268),
    "unshare": (272, 97),
    "quotactl": (179, 60),
    "syslog": (103, 116),
    "acct": (163, 89),
    "personality": (135, 92),
    "move_pages": (279, 239),
    "modify_ldt": (154, None),
    "ptrace": (101, 117),
    "process_vm_readv": (310, 270),
    "process_vm_writev": (311, 271),
}
# Their flags or modes are in memory, where a filter cannot see them; programs then use older calls.
ENOSYS_CALLS: Final = {"clone3": (435, 435), "openat2": (437, 437)}
# The place of the mode among the arguments.
MODES: Final[dict[str, tuple[int | None, int | None, int]]] = {
    "chmod": (90, None, 1),
    "fchmod": (91, 52, 1),
    "fchmodat": (268, 53, 2),
    "fchmodat2": (452, 452, 2),
    "creat": (85, None, 1),
    "open": (2, None, 2),
    "openat": (257, 56, 3),
    "mkdir": (83, None, 1),
    "mkdirat": (258, 34, 2),
    "mknod": (133, None, 1),
    "mknodat": (259, 33, 2),
}
_CLONE: Final = (56, 220)
_SOCKET: Final = (41, 198)
FAMILIES: Final = (2, 10, 16)
"""AF_INET and AF_INET6, which lead to the sandbox's own loopback, and AF_NETLINK."""

_Line = tuple[int, int, int, int]


def program(machine: str | None = None) -> bytes | None:
    """Return the filter for this machine, or None if its system calls are not in the table."""
    entry = MACHINES.get(machine or platform.machine())
    if entry is None:
        return None
    column, architecture = entry
    lines: list[_Line] = [
        (_LOAD, 0, 0, _ARCHITECTURE),
        (_EQUAL, 1, 0, architecture),
        (_RETURN, 0, 0, _KILL),
        (_LOAD, 0, 0, _NUMBER),
        (_AT_LEAST, 0, 1, _X32),
        (_RETURN, 0, 0, _KILL),
    ]
    for numbers in EPERM_CALLS.values():
        lines += _when(numbers[column], [(_RETURN, 0, 0, _EPERM)])
    for numbers in ENOSYS_CALLS.values():
        lines += _when(numbers[column], [(_RETURN, 0, 0, _ENOSYS)])
    for x86, arm, place in MODES.values():
        lines += _when((x86, arm)[column], _unless_bits(place, _SET_ID))
    lines += _when(_CLONE[column], _unless_bits(0, _NEW_NAMESPACES))
    lines += _when(_SOCKET[column], _one_of(FAMILIES))
    lines.append((_RETURN, 0, 0, _ALLOW))
    return b"".join(struct.pack("=HBBI", *line) for line in lines)


def _when(number: int | None, lines: list[_Line]) -> list[_Line]:
    """These lines, which end the filter, for one call."""
    return [] if number is None else [(_EQUAL, 0, len(lines), number), *lines]


def _unless_bits(place: int, bits: int) -> list[_Line]:
    """Refuse the call if one of these bits is set in an argument."""
    return [
        (_LOAD, 0, 0, _ARGUMENTS + 8 * place),
        (_ANY_BIT, 0, 1, bits),
        (_RETURN, 0, 0, _EPERM),
        (_RETURN, 0, 0, _ALLOW),
    ]


def _one_of(values: tuple[int, ...]) -> list[_Line]:
    """Refuse the call unless its first argument is one of these."""
    tests = [(_EQUAL, len(values) - n, 0, value) for n, value in enumerate(values)]
    return [
        (_LOAD, 0, 0, _ARGUMENTS),
        *tests,
        (_RETURN, 0, 0, _EPERM),
        (_RETURN, 0, 0, _ALLOW),
    ]
