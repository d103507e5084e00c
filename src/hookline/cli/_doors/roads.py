"""All roads of a probe through the doors."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

from hookline.cli._doors.mcp import MCP_ROADS
from hookline.cli._doors.second_process import SecondProcess
from hookline.cli._doors.web import WEB_ROADS
from hookline.testing import Walk


@asynccontextmanager
async def door_roads(target: str, deps: str | None = None) -> AsyncGenerator[dict[str, Walk]]:
    """The roads to the tools of the agent at `module:attribute`, by name.

    A second process imports the agent, and its deps, from the same places.
    """
    second = SecondProcess(target, deps)
    try:
        yield {**WEB_ROADS, **MCP_ROADS, **second.roads}
    finally:
        await second.aclose()
