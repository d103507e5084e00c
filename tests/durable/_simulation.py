"""Durable chats on many workers in one process, with a clock of its own and a network that fails.

Time passes only when nothing else is to be done. The network loses requests and answers, delays
them, and brings copies of requests late, after others. Workers die, are cut off for a while and go
on working meanwhile, and come back; the store is slow at times. All of it is drawn from one seed.
"""

from __future__ import annotations

import asyncio
import json
import random
import selectors
from collections import Counter
from typing import Any, Final

from hookline import Agent, Approve, Ask, MemoryStore, Run, Usage, tool
from hookline.errors import ConversationBusyError
from hookline.models import Finish, TextChunk, ToolCallChunk
from hookline.runtimes import Durable, Halted, Journal

LEASE: Final = 3.0
TURNS: Final[list[list[Any]]] = [
    ["Let me see, ", ("a", "lookup"), ("b", "charge"), ("c", "refund")],
    ["Done: ", "end."],
]
LAST: Final = "".join(TURNS[-1])


class _Clock(selectors.SelectSelector):
    """Where a loop would sleep, its time goes on."""

    def __init__(self) -> None:
        super().__init__()
        self.now = 0.0

    def select(self, timeout: float | None = None) -> Any:
        if timeout is None:
            raise RuntimeError("everybody waits, and nobody will ever do anything")
        self.now += timeout
        return super().select(0)


def loop_with_a_clock() -> asyncio.AbstractEventLoop:
    clock = _Clock()
    loop = asyncio.SelectorEventLoop(clock)
    loop.time = lambda: clock.now  # type: ignore[method-assign]
    return loop


def now() -> float:
    return asyncio.get_running_loop().time()


class Job:
    """One chat, as the engine keeps it."""

    def __init__(self, id: str, begins: float) -> None:
        self.id = id
        self.begins = begins
        self.log: list[bytes] = []
        self.owner: str | None = None
        self.until = 0.0
        self.text: str | None = None
        self.finished = 0
        self.asked: float | None = None  # since when a question waits


class Network:
    """Between workers and the engine."""

    def __init__(self, chance: random.Random) -> None:
        self.chance = chance
        self.counts: Counter[str] = Counter()
        self.late: set[asyncio.Task[None]] = set()

    async def call(self, worker: Worker, do: Any) -> Any:
        """Carry out a request and bring its answer; asked again until an answer comes."""
        while True:
            await worker.healed()
            await asyncio.sleep(self.chance.expovariate(200))
            kind = self.chance.random()
            if kind < 0.02:
                self.counts["requests lost"] += 1
            else:
                value = do()
                if kind < 0.05:  # a copy is brought later, after what is sent meanwhile
                    self.counts["requests reordered"] += 1
                    task = asyncio.create_task(self._again(do))
                    self.late.add(task)
                    task.add_done_callback(self.late.discard)
                if kind > 0.98:
                    self.counts["answers lost"] += 1
                else:
                    await asyncio.sleep(self.chance.expovariate(200))
                    return value
            await asyncio.sleep(0.2)

    async def _again(self, do: Any) -> None:
        await asyncio.sleep(self.chance.uniform(0.0, 2 * LEASE))
        do()


class Log:
    """The log of one chat, as one life has it."""

    def __init__(self, world: World, worker: Worker, job: Job, owner: str) -> None:
        self.world, self.worker, self.job, self.owner = world, worker, job, owner
        self.count = 0

    async def read(self) -> list[bytes]:
        found: list[bytes] = await self.world.network.call(self.worker, lambda: list(self.job.log))
        self.count = len(found)
        return found

    async def append(self, data: bytes) -> None:
        place = self.count
        self.count += 1
        if not await self.world.network.call(self.worker, lambda: self._add(place, data)):
            raise Halted

    def _add(self, place: int, data: bytes) -> bool:
        """At the engine: of its owner alone, and each batch once."""
        job = self.job
        if job.owner != self.owner:
            self.world.network.counts["appends refused"] += 1
            return False
        if place == len(job.log):
            job.log.append(data)
        return place < len(job.log) and job.log[place] == data

    async def answer(self, request: Any) -> Approve:
        if self.job.asked is None:
            self.job.asked = now()
        await asyncio.sleep(max(0.0, self.job.asked + 1.0 - now()))
        return Approve()

    def poke(self) -> None:
        """Nobody waits for it."""


class Worker:
    """Takes jobs, and lives their lives."""

    def __init__(self, world: World, number: int) -> None:
        self.world = world
        self.name = f"w{number}"
        self.taken = 0
        self.lives: dict[str, Journal] = {}
        self.cut_until = 0.0
        self.dead_until = 0.0

    async def healed(self) -> None:
        if now() < self.cut_until:
            await asyncio.sleep(self.cut_until - now())
            await self.healed()

    async def run(self) -> None:
        while self.world.open:
            if now() >= self.dead_until and now() >= self.cut_until:
                self._beat()
                self._take()
            await asyncio.sleep(LEASE / 4)

    def _beat(self) -> None:
        for owner, journal in list(self.lives.items()):
            job = self.world.jobs[journal.chat_id]
            if job.owner == owner:
                job.until = now() + LEASE
            else:
                journal.halt()

    def _take(self) -> None:
        for job in list(self.world.open.values()):
            if len(self.lives) >= 40:
                return
            if job.begins <= now() and (job.owner is None or job.until < now()):
                self.taken += 1
                job.owner = owner = f"{self.name}.{self.taken}"
                job.until = now() + LEASE
                self.world.network.counts["lives"] += 1
                task = asyncio.create_task(self._live(job, owner))
                self.world.living.add(task)
                task.add_done_callback(self.world.living.discard)

    async def _live(self, job: Job, owner: str) -> None:
        log = Log(self.world, self, job, owner)
        journal = await Journal.open(job.id, log)
        self.lives[owner] = journal
        try:
            response = await journal.carry(
                lambda: self.world.agent.chat(job.id, conversation=f"talk-{job.id}", chat_id=job.id)
            )
        except Halted:
            return
        except ConversationBusyError:  # never: a later life takes over
            self.world.network.counts["busy"] += 1
            return
        finally:
            del self.lives[owner]
        await self.world.network.call(self, lambda: self.world.finish(job, owner, response))

    def die(self, seconds: float) -> None:
        self.world.network.counts["deaths"] += 1
        self.dead_until = now() + seconds
        for journal in list(self.lives.values()):
            journal.halt()

    def cut_off(self, seconds: float) -> None:
        self.world.network.counts["partitions"] += 1
        self.cut_until = now() + seconds


class SlowStore(MemoryStore):
    """A store that takes its time, and sometimes much of it."""

    chance: random.Random

    async def append(self, *args: Any, **kwargs: Any) -> Any:
        slow = self.chance.random() < 0.02
        await asyncio.sleep(self.chance.uniform(1.0, 4.0) if slow else 0.005)
        return await super().append(*args, **kwargs)


class _Model:
    name = "simulated"

    def __init__(self, world: World) -> None:
        self._world = world

    async def stream(self, request: Any) -> Any:
        turn = sum(message.role == "assistant" for message in request.messages)
        self._world.note(request.messages[0].text, f"step/{turn}/model")
        calls = 0
        for part in TURNS[turn]:
            await asyncio.sleep(self._world.chance.uniform(0.1, 1.0))
            if isinstance(part, str):
                yield TextChunk(part)
            else:
                id, name = part
                yield ToolCallChunk(index=calls, id=id, name=name, arguments=json.dumps({"q": id}))
                calls += 1
        usage = Usage(input_tokens=1, output_tokens=1)
        yield Finish(finish_reason="tool_calls" if calls else "stop", usage=usage)


class World:
    """What outlives the workers: the engine, the store, and what has happened."""

    def __init__(self, seed: int, chats: int, workers: int) -> None:
        self.chance = random.Random(seed)
        self.network = Network(random.Random(seed + 1))
        self.store = SlowStore()
        self.store.chance = random.Random(seed + 2)
        self.jobs = {f"chat-{n}": Job(f"chat-{n}", n / 15) for n in range(chats)}
        self.living: set[asyncio.Task[None]] = set()
        self.open = dict(self.jobs)
        self.began: Counter[tuple[str, str]] = Counter()
        self.repeated = 0
        self.agent = self._agent()
        self.workers = [Worker(self, n) for n in range(workers)]

    def note(self, id: str, step: str) -> None:
        """A model or a tool begins: its end must not be in the record."""
        self.began[id, step] += 1
        end = f'"kind":"end","key":"{step}"'.encode()
        self.repeated += any(end in data for data in self.jobs[id].log)

    def finish(self, job: Job, owner: str, response: Any) -> None:
        if job.owner == owner and job.text is None:
            job.text = response.text
            job.finished += 1
            self.open.pop(job.id, None)

    def _agent(self) -> Agent[Any]:
        def work(name: str, idempotent: bool) -> Any:
            async def fn(q: str, run: Run[Any]) -> str:
                self.note(run.chat_id, f"step/0/call/{q}/run")
                await asyncio.sleep(self.chance.uniform(0.1, 2.0))
                return f"{name} {q}"

            fn.__name__ = name
            return tool(idempotent=idempotent, description=name)(fn)

        agent: Agent[Any] = Agent(
            _Model(self),
            tools=[work("lookup", True), work("charge", False), work("refund", False)],
            runtime=Durable(),
            store=self.store,
        )
        agent.add_hook(
            "preToolCall", lambda ctx: Ask("Refund?") if ctx.call.name == "refund" else None
        )
        return agent

    async def run(self) -> None:
        """Until all chats have ended."""
        running = [asyncio.create_task(worker.run()) for worker in self.workers]
        while self.open:
            await asyncio.sleep(self.chance.uniform(0.1, 0.5))
            worker = self.chance.choice(self.workers)
            if self.chance.random() < 0.5:
                worker.die(self.chance.uniform(0.5, 3 * LEASE))
            else:
                worker.cut_off(self.chance.uniform(0.5, 3 * LEASE))
        await asyncio.gather(*running)
        await asyncio.sleep(20 * LEASE)  # what sleeps wakes up, and finds that it is over
