"""Runs of other processes: find a run by its header, load it, and follow it while it is read."""

from __future__ import annotations

import asyncio
from typing import Final

from hookline.web._http.refused import Refused
from hookline.web._runs.run_header import Header
from hookline.web.relay._commands import Link
from hookline.web.relay._reader import Feed
from hookline.web.relay._remote.run import RemoteRun

LINGER: Final = 1.0  # seconds for which a run without readers is still followed
PAGE: Final = 500  # entries of a stream to load at a time


class RemoteRuns:
    """The runs that this process follows. `limit`: bytes to hold per run."""

    def __init__(self, link: Link, feed: Feed, limit: int) -> None:
        self.runs: dict[str, asyncio.Future[RemoteRun]] = {}
        """By stream."""
        self._link = link
        self._feed = feed
        self._limit = limit

    async def find(self, key: str, principal: str) -> RemoteRun | None:
        """Return the last run of a conversation, loaded up to now, even if it is already over.

        Raises Refused (404) if the run belongs to another principal.
        """
        try:
            state = await self._link.state(key)
            if state is None:
                return None
            if state.header.principal != principal:
                raise Refused(404, "There is no such conversation; choose one from the list.")
            return await self._follow(key, state.header)
        except self._link.outages:
            raise self._link.refusal() from None

    async def running(self, key: str, principal: str) -> Header | None:
        """Return the header of the conversation's run in another process; None if there is none."""
        try:
            state = await self._link.state(key)
            if state is None or state.over or state.header.principal != principal:
                return None
            return state.header if await self._link.lives(state.worker) else None
        except self._link.outages:
            raise self._link.refusal() from None

    async def ends(self, key: str) -> bool:
        """Whether the durable chat of the conversation's last run has decided its outcome."""
        try:
            state = await self._link.state(key)
        except self._link.outages:
            raise self._link.refusal() from None
        return state is not None and state.ends

    async def last(self, key: str, principal: str) -> Header | None:
        """Return the header of the conversation's last run, which may be over."""
        try:
            state = await self._link.state(key)
        except self._link.outages:
            raise self._link.refusal() from None
        return None if state is None or state.header.principal != principal else state.header

    async def _follow(self, key: str, header: Header) -> RemoteRun:
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
        after = b"-"
        while True:
            page = await self._link.commands.xrange(stream, min=after, count=PAGE)
            for id, fields in page:
                run.take(id, fields)
            if len(page) < PAGE:
                break
            after = b"(" + run.last
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
