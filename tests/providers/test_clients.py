"""Clients of the adapters: where the SDK is imported, who makes a client, and what is closed."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import threading
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any, ClassVar

import pytest
from tests._wires import ADAPTERS, KEY, WIRES, wire
from tests.wire import Wire, WireServer

from hookline import Agent
from hookline.errors import MalformedStreamError, ModelConnectionError, UsageError
from hookline.events import TextDelta
from hookline.models import Finish, TextChunk
from hookline.providers._adapter import clients as _clients
from hookline.providers._adapter import connection as _connection
from hookline.providers._adapter import streaming as _frame
from hookline.providers.kit import Clients, Exchange, relay, server_sent_events
from hookline.testing import Turn

each_wire = pytest.mark.parametrize("kind", WIRES)
ROOT = Path(__file__).parents[2]

# ── where the SDK is imported ───────────────────────────────────────────────────────────────

FIRST_CHAT = """
import asyncio, json, os, sys, threading
from hookline import Agent
from hookline.providers.presets import preset
from tests.wire import WireServer
from tests._wires import ADAPTERS, KEY

loop, seen = threading.get_ident(), []

def audit(event, args):
    if event == "import":
        seen.append((args[0], threading.get_ident() == loop))

def client(kind, url):
    if kind == "anthropic":
        from anthropic import AsyncAnthropic as Client
    elif kind == "google":
        from google import genai
        return genai.Client(api_key=KEY, http_options={"base_url": url})
    else:
        from openai import AsyncOpenAI as Client
    return Client(api_key=KEY, base_url=url)

async def main(kind, made):
    format = {"azure": "openai-chat", "bedrock": "anthropic"}.get(kind, kind)
    async with WireServer(format, "One.", "Two.") as server:
        if kind in ("azure", "bedrock"):
            os.environ["AZURE_OPENAI_ENDPOINT"] = server.url.removesuffix("/v1")
            os.environ["ANTHROPIC_BEDROCK_MANTLE_BASE_URL"] = server.url
            os.environ["AZURE_OPENAI_API_KEY"] = os.environ["AWS_BEARER_TOKEN_BEDROCK"] = KEY
            os.environ["AWS_REGION"] = "eu-north-1"
            model = preset(kind, "m")
        elif made:
            model = ADAPTERS[kind]("m", client=lambda: client(kind, server.url))
        else:
            model = ADAPTERS[kind]("m", base_url=server.url, api_key=KEY)
        agent = Agent(model)
        sys.addaudithook(audit)
        texts = await asyncio.gather(agent.chat("Hi."), agent.chat("Hi."))
        assert sorted(each.text for each in texts) == ["One.", "Two."]
    print(json.dumps([[name for name, on in seen if on is here] for here in (True, False)]))

asyncio.run(main(sys.argv[1], sys.argv[2] == "made"))
"""
# What starting a thread and reading a socket import themselves, which is no part of an SDK.
OTHERS = {"_queue", "queue", "array", "concurrent", "anyio", "opentelemetry"}


FIRST = [*((kind, how) for kind in WIRES for how in ("ours", "made")), ("azure", "ours")]
FIRST.append(("bedrock", "ours"))


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "how"), FIRST, ids=[f"{kind} {how}" for kind, how in FIRST])
def test_the_first_chat_imports_its_sdk_in_a_thread_and_not_on_the_event_loop(
    kind: str, how: str
) -> None:
    """Of a client of ours, of one that the user's function makes, and of the presets' own."""
    done = subprocess.run(
        [sys.executable, "-c", FIRST_CHAT, kind, how],
        capture_output=True,
        text=True,
        cwd=ROOT,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    on_the_loop, in_a_thread = json.loads(done.stdout)
    sdks = {"openai-chat": "openai", "azure": "openai", "bedrock": "anthropic"}
    sdk = sdks.get(kind, kind)
    assert sdk in {name.split(".")[0] for name in in_a_thread}
    assert {name.split(".")[0] for name in on_the_loop} <= OTHERS


@each_wire
async def test_a_users_function_makes_its_client_in_a_thread_once_for_each_loop(kind: Any) -> None:
    made: list[int] = []

    async with WireServer(kind, *["Hi."] * 4) as server:
        plain = ADAPTERS[kind]("m", base_url=server.url, api_key=KEY)

        def make() -> Any:
            made.append(threading.get_ident())
            if kind == "google":
                from google import genai

                options: Any = {"base_url": server.url}
                return genai.Client(api_key=KEY, http_options=options)
            import anthropic
            import openai

            sdk: Any = anthropic.AsyncAnthropic if kind == "anthropic" else openai.AsyncOpenAI
            return sdk(api_key=KEY, base_url=server.url)

        model = ADAPTERS[kind]("m", client=make)
        await asyncio.gather(*(Agent(model).chat("Hi.") for _ in range(3)))
        await Agent(plain).chat("Hi.")
    assert len(made) == 1
    assert made[0] != threading.get_ident()


@each_wire
async def test_chats_that_begin_at_once_share_the_one_client_that_is_made(kind: Any) -> None:
    async with wire(kind, *["Hi."] * 5) as (model, _):
        await asyncio.gather(*(Agent(model).chat("Hi.") for _ in range(5)))
        assert len(_clients._shared_clients[asyncio.get_running_loop()]) == 1


class Watched(asyncio.SelectorEventLoop):
    """A loop that lets another thread act when somebody asks whether the loop is closed."""

    meanwhile: Any = None

    def is_closed(self) -> bool:
        meanwhile, self.meanwhile = self.meanwhile, None
        if meanwhile is not None:
            other = threading.Thread(target=meanwhile)
            other.start()
            other.join()
        return super().is_closed()


def test_a_thread_may_get_its_client_while_another_forgets_the_clients_of_closed_loops() -> None:
    made: list[object] = []

    async def close(client: object) -> None: ...

    clients = Clients[object](None, make=object, key=lambda: "threads", close=close)
    old = Watched()
    old.run_until_complete(clients.get())
    old.close()

    def other_thread() -> None:
        made.append(asyncio.run(clients.get()))

    old.meanwhile = other_thread
    assert asyncio.run(clients.get()) is not None
    assert len(made) == 1
    assert old not in _clients._shared_clients


def absent() -> Any:
    raise KeyError("SHOP_API_KEY")


@each_wire
async def test_a_users_function_that_fails_is_named_by_an_error_that_nobody_retries(
    kind: Any,
) -> None:
    with pytest.raises(UsageError, match=r"client cannot be created \(KeyError: 'SHOP_API_KEY'\)"):
        await Agent(ADAPTERS[kind]("m", client=absent)).chat("Hi.")


@each_wire
async def test_a_users_function_that_cannot_reach_the_network_fails_as_a_connection_does(
    kind: Any,
) -> None:
    def away() -> Any:
        raise ConnectionRefusedError("the vault is away")

    with pytest.raises(ModelConnectionError, match="the vault is away"):
        await Agent(ADAPTERS[kind]("m", client=away)).chat("Hi.")


async def test_an_sdk_that_cannot_be_imported_is_the_fault_of_the_installation(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "half_an_sdk.py").write_text("import what_it_needs")
    monkeypatch.syspath_prepend(tmp_path)

    async def close(client: object) -> None: ...

    clients = Clients[object](
        None, modules=("half_an_sdk",), make=object, key=lambda: "half", close=close
    )
    with pytest.raises(UsageError, match=r"half_an_sdk is installed.*what_it_needs"):
        await clients.get()


# ── what is closed when a stream is left ────────────────────────────────────────────────────


class Reader:
    """Takes words; "done" ends the answer, anything that is no word is malformed."""

    done = False

    def take(self, event: Any, /) -> list[TextChunk]:
        self.done = event == "done"
        return [TextChunk(event.lower())]

    def end(self) -> list[Finish]:
        return [Finish()]


async def words(*given: Any) -> AsyncGenerator[Any, None]:
    for each in given:
        yield each
    await asyncio.Event().wait()


def is_closed(generator: AsyncGenerator[Any, None]) -> bool:
    """Whether a generator that somebody still holds has ended, which no collection does."""
    return getattr(generator, "ag_frame", None) is None


async def test_a_relay_that_is_closed_has_closed_its_events() -> None:
    events = words("one", "two")
    chunks = relay(Exchange("acme"), events, Reader())
    await anext(chunks)
    await chunks.aclose()
    assert is_closed(events)


async def test_a_relay_whose_reader_raises_has_closed_its_events() -> None:
    events = words("one", 2)
    with pytest.raises(MalformedStreamError):
        async for _ in relay(Exchange("acme"), events, Reader()):
            pass
    assert is_closed(events)


async def test_a_relay_that_is_cancelled_has_closed_its_events() -> None:
    events = words("one")
    seen = asyncio.Event()

    async def read() -> None:
        async for _ in relay(Exchange("acme"), events, Reader()):
            seen.set()

    task = asyncio.create_task(read())
    await seen.wait()
    task.cancel()
    await asyncio.wait([task])
    assert is_closed(events)


async def test_a_relay_whose_answer_is_whole_has_closed_its_events(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(_frame, "DRAIN", 0.0)
    events = words("one", "done", "more")
    assert len([chunk async for chunk in relay(Exchange("acme"), events, Reader())]) == 3
    assert is_closed(events)


@each_wire
@pytest.mark.parametrize("slow", [False, True], ids=["silent service", "slow reader"])
async def test_an_adapter_whose_chat_is_left_has_closed_every_generator_below_it(
    kind: Any, slow: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each generator is held here, so that no reference count closes it in the adapter's place.

    A service that is silent leaves them in the middle of a read, a slow reader at a yield.
    """
    held: list[Any] = []

    def hold(owner: Any, name: str, *, awaited: bool = False) -> None:
        opened = getattr(owner, name)

        def kept(*args: Any, **kwargs: Any) -> Any:
            held.append(opened(*args, **kwargs))
            return held[-1]

        async def kept_once_awaited(*args: Any, **kwargs: Any) -> Any:
            held.append(await opened(*args, **kwargs))
            return held[-1]

        monkeypatch.setattr(owner, name, kept_once_awaited if awaited else kept)

    hold(
        ADAPTERS[kind] if kind == "google" else _connection.Connection,
        "_events" if kind == "google" else "events",
    )
    if kind == "google":
        from google.genai.models import AsyncModels

        hold(AsyncModels, "generate_content_stream", awaited=True)
    else:
        hold(_connection, "send_request")
        hold(_frame, "server_sent_events")
    answer = Wire(Turn(*["word "] * 300), stall=None if slow else 2000)
    async with WireServer(kind, answer) as server:
        if kind == "google":  # a client of the user's, which tells us of no response
            from google.genai import Client

            client = Client(api_key=KEY, http_options={"base_url": server.url})
            model = ADAPTERS[kind]("m", client=client)
        else:
            model = ADAPTERS[kind]("m", base_url=server.url, api_key=KEY)
        async with Agent(model).chat_stream("Hi.") as stream:
            async for event in stream:
                if isinstance(event, TextDelta):
                    break
            while (held[0].ag_await is None) != slow:  # noqa: ASYNC110 - nothing tells of it
                await asyncio.sleep(0)  # until the chat waits for the service, or for its reader
            await stream.aclose()
            assert len(held) == (2 if kind == "google" else 3)
            assert all(map(is_closed, held))
        if kind == "google":
            await client.aio.aclose()


class Unclosable:
    """A body that falls silent after its first event, and cannot be closed."""

    headers: ClassVar[dict[str, str]] = {}
    closed = 0

    async def iter_bytes(self) -> AsyncGenerator[bytes, None]:
        yield b'data: "one"\n\n'
        if not self.closed:
            await asyncio.Event().wait()

    async def close(self) -> None:
        self.closed += 1
        raise OSError("the socket is gone")


async def test_a_cancellation_is_not_replaced_by_the_failure_to_close_the_body() -> None:
    body, seen = Unclosable(), asyncio.Event()

    async def read() -> None:
        async for _ in relay(Exchange("acme"), server_sent_events(body), Reader()):
            seen.set()

    task = asyncio.create_task(read())
    await seen.wait()
    task.cancel()
    await asyncio.wait([task])
    assert task.cancelled()
    assert body.closed == 1
