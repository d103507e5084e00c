"""Draw a growing answer as Markdown: complete blocks stay, the last block is redrawn.

The first piece is drawn at once, and later pieces at most once per `PERIOD`, or less often if
drawing is slow. The unfinished part is redrawn in its place (`screen.py`).
"""

from __future__ import annotations

import asyncio
from typing import Final

from hookline.cli._terminal.clean_text import prose
from hookline.cli._terminal.markdown import markdown, settled_size
from hookline.cli._terminal.screen import Screen
from hookline.cli._terminal.styled_lines import Line

PERIOD: Final = 0.12  # seconds between two drawings
SHARE: Final = 5  # drawing takes at most this fraction of the time, 1/SHARE


class Answer:
    """Draws a growing text on a screen; needs a running event loop."""

    def __init__(self, screen: Screen) -> None:
        self._screen = screen
        self._text = ""  # the text of the unfinished blocks
        self._cr = ""  # a carriage return whose next character is not known yet
        self._above = False  # whether finished blocks are above
        self._timer: asyncio.TimerHandle | None = None
        self._drawn = True  # whether everything received is drawn

    def add(self, text: str) -> None:
        """Add a piece of text."""
        text = self._cr + text
        self._cr = "\r" if text.endswith("\r") else ""
        self._text += prose(text.removesuffix("\r"))
        self._drawn = False
        if self._timer is None:
            self.draw()

    def end(self) -> None:
        """End the text, even if it is incomplete."""
        if self._timer is not None:
            self._timer.cancel()
        self._text += prose(self._cr)
        done = self._finish_blocks(len(self._text))
        self._screen.draw(done, [])

    def draw(self) -> None:
        """Draw the received text, and schedule the next drawing."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._drawn:
            return
        self._drawn = True
        loop = asyncio.get_running_loop()
        start = loop.time()
        done = self._finish_blocks(settled_size(self._text))
        self._screen.draw(done, self._spaced(markdown(self._text, self._screen.width)))
        wait = max(PERIOD, SHARE * (loop.time() - start))
        self._timer = loop.call_later(wait, self.draw)

    def _finish_blocks(self, size: int) -> list[Line]:
        """Return the lines of finished blocks, and forget their text."""
        whole, self._text = self._text[:size], self._text[size:]
        lines = self._spaced(markdown(whole, self._screen.width))
        self._above = self._above or bool(lines)
        return lines

    def _spaced(self, lines: list[Line]) -> list[Line]:
        """Return the lines, with an empty line between them and the text above."""
        return [[], *lines] if lines and self._above else lines
