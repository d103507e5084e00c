"""The commands to Redis that all parts of a relay share, with our name and timeouts."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine, Generator, Sequence
from contextlib import contextmanager
from importlib import import_module
from secrets import token_hex
from typing import Any, Final

import msgspec

from hookline.errors import StoreError
from hookline.web._http.request_reply import Refused
from hookline.web._runs.registry import busy
from hookline.web._runs.run_header import Header
from hookline.web.relay._redis import (
    CLAIM,
    CLOSE,
    DURABLE,
    MISSING,
    OVER,
    RELEASE,
    RENEW,
    SAY,
    TAKE,
    Names,
    connect,
    outages,
)

logger = logging.getLogger("hookline.web")

_header: Final = msgspec.json.Decoder(Header)


class State(msgspec.Struct, frozen=True):
    """The last run of a conversation, as stored in Redis."""

    worker: str
    header: Header
    over: bool
    ends: bool
    """Whether the durable chat of the run has decided its outcome."""
    rested: str
    """The last durable chat that waited for an answer, and the number of its event before that."""

    def rest_of(self, chat_id: str) -> int | None:
        """Return the number of the last event before this durable chat waited for an answer."""
        chat, _, seq = self.rested.partition(" ")
        return int(seq) if chat == chat_id else None


class Link:
    """A connection for commands, with the names and timeouts that it needs."""

    def __init__(self, url: str, names: Names, *, ttl: float, lease: float) -> None:
        self.names = names
        self.worker = token_hex(8)
        """The id of this process."""
        self.ttl = int(ttl * 1000)
        """How long keys are kept, in milliseconds."""
        self.lease = lease
        self.outages = outages()
        """The exceptions raised if Redis is not reachable."""
        self.failures: tuple[type[BaseException], ...] = (
            TimeoutError,
            StoreError,
            *self.outages,
            import_module("redis.exceptions").ResponseError,  # Redis refuses a command
        )
        """The exceptions for which a durable chat continues without being shown."""
        self.commands = connect(url)
        self._sending: set[asyncio.Task[None]] = set()

    def later(self, what: Coroutine[Any, Any, Any]) -> asyncio.Task[None]:
        """Run a coroutine in a background task."""
        task = asyncio.create_task(self._quietly(what))
        self._sending.add(task)
        task.add_done_callback(self._sending.discard)
        task.add_done_callback(lambda _: what.close())  # it may be cancelled before it begins
        return task

    async def _quietly(self, what: Coroutine[Any, Any, Any]) -> None:
        try:
            await what
        except self.outages as exc:
            self.complain(exc)

    def complain(self, exc: BaseException) -> None:
        """Log that Redis is not reachable, and continue."""
        logger.warning("the relay's Redis is not reachable: %s", type(exc).__name__)

    @contextmanager
    def refusing(self) -> Generator[None]:
        """Refuse the request that needs Redis here, if Redis is not reachable."""
        try:
            yield
        except self.outages:
            text = "The relay between the servers is not available; try again later."
            raise Refused(503, text, retry_after="5") from None

    async def beat(self) -> None:
        """Renew the key that marks this process as alive."""
        pipe = self.commands.pipeline(transaction=False)
        pipe.set(self.names.worker(self.worker), b"1", px=int(self.lease * 1000))
        pipe.pexpire(self.names.inbox(self.worker), self.ttl)
        await pipe.execute()

    async def lives(self, worker: str) -> bool:
        """Whether a process is alive; always true for a durable chat, which any process can run."""
        return worker == DURABLE or bool(await self.commands.exists(self.names.worker(worker)))

    async def missing_runs(self, runs: Sequence[tuple[str, str]]) -> list[int]:
        """Which of these runs, each after its key, were replaced or have lost their process."""
        keys = [self.names.run(key) for key, _ in runs]
        args = [self.names.worker_prefix, *(run for _, run in runs)]
        numbers: list[int] = await self.commands.eval(MISSING, len(keys), *keys, *args)
        return numbers

    async def state(self, key: str) -> State | None:
        """Return the last run of a conversation."""
        worker, header, over, ends, rested = await self.commands.hmget(
            self.names.run(key), "worker", "header", "over", "ends", "rested"
        )
        if worker is None or header is None:
            return None
        return State(
            worker=worker.decode(),
            header=_header.decode(header),
            over=over == b"1",
            ends=ends == b"1",
            rested=(rested or b"").decode(),
        )

    async def claim_of(self, key: str) -> tuple[str, str] | None:
        """Return the worker and the run of a claim whose run has not begun."""
        worker, run, header = await self.commands.hmget(
            self.names.run(key), "worker", "run", "header"
        )
        return None if worker is None or header is not None else (worker.decode(), run.decode())

    async def claim(self, key: str, run: str, worker: str) -> None:
        """Claim a conversation for a run, until the run begins; raises Refused if it is taken."""
        args = [self.names.worker_prefix, run, worker, int(self.lease * 1000)]
        with self.refusing():
            free = await self.commands.eval(CLAIM, 1, self.names.run(key), *args)
        if not free:
            raise busy()

    async def renew(self, key: str, run: str) -> None:
        """Keep a claim from expiring."""
        await self.commands.eval(RENEW, 1, self.names.run(key), run, int(self.lease * 1000))

    async def release(self, key: str, run: str) -> None:
        """Undo a claim whose run did not begin."""
        await self.commands.eval(RELEASE, 1, self.names.run(key), run)

    async def say(self, key: str, header: Header, worker: str) -> None:
        """Publish the header of a conversation's run, unless another run has replaced it."""
        args = [header.run, worker, header.to_share(), self.ttl]
        await self.commands.eval(SAY, 1, self.names.run(key), *args)

    async def take(
        self, key: str, header: Header, life: int, event_names: bytes, *, ends: bool
    ) -> bool:
        """Let a life of a durable chat write to a run; False if it must not.

        `ends`: the chat has decided its outcome, and will read its messages once more.
        """
        names = self.names
        args = [names.worker_prefix, header.run, header.to_share(), life, self.ttl, event_names]
        args.append(int(ends))
        keys = [names.run(key), names.log(key, header.run)]
        return bool(await self.commands.eval(TAKE, 2, *keys, *args))

    async def rest(self, key: str, chat_id: str, seq: int) -> None:
        """Keep the number of the last event before a durable chat waits for an answer."""
        pipe = self.commands.pipeline(transaction=False)
        pipe.hset(self.names.run(key), "rested", f"{chat_id} {seq}")
        pipe.pexpire(self.names.run(key), self.ttl)
        await pipe.execute()

    async def over(self, key: str, run: str, life: int) -> None:
        """Mark a run as over, unless a later life has it."""
        await self.commands.eval(OVER, 1, self.names.run(key), run, life)

    async def close(self, key: str, chat_id: str, life: int | None = None) -> None:
        """End the run of a durable chat that is over; `life`: not if a later life writes to it."""
        args = [self.names.log(key, ""), chat_id, "" if life is None else life, self.ttl]
        await self.commands.eval(CLOSE, 1, self.names.run(key), *args)

    async def aclose(self) -> None:
        """Cancel pending commands, and disconnect."""
        for task in list(self._sending):
            task.cancel()
        await asyncio.gather(*self._sending, return_exceptions=True)
        await self.commands.aclose()
