"""Writing: what goes to stdout, what goes to stderr, in which colours, and the spinner.

Only clean text comes here (`_clean.py`). On a terminal everything is written to stdout, in order.
Otherwise stdout gets the answer alone, and all else is a note on stderr.
"""

from __future__ import annotations

import os
import sys
from contextlib import suppress
from typing import Final, TextIO

from rich.console import Console
from rich.status import Status
from rich.text import Text

from hookline.cli._flow import break_words, fit
from hookline.cli._lines import Line

LOG_WIDTH: Final = 160
STYLES: Final = {
    "": "",
    "dim": "dim",
    "name": "bold",
    "call": "cyan",
    "good": "green",
    "bad": "red",
    "mark": "yellow",
    "hook": "dim magenta",
    "you": "bold green",
    "thought": "dim italic",
}


def is_terminal(stream: TextIO | None) -> bool:
    """Whether a person may be at the other end; a stream that was closed is None."""
    return stream is not None and stream.isatty()


def is_dumb() -> bool:
    """Whether the terminal knows no escape sequences."""
    return os.environ.get("TERM", "").lower() in ("dumb", "unknown")


def console_on(stream: TextIO) -> Console:
    """A console of rich's that does nothing by itself: no markup, no emoji, no highlighting."""
    terminal = stream.isatty()
    plain = not terminal or is_dumb() or bool(os.environ.get("NO_COLOR"))
    return Console(
        file=stream,
        force_terminal=terminal,
        color_system=None if plain else "auto",
        no_color=plain,
        highlight=False,
        markup=False,
        emoji=False,
        soft_wrap=True,
        legacy_windows=False,
    )


class Screen:
    """stdout and stderr, as they are. `live`: a person looks at stdout as it is written."""

    def __init__(self) -> None:
        for stream in (sys.stdout, sys.stderr):
            reconfigure = getattr(stream, "reconfigure", None)
            if reconfigure is not None:  # a character that the terminal lacks is no crash
                reconfigure(errors="replace")
        self.live = sys.stdout.isatty()
        self.spins = self.live and not is_dumb()
        self._out = console_on(sys.stdout)
        self._errors = console_on(sys.stderr)
        self._notes = self._out if self.live else self._errors
        self._status: Status | None = None
        self._held: list[Line] | None = None
        self.coloured = self._notes.color_system is not None

    @property
    def width(self) -> int:
        """Cells of a line: as wide as the terminal is now, or what a log file bears."""
        return self._notes.width if self._notes.is_terminal else LOG_WIDTH

    def write(self, text: str, style: str = "") -> None:
        """A piece of text to stdout, as it is."""
        if text:
            self.still()
            self._out.print(Text(text, STYLES[style]), end="")
            self._out.file.flush()

    def line(self, line: Line) -> None:
        """A line to stdout."""
        self._out.print(_text(line))

    def note(self, line: Line) -> None:
        """A line: on a terminal below what was written, else to stderr."""
        if self._held is not None:
            self._held.append(line)
            return
        self._notes.print(_text(line))

    def say(self, text: str, style: str = "dim") -> None:
        """A note of one style, of as many lines as it takes."""
        for part in break_words(text, self.width):
            self.note([(style, part)])

    def fault(self, text: str) -> None:
        """What went wrong, to stderr."""
        self.still()
        for part in break_words(text, self.width) if self._errors.is_terminal else [text]:
            self._errors.print(Text(part, STYLES["bad"]))

    def hold(self) -> None:
        """A text is being written: what else is to be said waits until it is whole."""
        if self._held is None:
            self._held = []

    def release(self) -> None:
        """The text is whole."""
        held, self._held = self._held or [], None
        for line in held:
            self.note(line)

    # ── waiting ─────────────────────────────────────────────────────────────────────────────

    def spin(self, text: str) -> None:
        """Show that something is waited for, where there is no text on the open line."""
        if not self.spins or self._held is not None:
            return
        shown = Text(fit(text, max(8, self.width - 4)), STYLES["dim"], no_wrap=True)
        if self._status is None:
            self._status = Status(shown, console=self._out, spinner="dots", spinner_style="cyan")
            self._status.start()
        else:
            self._status.update(shown)

    def still(self) -> None:
        """Nothing is waited for any more."""
        if self._status is not None:
            self._status.stop()
            self._status = None

    def give_back(self) -> None:
        """The program is left in the middle of something: the cursor is shown again."""
        if self.spins:
            with suppress(OSError):
                os.write(sys.stdout.fileno(), b"\x1b[?25h\n")


def _text(line: Line) -> Text:
    shown = Text()
    for style, text in line:
        shown.append(text, STYLES[style] or None)
    return shown
