"""MCP: a server's tools in one line, and an agent as a server. Needs `hookline[mcp]`.

    files = MCPServer.stdio("npx", "-y", "@modelcontextprotocol/server-filesystem", ".")
    async with connect(agent, files):
        await agent.chat("What is in this folder?")

A server is a scope: its tools come and go as one, and hooks see them like any other. A task of its
own holds the client of the official SDK, so that no chat can take the connection with it. What a
server says – names, descriptions, schemas, hints – is a stranger's text: it is bounded and cleaned,
and never relaxes a policy.
"""

from hookline.mcp._config import load
from hookline.mcp._errors import MCPServerError
from hookline.mcp._serve import serve, serve_stdio
from hookline.mcp._server import MCPServer, connect

__all__ = ["MCPServer", "MCPServerError", "connect", "load", "serve", "serve_stdio"]
