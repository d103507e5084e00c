"""A run as an HTTP answer, over bare ASGI.

A client that leaves is noticed while the run is silent, by a task that listens for the disconnect
on every version of the ASGI specification, and while something is sent, by the error of `send`.
After silence a comment is sent, so that no proxy takes the connection for dead.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, MutableMapping
from contextlib import suppress
from typing import Any, Final, TypeAlias

import msgspec

from hookline.web._ag_ui import AgUiEncoder
from hookline.web._ai_sdk import AiSdkEncoder
from hookline.web._live import Caps, Entry, Lagged, Live, Reader
from hookline.web._native import HookFired, NativeEncoder
from hookline.web._wire import KEEP_ALIVE, OPENED

Scope: TypeAlias = MutableMapping[str, Any]
ASGIMessage: TypeAlias = MutableMapping[str, Any]
Receive: TypeAlias = Callable[[], Awaitable[ASGIMessage]]
Send: TypeAlias = Callable[[ASGIMessage], Awaitable[None]]
Encoder: TypeAlias = NativeEncoder | AiSdkEncoder | AgUiEncoder
Headers: TypeAlias = Iterable[tuple[str, str]]

logger = logging.getLogger("hookline.web")

STREAM_HEADERS: Final = (
    ("content-type", "text/event-stream; charset=utf-8"),
    ("cache-control", "no-cache, no-transform"),
    ("x-accel-buffering", "no"),
    ("x-content-type-options", "nosniff"),
)


class Outgoing(msgspec.Struct, frozen=True, kw_only=True):
    """A run that is to be sent: to whom it is read, how it is written, what it begins with."""

    live: Live
    reader: Reader
    encoder: Encoder
    caps: Caps
    headers: Headers = ()
    prelude: bytes = b""


async def send_stream(outgoing: Outgoing, receive: Receive, send: Send) -> None:
    """Send a run's events until its end, or until the client leaves."""
    live, reader, encoder = outgoing.live, outgoing.reader, outgoing.encoder
    caps = outgoing.caps
    listener = asyncio.create_task(_listen(reader, receive))
    line = _Line(send, caps.send)
    try:
        await line.start(200, (*STREAM_HEADERS, *encoder.headers, *outgoing.headers))
        await line.put(OPENED + outgoing.prelude)
        while not reader.gone:
            entries = reader.take()
            if entries:
                await line.put(b"".join([_frame(live, encoder, entry) for entry in entries]))
            elif live.ended:
                await line.put(encoder.end(live.error), last=True)
                return
            elif not await reader.wait(caps.keep_alive):
                await line.put(KEEP_ALIVE)
    except Lagged:
        await _cut(line, encoder)
    except (OSError, TimeoutError):
        pass  # the client has left, or takes nothing any more
    finally:
        listener.cancel()
        reader.close()
        await asyncio.gather(listener, return_exceptions=True)


async def _cut(line: _Line, encoder: Encoder) -> None:
    """The reader was too slow for what is kept: say so, and leave the run alone."""
    logger.warning("a reader lagged behind what is kept of its run, and was cut off")
    with suppress(OSError, TimeoutError):
        await line.put(encoder.end(reason="the connection was too slow"), last=True)


class _Line:
    """The way to one client. One that takes nothing for too long counts as gone."""

    def __init__(self, send: Send, seconds: float) -> None:
        self._send = send
        self._seconds = seconds

    async def start(self, status: int, headers: Headers) -> None:
        raw = [(name.encode("latin-1"), value.encode("latin-1")) for name, value in headers]
        await self._put({"type": "http.response.start", "status": status, "headers": raw})

    async def put(self, data: bytes, *, last: bool = False) -> None:
        if data or last:
            await self._put({"type": "http.response.body", "body": data, "more_body": not last})

    async def _put(self, message: ASGIMessage) -> None:
        async with asyncio.timeout(self._seconds):
            await self._send(message)


async def _listen(reader: Reader, receive: Receive) -> None:
    """Wait for the client's leaving."""
    try:
        while True:
            message = await receive()
            if message["type"] == "http.disconnect":
                return
    finally:
        reader.leave()


def _frame(live: Live, encoder: Encoder, entry: Entry) -> bytes:
    """An entry for one reader; in hookline's own protocol it is written once for all of them."""
    number, at, item = entry
    if not isinstance(encoder, NativeEncoder):
        return b"" if isinstance(item, HookFired) else encoder.encode(item)
    known = live.shared(number, encoder.shown_as)
    if known is not None and not encoder.ended:
        if not isinstance(item, HookFired):
            encoder.passed(item)
        return known
    if isinstance(item, HookFired):
        data = encoder.hook(item, at, number)
    else:
        data = encoder.encode(item, at, number)
    if data:
        live.share(number, encoder.shown_as, data)
    return data
