"""The server: an agent, served as an MCP server."""
