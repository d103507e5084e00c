"""A real server on the loopback, in the test's own event loop."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import httpx
import uvicorn

from hookline import Agent, Conversation
from hookline.web import Caps, Site, app

TOKEN = "a-token-of-the-tests"
LOCAL = "http://127.0.0.1"
HEADERS = {"authorization": f"Bearer {TOKEN}"}


@asynccontextmanager
async def serve(asgi: Any, **options: Any) -> AsyncIterator[str]:
    """Serve an ASGI application; gives its address."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen(2048)
        options = {"log_level": "error", "access_log": False, "ws": "none", **options}
        config = uvicorn.Config(asgi, timeout_graceful_shutdown=2, **options)
        server = uvicorn.Server(config)
        config.load()
        server.lifespan = config.lifespan_class(config)
        await server.startup(sockets=[listener])
        try:
            yield f"http://127.0.0.1:{listener.getsockname()[1]}"
        finally:
            await server.shutdown(sockets=[listener])


@asynccontextmanager
async def site_of(agent: Agent[Any], **options: Any) -> AsyncIterator[tuple[Site, str]]:
    """The application of an agent, served; gives it and its address."""
    options.setdefault("token", None if "authorize" in options else TOKEN)
    options.setdefault("caps", Caps(drain=0.0))
    site = app(agent, **options)
    async with serve(site) as url:
        yield site, url


@asynccontextmanager
async def direct(
    agent: Agent[Any], **options: Any
) -> AsyncIterator[tuple[Site, httpx.AsyncClient]]:
    """The application without a socket: for answers that are read as a whole."""
    options.setdefault("token", None if "authorize" in options else TOKEN)
    site = app(agent, **options)
    way = httpx.ASGITransport(site)
    async with httpx.AsyncClient(transport=way, base_url=LOCAL, headers=HEADERS) as http:
        yield site, http


def client(url: str, **headers: str) -> httpx.AsyncClient:
    return httpx.AsyncClient(base_url=url, headers={**HEADERS, **headers}, timeout=60)


async def conversation_of(site: Site, id: str, principal: str = "owner") -> Conversation:
    """The stored conversation of a principal."""
    found: Conversation = await site._config.store.open(f"{principal}/{id}")
    return found


async def eventually(holds: Any, seconds: float = 60.0) -> None:
    """Wait until something holds: for what another process or a socket must bring about."""
    async with asyncio.timeout(seconds):
        while not holds():  # noqa: ASYNC110
            await asyncio.sleep(0.005)
