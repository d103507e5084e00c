"""An ASGI app on a free port of this machine."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

import pytest


@asynccontextmanager
async def listening(app: Any, *, lifespan: str = "on") -> AsyncGenerator[str]:
    """The address of an app that is served on a free port."""
    uvicorn = pytest.importorskip("uvicorn")
    # Its oldest versions load a module of websockets that is deprecated.
    options = {"log_level": "critical", "lifespan": lifespan, "interface": "asgi3", "ws": "none"}
    server = uvicorn.Server(uvicorn.Config(app, port=0, **options))
    task = asyncio.ensure_future(server.serve())
    while not server.started:
        assert not task.done(), task.exception()
        await asyncio.sleep(0.01)
    port = server.servers[0].sockets[0].getsockname()[1]
    try:
        yield f"http://127.0.0.1:{port}/mcp"
    finally:
        server.should_exit = True
        await task
