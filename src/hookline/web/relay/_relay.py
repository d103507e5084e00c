"""`RedisRelay`: the runs of all processes that share a Redis.

Theory of operation. An atomic script claims a run before it begins, so one conversation has one run
in all processes. The process of the run gives each event to its own readers, and writes it to the
run's stream. When another process gets a request for the run, it finds the run's header, checks the
principal, and follows the stream. A process counts as alive while its key `worker:ID` exists, which
it renews. A run whose process is gone may be replaced; its readers are asked to reload the
messages. To stop a run, a process sends a message to the inbox of the run's process, which checks
the principal again and answers. A durable chat is shown by the process that runs it (`_durable`),
and announced by the client of its engine.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any

import msgspec

from hookline import Message
from hookline.errors import UsageError
from hookline.events import ChatEvent
from hookline.runtimes import Journal
from hookline.web._runs.header import Header
from hookline.web._runs.registry import Runs
from hookline.web._runs.run import Live
from hookline.web.relay._claims import Claims
from hookline.web.relay._durable.chats import Shown
from hookline.web.relay._link import Link
from hookline.web.relay._messages import Notes
from hookline.web.relay._observe import Observer
from hookline.web.relay._reader import Feed
from hookline.web.relay._redis import (
    DURABLE,
    SAY,
    Names,
    check_url,
    connect,
    unreachable,
)
from hookline.web.relay._remote.run import Followed
from hookline.web.relay._remote.runs import Elsewhere
from hookline.web.relay._writer import OBSERVED, Told, Writer

logger = logging.getLogger("hookline.web")


class RedisRelay:
    """Shares runs among all processes with the same Redis. Each process needs a relay for `app()`.

    The name of every Redis key begins with `prefix`. `ttl`: how many seconds a stream is kept after
    its end. `lease`: after how many seconds without a sign of life a process counts as dead.
    `entries`: how many entries a stream holds; the oldest are dropped first. `held_bytes`: how much
    data waits in memory while Redis is not reachable. `keep`: how many seconds events are kept for
    remote observers. Raises UsageError for an invalid address.
    """

    def __init__(
        self,
        url: str,
        *,
        prefix: str = "hookline:",
        ttl: float = 600.0,
        lease: float = 10.0,
        entries: int = 20_000,
        held_bytes: int = 8 * 1024 * 1024,
        keep: float = 7 * 24 * 3600.0,
    ) -> None:
        check_url(url)
        if lease < 0.2 or ttl < lease:
            raise UsageError(
                f"lease={lease!r} must be at least 0.2 seconds, and ttl={ttl!r} at least as long"
            )
        if entries < 1 or held_bytes < 1 or keep <= 0:
            raise UsageError(
                f"entries={entries!r}, held_bytes={held_bytes!r} and keep={keep!r} must be positive"
            )
        self._url = url
        self._names = Names(prefix)
        self._ttl, self._lease, self._keep = ttl, lease, keep
        self._entries, self._held = entries, held_bytes
        self._runs: Runs | None = None
        self._opening = asyncio.Lock()
        self._open = False
        self._link: Link  # set once the relay is open
        self._claims: Claims
        self._writer: Writer
        self._elsewhere: Elsewhere
        self._notes: Notes
        self._connections: list[Any] = []
        self._tasks: list[asyncio.Task[None]] = []
        self._told: dict[str, Told] = {}  # the runs of this process, by key
        self._shown: set[Shown] = set()  # the durable chats that this process runs
        self._unsaid: list[Shown] = []  # those whose end Redis has not been told

    # ── its life ────────────────────────────────────────────────────────────────────────────

    async def open(self, runs: Runs | None = None) -> None:
        """Connect, and serve these runs. Raises StoreError if Redis cannot be used."""
        async with self._opening:
            if not self._open:
                known = self._runs if runs is None else runs
                await self._connect(Runs() if known is None else known)
                self._open = True

    async def _connect(self, runs: Runs) -> None:
        if self._runs not in (None, runs):
            raise UsageError("a RedisRelay serves one app; make one for each app")
        link = self._link = Link(self._url, self._names, ttl=self._ttl, lease=self._lease)
        try:
            await link.beat()
        except Exception as exc:
            await link.aclose()
            raise unreachable(exc) from None
        self._runs = runs
        self._claims = Claims(link)
        self._say = link.commands.register_script(SAY)
        writing, reading = self._connections = [connect(self._url), connect(self._url)]
        self._writer = Writer(
            writing,
            self._names,
            ttl=self._ttl,
            entries=self._entries,
            held=self._held,
            keep=self._keep,
            back=lambda: link.later(self._say_all()),  # Redis may have lost everything
        )
        self._notes = Notes(link, runs)
        feed = Feed(reading, self._notes.wake)
        feed.follow(self._names.inbox(link.worker), b"0-0", self._notes.take)
        self._elsewhere = Elsewhere(link, feed, runs.caps.replay_bytes)
        self._tasks = [
            asyncio.create_task(self._writer.run(), name="hookline.web relay writer"),
            asyncio.create_task(feed.run(), name="hookline.web relay feed"),
            asyncio.create_task(self._tend(), name="hookline.web relay"),
        ]

    async def aclose(self) -> None:
        """Write the remaining entries, and disconnect. Readers that follow runs of other
        processes are asked to reload."""
        if not self._open:
            return
        self._open = False
        link = self._link
        try:
            async with asyncio.timeout(2):
                await self._writer.flush()
                await link.commands.delete(self._names.worker(link.worker))
        except TimeoutError:
            logger.warning("the relay's Redis is not reachable: waiting entries were not written")
        except link.away:
            pass  # our key expires with the lease
        finally:
            for task in self._tasks:
                task.cancel()
            await asyncio.gather(*self._tasks, return_exceptions=True)
            self._elsewhere.close()
            await link.aclose()
            for each in self._connections:
                await each.aclose()

    async def _tend(self) -> None:
        """Renew our key, check that other processes are alive, and keep our runs from expiring."""
        loop = asyncio.get_running_loop()
        said = loop.time()
        while True:
            await asyncio.sleep(self._lease / 3)
            try:
                await self._link.beat()
                await self._claims.renew()
                if loop.time() >= said + self._ttl / 3:
                    said = loop.time()
                    await self._say_all()
                while self._unsaid:
                    await self._unsaid[0].close()
                    del self._unsaid[0]
                await self._elsewhere.look()
            except self._link.away as exc:
                self._link.complain(exc)

    async def _say_all(self) -> None:
        for told in list(self._told.values()):
            await self._say_one(told)
            await self._link.commands.pexpire(told.log, self._link.ttl)
        for shown in list(self._shown):
            await shown.renew()

    async def _say_one(self, told: Told) -> None:
        header = msgspec.json.encode(told.header)
        args = [told.header.run, self._link.worker, header, self._link.ttl]
        await self._say(keys=[self._names.run(told.key)], args=args)

    # ── runs of this process ────────────────────────────────────────────────────────────────

    async def claim(self, key: str, run: str) -> None:
        """Claim a conversation for this process; raises Refused if another run has claimed it."""
        await self._claims.hold(key, run)

    def release(self, key: str, run: str) -> None:
        """Undo a claim whose run did not begin."""
        self._claims.release(key, run)

    async def tell(self, key: str, live: Live) -> None:
        """Publish the events of this run to the other processes, from the first event on."""
        told = Told(self._writer, key, live.header, ended=self._ended)
        live.sink = told
        self._told[key] = told
        # The run continues, even if the request that began it is cancelled.
        await asyncio.shield(self._link.later(self._say_first(told)))

    async def _say_first(self, told: Told) -> None:
        try:
            await self._say_one(told)
        finally:
            self._claims.begun(told.key)

    def _ended(self, told: Told) -> asyncio.Task[None] | None:
        if self._told.get(told.key) is told:
            del self._told[told.key]
        if not self._open:
            return None
        # Mark it at once; the writer does so as well, after the run's last entry.
        return self._link.later(self._link.over(told.key, told.header.run, told.life))

    # ── durable chats ───────────────────────────────────────────────────────────────────────

    async def announce(self, key: str, header: Header) -> None:
        """Before a durable chat starts, claim and publish its run; raises what `claim` raises."""
        await self._claims.take(key, header.run, DURABLE)
        args = [header.run, DURABLE, msgspec.json.encode(header), self._link.ttl]
        try:
            await self._say(keys=[self._names.run(key)], args=args)
        except self._link.away:
            raise self._link.refused() from None

    async def close(self, key: str, chat_id: str) -> None:
        """End the run of a finished durable chat if the chat's worker could not end the run."""
        try:
            await self._link.close(key, chat_id)
        except self._link.away:
            raise self._link.refused() from None

    @asynccontextmanager
    async def show(
        self,
        journal: Journal,
        conversation: str,
        messages: Callable[[], Awaitable[Sequence[Message]]],
    ) -> AsyncGenerator[Shown]:
        """Show one execution of a durable chat: `put` its events, in order.

        `messages` returns the messages of the stored conversation. Opens the relay if necessary;
        raises StoreError if Redis cannot be used.
        """
        await self.open()
        shown = Shown(self._link, self._writer, journal, conversation, messages)
        self._shown.add(shown)
        error: BaseException | None = None
        try:
            await shown.begin()
            yield shown
        except BaseException as exc:
            error = exc
            raise
        finally:
            self._shown.discard(shown)
            await shown.end(error)
            if shown.unsaid:
                self._unsaid.append(shown)

    # ── runs of other processes ─────────────────────────────────────────────────────────────

    async def find(self, key: str, principal: str) -> Followed | None:
        """Return the last run of a conversation, and the run's events, even if the run is over.

        Raises Refused (404) if the run belongs to another principal.
        """
        return await self._elsewhere.find(key, principal)

    async def running(self, key: str, principal: str) -> Header | None:
        """Return the header of a conversation's run in another process; None if no run exists."""
        return await self._elsewhere.running(key, principal)

    async def stop(self, key: str, principal: str, reason: str) -> bool:
        """Stop the run of a conversation in another process; returns False if there is no run."""
        return await self._notes.stop(key, principal, reason)

    async def forget(self, key: str) -> None:
        """Delete the data of a conversation's last run."""
        try:
            run = await self._link.commands.hget(self._names.run(key), "run")
            if run is not None:
                log = self._names.log(key, run.decode())
                await self._link.commands.delete(self._names.run(key), log)
        except self._link.away:
            raise self._link.refused() from None

    # ── remote observers ────────────────────────────────────────────────────────────────────

    def observe(
        self,
        name: str,
        *,
        types: Sequence[type[ChatEvent]] = (),
        since: str = "start",
        lease: float = 10.0,
    ) -> Observer:
        """Observe each event of all processes at least once, and in order within a chat.

        Observers that do the same work share a `name`: each event goes to one of them. If an
        observer dies, another observer receives the unfinished events. `types` selects among the
        published events (outcomes, approvals, and calls); the default is all of them. A new name
        begins with the oldest kept event, or with the next event if `since="now"`.

            async with relay.observe("audit", types=[ChatDone]) as seen:
                async for each in seen:
                    await write(each.event)  # acknowledged when the loop asks for the next event
        """
        return Observer(
            self._url, self._names, name, types=tuple(types) or OBSERVED, since=since, lease=lease
        )
