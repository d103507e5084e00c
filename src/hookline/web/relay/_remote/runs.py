"""Runs of other processes: find a run by its header, load it, and follow it while it is read."""

from __future__ import annotations

import asyncio
from typing import Final

from hookline.web._http.refused import Refused
from hookline.web._runs.header import Header
from hookline.web.relay._link import Link
from hookline.web.relay._reader import Feed
from hookline.web.relay._remote.run import Followed

LINGER: Final = 1.0  # seconds for which a run without readers is still followed
PAGE: Final = 500  # entries of a stream to load at a time


class Elsewhere:
    """The runs that this process follows. `limit`: bytes to hold per run."""

    def __init__(self, link: Link, feed: Feed, limit: int) -> None:
        self.followed: dict[str, asyncio.Future[Followed]] = {}
        """By stream."""
        self._link = link
        self._feed = feed
        self._limit = limit

    async def find(self, key: str, principal: str) -> Followed | None:
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
        except self._link.away:
            raise self._link.refused() from None

    async def running(self, key: str, principal: str) -> Header | None:
        """Return the header of the conversation's run in another process; None if there is none."""
        try:
            state = await self._link.state(key)
            if state is None or state.over or state.header.principal != principal:
                return None
            return state.header if await self._link.lives(state.worker) else None
        except self._link.away:
            raise self._link.refused() from None

    async def _follow(self, key: str, header: Header) -> Followed:
        stream = self._link.names.log(key, header.run)
        while (known := self.followed.get(stream)) is not None:
            await asyncio.wait([known])
            if not known.cancelled():  # the request that loaded the run may have been cancelled
                return known.result()
        loading = self.followed[stream] = asyncio.get_running_loop().create_future()
        try:
            followed = await self._load(key, header, loading)
        except BaseException as exc:
            del self.followed[stream]
            if isinstance(exc, Exception):
                loading.set_exception(exc)
                loading.exception()  # mark it as retrieved: it is raised here, too
            else:
                loading.cancel()
            raise
        loading.set_result(followed)
        return followed

    async def _load(self, key: str, header: Header, loading: asyncio.Future[Followed]) -> Followed:
        stream = self._link.names.log(key, header.run)

        def left() -> None:
            asyncio.get_running_loop().call_later(LINGER, drop)

        def drop() -> None:
            if not followed.log.readers and self.followed.get(stream) is loading:
                del self.followed[stream]
                self._feed.leave(stream)
                followed.lose()  # a reader that still holds it must reload

        followed = Followed(key, header, limit=self._limit, left=left)
        after = b"-"
        while True:
            page = await self._link.commands.xrange(stream, min=after, count=PAGE)
            for id, fields in page:
                followed.take(id, fields)
            if len(page) < PAGE:
                break
            after = b"(" + followed.last
        if not followed.log.ended:
            self._feed.follow(stream, followed.last, followed.take)
        return followed

    def _loaded(self) -> list[Followed]:
        done = [each for each in self.followed.values() if each.done() and not each.cancelled()]
        return [each.result() for each in done if each.exception() is None]

    async def look(self) -> None:
        """End the local copies of runs that were replaced, or whose process is gone.

        Two failed checks in a row are needed: the last entries may still be on their way.
        """
        going_on = [each for each in self._loaded() if not each.log.ended]
        if not going_on:
            return
        gone = set(await self._link.gone([(each.key, each.header.run) for each in going_on]))
        for place, each in enumerate(going_on):
            each.missed = each.missed + 1 if place in gone else 0
            if each.missed >= 2:
                each.lose()

    def close(self) -> None:
        """End all local copies: no further entries arrive."""
        for each in self._loaded():
            each.lose()
