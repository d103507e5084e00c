"""MCP: a server's tools in an agent, one with an approval; the server may be any program or URL.

Needs `pip install 'hookline[mcp]'`. `MCPServer.stdio("npx", "-y", "some-server")` and
`MCPServer.http("https://example.com/mcp")` replace the server in this file.
"""

import asyncio

import mcp.server

from hookline import Agent, Approve
from hookline.mcp import MCPServer, connect
from hookline.testing import ScriptedModel, call

notes = mcp.server.MCPServer("notes")
kept = ["buy bread"]


@notes.tool()
def list_notes() -> list[str]:
    """List the notes."""
    return kept


@notes.tool()
def add_note(text: str) -> str:
    """Add a note."""
    kept.append(text)
    return "kept"


async def main() -> None:
    model = ScriptedModel(call("list_notes"), call("add_note", text="buy milk"), "Milk is on it.")
    agent = Agent(model, approver=lambda request, run: print(*request.prompts) or Approve())
    async with connect(agent, MCPServer.local(notes, approve=["add_*"])):
        print((await agent.chat("Put milk on the list.")).text, kept)


asyncio.run(main())
