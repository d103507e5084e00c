"""Paths of a probe through `hookline.mcp.serve`, with a client that can ask its user, or cannot."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from functools import partial
from importlib import import_module
from typing import Any, Final, TypeAlias

from hookline import Agent
from hookline.errors import UsageError
from hookline.mcp import serve
from hookline.testing._guards.call_path import CallPath, LeftOutError, Walk
from hookline.testing.doors._request import request, shut_down

Object: TypeAlias = dict[str, Any]
_ARGUMENTS: Final[Object] = {"message": "probe"}
_META: Final = "io.modelcontextprotocol/"


class MCPClient:
    """A client of a served agent in this process."""

    def __init__(self, served: Any, *, can_ask: bool) -> None:
        self._served = served
        self._capabilities: Object = {"elicitation": {"form": {}}} if can_ask else {}

    async def call(self, **more: Any) -> Object:
        """Call the tool `chat`; returns the result."""
        version = import_module("mcp_types.version").LATEST_MODERN_VERSION
        meta = {
            f"{_META}protocolVersion": version,
            f"{_META}clientInfo": {"name": "probe", "version": "1"},
            f"{_META}clientCapabilities": self._capabilities,
        }
        params = {"name": "chat", "arguments": _ARGUMENTS, "_meta": meta, **more}
        body = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}
        headers = {
            "accept": "application/json, text/event-stream",
            "mcp-protocol-version": version,
            "mcp-method": "tools/call",
            "mcp-name": "chat",
        }
        _, answer = await request(self._served, "/mcp", body, headers=headers)
        return dict(json.loads(answer)["result"])

    async def answer(self, result: Object, **reply: Any) -> None:
        """Send the user's reply to each question of this result, if there is any."""
        questions: Object = result.get("inputRequests", {})
        if questions:
            answers = dict.fromkeys(questions, reply)
            await self.call(requestState=result["requestState"], inputResponses=answers)


@asynccontextmanager
async def mcp_client(agent: Agent[Any], *, can_ask: bool = True) -> AsyncGenerator[MCPClient]:
    """A client of this agent, who can ask its user about calls, or cannot."""
    try:
        served = serve(agent, stateless=True)
    except UsageError as exc:
        raise LeftOutError(str(exc)) from exc
    try:
        yield MCPClient(served, can_ask=can_ask)
    finally:
        await shut_down(served)


async def _nobody_asked(path: CallPath) -> None:
    async with mcp_client(path.guarded(), can_ask=False) as client:
        result = await client.call()
    if result["isError"] and path.deps is not None and not path.has_refused:
        raise LeftOutError("the agent needs deps, which hookline.mcp does not pass")


async def _not_approved(path: CallPath, **reply: Any) -> None:
    async with mcp_client(path.guarded()) as client:
        result = await client.call()
        shown = path.secret is None or path.secret in str(result)
        path.has_asked = "inputRequests" in result and shown
        await client.answer(result, **reply)


async def _withdrawn(path: CallPath) -> None:
    path.is_approved, path.withdrawn = True, False
    async with mcp_client(path.guarded(later=True, hooks=[path.question()])) as client:
        result = await client.call()
        path.withdrawn = True
        await client.answer(result, action="accept", content={"approve": True})


MCP_PATHS: Final[dict[str, Walk]] = {
    "MCP": _nobody_asked,
    "declined by the user (MCP)": partial(_not_approved, action="decline"),
    "accepted without an approval (MCP)": partial(_not_approved, action="accept", content={}),
    "withdrawn while the call waits (MCP)": _withdrawn,
}
"""The paths through an MCP server."""
