"""The only logger, and its rule: log names and places, never content.

An exception's text can contain a prompt or a key, so a warning has only its type and line. The full
traceback is logged at DEBUG.
"""

from __future__ import annotations

import logging

logger = logging.getLogger("hookline")


def log_throw(what: str, exc: BaseException) -> None:
    """Log that user code raised: the kind of code, the exception's type, and its origin."""
    frame = exc.__traceback__
    while frame is not None and frame.tb_next is not None:
        frame = frame.tb_next
    code = frame.tb_frame.f_code if frame is not None else None
    place = f" ({code.co_filename}:{frame.tb_lineno})" if frame is not None and code else ""
    logger.warning("%s: %s%s", what, type(exc).__name__, place)
    logger.debug("%s", what, exc_info=exc)
