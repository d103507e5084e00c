"""A durable chat as a Restate workflow: the workflow's journal is the chat's log.

Restate requires that a replay makes the same requests in the same order. All requests here follow
from the log: each batch is a step `log`. After a batch with a question come the question in the
workflow's state, a promise for its answer, and a delayed message for its expiry. Only `drive` talks
to the engine. A step `log` stays open while the chat is active, so the connection is monitored.
It ends empty after a while, as a sign of life, and when the chat only waits. Restate then suspends
the workflow, and it takes up no memory until an answer arrives. If the worker dies, the step stays
open, and the next life closes it with a mark (see `_deaths.py`). So a chat continues after a batch
only once the next step is open. The last step holds the outcome: if the workflow's output is
recorded and its end is not, the next life may make no request. `_messages.py` describes how a
message comes in; it does not wake a chat that only waits.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Coroutine, Generator
from datetime import timedelta
from typing import Any, Final, Protocol, cast

import msgspec
import restate
from restate.context import RunOptions
from restate.serde import BytesSerde
from restate.server_context import restate_context_is_replaying

from hookline import ApprovalRequest
from hookline.durable._job import Decision, read_decision, read_request
from hookline.durable._shared.deaths import Progress
from hookline.durable.restate._journal_entries import MESSAGES, end_with, is_batch, mark, outcome_in
from hookline.durable.restate._messages import Messages
from hookline.runtimes import Batch, Halted, Journal, Line

logger = logging.getLogger("hookline.durable")
_bytes: Final = BytesSerde()
_options: Final[RunOptions[bytes]] = RunOptions(serde=_bytes)
_batch: Final = msgspec.json.Decoder(Batch)
_reason: Final = msgspec.json.Decoder(str | None)
GRACE: Final = 10.0  # seconds for a finished life to end
_SETTLE_TIME: Final = 0.05  # seconds without activity before a chat counts as waiting


class _Future(Protocol):
    """The full type of the SDK's futures, which its annotations do not express."""

    def is_completed(self) -> bool: ...

    def __await__(self) -> Generator[Any, None, bytes]: ...


ABORT: Final = "abort"
"""The name of the promise for an abort, with its reason."""


def question(id: str) -> str:
    """Return the key of a question in the workflow's state."""
    return f"question/{id}"


def answer_to(id: str) -> str:
    """Return the name of the promise for an answer."""
    return f"answer/{id}"


class WorkflowLog:
    """The log of one chat, as one life sees it."""

    def __init__(
        self,
        context: restate.WorkflowContext,
        expire: Callable[[str, timedelta], object],
        sign: float,
        idle: float,
    ) -> None:
        """`expire` sends a message that ends a question; `sign`: seconds between signs of life;
        `idle`: seconds before a chat that only waits is suspended.
        """
        self._context = context
        self._expire = expire
        self._sign = sign
        self._idle = idle
        self.batches: list[bytes] = []  # of earlier lives
        self.steps: list[bytes] = []  # all that have ended in earlier lives
        self.outcome: bytes | None = None  # of a chat that has ended in an earlier life
        self.has_opened = asyncio.Event()  # whether a step of this life is open at Restate
        self.has_call = asyncio.Event()  # whether this life has recorded a call
        self.open_step: int | None = None  # its number
        self._journal: Journal | None = None
        self._steps = 0
        self._progress = Progress()
        self._aborted: _Future | None = self._promise(ABORT)
        self.messages = Messages(context)
        self._answers: dict[str, _Future] = {}
        self._waiters: dict[str, asyncio.Future[Decision]] = {}  # the waiters for each answer
        self._inside = 0  # calls of `answer` that have not returned
        self._out: tuple[bytes, asyncio.Future[None]] | None = None  # the batch to be written
        self._batch_waiter: asyncio.Future[None] | None = None  # the batch being written
        self._wake: asyncio.Future[None] | None = None
        self._open: Callable[[], bool] = lambda: True  # whether the chat is active
        self._over: Callable[[], bool] = lambda: False

    def _promise(self, name: str) -> _Future:
        return cast("_Future", self._context.promise(name, serde=_bytes).value())

    # ── what the journal asks for ───────────────────────────────────────────────────────────

    async def read(self) -> list[bytes]:
        """Read the log, once; close the step of a life that has died."""
        while restate_context_is_replaying.get():
            data = await self._step(mark)
            self.steps.append(data)
            self.outcome = outcome_in(data)
            if self.outcome is not None:
                break
            if data == MESSAGES:
                await self.messages.collect()
            elif is_batch(data):
                self.batches.append(data)
                self._follow(data)
        return self.batches

    async def end(self, outcome: bytes) -> bytes:
        """Write the last step, and return the outcome."""

        async def last() -> bytes:
            return end_with(outcome)

        step = self._step(last)
        self.open_step = self._steps
        await step
        self.open_step = None
        return outcome

    def _step(self, fn: Callable[[], Coroutine[Any, Any, bytes]]) -> _Future:
        self._steps += 1
        return cast("_Future", self._context.run_typed("log", fn, _options))

    async def append(self, data: bytes) -> None:
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._out = data, done
        self.poke()
        await done

    async def answer(self, request: ApprovalRequest) -> Decision:
        waiter: asyncio.Future[Decision] = asyncio.get_running_loop().create_future()
        self._waiters[request.id] = waiter
        self._inside += 1
        self.poke()
        try:
            return await waiter
        finally:
            self._inside -= 1
            self._waiters.pop(request.id, None)

    def poke(self) -> None:
        if self._wake is not None and not self._wake.done():
            self._wake.set_result(None)

    def make_room(self) -> None:
        """End this life between two steps."""
        if self._journal is not None:
            self._journal.drain()

    # ── what the engine is asked for ────────────────────────────────────────────────────────

    def _follow(self, data: bytes) -> None:
        """Make the requests that follow from a batch, whether it was replayed or just written."""
        if b'"wait"' not in data:
            return
        try:
            lines = _batch.decode(data).lines
        except msgspec.DecodeError:  # the journal refuses this batch
            return
        for line in lines:
            if line.kind == "wait":
                self._put(line)

    def _put(self, line: Line) -> None:
        body = bytes(line.value)
        self._context.set(question(line.key), body, serde=_bytes)
        self._answers[line.key] = self._promise(answer_to(line.key))
        expires = read_request(body).expires
        if expires is not None:
            self._expire(line.key, timedelta(seconds=max(0.0, expires - time.time())))

    async def drive(self, journal: Journal, chat: asyncio.Task[Any]) -> None:
        """Serve the journal's requests until the chat or this life has ended."""
        self._journal = journal
        chat.add_done_callback(lambda _: self.poke())
        self._open = lambda: not (journal.resting and self._inside == len(self._waiters) > 0)
        self._over = chat.done
        lane: _Future | None = None
        rests = False  # the chat only waits: no step is open
        try:
            while lane is not None or self._out is not None or not chat.done():
                if lane is None and not rests:
                    lane = self._step(self._next)
                    self.open_step = self._steps
                await self._completed(self._awaited(lane), lane, chat)
                rests = not await self._hand_out(journal) and rests
                if lane is not None and lane.is_completed():
                    data = await lane
                    lane = self.open_step = None
                    rests = not data and not self._open()
                    if rests:
                        logger.info("durable chat %s waits for an answer", self._context.key())
                    await self._wrote(data, journal)
        except BaseException:
            self._halt(journal, chat)
            chat.add_done_callback(_retrieve)
            await asyncio.wait([chat], timeout=GRACE)
            raise

    def _awaited(self, lane: _Future | None) -> list[Any]:
        """The futures of the engine whose completion there is something to do about."""
        futures: list[Any] = [self._answers[id] for id in self._waiters]
        if self._aborted is not None:
            futures.append(self._aborted)
        if lane is not None:
            futures.append(lane)
            if not self.messages.waiting:
                futures.append(self.messages.next)
        return futures

    async def _completed(
        self, futures: list[Any], lane: _Future | None, chat: asyncio.Task[Any]
    ) -> None:
        """Wait until one of the engine's futures is completed, or the chat has ended.

        If the worker is stopped while no step is open, only the chat's task shows it.
        """
        completed = asyncio.ensure_future(restate.wait_completed(*futures))
        try:
            if lane is None:
                tasks = {completed, chat}
                first = asyncio.FIRST_COMPLETED
                done, _ = await asyncio.wait(tasks, timeout=self._idle, return_when=first)
                if not done:
                    await self._suspend()
                    await asyncio.wait(tasks, return_when=first)
            else:
                await asyncio.wait({completed})
            if completed.done():
                completed.result()
        finally:
            completed.cancel()

    async def _suspend(self) -> None:
        """Suspend the workflow, as if Restate had asked for it.

        Restate itself asks only after a long silence, so that it does not suspend a chat whose
        worker is busy.
        """
        end = {"type": "http.request", "body": b"", "more_body": False}
        await cast("Any", self._context).receive.enqueue_restate_event(end)

    async def _next(self) -> bytes:
        """Return the next batch, or MESSAGES; empty if nothing comes for a while, or can come."""
        self.has_opened.set()
        waiter, self._batch_waiter = self._batch_waiter, None
        if waiter is not None and not waiter.done():
            waiter.set_result(None)
        while self._out is None and not self._over() and not self.messages.waiting:
            was_open = self._open()
            self._wake = asyncio.get_running_loop().create_future()
            await asyncio.wait([self._wake], timeout=self._sign if was_open else _SETTLE_TIME)
            if not self._wake.done() and was_open == self._open():
                break
        if self._out is None:
            return MESSAGES if self.messages.waiting and not self._over() else b""
        (data, self._batch_waiter), self._out = self._out, None
        return data

    async def _wrote(self, data: bytes, journal: Journal) -> None:
        """Follow a step. The chat goes on once the next step is open."""
        if data == MESSAGES:
            for sent in await self.messages.collect():
                if sent.interrupts:
                    journal.interrupt(sent.message.id)
        elif data:
            self._follow(data)
            if self._progress.look(data):
                self.has_call.set()

    async def _hand_out(self, journal: Journal) -> bool:
        """Pass new answers to the chat; False if there are none."""
        came = False
        for id, waiter in list(self._waiters.items()):
            if self._answers[id].is_completed():
                came = True
                del self._waiters[id]
                decision = read_decision(await self._answers[id])
                if not waiter.done():
                    waiter.set_result(decision)
        if self._aborted is not None and self._aborted.is_completed():
            came = True
            reason = _reason.decode(await self._aborted)
            self._aborted = None
            # An answer that this life does not reach is requested again in the next life.
            asyncio.ensure_future(journal.abort(reason)).add_done_callback(_retrieve)
        if self.messages.waiting:
            self.poke()
        return came

    def _halt(self, journal: Journal, chat: asyncio.Task[Any]) -> None:
        journal.halt()
        self.messages.halt()
        if journal.chat is None:  # it makes its deps
            chat.cancel()
        out = None if self._out is None else self._out[1]
        for waiter in (out, self._batch_waiter, *self._waiters.values()):
            if waiter is not None and not waiter.done():
                waiter.set_exception(Halted())
                waiter.exception()


def _retrieve(task: asyncio.Future[Any]) -> None:
    """Retrieve the outcome of a finished task, so that asyncio does not warn."""
    if not task.cancelled():
        task.exception()
