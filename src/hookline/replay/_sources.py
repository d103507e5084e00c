"""Reads records from wherever chats are kept: a store, a cassette, or a file of `audit`.

The kind of a file is recognised from its content.
"""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, Final, TypeAlias

from hookline.errors import UsageError
from hookline.replay._audits import is_audit, records_of_audit
from hookline.replay._cassettes import is_cassette, records_of_cassette
from hookline.replay._records import Record, records_of
from hookline.storage import Store, resolve_store

Source: TypeAlias = Store | str | os.PathLike[str]
"""A store, its URL, or a file: a SQLite store, a cassette, or a file of `audit`."""
PAGE: Final = 100
SQLITE: Final = b"SQLite format 3\0"


async def records_in(
    source: Source, *, prefix: str = "", since: float | None = None
) -> AsyncIterator[Record]:
    """Yield the chats of a store or of a file.

    A store yields the conversations that changed last first. `prefix` is the beginning of the ids
    of conversations. `since` is a time in seconds since the epoch: older conversations of a store,
    and older chats of an audit file are left out. Raises UsageError if the file is of no known
    kind, or if `prefix` or `since` ask what a cassette does not have.
    """
    if isinstance(source, Store):
        async for record in _records_of_store(source, prefix, since):
            yield record
        return
    place = os.fspath(source)
    if "://" in place or _is_sqlite(Path(place)):
        store = resolve_store(place if "://" in place else f"sqlite:///{place}")
        try:
            async for record in _records_of_store(store, prefix, since):
                yield record
        finally:
            closing: Any = getattr(store, "aclose", None)
            if closing is not None:
                await closing()
    elif is_audit(Path(place)):
        for record in records_of_audit(Path(place), prefix=prefix, since=since):
            yield record
    elif is_cassette(Path(place)):
        for name, value in {"prefix": prefix, "since": since}.items():
            if value:
                raise UsageError(
                    f"{name}={value!r} cannot be used with the cassette {place!r}, which has no "
                    "times and no conversation ids; leave it out"
                )
        for record in records_of_cassette(Path(place)):
            yield record
    else:
        raise UsageError(
            f"{place!r} has no chats that can be read; pass a store such as 'sqlite:///chats.db' "
            "or its file, a cassette, or a file of audit(content=True)"
        )


def _is_sqlite(path: Path) -> bool:
    if not path.is_file():
        raise UsageError(
            f"there is no file {str(path)!r}; pass a store such as 'sqlite:///chats.db' or its "
            "file, a cassette, or a file of audit(content=True)"
        )
    with path.open("rb") as file:
        return file.read(len(SQLITE)) == SQLITE


async def _records_of_store(
    store: Store, prefix: str, since: float | None
) -> AsyncIterator[Record]:
    offset = 0
    while True:
        page = await store.list(limit=PAGE, offset=offset, prefix=prefix)
        for info in page:
            if since is not None and info.updated < since:
                return
            stored = await store.load(info.id)
            for record in (
                [] if stored is None else records_of(stored.messages, id=info.id, at=info.updated)
            ):
                yield record
        if len(page) < PAGE:
            return
        offset += PAGE
