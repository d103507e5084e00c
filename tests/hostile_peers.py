"""Hostile providers and MCP servers over loopback: what an answer of theirs costs the client.

A case is a client and an attack. The server runs in this process; the client runs in a child, which
prints the memory that the answer added to its peak, the longest block of its event loop, and the
outcome. `python -m tests.hostile_peers [--quick] [word …]` runs the cases whose names have a word.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import resource
import sys
import time
import zlib
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any, Final

from tests._wires import ADAPTERS, KEY

from hookline import Agent
from hookline.mcp import MCPServer, connect
from hookline.testing import ScriptedModel, call

MIB: Final = 1024 * 1024
MEMORY: Final = 64  # MiB that an answer may add
BLOCK: Final = 0.1  # seconds that an answer may block the event loop
SLACK: Final = 10  # times as long on a busy machine: a fault blocks for seconds
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
        lambda n: repeated('data: {"a":"😀'.encode(), b"x", min(n, 12 * MIB), b'"}\n\n'),
    ),
    "values: answer": (200, JSON, False, lambda n: repeated(b'{"a":[', b"[],", n // 8, b"1]}")),
    "endless event": (200, SSE, False, lambda n: repeated(b"data: ", b"x", n)),
}


class Peer:
    """A server of raw HTTP that answers each request with one attack."""

    def __init__(self, attack: str, size: int, *, mcp: bool) -> None:
        self.attack = attack
        self.size = size
        self.mcp = mcp
        self.bodies: list[bytes] = []
        if attack in ATTACKS:
            _, _, packed, body = ATTACKS[attack]
            self.bodies = list(gzipped(body(size))) if packed else []
        self.tasks: list[asyncio.Task[Any]] = []
        self.stolen = 0  # requests that came to the other host

    @asynccontextmanager
    async def serving(self) -> AsyncIterator[str]:
        server = await asyncio.start_server(self._answer, "127.0.0.1", 0)
        other = await asyncio.start_server(self._steal, "127.0.0.1", 0)
        self.other = other.sockets[0].getsockname()[1]
        async with server, other:
            try:
                yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
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
            writer.transport.abort()

    async def _requests(self, reader: Any, writer: Any) -> None:
        while not writer.is_closing():
            head = (await reader.readuntil(b"\r\n\r\n")).decode().lower()
            length = head.partition("content-length:")[2].partition("\r\n")[0]
            body = await reader.readexactly(int(length or 0))
            await self._say(head, body, writer)

    async def _say(self, head: str, body: bytes, writer: Any) -> None:
        if self.mcp:
            message = json.loads(body or b"{}")
            if message.get("method") != "tools/call":
                await self._handshake(message, writer)
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
        for part in self.bodies or make(self.size):
            writer.write(part)
            await writer.drain()
        writer.close()
        await writer.wait_closed()

    async def _handshake(self, message: dict[str, Any], writer: Any) -> None:
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
            case _:
                result = None
        status = "200 OK"
        if result is not None:
            answer = json.dumps({"jsonrpc": "2.0", "id": message["id"], "result": result})
        elif "id" in message:
            error = {"code": -32601, "message": "no such method"}
            answer = json.dumps({"jsonrpc": "2.0", "id": message["id"], "error": error})
        else:
            status, answer = "202 Accepted", ""
        writer.write(
            f"HTTP/1.1 {status}\r\ncontent-type: application/json\r\n"
            f"content-length: {len(answer)}\r\n\r\n{answer}".encode()
        )
        await writer.drain()


# ── the child ───────────────────────────────────────────────────────────────────────────────


async def _longest_block(stop: asyncio.Event) -> float:
    longest = 0.0
    while not stop.is_set():
        before = time.perf_counter()
        await asyncio.sleep(0.001)
        longest = max(longest, time.perf_counter() - before - 0.001)
    return longest


async def _provider(kind: str, url: str) -> Callable[[], Any]:
    base = f"{url}/v1" if kind.startswith("openai") else url
    model = ADAPTERS[kind](  # type: ignore[index]
        "hostile", base_url=base, api_key=KEY, idle_timeout=1.0
    )

    async def attack() -> None:
        await Agent(model).chat("Hello.")

    return attack


async def _child(kind: str, url: str, warm: str) -> None:
    """Attack a client of this kind, after a warm-up at a harmless address that imports the SDK."""
    async with asyncio.timeout(120):
        if kind == "mcp":
            await _attack_mcp(url)
            return
        with suppress(Exception):
            await (await _provider(kind, warm))()
        await _measured(await _provider(kind, url))


async def _attack_mcp(url: str) -> None:
    model = ScriptedModel(call("attack"), "Done.")
    agent = Agent(model)
    async with connect(agent, MCPServer.http(f"{url}/mcp", label="hostile", timeout=10)):

        async def attack() -> None:
            response = await agent.chat("Go.")
            raise RuntimeError(str(response.tool_results)[:300])

        await _measured(attack)


async def _measured(attack: Callable[[], Any]) -> None:
    stop = asyncio.Event()
    watch = asyncio.ensure_future(_longest_block(stop))
    await asyncio.sleep(0.01)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    began = time.perf_counter()
    outcome = "answered"
    try:
        await attack()
    except Exception as exc:
        outcome = f"{type(exc).__name__}: {exc}"
    seconds = time.perf_counter() - began
    stop.set()
    block = await watch
    peak = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024
    figures = {"peak": peak, "block": block, "seconds": seconds, "outcome": outcome[:200]}
    sys.stdout.write(json.dumps(figures) + "\n")


# ── the parent ──────────────────────────────────────────────────────────────────────────────


async def play(kind: str, attack: str, size: int) -> dict[str, Any]:
    """Play one attack against a client of this kind, and return the figures."""
    peer = Peer(attack, size, mcp=kind == "mcp")
    harmless = Peer("bomb: error", 1, mcp=False)
    async with peer.serving() as url, harmless.serving() as warm:
        child = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "tests.hostile_peers", "--child", kind, url, warm),
            cwd=ROOT,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
        try:
            out, error = await asyncio.wait_for(child.communicate(), 150)
        except TimeoutError:
            child.kill()
            await child.wait()
            return {"outcome": "no end within 150 s", "peak": 0, "block": 0, "seconds": 150}
    if not out.strip():
        raise RuntimeError(f"{kind}, {attack}: {error.decode()[-2000:]}")
    figures: dict[str, Any] = json.loads(out.splitlines()[-1])
    if peer.stolen:
        figures["outcome"] = f"LEAKED to another host {peer.stolen} times"
    return figures


def cases() -> list[tuple[str, str]]:
    """Return each client with each attack."""
    attacks = [*ATTACKS, "redirect", "slow comments"]
    return [(kind, attack) for kind in (*ADAPTERS, "mcp") for attack in attacks]


async def main(words: list[str], *, quick: bool) -> int:
    size = (48 if quick else 640) * MIB
    bad = 0
    for kind, attack in cases():
        if words and not any(word in f"{kind} {attack}" for word in words):
            continue
        figures = await play(kind, attack, size)
        over = figures["peak"] > MEMORY or figures["block"] > BLOCK * (SLACK if quick else 1)
        over = over or figures["outcome"].startswith(("LEAKED", "no end", "TimeoutError"))
        bad += over
        sys.stdout.write(
            f"{'OVER ' if over else 'ok   '} {kind:12} {attack:16} {figures['peak']:7.1f} MiB "
            f"{figures['block'] * 1000:7.0f} ms {figures['seconds']:6.1f} s  "
            f"{figures['outcome'][:90]!r}\n"
        )
        sys.stdout.flush()
    return 1 if bad else 0


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--child", nargs=3)
    parser.add_argument("words", nargs="*")
    options = parser.parse_args()
    if options.child:
        asyncio.run(_child(*options.child))
    else:
        raise SystemExit(asyncio.run(main(options.words, quick=options.quick)))
