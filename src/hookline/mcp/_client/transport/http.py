"""A server at a URL: an HTTP client with size limits.

The size of a message is limited, after decoding. A refusal is reported with its status, which the
SDK omits. An exception of a login would end the SDK's connection: it goes to the call or connection
that needs the login, and the request counts as refused.
"""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing, asynccontextmanager
from logging import getLogger
from typing import Any, Final
from urllib.parse import urlsplit

from hookline.errors import UsageError
from hookline.mcp._client.transport.process import MAX_MESSAGE
from hookline.mcp._errors import RAISED, sdk
from hookline.providers._adapter.http_limits import bounded, plain, put_body

logger = getLogger("hookline.mcp")

UNREADABLE: Final = "SSE stream failed"
"""The SDK's words for an event that cannot be read; only the request of that event has failed."""
SESSION_OVER: Final = "Session terminated"
"""The message of a protocol error whose session is over; the SDK uses the same words."""


@asynccontextmanager
async def transport(url: str, headers: Mapping[str, str], auth: Any) -> AsyncGenerator[Any]:
    """Connect to a server over streamable HTTP, and return the streams."""
    httpx2: Any = sdk("httpx2")
    streamable: Any = sdk("mcp.client.streamable_http")

    async def on_response(response: Any) -> None:
        error = _error_of(response, url)
        if error is not None:
            await response.stream.aclose()
            put_body(response, error)
            return
        # The SDK converts the exception to an error of the single request. In a stream of events
        # it would end the connection, so there the SDK's own limit for an event comes first.
        events = response.headers.get("content-type", "").startswith("text/event-stream")
        bounded(response, message=2 * MAX_MESSAGE if events else MAX_MESSAGE)

    class Client(httpx2.AsyncClient):  # type: ignore[misc]
        """A client whose request is refused, and not sent, if its login raises an exception."""

        async def send(self, request: Any, **options: Any) -> Any:
            raised = RAISED.get()
            if not raised:  # one call does not ask for a login twice
                try:
                    return await httpx2.AsyncClient.send(self, request, **options)
                except _LoginRaised as exc:
                    logger.warning("a login has raised %s", type(exc.__cause__).__name__)
                    if raised is not None and isinstance(exc.__cause__, Exception):
                        raised.append(exc.__cause__)
            words = "the login has raised an exception"
            return httpx2.Response(401, json=_error(-32000 - 401, words), request=request)

    client = Client(
        headers=dict(headers),
        auth=_guarded(auth),
        timeout=httpx2.Timeout(30.0, read=300.0),
        event_hooks={"request": [plain], "response": [on_response]},
    )
    async with client:
        streams = streamable.streamable_http_client(
            url, http_client=client, max_sse_event_size=MAX_MESSAGE
        )
        async with streams as pair:
            yield pair


class _LoginRaised(Exception):
    """The `auth=` of a request has raised its cause."""


def _guarded(auth: Any) -> Any:
    """Tell the exceptions of an `httpx2.Auth` from those of the connection."""
    httpx2: Any = sdk("httpx2")
    if not isinstance(auth, httpx2.Auth):
        return auth

    class Guarded(httpx2.Auth):  # type: ignore[misc]
        async def async_auth_flow(self, request: Any) -> AsyncGenerator[Any, Any]:
            async with aclosing(auth.async_auth_flow(request)) as flow:
                try:
                    message = await anext(flow)
                    while True:
                        message = await flow.asend((yield message))
                except StopAsyncIteration:
                    return
                except Exception as exc:
                    raise _LoginRaised from exc

    return Guarded()


def _error_of(response: Any, url: str) -> bytes | None:
    """Return the protocol error for an error status, or None to leave the response as it is."""
    status, kind = response.status_code, response.headers.get("content-type", "")
    request = response.request
    if status < 400 or str(request.url) != url:
        return None
    if status == 404:  # the session is over, in the words of this server; the SDK handles the rest
        of_session = request.method == "POST" and "mcp-session-id" in request.headers
        return _encoded(-32600, SESSION_OVER) if of_session else None
    if status not in (401, 403) and kind.startswith("application/json"):
        return None
    words = f"the server answered with HTTP {status}"
    if status in (401, 403):
        words += ": the login is missing, has expired, or does not permit this"
    return _encoded(-32000 - status, words)


def _encoded(code: int, words: str) -> bytes:
    """Encode a protocol error, which the SDK reports for the single request."""
    return json.dumps(_error(code, words)).encode()


def _error(code: int, words: str) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": None, "error": {"code": code, "message": words}}


def about(url: str) -> dict[str, str | int]:
    """Return the server's address as telemetry attributes, without the path: it may hold a key."""
    parts = urlsplit(url)
    try:
        port = parts.port or (443 if parts.scheme == "https" else 80)
    except ValueError as exc:
        raise UsageError(
            f"url={url[:200]!r} of an MCP server has a port that is not a number; write https://host:port/"
        ) from exc
    return {
        "network.transport": "tcp",
        "network.protocol.name": "http",
        "server.address": parts.hostname or "",
        "server.port": port,
    }
