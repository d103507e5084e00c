"""Reads records from wherever chats are kept: a store, an engine, a cassette, or an audit file.

The kind of a file is recognised from its content.
"""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Iterator
from contextlib import aclosing, nullcontext
from pathlib import Path
from typing import Any, Final, NamedTuple, TypeAlias

from hookline.durable import Client
from hookline.errors import HooklineError, JournalError, StoreError, UsageError
from hookline.replay._audits import is_audit, records_of_audit
from hookline.replay._cassettes import is_cassette, records_of_cassette
from hookline.replay._records import Record, record_of_log, records_of
from hookline.storage import Store, resolve_store

Source: TypeAlias = Store | Client | str | os.PathLike[str]
"""A store, its URL, a client of durable chats, or a file: a SQLite store, a cassette, an audit."""
PAGE: Final = 100
MOST: Final = 1_000_000_000  # durable chats
SQLITE: Final = b"SQLite format 3\0"


class Unreadable(NamedTuple):
    """A conversation or a log that cannot be read."""

    id: str
    error: HooklineError


async def records_in(
    source: Source, *, prefix: str = "", since: float | None = None
) -> AsyncIterator[Record]:
    """Yield the chats of a store, of an engine of durable chats, or of a file.

    A store yields the conversations that changed last first, a client the chats that began first.
    `prefix` is the beginning of the ids of conversations. `since` is a time in seconds since the
    epoch; older chats are left out. Raises UsageError if the file is of no known kind, or if
    `prefix` or `since` ask what a cassette does not have.
    """
    async for record in readings_in(source, prefix=prefix, since=since):
        if isinstance(record, Unreadable):
            raise record.error
        yield record


async def readings_in(
    source: Source, *, prefix: str = "", since: float | None = None
) -> AsyncIterator[Record | Unreadable]:
    """Yield the chats, and go on after a conversation or a log that cannot be read."""
    if isinstance(source, Client):
        async for record in _records_of_client(source, prefix, since):
            yield record
    elif isinstance(source, Store):
        async for record in _records_of_store(source, prefix, since):
            yield record
    elif "://" in os.fspath(source) or _is_sqlite(Path(source)):
        place = os.fspath(source)
        store: Any = resolve_store(place if "://" in place else f"sqlite:///{place}")
        async with aclosing(store) if hasattr(store, "aclose") else nullcontext():
            async for record in _records_of_store(store, prefix, since):
                yield record
    else:
        for record in _records_of_file(Path(source), prefix, since):
            yield record


def _records_of_file(path: Path, prefix: str, since: float | None) -> Iterator[Record]:
    place = str(path)
    if is_audit(path):
        yield from records_of_audit(path, prefix=prefix, since=since)
    elif is_cassette(path):
        for name, value in {"prefix": prefix, "since": since}.items():
            if value:
                raise UsageError(
                    f"{name}={value!r} cannot be used with the cassette {place!r}, which has no "
                    "times and no conversation ids; leave it out"
                )
        yield from records_of_cassette(path)
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
) -> AsyncIterator[Record | Unreadable]:
    offset = 0
    while True:
        page = await store.list(limit=PAGE, offset=offset, prefix=prefix)
        for info in page:
            if since is not None and info.updated < since:
                return
            try:
                transcript = await store.load(info.id)
            except StoreError as exc:
                yield Unreadable(info.id, exc)
                continue
            messages = () if transcript is None else transcript.messages
            for record in records_of(messages, id=info.id, at=info.updated):
                if since is None or record.at is None or record.at >= since:
                    yield record
        if len(page) < PAGE:
            return
        offset += PAGE


async def _records_of_client(
    client: Client, prefix: str, since: float | None
) -> AsyncIterator[Record | Unreadable]:
    for status in await client.list(conversation=prefix or None, limit=MOST):
        if since is not None and status.created < since:
            continue
        batches = (await client.record(status.id)).batches
        try:
            record = record_of_log(status.id, [batch for _, batch in batches])
        except JournalError as exc:
            yield Unreadable(status.id, exc)
            continue
        if record is not None:
            yield record
