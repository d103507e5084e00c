"""Fire `OnClientAttached` and `OnClientDetached` when clients start and stop to read an answer.

An observer cannot delay an answer, and an exception in it cannot break one. Each visit of a client
has a task of its own, in which the arrival is always reported before the departure.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Any, TypeAlias

from hookline import HookBus
from hookline.web._runs.hook_points import OnClientAttached, OnClientDetached

Leave: TypeAlias = Callable[[int, bool], None]  # remaining readers; received everything?

logger = logging.getLogger("hookline.web")


class Presence:
    """The visits of a server's clients."""

    def __init__(self, bus: HookBus[Any]) -> None:
        self._bus = bus
        self._tasks: set[asyncio.Task[None]] = set()

    def enter(self, who: OnClientAttached) -> Leave:
        """Note that a client has arrived; returns the function to call when it leaves."""
        loop = asyncio.get_running_loop()
        departure: asyncio.Future[OnClientDetached] = loop.create_future()
        task = loop.create_task(self._visit(who, departure), name="hookline.web visit")
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

        def leave(readers: int, finished: bool) -> None:
            if not departure.done():
                context = OnClientDetached(
                    principal=who.principal,
                    conversation_id=who.conversation_id,
                    protocol=who.protocol,
                    readers=readers,
                    finished=finished,
                )
                departure.set_result(context)

        return leave

    async def _visit(
        self, who: OnClientAttached, departure: asyncio.Future[OnClientDetached]
    ) -> None:
        await self._tell(who)
        await self._tell(await departure)

    async def _tell(self, ctx: OnClientAttached | OnClientDetached) -> None:
        try:
            await self._bus.notify(ctx)
        except Exception as exc:
            logger.error("a hook at %s raised %s", type(ctx).__name__, type(exc).__name__)
            logger.debug("a hook at %s raised", type(ctx).__name__, exc_info=exc)

    async def settle(self, seconds: float = 5.0) -> None:
        """Wait until all departures are reported."""
        if self._tasks:
            await asyncio.wait(list(self._tasks), timeout=seconds)
