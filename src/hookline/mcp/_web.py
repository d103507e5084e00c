"""A server behind an address: an HTTP client with bounds."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

from hookline.mcp._errors import sdk
from hookline.mcp._process import MAX_LINE


@asynccontextmanager
async def transport(url: str, headers: Mapping[str, str], auth: Any) -> AsyncGenerator[Any]:
    """The streams to a server that speaks streamable HTTP."""
    httpx2: Any = sdk("httpx2")
    streamable: Any = sdk("mcp.client.streamable_http")

    class Bounded(httpx2.AsyncByteStream):  # type: ignore[misc]
        """The bytes of an answer, as far as it may be long."""

        def __init__(self, stream: Any) -> None:
            self._stream = stream

        async def __aiter__(self) -> AsyncIterator[bytes]:
            size = 0
            async for chunk in self._stream:
                size += len(chunk)
                if size > MAX_LINE:
                    raise httpx2.ReadError(f"the server sent more than {MAX_LINE} bytes")
                yield chunk

        async def aclose(self) -> None:
            await self._stream.aclose()

    async def bound(response: Any) -> None:
        # Of a stream of events the SDK bounds each one.
        if not response.headers.get("content-type", "").startswith("text/event-stream"):
            response.stream = Bounded(response.stream)

    client = httpx2.AsyncClient(
        headers=dict(headers),
        auth=auth,
        timeout=httpx2.Timeout(30.0, read=300.0),
        event_hooks={"response": [bound]},
    )
    async with client:
        streams = streamable.streamable_http_client(url, http_client=client)
        async with streams as opened:
            yield opened
