"""Parse server-sent events: bytes in, the data of complete events out. Pure.

Lines end only in LF, CR or CRLF: text may contain U+2028. Event names, ids and comments are
ignored, because the JSON of every provider contains its own type.
"""

from __future__ import annotations

from typing import Final

MAX_EVENT: Final = 64 * 1024 * 1024  # bytes; the largest events are images


class EventTooLarge(ValueError):
    """An event exceeds the size limit."""


class Events:
    """Parses bytes, split anywhere, and returns the data of each completed event."""

    __slots__ = ("_data", "_held", "_pieces", "_size", "_started")

    def __init__(self) -> None:
        self._pieces: list[bytes] = []  # the pieces of the incomplete line
        self._data: list[bytes] = []  # the lines of the incomplete event
        self._size = 0
        self._held = False  # whether the last byte was CR, which LF may follow
        self._started = False

    def feed(self, chunk: bytes) -> list[bytes]:
        """Return the data of each event that ends in this chunk; raises EventTooLarge."""
        if self._held:
            self._held = False
            chunk = b"\r" + chunk
        if chunk[-1:] == b"\r":
            self._held = True
            chunk = chunk[:-1]
        self._size += len(chunk)
        if b"\n" not in chunk and b"\r" not in chunk:
            if chunk:
                self._pieces.append(chunk)
            if self._size > MAX_EVENT:
                raise EventTooLarge(f"an event of more than {MAX_EVENT} bytes")
            return []
        if self._pieces:
            self._pieces.append(chunk)
            chunk = b"".join(self._pieces)
            self._pieces = []
        lines = chunk.splitlines()  # bytes are split only at LF, CR and CRLF
        if chunk[-1:] not in (b"\n", b"\r"):
            self._pieces.append(lines.pop())
        return self._take(lines)

    def end(self) -> list[bytes]:
        """Return the event at the end of the body, if its blank line is missing."""
        line = b"".join(self._pieces)
        self._pieces = []
        return self._take([line, b""])

    def _take(self, lines: list[bytes]) -> list[bytes]:
        found: list[bytes] = []
        if not self._started and lines:
            self._started = True
            lines[0] = lines[0].removeprefix(b"\xef\xbb\xbf")
        for line in lines:
            if line[:5] == b"data:":
                self._data.append(line[6:] if line[5:6] == b" " else line[5:])
            elif not line and self._data:
                data = self._data[0] if len(self._data) == 1 else b"\n".join(self._data)
                self._data = []
                self._size = 0
                if data.strip():
                    found.append(data)
        if found or not self._data:
            self._size = sum(map(len, self._pieces)) + sum(map(len, self._data))
        elif self._size > MAX_EVENT:
            raise EventTooLarge(f"an event of more than {MAX_EVENT} bytes")
        return found
