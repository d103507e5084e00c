"""The local copy of a run in another process: a backlog that is filled from the run's stream.

Each entry has a number, so a missing entry is noticed. If an entry is missing, or the process of
the run is gone before the run ended, the readers are asked to reload the messages. They never wait
in vain.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import msgspec

from hookline import Message
from hookline.errors import RemoteChatError
from hookline.events import ChatAborted, ChatDone, ChatFailed
from hookline.web._runs.backlog import Backlog
from hookline.web._runs.run_header import Header
from hookline.web.relay._codec import END, LINES, LOSS, NAMES, error_of, items_of

LAST: Final = (ChatDone, ChatAborted, ChatFailed)


class RemoteRun:
    """A run of another process."""

    def __init__(
        self, key: str, header: Header, *, limit: int, on_unread: Callable[[], None]
    ) -> None:
        self.key = key
        self.header = header
        self.before: tuple[Message, ...] = ()
        self.scope_of: Callable[[str], str | None] | None = None
        self.detached = True
        self.log = Backlog(detached=True, limit=limit, on_unread=on_unread)
        self.over = False
        """Whether the last event has arrived."""
        self.last = b"0-0"
        """The id of the last entry received."""
        self.misses = 0
        """How many checks in a row did not find the process of the run."""

    def take(self, id: bytes, fields: dict[bytes, bytes]) -> None:
        """Add an entry of the stream to the backlog."""
        self.last = id
        log = self.log
        if log.complete or NAMES in fields:
            return
        end = fields.get(END)
        try:
            number = int(id.partition(b"-")[2]) - 1
            items = items_of(fields[LINES]) if LINES in fields else []
            if log.number == 0 and not log.readers:
                log.first = number  # the beginning was trimmed before we started reading
            if number != log.number or end == LOSS:
                self.lose()
                return
            for at, item in items:
                log.put(item, at)
                if isinstance(item, LAST) and item.chat_id == self.header.chat_id:
                    self.over = True
            if end is not None:
                error = error_of(end)
                self.over = True
                log.end(
                    None
                    if error is None
                    else RemoteChatError(self.header.chat_id, error.type, error.message)
                )
        except (ValueError, msgspec.MsgspecError):
            self.lose()

    def lose(self) -> None:
        """End the backlog because an entry is missing."""
        self.over = True
        if not self.log.complete:
            self.log.end(incomplete=True)
