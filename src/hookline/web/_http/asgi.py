"""The types of ASGI, by which every part of this package names them."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, MutableMapping
from typing import Any, TypeAlias

Scope: TypeAlias = MutableMapping[str, Any]


ASGIMessage: TypeAlias = MutableMapping[str, Any]


Receive: TypeAlias = Callable[[], Awaitable[ASGIMessage]]


Send: TypeAlias = Callable[[ASGIMessage], Awaitable[None]]


Headers: TypeAlias = Iterable[tuple[str, str]]
