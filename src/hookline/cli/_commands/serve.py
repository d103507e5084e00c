"""`hookline serve`: its options."""

from __future__ import annotations

import os
from typing import Annotated, Literal

from cyclopts import Parameter

from hookline.cli._commands.server import Serving, run, token_of
from hookline.cli._options import Debug, Target
from hookline.cli._target import whole


def serve(
    agent: Target,
    /,
    *,
    host: Annotated[str, Parameter(help="Address to listen on.", show_default=True)] = "127.0.0.1",
    port: Annotated[
        int, Parameter(converter=whole, help="Port to listen on.", show_default=True)
    ] = 8000,
    token: Annotated[
        str | None,
        Parameter(help="Bearer token; default: HOOKLINE_TOKEN, or a new token, which is printed."),
    ] = None,
    allow_host: Annotated[list[str] | None, Parameter(help="A host name of the server.")] = None,
    allow_origin: Annotated[
        list[str] | None, Parameter(help="The origin of another site that may use the server.")
    ] = None,
    on_disconnect: Annotated[
        Literal["detach", "cancel"],
        Parameter(
            help="When a page is closed, its answer continues (detach) or is aborted (cancel).",
            show_default=True,
        ),
    ] = "detach",
    drain: Annotated[
        float,
        Parameter(help="Seconds that answers may still run at shutdown.", show_default=True),
    ] = 10.0,
    relay: Annotated[
        str | None,
        Parameter(help="The Redis through which workers share answers (HOOKLINE_RELAY)."),
    ] = None,
    workers: Annotated[
        int, Parameter(help="Number of processes; more than one needs --relay.", show_default=True)
    ] = 1,
    store: Annotated[
        str | None,
        Parameter(help="The store for conversations and timelines, such as sqlite:///chats.db."),
    ] = None,
    deps: Annotated[
        str | None,
        Parameter(help="module:attribute of each chat's deps, or of a callable that returns deps."),
    ] = None,
    starter: Annotated[
        list[str] | None, Parameter(help="A suggested question on the empty page.")
    ] = None,
    description: Annotated[str, Parameter(help="The agent's description on the empty page.")] = "",
    no_details: Annotated[
        bool, Parameter(help="Hide model requests and changes by hooks.")
    ] = False,
    reload: Annotated[
        bool, Parameter(help="Restart when a Python file below this folder changes.")
    ] = False,
    debug: Debug = False,
) -> int:
    """Serve an agent over HTTP, with a chat page and three protocols."""
    return run(
        Serving(
            agent=agent,
            host=host,
            port=port,
            token=token_of(token),
            hosts=allow_host or [],
            origins=allow_origin or [],
            on_disconnect=on_disconnect,
            drain=drain,
            debug=debug,
            relay=relay or os.environ.get("HOOKLINE_RELAY"),
            workers=workers,
            store=store,
            deps=deps,
            starters=starter or [],
            description=description,
            details=not no_details,
            reload=reload,
        )
    )
