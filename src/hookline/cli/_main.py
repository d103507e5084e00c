"""The program: its commands, their options and help, and its error handling.

The texts of `--help` are in `_help.py`. Cyclopts parses the command line. Its errors, and the
errors of a command, are reported in one line, and the exit status tells wrong usage from failures.
"""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Sequence
from typing import Annotated, Any, Literal

from cyclopts import App, CycloptsError, Parameter

from hookline import __version__
from hookline.cli import _help
from hookline.cli._commands import approvals as _approvals
from hookline.cli._commands import chat as _chat
from hookline.cli._commands import check as _check
from hookline.cli._commands import conversations as _conversations
from hookline.cli._commands import durable as _durable
from hookline.cli._commands import init as _init
from hookline.cli._commands import mcp as _mcp
from hookline.cli._commands import models as _models
from hookline.cli._commands import replay as _replay
from hookline.cli._commands import serve as _serve
from hookline.cli._commands import workspace as _workspace
from hookline.cli._commands.chat_setup import ChatOptions
from hookline.cli._commands.hooks import as_json, listing
from hookline.cli._commands.workspace import WorkspaceOptions
from hookline.cli._target import as_agent, locate, whole
from hookline.cli._terminal.clean_text import strict
from hookline.cli._terminal.error_texts import (
    FAILED,
    INTERRUPTED,
    USAGE,
    error_line,
    status_of,
    trace,
)
from hookline.cli._terminal.screen import Screen

app = App(
    name="hookline",
    help=_help.ALL,
    help_format="plaintext",
    version=__version__,
    default_parameter=Parameter(negative="", show_default=False),
)
app.command(_durable.app)
app.register_install_completion_command()  # pyright: ignore[reportUnknownMemberType]

Debug = Annotated[bool, Parameter(help="Show tracebacks of errors.")]
Target = Annotated[
    str, Parameter(help="module:attribute of an agent, or of a function that returns an agent.")
]


@app.command(help=_help.CHAT)
def chat(
    agent: Annotated[
        str | None,
        Parameter(help="module:attribute of an agent, or of a function that returns an agent."),
    ] = None,
    /,
    *,
    message: Annotated[
        str | None,
        Parameter(
            alias="-m", allow_leading_hyphen=True, help="Send this message, print the answer, exit."
        ),
    ] = None,
    model: Annotated[
        str | None,
        Parameter(help="The model; replaces the agent's model, and also works without an agent."),
    ] = None,
    conversation: Annotated[
        str | None, Parameter(help="The id of the conversation to continue or start.")
    ] = None,
    store: Annotated[
        str | None, Parameter(help="The store for conversations, such as sqlite:///chats.db.")
    ] = None,
    mcp: Annotated[
        list[str] | None,
        Parameter(help="A file, such as mcp.json, with MCP servers for the agent."),
    ] = None,
    deps: Annotated[
        str | None,
        Parameter(help="module:attribute of the deps, or of a callable that returns deps."),
    ] = None,
    resume: Annotated[
        bool, Parameter(help="Continue the most recently changed conversation of the store.")
    ] = False,
    hooks: Annotated[
        Literal["all", "decisions"] | None,
        Parameter(help="Show each hook as it fires; decisions: only hooks that decided something."),
    ] = None,
    output: Annotated[
        Literal["text", "json"],
        Parameter(help="json: every event of the chat on its own line."),
    ] = "text",
    workspace: Annotated[
        str | None,
        Parameter(help="A folder for the agent to work in, with tools and a sandbox for commands."),
    ] = None,
    mode: Annotated[
        Literal["read", "ask", "edits"],
        Parameter(help="With --workspace: only read; ask before changes; or edit without asking."),
    ] = "ask",
    allow: Annotated[
        list[str] | None,
        Parameter(help="With --workspace: a rule for what may run, such as 'bash(npm test)'."),
    ] = None,
    no_sandbox: Annotated[
        bool, Parameter(help="With --workspace: run commands with all your rights, after asking.")
    ] = False,
    debug: Debug = False,
) -> int:
    """Talk to an agent in this terminal."""
    place = None
    if workspace is not None:
        place = WorkspaceOptions(
            path=workspace, mode=mode, allow=tuple(allow or ()), sandbox=not no_sandbox
        )
    return _chat.chat(
        ChatOptions(
            agent=agent,
            message=message,
            model=model,
            conversation=conversation,
            resume=resume,
            store=store,
            mcp=tuple(mcp or ()),
            deps=deps,
            hooks=hooks,
            output=output,
            debug=debug,
            workspace=place,
        )
    )


@app.command(help=_help.HOOKS)
def hooks(
    agent: Target,
    /,
    *,
    all: Annotated[bool, Parameter(help="Include points without hooks.")] = False,
    output: Annotated[
        Literal["text", "json"], Parameter(help="json: a list of points, each with its hooks.")
    ] = "text",
    debug: Debug = False,
) -> int:
    """List an agent's hooks by point, in the order in which they fire."""
    hook_infos = asyncio.run(as_agent(locate(agent), agent)).hooks()
    screen = Screen()
    if output == "json":
        print(as_json(hook_infos, every=all))
        return 0
    for line in listing(hook_infos, screen.width if screen.live else 100, every=all):
        screen.line(line)
    return 0


@app.command(help=_help.CHECK)
def check(
    agent: Target,
    /,
    *,
    probe: Annotated[str, Parameter(help="A file with one call a line, as JSON.")],
    deps: Annotated[
        str | None,
        Parameter(help="module:attribute of the deps, or of a callable that returns deps."),
    ] = None,
    debug: Debug = False,
) -> int:
    """Send calls over the paths to their tools, and report those that a guard lets pass."""
    return _check.check(agent, probe, Screen(), deps=deps)


@app.command(help=_help.REPLAY)
def replay(
    records: Annotated[
        str,
        Parameter(help="A store's URL; or a store, a cassette or an audit file."),
    ],
    agent: Target,
    /,
    *,
    durable: Annotated[
        bool, Parameter(help="The records are the logs of an engine of durable chats.")
    ] = False,
    queue: Annotated[str | None, Parameter(help="The queue of the durable chats.")] = None,
    hook: Annotated[
        list[str] | None, Parameter(help="module:attribute of a hook definition to add.")
    ] = None,
    without: Annotated[
        list[str] | None, Parameter(help="The id or name of a hook to leave out.")
    ] = None,
    since: Annotated[str | None, Parameter(help="Only what is newer: 7d, 12h, or a date.")] = None,
    deps: Annotated[
        str | None,
        Parameter(help="module:attribute of the deps, or of a callable that returns deps."),
    ] = None,
    html: Annotated[str | None, Parameter(help="Write the report to this file, too.")] = None,
    fail_on: Annotated[
        list[str] | None, Parameter(help="Exit with 1 for a verdict such as denied or allowed.")
    ] = None,
    limit: Annotated[
        int, Parameter(converter=whole, help="How many verdicts the table lists.")
    ] = 50,
    output: Annotated[Literal["text", "json"], Parameter(help="json: the whole report.")] = "text",
    debug: Debug = False,
) -> int:
    """Show what a change of an agent's hooks would have done to recorded chats."""
    options = _replay.ReplayOptions(
        records=records,
        hooks=tuple(hook or ()),
        without=tuple(without or ()),
        since=since,
        deps=deps,
        html=html,
        fail_on=tuple(fail_on or ()),
        as_json=output == "json",
        limit=limit,
        is_durable=durable,
        queue=queue,
    )
    return asyncio.run(_replay.run(as_agent(locate(agent), agent), options, Screen()))


@app.command(help=_help.CONVERSATIONS)
def conversations(
    store: Annotated[str, Parameter(help="A store, such as sqlite:///chats.db.")],
    /,
    *,
    output: Annotated[
        Literal["text", "json"], Parameter(help="json: a list of conversations.")
    ] = "text",
    debug: Debug = False,
) -> int:
    """List the conversations of a store, the most recently changed first."""
    rows = asyncio.run(_conversations.conversations_in(store))
    screen = Screen()
    if output == "json":
        print(_conversations.as_json(rows))
        return 0
    for line in _conversations.listing(rows, screen.width if screen.live else 120):
        screen.line(line)
    return 0


@app.command(help=_help.INIT)
def init(
    folder: Annotated[str, Parameter(help="The folder to write to; created if missing.")] = ".",
    /,
    *,
    debug: Debug = False,
) -> int:
    """Write an agent with a tool, a hook and a test."""
    for line in _init.init(folder):
        print(line)
    return 0


mcp = App(name="mcp", help=_help.MCP, help_format="plaintext")
app.command(mcp)


@mcp.default
def mcp_serve(agent: Target, /, *, debug: Debug = False) -> int:
    """Serve an agent as an MCP server on stdin and stdout."""
    return _mcp.serve(agent, debug=debug)


@mcp.command(name="list", help=_help.MCP_LIST)
def mcp_list(
    source: Annotated[str, Parameter(help="A file of servers, a URL, or a command.")],
    /,
    *arguments: Annotated[
        str,
        Parameter(
            help="Arguments of the command, or names of servers in the file.",
            allow_leading_hyphen=True,
        ),
    ],
    output: Annotated[
        Literal["text", "json"], Parameter(help="json: include the schemas of the tools.")
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


_workspace_app = App(name="workspace", help=_help.WORKSPACE, help_format="plaintext")
app.command(_workspace_app)


@_workspace_app.command(name="check", help=_help.WORKSPACE)
def workspace_check(
    path: Annotated[str, Parameter(help="The folder; by default, this one.")] = ".", /
) -> int:
    """Say what the tools of a workspace can do on this machine."""
    lines, works = asyncio.run(_workspace.check(path))
    screen = Screen()
    for text, style in lines:
        screen.line([(style, strict(text))])
    return 0 if works else FAILED


@app.command(help=_help.SERVE)
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


app.command(_approvals.approvals, help=_help.APPROVALS)
app.command(_approvals.review, help=_help.REVIEW)


# ── running it ──────────────────────────────────────────────────────────────────────────────


def run(arguments: Sequence[str]) -> int:
    """Run the command that the arguments name; returns the exit status."""
    try:
        status: Any = app(
            _chat.with_values(arguments),
            exit_on_error=False,
            print_error=False,
            result_action="return_value",
        )
    except CycloptsError as exc:
        return _misused(arguments, exc)
    except KeyboardInterrupt:
        return INTERRUPTED
    except BrokenPipeError:  # `hookline … | head`: the reader has gone
        sys.stdout = None
        return FAILED
    except SystemExit as exc:
        return exc.code if isinstance(exc.code, int) else FAILED
    except Exception as exc:
        Screen().fault(error_line(exc))
        if "--debug" in arguments:
            print(trace(exc), file=sys.stderr)
        return status_of(exc)
    return status if isinstance(status, int) else 0


def _misused(arguments: Sequence[str], exc: CycloptsError) -> int:
    commands = {name for name in app if not name.startswith("-")}
    command = next((name for name in arguments[:1] if name in commands), "")
    text = " ".join(str(exc).split())
    Screen().fault(strict(f"hookline: {text} See: hookline {command} --help".replace("  ", " ")))
    return USAGE
