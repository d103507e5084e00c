"""How statements run on SQLite and on PostgreSQL, and those that run for many items.

All statements are PostgreSQL's, as far as SQLite knows them too. What differs is translated by each
database: `CLOCK()` (seconds of a clock that all workers share), `TIME()` (seconds since 1970),
`HELD()` (whether the lease of a job is valid), `= ANY($1)`, `<> ALL($1)` and
`FOR UPDATE SKIP LOCKED`. A piece of work is a generator that yields
statements and receives their rows: it is one transaction, and an exception in it undoes it.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from typing import Any, Final, NamedTuple, Protocol, TypeVar

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
    columns: str
    """The names and types of the items' columns, as in `CREATE TABLE`."""
    key: tuple[int, ...]
    """The columns that the statement returns for each item on which it had an effect."""

    @property
    def names_and_types(self) -> list[tuple[str, str]]:
        """The columns, one by one."""
        return [(name, kind) for name, kind in map(str.split, self.columns.split(","))]


ADD: Final = Bulk(
    "INSERT INTO hookline_job "
    "(queue, id, input, agent, conversation, key, priority, trace, created) "
    "SELECT i_queue, i_id, i_input, i_agent, i_conversation, i_key, i_priority, i_trace, TIME() "
    "FROM item WHERE TRUE ON CONFLICT DO NOTHING RETURNING id",
    "i_queue text, i_id text, i_input text, i_agent text, i_conversation text, i_key text, "
    "i_priority int, i_trace text",
    (1,),
)
# No owner is locked: the place `n` in the record can be taken only once, so that of two lives that
# write at the same moment one fails, and is over.
APPEND: Final = Bulk(
    "INSERT INTO hookline_job_log (queue, id, n, at, data) "
    "SELECT queue, id, i_n, TIME(), i_data FROM item JOIN hookline_job "
    "ON queue = i_queue AND id = i_id AND owner = i_owner "
    "WHERE outcome IS NULL ON CONFLICT DO NOTHING RETURNING id, n",
    "i_queue text, i_id text, i_owner text, i_n int, i_data bytea",
    (1, 3),
)
FINISH: Final = Bulk(
    "UPDATE hookline_job SET owner = NULL, lease = NULL, outcome = i_outcome, state = i_state, "
    "ended = TIME() FROM item WHERE queue = i_queue AND id = i_id AND owner = i_owner RETURNING id",
    "i_queue text, i_id text, i_owner text, i_outcome text, i_state text",
    (1,),
)


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
