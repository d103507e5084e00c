"""Google's Gemini, through the SDK `google-genai` (extra `google`)."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import aclosing, suppress
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from msgspec.structs import replace

from hookline.models import Chunk, ModelRequest
from hookline.providers._adapter.clients import (
    IDLE_TIMEOUT,
    address_of,
    from_environment,
    imported,
    keys_of,
)
from hookline.providers._adapter.connection import Connection, Service
from hookline.providers._adapter.errors.failures import Exchange
from hookline.providers._adapter.http_limits import hooks, put_body
from hookline.providers._adapter.json_fields import is_object
from hookline.providers._adapter.request_parts import refuse
from hookline.providers._adapter.streaming import Body, relay, send_request
from hookline.providers.google._reader import GeminiReader
from hookline.providers.google._request import DEFAULTS, PROVIDER, GoogleSettings, request_body

if TYPE_CHECKING:
    from google.genai import Client as GenaiClient

__all__ = ["GoogleModel", "GoogleSettings"]

Client: TypeAlias = "GenaiClient | Callable[[], GenaiClient]"

_NOT_WIRE: Final = {"sdk_http_response", "automatic_function_calling_history", "parsed"}

_LIMIT: Final = "X-Server-Timeout"

_bodies: ContextVar[list[Any]] = ContextVar("hookline_google_bodies")


class _Answer:
    """The body of an answer, which hookline reads itself: the SDK's reader has no size limit."""

    def __init__(self, response: Any) -> None:
        self.headers = dict(response.headers)
        self._stream = response.stream

    async def iter_bytes(self) -> AsyncIterator[bytes]:
        async for piece in self._stream:
            yield piece

    async def close(self) -> None:
        await self._stream.aclose()

    async def __aenter__(self) -> Body:
        return self

    async def __aexit__(self, *exc: object) -> None:
        with suppress(Exception):  # which would replace the cancellation
            await self.close()


async def _take_body(response: Any) -> None:
    """Take the body of an answer; the SDK reads an empty event in its place."""
    bodies = _bodies.get(None)
    if bodies is not None and response.status_code < 300:
        bodies.append(_Answer(response))
        put_body(response, b"data: {}\n\n", "text/event-stream")


async def _unlimited(request: Any) -> None:
    """Send no limit for the whole answer unless the user has set one."""
    limits = [value for value in request.headers.get_list(_LIMIT) if value]
    request.headers.pop(_LIMIT, None)
    if limits:
        request.headers[_LIMIT] = limits[-1]


def _on_vertex() -> bool:
    """Return whether the environment selects Vertex AI."""
    names = ("GOOGLE_GENAI_USE_VERTEXAI", "GOOGLE_GENAI_USE_ENTERPRISE")
    return (from_environment(*names) or "false").lower() in ("1", "true")


class _Client:
    """The SDK's client, and its HTTP client if hookline must close it."""

    def __init__(self, client: GenaiClient, http: Any = None) -> None:
        self.client: Any = client
        self._http = http
        self.api_key = next(iter(keys_of(client)), None)
        self.base_url = address_of(client)
        # The SDK derives a limit for the whole answer from its timeout, unless it has the header.
        self.headers = {_LIMIT: ""} if http is not None else {}

    async def close(self) -> None:
        await self.client.aio.aclose()
        if self._http is not None:
            await self._http.aclose()


def _options(base_url: str | None) -> tuple[Any, Any]:
    """Return SDK options with an HTTP client that reports each response, and that HTTP client."""
    types = imported("google.genai.types")
    address = {} if base_url is None else {"base_url": base_url}
    guards = hooks()
    for name in ("httpx2", "httpx"):  # the SDK's version decides which of them it uses
        try:
            http = imported(name).AsyncClient(
                event_hooks={
                    "request": [_unlimited, *guards["request"]],
                    "response": [*guards["response"], _take_body],
                },
                follow_redirects=True,
            )
            return types.HttpOptions(httpx_async_client=http, **address), http
        except (ImportError, ValueError):
            continue
    return types.HttpOptions(**address), None


def _make_client(connection: Connection[Any]) -> _Client:
    connection.key()
    options, http = _options(connection.base_url)
    client = imported("google.genai").Client(api_key=connection.api_key, http_options=options)
    return _Client(client, http)


def _prepare(client: Any) -> _Client:
    return client if isinstance(client, _Client) else _Client(client)


SERVICE: Final = Service(
    name=PROVIDER,
    meta=PROVIDER,
    extra="google",
    modules=("google.genai", "google.genai.types"),
    url="https://generativelanguage.googleapis.com",
    host="googleapis.com",
    keys=("GOOGLE_API_KEY", "GEMINI_API_KEY"),
    variables=("GOOGLE_GENAI_USE_VERTEXAI", "GOOGLE_CLOUD_PROJECT"),
    client="a google.genai.Client, or a function that returns one",
    make=_make_client,
    prepare=_prepare,
)
VERTEX: Final = replace(SERVICE, url="https://aiplatform.googleapis.com", keyless=True)


class GoogleModel:
    """A Gemini model: `GoogleModel("gemini-…")`.

    `client` is your own `google.genai.Client`, or a function that returns a client. By default a
    client is created from `api_key` and `base_url`, or from GOOGLE_API_KEY or GEMINI_API_KEY. For
    Vertex AI, the SDK's own environment variables are used. `settings` are defaults, which the
    settings of the agent and the chat override. `provider` names the service in errors and traces;
    the default in traces is "gcp.gemini" or "gcp.vertex_ai". Data that the service expects back,
    such as signatures, is sent only to a service of the same name; without `provider`, only to the
    same host. `idle_timeout`: the longest time without an event, in seconds.
    Raises UsageError if the SDK is not installed, or if `api_key` or `base_url` is passed together
    with `client`.
    """

    takes_schema = True
    """Whether the provider's own schema mode is used for structured answers."""

    def __init__(
        self,
        name: str,
        *,
        client: Client | None = None,
        api_key: str | None = None,
        base_url: str | None = None,
        settings: GoogleSettings = DEFAULTS,
        provider: str | None = None,
        idle_timeout: float = IDLE_TIMEOUT,
    ) -> None:
        self.name = name
        """The provider's name for the model."""
        self.settings = settings
        vertex = bool(getattr(client, "vertexai", _on_vertex()))
        self._connection: Connection[Any] = Connection(
            VERTEX if vertex else SERVICE,
            *(client, api_key, base_url),
            provider=provider,
            idle_timeout=idle_timeout,
        )
        # The default names are those of telemetry.
        self.provider = provider or ("gcp.vertex_ai" if vertex else "gcp.gemini")
        """The name of the service in traces."""
        self.server_address, self.server_port = self._connection.server()

    def stream(self, request: ModelRequest, /) -> AsyncIterator[Chunk]:
        """Stream the answer, chunk by chunk. Failures raise a ModelError."""
        exchange = self._connection.exchange()
        return relay(exchange, self._events(request, exchange), GeminiReader(exchange))

    async def _events(self, request: ModelRequest, exchange: Exchange) -> AsyncGenerator[Any, None]:
        service = await self._connection.open(exchange)
        body = request_body(self.name, request, self.settings, exchange.server)
        own_options: dict[str, Any] = body["config"].get("http_options") or {}
        if is_object(own_headers := own_options.get("headers") or {}):
            own_options = {**own_options, "headers": {**service.headers, **own_headers}}
        body["config"]["http_options"] = {
            "timeout": int(self._connection.idle_timeout * 1000),
            "retry_options": {"attempts": 1},
            **own_options,
        }
        try:
            config = imported("google.genai.types").GenerateContentConfig(**body["config"])
        except ValueError as exc:
            wrong = f"the SDK refuses these settings ({_places(exc)})"
            raise refuse(PROVIDER, wrong, "see the SDK's GenerateContentConfig") from None
        bodies: list[Any] = []
        _bodies.set(bodies)
        stream: Any = await service.client.aio.models.generate_content_stream(
            model=self.name, contents=body["contents"], config=config
        )
        async with aclosing(stream):
            async for event in stream:
                if not bodies:  # the user's own client: the SDK reads the answer
                    yield event.model_dump(
                        mode="json", by_alias=True, exclude_none=True, exclude=_NOT_WIRE
                    )
        for answer in bodies:
            async with aclosing(send_request(answer, exchange)) as events:
                async for event in events:
                    yield event

    def __repr__(self) -> str:
        return f"<GoogleModel {self.name!r}>"


def _places(exc: Any) -> str:
    """Name the settings that pydantic refuses, without their values."""
    return ", ".join(".".join(map(str, error["loc"])) for error in exc.errors())
