"""What every adapter stands in: a client per event loop, and the way from events to chunks.

An adapter is four things. A function that makes the provider's request from ours and a `Reader`
that makes chunks of the provider's events are pure. `Clients` keeps the SDK's client. And one
async generator sends the request and yields the events as they come; `relay` does the rest:
errors, cut answers, draining and closing. Nothing here knows a provider.
"""

from __future__ import annotations

import asyncio
import importlib
import importlib.util
import json
import logging
import os
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Hashable, Iterable
from contextlib import aclosing, suppress
from typing import Any, Final, Generic, Protocol, TypeVar, cast
from urllib.parse import urlsplit
from weakref import WeakKeyDictionary, ref

import msgspec

from hookline.errors import HooklineError, MalformedStreamError, UsageError
from hookline.models import Chunk
from hookline.providers._failures import failure
from hookline.providers._sse import Events

C = TypeVar("C")

IDLE_TIMEOUT: Final = 300.0  # seconds: models may think for minutes and say nothing
CONNECT_TIMEOUT: Final = 10.0
DRAIN: Final = 0.1  # seconds for the end of a body whose answer is whole

_logger = logging.getLogger("hookline")


# ── from events to chunks ───────────────────────────────────────────────────────────────────


class Reader(Protocol):
    """Makes chunks of a provider's events. Pure: it is tested from recorded events.

    `done` says that the answer is whole and nothing that counts can follow. `end` gives the rest,
    the Finish last; it raises MalformedStreamError where the answer was cut off.
    """

    @property
    def done(self) -> bool:
        """Whether the answer is whole, so that nothing that counts can follow."""
        ...

    def take(self, event: Any, /) -> Iterable[Chunk]:
        """The chunks that one event of the provider comes to."""
        ...

    def end(self) -> Iterable[Chunk]:
        """What is left when the events have ended, the Finish last."""
        ...


async def relay(
    provider: str,
    events: AsyncGenerator[Any, None],
    reader: Reader,
    secrets: Iterable[str] = (),
) -> AsyncGenerator[Chunk, None]:
    """The chunks of an answer; whatever goes wrong at the service is raised as a ModelError.

    `events` is closed when this is left, at the end, early or cancelled.
    """
    wrong: HooklineError | None = None
    try:
        async with aclosing(events):
            async for event in events:
                for chunk in _read(provider, reader.take, event):
                    yield chunk
                if reader.done:
                    await _drain(events)
                    break
    except HooklineError as exc:
        wrong = exc
    except Exception as exc:
        wrong = failure(provider, exc, secrets)
        if isinstance(wrong, MalformedStreamError):  # the one that does not say what it was
            _logger.debug("%s: the stream raised", provider, exc_info=exc)
    if wrong is not None:
        raise wrong.with_traceback(None)  # outside the handler: it is no context of the SDK's
    for chunk in _read(provider, reader.end):
        yield chunk


def _read(provider: str, read: Callable[..., Iterable[Chunk]], *event: Any) -> Iterable[Chunk]:
    try:
        return tuple(read(*event))
    except HooklineError:
        raise
    except Exception as exc:  # it has walked where the format promised something else
        kind = type(exc).__name__
        raise MalformedStreamError(
            f"{provider}: an event is not in the provider's format ({kind}); try again, and "
            "check that the address is one of this provider's",
            provider=provider,
        ) from exc


async def _drain(events: AsyncGenerator[Any, None]) -> None:
    """Read the body to its end, so that the connection can be used again."""
    with suppress(Exception):
        async with asyncio.timeout(DRAIN):
            async for _ in events:
                pass


class Body(Protocol):
    """A response that is read as it comes."""

    def iter_bytes(self) -> AsyncIterator[bytes]: ...

    async def close(self) -> None: ...


async def server_sent(response: Body) -> AsyncGenerator[Any, None]:
    """The JSON of each server-sent event of a response; the word [DONE] comes as None."""
    events = Events()
    body = response.iter_bytes()
    try:
        async for chunk in body:
            for data in events.feed(chunk):
                yield None if data[:6] == b"[DONE]" else loaded(data)
        for data in events.end():
            yield None if data[:6] == b"[DONE]" else loaded(data)
    except BaseException:
        await response.close()
        await spent(body)
        raise


async def spent(body: AsyncIterator[Any]) -> None:
    """Let the nested generators of an SDK find their connection closed, and end one by one.

    Closed from the outside they would leave the inner ones to tasks of the garbage collector.
    """
    with suppress(Exception):
        async for _ in body:
            pass


def loaded(data: bytes) -> Any:
    """The JSON; raises ValueError where it is none."""
    try:
        return msgspec.json.decode(data)
    except msgspec.DecodeError:
        # The fast way refuses a surrogate alone, of a character that a service cut in two.
        return json.loads(data.decode())
    except RecursionError:
        raise ValueError("nested too deeply: it must be JSON that Python can read") from None


# ── clients ─────────────────────────────────────────────────────────────────────────────────


class Kept(Generic[C]):
    """A client of ours with what closes it when its event loop ends."""

    __slots__ = ("client", "keeper")

    def __init__(self, client: C, keeper: AsyncGenerator[None, None]) -> None:
        self.client = client
        self.keeper = keeper


_shared: WeakKeyDictionary[asyncio.AbstractEventLoop, dict[Hashable, Kept[Any]]] = (
    WeakKeyDictionary()
)


class Clients(Generic[C]):
    """One client per event loop, never one per request and never one across two loops.

    `given` is the user's client, or a function that makes one; otherwise `make` does, and models
    whose `key()` is equal share it. What is made here is closed when its loop shuts down.
    """

    def __init__(
        self,
        given: C | Callable[[], C] | None,
        *,
        make: Callable[[], C],
        key: Callable[[], Hashable],
        close: Callable[[C], Awaitable[object]],
        prepare: Callable[[C], C] = lambda client: client,
    ) -> None:
        self._made = given is None or callable(given)
        self._given = None if self._made else cast("C", given)
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
        for each in [each for each in table if each.is_closed()]:
            del table[each]
        kept = table.setdefault(loop, {})
        key = self._key() if self._key is not None else None
        found = kept.get(key)
        if found is None:
            client = self._prepare(self._make())
            keeper = _keep(client, self._close, kept, key)
            await anext(keeper)  # from now on the loop knows it, and closes it when it shuts down
            found = kept[key] = Kept(client, keeper)
        return found.client


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


def no_key(provider: str, *names: str) -> UsageError:
    """The error for a key that is nowhere."""
    return UsageError(
        f"there is no key for {provider}: set {' or '.join(names)}, or pass api_key= or client="
    )


def imported(module: str) -> Any:
    """An SDK, imported when it is used."""
    return importlib.import_module(module)
