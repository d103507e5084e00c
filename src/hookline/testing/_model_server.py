"""`ModelServer`: a local server in the format of Chat Completions, for tests with a real SDK.

Each request gets the next reply, and its own connection. A `ScriptedModel` is simpler; use a server
where the SDK, the network or the handling of HTTP errors is part of the test.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from typing import Any, Self

import msgspec

from hookline.testing._script import ScriptError


class Failure(msgspec.Struct, frozen=True):
    """A reply with an error status, such as `Failure(429, headers={"retry-after": "1"})`."""

    status: int
    """The HTTP status."""
    message: str = "refused by the test"
    """The text of the error."""
    headers: Mapping[str, str] = {}
    """Additional headers of the response."""


class ModelServer:
    """Answers each request with the next reply: a text, or a `Failure`.

        async with ModelServer(Failure(503), "Four.") as server:
            model = OpenAIChatModel("any", base_url=server.url, api_key="any")

    A request after the last reply gets status 500, and ScriptError is raised at the end of the
    block.
    """

    def __init__(self, *replies: str | Failure) -> None:
        self.requests: list[Any] = []
        """The JSON bodies of the requests."""
        self.url = ""
        """The `base_url=` for `OpenAIChatModel`, while the server runs."""
        self._replies = replies

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.url = f"http://127.0.0.1:{self._server.sockets[0].getsockname()[1]}/v1"
        return self

    async def __aexit__(self, kind: type[BaseException] | None, *rest: object) -> None:
        self._server.close()
        await self._server.wait_closed()
        if kind is None and len(self.requests) > len(self._replies):
            raise ScriptError(
                f"{len(self.requests)} requests for {len(self._replies)} replies; add replies"
            )

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").lower()
        size = int(head.partition("content-length:")[2].split("\r\n")[0])
        self.requests.append(json.loads(await reader.readexactly(size)))
        number = len(self.requests)
        over = Failure(500, "the test has no more replies")
        reply = self._replies[number - 1] if number <= len(self._replies) else over
        writer.write(_response(reply))
        await writer.drain()
        writer.close()


def _response(reply: str | Failure) -> bytes:
    if isinstance(reply, Failure):
        body = json.dumps({"error": {"message": reply.message}}).encode()
        status, headers = reply.status, {"content-type": "application/json", **reply.headers}
    else:
        body, status, headers = _stream(reply), 200, {"content-type": "text/event-stream"}
    lines = [f"{name}: {value}" for name, value in headers.items()]
    head = [f"HTTP/1.1 {status} Reply", f"content-length: {len(body)}", "connection: close", *lines]
    return "\r\n".join([*head, "", ""]).encode() + body


def _stream(text: str) -> bytes:
    """Return the events of an answer."""
    events = b""
    choices: list[dict[str, Any]] = [
        {"delta": {"content": text}},
        {"delta": {}, "finish_reason": "stop"},
    ]
    for choice in choices:
        chunk = {"id": "chat", "object": "chat.completion.chunk", "created": 0, "model": "test"}
        event = json.dumps({**chunk, "choices": [{"index": 0, **choice}]})
        events += f"data: {event}\n\n".encode()
    return events + b"data: [DONE]\n\n"
