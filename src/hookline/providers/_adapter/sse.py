"""Parse server-sent events: bytes in, the data of complete events out. Pure.

Lines end only in LF, CR or CRLF: text may contain U+2028. Event names, ids and comments are
ignored, because the JSON of every provider contains its own type.
"""

from __future__ import annotations

from typing import Final

MAX_EVENT: Final = 10 * 1024 * 1024  # bytes, which become up to six times as many in memory


class EventTooLarge(ValueError):
    """An event exceeds the size limit."""


class Events:
    """Parses bytes, split anywhere, and returns the data of each completed event."""

    __slots__ = ("_after_cr", "_data", "_line", "_started")

    def __init__(self) -> None:
        self._line = bytearray()  # the incomplete line
        self._data: bytes | bytearray | None = None  # the lines of the incomplete event
        self._after_cr = False  # whether the last byte was CR, which LF may follow
        self._started = False

    def feed(self, chunk: bytes) -> list[bytes]:
        """Return the data of each event that ends in this chunk; raises EventTooLarge."""
        if self._after_cr:
            self._after_cr = False
            chunk = b"\r" + chunk
        if chunk[-1:] == b"\r":
            self._after_cr = True
            chunk = chunk[:-1]
        if b"\n" not in chunk and b"\r" not in chunk:
            self._line += chunk
            self._check()
            return []
        if self._line:
            self._line += chunk
            chunk, self._line = bytes(self._line), bytearray()
        lines = chunk.splitlines()  # bytes are split only at LF, CR and CRLF
        whole = chunk[-1:] in (b"\n", b"\r")
        del chunk  # it may be large
        if not whole:
            self._line += lines.pop()
        events = self._take(lines)
        self._check()
        return events

    def _check(self) -> None:
        if len(self._line) + len(self._data or b"") > MAX_EVENT:
            raise EventTooLarge(f"an event of more than {MAX_EVENT} bytes")

    def end(self) -> list[bytes]:
        """Return the event at the end of the body, if its blank line is missing."""
        line, self._line = bytes(self._line), bytearray()
        return self._take([line, b""])

    def _take(self, lines: list[bytes]) -> list[bytes]:
        events: list[bytes] = []
        if not self._started and lines:
            self._started = True
            lines[0] = lines[0].removeprefix(b"\xef\xbb\xbf")
        lines.reverse()
        while lines:
            line = lines.pop()
            if line[:5] == b"data:":
                data = line[6:] if line[5:6] == b" " else line[5:]
                if self._data is None:
                    self._data = data
                else:
                    if not isinstance(self._data, bytearray):
                        self._data = bytearray(self._data)
                    self._data += b"\n"
                    self._data += data
            elif not line and self._data is not None:
                data, self._data = bytes(self._data), None
                if data.strip():
                    events.append(data)
        return events
