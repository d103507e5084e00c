"""The chats that a worker of Restate runs at once; a suspect begins alone.

A suspect, whose last life has died, waits until the worker runs nothing else, and nothing else
begins before it has recorded a call. See `_shared.deaths` for the rule. First come the chats
whose call was the last to begin in a dead worker of this machine: until Restate has begun them
again, a new worker begins nothing else.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, Callable, Iterable, Sequence
from contextlib import asynccontextmanager, suppress
from typing import Final, NamedTuple

from hookline.durable._shared.deaths import PATIENCE, TRIAL
from hookline.durable._shared.same_machine import LastCall

_LOOK: Final = 0.02  # seconds between two looks of a suspect
_RETURN: Final = 1.5  # seconds within which Restate begins a chat again whose worker has died


class Busy(Exception):
    """No slot was free in time."""

    def __init__(self, delay: float) -> None:
        super().__init__("the worker is busy")
        self.delay = delay
        """The seconds before the chat asks again."""


class Suspect(NamedTuple):
    """A chat whose last life has died."""

    id: str
    strikes: int
    workers: Sequence[str]
    """In which it has died; "" for one whose name is not recorded."""


class Slots:
    """The slots of one worker."""

    def __init__(self, concurrency: int, patience: float, last_call: LastCall) -> None:
        """A chat waits for its slot for at most `patience` seconds."""
        self._free = asyncio.Semaphore(concurrency)
        self._patience = min(patience, PATIENCE)
        self._last_call = last_call
        self._running = 0
        self._waiting: list[Suspect] = []
        self._alone = False  # whether a suspect runs beside which nothing may begin yet
        self._last_begin = 0.0  # of a suspect
        self._prime: set[str] | None = None  # whose calls were the last to begin in dead workers
        self._missing: set[str] = set()  # those of them that have not come yet
        self._missing_until = 0.0  # how long the others wait for them
        self._explained: set[str] = set()  # workers that were killed by a chat that died again
        self._clear = asyncio.Event()  # no suspect waits or is alone
        self._clear.set()

    def meet(self, suspect: Suspect) -> None:
        """Take note of a suspect, also if it begins later."""
        self._look_for_the_prime()
        self._missing.discard(suspect.id)
        if suspect.strikes > 1:
            self.explain(suspect.workers)

    def explain(self, workers: Iterable[str]) -> None:
        """Take note of workers whose death is explained by a chat that died again."""
        self._explained.update(worker for worker in workers if worker)

    def _look_for_the_prime(self) -> None:
        if self._prime is None:
            self._prime = self._last_call.take_dead()
            self._missing = set(self._prime)
            self._missing_until = time.monotonic() + _RETURN

    def _waits_for_the_prime(self) -> bool:
        return bool(self._missing) and time.monotonic() < self._missing_until

    @asynccontextmanager
    async def slot(
        self, suspect: Suspect | None, cleared: asyncio.Event, make_room: Callable[[], None]
    ) -> AsyncGenerator[None]:
        """Hold a slot for a chat. Raises Busy.

        A suspect is `cleared` once it has recorded a call; it then makes room for other suspects.
        """
        end = time.monotonic() + self._patience
        try:
            await asyncio.wait_for(self._free.acquire(), self._patience)
        except TimeoutError as exc:
            raise Busy(1.0) from exc
        trial: asyncio.Task[None] | None = None
        try:
            if suspect is not None and await self._is_its_turn(suspect, end):
                trial = asyncio.create_task(self._try(suspect.strikes, cleared, make_room))
            else:
                await self._until_clear(end)
            self._running += 1
            try:
                yield
            finally:
                self._running -= 1
        finally:
            if trial is not None and not trial.done():
                trial.cancel()
                self._set(alone=False)
            self._free.release()

    async def _until_clear(self, end: float) -> None:
        self._look_for_the_prime()
        while self._waits_for_the_prime():  # noqa: ASYNC110
            await asyncio.sleep(_LOOK)
        while not self._clear.is_set():
            try:
                await asyncio.wait_for(self._clear.wait(), end - time.monotonic())
            except TimeoutError as exc:
                raise Busy(1.0) from exc

    async def _is_its_turn(self, suspect: Suspect, end: float) -> bool:
        """Wait until nothing else runs; a first strike, most likely of another, waits less.

        Returns False if another chat turns out to have caused the death.
        """
        begin = time.monotonic()
        self._waiting.append(suspect)
        self._clear.clear()
        try:
            while not self._may_begin(suspect, begin, end):
                if self._is_explained(suspect):
                    return False
                if time.monotonic() >= end:
                    raise Busy(1.0)
                await asyncio.sleep(_LOOK)
            if self._running and suspect.strikes > 1:  # they take long: another worker may be free
                raise Busy(PATIENCE)
            self._alone = True
            self._last_begin = time.monotonic()
            return True
        finally:
            self._waiting.remove(suspect)
            self._set(alone=self._alone)

    def _may_begin(self, suspect: Suspect, begin: float, end: float) -> bool:
        now = time.monotonic()
        is_late = now >= (end if suspect.strikes > 1 else max(begin, self._last_begin) + TRIAL)
        if self._alone or self._is_explained(suspect) or (self._running and not is_late):
            return False
        if self._waits_for_the_prime():
            return False
        return suspect is max(self._waiting, key=self._is_prime)

    def _is_prime(self, suspect: Suspect) -> bool:
        return self._prime is not None and suspect.id in self._prime

    def _is_explained(self, suspect: Suspect) -> bool:
        return suspect.strikes == 1 and suspect.workers[-1] in self._explained

    async def _try(
        self, strikes: int, cleared: asyncio.Event, make_room: Callable[[], None]
    ) -> None:
        with suppress(TimeoutError):
            await asyncio.wait_for(cleared.wait(), TRIAL if strikes == 1 else None)
        self._set(alone=False)
        if self._waiting:  # between two steps
            make_room()

    def _set(self, *, alone: bool) -> None:
        self._alone = alone
        if self._waiting or alone:
            self._clear.clear()
        else:
            self._clear.set()
