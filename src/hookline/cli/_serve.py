"""`hookline serve module:agent`: the application with its page on this machine, by uvicorn."""

from __future__ import annotations

import asyncio
import logging
import os
import sys
from importlib import import_module
from secrets import token_urlsafe
from typing import Any, Literal

import msgspec

from hookline.cli._target import locate, settled
from hookline.errors import UsageError
from hookline.web import Caps, Site, app
from hookline.web._guard import LOOPBACK

OnDisconnect = Literal["detach", "cancel"]


class Serving(msgspec.Struct, frozen=True, kw_only=True):
    """What the command line says of a server."""

    agent: str
    host: str
    port: int
    token: str
    hosts: list[str]
    origins: list[str]
    on_disconnect: OnDisconnect
    drain: float
    debug: bool = False


def token_of(given: str | None) -> str:
    """The token that was given, by option or in the environment; or a new one."""
    return given or os.environ.get("HOOKLINE_TOKEN") or token_urlsafe(24)


def serve(asked: Serving) -> int:
    """Serve until a signal; gives the exit status. Raises UsageError before it listens."""
    logging.basicConfig(format="%(name)s: %(message)s")
    logging.getLogger("hookline").setLevel(logging.DEBUG if asked.debug else logging.WARNING)
    for module in ("starlette", "uvicorn"):
        try:
            import_module(module)
        except ImportError as exc:
            raise UsageError(
                f"serve needs {module}, which is not installed: pip install 'hookline[cli,web]'"
            ) from exc
    try:
        asyncio.run(_serve(asked, locate(asked.agent)))
    except KeyboardInterrupt:
        return 130
    return 0


async def _serve(asked: Serving, found: Any) -> None:
    site = await _site(asked, found)
    shown = "localhost" if asked.host in ("0.0.0.0", "::") else asked.host
    print(f"hookline serves {asked.agent}", file=sys.stderr)
    print(f"  page:  http://{shown}:{asked.port}/#token={asked.token}", file=sys.stderr)
    print(f"  token: {asked.token}", file=sys.stderr, flush=True)
    await _listen(site, asked)


async def _site(asked: Serving, found: Any) -> Site:
    hosts = [*LOOPBACK, *asked.hosts]
    if asked.host not in ("0.0.0.0", "::", *hosts):
        hosts.append(f"[{asked.host}]" if ":" in asked.host else asked.host)
    return app(
        await settled(found, asked.agent),
        token=asked.token,
        hosts=hosts,
        origins=asked.origins,
        on_disconnect=asked.on_disconnect,
        caps=Caps(drain=asked.drain),
        page=True,
    )


async def _listen(site: Site, asked: Serving) -> None:
    """Serve until a signal; then let runs end for `drain` seconds, and abort what is left.

    uvicorn waits for connections before it tells the application, so the runs are ended here.
    """
    uvicorn: Any = import_module("uvicorn")
    config = uvicorn.Config(
        site,
        host=asked.host,
        port=asked.port,
        log_level="warning",
        access_log=False,
        server_header=False,
        timeout_graceful_shutdown=int(asked.drain) + 10,
    )
    server = uvicorn.Server(config)

    async def end_runs() -> None:
        while not server.should_exit:  # noqa: ASYNC110 - uvicorn has no event for that
            await asyncio.sleep(0.1)
        await site.shutdown()

    ending = asyncio.create_task(end_runs())
    try:
        await server.serve()
    finally:
        server.should_exit = True
        await ending
