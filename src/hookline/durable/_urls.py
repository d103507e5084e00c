"""Select the engine for a URL."""

from __future__ import annotations

import os
from importlib import import_module
from typing import Any, Final, Literal, Protocol, Self

from hookline.errors import UsageError
from hookline.storage import shown_url

Policy = Literal["upgrade", "pin"]
"""Whether a chat that has begun continues with newer code, or only with the same version."""
_ENGINES: Final = {
    "sqlite": "sqlite",
    "postgres": "postgres",
    "postgresql": "postgres",
    "http": "restate",
    "https": "restate",
}


class AnyWorker(Protocol):
    """A worker of any engine."""

    async def run(self) -> None:
        """Work until stopped or cancelled; another worker then continues the running chats."""
        ...

    def stop(self, drain: float = 10.0) -> None:
        """Take no more chats, and end `run()`, or the block, once no step of a chat runs.

        Running steps have `drain` seconds to end.
        """
        ...

    async def __aenter__(self) -> Self: ...

    async def __aexit__(self, *exc: object) -> None: ...


def engine_of(url: str) -> tuple[str, Any]:
    """Return an engine's name and module. Raises UsageError for a URL of an unknown engine."""
    scheme, _, rest = url.partition(":")
    engine = _ENGINES.get(scheme.partition("+")[0])  # postgresql+asyncpg, as for a store
    if engine is None or not rest:
        raise UsageError(
            f"{shown_url(url)!r} is not the URL of an engine for durable chats: use "
            "sqlite:///jobs.db, postgresql://…, or http://… (the address of a Restate server)"
        )
    return engine, import_module(f"hookline.durable.{engine}")


def in_queue(engine: str, queue: str | None) -> dict[str, str]:
    """Return the option of an engine that selects this queue."""
    return {} if queue is None else {"name" if engine == "restate" else "queue": queue}


def file_of(where: str | os.PathLike[str]) -> str:
    """Return the file that a path or a SQLite URL names. Raises UsageError if it names a host."""
    path = os.fspath(where)
    scheme, colon, rest = path.partition(":")
    if not colon or scheme.partition("+")[0] != "sqlite":
        return path
    if rest.startswith("//") and not rest.startswith("///"):
        raise UsageError(
            f"{path!r} has a host, but SQLite is a file; write sqlite:///jobs.db or "
            "sqlite:////absolute/path.db"
        )
    return rest.removeprefix("///")
