"""Write the streams of one process: one task, one connection, one pipeline for each batch.

Items that arrive for a run while a batch is under way form one entry of the next batch. A batch is
sent again, unchanged, until Redis has accepted it. Redis refuses an entry that it already has, or
that comes from an earlier life of the run, because of the entry's id. While Redis is not reachable,
items are held up to a limit. Beyond the limit the run that has waited longest is given up: its
readers in other processes are asked to reload the messages.
"""

from __future__ import annotations

import asyncio
import logging
import time
from binascii import crc32
from collections.abc import Callable
from typing import Any, Final

from hookline.events import ApprovalRequested, ChatStarted, ToolCallFinished, ToolCallStarted
from hookline.web._runs.backlog import Item, cost
from hookline.web._runs.run import LAST
from hookline.web._runs.run_header import Header
from hookline.web.relay._codec import END, LINES, LOSS, end_of, line_of
from hookline.web.relay._redis import OVER, Names, outages

logger = logging.getLogger("hookline.web")

BATCH: Final = 500  # most entries in a pipeline
PAUSE: Final = 0.2  # seconds before the next attempt to reach Redis
FREE_TIMEOUT: Final = 1.0  # most seconds that a response waits for its run to be marked as over
PARTITIONS: Final = 16  # the number of partitions for remote observers
OBSERVED: Final = (ChatStarted, *LAST, ApprovalRequested, ToolCallStarted, ToolCallFinished)


def partition_of(key: str) -> int:
    """Return the partition of a conversation's events; it never changes, so they stay in order."""
    return crc32(key.encode()) % PARTITIONS


class RunSink:
    """One run that is written to its stream. It is the `sink` of a `Live`."""

    def __init__(
        self,
        writer: Writer,
        key: str,
        header: Header,
        *,
        life: int = 1,
        on_end: Callable[[RunSink], asyncio.Task[None] | None] = lambda sink: None,
    ) -> None:
        self.key = key
        self.header = header
        self.life = life
        self.log = writer.names.log(key, header.run)
        self.number = 0
        """The number of the next item."""
        self.given_up = False
        """Whether the run was given up: only a mark of the loss is written."""
        self._writer = writer
        self._on_end = on_end
        self._freeing: asyncio.Task[None] | None = None

    def put(self, number: int, at: float, item: Item, *, observed: bool = True) -> None:
        """Queue one item of the run."""
        if self.given_up:
            return
        self.number = number
        self._writer.add(self, line_of(at, item), cost(item))
        if observed and isinstance(item, OBSERVED):
            self._writer.tell(self, item)

    def end(self, error: BaseException | None) -> None:
        """Queue the end of the run."""
        self._writer.end(self, end_of(error))
        self._freeing = self._on_end(self)

    async def until_free(self) -> None:
        """Wait until Redis knows that the run is over, but not long."""
        if self._freeing is not None:
            await asyncio.wait([self._freeing], timeout=FREE_TIMEOUT)


class _Entry:
    """The items of one run that wait to be written."""

    __slots__ = ("bytes", "end", "first", "lines", "over", "position", "sink")

    def __init__(self, sink: RunSink, position: int) -> None:
        self.sink = sink
        self.position = position  # how many items were queued before this entry
        self.first = sink.number
        self.lines: list[bytes] = []
        self.bytes = 0
        self.end: bytes | None = None
        self.over = False  # the run itself is over, too


class Writer:
    """The queue and the task that empties it."""

    def __init__(
        self,
        client: Any,
        names: Names,
        *,
        ttl: float,
        max_entries: int,
        max_bytes: int,
        observer_ttl: float,
        back: Callable[[], object],
    ) -> None:
        self.names = names
        self._client = client
        self._ttl = int(ttl * 1000)
        self._max_entries = max_entries
        self._max_bytes = max_bytes
        self._observer_ttl = observer_ttl
        self._back = back  # called when Redis is reachable again
        self._waiting: dict[RunSink, _Entry] = {}
        self._news: list[tuple[str, dict[bytes, bytes]]] = []
        self._bytes = 0
        self._put = self._done = 0
        self._go = asyncio.Event()
        self._written = asyncio.Event()
        self._outages = outages()

    # ── what is to be written ───────────────────────────────────────────────────────────────

    def _entry_of(self, sink: RunSink) -> _Entry:
        """Return the entry of a run that waits to be written."""
        entry = self._waiting.get(sink)
        if entry is None:
            entry = self._waiting[sink] = _Entry(sink, self._put)
        return entry

    def add(self, sink: RunSink, line: bytes, size: int) -> None:
        """Queue one line of a run."""
        entry = self._entry_of(sink)
        entry.lines.append(line)
        entry.bytes += size
        self._bytes += size
        sink.number += 1
        self._put += 1
        self._go.set()
        if self._bytes > self._max_bytes:
            self._make_room()

    def end(self, sink: RunSink, how: bytes) -> None:
        """Queue the run's last entry."""
        entry = self._entry_of(sink)
        entry.end = LOSS if sink.given_up else how
        entry.over = True
        self._put += 1
        self._go.set()

    def tell(self, sink: RunSink, item: Any) -> None:
        """Queue an event for remote observers."""
        fields = {
            b"k": sink.key.encode(),
            b"p": sink.header.principal.encode(),
            b"e": item.to_json(),
        }
        self._news.append((self.names.events(partition_of(sink.key)), fields))
        self._bytes += len(fields[b"e"])
        if self._bytes > self._max_bytes:
            self._make_room()

    def _make_room(self) -> None:
        """Give up the run that has waited longest; if there is none, drop the oldest news."""
        entry = next((entry_ for entry_ in self._waiting.values() if entry_.lines), None)
        if entry is not None:
            self.give_up(entry.sink)
            return
        while self._news and self._bytes > self._max_bytes:
            _, fields = self._news.pop(0)
            self._bytes -= len(fields[b"e"])
            logger.warning("the relay's Redis is not reachable: remote observers miss an event")

    def give_up(self, sink: RunSink) -> None:
        """Drop the queued items of a run, and write only a mark of the loss."""
        entry = self._entry_of(sink)
        self._bytes -= entry.bytes
        entry.lines, entry.bytes, entry.end = [], 0, LOSS
        sink.given_up = True
        self._go.set()
        logger.warning(
            "the relay's Redis is not reachable: a run lost events; its readers must reload"
        )

    async def flush(self) -> None:
        """Wait until all items queued so far are written."""
        upto = self._put
        while self._done < upto:
            self._written.clear()
            await self._written.wait()

    # ── the task ────────────────────────────────────────────────────────────────────────────

    async def run(self) -> None:
        """Write until cancelled."""
        while True:
            self._go.clear()
            if not self._waiting and not self._news:
                await self._go.wait()
            upto = self._put
            sinks = list(self._waiting)[:BATCH]
            batch = [self._waiting.pop(sink) for sink in sinks]
            news, self._news = self._news, []
            self._bytes -= sum(entry.bytes for entry in batch)
            self._bytes -= sum(len(fields[b"e"]) for _, fields in news)
            await self._write(batch, news)
            first = next(iter(self._waiting.values()), None)  # the one that has waited longest
            self._done = upto if first is None else min(upto, first.position)
            self._written.set()

    async def _write(self, batch: list[_Entry], news: list[tuple[str, dict[bytes, bytes]]]) -> None:
        was_away = False
        while True:
            pipe = self._client.pipeline(transaction=False)
            for entry in batch:
                self._write_entry(pipe, entry)
            oldest = int((time.time() - self._observer_ttl) * 1000)
            for stream, fields in news:
                pipe.xadd(stream, fields, minid=oldest, approximate=True)
            for stream in {stream for stream, _ in news}:
                pipe.pexpire(stream, int(self._observer_ttl * 1000))
            try:
                answers = await pipe.execute(raise_on_error=False)
                for answer in answers:
                    if isinstance(answer, self._outages):  # it is full, or only a copy
                        raise answer
                break
            except self._outages:
                was_away = True
                await asyncio.sleep(PAUSE)
        for answer in answers:
            if isinstance(answer, Exception) and "equal or smaller" not in str(answer):
                # A reader notices the missing entry, and reloads the messages.
                logger.error("the relay's Redis refused an entry: %s", type(answer).__name__)
                logger.debug("the relay's Redis refused an entry", exc_info=answer)
                break
        if was_away:
            self._back()

    def _write_entry(self, pipe: Any, entry: _Entry) -> None:
        sink = entry.sink
        fields: dict[bytes, bytes] = {}
        if entry.lines:
            fields[LINES] = b"\n".join(entry.lines)
        if entry.end is not None:
            fields[END] = entry.end
        id = f"{sink.life}-{entry.first + 1}"
        pipe.xadd(sink.log, fields, id=id, maxlen=self._max_entries, approximate=True)
        if entry.first == 0 or entry.end is not None:
            pipe.pexpire(sink.log, self._ttl)
        if entry.over:
            pipe.eval(OVER, 1, self.names.run(sink.key), sink.header.run, sink.life)
