"""The items of one run, kept for its readers: numbered entries, up to a limit in bytes.

The backlog of a detached run holds all entries for any number of readers. Beyond the limit it drops
the older half; a reader that still needed those entries fails with `Lagged`. The backlog of any
other run has one reader, and forgets each entry once the reader has taken it. An item is an event
of the chat, or a hook that ran, with what it changed.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final, TypeAlias

import msgspec

from hookline import Message
from hookline.events import (
    ChatEvent,
    FileAdded,
    MessageAdded,
    MessageQueued,
    MessageReturned,
    ReasoningDelta,
    TextDelta,
    ToolCallDelta,
    ToolCallFinished,
)
from hookline.web._runs.run_header import Header

BATCH: Final = 256  # most entries that a reader takes at a time


class HookFired(msgspec.Struct, frozen=True, kw_only=True):
    """A hook ran: its hook point, its outcome, and its duration."""

    chat_id: str
    """The chat that the hook ran in."""
    point: str
    """The name of the hook point."""
    hook: str
    """The hook's name."""
    id: str | None = None
    """The id of the hook's definition, if it has one."""
    outcome: str
    """The outcome, such as "ok", "changed" or "stopped"; "held" if a hook at onDelta only held
    text back."""
    duration: float
    """The duration in milliseconds."""
    own: float | None = None
    """For a wrapper: the duration in milliseconds without the wrapped call."""
    times: int = 1
    """How many times the hook ran; the runs at onDelta in one step are one frame."""
    changes: tuple[FieldChange, ...] = ()
    """The changes that the hook made, if the page shows details."""


class FieldChange(msgspec.Struct, frozen=True, kw_only=True):
    """One value that a hook changed, with its text before and after."""

    name: str
    """The name of the value, such as "system"."""
    before: str
    """The text before; empty if the value was not set."""
    after: str
    """The text after; empty if the hook removed the value."""


Item: TypeAlias = ChatEvent | HookFired
Entry: TypeAlias = tuple[int, float, Item]  # number, seconds since the run began, item


class Lagged(Exception):
    """The next entry of the reader has been dropped."""


class RunView:
    """The properties of a run that an encoder needs."""

    def __init__(
        self,
        header: Header,
        before: tuple[Message, ...] = (),
        scope_of: Callable[[str], str | None] | None = None,
    ) -> None:
        self.header = header
        self.before = before
        """The messages of the conversation when the run began."""
        self.scope_of = scope_of
        """Returns the scope of a tool, by the tool's name."""


class Reader:
    """One client's position in a run. A reader has no backlog while the run waits in a queue."""

    __slots__ = ("_loop", "_waiter", "disconnected", "log", "next")

    def __init__(self) -> None:
        self.next = 0
        self.disconnected = False  # whether the client has left
        self.log: Backlog | None = None
        self._loop = asyncio.get_running_loop()
        self._waiter: asyncio.Future[None] | None = None

    def take(self) -> list[Entry]:
        """Take the next entries; raises Lagged if the next entries were dropped."""
        assert self.log is not None
        entries = self.log.entries(self.next)
        if entries:
            self.next = entries[-1][0] + 1
            self.log.trim(self.next)
        return entries

    async def wait(self) -> None:
        """Wait until there are entries, the run ends, the client leaves, or `wake` is called."""
        if self.disconnected:
            return
        waiter = self._waiter = self._loop.create_future()
        try:
            await waiter
        finally:
            self._waiter = None

    def wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    def leave(self) -> None:
        """Record that the client has left."""
        self.disconnected = True
        self.wake()

    def close(self) -> None:
        """Stop reading."""
        if self.log is not None:
            self.log.remove(self)


class Backlog:
    """The entries of a run. `limit`: most bytes of entries to keep. `request`: the bytes that are
    kept of the request beside the entries. `on_unread` is called after the last reader has gone,
    `grew` with the change in bytes whenever the size changes.
    """

    def __init__(
        self,
        *,
        detached: bool,
        limit: int,
        request: int = 0,
        on_unread: Callable[[], None] = lambda: None,
        grew: Callable[[int], None] = lambda more: None,
    ) -> None:
        self.detached = detached
        """Whether the run outlives its connection."""
        self.complete = False
        """Whether the backlog is complete: no further entries follow."""
        self.incomplete = False
        """Whether later entries were lost. The backlog has ended, too."""
        self.error: BaseException | None = None
        self.readers: set[Reader] = set()
        self.bytes = 0
        """The approximate size in bytes."""
        self.first = 0
        """The number of the first entry that is still kept."""
        self._limit = limit
        self._on_unread = on_unread
        self._grew = grew
        self._entries: list[Entry] = []
        self._frames: dict[tuple[int, object], bytes] = {}
        self._call_texts: dict[object, dict[str, str]] = {}
        self._room: asyncio.Future[None] | None = None
        self._request = request if detached else 0
        self._hold(self._request)

    def __len__(self) -> int:
        return len(self._entries)

    @property
    def number(self) -> int:
        """The number of the next entry."""
        return self.first + len(self._entries)

    @property
    def waits(self) -> bool:
        """Whether the run waits for its reader to take entries."""
        return self._room is not None and not self._room.done()

    def put(self, item: Item, at: float) -> None:
        """Add an item for the readers."""
        self._entries.append((self.first + len(self._entries), at, item))
        if self.detached:
            self._hold(cost(item))
            if self.bytes - self._request > self._limit:
                self.drop_half()
        for reader in self.readers:
            reader.wake()

    def end(self, error: BaseException | None = None, *, incomplete: bool = False) -> None:
        """End the backlog; readers still get the remaining entries."""
        self.complete, self.error, self.incomplete = True, error, incomplete
        for reader in self.readers:
            reader.wake()

    def drop_half(self) -> None:
        """Drop the older half; readers that still needed those entries fail with `Lagged`."""
        half = max(1, len(self._entries) // 2)
        entries = self._entries[:half]
        del self._entries[:half]
        self.first += len(entries)
        self._hold(-sum(cost(item) for _, _, item in entries))

    def _hold(self, more: int) -> None:
        self.bytes += more
        self._grew(more)

    async def room(self, most: int) -> None:
        """Wait until fewer than `most` entries wait for the reader."""
        while len(self._entries) >= most:
            self._room = asyncio.get_running_loop().create_future()
            await self._room

    def forget(self) -> None:
        """Drop all entries: there are no readers left."""
        self.first += len(self._entries)
        self._entries.clear()
        self._request = 0
        self._hold(-self.bytes)
        self._free()

    def _free(self) -> None:
        if self._room is not None and not self._room.done():
            self._room.set_result(None)

    # ── readers ─────────────────────────────────────────────────────────────────────────────

    def read(self, start: int = 0, reader: Reader | None = None) -> Reader:
        """Attach a new reader, or `reader`, which has waited for this backlog."""
        reader = Reader() if reader is None else reader
        reader.log, reader.next = self, start
        self.readers.add(reader)
        return reader

    def remove(self, reader: Reader) -> None:
        """Detach a reader."""
        self.readers.discard(reader)
        self.unread()

    def unread(self) -> None:
        """Call `on_unread` if there is no reader."""
        if not self.readers:
            self._on_unread()

    def entries(self, start: int) -> list[Entry]:
        """Return a batch of entries from this number on."""
        if start < self.first:
            raise Lagged
        at = start - self.first
        return self._entries[at : at + BATCH]

    def trim(self, upto: int) -> None:
        """Forget the entries that the only reader has taken, unless the run is detached."""
        if not self.detached:
            del self._entries[: upto - self.first]
            self.first = upto
            self._free()

    def frame_of(self, number: int, shown_as: object) -> bytes | None:
        """Return the bytes that another reader was sent for this entry, if readers share them."""
        if len(self.readers) < 2:
            self._frames.clear()
            return None
        return self._frames.get((number, shown_as))

    def call_texts(self, shown_as: object) -> dict[str, str]:
        """Return the error texts of failed calls by call id, shared by these readers."""
        return self._call_texts.setdefault(shown_as, {})

    def share(self, number: int, shown_as: object, data: bytes) -> None:
        """Keep the bytes of an entry for the other readers that are about as far."""
        if len(self.readers) > 1:
            if len(self._frames) >= 2 * BATCH:
                for key in list(self._frames)[:BATCH]:
                    del self._frames[key]
            self._frames[number, shown_as] = data


def cost(item: Item) -> int:
    """Estimate the size of an entry in bytes."""
    match item:
        case TextDelta() | ReasoningDelta():
            return 400 + len(item.text)
        case ToolCallDelta():
            return 500 + len(item.arguments)
        case (
            MessageQueued() | MessageReturned() | MessageAdded() | ToolCallFinished() | FileAdded()
        ):
            return 800 + len(item.to_json())
        case _:
            return 500
