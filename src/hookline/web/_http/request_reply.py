"""A minimal HTTP layer over bare ASGI: the request that is read, the reply, and the refusal."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, MutableMapping
from contextlib import suppress
from typing import Any, Final, TypeAlias

import msgspec

from hookline.web._http.sse import dumps

# The types of ASGI, by which every part of this package names them.
Scope: TypeAlias = MutableMapping[str, Any]
ASGIMessage: TypeAlias = MutableMapping[str, Any]
Receive: TypeAlias = Callable[[], Awaitable[ASGIMessage]]
Send: TypeAlias = Callable[[ASGIMessage], Awaitable[None]]
Headers: TypeAlias = Iterable[tuple[str, str]]

REST: Final = 2.0
"""Most seconds for the rest of a body that is refused."""


class Refused(Exception):
    """The request is refused. `status` is the HTTP status; `text` is one sentence for the client.
    `headers` are added to the response. The parsers raise this exception. `app` sends it as a
    response; your own routes must send the response themselves.
    """

    def __init__(self, status: int, text: str, **headers: str) -> None:
        self.status = status
        self.text = text
        self.headers = {name.replace("_", "-").lower(): value for name, value in headers.items()}
        super().__init__(text)


class Request:
    """A request. Header names are lower case; the last of several equal headers counts."""

    def __init__(self, scope: Scope, receive: Receive) -> None:
        self.scope = scope
        self.receive = receive
        self.method: str = scope["method"]
        raw: Iterable[tuple[bytes, bytes]] = scope["headers"]
        self.headers = {n.decode("latin-1").lower(): v.decode("latin-1") for n, v in raw}
        path, root = str(scope["path"]), str(scope.get("root_path") or "")
        if root and (path == root or path.startswith(f"{root}/")):
            path = path[len(root) :]
        self.path = path or "/"
        self._more = True  # whether the client may still send

    async def body(self, limit: int, seconds: float) -> bytes:
        """Read the body; raises Refused if it is not JSON, too large, too slow, or cut off."""
        try:
            async with asyncio.timeout(seconds):
                self._check(limit)
                return await self._read(limit)
        except TimeoutError:
            raise Refused(408, "The body arrived too slowly; send it again.") from None
        except Refused:
            await self._drain(limit, min(seconds, REST))
            raise

    def _check(self, limit: int) -> None:
        """Check the headers of the body."""
        kind = self.headers.get("content-type", "").split(";")[0].strip().lower()
        if kind != "application/json":
            raise Refused(415, "The content type must be application/json.")
        length = self.headers.get("content-length", "0")
        if not length.isdecimal():
            raise Refused(400, "The content length must be a number.")
        if len(length) > 20 or int(length) > limit:
            raise Refused(413, f"The body must not be larger than {limit} bytes.")

    async def _read(self, limit: int) -> bytes:
        parts: list[bytes] = []
        size = 0
        while self._more:
            part = await self._part()
            size += len(part)
            if size > limit:
                raise Refused(413, f"The body must not be larger than {limit} bytes.")
            parts.append(part)
        return b"".join(parts)

    async def _part(self) -> bytes:
        message = await self.receive()
        if message["type"] == "http.disconnect":
            self._more = False
            raise Refused(400, "The body was cut off; send it again.")
        self._more = message.get("more_body", False)
        part: bytes = message.get("body", b"")
        return part

    async def _drain(self, limit: int, seconds: float) -> None:
        """Read the rest of a refused body, up to a limit: a client that is still sending would get
        a reset in place of the refusal. A client that waits for "100 Continue" sends nothing yet.
        """
        size = 0
        with suppress(Refused, TimeoutError):
            async with asyncio.timeout(seconds):
                while self._more and size <= limit and "expect" not in self.headers:
                    size += len(await self._part())


class Reply(msgspec.Struct, frozen=True, kw_only=True):
    """A complete response."""

    status: int = 200
    body: bytes = b""
    media_type: str = "application/json"
    headers: tuple[tuple[str, str], ...] = ()

    async def send(self, send: Send, more: Headers = ()) -> None:
        headers = {
            "content-length": str(len(self.body)),
            "cache-control": "no-store",
            "x-content-type-options": "nosniff",
            **dict(self.headers),
            **dict(more),
        }
        if self.body:
            headers["content-type"] = self.media_type
        if self.status == 204:
            del headers["content-length"]
        raw = [(name.encode("latin-1"), value.encode("latin-1")) for name, value in headers.items()]
        await send({"type": "http.response.start", "status": self.status, "headers": raw})
        await send({"type": "http.response.body", "body": self.body})


def json_reply(value: Any, status: int = 200) -> Reply:
    return Reply(status=status, body=dumps(value))


def refusal(exc: Refused) -> Reply:
    """Build the response of a refusal, in plain text: chat clients show the text unchanged."""
    return Reply(
        status=exc.status,
        body=exc.text.encode(),
        media_type="text/plain; charset=utf-8",
        headers=tuple(exc.headers.items()),
    )
