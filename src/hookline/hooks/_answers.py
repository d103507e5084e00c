"""Where `cache` keeps answers: the two functions of a store, and one in memory that is bounded."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from time import monotonic
from typing import Protocol


class CacheStore(Protocol):
    """Where answers are kept: `MemoryCache`, or anything with these two."""

    async def get(self, key: str, /) -> bytes | None:
        """The bytes of that key, None where there are none."""
        ...

    async def set(self, key: str, value: bytes, /) -> None:
        """Keep the bytes, for as long as the store sees fit."""
        ...


class MemoryCache:
    """The answers used last, at most `size` of them and none older than `ttl` seconds."""

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
        self._kept: OrderedDict[str, tuple[float, bytes]] = OrderedDict()

    async def get(self, key: str, /) -> bytes | None:
        """The bytes of that key, None where there are none or they are too old."""
        since, value = self._kept.get(key, (0.0, None))
        if value is None:
            return None
        if self._ttl is not None and self._clock() - since >= self._ttl:
            del self._kept[key]
            return None
        self._kept.move_to_end(key)
        return value

    async def set(self, key: str, value: bytes, /) -> None:
        """Keep the bytes; what was not used for longest makes room."""
        self._kept[key] = (self._clock(), value)
        self._kept.move_to_end(key)
        while len(self._kept) > self._size:
            self._kept.popitem(last=False)

    def __len__(self) -> int:
        return len(self._kept)
