"""A relay between real processes: resumed at random places, a thousand streams, killed workers.

    python -m tests.web.relay_trial [--resumes 100] [--streams 1000] [--kills 20]

Everything is on the loopback and bounded. It prints counts, which must all be right, and what an
event costs the process that only shows it, beside what starlette alone takes for the same frames.
test_relay_trial.py runs it small. Run with `worker` or `least`, it is one of the processes.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import random
import signal
import socket
import sys
import tempfile
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import msgspec
import redis.asyncio
import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route
from tests.web._redis import clear, need_redis, new_prefix
from tests.web._server import eventually

from hookline import Agent, ModelRequest, UserMessage
from hookline.models import Chunk, Finish, TextChunk
from hookline.stores import SQLStore
from hookline.web import Caps, app
from hookline.web.relay import RedisRelay

TOKEN = "a-token-of-the-relay-trial"
HEADERS = {"authorization": f"Bearer {TOKEN}"}
LEASE = 2.0


# ── the workers ─────────────────────────────────────────────────────────────────────────────


class Paced:
    """Of a message `name count seconds` it says `name:0;`, `name:1;` …, so many seconds apart."""

    async def stream(self, request: ModelRequest, /) -> AsyncIterator[Chunk]:
        said = request.messages[-1]
        assert isinstance(said, UserMessage)
        name, count, pause = said.text.split()
        for number in range(int(count)):
            await asyncio.sleep(float(pause))
            yield TextChunk(f"{name}:{number};")
        yield Finish()


def whole(name: str, count: int) -> str:
    return "".join(f"{name}:{number};" for number in range(count))


def work(listener: int, url: str, prefix: str, file: str, lease: float) -> None:
    many = {"replay_bytes_per_principal": 2**30, "replay_bytes_total": 2**30}
    site = app(
        Agent(Paced()),
        token=TOKEN,
        store=SQLStore(f"sqlite:///{file}", lease=lease),
        on_disconnect="detach",
        relay=RedisRelay(url, prefix=prefix, lease=LEASE),
        caps=Caps(streams=5000, streams_per_principal=5000, drain=0.0, **many),
    )
    uvicorn.run(site, fd=listener, log_level="critical", access_log=False)


def least(listener: int, count: int, pause: float) -> None:
    """Starlette alone: to each client the same frames at the same pace, out of nothing."""
    text = '{"event":"text_delta","chat_id":"chat-0123456789abcdef","seq":%d,"iteration":0,'
    frame = f'id: 0123456789ab-%d\ndata: {text}"text":"c%s:%d;","at":%.1f}}\n\n'
    end = 'data: {"event":"chat_done","chat_id":"chat-0123456789abcdef","seq":%d}\n\n'

    async def frames(name: str) -> AsyncIterator[str]:
        for number in range(count):
            yield frame % (number, number, name, number, number * pause * 1000)
            await asyncio.sleep(pause)
        yield end % count

    async def stream(request: Request) -> Response:
        return StreamingResponse(
            frames(request.path_params["id"].removeprefix("c")), media_type="text/event-stream"
        )

    async def ready(request: Request) -> Response:
        return Response()

    routes = [Route("/native/{id}/stream", stream), Route("/conversations", ready)]
    uvicorn.run(Starlette(routes=routes), fd=listener, log_level="critical", access_log=False)


class Worker:
    """A process that serves, to be killed and begun again at the same address."""

    def __init__(self, kind: str, *arguments: object) -> None:
        self._socket = socket.socket()
        self._socket.bind(("127.0.0.1", 0))
        self._socket.listen(2048)
        self.port = self._socket.getsockname()[1]
        self.url = f"http://127.0.0.1:{self.port}"
        self._arguments = [kind, str(self._socket.fileno()), *map(str, arguments)]
        self.process: asyncio.subprocess.Process | None = None

    async def start(self) -> None:
        self.process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "tests.web.relay_trial", *self._arguments),
            pass_fds=[self._socket.fileno()],
            cwd=Path(__file__).parents[2],
            env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])},
        )
        async with httpx.AsyncClient(base_url=self.url, headers=HEADERS, timeout=60) as http:
            (await http.get("/conversations")).raise_for_status()

    @property
    def pid(self) -> int:
        assert self.process is not None
        return self.process.pid

    async def kill(self) -> None:
        assert self.process is not None
        self.process.send_signal(signal.SIGKILL)
        await self.process.wait()

    async def close(self) -> None:
        if self.process is not None and self.process.returncode is None:
            await self.kill()
        self._socket.close()


@asynccontextmanager
async def workers(count: int, lease: float = 30.0) -> AsyncIterator[tuple[list[Worker], str]]:
    prefix = new_prefix()
    with tempfile.TemporaryDirectory() as folder:
        async with AsyncExitStack() as stack:
            file = Path(folder) / "chats.db"
            made = [Worker("worker", need_redis(), prefix, file, lease) for _ in range(count)]
            for each in made:
                stack.push_async_callback(each.close)
                await each.start()
            yield made, prefix
    clear(prefix)


# ── the readers ─────────────────────────────────────────────────────────────────────────────


class Reader:
    """Reads a native stream to its end, and checks each event as it comes."""

    def __init__(self, worker: Worker, id: str, last: str = "") -> None:
        self._worker = worker
        self._id = id
        self._last = last
        self.text = ""
        self.events = 0
        self.gaps = 0
        self.end = ""
        self.ids: list[str] = []
        self.status = 0
        self._seq: int | None = None

    async def read(self) -> Reader:
        headers = f"Authorization: Bearer {TOKEN}\r\n"
        if self._last:
            headers += f"Last-Event-ID: {self._last}\r\n"
        reader, writer = await asyncio.open_connection("127.0.0.1", self._worker.port)
        try:
            writer.write(
                f"GET /native/{self._id}/stream HTTP/1.1\r\nHost: localhost\r\n"
                f"{headers}Connection: close\r\n\r\n".encode()
            )
            self.status = int((await reader.readline()).split()[1])
            while await reader.readline() != b"\r\n":
                pass
            if self.status == 200:
                await self._frames(reader)
        finally:
            writer.close()
        return self

    async def _frames(self, reader: asyncio.StreamReader) -> None:
        held = b""
        while size := int(await reader.readline() or b"0", 16):
            frames = (held + await reader.readexactly(size)).split(b"\n\n")
            await reader.readexactly(2)
            held = frames.pop()
            for frame in frames:
                if not frame.startswith(b":"):
                    self._take(frame)

    def _take(self, frame: bytes) -> None:
        head, _, data = frame.rpartition(b"data: ")
        event = msgspec.json.decode(data)
        kind = event["event"]
        if kind == "reload":
            self.end = "reload"
            return
        self.ids.append(head.decode().removeprefix("id: ").strip())
        self.gaps += self._seq is not None and event["seq"] != self._seq + 1
        self._seq = event["seq"]
        self.events += 1
        if kind == "text_delta":
            self.text += event["text"]
        elif kind in ("chat_done", "chat_aborted", "chat_failed"):
            self.end = kind


async def say(worker: Worker, id: str, text: str) -> None:
    """Send a message, and leave: the answer goes on."""
    body = json.dumps({"conversation": id, "message": text})
    reader, writer = await asyncio.open_connection("127.0.0.1", worker.port)
    writer.write(
        f"POST /native HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {TOKEN}\r\n"
        f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n{body}".encode()
    )
    status = int((await reader.readline()).split()[1])
    assert status == 200, status
    writer.close()


async def stored(worker: Worker, id: str) -> tuple[str, bool]:
    """The text of the last answer that is stored, and whether something runs."""
    async with httpx.AsyncClient(base_url=worker.url, headers=HEADERS, timeout=60) as http:
        found = (await http.get(f"/native/{id}/messages")).json()
    answers = [each for each in found["messages"] if each["role"] == "assistant"]
    text = "".join(part["text"] for part in answers[-1]["parts"]) if answers else ""
    return text, found["running"]


# ── the trials ──────────────────────────────────────────────────────────────────────────────


async def resumes(count: int) -> dict[str, Any]:
    """A chat of one worker is read at another, and again from random places, while it runs and
    after its end.
    """
    chance = random.Random(1)
    deltas = 300
    async with workers(2) as ((a, b), _):
        await say(a, "chat", f"x {deltas} 0.01")
        first = asyncio.create_task(Reader(b, "chat").read())
        early: list[asyncio.Task[Reader]] = []
        reading = Reader(b, "chat")
        follow = asyncio.create_task(reading.read())
        for _ in range(count // 2):
            await asyncio.sleep(deltas * 0.01 / (count // 2) / 2)
            if reading.ids:
                place = chance.choice(reading.ids)
                early.append(asyncio.create_task(Reader(b, "chat", place).read()))
        await follow
        ids = (await first).ids
        late = [
            asyncio.create_task(Reader(b, "chat", chance.choice(ids[:-1])).read())
            for _ in range(count - len(early))
        ]
        wrong = 0
        text = whole("x", deltas)
        for each in (*early, *late):
            found = await each
            start = ids.index(found._last) + 1
            right = found.ids == ids[start:] and text.endswith(found.text) and not found.gaps
            wrong += not (right and found.end == "chat_done")
        shown = (await first).text
        same = shown == text == (await stored(b, "chat"))[0]
    return {
        "resumed": count,
        "while it ran": len(early),
        "wrong": wrong,
        "whole text the same": same,
    }


def cpu(pid: int) -> float:
    """Seconds of CPU that a process has taken."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def connections(pid: int, port: int) -> int:
    """The connections of a process to a port."""
    sockets = set()
    for each in Path(f"/proc/{pid}/fd").iterdir():
        try:
            name = os.readlink(each)
        except OSError:
            continue
        if name.startswith("socket:["):
            sockets.add(name[8:-1])
    found = 0
    for line in Path("/proc/net/tcp").read_text().splitlines()[1:]:
        fields = line.split()
        to = int(fields[2].partition(":")[2], 16)
        found += to == port and fields[9] in sockets and fields[3] == "01"
    return found


async def streams(count: int, deltas: int = 40, pause: float = 1.0) -> dict[str, Any]:
    """So many chats of one worker are read at another at the same time."""
    port = redis.asyncio.connection.parse_url(need_redis())["port"]
    async with workers(2) as ((a, b), _):
        for some in range(0, count, 50):
            ids = range(some, min(some + 50, count))
            await asyncio.gather(*(say(a, f"c{n}", f"c{n} {deltas} {pause}") for n in ids))
        async with reading(b, count) as readers:
            rate, shown, ran = await cost(readers, 0.6 * deltas * pause, b, a)
            held = connections(b.pid, port)
        wrong = sum(each.text != whole(f"c{n}", deltas) for n, each in enumerate(readers))
    alone = await floor(count, deltas, pause)
    return {
        "streams": count,
        "events": _sum(readers),
        "gaps": sum(each.gaps for each in readers),
        "wrong texts": wrong,
        "connections to Redis": held,
        "events per second": rate,
        "µs of CPU an event, where it is shown": round(shown, 1),
        "µs of CPU an event, where it runs": round(ran, 1),
        "µs of CPU an event, of starlette alone": round(alone, 1),
        "times as much, where it is shown": round(shown / alone, 2),
    }


async def floor(count: int, deltas: int, pause: float) -> float:
    """CPU of an event where starlette alone writes the frames."""
    worker = Worker("least", deltas, pause)
    try:
        await worker.start()
        async with reading(worker, count) as readers:
            _, taken = await cost(readers, 0.6 * deltas * pause, worker)
    finally:
        await worker.close()
    return taken


@asynccontextmanager
async def reading(worker: Worker, count: int) -> AsyncIterator[list[Reader]]:
    """So many readers, which all have begun; waits for their end."""
    readers = [Reader(worker, f"c{n}") for n in range(count)]
    tasks = [asyncio.create_task(each.read()) for each in readers]
    await eventually(lambda: all(each.events for each in readers), 120)
    yield readers
    await asyncio.gather(*tasks)


async def cost(readers: list[Reader], seconds: float, *workers: Worker) -> list[float]:
    """The events of a second, and of each worker the CPU of an event, in microseconds."""
    events, began = _sum(readers), time.monotonic()
    before = [cpu(each.pid) for each in workers]
    await asyncio.sleep(seconds)
    events, past = _sum(readers) - events, time.monotonic() - began
    taken = [cpu(each.pid) - spent for each, spent in zip(workers, before, strict=True)]
    return [round(events / past), *(each / events * 1e6 for each in taken)]


def _sum(readers: list[Reader]) -> int:
    return sum(each.events for each in readers)


async def kills(count: int) -> dict[str, Any]:
    """A worker is killed while others show what it says: what they show is what is stored."""
    chance = random.Random(2)
    found = {"kills": count, "chats": 0, "cut, and reloaded": 0, "whole": 0, "wrong texts": 0}
    found["did not go on"] = 0
    async with workers(2, lease=3.0) as ((a, b), _):
        for turn in range(count):
            ids = [f"k{turn}-{n}" for n in range(5)]
            lengths = {id: chance.randrange(5, 60) for id in ids}
            await asyncio.gather(*(say(a, id, f"{id} {lengths[id]} 0.02") for id in ids))
            readers = {id: asyncio.create_task(Reader(b, id).read()) for id in ids}
            await asyncio.sleep(chance.uniform(0.0, 1.2))
            await a.kill()
            for id, reading in readers.items():
                shown = await reading
                text, running = await stored(b, id)
                found["chats"] += 1
                if shown.end == "chat_done":
                    found["whole"] += 1
                    right = shown.text == text == whole(id, lengths[id])
                elif shown.end == "reload" or shown.status == 204:
                    found["cut, and reloaded"] += 1  # what is shown then is what is stored
                    right = text in ("", whole(id, lengths[id])) and not running
                else:
                    right = False
                found["wrong texts"] += not right or shown.gaps > 0
            await a.start()
            found["did not go on"] += not await goes_on(b, ids[0])
    return found


async def goes_on(worker: Worker, id: str) -> bool:
    """The conversation takes the next message, once the lease of the dead worker has run out."""
    for _ in range(60):
        async with httpx.AsyncClient(base_url=worker.url, headers=HEADERS, timeout=60) as http:
            body = {"conversation": id, "message": "next 2 0"}
            answer = await http.post("/native", json=body)
        if answer.status_code == 200 and '"event":"chat_done"' in answer.text:
            return (await stored(worker, id))[0] == whole("next", 2)
        await asyncio.sleep(0.2)
    return False


def main() -> None:
    if sys.argv[1:2] == ["worker"]:
        listener, url, prefix, file, lease = sys.argv[2:]
        work(int(listener), url, prefix, file, float(lease))
        return
    if sys.argv[1:2] == ["least"]:
        listener, frames, pause = sys.argv[2:]
        least(int(listener), int(frames), float(pause))
        return
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--resumes", type=int, default=100)
    parser.add_argument("--streams", type=int, default=1000)
    parser.add_argument("--kills", type=int, default=20)
    asked = parser.parse_args()
    for trial, count in ((resumes, asked.resumes), (streams, asked.streams), (kills, asked.kills)):
        if count:
            found = asyncio.run(trial(count))  # type: ignore[operator]
            print(f"{trial.__name__}:", flush=True)
            for what, value in found.items():
                print(f"  {what}: {value}", flush=True)


if __name__ == "__main__":
    main()
