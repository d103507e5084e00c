"""Hostile peers over loopback: what an answer or a request of theirs costs this process.

The peers are providers, also behind presets, MCP servers over HTTP and as programs, OAuth servers,
and the clients of the web application. A case is a kind of peer and an attack. The hostile server
runs in this process. What it attacks (tests/_attacked.py) runs in one of its own, which reports the
memory that the attack added to its peak, the longest block of its event loop (in CPU time, and by
the clock), and the outcome.
The databases and the Redis server of a deployment are not among the peers: they are its own.
`python -m tests.hostile_peers [--quick] [word …]` runs the cases whose names have a word.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import sys
import zlib
from collections.abc import AsyncIterator, Callable, Collection, Iterator
from contextlib import asynccontextmanager, closing, suppress
from functools import cache, partial
from pathlib import Path
from typing import Any, Final

from tests._wires import ADAPTERS, KEY
from tests.durable._forks import Forks

from hookline import Model
from hookline.mcp._client.transport.process import MAX_MESSAGE
from hookline.providers.presets import preset

MIB: Final = 1024 * 1024
MEMORY: Final = 64  # MiB that an answer may add
CLIENTS: Final = 2  # that are attacked at a time: each waits more than it works
SLOW: Final = 0.1  # seconds of CPU time: a longer block of the event loop is marked
BLOCK: Final = 2.0  # a longer one fails: the times of a busy machine do not reach it
ROOT: Final = Path(__file__).parents[1]
SSE: Final = "text/event-stream"
JSON: Final = "application/json"

Parts = Iterator[bytes]


def repeated(head: bytes, unit: bytes, size: int, tail: bytes = b"") -> Parts:
    """Yield a body of about `size` bytes: a head, then one unit again and again, then a tail."""
    yield head
    block = unit * (MIB // len(unit))
    for _ in range(max(1, size // MIB)):
        yield block
    yield tail


def gzipped(parts: Parts) -> Parts:
    packer = zlib.compressobj(9, wbits=31)
    for part in parts:
        yield packer.compress(part)
    yield packer.flush()


# Each attack: a status, a content type, whether the body is compressed, and the body by its size.
ATTACKS: Final[dict[str, tuple[int, str, bool, Callable[[int], Parts]]]] = {
    "bomb: error": (400, JSON, True, lambda n: repeated(b'{"error":"', b"x", n, b'"}')),
    "bomb: busy": (503, "text/html", True, lambda n: repeated(b"<html>", b"<p>x", n)),
    "bomb: answer": (200, JSON, True, lambda n: repeated(b'{"a":"', b"x", n, b'"}')),
    "bomb: page": (200, "text/html", True, lambda n: repeated(b"<html>", b"<p>x", n)),
    "bomb: event": (200, SSE, True, lambda n: repeated(b"data: ", b"x", n, b"\n\n")),
    "bomb: comments": (200, SSE, True, lambda n: repeated(b"", b": x\n", n)),
    "bomb: lines": (200, SSE, True, lambda n: repeated(b"", b"data: ab\n", n)),
    "values": (200, SSE, False, lambda n: repeated(b'data: {"a":[', b"[],", n // 8, b"1]}\n\n")),
    "wide text": (
        200,
        SSE,
        False,
        lambda n: repeated('data: {"a":"😀'.encode(), b"x", min(n, 9 * MIB), b'"}\n\n'),
    ),
    "values: answer": (200, JSON, False, lambda n: repeated(b'{"a":[', b"[],", n // 8, b"1]}")),
    "endless event": (200, SSE, False, lambda n: repeated(b"data: ", b"x", n)),
    "small events": (200, SSE, False, lambda n: repeated(b"", b"data:{}\n\n", min(n, 16 * MIB))),
    "bomb: events": (200, SSE, True, lambda n: repeated(b"", b"data:{}\n\n", min(n, 16 * MIB))),
    "deep": (200, SSE, False, lambda n: repeated(b"data: ", b"[", min(n, 9 * MIB), b"\n\n")),
    "digits": (200, SSE, False, lambda n: repeated(b"data: ", b"9", min(n, 9 * MIB), b"\n\n")),
    "fraction": (200, SSE, False, lambda n: repeated(b"data: 0.", b"9", min(n, 9 * MIB), b"\n\n")),
    "error event": (
        200,
        SSE,
        False,
        lambda n: repeated(b'data: {"error":{"message":"', b"sk-<a ", min(n, 9 * MIB), b'"}}\n\n'),
    ),
}


LARGE: Final = ("long answer", "wide answer", "wide error", "long nothing", "wide nothing")
"""Messages of an MCP server that are a little below its limits; wide: a character takes 4 bytes."""
PRESETS: Final = ("groq", "azure", "bedrock")  # each makes its client in another way
OF_PRESETS: Final = ("bomb: error", "bomb: event", "values", "endless event", "redirect")
OF_PROGRAMS: Final = (
    *("values", "wide text", "endless event", "bomb: lines", "small events", "deep", "digits"),
    *("fraction", *LARGE),
)
"""The attacks of a program, whose messages are lines: their bodies, without the words of SSE."""
OAUTH: Final = ("discovery", "register", "token")  # the step of a login that is attacked
OF_OAUTH: Final = ("bomb: error", "bomb: answer", "values: answer", "redirect")
PROTOCOLS: Final = ("native", "ai-sdk", "ag-ui")


def request_of(protocol: str, attack: str, size: int) -> Parts:
    """Yield the body of a hostile request to the web application."""
    place = "message" if protocol == "native" else "messages"
    head = f'{{"{place}":'.encode()
    match attack:
        case "values":
            return repeated(head + b"[", b"[],", size, b"1]}")
        case "deep":
            return repeated(head, b"[", size)
        case "keys":
            return repeated(head + b"{", b'"a":{},', size, b'"b":1}}')
        case "wide text":
            return repeated(head + '"😀'.encode(), b"x", size, b'"}')
        case "numbers":
            return repeated(head, b"9", size, b"}")
        case _:
            raise ValueError(attack)


OF_CLIENTS: Final = ("values", "deep", "keys", "wide text", "numbers")
FITS: Final = 4 * MIB - 4096  # bytes of a request that is read as a whole


@cache
def compressed(attack: str, size: int) -> bytes:
    """Return the body of an attack that is compressed; empty for another one."""
    if attack not in ATTACKS:
        return b""
    _, _, packed, body = ATTACKS[attack]
    return b"".join(gzipped(body(size))) if packed else b""


class Peer:
    """A server of raw HTTP that answers each request with one attack.

    As an MCP server it answers the first requests well. As an OAuth server it attacks one step of a
    login.
    """

    def __init__(self, attack: str, size: int, *, kind: str = "") -> None:
        self.attack = attack
        self.size = size
        self.mcp = kind == "mcp"
        self.step = kind.partition(": ")[2] if kind.startswith("oauth") else ""
        self.packed = compressed(attack, size)  # to be written at once
        self.tasks: list[asyncio.Task[Any]] = []
        self.stolen = 0  # requests that came to the other host
        self.heads: list[str] = []  # of all requests, in lower case

    @asynccontextmanager
    async def serving(self) -> AsyncIterator[str]:
        server = await asyncio.start_server(self._answer, "127.0.0.1", 0)
        other = await asyncio.start_server(self._steal, "127.0.0.1", 0)
        self.other = other.sockets[0].getsockname()[1]
        async with server, other:
            try:
                self.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
                yield self.url
            finally:
                for task in self.tasks:
                    task.cancel()
                await asyncio.gather(*self.tasks, return_exceptions=True)

    async def _steal(self, reader: Any, writer: Any) -> None:
        self.stolen += 1
        writer.write(b"HTTP/1.1 404 Not Found\r\ncontent-length: 0\r\n\r\n")
        await writer.drain()
        writer.close()

    async def _answer(self, reader: Any, writer: Any) -> None:
        task = asyncio.current_task()
        assert task is not None
        self.tasks.append(task)
        try:
            await self._requests(reader, writer)
        except (ConnectionError, asyncio.IncompleteReadError, asyncio.CancelledError):
            pass
        finally:
            if not writer.transport.is_closing():
                writer.transport.abort()

    async def _requests(self, reader: Any, writer: Any) -> None:
        while not writer.is_closing():
            head = (await reader.readuntil(b"\r\n\r\n")).decode().lower()
            self.heads.append(head)
            length = head.partition("content-length:")[2].partition("\r\n")[0]
            body = await reader.readexactly(int(length or 0))
            await self._say(head, body, writer)

    async def _say(self, head: str, body: bytes, writer: Any) -> None:
        if self.mcp:
            message = json.loads(body or b"{}")
            if message.get("method") != "tools/call":
                await self._handshake(message, writer)
                return
            if self.attack in LARGE:
                await self._reply(large_reply(self.attack, message), writer)
                return
        if self.step:
            step, answer = self._login(head)
            if step != self.step:
                writer.write(answer)
                await writer.drain()
                return
        if self.attack == "moved":
            if "/moved" in head:
                body = b'{"error":{"message":"it moved here"}}'
                first = "HTTP/1.1 400 Bad\r\ncontent-type: application/json"
            else:
                body, first = b"", "HTTP/1.1 307 Away\r\nlocation: /moved"
            writer.write(f"{first}\r\ncontent-length: {len(body)}\r\n\r\n".encode() + body)
            await writer.drain()
            return
        if self.attack == "redirect":
            there = f"http://localhost:{self.other}/steal"
            writer.write(
                f"HTTP/1.1 307 Away\r\nlocation: {there}\r\ncontent-length: 0\r\n\r\n".encode()
            )
            await writer.drain()
            return
        if self.attack == "slow comments":
            writer.write(b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n\r\n")
            while True:
                writer.write(b": still here\n\n")
                await writer.drain()
                await asyncio.sleep(0.1)
        status, kind, packed, make = ATTACKS[self.attack]
        encoding = "content-encoding: gzip\r\n" if packed else ""
        writer.write(
            f"HTTP/1.1 {status} Hm\r\ncontent-type: {kind}\r\n{encoding}"
            "connection: close\r\n\r\n".encode()
        )
        for part in [self.packed] if packed else make(self.size):
            writer.write(part)
            await writer.drain()
        writer.close()
        await writer.wait_closed()

    def _login(self, head: str) -> tuple[str, bytes]:
        """Return the step of a login that a request belongs to, and an honest answer."""
        status, more, data = "200 OK", "", {}
        path = head.split(" ", 2)[1]
        if path == "/mcp":
            step, status = "", "401 Unauthorized"
            more = "www-authenticate: Bearer\r\n"
        elif path.startswith("/.well-known/oauth-authorization-server"):
            step = "discovery"
            data = {
                "issuer": self.url,
                "authorization_endpoint": f"{self.url}/authorize",
                "token_endpoint": f"{self.url}/tokens",
                "registration_endpoint": f"{self.url}/register",
                "response_types_supported": ["code"],
                "code_challenge_methods_supported": ["S256"],
                "token_endpoint_auth_methods_supported": ["none"],
            }
        elif path.startswith("/.well-known"):
            step, status = "discovery", "404 Not Found"
        elif path == "/register":
            step, status = "register", "201 Created"
            data = {
                "client_id": "c",
                "redirect_uris": ["http://127.0.0.1:8765/callback"],
                "token_endpoint_auth_method": "none",
            }
        else:
            step = "token"
        body = json.dumps(data)
        first = f"HTTP/1.1 {status}\r\n{more}content-type: application/json\r\n"
        return step, f"{first}content-length: {len(body)}\r\n\r\n{body}".encode()

    async def _handshake(self, message: dict[str, Any], writer: Any) -> None:
        await self._reply(reply_of(message).encode(), writer)

    async def _reply(self, answer: bytes, writer: Any) -> None:
        status = "200 OK" if answer else "202 Accepted"
        head = f"HTTP/1.1 {status}\r\ncontent-type: application/json\r\n"
        writer.write(f"{head}content-length: {len(answer)}\r\n\r\n".encode() + answer)
        await writer.drain()


def reply_of(message: dict[str, Any]) -> str:
    """Return an MCP server's answer to a harmless message, as JSON; empty for a notification."""
    match message.get("method"):
        case "initialize":
            result: Any = {
                "protocolVersion": "2025-11-25",
                "capabilities": {"tools": {}},
                "serverInfo": {"name": "hostile", "version": "1"},
            }
        case "tools/list":
            schema = {"type": "object", "properties": {}}
            result = {"tools": [{"name": "attack", "inputSchema": schema}]}
        case _ if "id" in message:
            error = {"code": -32601, "message": "no such method"}
            return json.dumps({"jsonrpc": "2.0", "id": message["id"], "error": error})
        case _:
            return ""
    return json.dumps({"jsonrpc": "2.0", "id": message["id"], "result": result})


def large_reply(attack: str, message: dict[str, Any]) -> bytes:
    """Return an answer to a call that is as large as it may be."""
    room = MAX_MESSAGE - 4096
    text = "x" * room if "long" in attack else "😀" + "x" * (room // 4)
    answer: dict[str, Any] = {"nothing": text}
    if "answer" in attack:
        answer = {"result": {"content": [{"type": "text", "text": text}]}}
    elif "error" in attack:
        answer = {"error": {"code": -32000, "message": text}}
    whole = {"jsonrpc": "2.0", "id": message["id"], **answer}
    return json.dumps(whole, ensure_ascii=False).encode()


def be_program(attack: str, size: int) -> None:
    """Be a hostile MCP server on stdin and stdout."""
    out = sys.stdout.buffer
    for line in sys.stdin.buffer:
        message = json.loads(line)
        if message.get("method") != "tools/call":
            out.write(reply_of(message).encode() + b"\n")
            out.flush()
            continue
        if attack in LARGE:
            out.write(large_reply(attack, message) + b"\n")
            out.flush()
            continue
        with suppress(BrokenPipeError):
            for part in ATTACKS[attack][3](size):
                out.write(part.replace(b"data: ", b""))
            out.flush()


def model_at(kind: str, url: str, *, idle_timeout: float = 1.0) -> Model:
    """Return an adapter or a preset whose service is at this address."""
    options: dict[str, Any] = {"api_key": KEY, "idle_timeout": idle_timeout}
    if kind == "azure":
        os.environ["AZURE_OPENAI_ENDPOINT"] = url
        return preset(kind, "hostile", **options)
    base = f"{url}/v1" if kind.startswith("openai") else url
    make: Any = ADAPTERS.get(kind, partial(preset, kind))  # type: ignore[call-overload]
    model: Model = make("hostile", base_url=base, **options)
    return model


# ── the parent ──────────────────────────────────────────────────────────────────────────────


# What each client would import by itself: the process that clients are forked from has it already.
IMPORTS: Final = (
    *("anthropic", "google.genai", "mcp.client.auth", "openai.types.responses", "httpx2"),
    *("openai.lib.streaming.responses", "openai.resources.chat", "openai.resources.responses"),
)


def clients() -> Forks:
    """Return the process from which each client that is attacked is forked; close it."""
    return Forks("tests._attacked", *IMPORTS)


async def play(forks: Forks, kind: str, attack: str, size: int) -> dict[str, Any]:
    """Play one attack against a client of this kind, and return the figures."""
    peer = Peer(attack, size, kind=kind)
    harmless = Peer("bomb: error", 1, kind=kind)
    reports: asyncio.Queue[bytes] = asyncio.Queue()

    async def receive(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            await reports.put(await reader.read())  # what a client that is gone sent, too
        finally:
            writer.close()

    server = await asyncio.start_server(receive, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    async with server, peer.serving() as url, harmless.serving() as warm:
        client = forks.begin(kind, url, warm, attack, str(size), str(port))
        try:
            report = await asyncio.wait_for(reports.get(), 150)
        except TimeoutError:
            return {
                "outcome": "no end within 150 s",
                "peak": 0,
                "block": 0,
                "wall": 0,
                "seconds": 150,
            }
        finally:
            client.kill()
    if not report.startswith(b"{"):
        raise RuntimeError(f"{kind}, {attack}: {report.decode()[-2000:]}")
    figures: dict[str, Any] = json.loads(report)
    if peer.stolen:
        figures["outcome"] = f"LEAKED to another host {peer.stolen} times"
    return figures


def is_over(figures: dict[str, Any]) -> bool:
    """Return whether an answer took more memory, or blocked the loop for longer, than it may."""
    return bool(figures["block"] > BLOCK or figures["peak"] > MEMORY)


def cases() -> list[tuple[str, str]]:
    """Return each client with each attack."""
    attacks = [*ATTACKS, "redirect", "slow comments"]
    kinds: dict[str, Collection[str]] = {
        **dict.fromkeys(ADAPTERS, attacks),
        "mcp": [*attacks, *LARGE],
        **dict.fromkeys(PRESETS, OF_PRESETS),
        "mcp: program": OF_PROGRAMS,
        **dict.fromkeys([f"oauth: {step}" for step in OAUTH], OF_OAUTH),
        **dict.fromkeys([f"web: {protocol}" for protocol in PROTOCOLS], OF_CLIENTS),
    }
    return [(kind, attack) for kind, its_attacks in kinds.items() for attack in its_attacks]


async def main(forks: Forks, words: list[str], *, quick: bool) -> int:
    size = (48 if quick else 640) * MIB
    turns = asyncio.Semaphore(CLIENTS)

    async def one(kind: str, attack: str) -> dict[str, Any]:
        async with turns:
            return await play(forks, kind, attack, size)

    chosen = [
        (kind, attack)
        for kind, attack in cases()
        if not words or any(word in f"{kind} {attack}" for word in words)
    ]
    running = [asyncio.create_task(one(kind, attack)) for kind, attack in chosen]
    bad = 0
    for (kind, attack), case in zip(chosen, running, strict=True):
        figures = await case
        over = is_over(figures)
        over = over or figures["outcome"].startswith(("LEAKED", "no end", "TimeoutError"))
        bad += over
        mark = "OVER " if over else "slow " if figures["block"] > SLOW else "ok   "
        sys.stdout.write(
            f"{mark} {kind:16} {attack:16} {figures['peak']:7.1f} MiB "
            f"{figures['block'] * 1000:7.0f} ms {figures['wall'] * 1000:7.0f} ms "
            f"{figures['seconds']:6.1f} s  "
            f"{figures['outcome'][:90]!r}\n"
        )
        sys.stdout.flush()
    return 1 if bad else 0


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--program", nargs=2)
    parser.add_argument("words", nargs="*")
    options = parser.parse_args()
    if options.program:
        be_program(options.program[0], int(options.program[1]))
        raise SystemExit
    with closing(clients()) as forks:
        bad = asyncio.run(main(forks, options.words, quick=options.quick))
    raise SystemExit(bad)
