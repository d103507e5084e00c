"""A database of our own on a PostgreSQL server, for as long as somebody needs it.

HOOKLINE_POSTGRES is the URL of a server on which a database may be made. Where it is not set, the
usual place on this machine is tried.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from itertools import count
from typing import Any

NAMED = os.environ.get("HOOKLINE_POSTGRES")
SERVER = NAMED or "postgresql://postgres@127.0.0.1:5432/postgres"

_numbers = count(1)


def _admin(statement: str) -> None:
    """Carry out a statement, in a thread: a loop may run in this one."""
    with ThreadPoolExecutor(1) as threads:
        threads.submit(lambda: asyncio.run(_execute(statement))).result()


async def _execute(statement: str) -> None:
    from importlib import import_module

    asyncpg: Any = import_module("asyncpg")
    connection = await asyncpg.connect(SERVER)
    try:
        await connection.execute(statement)
    finally:
        await connection.close()


@contextmanager
def database_of_our_own(purpose: str = "tests") -> Iterator[str]:
    """Its URL; raises OSError where there is no server."""
    name = f"hookline_{purpose}_{os.getpid()}_{next(_numbers)}"
    _admin(f"CREATE DATABASE {name}")
    try:
        yield f"{SERVER.rpartition('/')[0]}/{name}"
    finally:
        _admin(f"DROP DATABASE {name} WITH (FORCE)")
