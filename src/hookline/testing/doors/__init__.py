"""The roads of a probe through the web protocols and MCP, which `hookline check` takes, too.

    await assert_denied(agent, call("bash", command="rm -rf /"), roads=DOOR_ROADS)

The requests are made in this process, without a server and without a socket. A road whose extra is
not installed is left out.
"""

from typing import Final

from hookline.testing._guard_road import Walk
from hookline.testing.doors._mcp import MCP_ROADS
from hookline.testing.doors._web import WEB_ROADS

__all__ = ["DOOR_ROADS"]

DOOR_ROADS: Final[dict[str, Walk]] = {**WEB_ROADS, **MCP_ROADS}
"""The roads through a web application and an MCP server, by name."""
