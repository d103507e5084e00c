"""The common part of all adapters: from a provider's events to chunks.

An adapter has four parts. Two are pure: a function that builds the provider's request, and a
`Reader` that converts the provider's events to chunks. `Clients` keeps the SDK's client. An async
generator sends the request and yields the events. `relay` does the rest: errors, cut-off responses,
draining and closing. No provider's format is known here.
"""

from __future__ import annotations

import asyncio
import json
import logging
import time
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterable, Mapping
from contextlib import AbstractAsyncContextManager, aclosing, suppress
from typing import Any, Final, Protocol

import msgspec

from hookline.errors import (
    HooklineError,
    IdleTimeoutError,
    MalformedStreamError,
    ModelConnectionError,
    ModelError,
)
from hookline.models import Chunk
from hookline.providers._adapter.errors.failures import Exchange, failure
from hookline.providers._adapter.http_limits import MAX_ERROR, MAX_VALUES, too_many_values
from hookline.providers._adapter.sse import Events, EventTooLarge

MAX_PAGE: Final = MAX_ERROR  # the most bytes to keep of a body without events
DRAIN: Final = 0.1  # seconds to wait for the end of a body after a complete answer

_logger = logging.getLogger("hookline")


# ── from events to chunks ───────────────────────────────────────────────────────────────────


class Reader(Protocol):
    """Converts a provider's events to chunks. A reader does no I/O: tests can use recorded events.

    `done`: the answer is complete, and only irrelevant events can follow. `end` returns the
    remaining chunks, with the Finish at the end. `end` raises MalformedStreamError if the answer
    was cut off.
    """

    @property
    def done(self) -> bool:
        """Whether the answer is complete, so that only irrelevant events can follow."""
        ...

    def take(self, event: Any, /) -> Iterable[Chunk]:
        """Convert one event of the provider to chunks."""
        ...

    def end(self) -> Iterable[Chunk]:
        """Return the chunks that remain after the last event; the Finish is at the end."""
        ...


async def relay(
    exchange: Exchange, events: AsyncGenerator[Any, None], reader: Reader
) -> AsyncGenerator[Chunk, None]:
    """Convert the events of a provider to chunks; every failure is raised as a ModelError.

    `events` is closed at the end, and also on an early exit or cancellation.
    """
    wrong: HooklineError | None = None
    rest: Iterable[Chunk] | None = None
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
        if isinstance(wrong, MalformedStreamError):  # its text does not name the cause
            _logger.debug("%s: the stream raised", exchange.where, exc_info=exc)
    if isinstance(wrong, (ModelConnectionError, IdleTimeoutError, MalformedStreamError)):
        # A reader of ours may know that the answer is complete, and only its end did not arrive.
        with suppress(HooklineError):
            rest = _read(exchange, reader.end) if getattr(reader, "finished", False) else None
    if isinstance(wrong, ModelError) and wrong.request_id is None:
        wrong.request_id = exchange.request_id
    if wrong is not None and rest is None:
        raise wrong.with_traceback(None)  # outside the handler: no context
    for chunk in _read(exchange, reader.end) if rest is None else rest:
        yield chunk


def _read(exchange: Exchange, read: Callable[..., Iterable[Chunk]], *event: Any) -> Iterable[Chunk]:
    try:
        return tuple(read(*event))
    except HooklineError:
        raise
    except Exception as exc:  # the event did not have the promised structure
        kind = type(exc).__name__
        raise exchange.malformed(
            f"{exchange.where}: an event is not in the provider's format ({kind}); check that "
            f"base_url is an address of {exchange.provider}",
            retryable=False,
        ) from exc


async def _drain(events: AsyncGenerator[Any, None]) -> None:
    """Read the body to its end, so that the connection can be used again."""
    with suppress(Exception):
        async with asyncio.timeout(DRAIN):
            async for _ in events:
                pass


class Body(Protocol):
    """A response that is read while it arrives."""

    @property
    def headers(self) -> Mapping[str, str]:
        """The headers of the response."""
        ...

    def iter_bytes(self) -> AsyncIterator[bytes]:
        """Yield the decoded body in pieces of any size."""
        ...

    async def close(self) -> None:
        """Close the response, also in the middle of its body."""
        ...


async def server_sent_events(
    response: Body, exchange: Exchange | None = None
) -> AsyncGenerator[Any, None]:
    """Yield the JSON of each server-sent event of a response; the word [DONE] becomes None.

    Raises IdleTimeoutError if comments arrive, but no event within the `idle` of the exchange.
    A JSON body is yielded as a single event. Raises ModelError if the body is a page, such as HTML.
    """
    exchange = exchange or Exchange("the service")
    events = Events()
    body = response.iter_bytes()
    head: bytearray | None = bytearray()  # the body, until the first event
    latest = time.monotonic()  # the time of the latest event: comments do not count
    try:
        async for chunk in body:
            if head is not None:
                head += chunk
            for data in events.feed(chunk):
                head = None
                yield None if data[:6] == b"[DONE]" else parse_json(data)
                latest = time.monotonic()  # the reader may have taken its time
            if time.monotonic() - latest > exchange.idle:
                raise exchange.silent("no event")
            if head is not None and len(head) > MAX_PAGE:
                head = None
        for data in events.end():
            head = None
            yield None if data[:6] == b"[DONE]" else parse_json(data)
        if head:
            yield _unstreamed(bytes(head), response, exchange)
    except BaseException:
        with suppress(Exception):  # which would replace the cancellation
            await response.close()
        await exhaust(body)
        raise


def _unstreamed(body: bytes, response: Body, exchange: Exchange) -> Any:
    """Parse a JSON body that arrived instead of a stream; raises ModelError for anything else."""
    text = body.decode(errors="replace").strip()
    if text[:1] in ("{", "["):
        with suppress(ValueError):
            return parse_json(body)
    kind = response.headers.get("content-type", "").partition(";")[0]
    if text[:1] == "<" or (text and kind not in ("text/event-stream", "application/json")):
        raise exchange.page(text, kind if kind != "text/event-stream" else "")
    raise exchange.cut_off()


async def send_request(
    request: AbstractAsyncContextManager[Body], exchange: Exchange
) -> AsyncGenerator[Any, None]:
    """Send a request that an SDK has prepared, and yield the JSON of its events."""
    async with request as response:
        exchange.note_request_id(response.headers)
        async with aclosing(server_sent_events(response, exchange)) as events:
            async for event in events:
                yield event


async def exhaust(body: AsyncIterator[Any]) -> None:
    """Exhaust the nested generators of an SDK after their connection was closed.

    If they were closed from outside, the inner ones would be left to the garbage collector.
    """
    with suppress(Exception):
        async for _ in body:
            pass


def parse_json(data: bytes) -> Any:
    """Parse JSON; raises ValueError for invalid JSON, and for too many values."""
    if too_many_values(data):
        raise EventTooLarge(f"an event of more than {MAX_VALUES} JSON values")
    try:
        return msgspec.json.decode(data)
    except msgspec.DecodeError:
        # msgspec refuses a lone surrogate, which a service leaves when it splits a character.
        return json.loads(data.decode())
    except RecursionError:
        raise ValueError("nested too deeply: it must be JSON that Python can read") from None
