"""Write to stdout and stderr, with colours and a spinner.

Only clean text reaches this module (`clean_text.py`). On a terminal everything is written to
stdout, in order. Otherwise stdout gets only the answer, and everything else is a note on stderr.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterable
from contextlib import suppress
from importlib import import_module
from itertools import takewhile
from typing import Any, Final, TextIO, TypeAlias

from rich.console import Console
from rich.status import Status
from rich.style import Style
from rich.text import Text

from hookline.cli._options import Format
from hookline.cli._terminal.styled_lines import Line, cut
from hookline.cli._terminal.text_layout import break_words, fit

Row: TypeAlias = tuple[str, int]  # the written text, and its cells

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
    """Return whether a person may read the stream; a closed stream is None."""
    return stream is not None and stream.isatty()


def is_dumb() -> bool:
    """Return whether the terminal does not support escape sequences."""
    return os.environ.get("TERM", "").lower() in ("dumb", "unknown")


def modes() -> tuple[Any, Any] | None:
    """Return the modules for single-key input; Windows has none."""
    try:
        return import_module("termios"), import_module("tty")
    except ImportError:
        return None


def is_ours(terminal: int) -> bool:
    """Return whether we run in the foreground; a background process must not set the terminal."""
    with suppress(OSError):
        return os.tcgetpgrp(terminal) == os.getpgrp()
    return False


def console_on(stream: TextIO) -> Console:
    """Create a rich console without automatic markup, emoji or highlighting."""
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
    """stdout and stderr of this process.

    `live`: a person sees stdout as it is written. `draws`: written text can be changed.
    """

    def __init__(self) -> None:
        for stream in (sys.stdout, sys.stderr):
            reconfigure = getattr(stream, "reconfigure", None)
            if reconfigure is not None:  # an unsupported character must not raise
                reconfigure(errors="replace")
        self.live = sys.stdout.isatty()
        self.listens = False  # typed lines are read while texts are drawn
        self.spins = self.live and not is_dumb()
        self._out = console_on(sys.stdout)
        self._errors = console_on(sys.stderr)
        self._notes = self._out if self.live else self._errors
        self._status: Status | None = None
        self._notes_held: list[Line] | None = None
        self._drawn: list[Row] = []  # the rows that may still change; the cursor is at their end
        self._drawn_width = 0
        self._echo: Any = None  # the terminal settings before drawing
        self.coloured = self._notes.color_system is not None
        self.draws = self.spins and self.coloured

    @property
    def width(self) -> int:
        """The cells of a line: the terminal's current width, or a fixed width for a file."""
        return self._notes.width if self._notes.is_terminal else LOG_WIDTH

    def write(self, text: str, style: str = "") -> None:
        """Write a piece of text to stdout, unchanged."""
        if text:
            self.still()
            self._out.print(Text(text, STYLES[style]), end="")
            self._out.file.flush()

    def line(self, line: Line) -> None:
        """Write a line to stdout."""
        self._out.print(_text(line))

    def note(self, line: Line) -> None:
        """Write a note: on a terminal below the text so far, otherwise to stderr."""
        if self._notes_held is not None:
            self._notes_held.append(line)
            return
        self._notes.print(_text(line))

    def say(self, text: str, style: str = "dim") -> None:
        """Write a note in one style, on as many lines as needed."""
        for part in break_words(text, self.width):
            self.note([(style, part)])

    def fault(self, text: str) -> None:
        """Write an error to stderr."""
        self.still()
        for part in break_words(text, self.width) if self._errors.is_terminal else [text]:
            self._errors.print(Text(part, STYLES["bad"]))

    def hold(self) -> None:
        """Hold back notes while a text is being written."""
        if self._notes_held is None:
            self._notes_held = []

    def release(self) -> None:
        """Write the notes that were held back: the text is complete."""
        notes, self._notes_held = self._notes_held or [], None
        for line in notes:
            self.note(line)

    # ── lines that may still change ─────────────────────────────────────────────────────────
    #
    # Changed lines at the end of a growing text are redrawn: the cursor moves up to the first
    # changed line, and everything is sent in one write. These lines never exceed the height of the
    # terminal, because lines that have scrolled off cannot be changed. If the terminal was made
    # narrower, it has rewrapped the existing lines, as all but the oldest terminals do.

    def draw(self, done: list[Line], growing: list[Line]) -> None:
        """Write final lines, and replace the lines below them, which may still change."""
        self.still()
        self.hush()
        width, height = self._out.size
        done_rows = [self._row(line) for line in done]
        growing_rows = [self._row(line) for line in growing]
        above = len(growing_rows) - (height - 1)
        if above > 0:
            hint = self._row(cut([("dim", f"  ⋮ {above + 1} lines above")], width))
            growing_rows = [hint, *growing_rows[above + 1 :]]
        rows = done_rows + growing_rows
        same = self._same(rows) if width >= self._drawn_width else 0
        up = sum(max(1, -(-cells // width)) for _, cells in self._drawn[same:])
        self._drawn, self._drawn_width = growing_rows, width
        begin = "\n" if same and not up else f"\x1b[{up - 1}A\r\x1b[J" if up > 1 else "\r\x1b[J"
        text = "\n".join(text for text, _ in rows[same:])
        self._out.file.write(begin + text + ("" if growing_rows or not rows else "\n"))
        self._out.file.flush()
        if not (growing_rows or self.listens):
            self.echo()

    def hush(self) -> None:
        """Hide typed keys until `echo`; those of an unfinished line appear at the next prompt."""
        modules = modes() if is_terminal(sys.stdin) else None
        if self._echo is None and modules is not None and is_ours(sys.stdin.fileno()):
            termios, _ = modules
            self._echo = termios.tcgetattr(sys.stdin.fileno())
            silent = list(self._echo)
            silent[3] &= ~termios.ECHO
            termios.tcsetattr(sys.stdin.fileno(), termios.TCSANOW, silent)

    def echo(self) -> None:
        """Show typed keys again."""
        before, self._echo = self._echo, None
        modules = modes()
        if before is not None and modules is not None and is_ours(sys.stdin.fileno()):
            modules[0].tcsetattr(sys.stdin.fileno(), modules[0].TCSANOW, before)

    def _same(self, rows: list[Row]) -> int:
        """Return the number of unchanged rows; the last row is always rewritten."""
        pairs = zip(self._drawn, rows[:-1], strict=False)
        return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], pairs))

    def _row(self, line: Line) -> Row:
        text = _text(line)
        with self._out.capture() as got:
            self._out.print(text, end="")
        return got.get(), text.cell_len

    # ── waiting ─────────────────────────────────────────────────────────────────────────────

    def spin(self, text: str) -> None:
        """Show a spinner, unless there is text on the open line."""
        if not self.spins or self._notes_held is not None:
            return
        label = Text(fit(text, max(8, self.width - 4)), STYLES["dim"], no_wrap=True)
        if self._status is None:
            self._status = Status(label, console=self._out, spinner="dots", spinner_style="cyan")
            self._status.start()
        else:
            self._status.update(label)

    def still(self) -> None:
        """Remove the spinner."""
        if self._status is not None:
            self._status.stop()
            self._status = None

    def give_back(self) -> None:
        """Restore the terminal when the program is interrupted."""
        self.echo()
        if self.spins:
            with suppress(OSError):
                os.write(sys.stdout.fileno(), b"\x1b[?25h\n")


def show_lines(lines: Iterable[Line], *, piped: int = LOG_WIDTH) -> None:
    """Write lines to stdout, cut to the terminal's width; elsewhere, to a number of cells."""
    screen = Screen()
    width = screen.width if screen.live else piped
    for line in lines:
        screen.line(cut(line, width))


def show_data(data: Any, lines: Iterable[Line], output: Format, *, piped: int = LOG_WIDTH) -> None:
    """Write data to stdout, as JSON in ASCII or as these lines."""
    if output == "json":
        print(json.dumps(data, indent=2))
    else:
        show_lines(lines, piped=piped)


def _text(line: Line) -> Text:
    return Text.assemble(
        *((text, style if isinstance(style, Style) else STYLES[style]) for style, text in line)
    )
