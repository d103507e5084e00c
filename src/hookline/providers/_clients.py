"""The clients of the adapters: one per event loop, made off the loop, closed with it.

An SDK costs a second or two of imports, in which every other chat would wait. It is imported in a
thread, by the first request that needs it, and clients of ours are made there too. Also here: the
environment, and what is wrong with a client that was given.
"""

from __future__ import annotations

import asyncio
import importlib
import importlib.util
import os
from collections.abc import AsyncGenerator, Awaitable, Callable, Hashable, Sequence
from typing import Any, Final, Generic, TypeVar, cast
from urllib.parse import urlsplit
from weakref import WeakKeyDictionary, ref

from hookline.errors import UsageError

C = TypeVar("C")

IDLE_TIMEOUT: Final = 300.0  # seconds: models may think for minutes and say nothing
CONNECT_TIMEOUT: Final = 10.0


class Kept(Generic[C]):
    """A client of ours with what closes it when its event loop ends."""

    __slots__ = ("client", "keeper")

    def __init__(self, client: C, keeper: AsyncGenerator[None, None]) -> None:
        self.client = client
        self.keeper = keeper


_shared: WeakKeyDictionary[asyncio.AbstractEventLoop, dict[Hashable, Kept[Any]]] = (
    WeakKeyDictionary()
)
_making: WeakKeyDictionary[asyncio.AbstractEventLoop, asyncio.Lock] = WeakKeyDictionary()
_imported: set[str] = set()


class Clients(Generic[C]):
    """One client per event loop, never one per request and never one across two loops.

    `given` is the user's client, or a function that makes one; otherwise `make` does, and models
    whose `key()` is equal share it. What is made here is closed when its loop shuts down. `modules`
    are what a request of the SDK imports: they are imported in a thread before the first one.
    """

    def __init__(
        self,
        given: C | Callable[[], C] | None,
        *,
        modules: Sequence[str] = (),
        make: Callable[[], C],
        key: Callable[[], Hashable],
        close: Callable[[C], Awaitable[object]],
        prepare: Callable[[C], C] = lambda client: client,
    ) -> None:
        self._made = given is None or callable(given)
        self._given = None if self._made else cast("C", given)
        self._modules = modules
        self._make = cast("Callable[[], C]", given) if given is not None and self._made else make
        self._key = key if given is None else None
        self._close = close
        self._prepare = prepare
        self._home: ref[asyncio.AbstractEventLoop] | None = None
        self._own: WeakKeyDictionary[asyncio.AbstractEventLoop, dict[Hashable, Kept[C]]] = (
            WeakKeyDictionary()
        )

    async def get(self) -> C:
        """The client for the running loop; raises UsageError for one that belongs to another."""
        loop = asyncio.get_running_loop()
        if not _imported.issuperset(self._modules):
            await asyncio.to_thread(_import, self._modules)
        if self._given is not None:
            if self._home is None:
                self._home = ref(loop)
                self._given = self._prepare(self._given)
            elif self._home() is not loop:
                raise UsageError(
                    "this model's client= was used in another event loop, and its connections "
                    "belong there; pass a function that makes one: client=lambda: …"
                )
            return self._given
        table = _shared if self._key is not None else self._own
        for known in (table, _making):
            for each in [each for each in known if each.is_closed()]:
                del known[each]
        kept = table.setdefault(loop, {})
        key = self._key() if self._key is not None else None
        if key not in kept:
            async with _making.setdefault(loop, asyncio.Lock()):
                if key not in kept:  # nobody has made it while this one waited
                    client = await self._new()
                    keeper = _keep(client, self._close, kept, key)
                    await anext(keeper)  # the loop knows it now, and closes it when it shuts down
                    kept[key] = Kept(client, keeper)
        return kept[key].client

    async def _new(self) -> C:
        """A client; one of ours loads certificates, and is made in a thread."""
        if self._key is None:
            return self._prepare(self._make())  # the user's function runs in the user's thread
        return await asyncio.to_thread(lambda: self._prepare(self._make()))


async def _keep(
    client: C, close: Callable[[C], Awaitable[object]], kept: dict[Hashable, Any], key: Hashable
) -> AsyncGenerator[None, None]:
    """Suspended as long as its event loop lives, which closes it with all its generators."""
    try:
        yield
    finally:
        kept.pop(key, None)
        await close(client)


# ── what is there ───────────────────────────────────────────────────────────────────────────


def check_extra(module: str, extra: str) -> None:
    """Raises UsageError that names the pip line where an SDK is not installed."""
    try:
        found = importlib.util.find_spec(module) is not None
    except ImportError:
        found = False
    if not found:
        raise UsageError(f'{module} is not installed: pip install "hookline[{extra}]"')


def check_async(client: object, right: str) -> None:
    """Raises UsageError for a client whose requests cannot be awaited."""
    if not callable(client) and not hasattr(client, "__aenter__"):
        raise UsageError(f"client={type(client).__name__} does not fit: pass {right}")


def from_environment(*names: str) -> str | None:
    """The first of these variables that is set and not empty."""
    return next((value for name in names if (value := os.environ.get(name))), None)


def server_of(*urls: object) -> tuple[str | None, int | None]:
    """Host and port of the first of these URLs that is there, for traces."""
    for url in urls:
        if url:
            parts = urlsplit(str(url))
            return parts.hostname, parts.port or {"http": 80, "https": 443}.get(parts.scheme)
    return None, None


def where_of(url: object, provider: str, host: str) -> str:
    """What errors call the server: the provider at an address of its own, else host and port."""
    parts = urlsplit(str(url or ""))
    name = parts.hostname
    if not name or name == host or name.endswith(f".{host}"):
        return provider
    return f"{name}:{parts.port}" if parts.port else name


def no_key(provider: str, *names: str) -> UsageError:
    """The error for a key that is nowhere."""
    return UsageError(
        f"there is no key for {provider}: set {' or '.join(names)}, or pass api_key= or client="
    )


def imported(module: str) -> Any:
    """An SDK's module, which `Clients.get` has imported."""
    return importlib.import_module(module)


def _import(modules: Sequence[str]) -> None:
    for module in modules:
        importlib.import_module(module)
        _imported.add(module)  # only now: a module is in sys.modules before its import has ended
