"""The chats that a worker of Restate runs at once; a suspect begins alone.

A suspect, whose last life has died, waits until the worker runs nothing else, and nothing else
begins before it has recorded a call. See `_polled.deaths` for the rule.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager, suppress
from typing import Final

from hookline.durable._polled.deaths import PATIENCE, TRIAL

_LOOK: Final = 0.02  # seconds between two looks of a suspect


class Busy(Exception):
    """No slot was free in time."""

    def __init__(self, delay: float) -> None:
        super().__init__("the worker is busy")
        self.delay = delay
        """The seconds before the chat asks again."""


class Slots:
    """The slots of one worker."""

    def __init__(self, concurrency: int, patience: float) -> None:
        """A chat waits for its slot for at most `patience` seconds."""
        self._free = asyncio.Semaphore(concurrency)
        self._patience = min(patience, PATIENCE)
        self._running = 0
        self._waiting = 0  # suspects
        self._alone = False  # whether a suspect runs beside which nothing may begin yet
        self._clear = asyncio.Event()  # no suspect waits or is alone
        self._clear.set()

    @asynccontextmanager
    async def slot(
        self, strikes: int, cleared: asyncio.Event, make_room: Callable[[], None]
    ) -> AsyncGenerator[None]:
        """Hold a slot for a chat with these strikes. Raises Busy.

        A suspect is `cleared` once it has recorded a call; it then makes room for other suspects.
        """
        end = time.monotonic() + self._patience
        try:
            await asyncio.wait_for(self._free.acquire(), self._patience)
        except TimeoutError as exc:
            raise Busy(1.0) from exc
        trial: asyncio.Task[None] | None = None
        try:
            if strikes:
                await self._until_alone(strikes, end)
                trial = asyncio.create_task(self._try(strikes, cleared, make_room))
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
        while not self._clear.is_set():
            try:
                await asyncio.wait_for(self._clear.wait(), end - time.monotonic())
            except TimeoutError as exc:
                raise Busy(1.0) from exc

    async def _until_alone(self, strikes: int, end: float) -> None:
        """Wait until nothing else runs; a first strike, most likely of another, waits less."""
        begin_beside = time.monotonic() + TRIAL if strikes == 1 else end
        self._waiting += 1
        self._clear.clear()
        try:
            while self._alone or (self._running and time.monotonic() < begin_beside):
                if time.monotonic() >= end:
                    raise Busy(1.0)
                await asyncio.sleep(_LOOK)
            if self._running and strikes > 1:  # they take long: another worker may be free
                raise Busy(PATIENCE)
            self._alone = True
        finally:
            self._waiting -= 1
            self._set(alone=self._alone)

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
