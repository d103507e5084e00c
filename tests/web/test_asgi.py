"""The wire between server and application, played by hand, on every version of ASGI's HTTP."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest
from tests.web._server import TOKEN, eventually, serve
from tests.web.test_site import Gate, gated, native, request_of

from hookline import Agent
from hookline.testing import ScriptedModel
from hookline.web import Caps, Site, app

VERSIONS = pytest.mark.parametrize("version", ["2.0", "2.1", "2.3", "2.4", "2.5"])


class Wire:
    """A connection: what the application sent, and what it is told."""

    def __init__(self, version: str, path: str = "/native", text: str = "hi") -> None:
        body = json.dumps(request_of("native", text)).encode()
        self.sent: list[dict[str, Any]] = []
        self.told: asyncio.Queue[dict[str, Any]] = asyncio.Queue()
        self.told.put_nowait({"type": "http.request", "body": body, "more_body": False})
        self.broken: BaseException | None = None
        self.blocked: asyncio.Event | None = None
        self.scope: dict[str, Any] = {
            "type": "http",
            "asgi": {"version": "3.0", "spec_version": version},
            "method": "POST",
            "path": path,
            "root_path": "",
            "headers": [
                (b"host", b"localhost"),
                (b"content-type", b"application/json"),
                (b"authorization", f"Bearer {TOKEN}".encode()),
            ],
        }

    async def send(self, message: Any) -> None:
        if self.broken is not None:
            raise self.broken
        if self.blocked is not None:
            await self.blocked.wait()
        self.sent.append(dict(message))

    def run(self, site: Site) -> asyncio.Task[None]:
        return asyncio.create_task(site(self.scope, self.told.get, self.send))

    def leave(self) -> None:
        self.told.put_nowait({"type": "http.disconnect"})

    @property
    def data(self) -> bytes:
        return b"".join(m["body"] for m in self.sent if m["type"] == "http.response.body")


def site_with(agent: Agent[Any], **caps: Any) -> Site:
    return app(agent, token=TOKEN, caps=Caps(drain=0.0, **caps))


def reasons_of(agent: Agent[Any]) -> list[Any]:
    reasons: list[Any] = []
    agent.add_hook("onChatAbort", lambda ctx: reasons.append(ctx.reason))
    return reasons


@pytest.mark.parametrize(
    "length",
    [b"\xb2", b"9" * 5000, b"-1", b"1e3", b""],
    ids=["superscript", "endless", "negative", "exponent", "empty"],
)
async def test_a_length_that_is_none_is_refused(length: bytes) -> None:
    site, wire = site_with(Agent(ScriptedModel("Hello."))), Wire("2.5")
    wire.scope["headers"].append((b"content-length", length))
    await wire.run(site)
    assert wire.sent[0]["status"] == (413 if length[:1] == b"9" else 400)


@VERSIONS
async def test_a_client_that_leaves_while_the_run_is_silent(version: str, no_leaks: None) -> None:
    gate = Gate()
    agent = gated("Hello.", gate=gate)
    site, wire, reasons = site_with(agent), Wire(version), reasons_of(agent)
    serving = wire.run(site)
    await gate.reached.wait()
    wire.leave()
    await serving
    await eventually(lambda: len(site.runs) == 0)
    assert reasons == ["client left"]


@VERSIONS
async def test_a_client_that_is_gone_when_something_is_sent(version: str, no_leaks: None) -> None:
    gate = Gate()
    agent = gated("Hello.", gate=gate)
    site, wire, reasons = site_with(agent), Wire(version), reasons_of(agent)
    serving = wire.run(site)
    await gate.reached.wait()
    wire.broken = OSError("client disconnected")
    gate.open.set()
    await serving
    await eventually(lambda: len(site.runs) == 0)
    assert reasons in (["client left"], [])  # or the answer was complete by then


@VERSIONS
async def test_a_client_that_has_left_before_anything_was_sent(
    version: str, no_leaks: None
) -> None:
    gate = Gate()
    agent = gated("Hello.", gate=gate)
    site, wire, reasons = site_with(agent), Wire(version), reasons_of(agent)
    wire.leave()
    await wire.run(site)
    await eventually(lambda: len(site.runs) == 0)
    assert reasons in (["client left"], [])
    assert all("Hello" not in str(each) for each in wire.sent)


@VERSIONS
async def test_a_server_that_cancels_the_application(version: str, no_leaks: None) -> None:
    gate = Gate()
    agent = gated("Hello.", gate=gate)
    site, wire, reasons = site_with(agent), Wire(version), reasons_of(agent)
    serving = wire.run(site)
    await gate.reached.wait()
    serving.cancel()
    with pytest.raises(asyncio.CancelledError):
        await serving
    await eventually(lambda: len(site.runs) == 0)
    assert reasons == ["client left"]


async def test_a_client_that_takes_nothing_counts_as_gone(no_leaks: None) -> None:
    agent = Agent(ScriptedModel("x" * 10_000, chunk=10))
    reasons = reasons_of(agent)
    site, wire = site_with(agent, send=0.05), Wire("2.3")
    wire.blocked = asyncio.Event()
    await wire.run(site)
    await eventually(lambda: len(site.runs) == 0)
    assert reasons == ["client left"]


async def test_a_slow_client_slows_its_own_run_down(no_leaks: None) -> None:
    """What waits for it is bounded: the model is not asked for more."""
    given = 0

    async def count() -> None:
        nonlocal given
        given += 1

    agent = Agent(ScriptedModel("x" * 1000, chunk=1, delay=count))
    site, wire = site_with(agent), Wire("2.3")
    wire.blocked = asyncio.Event()
    serving = wire.run(site)
    for _ in range(200):
        await asyncio.sleep(0)
    assert 0 < given <= 64 + 16  # what the stream holds, and what the run keeps for its reader
    wire.blocked.set()
    await serving
    assert given == 1001
    assert type(native(wire.data)[-1]).__name__ == "ChatDone"


async def test_a_reader_that_lags_behind_what_is_kept_is_cut_off_and_its_run_goes_on() -> None:
    agent = Agent(ScriptedModel("x" * 200, chunk=1))
    done: list[str] = []
    agent.add_hook("onChatDone", lambda ctx: done.append(ctx.response.text))
    caps = Caps(replay_bytes=10_000, drain=0.0)
    site = app(agent, token=TOKEN, caps=caps, on_disconnect="detach")
    wire = Wire("2.3")
    wire.blocked = asyncio.Event()
    serving = wire.run(site)
    await eventually(lambda: done == ["x" * 200])
    wire.blocked.set()
    await serving
    assert b'"event":"reload"' in wire.data
    assert wire.sent[-1]["more_body"] is False


async def test_a_stream_begins_with_a_comment_before_anything_has_happened() -> None:
    gate = Gate()
    site, wire = site_with(gated("Hello.", gate=gate)), Wire("2.3")
    serving = wire.run(site)
    await gate.reached.wait()
    assert [m["type"] for m in wire.sent[:2]] == ["http.response.start", "http.response.body"]
    assert wire.sent[1]["body"].startswith(b": open\n\n")
    assert wire.sent[1]["more_body"] is True
    gate.open.set()
    await serving
    assert wire.sent[-1]["more_body"] is False
    assert all(m["more_body"] for m in wire.sent[1:-1])


async def test_a_body_that_is_cut_off_runs_nothing() -> None:
    site, wire = site_with(Agent(ScriptedModel())), Wire("2.3")
    wire.told.get_nowait()
    wire.told.put_nowait({"type": "http.request", "body": b'{"mess', "more_body": True})
    wire.leave()
    await wire.run(site)
    assert wire.sent[0]["status"] == 400
    assert len(site.runs) == 0


async def test_a_body_that_comes_too_slowly_is_refused() -> None:
    site, wire = site_with(Agent(ScriptedModel()), send=0.05), Wire("2.3")
    wire.told.get_nowait()
    wire.told.put_nowait({"type": "http.request", "body": b'{"mess', "more_body": True})
    await wire.run(site)
    assert wire.sent[0]["status"] == 408


async def test_websockets_are_closed_and_lifespan_ends_what_runs() -> None:
    gate = Gate()
    site, wire = site_with(gated("Hello.", gate=gate)), Wire("2.3")
    sent: list[Any] = []

    async def send(message: Any) -> None:
        sent.append(message["type"])

    await site({"type": "websocket"}, wire.told.get, send)
    assert sent == ["websocket.close"]
    serving = wire.run(site)
    await gate.reached.wait()
    life: asyncio.Queue[dict[str, Any]] = asyncio.Queue()
    life.put_nowait({"type": "lifespan.startup"})
    life.put_nowait({"type": "lifespan.shutdown"})
    await site({"type": "lifespan"}, life.get, send)
    assert sent[1:] == ["lifespan.startup.complete", "lifespan.shutdown.complete"]
    await serving
    assert native(wire.data)[-1].reason == "the server is shutting down"


@pytest.mark.parametrize(
    ("path", "root_path"),
    [("/native", ""), ("/agent/native", "/agent"), ("/native", "/agent"), ("/a/b/native", "/a/b")],
)
async def test_it_finds_its_routes_where_it_is_mounted(path: str, root_path: str) -> None:
    site, wire = site_with(Agent(ScriptedModel("Hello."))), Wire("2.3", path)
    wire.scope["root_path"] = root_path
    await wire.run(site)
    assert wire.sent[0]["status"] == 200


@pytest.mark.parametrize(
    ("header", "size", "status"),
    [("content-type", 4 * 1024 * 1024, 415), ("content-length", 4 * 1024 * 1024 + 1, 413)],
)
async def test_a_client_that_is_still_sending_gets_the_refusal(
    header: str, size: int, status: int
) -> None:
    """A server that closes the connection on a client that sends makes it lose the response."""
    kind = "text/plain" if header == "content-type" else "application/json"
    async with serve(site_with(Agent(ScriptedModel()))) as url:
        port = int(url.rpartition(":")[2])
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        head = f"POST /native HTTP/1.1\r\nhost: 127.0.0.1\r\nauthorization: Bearer {TOKEN}\r\n"
        head += "connection: close\r\n"
        writer.write(f"{head}content-type: {kind}\r\ncontent-length: {size}\r\n\r\n".encode())
        for _ in range(size // 10_000):
            writer.write(b"x" * 10_000)
            await writer.drain()
        writer.write(b"x" * (size % 10_000))
        answer = await reader.read(10_000)
        assert answer.startswith(f"HTTP/1.1 {status} ".encode())
        assert b"must " in answer
        writer.close()


async def test_the_rest_of_a_refused_body_is_read_up_to_a_limit() -> None:
    site, wire = site_with(Agent(ScriptedModel()), body_bytes=1000), Wire("2.5")
    wire.told.get_nowait()
    for _ in range(10):
        wire.told.put_nowait({"type": "http.request", "body": b"x" * 600, "more_body": True})
    await wire.run(site)
    assert wire.sent[0]["status"] == 413
    assert wire.told.qsize() == 6  # two were too much, and two more were dropped
