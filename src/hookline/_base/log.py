"""The only logger, and its rule: log names and places, never content.

An exception's text can contain a prompt or a key, so a warning has only its type and line. The full
traceback is logged at DEBUG.
"""

from __future__ import annotations

import logging
from traceback import walk_tb

logger = logging.getLogger("hookline")


def log_throw(what: str, exc: BaseException) -> None:
    """Log that user code raised: the kind of code, the exception's type, and its origin."""
    place = ""
    for frame, line in walk_tb(exc.__traceback__):  # the last frame is the origin
        place = f" ({frame.f_code.co_filename}:{line})"
    logger.warning("%s: %s%s", what, type(exc).__name__, place)
    logger.debug("%s", what, exc_info=exc)
