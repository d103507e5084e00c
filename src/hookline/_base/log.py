"""The one logger, and the rule of what it may say: names and places, never content.

An exception's text can hold a prompt or a key, so a warning names its type and line; the full
traceback is there at DEBUG.
"""

from __future__ import annotations

import logging

logger = logging.getLogger("hookline")


def log_throw(what: str, exc: BaseException) -> None:
    """Log that user code raised: what it was, the exception's type and where it came from."""
    frame = exc.__traceback__
    while frame is not None and frame.tb_next is not None:
        frame = frame.tb_next
    code = frame.tb_frame.f_code if frame is not None else None
    place = f" ({code.co_filename}:{frame.tb_lineno})" if frame is not None and code else ""
    logger.warning("%s: %s%s", what, type(exc).__name__, place)
    logger.debug("%s", what, exc_info=exc)
