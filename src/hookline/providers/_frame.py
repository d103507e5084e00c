"""The frame of every adapter: the way from a provider's events to chunks.

An adapter is four things. A function that makes the provider's request from ours and a `Reader`
that makes chunks of the provider's events are pure. `Clients` keeps the SDK's client. And one
async generator sends the request and yields the events as they come; `relay` does the rest:
errors, cut answers, draining and closing. Nothing here knows a provider.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterable
from contextlib import AbstractAsyncContextManager, aclosing, suppress
from typing import Any, Final, Protocol

import msgspec

from hookline.errors import HooklineError, MalformedStreamError
from hookline.models import Chunk
from hookline.providers._failures import failure
from hookline.providers._sse import Events

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


async def posted(
    request: AbstractAsyncContextManager[Body],
) -> AsyncGenerator[Any, None]:
    """Send a request that an SDK has prepared; gives the JSON of its events."""
    async with request as response, aclosing(server_sent(response)) as events:
        async for event in events:
            yield event


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
