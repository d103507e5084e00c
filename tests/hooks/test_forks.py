"""A process that is forked while another thread holds one of our locks can go on itself."""

import os
import signal
import threading
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from hookline import Conversation, HookBus, MemoryStore, Scope
from hookline._conversations import memory, state
from hookline._conversations.conversation import state_of
from hookline._tools import scopes
from hookline._tools.scopes import Scopes
from hookline.hooks._guards import rate_limit as _rate
from hookline.hooks._guards.rate_limit import _Windows

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


@pytest.mark.slow
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


# ── what else is held for a moment ──────────────────────────────────────────────────────────


def of_memory() -> Callable[[], object]:
    store = MemoryStore()

    def work() -> None:
        owner = f"{threading.get_ident()}-{os.getpid()}"  # each has a conversation of its own
        for step in (store.acquire(owner, owner), store.load(owner), store.release(owner, owner)):
            with pytest.raises(StopIteration):
                step.send(None)  # they never wait

    return work


def of_conversations() -> Callable[[], object]:
    def work() -> None:
        talk = Conversation()
        state_of(talk).acquire("chat")
        state_of(talk).release("chat")
        talk.reset()

    return work


def of_scopes() -> Callable[[], object]:
    ours = Scopes()

    def work() -> None:
        ours.register(Scope(f"s{threading.get_ident()}-{os.getpid()}"))()

    return work


def of_rates() -> Callable[[], object]:
    windows = _Windows(1, 1.0, lambda: 0.0)
    return lambda: windows.take("key")


LOCKS = pytest.mark.parametrize(
    ("work_of", "lock"),
    [
        (of_memory, memory._lock),
        (of_conversations, state._lock),
        (of_scopes, scopes.LOCK),
        (of_rates, _rate._lock),
    ],
    ids=["MemoryStore", "Conversation", "Scopes", "rate_limit"],
)


@pytest.mark.slow
@LOCKS
def test_a_child_goes_on_although_a_thread_of_its_parent_was_just_at_it(
    work_of: Callable[[], Callable[[], object]], lock: Any
) -> None:
    work = work_of()
    with busy(work):
        codes = [exit_code_of_child(work) for _ in range(CHILDREN)]
    assert codes == [0] * CHILDREN


@LOCKS
def test_a_fork_waits_for_a_thread_that_holds_the_lock(
    work_of: Callable[[], Callable[[], object]], lock: Any
) -> None:
    """So that a child never sees what that thread has half changed."""
    work = work_of()
    held, left = threading.Event(), threading.Event()
    order: list[str] = []

    def hold() -> None:
        with lock:
            held.set()
            left.wait(0.2)  # nobody sets it: a fork that does not wait is done before
            order.append("left")

    thread = threading.Thread(target=hold)
    thread.start()
    held.wait()
    code = exit_code_of_child(lambda: (os._exit(2) if order != ["left"] else None, work()))
    thread.join()
    assert code == 0
    assert order == ["left"]
