"""Waits for the outcomes of many chats with one query."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from contextvars import Context

Future = asyncio.Future[str | None]


class Waiters:
    """The callers of one client that wait for outcomes."""

    def __init__(
        self, fetch: Callable[[list[str]], Awaitable[dict[str, str | None]]], poll: float
    ) -> None:
        self._fetch = fetch
        self._poll = poll
        self._futures: dict[str, set[Future]] = {}
        self._polling: asyncio.Task[None] | None = None

    async def wait(self, id: str) -> str | None:
        """Wait for the outcome of a chat; None if there is no such chat. Raises StoreError."""
        future: Future = asyncio.get_running_loop().create_future()
        futures = self._futures.setdefault(id, set())
        futures.add(future)
        if self._polling is None or self._polling.done():
            self._polling = asyncio.create_task(self._run(), context=Context())
        try:
            return await future
        finally:
            futures.discard(future)
            if not futures and self._futures.get(id) is futures:
                del self._futures[id]

    async def _run(self) -> None:
        """Ask for all of them until nobody waits."""
        while self._futures:
            ids = list(self._futures)
            try:
                outcomes = await self._fetch(ids)
            except Exception as exc:
                for future in self._pop(ids):
                    future.set_exception(exc)
                continue
            for id in ids:
                outcome = outcomes.get(id)
                if outcome is not None or id not in outcomes:
                    for future in self._pop([id]):
                        future.set_result(outcome)
            if self._futures:
                await asyncio.sleep(self._poll)

    def _pop(self, ids: Iterable[str]) -> list[Future]:
        """Remove the futures of these chats that still wait, and return them."""
        futures = [future for id in ids for future in self._futures.pop(id, ())]
        return [future for future in futures if not future.done()]

    async def aclose(self) -> None:
        """Stop asking; callers that still wait are cancelled."""
        polling, self._polling = self._polling, None
        if polling is not None:
            polling.cancel()
            await asyncio.wait([polling])
        for future in self._pop(list(self._futures)):
            future.cancel()
