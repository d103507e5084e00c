"""What went wrong, in a line that says what to do next, and the exit status for it. Pure."""

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
USAGE: Final = 2  # it was asked for wrongly, or something is missing
WAITS: Final = 3  # a tool call waits for an approval that nobody could be asked for
INTERRUPTED: Final = 130

# What to do next, where the text of the error does not say it.
NEXT: Final[tuple[tuple[type[BaseException], str], ...]] = (
    (AuthenticationError, "check the key, and that it may use this model"),
    (RateLimitError, "try again later, or look at the account's limits"),
    (OverloadedError, "try again in a while"),
    (ContextTooLongError, "begin a new conversation, or give the agent hookline.hooks.window()"),
    (ContentRefusedError, "say it in another way"),
    (BadRequestError, "check the name of the model and the agent's settings"),
    (ModelConnectionError, "check the network and the provider's address"),
    (IdleTimeoutError, "try again"),
    (MalformedStreamError, "try again; --debug shows more"),
)


def status_of(exc: BaseException) -> int:
    """The exit status for this error."""
    if isinstance(exc, KeyboardInterrupt):
        return INTERRUPTED
    return USAGE if isinstance(exc, UsageError) else FAILED


def told(exc: BaseException, what: str = "it") -> str:
    """The error on one line; `what` failed, where it is none of hookline's."""
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
    """The traceback, which may quote what a model wrote."""
    return prose("".join(traceback.format_exception(exc))).rstrip("\n")
