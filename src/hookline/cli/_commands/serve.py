"""`hookline serve module:agent`: serve the application with its page, with uvicorn."""

from __future__ import annotations

import asyncio
import errno
import logging
import os
import signal
import socket
import sys
from importlib import import_module
from math import inf
from secrets import token_urlsafe
from typing import Any, Literal

import msgspec

from hookline import MemoryStore
from hookline.cli._commands.reload import NEW_TOKEN, watch
from hookline.cli._commands.workers import hangups, inherited, supervise
from hookline.cli._target import MakeDeps, deps_at, locate, settled
from hookline.cli._terminal.error_texts import INTERRUPTED, OK, TAKEN
from hookline.errors import UsageError
from hookline.storage import resolve_store
from hookline.web import Caps, Page, Site, app
from hookline.web._http.access import LOOPBACK
from hookline.web.relay import RedisRelay

OnDisconnect = Literal["detach", "cancel"]


class Token(msgspec.Struct, frozen=True, kw_only=True):
    """The bearer token. Only a new token is printed: what is printed often ends up in a log."""

    text: str
    new: bool = False
    """Whether this command has generated the token."""


class Serving(msgspec.Struct, frozen=True, kw_only=True):
    """The options of `hookline serve`."""

    agent: str
    host: str
    port: int
    token: Token
    hosts: list[str]
    origins: list[str]
    on_disconnect: OnDisconnect
    drain: float
    debug: bool = False
    relay: str | None = None
    workers: int = 1
    store: str | None = None
    deps: str | None = None
    starters: list[str] = []
    description: str = ""
    details: bool = True
    reload: bool = False


def token_of(given: str | None) -> Token:
    """Return the token from the option or the environment, or a new one."""
    generated = os.environ.pop(NEW_TOKEN, None)
    supplied = given or os.environ.get("HOOKLINE_TOKEN")
    if supplied and supplied != generated:
        return Token(text=supplied)
    return Token(text=generated or token_urlsafe(24), new=True)


def serve(asked: Serving) -> int:
    """Serve until a signal arrives; return the exit status. Raises UsageError before it listens."""
    logging.basicConfig(format="%(name)s: %(message)s")
    logging.getLogger("hookline").setLevel(logging.DEBUG if asked.debug else logging.WARNING)
    for module in ("starlette", "uvicorn"):
        try:
            import_module(module)
        except ImportError as exc:
            raise UsageError(
                f"serve needs {module}, which is not installed: pip install 'hookline[cli,web]'"
            ) from exc
    if asked.workers < 1 or (asked.workers > 1 and asked.relay is None):
        raise UsageError(
            f"--workers {asked.workers} must be at least 1, and more than one worker needs --relay "
            "redis://…"
        )
    if not 0 <= asked.drain < inf:
        raise UsageError(f"--drain {asked.drain:g} must be a number of seconds, at least 0")
    if asked.reload:
        if asked.workers > 1:
            raise UsageError("--reload serves from one process: leave --workers out")
        try:
            return watch(
                _command(asked),
                asked.token.text,
                new=asked.token.new,
                relay=asked.relay,
                drain=asked.drain,
            )
        except KeyboardInterrupt:
            return INTERRUPTED
    found = locate(asked.agent)
    make_deps = deps_at(asked.deps)
    listener = inherited()
    try:
        if listener is not None:
            asyncio.run(_work(asked, found, make_deps, listener))
            return OK
        listener = _listener(asked)
        if listener is None:
            return TAKEN
        return asyncio.run(_serve(asked, found, make_deps, listener))
    except KeyboardInterrupt:
        return INTERRUPTED
    finally:
        if listener is not None:
            listener.close()


def _listener(asked: Serving) -> socket.socket | None:
    """Return a listening socket; None, with an error line, if the port is taken."""
    family = socket.AF_INET6 if ":" in asked.host else socket.AF_INET
    made = socket.socket(family)
    made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        made.bind((asked.host, asked.port))
        made.listen(2048)
    except OverflowError:
        made.close()
        raise UsageError(f"--port {asked.port} must be from 0 to 65535") from None
    except OSError as exc:
        made.close()
        if exc.errno != errno.EADDRINUSE:
            raise UsageError(
                f"cannot listen on --host {asked.host} --port {asked.port}: {exc.strerror}; "
                "choose another address"
            ) from None
        print(
            f"hookline: port {asked.port} of {asked.host} is taken; choose another with --port",
            file=sys.stderr,
        )
        return None
    return made


async def _serve(asked: Serving, found: Any, make_deps: MakeDeps, listener: socket.socket) -> int:
    site = await _site(asked, found, make_deps)  # errors are reported before the address is printed
    shown = "localhost" if asked.host in ("0.0.0.0", "::") else asked.host
    port = listener.getsockname()[1]
    print(f"hookline serves {asked.agent}", file=sys.stderr)
    token = asked.token
    part = token.text if token.new else "…"
    print(f"  page:  http://{shown}:{port}/#token={part}", file=sys.stderr)
    told = token.text if token.new else "the one that you have set, in place of …"
    print(f"  token: {told}", file=sys.stderr, flush=True)
    relay = asked.relay
    if asked.workers > 1 and relay is not None:
        return await supervise(
            _command(asked), listener, workers=asked.workers, token=token.text, relay=relay
        )
    await _listen(site, asked, listener)
    return OK


async def _work(asked: Serving, found: Any, make_deps: MakeDeps, listener: socket.socket) -> None:
    """Serve as one of several processes, without printing."""
    await _listen(await _site(asked, found, make_deps), asked, listener)


def _command(asked: Serving) -> list[str]:
    """Return the same command for a worker, without what the environment passes."""
    named: list[tuple[str, object]] = [
        ("--host", asked.host),
        ("--port", asked.port),
        *(("--allow-host", each) for each in asked.hosts),
        *(("--allow-origin", each) for each in asked.origins),
        ("--on-disconnect", asked.on_disconnect),
        ("--drain", asked.drain),
        *(("--starter", each) for each in asked.starters),
        ("--store", asked.store),
        ("--deps", asked.deps),
        ("--description", asked.description or None),
    ]
    # One word each, because a value may begin with a hyphen.
    given = [f"{name}={value}" for name, value in named if value is not None]
    command = ["serve", asked.agent, *given]
    command += [] if asked.details else ["--no-details"]
    return [*command, "--debug"] if asked.debug else command


async def _site(asked: Serving, found: Any, make_deps: MakeDeps) -> Site:
    hosts = [*LOOPBACK, *asked.hosts]
    if asked.host not in ("0.0.0.0", "::", *hosts):
        hosts.append(f"[{asked.host}]" if ":" in asked.host else asked.host)
    agent = await settled(found, asked.agent)
    store = agent.store if asked.store is None else resolve_store(asked.store)
    if asked.workers > 1 and isinstance(store, MemoryStore | None):
        raise UsageError(
            f"--workers {asked.workers} needs a shared store, but {asked.agent} has no store: add "
            "one, such as --store sqlite:///chats.db or --store postgresql://…"
        )
    return app(
        agent,
        token=asked.token.text,
        hosts=hosts,
        origins=asked.origins,
        on_disconnect=asked.on_disconnect,
        deps=lambda scope, principal: make_deps(),
        caps=Caps(drain=asked.drain),
        store=store,
        page=Page(
            description=asked.description,
            starters=tuple(asked.starters),
            details=asked.details,
        ),
        relay=None if asked.relay is None else RedisRelay(asked.relay),
    )


async def _listen(site: Site, asked: Serving, listener: socket.socket) -> None:
    """Serve until a signal; then let runs end for `drain` seconds, and abort the remaining runs.

    uvicorn waits for its connections before it notifies the application, so the runs end here.
    """
    uvicorn: Any = import_module("uvicorn")
    config = uvicorn.Config(
        site,
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

    def stop() -> None:
        server.handle_exit(signal.SIGTERM, None)

    for number in hangups():  # uvicorn handles the other signals
        asyncio.get_running_loop().add_signal_handler(number, stop)
    ending = asyncio.create_task(end_runs())
    try:
        await server.serve(sockets=[listener])
    finally:
        server.should_exit = True
        await ending
