"""What a worker reports to Restate about its chats: a life that has not died, a quarantine."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from typing import Final

import msgspec

from hookline.durable._shared.deaths import Toll, log_quarantine
from hookline.durable.restate._deaths import quarantine_in, toll_of, undone_by
from hookline.durable.restate._requests import Failure, Requests, quoted
from hookline.errors import StoreError, UsageError

logger = logging.getLogger("hookline.durable")
_AGAIN: Final = 1.0  # seconds before an unreachable server is tried again
_TRIES: Final = 600
_LOOK: Final = 0.1  # seconds between two looks at an attempt that fails
_LOOKS: Final = 100
_GRACE: Final = 3.0  # seconds for a worker that stops to take deaths back


class _Promise(msgspec.Struct, frozen=True):
    key: str


class Reports(Requests):
    """Takes deaths back, asks which were taken back, and quarantines chats."""

    def __init__(self, url: str, name: str, admin: str | None) -> None:
        super().__init__(url, name, {}, admin)
        self._undoing: dict[tuple[str, int], asyncio.Task[None]] = {}
        self._pausing: set[asyncio.Task[None]] = set()

    def take_back(self, id: str, step: int) -> None:
        """Take the death of a life back whose connection has ended in this step."""
        key = id, step
        self._undoing[key] = task = asyncio.create_task(self._take_back(id, step))
        task.add_done_callback(lambda _: self._undoing.pop(key, None))

    async def _take_back(self, id: str, step: int) -> None:
        for _ in range(_TRIES):
            try:
                await self.undo(id, [step])
                return
            except StoreError:
                await asyncio.sleep(_AGAIN)
            except UsageError as exc:  # a proxy denies it
                logger.debug("the death of a life cannot be taken back", exc_info=exc)
                return

    async def toll(self, id: str, steps: Sequence[bytes]) -> Toll | None:
        """Return the toll of a chat; None if Restate does not tell which deaths count."""
        try:
            rows = await self.rows(
                _Promise,
                f"SELECT key FROM sys_promise WHERE service_name = {quoted(self.name)} "
                f"AND service_key = {quoted(id)} AND completed",
            )
        except (StoreError, UsageError) as exc:
            logger.debug("Restate does not tell which deaths count", exc_info=exc)
            return None
        ours = {undone_by(step) for other, step in self._undoing if other == id}
        return toll_of(steps, ours.union(row.key for row in rows))

    def quarantine(self, id: str, invocation: str, deaths: int) -> None:
        """Pause a chat once its attempt has failed. If this fails, its next attempt asks again."""
        task = asyncio.create_task(self._pause(id, invocation, deaths))
        self._pausing.add(task)
        task.add_done_callback(self._pausing.discard)

    async def _pause(self, id: str, invocation: str, deaths: int) -> None:
        """The failure tells clients why the chat is quarantined, so it must be recorded first."""
        try:
            for _ in range(_LOOKS):
                rows = await self.rows(
                    Failure,
                    "SELECT last_failure AS text FROM sys_invocation "
                    f"WHERE id = {quoted(invocation)}",
                )
                if any(quarantine_in(id, row.text or "") for row in rows):
                    if await self.act(invocation, "pause"):
                        log_quarantine(id, deaths)
                    return
                await asyncio.sleep(_LOOK)
        except (StoreError, UsageError) as exc:
            logger.warning("durable chat %s cannot be quarantined: %s", id, type(exc).__name__)

    async def aclose(self) -> None:
        """Take the remaining deaths back if Restate is reachable, and disconnect."""
        tasks = [*self._undoing.values(), *self._pausing]
        if tasks:
            await asyncio.wait(tasks, timeout=_GRACE)
        for task in tasks:
            task.cancel()
        await super().aclose()
