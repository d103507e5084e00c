"""A server behind an address, in a process of its own. `python _mcp_http_program.py PORT`"""

import os
import sys

import uvicorn
from mcp.server import MCPServer

server = MCPServer("program")


@server.tool()
async def ok() -> str:
    """Say that all is well."""
    return "fine"


@server.tool()
async def dies() -> str:
    """End the process in the middle of the call."""
    os._exit(3)


class Telling(uvicorn.Server):
    """Says on stdout where it listens, once it does."""

    async def startup(self, sockets=None):
        await super().startup(sockets)
        print(self.servers[0].sockets[0].getsockname()[1], flush=True)


config = uvicorn.Config(
    server.streamable_http_app(), port=int(sys.argv[1]), log_level="critical", lifespan="on"
)
Telling(config).run()
