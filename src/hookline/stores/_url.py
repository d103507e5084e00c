"""Parses and checks the URL of a database, and never shows any secrets in it.

PostgreSQL options in the query (`?sslmode=require`) are options of libpq. They are passed unchanged
to asyncpg, which parses connection strings itself.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib.util import find_spec
from typing import Any, Final, NamedTuple
from urllib.parse import urlencode

import sqlalchemy as sa
from sqlalchemy.exc import ArgumentError

from hookline.errors import UsageError
from hookline.storage import shown_url

_DRIVERS: Final = {
    "sqlite": "sqlite+aiosqlite",
    "postgres": "postgresql+asyncpg",
    "postgresql": "postgresql+asyncpg",
}
_EXTRAS: Final = {"sqlite": "sqlite", "postgres": "postgres", "postgresql": "postgres"}
# The options of SQLite URLs that SQLAlchemy supports; others need a file: URI.
_SQLITE: Final = frozenset(
    {"uri", "timeout", "isolation_level", "detect_types", "check_same_thread", "cached_statements"}
)
# The options of PostgreSQL URLs that are keywords of the driver, and not options of libpq.
_KEYWORDS: Final[dict[str, Callable[[str], Any]]] = {
    "command_timeout": float,
    "connect_timeout": float,
    "port": int,
    "prepared_statement_cache_size": int,
    "statement_cache_size": int,
    "timeout": float,
}
_SSL: Final = ("disable", "allow", "prefer", "require", "verify-ca", "verify-full")


class Address(NamedTuple):
    """The address of a database."""

    url: sa.URL
    connect: dict[str, Any]
    """Further arguments for its driver."""
    name: str
    """The address as shown in errors."""
    secret: str
    """The password, which errors must not show."""


def read_url(text: str) -> Address:
    """Parse a database URL; raises UsageError if it cannot work, or if a package is missing."""
    if not isinstance(text, str):  # pyright: ignore[reportUnnecessaryIsInstance]
        kind = type(text).__name__  # the value may contain a password
        raise UsageError(f"store= is of type {kind}; pass a URL, such as 'sqlite:///chats.db'")
    display = shown_url(text)
    if "\0" in text:
        raise UsageError(f"store={display!r} has a null character; remove it from the URL")
    try:
        url = sa.make_url(text)
    except (ArgumentError, ValueError):  # their texts may contain the password
        raise UsageError(
            f"store={display!r} must be the URL of a database, such as sqlite:///chats.db; "
            "percent-encode any of : / @ ? # in the user name and password"
        ) from None
    backend = url.drivername.partition("+")[0]
    driver = _DRIVERS.get(backend)
    if driver is None:
        raise UsageError(
            f"store={display!r} uses {backend!r}; use SQLite (sqlite:///chats.db) or PostgreSQL "
            "(postgresql://user@host/name)"
        )
    module = driver.partition("+")[2]
    if find_spec(module) is None:
        raise UsageError(
            f'store={display!r} needs {module}: pip install "hookline[{_EXTRAS[backend]}]"'
        )
    url = url.set(drivername=driver)
    return _sqlite(url, display) if backend == "sqlite" else _postgres(url, display)


def _sqlite(url: sa.URL, display: str) -> Address:
    if url.username or url.password or url.host or url.port:
        raise UsageError(
            f"store={display!r} has a host, but SQLite is a file; write sqlite:///relative.db or "
            "sqlite:////absolute/path.db"
        )
    if url.database in (None, "", ":memory:"):
        raise UsageError(
            f"store={display!r} must name a file; use store=MemoryStore() to store nothing on disk"
        )
    unknown = sorted(url.query.keys() - _SQLITE)
    if unknown and "uri" not in url.query:
        raise UsageError(
            f"store={display!r} has the unknown option {unknown[0]!r}; write SQLite's own options "
            "as in sqlite:///file:chats.db?mode=ro&uri=true"
        )
    return Address(url, {}, f"sqlite:///{url.database}", "")


def _postgres(url: sa.URL, display: str) -> Address:
    query = {key: str(value) for key, value in url.query.items()}
    keywords = {key: _number(key, query.pop(key), display) for key in _KEYWORDS & query.keys()}
    database = query.pop("dbname", query.pop("database", "")) or url.database
    host = url.host or query.get("host", "localhost")
    if "@" in host or "@" in (database or ""):
        raise UsageError(
            f"store={display!r} cannot be read; percent-encode any of : / @ ? # in the user name "
            "and password"
        )
    port = keywords.pop("port", 5432) if url.port is None else url.port
    if not 0 < port < 65536:
        raise UsageError(f"store={display!r} has the port {port}; use a port from 1 to 65535")
    _set_ssl(query, display)
    connect: dict[str, Any] = {"timeout": 10.0, "command_timeout": 30.0}  # for a silent server
    if (seconds := keywords.pop("connect_timeout", None)) is not None:
        connect["timeout"] = seconds or None
    connect |= keywords
    connect["dsn"] = f"postgresql://?{urlencode(query)}"
    return Address(
        url=url.set(query={}, database=database, port=port),
        connect=connect,
        name=f"postgresql://{host}:{port}/{database or ''}",
        secret=url.password or query.get("password", ""),
    )


def _set_ssl(query: dict[str, str], display: str) -> None:
    """Set `sslmode`, and check it and `channel_binding`."""
    query.setdefault("sslmode", query.pop("ssl", "prefer"))
    if query["sslmode"] not in _SSL:
        raise UsageError(
            f"store={display!r} has sslmode={query['sslmode']!r}; use one of: {', '.join(_SSL)}"
        )
    if query.pop("channel_binding", "prefer") == "require":
        raise UsageError(
            f"store={display!r} has channel_binding=require, which asyncpg does not support; leave "
            "it out, and use sslmode=verify-full to verify the server"
        )


def _number(key: str, text: str, display: str) -> Any:
    try:
        return _KEYWORDS[key](text)
    except ValueError:
        raise UsageError(f"store={display!r} has {key}={text!r}; use a number") from None
