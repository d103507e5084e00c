"""Store: what it costs to commit one message, after ten messages and after ten thousand.

Wall time, since most of it is waiting: for a thread, for a disk, for a server. The limit is the
same message kept by hand: put into a dict under a lock, or with one INSERT on one connection, of
the standard library in WAL mode or of asyncpg. `python -m tests.benchmarks.store` prints this
alone. HOOKLINE_POSTGRES names a server on which a database may be made; otherwise the usual place
on this machine is tried, and without a server the rows of PostgreSQL are left out.
"""

from __future__ import annotations

import asyncio
import os
import sqlite3
import threading
from collections.abc import Awaitable, Callable, Iterator
from contextlib import ExitStack
from importlib import import_module
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from time import perf_counter
from typing import Any, Literal

from tests._postgres import NAMED, database_of_our_own

from hookline import Conversation, MemoryStore, Text, UserMessage
from hookline._conversations.conversation import state_of
from hookline.stores import SQLStore

from .measure import Options, Row, ours_row, ratio_row

NAME = "Store"
LENGTHS = (10, 100, 1_000, 10_000)
TARGET = 1_000.0  # µs
BATCH = 50
TABLE = (
    "CREATE TABLE by_hand (c TEXT, seq INTEGER, id TEXT, body TEXT, PRIMARY KEY (c, seq), "
    "UNIQUE (c, id))"
)
BODY = "It is sunny in Lisbon, with a light wind from the west. " * 6

Keep = Callable[[int, UserMessage], Awaitable[None]]  # one message, by hand
Found = dict[int, list[float]]  # the samples of each length


def message(number: int) -> UserMessage:
    return UserMessage(id=f"m{number}", parts=(Text(BODY),))


async def filled(store: Any, length: int) -> Conversation:
    """A conversation of so many messages, as a chat holds it."""
    talk: Conversation = await store.open(f"bench-{os.getpid()}-{length}")
    talk.restore([message(number) for number in range(length)])
    await talk.save()
    state_of(talk).acquire("bench")
    await state_of(talk).take("bench", print)
    return talk


def _nothing() -> None:
    """Nobody asks whether it is written."""


async def batch(talk: Conversation) -> float:
    """Microseconds of the median commit among some."""
    taken: list[float] = []
    for _ in range(BATCH):
        next_one = message(len(talk.history))
        begin = perf_counter()
        await state_of(talk).write(next_one, _nothing)
        taken.append(perf_counter() - begin)
    return median(taken) * 1e6


async def by_hand(keep: Keep, round: int) -> float:
    """Microseconds of the median commit among as many that are made by hand."""
    taken: list[float] = []
    for place in range(round * BATCH, (round + 1) * BATCH):
        next_one = message(place)
        begin = perf_counter()
        await keep(place, next_one)
        taken.append(perf_counter() - begin)
    return median(taken) * 1e6


async def samples(store: Any, keep: Keep, rounds: int) -> tuple[list[float], Found]:
    """The samples by hand, and of each length in the store, taken in turn."""
    limit: list[float] = []
    found: Found = {length: [] for length in LENGTHS}
    talks = {length: await filled(store, length) for length in LENGTHS}
    for round in range(rounds + 1):
        hand = await by_hand(keep, round)
        ours = {length: await batch(talk) for length, talk in talks.items()}
        if round:  # the first one warms up
            limit.append(hand)
            for length, taken in ours.items():
                found[length].append(taken)
    for talk in talks.values():
        await state_of(talk).leave("bench")
        await store.delete(talk.id)
    return limit, found


# ── the stores ──────────────────────────────────────────────────────────────────────────────


async def memory(rounds: int) -> tuple[list[float], Found]:
    kept: dict[str, list[UserMessage]] = {"c": []}
    lock = threading.Lock()

    async def keep(place: int, one: UserMessage) -> None:
        with lock:
            kept["c"].append(one)

    return await samples(MemoryStore(), keep, rounds)


async def sqlite(
    place: str, synchronous: Literal["NORMAL", "FULL"], rounds: int
) -> tuple[list[float], Found]:
    connection = sqlite3.connect(Path(place, "hand.db"), isolation_level=None)
    connection.execute("PRAGMA journal_mode=WAL")
    connection.execute(f"PRAGMA synchronous={synchronous}")
    connection.execute(TABLE)

    async def keep(place: int, one: UserMessage) -> None:
        row = place, one.id, one.to_json().decode()
        connection.execute("INSERT INTO by_hand VALUES ('c', ?, ?, ?)", row)

    async with SQLStore(f"sqlite:///{place}/chats.db", synchronous=synchronous) as store:
        found = await samples(store, keep, rounds)
    connection.close()
    return found


async def postgres(url: str, rounds: int) -> tuple[list[float], Found]:
    asyncpg: Any = import_module("asyncpg")
    connection: Any = await asyncpg.connect(url)
    await connection.execute(TABLE)

    async def keep(place: int, one: UserMessage) -> None:
        row = place, one.id, one.to_json().decode()
        await connection.execute("INSERT INTO by_hand VALUES ('c', $1, $2, $3)", *row)

    async with SQLStore(url) as store:
        found = await samples(store, keep, rounds)
    await connection.close()
    return found


# ── the table ───────────────────────────────────────────────────────────────────────────────


def _lines(kind: str, limit: list[float], found: Found, target: float | None) -> Iterator[Row]:
    for length, taken in found.items():
        what = f"{kind}: commit after {length:,} messages"
        yield ours_row(NAME, what, limit, taken, target=target)
    what = f"{kind}: after 10,000 against after 10"
    yield ratio_row(NAME, what, found[10], found[10_000], target=1.25)


def rows(options: Options) -> Iterator[Row]:
    rounds = options.times(15)
    yield from _lines("memory", *asyncio.run(memory(rounds)), None)
    kinds: tuple[tuple[Literal["NORMAL", "FULL"], float | None], ...]
    kinds = ("NORMAL", TARGET), ("FULL", None)
    for synchronous, target in kinds:
        with TemporaryDirectory() as place:
            found = asyncio.run(sqlite(place, synchronous, rounds))
        yield from _lines(f"SQLite {synchronous}", *found, target)
    with ExitStack() as stack:
        try:
            url = stack.enter_context(database_of_our_own("bench"))
        except Exception:  # no server, or one that is not for us
            if NAMED:
                raise
            return
        yield from _lines("PostgreSQL", *asyncio.run(postgres(url, rounds)), None)


if __name__ == "__main__":
    from .run import main

    main(["--only", NAME.lower()])
