"""Report failures of telemetry itself: each kind is logged once, and never reaches the chat."""

from __future__ import annotations

import logging

_logger = logging.getLogger("hookline.otel")
_kinds: set[str] = set()


def report(what: str, exc: BaseException | None = None) -> None:
    """Log the first failure of each kind, and all at DEBUG: only its type, never its text."""
    level = logging.DEBUG if what in _kinds else logging.WARNING
    _kinds.add(what)
    if exc is not None:
        what = f"{what}: {type(exc).__name__}"
    _logger.log(level, what)
