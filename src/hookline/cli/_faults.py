"""Describe an error in one line with the next step, and choose its exit status. Pure."""

from __future__ import annotations

import traceback
from typing import Final

from hookline.cli._clean import prose, strict
from hookline.errors import (
    AuthenticationError,
    BadRequestError,
    ContentRefusedError,
    ContextTooLongError,
    HooklineError,
    IdleTimeoutError,
    MalformedStreamError,
    ModelConnectionError,
    ModelError,
    OverloadedError,
    RateLimitError,
    UsageError,
)

OK: Final = 0
FAILED: Final = 1  # a chat failed
USAGE: Final = 2  # wrong usage, or something is missing
WAITS: Final = 3  # a tool call waits for an approval, and there was nobody to ask
TAKEN: Final = 4  # the port is taken
INTERRUPTED: Final = 130

# The next step for errors whose text does not contain it.
NEXT: Final[tuple[tuple[type[BaseException], str], ...]] = (
    (AuthenticationError, "check the key, and whether it may use this model"),
    (RateLimitError, "try again later, or check the account's limits"),
    (OverloadedError, "try again in a while"),
    (ContextTooLongError, "begin a new conversation, or give the agent hookline.hooks.window()"),
    (ContentRefusedError, "rephrase the message"),
    (BadRequestError, "check the name of the model and the agent's settings"),
    (ModelConnectionError, "check the network and the provider's address"),
    (IdleTimeoutError, "try again"),
    (MalformedStreamError, "try again; --debug shows more"),
)


def status_of(exc: BaseException) -> int:
    """Return the exit status for an error."""
    if isinstance(exc, KeyboardInterrupt):
        return INTERRUPTED
    return USAGE if isinstance(exc, UsageError) else FAILED


def told(exc: BaseException, what: str = "it") -> str:
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
    more = next((hint for kind, hint in NEXT if isinstance(exc, kind)), "")
    if isinstance(exc, RateLimitError) and exc.retry_after is not None:
        more = f"try again in {exc.retry_after:.0f} s"
    if not more and not isinstance(exc, (UsageError, ModelError)):
        more = "--debug shows the traceback"
    return strict(f"hookline: {text}" + (f"; {more}" if more else ""))


def trace(exc: BaseException) -> str:
    """Return the traceback, which may quote a model's text."""
    return prose("".join(traceback.format_exception(exc))).rstrip("\n")
