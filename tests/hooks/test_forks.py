"""A process that is forked while another thread registers hooks can register hooks itself."""

import os
import signal
import threading
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from hookline import HookBus

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="needs os.fork")

CHILDREN = 40
HANGS = 20  # seconds, until a child that hangs is killed


@contextmanager
def busy(work: Callable[[], object]) -> Iterator[None]:
    """Another thread does this all the time."""
    over = threading.Event()

    def run() -> None:
        while not over.is_set():
            work()

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


def exit_code_of_child(work: Callable[[], object]) -> int:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # a fork beside threads is the point
        pid = os.fork()
    if pid == 0:
        signal.alarm(HANGS)
        try:
            work()
        except BaseException:
            os._exit(1)
        os._exit(0)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def add_and_remove(bus: HookBus[Any]) -> None:
    with bus.add_hook("onStep", lambda ctx: None), bus.subscribe():
        pass


@pytest.mark.parametrize("shared", [True, False], ids=["the same bus", "another bus"])
def test_a_child_adds_hooks_although_a_thread_of_its_parent_was_just_adding_one(
    shared: bool,
) -> None:
    busy_bus: HookBus[Any] = HookBus()
    bus: HookBus[Any] = busy_bus if shared else HookBus()
    with busy(lambda: add_and_remove(busy_bus)):
        codes = [exit_code_of_child(lambda: add_and_remove(bus)) for _ in range(CHILDREN)]
    assert codes == [0] * CHILDREN


def test_the_parent_goes_on_after_a_fork() -> None:
    bus: HookBus[Any] = HookBus()
    assert exit_code_of_child(lambda: add_and_remove(bus)) == 0
    added = threading.Thread(target=lambda: bus.add_hook("onStep", lambda ctx: None))
    added.start()
    added.join(HANGS)
    assert len(bus.hooks()) == 1
