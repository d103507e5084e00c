"""The frame of the adapters: server-sent events, cut anywhere; live streaming; what goes where."""

from __future__ import annotations

import asyncio
import itertools
import json
import time
import tracemalloc
from collections.abc import Iterable, Iterator
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests._wires import ADAPTERS, KEY, WIRES, wire
from tests.wire import Wire, WireServer

from hookline import Agent, Conversation, Reasoning, check_history, tool
from hookline.errors import (
    IdleTimeoutError,
    MalformedStreamError,
    ModelConnectionError,
    ModelError,
)
from hookline.events import TextDelta
from hookline.providers.kit import Exchange, failure, scrubbed, server_sent_events
from hookline.testing import Turn, call

each_wire = pytest.mark.parametrize("kind", WIRES)


# ── server-sent events ──────────────────────────────────────────────────────────────────────


class Body:
    """A response with these pieces."""

    headers: dict[str, str] = {}  # noqa: RUF012

    def __init__(self, pieces: Iterable[bytes]) -> None:
        self.pieces = pieces

    async def iter_bytes(self) -> Any:
        for piece in self.pieces:
            yield piece

    async def close(self) -> None: ...


def events_of(*pieces: bytes) -> list[Any]:
    """The events of a body that arrives in these pieces."""
    events, error = outcome_of(*pieces)
    if error is not None:
        raise error
    return events


def outcome_of(*pieces: bytes) -> tuple[list[Any], Exception | None]:
    """The events of a body, and the error in which they end."""
    events: list[Any] = []

    async def read() -> None:
        async for event in server_sent_events(Body(pieces)):
            events.append(event)

    try:
        asyncio.run(read())
    except (ValueError, ModelError) as exc:
        return events, exc
    return events, None


UTF8 = b'data: "\xe4\xb8\x96\xe2\x80\xa8",'
LINES = st.sampled_from(
    [b"data: 1,", b"data:2,", UTF8, b"event: x", b": ping", b"id: 1", b"data", b"data: 0]", b""]
)
ENDS = st.sampled_from([b"\n", b"\r\n", b"\r"])


@given(
    st.lists(st.lists(st.tuples(LINES, ENDS), max_size=5), max_size=4),
    ENDS,
    st.lists(st.integers(0, 200), max_size=12),
)
def test_where_the_bytes_are_cut_makes_no_difference(
    events: list[list[tuple[bytes, bytes]]], end: bytes, places: list[int]
) -> None:
    whole = b"".join(
        b"".join(line + end for line, end in [(b"data: [", end), *lines, (b"data: 0]", end)]) + end
        for lines in events
    )
    marks = sorted({0, len(whole), *(place % (len(whole) + 1) for place in places)})
    pieces = [whole[a:b] for a, b in pairwise(marks)]
    expected, error = outcome_of(whole)
    for cut in (pieces, [whole[n : n + 1] for n in range(len(whole))]):
        found, its_error = outcome_of(*cut)
        assert found == expected
        assert repr(its_error) == repr(error)


def test_events_as_the_standard_has_them() -> None:
    body = b"\xef\xbb\xbfevent: x\ndata: 1\n\n: ping\n\ndata: [2\r\ndata:,3]\r\n\r\ndata\n\n"
    assert events_of(body) == [1, [2, 3]]
    assert events_of(b"data: 1\rdata: \r\rdata: 2\r\r") == [1, 2]
    assert events_of(b"\xef\xbb\xbfdata: 3\n\n") == [3]
    assert events_of(b"data: 4\n") == [4]
    assert events_of(b'data: "\xe2\x80\xa8\xc2\x85"\n\n') == ["\u2028\x85"]
    with pytest.raises(ValueError, match=r"."):  # the end of a line is not left out
        events_of(b"data: 1\ndata: 2\n\n")


def test_an_event_that_does_not_end_is_refused() -> None:
    half = b"x" * 6 * 1024 * 1024
    for piece in (half, b"data: " + half + b"\n"):
        with pytest.raises(ValueError, match="an event of more than 10485760 bytes"):
            events_of(piece, piece)
    small = b'data: "%b"\n\n' % (b"x" * 1024 * 1024)
    assert len(events_of(*[small] * 20)) == 20


def test_json_with_half_a_character_is_read_and_other_json_is_not() -> None:
    assert events_of(b'data: {"a": "\\ud83d"}\n\n') == [{"a": "\ud83d"}]
    for data in (b"{", b'{"a": "\xff"}', b"[" * 100_000):
        with pytest.raises(ValueError, match=r"."):
            events_of(b"data: %b\n\n" % data)


# ── streaming ───────────────────────────────────────────────────────────────────────────────


@each_wire
@pytest.mark.parametrize("piece", [1, 2, 5, 64])
async def test_text_is_whole_wherever_its_bytes_are_cut(kind: Any, piece: int) -> None:
    text = "Grüße, 世界 👩‍👩‍👧\u2028\u0085 end"
    async with wire(kind, Wire(text, piece=piece)) as (model, _):
        assert (await Agent(model).chat("Hi.")).text == text


@each_wire
async def test_what_has_come_is_shown_while_the_service_still_writes(kind: Any) -> None:
    """The server goes on with each event only when the reader has seen the text before it."""
    go = asyncio.Semaphore(20)  # what stands before the first text

    async def gate() -> None:
        await go.acquire()

    words = [f"word{n} " for n in range(40)]
    async with wire(kind, Wire(Turn(*words), delay=gate)) as (model, _):
        seen: list[str] = []
        async with Agent(model).chat_stream("Hi.") as stream:
            async for event in stream:
                if isinstance(event, TextDelta):
                    seen.append(event.text)
                    go.release()
                    go.release()
        assert seen == words


@each_wire
async def test_a_service_may_be_slow_within_the_idle_timeout(kind: Any) -> None:
    answer = Wire(Turn(*"slow"), delay=0.03)
    async with wire(kind, answer, idle_timeout=2.0) as (model, _):
        assert (await Agent(model).chat("Hi.")).text == "slow"


async def test_each_event_is_a_sign_of_life_and_the_time_of_the_reader_does_not_count(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    clock = 0.0
    monkeypatch.setattr(time, "monotonic", lambda: clock)

    def pieces() -> Iterator[bytes]:
        nonlocal clock
        for _ in range(5):
            clock += 0.6
            yield b": comment\n"
            yield b'data: {"a":1}\n\n: comment\n'
        clock += 0.6
        yield b": comment\n"
        clock += 0.6
        yield b": comment\n"

    events = server_sent_events(Body(pieces()), Exchange("it", idle=1.0))
    for _ in range(5):
        assert await anext(events) == {"a": 1}
        clock += 10.0
    with pytest.raises(IdleTimeoutError):
        await anext(events)


async def test_comments_before_the_first_event_take_no_memory() -> None:
    comments = (b":" + b"x" * 1000 + b"\n") * 1000
    pieces = itertools.chain(itertools.repeat(comments, 50), [b'data: {"a":1}\n\n'])
    tracemalloc.start()
    try:
        assert [event async for event in server_sent_events(Body(pieces))] == [{"a": 1}]
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 10 * len(comments)  # a few copies of one piece


# ── from one provider to the other ──────────────────────────────────────────────────────────


@tool
async def weather(city: str) -> str:
    """The weather in a city."""
    return "sunny"


SECRETS = {
    "openai": {"id": "rs_own", "encrypted_content": "openais-own"},
    "anthropic": {"signature": "anthropics-own"},
    "google": {"signature": "Z29vZ2xlcy1vd24="},
}


async def test_a_conversation_goes_from_provider_to_provider() -> None:
    """What one wants back goes to it alone; the others read the text, the calls, the results."""
    talk = Conversation()
    for kind in [*WIRES, *WIRES]:
        turns = (
            [Reasoning("Hm.", SECRETS), "I look. ", call("weather", city="Oslo")],
            f"Sunny, says {kind}.",
        )
        async with WireServer(kind, *turns) as server:
            model = ADAPTERS[kind]("m", base_url=server.url, api_key=KEY)
            await Agent(model, tools=[weather]).chat("Oslo?", conversation=talk)
            sent = json.dumps(server.requests[-1].json)
        own = {"openai": "openais-own", "anthropic": "anthropics-own", "google": "Z29vZ2xlcy1vd24="}
        for name, secret in own.items():
            assert (secret in sent) == (name == kind), (name, kind)
        assert sent.count("I look.") == sum(m.text == "I look. " for m in talk.messages)
    check_history(talk.messages)
    assert len(talk.messages) == 4 * 8


# ── failures ────────────────────────────────────────────────────────────────────────────────


def test_exceptions_are_known_by_their_names_whatever_library_they_are_of() -> None:
    class ReadTimeout(Exception): ...

    class TimeoutException(Exception): ...

    class PoolTimeout(TimeoutException): ...

    class TransportError(Exception): ...

    class RemoteProtocolError(TransportError): ...

    class Strange(Exception): ...

    kinds = {
        TimeoutException("x"): IdleTimeoutError,
        TimeoutError("x"): IdleTimeoutError,
        PoolTimeout("x"): ModelConnectionError,
        RemoteProtocolError("x"): ModelConnectionError,
        ConnectionResetError("x"): ModelConnectionError,
        Strange("a prompt"): MalformedStreamError,
    }
    for exc, kind in kinds.items():
        found = failure(Exchange("acme"), exc)
        assert type(found) is kind
        assert found.provider == "acme"
        assert "prompt" not in str(found)


@pytest.mark.parametrize(
    "text",
    ["sk-proj-abcdef0123", "key sk-ant-api03-xyz_123 is bad", "AIzaSyA1234567", "my-own-secret"],
)
def test_keys_are_left_out_of_texts(text: str) -> None:
    clean = scrubbed(text, ["my-own-secret"])
    assert "…" in clean
    for part in ("abcdef", "api03", "SyA12", "own-secret"):
        assert part not in clean


@pytest.mark.parametrize("tag", ["<", "<script", "<script>", "<style>x"], ids=str)
def test_a_page_of_unclosed_tags_is_read_in_one_pass(tag: str) -> None:
    """A pass for each of the tags would block the event loop for hours."""
    error = Exchange("acme").page(f"Sign in{tag * 300_000}", "text/html")
    assert "'Sign in" in str(error)
    assert len(str(error)) < 1_000


def test_a_page_is_quoted_without_its_scripts() -> None:
    page = (
        "<style>a{}</style><p class='x'>Sign <b>in</b></p><script>1 < 2</script><i>now</i><script>"
    )
    assert "'Sign in now'" in str(Exchange("acme").page(page, "text/html"))


def test_texts_are_bounded() -> None:
    assert len(scrubbed("word " * 10_000)) < 1_100
    for cut in range(1, len("my-own-secret")):  # a secret at the place where reading stops
        long = " " * (16 * 1024 - cut) + "my-own-secret" + " and more" * 10_000
        assert scrubbed(long, ["my-own-secret"]) == "…"
        many = "my-own-secret" * 2000
        assert "my" not in scrubbed("." * cut + many, ["my-own-secret"])
