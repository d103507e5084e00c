"""MCP: use the tools of a server, or serve an agent as an MCP server. Needs `hookline[mcp]`.

    files = MCPServer.stdio("npx", "-y", "@modelcontextprotocol/server-filesystem", ".")
    async with connect(agent, files):
        await agent.chat("What is in this folder?")

A server is a scope: its tools are added and removed together, and hooks see them like any other
tools. The client of the official SDK runs in a task of its own, so an aborted chat cannot break the
connection. All texts from a server (names, descriptions, schemas, hints) are untrusted: they are
shortened and cleaned, and never relax a policy.
"""

from hookline.mcp._client.config import load
from hookline.mcp._client.server import MCPServer, connect
from hookline.mcp._client.transport.oauth import TokenStore, oauth
from hookline.mcp._errors import MCPServerError
from hookline.mcp._server.application import AgentApp
from hookline.mcp._server.serve import serve, serve_stdio

__all__ = [
    "AgentApp",
    "MCPServer",
    "MCPServerError",
    "TokenStore",
    "connect",
    "load",
    "oauth",
    "serve",
    "serve_stdio",
]
