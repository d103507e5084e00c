"""Server-sent events read by the book, and by a reader that splits lines at whatever might end one.

Written from the specification (WHATWG HTML 9.2.6), not from the encoders.
"""

from __future__ import annotations

from typing import NamedTuple


class Event(NamedTuple):
    data: str
    type: str = "message"
    id: str = ""


def read(stream: bytes) -> tuple[list[Event], list[str]]:
    """The events and the comments of a stream; an event that its end has not reached is not one."""
    text = stream.decode("utf-8", errors="strict").removeprefix("\ufeff")
    return read_lines(_by_the_book(text))


def read_wide(stream: bytes) -> tuple[list[Event], list[str]]:
    """The same by a reader that takes U+2028, U+0085, form feeds and the like for line ends."""
    return read_lines(stream.decode().splitlines())


def _by_the_book(text: str) -> list[str]:
    lines: list[str] = []
    line = ""
    at = 0
    while at < len(text):
        char = text[at]
        at += 1
        if char == "\r":
            if text[at : at + 1] == "\n":
                at += 1
            lines.append(line)
            line = ""
        elif char == "\n":
            lines.append(line)
            line = ""
        else:
            line += char
    return lines  # what has no line end is not a line


def read_lines(lines: list[str]) -> tuple[list[Event], list[str]]:
    events: list[Event] = []
    comments: list[str] = []
    data: list[str] = []
    kind = last_id = ""
    for line in lines:
        if not line:
            if data:
                events.append(Event("\n".join(data), kind or "message", last_id))
            data, kind = [], ""
            continue
        if line.startswith(":"):
            comments.append(line[1:].strip())
            continue
        name, _, value = line.partition(":")
        value = value.removeprefix(" ")
        if name == "data":
            data.append(value)
        elif name == "event":
            kind = value
        elif name == "id" and "\0" not in value:
            last_id = value
    return events, comments
