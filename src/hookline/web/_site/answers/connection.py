"""Send a run as an HTTP response, over bare ASGI.

Two things notice a client that leaves. While the run is silent, a task listens for the disconnect,
in every version of the ASGI specification. While data is sent, `send` raises. After a silence a
comment is sent, so that no proxy considers the connection dead.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from contextvars import ContextVar
from typing import Final

from hookline.web._http.request_reply import ASGIMessage, Headers, Receive, Send
from hookline.web._http.sse import KEEP_ALIVE, OPEN
from hookline.web._protocols.native.encoder import NativeEncoder
from hookline.web._protocols.table import Encoder
from hookline.web._runs.backlog import Backlog, Entry, HookFired, Lagged, Reader
from hookline.web._runs.run import Caps

logger = logging.getLogger("hookline.web")

STREAM_HEADERS: Final = (
    ("content-type", "text/event-stream; charset=utf-8"),
    ("cache-control", "no-cache, no-transform"),
    ("x-accel-buffering", "no"),
    ("x-content-type-options", "nosniff"),
)


@asynccontextmanager
async def line_to(
    reader: Reader, caps: Caps, receive: Receive, send: Send
) -> AsyncGenerator[Line, None]:
    """Open the connection to a client; the context ends when the client leaves, at any time."""
    listener = asyncio.create_task(_listen(reader, receive))
    line = Line(send, reader, caps)
    try:
        yield line
    except OSError as exc:  # the client has left, or no longer accepts data
        if isinstance(exc, TimeoutError):
            logger.info("a client accepted no data for %g seconds: disconnected", caps.send)
            _expect_incomplete_response()
    finally:
        line.close()
        listener.cancel()
        reader.close()
        await asyncio.gather(listener, return_exceptions=True)


_is_dropped: Final = ContextVar("hookline.web dropped", default=False)


def _is_unexpected(record: logging.LogRecord) -> bool:
    return not (_is_dropped.get() and "without completing response" in record.getMessage())


def _expect_incomplete_response() -> None:
    """Keep uvicorn from logging an error for a response that ends early on purpose: a client that
    reads nothing must not fill the log.
    """
    _is_dropped.set(True)  # in the task of this request
    logging.getLogger("uvicorn.error").addFilter(_is_unexpected)


async def send_run(line: Line, log: Backlog, reader: Reader, encoder: Encoder) -> None:
    """Send the entries of a run, until it ends or the client leaves."""
    if isinstance(encoder, NativeEncoder):
        encoder.agree(log.call_texts(encoder.shown_as))
    try:
        while not reader.disconnected:
            entries = reader.take()
            if entries:
                await _put_entries(line, log, encoder, entries)
            elif log.incomplete:
                raise Lagged
            elif log.complete:
                await line.put(encoder.end(log.error), last=True)
                return
            else:
                await line.wait()
    except Lagged:
        logger.warning("a reader missed a part of an answer, and must reload the answer")
        await line.put(encoder.reload(), last=True)


async def _put_entries(line: Line, log: Backlog, encoder: Encoder, entries: list[Entry]) -> None:
    frames: list[bytes] = []
    try:
        for entry in entries:
            frames.append(_frame(log, encoder, entry))
    finally:
        await line.put(b"".join(frames))


class Line:
    """The connection to one client. A client that accepts no data for too long counts as
    disconnected.

    One timer has two purposes: it limits the time of each send, and it sends a comment after a long
    silence.
    """

    def __init__(self, send: Send, reader: Reader, caps: Caps) -> None:
        self._send = send
        self._reader = reader
        self._caps = caps
        self._loop = asyncio.get_running_loop()
        self._task = asyncio.current_task()
        self._sending: float | None = None  # the start of the current send
        self._last = self._loop.time()  # the end of the last send
        self._due = False  # whether a comment is due
        self._late = False
        self._timer = self._loop.call_later(min(caps.keep_alive, caps.send), self._look)

    async def open(self, headers: Headers) -> None:
        """Begin the response."""
        all = (*STREAM_HEADERS, *headers)
        raw = [(name.encode("latin-1"), value.encode("latin-1")) for name, value in all]
        await self._put({"type": "http.response.start", "status": 200, "headers": raw})
        await self.put(OPEN)

    async def wait(self) -> None:
        """Wait until the reader has work; send comments during a long silence."""
        if self._due:
            await self.put(KEEP_ALIVE)
        else:
            await self._reader.wait()

    async def put(self, data: bytes, *, last: bool = False) -> None:
        if data or last:
            await self._put({"type": "http.response.body", "body": data, "more_body": not last})

    async def _put(self, message: ASGIMessage) -> None:
        self._sending = self._last = self._loop.time()
        self._due = False
        try:
            await self._send(message)
        except asyncio.CancelledError:
            if self._late and self._task is not None and self._task.uncancel() == 0:
                raise TimeoutError from None
            raise
        finally:
            self._sending = None

    def _look(self) -> None:
        """Handle the timer: cancel a slow send, or wake the reader after a silence."""
        now, caps = self._loop.time(), self._caps
        if self._sending is not None:
            wait = self._sending + caps.send - now
            if wait <= 0:
                self._late = True
                if self._task is not None:
                    self._task.cancel()
                return
        elif now - self._last >= caps.keep_alive:
            self._due = True
            self._reader.wake()
            wait = caps.keep_alive
        else:
            wait = self._last + caps.keep_alive - now
        self._timer = self._loop.call_later(min(wait, caps.send), self._look)

    def close(self) -> None:
        self._timer.cancel()


async def _listen(reader: Reader, receive: Receive) -> None:
    """Wait until the client leaves."""
    try:
        while True:
            message = await receive()
            if message["type"] == "http.disconnect":
                return
    finally:
        reader.leave()


def _frame(log: Backlog, encoder: Encoder, entry: Entry) -> bytes:
    """Encode an entry for one reader; readers of the native protocol share the encoded bytes."""
    number, at, item = entry
    if not isinstance(encoder, NativeEncoder):
        return b"" if isinstance(item, HookFired) else encoder.encode(item)
    frame = log.frame_of(number, encoder.shown_as)
    if frame is not None and not encoder.complete:
        if not isinstance(item, HookFired):
            encoder.record(item)
        return frame
    if isinstance(item, HookFired):
        data = encoder.hook(item, at, number)
    else:
        data = encoder.encode(item, at, number)
    if data:
        log.share(number, encoder.shown_as, data)
    return data
