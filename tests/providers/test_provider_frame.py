"""The frame of the adapters: server-sent events, cut anywhere; live streaming; what goes where."""

from __future__ import annotations

import asyncio
import itertools
import json
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
from hookline.errors import IdleTimeoutError, MalformedStreamError, ModelConnectionError
from hookline.events import TextDelta
from hookline.providers._adapter import sse as _sse
from hookline.providers._adapter import streaming as _streaming
from hookline.providers._adapter.sse import Events, EventTooLarge
from hookline.providers._adapter.streaming import parse_json
from hookline.providers.kit import Exchange, failure, scrubbed, server_sent_events
from hookline.testing import Turn, call

each_wire = pytest.mark.parametrize("kind", WIRES)


# ── server-sent events ──────────────────────────────────────────────────────────────────────


def fed(pieces: list[bytes]) -> list[bytes]:
    events = Events()
    return [*(data for piece in pieces for data in events.feed(piece)), *events.end()]


UTF8 = b"data: \xe4\xb8\x96\xe2\x80\xa8"
LINES = st.sampled_from(
    [b"data: a", b"data:b", UTF8, b"event: x", b": ping", b"", b"id: 1", b"data"]
)


@given(
    st.lists(st.tuples(LINES, st.sampled_from([b"\n", b"\r\n", b"\r"])), max_size=12),
    st.lists(st.integers(0, 200), max_size=12),
)
def test_where_the_bytes_are_cut_makes_no_difference(
    lines: list[tuple[bytes, bytes]], cuts: list[int]
) -> None:
    whole = b"".join(line + end for line, end in lines)
    marks = sorted({0, len(whole), *(cut % (len(whole) + 1) for cut in cuts)})
    pieces = [whole[a:b] for a, b in pairwise(marks)]
    assert fed(pieces) == fed([whole])
    assert fed([whole[n : n + 1] for n in range(len(whole))]) == fed([whole])


def test_events_as_the_standard_has_them() -> None:
    body = b"\xef\xbb\xbfevent: x\ndata: one\n\n: ping\n\ndata: two\r\ndata:  lines\r\n\r\ndata\n\n"
    assert fed([body]) == [b"one", b"two\n lines"]
    assert fed([b"data: last\n"]) == [b"last"]
    assert fed([b"data: \xe2\x80\xa8\x0b\x0c\xc2\x85\n\n"]) == [b"\xe2\x80\xa8\x0b\x0c\xc2\x85"]


def test_an_event_that_does_not_end_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_sse, "MAX_EVENT", 100)
    for piece in (b"x" * 60, b"data: " + b"x" * 60 + b"\n"):
        events = Events()
        events.feed(piece)
        with pytest.raises(EventTooLarge):
            events.feed(piece)
    small = Events()
    for _ in range(50):
        assert small.feed(b"data: x\n\n") == [b"x"]


def test_json_with_half_a_character_is_read_and_other_json_is_not() -> None:
    assert parse_json(b'{"a": "\\ud83d"}') == {"a": "\ud83d"}
    for data in (b"{", b'{"a": "\xff"}', b"[" * 100_000):
        with pytest.raises(ValueError, match=r"."):
            parse_json(data)


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


class Body:
    """A response with these pieces."""

    headers: dict[str, str] = {}  # noqa: RUF012

    def __init__(self, pieces: Iterable[bytes]) -> None:
        self.pieces = pieces

    async def iter_bytes(self) -> Any:
        for piece in self.pieces:
            yield piece

    async def close(self) -> None: ...


async def test_each_event_is_a_sign_of_life_and_the_time_of_the_reader_does_not_count(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    clock = 0.0
    monkeypatch.setattr(_streaming, "monotonic", lambda: clock)

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
