"""Many streams at the same time, slow readers, and connections that break. Nothing is timed.

HOOKLINE_WEB_STREAMS sets how many streams there are (500).
"""

from __future__ import annotations

import asyncio
import gc
import os
import socket
import sys
from contextlib import suppress
from pathlib import Path

import pytest
from tests.web._load import Client, Foreseeable, expected, moments, site_of
from tests.web._server import eventually, serve

from hookline.web._runs.run import BACKLOG, Live

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
            assert all(not live.log.ended for live in lives)
            assert max(len(live.log) for live in lives) <= BACKLOG + 1
        else:  # they wait for nobody
            await eventually(lambda: all(live.log.ended for live in lives), 60)
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
    handles = len(os.listdir("/proc/self/fd")) if sys.platform == "linux" else 0
    async with serve(site) as url:
        port = int(url.rpartition(":")[2])
        tasks = len(asyncio.all_tasks())

        async def broken(number: int, after: int) -> None:
            client = Client(port, f"r{number}", 300)
            await client.connect()
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
    assert [each for each in gc.get_objects() if type(each) is Live] == []
    if handles:
        assert len(os.listdir("/proc/self/fd")) <= handles
