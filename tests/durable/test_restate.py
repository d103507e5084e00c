"""The client and the worker of `hookline.durable.restate` beside a server that answers badly."""

from __future__ import annotations

import asyncio
import importlib
import socket
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from typing import Any

import msgspec
import pytest
from tests.durable._engines import free_port

from hookline import Agent, Approve
from hookline.durable._job import encode_outcome
from hookline.durable._shared.deaths import Toll
from hookline.durable.restate import Chats, chats
from hookline.durable.restate._deaths import toll_of, undone_by
from hookline.durable.restate._journal_entries import mark
from hookline.errors import RemoteChatError, StoreError, UsageError
from hookline.runtimes import Batch, Durable, Line
from hookline.testing import ScriptedModel

RUNNING = '{"code":470,"message":"has not completed yet","source":"ingress"}'
LOST = '{"code":500,"message":"the partition is moving","source":"ingress"}'
CLOSE = (0, "")


@asynccontextmanager
async def server(answer: Callable[[], tuple[int, str] | None]) -> AsyncIterator[str]:
    """A server that gives each request this status and text, or no answer at all; its URL."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(ConnectionError, asyncio.IncompleteReadError):
            await reader.readuntil(b"\r\n\r\n")
            given = answer()
            if given is None:
                await reader.read()
            elif given is not CLOSE:
                head = f"HTTP/1.1 {given[0]} -\r\ncontent-length: {len(given[1])}\r\n"
                writer.write(f"{head}connection: close\r\n\r\n{given[1]}".encode())
        writer.close()

    async with await asyncio.start_server(serve, "127.0.0.1", 0) as listening:
        yield f"http://127.0.0.1:{listening.sockets[0].getsockname()[1]}"


async def test_a_proxy_that_gives_up_waiting_does_not_end_the_chat(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("hookline.durable.restate._requests._AGAIN", 0.0)
    outcome = encode_outcome("one", LookupError("no"))
    away = [(504, "timeout"), (502, "bad gateway"), (503, "not yet"), (500, LOST)]
    answers = iter([(470, RUNNING), *away, (200, outcome)])
    async with server(lambda: next(answers)) as url, Chats(url) as client:
        with pytest.raises(RemoteChatError, match="LookupError"):
            await client.result("one")
    assert next(answers, None) is None


async def test_a_wait_survives_a_restart_of_its_server(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hookline.durable.restate._requests._AGAIN", 0.0)
    outcome = encode_outcome("one", LookupError("no"))
    answers = iter([(470, RUNNING), CLOSE, CLOSE, (200, outcome)])
    async with server(lambda: next(answers)) as url, Chats(url) as client:
        with pytest.raises(RemoteChatError, match="LookupError"):
            await client.result("one")
    assert next(answers, None) is None


async def test_a_wait_notices_a_server_that_is_gone_without_a_word(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Its machine is lost: nothing closes the connection on which the client waits."""
    monkeypatch.setattr("hookline.durable.restate._requests._AGAIN", 0.0)
    monkeypatch.setattr("hookline.durable.restate._requests._SILENCE", 0.05)
    outcome = encode_outcome("one", LookupError("no"))
    answers = iter([(470, RUNNING), None, (200, outcome)])
    async with server(lambda: next(answers)) as url, Chats(url) as client:
        with pytest.raises(RemoteChatError, match="LookupError"):
            await client.result("one")
    assert next(answers, None) is None


async def test_a_wait_at_an_address_where_nobody_listens_says_so() -> None:
    async with Chats(f"http://127.0.0.1:{free_port()}") as client:
        with pytest.raises(StoreError, match="is not reachable"):
            await client.result("one")


@pytest.mark.parametrize(
    "answer",
    [
        pytest.param((200, "<html></html>"), id="a-page"),
        pytest.param((200, '{"message": 1}'), id="json"),
        pytest.param((404, ""), id="nothing-there"),
        pytest.param((404, '{"detail": "Not Found"}'), id="an-api"),
        pytest.param((405, ""), id="no-such-method"),
        pytest.param((302, ""), id="elsewhere"),
    ],
)
async def test_a_server_that_is_not_restate_does_not_say_that_a_chat_is_over(
    answer: tuple[int, str],
) -> None:
    async with server(lambda: answer) as url, Chats(url) as client:
        calls: list[Any] = [client.abort("one"), client.pending("one"), client.result("one")]
        for call in (*calls, client.answer("one", {"q": Approve()})):
            with pytest.raises(UsageError, match="is not Restate"):
                await call


@pytest.mark.parametrize("text", ["", "<html></html>", '{"id": 1}'])
async def test_a_server_that_is_not_restate_has_started_no_chat(text: str) -> None:
    async with server(lambda: (200, text)) as url, Chats(url) as client:
        with pytest.raises(UsageError, match="is not Restate"):
            await client.start("Hi.")


@pytest.mark.parametrize("status", [429, 502, 503, 504])
async def test_a_server_that_cannot_answer_now_does_not_say_that_a_chat_is_over(
    status: int,
) -> None:
    async with server(lambda: (status, "")) as url, Chats(url) as client:
        for call in (client.abort("one"), client.pending("one"), client.start("Hi.")):
            with pytest.raises(StoreError, match=f"status {status}"):
                await call


@pytest.mark.parametrize("status", [401, 403])
async def test_a_proxy_that_misses_its_headers_does_not_say_that_a_chat_is_over(
    status: int,
) -> None:
    async with server(lambda: (status, "")) as url, Chats(url) as client:
        calls: list[Any] = [client.abort("one"), client.pending("one"), client.result("one")]
        for call in (*calls, client.start("Hi.")):
            with pytest.raises(UsageError, match="headers="):
                await call


async def test_a_worker_that_is_cancelled_as_it_registers_serves_no_longer() -> None:
    asked = asyncio.Event()
    port = free_port()
    agent: Agent[Any] = Agent(ScriptedModel("x"), runtime=Durable())
    async with server(asked.set) as url:
        worker = chats(agent, url, bind=f"127.0.0.1:{port}", admin=url)
        entering = asyncio.create_task(worker.__aenter__())
        await asked.wait()
        running = worker._running
        assert running is not None
        entering.cancel()
        with pytest.raises(asyncio.CancelledError):
            await entering
        ended = running.done()
        running.cancel()
        await asyncio.wait([running])
    assert ended
    socket.create_server(("127.0.0.1", port)).close()


@pytest.mark.parametrize("bind", ["localhost", "127.0.0.1:", ""])
def test_a_worker_needs_a_port_to_bind(bind: str) -> None:
    agent: Agent[Any] = Agent(ScriptedModel("x"), runtime=Durable())
    with pytest.raises(UsageError, match="bind="):
        chats(agent, "http://127.0.0.1:8080", bind=bind)


# ── the deaths of lives ─────────────────────────────────────────────────────────────────────


def batch(*lines: Line) -> bytes:
    return msgspec.json.encode(Batch(hookline=1, lines=list(lines)))


LIFE = batch(Line("life", key="1.a"))
WORK = batch(Line("begin", "step/0/model"), Line("end", "step/0/model"))
DIED = asyncio.run(mark())


@pytest.mark.parametrize(
    ("steps", "undone", "toll"),
    [
        pytest.param([LIFE, DIED, LIFE, b"", DIED], (), Toll(2, 2), id="two-without-a-call"),
        pytest.param([DIED, DIED], (), Toll(2, 2), id="before-anything-was-recorded"),
        pytest.param([LIFE, DIED, LIFE, WORK, DIED], (), Toll(2, 1), id="a-call-begins-a-new-row"),
        pytest.param([LIFE, DIED, LIFE, LIFE], (), Toll(1, 1), id="an-end-without-a-call"),
        pytest.param([LIFE, DIED, LIFE, WORK, LIFE], (), Toll(), id="an-end-with-a-call"),
        pytest.param([LIFE, DIED, LIFE, WORK], (), Toll(), id="the-last-life-ended-with-a-call"),
        pytest.param([LIFE, DIED, LIFE, DIED], (4,), Toll(1, 1), id="one-taken-back"),
        pytest.param([LIFE, DIED, LIFE, DIED], (2, 4), Toll(), id="all-taken-back"),
        pytest.param([LIFE, DIED, LIFE, WORK, DIED], (5,), Toll(), id="lost-after-a-call"),
    ],
)
def test_lives_count_as_deaths_unless_they_end_well_or_take_it_back(
    steps: list[bytes], undone: tuple[int, ...], toll: Toll
) -> None:
    assert toll_of(steps, [undone_by(step) for step in undone]) == toll


async def test_a_worker_that_refuses_a_call_keeps_the_connection_of_its_other_calls() -> None:
    """Restate sends the body of a call after the refusal, on a connection with running calls."""
    hypercorn: Any = pytest.importorskip("hypercorn")
    h2: Any = pytest.importorskip("h2.connection")
    config, over = hypercorn.Config(), asyncio.Event()
    config.bind, config.errorlog = [f"127.0.0.1:{free_port()}"], None
    worker = chats(Agent(ScriptedModel(), runtime=Durable()))
    worker.stop()
    serve = importlib.import_module("hypercorn.asyncio").serve
    serving = asyncio.create_task(serve(worker, config, shutdown_trigger=over.wait))
    connection = h2.H2Connection()
    statuses: list[tuple[int, str]] = []

    async def refused(stream: int) -> None:
        """Send the head of a call, wait for the refusal, then send the body."""
        names = {":method": "POST", ":scheme": "http", ":authority": "-", ":path": "/invoke"}
        connection.send_headers(stream, list(names.items()))
        writer.write(connection.data_to_send())
        while all(number != stream for number, _ in statuses):
            data = await reader.read(65536)
            assert data, "the worker has closed the connection"
            for event in connection.receive_data(data):
                if type(event).__name__ == "ResponseReceived":
                    statuses.append((event.stream_id, dict(event.headers)[b":status"].decode()))
        connection.send_data(stream, b"body", end_stream=True)
        writer.write(connection.data_to_send())

    reader, writer = await connected(config.bind[0])
    connection.initiate_connection()
    async with asyncio.timeout(20):
        for stream in (1, 3, 5):
            await refused(stream)
    assert statuses == [(1, "503"), (3, "503"), (5, "503")]
    writer.close()
    over.set()
    await serving


async def connected(address: str) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """Connect to a server that is starting."""
    host, _, port = address.rpartition(":")
    while True:
        try:
            return await asyncio.open_connection(host, int(port))
        except OSError:
            await asyncio.sleep(0.01)
