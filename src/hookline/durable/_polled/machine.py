"""The names of workers, which tell other workers of the same machine whose process is gone."""

from __future__ import annotations

import os
from functools import lru_cache
from hashlib import blake2b
from pathlib import Path
from typing import Final

_BOOT: Final = Path("/proc/sys/kernel/random/boot_id")
_PROCESSES: Final = "/proc/self/ns/pid"


@lru_cache(maxsize=1)
def boot() -> str:
    """Return a name for the time since this machine was started, where the system has one."""
    try:
        return f"{_BOOT.read_text().strip()[:8]}-"
    except OSError:
        return ""


@lru_cache(maxsize=1)
def _place() -> str:
    """Return a name for the processes that this one can see, where the system has one."""
    try:
        seen = f"{_BOOT.read_text()}{os.readlink(_PROCESSES)}"
    except OSError:
        return ""
    return blake2b(seen.encode(), digest_size=4).hexdigest()


def new_name() -> str:
    """Return a name for a worker of this process."""
    return f"{_place()}-{os.getpid()}-{os.urandom(5).hex()}"


def is_gone(name: str) -> bool:
    """Return whether a worker is known to be gone: its process ran here, and has ended."""
    place, _, rest = name.partition("-")
    pid, _, _ = rest.partition("-")
    if not place or place != _place() or not pid.isdecimal():
        return False
    try:
        os.kill(int(pid), 0)
    except ProcessLookupError:
        return True
    except OSError:
        return False
    return False
