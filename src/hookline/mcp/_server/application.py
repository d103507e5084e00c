"""The ASGI application of a served agent: the SDK's application, started when it is needed.

The SDK starts its sessions in the lifespan of its application, but the lifespan of a mounted
application does not run. So the sessions have a task of their own, which begins with the lifespan
or with the first request, and ends with the lifespan or with the event loop.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, MutableMapping
from contextvars import Context
from typing import Any, TypeAlias

Message: TypeAlias = MutableMapping[str, Any]
Receive: TypeAlias = Callable[[], Awaitable[Message]]
Send: TypeAlias = Callable[[Message], Awaitable[None]]


class AgentApp:
    """The ASGI application that `serve()` returns: run it with a server, or mount it."""

    def __init__(self, make: Callable[[], Any]) -> None:
        self._make = make  # the SDK's application, which can be started once
        self._sessions: _Sessions | None = None

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        """Answer one request of a client, or run the lifespan."""
        if scope["type"] == "lifespan":
            await self._lifespan(receive, send)
        else:
            await (await self._started()).app(scope, receive, send)

    async def _lifespan(self, receive: Receive, send: Send) -> None:
        while True:
            message = await receive()
            if message["type"] == "lifespan.shutdown":
                sessions, self._sessions = self._sessions, None
                if sessions is not None:
                    await sessions.end()
                await send({"type": "lifespan.shutdown.complete"})
                return
            await self._started()
            await send({"type": "lifespan.startup.complete"})

    async def _started(self) -> _Sessions:
        sessions = self._sessions
        if sessions is None or not sessions.alive():
            sessions = self._sessions = _Sessions(self._make())
        await asyncio.wait([sessions.up])  # and not the future itself: others may wait too
        sessions.up.result()
        return sessions


class _Sessions:
    """The sessions of one event loop, which end with their task."""

    def __init__(self, app: Any) -> None:
        self.app = app
        self._loop = asyncio.get_running_loop()
        self.up: asyncio.Future[None] = self._loop.create_future()
        self._over = asyncio.Event()
        # The request that happens to be the first must not be the context of all sessions.
        self._task = self._loop.create_task(self._run(), context=Context())

    def alive(self) -> bool:
        return self._loop is asyncio.get_running_loop() and not self._task.done()

    async def _run(self) -> None:
        try:
            async with self.app.router.lifespan_context(self.app):
                self.up.set_result(None)
                await self._over.wait()
        except Exception as exc:
            if self.up.done():
                raise
            self.up.set_exception(exc)

    async def end(self) -> None:
        self._over.set()
        await asyncio.wait([self._task])
