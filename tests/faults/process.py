"""A process of its own for what is measured of a process; what it costs in memory.

`apart` runs a module of this folder as a script that prints one line of JSON.
"""

from __future__ import annotations

import json
import resource
import subprocess
import sys
from pathlib import Path
from typing import Any

KIB = 1024


def apart(module: str, *arguments: object) -> dict[str, Any]:
    """What the module printed, run with these arguments in a fresh process."""
    command = [sys.executable, "-m", f"tests.faults.{module}", *map(str, arguments)]
    done = subprocess.run(command, check=False, capture_output=True, text=True)
    if done.returncode:
        said = done.stderr.strip().rpartition("\n")[2]
        raise RuntimeError(f"{module} ended with {done.returncode}: {said}")
    found: dict[str, Any] = json.loads(done.stdout.strip().rpartition("\n")[2])
    return found


def resident() -> int:
    """The memory of this process that is in use, in bytes; where that is not told, its peak."""
    try:
        pages = int(Path("/proc/self/statm").read_text().split()[1])
        return pages * resource.getpagesize()
    except (OSError, ValueError, IndexError):
        found = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        return found if sys.platform == "darwin" else found * KIB


def many_files(wanted: int) -> int:
    """Let this process open as many files as it may; how many that is, `wanted` at most."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft < hard or hard == resource.RLIM_INFINITY:
        soft = wanted if hard == resource.RLIM_INFINITY else hard
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    return min(soft, wanted)
