"""`RedisRelay`: the runs of all processes that share a Redis.

Theory of operation. An atomic script claims a run before it begins, so one conversation has one run
in all processes. The process of the run gives each event to its own readers, and writes it to the
run's stream. When another process gets a request for the run, it finds the run's header, checks the
principal, and follows the stream. A process counts as alive while its key `worker:ID` exists, which
it renews. A run whose process is gone may be replaced; its readers are asked to reload the
messages. To stop a run, or to send a user's message into it, a process sends a note to the inbox of
the run's process, which checks the principal again and answers. A durable chat is shown by the
process that runs it (`_durable`), and announced by the client of its engine.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any

from hookline import Message, UserMessage
from hookline.errors import UsageError
from hookline.events import ChatEvent
from hookline.runtimes import Journal
from hookline.web._http.request_reply import Refused
from hookline.web._runs.registry import Runs
from hookline.web._runs.run import Live, Receipt, When
from hookline.web._runs.run_header import Header
from hookline.web.relay._commands import Link
from hookline.web.relay._durable.chats import LifePublisher
from hookline.web.relay._messages import ProcessInbox, ProcessMessage
from hookline.web.relay._reader import Feed
from hookline.web.relay._redis import DURABLE, Names, check_url, connect, unreachable
from hookline.web.relay._remote_observers import Observer
from hookline.web.relay._remote_runs import RemoteRun, RemoteRuns
from hookline.web.relay._writer import BATCH, OBSERVED, RunSink, Writer, partition_of

logger = logging.getLogger("hookline.web")


class RedisRelay:
    """Shares runs among all processes with the same Redis. Each process needs a relay for `app()`.

    The name of every Redis key begins with `prefix`. `ttl`: how many seconds a stream is kept after
    its end. `lease`: after how many seconds without a sign of life a process counts as dead.
    `max_entries`: how many entries a stream holds; the oldest are dropped first.
    `max_waiting_bytes`: how much data waits in memory while Redis is not reachable. `observer_ttl`:
    how many seconds events are kept for remote observers. Raises UsageError for an invalid address.
    """

    def __init__(
        self,
        url: str,
        *,
        prefix: str = "hookline:",
        ttl: float = 600.0,
        lease: float = 10.0,
        max_entries: int = 20_000,
        max_waiting_bytes: int = 8 * 1024 * 1024,
        observer_ttl: float = 7 * 24 * 3600.0,
    ) -> None:
        check_url(url)
        if lease < 0.2 or ttl < lease:
            raise UsageError(
                f"lease={lease!r} must be at least 0.2 seconds, and ttl={ttl!r} at least as long"
            )
        if max_entries < 1 or max_waiting_bytes < 1 or observer_ttl <= 0:
            raise UsageError(
                f"max_entries={max_entries!r}, max_waiting_bytes={max_waiting_bytes!r} and "
                f"observer_ttl={observer_ttl!r} must be positive"
            )
        self._url = url
        self._names = Names(prefix)
        self._ttl, self._lease, self._observer_ttl = ttl, lease, observer_ttl
        self._max_entries, self._max_bytes = max_entries, max_waiting_bytes
        self._runs: Runs | None = None
        self._opening = asyncio.Lock()
        self._open = False
        self._link: Link  # set once the relay is open
        self._writer: Writer
        self._remote_runs: RemoteRuns
        self._inbox: ProcessInbox
        self._connections: list[Any] = []
        self._tasks: list[asyncio.Task[None]] = []
        self._claims: dict[str, str] = {}  # the run that is to begin here, by key
        self._sinks: dict[str, RunSink] = {}  # the runs of this process, by key
        self._publishers: set[LifePublisher] = set()  # the durable chats that this process runs
        self._unsaid: list[LifePublisher] = []  # those whose end Redis has not been told

    # ── its life ────────────────────────────────────────────────────────────────────────────

    async def open(self, runs: Runs | None = None) -> None:
        """Connect, and serve these runs. Raises StoreError if Redis cannot be used."""
        async with self._opening:
            if not self._open:
                runs_ = self._runs if runs is None else runs
                await self._connect(Runs() if runs_ is None else runs_)
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
        writing, reading = self._connections = [connect(self._url), connect(self._url)]
        self._writer = Writer(
            writing,
            self._names,
            ttl=self._ttl,
            max_entries=self._max_entries,
            max_bytes=self._max_bytes,
            observer_ttl=self._observer_ttl,
            back=lambda: link.later(self._say_all()),  # Redis may have lost everything
        )
        self._inbox = ProcessInbox(link, runs)
        feed = Feed(reading, self._inbox.wake)
        feed.follow(self._names.inbox(link.worker), b"0-0", self._inbox.take)
        self._remote_runs = RemoteRuns(link, feed, runs.caps.replay_bytes)
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
        except link.outages:
            pass  # our key expires with the lease
        finally:
            for task in self._tasks:
                task.cancel()
            await asyncio.gather(*self._tasks, return_exceptions=True)
            self._remote_runs.close()
            await link.aclose()
            for connection in self._connections:
                await connection.aclose()

    async def _tend(self) -> None:
        """Renew our key, check that other processes are alive, and keep our runs from expiring."""
        loop = asyncio.get_running_loop()
        renewed_at = loop.time()
        while True:
            await asyncio.sleep(self._lease / 3)
            try:
                await self._link.beat()
                for key, run in list(self._claims.items()):
                    await self._link.renew(key, run)  # `deps=` or `hooks=` may take longer
                if loop.time() >= renewed_at + self._ttl / 3:
                    renewed_at = loop.time()
                    await self._say_all()
                while self._unsaid:
                    await self._unsaid[0].close()
                    del self._unsaid[0]
                await self._remote_runs.look()
            except self._link.outages as exc:
                self._link.complain(exc)

    async def _say_all(self) -> None:
        for sink in list(self._sinks.values()):
            await self._link.say(sink.key, sink.header, self._link.worker)
            await self._link.commands.pexpire(sink.log, self._link.ttl)
        for publisher in list(self._publishers):
            await publisher.renew()

    # ── runs of this process ────────────────────────────────────────────────────────────────

    async def claim(self, key: str, run: str) -> None:
        """Claim a conversation for this process; raises Refused if another run has claimed it."""
        await self._link.claim(key, run, self._link.worker)
        self._claims[key] = run

    def release(self, key: str, run: str) -> None:
        """Undo a claim whose run did not begin."""
        if self._claims.get(key) == run:  # else another request holds the conversation
            del self._claims[key]
        self._link.later(self._link.release(key, run))

    async def tell(self, key: str, live: Live) -> None:
        """Publish the events of this run to the other processes, from the first event on."""
        sink = RunSink(self._writer, key, live.header, on_end=self._on_end)
        live.sink = sink
        self._sinks[key] = sink
        # The run continues, even if the request that began it is cancelled.
        await asyncio.shield(self._link.later(self._say_first(sink)))

    async def _say_first(self, sink: RunSink) -> None:
        try:
            await self._link.say(sink.key, sink.header, self._link.worker)
        finally:
            self._claims.pop(sink.key, None)

    def _on_end(self, sink: RunSink) -> asyncio.Task[None] | None:
        if self._sinks.get(sink.key) is sink:
            del self._sinks[sink.key]
        if not self._open:
            return None
        # Mark it at once; the writer does so as well, after the run's last entry.
        return self._link.later(self._link.over(sink.key, sink.header.run, sink.life))

    # ── durable chats ───────────────────────────────────────────────────────────────────────

    async def announce(self, key: str, header: Header) -> None:
        """Before a durable chat starts, claim and publish its run; raises what `claim` raises."""
        await self._link.claim(key, header.run, DURABLE)
        with self._link.refusing():
            await self._link.say(key, header, DURABLE)

    async def close(self, key: str, chat_id: str) -> None:
        """End the run of a finished durable chat if the chat's worker could not end the run."""
        with self._link.refusing():
            await self._link.close(key, chat_id)

    @asynccontextmanager
    async def show(
        self,
        journal: Journal,
        conversation: str,
        messages: Callable[[], Awaitable[Sequence[Message]]],
    ) -> AsyncGenerator[LifePublisher]:
        """Show one execution of a durable chat: `put` its events, in order.

        `messages` returns the messages of the stored conversation. Opens the relay if necessary;
        raises StoreError if Redis cannot be used.
        """
        await self.open()
        publisher = LifePublisher(self._link, self._writer, journal, conversation, messages)
        self._publishers.add(publisher)
        error: BaseException | None = None
        try:
            await publisher.begin()
            yield publisher
        except BaseException as exc:
            error = exc
            raise
        finally:
            self._publishers.discard(publisher)
            await publisher.end(error)
            if publisher.unsaid:
                self._unsaid.append(publisher)

    # ── runs of other processes ─────────────────────────────────────────────────────────────

    async def find(self, key: str, principal: str) -> RemoteRun | None:
        """Return the last run of a conversation, and the run's events, even if the run is over.

        Raises Refused (404) if the run belongs to another principal.
        """
        with self._link.refusing():
            state = await self._link.state(key)
            if state is None:
                return None
            if state.header.principal != principal:
                raise Refused(404, "There is no such conversation; choose one from the list.")
            return await self._remote_runs.follow(key, state.header)

    async def running(self, key: str, principal: str) -> Header | None:
        """Return the header of a conversation's run in another process; None if no run exists."""
        with self._link.refusing():
            state = await self._link.state(key)
            if state is None or state.over or state.header.principal != principal:
                return None
            return state.header if await self._link.lives(state.worker) else None

    async def ends(self, key: str) -> bool:
        """Whether a conversation's last run shows a durable chat that has decided its outcome."""
        with self._link.refusing():
            state = await self._link.state(key)
        return state is not None and state.ends

    async def last(self, key: str, principal: str) -> Header | None:
        """Return the header of a conversation's last run, which may be over."""
        with self._link.refusing():
            state = await self._link.state(key)
        return None if state is None or state.header.principal != principal else state.header

    async def stop(self, key: str, principal: str, reason: str) -> bool:
        """Stop the run of a conversation in another process; returns False if there is no run."""
        note = ProcessMessage(act="stop", key=key, principal=principal, reason=reason)
        answer = await self._inbox.ask(note)
        return answer is not None and answer.done

    async def send(
        self, key: str, principal: str, message: UserMessage, when: When
    ) -> Receipt | None:
        """Send a message into the run of a conversation in another process; None if there is none.

        Raises Refused if nobody knows whether the other process has queued the message.
        """
        note = ProcessMessage(act="send", key=key, principal=principal, message=message, when=when)
        answer = await self._inbox.ask(note)
        return None if answer is None else answer.receipt

    async def forget(self, key: str) -> None:
        """Delete the runs of a conversation, and its events for remote observers."""
        redis, told = self._link.commands, self._names.events(partition_of(key))
        with self._link.refusing():
            logs = [log async for log in redis.scan_iter(self._names.logs(key), count=1000)]
            await redis.delete(self._names.run(key), *logs)
            after = "-"
            while entries := await redis.xrange(told, min=after, count=BATCH):
                ids = [id for id, fields in entries if fields[b"k"] == key.encode()]
                if ids:
                    await redis.xdel(told, *ids)
                after = f"({entries[-1][0].decode()}"

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
