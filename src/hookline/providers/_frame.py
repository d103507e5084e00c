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
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterable, Mapping
from contextlib import AbstractAsyncContextManager, aclosing, suppress
from typing import Any, Final, Protocol

import msgspec

from hookline.errors import HooklineError, MalformedStreamError, ModelError
from hookline.models import Chunk
from hookline.providers._failures import Exchange, failure
from hookline.providers._sse import Events

MAX_PAGE: Final = 4 * 1024 * 1024  # bytes of a body without events that are kept
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
    exchange: Exchange, events: AsyncGenerator[Any, None], reader: Reader
) -> AsyncGenerator[Chunk, None]:
    """The chunks of an answer; whatever goes wrong at the service is raised as a ModelError.

    `events` is closed when this is left, at the end, early or cancelled.
    """
    wrong: HooklineError | None = None
    try:
        async with aclosing(events):
            async for event in events:
                for chunk in _read(exchange, reader.take, event):
                    yield chunk
                if reader.done:
                    await _drain(events)
                    break
    except HooklineError as exc:
        wrong = exc
    except Exception as exc:
        wrong = failure(exchange, exc)
        if isinstance(wrong, MalformedStreamError):  # the one that does not say what it was
            _logger.debug("%s: the stream raised", exchange.where, exc_info=exc)
    if isinstance(wrong, ModelError) and wrong.request_id is None:
        wrong.request_id = exchange.request_id
    if wrong is not None:
        raise wrong.with_traceback(None)  # outside the handler: it is no context of the SDK's
    for chunk in _read(exchange, reader.end):
        yield chunk


def _read(exchange: Exchange, read: Callable[..., Iterable[Chunk]], *event: Any) -> Iterable[Chunk]:
    try:
        return tuple(read(*event))
    except HooklineError:
        raise
    except Exception as exc:  # it has walked where the format promised something else
        kind = type(exc).__name__
        raise exchange.malformed(
            f"{exchange.where}: an event is not in the provider's format ({kind}); check that "
            f"base_url is one of {exchange.provider}'s",
            retryable=False,
        ) from exc


async def _drain(events: AsyncGenerator[Any, None]) -> None:
    """Read the body to its end, so that the connection can be used again."""
    with suppress(Exception):
        async with asyncio.timeout(DRAIN):
            async for _ in events:
                pass


class Body(Protocol):
    """A response that is read as it comes."""

    @property
    def headers(self) -> Mapping[str, str]: ...

    def iter_bytes(self) -> AsyncIterator[bytes]: ...

    async def close(self) -> None: ...


async def server_sent(
    response: Body, exchange: Exchange | None = None
) -> AsyncGenerator[Any, None]:
    """The JSON of each server-sent event of a response; the word [DONE] comes as None.

    A body that is JSON, and no stream, comes as its one event; raises ModelError for a page.
    """
    events = Events()
    body = response.iter_bytes()
    begun: list[bytes] | None = []  # the body, as long as there is no event
    try:
        async for chunk in body:
            if begun is not None:
                begun.append(chunk)
            for data in events.feed(chunk):
                begun = None
                yield None if data[:6] == b"[DONE]" else loaded(data)
            if begun is not None and sum(map(len, begun)) > MAX_PAGE:
                begun = None
        for data in events.end():
            begun = None
            yield None if data[:6] == b"[DONE]" else loaded(data)
        if begun:
            yield _unstreamed(b"".join(begun), response, exchange or Exchange("the service"))
    except BaseException:
        await response.close()
        await spent(body)
        raise


def _unstreamed(body: bytes, response: Body, exchange: Exchange) -> Any:
    """The JSON that came in place of a stream; raises ModelError for anything else."""
    text = body.decode(errors="replace").strip()
    if text[:1] in ("{", "["):
        with suppress(ValueError):
            return loaded(body)
    kind = response.headers.get("content-type", "").partition(";")[0]
    if text[:1] == "<" or (text and kind not in ("text/event-stream", "application/json")):
        raise exchange.page(text, kind if kind != "text/event-stream" else "")
    raise exchange.cut_off()


async def posted(
    request: AbstractAsyncContextManager[Body], exchange: Exchange
) -> AsyncGenerator[Any, None]:
    """Send a request that an SDK has prepared; gives the JSON of its events."""
    async with request as response:
        exchange.heard(response.headers)
        async with aclosing(server_sent(response, exchange)) as events:
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
