"""Messages into durable chats whose workers are killed; counts what is wrong with them.

`scripts/dev/durable-kills --sends 5 --chats 200` sends five messages into each chat from this
process while its workers are shot. Each message must be in the history, in the store, in the
stream, in the trace of the hooks and in the record once and in order, or be returned to its sender.
With `--web` the messages go over three web protocols to two applications, whose streams must tell
what becomes of them.
"""

from __future__ import annotations

import argparse
import asyncio
import random
import sys
import tempfile
from collections import Counter
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import redis.asyncio
from tests.durable._engines import Engine
from tests.durable._streams import runs_of
from tests.durable.doors import Doors, doors
from tests.durable.kills import (
    Workers,
    answer_all,
    have_worked,
    lines_of,
    result_of,
    talk_of,
    until_taken,
)
from tests.web._redis import URL as REDIS
from tests.web._redis import clear, new_prefix

from hookline import Message, Response, check_history
from hookline.durable import ChatMessage, Client
from hookline.events import MessageAdded
from hookline.runtimes import read_log
from hookline.stores import SQLStore


async def converse(
    client: Client, id: str, count: int, pause: float, web: Doors | None
) -> list[ChatMessage]:
    """Start a chat and send messages into it; returns them as they were sent."""
    await asyncio.sleep(pause)
    await until_taken(client, id, talk_of(id))
    if web is not None:
        web.read(id)
    sent: list[ChatMessage] = []
    for number in range(count):
        await asyncio.sleep(random.uniform(0.0, 0.8))
        when: Any = random.choice(["next", "next", "idle"])
        text = f"{when} {number}"
        if web is None:
            sent.append(await client.send(id, text, when=when))
        else:
            sent.append(await web.send(id, text, when))
    return sent


async def run(engine: Engine, options: argparse.Namespace) -> bool:
    """One trial; False where something was wrong."""
    ids = [f"chat-{n}" for n in range(options.chats)]
    with tempfile.TemporaryDirectory() as directory:
        trace, prefix = Path(directory, "trace"), new_prefix()
        store = f"sqlite:///{directory}/chats.db"
        relay = REDIS if options.relay else ""
        workers = Workers(engine, [str(trace), store, relay, prefix])
        try:
            async with (
                engine.client() as client,
                SQLStore(store) as opened,
                doors(engine, store, prefix) if options.web else nullcontext() as web,
            ):
                sending = [
                    asyncio.create_task(converse(client, id, options.sends, n * options.every, web))
                    for n, id in enumerate(ids)
                ]
                results = [
                    asyncio.create_task(_result(client, id, task, web))
                    for id, task in zip(ids, sending, strict=True)
                ]
                while running := [n for n, result in enumerate(results) if not result.done()]:
                    await asyncio.wait(results, timeout=random.uniform(1.0, 2.0))
                    # Every second chat may end before all is sent.
                    asked = [n for n in running if n % 2 == 0 or sending[n].done()]
                    if web is None:
                        await answer_all(client, [ids[n] for n in asked])
                    else:
                        some = random.sample(asked, min(len(asked), 20))
                        await asyncio.gather(*[web.answer(ids[n]) for n in some])
                    if workers.shots < options.kills:
                        workers.shoot(have_worked(lines_of(trace)))
                    print(f"{len(running)} chats run, {workers.shots} kills", file=sys.stderr)
                responses = dict(zip(ids, await asyncio.gather(*results), strict=True))
                judge = Judge(client, opened, lines_of(trace))
                for id, sent in zip(ids, await asyncio.gather(*sending), strict=True):
                    stream = await _stream(prefix, id) if options.relay else None
                    await judge.look_at(responses[id], sent, stream)
                    if web is not None:
                        await judge.look_at_web(responses[id], sent, web)
        finally:
            workers.end()
            clear(prefix) if options.relay else None
    told = ", ".join(f"{count} {name}" for name, count in sorted(judge.counts.items()))
    wrong = ", ".join(f"{count} {name}" for name, count in judge.wrong.items())
    print(f"{engine.name}: {len(ids)} chats, {workers.shots} kills; {told}; {wrong}", flush=True)
    return not any(judge.wrong.values()) and workers.shots >= options.kills


async def _result(
    client: Client, id: str, sending: asyncio.Task[Any], web: Doors | None
) -> Response:
    await asyncio.wait([sending])
    response = await result_of(client, id)
    if web is not None:
        web.end(id)
    return response


async def _stream(prefix: str, id: str) -> list[str]:
    """The ids of the messages that a reader of the chat is told of."""
    async with redis.asyncio.from_url(REDIS) as connection:
        runs = await runs_of(connection, prefix, talk_of(id))
    return [event.message.id for run in runs for event in run if isinstance(event, MessageAdded)]


class Judge:
    """Compares what was sent with what is in each place, and counts what is wrong."""

    def __init__(self, client: Client, store: SQLStore, lines: list[str]) -> None:
        self._client = client
        self._store = store
        self._heard = {line.partition(" ")[2] for line in lines}
        self.counts: Counter[str] = Counter()
        names = "lost", "not once", "not stored once", "not streamed", "not heard by hooks"
        self.wrong = Counter(dict.fromkeys((*names, "out of order", "late by a step"), 0))

    async def look_at(
        self, response: Response, sent: list[ChatMessage], stream: list[str] | None
    ) -> None:
        id, wrong = response.chat_id, self.wrong
        check_history(response.messages)
        record = {each.message.id: each for each in await self._client.sent(id)}
        stored = Counter(m.id for m in (await self._store.open(talk_of(id))).messages)
        history = Counter(m.id for m in response.messages)
        for each in sent:
            message = each.message.id
            status = record[message].status if message in record else each.status
            self.counts[status] += 1
            times = int(status == "delivered")
            wrong["lost"] += status not in ("delivered", "returned")
            wrong["not once"] += history[message] != times
            wrong["not stored once"] += stored[message] != times
            wrong["not heard by hooks"] += bool(times) != (f"{id} message:{message}" in self._heard)
            if stream is not None:
                wrong["not streamed"] += bool(times) != (message in stream)
        self._order(response.messages, sent)
        await self._steps(id)

    async def look_at_web(self, response: Response, sent: list[ChatMessage], web: Doors) -> None:
        """Compare the history with what the streams have told a reader of the chat."""
        told = await web.told(response.chat_id)
        delivered = {message.id for message in response.messages}
        for each in sent:
            id = each.message.id
            if id in web.in_history.get(response.chat_id, ()) and (id, "delivered") not in told:
                self.counts["told by the history alone"] += 1
            elif id in delivered and (id, "delivered") not in told:
                self.wrong["not told"] += 1
                statuses = [status for other, status in told if other == id]
                print(f"{id} was delivered, but told: {statuses or 'nothing'}", file=sys.stderr)
            self.wrong["told otherwise"] += id in delivered and (id, "returned") in told
            self.wrong["told otherwise"] += id not in delivered and (id, "delivered") in told
            if each.status == "queued" and id not in delivered:
                self.wrong["not told of its return"] += (id, "returned") not in told
                self.wrong["not refused again"] += not await web.is_refused(response.chat_id, each)

    def _order(self, messages: tuple[Message, ...], sent: list[ChatMessage]) -> None:
        places = {message.id: place for place, message in enumerate(messages)}
        for when in ("next", "idle"):
            at = [places[s.message.id] for s in sent if s.when == when and s.message.id in places]
            self.wrong["out of order"] += at != sorted(at)

    async def _steps(self, id: str) -> None:
        """Requests that were built after a "next" message was sent and before it was taken."""
        record = await self._client.record(id)
        ends = [
            (at, line)
            for at, data in record.batches
            for line in read_log(id, [data])
            if line.kind == "end"
        ]
        for (_, sent_at), each in zip(record.messages, await self._client.sent(id), strict=True):
            taken = [at for at, line in ends if each.message.id.encode() in bytes(line.value)]
            if each.when == "next" and each.status == "delivered":
                between = [
                    at
                    for at, line in ends
                    if line.key.endswith("/request") and sent_at < at < taken[0]
                ]
                self.counts["taken at once"] += not between
                self.wrong["late by a step"] += len(between) > 1
