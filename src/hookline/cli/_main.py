"""The program: its commands, their options and help, and what becomes of an error.

What `--help` says stands in `_help.py`. Cyclopts reads the command line; what is wrong there, and
what a command raises, is told in a line, and the exit status says whose fault it was.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Sequence
from typing import Annotated, Any, Literal

from cyclopts import App, CycloptsError, Parameter

from hookline import __version__
from hookline.cli import _chat, _help, _mcp, _models, _serve
from hookline.cli._clean import strict
from hookline.cli._faults import FAILED, INTERRUPTED, USAGE, status_of, told, trace
from hookline.cli._hooks import as_json, listing
from hookline.cli._screen import Screen
from hookline.cli._setup import Asked
from hookline.cli._target import locate, settled

app = App(
    name="hookline",
    help=_help.ALL,
    help_format="plaintext",
    version=__version__,
    default_parameter=Parameter(negative="", show_default=False),
)
app.register_install_completion_command()  # pyright: ignore[reportUnknownMemberType]

Debug = Annotated[bool, Parameter(help="Show tracebacks of what fails.")]
Target = Annotated[
    str, Parameter(help="module:attribute of an agent, or of a function that returns one.")
]


@app.command(help=_help.CHAT)
def chat(
    agent: Annotated[
        str | None,
        Parameter(help="module:attribute of an agent, or of a function that returns one."),
    ] = None,
    /,
    *,
    message: Annotated[
        str | None,
        Parameter(
            alias="-m", allow_leading_hyphen=True, help="Say this, print the answer, and end."
        ),
    ] = None,
    model: Annotated[
        str | None,
        Parameter(help="Ask this model in place of the agent's, or without an agent."),
    ] = None,
    conversation: Annotated[
        str | None, Parameter(help="The id of a kept conversation, which goes on or begins.")
    ] = None,
    store: Annotated[
        str | None, Parameter(help="Where conversations are kept, such as sqlite:///chats.db.")
    ] = None,
    mcp: Annotated[
        list[str] | None,
        Parameter(help="A file of MCP servers, whose tools the agent gets, such as mcp.json."),
    ] = None,
    hooks: Annotated[bool, Parameter(help="Show each hook as it fires.")] = False,
    output: Annotated[
        Literal["text", "json"],
        Parameter(help="json: every event of the chat as a line."),
    ] = "text",
    debug: Debug = False,
) -> int:
    """Talk to an agent in this terminal."""
    return _chat.chat(
        Asked(
            agent=agent,
            message=message,
            model=model,
            conversation=conversation,
            store=store,
            mcp=tuple(mcp or ()),
            hooks=hooks,
            output=output,
            debug=debug,
        )
    )


@app.command(help=_help.HOOKS)
def hooks(
    agent: Target,
    /,
    *,
    all: Annotated[bool, Parameter(help="Also the points at which there is no hook.")] = False,
    output: Annotated[
        Literal["text", "json"], Parameter(help="json: a list of points, each with its hooks.")
    ] = "text",
    debug: Debug = False,
) -> int:
    """List an agent's hooks by point, in the order in which they fire."""
    found = asyncio.run(settled(locate(agent), agent)).hooks()
    screen = Screen()
    if output == "json":
        print(as_json(found, every=all))
        return 0
    for line in listing(found, screen.width if screen.live else 100, every=all):
        screen.line(line)
    return 0


mcp = App(name="mcp", help=_help.MCP, help_format="plaintext")
app.command(mcp)


@mcp.default
def mcp_serve(agent: Target, /, *, debug: Debug = False) -> int:
    """Serve an agent as an MCP server on stdin and stdout."""
    return _mcp.serve(agent, debug=debug)


@mcp.command(name="list", help=_help.MCP_LIST)
def mcp_list(
    source: Annotated[str, Parameter(help="A file of servers, an address, or a command.")],
    /,
    *arguments: Annotated[
        str,
        Parameter(help="Of the command; or which servers of the file.", allow_leading_hyphen=True),
    ],
    output: Annotated[
        Literal["text", "json"], Parameter(help="json: with the schemas of the tools.")
    ] = "text",
    debug: Debug = False,
) -> int:
    """List the tools of MCP servers."""
    return _mcp.listing(source, list(arguments), output=output)


@app.command(help=_help.MODELS)
def models(
    *,
    output: Annotated[
        Literal["text", "json"], Parameter(help="json: a list of providers.")
    ] = "text",
) -> int:
    """List the providers that a model's name may begin with."""
    screen = Screen()
    if output == "json":
        print(_models.as_json())
        return 0
    for line in _models.listing(screen.width if screen.live else 120):
        screen.line(line)
    return 0


@app.command(help=_help.SERVE)
def serve(
    agent: Target,
    /,
    *,
    host: Annotated[str, Parameter(help="Address to listen at.", show_default=True)] = "127.0.0.1",
    port: Annotated[int, Parameter(help="Port to listen at.", show_default=True)] = 8000,
    token: Annotated[
        str | None,
        Parameter(help="Bearer token (HOOKLINE_TOKEN; by default one is made and printed)."),
    ] = None,
    allow_host: Annotated[
        list[str] | None, Parameter(help="A name under which the server is reached.")
    ] = None,
    allow_origin: Annotated[
        list[str] | None, Parameter(help="The origin of another site that may use it.")
    ] = None,
    on_disconnect: Annotated[
        Literal["detach", "cancel"],
        Parameter(
            help="Whether an answer goes on when its page is closed (detach) or ends (cancel).",
            show_default=True,
        ),
    ] = "detach",
    drain: Annotated[
        float,
        Parameter(help="Seconds that answers may still take at the end.", show_default=True),
    ] = 10.0,
    debug: Debug = False,
) -> int:
    """Serve an agent with a chat page and the three protocols."""
    return _serve.serve(
        _serve.Serving(
            agent=agent,
            host=host,
            port=port,
            token=_serve.token_of(token),
            hosts=allow_host or [],
            origins=allow_origin or [],
            on_disconnect=on_disconnect,
            drain=drain,
            debug=debug,
        )
    )


# ── running it ──────────────────────────────────────────────────────────────────────────────


def run(arguments: Sequence[str]) -> int:
    """Run the command that these arguments name; gives the exit status."""
    try:
        status: Any = app(
            list(arguments), exit_on_error=False, print_error=False, result_action="return_value"
        )
    except CycloptsError as exc:
        return _misused(arguments, exc)
    except KeyboardInterrupt:
        return INTERRUPTED
    except BrokenPipeError:  # `hookline … | head`: nobody reads any more
        sys.stdout = None
        return FAILED
    except SystemExit as exc:
        return exc.code if isinstance(exc.code, int) else FAILED
    except Exception as exc:
        Screen().fault(told(exc))
        if "--debug" in arguments:
            print(trace(exc), file=sys.stderr)
        return status_of(exc)
    return status if isinstance(status, int) else 0


def _misused(arguments: Sequence[str], exc: CycloptsError) -> int:
    commands = ("chat", "hooks", "mcp", "models", "serve")
    command = next((each for each in arguments[:1] if each in commands), "")
    text = " ".join(str(exc).split())
    Screen().fault(strict(f"hookline: {text} See: hookline {command} --help".replace("  ", " ")))
    return USAGE
