"""The paths of a probe through the web protocols and MCP, which `hookline check` takes, too.

    await assert_denied(agent, call("bash", command="rm -rf /"), paths=DOOR_PATHS)

The requests are made in this process, without a server and without a socket. A path whose extra is
not installed is left out.
"""

from typing import Final

from hookline.testing._guards.call_path import Walk
from hookline.testing.doors._mcp_paths import MCP_PATHS
from hookline.testing.doors._web_paths import WEB_PATHS

__all__ = ["DOOR_PATHS"]

DOOR_PATHS: Final[dict[str, Walk]] = {**WEB_PATHS, **MCP_PATHS}
"""The paths through a web application and an MCP server, by name."""
