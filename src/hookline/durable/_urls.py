"""Select the engine for a URL."""

from __future__ import annotations

from importlib import import_module
from types import TracebackType
from typing import Any, Final, Protocol, Self

from hookline.errors import UsageError
from hookline.storage import shown_url

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
        """Work until cancelled; another worker then continues the running chats."""
        ...

    async def __aenter__(self) -> Self: ...

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
        /,
    ) -> None: ...


def engine_of(url: str) -> tuple[Any, str]:
    """Return an engine's module and address. Raises UsageError for a URL of an unknown engine."""
    scheme, _, rest = url.partition(":")
    host = scheme == "sqlite" and rest.startswith("//") and not rest.startswith("///")
    if scheme not in _ENGINES or not rest or host:
        raise UsageError(
            f"{shown_url(url)!r} is not the URL of an engine for durable chats: use "
            "sqlite:///jobs.db, postgresql://…, or http://… (the address of a Restate server)"
        )
    engine = import_module(f"hookline.durable.{_ENGINES[scheme]}")
    return engine, rest.removeprefix("///") if scheme == "sqlite" else url
