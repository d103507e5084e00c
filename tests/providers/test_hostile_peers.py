"""Answers of hostile services: bounded after decoding, and followed to no other host."""

from __future__ import annotations

import asyncio
import gzip
from collections.abc import AsyncIterator, Iterator
from contextlib import closing
from typing import Any

import httpx
import httpx2
import pytest
from tests._wires import KEY, WIRES
from tests.durable._forks import Forks
from tests.hostile_peers import BLOCK, MEMORY, MIB, PRESETS, Peer, cases, clients, model_at, play

from hookline import Agent
from hookline.errors import (
    BadRequestError,
    IdleTimeoutError,
    MalformedStreamError,
    ModelError,
)
from hookline.mcp import MCPServer, connect
from hookline.providers._adapter.http_limits import MAX_ERROR, MAX_VALUES, PIECE, Messages, hooks
from hookline.providers._adapter.sse import MAX_EVENT, EventTooLarge
from hookline.providers._adapter.streaming import parse_json
from hookline.providers.kit import server_sent_events
from hookline.testing import ScriptedModel

LIBRARIES = [httpx, httpx2]  # an SDK uses one of them
each_wire = pytest.mark.parametrize("kind", WIRES)


@pytest.fixture(scope="module")
def forks() -> Iterator[Forks]:
    """The process from which the clients that are attacked are forked."""
    with closing(clients()) as forks:
        yield forks


async def failing(kind: Any, peer: Peer, **options: Any) -> ModelError:
    """The error of a chat with this peer."""
    async with peer.serving() as url:
        with pytest.raises(ModelError) as caught:
            await Agent(model_at(kind, url, **options)).chat("Hello.")
    return caught.value


@pytest.mark.slow
@pytest.mark.parametrize("kind", [*WIRES, "mcp"])
@pytest.mark.parametrize("attack", ["bomb: error", "bomb: answer", "bomb: event"])
async def test_a_compressed_answer_takes_bounded_memory(
    forks: Forks, kind: str, attack: str
) -> None:
    figures = await play(forks, kind, attack, 256 * MIB)
    assert figures["outcome"] != "answered"
    assert figures["peak"] < MEMORY, figures


@pytest.mark.parametrize("library", LIBRARIES)
@pytest.mark.parametrize("encoding", ["gzip", "identity"])
async def test_a_body_arrives_in_small_pieces_between_which_others_run(
    library: Any, encoding: str
) -> None:
    turns = 0

    async def count() -> None:
        nonlocal turns
        while True:
            await asyncio.sleep(0)
            turns += 1

    async def body() -> AsyncIterator[bytes]:
        yield gzip.compress(b"x" * (16 * MIB)) if encoding == "gzip" else b"x" * (16 * MIB)

    def answer(request: Any) -> Any:
        return library.Response(200, headers={"content-encoding": encoding}, content=body())

    transport = library.MockTransport(answer)
    counting = asyncio.create_task(count())
    async with (
        library.AsyncClient(transport=transport, event_hooks=hooks()) as http,
        http.stream("GET", "https://api.test/") as response,
    ):
        sizes = [len(piece) async for piece in response.aiter_bytes()]
    counting.cancel()
    assert sum(sizes) == 16 * MIB
    assert max(sizes) <= PIECE
    assert turns >= len(sizes) - 2


@pytest.mark.parametrize("kind", sorted({kind for kind, _ in cases()} - {*WIRES, "mcp"}))
async def test_nor_does_any_other_peer_take_more(forks: Forks, kind: str) -> None:
    attack = next(attack for each, attack in cases() if each == kind and "values" in attack)
    figures = await play(forks, kind, attack, 48 * MIB)
    assert figures["outcome"] != "answered"
    assert figures["peak"] < MEMORY, figures
    assert figures["block"] < BLOCK, figures


@pytest.mark.parametrize("kind", [*WIRES, "mcp", "azure", "bedrock"])
async def test_no_peer_is_asked_for_a_compressed_body(
    kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AZURE_OPENAI_ENDPOINT", "")  # `model_at` sets it
    peer = Peer("bomb: error", 1, kind=kind)
    if kind == "mcp":
        agent = Agent(ScriptedModel())
        async with (
            peer.serving() as url,
            connect(agent, MCPServer.http(f"{url}/mcp", label="peer")),
        ):
            pass
    else:
        await failing(kind, peer)
    assert peer.heads
    assert all("\r\naccept-encoding: identity\r\n" in head for head in peer.heads)


@pytest.mark.parametrize("kind", [*WIRES, *PRESETS])
async def test_a_redirect_to_another_host_is_not_followed(
    kind: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AZURE_OPENAI_ENDPOINT", "")  # `model_at` sets it
    peer = Peer("redirect", 0)
    error = await failing(kind, peer)
    assert peer.stolen == 0
    assert type(error) is BadRequestError
    assert not error.retryable
    assert "follows no redirect to another host" in str(error)
    assert KEY not in str(error)


@pytest.mark.parametrize("library", LIBRARIES)
@pytest.mark.parametrize(
    ("target", "follows"),
    [
        ("/v2", True),
        ("https://API.test:443/v2", True),
        ("http://api.test/v2", False),  # the key would go out without TLS
        ("http://api.test:443/v2", False),
        ("https://api.test:444/v2", False),
        ("//api.test.evil/v2", False),
        ("https://api.test@evil/v2", False),
        ("https://api.test:x/v2", False),
    ],
)
async def test_a_redirect_is_followed_only_at_the_same_origin(
    library: Any, target: str, follows: bool
) -> None:
    asked: list[str] = []

    def answer(request: Any) -> Any:
        asked.append(str(request.url))
        if len(asked) == 1:
            return library.Response(307, headers={"location": target})
        return library.Response(200, text="{}")

    async with library.AsyncClient(
        transport=library.MockTransport(answer), event_hooks=hooks(), follow_redirects=True
    ) as http:
        response = await http.post("https://api.test/v1", content=b"a prompt")
    assert asked == ["https://api.test/v1", *["https://api.test/v2"] * follows]
    assert response.status_code == (200 if follows else 307)


@each_wire
async def test_a_redirect_on_the_same_host_is_followed(kind: Any) -> None:
    peer = Peer("moved", 0)
    error = await failing(kind, peer)
    assert "(400): it moved here" in str(error)


@each_wire
async def test_comments_do_not_count_as_a_sign_of_life(kind: Any) -> None:
    error = await failing(kind, Peer("slow comments", 0), idle_timeout=0.3)
    assert type(error) is IdleTimeoutError
    assert "idle_timeout=" in str(error)


class Comments:
    """A body of many comments, each a piece, and then an event."""

    headers: dict[str, str] = {}  # noqa: RUF012

    async def iter_bytes(self) -> Any:
        for _ in range(200_000):
            yield b": x\n"
        yield b'data: {"a":1}\n\n'

    async def close(self) -> None: ...


async def test_many_comments_cost_no_more_than_their_number() -> None:
    """A sum over all earlier pieces at each piece would take minutes, and the test's timeout."""
    assert [event async for event in server_sent_events(Comments())] == [{"a": 1}]


def test_an_event_of_too_many_values_is_refused_before_it_is_parsed() -> None:
    data = b"[" + b"[]," * MAX_VALUES + b"1]"
    with pytest.raises(EventTooLarge, match="JSON values"):
        parse_json(data)


@each_wire
async def test_an_event_that_is_too_large_is_an_error_that_is_not_retryable(kind: Any) -> None:
    error = await failing(kind, Peer("bomb: event", MAX_EVENT + MIB))
    assert (type(error), error.retryable) == (MalformedStreamError, False), error


@pytest.mark.parametrize("library", LIBRARIES)
async def test_of_an_error_no_more_than_the_limit_is_read(library: Any) -> None:
    sent = 0

    async def body() -> AsyncIterator[bytes]:
        nonlocal sent
        while sent < 4 * MIB:
            sent += PIECE
            yield b"x" * PIECE

    def answer(request: Any) -> Any:
        return library.Response(500, content=body())

    transport = library.MockTransport(answer)
    async with library.AsyncClient(transport=transport, event_hooks=hooks()) as http:
        response = await http.get("https://api.test/")
    assert len(response.content) == MAX_ERROR
    assert sent <= MAX_ERROR + PIECE


def test_messages_are_counted_one_by_one_wherever_the_pieces_of_a_stream_end() -> None:
    event = b"data: [" + b"1," * (MAX_VALUES // 2) + b"1]\n\n"
    for size in (len(event) // 3, len(event) - 1, len(event)):
        messages = Messages(len(event) + 10)
        text = event * 4
        pieces = [text[at : at + size] for at in range(0, len(text), size)]
        assert not any(messages.exceed(piece) for piece in pieces)
    assert Messages(100 * len(event)).exceed(event[:-2] * 3)
    assert Messages(len(event)).exceed(b"x" * (len(event) + 1))
    assert Messages(100).exceed("é".encode() * 20)
