"""Store: what it costs to commit one message, after ten messages and after ten thousand.

Wall time, since most of it is waiting: for a thread, for a disk, for a server. The limit is the
same row written by hand, with one INSERT on one connection of the standard library, in WAL too.
`python -m tests.benchmarks.store` prints this alone, and with PostgreSQL where HOOKLINE_POSTGRES is
the URL of a database that may be written to.
"""

from __future__ import annotations

import asyncio
import os
import sqlite3
from collections.abc import Iterator
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from time import perf_counter
from typing import Any, Literal

from hookline import Conversation, Text, UserMessage
from hookline.stores import SQLStore

from .measure import Options, Row, ours_row, ratio_row

NAME = "Store"
LENGTHS = (10, 100, 1_000, 10_000)
TARGET = 1_000.0  # µs
BATCH = 50
BODY = "It is sunny in Lisbon, with a light wind from the west. " * 6


def message(number: int) -> UserMessage:
    return UserMessage(id=f"m{number}", parts=(Text(BODY),))


async def filled(store: SQLStore, length: int) -> Conversation:
    """A conversation of so many messages, as a chat holds it."""
    talk = await store.open(f"bench-{os.getpid()}-{length}")
    talk.restore([message(number) for number in range(length)])
    await talk.save()
    talk.acquire("bench")
    await talk.take("bench", print)
    return talk


async def batch(talk: Conversation) -> float:
    """Microseconds of the median commit among some."""
    taken: list[float] = []
    for _ in range(BATCH):
        next_one = message(len(talk.history))
        begin = perf_counter()
        await talk.write(next_one)
        taken.append(perf_counter() - begin)
    return median(taken) * 1e6


async def samples(url: str, rounds: int, **options: Any) -> dict[int, list[float]]:
    """The samples of each length, taken in turn."""
    found: dict[int, list[float]] = {length: [] for length in LENGTHS}
    async with SQLStore(url, **options) as store:
        talks = {length: await filled(store, length) for length in LENGTHS}
        for round in range(rounds + 1):
            for length, talk in talks.items():
                taken = await batch(talk)
                if round:  # the first one warms up
                    found[length].append(taken)
        for talk in talks.values():
            await talk.leave()
            await store.delete(talk.id)
    return found


def by_hand(file: Path, synchronous: str, rounds: int) -> list[float]:
    """The same row, without anything around it."""
    connection = sqlite3.connect(file, isolation_level=None)
    connection.execute("PRAGMA journal_mode=WAL")
    connection.execute(f"PRAGMA synchronous={synchronous}")
    connection.execute(
        "CREATE TABLE m (c TEXT, seq INTEGER, id TEXT, body TEXT, PRIMARY KEY (c, seq), "
        "UNIQUE (c, id))"
    )
    found: list[float] = []
    for round in range(rounds):
        taken: list[float] = []
        for place in range(round * BATCH, (round + 1) * BATCH):
            body = message(place).to_json().decode()
            begin = perf_counter()
            connection.execute("INSERT INTO m VALUES ('c', ?, ?, ?)", (place, f"m{place}", body))
            taken.append(perf_counter() - begin)
        found.append(median(taken) * 1e6)
    connection.close()
    return found


def _sqlite(rounds: int, synchronous: Literal["NORMAL", "FULL"]) -> Iterator[Row]:
    with TemporaryDirectory() as place:
        limit = by_hand(Path(place, "hand.db"), synchronous, rounds)
        url = f"sqlite:///{place}/chats.db"
        found = asyncio.run(samples(url, rounds, synchronous=synchronous))
    target = TARGET if synchronous == "NORMAL" else None
    yield from _lines(f"SQLite {synchronous}", limit, found, target)


def _lines(
    kind: str, limit: list[float] | None, found: dict[int, list[float]], target: float | None
) -> Iterator[Row]:
    for length, taken in found.items():
        what = f"{kind}: commit after {length:,} messages"
        yield ours_row(NAME, what, limit, taken, target=target)
    what = f"{kind}: after 10,000 against after 10"
    yield ratio_row(NAME, what, found[10], found[10_000], target=1.25)


def rows(options: Options) -> Iterator[Row]:
    rounds = options.times(15)
    yield from _sqlite(rounds, "NORMAL")
    yield from _sqlite(rounds, "FULL")
    url = os.environ.get("HOOKLINE_POSTGRES")
    if url:
        yield from _lines("PostgreSQL", None, asyncio.run(samples(url, rounds)), None)


if __name__ == "__main__":
    from .run import main

    main(["--only", NAME.lower()])
