"""Durable chats whose workers are killed, or stopped for a while; counts what is wrong with them.

`scripts/dev/durable-kills restate --chats 60` runs two workers and shoots one of them every second
or two until all chats have ended. Beside them, a chat that kills its workers must be quarantined,
chats that are aborted before they start must not run, and a clean-up runs all the time; none of
this may cost another chat anything. `--stop 6` stops one past its lease instead and lets it go on;
`--restart` kills the server of Restate or PostgreSQL, too, and starts it again. `--deploy` changes
the code with each kill: hooks come and go. `--addresses` gives each worker of Restate an address of
its own, which dies with it. With `--relay` the workers show their chats in a Redis, and what was
shown is compared with what is stored. It prints a line of counts for each engine and exits 1 where
something is wrong.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import random
import signal
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Container
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

import redis.asyncio
from tests._postgres import database_of_our_own
from tests.durable import _worker
from tests.durable._engines import NAMES, ROOT, Engine, Missing, free_port, places
from tests.durable._streams import runs_of, text_of, text_shown, told_twice
from tests.web._redis import URL as REDIS
from tests.web._redis import clear, new_prefix

from hookline import Approve, Response, check_history
from hookline.durable._client import Client
from hookline.errors import (
    ApprovalError,
    ChatAbortedError,
    HooklineError,
    RemoteChatError,
    StoreError,
    UsageError,
)
from hookline.stores import SQLStore

POINTS = ("onChatStart", "preChat", "preRequest", "onResponse", "onMessage", "onApproval",
          "onToolCallResult", "onStep", "preStop", "onChatEnd")  # fmt: skip
ROLES = ["user", "assistant", *["tool"] * 3, "assistant", "tool", "assistant"]
CALLS = {"a": "lookup", "b": "charge", "c": "refund", "d": "lookup"}
LIMIT = 300.0  # seconds after which a step of a trial hangs


class Workers:
    """Two workers in processes of their own, to be shot, or stopped for a while."""

    def __init__(
        self, engine: Engine, more: list[str], *, deploy: bool = False, addresses: bool = False
    ) -> None:
        self._engine = engine
        self._more = more
        self._deploy = deploy
        self._addresses = addresses and engine.name == "restate"
        self._running = [self._begin(), self._begin()]
        self.count = 0
        self.shots = 0

    def _begin(self) -> subprocess.Popen[bytes]:
        if self._addresses:
            self._engine.port = free_port()
        arguments = [*self._engine.arguments(), *self._more]
        command = [sys.executable, "-P", "-m", "tests.durable._worker", *arguments]
        environment = {**os.environ, "PYTHONPATH": str(ROOT)}
        if self._deploy:
            environment["DEPLOYED"] = " ".join(each for each in POINTS if random.random() < 0.5)
        return subprocess.Popen(command, cwd=ROOT, env=environment, stderr=subprocess.DEVNULL)

    def revive(self) -> None:
        """Begin another in the place of each that has died by itself."""
        for place, worker in enumerate(self._running):
            if worker.poll() is not None:
                self._running[place] = self._begin()
                self.count += 1

    def are_up(self, working: Container[str]) -> bool:
        """Whether all of them are among the processes that have worked, also on a slow machine."""
        return all(str(worker.pid) in working for worker in self._running)

    def shoot(self, working: Container[str] | None = None) -> None:
        """Kill one and begin another in its place; with `working`, only a process among these."""
        places = [
            place
            for place, worker in enumerate(self._running)
            if working is None or str(worker.pid) in working
        ]
        if not places:
            return
        place = random.choice(places)
        self._running[place].send_signal(signal.SIGKILL)
        self._running[place].wait()
        self._running[place] = self._begin()
        self.shots += 1

    async def put_to_sleep(self, seconds: float) -> None:
        """Stop one for a while, and let it go on where it was."""
        one = random.choice(self._running)
        one.send_signal(signal.SIGSTOP)
        await asyncio.sleep(seconds)
        one.send_signal(signal.SIGCONT)
        self.shots += 1

    def end(self) -> None:
        for each in self._running:
            each.kill()
            each.wait()


async def until_taken(client: Client, id: str, conversation: str | None) -> None:
    """Start a chat; Restate asks for a worker first, and may just come up again."""
    while True:
        try:
            await client.start(id, chat_id=id, conversation=conversation)
            return
        except (UsageError, StoreError):
            await asyncio.sleep(0.1)


async def result_of(client: Client, id: str) -> Response:
    """Wait for a response, also while the engine is away."""
    while True:
        try:
            return await client.result(id)
        except StoreError:
            await asyncio.sleep(0.1)


def talk_of(id: str) -> str:
    """The conversation of a chat, as a browser would have it."""
    return f"owner/{id}"


async def answer_all(client: Client, ids: list[str]) -> int:
    """Approve what waits, twice: how often the second was taken is given."""
    twice = 0
    for id in ids:
        try:
            for request in await client.pending(id):
                await client.answer(id, {request.id: Approve()})
                try:
                    await client.answer(id, {request.id: Approve()})
                    twice += 1
                except ApprovalError:
                    pass
        except HooklineError:  # expired or over meanwhile, or the engine is away
            pass
    return twice


async def start_all(client: Client, ids: list[str], stored: bool, every: float) -> None:
    """Start the chats one after the other, each twice: the same id is the same chat."""
    for id in ids:
        talk = talk_of(id) if stored else None
        for _ in range(2):
            await until_taken(client, id, talk)
        await asyncio.sleep(every)


class Faults:
    """What else happens to an engine: a poison chat, early aborts, clean-ups."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._aborted: list[str] = []

    async def begin(self) -> None:
        await until_taken(self._client, _worker.POISON, None)

    async def one(self) -> None:
        """Abort a chat, most likely before it has begun, and clean up."""
        async with asyncio.timeout(LIMIT):
            await self._abort_early()

    async def _abort_early(self) -> None:
        with suppress(StoreError):
            id = f"aborted-{len(self._aborted)}"
            await self._client.start(id, chat_id=id)
            await self._client.abort(id, "too early")
            self._aborted.append(id)
            await self._client.cleanup(older_than=3600.0)

    async def judge(self) -> Counter[str]:
        """What is wrong with these chats, counted."""
        wrong: Counter[str] = Counter()
        for id in self._aborted:
            try:
                await result_of(self._client, id)
                wrong["aborts lost"] += 1
            except ChatAbortedError:
                wrong["aborts lost"] += 0
        try:
            await result_of(self._client, _worker.POISON)
            wrong["poison not quarantined"] += 1
        except RemoteChatError as exc:
            wrong["poison not quarantined"] += exc.type != "WorkerDied"
        with suppress(StoreError):  # the connection of before a restart
            await self._client.list()
        states = Counter(chat.state for chat in await self._client.list(limit=10_000))
        wrong["good chats quarantined"] = states["quarantined"] - 1
        return wrong


async def survive(
    client: Client,
    workers: Workers,
    ids: list[str],
    options: argparse.Namespace,
    what: Any,
    faults: Faults,
) -> tuple[dict[str, Response], int]:
    """Start chats, do `what` to them from time to time, and await all of them."""
    await until_taken(client, "up", None)
    await faults.begin()
    starting = asyncio.create_task(start_all(client, ids, bool(options.store), options.every))

    async def results() -> list[Response]:
        await starting
        return [await result_of(client, id) for id in ids]

    done = asyncio.create_task(results())
    twice = 0
    while not done.done():
        await asyncio.wait([done], timeout=random.uniform(1.0, 2.0))
        twice += await answer_all(client, ids)
        await faults.one()
        await what(workers)
    return dict(zip(ids, await done, strict=True)), twice


async def judge(found: dict[str, Response], lines: list[str], store: str) -> Counter[str]:
    """What is wrong with these chats, counted."""
    wrong = records(lines)
    seen = Counter(line.partition(" ")[2] for line in lines)
    for id, response in found.items():
        right = (
            response.text == _worker.LAST
            and [message.role for message in response.messages] == ROLES
        )
        check_history(response.messages)
        wrong["wrong"] += not right
        for call, name in CALLS.items():
            if name != "lookup":
                wrong["doubled tools"] += seen[f"{id} {name}:{call}"] > 1
        for message in response.messages:
            if message.role != "tool":
                continue
            name = f"{message.name} {message.call_id}"
            ran = seen[f"{id} {message.name}:{message.call_id}:done"]
            wrong["results of nothing"] += message.text == name and not ran
            wrong["results lost"] += message.text != name and "may have run" not in message.text
    if store:
        async with SQLStore(store) as opened:
            for id, response in found.items():
                kept = (await opened.open(talk_of(id))).messages
                finals = sum(m.role == "assistant" and not m.tool_calls for m in kept)
                wrong["stored text differs"] += kept != response.messages
                wrong["two final messages"] += finals != 1
    return wrong


async def judge_shown(found: dict[str, Response], prefix: str) -> Counter[str]:
    """What is wrong with what was shown of these chats, counted."""
    wrong: Counter[str] = Counter()
    async with redis.asyncio.from_url(REDIS) as client:
        for id, response in found.items():
            runs = await runs_of(client, prefix, talk_of(id))
            said = [m.text for m in response.messages if m.role == "assistant"]
            wrong["shown text differs"] += text_shown(runs) != text_of(said)
            wrong["told twice"] += len(told_twice(runs))
    return wrong


def records(lines: list[str]) -> Counter[str]:
    """Steps that began again after their record, and ends that were recorded twice."""
    wrong: Counter[str] = Counter()
    recorded: dict[tuple[str, str], set[str]] = {}  # as a process knows it of a chat
    for line in lines:
        process, id, what = line.split(" ", 2)
        said, _, key = what.partition(":")
        known = recorded.setdefault((process, id), set())
        if said == "life":
            known.clear()  # it reads all of it now
        elif said in ("read", "wrote"):
            wrong["recorded twice"] += key in known
            known.add(key)
        else:
            wrong["repeated after the record"] += step_of(what) in known
    return wrong


async def revive(workers: Workers) -> None:
    """Begin workers again as long as the poison chat kills them."""
    while True:
        workers.revive()
        await asyncio.sleep(0.5)


def lines_of(trace: Path) -> list[str]:
    trace.touch()
    return trace.read_text().splitlines()


def step_of(what: str) -> str | None:
    """The step that a line of the agent's is the begin of."""
    if what.startswith("model"):
        return f"step/{what.removeprefix('model')}/model"
    name, _, call = what.partition(":")
    return f"step/{int(call == 'd')}/call/{call}/run" if name in CALLS.values() else None


async def run(engine: Engine, options: argparse.Namespace) -> bool:
    """One trial; False where something was wrong."""
    with tempfile.TemporaryDirectory() as directory, ExitStack() as stack:
        store = f"sqlite:///{directory}/chats.db" if options.store else ""
        if options.store == "postgres":
            store = stack.enter_context(database_of_our_own("kills"))
        trace = Path(directory, "trace")
        prefix = new_prefix()
        if options.relay:
            stack.callback(clear, prefix)
        more = [str(trace), store, REDIS if options.relay else "", prefix]
        workers = Workers(engine, more, deploy=options.deploy, addresses=options.addresses)
        ids = [f"chat-{n}" for n in range(options.chats)]

        async def what(workers: Workers) -> None:
            if options.restart and hasattr(engine.where, "kill") and workers.shots % 4 == 0:
                engine.where.kill()
                engine.where.start()
                workers.shots += 1
            elif options.stop:
                await workers.put_to_sleep(options.stop)
            elif workers.are_up({line.partition(" ")[0] for line in lines_of(trace)}):
                workers.shoot()

        try:
            async with engine.client() as client:
                faults = Faults(client)
                # All the time: a request to Restate waits for a worker.
                reviving = asyncio.create_task(revive(workers))
                try:
                    found, twice = await survive(client, workers, ids, options, what, faults)
                    async with asyncio.timeout(LIMIT):
                        others = await faults.judge()
                finally:
                    reviving.cancel()
        finally:
            workers.end()
        wrong = await judge(found, lines_of(trace), store)
        if options.relay:
            wrong.update(await judge_shown(found, prefix))
        wrong["answers taken twice"] = twice
        wrong.update(others)
        lives = sum(line.endswith(" life") for line in lines_of(trace))
    kind = "stops" if options.stop else "kills"
    told = ", ".join(f"{count} {name}" for name, count in wrong.items())
    counts = f"{len(found)} chats, {lives} lives, {workers.shots} {kind}"
    counts += f", {workers.count} workers died of poison"
    print(f"{engine.name}: {counts}; {told}", flush=True)
    return not any(wrong.values())


def main() -> int:
    from tests.durable import sends  # it uses this module

    about = (__doc__ or "").partition("\n\n")[0]
    parser = argparse.ArgumentParser("durable-kills", description=about)
    parser.add_argument("engine", nargs="*", help=f"of {', '.join(NAMES)}; all where none is named")
    parser.add_argument("--chats", type=int, default=60)
    parser.add_argument("--every", type=float, default=0.5, help="seconds between two starts")
    kinds = ("", "sqlite", "postgres")
    parser.add_argument("--store", choices=kinds, default="", help="conversations in a store, too")
    parser.add_argument("--stop", type=float, default=0.0, help="SIGSTOP for so many seconds")
    parser.add_argument("--restart", action="store_true", help="kill the engine's server, too")
    parser.add_argument("--deploy", action="store_true", help="change the code with each kill")
    parser.add_argument("--addresses", action="store_true", help="Restate: one for each worker")
    parser.add_argument("--sends", type=int, default=0, help="messages into each chat")
    parser.add_argument("--web", action="store_true", help="with --sends, over the web")
    parser.add_argument("--kills", type=int, default=50, help="with --sends, how many at least")
    parser.add_argument("--relay", action="store_true", help="compare what was shown, too")
    options = parser.parse_args()
    options.relay |= options.web
    if options.relay and not (options.store or options.sends):
        parser.error("--relay needs --store: it shows chats of stored conversations")
    good = True
    if unknown := set(options.engine) - set(NAMES):
        parser.error(f"there is no engine {', '.join(sorted(unknown))}")
    with places(tuple(options.engine) or NAMES, own=options.restart) as found:
        for name, where in found.items():
            if isinstance(where, Missing):
                print(f"{name}: not tried: {where}")
                good = False
            else:
                trial = sends.run if options.sends else run
                good &= asyncio.run(trial(Engine(name, where), options))
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
