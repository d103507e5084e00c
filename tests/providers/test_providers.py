"""Adapters over wire servers: errors, aborts, clients and loops, names of models."""

from __future__ import annotations

import asyncio
import gc
import re
import socket
import traceback
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from importlib.metadata import EntryPoint, EntryPoints
from pathlib import Path
from typing import Any

import pytest
from tests._wires import ADAPTERS, KEY, WIRES, wire
from tests.wire import Wire, WireServer

from hookline import Agent, Conversation, Image, Settings, check_history
from hookline.errors import (
    AuthenticationError,
    BadRequestError,
    ContentRefusedError,
    ContextTooLongError,
    IdleTimeoutError,
    MalformedStreamError,
    ModelConnectionError,
    ModelError,
    OverloadedError,
    RateLimitError,
    UsageError,
)
from hookline.events import TextDelta
from hookline.providers.anthropic import AnthropicModel
from hookline.providers.google import GoogleModel, GoogleSettings
from hookline.providers.openai import OpenAIModel
from hookline.providers.openai_chat import OpenAIChatModel
from hookline.testing import Turn

from ._habits import delta, gemini, sse

each_wire = pytest.mark.parametrize("kind", WIRES)
OTHER_KEY = "0123456789abcdef0123456789abcdef"
LONG = Turn(*["word "] * 100)


@pytest.fixture(autouse=True)
def no_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is set on this machine decides nothing here."""
    for name in (
        *("OPENAI_API_KEY", "OPENAI_BASE_URL", "ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN"),
        *("ANTHROPIC_BASE_URL", "GOOGLE_API_KEY", "GEMINI_API_KEY"),
    ):
        monkeypatch.delenv(name, raising=False)


async def failing(kind: Any, turn: Wire, **options: Any) -> ModelError:
    """What a chat with this one answer fails with; it was asked for once."""
    conversation = Conversation()
    async with wire(kind, turn, **options) as (model, server):
        with pytest.raises(ModelError) as caught:
            await Agent(model).chat("Hi.", conversation=conversation)
        assert len(server.requests) == 1  # the SDK has not tried again
    check_history(conversation.messages)
    assert caught.value.provider == kind.removesuffix("-chat")
    return caught.value


# ── the tree of errors ──────────────────────────────────────────────────────────────────────

STATUSES = [
    (401, "authentication_error", "invalid api key", AuthenticationError, False),
    (403, "permission_error", "no access to this model", AuthenticationError, False),
    (404, "not_found_error", "no such model", BadRequestError, False),
    (400, "invalid_request_error", "temperature is too high", BadRequestError, False),
    (400, "context_length_exceeded", "maximum context length is 10", ContextTooLongError, False),
    (400, "invalid_request_error", "prompt is too long: 9 > 8", ContextTooLongError, False),
    (413, "request_too_large", "too large", ContextTooLongError, False),
    (400, "content_filter", "the prompt was filtered", ContentRefusedError, False),
    (429, "rate_limit_error", "slow down", RateLimitError, True),
    (429, "insufficient_quota", "you have nothing left", RateLimitError, False),
    (500, "api_error", "internal", OverloadedError, True),
    (503, "unavailable", "come back later", OverloadedError, True),
    (529, "overloaded_error", "overloaded", OverloadedError, True),
]


@each_wire
@pytest.mark.parametrize(
    ("status", "code", "message", "error", "retryable"),
    STATUSES,
    ids=[f"{status}-{code}-{error.__name__}" for status, code, _, error, _ in STATUSES],
)
async def test_a_status_is_an_error_of_its_kind(
    kind: Any, status: int, code: str, message: str, error: type[ModelError], retryable: bool
) -> None:
    found = await failing(kind, Wire(status=status, code=code, message=message))
    assert type(found) is error
    assert (found.status, found.retryable) == (status, retryable)
    assert message in str(found)
    assert found.code is not None
    assert found.code.lower() == code


@each_wire
async def test_a_rate_limit_says_how_long_to_wait_and_which_request_it_was(kind: Any) -> None:
    header = "request-id" if kind == "anthropic" else "x-request-id"
    headers = {"retry-after": "7", header: "req_42"}
    found = await failing(kind, Wire(status=429, code="rate_limit_error", headers=headers))
    assert (found.retry_after, found.request_id) == (7.0, "req_42")


@each_wire
async def test_the_wait_may_be_a_date_or_milliseconds(kind: Any) -> None:
    found = await failing(kind, Wire(status=503, headers={"retry-after-ms": "1500"}))
    assert found.retry_after == 1.5
    date = format_datetime(datetime.now(UTC) + timedelta(hours=1), usegmt=True)
    found = await failing(kind, Wire(status=503, headers={"retry-after": date}))
    assert found.retry_after is not None
    assert 3000 < found.retry_after <= 3600
    found = await failing(kind, Wire(status=503, headers={"retry-after": "soon"}))
    assert found.retry_after is None


async def test_google_tells_the_wait_in_the_details_of_its_error() -> None:
    body = (
        b'{"error": {"code": 429, "status": "RESOURCE_EXHAUSTED", "message": "quota", "details": '
        b'[{"@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": "34.5s"}]}}'
    )
    found = await failing("google", Wire(status=429, body=body))
    assert (type(found), found.retry_after) == (RateLimitError, 34.5)


async def test_googles_word_for_a_wrong_key_is_a_bad_request() -> None:
    body = (
        b'{"error": {"code": 400, "status": "INVALID_ARGUMENT", "message": "API key not valid.", '
        b'"details": [{"reason": "API_KEY_INVALID"}]}}'
    )
    assert type(await failing("google", Wire(status=400, body=body))) is AuthenticationError


@each_wire
async def test_an_error_page_that_is_no_json_is_told_too(kind: Any) -> None:
    found = await failing(kind, Wire(status=502, body=b"<html>Bad Gateway</html>"))
    assert type(found) is OverloadedError
    assert found.status == 502


@each_wire
async def test_a_time_to_wait_that_is_no_date_is_left_out(kind: Any) -> None:
    headers = {"retry-after": f"1 Jan {'9' * 20} 00:00:00 GMT"}
    found = await failing(kind, Wire(status=429, headers=headers))
    assert (type(found), found.retry_after) == (RateLimitError, None)


@each_wire
async def test_no_error_holds_the_key(kind: Any) -> None:
    message = f"Incorrect API key provided: {KEY}; also sk-other-0987654321."
    found = await failing(kind, Wire(status=401, code="invalid_api_key", message=message))
    told = "".join(traceback.format_exception(found)) + repr(found) + repr(vars(found))
    assert KEY not in told
    assert "sk-" not in told
    assert "Incorrect API key provided" in told
    assert found.__cause__ is None
    assert found.__context__ is None


ERRORS_IN_THE_STREAM = {
    "openai": [
        (
            b'data: {"type":"error","code":"rate_limit_exceeded","message":"slow"}\n\n',
            RateLimitError,
        ),
        (
            b'data: {"type":"response.failed","response":{"error":{"code":"server_error",'
            b'"message":"oops"}}}\n\n',
            OverloadedError,
        ),
    ],
    "openai-chat": [
        (b'data: {"error":{"code":502,"message":"upstream is down"}}\n\n', OverloadedError),
        (
            b'data: {"error":{"code":"context_length_exceeded","message":"too long"}}\n\n',
            ContextTooLongError,
        ),
    ],
    "anthropic": [
        (
            b'event: error\ndata: {"type":"error","error":{"type":"overloaded_error",'
            b'"message":"busy"}}\n\n',
            OverloadedError,
        ),
    ],
    "google": [
        (
            b'data: {"error": {"code": 503, "message": "busy", "status": "UNAVAILABLE"}}\n\n',
            OverloadedError,
        ),
        (b'data: {"promptFeedback": {"blockReason": "SAFETY"}}\n\n', ContentRefusedError),
    ],
}


@pytest.mark.parametrize(
    ("kind", "body", "error"),
    [(kind, *case) for kind, cases in ERRORS_IN_THE_STREAM.items() for case in cases],
    ids=[f"{k}-{case[1].__name__}" for k, cases in ERRORS_IN_THE_STREAM.items() for case in cases],
)
async def test_an_error_in_a_stream_that_began_well(
    kind: Any, body: bytes, error: type[ModelError]
) -> None:
    assert type(await failing(kind, Wire(body=body))) is error


NO_FORMAT = {
    "empty": (Wire(body=b""), True),
    "html": (Wire(body=b"<html>hello</html>"), False),
    "no-json": (Wire(body=b"data: {not json}\n\n"), True),
    "wrong-types": (Wire(body=b'data: {"type": 7, "choices": 7, "candidates": 7}\n\n'), False),
    "array": (Wire(body=b"data: [1, 2]\n\n"), False),
    "bytes": (Wire(LONG, garbage=b"\xff\xfe garbage \x00", after=300), True),
    "half": (Wire(LONG, garbage=b'\n\ndata: {"half', after=300), True),
}


@each_wire
@pytest.mark.parametrize(("turn", "retryable"), NO_FORMAT.values(), ids=NO_FORMAT)
async def test_what_is_not_the_format_is_a_malformed_stream(
    kind: Any, turn: Wire, retryable: bool
) -> None:
    """It is worth another try where bytes were lost, and not where the server means it so."""
    found = await failing(kind, turn)
    assert type(found) is MalformedStreamError
    assert found.retryable == retryable


@each_wire
@pytest.mark.parametrize("cut", [0, 1, 200, 700])
async def test_a_connection_that_is_cut(kind: Any, cut: int) -> None:
    found = await failing(kind, Wire(LONG, cut=cut or 1, piece=50))
    assert type(found) in (ModelConnectionError, MalformedStreamError)
    assert found.retryable


WHOLE = {
    "openai-chat": sse(delta(content="All of it."), delta("stop"), done=False),
    "google": sse(gemini({"text": "All of it."}), gemini(finishReason="STOP"), done=False),
}


@pytest.mark.parametrize("kind", WHOLE)
@pytest.mark.parametrize("how", ["cut", "stall", "half an event"])
async def test_a_connection_that_fails_after_the_finish_reason_loses_nothing(
    kind: Any, how: str
) -> None:
    body = WHOLE[kind].body or b""
    end = {} if how == "half an event" else {how: len(body)}
    body += b'data: {"usa' if how == "half an event" else b""
    async with wire(kind, Wire(body=body, **end), idle_timeout=0.1) as (model, _):
        response = await Agent(model).chat("Hi.")
    assert (response.text, response.finish_reason) == ("All of it.", "stop")


@each_wire
@pytest.mark.parametrize("made", [False, True], ids=["client", "function"])
async def test_no_error_contains_the_key_of_a_users_client(kind: Any, made: bool) -> None:
    message = f"your key {OTHER_KEY} has no access"
    async with WireServer(kind, Wire(status=403, message=message)) as server:
        client = clients(kind, server.url, OTHER_KEY)
        model = ADAPTERS[kind]("m", client=(lambda: client) if made else client)
        with pytest.raises(AuthenticationError, match="has no access") as caught:
            await Agent(model).chat("Hi.")
        if not made:
            await closed(client)
    assert OTHER_KEY not in str(caught.value)


@pytest.mark.parametrize(
    "headers", [{}, {"x-server-timeout": "60"}, {"X-Server-Timeout": "60"}], ids=repr
)
async def test_the_idle_timeout_does_not_limit_the_whole_answer_of_gemini(headers: Any) -> None:
    async with wire("google", "Hi.", idle_timeout=20, settings=GoogleSettings(headers=headers)) as (
        model,
        server,
    ):
        await Agent(model).chat("Hi.")
    assert server.requests[0].headers.get("x-server-timeout") == ("60" if headers else None)


@each_wire
async def test_nobody_listens(kind: Any) -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{unused.getsockname()[1]}"
        model = ADAPTERS[kind]("m", base_url=url, api_key=KEY)
        with pytest.raises(ModelConnectionError) as caught:
            await Agent(model).chat("Hi.")
    assert caught.value.retryable


@each_wire
@pytest.mark.parametrize("stall", [1, 4000], ids=["at once", "in the middle"])
async def test_a_service_that_falls_silent(kind: Any, stall: int) -> None:
    found = await failing(kind, Wire(LONG, stall=stall), idle_timeout=0.1)
    assert type(found) is IdleTimeoutError
    assert isinstance(found, TimeoutError)


@each_wire
async def test_an_idle_timeout_does_not_count_what_a_slow_reader_takes(kind: Any) -> None:
    """The limit is for silence of the service: the test's own waits are longer than it."""
    async with wire(kind, Wire(LONG), idle_timeout=0.05) as (model, _):
        texts = []
        async with Agent(model).chat_stream("Hi.") as stream:
            async for event in stream:
                if isinstance(event, TextDelta):
                    texts.append(event.text)
                    if len(texts) == 1:
                        await asyncio.sleep(0.2)
    assert stream.response.text == "word " * 100


# ── leaving ─────────────────────────────────────────────────────────────────────────────────


async def silent(stream: Any, server: WireServer, place: str) -> None:
    """Read until the service has fallen silent there, where the script stalls it."""
    async for event in stream:
        if place == "at once" or isinstance(event, TextDelta):
            break
    await asyncio.wait_for(server.asked.wait(), 60)


PLACES = {"at once": 1, "in the middle": 4000}


@each_wire
@pytest.mark.parametrize("place", PLACES)
async def test_an_abort_closes_the_connection(kind: Any, place: str) -> None:
    """`left` is set by the server, when it reads the end of the connection."""
    async with (
        wire(kind, Wire(LONG, stall=PLACES[place])) as (model, server),
        Agent(model).chat_stream("Hi.") as stream,
    ):
        await silent(stream, server, place)
        stream.abort("enough")
        await asyncio.wait_for(server.left.wait(), 60)


@each_wire
@pytest.mark.parametrize("place", PLACES)
async def test_a_reader_that_breaks_out_closes_the_connection(kind: Any, place: str) -> None:
    async with wire(kind, Wire(LONG, stall=PLACES[place])) as (model, server):
        async with Agent(model).chat_stream("Hi.") as stream:
            await silent(stream, server, place)
        await asyncio.wait_for(server.left.wait(), 60)


@each_wire
@pytest.mark.parametrize("place", PLACES)
async def test_a_caller_that_is_cancelled_closes_the_connection(kind: Any, place: str) -> None:
    async with wire(kind, Wire(LONG, stall=PLACES[place])) as (model, server):
        task = asyncio.create_task(Agent(model).chat("Hi."))
        await asyncio.wait_for(server.asked.wait(), 60)
        task.cancel()
        await asyncio.wait([task])
        assert task.cancelled()
        await asyncio.wait_for(server.left.wait(), 60)


@each_wire
@pytest.mark.parametrize("place", PLACES)
async def test_a_reader_that_is_collected_closes_the_connection(kind: Any, place: str) -> None:
    async with wire(kind, Wire(LONG, stall=PLACES[place])) as (model, server):
        stream = Agent(model).chat_stream("Hi.")
        await silent(stream, server, place)
        with pytest.warns(ResourceWarning):  # noqa: PT031 - what is left is not collected at once
            del stream
            gc.collect()
        await asyncio.wait_for(server.left.wait(), 60)


@each_wire
async def test_a_run_that_is_aborted_while_the_reader_is_slow_closes_the_connection(
    kind: Any,
) -> None:
    """The model waits for room and not for bytes: its generator is closed where it stands."""
    async with wire(kind, Wire(Turn(*["word "] * 100), stall=100_000)) as (model, _):
        agent = Agent(model)
        async with agent.chat_stream("Hi.") as stream:
            async for event in stream:
                if isinstance(event, TextDelta):
                    break
        assert asyncio.all_tasks() - {asyncio.current_task()} <= serving()


def serving() -> set[asyncio.Task[Any]]:
    """The tasks of the wire server."""
    return {task for task in asyncio.all_tasks() if "_serve" in repr(task.get_coro())} | {
        task for task in asyncio.all_tasks() if "StreamReader" in repr(task.get_coro())
    }


# ── clients ─────────────────────────────────────────────────────────────────────────────────


@each_wire
async def test_requests_and_models_share_one_client_and_its_connection(kind: Any) -> None:
    async with wire(kind, *["One."] * 6) as (model, server):
        for _ in range(3):
            await Agent(model).chat("Hi.")
        for _ in range(3):
            await Agent(ADAPTERS[kind]("m", base_url=server.url, api_key=KEY)).chat("Hi.")
        assert server.opened == 1


@each_wire
def test_each_event_loop_has_its_own_client_and_closes_it(kind: Any) -> None:
    model: Any = None

    async def one() -> int:
        nonlocal model
        async with WireServer(kind, "One.", "Two.") as server:
            if model is None or kind:
                model = ADAPTERS[kind]("m", base_url=server.url, api_key=KEY)
            await Agent(model).chat("Hi.")
            await Agent(model).chat("Hi.")
            return server.opened

    assert [asyncio.run(one()) for _ in range(3)] == [1, 1, 1]
    gc.collect()  # an unclosed connection would be a ResourceWarning, which fails the test


@each_wire
def test_one_model_in_two_event_loops(kind: Any) -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        port = unused.getsockname()[1]
    path = "/v1" if kind.startswith("openai") else ""
    model = ADAPTERS[kind]("m", base_url=f"http://127.0.0.1:{port}{path}", api_key=KEY)

    async def one() -> str:
        async with WireServer(kind, "One.", port=port):
            return (await Agent(model).chat("Hi.")).text

    assert [asyncio.run(one()), asyncio.run(one())] == ["One.", "One."]


def clients(kind: str, url: str, key: str = KEY) -> Any:
    """A client as a user makes it."""
    if kind.startswith("openai"):
        import openai

        return openai.AsyncOpenAI(api_key=key, base_url=url, max_retries=5)
    if kind == "anthropic":
        import anthropic

        return anthropic.AsyncAnthropic(api_key=key, base_url=url, max_retries=5)
    from google import genai

    options: Any = {"base_url": url, "retry_options": {"attempts": 5}}
    return genai.Client(api_key=key, http_options=options)


async def closed(client: Any) -> None:
    await (client.aio.aclose() if hasattr(client, "aio") else client.close())


@each_wire
async def test_a_client_of_the_users_is_used_without_its_retries_and_left_open(kind: Any) -> None:
    async with WireServer(kind, "Mine.", Wire(status=500), "Still open.") as server:
        client = clients(kind, server.url)
        agent = Agent(ADAPTERS[kind]("m", client=client))
        assert (await agent.chat("Hi.")).text == "Mine."
        with pytest.raises(OverloadedError):
            await agent.chat("Hi.")
        assert (await agent.chat("Hi.")).text == "Still open."
        assert len(server.requests) == 3
        await closed(client)


@each_wire
def test_a_client_that_cannot_be_awaited_is_refused_at_once(kind: Any) -> None:
    import anthropic
    import openai

    for client in (openai.OpenAI(api_key=KEY), anthropic.Anthropic(api_key=KEY), "a client"):
        refused = f"client= is an object of type {type(client).__name__},"
        with pytest.raises(UsageError, match=refused):
            ADAPTERS[kind]("m", client=client)


OPTIONS = {"api_key": KEY, "base_url": "https://example.org/v1"}


@each_wire
@pytest.mark.parametrize(
    "names", [("api_key",), ("base_url",), ("api_key", "base_url")], ids="+".join
)
@pytest.mark.parametrize("made", [False, True], ids=["a client", "a function"])
def test_an_option_that_a_client_would_silence_is_refused_at_once(
    kind: Any, names: tuple[str, ...], made: bool
) -> None:
    client = clients(kind, "https://example.com/v1")
    options = {name: OPTIONS[name] for name in names}
    listed = " and ".join(f"{name}=" for name in names)
    with pytest.raises(UsageError, match=f"leave out {listed}, or leave out client=") as caught:
        ADAPTERS[kind]("m", client=(lambda: client) if made else client, **options)
    assert KEY not in str(caught.value)


@each_wire
def test_a_client_of_the_users_is_not_taken_to_another_loop(kind: Any) -> None:
    made: list[Any] = []

    async def one() -> str:
        async with WireServer(kind, "One.") as server:
            if not made:
                made.append(clients(kind, server.url))
                made.append(ADAPTERS[kind]("m", client=made[0]))
            text = (await Agent(made[1]).chat("Hi.")).text
            await closed(made[0])
            return text

    assert asyncio.run(one()) == "One."
    with pytest.raises(UsageError, match="client=lambda"):
        asyncio.run(Agent(made[1]).chat("Hi."))


@each_wire
def test_a_function_that_makes_clients_is_asked_once_per_loop(kind: Any) -> None:
    made: list[Any] = []
    urls: list[str] = []

    def make() -> Any:
        made.append(clients(kind, urls[-1]))
        return made[-1]

    model = ADAPTERS[kind]("m", client=make)

    async def one() -> None:
        async with WireServer(kind, "One.", "Two.") as server:
            urls.append(server.url)
            await Agent(model).chat("Hi.")
            await Agent(model).chat("Hi.")

    asyncio.run(one())
    asyncio.run(one())
    assert len(made) == 2


@each_wire
async def test_the_environment_gives_the_key(kind: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    names = {"anthropic": "ANTHROPIC_API_KEY", "google": "GEMINI_API_KEY"}
    monkeypatch.setenv(names.get(kind, "OPENAI_API_KEY"), "from-the-environment")
    async with WireServer(kind, "Hello.") as server:
        await Agent(ADAPTERS[kind]("m", base_url=server.url)).chat("Hi.")
        assert "from-the-environment" in str(server.requests[0].headers)


@pytest.mark.parametrize(
    ("name", "variable"),
    [
        ("openai:gpt-x", "OPENAI_API_KEY"),
        ("openai-chat:gpt-x", "OPENAI_API_KEY"),
        ("anthropic:claude-x", "ANTHROPIC_API_KEY"),
        ("google:gemini-x", "GOOGLE_API_KEY"),
    ],
)
async def test_a_missing_key_names_the_variable(name: str, variable: str) -> None:
    with pytest.raises(UsageError, match=variable):
        await Agent(name).chat("Hi.")


async def test_a_server_of_ones_own_needs_no_key() -> None:
    async with WireServer("openai-chat", "Hello.") as server:
        response = await Agent(OpenAIChatModel("qwen", base_url=server.url)).chat("Hi.")
        assert response.text == "Hello."
        assert server.requests[0].json["model"] == "qwen"


# ── models by name ──────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("openai:gpt-x", OpenAIModel),
        ("openai-chat:org/model:free", OpenAIChatModel),
        ("anthropic:claude-x", AnthropicModel),
        ("google:gemini-x", GoogleModel),
    ],
)
def test_a_prefix_names_the_provider(name: str, kind: type) -> None:
    model: Any = Agent(name)._config.model
    assert type(model) is kind
    assert model.name == name.partition(":")[2]
    words = {"google": "gcp.gemini"}  # as telemetry has them
    prefix = name.partition(":")[0].removesuffix("-chat")
    assert model.provider == words.get(prefix, prefix)
    assert model.server_address in HOSTS
    assert model.server_port == 443


HOSTS = ("api.openai.com", "api.anthropic.com", "generativelanguage.googleapis.com")


@each_wire
def test_a_model_tells_traces_where_its_service_is(kind: Any) -> None:
    model: Any = ADAPTERS[kind]("m", base_url="http://localhost:8000/v1", api_key=KEY)
    assert (model.server_address, model.server_port) == ("localhost", 8000)
    if kind != "google":
        model = ADAPTERS[kind]("m", client=clients(kind, "https://example.org"))
        assert (model.server_address, model.server_port) == ("example.org", 443)


@each_wire
def test_a_model_whose_client_a_function_makes_tells_traces_no_address(kind: Any) -> None:
    model: Any = ADAPTERS[kind]("m", client=lambda: clients(kind, "https://example.org"))
    assert (model.server_address, model.server_port) == (None, None)


@pytest.mark.parametrize("name", ["gpt-x", "nobody:x", "openai:", ""])
def test_a_name_that_means_nothing_names_what_there_is(name: str) -> None:
    with pytest.raises(UsageError, match=r"openai:…, openai-chat:…, anthropic:…, google:…"):
        Agent(name)


class Echo:
    """A model of a third party."""

    def __init__(self, name: str) -> None:
        self.name = name

    async def stream(self, request: Any) -> Any:
        raise NotImplementedError
        yield


@pytest.fixture
def registered(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[EntryPoint]]:
    """Entry points as if a distribution had brought them."""
    points: list[EntryPoint] = []

    def entry_points(**wanted: str) -> EntryPoints:
        return EntryPoints(points).select(**wanted)

    monkeypatch.setattr("importlib.metadata.entry_points", entry_points)
    return points


def test_a_third_party_registers_a_prefix(registered: list[EntryPoint]) -> None:
    registered.append(EntryPoint("echo", f"{__name__}:Echo", "hookline.models"))
    model: Any = Agent("echo:loud")._config.model
    assert (type(model).__name__, model.name) == ("Echo", "loud")
    with pytest.raises(UsageError, match="echo:…"):
        Agent("nobody:x")


def test_a_prefix_that_two_registered_is_refused(registered: list[EntryPoint]) -> None:
    registered.append(EntryPoint("echo", f"{__name__}:Echo", "hookline.models"))
    registered.append(EntryPoint("echo", f"{__name__}:call", "hookline.models"))
    with pytest.raises(UsageError, match="more than once"):
        Agent("echo:loud")


def test_an_entry_point_that_gives_no_model_is_refused(registered: list[EntryPoint]) -> None:
    registered.append(EntryPoint("echo", "builtins:str", "hookline.models"))
    with pytest.raises(UsageError, match="is not a Model"):
        Agent("echo:loud")


@pytest.mark.parametrize(
    ("name", "line"),
    [
        ("openai:x", r'pip install "hookline\[openai\]"'),
        ("openai-chat:x", r'pip install "hookline\[openai\]"'),
        ("anthropic:x", r'pip install "hookline\[anthropic\]"'),
        ("google:x", r'pip install "hookline\[google\]"'),
    ],
)
def test_a_missing_package_names_the_pip_line(
    name: str, line: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda module: None)
    with pytest.raises(UsageError, match=line):
        Agent(name)


# ── what cannot be said ─────────────────────────────────────────────────────────────────────


async def test_what_a_provider_cannot_be_told_is_refused_before_anything_is_sent() -> None:
    async with wire("openai") as (model, server):
        with pytest.raises(BadRequestError, match="stop"):
            await Agent(model, settings=Settings(stop=("END",))).chat("Hi.")
        with pytest.raises(BadRequestError, match="neither data nor url"):
            await Agent(model).chat([Image()])
        assert server.requests == []
    async with wire("google") as (model, server):
        settings = Settings(extra={"google": {"temprature": "my secret"}})
        with pytest.raises(BadRequestError, match="temprature") as caught:
            await Agent(model, settings=settings).chat("Hi.")
        assert "secret" not in str(caught.value)
        assert server.requests == []


# ── the page ────────────────────────────────────────────────────────────────────────────────


def test_the_smallest_adapter_of_the_docs_is_one_file_of_at_most_60_lines() -> None:
    """It is run with the other blocks of the docs."""
    page = (Path(__file__).parents[2] / "docs" / "models.md").read_text()
    blocks = re.findall(r"^```python\n(.*?)^```$", page, re.DOTALL | re.MULTILINE)
    [block] = [each for each in blocks if "class AcmeModel" in each]
    assert len(block.splitlines()) <= 60
