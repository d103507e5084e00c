"""Many streams at the same time, slow readers, and connections that break. Nothing is timed.

HOOKLINE_WEB_STREAMS sets how many streams there are (500).
"""

from __future__ import annotations

import asyncio
import gc
import logging
import os
import socket
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import pytest
from tests.web._load import Client, Foreseeable, expected, moments, site_of
from tests.web._server import TOKEN, client, conversation_of, eventually, serve
from tests.web._server import site_of as sited

from hookline import Agent, Limits
from hookline.testing import ScriptedModel, Turn
from hookline.web import Caps

pytestmark = pytest.mark.timeout(120)
STREAMS = int(os.environ.get("HOOKLINE_WEB_STREAMS", "500"))
DELTAS = 200
ROOMY = ("replay_bytes", "replay_bytes_per_principal", "replay_bytes_total")
OTHERS = 7  # the events of such an answer besides its deltas


def resident(pid: int) -> int:
    """Kilobytes of memory of a process."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1])
    raise AssertionError


@pytest.mark.skipif(sys.platform != "linux", reason="reads memory from /proc")
@pytest.mark.parametrize("mode", ["cancel", "detach"])
async def test_no_event_is_lost_or_doubled_in_many_streams(
    mode: str, record_property: pytest.RecordProperty
) -> None:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen(2048)
        port = listener.getsockname()[1]
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "tests.web._load", str(listener.fileno()), mode),
            pass_fds=[listener.fileno()],
            cwd=Path(__file__).parents[2],
        )
        try:
            warm = Client(port, "warm", 0)  # its answer waits for the others
            await warm.connect()
            await warm.opened()
            before = resident(process.pid)
            clients = [Client(port, f"c{number}", DELTAS) for number in range(STREAMS)]
            for some in range(0, STREAMS, 50):
                await asyncio.gather(*(each.connect() for each in clients[some : some + 50]))
            for each in clients:
                assert each.status == 200
                await each.opened()
            held = (resident(process.pid) - before) / STREAMS
            go = Client(port, "go", 0)
            await go.connect()
            await asyncio.gather(*(each.read() for each in clients))
            after = (resident(process.pid) - before) / STREAMS
            warm.close()
            go.close()
        finally:
            process.kill()
            await process.wait()
    assert [each.problems for each in clients if each.problems] == []
    assert {each.ended for each in clients} == {"chat_done"}
    assert {each.events for each in clients} == {DELTAS + OTHERS}
    assert sum(each.events for each in clients) == STREAMS * (DELTAS + OTHERS)
    for each in clients:
        assert each.hash.hexdigest() == expected(each.name, DELTAS)
    print(f"{mode}: {held:.1f} KiB for each open stream, {after:.1f} KiB after all were read")
    record_property(f"KiB per open stream, {mode}", round(held, 1))
    assert held < 400


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["cancel", "detach"])
async def test_slow_readers_do_not_hold_up_the_others(mode: str) -> None:
    slow_count, fast_count, long = 50, 50, 400
    padding = 10_000
    model = Foreseeable(padding)
    site = site_of(model, on_disconnect=mode, caps=dict.fromkeys(ROOMY, 1024 * 1024 * 1024))
    model.go.set()
    async with serve(site) as url:
        port = int(url.rpartition(":")[2])
        slow = [Client(port, f"s{n}", long) for n in range(slow_count)]
        for each in slow:
            await each.connect(receive_buffer=4096)
        fast = [Client(port, f"f{n}", 40) for n in range(fast_count)]
        for each in fast:
            await each.connect()
        await asyncio.gather(*(each.read() for each in fast))
        for each in fast:
            assert each.problems == []
            assert each.hash.hexdigest() == expected(each.name, 40, padding)
        lives = [site.runs._live[f"owner/{each.name}"] for each in slow]
        if mode == "cancel":  # each of them waits for its reader, and holds a bounded backlog
            assert all(not live.log.complete for live in lives)
            assert max(len(live.log) for live in lives) <= 16 + 1
        else:  # they wait for nobody
            await eventually(lambda: all(live.log.complete for live in lives), 60)
        for each in slow[:2]:  # and who reads on at last has missed nothing
            await each.read()
            assert each.problems == []
            assert each.hash.hexdigest() == expected(each.name, long, padding)
        for each in slow[2:]:
            each.reset()
        await eventually(lambda: len(site.runs) == 0, 20)


@pytest.mark.parametrize("mode", ["cancel", "detach"])
async def test_connections_that_break_at_random_leak_nothing(mode: str) -> None:
    model = Foreseeable()
    model.go.set()
    site = site_of(model, on_disconnect=mode, caps={"replay_ttl": 0.0})
    gc.collect()
    others, kinds = set(map(id, gc.get_objects())), set[type]()  # of what runs
    handles = len(os.listdir("/proc/self/fd")) if sys.platform == "linux" else 0
    async with serve(site) as url:
        port = int(url.rpartition(":")[2])
        tasks = len(asyncio.all_tasks())

        async def broken(number: int, after: int) -> None:
            client = Client(port, f"r{number}", 300)
            await client.connect()
            if (live := site.runs.find(f"owner/r{number}")) is not None:
                kinds.add(type(live))
                del live
            with suppress(asyncio.IncompleteReadError, ConnectionError):
                await client.reader.readexactly(after)
            client.reset()

        todo = list(enumerate(moments(200, seed=7)))
        for some in range(0, len(todo), 40):
            await asyncio.gather(*(broken(*each) for each in todo[some : some + 40]))
        await eventually(lambda: len(site.runs) == 0, 20)
        await eventually(lambda: not site.runs._live and len(asyncio.all_tasks()) <= tasks, 20)
        for number in range(200):
            kept = await site._config.store.open(f"owner/r{number}")
            assert not kept.busy
            if mode == "detach":
                assert kept.messages[-1].text.endswith("299;")
        assert not site.runs._principals
        last = Client(port, "last", DELTAS)  # and it still answers
        await last.connect()
        await last.read()
        assert last.hash.hexdigest() == expected("last", DELTAS)
    gc.collect()
    assert kinds
    assert [
        each for each in gc.get_objects() if type(each) in kinds and id(each) not in others
    ] == []
    if handles:
        assert len(os.listdir("/proc/self/fd")) <= handles


async def test_a_client_that_reads_nothing_leaves_no_error_in_the_log(
    caplog: pytest.LogCaptureFixture,
) -> None:
    class Lines(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            lines.append(record.getMessage())

    lines: list[str] = []
    caplog.set_level(logging.INFO, "hookline.web")
    agent = Agent(ScriptedModel(Turn(*["x" * 65_536] * 400)))
    async with sited(agent, caps=Caps(send=0.3, drain=0.0)) as (site, url):
        server, handler = logging.getLogger("uvicorn.error"), Lines()
        server.addHandler(handler)
        host = url.removeprefix("http://")
        body = b'{"message": "hi"}'
        head = (
            f"POST /native HTTP/1.1\r\nHost: {host}\r\nContent-Type: application/json\r\n"
            f"Authorization: Bearer {TOKEN}\r\nContent-Length: {len(body)}\r\n\r\n"
        )
        reader = socket.socket()
        reader.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        try:
            name, _, port = host.partition(":")
            await asyncio.to_thread(reader.connect, (name, int(port)))
            reader.sendall(head.encode() + body)
            await eventually(lambda: "accepted no data for 0.3 seconds" in caplog.text)
            await eventually(lambda: len(site.runs) == 0)
            await asyncio.sleep(0.05)  # the server's own task ends after the application's
        finally:
            reader.close()
            server.removeHandler(handler)
    assert lines == []


@asynccontextmanager
async def posted(
    url: str, id: str
) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
    """A connection that has sent a message, and has read nothing."""
    reader, writer = await asyncio.open_connection(
        "127.0.0.1", int(url.rpartition(":")[2]), limit=1024
    )
    body = f'{{"conversation": "{id}", "message": "hi"}}'
    head = (
        f"POST /native HTTP/1.1\r\nhost: 127.0.0.1\r\nauthorization: Bearer {TOKEN}\r\n"
        f"content-type: application/json\r\ncontent-length: {len(body)}\r\n\r\n"
    )
    writer.write(f"{head}{body}".encode())
    try:
        yield reader, writer
    finally:
        writer.transport.abort()


@pytest.mark.parametrize("mode", ["cancel", "detach"])
async def test_a_client_that_closes_its_sending_side_counts_as_gone(mode: str) -> None:
    """uvicorn closes such a connection, so `nc -N` gets nothing."""
    begun, gate = asyncio.Event(), asyncio.Event()

    async def wait() -> None:
        begun.set()
        await gate.wait()

    agent = Agent(ScriptedModel(Turn("Hello.", delay=wait), "Again."))
    async with (
        sited(agent, on_disconnect=mode) as (site, url),
        posted(url, "c1") as (reader, writer),
    ):
        await begun.wait()
        writer.write_eof()
        assert b"Hello." not in await reader.read()
        if mode == "detach":
            gate.set()
        await eventually(lambda: site.runs.find("owner/c1") is None)
        texts = [message.text for message in (await conversation_of(site, "c1")).messages]
        assert texts == (["hi"] if mode == "cancel" else ["hi", "Hello."])
        async with client(url) as http:  # and the conversation is free
            again = await http.post("/native", json={"conversation": "c1", "message": "And now?"})
            assert "Again." in again.text


@pytest.mark.parametrize("mode", ["cancel", "detach"])
async def test_a_client_that_never_reads_is_gone_after_a_while(mode: str) -> None:
    text = "x" * 10_000
    turn = Turn(*[text] * 2_000)  # more than the buffers of both ends
    caps = Caps(drain=0.0, send=0.2, replay_ttl=0.0, **dict.fromkeys(ROOMY, 2**30))
    agent = Agent(ScriptedModel(turn, "Again."), limits=Limits(answer_bytes=2**30))
    async with sited(agent, on_disconnect=mode, caps=caps) as (site, url), posted(url, "c1"):
        await eventually(lambda: site.runs.find("owner/c1") is not None)
        await eventually(lambda: len(site.runs) == 0, 60)
        stored = (await conversation_of(site, "c1")).messages
        whole = len(stored) > 1 and stored[1].text == text * 2_000
        assert whole == (mode == "detach")
        async with client(url) as http:
            again = await http.post("/native", json={"conversation": "c1", "message": "And now?"})
            assert "Again." in again.text
