"""Many streams: a server as a process of its own, and a client that costs little.

Run as a program it serves an agent whose answers the client can foresee: of a message `name n` it
says `name:0;`, `name:1;` … up to n, once somebody has said `go`.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import random
import socket
import struct
import sys
from collections.abc import AsyncIterator
from typing import Any

import msgspec
import uvicorn

from hookline import Agent, ModelRequest, UserMessage
from hookline.models import Chunk, Finish, TextChunk
from hookline.web import Caps, Site, app

TOKEN = "a-token-of-the-load-test"


class Foreseeable:
    """A model without a delay of its own."""

    def __init__(self, padding: int = 0) -> None:
        self.go = asyncio.Event()
        self.padding = "." * padding

    async def stream(self, request: ModelRequest) -> AsyncIterator[Chunk]:
        said = request.messages[-1]
        assert isinstance(said, UserMessage)
        name, _, count = said.text.partition(" ")
        if name == "go":
            self.go.set()
        await self.go.wait()
        for number in range(int(count or 0)):
            yield TextChunk(f"{name}:{number};{self.padding}")
            if number % 8 == 7:
                await asyncio.sleep(0)
        yield Finish()


def expected(name: str, count: int, padding: int = 0) -> str:
    """The hash of what it says to `name count`."""
    text = "".join(f"{name}:{number};{'.' * padding}" for number in range(count))
    return hashlib.sha256(text.encode()).hexdigest()


def site_of(model: Foreseeable, **options: Any) -> Site:
    caps = Caps(streams=2000, streams_per_principal=2000, drain=0.0, **options.pop("caps", {}))
    return app(Agent(model), token=TOKEN, caps=caps, **options)


class Client:
    """One request over a bare socket, read as slowly as one likes."""

    def __init__(self, port: int, name: str, count: int, path: str = "/native") -> None:
        self.name = name
        self.count = count
        self._port = port
        self._path = path
        self._held = b""
        self.events = 0
        self.status = 0
        self.hash = hashlib.sha256()
        self.problems: list[str] = []
        self.ended = ""

    async def connect(self, receive_buffer: int | None = None) -> None:
        sock = socket.socket()
        if receive_buffer is not None:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
        sock.setblocking(False)
        await asyncio.get_running_loop().sock_connect(sock, ("127.0.0.1", self._port))
        limit = {"limit": 4096} if receive_buffer is not None else {}
        self.reader, self.writer = await asyncio.open_connection(sock=sock, **limit)
        said = {"conversation": self.name, "message": f"{self.name} {self.count}"}
        body = json.dumps(said).encode()
        head = (
            f"POST {self._path} HTTP/1.1\r\nhost: localhost\r\nauthorization: Bearer {TOKEN}\r\n"
            f"content-type: application/json\r\ncontent-length: {len(body)}\r\n"
            "connection: close\r\n\r\n"
        )
        self.writer.write(head.encode() + body)
        line = await self.reader.readline()
        self.status = int(line.split()[1])
        while await self.reader.readline() != b"\r\n":
            pass

    async def opened(self) -> None:
        """Read the first comment: the run is there."""
        assert (await self._piece()).startswith(b": open\n\n")

    async def _piece(self) -> bytes:
        size = int(await self.reader.readline(), 16)
        piece = await self.reader.readexactly(size)
        await self.reader.readexactly(2)
        return piece

    async def read(self) -> None:
        """Read to the end, and check each event as it comes."""
        while piece := await self._piece():
            frames = (self._held + piece).split(b"\n\n")
            self._held = frames.pop()
            for frame in frames:
                self._take(frame)
        if self._held:
            self.problems.append("a frame is not ended")
        self.close()

    def _take(self, frame: bytes) -> None:
        if frame.startswith(b":"):
            return
        head, _, data = frame.partition(b"\ndata: ")
        event = msgspec.json.decode(data)
        if event["seq"] != self.events + 1 or not head.endswith(b"-%d" % self.events):
            self.problems.append(f"event {event['seq']} ({head!r}) after {self.events}")
        if self.ended:
            self.problems.append("an event after the end")
        self.events += 1
        if event["event"] == "text_delta":
            self.hash.update(event["text"].encode())
        elif event["event"].startswith("chat_") and event["event"] != "chat_started":
            self.ended = event["event"]

    def reset(self) -> None:
        """Break the connection off, as a phone in a tunnel does."""
        sock = self.writer.get_extra_info("socket")
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.writer.transport.abort()

    def close(self) -> None:
        self.writer.close()


def moments(count: int, seed: int) -> list[int]:
    """After how many bytes each of so many connections is reset: at once, early or late."""
    chance = random.Random(seed)
    return [
        chance.choice((0, chance.randrange(400), chance.randrange(30_000))) for _ in range(count)
    ]


if __name__ == "__main__":
    uvicorn.run(
        site_of(Foreseeable(), on_disconnect=sys.argv[2]),
        fd=int(sys.argv[1]),
        log_level="error",
        access_log=False,
    )
