"""Storage for `cache`: the protocol of a store, and a bounded store in memory."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from time import monotonic
from typing import Protocol


class CacheStore(Protocol):
    """A store of answers: `MemoryCache`, or any object with these two methods."""

    async def get(self, key: str, /) -> bytes | None:
        """Return the bytes that are stored under this key; None if there are no bytes."""
        ...

    async def set(self, key: str, value: bytes, /) -> None:
        """Store the bytes under this key. The store decides how long it keeps the bytes."""
        ...


class MemoryCache:
    """A cache that keeps the `size` most recently used answers.

    Answers expire after `ttl` seconds.
    """

    def __init__(
        self,
        size: int = 1024,
        *,
        ttl: float | None = None,
        clock: Callable[[], float] = monotonic,
    ) -> None:
        self._size = size
        self._ttl = ttl
        self._clock = clock
        self._entries: OrderedDict[str, tuple[float, bytes]] = OrderedDict()

    async def get(self, key: str, /) -> bytes | None:
        """Return the bytes that are stored under this key; None if they are missing or expired."""
        start, value = self._entries.get(key, (0.0, None))
        if value is None:
            return None
        if self._ttl is not None and self._clock() - start >= self._ttl:
            del self._entries[key]
            return None
        self._entries.move_to_end(key)
        return value

    async def set(self, key: str, value: bytes, /) -> None:
        """Store the bytes; if the cache is full, remove the least recently used entries."""
        self._entries[key] = (self._clock(), value)
        self._entries.move_to_end(key)
        while len(self._entries) > self._size:
            self._entries.popitem(last=False)

    def __len__(self) -> int:
        return len(self._entries)
