"""Encode the entries of a run's stream: events that are sent together, one line of JSON each. Pure.

A line is `SECONDS KIND JSON`: the time of the event, its kind (an event of the chat, or a hook that
fired), and the event. The JSON contains no line breaks.
"""

from __future__ import annotations

from typing import Final

import msgspec

from hookline.errors import RemoteChatError
from hookline.events import ErrorInfo, read_event
from hookline.web._runs.backlog import HookFired, Item

LINES: Final = b"e"  # the field that holds the lines
END: Final = b"x"  # the field of the last entry: how the run ended
LOSS: Final = b"lost"  # in that field: the process could not write the whole run
DONE: Final = b"done"
WAITS: Final = b"waits"  # waits for an approval; the durable chat continues in another run
NAMES: Final = b"k"  # the field of a fence: the names of events from earlier runs

_hook: Final = msgspec.json.Decoder(HookFired)
_error: Final = msgspec.json.Decoder(ErrorInfo)


def line_of(at: float, item: Item) -> bytes:
    """Encode one event as a line."""
    if isinstance(item, HookFired):
        return b"%.4f h %b" % (at, msgspec.json.encode(item))
    return b"%.4f e %b" % (at, item.to_json())


def items_of(data: bytes) -> list[tuple[float, Item]]:
    """Decode the lines of an entry; raises ValueError for malformed data."""
    items: list[tuple[float, Item]] = []
    for line in data.split(b"\n"):
        at, kind, text = line.split(b" ", 2)
        item: Item = _hook.decode(text) if kind == b"h" else read_event(text)
        items.append((float(at), item))
    return items


def end_of(error: BaseException | None) -> bytes:
    """Encode how a run ended."""
    return DONE if error is None else msgspec.json.encode(ErrorInfo.of(error))


def error_of(data: bytes, chat_id: str) -> RemoteChatError | None:
    """Decode the error that a run ended with, if any."""
    if data in (DONE, WAITS):
        return None
    error = _error.decode(data)
    return RemoteChatError(chat_id, error.type, error.message)
