"""`WireServer`: a local HTTP server that plays a script in a provider's streaming format.

With it, a test runs the provider's own SDK over real sockets. The server can send an answer in
pieces split at any byte, slowly, with an error status, cut off, stalled, or with garbage in it.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import suppress
from typing import Any, Self, cast

import msgspec

from hookline.models import Chunk
from hookline.points import as_tuple
from hookline.testing import Answer, ScriptError
from hookline.testing._turn import Delay, as_turn

from .formats import WireFormat, encoded, error_body
from .habits import check_habits

REASONS = {200: "OK", 400: "Bad Request", 401: "Unauthorized", 429: "Too Many Requests"}


class WireRequest(msgspec.Struct, frozen=True, kw_only=True):
    """A client's request; `json` is its body."""

    method: str
    """The method, such as "POST"."""
    path: str
    """The path and query, without the host."""
    headers: dict[str, str]
    """The headers, with names in lower case."""
    json: Any


class Wire:
    """One answer of the server. `answer` is a turn of a script; the options change how the answer
    is sent.

    If `status` is above 399, the server sends an error with `code` and `message` instead of the
    answer. `body` sends exactly these bytes. `piece` is the number of bytes in each write; 0 writes
    one event at a time. `delay` is the number of seconds before each write, or an async function
    that is awaited before each write. After `after` bytes, `garbage` is inserted. After `cut`
    bytes, the connection is closed. After `stall` bytes, the server stops sending. `headers` are
    sent in addition to the headers of the format. `habits` are deviations of a server from its
    documented format, such as "no_index" or "crlf": `habits_of` lists them. Raises
    ValueError for a negative number.
    """

    def __init__(
        self,
        answer: Answer = "",
        *,
        status: int = 200,
        code: str = "error",
        message: str = "refused by the script",
        headers: Mapping[str, str] | None = None,
        body: bytes | None = None,
        piece: int = 0,
        delay: Delay | None = None,
        garbage: bytes | None = None,
        after: int = 0,
        cut: int | None = None,
        stall: int | None = None,
        habits: Sequence[str] = (),
    ) -> None:
        for name, number in {"piece": piece, "after": after, "cut": cut, "stall": stall}.items():
            if number is not None and number < 0:
                raise ValueError(f"{name}={number!r} must be at least 0")
        self.answer = as_turn(answer)
        self.status = status
        self.code = code
        self.message = message
        self.headers = dict(headers or {})
        self.body = body
        self.piece = piece
        self.delay = delay
        self.garbage = garbage
        self.after = after
        self.cut = cut
        self.stall = stall
        self.habits = as_tuple("habits", habits)

    def pieces(self, format: WireFormat, number: int) -> list[bytes]:
        """The body, in the pieces in which it is sent."""
        if self.body is not None:
            found = [self.body]
        elif self.status >= 400:
            error = error_body(format, self.status, self.code, self.message)
            found = [json.dumps(error).encode()]
        else:
            ids = (f"call_{number}_{place}" for place in range(1_000))
            chunks = cast("list[Chunk]", self.answer.chunks(0, lambda: next(ids), "wire"))
            found = encoded(format, chunks, self.habits)
        if self.garbage is not None:
            whole = b"".join(found)
            found = [whole[: self.after], self.garbage, whole[self.after :]]
        if 0 in (self.cut, self.stall):
            return []
        if self.piece or self.cut is not None or self.stall is not None:
            whole = b"".join(found)
            size = self.piece or len(whole) or 1
            ends = {self.cut, self.stall, len(whole), *range(size, len(whole), size)}
            marks = sorted(end for end in ends if end is not None and 0 < end <= len(whole))
            found = [whole[a:b] for a, b in zip([0, *marks], marks, strict=False)]
        return [piece for piece in found if piece]


class WireServer:
    """Answers each request with the next turn of its script: a `Wire`, or the `answer` of a `Wire`.

        async with WireServer("openai", Wire("Hello", piece=1)) as server:
            model = OpenAIModel("gpt-x", base_url=server.url, api_key="any")

    `requests` has all requests. `opened` is the number of all connections, and `open` is the number
    of open connections. The event `asked` is set by the first request. The event `left` is set when
    a client disconnects in the middle of an answer; `left_at` is the time of this disconnect, by
    the event loop's clock. Requests after the last turn get status 500, and the server raises
    ScriptError at the end of its block. Raises ValueError for an unknown format or habit.
    """

    def __init__(self, format: WireFormat, *turns: Wire | Answer, port: int = 0) -> None:
        self.format: WireFormat = format
        """The streaming format of the server."""
        self.requests: list[WireRequest] = []
        self.asked = asyncio.Event()
        self.left = asyncio.Event()
        self.left_at: float | None = None
        self.opened = 0
        self.open = 0
        self.url = ""
        """The `base_url=` for an adapter, while the server runs."""
        self._turns = [turn if isinstance(turn, Wire) else Wire(turn) for turn in turns]
        for turn in self._turns or [Wire()]:
            check_habits(format, turn.habits)
        self._tasks: set[asyncio.Task[None]] = set()
        self._server: asyncio.Server | None = None
        self._asked_too_much = False
        self._port = port

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", self._port)
        port: int = self._server.sockets[0].getsockname()[1]
        path = "/v1" if self.format.startswith("openai") else ""
        self.url = f"http://127.0.0.1:{port}{path}"
        return self

    async def __aexit__(self, kind: type[BaseException] | None, *rest: object) -> None:
        assert self._server is not None
        self._server.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._server.wait_closed()
        if kind is None and self._asked_too_much:
            raise ScriptError(
                f"{len(self.requests)} requests for a script of {len(self._turns)} turns; "
                "add turns, or make fewer requests"
            )

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        self.opened += 1
        self.open += 1
        try:
            await self._talk(reader, writer)
        except (ConnectionError, asyncio.IncompleteReadError, asyncio.CancelledError):
            pass  # the client has disconnected, or the test has ended
        finally:
            self.open -= 1
            self._tasks.discard(task)
            writer.transport.abort()

    async def _talk(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Handle requests on one connection, until the client closes it."""
        ahead = asyncio.ensure_future(reader.read(1))
        try:
            while first := await ahead:
                self.requests.append(await _request(first, reader))
                self.asked.set()
                ahead = asyncio.ensure_future(reader.read(1))  # ends if the client disconnects
                number = len(self.requests)
                turn = Wire(status=500, message="the script is over")
                if number <= len(self._turns):
                    turn = self._turns[number - 1]
                else:
                    self._asked_too_much = True
                try:
                    if not await self._answer(turn, number, writer, ahead):
                        return
                except ConnectionError:  # the client has reset the connection
                    self._has_left()
                    raise
        finally:
            ahead.cancel()

    async def _answer(
        self, turn: Wire, number: int, writer: asyncio.StreamWriter, ahead: asyncio.Future[bytes]
    ) -> bool:
        """Send one answer; returns False if the connection has ended."""
        kind = "text/event-stream" if turn.status < 400 else "application/json"
        headers = {"content-type": kind, "transfer-encoding": "chunked", **turn.headers}
        lines = [f"HTTP/1.1 {turn.status} {REASONS.get(turn.status, 'Status')}"]
        lines += [f"{name}: {value}" for name, value in headers.items()]
        writer.write("\r\n".join([*lines, "", ""]).encode())
        sent = 0
        async for piece in self._paced(turn, turn.pieces(self.format, number), ahead):
            writer.write(b"%x\r\n%b\r\n" % (len(piece), piece))
            await writer.drain()
            sent += len(piece)
            if sent in (turn.cut, turn.stall):
                break
        if sent == turn.cut:
            return False
        if sent == turn.stall:
            await asyncio.wait([ahead])
        if ahead.done() and not ahead.result():
            self._has_left()
            return False
        writer.write(b"0\r\n\r\n")
        await writer.drain()
        return True

    def _has_left(self) -> None:
        self.left_at = asyncio.get_running_loop().time()
        self.left.set()

    async def _paced(
        self, turn: Wire, pieces: list[bytes], ahead: asyncio.Future[bytes]
    ) -> AsyncIterator[bytes]:
        """Yield the pieces with their delays, while the client is connected."""
        for piece in pieces:
            if callable(turn.delay):
                waits: asyncio.Future[Any] = asyncio.ensure_future(turn.delay())
                both: list[asyncio.Future[Any]] = [waits, ahead]
                await asyncio.wait(both, return_when=asyncio.FIRST_COMPLETED)
                waits.cancel()
            elif turn.delay is not None:
                await asyncio.wait([ahead], timeout=turn.delay)
            if ahead.done():
                return
            yield piece


async def _request(first: bytes, reader: asyncio.StreamReader) -> WireRequest:
    """Read one request; its body has a length or is chunked."""
    head = (first + await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
    line, *lines = head.split("\r\n")[:-2]
    method, path, _ = line.split(" ", 2)
    pairs = (each.split(":", 1) for each in lines)
    headers = {name.strip().lower(): value.strip() for name, value in pairs}
    if headers.get("transfer-encoding") == "chunked":
        body = b""
        while size := int(await reader.readline(), 16):
            body += await reader.readexactly(size)
            await reader.readline()
        await reader.readline()
    else:
        body = await reader.readexactly(int(headers.get("content-length", "0")))
    data: Any = None
    with suppress(ValueError):
        data = json.loads(body)
    return WireRequest(method=method, path=path, headers=headers, json=data)
