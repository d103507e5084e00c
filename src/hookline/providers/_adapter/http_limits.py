"""The HTTP clients that hookline makes: what a peer sends is counted after decoding.

`hooks()` are the event hooks of an httpx client. They ask for bodies without compression, decode a
compressed body in small pieces anyway, limit the body of an error, and follow no redirect to
another host. `bounded` is the part that `hookline.mcp` uses, too. The library may be httpx or
httpx2, so nothing is imported here: the classes are those of the response.
"""

from __future__ import annotations

import asyncio
import json
import re
import sys
import zlib
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing
from functools import cache
from typing import Any, Final
from urllib.parse import urljoin, urlsplit

PIECE: Final = 16 * 1024  # bytes that are read between two turns of the event loop
MAX_ERROR: Final = 256 * 1024  # bytes of an error's body; the rest is not read
MAX_VALUES: Final = 400_000  # JSON values of one message, each of which may take 200 bytes
REDIRECT: Final = "redirect_to_another_host"  # the code of the error in place of a redirect
_SMALL: Final = 256 * 1024  # bytes that cannot hold too many values
_VALUES: Final = b",[{"
_BLANK: Final = re.compile(rb"\r\n\r\n|\n\n|\r\r")  # the end of a server-sent event
_WIDE: Final = 4  # bytes of each character of a text with an emoji
_WBITS: Final = 47  # zlib's word for gzip and deflate, by their header


def too_many_values(data: bytes) -> bool:
    """Return whether parsing this JSON could create more than MAX_VALUES objects."""
    return len(data) > _SMALL and _values(data) > MAX_VALUES


def too_large(data: bytes, limit: int) -> bool:
    """Return whether this JSON is too large, or could create more than MAX_VALUES objects."""
    return len(data) * (1 if data.isascii() else _WIDE) > limit or too_many_values(data)


def _values(data: bytes) -> int:
    return len(data) - len(data.translate(None, _VALUES))


def hooks() -> dict[str, list[Any]]:
    """Return the event hooks of a client for a model's service."""
    return {"request": [plain], "response": [_guard]}


async def plain(request: Any) -> None:
    """Ask for a body without compression."""
    request.headers["accept-encoding"] = "identity"


async def _guard(response: Any) -> None:
    refusal = _redirect(response)
    if refusal is not None:
        del response.headers["location"]
        await response.stream.aclose()
        put_body(response, refusal)
    elif response.status_code >= 300:
        bounded(response, MAX_ERROR)
    else:
        bounded(response)


def _redirect(response: Any) -> bytes | None:
    """Return the error for a redirect to another host, or None."""
    if not response.has_redirect_location:
        return None
    url = str(response.request.url)
    target = urljoin(url, response.headers["location"])
    if _origin(target) == _origin(url):
        return None
    parts = urlsplit(target)
    message = (
        f"the server redirects to {parts.scheme}://{parts.netloc.rpartition('@')[2]}, and hookline "
        "follows no redirect to another host; if you trust that host, make it the base_url="
    )
    return json.dumps({"error": {"message": message, "code": REDIRECT}}).encode()


def _origin(url: str) -> tuple[str, str | None, int | None]:
    parts = urlsplit(url)
    try:
        port = parts.port or {"http": 80, "https": 443}.get(parts.scheme)
    except ValueError:  # no number
        port = -1
    return parts.scheme, parts.hostname, port


def put_body(response: Any, body: bytes, kind: str = "application/json") -> None:
    """Put another body in the place of a response's own, which the caller closes."""
    _forget_encoding(response)
    response.headers["content-type"] = kind
    response.stream = _library(response).ByteStream(body)


def bounded(response: Any, limit: int | None = None, *, message: int | None = None) -> None:
    """Let the body of a response arrive decoded and in small pieces.

    It ends after `limit` bytes. A message of more than `message` bytes, or of more than MAX_VALUES
    JSON values, is an error of the stream; a message is the body, or an event of a stream.
    """
    library = _library(response)
    words = response.headers.get("content-encoding", "").lower().split(",")
    encodings = [word.strip() for word in words if word.strip() not in ("", "identity")]
    _forget_encoding(response)
    response.stream = _stream_class(library)(response.stream, encodings, limit, message)


def _forget_encoding(response: Any) -> None:
    for name in ("content-encoding", "content-length"):
        response.headers.pop(name, None)


def _library(response: Any) -> Any:
    return sys.modules[type(response).__module__.partition(".")[0]]


@cache
def _stream_class(library: Any) -> Any:
    """Return the class of bounded streams for httpx, or for httpx2."""

    class Bounded(library.AsyncByteStream):  # type: ignore[misc]
        """The decoded bytes of a response, up to the limit."""

        def __init__(
            self, stream: Any, encodings: list[str], limit: int | None, message: int | None
        ) -> None:
            self._stream = stream
            self._encodings = encodings
            self._limit = limit
            self._message = message
            self._messages = None if message is None else Messages(message)
            self._body: Any = None  # an async generator, while it is read

        def __aiter__(self) -> AsyncIterator[bytes]:
            body = self._read()
            self._body = body
            return body

        async def _read(self) -> AsyncGenerator[bytes]:
            room = self._limit
            async with aclosing(self._pieces()) as pieces:
                async for piece in pieces:
                    if self._messages is not None and self._messages.exceed(piece):
                        raise library.StreamError(
                            f"the server sent a message of more than {self._message} bytes, or "
                            f"of more than {MAX_VALUES} values"
                        )
                    if room is not None and len(piece) >= room:
                        yield piece[:room]
                        return
                    yield piece
                    if room is not None:
                        room -= len(piece)

        async def _pieces(self) -> AsyncGenerator[bytes]:
            if not self._encodings:
                async for chunk in self._stream:
                    for start in range(0, len(chunk), PIECE):
                        if start:
                            await asyncio.sleep(0)  # a chunk can hold thousands of events
                        yield chunk[start : start + PIECE]
                return
            if len(self._encodings) > 1 or self._encodings[0] not in ("gzip", "x-gzip", "deflate"):
                names = ", ".join(self._encodings)[:100]
                raise library.DecodingError(
                    f"the server encoded its answer without asking: {names}"
                )
            decoder = zlib.decompressobj(_WBITS)
            async for chunk in self._stream:
                while chunk:
                    try:
                        piece = decoder.decompress(chunk, PIECE)
                    except zlib.error as exc:
                        raise library.DecodingError(str(exc)) from exc
                    chunk = decoder.unconsumed_tail
                    if piece:
                        yield piece
                        await asyncio.sleep(0)  # a small chunk can hold many pieces

        async def aclose(self) -> None:
            if self._body is not None and not self._body.ag_running:
                await self._body.aclose()  # its reader may have left in the middle
            await self._stream.aclose()

    return Bounded


class Messages:
    """Bounds each message of a body: its bytes and its JSON values. An empty line begins another.

    In memory, each character of a text is as wide as its widest: other bytes than ASCII count more.
    """

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._size = self._values = 0
        self._wide = False
        self._tail = b""

    def exceed(self, piece: bytes) -> bool:
        """Return whether one message is too large, or has too many values."""
        tail, self._tail = self._tail, piece[-3:]
        # An empty line may be split between two pieces.
        at = _BLANK.search(tail + piece[:3])
        if at is not None and at.end() > len(tail):
            self._begin()
        first, *others = _BLANK.split(piece)
        self._add(first)
        for part in others:
            if self._over():
                return True
            self._begin()
            self._add(part)
        return self._over()

    def _begin(self) -> None:
        self._size = self._values = 0
        self._wide = False

    def _add(self, part: bytes) -> None:
        self._size += len(part)
        self._values += _values(part) + part.count(b"\n")
        self._wide = self._wide or not part.isascii()

    def _over(self) -> bool:
        return self._size * (_WIDE if self._wide else 1) > self._limit or self._values > MAX_VALUES
