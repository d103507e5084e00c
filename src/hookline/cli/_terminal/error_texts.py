"""Describe an error in one line with the next step; the exit statuses. Pure."""

from __future__ import annotations

import traceback
from typing import Final

from hookline.cli._terminal.clean_text import prose, strict
from hookline.errors import HooklineError, ModelError, UsageError

OK: Final = 0
FAILED: Final = 1  # a chat failed
USAGE: Final = 2  # wrong usage, or something is missing
WAITS: Final = 3  # a tool call waits for an approval, and there was nobody to ask
PORT_IN_USE: Final = 4  # the port is taken
INTERRUPTED: Final = 130


def error_line(exc: BaseException, what: str = "it") -> str:
    """Describe an error in one line.

    If the exception is not hookline's, the text begins with `what`, the name of the failed part.
    """
    text = " ".join(str(exc).split())
    if not isinstance(exc, HooklineError):
        name = type(exc).__name__
        text = f"{what} failed with {name}: {text}" if text else f"{what} failed with {name}"
    notes = [" ".join(note.split()) for note in getattr(exc, "__notes__", ())]
    if notes:
        text = f"{text} ({'; '.join(notes)})"
    # The text of a ModelError of hookline's adapters says what to do.
    more = "" if isinstance(exc, (UsageError, ModelError)) else "--debug shows the traceback"
    wait = getattr(exc, "retry_after", None)
    if wait is not None and "try again" not in text.lower():
        more = f"try again in {wait:.0f} s"
    return strict(f"hookline: {text}" + (f"; {more}" if more else ""))


def trace(exc: BaseException) -> str:
    """Return the traceback, which may quote a model's text."""
    return prose("".join(traceback.format_exception(exc))).rstrip("\n")
