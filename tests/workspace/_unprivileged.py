"""Run tests as a user without rights, with a limit of processes, also if the suite runs as root.

The sandbox refuses root. If the suite runs as root, each test of this folder runs in a process of
its own, which has become another user before the test begins. It keeps one right, to read files,
because the Python installation may be in root's home; no program that it starts has that right.
"""

from __future__ import annotations

import ctypes
import gc
import os
import pickle
import resource
import shutil
import signal
import sys
import tempfile
import traceback
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from _pytest.runner import runtestprotocol

NOBODY = 65_534
PROCESSES = 300
_SET_DUMPABLE, _SET_KEEPCAPS = 4, 8
_READ_ALL = 1 << 2  # CAP_DAC_READ_SEARCH


class _Header(ctypes.Structure):
    _fields_ = (("version", ctypes.c_uint32), ("pid", ctypes.c_int))


class _Sets(ctypes.Structure):
    _fields_ = (
        ("effective", ctypes.c_uint32),
        ("permitted", ctypes.c_uint32),
        ("inheritable", ctypes.c_uint32),
    )


def become_nobody() -> None:
    """Give up the rights of root, and limit the number of processes."""
    libc = ctypes.CDLL(None, use_errno=True)
    libc.prctl(_SET_KEEPCAPS, 1, 0, 0, 0)
    os.setgroups([])
    os.setresgid(NOBODY, NOBODY, NOBODY)
    os.setresuid(NOBODY, NOBODY, NOBODY)
    sets = (_Sets * 2)(_Sets(_READ_ALL, _READ_ALL, 0), _Sets(0, 0, 0))
    if libc.capset(ctypes.byref(_Header(0x20080522, 0)), ctypes.byref(sets)):
        raise OSError(ctypes.get_errno(), "capset")
    libc.prctl(_SET_DUMPABLE, 1, 0, 0, 0)
    limit_processes()


def limit_processes() -> None:
    """Let this process and all below it have so many processes, and no more."""
    _, hard = resource.getrlimit(resource.RLIMIT_NPROC)
    most = PROCESSES if hard == resource.RLIM_INFINITY else min(PROCESSES, hard)
    resource.setrlimit(resource.RLIMIT_NPROC, (most, most))


@cache
def _small_heap(path: Path) -> None:
    """As the fixture of that name, which each process would otherwise do from the start."""
    gc.collect()
    gc.freeze()


def run_in_a_process_of_its_own(item: pytest.Item) -> list[Any]:
    """Run a test as another user; return its reports."""
    _small_heap(item.path)
    reading, writing = os.pipe()
    seconds, _ = signal.setitimer(signal.ITIMER_REAL, 0)  # the timeout of the test moves with it
    sys.stdout.flush()
    sys.stderr.flush()
    pid = os.fork()
    if pid == 0:
        status = 1
        try:
            os.close(reading)
            signal.setitimer(signal.ITIMER_REAL, seconds)
            become_nobody()
            # The folder of pytest's `tmp_path` belongs to root by now.
            factory = getattr(item.config, "_tmp_path_factory")  # noqa: B009
            factory._basetemp = Path(tempfile.mkdtemp(prefix="hookline-test-"))
            # What was set up for the whole session belongs to the process that we came from: with
            # no next item, this process would drop that one's database.
            session: Any = item.session
            reports = runtestprotocol(item, log=False, nextitem=session)
            shutil.rmtree(factory._basetemp, ignore_errors=True)
            data = pickle.dumps([_to_json(item, report) for report in reports])
            with os.fdopen(writing, "wb") as pipe:
                pipe.write(data)
            status = 0
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(status)
    os.close(writing)
    with os.fdopen(reading, "rb") as pipe:
        data = pipe.read()
    os.waitpid(pid, 0)
    assert data, f"the process of {item.nodeid} has died"
    from_json = item.config.hook.pytest_report_from_serializable
    return [from_json(config=item.config, data=each) for each in pickle.loads(data)]


def _to_json(item: pytest.Item, report: Any) -> Any:
    return item.config.hook.pytest_report_to_serializable(config=item.config, report=report)
