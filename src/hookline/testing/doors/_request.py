"""Requests to an ASGI application in this process, without a server and without a socket."""

from __future__ import annotations

import asyncio
from typing import Any, Final

import msgspec

HOST: Final = "127.0.0.1"
PORT: Final = 80


async def request(
    app: Any,
    path: str,
    body: object = None,
    *,
    headers: dict[str, str] | None = None,
    statuses: tuple[int, ...] = (200,),
) -> tuple[int, bytes]:
    """POST the body as JSON, or GET without one; returns the status and the whole answer.

    Raises RuntimeError for another status than these.
    """
    data = b"" if body is None else msgspec.json.encode(body)
    lines = {"host": f"{HOST}:{PORT}", "content-type": "application/json", **(headers or {})}
    scope = {
        "type": "http",
        "asgi": {"version": "3.0"},
        "http_version": "1.1",
        "method": "GET" if body is None else "POST",
        "scheme": "http",
        "path": path,
        "raw_path": path.encode(),
        "query_string": b"",
        "root_path": "",
        "headers": [(name.encode(), value.encode()) for name, value in lines.items()],
        "client": (HOST, 1),
        "server": (HOST, PORT),
    }
    unread = [{"type": "http.request", "body": data, "more_body": False}]
    status, answer = 0, bytearray()

    async def receive() -> dict[str, Any]:
        if not unread:
            await asyncio.Event().wait()  # the client stays until it has the whole answer
        return unread.pop()

    async def send(message: dict[str, Any]) -> None:
        nonlocal status
        status = message.get("status", status)
        answer.extend(message.get("body", b""))

    await app(scope, receive, send)
    if status not in statuses:
        raise RuntimeError(
            f"{path} answered a probe with {status} {bytes(answer)!r}; report this as a bug"
        )
    return status, bytes(answer)


async def shut_down(app: Any) -> None:
    """End the lifespan of the application, and whatever it has started."""

    async def receive() -> dict[str, Any]:
        return {"type": "lifespan.shutdown"}

    async def send(message: dict[str, Any]) -> None:
        """Nobody waits for the end of the shutdown but the caller."""

    await app({"type": "lifespan"}, receive, send)
