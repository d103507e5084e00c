"""What one worker and one engine hold: chats that wait, chats a second, bytes and writes of one.

`scripts/dev/durable-figures` prints them for each engine; docs/scale.md quotes them.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import json
import os
import resource
import sys
import time
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

import msgspec
from tests.durable._engines import NAMES, ROOT, Engine, Missing, places
from tests.durable._lethal import MAX_DEATHS, Interruptions, interruptions, supervised
from tests.durable.kills import lines_of

from hookline import Agent, Approve, Ask
from hookline.durable import Client
from hookline.durable._polled.claims import Selection
from hookline.durable.postgres._connection import Connections
from hookline.errors import RemoteChatError, StoreError, UsageError
from hookline.runtimes import Durable, Journal
from hookline.testing import ScriptedModel, call

COUNT = 100
WRITTEN: list[int] = []
_WORK = (
    "import asyncio, sys; from tests.durable.figures import work; asyncio.run(work(*sys.argv[1:]))"
)


class Weighed:
    """A log that weighs what is appended."""

    def __init__(self, log: Any) -> None:
        self._log = log
        self.read, self.answer, self.poke = log.read, log.answer, log.poke

    async def append(self, data: bytes) -> None:
        WRITTEN.append(len(data))
        await self._log.append(data)


def weigh() -> None:
    """Let all journals of this process weigh what they record."""
    opened = Journal.open

    async def weighed(chat_id: str, log: Any, worker: str = "") -> Journal:
        return await opened(chat_id, Weighed(log), worker)

    Journal.open = weighed  # type: ignore[method-assign, assignment]


async def look(place: str) -> str:
    """Look something up."""
    return f"{place}: fine"


def agent(asks: bool) -> Agent[Any]:
    class ByTurn:
        """One answer for each turn of a chat, whichever chat it is."""

        name = "scripted"

        def stream(self, request: Any) -> Any:
            turn = sum(message.role == "assistant" for message in request.messages)
            one = ScriptedModel(call("look", place="here") if turn == 0 else "It is fine here.")
            return one.stream(request)

    made: Agent[Any] = Agent(ByTurn(), tools=[look], runtime=Durable())
    if asks:
        made.add_hook("preToolCall", lambda ctx: Ask("Look?"))
    return made


async def flow(engine: Engine, **options: Any) -> dict[str, float]:
    """Chats a second of one worker, and what one of them writes."""
    async with engine.worker(agent(asks=False), **options), engine.client() as client:
        await client.result(await client.start("Go."))
        WRITTEN.clear()
        begun, cpu = time.perf_counter(), time.process_time()
        ids = await asyncio.gather(*[client.start("Go.") for _ in range(COUNT)])
        await asyncio.gather(*[client.result(id) for id in ids])
        seconds, used = time.perf_counter() - begun, time.process_time() - cpu
    return {
        "chats a second": COUNT / seconds,
        "ms of CPU a chat": 1000 * used / COUNT,
        "appends a chat": len(WRITTEN) / COUNT,
        "bytes a chat": sum(WRITTEN) / COUNT,
    }


async def waits(engine: Engine) -> dict[str, float]:
    """What chats that wait for an answer leave in the worker, once they are put aside."""
    async with engine.worker(agent(asks=True)) as worker, engine.client() as client:
        ids = [await client.start("Go.") for _ in range(COUNT)]
        for id in ids:
            await until_asked(client, id)
        await engine.at_rest(worker)
        for _ in range(2):  # the first collection runs finalizers, the second one frees
            gc.collect()
            await asyncio.sleep(0.05)
        held = sum(isinstance(each, Journal) for each in gc.get_objects())
        for id in ids:
            waiting = await client.pending(id)
            await client.answer(id, {waiting[0].id: Approve()})
        for id in ids:
            await client.result(id)
    return {f"chats in memory while {COUNT} wait": held}


async def until_asked(client: Client, id: str) -> None:
    while True:
        if await client.pending(id):
            return
        await asyncio.sleep(0.05)


async def work(name: str, address: str, options: str) -> None:
    """Work in a process of its own until it is killed."""
    module = import_module(f"hookline.durable.{name}")
    await module.chats(agent(asks=False), address, **json.loads(options)).run()


async def flow_of(engine: Engine, workers: int, chats: int) -> float:
    """Chats a second of several workers in processes of their own."""
    options = engine.options()
    if engine.name == "restate":  # as in production: with less, Restate cuts off a busy worker
        options["idle"] = 30.0
    arguments = [engine.name, engine.address, json.dumps(options)]
    program = [sys.executable, "-P", "-c", _WORK, *arguments]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    processes = [
        await asyncio.create_subprocess_exec(*program, cwd=ROOT, env=environment)
        for _ in range(workers)
    ]
    try:
        async with engine.client() as client:
            while True:  # Restate knows no chats before its first worker
                with suppress(UsageError, StoreError):
                    await client.start("Go.")
                    break
                await asyncio.sleep(0.1)
            await asyncio.gather(
                *[  # all of them are up
                    client.result(await client.start("Go.")) for _ in range(20 * workers)
                ]
            )
            ids = [f"chat-{n}" for n in range(chats)]
            begin = time.perf_counter()
            await asyncio.gather(*[client.start("Go.", chat_id=id) for id in ids])
            await asyncio.gather(*[client.result(id) for id in ids])
            return chats / (time.perf_counter() - begin)
    finally:
        for process in processes:
            process.kill()
            await process.wait()


async def least(engine: Engine, loops: int = 300) -> float:
    """Loops a second that do nothing but 12 inserts, one after the other, 100 at once."""
    database = engine.jobs().database
    await database.prepare()
    await database.fetch("CREATE TABLE IF NOT EXISTS least (id TEXT, n INTEGER, data TEXT)")

    async def one(id: int) -> None:
        async with limit:
            for n in range(12):
                sql = "INSERT INTO least (id, n, data) VALUES ($1, $2, $3)"
                await database.fetch(sql, str(id), n, "x" * 400)

    limit = asyncio.Semaphore(100)
    begin = time.perf_counter()
    await asyncio.gather(*map(one, range(loops)))
    seconds = time.perf_counter() - begin
    await database.fetch("DROP TABLE least")
    await database.aclose()
    return loops / seconds


async def idle(engine: Engine, parked: int, seconds: float = 5.0) -> float:
    """The share of a core that an idle worker takes beside parked chats."""
    jobs = engine.jobs()
    await jobs.add("up", "{}")
    await jobs.abort("up", "null")
    sql = (
        "WITH RECURSIVE n (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM n WHERE n < $2) "
        "INSERT INTO hookline_job (queue, id, input, priority, resting, created) "
        "SELECT $1, 'parked-' || CAST(n AS text), '{}', 0, TRUE, TIME() FROM n"
    )
    await jobs.database.fetch(sql, jobs.queue, parked)
    await jobs.aclose()
    async with engine.worker(agent(asks=False), poll=0.1):
        await asyncio.sleep(2.0)
        cpu = time.process_time()
        await asyncio.sleep(seconds)
        return 100 * (time.process_time() - cpu) / seconds


class Statements:
    """Counts the statements of the databases in this process, except those that only look."""

    def __init__(self, database: type[Any]) -> None:
        self._fetch, self._run = database.fetch, database.run
        database.fetch, database.run = self._patches()
        self._database = database
        self.count = 0

    def _patches(self) -> tuple[Any, Any]:
        counter = self

        async def fetch(self: Any, *values: Any, reads: bool = False) -> Any:
            counter.count += not reads
            return await counter._fetch(self, *values, reads=reads)

        async def run(self: Any, work: Any) -> Any:
            counter.count += 2  # BEGIN and COMMIT
            return await counter._run(self, lambda: counter._counted(work()))

        return fetch, run

    def _counted(self, work: Any) -> Any:
        try:
            statement = next(work)
            while True:
                self.count += 1
                statement = work.send((yield statement))
        except StopIteration as stop:
            return stop.value

    def end(self) -> None:
        self._database.fetch, self._database.run = self._fetch, self._run


async def statements_of(engine: Engine, chats: int) -> float:
    """The statements of a chat, from its start to its result, if so many run at once."""
    async with engine.worker(agent(asks=False)), engine.client() as client:
        await client.result(await client.start("Go."))
        statements = Statements(Connections)
        try:
            ids = await asyncio.gather(*[client.start("Go.") for _ in range(chats)])
            await asyncio.gather(*[client.result(id) for id in ids])
        finally:
            statements.end()
    return statements.count / chats


async def add_ended(engine: Engine, chats: int) -> None:
    """Add chats that have ended, each with the record of a small chat."""
    jobs = engine.jobs()
    await jobs.add("one", "{}")
    numbers = (
        "WITH RECURSIVE n (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM n WHERE n < $2), "
        "m (m) AS (SELECT 1 UNION ALL SELECT m + 1 FROM m WHERE m < 12) "
    )
    await jobs.database.fetch(
        f"{numbers} INSERT INTO hookline_job (queue, id, input, priority, created, ended, state, "
        "outcome) SELECT $1, 'ended-' || CAST(n AS text), '{}', 0, 1, 1, 'done', '{}' FROM n",
        jobs.queue,
        chats,
    )
    await jobs.database.fetch(
        f"{numbers} INSERT INTO hookline_job_log (queue, id, n, at, data) "
        "SELECT $1, 'ended-' || CAST(n AS text), m, 1, $3 FROM n, m",
        jobs.queue,
        chats,
        b"x" * 400,
    )
    await jobs.aclose()


async def clean(engine: Engine, chats: int) -> float:
    """Delete so many ended chats; returns the chats deleted a second."""
    await add_ended(engine, chats)
    async with engine.client() as client:
        begin = time.perf_counter()
        assert await client.cleanup(older_than=1.0) == chats
        return chats / (time.perf_counter() - begin)


async def turns(engine: Engine, foreign: int, count: int = 100) -> tuple[float, float]:
    """The statements and the milliseconds of CPU of a turn beside chats of other agents.

    Half of the chats are for any agent, but were refused by this worker's code.
    """
    jobs = engine.jobs()
    ids = [f"f{n}" for n in range(foreign)]
    await jobs.add("up", '{"agent":"theirs"}')
    for n, id in enumerate(ids):
        await jobs.add(id, '{"agent":"theirs"}' if n % 2 else "{}")
    await jobs.take("me", 0, ids[::2], Selection(agent="mine"))  # the first looks for dead workers
    statements = 0
    fetch, run = jobs.database.fetch, jobs.database.run

    async def fetched(*values: Any, **options: Any) -> Any:
        nonlocal statements
        statements += 1
        return await fetch(*values, **options)

    async def ran(work: Any) -> Any:
        nonlocal statements
        statements += 1
        return await run(work)

    jobs.database.fetch, jobs.database.run = fetched, ran  # type: ignore[method-assign]
    cpu = time.process_time()
    for _ in range(count):
        assert not await jobs.take("me", 100, ids[::2], Selection(agent="mine"))
    figures = statements / count, 1000 * (time.process_time() - cpu) / count
    await jobs.aclose()
    return figures


class Beside(NamedTuple):
    """What good chats went through beside a poison chat."""

    seconds: float
    down: float
    """The part of the time in which no worker was up."""
    deaths: int
    interruptions: Interruptions


async def beside(engine: Engine, work: float, poison: bool, count: int = 20) -> Beside:
    """Run good chats, beside a poison chat or alone; the tool of each takes `work` seconds."""
    good = [f"good-{n}" for n in range(count)]
    options = {"max_deaths": MAX_DEATHS, "idle": 30.0 if engine.name == "restate" else 0.1}
    with TemporaryDirectory() as directory:
        trace = Path(directory, "trace")
        async with (
            engine.client() as client,
            supervised(engine, trace, "tool", work, **options) as supervisor,
        ):
            while True:  # Restate knows no chats before its first worker
                with suppress(UsageError, StoreError):
                    await client.result(await client.start("Work."))
                    break
                await asyncio.sleep(0.1)
            begin, down = time.perf_counter(), supervisor.down
            for id in good[: count // 2] + ["poison"] * poison + good[count // 2 :]:
                await client.start("Work.", chat_id=id)
            for id in good:
                await client.result(id)
            seconds = time.perf_counter() - begin
            down, deaths = supervisor.down - down, supervisor.deaths
            if poison:
                with suppress(RemoteChatError):
                    await client.result("poison")
        return Beside(seconds, down, deaths, interruptions(lines_of(trace)))


async def many(name: str, where: Any, options: argparse.Namespace) -> None:
    """Print the figures of several workers, and of parked chats."""
    for workers in (1, 2, 4):
        rate = await flow_of(Engine(name, where), workers, options.chats)
        print(f"{name}: {rate:.4g} chats a second with {workers} workers")
    for work in (0.3, 1.0, 3.0):
        alone = await beside(Engine(name, where), work, poison=False)
        it = await beside(Engine(name, where), work, poison=True)
        up = it.seconds - it.down
        print(
            f"{name}: 20 good chats with a tool of {work} s end within {it.seconds:.3g} s beside "
            f"one that kills {it.deaths} workers; without the {it.down:.3g} s in which workers "
            f"started, that is {up / alone.seconds:.3g} times what they take alone; "
            f"{it.interruptions.first} were interrupted by the first death, "
            f"{it.interruptions.later} by later ones"
        )
    if name == "restate":  # its server finds the work
        return
    print(f"{name}: {await least(Engine(name, where)):.4g} loops of 12 inserts a second")
    for foreign in (0, 1000):
        statements, ms = await turns(Engine(name, where), foreign)
        print(
            f"{name}: {statements:g} statements and {ms:.3g} ms a turn beside {foreign} foreign "
            f"or refused chats: {ms:.3g} % of a core, with a turn every 100 ms"
        )
    rate = await clean(Engine(name, where), options.ended)
    minutes = 1e6 / rate / 60
    print(f"{name}: cleans up {rate:.4g} chats a second, so a million in {minutes:.2g} minutes")
    if name == "postgres":
        for chats in (1, COUNT):
            count = await statements_of(Engine(name, where), chats)
            print(f"postgres: {count:.3g} statements a chat, if {chats} run at once")
    share = await idle(Engine(name, where), options.parked)
    print(f"{name}: {share:.3g} % of a core, idle with {options.parked} parked chats")


def main() -> int:
    about = "Measures what one worker and one engine of durable chats hold, on each engine."
    parser = argparse.ArgumentParser("durable-figures", description=about)
    parser.add_argument("engine", nargs="*", help=f"of {', '.join(NAMES)}; all where none is named")
    parser.add_argument("--chats", type=int, default=400, help="for several workers")
    parser.add_argument("--parked", type=int, default=100_000, help="beside an idle worker")
    parser.add_argument("--ended", type=int, default=100_000, help="chats to clean up")
    options = parser.parse_args()
    weigh()
    with places(tuple(options.engine) or NAMES) as found:
        for name, where in found.items():
            if isinstance(where, Missing):
                print(f"{name}: not tried: {where}")
                continue
            told = {
                **asyncio.run(flow(Engine(name, where))),
                **asyncio.run(waits(Engine(name, where))),
            }
            print(f"{name}: " + ", ".join(f"{value:.4g} {what}" for what, value in told.items()))
            asyncio.run(many(name, where, options))
            if name == "sqlite":
                rate = asyncio.run(flow(Engine(name, where), synchronous="NORMAL"))
                print(f"sqlite, synchronous=NORMAL: {rate['chats a second']:.4g} chats a second")
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
    print(f"all of it in one process of {peak} MiB; msgspec {msgspec.__version__}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
