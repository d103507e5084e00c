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
from typing import Any, Final, Literal

import msgspec

from hookline import MemoryStore
from hookline.cli._commands.reload import NEW_TOKEN, watch
from hookline.cli._commands.workers import hangups, inherited_socket, supervise
from hookline.cli._target import MakeDeps, as_agent, deps_at, locate
from hookline.cli._terminal.error_texts import INTERRUPTED, OK, PORT_IN_USE
from hookline.errors import UsageError
from hookline.storage import resolve_store
from hookline.web import Caps, Page, Site, app
from hookline.web.relay import RedisRelay

LOOPBACK: Final = ("localhost", "127.0.0.1", "[::1]")
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


def token_of(option: str | None) -> Token:
    """Return the token from the option or the environment, or a new one."""
    generated = os.environ.pop(NEW_TOKEN, None)
    supplied = option or os.environ.get("HOOKLINE_TOKEN")
    if supplied and supplied != generated:
        return Token(text=supplied)
    return Token(text=generated or token_urlsafe(24), new=True)


def run(options: Serving) -> int:
    """Serve until a signal arrives; return the exit status. Raises UsageError before it listens."""
    logging.basicConfig(format="%(name)s: %(message)s")
    logging.getLogger("hookline").setLevel(logging.DEBUG if options.debug else logging.WARNING)
    for module in ("starlette", "uvicorn"):
        try:
            import_module(module)
        except ImportError as exc:
            raise UsageError(
                f"serve needs {module}, which is not installed: pip install 'hookline[cli,web]'"
            ) from exc
    if options.workers < 1 or (options.workers > 1 and options.relay is None):
        raise UsageError(
            f"--workers {options.workers} must be at least 1, and more than one worker needs "
            "--relay redis://…"
        )
    if not 0 <= options.drain < inf:
        raise UsageError(f"--drain {options.drain:g} must be a number of seconds, at least 0")
    if options.reload:
        if options.workers > 1:
            raise UsageError("--reload serves from one process: leave --workers out")
        try:
            return watch(
                _command(options),
                options.token.text,
                new=options.token.new,
                relay=options.relay,
                drain=options.drain,
            )
        except KeyboardInterrupt:
            return INTERRUPTED
    target = locate(options.agent)
    make_deps = deps_at(options.deps)
    listener = inherited_socket()
    try:
        if listener is not None:
            asyncio.run(_work(options, target, make_deps, listener))
            return OK
        listener = _listener(options)
        if listener is None:
            return PORT_IN_USE
        return asyncio.run(_serve(options, target, make_deps, listener))
    except KeyboardInterrupt:
        return INTERRUPTED
    finally:
        if listener is not None:
            listener.close()


def _listener(options: Serving) -> socket.socket | None:
    """Return a listening socket; None, with an error line, if the port is taken."""
    family = socket.AF_INET6 if ":" in options.host else socket.AF_INET
    listener = socket.socket(family)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((options.host, options.port))
        listener.listen(2048)
    except OverflowError:
        listener.close()
        raise UsageError(f"--port {options.port} must be from 0 to 65535") from None
    except OSError as exc:
        listener.close()
        if exc.errno != errno.EADDRINUSE:
            raise UsageError(
                f"cannot listen on --host {options.host} --port {options.port}: {exc.strerror}; "
                "choose another address"
            ) from None
        print(
            f"hookline: port {options.port} of {options.host} is taken; choose another with --port",
            file=sys.stderr,
        )
        return None
    return listener


async def _serve(
    options: Serving, target: Any, make_deps: MakeDeps, listener: socket.socket
) -> int:
    # Errors are reported before the address is printed.
    site = await _site(options, target, make_deps)
    host = "localhost" if options.host in ("0.0.0.0", "::") else options.host
    port = listener.getsockname()[1]
    print(f"hookline serves {options.agent}", file=sys.stderr)
    token = options.token
    part = token.text if token.new else "…"
    print(f"  page:  http://{host}:{port}/#token={part}", file=sys.stderr)
    note = token.text if token.new else "the one that you have set, in place of …"
    print(f"  token: {note}", file=sys.stderr, flush=True)
    relay = options.relay
    if options.workers > 1 and relay is not None:
        return await supervise(
            _command(options), listener, workers=options.workers, token=token.text, relay=relay
        )
    await _listen(site, options, listener)
    return OK


async def _work(
    options: Serving, target: Any, make_deps: MakeDeps, listener: socket.socket
) -> None:
    """Serve as one of several processes, without printing."""
    await _listen(await _site(options, target, make_deps), options, listener)


def _command(options: Serving) -> list[str]:
    """Return the same command for a worker, without what the environment passes."""
    named_options: list[tuple[str, object]] = [
        ("--host", options.host),
        ("--port", options.port),
        *(("--allow-host", value) for value in options.hosts),
        *(("--allow-origin", value) for value in options.origins),
        ("--on-disconnect", options.on_disconnect),
        ("--drain", options.drain),
        *(("--starter", value) for value in options.starters),
        ("--store", options.store),
        ("--deps", options.deps),
        ("--description", options.description or None),
    ]
    # One word each, because a value may begin with a hyphen.
    words = [f"{name}={value}" for name, value in named_options if value is not None]
    command = ["serve", options.agent, *words]
    command += [] if options.details else ["--no-details"]
    return [*command, "--debug"] if options.debug else command


async def _site(options: Serving, target: Any, make_deps: MakeDeps) -> Site:
    hosts = [*LOOPBACK, *options.hosts]
    if options.host not in ("0.0.0.0", "::", *hosts):
        hosts.append(f"[{options.host}]" if ":" in options.host else options.host)
    agent = await as_agent(target, options.agent)
    store = agent.store if options.store is None else resolve_store(options.store)
    if options.workers > 1 and isinstance(store, MemoryStore | None):
        raise UsageError(
            f"--workers {options.workers} needs a shared store, but {options.agent} has no "
            "store: add one, such as --store sqlite:///chats.db or --store postgresql://…"
        )
    return app(
        agent,
        token=options.token.text,
        hosts=hosts,
        origins=options.origins,
        on_disconnect=options.on_disconnect,
        deps=lambda scope, principal: make_deps(),
        caps=Caps(drain=options.drain),
        store=store,
        page=Page(
            description=options.description,
            starters=tuple(options.starters),
            details=options.details,
        ),
        relay=None if options.relay is None else RedisRelay(options.relay),
    )


async def _listen(site: Site, options: Serving, listener: socket.socket) -> None:
    """Serve until a signal; then let runs end for `drain` seconds, and abort the remaining runs.

    uvicorn waits for its connections before it notifies the application, so the runs end here.
    """
    uvicorn: Any = import_module("uvicorn")
    config = uvicorn.Config(
        site,
        log_level="warning",
        access_log=False,
        server_header=False,
        ws="none",  # whatever is installed for it: the application has no WebSocket
        timeout_graceful_shutdown=int(options.drain) + 10,
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
