"""Keeps a replay from reaching the outside: no connection is opened and no program started in it.

A hook that tries raises an error, as if the network were down. Python calls an audit hook before
each of these operations; it is installed with the first replay and looks only at replays.
"""

from __future__ import annotations

import sys
from collections.abc import Generator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, Final

from hookline.errors import UsageError

CLOSED: Final[ContextVar[bool]] = ContextVar("hookline_replay_closed", default=False)
EVENTS: Final = frozenset(
    {"socket.connect", "socket.getaddrinfo", "socket.sendto", "subprocess.Popen", "os.system"}
)
_installed: list[object] = []


def _audit(event: str, arguments: tuple[Any, ...]) -> None:
    if event in EVENTS and CLOSED.get():
        raise UsageError(
            f"a hook reaches out of a replay ({event}); leave it out with without=, or make it "
            "decide without the outside"
        )


@contextmanager
def closed() -> Generator[None, None, None]:
    """Refuse connections and programs in this block, and in tasks and threads begun in it."""
    if not _installed:
        sys.addaudithook(_audit)
        _installed.append(_audit)
    token = CLOSED.set(True)
    try:
        yield
    finally:
        CLOSED.reset(token)
