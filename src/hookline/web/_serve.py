"""`hookline serve module:agent`: the application with its page on this machine, by uvicorn."""

from __future__ import annotations

import argparse
import asyncio
import logging
import os
import sys
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from secrets import token_urlsafe
from typing import Any

from hookline import Agent
from hookline.errors import HooklineError, UsageError
from hookline.web._app import app
from hookline.web._extra import needs
from hookline.web._guard import LOOPBACK
from hookline.web._live import Caps
from hookline.web._site import Site

EXAMPLE = "hookline serve app:agent    # the variable `agent` of app.py in this folder"


def find_agent(target: str) -> Agent[Any]:
    """The agent at `module:attribute`, or what a function there returns; raises UsageError."""
    module_name, _, path = target.partition(":")
    if not module_name or not path:
        raise UsageError(f"{target!r} must be module:attribute, as in\n  {EXAMPLE}")
    folder = str(Path.cwd())
    if folder not in sys.path:
        sys.path.insert(0, folder)
    try:
        found: Any = import_module(module_name)
    except ModuleNotFoundError as exc:
        if exc.name is None or not f"{module_name}.".startswith(f"{exc.name}."):
            raise
        raise UsageError(f"there is no module {module_name!r} here ({folder})") from None
    for name in path.split("."):
        try:
            found = getattr(found, name)
        except AttributeError:
            raise UsageError(f"module {module_name!r} has no {path!r}") from None
    if not isinstance(found, Agent) and callable(found):
        found = found()
    if not isinstance(found, Agent):
        raise UsageError(f"{target} is a {type(found).__name__}, and must be an Agent")
    return found  # pyright: ignore[reportUnknownVariableType]


async def serve(site: Site, host: str, port: int, drain: float) -> None:
    """Serve until a signal; then let runs end for `drain` seconds, and abort what is left.

    uvicorn waits for connections before it tells the application, so the runs are ended here.
    """
    uvicorn = needs("uvicorn")
    config = uvicorn.Config(
        site,
        host=host,
        port=port,
        log_level="warning",
        access_log=False,
        server_header=False,
        timeout_graceful_shutdown=int(drain) + 10,
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


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="hookline", description="Agents with hooks.")
    commands = parser.add_subparsers(dest="command", required=True)
    serving = commands.add_parser(
        "serve",
        help="serve an agent with a chat page and the three protocols",
        description="Serve an agent with a chat page and the three protocols.",
        epilog=EXAMPLE,
    )
    serving.add_argument("agent", help="module:attribute")
    serving.add_argument("--host", default="127.0.0.1", help="address to listen at (%(default)s)")
    serving.add_argument("--port", type=int, default=8000, help="%(default)s")
    serving.add_argument(
        "--token", help="bearer token (HOOKLINE_TOKEN; by default one is made and printed)"
    )
    serving.add_argument(
        "--allow-host", action="append", default=[], metavar="NAME", help="a name it is reached by"
    )
    serving.add_argument(
        "--allow-origin", action="append", default=[], metavar="URL", help="another site's origin"
    )
    serving.add_argument(
        "--on-disconnect",
        choices=("detach", "cancel"),
        default="detach",
        help="whether an answer goes on when its page is closed (%(default)s)",
    )
    serving.add_argument(
        "--drain",
        type=float,
        default=10.0,
        metavar="SECONDS",
        help="how long answers may still take at the end (%(default)s)",
    )
    serving.add_argument("--debug", action="store_true", help="log tracebacks of what fails")
    return parser


def main(arguments: Sequence[str] | None = None) -> int:
    """The command `hookline`; gives the exit status."""
    asked = _parser().parse_args(arguments)
    logging.basicConfig(format="%(name)s: %(message)s")
    logging.getLogger("hookline").setLevel(logging.DEBUG if asked.debug else logging.WARNING)
    token = asked.token or os.environ.get("HOOKLINE_TOKEN") or token_urlsafe(24)
    try:
        needs("uvicorn")
        hosts = [*LOOPBACK, *asked.allow_host]
        if asked.host not in ("0.0.0.0", "::", *hosts):
            hosts.append(f"[{asked.host}]" if ":" in asked.host else asked.host)
        site = app(
            find_agent(asked.agent),
            token=token,
            hosts=hosts,
            origins=asked.allow_origin,
            on_disconnect=asked.on_disconnect,
            caps=Caps(drain=asked.drain),
            page=True,
        )
    except HooklineError as error:
        print(f"hookline: {error}", file=sys.stderr)
        return 2
    shown = "localhost" if asked.host in ("0.0.0.0", "::") else asked.host
    print(f"hookline serves {asked.agent}", file=sys.stderr)
    print(f"  page:  http://{shown}:{asked.port}/#token={token}", file=sys.stderr)
    print(f"  token: {token}", file=sys.stderr, flush=True)
    try:
        asyncio.run(serve(site, asked.host, asked.port, asked.drain))
    except KeyboardInterrupt:
        return 130
    return 0
