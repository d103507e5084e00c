"""`hookline serve module:agent`: its options, and the application with its page, with uvicorn."""

from __future__ import annotations

import asyncio
import errno
import logging
import os
import signal
import socket
import sys
from dataclasses import asdict, dataclass
from importlib import import_module
from math import inf
from secrets import token_urlsafe
from typing import Annotated, Any, Final, Literal, NamedTuple

from cyclopts import Parameter

from hookline import MemoryStore
from hookline.cli._commands.reload import NEW_TOKEN, watch
from hookline.cli._commands.workers import hangups, inherited_socket, supervise
from hookline.cli._options import Debug, Target
from hookline.cli._target import Located, MakeDeps, deps_at, locate, whole
from hookline.cli._terminal.error_texts import OK, PORT_IN_USE
from hookline.errors import UsageError
from hookline.storage import resolve_store
from hookline.web import Caps, Page, Site, app
from hookline.web.relay import RedisRelay

LOOPBACK: Final = ("localhost", "127.0.0.1", "[::1]")
NOT_PASSED: Final = ("token", "relay", "workers", "reload")
"""The options that a worker gets from the environment, or does not need."""


class Token(NamedTuple):
    """The bearer token. Only a new token is printed: what is printed often ends up in a log."""

    text: str
    new: bool = False
    """Whether this command has generated the token."""


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class ServeOptions:
    """The options of `hookline serve`."""

    host: Annotated[str, Parameter(help="Address to listen on.", show_default=True)] = "127.0.0.1"
    port: Annotated[
        int, Parameter(converter=whole, help="Port to listen on.", show_default=True)
    ] = 8000
    token: Annotated[
        str | None,
        Parameter(help="Bearer token; default: HOOKLINE_TOKEN, or a new token, which is printed."),
    ] = None
    allow_host: Annotated[tuple[str, ...], Parameter(help="A host name of the server.")] = ()
    allow_origin: Annotated[
        tuple[str, ...], Parameter(help="The origin of another site that may use the server.")
    ] = ()
    on_disconnect: Annotated[
        Literal["detach", "cancel"],
        Parameter(
            help="When a page is closed, its answer continues (detach) or is aborted (cancel).",
            show_default=True,
        ),
    ] = "detach"
    drain: Annotated[
        float,
        Parameter(help="Seconds that answers may still run at shutdown.", show_default=True),
    ] = 10.0
    relay: Annotated[
        str | None,
        Parameter(
            help="The Redis through which workers share answers (HOOKLINE_RELAY).",
            env_var="HOOKLINE_RELAY",
            show_env_var=False,
        ),
    ] = None
    workers: Annotated[
        int, Parameter(help="Number of processes; more than one needs --relay.", show_default=True)
    ] = 1
    store: Annotated[
        str | None,
        Parameter(help="The store for conversations and timelines, such as sqlite:///chats.db."),
    ] = None
    deps: Annotated[
        str | None,
        Parameter(help="module:attribute of each chat's deps, or of a callable that returns deps."),
    ] = None
    starter: Annotated[
        tuple[str, ...], Parameter(help="A suggested question on the empty page.")
    ] = ()
    description: Annotated[str, Parameter(help="The agent's description on the empty page.")] = ""
    no_details: Annotated[bool, Parameter(help="Hide model requests and changes by hooks.")] = False
    reload: Annotated[
        bool, Parameter(help="Restart when a Python file below this folder changes.")
    ] = False
    debug: Debug = False


DEFAULTS: Final = ServeOptions()


def token_of(option: str | None) -> Token:
    """Return the token from the option or the environment, or a new one."""
    generated = os.environ.pop(NEW_TOKEN, None)
    supplied = option or os.environ.get("HOOKLINE_TOKEN")
    if supplied and supplied != generated:
        return Token(text=supplied)
    return Token(text=generated or token_urlsafe(24), new=True)


def serve(agent: Target, /, *, options: ServeOptions = DEFAULTS) -> int:
    """Serve an agent over HTTP, with a chat page and three protocols."""
    token = token_of(options.token)
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
        command, relay = _command(agent, options), options.relay
        return watch(command, token.text, new=token.new, relay=relay, drain=options.drain)
    located, make_deps = locate(agent), deps_at(options.deps)
    inherited = inherited_socket()
    listener = inherited or _listener(options)
    if listener is None:
        return PORT_IN_USE
    with listener:
        is_worker = inherited is not None
        serving = _serve(options, located, token, make_deps, listener, is_worker=is_worker)
        return asyncio.run(serving)


def _listener(options: ServeOptions) -> socket.socket | None:
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
    options: ServeOptions,
    located: Located,
    token: Token,
    make_deps: MakeDeps,
    listener: socket.socket,
    *,
    is_worker: bool,
) -> int:
    """Serve alone, or begin the workers; one of several workers prints nothing."""
    # Errors are reported before the address is printed.
    site = await _site(options, located, token.text, make_deps)
    if not is_worker:
        host = "localhost" if options.host in ("0.0.0.0", "::") else options.host
        port = listener.getsockname()[1]
        print(f"hookline serves {located.target}", file=sys.stderr)
        part = token.text if token.new else "…"
        print(f"  page:  http://{host}:{port}/#token={part}", file=sys.stderr)
        note = token.text if token.new else "the one that you have set, in place of …"
        print(f"  token: {note}", file=sys.stderr, flush=True)
    relay, workers = options.relay, options.workers
    if workers > 1 and relay is not None:
        command = _command(located.target, options)
        return await supervise(command, listener, workers=workers, token=token.text, relay=relay)
    await _listen(site, options, listener)
    return OK


def _command(agent: str, options: ServeOptions) -> list[str]:
    """Return the same command for a worker, without what the environment passes."""
    command = ["serve", agent]
    for name, value in asdict(options).items():
        if name in NOT_PASSED or value == getattr(DEFAULTS, name):
            continue
        option = f"--{name.replace('_', '-')}"
        if value is True:
            command.append(option)
        else:  # one word each, because a value may begin with a hyphen
            values: tuple[Any, ...] = value if isinstance(value, tuple) else (value,)  # pyright: ignore
            command += [f"{option}={item}" for item in values]
    return command


async def _site(options: ServeOptions, located: Located, token: str, make_deps: MakeDeps) -> Site:
    hosts = [*LOOPBACK, *options.allow_host]
    if options.host not in ("0.0.0.0", "::", *hosts):
        hosts.append(f"[{options.host}]" if ":" in options.host else options.host)
    agent = await located.agent()
    store = agent.store if options.store is None else resolve_store(options.store)
    if options.workers > 1 and isinstance(store, MemoryStore | None):
        raise UsageError(
            f"--workers {options.workers} needs a shared store, but {located.target} has no "
            "store: add one, such as --store sqlite:///chats.db or --store postgresql://…"
        )
    return app(
        agent,
        token=token,
        hosts=hosts,
        origins=options.allow_origin,
        on_disconnect=options.on_disconnect,
        deps=lambda scope, principal: make_deps(),
        caps=Caps(drain=options.drain),
        store=store,
        page=Page(
            description=options.description,
            starters=options.starter,
            details=not options.no_details,
        ),
        relay=None if options.relay is None else RedisRelay(options.relay),
    )


async def _listen(site: Site, options: ServeOptions, listener: socket.socket) -> None:
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
