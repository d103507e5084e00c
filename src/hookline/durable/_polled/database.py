"""How statements run on SQLite and on PostgreSQL.

All statements are PostgreSQL's, as far as SQLite knows them too. What differs is translated by each
database: `CLOCK()` (seconds of a clock that all workers share), `TIME()` (seconds since 1970),
`HELD()` (whether the lease of a job is valid), `= ANY($1)`, `<> ALL($1)` and
`FOR UPDATE SKIP LOCKED`. A piece of work is a generator that yields
statements and receives their rows: it is one transaction, and an exception in it undoes it.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from typing import Any, NamedTuple, Protocol, TypeVar

T = TypeVar("T")
Row = Sequence[Any]


class Statement(NamedTuple):
    """A statement and the values of its parameters `$1`, `$2` …"""

    sql: str
    values: tuple[Any, ...] = ()


Work = Generator[Statement, list[Row], T]


class Bulk(NamedTuple):
    """A statement for many items at once, which are the rows of the table `item`."""

    sql: str
    columns: tuple[tuple[str, str], ...]
    """The names and types of the items' columns."""
    key: tuple[int, ...]
    """The columns that the statement returns for each item on which it had an effect."""


class Database(Protocol):
    """A database with the tables of `schema`. Each call may raise StoreError."""

    @property
    def place(self) -> str:
        """The address of the database, for error messages."""
        ...

    @property
    def absence(self) -> str:
        """What is missing if there are no tables."""
        ...

    @property
    def boot(self) -> str:
        """What begins the name of each owner since this machine was started, if that matters."""
        ...

    @property
    def lock(self) -> str | None:
        """The statement that locks a queue for a transaction, if transactions run in parallel."""
        ...

    async def exists(self) -> bool:
        """Return whether there are tables; creates nothing."""
        ...

    async def prepare(self) -> None:
        """Create the tables, or bring them up to date."""
        ...

    async def fetch(self, sql: str, *values: Any, reads: bool = False) -> list[Row]:
        """Run one statement; with `reads`, it waits for no writer."""
        ...

    async def run(self, work: Callable[[], Work[T]], /) -> T:
        """Run a transaction."""
        ...

    async def apply(self, bulk: Bulk, item: tuple[Any, ...], /) -> bool:
        """Run a bulk statement for an item, together with the items of other callers.

        Returns whether the statement had an effect.
        """
        ...

    async def erase(self) -> None:
        """Remove from the disk what was deleted, unless the database does it by itself."""
        ...

    async def aclose(self) -> None:
        """Close the connections; the next call opens them again."""
        ...
