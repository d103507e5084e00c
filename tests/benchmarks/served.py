"""Served: what a delta costs a server, beside a bare Starlette endpoint that writes as many events.

The server is a process of its own under uvicorn, which says how much CPU it has taken; requests to
it go by turns. A delta comes each time that the event loop has gone round, as tokens come one by
one. Ours runs the chat, too: the model's chunks, the loop, the run and its backlog.

Where pydantic-ai is installed (`pip install "pydantic-ai-slim[ag-ui]"`), its adapters of the same
two protocols stand beside ours: an agent of its own says the same words.
"""

from __future__ import annotations

import asyncio
import json
import socket
import sys
from collections.abc import AsyncIterator, Iterator
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from hookline import Agent
from hookline.models import Chunk, Finish, ModelRequest, TextChunk
from hookline.web import Caps, app

from .measure import Options, Row, micros, ratio_row

NAME = "Wire"
DELTAS = 4000
TOKEN = "a-token-of-the-benchmark"
TARGET = 1.5
PROTOCOLS = ("native", "ai-sdk", "ag-ui")
THEIRS = {"ai-sdk": "/theirs/ai-sdk", "ag-ui": "/theirs/ag-ui"} if find_spec("pydantic_ai") else {}


class Model:
    """Says many words, one for each turn of the event loop."""

    async def stream(self, request: ModelRequest, /) -> AsyncIterator[Chunk]:
        for number in range(DELTAS):
            await asyncio.sleep(0)
            yield TextChunk(f"word{number} ")
        yield Finish()


def serve(listener: int) -> None:
    """The server: `/bare`, `/cpu` and ours."""
    import time

    import uvicorn
    from starlette.applications import Starlette
    from starlette.requests import Request
    from starlette.responses import PlainTextResponse, StreamingResponse
    from starlette.routing import Mount, Route

    async def frames() -> AsyncIterator[bytes]:
        for number in range(DELTAS):
            await asyncio.sleep(0)
            event = {"type": "text-delta", "id": "text0", "delta": f"word{number} "}
            yield b"data: %b\n\n" % json.dumps(event, separators=(",", ":")).encode()

    async def bare(request: Request) -> StreamingResponse:
        await request.body()
        return StreamingResponse(frames(), media_type="text/event-stream")

    async def cpu(request: Request) -> PlainTextResponse:
        return PlainTextResponse(str(time.process_time_ns()))

    routes = [Route("/bare", bare, methods=["POST"]), Route("/cpu", cpu)]
    routes += [Route(path, theirs(name), methods=["POST"]) for name, path in THEIRS.items()]
    site = app(Agent(Model()), token=TOKEN, caps=Caps(drain=0.0))
    everything = Starlette(routes=[*routes, Mount("/ours", site)])
    uvicorn.run(everything, fd=listener, log_level="critical", access_log=False)


def theirs(protocol: str) -> Any:
    """An endpoint of pydantic-ai's adapter."""
    door = "vercel_ai" if protocol == "ai-sdk" else "ag_ui"
    ui: Any = import_module(f"pydantic_ai.ui.{door}")
    adapter = ui.VercelAIAdapter if protocol == "ai-sdk" else ui.AGUIAdapter
    models: Any = import_module("pydantic_ai.models.function")
    package: Any = import_module("pydantic_ai")

    async def words(messages: Any, info: Any) -> AsyncIterator[str]:
        for number in range(DELTAS):
            await asyncio.sleep(0)
            yield f"word{number} "

    agent = package.Agent(models.FunctionModel(stream_function=words))

    async def endpoint(request: Any) -> Any:
        return await adapter.dispatch_request(request, agent=agent)

    return endpoint


async def ask(port: int, method: str, path: str, body: Any = None) -> bytes:
    """One request, and all of its answer."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    data = b"" if body is None else json.dumps(body).encode()
    head = (
        f"{method} {path} HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {TOKEN}\r\n"
        f"Content-Type: application/json\r\nContent-Length: {len(data)}\r\n"
        "Connection: close\r\n\r\n"
    )
    writer.write(head.encode() + data)
    answer = await reader.read(-1)
    writer.close()
    return answer


def said(protocol: str, number: int) -> tuple[str, Any]:
    """A request to one of ours."""
    id = f"{protocol}{number}"
    if protocol == "native":
        return "/ours/native", {"conversation": id, "message": "go"}
    text = {"id": "u", "role": "user"}
    if protocol == "ai-sdk":
        message = {**text, "parts": [{"type": "text", "text": "go"}]}
        return "/ours/ai-sdk", {"trigger": "submit-message", "id": id, "messages": [message]}
    message = {**text, "content": "go"}
    run: dict[str, Any] = {"threadId": id, "runId": "r", "state": {}, "tools": [], "context": []}
    return "/ours/ag-ui", {**run, "forwardedProps": {}, "messages": [message]}


async def measure(port: int, times: int) -> dict[str, list[int]]:
    """The server's CPU for each request, by turns, after an unmeasured round."""

    async def taken(path: str, body: Any) -> int:
        before = int((await ask(port, "GET", "/cpu")).rpartition(b"\r\n")[2])
        answer = await ask(port, "POST", path, body)
        assert answer.count(b"word") >= DELTAS, answer[:200]
        return int((await ask(port, "GET", "/cpu")).rpartition(b"\r\n")[2]) - before

    samples: dict[str, list[int]] = {name: [] for name in ("bare", *PROTOCOLS, *THEIRS.values())}
    asked = {path: protocol for protocol, path in THEIRS.items()}
    for number in range(times + 1):
        for name, found in samples.items():
            path, body = ("/bare", None) if name == "bare" else said(asked.get(name, name), number)
            path = name if name in asked else path
            cost = await taken(path, body)
            if number:
                found.append(cost)
    return samples


async def with_server(times: int) -> dict[str, list[int]]:
    """The samples, of a server that is begun for them."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "tests.benchmarks.served", str(listener.fileno())),
            pass_fds=[listener.fileno()],
            cwd=Path(__file__).parents[2],
        )
        try:
            return await measure(listener.getsockname()[1], times)
        finally:
            process.kill()
            await process.wait()


def rows(options: Options) -> Iterator[Row]:
    samples = asyncio.run(with_server(options.times(15)))
    for protocol in PROTOCOLS:
        yield ratio_row(
            NAME,
            f"{protocol}: a delta, by HTTP",
            micros(samples["bare"], DELTAS),
            micros(samples[protocol], DELTAS),
            target=TARGET,
        )
    for protocol, path in THEIRS.items():
        yield ratio_row(
            NAME,
            f"{protocol}: a delta, beside pydantic-ai's adapter",
            micros(samples[path], DELTAS),
            micros(samples[protocol], DELTAS),
        )
    if not THEIRS:
        print("Wire: skipped the rows beside pydantic-ai's adapters; it is not installed")


if __name__ == "__main__":
    serve(int(sys.argv[1]))
