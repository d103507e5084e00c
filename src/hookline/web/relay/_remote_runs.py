"""The local copies of runs in other processes: backlogs that are filled from the runs' streams.

Each entry has a number, so a missing entry is noticed. If an entry is missing, or the process of
the run is gone before the run ended, the readers are asked to reload the messages. They never wait
in vain.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

import msgspec

from hookline.web._runs.backlog import Backlog, RunView
from hookline.web._runs.run import LAST
from hookline.web._runs.run_header import Header
from hookline.web.relay._codec import END, LINES, LOSS, NAMES, error_of, items_of
from hookline.web.relay._commands import Link
from hookline.web.relay._reader import Feed, read_stream

LINGER: Final = 1.0  # seconds for which a run without readers is still followed


class RemoteRun(RunView):
    """A run of another process."""

    def __init__(
        self, key: str, header: Header, *, limit: int, on_unread: Callable[[], None]
    ) -> None:
        super().__init__(header)
        self.key = key
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
                self.over = True
                log.end(error_of(end, self.header.chat_id))
        except (ValueError, msgspec.MsgspecError):
            self.lose()

    def lose(self) -> None:
        """End the backlog because an entry is missing."""
        self.over = True
        if not self.log.complete:
            self.log.end(incomplete=True)


class RemoteRuns:
    """The runs that this process follows. `limit`: bytes to hold per run."""

    def __init__(self, link: Link, feed: Feed, limit: int) -> None:
        self.runs: dict[str, asyncio.Future[RemoteRun]] = {}
        """By stream."""
        self._link = link
        self._feed = feed
        self._limit = limit

    async def follow(self, key: str, header: Header) -> RemoteRun:
        """Return the local copy of a run, loaded up to now, even if the run is already over."""
        stream = self._link.names.log(key, header.run)
        while (pending := self.runs.get(stream)) is not None:
            await asyncio.wait([pending])
            if not pending.cancelled():  # the request that loaded the run may have been cancelled
                return pending.result()
        loading = self.runs[stream] = asyncio.get_running_loop().create_future()
        try:
            run = await self._load(key, header, loading)
        except BaseException as exc:
            del self.runs[stream]
            if isinstance(exc, Exception):
                loading.set_exception(exc)
                loading.exception()  # mark it as retrieved: it is raised here, too
            else:
                loading.cancel()
            raise
        loading.set_result(run)
        return run

    async def _load(
        self, key: str, header: Header, loading: asyncio.Future[RemoteRun]
    ) -> RemoteRun:
        stream = self._link.names.log(key, header.run)

        def on_unread() -> None:
            asyncio.get_running_loop().call_later(LINGER, drop)

        def drop() -> None:
            if not run.log.readers and self.runs.get(stream) is loading:
                del self.runs[stream]
                self._feed.leave(stream)
                run.lose()  # a reader that still holds it must reload

        run = RemoteRun(key, header, limit=self._limit, on_unread=on_unread)
        await read_stream(self._link.commands, stream, run.take)
        if not run.log.complete:
            self._feed.follow(stream, run.last, run.take)
        return run

    def _ready_runs(self) -> list[RemoteRun]:
        done = [future for future in self.runs.values() if future.done() and not future.cancelled()]
        return [future.result() for future in done if future.exception() is None]

    async def look(self) -> None:
        """End the local copies of runs that were replaced, or whose process is gone.

        Two failed checks in a row are needed: the last entries may still be on their way.
        """
        going_on = [run for run in self._ready_runs() if not run.log.complete]
        if not going_on:
            return
        missing = set(
            await self._link.missing_runs([(run.key, run.header.run) for run in going_on])
        )
        for place, run in enumerate(going_on):
            run.misses = run.misses + 1 if place in missing else 0
            if run.misses >= 2:
                run.lose()

    def close(self) -> None:
        """End all local copies: no further entries arrive."""
        for run in self._ready_runs():
            run.lose()
