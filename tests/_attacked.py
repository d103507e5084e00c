"""A client that a hostile peer attacks, in a process of its own; begun by tests/hostile_peers.py.

The process is forked from one that has imported the SDKs, so the attack is most of what it does. It
reports its figures to an address.
"""

from __future__ import annotations

import asyncio
import gc
import json
import sys
import time
import traceback
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlencode, urlsplit

from tests._wires import ADAPTERS
from tests.hostile_peers import FITS, MIB, PRESETS, Parts, model_at, request_of
from tests.web._server import TOKEN, serve

from hookline import Agent
from hookline.mcp import MCPServer, connect, oauth
from hookline.testing import ScriptedModel, call
from hookline.web import app


async def main(kind: str, url: str, warm: str, attack: str, size: str, report_to: str) -> None:
    """Attack a client of this kind, and report the figures, or the error."""
    _reader, writer = await asyncio.open_connection("127.0.0.1", int(report_to))
    try:
        async with asyncio.timeout(120):
            report = json.dumps(await _attacked(kind, url, warm, attack, int(size)))
    except Exception:
        report = traceback.format_exc()
    writer.write(report.encode())
    await writer.drain()
    writer.close()
    await writer.wait_closed()


async def _attacked(kind: str, url: str, warm: str, attack: str, size: int) -> dict[str, Any]:
    """Attack after a warm-up at a harmless address, which imports what is not imported yet."""
    if kind in ADAPTERS or kind in PRESETS:
        with suppress(Exception):
            await _ask(kind, warm)
        return await _measured(partial(_ask, kind, url))
    if kind.startswith("web"):
        return await _attack_web(kind.partition(": ")[2], attack, size)
    return await _attack_mcp(kind, url, warm, attack, size)


async def _ask(kind: str, url: str) -> None:
    await Agent(model_at(kind, url)).chat("Hello.")


async def _attack_mcp(kind: str, url: str, warm: str, attack: str, size: int) -> dict[str, Any]:
    """Call the tool of a server, which is the attack; with a login, connect to it."""
    program = (sys.executable, "-m", "tests.hostile_peers", "--program", attack)
    match kind:
        case "mcp":
            server = MCPServer.http(f"{url}/mcp", label="hostile", timeout=10)
            harmless = MCPServer.http(f"{warm}/mcp", label="harmless", timeout=10)
        case "mcp: program":
            server = MCPServer.stdio(*program, str(size), label="hostile", timeout=10)
            harmless = MCPServer.stdio(*program, "1", label="harmless", timeout=10)
        case _:
            server, harmless = [
                MCPServer.http(f"{at}/mcp", label="hostile", auth=oauth(f"{at}/mcp", login=_log_in))
                for at in (url, warm)
            ]
    with suppress(Exception):
        await _call_of(harmless)
    return await _measured(partial(_call_of, server))


def _log_in(address: str) -> str:
    state = parse_qs(urlsplit(address).query)["state"][0]
    return f"http://127.0.0.1:8765/callback?{urlencode({'code': 'c', 'state': state})}"


async def _call_of(server: MCPServer) -> None:
    agent = Agent(ScriptedModel(call("attack"), "Done."))
    async with connect(agent, server):
        response = await agent.chat("Go.")
        raise RuntimeError(str(response.tool_results)[:300])


async def _attack_web(protocol: str, attack: str, size: int) -> dict[str, Any]:
    """Send a hostile request to the web application: one that is too large, or one that fits."""
    site = app(Agent(ScriptedModel(*["Yes."] * 9)), token=TOKEN)
    async with serve(site) as url:
        port = int(url.rpartition(":")[2])

        async def send(body: Parts) -> str:
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            head = (
                f"POST /{protocol} HTTP/1.1\r\nhost: 127.0.0.1\r\nconnection: close\r\n"
                f"authorization: Bearer {TOKEN}\r\ncontent-type: application/json\r\n"
                "transfer-encoding: chunked\r\n\r\n"
            )
            writer.write(head.encode())
            with suppress(ConnectionError):
                for part in body:
                    writer.write(f"{len(part):x}\r\n".encode() + part + b"\r\n" if part else b"")
                    await writer.drain()
                writer.write(b"0\r\n\r\n")
            answer = b""
            with suppress(ConnectionError):
                answer = await reader.read(200)
            writer.close()
            return answer.decode(errors="replace").partition("\r\n")[0]

        async def hostile() -> None:
            answers = [await send(request_of(protocol, attack, size))]
            whole = b"".join(request_of(protocol, attack, 3 * MIB))
            answers.append(await send(iter([whole[:FITS]])))
            raise RuntimeError(" ".join(answers))

        await send(iter([b"{}"]))
        return await _measured(hostile)


def _memory(name: str) -> int:
    """Return a figure of this process in KiB. ru_maxrss would begin with the parent's."""
    status = Path("/proc/self/status").read_text(encoding="utf-8")
    return int(status.partition(f"{name}:")[2].split()[0])


def _memory_now() -> int:
    """Return the memory that is used now, and let the peak begin here."""
    gc.collect()
    Path("/proc/self/clear_refs").write_text("5", encoding="utf-8")
    return _memory("VmRSS")


async def _measured(attack: Callable[[], Any]) -> dict[str, Any]:
    before = _memory_now()
    stop = asyncio.Event()
    watch = asyncio.ensure_future(_longest_block(stop))
    await asyncio.sleep(0.01)
    began = time.perf_counter()
    outcome = "answered"
    try:
        await attack()
    except Exception as exc:
        outcome = f"{type(exc).__name__}: {exc}"
    seconds = time.perf_counter() - began
    stop.set()
    block, wall = await watch
    peak = (_memory("VmHWM") - before) / 1024
    figures: dict[str, Any] = {"peak": peak, "block": block, "wall": wall, "seconds": seconds}
    figures["outcome"] = outcome[:200]
    return figures


async def _longest_block(stop: asyncio.Event) -> tuple[float, float]:
    """Return the most CPU time, and the most time, between two turns of the event loop."""
    work = wall = 0.0
    while not stop.is_set():
        before = time.thread_time(), time.perf_counter()
        await asyncio.sleep(0.001)
        work = max(work, time.thread_time() - before[0])
        wall = max(wall, time.perf_counter() - before[1] - 0.001)
    return work, wall
