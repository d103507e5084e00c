"""`hookline mcp`: serve an agent over stdio, and list the tools of servers."""

from __future__ import annotations

import asyncio
import json
import logging
import sys
from collections.abc import Sequence
from contextlib import redirect_stdout
from typing import Annotated, Any

from cyclopts import App, Parameter

from hookline import __version__
from hookline.cli import _help
from hookline.cli._options import Debug, Format, Target
from hookline.cli._target import Located, locate
from hookline.cli._terminal.clean_text import strict
from hookline.cli._terminal.screen import show_lines
from hookline.cli._terminal.styled_lines import Line
from hookline.errors import UsageError
from hookline.mcp import MCPServer, load, serve_stdio

app = App(name="mcp", help=_help.MCP, help_format="plaintext", version=__version__)


@app.default
def serve(agent: Target, /, *, debug: Debug = False) -> None:
    """Serve an agent on stdin and stdout until stdin is closed."""
    # stdout belongs to the protocol: output of the agent's module goes to stderr.
    logging.basicConfig(stream=sys.stderr, format="%(name)s: %(message)s")
    logging.getLogger("hookline").setLevel(logging.DEBUG if debug else logging.WARNING)
    with redirect_stdout(sys.stderr):
        located = locate(agent)
    asyncio.run(_serve(located))


async def _serve(located: Located) -> None:
    async with await located.agent() as agent:
        await serve_stdio(agent)


@app.command(name="list", help=_help.MCP_LIST)
def listing(
    source: Annotated[str, Parameter(help="A file of servers, a URL, or a command.")],
    /,
    *arguments: Annotated[
        str,
        Parameter(
            help="Arguments of the command, or names of servers in the file.",
            allow_leading_hyphen=True,
        ),
    ],
    output: Annotated[Format, Parameter(help="json: include the schemas of the tools.")] = "text",
    debug: Debug = False,
) -> int:
    """Show the tools of the servers that a file, a URL or a command names."""
    servers = _servers(source, arguments)
    rows = asyncio.run(_rows_of(servers))
    if output == "json":
        print(json.dumps(rows, ensure_ascii=False, indent=2))
    else:
        show_lines([line for row in rows for line in _lines(row)], piped=100)
    return 1 if any("error" in row for row in rows) else 0


def _lines(row: dict[str, Any]) -> list[Line]:
    title: Line = [("name", strict(row["label"]))]
    if "error" in row:
        return [title, [("bad", f"  {strict(row['error'])}")]]
    lines = [title]
    for tool in row["tools"]:
        about = tool["description"].partition("\n")[0]
        lines.append([("call", f"  {strict(tool['name'])}"), ("dim", f"  {strict(about)}")])
    for name, why in row["left_out"].items():
        lines.append([("bad", f"  {strict(name)} is left out: {strict(why)}")])
    return lines


def _servers(source: str, arguments: Sequence[str]) -> list[MCPServer]:
    if source.startswith(("http://", "https://")):
        if arguments:
            raise UsageError(f"a URL takes no arguments; leave out {[*arguments]}")
        return [MCPServer.http(source)]
    if source.endswith(".json"):
        servers = load(source)
        unknown = [name for name in arguments if name not in {s.label for s in servers}]
        if unknown:
            names = ", ".join(server.label for server in servers)
            raise UsageError(f"{source} has no server {unknown[0]!r}; name one of: {names}")
        return [server for server in servers if not arguments or server.label in arguments]
    return [MCPServer.stdio(source, *arguments)]


async def _rows_of(servers: list[MCPServer]) -> list[dict[str, Any]]:
    return list(await asyncio.gather(*map(_one, servers)))


async def _one(server: MCPServer) -> dict[str, Any]:
    try:
        await server.start()
    except Exception as exc:
        return {"label": server.label, "error": str(exc)}
    try:
        tools = [
            {"name": tool.name, "description": tool.description, "parameters": tool.parameters}
            for tool in server.tools_now()
        ]
        return {"label": server.label, "tools": tools, "left_out": server.left_out}
    finally:
        await server.aclose()
