"""The connections of a server whose headers depend on the run: one per distinct set of headers."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from contextvars import Context
from functools import partial
from typing import Any, Final, TypeAlias

from hookline import Run
from hookline.mcp._client.connection import Link
from hookline.mcp._errors import MCPServerError

HeaderMap: TypeAlias = Mapping[str, str]
Headers: TypeAlias = HeaderMap | Callable[[Run[Any]], HeaderMap | Awaitable[HeaderMap]] | None
"""HTTP headers, or a function of the run that returns them, sync or async."""

Key: TypeAlias = tuple[tuple[str, str], ...]

_CLOSED: Final = "the MCP server was closed; connect it again"
MAX_LINKS: Final = 64
IDLE: Final = 300.0  # seconds after which an unused connection is closed


class Pool:
    """Up to 64 connections; a connection that was idle for five minutes is closed."""

    def __init__(
        self,
        make: Callable[[HeaderMap], Link],
        *,
        size: int = MAX_LINKS,
        idle: float = IDLE,
    ) -> None:
        self._make = make
        self._size = size
        self._idle = idle
        self._closed = False
        self._links: dict[Key, Link] = {}
        self._starting: dict[Link, asyncio.Task[None]] = {}
        self._timer: asyncio.TimerHandle | None = None

    def links(self) -> list[Link]:
        """Return all connections, for the caller to close; the pool opens no more."""
        self._closed = True
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        return list(self._links.values())

    def __len__(self) -> int:
        return len(self._links)

    async def get(self, headers: object) -> Link:
        """Return the connection for these headers; raises MCPServerError if there cannot be one."""
        key = _key(headers)
        if self._closed:
            raise MCPServerError(_CLOSED)
        link = self._links.get(key)
        if link is None:
            self._make_room()
            link = self._links[key] = self._make(dict(key))
            # A separate task: an aborted chat must not fail another chat that also waits.
            started = asyncio.create_task(link.start(), context=Context())
            self._starting[link] = started
            started.add_done_callback(partial(self._started, key, link))
            self._sweep_later()
        starting = self._starting.get(link)
        if starting is not None:
            await asyncio.wait([starting])  # not the task itself: others may wait too
            if starting.cancelled():
                raise MCPServerError(_CLOSED)
            starting.result()
        link.last_use = asyncio.get_running_loop().time()
        return link

    def _started(self, key: Key, link: Link, starting: asyncio.Task[None]) -> None:
        """Note the end of a start, whether or not a chat still waits for it."""
        self._starting.pop(link, None)
        failed = starting.cancelled() or starting.exception() is not None
        if failed and self._links.get(key) is link:
            del self._links[key]

    def _make_room(self) -> None:
        if len(self._links) < self._size:
            return
        free = [key for key, link in self._links.items() if self._is_free(link)]
        if not free:
            raise MCPServerError(
                f"{self._size} connections with other headers are in use; try again later"
            )
        self._links.pop(min(free, key=lambda key: self._links[key].last_use)).close()

    def _is_free(self, link: Link) -> bool:
        return not link.calls and link not in self._starting

    def _sweep_later(self) -> None:
        if self._timer is None:
            loop = asyncio.get_running_loop()
            self._timer = loop.call_later(self._idle / 2, self._sweep, context=Context())

    def _sweep(self) -> None:
        self._timer = None
        now = asyncio.get_running_loop().time()
        for key, link in list(self._links.items()):
            if self._is_free(link) and now - link.last_use >= self._idle:
                self._links.pop(key).close()
        if self._links:
            self._sweep_later()


def _key(headers: Any) -> Key:
    try:
        items: list[tuple[Any, Any]] = sorted(dict(headers).items())
    except (TypeError, ValueError):
        items = [("", None)]
    if any(not isinstance(name, str) or not isinstance(value, str) for name, value in items):
        raise MCPServerError(
            f"headers= returned a {type(headers).__name__}; it must return a mapping of str to str"
        )
    return tuple(items)
