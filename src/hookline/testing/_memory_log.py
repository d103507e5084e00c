"""The log of a durable chat in memory, for tests in which its worker dies."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from hookline.runtimes import Halted


class MemoryLog:
    """A log whose worker dies at the batch with this number, once. A question has one answer."""

    def __init__(
        self, approver: Callable[[Any, Any], Awaitable[Any]], crash: int | None = None
    ) -> None:
        self.batches: list[bytes] = []
        self._approver = approver
        self._crash = crash
        self._answers: dict[str, Any] = {}  # by the id of the request

    async def read(self) -> list[bytes]:
        return list(self.batches)

    async def append(self, data: bytes) -> None:
        if len(self.batches) == self._crash:
            self._crash = None
            raise Halted
        self.batches.append(data)

    async def answer(self, request: Any) -> Any:
        if request.id not in self._answers:
            self._answers[request.id] = await self._approver(request, None)
        return self._answers[request.id]

    def poke(self) -> None:
        """Nothing is suspended here."""
