"""The SDK clients of the adapters: one per event loop, created in a thread, closed with the loop.

Importing an SDK takes a second or two, which would block every other chat. So the first request
that needs an SDK imports it in a thread, and hookline's own clients are created there, too. This
module also reads the environment and checks the clients that users pass.
"""

from __future__ import annotations

import asyncio
import importlib
import importlib.util
import os
from collections.abc import AsyncGenerator, Awaitable, Callable, Hashable, Sequence
from typing import Any, Final, Generic, NamedTuple, TypeAlias, TypeVar, cast
from urllib.parse import urlsplit
from weakref import WeakKeyDictionary, ref

from hookline.errors import HooklineError, MalformedStreamError, UsageError
from hookline.providers._adapter.errors.details import scrubbed
from hookline.providers._adapter.errors.failures import Exchange, failure

C = TypeVar("C")

IDLE_TIMEOUT: Final = 300.0  # seconds: models may think for minutes without sending data
CONNECT_TIMEOUT: Final = 10.0


class LoopClient(NamedTuple, Generic[C]):
    """A client that hookline created, with the generator that closes it at the end of its loop."""

    client: C
    keeper: AsyncGenerator[None, None]


LoopClients: TypeAlias = WeakKeyDictionary[
    asyncio.AbstractEventLoop, dict[Hashable, LoopClient[Any]]
]
_shared_clients: LoopClients = WeakKeyDictionary()
_making: WeakKeyDictionary[asyncio.AbstractEventLoop, asyncio.Lock] = WeakKeyDictionary()
_imported: set[str] = set()


class Clients(Generic[C]):
    """Keeps one client per event loop, for all requests in that loop.

    `own` is the user's client, or a function that returns one. If `own` is None, `make` creates
    the client, and models with an equal `key()` share that client. Both functions run in a thread.
    A client that is created here is closed when its event loop shuts down. `modules` lists the
    modules that the SDK imports at its first request. Before that request, a thread imports these
    modules.
    """

    def __init__(
        self,
        own: C | Callable[[], C] | None,
        *,
        modules: Sequence[str] = (),
        make: Callable[[], C],
        key: Callable[[], Hashable],
        close: Callable[[C], Awaitable[object]],
        prepare: Callable[[C], C] = lambda client: client,
    ) -> None:
        self._creates = own is None or callable(own)
        self._client = None if self._creates else cast("C", own)
        self._modules = modules
        self._make = cast("Callable[[], C]", own) if own is not None and self._creates else make
        self._key: Callable[[], Hashable] = key if own is None else lambda: None
        self._close = close
        self._prepare = prepare
        self._home: ref[asyncio.AbstractEventLoop] | None = None
        self._table: LoopClients = _shared_clients if own is None else WeakKeyDictionary()

    async def get(self) -> C:
        """Return the client of the running loop; raises UsageError if another loop owns it."""
        loop = asyncio.get_running_loop()
        if not _imported.issuperset(self._modules):
            await asyncio.to_thread(_import, self._modules)
        if self._client is not None:
            if self._home is None:
                self._home = ref(loop)
                self._client = self._prepare(self._client)
            elif self._home() is not loop:
                raise UsageError(
                    "this model's client= was used in another event loop, and cannot leave that "
                    "loop; pass a function that returns a client: client=lambda: …"
                )
            return self._client
        for registry in (self._table, _making):
            for reference in registry.keyrefs():  # a copy, because other threads change the table
                other = reference()
                if other is not None and other.is_closed():
                    registry.pop(other, None)
        clients = self._table.setdefault(loop, {})
        key = self._key()
        if key not in clients:
            async with _making.setdefault(loop, asyncio.Lock()):
                if key not in clients:  # no other task has created it in the meantime
                    client = await self._new()
                    keeper = _keep(client, self._close, clients, key)
                    await anext(keeper)  # from now on the loop closes the generator at its shutdown
                    clients[key] = LoopClient(client, keeper)
        kept: C = clients[key].client
        return kept

    async def _new(self) -> C:
        """Create a client in a thread: it loads certificates, and may import more of the SDK."""
        try:
            return await asyncio.to_thread(lambda: self._prepare(self._make()))
        except HooklineError:
            raise
        except Exception as exc:
            # A failure of the network keeps its own error; creating a client may fetch credentials.
            if type(failure(Exchange("the service"), exc)) is not MalformedStreamError:
                raise
            raise UsageError(
                f"the model's client cannot be created ({type(exc).__name__}: "
                f"{scrubbed(str(exc))}); set what it needs, or correct the function in client="
            ) from exc


async def _keep(
    client: C, close: Callable[[C], Awaitable[object]], clients: dict[Hashable, Any], key: Hashable
) -> AsyncGenerator[None, None]:
    """Stay suspended until the event loop shuts down, which closes all async generators."""
    try:
        yield
    finally:
        clients.pop(key, None)
        await close(client)


# ── what is there ───────────────────────────────────────────────────────────────────────────


def check_extra(module: str, extra: str) -> None:
    """Raise UsageError with the pip command if an SDK is not installed."""
    try:
        installed = importlib.util.find_spec(module) is not None
    except ImportError:
        installed = False
    if not installed:
        raise UsageError(f'{module} is not installed: pip install "hookline[{extra}]"')


def check_async(client: object, right: str) -> None:
    """Raise UsageError for a client whose requests cannot be awaited."""
    if not callable(client) and not hasattr(client, "__aenter__"):
        kind = type(client).__name__
        raise UsageError(f"client= is an object of type {kind}, which is not async; pass {right}")


def check_alone(client: object, **options: object) -> None:
    """Raise UsageError for options that have no effect because there is a client."""
    names = " and ".join(f"{name}=" for name, value in options.items() if value is not None)
    if client is not None and names:
        raise UsageError(
            f"client= has its own key and address, so {names} would have no effect; "
            f"leave out {names}, or leave out client="
        )


def check_url(url: object) -> None:
    """Raise UsageError for an address that no request can be sent to."""
    if url is None:
        return
    try:
        parts = urlsplit(str(url))
        right = parts.scheme in ("http", "https") and bool(parts.hostname)
        _ = parts.port
    except ValueError:
        right = False
    if not right:
        raise UsageError(
            f"base_url={str(url).rpartition('@')[2][:200]!r} is not the address of a service; "
            "begin with https:// or http://, such as 'http://localhost:8000/v1'"
        )


def from_environment(*names: str) -> str | None:
    """Return the first of these environment variables that is set and not empty."""
    return next((value for name in names if (value := os.environ.get(name))), None)


def server_of(*urls: object) -> tuple[str | None, int | None]:
    """Return the host and port of the first URL that is set, for traces."""
    for url in urls:
        if url:
            parts = urlsplit(str(url))
            return parts.hostname, parts.port or {"http": 80, "https": 443}.get(parts.scheme)
    return None, None


def where_of(url: object, provider: str, host: str) -> str:
    """Name the server in errors: the provider for its standard host, otherwise host and port."""
    parts = urlsplit(str(url or ""))
    name = parts.hostname
    if not name or name == host or name.endswith(f".{host}"):
        return provider
    return f"{name}:{parts.port}" if parts.port else name


def address_of(client: object) -> object:
    """Return the address that a client sends its requests to; None if it does not say."""
    inner = getattr(client, "_api_client", None)  # of Google's SDK
    return getattr(client, "base_url", None) or getattr(
        getattr(inner, "_http_options", None), "base_url", None
    )


def keys_of(client: object) -> tuple[str, ...]:
    """Return the keys of a client, which must not appear in errors."""
    inner = getattr(client, "_api_client", None)  # Google's SDK keeps the key there
    keys = [getattr(client, name, None) for name in ("api_key", "auth_token")]
    keys.append(getattr(inner, "api_key", None))
    return tuple(key for key in keys if isinstance(key, str) and key)


def no_key(provider: str, *names: str) -> UsageError:
    """Build the error for a missing key."""
    return UsageError(
        f"no API key for {provider}: set {' or '.join(names)}, or pass api_key= or client="
    )


def imported(module: str) -> Any:
    """Return an SDK module that `Clients.get` has imported."""
    return importlib.import_module(module)


def _import(modules: Sequence[str]) -> None:
    for module in modules:
        try:
            importlib.import_module(module)
        except Exception as exc:
            raise UsageError(
                f"{module} is installed, but cannot be imported ({type(exc).__name__}: {exc}); "
                "check the versions of the installed packages"
            ) from exc
        _imported.add(module)  # not earlier: a module is in sys.modules before its import ends
