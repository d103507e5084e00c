"""Report failures of telemetry itself: each kind is logged once, and never reaches the chat."""

from __future__ import annotations

import logging
from collections.abc import Callable

_logger = logging.getLogger("hookline.otel")
_kinds: set[str] = set()


def report(what: str, exc: BaseException | None = None) -> None:
    """Log the first failure of each kind, and all at DEBUG: only its type, never its text."""
    level = logging.DEBUG if what in _kinds else logging.WARNING
    _kinds.add(what)
    if exc is not None:
        what = f"{what}: {type(exc).__name__}"
    _logger.log(level, what)


class FailureReport:
    """Reports an exception of a `with` block, which then ends, and calls `repair`.

    Where every call of a model or tool passes, a plain `try` with `report` is cheaper.
    """

    __slots__ = ("_repair", "_what")

    def __init__(self, what: str, repair: Callable[[], None] | None = None) -> None:
        self._what = what
        self._repair = repair

    def __enter__(self) -> None: ...

    def __exit__(self, kind: object, exc: BaseException | None, trace: object) -> bool:
        if not isinstance(exc, Exception):
            return False
        report(self._what, exc)
        if self._repair is not None:
            self._repair()
        return True
